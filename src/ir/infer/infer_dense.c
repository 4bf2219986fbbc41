/* Results of matrix products, convolutions, pooling, resampling and attention. */
#include "ir/infer/infer.h"
#include <string.h>

#define ARG(name) mg_infer_arg(in, name)

/* ---- matrix products ---- */

MgRc mg_infer_matmul(MgInfer *in) {
  int code = in->op->code;
  bool plus = code == TOP_addmm || code == TOP_baddbmm || code == TOP_addmv || code == TOP__addmm_activation;
  int first = plus; /* of the two factors, behind what is added */
  ValRef a = mg_infer_nth(in, first), b = mg_infer_nth(in, first + 1);
  if (!a || !b) return MG_UNSUP;
  const MgVal *p = mg_val(in->g, a), *q = mg_val(in->g, b);
  MgDtype d = p->dtype;
  MgDims size = {0};
  switch (code) {
  case TOP_mm:
  case TOP_addmm:
  case TOP__addmm_activation:
  case TOP__int_mm:
    if (p->ndim != 2 || q->ndim != 2) return MG_UNSUP;
    size = (MgDims){2, {p->size[0], q->size[1]}};
    if (code == TOP__int_mm) d = DT_i32;
    break;
  case TOP__weight_int4pack_mm_for_cpu:
    if (p->ndim != 2 || q->ndim != 2 || q->dtype != DT_u8 || !mg_dtype_is_float(d) || d == DT_f64)
      return MG_UNSUP;
    size = (MgDims){2, {p->size[0], q->size[0]}};
    break;
  case TOP_bmm:
  case TOP_baddbmm:
    if (p->ndim != 3 || q->ndim != 3) return MG_UNSUP;
    size = (MgDims){3, {p->size[0], p->size[1], q->size[2]}};
    break;
  case TOP_mv:
  case TOP_addmv:
    if (p->ndim != 2 || q->ndim != 1) return MG_UNSUP;
    size = (MgDims){1, {p->size[0]}};
    break;
  case TOP_dot:
  case TOP_vdot: break;
  case TOP_outer:
  case TOP_ger: {
    const MgArg *both[] = {ARG("self"), ARG("vec2")};
    d = mg_infer_result_type(in, both, 2);
    size = (MgDims){2, {p->size[0], q->size[0]}};
    break;
  }
  case TOP_linear:
    if (!p->ndim || q->ndim != 2) return MG_UNSUP;
    mg_infer_dims_of(in, a, &size);
    size.d[size.n - 1] = q->size[0];
    break;
  default:
    return MG_UNSUP; /* matmul, einsum and the like choose their path by strides; they arrive decomposed */
  }
  return mg_infer_out(in, 0, d, &size, NULL);
}

/* ---- convolution ---- */

static SymRef dense_conv_size(MgInfer *in, SymRef size, SymRef kernel, int64_t stride, int64_t pad,
                              int64_t dil) {
  MgExprs *x = in->x;
  SymRef span = mg_sym_mul(x, mg_infer_c(in, dil), mg_sym_sub(x, kernel, mg_infer_c(in, 1)));
  SymRef n = mg_sym_sub(x, mg_sym_add(x, size, mg_infer_c(in, 2 * pad - 1)), span);
  return mg_sym_add(x, mg_sym_floordiv(x, n, mg_infer_c(in, stride)), mg_infer_c(in, 1));
}

static SymRef dense_conv_back_size(MgInfer *in, SymRef size, SymRef kernel, int64_t stride, int64_t pad,
                                   int64_t dil, int64_t extra) {
  MgExprs *x = in->x;
  SymRef span = mg_sym_mul(x, mg_infer_c(in, dil), mg_sym_sub(x, kernel, mg_infer_c(in, 1)));
  SymRef n = mg_sym_mul(x, mg_sym_sub(x, size, mg_infer_c(in, 1)), mg_infer_c(in, stride));
  return mg_sym_add(x, mg_sym_add(x, n, span), mg_infer_c(in, 1 + extra - 2 * pad));
}

/* channels_last when input or weight is (mkldnn and the native kernels alike), but
 * never for volumes of f64. */
static MgRc dense_conv_format(MgInfer *in, ValRef x, ValRef w, int *format) {
  int a, b;
  *format = MF_contiguous;
  if (mg_val(in->g, x)->dtype == DT_f64 && mg_val(in->g, x)->device == DEV_cpu && mg_val(in->g, x)->ndim == 5)
    return MG_OK;
  if (mg_val(in->g, x)->ndim ==
      3) { /* runs as a 2-D convolution of height one, on a contiguous copy when x is not */
    int plain = mg_infer_contiguous(in, x, MF_contiguous);
    if (plain == UNKNOWN) return MG_UNSUP;
    a = MF_contiguous;
    if (plain) TRY(mg_infer_suggest_unsqueezed(in, x, 2, &a));
    TRY(mg_infer_suggest_unsqueezed(in, w, 2, &b));
  } else {
    TRY(mg_infer_suggest(in, x, &a));
    TRY(mg_infer_suggest(in, w, &b));
  }
  *format = a ? a : b;
  return MG_OK;
}

/* ATen's own kernel instead of mkldnn's, on several threads: one small image of f32, a
 * filter of at most 3, no groups. */
static MgRc dense_conv_slow(MgInfer *in, ValRef x, ValRef w, bool *slow) {
  const MgVal *p = mg_val(in->g, x), *q = mg_val(in->g, w);
  SymRef most = mg_infer_c(in, 20480);
  *slow = false;
  if (p->dtype != DT_f32 || p->device != DEV_cpu) return MG_OK;
  SymRef numel = mg_sym(in->x, 1);
  for (int i = 0; i < 4; i++) numel = mg_sym_mul(in->x, numel, p->size[i]);
  int one = mg_infer_is(in, p->size[0], 1), large = mg_infer_less(in, most, numel);
  int64_t groups;
  TRY(mg_infer_int(in, ARG("groups"), &groups));
  if (!one || large == 1 || groups > 1) return MG_OK;
  if (one == UNKNOWN || large == UNKNOWN) return MG_UNSUP;
  for (int i = 1; i <= 2; i++) *slow |= mg_infer_less(in, mg_infer_c(in, 3), q->size[q->ndim - i]) != 1;
  return MG_OK;
}

static MgRc dense_convolution(MgInfer *in) {
  ValRef x = mg_infer_first(in), w = mg_infer_tensor(in, "weight");
  const MgVal *p = mg_val(in->g, x), *q = mg_val(in->g, w);
  MgDims size = {.n = p->ndim};
  int64_t s, pad, dil, extra, groups;
  int format;
  bool back = mg_infer_flag(in, "transposed");
  if (p->ndim < 3 || p->ndim != q->ndim) return MG_UNSUP;
  TRY(mg_infer_int(in, ARG("groups"), &groups));
  size.d[0] = p->size[0];
  size.d[1] = back ? mg_sym_mul(in->x, q->size[1], mg_infer_c(in, groups)) : q->size[0];
  if (mg_infer_is(in, p->size[1], 0) == 1) size.d[1] = p->size[1]; /* ATen's result of nothing */
  for (int i = 2; i < p->ndim; i++) {
    TRY(mg_infer_pick(in, ARG("stride"), i - 2, 1, &s));
    TRY(mg_infer_pick(in, ARG("padding"), i - 2, 0, &pad));
    TRY(mg_infer_pick(in, ARG("dilation"), i - 2, 1, &dil));
    TRY(mg_infer_pick(in, ARG("output_padding"), i - 2, 0, &extra));
    size.d[i] = back ? dense_conv_back_size(in, p->size[i], q->size[i], s, pad, dil, extra)
                     : dense_conv_size(in, p->size[i], q->size[i], s, pad, dil);
  }
  TRY(dense_conv_format(in, x, w, &format));
  if (format && p->ndim == 5) {
    bool slow = back;
    if (!slow) TRY(dense_conv_slow(in, x, w, &slow));
    if (slow) format = MF_contiguous;
  }
  if (format && p->ndim == 3) { /* channels_last of [N, C, 1, L] without its height */
    MgDims stride = {3, {mg_sym_mul(in->x, size.d[1], size.d[2]), mg_infer_c(in, 1), size.d[1]}};
    return mg_infer_out(in, 0, p->dtype, &size, &stride);
  }
  return mg_infer_format(in, 0, p->dtype, &size, format);
}

/* Gradients like input and weight in the common format; the bias gradient is a vector. */
static MgRc dense_convolution_backward(MgInfer *in) {
  ValRef g = mg_infer_first(in), x = mg_infer_tensor(in, "input"), w = mg_infer_tensor(in, "weight");
  const MgArg *mask = ARG("output_mask");
  MgDims size;
  int format;
  if (mask->tag != MA_list || mask->n != 3 || mg_val(in->g, x)->ndim < 3) return MG_UNSUP;
  TRY(dense_conv_format(in, x, w, &format));
  if (format && mg_val(in->g, x)->ndim == 3) return MG_UNSUP;
  bool slow = false;
  int own = format; /* of the weight's gradient */
  if (format && !mg_infer_flag(in, "transposed")) TRY(dense_conv_slow(in, x, w, &slow));
  if (slow && mg_val(in->g, x)->ndim == 5) own = format = MF_contiguous;
  if (slow && mg_infer_contiguous(in, w, MF_contiguous) == 1 &&
      mg_infer_contiguous(in, w, MF_channels_last) == 1)
    TRY(mg_infer_suggest(in, w, &own)); /* a filter of 1: its product is a view of the weight's own layout */
  TRY(mg_infer_results(in, 3));
  for (int i = 0; i < 2; i++) {
    if (!mask->u.item[i].u.b) continue;
    mg_infer_dims_of(in, i ? w : x, &size);
    TRY(mg_infer_format(in, i, mg_val(in->g, x)->dtype, &size, i ? own : format));
  }
  if (!mask->u.item[2].u.b) return MG_OK;
  MgDims bias = {.n = 1, .d = {mg_val(in->g, g)->size[1]}};
  return mg_infer_out(in, 2, mg_val(in->g, x)->dtype, &bias, NULL);
}

MgRc mg_infer_conv(MgInfer *in) {
  switch (in->op->code) {
  case TOP_convolution:
  case TOP__convolution:
  case TOP_conv1d:
  case TOP_conv2d:
  case TOP_conv3d: return dense_convolution(in);
  case TOP_convolution_backward: return dense_convolution_backward(in);
  default: return MG_UNSUP;
  }
}

/* ---- pooling ---- */

static MgRc dense_pool_size(MgInfer *in, SymRef size, int k, SymRef *out) {
  int64_t kernel, stride, pad, dil;
  MgExprs *x = in->x;
  TRY(mg_infer_pick(in, ARG("kernel_size"), k, 1, &kernel));
  TRY(mg_infer_pick(in, ARG("stride"), k, kernel, &stride));
  TRY(mg_infer_pick(in, ARG("padding"), k, 0, &pad));
  TRY(mg_infer_pick(in, ARG("dilation"), k, 1, &dil));
  if (stride < 1) return MG_UNSUP;
  bool ceil = mg_infer_flag(in, "ceil_mode");
  SymRef st = mg_infer_c(in, stride), one = mg_infer_c(in, 1);
  SymRef n = mg_sym_add(x, size, mg_infer_c(in, 2 * pad - dil * (kernel - 1) - 1 + (ceil ? stride - 1 : 0)));
  *out = mg_sym_add(x, mg_sym_floordiv(x, n, st), one);
  if (!ceil) return MG_OK;
  /* the last window must start inside the input or its left padding */
  int c = mg_infer_less(in, mg_sym_mul(x, mg_sym_sub(x, *out, one), st),
                        mg_sym_add(x, size, mg_infer_c(in, pad)));
  if (c == UNKNOWN) return MG_UNSUP;
  if (c == 0) *out = mg_sym_sub(x, *out, one);
  return MG_OK;
}

MgRc mg_infer_pool(MgInfer *in) {
  ValRef v = mg_infer_first(in);
  MgDims size, to;
  int nd, format;
  bool adaptive = false, pair = in->op->nret == 2;
  switch (in->op->code) {
  case TOP_avg_pool2d:
  case TOP_max_pool2d_with_indices: nd = 2; break;
  case TOP_avg_pool3d:
  case TOP_max_pool3d_with_indices: nd = 3; break;
  case TOP__adaptive_avg_pool2d:
  case TOP_adaptive_max_pool2d:
    nd = 2;
    adaptive = true;
    break;
  case TOP__adaptive_avg_pool3d:
  case TOP_adaptive_max_pool3d:
    nd = 3;
    adaptive = true;
    break;
  default: return MG_UNSUP;
  }
  mg_infer_dims_of(in, v, &size);
  if (size.n < nd + 1 || size.n > nd + 2) return MG_UNSUP;
  if (adaptive) TRY(mg_infer_sizes(in, ARG("output_size"), &to));
  if (adaptive && to.n != nd) return MG_UNSUP;
  for (int i = 0; i < nd; i++) {
    SymRef *s = &size.d[size.n - nd + i];
    if (adaptive) *s = to.d[i];
    else TRY(dense_pool_size(in, *s, i, s));
  }
  TRY(mg_infer_suggest(in, v, &format));
  if (size.n == nd + 1) format = MF_contiguous; /* no batch: 3-D, or 4-D for volumes */
  if (nd == 3 && in->op->code != TOP_max_pool3d_with_indices) format = MF_contiguous;
  MgDtype d = mg_val(in->g, v)->dtype;
  TRY(mg_infer_results(in, pair ? 2 : 1));
  TRY(mg_infer_format(in, 0, d, &size, format));
  return pair ? mg_infer_format(in, 1, DT_i64, &size, format) : MG_OK;
}

MgRc mg_infer_pool_backward(MgInfer *in) {
  ValRef v = mg_infer_tensor(in, "self");
  MgDims size;
  int format;
  if (!v) return MG_UNSUP;
  TRY(mg_infer_suggest(in, v, &format));
  mg_infer_dims_of(in, v, &size);
  return mg_infer_format(in, 0, mg_val(in->g, v)->dtype, &size, format);
}

/* ---- resampling ---- */

MgRc mg_infer_upsample(MgInfer *in) {
  ValRef v = mg_infer_first(in);
  MgDims size, to;
  int format;
  if (mg_infer_find(in, "input_size") >= 0) { /* backward */
    TRY(mg_infer_sizes(in, ARG("input_size"), &size));
  } else {
    const MgArg *scale = ARG("scale_factors");
    mg_infer_dims_of(in, v, &size);
    if (ARG("output_size")->tag == MA_list) {
      TRY(mg_infer_sizes(in, ARG("output_size"), &to));
      if (to.n != size.n - 2) return MG_UNSUP;
      ValRef indices = mg_infer_tensor(in, "indices"); /* of max_unpool2d */
      for (int i = 0; indices && i < size.n; i++)
        if (mg_val(in->g, indices)->ndim != size.n ||
            mg_infer_eq(in, mg_val(in->g, indices)->size[i], size.d[i]) != 1)
          return MG_UNSUP;
      memcpy(size.d + 2, to.d, to.n * sizeof *to.d);
    } else if (scale->tag == MA_list && (int)scale->n == size.n - 2) {
      for (uint32_t i = 0; i < scale->n; i++) {
        int64_t n;
        if (scale->u.item[i].tag != MA_float || !mg_ex_const_int(in->x, size.d[2 + i], &n)) return MG_UNSUP;
        size.d[2 + i] = mg_infer_c(in, (int64_t)((double)n * scale->u.item[i].u.f));
      }
    } else {
      return MG_UNSUP;
    }
  }
  format = MF_contiguous;
  bool unpools = in->op->code == TOP_max_unpool2d && mg_val(in->g, v)->device != DEV_cpu;
  if (!unpools) TRY(mg_infer_suggest(in, v, &format));
  return mg_infer_format(in, 0, mg_val(in->g, v)->dtype, &size, format);
}

/* affine_grid_generator(theta, size): a point for each position of the image. */
static MgRc dense_affine_grid(MgInfer *in) {
  ValRef theta = mg_infer_first(in);
  MgDims size;
  if (!theta) return MG_UNSUP;
  TRY(mg_infer_sizes(in, ARG("size"), &size));
  const MgVal *t = mg_val(in->g, theta);
  int nd = size.n - 2;
  if ((nd != 2 && nd != 3) || t->ndim != 3 || !mg_dtype_is_float((MgDtype)t->dtype) ||
      mg_infer_eq(in, t->size[0], size.d[0]) != 1 || mg_infer_is(in, t->size[1], nd) != 1 ||
      mg_infer_is(in, t->size[2], nd + 1) != 1)
    return MG_UNSUP;
  for (int i = 0; i < nd; i++) size.d[1 + i] = size.d[2 + i];
  size.d[nd + 1] = mg_infer_c(in, nd);
  return mg_infer_out(in, 0, (MgDtype)t->dtype, &size, NULL);
}

/* grid_sampler_2d and _3d: the batch and channels of the image at the points of the grid. */
MgRc mg_infer_sample(MgInfer *in) {
  if (in->op->code == TOP_affine_grid_generator) return dense_affine_grid(in);
  ValRef v = mg_infer_first(in), grid = mg_infer_tensor(in, "grid");
  if (in->op->code == TOP_grid_sampler_2d_backward || !v || !grid) return MG_UNSUP;
  const MgVal *a = mg_val(in->g, v), *b = mg_val(in->g, grid);
  int nd = in->op->code == TOP_grid_sampler_2d ? 2 : 3;
  MgDims size;
  if (a->ndim != nd + 2 || b->ndim != nd + 2 || a->dtype != b->dtype || a->device != b->device ||
      !mg_dtype_is_float((MgDtype)a->dtype) || mg_infer_eq(in, a->size[0], b->size[0]) != 1 ||
      mg_infer_is(in, b->size[nd + 1], nd) != 1)
    return MG_UNSUP;
  mg_infer_dims_of(in, v, &size);
  for (int i = 0; i < nd; i++) {
    if (mg_infer_less(in, mg_infer_c(in, 0), a->size[2 + i]) != 1)
      return MG_UNSUP; /* an image without points is refused */
    size.d[2 + i] = b->size[1 + i];
  }
  return mg_infer_out(in, 0, (MgDtype)a->dtype, &size, NULL);
}

/* ---- attention ---- */

/* The fused kernels allocate [batch, query, head, dim] and give back its transpose. */
static MgRc dense_sdpa_out(MgInfer *in, int i, MgDtype d, SymRef b, SymRef h, SymRef q, SymRef e) {
  MgDims size = {.n = 4, .d = {b, h, q, e}}, stride = {.n = 4};
  SymRef he = mg_sym_mul(in->x, h, e);
  stride.d[3] = mg_infer_c(in, 1);
  stride.d[1] = e;
  stride.d[2] = he;
  stride.d[0] = mg_sym_mul(in->x, he, q);
  return mg_infer_out(in, i, d, &size, &stride);
}

MgRc mg_infer_sdpa(MgInfer *in) {
  ValRef q = mg_infer_tensor(in, "query"), k = mg_infer_tensor(in, "key");
  ValRef v = mg_infer_tensor(in, "value");
  if (!q || !k || !v || mg_val(in->g, q)->ndim != 4) return MG_UNSUP;
  const MgVal *t = mg_val(in->g, q);
  SymRef b = t->size[0], h = t->size[1], n = t->size[2], e = mg_val(in->g, v)->size[3];
  MgDtype d = t->dtype;
  switch (in->op->code) {
  case TOP__scaled_dot_product_flash_attention_for_cpu: {
    MgDims lse = {.n = 3, .d = {b, n, h}}, stride = {.n = 3};
    TRY(mg_infer_results(in, 2));
    if (mg_infer_eq(in, t->size[3], e) == 1) TRY(mg_infer_like(in, 0, d, q));
    else TRY(dense_sdpa_out(in, 0, d, b, h, n, e));
    /* logsumexp is [batch, query, head] in memory, seen as [batch, head, query] */
    stride.d[0] = mg_sym_mul(in->x, n, h);
    stride.d[1] = mg_infer_c(in, 1);
    stride.d[2] = h;
    lse.d[1] = h;
    lse.d[2] = n;
    return mg_infer_out(in, 1, d == DT_f64 ? DT_f64 : DT_f32, &lse, &stride);
  }
  case TOP__scaled_dot_product_flash_attention_for_cpu_backward: {
    ValRef p[3] = {q, k, v};
    TRY(mg_infer_results(in, 3));
    for (int i = 0; i < 3; i++) {
      const MgVal *s = mg_val(in->g, p[i]);
      TRY(dense_sdpa_out(in, i, s->dtype, s->size[0], s->size[1], s->size[2], s->size[3]));
    }
    return MG_OK;
  }
  default: return MG_UNSUP;
  }
}
