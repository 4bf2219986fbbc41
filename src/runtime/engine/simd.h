/* GNU vectors for code that is compiled once per instruction set: a transposition in registers.
 * Everything is a macro or inlined, because functions must not pass such vectors by value
 * between instruction sets.
 * Code of one set begins by including this file again, between #pragma GCC target lines, after
 *   SIMD_SET    the set's name, part of the names of functions
 *   SIMD_LANES  floats of a vector register
 *   SIMD_MAX    the larger of two vectors, lane by lane
 * have been defined.  It ends with simd_end.h.  Vectors are never wider than a register: gcc would split them
 * and spill (4 to 7 times slower). */
#ifndef MG_SIMD_H
#define MG_SIMD_H

typedef float MgF16 __attribute__((vector_size(64), aligned(4)));
typedef int MgI16 __attribute__((vector_size(64), aligned(4)));
typedef float MgF8 __attribute__((vector_size(32), aligned(4)));
typedef int MgI8 __attribute__((vector_size(32), aligned(4)));
typedef float MgF4 __attribute__((vector_size(16), aligned(4)));
typedef int MgI4 __attribute__((vector_size(16), aligned(4)));

#define MG_INLINE static inline __attribute__((always_inline))
#define MG_UNROLL _Pragma("GCC unroll 16")

/* One stage of a butterfly transposition of V rows r[]: exchanges the off-diagonal blocks of S rows and S
 * columns. Everything is a constant once unrolled, so each pair of rows costs two shuffles. */
#define MG_SHUFFLE_LO(V, S, k) ((k) & (S) ? (V) + (k) - (S) : (k))
#define MG_SHUFFLE_HI(V, S, k) ((k) & (S) ? (V) + (k) : (k) + (S))
#define MG_SHUFFLE_8(F, V, S, o)                                                                             \
  F(V, S, o), F(V, S, o + 1), F(V, S, o + 2), F(V, S, o + 3), F(V, S, o + 4), F(V, S, o + 5),                \
      F(V, S, o + 6), F(V, S, o + 7)
#define MG_SHUFFLES_4(F, S) {F(4, S, 0), F(4, S, 1), F(4, S, 2), F(4, S, 3)}
#define MG_SHUFFLES_8(F, S) {MG_SHUFFLE_8(F, 8, S, 0)}
#define MG_SHUFFLES_16(F, S) {MG_SHUFFLE_8(F, 16, S, 0), MG_SHUFFLE_8(F, 16, S, 8)}
#define MG_TRANSPOSE_STAGE(V, r, S)                                                                          \
  MG_UNROLL                                                                                                  \
  for (int i = 0; i < V; i++)                                                                                \
    if (!(i & S)) {                                                                                          \
      MgF##V a = r[i], b = r[i + S];                                                                         \
      r[i] = __builtin_shuffle(a, b, (MgI##V)MG_SHUFFLES_##V(MG_SHUFFLE_LO, S));                             \
      r[i + S] = __builtin_shuffle(a, b, (MgI##V)MG_SHUFFLES_##V(MG_SHUFFLE_HI, S));                         \
    }
/* r[i][j] <-> r[j][i] */
#define MG_TRANSPOSE_4(r) MG_TRANSPOSE_STAGE(4, r, 1) MG_TRANSPOSE_STAGE(4, r, 2)
#define MG_TRANSPOSE_8(r) MG_TRANSPOSE_STAGE(8, r, 1) MG_TRANSPOSE_STAGE(8, r, 2) MG_TRANSPOSE_STAGE(8, r, 4)
#define MG_TRANSPOSE_16(r)                                                                                   \
  MG_TRANSPOSE_STAGE(16, r, 1)                                                                               \
  MG_TRANSPOSE_STAGE(16, r, 2) MG_TRANSPOSE_STAGE(16, r, 4) MG_TRANSPOSE_STAGE(16, r, 8)
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
