/* Writes into parts of an input: x[3] = y, x.diagonal().mul_(2), a cache's next position.
 * In: a value that functionalize wrote as a tensor with views of it replaced (slice_scatter and its kind), one in the other.
 * Out: the views that differ from what the input's memory holds, each with what it gets, so that nothing else is stored. */
#include "back/lower.h"
#include <string.h>

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
  for (int d = dim; d + 1 < part->ndim; d++) part->size[d] = part->size[d + 1], part->stride[d] = part->stride[d + 1];
  part->ndim--;
}

MgRc lw_part_range(Lower *L, const MgView *whole, int dim, SymRef start, SymRef size, MgView *part) {
  TRY(part_copy(L, whole, part));
  part_skip(L, part, dim, start);
  part->size[dim] = size;
  return MG_OK;
}

MgRc lw_part_slice(Lower *L, const MgNode *n, const MgView *whole, MgView *part) { /* (.., dim, start, end, step) */
  int dim;
  if (!lw_arg_dim(L->g, n, 2, whole->ndim, &dim)) return MG_UNSUP;
  SymRef size = whole->size[dim], step = lw_arg_sym(L, n, 5, 1);
  SymRef start = lw_slice_bound(L, n, 3, size, lw_int(L, 0)), end = lw_slice_bound(L, n, 4, size, size);
  SymRef span = mg_sym_max(L->x, mg_sym_sub(L->x, end, start), lw_int(L, 0));
  SymRef count = mg_sym_floordiv(L->x, mg_sym_add(L->x, span, mg_sym_sub(L->x, step, lw_int(L, 1))), step);
  TRY(lw_part_range(L, whole, dim, start, count, part));
  part->stride[dim] = mg_sym_mul(L->x, part->stride[dim], step);
  return MG_OK;
}

MgRc lw_part_select(Lower *L, const MgNode *n, const MgView *whole, MgView *part) { /* (.., dim, index) */
  int dim;
  int64_t c;
  if (!lw_arg_dim(L->g, n, 2, whole->ndim, &dim)) return MG_UNSUP;
  SymRef i = lw_arg_sym(L, n, 3, 0), from_end = mg_sym_add(L->x, i, whole->size[dim]);
  if (mg_ex_const_int(L->x, i, &c)) i = c < 0 ? from_end : i;
  else i = lw_where(L, lw_op2(L, OP_lt, i, lw_int(L, 0)), from_end, i);
  TRY(part_copy(L, whole, part));
  part_skip(L, part, dim, i);
  part_drop(part, dim);
  return MG_OK;
}

MgRc lw_part_diagonal(Lower *L, const MgNode *n, int first, const MgView *whole, MgView *part) { /* (.., offset, dim1, dim2) */
  int a, b;
  int64_t off = 0;
  if (!lw_arg_int(L->g, n, first, &off) || !lw_arg_dim(L->g, n, first + 1, whole->ndim, &a) || !lw_arg_dim(L->g, n, first + 2, whole->ndim, &b)) return MG_UNSUP;
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

/* The view of `whole` that node n, which makes a new value of one of that shape, replaces; MG_UNSUP: it is none of these ops. */
static MgRc part_of(Lower *L, const MgNode *n, const MgView *whole, MgView *part) {
  switch (n->op->code) {
  case TOP_slice_scatter: return lw_part_slice(L, n, whole, part);
  case TOP_select_scatter: return lw_part_select(L, n, whole, part);
  case TOP_diagonal_scatter: return lw_part_diagonal(L, n, 2, whole, part);
  default: return MG_UNSUP;
  }
}

/* Is v what lies at `memory` already? */
static bool part_holds(Lower *L, ValRef v, const MgView *memory) {
  ExprRef at[LW_MAX_NDIM];
  MgDtype dt = (MgDtype)memory->dtype;
  if (L->val[v].kind != LW_buf || lw_meta(L, v)->ndim != memory->ndim || lw_meta(L, v)->dtype != dt) return false;
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
  ValRef src = lw_arg_val(n, 1);
  MgRc rc = part_of(L, n, memory, &part);
  if (rc == MG_UNSUP) return MG_OK;
  TRY(rc);
  TRY(lw_parts(L, lw_arg_val(n, 0), memory, out, found));
  if (!*found) return MG_OK;
  bool inner = false;
  int before = out->n;
  if (lw_meta(L, src)->ndim == part.ndim && lw_meta(L, src)->dtype == part.dtype) TRY(lw_parts(L, src, &part, out, &inner));
  if (inner) return MG_OK;
  out->n = before;
  *found = out->n < LW_MAX_PARTS;
  if (!*found) return MG_OK;
  ExprRef at[LW_MAX_NDIM];
  lw_ids(L, at, LW_MAX_NDIM);
  LwPart q = {part, mg_ex_cvt(L->x, mg_dtype_compute((MgDtype)part.dtype), lw_at_bcast(L, src, at, part.ndim))};
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

MgRc lw_parts_apart(Lower *L, LwParts *p, int device) {
  ExprRef at[LW_MAX_NDIM];
  lw_ids(L, at, LW_MAX_NDIM);
  for (int i = 0; i < p->n; i++) {
    MgView t;
    LwPart *q = &p->part[i];
    if (!lw_reads(L, q->e, part_reads_written, NULL)) continue;
    TRY(lw_temp(L, (MgDtype)q->view.dtype, device, q->view.ndim, q->view.size, "part", &t));
    TRY(lw_store(L, &t, q->e));
    ExprRef load = mg_ex_load(L->x, mg_dtype_ty((MgDtype)t.dtype), t.buf, mg_view_index(L->x, &t, at), 0, 0);
    q->e = mg_ex_cvt(L->x, mg_dtype_compute((MgDtype)t.dtype), load);
  }
  return MG_OK;
}
