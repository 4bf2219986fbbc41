/* GNU vectors for code that is compiled once per instruction set: a transposition in registers.
 * Everything is a macro or inlined, because functions must not pass such vectors by value
 * between instruction sets.
 * Code of one set begins by including this file again, between MG_TARGET_BEGIN and MG_TARGET_END, after
 *   SIMD_SET    the set's name, part of the names of functions
 *   SIMD_LANES  floats of a vector register
 *   SIMD_MAX    the larger of two vectors, lane by lane
 * have been defined.  It ends with simd_end.h.  Vectors are never wider than a register: gcc would split them
 * and spill (4 to 7 times slower). */
#ifndef MG_SIMD_H
#define MG_SIMD_H
#include "base/compiler.h"

typedef float MgF16 __attribute__((vector_size(64), aligned(4)));
typedef int MgI16 __attribute__((vector_size(64), aligned(4)));
typedef float MgF8 __attribute__((vector_size(32), aligned(4)));
typedef int MgI8 __attribute__((vector_size(32), aligned(4)));
typedef float MgF4 __attribute__((vector_size(16), aligned(4)));
typedef int MgI4 __attribute__((vector_size(16), aligned(4)));

#define MG_INLINE static inline __attribute__((always_inline))

/* One stage of a transposition of V rows r[]: rows i and i + S exchange elements, those that `lo` and `hi`
 * name, by shuffles that stay in lanes of four floats or move whole ones: one instruction each. */
#define MG_LANES_4(a, b, c, d) {a, b, c, d}
#define MG_LANES_8(a, b, c, d) {a, b, c, d, a + 4, b + 4, c + 4, d + 4}
#define MG_LANES_16(a, b, c, d)                                                                              \
  {a, b, c, d, a + 4, b + 4, c + 4, d + 4, a + 8, b + 8, c + 8, d + 8, a + 12, b + 12, c + 12, d + 12}
#define MG_TRANSPOSE_STAGE(V, r, S, ...)                                                                     \
  {                                                                                                          \
    static const MgI##V to_[2] = {__VA_ARGS__};                                                              \
    MG_UNROLL                                                                                                \
    for (int i = 0; i < V; i++)                                                                              \
      if (!(i & S)) {                                                                                        \
        MgF##V a = r[i], b = r[i + S];                                                                       \
        r[i] = MG_SHUFFLE_2(a, b, to_[0]);                                                                   \
        r[i + S] = MG_SHUFFLE_2(a, b, to_[1]);                                                               \
      }                                                                                                      \
  }
/* Four rows at a time: lane l of r[i + c] becomes column 4 l + c of rows i to i + 3. */
#define MG_TRANSPOSE_LANES(V, r)                                                                             \
  MG_TRANSPOSE_STAGE(V, r, 1, MG_LANES_##V(0, V, 1, V + 1), MG_LANES_##V(2, V + 2, 3, V + 3))                \
  MG_TRANSPOSE_STAGE(V, r, 2, MG_LANES_##V(0, 1, V, V + 1), MG_LANES_##V(2, 3, V + 2, V + 3))                \
  MG_UNROLL                                                                                                  \
  for (int i = 0; i < V; i += 4) {                                                                           \
    MgF##V a = r[i + 1];                                                                                     \
    r[i + 1] = r[i + 2], r[i + 2] = a;                                                                       \
  }
#define MG_EVEN_16 {0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27}
#define MG_ODD_16 {4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31}
#define MG_EVEN_8 {0, 1, 2, 3, 8, 9, 10, 11}
#define MG_ODD_8 {4, 5, 6, 7, 12, 13, 14, 15}
/* r[i][j] <-> r[j][i] */
#define MG_TRANSPOSE_4(r) MG_TRANSPOSE_LANES(4, r)
#define MG_TRANSPOSE_8(r) MG_TRANSPOSE_LANES(8, r) MG_TRANSPOSE_STAGE(8, r, 4, MG_EVEN_8, MG_ODD_8)
#define MG_TRANSPOSE_16(r)                                                                                   \
  MG_TRANSPOSE_LANES(16, r)                                                                                  \
  MG_TRANSPOSE_STAGE(16, r, 4, MG_EVEN_16, MG_ODD_16) MG_TRANSPOSE_STAGE(16, r, 8, MG_EVEN_16, MG_ODD_16)
#endif

#ifdef SIMD_SET
#define SIMD_PASTE2(a, b) a##_##b
#define SIMD_PASTE(a, b) SIMD_PASTE2(a, b)
#define SIMD_FN(name) SIMD_PASTE(name, SIMD_SET)
#define SIMD_TYPE2(t, n) t##n
#define SIMD_TYPE(t, n) SIMD_TYPE2(t, n)
#define VF SIMD_TYPE(MgF, SIMD_LANES)
#define VI SIMD_TYPE(MgI, SIMD_LANES)
#define TRANSPOSE SIMD_TYPE(MG_TRANSPOSE_, SIMD_LANES)

/* *y = e^x for x = *at - top <= 0, 2 ulp; 0 below -87.3 (also for -inf), NaN stays. */
MG_INLINE void SIMD_FN(exp_neg)(VF *y, const VF *at, float top) {
  VF x = *at - top;
  const float magic = 12582912.f; /* 1.5 * 2^23: adding it rounds to an integer, kept in the low bits */
  VI low = x < -87.3365f;
  VF t = x * 1.44269504f + magic, n = t - magic;
  VF r = x - n * 0.693359375f + n * 2.12194440e-4f;
  VF p = 1.9875691500e-4f * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.f;
  VI e = ((VI)t + (127 - 0x4B400000)) << 23; /* 2^n as bits */
  *y = (VF)((VI)(p * (VF)e) & ~low);
}
#endif
