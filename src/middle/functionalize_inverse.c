/* A write to a view, carried to its parent: the inverse of the view op.
 * In: the view, its parent's present value, what the view holds now.  Out: what the parent holds now. */
#include "middle/functionalize_priv.h"
#include <string.h>

/* Where along dim the piece `out` of a split starts. */
static SymRef fz_piece_start(MgGraph *g, const MgNode *n, int out, int dim) {
  SymRef s = mg_sym(g->x, 0);
  for (int i = 0; i < out; i++) s = mg_sym_add(g->x, s, mg_val(g, n->out[i])->size[dim]);
  return s;
}

static bool fz_dim(const Fz *f, const MgArg *a, int ndim, int64_t *dim) {
  if (a->tag != MA_int || !mg_ex_const_int(f->g->x, a->u.sym, dim)) return false;
  if (*dim < 0) *dim += ndim;
  return *dim >= 0 && *dim < (ndim ? ndim : 1);
}

/* Any strided view of the same dtype: by position in the root's memory. */
MgRc mg_fz_by_position(Fz *f, ValRef view, ValRef parent, ValRef parent_now, ValRef *v) {
  MgGraph *g = f->g;
  const MgVal *p = mg_val(g, parent), *w = mg_val(g, view);
  if (p->dtype != w->dtype || !f->val[parent].same || fz_val(f, parent)->parent || mg_val_repeats(g, view))
    return mg_fail(g->c, MG_UNSUP, "functionalize: write through a view of %s", mg_node(g, w->def)->op->full);
  SymRef at = mg_sym_add(g->x, mg_sym_sub(g->x, w->offset, p->offset), mg_val(g, parent_now)->offset);
  MgArg a[] = {mg_arg_val(parent_now), mg_arg_val(*v), mg_arg_syms(g, w->size, w->ndim),
               mg_arg_syms(g, w->stride, w->ndim), mg_arg_sym(at)};
  return mg_fz_emit(f, TOP_as_strided_scatter, a, 5, parent, v);
}

/* Views whose inverse is one op, with the view's arguments 1 to narg after the tensors. */
static const struct {
  uint16_t view, inverse;
  uint8_t narg;
  bool scatters; /* into the parent; else of what was written alone */
} fz_inverses[] = {
    {TOP_slice_Tensor, TOP_slice_scatter, 4, true},
    {TOP_select_int, TOP_select_scatter, 2, true},
    {TOP_diagonal, TOP_diagonal_scatter, 3, true},
    {TOP_t, TOP_t, 0, false},
    {TOP_transpose_int, TOP_transpose_int, 2, false},
    {TOP_conj_physical, TOP_conj_physical, 0, false}, /* what _conj became */
    {TOP_neg, TOP_neg, 0, false},                     /* what _neg_view became */
};

/* Are the dimensions of a permutation known?  Then *a are those of its inverse. */
static bool fz_permuted_back(Fz *f, const MgArg *dims, int ndim, MgArg *a) {
  int64_t back[64] = {0}, to;
  if (dims->n > 64) return false;
  for (uint32_t k = 0; k < dims->n; k++) {
    if (!fz_dim(f, &dims->u.item[k], ndim, &to)) return false;
    back[to] = k;
  }
  *a = mg_arg_ints(f->g, back, (int)dims->n);
  return true;
}

/* Of a view that has the parent's elements in their order; what was written need not have a view's strides.
 */
static MgRc fz_same_elements(Fz *f, ValRef parent, ValRef *v) {
  const MgVal *p = mg_val(f->g, parent);
  MgArg a[] = {mg_arg_val(*v), mg_arg_syms(f->g, p->size, p->ndim)};
  return mg_fz_emit(f, TOP_reshape, a, 2, parent, v);
}

/* Views whose inverse needs more than their arguments.  *done: there is such an inverse. */
static MgRc fz_inverse_of(Fz *f, const FzVal *i, ValRef view, ValRef parent_now, ValRef *v, bool *done) {
  MgGraph *g = f->g;
  const MgNode *n = &i->via;
  const MgVal *p = mg_val(g, i->parent), *w = mg_val(g, view);
  int64_t dim;
  *done = true;
  switch (n->op->code) {
  case TOP_alias:
  case TOP_detach: return MG_OK;
  case TOP_view_dtype: {
    if (p->dtype != w->dtype && (p->dtype == DT_bool || w->dtype == DT_bool))
      return mg_fail(g->c, MG_UNSUP, "functionalize: write through bool bytes that may be no bool");
    if (mg_dtype_size(p->dtype) != mg_dtype_size(w->dtype))
      TRY(mg_fz_lay_out(f, v, view)); /* one stride is 1 */
    MgArg a[] = {mg_arg_val(*v), mg_arg_code(MA_dtype, p->dtype)};
    return mg_fz_emit(f, TOP_view_dtype, a, 2, i->parent, v);
  }
  case TOP_view_as_real:
  case TOP_view_as_complex: { /* each other's inverse; the strides must allow it */
    TRY(mg_fz_restride(f, v, view));
    MgArg a[] = {mg_arg_val(*v)};
    return mg_fz_emit(f, n->op->code == TOP_view_as_real ? TOP_view_as_complex : TOP_view_as_real, a, 1,
                      i->parent, v);
  }
  case TOP_split_Tensor:
  case TOP_split_with_sizes: {
    const MgArg *at = mg_node_arg(n, "dim");
    if (!fz_dim(f, at, p->ndim, &dim)) break;
    SymRef start = fz_piece_start(g, n, i->out, (int)dim), end = mg_sym_add(g->x, start, w->size[dim]);
    MgArg a[] = {mg_arg_val(parent_now), mg_arg_val(*v),  *at,
                 mg_arg_sym(start),      mg_arg_sym(end), mg_arg_int(g, 1)};
    return mg_fz_emit(f, TOP_slice_scatter, a, 6, i->parent, v);
  }
  case TOP_unbind_int: {
    MgArg a[] = {mg_arg_val(parent_now), mg_arg_val(*v), *mg_node_arg(n, "dim"), mg_arg_int(g, i->out)};
    return mg_fz_emit(f, TOP_select_scatter, a, 4, i->parent, v);
  }
  case TOP_permute: {
    MgArg a[] = {mg_arg_val(*v), {0}};
    if (!fz_permuted_back(f, mg_node_arg(n, "dims"), p->ndim, &a[1])) break;
    return mg_fz_emit(f, TOP_permute, a, 2, i->parent, v);
  }
  case TOP_expand:
    if (mg_val_repeats(g, view)) break;
    return fz_same_elements(f, i->parent, v);
  case TOP_view:
  case TOP__unsafe_view:
  case TOP__reshape_alias:
  case TOP_squeeze:
  case TOP_squeeze_dim:
  case TOP_squeeze_dims:
  case TOP_unsqueeze: return fz_same_elements(f, i->parent, v);
  default: break;
  }
  *done = false;
  return MG_OK;
}

/* parent's memory with the part that view i stands for replaced by *v: the inverse of the view op.
 * The recorded metadata of parent and view give the sizes. */
MgRc mg_fz_inverse(Fz *f, const FzVal *i, ValRef view, ValRef parent_now, ValRef *v) {
  const MgNode *n = &i->via;
  for (size_t k = 0; k < sizeof fz_inverses / sizeof *fz_inverses; k++) {
    if (fz_inverses[k].view != n->op->code) continue;
    int first = fz_inverses[k].scatters, narg = fz_inverses[k].narg;
    MgArg a[6] = {mg_arg_val(parent_now)};
    a[first] = mg_arg_val(*v);
    memcpy(a + first + 1, n->arg + 1, sizeof *a * (size_t)narg);
    return mg_fz_emit(f, (MgTop)fz_inverses[k].inverse, a, first + 1 + narg, i->parent, v);
  }
  bool done;
  TRY(fz_inverse_of(f, i, view, parent_now, v, &done));
  return done ? MG_OK : mg_fz_by_position(f, view, i->parent, parent_now, v);
}
