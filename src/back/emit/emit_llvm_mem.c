/* Loads and stores: addresses, masks, and how the lanes of an access lie in memory.
 * In: element indices and masks as expressions.  Out: instructions that read or write a number or a vector.
 */
#include "back/emit/emit_llvm_priv.h"
#include <string.h>

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

/* Are there masked loads and stores of the type?  AVX2 has them for 32 and 64 bits. */
static bool has_masks(const Em *e, MgTy ty) {
  return e->t->avx512 || (e->t->vector_bits == 256 && mg_ty_size(ty) >= 4);
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
static ExprRef fork_of(Em *e, ExprRef index, MgTy ty, int kv, ExprRef side[2], int depth) {
  Fork f = {.kv = kv};
  ExprRef more[2];
  int64_t stride;
  if (!has_masks(e, ty) || depth > 2 || !mg_ex_map(e->x, index, find_fork, &f) || !f.at) return 0;
  for (f.side = 0; f.side < 2; f.side++) {
    if (!(side[f.side] = mg_ex_map(e->x, index, take_side, &f))) return 0;
    bool plain = unit_stride(e, side[f.side], kv, &stride) && stride >= -1 && stride <= 1;
    if (!plain && !fork_of(e, side[f.side], ty, kv, more, depth + 1)) return 0;
  }
  return fork_condition(e->x, f.at);
}

static EmRef load_vector(Em *e, MgExpr n, ExprRef r, MgTy ty, int floor);

static EmRef load_forked(Em *e, const MgExpr *n, MgTy ty, int floor) {
  ExprRef side[2], cond = fork_of(e, n->src[0], ty, e->kv, side, 0);
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

/* ---- loads of lanes that lie near each other ---- */

/* How many vectors hold the elements that the lanes of a load want: their indices do not fall from lane to
 * lane.  0: too many, or not known.  Each lane takes its element out of them, see load_windows. */
static int windows_of(Em *e, const MgExpr *n, int kv) {
  int lanes = e->t->vector_bits / 32;
  int64_t lo, hi;
  if (e->t->vector_bits != 256 || mg_ty_size((MgTy)n->ty) > 4) return 0; /* AVX2's permutation */
  if (!mg_ex_range(e->x, e->s->buf[n->u.i].nelem, &lo, &hi) || lo < lanes) return 0;
  double growth = em_growth(e, n->src[0], kv);
  return growth < 0 || growth >= 2 * lanes ? 0 : growth < lanes ? 1 : 2;
}

/* The address of an element, moved so that a vector from there on lies inside of the buffer. */
static EmRef window_start(Em *e, EmRef index, BufRef buf, bool from_zero) {
  EmRef lanes = em_int(e, e->lanes), nelem = em_value(e, e->s->buf[buf].nelem, 1);
  EmRef last = em_arith(e, "sub $t $a, $b", OP_sub, nelem, lanes);
  index = em_arith(e, mg_scalar_info[OP_min].ll[SOC_S], OP_min, index, last);
  return from_zero ? em_arith(e, mg_scalar_info[OP_max].ll[SOC_S], OP_max, index, em_int(e, 0)) : index;
}

/* The unsigned integer of an element's size. */
static MgTy window_bits(MgTy ty) {
  int size = mg_ty_size(ty);
  return size == 4 ? TY_u32 : size == 2 ? TY_u16 : TY_u8;
}

/* The elements of one window, a 32-bit number each, that the lanes want; at: their places in the buffer. */
static EmRef window_take(Em *e, BufRef buf, MgTy ty, EmRef start, EmRef at, MgTy at_ty, int floor,
                         EmRef *off) {
  EmRef from = em_broadcast(e, em_cvt(e, at_ty, TY_i64, start, 1), at_ty, e->lanes);
  *off = em_cvt(e, TY_i32, at_ty, em_ins(e, "sub $t $a, $b", at_ty, at_ty, e->lanes, at, from), e->lanes);
  EmRef p = gep(e, em_mem(ty), em_none, buf, ty, start, 0), w = load_at(e, p, ty, e->lanes, floor);
  MgTy bits = window_bits(ty);
  if (ty == TY_f32 || ty == TY_f16) w = em_conv(e, "bitcast", ty, bits, w, e->lanes);
  if (bits != TY_u32) w = em_conv(e, "zext", bits, TY_u32, w, e->lanes);
  return em_ins(e, "call $t @llvm.x86.avx2.permd($t $a, $t $b)", TY_u32, TY_u32, e->lanes, w, *off);
}

/* One or two vectors from the first lane's element on, permuted. Lanes whose mask is false get anything. */
static EmRef load_windows(Em *e, const MgExpr *n, MgTy ty, int floor) {
  int many = e->lanes == 8 ? windows_of(e, n, e->kv) : 0;
  BufRef buf = (BufRef)n->u.i;
  if (!many) return em_none;
  ExprRef narrow = em_narrow(e, n->src[0]);
  MgTy at_ty = narrow ? TY_i32 : TY_i64;
  EmRef at = em_value(e, narrow ? narrow : n->src[0], e->lanes), off, second;
  EmRef first = em_cvt(e, TY_i64, at_ty, em_lane(e, at, at_ty, 0), 1);
  EmRef start = window_start(e, first, buf, n->src[1] != 0);
  EmRef v = window_take(e, buf, ty, start, at, at_ty, floor, &off);
  if (many == 2) {
    EmRef inner =
        em_ins(e, "icmp ult $t $a, $b", TY_u32, TY_i1, e->lanes, off, em_kint(e, TY_u32, 8, e->lanes));
    start = window_start(e, em_arith(e, "add $t $a, $b", OP_add, start, em_int(e, e->lanes)), buf, false);
    second = window_take(e, buf, ty, start, at, at_ty, floor, &off);
    v = em_select(e, TY_u32, e->lanes, inner, v, second);
  }
  MgTy bits = window_bits(ty);
  if (bits != TY_u32) v = em_conv(e, "trunc", TY_u32, bits, v, e->lanes);
  return ty == TY_f32 || ty == TY_f16 ? em_conv(e, "bitcast", bits, ty, v, e->lanes) : v;
}

/* ---- loads that leave out elements ---- */

enum { STRIDED_MOST = 4 }; /* with more, loads of single elements are as many */

/* Where piece number i begins: they follow one another, and the last one ends with the last lane's element.
 */
static int strided_start(int lanes, int stride, int i) {
  return i + 1 < stride ? i * lanes : (stride - 1) * (lanes - 1);
}

/* Every stride-th element of `stride` vectors that lie in a row. */
static EmRef load_strided(Em *e, const MgExpr *n, MgTy ty, int64_t stride, int floor) {
  ExprRef coef;
  BufRef buf = (BufRef)n->u.i;
  int lanes = e->lanes;
  if (stride < 2 || stride > STRIDED_MOST || n->src[1] || e->mask.id != -2) return em_none;
  EmRef p = address_split(e, buf, ty, n->src[0], &coef), v = load_at(e, p, ty, lanes, floor);
  for (int i = 1; i < stride; i++) {
    int start = strided_start(lanes, (int)stride, i);
    EmRef q = gep(e, em_mem(ty), p, buf, ty, em_int(e, start), 0);
    EmRef s[2] = {v, load_at(e, q, ty, lanes, floor)}, r = em_new(e, em_level(s, 2), lanes);
    MgStrbuf *b = em_at(e, r.level);
    mg_sb_printf(b, "  %%v%d = shufflevector <%d x %s> %%v%d, <%d x %s> %%v%d, <%d x i32> <", r.id, lanes,
                 em_mem(ty), s[0].id, lanes, em_mem(ty), s[1].id, lanes);
    for (int lane = 0; lane < lanes; lane++) {
      int at = lane * (int)stride;
      int from = at >= start && at < start + lanes ? lanes + at - start : i > 1 ? lane : at % lanes;
      mg_sb_printf(b, "i32 %d%s", from, lane + 1 < lanes ? ", " : ">\n");
    }
    v = r;
  }
  return v;
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
    if (has_masks(e, ty)) return masked_load(e, p, ty, e->lanes, all, floor);
  }
  if (known && stride == -1 && m.id == -2 && e->mask.id == -2) { /* the last lane has the least address */
    EmRef p = address_split(e, (BufRef)n.u.i, ty, n.src[0], &coef);
    p = gep(e, em_mem(ty), p, (BufRef)n.u.i, ty, em_int(e, 1 - e->lanes), 0);
    return reverse(e, load_at(e, p, ty, e->lanes, floor), em_mem(ty));
  }
  if (known && stride == -1 && has_masks(e, ty)) {
    EmRef all = reverse(e, and_mask(e, e->mask, m), em_ty(TY_i1)),
          p = address_split(e, (BufRef)n.u.i, ty, n.src[0], &coef);
    p = gep(e, em_mem(ty), p, (BufRef)n.u.i, ty, em_int(e, 1 - e->lanes), 0);
    return reverse(e, masked_load(e, p, ty, e->lanes, all, floor), em_mem(ty));
  }
  if (known && stride == 0 && within(e, (BufRef)n.u.i, n.src[0])) {
    EmRef p = address_split(e, (BufRef)n.u.i, ty, n.src[0], &coef);
    return em_broadcast(e, load_at(e, p, ty, 1, floor), ty == TY_i1 ? TY_u8 : ty, e->lanes);
  }
  EmRef forked = known ? em_none : load_forked(e, &n, ty, floor);
  if (forked.id != -2) return forked;
  EmRef strided = known ? load_strided(e, &n, ty, stride, floor) : em_none;
  if (strided.id != -2) return strided;
  EmRef near = load_windows(e, &n, ty, floor);
  if (near.id != -2) return near;
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

ExprRef em_forwarded(const Em *e, const MgExpr *load) {
  for (uint32_t i = e->nfwd; i-- > 0 && !load->src[1];) {
    const EmFwd *f = &e->fwd[i];
    if (f->buf == (BufRef)load->u.i && f->index == load->src[0] && f->level <= e->depth &&
        f->serial == e->scope[f->level].serial)
      return f->value;
  }
  return 0;
}

EmRef em_load(Em *e, MgExpr n, ExprRef r, int lanes) {
  BufRef buf = (BufRef)n.u.i;
  ExprRef stored = em_forwarded(e, &n);
  if (stored) return reread(e, em_value(e, stored, lanes), mg_expr(e->x, stored)->ty, n.ty, lanes);
  int floor = load_floor(e, buf);
  EmRef v = lanes > 1 ? load_vector(e, n, r, n.ty, floor) : load_scalar(e, n, n.ty, floor);
  v = from_memory(e, v, n.ty, lanes);
  if (!n.src[1]) return v;
  EmRef m = em_value(e, n.src[1], lanes), other = em_value(e, n.src[2], lanes);
  return em_select(e, n.ty, lanes, m, v, other);
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

/* LLVM 22 makes a masked store of one lane that is known a scalar store.  If it had merged a truncation into
 * it, that is left out: too many bytes are written.  A scatter's mask can be such a one where the vector
 * index is a number. */
static bool miscompiled(Em *e, EmRef mask, MgTy ty) {
  int64_t k;
  return mask.id != -2 && ty != TY_f16 && mg_ty_size(ty) < 8 && em_is_const(e, e->idx[e->kv], &k);
}

static void store_vector(Em *e, const MgLoop *l, ExprRef sv, MgTy ty) {
  int64_t stride = 0;
  ExprRef coef;
  EmRef v = em_value(e, sv, e->lanes);
  EmRef m = l->mask ? em_value(e, l->mask, e->lanes) : em_none,
        all = e->mask_one ? m : and_mask(e, e->mask, m);
  bool unit = unit_stride(e, l->index, e->kv, &stride) && stride == 1;
  if (unit && !e->mask_one && (all.id == -2 || (has_masks(e, ty) && !miscompiled(e, m, ty)))) {
    EmRef p = address_split(e, l->buf, ty, l->index, &coef);
    if (l->mode != ST_set) v = combined(e, l, p, v, ty, e->lanes, all);
    v = to_memory(e, v, ty, e->lanes);
    if (all.id == -2) store_at(e, p, v, ty, e->lanes);
    else masked_store(e, p, v, ty, all);
    return;
  }
  Lanes ls = lanes_of(e, l->buf, ty, l->index);
  for (int i = 0; i < (e->mask_one ? 1 : e->lanes); i++) {
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

/* ---- access patterns ---- */

static bool loads_contiguous(Em *e, ExprRef r, int kv, bool pieces) {
  const MgExpr n = *mg_expr(e->x, r);
  int64_t stride;
  if (!r || !em_tables(e) || e->seen[r] == e->walk) return true;
  uint32_t mask = em_imask(e, r);
  for (int i = 0; i < n.nsrc; i++)
    if (!loads_contiguous(e, n.src[i], kv, pieces)) return false;
  ExprRef side[2];
  if (n.op == OP_load && mask >> kv & 1 && !(unit_stride(e, n.src[0], kv, &stride) && stride == 1) &&
      !(pieces && (fork_of(e, n.src[0], (MgTy)n.ty, kv, side, 0) || windows_of(e, &n, kv))))
    return false;
  if (em_tables(e)) e->seen[r] = e->walk; /* asking for the stride may have made new nodes */
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

static bool loads_maskable(Em *e, ExprRef r, int kv) {
  const MgExpr n = *mg_expr(e->x, r);
  if (!r || !em_tables(e) || e->seen[r] == e->walk) return true;
  for (int i = 0; i < n.nsrc; i++)
    if (!loads_maskable(e, n.src[i], kv)) return false;
  if (n.op == OP_load && em_imask(e, r) >> kv & 1 && !has_masks(e, (MgTy)n.ty)) return false;
  if (em_tables(e)) e->seen[r] = e->walk;
  return true;
}

bool em_maskable(Em *e, const MgLoop *l, int kv) {
  if (e->t->avx512) return true;
  e->walk++;
  const ExprRef part[4] = {l->body, l->value, l->index, l->mask};
  for (int i = 0; i < 4; i++)
    if (!loads_maskable(e, part[i], kv)) return false;
  return has_masks(e, mg_dtype_ty((MgDtype)e->s->buf[l->buf].dtype));
}
