/* See the header. */
#include "runtime/engine/weight_pack.h"
#include "runtime/process/cpu.h"
#include "runtime/engine/simd.h"
#include <stdlib.h>
#include <string.h>

/* One lane group: V outputs (rows of src; only `rows` of them exist) by p->nelem elements, V x V at a time.
 * Without ASan: gcc before 14 aligns its frames for less than a vector of 64 bytes (PR 110027). */
#define PACK_GROUP(name, V, attr)                                                                            \
  attr __attribute__((no_sanitize_address)) static void name(const MgPack *p, const float *src,              \
                                                             const float *scale, int64_t rows, float *dst) { \
    MgF##V s = {0};                                                                                          \
    for (int k = 0; k < V; k++) s[k] = k >= rows ? 0 : scale ? scale[k] : 1;                                 \
    for (int64_t j = 0; j < p->nelem; j += V) {                                                              \
      const int32_t *to = p->elem_off + j;                                                                   \
      int64_t n = p->nelem - j < V ? p->nelem - j : V;                                                       \
      MgF##V r[V];                                                                                           \
      if (n == V && rows >= V) {                                                                             \
        MG_UNROLL                                                                                            \
        for (int i = 0; i < V; i++) r[i] = *(const MgF##V *)(src + i * p->src_out + j);                      \
      } else {                                                                                               \
        memset(r, 0, sizeof r);                                                                              \
        MG_UNROLL                                                                                            \
        for (int i = 0; i < V; i++) {                                                                        \
          if (i < rows) memcpy(&r[i], src + i * p->src_out + j, sizeof(float) * n);                          \
        }                                                                                                    \
      }                                                                                                      \
      MG_TRANSPOSE_##V(r) if (n == V) {                                                                      \
        MG_UNROLL                                                                                            \
        for (int k = 0; k < V; k++) *(MgF##V *)(dst + to[k]) = r[k] * s;                                     \
      }                                                                                                      \
      else { /* unrolled too: r stays in registers */                                                        \
        MG_UNROLL                                                                                            \
        for (int k = 0; k < V; k++)                                                                          \
          if (k < n) *(MgF##V *)(dst + to[k]) = r[k] * s;                                                    \
      }                                                                                                      \
    }                                                                                                        \
    for (int64_t k = 0; k < p->npad; k++) *(MgF##V *)(dst + p->elem_off[p->nelem + k]) = (MgF##V){0};        \
  }
PACK_GROUP(pack_group8_any, 8, )
#if defined(__x86_64__)
PACK_GROUP(pack_group8_avx2, 8, __attribute__((target("avx2"))))
PACK_GROUP(pack_group16_avx512, 16, __attribute__((target("avx512f"))))
#endif

typedef void (*PackGroupFn)(const MgPack *p, const float *src, const float *scale, int64_t rows, float *dst);

/* One output, element by element: any blocked format, any strides of the source. */
static void pack_group1(const MgPack *p, const float *src, const float *scale, int64_t rows, float *dst) {
  float s = scale ? *scale : 1;
  for (int64_t j = 0; j < p->nelem; j++) dst[p->elem_off[j]] = src[p->src_elem[j]] * s;
  for (int64_t j = 0; j < p->npad; j++) dst[p->elem_off[p->nelem + j]] = 0;
}

int mg_pack_lane(int64_t block) {
#if defined(__x86_64__)
  if (block % 16 == 0 && mg_cpu()->avx512) return 16;
#endif
  return block % 8 == 0 ? 8 : 1;
}

static PackGroupFn pack_group(int lane) {
#if defined(__x86_64__)
  if (lane == 16) return pack_group16_avx512;
  if (lane == 8 && mg_cpu()->avx2) return pack_group8_avx2;
#endif
  return lane == 8 ? pack_group8_any : pack_group1;
}

void mg_pack_run(const MgPack *p, const float *src, const float *scale, float *dst, int64_t begin,
                 int64_t end) {
  PackGroupFn group = pack_group(p->lane);
  for (int64_t u = begin; u < end; u++) {
    int64_t g = u / p->nlane, l = u % p->nlane, rows = p->nout - l * p->lane;
    const float *from = src + g * p->src_group + l * p->lane * p->src_out;
    const float *s = scale ? scale + g * p->nout + l * p->lane : NULL;
    float *to = dst + p->group_off[g] + p->lane_off[l];
    if (rows <= 0) /* the target has more lane groups than there are outputs */
      for (int64_t k = 0; k < p->nelem + p->npad; k++)
        memset(to + p->elem_off[k], 0, sizeof(float) * p->lane);
    else group(p, from, s, rows, to);
  }
}

void mg_pack_free(MgPack *p) {
  free(p->group_off);
  free(p->lane_off);
  free(p->elem_off);
  free(p->src_elem);
  *p = (MgPack){0};
}
