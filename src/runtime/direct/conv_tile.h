/* Correlations by register tiles, written once and compiled for each instruction set: conv_planes.c includes
 * this file once per set, after simd.h.  A tile is up to 9 vectors of sums: rows times vectors of columns.
 * Every point of the window costs a tile one broadcast, and a load and a multiplication for each vector. */

/* Every second element of two vectors; the same where the other one begins an element earlier. */
#if SIMD_LANES == 8
#define CONV_EVEN {0, 2, 4, 6, 8, 10, 12, 14}
#define CONV_EVEN_LAST {0, 2, 4, 6, 9, 11, 13, 15}
#else
#define CONV_EVEN {0, 2, 4, 6}
#define CONV_EVEN_LAST {0, 2, 5, 7}
#endif

MG_INLINE void SIMD_FN(conv_put)(float *to, const VF *v, int64_t n) {
  if (n == SIMD_LANES) *(VF *)to = *v;
  else {
    float part[SIMD_LANES];
    memcpy(part, v, sizeof part);
    int64_t i = 0;
    if (SIMD_LANES > 4 && n & 4) memcpy(to, part, 4 * sizeof *to), i = 4;
    if (n & 2) memcpy(to + i, part + i, 2 * sizeof *to), i += 2;
    if (n & 1) to[i] = part[i];
  }
}

/* A tile's sums; the last vector of a row has `lanes` columns. */
MG_INLINE void SIMD_FN(conv_store)(const ConvRows *r, int64_t row, int64_t col, int64_t lanes, const VF *sum,
                                   const int nrow, const int nvec) {
  float *out = r->out + row * r->pitch + col;
  MG_UNROLL
  for (int i = 0; i < nrow; i++) {
    MG_UNROLL
    for (int j = 0; j < nvec; j++) SIMD_FN(conv_put)
    (out + i * r->pitch + j * SIMD_LANES, &sum[i * nvec + j], j + 1 < nvec ? SIMD_LANES : lanes);
  }
}

/* nrow x nvec vectors from column `col` of row `row` on; the last vector has `lanes` columns. */
MG_INLINE void SIMD_FN(conv_tile)(const ConvRows *r, int64_t row, int64_t col, int64_t lanes, const int nrow,
                                  const int nvec) {
  VF sum[9];
  const float *src = r->src + row * r->step + col;
  MG_UNROLL
  for (int i = 0; i < nrow * nvec; i++) sum[i] = (VF){0} + r->first;
  for (int64_t p = 0; p < r->npoint; p++) {
    VF w = (VF){0} + r->weight[p];
    const float *at = src + r->at[p];
    MG_UNROLL
    for (int i = 0; i < nrow; i++) {
      MG_UNROLL
      for (int j = 0; j < nvec; j++)
        sum[i * nvec + j] += w * *(const VF *)(at + i * r->step + j * SIMD_LANES);
    }
  }
  SIMD_FN(conv_store)(r, row, col, lanes, sum, nrow, nvec);
}

#if SIMD_LANES == 8
/* The same where the window has `tall` rows and rows follow each other: a vector of the source is loaded once
 * for all rows of the tile that it counts in. */
MG_INLINE void SIMD_FN(conv_tall)(const ConvRows *r, int64_t row, int64_t col, int64_t lanes, const int nrow,
                                  const int nvec, const int tall) {
  VF sum[9];
  const float *src = r->src + row * r->step + col, *w = r->weight;
  MG_UNROLL
  for (int i = 0; i < nrow * nvec; i++) sum[i] = (VF){0} + r->first;
  for (int64_t p = 0; p < r->npoint; p += tall, w += tall) {
    const float *at = src + r->at[p];
    MG_UNROLL
    for (int s = 0; s < nrow + tall - 1; s++, at += r->step) {
      VF v[3];
      MG_UNROLL
      for (int j = 0; j < nvec; j++) v[j] = *(const VF *)(at + j * SIMD_LANES);
      MG_UNROLL
      for (int i = 0; i < nrow; i++)
        if (s >= i && s - i < tall) {
          MG_UNROLL
          for (int j = 0; j < nvec; j++) sum[i * nvec + j] += w[s - i] * v[j];
        }
    }
  }
  SIMD_FN(conv_store)(r, row, col, lanes, sum, nrow, nvec);
}
#endif

typedef void (*SIMD_FN(ConvTileFn))(const ConvRows *r, int64_t row, int64_t col, int64_t lanes);
typedef struct SIMD_FN(ConvTiles) { /* by rows; all are as wide */
  const SIMD_FN(ConvTileFn) * fn;
  int rows;
} SIMD_FN(ConvTiles);

#define CONV_NAME(kind, rows, vecs) SIMD_FN(conv_##kind##_##rows##_##vecs)
#define CONV_TILE(kind, rows, vecs, CALL)                                                                    \
  static void CONV_NAME(kind, rows, vecs)(const ConvRows *r, int64_t row, int64_t col, int64_t lanes) {      \
    CALL(rows, vecs);                                                                                        \
  }
/* All tiles of a kind up to 3 vectors wide, and the table of them. */
#define CONV_TILES(kind, CALL)                                                                               \
  CONV_TILE(kind, 1, 1, CALL)                                                                                \
  CONV_TILE(kind, 2, 1, CALL)                                                                                \
  CONV_TILE(kind, 3, 1, CALL)                                                                                \
  CONV_TILE(kind, 4, 1, CALL)                                                                                \
  CONV_TILE(kind, 5, 1, CALL)                                                                                \
  CONV_TILE(kind, 6, 1, CALL)                                                                                \
  CONV_TILE(kind, 7, 1, CALL)                                                                                \
  CONV_TILE(kind, 8, 1, CALL)                                                                                \
  CONV_TILE(kind, 1, 2, CALL)                                                                                \
  CONV_TILE(kind, 2, 2, CALL)                                                                                \
  CONV_TILE(kind, 3, 2, CALL)                                                                                \
  CONV_TILE(kind, 4, 2, CALL)                                                                                \
  CONV_TILE(kind, 1, 3, CALL)                                                                                \
  CONV_TILE(kind, 2, 3, CALL)                                                                                \
  CONV_TILE(kind, 3, 3, CALL)                                                                                \
  static const SIMD_FN(ConvTileFn) CONV_NAME(kind, all, 1)[] = {                                             \
      CONV_NAME(kind, 1, 1), CONV_NAME(kind, 2, 1), CONV_NAME(kind, 3, 1), CONV_NAME(kind, 4, 1),            \
      CONV_NAME(kind, 5, 1), CONV_NAME(kind, 6, 1), CONV_NAME(kind, 7, 1), CONV_NAME(kind, 8, 1)};           \
  static const SIMD_FN(ConvTileFn) CONV_NAME(kind, all, 2)[] = {                                             \
      CONV_NAME(kind, 1, 2), CONV_NAME(kind, 2, 2), CONV_NAME(kind, 3, 2), CONV_NAME(kind, 4, 2)};           \
  static const SIMD_FN(ConvTileFn)                                                                           \
      CONV_NAME(kind, all, 3)[] = {CONV_NAME(kind, 1, 3), CONV_NAME(kind, 2, 3), CONV_NAME(kind, 3, 3)};

#define CONV_CALL(rows, vecs) SIMD_FN(conv_tile)(r, row, col, lanes, rows, vecs)
#define CONV_CALL_3(rows, vecs) SIMD_FN(conv_tall)(r, row, col, lanes, rows, vecs, 3)
#define CONV_CALL_5(rows, vecs) SIMD_FN(conv_tall)(r, row, col, lanes, rows, vecs, 5)
#define CONV_CALL_7(rows, vecs) SIMD_FN(conv_tall)(r, row, col, lanes, rows, vecs, 7)
CONV_TILES(tile, CONV_CALL)
CONV_TILE(tile, 1, 8, CONV_CALL)
static const SIMD_FN(ConvTileFn) CONV_NAME(tile, all, 8)[] = {CONV_NAME(tile, 1, 8)};
#if SIMD_LANES == 8
CONV_TILES(tall_3, CONV_CALL_3)
CONV_TILES(tall_5, CONV_CALL_5)
CONV_TILES(tall_7, CONV_CALL_7)
#endif

/* By the kind of the window (0: any, then 3, 5 and 7 rows), and by vectors. */
static const SIMD_FN(ConvTiles) SIMD_FN(conv_tiles)[4][4] = {
    {{0}, {CONV_NAME(tile, all, 1), 8}, {CONV_NAME(tile, all, 2), 4}, {CONV_NAME(tile, all, 3), 3}},
#if SIMD_LANES == 8
    {{0}, {CONV_NAME(tall_3, all, 1), 8}, {CONV_NAME(tall_3, all, 2), 4}, {CONV_NAME(tall_3, all, 3), 3}},
    {{0}, {CONV_NAME(tall_5, all, 1), 8}, {CONV_NAME(tall_5, all, 2), 4}, {CONV_NAME(tall_5, all, 3), 3}},
    {{0}, {CONV_NAME(tall_7, all, 1), 8}, {CONV_NAME(tall_7, all, 2), 4}, {CONV_NAME(tall_7, all, 3), 3}},
#endif
};
static const SIMD_FN(ConvTiles) SIMD_FN(conv_long) = {CONV_NAME(tile, all, 8), 1}; /* of a single row */
#undef CONV_NAME
#undef CONV_TILE
#undef CONV_TILES
#undef CONV_CALL
#undef CONV_CALL_3
#undef CONV_CALL_5
#undef CONV_CALL_7

static void SIMD_FN(conv_rows)(const ConvRows *r) {
  int kind = SIMD_LANES == 8 && (r->tall == 3 || r->tall == 5 || r->tall == 7) ? (int)r->tall / 2 : 0;
  for (int64_t col = 0; col < r->ncol;) {
    int64_t left = (r->ncol - col + SIMD_LANES - 1) / SIMD_LANES;
    bool wide = r->nrow == 1 && left >= 8;
    int64_t vecs = wide ? 8 : left <= 3 ? left : left == 4 ? 2 : 3; /* 4 is twice 2 */
    const SIMD_FN(ConvTiles) *t = wide ? &SIMD_FN(conv_long) : &SIMD_FN(conv_tiles)[kind][vecs];
    int64_t end = col + SIMD_LANES * vecs, lanes = SIMD_LANES;
    if (end > r->ncol) lanes -= end - r->ncol;
    int64_t blocks = (r->nrow + t->rows - 1) / t->rows, row = 0;
    for (int64_t b = 0; b < blocks; b++) { /* equal shares: sums of few rows wait for one another */
      int64_t to = r->nrow * (b + 1) / blocks;
      t->fn[to - row - 1](r, row, col, lanes);
      row = to;
    }
    col = end;
  }
}

/* to[i] = from[i * step] */
MG_INLINE void SIMD_FN(conv_copy_row)(float *to, const float *from, int64_t n, int64_t step) {
  int64_t i = 0;
  if (n < SIMD_LANES || (step != 1 && step != 2)) { /* 0: expanded */
    for (; i < n; i++) to[i] = from[i * step];
  } else if (step == 1) {
    for (; i + SIMD_LANES <= n; i += SIMD_LANES) *(VF *)(to + i) = *(const VF *)(from + i);
    *(VF *)(to + n - SIMD_LANES) = *(const VF *)(from + n - SIMD_LANES);
  } else {
    for (; i + SIMD_LANES < n; i += SIMD_LANES) {
      VF a = *(const VF *)(from + 2 * i), b = *(const VF *)(from + 2 * i + SIMD_LANES);
      *(VF *)(to + i) = MG_SHUFFLE_2(a, b, (VI)CONV_EVEN);
    }
    const float *last = from + 2 * (n - SIMD_LANES); /* nothing behind the last element is read */
    VF a = *(const VF *)last, b = *(const VF *)(last + SIMD_LANES - 1);
    *(VF *)(to + n - SIMD_LANES) = MG_SHUFFLE_2(a, b, (VI)CONV_EVEN_LAST);
  }
}

static void SIMD_FN(conv_copy)(const ConvCopy *c) {
  float *to = c->to;
  const float *from = c->from;
  for (int64_t r = 0; r < c->nrow; r++, to += c->pitch, from += c->row)
    SIMD_FN(conv_copy_row)(to, from, c->n, c->step);
}

/* A square of a transposition. */
MG_INLINE void SIMD_FN(conv_turn_square)(const ConvTurn *t, int64_t i, int64_t j) {
  VF v[SIMD_LANES];
  MG_UNROLL
  for (int k = 0; k < SIMD_LANES; k++) v[k] = *(const VF *)(t->from + (j + k) * t->row + i);
  TRANSPOSE(v)
  MG_UNROLL
  for (int k = 0; k < SIMD_LANES; k++) *(VF *)(t->to + (i + k) * t->pitch + j) = v[k];
}

static void SIMD_FN(conv_turn)(const ConvTurn *t) {
  if (t->ni < SIMD_LANES || t->nj < SIMD_LANES) {
    for (int64_t j = 0; j < t->nj; j++)
      for (int64_t i = 0; i < t->ni; i++) t->to[i * t->pitch + j] = t->from[j * t->row + i];
    return;
  }
  for (int64_t j = 0; j < t->nj; j += SIMD_LANES) /* the last squares overlap those before them */
    for (int64_t i = 0; i < t->ni; i += SIMD_LANES) SIMD_FN(conv_turn_square)
  (t, i + SIMD_LANES <= t->ni ? i : t->ni - SIMD_LANES, j + SIMD_LANES <= t->nj ? j : t->nj - SIMD_LANES);
}

static const int SIMD_FN(conv_ones)[2 * SIMD_LANES] = {
#if SIMD_LANES == 8
    -1, -1, -1, -1, -1,
    -1, -1, -1
#else
    -1, -1, -1, -1
#endif
};

MG_INLINE float SIMD_FN(conv_lanes)(const VF *v) {
  float s = 0;
  for (int i = 0; i < SIMD_LANES; i++) s += (*v)[i];
  return s;
}

MG_INLINE void SIMD_FN(conv_dot)(const ConvDots *d, int64_t first, const int n) {
  VF sum[9];
  int64_t whole = d->ncol / SIMD_LANES * SIMD_LANES, rest = d->ncol - whole;
  VI keep = *(const VI *)(SIMD_FN(conv_ones) + SIMD_LANES - rest);
  MG_UNROLL
  for (int k = 0; k < n; k++) sum[k] = (VF){0};
  for (int64_t row = 0; row < d->nrow; row++) {
    const float *src = d->src + row * d->step, *grad = d->grad + row * d->pitch;
    for (int64_t i = 0; i < whole; i += SIMD_LANES) {
      VF g = *(const VF *)(grad + i);
      MG_UNROLL
      for (int k = 0; k < n; k++) sum[k] += g * *(const VF *)(src + d->at[first + k] + i);
    }
    if (!rest) continue;
    float part[SIMD_LANES] = {0};
    for (int64_t i = 0; i < rest; i++) part[i] = grad[whole + i];
    VF g = *(const VF *)part;
    MG_UNROLL
    for (int k = 0; k < n; k++)
      sum[k] +=
          g * (VF)(keep & *(const VI *)(src + d->at[first + k] + whole)); /* an inf there is no part of it */
  }
  MG_UNROLL
  for (int k = 0; k < n; k++) d->sum[first + k] += SIMD_FN(conv_lanes)(&sum[k]);
}

static void SIMD_FN(conv_dots)(const ConvDots *d) {
  int64_t p = 0;
  for (; d->npoint - p > 9; p += 9) SIMD_FN(conv_dot)(d, p, 9);
  switch (d->npoint - p) {
  case 9: SIMD_FN(conv_dot)(d, p, 9); break;
  case 8: SIMD_FN(conv_dot)(d, p, 8); break;
  case 7: SIMD_FN(conv_dot)(d, p, 7); break;
  case 6: SIMD_FN(conv_dot)(d, p, 6); break;
  case 5: SIMD_FN(conv_dot)(d, p, 5); break;
  case 4: SIMD_FN(conv_dot)(d, p, 4); break;
  case 3: SIMD_FN(conv_dot)(d, p, 3); break;
  case 2: SIMD_FN(conv_dot)(d, p, 2); break;
  case 1: SIMD_FN(conv_dot)(d, p, 1); break;
  default: break;
  }
}

static double SIMD_FN(conv_total)(const float *p, int64_t n) {
  VF sum[4] = {{0}};
  int64_t i = 0;
  for (; i + 4 * SIMD_LANES <= n; i += 4 * SIMD_LANES) {
    MG_UNROLL
    for (int k = 0; k < 4; k++) sum[k] += *(const VF *)(p + i + k * SIMD_LANES);
  }
  sum[0] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
  double s = SIMD_FN(conv_lanes)(&sum[0]);
  for (; i < n; i++) s += p[i];
  return s;
}

MG_INLINE void SIMD_FN(conv_act)(VF *v, ConvAct act, float a, float b) {
  VF x = *v;
  VI take;
  switch (act) {
  case CONV_ACT_none: return;
  case CONV_ACT_relu: *v = (VF)(~(x <= 0.f) & (VI)x); return; /* NaN stays */
  case CONV_ACT_leaky_relu:
    take = x > 0.f;
    *v = (VF)((take & (VI)x) | (~take & (VI)(x * a)));
    return;
  case CONV_ACT_clip:
    take = x < a;
    x = (VF)((take & (VI)((VF){0} + a)) | (~take & (VI)x));
    take = x > b;
    *v = (VF)((take & (VI)((VF){0} + b)) | (~take & (VI)x));
    return;
  case CONV_ACT_hardswish:
  case CONV_ACT_hardsigmoid: {
    VF t = x / 6.f + 0.5f;
    t = (VF)(~(t < 0.f) & (VI)t);
    take = t > 1.f;
    t = (VF)((take & (VI)((VF){0} + 1.f)) | (~take & (VI)t));
    *v = act == CONV_ACT_hardswish ? x * t : t;
    return;
  }
  }
}

static void SIMD_FN(conv_finish)(float *p, int64_t n, const float *residual, int64_t step, ConvAct act,
                                 float a, float b) {
  if (residual)
    for (int64_t i = 0; i < n; i++) p[i] += residual[i * step];
  if (act == CONV_ACT_none) return;
  int64_t i = 0;
  for (; i + SIMD_LANES <= n; i += SIMD_LANES) SIMD_FN(conv_act)((VF *)(p + i), act, a, b);
  if (i == n) return;
  float part[SIMD_LANES] = {0};
  memcpy(part, p + i, (size_t)(n - i) * sizeof *p);
  SIMD_FN(conv_act)((VF *)part, act, a, b);
  memcpy(p + i, part, (size_t)(n - i) * sizeof *p);
}

static const ConvSet SIMD_FN(conv_set) = {SIMD_FN(conv_rows), SIMD_FN(conv_copy),  SIMD_FN(conv_turn),
                                          SIMD_FN(conv_dots), SIMD_FN(conv_total), SIMD_FN(conv_finish)};
#undef CONV_EVEN
#undef CONV_EVEN_LAST
