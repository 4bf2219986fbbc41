/* One fused kernel to LLVM IR text.
 * In: a kernel whose nests share their leading ranges and are grouped in phases
 * (see MgLoop.phase, MgLoop.vec).
 * Out: define void @name(ptr %buf, ptr %size, i64 %begin, i64 %end): points [begin, end) of the shared
 * ranges.
 * Loops are emitted as explicit vector code: a main loop of full vectors (reductions: several accumulators),
 * then a masked tail where the target has masks and every access is contiguous, else a scalar tail.  Sums
 * over long rows that read one vector take several rows at a time.  No IR pass is run on the text, so
 * everything that matters (invariant motion, sharing, forwarding of stored values) is done here. */
#include "back/emit/emit_llvm.h"
#include "back/emit/emit_llvm_priv.h"
#include "base/assert.h"
#include "tuning.h"
#include <stdio.h>
#include <string.h>

/* ---- stages ---- */

static EmRef tail_mask(Em *e, EmRef iv, EmRef hi, int lanes) {
  EmRef rem = em_arith(e, "sub $t $a, $b", OP_sub, hi, iv);
  MgStrbuf *b = em_at(e, rem.level);
  EmRef m = em_new(e, rem.level, lanes);
  int64_t k;
  if (em_is_const(e, rem, &k)) {
    mg_sb_printf(b, "  %%v%d = icmp slt <%d x i32> ", m.id, lanes);
    for (int i = 0; i < lanes; i++) mg_sb_printf(b, "%si32 %d", i ? ", " : "<", i);
    mg_sb_puts(b, ">, ");
    em_put(e, b, (EmRef){.id = -1, .k = mg_ex_int(e->x, TY_i32, k), .lanes = (uint8_t)lanes}, TY_i32);
    mg_sb_putc(b, '\n');
    return m;
  }
  int t = e->nid++, one = e->nid++, all = e->nid++;
  mg_sb_printf(
      b, "  %%v%d = trunc i64 %%v%d to i32\n  %%v%d = insertelement <%d x i32> poison, i32 %%v%d, i64 0\n", t,
      rem.id, one, lanes, t);
  mg_sb_printf(b, "  %%v%d = shufflevector <%d x i32> %%v%d, <%d x i32> poison, <%d x i32> zeroinitializer\n",
               all, lanes, one, lanes, lanes);
  mg_sb_printf(b, "  %%v%d = icmp slt <%d x i32> ", m.id, lanes);
  for (int i = 0; i < lanes; i++) mg_sb_printf(b, "%si32 %d", i ? ", " : "<", i);
  mg_sb_printf(b, ">, %%v%d\n", all);
  return m;
}

/* Accumulators of a nest, which unrolled points take in turns; those of a scan all go on with the same. */
static int acc_count(const EmGroup *g, const MgLoop *l) { return l->kind == ML_scan ? 1 : g->unroll; }
static int row_count(const EmGroup *g) { return g->side ? g->side : 1; }

/* Which accumulators a stage changes: all of them in outer loops, its own copies in the innermost one. */
static void live_accs(const EmWalk *w, const EmStage *st, bool last, bool *live) {
  const EmGroup *g = w->g;
  memset(live, !last && w->carry, EMIT_MAX_ACC);
  if (!last || !w->carry) return;
  for (int i = 0; i < g->n; i++) {
    if (g->acc[i] < 0) continue;
    bool arg = mg_red_is_arg(g->loop[i]->red_op);
    int a = st->scalar_tail ? g->sacc[i] : g->acc[i];
    int n = st->unroll < acc_count(g, g->loop[i]) ? st->unroll : acc_count(g, g->loop[i]);
    for (int u = 0; u < n * (1 + arg) * row_count(g); u++) live[a + u] = true;
  }
}

/* Runs idx(dim) over [lo, hi) with one stage. */
static void run_stage(EmWalk *w, EmRef lo, EmRef hi, const EmStage *st, bool maybe_empty) {
  Em *e = w->e;
  bool last = w->dim == w->g->end - 1, vec = w->dim == w->g->vec;
  int step = st->unroll * (vec ? st->lanes : 1), saved_lanes = e->lanes, saved_kv = e->kv;
  int64_t a, b;
  bool known = em_is_const(e, lo, &a) && em_is_const(e, hi, &b);
  bool live[EMIT_MAX_ACC];
  EmEntry in;
  if (known && a >= b) return;
  int run = known && b - a <= step ? EM_RUN_straight : st->masked && !st->repeats ? EM_RUN_once : EM_RUN_loop;
  live_accs(w, st, last, live);
  em_loop_open(e, w->dim, lo, hi, step, run, maybe_empty, live);
  if (e->rc) return;
  em_loop_enter(e, run, &in);
  EmRef iv = e->scope[e->depth].iv, saved_mask = e->mask;
  bool saved_one = e->mask_one;
  if (vec) {
    e->lanes = st->lanes;
    e->kv = w->dim;
    if (st->masked) e->mask = tail_mask(e, iv, hi, st->lanes);
    if (st->masked) e->mask_one = known && b - a == 1;
  }
  for (int u = 0; u < st->unroll && !e->rc; u++) {
    if (u) {
      e->scope[e->depth].serial = ++e->serial;
      e->idx[w->dim] =
          em_arith(e, "add $t $a, $b", OP_add, iv, em_int(e, (int64_t)u * (vec ? st->lanes : 1)));
      e->idx[w->dim].level = (uint8_t)e->depth;
    }
    w->body(e, w->g, w->dim, u, st);
  }
  e->lanes = saved_lanes;
  e->kv = saved_kv;
  e->mask = saved_mask;
  e->mask_one = saved_one;
  em_loop_close(e, run, &in);
}

EmRef em_whole_part(Em *e, EmRef lo, EmRef hi, int step) {
  if (step == 1) return hi;
  EmRef n = em_arith(e, "sub $t $a, $b", OP_sub, hi, lo);
  n = em_arith(e, "and $t $a, $b", OP_and, n, em_int(e, -(int64_t)step));
  return em_arith(e, "add $t $a, $b", OP_add, lo, n);
}

void em_run_range(EmWalk *w, EmRef lo, EmRef hi, bool maybe_empty) {
  Em *e = w->e;
  EmGroup *g = w->g;
  bool vec = w->dim == g->vec, last = w->dim == g->end - 1;
  int full = vec ? e->t->vector_bits / 32 : 1, unroll = last && w->carry ? g->unroll : 1;
  int lanes = vec ? full : e->lanes, steps[2] = {full * unroll, full};
  if (vec && g->wide) { /* whole cache lines of several neighbours, so that rows are read in long pieces */
    EmStage st = {.lanes = full * EMIT_WIDE, .unroll = 1};
    EmRef end = em_whole_part(e, lo, hi, full * EMIT_WIDE);
    run_stage(w, lo, end, &st, maybe_empty);
    lo = end;
    if (e->apart && g->masked_ok && !g->reduces) { /* fewer points than those: one body instead of two */
      EmStage rest = {.lanes = full, .unroll = 1, .masked = true, .repeats = true};
      run_stage(w, lo, hi, &rest, maybe_empty);
      return;
    }
  }
  for (int i = unroll > 1 ? 0 : 1; i < 2; i++) {
    EmRef end = em_whole_part(e, lo, hi, steps[i]);
    EmStage st = {.lanes = lanes, .unroll = i == 0 ? unroll : 1};
    run_stage(w, lo, end, &st, maybe_empty);
    lo = end;
  }
  if (full == 1) return;
  int64_t points;
  if (g->loop && e->tile < 0 && !g->masked_ok && g->vec < g->keep &&
      mg_ex_const_int(e->x, g->range[w->dim], &points) && full >= 16 && points % full >= full / 2) {
    EmRef end = em_whole_part(e, lo, hi, full / 2); /* most of what is left */
    EmStage st = {.lanes = full / 2, .unroll = 1};
    run_stage(w, lo, end, &st, maybe_empty);
    lo = end;
  }
  EmStage tail = {
      .lanes = g->masked_ok ? full : 1, .unroll = 1, .masked = g->masked_ok, .scalar_tail = !g->masked_ok};
  run_stage(w, lo, hi, &tail, maybe_empty);
}

/* ---- groups ---- */

MgTy em_acc_ty(Em *e, const MgLoop *l) { return mg_expr(e->x, l->body)->ty; }
static bool is_arg(const MgLoop *l) { return mg_red_is_arg(l->red_op); }

static int new_acc(Em *e, MgRedOp op, MgTy ty, int lanes) {
  if (e->nacc == EMIT_MAX_ACC) {
    em_fail(e, MG_UNSUP);
    return 0;
  }
  e->acc[e->nacc] = (EmAcc){.ty = ty, .lanes = (uint8_t)lanes, .cur = em_acc_start(e, op, ty, lanes)};
  return e->nacc++;
}

static void start_accs(Em *e, EmGroup *g) {
  bool across = g->vec >= g->keep; /* lanes hold different reduced points */
  int lanes = across ? e->t->vector_bits / 32 : e->lanes;
  for (int i = 0; i < g->n; i++) {
    MgLoop *l = g->loop[i];
    g->acc[i] = g->sacc[i] = -1;
    if (l->kind != ML_reduce && l->kind != ML_scan) continue;
    for (int u = 0; u < acc_count(g, l) * row_count(g); u++) {
      int a = new_acc(e, l->red_op, em_acc_ty(e, l), lanes);
      if (u == 0) g->acc[i] = a;
      if (is_arg(l)) new_acc(e, RED_sum, TY_i64, lanes);
    }
    for (int r = 0; r < row_count(g) && across && !g->masked_ok; r++) {
      int a = new_acc(e, l->red_op, em_acc_ty(e, l), 1);
      if (!r) g->sacc[i] = a;
      if (is_arg(l)) new_acc(e, RED_sum, TY_i64, 1);
    }
  }
}

/* Position of a point within the reduced ranges, row-major. */
static ExprRef position(Em *e, const MgLoop *l) {
  ExprRef p = mg_sym(e->x, 0);
  for (int k = l->nouter; k < l->nouter + l->nred; k++)
    p = mg_sym_add(e->x, mg_sym_mul(e->x, p, l->range[k]), mg_ex_idx(e->x, k));
  return p;
}

/* Accumulators of rows side by side are neighbours; row 0 is the only one elsewhere. */
static void step_acc(Em *e, EmGroup *g, int i, int u, int row, const EmStage *st) {
  MgLoop *l = g->loop[i];
  MgTy ty = em_acc_ty(e, l);
  int turn = u % acc_count(g, l) * (1 + is_arg(l)) * row_count(g);
  int a = (st->scalar_tail ? g->sacc[i] : g->acc[i] + turn) + row;
  EmRef v[2] = {em_existing(e, l->red_op, ty, em_value(e, l->body, e->lanes))}, cur[2];
  if (e->rc) return;
  cur[0] = e->acc[a].cur;
  if (is_arg(l)) {
    v[1] = em_value(e, position(e, l), e->lanes);
    cur[1] = e->acc[a + 1].cur;
    em_combine_arg(e, l->red_op, ty, e->lanes, cur, v);
    e->acc[a + 1].cur = cur[1];
  } else {
    cur[0] = em_combine(e, l->red_op, ty, e->lanes, cur[0], v[0]);
  }
  e->acc[a].cur = cur[0];
}

static void finish_acc(Em *e, const EmGroup *g, int i, int row) {
  const MgLoop *l = g->loop[i];
  MgTy ty = em_acc_ty(e, l);
  bool arg = is_arg(l);
  int a = g->acc[i] + row, rows = row_count(g);
  EmRef r[2] = {e->acc[a].cur, e->acc[a + arg].cur};
  for (int u = 1; u < g->unroll && arg; u++) {
    EmRef q[2] = {e->acc[a + 2 * u].cur, e->acc[a + 2 * u + 1].cur};
    em_combine_arg(e, l->red_op, ty, r[0].lanes, r, q);
  }
  for (int half = g->unroll / 2; half && !arg;
       half /= 2) /* as a tree: each step waits for the last one only */
    for (int u = 0; u < half; u++)
      e->acc[a + u * rows].cur = em_combine(e, l->red_op, ty, r[0].lanes, e->acc[a + u * rows].cur,
                                            e->acc[a + (u + half) * rows].cur);
  if (!arg) r[0] = e->acc[a].cur;
  if (g->vec >= g->keep) em_horizontal(e, l->red_op, ty, r);
  if (g->sacc[i] >= 0) {
    int scalar = g->sacc[i] + row;
    EmRef q[2] = {e->acc[scalar].cur, e->acc[scalar + arg].cur};
    if (arg) em_combine_arg(e, l->red_op, ty, 1, r, q);
    else r[0] = em_combine(e, l->red_op, ty, 1, r[0], q[0]);
  }
  int n = (int)(l - e->own);
  e->redval[n] = r[arg];
  if (e->redval[n].id != -1 && e->redval[n].level < e->depth) e->redval[n].level = (uint8_t)e->depth;
}

/* ---- sums by blocks ---- */

static bool adds_floats(Em *e, const MgLoop *l) {
  return l->kind == ML_reduce && l->red_op == RED_sum && mg_ty_is_float(em_acc_ty(e, l));
}

/* Points that are added up before they are added to the sum; 0: all of them.
 * The error of n numbers that are added up one after the other grows with n; ATen adds up by blocks, too. */
static int64_t sum_block(Em *e, const EmGroup *g) {
  bool sums = false;
  for (int i = 0; i < g->n; i++) {
    if (g->loop[i]->kind == ML_scan) return 0;
    sums |= adds_floats(e, g->loop[i]);
  }
  int across = g->vec == g->end - 1 ? e->t->vector_bits / 32 : 1;
  return sums ? (int64_t)MG_TUNE_SUM_BLOCK * g->unroll * across : 0;
}

/* Do the ranges from `dim` on have so many points? */
static bool has_points(Em *e, const EmGroup *g, int dim, int64_t points) {
  int64_t n = 1;
  for (int k = dim; k < g->end && n < points; k++) {
    int64_t range = mg_sym_hint(e->x, g->range[k]);
    n *= range < 0 ? 0 : range < points ? range : points;
  }
  return n >= points;
}

/* Accumulators of floats that are added up: what they hold goes to `held`, and they start again; or the other
 * way. */
static void sum_accs(Em *e, const EmGroup *g, EmRef *held, bool start) {
  for (int i = 0; i < g->n && !e->rc; i++) {
    if (g->acc[i] < 0 || !adds_floats(e, g->loop[i])) continue;
    MgTy ty = em_acc_ty(e, g->loop[i]);
    int rows = row_count(g), vectors = g->unroll * rows, all = vectors + (g->sacc[i] < 0 ? 0 : rows);
    for (int u = 0; u < all; u++) {
      int a = u < vectors ? g->acc[i] + u : g->sacc[i] + u - vectors;
      int lanes = e->acc[a].lanes;
      if (start) held[a] = e->acc[a].cur;
      e->acc[a].cur = start ? em_acc_start(e, RED_sum, ty, lanes)
                            : em_combine(e, RED_sum, ty, lanes, held[a], e->acc[a].cur);
    }
  }
}

/* Runs the innermost range [0, hi) by blocks. */
static void run_blocks(EmWalk *w, EmRef hi, int64_t block, bool maybe_empty) {
  Em *e = w->e;
  EmRef held[EMIT_MAX_ACC];
  bool live[EMIT_MAX_ACC];
  EmEntry in;
  int k = w->g->end; /* no nest has this index */
  memset(live, true, sizeof live);
  em_loop_open(e, k, em_int(e, 0), hi, (int)block, EM_RUN_loop, maybe_empty, live);
  if (e->rc) return;
  em_loop_enter(e, EM_RUN_loop, &in);
  sum_accs(e, w->g, held, true);
  EmRef lo = e->idx[k];
  EmRef stop = em_arith(e, "$0 = icmp slt $t $a, $b\n$d = select i1 $0, $t $a, $t $b", OP_min,
                        em_arith(e, "add $t $a, $b", OP_add, lo, em_int(e, block)), hi);
  em_run_range(w, lo, stop, false);
  sum_accs(e, w->g, held, false);
  em_loop_close(e, EM_RUN_loop, &in);
}

static void emit_dims(Em *e, EmGroup *g, int dim);

/* A point of each row. */
static void beside_body(Em *e, EmGroup *g, int dim, int u, const EmStage *st) {
  EmRef row = e->idx[0];
  for (int r = 0; r < g->side && !e->rc; r++) {
    em_go_to(e, 0, row, r);
    step_acc(e, g, 0, u, r, st);
  }
  em_go_to(e, 0, row, 0);
}

static void group_body(Em *e, EmGroup *g, int dim, int u, const EmStage *st) {
  if (dim + 1 < g->end || (g->reduces && dim + 1 == g->keep)) {
    emit_dims(e, g, dim + 1);
    return;
  }
  for (int i = 0; i < g->n && !e->rc; i++) {
    MgLoop *l = g->loop[i];
    if (l->kind == ML_point || l->kind == ML_scatter) {
      em_store(e, l, l->value);
      continue;
    }
    step_acc(e, g, i, u, 0, st);
    if (l->kind != ML_scan) continue;
    e->redval[l - e->own] = e->acc[g->acc[i]].cur;
    em_store(e, l, l->value);
  }
}

/* Runs index `dim` and the later ones. */
static void run_dims(Em *e, EmGroup *g, int dim) {
  EmWalk w = {.e = e,
              .g = g,
              .dim = dim,
              .body = g->side ? beside_body : group_body,
              .carry = g->reduces && dim >= g->keep};
  int64_t lo, hi, block = w.carry ? sum_block(e, g) : 0;
  bool some = mg_ex_range(e->x, g->range[dim], &lo, &hi) && lo >= 1;
  bool last = dim == g->end - 1 && g->end < MG_MAX_IDX && e->depth + 3 < EMIT_MAX_SCOPE;
  bool inner = block && dim > g->keep && has_points(e, g, dim, block); /* of a sum over several dimensions */
  EmRef points = em_value(e, g->range[dim], 1), held[EMIT_MAX_ACC];
  if (inner) sum_accs(e, g, held, true);
  if (block && last && has_points(e, g, dim, MG_TUNE_SUM_BLOCKS * block))
    run_blocks(&w, points, block, !some);
  else em_run_range(&w, em_int(e, 0), points, !some);
  if (inner) sum_accs(e, g, held, false);
}

static void emit_dims(Em *e, EmGroup *g, int dim) {
  if (e->rc) return;
  bool starts = g->reduces && dim == g->keep;
  int nacc = e->nacc;
  if (starts) {
    start_accs(e, g);
    if (e->rc) return;
  }
  if (dim == g->end) {
    EmStage st = {.lanes = e->lanes, .unroll = 1};
    group_body(e, g, dim, 0, &st);
  } else {
    run_dims(e, g, dim);
  }
  if (!starts) return;
  for (int i = 0; i < g->n && !e->rc; i++) {
    if (g->loop[i]->kind != ML_reduce) continue;
    finish_acc(e, g, i, 0);
    em_store(e, g->loop[i], g->loop[i]->value);
  }
  e->nacc = nacc;
}

static int all_ranges(const MgLoop *l) {
  return l->nouter + (l->kind == ML_reduce || l->kind == ML_scan ? l->nred : 0);
}

static ExprRef find_wider(MgExprs *x, ExprRef r, const ExprRef *s, void *arg) {
  const MgExpr *n = mg_expr(x, r);
  (void)s;
  if ((n->op == OP_load && n->src[1]) || (!x->index_only[r] && mg_ty_size((MgTy)n->ty) > 1))
    *(bool *)arg = true;
  return r;
}

/* Of bytes four times as many as of numbers make a vector. */
static bool is_bytes(Em *e, const MgLoop *l) {
  bool wider = l->kind != ML_point || l->mask || mg_dtype_size((MgDtype)e->s->buf[l->buf].dtype) > 1;
  return !wider && mg_ex_map(e->x, l->value, find_wider, &wider) && !wider;
}

static bool count_rounding(const MgExprs *x, ExprRef r, void *count) {
  const MgExpr *n = mg_expr(x, r);
  if (n->op != OP_cvt || n->ty != TY_f32 || mg_expr(x, n->src[0])->op != OP_cvt) return false;
  *(int *)count += mg_ty_size(mg_expr(x, n->src[0])->ty) == 2;
  return false;
}

/* Are 16-bit floats rounded between the ops?  A rounding is a chain of instructions that wait for one
 * another. */
static bool is_rounded(Em *e, const MgLoop *l) {
  int roundings = 0;
  if (e->x->numerics != MN_fast && l->kind == ML_point) mg_ex_any(e->x, l->value, count_rounding, &roundings);
  return roundings > 0;
}

/* Column reductions of cheap bodies, work on bytes, and 16-bit floats that are rounded after each op; all of
 * it contiguous in the vector index. */
static bool is_wide(Em *e, MgLoop **loop, int n, int vec) {
  int reductions = 0, bytes = 0, rounded = 0;
  for (int i = 0; i < n; i++) {
    MgLoop *l = loop[i];
    bytes += is_bytes(e, l);
    rounded += is_rounded(e, l);
    if (l->kind == ML_scan || l->kind == ML_scatter || is_arg(l) ||
        mg_ty_size(mg_expr(e->x, l->value)->ty) > 4)
      return false;
    if (!e->apart && !rounded &&
        mg_ex_count_ops(e->x, l->value) + (l->body ? mg_ex_count_ops(e->x, l->body) : 0) > 8)
      return false;
    if (!em_contiguous_only(e, l, vec, false)) return false;
    reductions += l->kind == ML_reduce;
  }
  return reductions == 1 || bytes == n || rounded == n ||
         e->apart; /* one call for several vectors, which do not wait for one another */
}

/* May the group's tail be masked, and do several accumulators pay off? */
static void look_at_accesses(Em *e, EmGroup *g) {
  bool gathers = false;
  for (int i = 0; i < g->n && g->vec >= 0; i++) {
    gathers = gathers || !em_contiguous_only(e, g->loop[i], g->vec, true);
    g->masked_ok = g->masked_ok && em_maskable(e, g->loop[i], g->vec);
  }
  if (!gathers) return;
  g->masked_ok = false; /* their loads take the time; more accumulators would only be more code */
  g->unroll = 1;
}

static void emit_group(Em *e, MgLoop **loop, int n, int shared) {
  EmGroup g = {.loop = loop,
               .n = n,
               .first = shared,
               .end = shared,
               .keep = shared,
               .vec = -1,
               .unroll = 1,
               .masked_ok = true};
  uint32_t ops = 0;
  bool scans = false;
  if (n > 64) {
    em_fail(e, MG_UNSUP);
    return;
  }
  for (int i = 0; i < n; i++) {
    MgLoop *l = loop[i];
    if (all_ranges(l) >= g.end) {
      g.end = all_ranges(l);
      g.range = l->range;
    }
    if (l->kind == ML_reduce || l->kind == ML_scan) {
      g.reduces = true;
      g.keep = l->nouter;
      ops += mg_ex_count_ops(e->x, l->body);
    } else {
      ops += mg_ex_count_ops(e->x, l->value); /* copied with the reductions beside it */
    }
    if (l->vec != MG_NO_VEC && l->vec >= shared) g.vec = l->vec;
    scans |= l->kind == ML_scan && !is_arg(l);
    if (l->kind == ML_scatter || is_arg(l) || e->apart) ops += 100; /* no unrolling */
  }
  if (!g.reduces) g.keep = g.end;
  g.wide = g.vec >= 0 && g.vec < g.keep && is_wide(e, loop, n, g.vec);
  if (g.reduces) g.unroll = ops * (uint32_t)n <= 2 ? 8 : ops * (uint32_t)n <= 8 ? 4 : ops <= 16 ? 2 : 1;
  if (scans && g.unroll > 4) g.unroll = 4;
  int64_t points; /* accumulators that take few of them each cost more to add up than they gain */
  if (g.reduces && mg_ex_const_int(e->x, g.range[g.end - 1], &points)) {
    points /= g.vec == g.end - 1 ? e->t->vector_bits / 32 : 1;
    while (g.unroll > 1 && g.unroll * 2 > points) g.unroll /= 2;
  }
  while (g.unroll > 1 && g.unroll * n > 48) g.unroll /= 2;
  for (int k = 0; k < MG_MAX_IDX; k++)
    mg_ex_set_idx_range(e->x, k, k < g.end ? (k < shared ? loop[0]->range[k] : g.range[k]) : 0);
  look_at_accesses(e, &g);
  int64_t tile;
  bool tiled = !g.reduces && g.vec >= 0 && g.vec == g.end - 2 &&
               mg_ex_const_int(e->x, g.range[g.end - 1], &tile) && tile == e->t->vector_bits / 32;
  e->tile = tiled ? g.end - 1 : -1;
  bool saved = e->red_vec;
  e->red_vec = e->lanes > 1 || (g.vec >= 0 && g.vec < g.keep && g.reduces);
  emit_dims(e, &g, shared);
  e->red_vec = saved;
  e->tile = -1;
}

static void emit_groups(Em *e, EmGroup *outer, int dim, int u, const EmStage *st) {
  const MgKernel *k = e->k;
  int shared = k->nshared;
  e->base_level = e->depth;
  for (uint32_t i = 0, j; i < k->nloop && !e->rc; i = j) {
    for (j = i + 1; j < k->nloop && k->loop[j]->phase == k->loop[i]->phase; j++) continue;
    MgLoop *group[64];
    for (uint32_t m = i; m < j && m - i < 64; m++) group[m - i] = &e->own[m];
    emit_group(e, group, (int)(j - i), shared);
  }
  (void)outer, (void)dim, (void)u, (void)st;
}

/* ---- the kernel ---- */

static ExprRef rename_red(MgExprs *x, ExprRef r, const ExprRef *s, void *arg) {
  const MgExpr *e = mg_expr(x, r);
  return e->op == OP_red ? mg_ex_red_of(x, e->ty, *(int *)arg) : mg_ex_rebuild(x, r, s);
}

/* Own copies of the nests: rows the target has, reduced values told apart by nest. */
static MgRc prepare(Em *e) {
  const MgKernel *k = e->k;
  e->own = mg_new(e->c, MgLoop, k->nloop);
  e->redval = mg_new(e->c, EmRef, k->nloop);
  TRYP(e->own && e->redval);
  em_choose_functions(e);
  for (uint32_t i = 0; i < k->nbuf; i++) e->buf_arg[k->buf[i]] = (int)i + 1;
  for (uint32_t i = 0; i < k->nloop; i++) {
    MgLoop *l = &e->own[i];
    *l = *k->loop[i];
    int n = (int)i, all = all_ranges(l);
    ExprRef *part[4] = {&l->body, &l->value, &l->index, &l->mask};
    for (int j = 0; j < MG_MAX_IDX; j++) mg_ex_set_idx_range(e->x, j, j < all ? l->range[j] : 0);
    if (l->body && (l->red_op == RED_any || l->red_op == RED_all)) l->body = mg_ex_cvt(e->x, TY_i1, l->body);
    for (int j = 0; j < 4; j++) {
      MgRc rc = MG_OK;
      if (!*part[j]) continue;
      if (j == 1) *part[j] = mg_ex_map(e->x, *part[j], rename_red, &n);
      if (*part[j]) *part[j] = mg_ex_legalize_for(e->x, *part[j], e->apart, &rc);
      TRY(rc);
      TRY(mg_exprs_ok(e->x));
    }
    e->written[l->buf] = 1;
  }
  return e->apart ? em_find_repeats(e) : MG_OK;
}

static void emit_entry(Em *e) {
  MgStrbuf *b = em_at(e, 0);
  const MgKernel *k = e->k;
  mg_sb_puts(b, "L0:\n  %scratch = alloca i64, align 8\n");
  for (uint32_t i = 0; i < k->nbuf; i++)
    mg_sb_printf(b,
                 "  %%q%u = getelementptr ptr, ptr %%buf, i64 %u\n  %%p%u = load ptr, ptr %%q%u, align 8\n",
                 i, i, i, i);
  int nlocal = 0;
  for (uint32_t i = 0; i < k->nloop; i++) {
    BufRef at = k->loop[i]->buf;
    const MgBuf *m = &e->s->buf[at];
    if (e->buf_arg[at] || m->kind != MB_local || mg_sym_is(e->x, m->nelem, 0)) continue;
    EmRef n = em_value(e, m->nelem, 1);
    e->buf_arg[at] = -++nlocal;
    mg_sb_printf(b, "  %%lb%d = alloca %s, i64 ", nlocal, em_mem(mg_dtype_ty(m->dtype)));
    em_put(e, b, n, TY_i64);
    mg_sb_puts(b, ", align 64\n");
  }
}

/* iv divided by the size n, or the remainder. */
static EmRef outer_divide(Em *e, const char *op, EmRef iv, EmRef n) {
  EmRef r = em_new(e, iv.level > n.level ? iv.level : n.level, 1);
  int64_t points;
  MgStrbuf *b = em_at(e, r.level);
  mg_sb_printf(b, "  %%v%d = %s i64 ", r.id, op);
  em_put(e, b, iv, TY_i64);
  mg_sb_puts(b, ", ");
  if (mg_ex_const_int(e->x, e->k->outer, &points) && points >> 32 == 0) em_put_size(e, b, n);
  else em_put(e, b, n, TY_i64);
  mg_sb_putc(b, '\n');
  return r;
}

/* Binds the shared indices of point `iv` of the product of the shared ranges. */
static void bind_shared(Em *e, EmRef iv) {
  for (int k = e->k->nshared - 1; k >= 0; k--) {
    if (k == 0) {
      e->idx[k] = iv;
      return;
    }
    EmRef n = em_value(e, e->own[0].range[k], 1);
    e->idx[k] = outer_divide(e, "urem", iv, n);
    iv = outer_divide(e, "udiv", iv, n);
  }
}

static void rows_body(Em *e, EmGroup *g, int dim, int u, const EmStage *st) {
  bind_shared(e, e->idx[dim]);
  emit_groups(e, g, dim, u, st);
}

/* ---- rows side by side ---- */

enum { BESIDE_ROWS = 4, BESIDE_UNROLL = 2 };

/* Is it a load that all rows share? */
static bool beside_shares(const MgExprs *x, ExprRef r, void *arg) {
  const MgExpr *n = mg_expr(x, r);
  (void)arg;
  return n->op == OP_load && !mg_ex_uses_idx(x, n->src[0], 0) && mg_ex_uses_idx(x, n->src[0], 1);
}

/* A sum over each row of a matrix and what is done with it, as a row vector times a matrix has it.
 * What all rows read, the vector, leaves the first cache if it is long: several rows share one read of it. */
static bool is_beside(Em *e) {
  MgLoop *l = &e->own[0];
  int64_t points;
  if (e->k->nshared != 1 || e->apart || !adds_floats(e, l) || em_acc_ty(e, l) != TY_f32) return false;
  if (l->nouter != 1 || l->nred != 1 || l->vec != 1 || mg_ex_count_ops(e->x, l->body) > 4) return false;
  if (!mg_ex_const_int(e->x, l->range[1], &points) || points < MG_TUNE_BESIDE_POINTS) return false;
  if (!mg_ex_any(e->x, l->body, beside_shares, NULL)) return false;
  for (uint32_t i = 1; i < e->k->nloop; i++)
    if (e->own[i].kind != ML_point || all_ranges(&e->own[i]) != 1) return false;
  for (int j = 0; j < MG_MAX_IDX; j++) mg_ex_set_idx_range(e->x, j, j < 2 ? l->range[j] : 0);
  return em_contiguous_only(e, l, 1, true);
}

/* Rows [begin, end), as many at a time as are read side by side.  Returns where the rest begins. */
static EmRef emit_beside(Em *e, EmRef begin, EmRef end) {
  MgLoop *l = &e->own[0];
  EmGroup g = {.loop = &l,
               .n = 1,
               .first = 1,
               .end = 2,
               .keep = 1,
               .range = l->range,
               .vec = 1,
               .reduces = true,
               .masked_ok = em_maskable(e, l, 1),
               .unroll = BESIDE_UNROLL,
               .side = BESIDE_ROWS};
  bool live[EMIT_MAX_ACC] = {false};
  EmEntry in;
  int nacc = e->nacc;
  EmRef stop = em_whole_part(e, begin, end, BESIDE_ROWS);
  em_loop_open(e, 0, begin, stop, BESIDE_ROWS, EM_RUN_loop, true, live);
  if (e->rc) return end;
  em_loop_enter(e, EM_RUN_loop, &in);
  e->base_level = e->depth;
  start_accs(e, &g);
  run_dims(e, &g, 1);
  EmRef row = e->idx[0];
  for (int r = 0; r < BESIDE_ROWS && !e->rc; r++) {
    em_go_to(e, 0, row, r);
    finish_acc(e, &g, 0, r);
    for (uint32_t i = 0; i < e->k->nloop && !e->rc; i++) em_store(e, &e->own[i], e->own[i].value);
  }
  e->idx[0] = row;
  e->nacc = nacc;
  em_loop_close(e, EM_RUN_loop, &in);
  return stop;
}

static void emit_outer(Em *e) {
  const MgKernel *k = e->k;
  EmGroup g = {.first = 0, .end = 2, .keep = 2, .vec = -1, .unroll = 1, .masked_ok = true};
  if (k->nshared == 0) {
    emit_groups(e, &g, 0, 0, NULL);
    return;
  }
  EmRef begin = em_new(e, 0, 1), end = em_new(e, 0, 1);
  mg_sb_printf(em_at(e, 0), "  %%v%d = add i64 %%begin, 0\n  %%v%d = add i64 %%end, 0\n", begin.id, end.id);
  for (uint32_t i = 0; i < k->nloop; i++)
    if (k->nshared == 1 && e->own[i].vec == 0) g.vec = 0;
  if (g.vec == 0) {
    for (int j = 0; j < MG_MAX_IDX; j++) mg_ex_set_idx_range(e->x, j, j ? 0 : e->own[0].range[0]);
    for (uint32_t i = 0; i < k->nloop; i++)
      g.masked_ok =
          g.masked_ok && em_maskable(e, &e->own[i], 0) && em_contiguous_only(e, &e->own[i], 0, true);
    MgLoop *all[EMIT_WIDE_LOOPS];
    for (uint32_t i = 0; i < k->nloop && i < EMIT_WIDE_LOOPS; i++) all[i] = &e->own[i];
    g.wide = k->nloop <= e->wide_loops && is_wide(e, all, (int)k->nloop, 0);
  }
  if (em_is_streamed(e, &g)) {
    em_streamed(e, &g, begin, end);
    return;
  }
  EmWalk w = {.e = e, .g = &g, .dim = 0, .body = rows_body};
  if (is_beside(e)) begin = emit_beside(e, begin, end);
  em_run_range(&w, begin, end, true);
}

static void end(Em *e) {
  for (uint32_t i = 0; i < e->k->nbuf; i++) e->buf_arg[e->k->buf[i]] = 0;
  for (uint32_t i = 0; i < e->k->nloop; i++) {
    e->buf_arg[e->k->loop[i]->buf] = 0;
    e->written[e->k->loop[i]->buf] = 0;
  }
}

MgRc mg_emitter_new(MgSched *s, const MgTarget *t, MgEmitter **out) {
  Em *e = *out = mg_new(s->c, Em, 1);
  TRYP(e);
  e->s = s;
  e->x = s->x;
  e->c = s->c;
  e->t = t;
  for (int i = 0; i < EMIT_MAX_SCOPE; i++) e->scope[i].idx = -1;
  e->buf_arg = mg_new(e->c, int, s->nbuf + 1);
  e->written = mg_new(e->c, uint8_t, s->nbuf + 1);
  return e->buf_arg && e->written ? MG_OK : MG_NOMEM;
}

void mg_emitter_free(MgEmitter *e) {
  for (int i = 0; e && i < EMIT_MAX_SCOPE; i++) mg_sb_free(&e->scope[i].buf);
}

MgRc mg_emit_llvm(MgEmitter *e, const MgKernel *k, MgStrbuf *out) {
  em_begin(e, k);
  MgRc rc = prepare(e);
  if (rc == MG_OK) {
    emit_entry(e);
    emit_outer(e);
    rc = e->rc;
    MG_ASSERT(rc != MG_OK || !e->depth, "a loop of the kernel was not closed");
  }
  end(e);
  if (rc == MG_OK) rc = mg_exprs_ok(e->x);
  for (int i = 0; i < EMIT_MAX_SCOPE && rc == MG_OK; i++)
    if (!mg_sb_ok(&e->scope[i].buf)) rc = MG_NOMEM; /* what is missing inside of a loop would not be missed */
  TRY(rc);
  mg_sb_printf(out, "define void @%s(ptr %%buf, ptr %%size, i64 %%begin, i64 %%end) nounwind {\n", k->name);
  mg_sb_puts(out, mg_sb_text(&e->scope[0].buf));
  mg_sb_puts(out, "  ret void\n}\n");
  TRY(em_functions(e, out));
  return mg_sb_ok(out) ? MG_OK : MG_NOMEM;
}
