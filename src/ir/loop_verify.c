/* Structure checks of a schedule, run after lowering: a broken invariant is reported before code is made of it.
 * Checks: every range and expression is there, loop indices are those of the nest, buffers and symbols exist, types of
 * indices and masks.  Nothing is changed. */
#include "ir/loop.h"

typedef struct LoopWalk {
  const MgSched *s;
  int nidx;         /* loop indices that may occur */
  bool red;         /* the reduced value may occur */
  const char *bad;  /* first thing that is wrong */
} LoopWalk;

static ExprRef walk_node(MgExprs *x, ExprRef r, const ExprRef *src, void *arg) {
  LoopWalk *w = arg;
  const MgExpr *e = mg_expr(x, r);
  for (int i = 0; i < e->nsrc; i++)
    if (e->src[i] >= r) w->bad = "an expression comes before its parts";
  if (e->op == OP_idx && e->u.i >= w->nidx) w->bad = "an index that the nest does not have";
  if (e->op == OP_sym && e->u.i >= x->nsym) w->bad = "a symbol that does not exist";
  if (e->op == OP_red && !w->red) w->bad = "a reduced value outside of a reduction";
  if (e->op == OP_load && (e->u.i < 1 || e->u.i >= w->s->nbuf)) w->bad = "a load from no buffer";
  return r;
}

/* `what` is wrong unless e is an expression over the first nidx indices; ty TY__COUNT: of any type. */
static void walk_expr(LoopWalk *w, ExprRef e, int nidx, bool red, MgTy ty, const char *what) {
  MgExprs *x = w->s->x;
  w->nidx = nidx;
  w->red = red;
  if (w->bad) return;
  if (!e || e >= x->n || (ty != TY__COUNT && mg_expr(x, e)->ty != ty)) w->bad = what;
  else mg_ex_map(x, e, walk_node, w);
}

static void walk_loop(LoopWalk *w, const MgLoop *l) {
  int all = l->nouter + l->nred, at = l->kind == ML_scan ? all : l->nouter;
  bool reduces = l->kind == ML_reduce || l->kind == ML_scan;
  if (all > MG_MAX_RANK || l->nfree > l->nouter) {
    w->bad = "too many ranges";
    return;
  }
  for (int k = 0; k < all; k++) walk_expr(w, l->range[k], 0, false, TY_i64, "a range is missing");
  if (l->buf < 1 || l->buf >= w->s->nbuf) w->bad = "the buffer is missing";
  if (reduces) walk_expr(w, l->body, all, false, TY__COUNT, "the body is missing");
  walk_expr(w, l->index, at, false, TY_i64, "the index is missing");
  walk_expr(w, l->value, at, reduces, TY__COUNT, "the value is missing");
  if (l->mask) walk_expr(w, l->mask, at, false, TY_i1, "the mask is no condition");
}

MgRc mg_sched_verify(MgSched *s, const char *after) {
  for (uint32_t i = 0; i < s->nitem; i++) {
    LoopWalk w = {.s = s};
    if (s->item[i].kind != MI_loop) continue;
    walk_loop(&w, s->item[i].u.loop);
    TRY(mg_exprs_ok(s->x));
    if (!w.bad) continue;
    const MgOp *op = s->item[i].u.loop->node ? mg_node(s->g, s->item[i].u.loop->node)->op : NULL;
    return mg_fail(s->c, MG_BUG, "%s left a broken nest (item %u, %s): %s", after, i, op ? op->full : "no node", w.bad);
  }
  return MG_OK;
}
