/* Pointwise ops: arithmetic, comparisons, math functions, casts.
 * A row names the builder of the result's expression and the type its operands are converted to;
 * broadcasting, type promotion and layout are the same for all. */
#include "back/lower/lower_point.h"
#include <math.h>
#include <string.h>
#include "tuning.h"

/* torch's result_type: dimensioned tensors win over 0-dim ones, those over numbers,
 * unless their kind is higher. */
static MgDtype point_combine(MgDtype high, MgDtype low) {
  if (high == DT_none) return low;
  if (low == DT_none || mg_dtype_is_complex(high)) return high;
  if (mg_dtype_is_float(high) && !mg_dtype_is_complex(low)) return high;
  if (high == DT_bool || mg_dtype_is_float(low) || mg_dtype_is_complex(low))
    return mg_dtype_promote(high, low);
  return high;
}

static MgDtype point_merge(MgDtype a, MgDtype b) {
  return a == DT_none ? b : b == DT_none ? a : mg_dtype_promote(a, b);
}

static MgDtype point_common(const MgGraph *g, const MgNode *n) {
  MgDtype dim = DT_none, zero = DT_none, num = DT_none;
  for (int k = 0; k < n->narg; k++) {
    const MgArg *a = &n->arg[k];
    MgDtype *to = &num, d = DT_none;
    if (a->tag == MA_val && a->u.val) {
      const MgVal *m = mg_val(g, a->u.val);
      to = m->ndim ? &dim : &zero;
      d = (MgDtype)m->dtype;
    } else if (n->op->param[k].kind != AK_scalar && n->op->param[k].kind != AK_tensor) {
      continue;
    } else { /* a number, maybe in a tensor's place */
      d = a->tag == MA_int ? DT_i64 : a->tag == MA_float ? DT_f32 : a->tag == MA_bool ? DT_bool : DT_none;
    }
    *to = point_merge(*to, d);
  }
  return point_combine(dim, point_combine(zero, num));
}

ExprRef pt_raw(LwPt *p, const char *name) {
  return lw_at_bcast(p->L, lw_arg_val(p->n, name), p->at, p->ndim);
}

ExprRef pt_arg_as(LwPt *p, const char *name, MgTy ty) {
  const MgArg *a = lw_arg(p->n, name);
  if (a->tag != MA_val) return lw_arg_scalar(p->L, a, ty);
  return mg_ex_cvt(p->L->x, ty, pt_raw(p, name));
}

ExprRef pt_arg(LwPt *p, const char *name) { return pt_arg_as(p, name, p->ty); }

bool lw_again(Lower *L, ValRef v) {
  const LwVal *lv = &L->val[v];
  if (!L->gpu || lv->kind != LW_expr) return false;
  LwCost k = lw_cost(L, lv->e);
  return k.loads <= 2 && k.ops <= MG_TUNE_GPU_REPEATED;
}

/* A costly operand that is repeated over the result's elements is computed once. */
static void point_settle(ValRef *v, void *arg) {
  LwPt *p = arg;
  if (!*v) return;
  const MgVal *a = lw_meta(p->L, *v), *r = lw_meta(p->L, p->n->out[0]);
  bool repeated = false;
  for (int d = 0; d < r->ndim; d++) {
    int k = d - (r->ndim - a->ndim);
    bool one = k < 0 || mg_sym_is(p->L->x, a->size[k], 1);
    repeated |= one && !mg_sym_is(p->L->x, r->size[d], 1);
  }
  if (repeated && !lw_again(p->L, *v) && lw_settle(p->L, *v) != MG_OK) p->L->x->nomem = true;
}

MgRc lw_point(Lower *L, MgNode *n, const LwRow *r) {
  const MgVal *res = lw_meta(L, n->out[0]);
  LwPt p = {.L = L, .n = n, .r = r, .ndim = res->ndim};
  for (int d = 0; d < p.ndim; d++) p.at[d] = mg_ex_idx(L->x, d);
  MgDtype dt = (MgDtype)res->dtype;
  if (r->ty == TR_common) dt = point_common(L->g, n);
  if (r->ty == TR_self) dt = (MgDtype)lw_meta(L, lw_first(n))->dtype;
  if (!mg_dtype_has_ty(dt)) return MG_UNSUP;
  p.ty = mg_dtype_compute(dt);
  mg_node_each_val(n, point_settle, &p);
  ExprRef e = r->expr(&p);
  if (!e && !L->x->nomem) return MG_UNSUP;
  return lw_define(L, n->out[0], e);
}

/* ---- builders
 * ---------------------------------------------------------------------------------------------------- */

static ExprRef pt_op1(LwPt *p) { return pt_1(p, (MgScalarOp)p->r->op, pt_arg(p, "self")); }
static ExprRef pt_op2(LwPt *p) {
  return pt_2(p, (MgScalarOp)p->r->op, pt_arg(p, "self"), pt_arg(p, "other"));
}
static ExprRef pt_copy(LwPt *p) { return pt_arg(p, "self"); }
/* A cast that the program asked for rounds, also where its result stays in registers (results of arithmetic
 * on 16-bit floats do not: they keep f32 until they are stored). */
static ExprRef pt_cast(LwPt *p) {
  ExprRef a = pt_arg(p, "self");
  MgTy store = mg_dtype_ty((MgDtype)lw_meta(p->L, p->n->out[0])->dtype);
  bool narrow =
      store != p->ty && lw_meta(p->L, lw_arg_val(p->n, "self"))->dtype != lw_meta(p->L, p->n->out[0])->dtype;
  return narrow ? mg_ex_cvt(p->L->x, p->ty, mg_ex_cvt(p->L->x, store, a)) : a;
}
static ExprRef pt_source(LwPt *p) { return pt_arg(p, lw_either(p->n, "src", "value")); } /* copy, fill */
/* Rounding functions leave integers alone. */
static ExprRef pt_round_op(LwPt *p) {
  ExprRef a = pt_arg(p, "self");
  return mg_ty_is_float(p->ty) ? pt_1(p, (MgScalarOp)p->r->op, a) : a;
}
static ExprRef pt_round_decimals(LwPt *p) {
  double d = pt_float(p, "decimals", 0), scale = pow(10, fabs(d));
  ExprRef a = pt_arg(p, "self");
  if (!mg_ty_is_float(p->ty)) return a;
  if (d == 0) return pt_1(p, OP_round, a);
  ExprRef s = C(scale);
  return d < 0 ? MUL(pt_1(p, OP_round, DIV(a, s)), s) : DIV(pt_1(p, OP_round, MUL(a, s)), s);
}
static ExprRef pt_frac(LwPt *p) {
  ExprRef a = pt_arg(p, "self");
  return SUB(a, pt_1(p, OP_trunc, a));
}
/* (0 < x) - (x < 0): NaN has sign 0 */
static ExprRef pt_sign(LwPt *p) {
  ExprRef a = pt_arg(p, "self");
  if (p->ty == TY_i1) return a;
  if (!mg_ty_is_float(p->ty)) return pt_1(p, OP_sign, a);
  return SUB(mg_ex_cvt(p->L->x, p->ty, GT(a, C(0))), mg_ex_cvt(p->L->x, p->ty, LT(a, C(0))));
}
static ExprRef pt_abs(LwPt *p) {
  ExprRef a = pt_arg(p, "self");
  return mg_ty_is_float(p->ty) || mg_ty_is_signed(p->ty) ? pt_1(p, OP_abs, a) : a;
}
/* An operand of an op whose kernels see a number beside 16-bit floats as one of these. */
static ExprRef pt_same_dtype(LwPt *p, const char *name) {
  MgDtype dt = (MgDtype)lw_meta(p->L, p->n->out[0])->dtype;
  ExprRef a = pt_arg(p, name);
  if (p->L->x->numerics == MN_fast || !mg_ty_is_float(p->ty)) return a;
  return mg_ex_cvt(p->L->x, p->ty, mg_ex_cvt(p->L->x, mg_dtype_ty(dt), a));
}
/* a * b + c: rounded once where eager's kernels do so and its bits are asked for. */
static ExprRef pt_mul_add(LwPt *p, ExprRef a, ExprRef b, ExprRef c) {
  if (p->L->x->numerics != MN_eager || !mg_ty_is_float(p->ty)) return ADD(c, MUL(a, b));
  return mg_ex_op(p->L->x, OP_fma, a, b, c);
}
static ExprRef pt_mul2(LwPt *p, ExprRef a, ExprRef b) { return p->ty == TY_i1 ? AND(a, b) : MUL(a, b); }
static ExprRef pt_add2(LwPt *p, ExprRef a, ExprRef b) { return p->ty == TY_i1 ? OR(a, b) : ADD(a, b); }
static ExprRef pt_add(LwPt *p) {
  ExprRef b = pt_same_dtype(p, "other"), a = pt_same_dtype(p, "self");
  if (!pt_has(p, "alpha")) return pt_add2(p, a, b);
  if (mg_ty_is_float(p->ty)) return pt_mul_add(p, b, pt_arg(p, "alpha"), a);
  return pt_add2(p, a, pt_mul2(p, b, pt_arg(p, "alpha")));
}
/* a - alpha * b */
static ExprRef pt_less(LwPt *p, const char *from, const char *what) {
  if (p->ty == TY_i1) return 0;
  ExprRef a = pt_same_dtype(p, from), b = pt_same_dtype(p, what);
  if (!pt_has(p, "alpha")) return SUB(a, b);
  if (p->L->x->numerics == MN_eager && mg_ty_is_float(p->ty))
    return pt_mul_add(p, b, NEG(pt_arg(p, "alpha")), a);
  return SUB(a, MUL(b, pt_arg(p, "alpha")));
}
static ExprRef pt_sub(LwPt *p) { return pt_less(p, "self", "other"); }
static ExprRef pt_rsub(LwPt *p) { return pt_less(p, "other", "self"); }
static ExprRef pt_mul(LwPt *p) { return pt_mul2(p, pt_arg(p, "self"), pt_arg(p, "other")); }
static ExprRef pt_div(LwPt *p) { return DIV(pt_arg(p, "self"), pt_arg(p, "other")); }

/* Integer division by zero raises in eager. */
static bool pt_check_zero(LwPt *p) {
  if (mg_ty_is_float(p->ty)) return true;
  const MgArg *a = lw_arg(p->n, "other");
  int64_t c;
  ExprRef b = pt_arg(p, "other");
  if (a->tag != MA_val && mg_ex_const_int(p->L->x, b, &c) && c) return true;
  const MgVal *m = lw_meta(p->L, p->n->out[0]);
  ExprRef bad = EQ(b, C(0));
  return lw_check(p->L, bad, m->size, m->ndim, "RuntimeError", "ZeroDivisionError") == MG_OK;
}
static ExprRef pt_intdiv(LwPt *p) {
  if (p->ty == TY_i1 || !pt_check_zero(p)) return 0;
  return pt_2(p, (MgScalarOp)p->r->op, pt_same_dtype(p, "self"), pt_same_dtype(p, "other"));
}
/* A whole quotient. Of 16-bit floats ATen computes it in that type, unless the divisor is one number. */
static ExprRef pt_quotient(LwPt *p, MgScalarOp op) {
  if (p->ty == TY_i1 || !pt_check_zero(p)) return 0;
  ValRef b = lw_arg_val(p->n, "other");
  bool one = !b || mg_sym_is(p->L->x, mg_val_numel(p->L->g, b), 1);
  MgTy ty = one || !mg_ty_is_float(p->ty) ? p->ty : mg_dtype_ty((MgDtype)lw_meta(p->L, p->n->out[0])->dtype);
  return mg_ex_cvt(p->L->x, p->ty, pt_2(p, op, pt_arg_as(p, "self", ty), pt_arg_as(p, "other", ty)));
}
static ExprRef pt_div_mode(LwPt *p) {
  const MgArg *mode = lw_arg(p->n, "rounding_mode");
  if (mode->tag != MA_str) return pt_div(p);
  return pt_quotient(p, !strcmp(mode->u.str, "floor") ? OP_floordiv : OP_tdiv);
}
static ExprRef pt_floor_divide(LwPt *p) { return pt_quotient(p, OP_floordiv); }
static ExprRef pt_minmax(LwPt *p) {
  MgScalarOp op = (MgScalarOp)p->r->op;
  ExprRef a = pt_arg(p, "self"), b = pt_arg(p, "other");
  if (p->ty == TY_i1) return op == OP_max ? OR(a, b) : AND(a, b);
  return pt_2(p, op, a, b);
}
/* fmax, fmin: a number wins over NaN, and of zeros the first */
static ExprRef pt_fminmax(LwPt *p) {
  ExprRef a = pt_arg(p, "self"), b = pt_arg(p, "other");
  if (!mg_ty_is_float(p->ty)) return pt_minmax(p);
  ExprRef second = p->r->op == OP_max ? LT(a, b) : GT(a, b);
  return WHERE(OR(pt_1(p, OP_isnan, a), second), b, a);
}
/* Comparison of bools goes through integers; numbers and 0-dim tensors have the 16-bit values
 * they would have in memory. */
static ExprRef pt_cmp(LwPt *p) {
  MgTy ty = p->ty == TY_i1 ? TY_u8 : p->ty, mem = mg_dtype_ty(point_common(p->L->g, p->n));
  ExprRef a[] = {pt_arg_as(p, "self", ty), pt_arg_as(p, "other", ty)};
  for (int k = 0; k < 2; k++) {
    if (mem == TY_f16 || mem == TY_bf16) a[k] = mg_ex_cvt(p->L->x, ty, mg_ex_cvt(p->L->x, mem, a[k]));
  }
  return pt_2(p, (MgScalarOp)p->r->op, a[0], a[1]);
}
static ExprRef pt_bool(LwPt *p, const char *name) { return pt_arg_as(p, name, TY_i1); }
static ExprRef pt_logical2(LwPt *p) {
  return pt_2(p, (MgScalarOp)p->r->op, pt_bool(p, "self"), pt_bool(p, "other"));
}
static ExprRef pt_logical_not(LwPt *p) { return NOT(pt_bool(p, "self")); }
static ExprRef pt_bitop(LwPt *p) { return mg_ty_is_float(p->ty) ? 0 : pt_op2(p); }
static ExprRef pt_bitnot(LwPt *p) { return mg_ty_is_float(p->ty) ? 0 : NOT(pt_arg(p, "self")); }
static ExprRef pt_shift(LwPt *p) {
  if (p->ty == TY_i1) return 0;
  ExprRef a = pt_arg(p, "self"), b = pt_arg(p, "other");
  if (!mg_ty_is_float(p->ty)) return pt_2(p, (MgScalarOp)p->r->op, a, b);
  ExprRef two = pt_1(p, OP_exp2, b); /* floats are scaled by the power of two */
  return p->r->op == OP_shl ? MUL(a, two) : DIV(a, two);
}

/* isnan and friends: integers have none of it */
static ExprRef pt_isclass(LwPt *p) {
  ExprRef a = pt_raw(p, "self");
  if (!mg_ty_is_float(lw_ty(p->L, a))) return lw_const(p->L, TY_i1, 0);
  return pt_1(p, (MgScalarOp)p->r->op, a);
}
static ExprRef pt_isfinite(LwPt *p) {
  ExprRef a = pt_raw(p, "self");
  if (!mg_ty_is_float(lw_ty(p->L, a))) return lw_const(p->L, TY_i1, 1);
  return LT(pt_1(p, OP_abs, a), lw_const(p->L, lw_ty(p->L, a), INFINITY));
}
static ExprRef pt_isinf_sign(LwPt *p) { /* op: 1 for positive, 0 for negative infinity */
  ExprRef a = pt_raw(p, "self");
  MgTy ty = lw_ty(p->L, a);
  if (!mg_ty_is_float(ty)) return lw_const(p->L, TY_i1, 0);
  return EQ(a, lw_const(p->L, ty, p->r->op ? INFINITY : -INFINITY));
}
static ExprRef pt_signbit(LwPt *p) {
  ExprRef a = pt_raw(p, "self");
  MgTy ty = lw_ty(p->L, a);
  if (ty == TY_i1) return lw_const(p->L, TY_i1, 0);
  return mg_ty_is_float(ty) ? pt_1(p, OP_signbit, a) : LT(a, lw_const(p->L, ty, 0));
}
static ExprRef pt_isclose(LwPt *p) {
  if (p->ty == TY_i1) return 0;
  MgTy ty = mg_ty_is_float(p->ty) ? p->ty : TY_f64;
  ExprRef a = pt_arg_as(p, "self", ty), b = pt_arg_as(p, "other", ty);
  ExprRef eq = EQ(pt_arg(p, "self"), pt_arg(p, "other"));
  if (lw_arg_bool(p->n, "equal_nan", false) && mg_ty_is_float(p->ty)) eq = OR(eq, AND(NE(a, a), NE(b, b)));
  ExprRef tol = ADD(lw_const(p->L, ty, pt_float(p, "atol", 1e-8)),
                    pt_1(p, OP_abs, MUL(lw_const(p->L, ty, pt_float(p, "rtol", 1e-5)), b)));
  ExprRef err = pt_1(p, OP_abs, SUB(a, b));
  ExprRef fin = LT(err, lw_const(p->L, ty, INFINITY));
  return OR(eq, AND(fin, LE(err, tol)));
}

static ExprRef pt_reciprocal(LwPt *p) { return DIV(C(1), pt_arg(p, "self")); }
static ExprRef pt_square(LwPt *p) {
  ExprRef a = pt_arg(p, "self");
  return pt_mul2(p, a, a);
}
static ExprRef pt_deg(LwPt *p) {
  return MUL(pt_arg(p, "self"),
             C(p->r->op ? 57.295779513082320876798154814105 : 0.017453292519943295769236907684886));
}
static ExprRef pt_sinc(LwPt *p) {
  ExprRef a = pt_arg(p, "self"), t = MUL(a, C(3.14159265358979323846));
  return WHERE(EQ(a, C(0)), C(1), DIV(pt_1(p, OP_sin, t), t));
}
/* asinh, acosh: SLEEF's overflow where the square does */
static ExprRef pt_area(LwPt *p) {
  MgScalarOp op = (MgScalarOp)p->r->op;
  ExprRef a = pt_arg(p, "self"), b = op == OP_asinh ? pt_1(p, OP_abs, a) : a;
  ExprRef large = ADD(pt_1(p, OP_log, b), C(0.693147180559945309417));
  if (op == OP_asinh) large = pt_2(p, OP_copysign, large, a);
  return WHERE(GT(b, C(1e15)), large, pt_1(p, op, a));
}
static ExprRef pt_logit(LwPt *p) {
  ExprRef a = pt_arg(p, "self");
  if (pt_has(p, "eps")) {
    double eps = pt_float(p, "eps", 0);
    ExprRef lo = C(eps), hi = SUB(C(1), C(eps));
    a = WHERE(LT(a, lo), lo, WHERE(GT(a, hi), hi, a));
  }
  return pt_1(p, OP_log, DIV(a, SUB(C(1), a)));
}
static ExprRef pt_entr(LwPt *p) {
  ExprRef a = pt_arg(p, "self");
  return WHERE(NE(a, a), a,
               WHERE(GT(a, C(0)), MUL(NEG(a), pt_1(p, OP_log, a)), WHERE(EQ(a, C(0)), C(0), C(-INFINITY))));
}
static ExprRef pt_ndtr(LwPt *p) {
  return MUL(C(0.5), pt_1(p, OP_erfc, MUL(NEG(pt_arg(p, "self")), C(0.70710678118654752440))));
}
static ExprRef pt_angle(LwPt *p) {
  ExprRef a = pt_arg(p, "self");
  return WHERE(NE(a, a), a, WHERE(LT(a, C(0)), C(3.14159265358979323846), C(0)));
}
static ExprRef pt_nan_to_num(LwPt *p) {
  ExprRef a = pt_arg(p, "self");
  if (!mg_ty_is_float(p->ty)) return a;
  MgDtype dt = (MgDtype)lw_meta(p->L, p->n->out[0])->dtype;
  double top = dt == DT_f64   ? 1.7976931348623157e308
               : dt == DT_f32 ? 3.4028234663852886e38
               : dt == DT_f16 ? 65504
                              : 3.38953138925153547590470800371487866880e38;
  ExprRef r = WHERE(EQ(a, C(INFINITY)), C(pt_float(p, "posinf", top)),
                    WHERE(EQ(a, C(-INFINITY)), C(pt_float(p, "neginf", -top)), a));
  return WHERE(pt_1(p, OP_isnan, a), C(pt_float(p, "nan", 0)), r);
}

static ExprRef pt_pow2(LwPt *p, ExprRef a, ExprRef b) { return pt_2(p, OP_pow, a, b); }
static ExprRef pt_pow(LwPt *p) {
  const MgArg *e = lw_arg(p->n, "exponent");
  ExprRef a = pt_arg(p, "self");
  double k;
  if (p->ty == TY_i1) return 0;
  if (e->tag == MA_val || !mg_ty_is_float(p->ty)) return pt_pow2(p, a, pt_arg(p, "exponent"));
  k = pt_float(p, "exponent", NAN);
  if (k == 0) return C(1);
  if (k == 1) return a;
  if (k == 2) return MUL(a, a);
  if (k == 3) return MUL(MUL(a, a), a);
  if (k == 0.5) return pt_1(p, OP_sqrt, a);
  if (k == -0.5) return DIV(C(1), pt_1(p, OP_sqrt, a));
  if (k == -1) return DIV(C(1), a);
  if (k == -2) return DIV(C(1), MUL(a, a));
  return pt_pow2(p, a, pt_arg(p, "exponent"));
}
static ExprRef pt_hypot(LwPt *p) { /* scaled, so that squares neither overflow nor vanish */
  ExprRef a = pt_1(p, OP_abs, pt_arg(p, "self")), b = pt_1(p, OP_abs, pt_arg(p, "other"));
  ExprRef m = MAX(a, b), s = MIN(a, b), q = DIV(s, m);
  ExprRef r = WHERE(EQ(m, C(0)), C(0), MUL(m, pt_1(p, OP_sqrt, ADD(C(1), MUL(q, q)))));
  ExprRef inf = C(INFINITY);
  return WHERE(OR(EQ(a, inf), EQ(b, inf)), inf, r);
}
static ExprRef pt_heaviside(LwPt *p) {
  ExprRef a = pt_arg(p, "self"), v = pt_arg(p, "values");
  if (p->ty == TY_i1) return OR(a, v);
  return WHERE(EQ(a, C(0)), v, WHERE(GT(a, C(0)), C(1), C(0))); /* NaN: 0 */
}
static ExprRef pt_logaddexp(LwPt *p) { /* op: 1 for base 2 */
  ExprRef a = pt_arg(p, "self"), b = pt_arg(p, "other"), m = MAX(a, b), d = NEG(pt_1(p, OP_abs, SUB(a, b)));
  ExprRef l = p->r->op ? MUL(pt_1(p, OP_log1p, pt_1(p, OP_exp2, d)), C(1.4426950408889634))
                       : pt_1(p, OP_log1p, EXP(d));
  return WHERE(AND(EQ(a, b), EQ(pt_1(p, OP_abs, a), C(INFINITY))), a, ADD(m, l));
}
static ExprRef pt_xlogy(LwPt *p) { /* op: OP_log, or OP_log1p */
  ExprRef a = pt_arg(p, "self"), b = pt_arg(p, "other");
  ExprRef r = WHERE(EQ(a, C(0)), C(0), MUL(a, pt_1(p, (MgScalarOp)p->r->op, b)));
  return WHERE(NE(b, b), b, r);
}
static ExprRef pt_where_op(LwPt *p) {
  return WHERE(pt_bool(p, "condition"), pt_arg(p, "self"), pt_arg(p, "other"));
}
static ExprRef pt_masked_fill(LwPt *p) {
  return WHERE(pt_bool(p, "mask"), pt_arg(p, "value"), pt_arg(p, "self"));
}
/* clamp: min(max(x, lo), hi), so hi wins when lo > hi; NaN in any operand wins, and x where it equals a bound
 */
static ExprRef pt_clamp(LwPt *p) {
  ExprRef a = pt_arg(p, "self");
  if (pt_has(p, "min")) a = p->ty == TY_i1 ? OR(a, pt_arg(p, "min")) : MAX(pt_arg(p, "min"), a);
  if (pt_has(p, "max")) a = p->ty == TY_i1 ? AND(a, pt_arg(p, "max")) : MIN(pt_arg(p, "max"), a);
  return a;
}
static ExprRef pt_addcmul(LwPt *p) { /* self + value * t1 (op) t2 */
  ExprRef v = pt_arg(p, "value"), a = pt_arg(p, "tensor1"), b = pt_arg(p, "tensor2");
  if (p->ty == TY_i1) return 0;
  if (p->r->op == OP_mul) return pt_mul_add(p, MUL(v, a), b, pt_arg(p, "self"));
  return ADD(pt_arg(p, "self"), DIV(MUL(v, a), b));
}
static ExprRef pt_lerp(LwPt *p) {
  ExprRef a = pt_arg(p, "self"), b = pt_arg(p, "end"), w = pt_arg(p, "weight"), d = SUB(b, a);
  ExprRef near = LT(pt_1(p, OP_abs, w), C(0.5));
  if (p->L->x->numerics == MN_eager) return pt_mul_add(p, WHERE(near, w, SUB(w, C(1))), d, WHERE(near, a, b));
  return WHERE(near, ADD(a, MUL(w, d)), SUB(b, MUL(d, SUB(C(1), w))));
}
static ExprRef pt_ldexp(LwPt *p) { return MUL(pt_arg(p, "self"), pt_1(p, OP_exp2, pt_arg(p, "other"))); }

static bool ok_int_result(const MgGraph *g, const MgNode *n) {
  MgDtype d = (MgDtype)mg_val(g, n->out[0])->dtype;
  return d == DT_bool || mg_dtype_is_int(d);
}
static bool ok_wide(const MgGraph *g,
                    const MgNode *n) { /* steps of 16-bit floats are others than those of their f32 values */
  MgDtype d = (MgDtype)mg_val(g, n->out[0])->dtype;
  return d == DT_f32 || d == DT_f64;
}
static bool ok_shift(const MgGraph *g, const MgNode *n) {
  return mg_dtype_is_int((MgDtype)mg_val(g, n->out[0])->dtype);
}
/* What the op computes in is decided by its arguments; ATen refuses some of their dtypes
 * whatever the other one is. */
static bool ok_arg_kinds(const MgGraph *g, const MgNode *n, bool (*takes)(MgDtype)) {
  ValRef a = lw_arg_val(n, "self"), b = lw_arg_val(n, "other");
  return (!a || takes((MgDtype)mg_val(g, a)->dtype)) && (!b || takes((MgDtype)mg_val(g, b)->dtype));
}
static bool takes_number(MgDtype d) { return d != DT_bool; }
static bool ok_sub(const MgGraph *g, const MgNode *n) { return ok_arg_kinds(g, n, takes_number); }
static bool ok_logaddexp(const MgGraph *g, const MgNode *n) { return ok_arg_kinds(g, n, mg_dtype_is_float); }
/* A copy to another device is a call. */
static bool ok_same_device(const MgGraph *g, const MgNode *n) {
  ValRef v = lw_arg_val(n, "self"), o = n->out[0];
  return v && o && mg_val(g, v)->device == mg_val(g, o)->device &&
         mg_val(g, v)->dev_index == mg_val(g, o)->dev_index;
}
static bool ok_same_device_src(const MgGraph *g, const MgNode *n) {
  ValRef v = lw_arg_val(n, lw_either(n, "src", "value")), o = n->out[0];
  return !v ||
         (mg_val(g, v)->device == mg_val(g, o)->device && mg_val(g, v)->dev_index == mg_val(g, o)->dev_index);
}

#define P1(name, op) {"aten::" name, lw_point, NULL, pt_op1, op, TR_result, 0},
#define P2(name, op) {"aten::" name, lw_point, NULL, pt_op2, op, TR_result, 0},
#define PE(name, ok, fn, op, ty) {"aten::" name, lw_point, ok, fn, op, ty, 0},
#define TS(M, name, ...) M(name ".Tensor", __VA_ARGS__) M(name ".Scalar", __VA_ARGS__)
#define TSS(M, name, ...) TS(M, name, __VA_ARGS__) M(name ".Scalar_Tensor", __VA_ARGS__)
#define SHIFT(name, op)                                                                                      \
  PE(name ".Tensor", ok_shift, pt_shift, op, TR_result)                                                      \
  PE(name ".Tensor_Scalar", ok_shift, pt_shift, op, TR_result)                                               \
  PE(name ".Scalar_Tensor", ok_shift, pt_shift, op, TR_result)
#define CMP(name, op) TS(PE, name, NULL, pt_cmp, op, TR_common)

/* Rows have no commas between them. */
/* clang-format off */
const LwRow lw_rows_point[] = {
  PE("abs", lw_ok_not_bool, pt_abs, 0, TR_result) P1("neg", OP_neg)
  PE("positive", NULL, pt_copy, 0, TR_result)
  PE("floor", lw_ok_not_bool, pt_round_op, OP_floor, TR_result)
  PE("ceil", lw_ok_not_bool, pt_round_op, OP_ceil, TR_result)
  PE("round", lw_ok_not_bool, pt_round_op, OP_round, TR_result)
  PE("trunc", lw_ok_not_bool, pt_round_op, OP_trunc, TR_result)
  PE("round.decimals", lw_ok_float, pt_round_decimals, 0, TR_result)
  PE("frac", lw_ok_float, pt_frac, 0, TR_result)
  PE("sign", NULL, pt_sign, 0, TR_result) PE("sgn", NULL, pt_sign, 0, TR_result)
  PE("square", NULL, pt_square, 0, TR_result) PE("conj_physical", NULL, pt_copy, 0, TR_result)
  PE("_conj_physical", NULL, pt_copy, 0, TR_result)
  P1("exp", OP_exp) P1("exp2", OP_exp2) P1("expm1", OP_expm1) P1("log", OP_log) P1("log2", OP_log2)
  P1("log10", OP_log10) P1("log1p", OP_log1p) P1("sqrt", OP_sqrt) P1("rsqrt", OP_rsqrt) P1("sin", OP_sin)
  P1("cos", OP_cos) P1("tan", OP_tan) P1("asin", OP_asin) P1("acos", OP_acos) P1("atan", OP_atan)
  P1("sinh", OP_sinh) P1("cosh", OP_cosh) P1("tanh", OP_tanh) PE("asinh", NULL, pt_area, OP_asinh, TR_result)
  PE("acosh", NULL, pt_area, OP_acosh, TR_result)
  P1("atanh", OP_atanh) P1("erf", OP_erf) P1("erfc", OP_erfc) P1("lgamma", OP_lgamma)
  PE("reciprocal", NULL, pt_reciprocal, 0, TR_result) PE("sinc", NULL, pt_sinc, 0, TR_result)
  PE("logit", NULL, pt_logit, 0, TR_result) PE("deg2rad", NULL, pt_deg, 0, TR_result)
  PE("rad2deg", NULL, pt_deg, 1, TR_result) PE("special_entr", NULL, pt_entr, 0, TR_result)
  PE("special_ndtr", NULL, pt_ndtr, 0, TR_result) PE("angle", NULL, pt_angle, 0, TR_result)
  PE("nan_to_num", NULL, pt_nan_to_num, 0, TR_result)
  TS(PE, "add", NULL, pt_add, 0, TR_result) TS(PE, "sub", ok_sub, pt_sub, 0, TR_result)
  TS(PE, "rsub", ok_sub, pt_rsub, 0, TR_result) TS(PE, "mul", NULL, pt_mul, 0, TR_result)
  TS(PE, "div", NULL, pt_div, 0, TR_result) TS(PE, "true_divide", NULL, pt_div, 0, TR_result)
  PE("div.Tensor_mode", lw_ok_not_bool, pt_div_mode, 0, TR_result)
  PE("div.Scalar_mode", lw_ok_not_bool, pt_div_mode, 0, TR_result)
  PE("floor_divide", lw_ok_not_bool, pt_floor_divide, 0, TR_result)
  PE("floor_divide.Scalar", lw_ok_not_bool, pt_floor_divide, 0, TR_result)
  TSS(PE, "remainder", lw_ok_not_bool, pt_intdiv, OP_mod, TR_result)
  TS(PE, "fmod", lw_ok_not_bool, pt_intdiv, OP_fmod, TR_result)
  PE("maximum", NULL, pt_minmax, OP_max, TR_result) PE("minimum", NULL, pt_minmax, OP_min, TR_result)
  PE("max.other", NULL, pt_minmax, OP_max, TR_result) PE("min.other", NULL, pt_minmax, OP_min, TR_result)
  PE("fmax", NULL, pt_fminmax, OP_max, TR_result) PE("fmin", NULL, pt_fminmax, OP_min, TR_result)
  PE("pow.Tensor_Tensor", lw_ok_not_bool, pt_pow, 0, TR_result)
  PE("pow.Tensor_Scalar", lw_ok_not_bool, pt_pow, 0, TR_result)
  PE("pow.Scalar", lw_ok_not_bool, pt_pow, 0, TR_result)
  PE("float_power.Tensor_Tensor", lw_ok_float, pt_pow, 0, TR_result)
  PE("float_power.Tensor_Scalar", lw_ok_float, pt_pow, 0, TR_result)
  TSS(PE, "bitwise_and", ok_int_result, pt_bitop, OP_and, TR_result)
  TSS(PE, "bitwise_or", ok_int_result, pt_bitop, OP_or, TR_result)
  TSS(PE, "bitwise_xor", ok_int_result, pt_bitop, OP_xor, TR_result)
  TS(PE, "__and__", ok_int_result, pt_bitop, OP_and, TR_result)
  TS(PE, "__or__", ok_int_result, pt_bitop, OP_or, TR_result)
  TS(PE, "__xor__", ok_int_result, pt_bitop, OP_xor, TR_result)
  PE("bitwise_not", ok_int_result, pt_bitnot, 0, TR_result)
  SHIFT("bitwise_left_shift", OP_shl) SHIFT("bitwise_right_shift", OP_shr)
  TS(PE, "__lshift__", ok_shift, pt_shift, OP_shl, TR_result)
  TS(PE, "__rshift__", ok_shift, pt_shift, OP_shr, TR_result)
  PE("nextafter", ok_wide, pt_op2, OP_nextafter, TR_result) P2("atan2", OP_atan2)
  TS(P2, "copysign", OP_copysign)
  PE("hypot", lw_ok_float, pt_hypot, 0, TR_result) PE("heaviside", NULL, pt_heaviside, 0, TR_result)
  PE("logaddexp", ok_logaddexp, pt_logaddexp, 0, TR_result)
  PE("logaddexp2", ok_logaddexp, pt_logaddexp, 1, TR_result)
  PE("xlogy.Tensor", NULL, pt_xlogy, OP_log, TR_result)
  PE("xlogy.Scalar_Other", NULL, pt_xlogy, OP_log, TR_result)
  PE("xlogy.Scalar_Self", NULL, pt_xlogy, OP_log, TR_result)
  PE("special_xlog1py", NULL, pt_xlogy, OP_log1p, TR_result)
  PE("ldexp.Tensor", lw_ok_float, pt_ldexp, 0, TR_result)
  CMP("eq", OP_eq) CMP("ne", OP_ne) CMP("lt", OP_lt) CMP("le", OP_le) CMP("gt", OP_gt) CMP("ge", OP_ge)
  PE("logical_and", NULL, pt_logical2, OP_and, TR_result)
  PE("logical_or", NULL, pt_logical2, OP_or, TR_result)
  PE("logical_xor", NULL, pt_logical2, OP_xor, TR_result)
  PE("logical_not", NULL, pt_logical_not, 0, TR_result)
  PE("isnan", NULL, pt_isclass, OP_isnan, TR_result) PE("isinf", NULL, pt_isclass, OP_isinf, TR_result)
  PE("isfinite", NULL, pt_isfinite, 0, TR_result) PE("isposinf", NULL, pt_isinf_sign, 1, TR_result)
  PE("isneginf", NULL, pt_isinf_sign, 0, TR_result) PE("signbit", NULL, pt_signbit, 0, TR_result)
  PE("isclose", NULL, pt_isclose, 0, TR_common)
  PE("where.self", NULL, pt_where_op, 0, TR_result) PE("where.ScalarSelf", NULL, pt_where_op, 0, TR_result)
  PE("where.ScalarOther", NULL, pt_where_op, 0, TR_result) PE("where.Scalar", NULL, pt_where_op, 0, TR_result)
  TS(PE, "masked_fill", NULL, pt_masked_fill, 0, TR_result)
  PE("clamp", lw_ok_not_bool, pt_clamp, 0, TR_result)
  PE("clamp.Tensor", lw_ok_not_bool, pt_clamp, 0, TR_result)
  PE("clamp_min", lw_ok_not_bool, pt_clamp, 0, TR_result) PE("clamp_min.Tensor", NULL, pt_clamp, 0, TR_result)
  PE("clamp_max", lw_ok_not_bool, pt_clamp, 0, TR_result) PE("clamp_max.Tensor", NULL, pt_clamp, 0, TR_result)
  PE("addcmul", lw_ok_not_bool, pt_addcmul, OP_mul, TR_result)
  PE("addcdiv", lw_ok_float, pt_addcmul, OP_div, TR_result)
  PE("lerp.Scalar", lw_ok_float, pt_lerp, 0, TR_result) PE("lerp.Tensor", lw_ok_float, pt_lerp, 0, TR_result)
  /* copies and casts */
  PE("clone", NULL, pt_copy, 0, TR_result) PE("contiguous", NULL, pt_copy, 0, TR_result)
  PE("_to_copy", ok_same_device, pt_cast, 0, TR_result) PE("to.dtype", ok_same_device, pt_cast, 0, TR_result)
  PE("to.device", ok_same_device, pt_cast, 0, TR_result)
  PE("to.dtype_layout", ok_same_device, pt_cast, 0, TR_result)
  PE("to.other", ok_same_device, pt_cast, 0, TR_result) PE("type_as", ok_same_device, pt_cast, 0, TR_result)
  PE("lift_fresh_copy", NULL, pt_copy, 0, TR_result) PE("alias_copy", NULL, pt_copy, 0, TR_result)
  PE("detach_copy", NULL, pt_copy, 0, TR_result) PE("copy", ok_same_device_src, pt_source, 0, TR_result)
  TS(PE, "fill", ok_same_device_src, pt_source, 0, TR_result)
  {0},
};
/* clang-format on */
