/* Products of vectors and index ops that are a scatter: as elementwise work and reductions they fuse with
 * what surrounds them. */
#include "middle/check.h"
#include "middle/decompose_priv.h"

#define V mg_arg_val

/* Is the matrix dense along a dimension?  Then the sum of its product with a vector is a fast loop. */
static bool dense_is_dense(const MgGraph *g, ValRef matrix) {
  const MgVal *m = mg_val(g, matrix);
  return mg_sym_is(g->x, m->stride[0], 1) || mg_sym_is(g->x, m->stride[1], 1);
}

/* 16-bit factors as float32: their products are exact, and rounded once at the end as by a library. */
static ValRef dense_factor(MgRewrite *rw, ValRef v) {
  if (mg_dtype_size((MgDtype)mg_val(rw->g, v)->dtype) >= 4) return v;
  return mg_dec(rw, TOP__to_copy, V(v), mg_arg_code(MA_dtype, DT_f32));
}

/* Sum of a * b over the last dimension. */
static ValRef dense_dot(MgRewrite *rw, ValRef a, ValRef b) {
  MgGraph *g = rw->g;
  if (!mg_dtype_is_float((MgDtype)mg_val(g, a)->dtype) || mg_val(g, a)->dtype != mg_val(g, b)->dtype)
    return 0;
  int64_t last = -1;
  a = dense_factor(rw, a);
  b = a ? dense_factor(rw, b) : 0;
  MgArg arg[] = {V(b ? mg_dec(rw, TOP_mul_Tensor, V(a), V(b)) : 0), mg_arg_ints(g, &last, 1)};
  return mg_graph_emit1(g, TOP_sum_dim_IntList, arg, 2);
}

static MgRc dense_give(MgRewrite *rw, ValRef v) {
  if (!v) return rw->g->c->rc ? rw->g->c->rc : MG_UNSUP;
  return mg_dec_give(rw, 0, v);
}

/* dot(a, b), vdot of reals. */
static MgRc dense_vdot(MgRewrite *rw) {
  return dense_give(rw, dense_dot(rw, mg_dec_val(rw, "self"),
                                  mg_dec_val(rw, rw->n.op->code == TOP_dot ? "tensor" : "other")));
}

static ValRef dense_matvec(MgRewrite *rw, ValRef matrix, ValRef vector) {
  return dense_is_dense(rw->g, matrix) ? dense_dot(rw, matrix, vector) : 0;
}

static MgRc dense_mv(MgRewrite *rw) {
  return dense_give(rw, dense_matvec(rw, mg_dec_val(rw, "self"), mg_dec_val(rw, "vec")));
}

bool mg_dense_is_thin(const MgGraph *g, ValRef x, ValRef w) {
  const MgVal *mx = mg_val(g, x), *mw = mg_val(g, w);
  if (mx->ndim != 2 || mw->ndim != 2 || !mg_dtype_is_float((MgDtype)mx->dtype) || mx->dtype != mw->dtype)
    return false;
  return mg_sym_is(g->x, mx->size[1], 1) || (mg_sym_is(g->x, mx->size[0], 1) && dense_is_dense(g, w)) ||
         (mg_sym_is(g->x, mw->size[1], 1) && dense_is_dense(g, x));
}

/* A column times a row.  Eager's libraries add each product to +0, so that none is -0; but MKL only
 * multiplies matrices of more than one row and column.  added: eager adds the product to a tensor. */
static ValRef dense_outer(MgRewrite *rw, ValRef x, ValRef w, bool added) {
  MgGraph *g = rw->g;
  const MgVal *mx = mg_val(g, x), *mw = mg_val(g, w);
  bool narrow = mg_dtype_size((MgDtype)mx->dtype) < 4;
  bool vector = mg_sym_is(g->x, mx->size[0], 1) || mg_sym_is(g->x, mw->size[1], 1);
  ValRef v = mg_dec(rw, TOP_mul_Tensor, V(dense_factor(rw, x)), V(dense_factor(rw, w)));
  return narrow || (vector && !added) ? mg_dec(rw, TOP_add_Scalar, V(v), mg_arg_float(0)) : v;
}

/* added: see dense_outer */
static ValRef dense_thin(MgRewrite *rw, ValRef x, ValRef w, bool added) {
  MgGraph *g = rw->g;
  if (!mg_dense_is_thin(g, x, w)) return 0;
  if (mg_sym_is(g->x, mg_val(g, x)->size[1], 1)) return dense_outer(rw, x, w, added);
  bool row = mg_sym_is(g->x, mg_val(g, x)->size[0], 1);
  ValRef v = dense_dot(rw, x, mg_dec(rw, TOP_t, V(w)));
  return v ? mg_dec(rw, TOP_unsqueeze, V(v), mg_arg_int(g, row ? 0 : 1)) : 0;
}

static MgRc dense_mm(MgRewrite *rw) {
  ValRef v = dense_thin(rw, mg_dec_val(rw, "self"), mg_dec_val(rw, "mat2"), false);
  return v ? dense_give(rw, v) : mg_dec_cuda_mm(rw);
}

static bool dense_beta_is_0(MgRewrite *rw) {
  const MgArg *beta = mg_dec_arg(rw, "beta");
  int64_t k;
  if (beta->tag == MA_int) return mg_ex_const_int(rw->g->x, beta->u.sym, &k) && k == 0;
  return beta->tag == MA_float && beta->u.f == 0;
}

/* beta * self + alpha * x; beta 0 drops self, NaN and all. */
static MgRc dense_axpby(MgRewrite *rw, ValRef x) {
  const MgArg *beta = mg_dec_arg(rw, "beta"), *alpha = mg_dec_arg(rw, "alpha");
  int64_t k;
  if (!x) return rw->g->c->rc ? rw->g->c->rc : MG_UNSUP;
  bool unit = alpha->tag == MA_int && mg_ex_const_int(rw->g->x, alpha->u.sym, &k) && k == 1;
  if (!unit) x = mg_dec(rw, TOP_mul_Scalar, V(x), *alpha);
  if (dense_beta_is_0(rw)) return mg_dec_give(rw, 0, x);
  unit = beta->tag == MA_int && mg_ex_const_int(rw->g->x, beta->u.sym, &k) && k == 1;
  ValRef self = mg_dec_val(rw, "self");
  if (!unit) self = mg_dec(rw, TOP_mul_Scalar, V(self), *beta);
  return mg_dec_give(rw, 0, mg_dec(rw, TOP_add_Tensor, V(self), V(x)));
}

static MgRc dense_addmv(MgRewrite *rw) {
  return dense_axpby(rw, dense_matvec(rw, mg_dec_val(rw, "mat"), mg_dec_val(rw, "vec")));
}

static MgRc dense_addmm(MgRewrite *rw) {
  ValRef a = mg_dec_val(rw, "mat1"), b = mg_dec_val(rw, "mat2");
  ValRef x = dense_thin(rw, a, b, !dense_beta_is_0(rw));
  return dense_axpby(rw, x ? x : mg_dec_cuda_columns(rw, a, b));
}

/* addr(self, a, b): beta * self + alpha * (a outer b). */
static MgRc dense_addr(MgRewrite *rw) {
  MgGraph *g = rw->g;
  if (!mg_dtype_is_float(mg_val(g, rw->n.out[0])->dtype)) return MG_UNSUP;
  ValRef column = mg_dec(rw, TOP_unsqueeze, *mg_dec_arg(rw, "vec1"), mg_arg_int(g, 1));
  return dense_axpby(rw, mg_dec(rw, TOP_mul_Tensor, V(column), *mg_dec_arg(rw, "vec2")));
}

static MgRc dense_trace(MgRewrite *rw) {
  if (mg_val(rw->g, mg_dec_val(rw, "self"))->dtype == DT_bool) return MG_UNSUP; /* an error of ATen's */
  return mg_dec_give(rw, 0, mg_dec(rw, TOP_sum, V(mg_dec(rw, TOP_diagonal, *mg_dec_arg(rw, "self")))));
}

/* ---- index_add, index_copy, index_fill: scatter with the index spread over the other dimensions ---- */

static ValRef dense_spread_index(MgRewrite *rw, const MgVal *like, int64_t dim, ValRef index) {
  MgGraph *g = rw->g;
  SymRef size[64];
  int n = like->ndim;
  for (int i = 0; i < n; i++) size[i] = mg_sym(g->x, 1);
  size[dim] = mg_val_numel(g, index);
  ValRef v = mg_dec(rw, TOP_view, V(index), mg_arg_syms(g, size, n));
  for (int i = 0; i < n; i++)
    if (i != dim) size[i] = like->size[i];
  return v ? mg_dec(rw, TOP_expand, V(v), mg_arg_syms(g, size, n)) : 0;
}

/* (self, dim, index, source or value) */
static MgRc dense_index(MgRewrite *rw, MgTop scatter, bool filled) {
  MgGraph *g = rw->g;
  int64_t dim;
  ValRef self = mg_dec_val(rw, "self"), index = mg_dec_val(rw, "index");
  MgVal like = *mg_val(g, self);
  const MgArg *alpha = mg_dec_arg(rw, "alpha");
  if (!like.ndim || !mg_ex_const_int(g->x, mg_dec_arg(rw, "dim")->u.sym, &dim)) return MG_UNSUP;
  if (!mg_dtype_has_ty((MgDtype)like.dtype))
    return MG_UNSUP; /* no loops: ATen's scatter has fewer dtypes than these */
  if (dim < 0) dim += like.ndim;
  if (filled && mg_val(g, index)->ndim <= 1) { /* fill takes indices from the end, scatter does not */
    ValRef wrapped = mg_dec(rw, TOP_add_Scalar, V(index), mg_arg_sym(like.size[dim]));
    ValRef negative = mg_dec(rw, TOP_lt_Scalar, V(index), mg_arg_int(g, 0));
    index = mg_dec(rw, TOP_where_self, V(negative), V(wrapped), V(index));
  }
  MgArg value = *mg_dec_arg(rw, filled ? "value" : "source");
  if (!filled && mg_val(g, value.u.val)->ndim != like.ndim) return MG_UNSUP;
  if (alpha->tag != MA_none && !(alpha->tag == MA_int && mg_sym_is(g->x, alpha->u.sym, 1)))
    value = V(mg_dec(rw, TOP_mul_Scalar, value, *alpha));
  bool slices =
      rw->n.op->code != TOP_index_add || like.ndim == 1; /* an IndexError; scatter has a RuntimeError */
  if (slices && mg_check_is(g, &rw->n)) TRY(mg_check_emit(rw));
  ValRef at = index ? dense_spread_index(rw, &like, dim, index) : 0;
  if (!at) return g->c->rc;
  return mg_dec_give(rw, 0, mg_dec(rw, scatter, V(self), mg_arg_int(g, dim), V(at), value));
}

static MgRc dense_index_add(MgRewrite *rw) { return dense_index(rw, TOP_scatter_add, false); }
static MgRc dense_index_copy(MgRewrite *rw) { return dense_index(rw, TOP_scatter_src, false); }
static MgRc dense_index_fill(MgRewrite *rw) { return dense_index(rw, TOP_scatter_value, true); }

const MgDecRow mg_dec_dense[] = {
    {TOP_convolution, mg_dec_cuda_convolution},
    {TOP_convolution_backward, mg_dec_cuda_convolution_backward},
    {TOP_mv, dense_mv},
    {TOP_addmv, dense_addmv},
    {TOP_mm, dense_mm},
    {TOP_addmm, dense_addmm},
    {TOP_dot, dense_vdot},
    {TOP_vdot, dense_vdot},
    {TOP_addr, dense_addr},
    {TOP_trace, dense_trace},
    {TOP_index_add, dense_index_add},
    {TOP_index_copy, dense_index_copy},
    {TOP_index_fill_int_Scalar, dense_index_fill},
    {0},
};
