/* Lowering, the driver: functional graph -> schedule of loop nests and extern calls.
 * In: a graph without mutation and aliasing between nodes (functionalize), complete metadata.
 * Out: MgSched: every output in its own storage or a view of another's, write-backs as the last stores.
 * Order: nodes in program order; an op's lowering defines its results as expressions or appends nests;
 * whatever has no lowering becomes an extern item.  Then outputs, then write-backs (so every reader of an
 * input's old contents runs before the input is overwritten). */
#include "back/lower/lower.h"
#include "back/lower/lower_priv.h"
#include <string.h>
#include "tuning.h"

/* ---- analysis: who reads what
 * ----------------------------------------------------------------------------------- */

typedef struct LowerUse { /* state while visiting the arguments of one node */
  Lower *L;
  MgNode *n;
  NodeRef ref;
  const LwRow *row; /* NULL: extern */
  NodeRef *counted; /* per value: last node that was counted as reader */
  bool first;       /* first tensor argument */
} LowerUse;

static void lower_use(ValRef *v, void *arg) {
  LowerUse *u = arg;
  bool first = u->first;
  u->first = false;
  if (!*v) return;
  LwVal *lv = &u->L->val[*v];
  if (lv->last < u->ref) lv->last = u->ref;
  if (u->row && u->row->flags & LWF_view && first) { /* seen through the view */
    for (int i = 0; i < u->n->nout; i++) {
      if (!u->n->out[i]) continue;
      const LwVal *o = &u->L->val[u->n->out[i]];
      lv->uses += o->uses;
      lv->need_buf |= o->need_buf;
      if (lv->last < o->last) lv->last = o->last;
    }
    return;
  }
  if (!u->row && u->n->op->is_view) /* a call that returns a view: its readers read this memory */
    for (int i = 0; i < u->n->nout; i++)
      if (u->n->out[i] && lv->last < u->L->val[u->n->out[i]].last) lv->last = u->L->val[u->n->out[i]].last;
  if (!u->row || (u->row->flags & LWF_real && first && !u->L->gpu))
    lv->need_buf = true; /* a GPU rather computes what is looked up */
  if (u->counted[*v] == u->ref) return;
  u->counted[*v] = u->ref;
  bool once = u->row && (u->row->flags & LWF_again || (u->row->flags & LWF_few && u->L->gpu));
  lv->uses += u->row && u->row->flags & LWF_multi && first && !once ? 2 : 1;
}

static bool lower_is_alias(const MgGraph *g, uint32_t out) {
  return g->out_alias && (g->out_alias[out].of_input >= 0 || g->out_alias[out].of_output >= 0);
}

ValRef lw_base(Lower *L, ValRef v) {
  for (;;) {
    const MgVal *m = lw_meta(L, v);
    if (!m->def) return v;
    const MgNode *n = mg_node(L->g, m->def);
    const LwRow *row = lw_row_for(L->g, n);
    if (!row || !(row->flags & LWF_view) || !lw_first(n)) return v;
    v = lw_first(n);
  }
}

static MgRc lower_analyse(Lower *L) {
  MgGraph *g = L->g;
  NodeRef *counted = mg_new(L->c, NodeRef, g->nval);
  TRYP(counted);
  for (ValRef v = 0; v < g->nval; v++) L->val[v].out = L->val[v].wb = -1;
  for (uint32_t i = 0; i < g->noutput; i++) {
    if (!g->output[i]) continue;
    L->val[g->output[i]].uses++;
    L->val[g->output[i]].last = UINT32_MAX;
  }
  for (uint32_t i = 0; i < g->nwb; i++) {
    LwVal *lv = &L->val[g->wb_value[i]];
    lv->uses++;
    lv->last = UINT32_MAX;
    if (lv->wb < 0) lv->wb = (int32_t)i;
  }
  for (NodeRef r = g->nnode; r-- > 1;) {
    MgNode *n = mg_node(g, r);
    if (n->dead) continue;
    LowerUse u = {L, n, r, lw_row_for(g, n), counted, true};
    mg_node_each_val(n, lower_use, &u);
  }
  for (uint32_t i = g->noutput; i-- > 0;) {
    ValRef v = g->output[i], base = v ? lw_base(L, v) : 0;
    if (!v || lower_is_alias(g, i)) continue;
    if (base == v) L->val[v].need_buf = true;
    L->val[v].out = (int32_t)i;
    /* if the base is realised, the output is a view of it; and outputs that eager
     * makes of one memory share it */
    if (base != v && L->val[base].out >= 0) L->val[base].need_buf = L->val[base].shared = true;
    if (L->val[base].out < 0) L->val[base].out = (int32_t)i;
  }
  return MG_OK;
}

/* ---- the order of nodes
 * ---------------------------------------------------------------------------------------- */

/* nodes, in another order, in place of the graph's. */
static void lower_reorder(MgGraph *g, MgNode *node) {
  g->node = node;
  g->cap_node = g->nnode;
  for (NodeRef r = 1; r < g->nnode; r++)
    for (int i = 0; i < node[r].nout; i++)
      if (!node[r].dead && node[r].out[i]) mg_val(g, node[r].out[i])->def = r;
}

typedef struct LowerInputs {
  const MgGraph *g;
  bool all; /* the values seen are inputs on the GPU */
} LowerInputs;

static void lower_see_input(ValRef *v, void *arg) {
  LowerInputs *s = arg;
  const MgVal *m = mg_val(s->g, *v);
  s->all &= !m->def && m->device == DEV_cuda;
}

/* A copy of inputs in another format or type, or joined, as of filters and weights; none that is large. */
static bool lower_is_copy_of_input(const MgGraph *g, NodeRef r) {
  MgNode *n = mg_node(g, r);
  uint16_t code = n->op->code;
  if (n->dead || n->call || (code != TOP_clone && code != TOP__to_copy && code != TOP_cat)) return false;
  const MgVal *to = mg_val(g, n->out[0]);
  LowerInputs inputs = {g, to->ndim && to->device == DEV_cuda};
  int64_t points = 1;
  for (int d = 0; d < to->ndim; d++) points *= mg_sym_hint(g->x, to->size[d]);
  mg_node_each_val(n, lower_see_input, &inputs);
  return inputs.all && points <= MG_TUNE_GPU_BESIDE;
}

/* On a GPU such copies come first, where no library call keeps them from sharing launches. */
static MgRc lower_copies_first(Lower *L) {
  MgGraph *g = L->g;
  NodeRef at = 1;
  uint32_t copies = 0;
  for (NodeRef r = 1; L->gpu && r < g->nnode; r++) copies += lower_is_copy_of_input(g, r);
  if (copies < 2) return MG_OK;
  MgNode *node = mg_new(L->c, MgNode, g->nnode);
  TRYP(node);
  for (int rest = 0; rest < 2; rest++)
    for (NodeRef r = 1; r < g->nnode; r++)
      if (lower_is_copy_of_input(g, r) != rest) node[at++] = *mg_node(g, r);
  lower_reorder(g, node);
  return MG_OK;
}

/* ---- outputs that are asked for early
 * ---------------------------------------------------------------------------- */

static void lower_need(ValRef *v, void *arg) { ((bool *)arg)[*v] = true; }

/* Puts the nodes that they need first, with what draws or does more than give results before those. */
static MgRc lower_order(Lower *L) {
  MgGraph *g = L->g;
  if (!g->early) return MG_OK;
  bool *need = mg_new(L->c, bool, g->nval), *first = mg_new(L->c, bool, g->nnode), effects = false;
  MgNode *node = mg_new(L->c, MgNode, g->nnode);
  TRYP(need && first && node);
  for (uint32_t i = g->noutput; i-- > 0;) {
    if (g->early[i] && g->out_alias && g->out_alias[i].of_output >= 0)
      g->early[g->out_alias[i].of_output] = true;
    if (g->early[i]) need[g->output[i]] = true;
  }
  for (NodeRef r = g->nnode; r-- > 1;) {
    MgNode *n = mg_node(g, r);
    if (n->dead) continue;
    first[r] = effects && mg_node_effect(n);
    for (int i = 0; i < n->nout; i++) first[r] |= n->out[i] && need[n->out[i]];
    if (!first[r]) continue;
    effects |= mg_node_effect(n);
    mg_node_each_val(n, lower_need, need);
  }
  NodeRef at = 1;
  for (int late = 0; late < 2; late++) {
    for (NodeRef r = 1; r < g->nnode; r++)
      if (first[r] != late) node[at++] = *mg_node(g, r);
    if (!late) L->late = at;
  }
  lower_reorder(g, node);
  return MG_OK;
}

/* ---- inputs, extern calls
 * --------------------------------------------------------------------------------------- */

static MgRc lower_inputs(Lower *L) {
  for (uint32_t i = 0; i < L->g->ninput; i++) {
    ValRef v = L->g->input[i];
    const MgVal *m = lw_meta(L, v);
    MgView view = {
        .ndim = m->ndim, .dtype = m->dtype, .size = m->size, .stride = m->stride, .offset = lw_int(L, 0)};
    view.buf = mg_sched_buf(L->s, MB_input, (MgDtype)m->dtype, mg_view_extent(L->x, &view), NULL);
    TRYP(view.buf);
    L->s->buf[view.buf].index = (int32_t)i;
    L->s->buf[view.buf].device = m->device;
    lw_define_view(L, v, &view);
  }
  return MG_OK;
}

enum { LOWER_COPIES = 16 };

typedef struct LowerArgs { /* tensor arguments of an extern call, collected */
  Lower *L;
  MgExtern *e; /* NULL while counting */
  uint32_t n;
  bool nested; /* the library wants every dimension to lie within one place of the next larger */
  MgView copy[LOWER_COPIES]; /* of argument i, or buf 0 */
  MgRc rc;
} LowerArgs;

/* Dimensions that interleave, as every second column of a matrix does: its
 * columns reach into the next row. */
static bool lower_interleaves(Lower *L, const MgView *v) {
  int64_t size[LW_MAX_NDIM], step[LW_MAX_NDIM];
  int n = 0;
  for (int d = 0; d < v->ndim; d++) {
    int64_t many, by;
    if (!mg_ex_const_int(L->x, v->size[d], &many) || !mg_ex_const_int(L->x, v->stride[d], &by)) return false;
    if (many < 2 || by == 0) continue;
    int k = n++;
    for (; k > 0 && step[k - 1] > by; k--) size[k] = size[k - 1], step[k] = step[k - 1];
    size[k] = many, step[k] = by;
  }
  for (int k = 1; k < n; k++)
    if (step[k] < step[k - 1] * size[k - 1]) return true;
  return false;
}

/* A dense copy of a realised value. */
static MgRc lower_copy(Lower *L, ValRef v, MgView *out) {
  const MgVal *m = lw_meta(L, v);
  ExprRef at[LW_MAX_NDIM];
  for (int d = 0; d < m->ndim; d++) at[d] = mg_ex_idx(L->x, d);
  TRY(lw_temp(L, (MgDtype)m->dtype, m->device, m->ndim, m->size, NULL, out));
  return lw_store(L, out, lw_at(L, v, at));
}

static void lower_extern_arg(ValRef *v, void *arg) {
  LowerArgs *a = arg;
  if (*v && a->rc == MG_OK && a->e) {
    a->e->in[a->n] = a->n < LOWER_COPIES && a->copy[a->n].buf ? a->copy[a->n] : a->L->val[*v].view;
  } else if (*v && a->rc == MG_OK) {
    a->rc = lw_realise(a->L, *v);
    if (a->rc == MG_OK && a->nested && a->n < LOWER_COPIES && lower_interleaves(a->L, &a->L->val[*v].view))
      a->rc = lower_copy(a->L, *v, &a->copy[a->n]);
  }
  a->n++;
}

static MgRc lower_extern(Lower *L, MgNode *n) {
  LowerArgs args = {.L = L, .nested = n->op->code == TOP_mg_conv || n->op->code == TOP_mg_matmul};
  mg_node_each_tensor(n, lower_extern_arg, &args);
  TRY(args.rc);
  bool prealloc = !strncmp(n->op->name, "mg::", 4);
  MgView *out = mg_new(L->c, MgView, n->nout + 1);
  TRYP(out);
  for (int i = 0; i < n->nout; i++) {
    ValRef v = n->out[i];
    if (!v || !L->val[v].uses) continue; /* what nobody reads needs no place */
    if (prealloc) {
      TRY(lw_buffer(L, v, &out[i]));
    } else {
      const MgVal *m = lw_meta(L, v);
      out[i] = (MgView){
          .ndim = m->ndim, .dtype = m->dtype, .size = m->size, .stride = m->stride, .offset = lw_int(L, 0)};
      out[i].buf = mg_sched_buf(L->s, MB_extern_out, (MgDtype)m->dtype, mg_view_extent(L->x, &out[i]), NULL);
      TRYP(out[i].buf);
      L->s->buf[out[i].buf].device = m->device;
    }
    lw_define_view(L, v, &out[i]);
  }
  MgExtern *e = mg_sched_extern(L->s, L->node, args.n, n->nout);
  TRYP(e);
  e->prealloc = prealloc;
  memcpy(e->out, out, sizeof *out * n->nout);
  args.e = e;
  args.n = 0;
  mg_node_each_tensor(n, lower_extern_arg, &args);
  return MG_OK;
}

/* ---- nodes
 * ------------------------------------------------------------------------------------------------------- */

static bool lower_used(Lower *L, const MgNode *n) {
  for (int i = 0; i < n->nout; i++)
    if (n->out[i] && L->val[n->out[i]].uses) return true;
  return false;
}

static MgRc lower_node(Lower *L, NodeRef r) {
  MgNode *n = mg_node(L->g, r);
  L->node = r;
  if (n->dead) return MG_OK;
  const LwRow *row = lw_row_for(L->g, n);
  bool unread = n->nout && !lower_used(L, n) && !mg_node_raises(L->g, n);
  if (row) {
    if (unread) return MG_OK;
    MgRc rc = row->fn(L, n, row);
    if (rc != MG_UNSUP) return rc;
  }
  if (unread && !mg_node_effect(n)) return MG_OK; /* a call that only makes values nobody reads */
  return lower_extern(L, n);
}

/* ---- the end of the graph
 * ---------------------------------------------------------------------------------------- */

/* A view as loops can move it: complex128, for which they have no type, as pairs of
 * f64, with one more dimension. */
static MgRc lower_pairs(Lower *L, MgView *v) {
  if (v->dtype != DT_c128) return MG_OK;
  if (v->ndim == LW_MAX_NDIM) return mg_fail(L->c, MG_UNSUP, "complex128 of %d dimensions", v->ndim);
  SymRef *size = mg_new(L->c, SymRef, v->ndim + 1), *stride = mg_new(L->c, SymRef, v->ndim + 1),
         two = lw_int(L, 2);
  TRYP(size && stride);
  for (int d = 0; d < v->ndim; d++) {
    size[d] = v->size[d];
    stride[d] = mg_sym_mul(L->x, v->stride[d], two);
  }
  size[v->ndim] = two;
  stride[v->ndim] = lw_int(L, 1);
  *v = (MgView){.buf = v->buf,
                .ndim = v->ndim + 1,
                .dtype = DT_f64,
                .size = size,
                .stride = stride,
                .offset = mg_sym_mul(L->x, v->offset, two)};
  return MG_OK;
}

static MgRc lower_output(Lower *L, uint32_t i) {
  ValRef v = L->g->output[i];
  uint32_t first = L->s->nitem;
  if (!v || lower_is_alias(L->g, i)) return MG_OK;
  TRY(lw_realise(L, v));
  MgView view = L->val[v].view;
  if (L->s->buf[view.buf].kind == MB_temp) { /* an intermediate that others view: the output is a copy */
    MgView from = view;
    ExprRef at[LW_MAX_NDIM];
    if (from.ndim > LW_MAX_NDIM) return mg_fail(L->c, MG_UNSUP, "output of %d dimensions", from.ndim);
    view.offset = lw_int(L, 0);
    view.buf = mg_sched_buf(L->s, MB_output, (MgDtype)view.dtype, mg_view_extent(L->x, &view), NULL);
    TRYP(view.buf);
    L->s->buf[view.buf].index = (int32_t)i;
    L->s->buf[view.buf].device = L->s->buf[from.buf].device;
    MgView to = view;
    TRY(lower_pairs(L, &from));
    TRY(lower_pairs(L, &to));
    for (int d = 0; d < from.ndim; d++) at[d] = mg_ex_idx(L->x, d);
    TRY(lw_store(
        L, &to,
        mg_ex_load(L->x, mg_dtype_ty((MgDtype)to.dtype), from.buf, mg_view_index(L->x, &from, at), 0, 0)));
  }
  lw_from_value(L, first, v);
  L->s->out[i] = view;
  return MG_OK;
}

static bool lower_is_early(const MgGraph *g, uint32_t out) { return g->early && g->early[out]; }

static MgRc lower_outputs(Lower *L) {
  MgGraph *g = L->g;
  for (uint32_t i = 0; i < g->noutput; i++)
    if (!lower_is_early(g, i)) TRY(lower_output(L, i));
  /* the storage of an output belongs to the first output that shows it; storage that
   * none shows is a temporary */
  for (BufRef b = 1; b < L->s->nbuf; b++) {
    if (L->s->buf[b].kind != MB_output) continue;
    uint32_t i = 0;
    while (i < L->s->nout && L->s->out[i].buf != b) i++;
    L->s->buf[b].kind = i < L->s->nout ? MB_output : MB_temp;
    L->s->buf[b].index = i < L->s->nout ? (int32_t)i : -1;
  }
  return MG_OK;
}

/* Everything that was lowered so far runs before an input is written. */
static MgRc lower_early(Lower *L) {
  for (uint32_t i = 0; i < L->g->noutput; i++)
    if (lower_is_early(L->g, i)) TRY(lower_output(L, i));
  L->s->early_end = L->s->nitem + 1;
  return MG_OK;
}

typedef struct LowerWb { /* one write-back that is still to be stored */
  ExprRef e;             /* value over the input's indices */
  MgView to;             /* the input's memory */
  uint32_t storage;      /* of the input */
  ExprRef point;         /* element index of the store */
  bool done, temp;       /* stored; e is a temporary's contents */
  LwParts parts;         /* what is stored instead of e, which then reads nothing */
} LowerWb;

/* Does a load touch memory that storing w changes?  A load of the stored point itself is
 * harmless in w's own nest. */
static bool lower_wb_clobbers(Lower *L, const MgExpr *load, void *arg) {
  const LowerWb *w = arg;
  const MgBuf *b = &L->s->buf[load->u.i];
  return b->kind == MB_input && lw_meta(L, L->g->input[b->index])->storage == w->storage;
}

static bool lower_wb_clobbers_self(Lower *L, const MgExpr *load, void *arg) {
  const LowerWb *w = arg;
  return lower_wb_clobbers(L, load, arg) && ((BufRef)load->u.i != w->to.buf || load->src[0] != w->point);
}

/* The place and the value of a write-back, over the place's indices `at`. */
static MgRc lower_writeback(Lower *L, ValRef v, const ExprRef *at, LowerWb *w) {
  bool parts = false;
  if (w->to.dtype != DT_c128) TRY(lw_parts(L, v, &w->to, &w->parts, &parts));
  if (!parts) w->parts.n = 0;
  if (w->parts.n == 1) {
    w->to = w->parts.part[0].view;
    w->e = w->parts.part[0].e;
    w->parts.n = 0;
  } else if (parts) { /* none: nothing changed */
    w->done = !w->parts.n;
    TRY(lw_parts_apart(L, &w->parts, lw_meta(L, v)->device));
    w->e = lw_int(L, 0);
  } else if (w->to.dtype != DT_c128) {
    w->e = lw_at_bcast(L, v, at, w->to.ndim);
  } else {
    TRY(lw_realise(L, v));
    MgView from = L->val[v].view;
    bool same = from.ndim == w->to.ndim;
    for (int d = 0; d < from.ndim && same; d++) same = mg_ex_same(from.size[d], w->to.size[d]);
    if (!same) return mg_fail(L->c, MG_UNSUP, "write-back of a complex128 value of another shape");
    TRY(lower_pairs(L, &from));
    TRY(lower_pairs(L, &w->to));
    w->e = mg_ex_load(L->x, TY_f64, from.buf, mg_view_index(L->x, &from, at), 0, 0);
  }
  w->point = mg_view_index(L->x, &w->to, at);
  return MG_OK;
}

/* Stores every write-back; an order is chosen in which no value is read after its memory was overwritten, and
 * a value that has no such order is computed into a temporary first. */
static MgRc lower_writebacks(Lower *L) {
  MgGraph *g = L->g;
  LowerWb *w = mg_new(L->c, LowerWb, g->nwb + 1);
  TRYP(w);
  ExprRef at[LW_MAX_NDIM];
  for (int d = 0; d < LW_MAX_NDIM; d++) at[d] = mg_ex_idx(L->x, d);
  uint32_t left = 0;
  for (uint32_t k = 0; k < g->nwb; k++) {
    ValRef v = g->wb_value[k], in = g->wb_input[k];
    w[k].to = L->val[in].view;
    w[k].storage = lw_meta(L, in)->storage;
    if (w[k].to.ndim > LW_MAX_NDIM)
      return mg_fail(L->c, MG_UNSUP, "write-back of %d dimensions", w[k].to.ndim);
    if (L->gpu && lw_meta(L, in)->device == DEV_cpu) { /* no kernel writes there: the plan copies */
      TRY(lw_realise(L, v));
      if (!L->s->copy) TRYP(L->s->copy = mg_new(L->c, MgCopy, g->nwb));
      L->s->copy[L->s->ncopy++] = (MgCopy){.input = lw_meta(L, in)->out, .from = L->val[v].view};
      w[k].done = true;
      continue;
    }
    w[k].done =
        v == in || (L->val[v].kind == LW_buf && L->val[v].view.buf == w[k].to.buf &&
                    !memcmp(&L->val[v].view, &w[k].to, sizeof w[k].to)); /* stored when it was computed */
    if (w[k].done) continue;
    TRY(lower_writeback(L, v, at, &w[k]));
    left += !w[k].done;
  }
  while (left) {
    uint32_t pick = g->nwb, stuck = g->nwb;
    for (uint32_t k = 0; k < g->nwb && pick == g->nwb; k++) {
      if (w[k].done) continue;
      bool ok = !lw_reads(L, w[k].e, lower_wb_clobbers_self, &w[k]);
      for (uint32_t j = 0; j < g->nwb && ok; j++)
        ok = j == k || w[j].done || !lw_reads(L, w[j].e, lower_wb_clobbers, &w[k]);
      if (ok) pick = k;
      else if (stuck == g->nwb && !w[k].temp) stuck = k;
    }
    uint32_t k = pick < g->nwb ? pick : stuck;
    uint32_t first = L->s->nitem;
    if (pick < g->nwb) {
      for (int i = 0; i < w[k].parts.n; i++) TRY(lw_store(L, &w[k].parts.part[i].view, w[k].parts.part[i].e));
      if (!w[k].parts.n) TRY(lw_store(L, &w[k].to, w[k].e));
      w[k].done = true;
      left--;
    } else { /* through a temporary, which nothing overwrites */
      MgView t;
      const MgView *to = &w[k].to;
      TRY(lw_temp(L, (MgDtype)to->dtype, lw_meta(L, g->wb_input[k])->device, to->ndim, to->size, "writeback",
                  &t));
      TRY(lw_store(L, &t, w[k].e));
      w[k].temp = true;
      w[k].e = mg_ex_load(L->x, mg_dtype_ty((MgDtype)to->dtype), t.buf, mg_view_index(L->x, &t, at), 0, 0);
    }
    lw_from_value(L, first, g->wb_value[k]);
  }
  return MG_OK;
}

MgRc mg_lower(MgSched *s) {
  Lower L = {.s = s, .g = s->g, .x = s->x, .c = s->c};
  L.gpu = mg_graph_cuda(s->g) >= 0;
  L.val = mg_new(L.c, LwVal, s->g->nval + 1);
  TRYP(L.val);
  TRY(lower_copies_first(&L));
  TRY(lower_order(&L));
  TRY(lower_analyse(&L));
  TRY(lower_inputs(&L));
  for (NodeRef r = 1; r <= s->g->nnode; r++) {
    if (r == L.late) TRY(lower_early(&L));
    if (r < s->g->nnode) TRY(lower_node(&L, r));
  }
  L.node = 0;
  TRY(lower_outputs(&L));
  TRY(lower_writebacks(&L));
  TRY(lw_from_all(&L));
  return s->x->nomem ? MG_NOMEM : MG_OK;
}

bool mg_lower_knows(const MgGraph *g, NodeRef n) { return lw_row_for(g, mg_node(g, n)) != NULL; }
