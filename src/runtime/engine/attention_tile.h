/* Attention of one block of queries, written once and compiled for each instruction set: attention.c includes
 * this file once per set, after simd.h, with
 *   SDPA_WIDE   vectors that a register tile is wide; with SDPA_ROWS rows all accumulators stay in registers
 *   SDPA_ROWS   rows of a register tile, at most 6 */
#define SDPA_PLUS(a, b) ((a) + (b))
/* All lanes of v become v's lanes combined. */
#define SDPA_ACROSS(v, with)                                                                                 \
  MG_UNROLL                                                                                                  \
  for (int by_ = SIMD_LANES / 2; by_; by_ /= 2) {                                                            \
    VI to_;                                                                                                  \
    MG_UNROLL                                                                                                \
    for (int i_ = 0; i_ < SIMD_LANES; i_++) to_[i_] = i_ ^ by_;                                              \
    (v) = with((v), MG_SHUFFLE((v), to_));                                                                   \
  }
enum {
  SIMD_FN(PANEL) = SIMD_LANES * SDPA_WIDE, /* columns of a register tile, and of a panel of keys */
  SIMD_FN(DEPTH) = MG_TUNE_SDPA_L1_BYTES / (int)sizeof(float) /
                   SIMD_FN(PANEL) /* rows of a right operand that stay in cache */
};

/* c[mr][LANES * nv] (+)= a[mr][depth] @ b[depth][LANES * nv]; mr and nv are
 * constants where this is inlined. */
MG_INLINE void SIMD_FN(tile)(const float *a, int64_t lda, const float *b, int64_t ldb, int64_t depth,
                             float *c, int64_t ldc, bool add, const int mr, const int nv) {
  VF acc[SDPA_ROWS][SDPA_WIDE];
  MG_UNROLL
  for (int i = 0; i < mr; i++) {
    MG_UNROLL
    for (int j = 0; j < nv; j++) acc[i][j] = add ? *(VF *)(c + i * ldc + j * SIMD_LANES) : (VF){0};
  }
  for (int64_t k = 0; k < depth; k++, b += ldb) {
    VF col[SDPA_WIDE];
    MG_UNROLL
    for (int j = 0; j < nv; j++) col[j] = *(const VF *)(b + j * SIMD_LANES);
    MG_UNROLL
    for (int i = 0; i < mr; i++) {
      float x = a[i * lda + k];
      MG_UNROLL
      for (int j = 0; j < nv; j++) acc[i][j] += x * col[j];
    }
  }
  MG_UNROLL
  for (int i = 0; i < mr; i++) {
    MG_UNROLL
    for (int j = 0; j < nv; j++) *(VF *)(c + i * ldc + j * SIMD_LANES) = acc[i][j];
  }
}

/* c[n][LANES * nv] (+)= a[n][depth] @ b[depth][PANEL], of which LANES * nv columns are used.  Rows are dealt
 * out to tiles of about the same height, since a tile of one row takes as long as one of four. */
MG_INLINE void SIMD_FN(stripe)(const float *a, int64_t lda, const float *b, int64_t depth, float *c,
                               int64_t ldc, bool add, int64_t n, const int nv) {
  while (n > 0) {
    int64_t tiles = (n + SDPA_ROWS - 1) / SDPA_ROWS,
            rows = n >= 2 * SDPA_ROWS ? SDPA_ROWS : (n + tiles - 1) / tiles;
#define SDPA_TILE(mr)                                                                                        \
  case mr:                                                                                                   \
    SIMD_FN(tile)(a, lda, b, SIMD_FN(PANEL), depth, c, ldc, add, mr < SDPA_ROWS ? mr : SDPA_ROWS, nv);       \
    break;
    switch (rows) { SDPA_TILE(1) SDPA_TILE(2) SDPA_TILE(3) SDPA_TILE(4) SDPA_TILE(5) SDPA_TILE(6) }
#undef SDPA_TILE
    n -= rows, a += rows * lda, c += rows * ldc;
  }
}

/* c[n][width] = a[n][depth] @ b, where b lies in panels: [width / PANEL][depth][PANEL].  width is a multiple
 * of LANES. The depth is cut into parts that stay in cache. */
static void SIMD_FN(product)(const float *a, int64_t lda, const float *b, int64_t deep, int64_t depth,
                             float *c, int64_t ldc, int64_t n, int64_t width) {
  for (int64_t j = 0; j < width; j += SIMD_FN(PANEL), b += deep * SIMD_FN(PANEL))
    for (int64_t k = 0; k < depth; k += SIMD_FN(DEPTH)) {
      int64_t part = depth - k < SIMD_FN(DEPTH) ? depth - k : SIMD_FN(DEPTH), col = 0;
      const float *x = a + k, *y = b + k * SIMD_FN(PANEL);
      if (width - j >= SIMD_FN(PANEL)) {
        SIMD_FN(stripe)(x, lda, y, part, c + j, ldc, k > 0, n, SDPA_WIDE);
        continue;
      }
      for (; SDPA_WIDE > 2 && j + col + 2 * SIMD_LANES <= width; col += 2 * SIMD_LANES)
        SIMD_FN(stripe)(x, lda, y + col, part, c + j + col, ldc, k > 0, n, SDPA_WIDE > 2 ? 2 : 1);
      if (j + col < width) SIMD_FN(stripe)(x, lda, y + col, part, c + j + col, ldc, k > 0, n, 1);
    }
}

/* One row of scores, n of them real and the rest up to a multiple of LANES to become 0: adds the mask, and
 * replaces them by their exponentials relative to the largest.  Returns the sum. */
MG_INLINE float SIMD_FN(soften)(float *s, int64_t n, const float *mask, int64_t mask_step) {
  if (mask && mask_step == 1)
    for (int64_t i = 0; i < n; i++) s[i] += mask[i];
  else if (mask)
    for (int64_t i = 0; i < n; i++) s[i] += mask[i * mask_step];
  int64_t up = (n + SIMD_LANES - 1) / SIMD_LANES * SIMD_LANES;
  for (int64_t i = n; i < up; i++) s[i] = -INFINITY;
  VF m = *(VF *)s, m2 = *(VF *)(s + up - SIMD_LANES);
  for (int64_t i = SIMD_LANES; i + SIMD_LANES < up; i += 2 * SIMD_LANES) {
    m = SIMD_MAX(m, *(VF *)(s + i));
    m2 = SIMD_MAX(m2, *(VF *)(s + i + SIMD_LANES));
  }
  m = SIMD_MAX(m, m2);
  SDPA_ACROSS(m, SIMD_MAX)
  float top = m[0]; /* a NaN may be lost here; it comes back as its own exponential */
  if (top == -INFINITY) return nothing_seen(s, up);
  VF sum = {0};
  for (int64_t i = 0; i < up; i += SIMD_LANES) {
    SIMD_FN(exp_neg)((VF *)(s + i), (VF *)(s + i), top);
    sum += *(VF *)(s + i);
  }
  SDPA_ACROSS(sum, SDPA_PLUS)
  return sum[0];
}

/* to[n] = from[n] * by */
MG_INLINE void SIMD_FN(scale)(float *to, const float *from, int64_t n, float by) {
  int64_t i = 0;
  for (; i + SIMD_LANES <= n; i += SIMD_LANES) *(VF *)(to + i) = *(const VF *)(from + i) * by;
  for (; i < n; i++) to[i] = from[i] * by;
}

/* nrow queries from `row` of one head (batch * heads + head); its keys and values are
 * packed in scratch already. */
static void SIMD_FN(block)(const Sdpa *s, void *const *ptr, float *scratch, int64_t head, int64_t row,
                           int64_t nrow) {
  const MgTensorDesc *t = s->d.t;
  const float *q = at(s, ptr, SDPA_q, head);
  const float *mask = t[SDPA_mask].present ? at(s, ptr, SDPA_mask, head) : NULL;
  float *out = (float *)at(s, ptr, SDPA_out, head), *queries = part_queries(s, scratch);
  float *scores = part_scores(s, scratch), *result = part_out(s, scratch);
  int64_t seen = s->nkey;
  if (s->d.causal && row + nrow < seen) seen = row + nrow;
  for (int64_t i = 0; i < nrow; i++)
    SIMD_FN(scale)(queries + i * s->dim, q + (row + i) * t[SDPA_q].stride[2], s->dim, s->d.scale);
  int64_t up = (seen + SIMD_LANES - 1) / SIMD_LANES * SIMD_LANES;
  SIMD_FN(product)(queries, s->dim, part_keys(s, scratch), s->dim, s->dim, scores, s->line, nrow, up);
  float scale[nrow];
  for (int64_t i = 0; i < nrow; i++) {
    int64_t n = s->d.causal && row + i + 1 < seen ? row + i + 1 : seen;
    float *line = scores + i * s->line;
    const float *add = mask ? mask + (row + i) * t[SDPA_mask].stride[2] : NULL;
    float sum = SIMD_FN(soften)(line, n, add, t[SDPA_mask].stride[3]);
    for (int64_t j = (n + SIMD_LANES - 1) / SIMD_LANES * SIMD_LANES; j < seen; j++) line[j] = 0;
    scale[i] = sum == 0 ? 0 : 1 / sum;
  }
  SIMD_FN(product)(scores, s->line, part_values(s, scratch), s->nkey, seen, result, s->vpad, nrow, s->vpad);
  for (int64_t i = 0; i < nrow; i++)
    SIMD_FN(scale)(out + (row + i) * t[SDPA_out].stride[2], result + i * s->vpad, s->vdim, scale[i]);
}

/* Keys of one head as panels: to[nkey / PANEL][dim][PANEL]; columns past the last key become 0. */
static void SIMD_FN(pack_keys)(const Sdpa *s, const float *k, float *to) {
  int64_t step = s->d.t[SDPA_k].stride[2];
  for (int64_t c = 0; c < s->nkey; c += SIMD_LANES) {
    float *panel = to + c / SIMD_FN(PANEL) * SIMD_FN(PANEL) * s->dim + c % SIMD_FN(PANEL);
    int64_t j = 0;
    for (; c + SIMD_LANES <= s->nkey && j + SIMD_LANES <= s->dim; j += SIMD_LANES) {
      VF r[SIMD_LANES];
      MG_UNROLL
      for (int i = 0; i < SIMD_LANES; i++) r[i] = *(const VF *)(k + (c + i) * step + j);
      TRANSPOSE(r)
      MG_UNROLL
      for (int i = 0; i < SIMD_LANES; i++) *(VF *)(panel + (j + i) * SIMD_FN(PANEL)) = r[i];
    }
    for (; j < s->dim; j++)
      for (int64_t i = 0; i < SIMD_LANES; i++)
        panel[j * SIMD_FN(PANEL) + i] = c + i < s->nkey ? k[(c + i) * step + j] : 0;
  }
}

/* Values of one head as panels: to[vdim / PANEL][nkey][PANEL]; columns past the last one become 0. */
static void SIMD_FN(pack_values)(const Sdpa *s, const float *v, float *to) {
  int64_t step = s->d.t[SDPA_v].stride[2];
  for (int64_t c = 0; c < s->vpad; c += SIMD_LANES) {
    float *panel = to + c / SIMD_FN(PANEL) * SIMD_FN(PANEL) * s->nkey + c % SIMD_FN(PANEL);
    if (c + SIMD_LANES <= s->vdim)
      for (int64_t i = 0; i < s->nkey; i++)
        *(VF *)(panel + i * SIMD_FN(PANEL)) = *(const VF *)(v + i * step + c);
    else
      for (int64_t i = 0; i < s->nkey; i++)
        for (int64_t j = 0; j < SIMD_LANES; j++)
          panel[i * SIMD_FN(PANEL) + j] = c + j < s->vdim ? v[i * step + c + j] : 0;
  }
}

/* ---- a few queries: keys and values are read where they lie, since packing would cost more than the
 * products */

/* x[n] . y[n] */
MG_INLINE float SIMD_FN(dot)(const float *x, const float *y, int64_t n) {
  VF acc = {0};
  int64_t i = 0;
  for (; i + SIMD_LANES <= n; i += SIMD_LANES) acc += *(const VF *)(x + i) * *(const VF *)(y + i);
  SDPA_ACROSS(acc, SDPA_PLUS)
  float sum = acc[0];
  for (; i < n; i++) sum += x[i] * y[i];
  return sum;
}

/* to[n] = products of q[dim] with n keys; LANES keys are summed at a time, by a transposition. */
MG_INLINE void SIMD_FN(scores)(const float *q, const float *k, int64_t step, int64_t dim, int64_t n,
                               float *to) {
  int64_t c = 0, whole = dim / SIMD_LANES * SIMD_LANES;
  for (; c + SIMD_LANES <= n; c += SIMD_LANES, k += SIMD_LANES * step) {
    VF r[SIMD_LANES];
    MG_UNROLL
    for (int i = 0; i < SIMD_LANES; i++) r[i] = (VF){0};
    for (int64_t j = 0; j < whole; j += SIMD_LANES) {
      VF x = *(const VF *)(q + j);
      MG_UNROLL
      for (int i = 0; i < SIMD_LANES; i++) r[i] += x * *(const VF *)(k + i * step + j);
    }
    TRANSPOSE(r)
    VF sum = r[0];
    MG_UNROLL
    for (int i = 1; i < SIMD_LANES; i++) sum += r[i];
    *(VF *)(to + c) = sum;
    for (int64_t j = whole; j < dim; j++)
      for (int i = 0; i < SIMD_LANES; i++) to[c + i] += q[j] * k[i * step + j];
  }
  for (; c < n; c++, k += step) to[c] = SIMD_FN(dot)(q, k, dim);
}

/* to[LANES * nv] = by * (weight[n] @ v[n][LANES * nv]) */
MG_INLINE void SIMD_FN(mix)(const float *weight, const float *v, int64_t step, int64_t n, float by, float *to,
                            const int nv) {
  VF acc[SDPA_WIDE];
  MG_UNROLL
  for (int j = 0; j < nv; j++) acc[j] = (VF){0};
  for (int64_t i = 0; i < n; i++, v += step) {
    MG_UNROLL
    for (int j = 0; j < nv; j++) acc[j] += weight[i] * *(const VF *)(v + j * SIMD_LANES);
  }
  MG_UNROLL
  for (int j = 0; j < nv; j++) *(VF *)(to + j * SIMD_LANES) = acc[j] * by;
}

/* All queries of one head. */
static void SIMD_FN(few)(const Sdpa *s, void *const *ptr, float *scratch, int64_t head) {
  const MgTensorDesc *t = s->d.t;
  const float *k = at(s, ptr, SDPA_k, head), *v = at(s, ptr, SDPA_v, head);
  float *query = part_queries(s, scratch), *scores = part_scores(s, scratch);
  int64_t step = t[SDPA_v].stride[2];
  for (int64_t i = 0; i < s->nquery; i++) {
    int64_t n = s->d.causal && i + 1 < s->nkey ? i + 1 : s->nkey, j = 0;
    const float *mask = NULL;
    if (t[SDPA_mask].present) mask = at(s, ptr, SDPA_mask, head) + i * t[SDPA_mask].stride[2];
    SIMD_FN(scale)(query, at(s, ptr, SDPA_q, head) + i * t[SDPA_q].stride[2], s->dim, s->d.scale);
    SIMD_FN(scores)(query, k, t[SDPA_k].stride[2], s->dim, n, scores);
    float sum = SIMD_FN(soften)(scores, n, mask, t[SDPA_mask].stride[3]), by = sum == 0 ? 0 : 1 / sum;
    float *out = (float *)at(s, ptr, SDPA_out, head) + i * t[SDPA_out].stride[2];
    for (; j + SIMD_FN(PANEL) <= s->vdim; j += SIMD_FN(PANEL))
      SIMD_FN(mix)(scores, v + j, step, n, by, out + j, SDPA_WIDE);
    for (; j + SIMD_LANES <= s->vdim; j += SIMD_LANES) SIMD_FN(mix)(scores, v + j, step, n, by, out + j, 1);
    for (; j < s->vdim; j++) {
      float x = 0;
      for (int64_t c = 0; c < n; c++) x += scores[c] * v[c * step + j];
      out[j] = x * by;
    }
  }
}

static const SdpaSet SIMD_FN(sdpa) = {SIMD_LANES,   SIMD_FN(PANEL),     SDPA_ROWS,           SIMD_FN(block),
                                      SIMD_FN(few), SIMD_FN(pack_keys), SIMD_FN(pack_values)};

#undef SDPA_PLUS
#undef SDPA_ACROSS
#undef SDPA_WIDE
#undef SDPA_ROWS
