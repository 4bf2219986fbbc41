/* Integer (i64) arithmetic in one normal form, and proofs about indices.
 * A sum is a linear form: constant + coefficients times monomials, a monomial being a product of atoms; atoms
 * are symbols, indices, and any node that is not a sum or product.  Terms are ordered by node number, the
 * constant last, so equal sums are equal nodes.  This is valid for all values (arithmetic mod 2^64).
 * Division rules need that nothing overflows, so they apply to expressions of constants, symbols and indices
 * only (index_only), and d > 0:
 *   (d*q + r) // d -> q + r // d            (d*q + r) % d -> r % d         also for symbolic d
 *   r // d -> 0, r % d -> r                 when 0 <= r < d is proved
 *   (g*a + b) // (g*e) -> a // e            (g*a + b) % (g*e) -> g*(a % e) + b      when 0 <= b < g
 *   (y // a) // d -> y // (a*d)             (y % n) % d -> y % d,  (y % n) // d -> (y //
 *   d) % (n/d)   when d divides n
 *   d*(y // d) + y % d -> y
 *   compare, min, max -> decided when the sign of the difference is proved */
#include "ir/expr/expr_priv.h"
#include <stdlib.h>
#include <string.h>

#define MAX_TERM 32
#define MAX_FACTOR 16

typedef struct Term {
  ExprRef mono;
  int64_t coef;
} Term;

typedef struct Lin {
  Term t[MAX_TERM];
  int n;
  int64_t k;
  bool full; /* did not fit: the form is not usable */
} Lin;

static int64_t wmul(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }
static int64_t wadd(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static ExprRef i64(MgExprs *x, int64_t v) { return mg_ex_int(x, TY_i64, v); }

static void lin_term(Lin *l, ExprRef mono, int64_t coef) {
  int i;
  for (i = 0; i < l->n; i++)
    if (l->t[i].mono == mono) {
      l->t[i].coef = wadd(l->t[i].coef, coef);
      return;
    }
  if (i == MAX_TERM) l->full = true;
  else l->t[l->n++] = (Term){mono, coef};
}

static void lin_add(const MgExprs *x, Lin *l, ExprRef r, int64_t coef) {
  const MgExpr *e = mg_expr(x, r);
  int64_t c;
  if (x->trait[r] & EX_WIDE) l->full = true;
  if (l->full) return;
  if (e->op == OP_const) {
    l->k = wadd(l->k, wmul(coef, e->u.i));
  } else if (e->op == OP_add) {
    lin_add(x, l, e->src[0], coef);
    lin_add(x, l, e->src[1], coef);
  } else if (e->op == OP_mul && mg_ex_const_int(x, e->src[1], &c)) {
    lin_add(x, l, e->src[0], wmul(coef, c));
  } else {
    lin_term(l, r, coef);
  }
}

static int factors(const MgExprs *x, ExprRef m, ExprRef *f, int n) { /* -1: too many */
  const MgExpr *e = mg_expr(x, m);
  if (n < 0) return n;
  if (e->op == OP_mul) return factors(x, e->src[1], f, factors(x, e->src[0], f, n));
  if (n == MAX_FACTOR) return -1;
  f[n] = m;
  return n + 1;
}

static int by_ref(const void *a, const void *b) {
  ExprRef p = *(const ExprRef *)a, q = *(const ExprRef *)b;
  return (p > q) - (p < q);
}

static ExprRef mono_of(MgExprs *x, ExprRef *f, int n) {
  ExprRef m;
  if (n == 0) return i64(x, 1);
  qsort(f, n, sizeof *f, by_ref);
  m = f[0];
  for (int i = 1; i < n; i++) m = expr_raw(x, OP_mul, TY_i64, 2, m, f[i], 0, 0);
  return m;
}

static ExprRef mono_mul(MgExprs *x, ExprRef a, ExprRef b) {
  ExprRef f[MAX_FACTOR];
  int n = factors(x, b, f, factors(x, a, f, 0));
  return n < 0 ? expr_raw(x, OP_mul, TY_i64, 2, a, b, 0, 0) : mono_of(x, f, n);
}

static int by_mono(const void *a, const void *b) {
  ExprRef p = ((const Term *)a)->mono, q = ((const Term *)b)->mono;
  return (p > q) - (p < q);
}

/* d*(y // d) + y % d -> y, on the terms of a form. */
static void lin_recombine(MgExprs *x, Lin *l) {
  for (int i = 0; i < l->n; i++) {
    const MgExpr e = *mg_expr(x, l->t[i].mono);
    int64_t d, coef = l->t[i].coef;
    if (e.op != OP_mod || !coef || !x->index_only[l->t[i].mono]) continue;
    ExprRef q = expr_raw(x, OP_floordiv, TY_i64, 2, e.src[0], e.src[1], 0, 0);
    if (x->nomem) return;
    bool k = mg_ex_const_int(x, e.src[1], &d);
    if (!k) q = mono_mul(x, q, e.src[1]);
    for (int j = 0; j < l->n; j++)
      if (l->t[j].mono == q && l->t[j].coef == (k ? wmul(coef, d) : coef)) {
        l->t[i].coef = l->t[j].coef = 0;
        lin_add(x, l, e.src[0], coef);
        i = -1; /* the new terms may combine again */
        break;
      }
  }
}

static ExprRef lin_build(MgExprs *x, Lin *l) {
  ExprRef r = 0;
  lin_recombine(x, l);
  qsort(l->t, l->n, sizeof l->t[0], by_mono);
  for (int i = 0; i < l->n && !x->nomem; i++) {
    ExprRef t = l->t[i].mono;
    if (!l->t[i].coef) continue;
    if (l->t[i].coef != 1) t = expr_raw(x, OP_mul, TY_i64, 2, t, i64(x, l->t[i].coef), 0, 0);
    r = r ? expr_raw(x, OP_add, TY_i64, 2, r, t, 0, 0) : t;
  }
  if (!r) return i64(x, l->k);
  return l->k ? expr_raw(x, OP_add, TY_i64, 2, r, i64(x, l->k), 0, 0) : r;
}

static ExprRef fold_sum(MgExprs *x, ExprRef a, ExprRef b, int64_t coef_b) {
  Lin l = {0};
  lin_add(x, &l, a, 1);
  lin_add(x, &l, b, coef_b);
  if (!l.full) return lin_build(x, &l);
  if (coef_b == -1) b = expr_raw(x, OP_mul, TY_i64, 2, b, i64(x, -1), 0, 0);
  ExprRef r = expr_raw(x, OP_add, TY_i64, 2, a, b, 0, 0);
  if (r) x->trait[r] |= EX_WIDE; /* lin_add need not count the terms again */
  return r;
}

static ExprRef fold_mul(MgExprs *x, ExprRef a, ExprRef b) {
  Lin p = {0}, q = {0}, r = {0};
  lin_add(x, &p, a, 1);
  lin_add(x, &q, b, 1);
  /* Products of sums are expanded while they stay small; sums of loaded data are not touched. */
  bool small = (p.n + 1) * (q.n + 1) <= MAX_TERM &&
               (p.n == 0 || q.n == 0 || (p.n <= 1 && q.n <= 1) || (x->index_only[a] && x->index_only[b]));
  if (p.full || q.full || !small)
    return a < b ? expr_raw(x, OP_mul, TY_i64, 2, a, b, 0, 0) : expr_raw(x, OP_mul, TY_i64, 2, b, a, 0, 0);
  r.k = wmul(p.k, q.k);
  for (int i = 0; i < p.n; i++) lin_term(&r, p.t[i].mono, wmul(p.t[i].coef, q.k));
  for (int j = 0; j < q.n; j++) lin_term(&r, q.t[j].mono, wmul(q.t[j].coef, p.k));
  for (int i = 0; i < p.n; i++)
    for (int j = 0; j < q.n && !x->nomem; j++)
      lin_term(&r, mono_mul(x, p.t[i].mono, q.t[j].mono), wmul(p.t[i].coef, q.t[j].coef));
  return x->nomem ? 0 : lin_build(x, &r);
}

/* ---- ranges ---- */

#define NOLO INT64_MIN
#define NOHI INT64_MAX
static int64_t sat_add(int64_t a, int64_t b) { /* the bounds are absorbing */
  int64_t r;
  if (a == NOLO || b == NOLO) return NOLO;
  if (a == NOHI || b == NOHI) return NOHI;
  return __builtin_add_overflow(a, b, &r) ? (a < 0 ? NOLO : NOHI) : r;
}
static int64_t sat_mul(int64_t a, int64_t b) {
  int64_t r;
  if (!a || !b) return 0;
  if (a == NOLO || a == NOHI || b == NOLO || b == NOHI || __builtin_mul_overflow(a, b, &r))
    return (a < 0) != (b < 0) ? NOLO : NOHI;
  return r;
}
static int64_t floor_div(int64_t a, int64_t b) {
  if (a == NOLO || a == NOHI) return a;
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static bool narrow_pair(MgTy a, MgTy b) {
  return (a == TY_i64 && b == TY_u32) || (a == TY_u32 && b == TY_i64);
}

static bool range_of_index(const MgExprs *x, uint32_t loop, int64_t *lo, int64_t *hi) {
  int64_t al, ah;
  *lo = 0;
  *hi = NOHI;
  if (x->idx_size[loop] && mg_ex_range(x, x->idx_size[loop], &al, &ah) && ah != NOHI)
    *hi = ah > 0 ? ah - 1 : 0;
  return true;
}

static bool range_of_cvt(const MgExprs *x, const MgExpr *e, int64_t *lo, int64_t *hi) {
  MgTy from = mg_expr(x, e->src[0])->ty;
  if (e->ty != TY_i64 && e->ty != TY_u32) return false;
  if (from == TY_i1) {
    *lo = 0;
    *hi = 1;
    return true;
  }
  return narrow_pair(e->ty, from) && mg_ex_range(x, e->src[0], lo, hi) && *lo >= 0 && *hi <= UINT32_MAX;
}

static bool range_of_where(const MgExprs *x, const MgExpr *e, int64_t *lo, int64_t *hi) {
  int64_t al, ah, bl, bh;
  if (e->ty != TY_i64 || !mg_ex_range(x, e->src[1], &al, &ah) || !mg_ex_range(x, e->src[2], &bl, &bh))
    return false;
  *lo = al < bl ? al : bl;
  *hi = ah > bh ? ah : bh;
  return true;
}

static bool range_of_mul(int64_t al, int64_t ah, int64_t bl, int64_t bh, int64_t *lo, int64_t *hi) {
  int64_t corner[4] = {sat_mul(al, bl), sat_mul(al, bh), sat_mul(ah, bl), sat_mul(ah, bh)};
  *lo = *hi = corner[0];
  for (int i = 1; i < 4; i++) {
    if (corner[i] < *lo) *lo = corner[i];
    if (corner[i] > *hi) *hi = corner[i];
  }
  return true;
}

/* Of a op b, whose ranges are al to ah and bl to bh. */
static bool range_of_pair(int op, int64_t al, int64_t ah, int64_t bl, int64_t bh, int64_t *lo, int64_t *hi) {
  switch (op) {
  case OP_and:
    *lo = 0;
    *hi = ah < bh ? ah : bh;
    return true;
  case OP_lsr:
    *lo = 0;
    *hi = bl == bh && bl < 63 && ah != NOHI ? ah >> bl : ah;
    return true;
  case OP_add:
    *lo = sat_add(al, bl);
    *hi = sat_add(ah, bh);
    return true;
  case OP_mul: return range_of_mul(al, ah, bl, bh, lo, hi);
  case OP_floordiv:
  case OP_div:
    if (bl < 1) return false;
    *lo = al >= 0 ? (bh == NOHI ? 0 : floor_div(al, bh)) : floor_div(al, bl);
    *hi = ah >= 0 ? floor_div(ah, bl) : bh == NOHI ? -1 : floor_div(ah, bh);
    return true;
  case OP_mod:
  case OP_rem:
    if (bl < 1) return false;
    *lo = 0;
    *hi = bh == NOHI ? NOHI : bh - 1;
    if (al >= 0 && ah < *hi) *hi = ah;
    return true;
  case OP_min:
    *lo = al < bl ? al : bl;
    *hi = ah < bh ? ah : bh;
    return true;
  default: /* OP_max */
    *lo = al > bl ? al : bl;
    *hi = ah > bh ? ah : bh;
    return true;
  }
}

/* machine: an operation as legalized, whose operands must not be negative. */
static bool range_of_arith(const MgExprs *x, const MgExpr *e, bool machine, int64_t *lo, int64_t *hi) {
  int64_t al, ah, bl, bh;
  bool divides = e->op == OP_div || e->op == OP_rem;
  if (e->ty != TY_i64 && !(machine && e->ty == TY_u32)) return false;
  if (!mg_ex_range(x, e->src[0], &al, &ah) || !mg_ex_range(x, e->src[1], &bl, &bh)) return false;
  if (machine && (al < 0 || bl < divides)) return false;
  return range_of_pair(e->op, al, ah, bl, bh, lo, hi);
}

/* From the ranges of the sources. */
static bool range_of(const MgExprs *x, ExprRef r, int64_t *lo, int64_t *hi) {
  const MgExpr *e = mg_expr(x, r);
  switch (e->op) {
  case OP_const: *lo = *hi = e->u.i; return true;
  case OP_sym:
    *lo = x->sym[e->u.i].lo;
    *hi = x->sym[e->u.i].hi;
    return true;
  case OP_idx: return range_of_index(x, (uint32_t)e->u.i, lo, hi);
  case OP_cvt: return range_of_cvt(x, e, lo, hi);
  case OP_where: return range_of_where(x, e, lo, hi);
  case OP_add:
  case OP_mul:
  case OP_floordiv:
  case OP_mod:
  case OP_min:
  case OP_max: return range_of_arith(x, e, false, lo, hi);
  case OP_div:
  case OP_rem:
  case OP_and:
  case OP_lsr: return range_of_arith(x, e, true, lo, hi);
  default: return false;
  }
}

static bool range_begin(MgExprs *x, ExprRef r) {
  if (r < x->cap_bound) return true;
  MgExprBound *p = mg_new(x->c, MgExprBound, x->cap);
  if (!p) return false;
  x->bound = p;
  x->cap_bound = x->cap;
  return true;
}

bool mg_ex_range(const MgExprs *cx, ExprRef r, int64_t *lo, int64_t *hi) {
  MgExprs *x = (MgExprs *)cx; /* only the memo changes */
  if (!r || !x->index_only[r]) return false;
  if (!mg_expr(x, r)->nsrc || !range_begin(x, r)) return range_of(x, r, lo, hi);
  if (x->bound[r].gen != x->bound_gen) {
    MgExprBound b = {.gen = x->bound_gen};
    b.known = range_of(x, r, &b.lo, &b.hi);
    x->bound[r] = b;
  }
  *lo = x->bound[r].lo;
  *hi = x->bound[r].hi;
  return x->bound[r].known;
}

bool mg_ex_is_nonneg(const MgExprs *x, ExprRef e) {
  int64_t lo, hi;
  return mg_ex_range(x, e, &lo, &hi) && lo >= 0;
}

enum {
  UPPER_CONST = 1 << 30
}; /* greater constants are no bound worth having, and their products leave int64 */

enum {
  UPPER_WORK = 256
}; /* nodes looked at for one bound: products of sums of products have too many paths */

/* An expression of symbols that is at least e; 0 when none is found. */
static ExprRef upper(MgExprs *x, ExprRef r, int depth, int *left) {
  const MgExpr e = *mg_expr(x, r);
  int64_t lo, hi;
  if (depth > 8 || --*left < 0) return 0;
  switch (e.op) {
  case OP_const:
  case OP_sym: return r;
  case OP_idx: return x->idx_size[e.u.i] ? fold_sum(x, x->idx_size[e.u.i], i64(x, 1), -1) : 0;
  case OP_mod: return fold_sum(x, e.src[1], i64(x, 1), -1);
  case OP_add:
  case OP_mul: break;
  default: return mg_ex_range(x, r, &lo, &hi) && hi <= UPPER_CONST ? i64(x, hi) : 0;
  }
  Lin l = {0};
  lin_add(x, &l, r, 1);
  if (l.full) return 0;
  ExprRef sum = i64(x, l.k);
  for (int i = 0; i < l.n; i++) {
    ExprRef f[MAX_FACTOR], m = i64(x, 1);
    int64_t coef = l.t[i].coef, k;
    if (coef == 0) continue;
    int n = factors(x, l.t[i].mono, f, 0);
    if (n < 0) return 0;
    for (int j = 0; j < n; j++) {
      bool size = mg_expr(x, f[j])->op == OP_sym;
      if (!mg_ex_is_nonneg(x, f[j])) return 0;
      ExprRef u = size ? f[j] : coef < 0 ? i64(x, 0) : upper(x, f[j], depth + 1, left);
      if (!u) return 0;
      if (!mg_ex_const_int(x, u, &k)) m = fold_mul(x, m, u);
      else if (__builtin_mul_overflow(coef, k, &coef)) return 0; /* constants wrap around: no bound */
    }
    if (coef > UPPER_CONST) return 0;
    sum = fold_sum(x, sum, fold_mul(x, m, i64(x, coef)), 1);
  }
  return x->nomem ? 0 : sum;
}

bool mg_ex_is_below(const MgExprs *cx, ExprRef e, ExprRef n) {
  MgExprs *x = (MgExprs *)cx; /* only makes nodes */
  int64_t lo, hi, nlo, nhi;
  if (!x->index_only[e] || !x->index_only[n]) return false;
  if (mg_ex_range(x, e, &lo, &hi) && mg_ex_range(x, n, &nlo, &nhi) && hi != NOHI && hi < nlo) return true;
  if (mg_expr(x, e)->op == OP_idx && x->idx_size[mg_expr(x, e)->u.i] == n) return true;
  int left = UPPER_WORK;
  ExprRef u = upper(x, e, 0, &left);
  if (!u) return false;
  ExprRef d = fold_sum(x, n, u, -1);
  return mg_ex_range(x, d, &lo, &hi) && lo != NOLO && lo >= 1;
}

/* ---- division ---- */

static int64_t gcd(int64_t a, int64_t b) {
  a = a < 0 ? -a : a;
  b = b < 0 ? -b : b;
  while (b) {
    int64_t t = a % b;
    a = b;
    b = t;
  }
  return a;
}

/* Splits l by divisor dc*dm (constant times monomial, dm 0: none): *q gets the quotient of the terms it
 * divides, *r the other terms. */
static void lin_split(MgExprs *x, const Lin *l, int64_t dc, ExprRef dm, Lin *q, Lin *r) {
  ExprRef df[MAX_FACTOR];
  int nd = dm ? factors(x, dm, df, 0) : 0;
  q->n = r->n = 0;
  q->k = r->k = 0;
  q->full = r->full = false;
  for (int i = 0; i < l->n; i++) {
    ExprRef f[MAX_FACTOR];
    int n = nd > 0 ? factors(x, l->t[i].mono, f, 0) : 0;
    bool ok = nd >= 0 && n >= 0 && l->t[i].coef % dc == 0;
    if (!l->t[i].coef) continue;
    for (int j = 0; j < nd && ok; j++) {
      int k = 0;
      while (k < n && f[k] != df[j]) k++;
      ok = k < n;
      if (ok) f[k] = f[--n];
    }
    if (!ok) lin_term(r, l->t[i].mono, l->t[i].coef);
    else if (!nd) lin_term(q, l->t[i].mono, l->t[i].coef / dc);
    else if (n) lin_term(q, mono_of(x, f, n), l->t[i].coef / dc);
    else q->k += l->t[i].coef / dc;
  }
  if (dm) { /* a constant is no multiple of a symbol */
    r->k = l->k;
  } else {
    q->k = floor_div(l->k, dc);
    r->k = l->k - q->k * dc;
  }
}

static bool lin_is_in(MgExprs *x, const Lin *l, ExprRef below) { /* 0 <= l < below */
  Lin t = *l;
  ExprRef e = lin_build(x, &t);
  return !x->nomem && mg_ex_is_nonneg(x, e) && mg_ex_is_below(x, e, below);
}

static ExprRef fold_divmod(MgExprs *x, bool mod, ExprRef e, ExprRef d);

/* (g*a + b) over d = g*h: a over h, when 0 <= b < g.  gm: symbolic factor of g or 0. */
static ExprRef divide_out(MgExprs *x, bool mod, const Lin *r, int64_t gc, ExprRef gm, ExprRef d) {
  Lin a, b, dl = {0}, h, rest;
  ExprRef g = gm ? gm : i64(x, gc);
  lin_split(x, r, gc, gm, &a, &b);
  if (!lin_is_in(x, &b, g)) return 0;
  lin_add(x, &dl, d, 1);
  lin_split(x, &dl, gc, gm, &h, &rest);
  ExprRef v = fold_divmod(x, mod, lin_build(x, &a), lin_build(x, &h));
  return mod ? fold_sum(x, fold_mul(x, v, g), lin_build(x, &b), 1) : v;
}

static ExprRef divmod_atom(MgExprs *x, bool mod, ExprRef e, int64_t d) {
  const MgExpr n = *mg_expr(x, e);
  int64_t c;
  if ((n.op != OP_floordiv && n.op != OP_mod) || !mg_ex_const_int(x, n.src[1], &c) || c <= 0) return 0;
  if (n.op == OP_floordiv && !mod && c <= INT64_MAX / d)
    return fold_divmod(x, false, n.src[0], i64(x, c * d));
  if (n.op != OP_mod || c % d) return 0;
  if (mod) return fold_divmod(x, true, n.src[0], i64(x, d));
  return fold_divmod(x, true, fold_divmod(x, false, n.src[0], i64(x, d)), i64(x, c / d));
}

static ExprRef fold_divmod(MgExprs *x, bool mod, ExprRef e, ExprRef d) {
  Lin l = {0}, dl = {0}, q, r;
  int64_t lo, hi;
  MgScalarOp op = mod ? OP_mod : OP_floordiv;
  if (x->nomem) return 0;
  if (!mg_ex_range(x, d, &lo, &hi) || lo < 1 || !x->index_only[e])
    return expr_raw(x, op, TY_i64, 2, e, d, 0, 0);
  lin_add(x, &l, e, 1);
  lin_add(x, &dl, d, 1);
  bool single = dl.n == 0 || (dl.n == 1 && dl.k == 0); /* d is one constant or one monomial */
  int64_t dc = dl.n ? dl.t[0].coef : dl.k;
  ExprRef dm = dl.n ? dl.t[0].mono : 0;
  if (l.full || dl.full || !single || dc < 1) return expr_raw(x, op, TY_i64, 2, e, d, 0, 0);
  lin_split(x, &l, dc, dm, &q, &r);
  ExprRef v = 0;
  if (lin_is_in(x, &r, d)) v = mod ? lin_build(x, &r) : i64(x, 0);
  if (!v && dc > 1 && !dm) { /* the greatest common factor that leaves small remainders */
    int64_t tried = 0;
    for (int round = 0; round < r.n && !v; round++) {
      int64_t best = 0;
      for (int i = 0; i < r.n; i++) {
        int64_t g = gcd(dc, r.t[i].coef);
        if (g > best && g < dc && (!tried || g < tried)) best = g;
      }
      if (best <= 1) break;
      v = divide_out(x, mod, &r, best, 0, d);
      tried = best;
    }
  }
  if (!v && dm) {
    ExprRef f[MAX_FACTOR];
    int n = factors(x, dm, f, 0);
    for (int i = 0; i < n && !v && (n > 1 || dc > 1); i++) v = divide_out(x, mod, &r, 1, f[i], d);
  }
  ExprRef rest = lin_build(x, &r);
  if (x->nomem) return 0;
  if (!v && !dm) v = divmod_atom(x, mod, rest, dc);
  if (!v) v = expr_raw(x, op, TY_i64, 2, rest, d, 0, 0);
  return mod ? v : fold_sum(x, lin_build(x, &q), v, 1);
}

/* ---- entry ---- */

static ExprRef fold_compare(MgExprs *x, MgScalarOp op, ExprRef a, ExprRef b) {
  int64_t lo, hi;
  if (!x->index_only[a] || !x->index_only[b]) return 0;
  ExprRef d = fold_sum(x, a, b, -1);
  if (x->nomem || !mg_ex_range(x, d, &lo, &hi)) return 0;
  switch (op) {
  case OP_eq:
  case OP_ne:
    if (lo == 0 && hi == 0) return mg_ex_int(x, TY_i1, op == OP_eq);
    if (lo > 0 || hi < 0) return mg_ex_int(x, TY_i1, op == OP_ne);
    return 0;
  case OP_lt:
    if (hi < 0 || mg_ex_is_below(x, a, b)) return mg_ex_int(x, TY_i1, 1);
    return lo >= 0 ? mg_ex_int(x, TY_i1, 0) : 0;
  case OP_le:
    if (hi <= 0) return mg_ex_int(x, TY_i1, 1);
    return lo > 0 || mg_ex_is_below(x, b, a) ? mg_ex_int(x, TY_i1, 0) : 0;
  case OP_min: return hi <= 0 || mg_ex_is_below(x, a, b) ? a : lo >= 0 || mg_ex_is_below(x, b, a) ? b : 0;
  default: return hi <= 0 || mg_ex_is_below(x, a, b) ? b : lo >= 0 || mg_ex_is_below(x, b, a) ? a : 0;
  }
}

ExprRef expr_index_fold(MgExprs *x, MgScalarOp op, ExprRef s[3]) {
  switch (op) {
  case OP_add: return fold_sum(x, s[0], s[1], 1);
  case OP_sub: return fold_sum(x, s[0], s[1], -1);
  case OP_neg: return fold_mul(x, s[0], i64(x, -1));
  case OP_mul: return fold_mul(x, s[0], s[1]);
  case OP_floordiv: return fold_divmod(x, false, s[0], s[1]);
  case OP_mod: return fold_divmod(x, true, s[0], s[1]);
  case OP_eq:
  case OP_ne:
  case OP_lt:
  case OP_le:
  case OP_min:
  case OP_max: return fold_compare(x, op, s[0], s[1]);
  default: return 0;
  }
}

bool mg_ex_linear(MgExprs *x, ExprRef e, int k, ExprRef *coef, ExprRef *rest) {
  Lin l = {0}, c = {0}, r = {0};
  ExprRef ik = expr_raw(x, OP_idx, TY_i64, 0, 0, 0, 0, k);
  if (x->nomem) return false;
  lin_add(x, &l, e, 1);
  r.k = l.k;
  for (int i = 0; i < l.n && !l.full; i++) {
    ExprRef f[MAX_FACTOR];
    int n = factors(x, l.t[i].mono, f, 0), at = -1;
    for (int j = 0; j < n; j++)
      if (f[j] == ik && at < 0) at = j;
    if (at >= 0) {
      f[at] = f[n - 1];
      if (n == 1) c.k = wadd(c.k, l.t[i].coef);
      else lin_term(&c, mono_of(x, f, n - 1), l.t[i].coef);
    } else {
      lin_term(&r, l.t[i].mono, l.t[i].coef);
    }
  }
  if (l.full || c.full || r.full) return false;
  *coef = lin_build(x, &c);
  *rest = lin_build(x, &r);
  return !x->nomem && !mg_ex_uses_idx(x, *coef, k) && !mg_ex_uses_idx(x, *rest, k);
}
