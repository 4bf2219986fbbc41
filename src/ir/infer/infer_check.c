/* What torch would refuse.
 * In: a node before inference.  Out: whether its arguments are plausible; if not, the caller asks torch's own
 * meta
 * kernel, which raises the error that users know, or accepts what was doubted here.  Only facts of metadata
 * that a kernel relies on are looked at: a graph that passes may be compiled
 * without any check at run time. */
#include "ir/infer/infer_facts.h"
#include <math.h>
#include <string.h>

static bool check_broadcasts_to(const Check *c, const MgVal *v, const SymRef *size, int n) {
  if (!v) return true;
  if (v->ndim > n) return false;
  for (int i = 0; i < v->ndim; i++)
    if (mg_infer_is(c->in, v->size[i], 1) != 1 && !check_eq(c, v->size[i], size[n - v->ndim + i]))
      return false;
  return true;
}

static bool check_matmul(const Check *c) {
  bool plus = check_val(c, "mat1") || check_val(c, "batch1") || c->op->code == TOP_addmv;
  const MgVal *a = check_val(c, c->op->code == TOP_addmm || c->op->code == TOP__addmm_activation ? "mat1"
                                : c->op->code == TOP_baddbmm                                     ? "batch1"
                                : c->op->code == TOP_addmv                                       ? "mat"
                                                                                                 : "self");
  const MgVal *b = check_val(c, c->op->code == TOP_addmv     ? "vec"
                                : c->op->code == TOP_baddbmm ? "batch2"
                                : c->op->code == TOP_mv      ? "vec"
                                : c->op->code == TOP_dot     ? "tensor"
                                : c->op->code == TOP_vdot    ? "other"
                                                             : "mat2");
  const MgVal *bias = plus ? check_val(c, "self") : NULL;
  if (!a || !b) return true;
  if (!check_dtypes(a, b) || !check_dtypes(bias, a)) return false;
  if (!a->ndim || !b->ndim) return false;
  if ((c->op->code == TOP_dot || c->op->code == TOP_vdot) && (a->ndim != 1 || b->ndim != 1)) return false;
  int inner = b->ndim == 1 ? 0 : b->ndim - 2;
  if (!check_eq(c, a->size[a->ndim - 1], b->size[inner])) return false;
  if (a->ndim == 3 && (b->ndim != 3 || !check_eq(c, a->size[0], b->size[0]))) return false;
  if (!bias) return true;
  SymRef out[3] = {a->size[0], a->ndim == 3 ? a->size[1] : b->size[b->ndim - 1], b->size[b->ndim - 1]};
  return check_broadcasts_to(c, bias, out, b->ndim == 1 ? 1 : a->ndim);
}

/* Does a window fit into each padded dimension after the first `at`? */
static bool check_window(const Check *c, const MgVal *x, int at, const SymRef *window, const MgArg *windows) {
  int64_t pad, wide, size;
  for (int i = 0; i + at < x->ndim; i++) {
    if (mg_infer_pick(c->in, mg_infer_arg(c->in, "padding"), i, 0, &pad) != MG_OK ||
        mg_infer_pick(c->in, mg_infer_arg(c->in, "dilation"), i, 1, &wide) != MG_OK)
      continue;
    if (window ? !mg_ex_const_int(c->in->x, window[i], &size)
               : mg_infer_pick(c->in, windows, i, 1, &size) != MG_OK)
      continue;
    if (check_less(c, x->size[i + at], mg_infer_c(c->in, wide * (size - 1) + 1 - 2 * pad))) return false;
  }
  return true;
}

bool mg_check_conv(const Check *c) {
  const MgVal *x = check_val(c, "input"), *w = check_val(c, "weight"), *b = check_val(c, "bias");
  bool back = mg_infer_flag(c->in, "transposed");
  int64_t groups = 1;
  if (!x || !w || x->ndim != w->ndim || !check_dtypes(x, w) || !check_dtypes(x, b)) return false;
  if (mg_infer_int(c->in, mg_infer_arg(c->in, "groups"), &groups) != MG_OK || groups < 1) return false;
  if (!check_at_least(c, "stride", 1) || !check_at_least(c, "padding", 0) ||
      !check_at_least(c, "dilation", 1))
    return false;
  SymRef per = back ? w->size[0] : mg_sym_mul(c->in->x, w->size[1], mg_infer_c(c->in, groups));
  SymRef out = back ? mg_sym_mul(c->in->x, w->size[1], mg_infer_c(c->in, groups)) : w->size[0];
  if (!check_eq(c, x->size[1], per) || !check_vector(c, b, out)) return false;
  return check_divides(c, w->size[0], groups) && (back || check_window(c, x, 2, w->size + 2, NULL));
}

static bool check_pool(const Check *c, int nd) {
  const MgVal *x = check_val(c, "self");
  const MgArg *k = mg_infer_arg(c->in, "kernel_size");
  int64_t kernel, pad;
  if (!check_rank(x, nd + 1, nd + 2)) return false;
  if (!check_at_least(c, "kernel_size", 1) || !check_at_least(c, "stride", 1) ||
      !check_at_least(c, "padding", 0) || !check_at_least(c, "dilation", 1))
    return false;
  const MgArg *divisor = mg_infer_arg(c->in, "divisor_override");
  int64_t by;
  if (divisor->tag != MA_none && (mg_infer_int(c->in, divisor, &by) != MG_OK || !by)) return false;
  for (int i = 0; i < nd && k->tag == MA_list; i++)
    if (mg_infer_pick(c->in, k, i, 1, &kernel) == MG_OK &&
        mg_infer_pick(c->in, mg_infer_arg(c->in, "padding"), i, 0, &pad) == MG_OK && pad > kernel / 2)
      return false;
  for (int i = 1; x && i < x->ndim; i++)
    if (mg_infer_is(c->in, x->size[i], 0) == 1) return false;
  return !x || mg_infer_flag(c->in, "ceil_mode") || check_window(c, x, x->ndim - nd, NULL, k);
}

/* index has the rank of self and is no larger than it, but along dim. */
static bool check_within(const Check *c, const MgVal *index, const MgVal *self, int dim) {
  if (!index || !self || !self->ndim || !index->ndim) return true;
  if (index->ndim != self->ndim) return false;
  for (int i = 0; i < self->ndim; i++)
    if (i != dim && mg_infer_less(c->in, self->size[i], index->size[i]) == 1) return false;
  return true;
}

static bool check_gather(const Check *c, bool scatter) {
  const MgVal *self = check_val(c, "self"), *index = check_val(c, "index"), *src = check_val(c, "src");
  int dim = -1;
  if (!self || !index || !check_index(index) || !check_dtypes(self, src)) return false;
  if (mg_infer_dim(c->in, mg_infer_arg(c->in, "dim"), self->ndim, &dim) != MG_OK) return false;
  /* an empty index may have any shape */
  for (int i = 0; i < index->ndim; i++)
    if (mg_infer_is(c->in, index->size[i], 0) == 1) return true;
  return check_within(c, index, self, dim) && (!scatter || check_within(c, index, src, -1));
}

/* index_add, index_copy: slices of self along dim, as many as there are indices.  Only the plain
 * case; torch knows the others. */
static bool check_slices(const Check *c) {
  const MgVal *self = check_val(c, "self"), *index = check_val(c, "index"), *source = check_val(c, "source");
  const MgArg *alpha = mg_infer_arg(c->in, "alpha");
  int dim = -1;
  if (!self || !index || !source || !self->ndim || index->ndim != 1 || source->ndim != self->ndim)
    return false;
  if (!check_index(index) || !check_dtypes(self, source) || (!check_float(self) && alpha->tag == MA_float))
    return false;
  if (mg_infer_dim(c->in, mg_infer_arg(c->in, "dim"), self->ndim, &dim) != MG_OK) return false;
  for (int i = 0; i < self->ndim; i++)
    if (!check_eq(c, source->size[i], i == dim ? index->size[0] : self->size[i])) return false;
  return true;
}

static bool check_cat(const Check *c) {
  const MgArg *l = mg_infer_arg(c->in, "tensors");
  const MgVal *first = NULL;
  int64_t dim;
  if (l->tag != MA_list || mg_infer_int(c->in, mg_infer_arg(c->in, "dim"), &dim) != MG_OK) return false;
  for (uint32_t i = 0; i < l->n; i++) {
    if (l->u.item[i].tag != MA_val) return false;
    const MgVal *v = mg_val(c->in->g, l->u.item[i].u.val);
    if (v->ndim == 1 && mg_infer_is(c->in, v->size[0], 0) == 1) continue; /* skipped, as torch does */
    if (!v->ndim || (first && v->ndim != first->ndim)) return false;
    for (int d = 0; first && d < v->ndim; d++)
      if (d != (dim < 0 ? dim + v->ndim : dim) && !check_eq(c, v->size[d], first->size[d])) return false;
    if (!first) first = v;
  }
  return true;
}

static bool check_stack(const Check *c) {
  const MgArg *l = mg_infer_arg(c->in, "tensors");
  const MgVal *first = NULL;
  if (l->tag != MA_list) return false;
  for (uint32_t i = 0; i < l->n; i++) {
    if (l->u.item[i].tag != MA_val) return false;
    const MgVal *v = mg_val(c->in->g, l->u.item[i].u.val);
    if (!first) first = v;
    if (v->ndim != first->ndim) return false;
    for (int d = 0; d < v->ndim; d++)
      if (!check_eq(c, v->size[d], first->size[d])) return false;
  }
  return true;
}

static bool check_layer_norm(const Check *c) {
  const MgVal *x = check_val(c, "input"), *w = check_val(c, "weight"), *b = check_val(c, "bias");
  MgDims shape;
  if (!x || mg_infer_sizes(c->in, mg_infer_arg(c->in, "normalized_shape"), &shape) != MG_OK) return false;
  if (shape.n < 1 || shape.n > x->ndim) return false;
  for (int i = 0; i < shape.n; i++)
    if (!check_eq(c, shape.d[i], x->size[x->ndim - shape.n + i])) return false;
  for (int k = 0; k < 2; k++) {
    const MgVal *p = k ? b : w;
    if (p && (p->ndim != shape.n || !check_broadcasts_to(c, p, shape.d, shape.n))) return false;
  }
  return true;
}

bool mg_check_batch_norm(const Check *c) {
  static const char *const per_channel[] = {"weight", "bias", "running_mean", "running_var"};
  const MgVal *x = check_val(c, "input");
  if (!x || x->ndim < 2) return false;
  for (int i = 0; i < 4; i++)
    if (!check_vector(c, check_val(c, per_channel[i]), x->size[1])) return false;
  return true;
}

static bool check_numel(const Check *c) {
  const MgVal *x = check_val(c, "self");
  MgDims to;
  if (!x || mg_infer_sizes(c->in, mg_infer_arg(c->in, "size"), &to) != MG_OK) return true; /* view by dtype */
  SymRef have = mg_infer_c(c->in, 1), want = have;
  int holes = 0;
  for (int i = 0; i < x->ndim; i++) have = mg_sym_mul(c->in->x, have, x->size[i]);
  for (int i = 0; i < to.n; i++) {
    if (mg_sym_is(c->in->x, to.d[i], -1)) holes++;
    else want = mg_sym_mul(c->in->x, want, to.d[i]);
  }
  if (!holes) return check_eq(c, have, want);
  if (holes > 1 || mg_infer_is(c->in, want, 0) == 1) return false;
  return mg_infer_is(c->in, mg_sym_mod(c->in->x, have, want), 0) != 0;
}

/* im2col and col2im, the plain case: everything but a batch is there, and col2im gets as
 * many columns as windows fit. */
static bool check_columns(const Check *c, const MgVal *self) {
  bool back = c->op->code == TOP_col2im;
  const MgArg *k = mg_infer_arg(c->in, "kernel_size"), *to = mg_infer_arg(c->in, "output_size");
  int64_t area = 1, part[4];
  SymRef count = mg_infer_c(c->in, 1);
  if (!self || self->ndim != (back ? 3 : 4) || !check_float(self)) return false;
  if (!check_at_least(c, "kernel_size", 1) || !check_at_least(c, "stride", 1) ||
      !check_at_least(c, "padding", 0) || !check_at_least(c, "dilation", 1))
    return false;
  for (int i = 1; i < self->ndim; i++)
    if (mg_infer_is(c->in, self->size[i], 0) == 1) return false;
  if (!back) return check_window(c, self, 2, NULL, k);
  if (to->tag != MA_list || to->n != 2 || !check_at_least(c, "output_size", 1)) return false;
  for (int i = 0; i < 2; i++) {
    static const char *const name[] = {"kernel_size", "dilation", "padding", "stride"};
    for (int j = 0; j < 4; j++)
      if (mg_infer_pick(c->in, mg_infer_arg(c->in, name[j]), i, j != 2, &part[j]) != MG_OK) return false;
    SymRef room = mg_sym_add(c->in->x, to->u.item[i].u.sym,
                             mg_infer_c(c->in, 2 * part[2] - part[1] * (part[0] - 1) - 1));
    SymRef fit = mg_sym_add(c->in->x, mg_sym_floordiv(c->in->x, room, mg_infer_c(c->in, part[3])),
                            mg_infer_c(c->in, 1));
    count = mg_sym_mul(c->in->x, count, fit);
    area *= part[0];
  }
  return check_divides(c, self->size[1], area) && check_eq(c, self->size[2], count);
}

bool mg_check_pow(const Check *c) {
  const MgVal *x = check_val(c, "self");
  return !x || check_float(x) || check_at_least(c, "exponent", 0);
}

static bool check_arange(const Check *c) {
  double start = 0, end, step = 1;
  check_number(c, "start", &start);
  check_number(c, "step", &step);
  if (!check_number(c, "end", &end)) return true;
  return isfinite(start) && isfinite(end) && step != 0 && (step > 0 ? end >= start : end <= start);
}

/* dim1 and dim2 are different dimensions of a tensor of n. */
static bool check_two_dims(const Check *c, const MgVal *self, int more) {
  int a = -1, b = -1;
  if (!self) return true;
  return mg_infer_dim(c->in, mg_infer_arg(c->in, "dim1"), self->ndim + more, &a) == MG_OK &&
         mg_infer_dim(c->in, mg_infer_arg(c->in, "dim2"), self->ndim + more, &b) == MG_OK && a != b;
}

static bool check_roll(const Check *c, const MgVal *self) {
  const MgArg *shifts = mg_infer_arg(c->in, "shifts"), *dims = mg_infer_arg(c->in, "dims");
  uint32_t nshift = shifts->tag == MA_list ? shifts->n : 1, ndim = dims->tag == MA_list ? dims->n : 1;
  int d;
  if (!self || !nshift || (ndim ? ndim != nshift || !self->ndim : nshift != 1)) return false;
  for (uint32_t i = 0; i < ndim && dims->tag == MA_list; i++)
    if (mg_infer_dim(c->in, &dims->u.item[i], self->ndim, &d) != MG_OK) return false;
  return true;
}

/* Sizes of a split add up to the dimension's. */
static bool check_split(const Check *c, const MgVal *self, const char *sizes) {
  MgDims part;
  int d = -1;
  if (!self || mg_infer_dim(c->in, mg_infer_arg(c->in, "dim"), self->ndim, &d) != MG_OK || d >= self->ndim)
    return false;
  if (mg_infer_sizes(c->in, mg_infer_arg(c->in, sizes), &part) != MG_OK || !check_at_least(c, sizes, 0))
    return false;
  SymRef sum = mg_infer_c(c->in, 0);
  for (int i = 0; i < part.n; i++) sum = mg_sym_add(c->in->x, sum, part.d[i]);
  return check_eq(c, sum, self->size[d]);
}

static bool check_gelu(const Check *c) {
  const MgArg *how = mg_infer_arg(c->in, "approximate");
  return how->tag != MA_str || !strcmp(how->u.str, "none") || !strcmp(how->u.str, "tanh");
}

/* Expanded to sizes where -1 keeps a dimension that is there. */
static bool check_expand(const Check *c, const MgVal *self) {
  MgDims to;
  if (!self || mg_infer_sizes(c->in, mg_infer_arg(c->in, "size"), &to) != MG_OK || self->ndim > to.n)
    return false;
  for (int i = 0; i < to.n; i++) {
    int from = i - (to.n - self->ndim);
    bool keep = mg_sym_is(c->in->x, to.d[i], -1);
    if (keep ? from < 0
             : from >= 0 && mg_infer_is(c->in, self->size[from], 1) != 1 &&
                   !check_eq(c, self->size[from], to.d[i]))
      return false;
  }
  return check_at_least(c, "size", -1);
}

bool mg_check_dims(const Check *c, const char *name) {
  const MgArg *dims = mg_infer_arg(c->in, name);
  const MgVal *self = check_val(c, "self");
  bool seen[MG_INFER_RANK] = {false};
  int d;
  if (!self || (dims->tag != MA_list && dims->tag != MA_int)) return true;
  if (dims->tag == MA_int) /* a new dimension's place is for its rule to judge */
    return c->op->code == TOP_unsqueeze || c->op->code == TOP_unsqueeze_copy ||
           mg_infer_dim(c->in, dims, self->ndim, &d) == MG_OK;
  for (uint32_t i = 0; i < dims->n; i++) {
    if (mg_infer_dim(c->in, &dims->u.item[i], self->ndim, &d) != MG_OK || (self->ndim && seen[d]))
      return false;
    seen[d] = true;
  }
  return true;
}

/* ---- the rule of each op ---- */

static bool rule_pool2d(const Check *c) { return check_pool(c, 2); }
static bool rule_pool3d(const Check *c) { return check_pool(c, 3); }
static bool rule_adaptive_pool(const Check *c) {
  return check_at_least(c, "output_size", 0) && check_nonempty(c);
}
static bool rule_columns(const Check *c) { return check_columns(c, check_val(c, "self")); }
static bool rule_gather(const Check *c) { return check_gather(c, false); }
static bool rule_scatter(const Check *c) { return check_gather(c, true); }
static bool rule_index_select(const Check *c) {
  const MgVal *index = check_val(c, "index");
  return check_index(index) && check_rank(index, 0, 1);
}
static bool rule_take(const Check *c) { return check_index(check_val(c, "index")); }
static bool rule_embedding(const Check *c) {
  return check_rank(check_val(c, "weight"), 2, 2) && check_index(check_val(c, "indices"));
}
static bool rule_index_put(const Check *c) {
  return check_dtypes(check_val(c, "self"), check_val(c, "values"));
}
static bool check_mask(const Check *c, const char *name) {
  const MgVal *mask = check_val(c, name);
  return !mask || mask->dtype == DT_bool;
}
static bool rule_masked_fill(const Check *c) {
  return check_mask(c, "mask") && check_rank(check_val(c, "value"), 0, 0);
}
static bool rule_masked_scatter(const Check *c) {
  return check_mask(c, "mask") && check_dtypes(check_val(c, "self"), check_val(c, "source"));
}
static bool rule_where(const Check *c) { /* uint8 is deprecated, and torch's meta kernel refuses it */
  const MgVal *condition = check_val(c, "condition");
  return check_mask(c, "condition") || condition->dtype == DT_u8;
}
static bool rule_triangle(const Check *c) { return check_rank(check_val(c, "self"), 2, MG_INFER_RANK); }
static bool rule_trace(const Check *c) { return check_rank(check_val(c, "self"), 2, 2); }
static bool rule_t(const Check *c) { return check_rank(check_val(c, "self"), 0, 2); }
static bool rule_neg(const Check *c) {
  const MgVal *self = check_val(c, "self");
  return !self || self->dtype != DT_bool;
}
static bool rule_sub(const Check *c) {
  const MgVal *self = check_val(c, "self"), *other = check_val(c, "other");
  return !self || !other || self->dtype != DT_bool || other->dtype != DT_bool;
}
static bool rule_expand(const Check *c) { return check_expand(c, check_val(c, "self")); }
static bool rule_expand_as(const Check *c) {
  const MgVal *self = check_val(c, "self"), *other = check_val(c, "other");
  return !self || !other || check_broadcasts_to(c, self, other->size, other->ndim);
}
static bool rule_copy(const Check *c) {
  const MgVal *self = check_val(c, "self");
  return !self || check_broadcasts_to(c, check_val(c, "src"), self->size, self->ndim);
}
static bool rule_bitwise(const Check *c) {
  const MgVal *self = check_val(c, "self"), *other = check_val(c, "other");
  return !self || (!check_float(self) && (!other || !check_float(other)));
}
static bool rule_shift(const Check *c) {
  const MgVal *self = check_val(c, "self");
  return !self || !check_float(self);
}
static bool rule_mean(const Check *c) {
  return mg_infer_arg(c->in, "dtype")->tag == MA_dtype || check_float(check_val(c, "self"));
}
static bool rule_variance(const Check *c) { return check_float(check_val(c, "self")); }
static bool rule_diagonal(const Check *c) { return check_two_dims(c, check_val(c, "self"), 0); }
static bool rule_diag_embed(const Check *c) { return check_two_dims(c, check_val(c, "self"), 1); }
static bool rule_roll(const Check *c) { return check_roll(c, check_val(c, "self")); }
static bool rule_split_with_sizes(const Check *c) {
  return check_split(c, check_val(c, "self"), "split_sizes");
}
static bool rule_split_sizes(const Check *c) { return check_split(c, check_val(c, "self"), "split_size"); }
static bool rule_softshrink(const Check *c) {
  double low;
  return check_number(c, "lambd", &low) && low >= 0;
}
static bool rule_soft_margin_loss(const Check *c) {
  const MgVal *self = check_val(c, "self");
  return !self || check_broadcasts_to(c, check_val(c, "target"), self->size, self->ndim);
}
static bool rule_huber_loss(const Check *c) {
  double low;
  return check_number(c, "delta", &low) && low > 0;
}
static bool rule_eye(const Check *c) { return check_at_least(c, "n", 0) && check_at_least(c, "m", 0); }

/* Ops without a row take what they are given. */
static const CheckRule check_rule[TOP__COUNT] = {
    [TOP_mm] = check_matmul,
    [TOP_addmm] = check_matmul,
    [TOP__addmm_activation] = check_matmul,
    [TOP_bmm] = check_matmul,
    [TOP_baddbmm] = check_matmul,
    [TOP_mv] = check_matmul,
    [TOP_addmv] = check_matmul,
    [TOP_dot] = check_matmul,
    [TOP_vdot] = check_matmul,
    [TOP__convolution] = mg_check_conv,
    [TOP_avg_pool2d] = rule_pool2d,
    [TOP_max_pool2d_with_indices] = rule_pool2d,
    [TOP_avg_pool3d] = rule_pool3d,
    [TOP_max_pool3d_with_indices] = rule_pool3d,
    [TOP_adaptive_max_pool2d] = rule_adaptive_pool,
    [TOP_adaptive_max_pool3d] = rule_adaptive_pool,
    [TOP__adaptive_avg_pool2d] = rule_adaptive_pool,
    [TOP__adaptive_avg_pool3d] = rule_adaptive_pool,
    [TOP__adaptive_avg_pool2d_backward] = check_nonempty,
    [TOP__adaptive_avg_pool3d_backward] = check_nonempty,
    [TOP_im2col] = rule_columns,
    [TOP_col2im] = rule_columns,
    [TOP_gather] = rule_gather,
    [TOP_scatter_src] = rule_scatter,
    [TOP_scatter_value] = rule_scatter,
    [TOP_scatter_reduce] = rule_scatter,
    [TOP_scatter_value_reduce] = rule_scatter,
    [TOP_scatter_add] = rule_scatter,
    [TOP_scatter_reduce_two] = rule_scatter,
    [TOP_index_select] = rule_index_select,
    [TOP_index_add] = check_slices,
    [TOP_index_copy] = check_slices,
    [TOP_take] = rule_take,
    [TOP_embedding] = rule_embedding,
    [TOP_index_put] = rule_index_put,
    [TOP__unsafe_index_put] = rule_index_put,
    [TOP__index_put_impl] = rule_index_put,
    [TOP_cat] = check_cat,
    [TOP_stack] = check_stack,
    [TOP_native_layer_norm] = check_layer_norm,
    [TOP_native_batch_norm] = mg_check_batch_norm,
    [TOP__native_batch_norm_legit] = mg_check_batch_norm,
    [TOP__native_batch_norm_legit_no_training] = mg_check_batch_norm,
    [TOP_view] = check_numel,
    [TOP__unsafe_view] = check_numel,
    [TOP_reshape] = check_numel,
    [TOP_view_copy] = check_numel,
    [TOP_masked_fill_Scalar] = rule_masked_fill,
    [TOP_masked_fill_Tensor] = rule_masked_fill,
    [TOP_masked_scatter] = rule_masked_scatter,
    [TOP_tril] = rule_triangle,
    [TOP_triu] = rule_triangle,
    [TOP_trace] = rule_trace,
    [TOP_t] = rule_t,
    [TOP_t_copy] = rule_t,
    [TOP_neg] = rule_neg,
    [TOP_sub_Tensor] = rule_sub,
    [TOP_expand] = rule_expand,
    [TOP_expand_copy] = rule_expand,
    [TOP_broadcast_to] = rule_expand,
    [TOP_expand_as] = rule_expand_as,
    [TOP_copy] = rule_copy,
    [TOP_bitwise_and_Tensor] = rule_bitwise,
    [TOP_bitwise_or_Tensor] = rule_bitwise,
    [TOP_bitwise_xor_Tensor] = rule_bitwise,
    [TOP_bitwise_not] = rule_bitwise,
    [TOP_bitwise_left_shift_Tensor] = rule_shift,
    [TOP_bitwise_left_shift_Tensor_Scalar] = rule_shift,
    [TOP_bitwise_right_shift_Tensor] = rule_shift,
    [TOP_bitwise_right_shift_Tensor_Scalar] = rule_shift,
    [TOP___lshift___Tensor] = rule_shift,
    [TOP___lshift___Scalar] = rule_shift,
    [TOP___rshift___Tensor] = rule_shift,
    [TOP___rshift___Scalar] = rule_shift,
    [TOP_pow_Tensor_Scalar] = mg_check_pow,
    [TOP_mean] = rule_mean,
    [TOP_mean_dim] = rule_mean,
    [TOP_var] = rule_variance,
    [TOP_var_dim] = rule_variance,
    [TOP_var_correction] = rule_variance,
    [TOP_std] = rule_variance,
    [TOP_std_dim] = rule_variance,
    [TOP_std_correction] = rule_variance,
    [TOP_arange] = check_arange,
    [TOP_arange_start] = check_arange,
    [TOP_arange_start_step] = check_arange,
    [TOP_diagonal] = rule_diagonal,
    [TOP_diag_embed] = rule_diag_embed,
    [TOP_roll] = rule_roll,
    [TOP_split_with_sizes] = rule_split_with_sizes,
    [TOP_unsafe_split_with_sizes] = rule_split_with_sizes,
    [TOP_split_with_sizes_copy] = rule_split_with_sizes,
    [TOP_split_sizes] = rule_split_sizes,
    [TOP_gelu] = check_gelu,
    [TOP_softshrink] = rule_softshrink,
    [TOP_soft_margin_loss] = rule_soft_margin_loss,
    [TOP_huber_loss] = rule_huber_loss,
    [TOP_amax] = check_nonempty,
    [TOP_amin] = check_nonempty,
    [TOP_aminmax] = check_nonempty,
    [TOP_argmax] = check_nonempty,
    [TOP_argmin] = check_nonempty,
    [TOP_max_dim] = check_nonempty,
    [TOP_min_dim] = check_nonempty,
    [TOP_linalg_vector_norm] = check_nonempty,
    [TOP_norm_Scalar] = check_nonempty,
    [TOP_norm_ScalarOpt_dim] = check_nonempty,
    [TOP_norm_ScalarOpt_dim_dtype] = check_nonempty,
    [TOP_norm_ScalarOpt_dtype] = check_nonempty,
    [TOP_replication_pad1d] = check_nonempty,
    [TOP_replication_pad2d] = check_nonempty,
    [TOP_replication_pad3d] = check_nonempty,
    [TOP_where_self] = rule_where,
    [TOP_eye] = rule_eye,
    [TOP_eye_m] = rule_eye,
};

/* Asks a question; an argument that could not even be read is a `failed`. */
static bool check_ask(MgInfer *in, CheckRule ask, bool failed) {
  const MgOp *twin = in->op->mutates ? mg_op_twin(in->op) : NULL;
  MgInfer as = *in;
  if (twin) as.op = twin;
  Check c = {&as, as.op};
  MgRc before = in->g->c->rc;
  bool answer = ask(&c);
  if (before || !in->g->c->rc) return answer;
  in->g->c->rc = MG_OK;
  return failed;
}

/* Ops with many rules, which torch knows. */
static bool check_known(const Check *c) {
  switch (c->op->code) {
  case TOP_index_reduce:
  case TOP_diagonal_copy:
  case TOP_diagonal_scatter:
  case TOP_as_strided_copy:
  case TOP_as_strided_scatter:
  case TOP_kthvalue:
  case TOP_bucketize_Tensor:
  case TOP_empty_permuted: return false;
  default: return true;
  }
}

static bool check_all(const Check *c) {
  CheckRule rule = check_rule[c->op->code];
  return (!rule || rule(c)) && mg_check_dims(c, "dim") &&
         (c->op->code != TOP_flip || mg_check_dims(c, "dims")) && !mg_check_refused(c);
}

bool mg_infer_plausible(MgInfer *in) {
  return check_ask(in, check_known, false) && check_ask(in, check_all, false);
}

bool mg_infer_kernel_refuses(MgGraph *g, NodeRef n) {
  MgInfer in = {.g = g, .x = g->x, .n = mg_node(g, n), .op = mg_node(g, n)->op};
  return check_ask(&in, mg_check_refused, true);
}

bool mg_infer_doubts(MgGraph *g, NodeRef n) {
  MgInfer in = {.g = g, .x = g->x, .n = mg_node(g, n), .op = mg_node(g, n)->op};
  return !check_ask(&in, check_all, false);
}
