/* Hash-consing, builders and traversals of expressions.  In: rows of scalar.h.  Out: nodes.
 * Invariants: a node's sources have smaller numbers; operands of a row have equal types; f16 and bf16 appear
 * only as types of const, load, red, cvt, bitcast and where (arithmetic on them is built in f32).
 * Simplification is in expr_fold.c, integer arithmetic in expr_index.c. */
#include "ir/expr/expr_priv.h"
#include "base/assert.h"
#include <math.h>
#include <string.h>
#include "tuning.h"

MgRc mg_exprs_init(MgExprs *x, MgCtx *c) {
  const char *hole = mg_scalar_check();
  memset(x, 0, sizeof *x);
  x->c = c;
  if (hole)
    return mg_fail(c, MG_BUG, "scalar_ops.def: row '%s' has neither template nor decomposition", hole);
  x->cap = 256;
  x->cap_slot = 512;
  x->node = mg_new(c, MgExpr, x->cap);
  x->index_only = mg_new(c, uint8_t, x->cap);
  x->trait = mg_new(c, uint8_t, x->cap);
  x->idx = mg_new(c, uint32_t, x->cap);
  x->slot = mg_new(c, uint32_t, x->cap_slot);
  if (!x->node || !x->index_only || !x->trait || !x->idx || !x->slot) return MG_NOMEM;
  x->bound_gen = 1;
  x->n = 1; /* node 0 is "none" */
  return MG_OK;
}

ExprRef expr_bad(MgExprs *x, const char *what) {
  if (!x->nomem) mg_fail(x->c, MG_BUG, "expression: %s", what);
  x->nomem = true;
  return 0;
}

static uint64_t node_hash(const MgExpr *e) {
  /* Three independent products: one chain of them takes as long as all the rest. */
  uint64_t h =
      ((uint64_t)e->op | (uint64_t)e->ty << 16 | (uint64_t)e->nsrc << 24 | (uint64_t)e->src[0] << 32) *
      0x9E3779B97F4A7C15ull;
  h ^= ((uint64_t)e->src[1] | (uint64_t)e->src[2] << 32) * 0xC2B2AE3D27D4EB4Full;
  return mg_hash_u64(h + (uint64_t)e->u.i * 0x165667B19E3779F9ull);
}

static bool node_same(const MgExpr *a, const MgExpr *b) { /* u by bits: 0.0 and -0.0 differ */
  return a->op == b->op && a->ty == b->ty && a->nsrc == b->nsrc && !memcmp(a->src, b->src, sizeof a->src) &&
         a->u.i == b->u.i;
}

static bool grow(MgExprs *x) {
  uint32_t cap = x->cap * 2, cap_slot = x->cap_slot * 2;
  MgExpr *node = mg_ctx_grow(x->c, x->node, sizeof *node * x->n, sizeof *node * cap);
  uint8_t *io = mg_ctx_grow(x->c, x->index_only, x->n, cap);
  uint8_t *trait = mg_ctx_grow(x->c, x->trait, x->n, cap);
  uint32_t *idx = mg_ctx_grow(x->c, x->idx, sizeof *idx * x->n, sizeof *idx * cap);
  uint32_t *slot = mg_new(x->c, uint32_t, cap_slot);
  if (!node || !io || !trait || !idx || !slot) return false;
  for (uint32_t r = 1; r < x->n; r++) {
    uint64_t h = node_hash(&node[r]);
    while (slot[h & (cap_slot - 1)]) h++;
    slot[h & (cap_slot - 1)] = r;
  }
  x->node = node;
  x->index_only = io;
  x->trait = trait;
  x->idx = idx;
  x->slot = slot;
  x->cap = cap;
  x->cap_slot = cap_slot;
  return true;
}

static uint8_t node_trait(const MgExprs *x, const MgExpr *e) {
  uint8_t any = 0, all = EX_SIZE;
  for (int i = 0; i < e->nsrc; i++) {
    any |= x->trait[e->src[i]];
    all &= x->trait[e->src[i]];
  }
  switch (e->ty == TY_i64 ? e->op : OP_none) {
  case OP_const:
  case OP_sym:
  case OP_add:
  case OP_sub:
  case OP_mul:
  case OP_floordiv:
  case OP_mod:
  case OP_min:
  case OP_max:
  case OP_neg: break;
  default: all = 0;
  }
  return (uint8_t)((any & EX_DATA) | all);
}

/* The node equal to e, made when it is new. */
ExprRef expr_node(MgExprs *x, const MgExpr *e) {
  if (x->nomem) return 0;
  if (x->n == x->cap && !grow(x)) {
    x->nomem = true;
    return 0;
  }
  uint64_t h = node_hash(e);
  uint32_t r;
  for (; (r = x->slot[h & (x->cap_slot - 1)]); h++)
    if (node_same(&x->node[r], e)) return r;
  r = x->slot[h & (x->cap_slot - 1)] = x->n++;
  x->node[r] = *e;
  bool io = e->op == OP_sym || e->op == OP_idx || (e->op == OP_const && !mg_ty_is_float(e->ty));
  if (!io && e->nsrc && e->op != OP_load && e->op != OP_rand && e->op != OP_red && !mg_ty_is_float(e->ty)) {
    io = true;
    for (int i = 0; i < e->nsrc; i++) io &= x->index_only[e->src[i]];
  }
  x->index_only[r] = io;
  x->trait[r] = node_trait(x, e);
  x->idx[r] = e->op == OP_idx ? 1u << e->u.i : 0;
  for (int i = 0; i < e->nsrc; i++) x->idx[r] |= x->idx[e->src[i]];
  return r;
}

ExprRef expr_raw(MgExprs *x, MgScalarOp op, MgTy ty, int nsrc, ExprRef a, ExprRef b, ExprRef c, int64_t i) {
  MgExpr e = {.op = op, .ty = ty, .nsrc = nsrc, .src = {a, b, c}, .u.i = i};
  return expr_node(x, &e);
}

ExprRef mg_ex_int(MgExprs *x, MgTy ty, int64_t v) {
  if (mg_ty_is_float(ty)) return mg_ex_float(x, ty, (double)v);
  return expr_raw(x, OP_const, ty, 0, 0, 0, 0, mg_scalar_wrap(ty, (MgScalar){.i = v}).i);
}

ExprRef mg_ex_float(MgExprs *x, MgTy ty, double v) {
  if (!mg_ty_is_float(ty)) return expr_bad(x, "float constant of an integer type");
  MgExpr e = {.op = OP_const, .ty = ty};
  e.u.f = isnan(v) ? NAN : mg_scalar_wrap(ty, (MgScalar){.f = v}).f;
  return expr_node(x, &e);
}

ExprRef expr_const(MgExprs *x, MgTy ty, MgScalar v) {
  return mg_ty_is_float(ty) ? mg_ex_float(x, ty, v.f) : mg_ex_int(x, ty, v.i);
}

ExprRef mg_ex_idx(MgExprs *x, int k) {
  if (k < 0 || k >= MG_MAX_IDX) return expr_bad(x, "too many loop indices");
  if (x->idx_size[k] && mg_sym_is(x, x->idx_size[k], 1)) return mg_ex_int(x, TY_i64, 0);
  return expr_raw(x, OP_idx, TY_i64, 0, 0, 0, 0, k);
}

void mg_ex_set_idx_range(MgExprs *x, int k, SymRef size) {
  if (k < 0 || k >= MG_MAX_IDX || x->idx_size[k] == size) return;
  x->idx_size[k] = size;
  x->bound_gen++;
}

void mg_ex_set_symbol_range(MgExprs *x, SymRef e, int64_t lo, int64_t hi) {
  MgSymbol *s = &x->sym[mg_expr(x, e)->u.i];
  s->lo = lo;
  s->hi = hi;
  x->bound_gen++;
}

void mg_ex_set_late(MgExprs *x, SymRef e) { x->trait[e] |= EX_DATA; }

ExprRef mg_ex_symbol(MgExprs *x, int64_t hint, int64_t lo, int64_t hi, const char *name) {
  if (x->nomem) return 0;
  if (x->nsym == x->cap_sym) {
    uint32_t cap = x->cap_sym ? x->cap_sym * 2 : 16;
    MgSymbol *sym = mg_ctx_grow(x->c, x->sym, sizeof *sym * x->nsym, sizeof *sym * cap);
    if (!sym) {
      x->nomem = true;
      return 0;
    }
    x->sym = sym;
    x->cap_sym = cap;
  }
  x->sym[x->nsym] = (MgSymbol){.lo = lo, .hi = hi, .hint = hint, .name = name};
  return expr_raw(x, OP_sym, TY_i64, 0, 0, 0, 0, x->nsym++);
}

ExprRef mg_ex_red_of(MgExprs *x, MgTy ty, int n) { return expr_raw(x, OP_red, ty, 0, 0, 0, 0, n); }

ExprRef mg_ex_red(MgExprs *x, MgTy ty) { return expr_raw(x, OP_red, ty, 0, 0, 0, 0, 0); }

ExprRef mg_ex_load(MgExprs *x, MgTy ty, uint32_t buf, ExprRef index, ExprRef mask, ExprRef other) {
  if (x->nomem) return 0;
  if (!index || mg_expr(x, index)->ty != TY_i64) return expr_bad(x, "load index is not i64");
  if (mask) {
    if (mg_expr(x, mask)->ty != TY_i1 || !other || mg_expr(x, other)->ty != ty)
      return expr_bad(x, "load mask or other");
    if (mg_expr(x, mask)->op == OP_const) {
      if (!mg_expr(x, mask)->u.i) return other;
      mask = other = 0;
    }
  }
  return expr_raw(x, OP_load, ty, mask ? 3 : 1, index, mask, mask ? other : 0, buf);
}

ExprRef mg_ex_rand(MgExprs *x, int kind, ExprRef seed, ExprRef index) {
  if (x->nomem) return 0;
  if (!seed || !index || mg_expr(x, seed)->ty != TY_i64 || mg_expr(x, index)->ty != TY_i64)
    return expr_bad(x, "rand takes an i64 seed and index");
  return expr_raw(x, OP_rand, TY_f32, 2, seed, index, 0, kind);
}

ExprRef mg_ex_cvt(MgExprs *x, MgTy ty, ExprRef a) {
  if (x->nomem) return 0;
  if (!a) return expr_bad(x, "cvt of nothing");
  const MgExpr *e = mg_expr(x, a);
  if (e->ty == ty) return a;
  if (e->op == OP_const) return expr_const(x, ty, mg_scalar_cvt(ty, e->ty, (MgScalar){.i = e->u.i}));
  ExprRef r = expr_fold_cvt(x, ty, a);
  return r ? r : expr_raw(x, OP_cvt, ty, 1, a, 0, 0, 0);
}

static ExprRef build_bitcast(MgExprs *x, MgTy ty, ExprRef a) {
  const MgExpr *e = mg_expr(x, a);
  if (e->ty == ty) return a;
  if (mg_ty_size(ty) != mg_ty_size(e->ty) || ty == TY_i1 || e->ty == TY_i1)
    return expr_bad(x, "bitcast changes the size");
  if (e->op == OP_bitcast) return build_bitcast(x, ty, e->src[0]);
  /* NaN constants have one pattern here, so only other constants are folded. */
  if (e->op == OP_const && !(mg_ty_is_float(e->ty) && isnan(e->u.f))) {
    MgScalar v = mg_scalar_from_bits(ty, mg_scalar_bits(e->ty, (MgScalar){.i = e->u.i}));
    if (!(mg_ty_is_float(ty) && isnan(v.f))) return expr_const(x, ty, v);
  }
  return expr_raw(x, OP_bitcast, ty, 1, a, 0, 0, 0);
}

ExprRef mg_ex_bitcast(MgExprs *x, MgTy ty, ExprRef a) {
  if (x->nomem) return 0;
  return a ? build_bitcast(x, ty, a) : expr_bad(x, "bitcast of nothing");
}

static ExprRef build_where(MgExprs *x, ExprRef p, ExprRef a, ExprRef b) {
  if (!p || !a || !b || mg_expr(x, p)->ty != TY_i1) return expr_bad(x, "where takes an i1 and two values");
  if (mg_expr(x, a)->ty != mg_expr(x, b)->ty) return expr_bad(x, "where: the values' types differ");
  ExprRef r = expr_fold_where(x, p, a, b);
  return r ? r : expr_raw(x, OP_where, mg_expr(x, a)->ty, 3, p, a, b, 0);
}

ExprRef mg_ex_op(MgExprs *x, MgScalarOp op, ExprRef a, ExprRef b, ExprRef c) {
  const MgScalarInfo *row = &mg_scalar_info[op];
  ExprRef s[3] = {a, b, c};
  if (x->nomem) return 0;
  if (op == OP_where) return build_where(x, a, b, c);
  if (row->rule == SOR_LEAF) return expr_bad(x, "leaf built by mg_ex_op");
  for (int i = 0; i < 3; i++)
    if ((i < row->nin) != (s[i] != 0)) return expr_bad(x, row->name);
  MgTy ty = mg_expr(x, a)->ty;
  for (int i = 1; i < row->nin; i++)
    if (mg_expr(x, s[i])->ty != ty) {
      if (!x->nomem)
        mg_fail(x->c, MG_BUG, "expression: %s of %s and %s", row->name, mg_ty_name(ty),
                mg_ty_name(mg_expr(x, s[i])->ty));
      x->nomem = true;
      return 0;
    }
  if (!mg_scalar_takes(op, ty)) {
    mg_fail(x->c, MG_BUG, "expression: %s is not defined for %s", row->name, mg_ty_name(ty));
    x->nomem = true;
    return 0;
  }
  if (ty == TY_f16 ||
      ty == TY_bf16) { /* computed in f32, rounded once; whole quotients step by step, as ATen has them */
    if (op == OP_floordiv || op == OP_tdiv) return row->dec(x, op, s);
    for (int i = 0; i < row->nin; i++) s[i] = mg_ex_cvt(x, TY_f32, s[i]);
    ExprRef r = mg_ex_op(x, op, s[0], s[1], s[2]);
    return row->rule == SOR_PRED ? r : mg_ex_cvt(x, ty, r);
  }
  ExprRef r = expr_fold(x, op, ty, s);
  if (r || x->nomem) return r;
  return expr_raw(x, op, row->rule == SOR_PRED ? TY_i1 : ty, row->nin, s[0], s[1], s[2], 0);
}

/* ---- traversal ---- */

ExprRef mg_ex_rebuild(MgExprs *x, ExprRef r, const ExprRef *s) {
  const MgExpr e = x->node[r];
  switch (e.op) {
  case OP_const:
  case OP_sym:
  case OP_red: return r;
  case OP_idx: return mg_ex_idx(x, (int)e.u.i);
  case OP_load: return mg_ex_load(x, e.ty, (uint32_t)e.u.i, s[0], s[1], s[2]);
  case OP_cvt: return mg_ex_cvt(x, e.ty, s[0]);
  case OP_bitcast: return mg_ex_bitcast(x, e.ty, s[0]);
  case OP_rand: return mg_ex_rand(x, (int)e.u.i, s[0], s[1]);
  default: return mg_ex_op(x, e.op, s[0], s[1], s[2]);
  }
}

/* Starts a traversal: an empty memo that covers the nodes there are. */
static bool memo_begin(MgExprs *x) {
  if (x->cap_memo < x->n) {
    x->memo = mg_new(x->c, uint32_t, x->cap);
    x->memo_gen = mg_new(x->c, uint32_t, x->cap);
    if (!x->memo || !x->memo_gen) {
      x->nomem = true;
      return false;
    }
    x->cap_memo = x->cap;
    x->gen = 0;
  }
  x->gen++;
  return true;
}

static ExprRef subst_node(MgExprs *x, ExprRef r, const ExprRef *s, void *arg);

static ExprRef map_walk(MgExprs *x, ExprRef r, MgExFn fn, void *arg) {
  ExprRef s[3] = {0, 0, 0};
  if (!r || x->nomem) return 0;
  if (x->memo_gen[r] == x->gen) return x->memo[r];
  if (fn == subst_node && x->trait[r] & EX_SIZE) return r; /* no index below */
  for (int i = 0; i < x->node[r].nsrc; i++) s[i] = map_walk(x, x->node[r].src[i], fn, arg);
  if (x->nomem) return 0;
  ExprRef v = fn(x, r, s, arg);
  x->memo[r] = v;
  x->memo_gen[r] = x->gen;
  return v;
}

ExprRef mg_ex_map(MgExprs *x, ExprRef e, MgExFn fn, void *arg) {
  if (!e || x->nomem || !memo_begin(x)) return 0;
  uint32_t gen = x->gen;
  ExprRef r = map_walk(x, e, fn, arg);
  MG_ASSERT(x->gen == gen, "the function of a rewrite started another one");
  return r;
}

typedef struct Subst {
  const ExprRef *to;
  int n;
} Subst;

static ExprRef subst_node(MgExprs *x, ExprRef r, const ExprRef *s, void *arg) {
  const Subst *q = arg;
  const MgExpr *e = mg_expr(x, r);
  ExprRef to = e->op == OP_idx && e->u.i < q->n ? q->to[e->u.i] : 0;
  if (to >= x->n) return expr_bad(x, "substitution of something that is no expression");
  if (to) return to;
  return mg_ex_rebuild(x, r, s);
}

ExprRef mg_ex_subst(MgExprs *x, ExprRef e, const ExprRef *to, int n) {
  Subst q = {to, n};
  return mg_ex_map(x, e, subst_node, &q);
}

/* How many distinct operations there are below e. */
static uint32_t walk_ops(MgExprs *x, ExprRef r) {
  if (!r || x->memo_gen[r] == x->gen) return 0;
  x->memo_gen[r] = x->gen;
  const MgExpr *e = mg_expr(x, r);
  uint32_t n = e->nsrc && e->op != OP_load;
  for (int i = 0; i < e->nsrc; i++) n += walk_ops(x, e->src[i]);
  return n;
}
static bool any_walk(MgExprs *x, ExprRef r, bool (*fn)(const MgExprs *, ExprRef, void *), void *arg) {
  if (!r || x->memo_gen[r] == x->gen) return false;
  x->memo_gen[r] = x->gen;
  for (int i = 0; i < mg_expr(x, r)->nsrc; i++)
    if (any_walk(x, mg_expr(x, r)->src[i], fn, arg)) return true;
  return fn(x, r, arg);
}

bool mg_ex_any(const MgExprs *cx, ExprRef e, bool (*fn)(const MgExprs *, ExprRef, void *), void *arg) {
  MgExprs *x = (MgExprs *)cx; /* only the memo changes */
  if (!e || !memo_begin(x)) return false;
  uint32_t gen = x->gen;
  bool found = any_walk(x, e, fn, arg);
  MG_ASSERT(x->gen == gen, "the function of a traversal started another one");
  return found;
}

uint32_t mg_ex_count_ops(const MgExprs *cx, ExprRef e) {
  MgExprs *x = (MgExprs *)cx; /* only the memo changes */
  return e && memo_begin(x) ? walk_ops(x, e) : 0;
}

/* No traversal: the functions of one may ask. */
uint32_t mg_ex_idx_mask(const MgExprs *x, ExprRef e) { return e ? x->idx[e] : 0; }

bool mg_ex_uses_idx(const MgExprs *x, ExprRef e, int k) { return mg_ex_idx_mask(x, e) >> k & 1; }

/* ---- queries ---- */

/* Counts the nodes of a tree, but not far. */
static void size_count(const MgExprs *x, ExprRef r, int *n) {
  const MgExpr *e = mg_expr(x, r);
  if (!e->nsrc || ++*n > MG_TUNE_SIZE_LONG) return;
  for (int i = 0; i < e->nsrc; i++) size_count(x, e->src[i], n);
}

bool mg_ex_is_long_size(const MgExprs *x, ExprRef e) {
  int n = 0;
  if (!(x->trait[e] & EX_SIZE)) return false;
  size_count(x, e, &n);
  return n > MG_TUNE_SIZE_LONG;
}

bool mg_ex_const_int(const MgExprs *x, ExprRef e, int64_t *v) {
  const MgExpr *n = mg_expr(x, e);
  if (!e || n->op != OP_const || mg_ty_is_float(n->ty)) return false;
  *v = n->u.i;
  return true;
}

bool mg_ex_const_float(const MgExprs *x, ExprRef e, double *v) {
  const MgExpr *n = mg_expr(x, e);
  if (!e || n->op != OP_const || !mg_ty_is_float(n->ty)) return false;
  *v = n->u.f;
  return true;
}

/* Most sizes are constants. */
static SymRef sym_op(MgExprs *x, MgScalarOp op, SymRef a, SymRef b) {
  int64_t v, w, r = 0;
  bool known = a && b && mg_ex_const_int(x, a, &v) && mg_ex_const_int(x, b, &w);
  switch (known ? op : OP_floordiv) {
  case OP_add: known = !__builtin_add_overflow(v, w, &r); break;
  case OP_sub: known = !__builtin_sub_overflow(v, w, &r); break;
  case OP_mul: known = !__builtin_mul_overflow(v, w, &r); break;
  case OP_min: r = v < w ? v : w; break;
  case OP_max: r = v > w ? v : w; break;
  default: known = false;
  }
  return known ? mg_sym(x, r) : mg_ex_op(x, op, a, b, 0);
}

SymRef mg_sym_add(MgExprs *x, SymRef a, SymRef b) { return sym_op(x, OP_add, a, b); }
SymRef mg_sym_sub(MgExprs *x, SymRef a, SymRef b) { return sym_op(x, OP_sub, a, b); }
SymRef mg_sym_mul(MgExprs *x, SymRef a, SymRef b) { return sym_op(x, OP_mul, a, b); }
SymRef mg_sym_floordiv(MgExprs *x, SymRef a, SymRef b) { return mg_ex_op(x, OP_floordiv, a, b, 0); }
SymRef mg_sym_mod(MgExprs *x, SymRef a, SymRef b) { return mg_ex_op(x, OP_mod, a, b, 0); }
SymRef mg_sym_min(MgExprs *x, SymRef a, SymRef b) { return sym_op(x, OP_min, a, b); }
SymRef mg_sym_max(MgExprs *x, SymRef a, SymRef b) { return sym_op(x, OP_max, a, b); }

/* Values with each symbol at env, or at its hint. */
static bool number_begin(MgExprs *x, uint32_t r) {
  if (r < x->cap_number) return true;
  uint32_t cap = x->cap > r ? x->cap : x->n; /* frozen expressions have no room for more */
  MgExprNumber *p = mg_new(x->c, MgExprNumber, cap);
  if (!p) return false;
  x->number = p;
  x->cap_number = cap;
  return true;
}

static MgScalar size_eval(MgExprs *x, ExprRef r, const int64_t *env, uint32_t gen) {
  const MgExpr *e = mg_expr(x, r);
  MgScalar s[3] = {{0}}, v = {0};
  if (e->op == OP_const) return (MgScalar){.i = e->u.i};
  if (e->op == OP_sym) return (MgScalar){.i = env ? env[e->u.i] : x->sym[e->u.i].hint};
  if (gen && x->number[r].gen == gen) return (MgScalar){.i = x->number[r].v};
  for (int i = 0; i < e->nsrc; i++) s[i] = size_eval(x, e->src[i], env, gen);
  if (e->op == OP_where) v = s[0].i ? s[1] : s[2];
  else if (e->op == OP_cvt) v = mg_scalar_cvt(e->ty, mg_expr(x, e->src[0])->ty, s[0]);
  else if (e->nsrc) mg_scalar_eval(e->op, mg_expr(x, e->src[0])->ty, s[0], s[1], s[2], &v);
  if (gen) x->number[r] = (MgExprNumber){v.i, gen};
  return v;
}

int64_t mg_sym_hint(const MgExprs *cx, SymRef a) {
  MgExprs *x = (MgExprs *)cx; /* only the memo changes */
  return a ? size_eval(x, a, NULL, number_begin(x, a) ? MG_EXPR_HINT : 0).i : 0;
}

int64_t mg_sym_eval(const MgExprs *cx, SymRef a, const int64_t *env) {
  MgExprs *x = (MgExprs *)cx;
  if (!a || mg_expr(x, a)->op == OP_const || mg_expr(x, a)->op == OP_sym)
    return a ? size_eval(x, a, env, 0).i : 0;
  if (++x->number_gen == MG_EXPR_HINT) { /* all are old, or would look new */
    if (x->number) memset(x->number, 0, x->cap_number * sizeof *x->number);
    x->number_gen = 1;
  }
  return size_eval(x, a, env, number_begin(x, a) ? x->number_gen : 0).i;
}

MgRc mg_exprs_freeze(MgExprs *to, MgCtx *c, const MgExprs *from) {
  *to =
      (MgExprs){.c = c, .n = from->n, .nsym = from->nsym, .node = mg_new(c, MgExpr, from->n), .nomem = true};
  TRYP(to->node);
  memcpy(to->node, from->node, from->n * sizeof *to->node);
  return MG_OK;
}
