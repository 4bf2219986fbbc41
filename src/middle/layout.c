/* Memory formats inside the graph: convolutions run on channels-last data, so values between them get such
 * strides and the nests around them are lowered that way; no copies are added.
 * In: a functional graph with mg::conv and convolution_backward nodes.  Out: the same nodes; some values have
 * other strides.
 * A value may change when nobody can tell: it is not a graph output or write-back, its producer can write any
 * strides (a convolution or a node that becomes loops), and every reader can read any (the same, and matrix
 * products; no other extern calls).  Readers may see it through permutations, parts along one dimension, and
 * reshapes that are still views then. It does change when a convolution makes or reads it, or when its
 * neighbours in a chain of loops changed. Concatenations that grow (each holds an earlier one and adds
 * channels to it) get the strides of the largest of them, so that lowering can give them one buffer
 * and store every part once. */
#include "middle/middle.h"

enum { LAYOUT_RANK = 8 };

typedef struct Layout {
  MgGraph *g;
  const MgSimplifyOpts *o;
  bool *free;     /* per value: strides may be chosen */
  bool *last;     /* per value: channels-last is chosen */
  bool *dense;    /* per value: a convolution reads it, or a view shows it */
  SymRef *chan;   /* per value: channels of the largest concatenation that it begins, or 0 */
  ValRef *root;   /* per value: what it is a view of, if that may change; itself for such a value */
  SymRef **would; /* per value with a root: its strides, then its offset, if channels-last is chosen for the
                     root */
  bool strict;    /* the node being looked at needs the strides of its arguments */
  uint8_t device; /* whose values may change */
} Layout;

static bool layout_candidate(const Layout *l, ValRef v) {
  const MgGraph *g = l->g;
  const MgVal *t = mg_val(g, v);
  int64_t spatial = 1;
  if (t->ndim < 4 || t->ndim > 5 || t->device != l->device) return false;
  for (int i = 0; i < t->ndim; i++) {
    int64_t n = mg_sym_hint(g->x, t->size[i]);
    if (n < 1) return false;
    if (i >= 2) spatial *= n;
  }
  return spatial > 1 && !mg_sym_is(g->x, t->size[1], 1); /* else both formats are one */
}

/* Elements of a value. */
static int64_t layout_numel(const MgGraph *g, ValRef v) {
  const MgVal *t = mg_val(g, v);
  int64_t all = 1;
  for (int i = 0; i < t->ndim; i++) all *= mg_sym_hint(g->x, t->size[i]);
  return all;
}

/* Calls of cuDNN, whose results follow the format of their data: the argument, or -1.  Convolutions of
 * groups may run by kernels of ATen that know one format only. */
static int layout_cuda_data(const MgGraph *g, const MgNode *n) {
  bool backward = n->op->code == TOP_convolution_backward;
  switch (n->op->code) {
  case TOP_convolution:
  case TOP_convolution_backward: {
    const MgArg *groups = mg_node_arg(n, "groups");
    const MgVal *w = mg_val(g, mg_node_arg(n, "weight")->u.val);
    bool plain = groups->tag == MA_int && mg_sym_is(g->x, groups->u.sym, 1) && !mg_node_flag(n, "transposed");
    return w->ndim == 4 && w->device == DEV_cuda && plain ? backward : -1;
  }
  case TOP_cudnn_batch_norm:
    if (!mg_node_flag(n, "training")) return -1; /* loops */
    return mg_val(g, mg_node_first(n))->device == DEV_cuda ? 0 : -1;
  case TOP_cudnn_batch_norm_backward: return mg_val(g, mg_node_first(n))->device == DEV_cuda ? 0 : -1;
  default: return -1;
  }
}

/* Where oneDNN runs convolution_backward, any format of data and weights is one copy away.  ATen's follows
 * the format of its input; channels-last costs it copies of the weight and of the weight's gradient, which
 * pay while those are smaller than the data. */
static bool layout_is_conv(const Layout *l, const MgNode *n) {
  const MgGraph *g = l->g;
  if (l->device == DEV_cuda) return layout_cuda_data(g, n) >= 0;
  if (n->op->code != TOP_convolution_backward) return n->op->code == TOP_mg_conv;
  if (mg_val(g, mg_node_first(n))->dtype == DT_f32 && !mg_node_flag(n, "transposed")) return true;
  return layout_numel(g, mg_node_arg(n, "weight")->u.val) <= layout_numel(g, mg_node_arg(n, "input")->u.val);
}

/* Results of a node that choose strides: of convolution_backward the gradient of the input, and of the weight
 * where cuDNN writes it in the format of the data; of batch norms not the statistics. */
static int layout_results(const Layout *l, const MgNode *n) {
  switch (n->op->code) {
  case TOP_convolution_backward: return l->device == DEV_cuda ? 2 : 1;
  case TOP_cudnn_batch_norm:
  case TOP_cudnn_batch_norm_backward: return 1;
  default: return n->nout;
  }
}

static bool layout_is_view(const MgNode *n) {
  uint16_t c = n->op->code; /* these may share memory though their schemas do not say so */
  return n->op->is_view || c == TOP_reshape || c == TOP__unsafe_view || c == TOP_flatten_using_ints;
}

/* Loops read and write through any strides. */
static bool layout_is_loops(const Layout *l, NodeRef n) {
  return !layout_is_view(mg_node(l->g, n)) && l->o->lowers && l->o->lowers(l->g, n);
}

/* Matrix products read any strides but choose none. */
static bool layout_reads_any(const Layout *l, const MgNode *n) {
  return layout_is_conv(l, n) || n->op->code == TOP_mg_matmul;
}

static void layout_pin(ValRef *v, void *arg) {
  Layout *l = arg;
  if (l->strict) l->free[l->root[*v]] = false;
}

/* ---- views of values that may change
 * ------------------------------------------------------------------------- */

static bool layout_sizes(const Layout *l, ValRef v) {
  const MgVal *t = mg_val(l->g, v);
  if (t->ndim > LAYOUT_RANK) return false;
  for (int i = 0; i < t->ndim; i++)
    if (mg_sym_hint(l->g->x, t->size[i]) < 1) return false;
  return true;
}

/* Strides of a reshape from sizes `from` with strides st to sizes `to`, or false when it would have to copy:
 * runs of dimensions that are dense among themselves are cut anew. */
static bool layout_reshape(MgExprs *x, const SymRef *from, const SymRef *st, int nfrom, const SymRef *to,
                           int nto, SymRef *out) {
  int d = nto - 1;
  const SymRef one = mg_sym(x, 1);
  SymRef run = one,
         step = nfrom ? st[nfrom - 1] : one; /* elements of the run so far; stride of its last dimension */
  for (int i = nfrom - 1; i >= 0; i--) {
    run = mg_sym_mul(x, run, from[i]);
    if (i > 0 && (from[i - 1] == one || st[i - 1] == mg_sym_mul(x, run, step))) continue;
    SymRef done = one;
    for (; d >= 0 && (mg_sym_hint(x, done) < mg_sym_hint(x, run) || to[d] == one); d--) {
      out[d] = mg_sym_mul(x, step, done);
      done = mg_sym_mul(x, done, to[d]);
    }
    if (done != run) return false;
    if (i > 0) run = one, step = st[i - 1];
  }
  return d < 0;
}

/* Which dimension of its argument is dimension i of a permutation's result; -1: not known. */
static int layout_permuted(const Layout *l, const MgNode *n, int ndim, int i) {
  int64_t d[2] = {0, 1};
  if (n->op->code == TOP_permute) {
    const MgArg *dims = mg_node_arg(n, "dims");
    if (dims->tag != MA_list || !mg_ex_const_int(l->g->x, dims->u.item[i].u.sym, &d[0])) return -1;
    return (int)(d[0] < 0 ? d[0] + ndim : d[0]);
  }
  for (int k = 0; k < 2 && n->op->code == TOP_transpose_int; k++) {
    if (!mg_ex_const_int(l->g->x, mg_node_arg(n, k ? "dim1" : "dim0")->u.sym, &d[k])) return -1;
    if (d[k] < 0) d[k] += ndim;
  }
  return (int)(i == d[0] ? d[1] : i == d[1] ? d[0] : i);
}

/* A constant integer argument counted from the end when negative, within [0, size]; 0 where it is absent. */
static bool layout_index(const Layout *l, const MgArg *a, SymRef size, SymRef *out) {
  MgExprs *x = l->g->x;
  int64_t k = 0, n, lo, hi;
  if (a->tag != MA_none && (a->tag != MA_int || !mg_ex_const_int(x, a->u.sym, &k))) return false;
  if (mg_ex_const_int(x, size, &n)) {
    if (k < 0) k += n;
    *out = mg_sym(x, k < 0 ? 0 : k > n ? n : k);
    return true;
  }
  if (!mg_ex_range(x, size, &lo, &hi) || lo < (k < 0 ? -k : k)) return false;
  *out = k < 0 ? mg_sym_add(x, size, mg_sym(x, k)) : mg_sym(x, k);
  return true;
}

/* The same for a part along one dimension: slice, narrow, select. */
static bool layout_part(const Layout *l, const MgNode *n, const SymRef *from, int ndim, SymRef *out) {
  MgExprs *x = l->g->x;
  const SymRef *st = l->would[mg_node_first(n)];
  const MgArg *along = mg_node_arg(n, "dim"), *by = mg_node_arg(n, "step");
  int64_t dim, step = 1;
  SymRef start;
  bool select = n->op->code == TOP_select_int;
  const MgArg *from_index = mg_node_arg(n, select ? "index" : "start");
  if (along->tag != MA_int || !mg_ex_const_int(l->g->x, along->u.sym, &dim)) return false;
  if (dim < 0) dim += ndim;
  if (dim < 0 || dim >= ndim || !layout_index(l, from_index, from[dim], &start)) return false;
  if (by && (by->tag != MA_int || !mg_ex_const_int(l->g->x, by->u.sym, &step))) return false;
  for (int i = 0, o = 0; i < ndim; i++)
    if (i != dim || !select) out[o++] = i == dim ? mg_sym_mul(x, st[i], mg_sym(x, step)) : st[i];
  out[LAYOUT_RANK] = mg_sym_add(x, st[LAYOUT_RANK], mg_sym_mul(x, start, st[dim]));
  return true;
}

/* Strides and offset of a view node's result if its root changes; false: it cannot follow. */
static bool layout_follow(const Layout *l, const MgNode *n, SymRef *out) {
  ValRef x = mg_node_first(n), v = n->out[0];
  const SymRef *st = l->would[x], *from = mg_val(l->g, x)->size, *to = mg_val(l->g, v)->size;
  int nfrom = mg_val(l->g, x)->ndim, nto = mg_val(l->g, v)->ndim;
  if (n->nout != 1 || !layout_sizes(l, x) || !layout_sizes(l, v)) return false;
  out[LAYOUT_RANK] = st[LAYOUT_RANK];
  switch (n->op->code) {
  case TOP_view:
  case TOP_reshape:
  case TOP__unsafe_view:
  case TOP_flatten_using_ints:
  case TOP_unsqueeze:
  case TOP_squeeze:
  case TOP_squeeze_dim:
  case TOP_squeeze_dims:
  case TOP_alias:
  case TOP_detach: return layout_reshape(l->g->x, from, st, nfrom, to, nto, out);
  case TOP_permute:
  case TOP_transpose_int:
  case TOP_t:
    for (int i = 0; i < nto; i++) {
      int d = layout_permuted(l, n, nfrom, i);
      if (d < 0) return false;
      out[i] = st[d];
    }
    return true;
  case TOP_slice_Tensor:
  case TOP_narrow:
  case TOP_select_int: return layout_part(l, n, from, nfrom, out);
  default: return false;
  }
}

/* Enters the result of a view node; its root is pinned when the view cannot follow. */
static MgRc layout_view(Layout *l, MgNode *n) {
  ValRef root = l->root[mg_node_first(n)];
  if (!root || !l->free[root]) return MG_OK;
  SymRef *st = mg_new(l->g->c, SymRef, LAYOUT_RANK + 1);
  TRYP(st);
  if (!layout_follow(l, n, st)) l->free[root] = false;
  else l->root[n->out[0]] = root, l->would[n->out[0]] = st, l->dense[root] = true;
  return MG_OK;
}

/* Enters a value whose strides its producer could choose. */
static MgRc layout_enter(Layout *l, ValRef v) {
  const MgVal *t = mg_val(l->g, v);
  if (!layout_candidate(l, v) || !layout_sizes(l, v)) return MG_OK;
  SymRef *st = mg_new(l->g->c, SymRef, LAYOUT_RANK + 1), n = t->size[1];
  TRYP(st);
  st[1] = mg_sym(l->g->x, 1);
  for (int i = t->ndim - 1; i >= 2; i--) st[i] = n, n = mg_sym_mul(l->g->x, n, t->size[i]);
  st[0] = n;
  st[LAYOUT_RANK] = mg_sym(l->g->x, 0);
  l->free[v] = true;
  l->root[v] = v;
  l->would[v] = st;
  return MG_OK;
}

static void layout_mark_dense(ValRef *v, void *arg) { ((Layout *)arg)->dense[*v] = true; }

typedef struct LayoutScan { /* a question about a node's arguments */
  Layout *l;
  int ndim; /* look at arguments of this rank */
  bool set; /* choose channels-last for those that are free */
  bool any; /* one of them has it */
} LayoutScan;

static void layout_scan(ValRef *v, void *arg) {
  LayoutScan *s = arg;
  if (mg_val(s->l->g, *v)->ndim != s->ndim) return;
  if (s->set && s->l->free[*v]) s->l->last[*v] = true;
  s->any |= s->l->last[*v];
}

/* The root of what a call of cuDNN takes its format from. */
static ValRef layout_data(const Layout *l, const MgNode *n) {
  ValRef v = n->arg[layout_cuda_data(l->g, n)].u.val;
  return l->root[v] ? l->root[v] : v;
}

/* A convolution makes the choice; batch norms of a GPU only follow it. */
static bool layout_chooses(const MgNode *n) {
  return n->op->code != TOP_cudnn_batch_norm && n->op->code != TOP_cudnn_batch_norm_backward;
}

/* Spreads the choice over one node: from arguments to results and back. */
static void layout_spread(Layout *l, MgNode *n, bool loops) {
  bool conv = layout_is_conv(l, n);
  if (!conv && !loops) return;
  if (conv && !n->out[0]) { /* only the weight's gradient is wanted */
    LayoutScan s = {.l = l, .ndim = mg_val(l->g, mg_node_first(n))->ndim, .set = true};
    mg_node_each_val(n, layout_scan, &s);
  }
  for (int i = 0; i < layout_results(l, n); i++) {
    ValRef v = n->out[i];
    if (!v) continue;
    LayoutScan s = {.l = l, .ndim = mg_val(l->g, v)->ndim, .set = (conv && layout_chooses(n)) || l->last[v]};
    mg_node_each_val(n, layout_scan, &s);
    bool follows = l->device != DEV_cuda || !conv || l->last[layout_data(l, n)];
    if (l->free[v] && (conv || s.any) && follows) l->last[v] = true;
  }
}

/* The channels that a concatenation along dimension 1 puts together; 0 items: it is none. */
static const MgArg *layout_parts(const Layout *l, const MgNode *n) {
  static const MgArg none;
  if (n->dead || n->op->code != TOP_cat || !l->last[n->out[0]] || l->dense[n->out[0]]) return &none;
  const MgArg *tensors = mg_node_arg(n, "tensors");
  return tensors->tag == MA_list && mg_sym_is(l->g->x, mg_node_arg(n, "dim")->u.sym, 1) ? tensors : &none;
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
  for (int i = 0; i < t->ndim; i++) t->stride[i] = l->would[v][i];
  if (l->root[v] != v) t->offset = l->would[v][LAYOUT_RANK];
  if (!l->chan[v]) return;
  SymRef n = l->chan[v];
  for (int i = t->ndim - 1; i >= 2; i--) t->stride[i] = n, n = mg_sym_mul(g->x, n, t->size[i]);
  t->stride[0] = n;
}

/* Finds what may change. */
static MgRc layout_collect(Layout *l, bool *loops) {
  MgGraph *g = l->g;
  for (uint32_t k = 1; k < g->nnode; k++) {
    MgNode *n = mg_node(g, k);
    if (n->dead) continue;
    loops[k] = layout_is_loops(l, k);
    l->strict = false;
    if (layout_is_view(n)) {
      TRY(layout_view(l, n));
    } else if (layout_is_conv(l, n) || loops[k]) {
      for (int i = 0; i < layout_results(l, n); i++)
        if (n->out[i]) TRY(layout_enter(l, n->out[i]));
    } else {
      l->strict = !layout_reads_any(l, n);
    }
    mg_node_each_val(n, layout_pin, l);
    if (layout_is_conv(l, n)) mg_node_each_val(n, layout_mark_dense, l);
  }
  for (uint32_t i = 0; i < g->noutput; i++) l->free[l->root[g->output[i]]] = false;
  for (uint32_t i = 0; i < g->nwb; i++) l->free[l->root[g->wb_value[i]]] = false;
  return MG_OK;
}

MgRc mg_layout(MgGraph *g, const MgSimplifyOpts *o) {
  Layout l = {.g = g, .o = o, .device = mg_graph_cuda(g) >= 0 ? DEV_cuda : DEV_cpu};
  if ((l.device == DEV_cpu && !o->onednn) || o->keep_layout) return MG_OK;
  if (l.device == DEV_cuda) TRY(mg_join_products(g, o));
  bool *loops = mg_new(g->c, bool, g->nnode), *begun = mg_new(g->c, bool, g->nval);
  TRYP(loops);
  TRYP(begun);
  TRYP(l.free = mg_new(g->c, bool, g->nval));
  TRYP(l.last = mg_new(g->c, bool, g->nval));
  TRYP(l.dense = mg_new(g->c, bool, g->nval));
  TRYP(l.chan = mg_new(g->c, SymRef, g->nval));
  TRYP(l.root = mg_new(g->c, ValRef, g->nval));
  TRYP(l.would = mg_new(g->c, SymRef *, g->nval));
  TRY(layout_collect(&l, loops));
  for (uint32_t k = g->nnode;
       k-- > 1;) /* backwards, so that producers of a chain before a convolution follow it */
    if (!mg_node(g, k)->dead) layout_spread(&l, mg_node(g, k), loops[k]);
  for (uint32_t k = 1; k < g->nnode; k++)
    if (!mg_node(g, k)->dead) layout_spread(&l, mg_node(g, k), loops[k]);
  for (uint32_t k = g->nnode; k-- > 1;) layout_chain(&l, k, begun);
  for (ValRef v = 1; v < g->nval; v++)
    if (l.root[v] && l.last[l.root[v]]) layout_apply(&l, v);
  return MG_OK;
}
