/* Ends what simd.h has begun. */
#undef SIMD_PASTE2
#undef SIMD_PASTE
#undef SIMD_FN
#undef SIMD_TYPE2
#undef SIMD_TYPE
#undef VF
#undef VI
#undef TRANSPOSE
#undef SIMD_SET
#undef SIMD_LANES
#undef SIMD_MAX
