/* Where gcc and clang have different words for the same: functions for an instruction set, shuffles, unrolled
 * loops. */
#ifndef MG_COMPILER_H
#define MG_COMPILER_H

#define MG_PRAGMA(...) _Pragma(#__VA_ARGS__)

/* MG_TARGET_BEGIN("avx2,fma"): functions up to MG_TARGET_END are compiled for that instruction set. */
/* MG_CONTRACT: a product and a sum in this function are one instruction.  clang does that within an
 * expression. */
/* MG_SHUFFLE(a, to)[i] is a[to[i]]; MG_SHUFFLE_2 counts on into b.  `to` holds no other numbers. */
#ifdef __clang__
#define MG_TARGET_BEGIN(set)                                                                                 \
  MG_PRAGMA(clang attribute push(__attribute__((target(set))), apply_to = function))
#define MG_TARGET_END MG_PRAGMA(clang attribute pop)
#define MG_UNROLL MG_PRAGMA(unroll)
#define MG_CONTRACT
/* clang's own shuffle takes no vector of places; of constant ones it makes the same instructions of this. */
#define MG_SHUFFLE_2(a, b, to)                                                                               \
  ({                                                                                                         \
    __typeof__(a) first_ = (a), second_ = (b), shuffled_;                                                    \
    __typeof__(to) place_ = (to);                                                                            \
    enum { LANES_ = sizeof(first_) / sizeof(first_[0]) };                                                    \
    MG_UNROLL                                                                                                \
    for (int lane_ = 0; lane_ < LANES_; lane_++)                                                             \
      shuffled_[lane_] = place_[lane_] < LANES_ ? first_[place_[lane_]] : second_[place_[lane_] - LANES_];   \
    shuffled_;                                                                                               \
  })
#define MG_SHUFFLE(a, to) MG_SHUFFLE_2(a, a, to)
#else
#define MG_TARGET_BEGIN(set) MG_PRAGMA(GCC push_options) MG_PRAGMA(GCC target(set))
#define MG_TARGET_END MG_PRAGMA(GCC pop_options)
#define MG_UNROLL MG_PRAGMA(GCC unroll 16)
#define MG_CONTRACT __attribute__((optimize("fp-contract=fast")))
#define MG_SHUFFLE_2(a, b, to) __builtin_shuffle(a, b, to)
#define MG_SHUFFLE(a, to) __builtin_shuffle(a, to)
#endif
#endif
