/* Reference evaluator of loop nests: the oracle that generated code is tested against.
 * In: one nest, base pointers, values of the symbols.  Out: memory as the nest leaves it.
 * It evaluates every node of the nest's expressions at every point with mg_scalar_eval; float sums and
 * products are accumulated in double and rounded once, so generated code is compared within
 * the tolerance of its order. */
#include "back/kernel/back.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Interp {
  MgSched *s;
  const MgExprs *x;
  void *const *buf;
  const int64_t *env;
  int64_t at[MG_MAX_IDX]; /* current loop indices */
  MgScalar red;           /* value of the `red` leaf */
  MgScalar *val;          /* per node: value at the current point */
  uint8_t *have;          /* per node: in the order being built */
} Interp;

typedef struct Order { /* nodes of one expression, sources first */
  ExprRef *node;
  uint32_t n, cap;
  ExprRef root;
} Order;

static MgRc order_add(Interp *p, Order *o, ExprRef r, uint8_t mark) {
  const MgExpr *e = mg_expr(p->x, r);
  if (!r || p->have[r] == mark) return MG_OK;
  p->have[r] = mark;
  for (int i = 0; i < e->nsrc; i++) TRY(order_add(p, o, e->src[i], mark));
  if (o->n == o->cap) {
    uint32_t cap = o->cap ? o->cap * 2 : 64;
    o->node = mg_ctx_grow(p->s->c, o->node, o->n * sizeof *o->node, cap * sizeof *o->node);
    TRYP(o->node);
    o->cap = cap;
  }
  o->node[o->n++] = r;
  return MG_OK;
}

static MgScalar load(const Interp *p, MgTy ty, BufRef b, int64_t i) {
  uint64_t bits = 0;
  int size = mg_ty_size(ty);
  memcpy(&bits, (const char *)p->buf[b] + i * size, (size_t)size);
  return mg_scalar_from_bits(ty, bits);
}

static MgScalar eval_node(Interp *p, ExprRef r) {
  const MgExpr *e = mg_expr(p->x, r);
  MgScalar a = p->val[e->src[0]], b = p->val[e->src[1]], c = p->val[e->src[2]], v = {0};
  MgTy from = mg_expr(p->x, e->src[0])->ty;
  switch (e->op) {
  case OP_const: return (MgScalar){.i = e->u.i};
  case OP_sym: return (MgScalar){.i = p->env[e->u.i]};
  case OP_idx: return (MgScalar){.i = p->at[e->u.i]};
  case OP_red: return mg_scalar_wrap(e->ty, p->red);
  case OP_load: return e->src[1] && !b.i ? c : load(p, e->ty, (BufRef)e->u.i, a.i);
  case OP_cvt: return mg_scalar_cvt(e->ty, from, a);
  case OP_bitcast: return mg_scalar_from_bits(e->ty, mg_scalar_bits(from, a));
  case OP_where: return a.i ? b : c;
  case OP_rand: return (MgScalar){.f = mg_scalar_rand((int)e->u.i, (uint64_t)a.i, (uint64_t)b.i)};
  default: mg_scalar_eval(e->op, from, a, b, c, &v); return v; /* undefined integer operations give 0 here */
  }
}

static MgScalar eval(Interp *p, const Order *o) {
  for (uint32_t i = 0; i < o->n; i++) p->val[o->node[i]] = eval_node(p, o->node[i]);
  return p->val[o->root];
}

/* ---- reductions ---- */

typedef struct Acc {
  MgScalar v;
  int64_t pos;  /* argmax and its kind: position of v */
  int64_t seen; /* points so far */
} Acc;

MgScalar mg_red_start(MgRedOp op, MgTy ty) {
  bool f = mg_ty_is_float(ty), s = mg_ty_is_signed(ty);
  int bits = ty == TY_i1 ? 1 : 8 * mg_ty_size(ty);
  int64_t most = s ? (int64_t)(~0ull >> (65 - bits)) : bits == 64 ? -1 : (int64_t)((1ull << bits) - 1);
  switch (op) {
  case RED_prod: return f ? (MgScalar){.f = 1} : (MgScalar){.i = 1};
  case RED_max:
  case RED_argmax:
  case RED_argpool: return f ? (MgScalar){.f = -INFINITY} : (MgScalar){.i = s ? -most - 1 : 0};
  case RED_min:
  case RED_argmin: return f ? (MgScalar){.f = INFINITY} : (MgScalar){.i = most};
  case RED_all: return (MgScalar){.i = 1};
  default: return (MgScalar){0};
  }
}

static void red_step(MgRedOp op, MgTy ty, Acc *a, MgScalar v) {
  bool f = mg_ty_is_float(ty), first = a->seen == 0, take;
  MgScalar r = a->v;
  switch (op) {
  case RED_sum:
    if (f) r.f += v.f;
    else mg_scalar_eval(OP_add, ty, r, v, v, &r);
    break;
  case RED_prod:
    if (f) r.f *= v.f;
    else mg_scalar_eval(OP_mul, ty, r, v, v, &r);
    break;
  case RED_max: mg_scalar_eval(OP_max, ty, r, v, v, &r); break;
  case RED_min: mg_scalar_eval(OP_min, ty, r, v, v, &r); break;
  case RED_any: r.i |= f ? v.f != 0 : v.i != 0; break;
  case RED_all: r.i &= f ? v.f != 0 : v.i != 0; break;
  case RED_xor: r.i ^= v.i; break;
  case RED_argmax:
  case RED_argmin:
  case RED_argpool:
    if (f && op == RED_argpool) take = isnan(v.f) || v.f > r.f;
    else if (f) take = !isnan(r.f) && (isnan(v.f) || (op == RED_argmax ? v.f > r.f : v.f < r.f));
    else {
      MgScalar lt = {0};
      if (op != RED_argmin) mg_scalar_eval(OP_gt, ty, v, r, r, &lt);
      else mg_scalar_eval(OP_lt, ty, v, r, r, &lt);
      take = lt.i != 0;
    }
    if (first || take) {
      r = v;
      a->pos = a->seen;
    }
    break;
  }
  a->v = r;
  a->seen++;
}

/* ---- nests ---- */

static void store(Interp *p, const MgLoop *l, const Order *index, const Order *mask, const Order *value) {
  const MgBuf *b = &p->s->buf[l->buf];
  MgTy ty = mg_dtype_ty(b->dtype), comp = mg_dtype_compute(b->dtype);
  static const MgScalarOp op[] = {[ST_add] = OP_add, [ST_max] = OP_max, [ST_min] = OP_min, [ST_mul] = OP_mul};
  if (mask->root && !eval(p, mask).i) return;
  int64_t i = eval(p, index).i;
  MgScalar v = mg_scalar_cvt(ty, mg_expr(p->x, value->root)->ty, eval(p, value));
  if (l->mode != ST_set) {
    MgScalar old = mg_scalar_cvt(comp, ty, load(p, ty, l->buf, i)), r = {0};
    if (ty == TY_i1) r.i = l->mode == ST_add || l->mode == ST_max ? old.i | v.i : old.i & v.i;
    else mg_scalar_eval(op[l->mode], comp, old, mg_scalar_cvt(comp, ty, v), old, &r);
    v = mg_scalar_cvt(ty, comp, r);
  }
  uint64_t bits = mg_scalar_bits(ty, v);
  int size = mg_ty_size(ty);
  memcpy((char *)p->buf[l->buf] + i * size, &bits, (size_t)size);
}

/* Next point of ranges [from, to), last fastest; false after the last one. */
static bool next(Interp *p, const int64_t *n, int from, int to) {
  for (int k = to - 1; k >= from; k--) {
    if (++p->at[k] < n[k]) return true;
    p->at[k] = 0;
  }
  return false;
}

static MgRc run(Interp *p, const MgLoop *l, const Order *body, const Order *index, const Order *mask,
                const Order *value) {
  int64_t n[MG_MAX_RANK];
  int outer = l->nouter, all = l->nouter + l->nred;
  bool empty_out = false, empty_red = false;
  MgTy bty = l->body ? mg_expr(p->x, l->body)->ty : TY_i64;
  for (int k = 0; k < all; k++) {
    n[k] = mg_sym_eval(p->x, l->range[k], p->env);
    if (n[k] <= 0) *(k < outer ? &empty_out : &empty_red) = true;
  }
  if (empty_out) return MG_OK;
  do {
    Acc a = {.v = mg_red_start(l->red_op, bty)};
    if (l->kind == ML_point || l->kind == ML_scatter) {
      store(p, l, index, mask, value);
      continue;
    }
    if (!empty_red) do {
        red_step(l->red_op, bty, &a, eval(p, body));
        p->red = a.v;
        if (mg_red_is_arg(l->red_op)) p->red.i = a.pos;
        if (l->kind == ML_scan) store(p, l, index, mask, value);
      } while (next(p, n, outer, all));
    if (l->kind == ML_reduce) {
      if (empty_red) p->red = a.v;
      store(p, l, index, mask, value);
    }
  } while (next(p, n, 0, outer));
  return MG_OK;
}

MgRc mg_interp_loop(MgSched *s, const MgLoop *l, void *const *buf, const int64_t *env) {
  Interp p = {.s = s, .x = s->x, .buf = buf, .env = env};
  Order o[4] = {{0}};
  ExprRef root[4] = {l->body, l->index, l->mask, l->value};
  p.val = mg_new(s->c, MgScalar, s->x->n);
  p.have = mg_new(s->c, uint8_t, s->x->n);
  if (!p.val || !p.have) return MG_NOMEM;
  if (l->nouter + l->nred > MG_MAX_RANK)
    return mg_fail(s->c, MG_BUG, "loop nest with %d ranges", l->nouter + l->nred);
  for (int i = 0; i < 4; i++) {
    o[i].root = root[i];
    TRY(order_add(&p, &o[i], root[i], (uint8_t)(i + 1)));
  }
  return run(&p, l, &o[0], &o[1], &o[2], &o[3]);
}
