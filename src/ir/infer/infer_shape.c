/* Results of concatenation, padding, repetition and the like. */
#include "ir/infer/infer.h"
#include <string.h>

#define ARG(name) mg_infer_arg(in, name)

/* ---- cat and stack ---- */

static MgDtype shape_list_dtype(const MgInfer *in, const MgArg *list) {
  const MgArg *item[64];
  MgDtype d = DT_none;
  for (uint32_t i = 0; i < list->n; i += 64) { /* promotion is associative over tensors of one kind */
    int n = list->n - i < 64 ? list->n - i : 64;
    for (int k = 0; k < n; k++) item[k] = &list->u.item[i + k];
    MgDtype part = mg_infer_result_type(in, item, n);
    d = d == DT_none ? part : mg_dtype_promote(d, part);
  }
  return d;
}

/* cat ignores 1-D empty tensors, whatever the shape of the others. */
static bool shape_skipped(MgInfer *in, ValRef v) {
  return mg_val(in->g, v)->ndim == 1 && mg_sym_is(in->x, mg_val(in->g, v)->size[0], 0);
}

MgRc mg_infer_cat(MgInfer *in) {
  const MgArg *list = mg_infer_arg(in, "tensors");
  MgDims size = {0};
  int d = 0, format = MF_contiguous;
  bool mixed = false;
  bool stack = in->op->code == TOP_stack, first = true;
  if (list->tag != MA_list || !list->n || in->op->code == TOP__chunk_cat) return MG_UNSUP;
  for (uint32_t i = 0; i < list->n; i++) {
    if (list->u.item[i].tag != MA_val) return MG_UNSUP;
    ValRef v = list->u.item[i].u.val;
    int f;
    if (stack) {
      TRY(mg_infer_dim(in, ARG("dim"), mg_val(in->g, v)->ndim + 1, &d));
      TRY(mg_infer_suggest(in, v, &f));
      if (f) return MG_UNSUP; /* strides depend on which of several paths ATen takes */
      TRY(mg_infer_suggest_unsqueezed(in, v, d, &f));
    } else {
      TRY(mg_infer_suggest(in, v, &f));
    }
    if (i == 0) format = f;
    mixed |= f != format; /* one common format, else contiguous */
    if (!stack && shape_skipped(in, v)) continue;
    if (first) {
      mg_infer_dims_of(in, v, &size);
      TRY(mg_infer_dim(in, ARG("dim"), size.n + stack, &d));
      first = false;
    } else if (!stack) {
      const MgVal *t = mg_val(in->g, v);
      if (t->ndim != size.n) return MG_UNSUP;
      size.d[d] = mg_sym_add(in->x, size.d[d], t->size[d]);
    }
  }
  if (stack) {
    memmove(size.d + d + 1, size.d + d, (size.n - d) * sizeof(SymRef));
    size.d[d] = mg_infer_c(in, list->n);
    size.n++;
  } else if (first) { /* all of them skipped */
    size.n = 1;
    size.d[0] = mg_infer_c(in, 0);
  }
  return mg_infer_format(in, 0, shape_list_dtype(in, list), &size, mixed ? MF_contiguous : format);
}

/* ---- padding ---- */

static MgRc shape_pad(MgInfer *in, ValRef v, const MgArg *pad, MgDims *size) {
  mg_infer_dims_of(in, v, size);
  if (pad->tag != MA_list || (int)pad->n / 2 > size->n) return MG_UNSUP;
  for (uint32_t i = 0; i + 1 < pad->n; i += 2) {
    SymRef *s = &size->d[size->n - 1 - i / 2];
    if (pad->u.item[i].tag != MA_int || pad->u.item[i + 1].tag != MA_int) return MG_UNSUP;
    *s = mg_sym_add(in->x, *s, mg_sym_add(in->x, pad->u.item[i].u.sym, pad->u.item[i + 1].u.sym));
  }
  return MG_OK;
}

/* Every pad is known to be zero or negative. */
static bool shape_crops(MgInfer *in, const MgArg *pad) {
  int64_t n;
  for (uint32_t i = 0; i < pad->n; i++)
    if (!mg_ex_const_int(in->x, pad->u.item[i].u.sym, &n) || n > 0) return false;
  return true;
}

/* The format of what moves or repeats elements: kernels of other devices than the CPU give contiguous
 * results. */
static MgRc shape_moved_format(MgInfer *in, ValRef v, int *format) {
  *format = MF_contiguous;
  return mg_val(in->g, v)->device == DEV_cpu ? mg_infer_suggest(in, v, format) : MG_OK;
}

static MgRc shape_padded(MgInfer *in, ValRef v) {
  MgDims size;
  int format = MF_contiguous;
  const MgArg *pad = ARG(in->op->code == TOP_constant_pad_nd ? "pad" : "padding");
  TRY(shape_pad(in, v, pad, &size));
  MgDtype d = mg_val(in->g, v)->dtype;
  if (in->op->code == TOP_constant_pad_nd && shape_crops(in, pad)) { /* a clone of what is left */
    MgVal left = *mg_val(in->g, v);
    left.size = size.d;
    return mg_infer_like_val(in, 0, d, &left);
  }
  switch (in->op->code) {
  case TOP_constant_pad_nd:
  case TOP_reflection_pad2d:
  case TOP_reflection_pad3d:
    TRY(mg_infer_suggest(in, v, &format));
    return mg_infer_format(in, 0, d, &size, format);
  case TOP_replication_pad2d:
  case TOP_replication_pad3d:
    TRY(shape_moved_format(in, v, &format));
    return mg_infer_format(in, 0, d, &size, format);
  default: return mg_infer_out(in, 0, d, &size, NULL);
  }
}

/* ---- the rest ---- */

static MgRc shape_repeat(MgInfer *in, ValRef v, bool tile) {
  MgDims size, rep;
  mg_infer_dims_of(in, v, &size);
  TRY(mg_infer_sizes(in, ARG(tile ? "dims" : "repeats"), &rep));
  MgDims out = {.n = rep.n > size.n ? rep.n : size.n};
  if (!tile && rep.n < size.n) return MG_UNSUP;
  for (int i = 0; i < out.n; i++) {
    SymRef a = i >= out.n - size.n ? size.d[i - (out.n - size.n)] : mg_infer_c(in, 1);
    SymRef b = i >= out.n - rep.n ? rep.d[i - (out.n - rep.n)] : mg_infer_c(in, 1);
    out.d[i] = mg_sym_mul(in->x, a, b);
  }
  return mg_infer_out(in, 0, mg_val(in->g, v)->dtype, &out, NULL);
}

static MgRc shape_diag_embed(MgInfer *in, ValRef v) {
  MgDims size, out = {0};
  int64_t off;
  int a, b;
  mg_infer_dims_of(in, v, &size);
  TRY(mg_infer_int(in, ARG("offset"), &off));
  TRY(mg_infer_dim(in, ARG("dim1"), size.n + 1, &a));
  TRY(mg_infer_dim(in, ARG("dim2"), size.n + 1, &b));
  SymRef n = mg_sym_add(in->x, size.d[size.n - 1], mg_infer_c(in, off < 0 ? -off : off));
  out.n = size.n + 1;
  for (int i = 0, k = 0; i < out.n; i++) out.d[i] = i == a || i == b ? n : size.d[k++];
  return mg_infer_out(in, 0, mg_val(in->g, v)->dtype, &out, NULL);
}

static MgRc shape_repeat_interleave(MgInfer *in, ValRef v) {
  MgDims size;
  int d = 0;
  if (in->op->code != TOP_repeat_interleave_self_int || ARG("repeats")->tag != MA_int) return MG_UNSUP;
  mg_infer_dims_of(in, v, &size);
  if (ARG("dim")->tag == MA_none) {
    size.n = 1;
    size.d[0] = mg_val_numel(in->g, v);
  } else {
    TRY(mg_infer_dim(in, ARG("dim"), size.n, &d));
    if (!size.n) return MG_UNSUP;
  }
  size.d[d] = mg_sym_mul(in->x, size.d[d], ARG("repeats")->u.sym);
  return mg_infer_out(in, 0, mg_val(in->g, v)->dtype, &size, NULL);
}

/* pixel_shuffle and its inverse: [.., C r^2, H, W] <-> [.., C, H r, W r]. */
static MgRc shape_pixels(MgInfer *in, ValRef v, bool up) {
  MgDims size;
  int64_t r;
  int format;
  mg_infer_dims_of(in, v, &size);
  TRY(mg_infer_int(in, ARG(up ? "upscale_factor" : "downscale_factor"), &r));
  if (size.n < 3 || r < 1 || mg_infer_is(in, mg_val_numel(in->g, v), 0) != 0) return MG_UNSUP;
  SymRef *c = &size.d[size.n - 3], k = mg_infer_c(in, r), kk = mg_infer_c(in, r * r);
  *c = up ? mg_sym_floordiv(in->x, *c, kk) : mg_sym_mul(in->x, *c, kk);
  for (int i = size.n - 2; i < size.n; i++)
    size.d[i] = up ? mg_sym_mul(in->x, size.d[i], k) : mg_sym_floordiv(in->x, size.d[i], k);
  TRY(shape_moved_format(in, v, &format));
  return mg_infer_format(in, 0, mg_val(in->g, v)->dtype, &size, format);
}

/* How many windows of im2col and col2im fit into a plane of these sizes. */
static MgRc shape_windows(MgInfer *in, const SymRef *plane, SymRef *count, int64_t *area) {
  *count = mg_infer_c(in, 1);
  *area = 1;
  for (int i = 0; i < 2; i++) {
    int64_t kernel, dilation, padding, stride;
    TRY(mg_infer_pick(in, ARG("kernel_size"), i, 1, &kernel));
    TRY(mg_infer_pick(in, ARG("dilation"), i, 1, &dilation));
    TRY(mg_infer_pick(in, ARG("padding"), i, 0, &padding));
    TRY(mg_infer_pick(in, ARG("stride"), i, 1, &stride));
    if (stride < 1) return MG_UNSUP;
    SymRef room = mg_sym_add(in->x, plane[i], mg_infer_c(in, 2 * padding - dilation * (kernel - 1) - 1));
    SymRef fit = mg_sym_add(in->x, mg_sym_floordiv(in->x, room, mg_infer_c(in, stride)), mg_infer_c(in, 1));
    *count = mg_sym_mul(in->x, *count, fit);
    *area *= kernel;
  }
  return MG_OK;
}

/* [N, C, H, W] -> [N, C area, windows]; the batch may be missing. */
static MgRc shape_im2col(MgInfer *in, ValRef v) {
  MgDims size;
  SymRef count;
  int64_t area;
  mg_infer_dims_of(in, v, &size);
  if (size.n < 3 || size.n > 4) return MG_UNSUP;
  TRY(shape_windows(in, size.d + size.n - 2, &count, &area));
  size.n--;
  size.d[size.n - 2] = mg_sym_mul(in->x, size.d[size.n - 2], mg_infer_c(in, area));
  size.d[size.n - 1] = count;
  return mg_infer_out(in, 0, mg_val(in->g, v)->dtype, &size, NULL);
}

/* [N, C area, windows] -> [N, C, H, W], contiguous, unlike what the meta kernel says */
static MgRc shape_col2im(MgInfer *in, ValRef v) {
  MgDims size, plane;
  SymRef count;
  int64_t area;
  mg_infer_dims_of(in, v, &size);
  TRY(mg_infer_sizes(in, ARG("output_size"), &plane));
  if (size.n < 2 || size.n > 3 || plane.n != 2) return MG_UNSUP;
  TRY(shape_windows(in, plane.d, &count, &area));
  if (area < 1) return MG_UNSUP;
  size.d[size.n - 2] = mg_sym_floordiv(in->x, size.d[size.n - 2], mg_infer_c(in, area));
  memcpy(size.d + size.n - 1, plane.d, sizeof *plane.d * 2);
  size.n++;
  return mg_infer_out(in, 0, mg_val(in->g, v)->dtype, &size, NULL);
}

static MgRc shape_channel_shuffle(MgInfer *in, ValRef v, const MgDims *size) {
  int format;
  int64_t groups, channels;
  if (size->n < 3 || mg_infer_is(in, mg_val_numel(in->g, v), 0)) return MG_UNSUP; /* of no elements: a view */
  TRY(mg_infer_int(in, ARG("groups"), &groups));
  if (groups < 1 || !mg_ex_const_int(in->x, size->d[1], &channels) || channels % groups) return MG_UNSUP;
  TRY(shape_moved_format(in, v, &format));
  return mg_infer_format(in, 0, mg_val(in->g, v)->dtype, size, format);
}

/* Is what eager joins of two pieces for each dimension channels last in each step?  Pieces of one element may
 * look otherwise than the whole. */
static MgRc shape_rolled_format(MgInfer *in, MgVal t, const MgDims *shift, int *format) {
  MgDims size = {.n = t.ndim}, stride, whole = {.n = t.ndim};
  memcpy(whole.d, t.size, t.ndim * sizeof *t.size);
  for (int i = 0; i < shift->n; i++) {
    int d, f;
    const MgArg *dims = ARG("dims");
    TRY(mg_infer_dim(in, dims->tag == MA_list ? &dims->u.item[i] : dims, t.ndim, &d));
    SymRef start = mg_sym_mod(in->x, mg_sym_sub(in->x, mg_infer_c(in, 0), shift->d[i]), whole.d[d]);
    for (int k = 0; k < 2; k++) {
      size = whole;
      size.d[d] = k ? start : mg_sym_sub(in->x, whole.d[d], start);
      t.size = size.d;
      TRY(mg_infer_suggest_val(in, &t, &f));
      if (f != *format) return *format = MF_contiguous, MG_OK;
    }
    if (!mg_infer_format_strides(in, &whole, *format, &stride)) return MG_UNSUP;
    t.stride = stride.d;
  }
  return MG_OK;
}

static MgRc shape_roll(MgInfer *in, ValRef v, const MgDims *size) {
  const MgVal *t = mg_val(in->g, v);
  const MgArg *dims = ARG("dims");
  int format = MF_contiguous;
  MgDims shift;
  bool flat = dims->tag == MA_none || (dims->tag == MA_list && !dims->n);
  if (!flat && mg_infer_is(in, mg_val_numel(in->g, v), 0) == 1) return mg_infer_like(in, 0, t->dtype, v);
  if (!flat && t->device == DEV_cpu) TRY(mg_infer_suggest(in, v, &format));
  if (format) {
    TRY(mg_infer_sizes(in, ARG("shifts"), &shift));
    TRY(shape_rolled_format(in, *t, &shift, &format));
  }
  return mg_infer_format(in, 0, t->dtype, size, format);
}

MgRc mg_infer_shape(MgInfer *in) {
  ValRef v = mg_infer_first(in);
  MgDims size;
  if (!v) return MG_UNSUP;
  MgDtype d = mg_val(in->g, v)->dtype;
  mg_infer_dims_of(in, v, &size);
  switch (in->op->code) {
  case TOP_constant_pad_nd:
  case TOP_reflection_pad1d:
  case TOP_reflection_pad2d:
  case TOP_reflection_pad3d:
  case TOP_replication_pad1d:
  case TOP_replication_pad2d:
  case TOP_replication_pad3d: return shape_padded(in, v);
  case TOP_repeat: return shape_repeat(in, v, false);
  case TOP_tile: return shape_repeat(in, v, true);
  case TOP_channel_shuffle:
  case TOP_native_channel_shuffle: return shape_channel_shuffle(in, v, &size);
  case TOP_flip: return mg_infer_like(in, 0, d, v);
  case TOP_roll: return shape_roll(in, v, &size);
  case TOP_tril:
  case TOP_triu: return mg_infer_out(in, 0, d, &size, NULL);
  case TOP_diag_embed: return size.n ? shape_diag_embed(in, v) : MG_UNSUP;
  case TOP_repeat_interleave_self_int: return shape_repeat_interleave(in, v);
  case TOP_im2col: return shape_im2col(in, v);
  case TOP_col2im: return shape_col2im(in, v);
  case TOP_pixel_shuffle: return shape_pixels(in, v, true);
  case TOP_pixel_unshuffle: return shape_pixels(in, v, false);
  case TOP_trace:
    size.n = 0;
    return mg_infer_out(in, 0, mg_dtype_is_int(d) || d == DT_bool ? DT_i64 : d, &size, NULL);
  case TOP_reflection_pad1d_backward:
  case TOP_replication_pad1d_backward:
    mg_infer_dims_of(in, mg_infer_tensor(in, "self"), &size);
    return mg_infer_out(in, 0, d, &size, NULL);
  case TOP_reflection_pad2d_backward:
  case TOP_replication_pad2d_backward: {
    int format;
    ValRef self = mg_infer_tensor(in, "self");
    TRY(mg_infer_suggest(in, self, &format));
    mg_infer_dims_of(in, self, &size);
    return mg_infer_format(in, 0, d, &size, format);
  }
  case TOP_one_hot: {
    int64_t n;
    TRY(mg_infer_int(in, ARG("num_classes"), &n));
    if (n < 1) return MG_UNSUP;
    size.d[size.n++] = mg_infer_c(in, n);
    return mg_infer_out(in, 0, d, &size, NULL);
  }
  default: return MG_UNSUP;
  }
}
