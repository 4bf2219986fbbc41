/* What is known of the lanes of an index, so that vectors of 64-bit numbers are avoided.
 * In: a legalised expression, under the loop ranges that are set.
 * Out: the same value in 32 bits, where its bounds allow that; how far its lanes lie apart.
 * Vectors of 64-bit integers have half the lanes, and before AVX-512 no conversion from or to floats.
 * Bounds are those of mg_ex_range, and beyond them those of floats that are computed from indices. */
#include "back/emit/emit_llvm_priv.h"
#include <math.h>

/* Tables grow with the expressions that are made while emitting. */
bool em_tables(Em *e) {
  uint32_t n = e->x->n, cap = n + n / 2 + 1024, old = e->cap;
  if (n <= e->cap) return true;
  for (int i = 0; i < 2; i++)
    e->memo[i] = mg_ctx_grow(e->c, e->memo[i], old * sizeof(EmMemo), cap * sizeof(EmMemo));
  e->imask = mg_ctx_grow(e->c, e->imask, old * sizeof *e->imask, cap * sizeof *e->imask);
  e->have = mg_ctx_grow(e->c, e->have, old, cap);
  e->seen = mg_ctx_grow(e->c, e->seen, old * sizeof *e->seen, cap * sizeof *e->seen);
  e->facts = mg_ctx_grow(e->c, e->facts, old * sizeof *e->facts, cap * sizeof *e->facts);
  e->size_at = mg_ctx_grow(e->c, e->size_at, old * sizeof *e->size_at, cap * sizeof *e->size_at);
  if (!e->memo[0] || !e->memo[1] || !e->imask || !e->have || !e->seen || !e->facts || !e->size_at) {
    e->rc = MG_NOMEM;
    return false;
  }
  e->cap = cap;
  return true;
}

uint32_t em_imask(Em *e, ExprRef r) {
  const MgExpr *n = mg_expr(e->x, r);
  if (!em_tables(e) || e->have[r]) return e->rc ? 0 : e->imask[r];
  uint32_t m = n->op == OP_idx ? 1u << n->u.i : n->op == OP_red ? 1u << 31 : 0;
  for (int i = 0; i < n->nsrc; i++) m |= em_imask(e, mg_expr(e->x, r)->src[i]);
  e->have[r] = 1;
  return e->imask[r] = m;
}

bool em_varies(Em *e, ExprRef r) {
  uint32_t m = em_imask(e, r);
  return e->lanes > 1 && ((m >> e->kv & 1) || (e->red_vec && m >> 31));
}

/* Doubles hold the integers up to it, and sums and products of a few of them stay finite. */
static const double BOUND_MOST = 0x1p52;

static bool is_whole(MgTy t) { return t == TY_i64 || t == TY_i32 || t == TY_u32; }
static bool is_real(MgTy t) { return t == TY_f32 || t == TY_f64; }

/* ---- bounds ---- */

static EmBounds bounds_of_product(EmBounds a, EmBounds b) {
  double c[4] = {a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi};
  EmBounds r = {c[0], c[0]};
  for (int i = 1; i < 4; i++) r = (EmBounds){fmin(r.lo, c[i]), fmax(r.hi, c[i])};
  return r;
}

/* Of operations that round nothing; false: not known. */
static bool bounds_of_op(int op, const EmBounds *s, EmBounds *r) {
  switch (op) {
  case OP_add: *r = (EmBounds){s[0].lo + s[1].lo, s[0].hi + s[1].hi}; return true;
  case OP_sub: *r = (EmBounds){s[0].lo - s[1].hi, s[0].hi - s[1].lo}; return true;
  case OP_neg: *r = (EmBounds){-s[0].hi, -s[0].lo}; return true;
  case OP_mul: *r = bounds_of_product(s[0], s[1]); return true;
  case OP_min: *r = (EmBounds){fmin(s[0].lo, s[1].lo), fmin(s[0].hi, s[1].hi)}; return true;
  case OP_max: *r = (EmBounds){fmax(s[0].lo, s[1].lo), fmax(s[0].hi, s[1].hi)}; return true;
  case OP_where: *r = (EmBounds){fmin(s[1].lo, s[2].lo), fmax(s[1].hi, s[2].hi)}; return true;
  default: return false;
  }
}

static bool bounds_of_real(int op, const EmBounds *s, EmBounds *r) {
  switch (op) {
  case OP_floor: *r = (EmBounds){floor(s[0].lo), floor(s[0].hi)}; return true;
  case OP_ceil: *r = (EmBounds){ceil(s[0].lo), ceil(s[0].hi)}; return true;
  case OP_fma:
    *r = bounds_of_product(s[0], s[1]);
    *r = (EmBounds){r->lo + s[2].lo, r->hi + s[2].hi};
    return true;
  case OP_div:
    if (s[1].lo != s[1].hi || s[1].lo == 0) return false;
    *r = bounds_of_product(s[0], (EmBounds){1 / s[1].lo, 1 / s[1].lo});
    return true;
  default: return bounds_of_op(op, s, r);
  }
}

static bool bounds_of_cvt(MgTy to, MgTy from, EmBounds s, EmBounds *r) {
  *r = s;
  if (is_real(from) && is_real(to)) return true;
  if (is_real(to)) return is_whole(from);
  if (!is_whole(to) || !(is_real(from) || is_whole(from))) return false;
  *r = (EmBounds){trunc(s.lo), trunc(s.hi)};
  double least = to == TY_u32 ? 0 : to == TY_i32 ? INT32_MIN : -BOUND_MOST;
  double most = to == TY_u32 ? UINT32_MAX : to == TY_i32 ? INT32_MAX : BOUND_MOST;
  return r->lo >= least && r->hi <= most; /* else it wraps around */
}

static bool bounds_find(Em *e, ExprRef r, EmBounds *b) {
  const MgExpr n = *mg_expr(e->x, r);
  EmBounds s[3] = {{0}};
  int64_t lo, hi;
  double f;
  if (is_whole(n.ty) && mg_ex_range(e->x, r, &lo, &hi)) {
    *b = (EmBounds){(double)lo, (double)hi};
    if (b->lo >= -BOUND_MOST && b->hi <= BOUND_MOST) return true;
  }
  if (mg_ex_const_float(e->x, r, &f)) {
    *b = (EmBounds){f, f};
    return isfinite(f);
  }
  if (!(is_whole(n.ty) || is_real(n.ty)) || n.op == OP_load || !n.nsrc) return false;
  for (int i = n.op == OP_where; i < n.nsrc; i++)
    if (!em_bounds(e, n.src[i], &s[i])) return false;
  if (n.op == OP_cvt) {
    if (!bounds_of_cvt(n.ty, mg_expr(e->x, n.src[0])->ty, s[0], b)) return false;
  } else if (is_real(n.ty) ? !bounds_of_real(n.op, s, b) : n.ty != TY_i64 || !bounds_of_op(n.op, s, b)) {
    return false;
  }
  if (is_real(n.ty)) *b = (EmBounds){b->lo - fabs(b->lo) * 0x1p-20, b->hi + fabs(b->hi) * 0x1p-20};
  return b->lo >= -BOUND_MOST && b->hi <= BOUND_MOST;
}

bool em_bounds(Em *e, ExprRef r, EmBounds *b) {
  if (!em_tables(e)) return false;
  EmFacts *f = &e->facts[r];
  if (f->bounds_gen != e->x->bound_gen) {
    EmBounds found;
    bool known = bounds_find(e, r, &found);
    if (!em_tables(e)) return false;
    f = &e->facts[r];
    f->bounds_gen = e->x->bound_gen;
    f->bounded = known;
    if (known) f->bounds = found;
  }
  *b = f->bounds;
  return f->bounded;
}

/* ---- 32 bits ---- */

static ExprRef narrow_unsigned(Em *e, ExprRef r);

/* An i64 expression as i32; 0: it may not fit, or it is made of what does not. */
static ExprRef narrow_find(Em *e, ExprRef r) {
  const MgExpr n = *mg_expr(e->x, r);
  EmBounds b;
  ExprRef s[3] = {0};
  if (n.ty != TY_i64 || !em_bounds(e, r, &b) || b.lo < INT32_MIN || b.hi > INT32_MAX) return 0;
  if (!em_varies(e, r) || n.op == OP_idx) return mg_ex_cvt(e->x, TY_i32, r);
  if (n.op == OP_cvt) {
    MgTy from = mg_expr(e->x, n.src[0])->ty;
    if (from == TY_u32) {
      ExprRef u = narrow_unsigned(e, n.src[0]);
      return u ? mg_ex_cvt(e->x, TY_i32, u) : 0;
    }
    return from == TY_u64 ? 0 : mg_ex_cvt(e->x, TY_i32, n.src[0]);
  }
  switch (n.op) {
  case OP_add:
  case OP_sub:
  case OP_neg:
  case OP_mul:
  case OP_min:
  case OP_max:
  case OP_and:
  case OP_where: break;
  case OP_lsr: /* of a number that is not negative, by fewer than 32 */
    if (em_bounds(e, n.src[0], &b) && b.lo >= 0 && em_bounds(e, n.src[1], &b) && b.lo >= 0 && b.hi < 32)
      break;
    return 0;
  default: return 0;
  }
  if (n.op == OP_where) s[0] = n.src[0];
  for (int i = n.op == OP_where; i < n.nsrc; i++)
    if (!(s[i] = em_narrow(e, n.src[i]))) return 0;
  return mg_ex_op(e->x, (MgScalarOp)n.op, s[0], s[1], s[2]);
}

/* The same of an u32 expression: what a division of indices is made of. */
static ExprRef narrow_unsigned(Em *e, ExprRef r) {
  const MgExpr n = *mg_expr(e->x, r);
  ExprRef s[2] = {0};
  EmBounds b;
  if (n.op == OP_const || !em_varies(e, r)) return r;
  if (n.op == OP_cvt) {
    bool fits = em_bounds(e, n.src[0], &b) && b.lo >= 0;
    ExprRef a = fits ? em_narrow(e, n.src[0]) : 0;
    return a ? mg_ex_cvt(e->x, TY_u32, a) : 0;
  }
  if (n.nsrc != 2) return 0;
  for (int i = 0; i < 2; i++)
    if (!(s[i] = narrow_unsigned(e, n.src[i]))) return 0;
  return mg_ex_op(e->x, (MgScalarOp)n.op, s[0], s[1], 0);
}

ExprRef em_narrow(Em *e, ExprRef r) {
  if (!em_tables(e)) return 0;
  EmFacts *f = &e->facts[r];
  if (f->narrow_gen != e->x->bound_gen || f->narrow_kv != e->kv) {
    ExprRef to = narrow_find(e, r);
    if (!em_tables(e)) return 0;
    f = &e->facts[r];
    f->narrow_gen = e->x->bound_gen;
    f->narrow_kv = (int8_t)e->kv;
    f->narrow = to;
  }
  return f->narrow;
}

/* What stands for r in vector code: with its comparisons, conversions and sums in 32 bits; 0: r itself. */
ExprRef em_narrower(Em *e, ExprRef r) {
  const MgExpr n = *mg_expr(e->x, r);
  ExprRef a, b, to = 0;
  bool compares = n.op == OP_eq || n.op == OP_ne || n.op == OP_lt || n.op == OP_le;
  if (n.op == OP_idx || n.op == OP_load || !n.nsrc) return 0;
  if (compares && mg_expr(e->x, n.src[0])->ty == TY_i64) {
    if ((a = em_narrow(e, n.src[0])) && (b = em_narrow(e, n.src[1])))
      to = mg_ex_op(e->x, (MgScalarOp)n.op, a, b, 0);
  } else if (n.op == OP_cvt && is_real(n.ty) && mg_expr(e->x, n.src[0])->ty == TY_i64) {
    if ((a = em_narrow(e, n.src[0]))) to = mg_ex_cvt(e->x, n.ty, a);
  } else if (n.ty == TY_i64) {
    if ((a = em_narrow(e, r))) to = mg_ex_cvt(e->x, TY_i64, a);
  }
  return to == r ? 0 : to;
}

/* ---- growth ---- */

/* What rounding adds to the distance of two values. */
static double growth_slack(Em *e, ExprRef r) {
  EmBounds b;
  if (mg_expr(e->x, r)->ty == TY_f64) return 0x1p-20;
  return em_bounds(e, r, &b) ? fmax(fabs(b.lo), fabs(b.hi)) * 0x1p-22 : INFINITY;
}

static double growth_of_product(Em *e, const MgExpr *n, const double *g) {
  EmBounds b;
  for (int i = 0; i < 2; i++)
    if (g[i] == 0 && em_bounds(e, n->src[i], &b) && b.lo >= 0) return g[1 - i] * b.hi;
  return -1;
}

static double growth_of_quotient(Em *e, const MgExpr *n, const double *g) {
  EmBounds a, b;
  if (g[1] != 0 || !em_bounds(e, n->src[0], &a) || !em_bounds(e, n->src[1], &b) || b.lo <= 0) return -1;
  if (is_real(n->ty)) return g[0] / b.lo;
  return a.lo >= 0 ? floor(g[0] / b.lo) + 1 : -1;
}

static double growth_find(Em *e, ExprRef r, int kv) {
  const MgExpr n = *mg_expr(e->x, r);
  double g[3] = {0}, to = -1;
  EmBounds b;
  if (!(em_imask(e, r) >> kv & 1)) return 0;
  if (n.op == OP_idx) return e->t->vector_bits / 32 - 1;
  if (n.op == OP_load || n.op == OP_where || !(is_whole(n.ty) || is_real(n.ty))) return -1;
  for (int i = 0; i < n.nsrc; i++)
    if ((g[i] = em_growth(e, n.src[i], kv)) < 0) return -1;
  switch (n.op) {
  case OP_add: to = g[0] + g[1]; break;
  case OP_sub: to = g[1] == 0 ? g[0] : -1; break;
  case OP_min:
  case OP_max: to = fmax(g[0], g[1]); break;
  case OP_mul: to = growth_of_product(e, &n, g); break;
  case OP_fma: to = growth_of_product(e, &n, g) + g[2]; break;
  case OP_div: to = growth_of_quotient(e, &n, g); break;
  case OP_floor: to = g[0] + 1; break;
  case OP_lsr:
    if (g[1] == 0 && em_bounds(e, n.src[0], &b) && b.lo >= 0 && em_bounds(e, n.src[1], &b) && b.lo >= 0)
      to = floor(ldexp(g[0], -(int)b.lo)) + 1;
    break;
  case OP_cvt:
    if (!em_bounds(e, r, &b)) return -1; /* it might wrap around */
    to = is_whole(n.ty) && is_real(mg_expr(e->x, n.src[0])->ty) ? floor(g[0]) + 1 : g[0];
    break;
  default: break;
  }
  if (n.op == OP_fma && growth_of_product(e, &n, g) < 0) return -1;
  return to >= 0 && is_real(n.ty) ? to + growth_slack(e, r) : to;
}

double em_growth(Em *e, ExprRef r, int kv) {
  if (!em_tables(e)) return -1;
  EmFacts *f = &e->facts[r];
  if (f->growth_gen != e->x->bound_gen || f->growth_kv != kv) {
    double found = growth_find(e, r, kv);
    if (!em_tables(e)) return -1;
    f = &e->facts[r];
    f->growth_gen = e->x->bound_gen;
    f->growth_kv = (int8_t)kv;
    f->growth = found;
  }
  return f->growth;
}
