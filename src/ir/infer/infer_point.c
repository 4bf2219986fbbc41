/* Results of elementwise ops: dtypes by promotion, strides by TensorIterator. */
#include "ir/infer/infer.h"
#include <string.h>

/* The tensor arguments in order.  Numbers in their place count as 0-dim tensors; so does `other` of x.Scalar
 * overloads, which ATen wraps (pow looks at its exponent itself). */
static int point_operands(const MgInfer *in, ValRef *v) {
  int n = 0;
  for (int i = 0; i < in->n->narg && n < 8; i++) {
    bool wrapped = in->op->param[i].kind == AK_scalar && in->op->code != TOP_pow_Tensor_Scalar &&
                   (!strcmp(in->op->param[i].name, "other") || !strcmp(in->op->param[i].name, "self"));
    if (wrapped || (in->op->param[i].kind == AK_tensor && in->n->arg[i].tag != MA_none))
      v[n++] = mg_infer_nth(in, i);
  }
  return n;
}

static bool point_complex(const MgInfer *in) {
  for (int i = 0; i < in->n->narg; i++)
    if (mg_infer_nth(in, i) && mg_dtype_is_complex(mg_val(in->g, mg_infer_nth(in, i))->dtype)) return true;
  return false;
}

/* The dtype of the arguments that take part in promotion: tensors, and numbers by these names. */
static MgDtype point_promote(const MgInfer *in) {
  static const char *const number[] = {"self", "other", "exponent", "min", "max"};
  const MgArg *a[16];
  int n = 0;
  for (int i = 0; i < in->n->narg && n < 16; i++) {
    const MgParam *p = &in->op->param[i];
    bool use = p->kind == AK_tensor && strcmp(p->name, "condition") && strcmp(p->name, "buffer");
    for (size_t k = 0; k < sizeof number / sizeof *number && p->kind == AK_scalar; k++)
      use |= !strcmp(p->name, number[k]);
    if (use) a[n++] = &in->n->arg[i];
  }
  return mg_infer_result_type(in, a, n);
}

static MgRc point_out(MgInfer *in, MgDtype d) {
  ValRef v[8];
  int n = point_operands(in, v);
  return mg_infer_iter(in, 0, d, v, n);
}

MgRc mg_infer_same(MgInfer *in) {
  ValRef v = mg_infer_first(in);
  if (!v) return MG_UNSUP;
  MgDtype d = mg_val(in->g, v)->dtype;
  switch (in->op->code) {
  case TOP_positive: {
    MgDims size, stride;
    mg_infer_dims_of(in, v, &size);
    stride.n = size.n;
    memcpy(stride.d, mg_val(in->g, v)->stride, size.n * sizeof *stride.d);
    return mg_infer_view_out(in, 0, v, &size, &stride, mg_val(in->g, v)->offset);
  }
  case TOP_fill_Scalar:
  case TOP_fill_Tensor: return mg_infer_like(in, 0, d, v);
  case TOP_abs:
    if (mg_dtype_is_complex(d)) d = mg_dtype_real(d);
    break;
  case TOP_native_dropout_backward: d = mg_infer_float(in, d); break;
  case TOP_prelu:
  case TOP__prelu_kernel:
  case TOP_nan_to_num: return mg_infer_like(in, 0, d, v); /* empty_like */
  case TOP_hardtanh:
  case TOP_relu6: return mg_infer_like(in, 0, point_promote(in), v);
  case TOP_clamp:
  case TOP_clamp_min:
  case TOP_clamp_max: d = point_promote(in); break;
  case TOP_square: d = d == DT_bool ? DT_i64 : d; break;
  }
  return point_out(in, d);
}

/* Of a complex tensor: contiguous, though the meta kernel keeps the strides. */
static MgRc point_angle(MgInfer *in) {
  ValRef v = mg_infer_first(in);
  MgDtype d = v ? mg_val(in->g, v)->dtype : DT_none;
  if (d != DT_c64 && d != DT_c128) return MG_UNSUP;
  MgDims size;
  mg_infer_dims_of(in, v, &size);
  return mg_infer_out(in, 0, d == DT_c64 ? DT_f32 : DT_f64, &size, NULL);
}

MgRc mg_infer_float1(MgInfer *in) {
  if (point_complex(in)) return in->op->code == TOP_angle ? point_angle(in) : MG_UNSUP;
  ValRef v = mg_infer_tensor(in, "self");
  return v ? point_out(in, mg_infer_float(in, mg_val(in->g, v)->dtype)) : MG_UNSUP;
}

MgRc mg_infer_bool1(MgInfer *in) { return point_out(in, DT_bool); }
MgRc mg_infer_bool2(MgInfer *in) { return point_out(in, DT_bool); }

MgRc mg_infer_promote(MgInfer *in) {
  MgDtype d = point_promote(in);
  switch (in->op->code) {
  case TOP_div_Tensor_mode:
  case TOP_div_Scalar_mode:
    if (mg_infer_arg(in, "rounding_mode")->tag == MA_none) d = mg_infer_float(in, d);
    break;
  case TOP_mse_loss_backward:
  case TOP_smooth_l1_loss_backward:
  case TOP_huber_loss_backward: { /* allocated as zeros_like(input, contiguous) */
    MgDims size;
    mg_infer_dims_of(in, mg_infer_tensor(in, "self"), &size);
    return mg_infer_out(in, 0, mg_val(in->g, mg_infer_tensor(in, "self"))->dtype, &size, NULL);
  }
  case TOP_binary_cross_entropy_backward: return mg_infer_like(in, 0, d, mg_infer_tensor(in, "self"));
  case TOP_rsub_Tensor: { /* other - self: the order of operands decides between strides */
    ValRef v[2] = {mg_infer_tensor(in, "other"), mg_infer_tensor(in, "self")};
    return mg_infer_iter(in, 0, d, v, 2);
  }
  case TOP_log_sigmoid_backward: {
    ValRef v[2] = {mg_infer_tensor(in, "grad_output"), mg_infer_tensor(in, "self")};
    return mg_infer_iter(in, 0, d, v, 2);
  }
  case TOP_pow_Scalar: { /* its structured kernel asks for a result without strides of its own: contiguous */
    MgDims size;
    mg_infer_dims_of(in, mg_infer_tensor(in, "exponent"), &size);
    return mg_infer_out(in, 0, d, &size, NULL);
  }
  case TOP_where_ScalarSelf: /* the number becomes a 0-dim tensor of its own dtype */
  case TOP_where_ScalarOther: break;
  }
  return point_out(in, d);
}

MgRc mg_infer_float2(MgInfer *in) { return point_out(in, mg_infer_float(in, point_promote(in))); }

/* The functional form clones self expanded to the common shape, contiguous. */
MgRc mg_infer_masked(MgInfer *in) {
  ValRef v = mg_infer_first(in), m = mg_infer_tensor(in, "mask");
  MgDims size;
  mg_infer_dims_of(in, v, &size);
  TRY(mg_infer_broadcast(in, &size, mg_val(in->g, m)->size, mg_val(in->g, m)->ndim));
  return mg_infer_out(in, 0, mg_val(in->g, v)->dtype, &size, NULL);
}

MgRc mg_infer_logsig(MgInfer *in) {
  ValRef v = mg_infer_first(in);
  MgDims size, none = {.n = 1, .d = {mg_infer_c(in, 0)}};
  mg_infer_dims_of(in, v, &size);
  TRY(mg_infer_results(in, 2));
  TRY(mg_infer_out(in, 0, mg_val(in->g, v)->dtype, &size, NULL));
  if (mg_val(in->g, v)->device != DEV_cpu) return mg_infer_out(in, 1, mg_val(in->g, v)->dtype, &none, NULL);
  return mg_infer_out(in, 1, mg_val(in->g, v)->dtype, &size, NULL);
}

MgRc mg_infer_glu(MgInfer *in) {
  ValRef v = mg_infer_first(in);
  MgDims size;
  int d;
  mg_infer_dims_of(in, v, &size);
  TRY(mg_infer_dim(in, mg_infer_arg(in, "dim"), size.n, &d));
  if (!size.n || !mg_sym_is(in->x, mg_sym_mod(in->x, size.d[d], mg_infer_c(in, 2)), 0)) return MG_UNSUP;
  size.d[d] = mg_sym_floordiv(in->x, size.d[d], mg_infer_c(in, 2));
  if (mg_infer_contiguous(in, v, MF_contiguous) != 1) return MG_UNSUP; /* strides follow the halves' */
  return mg_infer_out(in, 0, mg_val(in->g, v)->dtype, &size, NULL);
}
