/* Factories and index patterns: values that depend on where, not on what. */
#include "back/lower/lower_priv.h"
#include <math.h>

static MgTy factory_ty(Lower *L, const MgNode *n) {
  return mg_dtype_compute((MgDtype)lw_meta(L, n->out[0])->dtype);
}
static int factory_ndim(Lower *L, const MgNode *n) { return lw_meta(L, n->out[0])->ndim; }

/* zeros, ones, empty ... : op is the constant.  Contents of empty tensors are zeros:
 * defined memory, never read. */
static MgRc factory_const(Lower *L, MgNode *n, const LwRow *r) {
  return lw_define(L, n->out[0], lw_const(L, factory_ty(L, n), r->op));
}
/* full and friends */
static MgRc factory_full(Lower *L, MgNode *n, const LwRow *r) {
  return lw_define(L, n->out[0],
                   lw_arg_scalar(L, lw_arg(n, lw_either(n, "fill_value", "s")), factory_ty(L, n)));
}
/* start + i * step; ints in i64, floats in f64 as ATen accumulates */
static MgRc factory_arange(Lower *L, MgNode *n,
                           const LwRow *r) { /* op: 0 (end), 1 (start, end), 2 (start, end, step) */
  MgTy ty = factory_ty(L, n), acc = mg_ty_is_float(ty) ? TY_f64 : TY_i64;
  ExprRef i = mg_ex_cvt(L->x, acc, mg_ex_idx(L->x, 0)), e = i;
  if (r->op == 2) e = lw_op2(L, OP_mul, e, lw_arg_scalar(L, lw_arg(n, "step"), acc));
  if (r->op >= 1) e = lw_op2(L, OP_add, lw_arg_scalar(L, lw_arg(n, "start"), acc), e);
  return lw_define(L, n->out[0], mg_ex_cvt(L->x, ty, e));
}
static bool ok_arange(const MgGraph *g,
                      const MgNode *n) { /* integer results of float steps are eager's business */
  if (lw_ok_float(g, n)) return true;
  if (!lw_ok_not_bool(g, n)) return false;
  return lw_arg(n, "start")->tag != MA_float && lw_arg(n, "end")->tag != MA_float &&
         lw_arg(n, "step")->tag != MA_float;
}
/* From both ends, so that the last point is exact. */
static MgRc factory_linspace(Lower *L, MgNode *n, const LwRow *r) {
  const MgVal *m = lw_meta(L, n->out[0]);
  MgTy ty = factory_ty(L, n), acc = ty == TY_f64 ? TY_f64 : TY_f32;
  ExprRef i = mg_ex_idx(L->x, 0), steps = m->size[0], one = lw_int(L, 1);
  ExprRef a = lw_arg_scalar(L, lw_arg(n, "start"), acc), b = lw_arg_scalar(L, lw_arg(n, "end"), acc);
  ExprRef step = lw_op2(L, OP_div, lw_op2(L, OP_sub, b, a),
                        mg_ex_cvt(L->x, acc, mg_sym_max(L->x, mg_sym_sub(L->x, steps, one), one)));
  ExprRef back = mg_ex_cvt(L->x, acc, mg_sym_sub(L->x, mg_sym_sub(L->x, steps, i), one));
  ExprRef lo = lw_op2(L, OP_add, a, lw_op2(L, OP_mul, step, mg_ex_cvt(L->x, acc, i)));
  ExprRef hi = lw_op2(L, OP_sub, b, lw_op2(L, OP_mul, step, back));
  ExprRef e = lw_where(L, lw_op2(L, OP_lt, i, mg_sym_floordiv(L->x, steps, lw_int(L, 2))), lo, hi);
  if (mg_sym_is(L->x, steps, 1)) e = a;
  const MgArg *base = lw_arg(n, "base"); /* of logspace */
  if (base->tag != MA_none) e = lw_op2(L, OP_pow, lw_arg_scalar(L, base, acc), e);
  return lw_define(L, n->out[0], mg_ex_cvt(L->x, ty, e));
}
static MgRc factory_eye(Lower *L, MgNode *n, const LwRow *r) {
  ExprRef eq = lw_op2(L, OP_eq, mg_ex_idx(L->x, 0), mg_ex_idx(L->x, 1));
  return lw_define(L, n->out[0], mg_ex_cvt(L->x, factory_ty(L, n), eq));
}
/* tril, triu: keeps j - i <= k (op 0) or >= k (op 1) of the last two dimensions */
static MgRc factory_tri(Lower *L, MgNode *n, const LwRow *r) {
  int nd = factory_ndim(L, n);
  ExprRef at[LW_MAX_NDIM];
  if (nd < 2) return MG_UNSUP;
  for (int d = 0; d < nd; d++) at[d] = mg_ex_idx(L->x, d);
  ExprRef lim = mg_sym_add(L->x, at[nd - 2], lw_arg_sym(L, n, "diagonal", 0));
  ExprRef keep = r->op ? lw_op2(L, OP_le, lim, at[nd - 1]) : lw_op2(L, OP_le, at[nd - 1], lim);
  return lw_define(L, n->out[0],
                   lw_where(L, keep, lw_at(L, lw_arg_val(n, "self"), at), lw_const(L, factory_ty(L, n), 0)));
}
/* bernoulli and others draw numbers: extern.  dropout that does not drop is a copy. */
static MgRc factory_no_dropout(Lower *L, MgNode *n, const LwRow *r) {
  ExprRef at[LW_MAX_NDIM];
  for (int d = 0; d < factory_ndim(L, n); d++) at[d] = mg_ex_idx(L->x, d);
  TRY(lw_define(L, n->out[0], lw_at(L, lw_arg_val(n, "input"), at)));
  if (n->nout > 1 && n->out[1]) TRY(lw_define(L, n->out[1], lw_const(L, TY_i1, 1)));
  return MG_OK;
}
static bool ok_no_dropout(const MgGraph *g, const MgNode *n) {
  return lw_arg(n, "train")->tag == MA_bool ? !lw_arg(n, "train")->u.b : false;
}

#define F(name, fn, op) {"aten::" name, fn, NULL, NULL, op, 0, 0, NULL},
/* Rows have no commas between them. */
/* clang-format off */
const LwRow lw_rows_factory[] = {
  F("_efficientzerotensor", factory_const, 0) /* an ordinary tensor; eager's has no memory at all */
  F("zeros", factory_const, 0) F("ones", factory_const, 1) F("empty.memory_format", factory_const, 0)
  F("empty_strided", factory_const, 0) F("empty_permuted", factory_const, 0) F("full", factory_full, 0)
  F("zeros_like", factory_const, 0) F("ones_like", factory_const, 1) F("empty_like", factory_const, 0)
  F("full_like", factory_full, 0) F("new_zeros", factory_const, 0) F("new_ones", factory_const, 1)
  F("new_empty", factory_const, 0) F("new_empty_strided", factory_const, 0) F("new_full", factory_full, 0)
  F("scalar_tensor", factory_full, 0) F("zero", factory_const, 0)
  {"aten::arange", factory_arange, ok_arange, NULL, 0, 0, 0, NULL},
  {"aten::arange.start", factory_arange, ok_arange, NULL, 1, 0, 0, NULL},
  {"aten::arange.start_step", factory_arange, ok_arange, NULL, 2, 0, 0, NULL},
  {"aten::linspace", factory_linspace, lw_ok_float, NULL, 0, 0, 0, NULL},
  {"aten::logspace", factory_linspace, lw_ok_float, NULL, 0, 0, 0, NULL},
  F("eye", factory_eye, 0) F("eye.m", factory_eye, 0)
  F("tril", factory_tri, 0) F("triu", factory_tri, 1)
  {"aten::native_dropout", factory_no_dropout, ok_no_dropout, NULL, 0, 0, 0, NULL},
  {"aten::dropout", factory_no_dropout, ok_no_dropout, NULL, 0, 0, 0, NULL},
  {0},
};
/* clang-format on */
