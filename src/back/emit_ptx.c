/* One fused kernel to PTX text.
 * In: a kernel as for emit_llvm.  Out: .entry name(p0.., s0.., n): a 64-bit pointer per kernel buffer in argument order,
 * the value of every symbol, and the number of outer points.  mg_ptx_launch says what one outer point is:
 *   thread per point  pointwise kernels (every range is outer) and reductions whose results lie side by side; inner
 *                     loops are serial; points are taken in grid-stride order, so any grid is right;
 *   block per row     the other kernels: PTX_THREADS threads share the inner loops of one row, reductions meet in
 *                     shared memory, row buffers are shared memory; rows are taken in grid-stride order.
 * PTX registers are mutable, so accumulators and loop variables are plain registers.  MG_UNSUP: scans, scatters,
 * argmax, rows without a template, row buffers beyond shared memory; the caller has another way. */
#include "back/back.h"
#include <string.h>

enum { PTX_THREADS = 256, PTX_SHARED = 40960, MAX_SCOPE = 24 };

typedef struct PxMemo { /* register of a node, valid in the scope with this serial */
  int id;
  uint32_t serial;
  uint8_t depth;
} PxMemo;

typedef struct Px {
  MgSched *s;
  MgExprs *x;
  MgCtx *c;
  const MgKernel *k;
  MgLoop *own;
  MgLaunch launch;
  MgStrbuf b;              /* body text; declarations are known at the end */
  int nreg[6], nlabel;     /* registers per class */
  PxMemo *memo; uint32_t cap;
  uint32_t serial[MAX_SCOPE], nserial;
  int depth;
  int idx[MG_MAX_IDX];     /* register of each bound index (class rd) */
  int *red;                /* per nest: register of its reduced value */
  int *arg;                /* per buffer: argument number, -1 none */
  bool *shared;            /* per buffer: lives in shared memory */
  MgRc rc;
} Px;

/* Register classes: predicate, 16 bits, 32 bits, 64 bits, f32, f64. */
enum { R_p, R_h, R_r, R_rd, R_f, R_d };
static const char *const reg_prefix[] = {"%p", "%h", "%r", "%rd", "%f", "%d"};
static const char *const reg_decl[] = {"pred", "b16", "b32", "b64", "f32", "f64"};

static int class_of(MgTy t) {
  switch (t) {
  case TY_i1: return R_p;
  case TY_f16: case TY_bf16: return R_h;
  case TY_f32: return R_f;
  case TY_f64: return R_d;
  default: return mg_ty_size(t) == 8 ? R_rd : R_r; /* 8- and 16-bit integers are kept extended in 32 bits */
  }
}

static const char *arith_ty(MgTy t) {
  switch (t) {
  case TY_i1: return "pred";
  case TY_f16: case TY_bf16: return "b16";
  case TY_f32: return "f32";
  case TY_f64: return "f64";
  default: return mg_ty_size(t) == 8 ? (mg_ty_is_signed(t) ? "s64" : "u64") : mg_ty_is_signed(t) ? "s32" : "u32";
  }
}
static const char *bits_ty(MgTy t) { return t == TY_i1 ? "pred" : mg_ty_size(t) == 8 ? "b64" : mg_ty_size(t) == 2 && mg_ty_is_float(t) ? "b16" : "b32"; }
static const char *mem_ty(MgTy t) {
  static const char *const name[] = {"u8", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64", "b16", "b16", "f32", "f64"};
  return name[t];
}

static int new_reg(Px *e, MgTy t) { return e->nreg[class_of(t)]++; }
#define PUT(...) mg_sb_printf(&e->b, __VA_ARGS__)

static void put_reg(Px *e, MgTy t, int id) { PUT("%s%d", reg_prefix[class_of(t)], id); }

static void put_const(Px *e, MgStrbuf *b, const MgExpr *k) {
  MgScalar v = {.i = k->u.i};
  if (k->ty == TY_f32) mg_sb_printf(b, "0f%08X", (unsigned)mg_scalar_bits(TY_f32, v));
  else if (k->ty == TY_f64) mg_sb_printf(b, "0d%016llX", (unsigned long long)mg_scalar_bits(TY_f64, v));
  else if (k->ty == TY_f16 || k->ty == TY_bf16) mg_sb_printf(b, "%u", (unsigned)mg_scalar_bits(k->ty, v));
  else mg_sb_printf(b, "%lld", (long long)v.i);
  (void)e;
}

/* ---- scopes ---- */

static void scope_open(Px *e) {
  if (e->depth + 1 == MAX_SCOPE) e->rc = MG_UNSUP;
  else e->serial[++e->depth] = ++e->nserial;
}
static void scope_close(Px *e) { e->depth--; }

static int value(Px *e, ExprRef r);

/* ---- instructions ---- */

/* Small integers wrap after every operation. */
static void normalize(Px *e, MgTy t, int id) {
  if (t == TY_i8) PUT("  cvt.s32.s8 %%r%d, %%r%d;\n", id, id);
  else if (t == TY_i16) PUT("  cvt.s32.s16 %%r%d, %%r%d;\n", id, id);
  else if (t == TY_u8) PUT("  and.b32 %%r%d, %%r%d, 255;\n", id, id);
  else if (t == TY_u16) PUT("  and.b32 %%r%d, %%r%d, 65535;\n", id, id);
}

static int apply(Px *e, const char *tmpl, MgTy ty, MgTy rty, const int *s) {
  int d = new_reg(e, rty), count = -1;
  if (strstr(tmpl, "$s")) { /* shift counts are 32 bits wide */
    count = new_reg(e, TY_u32);
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
    case 'd': put_reg(e, rty, d); break;
    case 'a': put_reg(e, ty, s[0]); break;
    case 'b':
      if (p > tmpl + 1 && p[-2] == '.') PUT("%s", bits_ty(ty)); /* ".$b" is the bit type */
      else put_reg(e, ty, s[1]);
      break;
    case 'c': put_reg(e, ty, s[2]); break;
    case 's': PUT("%%r%d", count); break;
    default: PUT("%s", arith_ty(ty)); break;
    }
  }
  mg_sb_putc(&e->b, '\n');
  if (rty == ty) normalize(e, ty, d);
  return d;
}

static int op(Px *e, MgScalarOp o, MgTy ty, int a, int b) {
  int s[3] = {a, b, 0};
  const char *t = mg_scalar_info[o].px[mg_scalar_class(ty)];
  if (!t) {
    e->rc = MG_UNSUP;
    return 0;
  }
  return apply(e, t, ty, mg_scalar_info[o].rule == SOR_PRED ? TY_i1 : ty, s);
}

static int constant(Px *e, ExprRef r) {
  const MgExpr k = *mg_expr(e->x, r);
  int d = new_reg(e, k.ty);
  if (k.ty == TY_i1) PUT("  setp.%s.u32 %%p%d, 0, 0;\n", k.u.i ? "eq" : "ne", d);
  else {
    PUT("  mov.%s ", k.ty == TY_f32 || k.ty == TY_f64 ? arith_ty(k.ty) : bits_ty(k.ty));
    put_reg(e, k.ty, d);
    PUT(", ");
    put_const(e, &e->b, &k);
    PUT(";\n");
  }
  return d;
}
static int const_int(Px *e, MgTy t, int64_t v) { return constant(e, mg_ex_int(e->x, t, v)); }

static int convert(Px *e, MgTy to, MgTy from, int a) {
  if (to == from) return a;
  bool ff = mg_ty_is_float(from), tf = mg_ty_is_float(to);
  int d = new_reg(e, to);
  if (from == TY_bf16) {
    int u = new_reg(e, TY_u32), f = new_reg(e, TY_f32);
    PUT("  cvt.u32.u16 %%r%d, %%h%d;\n  shl.b32 %%r%d, %%r%d, 16;\n  mov.b32 %%f%d, %%r%d;\n", u, a, u, u, f, u);
    return convert(e, to, TY_f32, f);
  }
  if (from == TY_f16 && to != TY_f32) return convert(e, to, TY_f32, convert(e, TY_f32, from, a));
  if ((to == TY_f16 || to == TY_bf16) && from != TY_f32) return convert(e, to, TY_f32, convert(e, TY_f32, from, a));
  if (to == TY_i1) {
    int zero = constant(e, ff ? mg_ex_float(e->x, from, 0) : mg_ex_int(e->x, from, 0));
    return op(e, OP_ne, from, a, zero);
  }
  if (from == TY_i1) {
    int u = new_reg(e, TY_u32);
    PUT("  selp.u32 %%r%d, 1, 0, %%p%d;\n", u, a);
    return convert(e, to, TY_u32, u);
  }
  if (to == TY_bf16) PUT("  cvt.rn.bf16.f32 %%h%d, %%f%d;\n", d, a);
  else if (to == TY_f16) PUT("  cvt.rn.f16.f32 %%h%d, %%f%d;\n", d, a);
  else if (from == TY_f16) PUT("  cvt.f32.f16 %%f%d, %%h%d;\n", d, a);
  else {
    const char *mode = tf && (!ff || to == TY_f32) ? ".rn" : ff && !tf ? ".rzi" : "";
    if (!ff && !tf && class_of(to) == class_of(from)) PUT("  mov.%s ", bits_ty(to));
    else PUT("  cvt%s.%s.%s ", mode, arith_ty(to), arith_ty(from));
    put_reg(e, to, d);
    PUT(", ");
    put_reg(e, from, a);
    PUT(";\n");
    normalize(e, to, d);
  }
  return d;
}

static int bitcast(Px *e, MgTy to, MgTy from, int a) {
  int d = new_reg(e, to);
  if (class_of(to) == R_h && class_of(from) == R_r) PUT("  cvt.u16.u32 "); /* 16-bit integers live in 32 bits */
  else if (class_of(to) == R_r && class_of(from) == R_h) PUT("  cvt.u32.u16 ");
  else PUT("  mov.%s ", bits_ty(to));
  put_reg(e, to, d);
  PUT(", ");
  put_reg(e, from, a);
  PUT(";\n");
  if (!mg_ty_is_float(to)) normalize(e, to, d);
  return d;
}

static int select_reg(Px *e, MgTy t, int p, int a, int b) {
  int d = new_reg(e, t);
  if (t == TY_i1) {
    int q = new_reg(e, TY_i1), n = new_reg(e, TY_i1);
    PUT("  and.pred %%p%d, %%p%d, %%p%d;\n  not.pred %%p%d, %%p%d;\n  and.pred %%p%d, %%p%d, %%p%d;\n  or.pred %%p%d, %%p%d, %%p%d;\n", d,
        p, a, n, p, q, n, b, d, d, q);
    return d;
  }
  PUT("  selp.%s ", t == TY_f32 || t == TY_f64 ? arith_ty(t) : bits_ty(t));
  put_reg(e, t, d);
  PUT(", ");
  put_reg(e, t, a);
  PUT(", ");
  put_reg(e, t, b);
  PUT(", %%p%d;\n", p);
  return d;
}

/* ---- memory ---- */

static int address(Px *e, BufRef b, MgTy ty, ExprRef index) {
  int i = value(e, index), a = new_reg(e, TY_i64), d = new_reg(e, TY_i64);
  PUT("  mul.lo.s64 %%rd%d, %%rd%d, %d;\n", a, i, mg_ty_size(ty));
  if (e->shared[b]) {
    int base = new_reg(e, TY_i64);
    PUT("  mov.u64 %%rd%d, lb%u;\n  add.s64 %%rd%d, %%rd%d, %%rd%d;\n", base, b, d, base, a);
  } else {
    PUT("  add.s64 %%rd%d, %%q%d, %%rd%d;\n", d, e->arg[b], a);
  }
  return d;
}

static int load(Px *e, MgExpr n) {
  BufRef b = (BufRef)n.u.i;
  int p = n.src[1] ? value(e, n.src[1]) : -1, other = n.src[1] ? value(e, n.src[2]) : -1;
  int a = address(e, b, n.ty, n.src[0]);
  MgTy reg = n.ty == TY_i1 ? TY_u8 : n.ty;
  int d = new_reg(e, reg);
  if (p >= 0) { /* where the mask is false: zero bits, replaced below */
    PUT("  mov.%s ", n.ty == TY_f32 || n.ty == TY_f64 ? arith_ty(n.ty) : bits_ty(reg));
    put_reg(e, reg, d);
    PUT(n.ty == TY_f32 ? ", 0f00000000;\n" : n.ty == TY_f64 ? ", 0d0000000000000000;\n" : ", 0;\n");
    PUT("  @%%p%d", p);
  }
  PUT("  ld.%s.%s ", e->shared[b] ? "shared" : "global", mem_ty(n.ty));
  put_reg(e, reg, d);
  PUT(", [%%rd%d];\n", a);
  if (n.ty == TY_i1) d = op(e, OP_ne, TY_u8, d, const_int(e, TY_u8, 0));
  return p < 0 ? d : select_reg(e, n.ty, p, d, other);
}

static void store(Px *e, const MgLoop *l) {
  MgTy ty = mg_dtype_ty((MgDtype)e->s->buf[l->buf].dtype), reg = ty == TY_i1 ? TY_u8 : ty;
  ExprRef sv = mg_ex_cvt(e->x, ty, l->value);
  if (!sv) return;
  int v = value(e, sv), p = l->mask ? value(e, l->mask) : -1;
  if (e->s->buf[l->buf].kind == MB_local && !e->shared[l->buf]) { /* kept in its register: see forward() */
    ExprRef ld = mg_ex_load(e->x, ty, l->buf, l->index, 0, 0);
    if (!ld || ld >= e->cap) return;
    e->memo[ld] = (PxMemo){.id = v, .serial = e->serial[e->depth], .depth = (uint8_t)e->depth};
    return;
  }
  if (ty == TY_i1) v = convert(e, TY_u8, TY_i1, v);
  int a = address(e, l->buf, ty, l->index);
  if (p >= 0) PUT("  @%%p%d", p);
  PUT("  st.%s.%s [%%rd%d], ", e->shared[l->buf] ? "shared" : "global", mem_ty(ty), a);
  put_reg(e, reg, v);
  PUT(";\n");
}

/* ---- values ---- */

static bool memo_room(Px *e) {
  uint32_t cap = e->x->n + e->x->n / 2 + 256;
  if (e->x->n <= e->cap) return true;
  e->memo = mg_ctx_grow(e->c, e->memo, e->cap * sizeof *e->memo, cap * sizeof *e->memo);
  if (!e->memo) e->rc = MG_NOMEM;
  else e->cap = cap;
  return e->memo != NULL;
}

static int node(Px *e, ExprRef r) {
  const MgExpr n = *mg_expr(e->x, r);
  int s[3] = {0, 0, 0};
  switch (n.op) {
  case OP_const: return constant(e, r);
  case OP_sym: {
    int d = new_reg(e, TY_i64);
    PUT("  mov.b64 %%rd%d, %%s%lld;\n", d, (long long)n.u.i);
    return d;
  }
  case OP_idx: return e->idx[n.u.i];
  case OP_red: return e->red[n.u.i];
  case OP_load: return load(e, n);
  default: break;
  }
  for (int i = 0; i < n.nsrc; i++) s[i] = value(e, n.src[i]);
  MgTy from = mg_expr(e->x, n.src[0])->ty;
  if (n.op == OP_cvt) return convert(e, n.ty, from, s[0]);
  if (n.op == OP_bitcast) return bitcast(e, n.ty, from, s[0]);
  if (n.op == OP_where) return select_reg(e, n.ty, s[0], s[1], s[2]);
  const char *t = mg_scalar_info[n.op].px[mg_scalar_class(from)];
  if (!t) {
    e->rc = MG_UNSUP;
    return 0;
  }
  return apply(e, t, from, n.ty, s);
}

static int value(Px *e, ExprRef r) {
  if (e->rc || e->x->nomem || !memo_room(e)) return 0;
  PxMemo *m = &e->memo[r];
  if (m->serial && m->depth <= e->depth && e->serial[m->depth] == m->serial) return m->id;
  int id = node(e, r);
  if (memo_room(e)) e->memo[r] = (PxMemo){.id = id, .serial = e->serial[e->depth], .depth = (uint8_t)e->depth};
  return id;
}

/* ---- loops ---- */

typedef struct Loop {
  int label, var, end, step;
} Loop;

/* for (var = from; var < end; var += step), all 64-bit registers */
static Loop loop_open(Px *e, int from, int end, int step) {
  Loop l = {.label = e->nlabel++, .var = new_reg(e, TY_i64), .end = end, .step = step};
  int p = new_reg(e, TY_i1);
  PUT("  mov.b64 %%rd%d, %%rd%d;\nL%d:\n  setp.ge.s64 %%p%d, %%rd%d, %%rd%d;\n  @%%p%d bra X%d;\n", l.var, from, l.label, p, l.var, end,
      p, l.label);
  scope_open(e);
  return l;
}
static void loop_close(Px *e, const Loop *l) {
  scope_close(e);
  PUT("  add.s64 %%rd%d, %%rd%d, %%rd%d;\n  bra.uni L%d;\nX%d:\n", l->var, l->var, l->step, l->label, l->label);
}

/* Takes flat = ((i_from * n) + ...) apart into idx(from..to). */
static void unflatten(Px *e, int flat, const SymRef *range, int from, int to) {
  for (int k = to - 1; k >= from; k--) {
    if (k == from) {
      e->idx[k] = flat;
      return;
    }
    int n = value(e, range[k]), q = new_reg(e, TY_i64), r = new_reg(e, TY_i64);
    PUT("  rem.s64 %%rd%d, %%rd%d, %%rd%d;\n  div.s64 %%rd%d, %%rd%d, %%rd%d;\n", r, flat, n, q, flat, n);
    e->idx[k] = r;
    flat = q;
  }
}

static int combine(Px *e, MgRedOp o, MgTy ty, int a, int b) {
  static const MgScalarOp by[] = {[RED_sum] = OP_add, [RED_prod] = OP_mul, [RED_any] = OP_or, [RED_all] = OP_and, [RED_xor] = OP_xor};
  if (o != RED_max && o != RED_min) return op(e, by[o], ty, a, b);
  if (!mg_ty_is_float(ty)) return op(e, o == RED_max ? OP_max : OP_min, ty, a, b);
  int better = o == RED_max ? op(e, OP_lt, ty, b, a) : op(e, OP_lt, ty, a, b);
  int r = select_reg(e, ty, better, a, b);
  r = select_reg(e, ty, op(e, OP_isnan, ty, a, 0), a, r);
  return r; /* b NaN: neither test holds for a, so b is taken */
}

static void move(Px *e, MgTy t, int to, int from) {
  PUT("  mov.%s ", t == TY_f32 || t == TY_f64 ? arith_ty(t) : bits_ty(t));
  put_reg(e, t, to);
  PUT(", ");
  put_reg(e, t, from);
  PUT(";\n");
}

/* Joins the accumulators of a block's threads; every thread gets the result. */
static int block_reduce(Px *e, MgRedOp o, MgTy ty, int acc) {
  MgTy mem = ty == TY_i1 ? TY_u8 : ty;
  const char *mt = mem_ty(mem);
  int at = new_reg(e, TY_i64), tid = new_reg(e, TY_u32), base = new_reg(e, TY_i64), res;
  PUT("  mov.u32 %%r%d, %%tid.x;\n  cvt.u64.u32 %%rd%d, %%r%d;\n  shl.b64 %%rd%d, %%rd%d, 3;\n  mov.u64 %%rd%d, partial;\n", tid, at, tid,
      at, at, base);
  PUT("  add.s64 %%rd%d, %%rd%d, %%rd%d;\n", at, at, base);
  for (int half = PTX_THREADS; half >= 1; half /= 2) {
    int v = ty == TY_i1 ? convert(e, TY_u8, TY_i1, acc) : acc;
    if (half < PTX_THREADS) { /* the lower half takes in the upper one */
      int p = new_reg(e, TY_i1), skip = e->nlabel++, w = new_reg(e, mem);
      PUT("  setp.ge.u32 %%p%d, %%r%d, %d;\n  @%%p%d bra X%d;\n  ld.shared.%s ", p, tid, half, p, skip, mt);
      put_reg(e, mem, w);
      PUT(", [%%rd%d+%d];\n", at, half * 8);
      int other = ty == TY_i1 ? convert(e, TY_i1, TY_u8, w) : w;
      int joined = combine(e, o, ty, acc, other);
      move(e, ty, acc, joined);
      v = ty == TY_i1 ? convert(e, TY_u8, TY_i1, acc) : acc;
      PUT("  st.shared.%s [%%rd%d], ", mt, at);
      put_reg(e, mem, v);
      PUT(";\nX%d:\n", skip);
    } else {
      PUT("  bar.sync 0;\n  st.shared.%s [%%rd%d], ", mt, at);
      put_reg(e, mem, v);
      PUT(";\n");
    }
    PUT("  bar.sync 0;\n");
  }
  res = new_reg(e, mem);
  PUT("  ld.shared.%s ", mt);
  put_reg(e, mem, res);
  PUT(", [%%rd%d];\n", base);
  return ty == TY_i1 ? convert(e, TY_i1, TY_u8, res) : res;
}

/* ---- groups ---- */

typedef struct Group {
  MgLoop **loop;
  int n, end, keep, acc[64];
  const SymRef *range;
} Group;

static int all_ranges(const MgLoop *l) { return l->nouter + (l->kind == ML_reduce ? l->nred : 0); }

static void run_points(Px *e, Group *g) {
  for (int i = 0; i < g->n && !e->rc; i++) {
    MgLoop *l = g->loop[i];
    if (l->kind == ML_point) {
      store(e, l);
      continue;
    }
    MgTy ty = mg_expr(e->x, l->body)->ty;
    move(e, ty, g->acc[i], combine(e, l->red_op, ty, g->acc[i], value(e, l->body)));
  }
}

/* Loops idx(dim..end): by all threads of the block together, or serially in one thread. */
static void run_dims(Px *e, Group *g, int dim, bool block) {
  bool reduces = g->keep < g->end;
  if (dim == g->keep && reduces)
    for (int i = 0; i < g->n; i++) {
      MgLoop *l = g->loop[i];
      if (l->kind != ML_reduce) continue;
      MgTy ty = mg_expr(e->x, l->body)->ty;
      MgScalar start = mg_red_start(l->red_op, ty);
      ExprRef k = mg_ty_is_float(ty) ? mg_ex_float(e->x, ty, start.f) : mg_ex_int(e->x, ty, start.i);
      if (!k) return;
      g->acc[i] = new_reg(e, ty);
      move(e, ty, g->acc[i], constant(e, k));
    }
  if (dim == g->end) {
    run_points(e, g);
  } else if (dim < g->keep && reduces) { /* a kept inner range: one after the other */
    Loop l = loop_open(e, const_int(e, TY_i64, 0), value(e, g->range[dim]), const_int(e, TY_i64, 1));
    e->idx[dim] = l.var;
    run_dims(e, g, dim + 1, block);
    loop_close(e, &l);
    return;
  } else {
    int total = value(e, g->range[dim]), from, step;
    for (int k = dim + 1; k < g->end; k++) total = op(e, OP_mul, TY_i64, total, value(e, g->range[k]));
    if (block) {
      int t = new_reg(e, TY_u32);
      from = new_reg(e, TY_i64);
      PUT("  mov.u32 %%r%d, %%tid.x;\n  cvt.u64.u32 %%rd%d, %%r%d;\n", t, from, t);
    } else {
      from = const_int(e, TY_i64, 0);
    }
    step = const_int(e, TY_i64, block ? PTX_THREADS : 1);
    Loop l = loop_open(e, from, total, step);
    unflatten(e, l.var, g->range, dim, g->end);
    run_points(e, g);
    loop_close(e, &l);
  }
  if (dim != g->keep || !reduces) return;
  for (int i = 0; i < g->n && !e->rc; i++) {
    MgLoop *l = g->loop[i];
    if (l->kind != ML_reduce) continue;
    MgTy ty = mg_expr(e->x, l->body)->ty;
    e->red[l - e->own] = block ? block_reduce(e, l->red_op, ty, g->acc[i]) : g->acc[i];
    store(e, l); /* every thread stores the same value */
  }
}

static void run_kernel(Px *e) {
  const MgKernel *k = e->k;
  bool block = e->launch.block_per_row;
  for (uint32_t i = 0, j; i < k->nloop && !e->rc; i = j) {
    MgLoop *member[64];
    Group g = {.loop = member, .end = e->launch.nouter, .keep = -1};
    for (j = i; j < k->nloop && e->own[j].phase == e->own[i].phase; j++) {
      MgLoop *l = &e->own[j];
      if (g.n == 64) {
        e->rc = MG_UNSUP;
        return;
      }
      member[g.n++] = l;
      if (all_ranges(l) >= g.end) g.end = all_ranges(l), g.range = l->range;
      if (l->kind == ML_reduce) g.keep = l->nouter;
    }
    if (g.keep < 0) g.keep = g.end;
    run_dims(e, &g, e->launch.nouter, block);
    if (block && j < k->nloop) PUT("  bar.sync 0;\n"); /* row buffers are read by other threads */
  }
}

/* ---- the kernel ---- */

static ExprRef rename_red(MgExprs *x, ExprRef r, const ExprRef *s, void *arg) {
  const MgExpr *n = mg_expr(x, r);
  return n->op == OP_red ? mg_ex_red_of(x, n->ty, *(int *)arg) : mg_ex_rebuild(x, r, s);
}

static MgRc prepare(Px *e) {
  const MgKernel *k = e->k;
  e->own = mg_new(e->c, MgLoop, k->nloop);
  e->red = mg_new(e->c, int, k->nloop);
  e->arg = mg_new(e->c, int, e->s->nbuf);
  e->shared = mg_new(e->c, bool, e->s->nbuf);
  if (!e->own || !e->red || !e->arg || !e->shared) return MG_NOMEM;
  for (uint32_t i = 0; i < k->nbuf; i++) e->arg[k->buf[i]] = (int)i;
  for (uint32_t i = 0; i < k->nloop; i++) {
    MgLoop *l = &e->own[i];
    *l = *k->loop[i];
    int n = (int)i, all = all_ranges(l);
    if ((l->kind != ML_point && l->kind != ML_reduce) || l->mode != ST_set) return MG_UNSUP;
    if (l->kind == ML_reduce && mg_red_is_arg(l->red_op)) return MG_UNSUP;
    for (int j = 0; j < MG_MAX_IDX; j++) mg_ex_set_idx_range(e->x, j, j < all ? l->range[j] : 0);
    if (l->kind == ML_reduce && (l->red_op == RED_any || l->red_op == RED_all)) l->body = mg_ex_cvt(e->x, TY_i1, l->body);
    ExprRef *part[4] = {&l->body, &l->value, &l->index, &l->mask};
    for (int j = 0; j < 4; j++) {
      MgRc rc = MG_OK;
      if (!*part[j]) continue;
      if (j == 1) *part[j] = mg_ex_map(e->x, *part[j], rename_red, &n);
      if (*part[j]) *part[j] = mg_ex_legalize(e->x, *part[j], 1, &rc);
      TRY(rc);
      TRY(mg_exprs_ok(e->x));
    }
    const MgBuf *b = &e->s->buf[l->buf];
    e->shared[l->buf] = b->kind == MB_local && !mg_sym_is(e->x, b->nelem, 0);
  }
  return MG_OK;
}

MgRc mg_ptx_launch(MgSched *s, const MgKernel *k, MgLaunch *out) {
  MgExprs *x = s->x;
  bool points = true, lanes_outer = false;
  int all = k->nshared;
  for (uint32_t i = 0; i < k->nloop; i++) {
    const MgLoop *l = k->loop[i];
    points &= l->kind == ML_point && l->phase == k->loop[0]->phase;
    lanes_outer |= l->vec != MG_NO_VEC && l->vec < k->nshared;
    if (all_ranges(l) > all) all = all_ranges(l);
  }
  *out = (MgLaunch){.threads = PTX_THREADS, .nouter = points ? all : k->nshared, .block_per_row = !points && !lanes_outer};
  out->points = mg_sym(x, 1);
  for (int i = 0; i < out->nouter; i++) out->points = mg_sym_mul(x, out->points, k->loop[0]->range[i]);
  return mg_exprs_ok(x);
}

static MgRc put_head(Px *e, MgStrbuf *out) {
  const MgKernel *k = e->k;
  int64_t bytes = 0;
  mg_sb_printf(out, ".visible .entry %s(", k->name);
  for (uint32_t i = 0; i < k->nbuf; i++) mg_sb_printf(out, ".param .u64 a%u, ", i);
  for (uint32_t i = 0; i < e->x->nsym; i++) mg_sb_printf(out, ".param .u64 z%u, ", i);
  mg_sb_puts(out, ".param .u64 n)\n{\n");
  for (int i = 0; i < 6; i++)
    if (e->nreg[i]) mg_sb_printf(out, "  .reg .%s %s<%d>;\n", reg_decl[i], reg_prefix[i], e->nreg[i]);
  if (k->nbuf) mg_sb_printf(out, "  .reg .b64 %%q<%u>;\n", k->nbuf);
  if (e->x->nsym) mg_sb_printf(out, "  .reg .b64 %%s<%u>;\n", e->x->nsym);
  if (e->launch.block_per_row) mg_sb_printf(out, "  .shared .align 8 .b8 partial[%d];\n", 8 * PTX_THREADS);
  for (BufRef b = 1; b < e->s->nbuf; b++) {
    int64_t n;
    if (!e->shared[b]) continue;
    if (!e->launch.block_per_row || !mg_ex_const_int(e->x, e->s->buf[b].nelem, &n)) return MG_UNSUP;
    n *= mg_dtype_size((MgDtype)e->s->buf[b].dtype);
    bytes += n;
    mg_sb_printf(out, "  .shared .align 16 .b8 lb%u[%lld];\n", b, (long long)n);
  }
  for (uint32_t i = 0; i < k->nbuf; i++)
    mg_sb_printf(out, "  ld.param.u64 %%q%u, [a%u];\n  cvta.to.global.u64 %%q%u, %%q%u;\n", i, i, i, i);
  for (uint32_t i = 0; i < e->x->nsym; i++) mg_sb_printf(out, "  ld.param.u64 %%s%u, [z%u];\n", i, i);
  return bytes > PTX_SHARED ? MG_UNSUP : MG_OK;
}

MgRc mg_emit_ptx(MgSched *s, const MgKernel *k, MgStrbuf *out) {
  Px *e = mg_new(s->c, Px, 1);
  TRYP(e);
  e->s = s;
  e->x = s->x;
  e->c = s->c;
  e->k = k;
  e->serial[0] = e->nserial = 1;
  TRY(mg_ptx_launch(s, k, &e->launch));
  TRY(prepare(e));
  /* first point of this thread or block, and the distance to its next one */
  int first = new_reg(e, TY_i64), step = new_reg(e, TY_i64), n = new_reg(e, TY_i64);
  int t = new_reg(e, TY_u32), c = new_reg(e, TY_u32), d = new_reg(e, TY_u32), g = new_reg(e, TY_u32);
  PUT("  ld.param.u64 %%rd%d, [n];\n  mov.u32 %%r%d, %%ctaid.x;\n  mov.u32 %%r%d, %%nctaid.x;\n", n, c, g);
  if (e->launch.block_per_row) {
    PUT("  cvt.u64.u32 %%rd%d, %%r%d;\n  cvt.u64.u32 %%rd%d, %%r%d;\n", first, c, step, g);
  } else {
    PUT("  mov.u32 %%r%d, %%tid.x;\n  mov.u32 %%r%d, %%ntid.x;\n  mul.wide.u32 %%rd%d, %%r%d, %%r%d;\n", t, d, first, c, d);
    PUT("  cvt.u64.u32 %%rd%d, %%r%d;\n  add.s64 %%rd%d, %%rd%d, %%rd%d;\n  mul.wide.u32 %%rd%d, %%r%d, %%r%d;\n", step, t, first, first,
        step, step, g, d);
  }
  Loop l = loop_open(e, first, n, step);
  unflatten(e, l.var, e->own[0].range, 0, e->launch.nouter);
  run_kernel(e);
  if (e->launch.block_per_row) PUT("  bar.sync 0;\n");
  loop_close(e, &l);
  MgRc rc = e->rc ? e->rc : mg_exprs_ok(e->x);
  if (rc == MG_OK) rc = put_head(e, out);
  if (rc == MG_OK) {
    mg_sb_puts(out, mg_sb_text(&e->b));
    mg_sb_puts(out, "  ret;\n}\n");
    if (e->b.failed || !mg_sb_ok(out)) rc = MG_NOMEM;
  }
  mg_sb_free(&e->b);
  return rc;
}

void mg_emit_ptx_prologue(MgStrbuf *out) { mg_sb_puts(out, ".version 8.0\n.target sm_80\n.address_size 64\n"); }
