/* Decompositions: rows of scalar_ops.def written in terms of simpler rows, for targets without a template,
 * and mg_ex_legalize, which applies them.  Every function gets operands of one type and gives the row's value
 * exactly as the fold column defines it, or (vector polynomials, f32) within the error stated above it, in
 * units in the last place measured over all finite inputs. */
#include "ir/expr/expr_priv.h"
#include <math.h>

static MgTy ty_of(MgExprs *x, ExprRef a) { return mg_expr(x, a)->ty; }
static ExprRef num(MgExprs *x, ExprRef like, double v) {
  MgTy ty = ty_of(x, like);
  return mg_ty_is_float(ty) ? mg_ex_float(x, ty, v) : mg_ex_int(x, ty, (int64_t)v);
}
static ExprRef un(MgExprs *x, MgScalarOp op, ExprRef a) { return mg_ex_op(x, op, a, 0, 0); }
static ExprRef bin(MgExprs *x, MgScalarOp op, ExprRef a, ExprRef b) { return mg_ex_op(x, op, a, b, 0); }
static ExprRef where(MgExprs *x, ExprRef p, ExprRef a, ExprRef b) { return mg_ex_op(x, OP_where, p, a, b); }
static bool flt(MgExprs *x, ExprRef a) { return mg_ty_is_float(ty_of(x, a)); }
static bool sgn(MgExprs *x, ExprRef a) { return mg_ty_is_signed(ty_of(x, a)); }

/* No vector form and no template: the target cannot do it (legalize reports MG_UNSUP). */
DEC(dec_libm) { return 0; }
DEC(dec_rem) { return 0; }

DEC(dec_swapped) { return bin(x, op == OP_gt ? OP_lt : OP_le, s[1], s[0]); }

/* Integer division made total: x / 0 = 0, x % 0 = 0, MIN / -1 wraps.  The raw row gets a divisor that is
 * always fine; with a constant divisor the selects fold away. */
static ExprRef total_div(MgExprs *x, MgScalarOp raw, ExprRef a, ExprRef b) {
  ExprRef zero = num(x, b, 0), one = num(x, b, 1);
  ExprRef is0 = bin(x, OP_eq, b, zero), bad = is0;
  if (sgn(x, b)) bad = bin(x, OP_or, is0, bin(x, OP_eq, b, num(x, b, -1)));
  ExprRef q = bin(x, raw, a, where(x, bad, one, b));
  if (raw == OP_rem) return where(x, bad, zero, q);
  return where(x, is0, zero, sgn(x, b) ? where(x, bad, un(x, OP_neg, a), q) : q);
}

DEC(dec_tdiv) {
  if (flt(x, s[0])) return un(x, OP_trunc, bin(x, OP_div, s[0], s[1]));
  return total_div(x, OP_div, s[0], s[1]);
}

DEC(dec_fmod) {
  if (flt(x, s[0])) return bin(x, OP_rem, s[0], s[1]);
  return total_div(x, OP_rem, s[0], s[1]);
}

/* Do operands of a floor division truncate alike?  Indices and sizes are often known not to be negative. */
static bool both_nonneg(MgExprs *x, ExprRef a, ExprRef b) {
  return ty_of(x, a) == TY_i64 && mg_ex_is_nonneg(x, a) && mg_ex_is_nonneg(x, b);
}

/* a / b or a % b of numbers that are not negative. Vectors of 64 bits have no high product, so that a
 * division by a constant would leave them: powers of two are shifts, and what fits 32 bits is
 * divided there. 0: neither holds. */
static ExprRef narrow_div(MgExprs *x, MgScalarOp raw, ExprRef a, ExprRef b) {
  int64_t lo, hi, d;
  if (!mg_ex_const_int(x, b, &d) || d < 1) return 0;
  if (!(d & (d - 1)))
    return raw == OP_rem ? bin(x, OP_and, a, mg_ex_int(x, TY_i64, d - 1))
                         : bin(x, OP_lsr, a, mg_ex_int(x, TY_i64, __builtin_ctzll((uint64_t)d)));
  if (!mg_ex_range(x, a, &lo, &hi) || hi > UINT32_MAX || d > UINT32_MAX) return 0;
  return mg_ex_cvt(x, TY_i64, bin(x, raw, mg_ex_cvt(x, TY_u32, a), mg_ex_int(x, TY_u32, d)));
}

static ExprRef signs_differ(MgExprs *x, ExprRef r, ExprRef b) { /* r != 0 and sign(r) != sign(b) */
  ExprRef zero = num(x, r, 0), nz = bin(x, OP_ne, r, zero);
  return bin(x, OP_and, nz, bin(x, OP_xor, bin(x, OP_lt, r, zero), bin(x, OP_lt, b, zero)));
}

DEC(dec_floordiv) {
  ExprRef a = s[0], b = s[1];
  if (!flt(x, a)) {
    bool plain = both_nonneg(x, a, b);
    ExprRef q = plain ? narrow_div(x, OP_div, a, b) : 0;
    if (!q) q = total_div(x, OP_div, a, b);
    if (!sgn(x, a) || plain) return q;
    return where(x, signs_differ(x, total_div(x, OP_rem, a, b), b), bin(x, OP_sub, q, num(x, q, 1)), q);
  }
  ExprRef zero = num(x, a, 0), one = num(x, a, 1), quot = bin(x, OP_div, a, b);
  ExprRef m = bin(x, OP_rem, a, b), d = bin(x, OP_div, bin(x, OP_sub, a, m), b);
  d = where(x, signs_differ(x, m, b), bin(x, OP_sub, d, one), d);
  ExprRef f = un(x, OP_floor, d);
  f = where(x, bin(x, OP_lt, num(x, a, 0.5), bin(x, OP_sub, d, f)), bin(x, OP_add, f, one), f);
  f = where(x, bin(x, OP_eq, d, zero), bin(x, OP_copysign, zero, quot), f);
  ExprRef inf = num(x, a, INFINITY), over = bin(x, OP_and, bin(x, OP_eq, un(x, OP_abs, quot), inf),
                                                bin(x, OP_ne, un(x, OP_abs, a), inf));
  return where(x, bin(x, OP_or, bin(x, OP_eq, b, zero), over), quot,
               f); /* SLEEF's remainder is NaN for such quotients */
}

DEC(dec_mod) {
  ExprRef a = s[0], b = s[1];
  if (!flt(x, a)) {
    bool plain = both_nonneg(x, a, b);
    ExprRef r = plain ? narrow_div(x, OP_rem, a, b) : 0;
    if (!r) r = total_div(x, OP_rem, a, b);
    if (!sgn(x, a) || plain) return r;
    return where(x, signs_differ(x, r, b), bin(x, OP_add, r, b), r);
  }
  ExprRef r = bin(x, OP_rem, a, b);
  return where(x, signs_differ(x, r, b), bin(x, OP_add, r, b), r);
}

DEC(dec_min) {
  ExprRef r = where(x, bin(x, OP_lt, s[0], s[1]), s[0], s[1]);
  if (!flt(x, r)) return r;
  return where(x, un(x, OP_isnan, s[0]), s[0], where(x, un(x, OP_isnan, s[1]), s[1], r));
}
DEC(dec_max) {
  ExprRef r = where(x, bin(x, OP_lt, s[1], s[0]), s[0], s[1]);
  if (!flt(x, r)) return r;
  return where(x, un(x, OP_isnan, s[0]), s[0], where(x, un(x, OP_isnan, s[1]), s[1], r));
}

DEC(dec_neg) { return bin(x, OP_sub, num(x, s[0], 0), s[0]); }
DEC(dec_abs) {
  if (!sgn(x, s[0])) return s[0];
  return where(x, bin(x, OP_lt, s[0], num(x, s[0], 0)), un(x, OP_neg, s[0]), s[0]);
}

DEC(dec_sign) {
  ExprRef zero = num(x, s[0], 0), one = num(x, s[0], 1);
  ExprRef pos = bin(x, OP_lt, zero, s[0]);
  if (!sgn(x, s[0]) && !flt(x, s[0])) return where(x, pos, one, zero);
  ExprRef r = where(x, pos, one, where(x, bin(x, OP_lt, s[0], zero), num(x, s[0], -1), zero));
  return flt(x, s[0]) ? where(x, un(x, OP_isnan, s[0]), s[0], r) : r;
}

DEC(dec_rsqrt) { return bin(x, OP_div, num(x, s[0], 1), un(x, OP_sqrt, s[0])); }
DEC(dec_isinf) { return bin(x, OP_eq, un(x, OP_abs, s[0]), num(x, s[0], INFINITY)); }
DEC(dec_signbit) {
  if (!flt(x, s[0])) return bin(x, OP_lt, s[0], num(x, s[0], 0));
  MgTy ity = ty_of(x, s[0]) == TY_f64 ? TY_i64 : TY_i32;
  return bin(x, OP_lt, mg_ex_bitcast(x, ity, s[0]), mg_ex_int(x, ity, 0));
}

/* Shift counts of the width or more (negative ones too): as unsigned numbers they are large. */
static MgTy unsigned_of(MgTy t) {
  return t == TY_i8 ? TY_u8 : t == TY_i16 ? TY_u16 : t == TY_i32 ? TY_u32 : t == TY_i64 ? TY_u64 : t;
}
static ExprRef shift_fits(MgExprs *x, ExprRef b) {
  MgTy u = unsigned_of(ty_of(x, b));
  return bin(x, OP_lt, mg_ex_bitcast(x, u, b), mg_ex_int(x, u, 8 * mg_ty_size(u)));
}
DEC(dec_shl) {
  ExprRef fits = shift_fits(x, s[1]), zero = num(x, s[0], 0);
  return where(x, fits, bin(x, OP_lsl, s[0], where(x, fits, s[1], zero)), zero);
}
DEC(dec_shr) {
  ExprRef fits = shift_fits(x, s[1]), zero = num(x, s[0], 0),
          most = num(x, s[0], 8 * mg_ty_size(ty_of(x, s[0])) - 1);
  if (sgn(x, s[0])) return bin(x, OP_lsr, s[0], where(x, fits, s[1], most));
  return where(x, fits, bin(x, OP_lsr, s[0], where(x, fits, s[1], zero)), zero);
}

/* Integer powers by squaring: one step per bit of the exponent; negative exponents
 * give 0 except for 1 and -1. */
DEC(dec_pow) {
  if (flt(x, s[0])) return dec_powf(x, op, s);
  ExprRef a = s[0], e = s[1], one = num(x, a, 1), zero = num(x, a, 0), r = one, base = a;
  for (int bit = 0; bit < 8 * mg_ty_size(ty_of(x, a)) - sgn(x, a); bit++) {
    ExprRef on = bin(x, OP_ne, bin(x, OP_and, bin(x, OP_lsr, e, num(x, e, bit)), one), zero);
    r = where(x, on, bin(x, OP_mul, r, base), r);
    base = bin(x, OP_mul, base, base);
  }
  if (!sgn(x, a)) return r;
  ExprRef odd = bin(x, OP_ne, bin(x, OP_and, e, one), zero), m1 = num(x, a, -1);
  ExprRef neg =
      where(x, bin(x, OP_eq, a, one), one, where(x, bin(x, OP_eq, a, m1), where(x, odd, m1, one), zero));
  return where(x, bin(x, OP_lt, e, zero), neg, r);
}

/* mg_scalar_rand in terms of 64-bit products and exclusive or. */
static ExprRef dec_rand(MgExprs *x, int kind, ExprRef seed, ExprRef index) {
  ExprRef m = mg_ex_int(x, TY_u64, 0xffffffff), h = mg_ex_int(x, TY_u64, 32), zero = mg_ex_int(x, TY_u64, 0),
          c[4], k[2];
  ExprRef i = mg_ex_bitcast(x, TY_u64, index), s = mg_ex_bitcast(x, TY_u64, seed);
  c[0] = bin(x, OP_and, i, m);
  c[1] = bin(x, OP_lsr, i, h);
  c[2] = c[3] = zero;
  k[0] = bin(x, OP_and, s, m);
  k[1] = bin(x, OP_lsr, s, h);
  for (int round = 0; round < 10; round++) {
    ExprRef p = bin(x, OP_mul, c[0], mg_ex_int(x, TY_u64, 0xD2511F53)),
            q = bin(x, OP_mul, c[2], mg_ex_int(x, TY_u64, 0xCD9E8D57));
    c[0] = bin(x, OP_xor, bin(x, OP_xor, bin(x, OP_lsr, q, h), c[1]), k[0]);
    c[2] = bin(x, OP_xor, bin(x, OP_xor, bin(x, OP_lsr, p, h), c[3]), k[1]);
    c[1] = bin(x, OP_and, q, m);
    c[3] = bin(x, OP_and, p, m);
    k[0] = bin(x, OP_and, bin(x, OP_add, k[0], mg_ex_int(x, TY_u64, 0x9E3779B9)), m);
    k[1] = bin(x, OP_and, bin(x, OP_add, k[1], mg_ex_int(x, TY_u64, 0xBB67AE85)), m);
  }
  ExprRef eight = mg_ex_int(x, TY_i32, 8), ulp = mg_ex_float(x, TY_f32, 0x1p-24), w[2];
  for (int j = 0; j < 2; j++) { /* 24 bits, as a signed number: converts fast */
    ExprRef u = bin(x, OP_lsr, mg_ex_cvt(x, TY_u32, c[j]), mg_ex_bitcast(x, TY_u32, eight));
    w[j] = mg_ex_cvt(x, TY_i32, u);
  }
  ExprRef u = bin(x, OP_mul, mg_ex_cvt(x, TY_f32, w[0]), ulp);
  if (kind == 0) return u;
  u = bin(x, OP_mul, mg_ex_cvt(x, TY_f32, bin(x, OP_add, w[0], mg_ex_int(x, TY_i32, 1))), ulp);
  ExprRef v = bin(x, OP_mul, bin(x, OP_mul, mg_ex_cvt(x, TY_f32, w[1]), ulp),
                  mg_ex_float(x, TY_f32, 6.283185307179586));
  ExprRef r = un(x, OP_sqrt, bin(x, OP_mul, un(x, OP_log, u), mg_ex_float(x, TY_f32, -2)));
  return bin(x, OP_mul, r, un(x, OP_cos, v));
}

/* ---- legalize ---- */

typedef struct Legal {
  int target;
  bool but_sizes; /* long ones stay */
  bool but_functions;
  MgRc rc;
} Legal;

static ExprRef legal_node(MgExprs *x, ExprRef r, const ExprRef *s, void *arg) {
  Legal *l = arg;
  const MgExpr e = *mg_expr(x, r);
  const MgScalarInfo *row;
  if (l->but_sizes && mg_ex_is_long_size(x, r)) return r;
  ExprRef v = mg_ex_rebuild(x, r, s);
  const MgExpr now = v ? *mg_expr(x, v) : e;
  row = &mg_scalar_info[now.op];
  if (now.op == OP_rand) return dec_rand(x, (int)now.u.i, now.src[0], now.src[1]);
  if (row->rule == SOR_LEAF) return v;
  MgTy ty = ty_of(x, now.src[0]);
  int cl = mg_scalar_class(ty);
  const char *t = l->target ? row->px[cl] : row->ll[cl];
  bool prefer = (row->flags & SOF_V) && ty == TY_f32 && (l->target || x->numerics != MN_eager);
  if (t && !prefer) return v;
  if (l->target && mg_scalar_on_gpu(now.op, ty)) return v;
  if (prefer && l->but_functions) return v;
  ExprRef d = row->dec ? row->dec(x, now.op, now.src) : 0;
  if (d) return d; /* its own parts are looked at in the next round */
  if (!t && !x->nomem) l->rc = MG_UNSUP;
  return v;
}

static ExprRef legalize(MgExprs *x, ExprRef e, Legal l, MgRc *rc) {
  for (ExprRef last = 0; e != last && l.rc == MG_OK;) {
    last = e;
    e = mg_ex_map(x, e, legal_node, &l);
  }
  *rc = x->nomem ? x->c->rc : l.rc;
  return e;
}

ExprRef mg_ex_legalize(MgExprs *x, ExprRef e, int target, MgRc *rc) {
  return legalize(x, e, (Legal){.target = target}, rc);
}
ExprRef mg_ex_legalize_for(MgExprs *x, ExprRef e, bool calls, MgRc *rc) {
  return legalize(x, e, (Legal){.but_sizes = true, .but_functions = calls}, rc);
}
