/* Products with weights of four bits.
 * In: a description.  Out: an engine that widens weights in registers for a few rows of x, and while columns
 * are packed into panels (gemm.h) for more of them.
 *
 * The bytes, as ATen's int4mm_kernel.cpp writes them: columns in blocks of 64 (AVX-512) or 32, all rows of a
 * block before the next block.  A row of a whole block, 16 bytes a line, low half and high half of a byte:
 *   64 columns:  0..15 | 32..47     32 columns:  0..15 | 16..31
 *               16..31 | 48..63
 * Without AVX2, and in a block of what is left, neighbours share a byte.
 * Invariant: columns that share a byte so are computed one by one; all others in runs of a vector. */
#include "runtime/direct/int4_product.h"
#include <stdlib.h>
#include <string.h>
#include "runtime/engine/gemm.h"
#include "runtime/engine/simd.h"
#include "runtime/process/cpu.h"
#include "runtime/process/threads.h"
#include "runtime/process/torch_abi.h"
#include "tuning.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { INT4_MOST_ROWS = 4, INT4_LINE = 16, INT4_BYTE = 0, INT4_FLOAT = 6 /* c10::ScalarType */ };

typedef struct Int4 {
  MgEngine e;
  int64_t m, n, k, group, ngroup;
  int64_t block;  /* columns of a block */
  bool pairs;     /* in all blocks neighbours share a byte */
  uint8_t dtype;  /* of x, terms and result */
  MgEngine *many; /* tiles; NULL: few rows */
} Int4;

/* A few rows of x with the columns of one run of bytes: those of the low halves, and those of the high ones.
 */
typedef struct Int4Rows {
  const Int4 *v;
  const uint8_t *w;   /* of the first row */
  int64_t step;       /* bytes from a row to the next */
  const float *x;     /* rows of k */
  const float *total; /* sums of x over each group, rows of ngroup */
  float *out[INT4_MOST_ROWS][2];
  const void *memory; /* all terms */
  int64_t col[2];
  const float *terms[2];        /* of the group that int4_load was called for */
  float wide[2][2 * INT4_LINE]; /* and where it puts them, unless they are floats in memory */
} Int4Rows;

typedef struct Int4Set { /* the code of one instruction set: int4_tile.h */
  int lanes;
  void (*unpack)(const uint8_t *p, int64_t step, int shift, int64_t depth, const float *terms, int64_t panel,
                 float *to);
  void (*rows)(Int4Rows *t, int nrow);
} Int4Set;

/* Scale and zero of n columns from `col` on; wide: room for them. */
static const float *int4_terms(const Int4 *v, const void *terms, int64_t group, int64_t col, int64_t n,
                               float *wide) {
  int64_t at = (group * v->n + col) * 2;
  if (v->dtype == INT4_FLOAT) return (const float *)terms + at;
  mg_gemm_widen(v->dtype, (const uint16_t *)terms + at, 2 * n, wide);
  return wide;
}

static void int4_load(Int4Rows *t, int64_t group, int64_t lanes) {
  for (int i = 0; i < 2; i++) t->terms[i] = int4_terms(t->v, t->memory, group, t->col[i], lanes, t->wide[i]);
}

#define SIMD_SET any
#define SIMD_LANES 4
#define SIMD_MAX(a, b) ((a) > (b) ? (a) : (b))
#define INT4_BYTES(p) ((MgI4){(p)[0], (p)[1], (p)[2], (p)[3]})
#define INT4_NUMBER(v) __builtin_convertvector((v) & 15, MgF4)
#include "runtime/engine/simd.h"
#include "runtime/direct/int4_tile.h"
#include "runtime/engine/simd_end.h"
#if defined(__x86_64__)
MG_TARGET_BEGIN("avx2,fma")
#define SIMD_SET avx2
#define SIMD_LANES 8
#define SIMD_MAX(a, b) ((MgF8)_mm256_max_ps((__m256)(a), (__m256)(b)))
#define INT4_BYTES(p) ((MgI8)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(p))))
#define INT4_NUMBER(v) __builtin_convertvector((v) & 15, MgF8)
#include "runtime/engine/simd.h"
#include "runtime/direct/int4_tile.h"
#include "runtime/engine/simd_end.h"
MG_TARGET_END
static const MgF16 int4_numbers = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
MG_TARGET_BEGIN("avx512f,avx512dq,avx512vl,avx512bw")
#define SIMD_SET avx512
#define SIMD_LANES 16
#define SIMD_MAX(a, b) ((MgF16)_mm512_max_ps((__m512)(a), (__m512)(b)))
#define INT4_BYTES(p) ((MgI16)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(p))))
#define INT4_NUMBER(v) ((MgF16)_mm512_permutexvar_ps((__m512i)(v), (__m512)int4_numbers))
#include "runtime/engine/simd.h"
#include "runtime/direct/int4_tile.h"
#include "runtime/engine/simd_end.h"
MG_TARGET_END
#endif

static const Int4Set *int4_set(void) {
#if defined(__x86_64__)
  if (mg_cpu()->avx512) return &int4_set_avx512;
  if (mg_cpu()->avx2 && mg_cpu()->fma) return &int4_set_avx2;
#endif
  return &int4_set_any;
}

static int64_t int4_min(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- where weights are ---- */

typedef struct Int4Place { /* of one column, in the first row */
  int64_t byte, step;
  int shift;
  bool alone; /* its neighbour is in the same byte */
} Int4Place;

static Int4Place int4_place(const Int4 *v, int64_t col) {
  int64_t block = col / v->block, at = col % v->block;
  int64_t half = int4_min(v->n - block * v->block, v->block) / 2;
  Int4Place p = {block * v->k * v->block / 2, half, 0, v->pairs || 2 * half < v->block};
  p.byte += p.alone ? at / 2 : at % half;
  p.shift = (p.alone ? at % 2 : at >= half) ? 4 : 0;
  return p;
}

/* Rows [k, k + depth) of one column, all of one group. */
static void int4_column(const Int4 *v, const uint8_t *w, int64_t col, int64_t k, int64_t depth,
                        const float *terms, int64_t panel, float *to) {
  Int4Place p = int4_place(v, col);
  for (int64_t i = 0; i < depth; i++)
    to[i * panel] = (float)((w[p.byte + (k + i) * p.step] >> p.shift & 15) - 8) * terms[0] + terms[1];
}

/* ---- columns for tiles ---- */

enum { INT4_OWN = MATMUL_NPTR /* the terms stand behind the pointers of a product */ };

/* Columns of one vector: rows [k, k + depth) of one group. */
static void int4_part(const Int4 *v, void *const *ptr, int64_t k, int64_t depth, int64_t col, int64_t panel,
                      float *to) {
  const Int4Set *set = int4_set();
  float wide[2 * INT4_LINE];
  const float *t = int4_terms(v, ptr[INT4_OWN], k / v->group, col, set->lanes, wide);
  const uint8_t *w = ptr[MATMUL_w];
  Int4Place p = int4_place(v, col);
  if (!p.alone) set->unpack(w + p.byte + k * p.step, p.step, p.shift, depth, t, panel, to);
  for (int64_t j = 0; p.alone && j < set->lanes; j++)
    int4_column(v, w, col + j, k, depth, t + 2 * j, panel, to + j);
}

/* As MgGemmColumns says.  Columns are a multiple of INT4_LINE, so parts of a panel are there or missing. */
static void int4_pack(const void *self, void *const *ptr, MgGemmPanel b, float *to) {
  const Int4 *v = self;
  int64_t lanes = int4_set()->lanes;
  if (b.ncol < b.panel) memset(to, 0, (size_t)(b.depth * b.panel) * sizeof *to);
  for (int64_t k = 0, part; k < b.depth; k += part) {
    part = int4_min(v->group - (b.k + k) % v->group, b.depth - k);
    for (int64_t j = 0; j < b.ncol; j += lanes)
      int4_part(v, ptr, b.k + k, part, b.col + j, b.panel, to + k * b.panel + j);
  }
}

/* ---- few rows ---- */

typedef struct Int4Run {
  const Int4 *v;
  void *const *ptr;
  const float *x, *total;
} Int4Run;

/* Results of `nrow` rows, from `row` on, are written: n of them next to each other. */
static void int4_write(const Int4Run *r, int64_t row, int64_t col, const float *from, int64_t n) {
  const Int4 *v = r->v;
  int64_t at = row * v->n + col;
  if (v->dtype == INT4_FLOAT) memcpy((float *)r->ptr[INT4_out] + at, from, (size_t)n * sizeof *from);
  else mg_gemm_narrow(v->dtype, from, n, (uint16_t *)r->ptr[INT4_out] + at);
}

/* The columns of one run of bytes, which begin at `col`. */
static void int4_strip(const Int4Run *r, int64_t col, int64_t lanes) {
  const Int4 *v = r->v;
  float sum[INT4_MOST_ROWS][2][INT4_LINE];
  Int4Place p = int4_place(v, col);
  Int4Rows t = {.v = v, .w = (const uint8_t *)r->ptr[INT4_w] + p.byte, .step = p.step};
  t.memory = r->ptr[INT4_terms];
  t.col[0] = col;
  t.col[1] = col + v->block / 2;
  for (int i = 0; i < INT4_MOST_ROWS * 2; i++) t.out[i / 2][i % 2] = sum[i / 2][i % 2];
  for (int64_t row = 0; row < v->m; row += INT4_MOST_ROWS) {
    int64_t nrow = int4_min(v->m - row, INT4_MOST_ROWS);
    t.x = r->x + row * v->k;
    t.total = r->total + row * v->ngroup;
    int4_set()->rows(&t, (int)nrow);
    for (int64_t i = 0; i < 2 * nrow; i++) int4_write(r, row + i / 2, t.col[i % 2], sum[i / 2][i % 2], lanes);
  }
}

/* One column that shares its bytes with its neighbour. */
static void int4_single(const Int4Run *r, int64_t col) {
  const Int4 *v = r->v;
  float sum[MG_TUNE_INT4_FEW] = {0}, wide[2], w[INT4_LINE];
  for (int64_t k = 0, part; k < v->k; k += part) {
    const float *t = int4_terms(v, r->ptr[INT4_terms], k / v->group, col, 1, wide);
    part = int4_min(INT4_LINE, v->group - k % v->group);
    int4_column(v, r->ptr[INT4_w], col, k, part, t, 1, w);
    for (int64_t i = 0; i < v->m; i++)
      for (int64_t j = 0; j < part; j++) sum[i] += r->x[i * v->k + k + j] * w[j];
  }
  for (int64_t i = 0; i < v->m; i++) int4_write(r, i, col, &sum[i], 1);
}

/* Blocks [begin, end). */
static void int4_range(void *const *buf, const int64_t *size, int64_t begin, int64_t end) {
  const Int4Run *r = buf[0];
  int64_t block = r->v->block, lanes = int4_set()->lanes;
  for (int64_t b = begin; b < end; b++) {
    int64_t last = int4_min(r->v->n, (b + 1) * block);
    bool alone = int4_place(r->v, b * block).alone;
    for (int64_t col = b * block; alone && col < last; col++) int4_single(r, col);
    for (int64_t at = 0; !alone && at < block / 2; at += lanes) int4_strip(r, b * block + at, lanes);
  }
}

static void int4_few(const Int4 *v, const MgEngineArgs *a) {
  float *total = a->scratch, *x = a->ptr[INT4_x];
  if (v->dtype != INT4_FLOAT) {
    x = total + v->m * v->ngroup;
    mg_gemm_widen(v->dtype, a->ptr[INT4_x], v->m * v->k, x);
  }
  for (int64_t i = 0; i < v->m * v->ngroup; i++) {
    total[i] = 0;
    for (int64_t j = 0; j < v->group; j++) total[i] += x[i * v->group + j];
  }
  Int4Run run = {v, a->ptr, x, total};
  void *buf[1] = {&run};
  int64_t blocks = (v->n + v->block - 1) / v->block, grain = MG_TUNE_MATMUL_SMALL / (v->m * v->k * v->block);
  MgRange all = {int4_range, buf, NULL, blocks, v->e.single ? blocks : grain + 1};
  mg_threads_run(&all, 1, 0);
}

/* ---- the engine ---- */

static int int4_run(const MgEngine *e, MgEngineArgs *a) {
  const Int4 *v = (const Int4 *)e;
  if (!v->many) return int4_few(v, a), 0;
  void *ptr[INT4_OWN + 1] = {0};
  ptr[MATMUL_x] = a->ptr[INT4_x];
  ptr[MATMUL_w] = a->ptr[INT4_w];
  ptr[MATMUL_out] = a->ptr[INT4_out];
  ptr[INT4_OWN] = a->ptr[INT4_terms];
  MgEngineArgs inner = {.ptr = ptr, .scratch = a->scratch};
  return v->many->ops->run(v->many, &inner);
}

static void int4_free(MgEngine *e) {
  Int4 *v = (Int4 *)e;
  if (v->many) v->many->ops->free(v->many);
  free(v);
}

static const MgEngineOps int4_ops = {"direct.int4", int4_run, NULL, NULL, int4_free};

/* How ATen's kernels of this process pack: they choose by the processor and ATEN_CPU_CAPABILITY. */
static bool int4_layout(Int4 *v) {
  struct { /* std::string, of the new ABI; a short one is kept inside */
    const char *text;
    size_t length;
    char inside[16];
  } name = {0};
  void *f = mg_abi_symbol("_ZN2at18get_cpu_capabilityB5cxx11Ev");
  if (!f) return false;
  ((void (*)(void *))f)(&name); /* a class is returned where the first argument points */
  if (name.text != name.inside) return false;
  v->block = strcmp(name.inside, "AVX512") ? 32 : 64;
  v->pairs = !strcmp(name.inside, "DEFAULT");
  return v->pairs || !strcmp(name.inside, "AVX2") || v->block == 64;
}

static bool int4_dense(const MgTensorDesc *t, int ndim) {
  int64_t step = 1;
  if (!t->present || t->ndim != ndim) return false;
  for (int i = ndim - 1; i >= 0; step *= t->size[i--])
    if (t->size[i] < 1 || (t->size[i] > 1 && t->stride[i] != step)) return false;
  return true;
}

static bool int4_describe(const MgInt4Desc *d, Int4 *v) {
  const MgTensorDesc *x = &d->t[INT4_x], *w = &d->t[INT4_w], *t = &d->t[INT4_terms], *o = &d->t[INT4_out];
  if (!int4_dense(x, 2) || !int4_dense(w, 2) || !int4_dense(t, 3) || !int4_dense(o, 2)) return false;
  v->dtype = x->dtype;
  v->m = x->size[0];
  v->k = x->size[1];
  v->n = w->size[0];
  v->group = d->group;
  if (w->dtype != INT4_BYTE || t->dtype != x->dtype || o->dtype != x->dtype) return false;
  if (x->dtype != INT4_FLOAT && !mg_gemm_has_short(x->dtype)) return false;
  if (v->group < INT4_LINE || v->group % INT4_LINE || v->k % v->group || v->n % INT4_LINE) return false;
  v->ngroup = v->k / v->group;
  return w->size[1] == v->k / 2 && t->size[0] == v->ngroup && t->size[1] == v->n && t->size[2] == 2;
}

static MgRc int4_tiles(MgCtx *c, Int4 *v, const MgInt4Desc *d) {
  MgMatmulDesc m = {.act = {.name = ""}};
  m.t[MATMUL_x] = d->t[INT4_x];
  m.t[MATMUL_out] = d->t[INT4_out];
  m.t[MATMUL_w] = (MgTensorDesc){true, 2, v->dtype, {v->k, v->n}, {v->n, 1}};
  TRY(mg_gemm_columns(c, &m, &(MgGemmColumns){int4_pack, v}, &v->many));
  v->e.scratch = v->many->scratch;
  v->e.single = v->many->single;
  return MG_OK;
}

MgRc mg_int4_product(MgCtx *c, const MgInt4Desc *d, MgEngine **out) {
  Int4 v = {.e.ops = &int4_ops};
  if (!int4_describe(d, &v) || !int4_layout(&v)) return MG_UNSUP;
  Int4 *e = mg_malloc(sizeof *e);
  if (!e) return mg_fail(c, MG_NOMEM, "int4 engine");
  *e = v;
  MgRc rc = MG_OK;
  if (v.m > MG_TUNE_INT4_FEW) rc = int4_tiles(c, e, d);
  else {
    e->e.single = (double)v.m * (double)v.n * (double)v.k <= MG_TUNE_MATMUL_SMALL;
    e->e.scratch = (uint64_t)(v.m * (v.ngroup + v.k)) * sizeof(float);
  }
  if (rc == MG_OK) *out = &e->e;
  else free(e);
  return rc;
}
