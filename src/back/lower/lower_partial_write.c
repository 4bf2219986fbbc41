/* Writes into parts of an input: x[3] = y, x.diagonal().mul_(2), a cache's next position.
 * In: a value that functionalize wrote as a tensor with views of it replaced (slice_scatter and
 * its kind), one in the other.
 * Out: the views that differ from what the input's memory holds, each with what it gets, so that nothing else
 * is stored.
 * Temporaries that are filled part by part are written where they lie, too. */
#include "back/lower/lower_priv.h"
#include <string.h>
#include "tuning.h"

static MgRc part_copy(Lower *L, const MgView *whole, MgView *part) {
  *part = *whole;
  part->size = mg_new(L->c, SymRef, whole->ndim + 1);
  part->stride = mg_new(L->c, SymRef, whole->ndim + 1);
  TRYP(part->size && part->stride);
  memcpy(part->size, whole->size, sizeof *part->size * whole->ndim);
  memcpy(part->stride, whole->stride, sizeof *part->stride * whole->ndim);
  return MG_OK;
}

static void part_skip(Lower *L, MgView *part, int dim, SymRef by) {
  part->offset = mg_sym_add(L->x, part->offset, mg_sym_mul(L->x, by, part->stride[dim]));
}

static void part_drop(MgView *part, int dim) {
  for (int d = dim; d + 1 < part->ndim; d++)
    part->size[d] = part->size[d + 1], part->stride[d] = part->stride[d + 1];
  part->ndim--;
}

MgRc lw_part_range(Lower *L, const MgView *whole, int dim, SymRef start, SymRef size, MgView *part) {
  TRY(part_copy(L, whole, part));
  part_skip(L, part, dim, start);
  part->size[dim] = size;
  return MG_OK;
}

MgRc lw_part_slice(Lower *L, const MgNode *n, const MgView *whole,
                   MgView *part) { /* (.., dim, start, end, step) */
  int dim;
  if (!lw_arg_dim(L->g, n, "dim", whole->ndim, &dim)) return MG_UNSUP;
  SymRef size = whole->size[dim], step = lw_arg_sym(L, n, "step", 1);
  SymRef start = lw_slice_bound(L, lw_arg(n, "start"), size, lw_int(L, 0)),
         end = lw_slice_bound(L, lw_arg(n, "end"), size, size);
  SymRef span = mg_sym_max(L->x, mg_sym_sub(L->x, end, start), lw_int(L, 0));
  SymRef count = mg_sym_floordiv(L->x, mg_sym_add(L->x, span, mg_sym_sub(L->x, step, lw_int(L, 1))), step);
  TRY(lw_part_range(L, whole, dim, start, count, part));
  part->stride[dim] = mg_sym_mul(L->x, part->stride[dim], step);
  return MG_OK;
}

MgRc lw_part_select(Lower *L, const MgNode *n, const MgView *whole, MgView *part) { /* (.., dim, index) */
  int dim;
  int64_t c;
  if (!lw_arg_dim(L->g, n, "dim", whole->ndim, &dim)) return MG_UNSUP;
  SymRef i = lw_arg_sym(L, n, "index", 0), from_end = mg_sym_add(L->x, i, whole->size[dim]);
  if (mg_ex_const_int(L->x, i, &c)) i = c < 0 ? from_end : i;
  else i = lw_where(L, lw_op2(L, OP_lt, i, lw_int(L, 0)), from_end, i);
  TRY(part_copy(L, whole, part));
  part_skip(L, part, dim, i);
  part_drop(part, dim);
  return MG_OK;
}

MgRc lw_part_diagonal(Lower *L, const MgNode *n, const MgView *whole,
                      MgView *part) { /* (.., offset, dim1, dim2) */
  int a, b;
  int64_t off = 0;
  if (!lw_arg_int(L->g, n, "offset", &off) || !lw_arg_dim(L->g, n, "dim1", whole->ndim, &a) ||
      !lw_arg_dim(L->g, n, "dim2", whole->ndim, &b))
    return MG_UNSUP;
  SymRef rows = whole->size[a], columns = whole->size[b], skip = lw_int(L, off > 0 ? off : -off);
  if (off > 0) columns = mg_sym_sub(L->x, columns, skip);
  else rows = mg_sym_sub(L->x, rows, skip);
  SymRef both = mg_sym_add(L->x, whole->stride[a], whole->stride[b]);
  TRY(part_copy(L, whole, part));
  part_skip(L, part, off > 0 ? b : a, skip);
  part_drop(part, a > b ? a : b);
  part_drop(part, a > b ? b : a);
  part->size[part->ndim] = mg_sym_max(L->x, mg_sym_min(L->x, rows, columns), lw_int(L, 0));
  part->stride[part->ndim++] = both;
  return MG_OK;
}

/* The view of `whole` that node n, which makes a new value of one of that shape, replaces;
 * MG_UNSUP: it is none of these ops. */
static MgRc part_of(Lower *L, const MgNode *n, const MgView *whole, MgView *part) {
  switch (n->op->code) {
  case TOP_slice_scatter: return lw_part_slice(L, n, whole, part);
  case TOP_select_scatter: return lw_part_select(L, n, whole, part);
  case TOP_diagonal_scatter: return lw_part_diagonal(L, n, whole, part);
  default: return MG_UNSUP;
  }
}

static bool part_is_one(const MgNode *n) {
  return n->op->code == TOP_slice_scatter || n->op->code == TOP_select_scatter ||
         n->op->code == TOP_diagonal_scatter;
}

/* Is v what lies at `memory` already? */
static bool part_holds(Lower *L, ValRef v, const MgView *memory) {
  ExprRef at[LW_MAX_NDIM];
  MgDtype dt = (MgDtype)memory->dtype;
  if (L->val[v].kind != LW_buf || lw_meta(L, v)->ndim != memory->ndim || lw_meta(L, v)->dtype != dt)
    return false;
  lw_ids(L, at, LW_MAX_NDIM);
  ExprRef there = mg_ex_load(L->x, mg_dtype_ty(dt), memory->buf, mg_view_index(L->x, memory, at), 0, 0);
  return lw_at(L, v, at) == mg_ex_cvt(L->x, mg_dtype_compute(dt), there);
}

/* x[3] += y writes what the addition left there once more. */
static bool part_repeats(Lower *L, const LwParts *p, const LwPart *q) {
  ExprRef at[LW_MAX_NDIM];
  const LwPart *last = p->n ? &p->part[p->n - 1] : NULL;
  if (!last || last->e != q->e || last->view.ndim != q->view.ndim) return false;
  for (int d = 0; d < q->view.ndim; d++)
    if (!mg_ex_same(last->view.size[d], q->view.size[d])) return false;
  lw_ids(L, at, LW_MAX_NDIM);
  return mg_view_index(L->x, &last->view, at) == mg_view_index(L->x, &q->view, at);
}

MgRc lw_parts(Lower *L, ValRef v, const MgView *memory, LwParts *out, bool *found) {
  *found = part_holds(L, v, memory);
  /* realised values stand for themselves: what they were made of may be overwritten since */
  if (*found || L->val[v].kind != LW_expr || !lw_meta(L, v)->def) return MG_OK;
  const MgNode *n = mg_node(L->g, lw_meta(L, v)->def);
  MgView part;
  ValRef src = lw_arg_val(n, "src");
  MgRc rc = part_of(L, n, memory, &part);
  if (rc == MG_UNSUP) return MG_OK;
  TRY(rc);
  TRY(lw_parts(L, lw_arg_val(n, "self"), memory, out, found));
  if (!*found) return MG_OK;
  bool inner = false;
  int before = out->n;
  if (lw_meta(L, src)->ndim == part.ndim && lw_meta(L, src)->dtype == part.dtype)
    TRY(lw_parts(L, src, &part, out, &inner));
  if (inner) return MG_OK;
  out->n = before;
  *found = out->n < LW_MAX_PARTS;
  if (!*found) return MG_OK;
  ExprRef at[LW_MAX_NDIM];
  lw_ids(L, at, LW_MAX_NDIM);
  LwPart q = {part,
              mg_ex_cvt(L->x, mg_dtype_compute((MgDtype)part.dtype), lw_at_bcast(L, src, at, part.ndim))};
  if (!part_repeats(L, out, &q)) out->part[out->n++] = q;
  return MG_OK;
}

/* Does a load read what a write-back changes? */
static bool part_reads_written(Lower *L, const MgExpr *load, void *arg) {
  const MgBuf *b = &L->s->buf[load->u.i];
  for (uint32_t k = 0; b->kind == MB_input && k < L->g->nwb; k++)
    if (lw_meta(L, L->g->wb_input[k])->storage == lw_meta(L, L->g->input[b->index])->storage) return true;
  return false;
}

/* e, which the part gets, computed now into a temporary. */
static MgRc part_apart(Lower *L, const MgView *part, int device, ExprRef *e) {
  ExprRef at[LW_MAX_NDIM];
  MgView t;
  lw_ids(L, at, LW_MAX_NDIM);
  TRY(lw_temp(L, (MgDtype)part->dtype, device, part->ndim, part->size, "part", &t));
  TRY(lw_store(L, &t, *e));
  ExprRef load = mg_ex_load(L->x, mg_dtype_ty((MgDtype)t.dtype), t.buf, mg_view_index(L->x, &t, at), 0, 0);
  *e = mg_ex_cvt(L->x, mg_dtype_compute((MgDtype)t.dtype), load);
  return MG_OK;
}

MgRc lw_parts_apart(Lower *L, LwParts *p, int device) {
  for (int i = 0; i < p->n; i++)
    if (lw_reads(L, p->part[i].e, part_reads_written, NULL))
      TRY(part_apart(L, &p->part[i].view, device, &p->part[i].e));
  return MG_OK;
}

/* ---- temporaries ---- */

typedef struct PartRead {
  const MgView *part;
  ExprRef own;
} PartRead;

/* Are two places of the view, of which dimensions before d are the same, `by` elements apart? */
static bool part_spans(Lower *L, const MgView *p, int d, int64_t by) {
  int64_t n, step, rest = 0, k;
  if (d == p->ndim) return !by;
  for (int i = d + 1; i < p->ndim; i++) {
    if (!mg_ex_const_int(L->x, p->size[i], &n) || !mg_ex_const_int(L->x, p->stride[i], &step) || step < 0)
      return true;
    rest += (n - 1) * step;
  }
  if (!mg_ex_const_int(L->x, p->size[d], &n) || !mg_ex_const_int(L->x, p->stride[d], &step) || step < 0)
    return true;
  if (!step || n == 1) return part_spans(L, p, d + 1, by);
  int64_t least = (by - rest) / step - 1, most = (by + rest) / step + 1;
  if (least < 1 - n) least = 1 - n;
  if (most > n - 1) most = n - 1;
  if (most - least > 8) return true; /* not in order of strides: maybe */
  for (k = least; k <= most; k++)
    if (part_spans(L, p, d + 1, by - k * step)) return true;
  return false;
}

/* Does a load read places of the part other than the one that is stored? */
static bool part_reads_others(Lower *L, const MgExpr *load, void *arg) {
  PartRead *q = arg;
  int64_t by;
  if ((BufRef)load->u.i != q->part->buf || load->src[0] == q->own) return false;
  return !mg_ex_const_int(L->x, mg_sym_sub(L->x, load->src[0], q->own), &by) || part_spans(L, q->part, 0, by);
}

/* Nodes after n that each write a part of what the one before gave, of the next few. */
static int part_chain(Lower *L, const MgNode *n) {
  ValRef v = n->out[0];
  int found = 0;
  for (NodeRef k = L->node + 1;
       k < L->g->nnode && k < L->node + MG_TUNE_PART_NEAR && found < MG_TUNE_PART_ENOUGH; k++) {
    const MgNode *m = mg_node(L->g, k);
    if (m->dead || !part_is_one(m) || lw_arg_val(m, "self") != v || L->val[m->out[0]].wb >= 0) continue;
    v = m->out[0];
    found++;
  }
  return found;
}

static bool part_is_empty(const MgNode *n) {
  switch (n->op->code) {
  case TOP_empty_memory_format:
  case TOP_empty_like:
  case TOP_empty_strided:
  case TOP_new_empty:
  case TOP_new_empty_strided: return true;
  default: return false;
  }
}

/* Memory for the first value of several that differ in parts, with the places in it that are not written. */
static MgRc part_begin(Lower *L, const MgNode *n, MgView *view, bool *done) {
  ValRef self = lw_arg_val(n, "self"), v = n->out[0];
  const LwVal *lv = &L->val[self];
  const MgNode *def = lw_meta(L, self)->def ? mg_node(L->g, lw_meta(L, self)->def) : NULL;
  ExprRef at[LW_MAX_NDIM];
  *done = def && lv->kind == LW_expr && L->val[v].wb < 0 && !part_is_one(def) &&
          part_chain(L, n) >= (lw_cost(L, lv->e).loads ? 2 : 1);
  if (!*done) return MG_OK;
  lw_ids(L, at, LW_MAX_NDIM);
  TRY(lw_buffer(L, v, view));
  return part_is_empty(def) ? MG_OK : lw_store(L, view, lw_at(L, self, at));
}

MgRc lw_part_write(Lower *L, const MgNode *n, bool *done) {
  ValRef self = lw_arg_val(n, "self"), src = lw_arg_val(n, "src"), v = n->out[0];
  const MgVal *m = lw_meta(L, v);
  ExprRef at[LW_MAX_NDIM];
  MgView view = {.ndim = m->ndim,
                 .dtype = m->dtype,
                 .size = m->size,
                 .stride = m->stride,
                 .offset = lw_int(L, 0)},
         part;
  *done = false;
  TRY(part_of(L, n, &view, &part)); /* a form that is not known is said so before anything is taken */
  *done = lw_take(L, self, v, true, &view);
  if (!*done) TRY(part_begin(L, n, &view, done));
  if (!*done) return MG_OK;
  TRY(part_of(L, n, &view, &part));
  lw_ids(L, at, LW_MAX_NDIM);
  ExprRef e = mg_ex_cvt(L->x, mg_dtype_compute((MgDtype)part.dtype), lw_at_bcast(L, src, at, part.ndim));
  for (int d = 0; d < part.ndim; d++)
    if (mg_sym_is(L->x, part.size[d], 1)) at[d] = lw_int(L, 0); /* as loads have it */
  PartRead q = {&part, mg_view_index(L->x, &part, at)};
  if (lw_reads(L, e, part_reads_others, &q)) TRY(part_apart(L, &part, lw_meta(L, v)->device, &e));
  TRY(lw_store(L, &part, e));
  lw_define_view(L, v, &view);
  return MG_OK;
}
