/* GNU vectors for code that is compiled once per instruction set: a transposition in registers.
 * Everything is a macro or inlined, because functions must not pass such vectors by value
 * between instruction sets. */
#ifndef MG_SIMD_H
#define MG_SIMD_H

typedef float MgF16 __attribute__((vector_size(64), aligned(4)));
typedef int MgI16 __attribute__((vector_size(64), aligned(4)));
typedef float MgF8 __attribute__((vector_size(32), aligned(4)));
typedef int MgI8 __attribute__((vector_size(32), aligned(4)));
typedef float MgF4 __attribute__((vector_size(16), aligned(4)));
typedef int MgI4 __attribute__((vector_size(16), aligned(4)));

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
