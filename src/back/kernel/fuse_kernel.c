/* Finishes a grown kernel.
 * In: nests with aligned ranges and phases.  Out: an MgKernel: nests in order of phases, vector index,
 * parallel ranges,
 * temporaries that no one else reads kept in registers or in row buffers on the stack. */
#include "back/kernel/fuse_priv.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tuning.h"

/* ---- vector index ---- */

/* How well nest n runs with idx(d) in lanes: + for contiguous and uniform accesses, - for scattered ones. */
static int score(const FuKernel *k, const FuNest *n, int d) {
  MgExprs *x = k->s->x;
  int points = 0;
  int64_t stride;
  if (fu_all(n->l) <= d) return 0;
  for (uint32_t i = 0; i <= n->nload; i++) {
    ExprRef index = i == n->nload ? n->l->index : n->load[i].index, coef, rest;
    if (!mg_ex_uses_idx(x, index, d)) continue;
    bool unit = mg_ex_linear(x, index, d, &coef, &rest) && mg_ex_const_int(x, coef, &stride) && stride == 1;
    points += unit ? 2 : -3;
  }
  return points;
}

/* Each nest counts by its work: what is done once a row says little about the rows. */
static double total_score(const FuKernel *k, int d) {
  double t = 0;
  for (uint32_t i = 0; i < k->n; i++)
    t += score(k, &k->nest[i], d) * (double)fu_hint(k->s->x, k->range, 0, fu_all(k->nest[i].l));
  return t;
}

/* The better of the two indices that can go in lanes. */
static int likely_vector(const FuKernel *k) {
  int last = k->nrange - 1, row = k->shared - 1;
  bool wide = row >= 0 && row < last && mg_sym_hint(k->s->x, k->range[row]) >= MG_TUNE_LANES;
  return wide && total_score(k, row) > total_score(k, last) ? row : last;
}

static bool has_good_vector(const FuKernel *k, const FuNest *n, const SymRef *range) {
  for (int d = 0; d < fu_all(n->l); d++)
    if (mg_sym_hint(k->s->x, range[d]) >= MG_TUNE_LANES && score(k, n, d) > 0) return true;
  return false;
}

bool fu_spoils_vectors(const FuKernel *k, const FuKernel *t, const FuNest *b) {
  int vec = -1;
  for (uint32_t i = 0; i < t->n; i++) {
    const FuNest *was = i + 1 < t->n ? &k->nest[i] : b;
    if (was->l->kind != ML_reduce) continue;
    if (vec < 0) vec = likely_vector(t);
    if (score(t, &t->nest[i], vec) < 0 && has_good_vector(k, was, was->l->range)) return true;
  }
  return false;
}

/* Points of a scatter along which its stores are contiguous cannot collide: they go in lanes.
 * The others keep their order. */
static void choose_scatter_vector(FuKernel *k) {
  MgExprs *x = k->s->x;
  MgLoop *l = k->nest[0].l;
  int last = fu_all(l) - 1;
  ExprRef coef, rest;
  if (l->kind != ML_scatter || last < k->shared) return;
  fu_set_ranges(x, l->range, fu_all(l));
  if (mg_ex_linear(x, l->index, last, &coef, &rest) && mg_sym_is(x, coef, 1) &&
      mg_sym_hint(x, l->range[last]) >= MG_TUNE_LANES)
    l->vec = (uint8_t)last;
}

/* May a vector of rows be accessed element by element?  Rows that lie multiples of a large power of two apart
 * share their places in the first cache. */
static bool rows_apart(const FuKernel *k, ExprRef index) {
  enum {
    PERIOD = 4096 / 4,
    ROWS = 8
  }; /* elements of a way of that cache; rows that are looked at side by side */
  ExprRef coef, rest;
  int64_t step;
  if (!mg_ex_linear(k->s->x, index, k->shared - 1, &coef, &rest) || !mg_ex_const_int(k->s->x, coef, &step))
    return false;
  return step * ROWS / 2 % PERIOD != 0;
}

/* A running sum or product over each row: one number waits for the last one, so rows go side by side. */
static bool scans_rows(const FuKernel *k) {
  const FuNest *n = &k->nest[0];
  if (k->n != 1 || n->l->kind != ML_scan || mg_red_is_arg(n->l->red_op) || k->shared < 1) return false;
  if (fu_on_gpu(k->s, n->l) || !rows_apart(k, n->l->index)) return false;
  for (uint32_t i = 0; i < n->nload; i++)
    if (!rows_apart(k, n->load[i].index)) return false;
  return true;
}

/* Chooses the vector index; may give up the last shared range so that it can be an inner loop. */
static void choose_vector(FuKernel *k) {
  MgExprs *x = k->s->x;
  int last = k->nrange - 1, vec = -1;
  if (k->alone) choose_scatter_vector(k);
  if (k->alone || k->nrange == 0) return;
  fu_set_ranges(x, k->range, k->nrange);
  bool gpu = fu_on_gpu(k->s, k->nest[0].l), points = true, scan = false;
  for (uint32_t i = 0; i < k->n; i++) {
    points &= k->nest[i].l->kind == ML_point;
    scan |= k->nest[i].l->kind == ML_scan;
  }
  int64_t length = 0, rows = k->shared > 0 ? mg_sym_hint(x, k->range[k->shared - 1]) : 0;
  bool few = k->shared <= last && mg_ex_const_int(x, k->range[last], &length) &&
             length < MG_TUNE_LANES; /* to fill a vector */
  bool window = gpu && fu_hint(x, k->range, k->shared, k->nrange) <= MG_TUNE_GPU_WINDOW; /* a thread has it */
  bool wide = rows >= MG_TUNE_LANES || (few && rows >= 2 * length && rows >= MG_TUNE_LANES / 4),
       tiny = wide && few;
  double inner = scan || tiny ? -INFINITY : total_score(k, last);
  double outer = k->shared > 0 && k->shared <= last ? total_score(k, k->shared - 1) : -INFINITY;
  if (points && k->shared == k->nrange) vec = last;
  else if (window && k->shared > 0) vec = k->shared - 1;
  else if (outer > inner && (outer > 0 || tiny || scans_rows(k)) && wide) vec = k->shared - 1;
  else if (!scan && (inner > 0 || k->shared == 0)) vec = last;
  if (vec < 0) return;
  if (vec < k->shared && k->shared > 1 && !gpu) k->shared = vec; /* rows are the ranges before it */
  for (uint32_t i = 0; i < k->n; i++)
    if (fu_all(k->nest[i].l) > vec || vec < k->shared) k->nest[i].l->vec = (uint8_t)vec;
}

/* Few long rows of pointwise work are cut, so that threads have something to share. */
static MgRc cut_rows(FuKernel *k) {
  MgExprs *x = k->s->x;
  int64_t n, parts = 0;
  int last = k->nrange - 1;
  if (k->alone || k->nrange < 2 || k->nrange == MG_MAX_RANK ||
      fu_hint(x, k->range, 0, last) >= MG_TUNE_FEW_ROWS)
    return MG_OK;
  if (!mg_ex_const_int(x, k->range[last], &n) || n < MG_TUNE_LONG_ROW) return MG_OK;
  for (uint32_t i = 0; i < k->n; i++)
    if (k->nest[i].l->kind != ML_point || fu_all(k->nest[i].l) != k->nrange) return MG_OK;
  for (int64_t d = 64; d >= 2 && !parts; d--)
    if (n % d == 0 && n / d >= 512 && (n / d % MG_TUNE_LANES == 0 || n % MG_TUNE_LANES != 0)) parts = d;
  if (!parts) return MG_OK;
  k->range[last] = mg_sym(x, parts);
  k->range[last + 1] = mg_sym(x, n / parts);
  k->nrange++;
  k->shared = k->nrange;
  for (uint32_t i = 0; i < k->n; i++) {
    TRY(fu_split(k->s, k->nest[i].l, k->range, k->nrange));
    TRY(fu_nest_loads(k->s, &k->nest[i]));
  }
  return mg_exprs_ok(x);
}

/* ---- transposed accesses ---- */

/* The range that some load runs along with stride 1 while it jumps along the last one; -1: none. */
static int crossed_range(const FuKernel *k) {
  MgExprs *x = k->s->x;
  ExprRef coef, rest;
  int64_t far, unit;
  int last = k->nrange - 1;
  for (uint32_t i = 0; i < k->n; i++)
    for (uint32_t j = 0; j < k->nest[i].nload; j++) {
      ExprRef index = k->nest[i].load[j].index;
      if (!mg_ex_linear(x, index, last, &coef, &rest) || !mg_ex_const_int(x, coef, &far) ||
          far < MG_TUNE_LANES)
        continue;
      for (int d = 0; d < last; d++)
        if (mg_ex_linear(x, index, d, &coef, &rest) && mg_ex_const_int(x, coef, &unit) && unit == 1) return d;
    }
  return -1;
}

/* Points alone, in one set of loops that may become one more? */
static bool points_alone(const FuKernel *k) {
  if (k->alone || k->nrange < 2 || k->nrange == MG_MAX_RANK) return false;
  for (uint32_t i = 0; i < k->n; i++) {
    const MgLoop *l = k->nest[i].l;
    if (l->kind != ML_point || fu_all(l) != k->nrange || l->phase != k->nest[0].l->phase) return false;
  }
  return true;
}

/* Ranges in another order for all nests of a kernel of points. */
static MgRc reorder(FuKernel *k, const int *order) {
  for (uint32_t i = 0; i < k->n; i++) {
    TRY(fu_split(k->s, k->nest[i].l, k->range, k->nrange));
    TRY(fu_permute(k->s, k->nest[i].l, order, k->nrange));
    TRY(fu_nest_loads(k->s, &k->nest[i]));
  }
  memcpy(k->range, k->nest[0].l->range, sizeof *k->range * (size_t)k->nrange);
  return mg_exprs_ok(k->s->x);
}

/* Pointwise kernels with a transposed load: a piece of the crossed range becomes the innermost loop, inside
 * the vector loop, so that the cache lines which the lanes touch are used up while they are near. */
static MgRc tile_transposed(FuKernel *k) {
  MgExprs *x = k->s->x;
  int64_t n, tile = 0;
  int order[MG_MAX_RANK], last = k->nrange - 1;
  if (!points_alone(k)) return MG_OK;
  fu_set_ranges(x, k->range, k->nrange);
  int d = crossed_range(k);
  if (d < 0 || !mg_ex_const_int(x, k->range[d], &n)) return MG_OK;
  for (int64_t t = MG_TUNE_LANES; t >= 4 && !tile; t--)
    if (n % t == 0) tile = t;
  if (!tile) return MG_OK;
  for (int i = last; i > d; i--) k->range[i + 1] = k->range[i]; /* d becomes d and d + 1 */
  k->range[d] = mg_sym(x, n / tile);
  k->range[d + 1] = mg_sym(x, tile);
  k->nrange++;
  for (int i = 0; i < k->nrange; i++) order[i] = i <= d ? i : i + 1;
  order[k->nrange - 1] = d + 1;
  TRY(reorder(k, order));
  for (uint32_t i = 0; i < k->n; i++) k->nest[i].l->vec = (uint8_t)(k->nrange - 2);
  k->shared = k->nrange - 2;
  return MG_OK;
}

/* The short range, as of a filter's places, that some load runs along, which is also its step along the last
 * range; -1: none. */
static int short_crossed_range(const FuKernel *k, int64_t *n) {
  MgExprs *x = k->s->x;
  ExprRef coef, rest;
  int last = k->nrange - 1;
  for (uint32_t i = 0; i < k->n; i++)
    for (uint32_t j = 0; j < k->nest[i].nload; j++)
      for (int d = 0; d < last; d++) {
        ExprRef index = k->nest[i].load[j].index;
        if (mg_ex_const_int(x, k->range[d], n) && *n >= 2 && *n < MG_TUNE_GPU_CROSS &&
            mg_ex_linear(x, index, d, &coef, &rest) && mg_sym_is(x, coef, 1) &&
            mg_ex_linear(x, index, last, &coef, &rest) && mg_sym_is(x, coef, *n))
          return d;
      }
  return -1;
}

/* Pointwise kernels of a GPU that turn filters: the threads of a block take all places of some channels, so
 * that a sector of memory is read by one multiprocessor. */
static MgRc near_places(FuKernel *k) {
  MgExprs *x = k->s->x;
  int64_t n, places;
  int order[MG_MAX_RANK], last = k->nrange - 1;
  if (!points_alone(k)) return MG_OK;
  fu_set_ranges(x, k->range, k->nrange);
  int d = short_crossed_range(k, &places);
  if (d < 0 || !mg_ex_const_int(x, k->range[last], &n) || n % MG_TUNE_GPU_NEAR || n == MG_TUNE_GPU_NEAR)
    return mg_exprs_ok(x);
  k->range[last] = mg_sym(x, n / MG_TUNE_GPU_NEAR);
  k->range[last + 1] = mg_sym(x, MG_TUNE_GPU_NEAR);
  k->nrange++;
  for (int i = 0; i < k->nrange; i++) order[i] = i < d ? i : i < last ? i + 1 : i == last ? d : last + 1;
  TRY(reorder(k, order));
  k->shared = k->nrange;
  return MG_OK;
}

/* ---- temporaries ---- */

typedef struct Move { /* a buffer that becomes a row buffer: its loads get the index within the row */
  BufRef buf;
  const SymRef *range;
  int shared;
  int64_t lo;
} Move;

static ExprRef row_index(MgExprs *x, ExprRef index, const Move *m) {
  ExprRef inner = 0;
  int64_t lo, hi;
  if (!fu_row_part(x, index, m->range, m->shared, &inner, &lo, &hi)) return index;
  return mg_sym_sub(x, inner, mg_sym(x, m->lo));
}

static ExprRef move_load(MgExprs *x, ExprRef r, const ExprRef *s, void *arg) {
  const Move *m = arg;
  const MgExpr e = *mg_expr(x, r);
  if (e.op != OP_load || (BufRef)e.u.i != m->buf) return mg_ex_rebuild(x, r, s);
  return mg_ex_load(x, e.ty, m->buf, row_index(x, s[0], m), s[1], s[2]);
}

static MgRc move_to_row(FuKernel *k, BufRef b, int64_t lo, int64_t hi) {
  MgExprs *x = k->s->x;
  Move m = {b, k->range, k->shared, lo};
  for (uint32_t i = 0; i < k->n; i++) {
    MgLoop *l = k->nest[i].l;
    ExprRef *part[4] = {&l->body, &l->value, &l->index, &l->mask};
    for (int j = 0; j < 4; j++)
      if (*part[j]) *part[j] = mg_ex_map(x, *part[j], move_load, &m);
    if (l->buf == b) l->index = row_index(x, l->index, &m);
    TRY(mg_exprs_ok(x));
    TRY(fu_nest_loads(k->s, &k->nest[i]));
  }
  k->s->buf[b].kind = MB_local;
  k->s->buf[b].nelem = mg_sym(x, hi - lo + 1);
  return mg_exprs_ok(x);
}

/* Is every load of b, stored by nest w, of the value that w has just stored? */
static bool in_registers(const FuKernel *k, BufRef b, const FuNest *w) {
  bool row_level = w->l->kind == ML_reduce ? w->l->nouter == k->shared : fu_all(w->l) == k->shared;
  for (uint32_t i = 0; i < k->n; i++) {
    const FuNest *n = &k->nest[i];
    for (uint32_t j = 0; j < n->nload; j++) {
      if (n->load[j].buf != b) continue;
      bool same_loops = n->l->phase == w->l->phase && w->l->kind == ML_point;
      if (n->load[j].index != w->l->index || n->seq < w->seq || !(row_level || same_loops)) return false;
    }
  }
  return true;
}

/* Masked loads are not forwarded, so their buffer must be memory. */
static ExprRef find_masked(MgExprs *x, ExprRef r, const ExprRef *s, void *arg) {
  const MgExpr *e = mg_expr(x, r);
  uint64_t *p = arg;
  (void)s;
  if (e->op == OP_load && e->src[1] && (uint64_t)e->u.i == p[0]) p[1] = 1;
  return r;
}
static bool loaded_masked(const FuKernel *k, BufRef b) {
  uint64_t p[2] = {b, 0};
  for (uint32_t i = 0; i < k->n; i++) {
    const MgLoop *l = k->nest[i].l;
    const ExprRef part[4] = {l->body, l->value, l->index, l->mask};
    for (int j = 0; j < 4; j++)
      if (part[j]) mg_ex_map(k->s->x, part[j], find_masked, p);
  }
  return p[1];
}

static MgRc localize(FuKernel *k, BufRef b, const uint32_t *users) {
  const FuNest *w = NULL;
  MgExprs *x = k->s->x;
  uint32_t here = 0, writers = 0;
  int64_t lo = INT64_MAX, hi = INT64_MIN, alo, ahi;
  bool rows = true;
  for (uint32_t i = 0; i < k->n; i++) {
    const FuNest *n = &k->nest[i];
    bool loads = false;
    for (uint32_t j = 0; j <= n->nload; j++) {
      bool store = j == n->nload;
      if ((store ? n->l->buf : n->load[j].buf) != b) continue;
      ExprRef inner;
      if (store || !loads) here++;
      if (store) writers++, w = n;
      else loads = true;
      rows = rows &&
             fu_row_part(x, store ? n->l->index : n->load[j].index, k->range, k->shared, &inner, &alo, &ahi);
      if (rows && alo < lo) lo = alo;
      if (rows && ahi > hi) hi = ahi;
    }
  }
  if (here != users[b] || writers != 1 || !w) return MG_OK; /* someone else needs it in memory */
  if (in_registers(k, b, w) && !loaded_masked(k, b)) {
    k->s->buf[b].kind = MB_local;
    k->s->buf[b].nelem = mg_sym(x, 0);
    return MG_OK;
  }
  bool lanes_are_rows = w->l->vec != MG_NO_VEC && w->l->vec < k->shared;
  int bytes = mg_dtype_size((MgDtype)k->s->buf[b].dtype),
      most = fu_on_gpu(k->s, w->l) ? MG_TUNE_GPU_ROW_BYTES : MG_TUNE_ROW_BYTES;
  if (!rows || lanes_are_rows || k->shared == 0 || (hi - lo + 1) > most / bytes) return MG_OK;
  return move_to_row(k, b, lo, hi);
}

/* ---- values that several phases compute ---- */

typedef struct Shared { /* an expensive expression of a later phase, looked for in an earlier one */
  ExprRef e;
  ExprRef with; /* what replaces it */
  bool found;
} Shared;

static bool is_expensive(MgScalarOp op) {
  return mg_scalar_info[op].rule != SOR_LEAF &&
         (mg_scalar_info[op].flags & SOF_V || op == OP_pow || op == OP_erfc);
}

static ExprRef find_shared(MgExprs *x, ExprRef r, const ExprRef *s, void *arg) {
  Shared *q = arg;
  (void)x, (void)s;
  q->found |= r == q->e;
  return r;
}
static ExprRef replace_shared(MgExprs *x, ExprRef r, const ExprRef *s, void *arg) {
  const Shared *q = arg;
  return r == q->e ? q->with : mg_ex_rebuild(x, r, s);
}

typedef struct Costly { /* expensive nodes of one nest */
  ExprRef e[8];
  int n;
} Costly;
static ExprRef find_costly(MgExprs *x, ExprRef r, const ExprRef *s, void *arg) {
  Costly *c = arg;
  (void)s;
  if (is_expensive((MgScalarOp)mg_expr(x, r)->op) && c->n < 8) c->e[c->n++] = r;
  return r;
}

static ExprRef body_of(const MgLoop *l) { return l->kind == ML_point ? l->value : l->body; }

/* The first nest of an earlier phase over the same ranges that computes e, or NULL. */
static FuNest *computed_before(FuKernel *k, const FuNest *n, ExprRef e) {
  for (uint32_t i = 0; i < k->n; i++) {
    FuNest *a = &k->nest[i];
    Shared q = {.e = e};
    if (a->l->phase >= n->l->phase || fu_all(a->l) != fu_all(n->l) || a->l->kind == ML_scan) continue;
    mg_ex_map(k->s->x, body_of(a->l), find_shared, &q);
    if (q.found) return a;
  }
  return NULL;
}

/* Keeps e, computed by nest `a`, in a row buffer: a point nest of a's phase stores it, nest n loads it. */
static MgRc keep_value(FuKernel *k, const FuNest *a, uint32_t n, ExprRef e) {
  static const MgDtype dtype[] = {DT_bool, DT_i8,  DT_u8,  DT_i16,  DT_u16, DT_i32, DT_u32,
                                  DT_i64,  DT_u64, DT_f16, DT_bf16, DT_f32, DT_f64};
  MgSched *s = k->s;
  MgExprs *x = s->x;
  FuNest keep = {.seq = a->seq, .l = mg_new(s->c, MgLoop, 1)};
  SymRef size = mg_sym(x, 1);
  ExprRef at = mg_sym(x, 0);
  TRYP(keep.l);
  for (int d = k->shared; d < fu_all(a->l); d++) {
    at = mg_sym_add(x, mg_sym_mul(x, at, k->range[d]), mg_ex_idx(x, d));
    size = mg_sym_mul(x, size, k->range[d]);
  }
  BufRef b = mg_sched_buf(s, MB_local, dtype[mg_expr(x, e)->ty], size, "row");
  TRYP(b);
  s->buf[b].device = s->buf[a->l->buf].device;
  *keep.l = *a->l;
  keep.l->kind = ML_point;
  keep.l->nouter = (uint8_t)fu_all(a->l);
  keep.l->nred = 0;
  keep.l->body = keep.l->mask = 0;
  keep.l->value = e;
  keep.l->buf = b;
  keep.l->index = at;
  Shared q = {.e = e, .with = mg_ex_load(x, mg_expr(x, e)->ty, b, at, 0, 0)};
  MgLoop *l = k->nest[n].l;
  ExprRef *body = l->kind == ML_point ? &l->value : &l->body;
  *body = mg_ex_map(x, *body, replace_shared, &q);
  TRY(mg_exprs_ok(x));
  TRY(fu_nest_loads(s, &k->nest[n]));
  TRY(fu_nest_loads(s, &keep));
  FuNest *grown = mg_ctx_grow(s->c, k->nest, k->n * sizeof *grown, (k->n + 1) * sizeof *grown);
  TRYP(grown);
  k->nest = grown;
  k->cap = k->n + 1;
  k->nest[k->n++] = keep;
  return MG_OK;
}

/* Is a size at most n?  Of symbols that becomes a fact of the plan. */
static bool at_most(MgExprs *x, SymRef e, int64_t n) {
  int64_t lo, hi;
  if (!mg_ex_range(x, e, &lo, &hi) || lo > n) return false;
  if (hi <= n) return true;
  SymRef limit = mg_sym(x, n + 1);
  return x->ask && limit && x->ask->compare(x->ask->of, e, limit) < 0;
}

/* Expensive values that a later phase would compute again (softmax: the exponentials)
 * are kept in a row buffer. */
static MgRc keep_values(FuKernel *k) {
  MgExprs *x = k->s->x;
  uint32_t count = k->n;
  SymRef inner = mg_sym(x, 1);
  if (k->alone || k->nphase < 2 || k->shared == 0 ||
      fu_hint(x, k->range, k->shared, k->nrange) > MG_TUNE_ROW_BYTES / 4)
    return MG_OK;
  for (int d = k->shared; d < k->nrange; d++) inner = mg_sym_mul(x, inner, k->range[d]);
  for (uint32_t n = 0; n < count; n++) {
    MgLoop *l = k->nest[n].l;
    Costly c = {.n = 0};
    if (l->vec == MG_NO_VEC || l->vec < k->shared || l->kind == ML_scan || fu_all(l) <= k->shared) continue;
    mg_ex_map(x, body_of(l), find_costly, &c);
    for (int i = c.n - 1; i >= 0; i--) {
      FuNest *a = computed_before(k, &k->nest[n], c.e[i]);
      bool varies = mg_ex_idx_mask(x, c.e[i]) >> k->shared;
      if (a && varies && at_most(x, inner, MG_TUNE_ROW_BYTES / 4)) TRY(keep_value(k, a, n, c.e[i]));
    }
  }
  return mg_exprs_ok(x);
}

/* ---- arguments ---- */

static int by_phase(const void *a, const void *b) {
  const FuNest *p = a, *q = b;
  if (p->l->phase != q->l->phase) return p->l->phase < q->l->phase ? -1 : 1;
  return p->seq < q->seq ? -1 : p->seq > q->seq;
}

static MgRc add_buf(MgSched *s, MgKernel *k, uint32_t *cap, BufRef b) {
  if (s->buf[b].kind == MB_local) return MG_OK;
  for (uint32_t i = 0; i < k->nbuf; i++)
    if (k->buf[i] == b) return MG_OK;
  if (k->nbuf == *cap) {
    uint32_t c = *cap ? *cap * 2 : 8;
    k->buf = mg_ctx_grow(s->c, k->buf, k->nbuf * sizeof *k->buf, c * sizeof *k->buf);
    TRYP(k->buf);
    *cap = c;
  }
  k->buf[k->nbuf++] = b;
  return MG_OK;
}

static int64_t work_of(const FuKernel *k) {
  const MgExprs *x = k->s->x;
  int64_t work = 0;
  for (uint32_t i = 0; i < k->n; i++) {
    const MgLoop *l = k->nest[i].l;
    int64_t ops = (l->body ? mg_ex_count_ops(x, l->body) : 0) + mg_ex_count_ops(x, l->value);
    work += fu_hint(x, l->range, k->shared, fu_all(l)) * (4 + ops) / 4;
  }
  return work ? work : 1;
}

MgRc fu_finish(FuKernel *k, const uint32_t *users, MgKernel *out, uint32_t number) {
  MgSched *s = k->s;
  uint32_t cap = 0;
  TRY(fu_collapse(k));
  k->shared = !k->alone ? k->nrange : k->nest[0].l->kind == ML_scatter ? k->nest[0].l->nfree : 0;
  for (uint32_t i = 0; i < k->n && !k->alone; i++) {
    const MgLoop *l = k->nest[i].l;
    int rows = l->kind == ML_point ? fu_all(l) : l->nouter;
    if (rows < k->shared) k->shared = rows;
  }
  bool gpu = fu_on_gpu(
      s, k->nest[0].l); /* there it is about threads, see ptx_sched.c, and rows are kept in registers */
  if (!gpu) {
    TRY(cut_rows(k));
    TRY(tile_transposed(k));
  } else {
    TRY(near_places(k));
  }
  if (k->nest[0].l->vec == MG_NO_VEC) choose_vector(k);
  if (!gpu) TRY(keep_values(k));
  qsort(k->nest, k->n, sizeof *k->nest, by_phase);
  fu_set_ranges(s->x, k->range, k->nrange);
  for (uint32_t i = 0; i < k->n; i++) {
    BufRef b = k->nest[i].l->buf;
    if (s->buf[b].kind == MB_temp) TRY(localize(k, b, users));
  }
  out->loop = mg_new(s->c, MgLoop *, k->n);
  TRYP(out->loop);
  out->outer = mg_sym(s->x, 1);
  for (int i = 0; i < k->shared; i++) out->outer = mg_sym_mul(s->x, out->outer, k->range[i]);
  for (uint32_t i = 0; i < k->n; i++) {
    out->loop[out->nloop++] = k->nest[i].l;
    for (uint32_t j = 0; j < k->nest[i].nload; j++) TRY(add_buf(s, out, &cap, k->nest[i].load[j].buf));
    TRY(add_buf(s, out, &cap, k->nest[i].l->buf));
  }
  out->nshared = (uint8_t)k->shared;
  out->work = work_of(k);
  out->grain = out->work >= MG_TUNE_GRAIN_WORK ? 1 : MG_TUNE_GRAIN_WORK / out->work;
  snprintf(out->name, sizeof out->name, "k%u", number);
  return mg_exprs_ok(s->x);
}
