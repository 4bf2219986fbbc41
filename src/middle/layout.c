/* Memory formats inside the graph: convolutions run on channels-last data, so values between them get such strides
 * and the nests around them are lowered that way; no copies are added.
 * In: a functional graph with mg::conv nodes.  Out: the same nodes; some values have other strides.
 * A value may change when nobody can tell: it is not a graph output or write-back, its producer can write any strides
 * (a convolution or a node that becomes loops), and every reader can read any (the same, no views, no extern calls).
 * It does change when a convolution makes or reads it, or when its neighbours in a chain of loops changed.
 * Concatenations that grow (each holds an earlier one and adds channels to it) get the strides of the largest of them,
 * so that lowering can give them one buffer and store every part once. */
#include "middle/middle.h"

typedef struct Layout {
  MgGraph *g;
  const MgSimplifyOpts *o;
  bool *free;   /* per value: strides may be chosen */
  bool *last;   /* per value: channels-last is chosen */
  bool *dense;  /* per value: a convolution reads it */
  SymRef *chan; /* per value: channels of the largest concatenation that it begins, or 0 */
  bool strict;  /* the node being looked at needs the strides of its arguments */
} Layout;

static bool layout_candidate(const MgGraph *g, ValRef v) {
  const MgVal *t = mg_val(g, v);
  int64_t n, spatial = 1;
  if (t->ndim < 4 || t->ndim > 5 || t->device != DEV_cpu) return false;
  for (int i = 0; i < t->ndim; i++) {
    if (!mg_ex_const_int(g->x, t->size[i], &n) || n < 1) return false;
    if (i >= 2) spatial *= n;
  }
  return spatial > 1 && !mg_sym_is(g->x, t->size[1], 1); /* else both formats are one */
}

static bool layout_is_conv(const MgNode *n) { return n->op->code == TOP_mg_conv; }

static bool layout_is_view(const MgNode *n) {
  uint16_t c = n->op->code; /* these may share memory though their schemas do not say so */
  return n->op->is_view || c == TOP_reshape || c == TOP__unsafe_view || c == TOP_flatten_using_ints;
}

/* Loops read and write through any strides. */
static bool layout_is_loops(const Layout *l, NodeRef n) {
  return !layout_is_view(mg_node(l->g, n)) && l->o->lowers && l->o->lowers(l->g, n);
}

static void layout_pin(ValRef *v, void *arg) {
  Layout *l = arg;
  if (l->strict) l->free[*v] = false;
}

static void layout_mark_dense(ValRef *v, void *arg) { ((Layout *)arg)->dense[*v] = true; }

typedef struct LayoutScan { /* a question about a node's arguments */
  Layout *l;
  int ndim;      /* look at arguments of this rank */
  bool set;      /* choose channels-last for those that are free */
  bool any;      /* one of them has it */
} LayoutScan;

static void layout_scan(ValRef *v, void *arg) {
  LayoutScan *s = arg;
  if (mg_val(s->l->g, *v)->ndim != s->ndim) return;
  if (s->set && s->l->free[*v]) s->l->last[*v] = true;
  s->any |= s->l->last[*v];
}

/* Spreads the choice over one node: from arguments to results and back. */
static void layout_spread(Layout *l, MgNode *n, bool loops) {
  bool conv = layout_is_conv(n);
  if (!conv && !loops) return;
  for (int i = 0; i < n->nout; i++) {
    ValRef v = n->out[i];
    if (!v) continue;
    LayoutScan s = {.l = l, .ndim = mg_val(l->g, v)->ndim, .set = conv || l->last[v]};
    mg_node_each_val(n, layout_scan, &s);
    if (l->free[v] && (conv || s.any)) l->last[v] = true;
  }
}

/* The channels that a concatenation along dimension 1 puts together; 0 items: it is none. */
static const MgArg *layout_parts(const Layout *l, const MgNode *n) {
  static const MgArg none;
  if (n->dead || n->op->code != TOP_cat || !l->last[n->out[0]] || l->dense[n->out[0]]) return &none;
  return n->arg[0].tag == MA_list && mg_sym_is(l->g->x, n->arg[1].u.sym, 1) ? &n->arg[0] : &none;
}

/* Looks for a concatenation that node k begins and that no earlier one was found to begin. */
static void layout_chain(Layout *l, NodeRef k, bool *begun) {
  const MgArg *a = layout_parts(l, mg_node(l->g, k));
  ValRef v = a->n ? mg_node(l->g, k)->out[0] : 0;
  for (NodeRef e = k + 1; v && e < l->g->nnode; e++) {
    const MgArg *b = layout_parts(l, mg_node(l->g, e));
    uint32_t i = 0;
    while (i < a->n && i < b->n && a->u.item[i].u.val == b->u.item[i].u.val) i++;
    if (i < a->n || b->n == a->n) continue;
    ValRef w = mg_node(l->g, e)->out[0];
    if (begun[w]) return;
    begun[w] = true;
    l->chan[v] = l->chan[w] ? l->chan[w] : mg_val(l->g, w)->size[1];
    if (!l->chan[w]) l->chan[w] = l->chan[v];
    return;
  }
}

static void layout_apply(const Layout *l, ValRef v) {
  MgGraph *g = l->g;
  MgVal *t = mg_val(g, v);
  SymRef n = l->chan[v] ? l->chan[v] : t->size[1];
  t->stride[1] = mg_sym(g->x, 1);
  for (int i = t->ndim - 1; i >= 2; i--) t->stride[i] = n, n = mg_sym_mul(g->x, n, t->size[i]);
  t->stride[0] = n;
}

MgRc mg_layout(MgGraph *g, const MgSimplifyOpts *o) {
  Layout l = {.g = g, .o = o};
  if (!o->onednn || o->keep_layout) return MG_OK;
  bool *loops = mg_new(g->c, bool, g->nnode);
  TRYP(loops);
  TRYP(l.free = mg_new(g->c, bool, g->nval));
  TRYP(l.last = mg_new(g->c, bool, g->nval));
  TRYP(l.dense = mg_new(g->c, bool, g->nval));
  TRYP(l.chan = mg_new(g->c, SymRef, g->nval));
  for (uint32_t k = 1; k < g->nnode; k++) {
    MgNode *n = mg_node(g, k);
    if (n->dead) continue;
    loops[k] = layout_is_loops(&l, k);
    l.strict = !layout_is_conv(n) && !loops[k];
    for (int i = 0; i < n->nout && !l.strict; i++)
      if (n->out[i]) l.free[n->out[i]] = layout_candidate(g, n->out[i]);
    mg_node_each_val(n, layout_pin, &l);
    if (layout_is_conv(n)) mg_node_each_val(n, layout_mark_dense, &l);
  }
  for (uint32_t i = 0; i < g->noutput; i++) l.free[g->output[i]] = false;
  for (uint32_t i = 0; i < g->nwb; i++) l.free[g->wb_value[i]] = false;
  for (uint32_t k = g->nnode; k-- > 1;) /* backwards, so that producers of a chain before a convolution follow it */
    if (!mg_node(g, k)->dead) layout_spread(&l, mg_node(g, k), loops[k]);
  for (uint32_t k = 1; k < g->nnode; k++)
    if (!mg_node(g, k)->dead) layout_spread(&l, mg_node(g, k), loops[k]);
  bool *begun = mg_new(g->c, bool, g->nval);
  TRYP(begun);
  for (uint32_t k = g->nnode; k-- > 1;) layout_chain(&l, k, begun);
  for (ValRef v = 1; v < g->nval; v++)
    if (l.last[v]) layout_apply(&l, v);
  return MG_OK;
}
