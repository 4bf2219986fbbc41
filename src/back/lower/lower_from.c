/* Which graph nodes a loop nest computes: for names that profilers show.
 * In: a lowered graph.  Out: MgLoop.from: the node of the nest, and those before it whose results were never
 * put into memory.
 * Views move nothing and are left out.  Only the first few nodes are kept; no pass relies on them. */
#include "back/lower/lower_priv.h"
#include "tuning.h"

typedef struct From {
  Lower *L;
  uint32_t *seen; /* per node: the last nest that looked at it */
  uint32_t mark, looks;
  MgLoop *loop;
} From;

void lw_from_value(Lower *L, uint32_t first, ValRef v) {
  for (uint32_t i = first; i < L->s->nitem; i++) {
    MgItem *item = &L->s->item[i];
    if (item->kind == MI_loop && !item->u.loop->node) item->u.loop->node = lw_meta(L, v)->def;
  }
}

static void from_value(ValRef *v, void *arg);

static void from_node(From *f, NodeRef ref) {
  MgNode *n = mg_node(f->L->g, ref);
  if (f->seen[ref] == f->mark || f->looks == MG_TUNE_FROM_NODES || f->loop->nfrom == MG_LOOP_FROM) return;
  f->seen[ref] = f->mark;
  f->looks++;
  if (!n->op->is_view) f->loop->from[f->loop->nfrom++] = ref;
  mg_node_each_val(n, from_value, f);
}

static void from_value(ValRef *v, void *arg) {
  From *f = arg;
  const LwVal *lv = &f->L->val[*v];
  bool view = *v && lw_meta(f->L, *v)->def && mg_node(f->L->g, lw_meta(f->L, *v)->def)->op->is_view;
  if (*v && lw_meta(f->L, *v)->def && (lv->kind == LW_expr || lv->e || view))
    from_node(f, lw_meta(f->L, *v)->def);
}

static void from_sort(MgLoop *l) {
  for (int i = 1; i < l->nfrom; i++) {
    NodeRef r = l->from[i];
    int k = i;
    for (; k > 0 && l->from[k - 1] > r; k--) l->from[k] = l->from[k - 1];
    l->from[k] = r;
  }
}

MgRc lw_from_all(Lower *L) {
  From f = {.L = L, .seen = mg_new(L->c, uint32_t, L->g->nnode + 1)};
  TRYP(f.seen);
  for (uint32_t i = 0; i < L->s->nitem; i++) {
    if (L->s->item[i].kind != MI_loop || !L->s->item[i].u.loop->node) continue;
    f.loop = L->s->item[i].u.loop;
    f.mark = i + 1;
    f.looks = 0;
    from_node(&f, f.loop->node);
    from_sort(f.loop);
  }
  return MG_OK;
}
