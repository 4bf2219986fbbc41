/* Result inference: the driver, argument access, sizes, dtypes.  See infer.h. */
#include "ir/infer/infer.h"
#include <string.h>
#include "ir/infer/eager_rules.h"

/* ---- driver ---- */

static const MgInferRule infer_rule[TOP__COUNT] = {
#define TOP(code, name, schema, rule) [TOP_##code] = mg_infer_##rule,
#include "ir/graph/tensor_ops.def"
#undef TOP
};

MgRc mg_infer_unsup(MgInfer *in) { return MG_UNSUP; }

bool mg_infer_has(const MgOp *op) {
  return op->code != TOP_extern && infer_rule[op->code] && infer_rule[op->code] != mg_infer_unsup;
}

static void infer_settle(MgExprs *x, SymRef *e) {
  int64_t v;
  if (!*e || mg_ex_const_int(x, *e, &v) || (v = mg_sym_hint(x, *e)) < 0 || v > 1) return;
  if (mg_sym_settle(x, *e, &v)) *e = mg_sym(x, v);
}

static void infer_settle_val(MgGraph *g, ValRef v) {
  MgVal *t = mg_val(g, v);
  for (int i = 0; i < t->ndim; i++) infer_settle(g->x, &t->size[i]);
}

static void infer_settle_arg(MgExprs *x, MgArg *a) {
  if (a->tag == MA_int) infer_settle(x, &a->u.sym);
  for (uint32_t i = 0; a->tag == MA_list && i < a->n; i++) infer_settle_arg(x, &a->u.item[i]);
}

MgRc mg_infer_settle(MgGraph *g) {
  for (ValRef v = 1; v < g->nval; v++) infer_settle_val(g, v);
  for (NodeRef n = 1; n < g->nnode; n++)
    for (int i = 0; i < g->node[n].narg; i++) infer_settle_arg(g->x, &g->node[n].arg[i]);
  return mg_exprs_ok(g->x);
}

MgRc mg_infer(MgGraph *g, NodeRef n) {
  MgInfer in = {.g = g, .x = g->x, .n = mg_node(g, n), .op = mg_node(g, n)->op};
  if (in.op->code == TOP_extern || !infer_rule[in.op->code]) return MG_UNSUP;
  uint32_t nval = g->nval;
  if (!mg_infer_plausible(&in)) return MG_UNSUP;
  MgRc rc = infer_rule[in.op->code](&in);
  if (rc == MG_OK && (g->c->rc || g->x->nomem)) rc = g->c->rc ? g->c->rc : MG_NOMEM;
  if (rc == MG_OK) {
    for (int i = 0; i < in.n->nout; i++) {
      if (!in.n->out[i]) continue;
      mg_val(g, in.n->out[i])->def = n;
      mg_val(g, in.n->out[i])->out = i;
      if (g->x->ask && g->x->ask->small) infer_settle_val(g, in.n->out[i]);
    }
    return mg_exprs_ok(g->x);
  }
  g->nval = nval; /* half-made results */
  memset(in.n->out, 0, in.n->nout * sizeof *in.n->out);
  return rc;
}

/* ---- arguments ---- */

int mg_infer_find(const MgInfer *in, const char *name) { return mg_op_param(in->op, name); }

const MgArg *mg_infer_arg(const MgInfer *in, const char *name) {
  static const MgArg none = {.tag = MA_none};
  int k = mg_infer_find(in, name);
  return k < 0 || k >= in->n->narg ? &none : &in->n->arg[k];
}

ValRef mg_infer_tensor(const MgInfer *in, const char *name) {
  return mg_infer_nth(in, mg_infer_find(in, name));
}

ValRef mg_infer_nth(const MgInfer *in, int k) {
  return k >= 0 && k < in->n->narg && in->n->arg[k].tag == MA_val ? in->n->arg[k].u.val : 0;
}

bool mg_infer_flag(const MgInfer *in, const char *name) {
  const MgArg *a = mg_infer_arg(in, name);
  int64_t v;
  if (a->tag == MA_int) return mg_sym_settle(in->x, a->u.sym, &v) && v;
  return a->tag == MA_bool && a->u.b;
}

MgRc mg_infer_int(MgInfer *in, const MgArg *a, int64_t *v) {
  if (a->tag == MA_bool) {
    *v = a->u.b;
    return MG_OK;
  }
  return a->tag == MA_int && mg_sym_settle(in->x, a->u.sym, v) ? MG_OK : MG_UNSUP;
}

MgRc mg_infer_dim(MgInfer *in, const MgArg *a, int ndim, int *d) {
  int64_t v;
  int n = ndim ? ndim : 1; /* a 0-dim tensor accepts 0 and -1 */
  TRY(mg_infer_int(in, a, &v));
  if (v < -n || v >= n)
    return mg_fail(in->g->c, MG_BUG, "%s: dimension %lld of %d", in->op->full, (long long)v, ndim);
  *d = v < 0 ? v + n : v;
  return MG_OK;
}

MgRc mg_infer_dim_set(MgInfer *in, const MgArg *a, int ndim, bool *set) {
  int d;
  bool all = a->tag == MA_none || (a->tag == MA_list && !a->n);
  for (int i = 0; i < ndim; i++) set[i] = all;
  if (a->tag == MA_list) {
    for (uint32_t i = 0; i < a->n; i++) {
      TRY(mg_infer_dim(in, &a->u.item[i], ndim, &d));
      if (ndim) set[d] = true;
    }
  } else if (a->tag != MA_none) {
    TRY(mg_infer_dim(in, a, ndim, &d));
    if (ndim) set[d] = true;
  }
  return MG_OK;
}

MgRc mg_infer_sizes(MgInfer *in, const MgArg *a, MgDims *out) {
  out->n = 0;
  if (a->tag == MA_int) {
    out->d[out->n++] = a->u.sym;
    return MG_OK;
  }
  if (a->tag != MA_list || a->n > MG_INFER_RANK) return MG_UNSUP;
  for (uint32_t i = 0; i < a->n; i++) {
    if (a->u.item[i].tag != MA_int) return MG_UNSUP;
    out->d[out->n++] = a->u.item[i].u.sym;
  }
  return MG_OK;
}

MgRc mg_infer_pick(MgInfer *in, const MgArg *a, int k, int64_t dflt, int64_t *v) {
  if (a->tag == MA_none || (a->tag == MA_list && !a->n)) {
    *v = dflt;
    return MG_OK;
  }
  if (a->tag != MA_list) return mg_infer_int(in, a, v);
  return mg_infer_int(in, &a->u.item[a->n == 1 ? 0 : k], v);
}

/* ---- questions about sizes ---- */

/* What can be proven. */
static int infer_proven(MgInfer *in, SymRef a, SymRef b) {
  int64_t p, q, lo, hi;
  if (mg_ex_same(a, b)) return 0;
  if (mg_ex_const_int(in->x, a, &p) && mg_ex_const_int(in->x, b, &q)) return p < q ? -1 : p > q;
  if (!mg_ex_range(in->x, mg_sym_sub(in->x, a, b), &lo, &hi)) return UNKNOWN;
  return lo > 0 ? 1 : hi < 0 ? -1 : lo == 0 && hi == 0 ? 0 : UNKNOWN;
}

int mg_infer_cmp(MgInfer *in, SymRef a, SymRef b) {
  int c = infer_proven(in, a, b);
  return c == UNKNOWN && in->x->ask ? in->x->ask->compare(in->x->ask->of, a, b) : c;
}

int mg_infer_less(MgInfer *in, SymRef a, SymRef b) {
  int64_t lo, hi;
  const MgSizeAsk *ask = in->x->ask;
  if (mg_ex_range(in->x, mg_sym_sub(in->x, a, b), &lo, &hi) && (hi < 0 || lo >= 0)) return hi < 0;
  if (ask && ask->less) return ask->less(ask->of, a, b);
  int c = mg_infer_cmp(in, a, b);
  return c == UNKNOWN ? UNKNOWN : c < 0;
}

int mg_infer_eq(MgInfer *in, SymRef a, SymRef b) {
  int c = infer_proven(in, a, b);
  if (c == UNKNOWN && in->x->ask) return in->x->ask->equal(in->x->ask->of, a, b);
  return c == UNKNOWN ? UNKNOWN : c == 0;
}

int mg_infer_is(MgInfer *in, SymRef a, int64_t v) {
  int64_t lo, hi;
  int yes = !mg_ex_range(in->x, a, &lo, &hi) ? UNKNOWN
            : lo == v && hi == v             ? 1
            : v < lo || v > hi               ? 0
                                             : UNKNOWN;
  return yes == UNKNOWN && in->x->ask ? in->x->ask->equal(in->x->ask->of, a, mg_infer_c(in, v)) : yes;
}

void mg_infer_dims_of(const MgInfer *in, ValRef v, MgDims *size) {
  const MgVal *t = mg_val(in->g, v);
  size->n = t->ndim;
  memcpy(size->d, t->size, t->ndim * sizeof *size->d);
}

MgRc mg_infer_broadcast(MgInfer *in, MgDims *acc, const SymRef *size, int n) {
  if (n > acc->n) { /* shorter shapes are extended on the left */
    int k = n - acc->n;
    memmove(acc->d + k, acc->d, acc->n * sizeof *acc->d);
    for (int i = 0; i < k; i++) acc->d[i] = mg_infer_c(in, 1);
    acc->n = n;
  }
  for (int i = 0; i < n; i++) {
    SymRef *a = &acc->d[acc->n - n + i], b = size[i];
    if (mg_ex_same(*a, b)) continue;
    int ao = mg_infer_is(in, *a, 1), bo = mg_infer_is(in, b, 1), eq = mg_infer_eq(in, *a, b);
    if (ao == 1) *a = b;
    else if (bo == 1 || eq == 1) continue;
    else if (ao == UNKNOWN || bo == UNKNOWN || eq == UNKNOWN) return MG_UNSUP;
    else return mg_fail(in->g->c, MG_BUG, "%s: sizes do not broadcast", in->op->full);
  }
  return MG_OK;
}

MgRc mg_infer_fill_size(MgInfer *in, MgDims *to, SymRef numel) {
  SymRef rest = mg_infer_c(in, 1);
  int hole = -1;
  for (int i = 0; i < to->n; i++) {
    if (mg_sym_is(in->x, to->d[i], -1)) hole = i;
    else rest = mg_sym_mul(in->x, rest, to->d[i]);
  }
  if (hole < 0) return MG_OK;
  if (mg_infer_is(in, rest, 0) != 0) return MG_UNSUP;
  to->d[hole] = mg_sym_floordiv(in->x, numel, rest);
  return MG_OK;
}

/* ---- dtypes ---- */

MgDtype mg_infer_dtype_arg(const MgInfer *in, MgDtype dflt) {
  const MgArg *a = mg_infer_arg(in, "dtype");
  return a->tag == MA_dtype ? a->u.code : dflt;
}

MgDtype mg_infer_float(const MgInfer *in, MgDtype d) {
  return mg_dtype_is_int(d) || d == DT_bool ? in->g->default_dtype : d;
}

static MgDtype infer_join(MgDtype a, MgDtype b) {
  return a == DT_none ? b : b == DT_none ? a : mg_dtype_promote(a, b);
}

/* The complex numbers that consist of two floats of this dtype. */
static MgDtype infer_complex(MgDtype d) {
  if (d == DT_bf16 && mg_eager_rule(ER_bf16_has_complex)) return DT_bc32;
  return d == DT_f64 ? DT_c128 : d == DT_f16 ? DT_c32 : DT_c64;
}

/* A category of lower priority changes only the kind (bool < integer < float < complex), not the width. */
static MgDtype infer_combine(MgDtype high, MgDtype low) {
  if (high == DT_none) return low;
  if (low == DT_none || mg_dtype_is_complex(high)) return high;
  if (mg_dtype_is_float(high)) {
    return mg_dtype_is_complex(low) ? infer_complex(high) : high;
  }
  if (high == DT_bool || mg_dtype_is_float(low) || mg_dtype_is_complex(low)) return infer_join(high, low);
  return high;
}

MgDtype mg_infer_result_type(const MgInfer *in, const MgArg *const *arg, int n) {
  MgDtype dim = DT_none, zero = DT_none, number = DT_none; /* tensors, 0-dim tensors, Python numbers */
  for (int i = 0; i < n; i++) {
    const MgArg *a = arg[i];
    if (a->tag == MA_val) {
      const MgVal *t = mg_val(in->g, a->u.val);
      if (t->ndim) dim = infer_join(dim, t->dtype);
      else zero = infer_join(zero, t->dtype);
    } else if (a->tag == MA_int || a->tag == MA_bool || a->tag == MA_float) {
      number = infer_join(number, a->tag == MA_float ? in->g->default_dtype
                                  : a->tag == MA_int ? DT_i64
                                                     : DT_bool);
    } else if (a->tag == MA_object) { /* a complex number */
      number = infer_join(number, infer_complex(in->g->default_dtype));
    }
  }
  return infer_combine(dim, infer_combine(zero, number));
}

/* ---- results ---- */

MgRc mg_infer_results(MgInfer *in, int n) {
  if (n > in->n->nout) TRYP(in->n->out = mg_new(in->g->c, ValRef, n + 1));
  in->n->nout = n;
  memset(in->n->out, 0, n * sizeof *in->n->out);
  return MG_OK;
}

/* The device of the results: a `device` argument, else that of the tensors (a 0-dim CPU tensor beside others
 * is a number). */
static void infer_device(const MgInfer *in, MgVal *t) {
  const MgArg *a = mg_infer_arg(in, "device");
  if (a->tag == MA_device) {
    t->device = a->u.code;
    t->dev_index = a->u.code == DEV_cuda && a->dev_index < 0 ? 0 : a->dev_index;
    if (t->device == DEV_cpu) t->dev_index = -1;
    return;
  }
  t->device = DEV_cpu;
  t->dev_index = -1;
  for (int i = 0; i < in->n->narg; i++) {
    const MgArg *p = &in->n->arg[i];
    uint32_t n = p->tag == MA_list ? p->n : 1;
    for (uint32_t k = 0; k < n; k++) {
      const MgArg *q = p->tag == MA_list ? &p->u.item[k] : p;
      if (q->tag != MA_val || mg_val(in->g, q->u.val)->device == DEV_cpu) continue;
      t->device = mg_val(in->g, q->u.val)->device;
      t->dev_index = mg_val(in->g, q->u.val)->dev_index;
      return;
    }
  }
}

MgRc mg_infer_out(MgInfer *in, int i, MgDtype d, const MgDims *size, const MgDims *stride) {
  if (!mg_dtype_size(d)) return MG_UNSUP;
  if (i >= in->n->nout) TRY(mg_infer_results(in, i + 1));
  ValRef v = mg_graph_val(in->g, d, size->n);
  TRYP(v);
  MgVal *t = mg_val(in->g, v);
  memcpy(t->size, size->d, size->n * sizeof *t->size);
  for (int k = 0; k < size->n; k++) { /* a kernel larger than its input, a range that runs backwards */
    int64_t n;
    if (mg_ex_const_int(in->x, size->d[k], &n) && n < 0) return MG_UNSUP;
  }
  if (stride) memcpy(t->stride, stride->d, size->n * sizeof *t->stride);
  else mg_graph_contiguous(in->g, v);
  infer_device(in, t);
  in->n->out[i] = v;
  return MG_OK;
}

/* May a result of dtype r be stored in a tensor of dtype s? */
static bool infer_storable(MgDtype r, MgDtype s) {
  if (mg_dtype_is_complex(r) && !mg_dtype_is_complex(s)) return false;
  if (mg_dtype_is_float(r) && !mg_dtype_is_float(s) && !mg_dtype_is_complex(s)) return false;
  return r == DT_bool || s != DT_bool;
}

/* Would the functional twin give the written argument its own size, in a dtype that may be stored there?
 * *kind: whether the dtype may. */
static bool infer_fits(MgInfer *in, const MgOp *twin, bool *kind) {
  ValRef self = 0;
  for (int k = 0; k < in->op->nparam && !self; k++)
    if (in->op->param[k].writes) self = mg_infer_nth(in, k);
  bool out =
      in->op->param[in->op->nparam - 1].writes; /* which torch may resize: nothing is taken for granted */
  if (!self || twin->nret != 1) return !out;
  MgNode pure = *in->n;
  MgInfer as = {.g = in->g, .x = in->x, .n = &pure, .op = twin};
  uint32_t nval = in->g->nval;
  pure.op = twin;
  if (pure.narg > twin->nparam) pure.narg = twin->nparam; /* without out= */
  pure.out = NULL;
  pure.nout = 0;
  MgRc rc = infer_rule[twin->code](&as);
  if (rc == MG_UNSUP) return !out;
  bool fits = rc == MG_OK && pure.nout == 1;
  if (fits) {
    const MgVal *r = mg_val(in->g, pure.out[0]), *s = mg_val(in->g, self);
    fits = r->ndim == s->ndim;
    for (int i = 0; fits && i < r->ndim; i++) fits = mg_infer_eq(in, r->size[i], s->size[i]) != 0;
    fits &= *kind = infer_storable((MgDtype)r->dtype, (MgDtype)s->dtype);
  }
  if (rc != MG_OK && rc != MG_NOMEM) in->g->c->rc = MG_OK;
  in->g->nval = nval;
  return fits;
}

bool mg_infer_cannot_store(MgGraph *g, NodeRef n) {
  MgInfer in = {.g = g, .x = g->x, .n = mg_node(g, n), .op = mg_node(g, n)->op};
  const MgOp *twin = mg_op_twin(in.op);
  bool kind = true;
  bool inplace = in.op->nparam && in.op->param[0].writes; /* out= may be the dtype that an op computes in */
  if (twin && inplace && !twin->is_view && infer_rule[twin->code]) infer_fits(&in, twin, &kind);
  return !kind;
}

/* In-place and out= ops: each result is the written argument.  In-place views (t_,
 * squeeze_) change its shape. */
MgRc mg_infer_written(MgInfer *in) {
  const MgOp *twin = mg_op_twin(in->op);
  bool kind = true;
  if (twin && twin->is_view && infer_rule[twin->code]) {
    MgInfer view = *in;
    view.op = twin;
    return infer_rule[twin->code](&view);
  }
  if (twin && !twin->is_view && infer_rule[twin->code] && !infer_fits(in, twin, &kind)) return MG_UNSUP;
  MgRc rc = MG_OK;
  int r = 0;
  TRY(mg_infer_results(in, in->op->nret));
  for (int i = 0; i < in->op->nret && rc == MG_OK; i++) {
    ValRef v = 0;
    for (int k = 0; k < in->op->nparam && !v; k++)
      if (in->op->param[k].alias_set == in->op->ret_alias[i] && in->op->ret_alias[i] >= 0)
        v = mg_infer_nth(in, k);
    if (!v) return MG_UNSUP;
    if (in->op->param[in->op->nparam - 1].writes &&
        (!twin || mg_infer_is(in, mg_val_numel(in->g, v), 0) != 0))
      return MG_UNSUP; /* out= may be resized */
    ValRef o = mg_graph_val_like(in->g, v);
    TRYP(o);
    mg_val(in->g, o)->offset = mg_val(in->g, v)->offset;
    mg_val(in->g, o)->storage = mg_val(in->g, v)->storage;
    in->n->out[r++] = o;
  }
  return rc;
}

MgRc mg_infer_inplace_random(MgInfer *in) {
  return in->op->code == TOP_resize_ ? MG_UNSUP : mg_infer_written(in);
}

NodeRef mg_graph_emit(MgGraph *g, MgTop code, const MgArg *arg, int narg) {
  const MgOp *op = mg_op_by_code(code);
  if (!op || narg > op->nparam) {
    mg_fail(g->c, op ? MG_BUG : MG_NOMEM, "op %d with %d arguments", code, narg);
    return 0;
  }
  NodeRef n = mg_graph_node(g, op, op->nparam, op->nret);
  if (!n) return 0;
  for (int i = 0; i < op->nparam; i++) {
    if (i < narg) mg_node(g, n)->arg[i] = arg[i];
    else if (mg_arg_default(g, &op->param[i], &mg_node(g, n)->arg[i]) != MG_OK) return 0;
  }
  MgRc rc = mg_infer(g, n);
  if (rc != MG_OK) {
    mg_fail(g->c, rc, "%s: results not inferred", op->full);
    return 0;
  }
  return n;
}

ValRef mg_graph_emit1(MgGraph *g, MgTop code, const MgArg *arg, int narg) {
  NodeRef n = mg_graph_emit(g, code, arg, narg);
  return n ? mg_node(g, n)->out[0] : 0;
}
