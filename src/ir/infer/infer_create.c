/* Results of factories, *_like and new_* ops, random ops and list (foreach, fused) ops. */
#include "ir/infer/infer.h"
#include <math.h>
#include <string.h>
#include "ir/infer/eager_rules.h"

#define ARG(name) mg_infer_arg(in, name)

/* The dtype a Python number gives a new tensor. */
static MgDtype create_number(const MgInfer *in, const MgArg *a) {
  return a->tag == MA_bool    ? DT_bool
         : a->tag == MA_int   ? DT_i64
         : a->tag == MA_float ? in->g->default_dtype
                              : DT_none;
}

static bool create_real(const MgInfer *in, const MgArg *a, double *v) {
  int64_t k;
  if (a->tag == MA_float) *v = a->u.f;
  else if (a->tag == MA_int && mg_sym_settle(in->x, a->u.sym, &k)) *v = k;
  else return false;
  return true;
}

static MgRc create_arange(MgInfer *in) {
  MgArg zero = mg_arg_int(in->g, 0), one = mg_arg_int(in->g, 1);
  const MgArg *start = ARG("start"), *end = ARG("end"), *step = ARG("step");
  double a, b, s;
  MgDims size = {.n = 1};
  if (start->tag == MA_none) start = &zero;
  if (step->tag == MA_none) step = &one;
  bool ints = start->tag == MA_int && end->tag == MA_int && step->tag == MA_int;
  MgDtype d = mg_infer_dtype_arg(in, ints ? DT_i64 : in->g->default_dtype);
  if (ints && mg_sym_is(in->x, step->u.sym, 1)) { /* the only form whose length may be symbolic */
    SymRef n = mg_sym_sub(in->x, end->u.sym, start->u.sym);
    if (mg_infer_less(in, n, mg_infer_c(in, 0))) return MG_UNSUP;
    size.d[0] = n;
    return mg_infer_out(in, 0, d, &size, NULL);
  }
  if (!create_real(in, start, &a) || !create_real(in, end, &b) || !create_real(in, step, &s)) return MG_UNSUP;
  if (d == DT_i64 && !mg_eager_rule(ER_arange_i64_in_double)) a = trunc(a), b = trunc(b), s = trunc(s);
  if (s == 0) return MG_UNSUP;
  double n = ceil((b - a) / s);
  if (!(n >= 0 && n < 9e15)) return MG_UNSUP;
  size.d[0] = mg_infer_c(in, (int64_t)n);
  return mg_infer_out(in, 0, d, &size, NULL);
}

static MgRc create_triangle(MgInfer *in, bool upper) {
  int64_t row, col, off, n = 0;
  TRY(mg_infer_int(in, ARG("row"), &row));
  TRY(mg_infer_int(in, ARG("col"), &col));
  TRY(mg_infer_int(in, ARG("offset"), &off));
  for (int64_t i = 0; i < row; i++) { /* columns on the kept side of the diagonal */
    int64_t lower = i + off + !upper, k = lower < 0 ? 0 : lower > col ? col : lower;
    n += upper ? col - k : k;
  }
  MgDims size = {.n = 2, .d = {mg_infer_c(in, 2), mg_infer_c(in, n)}};
  return mg_infer_out(in, 0, mg_infer_dtype_arg(in, DT_i64), &size, NULL);
}

static MgRc create_window(MgInfer *in, MgDtype d) {
  const MgArg *n = ARG("window_length");
  MgDims size = {.n = 1};
  if (n->tag != MA_int || !mg_dtype_is_float(d)) return MG_UNSUP; /* ATen has the error */
  size.d[0] = n->u.sym;
  return mg_infer_less(in, n->u.sym, mg_infer_c(in, 0)) ? MG_UNSUP : mg_infer_out(in, 0, d, &size, NULL);
}

/* A number n or steps says how many: linspace, eye, randperm and their like. */
static MgRc create_counted(MgInfer *in, MgDtype d) {
  int code = in->op->code;
  bool spaced = code == TOP_linspace || code == TOP_logspace, square = code == TOP_eye;
  const MgArg *n = ARG(spaced ? "steps" : "n");
  MgDims size = {.n = 1};
  if (n->tag != MA_int) return MG_UNSUP;
  size.d[0] = n->u.sym;
  if (square || code == TOP_eye_m) {
    size.n = 2;
    size.d[1] = square ? n->u.sym : ARG("m")->u.sym;
  }
  if (code == TOP_randperm || code == TOP_randperm_generator) d = mg_infer_dtype_arg(in, DT_i64);
  return mg_infer_out(in, 0, d, &size, NULL);
}

/* empty_permuted: dense, its dimensions in the order that physical_layout gives. */
static MgRc create_permuted(MgInfer *in, MgDtype d, const MgDims *size) {
  MgDims stride = {.n = size->n};
  SymRef s = mg_infer_c(in, 1);
  const MgArg *order = ARG("physical_layout");
  if (order->tag != MA_list || (int)order->n != size->n) return MG_UNSUP;
  for (int i = size->n; i-- > 0;) {
    int k;
    TRY(mg_infer_dim(in, &order->u.item[i], size->n, &k));
    stride.d[k] = s;
    s = mg_sym_mul(in->x, s, mg_sym_max(in->x, size->d[k], mg_infer_c(in, 1)));
  }
  return mg_infer_out(in, 0, d, size, &stride);
}

MgRc mg_infer_factory(MgInfer *in) {
  MgDims size = {0}, stride;
  const MgArg *f = ARG("memory_format");
  MgDtype d = mg_infer_dtype_arg(in, in->g->default_dtype);
  if (ARG("layout")->tag == MA_layout && ARG("layout")->u.code != 0) return MG_UNSUP;
  switch (in->op->code) {
  case TOP_arange:
  case TOP_arange_start:
  case TOP_arange_start_step: return create_arange(in);
  case TOP_tril_indices: return create_triangle(in, false);
  case TOP_triu_indices: return create_triangle(in, true);
  case TOP_hann_window:
  case TOP_hann_window_periodic:
  case TOP_hamming_window:
  case TOP_hamming_window_periodic:
  case TOP_hamming_window_periodic_alpha:
  case TOP_hamming_window_periodic_alpha_beta:
  case TOP_blackman_window:
  case TOP_blackman_window_periodic:
  case TOP_bartlett_window:
  case TOP_bartlett_window_periodic:
  case TOP_kaiser_window:
  case TOP_kaiser_window_periodic:
  case TOP_kaiser_window_beta: return create_window(in, d);
  case TOP_scalar_tensor: return mg_infer_out(in, 0, d, &size, NULL);
  case TOP_linspace:
  case TOP_logspace:
  case TOP_eye:
  case TOP_eye_m:
  case TOP_randperm:
  case TOP_randperm_generator: return create_counted(in, d);
  case TOP_randint:
  case TOP_randint_low:
  case TOP_randint_generator:
  case TOP_randint_low_generator: d = mg_infer_dtype_arg(in, DT_i64); break;
  case TOP_full: d = mg_infer_dtype_arg(in, create_number(in, ARG("fill_value"))); break;
  }
  TRY(mg_infer_sizes(in, ARG("size"), &size));
  if (in->op->code == TOP_empty_strided) {
    TRY(mg_infer_sizes(in, ARG("stride"), &stride));
    return mg_infer_out(in, 0, d, &size, &stride);
  }
  if (in->op->code == TOP_empty_permuted) return create_permuted(in, d, &size);
  return mg_infer_format(in, 0, d, &size, f->tag == MA_memory_format ? f->u.code : MF_contiguous);
}

/* Memory as self's, dtype by argument; bernoulli and argsort belong here too. */
MgRc mg_infer_alike(MgInfer *in) {
  ValRef v = mg_infer_first(in);
  const MgArg *f = ARG("memory_format");
  MgDims size;
  MgDtype d = mg_infer_dtype_arg(in, mg_val(in->g, v)->dtype);
  if (in->op->code == TOP_argsort || in->op->code == TOP_argsort_stable) d = DT_i64;
  mg_infer_dims_of(in, v, &size);
  if (in->op->code == TOP_bernoulli || in->op->code == TOP_bernoulli_p)
    return mg_infer_out(in, 0, d, &size, NULL);
  if (f->tag == MA_none || f->u.code == MF_preserve) return mg_infer_like(in, 0, d, v);
  return mg_infer_format(in, 0, d, &size, f->u.code);
}

MgRc mg_infer_new(MgInfer *in) {
  ValRef v = mg_infer_first(in);
  MgDims size, stride;
  MgDtype d = mg_infer_dtype_arg(in, mg_val(in->g, v)->dtype);
  TRY(mg_infer_sizes(in, ARG("size"), &size));
  if (in->op->code != TOP_new_empty_strided) return mg_infer_out(in, 0, d, &size, NULL);
  TRY(mg_infer_sizes(in, ARG("stride"), &stride));
  return mg_infer_out(in, 0, d, &size, &stride);
}

MgRc mg_infer_random(MgInfer *in) {
  ValRef v = mg_infer_first(in);
  MgDims size;
  if (!v) return MG_UNSUP;
  MgDtype d = mg_val(in->g, v)->dtype;
  switch (in->op->code) {
  case TOP_native_dropout:
    TRY(mg_infer_results(in, 2));
    TRY(mg_infer_like(in, 0, d, v));
    return mg_infer_like(in, 1, DT_bool, v);
  case TOP_normal_Tensor_float:
  case TOP_poisson: return mg_infer_like(in, 0, d, v);
  case TOP_rrelu_with_noise:
  case TOP_rrelu_with_noise_functional: /* contiguous, whatever self is */
    if (ARG("noise")->tag != MA_val) return MG_UNSUP;
    mg_infer_dims_of(in, v, &size);
    TRY(mg_infer_results(in, in->op->code == TOP_rrelu_with_noise ? 1 : 2));
    TRY(mg_infer_out(in, 0, d, &size, NULL));
    return in->op->code == TOP_rrelu_with_noise ? MG_OK : mg_infer_like(in, 1, d, ARG("noise")->u.val);
  default: return MG_UNSUP;
  }
}

/* ---- lists ---- */

/* One result per tensor of the first list, elementwise with its counterparts. */
MgRc mg_infer_foreach(MgInfer *in) {
  const MgArg *self = mg_infer_arg(in, "self");
  MgDims none = {0};
  if (self->tag != MA_list) return MG_UNSUP;
  TRY(mg_infer_results(in, self->n));
  for (uint32_t i = 0; i < self->n; i++) {
    ValRef v[4];
    const MgArg *part[4];
    int n = 0, np = 0;
    for (int k = 0; k < in->n->narg && n < 4; k++) {
      const MgArg *a = &in->n->arg[k];
      uint8_t kind = in->op->param[k].kind;
      if (kind == AK_tensor_list) {
        if (a->n != self->n) return MG_UNSUP;
        v[n++] = a->u.item[i].u.val;
        part[np++] = &a->u.item[i];
      } else if (!strcmp(in->op->param[k].name, "scalar") || !strcmp(in->op->param[k].name, "exponent")) {
        part[np++] = a;
      }
    }
    MgDtype d = mg_infer_result_type(in, part, np), own = mg_val(in->g, v[0])->dtype;
    switch (in->op->code) {
    case TOP__foreach_norm_Scalar:
      if (mg_dtype_is_complex(own)) return MG_UNSUP;
      /* fall through */
    case TOP__foreach_max: TRY(mg_infer_out(in, i, mg_infer_dtype_arg(in, own), &none, NULL)); continue;
    case TOP__foreach_zero:
    case TOP__foreach_copy: TRY(mg_infer_like(in, i, own, v[0])); continue;
    case TOP__foreach_div_Scalar:
    case TOP__foreach_div_List:
    case TOP__foreach_div_ScalarList:
    case TOP__foreach_div_Tensor:
    case TOP__foreach_sqrt:
    case TOP__foreach_rsqrt:
    case TOP__foreach_reciprocal:
    case TOP__foreach_exp:
    case TOP__foreach_log:
    case TOP__foreach_sigmoid:
    case TOP__foreach_tanh: d = mg_infer_float(in, d); break;
    case TOP__foreach_pow_ScalarAndTensor: return MG_UNSUP;
    }
    if (!mg_dtype_is_float(own)) return MG_UNSUP; /* number lists may widen integers one by one */
    TRY(mg_infer_iter(in, i, d, v, n));
  }
  return MG_OK;
}

/* Fused optimizers give back, list after list, every list that their in-place form writes: all but
 * state_steps, which only one overload of Adagrad does. */
MgRc mg_infer_fused(MgInfer *in) {
  int n = 0;
  for (int pass = 0; pass < 2; pass++) {
    if (pass) TRY(mg_infer_results(in, n));
    n = 0;
    for (int k = 0; k < in->n->narg; k++) {
      const MgArg *a = &in->n->arg[k];
      bool steps = !strcmp(in->op->param[k].name, "state_steps") && in->op->code != TOP__fused_adagrad;
      if (in->op->param[k].kind != AK_tensor_list || steps) continue;
      if (a->tag != MA_list) return MG_UNSUP;
      for (uint32_t i = 0; i < a->n; i++, n++) {
        if (a->u.item[i].tag != MA_val) return MG_UNSUP;
        if (pass) TRY(mg_infer_like(in, n, mg_val(in->g, a->u.item[i].u.val)->dtype, a->u.item[i].u.val));
      }
    }
  }
  return MG_OK;
}
