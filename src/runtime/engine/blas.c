/* Matrix products by torch's BLAS.
 * In: a description of a product without batches and without anything after it but a bias.  Out: an engine
 * that calls gemm: its columns
 * are our rows, so the result's transpose is asked for. */
#include "runtime/engine/blas.h"
#include "base/env.h"
#include "base/fork.h"
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct BlasMatmul {
  MgEngine e;
  void *gemm;
  char tw, tx; /* 'N' or 'T' */
  int n, m, k, ldw, ldx, ldc;
  bool wide; /* float64 */
  bool bias;
} BlasMatmul;

/* The same without the library, whose locks and threads a forked process has as they were. */
#define BLAS_OWN(name, type)                                                                                 \
  static void name(const BlasMatmul *b, const type *x, const type *w, type *out) {                           \
    ptrdiff_t xi = b->tx == 'N' ? b->ldx : 1, xk = b->tx == 'N' ? 1 : b->ldx,                                \
              wk = b->tw == 'N' ? b->ldw : 1, wj = b->tw == 'N' ? 1 : b->ldw;                                \
    for (ptrdiff_t i = 0; i < b->m; i++) {                                                                   \
      type *r = out + i * b->ldc;                                                                            \
      for (ptrdiff_t j = 0; !b->bias && j < b->n; j++) r[j] = 0;                                             \
      for (ptrdiff_t k = 0; k < b->k; k++)                                                                   \
        for (ptrdiff_t j = 0; j < b->n; j++) r[j] += x[i * xi + k * xk] * w[k * wk + j * wj];                \
    }                                                                                                        \
  }
BLAS_OWN(blas_own32, float)
BLAS_OWN(blas_own64, double)

typedef void Gemm(const char *ta, const char *tb, const int *m, const int *n, const int *k, const void *alpha,
                  const void *a, const int *lda, const void *b, const int *ldb, const void *beta, void *c,
                  const int *ldc);

static int blas_run(const MgEngine *e, MgEngineArgs *a) {
  static const double one64 = 1, zero64 = 0;
  static const float one32 = 1, zero32 = 0;
  const BlasMatmul *b = (const BlasMatmul *)e;
  const void *one = b->wide ? (const void *)&one64 : &one32,
             *zero = b->wide ? (const void *)&zero64 : &zero32;
  size_t item = b->wide ? sizeof(double) : sizeof(float);
  char *out = a->ptr[MATMUL_out];
  for (int i = 0; b->bias && i < b->m; i++)
    memcpy(out + (size_t)i * (size_t)b->ldc * item, a->ptr[MATMUL_bias], (size_t)b->n * item);
  if (mg_fork_child() && b->wide) blas_own64(b, a->ptr[MATMUL_x], a->ptr[MATMUL_w], a->ptr[MATMUL_out]);
  else if (mg_fork_child()) blas_own32(b, a->ptr[MATMUL_x], a->ptr[MATMUL_w], a->ptr[MATMUL_out]);
  else
    ((Gemm *)b->gemm)(&b->tw, &b->tx, &b->n, &b->m, &b->k, one, a->ptr[MATMUL_w], &b->ldw, a->ptr[MATMUL_x],
                      &b->ldx, b->bias ? one : zero, out, &b->ldc);
  return 0;
}

static void blas_free(MgEngine *e) { free(e); }

static const MgEngineOps blas_ops = {.name = "blas.gemm", .run = blas_run, .free = blas_free};

typedef struct BlasMatrix {
  int64_t rows, cols, row, col; /* sizes and strides */
} BlasMatrix;

/* A tensor as one matrix: all but the last dimension are its rows. */
static bool blas_matrix(const MgTensorDesc *t, BlasMatrix *m) {
  *m = (BlasMatrix){1, t->size[t->ndim - 1], 0, t->stride[t->ndim - 1]};
  for (int i = t->ndim - 2; i >= 0; i--) {
    if (t->size[i] == 1) continue;
    if (m->rows == 1) m->row = t->stride[i];
    else if (t->stride[i] != m->row * m->rows) return false;
    m->rows *= t->size[i];
  }
  return true;
}

/* How gemm is told of a matrix; false: neither its rows nor its columns are dense. */
static bool blas_order(const BlasMatrix *m, char *order, int *ld) {
  bool rows = m->col == 1 && m->row >= m->cols, cols = m->row == 1 && m->col >= m->rows;
  int64_t step = rows ? m->row : m->col;
  *order = rows ? 'N' : 'T';
  *ld = (int)step;
  return (rows || cols) && step <= INT32_MAX;
}

static bool blas_plain_bias(const MgTensorDesc *t, int64_t n) {
  for (int i = 0; i < t->ndim - 1; i++)
    if (t->size[i] != 1 && t->stride[i]) return false;
  return t->ndim && t->size[t->ndim - 1] == n && t->stride[t->ndim - 1] == 1;
}

/* 1: whenever it can; 0: where it is faster; -1: never. */
static int blas_wanted(void) {
  static _Atomic int known = 2;
  if (known != 2) return known;
  bool mkl = mg_abi_symbol("MKL_Get_Max_Threads") != NULL, intel = false;
#if defined(__x86_64__)
  __builtin_cpu_init();
  intel = __builtin_cpu_is("intel");
#endif
  if (mg_env(ENV_BLAS)) return known = mg_env_switch(ENV_BLAS, false) ? 1 : -1;
  return known = mkl && intel ? 0 : -1;
}

/* wanted: as blas_wanted has it. */
static MgRc blas_make(MgCtx *c, const MgMatmulDesc *d, int wanted, MgEngine **out) {
  enum { FLOAT = 6, DOUBLE = 7 };
  const MgTensorDesc *x = &d->t[MATMUL_x], *w = &d->t[MATMUL_w], *r = &d->t[MATMUL_out];
  BlasMatrix mx, mw, mr;
  BlasMatmul b = {.e.ops = &blas_ops, .wide = r->dtype == DOUBLE, .bias = d->t[MATMUL_bias].present};
  if (wanted < 0 || d->frozen || *d->act.name || d->t[MATMUL_residual].present) return MG_UNSUP;
  if ((r->dtype != FLOAT && r->dtype != DOUBLE) || x->dtype != r->dtype || w->dtype != r->dtype ||
      x->ndim < 2 || w->ndim < 2 || r->ndim < 2)
    return MG_UNSUP;
  if (!blas_matrix(x, &mx) || !blas_matrix(w, &mw) || !blas_matrix(r, &mr)) return MG_UNSUP;
  if (mw.rows != mx.cols || mr.rows != mx.rows || mr.cols != mw.cols)
    return MG_UNSUP; /* a batch of its own */
  if (mr.rows < 2 || mr.cols < 2 || mx.cols < 2 || mr.rows > INT32_MAX || mr.cols > INT32_MAX ||
      mx.cols > INT32_MAX)
    return MG_UNSUP;
  char order;
  if (!blas_order(&mx, &b.tx, &b.ldx) || !blas_order(&mw, &b.tw, &b.ldw) ||
      !blas_order(&mr, &order, &b.ldc) || order != 'N')
    return MG_UNSUP;
  if (!wanted && b.tx == 'N' && b.tw == 'T') return MG_UNSUP;
  if (b.bias && (d->t[MATMUL_bias].dtype != r->dtype || !blas_plain_bias(&d->t[MATMUL_bias], mr.cols)))
    return MG_UNSUP;
  if (!(b.gemm = mg_abi_symbol(b.wide ? "dgemm_" : "sgemm_"))) return MG_UNSUP;
  b.n = (int)mr.cols;
  b.m = (int)mr.rows;
  b.k = (int)mx.cols;
  BlasMatmul *e = mg_malloc(sizeof *e);
  if (!e) return mg_fail(c, MG_NOMEM, "matmul engine");
  *e = b;
  *out = &e->e;
  return MG_OK;
}

MgRc mg_blas_matmul(MgCtx *c, const MgMatmulDesc *d, MgEngine **out) {
  return blas_make(c, d, blas_wanted(), out);
}

MgRc mg_blas_any(MgCtx *c, const MgMatmulDesc *d, MgEngine **out) { return blas_make(c, d, 1, out); }
