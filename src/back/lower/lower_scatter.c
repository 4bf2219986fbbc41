/* Writes at indices that are data: scatter, index_put, index_add, embedding's gradient.
 * A nest copies self (or zeros) into the result's memory, then ML_scatter nests store or accumulate over it;
 * masked, so that an index out of range writes nothing before the run raises. */
#include "back/lower/lower_priv.h"
#include <math.h>
#include <string.h>
#include "tuning.h"

/* The coordinate of the view that index d alone decides, so that points which differ in
 * it never collide; -1: none. */
static int scatter_free(Lower *L, const MgView *view, const ExprRef *to, int d) {
  int at = -1;
  for (int k = 0; k < view->ndim; k++)
    if (to[k] == mg_ex_idx(L->x, d)) at = k;
  return at;
}

/* The dimension along which the view is contiguous, -1: none.  Dimensions of size 1 may have a stride of 1 as
 * well; one of them is taken only if there is no other. */
static int scatter_unit(Lower *L, const MgView *view, const SymRef *size, int nd, const ExprRef *to) {
  int unit = -1;
  for (int d = 0; d < nd; d++) {
    int at = scatter_free(L, view, to, d);
    if (at < 0 || !mg_sym_is(L->x, view->stride[at], 1)) continue;
    if (unit < 0 || mg_sym_is(L->x, size[unit], 1)) unit = d;
  }
  return unit;
}

/* Order of the nest's ranges: those that threads may share first (l->nfree of them), those whose points may
 * collide as they are, and the one that is contiguous in the view last, cut in parts when the others give too
 * little to share. old[d] is what idx(d) becomes. */
static MgRc scatter_order(Lower *L, MgLoop *l, const MgView *view, const SymRef *size, int nd,
                          const ExprRef *to, ExprRef *old) {
  int n = 0, unit = scatter_unit(L, view, size, nd, to);
  int64_t share = 1, many;
  for (int d = 0; d < nd; d++) {
    if (d != unit && scatter_free(L, view, to, d) >= 0) {
      share *= mg_ex_const_int(L->x, size[d], &many) && many < MG_TUNE_SCATTER_ENOUGH
                   ? many
                   : MG_TUNE_SCATTER_ENOUGH;
      l->range[n] = size[d], old[d] = mg_ex_idx(L->x, n++);
    }
  }
  bool cut = unit >= 0 && share < MG_TUNE_SCATTER_ENOUGH && nd < MG_MAX_RANK &&
             mg_ex_const_int(L->x, size[unit], &many) && many > MG_TUNE_SCATTER_PART &&
             many % MG_TUNE_SCATTER_PART == 0;
  if (cut) l->range[n] = lw_int(L, many / MG_TUNE_SCATTER_PART), old[unit] = mg_ex_idx(L->x, n++);
  l->nfree = (uint8_t)n;
  for (int d = 0; d < nd; d++)
    if (d != unit && scatter_free(L, view, to, d) < 0) l->range[n] = size[d], old[d] = mg_ex_idx(L->x, n++);
  if (unit >= 0) {
    ExprRef i = mg_ex_idx(L->x, n);
    l->range[n++] = cut ? lw_int(L, MG_TUNE_SCATTER_PART) : size[unit];
    old[unit] = cut ? mg_sym_add(L->x, mg_sym_mul(L->x, old[unit], lw_int(L, MG_TUNE_SCATTER_PART)), i) : i;
  }
  l->nouter = (uint8_t)n;
  if (n != nd + cut) return mg_fail(L->c, MG_BUG, "scatter: %d ranges for %d dimensions", n, nd);
  return MG_OK;
}

MgRc lw_scatter(Lower *L, const MgView *view, const SymRef *size, int nd, const ExprRef *to, ExprRef mask,
                MgStoreMode mode, ExprRef value) {
  MgLoop *l = mg_sched_loop(L->s, ML_scatter, L->node);
  ExprRef old[LW_MAX_NDIM] = {0};
  int64_t always;
  TRYP(l);
  TRY(scatter_order(L, l, view, size, nd, to, old));
  l->mode = mode;
  l->buf = view->buf;
  l->index = mg_ex_subst(L->x, mg_view_index(L->x, view, to), old, nd);
  l->mask = mg_ex_const_int(L->x, mask, &always) && always ? 0 : mg_ex_subst(L->x, mask, old, nd);
  l->value = mg_ex_subst(L->x, value, old, nd);
  return MG_OK;
}

MgRc lw_scatter_begin(Lower *L, ValRef v, ValRef self, MgView *view) {
  ExprRef at[LW_MAX_NDIM];
  const MgVal *m = lw_meta(L, v);
  if (self && (lw_take(L, self, v, false, view) || lw_take_input(L, self, v, view))) return MG_OK;
  lw_ids(L, at, m->ndim);
  ExprRef e = self ? lw_at(L, self, at) : lw_const(L, mg_dtype_compute((MgDtype)m->dtype), 0);
  TRY(lw_buffer(L, v, view));
  return lw_store(L, view, e);
}

static MgTy scatter_ty(Lower *L, ValRef v) { return mg_dtype_compute((MgDtype)lw_meta(L, v)->dtype); }

enum { SC_set, SC_add, SC_mul, SC_max, SC_min, SC_mean };
static const MgStoreMode scatter_mode[] = {ST_set, ST_add, ST_mul, ST_max, ST_min, ST_add};

/* The reduction that the string argument names; -1 when it is unknown. */
static int scatter_reduce_arg(const MgNode *n) {
  static const struct {
    const char *name;
    int op;
  } names[] = {{"add", SC_add},  {"sum", SC_add},  {"multiply", SC_mul}, {"prod", SC_mul},
               {"amax", SC_max}, {"amin", SC_min}, {"mean", SC_mean}};
  const MgArg *a = lw_arg(n, "reduce");
  for (size_t i = 0; a->tag == MA_str && i < sizeof names / sizeof *names; i++)
    if (!strcmp(a->u.str, names[i].name)) return names[i].op;
  return -1;
}

/* scatter*(self, dim, index, src or value): result[.., index, ..] op= src */
static MgRc scatter_dim(Lower *L, MgNode *n, const LwRow *r) {
  const char *value = lw_either(n, "src", "value");
  ValRef self = lw_arg_val(n, "self"), t = lw_arg_val(n, "index"), src = lw_arg_val(n, value), v = n->out[0];
  const MgVal *m = lw_meta(L, self), *mt = lw_meta(L, t);
  bool named = lw_arg(n, "reduce")->tag == MA_str, with_self = lw_arg_bool(n, "include_self", true);
  int dim = 0, op = named ? scatter_reduce_arg(n) : r->op;
  MgTy ty = scatter_ty(L, v);
  ExprRef at[LW_MAX_NDIM], to[LW_MAX_NDIM];
  LwIndex k = {0, lw_const(L, TY_i1, 1)};
  if (op < 0 || m->ndim != mt->ndim || !lw_arg_dim(L->g, n, "dim", m->ndim, &dim)) return MG_UNSUP;
  if (mt->ndim == 0 && !mg_sym_is(L->x, mg_val_numel(L->g, t), 1)) return MG_UNSUP;
  lw_ids(L, at, m->ndim);
  memcpy(to, at, sizeof at);
  ExprRef val = src ? mg_ex_cvt(L->x, ty, lw_at(L, src, at)) : lw_arg_scalar(L, lw_arg(n, value), ty);
  MgView view;
  TRY(lw_scatter_begin(L, v, self, &view));
  if (m->ndim) {
    TRY(lw_index(L, t, at, m->ndim, m->size[dim], false, "RuntimeError",
                 "scatter: index is out of bounds for the dimension", &k));
    to[dim] = k.i;
  }
  if (!with_self) { /* elements that are written start from the identity */
    ExprRef id = op == SC_mul   ? lw_const(L, ty, 1)
                 : op == SC_max ? lw_lowest(L, ty)
                 : op == SC_min ? lw_highest(L, ty)
                                : lw_const(L, ty, 0);
    TRY(lw_scatter(L, &view, mt->size, mt->ndim, to, k.in, ST_set, id));
  }
  TRY(lw_scatter(L, &view, mt->size, mt->ndim, to, k.in, scatter_mode[op], val));
  lw_define_view(L, v, &view);
  if (op != SC_mean) return MG_OK;
  /* mean: how many values each element got, then a division in place */
  MgView cnt;
  TRY(lw_temp(L, DT_i64, m->device, m->ndim, m->size, "count", &cnt));
  TRY(lw_store(L, &cnt, lw_int(L, with_self)));
  TRY(lw_scatter(L, &cnt, mt->size, mt->ndim, to, k.in, ST_add, lw_int(L, 1)));
  ExprRef c = mg_ex_load(L->x, TY_i64, cnt.buf, mg_view_index(L->x, &cnt, at), 0, 0);
  c = mg_ex_cvt(L->x, ty, mg_sym_max(L->x, c, lw_int(L, 1)));
  ExprRef sum = lw_at(L, v, at);
  return lw_store(L, &view, lw_op2(L, mg_ty_is_float(ty) ? OP_div : OP_floordiv, sum, c));
}
static bool scatter_is_int(const MgGraph *g, ValRef t) {
  return t && (mg_val(g, t)->dtype == DT_i64 || mg_val(g, t)->dtype == DT_i32);
}
static bool ok_scatter(const MgGraph *g, const MgNode *n) {
  if (!scatter_is_int(g, lw_arg_val(n, "index"))) return false;
  if (lw_arg(n, "reduce")->tag == MA_str && scatter_reduce_arg(n) < 0) return false;
  bool plain = lw_arg(n, "reduce")->tag != MA_str;
  return plain || mg_val(g, n->out[0])->dtype != DT_bool;
}

/* index_add, index_copy, index_fill(self, dim, index, source or value): slices */
static MgRc scatter_slices(Lower *L, MgNode *n, const LwRow *r) {
  const char *value = lw_either(n, "source", "value");
  ValRef self = lw_arg_val(n, "self"), t = lw_arg_val(n, "index"), src = lw_arg_val(n, value), v = n->out[0];
  const MgVal *m = lw_meta(L, self), *mt = lw_meta(L, t);
  MgTy ty = scatter_ty(L, v);
  ExprRef at[LW_MAX_NDIM], to[LW_MAX_NDIM];
  SymRef size[LW_MAX_NDIM], count = mt->ndim ? mt->size[0] : lw_int(L, 1);
  LwIndex k;
  int dim;
  if (m->ndim == 0 || !lw_arg_dim(L->g, n, "dim", m->ndim, &dim)) return MG_UNSUP;
  lw_ids(L, at, m->ndim);
  memcpy(to, at, sizeof at);
  memcpy(size, m->size, sizeof *size * m->ndim);
  size[dim] = count;
  ExprRef val =
      src ? mg_ex_cvt(L->x, ty, lw_at_bcast(L, src, at, m->ndim)) : lw_arg_scalar(L, lw_arg(n, value), ty);
  if (lw_arg(n, "alpha")->tag != MA_none)
    val = lw_op2(L, OP_mul, val, lw_arg_scalar(L, lw_arg(n, "alpha"), ty));
  MgView view;
  TRY(lw_scatter_begin(L, v, self, &view));
  TRY(lw_index(L, t, &at[dim], 1, m->size[dim], r->op == SC_set && !src, "IndexError",
               "index out of range in self", &k));
  to[dim] = k.i;
  TRY(lw_scatter(L, &view, size, m->ndim, to, k.in, scatter_mode[r->op], val));
  lw_define_view(L, v, &view);
  return MG_OK;
}
static bool ok_slices(const MgGraph *g, const MgNode *n) {
  ValRef s = lw_arg_val(n, lw_either(n, "source", "value"));
  int nd = mg_val(g, lw_arg_val(n, "self"))->ndim;
  return scatter_is_int(g, lw_arg_val(n, "index")) && nd > 0 &&
         (!s || mg_val(g, s)->ndim == nd || mg_val(g, s)->ndim == 0);
}

/* ---- index_put
 * ------------------------------------------------------------------------------------------------------ */

/* One bool mask over leading dims and a single value: a select. */
static ValRef scatter_mask_of(const MgGraph *g, const MgNode *n) {
  const MgArg *list = lw_arg(n, "indices");
  ValRef v = lw_arg_val(n, "values"), t = 0;
  if (list->tag != MA_list || lw_arg_bool(n, "accumulate", false) || !v) return 0;
  for (uint32_t i = 0; i < list->n; i++) {
    ValRef k = list->u.item[i].tag == MA_val ? list->u.item[i].u.val : 0;
    if (k && i > 0) return 0;
    if (k) t = k;
  }
  if (!t || mg_val(g, t)->dtype != DT_bool) return 0;
  for (int d = 0; d < mg_val(g, v)->ndim; d++)
    if (!mg_sym_is(g->x, mg_val(g, v)->size[d], 1)) return 0;
  return t;
}

static MgRc scatter_index_put(Lower *L, MgNode *n, const LwRow *r) {
  ValRef self = lw_arg_val(n, "self"), val = lw_arg_val(n, "values"), v = n->out[0],
         mask = scatter_mask_of(L->g, n);
  const MgVal *m = lw_meta(L, self);
  MgTy ty = scatter_ty(L, v);
  ExprRef at[LW_MAX_NDIM], to[LW_MAX_NDIM], in;
  lw_ids(L, at, LW_MAX_NDIM);
  if (mask) {
    ExprRef e = mg_ex_cvt(L->x, ty, lw_at_bcast(L, val, at, LW_MAX_NDIM));
    return lw_define(L, v, lw_where(L, lw_at(L, mask, at), e, lw_at(L, self, at)));
  }
  LwIndexing q;
  if (!lw_indexing(L->g, n, &q)) return MG_UNSUP;
  /* the nest runs over the result of index(self, indices) */
  SymRef size[LW_MAX_NDIM];
  int nd = 0, put = 0;
  for (int d = 0; d < q.nd; d++) put += !q.t[d];
  nd = put + q.bdim;
  if (nd > LW_MAX_NDIM) return MG_UNSUP;
  for (int b = 0; b < q.bdim; b++) {
    size[q.pos + b] = lw_int(L, 1);
    for (int d = 0; d < q.nd; d++) {
      const MgVal *mt = q.t[d] ? lw_meta(L, q.t[d]) : NULL;
      int k = mt ? b - (q.bdim - mt->ndim) : -1;
      if (k >= 0 && !mg_sym_is(L->x, mt->size[k], 1)) size[q.pos + b] = mt->size[k];
    }
  }
  for (int d = 0, o = 0; d < q.nd; d++) {
    if (q.t[d]) continue;
    if (o == q.pos) o += q.bdim;
    size[o++] = m->size[d];
  }
  ExprRef e = mg_ex_cvt(L->x, ty, lw_at_bcast(L, val, at, nd));
  MgView view;
  TRY(lw_scatter_begin(L, v, self, &view));
  TRY(lw_indexing_map(L, &q, m->size, at, r->op, to, &in));
  TRY(lw_scatter(L, &view, size, nd, to, in, lw_arg_bool(n, "accumulate", false) ? ST_add : ST_set, e));
  lw_define_view(L, v, &view);
  return MG_OK;
}
static bool ok_index_put(const MgGraph *g, const MgNode *n) {
  LwIndexing q;
  ValRef v = lw_arg_val(n, "values");
  if (!v || (lw_arg_bool(n, "accumulate", false) && mg_val(g, n->out[0])->dtype == DT_bool)) return false;
  if (scatter_mask_of(g, n)) return true;
  if (!lw_indexing(g, n, &q)) return false;
  int put = 0;
  for (int d = 0; d < q.nd; d++) put += !q.t[d];
  return put + q.bdim <= LW_MAX_NDIM && mg_val(g, v)->ndim <= put + q.bdim;
}

/* put(self, index, source, accumulate): positions in the flattened tensor */
static MgRc scatter_put(Lower *L, MgNode *n, const LwRow *r) {
  ValRef self = lw_arg_val(n, "self"), t = lw_arg_val(n, "index"), src = lw_arg_val(n, "source"),
         v = n->out[0];
  const MgVal *m = lw_meta(L, self), *mt = lw_meta(L, t), *ms = lw_meta(L, src);
  ExprRef at[LW_MAX_NDIM], to[LW_MAX_NDIM], from[LW_MAX_NDIM];
  SymRef numel = mg_val_numel(L->g, self);
  LwIndex k;
  lw_ids(L, at, LW_MAX_NDIM);
  lw_reshape_map(L, ms->size, ms->ndim, mt->size, mt->ndim, at, from);
  ExprRef e = mg_ex_cvt(L->x, scatter_ty(L, v), lw_at(L, src, from));
  MgView view;
  TRY(lw_scatter_begin(L, v, self, &view));
  TRY(lw_index(L, t, at, mt->ndim, numel, true, "IndexError",
               "out of range: tried to access an element outside of the tensor", &k));
  lw_reshape_map(L, m->size, m->ndim, &numel, 1, &k.i, to);
  TRY(lw_scatter(L, &view, mt->size, mt->ndim, to, k.in,
                 lw_arg_bool(n, "accumulate", false) ? ST_add : ST_set, e));
  lw_define_view(L, v, &view);
  return MG_OK;
}
static bool ok_put(const MgGraph *g, const MgNode *n) {
  return scatter_is_int(g, lw_arg_val(n, "index")) && mg_val(g, n->out[0])->dtype != DT_bool;
}

/* embedding's gradient: rows of grad added up by index; the padding row gets none */
static MgRc scatter_embedding_backward(Lower *L, MgNode *n, const LwRow *r) {
  ValRef grad = lw_arg_val(n, "grad_output"), t = lw_arg_val(n, "indices"), v = n->out[0];
  const MgVal *m = lw_meta(L, v), *mg = lw_meta(L, grad), *mt = lw_meta(L, t);
  ExprRef at[LW_MAX_NDIM], to[2];
  LwIndex k;
  lw_ids(L, at, mg->ndim);
  MgView view;
  ExprRef e = mg_ex_cvt(L->x, scatter_ty(L, v), lw_at(L, grad, at));
  TRY(lw_scatter_begin(L, v, 0, &view));
  TRY(lw_index(L, t, at, mt->ndim, m->size[0], false, NULL, NULL, &k));
  to[0] = k.i;
  to[1] = at[mg->ndim - 1];
  ExprRef in = lw_op2(L, OP_and, k.in, lw_op2(L, OP_ne, k.i, lw_arg_sym(L, n, "padding_idx", -1)));
  TRY(lw_scatter(L, &view, mg->size, mg->ndim, to, in, ST_add, e));
  lw_define_view(L, v, &view);
  return MG_OK;
}
static bool ok_embedding_backward(const MgGraph *g, const MgNode *n) {
  return scatter_is_int(g, lw_arg_val(n, "indices")) && !lw_arg_bool(n, "scale_grad_by_freq", false) &&
         mg_val(g, lw_arg_val(n, "grad_output"))->ndim == mg_val(g, lw_arg_val(n, "indices"))->ndim + 1;
}

#define S(name, ok, fn, op) {"aten::" name, fn, ok, NULL, op, 0, 0, NULL},
/* Rows have no commas between them. */
/* clang-format off */
const LwRow lw_rows_scatter[] = {
  S("scatter.src", ok_scatter, scatter_dim, SC_set) S("scatter.value", ok_scatter, scatter_dim, SC_set)
  S("scatter.reduce", ok_scatter, scatter_dim, 0) S("scatter.value_reduce", ok_scatter, scatter_dim, 0)
  S("scatter_add", ok_scatter, scatter_dim, SC_add) S("scatter_reduce.two", ok_scatter, scatter_dim, 0)
  S("index_add", ok_slices, scatter_slices, SC_add) S("index_copy", ok_slices, scatter_slices, SC_set)
  S("index_fill.int_Scalar", ok_slices, scatter_slices, SC_set)
  S("index_fill.int_Tensor", ok_slices, scatter_slices, SC_set)
  S("index_put", ok_index_put, scatter_index_put, 1)
  S("_unsafe_index_put", ok_index_put, scatter_index_put, 0)
  S("_index_put_impl", ok_index_put, scatter_index_put, 1) S("put", ok_put, scatter_put, 0)
  S("embedding_dense_backward", ok_embedding_backward, scatter_embedding_backward, 0)
  {0},
};
/* clang-format on */
