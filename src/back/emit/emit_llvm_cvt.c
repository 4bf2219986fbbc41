/* Conversions of values to other types, in scalar or vector form.
 * In: a value and two types.  Out: instructions that convert as torch's .to() does; 16-bit floats go through
 * float32, with
 * instructions of the CPU where it has them. */
#include "back/emit/emit_llvm_priv.h"

EmRef em_conv(Em *e, const char *op, MgTy from, MgTy to, EmRef v, int lanes) {
  MgStrbuf *b = em_at(e, v.level);
  EmRef r = em_new(e, v.level, lanes);
  mg_sb_printf(b, "  %%v%d = %s ", r.id, op);
  em_put_ty(b, em_ty(from), lanes);
  mg_sb_putc(b, ' ');
  em_put(e, b, v, from);
  mg_sb_puts(b, " to ");
  em_put_ty(b, em_ty(to), lanes);
  mg_sb_putc(b, '\n');
  return r;
}

static EmRef cvt_to_bf16(Em *e, EmRef v, int lanes) { /* nearest even; NaN gives 0x7fc0 */
  EmRef u = em_conv(e, "bitcast", TY_f32, TY_u32, v, lanes);
  EmRef odd = em_ins(e, "lshr $t $a, $b", TY_u32, TY_u32, lanes, u, em_kint(e, TY_u32, 16, lanes));
  odd = em_ins(e, "and $t $a, $b", TY_u32, TY_u32, lanes, odd, em_kint(e, TY_u32, 1, lanes));
  u = em_ins(e, "or $t $a, $b", TY_u32, TY_u32, lanes, u, odd);
  u = em_ins(e, "add $t $a, $b", TY_u32, TY_u32, lanes, u, em_kint(e, TY_u32, 0x7fff, lanes));
  u = em_ins(e, "lshr $t $a, $b", TY_u32, TY_u32, lanes, u, em_kint(e, TY_u32, 16, lanes));
  EmRef nan = em_ins(e, "fcmp uno $t $a, $a", TY_f32, TY_i1, lanes, v, em_none);
  u = em_select(e, TY_u32, lanes, nan, em_kint(e, TY_u32, 0x7fc0, lanes), u);
  return em_conv(e, "trunc", TY_u32, TY_u16, u, lanes);
}

/* v rounded to bfloat16, in the lanes of v.  plain: a NaN among them has low bits of 0, which no carry
 * leaves. */
EmRef em_round_bf16(Em *e, EmRef v, bool plain, int lanes) {
  if (v.id == -1) return em_cvt(e, TY_f32, TY_bf16, em_cvt(e, TY_bf16, TY_f32, v, lanes), lanes);
  EmRef u = em_conv(e, "bitcast", TY_f32, TY_u32, v, lanes);
  EmRef odd = em_ins(e, "lshr $t $a, $b", TY_u32, TY_u32, lanes, u, em_kint(e, TY_u32, 16, lanes));
  odd = em_ins(e, "and $t $a, $b", TY_u32, TY_u32, lanes, odd, em_kint(e, TY_u32, 1, lanes));
  u = em_ins(e, "or $t $a, $b", TY_u32, TY_u32, lanes, u, odd);
  u = em_ins(e, "add $t $a, $b", TY_u32, TY_u32, lanes, u, em_kint(e, TY_u32, 0x7fff, lanes));
  u = em_ins(e, "and $t $a, $b", TY_u32, TY_u32, lanes, u, em_kint(e, TY_u32, -0x10000, lanes));
  if (!plain) {
    EmRef nan = em_ins(e, "fcmp uno $t $a, $a", TY_f32, TY_i1, lanes, v, em_none);
    u = em_select(e, TY_u32, lanes, nan, em_kint(e, TY_u32, 0x7fc00000, lanes), u);
  }
  return em_conv(e, "bitcast", TY_u32, TY_f32, u, lanes);
}

/* The upper halves of numbers that em_round_bf16 made. */
EmRef em_pack_bf16(Em *e, EmRef v, int lanes) {
  if (v.id == -1) return em_cvt(e, TY_bf16, TY_f32, v, lanes);
  EmRef u = em_conv(e, "bitcast", TY_f32, TY_u32, v, lanes);
  u = em_ins(e, "lshr $t $a, $b", TY_u32, TY_u32, lanes, u, em_kint(e, TY_u32, 16, lanes));
  return em_conv(e, "trunc", TY_u32, TY_u16, u, lanes);
}

static EmRef cvt_from_bf16(Em *e, EmRef v, int lanes) {
  EmRef u = em_conv(e, "zext", TY_u16, TY_u32, v, lanes);
  u = em_ins(e, "shl $t $a, $b", TY_u32, TY_u32, lanes, u, em_kint(e, TY_u32, 16, lanes));
  return em_conv(e, "bitcast", TY_u32, TY_f32, u, lanes);
}

/* The two conversions of float16 for CPUs that have no instruction for them; LLVM would call functions of a
 * compiler's run-time library. */
static EmRef cvt_from_f16(Em *e, EmRef v, int lanes) {
  enum { BIAS = (127 - 15) << 23, EXPONENT = 0x7c00 << 13 };
  EmRef h = em_conv(e, "zext", TY_u16, TY_u32, em_conv(e, "bitcast", TY_f16, TY_u16, v, lanes), lanes);
  EmRef u = em_ins(e, "and $t $a, $b", TY_u32, TY_u32, lanes, h, em_kint(e, TY_u32, 0x7fff, lanes));
  u = em_ins(e, "shl $t $a, $b", TY_u32, TY_u32, lanes, u, em_kint(e, TY_u32, 13, lanes));
  EmRef exponent = em_ins(e, "and $t $a, $b", TY_u32, TY_u32, lanes, u, em_kint(e, TY_u32, EXPONENT, lanes));
  u = em_ins(e, "add $t $a, $b", TY_u32, TY_u32, lanes, u, em_kint(e, TY_u32, BIAS, lanes));
  /* inf and NaN keep the largest exponent; a subnormal number is normalised by a subtraction */
  EmRef top =
      em_ins(e, "icmp eq $t $a, $b", TY_u32, TY_i1, lanes, exponent, em_kint(e, TY_u32, EXPONENT, lanes));
  EmRef special =
      em_ins(e, "add $t $a, $b", TY_u32, TY_u32, lanes, u, em_kint(e, TY_u32, (128 - 16) << 23, lanes));
  EmRef low = em_ins(e, "icmp eq $t $a, $b", TY_u32, TY_i1, lanes, exponent, em_kint(e, TY_u32, 0, lanes));
  EmRef up = em_ins(e, "add $t $a, $b", TY_u32, TY_u32, lanes, u, em_kint(e, TY_u32, 1 << 23, lanes));
  EmRef small =
      em_ins(e, "fsub $t $a, $b", TY_f32, TY_f32, lanes, em_conv(e, "bitcast", TY_u32, TY_f32, up, lanes),
             em_const(mg_ex_float(e->x, TY_f32, 0x1p-14), lanes));
  u = em_select(e, TY_u32, lanes, top, special, u);
  u = em_select(e, TY_u32, lanes, low, em_conv(e, "bitcast", TY_f32, TY_u32, small, lanes), u);
  EmRef sign = em_ins(e, "and $t $a, $b", TY_u32, TY_u32, lanes, h, em_kint(e, TY_u32, 0x8000, lanes));
  sign = em_ins(e, "shl $t $a, $b", TY_u32, TY_u32, lanes, sign, em_kint(e, TY_u32, 16, lanes));
  return em_conv(e, "bitcast", TY_u32, TY_f32, em_ins(e, "or $t $a, $b", TY_u32, TY_u32, lanes, u, sign),
                 lanes);
}

static EmRef cvt_to_f16(Em *e, EmRef v, int lanes) {
  enum { INF16 = (127 + 16) << 23, NORMAL16 = (127 - 14) << 23, REBIAS = -((127 - 15) << 23) + 0xfff };
  EmRef all = em_conv(e, "bitcast", TY_f32, TY_u32, v, lanes);
  EmRef sign = em_ins(e, "and $t $a, $b", TY_u32, TY_u32, lanes, all, em_kint(e, TY_u32, INT32_MIN, lanes));
  EmRef u = em_ins(e, "xor $t $a, $b", TY_u32, TY_u32, lanes, all, sign);
  EmRef nan = em_ins(e, "fcmp uno $t $a, $a", TY_f32, TY_i1, lanes, v, em_none);
  EmRef special =
      em_select(e, TY_u32, lanes, nan, em_kint(e, TY_u32, 0x7e00, lanes), em_kint(e, TY_u32, 0x7c00, lanes));
  /* a number below the normal ones is rounded by an addition that leaves it in the lowest bits */
  EmRef small =
      em_ins(e, "fadd $t $a, $b", TY_f32, TY_f32, lanes, em_conv(e, "bitcast", TY_u32, TY_f32, u, lanes),
             em_const(mg_ex_float(e->x, TY_f32, 0.5), lanes));
  small =
      em_ins(e, "sub $t $a, $b", TY_u32, TY_u32, lanes, em_conv(e, "bitcast", TY_f32, TY_u32, small, lanes),
             em_kint(e, TY_u32, 0x3f000000 /* 0.5 */, lanes));
  EmRef odd = em_ins(e, "lshr $t $a, $b", TY_u32, TY_u32, lanes, u, em_kint(e, TY_u32, 13, lanes));
  odd = em_ins(e, "and $t $a, $b", TY_u32, TY_u32, lanes, odd, em_kint(e, TY_u32, 1, lanes));
  EmRef normal = em_ins(e, "add $t $a, $b", TY_u32, TY_u32, lanes, u, em_kint(e, TY_u32, REBIAS, lanes));
  normal = em_ins(e, "add $t $a, $b", TY_u32, TY_u32, lanes, normal, odd);
  normal = em_ins(e, "lshr $t $a, $b", TY_u32, TY_u32, lanes, normal, em_kint(e, TY_u32, 13, lanes));
  EmRef large = em_ins(e, "icmp uge $t $a, $b", TY_u32, TY_i1, lanes, u, em_kint(e, TY_u32, INF16, lanes));
  EmRef low = em_ins(e, "icmp ult $t $a, $b", TY_u32, TY_i1, lanes, u, em_kint(e, TY_u32, NORMAL16, lanes));
  u = em_select(e, TY_u32, lanes, large, special, em_select(e, TY_u32, lanes, low, small, normal));
  sign = em_ins(e, "lshr $t $a, $b", TY_u32, TY_u32, lanes, sign, em_kint(e, TY_u32, 16, lanes));
  u = em_ins(e, "or $t $a, $b", TY_u32, TY_u32, lanes, u, sign);
  return em_conv(e, "bitcast", TY_u16, TY_f16, em_conv(e, "trunc", TY_u32, TY_u16, u, lanes), lanes);
}

EmRef em_cvt(Em *e, MgTy to, MgTy from, EmRef v, int lanes) {
  if (to == from) return v;
  if (v.id == -1)
    return (EmRef){.id = -1, .k = mg_ex_cvt(e->x, to, v.k), .lanes = (uint8_t)lanes, .level = v.level};
  if (from == TY_bf16) return em_cvt(e, to, TY_f32, cvt_from_bf16(e, v, lanes), lanes);
  if (from == TY_f16 && (to != TY_f32 || !e->t->f16c)) {
    EmRef wide = e->t->f16c ? em_conv(e, "fpext", from, TY_f32, v, lanes) : cvt_from_f16(e, v, lanes);
    return em_cvt(e, to, TY_f32, wide, lanes);
  }
  if (to == TY_i1) {
    EmRef zero =
        em_const(mg_ty_is_float(from) ? mg_ex_float(e->x, from, 0) : mg_ex_int(e->x, from, 0), lanes);
    return em_ins(e, mg_ty_is_float(from) ? "fcmp une $t $a, $b" : "icmp ne $t $a, $b", from, TY_i1, lanes, v,
                  zero);
  }
  if (to == TY_bf16) return cvt_to_bf16(e, em_cvt(e, TY_f32, from, v, lanes), lanes);
  if (to == TY_f16 && from != TY_f32) return em_cvt(e, to, TY_f32, em_cvt(e, TY_f32, from, v, lanes), lanes);
  if (to == TY_f16 && !e->t->f16c) return cvt_to_f16(e, v, lanes);
  bool ff = mg_ty_is_float(from), tf = mg_ty_is_float(to);
  int fs = from == TY_i1 ? 0 : mg_ty_size(from), ts = mg_ty_size(to);
  if (ff && tf) return em_conv(e, ts > fs ? "fpext" : "fptrunc", from, to, v, lanes);
  if (tf) return em_conv(e, mg_ty_is_signed(from) ? "sitofp" : "uitofp", from, to, v, lanes);
  if (ff) { /* through the intermediate type, see scalar.c */
    MgTy mid = to == TY_i8 || to == TY_i16 || to == TY_i32 || to == TY_u16 ? TY_i32 : TY_i64;
    if (to == TY_u64) {
      EmRef half = em_const(mg_ex_float(e->x, from, 9223372036854775808.0), lanes);
      EmRef big = em_ins(e, "fcmp oge $t $a, $b", from, TY_i1, lanes, v, half);
      EmRef low = em_conv(
          e, "fptosi", from, TY_i64,
          em_select(e, from, lanes, big, em_ins(e, "fsub $t $a, $b", from, from, lanes, v, half), v), lanes);
      EmRef top =
          em_ins(e, "xor $t $a, $b", TY_i64, TY_i64, lanes, low, em_kint(e, TY_i64, INT64_MIN, lanes));
      return em_select(e, TY_i64, lanes, big, top, low);
    }
    return em_cvt(e, to, mid, em_conv(e, "fptosi", from, mid, v, lanes), lanes);
  }
  if (ts == fs) return v;
  return em_conv(e, ts < fs ? "trunc" : mg_ty_is_signed(from) ? "sext" : "zext", from, to, v, lanes);
}
