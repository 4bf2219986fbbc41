/* Matrix products by register tiles.
 * In: a description of a product.  Out: an engine that packs rows of x and columns of w into panels, and
 * multiplies panels: the sums of a tile stay in registers, a panel of w in the first cache, those of x in the
 * second.  gemm_tile.h has the code; it is compiled once per instruction set.
 *
 * A task is a block of rows of one batch.  With few tasks all threads work at one, each at its share of the
 * columns, and pack its rows together.  With many, each task belongs to one thread. */
#include "runtime/engine/gemm.h"
#include <stdlib.h>
#include <string.h>
#include "base/env.h"
#include "runtime/engine/simd.h"
#include "runtime/engine/weight_cache.h"
#include "runtime/process/cpu.h"
#include "runtime/process/threads.h"
#include "tuning.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { GEMM_BATCH = MG_DESC_RANK - 2, GEMM_ALIGN = 16 /* floats of a cache line */ };

typedef enum GemmAct {
  GEMM_none,
  GEMM_relu,
  GEMM_leaky_relu,
  GEMM_clip,
  GEMM_gelu,
  GEMM_gelu_tanh,
  GEMM_silu,
  GEMM_sigmoid,
  GEMM_tanh,
  GEMM_elu,
  GEMM_hardswish,
  GEMM_hardsigmoid,
  GEMM_mish
} GemmAct;

static const char *const gemm_acts[] = {"",          "relu",        "leaky_relu", "clip", "gelu",
                                        "gelu_tanh", "silu",        "sigmoid",    "tanh", "elu",
                                        "hardswish", "hardsigmoid", "mish"};

typedef struct GemmOperand { /* strides, in floats */
  bool present;
  int ptr; /* of the engine's pointers */
  int64_t row, col, batch[GEMM_BATCH];
} GemmOperand;

/* The part of w that is packed next, as runs of neighbours: fetched while the part before is multiplied. */
typedef struct GemmAhead {
  const float *at, *end; /* in the run */
  int64_t step, length;  /* from one run to the next; floats of one */
  int64_t left;          /* lines of all runs that are not asked for yet, about */
} GemmAhead;

typedef struct Gemm Gemm;
typedef struct GemmSet { /* the code of one instruction set; what the functions do is said in gemm_tile.h */
  int lanes, rows, panel;
  void (*pack_rows)(const float *x, int64_t row, int64_t col, int64_t nrow, bool whole, int64_t depth,
                    float *to);
  void (*pack_columns)(const float *w, int64_t row, int64_t col, int64_t depth, int64_t ncol, float *to);
  void (*stripe)(const float *a, int64_t step, const float *b, int64_t depth, float *c, int64_t nrow,
                 bool add, GemmAhead *ahead);
  void (*finish)(const Gemm *g, float *c, int64_t nrow, int64_t ncol, float *out, const float *bias,
                 const float *residual);
} GemmSet;

struct Gemm {
  MgEngine e;
  GemmOperand t[MATMUL_NPTR];
  int nbatch;
  int64_t size[GEMM_BATCH]; /* of the batch dimensions */
  int64_t m, n, k;
  uint8_t dtype; /* of all operands: FLOAT, or HALF or BFLOAT16, which are widened before they are packed */
  int64_t bytes; /* of an element */
  GemmAct act;
  float act_a, act_b;
  int64_t rows, nblock; /* rows of a block; blocks of a batch */
  int64_t tasks;        /* blocks of all batches */
  bool shared;          /* all threads work at one task */
  bool deep;            /* panels have sums of their own */
  int64_t nslot;        /* shares of the work, each with scratch memory of its own */
  int64_t step;         /* floats from one row panel to the next */
  int64_t depth;        /* rows of w that are multiplied at a time */
  int64_t rows_floats;  /* the packed rows of a block: one, before the slots, or one in each of them */
  int64_t slot_floats;  /* panel of w, sums, and the packed rows unless they are shared */
  const GemmSet *set;
  MgGemmColumns columns; /* without `pack`: w lies in memory */
  MgFrozen frozen; /* all column panels of w, each [k][panel]; the one part that changes after it was made */
};

enum { GEMM_HALF = 5, GEMM_FLOAT = 6, GEMM_BFLOAT16 = 15 }; /* c10::ScalarType */

static inline void gemm_fetch(GemmAhead *h) {
  if (h->left <= 0) return;
  __builtin_prefetch(h->at, 0, 2);
  h->left--;
  h->at += GEMM_ALIGN;
  if (h->at < h->end) return;
  h->at = h->end + h->step - h->length;
  h->end += h->step;
}

#define SIMD_SET any
#define SIMD_LANES 4
#define SIMD_MAX(a, b) ((a) > (b) ? (a) : (b))
#define GEMM_WIDE 2
#define GEMM_ROWS 4
#include "runtime/engine/simd.h"
#include "runtime/engine/gemm_tile.h"
#include "runtime/engine/simd_end.h"
#if defined(__x86_64__)
MG_TARGET_BEGIN("avx2,fma")
#define SIMD_SET avx2
#define SIMD_LANES 8
#define SIMD_MAX(a, b) ((MgF8)_mm256_max_ps((__m256)(a), (__m256)(b)))
#define GEMM_WIDE 2
#define GEMM_ROWS 6
#include "runtime/engine/simd.h"
#include "runtime/engine/gemm_tile.h"
#include "runtime/engine/simd_end.h"
MG_TARGET_END
MG_TARGET_BEGIN("avx512f,avx512dq,avx512vl,avx512bw")
#define SIMD_SET avx512
#define SIMD_LANES 16
#define SIMD_MAX(a, b) ((MgF16)_mm512_max_ps((__m512)(a), (__m512)(b)))
#define GEMM_WIDE 2
#define GEMM_ROWS 12
#include "runtime/engine/simd.h"
#include "runtime/engine/gemm_tile.h"
#include "runtime/engine/simd_end.h"
MG_TARGET_END
#endif

/* ---- 16-bit operands ---- */

enum { GEMM_MOST_ROWS = 14, GEMM_MOST_PANEL = 32 };

static bool gemm_is_short(uint8_t dtype) { return dtype == GEMM_HALF || dtype == GEMM_BFLOAT16; }

#if defined(__x86_64__)
static bool gemm_widens(void) { return mg_cpu()->avx2 && mg_cpu()->f16c; }

/* Has the processor products of that type?  ATen's use them, whatever level magneto is capped at; without
 * them they take four times as long as float32's. */
static bool gemm_short_is_fast(uint8_t dtype) {
  if (mg_env(ENV_GEMM)) return false;
  __builtin_cpu_init();
  return dtype == GEMM_BFLOAT16 ? __builtin_cpu_supports("avx512bf16") : __builtin_cpu_supports("avx512fp16");
}

/* n values in a row. */
__attribute__((target("avx2,f16c"))) static void gemm_widen_run(bool half, const uint16_t *from, int64_t n,
                                                                float *to) {
  for (; n > 0; from += 8, to += 8, n -= 8) {
    uint16_t part[8] = {0};
    float wide[8];
    if (n < 8) memcpy(part, from, (size_t)n * sizeof *from);
    __m128i v = _mm_loadu_si128((const __m128i *)(n < 8 ? part : from));
    __m256 w =
        half ? _mm256_cvtph_ps(v) : _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
    _mm256_storeu_ps(n < 8 ? wide : to, w);
    if (n < 8) memcpy(to, wide, (size_t)n * sizeof *to);
  }
}

/* The same back, to the nearest, ties to even. */
__attribute__((target("avx2,f16c"))) static void gemm_narrow_run(bool half, const float *from, int64_t n,
                                                                 uint16_t *to) {
  for (; n > 0; from += 8, to += 8, n -= 8) {
    float wide[8] = {0};
    uint16_t part[8];
    if (n < 8) memcpy(wide, from, (size_t)n * sizeof *from);
    __m256 x = _mm256_loadu_ps(n < 8 ? wide : from);
    __m256i u = _mm256_castps_si256(x),
            odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    u = _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    u = _mm256_blendv_epi8(u, _mm256_set1_epi32(0x7fc0), nan);
    __m128i v = half ? _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT)
                     : _mm_packus_epi32(_mm256_castsi256_si128(u), _mm256_extracti128_si256(u, 1));
    _mm_storeu_si128((__m128i *)(n < 8 ? part : to), v);
    if (n < 8) memcpy(to, part, (size_t)n * sizeof *to);
  }
}
#else
static bool gemm_widens(void) { return false; }
static bool gemm_short_is_fast(uint8_t dtype) { return true; }
static void gemm_widen_run(bool half, const uint16_t *from, int64_t n, float *to) {}
static void gemm_narrow_run(bool half, const float *from, int64_t n, uint16_t *to) {}
#endif

bool mg_gemm_has_short(uint8_t dtype) { return gemm_is_short(dtype) && gemm_widens(); }

void mg_gemm_widen(uint8_t dtype, const uint16_t *from, int64_t n, float *to) {
  gemm_widen_run(dtype == GEMM_HALF, from, n, to);
}

void mg_gemm_narrow(uint8_t dtype, const float *from, int64_t n, uint16_t *to) {
  gemm_narrow_run(dtype == GEMM_HALF, from, n, to);
}

/* A block of rows and columns of 16-bit values as dense rows of floats. */
static void gemm_widen(const Gemm *g, const void *from, int64_t row, int64_t col, int64_t nrow, int64_t ncol,
                       float *to) {
  const uint16_t *p = from;
  for (int64_t i = 0; i < nrow; i++)
    for (int64_t j = 0; j < ncol; j += col == 1 ? ncol : 1)
      gemm_widen_run(g->dtype == GEMM_HALF, p + i * row + j * col, col == 1 ? ncol : 1, to + i * ncol + j);
}

/* ---- running ---- */

typedef struct GemmRun {
  const Gemm *g;
  void *const *ptr;
  float *scratch;
  int64_t task; /* that all threads work at */
} GemmRun;

static int64_t gemm_min(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t gemm_up(int64_t a, int64_t by) { return (a + by - 1) / by * by; }

/* The element of an operand that lies so many elements behind p. */
static void *gemm_behind(const Gemm *g, const void *p, int64_t elements) {
  return (char *)p + elements * g->bytes;
}

/* The first element of an operand in the batch of a task; NULL: it is absent. */
static void *gemm_at(const GemmRun *r, int which, int64_t task) {
  const GemmOperand *o = &r->g->t[which];
  if (!o->present) return NULL;
  int64_t batch = task / r->g->nblock, elements = 0;
  for (int i = r->g->nbatch - 1; i >= 0; i--) {
    elements += batch % r->g->size[i] * o->batch[i];
    batch /= r->g->size[i];
  }
  return gemm_behind(r->g, r->ptr[o->ptr], elements);
}

static int64_t gemm_row(const Gemm *g, int64_t task) { return task % g->nblock * g->rows; }

enum { GEMM_WIDEN = 64 /* a part of the depth that is widened at a time: it stays in the first cache */ };

static void gemm_pack_rows(const Gemm *g, const void *x, int64_t nrow, bool whole, float *to) {
  const GemmOperand *o = &g->t[MATMUL_x];
  if (g->dtype == GEMM_FLOAT) {
    g->set->pack_rows(x, o->row, o->col, nrow, whole, g->k, to);
    return;
  }
  float wide[GEMM_WIDEN * GEMM_MOST_ROWS];
  for (int64_t k = 0; k < g->k; k += GEMM_WIDEN) {
    int64_t depth = gemm_min(GEMM_WIDEN, g->k - k);
    gemm_widen(g, gemm_behind(g, x, k * o->col), o->row, o->col, nrow, depth, wide);
    g->set->pack_rows(wide, depth, 1, nrow, false, depth, to + k * g->set->rows);
  }
}

/* A column panel of w, which begins at `w` where it lies in memory. */
static void gemm_pack_columns(const GemmRun *r, const void *w, MgGemmPanel b, float *to) {
  const Gemm *g = r->g;
  const GemmOperand *o = &g->t[MATMUL_w];
  int64_t depth = b.depth, ncol = b.ncol;
  if (g->columns.pack) {
    g->columns.pack(g->columns.self, r->ptr, b, to);
    return;
  }
  if (g->dtype == GEMM_FLOAT) {
    g->set->pack_columns(w, o->row, o->col, depth, ncol, to);
    return;
  }
  float wide[GEMM_WIDEN * GEMM_MOST_PANEL];
  for (int64_t k = 0; k < depth; k += GEMM_WIDEN) {
    int64_t part = gemm_min(GEMM_WIDEN, depth - k);
    const void *at = gemm_behind(g, w, k * o->row);
    if (o->row == 1) gemm_widen(g, at, o->col, 1, ncol, part, wide);
    else gemm_widen(g, at, o->row, o->col, part, ncol, wide);
    g->set->pack_columns(wide, o->row == 1 ? 1 : ncol, o->row == 1 ? part : 1, part, ncol,
                         to + k * g->set->panel);
  }
}

/* Sums become results.  16-bit terms are widened row by row, and results rounded once. */
static void gemm_finish(const Gemm *g, float *c, int64_t nrow, int64_t ncol, void *out, const void *bias,
                        const void *residual) {
  if (g->dtype == GEMM_FLOAT) {
    g->set->finish(g, c, nrow, ncol, out, bias, residual);
    return;
  }
  const GemmOperand *b = &g->t[MATMUL_bias], * or = &g->t[MATMUL_residual];
  float wide[3][GEMM_MOST_PANEL];
  for (int64_t i = 0; i < nrow; i++) {
    if (bias) gemm_widen(g, gemm_behind(g, bias, i * b->row), 0, 1, 1, b->col ? ncol : 1, wide[1]);
    if (residual) gemm_widen(g, gemm_behind(g, residual, i * or->row), 0, 1, 1, or->col ? ncol : 1, wide[2]);
    g->set->finish(g, c + i * g->set->panel, 1, ncol, wide[0], bias ? wide[1] : NULL,
                   residual ? wide[2] : NULL);
    mg_gemm_narrow(g->dtype, wide[0], ncol, gemm_behind(g, out, i * g->t[MATMUL_out].row));
  }
}

/* Packs row panels [begin, end) of a task. */
static void gemm_pack(const GemmRun *r, int64_t task, float *to, int64_t begin, int64_t end) {
  const Gemm *g = r->g;
  const GemmOperand *o = &g->t[MATMUL_x];
  const void *x = gemm_at(r, MATMUL_x, task);
  int64_t rows = g->set->rows, first = gemm_row(g, task), last = gemm_min(first + g->rows, g->m);
  for (int64_t p = begin; p < end; p++) {
    int64_t row = first + p * rows;
    gemm_pack_rows(g, gemm_behind(g, x, row * o->row), gemm_min(rows, last - row),
                   row + g->set->lanes <= g->m, to + p * g->step);
  }
}

/* `depth` rows of `ncol` columns of w, as what is packed next. */
static GemmAhead gemm_ahead(const Gemm *g, const float *w, int64_t depth, int64_t ncol) {
  const GemmOperand *ow = &g->t[MATMUL_w];
  bool along = ow->row == 1;
  int64_t runs = along ? ncol : depth, length = (along ? depth : ncol) * g->bytes / 4;
  GemmAhead h = {w, w + length, (along ? ow->col : ow->row) * g->bytes / 4, length, 0};
  if (length > 0 && (along || ow->col == 1)) h.left = runs * ((length + GEMM_ALIGN - 1) / GEMM_ALIGN);
  return h;
}

/* One product of a row of panels with a panel of w: column panel and first row of w. */
typedef struct GemmTurn {
  int64_t panel, k;
} GemmTurn;

/* The i-th of n turns over panels [begin, end).  Where the packed rows do not stay in cache, all panels take
 * their turn at a part of the depth before the next part; each then has sums of its own. */
static GemmTurn gemm_turn_at(const Gemm *g, int64_t i, int64_t begin, int64_t end) {
  int64_t parts = (g->k + g->depth - 1) / g->depth, panels = end - begin;
  if (g->deep) return (GemmTurn){begin + i % panels, i / panels * g->depth};
  return (GemmTurn){begin + i / parts, i % parts * g->depth};
}

static const void *gemm_w_at(const Gemm *g, const void *w, GemmTurn t) {
  return gemm_behind(g, w, t.k * g->t[MATMUL_w].row + t.panel * g->set->panel * g->t[MATMUL_w].col);
}

/* The frozen panel of a turn. */
static float *gemm_frozen_at(const Gemm *g, GemmTurn t) {
  return (float *)g->frozen.mem + (t.panel * g->k + t.k) * g->set->panel;
}

static int gemm_freeze(void *arg) {
  const GemmRun *r = arg;
  const Gemm *g = r->g;
  int64_t panel = g->set->panel;
  for (GemmTurn t = {0, 0}; t.panel * panel < g->n; t.panel++) {
    MgGemmPanel b = {0, g->k, t.panel * panel, gemm_min(panel, g->n - t.panel * panel), panel};
    gemm_pack_columns(r, gemm_w_at(g, gemm_at(r, MATMUL_w, 0), t), b, gemm_frozen_at(g, t));
  }
  return 0;
}

/* What the turn after this one reads of w, which is missing where this one is the last. */
static GemmAhead gemm_ahead_of(const Gemm *g, const void *w, GemmTurn t, bool last) {
  int64_t panel = g->set->panel, depth = last ? 0 : gemm_min(g->depth, g->k - t.k);
  if (g->columns.pack) return (GemmAhead){0};
  if (!g->frozen.mem)
    return gemm_ahead(g, gemm_w_at(g, w, t), depth, last ? 0 : gemm_min(panel, g->n - t.panel * panel));
  const float *at = gemm_frozen_at(g, t);
  return (GemmAhead){at, at + depth * panel, 0, depth * panel, depth * panel / GEMM_ALIGN};
}

/* Column panels [begin, end) of a task whose rows are packed at a. */
static void gemm_columns(const GemmRun *r, int64_t task, const float *a, float *slot, int64_t begin,
                         int64_t end) {
  const Gemm *g = r->g;
  const GemmOperand *ob = &g->t[MATMUL_bias], * or = &g->t[MATMUL_residual];
  int64_t panel = g->set->panel, row = gemm_row(g, task), nrow = gemm_min(g->rows, g->m - row);
  const void *w = gemm_at(r, MATMUL_w, task), *bias = gemm_at(r, MATMUL_bias, task);
  const void *residual = gemm_at(r, MATMUL_residual, task);
  void *out = gemm_at(r, MATMUL_out, task);
  float *b = slot, *sums = slot + panel * g->depth;
  int64_t n = (end - begin) * ((g->k + g->depth - 1) / g->depth);
  int64_t part =
      g->k <= g->depth ? gemm_min(nrow, MG_TUNE_GEMM_PART) : nrow; /* sums of short products stay in cache */
  for (int64_t i = 0; i < n; i++) {
    GemmTurn t = gemm_turn_at(g, i, begin, end), next = gemm_turn_at(g, i + 1 < n ? i + 1 : i, begin, end);
    int64_t col = t.panel * panel, ncol = gemm_min(panel, g->n - col), depth = gemm_min(g->depth, g->k - t.k);
    float *c = sums + (g->deep ? (t.panel - begin) * g->rows * panel : 0);
    GemmAhead ahead = gemm_ahead_of(g, w, next, i + 1 == n);
    if (g->frozen.mem) b = gemm_frozen_at(g, t);
    else gemm_pack_columns(r, gemm_w_at(g, w, t), (MgGemmPanel){t.k, depth, col, ncol, panel}, b);
    for (int64_t j = 0; j < nrow; j += part) {
      int64_t rows = gemm_min(part, nrow - j), at = row + j;
      g->set->stripe(a + j / g->set->rows * g->step + t.k * g->set->rows, g->step, b, depth, c, rows, t.k > 0,
                     &ahead);
      if (t.k + depth < g->k) continue;
      gemm_finish(g, c, rows, ncol, gemm_behind(g, out, at * g->t[MATMUL_out].row + col),
                  bias ? gemm_behind(g, bias, at * ob->row + col * ob->col) : NULL,
                  residual ? gemm_behind(g, residual, at * or->row + col * or->col) : NULL);
    }
  }
}

static int64_t gemm_row_panels(const Gemm *g, int64_t task) {
  return (gemm_min(g->rows, g->m - gemm_row(g, task)) + g->set->rows - 1) / g->set->rows;
}

static void gemm_pack_range(void *const *buf, const int64_t *size, int64_t begin, int64_t end) {
  const GemmRun *r = buf[0];
  gemm_pack(r, r->task, r->scratch, begin, end);
}

/* Shares [begin, end) of the columns of one task. */
static void gemm_columns_range(void *const *buf, const int64_t *size, int64_t begin, int64_t end) {
  const GemmRun *r = buf[0];
  const Gemm *g = r->g;
  int64_t panels = (g->n + g->set->panel - 1) / g->set->panel;
  for (int64_t s = begin; s < end; s++)
    gemm_columns(r, r->task, r->scratch, r->scratch + g->rows_floats + s * g->slot_floats,
                 panels * s / g->nslot, panels * (s + 1) / g->nslot);
}

/* Shares [begin, end) of all tasks. */
static void gemm_tasks_range(void *const *buf, const int64_t *size, int64_t begin, int64_t end) {
  const GemmRun *r = buf[0];
  const Gemm *g = r->g;
  int64_t panels = (g->n + g->set->panel - 1) / g->set->panel;
  for (int64_t s = begin; s < end; s++) {
    float *slot = r->scratch + s * g->slot_floats, *rows = slot + g->slot_floats - g->rows_floats;
    for (int64_t task = g->tasks * s / g->nslot; task < g->tasks * (s + 1) / g->nslot; task++) {
      gemm_pack(r, task, rows, 0, gemm_row_panels(g, task));
      gemm_columns(r, task, rows, slot, 0, panels);
    }
  }
}

static int gemm_run(const MgEngine *e, MgEngineArgs *a) {
  GemmRun r = {(const Gemm *)e, a->ptr, a->scratch, 0};
  const Gemm *g = r.g;
  void *buf[1] = {&r};
  if (g->frozen.mem) mg_frozen_fill(&((Gemm *)e)->frozen, gemm_freeze, &r);
  if (!g->shared) {
    MgRange all = {gemm_tasks_range, buf, NULL, g->nslot, 1};
    mg_threads_run(&all, 1, 0);
    return 0;
  }
  for (; r.task < g->tasks; r.task++) {
    int64_t panels = gemm_row_panels(g, r.task), grain = MG_TUNE_GEMM_PACK_GRAIN / g->step + 1;
    MgRange range[2] = {{gemm_pack_range, buf, NULL, panels, g->nslot > 1 ? grain : panels},
                        {gemm_columns_range, buf, NULL, g->nslot, 1}};
    mg_threads_run(range, 2, 0);
  }
  return 0;
}

static void gemm_free(MgEngine *e) {
  mg_frozen_free(&((Gemm *)e)->frozen);
  free(e);
}

static const MgEngineOps gemm_ops = {"tiled.matmul", gemm_run, NULL, NULL, gemm_free};

/* ---- setting up ---- */

static const GemmSet *gemm_set(void) {
#if defined(__x86_64__)
  if (mg_cpu()->avx512) return &gemm_set_avx512;
  if (mg_cpu()->avx2 && mg_cpu()->fma) return &gemm_set_avx2;
#endif
  return &gemm_set_any;
}

/* Stride of dimension i of `ndim`, counted from the result's; 0 where the operand repeats. */
static int64_t gemm_stride(const MgTensorDesc *t, int ndim, int i) {
  int at = i - (ndim - t->ndim);
  return at < 0 || t->size[at] == 1 ? 0 : t->stride[at];
}

static void gemm_operand(const MgTensorDesc *t, int ndim, GemmOperand *o) {
  o->present = t->present;
  if (!t->present) return;
  o->row = gemm_stride(t, ndim, ndim - 2);
  o->col = gemm_stride(t, ndim, ndim - 1);
  for (int i = 0; i < ndim - 2; i++) o->batch[i] = gemm_stride(t, ndim, i);
}

/* Makes the innermost batch dimension rows, if w is the same in all of it and rows go on in equal steps. */
static bool gemm_fold(Gemm *g) {
  int last = g->nbatch - 1;
  bool one = g->m == 1; /* then it has no step of its own yet */
  for (int i = 0; i < MATMUL_NPTR; i++) {
    const GemmOperand *o = &g->t[i];
    if (!o->present) continue;
    if (i == MATMUL_w ? o->batch[last] : !one && o->batch[last] != o->row * g->m) return false;
  }
  for (int i = 0; i < MATMUL_NPTR && one; i++)
    if (i != MATMUL_w) g->t[i].row = g->t[i].batch[last];
  g->m *= g->size[last];
  g->nbatch--;
  return true;
}

/* The transposed product, which writes rows where this one writes columns. */
static void gemm_turn(Gemm *g) {
  GemmOperand x = g->t[MATMUL_x];
  int64_t m = g->m;
  g->t[MATMUL_x] = g->t[MATMUL_w];
  g->t[MATMUL_w] = x;
  g->m = g->n;
  g->n = m;
  for (int i = 0; i < MATMUL_NPTR; i++) {
    int64_t row = g->t[i].row;
    g->t[i].row = g->t[i].col;
    g->t[i].col = row;
  }
}

static bool gemm_act_of(const MgActDesc *act, Gemm *g) {
  const char *name = act->name ? act->name : "";
  size_t n = sizeof gemm_acts / sizeof *gemm_acts, i = 0;
  while (i < n && strcmp(gemm_acts[i], name)) i++;
  g->act = (GemmAct)i;
  g->act_a = act->a;
  g->act_b = act->b;
  return i < n;
}

static bool gemm_describe(const MgMatmulDesc *d, Gemm *g) {
  const MgTensorDesc *x = &d->t[MATMUL_x], *o = &d->t[MATMUL_out];
  int ndim = o->ndim;
  if (ndim < 2 || x->ndim < 2 || d->t[MATMUL_w].ndim < 2 || !gemm_act_of(&d->act, g)) return false;
  if (o->dtype != GEMM_FLOAT && !(gemm_is_short(o->dtype) && gemm_widens())) return false;
  for (int i = 0; i < MATMUL_NPTR; i++) {
    const MgTensorDesc *t = &d->t[i];
    if (!t->present) continue;
    if (t->dtype != o->dtype || t->ndim > ndim) return false;
    g->t[i].ptr = i;
    gemm_operand(t, ndim, &g->t[i]);
  }
  g->dtype = o->dtype;
  g->bytes = o->dtype == GEMM_FLOAT ? 4 : 2;
  g->m = o->size[ndim - 2];
  g->n = o->size[ndim - 1];
  g->k = x->size[x->ndim - 1];
  g->nbatch = ndim - 2;
  for (int i = 0; i < g->nbatch; i++) g->size[i] = o->size[i];
  for (int i = 0; i < ndim; i++)
    if (o->size[i] < 1) return false;
  if (g->k < 1) return false;
  if (g->t[MATMUL_out].col != 1 && g->n > 1) gemm_turn(g);
  if (g->t[MATMUL_out].col != 1 && g->n > 1) return false;
  for (int i = MATMUL_bias; i <= MATMUL_residual && o->dtype != GEMM_FLOAT; i++)
    if (g->t[i].present && g->t[i].col > 1) return false; /* its rows are widened as runs */
  for (int n = 0; n != g->nbatch && g->nbatch > 0;) {     /* until nothing changes */
    n = g->nbatch;
    if (g->size[n - 1] == 1) g->nbatch--;
    else gemm_fold(g);
  }
  return true;
}

/* How the work is cut. */
static void gemm_cut(Gemm *g) {
  int64_t batches = 1, panel = g->set->panel, rows = g->set->rows, panels = (g->n + panel - 1) / panel;
  for (int i = 0; i < g->nbatch; i++) batches *= g->size[i];
  double work = (double)batches * (double)g->m * (double)g->n * (double)g->k;
  g->e.single = work <= MG_TUNE_MATMUL_SMALL;
  int64_t threads = g->e.single ? 1 : mg_abi_threads();
  int64_t most = MG_TUNE_GEMM_ROW_BYTES / (int64_t)sizeof(float) / g->k;
  most = most < MG_TUNE_GEMM_LEAST_ROWS ? MG_TUNE_GEMM_LEAST_ROWS : most;
  g->shared = batches < threads && panels >= 4 * threads;
  int64_t blocks = (g->m + most - 1) / most;
  if (!g->shared && batches * blocks < 4 * threads) { /* smaller blocks, to have enough of them */
    int64_t want = (4 * threads + batches - 1) / batches, can = g->m / MG_TUNE_GEMM_LEAST_ROWS;
    int64_t more = gemm_min(want, can);
    blocks = more > blocks ? more : blocks;
    if (batches * blocks < threads && panels >= threads) g->shared = true;
  }
  g->rows = gemm_up((g->m + blocks - 1) / blocks, rows);
  g->nblock = (g->m + g->rows - 1) / g->rows;
  g->tasks = batches * g->nblock;
  g->nslot = gemm_min(threads, g->shared ? panels : g->tasks);
  g->step = gemm_up(g->k * rows + g->set->lanes, GEMM_ALIGN);
  g->rows_floats = (g->rows / rows) * g->step;
  int64_t parts = (g->k + MG_TUNE_GEMM_DEPTH - 1) / MG_TUNE_GEMM_DEPTH;
  g->depth = gemm_up((g->k + parts - 1) / parts, GEMM_ALIGN);
  int64_t each = (panels + g->nslot - 1) / g->nslot; /* panels of a slot, at most */
  if (!g->shared) each = panels;
  g->deep = parts > 1 && g->rows * g->k * (int64_t)sizeof(float) > MG_TUNE_GEMM_NEAR_BYTES &&
            each * g->rows * panel * (int64_t)sizeof(float) <= MG_TUNE_GEMM_ROW_BYTES;
  g->slot_floats = g->depth * panel + gemm_up((g->deep ? each : 1) * g->rows * panel, GEMM_ALIGN);
  if (!g->shared) g->slot_floats += g->rows_floats;
  int64_t floats = g->nslot * g->slot_floats + (g->shared ? g->rows_floats : 0);
  g->e.scratch = (uint64_t)floats * sizeof(float);
}

/* Are the tiles known to be fast here?  On Intel's CPUs with AVX-512 nothing was measured. */
static bool gemm_fast(void) {
  const MgCpu *c = mg_cpu();
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (c->avx512) return !__builtin_cpu_is("intel");
#endif
  return (c->avx2 && c->fma) || !mg_onednn_ready();
}

bool mg_gemm_wanted(void) { return mg_env(ENV_GEMM) ? mg_env_switch(ENV_GEMM, false) : gemm_fast(); }

bool mg_gemm_widens(bool half) {
  return mg_gemm_wanted() && gemm_widens() && !gemm_short_is_fast(half ? GEMM_HALF : GEMM_BFLOAT16);
}

/* Is a product faster so than by oneDNN?  With AVX-512 that is so for little ones, whose call of the library
 * takes longer than they do, and where w comes from memory and the packed rows and sums stay near. */
static bool gemm_prefers(const Gemm *g, bool frozen) {
  if (g->dtype != GEMM_FLOAT)
    return g->m >= MG_TUNE_GEMM_FEW && g->n >= MG_TUNE_GEMM_FEW && !gemm_short_is_fast(g->dtype);
  if (mg_env(ENV_GEMM) || !mg_onednn_ready()) return true;
  if (!mg_cpu()->avx512) return g->m >= MG_TUNE_GEMM_FEW && g->n >= MG_TUNE_GEMM_FEW;
  if (frozen) return false;
  if (!g->nbatch && (double)g->m * (double)g->n * (double)g->k <= MG_TUNE_GEMM_LITTLE) return true;
  if (g->m < MG_TUNE_GEMM_TALL || g->n * g->k < MG_TUNE_GEMM_WEIGHTS) return false;
  return !g->deep || g->rows * g->k * (int64_t)sizeof(float) <= MG_TUNE_GEMM_DEEP_BYTES;
}

/* Is w what the panels of columns are made of, and the same in all batches? */
static bool gemm_keeps(const Gemm *g) {
  for (int i = 0; i < g->nbatch; i++)
    if (g->t[MATMUL_w].batch[i]) return false;
  return g->t[MATMUL_w].ptr == MATMUL_w;
}

static uint64_t gemm_frozen_bytes(const Gemm *g) {
  int64_t panels = (g->n + g->set->panel - 1) / g->set->panel;
  return (uint64_t)(panels * g->set->panel * g->k) * sizeof(float);
}

/* any: also where the library is known to be faster; w: NULL, or where its columns come from. */
static MgRc gemm_make(MgCtx *c, const MgMatmulDesc *d, bool any, const MgGemmColumns *w, MgEngine **out) {
  Gemm g = {.e.ops = &gemm_ops, .set = gemm_set()};
  if (w) g.columns = *w;
  if (!gemm_describe(d, &g)) return MG_UNSUP;
  gemm_cut(&g);
  if (!any && !gemm_prefers(&g, d->frozen)) return MG_UNSUP;
  Gemm *e = mg_malloc(sizeof *e);
  if (!e) return mg_fail(c, MG_NOMEM, "matmul engine");
  *e = g;
  *out = &e->e;
  if (d->frozen && gemm_keeps(e)) mg_frozen_init(&e->frozen, gemm_frozen_bytes(e)); /* without: every call */
  return MG_OK;
}

MgRc mg_gemm_matmul(MgCtx *c, const MgMatmulDesc *d, MgEngine **out) {
  return mg_gemm_wanted() ? gemm_make(c, d, false, NULL, out) : MG_UNSUP;
}

MgRc mg_gemm_any(MgCtx *c, const MgMatmulDesc *d, MgEngine **out) { return gemm_make(c, d, true, NULL, out); }

MgRc mg_gemm_columns(MgCtx *c, const MgMatmulDesc *d, const MgGemmColumns *w, MgEngine **out) {
  return gemm_make(c, d, true, w, out);
}
