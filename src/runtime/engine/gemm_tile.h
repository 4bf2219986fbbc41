/* Matrix products by register tiles, written once and compiled for each instruction set: gemm.c includes this
 * file once per set, after simd.h, with
 *   GEMM_WIDE   vectors that a register tile is wide; with GEMM_ROWS rows all accumulators stay in registers
 *   GEMM_ROWS   rows of a register tile, at most 14 and at most the lanes of a vector
 * A row panel is GEMM_ROWS rows of x as [k][GEMM_ROWS]; a column panel is PANEL columns of w as [k][PANEL].
 * Sums of one panel of columns are kept apart, as [rows][PANEL], until they are whole. */
enum { SIMD_FN(GEMM_PANEL) = SIMD_LANES * GEMM_WIDE };

/* ---- packing ---- */

/* Rows of x, at most GEMM_ROWS, as a row panel.  `to` has room for SIMD_LANES more floats.
 * `whole`: as many rows as lanes lie in memory from x on. */
static void SIMD_FN(gemm_pack_rows)(const float *x, int64_t row, int64_t col, int64_t nrow, bool whole,
                                    int64_t depth, float *to) {
  int64_t k = 0;
  if (col == 1) {
    for (; k + SIMD_LANES <= depth; k += SIMD_LANES) {
      VF r[SIMD_LANES];
      MG_UNROLL
      for (int i = 0; i < SIMD_LANES; i++)
        r[i] = i < GEMM_ROWS && i < nrow ? *(const VF *)(x + i * row + k) : (VF){0};
      TRANSPOSE(r)
      MG_UNROLL /* in order: each overwrites the lanes of the one before that are no rows */
      for (int i = 0; i < SIMD_LANES; i++) *(VF *)(to + (k + i) * GEMM_ROWS) = r[i];
    }
  } else if (row == 1 && nrow == GEMM_ROWS && whole) {
    for (; k < depth; k++) *(VF *)(to + k * GEMM_ROWS) = *(const VF *)(x + k * col);
  }
  for (; k < depth; k++)
    for (int64_t i = 0; i < GEMM_ROWS; i++) to[k * GEMM_ROWS + i] = i < nrow ? x[i * row + k * col] : 0;
}

/* Columns of w, at most PANEL, as a column panel; those that are missing become 0. */
static void SIMD_FN(gemm_pack_columns)(const float *w, int64_t row, int64_t col, int64_t depth, int64_t ncol,
                                       float *to) {
  for (int64_t j = 0; j < SIMD_FN(GEMM_PANEL); j += SIMD_LANES, to += SIMD_LANES) {
    bool whole = j + SIMD_LANES <= ncol;
    int64_t k = 0;
    if (whole && row == 1) {
      for (; k + SIMD_LANES <= depth; k += SIMD_LANES) {
        VF r[SIMD_LANES];
        MG_UNROLL
        for (int i = 0; i < SIMD_LANES; i++) r[i] = *(const VF *)(w + (j + i) * col + k);
        TRANSPOSE(r)
        MG_UNROLL
        for (int i = 0; i < SIMD_LANES; i++) *(VF *)(to + (k + i) * SIMD_FN(GEMM_PANEL)) = r[i];
      }
    } else if (whole && col == 1) {
      for (; k < depth; k++) *(VF *)(to + k * SIMD_FN(GEMM_PANEL)) = *(const VF *)(w + k * row + j);
    }
    for (; k < depth; k++)
      for (int64_t i = 0; i < SIMD_LANES; i++)
        to[k * SIMD_FN(GEMM_PANEL) + i] = j + i < ncol ? w[k * row + (j + i) * col] : 0;
  }
}

/* ---- products ---- */

/* c[mr][PANEL] (+)= row panel a @ column panel b; mr is a constant where this is inlined.  Meanwhile up to
 * `lines` lines of what is packed next are fetched. */
MG_INLINE void SIMD_FN(gemm_tile)(const float *a, const float *b, int64_t depth, float *c, bool add,
                                  GemmAhead *ahead, int64_t lines, const int mr) {
  enum { STEP = 4 };
  VF acc[GEMM_ROWS][GEMM_WIDE];
  MG_UNROLL
  for (int i = 0; i < mr; i++) {
    MG_UNROLL
    for (int j = 0; j < GEMM_WIDE; j++)
      acc[i][j] = add ? *(VF *)(c + i * SIMD_FN(GEMM_PANEL) + j * SIMD_LANES) : (VF){0};
  }
  int64_t every = depth < STEP ? 1 : depth / STEP, owed = 0;
  for (int64_t k = 0; k < depth;) {
    for (owed += lines; owed > 0; owed -= every) gemm_fetch(ahead);
    int64_t end = depth - k < 2 * STEP ? depth : k + STEP;
    for (; k < end; k++, a += GEMM_ROWS, b += SIMD_FN(GEMM_PANEL)) {
      VF col[GEMM_WIDE];
      MG_UNROLL
      for (int j = 0; j < GEMM_WIDE; j++) col[j] = *(const VF *)(b + j * SIMD_LANES);
      MG_UNROLL
      for (int i = 0; i < mr; i++) {
        MG_UNROLL
        for (int j = 0; j < GEMM_WIDE; j++) acc[i][j] += a[i] * col[j];
      }
    }
  }
  MG_UNROLL
  for (int i = 0; i < mr; i++) {
    MG_UNROLL
    for (int j = 0; j < GEMM_WIDE; j++) *(VF *)(c + i * SIMD_FN(GEMM_PANEL) + j * SIMD_LANES) = acc[i][j];
  }
}

/* c[nrow][PANEL] (+)= row panels a, `step` floats from one to the next, @ column panel b. */
static void SIMD_FN(gemm_stripe)(const float *a, int64_t step, const float *b, int64_t depth, float *c,
                                 int64_t nrow, bool add, GemmAhead *ahead) {
  int64_t lines = ahead->left / ((nrow + GEMM_ROWS - 1) / GEMM_ROWS) + 1;
  for (; nrow >= GEMM_ROWS; nrow -= GEMM_ROWS, a += step, c += GEMM_ROWS * SIMD_FN(GEMM_PANEL))
    SIMD_FN(gemm_tile)(a, b, depth, c, add, ahead, lines, GEMM_ROWS);
#define GEMM_TILE(mr)                                                                                        \
  case mr: SIMD_FN(gemm_tile)(a, b, depth, c, add, ahead, lines, mr < GEMM_ROWS ? mr : GEMM_ROWS); break;
#define GEMM_TILES_5 GEMM_TILE(1) GEMM_TILE(2) GEMM_TILE(3) GEMM_TILE(4) GEMM_TILE(5)
#define GEMM_TILES_9 GEMM_TILE(6) GEMM_TILE(7) GEMM_TILE(8) GEMM_TILE(9)
#define GEMM_TILES_13 GEMM_TILE(10) GEMM_TILE(11) GEMM_TILE(12) GEMM_TILE(13)
#if GEMM_ROWS > 6
  switch (nrow) { GEMM_TILES_5 GEMM_TILES_9 GEMM_TILES_13 }
#else
  switch (nrow) { GEMM_TILES_5 }
#endif
#undef GEMM_TILES_5
#undef GEMM_TILES_9
#undef GEMM_TILES_13
#undef GEMM_TILE
}

/* ---- what comes after the product ---- */

#define SIMD_CHOOSE(mask, a, b) ((VF)(((mask) & (VI)(a)) | (~(mask) & (VI)(b))))
#define SIMD_ABS(x) ((VF)((VI)(x) & 0x7fffffff))

/* *y = 1 / (1 + e^-x) */
MG_INLINE void SIMD_FN(sigmoid)(VF *y, const VF *x) {
  VF t = -SIMD_ABS(*x);
  SIMD_FN(exp_neg)(&t, &t, 0);
  VF r = 1.f / (1.f + t);
  *y = SIMD_CHOOSE(*x >= 0.f, r, t * r);
}

/* *y = tanh(x): a polynomial near 0 (Cephes), where the other form cancels. */
MG_INLINE void SIMD_FN(tanh)(VF *y, const VF *x) {
  VF z = SIMD_ABS(*x), s = z * z, t = -2.f * z;
  VF p = -5.70498872745e-3f * s + 2.06390887954e-2f;
  p = p * s - 5.37397155531e-2f;
  p = p * s + 1.33314422036e-1f;
  p = p * s - 3.33332819422e-1f;
  p = p * s * z + z;
  SIMD_FN(exp_neg)(&t, &t, 0);
  t = SIMD_CHOOSE(z < 0.625f, p, (1.f - t) / (1.f + t));
  *y = (VF)((VI)t | ((VI)*x & ~0x7fffffff)); /* the sign of x */
}

/* *y = x times the normal distribution function, by Abramowitz and Stegun 7.1.26: 1.5e-7 absolute. */
MG_INLINE void SIMD_FN(gelu)(VF *y, const VF *x) {
  VF z = SIMD_ABS(*x) * 0.70710678f, t = 1.f / (1.f + 0.3275911f * z), e = -z * z;
  VF p = 1.061405429f * t - 1.453152027f;
  p = p * t + 1.421413741f;
  p = p * t - 0.284496736f;
  p = p * t + 0.254829592f;
  SIMD_FN(exp_neg)(&e, &e, 0);
  VF half = 0.5f * p * t * e; /* half of erfc(z) */
  *y = *x * SIMD_CHOOSE(*x >= 0.f, 1.f - half, half);
}

/* *y = x tanh(log(1 + e^x)), with t = e^-|x| */
MG_INLINE void SIMD_FN(mish)(VF *y, const VF *x) {
  VF t = -SIMD_ABS(*x);
  SIMD_FN(exp_neg)(&t, &t, 0);
  VF above = (1.f + 2.f * t) / (1.f + 2.f * t + 2.f * t * t),
     below = (t * t + 2.f * t) / (t * t + 2.f * t + 2.f);
  *y = *x * SIMD_CHOOSE(*x >= 0.f, above, below);
}

MG_INLINE void SIMD_FN(gemm_act)(VF *v, const Gemm *g) {
  VF x = *v, t;
  switch (g->act) {
  case GEMM_none: return;
  case GEMM_relu: *v = (VF)(~(x <= 0.f) & (VI)x); return;
  case GEMM_leaky_relu: *v = SIMD_CHOOSE(x > 0.f, x, x * g->act_a); return;
  case GEMM_clip:
    x = SIMD_CHOOSE(x < g->act_a, (VF){0} + g->act_a, x);
    *v = SIMD_CHOOSE(x > g->act_b, (VF){0} + g->act_b, x);
    return;
  case GEMM_gelu: SIMD_FN(gelu)(v, &x); return;
  case GEMM_gelu_tanh:
    t = 1.5957691216f * (x + 0.044715f * x * x * x); /* 2 sqrt(2 / pi) */
    SIMD_FN(sigmoid)(&t, &t);
    *v = x * t;
    return;
  case GEMM_silu:
    SIMD_FN(sigmoid)(&t, &x);
    *v = x * t;
    return;
  case GEMM_sigmoid: SIMD_FN(sigmoid)(v, &x); return;
  case GEMM_tanh: SIMD_FN(tanh)(v, &x); return;
  case GEMM_elu:
    t = SIMD_CHOOSE(x > 0.f, -x, x); /* no exponential of what is large */
    SIMD_FN(exp_neg)(&t, &t, 0);
    *v = SIMD_CHOOSE(x > 0.f, x, g->act_a * (t - 1.f));
    return;
  case GEMM_hardswish:
  case GEMM_hardsigmoid:
    t = x / 6.f + 0.5f;
    t = SIMD_CHOOSE(t < 0.f, (VF){0}, t);
    t = SIMD_CHOOSE(t > 1.f, (VF){0} + 1.f, t);
    *v = g->act == GEMM_hardswish ? x * t : t;
    return;
  case GEMM_mish: SIMD_FN(mish)(v, &x); return;
  }
}

/* Adds n values of a term's row to sums; `col` apart, 0: one value for all. */
MG_INLINE void SIMD_FN(gemm_term)(float *sum, const float *term, int64_t col, int64_t n) {
  if (col == 1 && n == SIMD_FN(GEMM_PANEL)) {
    MG_UNROLL
    for (int j = 0; j < GEMM_WIDE; j++) *(VF *)(sum + j * SIMD_LANES) += *(const VF *)(term + j * SIMD_LANES);
  } else
    for (int64_t j = 0; j < n; j++) sum[j] += term[j * col];
}

/* Sums c[nrow][PANEL] of `ncol` columns become results.  bias, residual: NULL, or of the first row and
 * column. */
static void SIMD_FN(gemm_finish)(const Gemm *g, float *c, int64_t nrow, int64_t ncol, float *out,
                                 const float *bias, const float *residual) {
  const GemmOperand *o = &g->t[MATMUL_out], *b = &g->t[MATMUL_bias], *r = &g->t[MATMUL_residual];
  for (int64_t i = 0; i < nrow; i++, c += SIMD_FN(GEMM_PANEL)) {
    if (bias) SIMD_FN(gemm_term)(c, bias + i * b->row, b->col, ncol);
    if (residual) SIMD_FN(gemm_term)(c, residual + i * r->row, r->col, ncol);
    MG_UNROLL
    for (int j = 0; j < GEMM_WIDE; j++) SIMD_FN(gemm_act)((VF *)(c + j * SIMD_LANES), g);
    float *to = out + i * o->row;
    if (ncol == SIMD_FN(GEMM_PANEL)) {
      MG_UNROLL
      for (int j = 0; j < GEMM_WIDE; j++) *(VF *)(to + j * SIMD_LANES) = *(VF *)(c + j * SIMD_LANES);
    } else
      for (int64_t j = 0; j < ncol; j++) to[j] = c[j];
  }
}

static const GemmSet SIMD_FN(gemm_set) = {SIMD_LANES,
                                          GEMM_ROWS,
                                          SIMD_FN(GEMM_PANEL),
                                          SIMD_FN(gemm_pack_rows),
                                          SIMD_FN(gemm_pack_columns),
                                          SIMD_FN(gemm_stripe),
                                          SIMD_FN(gemm_finish)};

#undef SIMD_CHOOSE
#undef SIMD_ABS
#undef GEMM_WIDE
#undef GEMM_ROWS
