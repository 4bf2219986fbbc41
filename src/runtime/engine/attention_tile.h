/* Attention of one block of queries, written once and compiled for each instruction set: attention.c includes
 * this file once per set, between #pragma GCC target lines, with
 *   SDPA_SET    the set's name, part of the names of functions
 *   SDPA_LANES  floats of a vector register
 *   SDPA_WIDE   vectors that a register tile is wide; with SDPA_ROWS rows all accumulators stay in registers
 *   SDPA_ROWS   rows of a register tile, at most 6
 *   SDPA_MAX    the larger of two vectors, lane by lane
 * Vectors are never wider than a register: gcc would split them and spill (4 to 7 times slower).
 * No vector is passed or returned by value, so that the functions fit together whatever the set. */
#define SDPA_PASTE2(a, b) a##_##b
#define SDPA_PASTE(a, b) SDPA_PASTE2(a, b)
#define SDPA_FN(name) SDPA_PASTE(name, SDPA_SET)
#define SDPA_TYPE2(t, n) t##n
#define SDPA_TYPE(t, n) SDPA_TYPE2(t, n)
#define VF SDPA_TYPE(MgF, SDPA_LANES)
#define VI SDPA_TYPE(MgI, SDPA_LANES)
#define SDPA_PLUS(a, b) ((a) + (b))
/* All lanes of v become v's lanes combined. */
#define SDPA_ACROSS(v, with)                                                                                 \
  UNROLL                                                                                                     \
  for (int by_ = SDPA_LANES / 2; by_; by_ /= 2) {                                                            \
    VI to_;                                                                                                  \
    UNROLL                                                                                                   \
    for (int i_ = 0; i_ < SDPA_LANES; i_++) to_[i_] = i_ ^ by_;                                              \
    (v) = with((v), __builtin_shuffle((v), to_));                                                            \
  }
#define TRANSPOSE SDPA_TYPE(MG_TRANSPOSE_, SDPA_LANES)
enum {
  SDPA_FN(PANEL) = SDPA_LANES * SDPA_WIDE, /* columns of a register tile, and of a panel of keys */
  SDPA_FN(DEPTH) =
      L1_BYTES / (int)sizeof(float) / SDPA_FN(PANEL) /* rows of a right operand that stay in cache */
};

/* c[mr][LANES * nv] (+)= a[mr][depth] @ b[depth][LANES * nv]; mr and nv are
 * constants where this is inlined. */
INLINE void SDPA_FN(tile)(const float *a, int64_t lda, const float *b, int64_t ldb, int64_t depth, float *c,
                          int64_t ldc, bool add, const int mr, const int nv) {
  VF acc[SDPA_ROWS][SDPA_WIDE];
  UNROLL
  for (int i = 0; i < mr; i++) {
    UNROLL
    for (int j = 0; j < nv; j++) acc[i][j] = add ? *(VF *)(c + i * ldc + j * SDPA_LANES) : (VF){0};
  }
  for (int64_t k = 0; k < depth; k++, b += ldb) {
    VF col[SDPA_WIDE];
    UNROLL
    for (int j = 0; j < nv; j++) col[j] = *(const VF *)(b + j * SDPA_LANES);
    UNROLL
    for (int i = 0; i < mr; i++) {
      float x = a[i * lda + k];
      UNROLL
      for (int j = 0; j < nv; j++) acc[i][j] += x * col[j];
    }
  }
  UNROLL
  for (int i = 0; i < mr; i++) {
    UNROLL
    for (int j = 0; j < nv; j++) *(VF *)(c + i * ldc + j * SDPA_LANES) = acc[i][j];
  }
}

/* c[n][LANES * nv] (+)= a[n][depth] @ b[depth][PANEL], of which LANES * nv columns are used.  Rows are dealt
 * out to tiles of about the same height, since a tile of one row takes as long as one of four. */
INLINE void SDPA_FN(stripe)(const float *a, int64_t lda, const float *b, int64_t depth, float *c, int64_t ldc,
                            bool add, int64_t n, const int nv) {
  while (n > 0) {
    int64_t tiles = (n + SDPA_ROWS - 1) / SDPA_ROWS,
            rows = n >= 2 * SDPA_ROWS ? SDPA_ROWS : (n + tiles - 1) / tiles;
#define SDPA_TILE(mr)                                                                                        \
  case mr:                                                                                                   \
    SDPA_FN(tile)(a, lda, b, SDPA_FN(PANEL), depth, c, ldc, add, mr < SDPA_ROWS ? mr : SDPA_ROWS, nv);       \
    break;
    switch (rows) { SDPA_TILE(1) SDPA_TILE(2) SDPA_TILE(3) SDPA_TILE(4) SDPA_TILE(5) SDPA_TILE(6) }
#undef SDPA_TILE
    n -= rows, a += rows * lda, c += rows * ldc;
  }
}

/* c[n][width] = a[n][depth] @ b, where b lies in panels: [width / PANEL][depth][PANEL].  width is a multiple
 * of LANES. The depth is cut into parts that stay in cache. */
static void SDPA_FN(product)(const float *a, int64_t lda, const float *b, int64_t deep, int64_t depth,
                             float *c, int64_t ldc, int64_t n, int64_t width) {
  for (int64_t j = 0; j < width; j += SDPA_FN(PANEL), b += deep * SDPA_FN(PANEL))
    for (int64_t k = 0; k < depth; k += SDPA_FN(DEPTH)) {
      int64_t part = depth - k < SDPA_FN(DEPTH) ? depth - k : SDPA_FN(DEPTH), col = 0;
      const float *x = a + k, *y = b + k * SDPA_FN(PANEL);
      if (width - j >= SDPA_FN(PANEL)) {
        SDPA_FN(stripe)(x, lda, y, part, c + j, ldc, k > 0, n, SDPA_WIDE);
        continue;
      }
      for (; SDPA_WIDE > 2 && j + col + 2 * SDPA_LANES <= width; col += 2 * SDPA_LANES)
        SDPA_FN(stripe)(x, lda, y + col, part, c + j + col, ldc, k > 0, n, SDPA_WIDE > 2 ? 2 : 1);
      if (j + col < width) SDPA_FN(stripe)(x, lda, y + col, part, c + j + col, ldc, k > 0, n, 1);
    }
}

/* *y = e^x for x = *at - top <= 0, 2 ulp; 0 below -87.3 (also for -inf), NaN stays. */
INLINE void SDPA_FN(exp_neg)(VF *y, const VF *at, float top) {
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

/* One row of scores, n of them real and the rest up to a multiple of LANES to become 0: adds the mask, and
 * replaces them by their exponentials relative to the largest.  Returns the sum. */
INLINE float SDPA_FN(soften)(float *s, int64_t n, const float *mask, int64_t mask_step) {
  if (mask && mask_step == 1)
    for (int64_t i = 0; i < n; i++) s[i] += mask[i];
  else if (mask)
    for (int64_t i = 0; i < n; i++) s[i] += mask[i * mask_step];
  int64_t up = (n + SDPA_LANES - 1) / SDPA_LANES * SDPA_LANES;
  for (int64_t i = n; i < up; i++) s[i] = -INFINITY;
  VF m = *(VF *)s, m2 = *(VF *)(s + up - SDPA_LANES);
  for (int64_t i = SDPA_LANES; i + SDPA_LANES < up; i += 2 * SDPA_LANES) {
    m = SDPA_MAX(m, *(VF *)(s + i));
    m2 = SDPA_MAX(m2, *(VF *)(s + i + SDPA_LANES));
  }
  m = SDPA_MAX(m, m2);
  SDPA_ACROSS(m, SDPA_MAX)
  float top = m[0]; /* a NaN may be lost here; it comes back as its own exponential */
  if (top == -INFINITY) return nothing_seen(s, up);
  VF sum = {0};
  for (int64_t i = 0; i < up; i += SDPA_LANES) {
    SDPA_FN(exp_neg)((VF *)(s + i), (VF *)(s + i), top);
    sum += *(VF *)(s + i);
  }
  SDPA_ACROSS(sum, SDPA_PLUS)
  return sum[0];
}

/* to[n] = from[n] * by */
INLINE void SDPA_FN(scale)(float *to, const float *from, int64_t n, float by) {
  int64_t i = 0;
  for (; i + SDPA_LANES <= n; i += SDPA_LANES) *(VF *)(to + i) = *(const VF *)(from + i) * by;
  for (; i < n; i++) to[i] = from[i] * by;
}

/* nrow queries from `row` of one head (batch * heads + head); its keys and values are
 * packed in scratch already. */
static void SDPA_FN(block)(const Sdpa *s, void *const *ptr, float *scratch, int64_t head, int64_t row,
                           int64_t nrow) {
  const MgTensorDesc *t = s->d.t;
  const float *q = at(s, ptr, SDPA_q, head);
  const float *mask = t[SDPA_mask].present ? at(s, ptr, SDPA_mask, head) : NULL;
  float *out = (float *)at(s, ptr, SDPA_out, head), *queries = part_queries(s, scratch);
  float *scores = part_scores(s, scratch), *result = part_out(s, scratch);
  int64_t seen = s->nkey;
  if (s->d.causal && row + nrow < seen) seen = row + nrow;
  for (int64_t i = 0; i < nrow; i++)
    SDPA_FN(scale)(queries + i * s->dim, q + (row + i) * t[SDPA_q].stride[2], s->dim, s->d.scale);
  int64_t up = (seen + SDPA_LANES - 1) / SDPA_LANES * SDPA_LANES;
  SDPA_FN(product)(queries, s->dim, part_keys(s, scratch), s->dim, s->dim, scores, s->line, nrow, up);
  float scale[nrow];
  for (int64_t i = 0; i < nrow; i++) {
    int64_t n = s->d.causal && row + i + 1 < seen ? row + i + 1 : seen;
    float *line = scores + i * s->line;
    const float *add = mask ? mask + (row + i) * t[SDPA_mask].stride[2] : NULL;
    float sum = SDPA_FN(soften)(line, n, add, t[SDPA_mask].stride[3]);
    for (int64_t j = (n + SDPA_LANES - 1) / SDPA_LANES * SDPA_LANES; j < seen; j++) line[j] = 0;
    scale[i] = sum == 0 ? 0 : 1 / sum;
  }
  SDPA_FN(product)(scores, s->line, part_values(s, scratch), s->nkey, seen, result, s->vpad, nrow, s->vpad);
  for (int64_t i = 0; i < nrow; i++)
    SDPA_FN(scale)(out + (row + i) * t[SDPA_out].stride[2], result + i * s->vpad, s->vdim, scale[i]);
}

/* Keys of one head as panels: to[nkey / PANEL][dim][PANEL]; columns past the last key become 0. */
static void SDPA_FN(pack_keys)(const Sdpa *s, const float *k, float *to) {
  int64_t step = s->d.t[SDPA_k].stride[2];
  for (int64_t c = 0; c < s->nkey; c += SDPA_LANES) {
    float *panel = to + c / SDPA_FN(PANEL) * SDPA_FN(PANEL) * s->dim + c % SDPA_FN(PANEL);
    int64_t j = 0;
    for (; c + SDPA_LANES <= s->nkey && j + SDPA_LANES <= s->dim; j += SDPA_LANES) {
      VF r[SDPA_LANES];
      MG_UNROLL
      for (int i = 0; i < SDPA_LANES; i++) r[i] = *(const VF *)(k + (c + i) * step + j);
      TRANSPOSE(r)
      MG_UNROLL
      for (int i = 0; i < SDPA_LANES; i++) *(VF *)(panel + (j + i) * SDPA_FN(PANEL)) = r[i];
    }
    for (; j < s->dim; j++)
      for (int64_t i = 0; i < SDPA_LANES; i++)
        panel[j * SDPA_FN(PANEL) + i] = c + i < s->nkey ? k[(c + i) * step + j] : 0;
  }
}

/* Values of one head as panels: to[vdim / PANEL][nkey][PANEL]; columns past the last one become 0. */
static void SDPA_FN(pack_values)(const Sdpa *s, const float *v, float *to) {
  int64_t step = s->d.t[SDPA_v].stride[2];
  for (int64_t c = 0; c < s->vpad; c += SDPA_LANES) {
    float *panel = to + c / SDPA_FN(PANEL) * SDPA_FN(PANEL) * s->nkey + c % SDPA_FN(PANEL);
    if (c + SDPA_LANES <= s->vdim)
      for (int64_t i = 0; i < s->nkey; i++)
        *(VF *)(panel + i * SDPA_FN(PANEL)) = *(const VF *)(v + i * step + c);
    else
      for (int64_t i = 0; i < s->nkey; i++)
        for (int64_t j = 0; j < SDPA_LANES; j++)
          panel[i * SDPA_FN(PANEL) + j] = c + j < s->vdim ? v[i * step + c + j] : 0;
  }
}

static const SdpaSet SDPA_FN(sdpa) = {SDPA_LANES,     SDPA_FN(PANEL),     SDPA_ROWS,
                                      SDPA_FN(block), SDPA_FN(pack_keys), SDPA_FN(pack_values)};

#undef SDPA_PASTE2
#undef SDPA_PASTE
#undef SDPA_FN
#undef SDPA_TYPE2
#undef SDPA_TYPE
#undef VF
#undef VI
#undef TRANSPOSE
#undef SDPA_PLUS
#undef SDPA_ACROSS
#undef SDPA_MAX
#undef SDPA_SET
#undef SDPA_LANES
#undef SDPA_WIDE
#undef SDPA_ROWS
