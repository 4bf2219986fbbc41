/* Pointwise kernels whose loads run along another index than their stores.
 * A block has PX_TILE x PX_TILE points of idx(cross) and idx(last).  First its threads read what runs along
 * idx(cross), neighbours side by side, into shared memory; then they compute the points
 * with neighbours along idx(last).
 * In: bound indices, but for these two, of which the tile's first points are in
 * Px.idx.  Out: the kernel's body. */
#include "ptx/ptx_priv.h"

typedef struct Tile {
  Px *e;
  ExprRef load[8]; /* loads that are turned */
  int n;
  uint32_t from, to; /* nests */
  int cross, last;   /* registers: the tile's first points */
  int tx, ty;        /* the thread's place in it */
} Tile;

/* idx(k) = first + by + plus, and a predicate that tells whether it is in the range. */
static int tile_bind(Tile *t, int k, int first, int by, int plus) {
  Px *e = t->e;
  MgTy ty = e->g->narrow ? TY_i32 : TY_i64;
  int i = px_reg(e, ty), p = px_reg(e, TY_i1), end = px_size(e, e->own[t->from].range[k]);
  if (e->g->narrow) {
    PUT("  add.s32 %%r%d, %%r%d, %%r%d;\n  add.s32 %%r%d, %%r%d, %d;\n", i, first, by, i, i, plus);
    PUT("  setp.lt.s32 %%p%d, %%r%d, %%r%d;\n", p, i, end);
  } else {
    PUT("  cvt.u64.u32 %%rd%d, %%r%d;\n  add.s64 %%rd%d, %%rd%d, %%rd%d;\n  add.s64 %%rd%d, %%rd%d, %d;\n", i,
        by, i, i, first, i, i, plus);
    PUT("  setp.lt.s64 %%p%d, %%rd%d, %%rd%d;\n", p, i, end);
  }
  e->idx[k] = i;
  return p;
}

static bool tile_see(const MgExprs *x, ExprRef r, void *arg) {
  Tile *t = arg;
  const MgExpr *n = mg_expr(x, r);
  if (n->op != OP_load || n->src[1] || t->e->stored[n->u.i] || t->e->s->buf[n->u.i].device == DEV_cpu ||
      t->n == 8)
    return false;
  for (int i = 0; i < t->n; i++)
    if (t->load[i] == r) return false;
  t->load[t->n++] = r;
  return false;
}

/* Does it run along idx(cross), and jump along the last one? */
static bool tile_crosses(Px *e, ExprRef r) {
  ExprRef coef, rest, index = mg_expr(e->x, r)->src[0];
  int64_t step;
  if (!mg_ex_linear(e->x, index, e->g->cross, &coef, &rest) || !mg_sym_is(e->x, coef, 1)) return false;
  if (!mg_ex_linear(e->x, index, e->g->nouter - 1, &coef, &rest)) return false;
  return !mg_ex_const_int(e->x, coef, &step) || step > 1 || step < 0;
}

static MgTy tile_mem(const Px *e, ExprRef r) {
  return mg_expr(e->x, r)->ty == TY_i1 ? TY_u8 : mg_expr(e->x, r)->ty;
}

/* The address in shared memory of (row, column) of tile n; the rows are one element longer, so that columns
 * do not meet in one bank. */
static int tile_place(Px *e, int n, int row, int plus, int column, int bytes) {
  int base = px_reg(e, TY_u32), at = px_reg(e, TY_u32);
  PUT("  mov.u32 %%r%d, tile;\n  mad.lo.u32 %%r%d, %%r%d, %d, %%r%d;\n", base, at, row, (PX_TILE + 1) * bytes,
      base);
  PUT("  mad.lo.u32 %%r%d, %%r%d, %d, %%r%d;\n  add.u32 %%r%d, %%r%d, %d;\n", at, column, bytes, at, at, at,
      n * PX_TILE * (PX_TILE + 1) * 8 + plus * (PX_TILE + 1) * bytes);
  return at;
}

static void tile_read(Tile *t) {
  Px *e = t->e;
  int last = e->g->nouter - 1;
  for (int r = 0; r < PX_TILE; r += PX_TILE_ROWS) {
    e->at.piece =
        (uint32_t)(r / PX_TILE_ROWS) + 1 + PX_PIECES; /* other points than those of the second half */
    int p = tile_bind(t, e->g->cross, t->cross, t->tx, 0);
    e->at.guard = px_and(e, p, tile_bind(t, last, t->last, t->ty, r));
    for (int i = 0; i < t->n && !px_stop(e); i++) {
      const MgExpr n = *mg_expr(e->x, t->load[i]);
      MgTy mem = tile_mem(e, t->load[i]);
      int v = px_reg(e, mem), a = px_address(e, (BufRef)n.u.i, mem, n.src[0]),
          bytes = mg_ty_size(mem) < 4 ? 4 : mg_ty_size(mem);
      px_clear(e, mem, v, 1, e->at.guard);
      PUT("  @%%p%d ld.global.%s ", e->at.guard, px_mem_ty(mem));
      px_put(e, mem, v);
      PUT(", [%%rd%d];\n", a);
      int to = tile_place(e, i, t->ty, r, t->tx, bytes);
      PUT("  st.shared.%s [%%r%d], ", px_mem_ty(mem), to);
      px_put(e, mem, v);
      PUT(";\n");
    }
  }
}

static void tile_write(Tile *t) {
  Px *e = t->e;
  int last = e->g->nouter - 1;
  for (int r = 0; r < PX_TILE; r += PX_TILE_ROWS) {
    e->at.piece = (uint32_t)(r / PX_TILE_ROWS) + 1;
    int p = tile_bind(t, last, t->last, t->tx, 0);
    e->at.guard = px_and(e, p, tile_bind(t, e->g->cross, t->cross, t->ty, r));
    for (int i = 0; i < t->n && !px_stop(e); i++) {
      MgTy mem = tile_mem(e, t->load[i]);
      int v = px_reg(e, mem), bytes = mg_ty_size(mem) < 4 ? 4 : mg_ty_size(mem),
          from = tile_place(e, i, t->tx, 0, t->ty, bytes);
      PUT("  ld.shared.%s ", px_mem_ty(mem));
      px_put(e, mem, v);
      PUT(", [%%r%d+%d];\n", from, r * bytes);
      if (mg_expr(e->x, t->load[i])->ty == TY_i1) v = px_convert(e, TY_i1, TY_u8, v);
      px_know(e, t->load[i], v);
    }
    for (uint32_t i = t->from; i < t->to && !px_stop(e); i++) px_store(e, &e->own[i], e->own[i].value, 1);
  }
}

void px_tiles(Px *e, uint32_t from, uint32_t to) {
  int cross = e->idx[e->g->cross], last = e->idx[e->g->nouter - 1];
  Tile t = {.e = e, .from = from, .to = to, .cross = cross, .last = last};
  int tid = px_reg(e, TY_u32), n = 0;
  for (uint32_t i = from; i < to; i++)
    if (e->own[i].value) mg_ex_any(e->x, e->own[i].value, tile_see, &t);
  for (int i = 0; i < t.n; i++)
    if (tile_crosses(e, t.load[i])) t.load[n++] = t.load[i];
  t.n = n;
  if (n > e->ntile) e->ntile = n;
  PUT("  mov.u32 %%r%d, %%tid.x;\n", tid);
  t.tx = px_op32(e, "and.b32", tid, PX_TILE - 1);
  t.ty = px_op32(e, "shr.u32", tid, 5);
  e->at.together = false;
  tile_read(&t);
  PUT("  bar.sync 0;\n");
  tile_write(&t);
  e->idx[e->g->cross] = cross, e->idx[e->g->nouter - 1] = last;
}
