/* What torch would refuse.
 * In: a node before inference.  Out: whether its arguments are plausible; if not, the caller asks torch's own
 * meta
 * kernel, which raises the error that users know, or accepts what was doubted here.  Only facts of metadata
 * that a kernel relies on are looked at: a graph that passes may be compiled
 * without any check at run time. */
#include "ir/infer/infer.h"
#include <math.h>
#include <string.h>

typedef struct Check { /* the node under the op whose rules apply: an in-place op is checked as its twin */
  MgInfer *in;
  const MgOp *op;
} Check;

static const MgVal *check_val(const Check *c, const char *name) {
  for (int i = 0; i < c->op->nparam && i < c->in->n->narg; i++)
    if (!strcmp(c->op->param[i].name, name)) {
      ValRef v = mg_infer_tensor(c->in, i);
      return v ? mg_val(c->in->g, v) : NULL;
    }
  return NULL;
}

/* Absent tensors are for the rule to judge. */
static bool check_rank(const MgVal *v, int lo, int hi) { return !v || (v->ndim >= lo && v->ndim <= hi); }
static bool check_dtypes(const MgVal *a, const MgVal *b) { return !a || !b || a->dtype == b->dtype; }
static bool check_index(const MgVal *v) { return !v || v->dtype == DT_i64 || v->dtype == DT_i32; }
static bool check_eq(const Check *c, SymRef a, SymRef b) { return mg_infer_eq(c->in, a, b) != 0; }
static bool check_float(const MgVal *v) {
  return !v || mg_dtype_is_float(v->dtype) || mg_dtype_is_complex(v->dtype);
}

static bool check_vector(const Check *c, const MgVal *v, SymRef n) {
  return !v || (v->ndim == 1 && check_eq(c, v->size[0], n));
}

/* Every integer of a list argument is at least lo. */
static bool check_at_least(const Check *c, const char *name, int64_t lo) {
  const MgArg *a = mg_infer_arg(c->in, name);
  const MgArg *item = a->tag == MA_list ? a->u.item : a;
  uint32_t n = a->tag == MA_list ? a->n : 1;
  int64_t v;
  for (uint32_t i = 0; i < n; i++)
    if (item[i].tag == MA_int && mg_ex_const_int(c->in->x, item[i].u.sym, &v) && v < lo) return false;
  return true;
}

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

/* Sizes that depend on data are not asked about. */
static bool check_late(const Check *c, SymRef e) {
  const MgSizeAsk *ask = c->in->x->ask;
  return ask && ask->late && ask->late(ask->of, e);
}

/* Is size below n? */
static bool check_less(const Check *c, SymRef size, SymRef n) {
  if (check_late(c, size) || check_late(c, n)) return false;
  return mg_infer_less(c->in, size, n) == 1;
}

static bool check_divides(const Check *c, SymRef size, int64_t by) {
  return by > 0 && (check_late(c, size) ||
                    mg_infer_is(c->in, mg_sym_mod(c->in->x, size, mg_infer_c(c->in, by)), 0) != 0);
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

static bool check_conv(const Check *c) {
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

static bool check_batch_norm(const Check *c) {
  static const char *const per_channel[] = {"weight", "bias", "running_mean", "running_var"};
  const MgVal *x = check_val(c, "input");
  if (!x || x->ndim < 2) return false;
  for (int i = 0; i < 4; i++)
    if (!check_vector(c, check_val(c, per_channel[i]), x->size[1])) return false;
  return true;
}

/* Dense in the memory format that its strides suggest: ATen refuses other memory. */
static bool check_laid_out(const Check *c, ValRef v) {
  int format;
  return !v || mg_infer_suggest(c->in, v, &format) || mg_infer_contiguous(c->in, v, format);
}

static bool check_group_norm(const Check *c) {
  const MgArg *channels = mg_infer_arg(c->in, "C");
  if (!check_laid_out(c, mg_infer_tensor(c->in, 0))) return false;
  return channels->tag == MA_int && check_vector(c, check_val(c, "weight"), channels->u.sym) &&
         check_vector(c, check_val(c, "bias"), channels->u.sym);
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

static bool check_nonempty(const Check *c) {
  const MgVal *x = check_val(c, "self");
  for (int i = 0; x && i < x->ndim; i++)
    if (mg_infer_is(c->in, x->size[i], 0) == 1) return false;
  return true;
}

static bool check_unfold(const Check *c, const MgVal *self) {
  const MgArg *size = mg_infer_arg(c->in, "size");
  int d = 0;
  if (!self || !self->ndim || size->tag != MA_int ||
      mg_infer_dim(c->in, mg_infer_arg(c->in, "dimension"), self->ndim, &d) != MG_OK)
    return false;
  return check_at_least(c, "size", 0) && check_at_least(c, "step", 1) &&
         !check_less(c, self->size[d], size->u.sym);
}

/* What is mirrored is there: padding, last dimension first, is smaller than the size. */
static bool check_reflection(const Check *c, const MgVal *self) {
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
static bool check_resampling(const Check *c, const MgVal *self) {
  const MgArg *scale = mg_infer_arg(c->in, "scale_factors");
  int64_t n;
  if (!check_nonempty(c) || !check_at_least(c, "output_size", 1)) return false;
  for (uint32_t i = 0; self && scale->tag == MA_list && i < scale->n; i++)
    if (scale->u.item[i].tag == MA_float && (int)i + 2 < self->ndim &&
        mg_ex_const_int(c->in->x, self->size[2 + i], &n) && (double)n * scale->u.item[i].u.f < 1)
      return false;
  return true;
}

static bool check_pixels(const Check *c, const MgVal *self) {
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

static bool check_as_many(const Check *c, const char *one, const char *other) {
  ValRef a = mg_infer_tensor(c->in, mg_infer_find(c->in, one)),
         b = mg_infer_tensor(c->in, mg_infer_find(c->in, other));
  return !a || !b || check_eq(c, mg_val_numel(c->in->g, a), mg_val_numel(c->in->g, b));
}

static bool check_topk(const Check *c, const MgVal *self) {
  const MgArg *k = mg_infer_arg(c->in, "k");
  int d = 0;
  if (!self || !self->ndim || k->tag != MA_int ||
      mg_infer_dim(c->in, mg_infer_arg(c->in, "dim"), self->ndim, &d) != MG_OK)
    return true;
  return check_at_least(c, "k", 0) && !check_less(c, self->size[d], k->u.sym);
}

static bool check_pow(const Check *c) {
  const MgVal *x = check_val(c, "self");
  return !x || check_float(x) || check_at_least(c, "exponent", 0);
}

/* A constant number argument; false when it is none. */
static bool check_number(const Check *c, const char *name, double *v) {
  const MgArg *a = mg_infer_arg(c->in, name);
  int64_t i;
  if (a->tag == MA_float) return *v = a->u.f, true;
  if (a->tag != MA_int || !mg_ex_const_int(c->in->x, a->u.sym, &i)) return false;
  return *v = (double)i, true;
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

/* The sizes of a and b broadcast with each other. */
static bool check_broadcast(const Check *c, const MgVal *a, const MgVal *b) {
  for (int i = 1; a && b && i <= a->ndim && i <= b->ndim; i++) {
    SymRef p = a->size[a->ndim - i], q = b->size[b->ndim - i];
    if (mg_infer_is(c->in, p, 1) != 1 && mg_infer_is(c->in, q, 1) != 1 && !check_eq(c, p, q)) return false;
  }
  return true;
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

static bool check_op(const Check *c) {
  const MgVal *self = check_val(c, "self"), *other = check_val(c, "other"), *mask;
  double low;
  switch (c->op->code) {
  case TOP_mm:
  case TOP_addmm:
  case TOP__addmm_activation:
  case TOP_bmm:
  case TOP_baddbmm:
  case TOP_mv:
  case TOP_addmv:
  case TOP_dot:
  case TOP_vdot: return check_matmul(c);
  case TOP__convolution: return check_conv(c); /* convolution: below */
  case TOP_avg_pool2d:
  case TOP_max_pool2d_with_indices: return check_pool(c, 2);
  case TOP_avg_pool3d:
  case TOP_max_pool3d_with_indices: return check_pool(c, 3);
  case TOP_adaptive_max_pool2d:
  case TOP_adaptive_max_pool3d:
  case TOP__adaptive_avg_pool2d:
  case TOP__adaptive_avg_pool3d: return check_at_least(c, "output_size", 0) && check_nonempty(c);
  case TOP__adaptive_avg_pool2d_backward:
  case TOP__adaptive_avg_pool3d_backward: return check_nonempty(c);
  case TOP_im2col:
  case TOP_col2im: return check_columns(c, self);
  case TOP_gather: return check_gather(c, false);
  case TOP_scatter_src:
  case TOP_scatter_value:
  case TOP_scatter_reduce:
  case TOP_scatter_value_reduce:
  case TOP_scatter_add:
  case TOP_scatter_reduce_two: return check_gather(c, true);
  case TOP_index_select: return check_index(check_val(c, "index")) && check_rank(check_val(c, "index"), 0, 1);
  case TOP_index_add:
  case TOP_index_copy: return check_slices(c);
  case TOP_take: return check_index(check_val(c, "index"));
  case TOP_embedding: return check_rank(check_val(c, "weight"), 2, 2) && check_index(check_val(c, "indices"));
  case TOP_index_put:
  case TOP__unsafe_index_put:
  case TOP__index_put_impl: return check_dtypes(self, check_val(c, "values"));
  case TOP_cat: return check_cat(c);
  case TOP_stack: return check_stack(c);
  case TOP_native_layer_norm: return check_layer_norm(c);
  case TOP_native_batch_norm:
  case TOP__native_batch_norm_legit:
  case TOP__native_batch_norm_legit_no_training: return check_batch_norm(c);
  case TOP_view:
  case TOP__unsafe_view:
  case TOP_reshape:
  case TOP_view_copy: return check_numel(c);
  case TOP_masked_fill_Scalar:
  case TOP_masked_fill_Tensor:
  case TOP_masked_scatter:
    mask = check_val(c, "mask");
    return (!mask || mask->dtype == DT_bool) &&
           (c->op->code == TOP_masked_scatter ? check_dtypes(self, check_val(c, "source"))
                                              : check_rank(check_val(c, "value"), 0, 0));
  case TOP_tril:
  case TOP_triu: return check_rank(self, 2, MG_INFER_RANK);
  case TOP_trace: return check_rank(self, 2, 2);
  case TOP_t:
  case TOP_t_copy: return check_rank(self, 0, 2);
  case TOP_neg: return !self || self->dtype != DT_bool;
  case TOP_sub_Tensor: return !self || !other || self->dtype != DT_bool || other->dtype != DT_bool;
  case TOP_expand:
  case TOP_expand_copy:
  case TOP_broadcast_to: return check_expand(c, self);
  case TOP_expand_as: return !self || !other || check_broadcasts_to(c, self, other->size, other->ndim);
  case TOP_copy: return !self || check_broadcasts_to(c, check_val(c, "src"), self->size, self->ndim);
  case TOP_bitwise_and_Tensor:
  case TOP_bitwise_or_Tensor:
  case TOP_bitwise_xor_Tensor:
  case TOP_bitwise_not: return !self || (!check_float(self) && (!other || !check_float(other)));
  case TOP_bitwise_left_shift_Tensor:
  case TOP_bitwise_left_shift_Tensor_Scalar:
  case TOP_bitwise_right_shift_Tensor:
  case TOP_bitwise_right_shift_Tensor_Scalar:
  case TOP___lshift___Tensor:
  case TOP___lshift___Scalar:
  case TOP___rshift___Tensor:
  case TOP___rshift___Scalar: return !self || !check_float(self);
  case TOP_pow_Tensor_Scalar: return check_pow(c);
  case TOP_mean:
  case TOP_mean_dim: return mg_infer_arg(c->in, "dtype")->tag == MA_dtype || check_float(self);
  case TOP_var:
  case TOP_var_dim:
  case TOP_var_correction:
  case TOP_std:
  case TOP_std_dim:
  case TOP_std_correction: return check_float(self);
  case TOP_arange:
  case TOP_arange_start:
  case TOP_arange_start_step: return check_arange(c);
  case TOP_diagonal: return check_two_dims(c, self, 0);
  case TOP_diag_embed: return check_two_dims(c, self, 1);
  case TOP_roll: return check_roll(c, self);
  case TOP_split_with_sizes:
  case TOP_unsafe_split_with_sizes:
  case TOP_split_with_sizes_copy: return check_split(c, self, "split_sizes");
  case TOP_split_sizes: return check_split(c, self, "split_size");
  case TOP_gelu: return check_gelu(c);
  case TOP_softshrink: return check_number(c, "lambd", &low) && low >= 0;
  case TOP_soft_margin_loss: return check_broadcast(c, self, check_val(c, "target"));
  case TOP_huber_loss: return check_number(c, "delta", &low) && low > 0;
  case TOP_amax:
  case TOP_amin:
  case TOP_aminmax:
  case TOP_argmax:
  case TOP_argmin:
  case TOP_max_dim:
  case TOP_min_dim:
  case TOP_linalg_vector_norm:
  case TOP_norm_Scalar:
  case TOP_norm_ScalarOpt_dim:
  case TOP_norm_ScalarOpt_dim_dtype:
  case TOP_norm_ScalarOpt_dtype:
  case TOP_replication_pad1d:
  case TOP_replication_pad2d:
  case TOP_replication_pad3d: return check_nonempty(c);
  case TOP_where_self: mask = check_val(c, "condition"); return !mask || mask->dtype == DT_bool;
  case TOP_eye:
  case TOP_eye_m: return check_at_least(c, "n", 0) && check_at_least(c, "m", 0);
  default: return true;
  }
}

/* Dimensions exist, and none is named twice. */
static bool check_dims(const Check *c, const char *name) {
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

/* Padding of a transposed convolution's result that is neither below the stride nor below the dilation. */
static bool check_output_padding(const Check *c) {
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
static bool check_draw(const Check *c) {
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
static bool check_barebones(const Check *c) {
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

/* What the kernels refuse although meta kernels may accept it. */
static bool check_refused(const Check *c) {
  const MgVal *self = check_val(c, "self"), *w = check_val(c, "weight");
  double beta;
  int dim;
  if (check_barebones(c)) return true;
  if (!check_dims(c, "dim")) return true;
  switch (c->op->code) {
  case TOP_add_Tensor:
  case TOP_add_Scalar: return !check_alpha(c, self, check_val(c, "other"));
  case TOP_sub_Tensor:
  case TOP_sub_Scalar:
  case TOP_rsub_Tensor:
  case TOP_rsub_Scalar: return !check_truth(c, self, "other") || !check_alpha(c, self, check_val(c, "other"));
  case TOP_max:
  case TOP_min:
  case TOP__adaptive_avg_pool2d:
  case TOP__adaptive_avg_pool3d: return !check_nonempty(c);
  case TOP_index_select: return !check_nonempty(c) || !check_rank(check_val(c, "index"), 0, 1);
  case TOP_max_dim:
  case TOP_min_dim: /* other sizes may be 0 */
    return self && self->ndim && mg_infer_dim(c->in, mg_infer_arg(c->in, "dim"), self->ndim, &dim) == MG_OK &&
           mg_infer_is(c->in, self->size[dim], 0) == 1;
  case TOP_native_batch_norm:
  case TOP__native_batch_norm_legit:
  case TOP__native_batch_norm_legit_functional:
    return !check_batch_norm(c); /* takes longer statistics, whose end it leaves alone */
  case TOP_native_group_norm: return !check_group_norm(c);
  case TOP_embedding: return w && w->ndim && mg_infer_is(c->in, w->size[0], 0) == 1;
  case TOP_convolution:
    return (mg_infer_flag(c->in, "transposed") && check_output_padding(c)) || !check_conv(c);
  case TOP_pow_Tensor_Scalar: return !check_pow(c);
  case TOP_slice_scatter:
  case TOP_select_scatter:
  case TOP_diagonal_scatter: return mg_infer_scatter_fits(c->in) != MG_OK;
  case TOP_reflection_pad1d:
  case TOP_reflection_pad2d:
  case TOP_reflection_pad3d: return !check_reflection(c, self);
  case TOP_upsample_nearest1d:
  case TOP_upsample_nearest2d:
  case TOP_upsample_nearest3d:
  case TOP_upsample_linear1d:
  case TOP_upsample_bilinear2d:
  case TOP_upsample_bicubic2d:
  case TOP_upsample_trilinear3d:
  case TOP__upsample_nearest_exact1d:
  case TOP__upsample_nearest_exact2d:
  case TOP__upsample_nearest_exact3d:
  case TOP__upsample_bilinear2d_aa:
  case TOP__upsample_bicubic2d_aa: return !check_resampling(c, self);
  case TOP_unfold:
  case TOP_unfold_copy: return !check_unfold(c, self);
  case TOP_pixel_shuffle:
  case TOP_pixel_unshuffle: return !check_pixels(c, self);
  case TOP_fill_Tensor: return !check_rank(check_val(c, "value"), 0, 0);
  case TOP_clamp:
    return mg_infer_arg(c->in, "min")->tag == MA_none && mg_infer_arg(c->in, "max")->tag == MA_none;
  case TOP_tril_indices:
  case TOP_triu_indices: return !check_at_least(c, "row", 0) || !check_at_least(c, "col", 0);
  case TOP_clamp_Tensor: return !check_val(c, "min") && !check_val(c, "max");
  case TOP_topk: return !check_topk(c, self);
  case TOP_put: return !check_as_many(c, "source", "index");
  case TOP_cumsum:
  case TOP_cumprod: return c->in->n->op->mutates && self && self->dtype == DT_bool;
  case TOP_randint:
  case TOP_randint_low:
  case TOP_randint_generator:
  case TOP_randint_low_generator:
  case TOP_uniform:
  case TOP_random_from:
  case TOP_random_to:
  case TOP_randint_like:
  case TOP_randint_like_low_dtype:
  case TOP_normal_functional:
  case TOP_log_normal:
  case TOP_cauchy:
  case TOP_exponential:
  case TOP_geometric:
  case TOP_bernoulli_p: return check_draw(c);
  case TOP_nll_loss_forward:
  case TOP_nll_loss2d_forward: return !check_class_weight(c, self, w);
  case TOP_smooth_l1_loss: return check_number(c, "beta", &beta) && beta < 0;
  case TOP_addcdiv: return !check_float(check_val(c, "tensor1")) && !check_float(check_val(c, "tensor2"));
  case TOP_lerp_Tensor: return !check_dtypes(self, w);
  case TOP_heaviside: return !check_dtypes(self, check_val(c, "values"));
  case TOP_index_add:
  case TOP_index_copy: return !check_dtypes(self, check_val(c, "source"));
  default: return false;
  }
}

/* Asks a question; an argument that could not even be read is a `failed`. */
static bool check_ask(MgInfer *in, bool (*ask)(const Check *), bool failed) {
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
  return check_op(c) && check_dims(c, "dim") && (c->op->code != TOP_flip || check_dims(c, "dims")) &&
         !check_refused(c);
}

bool mg_infer_plausible(MgInfer *in) {
  return check_ask(in, check_known, false) && check_ask(in, check_all, false);
}

bool mg_infer_kernel_refuses(MgGraph *g, NodeRef n) {
  MgInfer in = {.g = g, .x = g->x, .n = mg_node(g, n), .op = mg_node(g, n)->op};
  return check_ask(&in, check_refused, true);
}

bool mg_infer_doubts(MgGraph *g, NodeRef n) {
  MgInfer in = {.g = g, .x = g->x, .n = mg_node(g, n), .op = mg_node(g, n)->op};
  return !check_ask(&in, check_all, false);
}
