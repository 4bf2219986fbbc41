/* Reads at indices that are data: embedding, gather, index, index_select, take.
 * Bounds are checked as eager does, by a nest over the index tensor alone (lw_check); the load itself is
 * masked, so that an index out of range touches no memory before the run raises. */
#include "back/lower/lower_priv.h"
#include <string.h>

/* Indices that are in range whatever the data: patterns of constants and positions (arange and the like). */
static bool index_proved(Lower *L, ValRef t, SymRef size) {
  ExprRef e = L->val[t].e;
  const MgVal *m = lw_meta(L, t);
  if (!e) return false;
  e = mg_ex_cvt(L->x, TY_i64, e);
  for (int d = 0; d < m->ndim; d++) mg_ex_set_idx_range(L->x, d, m->size[d]);
  bool ok = mg_ex_is_nonneg(L->x, e) && mg_ex_is_below(L->x, e, size);
  for (int d = 0; d < m->ndim; d++) mg_ex_set_idx_range(L->x, d, 0);
  return ok;
}

MgRc lw_index(Lower *L, ValRef t, const ExprRef *at, int ndim, SymRef size, bool wrap, const char *type,
              const char *msg, LwIndex *out) {
  const MgVal *m = lw_meta(L, t);
  TRY(lw_settle(L, t));
  ExprRef i = mg_ex_cvt(L->x, TY_i64, lw_at_bcast(L, t, at, ndim)), zero = lw_int(L, 0);
  out->i = i;
  out->in = lw_const(L, TY_i1, 1);
  if (index_proved(L, t, size)) return MG_OK;
  if (wrap) out->i = lw_where(L, lw_op2(L, OP_lt, i, zero), mg_sym_add(L->x, i, size), i);
  out->in = lw_in_range(L, out->i, size);
  if (!type) return MG_OK;
  ExprRef own[LW_MAX_NDIM];
  for (int d = 0; d < m->ndim; d++) own[d] = mg_ex_idx(L->x, d);
  ExprRef k = mg_ex_cvt(L->x, TY_i64, lw_at(L, t, own));
  if (wrap) k = lw_where(L, lw_op2(L, OP_lt, k, zero), mg_sym_add(L->x, k, size), k);
  return lw_check(L, lw_op1(L, OP_not, lw_in_range(L, k, size)), m->size, m->ndim, type, msg);
}

static ExprRef index_zero(Lower *L, ValRef v) {
  return lw_const(L, mg_dtype_compute((MgDtype)lw_meta(L, v)->dtype), 0);
}

static bool index_is_int(const MgGraph *g, ValRef t) {
  MgDtype d = (MgDtype)mg_val(g, t)->dtype;
  return d == DT_i64 || d == DT_i32;
}

static MgRc index_embedding(Lower *L, MgNode *n, const LwRow *r) {
  ValRef w = lw_arg_val(n, "weight"), t = lw_arg_val(n, "indices"), v = n->out[0];
  const MgVal *mw = lw_meta(L, w), *mt = lw_meta(L, t);
  ExprRef at[LW_MAX_NDIM], to[2];
  LwIndex k;
  if (mw->ndim != 2) return MG_UNSUP;
  for (int d = 0; d <= mt->ndim; d++) at[d] = mg_ex_idx(L->x, d);
  TRY(lw_settle(L, w));
  TRY(lw_index(L, t, at, mt->ndim, mw->size[0], false, "IndexError", "index out of range in self", &k));
  to[0] = k.i;
  to[1] = at[mt->ndim];
  return lw_define(L, v, lw_masked(L, lw_at(L, w, to), k.in, index_zero(L, v)));
}

/* gather, index_select(self, dim, index): one coordinate of self comes from the index tensor, which is read
 * at the result's own position, or (op 1) at its coordinate along dim */
static MgRc index_along(Lower *L, MgNode *n, const LwRow *r) {
  ValRef src = lw_arg_val(n, "self"), t = lw_arg_val(n, "index"), v = n->out[0];
  const MgVal *m = lw_meta(L, src);
  ExprRef at[LW_MAX_NDIM], zero = lw_int(L, 0);
  LwIndex k = {0, lw_const(L, TY_i1, 1)};
  int dim;
  if (!lw_arg_dim(L->g, n, "dim", m->ndim, &dim) || (!r->op && m->ndim != lw_meta(L, t)->ndim))
    return MG_UNSUP;
  for (int d = 0; d < m->ndim; d++) at[d] = mg_ex_idx(L->x, d);
  TRY(lw_settle(L, src));
  if (!r->op && m->ndim)
    TRY(lw_index(L, t, at, m->ndim, m->size[dim], false, "RuntimeError",
                 "gather: index is out of bounds for the dimension", &k));
  else if (r->op)
    TRY(lw_index(L, t, m->ndim ? &at[dim] : &zero, 1, m->ndim ? m->size[dim] : lw_int(L, 1), false,
                 "IndexError", "index out of range in self", &k));
  if (m->ndim) at[dim] = k.i;
  return lw_define(L, v, lw_masked(L, lw_at(L, src, at), k.in, index_zero(L, v)));
}

/* take: positions in the flattened tensor */
static MgRc index_take(Lower *L, MgNode *n, const LwRow *r) {
  ValRef src = lw_arg_val(n, "self"), t = lw_arg_val(n, "index"), v = n->out[0];
  const MgVal *m = lw_meta(L, src), *mt = lw_meta(L, t);
  ExprRef at[LW_MAX_NDIM], to[LW_MAX_NDIM];
  SymRef numel = mg_val_numel(L->g, src);
  LwIndex k;
  for (int d = 0; d < mt->ndim; d++) at[d] = mg_ex_idx(L->x, d);
  TRY(lw_settle(L, src));
  TRY(lw_index(L, t, at, mt->ndim, numel, true, "IndexError",
               "out of range: tried to access an element outside of the tensor", &k));
  lw_reshape_map(L, m->size, m->ndim, &numel, 1, &k.i, to);
  return lw_define(L, v, lw_masked(L, lw_at(L, src, to), k.in, index_zero(L, v)));
}

/* ---- index(self, [t0, None, t2 ...])
 * ----------------------------------------------------------------------------- */

bool lw_indexing(const MgGraph *g, const MgNode *n, LwIndexing *q) {
  const MgArg *list = lw_arg(n, "indices");
  *q = (LwIndexing){.nd = mg_val(g, lw_arg_val(n, "self"))->ndim};
  int first = -1, last = -1, count = 0;
  if (list->tag != MA_list || (int)list->n > q->nd) return false;
  for (uint32_t i = 0; i < list->n; i++) {
    ValRef t = list->u.item[i].tag == MA_val ? list->u.item[i].u.val : 0;
    if (!t) continue;
    if (!index_is_int(g, t)) return false; /* masks: how many elements they select is data */
    q->t[i] = t;
    if (first < 0) first = (int)i;
    last = (int)i;
    count++;
    if (mg_val(g, t)->ndim > q->bdim) q->bdim = mg_val(g, t)->ndim;
  }
  q->pos =
      last - first + 1 == count ? first : 0; /* indices apart from each other: the broadcast dims go first */
  return count > 0;
}

MgRc lw_indexing_map(Lower *L, const LwIndexing *q, const SymRef *size, const ExprRef *at, bool check,
                     ExprRef *to, ExprRef *in) {
  int o = 0;
  *in = lw_const(L, TY_i1, 1);
  for (int d = 0; d < q->nd; d++) {
    if (!q->t[d]) {
      if (o == q->pos) o += q->bdim;
      to[d] = at[o++];
      continue;
    }
    LwIndex k;
    TRY(lw_index(L, q->t[d], at + q->pos, q->bdim, size[d], true, check ? "IndexError" : NULL,
                 "index is out of bounds for the dimension", &k));
    to[d] = k.i;
    *in = lw_op2(L, OP_and, *in, k.in);
  }
  return MG_OK;
}

static MgRc index_index(Lower *L, MgNode *n, const LwRow *r) { /* op: 1 checks bounds */
  ValRef src = lw_arg_val(n, "self"), v = n->out[0];
  const MgVal *m = lw_meta(L, src), *mo = lw_meta(L, v);
  LwIndexing q;
  ExprRef at[LW_MAX_NDIM], to[LW_MAX_NDIM], in;
  if (!lw_indexing(L->g, n, &q)) return MG_UNSUP;
  for (int d = 0; d < mo->ndim; d++) at[d] = mg_ex_idx(L->x, d);
  TRY(lw_settle(L, src));
  TRY(lw_indexing_map(L, &q, m->size, at, r->op, to, &in));
  return lw_define(L, v, lw_masked(L, lw_at(L, src, to), in, index_zero(L, v)));
}
static bool ok_index(const MgGraph *g, const MgNode *n) {
  LwIndexing q;
  return lw_indexing(g, n, &q);
}
static bool ok_int_index(const MgGraph *g, const MgNode *n) {
  return index_is_int(g, lw_arg_val(n, lw_either(n, "index", "indices")));
}
/* Of a tensor without dimensions ATen selects one element, and raises for any other number of them. */
static bool ok_select(const MgGraph *g, const MgNode *n) {
  const MgVal *index = mg_val(g, lw_arg_val(n, "index"));
  return ok_int_index(g, n) &&
         (mg_val(g, lw_arg_val(n, "self"))->ndim || !index->ndim || mg_sym_is(g->x, index->size[0], 1));
}

static MgRc index_one_hot(Lower *L, MgNode *n, const LwRow *r) {
  ValRef t = lw_arg_val(n, "self"), v = n->out[0];
  const MgVal *m = lw_meta(L, t);
  ExprRef at[LW_MAX_NDIM];
  LwIndex k;
  for (int d = 0; d <= m->ndim; d++) at[d] = mg_ex_idx(L->x, d);
  TRY(lw_index(L, t, at, m->ndim, lw_arg_sym(L, n, "num_classes", 0), false, "RuntimeError",
               "Class values must be smaller than num_classes.", &k));
  return lw_define(L, v, mg_ex_cvt(L->x, TY_i64, lw_op2(L, OP_eq, k.i, at[m->ndim])));
}
static bool ok_one_hot(const MgGraph *g, const MgNode *n) {
  int64_t c;
  return mg_val(g, lw_arg_val(n, "self"))->dtype == DT_i64 && (!lw_arg_int(g, n, "num_classes", &c) || c > 0);
}

/* mg::check(bad, type, message) */
static MgRc index_check(Lower *L, MgNode *n, const LwRow *r) {
  ValRef bad = lw_arg_val(n, "bad");
  const MgVal *m = lw_meta(L, bad);
  ExprRef at[LW_MAX_NDIM];
  lw_ids(L, at, m->ndim);
  return lw_check(L, lw_at(L, bad, at), m->size, m->ndim, lw_arg(n, "type")->u.str,
                  lw_arg(n, "message")->u.str);
}

#define I(name, ok, fn, op) {"aten::" name, fn, ok, NULL, op, 0, LWF_real, NULL},
/* Rows have no commas between them. */
/* clang-format off */
const LwRow lw_rows_index[] = {
  I("embedding", ok_int_index, index_embedding, 0) I("gather", ok_int_index, index_along, 0)
  I("index_select", ok_select, index_along, 1) I("take", ok_int_index, index_take, 0)
  I("index.Tensor", ok_index, index_index, 1) I("_unsafe_index.Tensor", ok_index, index_index, 0)
  {"mg::check", index_check, NULL, NULL, 0, 0, 0, NULL},
  {"aten::one_hot", index_one_hot, ok_one_hot, NULL, 0, 0, 0, NULL},
  {0},
};
/* clang-format on */
