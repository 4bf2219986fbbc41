/* What kernels of torch refuse, although meta kernels may accept it.
 * In: a node before inference.  Out: whether it is refused.  Such a node is left to torch, which raises the
 * error that users know. */
#include "ir/infer/infer_facts.h"

/* Dense in the memory format that its strides suggest: ATen refuses other memory. */
static bool check_laid_out(const Check *c, ValRef v) {
  int format;
  return !v || mg_infer_suggest(c->in, v, &format) || mg_infer_contiguous(c->in, v, format);
}

static bool check_group_norm(const Check *c) {
  const MgArg *channels = mg_infer_arg(c->in, "C");
  if (!check_laid_out(c, mg_infer_first(c->in))) return false;
  return channels->tag == MA_int && check_vector(c, check_val(c, "weight"), channels->u.sym) &&
         check_vector(c, check_val(c, "bias"), channels->u.sym);
}

/* What is mirrored is there: padding, last dimension first, is smaller than the size. */
static bool check_reflection(const Check *c) {
  const MgVal *self = check_val(c, "self");
  const MgArg *pad = mg_infer_arg(c->in, "padding");
  if (!check_nonempty(c) || !self || pad->tag != MA_list) return false;
  for (uint32_t i = 0; i < pad->n; i++)
    if ((int)i / 2 >= self->ndim ||
        (pad->u.item[i].tag == MA_int &&
         check_less(c, self->size[self->ndim - 1 - (int)i / 2],
                    mg_sym_add(c->in->x, pad->u.item[i].u.sym, mg_infer_c(c->in, 1)))))
      return false;
  return true;
}

/* Resampling: neither side is empty. */
static bool check_resampling(const Check *c) {
  const MgVal *self = check_val(c, "self");
  const MgArg *scale = mg_infer_arg(c->in, "scale_factors");
  int64_t n;
  if (!check_nonempty(c) || !check_at_least(c, "output_size", 1)) return false;
  for (uint32_t i = 0; self && scale->tag == MA_list && i < scale->n; i++)
    if (scale->u.item[i].tag == MA_float && (int)i + 2 < self->ndim &&
        mg_ex_const_int(c->in->x, self->size[2 + i], &n) && (double)n * scale->u.item[i].u.f < 1)
      return false;
  return true;
}

static bool check_unfold(const Check *c) {
  const MgVal *self = check_val(c, "self");
  const MgArg *size = mg_infer_arg(c->in, "size");
  int d = 0;
  if (!self || !self->ndim || size->tag != MA_int ||
      mg_infer_dim(c->in, mg_infer_arg(c->in, "dimension"), self->ndim, &d) != MG_OK)
    return false;
  return check_at_least(c, "size", 0) && check_at_least(c, "step", 1) &&
         !check_less(c, self->size[d], size->u.sym);
}

static bool check_pixels(const Check *c) {
  const MgVal *self = check_val(c, "self");
  bool up = c->op->code == TOP_pixel_shuffle;
  int64_t by;
  if (!self || self->ndim < 3 ||
      mg_infer_int(c->in, mg_infer_arg(c->in, up ? "upscale_factor" : "downscale_factor"), &by) != MG_OK ||
      by < 1)
    return false;
  const SymRef *last = self->size + self->ndim - 1;
  return up ? by < INT32_MAX && check_divides(c, last[-2], by * by)
            : check_divides(c, last[-1], by) && check_divides(c, *last, by);
}

static bool check_topk(const Check *c) {
  const MgVal *self = check_val(c, "self");
  const MgArg *k = mg_infer_arg(c->in, "k");
  int d = 0;
  if (!self || !self->ndim || k->tag != MA_int ||
      mg_infer_dim(c->in, mg_infer_arg(c->in, "dim"), self->ndim, &d) != MG_OK)
    return true;
  return check_at_least(c, "k", 0) && !check_less(c, self->size[d], k->u.sym);
}

static bool check_as_many(const Check *c, const char *one, const char *other) {
  ValRef a = mg_infer_tensor(c->in, one), b = mg_infer_tensor(c->in, other);
  return !a || !b || check_eq(c, mg_val_numel(c->in->g, a), mg_val_numel(c->in->g, b));
}

/* A truth value as the number `name` of arithmetic on tensors that are none. */
static bool check_truth(const Check *c, const MgVal *self, const char *name) {
  return !self || self->dtype == DT_bool || mg_infer_arg(c->in, name)->tag != MA_bool;
}

/* A factor of integers is an integer. */
static bool check_alpha(const Check *c, const MgVal *self, const MgVal *other) {
  if (!check_truth(c, self, "alpha")) return false;
  return !self || check_float(self) || (other && check_float(other)) ||
         mg_infer_arg(c->in, "alpha")->tag != MA_float;
}

/* Padding of a transposed convolution's result that is neither below the stride nor below the dilation. */
static bool refuses_output_padding(const Check *c) {
  const MgArg *pad = mg_infer_arg(c->in, "output_padding");
  int64_t p, by, wide;
  for (uint32_t i = 0; pad->tag == MA_list && i < pad->n; i++)
    if (mg_infer_pick(c->in, pad, (int)i, 0, &p) == MG_OK &&
        mg_infer_pick(c->in, mg_infer_arg(c->in, "stride"), (int)i, 1, &by) == MG_OK &&
        mg_infer_pick(c->in, mg_infer_arg(c->in, "dilation"), (int)i, 1, &wide) == MG_OK && p >= by &&
        p >= wide)
      return true;
  return false;
}

/* Ranges and probabilities that the random kernels refuse; those that are known while compiling. */
static bool refuses_draw(const Check *c) {
  double from = 0, to = 0, p = 0;
  switch (c->op->code) {
  case TOP_uniform: return check_number(c, "from", &from) && check_number(c, "to", &to) && !(from <= to);
  case TOP_random_from: return check_number(c, "from", &from) && check_number(c, "to", &to) && from >= to;
  case TOP_random_to: return check_number(c, "to", &to) && to <= 0;
  case TOP_randint:
  case TOP_randint_low:
  case TOP_randint_generator:
  case TOP_randint_low_generator:
  case TOP_randint_like:
  case TOP_randint_like_low_dtype:
    check_number(c, "low", &from);
    return check_number(c, "high", &to) && from >= to;
  case TOP_normal_functional: return check_number(c, "std", &p) && !(p >= 0);
  case TOP_log_normal: return check_number(c, "std", &p) && !(p > 0);
  case TOP_cauchy: return check_number(c, "sigma", &p) && !(p > 0);
  case TOP_exponential: return check_number(c, "lambd", &p) && !(p > 0);
  case TOP_geometric: return check_number(c, "p", &p) && !(p > 0 && p < 1);
  default: return check_number(c, "p", &p) && !(p >= 0 && p <= 1); /* bernoulli */
  }
}

/* Weights of classes: one for each. */
static bool check_class_weight(const Check *c, const MgVal *self, const MgVal *w) {
  return !self || !w || !self->ndim || check_vector(c, w, self->size[self->ndim == 1 ? 0 : 1]);
}

static bool check_is_barebones(const Check *c, const MgArg *a) {
  if (a->tag == MA_dtype) return mg_dtype_is_barebones((MgDtype)a->u.code);
  if (a->tag == MA_val) return a->u.val && mg_dtype_is_barebones((MgDtype)mg_val(c->in->g, a->u.val)->dtype);
  for (uint32_t i = 0; a->tag == MA_list && i < a->n; i++)
    if (check_is_barebones(c, &a->u.item[i])) return true;
  return false;
}

/* Most kernels lack uint16, uint32 and uint64, and which ones have them differs from torch to torch.
 * What only makes or moves elements has them all. */
static bool refuses_barebones(const Check *c) {
  switch (c->op->code) {
  case TOP__to_copy:
  case TOP_clone:
  case TOP_copy:
  case TOP_cat:
  case TOP_stack:
  case TOP_alias_copy:
  case TOP_detach_copy:
  case TOP_empty_like:
  case TOP_empty_memory_format:
  case TOP_empty_permuted:
  case TOP_empty_strided:
  case TOP_fill_Scalar:
  case TOP_fill_Tensor:
  case TOP_full:
  case TOP_full_like:
  case TOP_lift:
  case TOP_lift_fresh:
  case TOP_lift_fresh_copy:
  case TOP_new_empty:
  case TOP_new_empty_strided:
  case TOP_new_full:
  case TOP_new_ones:
  case TOP_new_zeros:
  case TOP_ones:
  case TOP_ones_like:
  case TOP_scalar_tensor:
  case TOP_zero:
  case TOP_zeros:
  case TOP_zeros_like: return false;
  default: break;
  }
  for (int i = 0; !c->op->is_view && i < c->in->n->narg; i++)
    if (check_is_barebones(c, &c->in->n->arg[i])) return true;
  return false;
}

/* ---- the rule of each op: is it refused? ---- */

static bool refuses_add(const Check *c) {
  return !check_alpha(c, check_val(c, "self"), check_val(c, "other"));
}
static bool refuses_sub(const Check *c) {
  return !check_truth(c, check_val(c, "self"), "other") || refuses_add(c);
}
static bool refuses_empty(const Check *c) { return !check_nonempty(c); }
static bool refuses_index_select(const Check *c) {
  return !check_nonempty(c) || !check_rank(check_val(c, "index"), 0, 1);
}
/* Along dim; other sizes may be 0. */
static bool refuses_empty_dim(const Check *c) {
  const MgVal *self = check_val(c, "self");
  int dim;
  return self && self->ndim && mg_infer_dim(c->in, mg_infer_arg(c->in, "dim"), self->ndim, &dim) == MG_OK &&
         mg_infer_is(c->in, self->size[dim], 0) == 1;
}
/* Statistics may be longer than the channels: their end is left alone. */
static bool refuses_batch_norm(const Check *c) { return !mg_check_batch_norm(c); }
static bool refuses_group_norm(const Check *c) { return !check_group_norm(c); }
static bool refuses_embedding(const Check *c) {
  const MgVal *w = check_val(c, "weight");
  return w && w->ndim && mg_infer_is(c->in, w->size[0], 0) == 1;
}
static bool refuses_convolution(const Check *c) {
  return (mg_infer_flag(c->in, "transposed") && refuses_output_padding(c)) || !mg_check_conv(c);
}
static bool refuses_pow(const Check *c) { return !mg_check_pow(c); }
static bool refuses_scatter_view(const Check *c) { return mg_infer_scatter_fits(c->in) != MG_OK; }
static bool refuses_reflection(const Check *c) { return !check_reflection(c); }
static bool refuses_resampling(const Check *c) { return !check_resampling(c); }
static bool refuses_unfold(const Check *c) { return !check_unfold(c); }
static bool refuses_pixels(const Check *c) { return !check_pixels(c); }
static bool refuses_fill(const Check *c) { return !check_rank(check_val(c, "value"), 0, 0); }
static bool refuses_clamp(const Check *c) {
  return mg_infer_arg(c->in, "min")->tag == MA_none && mg_infer_arg(c->in, "max")->tag == MA_none;
}
static bool refuses_clamp_tensor(const Check *c) { return !check_val(c, "min") && !check_val(c, "max"); }
static bool refuses_triangle(const Check *c) {
  return !check_at_least(c, "row", 0) || !check_at_least(c, "col", 0);
}
static bool refuses_topk(const Check *c) { return !check_topk(c); }
static bool refuses_put(const Check *c) { return !check_as_many(c, "source", "index"); }
static bool refuses_cumulative(const Check *c) {
  const MgVal *self = check_val(c, "self");
  return c->in->n->op->mutates && self && self->dtype == DT_bool;
}
static bool refuses_nll_loss(const Check *c) {
  return !check_class_weight(c, check_val(c, "self"), check_val(c, "weight"));
}
static bool refuses_smooth_l1_loss(const Check *c) {
  double beta;
  return check_number(c, "beta", &beta) && beta < 0;
}
/* The result has self's dtype, which has to hold that of the arithmetic. */
static bool refuses_into_self(const Check *c) {
  const MgVal *self = check_val(c, "self"), *target = check_val(c, "target");
  return self && target && !check_float(self) && check_float(target);
}
static bool refuses_huber_loss_backward(const Check *c) {
  return !check_dtypes(check_val(c, "self"), check_val(c, "target"));
}
static bool refuses_cross_entropy(const Check *c) {
  const MgVal *self = check_val(c, "self"), *target = check_val(c, "target");
  return !check_dtypes(self, target) || !check_dtypes(self, check_val(c, "weight"));
}
static bool refuses_cross_entropy_logits(const Check *c) {
  const MgVal *self = check_val(c, "self"), *target = check_val(c, "target");
  return self && target && (!check_float(self) || !check_float(target));
}
static bool refuses_addcdiv(const Check *c) {
  return !check_float(check_val(c, "tensor1")) && !check_float(check_val(c, "tensor2"));
}
static bool refuses_lerp(const Check *c) {
  return !check_dtypes(check_val(c, "self"), check_val(c, "weight"));
}
static bool refuses_heaviside(const Check *c) {
  return !check_dtypes(check_val(c, "self"), check_val(c, "values"));
}
static bool refuses_index_add(const Check *c) {
  return !check_dtypes(check_val(c, "self"), check_val(c, "source"));
}

/* Kernels of the CPU that lack 16-bit floats, and complex numbers. */
static bool refuses_16_bits(const Check *c) {
  ValRef v = mg_infer_first(c->in);
  const MgVal *x = v ? mg_val(c->in->g, v) : NULL;
  return x && x->device == DEV_cpu && (x->dtype == DT_f16 || x->dtype == DT_bf16);
}
static bool refuses_complex(const Check *c) {
  ValRef v = mg_infer_first(c->in);
  return v && mg_dtype_is_complex((MgDtype)mg_val(c->in->g, v)->dtype);
}
static bool refuses_smooth_resampling(const Check *c) { return refuses_resampling(c) || refuses_16_bits(c); }

/* Ops without a row are refused for what holds of all only. */
static const CheckRule refuse_rule[TOP__COUNT] = {
    [TOP_add_Tensor] = refuses_add,
    [TOP_add_Scalar] = refuses_add,
    [TOP_sub_Tensor] = refuses_sub,
    [TOP_sub_Scalar] = refuses_sub,
    [TOP_rsub_Tensor] = refuses_sub,
    [TOP_rsub_Scalar] = refuses_sub,
    [TOP_max] = refuses_empty,
    [TOP_min] = refuses_empty,
    [TOP__adaptive_avg_pool2d] = refuses_empty,
    [TOP__adaptive_avg_pool3d] = refuses_empty,
    [TOP_index_select] = refuses_index_select,
    [TOP__cdist_forward] = refuses_16_bits,
    [TOP_linalg_cholesky_ex] = refuses_16_bits,
    [TOP_cholesky_solve] = refuses_16_bits,
    [TOP_linalg_lu_factor_ex] = refuses_16_bits,
    [TOP__linalg_solve_ex] = refuses_16_bits,
    [TOP_linalg_solve_triangular] = refuses_16_bits,
    [TOP_lcm] = refuses_16_bits,
    [TOP_gcd] = refuses_16_bits,
    [TOP_avg_pool3d] = refuses_16_bits,
    [TOP_special_zeta] = refuses_16_bits,
    [TOP_special_ndtri] = refuses_16_bits,
    [TOP_special_log_ndtr] = refuses_16_bits,
    [TOP_special_erfcx] = refuses_16_bits,
    [TOP__fft_r2c] = refuses_16_bits,
    [TOP__unique2] = refuses_complex,
    [TOP_unique_consecutive] = refuses_complex,
    [TOP_max_dim] = refuses_empty_dim,
    [TOP_min_dim] = refuses_empty_dim,
    [TOP_native_batch_norm] = refuses_batch_norm,
    [TOP__native_batch_norm_legit] = refuses_batch_norm,
    [TOP__native_batch_norm_legit_functional] = refuses_batch_norm,
    [TOP_native_group_norm] = refuses_group_norm,
    [TOP_embedding] = refuses_embedding,
    [TOP_convolution] = refuses_convolution,
    [TOP_pow_Tensor_Scalar] = refuses_pow,
    [TOP_slice_scatter] = refuses_scatter_view,
    [TOP_select_scatter] = refuses_scatter_view,
    [TOP_diagonal_scatter] = refuses_scatter_view,
    [TOP_reflection_pad1d] = refuses_reflection,
    [TOP_reflection_pad2d] = refuses_reflection,
    [TOP_reflection_pad3d] = refuses_reflection,
    [TOP_upsample_nearest1d] = refuses_resampling,
    [TOP_upsample_nearest2d] = refuses_resampling,
    [TOP_upsample_nearest3d] = refuses_resampling,
    [TOP_upsample_linear1d] = refuses_resampling,
    [TOP_upsample_bilinear2d] = refuses_resampling,
    [TOP_upsample_bicubic2d] = refuses_resampling,
    [TOP_upsample_trilinear3d] = refuses_resampling,
    [TOP__upsample_nearest_exact1d] = refuses_resampling,
    [TOP__upsample_nearest_exact2d] = refuses_resampling,
    [TOP__upsample_nearest_exact3d] = refuses_resampling,
    [TOP__upsample_bilinear2d_aa] = refuses_smooth_resampling,
    [TOP__upsample_bicubic2d_aa] = refuses_smooth_resampling,
    [TOP_unfold] = refuses_unfold,
    [TOP_unfold_copy] = refuses_unfold,
    [TOP_pixel_shuffle] = refuses_pixels,
    [TOP_pixel_unshuffle] = refuses_pixels,
    [TOP_fill_Tensor] = refuses_fill,
    [TOP_clamp] = refuses_clamp,
    [TOP_clamp_Tensor] = refuses_clamp_tensor,
    [TOP_tril_indices] = refuses_triangle,
    [TOP_triu_indices] = refuses_triangle,
    [TOP_topk] = refuses_topk,
    [TOP_put] = refuses_put,
    [TOP_cumsum] = refuses_cumulative,
    [TOP_cumprod] = refuses_cumulative,
    [TOP_randint] = refuses_draw,
    [TOP_randint_low] = refuses_draw,
    [TOP_randint_generator] = refuses_draw,
    [TOP_randint_low_generator] = refuses_draw,
    [TOP_uniform] = refuses_draw,
    [TOP_random_from] = refuses_draw,
    [TOP_random_to] = refuses_draw,
    [TOP_randint_like] = refuses_draw,
    [TOP_randint_like_low_dtype] = refuses_draw,
    [TOP_normal_functional] = refuses_draw,
    [TOP_log_normal] = refuses_draw,
    [TOP_cauchy] = refuses_draw,
    [TOP_exponential] = refuses_draw,
    [TOP_geometric] = refuses_draw,
    [TOP_bernoulli_p] = refuses_draw,
    [TOP_nll_loss_forward] = refuses_nll_loss,
    [TOP_nll_loss2d_forward] = refuses_nll_loss,
    [TOP_smooth_l1_loss] = refuses_smooth_l1_loss,
    [TOP_binary_cross_entropy] = refuses_cross_entropy,
    [TOP_binary_cross_entropy_with_logits] = refuses_cross_entropy_logits,
    [TOP_huber_loss] = refuses_into_self,
    [TOP_mse_loss_backward] = refuses_into_self,
    [TOP_smooth_l1_loss_backward] = refuses_into_self,
    [TOP_huber_loss_backward] = refuses_huber_loss_backward,
    [TOP_addcdiv] = refuses_addcdiv,
    [TOP_lerp_Tensor] = refuses_lerp,
    [TOP_heaviside] = refuses_heaviside,
    [TOP_index_add] = refuses_index_add,
    [TOP_index_copy] = refuses_index_add,
};

bool mg_check_refused(const Check *c) {
  CheckRule rule = refuse_rule[c->op->code];
  return refuses_barebones(c) || !mg_check_dims(c, "dim") || (rule && rule(c));
}
