/* Expressions to LLVM instructions: values in scalar or vector form, loads and stores, accumulators. */
#include "back/emit/emit_llvm_priv.h"
#include <math.h>
#include <string.h>

/* Tables grow with the expressions that are made while emitting. */
static bool tables(Em *e) {
  uint32_t n = e->x->n, cap = n + n / 2 + 1024, old = e->cap;
  if (n <= e->cap) return true;
  for (int i = 0; i < 2; i++)
    e->memo[i] = mg_ctx_grow(e->c, e->memo[i], old * sizeof(EmMemo), cap * sizeof(EmMemo));
  e->imask = mg_ctx_grow(e->c, e->imask, old * sizeof *e->imask, cap * sizeof *e->imask);
  e->have = mg_ctx_grow(e->c, e->have, old, cap);
  e->seen = mg_ctx_grow(e->c, e->seen, old * sizeof *e->seen, cap * sizeof *e->seen);
  e->size_at = mg_ctx_grow(e->c, e->size_at, old * sizeof *e->size_at, cap * sizeof *e->size_at);
  if (!e->memo[0] || !e->memo[1] || !e->imask || !e->have || !e->seen || !e->size_at) {
    e->rc = MG_NOMEM;
    return false;
  }
  e->cap = cap;
  return true;
}

uint32_t em_imask(Em *e, ExprRef r) {
  const MgExpr *n = mg_expr(e->x, r);
  if (!tables(e) || e->have[r]) return e->rc ? 0 : e->imask[r];
  uint32_t m = n->op == OP_idx ? 1u << n->u.i : n->op == OP_red ? 1u << 31 : 0;
  for (int i = 0; i < n->nsrc; i++) m |= em_imask(e, mg_expr(e->x, r)->src[i]);
  e->have[r] = 1;
  return e->imask[r] = m;
}

bool em_varies(Em *e, ExprRef r) {
  uint32_t m = em_imask(e, r);
  return e->lanes > 1 && ((m >> e->kv & 1) || (e->red_vec && m >> 31));
}

static EmRef broadcast(Em *e, EmRef v, MgTy ty, int lanes) {
  MgStrbuf *b = em_at(e, v.level);
  EmRef one = em_new(e, v.level, lanes), all = em_new(e, v.level, lanes);
  const char *t = em_ty(ty);
  mg_sb_printf(b, "  %%v%d = insertelement <%d x %s> poison, %s ", one.id, lanes, t, t);
  em_put(e, b, v, ty);
  mg_sb_printf(
      b, ", i64 0\n  %%v%d = shufflevector <%d x %s> %%v%d, <%d x %s> poison, <%d x i32> zeroinitializer\n",
      all.id, lanes, t, one.id, lanes, t, lanes);
  return all;
}

EmRef em_lane(Em *e, EmRef v, MgTy ty, int lane) {
  if (v.id == -1) return (EmRef){.id = -1, .k = v.k, .lanes = 1, .level = v.level};
  MgStrbuf *b = em_at(e, v.level);
  EmRef r = em_new(e, v.level, 1);
  mg_sb_printf(b, "  %%v%d = extractelement <%d x %s> %%v%d, i64 %d\n", r.id, v.lanes, em_ty(ty), v.id, lane);
  return r;
}

/* ---- addresses ---- */

static void put_base(Em *e, MgStrbuf *b, BufRef buf) {
  int arg = e->buf_arg[buf];
  if (arg > 0) mg_sb_printf(b, "%%p%d", arg - 1);
  else mg_sb_printf(b, "%%lb%d", -arg);
}

/* &base[offset], scalar; offset an i64 value. */
static EmRef gep(Em *e, const char *base, EmRef p, BufRef buf, MgTy ty, EmRef offset, int level) {
  if (offset.level > level) level = offset.level;
  if (p.id >= 0 && p.level > level) level = p.level;
  MgStrbuf *b = em_at(e, level);
  EmRef r = em_new(e, level, 1);
  mg_sb_printf(b, "  %%v%d = getelementptr %s, ptr ", r.id, base);
  if (p.id >= 0) mg_sb_printf(b, "%%v%d", p.id);
  else put_base(e, b, buf);
  mg_sb_puts(b, ", i64 ");
  em_put_size(e, b, offset);
  mg_sb_putc(b, '\n');
  return r;
}

/* Address of element `index` (a scalar expression), shared by all its users in scope. */
static EmRef address(Em *e, BufRef buf, MgTy ty, ExprRef index) {
  uint64_t key = (uint64_t)buf << 32 | index, h = mg_hash_u64(key);
  uint32_t slot = (uint32_t)(h & 511);
  EmMemo *m = &e->ptr[slot]; /* direct-mapped: a collision only repeats an address */
  if (e->ptr_key[slot] == key && m->serial == e->scope[m->level].serial && m->level <= e->depth)
    return (EmRef){.id = m->id, .lanes = 1, .level = m->level};
  EmRef r = gep(e, em_mem(ty), em_none, buf, ty, em_value(e, index, 1), 0);
  e->ptr_key[slot] = key;
  *m = (EmMemo){.id = r.id, .serial = e->scope[r.level].serial, .level = r.level};
  return r;
}

/* Address of `index` with its dependence on the vector index kept apart, so that the rest leaves the loop. */
static EmRef address_split(Em *e, BufRef buf, MgTy ty, ExprRef index, ExprRef *coef) {
  ExprRef rest;
  *coef = 0;
  if (e->kv < 0 || !mg_ex_linear(e->x, index, e->kv, coef, &rest)) {
    *coef = 0;
    return address(e, buf, ty, index);
  }
  EmRef p = address(e, buf, ty, rest);
  if (mg_sym_is(e->x, *coef, 0)) return p;
  EmRef iv = e->idx[e->kv];
  if (!mg_sym_is(e->x, *coef, 1))
    iv = em_ins(e, "mul $t $a, $b", TY_i64, TY_i64, 1, iv, em_value(e, *coef, 1));
  return gep(e, em_mem(ty), p, buf, ty, iv, 0);
}

/* Where lanes' addresses are not contiguous: the address of one lane. */
typedef struct Lanes {
  EmRef base, index; /* base: address of lane 0 (linear), index: vector of element numbers (otherwise) */
  ExprRef coef;
} Lanes;

static Lanes lanes_of(Em *e, BufRef buf, MgTy ty, ExprRef index) {
  Lanes l = {.index = em_none};
  ExprRef rest;
  if (mg_ex_linear(e->x, index, e->kv, &l.coef, &rest)) l.base = address_split(e, buf, ty, index, &l.coef);
  else l.index = em_value(e, index, e->lanes);
  return l;
}

static EmRef lane_address(Em *e, const Lanes *l, BufRef buf, MgTy ty, int lane) {
  if (l->index.id != -2) return gep(e, em_mem(ty), em_none, buf, ty, em_lane(e, l->index, TY_i64, lane), 0);
  if (lane == 0) return l->base;
  return gep(e, em_mem(ty), l->base, buf, ty, em_value(e, mg_sym_mul(e->x, l->coef, mg_sym(e->x, lane)), 1),
             0);
}

/* p where the condition holds, else harmless memory. */
static EmRef guarded(Em *e, EmRef p, EmRef cond) {
  EmRef s[2] = {p, cond};
  EmRef r = em_new(e, em_level(s, 2), 1);
  MgStrbuf *b = em_at(e, r.level);
  mg_sb_printf(b, "  %%v%d = select i1 ", r.id);
  em_put(e, b, cond, TY_i1);
  mg_sb_printf(b, ", ptr %%v%d, ptr %%scratch\n", p.id);
  return r;
}

/* ---- loads ---- */

static EmRef from_memory(Em *e, EmRef v, MgTy ty, int lanes) { /* bytes to i1 */
  if (ty != TY_i1) return v;
  return em_ins(e, "icmp ne $t $a, $b", TY_u8, TY_i1, lanes, v, em_kint(e, TY_u8, 0, lanes));
}

static EmRef load_at(Em *e, EmRef p, MgTy ty, int lanes, int level) {
  if (p.level > level) level = p.level;
  MgStrbuf *b = em_at(e, level);
  EmRef r = em_new(e, level, lanes);
  mg_sb_printf(b, "  %%v%d = load ", r.id);
  em_put_ty(b, em_mem(ty), lanes);
  mg_sb_printf(b, ", ptr %%v%d, align %d\n", p.id, mg_ty_size(ty));
  return r;
}

static void put_vp_suffix(MgStrbuf *b, MgTy ty, int lanes) {
  mg_sb_printf(b, "v%d%s%d", lanes, ty == TY_f16 || ty == TY_f32 || ty == TY_f64 ? "f" : "i",
               8 * mg_ty_size(ty));
}

static EmRef masked_load(Em *e, EmRef p, MgTy ty, int lanes, EmRef mask, int level) {
  EmRef s[2] = {p, mask};
  if (em_level(s, 2) > level) level = em_level(s, 2);
  MgStrbuf *b = em_at(e, level);
  EmRef r = em_new(e, level, lanes);
  mg_sb_printf(b, "  %%v%d = call <%d x %s> @llvm.vp.load.", r.id, lanes, em_mem(ty));
  put_vp_suffix(b, ty, lanes);
  mg_sb_printf(b, ".p0(ptr align %d %%v%d, <%d x i1> ", mg_ty_size(ty), p.id, lanes);
  em_put(e, b, mask, TY_i1);
  mg_sb_printf(b, ", i32 %d)\n", lanes);
  return r;
}

static EmRef and_mask(Em *e, EmRef a, EmRef b) {
  if (a.id == -2) return b;
  if (b.id == -2) return a;
  return em_ins(e, "and $t $a, $b", TY_i1, TY_i1, e->lanes, a, b);
}

static EmRef insert_lane(Em *e, EmRef v, EmRef x, MgTy ty, int lane) {
  EmRef s[2] = {v, x};
  EmRef r = em_new(e, em_level(s, 2), e->lanes);
  MgStrbuf *b = em_at(e, r.level);
  mg_sb_printf(b, "  %%v%d = insertelement <%d x %s> ", r.id, e->lanes, em_mem(ty));
  if (v.id == -2) mg_sb_puts(b, "poison");
  else mg_sb_printf(b, "%%v%d", v.id);
  mg_sb_printf(b, ", %s %%v%d, i64 %d\n", em_mem(ty), x.id, lane);
  return r;
}

static EmRef reverse(Em *e, EmRef v, const char *elem) {
  if (v.id < 0) return v;
  EmRef r = em_new(e, v.level, v.lanes);
  MgStrbuf *b = em_at(e, v.level);
  mg_sb_printf(b, "  %%v%d = shufflevector <%d x %s> %%v%d, <%d x %s> poison, <%d x i32> <", r.id, v.lanes,
               elem, v.id, v.lanes, elem, v.lanes);
  for (int i = v.lanes - 1; i >= 0; i--) mg_sb_printf(b, "i32 %d%s", i, i ? ", " : ">\n");
  return r;
}

/* How the lanes of an access lie: its coefficient of the vector index. */
static bool unit_stride(Em *e, ExprRef index, int kv, int64_t *stride) {
  ExprRef coef, rest;
  return mg_ex_linear(e->x, index, kv, &coef, &rest) && mg_ex_const_int(e->x, coef, stride);
}

static EmRef shuffle_pair(Em *e, EmRef a, EmRef b, MgTy ty, int half, bool upper) {
  EmRef s[2] = {a, b}, r = em_new(e, em_level(s, 2), a.lanes);
  MgStrbuf *t = em_at(e, r.level);
  mg_sb_printf(t, "  %%v%d = shufflevector <%d x %s> %%v%d, <%d x %s> %%v%d, <%d x i32> <", r.id, a.lanes,
               em_mem(ty), a.id, a.lanes, em_mem(ty), b.id, a.lanes);
  for (int j = 0; j < a.lanes; j++) {
    bool first = j % (2 * half) < half;
    int from = upper ? (first ? j + half : a.lanes + j) : (first ? j : a.lanes + j - half);
    mg_sb_printf(t, "i32 %d%s", from, j + 1 < a.lanes ? ", " : ">\n");
  }
  return r;
}

/* A load that jumps along the vector index and runs along the tile index: the tile is loaded by rows,
 * transposed in registers and kept on the stack, once per vector iteration; each tile point then loads one
 * vector.  id -2: no such load. */
static EmRef load_tiled(Em *e, MgExpr n, ExprRef r, MgTy ty, int floor) {
  ExprRef coef, row;
  int64_t k;
  int level = 0, slot = (int)(r % 16), id;
  EmRef v[64];
  if (e->tile < 0 || e->mask.id != -2 || n.src[1] || e->lanes > 64) return em_none;
  if (!mg_ex_linear(e->x, n.src[0], e->tile, &coef, &row) || !mg_ex_const_int(e->x, coef, &k) || k != 1)
    return em_none;
  if (!mg_ex_linear(e->x, row, e->kv, &coef, &row) || !mg_ex_const_int(e->x, coef, &k) || k < e->lanes)
    return em_none;
  while (level <= e->depth && e->scope[level].idx != e->kv) level++;
  if (level > e->depth || floor > level) return em_none;
  if (e->tiled[slot].load != r || e->tiled[slot].serial != e->scope[level].serial) {
    ExprRef start = mg_sym_add(e->x, row, mg_sym_mul(e->x, coef, mg_ex_idx(e->x, e->kv)));
    Lanes l = lanes_of(e, (BufRef)n.u.i, ty, start);
    for (int i = 0; i < e->lanes; i++)
      v[i] = load_at(e, lane_address(e, &l, (BufRef)n.u.i, ty, i), ty, e->lanes, level);
    for (int half = e->lanes / 2; half >= 1; half /= 2)
      for (int i = 0; i < e->lanes; i++) {
        if (i & half) continue;
        EmRef a = v[i], b = v[i + half];
        v[i] = shuffle_pair(e, a, b, ty, half, false);
        v[i + half] = shuffle_pair(e, a, b, ty, half, true);
      }
    id = e->nid++;
    mg_sb_printf(em_at(e, 0), "  %%v%d = alloca [%d x <%d x %s>], align 64\n", id, e->lanes, e->lanes,
                 em_mem(ty));
    for (int i = 0; i < e->lanes; i++) {
      EmRef at = em_new(e, level, 1);
      mg_sb_printf(em_at(e, level),
                   "  %%v%d = getelementptr <%d x %s>, ptr %%v%d, i64 %d\n  store <%d x %s> %%v%d, ptr "
                   "%%v%d, align %d\n",
                   at.id, e->lanes, em_mem(ty), id, i, e->lanes, em_mem(ty), v[i].id, at.id, mg_ty_size(ty));
    }
    e->tiled[slot].load = r;
    e->tiled[slot].serial = e->scope[level].serial;
    e->tiled[slot].id = id;
  }
  EmRef iv = e->idx[e->tile], at = em_new(e, iv.level > level ? iv.level : level, 1);
  MgStrbuf *b = em_at(e, at.level);
  mg_sb_printf(b, "  %%v%d = getelementptr <%d x %s>, ptr %%v%d, i64 ", at.id, e->lanes, em_mem(ty),
               e->tiled[slot].id);
  em_put(e, b, iv, TY_i64);
  mg_sb_putc(b, '\n');
  return load_at(e, at, ty, e->lanes, at.level);
}

/* ---- loads that are contiguous in two pieces: roll, reflected padding ---- */

typedef struct Fork {
  ExprRef at;
  int kv, side;
} Fork;

static ExprRef find_fork(MgExprs *x, ExprRef r, const ExprRef *src, void *arg) {
  Fork *f = arg;
  MgScalarOp op = (MgScalarOp)mg_expr(x, r)->op;
  (void)src;
  bool forks = op == OP_where || op == OP_abs || op == OP_min || op == OP_max;
  if (forks && !f->at && mg_ex_uses_idx(x, mg_expr(x, r)->src[0], f->kv)) f->at = r;
  return r;
}

static ExprRef take_side(MgExprs *x, ExprRef r, const ExprRef *src, void *arg) {
  const Fork *f = arg;
  bool negated = mg_expr(x, r)->op == OP_neg && mg_expr(x, r)->ty == TY_i64; /* as a product it is linear */
  if (r != f->at) return negated ? mg_sym_sub(x, mg_sym(x, 0), src[0]) : mg_ex_rebuild(x, r, src);
  if (mg_expr(x, r)->op == OP_abs) return f->side ? mg_sym_sub(x, mg_sym(x, 0), src[0]) : src[0];
  return mg_expr(x, r)->op == OP_where ? src[1 + f->side] : src[f->side];
}

static ExprRef fork_condition(MgExprs *x, ExprRef at) {
  const MgExpr n = *mg_expr(x, at);
  if (n.op == OP_where) return n.src[0];
  if (n.op == OP_abs) return mg_ex_op(x, OP_le, mg_sym(x, 0), n.src[0], 0);
  return n.op == OP_min ? mg_ex_op(x, OP_lt, n.src[0], n.src[1], 0)
                        : mg_ex_op(x, OP_lt, n.src[1], n.src[0], 0);
}

/* An index that a condition on the vector index makes one or the other of two with unit stride, or
 * none: the condition, or 0. */
static ExprRef fork_of(Em *e, ExprRef index, int kv, ExprRef side[2], int depth) {
  Fork f = {.kv = kv};
  ExprRef more[2];
  int64_t stride;
  if (!e->t->avx512 || depth > 2 || !mg_ex_map(e->x, index, find_fork, &f) || !f.at) return 0;
  for (f.side = 0; f.side < 2; f.side++) {
    if (!(side[f.side] = mg_ex_map(e->x, index, take_side, &f))) return 0;
    bool plain = unit_stride(e, side[f.side], kv, &stride) && stride >= -1 && stride <= 1;
    if (!plain && !fork_of(e, side[f.side], kv, more, depth + 1)) return 0;
  }
  return fork_condition(e->x, f.at);
}

static EmRef load_vector(Em *e, MgExpr n, ExprRef r, MgTy ty, int floor);

static EmRef load_forked(Em *e, const MgExpr *n, MgTy ty, int floor) {
  ExprRef side[2], cond = fork_of(e, n->src[0], e->kv, side, 0);
  if (!cond) return em_none;
  EmRef v[2];
  for (int i = 0; i < 2; i++) {
    ExprRef here = i ? mg_ex_op(e->x, OP_not, cond, 0, 0) : cond;
    MgExpr part = *n;
    part.nsrc = 3;
    part.src[0] = side[i];
    part.src[1] = n->src[1] ? mg_ex_op(e->x, OP_and, n->src[1], here, 0) : here;
    v[i] = load_vector(e, part, 0, ty, floor);
  }
  return em_select(e, ty == TY_i1 ? TY_u8 : ty, e->lanes, em_value(e, cond, e->lanes), v[0], v[1]);
}

static bool never_empty(Em *e, BufRef buf) {
  int64_t lo, hi;
  return mg_ex_range(e->x, e->s->buf[buf].nelem, &lo, &hi) && lo > 0;
}

/* May the element be read whatever its mask says? */
static bool within(Em *e, BufRef buf, ExprRef index) {
  return mg_ex_is_nonneg(e->x, index) && mg_ex_is_below(e->x, index, e->s->buf[buf].nelem);
}

static EmRef load_vector(Em *e, MgExpr n, ExprRef r, MgTy ty, int floor) {
  int64_t stride = 0;
  ExprRef coef;
  bool known = unit_stride(e, n.src[0], e->kv, &stride);
  EmRef tiled = load_tiled(e, n, r, ty, floor);
  if (tiled.id != -2) return tiled;
  EmRef m = n.src[1] ? em_value(e, n.src[1], e->lanes) : em_none, v = em_none;
  if (known && stride == 1) {
    EmRef all = and_mask(e, e->mask, m), p = address_split(e, (BufRef)n.u.i, ty, n.src[0], &coef);
    if (all.id == -2) return load_at(e, p, ty, e->lanes, floor);
    if (e->t->avx512) return masked_load(e, p, ty, e->lanes, all, floor);
  }
  if (known && stride == -1 && m.id == -2 && e->mask.id == -2) { /* the last lane has the least address */
    EmRef p = address_split(e, (BufRef)n.u.i, ty, n.src[0], &coef);
    p = gep(e, em_mem(ty), p, (BufRef)n.u.i, ty, em_int(e, 1 - e->lanes), 0);
    return reverse(e, load_at(e, p, ty, e->lanes, floor), em_mem(ty));
  }
  if (known && stride == -1 && e->t->avx512) {
    EmRef all = reverse(e, and_mask(e, e->mask, m), em_ty(TY_i1)),
          p = address_split(e, (BufRef)n.u.i, ty, n.src[0], &coef);
    p = gep(e, em_mem(ty), p, (BufRef)n.u.i, ty, em_int(e, 1 - e->lanes), 0);
    return reverse(e, masked_load(e, p, ty, e->lanes, all, floor), em_mem(ty));
  }
  if (known && stride == 0 && within(e, (BufRef)n.u.i, n.src[0])) {
    EmRef p = address_split(e, (BufRef)n.u.i, ty, n.src[0], &coef);
    return broadcast(e, load_at(e, p, ty, 1, floor), ty == TY_i1 ? TY_u8 : ty, e->lanes);
  }
  EmRef forked = known ? em_none : load_forked(e, &n, ty, floor);
  if (forked.id != -2) return forked;
  Lanes l = lanes_of(e, (BufRef)n.u.i, ty, n.src[0]);
  bool clamped = m.id != -2 && l.index.id != -2 && never_empty(e, (BufRef)n.u.i);
  if (clamped)
    l.index = em_select(e, TY_i64, e->lanes, m, l.index,
                        em_kint(e, TY_i64, 0, e->lanes)); /* the first element is there to be read */
  for (int i = 0; i < e->lanes; i++) {
    EmRef p = lane_address(e, &l, (BufRef)n.u.i, ty, i);
    if (m.id != -2 && !clamped) p = guarded(e, p, em_lane(e, m, TY_i1, i));
    v = insert_lane(e, v, load_at(e, p, ty, 1, floor), ty, i);
  }
  return v;
}

static EmRef load_scalar(Em *e, MgExpr n, MgTy ty, int floor) {
  ExprRef coef;
  bool split = e->lanes == 1 && e->kv >= 0; /* scalar code of a vector loop */
  EmRef p =
      split ? address_split(e, (BufRef)n.u.i, ty, n.src[0], &coef) : address(e, (BufRef)n.u.i, ty, n.src[0]);
  if (n.src[1]) p = guarded(e, p, em_value(e, n.src[1], 1));
  return load_at(e, p, ty, 1, floor);
}

/* The outermost scope a load may be written in. */
static int load_floor(Em *e, BufRef buf) {
  int floor = e->written[buf] ? e->base_level : 0;
  for (int i = e->depth; i > floor; i--)
    if (e->scope[i].maybe_empty) floor = i;
  return floor;
}

/* A stored value as a load of another type of the same width sees it. */
static EmRef reread(Em *e, EmRef v, MgTy from, MgTy to, int lanes) {
  if (from == to) return v;
  if (from == TY_i1) {
    v = em_conv(e, "zext", from, TY_u8, v, lanes);
    from = TY_u8;
  }
  if (to == TY_i1) return from_memory(e, v, to, lanes);
  return strcmp(em_ty(from), em_ty(to)) ? em_conv(e, "bitcast", from, to, v, lanes) : v;
}

static EmRef emit_load(Em *e, MgExpr n, ExprRef r, int lanes) {
  BufRef buf = (BufRef)n.u.i;
  for (uint32_t i = e->nfwd; i-- > 0 && !n.src[1];) {
    EmFwd *f = &e->fwd[i];
    if (f->buf == buf && f->index == n.src[0] && f->level <= e->depth &&
        f->serial == e->scope[f->level].serial)
      return reread(e, em_value(e, f->value, lanes), mg_expr(e->x, f->value)->ty, n.ty, lanes);
  }
  int floor = load_floor(e, buf);
  EmRef v = lanes > 1 ? load_vector(e, n, r, n.ty, floor) : load_scalar(e, n, n.ty, floor);
  v = from_memory(e, v, n.ty, lanes);
  if (!n.src[1]) return v;
  EmRef m = em_value(e, n.src[1], lanes), other = em_value(e, n.src[2], lanes);
  return em_select(e, n.ty, lanes, m, v, other);
}

/* ---- values ---- */

static EmRef emit_index(Em *e, int k, int lanes) {
  EmRef iv = e->idx[k];
  if (lanes == 1 || k != e->kv) return iv;
  EmRef all = iv.id == -1 ? em_const(iv.k, lanes) : broadcast(e, iv, TY_i64, lanes),
        r = em_new(e, iv.level, lanes);
  MgStrbuf *b = em_at(e, r.level);
  mg_sb_printf(b, "  %%v%d = add <%d x i64> ", r.id, lanes);
  em_put(e, b, all, TY_i64);
  for (int i = 0; i < lanes; i++) mg_sb_printf(b, "%si64 %d", i ? ", " : ", <", i);
  mg_sb_puts(b, ">\n");
  return r;
}

static EmRef emit_symbol(Em *e, int64_t k) {
  EmRef p = em_new(e, 0, 1), v = em_new(e, 0, 1);
  mg_sb_printf(em_at(e, 0),
               "  %%v%d = getelementptr i64, ptr %%size, i64 %lld\n  %%v%d = load i64, ptr %%v%d, align 8\n",
               p.id, (long long)k, v.id, p.id);
  return v;
}

/* Behind the symbols. */
static EmRef emit_long_size(Em *e, ExprRef r) {
  if (!e->size_at[r]) {
    if (mg_sched_size(e->s, r) != MG_OK) e->rc = MG_NOMEM;
    e->size_at[r] = e->s->nsize;
  }
  return emit_symbol(e, (int64_t)e->x->nsym + e->size_at[r] - 1);
}

/* Sizes that ranges and strides are made of did not go through prepare(). */
static EmRef emit_illegal(Em *e, ExprRef r, int lanes) {
  const MgExpr n = *mg_expr(e->x, r);
  MgRc rc = MG_OK;
  ExprRef legal = mg_ex_legalize(e->x, r, 0, &rc);
  if (rc == MG_OK && legal != r && !e->x->nomem) return em_value(e, legal, lanes);
  e->rc = rc != MG_OK ? rc
                      : mg_fail(e->c, MG_BUG, "emit_llvm: %s of %s was not legalised",
                                mg_scalar_info[n.op].name, mg_ty_name(n.ty));
  return em_kint(e, n.ty, 0, lanes);
}

static EmRef emit_node(Em *e, ExprRef r, int lanes) {
  const MgExpr n = *mg_expr(e->x, r);
  EmRef s[3] = {em_none, em_none, em_none};
  if (mg_ex_is_long_size(e->x, r)) return emit_long_size(e, r);
  switch (n.op) {
  case OP_idx: return emit_index(e, (int)n.u.i, lanes);
  case OP_sym: return emit_symbol(e, n.u.i);
  case OP_red: return e->redval[n.u.i];
  case OP_load: return emit_load(e, n, r, lanes);
  default: break;
  }
  MgTy from = mg_expr(e->x, n.src[0])->ty;
  if (em_is_apart(e, &n)) {
    for (int i = 0; i < n.nsrc; i++) s[i] = em_value(e, n.src[i], lanes);
    return em_call(e, (MgScalarOp)n.op, lanes, s, n.nsrc);
  }
  const char *t = mg_scalar_info[n.op].ll[mg_scalar_class(from)];
  if (!t && n.op != OP_cvt && n.op != OP_bitcast && n.op != OP_where) return emit_illegal(e, r, lanes);
  for (int i = 0; i < n.nsrc; i++) s[i] = em_value(e, n.src[i], lanes);
  if (n.op == OP_cvt) return em_cvt(e, n.ty, from, s[0], lanes);
  if (n.op == OP_bitcast) {
    if (!strcmp(em_ty(from), em_ty(n.ty))) return s[0];
    return em_conv(e, "bitcast", from, n.ty, s[0], lanes);
  }
  if (n.op == OP_where) return em_select(e, n.ty, lanes, s[0], s[1], s[2]);
  if (n.op == OP_rem && lanes > 1 &&
      mg_ty_is_float(from)) /* it iterates until all lanes are done: those that do not exist are at once */
    s[1] = em_existing(e, RED_prod, from, s[1]);
  return em_template(e, t, from, n.ty, lanes, s, n.nsrc);
}

EmRef em_value(Em *e, ExprRef r, int lanes) {
  if (e->rc || !tables(e) || e->x->nomem) return em_kint(e, TY_i64, 0, 1);
  if (mg_expr(e->x, r)->op == OP_const) return em_const(r, lanes);
  EmMemo *m = &e->memo[lanes > 1][r];
  if (m->serial && m->lanes == lanes && m->level <= e->depth && m->serial == e->scope[m->level].serial)
    return (EmRef){.id = m->id, .lanes = (uint8_t)lanes, .level = m->level};
  EmRef v;
  if (lanes > 1 && !em_varies(e, r)) v = em_value(e, r, 1);
  else v = emit_node(e, r, lanes);
  if (v.id == -1) return (EmRef){.id = -1, .k = v.k, .lanes = (uint8_t)lanes, .level = v.level};
  if (lanes > v.lanes) v = broadcast(e, v, mg_expr(e->x, r)->ty, lanes);
  /* The loop variable of an unrolled copy and a reduced value change without leaving their scope. */
  if (!e->rc)
    e->memo[lanes > 1][r] =
        (EmMemo){.id = v.id, .level = v.level, .lanes = (uint8_t)lanes, .serial = e->scope[v.level].serial};
  return v;
}

/* ---- stores ---- */

static EmRef to_memory(Em *e, EmRef v, MgTy ty, int lanes) {
  if (ty != TY_i1) return v;
  return v.id == -1 ? em_kint(e, TY_u8, mg_expr(e->x, v.k)->u.i, lanes)
                    : em_conv(e, "zext", TY_i1, TY_u8, v, lanes);
}

static void store_at(Em *e, EmRef p, EmRef v, MgTy ty, int lanes) {
  MgStrbuf *b = em_at(e, e->depth);
  mg_sb_puts(b, "  store ");
  em_put_ty(b, em_mem(ty), lanes);
  mg_sb_putc(b, ' ');
  em_put(e, b, v, ty == TY_i1 ? TY_u8 : ty);
  mg_sb_printf(b, ", ptr %%v%d, align %d\n", p.id, mg_ty_size(ty));
}

static void masked_store(Em *e, EmRef p, EmRef v, MgTy ty, EmRef mask) {
  MgStrbuf *b = em_at(e, e->depth);
  mg_sb_puts(b, "  call void @llvm.vp.store.");
  put_vp_suffix(b, ty, e->lanes);
  mg_sb_printf(b, ".p0(<%d x %s> ", e->lanes, em_mem(ty));
  em_put(e, b, v, ty == TY_i1 ? TY_u8 : ty);
  mg_sb_printf(b, ", ptr align %d %%v%d, <%d x i1> ", mg_ty_size(ty), p.id, e->lanes);
  em_put(e, b, mask, TY_i1);
  mg_sb_printf(b, ", i32 %d)\n", e->lanes);
}

/* What a read-modify-write of the elements at p leaves, in the compute type. */
static EmRef combined(Em *e, const MgLoop *l, EmRef p, EmRef v, MgTy ty, int lanes, EmRef mask) {
  static const MgScalarOp op[] = {[ST_add] = OP_add, [ST_max] = OP_max, [ST_min] = OP_min, [ST_mul] = OP_mul};
  MgTy comp = mg_dtype_compute(e->s->buf[l->buf].dtype);
  EmRef old =
      mask.id == -2 ? load_at(e, p, ty, lanes, e->depth) : masked_load(e, p, ty, lanes, mask, e->depth);
  EmRef s[2] = {em_cvt(e, comp, ty, from_memory(e, old, ty, lanes), lanes), em_cvt(e, comp, ty, v, lanes)};
  const char *t = ty != TY_i1 ? mg_scalar_info[op[l->mode]].ll[mg_scalar_class(comp)]
                  : l->mode == ST_add || l->mode == ST_max ? "or $t $a, $b"
                                                           : "and $t $a, $b";
  return em_cvt(e, ty, comp, em_template(e, t, comp, comp, lanes, s, 2), lanes);
}

static void store_one(Em *e, const MgLoop *l, EmRef p, EmRef v, MgTy ty) {
  if (l->mode != ST_set) v = combined(e, l, p, v, ty, 1, em_none);
  store_at(e, p, to_memory(e, v, ty, 1), ty, 1);
}

static void store_scalar(Em *e, const MgLoop *l, ExprRef sv, MgTy ty) {
  ExprRef coef;
  EmRef v = em_value(e, sv, 1);
  EmRef p = e->kv >= 0 ? address_split(e, l->buf, ty, l->index, &coef) : address(e, l->buf, ty, l->index);
  if (l->mask) p = guarded(e, p, em_value(e, l->mask, 1));
  store_one(e, l, p, v, ty);
}

static void store_vector(Em *e, const MgLoop *l, ExprRef sv, MgTy ty) {
  int64_t stride = 0;
  ExprRef coef;
  EmRef v = em_value(e, sv, e->lanes);
  EmRef m = l->mask ? em_value(e, l->mask, e->lanes) : em_none, all = and_mask(e, e->mask, m);
  bool unit = unit_stride(e, l->index, e->kv, &stride) && stride == 1;
  if (unit && (all.id == -2 || e->t->avx512)) {
    EmRef p = address_split(e, l->buf, ty, l->index, &coef);
    if (l->mode != ST_set) v = combined(e, l, p, v, ty, e->lanes, all);
    v = to_memory(e, v, ty, e->lanes);
    if (all.id == -2) store_at(e, p, v, ty, e->lanes);
    else masked_store(e, p, v, ty, all);
    return;
  }
  Lanes ls = lanes_of(e, l->buf, ty, l->index);
  for (int i = 0; i < e->lanes; i++) {
    EmRef p = lane_address(e, &ls, l->buf, ty, i);
    if (all.id != -2) p = guarded(e, p, em_lane(e, all, TY_i1, i));
    store_one(e, l, p, em_lane(e, v, ty, i), ty);
  }
}

void em_store(Em *e, const MgLoop *l, ExprRef value) {
  const MgBuf *b = &e->s->buf[l->buf];
  MgTy ty = mg_dtype_ty(b->dtype);
  ExprRef sv = mg_ex_cvt(e->x, ty, value);
  bool in_register = b->kind == MB_local && mg_sym_is(e->x, b->nelem, 0);
  if (e->x->nomem) return;
  if (in_register) em_value(e, sv, em_varies(e, sv) ? e->lanes : 1);
  else if (e->lanes > 1) store_vector(e, l, sv, ty);
  else store_scalar(e, l, sv, ty);
  if (l->mask || l->mode != ST_set) return;
  if (e->nfwd == e->cap_fwd) {
    uint32_t cap = e->cap_fwd ? e->cap_fwd * 2 : 32;
    e->fwd = mg_ctx_grow(e->c, e->fwd, e->nfwd * sizeof *e->fwd, cap * sizeof *e->fwd);
    if (!e->fwd) {
      e->rc = MG_NOMEM;
      return;
    }
    e->cap_fwd = cap;
  }
  e->fwd[e->nfwd++] = (EmFwd){.buf = l->buf,
                              .index = l->index,
                              .value = sv,
                              .serial = e->scope[e->depth].serial,
                              .level = (uint8_t)e->depth};
}

/* ---- accumulators ---- */

EmRef em_acc_start(Em *e, MgRedOp op, MgTy ty, int lanes) {
  return em_const(mg_ty_is_float(ty) ? mg_ex_float(e->x, ty, mg_red_start(op, ty).f)
                                     : mg_ex_int(e->x, ty, mg_red_start(op, ty).i),
                  lanes);
}

EmRef em_combine(Em *e, MgRedOp op, MgTy ty, int lanes, EmRef a, EmRef b) {
  static const MgScalarOp by[] = {
      [RED_sum] = OP_add, [RED_prod] = OP_mul, [RED_max] = OP_max, [RED_min] = OP_min,
      [RED_any] = OP_or,  [RED_all] = OP_and,  [RED_xor] = OP_xor};
  return em_ins(e, mg_scalar_info[by[op]].ll[mg_scalar_class(ty)], ty, ty, lanes, a, b);
}

/* The better of two (value, position) pairs: NaN first (argpool: of two the higher position), then the value,
 * then the lower position. */
void em_combine_arg(Em *e, MgRedOp op, MgTy ty, int lanes, EmRef a[2], const EmRef b[2]) {
  bool f = mg_ty_is_float(ty), max = op != RED_argmin;
  EmRef take, tie, first = em_ins(e, "icmp slt $t $a, $b", TY_i64, TY_i1, lanes, b[1], a[1]);
  if (f) {
    take = em_ins(e, max ? "fcmp ugt $t $a, $b" : "fcmp ult $t $a, $b", ty, TY_i1, lanes, b[0], a[0]);
    take = em_ins(e, "and $t $a, $b", TY_i1, TY_i1, lanes, take,
                  em_ins(e, "fcmp ord $t $a, $b", ty, TY_i1, lanes, a[0], a[0]));
    EmRef nan = em_ins(e, "fcmp uno $t $a, $b", ty, TY_i1, lanes, a[0], a[0]);
    tie = em_ins(e, "and $t $a, $b", TY_i1, TY_i1, lanes, nan,
                 em_ins(e, "fcmp uno $t $a, $b", ty, TY_i1, lanes, b[0], b[0]));
    if (op == RED_argpool) {
      EmRef last = em_ins(e, "icmp sgt $t $a, $b", TY_i64, TY_i1, lanes, b[1], a[1]);
      first = em_ins(e, "or $t $a, $b", TY_i1, TY_i1, lanes, first, nan);
      tie = em_ins(e, "and $t $a, $b", TY_i1, TY_i1, lanes, tie, last);
    }
    tie = em_ins(e, "or $t $a, $b", TY_i1, TY_i1, lanes, tie,
                 em_ins(e, "fcmp oeq $t $a, $b", ty, TY_i1, lanes, a[0], b[0]));
  } else {
    const char *gt = mg_ty_is_signed(ty) ? (max ? "icmp sgt $t $a, $b" : "icmp slt $t $a, $b")
                                         : (max ? "icmp ugt $t $a, $b" : "icmp ult $t $a, $b");
    take = em_ins(e, gt, ty, TY_i1, lanes, b[0], a[0]);
    tie = em_ins(e, "icmp eq $t $a, $b", ty, TY_i1, lanes, a[0], b[0]);
  }
  take = em_ins(e, "or $t $a, $b", TY_i1, TY_i1, lanes, take,
                em_ins(e, "and $t $a, $b", TY_i1, TY_i1, lanes, tie, first));
  a[0] = em_select(e, ty, lanes, take, b[0], a[0]);
  a[1] = em_select(e, TY_i64, lanes, take, b[1], a[1]);
}

/* v, or the reduction's neutral value in lanes that do not exist. */
EmRef em_existing(Em *e, MgRedOp op, MgTy ty, EmRef v) {
  if (e->mask.id == -2) return v;
  return em_select(e, ty, e->lanes, e->mask, v, em_acc_start(e, op, ty, e->lanes));
}

static EmRef half_of(Em *e, EmRef v, MgTy ty, int n, int at) {
  if (n == 1) return em_lane(e, v, ty, at);
  if (v.id == -1) return em_const(v.k, n);
  EmRef r = em_new(e, v.level, n);
  MgStrbuf *b = em_at(e, v.level);
  mg_sb_printf(b, "  %%v%d = shufflevector <%d x %s> %%v%d, <%d x %s> poison, <%d x i32> <", r.id, v.lanes,
               em_ty(ty), v.id, v.lanes, em_ty(ty), n);
  for (int i = 0; i < n; i++) mg_sb_printf(b, "%si32 %d", i ? ", " : "", at + i);
  mg_sb_puts(b, ">\n");
  return r;
}

/* All lanes into one. */
void em_horizontal(Em *e, MgRedOp op, MgTy ty, EmRef a[2]) {
  bool arg = mg_red_is_arg(op);
  for (int n = a[0].lanes / 2; n >= 1; n /= 2) {
    EmRef hi[2] = {half_of(e, a[0], ty, n, n)};
    a[0] = half_of(e, a[0], ty, n, 0);
    if (arg) {
      hi[1] = half_of(e, a[1], TY_i64, n, n);
      a[1] = half_of(e, a[1], TY_i64, n, 0);
      em_combine_arg(e, op, ty, n, a, hi);
    } else {
      a[0] = em_combine(e, op, ty, n, a[0], hi[0]);
    }
  }
}

/* ---- access patterns ---- */

static bool loads_contiguous(Em *e, ExprRef r, int kv, bool pieces) {
  const MgExpr n = *mg_expr(e->x, r);
  int64_t stride;
  if (!r || !tables(e) || e->seen[r] == e->walk) return true;
  uint32_t mask = em_imask(e, r);
  for (int i = 0; i < n.nsrc; i++)
    if (!loads_contiguous(e, n.src[i], kv, pieces)) return false;
  ExprRef side[2];
  if (n.op == OP_load && mask >> kv & 1 && !(unit_stride(e, n.src[0], kv, &stride) && stride == 1) &&
      !(pieces && fork_of(e, n.src[0], kv, side, 0)))
    return false;
  if (tables(e)) e->seen[r] = e->walk; /* asking for the stride may have made new nodes */
  return true;
}

bool em_contiguous_only(Em *e, const MgLoop *l, int kv, bool pieces) {
  int64_t stride;
  e->walk++;
  const ExprRef part[4] = {l->body, l->value, l->index, l->mask};
  for (int i = 0; i < 4; i++)
    if (!loads_contiguous(e, part[i], kv, pieces)) return false;
  if (!(em_imask(e, l->index) >> kv & 1)) return true;
  return unit_stride(e, l->index, kv, &stride) && stride == 1;
}
