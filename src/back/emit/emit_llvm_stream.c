/* Column reductions of matrices that no cache holds.
 * In: a kernel that is one sum, or another reduction, over the rows of a matrix.  Out: a block of columns at
 * a time, some rows of it side by side, so that memory is read in long pieces; the accumulators of the block
 * are on the stack. A column has two: one of all rows, and one of the rows at hand, which is added to it
 * every so many rows. */
#include "back/emit/emit_llvm_priv.h"
#include "tuning.h"

enum {
  STREAM_BLOCK = 2,
  STREAM_PART = 3
}; /* loop indices of blocks of columns, of rows; 0: column, 1: row */
enum { STREAM_ALL, STREAM_ROWS }; /* the two accumulators */

bool em_is_streamed(Em *e, const EmGroup *g) {
  const MgLoop *l = &e->own[0];
  if (e->k->nloop != 1 || !g->wide || l->kind != ML_reduce || l->nouter != 1 || l->nred != 1) return false;
  int64_t rows = mg_sym_hint(e->x, l->range[1]), columns = mg_sym_hint(e->x, l->range[0]);
  return rows >= 2 * MG_TUNE_STREAM_ROWS && columns >= MG_TUNE_STREAM_LEAST &&
         rows * columns >= MG_TUNE_STREAM_POINTS;
}

/* Accumulators of the columns at hand, in memory. */
static EmRef stream_at(Em *e, int which) {
  MgTy ty = em_acc_ty(e, &e->own[0]);
  EmRef at = em_arith(e, "sub $t $a, $b", OP_sub, e->idx[0], e->idx[STREAM_BLOCK]);
  if (which) at = em_arith(e, "add $t $a, $b", OP_add, at, em_int(e, MG_TUNE_STREAM_COLUMNS));
  EmRef p = em_new(e, e->depth, 1);
  mg_sb_printf(em_at(e, e->depth), "  %%v%d = getelementptr %s, ptr %%stream, i64 ", p.id, em_ty(ty));
  em_put(e, em_at(e, e->depth), at, TY_i64);
  mg_sb_putc(em_at(e, e->depth), '\n');
  return p;
}

static EmRef stream_load(Em *e, EmRef p) {
  MgTy ty = em_acc_ty(e, &e->own[0]);
  EmRef v = em_new(e, e->depth, e->lanes);
  MgStrbuf *b = em_at(e, e->depth);
  mg_sb_printf(b, "  %%v%d = load ", v.id);
  em_put_ty(b, em_ty(ty), e->lanes);
  mg_sb_printf(b, ", ptr %%v%d, align %d\n", p.id, mg_ty_size(ty));
  return v;
}

static void stream_store(Em *e, EmRef p, EmRef v) {
  MgTy ty = em_acc_ty(e, &e->own[0]);
  MgStrbuf *b = em_at(e, e->depth);
  mg_sb_puts(b, "  store ");
  em_put_ty(b, em_ty(ty), e->lanes);
  mg_sb_putc(b, ' ');
  em_put(e, b, v, ty);
  mg_sb_printf(b, ", ptr %%v%d, align %d\n", p.id, mg_ty_size(ty));
}

static void stream_set(Em *e, int which) {
  stream_store(e, stream_at(e, which), em_acc_start(e, e->own[0].red_op, em_acc_ty(e, &e->own[0]), e->lanes));
}

static void stream_start(Em *e, EmGroup *g, int dim, int u, const EmStage *st) { stream_set(e, STREAM_ALL); }

static void stream_start_rows(Em *e, EmGroup *g, int dim, int u, const EmStage *st) {
  stream_set(e, STREAM_ROWS);
}

/* Adds to an accumulator. */
static void stream_add(Em *e, int which, EmRef v) {
  const MgLoop *l = &e->own[0];
  EmRef p = stream_at(e, which);
  stream_store(e, p, em_combine(e, l->red_op, em_acc_ty(e, l), e->lanes, stream_load(e, p), v));
}

static void stream_add_rows(Em *e, EmGroup *g, int dim, int u, const EmStage *st) {
  stream_add(e, STREAM_ALL, stream_load(e, stream_at(e, STREAM_ROWS)));
}

/* Some rows of the columns at hand, added up as a tree. */
static void stream_rows(Em *e, EmGroup *g, int dim, int u, const EmStage *st) {
  MgLoop *l = &e->own[0];
  EmRef v[MG_TUNE_STREAM_ROWS], row = e->idx[1];
  int n = e->scope[row.level].step;
  for (int i = 0; i < n && !e->rc; i++) {
    if (i) em_go_to(e, 1, row, i);
    v[i] = em_value(e, l->body, e->lanes);
  }
  for (int half = n / 2; half && !e->rc; half /= 2)
    for (int i = 0; i < half; i++)
      v[i] = em_combine(e, l->red_op, em_acc_ty(e, l), e->lanes, v[i], v[i + half]);
  if (e->rc) return;
  stream_add(e, STREAM_ROWS, v[0]);
  em_go_to(e, 1, row, 0);
}

static void stream_finish(Em *e, EmGroup *g, int dim, int u, const EmStage *st) {
  e->redval[0] = stream_load(e, stream_at(e, STREAM_ALL));
  em_store(e, &e->own[0], e->own[0].value);
}

static const bool stream_none[EMIT_MAX_ACC]; /* no accumulator is carried by a loop */

/* The columns [lo, hi) of the rows of one part. */
static void stream_part(EmWalk *w, EmRef lo, EmRef hi, EmRef rows) {
  Em *e = w->e;
  EmRef row = e->idx[STREAM_PART];
  EmRef next = em_arith(e, "add $t $a, $b", OP_add, row, em_int(e, MG_TUNE_SUM_BLOCK * MG_TUNE_STREAM_ROWS));
  rows = em_arith(e, "$0 = icmp slt $t $a, $b\n$d = select i1 $0, $t $a, $t $b", OP_min, next, rows);
  w->body = stream_start_rows;
  em_run_range(w, lo, hi, false);
  w->body = stream_rows;
  for (int step = MG_TUNE_STREAM_ROWS; step && !e->rc; step = step > 1 ? 1 : 0) {
    EmEntry in;
    EmRef stop = em_whole_part(e, row, rows, step);
    em_loop_open(e, 1, row, stop, step, EM_RUN_loop, true, stream_none);
    if (e->rc) return;
    em_loop_enter(e, EM_RUN_loop, &in);
    em_run_range(w, lo, hi, false);
    em_loop_close(e, EM_RUN_loop, &in);
    row = stop;
  }
  w->body = stream_add_rows;
  em_run_range(w, lo, hi, false);
}

void em_streamed(Em *e, EmGroup *g, EmRef begin, EmRef end) {
  const MgLoop *l = &e->own[0];
  EmEntry in;
  mg_sb_printf(em_at(e, 0), "  %%stream = alloca %s, i64 %d, align 64\n", em_ty(em_acc_ty(e, l)),
               2 * MG_TUNE_STREAM_COLUMNS);
  for (int k = 0; k < MG_MAX_IDX; k++) mg_ex_set_idx_range(e->x, k, k < 2 ? l->range[k] : 0);
  e->red_vec = true;
  g->wide = false;
  em_loop_open(e, STREAM_BLOCK, begin, end, MG_TUNE_STREAM_COLUMNS, EM_RUN_loop, true, stream_none);
  if (e->rc) return;
  em_loop_enter(e, EM_RUN_loop, &in);
  e->base_level = e->depth;
  EmRef lo = e->idx[STREAM_BLOCK];
  EmRef hi = em_arith(e, "$0 = icmp slt $t $a, $b\n$d = select i1 $0, $t $a, $t $b", OP_min,
                      em_arith(e, "add $t $a, $b", OP_add, lo, em_int(e, MG_TUNE_STREAM_COLUMNS)), end);
  EmWalk w = {.e = e, .g = g, .dim = 0, .body = stream_start};
  em_run_range(&w, lo, hi, false);
  EmEntry part_in;
  EmRef rows = em_value(e, l->range[1], 1);
  em_loop_open(e, STREAM_PART, em_int(e, 0), rows, MG_TUNE_SUM_BLOCK * MG_TUNE_STREAM_ROWS, EM_RUN_loop, true,
               stream_none);
  if (e->rc) return;
  em_loop_enter(e, EM_RUN_loop, &part_in);
  stream_part(&w, lo, hi, rows);
  em_loop_close(e, EM_RUN_loop, &part_in);
  w.body = stream_finish;
  em_run_range(&w, lo, hi, false);
  em_loop_close(e, EM_RUN_loop, &in);
  e->red_vec = false;
}
