/* How a kernel is laid over the GPU.
 * In: a fused kernel, its ranges at the hints of this run.  Out: MgPtxPlan.  Any answer gives right code;
 * this one is about
 * speed:
 * 16 bytes an access, enough threads to fill the chip, rows that stay in registers between phases. */
#include <string.h>
#include "ptx/ptx.h"
#include "tuning.h"

enum {
  SCHED_THREADS = 256,
  SCHED_ROW_THREADS = 128, /* of a block whose rows have fewer */
  SCHED_TEAM = 1024,
  SCHED_WINDOW = 32,       /* points of a row that one thread does alone */
  SCHED_ELEMENTS = 32,     /* of a row that a thread holds in registers */
  SCHED_FILL = 132 * 1024, /* threads that fill a large chip */
  SCHED_UNROLL = 64        /* points written out one after the other at most */
};

static int sched_all(const MgLoop *l) { return l->nouter + (l->kind == ML_reduce ? l->nred : 0); }

static int64_t sched_hint(const MgExprs *x, const SymRef *range, int from, int to) {
  int64_t n = 1;
  for (int k = from; k < to; k++) n *= mg_sym_hint(x, range[k]);
  return n;
}

/* ---- vectors ---- */

typedef struct SchedLane { /* could a thread have neighbours along idx(k)? */
  MgSched *s;
  const MgKernel *kernel;
  int k, least, most; /* bytes of the elements that lie side by side */
  int64_t good, bad;  /* accesses that are contiguous or uniform along it, and others */
} SchedLane;

static void sched_access(SchedLane *a, BufRef b, ExprRef index) {
  MgExprs *x = a->s->x;
  ExprRef coef, rest;
  int64_t step;
  int size = mg_dtype_size((MgDtype)a->s->buf[b].dtype);
  if (a->s->buf[b].kind == MB_local || !mg_ex_uses_idx(x, index, a->k)) return;
  if (!mg_ex_linear(x, index, a->k, &coef, &rest) || !mg_ex_const_int(x, coef, &step) || step != 1) {
    a->bad++;
    return;
  }
  a->good++;
  if (size > a->most) a->most = size;
  if (!a->least || size < a->least) a->least = size;
}

static bool sched_see_load(const MgExprs *x, ExprRef r, void *arg) {
  SchedLane *a = arg;
  const MgExpr *e = mg_expr(x, r);
  if (e->op == OP_load) sched_access(a, (BufRef)e->u.i, e->src[0]);
  return false;
}

typedef struct SchedLoads {
  MgCtx *c;
  ExprRef *r;
  uint32_t n, cap;
  bool failed;
} SchedLoads;

static bool sched_collect(const MgExprs *x, ExprRef r, void *arg) {
  SchedLoads *l = arg;
  if (mg_expr(x, r)->op != OP_load) return false;
  if (l->n == l->cap) {
    uint32_t cap = l->cap ? 2 * l->cap : 16;
    ExprRef *p = mg_ctx_grow(l->c, l->r, l->n * sizeof *p, cap * sizeof *p);
    if (!p) return l->failed = true;
    l->r = p;
    l->cap = cap;
  }
  l->r[l->n++] = r;
  return false;
}

/* Looks at all accesses along idx(k). */
static MgRc sched_look(MgSched *s, const MgKernel *kernel, int k, SchedLane *a) {
  *a = (SchedLane){.s = s, .kernel = kernel, .k = k};
  SchedLoads loads = {.c = s->c};
  for (uint32_t i = 0; i < kernel->nloop; i++) {
    const MgLoop *l = kernel->loop[i];
    const ExprRef part[4] = {l->body, l->value, l->index, l->mask};
    for (int j = 0; j < 4; j++)
      if (part[j]) mg_ex_any(s->x, part[j], sched_collect, &loads);
    if (sched_all(l) > k) sched_access(a, l->buf, l->index);
  }
  if (loads.failed) return MG_NOMEM;
  for (uint32_t i = 0; i < loads.n; i++) sched_see_load(s->x, loads.r[i], a);
  return mg_exprs_ok(s->x);
}

/* Neighbours of a thread along a lane: 16 bytes of the smallest elements, at most 32 of the largest. */
static int sched_vec(MgSched *s, const SchedLane *a, SymRef range) {
  int64_t n;
  int v = a->least ? 16 / a->least : 1;
  if (v > 8) v = 8;
  while (v > 1 && v * a->most > 32) v /= 2;
  if (!mg_ex_const_int(s->x, range, &n)) return 1;
  while (v > 1 && n % v) v /= 2;
  return v;
}

static MgRc sched_lane(MgSched *s, const MgKernel *k, int idx, const SymRef *range, MgPtxPlan *p) {
  SchedLane a;
  p->lane = -1;
  p->vec = 1;
  if (idx < 0) return MG_OK;
  TRY(sched_look(s, k, idx, &a));
  int v = a.good > a.bad ? sched_vec(s, &a, range[idx]) : 1;
  if (v < 2) return MG_OK;
  p->lane = (int8_t)idx;
  p->vec = (uint8_t)v;
  return MG_OK;
}

/* ---- tiles ---- */

/* The index along which some load is contiguous while it jumps along the last one; -1: there is none. */
static MgRc sched_cross(MgSched *s, const MgKernel *k, const SymRef *range, int all, int *out) {
  MgExprs *x = s->x;
  SchedLoads loads = {.c = s->c};
  ExprRef coef, rest;
  int64_t far;
  *out = -1;
  if (all < 2 || mg_sym_hint(x, range[all - 1]) < MG_TUNE_GPU_CROSS) return MG_OK;
  for (uint32_t i = 0; i < k->nloop; i++) {
    mg_ex_any(x, k->loop[i]->value, sched_collect, &loads);
    if (!mg_ex_linear(x, k->loop[i]->index, all - 1, &coef, &rest) || !mg_sym_is(x, coef, 1)) return MG_OK;
  }
  if (loads.failed) return MG_NOMEM;
  for (uint32_t i = 0; i < loads.n; i++) {
    const MgExpr *n = mg_expr(x, loads.r[i]);
    ExprRef index = n->src[0];
    if (n->src[1] || s->buf[n->u.i].kind == MB_local || s->buf[n->u.i].device == DEV_cpu) continue;
    if (!mg_ex_linear(x, index, all - 1, &coef, &rest) ||
        (mg_ex_const_int(x, coef, &far) && far < MG_TUNE_GPU_CROSS))
      continue;
    for (int d = 0; d < all - 1; d++)
      if (mg_sym_hint(x, range[d]) >= MG_TUNE_GPU_CROSS && mg_ex_linear(x, index, d, &coef, &rest) &&
          mg_sym_is(x, coef, 1))
        *out = d;
  }
  return mg_exprs_ok(x);
}

/* ---- rows ---- */

static int sched_power(int64_t n) {
  int p = 1;
  while (p < n && p < SCHED_TEAM) p *= 2;
  return p;
}

/* Threads that share a row of `length` points. */
static int sched_team(int64_t rows, int64_t length, int vec) {
  int team = sched_power((length + SCHED_ELEMENTS - 1) / SCHED_ELEMENTS);
  int most = sched_power((length + vec - 1) / vec);
  while (team < most && team < 32 && length / team > SCHED_ELEMENTS / 2) team *= 2;
  while (team < most && team < SCHED_TEAM && rows * team < SCHED_FILL / 2) team *= 2;
  return team;
}

/* Does a row keep more than single numbers? */
static bool sched_has_local(const MgSched *s, const MgKernel *k) {
  for (uint32_t i = 0; i < k->nloop; i++) {
    const MgLoop *l = k->loop[i];
    int level = l->kind == ML_reduce ? l->nouter : sched_all(l);
    if (s->buf[l->buf].kind == MB_local && level > k->nshared) return true;
  }
  return false;
}

/* Rows that lie side by side in memory, too few for a thread each: the threads of a block are some rows wide.
 */
static void sched_across(int64_t rows, int64_t length, MgPtxPlan *p) {
  enum { LEAST = 64, WIDE = 32, NARROW = 8 };
  if (length < LEAST || rows < NARROW || rows >= SCHED_FILL / 2) return;
  int each = WIDE;
  while (each > NARROW && rows / each < SCHED_FILL / SCHED_TEAM) each /= 2;
  int team = sched_power(length / 4);
  while (team * each > SCHED_TEAM) team /= 2;
  p->across = true;
  p->lane = -1, p->vec = 1;
  p->team = (uint16_t)team;
  p->threads = (uint16_t)(team * each);
}

static bool sched_fits(const MgExprs *x, const SymRef *range, int n) {
  int64_t lo, hi, all = 1;
  for (int k = 0; k < n; k++) {
    if (!mg_ex_range(x, range[k], &lo, &hi) || hi > INT32_MAX) return false;
    if (hi > 0) all *= hi;
    if (all > INT32_MAX - 4 * SCHED_TEAM) return false;
  }
  return true;
}

static MgRc sched_rows(MgSched *s, const MgKernel *k, const SymRef *range, int all, bool lanes_outer,
                       bool vectors, MgPtxPlan *p) {
  int64_t rows = sched_hint(s->x, range, 0, p->nouter), length = sched_hint(s->x, range, p->nouter, all);
  p->team = 1;
  bool alone = lanes_outer || length <= SCHED_WINDOW;
  int lane = !alone ? all - 1 : lanes_outer || length < 8 ? p->nouter - 1 : all - 1;
  p->lane = -1, p->vec = 1;
  if (vectors && (all > p->nouter || lane < p->nouter)) TRY(sched_lane(s, k, lane, range, p));
  if (alone && p->lane >= 0 && p->lane < p->nouter) /* rather more threads than wide ones */
    while (p->vec > 1 && rows / p->vec < SCHED_FILL / 4) p->vec /= 2;
  if (p->vec == 1) p->lane = -1;
  if (!alone) p->team = (uint16_t)sched_team(rows, length, p->vec);
  p->threads = p->team > SCHED_ROW_THREADS ? p->team : SCHED_ROW_THREADS;
  int each = p->lane >= p->nouter ? p->vec : 1; /* points of a piece */
  if (lanes_outer && !sched_has_local(s, k)) sched_across(rows, length, p);
  p->pieces = (uint8_t)(SCHED_UNROLL / p->vec < 32 ? SCHED_UNROLL / p->vec : 32);
  if (each == 1 && p->vec == 1) p->pieces = 32;
  return MG_OK;
}

static MgRc sched_tiles(MgExprs *x, const SymRef *range, MgPtxPlan *p) {
  enum { TILE = 32 };
  p->blocks = mg_sym(x, 1);
  for (int k = 0; k < p->nouter; k++) {
    SymRef n = range[k];
    if (k == p->cross || k == p->nouter - 1)
      n = mg_sym_floordiv(x, mg_sym_add(x, n, mg_sym(x, TILE - 1)), mg_sym(x, TILE));
    p->blocks = mg_sym_mul(x, p->blocks, n);
  }
  p->points = p->blocks;
  return mg_exprs_ok(x);
}

/* ---- nests side by side ---- */

typedef struct SchedOwners { /* which nest uses a buffer */
  const MgSched *s;
  uint32_t *owner; /* per buffer: the nest's number + 1 */
  uint32_t nest;
  bool shared; /* some buffer has two */
} SchedOwners;

static void sched_own(SchedOwners *o, BufRef b) {
  if (o->s->buf[b].device == DEV_cpu) return; /* a parameter */
  o->shared |= o->owner[b] && o->owner[b] != o->nest + 1;
  o->owner[b] = o->nest + 1;
}

static bool sched_own_load(const MgExprs *x, ExprRef r, void *arg) {
  if (mg_expr(x, r)->op == OP_load) sched_own(arg, (BufRef)mg_expr(x, r)->u.i);
  return false;
}

/* Nests of points that share no memory get blocks of their own: what one thread would do after the other,
 * several multiprocessors do at once. */
static MgRc sched_apart(MgSched *s, const MgKernel *k, MgPtxPlan *p) {
  int64_t blocks;
  SchedOwners o = {.s = s, .owner = mg_new(s->c, uint32_t, s->nbuf)};
  TRYP(o.owner);
  if (k->nloop < 2 || !mg_ex_const_int(s->x, p->blocks, &blocks) || blocks < 1 ||
      blocks > INT32_MAX / k->nloop)
    return mg_exprs_ok(s->x);
  for (; o.nest < k->nloop; o.nest++) {
    const MgLoop *l = k->loop[o.nest];
    const ExprRef part[3] = {l->value, l->index, l->mask};
    if (l->buf == s->err) return MG_OK;
    sched_own(&o, l->buf);
    for (int i = 0; i < 3; i++)
      if (part[i]) mg_ex_any(s->x, part[i], sched_own_load, &o);
  }
  if (o.shared) return mg_exprs_ok(s->x);
  p->each = (uint32_t)blocks;
  p->blocks = mg_sym(s->x, blocks * (int64_t)k->nloop);
  return mg_exprs_ok(s->x);
}

bool mg_ptx_takes(MgSched *s, const MgLoop *l) {
  const ExprRef part[4] = {l->body, l->value, l->index, l->mask};
  if ((l->kind != ML_point && l->kind != ML_reduce) || l->mode != ST_set) return false;
  if (l->kind == ML_reduce && mg_red_is_arg(l->red_op)) return false;
  if (s->buf[l->buf].device != DEV_cuda && l->buf != s->err) return false;
  for (int k = 0; k < MG_MAX_IDX; k++) mg_ex_set_idx_range(s->x, k, k < sched_all(l) ? l->range[k] : 0);
  for (int i = 0; i < 4; i++) {
    MgRc rc = MG_OK;
    if (part[i]) mg_ex_legalize(s->x, part[i], 1, &rc);
    if (rc != MG_OK) return false;
  }
  return true;
}

MgRc mg_ptx_plan(MgSched *s, const MgKernel *k, bool vectors, MgPtxPlan *p) {
  MgExprs *x = s->x;
  bool points = true, lanes_outer = false;
  int all = k->nshared;
  const SymRef *range = k->loop[0]->range;
  for (uint32_t i = 0; i < k->nloop; i++) {
    const MgLoop *l = k->loop[i];
    if ((l->kind != ML_point && l->kind != ML_reduce) || l->mode != ST_set) return MG_UNSUP;
    if (l->kind == ML_reduce && mg_red_is_arg(l->red_op)) return MG_UNSUP;
    points &= l->kind == ML_point && l->phase == k->loop[0]->phase;
    lanes_outer |= l->vec != MG_NO_VEC && l->vec < k->nshared;
    if (sched_all(l) > all) all = sched_all(l), range = l->range;
  }
  *p = (MgPtxPlan){.map = points ? MG_PTX_points : MG_PTX_rows,
                   .nouter = (uint8_t)(points ? all : k->nshared),
                   .lane = -1,
                   .vec = 1,
                   .threads = SCHED_THREADS,
                   .team = 1,
                   .pieces = 1};
  for (int i = 0; i < MG_MAX_IDX; i++) mg_ex_set_idx_range(x, i, i < all ? range[i] : 0);
  p->narrow = sched_fits(x, range, all);
  if (!points) TRY(sched_rows(s, k, range, all, lanes_outer, vectors, p));
  else if (vectors) {
    int cross;
    TRY(sched_cross(s, k, range, all, &cross));
    if (cross < 0) TRY(sched_lane(s, k, all - 1, range, p));
    else p->map = MG_PTX_tiles, p->cross = (int8_t)cross;
  }
  p->vectors = vectors && p->vec > 1;
  if (p->map == MG_PTX_tiles) {
    TRY(sched_tiles(x, range, p));
    return sched_apart(s, k, p);
  }
  p->points = mg_sym(x, 1);
  for (int i = 0; i < p->nouter; i++) p->points = mg_sym_mul(x, p->points, range[i]);
  if (p->lane >= 0 && p->lane < p->nouter) p->points = mg_sym_floordiv(x, p->points, mg_sym(x, p->vec));
  int64_t each = p->threads / p->team;
  p->blocks = mg_sym_floordiv(x, mg_sym_add(x, p->points, mg_sym(x, each - 1)), mg_sym(x, each));
  return points ? sched_apart(s, k, p) : mg_exprs_ok(x);
}
