/* Registers and instructions of PTX: one function prints one operation on values that are in registers.
 * In: register numbers by type.  Out: text in Px.b, a new register. */
#include <string.h>
#include "ptx/ptx_priv.h"

const char *const px_prefix[R__COUNT] = {"%p", "%h", "%r", "%rd", "%f", "%d"};

PxClass px_class(MgTy t) {
  switch (t) {
  case TY_i1: return R_p;
  case TY_f16:
  case TY_bf16: return R_h;
  case TY_f32: return R_f;
  case TY_f64: return R_d;
  default: return mg_ty_size(t) == 8 ? R_rd : R_r; /* 8- and 16-bit integers are kept extended in 32 bits */
  }
}

const char *px_arith_ty(MgTy t) {
  switch (t) {
  case TY_i1: return "pred";
  case TY_f16:
  case TY_bf16: return "b16";
  case TY_f32: return "f32";
  case TY_f64: return "f64";
  default:
    return mg_ty_size(t) == 8 ? (mg_ty_is_signed(t) ? "s64" : "u64") : mg_ty_is_signed(t) ? "s32" : "u32";
  }
}

const char *px_bits_ty(MgTy t) {
  if (t == TY_i1) return "pred";
  if (mg_ty_size(t) == 8) return "b64";
  return mg_ty_size(t) == 2 && mg_ty_is_float(t) ? "b16" : "b32";
}

const char *px_mem_ty(MgTy t) {
  static const char *const name[] = {"u8",  "s8",  "u8",  "s16", "u16", "s32", "u32",
                                     "s64", "u64", "b16", "b16", "f32", "f64"};
  return name[t];
}

int px_regs(Px *e, MgTy t, int n) {
  int first = e->nreg[px_class(t)];
  e->nreg[px_class(t)] += n;
  return first;
}
int px_reg(Px *e, MgTy t) { return px_regs(e, t, 1); }

void px_put(Px *e, MgTy t, int id) { PUT("%s%d", px_prefix[px_class(t)], id); }

/* The type of a plain move or select. */
static const char *text_move_ty(MgTy t) {
  return t == TY_f32 || t == TY_f64 ? px_arith_ty(t) : px_bits_ty(t);
}

void px_move(Px *e, MgTy t, int to, int from) {
  PUT("  mov.%s ", text_move_ty(t));
  px_put(e, t, to);
  PUT(", ");
  px_put(e, t, from);
  PUT(";\n");
}

/* Small integers wrap after every operation. */
static void text_normalize(Px *e, MgTy t, int id) {
  if (t == TY_i8) PUT("  cvt.s32.s8 %%r%d, %%r%d;\n", id, id);
  else if (t == TY_i16) PUT("  cvt.s32.s16 %%r%d, %%r%d;\n", id, id);
  else if (t == TY_u8) PUT("  and.b32 %%r%d, %%r%d, 255;\n", id, id);
  else if (t == TY_u16) PUT("  and.b32 %%r%d, %%r%d, 65535;\n", id, id);
}

/* Prints a template of scalar_ops.def. */
static int text_apply(Px *e, const char *tmpl, MgTy ty, MgTy rty, const int *s) {
  int d = px_reg(e, rty), count = -1;
  if (strstr(tmpl, "$s")) { /* shift counts are 32 bits wide */
    count = px_reg(e, TY_u32);
    if (mg_ty_size(ty) == 8) PUT("  cvt.u32.u64 %%r%d, %%rd%d;\n", count, s[1]);
    else PUT("  mov.b32 %%r%d, %%r%d;\n", count, s[1]);
  }
  PUT("  ");
  for (const char *p = tmpl; *p; p++) {
    if (*p != '$') {
      mg_sb_putc(&e->b, *p);
      continue;
    }
    switch (*++p) {
    case 'd': px_put(e, rty, d); break;
    case 'a': px_put(e, ty, s[0]); break;
    case 'b':
      if (p > tmpl + 1 && p[-2] == '.') PUT("%s", px_bits_ty(ty)); /* ".$b" is the bit type */
      else px_put(e, ty, s[1]);
      break;
    case 'c': px_put(e, ty, s[2]); break;
    case 's': PUT("%%r%d", count); break;
    default: PUT("%s", px_arith_ty(ty)); break;
    }
  }
  mg_sb_putc(&e->b, '\n');
  if (rty == ty) text_normalize(e, ty, d);
  return d;
}

/* 2 ulp: the argument becomes a whole number of doublings and a rest of at most a half. */
static int text_exp(Px *e, int a) {
  int d = px_regs(e, TY_f32, 5), x = d + 1, j = d + 2, f = d + 3, s = d + 4;
  PUT("  max.NaN.f32 %%f%d, %%f%d, 0fC2D00000;\n", x, a); /* -104: underflows */
  PUT("  mul.rn.f32 %%f%d, %%f%d, 0f3FB8AA3B;\n  cvt.rni.f32.f32 %%f%d, %%f%d;\n", j, x, j, j);
  PUT("  min.f32 %%f%d, %%f%d, 0f42FE0000;\n  neg.f32 %%f%d, %%f%d;\n", j, j, f, j); /* 2^128 is no float */
  PUT("  fma.rn.f32 %%f%d, %%f%d, 0f3FB8AA3B, %%f%d;\n  fma.rn.f32 %%f%d, %%f%d, 0f32A57060, %%f%d;\n", f, x,
      f, f, x, f);
  PUT("  ex2.approx.f32 %%f%d, %%f%d;\n  ex2.approx.f32 %%f%d, %%f%d;\n  mul.rn.f32 %%f%d, %%f%d, %%f%d;\n",
      f, f, s, j, d, f, s);
  return d;
}

/* 4 ulp: 1 - 2 / (e^2x + 1); small arguments, which that would lose, by the first terms of the series. */
static int text_tanh(Px *e, int a) {
  static const unsigned term[] = {0xBC11371B, 0x3CB327A4, 0xBD5D0DD1, 0x3E088889,
                                  0xBEAAAAAB}; /* x^11 ... x^3 */
  int d = px_regs(e, TY_f32, 5), t = d + 1, q = d + 2, x2 = d + 3, p = d + 4, small = px_reg(e, TY_i1);
  PUT("  abs.f32 %%f%d, %%f%d;\n  mul.rn.f32 %%f%d, %%f%d, 0f4038AA3B;\n  ex2.approx.f32 %%f%d, %%f%d;\n", t,
      a, q, t, q, q);
  PUT("  add.rn.f32 %%f%d, %%f%d, 0f3F800000;\n  rcp.approx.f32 %%f%d, %%f%d;\n", q, q, q, q);
  PUT("  fma.rn.f32 %%f%d, %%f%d, 0fC0000000, 0f3F800000;\n  copysign.f32 %%f%d, %%f%d, %%f%d;\n", q, q, q, a,
      q);
  PUT("  mul.rn.f32 %%f%d, %%f%d, %%f%d;\n  mov.f32 %%f%d, 0f%08X;\n", x2, a, a, p, term[0]);
  for (int i = 1; i < 5; i++) PUT("  fma.rn.f32 %%f%d, %%f%d, %%f%d, 0f%08X;\n", p, p, x2, term[i]);
  PUT("  mul.rn.f32 %%f%d, %%f%d, %%f%d;\n  fma.rn.f32 %%f%d, %%f%d, %%f%d, %%f%d;\n", p, p, x2, p, p, a, a);
  PUT("  setp.lt.f32 %%p%d, %%f%d, 0f3EB33333;\n  selp.f32 %%f%d, %%f%d, %%f%d, %%p%d;\n", small, t, d, p, q,
      small);
  return d;
}

int px_tanh_plus_one(Px *e, int a) {
  int d = px_reg(e, TY_f32);
  PUT("  mul.rn.f32 %%f%d, %%f%d, 0fC038AA3B;\n  ex2.approx.f32 %%f%d, %%f%d;\n", d, a, d, d); /* e^-2x */
  PUT("  add.rn.f32 %%f%d, %%f%d, 0f3F800000;\n  rcp.approx.f32 %%f%d, %%f%d;\n  add.rn.f32 %%f%d, %%f%d, "
      "%%f%d;\n",
      d, d, d, d, d, d, d);
  return d;
}

/* Rows of mg_scalar_on_gpu. */
static int text_function(Px *e, MgScalarOp o, int a) {
  if (o == OP_tanh) return text_tanh(e, a);
  if (o == OP_exp) return text_exp(e, a);
  int d = px_reg(e, TY_f32);
  PUT("  ex2.approx.f32 %%f%d, %%f%d;\n", d, a);
  return d;
}

int px_apply(Px *e, MgScalarOp o, MgTy ty, MgTy rty, const int *s) {
  if (mg_scalar_on_gpu(o, ty)) return text_function(e, o, s[0]);
  const char *t = mg_scalar_info[o].px[mg_scalar_class(ty)];
  if (t) return text_apply(e, t, ty, rty, s);
  e->rc = MG_UNSUP;
  return 0;
}

int px_op(Px *e, MgScalarOp o, MgTy ty, int a, int b) {
  int s[3] = {a, b, 0};
  return px_apply(e, o, ty, mg_scalar_info[o].rule == SOR_PRED ? TY_i1 : ty, s);
}

int px_op32(Px *e, const char *op, int a, int64_t imm) {
  int d = px_reg(e, TY_u32);
  PUT("  %s %%r%d, %%r%d, %lld;\n", op, d, a, (long long)imm);
  return d;
}

int px_constant(Px *e, ExprRef r) {
  const MgExpr k = *mg_expr(e->x, r);
  MgScalar v = {.i = k.u.i};
  int d = px_reg(e, k.ty);
  if (k.ty == TY_i1) {
    PUT("  setp.%s.u32 %%p%d, 0, 0;\n", k.u.i ? "eq" : "ne", d);
    return d;
  }
  PUT("  mov.%s ", text_move_ty(k.ty));
  px_put(e, k.ty, d);
  if (k.ty == TY_f32) PUT(", 0f%08X;\n", (unsigned)mg_scalar_bits(TY_f32, v));
  else if (k.ty == TY_f64) PUT(", 0d%016llX;\n", (unsigned long long)mg_scalar_bits(TY_f64, v));
  else if (mg_ty_is_float(k.ty)) PUT(", %u;\n", (unsigned)mg_scalar_bits(k.ty, v));
  else PUT(", %lld;\n", (long long)v.i);
  return d;
}

int px_int(Px *e, MgTy t, int64_t v) {
  ExprRef k = mg_ex_int(e->x, t, v);
  return k ? px_constant(e, k) : 0;
}

static int text_zero(Px *e, MgTy t) {
  ExprRef k = mg_ty_is_float(t) ? mg_ex_float(e->x, t, 0) : mg_ex_int(e->x, t, 0);
  return k ? px_constant(e, k) : 0;
}

/* Between types of which neither is bf16, f16 or i1, or from f32 to one of these. */
static int text_convert(Px *e, MgTy to, MgTy from, int a) {
  bool ff = mg_ty_is_float(from), tf = mg_ty_is_float(to);
  if (ff && to == TY_u8 && from != TY_f16) /* PyTorch goes by int64: -1 is 255 */
    return text_convert(e, to, TY_i64, text_convert(e, TY_i64, from, a));
  int d = px_reg(e, to);
  if (to == TY_bf16) PUT("  cvt.rn.bf16.f32 %%h%d, %%f%d;\n", d, a);
  else if (to == TY_f16) PUT("  cvt.rn.f16.f32 %%h%d, %%f%d;\n", d, a);
  else if (from == TY_f16) PUT("  cvt.f32.f16 %%f%d, %%h%d;\n", d, a);
  else {
    const char *mode = tf && (!ff || to == TY_f32) ? ".rn" : ff && !tf ? ".rzi" : "";
    if (!ff && !tf && px_class(to) == px_class(from)) PUT("  mov.%s ", px_bits_ty(to));
    else PUT("  cvt%s.%s.%s ", mode, px_arith_ty(to), px_arith_ty(from));
    px_put(e, to, d);
    PUT(", ");
    px_put(e, from, a);
    PUT(";\n");
    text_normalize(e, to, d);
  }
  return d;
}

int px_convert(Px *e, MgTy to, MgTy from, int a) {
  if (to == from) return a;
  if (from == TY_bf16) {
    int u = px_reg(e, TY_u32), f = px_reg(e, TY_f32), zero = px_reg(e, TY_bf16);
    PUT("  mov.b16 %%h%d, 0;\n  mov.b32 %%r%d, {%%h%d, %%h%d};\n  mov.b32 %%f%d, %%r%d;\n", zero, u, zero, a,
        f, u);
    return px_convert(e, to, TY_f32, f);
  }
  bool half = from == TY_f16 || to == TY_f16 || to == TY_bf16;
  if (half && from != TY_f32 && to != TY_f32)
    return px_convert(e, to, TY_f32, px_convert(e, TY_f32, from, a));
  if (to == TY_i1) return px_op(e, OP_ne, from, a, text_zero(e, from));
  if (from == TY_i1) {
    int u = px_reg(e, TY_u32);
    PUT("  selp.u32 %%r%d, 1, 0, %%p%d;\n", u, a);
    return px_convert(e, to, TY_u32, u);
  }
  return text_convert(e, to, from, a);
}

int px_bitcast(Px *e, MgTy to, MgTy from, int a) {
  int d = px_reg(e, to);
  if (px_class(to) == R_h && px_class(from) == R_r)
    PUT("  cvt.u16.u32 "); /* 16-bit integers live in 32 bits */
  else if (px_class(to) == R_r && px_class(from) == R_h) PUT("  cvt.u32.u16 ");
  else PUT("  mov.%s ", px_bits_ty(to));
  px_put(e, to, d);
  PUT(", ");
  px_put(e, from, a);
  PUT(";\n");
  if (!mg_ty_is_float(to)) text_normalize(e, to, d);
  return d;
}

int px_and(Px *e, int p, int q) {
  if (p < 0 || p == q) return q;
  if (q < 0) return p;
  int d = px_reg(e, TY_i1);
  PUT("  and.pred %%p%d, %%p%d, %%p%d;\n", d, p, q);
  return d;
}

int px_select(Px *e, MgTy t, int p, int a, int b) {
  int d = px_reg(e, t);
  if (t == TY_i1) {
    int n = px_reg(e, TY_i1), q = px_and(e, p, a);
    PUT("  not.pred %%p%d, %%p%d;\n  and.pred %%p%d, %%p%d, %%p%d;\n  or.pred %%p%d, %%p%d, %%p%d;\n", n, p,
        n, n, b, d, q, n);
    return d;
  }
  PUT("  selp.%s ", text_move_ty(t));
  px_put(e, t, d);
  PUT(", ");
  px_put(e, t, a);
  PUT(", ");
  px_put(e, t, b);
  PUT(", %%p%d;\n", p);
  return d;
}

int px_combine(Px *e, MgRedOp o, MgTy ty, int a, int b) {
  static const MgScalarOp by[] = {
      [RED_sum] = OP_add, [RED_prod] = OP_mul, [RED_any] = OP_or, [RED_all] = OP_and, [RED_xor] = OP_xor};
  if (o != RED_max && o != RED_min) return px_op(e, by[o], ty, a, b);
  if (ty == TY_f32) { /* a NaN wins */
    int d = px_reg(e, ty);
    PUT("  %s.NaN.f32 %%f%d, %%f%d, %%f%d;\n", o == RED_max ? "max" : "min", d, a, b);
    return d;
  }
  if (!mg_ty_is_float(ty)) return px_op(e, o == RED_max ? OP_max : OP_min, ty, a, b);
  int better = o == RED_max ? px_op(e, OP_lt, ty, b, a) : px_op(e, OP_lt, ty, a, b);
  int r = px_select(e, ty, better, a, b);
  return px_select(e, ty, px_op(e, OP_isnan, ty, a, 0), a,
                   r); /* b NaN: neither test holds for a, so b is taken */
}
