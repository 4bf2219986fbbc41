/* Results of ops whose strides LAPACK and the FFT library choose: matrices by columns, transformed dimensions innermost. */
#include "ir/infer.h"
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
  ValRef a = mg_infer_tensor(in, 0);
  MgDims batch;
  if (!a || mg_val(in->g, a)->ndim < 2 || mg_val(in->g, a)->device != DEV_cpu || !mg_infer_flag(in, "compute_uv"))
    return MG_UNSUP;
  MgDtype d = mg_val(in->g, a)->dtype;
  MgDtype real = d == DT_c64 ? DT_f32 : d == DT_c128 ? DT_f64 : d;
  if (real != DT_f32 && real != DT_f64) return MG_UNSUP;
  mg_infer_dims_of(in, a, &batch);
  SymRef m = batch.d[batch.n - 2], n = batch.d[batch.n - 1];
  int order = mg_infer_cmp(in, m, n);
  bool full = mg_infer_flag(in, "full_matrices");
  for (int i = 0; i < batch.n; i++) { /* results without elements have other strides */
    int some = mg_infer_cmp(in, batch.d[i], mg_infer_c(in, 0));
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
  ValRef a = mg_infer_tensor(in, 0);
  MgDims batch;
  if (!a || mg_val(in->g, a)->ndim < 2 || mg_val(in->g, a)->device != DEV_cpu) return MG_UNSUP;
  MgDtype d = mg_val(in->g, a)->dtype;
  MgDtype to = d == DT_f32 || d == DT_c64 ? DT_c64 : d == DT_f64 || d == DT_c128 ? DT_c128 : DT_none;
  mg_infer_dims_of(in, a, &batch);
  SymRef n = batch.d[batch.n - 1];
  if (to == DT_none || mg_infer_eq(in, batch.d[batch.n - 2], n) != 1) return MG_UNSUP;
  for (int i = 0; i < batch.n; i++)
    if (mg_infer_cmp(in, batch.d[i], mg_infer_c(in, 0)) != 1) return MG_UNSUP;
  batch.n--;
  TRY(mg_infer_results(in, 2));
  TRY(mg_infer_out(in, 0, to, &batch, NULL));
  batch.n--;
  return linalg_columns(in, 1, to, &batch, n, n);
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
      int c = mg_infer_cmp(in, f->stride.d[dim[k - 1]], f->stride.d[dim[k]]);
      if (c == UNKNOWN) return MG_UNSUP;
      if (c >= 0) break;
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

/* One transform over f->dim: the others come first, by descending stride, then these; all contiguous in that order.
 * Among equal strides the order is what std::partition leaves: it swaps the first transformed dimension with the last
 * of the others, and so on inwards. */
static MgRc fft_step(MgInfer *in, Fft *f) {
  int order[MG_INFER_RANK], n = 0, end = f->size.n;
  for (int d = 0; d < end; d++) order[d] = d;
  while (n < end) {
    if (!fft_transforms(f, order[n])) {
      n++;
      continue;
    }
    while (--end > n && fft_transforms(f, order[end])) {}
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
  ValRef v = mg_infer_tensor(in, 0);
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
    if (mg_infer_cmp(in, f.size.d[i], mg_infer_c(in, 0)) != 1) return MG_UNSUP;
  int last = f.dim[f.n - 1];
  if (in->op->code == TOP__fft_c2c) {
    if (from != DT_c64 && from != DT_c128) return MG_UNSUP;
    TRY(fft_sort(in, &f, f.dim, f.n));
  } else if (in->op->code == TOP__fft_r2c) {
    if (from != DT_f32 && from != DT_f64) return MG_UNSUP;
    to = from == DT_f32 ? DT_c64 : DT_c128;
    TRY(fft_sort(in, &f, f.dim, f.n - 1));
    if (mg_infer_flag(in, "onesided"))
      f.size.d[last] = mg_sym_add(in->x, mg_sym_floordiv(in->x, f.size.d[last], mg_infer_c(in, 2)), mg_infer_c(in, 1));
  } else {
    const MgArg *size = mg_infer_arg(in, "last_dim_size");
    if ((from != DT_c64 && from != DT_c128) || size->tag != MA_int || mg_infer_cmp(in, size->u.sym, mg_infer_c(in, 0)) != 1)
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
