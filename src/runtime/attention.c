/* Attention by blocks of queries: the scores of a block against all its keys stay in cache, are normalised there and
 * multiplied by the values at once; nothing of size query x key reaches memory.
 * Both products use one register tile of TILE_ROWS x 16 * nv outputs, written with GNU vectors and compiled once per
 * instruction set; the set is chosen when the engine is made. */
#include "runtime/attention.h"
#include "runtime/simd.h"
#include "runtime/threads.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef MgF16 v16f;
typedef MgI16 v16i;

enum { LANES = 16, TILE_ROWS = 6, PANEL = 64, SCORE_BYTES = 192 << 10, MAX_ROWS = 96 };
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")

typedef struct Sdpa Sdpa;
typedef void (*SdpaBlockFn)(const Sdpa *s, void *const *ptr, float *scratch, int64_t head, int64_t row, int64_t nrow);

struct Sdpa {
  MgEngine e;
  MgSdpaDesc d;
  int64_t batch, head, nquery, nkey, dim, vdim;
  int64_t kpad, vpad;   /* keys rounded up to a panel; value width rounded up to lanes */
  int64_t rows;         /* queries per block */
  int64_t nslot;        /* shares of the work, each with scratch memory of its own */
  uint64_t slot_floats; /* size of that */
  SdpaBlockFn block;
  void (*pack)(const Sdpa *s, const float *k, float *to);
};

/* ---- pieces, inlined into one function per instruction set ----------------------------------------------------- */

/* c[mr][16 * nv] = a[mr][depth] @ b[depth][16 * nv]; mr and nv are constants where this is inlined. */
INLINE void tile(const float *a, int64_t lda, const float *b, int64_t ldb, int64_t depth, float *c, int64_t ldc,
                 const int mr, const int nv) {
  v16f acc[TILE_ROWS][4];
  UNROLL for (int i = 0; i < mr; i++) UNROLL for (int j = 0; j < nv; j++) acc[i][j] = (v16f){0};
  for (int64_t k = 0; k < depth; k++, b += ldb) {
    v16f col[4];
    UNROLL for (int j = 0; j < nv; j++) col[j] = *(const v16f *)(b + j * LANES);
    UNROLL for (int i = 0; i < mr; i++) {
      float x = a[i * lda + k];
      UNROLL for (int j = 0; j < nv; j++) acc[i][j] += x * col[j];
    }
  }
  UNROLL for (int i = 0; i < mr; i++) UNROLL for (int j = 0; j < nv; j++) *(v16f *)(c + i * ldc + j * LANES) = acc[i][j];
}

/* c[n][16 * nv] = a[n][depth] @ b[depth][16 * nv] */
INLINE void stripe(const float *a, int64_t lda, const float *b, int64_t ldb, int64_t depth, float *c, int64_t ldc,
                   int64_t n, const int nv) {
  int64_t i = 0;
  for (; i + TILE_ROWS <= n; i += TILE_ROWS) tile(a + i * lda, lda, b, ldb, depth, c + i * ldc, ldc, TILE_ROWS, nv);
  for (; i + 2 <= n; i += 2) tile(a + i * lda, lda, b, ldb, depth, c + i * ldc, ldc, 2, nv);
  if (i < n) tile(a + i * lda, lda, b, ldb, depth, c + i * ldc, ldc, 1, nv);
}

/* c[n][width] = a[n][depth] @ b[depth][width], width a multiple of LANES, in stripes of at most wide * LANES columns. */
INLINE void product(const float *a, int64_t lda, const float *b, int64_t ldb, int64_t depth, float *c, int64_t ldc,
                    int64_t n, int64_t width, const int wide) {
  for (int64_t j = 0; j < width;) {
    int64_t left = (width - j) / LANES;
    if (wide == 4 && left >= 4) stripe(a, lda, b + j, ldb, depth, c + j, ldc, n, 4), j += 4 * LANES;
    else if (wide == 4 && left >= 2) stripe(a, lda, b + j, ldb, depth, c + j, ldc, n, 2), j += 2 * LANES;
    else stripe(a, lda, b + j, ldb, depth, c + j, ldc, n, 1), j += LANES;
  }
}

/* m = max(m, x); a NaN wins, as in torch's maximum */
#define MAX16(m, x)                                                                                          \
  do {                                                                                                       \
    v16i keep_ = (m) > (x);                                                                                  \
    (m) = (v16f)(((v16i)(m) & keep_) | ((v16i)(x) & ~keep_));                                                \
  } while (0)
/* v with its halves, quarters, ... exchanged: four of them reach every lane */
#define SWAP(v, by) __builtin_shuffle(v, (v16i){0 ^ by, 1 ^ by, 2 ^ by, 3 ^ by, 4 ^ by, 5 ^ by, 6 ^ by, 7 ^ by,  \
                                                8 ^ by, 9 ^ by, 10 ^ by, 11 ^ by, 12 ^ by, 13 ^ by, 14 ^ by, 15 ^ by})

/* *y = e^x for x = *at - top <= 0, 2 ulp; 0 below -87.3 (also for -inf), NaN stays. */
INLINE void exp_neg(v16f *y, const v16f *at, float top) {
  v16f x = *at - top;
  const float magic = 12582912.f; /* 1.5 * 2^23: adding it rounds to an integer, kept in the low bits */
  v16i low = x < -87.3365f;
  v16f t = x * 1.44269504f + magic, n = t - magic;
  v16f r = x - n * 0.693359375f + n * 2.12194440e-4f;
  v16f p = 1.9875691500e-4f * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.f;
  v16i e = ((v16i)t + (127 - 0x4B400000)) << 23; /* 2^n as bits */
  *y = (v16f)((v16i)(p * (v16f)e) & ~low);
}

/* One row of scores, n of them real and the rest up to a multiple of LANES to become 0: adds the mask, and replaces
 * them by their exponentials relative to the largest.  Returns the sum. */
INLINE float soften(float *s, int64_t n, const float *mask, int64_t mask_step) {
  if (mask && mask_step == 1)
    for (int64_t i = 0; i < n; i++) s[i] += mask[i];
  else if (mask)
    for (int64_t i = 0; i < n; i++) s[i] += mask[i * mask_step];
  int64_t up = (n + LANES - 1) / LANES * LANES;
  for (int64_t i = n; i < up; i++) s[i] = -INFINITY;
  v16f m = *(v16f *)s;
  for (int64_t i = LANES; i < up; i += LANES) MAX16(m, *(v16f *)(s + i));
  MAX16(m, SWAP(m, 8));
  MAX16(m, SWAP(m, 4));
  MAX16(m, SWAP(m, 2));
  MAX16(m, SWAP(m, 1));
  float top = m[0];
  if (top == -INFINITY) { /* nothing is seen */
    memset(s, 0, sizeof *s * up);
    return 0;
  }
  v16f sum = {0};
  for (int64_t i = 0; i < up; i += LANES) {
    exp_neg((v16f *)(s + i), (v16f *)(s + i), top);
    sum += *(v16f *)(s + i);
  }
  sum += SWAP(sum, 8);
  sum += SWAP(sum, 4);
  sum += SWAP(sum, 2);
  sum += SWAP(sum, 1);
  return sum[0];
}

/* Scratch memory of one share: keys by panels, scaled queries, scores, results, padded values. */
INLINE float *part_keys(const Sdpa *s, float *scratch) { return scratch; }
INLINE float *part_queries(const Sdpa *s, float *scratch) { return scratch + s->kpad * s->dim; }
INLINE float *part_scores(const Sdpa *s, float *scratch) { return part_queries(s, scratch) + s->rows * s->dim; }
INLINE float *part_out(const Sdpa *s, float *scratch) { return part_scores(s, scratch) + s->rows * s->kpad; }
INLINE float *part_values(const Sdpa *s, float *scratch) { return part_out(s, scratch) + s->rows * s->vpad; }

INLINE const float *at(const Sdpa *s, void *const *ptr, int which, int64_t head) {
  const int64_t *st = s->d.t[which].stride;
  return (const float *)ptr[which] + head / s->head * st[0] + head % s->head * st[1];
}

/* nrow queries from `row` of one head (batch * heads + head); its keys are packed in scratch already. */
INLINE void block(const Sdpa *s, void *const *ptr, float *scratch, int64_t head, int64_t row, int64_t nrow,
                  const int wide) {
  const MgTensorDesc *t = s->d.t;
  const float *q = at(s, ptr, SDPA_q, head), *v = at(s, ptr, SDPA_v, head);
  const float *mask = t[SDPA_mask].present ? at(s, ptr, SDPA_mask, head) : NULL;
  float *out = (float *)at(s, ptr, SDPA_out, head), *queries = part_queries(s, scratch);
  float *scores = part_scores(s, scratch), *result = part_out(s, scratch);
  int64_t vstep = t[SDPA_v].stride[2], seen = s->nkey;
  if (s->d.causal && row + nrow < seen) seen = row + nrow;
  if (s->vpad != s->vdim) v = part_values(s, scratch), vstep = s->vpad;
  for (int64_t i = 0; i < nrow; i++)
    for (int64_t j = 0; j < s->dim; j++) queries[i * s->dim + j] = q[(row + i) * t[SDPA_q].stride[2] + j] * s->d.scale;
  for (int64_t p = 0; p < seen; p += PANEL) {
    int64_t width = seen - p < PANEL ? (seen - p + LANES - 1) / LANES * LANES : PANEL;
    product(queries, s->dim, part_keys(s, scratch) + p * s->dim, PANEL, s->dim, scores + p, s->kpad, nrow, width, wide);
  }
  float scale[nrow];
  for (int64_t i = 0; i < nrow; i++) {
    int64_t n = s->d.causal && row + i + 1 < seen ? row + i + 1 : seen;
    float *line = scores + i * s->kpad;
    float sum = soften(line, n, mask ? mask + (row + i) * t[SDPA_mask].stride[2] : NULL, t[SDPA_mask].stride[3]);
    for (int64_t j = (n + LANES - 1) / LANES * LANES; j < seen; j++) line[j] = 0;
    scale[i] = sum == 0 ? 0 : 1 / sum;
  }
  product(scores, s->kpad, v, vstep, seen, result, s->vpad, nrow, s->vpad, wide);
  for (int64_t i = 0; i < nrow; i++)
    for (int64_t j = 0; j < s->vdim; j++)
      out[(row + i) * t[SDPA_out].stride[2] + j] = result[i * s->vpad + j] * scale[i];
}

/* Keys of one head as panels of PANEL columns: to[panel][dim][PANEL]; columns past the last key become 0. */
INLINE void pack_keys(const Sdpa *s, const float *k, float *to) {
  int64_t step = s->d.t[SDPA_k].stride[2];
  for (int64_t c = 0; c < s->kpad; c += LANES) {
    float *panel = to + c / PANEL * PANEL * s->dim + c % PANEL;
    int64_t j = 0;
    for (; c + LANES <= s->nkey && j + LANES <= s->dim; j += LANES) {
      v16f r[LANES];
      MG_UNROLL for (int i = 0; i < LANES; i++) r[i] = *(const v16f *)(k + (c + i) * step + j);
      MG_TRANSPOSE_16(r)
      MG_UNROLL for (int i = 0; i < LANES; i++) *(v16f *)(panel + (j + i) * PANEL) = r[i];
    }
    for (; j < s->dim; j++)
      for (int64_t i = 0; i < LANES; i++) panel[j * PANEL + i] = c + i < s->nkey ? k[(c + i) * step + j] : 0;
  }
}

#define SDPA_VERSION(name, attr, wide)                                                                       \
  attr static void block_##name(const Sdpa *s, void *const *ptr, float *scratch, int64_t head, int64_t row,  \
                                int64_t nrow) {                                                              \
    block(s, ptr, scratch, head, row, nrow, wide);                                                           \
  }                                                                                                          \
  attr static void pack_##name(const Sdpa *s, const float *k, float *to) { pack_keys(s, k, to); }
SDPA_VERSION(any, , 1)
#if defined(__x86_64__)
SDPA_VERSION(avx2, __attribute__((target("avx2,fma"))), 1)
SDPA_VERSION(avx512, __attribute__((target("avx512f"))), 4)
#endif

static void sdpa_version(Sdpa *s) {
  s->block = block_any, s->pack = pack_any;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) s->block = block_avx512, s->pack = pack_avx512;
  else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) s->block = block_avx2, s->pack = pack_avx2;
#endif
}

/* ---- the engine ---------------------------------------------------------------------------------------------- */

/* Shares [begin, end) of the blocks of all heads; a share's blocks are consecutive, so keys are packed once a head. */
static void sdpa_range(void *const *buf, const int64_t *size, int64_t begin, int64_t end) {
  const Sdpa *s = buf[0];
  void *const *ptr = buf[1];
  int64_t per = (s->nquery + s->rows - 1) / s->rows, total = s->batch * s->head * per;
  for (int64_t share = begin; share < end; share++) {
    float *scratch = (float *)buf[2] + share * s->slot_floats;
    int64_t packed = -1;
    for (int64_t u = total * share / s->nslot; u < total * (share + 1) / s->nslot; u++) {
      int64_t head = u / per, row = u % per * s->rows;
      if (head != packed) {
        s->pack(s, at(s, ptr, SDPA_k, head), part_keys(s, scratch));
        const float *v = at(s, ptr, SDPA_v, head);
        float *to = part_values(s, scratch);
        for (int64_t i = 0; i < s->nkey && s->vpad != s->vdim; i++, to += s->vpad) {
          memcpy(to, v + i * s->d.t[SDPA_v].stride[2], sizeof *to * s->vdim);
          memset(to + s->vdim, 0, sizeof *to * (s->vpad - s->vdim));
        }
        packed = head;
      }
      s->block(s, ptr, scratch, head, row, s->nquery - row < s->rows ? s->nquery - row : s->rows);
    }
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
  const MgTensorDesc *q = &d->t[SDPA_q], *k = &d->t[SDPA_k], *v = &d->t[SDPA_v], *o = &d->t[SDPA_out], *m = &d->t[SDPA_mask];
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
  return q->size[3] == k->size[3] && k->size[2] == v->size[2] && o->size[2] == q->size[2] && o->size[3] == v->size[3];
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
  s->kpad = (s->nkey + PANEL - 1) / PANEL * PANEL;
  s->vpad = (s->vdim + LANES - 1) / LANES * LANES;
  int64_t most = SCORE_BYTES / (int64_t)sizeof(float) / s->kpad; /* rows whose scores stay in cache */
  most = most < TILE_ROWS ? TILE_ROWS : most > MAX_ROWS ? MAX_ROWS : most;
  int64_t equal = (s->nquery + most - 1) / most; /* blocks of about the same size */
  s->rows = (s->nquery + equal * TILE_ROWS - 1) / (equal * TILE_ROWS) * TILE_ROWS;
  int64_t blocks = s->batch * s->head * ((s->nquery + s->rows - 1) / s->rows);
  s->nslot = mg_abi_threads();
  if (s->nslot > blocks) s->nslot = blocks;
  if (s->nslot < 1) s->nslot = 1;
  s->slot_floats = s->kpad * s->dim + s->rows * (s->dim + s->kpad + s->vpad) +
                   (s->vpad != s->vdim ? s->nkey * s->vpad : 0);
  s->slot_floats = (s->slot_floats + LANES - 1) / LANES * LANES;
  s->e.scratch = s->slot_floats * s->nslot * sizeof(float);
  sdpa_version(s);
  *out = &s->e;
  return MG_OK;
}
