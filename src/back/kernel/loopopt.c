/* Transformations of nests: order, splitting and collapsing of ranges, two-stage
 * reductions, rows of an access.
 * In: nests as lowering wrote them.  Out: equivalent copies. */
#include "back/kernel/fuse_priv.h"
#include <stdlib.h>
#include <string.h>
#include "tuning.h"

int fu_all(const MgLoop *l) { return l->nouter + (l->kind == ML_reduce || l->kind == ML_scan ? l->nred : 0); }

void fu_set_ranges(MgExprs *x, const SymRef *range, int n) {
  for (int k = 0; k < MG_MAX_IDX; k++) mg_ex_set_idx_range(x, k, k < n ? range[k] : 0);
}

static void set_ranges(MgExprs *x, const MgLoop *l) { fu_set_ranges(x, l->range, fu_all(l)); }

/* Rewrites all expressions of a nest with idx(k) = to[k]; the ranges must be those of the new indices. */
static MgRc rewrite(MgExprs *x, MgLoop *l, const ExprRef *to, int n) {
  ExprRef *part[4] = {&l->body, &l->value, &l->index, &l->mask};
  for (int i = 0; i < 4; i++)
    if (*part[i]) *part[i] = mg_ex_subst(x, *part[i], to, n);
  return mg_exprs_ok(x);
}

/* ---- access patterns ---- */

typedef struct Stride { /* how the nest's accesses move along idx(k) */
  MgExprs *x;
  int k;
  int64_t worst;   /* largest |stride| in elements; INT64_MAX: not linear */
  bool contiguous; /* every access is uniform or has stride 1 */
} Stride;

static void note_access(Stride *s, ExprRef index) {
  ExprRef coef, rest;
  int64_t v = INT64_MAX;
  if (!mg_ex_uses_idx(s->x, index, s->k)) return;
  if (mg_ex_linear(s->x, index, s->k, &coef, &rest)) {
    v = mg_sym_hint(s->x, coef);
    if (!mg_ex_const_int(s->x, coef, &v) && v == 1) v = 2; /* a symbolic stride may be 1 only by chance */
  }
  if (v < 0 && v != INT64_MIN) v = -v;
  if (v != 1) s->contiguous = false;
  if (v > s->worst) s->worst = v;
}

typedef struct Collect {
  MgCtx *c;
  FuLoad *load;
  uint32_t n, cap;
  bool nomem;
} Collect;

static ExprRef note_load(MgExprs *x, ExprRef r, const ExprRef *src, void *arg) {
  Collect *l = arg;
  const MgExpr *e = mg_expr(x, r);
  (void)src;
  if (e->op != OP_load || l->nomem) return r;
  for (uint32_t i = 0; i < l->n; i++)
    if (l->load[i].buf == e->u.i && l->load[i].index == e->src[0]) return r;
  if (l->n == l->cap) {
    uint32_t cap = l->cap ? l->cap * 2 : 8;
    FuLoad *q = mg_ctx_grow(l->c, l->load, l->n * sizeof *q, cap * sizeof *q);
    if (!q) {
      l->nomem = true;
      return r;
    }
    l->load = q;
    l->cap = cap;
  }
  l->load[l->n++] = (FuLoad){(BufRef)e->u.i, e->src[0]};
  return r;
}

MgRc fu_nest_loads(MgSched *s, FuNest *n) {
  const ExprRef part[4] = {n->l->body, n->l->value, n->l->index, n->l->mask};
  Collect c = {.c = s->c};
  for (int i = 0; i < 4; i++)
    if (part[i] && !mg_ex_map(s->x, part[i], note_load, &c)) return MG_NOMEM;
  n->load = c.load;
  n->nload = c.n;
  return c.nomem ? MG_NOMEM : MG_OK;
}

/* ---- dropping, ordering and collapsing ranges ---- */

/* Reduced values that are all equal, which a maximum or an "any" may read once. */
static bool repeats(MgExprs *x, const MgLoop *l, int k) {
  bool once = l->red_op == RED_any || l->red_op == RED_all || l->red_op == RED_max || l->red_op == RED_min;
  int64_t lo, hi;
  if (l->kind != ML_reduce || k < l->nouter || !once || !mg_ex_range(x, l->range[k], &lo, &hi) || lo < 1)
    return false;
  return !((mg_ex_idx_mask(x, l->body) | (l->mask ? mg_ex_idx_mask(x, l->mask) : 0)) >> k & 1);
}

static MgRc drop_ones(MgSched *s, MgLoop *l) {
  ExprRef to[MG_MAX_RANK] = {0};
  int n = l->nouter + l->nred, m = 0, outer = 0, nfree = 0;
  for (int k = 0; k < n; k++) {
    bool one = mg_sym_is(s->x, l->range[k], 1) || repeats(s->x, l, k);
    to[k] = mg_sym(s->x, 0);
    if (one) continue;
    l->range[m] = l->range[k];
    mg_ex_set_idx_range(s->x, m, l->range[k]);
    to[k] = mg_ex_idx(s->x, m);
    outer += k < l->nouter;
    nfree += k < l->nfree;
    m++;
  }
  if (m == n) return MG_OK;
  l->nouter = (uint8_t)outer;
  l->nred = (uint8_t)(m - outer);
  l->nfree = (uint8_t)nfree;
  set_ranges(s->x, l);
  return rewrite(s->x, l, to, n);
}

/* Orders kept ranges (and reduced ones among themselves, where order does not
 * matter) by decreasing stride. */
static MgRc reorder(MgSched *s, MgLoop *l) {
  int64_t key[MG_MAX_RANK];
  int order[MG_MAX_RANK], n = l->nouter + l->nred;
  FuNest nest = {.l = l};
  bool arg = mg_red_is_arg(l->red_op), same = true;
  TRY(fu_nest_loads(s, &nest));
  for (int k = 0; k < n; k++) {
    /* The store decides among the kept ranges: writes are the dearest access. Loads
     * decide where it is silent. */
    Stride st = {.x = s->x, .k = k, .contiguous = true}, all = st;
    note_access(&st, l->index);
    for (uint32_t i = 0; i < nest.nload; i++) note_access(&all, nest.load[i].index);
    key[k] = k < l->nouter && st.worst ? st.worst : all.worst;
    order[k] = k;
  }
  for (int i = 1; i < n; i++) /* stable insertion sort within the two parts */
    for (int j = i; j > 0 && j != l->nouter && key[order[j - 1]] < key[order[j]]; j--) {
      if (j > l->nouter && (arg || l->kind == ML_scan)) break;
      int t = order[j];
      order[j] = order[j - 1];
      order[j - 1] = t;
    }
  for (int i = 0; i < n; i++) same &= order[i] == i;
  if (same) return MG_OK;
  return fu_permute(s, l, order, n);
}

/* Divisions and remainders in an expression. */
static ExprRef count_div(MgExprs *x, ExprRef r, const ExprRef *src, void *arg) {
  int op = mg_expr(x, r)->op;
  (void)src;
  *(int *)arg +=
      op == OP_floordiv || op == OP_mod || op == OP_div || op == OP_rem || op == OP_tdiv || op == OP_fmod;
  return r;
}
static int divisions(MgExprs *x, const MgLoop *l) {
  const ExprRef part[4] = {l->body, l->value, l->index, l->mask};
  int n = 0;
  for (int i = 0; i < 4; i++)
    if (part[i]) mg_ex_map(x, part[i], count_div, &n);
  return n;
}

/* Merges ranges k and k+1 when no expression needs to take them apart again. */
static MgRc try_collapse(MgSched *s, MgLoop *l, int k, bool *done) {
  MgLoop m = *l;
  ExprRef to[MG_MAX_RANK] = {0};
  int n = l->nouter + l->nred;
  SymRef inner = l->range[k + 1];
  m.range[k] = mg_sym_mul(s->x, l->range[k], inner);
  for (int j = k + 1; j + 1 < n; j++) m.range[j] = l->range[j + 1];
  if (k < l->nouter) m.nouter--;
  else m.nred--;
  set_ranges(s->x, &m);
  ExprRef joint = mg_ex_idx(s->x, k);
  for (int j = 0; j < n; j++) to[j] = mg_ex_idx(s->x, j <= k ? j : j - 1);
  to[k] = mg_sym_floordiv(s->x, joint, inner);
  to[k + 1] = mg_sym_mod(s->x, joint, inner);
  TRY(rewrite(s->x, &m, to, n));
  *done = divisions(s->x, &m) <= divisions(s->x, l);
  if (*done) *l = m;
  set_ranges(s->x, l);
  return MG_OK;
}

static MgRc collapse(MgSched *s, MgLoop *l) {
  for (int k = 0; k + 1 < l->nouter + l->nred;) {
    bool done = false;
    if (k + 1 != l->nouter && !(l->kind == ML_scan && k + 1 >= l->nouter)) TRY(try_collapse(s, l, k, &done));
    if (!done) k++;
  }
  return MG_OK;
}

/* ---- periods ---- */

typedef struct Period {
  int k;
  int64_t n, period;
} Period; /* of idx(k) in [0, n); 0: none */

static ExprRef find_period(MgExprs *x, ExprRef r, const ExprRef *src, void *arg) {
  Period *p = arg;
  const MgExpr *e = mg_expr(x, r);
  int64_t c;
  (void)src;
  if (e->op != OP_mod || mg_expr(x, e->src[0])->op != OP_idx || mg_expr(x, e->src[0])->u.i != p->k) return r;
  if (mg_ex_const_int(x, e->src[1], &c) && c > p->period && c < p->n && p->n % c == 0) p->period = c;
  return r;
}

/* A range of which something repeats, as copies of a tensor do, becomes two: accesses along the
 * inner one are linear then. */
static MgRc split_periods(MgSched *s, MgLoop *l) {
  const ExprRef part[4] = {l->body, l->value, l->index, l->mask};
  int n = fu_all(l);
  for (int k = 0; k < n && n < MG_MAX_RANK; k++) {
    Period p = {.k = k};
    if (!mg_ex_const_int(s->x, l->range[k], &p.n)) continue;
    for (int i = 0; i < 4; i++)
      if (part[i]) mg_ex_map(s->x, part[i], find_period, &p);
    if (!p.period) continue;
    SymRef range[MG_MAX_RANK];
    memcpy(range, l->range, sizeof *range * (size_t)k);
    range[k] = mg_sym(s->x, p.n / p.period);
    range[k + 1] = mg_sym(s->x, p.period);
    memcpy(range + k + 2, l->range + k + 1, sizeof *range * (size_t)(n - k - 1));
    return fu_split(s, l, range, n + 1);
  }
  return mg_exprs_ok(s->x);
}

/* Drops ranges of 1, orders the others by stride and merges those that are one range in memory. */
static MgRc normalize(MgSched *s, MgLoop *l) {
  ExprRef same[MG_MAX_RANK];
  set_ranges(s->x, l);
  for (int k = 0; k < MG_MAX_RANK; k++) same[k] = mg_ex_idx(s->x, k);
  TRY(rewrite(s->x, l, same,
              fu_all(l))); /* with the ranges known, some divisions are none: they would count below */
  if (l->kind != ML_scan) TRY(drop_ones(s, l));
  if (l->kind == ML_scatter) return MG_OK; /* colliding stores keep their order */
  int before;
  do {
    before = fu_all(l);
    if (l->kind == ML_point) TRY(split_periods(s, l));
  } while (fu_all(l) > before);
  TRY(reorder(s, l));
  return collapse(s, l);
}

static ExprRef put_red(MgExprs *x, ExprRef r, const ExprRef *s, void *arg) {
  return mg_expr(x, r)->op == OP_red ? *(ExprRef *)arg : mg_ex_rebuild(x, r, s);
}

/* A reduction over one point is that point's value.  Sums begin at +0 as elsewhere, so that -0 gives +0. */
static MgRc single_point(MgSched *s, MgLoop *l) {
  MgExprs *x = s->x;
  ExprRef v = l->body;
  if (l->kind != ML_reduce || l->nred) return MG_OK;
  set_ranges(x, l);
  MgTy ty = mg_expr(x, v)->ty;
  if (l->red_op == RED_sum && mg_ty_is_float(ty)) v = mg_ex_op(x, OP_add, v, mg_ex_float(x, ty, 0), 0);
  if (l->red_op == RED_any || l->red_op == RED_all) v = mg_ex_cvt(x, TY_i1, v);
  if (mg_red_is_arg(l->red_op)) v = mg_sym(x, 0);
  l->value = mg_ex_map(x, l->value, put_red, &v);
  l->body = 0;
  l->kind = ML_point;
  return mg_exprs_ok(x);
}

MgRc fu_nest_init(MgSched *s, const MgLoop *l, uint32_t seq, FuNest *out) {
  *out = (FuNest){.seq = seq, .l = mg_new(s->c, MgLoop, 1)};
  TRYP(out->l);
  *out->l = *l;
  if (l->kind == ML_point || l->kind == ML_scatter) out->l->nred = 0;
  out->l->vec = MG_NO_VEC;
  TRY(normalize(s, out->l));
  TRY(single_point(s, out->l));
  return fu_nest_loads(s, out);
}

/* ---- splitting ---- */

MgRc fu_split(MgSched *s, MgLoop *l, const SymRef *range, int n) {
  ExprRef to[MG_MAX_RANK] = {0};
  int old = fu_all(l), at = 0, outer = 0, all;
  SymRef fine[MG_MAX_RANK];
  fu_set_ranges(s->x, range, n);
  for (int k = 0; k < old; k++) {
    SymRef size = mg_sym(s->x, 1);
    ExprRef i = mg_sym(s->x, 0);
    while (size != l->range[k]) { /* the new ranges that make up the old one */
      if (at == n || at == MG_MAX_RANK) return mg_fail(s->c, MG_BUG, "split: ranges are no refinement");
      i = mg_sym_add(s->x, mg_sym_mul(s->x, i, range[at]), mg_ex_idx(s->x, at));
      size = mg_sym_mul(s->x, size, range[at]);
      fine[at] = range[at];
      at++;
    }
    to[k] = i;
    if (k < l->nouter) outer = at;
  }
  all = at;
  TRY(rewrite(s->x, l, to, old));
  memcpy(l->range, fine, sizeof *fine * (size_t)all);
  l->nouter = (uint8_t)outer;
  l->nred = (uint8_t)(all - outer);
  return mg_exprs_ok(s->x);
}

MgRc fu_permute(MgSched *s, MgLoop *l, const int *order, int n) {
  ExprRef to[MG_MAX_RANK] = {0};
  SymRef range[MG_MAX_RANK];
  for (int i = 0; i < n; i++) range[i] = l->range[order[i]];
  memcpy(l->range, range, sizeof *range * (size_t)n);
  fu_set_ranges(s->x, l->range, n);
  for (int i = 0; i < n; i++) to[order[i]] = mg_ex_idx(s->x, i);
  return rewrite(s->x, l, to, n);
}

/* ---- joint collapsing ---- */

MgRc fu_collapse(FuKernel *k) {
  MgSched *s = k->s;
  for (int d = 0; d + 1 < k->nrange;) {
    MgLoop *copy = mg_new(s->c, MgLoop, k->n);
    bool all = true;
    TRYP(copy);
    for (uint32_t i = 0; i < k->n && all; i++) {
      copy[i] = *k->nest[i].l;
      int m = fu_all(&copy[i]);
      if (m <= d) continue;
      all = m > d + 1 && d + 1 != copy[i].nouter && copy[i].kind != ML_scatter && copy[i].kind != ML_scan;
      if (all) TRY(try_collapse(s, &copy[i], d, &all));
    }
    if (!all) {
      d++;
      continue;
    }
    for (uint32_t i = 0; i < k->n; i++) *k->nest[i].l = copy[i];
    k->range[d] = mg_sym_mul(s->x, k->range[d], k->range[d + 1]);
    k->nrange--;
    for (int j = d + 1; j < k->nrange; j++) k->range[j] = k->range[j + 1];
    if (k->shared > d + 1) k->shared--;
  }
  for (uint32_t i = 0; i < k->n; i++) TRY(fu_nest_loads(s, &k->nest[i]));
  return mg_exprs_ok(s->x);
}

/* ---- rows ---- */

int64_t fu_hint(const MgExprs *x, const SymRef *range, int from, int to) {
  int64_t n = 1;
  for (int k = from; k < to; k++) n *= mg_sym_hint(x, range[k]);
  return n;
}

bool fu_row_part(MgExprs *x, ExprRef index, const SymRef *range, int shared, ExprRef *inner, int64_t *lo,
                 int64_t *hi) {
  ExprRef coef;
  (void)range;
  for (int k = 0; k < shared; k++)
    if (!mg_ex_linear(x, index, k, &coef, &index)) return false;
  *inner = index;
  return mg_ex_range(x, index, lo, hi) && *lo != INT64_MIN && *hi != INT64_MAX;
}

bool fu_row_local(MgExprs *x, ExprRef a, ExprRef b, const SymRef *range, int shared) {
  ExprRef ia, ib, ca, cb, ra = a, rb = b;
  int64_t alo, ahi, blo, bhi, coef[MG_MAX_RANK], n;
  if (a == b) return true;
  if (!fu_row_part(x, a, range, shared, &ia, &alo, &ahi) ||
      !fu_row_part(x, b, range, shared, &ib, &blo, &bhi))
    return false;
  for (int k = 0; k < shared; k++) {
    if (!mg_ex_linear(x, ra, k, &ca, &ra) || !mg_ex_linear(x, rb, k, &cb, &rb) || ca != cb) return false;
    if (!mg_ex_const_int(x, ca, &coef[k]) || coef[k] <= 0) return false;
  }
  int64_t span = (ahi > bhi ? ahi : bhi) - (alo < blo ? alo : blo) + 1;
  for (int k = shared - 1; k >= 0;
       k--) { /* rows are disjoint: each stride clears what the inner ones reach */
    if (coef[k] < span || !mg_ex_const_int(x, range[k], &n)) return false;
    span = coef[k] * (n - 1) + span;
  }
  return true;
}

/* ---- two-stage reductions ---- */

/* Do neighbouring results lie side by side in what is reduced?  Then threads take results, else blocks do. */
static bool by_columns(MgSched *s, const FuNest *n) {
  ExprRef coef, rest;
  int last = n->l->nouter - 1, in = fu_all(n->l) - 1;
  for (uint32_t i = 0; i < n->nload && last >= 0; i++) {
    ExprRef e = n->load[i].index;
    if (mg_ex_linear(s->x, e, in, &coef, &rest) && mg_sym_is(s->x, coef, 1)) return false;
    if (mg_ex_linear(s->x, e, last, &coef, &rest) && mg_sym_is(s->x, coef, 1)) return true;
  }
  return false;
}

/* Chunks of a reduction on a GPU, of a range of `size` among all `points` reduced ones;
 * 0: it is parallel enough. */
static int64_t gpu_chunks(int64_t results, int64_t points, int64_t size, bool columns) {
  int64_t want =
      columns ? MG_TUNE_GPU_THREADS / (results ? results : 1) : MG_TUNE_GPU_BLOCKS / (results ? results : 1);
  int64_t most = points / (columns ? MG_TUNE_GPU_THREAD_POINTS : MG_TUNE_GPU_BLOCK_POINTS);
  if (want > most) want = most;
  if (want > size) want = size;
  if (want < 2) return 0;
  for (int64_t d = want; d >= 2 && d > want / 4; d--)
    if (size % d == 0) return d;
  for (int64_t d = want + 1; d < 4 * want && d <= size; d++)
    if (size % d == 0) return d;
  return 0;
}

/* A divisor of n near 64. */
static int64_t chunk_count(int64_t n) {
  for (int64_t d = 64; d <= 512; d++)
    if (n % d == 0) return d;
  for (int64_t d = 63; d >= 8; d--)
    if (n % d == 0) return d;
  return 0;
}

MgRc fu_two_stages(MgSched *s, const MgLoop *l, MgLoop *out[2], int *n) {
  MgExprs *x = s->x;
  int64_t size, chunks, points = fu_hint(x, l->range, l->nouter, l->nouter + l->nred),
                        results = fu_hint(x, l->range, 0, l->nouter);
  FuNest nest;
  bool gpu = fu_on_gpu(s, l), columns = false;
  *n = 0;
  if (l->kind != ML_reduce || l->mode != ST_set || l->mask || mg_red_is_arg(l->red_op)) return MG_OK;
  if (!gpu && (points < MG_TUNE_STAGE_POINTS || results >= MG_TUNE_STAGE_ROWS)) return MG_OK;
  TRY(fu_nest_init(s, l, 0, &nest));
  MgLoop *a = nest.l;
  int o = a->nouter;
  if (a->kind != ML_reduce || !a->nred || !mg_ex_const_int(x, a->range[o], &size)) return MG_OK;
  columns = gpu && by_columns(s, &nest);
  if (!(chunks = gpu ? gpu_chunks(results, points, size, columns) : chunk_count(size))) return MG_OK;
  MgTy ty = mg_expr(x, a->body)->ty;
  SymRef fine[MG_MAX_RANK];
  if (o + a->nred + 1 > MG_MAX_RANK) return MG_OK;
  memcpy(fine, a->range, sizeof *fine * (size_t)o);
  fine[o] = mg_sym(x, chunks);
  fine[o + 1] = mg_sym(x, size / chunks);
  memcpy(fine + o + 2, a->range + o + 1, sizeof *fine * (size_t)(a->nred - 1));
  MgLoop *b = mg_new(s->c, MgLoop, 1);
  TRYP(b);
  *b = *a;
  TRY(fu_split(s, a, fine, o + a->nred + 1));
  a->nouter++;
  a->nred--;
  static const MgDtype dtype[] = {DT_bool, DT_i8,  DT_u8,  DT_i16,  DT_u16, DT_i32, DT_u32,
                                  DT_i64,  DT_u64, DT_f16, DT_bf16, DT_f32, DT_f64};
  SymRef count = mg_sym(x, chunks);
  ExprRef at = mg_sym(x, 0);
  for (int k = 0; k <= o; k++) {
    if (k < o) count = mg_sym_mul(x, count, a->range[k]);
    if (k < o || !columns) at = mg_sym_add(x, mg_sym_mul(x, at, a->range[k]), mg_ex_idx(x, k));
  }
  if (columns)
    at = mg_sym_add(x, at, mg_sym_mul(x, mg_ex_idx(x, o), mg_sym_floordiv(x, count, mg_sym(x, chunks))));
  MgTy acc = l->red_op == RED_any || l->red_op == RED_all ? TY_i1 : ty;
  a->buf = mg_sched_buf(s, MB_temp, dtype[acc], count, "partial");
  TRYP(a->buf);
  s->buf[a->buf].device = s->buf[l->buf].device;
  a->value = mg_ex_red(x, acc);
  a->index = at;
  b->range[o] = mg_sym(x, chunks);
  b->nred = 1;
  set_ranges(x, b);
  b->body = mg_ex_load(x, acc, a->buf, at, 0, 0);
  out[0] = a;
  out[1] = b;
  *n = 2;
  return mg_exprs_ok(x);
}
