/* Reductions over dimensions, arg-reductions, scans.
 * Every op is one nest or a few (mean, then squared deviations); 16-bit floats are reduced in
 * f32, ints and bools in i64. */
#include "back/lower/lower_reduce.h"
#include <math.h>
#include <string.h>

MgRc lw_reduce(Lower *L, MgRedOp op, ExprRef body, int ndim, const SymRef *size, const bool *red,
               ExprRef value, const MgView *out, bool keep) {
  MgLoop *l = mg_sched_loop(L->s, ML_reduce, L->node);
  TRYP(l);
  ExprRef to[LW_MAX_NDIM], outer[LW_MAX_NDIM];
  lw_ranges(L, l, out, outer);
  int o = 0, k = l->nouter;
  for (int d = 0; d < ndim; d++) {
    if (red[d]) {
      l->range[k] = size[d];
      to[d] = mg_ex_idx(L->x, k++);
      o += keep;
    } else {
      to[d] = outer[o++];
    }
  }
  l->nred = (uint8_t)(k - l->nouter);
  l->red_op = op;
  l->body = mg_ex_subst(L->x, body, to, ndim);
  l->value = value ? mg_ex_subst(L->x, value, outer, out->ndim)
                   : mg_ex_red(L->x, mg_red_is_arg(op) ? TY_i64 : lw_ty(L, body));
  return MG_OK;
}

bool lw_red_init(Lower *L, MgNode *n, MgTy ty, LwRed *q) {
  *q = (LwRed){.L = L, .src = lw_first(n), .ty = ty};
  const MgVal *m = lw_meta(L, q->src);
  q->nd = m->ndim;
  q->size = m->size;
  q->keep = lw_arg_bool(n, "keepdim", false);
  q->count = lw_int(L, 1);
  int len = lw_arg_len(n, "dim");
  for (int d = 0; d < q->nd; d++) {
    q->at[d] = mg_ex_idx(L->x, d);
    q->red[d] = len == 0;
  }
  for (int i = 0; i < len; i++) {
    int64_t v;
    if (!mg_ex_const_int(L->x, lw_arg_item(L, n, "dim", i, 0), &v)) return false;
    if (q->nd) q->red[v < 0 ? v + q->nd : v] = true;
  }
  for (int d = 0; d < q->nd; d++)
    if (q->red[d]) q->count = mg_sym_mul(L->x, q->count, m->size[d]);
  return true;
}

ExprRef lw_red_src(LwRed *q) { return mg_ex_cvt(q->L->x, q->ty, lw_at(q->L, q->src, q->at)); }

MgRc lw_red_into(LwRed *q, ValRef v, MgRedOp op, ExprRef body, ExprRef value) {
  if (!v || !q->L->val[v].uses) return MG_OK;
  MgView out;
  TRY(lw_buffer(q->L, v, &out));
  TRY(lw_reduce(q->L, op, body, q->nd, q->size, q->red, value, &out, q->keep));
  lw_define_view(q->L, v, &out);
  return MG_OK;
}

MgRc lw_red_temp(LwRed *q, MgRedOp op, ExprRef body, ExprRef value, MgDtype dt, ExprRef *read) {
  SymRef size[LW_MAX_NDIM];
  ExprRef at[LW_MAX_NDIM];
  MgView out;
  for (int d = 0; d < q->nd; d++) {
    size[d] = q->red[d] ? lw_int(q->L, 1) : q->size[d];
    at[d] = q->red[d] ? lw_int(q->L, 0) : q->at[d];
  }
  TRY(lw_temp(q->L, dt, lw_meta(q->L, q->src)->device, q->nd, size, NULL, &out));
  TRY(lw_reduce(q->L, op, body, q->nd, q->size, q->red, value, &out, true));
  *read = mg_ex_load(q->L->x, mg_dtype_ty(dt), out.buf, mg_view_index(q->L->x, &out, at), 0, 0);
  return MG_OK;
}

ExprRef lw_red_outer(LwRed *q, ExprRef e) {
  ExprRef at[LW_MAX_NDIM];
  int o = 0;
  for (int d = 0; d < q->nd; d++) at[d] = q->red[d] && !q->keep ? lw_int(q->L, 0) : mg_ex_idx(q->L->x, o++);
  return mg_ex_subst(q->L->x, e, at, q->nd);
}

static MgTy reduce_ty(Lower *L, ValRef v) { return mg_dtype_compute((MgDtype)lw_meta(L, v)->dtype); }

/* What the accumulator of a sum or product is: i64 for integers and bools. */
static MgTy reduce_sum_ty(Lower *L, ValRef v) {
  MgTy t = reduce_ty(L, v);
  return mg_ty_is_float(t) ? t : TY_i64;
}

enum { R_sum, R_mean, R_prod, R_nansum, R_nanmean, R_count };

static MgRc reduce_sum(Lower *L, MgNode *n, const LwRow *r) {
  ValRef v = n->out[0];
  LwRed q;
  if (!lw_red_init(L, n, reduce_sum_ty(L, v), &q)) return MG_UNSUP;
  ExprRef e = lw_red_src(&q), red = mg_ex_red(L->x, q.ty), value = 0;
  if (r->op == R_count) e = mg_ex_cvt(L->x, q.ty, mg_ex_cvt(L->x, TY_i1, lw_at(L, q.src, q.at)));
  ExprRef isnan = mg_ty_is_float(q.ty) ? lw_op1(L, OP_isnan, e) : 0;
  if ((r->op == R_nansum || r->op == R_nanmean) && isnan) e = lw_where(L, isnan, lw_const(L, q.ty, 0), e);
  if (r->op == R_mean) value = lw_op2(L, OP_div, red, mg_ex_cvt(L->x, q.ty, q.count));
  if (r->op == R_nanmean) {
    ExprRef cnt;
    TRY(lw_settle(L, q.src));
    TRY(lw_red_temp(&q, RED_sum, mg_ex_cvt(L->x, q.ty, lw_op1(L, OP_not, isnan)), 0, lw_acc_dtype(q.ty),
                    &cnt));
    value = lw_op2(L, OP_div, red, lw_red_outer(&q, cnt));
  }
  return lw_red_into(&q, v, r->op == R_prod ? RED_prod : RED_sum, e, value);
}

/* any, all, max, min of all or named dims */
static MgRc reduce_plain(Lower *L, MgNode *n, const LwRow *r) {
  LwRed q;
  bool logic = r->op == RED_any || r->op == RED_all;
  MgTy ty = logic ? TY_i1 : reduce_ty(L, lw_arg_val(n, "self"));
  if (!lw_red_init(L, n, ty, &q)) return MG_UNSUP;
  MgRedOp op = (MgRedOp)r->op;
  if (ty == TY_i1) op = op == RED_max ? RED_any : op == RED_min ? RED_all : op; /* extremes of bools */
  return lw_red_into(&q, n->out[0], op, lw_red_src(&q), 0);
}

static ExprRef reduce_arg_src(LwRed *q) { /* bools are compared as integers */
  ExprRef e = lw_red_src(q);
  return q->ty == TY_i1 ? mg_ex_cvt(q->L->x, TY_u8, e) : e;
}
static MgRc reduce_arg(Lower *L, MgNode *n, const LwRow *r) {
  LwRed q;
  if (!lw_red_init(L, n, reduce_ty(L, lw_arg_val(n, "self")), &q)) return MG_UNSUP;
  return lw_red_into(&q, n->out[0], (MgRedOp)r->op, reduce_arg_src(&q), 0);
}
/* max.dim, min.dim: values and the first index that has them */
static MgRc reduce_max_dim(Lower *L, MgNode *n, const LwRow *r) {
  LwRed q;
  if (!lw_red_init(L, n, reduce_ty(L, lw_arg_val(n, "self")), &q)) return MG_UNSUP;
  TRY(lw_settle(L, q.src));
  MgRedOp op = r->op == RED_max ? (q.ty == TY_i1 ? RED_any : RED_max) : q.ty == TY_i1 ? RED_all : RED_min;
  TRY(lw_red_into(&q, n->out[0], op, lw_red_src(&q), 0));
  return lw_red_into(&q, n->out[1], r->op == RED_max ? RED_argmax : RED_argmin, reduce_arg_src(&q), 0);
}
static MgRc reduce_aminmax(Lower *L, MgNode *n, const LwRow *r) {
  LwRed q;
  if (!lw_red_init(L, n, reduce_ty(L, lw_arg_val(n, "self")), &q)) return MG_UNSUP;
  TRY(lw_settle(L, q.src));
  TRY(lw_red_into(&q, n->out[0], q.ty == TY_i1 ? RED_all : RED_min, lw_red_src(&q), 0));
  return lw_red_into(&q, n->out[1], q.ty == TY_i1 ? RED_any : RED_max, lw_red_src(&q), 0);
}

/* ---- variance
 * ------------------------------------------------------------------------------------------------------ */

enum { VAR_sqrt = 1, VAR_mean = 2 }; /* op bits: std, and the mean as second result */

/* Two passes: the mean, then the sum of squared deviations over max(count - correction, 0). */
static MgRc reduce_var(Lower *L, MgNode *n, const LwRow *r, ExprRef correction) {
  ValRef v = n->out[0];
  LwRed q;
  if (!lw_red_init(L, n, reduce_ty(L, v), &q) || !mg_ty_is_float(q.ty)) return MG_UNSUP;
  TRY(lw_settle(L, q.src));
  ExprRef x = lw_red_src(&q), red = mg_ex_red(L->x, q.ty), count = mg_ex_cvt(L->x, q.ty, q.count), mean;
  ExprRef avg = lw_op2(L, OP_div, red, count);
  TRY(lw_red_temp(&q, RED_sum, x, avg, lw_acc_dtype(q.ty), &mean));
  ExprRef d = lw_op2(L, OP_sub, x, mean);
  ExprRef dof =
      lw_op2(L, OP_max, lw_op2(L, OP_sub, count, mg_ex_cvt(L->x, q.ty, correction)), lw_const(L, q.ty, 0));
  ExprRef var = lw_op2(L, OP_div, red, dof);
  if (r->op & VAR_sqrt) var = lw_op1(L, OP_sqrt, var);
  TRY(lw_red_into(&q, v, RED_sum, lw_op2(L, OP_mul, d, d), var));
  if (!(r->op & VAR_mean) || !n->out[1] || !L->val[n->out[1]].uses) return MG_OK;
  return lw_define(L, n->out[1], lw_red_outer(&q, mean));
}
static MgRc reduce_var_unbiased(Lower *L, MgNode *n, const LwRow *r) {
  return reduce_var(L, n, r, lw_int(L, lw_arg_bool(n, "unbiased", true)));
}
static MgRc reduce_var_corr(Lower *L, MgNode *n, const LwRow *r) {
  ExprRef c = lw_is_none(n, "correction") ? lw_int(L, 1) : lw_arg_scalar(L, lw_arg(n, "correction"), TY_f64);
  return reduce_var(L, n, r, c);
}

/* ---- norms, logsumexp
 * ---------------------------------------------------------------------------------------------- */

/* ||x||_p */
static MgRc reduce_norm(Lower *L, MgNode *n, const LwRow *r) {
  ValRef v = n->out[0];
  LwRed q;
  if (!lw_red_init(L, n, reduce_ty(L, v), &q) || !mg_ty_is_float(q.ty)) return MG_UNSUP;
  double p = lw_arg_float(L->g, n, lw_either(n, "p", "ord"), 2);
  ExprRef x = lw_red_src(&q), a = lw_op1(L, OP_abs, x), red = mg_ex_red(L->x, q.ty);
  if (p != 0 && mg_sym_is(L->x, q.count, 1))
    return lw_red_into(&q, v, RED_sum, a, 0); /* even where its power overflows */
  if (p == INFINITY) return lw_red_into(&q, v, RED_max, a, 0);
  if (p == -INFINITY) return lw_red_into(&q, v, RED_min, a, 0);
  if (p == 0) return lw_red_into(&q, v, RED_sum, mg_ex_cvt(L->x, q.ty, mg_ex_cvt(L->x, TY_i1, x)), 0);
  if (p == 1) return lw_red_into(&q, v, RED_sum, a, 0);
  if (p == 2) return lw_red_into(&q, v, RED_sum, lw_op2(L, OP_mul, x, x), lw_op1(L, OP_sqrt, red));
  ExprRef e = lw_op2(L, OP_pow, a, lw_const(L, q.ty, p));
  return lw_red_into(&q, v, RED_sum, e, lw_op2(L, OP_pow, red, lw_const(L, q.ty, 1 / p)));
}

static MgRc reduce_logsumexp(Lower *L, MgNode *n, const LwRow *r) {
  ValRef v = n->out[0];
  LwRed q;
  if (!lw_red_init(L, n, reduce_ty(L, v), &q) || !mg_ty_is_float(q.ty)) return MG_UNSUP;
  TRY(lw_settle(L, q.src));
  ExprRef x = lw_red_src(&q), top, red = mg_ex_red(L->x, q.ty), zero = lw_const(L, q.ty, 0);
  TRY(lw_red_temp(&q, RED_max, x, 0, lw_acc_dtype(q.ty), &top));
  ExprRef inf = lw_op2(L, OP_eq, lw_op1(L, OP_abs, top), lw_const(L, q.ty, INFINITY));
  top = lw_where(L, inf, zero, top);
  ExprRef value = lw_op2(L, OP_add, lw_op1(L, OP_log, red), lw_red_outer(&q, top));
  return lw_red_into(&q, v, RED_sum, lw_op1(L, OP_exp, lw_op2(L, OP_sub, x, top)), value);
}

/* ---- scans
 * ----------------------------------------------------------------------------------------------------------
 */

/* What a running sum or product is kept in.  Eager's kernels for a CPU keep that of float32 in float64: a
 * product that is too small for float32 is no zero, and an infinity behind it no NaN. */
static MgTy reduce_scan_ty(Lower *L, ValRef v) {
  bool twice = !L->gpu && lw_meta(L, v)->dtype == DT_f32;
  return twice ? TY_f64 : reduce_sum_ty(L, v);
}

static MgRc reduce_scan(Lower *L, MgNode *n, const LwRow *r) {
  ValRef v = n->out[0], src = lw_arg_val(n, "self");
  const MgVal *m = lw_meta(L, v);
  int dim, k = 0;
  if (m->ndim == 0) return lw_define(L, v, lw_at(L, src, NULL));
  if (!lw_arg_dim(L->g, n, "dim", m->ndim, &dim)) return MG_UNSUP;
  MgTy ty = reduce_sum_ty(L, v), acc = reduce_scan_ty(L, v);
  MgView out;
  ExprRef to[LW_MAX_NDIM];
  TRY(lw_buffer(L, v, &out));
  MgLoop *l = mg_sched_loop(L->s, ML_scan, L->node);
  TRYP(l);
  for (int d = 0; d < m->ndim; d++)
    if (d != dim) {
      l->range[k] = m->size[d];
      to[d] = mg_ex_idx(L->x, k++);
    }
  l->nouter = (uint8_t)k;
  l->nred = 1;
  l->range[k] = m->size[dim];
  to[dim] = mg_ex_idx(L->x, k);
  l->red_op = r->op;
  l->body = mg_ex_cvt(L->x, acc, mg_ex_cvt(L->x, ty, lw_at(L, src, to)));
  l->value = mg_ex_cvt(L->x, ty, mg_ex_red(L->x, acc));
  l->buf = out.buf;
  l->index = mg_view_index(L->x, &out, to);
  lw_define_view(L, v, &out);
  return MG_OK;
}

static bool ok_arg(const MgGraph *g, const MgNode *n) {
  return mg_val(g, lw_arg_val(n, "self"))->dtype != DT_bool;
}

#define R(name, ok, fn, op) {"aten::" name, fn, ok, NULL, op, 0, 0, NULL},
#define RM(name, ok, fn, op) {"aten::" name, fn, ok, NULL, op, 0, LWF_multi, NULL},
#define VARS(name, op)                                                                                       \
  RM(name, lw_ok_float, reduce_var_unbiased, op)                                                             \
  RM(name ".dim", lw_ok_float, reduce_var_unbiased, op)                                                      \
  RM(name ".correction", lw_ok_float, reduce_var_corr, op)
/* Rows have no commas between them. */
/* clang-format off */
const LwRow lw_rows_reduce[] = {
  R("sum", NULL, reduce_sum, R_sum) R("sum.dim_IntList", NULL, reduce_sum, R_sum)
  R("mean", lw_ok_float, reduce_sum, R_mean) R("mean.dim", lw_ok_float, reduce_sum, R_mean)
  R("prod", NULL, reduce_sum, R_prod) R("prod.dim_int", NULL, reduce_sum, R_prod)
  R("nansum", NULL, reduce_sum, R_nansum) RM("nanmean", lw_ok_float, reduce_sum, R_nanmean)
  R("count_nonzero", NULL, reduce_sum, R_count)
  R("count_nonzero.dim_IntList", NULL, reduce_sum, R_count)
  R("any", NULL, reduce_plain, RED_any) R("any.dim", NULL, reduce_plain, RED_any)
  R("any.dims", NULL, reduce_plain, RED_any)
  R("all", NULL, reduce_plain, RED_all) R("all.dim", NULL, reduce_plain, RED_all)
  R("all.dims", NULL, reduce_plain, RED_all)
  R("amax", NULL, reduce_plain, RED_max) R("amin", NULL, reduce_plain, RED_min)
  R("max", NULL, reduce_plain, RED_max) R("min", NULL, reduce_plain, RED_min)
  R("argmax", ok_arg, reduce_arg, RED_argmax) R("argmin", ok_arg, reduce_arg, RED_argmin)
  RM("max.dim", NULL, reduce_max_dim, RED_max) RM("min.dim", NULL, reduce_max_dim, RED_min)
  RM("aminmax", NULL, reduce_aminmax, 0)
  VARS("var", 0) VARS("std", VAR_sqrt) VARS("var_mean", VAR_mean) VARS("std_mean", VAR_sqrt | VAR_mean)
  R("linalg_vector_norm", lw_ok_float, reduce_norm, 0) R("norm.Scalar", lw_ok_float, reduce_norm, 0)
  R("norm.ScalarOpt_dim", lw_ok_float, reduce_norm, 0)
  R("norm.ScalarOpt_dim_dtype", lw_ok_float, reduce_norm, 0)
  R("norm.ScalarOpt_dtype", lw_ok_float, reduce_norm, 0)
  RM("logsumexp", lw_ok_float, reduce_logsumexp, 0)
  R("cumsum", NULL, reduce_scan, RED_sum) R("cumprod", NULL, reduce_scan, RED_prod)
  {0},
};
/* clang-format on */
