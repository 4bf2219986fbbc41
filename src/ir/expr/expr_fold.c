/* Simplification of one node, applied by the builders.  The rules, in order; a, b
 * any expression, c a constant:
 *   1  all operands constant: folded by the row's fold column (not where flag D says undefined)
 *   2  i1 operands: min mul -> and; max add -> or; sub -> xor; a<b -> !a & b; a<=b
 *   -> !a | b; others as integers
 *   3  gt ge: operands swapped, lt le.   C rows: constants to the right, else ordered by node number
 *   4  i64: normal form of sums, division and comparison rules (expr_index.c)
 *   5  algebra, per type class, below (signed zeros, NaN and infinities are respected: x+0.0 and x*0.0 stay,
 *      x*1, x+(-0.0), x-0.0, x/1 go; x/c is x*(1/c) when c is a power of two; a fused multiply-add by 1 or -1
 *      is a sum or a difference, which is rounded once as well)
 *   6  cvt(cvt(a)) loses the inner one when it keeps every value; where: constant or equal arms, inverted and
 *      boolean arms */
#include "ir/expr/expr_priv.h"
#include <math.h>

static bool is_const(const MgExprs *x, ExprRef r) { return mg_expr(x, r)->op == OP_const; }
static MgScalar value(const MgExprs *x, ExprRef r) { return (MgScalar){.i = mg_expr(x, r)->u.i}; }
static ExprRef boolean(MgExprs *x, bool v) { return mg_ex_int(x, TY_i1, v); }
static ExprRef un(MgExprs *x, MgScalarOp op, ExprRef a) { return mg_ex_op(x, op, a, 0, 0); }
static ExprRef bin(MgExprs *x, MgScalarOp op, ExprRef a, ExprRef b) { return mg_ex_op(x, op, a, b, 0); }

static bool is_val(const MgExprs *x, ExprRef r, double f) { /* constant equal to f, sign of zero included */
  const MgExpr *e = mg_expr(x, r);
  if (e->op != OP_const) return false;
  return mg_ty_is_float(e->ty) ? e->u.f == f && signbit(e->u.f) == signbit(f) : e->u.i == (int64_t)f;
}

/* Rule 2. */
static ExprRef fold_i1(MgExprs *x, MgScalarOp op, ExprRef a, ExprRef b) {
  switch (op) {
  case OP_min:
  case OP_mul: return bin(x, OP_and, a, b);
  case OP_max:
  case OP_add: return bin(x, OP_or, a, b);
  case OP_sub: return bin(x, OP_xor, a, b);
  case OP_lt: return bin(x, OP_and, un(x, OP_not, a), b);
  case OP_le: return bin(x, OP_or, un(x, OP_not, a), b);
  case OP_neg:
  case OP_abs:
  case OP_sign: return a;
  case OP_signbit: return boolean(x, false);
  case OP_and:
  case OP_or:
  case OP_xor:
  case OP_not:
  case OP_eq:
  case OP_ne: break;
  default: /* no boolean form: computed on u8 */
    a = mg_ex_cvt(x, TY_u8, a);
    return mg_ex_cvt(x, TY_i1, mg_ex_op(x, op, a, b ? mg_ex_cvt(x, TY_u8, b) : 0, 0));
  }
  bool kb = b && is_const(x, b);
  int64_t v = kb ? value(x, b).i : 0;
  if (op == OP_not) return mg_expr(x, a)->op == OP_not ? mg_expr(x, a)->src[0] : 0;
  if (op == OP_eq) return kb ? (v ? a : un(x, OP_not, a)) : un(x, OP_not, bin(x, OP_xor, a, b));
  if (op == OP_ne) return bin(x, OP_xor, a, b);
  if (a == b) return op == OP_xor ? boolean(x, false) : a;
  if (!kb) return 0;
  if (op == OP_and) return v ? a : b;
  if (op == OP_or) return v ? b : a;
  return v ? un(x, OP_not, a) : a; /* xor */
}

static ExprRef fold_pow(MgExprs *x, MgTy ty, ExprRef a, double e) {
  ExprRef one = mg_ex_float(x, ty, 1), sq;
  if (e == 0) return one;
  if (e == 1) return a;
  if (e == 2) return bin(x, OP_mul, a, a);
  if (e == 3) return bin(x, OP_mul, bin(x, OP_mul, a, a), a);
  if (e == 4) return sq = bin(x, OP_mul, a, a), bin(x, OP_mul, sq, sq);
  if (e == 0.5) return un(x, OP_sqrt, a);
  if (e == -0.5) return un(x, OP_rsqrt, a);
  if (e == -1) return bin(x, OP_div, one, a);
  if (e == -2) return bin(x, OP_div, one, bin(x, OP_mul, a, a));
  return 0;
}

/* a * b + c */
static ExprRef fold_fma(MgExprs *x, const ExprRef s[3]) {
  for (int i = 0; i < 2; i++) {
    if (is_val(x, s[i], 1)) return bin(x, OP_add, s[1 - i], s[2]);
    if (is_val(x, s[i], -1)) return bin(x, OP_sub, s[2], s[1 - i]);
  }
  return 0;
}

/* Rule 5, floats. */
static ExprRef fold_float(MgExprs *x, MgScalarOp op, MgTy ty, const ExprRef s[3]) {
  ExprRef a = s[0], b = s[1];
  const MgExpr e = *mg_expr(x, a);
  int ex;
  switch (op) {
  case OP_add: return is_val(x, b, -0.0) ? a : 0;
  case OP_sub: return is_val(x, b, 0.0) ? a : 0;
  case OP_mul: return is_val(x, b, 1) ? a : is_val(x, b, -1) ? un(x, OP_neg, a) : 0;
  case OP_div:
    if (is_val(x, b, 1)) return a;
    if (is_const(x, b) && fabs(frexp(value(x, b).f, &ex)) == 0.5 && ex > -120 && ex < 120)
      return bin(x, OP_mul, a, mg_ex_float(x, ty, 1 / value(x, b).f));
    return 0;
  case OP_neg: return e.op == OP_neg ? e.src[0] : 0;
  case OP_abs: return e.op == OP_neg ? un(x, OP_abs, e.src[0]) : e.op == OP_abs ? a : 0;
  case OP_pow: return is_const(x, b) ? fold_pow(x, ty, a, value(x, b).f) : 0;
  case OP_fma: return fold_fma(x, s);
  case OP_min:
  case OP_max: return a == b ? a : 0;
  case OP_floor:
  case OP_ceil:
  case OP_trunc:
  case OP_round:
    return e.op == OP_floor || e.op == OP_ceil || e.op == OP_trunc || e.op == OP_round ||
                   (e.op == OP_cvt && !mg_ty_is_float(mg_expr(x, e.src[0])->ty))
               ? a
               : 0;
  default: return 0;
  }
}

/* Rule 5, integers. */
static ExprRef fold_int(MgExprs *x, MgScalarOp op, MgTy ty, const ExprRef s[3]) {
  ExprRef a = s[0], b = s[1];
  const MgExpr e = *mg_expr(x, a);
  bool same = a == b;
  switch (op) {
  case OP_add: return is_val(x, b, 0) ? a : 0;
  case OP_sub: return is_val(x, b, 0) ? a : same ? mg_ex_int(x, ty, 0) : 0;
  case OP_mul: return is_val(x, b, 1) ? a : is_val(x, b, 0) ? b : 0;
  case OP_div:
  case OP_tdiv:
  case OP_floordiv: return is_val(x, b, 1) ? a : 0;
  case OP_rem:
  case OP_fmod:
  case OP_mod: return is_val(x, b, 1) ? mg_ex_int(x, ty, 0) : 0;
  case OP_pow:
    return is_val(x, b, 1)   ? a
           : is_val(x, b, 2) ? bin(x, OP_mul, a, a)
           : is_val(x, b, 0) ? mg_ex_int(x, ty, 1)
                             : 0;
  case OP_neg:
  case OP_not: return e.op == op ? e.src[0] : 0;
  case OP_abs: return !mg_ty_is_signed(ty) || e.op == OP_abs ? a : 0;
  case OP_signbit: return mg_ty_is_signed(ty) ? 0 : boolean(x, false);
  case OP_min:
  case OP_max: return same ? a : 0;
  case OP_and: return same ? a : is_val(x, b, 0) ? b : is_val(x, b, -1) ? a : 0;
  case OP_or: return same || is_val(x, b, 0) ? a : is_val(x, b, -1) ? b : 0;
  case OP_xor: return same ? mg_ex_int(x, ty, 0) : is_val(x, b, 0) ? a : 0;
  case OP_shl:
  case OP_shr:
  case OP_lsl:
  case OP_lsr: return is_val(x, b, 0) ? a : 0;
  case OP_eq:
  case OP_le: return same ? boolean(x, true) : 0;
  case OP_ne:
  case OP_lt: return same ? boolean(x, false) : 0;
  default: return 0;
  }
}

ExprRef expr_fold(MgExprs *x, MgScalarOp op, MgTy ty, ExprRef s[3]) {
  const MgScalarInfo *row = &mg_scalar_info[op];
  MgScalar v[3] = {{0}}, r;
  bool all = true;
  for (int i = 0; i < row->nin; i++) {
    all &= is_const(x, s[i]);
    v[i] = value(x, s[i]);
  }
  if (all && mg_scalar_eval(op, ty, v[0], v[1], v[2], &r)) /* rule 1 */
    return row->rule == SOR_PRED ? boolean(x, r.i) : expr_const(x, ty, r);
  if (op == OP_gt || op == OP_ge) return bin(x, op == OP_gt ? OP_lt : OP_le, s[1], s[0]);
  if (row->flags & SOF_C) {
    bool ca = is_const(x, s[0]), cb = is_const(x, s[1]);
    if (ca != cb ? ca : s[0] > s[1]) {
      ExprRef t = s[0];
      s[0] = s[1];
      s[1] = t;
    }
  }
  if (ty == TY_i1) return fold_i1(x, op, s[0], s[1]);
  if (mg_ty_is_float(ty)) return fold_float(x, op, ty, s);
  ExprRef f = fold_int(x, op, ty, s);
  return f || ty != TY_i64 || x->nomem ? f : expr_index_fold(x, op, s);
}

/* Does every value of type `from` exist in type `to`? */
static bool cvt_keeps(MgTy to, MgTy from) {
  if (to == TY_i1) return false;
  if (from == TY_i1) return true;
  if (mg_ty_is_float(from)) return mg_ty_is_float(to) && (to == TY_f64 || (to == TY_f32 && from != TY_f64));
  int bits = 8 * mg_ty_size(from) - mg_ty_is_signed(from);
  if (mg_ty_is_float(to)) return bits <= (to == TY_f64 ? 53 : to == TY_f32 ? 24 : to == TY_f16 ? 11 : 8);
  return mg_ty_size(to) > mg_ty_size(from) && (mg_ty_is_signed(to) || !mg_ty_is_signed(from));
}

ExprRef expr_fold_cvt(MgExprs *x, MgTy ty, ExprRef a) {
  const MgExpr e = *mg_expr(x, a);
  if (e.op != OP_cvt) return 0;
  MgTy from = mg_expr(x, e.src[0])->ty;
  bool ints = !mg_ty_is_float(from) && !mg_ty_is_float(e.ty) && !mg_ty_is_float(ty);
  bool floats = mg_ty_is_float(from) && mg_ty_is_float(e.ty);
  /* Inner conversion exact: the value is the source's.  From an integer through a float to another integer
   * the out-of-range rules differ, so that one stays. */
  if (cvt_keeps(e.ty, from) &&
      (ints || floats || from == TY_i1 || (!mg_ty_is_float(from) && mg_ty_is_float(ty))))
    return mg_ex_cvt(x, ty, e.src[0]);
  /* Integers are cut once: i64 -> i32 -> i16. */
  if (ints && ty != TY_i1 && e.ty != TY_i1 && mg_ty_size(ty) <= mg_ty_size(e.ty))
    return mg_ex_cvt(x, ty, e.src[0]);
  return 0;
}

ExprRef expr_fold_where(MgExprs *x, ExprRef p, ExprRef a, ExprRef b) {
  const MgExpr e = *mg_expr(x, p);
  if (e.op == OP_const) return e.u.i ? a : b;
  if (a == b) return a;
  if (e.op == OP_not) return mg_ex_op(x, OP_where, e.src[0], b, a);
  if (mg_expr(x, a)->op == OP_where && mg_expr(x, a)->src[0] == p)
    return mg_ex_op(x, OP_where, p, mg_expr(x, a)->src[1], b);
  if (mg_expr(x, b)->op == OP_where && mg_expr(x, b)->src[0] == p)
    return mg_ex_op(x, OP_where, p, a, mg_expr(x, b)->src[2]);
  if (mg_expr(x, a)->ty != TY_i1) return 0;
  if (is_const(x, a)) return value(x, a).i ? bin(x, OP_or, p, b) : bin(x, OP_and, un(x, OP_not, p), b);
  if (is_const(x, b)) return value(x, b).i ? bin(x, OP_or, un(x, OP_not, p), a) : bin(x, OP_and, p, a);
  return 0;
}
