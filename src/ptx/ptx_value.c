/* Values, indices and memory accesses of a kernel's expressions.
 * In: legalized nodes and the place that code is written for (Px.at).  Out: registers,
 * each computed once a place. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "ptx/ptx_priv.h"

/* ---- what a node depends on ---- */

static uint8_t value_facts(Px *e, ExprRef r);

uint8_t px_facts(Px *e, ExprRef r) {
  if (r >= e->cap) {
    uint32_t cap = e->x->n + e->x->n / 2 + 256;
    e->flag = mg_ctx_grow(e->c, e->flag, e->cap, cap);
    if (!e->flag) return e->cap = 0, e->rc = MG_NOMEM, 0;
    memset(e->flag + e->cap, 0, cap - e->cap);
    e->cap = cap;
  }
  if (e->flag[r] & PF_known) return e->flag[r];
  uint8_t f = value_facts(e, r);
  if (r < e->cap) e->flag[r] |= f | PF_known;
  return f | PF_known;
}

bool px_is_multiple(Px *e, ExprRef r, int64_t n) {
  const MgExpr *k = mg_expr(e->x, r);
  if (n == 1) return true;
  switch (k->op) {
  case OP_const: return k->u.i % n == 0;
  case OP_idx: return k->u.i == e->g->lane && e->g->vec % n == 0;
  case OP_add:
  case OP_sub: return px_is_multiple(e, k->src[0], n) && px_is_multiple(e, k->src[1], n);
  case OP_mul: return px_is_multiple(e, k->src[0], n) || px_is_multiple(e, k->src[1], n);
  default: return false;
  }
}

/* idx(lane) = 0, for what is left of an index without it. */
static ExprRef value_rest(Px *e, ExprRef index, int64_t *step) {
  ExprRef coef, rest;
  if (!mg_ex_linear(e->x, index, e->g->lane, &coef, &rest) || !mg_ex_const_int(e->x, coef, step)) return 0;
  return rest;
}

enum { VALUE_FOUR = 4 };

/* An index by a power of two, which comes out alike for four lanes or more: random numbers come by fours.
 * How many lanes those are; 1: it is nothing of that kind. */
static int64_t value_lanes_alike(Px *e, const MgExpr *n) {
  int64_t step, shift, vec = e->g->vec;
  if (n->op != OP_lsr || !mg_ex_const_int(e->x, n->src[1], &shift) || shift < 2 || shift > 30) return 1;
  ExprRef rest = value_rest(e, n->src[0], &step);
  int64_t alike = ((int64_t)1 << shift) % vec ? VALUE_FOUR : vec;
  return rest && step == 1 && vec % alike == 0 && px_is_multiple(e, rest, alike) ? alike : 1;
}

/* A comparison of indices that comes out alike for all lanes of a group: they do
 * not reach over its border. */
static bool value_is_uniform(Px *e, const MgExpr *n) {
  int64_t step;
  if (e->g->lane < 0 || (n->op != OP_lt && n->op != OP_le) || mg_expr(e->x, n->src[0])->ty != TY_i64)
    return false;
  ExprRef d = mg_sym_sub(e->x, n->src[0], n->src[1]);
  ExprRef rest = d ? value_rest(e, d, &step) : 0;
  if (!rest || !px_is_multiple(e, rest, e->g->vec)) return false;
  return step == 0 || (n->op == OP_lt ? step == 1 : step == -1);
}

static uint8_t value_facts(Px *e, ExprRef r) {
  const MgExpr n = *mg_expr(e->x, r);
  uint8_t f = 0;
  bool tile = e->g->map == MG_PTX_tiles && (n.u.i == e->g->cross || n.u.i == e->g->nouter - 1);
  if (n.op == OP_idx)
    f = (n.u.i >= e->g->nouter || tile ? PF_inner : 0) | (n.u.i == e->g->lane ? PF_lane | PF_each : 0);
  if (n.op == OP_red) f = PF_red | (e->g->lane >= 0 && e->g->lane < e->g->nouter ? PF_lane | PF_each : 0);
  if (n.op == OP_load && e->stored[n.u.i]) f = PF_unstable;
  for (int i = 0; i < n.nsrc; i++)
    if (n.src[i]) f |= px_facts(e, n.src[i]) & (PF_inner | PF_lane | PF_each | PF_unstable | PF_red);
  if (!(f & PF_lane) || f & (PF_red | PF_unstable)) return f;
  int64_t alike = value_is_uniform(e, &n) ? e->g->vec : value_lanes_alike(e, &n);
  if (alike == e->g->vec) f &= (uint8_t) ~(PF_lane | PF_each);
  else if (alike == VALUE_FOUR) f &= (uint8_t)~PF_each;
  return f;
}

/* ---- 32-bit indices ---- */

static bool value_may_narrow(Px *e, ExprRef r) {
  const MgExpr n = *mg_expr(e->x, r);
  int64_t lo, hi;
  switch (n.op) {
  case OP_const:
  case OP_idx:
  case OP_add:
  case OP_sub:
  case OP_mul:
  case OP_min:
  case OP_max: break;
  case OP_div:
  case OP_rem:
    if (!mg_ex_is_nonneg(e->x, n.src[0]) || !mg_ex_is_nonneg(e->x, n.src[1])) return false;
    break;
  case OP_and:
  case OP_lsr:
    if (mg_expr(e->x, n.src[1])->op != OP_const || !mg_ex_is_nonneg(e->x, n.src[0])) return false;
    break;
  case OP_cvt:
    if (mg_ty_is_float(mg_expr(e->x, n.src[0])->ty) || mg_expr(e->x, n.src[0])->ty == TY_i1) return false;
    break;
  default: return false;
  }
  if (n.ty != TY_i64 && n.ty != TY_i32 && n.ty != TY_u32) return false;
  bool fits = mg_ex_range(e->x, r, &lo, &hi) && lo >= INT32_MIN && hi <= INT32_MAX;
  bool as_its_operands = n.op == OP_cvt || n.ty == TY_u32 || n.ty == TY_i32; /* or a quotient of such */
  if (!fits && !as_its_operands) return false;
  for (int i = 0; i < n.nsrc; i++)
    if (n.src[i] && !px_is_narrow(e, n.src[i])) return false;
  return true;
}

bool px_is_narrow(Px *e, ExprRef r) {
  if (!e->g->narrow) return false;
  px_facts(e, r);
  if (px_stop(e)) return false;
  if (!(e->flag[r] & (PF_narrow | PF_wide))) {
    bool is = value_may_narrow(e, r);
    if (r < e->cap) e->flag[r] |= is ? PF_narrow : PF_wide;
    return is;
  }
  return e->flag[r] & PF_narrow;
}

/* ---- the memo ---- */

enum { KEY_KIND = 24, KEY_PIECE = 26, KEY_LANE = 38, KEY_PHASE = 43, KEY_LOOP = 50 };
#define KEY_SET (1ull << 63) /* 0 and 1 are the map's own */

static uint64_t value_key(Px *e, ExprRef r, PxKind kind, int depth) {
  uint8_t f = px_facts(e, r);
  bool lane = f & PF_lane && kind != PX_vector && kind != PX_address;
  uint64_t key = KEY_SET | r | (uint64_t)kind << KEY_KIND | (uint64_t)e->at.loop[depth] << KEY_LOOP;
  if (f & PF_inner) key |= (uint64_t)e->at.piece << KEY_PIECE;
  int at = f & PF_each ? e->at.lane : e->at.lane - e->at.lane % VALUE_FOUR;
  if (lane) key |= (uint64_t)(at + 1) << KEY_LANE;
  if (f & PF_unstable) key |= (uint64_t)(e->at.phase + 1) << KEY_PHASE;
  return key;
}

/* The register, or -1. */
static int value_known(Px *e, ExprRef r, PxKind kind) {
  bool inner = px_facts(e, r) & PF_inner;
  for (int d = e->at.depth; d >= 0 && !px_stop(e); d--) {
    uint32_t id = mg_map_get(&e->memo, value_key(e, r, kind, d));
    if (id != MG_MAP_NONE) return (int)id;
    if (inner) break; /* pieces have other numbers in every loop */
  }
  return -1;
}

static void value_note(Px *e, ExprRef r, PxKind kind, int id) {
  if (px_stop(e)) return;
  if (r >> KEY_KIND || mg_map_put(&e->memo, value_key(e, r, kind, e->at.depth), (uint32_t)id) != MG_OK)
    e->rc = MG_NOMEM;
}

void px_know(Px *e, ExprRef r, int id) { value_note(e, r, PX_value, id); }

/* A buffer's element that this very place has stored: the register, or -1. */
static int value_forwarded(Px *e, ExprRef r) {
  int phase = e->at.phase;
  e->at.phase = PX_PIECES; /* whatever the phase */
  int id = value_known(e, r, PX_value);
  e->at.phase = phase;
  return id;
}

/* ---- indices ---- */

static int value_idx(Px *e, int k, bool narrow) {
  int lane = k == e->g->lane ? e->at.lane : 0, id = e->idx[k];
  if (e->g->narrow) {
    if (lane) id = px_op32(e, "add.s32", id, lane);
    if (narrow) return id;
    int d = px_reg(e, TY_i64);
    PUT("  cvt.s64.s32 %%rd%d, %%r%d;\n", d, id);
    return d;
  }
  if (!lane) return id;
  int d = px_reg(e, TY_i64);
  PUT("  add.s64 %%rd%d, %%rd%d, %d;\n", d, id, lane);
  return d;
}

static int value_narrow(Px *e, ExprRef r) {
  static const char *const name[] = {[OP_add] = "add.s32", [OP_sub] = "sub.s32", [OP_mul] = "mul.lo.s32",
                                     [OP_min] = "min.s32", [OP_max] = "max.s32", [OP_div] = "div.u32",
                                     [OP_rem] = "rem.u32", [OP_and] = "and.b32", [OP_lsr] = "shr.u32"};
  const MgExpr n = *mg_expr(e->x, r);
  if (n.op == OP_const) {
    int d = px_reg(e, TY_i32);
    PUT("  mov.b32 %%r%d, %d;\n", d, (int32_t)n.u.i);
    return d;
  }
  if (n.op == OP_idx) return value_idx(e, (int)n.u.i, true);
  if (n.op == OP_cvt) return px_narrow(e, n.src[0]);
  const MgExpr *b = mg_expr(e->x, n.src[1]);
  int a = px_narrow(e, n.src[0]);
  if (b->op == OP_const) return px_op32(e, name[n.op], a, (int32_t)b->u.i);
  int c = px_narrow(e, n.src[1]), d = px_reg(e, TY_i32);
  PUT("  %s %%r%d, %%r%d, %%r%d;\n", name[n.op], d, a, c);
  return d;
}

int px_narrow(Px *e, ExprRef r) {
  if (px_stop(e)) return 0;
  int id = value_known(e, r, PX_narrow);
  if (id >= 0) return id;
  id = value_narrow(e, r);
  value_note(e, r, PX_narrow, id);
  return id;
}

bool px_lane_step(Px *e, ExprRef index, int64_t *step) {
  enum { NONE = 0, BIAS = 1 << 30 };
  *step = 0;
  if (e->g->lane < 0 || !(px_facts(e, index) & PF_lane)) return true;
  uint32_t known = mg_map_get(&e->step, KEY_SET | index);
  if (known == MG_MAP_NONE) {
    int64_t v = 0;
    bool linear = value_rest(e, index, &v) && v > -BIAS && v < BIAS;
    known = linear ? (uint32_t)(v + BIAS) : NONE;
    if (mg_map_put(&e->step, KEY_SET | index, known) != MG_OK) e->rc = MG_NOMEM;
  }
  *step = (int64_t)known - BIAS;
  return known != NONE;
}

/* ---- memory ---- */

typedef struct ValueRef { /* an element in memory */
  int reg;                /* 64 bits */
  int64_t offset;         /* bytes */
  const char *space;
} ValueRef;

/* base + index * size.  The memo is that of the index without what is constant. */
int px_address(Px *e, BufRef b, MgTy ty, ExprRef index) {
  int d = px_reg(e, TY_i64), base = px_reg(e, TY_i64);
  if (e->shared[b]) {
    int64_t n = 0;
    PUT("  mov.u64 %%rd%d, lb%u;\n", base, b);
    if (e->slot >= 0 && mg_ex_const_int(e->x, e->s->buf[b].nelem, &n))
      PUT("  mad.wide.u32 %%rd%d, %%r%d, %lld, %%rd%d;\n", base, e->slot, (long long)n * mg_ty_size(ty),
          base);
  } else {
    PUT("  mov.b64 %%rd%d, %%q%d;\n", base, e->arg[b]);
  }
  if (px_is_narrow(e, index)) {
    PUT("  mad.wide.s32 %%rd%d, %%r%d, %d, %%rd%d;\n", d, px_narrow(e, index), mg_ty_size(ty), base);
  } else {
    int i = px_value(e, index);
    PUT("  mad.lo.s64 %%rd%d, %%rd%d, %d, %%rd%d;\n", d, i, mg_ty_size(ty), base);
  }
  return d;
}

/* Element `index` of b at the present lane.  r: the load, whose address is remembered, or 0. */
static ValueRef value_ref(Px *e, BufRef b, MgTy ty, ExprRef index, ExprRef r) {
  ValueRef a = {.space = e->shared[b] ? "shared" : "global"};
  int64_t step, add;
  int lane = e->at.lane;
  if (!px_lane_step(e, index, &step)) { /* every lane for itself */
    a.reg = px_address(e, b, ty, index);
    return a;
  }
  e->at.lane = 0;
  const MgExpr n = *mg_expr(e->x, index);
  if (n.op == OP_add && n.ty == TY_i64 && mg_ex_const_int(e->x, n.src[1], &add) && add > -(1 << 20) &&
      add < 1 << 20)
    a.offset = add * mg_ty_size(ty), index = n.src[0];
  a.reg = r ? value_known(e, r, PX_address) : -1;
  if (a.reg < 0) {
    a.reg = px_address(e, b, ty, index);
    if (r) value_note(e, r, PX_address, a.reg);
  }
  a.offset += step * lane * mg_ty_size(ty);
  e->at.lane = lane;
  return a;
}

/* Does a vector access of all lanes do at this index? */
static bool value_is_vector(Px *e, BufRef b, ExprRef index, int lanes) {
  int64_t step, own;
  if (lanes != e->g->vec || lanes < 2 || !e->g->vectors || !px_lane_step(e, index, &step) || step != 1)
    return false;
  ExprRef rest = value_rest(e, index, &own);
  return rest && px_is_multiple(e, rest, lanes);
}

/* Elements that one instruction moves, and how many registers they take. */
static int value_chunk(MgTy ty, int lanes) {
  int most = mg_ty_size(ty) == 8 ? 2 : px_class(ty) == R_h ? 8 : 4;
  return lanes < most ? lanes : most;
}

static void value_list(Px *e, MgTy ty, int first, int n) {
  PUT("{");
  for (int i = 0; i < n; i++) {
    if (i) PUT(", ");
    px_put(e, ty, first + i);
  }
  PUT("}");
}

/* What a load leaves where its predicate p is false: zeros.  ptxas takes two loads of one address for the
 * same where registers are not set without them, whatever their predicates. */
void px_clear(Px *e, MgTy ty, int first, int n, int p) {
  static const char *const zero[] = {[R_r] = "  mov.b32 %%r%d, 0;\n",
                                     [R_rd] = "  mov.b64 %%rd%d, 0;\n",
                                     [R_h] = "  mov.b16 %%h%d, 0;\n",
                                     [R_f] = "  mov.f32 %%f%d, 0f00000000;\n",
                                     [R_d] = "  mov.f64 %%d%d, 0d0000000000000000;\n"};
  for (int i = 0; p >= 0 && i < n; i++) mg_sb_printf(&e->b, zero[px_class(ty)], first + i);
}

/* Vector access of `lanes` neighbouring registers; p: predicate or -1. */
static void value_move_vector(Px *e, bool load, MgTy ty, int first, int lanes, ValueRef a, int p) {
  int chunk = value_chunk(ty, lanes);
  bool halves = px_class(ty) == R_h;
  for (int i = 0; i < lanes; i += chunk) {
    int n = halves ? chunk / 2 : chunk, words = halves ? px_regs(e, TY_u32, n) : first + i;
    MgTy as = halves ? TY_u32 : ty;
    for (int k = 0; halves && !load && k < n; k++)
      PUT("  mov.b32 %%r%d, {%%h%d, %%h%d};\n", words + k, first + i + 2 * k, first + i + 2 * k + 1);
    if (load) px_clear(e, as, words, n, p);
    PUT("  ");
    if (p >= 0) PUT("@%%p%d ", p);
    PUT("%s.%s.", load ? "ld" : "st", a.space);
    if (n > 1) PUT("v%d.", n);
    PUT("%s ", halves ? "b32" : px_mem_ty(ty));
    if (!load) PUT("[%%rd%d+%lld], ", a.reg, (long long)(a.offset + i * mg_ty_size(ty)));
    if (n > 1) value_list(e, as, words, n);
    else px_put(e, as, words);
    if (load) PUT(", [%%rd%d+%lld]", a.reg, (long long)(a.offset + i * mg_ty_size(ty)));
    PUT(";\n");
    for (int k = 0; halves && load && k < n; k++)
      PUT("  mov.b32 {%%h%d, %%h%d}, %%r%d;\n", first + i + 2 * k, first + i + 2 * k + 1, words + k);
  }
}

/* A 0-dim tensor of the CPU: its first element is the parameter. */
static int value_parameter(Px *e, const MgExpr *n) {
  MgTy ty = n->ty;
  int q = e->arg[n->u.i], d = px_reg(e, ty == TY_i1 ? TY_u8 : ty);
  if (!mg_sym_is(e->x, n->src[0], 0) || n->src[1]) return e->rc = MG_UNSUP, 0;
  switch (px_class(ty)) {
  case R_rd: PUT("  mov.b64 %%rd%d, %%q%d;\n", d, q); break;
  case R_d: PUT("  mov.b64 %%d%d, %%q%d;\n", d, q); break;
  case R_f: {
    int u = px_reg(e, TY_u32);
    PUT("  cvt.u32.u64 %%r%d, %%q%d;\n  mov.b32 %%f%d, %%r%d;\n", u, q, d, u);
    break;
  }
  case R_h: PUT("  cvt.u16.u64 %%h%d, %%q%d;\n", d, q); break;
  default: { /* narrow integers come zero-extended */
    int u = px_reg(e, TY_u32);
    PUT("  cvt.u32.u64 %%r%d, %%q%d;\n", u, q);
    d = px_convert(e, ty == TY_i1 ? TY_u8 : ty, mg_ty_is_signed(ty) ? TY_i32 : TY_u32, u);
  }
  }
  return ty == TY_i1 ? px_convert(e, TY_i1, TY_u8, d) : d;
}

/* The registers of all lanes. */
static int value_vector(Px *e, ExprRef r, const MgExpr *n, MgTy reg, int p) {
  int first = value_known(e, r, PX_vector);
  if (first >= 0) return first;
  ValueRef a = {0};
  int lane = e->at.lane;
  e->at.lane = 0;
  a = value_ref(e, (BufRef)n->u.i, n->ty, n->src[0], r);
  first = px_regs(e, reg, e->g->vec);
  value_move_vector(e, true, reg, first, e->g->vec, a, p);
  e->at.lane = lane;
  value_note(e, r, PX_vector, first);
  return first;
}

/* Is it what px_clear sets? */
static bool value_is_zero(Px *e, ExprRef r) {
  const MgExpr *n = mg_expr(e->x, r);
  int64_t k;
  double f;
  if (n->op != OP_const) return false;
  if (mg_ty_is_float(n->ty)) return mg_ex_const_float(e->x, r, &f) && f == 0 && !signbit(f);
  return mg_ex_const_int(e->x, r, &k) && k == 0;
}

static int value_load(Px *e, ExprRef r) {
  const MgExpr n = *mg_expr(e->x, r);
  BufRef b = (BufRef)n.u.i;
  if (e->stored[b]) {
    int id = value_forwarded(e, r);
    if (id >= 0) return id;
  }
  if (e->s->buf[b].kind == MB_local && !e->shared[b])
    return e->rc = MG_UNSUP, 0; /* its value is not in this place's registers */
  if (!e->shared[b] && e->s->buf[b].device == DEV_cpu) return value_parameter(e, &n);
  MgTy reg = n.ty == TY_i1 ? TY_u8 : n.ty;
  bool zero = n.src[1] && value_is_zero(e, n.src[2]);
  int mask = n.src[1] ? px_value(e, n.src[1]) : -1, other = mask < 0 || zero ? -1 : px_value(e, n.src[2]), d;
  int p = px_facts(e, r) & PF_inner ? px_and(e, mask, e->at.guard) : mask;
  bool lanes = px_facts(e, r) & PF_lane, same = mask < 0 || !(px_facts(e, n.src[1]) & PF_lane);
  if (lanes && same && value_is_vector(e, b, n.src[0], e->g->vec)) {
    d = value_vector(e, r, &n, reg, p) + e->at.lane;
  } else {
    ValueRef a = value_ref(e, b, n.ty, n.src[0], same ? r : 0);
    d = px_reg(e, reg);
    px_clear(e, reg, d, 1, p);
    PUT("  ");
    if (p >= 0) PUT("@%%p%d ", p);
    PUT("ld.%s.%s ", a.space, px_mem_ty(n.ty));
    px_put(e, reg, d);
    PUT(", [%%rd%d+%lld];\n", a.reg, (long long)a.offset);
  }
  if (n.ty == TY_i1) d = px_convert(e, TY_i1, TY_u8, d);
  return mask < 0 || zero ? d : px_select(e, n.ty, mask, d, other);
}

/* ---- values ---- */

static bool value_compares_narrow(Px *e, const MgExpr *n) {
  bool is = n->op == OP_lt || n->op == OP_le || n->op == OP_eq || n->op == OP_ne;
  return is && mg_expr(e->x, n->src[0])->ty == TY_i64 && px_is_narrow(e, n->src[0]) &&
         px_is_narrow(e, n->src[1]);
}

static int value_node(Px *e, ExprRef r) {
  const MgExpr n = *mg_expr(e->x, r);
  int s[3] = {0, 0, 0};
  if (n.op == OP_load) return value_load(e, r);
  if (value_compares_narrow(e, &n)) {
    static const char *const name[] = {[OP_lt] = "lt", [OP_le] = "le", [OP_eq] = "eq", [OP_ne] = "ne"};
    int a = px_narrow(e, n.src[0]), b = px_narrow(e, n.src[1]), d = px_reg(e, TY_i1);
    PUT("  setp.%s.s32 %%p%d, %%r%d, %%r%d;\n", name[n.op], d, a, b);
    return d;
  }
  if (n.ty == TY_i64 && px_is_narrow(e, r)) {
    int a = px_narrow(e, r), d = px_reg(e, TY_i64);
    PUT("  cvt.s64.s32 %%rd%d, %%r%d;\n", d, a);
    return d;
  }
  for (int i = 0; i < 2 && n.op == OP_add && n.ty == TY_f32; i++) {
    const MgExpr *t = mg_expr(e->x, n.src[i]);
    double one;
    if (t->op == OP_tanh && mg_ex_const_float(e->x, n.src[1 - i], &one) && one == 1)
      return px_tanh_plus_one(e, px_value(e, t->src[0]));
  }
  for (int i = 0; i < n.nsrc; i++) s[i] = px_value(e, n.src[i]);
  MgTy from = mg_expr(e->x, n.src[0])->ty;
  if (n.op == OP_cvt) return px_convert(e, n.ty, from, s[0]);
  if (n.op == OP_bitcast) return px_bitcast(e, n.ty, from, s[0]);
  if (n.op == OP_where) return px_select(e, n.ty, s[0], s[1], s[2]);
  if (n.op == OP_div && n.ty == TY_f32 && mg_expr(e->x, n.src[0])->op == OP_exp) { /* a softmax's: 2 ulp do */
    int d = px_reg(e, TY_f32);
    PUT("  div.full.f32 %%f%d, %%f%d, %%f%d;\n", d, s[0], s[1]);
    return d;
  }
  return px_apply(e, n.op, from, n.ty, s);
}

int px_value(Px *e, ExprRef r) {
  if (px_stop(e)) return 0;
  const MgExpr *n = mg_expr(e->x, r);
  if (n->op == OP_red) return e->red[n->u.i][px_facts(e, r) & PF_lane ? e->at.lane : 0];
  int id = value_known(e, r, PX_value);
  if (id >= 0 && !(n->op == OP_load && e->stored[n->u.i])) return id; /* a store may have come in between */
  if (n->op == OP_idx) id = value_idx(e, (int)n->u.i, false);
  else if (n->op == OP_const) id = px_constant(e, r);
  else if (n->op == OP_sym) {
    id = px_reg(e, TY_i64);
    PUT("  mov.b64 %%rd%d, %%s%lld;\n", id, (long long)n->u.i);
  } else id = value_node(e, r);
  value_note(e, r, PX_value, id);
  return id;
}

int px_size(Px *e, SymRef n) {
  if (!e->g->narrow) return px_value(e, n);
  if (px_is_narrow(e, n)) return px_narrow(e, n);
  int v = px_value(e, n), d = px_reg(e, TY_i32); /* a symbol, whose range is small */
  PUT("  cvt.u32.u64 %%r%d, %%rd%d;\n", d, v);
  return d;
}

/* ---- stores ---- */

/* Later loads of what this place has just stored need no memory. */
static void value_forward(Px *e, const MgLoop *l, MgTy ty, const int *v, int lanes) {
  ExprRef r = l->mask ? 0 : mg_ex_load(e->x, ty, l->buf, l->index, 0, 0);
  PxAt at = e->at;
  if (!r) return;
  e->at.phase = PX_PIECES;
  for (e->at.lane = 0; e->at.lane < lanes; e->at.lane++) value_note(e, r, PX_value, v[e->at.lane]);
  e->at = at;
}

/* A data check: eager's kernels end in a device assert. */
static void value_trap(Px *e, MgTy ty, int v, int p) {
  int bad = px_and(e, p, ty == TY_i1 ? v : px_convert(e, TY_i1, ty, v));
  PUT("  @%%p%d trap;\n", bad);
}

static void value_store_lane(Px *e, const MgLoop *l, MgTy ty, int v, int p) {
  int mask = l->mask ? px_value(e, l->mask) : -1;
  p = px_and(e, mask, p);
  if (l->buf == e->s->err) {
    value_trap(e, ty, v, p);
    return;
  }
  if (ty == TY_i1) v = px_convert(e, TY_u8, TY_i1, v), ty = TY_u8;
  ValueRef a = value_ref(e, l->buf, ty, l->index, 0);
  PUT("  ");
  if (p >= 0) PUT("@%%p%d ", p);
  PUT("st.%s.%s [%%rd%d+%lld], ", a.space, px_mem_ty(ty), a.reg, (long long)a.offset);
  px_put(e, ty, v);
  PUT(";\n");
}

static void value_store_vector(Px *e, const MgLoop *l, MgTy ty, const int *v, int p) {
  int n = e->g->vec;
  MgTy mem = ty == TY_i1 ? TY_u8 : ty;
  if (l->mask) p = px_and(e, px_value(e, l->mask), p);
  int row = px_regs(e, mem, n);
  for (int i = 0; i < n; i++)
    px_move(e, mem, row + i, ty == TY_i1 ? px_convert(e, TY_u8, TY_i1, v[i]) : v[i]);
  e->at.lane = 0;
  value_move_vector(e, false, mem, row, n, value_ref(e, l->buf, mem, l->index, 0), p);
}

/* 16-bit floats that nobody reads again are rounded two at a time. */
static bool value_store_pairs(Px *e, const MgLoop *l, MgTy ty, ExprRef value, int p) {
  int n = e->g->vec, v[PX_LANES], words = px_regs(e, TY_u32, n / 2);
  if (px_class(ty) != R_h || n < 4 || e->loaded[l->buf] || mg_expr(e->x, value)->ty != TY_f32 || l->mask)
    return false;
  for (e->at.lane = 0; e->at.lane < n && !px_stop(e); e->at.lane++) v[e->at.lane] = px_value(e, value);
  e->at.lane = 0;
  ValueRef a = value_ref(e, l->buf, ty, l->index, 0);
  for (int i = 0; i < n / 2; i++)
    PUT("  cvt.rn.%sx2.f32 %%r%d, %%f%d, %%f%d;\n", ty == TY_bf16 ? "bf16" : "f16", words + i, v[2 * i + 1],
        v[2 * i]);
  PUT("  ");
  if (p >= 0) PUT("@%%p%d ", p);
  PUT("st.%s.v%d.b32 [%%rd%d+%lld], ", a.space, n / 2, a.reg, (long long)a.offset);
  value_list(e, TY_u32, words, n / 2);
  PUT(";\n");
  return true;
}

void px_store(Px *e, const MgLoop *l, const ExprRef value, int lanes) {
  MgTy ty = mg_dtype_ty((MgDtype)e->s->buf[l->buf].dtype);
  ExprRef sv = mg_ex_cvt(e->x, ty, value);
  int v[PX_LANES];
  bool memory = e->s->buf[l->buf].kind != MB_local || e->shared[l->buf];
  if (!sv) return;
  int p = px_and(e, e->live, e->at.guard);
  bool shared = e->at.together && e->g->team > 1;
  if (!shared && memory && value_is_vector(e, l->buf, l->index, lanes) &&
      value_store_pairs(e, l, ty, value, p))
    return;
  for (e->at.lane = 0; e->at.lane < lanes && !px_stop(e); e->at.lane++) v[e->at.lane] = px_value(e, sv);
  e->at.lane = 0;
  if (shared) {
    p = px_and(e, p, e->first);
    if (px_facts(e, sv) & PF_unstable) PUT("  bar.sync 0;\n"); /* the others have read what is overwritten */
  }
  bool same = !l->mask || !(px_facts(e, l->mask) & PF_lane);
  if (px_stop(e)) return;
  if (memory && same && l->buf != e->s->err && value_is_vector(e, l->buf, l->index, lanes))
    value_store_vector(e, l, ty, v, p);
  else
    for (; memory && e->at.lane < lanes; e->at.lane++) value_store_lane(e, l, ty, v[e->at.lane], p);
  e->at.lane = 0;
  if (l->buf != e->s->err) value_forward(e, l, ty, v, lanes);
}
