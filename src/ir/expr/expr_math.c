/* f32 elementary functions as polynomials over the basic rows, so that one text serves every target.
 * Stated error: in units in the last place of the result, against the exact value, measured by
 * tests/unit/ir/test_scalar.c over all exponents; results below the least normal number are 0 where said.
 * NaN, infinities and poles are exact. For f64 (dec_* gets only f32 here, by flag V) the rows have libm
 * templates. */
#include "ir/expr/expr_priv.h"
#include <math.h>

static bool is_f32(MgExprs *x, ExprRef a) { return mg_expr(x, a)->ty == TY_f32; }
static ExprRef f(MgExprs *x, double v) { return mg_ex_float(x, TY_f32, v); }
static ExprRef i(MgExprs *x, int64_t v) { return mg_ex_int(x, TY_i32, v); }
static ExprRef add(MgExprs *x, ExprRef a, ExprRef b) { return mg_ex_op(x, OP_add, a, b, 0); }
static ExprRef sub(MgExprs *x, ExprRef a, ExprRef b) { return mg_ex_op(x, OP_sub, a, b, 0); }
static ExprRef mul(MgExprs *x, ExprRef a, ExprRef b) { return mg_ex_op(x, OP_mul, a, b, 0); }
static ExprRef quo(MgExprs *x, ExprRef a, ExprRef b) { return mg_ex_op(x, OP_div, a, b, 0); }
static ExprRef fma_(MgExprs *x, ExprRef a, ExprRef b, ExprRef c) { return mg_ex_op(x, OP_fma, a, b, c); }
static ExprRef lt(MgExprs *x, ExprRef a, ExprRef b) { return mg_ex_op(x, OP_lt, a, b, 0); }
static ExprRef eq(MgExprs *x, ExprRef a, ExprRef b) { return mg_ex_op(x, OP_eq, a, b, 0); }
static ExprRef where(MgExprs *x, ExprRef p, ExprRef a, ExprRef b) { return mg_ex_op(x, OP_where, p, a, b); }
static ExprRef abs_(MgExprs *x, ExprRef a) { return mg_ex_op(x, OP_abs, a, 0, 0); }
static ExprRef shl(MgExprs *x, ExprRef a, int n) { return mg_ex_op(x, OP_lsl, a, i(x, n), 0); }
static ExprRef shr(MgExprs *x, ExprRef a, int n) { return mg_ex_op(x, OP_lsr, a, i(x, n), 0); }
static ExprRef bits(MgExprs *x, ExprRef a) { return mg_ex_bitcast(x, TY_i32, a); }
static ExprRef unbits(MgExprs *x, ExprRef a) { return mg_ex_bitcast(x, TY_f32, a); }

/* c[0] + v*(c[1] + v*(...)) */
static ExprRef poly(MgExprs *x, ExprRef v, const double *c, int n) {
  ExprRef r = f(x, c[n - 1]);
  for (int k = n - 2; k >= 0; k--) r = fma_(x, r, v, f(x, c[k]));
  return r;
}

/* ---- exponentials ---- */

#define MAGIC 12582912.0 /* 1.5 * 2^23: adding it leaves the nearest integer in the low bits */

typedef struct ExpParts {
  ExprRef n;  /* bits whose low part is the integer nearest to x / ln 2 */
  ExprRef nf; /* that integer */
  ExprRef r;  /* x - n ln 2 */
  ExprRef q;  /* e^r - 1 */
} ExpParts;

static ExprRef expm1_poly(MgExprs *x, ExprRef r) { /* |r| <= ln(2)/2 */
  static const double c[] = {
      0.5, 1.6666665459e-1, 4.1665795894e-2, 8.3334519073e-3, 1.3981999507e-3, 1.9875691500e-4};
  return fma_(x, mul(x, r, r), poly(x, r, c, 6), r);
}

static ExpParts exp_parts(MgExprs *x, ExprRef a) {
  ExpParts p;
  ExprRef t = fma_(x, a, f(x, M_LOG2E), f(x, MAGIC));
  p.n = bits(x, t);
  p.nf = sub(x, t, f(x, MAGIC));
  p.r = fma_(x, p.nf, f(x, 2.12194440e-4), fma_(x, p.nf, f(x, -0.693359375), a));
  p.q = expm1_poly(x, p.r);
  return p;
}

/* 2^n (1 + q): n is added to the exponent, which is right for results that are normal numbers. */
static ExprRef scale(MgExprs *x, ExprRef one_q, ExprRef n) {
  return unbits(x, add(x, bits(x, one_q), shl(x, n, 23)));
}

static ExprRef exp_limits(MgExprs *x, ExprRef a, ExprRef v, double least, double most) {
  v = where(x, lt(x, a, f(x, least)), f(x, 0), v);
  ExprRef fits = mg_ex_op(x, OP_le, a, f(x, most), 0);
  return where(x, fits, v, add(x, a, f(x, INFINITY))); /* infinity or NaN */
}

/* 1 ulp; 0 below -87.33. */
DEC(dec_exp) {
  if (!is_f32(x, s[0])) return 0;
  ExpParts p = exp_parts(x, s[0]);
  return exp_limits(x, s[0], scale(x, add(x, p.q, f(x, 1)), p.n), -87.336544, 88.7228394);
}

/* 1 ulp; 0 below -126. */
DEC(dec_exp2) {
  if (!is_f32(x, s[0])) return 0;
  ExprRef t = add(x, s[0], f(x, MAGIC)), r = sub(x, s[0], sub(x, t, f(x, MAGIC)));
  ExprRef q = expm1_poly(x, mul(x, r, f(x, M_LN2)));
  return exp_limits(x, s[0], scale(x, add(x, q, f(x, 1)), bits(x, t)), -126, 127.999992);
}

/* 2 ulp. */
DEC(dec_expm1) {
  if (!is_f32(x, s[0])) return 0;
  ExpParts p = exp_parts(x, s[0]);
  ExprRef one = f(x, 1), pow2 = unbits(x, shl(x, add(x, p.n, i(x, 127)), 23));
  ExprRef near = fma_(x, pow2, p.q, sub(x, pow2, one)), large = scale(x, add(x, p.q, one), p.n);
  ExprRef v = where(x, lt(x, f(x, 80), s[0]), large, near);
  v = where(x, lt(x, s[0], f(x, -17.5)), f(x, -1), v);
  v = where(x, lt(x, f(x, 88.7228394), s[0]), f(x, INFINITY), v);
  return where(x, eq(x, s[0], f(x, 0)), s[0], v);
}

/* ---- logarithms ---- */

/* a = m * 2^e with m in [sqrt(1/2), sqrt(2)), and log(m). */
typedef struct LogParts {
  ExprRef e, logm;
} LogParts;

static LogParts log_parts(MgExprs *x, ExprRef a) {
  static const double c[] = {3.3333331174e-1,  -2.4999993993e-1, 2.0000714765e-1,
                             -1.6668057665e-1, 1.4249322787e-1,  -1.2420140846e-1,
                             1.1676998740e-1,  -1.1514610310e-1, 7.0376836292e-2};
  LogParts p;
  ExprRef tiny = lt(x, a, f(x, 0x1p-126));
  ExprRef b = bits(x, where(x, tiny, mul(x, a, f(x, 0x1p23)), a));
  ExprRef e = shr(x, sub(x, b, i(x, 0x3f3504f3)), 23);
  ExprRef m1 = sub(x, unbits(x, sub(x, b, shl(x, e, 23))), f(x, 1)), z = mul(x, m1, m1);
  p.e = mg_ex_cvt(x, TY_f32, e);
  p.e = where(x, tiny, sub(x, p.e, f(x, 23)), p.e);
  ExprRef y = mul(x, mul(x, m1, z), poly(x, m1, c, 9));
  p.logm = add(x, m1, fma_(x, z, f(x, -0.5), y));
  return p;
}

static ExprRef log_limits(MgExprs *x, ExprRef a, ExprRef v) {
  ExprRef inf = f(x, INFINITY), zero = f(x, 0);
  ExprRef not_pos = where(x, eq(x, a, zero), f(x, -INFINITY), f(x, NAN));
  return where(x, lt(x, zero, a), where(x, eq(x, a, inf), inf, v), not_pos);
}

/* e*scale_hi + (e*scale_lo + logm*k) */
static ExprRef log_base(MgExprs *x, ExprRef a, double k, double hi, double lo) {
  LogParts p = log_parts(x, a);
  ExprRef m = k == 1 ? p.logm : mul(x, p.logm, f(x, k));
  if (lo != 0) m = fma_(x, p.e, f(x, lo), m);
  return log_limits(x, a, fma_(x, p.e, f(x, hi), m));
}

/* 1 ulp. */
DEC(dec_log) { return is_f32(x, s[0]) ? log_base(x, s[0], 1, 0.693359375, -2.12194440e-4) : 0; }
/* 2 ulp. */
DEC(dec_log2) { return is_f32(x, s[0]) ? log_base(x, s[0], M_LOG2E, 1, 0) : 0; }
/* 2 ulp. */
DEC(dec_log10) {
  return is_f32(x, s[0]) ? log_base(x, s[0], M_LOG10E, 0.301025390625, 4.605038981195214e-6) : 0;
}

/* 2 ulp: log(u) + (a - (u - 1)) / u with u = 1 + a rounded. */
DEC(dec_log1p) {
  if (!is_f32(x, s[0])) return 0;
  ExprRef a = s[0], u = add(x, a, f(x, 1)), lu = dec_log(x, op, &u);
  ExprRef v = add(x, lu, quo(x, sub(x, a, sub(x, u, f(x, 1))), u));
  v = where(x, lt(x, abs_(x, lu), f(x, INFINITY)), v, lu);
  return where(x, eq(x, u, f(x, 1)), a, v);
}

/* ---- hyperbolic tangent, error function ---- */

static ExprRef clamp(MgExprs *x, ExprRef a, double most) { /* NaN stays */
  a = where(x, lt(x, a, f(x, -most)), f(x, -most), a);
  return where(x, lt(x, f(x, most), a), f(x, most), a);
}

/* 1.5 ulp.  Up to 0.625 an odd polynomial (Cephes), since programs take the difference to x; from there on
   1 - 2 / (e^2|x| + 1), whose errors shrink as it comes close to 1: programs take the difference to 1, too.
 */
DEC(dec_tanh) {
  static const double low[] = {-3.33332819422e-1, 1.33314422036e-1, -5.37397155531e-2, 2.06390887954e-2,
                               -5.70498872745e-3};
  if (!is_f32(x, s[0])) return 0;
  ExprRef a = abs_(x, s[0]), z = mul(x, a, a);
  ExprRef most = where(x, lt(x, a, f(x, 9.02)), a, f(x, 9.02)); /* tanh is 1 from there on */
  ExpParts e = exp_parts(x, add(x, most, most));
  ExprRef far = sub(x, f(x, 1), quo(x, f(x, 2), add(x, scale(x, add(x, e.q, f(x, 1)), e.n), f(x, 1))));
  ExprRef near = fma_(x, mul(x, a, z), poly(x, z, low, 5), a); /* NaN for NaN */
  return mg_ex_op(x, OP_copysign, where(x, lt(x, f(x, 0.625), a), far, near), s[0], 0);
}

/* 4 ulp: an odd rational function. */
DEC(dec_erf) {
  static const double p[] = {-1.60960333262415e-02, -2.95459980854025e-03, -7.34990630326855e-04,
                             -5.69250639462346e-05, -2.10102402082508e-06, 2.77068142495902e-08,
                             -2.72614225801306e-10};
  static const double q[] = {-1.42647390514189e-02, -7.37332916720468e-03, -1.68282697438203e-03,
                             -2.13374055278905e-04, -1.45660718464996e-05};
  if (!is_f32(x, s[0])) return 0;
  ExprRef a = clamp(x, s[0], 4), z = mul(x, a, a);
  return mul(x, a, quo(x, poly(x, z, p, 7), poly(x, z, q, 5)));
}

/* ---- circular functions ---- */

/* a - n pi/2 in f64, so that the quadrant and the rest are right up to 2^48; what is beyond
 * is left to the rows far_*. */
typedef struct Quadrant {
  ExprRef n, r; /* i32, f32 in [-pi/4, pi/4] */
} Quadrant;

static Quadrant quadrant(MgExprs *x, ExprRef a) {
  Quadrant q;
  ExprRef d = mg_ex_cvt(x, TY_f64, a);
  ExprRef n = mg_ex_op(x, OP_round, mul(x, d, mg_ex_float(x, TY_f64, M_2_PI)), 0, 0);
  ExprRef r = fma_(x, n, mg_ex_float(x, TY_f64, -1.5707963267948966), d);
  r = fma_(x, n, mg_ex_float(x, TY_f64, -6.123233995736766e-17), r);
  q.n = mg_ex_cvt(x, TY_i32, mg_ex_cvt(x, TY_i64, n));
  q.r = mg_ex_cvt(x, TY_f32, r);
  return q;
}

static ExprRef sin_poly(MgExprs *x, ExprRef r) {
  static const double c[] = {-1.6666654611e-1, 8.3321608736e-3, -1.9515295891e-4};
  ExprRef z = mul(x, r, r);
  return fma_(x, mul(x, r, z), poly(x, z, c, 3), r);
}

static ExprRef cos_poly(MgExprs *x, ExprRef r) {
  static const double c[] = {-0.5, 4.166664568298827e-2, -1.388731625493765e-3, 2.443315711809948e-5};
  ExprRef z = mul(x, r, r);
  return fma_(x, z, poly(x, z, c, 4), f(x, 1));
}

/* sin of quadrant n + shift */
static ExprRef circular(MgExprs *x, ExprRef a, int shift) {
  Quadrant q = quadrant(x, a);
  ExprRef n = add(x, q.n, i(x, shift)), one = i(x, 1);
  ExprRef odd = eq(x, mg_ex_op(x, OP_and, n, one, 0), one);
  ExprRef v = where(x, odd, cos_poly(x, q.r), sin_poly(x, q.r));
  ExprRef sign = shl(x, mg_ex_op(x, OP_and, n, i(x, 2), 0), 30);
  return unbits(x, mg_ex_op(x, OP_xor, bits(x, v), sign, 0));
}

static ExprRef sine(MgExprs *x, ExprRef a) {
  return where(x, eq(x, a, f(x, 0)), a, circular(x, a, 0));
} /* of -0 it is -0 */

static ExprRef far(MgExprs *x, MgScalarOp op, ExprRef a, ExprRef v) { return mg_ex_op(x, op, a, v, 0); }

/* 1 ulp each. */
DEC(dec_sin) { return is_f32(x, s[0]) ? far(x, OP_far_sin, s[0], sine(x, s[0])) : 0; }
DEC(dec_cos) { return is_f32(x, s[0]) ? far(x, OP_far_cos, s[0], circular(x, s[0], 1)) : 0; }
/* 3 ulp. */
DEC(dec_tan) {
  return is_f32(x, s[0]) ? far(x, OP_far_tan, s[0], quo(x, sine(x, s[0]), circular(x, s[0], 1))) : 0;
}

/* Without a template: of an angle of 0 (of infinity NaN), which is no more than a
 * value of the right range. */
DEC(dec_far) {
  ExprRef zero = mg_ex_float(x, mg_expr(x, s[0])->ty, 0), a = mg_ex_op(x, OP_abs, s[0], 0, 0),
          v = mul(x, s[0], zero);
  if (op == OP_far_cos) v = add(x, v, mg_ex_float(x, mg_expr(x, s[0])->ty, 1));
  return where(x, lt(x, mg_ex_float(x, mg_expr(x, s[0])->ty, 0x1p48), a), v, s[1]);
}

/* ---- powers, in f64: 2^(y log2 |x|) ---- */

static ExprRef d(MgExprs *x, double v) { return mg_ex_float(x, TY_f64, v); }
static ExprRef l(MgExprs *x, int64_t v) { return mg_ex_int(x, TY_i64, v); }

static ExprRef poly64(MgExprs *x, ExprRef v, const double *c, int n) {
  ExprRef r = d(x, c[n - 1]);
  for (int k = n - 2; k >= 0; k--) r = fma_(x, r, v, d(x, c[k]));
  return r;
}

/* log2 of a non-negative f64 that is a normal number, 0, infinity or NaN; relative error 1e-12. */
static ExprRef log2_f64(MgExprs *x, ExprRef a) {
  static const double c[] = {2.0, 2.0 / 3, 2.0 / 5, 2.0 / 7, 2.0 / 9, 2.0 / 11, 2.0 / 13};
  ExprRef b = mg_ex_bitcast(x, TY_i64, a),
          e = mg_ex_op(x, OP_lsr, sub(x, b, l(x, 0x3fe6a09e667f3bcd)), l(x, 52), 0);
  ExprRef m = mg_ex_bitcast(x, TY_f64, sub(x, b, mg_ex_op(x, OP_lsl, e, l(x, 52), 0)));
  ExprRef q = quo(x, sub(x, m, d(x, 1)), add(x, m, d(x, 1)));
  ExprRef logm = mul(x, q, poly64(x, mul(x, q, q), c, 7));
  ExprRef v = fma_(x, logm, d(x, M_LOG2E), mg_ex_cvt(x, TY_f64, e));
  v = where(x, eq(x, a, d(x, 0)), d(x, -INFINITY), v);
  return where(x, lt(x, a, d(x, INFINITY)), v, a); /* infinity and NaN as they are */
}

/* 2^t; relative error 1e-9, enough to be rounded to f32. */
static ExprRef exp2_f64(MgExprs *x, ExprRef t) {
  static const double c[] = {1, 1, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320};
  t = where(x, lt(x, t, d(x, -1000)), d(x, -1000), t);
  t = where(x, lt(x, d(x, 1000), t), d(x, 1000), t);
  ExprRef n = mg_ex_op(x, OP_round, t, 0, 0), p = poly64(x, mul(x, sub(x, t, n), d(x, M_LN2)), c, 9);
  ExprRef k = mg_ex_op(x, OP_lsl, add(x, mg_ex_cvt(x, TY_i64, n), l(x, 1023)), l(x, 52), 0);
  return mul(x, p, mg_ex_bitcast(x, TY_f64, k));
}

/* 1 ulp, special cases as C's pow. */
DEC(dec_powf) {
  if (!is_f32(x, s[0])) return 0;
  ExprRef a = abs_(x, s[0]), y = s[1], one = f(x, 1), inf = f(x, INFINITY);
  ExprRef t = mul(x, mg_ex_cvt(x, TY_f64, y), log2_f64(x, mg_ex_cvt(x, TY_f64, a)));
  ExprRef v = mg_ex_cvt(x, TY_f32, exp2_f64(x, where(x, eq(x, a, one), d(x, 0), t)));
  ExprRef half = mul(x, y, f(x, 0.5)), whole = eq(x, mg_ex_op(x, OP_round, y, 0, 0), y);
  ExprRef odd = mg_ex_op(x, OP_and, whole, mg_ex_op(x, OP_ne, mg_ex_op(x, OP_round, half, 0, 0), half, 0), 0);
  ExprRef minus = mg_ex_op(x, OP_and, mg_ex_op(x, OP_signbit, s[0], 0, 0), odd, 0);
  v = where(x, minus, mg_ex_op(x, OP_neg, v, 0, 0), v);
  ExprRef bad = mg_ex_op(x, OP_and, lt(x, s[0], f(x, 0)), mg_ex_op(x, OP_not, whole, 0, 0), 0);
  v = where(x, mg_ex_op(x, OP_and, bad, lt(x, a, inf), 0), f(x, NAN), v);
  v = where(x, mg_ex_op(x, OP_isnan, y, 0, 0), y, v);
  return where(x, mg_ex_op(x, OP_or, eq(x, y, f(x, 0)), eq(x, s[0], one), 0), one, v);
}
