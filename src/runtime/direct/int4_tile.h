/* Weights of four bits as floats, written once and compiled for each instruction set: int4_product.c includes
 * this file once per set, after simd.h, with
 *   INT4_BYTES   as many bytes as lanes, one a lane
 *   INT4_NUMBER  the low four bits of each lane as a float; gcc's own conversions go lane by lane
 * A run is SIMD_LANES columns that stand in as many bytes of a row of w. */

/* Scales and zeros of a run, which lie side by side.  *zero: what a sum of x is to be multiplied with. */
MG_INLINE void SIMD_FN(int4_terms)(const float *t, VF *scale, VF *zero) {
  VI even, odd;
  MG_UNROLL
  for (int i = 0; i < SIMD_LANES; i++) even[i] = 2 * i, odd[i] = 2 * i + 1;
  VF a = *(const VF *)t, b = *(const VF *)(t + SIMD_LANES);
  *scale = MG_SHUFFLE_2(a, b, even);
  *zero = MG_SHUFFLE_2(a, b, odd) - 8.f * *scale;
}

/* `depth` rows of the run at p, whose bits lie at `shift`, as floats that are `panel` apart. */
static void SIMD_FN(int4_unpack)(const uint8_t *p, int64_t step, int shift, int64_t depth, const float *terms,
                                 int64_t panel, float *to) {
  VF scale, zero;
  SIMD_FN(int4_terms)(terms, &scale, &zero);
  for (int64_t k = 0; k < depth; k++, p += step, to += panel) {
    VI v = INT4_BYTES(p) >> shift;
    *(VF *)to = INT4_NUMBER(v) * scale + zero;
  }
}

/* sum[r][half] += the product of rows of x with both halves of the run at p, over one group: `depth` rows of
 * w. nrow and `chains`, the sums that are added up at the end, are constants where this is inlined. */
MG_INLINE void SIMD_FN(int4_group)(const Int4Rows *t, const uint8_t *p, const float *x, int64_t group,
                                   VF (*sum)[2], const int nrow, const int chains) {
  VF acc[4][INT4_MOST_ROWS][2], scale[2], zero[2];
  MG_UNROLL
  for (int u = 0; u < chains; u++) {
    MG_UNROLL
    for (int r = 0; r < nrow; r++) acc[u][r][0] = acc[u][r][1] = (VF){0};
  }
  for (int64_t k = 0; k < t->v->group; k += chains) {
    MG_UNROLL
    for (int u = 0; u < chains; u++) {
      VI v = INT4_BYTES(p + (k + u) * t->step);
      VF low = INT4_NUMBER(v), high = INT4_NUMBER(v >> 4);
      MG_UNROLL
      for (int r = 0; r < nrow; r++) {
        acc[u][r][0] += x[r * t->v->k + k + u] * low;
        acc[u][r][1] += x[r * t->v->k + k + u] * high;
      }
    }
  }
  SIMD_FN(int4_terms)(t->terms[0], &scale[0], &zero[0]);
  SIMD_FN(int4_terms)(t->terms[1], &scale[1], &zero[1]);
  MG_UNROLL
  for (int r = 0; r < nrow; r++) {
    float total = t->total[r * t->v->ngroup + group];
    MG_UNROLL
    for (int h = 0; h < 2; h++) {
      VF a = acc[0][r][h];
      MG_UNROLL
      for (int u = 1; u < chains; u++) a += acc[u][r][h];
      sum[r][h] += scale[h] * a + zero[h] * total;
    }
  }
}

MG_INLINE void SIMD_FN(int4_sums)(Int4Rows *t, const int nrow, const int chains) {
  VF sum[INT4_MOST_ROWS][2];
  MG_UNROLL
  for (int r = 0; r < nrow; r++) sum[r][0] = sum[r][1] = (VF){0};
  for (int64_t g = 0; g < t->v->ngroup; g++) {
    int4_load(t, g, SIMD_LANES);
    SIMD_FN(int4_group)(t, t->w + g * t->v->group * t->step, t->x + g * t->v->group, g, sum, nrow, chains);
  }
  MG_UNROLL
  for (int r = 0; r < nrow; r++) *(VF *)t->out[r][0] = sum[r][0], *(VF *)t->out[r][1] = sum[r][1];
}

/* Products of nrow rows, at most INT4_MOST_ROWS, with both halves of a run. */
static void SIMD_FN(int4_rows)(Int4Rows *t, int nrow) {
  switch (nrow) {
  case 1: SIMD_FN(int4_sums)(t, 1, 4); return;
  case 2: SIMD_FN(int4_sums)(t, 2, 2); return;
  case 3: SIMD_FN(int4_sums)(t, 3, 1); return;
  default: SIMD_FN(int4_sums)(t, 4, 1); return;
  }
}

static const Int4Set SIMD_FN(int4_set) = {SIMD_LANES, SIMD_FN(int4_unpack), SIMD_FN(int4_rows)};

#undef INT4_BYTES
#undef INT4_NUMBER
