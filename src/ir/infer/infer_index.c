/* Results of indexing, gather and scatter. */
#include "ir/infer/infer.h"
#include <string.h>

#define ARG(name) mg_infer_arg(in, name)

/* An index of rank n that stands at dimensions at..at+n of the result: strides as of
 * index.expand(..)[None.., .., None..]. */
static void index_strides(MgInfer *in, const MgVal *k, const MgDims *size, int at, int n, MgDims *stride) {
  SymRef one = mg_infer_c(in, 1), zero = mg_infer_c(in, 0);
  SymRef outer = n && k->ndim == n ? mg_sym_mul(in->x, k->size[0], k->stride[0]) : one;
  SymRef inner = k->ndim ? k->stride[k->ndim - 1] : one;
  stride->n = size->n;
  for (int i = 0; i < size->n; i++) {
    int d = i - at - (n - k->ndim);
    if (i < at || i >= at + n)
      stride->d[i] = mg_infer_is(in, size->d[i], 1) == 1 ? (i < at ? outer : inner) : zero;
    else
      stride->d[i] = d < 0 || (mg_infer_is(in, k->size[d], 1) == 1 && mg_infer_is(in, size->d[i], 1) != 1)
                         ? zero
                         : k->stride[d];
  }
}

/* TensorIterator runs over self, restrided to the result (0 where the indices stand), and the indices. */
static MgRc index_layout(MgInfer *in, const MgVal *t, const MgArg *list, const MgDims *size, int at, int n) {
  MgDims *op = mg_new(in->g->c, MgDims, list->n + 1);
  int nop = 1, d = 0;
  TRYP(op);
  op->n = size->n;
  for (int i = 0; i < size->n; i++) op->d[i] = mg_infer_c(in, 0);
  for (int i = 0; i < t->ndim; i++) {
    bool indexed = i < (int)list->n && list->u.item[i].tag == MA_val;
    if (indexed) index_strides(in, mg_val(in->g, list->u.item[i].u.val), size, at, n, &op[nop++]);
    else op->d[d < at ? d : d + n] = t->stride[i], d++;
  }
  return mg_infer_iter_strides(in, 0, t->dtype, size, op, nop);
}

/* x[i0, None, i2, ...]: indices broadcast together; the result dimensions stand where the indices stood when
 * those are adjacent, else in front.  Boolean masks give data-dependent sizes. */
static MgRc index_tensor(MgInfer *in) {
  ValRef v = mg_infer_first(in);
  const MgArg *list = ARG("indices");
  MgDims idx = {0}, size = {0};
  const MgVal *t = mg_val(in->g, v);
  int first = -1, last = -1, count = 0;
  if (list->tag != MA_list || (int)list->n > t->ndim) return MG_UNSUP;
  for (uint32_t i = 0; i < list->n; i++) {
    if (list->u.item[i].tag != MA_val) continue;
    const MgVal *k = mg_val(in->g, list->u.item[i].u.val);
    if (k->dtype == DT_bool || k->dtype == DT_u8) return MG_UNSUP;
    if (first < 0) first = i;
    last = i;
    count++;
    TRY(mg_infer_broadcast(in, &idx, k->size, k->ndim));
  }
  if (first < 0) return MG_UNSUP;
  bool adjacent = last - first + 1 == count;
  int at = adjacent ? first : 0;
  for (int i = 0; i <= t->ndim; i++) {
    if (size.n == at || (adjacent && i == first)) {
      if (i == (adjacent ? first : 0))
        for (int k = 0; k < idx.n; k++) size.d[size.n++] = idx.d[k];
    }
    if (i == t->ndim) break;
    if (i < (int)list->n && list->u.item[i].tag == MA_val) continue;
    size.d[size.n++] = t->size[i];
  }
  return index_layout(in, t, list, &size, at, idx.n);
}

/* Indices of what is not zero, row by row, unlike nonzero (and unlike what its meta kernel says). */
static MgRc index_nonzero_static(MgInfer *in, int ndim) {
  const MgArg *rows = ARG("size");
  if (rows->tag != MA_int) return MG_UNSUP;
  MgDims size = {.n = 2, .d = {rows->u.sym, mg_infer_c(in, ndim)}};
  return mg_infer_out(in, 0, DT_i64, &size, NULL);
}

/* The gradient of an embedding's weight; arguments grad, indices, num_weights. */
static MgRc index_embedding_backward(MgInfer *in, MgDtype dt, const MgDims *grad) {
  const MgArg *rows = ARG("num_weights");
  if (rows->tag != MA_int || !grad->n || mg_infer_flag(in, "sparse")) return MG_UNSUP;
  MgDims size = {.n = 2, .d = {rows->u.sym, grad->d[grad->n - 1]}};
  return mg_infer_out(in, 0, dt, &size, NULL);
}

MgRc mg_infer_index(MgInfer *in) {
  ValRef v = mg_infer_first(in), idx = mg_infer_tensor(in, "index");
  MgDims size = {0}, one;
  int d;
  if (!v) return MG_UNSUP;
  MgDtype dt = mg_val(in->g, v)->dtype;
  mg_infer_dims_of(in, v, &size);
  switch (in->op->code) {
  case TOP_index_Tensor:
  case TOP__unsafe_index_Tensor: return index_tensor(in);
  case TOP_index_select:
    TRY(mg_infer_dim(in, ARG("dim"), size.n, &d));
    if (size.n) size.d[d] = mg_val_numel(in->g, idx);
    return mg_infer_out(in, 0, dt, &size, NULL);
  case TOP_gather: mg_infer_dims_of(in, idx, &size); return mg_infer_out(in, 0, dt, &size, NULL);
  case TOP_take: mg_infer_dims_of(in, idx, &one); return mg_infer_out(in, 0, dt, &one, NULL);
  case TOP_embedding: {
    mg_infer_dims_of(in, mg_infer_tensor(in, "indices"), &one);
    one.d[one.n++] = size.d[1];
    return mg_infer_out(in, 0, dt, &one, NULL);
  }
  case TOP_embedding_dense_backward:
  case TOP__embedding_bag_backward: return index_embedding_backward(in, dt, &size);
  case TOP_index_put:
  case TOP__unsafe_index_put:
  case TOP__index_put_impl:
  case TOP_index_fill_int_Scalar:
  case TOP_index_fill_int_Tensor:
  case TOP_put: return mg_infer_like(in, 0, dt, v); /* a clone of self that is written */
  case TOP_index_add:
  case TOP_index_copy:
  case TOP_index_reduce:
  case TOP_scatter_src:
  case TOP_scatter_value:
  case TOP_scatter_reduce:
  case TOP_scatter_value_reduce:
  case TOP_scatter_add:
  case TOP_scatter_reduce_two:
    return mg_infer_out(in, 0, dt, &size, NULL); /* structured: a contiguous result of self's size */
  case TOP_nonzero_static: return index_nonzero_static(in, size.n);
  case TOP_masked_scatter: {
    ValRef m = mg_infer_tensor(in, "mask");
    TRY(mg_infer_broadcast(in, &size, mg_val(in->g, m)->size, mg_val(in->g, m)->ndim));
    return mg_infer_out(in, 0, dt, &size, NULL);
  }
  default: return MG_UNSUP;
  }
}

/* Sums, means or maxima of bags of rows, and what backward needs: which bag an index is in (not where sums of
 * rows that lie side by side have a kernel of their own), how many are in each, where maxima are. */
MgRc mg_infer_bag(MgInfer *in) {
  ValRef w = mg_infer_first(in), indices = mg_infer_tensor(in, "indices"),
         offsets = mg_infer_tensor(in, "offsets");
  ValRef scale = mg_infer_tensor(in, "per_sample_weights");
  MgDims bags = {.n = 1}, table = {.n = 2}, size = {.n = 1};
  int64_t mode, padding;
  if (!w || !indices || !offsets || mg_val(in->g, w)->ndim != 2 || mg_val(in->g, offsets)->ndim != 1)
    return MG_UNSUP;
  const MgVal *t = mg_val(in->g, w);
  TRY(mg_infer_int(in, ARG("mode"), &mode));
  TRY(mg_infer_int(in, ARG("padding_idx"), &padding));
  if (t->device != DEV_cpu || mg_infer_is(in, mg_val_numel(in->g, indices), 0)) return MG_UNSUP;
  MgDtype d = t->dtype,
          of_index = mg_dtype_promote(mg_val(in->g, indices)->dtype, mg_val(in->g, offsets)->dtype);
  SymRef all = mg_val(in->g, offsets)->size[0];
  bags.d[0] = mg_infer_flag(in, "include_last_offset") ? mg_sym_sub(in->x, all, mg_infer_c(in, 1)) : all;
  table.d[0] = bags.d[0];
  table.d[1] = t->size[1];
  bool own = mode == 0 && padding < 0 && (d == DT_f32 || d == DT_f16 || d == DT_bf16) &&
             mg_infer_is(in, t->stride[1], 1) == 1 &&
             (!scale || mg_infer_is(in, mg_val(in->g, scale)->stride[0], 1) == 1);
  TRY(mg_infer_results(in, 4));
  TRY(mg_infer_out(in, 0, d, &table, NULL));
  size.d[0] = own ? mg_infer_c(in, 0) : mg_val_numel(in->g, indices);
  TRY(mg_infer_out(in, 1, of_index, &size, NULL));
  size.d[0] = in->op->code == TOP__embedding_bag_forward_only && mode == 0 ? all : bags.d[0];
  TRY(mg_infer_out(in, 2, of_index, &size, NULL));
  return mg_infer_out(in, 3, of_index, mode == 2 ? &table : &size, NULL);
}

/* The loss of each sequence, and alpha for backward: as wide as the longest target, or where
 * lengths are data, at most that. */
MgRc mg_infer_ctc(MgInfer *in) {
  bool backward = in->op->code == TOP__ctc_loss_backward || in->op->code == TOP__ctc_loss_backward_Tensor;
  ValRef p = mg_infer_tensor(in, "log_probs"), targets = mg_infer_tensor(in, "targets");
  const MgArg *len = ARG("target_lengths");
  MgDims size, one = {.n = 1};
  if (!p || !targets || mg_val(in->g, p)->ndim != 3 || mg_val(in->g, p)->device != DEV_cpu) return MG_UNSUP;
  MgDtype d = mg_val(in->g, p)->dtype;
  mg_infer_dims_of(in, p, &size);
  if (backward) return mg_infer_out(in, 0, d, &size, NULL);
  SymRef most = mg_infer_c(in, 0);
  const MgVal *t = mg_val(in->g, targets);
  if (len->tag == MA_val && t->ndim) most = t->size[t->ndim - 1];
  else if (len->tag != MA_list) return MG_UNSUP;
  for (uint32_t i = 0; len->tag == MA_list && i < len->n; i++) {
    if (len->u.item[i].tag != MA_int) return MG_UNSUP;
    most = mg_sym_max(in->x, most, len->u.item[i].u.sym);
  }
  one.d[0] = size.d[1];
  size.d[1] = size.d[0];
  size.d[0] = one.d[0];
  size.d[2] = mg_sym_add(in->x, mg_sym_mul(in->x, most, mg_infer_c(in, 2)), mg_infer_c(in, 1));
  TRY(mg_infer_results(in, 2));
  TRY(mg_infer_out(in, 0, d, &one, NULL));
  return mg_infer_out(in, 1, d, &size, NULL);
}
