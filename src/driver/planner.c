/* Translates what the back end decided into the flat tables of runtime/plan/plan.
 * In: final steps, buffers, arena offsets, code.  Out: MgPlanSpec.  The only place that knows both worlds:
 * expressions
 * become slots and a size program, buffers become places in memory, views become tensor geometry. */
#include "driver/planner.h"
#include <string.h>
#include <stdio.h>
#include "back/kernel/loop_nest.h"
#include "base/assert.h"
#include "driver/kernel/kernels.h"
#include "driver/kernel/label.h"
#include "driver/numbers.h"
#include "driver/size_facts.h"
#include "ir/infer/infer.h"
#include "runtime/plan/plan_spec.h"
#include "tuning.h"

typedef struct Planner {
  MgSched *s;
  const MgFused *f;
  const MgMemPlan *m;
  uint32_t nplanned; /* buffers that the memory plan knows; later ones are inputs */
  MgPlanSpec *spec;
  int64_t *slot;
  uint32_t nslot, cap_slot;
  MgSizeOp *op;
  uint32_t nop, cap_op;
  uint32_t *memo; /* per expression: slot + 1 */
  MgPlanBuf *buf;
  MgView *owner; /* per buffer: geometry of the tensor that owns it (an extern result or a fresh tensor) */
  int32_t *owner_out; /* per buffer: the output that is the fresh tensor itself, or -1 */
} Planner;

/* ---- sizes ---- */

static MgRc planner_slots(Planner *p, uint32_t n, uint32_t *first) {
  if (p->nslot + n > p->cap_slot) {
    uint32_t cap = (p->nslot + n) * 2 + 64;
    p->slot = mg_ctx_grow(p->s->c, p->slot, sizeof *p->slot * p->nslot, sizeof *p->slot * cap);
    TRYP(p->slot);
    p->cap_slot = cap;
  }
  *first = p->nslot;
  p->nslot += n;
  return MG_OK;
}

static MgRc planner_op(Planner *p, MgSizeOpKind op, uint32_t dst, uint32_t a, uint32_t b) {
  if (p->nop == p->cap_op) {
    uint32_t cap = p->cap_op * 2 + 32;
    p->op = mg_ctx_grow(p->s->c, p->op, sizeof *p->op * p->nop, sizeof *p->op * cap);
    TRYP(p->op);
    p->cap_op = cap;
  }
  p->op[p->nop++] = (MgSizeOp){op, dst, a, b};
  return MG_OK;
}

static bool planner_size_op(uint16_t op, MgSizeOpKind *k) {
  switch (op) {
  case OP_add: return *k = SZ_add, true;
  case OP_sub: return *k = SZ_sub, true;
  case OP_mul: return *k = SZ_mul, true;
  case OP_floordiv: return *k = SZ_floordiv, true;
  case OP_mod: return *k = SZ_mod, true;
  case OP_min: return *k = SZ_min, true;
  case OP_max: return *k = SZ_max, true;
  default: return false;
  }
}

/* Slot of a size expression. */
static MgRc planner_sym(Planner *p, SymRef r, uint32_t *out) {
  const MgExprs *x = p->s->x;
  MgExpr e = *mg_expr(x, r);
  MgSizeOpKind k;
  uint32_t a, b;
  if (p->memo[r]) return *out = p->memo[r] - 1, MG_OK;
  if (e.op == OP_sym) return *out = (uint32_t)e.u.i, MG_OK;
  if (e.op == OP_const) {
    TRY(planner_slots(p, 1, out));
    p->slot[*out] = e.u.i;
  } else if (e.op == OP_neg) {
    TRY(planner_sym(p, e.src[0], &a));
    TRY(planner_slots(p, 2, out)); /* the other one stays 0 */
    TRY(planner_op(p, SZ_sub, *out, *out + 1, a));
  } else if (planner_size_op(e.op, &k)) {
    TRY(planner_sym(p, e.src[0], &a));
    TRY(planner_sym(p, e.src[1], &b));
    TRY(planner_slots(p, 1, out));
    TRY(planner_op(p, k, *out, a, b));
  } else {
    return mg_fail(p->s->c, MG_UNSUP, "a size uses an operation that plans cannot evaluate");
  }
  p->memo[r] = *out + 1;
  return MG_OK;
}

/* Can planner_sym evaluate r? */
static bool planner_computes(const Planner *p, SymRef r) {
  const MgExpr *e = mg_expr(p->s->x, r);
  MgSizeOpKind k;
  if (p->memo[r] || e->op == OP_sym || e->op == OP_const) return true;
  if (e->op != OP_neg && !planner_size_op(e->op, &k)) return false;
  return planner_computes(p, e->src[0]) && (e->op == OP_neg || planner_computes(p, e->src[1]));
}

/* The slot of a size that profilers show, as MgPlanShape has it. */
static bool planner_shown(void *planner, SymRef size, int64_t *out) {
  uint32_t slot;
  if (!planner_computes(planner, size) || planner_sym(planner, size, &slot) != MG_OK) return false;
  return *out = -1 - (int64_t)slot, true;
}

/* n consecutive slots for sizes or strides. */
static MgRc planner_dims(Planner *p, const SymRef *v, uint32_t n, uint32_t *first) {
  TRY(planner_slots(p, n, first));
  for (uint32_t i = 0; i < n; i++) {
    uint32_t from;
    if (mg_ex_const_int(p->s->x, v[i], &p->slot[*first + i])) continue;
    TRY(planner_sym(p, v[i], &from));
    TRY(planner_op(p, SZ_copy, *first + i, from, from));
  }
  return MG_OK;
}

/* Where each symbol is read: an input size that is exactly the symbol; when some have none, the
 * caller gives all of them. */
static MgRc planner_symbols(Planner *p) {
  const MgGraph *g = p->s->g;
  const MgExprs *x = p->s->x;
  MgSymSource *src = mg_new(p->s->c, MgSymSource, x->nsym + 1);
  bool *found = mg_new(p->s->c, bool, x->nsym + 1);
  uint32_t first;
  TRYP(src && found);
  TRY(planner_slots(p, x->nsym, &first));
  for (uint32_t i = 0; i < g->ninput; i++) {
    const MgVal *v = mg_val(g, g->input[i]);
    for (int d = 0; d < v->ndim; d++) {
      const MgExpr *e = mg_expr(x, v->size[d]);
      if (e->op != OP_sym || found[e->u.i]) continue;
      found[e->u.i] = true;
      src[e->u.i] = (MgSymSource){i, (uint8_t)d};
    }
  }
  bool all = true;
  for (uint32_t k = 0; k < x->nsym; k++) all = all && found[k];
  TRY(planner_dims(p, p->s->size, p->s->nsize, &first)); /* kernels find them there */
  p->spec->sym = all ? src : NULL;
  p->spec->nsym = x->nsym;
  return MG_OK;
}

/* ---- buffers and views ---- */

static bool planner_same_dims(const SymRef *a, const SymRef *b, int n) {
  return !n || !memcmp(a, b, sizeof *a * (size_t)n);
}

/* The tensor to be allocated for an output buffer: the first output that covers all of it; when every output
 * shows only a part, a flat tensor that they are views of. */
static MgRc planner_fresh(Planner *p, BufRef b) {
  MgSched *s = p->s;
  MgView *own = &p->owner[b];
  SymRef zero = mg_sym(s->x, 0), *dims = mg_new(s->c, SymRef, 2);
  TRYP(zero && dims);
  for (uint32_t i = 0; i < s->nout && p->owner_out[b] < 0; i++) {
    const MgView *v = &s->out[i];
    if (v->buf != b || v->offset != zero || v->dtype != s->buf[b].dtype ||
        mg_view_extent(s->x, v) != s->buf[b].nelem)
      continue;
    *own = *v;
    p->owner_out[b] = (int32_t)i;
  }
  if (p->owner_out[b] >= 0) return MG_OK;
  dims[0] = s->buf[b].nelem;
  dims[1] = mg_sym(s->x, 1);
  *own = (MgView){
      .buf = b, .ndim = 1, .dtype = s->buf[b].dtype, .size = dims, .stride = dims + 1, .offset = zero};
  return MG_OK;
}

static MgRc planner_bufs(Planner *p) {
  MgSched *s = p->s;
  uint32_t nfresh = 0;
  p->buf = mg_new(s->c, MgPlanBuf, s->nbuf + 1);
  p->owner = mg_new(s->c, MgView, s->nbuf + 1);
  p->owner_out = mg_new(s->c, int32_t, s->nbuf + 1);
  TRYP(p->buf && p->owner && p->owner_out);
  for (uint32_t b = 1; b < s->nbuf; b++) {
    p->owner_out[b] = -1;
    switch ((MgBufKind)s->buf[b].kind) {
    case MB_input: p->buf[b] = (MgPlanBuf){.mem = PM_input, .index = (uint32_t)s->buf[b].index}; break;
    case MB_output:
      p->buf[b] = (MgPlanBuf){.mem = PM_fresh, .index = nfresh++};
      TRY(planner_fresh(p, b));
      break;
    case MB_extern_out: p->buf[b].mem = PM_extern; break;
    case MB_number: p->buf[b].mem = PM_number; break; /* numbers.c says where */
    case MB_local: break;
    case MB_temp:
    case MB_error:
      if (b < p->nplanned && p->m->of_buf[b])
        p->buf[b] = (MgPlanBuf){.mem = PM_arena, .index = p->m->of_buf[b] - 1};
      break;
    }
  }
  for (uint32_t i = 0; i < p->f->nstep; i++) {
    const MgExtern *e = p->f->step[i].kind == MS_extern ? p->f->step[i].u.ext : NULL;
    for (uint32_t k = 0; e && k < e->nout; k++)
      if (s->buf[e->out[k].buf].kind == MB_extern_out) p->owner[e->out[k].buf] = e->out[k];
  }
  return MG_OK;
}

/* Is v exactly the tensor that owns its buffer? */
static bool planner_whole(const Planner *p, const MgView *v) {
  const MgBuf *b = &p->s->buf[v->buf];
  MgView own = p->owner[v->buf];
  if (b->kind == MB_input) {
    const MgVal *t = mg_val(p->s->g, p->s->g->input[b->index]);
    own = (MgView){.buf = v->buf,
                   .ndim = t->ndim,
                   .dtype = t->dtype,
                   .size = t->size,
                   .stride = t->stride,
                   .offset = mg_sym(p->s->x, 0)};
  }
  return own.buf && own.offset == v->offset && own.ndim == v->ndim && own.dtype == v->dtype &&
         planner_same_dims(own.size, v->size, v->ndim) && planner_same_dims(own.stride, v->stride, v->ndim);
}

static MgRc planner_view(Planner *p, const MgView *v, MgPlanView *out) {
  *out = (MgPlanView){.buf = v->buf};
  if (!v->buf) return MG_OK;
  out->dtype = v->dtype;
  out->ndim = v->ndim;
  out->elsize = (uint8_t)mg_dtype_size(v->dtype);
  out->whole = planner_whole(p, v);
  TRY(planner_dims(p, v->size, v->ndim, &out->size));
  TRY(planner_dims(p, v->stride, v->ndim, &out->stride));
  return planner_sym(p, v->offset, &out->offset);
}

/* Meta kernels give workspaces no bytes at all: they cannot know.  Nor can inference how wide alpha
 * is where lengths are data. */
static bool planner_opaque(const Planner *p, const MgOp *op, uint32_t result, const MgView *v) {
  int64_t n;
  if (mg_infer_has(op)) return op->code == TOP__ctc_loss_Tensor && result == 1;
  return v->buf && v->dtype == DT_u8 && v->ndim == 1 && mg_ex_const_int(p->s->x, v->size[0], &n) && !n;
}

static bool planner_same_view(const MgView *a, const MgView *b) {
  return a->buf == b->buf && a->ndim == b->ndim && a->dtype == b->dtype && a->offset == b->offset &&
         planner_same_dims(a->size, b->size, a->ndim) && planner_same_dims(a->stride, b->stride, a->ndim);
}

/* op: whose results these are, or NULL. */
static MgRc planner_views(Planner *p, const MgView *v, uint32_t n, const MgOp *op, const MgPlanView **out) {
  MgPlanView *a = mg_new(p->s->c, MgPlanView, n + 1);
  TRYP(a);
  for (uint32_t i = 0; i < n; i++) {
    uint32_t k = 0;
    while (k < i && !planner_same_view(&v[k], &v[i])) k++;
    if (k < i) a[i] = a[k]; /* one tensor: calls may ask whether arguments are the same */
    else TRY(planner_view(p, &v[i], &a[i]));
    a[i].opaque = op && planner_opaque(p, op, i, &v[i]);
  }
  *out = a;
  return MG_OK;
}

/* ---- steps ---- */

static MgRc planner_kernel(Planner *p, const MgKernel *k, const MgKernelCode *code, MgPlanStep *d) {
  uint32_t *buf = mg_new(p->s->c, uint32_t, k->nbuf + 1);
  TRYP(buf);
  for (uint32_t i = 0; i < k->nbuf; i++) {
    int64_t n;
    buf[i] = k->buf[i];
    if (mg_ex_const_int(p->s->x, p->s->buf[k->buf[i]].nelem, &n) && n > 0)
      p->spec->bytes_moved += (uint64_t)n * (uint64_t)mg_dtype_size(p->s->buf[k->buf[i]].dtype);
  }
  *d = (MgPlanStep){.kind = PK_kernel,
                    .fn = code->fn,
                    .buf = buf,
                    .nbuf = k->nbuf,
                    .grain = k->grain,
                    .work = k->work,
                    .name = k->name};
  NodeRef node[MG_LABEL_NODES];
  TRY(mg_label_scope(p->s->g, node, mg_label_nodes(k, node, MG_LABEL_NODES), planner_shown, p, &d->scope));
  if (code->gpu) {
    MgPlanGpu *g = (MgPlanGpu *)code->gpu;
    TRY(planner_sym(p, code->blocks, &g->shape.blocks));
    if (g->other) TRY(planner_sym(p, code->plain_blocks, &g->plain.blocks));
    d->gpu = g;
  }
  if (code->nsize) {
    TRY(planner_slots(p, code->nsize, &d->sizes));
    memcpy(p->slot + d->sizes, code->size, sizeof *code->size * code->nsize);
  }
  return planner_sym(p, k->outer, &d->outer);
}

/* Does the call draw from the device's default generator, and do nothing else that a program sees? */
static bool planner_draws(const Planner *p, const MgExtern *e) {
  const MgNode *n = mg_node(p->s->g, e->node);
  const MgArg *generator = mg_node_arg(n, "generator");
  return mg_node_random(n) && n->op->nret && !n->op->mutates &&
         (n->op->code == TOP_mg_draws || !strncmp(n->op->full, "aten::", 6)) &&
         (!generator || generator->tag == MA_none);
}

/* Is the call a function of tensors of this device alone: no effect, nothing that other devices wait for? */
static bool planner_stays_on(const Planner *p, const MgExtern *e, uint8_t device) {
  const MgNode *n = mg_node(p->s->g, e->node);
  bool all = (device == DEV_cuda && planner_draws(p, e)) ||
             (!mg_node_effect(n) && !n->op->mutates && n->op->code != TOP_extern);
  for (uint32_t i = 0; i < e->nin; i++) all &= !e->in[i].buf || p->s->buf[e->in[i].buf].device == device;
  for (uint32_t i = 0; i < e->nout; i++) all &= !e->out[i].buf || p->s->buf[e->out[i].buf].device == device;
  return all;
}

/* Is it work on the CPU that waits for nothing of the GPU?  All of its results are wanted. */
static bool planner_on_host(const Planner *p, const MgExtern *e) {
  bool all = e->nout && planner_stays_on(p, e, DEV_cpu);
  for (uint32_t i = 0; i < e->nout; i++) all &= e->out[i].buf != 0;
  return all;
}

static MgRc planner_extern(Planner *p, uint32_t step, const MgPlanExt *ext, MgPlanStep *d) {
  const MgExtern *e = p->f->step[step].u.ext;
  const MgOp *op = mg_node(p->s->g, e->node)->op;
  if (!ext->engine && e->prealloc) return mg_fail(p->s->c, MG_UNSUP, "no library runs %s here", op->full);
  *d = (MgPlanStep){.kind = ext->engine ? PK_engine : PK_host,
                    .nin = e->nin,
                    .nout = e->nout,
                    .engine = ext->engine,
                    .sized = ext->sized,
                    .scratch = p->m->of_step[step],
                    .host_id = ext->host_id,
                    .name = op->full,
                    .graph = planner_stays_on(p, e, DEV_cuda), /* a CUDA graph may contain it */
                    .random = planner_draws(p, e),
                    .on_host = planner_on_host(p, e),
                    .guessed = !mg_infer_has(op)};
  TRY(mg_label_scope(p->s->g, &e->node, 1, planner_shown, p, &d->scope));
  TRY(planner_views(p, e->in, e->nin, NULL, &d->in));
  return planner_views(p, e->out, e->nout, op, &d->out);
}

static MgRc planner_steps(Planner *p, const MgPlanExt *ext, const MgKernelSet *k) {
  MgPlanStep *d = mg_new(p->s->c, MgPlanStep, p->f->nstep + 1);
  TRYP(d);
  for (uint32_t i = 0; i < p->f->nstep; i++)
    TRY(p->f->step[i].kind == MS_kernel ? planner_kernel(p, p->f->step[i].u.kernel, &k->of_step[i], &d[i])
                                        : planner_extern(p, i, &ext[i], &d[i]));
  bool *beside = mg_new(p->s->c, bool, p->f->nstep + 1);
  TRYP(beside);
  TRY(mg_kernel_waves(p->s, p->f, p->m, beside));
  for (uint32_t i = 0; i < p->f->nstep; i++) {
    d[i].beside = beside[i];
    d[i].apart = p->f->step[i].beside && d[i].kind == PK_host;
    d[i].join = p->f->step[i].join;
    d[i].joins = p->f->step[i].joins;
  }
  p->spec->step = d;
  p->spec->nstep = p->f->nstep;
  return MG_OK;
}

/* ---- outputs ---- */

static BufRef planner_input_buf(const MgSched *s, int32_t input) {
  for (BufRef b = 1; b < s->nbuf; b++)
    if (s->buf[b].kind == MB_input && s->buf[b].index == input) return b;
  return 0;
}

/* Output i as a strided view of buffer b; base: the value whose data pointer is the buffer's base. */
static MgRc planner_alias(Planner *p, uint32_t i, BufRef b, const MgVal *base, MgPlanOut *d) {
  const MgVal *v = mg_val(p->s->g, p->s->g->output[i]);
  SymRef start = base->offset; /* in elements of the view, whose dtype may be another (view_as_real) */
  int from = mg_dtype_size((MgDtype)base->dtype), to = mg_dtype_size((MgDtype)v->dtype);
  if (from > to) start = mg_sym_mul(p->s->x, start, mg_sym(p->s->x, from / to));
  if (from < to) start = mg_sym_floordiv(p->s->x, start, mg_sym(p->s->x, to / from));
  MgView view = {.buf = b,
                 .ndim = v->ndim,
                 .dtype = v->dtype,
                 .size = v->size,
                 .stride = v->stride,
                 .offset = mg_sym_sub(p->s->x, v->offset, start)};
  if (!b) return mg_fail(p->s->c, MG_BUG, "output %u is a view of a tensor without a buffer", i);
  TRYP(view.offset);
  d->kind = PO_view;
  return planner_view(p, &view, &d->view);
}

static MgRc planner_output(Planner *p, uint32_t i, MgPlanOut *d) {
  MgSched *s = p->s;
  MgGraph *g = s->g;
  *d = (MgPlanOut){0};
  if (g->out_alias && g->out_alias[i].of_input >= 0) {
    int32_t in = g->out_alias[i].of_input;
    d->index = (uint32_t)in;
    d->kind = PO_same_input;
    if (g->out_alias[i].same) return MG_OK;
    d->viewed = g->viewed && g->viewed[i];
    return planner_alias(p, i, planner_input_buf(s, in), mg_val(g, g->input[in]), d);
  }
  if (g->out_alias && g->out_alias[i].of_output >= 0) {
    int32_t other = g->out_alias[i].of_output;
    d->index = (uint32_t)other;
    d->kind = PO_same_output;
    if (g->out_alias[i].same) return MG_OK;
    return planner_alias(p, i, s->out[other].buf, mg_val(g, g->output[other]), d);
  }
  const MgBuf *b = &s->buf[s->out[i].buf];
  if (!s->out[i].buf || b->kind == MB_temp || b->kind == MB_local)
    return mg_fail(s->c, MG_BUG, "output %u has no memory of its own", i);
  d->kind = b->kind == MB_output && p->owner_out[s->out[i].buf] == (int32_t)i ? PO_fresh : PO_view;
  if (d->kind == PO_fresh) return d->index = p->buf[s->out[i].buf].index, MG_OK;
  return planner_view(p, &s->out[i], &d->view);
}

static MgRc planner_outputs(Planner *p) {
  MgPlanOut *d = mg_new(p->s->c, MgPlanOut, p->s->g->noutput + 1);
  TRYP(d);
  for (uint32_t i = 0; i < p->s->g->noutput; i++) TRY(planner_output(p, i, &d[i]));
  p->spec->out = d;
  p->spec->nout = p->s->g->noutput;
  return MG_OK;
}

static MgRc planner_fresh_tensors(Planner *p) {
  MgSched *s = p->s;
  MgPlanFresh *d = mg_new(s->c, MgPlanFresh, s->nbuf + 1);
  TRYP(d);
  for (BufRef b = 1; b < s->nbuf; b++) {
    if (p->buf[b].mem != PM_fresh) continue;
    MgPlanFresh *t = &d[p->spec->nfresh++];
    int8_t index = s->buf[b].index >= 0 ? mg_val(s->g, s->g->output[s->buf[b].index])->dev_index : -1;
    t->device = s->buf[b].device;
    t->dev_index = index < 0 ? 0 : index;
    TRY(planner_view(p, &p->owner[b], &t->view));
  }
  p->spec->fresh = d;
  return MG_OK;
}

/* ---- the rest ---- */

/* Buffers for inputs that only an output's view refers to; made before the buffer table is translated. */
static MgRc planner_missing_inputs(MgSched *s) {
  const MgGraph *g = s->g;
  for (uint32_t i = 0; g->out_alias && i < g->noutput; i++) {
    int32_t in = g->out_alias[i].of_input;
    if (in < 0 || g->out_alias[i].same || planner_input_buf(s, in)) continue;
    BufRef b = mg_sched_buf(s, MB_input, mg_val(g, g->input[in])->dtype, mg_sym(s->x, 0), "alias");
    TRYP(b);
    s->buf[b].index = in;
  }
  return MG_OK;
}

static MgRc planner_written(Planner *p) {
  const MgGraph *g = p->s->g;
  uint32_t *w = mg_new(p->s->c, uint32_t, g->nwb + 1);
  TRYP(w);
  for (uint32_t i = 0; i < g->nwb; i++)
    for (uint32_t k = 0; k < g->ninput; k++)
      if (g->input[k] == g->wb_input[i]) w[p->spec->nwritten++] = k;
  p->spec->written = w;
  return MG_OK;
}

static MgRc planner_copies(Planner *p) {
  const MgSched *s = p->s;
  MgPlanCopy *c = mg_new(s->c, MgPlanCopy, s->ncopy + 1);
  TRYP(c);
  for (uint32_t i = 0; i < s->ncopy; i++) {
    c[i].input = s->copy[i].input;
    TRY(planner_view(p, &s->copy[i].from, &c[i].from));
  }
  p->spec->copy = c;
  p->spec->ncopy = s->ncopy;
  return MG_OK;
}

static MgRc planner_checks(Planner *p) {
  const MgSched *s = p->s;
  MgPlanCheck *k = mg_new(s->c, MgPlanCheck, s->ncheck + 1);
  TRYP(k);
  for (uint32_t i = 0; i < s->ncheck; i++) k[i] = (MgPlanCheck){s->check[i].type, s->check[i].msg};
  p->spec->check = k;
  p->spec->ncheck = s->ncheck;
  if (s->ncheck) p->spec->err = p->m->of_buf[s->err] - 1;
  return MG_OK;
}

static MgRc planner_blocks(Planner *p) {
  MgPlanBlock *b = mg_new(p->s->c, MgPlanBlock, p->m->nblock + 1);
  TRYP(b);
  for (uint32_t i = 0; i < p->m->nblock; i++) {
    const MgMemBlock *m = &p->m->block[i];
    b[i] = (MgPlanBlock){.offset = m->offset, .first = m->first, .last = m->last};
    if (p->m->dynamic) TRY(planner_sym(p, m->bytes, &b[i].bytes));
  }
  for (uint32_t i = 0; i < p->f->nstep; i++) /* whose size each run writes */
    if (p->f->step[i].sized) TRY(planner_slots(p, 1, &b[p->m->of_step[i] - 1].bytes));
  p->spec->block = b;
  p->spec->nblock = p->m->nblock;
  p->spec->arena = p->m->bytes;
  p->spec->dynamic = p->m->dynamic;
  return MG_OK;
}

static MgRc planner_facts(Planner *p, const MgSizeFacts *facts) {
  MgPlanFact *d = mg_new(p->s->c, MgPlanFact, facts->n + 1);
  TRYP(d);
  for (uint32_t i = 0; i < facts->n; i++) {
    d[i].is = facts->fact[i].is;
    TRY(planner_sym(p, facts->fact[i].a, &d[i].a));
    TRY(planner_sym(p, facts->fact[i].b, &d[i].b));
  }
  p->spec->fact = d;
  p->spec->nfact = facts->n;
  return MG_OK;
}

/* Outputs that library calls make or read are copied for the program when a CUDA graph has run: is that more
 * than the graph saves? */
static bool planner_copies_much(const Planner *p) {
  bool *called = mg_new(p->s->c, bool, p->s->nbuf + 1);
  int64_t all = 0;
  if (!called) return true;
  for (uint32_t i = 0; i < p->f->nstep; i++) {
    const MgExtern *e = p->f->step[i].kind == MS_extern ? p->f->step[i].u.ext : NULL;
    for (uint32_t q = 0; e && q < e->nin; q++) called[e->in[q].buf] = true;
  }
  for (uint32_t i = 0; i < p->s->g->noutput - p->s->g->nhidden; i++) {
    BufRef out = p->s->out[i].buf;
    const MgBuf *b = &p->s->buf[out];
    if (out && (b->kind == MB_extern_out || (b->kind == MB_output && called[out])))
      all += mg_sym_hint(p->s->x, b->nelem) * mg_dtype_size((MgDtype)b->dtype);
  }
  return all > (int64_t)p->f->nstep * MG_TUNE_COPIED_BYTES;
}

MgRc mg_planner_spec(MgSched *s, const MgFused *f, const MgMemPlan *m, const MgPlanExt *ext,
                     const MgKernelSet *k, const MgSizeFacts *facts, MgPlanSpec *spec) {
  Planner p = {.s = s,
               .f = f,
               .m = m,
               .nplanned = s->nbuf,
               .spec = spec,
               .memo = mg_new(s->c, uint32_t, s->x->n * 2 + 1024)};
  TRYP(p.memo);
  TRY(planner_missing_inputs(s));
  TRY(planner_symbols(&p)); /* first: symbols are slots [0, nsym), long sizes the next */
  TRY(planner_bufs(&p));
  TRY(planner_steps(&p, ext, k));
  TRY(planner_fresh_tensors(&p));
  TRY(planner_outputs(&p));
  TRY(planner_written(&p));
  TRY(planner_checks(&p));
  TRY(planner_copies(&p));
  TRY(mg_numbers_program(s, p.buf, &spec->numbers));
  TRY(planner_blocks(&p));
  TRY(planner_facts(&p, facts));
  MG_ASSERT((spec->cuda || spec->nstep == f->nstep) && spec->nout == s->g->noutput &&
                spec->nblock == m->nblock && spec->nfact == facts->n,
            "a plan has other parts than were planned");
  spec->graphs = spec->cuda && !planner_copies_much(&p);
  for (uint32_t i = 0; i < spec->nstep; i++)
    spec->graphs &= spec->step[i].kind == PK_kernel || spec->step[i].graph || spec->step[i].on_host;
  spec->ninput = s->g->ninput;
  spec->nhidden = s->g->nhidden;
  spec->early_end = f->early_end;
  spec->early = s->g->early;
  spec->buf = p.buf;
  spec->nbuf = s->nbuf;
  spec->slot0 = p.slot;
  spec->nslot = p.nslot;
  spec->sizeop = p.op;
  spec->nsizeop = p.nop;
  return MG_OK;
}

/* ---- text ---- */

static void print_buf(const MgSched *s, const MgMemPlan *m, BufRef b, MgStrbuf *out) {
  static const char *const kind[] = {"in", "t", "out", "ext", "number", "local", "err"};
  mg_sb_printf(out, " b%u:%s", b, kind[s->buf[b].kind]);
  if (m->of_buf[b]) mg_sb_printf(out, "@%llu", (unsigned long long)m->block[m->of_buf[b] - 1].offset);
  else if (s->buf[b].index >= 0) mg_sb_printf(out, "%d", s->buf[b].index);
}

void mg_planner_print(const MgSched *s, const MgFused *f, const MgMemPlan *m, const MgPlanExt *ext,
                      MgStrbuf *out) {
  mg_sb_printf(out, "arena %llu bytes, %u steps\n", (unsigned long long)m->bytes, f->nstep);
  for (uint32_t i = 0; i < f->nstep; i++) {
    const MgStepIR *t = &f->step[i];
    if (t->kind == MS_kernel) {
      mg_sb_printf(out, "%4u kernel %s outer ", i, t->u.kernel->name);
      mg_ex_print(s->x, t->u.kernel->outer, out);
      mg_sb_printf(out, " grain %lld :", (long long)t->u.kernel->grain);
      for (uint32_t k = 0; k < t->u.kernel->nbuf; k++) print_buf(s, m, t->u.kernel->buf[k], out);
    } else {
      const MgExtern *e = t->u.ext;
      mg_sb_printf(out, "%4u %s %s :", i, ext[i].engine ? ext[i].engine->ops->name : "host",
                   mg_node(s->g, e->node)->op->full);
      for (uint32_t k = 0; k < e->nin; k++) print_buf(s, m, e->in[k].buf, out);
      mg_sb_puts(out, " ->");
      for (uint32_t k = 0; k < e->nout; k++) print_buf(s, m, e->out[k].buf, out);
      if (t->beside) mg_sb_printf(out, " (beside what follows, to step %u)", t->join);
    }
    mg_sb_putc(out, '\n');
  }
}
