/* Results of reductions, scans, sorting, softmax, normalisation and losses.  ATen allocates reduced results
 * contiguous, whatever the strides of the input. */
#include "ir/infer/infer.h"
#include <string.h>

/* The shape that is left of v after reducing `set`. */
static void reduce_shape(const MgInfer *in, ValRef v, const bool *set, bool keep, MgDims *out) {
  const MgVal *t = mg_val(in->g, v);
  out->n = 0;
  for (int i = 0; i < t->ndim; i++) {
    if (!set[i]) out->d[out->n++] = t->size[i];
    else if (keep) out->d[out->n++] = mg_sym(in->x, 1);
  }
}

static MgRc reduce_dims(MgInfer *in, ValRef v, MgDims *out) {
  bool set[MG_INFER_RANK];
  TRY(mg_infer_dim_set(in, mg_infer_arg(in, "dim"), mg_val(in->g, v)->ndim, set));
  reduce_shape(in, v, set, mg_infer_flag(in, "keepdim"), out);
  return MG_OK;
}

/* What a reduction of dtype d gives. */
static MgDtype reduce_dtype(MgInfer *in, MgDtype d) {
  bool integral = mg_dtype_is_int(d) || d == DT_bool;
  switch (in->op->code) {
  case TOP_sum:
  case TOP_sum_dim_IntList:
  case TOP_prod:
  case TOP_prod_dim_int:
  case TOP_nansum: return mg_infer_dtype_arg(in, integral ? DT_i64 : d);
  case TOP_mean:
  case TOP_mean_dim:
  case TOP_nanmean: return mg_infer_dtype_arg(in, d);
  case TOP_linalg_vector_norm:
  case TOP_norm_Scalar:
  case TOP_norm_ScalarOpt_dim:
  case TOP_norm_ScalarOpt_dim_dtype:
  case TOP_norm_ScalarOpt_dtype: return mg_dtype_is_complex(d) ? DT_none : mg_infer_dtype_arg(in, d);
  case TOP_any:
  case TOP_any_dim:
  case TOP_any_dims:
  case TOP_all:
  case TOP_all_dim:
  case TOP_all_dims: return d == DT_u8 ? DT_u8 : DT_bool;
  case TOP_argmax:
  case TOP_argmin:
  case TOP_count_nonzero:
  case TOP_count_nonzero_dim_IntList: return DT_i64;
  case TOP_logsumexp: return mg_infer_float(in, d);
  case TOP_var:
  case TOP_var_dim:
  case TOP_var_correction:
  case TOP_std:
  case TOP_std_dim:
  case TOP_std_correction:
  case TOP_var_mean:
  case TOP_var_mean_dim:
  case TOP_var_mean_correction:
  case TOP_std_mean:
  case TOP_std_mean_dim:
  case TOP_std_mean_correction: return mg_dtype_is_complex(d) ? DT_none : d;
  default: return d;
  }
}

MgRc mg_infer_reduce(MgInfer *in) {
  ValRef v = mg_infer_first(in);
  MgDims size;
  if (!v) return MG_UNSUP;
  TRY(reduce_dims(in, v, &size));
  return mg_infer_out(in, 0, reduce_dtype(in, mg_val(in->g, v)->dtype), &size, NULL);
}

/* var_mean and its like: var is real, mean has the input's dtype. */
MgRc mg_infer_reduce_two(MgInfer *in) {
  ValRef v = mg_infer_first(in);
  MgDims size;
  TRY(reduce_dims(in, v, &size));
  MgDtype d = reduce_dtype(in, mg_val(in->g, v)->dtype);
  TRY(mg_infer_results(in, 2));
  TRY(mg_infer_out(in, 0, d, &size, NULL));
  return mg_infer_out(in, 1, d, &size, NULL);
}

/* values and indices along one dimension; aminmax gives two values. */
MgRc mg_infer_reduce_pair(MgInfer *in) {
  ValRef v = mg_infer_first(in);
  MgDims size;
  TRY(reduce_dims(in, v, &size));
  MgDtype d = mg_val(in->g, v)->dtype;
  TRY(mg_infer_results(in, 2));
  TRY(mg_infer_out(in, 0, d, &size, NULL));
  return mg_infer_out(in, 1, in->op->code == TOP_aminmax ? d : DT_i64, &size, NULL);
}

MgRc mg_infer_scan(MgInfer *in) {
  ValRef v = mg_infer_first(in);
  MgDims size;
  mg_infer_dims_of(in, v, &size);
  MgDtype d = mg_val(in->g, v)->dtype;
  if (in->op->code == TOP_logcumsumexp) d = mg_infer_float(in, d);
  else d = mg_infer_dtype_arg(in, mg_dtype_is_int(d) || d == DT_bool ? DT_i64 : d);
  return mg_infer_out(in, 0, d, &size, NULL);
}

MgRc mg_infer_scan_pair(MgInfer *in) {
  ValRef v = mg_infer_first(in);
  MgDims size;
  mg_infer_dims_of(in, v, &size);
  TRY(mg_infer_results(in, 2));
  if (in->op->code == TOP_sort || in->op->code == TOP_sort_stable) {
    TRY(mg_infer_like(in, 0, mg_val(in->g, v)->dtype, v));
    return mg_infer_like(in, 1, DT_i64, v);
  }
  TRY(mg_infer_out(in, 0, mg_val(in->g, v)->dtype, &size, NULL));
  return mg_infer_out(in, 1, DT_i64, &size, NULL);
}

MgRc mg_infer_topk(MgInfer *in) {
  ValRef v = mg_infer_first(in);
  const MgArg *k = mg_infer_arg(in, "k");
  MgDims size;
  int d;
  mg_infer_dims_of(in, v, &size);
  TRY(mg_infer_dim(in, mg_infer_arg(in, "dim"), size.n, &d));
  if (k->tag != MA_int) return MG_UNSUP;
  if (size.n) size.d[d] = k->u.sym;
  TRY(mg_infer_results(in, 2));
  TRY(mg_infer_out(in, 0, mg_val(in->g, v)->dtype, &size, NULL));
  return mg_infer_out(in, 1, DT_i64, &size, NULL);
}

MgRc mg_infer_softmax(MgInfer *in) {
  ValRef v = mg_infer_first(in);
  MgDims size;
  mg_infer_dims_of(in, v, &size);
  MgDtype d = mg_val(in->g, v)->dtype;
  if (in->op->code == TOP__softmax || in->op->code == TOP__log_softmax)
    return mg_infer_out(in, 0, mg_infer_flag(in, "half_to_float") ? DT_f32 : d, &size, NULL);
  d = mg_infer_dtype_arg(in, d);
  return mg_infer_out(in, 0, d, &size, NULL);
}

MgRc mg_infer_softmax_backward(MgInfer *in) {
  ValRef v = mg_infer_first(in);
  const MgArg *d = mg_infer_arg(in, "input_dtype");
  MgDims size;
  if (d->tag != MA_dtype) return MG_UNSUP;
  mg_infer_dims_of(in, v, &size);
  return mg_infer_out(in, 0, d->u.code, &size, NULL);
}

/* ---- normalisation ---- */

/* The dtype of the statistics on the CPU: the parameters' when they are wider than a 16-bit input. */
static MgDtype norm_stat_dtype(MgInfer *in, MgDtype d) {
  ValRef w = mg_infer_tensor(in, "weight"), b = mg_infer_tensor(in, "bias");
  ValRef r = mg_infer_tensor(in, "running_mean");
  if (mg_dtype_size(d) > 2) return d;
  ValRef p[] = {w, b, r};
  for (int i = 0; i < 3; i++)
    if (p[i]) return mg_val(in->g, p[i])->dtype == d ? d : DT_f32;
  return d;
}

/* On a GPU statistics have the dtype of sums. */
static MgDtype norm_cuda_stat(MgDtype d) { return mg_dtype_size(d) == 2 ? DT_f32 : d; }

static MgRc norm_layer(MgInfer *in) {
  ValRef v = mg_infer_first(in);
  const MgArg *shape = mg_infer_arg(in, "normalized_shape");
  MgDims size, stat;
  mg_infer_dims_of(in, v, &size);
  if (shape->tag != MA_list) return MG_UNSUP;
  stat = size;
  for (int i = size.n - (int)shape->n; i < size.n; i++) stat.d[i] = mg_infer_c(in, 1);
  MgDtype d = mg_val(in->g, v)->dtype;
  bool cuda = mg_val(in->g, v)->device == DEV_cuda;
  MgDtype sd = cuda ? norm_cuda_stat(d) : norm_stat_dtype(in, d);
  TRY(mg_infer_results(in, 3));
  TRY(mg_infer_out(in, 0, d, &size, NULL));
  TRY(mg_infer_out(in, 1, sd, &stat, NULL));
  return mg_infer_out(in, 2, sd, &stat, NULL);
}

static MgRc norm_group(MgInfer *in) {
  ValRef v = mg_infer_first(in);
  MgDims size, stat = {.n = 2};
  const MgArg *n = mg_infer_arg(in, "N"), *group = mg_infer_arg(in, "group");
  if (n->tag != MA_int || group->tag != MA_int) return MG_UNSUP;
  mg_infer_dims_of(in, v, &size);
  stat.d[0] = n->u.sym;
  stat.d[1] = group->u.sym;
  int format = MF_contiguous;
  if (mg_val(in->g, v)->device == DEV_cpu) TRY(mg_infer_suggest(in, v, &format));
  MgDtype d = mg_val(in->g, v)->dtype, sd = norm_stat_dtype(in, d);
  TRY(mg_infer_results(in, 3));
  TRY(mg_infer_format(in, 0, d, &size, format));
  TRY(mg_infer_out(in, 1, sd, &stat, NULL));
  return mg_infer_out(in, 2, sd, &stat, NULL);
}

/* A result allocated like x: its own format when x is dense in one, else contiguous. */
static MgRc norm_like(MgInfer *in, int i, ValRef x) {
  MgDims size;
  int format;
  mg_infer_dims_of(in, x, &size);
  TRY(mg_infer_suggest(in, x, &format));
  return mg_infer_format(in, i, mg_val(in->g, x)->dtype, &size, format);
}

/* A batch norm's result: images of one pixel are contiguous in every format, and then come out as such. */
static MgRc norm_batch_result(MgInfer *in, ValRef x) {
  MgDims size;
  int plain = mg_infer_contiguous(in, x, MF_contiguous);
  if (plain == UNKNOWN) return MG_UNSUP;
  if (!plain) return norm_like(in, 0, x);
  mg_infer_dims_of(in, x, &size);
  return mg_infer_out(in, 0, mg_val(in->g, x)->dtype, &size, NULL);
}

static MgRc norm_batch(MgInfer *in) {
  ValRef v = mg_infer_first(in);
  MgDims stat = {.n = 1};
  if (mg_val(in->g, v)->ndim < 2) return MG_UNSUP;
  bool cpu = mg_val(in->g, v)->device == DEV_cpu,
       train = in->op->code != TOP__native_batch_norm_legit_no_training &&
               (in->op->code == TOP__native_batch_norm_legit_no_stats ||
                in->op->code == TOP__batch_norm_with_update || mg_infer_flag(in, "training"));
  if (!cpu && !train) return MG_UNSUP;
  stat.d[0] = train ? mg_val(in->g, v)->size[1] : mg_infer_c(in, 0);
  MgDtype d = mg_val(in->g, v)->dtype, sd = cpu ? norm_stat_dtype(in, d) : norm_cuda_stat(d);
  TRY(mg_infer_results(in, in->op->nret));
  TRY(cpu ? norm_batch_result(in, v) : mg_infer_like(in, 0, d, v));
  TRY(mg_infer_out(in, 1, sd, &stat, NULL));
  TRY(mg_infer_out(in, 2, sd, &stat, NULL));
  stat.d[0] = mg_infer_c(in, 0);
  if (in->op->code == TOP__batch_norm_with_update)
    return mg_infer_out(in, 3, DT_u8, &stat, NULL); /* only other back ends use it */
  if (in->op->code != TOP__native_batch_norm_legit_functional) return MG_OK;
  TRY(mg_infer_like(in, 3, sd, mg_infer_tensor(in, "running_mean")));
  return mg_infer_like(in, 4, sd, mg_infer_tensor(in, "running_var"));
}

/* grad_input like the input, and gradients like the parameters, as output_mask asks. */
static MgRc norm_backward(MgInfer *in) {
  ValRef x = mg_infer_tensor(in, "input"), w = mg_infer_tensor(in, "weight");
  const MgArg *mask = mg_infer_arg(in, "output_mask");
  MgDims size;
  if (mask->tag != MA_list || mask->n != 3 || !x) return MG_UNSUP;
  TRY(mg_infer_results(in, 3));
  mg_infer_dims_of(in, x, &size);
  if (mask->u.item[0].u.b) {
    if (in->op->code == TOP_native_layer_norm_backward)
      TRY(mg_infer_out(in, 0, mg_val(in->g, x)->dtype, &size, NULL));
    else TRY(norm_like(in, 0, x));
  }
  for (int i = 1; i < 3; i++) {
    MgDims one = {.n = 1, .d = {mg_infer_c(in, 1)}};
    if (!mask->u.item[i].u.b) continue;
    if (in->op->code == TOP_native_layer_norm_backward) {
      ValRef like = i == 2 ? mg_infer_tensor(in, "bias") : w;
      if (!like) continue;
      mg_infer_dims_of(in, like, &one);
    } else {
      if (size.n < 2) return MG_UNSUP;
      one.d[0] = size.d[1];
    }
    TRY(mg_infer_out(in, i, mg_val(in->g, w ? w : x)->dtype, &one, NULL));
  }
  return MG_OK;
}

MgRc mg_infer_norm(MgInfer *in) {
  switch (in->op->code) {
  case TOP_native_layer_norm: return norm_layer(in);
  case TOP_native_group_norm: return norm_group(in);
  case TOP_native_batch_norm:
  case TOP__native_batch_norm_legit:
  case TOP__native_batch_norm_legit_no_stats:
  case TOP__native_batch_norm_legit_no_training:
  case TOP__native_batch_norm_legit_functional:
  case TOP__batch_norm_with_update: return norm_batch(in);
  case TOP_native_layer_norm_backward:
  case TOP_native_batch_norm_backward:
  case TOP_native_group_norm_backward: return norm_backward(in);
  case TOP_layer_norm:
  case TOP_rms_norm:
  case TOP_group_norm:
  case TOP_batch_norm: {
    ValRef v = mg_infer_first(in);
    MgDims size;
    mg_infer_dims_of(in, v, &size);
    if (in->op->code == TOP_group_norm) return norm_like(in, 0, v);
    if (in->op->code == TOP_batch_norm) return norm_batch_result(in, v);
    return mg_infer_out(in, 0, mg_val(in->g, v)->dtype, &size, NULL);
  }
  default: return MG_UNSUP;
  }
}

/* ---- losses ---- */

MgRc mg_infer_loss(MgInfer *in) {
  if (in->op->code == TOP_soft_margin_loss_backward) { /* its meta kernel promotes */
    ValRef of[2] = {mg_infer_tensor(in, "target"), mg_infer_tensor(in, "self")};
    return mg_infer_iter(in, 0, mg_val(in->g, of[1])->dtype, of, 2);
  }
  ValRef v[2] = {mg_infer_tensor(in, "self"), mg_infer_tensor(in, "target")};
  const MgArg *a[2] = {mg_infer_arg(in, "self"), mg_infer_arg(in, "target")};
  int64_t reduction;
  MgDims none = {0};
  TRY(mg_infer_int(in, mg_infer_arg(in, "reduction"), &reduction));
  bool self =
      in->op->code == TOP_soft_margin_loss || /* their kernels go by self alone, meta kernels by both */
      in->op->code == TOP_huber_loss;
  bool target = in->op->code == TOP_binary_cross_entropy_with_logits; /* computed in place of 1 - target */
  MgDtype d = self || target ? mg_val(in->g, v[target])->dtype : mg_infer_result_type(in, a, 2);
  if (reduction) return mg_infer_out(in, 0, d, &none, NULL);
  switch (in->op->code) {
  case TOP_binary_cross_entropy: return mg_infer_like(in, 0, d, v[0]);
  case TOP_soft_margin_loss: return mg_infer_like(in, 0, d, v[0]);
  case TOP_kl_div:
  case TOP_binary_cross_entropy_with_logits: return MG_UNSUP;
  default: return mg_infer_iter(in, 0, d, v, 2);
  }
}

MgRc mg_infer_nll(MgInfer *in) {
  bool back = in->op->code == TOP_nll_loss_backward || in->op->code == TOP_nll_loss2d_backward;
  ValRef x = mg_infer_tensor(in, "self"), t = mg_infer_tensor(in, "target");
  int64_t reduction;
  MgDims size, none = {0};
  TRY(mg_infer_int(in, mg_infer_arg(in, "reduction"), &reduction));
  MgDtype d = mg_val(in->g, x)->dtype;
  if (back) {
    mg_infer_dims_of(in, x, &size);
    return mg_infer_out(in, 0, d, &size, NULL);
  }
  TRY(mg_infer_results(in, 2));
  mg_infer_dims_of(in, t, &size);
  if (in->op->code ==
      TOP_multilabel_margin_loss_forward) { /* a loss for each row; which classes are targets */
    const MgVal *a = mg_val(in->g, x);
    if (a->ndim != size.n || size.n > 2) return MG_UNSUP;
    for (int i = 0; i < size.n; i++)
      if (mg_infer_eq(in, a->size[i], size.d[i]) != 1 || mg_infer_is(in, size.d[i], 0) != 0) return MG_UNSUP;
    TRY(mg_infer_out(in, 1, d, &size, NULL));
    if (size.n) size.n--;
    return mg_infer_out(in, 0, d, reduction ? &none : &size, NULL);
  }
  if (in->op->code == TOP_nll_loss_forward && mg_val(in->g, x)->ndim == 1) size.n = 0;
  TRY(mg_infer_out(in, 0, d, reduction ? &none : &size, NULL));
  return mg_infer_out(in, 1, d, &none, NULL);
}

MgRc mg_infer_cdist(MgInfer *in) { return MG_UNSUP; }
