/* Values while lowering: reading, costing, realising.
 * In: graph values in one of the states of lower_priv.h.  Out: expressions for readers, point nests that
 * realise values. Does not know any op. */
#include "back/lower/lower_priv.h"
#include <math.h>
#include <string.h>
#include "tuning.h"

MgVal *lw_meta(Lower *L, ValRef v) { return mg_val(L->g, v); }

/* ---- walks over expressions
 * ---------------------------------------------------------------------------------- */

/* Starts a walk: nodes stamped with the returned mark were seen in it. */
static MgRc value_walk(Lower *L) {
  if (L->nstamp < L->x->n) {
    uint32_t cap = L->x->n * 2;
    uint32_t *p = mg_ctx_grow(L->c, L->stamp, L->nstamp * sizeof *p, cap * sizeof *p);
    TRYP(p);
    L->stamp = p;
    L->nstamp = cap;
  }
  L->mark++;
  return MG_OK;
}

static bool value_seen(Lower *L, ExprRef e) {
  if (L->stamp[e] == L->mark) return true;
  L->stamp[e] = L->mark;
  return false;
}

/* Weights of one evaluation, relative to an addition. */
static uint32_t value_weight(MgScalarOp op) {
  switch (op) {
  case OP_none:
  case OP_const:
  case OP_sym:
  case OP_idx:
  case OP_red:
  case OP_load: return 0;
  case OP_cvt:
  case OP_bitcast:
  case OP_where:
  case OP_add:
  case OP_sub:
  case OP_mul:
  case OP_min:
  case OP_max:
  case OP_neg:
  case OP_abs:
  case OP_lt:
  case OP_le:
  case OP_eq:
  case OP_ne:
  case OP_and:
  case OP_or:
  case OP_xor:
  case OP_not: return 1;
  case OP_div:
  case OP_sqrt:
  case OP_rsqrt:
  case OP_floor:
  case OP_ceil:
  case OP_trunc: return 3;
  default: return 10;
  }
}

static void value_cost(Lower *L, ExprRef e, LwCost *cost) {
  if (!e || value_seen(L, e)) return;
  const MgExpr n = L->x->node[e];
  if (n.op == OP_load) cost->loads++; /* index arithmetic is strength-reduced by code generation */
  else cost->ops += value_weight((MgScalarOp)n.op);
  for (int i = n.op == OP_load ? 1 : 0; i < n.nsrc; i++) value_cost(L, n.src[i], cost);
}

LwCost lw_cost(Lower *L, ExprRef e) {
  LwCost cost = {0, 0};
  if (value_walk(L) == MG_OK) value_cost(L, e, &cost);
  return cost;
}

static bool value_reads(Lower *L, ExprRef e, bool (*hit)(Lower *, const MgExpr *, void *), void *arg) {
  if (!e || value_seen(L, e)) return false;
  const MgExpr n = L->x->node[e];
  if (n.op == OP_load && hit(L, &n, arg)) return true;
  for (int i = 0; i < n.nsrc; i++)
    if (value_reads(L, n.src[i], hit, arg)) return true;
  return false;
}

bool lw_reads(Lower *L, ExprRef e, bool (*hit)(Lower *L, const MgExpr *load, void *arg), void *arg) {
  return value_walk(L) == MG_OK && value_reads(L, e, hit, arg);
}

static bool any_load(Lower *L, const MgExpr *load, void *arg) { return true; }

typedef struct ValueMask {
  Lower *L;
  ExprRef mask;
} ValueMask;

/* Loads get the mask as well; everything else stays. */
static ExprRef value_mask_load(MgExprs *x, ExprRef e, const ExprRef *src, void *arg) {
  const ValueMask *m = arg;
  const MgExpr n = x->node[e];
  if (n.op != OP_load) return mg_ex_rebuild(x, e, src);
  ExprRef mask = src[1] ? lw_op2(m->L, OP_and, src[1], m->mask) : m->mask;
  return mg_ex_load(x, (MgTy)n.ty, (uint32_t)n.u.i, src[0], mask,
                    src[2] ? src[2] : lw_const(m->L, (MgTy)n.ty, 0));
}

ExprRef lw_masked(Lower *L, ExprRef e, ExprRef mask, ExprRef other) {
  int64_t k;
  if (mg_ex_const_int(L->x, mask, &k)) return k ? e : other;
  const MgExpr n = L->x->node[e];
  if (n.op == OP_load && !n.src[1]) /* the common case: one masked load */
    return mg_ex_load(L->x, (MgTy)n.ty, (uint32_t)n.u.i, n.src[0], mask, other);
  ValueMask m = {L, mask};
  return lw_where(L, mask, mg_ex_map(L->x, e, value_mask_load, &m), other);
}

/* ---- reading
 * ------------------------------------------------------------------------------------------------- */

ExprRef lw_at(Lower *L, ValRef v, const ExprRef *at) {
  const LwVal *lv = &L->val[v];
  const MgVal *m = lw_meta(L, v);
  if (lv->e) return mg_ex_subst(L->x, lv->e, at, m->ndim);
  if (m->dtype == DT_c128) { /* lower.c moves its halves */
    mg_fail(L->c, MG_BUG, "complex128 as one number of a loop");
    L->x->nomem = true;
    return 0;
  }
  ExprRef load = mg_ex_load(L->x, mg_dtype_ty((MgDtype)m->dtype), lv->view.buf,
                            mg_view_index(L->x, &lv->view, at), 0, 0);
  return mg_ex_cvt(L->x, mg_dtype_compute((MgDtype)m->dtype), load);
}

ExprRef lw_at_bcast(Lower *L, ValRef v, const ExprRef *at, int ndim) {
  const MgVal *m = lw_meta(L, v);
  ExprRef to[LW_MAX_NDIM];
  for (int d = 0; d < m->ndim; d++)
    to[d] = mg_sym_is(L->x, m->size[d], 1) ? lw_int(L, 0) : at[ndim - m->ndim + d];
  return lw_at(L, v, to);
}

ExprRef lw_const(Lower *L, MgTy ty, double v) {
  return mg_ty_is_float(ty) ? mg_ex_float(L->x, ty, v) : mg_ex_int(L->x, ty, (int64_t)v);
}

ExprRef lw_lowest(Lower *L, MgTy ty) {
  if (mg_ty_is_float(ty)) return mg_ex_float(L->x, ty, -INFINITY);
  if (!mg_ty_is_signed(ty)) return mg_ex_int(L->x, ty, 0);
  return mg_ex_int(L->x, ty, (int64_t)((uint64_t)-1 << (mg_ty_size(ty) * 8 - 1)));
}

ExprRef lw_highest(Lower *L, MgTy ty) {
  if (mg_ty_is_float(ty)) return mg_ex_float(L->x, ty, INFINITY);
  if (ty == TY_i1) return mg_ex_int(L->x, ty, 1);
  int bits = mg_ty_size(ty) * 8 - (mg_ty_is_signed(ty) ? 1 : 0);
  return mg_ex_int(L->x, ty, bits == 64 ? -1 : (int64_t)(((uint64_t)1 << bits) - 1));
}

ExprRef lw_in_range(Lower *L, ExprRef i, SymRef n) {
  return lw_op2(L, OP_and, lw_op2(L, OP_le, lw_int(L, 0), i), lw_op2(L, OP_lt, i, n));
}

/* ---- realising
 * ----------------------------------------------------------------------------------------------- */

MgRc lw_temp(Lower *L, MgDtype dt, int device, int ndim, const SymRef *size, const char *name, MgView *out) {
  SymRef *dim = mg_new(L->c, SymRef, ndim * 2 + 1), n = lw_int(L, 1);
  TRYP(dim);
  for (int d = ndim; d-- > 0;) {
    dim[d] = size[d];
    dim[ndim + d] = n;
    n = mg_sym_mul(L->x, n, mg_sym_max(L->x, size[d], lw_int(L, 1)));
  }
  *out = (MgView){.buf = mg_sched_buf(L->s, MB_temp, dt, n, name),
                  .ndim = (uint8_t)ndim,
                  .dtype = (uint8_t)dt,
                  .size = dim,
                  .stride = dim + ndim,
                  .offset = lw_int(L, 0)};
  TRYP(out->buf);
  L->s->buf[out->buf].device = (uint8_t)device;
  return MG_OK;
}

typedef struct ValuePoint {
  BufRef buf;
  ExprRef index;
} ValuePoint;

/* A load from the buffer, but not of the point. */
static bool value_other_point(Lower *L, const MgExpr *load, void *arg) {
  ValuePoint *q = arg;
  return (BufRef)load->u.i == q->buf && load->src[0] != q->index;
}

static bool live_reads_buf(Lower *L, const MgExpr *load, void *arg) {
  return (BufRef)load->u.i == *(BufRef *)arg;
}

/* Memory of the input that value v will be written back to, when storing there now is safe but for what v
 * itself reads: nobody else reads the old contents later. */
static bool value_wb_memory(Lower *L, ValRef v, MgView *out) {
  const LwVal *lv = &L->val[v];
  if (lv->wb < 0 || L->node < L->late) return false;
  ValRef in = L->g->wb_input[lv->wb];
  const MgVal *mi = lw_meta(L, in), *mv = lw_meta(L, v);
  if (mg_node(L->g, mv->def)->nout > 1) return false; /* the other results may still read the argument */
  if (L->val[in].last > L->node || mi->ndim != mv->ndim || mi->dtype != mv->dtype) return false;
  for (int d = 0; d < mv->ndim; d++) /* the invariant of LW_buf: eager's strides for this value */
    if (!mg_ex_same(mi->stride[d], mv->stride[d]) || !mg_ex_same(mi->size[d], mv->size[d])) return false;
  for (uint32_t i = 0; i < L->g->ninput; i++) { /* another input over the same memory */
    ValRef o = L->g->input[i];
    if (o != in && lw_meta(L, o)->storage == mi->storage) return false;
  }
  for (uint32_t i = 0; i < L->g->noutput; i++)
    if (L->g->output[i] == v && !(L->g->out_alias && L->g->out_alias[i].of_input >= 0)) return false;
  BufRef b = L->val[in].view.buf;
  for (ValRef o = 1; o < L->g->nval; o++) {
    const LwVal *lo = &L->val[o];
    if (o == v || lo->kind != LW_expr || lo->last <= L->node) continue;
    if (lw_reads(L, lo->e, live_reads_buf, &b)) return false;
  }
  *out = L->val[in].view;
  return true;
}

/* Do all of e's loads from the view's buffer read the element that is stored? */
static bool value_reads_own_point(Lower *L, ExprRef e, const MgView *view) {
  ExprRef at[LW_MAX_NDIM];
  lw_ids(L, at, view->ndim);
  ValuePoint q = {view->buf, mg_view_index(L->x, view, at)};
  return !lw_reads(L, e, value_other_point, &q);
}

static bool value_wb_view(Lower *L, ValRef v, MgView *out) {
  return L->val[v].e && value_wb_memory(L, v, out) && value_reads_own_point(L, L->val[v].e, out);
}

/* Stores into the input's memory the parts in which v differs from it; done: that is all of v. */
static MgRc value_store_parts(Lower *L, ValRef v, bool *done) {
  MgView view;
  LwParts p = {.n = 0};
  if (!value_wb_memory(L, v, &view)) return MG_OK;
  TRY(lw_parts(L, v, &view, &p, done));
  if (!*done) return MG_OK;
  if (p.n > 1 || (p.n && !value_reads_own_point(L, p.part[0].e, &p.part[0].view)))
    TRY(lw_parts_apart(L, &p, lw_meta(L, v)->device));
  for (int i = 0; i < p.n; i++) TRY(lw_store(L, &p.part[i].view, p.part[i].e));
  lw_define_view(L, v, &view);
  return MG_OK;
}

MgRc lw_buffer(Lower *L, ValRef v, MgView *out) {
  const MgVal *m = lw_meta(L, v);
  const LwVal *lv = &L->val[v];
  if (value_wb_view(L, v, out)) return MG_OK;
  *out = (MgView){
      .ndim = m->ndim, .dtype = m->dtype, .size = m->size, .stride = m->stride, .offset = lw_int(L, 0)};
  out->buf = mg_sched_buf(L->s, lv->out >= 0 ? MB_output : MB_temp, (MgDtype)m->dtype,
                          mg_view_extent(L->x, out), NULL);
  TRYP(out->buf);
  L->s->buf[out->buf].device = m->device;
  if (lv->out >= 0) L->s->buf[out->buf].index = lv->out;
  return MG_OK;
}

typedef struct ValueCount {
  ValRef v;
  uint32_t n;
} ValueCount;

static void value_count(ValRef *v, void *arg) {
  ValueCount *q = arg;
  q->n += *v == q->v;
}

bool lw_take(Lower *L, ValRef from, ValRef v, bool read_too, MgView *out) {
  const LwVal *f = &L->val[from], *lv = &L->val[v];
  const MgVal *m = lw_meta(L, v);
  if (f->kind != LW_buf || f->last != L->node || f->continued || lv->wb >= 0) return false;
  MgBuf *b = &L->s->buf[f->view.buf];
  if (b->kind != MB_temp || b->dtype != m->dtype || f->view.ndim != m->ndim ||
      !mg_sym_is(L->x, f->view.offset, 0))
    return false;
  for (int d = 0; d < m->ndim; d++)
    if (!mg_ex_same(f->view.size[d], m->size[d]) || !mg_ex_same(f->view.stride[d], m->stride[d]))
      return false;
  if (!mg_ex_same(b->nelem, mg_view_extent(L->x, &f->view))) return false;
  BufRef r = f->view.buf;
  ValueCount arg = {from, 0}; /* as two arguments it is read while it is written */
  mg_node_each_val(mg_node(L->g, L->node), value_count, &arg);
  if (arg.n != 1) return false;
  for (ValRef o = 1; o < L->g->nval; o++) {
    const LwVal *lo = &L->val[o];
    if (o == from || lo->last < L->node || (read_too && lo->last == L->node)) continue;
    if (lo->kind == LW_buf ? lo->view.buf == r
                           : lo->kind == LW_expr && lw_reads(L, lo->e, live_reads_buf, &r))
      return false;
  }
  *out = f->view;
  if (lv->out >= 0) b->kind = MB_output, b->index = lv->out;
  return true;
}

typedef struct ValueReads {
  Lower *L;
  ValRef self;
  BufRef buf;
  bool yes;
} ValueReads;

static void value_arg_reads(ValRef *v, void *arg) {
  ValueReads *q = arg;
  const LwVal *lv = &q->L->val[*v];
  if (!*v || *v == q->self) return;
  q->yes |= lv->kind == LW_buf ? lv->view.buf == q->buf : lw_reads(q->L, lv->e, live_reads_buf, &q->buf);
}

/* Does an argument of the node other than self read the buffer? */
static bool value_args_read(Lower *L, const MgNode *n, ValRef self, BufRef buf) {
  ValueReads q = {L, self, buf, false};
  mg_node_each_val((MgNode *)n, value_arg_reads, &q);
  return q.yes;
}

bool lw_take_input(Lower *L, ValRef self, ValRef v, MgView *out) {
  const MgNode *n = mg_node(L->g, L->node);
  ValueCount arg = {self, 0};
  if (L->val[v].wb < 0 || L->g->wb_input[L->val[v].wb] != self || !value_wb_memory(L, v, out)) return false;
  mg_node_each_val((MgNode *)n, value_count, &arg);
  return arg.n == 1 && !value_args_read(L, n, self, out->buf);
}

/* True when dimension b should be inside dimension a. */
static bool ranges_before(Lower *L, const MgView *v, int a, int b) {
  return mg_sym_hint(L->x, v->stride[a]) >= mg_sym_hint(L->x, v->stride[b]);
}

void lw_ranges(Lower *L, MgLoop *l, const MgView *view, ExprRef *to) {
  int order[LW_MAX_NDIM], n = 0;
  for (int d = 0; d < view->ndim; d++) {
    to[d] = lw_int(L, 0);
    /* one element, or all elements of the dimension share one place (expanded): one store is enough */
    if (mg_sym_is(L->x, view->size[d], 1)) continue;
    if (mg_sym_is(L->x, view->stride[d], 0) && !mg_sym_is(L->x, view->size[d], 0)) continue;
    int k = n++;
    while (k > 0 && !ranges_before(L, view, order[k - 1], d)) order[k] = order[k - 1], k--;
    order[k] = d;
  }
  for (int k = 0; k < n; k++) {
    l->range[k] = view->size[order[k]];
    to[order[k]] = mg_ex_idx(L->x, k);
  }
  l->nouter = (uint8_t)n;
  l->buf = view->buf;
  l->index = mg_view_index(L->x, view, to);
}

MgRc lw_store(Lower *L, const MgView *view, ExprRef e) {
  MgLoop *l = mg_sched_loop(L->s, ML_point, L->node);
  TRYP(l);
  ExprRef to[LW_MAX_NDIM];
  lw_ranges(L, l, view, to);
  l->value = mg_ex_subst(L->x, e, to, view->ndim);
  return MG_OK;
}

MgRc lw_realise(Lower *L, ValRef v) {
  LwVal *lv = &L->val[v];
  if (lv->view.buf) return MG_OK;
  if (lv->kind != LW_expr) return mg_fail(L->c, MG_BUG, "lowering: value %u is read before it is defined", v);
  MgView view;
  bool done = false;
  TRY(value_store_parts(L, v, &done));
  if (done) return MG_OK;
  TRY(lw_buffer(L, v, &view));
  TRY(lw_store(L, &view, lv->e));
  if (lw_meta(L, v)->def)
    L->s->item[L->s->nitem - 1].u.loop->node = lw_meta(L, v)->def; /* not of the reader */
  lv->view = view;
  if (lv->shared || lw_reads(L, lv->e, any_load, NULL)) {
    lv->kind = LW_buf;
    lv->e = 0;
  }
  return MG_OK;
}

static bool value_cheap(Lower *L, ExprRef e) {
  LwCost k = lw_cost(L, e);
  return k.loads <= 1 && k.ops <= MG_TUNE_READ_TWICE;
}

/* A number of the CPU in a graph of a GPU, whose kernels cannot store it there. */
static bool value_is_host_number(Lower *L, ValRef v) {
  const MgVal *m = lw_meta(L, v);
  return L->gpu && m->device == DEV_cpu && !m->ndim && !L->val[v].need_buf;
}

MgRc lw_settle(Lower *L, ValRef v) {
  LwVal *lv = &L->val[v];
  if (lv->kind != LW_expr || value_cheap(L, lv->e) || value_is_host_number(L, v)) return MG_OK;
  return lw_realise(L, v);
}

/* Is every value of e one of type ty, which it was rounded to before? */
static bool value_is_rounded(Lower *L, ExprRef e, MgTy ty, int depth) {
  const MgExpr n = L->x->node[e];
  double v;
  if (depth == 0) return false;
  switch (n.op) {
  case OP_const: return mg_ex_const_float(L->x, e, &v) && mg_scalar_wrap(ty, (MgScalar){.f = v}).f == v;
  case OP_cvt: return lw_ty(L, n.src[0]) == ty || lw_ty(L, n.src[0]) == TY_i1;
  case OP_neg:
  case OP_abs:
  case OP_floor:
  case OP_ceil:
  case OP_trunc:
  case OP_round:
  case OP_copysign: return value_is_rounded(L, n.src[0], ty, depth - 1);
  case OP_min:
  case OP_max:
    return value_is_rounded(L, n.src[0], ty, depth - 1) && value_is_rounded(L, n.src[1], ty, depth - 1);
  case OP_where:
    return value_is_rounded(L, n.src[1], ty, depth - 1) && value_is_rounded(L, n.src[2], ty, depth - 1);
  default: return false;
  }
}

/* e in the type that values of the dtype are computed in. */
static ExprRef value_rounded(Lower *L, MgDtype dt, ExprRef e) {
  if (L->x->numerics != MN_fast && (dt == DT_f16 || dt == DT_bf16) &&
      !value_is_rounded(L, e, mg_dtype_ty(dt), MG_TUNE_ROUNDED_DEPTH))
    e = mg_ex_cvt(L->x, mg_dtype_ty(dt), e);
  return mg_ex_cvt(L->x, mg_dtype_compute(dt), e);
}

/* Is there a part that the host does not know before the steps run? */
static bool value_is_late(const MgExprs *x, ExprRef e, void *arg) {
  const Lower *L = arg;
  const MgExpr *n = mg_expr(x, e);
  switch (n->op) {
  case OP_sym:
  case OP_idx:
  case OP_red:
  case OP_rand: return true;
  case OP_load: {
    const MgBuf *b = &L->s->buf[n->u.i];
    int64_t at;
    return n->src[1] || !mg_ex_const_int(x, n->src[0], &at) ||
           (b->kind != MB_number && (b->kind != MB_input || b->device != DEV_cpu));
  }
  default: return false;
  }
}

/* The value as a number that the host computes once for all its readers, if it can. */
static MgRc value_number(Lower *L, ValRef v, ExprRef e, bool *done) {
  MgView view;
  *done = false;
  if (!value_is_host_number(L, v) || mg_expr(L->x, e)->op == OP_const || mg_ex_any(L->x, e, value_is_late, L))
    return MG_OK;
  TRY(lw_temp(L, (MgDtype)lw_meta(L, v)->dtype, DEV_cpu, 0, NULL, "number", &view));
  TRY(mg_sched_number(L->s, view.buf, e));
  lw_define_view(L, v, &view);
  *done = true;
  return MG_OK;
}

static bool value_load_turned(Lower *L, const MgExpr *load, void *arg) {
  return !load->src[1] && mg_index_turned(L->x, load->src[0], *(int *)arg - 1);
}

/* Is it made of a large tensor in another order, so that rows of the one are columns of the other? */
static bool value_is_turned(Lower *L, ValRef v, ExprRef e) {
  const MgVal *m = lw_meta(L, v);
  int ndim = m->ndim;
  int64_t points = 1;
  for (int d = 0; d < ndim; d++) points *= mg_sym_hint(L->x, m->size[d]);
  return ndim > 1 && points >= MG_TUNE_GPU_TURNED && lw_reads(L, e, value_load_turned, &ndim);
}

MgRc lw_define(Lower *L, ValRef v, ExprRef e) {
  LwVal *lv = &L->val[v];
  if (!e) return L->x->nomem ? MG_NOMEM : mg_fail(L->c, MG_BUG, "lowering: no expression for value %u", v);
  lv->kind = LW_expr;
  lv->e = value_rounded(L, (MgDtype)lw_meta(L, v)->dtype, e);
  if (!lv->e) return MG_NOMEM;
  bool done;
  TRY(value_number(L, v, lv->e, &done));
  if (done || value_is_host_number(L, v)) return MG_OK;
  LwCost k = lw_cost(L, lv->e);
  if (!k.loads && k.ops <= MG_TUNE_READ_TWICE && !lv->shared)
    return MG_OK; /* constants and index patterns: realised when asked */
  if (L->gpu && lv->uses > 1 && value_is_turned(L, v, lv->e)) return lw_realise(L, v); /* once, by tiles */
  if (lv->need_buf || (lv->uses > 1 && !(k.loads <= 1 && k.ops <= MG_TUNE_READ_TWICE)) ||
      k.ops > MG_TUNE_VALUE_OPS || k.loads > MG_TUNE_VALUE_LOADS)
    return lw_realise(L, v);
  return MG_OK;
}

void lw_define_view(Lower *L, ValRef v, const MgView *view) {
  L->val[v].kind = LW_buf;
  L->val[v].e = 0;
  L->val[v].view = *view;
}

/* ---- checks
 * -------------------------------------------------------------------------------------------------- */

MgRc lw_check(Lower *L, ExprRef bad, const SymRef *size, int ndim, const char *type, const char *msg) {
  int64_t k;
  if (mg_ex_const_int(L->x, bad, &k) && !k) return MG_OK;
  SymRef points = lw_int(L, 1);
  for (int d = 0; d < ndim; d++) points = mg_sym_mul(L->x, points, size[d]);
  for (uint32_t i = 0; i < L->nchecked && i < 32; i++) /* the same tensor indexes twice */
    if (L->checked[i].bad == bad && L->checked[i].points == points) return MG_OK;
  L->checked[L->nchecked % 32].bad = bad;
  L->checked[L->nchecked++ % 32].points = points;
  uint32_t cell;
  TRY(mg_sched_check(L->s, L->node, type, msg, &cell));
  MgLoop *l = mg_sched_loop(L->s, ML_reduce, L->node);
  TRYP(l);
  for (int d = 0; d < ndim; d++) l->range[d] = size[d];
  if (L->gpu) {
    l->kind = ML_point;
    l->nouter = (uint8_t)ndim;
    l->value = mg_ex_cvt(L->x, TY_i32, bad);
    L->s->buf[L->s->err].device = DEV_cuda;
  } else {
    l->nred = (uint8_t)ndim;
    l->red_op = RED_any;
    l->body = bad;
    l->value = mg_ex_cvt(L->x, TY_i32, mg_ex_red(L->x, TY_i1));
  }
  l->buf = L->s->err;
  l->index = lw_int(L, cell);
  return MG_OK;
}
