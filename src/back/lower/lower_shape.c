/* Ops that move elements: cat, stack, pads, flips, rolls, repeats, writes into views.
 * Each result element comes from one place (or is a fill value), so all are expressions; cat and the scatters
 * of views are several nests that store into one buffer instead. */
#include "back/lower/lower_priv.h"
#include <stdlib.h>
#include <string.h>
#include "tuning.h"

static ExprRef shape_ge0(Lower *L, ExprRef e) { return lw_op2(L, OP_le, lw_int(L, 0), e); }

/* ---- cat, stack
 * ------------------------------------------------------------------------------------------------- */

/* Stores tensor v into the part of `view` that starts at `start` along dim; axis: the
 * tensor has no such dimension. */
static MgRc shape_place(Lower *L, const MgView *view, ValRef v, int dim, SymRef start, bool axis) {
  const MgVal *m = lw_meta(L, v);
  MgView part;
  ExprRef at[LW_MAX_NDIM], to[LW_MAX_NDIM];
  TRY(lw_part_range(L, view, dim, start, axis ? lw_int(L, 1) : m->size[dim], &part));
  lw_ids(L, at, view->ndim);
  for (int d = 0; d < m->ndim; d++) to[d] = at[axis && d >= dim ? d + 1 : d];
  return lw_store(L, &part, lw_at(L, v, to));
}

/* Is v a tensor that the program receives, and so needs memory of its own? */
static bool shape_shown(const Lower *L, ValRef v) {
  int32_t out = L->val[v].out;
  return out >= 0 && (uint32_t)out < L->g->noutput - L->g->nhidden;
}

/* An earlier concatenation that begins this one: its parts are the first of ours, its strides are ours, and
 * its memory has room for the rest (middle/layout gives strides that leave such gaps).  Then only the rest is
 * stored, behind it. The node, or 0; its memory is taken. */
static NodeRef shape_cat_begun(Lower *L, const MgNode *n, int dim, MgView *view) {
  const MgArg *list = lw_arg(n, "tensors");
  const MgVal *m = lw_meta(L, n->out[0]);
  int64_t need, have;
  if (!list->n || shape_shown(L, n->out[0]) || L->val[n->out[0]].wb >= 0) return 0;
  for (NodeRef k = L->node; k-- > 1;) {
    const MgNode *e = mg_node(L->g, k);
    const MgArg *part = lw_arg(e, "tensors");
    int edim;
    if (e->dead || e->op != n->op || part->n >= list->n || part->u.item[0].u.val != list->u.item[0].u.val)
      continue;
    LwVal *ev = &L->val[e->out[0]];
    const MgVal *me = lw_meta(L, e->out[0]);
    uint32_t i = 1;
    while (i < part->n && part->u.item[i].u.val == list->u.item[i].u.val) i++;
    if (i < part->n || ev->kind != LW_buf || shape_shown(L, e->out[0]) || ev->wb >= 0 || ev->continued)
      continue;
    if (!lw_arg_dim(L->g, e, "dim", me->ndim, &edim) || edim != dim || me->ndim != m->ndim ||
        me->dtype != m->dtype)
      continue;
    if (memcmp(me->stride, m->stride, sizeof *m->stride * m->ndim)) continue;
    *view = ev->view;
    view->size = m->size;
    if (!mg_ex_const_int(L->x, mg_view_extent(L->x, view), &need) ||
        !mg_ex_const_int(L->x, L->s->buf[view->buf].nelem, &have) || need > have)
      continue;
    ev->continued = true;
    MgBuf *b = &L->s->buf[view->buf];
    if (L->val[n->out[0]].out >= 0 && b->kind == MB_temp)
      b->kind = MB_output, b->index = L->val[n->out[0]].out;
    return k;
  }
  return 0;
}

/* On a GPU, and for a scan, few parts are one expression, which reads the part that a point lies in: one
 * kernel, which takes what follows along. The parts are other than the result, or there would be nothing to
 * choose from. */
static MgRc shape_cat_chosen(Lower *L, MgNode *n, int dim) {
  ValRef v = n->out[0];
  const MgVal *m = lw_meta(L, v);
  const MgArg *list = lw_arg(n, "tensors");
  ExprRef at[LW_MAX_NDIM], e = 0;
  SymRef start = lw_int(L, 0);
  for (uint32_t i = 0; i < list->n; i++) TRY(lw_settle(L, list->u.item[i].u.val));
  lw_ids(L, at, m->ndim);
  ExprRef along = at[dim];
  for (uint32_t i = 0; i < list->n; i++) {
    ValRef t = list->u.item[i].u.val;
    SymRef end = mg_sym_add(L->x, start, lw_meta(L, t)->size[dim]);
    ExprRef zero = lw_const(L, mg_dtype_compute((MgDtype)m->dtype), 0), in = lw_op2(L, OP_lt, along, end);
    if (i) in = lw_op2(L, OP_and, lw_op2(L, OP_le, start, along), in);
    at[dim] = mg_sym_sub(L->x, along, start);
    ExprRef part =
        lw_masked(L, mg_ex_cvt(L->x, mg_dtype_compute((MgDtype)m->dtype), lw_at(L, t, at)), in, zero);
    e = e ? lw_where(L, in, part, e) : part;
    start = end;
  }
  return lw_define(L, v, e);
}

/* Is all that reads v a running sum or product, which reads each element once?  Gradients of products are
 * such products of all the others, of which the first one is of none. */
static bool shape_is_scanned(Lower *L, ValRef v) {
  const LwVal *lv = &L->val[v];
  if (lv->uses != 1 || lv->need_buf || !lv->last || lv->last == UINT32_MAX) return false;
  const MgNode *reader = mg_node(L->g, lv->last);
  return reader->op->code == TOP_cumsum || reader->op->code == TOP_cumprod;
}

/* Parts of the result's rank, few of them. */
static bool shape_cat_is_chosen(Lower *L, const MgNode *n) {
  const MgArg *list = lw_arg(n, "tensors");
  const MgVal *m = lw_meta(L, n->out[0]);
  if (!L->gpu && !shape_is_scanned(L, n->out[0])) return false;
  if (list->n < 2 || list->n > MG_TUNE_CAT_PARTS || !mg_dtype_has_ty((MgDtype)m->dtype)) return false;
  for (uint32_t i = 0; i < list->n; i++)
    if (lw_meta(L, list->u.item[i].u.val)->ndim != m->ndim) return false;
  return true;
}

static MgRc shape_cat(Lower *L, MgNode *n, const LwRow *r) { /* op: 1 for stack */
  ValRef v = n->out[0];
  const MgVal *m = lw_meta(L, v);
  const MgArg *list = lw_arg(n, "tensors");
  int dim;
  if (!lw_arg_dim(L->g, n, "dim", m->ndim, &dim)) return MG_UNSUP;
  if (!r->op && shape_cat_is_chosen(L, n)) return shape_cat_chosen(L, n, dim);
  MgView view;
  NodeRef begun = r->op ? 0 : shape_cat_begun(L, n, dim, &view);
  uint32_t stored = begun ? lw_arg(mg_node(L->g, begun), "tensors")->n : 0;
  if (!begun) {
    TRY(lw_buffer(L, v, &view));
    MgBuf *b = &L->s->buf[view.buf]; /* gaps that the strides leave at the end belong to the buffer too */
    if ((b->kind == MB_temp || (b->kind == MB_output && !shape_shown(L, v))) && m->ndim)
      b->nelem = mg_sym_max(L->x, b->nelem, mg_sym_mul(L->x, m->size[0], m->stride[0]));
  }
  SymRef start = lw_int(L, 0);
  for (uint32_t i = 0; i < list->n; i++) {
    ValRef t = list->u.item[i].u.val;
    const MgVal *mt = lw_meta(L, t);
    if (!r->op && mt->ndim != m->ndim) continue; /* the legacy empty tensor of one dimension */
    if (i >= stored) TRY(shape_place(L, &view, t, dim, start, r->op));
    start = mg_sym_add(L->x, start, r->op ? lw_int(L, 1) : mt->size[dim]);
  }
  lw_define_view(L, v, &view);
  return MG_OK;
}
static bool ok_cat(const MgGraph *g, const MgNode *n) {
  const MgArg *a = lw_arg(n, "tensors");
  int d, nd = mg_val(g, n->out[0])->ndim;
  for (uint32_t i = 0; a->tag == MA_list && i < a->n; i++)
    if (a->u.item[i].tag != MA_val || !a->u.item[i].u.val) return false;
  return a->tag == MA_list && lw_arg_dim(g, n, "dim", nd, &d);
}

/* ---- pads
 * ---------------------------------------------------------------------------------------------------------
 */

enum { PAD_constant, PAD_reflect, PAD_replicate };

/* Element `i` of a dimension of n elements, seen from outside: reflected or clamped. */
static ExprRef shape_fold(Lower *L, int mode, ExprRef i, SymRef n) {
  SymRef last = mg_sym_sub(L->x, n, lw_int(L, 1));
  if (mode == PAD_replicate) return mg_sym_min(L->x, mg_sym_max(L->x, i, lw_int(L, 0)), last);
  ExprRef a = lw_op1(L, OP_abs, i);
  return mg_sym_sub(L->x, last, lw_op1(L, OP_abs, mg_sym_sub(L->x, last, a)));
}

/* The last dimension of a padded value in three parts, each of them contiguous in the source: its edges would
 * make every vector of the rows two loads and a choice. `at`: source element of a point
 * (the last dimension apart). */
static MgRc shape_pad_parts(Lower *L, ValRef src, ValRef v, int mode, const ExprRef *at, SymRef lo,
                            SymRef hi) {
  const MgVal *m = lw_meta(L, v);
  int d = m->ndim - 1;
  SymRef n = lw_meta(L, src)->size[d], last = mg_sym_sub(L->x, n, lw_int(L, 1)), size[] = {lo, n, hi},
         start = lw_int(L, 0);
  ExprRef to[LW_MAX_NDIM], i = mg_ex_idx(L->x, d), left = lw_int(L, 0), right = last;
  MgView view, part;
  if (mode == PAD_reflect) {
    left = mg_sym_sub(L->x, lo, i);
    right = mg_sym_sub(L->x, mg_sym_sub(L->x, last, lw_int(L, 1)), i);
  }
  ExprRef from[] = {left, i, right};
  TRY(lw_buffer(L, v, &view));
  memcpy(to, at, sizeof to);
  for (int k = 0; k < 3; k++) {
    TRY(lw_part_range(L, &view, d, start, size[k], &part));
    to[d] = from[k];
    if (!mg_sym_is(L->x, size[k], 0)) TRY(lw_store(L, &part, lw_at(L, src, to)));
    start = mg_sym_add(L->x, start, size[k]);
  }
  lw_define_view(L, v, &view);
  return MG_OK;
}

static bool shape_pads_in_parts(Lower *L, ValRef v, SymRef n, SymRef lo, SymRef hi) {
  int64_t a, b, c;
  if (!L->val[v].need_buf || L->val[v].wb >= 0 || !mg_ex_const_int(L->x, n, &a)) return false;
  if (!mg_ex_const_int(L->x, lo, &b) || !mg_ex_const_int(L->x, hi, &c)) return false;
  return b >= 0 && c >= 0 && b + c > 0 && a >= MG_TUNE_PAD_LEAST && (b + c) * MG_TUNE_PAD_EDGE <= a;
}

static MgRc shape_pad(Lower *L, MgNode *n, const LwRow *r) {
  ValRef src = lw_arg_val(n, "self"), v = n->out[0];
  const MgVal *m = lw_meta(L, v), *ms = lw_meta(L, src);
  const char *pad = lw_either(n, "pad", "padding");
  int nd = m->ndim, pairs = lw_arg_len(n, pad) / 2;
  MgTy ty = mg_dtype_compute((MgDtype)m->dtype);
  ExprRef at[LW_MAX_NDIM], to[LW_MAX_NDIM], in = lw_const(L, TY_i1, 1);
  lw_ids(L, at, nd);
  memcpy(to, at, sizeof at);
  if (r->op != PAD_constant) TRY(lw_settle(L, src));
  for (int k = 0; k < pairs; k++) {
    int d = nd - 1 - k;
    SymRef lo = lw_arg_item(L, n, pad, 2 * k, 0), hi = lw_arg_item(L, n, pad, 2 * k + 1, 0);
    to[d] = mg_sym_sub(L->x, at[d], lo);
    if (r->op != PAD_constant) {
      to[d] = shape_fold(L, r->op, to[d], ms->size[d]);
      continue;
    }
    if (!mg_sym_is(L->x, lo, 0)) in = lw_op2(L, OP_and, in, shape_ge0(L, to[d])); /* a negative pad crops */
    if (!mg_sym_is(L->x, hi, 0)) in = lw_op2(L, OP_and, in, lw_op2(L, OP_lt, to[d], ms->size[d]));
  }
  SymRef lo = lw_arg_item(L, n, pad, 0, 0), hi = lw_arg_item(L, n, pad, 1, 0);
  if (r->op != PAD_constant && shape_pads_in_parts(L, v, ms->size[nd - 1], lo, hi))
    return shape_pad_parts(L, src, v, r->op, to, lo, hi);
  ExprRef e = lw_at(L, src, to);
  if (r->op == PAD_constant) e = lw_masked(L, e, in, lw_arg_scalar(L, lw_arg(n, "value"), ty));
  return lw_define(L, v, e);
}

/* ---- index patterns
 * ----------------------------------------------------------------------------------------------- */

/* Marks the dims of a list argument; every dim when the list is empty and `all`. */
static bool shape_dims(Lower *L, const MgNode *n, const char *name, int nd, bool all, bool *mark) {
  int len = lw_arg_len(n, name);
  for (int d = 0; d < nd; d++) mark[d] = all && len == 0;
  for (int i = 0; i < len; i++) {
    int64_t v;
    if (!mg_ex_const_int(L->x, lw_arg_item(L, n, name, i, 0), &v)) return false;
    if (nd) mark[v < 0 ? v + nd : v] = true;
  }
  return true;
}

static MgRc shape_flip(Lower *L, MgNode *n,
                       const LwRow *r) { /* op: 0 dims argument, 1 first dim, 2 second dim */
  ValRef src = lw_arg_val(n, "self");
  const MgVal *m = lw_meta(L, src);
  bool mark[LW_MAX_NDIM] = {false};
  ExprRef at[LW_MAX_NDIM];
  if (r->op) mark[r->op - 1] = true;
  else if (!shape_dims(L, n, "dims", m->ndim, false, mark)) return MG_UNSUP;
  lw_ids(L, at, m->ndim);
  for (int d = 0; d < m->ndim; d++)
    if (mark[d]) at[d] = mg_sym_sub(L->x, mg_sym_sub(L->x, m->size[d], lw_int(L, 1)), at[d]);
  return lw_define(L, n->out[0], lw_at(L, src, at));
}

/* (i - shift) mod size, without a division: shift is reduced first */
static ExprRef shape_rolled(Lower *L, ExprRef i, SymRef shift, SymRef size) {
  SymRef s = mg_sym_mod(L->x, shift, size);
  ExprRef low = lw_op2(L, OP_lt, i, s);
  return lw_where(L, low, mg_sym_sub(L->x, mg_sym_add(L->x, i, size), s), mg_sym_sub(L->x, i, s));
}
static MgRc shape_roll(Lower *L, MgNode *n, const LwRow *r) {
  ValRef src = lw_arg_val(n, "self");
  const MgVal *m = lw_meta(L, src);
  ExprRef at[LW_MAX_NDIM], to[LW_MAX_NDIM];
  lw_ids(L, at, m->ndim);
  if (lw_arg_len(n, "dims") == 0) { /* of the flattened tensor */
    SymRef numel = mg_val_numel(L->g, src);
    ExprRef lin = lw_int(L, 0);
    for (int d = 0; d < m->ndim; d++) lin = mg_sym_add(L->x, mg_sym_mul(L->x, lin, m->size[d]), at[d]);
    if (mg_sym_is(L->x, numel, 0)) return lw_define(L, n->out[0], lw_at(L, src, at));
    lin = shape_rolled(L, lin, lw_arg_item(L, n, "shifts", 0, 0), numel);
    lw_reshape_map(L, m->size, m->ndim, &numel, 1, &lin, to);
    return lw_define(L, n->out[0], lw_at(L, src, to));
  }
  for (int i = 0; i < lw_arg_len(n, "dims"); i++) {
    int64_t d;
    if (!mg_ex_const_int(L->x, lw_arg_item(L, n, "dims", i, 0), &d)) return MG_UNSUP;
    d = d < 0 ? d + m->ndim : d;
    if (!mg_sym_is(L->x, m->size[d], 0))
      at[d] = shape_rolled(L, at[d], lw_arg_item(L, n, "shifts", i, 0), m->size[d]);
  }
  return lw_define(L, n->out[0], lw_at(L, src, at));
}

static MgRc shape_repeat(Lower *L, MgNode *n, const LwRow *r) { /* repeat, tile: index modulo the size */
  ValRef src = lw_arg_val(n, "self");
  const MgVal *m = lw_meta(L, src), *mo = lw_meta(L, n->out[0]);
  ExprRef to[LW_MAX_NDIM];
  int lead = mo->ndim - m->ndim;
  TRY(lw_settle(L, src));
  for (int d = 0; d < m->ndim; d++) {
    ExprRef i = mg_ex_idx(L->x, lead + d);
    bool same = mg_ex_same(m->size[d], mo->size[lead + d]) || mg_sym_is(L->x, m->size[d], 0);
    to[d] = same ? i : mg_sym_is(L->x, m->size[d], 1) ? lw_int(L, 0) : mg_sym_mod(L->x, i, m->size[d]);
  }
  return lw_define(L, n->out[0], lw_at(L, src, to));
}

static MgRc shape_repeat_interleave(Lower *L, MgNode *n, const LwRow *r) {
  ValRef src = lw_arg_val(n, "self");
  const MgVal *m = lw_meta(L, src);
  ExprRef at[LW_MAX_NDIM], to[LW_MAX_NDIM];
  int dim;
  SymRef times = lw_arg_sym(L, n, "repeats", 1);
  if (lw_meta(L, n->out[0])->ndim == 0) return MG_UNSUP;
  TRY(lw_settle(L, src));
  lw_ids(L, at, LW_MAX_NDIM);
  if (lw_is_none(n, "dim")) {
    SymRef numel = mg_val_numel(L->g, src);
    ExprRef lin = mg_sym_floordiv(L->x, at[0], times);
    lw_reshape_map(L, m->size, m->ndim, &numel, 1, &lin, to);
    return lw_define(L, n->out[0], lw_at(L, src, to));
  }
  if (!lw_arg_dim(L->g, n, "dim", m->ndim, &dim)) return MG_UNSUP;
  at[dim] = mg_sym_floordiv(L->x, at[dim], times);
  return lw_define(L, n->out[0], lw_at(L, src, at));
}

/* Is a value with src written into places that are no runs of elements better stored by two nests than read
 * as an expression, which asks of every point whether it is one of them? */
static bool shape_stores_part(Lower *L, ValRef v, ExprRef src) {
  return L->val[v].need_buf && L->val[v].wb < 0 && lw_cost(L, src).loads;
}

/* v, whose memory `view` holds the rest already, with src, broadcast, in a part. */
static MgRc shape_store_part(Lower *L, ValRef v, const MgView *view, const MgView *part, ValRef src) {
  ExprRef at[LW_MAX_NDIM];
  lw_ids(L, at, part->ndim);
  TRY(lw_store(L, part,
               mg_ex_cvt(L->x, mg_dtype_compute((MgDtype)view->dtype), lw_at_bcast(L, src, at, part->ndim))));
  lw_define_view(L, v, view);
  return MG_OK;
}

/* The result := base (over its indices), with src, broadcast, over the diagonal. */
static MgRc shape_store_diagonal(Lower *L, const MgNode *n, ExprRef base, ValRef src) {
  MgView view, part;
  TRY(lw_buffer(L, n->out[0], &view));
  TRY(lw_store(L, &view, base));
  TRY(lw_part_diagonal(L, n, &view, &part));
  return shape_store_part(L, n->out[0], &view, &part, src);
}

/* diag_embed: the last dimension becomes the diagonal of two new ones */
static MgRc shape_diag_embed(Lower *L, MgNode *n, const LwRow *r) {
  ValRef src = lw_arg_val(n, "self");
  const MgVal *m = lw_meta(L, src), *mo = lw_meta(L, n->out[0]);
  int a, b, k = 0;
  int64_t off = 0;
  if (!lw_arg_dim(L->g, n, "dim1", mo->ndim, &a) || !lw_arg_dim(L->g, n, "dim2", mo->ndim, &b) ||
      !lw_arg_int(L->g, n, "offset", &off))
    return MG_UNSUP;
  ExprRef to[LW_MAX_NDIM], i = mg_ex_idx(L->x, a), j = mg_ex_idx(L->x, b);
  for (int d = 0; d < mo->ndim; d++)
    if (d != a && d != b) to[k++] = mg_ex_idx(L->x, d);
  to[m->ndim - 1] = off > 0 ? i : j;
  ExprRef on = lw_op2(L, OP_eq, mg_sym_add(L->x, i, lw_int(L, off)), j);
  ExprRef zero = lw_const(L, mg_dtype_compute((MgDtype)m->dtype), 0), e = lw_at(L, src, to);
  if (shape_stores_part(L, n->out[0], e)) return shape_store_diagonal(L, n, zero, src);
  return lw_define(L, n->out[0], lw_masked(L, e, on, zero));
}

/* pixel_shuffle, pixel_unshuffle, channel_shuffle: a reshape, a permutation and a reshape at once */
static MgRc shape_pixel(Lower *L, MgNode *n,
                        const LwRow *r) { /* op: 0 shuffle, 1 unshuffle, 2 channel shuffle */
  ValRef src = lw_arg_val(n, "self");
  const MgVal *m = lw_meta(L, src), *mo = lw_meta(L, n->out[0]);
  int nd = m->ndim, c = nd - 3;
  ExprRef at[LW_MAX_NDIM];
  static const char *const factor[] = {"upscale_factor", "downscale_factor", "groups"};
  SymRef f = lw_arg_sym(L, n, factor[r->op], 1), ff = mg_sym_mul(L->x, f, f);
  lw_ids(L, at, nd);
  if (r->op == 2) {
    SymRef per = mg_sym_floordiv(L->x, m->size[1], f);
    at[1] =
        mg_sym_add(L->x, mg_sym_mul(L->x, mg_sym_mod(L->x, at[1], f), per), mg_sym_floordiv(L->x, at[1], f));
  } else if (r->op == 0) {
    ExprRef dy = mg_sym_mod(L->x, at[c + 1], f), dx = mg_sym_mod(L->x, at[c + 2], f);
    at[c] = mg_sym_add(L->x, mg_sym_mul(L->x, at[c], ff), mg_sym_add(L->x, mg_sym_mul(L->x, dy, f), dx));
    at[c + 1] = mg_sym_floordiv(L->x, at[c + 1], f);
    at[c + 2] = mg_sym_floordiv(L->x, at[c + 2], f);
  } else {
    ExprRef sub = mg_sym_mod(L->x, at[c], ff);
    at[c + 1] = mg_sym_add(L->x, mg_sym_mul(L->x, at[c + 1], f), mg_sym_floordiv(L->x, sub, f));
    at[c + 2] = mg_sym_add(L->x, mg_sym_mul(L->x, at[c + 2], f), mg_sym_mod(L->x, sub, f));
    at[c] = mg_sym_floordiv(L->x, at[c], ff);
  }
  (void)mo;
  return lw_define(L, n->out[0], lw_at(L, src, at));
}
static bool ok_3d(const MgGraph *g, const MgNode *n) { return mg_val(g, lw_arg_val(n, "self"))->ndim >= 3; }
static bool ok_2d(const MgGraph *g, const MgNode *n) { return mg_val(g, lw_arg_val(n, "self"))->ndim >= 2; }

/* rot90: k quarter turns of two dims */
static MgRc shape_rot90(Lower *L, MgNode *n, const LwRow *r) {
  ValRef src = lw_arg_val(n, "self");
  const MgVal *m = lw_meta(L, src);
  int64_t k, d[2];
  ExprRef at[LW_MAX_NDIM], i, j;
  if (!lw_arg_int(L->g, n, "k", &k) || lw_arg_len(n, "dims") != 2) return MG_UNSUP;
  for (int t = 0; t < 2; t++) {
    if (!mg_ex_const_int(L->x, lw_arg_item(L, n, "dims", t, 0), &d[t])) return MG_UNSUP;
    d[t] = d[t] < 0 ? d[t] + m->ndim : d[t];
  }
  lw_ids(L, at, m->ndim);
  i = at[d[0]], j = at[d[1]];
  SymRef one = lw_int(L, 1), last0 = mg_sym_sub(L->x, m->size[d[0]], one),
         last1 = mg_sym_sub(L->x, m->size[d[1]], one);
  switch (((k % 4) + 4) % 4) {
  case 1: at[d[0]] = j, at[d[1]] = mg_sym_sub(L->x, last1, i); break;
  case 2: at[d[0]] = mg_sym_sub(L->x, last0, i), at[d[1]] = mg_sym_sub(L->x, last1, j); break;
  case 3: at[d[0]] = mg_sym_sub(L->x, last0, j), at[d[1]] = i; break;
  default: break;
  }
  return lw_define(L, n->out[0], lw_at(L, src, at));
}

/* ---- writes into views
 * -------------------------------------------------------------------------------------------- */

/* A view of a tensor, seen from the tensor: index expressions of the view at the tensor's point (idx0, idx1,
 * ...), and the condition that the point lies in the view.  Arguments of the op: (view, sizes or
 * self, the view's own...). */
typedef struct {
  ExprRef to[LW_MAX_NDIM], in;
} ShapePart;
typedef MgRc ShapePartOf(Lower *L, MgNode *n, const MgVal *whole, const MgVal *view, ShapePart *p);

/* Every dim but a and b, in order; how many. */
static int shape_other_dims(Lower *L, int ndim, int a, int b, ExprRef *to) {
  int k = 0;
  for (int d = 0; d < ndim; d++)
    if (d != a && d != b) to[k++] = mg_ex_idx(L->x, d);
  return k;
}

static MgRc shape_part_slice(Lower *L, MgNode *n, const MgVal *whole, const MgVal *view,
                             ShapePart *p) { /* (.., dim, start, stop, step) */
  int dim;
  if (!lw_arg_dim(L->g, n, "dim", whole->ndim, &dim)) return MG_UNSUP;
  SymRef start = lw_slice_bound(L, lw_arg(n, "start"), whole->size[dim], lw_int(L, 0)),
         step = lw_arg_sym(L, n, "step", 1);
  SymRef count = view->ndim == whole->ndim ? view->size[dim] : lw_int(L, 1);
  if (mg_sym_is(L->x, count, 1)) { /* maybe broadcast to the slice */
    SymRef stop = lw_slice_bound(L, lw_arg(n, "end"), whole->size[dim], whole->size[dim]);
    SymRef span = mg_sym_max(L->x, mg_sym_sub(L->x, stop, start), lw_int(L, 0));
    count = mg_sym_floordiv(L->x, mg_sym_add(L->x, span, mg_sym_sub(L->x, step, lw_int(L, 1))), step);
  }
  ExprRef at[LW_MAX_NDIM], i = mg_sym_sub(L->x, mg_ex_idx(L->x, dim), start);
  lw_ids(L, at, whole->ndim);
  p->in = shape_ge0(L, i);
  if (!mg_sym_is(L->x, step, 1)) {
    p->in = lw_op2(L, OP_and, p->in, lw_op2(L, OP_eq, mg_sym_mod(L->x, i, step), lw_int(L, 0)));
    i = mg_sym_floordiv(L->x, i, step);
  }
  p->in = lw_op2(L, OP_and, p->in, lw_op2(L, OP_lt, i, count));
  at[dim] = i;
  int missing = whole->ndim - view->ndim; /* leading dims that the view is broadcast over */
  for (int d = 0; d < view->ndim; d++) p->to[d] = at[d + missing];
  return MG_OK;
}

static MgRc shape_part_select(Lower *L, MgNode *n, const MgVal *whole, const MgVal *view,
                              ShapePart *p) { /* (.., dim, index) */
  int dim;
  int64_t c;
  if (!lw_arg_dim(L->g, n, "dim", whole->ndim, &dim)) return MG_UNSUP;
  shape_other_dims(L, whole->ndim, dim, dim, p->to);
  SymRef i = lw_arg_sym(L, n, "index", 0), from_end = mg_sym_add(L->x, i, whole->size[dim]);
  if (mg_ex_const_int(L->x, i, &c)) i = c < 0 ? from_end : i;
  else i = lw_where(L, lw_op2(L, OP_lt, i, lw_int(L, 0)), from_end, i);
  p->in = lw_op2(L, OP_eq, mg_ex_idx(L->x, dim), i);
  return MG_OK;
}

static MgRc shape_part_diagonal(Lower *L, MgNode *n, const MgVal *whole, const MgVal *view,
                                ShapePart *p) { /* (.., offset, dim1, dim2) */
  int a, b;
  int64_t off = 0;
  if (!lw_arg_int(L->g, n, "offset", &off) || !lw_arg_dim(L->g, n, "dim1", whole->ndim, &a) ||
      !lw_arg_dim(L->g, n, "dim2", whole->ndim, &b))
    return MG_UNSUP;
  ExprRef i = mg_ex_idx(L->x, a), j = mg_ex_idx(L->x, b);
  p->to[shape_other_dims(L, whole->ndim, a, b, p->to)] = off > 0 ? i : j;
  p->in = lw_op2(L, OP_eq, mg_sym_add(L->x, i, lw_int(L, off)), j);
  return MG_OK;
}

/* self with src written into the view: (self, src, ...) */
static MgRc shape_scatter(Lower *L, MgNode *n, ShapePartOf *part_of) {
  ValRef self = lw_arg_val(n, "self"), src = lw_arg_val(n, "src");
  const MgVal *m = lw_meta(L, n->out[0]), *ms = lw_meta(L, src);
  ExprRef at[LW_MAX_NDIM];
  ShapePart p;
  TRY(part_of(L, n, m, ms, &p));
  lw_ids(L, at, m->ndim);
  ExprRef e = mg_ex_cvt(L->x, mg_dtype_compute((MgDtype)m->dtype), lw_at_bcast(L, src, p.to, ms->ndim));
  return lw_define(L, n->out[0], lw_masked(L, e, p.in, lw_at(L, self, at)));
}
static MgRc shape_slice_scatter(Lower *L, MgNode *n, const LwRow *r) {
  ValRef v = n->out[0], src = lw_arg_val(n, "src");
  bool done;
  TRY(lw_part_write(L, n, &done));
  if (done) return MG_OK;
  ExprRef at[LW_MAX_NDIM];
  MgView view, part;
  lw_ids(L, at, lw_meta(L, v)->ndim);
  bool apart = !mg_sym_is(L->x, lw_arg_sym(L, n, "step", 1), 1);
  if (!apart || !shape_stores_part(L, v, lw_at_bcast(L, src, at, lw_meta(L, v)->ndim)))
    return shape_scatter(L, n, shape_part_slice);
  TRY(lw_buffer(L, v, &view));
  TRY(lw_store(L, &view, lw_at(L, lw_arg_val(n, "self"), at)));
  TRY(lw_part_slice(L, n, &view, &part));
  return shape_store_part(L, v, &view, &part, src);
}
static MgRc shape_select_scatter(Lower *L, MgNode *n, const LwRow *r) {
  bool done;
  TRY(lw_part_write(L, n, &done));
  return done ? MG_OK : shape_scatter(L, n, shape_part_select);
}
static MgRc shape_diagonal_scatter(Lower *L, MgNode *n, const LwRow *r) {
  int nd = lw_meta(L, n->out[0])->ndim;
  ValRef src = lw_arg_val(n, "src");
  ExprRef at[LW_MAX_NDIM];
  bool done;
  TRY(lw_part_write(L, n, &done));
  if (done) return MG_OK;
  lw_ids(L, at, nd);
  if (!shape_stores_part(L, n->out[0], lw_at_bcast(L, src, at, nd - 1)))
    return shape_scatter(L, n, shape_part_diagonal);
  return shape_store_diagonal(L, n, lw_at(L, lw_arg_val(n, "self"), at), src);
}

/* as_strided_scatter: a copy of self, then src stored over the named elements */
static MgRc shape_as_strided_scatter(Lower *L, MgNode *n, const LwRow *r) {
  ValRef self = lw_arg_val(n, "self"), src = lw_arg_val(n, "src"), v = n->out[0];
  const MgVal *m = lw_meta(L, v), *ms = lw_meta(L, src), *mself = lw_meta(L, self);
  ExprRef at[LW_MAX_NDIM];
  lw_ids(L, at, LW_MAX_NDIM);
  for (int d = 0; d < m->ndim; d++)
    if (!mg_ex_same(m->stride[d], mself->stride[d])) return MG_UNSUP; /* strides are those of self's memory */
  TRY(lw_settle(L, src));
  MgView view;
  TRY(lw_buffer(L, v, &view));
  TRY(lw_store(L, &view, lw_at(L, self, at)));
  MgView part = {.buf = view.buf, .ndim = ms->ndim, .dtype = m->dtype, .size = ms->size};
  part.stride = mg_new(L->c, SymRef, ms->ndim + 1);
  TRYP(part.stride);
  for (int d = 0; d < ms->ndim; d++) part.stride[d] = lw_arg_item(L, n, "stride", d, 0);
  SymRef off = lw_arg(n, "storage_offset")->tag == MA_int
                   ? mg_sym_sub(L->x, lw_arg(n, "storage_offset")->u.sym, mself->offset)
                   : lw_int(L, 0);
  part.offset = mg_sym_add(L->x, view.offset, off);
  TRY(lw_store(L, &part, lw_at(L, src, at)));
  lw_define_view(L, v, &view);
  return MG_OK;
}

/* Gradients of views: zeros with the gradient written into the view: (grad, sizes, ...) */
static MgRc shape_unview(Lower *L, MgNode *n, ShapePartOf *part_of) {
  ValRef grad = lw_arg_val(n, "grad_output");
  const MgVal *m = lw_meta(L, n->out[0]);
  ShapePart p;
  TRY(part_of(L, n, m, lw_meta(L, grad), &p));
  return lw_define(
      L, n->out[0],
      lw_masked(L, lw_at(L, grad, p.to), p.in, lw_const(L, mg_dtype_compute((MgDtype)m->dtype), 0)));
}
static MgRc shape_slice_backward(Lower *L, MgNode *n, const LwRow *r) {
  ValRef grad = lw_arg_val(n, "grad_output"), v = n->out[0];
  ExprRef at[LW_MAX_NDIM];
  MgView view, part;
  lw_ids(L, at, LW_MAX_NDIM);
  bool apart = !mg_sym_is(L->x, lw_arg_sym(L, n, "step", 1), 1);
  if (!apart || !shape_stores_part(L, v, lw_at(L, grad, at))) return shape_unview(L, n, shape_part_slice);
  TRY(lw_buffer(L, v, &view));
  TRY(lw_store(L, &view, lw_const(L, mg_dtype_compute((MgDtype)view.dtype), 0)));
  TRY(lw_part_slice(L, n, &view, &part));
  return shape_store_part(L, v, &view, &part, grad);
}
static MgRc shape_select_backward(Lower *L, MgNode *n, const LwRow *r) {
  return shape_unview(L, n, shape_part_select);
}
static MgRc shape_diagonal_backward(Lower *L, MgNode *n, const LwRow *r) {
  const MgVal *m = lw_meta(L, n->out[0]);
  ValRef grad = lw_arg_val(n, "grad_output");
  ExprRef at[LW_MAX_NDIM];
  lw_ids(L, at, m->ndim - 1);
  if (!shape_stores_part(L, n->out[0], lw_at_bcast(L, grad, at, m->ndim - 1)))
    return shape_unview(L, n, shape_part_diagonal);
  return shape_store_diagonal(L, n, lw_const(L, mg_dtype_compute((MgDtype)m->dtype), 0), grad);
}

/* Pads' gradients: the gradient of every padded element is added where the element came from. */
static MgRc shape_pad_backward(Lower *L, MgNode *n, const LwRow *r) { /* (grad, self, padding) */
  ValRef grad = lw_arg_val(n, "grad_output"), v = n->out[0];
  const MgVal *m = lw_meta(L, v), *mg = lw_meta(L, grad);
  ExprRef at[LW_MAX_NDIM], to[LW_MAX_NDIM];
  MgView out;
  lw_ids(L, at, m->ndim);
  memcpy(to, at, sizeof at);
  for (int k = 0; k < lw_arg_len(n, "padding") / 2; k++) {
    int d = m->ndim - 1 - k;
    to[d] = shape_fold(L, r->op, mg_sym_sub(L->x, at[d], lw_arg_item(L, n, "padding", 2 * k, 0)), m->size[d]);
  }
  MgTy ty = mg_dtype_compute((MgDtype)m->dtype);
  ExprRef e = mg_ex_cvt(L->x, ty, lw_at(L, grad, at));
  TRY(lw_buffer(L, v, &out));
  TRY(lw_store(L, &out, lw_const(L, ty, 0)));
  MgLoop *l = mg_sched_loop(L->s, ML_scatter, L->node);
  TRYP(l);
  memcpy(l->range, mg->size, sizeof *l->range * mg->ndim);
  l->nouter = mg->ndim;
  l->mode = ST_add;
  l->buf = out.buf;
  l->index = mg_view_index(L->x, &out, to);
  l->value = e;
  lw_define_view(L, v, &out);
  return MG_OK;
}

#define S(name, ok, fn, op) {"aten::" name, fn, ok, NULL, op, 0, 0, NULL},
/* Rows have no commas between them. */
/* clang-format off */
const LwRow lw_rows_shape[] = {
  S("cat", ok_cat, shape_cat, 0) S("stack", ok_cat, shape_cat, 1)
  S("constant_pad_nd", NULL, shape_pad, PAD_constant)
  S("reflection_pad1d", lw_ok_not_bool, shape_pad, PAD_reflect)
  S("reflection_pad2d", lw_ok_not_bool, shape_pad, PAD_reflect)
  S("reflection_pad3d", lw_ok_not_bool, shape_pad, PAD_reflect)
  S("replication_pad1d", lw_ok_not_bool, shape_pad, PAD_replicate)
  S("replication_pad2d", lw_ok_not_bool, shape_pad, PAD_replicate)
  S("replication_pad3d", lw_ok_not_bool, shape_pad, PAD_replicate)
  S("flip", NULL, shape_flip, 0) S("flipud", NULL, shape_flip, 1) S("fliplr", NULL, shape_flip, 2)
  S("roll", NULL, shape_roll, 0) S("repeat", NULL, shape_repeat, 0) S("tile", NULL, shape_repeat, 0)
  S("repeat_interleave.self_int", NULL, shape_repeat_interleave, 0) S("diag_embed", NULL, shape_diag_embed, 0)
  S("pixel_shuffle", ok_3d, shape_pixel, 0) S("pixel_unshuffle", ok_3d, shape_pixel, 1)
  S("channel_shuffle", ok_2d, shape_pixel, 2) S("native_channel_shuffle", ok_2d, shape_pixel, 2)
  S("rot90", NULL, shape_rot90, 0)
  S("slice_scatter", NULL, shape_slice_scatter, 0) S("select_scatter", NULL, shape_select_scatter, 0)
  S("diagonal_scatter", NULL, shape_diagonal_scatter, 0)
  S("as_strided_scatter", NULL, shape_as_strided_scatter, 0)
  S("reflection_pad1d_backward", lw_ok_not_bool, shape_pad_backward, PAD_reflect)
  S("reflection_pad2d_backward", lw_ok_not_bool, shape_pad_backward, PAD_reflect)
  S("reflection_pad3d_backward", lw_ok_not_bool, shape_pad_backward, PAD_reflect)
  S("replication_pad1d_backward", lw_ok_not_bool, shape_pad_backward, PAD_replicate)
  S("replication_pad2d_backward", lw_ok_not_bool, shape_pad_backward, PAD_replicate)
  S("replication_pad3d_backward", lw_ok_not_bool, shape_pad_backward, PAD_replicate)
  S("diagonal_backward", NULL, shape_diagonal_backward, 0)
  S("slice_backward", NULL, shape_slice_backward, 0) S("select_backward", NULL, shape_select_backward, 0)
  {0},
};
/* clang-format on */
