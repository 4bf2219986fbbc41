/* Structure checks of a schedule, run after lowering: a broken invariant is reported before code is made of
 * it. Checks of nests: every range and expression is there, loop indices are those of the nest, buffers and
 * symbols exist, types of indices and masks.
 * Checks of calls: the op is one that an engine or the dispatcher runs, it writes copies only, and its views
 * are there. Checks of outputs: each has a place.  Nothing is changed. */
#include "back/kernel/loop_nest.h"
#include <string.h>

typedef struct LoopWalk {
  const MgSched *s;
  int nidx;        /* loop indices that may occur */
  bool red;        /* the reduced value may occur */
  const char *bad; /* first thing that is wrong */
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

/* ---- calls ---- */

/* The ops that only an engine runs. */
static bool walk_engine_op(uint16_t code) {
  return code == TOP_mg_matmul || code == TOP_mg_conv || code == TOP_mg_sdpa || code == TOP_mg_draws;
}

static void walk_view(LoopWalk *w, const MgView *v, const char *what) {
  if (v->buf >= w->s->nbuf) w->bad = what;
  for (int d = 0; v->buf && d < v->ndim; d++)
    if (!v->size[d] || !v->stride[d]) w->bad = what;
}

static void walk_extern(LoopWalk *w, const MgExtern *e) {
  const MgGraph *g = w->s->g;
  const MgNode *n = e->node && e->node < g->nnode ? mg_node(g, e->node) : NULL;
  if (!n || n->dead) {
    w->bad = "a call of no node";
    return;
  }
  bool own = !strncmp(n->op->name, "mg::", 4);
  if (own ? !walk_engine_op(n->op->code) : e->prealloc)
    w->bad = "an op that neither an engine nor the dispatcher has";
  if (own && !e->prealloc) w->bad = "an engine's op for the dispatcher";
  if (n->op->mutates && !mg_node_on_copies(n)) w->bad = "a call that writes its arguments";
  if (e->nout != n->nout) w->bad = "results that the op does not have";
  for (uint32_t i = 0; !w->bad && i < e->nin; i++) walk_view(w, &e->in[i], "an argument is missing");
  for (uint32_t i = 0; !w->bad && i < e->nout; i++) walk_view(w, &e->out[i], "a result is missing");
}

/* ---- the whole ---- */

static MgRc walk_outputs(MgSched *s, const char *after) {
  const MgGraph *g = s->g;
  for (uint32_t i = 0; i < g->noutput; i++) {
    bool alias = g->out_alias && (g->out_alias[i].of_input >= 0 || g->out_alias[i].of_output >= 0);
    if (g->output[i] && !alias && (i >= s->nout || !s->out[i].buf || s->out[i].buf >= s->nbuf))
      return mg_fail(s->c, MG_BUG, "%s left output %u without a place", after, i);
  }
  return MG_OK;
}

MgRc mg_sched_verify(MgSched *s, const char *after) {
  for (uint32_t i = 0; i < s->nitem; i++) {
    LoopWalk w = {.s = s};
    const MgItem *item = &s->item[i];
    bool nest = item->kind == MI_loop;
    if (nest) walk_loop(&w, item->u.loop);
    else walk_extern(&w, item->u.ext);
    TRY(mg_exprs_ok(s->x));
    if (!w.bad) continue;
    NodeRef n = nest ? item->u.loop->node : item->u.ext->node;
    const char *op = n && n < s->g->nnode ? mg_node(s->g, n)->op->full : "no node";
    return mg_fail(s->c, MG_BUG, "%s left a broken %s (item %u, %s): %s", after, nest ? "nest" : "call", i,
                   op, w.bad);
  }
  return walk_outputs(s, after);
}
