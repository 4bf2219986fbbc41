/* Strides of results: TensorIterator's rule for elementwise ops, memory formats, empty_like's
 * preserve_format. The order of the checks follows ATen (TensorIterator.cpp, MemoryFormat.h, TensorImpl.cpp);
 * where a comparison of symbolic sizes is open, the rule gives up with MG_UNSUP. */
#include "ir/infer/infer.h"
#include <string.h>

static int iter_contiguous(MgInfer *in, const MgVal *t, int format) {
  static const int8_t order2[] = {1, 3, 2, 0}, order3[] = {1, 4, 3, 2, 0};
  if (format == MF_contiguous) {
    for (int i = 0; i < t->ndim; i++) {
      int z = mg_infer_is(in, t->size[i], 0);
      if (z) return z;
    }
  } else if (t->ndim != (format == MF_channels_last ? 4 : 5)) {
    return 0;
  }
  SymRef expect = mg_infer_c(in, 1);
  for (int k = 0; k < t->ndim; k++) {
    int d = format == MF_contiguous ? t->ndim - 1 - k : format == MF_channels_last ? order2[k] : order3[k];
    int one = mg_infer_is(in, t->size[d], 1);
    if (one == UNKNOWN) return UNKNOWN;
    if (one) continue;
    int eq = mg_infer_eq(in, t->stride[d], expect);
    if (eq != 1) return eq;
    expect = mg_sym_mul(in->x, expect, t->size[d]);
  }
  return 1;
}

int mg_infer_contiguous(MgInfer *in, ValRef v, int format) {
  return iter_contiguous(in, mg_val(in->g, v), format);
}

/* c10::is_channels_last_strides_*: like channels_last, possibly with gaps. */
static int iter_like_channels_last(MgInfer *in, const MgVal *t, const int8_t *order, int n) {
  SymRef min = mg_infer_c(in, 0);
  int c = mg_infer_is(in, t->stride[1], 0);
  if (c) return c == 1 ? 0 : UNKNOWN;
  for (int k = 0; k < n; k++) {
    int d = order[k], z = mg_infer_is(in, t->size[d], 0), lt = mg_infer_less(in, t->stride[d], min);
    if (z == UNKNOWN || lt == UNKNOWN) return UNKNOWN;
    if (z == 1 || lt == 1) return 0;
    if (d == 0) { /* N111 and its like count as contiguous */
      int eq = mg_infer_eq(in, min, t->stride[1]);
      if (eq) return eq == 1 ? 0 : UNKNOWN;
    }
    min = t->stride[d];
    int one = mg_infer_is(in, t->size[d], 1);
    if (one == UNKNOWN) return UNKNOWN;
    if (!one) min = mg_sym_mul(in->x, min, t->size[d]);
  }
  return 1;
}

MgRc mg_infer_suggest_val(MgInfer *in, const MgVal *t, int *format) {
  static const int8_t order2[] = {1, 3, 2, 0}, order3[] = {1, 4, 3, 2, 0};
  *format = MF_contiguous;
  if (t->ndim != 4 && t->ndim != 5) return MG_OK;
  int like = iter_like_channels_last(in, t, t->ndim == 4 ? order2 : order3, t->ndim);
  if (like == UNKNOWN) return MG_UNSUP;
  if (like) *format = t->ndim == 4 ? MF_channels_last : MF_channels_last_3d;
  return MG_OK;
}

MgRc mg_infer_suggest(MgInfer *in, ValRef v, int *format) {
  return mg_infer_suggest_val(in, mg_val(in->g, v), format);
}

MgRc mg_infer_suggest_unsqueezed(MgInfer *in, ValRef v, int d, int *format) {
  MgVal t = *mg_val(in->g, v);
  SymRef size[MG_INFER_RANK + 1], stride[MG_INFER_RANK + 1];
  for (int i = 0, k = 0; i <= t.ndim; i++) {
    bool fresh = i == d;
    size[i] = fresh ? mg_infer_c(in, 1) : t.size[k];
    stride[i] = !fresh       ? t.stride[k]
                : k < t.ndim ? mg_sym_mul(in->x, t.size[k], t.stride[k])
                             : mg_infer_c(in, 1);
    k += !fresh;
  }
  t.ndim++;
  t.size = size;
  t.stride = stride;
  return mg_infer_suggest_val(in, &t, format);
}

/* Contiguous, or dimensions by ascending stride, those of size below 2 last. */
static int iter_dense(MgInfer *in, const MgVal *t) {
  int8_t perm[MG_INFER_RANK];
  int n = 0;
  bool small = false;
  if (iter_contiguous(in, t, MF_contiguous) == 1) return 1;
  for (int i = 0; i < t->ndim; i++) {
    int c = mg_infer_less(in, t->size[i], mg_infer_c(in, 2));
    if (c == UNKNOWN) return UNKNOWN;
    if (c == 1) {
      small = true;
      continue;
    }
    int k = n++;
    for (; k > 0; k--) {
      int o = mg_infer_less(in, t->stride[i], t->stride[perm[k - 1]]);
      if (o == UNKNOWN) return UNKNOWN;
      if (o == 0) break;
      perm[k] = perm[k - 1];
    }
    perm[k] = i;
  }
  if (t->ndim == 1 && small) return 1;
  SymRef expect = mg_infer_c(in, 1);
  for (int k = 0; k < n; k++) {
    int eq = mg_infer_eq(in, t->stride[perm[k]], expect);
    if (eq != 1) return eq;
    expect = mg_sym_mul(in->x, expect, t->size[perm[k]]);
  }
  return 1;
}

int mg_infer_dense(MgInfer *in, ValRef v) { return iter_dense(in, mg_val(in->g, v)); }

bool mg_infer_format_strides(MgInfer *in, const MgDims *size, int format, MgDims *stride) {
  static const int8_t order2[] = {1, 3, 2, 0}, order3[] = {1, 4, 3, 2, 0};
  if (size->n != (format == MF_channels_last ? 4 : 5)) return false;
  SymRef s = mg_infer_c(in, 1);
  stride->n = size->n;
  for (int k = 0; k < size->n; k++) {
    int dim = format == MF_channels_last ? order2[k] : order3[k];
    stride->d[dim] = s;
    s = mg_sym_mul(in->x, s, mg_sym_max(in->x, size->d[dim], mg_infer_c(in, 1)));
  }
  return true;
}

MgRc mg_infer_format(MgInfer *in, int i, MgDtype d, const MgDims *size, int format) {
  if (format != MF_channels_last && format != MF_channels_last_3d) return mg_infer_out(in, i, d, size, NULL);
  MgDims stride = {0};
  if (!mg_infer_format_strides(in, size, format, &stride)) return MG_UNSUP;
  return mg_infer_out(in, i, d, size, &stride);
}

/* ---- elementwise ops ---- */

typedef struct IterOp { /* one operand, extended to the common shape; 0 strides where it is broadcast */
  SymRef stride[MG_INFER_RANK];
} IterOp;

/* 1: a goes outside b (swap), -1: order is right, 0: ambiguous, UNKNOWN. */
static int iter_order(MgInfer *in, const IterOp *op, int nop, const MgDims *shape, int a, int b) {
  for (int k = 0; k < nop; k++) {
    int za = mg_infer_is(in, op[k].stride[a], 0), zb = mg_infer_is(in, op[k].stride[b], 0);
    if (za == UNKNOWN || zb == UNKNOWN) return UNKNOWN;
    if (za || zb) continue;
    int c = mg_infer_cmp(in, op[k].stride[a], op[k].stride[b]);
    if (c) return c;
    int s = mg_infer_less(in, shape->d[b], shape->d[a]);
    if (s == UNKNOWN) return UNKNOWN;
    if (s == 1) return 1;
  }
  return 0;
}

/* The permutation that reorder_dimensions chooses (innermost first), and the dense strides it gives. */
static MgRc iter_sorted_strides(MgInfer *in, const IterOp *op, int nop, const MgDims *shape, MgDims *stride) {
  int perm[MG_INFER_RANK], n = shape->n;
  for (int i = 0; i < n; i++) perm[i] = n - 1 - i;
  for (int i = 1; i < n; i++) {
    int at = i;
    for (int k = i - 1; k >= 0; k--) {
      int c = iter_order(in, op, nop, shape, perm[k], perm[at]);
      if (c == UNKNOWN) return MG_UNSUP;
      if (c > 0) {
        int t = perm[k];
        perm[k] = perm[at];
        perm[at] = t;
        at = k;
      } else if (c < 0) {
        break;
      }
    }
  }
  bool inverted = true;
  for (int i = 0; i < n; i++) inverted &= perm[i] == n - 1 - i;
  stride->n = n;
  SymRef s = mg_infer_c(in, 1);
  for (int i = 0; i < n;
       i++) { /* plain contiguous strides treat an empty dimension as one, the others do not */
    stride->d[perm[i]] = s;
    SymRef size = shape->d[perm[i]];
    s = mg_sym_mul(in->x, s, inverted ? mg_sym_max(in->x, size, mg_infer_c(in, 1)) : size);
  }
  return MG_OK;
}

static void iter_operand(MgInfer *in, ValRef v, const MgDims *shape, IterOp *op) {
  const MgVal *t = v ? mg_val(in->g, v) : NULL;
  int off = shape->n - (t ? t->ndim : 0);
  for (int i = 0; i < shape->n; i++) {
    op->stride[i] = mg_infer_c(in, 0);
    if (i < off) continue;
    bool spread = mg_infer_is(in, t->size[i - off], 1) == 1 && mg_infer_is(in, shape->d[i], 1) != 1;
    if (!spread) op->stride[i] = t->stride[i - off];
  }
}

static bool iter_same_strides(MgInfer *in, ValRef a, ValRef b) {
  const MgVal *p = mg_val(in->g, a), *q = mg_val(in->g, b);
  return !memcmp(p->stride, q->stride, p->ndim * sizeof *p->stride);
}

MgRc mg_infer_iter(MgInfer *in, int i, MgDtype d, const ValRef *v, int n) {
  MgDims shape = {0}, stride;
  bool scalars = false, tensors = false, same = true;
  ValRef first = 0;
  for (int k = 0; k < n; k++) {
    MgDims one = {0};
    if (v[k]) mg_infer_dims_of(in, v[k], &one);
    (one.n ? &tensors : &scalars)[0] = true;
    if (!shape.n) shape = one;
    else if (one.n != shape.n || memcmp(one.d, shape.d, one.n * sizeof *one.d)) {
      same = false;
      TRY(mg_infer_broadcast(in, &shape, one.d, one.n));
    }
    if (v[k] && !first) first = v[k];
  }
  if (scalars && tensors) same = false;
  if (same && first) { /* all operands alike: their common format */
    int cont = 1, last = 1, dense = 1;
    bool equal = true;
    for (int k = 0; k < n; k++) {
      if (!v[k]) continue;
      int c = mg_infer_contiguous(in, v[k], MF_contiguous),
          l = mg_infer_contiguous(in, v[k], MF_channels_last);
      int e = mg_infer_dense(in, v[k]);
      cont = c == 0 || cont == 0 ? 0 : c > cont ? c : cont;
      last = l == 0 || last == 0 ? 0 : l > last ? l : last;
      dense = e == 0 || dense == 0 ? 0 : e > dense ? e : dense;
      equal &= iter_same_strides(in, first, v[k]);
    }
    if (cont == UNKNOWN) return MG_UNSUP;
    if (cont) return mg_infer_out(in, i, d, &shape, NULL);
    if (last == UNKNOWN) return MG_UNSUP;
    if (last) return mg_infer_format(in, i, d, &shape, MF_channels_last);
    if (dense == UNKNOWN) return MG_UNSUP;
    if (dense && equal) {
      stride.n = shape.n;
      memcpy(stride.d, mg_val(in->g, first)->stride, shape.n * sizeof *stride.d);
      return mg_infer_out(in, i, d, &shape, &stride);
    }
  }
  IterOp *op = mg_new(in->g->c, IterOp, n + 1);
  TRYP(op);
  for (int k = 0; k < n; k++) iter_operand(in, v[k], &shape, &op[k]);
  TRY(iter_sorted_strides(in, op, n, &shape, &stride));
  return mg_infer_out(in, i, d, &shape, &stride);
}

MgRc mg_infer_iter_strides(MgInfer *in, int i, MgDtype d, const MgDims *shape, const MgDims *stride, int n) {
  IterOp *op = mg_new(in->g->c, IterOp, n + 1);
  MgDims out;
  TRYP(op);
  for (int k = 0; k < n; k++) memcpy(op[k].stride, stride[k].d, shape->n * sizeof *op->stride);
  TRY(iter_sorted_strides(in, op, n, shape, &out));
  return mg_infer_out(in, i, d, shape, &out);
}

MgRc mg_infer_like_val(MgInfer *in, int i, MgDtype d, const MgVal *t) {
  MgDims size, stride;
  size.n = t->ndim;
  memcpy(size.d, t->size, size.n * sizeof *size.d);
  int dense = iter_dense(in, t);
  if (dense == UNKNOWN) return MG_UNSUP;
  if (dense) {
    stride.n = size.n;
    memcpy(stride.d, t->stride, size.n * sizeof *stride.d);
    return mg_infer_out(in, i, d, &size, &stride);
  }
  IterOp op;
  memcpy(op.stride, t->stride, size.n * sizeof *op.stride);
  /* infer_dense_strides orders as TensorIterator does with this one operand */
  TRY(iter_sorted_strides(in, &op, 1, &size, &stride));
  return mg_infer_out(in, i, d, &size, &stride);
}

MgRc mg_infer_like(MgInfer *in, int i, MgDtype d, ValRef v) {
  MgVal t = *mg_val(in->g, v); /* results make the table of values grow */
  return mg_infer_like_val(in, i, d, &t);
}
