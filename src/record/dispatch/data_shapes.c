/* Shapes that depend on data: what rules and torch's meta kernels say of them. */
#include "record/dispatch/data_shapes.h"
#include "entry/guard/source_kinds.h"
#include "entry/launch/trace.h"
#include "host/python/pyobject.h"
#include "host/torch/literals.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "record/dispatch/meta_kernel.h"
#include "record/symbolic/sizes.h"
#include "record/symbolic/unbacked.h"

void mg_symdata_sizes(MgRec *r, NodeRef n) {
  const MgNode *node = mg_node(r->g, n);
  SymRef zero = mg_sym(r->x, 0);
  for (int i = 0; i < node->nout; i++) {
    const MgVal *v = node->out[i] ? mg_val(r->g, node->out[i]) : NULL;
    for (int k = 0; v && k < v->ndim; k++) mg_data_narrow(r->cap, CALC_ge, v->size[k], zero);
  }
}

/* ---- results ---- */

/* What a rule says: 0 and -1 as usual, or */
enum {
  DATA_try = 1, /* torch's meta kernel may know */
  DATA_nobody
};

typedef struct Data { /* one node */
  MgRec *r;
  MgGraph *g;
  MgExprs *x;
  const MgOp *op;
  NodeRef n;
} Data;

static const MgArg *data_arg(const Data *d, int i) { return &mg_node(d->g, d->n)->arg[i]; }

/* NULL if the op has no such parameter. */
static const MgArg *data_named(const Data *d, const char *name) {
  return mg_node_arg(mg_node(d->g, d->n), name);
}

static ValRef data_self(const Data *d) { return mg_node_first(mg_node(d->g, d->n)); }

static const MgVal *data_tensor(const Data *d, int i) {
  const MgArg *a = data_arg(d, i);
  return a->tag == MA_val && a->u.val ? mg_val(d->g, a->u.val) : NULL;
}

/* Result i with these sizes, contiguous, in memory of its own.  0 when out of memory. */
static ValRef data_result(Data *d, int i, int dtype, int ndim) {
  MgNode *node = mg_node(d->g, d->n);
  ValRef v = mg_graph_val(d->g, (MgDtype)dtype, ndim);
  if (!v) return 0;
  MgVal *t = mg_val(d->g, v);
  t->offset = mg_sym(d->x, 0);
  t->def = d->n;
  t->out = (uint32_t)i;
  t->device = DEV_cpu;
  t->dev_index = -1;
  node->out[i] = v;
  return v;
}

/* A size that only a run tells: dimension dim of v. */
static SymRef data_size(Data *d, ValRef v, int dim, int64_t hi) {
  MgSizeOf of = {.val = v, .dim = dim};
  return mg_symsize_symbol(d->r->cap, 0, &of, DATA_HINT, 0, hi);
}

/* Has anything been written to the memory of v by nodes from `first` on? */
static bool data_written_since(const Data *d, ValRef v, NodeRef first) {
  for (NodeRef n = first; n < d->n; n++)
    if (mg_node_writes(d->g, mg_node(d->g, n), mg_val(d->g, v)->storage)) return true;
  return false;
}

/* How many elements of a mask are true: dimension dim of v, or what an earlier op found. */
static SymRef data_true(Data *d, ValRef mask, ValRef v, int dim, int64_t hi) {
  MgSymSizes *s = &d->r->cap->sizes;
  for (uint32_t i = 0; i < s->nsrc; i++)
    if (s->of[i].mask == mask && mask && !data_written_since(d, mask, s->of[i].at)) return s->ref[i];
  SymRef e = data_size(d, v, dim, hi);
  if (e) s->of[s->nsrc - 1].mask = mask;
  if (e) s->of[s->nsrc - 1].at = d->n;
  return e;
}

/* At most as many as there are elements. */
static int64_t data_most(const Data *d, const MgVal *t) {
  int64_t n = 1, lo, hi;
  for (int i = 0; i < t->ndim; i++) {
    if (!mg_ex_range(d->x, t->size[i], &lo, &hi) || hi >= MG_SIZE_MOST) return MG_SIZE_MOST;
    n *= hi;
    if (n > MG_SIZE_MOST) return MG_SIZE_MOST;
  }
  return n;
}

/* A result with one dimension, of a size of its own or that of another value. */
static int data_rows(Data *d, int i, int dtype, ValRef like, int64_t hi) {
  ValRef v = data_result(d, i, dtype, 1);
  SymRef n = !v ? 0 : like ? mg_val(d->g, like)->size[0] : data_size(d, v, 0, hi);
  if (!n) return -1;
  mg_val(d->g, v)->size[0] = n;
  mg_val(d->g, v)->stride[0] = mg_sym(d->x, 1);
  return 0;
}

/* nonzero(): a matrix that lies column by column. */
static int data_nonzero(Data *d) {
  const MgVal *x = data_tensor(d, 0);
  int ndim = x->ndim;
  int64_t hi = data_most(d, x);
  ValRef mask = x->dtype == DT_bool ? data_self(d) : 0, v = data_result(d, 0, DT_i64, 2);
  SymRef n = v ? data_true(d, mask, v, 0, hi) : 0;
  if (!n) return -1;
  MgVal *t = mg_val(d->g, v);
  t->size[0] = n;
  t->size[1] = mg_sym(d->x, ndim);
  t->stride[0] = mg_sym(d->x, 1);
  t->stride[1] = n;
  return 0;
}

static bool data_flag(const Data *d, const char *name) { return mg_node_flag(mg_node(d->g, d->n), name); }

/* _unique2, and unique_consecutive without a dimension: values, where each went, how many;
 * _unique: without the last. */
static int data_unique(Data *d) {
  MgVal x = *data_tensor(d, 0);
  if (data_rows(d, 0, x.dtype, 0, data_most(d, &x))) return -1;
  ValRef rows = mg_node(d->g, d->n)->out[0];
  int ndim = data_flag(d, "return_inverse") ? x.ndim : 1;
  ValRef inverse = data_result(d, 1, DT_i64, ndim);
  if (!inverse) return -1;
  for (int i = 0; i < ndim; i++)
    mg_val(d->g, inverse)->size[i] = data_flag(d, "return_inverse") ? x.size[i] : mg_sym(d->x, 0);
  mg_graph_contiguous(d->g, inverse);
  if (d->op->nret < 3) return 0;
  if (data_flag(d, "return_counts")) return data_rows(d, 2, DT_i64, rows, 0);
  ValRef none = data_result(d, 2, DT_i64, 1);
  if (!none) return -1;
  mg_val(d->g, none)->size[0] = mg_sym(d->x, 0);
  mg_graph_contiguous(d->g, none);
  return 0;
}

/* unique_dim: rows of a dimension, stored one after the other; where each went, how many.  Of tensors without
 * elements ATen knows more. */
static int data_unique_dim(Data *d) {
  const MgVal x = *data_tensor(d, 0);
  const MgArg *dim = data_named(d, "dim");
  int64_t k = 0, lo, hi, most = 1;
  if (dim->tag != MA_int || !mg_ex_const_int(d->x, dim->u.sym, &k) || k < -x.ndim || k >= x.ndim)
    return DATA_nobody;
  k += k < 0 ? x.ndim : 0;
  for (int i = 0; i < x.ndim; i++) {
    if (!mg_ex_range(d->x, x.size[i], &lo, &hi) || lo < 1) return DATA_nobody;
    if (i == k) most = hi < MG_SIZE_MOST ? hi : MG_SIZE_MOST;
  }
  ValRef v = data_result(d, 0, x.dtype, x.ndim), inverse = data_result(d, 1, DT_i64, 1);
  SymRef step = mg_sym(d->x, 1);
  if (!v || !inverse) return -1;
  for (int i = x.ndim - 1; i >= 0; i--) {
    if (i == k) continue;
    mg_val(d->g, v)->size[i] = x.size[i];
    mg_val(d->g, v)->stride[i] = step;
    step = mg_sym_mul(d->x, step, x.size[i]);
  }
  SymRef rows = data_size(d, v, (int)k, most);
  if (!rows) return -1;
  mg_val(d->g, v)->size[k] = rows;
  mg_val(d->g, v)->stride[k] = step;
  mg_val(d->g, inverse)->size[0] = x.size[k];
  mg_graph_contiguous(d->g, inverse);
  ValRef count = data_result(d, 2, DT_i64, 1);
  if (!count) return -1;
  mg_val(d->g, count)->size[0] = rows;
  mg_graph_contiguous(d->g, count);
  return 0;
}

/* x[mask, ...]: the dimensions of masks become one with as many rows as they have true elements, or as an
 * index beside them has.  Only for results that come out contiguous: what is not indexed lies in
 * order of falling strides. */
static int data_index(Data *d) {
  const MgVal x = *data_tensor(d, 0);
  const MgArg list = *data_named(d, "indices");
  SymRef size[64], rows = 0, step = 0;
  int ndim = 0, at = 0, place = -1, last = -1;
  bool apart = false, falling = true, masked = false, plain = mg_val_is_contiguous(d->g, data_self(d));
  ValRef only = 0;
  int64_t hi = 1, lo, most;
  for (uint32_t i = 0; i < list.n || at < x.ndim; i++) {
    ValRef m = i < list.n && list.u.item[i].tag == MA_val ? list.u.item[i].u.val : 0;
    const MgVal *mask = m ? mg_val(d->g, m) : NULL;
    if (!mask) {
      if (at >= x.ndim || ndim >= 60) return DATA_nobody;
      falling = falling && (!step || plain ||
                            (mg_ex_range(d->x, mg_sym_sub(d->x, step, x.stride[at]), &lo, &most) && lo >= 0));
      step = x.stride[at];
      size[ndim++] = x.size[at++];
      continue;
    }
    bool truth = mask->dtype == DT_bool || mask->dtype == DT_u8;
    masked |= truth;
    if ((!truth && mask->ndim > 1) || (truth && !mask->ndim) || x.device != DEV_cpu ||
        mask->device != DEV_cpu)
      return masked ? DATA_nobody : DATA_try;
    if (last >= 0 && (int)i != last + 1) apart = true;
    if (place < 0) place = ndim;
    only = last < 0 && mask->dtype == DT_bool ? m : 0;
    last = (int)i;
    if (truth) hi = data_most(d, mask);
    else if (mask->ndim && !mg_sym_is(d->x, mask->size[0], 1)) rows = mask->size[0];
    at += truth ? mask->ndim : 1;
  }
  if (place < 0 || at != x.ndim || !falling || (!masked && !rows)) return masked ? DATA_nobody : DATA_try;
  if (apart) place = 0;
  ValRef v = data_result(d, 0, x.dtype, ndim + 1);
  if (!v || (!rows && !(rows = data_true(d, only, v, place, hi)))) return -1;
  MgVal *t = mg_val(d->g, v);
  memcpy(t->size, size, sizeof *size * (size_t)place);
  t->size[place] = rows;
  memcpy(t->size + place + 1, size + place, sizeof *size * (size_t)(ndim - place));
  mg_graph_contiguous(d->g, v);
  return 0;
}

/* A view of the first argument without dimension dim (drop), or with another size there, of at most
 * `hi` where only a run tells. */
static int data_view(Data *d, int dim, bool drop, SymRef size, SymRef stride, int64_t hi) {
  const MgVal x = *data_tensor(d, 0);
  ValRef self = data_self(d), v = data_result(d, 0, x.dtype, x.ndim - drop);
  MgSizeOf of = {.val = v, .dim = MG_SIZE_OFFSET}; /* where it begins: nobody asks */
  SymRef offset = v ? mg_symsize_symbol(d->r->cap, 0, &of, DATA_HINT, 0, MG_SIZE_MOST) : 0;
  if (!offset) return -1;
  MgVal *t = mg_val(d->g, v);
  t->storage = mg_val(d->g, self)->storage;
  t->device = x.device;
  t->dev_index = x.dev_index;
  t->offset = offset;
  for (int i = 0, k = 0; i < x.ndim; i++) {
    if (i == dim && drop) continue;
    t->size[k] = i == dim ? size ? size : data_size(d, v, i, hi) : x.size[i];
    t->stride[k++] = i == dim ? stride : x.stride[i];
  }
  return 0;
}

/* x[a:b] and x[i] where the bounds depend on data. */
static int data_slice(Data *d) {
  const MgVal *x = data_tensor(d, 0);
  int64_t dim, step = 1;
  const MgArg *along = data_named(d, "dim"), *by = data_named(d, "step");
  if (along->tag != MA_int || !mg_ex_const_int(d->x, along->u.sym, &dim)) return DATA_try;
  if (dim < 0) dim += x->ndim;
  if (dim < 0 || dim >= x->ndim) return DATA_try;
  if (!by) return data_view(d, (int)dim, true, 0, 0, 0);
  const MgArg *from = data_named(d, "start"), *to = data_named(d, "end");
  if (!mg_ex_const_int(d->x, by->u.sym, &step)) return DATA_try;
  SymRef n = x->size[dim], zero = mg_sym(d->x, 0), a = from->tag == MA_int ? from->u.sym : zero,
         b = to->tag == MA_int ? to->u.sym : n, size = 0;
  int64_t lo, hi, k;
  bool all = mg_ex_const_int(d->x, b, &k) && k >= MG_SIZE_MOST;
  if (all) b = n;
  bool within = mg_ex_range(d->x, mg_sym_sub(d->x, n, b), &lo, &hi) && lo >= 0;
  within = within && mg_ex_range(d->x, a, &lo, &hi) && lo >= 0 &&
           mg_ex_range(d->x, mg_sym_sub(d->x, b, a), &lo, &hi) && lo >= 0;
  if (within && step == 1) size = mg_sym_sub(d->x, b, a);
  int64_t most = mg_ex_range(d->x, n, &lo, &hi) && hi < MG_SIZE_MOST ? hi : MG_SIZE_MOST;
  if (mg_ex_range(d->x, mg_sym_sub(d->x, b, a), &lo, &hi) && lo > 0 && hi < most)
    most = hi; /* from the end or not */
  return data_view(d, (int)dim, false, size, mg_sym_mul(d->x, x->stride[dim], mg_sym(d->x, step)), most);
}

/* view(n, -1) of a tensor without gaps. */
static int data_reshape(Data *d) {
  const MgArg *to = data_named(d, "size");
  const MgVal x = *data_tensor(d, 0);
  ValRef self = data_self(d);
  SymRef rest = mg_sym(d->x, 1), all = mg_val_numel(d->g, self);
  int hole = -1;
  if (to->tag != MA_list || !mg_val_is_contiguous(d->g, self)) return DATA_try;
  for (uint32_t i = 0; i < to->n; i++) {
    if (mg_sym_is(d->x, to->u.item[i].u.sym, -1)) hole = (int)i;
    else rest = mg_sym_mul(d->x, rest, to->u.item[i].u.sym);
  }
  ValRef v = data_result(d, 0, x.dtype, (int)to->n);
  if (!v) return -1;
  for (uint32_t i = 0; i < to->n; i++)
    mg_val(d->g, v)->size[i] = hole == (int)i ? mg_sym_floordiv(d->x, all, rest) : to->u.item[i].u.sym;
  mg_graph_contiguous(d->g, v);
  MgVal *t = mg_val(d->g, v);
  t->storage = mg_val(d->g, self)->storage;
  t->offset = x.offset;
  return 0;
}

static int data_bincount(Data *d) {
  const MgVal *w = data_tensor(d, mg_op_param(d->op, "weights"));
  return data_rows(d, 0, !w ? DT_i64 : w->dtype == DT_f32 ? DT_f32 : DT_f64, 0, MG_SIZE_MOST);
}

static int data_repeat(Data *d) { return data_rows(d, 0, data_tensor(d, 0)->dtype, 0, MG_SIZE_MOST); }

static int data_select(Data *d) {
  const MgVal *x = data_tensor(d, 0), *mask = data_tensor(d, mg_op_param(d->op, "mask"));
  int64_t p = data_most(d, x), q = mask ? data_most(d, mask) : 0;
  return data_rows(d, 0, x->dtype, 0, p > q ? p : q);
}

static int data_consecutive(Data *d) {
  return data_named(d, "dim")->tag == MA_none ? data_unique(d) : data_unique_dim(d);
}

static const struct {
  const char *op;
  int (*rule)(Data *d);
} data_rules[] = {
    {"aten::nonzero", data_nonzero},
    {"aten::masked_select", data_select},
    {"aten::index.Tensor", data_index},
    {"aten::_unique2", data_unique},
    {"aten::_unique", data_unique},
    {"aten::unique_dim", data_unique_dim},
    {"aten::unique_dim_consecutive", data_unique_dim},
    {"aten::unique_consecutive", data_consecutive},
    {"aten::bincount", data_bincount},
    {"aten::repeat_interleave.Tensor", data_repeat},
    {"aten::slice.Tensor", data_slice},
    {"aten::select.int", data_slice},
    {"aten::view", data_reshape},
    {"aten::_unsafe_view", data_reshape},
};

/* ---- ops that are tried ---- */

/* A size that is s at the first try and t at the second: a constant, a size of an
 * argument, or one that a run tells. */
static SymRef data_match(Data *d, const int64_t *const env[2], int64_t s, int64_t t, ValRef v, int dim) {
  if (s == t) return mg_sym(d->x, s);
  MgNode *node = mg_node(d->g, d->n);
  for (int i = 0; i < node->narg; i++) {
    const MgArg *a = &node->arg[i], *item = a->tag == MA_list ? a->u.item : a;
    for (uint32_t k = 0; k < (a->tag == MA_list ? a->n : 1); k++) {
      const MgVal *x = item[k].tag == MA_val && item[k].u.val ? mg_val(d->g, item[k].u.val) : NULL;
      const SymRef *e = x ? x->size : item[k].tag == MA_int ? &item[k].u.sym : NULL;
      for (int j = 0; e && j < (x ? x->ndim : 1); j++)
        if (mg_sym_eval(d->x, e[j], env[0]) == s && mg_sym_eval(d->x, e[j], env[1]) == t) return e[j];
    }
  }
  return d->r->cap->sizes.inputs ? 0 : data_size(d, v, dim, MG_SIZE_MOST);
}

/* The dimensions of a tensor of known sizes from the innermost on; false when it has gaps or lies twice. */
static bool data_order(const Data *d, const MgVal *t, int *order) {
  int64_t s, step, want = 1;
  uint64_t used = 0;
  for (int n = 0; n < t->ndim; n++) {
    int at = -1;
    for (int i = t->ndim - 1; i >= 0 && at < 0; i--)
      if (!(used >> i & 1) && mg_ex_const_int(d->x, t->stride[i], &step) && step == want) at = i;
    if (at < 0 || !mg_ex_const_int(d->x, t->size[at], &s)) return false;
    used |= 1ull << at;
    order[n] = at;
    want *= s;
  }
  return true;
}

/* Ops that write: each result is the argument that it is written to. */
static int data_written(Data *d) {
  int k = 0;
  for (int i = 0; i < d->op->nret; i++) {
    ValRef v = 0;
    for (int j = 0; j < d->op->nparam && !v; j++)
      if (d->op->ret_alias[i] >= 0 && d->op->param[j].alias_set == d->op->ret_alias[i] && data_tensor(d, j))
        v = data_arg(d, j)->u.val;
    ValRef o = v && d->op->ret_kind[i] == AK_tensor ? mg_graph_val_like(d->g, v) : 0;
    if (!o) return DATA_try;
    MgVal *t = mg_val(d->g, o);
    t->offset = mg_val(d->g, v)->offset;
    t->storage = mg_val(d->g, v)->storage;
    t->def = d->n;
    t->out = (uint32_t)k;
    mg_node(d->g, d->n)->out[k++] = o;
  }
  return 0;
}

/* A size that an earlier dimension of the results had at the second try as well. */
static SymRef data_again(Data *d, ValRef *const out[2], int i, int k, int64_t t) {
  for (int j = 0; j <= i; j++) {
    const MgVal *a = out[0][j] ? mg_val(d->g, out[0][j]) : NULL,
                *b = out[1][j] ? mg_val(d->g, out[1][j]) : NULL;
    int64_t known, u;
    for (int m = 0; a && b && m < (j == i ? k : a->ndim); m++)
      if (!mg_ex_const_int(d->x, a->size[m], &known) && mg_ex_const_int(d->x, b->size[m], &u) && u == t)
        return a->size[m];
  }
  return 0;
}

/* Two sets of values.  round: data: all of one set are equal, since some have to be; inputs: this run's, and
 * others that answers of the program are likely to allow, or equal ones stay equal. */
static void data_values(const Data *d, int round, int64_t *const at[2]) {
  static const int prime[] = {101, 103, 107, 109, 113, 127, 131, 137, 139, 149};
  const MgSymSizes *s = &d->r->cap->sizes;
  for (int k = 0; k < 2; k++)
    for (uint32_t i = 0; i < s->nsrc; i++) {
      int64_t hint = d->x->sym[i].hint, other = round == 0   ? hint + 1 + i
                                                : round == 1 ? hint * (2 + i)
                                                             : hint + 1;
      at[k][i] = s->inputs      ? (k ? other : hint)
                 : s->of[i].val ? prime[round ? 0 : i % 10] * (k ? 6 : 2)
                 : k && s->own  ? (round ? hint + 1 : other)
                                : hint;
    }
}

/* Runs torch's meta kernel with two sets of values for what depends on data, or for the sizes of inputs, and
 * puts the results together. */
static int data_try(Data *d, const MgFrontOp *fo, int round) {
  MgCapture *cap = d->r->cap;
  uint32_t nsrc = cap->sizes.nsrc;
  int64_t *env = mg_new(d->g->c, int64_t, 2 * (size_t)nsrc + 1), *const at[2] = {env, env + nsrc};
  ValRef *out[2] = {NULL, NULL};
  int n = 0;
  if (!env) return PyErr_NoMemory(), -1;
  if (d->op->mutates || d->op->is_view || !fo->plain) return DATA_try;
  cap->sizes.own = strncmp(d->op->name, "aten::", 6) != 0;
  data_values(d, round, at);
  for (int k = 0; k < 2; k++) {
    PyObject *none = NULL;
    cap->sizes.probe = at[k];
    cap->sizes.second = k;
    int rc = mg_metainfer_run(d->r, fo, d->n, &none);
    cap->sizes.probe = NULL;
    if (k || rc) cap->sizes.own = false;
    Py_XDECREF(none);
    if (rc && d->r->abort) return -1;
    if (rc) return mg_clear_for_another_way(), DATA_try;
    if (cap->sizes.inputs && cap->sizes.asked) return DATA_try;
    MgNode *node = mg_node(d->g, d->n);
    if (k && n != node->nout) return DATA_try;
    n = node->nout;
    out[k] = node->out;
  }
  MgNode *node = mg_node(d->g, d->n);
  node->out = out[0];
  for (int i = 0; i < n; i++) {
    if (!out[0][i] || !out[1][i]) continue;
    const MgVal a = *mg_val(d->g, out[0][i]), b = *mg_val(d->g, out[1][i]);
    int order[64], same_order[64];
    if (a.ndim != b.ndim || a.dtype != b.dtype || a.ndim > 64 || !data_order(d, &a, order) ||
        !data_order(d, &b, same_order) || memcmp(order, same_order, (size_t)a.ndim * sizeof *order))
      return DATA_try;
    for (int k = 0; k < a.ndim; k++) {
      int64_t s, t;
      if (!mg_ex_const_int(d->x, a.size[k], &s) || !mg_ex_const_int(d->x, b.size[k], &t)) return DATA_try;
      SymRef e = s == t || cap->sizes.inputs ? 0 : data_again(d, out, i, k, t);
      if (!e) e = data_match(d, (const int64_t *const *)at, s, t, out[0][i], k);
      if (!e) return cap->sizes.inputs ? DATA_try : (PyErr_NoMemory(), -1);
      mg_val(d->g, out[0][i])->size[k] = e;
    }
    SymRef step = mg_sym(d->x, 1);
    for (int k = 0; k < a.ndim; k++) {
      MgVal *t = mg_val(d->g, out[0][i]);
      t->stride[order[k]] = step;
      step = mg_sym_mul(d->x, step, t->size[order[k]]);
    }
  }
  return 0;
}

int mg_symdata_infer(MgRec *r, const MgFrontOp *fo, NodeRef n) {
  Data d = {r, r->g, r->x, fo->op, n};
  const MgVal *first = data_tensor(&d, 0);
  int rc = DATA_try;
  if (r->cap->sizes.ndata || mg_symdata_may(r->cap, true)) {
    for (size_t i = 0;
         rc == DATA_try && first && first->device == DEV_cpu && i < sizeof data_rules / sizeof *data_rules;
         i++)
      if (!strcmp(fo->op->full, data_rules[i].op)) rc = data_rules[i].rule(&d);
    if (rc == DATA_try && fo->fate == FATE_break_value)
      rc = DATA_nobody; /* its meta kernel makes up a size */
    if (rc == DATA_try && fo->op->mutates && !fo->inplace_view) rc = data_written(&d);
    r->cap->sizes.guessed |= rc == DATA_try;
    for (int round = 0; rc == DATA_try && round < 2; round++) rc = data_try(&d, fo, round);
  }
  if (rc > 0) mg_rec_break(BK_data_dependent, "a size that depends on data in %s", fo->op->full);
  else if (rc && !PyErr_Occurred()) PyErr_NoMemory();
  return rc ? -1 : 0;
}

bool mg_symdata_twice(MgRec *r, const MgFrontOp *fo, NodeRef n) {
  Data d = {r, r->g, r->x, fo->op, n};
  MgSymSizes *s = &r->cap->sizes;
  int rc = DATA_try;
  s->inputs = true;
  for (int round = 0; rc == DATA_try && round < 3 && !r->abort; round++) rc = data_try(&d, fo, round);
  s->inputs = false;
  if (rc && !r->abort) mg_clear_for_another_way();
  return !rc;
}
