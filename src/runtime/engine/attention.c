/* Attention by blocks of queries: the scores of a block against all its keys stay in cache, are normalised
 * there and multiplied by the values at once; nothing of size query x key reaches memory.
 * A few queries (decoding with a cache) read keys and values where these lie; more are worth packing them.
 * attention_tile.h has the code; it is compiled once per instruction set, and the set is
 * chosen when the engine is made. */
#include "runtime/engine/attention.h"
#include "runtime/process/cpu.h"
#include "runtime/engine/simd.h"
#include "runtime/process/threads.h"
#include "tuning.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { ALIGN = 16 }; /* floats of a cache line */

typedef struct Sdpa Sdpa;
typedef struct SdpaSet {  /* the code of one instruction set */
  int lanes, panel, rows; /* floats of a vector; columns and rows of a register tile */
  void (*block)(const Sdpa *s, void *const *ptr, float *scratch, int64_t head, int64_t row, int64_t nrow);
  void (*few)(const Sdpa *s, void *const *ptr, float *scratch, int64_t head);
  void (*pack_keys)(const Sdpa *s, const float *k, float *to);
  void (*pack_values)(const Sdpa *s, const float *v, float *to);
} SdpaSet;

struct Sdpa {
  MgEngine e;
  MgSdpaDesc d;
  int64_t batch, head, nquery, nkey, dim, vdim;
  int64_t vpad;                     /* value width rounded up to lanes */
  int64_t key_floats, value_floats; /* size of packed keys and values */
  int64_t line;                     /* from one row of scores to the next */
  int64_t rows, per;                /* queries per block; blocks per head */
  bool few;                         /* too few queries to pack keys and values for: a block is a head */
  int64_t nslot;                    /* shares of the work, each with scratch memory of its own */
  uint64_t slot_floats;             /* size of that */
  const SdpaSet *set;
};

/* Scratch memory of one share: keys and values by panels, scaled queries, scores, results. */
MG_INLINE float *part_keys(const Sdpa *s, float *scratch) { return scratch; }
MG_INLINE float *part_values(const Sdpa *s, float *scratch) { return scratch + s->key_floats; }
MG_INLINE float *part_queries(const Sdpa *s, float *scratch) {
  return part_values(s, scratch) + s->value_floats;
}
MG_INLINE float *part_scores(const Sdpa *s, float *scratch) {
  return part_queries(s, scratch) + s->rows * s->dim;
}
MG_INLINE float *part_out(const Sdpa *s, float *scratch) {
  return part_scores(s, scratch) + s->rows * s->line;
}

MG_INLINE const float *at(const Sdpa *s, void *const *ptr, int which, int64_t head) {
  const int64_t *st = s->d.t[which].stride;
  return (const float *)ptr[which] + head / s->head * st[0] + head % s->head * st[1];
}

/* A row whose largest score is -inf: n results of 0, and the sum 0; NaN if a score is NaN. */
static float nothing_seen(float *s, int64_t n) {
  float sum = 0;
  for (int64_t i = 0; i < n; i++) {
    if (s[i] != s[i]) sum = s[i];
    s[i] = 0;
  }
  return sum;
}

/* Accumulators, the columns and one factor fill the registers: 12 + 2 + 1 of 16, 24 + 4 + 1 of 32; without
 * FMA a product needs one more. */
#define SIMD_SET any
#define SIMD_LANES 4
#if defined(__x86_64__)
#define SIMD_MAX(a, b) ((MgF4)_mm_max_ps((__m128)(a), (__m128)(b)))
#else
#define SIMD_MAX(a, b) ((MgF4)(((a) > (b) & (MgI4)(a)) | (~((a) > (b)) & (MgI4)(b))))
#endif
#define SDPA_WIDE 2
#define SDPA_ROWS 4
#include "runtime/engine/simd.h"
#include "runtime/engine/attention_tile.h"
#include "runtime/engine/simd_end.h"
#if defined(__x86_64__)
MG_TARGET_BEGIN("avx2,fma")
#define SIMD_SET avx2
#define SIMD_LANES 8
#define SIMD_MAX(a, b) ((MgF8)_mm256_max_ps((__m256)(a), (__m256)(b)))
#define SDPA_WIDE 2
#define SDPA_ROWS 6
#include "runtime/engine/simd.h"
#include "runtime/engine/attention_tile.h"
#include "runtime/engine/simd_end.h"
MG_TARGET_END
MG_TARGET_BEGIN("avx512f")
#define SIMD_SET avx512
#define SIMD_LANES 16
#define SIMD_MAX(a, b) ((MgF16)_mm512_max_ps((__m512)(a), (__m512)(b)))
#define SDPA_WIDE 4
#define SDPA_ROWS 6
#include "runtime/engine/simd.h"
#include "runtime/engine/attention_tile.h"
#include "runtime/engine/simd_end.h"
MG_TARGET_END
#endif

/* few: rows of q, k and v are read as they are, by whole vectors where their width is a multiple of these. */
static const SdpaSet *sdpa_set(bool few, int64_t widths) {
#if defined(__x86_64__)
  if (mg_cpu()->avx512 && !(few && widths % sdpa_avx512.lanes)) return &sdpa_avx512;
  if (mg_cpu()->avx2 && mg_cpu()->fma) return &sdpa_avx2;
#endif
  return &sdpa_any;
}

/* ---- the engine
 * ---------------------------------------------------------------------------------------------- */

/* Blocks [begin, end) of all heads; keys and values are packed once a head. */
static void sdpa_blocks(const Sdpa *s, void *const *ptr, float *scratch, int64_t begin, int64_t end) {
  int64_t packed = -1;
  for (int64_t u = begin; u < end; u++) {
    int64_t head = u / s->per, row = u % s->per * s->rows;
    if (head != packed) {
      s->set->pack_keys(s, at(s, ptr, SDPA_k, head), part_keys(s, scratch));
      s->set->pack_values(s, at(s, ptr, SDPA_v, head), part_values(s, scratch));
      packed = head;
    }
    s->set->block(s, ptr, scratch, head, row, s->nquery - row < s->rows ? s->nquery - row : s->rows);
  }
}

/* Shares [begin, end) of the blocks of all heads; a share's blocks are consecutive. */
static void sdpa_range(void *const *buf, const int64_t *size, int64_t begin, int64_t end) {
  const Sdpa *s = buf[0];
  void *const *ptr = buf[1];
  int64_t total = s->batch * s->head * s->per;
  for (int64_t share = begin; share < end; share++) {
    float *scratch = (float *)buf[2] + share * s->slot_floats;
    int64_t from = total * share / s->nslot, to = total * (share + 1) / s->nslot;
    if (!s->few) sdpa_blocks(s, ptr, scratch, from, to);
    for (int64_t head = from; s->few && head < to; head++) s->set->few(s, ptr, scratch, head);
  }
}

static int sdpa_run(const MgEngine *e, MgEngineArgs *a) {
  const Sdpa *s = (const Sdpa *)e;
  void *buf[3] = {(void *)s, (void *)a->ptr, a->scratch};
  MgRange r = {sdpa_range, buf, NULL, s->nslot, 1};
  mg_threads_run(&r, 1, 0);
  return 0;
}

static void sdpa_free(MgEngine *e) { free(e); }

static const MgEngineOps sdpa_ops = {"attention", sdpa_run, NULL, NULL, sdpa_free};

static bool sdpa_takes(const MgSdpaDesc *d) {
  const MgTensorDesc *q = &d->t[SDPA_q], *k = &d->t[SDPA_k], *v = &d->t[SDPA_v], *o = &d->t[SDPA_out],
                     *m = &d->t[SDPA_mask];
  for (int i = 0; i < SDPA_NPTR; i++) {
    const MgTensorDesc *t = &d->t[i];
    if (!t->present) continue;
    if (t->ndim != 4 || t->dtype != 6 /* float32 */) return false;
    if (i != SDPA_mask && t->size[3] > 1 && t->stride[3] != 1) return false;
    for (int j = 0; j < 4; j++)
      if (t->size[j] < 1) return false;
  }
  for (int j = 0; j < 2; j++)
    if (q->size[j] != k->size[j] || q->size[j] != v->size[j] || q->size[j] != o->size[j]) return false;
  for (int j = 0; j < 4 && m->present; j++)
    if (m->size[j] != 1 && m->size[j] != (j == 3 ? k->size[2] : q->size[j])) return false;
  return q->size[3] == k->size[3] && k->size[2] == v->size[2] && o->size[2] == q->size[2] &&
         o->size[3] == v->size[3];
}

/* A mask of fewer dimensions gets leading ones of size 1. */
static MgSdpaDesc sdpa_pad(const MgSdpaDesc *d) {
  MgSdpaDesc r = *d;
  MgTensorDesc *m = &r.t[SDPA_mask];
  for (; m->present && m->ndim < 4; m->ndim++) {
    memmove(m->size + 1, m->size, sizeof *m->size * m->ndim);
    memmove(m->stride + 1, m->stride, sizeof *m->stride * m->ndim);
    m->size[0] = 1, m->stride[0] = 0;
  }
  return r;
}

/* How large blocks are, and what is packed for them. */
static void sdpa_block(Sdpa *s) {
  int lanes = s->set->lanes, panel = s->set->panel, tile = s->set->rows;
  s->vpad = (s->vdim + lanes - 1) / lanes * lanes;
  s->key_floats = (s->nkey + panel - 1) / panel * panel * s->dim;
  s->value_floats = (s->vdim + panel - 1) / panel * panel * s->nkey;
  int64_t most =
      MG_TUNE_SDPA_SCORE_BYTES / (int64_t)sizeof(float) / s->line; /* rows whose scores stay in cache */
  most = most < tile ? tile : most > MG_TUNE_SDPA_ROWS ? MG_TUNE_SDPA_ROWS : most;
  int64_t equal = (s->nquery + most - 1) / most; /* blocks of about the same size */
  s->rows = (s->nquery + equal * tile - 1) / (equal * tile) * tile;
  s->per = (s->nquery + s->rows - 1) / s->rows;
}

/* Who does what: a share for each thread, unless there is too little to do. */
static void sdpa_shares(Sdpa *s) {
  int64_t blocks = s->batch * s->head * s->per;
  double work = (double)s->batch * s->head * s->nquery * s->nkey * (s->dim + s->vdim);
  s->e.single = work <= MG_TUNE_MATMUL_SMALL;
  s->nslot = s->e.single ? 1 : mg_abi_threads();
  if (s->nslot > blocks) s->nslot = blocks;
  if (s->nslot < 1) s->nslot = 1;
  s->slot_floats = s->key_floats + s->value_floats + s->rows * (s->dim + s->line + s->vpad);
  s->slot_floats = (s->slot_floats + ALIGN - 1) / ALIGN * ALIGN;
  s->e.scratch = s->slot_floats * s->nslot * sizeof(float);
}

MgRc mg_sdpa_make(MgCtx *c, const MgSdpaDesc *desc, MgEngine **out) {
  MgSdpaDesc padded = sdpa_pad(desc), *d = &padded;
  if (!sdpa_takes(d)) return MG_UNSUP;
  Sdpa *s = mg_calloc(1, sizeof *s);
  if (!s) return mg_fail(c, MG_NOMEM, "attention engine");
  s->e.ops = &sdpa_ops;
  s->d = *d;
  MgTensorDesc *m = &s->d.t[SDPA_mask];
  for (int j = 0; j < 4; j++)
    if (m->size[j] == 1) m->stride[j] = 0; /* broadcast */
  s->batch = d->t[SDPA_q].size[0], s->head = d->t[SDPA_q].size[1];
  s->nquery = d->t[SDPA_q].size[2], s->nkey = d->t[SDPA_k].size[2];
  s->dim = d->t[SDPA_q].size[3], s->vdim = d->t[SDPA_v].size[3];
  s->few = s->nquery < MG_TUNE_SDPA_QUERIES;
  s->set = sdpa_set(s->few, s->dim | s->vdim);
  s->line = (s->nkey + ALIGN - 1) / ALIGN * ALIGN + ALIGN; /* rows not all in the same sets of the cache */
  if (s->few) s->rows = 1, s->per = 1;
  else sdpa_block(s);
  sdpa_shares(s);
  *out = &s->e;
  return MG_OK;
}
