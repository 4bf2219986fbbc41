/* Uses of memory that a graph of values cannot express, seen before an op is
 * recorded: the op is left to ATen.
 * In: a node's op and arguments.  Sizes that are symbols are judged as they are in this run, and guarded. */
#include "record/dispatch/memory_legality.h"

/* A constant, or the symbol's value in this run. */
static bool memform_int(const MgGraph *g, SymRef e, int64_t *v) {
  *v = mg_sym_hint(g->x, e);
  return mg_ex_const_int(g->x, e, v) || g->x->ask;
}

/* First and last element of a strided region; false when it has none, or is not constant. */
static bool memform_reach(const MgGraph *g, const SymRef *size, const SymRef *stride, int n, int64_t at,
                          int64_t reach[2]) {
  int64_t many, step;
  reach[0] = reach[1] = at;
  for (int i = 0; i < n; i++) {
    if (!memform_int(g, size[i], &many) || !memform_int(g, stride[i], &step) || !many) return false;
    reach[1] += (many - 1) * step;
  }
  return true;
}

static bool memform_within(const MgGraph *g, ValRef v, const int64_t reach[2]) {
  const MgVal *t = mg_val(g, v);
  int64_t at, own[2];
  return memform_int(g, t->offset, &at) && memform_reach(g, t->size, t->stride, t->ndim, at, own) &&
         own[0] <= reach[0] && reach[1] <= own[1];
}

/* Elements in one run of memory, each once. */
static bool memform_dense(const MgGraph *g, ValRef v, int64_t reach[2]) {
  const MgVal *t = mg_val(g, v);
  int64_t at, many, step, numel = 1;
  if (!memform_int(g, t->offset, &at) || !memform_reach(g, t->size, t->stride, t->ndim, at, reach))
    return false;
  for (int i = 0; i < t->ndim; i++) {
    if (!memform_int(g, t->size[i], &many) || !memform_int(g, t->stride[i], &step) || (many > 1 && !step))
      return false;
    numel *= many;
  }
  return reach[1] - reach[0] + 1 == numel;
}

/* Makes its sizes constants: whether two parts of one memory overlap is a question about numbers. */
static void memform_settle(const MgGraph *g, ValRef v) {
  const MgVal *t = mg_val(g, v);
  int64_t k;
  mg_sym_settle(g->x, t->offset, &k);
  for (int i = 0; i < t->ndim; i++) {
    mg_sym_settle(g->x, t->size[i], &k);
    mg_sym_settle(g->x, t->stride[i], &k);
  }
}

static bool memform_alike(const MgVal *a, const MgVal *b) {
  bool same = a->ndim == b->ndim && a->offset == b->offset;
  for (int i = 0; same && i < a->ndim; i++) same = a->size[i] == b->size[i] && a->stride[i] == b->stride[i];
  return same;
}

/* Is it dense, or empty?  With symbolic sizes the answer is what is guarded. */
static bool memform_runs(const MgGraph *g, ValRef v) {
  const MgVal *t = mg_val(g, v);
  MgExprs *x = g->x;
  int64_t lo, hi;
  SymRef one = mg_sym(x, 1), run = one, numel = one;
  for (int i = 0; i < t->ndim; i++) {
    run = mg_sym_add(x, run, mg_sym_mul(x, mg_sym_sub(x, t->size[i], one), t->stride[i]));
    numel = mg_sym_mul(x, numel, t->size[i]);
  }
  bool known = mg_ex_range(x, mg_sym_sub(x, run, numel), &lo, &hi);
  if (known && (lo > 0 || hi < 0)) return false;
  return (known && lo == hi) || !x->ask || x->ask->equal(x->ask->of, run, numel);
}

/* Ops whose kernels refuse to read the memory that they write, even element for element. */
static bool memform_refuses_shared(int code) {
  switch (code) {
  case TOP_cat_out:
  case TOP_gather_out:
  case TOP_index_select_out:
  case TOP_index_add_:
  case TOP_index_copy_:
  case TOP_index_put_:
  case TOP__index_put_impl_:
  case TOP_scatter__src:
  case TOP_scatter__reduce:
  case TOP_scatter_add_:
  case TOP_scatter_reduce__two: return true;
  default: return false;
  }
}

struct memform_overlap {
  const MgGraph *g;
  ValRef to;
  bool found;
  bool shared; /* the same elements are refused, too */
  int itself;  /* how often `to` was an argument */
};
static void memform_see_overlap(ValRef *v, void *arg) {
  struct memform_overlap *s = arg;
  const MgGraph *g = s->g;
  int64_t a[2], b[2];
  if (*v == s->to) s->found |= s->shared && s->itself++ > 0;
  if (!*v || *v == s->to || mg_val(g, *v)->storage != mg_val(g, s->to)->storage ||
      mg_val(g, *v)->dtype != mg_val(g, s->to)->dtype)
    return;
  bool alike = memform_alike(mg_val(g, *v), mg_val(g, s->to));
  s->found |= alike && s->shared;
  if (alike || !memform_runs(g, *v) || !memform_runs(g, s->to)) return;
  memform_settle(g, *v);
  memform_settle(g, s->to);
  if (!memform_dense(g, *v, a) || !memform_dense(g, s->to, b)) return;
  s->found |= a[0] <= b[1] && b[0] <= a[1];
}

/* May two indices mean one element?  Those of a tensor whose strides step over each other's reach
 * do not; else it is as if. */
static bool memform_repeats(const MgGraph *g, ValRef v) {
  const MgVal *t = mg_val(g, v);
  int64_t size[64], stride[64], end = 0;
  int n = 0;
  if (mg_val_repeats(g, v)) return true;
  for (int i = 0; i < t->ndim && i < 64; i++) {
    int64_t many, step, lo, hi;
    if (!memform_int(g, t->size[i], &many) || !memform_int(g, t->stride[i], &step)) return false;
    if (mg_ex_range(g->x, t->size[i], &lo, &hi) && hi < many)
      many = hi; /* one that depends on data has no value yet */
    if (!many) return false;
    if (many == 1) continue;
    int at = n++;
    for (; at && stride[at - 1] > step; at--) size[at] = size[at - 1], stride[at] = stride[at - 1];
    size[at] = many, stride[at] = step;
  }
  for (int i = 0; i < n; i++) {
    if (stride[i] <= end) return true;
    end += (size[i] - 1) * stride[i];
  }
  return false;
}

/* The same of v and of what it is a view of: a write there shows in other elements of that. */
static bool memform_chain_repeats(const MgGraph *g, ValRef v) {
  for (;;) {
    if (memform_repeats(g, v)) return true;
    NodeRef def = mg_val(g, v)->def;
    const MgArg *base = def ? mg_node(g, def)->arg : NULL;
    if (!base || !mg_node(g, def)->narg || base->tag != MA_val ||
        mg_val(g, base->u.val)->storage != mg_val(g, v)->storage)
      return false;
    v = base->u.val;
  }
}

bool mg_memform_statistics_meet(const MgGraph *g, NodeRef node) {
  const MgNode *n = mg_node(g, node);
  int code = n->op->code;
  bool legit = code == TOP__native_batch_norm_legit && mg_node_flag(n, "training");
  if (!legit && code != TOP__batch_norm_with_update && !mg_node_trains_norm(n)) return false;
  const MgArg *means = mg_node_arg(n, "running_mean"), *vars = mg_node_arg(n, "running_var");
  if (means->tag != MA_val || vars->tag != MA_val) return false;
  ValRef mean = means->u.val, var = vars->u.val;
  struct memform_overlap s = {.g = g, .to = mean, .found = mean == var};
  s.found |=
      mg_val(g, mean)->storage == mg_val(g, var)->storage && memform_alike(mg_val(g, mean), mg_val(g, var));
  memform_see_overlap(&var, &s);
  return s.found;
}

bool mg_memform_odd(const MgGraph *g, const MgOp *op, NodeRef n) {
  MgNode *node = mg_node(g, n);
  int64_t reach[2];
  if (mg_memform_statistics_meet(g, n)) return true;
  for (int i = 0; op->mutates && i < op->nparam; i++) {
    if (!op->param[i].writes || node->arg[i].tag != MA_val) continue;
    ValRef to = node->arg[i].u.val;
    struct memform_overlap s = {g, to, memform_chain_repeats(g, to), memform_refuses_shared(op->code), 0};
    mg_node_each_val(node, memform_see_overlap, &s);
    if (s.found || (op->random && mg_val(g, s.to)->ndim && !memform_dense(g, s.to, reach))) return true;
  }
  return false;
}

bool mg_memform_known(const MgGraph *g, const MgOp *op, const MgArg *arg) {
  bool partial =
      op->code == TOP_diagonal_scatter || op->code == TOP_slice_scatter || op->code == TOP_select_scatter;
  bool scatter = op->code == TOP_as_strided_scatter || partial;
  if (!scatter && op->code != TOP_as_strided && op->code != TOP_as_strided_copy &&
      op->code != TOP_as_strided_)
    return true;
  const MgVal *self = mg_val(g, arg[0].u.val);
  int64_t at, reach[2];
  if (!memform_int(g, self->offset, &at) || (scatter && at)) return false;
  if (partial) return true;
  const MgArg *size = &arg[mg_op_param(op, "size")], *stride = &arg[mg_op_param(op, "stride")],
              *offset = &arg[mg_op_param(op, "storage_offset")];
  if (size->tag != MA_list || stride->tag != MA_list || size->n > 64 || stride->n != size->n)
    return true; /* torch's error */
  SymRef s[64], t[64];
  for (uint32_t i = 0; i < size->n; i++) s[i] = size->u.item[i].u.sym, t[i] = stride->u.item[i].u.sym;
  if (offset->tag == MA_int && !memform_int(g, offset->u.sym, &at)) return false;
  if (!memform_reach(g, s, t, (int)size->n, at, reach)) return true;
  ValRef root = self->storage;
  return memform_within(g, arg[0].u.val, reach) ||
         (mg_val(g, root)->dtype == self->dtype && memform_within(g, root, reach));
}

bool mg_memform_counts(const MgOp *op, const MgArg *arg) {
  switch (op->code) {
  case TOP_as_strided:
  case TOP_as_strided_copy:
  case TOP_as_strided_: return arg[mg_op_param(op, "storage_offset")].tag == MA_int;
  case TOP_as_strided_scatter:
  case TOP_diagonal_scatter:
  case TOP_slice_scatter:
  case TOP_select_scatter:
  case TOP_view_dtype:
  case TOP_view_as_complex: return true;
  default: return false;
  }
}
