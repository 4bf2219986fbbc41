/* Results of ops whose strides LAPACK and the FFT library choose: matrices by columns,
 * transformed dimensions innermost. */
#include "ir/infer/infer.h"
#include <string.h>

/* ---- singular values ---- */

/* Result i: batches of matrices of rows x cols, each stored by columns. */
static MgRc linalg_columns(MgInfer *in, int i, MgDtype d, const MgDims *batch, SymRef rows, SymRef cols) {
  MgDims size = *batch, stride;
  size.d[size.n++] = rows;
  size.d[size.n++] = cols;
  stride.n = size.n;
  stride.d[size.n - 2] = mg_infer_c(in, 1);
  stride.d[size.n - 1] = mg_sym_max(in->x, rows, mg_infer_c(in, 1));
  SymRef step = mg_sym_mul(in->x, rows, cols);
  for (int k = size.n - 3; k >= 0; k--) {
    stride.d[k] = step;
    step = mg_sym_mul(in->x, step, size.d[k]);
  }
  return mg_infer_out(in, i, d, &size, &stride);
}

MgRc mg_infer_svd(MgInfer *in) {
  ValRef a = mg_infer_first(in);
  MgDims batch;
  if (!a || mg_val(in->g, a)->ndim < 2 || mg_val(in->g, a)->device != DEV_cpu ||
      !mg_infer_flag(in, "compute_uv"))
    return MG_UNSUP;
  MgDtype d = mg_val(in->g, a)->dtype;
  MgDtype real = d == DT_c64 ? DT_f32 : d == DT_c128 ? DT_f64 : d;
  if (real != DT_f32 && real != DT_f64) return MG_UNSUP;
  mg_infer_dims_of(in, a, &batch);
  SymRef m = batch.d[batch.n - 2], n = batch.d[batch.n - 1];
  int order = mg_infer_cmp(in, m, n);
  bool full = mg_infer_flag(in, "full_matrices");
  for (int i = 0; i < batch.n; i++) { /* results without elements have other strides */
    int some = mg_infer_less(in, mg_infer_c(in, 0), batch.d[i]);
    if (some == UNKNOWN || (some != 1 && !full)) return MG_UNSUP;
  }
  if (order == UNKNOWN) return MG_UNSUP;
  SymRef k = order < 0 ? m : n;
  batch.n -= 2;
  TRY(mg_infer_results(in, 3));
  TRY(linalg_columns(in, 0, d, &batch, m, full ? m : k));
  TRY(linalg_columns(in, 2, d, &batch, full ? n : k, n));
  batch.d[batch.n++] = k;
  return mg_infer_out(in, 1, real, &batch, NULL);
}

MgRc mg_infer_eig(MgInfer *in) {
  ValRef a = mg_infer_first(in);
  MgDims batch;
  if (!a || mg_val(in->g, a)->ndim < 2 || mg_val(in->g, a)->device != DEV_cpu) return MG_UNSUP;
  MgDtype d = mg_val(in->g, a)->dtype;
  MgDtype to = d == DT_f32 || d == DT_c64 ? DT_c64 : d == DT_f64 || d == DT_c128 ? DT_c128 : DT_none;
  mg_infer_dims_of(in, a, &batch);
  SymRef n = batch.d[batch.n - 1];
  if (to == DT_none || mg_infer_eq(in, batch.d[batch.n - 2], n) != 1) return MG_UNSUP;
  for (int i = 0; i < batch.n; i++)
    if (mg_infer_less(in, mg_infer_c(in, 0), batch.d[i]) != 1) return MG_UNSUP;
  batch.n--;
  TRY(mg_infer_results(in, 2));
  TRY(mg_infer_out(in, 0, to, &batch, NULL));
  batch.n--;
  return linalg_columns(in, 1, to, &batch, n, n);
}

/* ---- factors and solutions ---- */

/* Argument k as batches of matrices that LAPACK takes; they have elements, since results
 * without any have other strides. */
static bool linalg_matrices(MgInfer *in, int k, MgDims *size) {
  ValRef v = k < 0 ? 0 : mg_infer_nth(in, k);
  if (!v || mg_val(in->g, v)->ndim < 2 || mg_val(in->g, v)->device != DEV_cpu) return false;
  MgDtype d = mg_val(in->g, v)->dtype;
  if (d != DT_f32 && d != DT_f64 && d != DT_c64 && d != DT_c128) return false;
  mg_infer_dims_of(in, v, size);
  for (int i = 0; i < size->n; i++)
    if (mg_infer_less(in, mg_infer_c(in, 0), size->d[i]) != 1) return false;
  return true;
}

static bool linalg_square(MgInfer *in, const MgDims *size) {
  return mg_infer_eq(in, size->d[size->n - 2], size->d[size->n - 1]) == 1;
}

/* The solution of a x = b, or x a = b: as large as b, in the batches of both. */
static MgRc linalg_solution(MgInfer *in, MgDims a, MgDims b, bool left) {
  SymRef rows = b.d[b.n - 2], cols = b.d[b.n - 1];
  MgDtype d = mg_val(in->g, mg_infer_first(in))->dtype;
  ValRef right = mg_infer_tensor(in, in->op->code == TOP_cholesky_solve ? "input2" : "B");
  if (d != mg_val(in->g, right)->dtype || !linalg_square(in, &a)) return MG_UNSUP;
  if (mg_infer_eq(in, a.d[a.n - 1], left ? rows : cols) != 1) return MG_UNSUP;
  a.n -= 2;
  b.n -= 2;
  for (int i = 1; i <= a.n && i <= b.n; i++)
    if (mg_infer_is(in, a.d[a.n - i], 1) != 1 && mg_infer_is(in, b.d[b.n - i], 1) != 1 &&
        mg_infer_eq(in, a.d[a.n - i], b.d[b.n - i]) != 1)
      return MG_UNSUP;
  TRY(mg_infer_broadcast(in, &b, a.d, a.n));
  return linalg_columns(in, 0, d, &b, rows, cols);
}

MgRc mg_infer_triangular(MgInfer *in) {
  MgDims a, b;
  bool factor = in->op->code == TOP_cholesky_solve; /* whose arguments are the other way round */
  if (!linalg_matrices(in, factor, &a) || !linalg_matrices(in, !factor, &b)) return MG_UNSUP;
  TRY(mg_infer_results(in, 1));
  return linalg_solution(in, a, b, factor || mg_infer_flag(in, "left"));
}

/* Result 0, or the one after the results that lead: the matrix by columns; then pivots and error numbers. */
MgRc mg_infer_factor(MgInfer *in) {
  MgDims a, b;
  MgDtype d, real;
  int i = 0;
  if (!linalg_matrices(in, 0, &a)) return MG_UNSUP;
  SymRef m = a.d[a.n - 2], n = a.d[a.n - 1];
  bool lu = in->op->code == TOP_linalg_lu_factor_ex, solve = in->op->code == TOP__linalg_solve_ex;
  int order = lu ? mg_infer_cmp(in, m, n) : 1;
  if (order == UNKNOWN || (!lu && !linalg_square(in, &a))) return MG_UNSUP;
  /* a vector on the right is another case */
  if (solve && (!linalg_matrices(in, 1, &b) || b.n != a.n || !mg_infer_flag(in, "left"))) return MG_UNSUP;
  d = mg_val(in->g, mg_infer_first(in))->dtype;
  real = d == DT_c64 ? DT_f32 : d == DT_c128 ? DT_f64 : d;
  TRY(mg_infer_results(in, in->op->nret));
  if (solve) TRY(linalg_solution(in, a, b, true));
  i += solve;
  a.n -= 2;
  if (in->op->code == TOP__linalg_det || in->op->code == TOP__linalg_slogdet)
    TRY(mg_infer_out(in, i++, d, &a, NULL));
  if (in->op->code == TOP__linalg_slogdet) TRY(mg_infer_out(in, i++, real, &a, NULL));
  TRY(linalg_columns(in, i++, d, &a, m, n));
  MgDims pivots = a;
  pivots.d[pivots.n++] = order < 0 ? m : n;
  if (in->op->code != TOP_linalg_cholesky_ex && in->op->code != TOP_linalg_inv_ex)
    TRY(mg_infer_out(in, i++, DT_i32, &pivots, NULL));
  return i < in->op->nret ? mg_infer_out(in, i, DT_i32, &a, NULL) : MG_OK;
}

MgRc mg_infer_eigh(MgInfer *in) {
  MgDims a;
  if (!linalg_matrices(in, 0, &a) || !linalg_square(in, &a) || !mg_infer_flag(in, "compute_v"))
    return MG_UNSUP;
  MgDtype d = mg_val(in->g, mg_infer_first(in))->dtype;
  SymRef n = a.d[--a.n];
  TRY(mg_infer_results(in, 2));
  TRY(mg_infer_out(in, 0, d == DT_c64 ? DT_f32 : d == DT_c128 ? DT_f64 : d, &a, NULL));
  a.n--;
  return linalg_columns(in, 1, d, &a, n, n);
}

/* ---- Fourier transforms ---- */

typedef struct Fft {
  int dim[MG_INFER_RANK], n; /* transformed dimensions, in the order that the result stores them */
  MgDims size, stride;       /* of what is transformed; then of the result */
} Fft;

/* Sorts dimensions by descending stride, equal ones as they are. */
static MgRc fft_sort(MgInfer *in, const Fft *f, int *dim, int n) {
  for (int i = 1; i < n; i++)
    for (int k = i; k > 0; k--) {
      int c = mg_infer_less(in, f->stride.d[dim[k - 1]], f->stride.d[dim[k]]);
      if (c == UNKNOWN) return MG_UNSUP;
      if (c == 0) break;
      int d = dim[k];
      dim[k] = dim[k - 1];
      dim[k - 1] = d;
    }
  return MG_OK;
}

static bool fft_transforms(const Fft *f, int d) {
  for (int k = 0; k < f->n; k++)
    if (f->dim[k] == d) return true;
  return false;
}

/* One transform over f->dim: the others come first, by descending stride, then these; all contiguous in that
 * order. Among equal strides the order is what std::partition leaves: it swaps the first transformed
 * dimension with the last of the others, and so on inwards. */
static MgRc fft_step(MgInfer *in, Fft *f) {
  int order[MG_INFER_RANK], n = 0, end = f->size.n;
  for (int d = 0; d < end; d++) order[d] = d;
  while (n < end) {
    if (!fft_transforms(f, order[n])) {
      n++;
      continue;
    }
    while (--end > n && fft_transforms(f, order[end])) {
    }
    if (end > n) order[n++] = order[end];
  }
  TRY(fft_sort(in, f, order, n));
  memcpy(order + n, f->dim, (size_t)f->n * sizeof *order);
  SymRef step = mg_infer_c(in, 1);
  for (int k = f->size.n - 1; k >= 0; k--) {
    f->stride.d[order[k]] = step;
    step = mg_sym_mul(in->x, step, f->size.d[order[k]]);
  }
  return MG_OK;
}

MgRc mg_infer_fft(MgInfer *in) {
  ValRef v = mg_infer_first(in);
  const MgArg *dims = mg_infer_arg(in, "dim");
  Fft f = {.n = 0};
  int64_t d;
  if (!v || dims->tag != MA_list || !dims->n || mg_val(in->g, v)->device != DEV_cpu) return MG_UNSUP;
  MgDtype from = mg_val(in->g, v)->dtype, to = from;
  mg_infer_dims_of(in, v, &f.size);
  f.stride.n = f.size.n;
  memcpy(f.stride.d, mg_val(in->g, v)->stride, (size_t)f.size.n * sizeof *f.stride.d);
  for (uint32_t i = 0; i < dims->n; i++) {
    TRY(mg_infer_int(in, &dims->u.item[i], &d));
    f.dim[f.n++] = (int)(d < 0 ? d + f.size.n : d);
  }
  for (int i = 0; i < f.size.n; i++)
    if (mg_infer_less(in, mg_infer_c(in, 0), f.size.d[i]) != 1) return MG_UNSUP;
  int last = f.dim[f.n - 1];
  if (in->op->code == TOP__fft_c2c) {
    if (from != DT_c64 && from != DT_c128) return MG_UNSUP;
    TRY(fft_sort(in, &f, f.dim, f.n));
  } else if (in->op->code == TOP__fft_r2c) {
    if (from != DT_f32 && from != DT_f64) return MG_UNSUP;
    to = from == DT_f32 ? DT_c64 : DT_c128;
    TRY(fft_sort(in, &f, f.dim, f.n - 1));
    if (mg_infer_flag(in, "onesided"))
      f.size.d[last] =
          mg_sym_add(in->x, mg_sym_floordiv(in->x, f.size.d[last], mg_infer_c(in, 2)), mg_infer_c(in, 1));
  } else {
    const MgArg *size = mg_infer_arg(in, "last_dim_size");
    if ((from != DT_c64 && from != DT_c128) || size->tag != MA_int ||
        mg_infer_less(in, mg_infer_c(in, 0), size->u.sym) != 1)
      return MG_UNSUP;
    to = from == DT_c64 ? DT_f32 : DT_f64;
    if (f.n > 1) { /* first all but the last one, as complex numbers */
      f.n--;
      TRY(fft_sort(in, &f, f.dim, f.n));
      TRY(fft_step(in, &f));
      f.dim[0] = last;
      f.n = 1;
    }
    f.size.d[last] = size->u.sym;
  }
  TRY(fft_step(in, &f));
  return mg_infer_out(in, 0, to, &f.size, &f.stride);
}
