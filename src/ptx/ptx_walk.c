/* The order in which a thread goes through a kernel: phases, pieces of a row, loops,
 * and how threads of a row meet.
 * In: a Px with bound outer indices.  Out: the kernel's body.
 * A phase walks over the points of its inner ranges, `team` threads times `vec` neighbours at a time.  Few
 * pieces are written out (and keep their values for later phases), more are a loop of
 * MG_TUNE_GPU_UNROLL pieces a turn. */
#include <math.h>
#include "ptx/ptx_priv.h"
#include "tuning.h"

enum { WALK_MEMBERS = 64 };

typedef struct Walk { /* the nests of one phase */
  MgLoop **loop;
  int n, end, keep; /* all ranges; those that no reduction of the phase reduces */
  const SymRef *range;
  int acc[WALK_MEMBERS][PX_LANES];
} Walk;

static int walk_all(const MgLoop *l) { return l->nouter + (l->kind == ML_reduce ? l->nred : 0); }
static bool walk_inner_lane(const Px *e, const Walk *g) {
  return e->g->lane >= e->g->nouter && e->g->lane < g->end;
}
static bool walk_outer_lane(const Px *e) { return e->g->lane >= 0 && e->g->lane < e->g->nouter; }
static int walk_lanes(const Px *e, const Walk *g) {
  return walk_outer_lane(e) || walk_inner_lane(e, g) ? e->g->vec : 1;
}

/* ---- loops ---- */

/* What does not change inside of a loop is computed before it. */
static void walk_hoist_node(Px *e, ExprRef r) {
  const MgExpr n = *mg_expr(e->x, r);
  uint8_t f = px_facts(e, r);
  if (px_stop(e)) return;
  bool leaf = n.op == OP_const || n.op == OP_idx || n.op == OP_sym || n.op == OP_red || px_is_narrow(e, r);
  if (!leaf && !(f & (PF_inner | PF_unstable))) {
    int lanes = f & PF_lane ? e->g->vec : 1;
    for (e->at.lane = 0; e->at.lane < lanes; e->at.lane++) px_value(e, r);
    e->at.lane = 0;
    return;
  }
  for (int i = 0; i < n.nsrc && !leaf; i++)
    if (n.src[i]) walk_hoist_node(e, n.src[i]);
}

static void walk_hoist(Px *e, const Walk *g) {
  for (int i = 0; i < g->n; i++) {
    const MgLoop *l = g->loop[i];
    walk_hoist_node(e, l->kind == ML_reduce ? l->body : l->value);
  }
}

typedef struct WalkLoop {
  int label, var;
} WalkLoop;

static void walk_open(Px *e) {
  if (e->at.depth + 1 == PX_DEPTH || e->nserial >= PX_SERIALS) e->rc = MG_UNSUP;
  else e->at.loop[++e->at.depth] = ++e->nserial;
}

/* An index register: 32 bits in narrow plans. */
static MgTy walk_ty(const Px *e) { return e->g->narrow ? TY_i32 : TY_i64; }

/* for (var = from; var < end; var += step) */
static WalkLoop walk_loop(Px *e, int from, int end) {
  MgTy t = walk_ty(e);
  WalkLoop l = {e->nlabel++, px_reg(e, t)};
  int p = px_reg(e, TY_i1);
  px_move(e, t, l.var, from);
  PUT("L%d:\n  setp.ge.%s %%p%d, ", l.label, px_arith_ty(t), p);
  px_put(e, t, l.var);
  PUT(", ");
  px_put(e, t, end);
  PUT(";\n  @%%p%d bra X%d;\n", p, l.label);
  walk_open(e);
  return l;
}

static void walk_next(Px *e, WalkLoop l, int64_t step) {
  MgTy t = walk_ty(e);
  PUT("  add.%s ", px_arith_ty(t));
  px_put(e, t, l.var);
  PUT(", ");
  px_put(e, t, l.var);
  PUT(", %lld;\n  bra.uni L%d;\nX%d:\n", (long long)step, l.label, l.label);
  e->at.depth--;
}

/* a + imm, a * imm ... in an index register. */
static int walk_index_op(Px *e, const char *op, int a, int64_t imm) {
  MgTy t = walk_ty(e);
  int d = px_reg(e, t);
  PUT("  %s.%s ", op, px_arith_ty(t));
  px_put(e, t, d);
  PUT(", ");
  px_put(e, t, a);
  PUT(", %lld;\n", (long long)imm);
  return d;
}

static int walk_divide(Px *e, const char *op, int a, SymRef n) {
  MgTy t = walk_ty(e);
  int64_t k;
  const char *ty = e->g->narrow ? "u32" : "s64";
  int size = mg_ex_const_int(e->x, n, &k) ? -1 : px_size(e, n), d = px_reg(e, t);
  PUT("  %s.%s ", op, ty);
  px_put(e, t, d);
  PUT(", ");
  px_put(e, t, a);
  PUT(", ");
  if (size < 0) PUT("%lld", (long long)k);
  else px_put(e, t, size);
  PUT(";\n");
  return d;
}

/* Takes flat = ((i_from * n) + ...) apart into idx(from..to). */
static void walk_unflatten(Px *e, int flat, const SymRef *range, int from, int to) {
  for (int k = to - 1; k >= from; k--) {
    if (k == from) {
      e->idx[k] = flat;
      return;
    }
    e->idx[k] = walk_divide(e, "rem", flat, range[k]);
    flat = walk_divide(e, "div", flat, range[k]);
  }
}

/* ---- reductions ---- */

static void walk_shuffle(Px *e, MgTy ty, int from, int to, int distance) {
  bool wide = mg_ty_size(ty) == 8;
  int a = px_regs(e, TY_u32, 4);
  if (wide) PUT("  mov.b64 {%%r%d, %%r%d}, ", a, a + 1);
  else PUT("  mov.b32 %%r%d, ", a);
  px_put(e, ty, from);
  PUT(";\n");
  for (int i = 0; i <= wide; i++)
    PUT("  shfl.sync.bfly.b32 %%r%d, %%r%d, %d, 31, -1;\n", a + 2 + i, a + i, distance);
  PUT("  mov.%s ", wide ? "b64" : "b32");
  px_put(e, ty, to);
  if (wide) PUT(", {%%r%d, %%r%d};\n", a + 2, a + 3);
  else PUT(", %%r%d;\n", a + 2);
}

static int walk_bfly(Px *e, MgRedOp o, MgTy ty, int v, int width) {
  for (int d = width / 2; d; d /= 2) {
    int other = px_reg(e, ty);
    walk_shuffle(e, ty, v, other, d);
    v = px_combine(e, o, ty, v, other);
  }
  return v;
}

/* The same where a row's threads are `each` apart: first those of a warp, then all warps' results, which each
 * thread reads for its row. */
static int walk_across(Px *e, MgRedOp o, MgTy ty, int acc) {
  int each = e->g->threads / e->g->team, warps = e->g->threads / 32;
  for (int d = each; d < 32; d *= 2) {
    int other = px_reg(e, ty);
    walk_shuffle(e, ty, acc, other, d);
    acc = px_combine(e, o, ty, acc, other);
  }
  if (warps < 2) return acc;
  int base = px_reg(e, TY_u32), tid = px_reg(e, TY_u32), at = px_reg(e, TY_u32), p = px_reg(e, TY_i1);
  const char *mt = px_mem_ty(ty);
  PUT("  mov.u32 %%r%d, exchange;\n  add.u32 %%r%d, %%r%d, %u;\n", base, base, base,
      e->nexchange++ * (unsigned)(warps * each) * 8);
  PUT("  mad.lo.u32 %%r%d, %%r%d, 8, %%r%d;\n  mov.u32 %%r%d, %%tid.x;\n", base, e->slot, base, tid);
  int lane = px_op32(e, "and.b32", tid, 31), warp = px_op32(e, "shr.u32", tid, 5);
  PUT("  mad.lo.u32 %%r%d, %%r%d, %d, %%r%d;\n  setp.lt.u32 %%p%d, %%r%d, %d;\n  @%%p%d st.shared.%s "
      "[%%r%d], ",
      at, warp, each * 8, base, p, lane, each, p, mt, at);
  px_put(e, ty, acc);
  PUT(";\n  bar.sync 0;\n");
  for (int w = 0; w < warps; w++) {
    int v = px_reg(e, ty);
    PUT("  ld.shared.%s ", mt);
    px_put(e, ty, v);
    PUT(", [%%r%d+%d];\n", base, w * each * 8);
    acc = w ? px_combine(e, o, ty, acc, v) : v;
  }
  return acc;
}

/* Joins the values of a row's threads; every thread gets the result. */
static int walk_team(Px *e, MgRedOp o, MgTy ty, int acc) {
  int team = e->g->team, warps = team / 32;
  if (team == 1) return acc;
  if (ty == TY_i1) {
    int v = walk_team(e, o == RED_any ? RED_max : RED_min, TY_u32, px_convert(e, TY_u32, TY_i1, acc));
    return px_convert(e, TY_i1, TY_u32, v);
  }
  if (e->g->across) return walk_across(e, o, ty, acc);
  acc = walk_bfly(e, o, ty, acc, team < 32 ? team : 32);
  if (warps < 2) return acc;
  int base = px_reg(e, TY_u32), at = px_reg(e, TY_u32), p = px_reg(e, TY_i1),
      lane = px_op32(e, "and.b32", e->rank, 31), v = px_reg(e, ty);
  const char *mt = px_mem_ty(ty);
  PUT("  mov.u32 %%r%d, exchange;\n  add.u32 %%r%d, %%r%d, %u;\n", base, base, base,
      e->nexchange++ * (unsigned)(e->g->threads / 32) * 8);
  if (e->slot >= 0) PUT("  mad.lo.u32 %%r%d, %%r%d, %d, %%r%d;\n", base, e->slot, warps * 8, base);
  int warp = px_op32(e, "shr.u32", e->rank, 5);
  PUT("  mad.lo.u32 %%r%d, %%r%d, 8, %%r%d;\n  setp.eq.u32 %%p%d, %%r%d, 0;\n  @%%p%d st.shared.%s [%%r%d], ",
      at, warp, base, p, lane, p, mt, at);
  px_put(e, ty, acc);
  PUT(";\n  bar.sync 0;\n");
  int mine = px_op32(e, "and.b32", lane, warps - 1), from = px_reg(e, TY_u32);
  PUT("  mad.lo.u32 %%r%d, %%r%d, 8, %%r%d;\n  ld.shared.%s ", from, mine, base, mt);
  px_put(e, ty, v);
  PUT(", [%%r%d];\n", from);
  return walk_bfly(e, o, ty, v, warps);
}

static int walk_start(Px *e, const MgLoop *l) {
  MgTy ty = mg_expr(e->x, l->body)->ty;
  bool all = l->red_op == RED_all || l->red_op == RED_prod;
  double limit = l->red_op == RED_max ? -INFINITY : INFINITY;
  ExprRef k;
  if (l->red_op == RED_max || l->red_op == RED_min) {
    int bits = 8 * mg_ty_size(ty) - (mg_ty_is_signed(ty) ? 1 : 0);
    int64_t top = bits == 64 ? -1 : (int64_t)((1ull << bits) - 1), least = mg_ty_is_signed(ty) ? -top - 1 : 0;
    k = mg_ty_is_float(ty) ? mg_ex_float(e->x, ty, limit)
                           : mg_ex_int(e->x, ty, l->red_op == RED_max ? least : top);
  } else {
    k = mg_ty_is_float(ty) ? mg_ex_float(e->x, ty, all) : mg_ex_int(e->x, ty, all);
  }
  int d = px_reg(e, ty);
  if (k) px_move(e, ty, d, px_constant(e, k));
  return d;
}

static void walk_begin(Px *e, Walk *g) {
  int lanes = walk_lanes(e, g);
  for (int i = 0; i < g->n; i++)
    for (int v = 0; g->loop[i]->kind == ML_reduce && v < lanes; v++) g->acc[i][v] = walk_start(e, g->loop[i]);
}

static void walk_finish(Px *e, Walk *g) {
  int lanes = walk_outer_lane(e) ? e->g->vec : 1;
  for (int i = 0; i < g->n && !px_stop(e); i++) {
    MgLoop *l = g->loop[i];
    if (l->kind != ML_reduce) continue;
    MgTy ty = mg_expr(e->x, l->body)->ty;
    for (int n = walk_inner_lane(e, g) ? e->g->vec / 2 : 0; n; n /= 2) /* neighbours first */
      for (int v = 0; v < n; v++) g->acc[i][v] = px_combine(e, l->red_op, ty, g->acc[i][v], g->acc[i][v + n]);
    for (int v = 0; v < lanes; v++) e->red[l - e->own][v] = walk_team(e, l->red_op, ty, g->acc[i][v]);
  }
  for (int i = 0; i < g->n && !px_stop(e); i++)
    if (g->loop[i]->kind == ML_reduce) px_store(e, g->loop[i], g->loop[i]->value, lanes);
}

/* ---- points ---- */

static void walk_points(Px *e, Walk *g, int lanes) {
  for (int i = 0; i < g->n && !px_stop(e); i++) {
    MgLoop *l = g->loop[i];
    if (l->kind == ML_point) {
      px_store(e, l, l->value, lanes);
      continue;
    }
    MgTy ty = mg_expr(e->x, l->body)->ty;
    for (e->at.lane = 0; e->at.lane < lanes && !px_stop(e); e->at.lane++) {
      int *acc = &g->acc[i][e->at.lane], v = px_combine(e, l->red_op, ty, *acc, px_value(e, l->body));
      if (e->at.guard >= 0) v = px_select(e, ty, e->at.guard, v, *acc);
      px_move(e, ty, *acc, v);
    }
    e->at.lane = 0;
  }
}

/* One piece: inner point `flat` of the phase and its neighbours.  n: points of the phase, to be compared
 * with; 0: it is in the row. */
static void walk_piece(Px *e, Walk *g, int from, int flat, int number, int64_t n) {
  PxAt at = e->at;
  int lanes = walk_lanes(e, g);
  e->at.together = false;
  e->at.piece = (uint32_t)number + 1 + (uint32_t)(g->end - e->g->nouter) * PX_PIECES;
  if (n) {
    MgTy t = walk_ty(e);
    e->at.guard = px_reg(e, TY_i1);
    PUT("  setp.lt.%s %%p%d, ", px_arith_ty(t), e->at.guard);
    px_put(e, t, flat);
    PUT(", %lld;\n", (long long)n);
  }
  walk_unflatten(e, flat, g->range, from, g->end);
  walk_points(e, g, lanes);
  e->at = at;
}

/* The first inner point of a thread: its rank in the row, times its neighbours. */
static int walk_base(Px *e, int each) {
  MgTy t = walk_ty(e);
  int base = px_reg(e, t);
  if (e->rank < 0) px_move(e, t, base, px_int(e, t, 0));
  else if (e->g->narrow) PUT("  mul.lo.u32 %%r%d, %%r%d, %d;\n", base, e->rank, each);
  else PUT("  mul.wide.u32 %%rd%d, %%r%d, %d;\n", base, e->rank, each);
  return base;
}

/* The inner points of ranges [from, end) of constant number. */
static void walk_constant(Px *e, Walk *g, int from, int64_t n) {
  int each = walk_inner_lane(e, g) ? e->g->vec : 1, pieces = 0;
  int64_t span = (int64_t)e->g->team * each, full = n / span, at = 0;
  bool rest = n % span != 0;
  int base = walk_base(e, each);
  if (full + rest > e->g->pieces) {
    int64_t turns = full / MG_TUNE_GPU_UNROLL, end = turns * MG_TUNE_GPU_UNROLL * span;
    walk_hoist(e, g);
    WalkLoop l = walk_loop(e, base, walk_index_op(e, "add", base, end));
    for (int u = 0; u < MG_TUNE_GPU_UNROLL; u++)
      walk_piece(e, g, from, walk_index_op(e, "add", l.var, u * span), u, 0);
    walk_next(e, l, MG_TUNE_GPU_UNROLL * span);
    at = turns * MG_TUNE_GPU_UNROLL;
    walk_open(e); /* the numbers of these pieces are not those of another phase */
  }
  for (int64_t p = at; p < full + rest && !px_stop(e); p++)
    walk_piece(e, g, from, walk_index_op(e, "add", base, p * span), pieces++, p == full ? n : 0);
  if (full + rest > e->g->pieces) e->at.depth--;
}

/* The same of a number that only the call knows.  Vectors are along the last range, which they divide. */
static void walk_unknown(Px *e, Walk *g, int from) {
  MgTy t = walk_ty(e);
  int total = px_size(e, g->range[from]), each = walk_inner_lane(e, g) ? e->g->vec : 1;
  for (int k = from + 1; k < g->end; k++) {
    int n = px_size(e, g->range[k]), d = px_reg(e, t);
    PUT("  mul.lo.%s ", px_arith_ty(t));
    px_put(e, t, d);
    PUT(", ");
    px_put(e, t, total);
    PUT(", ");
    px_put(e, t, n);
    PUT(";\n");
    total = d;
  }
  int base = walk_base(e, each);
  walk_hoist(e, g);
  WalkLoop l = walk_loop(e, base, total);
  walk_piece(e, g, from, l.var, 0, 0);
  walk_next(e, l, (int64_t)e->g->team * each);
}

/* Loops over ranges [dim, end); those before `keep` are outside of the phase's reductions. */
static void walk_dims(Px *e, Walk *g, int dim) {
  bool reduces = g->keep < g->end;
  if (dim < g->keep && reduces) { /* a kept inner range: one after the other */
    PxAt at = e->at;
    WalkLoop l = walk_loop(e, px_int(e, walk_ty(e), 0), px_size(e, g->range[dim]));
    e->idx[dim] = l.var;
    e->at.piece = 1 + (uint32_t)(dim + 1) * PX_PIECES;
    walk_dims(e, g, dim + 1);
    if (e->g->team > 32 || e->g->across) PUT("  bar.sync 0;\n"); /* what reductions exchanged is read */
    walk_next(e, l, 1);
    e->at.piece = at.piece;
    return;
  }
  int64_t n = 1, k;
  bool constant = true;
  for (int d = dim; d < g->end; d++)
    constant = constant && mg_ex_const_int(e->x, g->range[d], &k) && (n *= k, true);
  if (reduces) walk_begin(e, g);
  if (dim == g->end) walk_points(e, g, walk_outer_lane(e) ? e->g->vec : 1);
  else if (constant) walk_constant(e, g, dim, n);
  else walk_unknown(e, g, dim);
  if (reduces) walk_finish(e, g);
}

/* Nests [from, to). */
static void walk_nests(Px *e, uint32_t from, uint32_t to) {
  if (e->g->map == MG_PTX_tiles) {
    px_tiles(e, from, to);
    return;
  }
  for (uint32_t i = from, j; i < to && !px_stop(e); i = j) {
    MgLoop *member[WALK_MEMBERS];
    Walk g = {.loop = member, .end = e->g->nouter, .keep = -1};
    for (j = i; j < to && e->own[j].phase == e->own[i].phase; j++) {
      MgLoop *l = &e->own[j];
      if (g.n == WALK_MEMBERS) {
        e->rc = MG_UNSUP;
        return;
      }
      member[g.n++] = l;
      if (walk_all(l) >= g.end) g.end = walk_all(l), g.range = l->range;
      if (l->kind == ML_reduce) g.keep = l->nouter;
    }
    if (g.keep < 0) g.keep = g.end;
    e->at.phase = e->own[i].phase;
    if (e->at.phase >= PX_PIECES - 1) e->rc = MG_UNSUP;
    walk_dims(e, &g, e->g->nouter);
    if (e->synced && j < to) PUT("  bar.sync 0;\n"); /* what other threads of the row have stored */
  }
}

void px_kernel(Px *e) {
  if (!e->g->each) {
    walk_nests(e, 0, e->k->nloop);
    return;
  }
  for (uint32_t i = 0; i < e->k->nloop && !px_stop(e); i++) {
    int p = px_reg(e, TY_i1), label = e->nlabel++;
    PUT("  setp.ne.u32 %%p%d, %%r%d, %u;\n  @%%p%d bra N%d;\n", p, e->nest, i, p, label);
    walk_open(e); /* what one nest computes the others have not */
    walk_nests(e, i, i + 1);
    e->at.depth--;
    PUT("  ret;\nN%d:\n", label);
  }
}
