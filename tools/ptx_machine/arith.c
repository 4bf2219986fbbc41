/* Arithmetic of PTX on 64-bit register contents.
 * In: a decoded instruction and the bits of its sources.  Out: the bits of its result. */
#include <math.h>
#include <string.h>
#include "ir/expr/scalar.h"
#include "machine_arith.h"

double ptx_float(PtxType t, uint64_t bits) {
  if (t == PT_f16 || t == PT_bf16)
    return mg_scalar_from_bits(t == PT_f16 ? TY_f16 : TY_bf16, bits & 0xFFFF).f;
  if (t == PT_f64) {
    double d;
    memcpy(&d, &bits, 8);
    return d;
  }
  uint32_t low = (uint32_t)bits;
  float f;
  memcpy(&f, &low, 4);
  return f;
}

uint64_t ptx_float_bits(PtxType t, double v) {
  if (t == PT_f16 || t == PT_bf16) return mg_scalar_bits(t == PT_f16 ? TY_f16 : TY_bf16, (MgScalar){.f = v});
  if (t == PT_f64) {
    uint64_t b;
    memcpy(&b, &v, 8);
    return b;
  }
  float f = (float)v;
  uint32_t low;
  memcpy(&low, &f, 4);
  return low;
}

int64_t ptx_int(PtxType t, uint64_t bits) {
  int unused = 64 - 8 * ptx_type_bytes(t);
  if (ptx_type_kind(t) == 's') return (int64_t)(bits << unused) >> unused;
  return (int64_t)(bits << unused >> unused);
}

static uint64_t arith_cut(PtxType t, uint64_t v) {
  int unused = 64 - 8 * ptx_type_bytes(t);
  return v << unused >> unused;
}

/* ---- floats ---- */

static double arith_extreme(const PtxInstr *i, double a, double b) {
  if (isnan(a) || isnan(b)) return i->nan ? (double)NAN : isnan(a) ? b : a;
  if (a == b) return signbit(a) == (i->op == PO_min) ? a : b;
  return (a < b) == (i->op == PO_min) ? a : b;
}

/* Of the type's own precision: a sum or product of floats as doubles rounds once where it is rounded to
 * float. */
static double arith_double(const PtxInstr *i, double a, double b, double c) {
  bool single = i->type[0] == PT_f32;
  switch (i->op) {
  case PO_add: return a + b;
  case PO_sub: return a - b;
  case PO_mul: return a * b;
  case PO_div: return a / b;
  case PO_fma: return single ? fmaf((float)a, (float)b, (float)c) : fma(a, b, c);
  case PO_max:
  case PO_min: return arith_extreme(i, a, b);
  case PO_copysign: return copysign(b, a);
  case PO_sqrt: return sqrt(a);
  case PO_ex2: return exp2(i->ftz && fabs(a) < 0x1p-126 ? copysign(0, a) : a);
  case PO_lg2: return log2(a);
  case PO_rcp: return 1 / a;
  case PO_abs: return fabs(a);
  case PO_neg: return -a;
  default: return NAN;
  }
}

/* ---- integers ---- */

static uint64_t arith_divide(const PtxInstr *i, uint64_t a, uint64_t b) {
  PtxType t = (PtxType)i->type[0];
  bool rest = i->op == PO_rem;
  if (!arith_cut(t, b)) return UINT64_MAX;
  if (ptx_type_kind(t) == 's') {
    int64_t x = ptx_int(t, a), y = ptx_int(t, b);
    if (y == -1) return rest ? 0 : 0 - (uint64_t)x;
    return (uint64_t)(rest ? x % y : x / y);
  }
  a = arith_cut(t, a), b = arith_cut(t, b);
  return rest ? a % b : a / b;
}

static uint64_t arith_shift(const PtxInstr *i, uint64_t a, uint32_t count) {
  PtxType t = (PtxType)i->type[0];
  uint32_t width = 8 * (uint32_t)ptx_type_bytes(t);
  if (i->op == PO_shl) return count < width ? a << count : 0;
  if (ptx_type_kind(t) == 's') return (uint64_t)(ptx_int(t, a) >> (count < 63 ? count : 63));
  return count < width ? arith_cut(t, a) >> count : 0;
}

static uint64_t arith_int(const PtxInstr *i, uint64_t a, uint64_t b, uint64_t c) {
  PtxType t = (PtxType)i->type[0];
  bool less = ptx_type_kind(t) == 's' ? ptx_int(t, a) < ptx_int(t, b) : arith_cut(t, a) < arith_cut(t, b);
  uint64_t factor = i->wide ? (uint64_t)ptx_int(t, a) * (uint64_t)ptx_int(t, b) : a * b;
  switch (i->op) {
  case PO_add: return a + b;
  case PO_sub: return a - b;
  case PO_mul: return factor;
  case PO_mad: return factor + c;
  case PO_div:
  case PO_rem: return arith_divide(i, a, b);
  case PO_max: return less ? b : a;
  case PO_min: return less ? a : b;
  case PO_and: return a & b;
  case PO_or: return a | b;
  case PO_xor: return a ^ b;
  case PO_not: return t == PT_pred ? !a : ~a;
  case PO_neg: return 0 - a;
  case PO_abs: return ptx_int(t, a) < 0 ? 0 - a : a;
  case PO_shl:
  case PO_shr: return arith_shift(i, a, (uint32_t)b);
  default: return 0;
  }
}

uint64_t ptx_arith(const PtxInstr *i, const uint64_t *s) {
  PtxType t = (PtxType)i->type[0];
  if (ptx_type_kind(t) == 'f')
    return ptx_float_bits(t, arith_double(i, ptx_float(t, s[0]), ptx_float(t, s[1]), ptx_float(t, s[2])));
  uint64_t v = arith_int(i, s[0], s[1], s[2]);
  return i->wide ? v : arith_cut(t, v);
}

/* ---- comparisons ---- */

static bool arith_ordered(uint8_t c, bool less, bool equal) {
  switch (c) {
  case PC_eq:
  case PC_equ: return equal;
  case PC_ne:
  case PC_neu: return !equal;
  case PC_lt:
  case PC_ltu: return less;
  case PC_le:
  case PC_leu: return less || equal;
  case PC_gt:
  case PC_gtu: return !less && !equal;
  case PC_ge:
  case PC_geu: return !less;
  default: return c == PC_num;
  }
}

bool ptx_compare(const PtxInstr *i, uint64_t a, uint64_t b) {
  PtxType t = (PtxType)i->type[0];
  if (ptx_type_kind(t) == 'f') {
    double x = ptx_float(t, a), y = ptx_float(t, b);
    if (isnan(x) || isnan(y)) return i->compare == PC_nan || (i->compare >= PC_equ && i->compare <= PC_geu);
    return arith_ordered(i->compare, x < y, x == y);
  }
  a = arith_cut(t, a), b = arith_cut(t, b);
  bool less = ptx_type_kind(t) == 's' ? ptx_int(t, a) < ptx_int(t, b) : a < b;
  return arith_ordered(i->compare, less, a == b);
}

/* ---- conversions ---- */

static double arith_round(uint8_t how, double v) {
  switch (how) {
  case PR_rni: return nearbyint(v);
  case PR_rzi:
  case PR_rz: return trunc(v);
  case PR_rmi: return floor(v);
  case PR_rpi: return ceil(v);
  default: return v;
  }
}

/* Beyond the type's ends: its ends; NaN: 0. */
static uint64_t arith_to_int(PtxType t, double v) {
  int bits = 8 * ptx_type_bytes(t);
  bool is_signed = ptx_type_kind(t) == 's';
  double top = ldexp(1, is_signed ? bits - 1 : bits);
  if (isnan(v)) return 0;
  if (v >= top) return is_signed ? ((uint64_t)1 << (bits - 1)) - 1 : UINT64_MAX;
  if (!is_signed) return v <= 0 ? 0 : (uint64_t)v;
  return v <= -top ? (uint64_t)1 << (bits - 1) : (uint64_t)(int64_t)v;
}

uint64_t ptx_convert(const PtxInstr *i, uint64_t a, uint64_t b) {
  PtxType to = (PtxType)i->type[0], from = (PtxType)i->type[1];
  if (ptx_type_kind(to) == 'v') { /* two numbers, the first above the second */
    PtxType half = to == PT_bf16x2 ? PT_bf16 : PT_f16;
    return ptx_float_bits(half, ptx_float(from, a)) << 16 | ptx_float_bits(half, ptx_float(from, b));
  }
  bool to_float = ptx_type_kind(to) == 'f';
  if (ptx_type_kind(from) == 'f') {
    double v = arith_round(i->round, ptx_float(from, a));
    return to_float ? ptx_float_bits(to, v) : arith_cut(to, arith_to_int(to, v));
  }
  int64_t v = ptx_int(from, a);
  if (!to_float) { /* a narrow target is extended to its register */
    return ptx_type_bytes(from) < ptx_type_bytes(to) ? arith_cut(to, (uint64_t)v)
                                                     : arith_cut(to, (uint64_t)ptx_int(to, (uint64_t)v));
  }
  if (ptx_type_kind(from) == 's')
    return to == PT_f32 ? ptx_float_bits(to, (float)v) : ptx_float_bits(to, (double)v);
  return to == PT_f32 ? ptx_float_bits(to, (float)(uint64_t)v) : ptx_float_bits(to, (double)(uint64_t)v);
}
