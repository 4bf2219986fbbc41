/* The rows of scalar_ops.def: their facts, their values on numbers, conversions and bit patterns. */
#include "ir/expr/expr_priv.h"
#include <math.h>
#include <string.h>

#define C SOF_C
#define A SOF_A
#define D SOF_D
#define B SOF_B
#define V SOF_V
#define ANY ON_ANY
#define FLT ON_FLT
#define INT ON_INT
#define BIT ON_BIT
#define LL(f, s, u) {f, s, u}
#define PX(f, s, u) {f, s, u}
#define OP(nm, nin_, rule_, on_, fl, Fe, Ie, Ue, LLt, PXt, dec_)                                             \
  [OP_##nm] = {#nm, nin_, SOR_##rule_, on_, fl, LLt, PXt, dec_},
const MgScalarInfo mg_scalar_info[OP__COUNT] = {
#include "ir/expr/scalar_ops.def"
};
#undef C
#undef A
#undef D
#undef B
#undef V
#undef ANY
#undef FLT
#undef INT
#undef BIT
#undef LL
#undef PX

bool mg_scalar_takes(MgScalarOp op, MgTy ty) {
  switch (mg_scalar_info[op].on) {
  case ON_FLT: return mg_ty_is_float(ty);
  case ON_INT: return !mg_ty_is_float(ty) && ty != TY_i1;
  case ON_BIT: return !mg_ty_is_float(ty);
  default: return true;
  }
}

const char *mg_scalar_check(void) {
  for (int op = 0; op < OP__COUNT; op++) {
    const MgScalarInfo *r = &mg_scalar_info[op];
    if (r->rule == SOR_LEAF || r->dec) continue;
    for (int cl = 0; cl < SOC__COUNT; cl++) {
      bool takes = r->on == ON_ANY || (r->on == ON_FLT) == (cl == SOC_F);
      if (takes && (!r->ll[cl] || !r->px[cl])) return r->name;
    }
  }
  return NULL;
}

/* ---- integer and float helpers that the fold columns use ---- */

static int64_t sint_div(int64_t a, int64_t b) {
  return b == 0 ? 0 : b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}
static int64_t sint_rem(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }
static int64_t sint_floordiv(int64_t a, int64_t b) {
  int64_t q = sint_div(a, b), r = sint_rem(a, b);
  return r != 0 && (r < 0) != (b < 0) ? q - 1 : q;
}
static int64_t sint_mod(int64_t a, int64_t b) {
  int64_t r = sint_rem(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
static uint64_t uint_pow(uint64_t a, uint64_t b) {
  uint64_t r = 1;
  for (; b; b >>= 1, a *= a)
    if (b & 1) r *= a;
  return r;
}
/* Negative exponents as torch's powi: only 1 and -1 have an integer result. */
static int64_t sint_pow(int64_t a, int64_t b) {
  if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;
  return (int64_t)uint_pow((uint64_t)a, (uint64_t)b);
}
/* Every step is rounded to the operands' type, as the generated code does. */
static double flt_mod(double a, double b, bool f32) {
  double r = fmod(a, b);
  if (r != 0 && (r < 0) != (b < 0)) r = f32 ? (float)(r + b) : r + b;
  return r;
}
static double flt_floordiv(double a, double b, bool f32) {
  if (b == 0) return a / b;
  double m = fmod(a, b);
  double d = f32 ? (double)((float)(a - m) / (float)b) : (a - m) / b;
  if (m != 0 && (b < 0) != (m < 0)) d = f32 ? (float)(d - 1) : d - 1;
  if (d == 0) return copysign(0, a / b);
  double f = floor(d);
  return d - f > 0.5 ? f + 1 : f;
}

/* ---- evaluation ---- */

static double eval_f(MgScalarOp op, bool f32, double a, double b, double c) {
  switch (op) {
#define F(e) e
#define OP(nm, nin, rule, on, fl, Fe, Ie, Ue, L, P, dec)                                                     \
  case OP_##nm: return (void)a, (void)b, (void)c, (double)(Fe);
#include "ir/expr/scalar_ops.def"
#undef F
  case OP__COUNT: break;
  }
  return NAN;
}

static int64_t eval_i(MgScalarOp op, unsigned bits, int64_t a, int64_t b) {
  uint64_t ua = (uint64_t)a, ub = (uint64_t)b;
  (void)ua, (void)ub;
  switch (op) {
#define I(e) e
#define OP(nm, nin, rule, on, fl, Fe, Ie, Ue, L, P, dec)                                                     \
  case OP_##nm: return (void)bits, (int64_t)(Ie);
#include "ir/expr/scalar_ops.def"
#undef I
  case OP__COUNT: break;
  }
  return 0;
}

static uint64_t eval_u(MgScalarOp op, unsigned bits, uint64_t a, uint64_t b) {
  switch (op) {
#define U(e) e
#define OP(nm, nin, rule, on, fl, Fe, Ie, Ue, L, P, dec)                                                     \
  case OP_##nm: return (void)bits, (uint64_t)(Ue);
#include "ir/expr/scalar_ops.def"
#undef U
  case OP__COUNT: break;
  }
  return 0;
}

bool mg_scalar_eval(MgScalarOp op, MgTy ty, MgScalar a, MgScalar b, MgScalar c, MgScalar *out) {
  const MgScalarInfo *r = &mg_scalar_info[op];
  MgScalar v = {0};
  if (mg_ty_is_float(ty)) {
    v.f = eval_f(op, ty != TY_f64, a.f, b.f, c.f);
    if (r->rule == SOR_PRED) v.i = v.f != 0;
  } else {
    unsigned bits = ty == TY_i1 ? 1 : 8 * mg_ty_size(ty);
    if (r->flags & SOF_D) { /* exactly the rows div, rem, lsl and lsr */
      if (op == OP_lsl || op == OP_lsr ? (uint64_t)b.i >= bits
                                       : b.i == 0 || (mg_ty_is_signed(ty) && b.i == -1))
        return false;
    }
    v.i = mg_ty_is_signed(ty) ? eval_i(op, bits, a.i, b.i)
                              : (int64_t)eval_u(op, bits, (uint64_t)a.i, (uint64_t)b.i);
  }
  *out = r->rule == SOR_PRED ? (MgScalar){.i = v.i != 0} : mg_scalar_wrap(ty, v);
  return true;
}

/* ---- types ---- */

static double round_f16(double v) { return (double)(_Float16)v; }

static double round_bf16(double v) {
  float f = (float)v; /* torch converts double through float */
  uint32_t u;
  if (f != f) return NAN;
  memcpy(&u, &f, 4);
  u = (u + 0x7fff + (u >> 16 & 1)) & 0xffff0000u;
  memcpy(&f, &u, 4);
  return f;
}

MgScalar mg_scalar_wrap(MgTy ty, MgScalar v) {
  switch (ty) {
  case TY_i1: v.i = v.i & 1; break;
  case TY_i8: v.i = (int8_t)v.i; break;
  case TY_u8: v.i = (uint8_t)v.i; break;
  case TY_i16: v.i = (int16_t)v.i; break;
  case TY_u16: v.i = (uint16_t)v.i; break;
  case TY_i32: v.i = (int32_t)v.i; break;
  case TY_u32: v.i = (uint32_t)v.i; break;
  case TY_f16: v.f = round_f16((float)v.f); break;
  case TY_bf16: v.f = round_bf16(v.f); break;
  case TY_f32: v.f = (float)v.f; break;
  default: break;
  }
  return v;
}

/* float -> integer truncates; where the value does not fit, what x86 gives: the least value of the
 * intermediate type, which is i32 for i8/i16/i32 and i64 for the others, then cut to the type. */
static int64_t float_to_int(MgTy to, double v) {
  if (to == TY_i8 || to == TY_i16 || to == TY_i32 || to == TY_u16)
    return v > -2147483649.0 && v < 2147483648.0 ? (int64_t)v : INT32_MIN;
  if (to == TY_u64 && v >= 9223372036854775808.0)
    return v < 18446744073709551616.0 ? (int64_t)(uint64_t)v : 0;
  return v >= -9223372036854775808.0 && v < 9223372036854775808.0 ? (int64_t)v : INT64_MIN;
}

MgScalar mg_scalar_cvt(MgTy to, MgTy from, MgScalar v) {
  MgScalar r;
  if (to == from) return v;
  if (mg_ty_is_float(from)) {
    if (mg_ty_is_float(to)) return mg_scalar_wrap(to, v);
    r.i = to == TY_i1 ? v.f != 0 : float_to_int(to, v.f);
    return mg_scalar_wrap(to, r);
  }
  if (to == TY_i1) return (MgScalar){.i = v.i != 0};
  if (!mg_ty_is_float(to)) return mg_scalar_wrap(to, v);
  /* One rounding: 64-bit integers do not all fit a double, so f32 is rounded from the integer itself. */
  if (to == TY_f64) r.f = from == TY_u64 ? (double)(uint64_t)v.i : (double)v.i;
  else r.f = from == TY_u64 ? (float)(uint64_t)v.i : (float)v.i;
  return mg_scalar_wrap(to, r);
}

uint64_t mg_scalar_bits(MgTy ty, MgScalar v) {
  float f;
  uint32_t u;
  uint64_t w;
  _Float16 h;
  uint16_t s;
  switch (ty) {
  case TY_f64: memcpy(&w, &v.f, 8); return w;
  case TY_f32:
    f = (float)v.f;
    memcpy(&u, &f, 4);
    return u;
  case TY_f16:
    h = (_Float16)(float)v.f;
    memcpy(&s, &h, 2);
    return s;
  case TY_bf16:
    if (v.f != v.f) return 0x7fc0;
    f = (float)round_bf16(v.f);
    memcpy(&u, &f, 4);
    return u >> 16;
  case TY_i1: return v.i & 1;
  default: return mg_ty_size(ty) == 8 ? (uint64_t)v.i : (uint64_t)v.i & ((1ull << 8 * mg_ty_size(ty)) - 1);
  }
}

MgScalar mg_scalar_from_bits(MgTy ty, uint64_t bits) {
  MgScalar v;
  uint32_t u = (uint32_t)bits;
  uint16_t s = (uint16_t)bits;
  float f;
  _Float16 h;
  switch (ty) {
  case TY_f64: memcpy(&v.f, &bits, 8); return v;
  case TY_f32:
    memcpy(&f, &u, 4);
    v.f = f;
    return v;
  case TY_f16:
    memcpy(&h, &s, 2);
    v.f = (float)h;
    return v;
  case TY_bf16:
    u = (uint32_t)s << 16;
    memcpy(&f, &u, 4);
    v.f = f;
    return v;
  case TY_i1: v.i = (bits & 0xff) != 0; return v;
  default: v.i = (int64_t)bits; return mg_scalar_wrap(ty, v);
  }
}

double mg_scalar_rand(int kind, uint64_t seed, uint64_t index) {
  uint32_t c[4] = {(uint32_t)index, (uint32_t)(index >> 32), 0, 0},
           k[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
  for (int round = 0; round < 10; round++, k[0] += 0x9E3779B9u, k[1] += 0xBB67AE85u) {
    uint64_t p = 0xD2511F53ull * c[0], q = 0xCD9E8D57ull * c[2];
    uint32_t n[4] = {(uint32_t)(q >> 32) ^ c[1] ^ k[0], (uint32_t)q, (uint32_t)(p >> 32) ^ c[3] ^ k[1],
                     (uint32_t)p};
    memcpy(c, n, sizeof c);
  }
  if (kind == 0) return (double)(c[0] >> 8) * 0x1p-24;
  double u = (double)((c[0] >> 8) + 1) * 0x1p-24, v = (double)(c[1] >> 8) * 0x1p-24;
  return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}
