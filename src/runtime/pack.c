#include "runtime/pack.h"
#include <stdlib.h>
#include <string.h>

/* GNU vectors; the compiler makes one version per instruction set and the loader picks the best. */
#if defined(__x86_64__) && defined(__linux__)
#define PACK_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define PACK_CLONES
#endif

/* One stage of a butterfly transposition: exchanges the off-diagonal blocks of S rows and S columns.  Everything is
 * a constant once unrolled, so each pair of rows costs two shuffles. */
#define PACK_LO(V, S, k) ((k) & (S) ? (V) + (k) - (S) : (k))
#define PACK_HI(V, S, k) ((k) & (S) ? (V) + (k) : (k) + (S))
#define PACK_MASK8(F, V, S, o)                                                                               \
  F(V, S, o), F(V, S, o + 1), F(V, S, o + 2), F(V, S, o + 3), F(V, S, o + 4), F(V, S, o + 5), F(V, S, o + 6),\
      F(V, S, o + 7)
#define PACK_MASKS_8(F, S) {PACK_MASK8(F, 8, S, 0)}
#define PACK_MASKS_16(F, S) {PACK_MASK8(F, 16, S, 0), PACK_MASK8(F, 16, S, 8)}
#define PACK_UNROLL _Pragma("GCC unroll 16")
#define PACK_STAGE(V, S)                                                                                     \
  PACK_UNROLL for (int i = 0; i < V; i++) if (!(i & S)) {                                                    \
    pack_f##V a = r[i], b = r[i + S];                                                                        \
    r[i] = __builtin_shuffle(a, b, (pack_i##V)PACK_MASKS_##V(PACK_LO, S));                                   \
    r[i + S] = __builtin_shuffle(a, b, (pack_i##V)PACK_MASKS_##V(PACK_HI, S));                               \
  }

typedef float pack_f16 __attribute__((vector_size(64), aligned(4)));
typedef int pack_i16 __attribute__((vector_size(64)));
typedef float pack_f8 __attribute__((vector_size(32), aligned(4)));
typedef int pack_i8 __attribute__((vector_size(32)));

/* One lane group: V outputs (rows of src; only `rows` of them exist) by p->nelem elements, V x V at a time. */
#define PACK_GROUP(V, STAGES)                                                                                \
  PACK_CLONES static void pack_group##V(const MgPack *p, const float *src, const float *scale, int64_t rows, \
                                        float *dst) {                                                        \
    pack_f##V s = {0};                                                                                       \
    for (int k = 0; k < V; k++) s[k] = k >= rows ? 0 : scale ? scale[k] : 1;                                 \
    for (int64_t j = 0; j < p->nelem; j += V) {                                                              \
      const int32_t *to = p->elem_off + j;                                                                   \
      int64_t n = p->nelem - j < V ? p->nelem - j : V;                                                       \
      pack_f##V r[V];                                                                                        \
      if (n == V && rows >= V) {                                                                             \
        PACK_UNROLL for (int i = 0; i < V; i++) r[i] = *(const pack_f##V *)(src + i * p->src_out + j);       \
      } else {                                                                                               \
        memset(r, 0, sizeof r);                                                                              \
        PACK_UNROLL for (int i = 0; i < V; i++) {                                                            \
          if (i < rows) memcpy(&r[i], src + i * p->src_out + j, sizeof(float) * n);                          \
        }                                                                                                    \
      }                                                                                                      \
      STAGES                                                                                                 \
      if (n == V) {                                                                                          \
        PACK_UNROLL for (int k = 0; k < V; k++) *(pack_f##V *)(dst + to[k]) = r[k] * s;                      \
      } else { /* unrolled too: r stays in registers */                                                      \
        PACK_UNROLL for (int k = 0; k < V; k++) if (k < n) *(pack_f##V *)(dst + to[k]) = r[k] * s;           \
      }                                                                                                      \
    }                                                                                                        \
    for (int64_t k = 0; k < p->npad; k++)                                                                    \
      *(pack_f##V *)(dst + p->elem_off[p->nelem + k]) = (pack_f##V){0};                                      \
  }
PACK_GROUP(16, PACK_STAGE(16, 1) PACK_STAGE(16, 2) PACK_STAGE(16, 4) PACK_STAGE(16, 8))
PACK_GROUP(8, PACK_STAGE(8, 1) PACK_STAGE(8, 2) PACK_STAGE(8, 4))

/* One output, element by element: any blocked format, any strides of the source. */
static void pack_group1(const MgPack *p, const float *src, const float *scale, int64_t rows, float *dst) {
  float s = scale ? *scale : 1;
  for (int64_t j = 0; j < p->nelem; j++) dst[p->elem_off[j]] = src[p->src_elem[j]] * s;
  for (int64_t j = 0; j < p->npad; j++) dst[p->elem_off[p->nelem + j]] = 0;
}

void mg_pack_run(const MgPack *p, const float *src, const float *scale, float *dst, int64_t begin, int64_t end) {
  for (int64_t u = begin; u < end; u++) {
    int64_t g = u / p->nlane, l = u % p->nlane, rows = p->nout - l * p->lane;
    const float *from = src + g * p->src_group + l * p->lane * p->src_out;
    const float *s = scale ? scale + g * p->nout + l * p->lane : NULL;
    float *to = dst + p->group_off[g] + p->lane_off[l];
    if (rows <= 0) /* the target has more lane groups than there are outputs */
      for (int64_t k = 0; k < p->nelem + p->npad; k++) memset(to + p->elem_off[k], 0, sizeof(float) * p->lane);
    else
      (p->lane == 16 ? pack_group16 : p->lane == 8 ? pack_group8 : pack_group1)(p, from, s, rows, to);
  }
}

void mg_pack_free(MgPack *p) {
  free(p->group_off);
  free(p->lane_off);
  free(p->elem_off);
  free(p->src_elem);
  *p = (MgPack){0};
}
