/* Makes a plan from its description, and the runs it is executed with.
 * In: MgPlanSpec.  Out: MgPlan, immutable.  All tables have exact bounds known from counts, so they are
 * allocated
 * once and only filled. */
#include <stdlib.h>
#include <string.h>
#include "base/fork.h"
#include "runtime/plan/plan_graph.h"
#include "runtime/code/perf_map.h"
#include "runtime/plan/plan_priv.h"
#include "tuning.h"

typedef struct PlanBuild {
  MgCtx *c; /* messages */
  MgPlan *p;
  const MgPlanSpec *s;
  uint32_t narg, npatch, nlist;
  uint32_t *patch_buf; /* buffer of patch i, before they are sorted by buffer */
  PlanPatch *patch;    /* unsorted */
  uint32_t *root;      /* per buffer: entry of the tensor that owns it + 1 */
  uint32_t *last;      /* per tensor entry: last step that uses it; nstep: an output, kept to the end */
  uint32_t *touched;   /* per buffer: steps after which nothing touches it any more */
  uint32_t *newest;    /* per buffer: entry + 1 of its last argument that is no owner; 0: none */
  uint32_t *older;     /* per such entry: the one before it */
} PlanBuild;

#define plan_bad(b, ...) mg_fail((b)->c, MG_BUG, __VA_ARGS__)

static void *plan_copy(MgPlan *p, const void *from, size_t bytes) {
  return mg_ctx_grow(&p->mem, from, from ? bytes : 0, bytes ? bytes : 1);
}

/* One pointer of the argument table, at the next free place. */
static MgRc plan_add_arg(PlanBuild *b, uint32_t buf, const MgPlanView *v) {
  MgPlan *p = b->p;
  PlanPatch q = {b->narg++, v ? v->offset : UINT32_MAX, v ? v->elsize : 0};
  if (!buf) return MG_OK; /* an undefined tensor stays NULL */
  if (buf >= b->s->nbuf) return plan_bad(b, "plan: buffer %u of %u", buf, b->s->nbuf);
  b->touched[buf] = p->nstep;
  switch ((MgPlanMem)b->s->buf[buf].mem) {
  case PM_none: return plan_bad(b, "plan: buffer %u has no memory", buf);
  case PM_arena:
    p->arena_patch[p->narena_patch] = q;
    p->arena_buf[p->narena_patch++] = buf;
    return MG_OK;
  case PM_input: p->buf_of_input[b->s->buf[buf].index] = buf; break;
  default: break;
  }
  b->patch[b->npatch] = q;
  b->patch_buf[b->npatch++] = buf;
  return MG_OK;
}

static bool plan_same_view(const MgPlanView *a, const MgPlanView *b) {
  return a->buf == b->buf && a->dtype == b->dtype && a->ndim == b->ndim && a->whole == b->whole &&
         a->size == b->size && a->stride == b->stride && a->offset == b->offset;
}

static uint32_t plan_push_tensor(PlanBuild *b, PlanTensorHow how, uint32_t index, const MgPlanView *v,
                                 uint32_t block) {
  uint32_t i = b->p->ntensor++;
  b->p->tensor[i] = (PlanTensor){.how = how, .index = index, .view = *v, .block = block};
  return i;
}

/* The entry of the tensor that owns a buffer. */
static MgRc plan_root(PlanBuild *b, const MgPlanView *v, uint32_t *out) {
  const MgPlanBuf *m = &b->s->buf[v->buf];
  if (!b->root[v->buf]) {
    if (m->mem == PM_input) b->root[v->buf] = plan_push_tensor(b, PT_input, m->index, v, 0) + 1;
    else if (m->mem == PM_fresh) b->root[v->buf] = plan_push_tensor(b, PT_fresh, m->index, v, 0) + 1;
    else return plan_bad(b, "plan: buffer %u is used before anything makes it", v->buf);
  }
  *out = b->root[v->buf] - 1;
  return MG_OK;
}

/* The entry of an equal view + 1, or 0. */
static uint32_t plan_find(const PlanBuild *b, const MgPlanView *v) {
  uint32_t i = b->newest[v->buf];
  while (i && !plan_same_view(&b->p->tensor[i - 1].view, v)) i = b->older[i - 1];
  return i;
}

/* A new entry that plan_find finds. */
static uint32_t plan_push_argument(PlanBuild *b, PlanTensorHow how, uint32_t index, const MgPlanView *v,
                                   uint32_t block) {
  uint32_t i = plan_push_tensor(b, how, index, v, block);
  b->older[i] = b->newest[v->buf];
  b->newest[v->buf] = i + 1;
  return i;
}

/* Entry for an argument; equal views share one.  `step`: who uses it. */
static MgRc plan_use(PlanBuild *b, const MgPlanView *v, uint32_t step, uint32_t *out) {
  MgPlan *p = b->p;
  uint32_t i, root = 0;
  if (v->buf >= b->s->nbuf) return plan_bad(b, "plan: buffer %u of %u", v->buf, b->s->nbuf);
  uint32_t found = plan_find(b, v);
  if (found) {
    i = found - 1;
  } else if (!v->buf) {
    i = plan_push_argument(b, PT_none, 0, v, 0);
  } else if (b->s->buf[v->buf].mem == PM_arena) {
    i = plan_push_argument(b, PT_arena, 0, v, b->s->buf[v->buf].index);
  } else {
    TRY(plan_root(b, v, &root));
    i = v->whole ? root : plan_push_argument(b, PT_view, root, v, 0);
  }
  b->last[i] = step;
  if (step < UINT32_MAX) b->touched[v->buf] = step + 1;
  if (p->tensor[i].how == PT_view) b->last[p->tensor[i].index] = step;
  *out = i;
  return MG_OK;
}

static MgRc plan_use_output(PlanBuild *b, uint32_t i) {
  MgPlan *p = b->p;
  TRY(plan_use(b, &b->s->out[i].view, UINT32_MAX, &p->out_tensor[i]));
  for (uint32_t k = 0; k < i; k++)
    p->out_again[i] |= b->s->out[k].kind == PO_view && p->out_tensor[k] == p->out_tensor[i];
  return MG_OK;
}

static void plan_use_buf(PlanBuild *b, uint32_t buf, uint32_t step) {
  if (b->root[buf]) b->last[b->root[buf] - 1] = step;
}

static MgRc plan_add_kernel(PlanBuild *b, const MgPlanStep *s) {
  MgPlan *p = b->p;
  PlanStep *d = p->nstep ? &p->step[p->nstep - 1] : NULL;
  if (!d || d->kind != PK_kernel || p->nstep == p->early || s->joins) {
    d = &p->step[p->nstep++];
    *d = (PlanStep){.kind = PK_kernel, .kernels = {p->nkernel, 0}, .joins = s->joins};
  }
  d->kernels.n++;
  p->kernel[p->nkernel] = (PlanKernel){.fn = s->fn,
                                       .arg = b->narg,
                                       .outer = s->outer,
                                       .sizes = s->sizes,
                                       .grain = s->grain,
                                       .work = s->work,
                                       .beside = s->beside,
                                       .narg = s->nbuf,
                                       .number = p->nkernel + p->nengine + p->nhost};
  if (s->gpu) {
    MgPlanGpu *g = &p->kernel[p->nkernel].gpu;
    *g = *s->gpu;
    if (g->number) TRYP(g->number = plan_copy(p, g->number, s->nbuf));
  }
  p->kernel[p->nkernel].scope = s->scope;
  TRY(mg_plan_scope_keep(&p->mem, &p->kernel[p->nkernel].scope));
  if (s->scope.label && mg_perf_on()) mg_perf_name((const void *)(uintptr_t)s->fn, s->scope.label);
  p->nkernel++;
  for (uint32_t i = 0; i < s->nbuf; i++) {
    TRY(plan_add_arg(b, s->buf[i], NULL));
    plan_use_buf(b, s->buf[i], p->nstep - 1);
  }
  return MG_OK;
}

static MgRc plan_copy_sized(PlanBuild *b, const MgPlanStep *s, PlanStep *d) {
  MgPlan *p = b->p;
  if (!s->sized) return MG_OK;
  MgSized *z = plan_copy(p, s->sized, sizeof *z);
  MgPlanView *v = mg_new(&p->mem, MgPlanView, s->nin + s->nout + 1);
  TRYP(z && v && (z->desc = plan_copy(p, z->desc, z->bytes)));
  if (z->ntensor != s->nin + s->nout || !s->scratch)
    return plan_bad(b, "plan: %s has no place for its engines", s->name);
  memcpy(v, s->in, s->nin * sizeof *v);
  memcpy(v + s->nin, s->out, s->nout * sizeof *v);
  d->sized = z;
  d->view = v;
  p->sized = true;
  return MG_OK;
}

static void plan_note_called(PlanBuild *b, uint32_t buf) {
  const MgPlanBuf *m = buf < b->s->nbuf ? &b->s->buf[buf] : &b->s->buf[0];
  if (buf && m->mem == PM_input) b->p->called[m->index] = true;
  if (buf && m->mem == PM_fresh) b->p->fresh_called[m->index] = true;
}

static MgRc plan_add_extern(PlanBuild *b, const MgPlanStep *s) {
  MgPlan *p = b->p;
  uint32_t n = p->nstep++, t;
  PlanStep *d = &p->step[n];
  if (s->kind == PK_engine && (uint64_t)s->nin + s->nout > PLAN_ENGINE_ARGS)
    return plan_bad(b, "plan: %s takes more than %d tensors", s->name, PLAN_ENGINE_ARGS);
  *d = (PlanStep){.kind = s->kind,
                  .in = {b->nlist, s->nin},
                  .out = {b->nlist + s->nin, s->nout},
                  .host_id = s->host_id,
                  .on_host = s->on_host,
                  .apart = s->apart,
                  .joins = s->joins,
                  .scope = s->scope,
                  .number = p->nkernel + p->nengine + p->nhost};
  TRYP(d->name = mg_ctx_strdup(&p->mem, s->name));
  TRY(mg_plan_scope_keep(&p->mem, &d->scope));
  if (s->kind == PK_engine) {
    d->engine = s->engine;
    TRY(plan_copy_sized(b, s, d));
    d->engine_index = p->nengine++;
    d->scratch = s->scratch;
    d->arg = b->narg;
    for (uint32_t i = 0; i < s->nin; i++) TRY(plan_add_arg(b, s->in[i].buf, &s->in[i]));
    for (uint32_t i = 0; i < s->nout; i++) TRY(plan_add_arg(b, s->out[i].buf, &s->out[i]));
  } else {
    p->nhost++;
  }
  p->aten |= s->kind == PK_host || s->engine->tensors;
  for (uint32_t i = 0; i < s->nin; i++) {
    if (!s->on_host) plan_note_called(b, s->in[i].buf);
    TRY(plan_use(b, &s->in[i], n, &t));
    p->list[b->nlist++] = t;
  }
  for (uint32_t i = 0; i < s->nout; i++) {
    const MgPlanView *v = &s->out[i];
    if (!s->on_host) plan_note_called(b, v->buf);
    if (v->buf && s->kind == PK_host) { /* the call makes the tensor that owns this buffer */
      if (v->buf >= b->s->nbuf || b->s->buf[v->buf].mem != PM_extern || b->root[v->buf])
        return plan_bad(b, "plan: %s does not own the memory of its result", s->name);
      t = plan_push_tensor(b, PT_result, 0, v, 0);
      p->tensor[t].on_host = s->on_host;
      p->tensor[t].as_is = s->guessed && !b->s->strict_strides;
      b->root[v->buf] = t + 1;
      b->last[t] = n;
      b->touched[v->buf] = n + 1;
    } else {
      TRY(plan_use(b, v, n, &t));
    }
    p->list[b->nlist++] = t;
  }
  return MG_OK;
}

/* Results whose strides are a meta kernel's word, and that no kernel and no view of ours reads: other calls
 * and the program take them with the strides that the op chose. */
static void plan_mark_as_is(PlanBuild *b) {
  MgPlan *p = b->p;
  for (uint32_t i = 0; i < p->ntensor; i++)
    if (p->tensor[i].how == PT_view) p->tensor[p->tensor[i].index].as_is = false;
  for (uint32_t i = 0; i < b->npatch; i++)
    if (b->root[b->patch_buf[i]]) p->tensor[b->root[b->patch_buf[i]] - 1].as_is = false;
}

/* Tensors made during a call are given back after the step that uses them last; `lazy` catches what an error
 * or an output leaves over. */
static void plan_add_releases(PlanBuild *b) {
  MgPlan *p = b->p;
  for (uint32_t i = 0; i < p->ntensor; i++) {
    uint8_t how = p->tensor[i].how;
    if (how != PT_view && how != PT_result) continue;
    p->lazy[p->nlazy++] = i;
    if (b->last[i] < p->nstep) p->step[b->last[i]].release.n++;
  }
  for (uint32_t i = 0; i < p->nstep; i++) {
    p->step[i].release.first = b->nlist;
    b->nlist += p->step[i].release.n;
    p->step[i].release.n = 0;
  }
  for (uint32_t k = 0; k < p->nlazy; k++) {
    uint32_t i = p->lazy[k];
    if (b->last[i] >= p->nstep) continue;
    PlanSpan *r = &p->step[b->last[i]].release;
    p->list[r->first + r->n++] = i;
  }
}

static void plan_sort_patches(PlanBuild *b) {
  MgPlan *p = b->p;
  uint32_t at = 0;
  for (uint32_t i = 0; i < b->npatch; i++) p->patch_of[b->patch_buf[i]].n++;
  for (uint32_t i = 0; i < b->s->nbuf; i++)
    p->patch_of[i].first = at, at += p->patch_of[i].n, p->patch_of[i].n = 0;
  for (uint32_t i = 0; i < b->npatch; i++) {
    PlanSpan *q = &p->patch_of[b->patch_buf[i]];
    p->patch[q->first + q->n++] = b->patch[i];
  }
}

/* After which step each output is final: the last one that touches the memory it lies in. */
static MgRc plan_find_ready(PlanBuild *b) {
  const MgPlanSpec *s = b->s;
  MgPlan *p = b->p;
  uint32_t *of_fresh = mg_new(&p->mem, uint32_t, s->nfresh + 1);
  TRYP(of_fresh);
  for (uint32_t i = 1; i < s->nbuf; i++)
    if (s->buf[i].mem == PM_fresh) of_fresh[s->buf[i].index] = i;
  for (uint32_t i = 0; i < s->nout; i++) {
    const MgPlanOut *o = &s->out[i];
    switch ((MgPlanOutKind)o->kind) {
    case PO_same_input: p->ready[i] = b->touched[p->buf_of_input[o->index]]; break;
    case PO_same_output: p->ready[i] = p->ready[o->index]; break;
    case PO_fresh: p->ready[i] = b->touched[of_fresh[o->index]]; break;
    case PO_view: p->ready[i] = b->touched[o->view.buf]; break;
    }
  }
  for (uint32_t i = 0; s->early && i < s->nout; i++) {
    bool other = s->out[i].kind == PO_same_output;
    if (other) p->ready[i] = p->ready[s->out[i].index];
    else if (s->early[i] && p->ready[i] > p->early) p->ready[i] = p->early, p->kept[i] = true;
  }
  return MG_OK;
}

static void plan_find_hidden(PlanBuild *b) {
  const MgPlanSpec *s = b->s;
  for (uint32_t i = 0; i < s->nfresh; i++) b->p->fresh_hidden[i] = s->nhidden > 0;
  for (uint32_t i = 0; i < s->nout - s->nhidden; i++) {
    const MgPlanOut *o = &s->out[i];
    if (o->kind == PO_fresh) b->p->fresh_hidden[o->index] = false;
    if (o->kind == PO_view && s->buf[o->view.buf].mem == PM_fresh)
      b->p->fresh_hidden[s->buf[o->view.buf].index] = false;
  }
}

/* What runs beside others keeps its tensors until they have waited for it. */
static void plan_hold(PlanBuild *b, const uint32_t *at) {
  MgPlan *p = b->p;
  for (uint32_t i = 0; i < b->s->nstep; i++) {
    const PlanStep *d = &p->step[at[i]];
    uint32_t until = b->s->step[i].apart ? at[b->s->step[i].join] : 0;
    p->nbeside += b->s->step[i].apart;
    p->random |= b->s->step[i].random && !b->s->step[i].on_host;
    for (uint32_t k = 0; until && k < d->in.n + d->out.n; k++) {
      uint32_t t = p->list[d->in.first + k]; /* results are listed behind arguments */
      for (;; t = p->tensor[t].index) {
        if (b->last[t] < until) b->last[t] = until;
        if (p->tensor[t].how != PT_view) break;
      }
    }
  }
}

/* The tables that building needs; out of memory is the plan's. */
static void plan_tables(PlanBuild *b, uint32_t narg, uint32_t ntensor) {
  MgCtx *m = &b->p->mem;
  uint32_t nbuf = b->s->nbuf + 1;
  b->patch = mg_new(m, PlanPatch, narg + 1);
  b->patch_buf = mg_new(m, uint32_t, narg + 1);
  b->root = mg_new(m, uint32_t, nbuf);
  b->last = mg_new(m, uint32_t, ntensor);
  b->newest = mg_new(m, uint32_t, nbuf);
  b->older = mg_new(m, uint32_t, ntensor);
  b->touched = mg_new(m, uint32_t, nbuf);
}

static MgRc plan_fill(PlanBuild *b) {
  const MgPlanSpec *s = b->s;
  MgPlan *p = b->p;
  MgCtx *m = &p->mem;
  uint32_t kernel_args = 0, extern_args = 0;
  for (uint32_t i = 0; i < s->nstep; i++)
    kernel_args += s->step[i].nbuf, extern_args += s->step[i].nin + s->step[i].nout;
  uint32_t narg = kernel_args + extern_args, ntensor = 2 * (extern_args + s->nout + s->ncopy) + 1;
  uint32_t *at = mg_new(m, uint32_t, s->nstep + 1); /* per described step: the plan's */
  plan_tables(b, narg, ntensor);
  p->step = mg_new(m, PlanStep, s->nstep + 1);
  p->kernel = mg_new(m, PlanKernel, s->nstep + 1);
  p->tensor = mg_new(m, PlanTensor, ntensor);
  p->list = mg_new(m, uint32_t, extern_args + ntensor);
  p->lazy = mg_new(m, uint32_t, ntensor);
  p->patch = mg_new(m, PlanPatch, narg + 1);
  p->patch_of = mg_new(m, PlanSpan, s->nbuf + 1);
  p->arena_patch = mg_new(m, PlanPatch, narg + 1);
  p->arena_buf = mg_new(m, uint32_t, narg + 1);
  p->buf_of_input = mg_new(m, uint32_t, s->ninput + 1);
  p->out_tensor = mg_new(m, uint32_t, s->nout + 1);
  p->out_again = mg_new(m, bool, s->nout + 1);
  p->copy_tensor = mg_new(m, uint32_t, s->ncopy + 1);
  p->ready = mg_new(m, uint32_t, s->nout + 1);
  p->kept = mg_new(m, bool, s->nout + 1);
  p->called = mg_new(m, bool, s->ninput + 1);
  p->fresh_called = mg_new(m, bool, s->nfresh + 1);
  p->fresh_hidden = mg_new(m, bool, s->nfresh + 1);
  p->early = UINT32_MAX;
  p->shows_all = s->bytes_moved > MG_TUNE_PLAN_SHOWN_BYTES || s->nstep > MG_TUNE_PLAN_SHOWN_STEPS;
  TRYP(at && p->out_tensor && p->out_again && p->copy_tensor && p->ready && p->kept && p->called &&
       p->fresh_called && p->fresh_hidden && p->buf_of_input && m->rc == MG_OK);
  for (uint32_t i = 0; i < s->nstep; i++) {
    if (s->early_end && i == s->early_end - 1) p->early = p->nstep;
    TRY(s->step[i].kind == PK_kernel ? plan_add_kernel(b, &s->step[i]) : plan_add_extern(b, &s->step[i]));
    at[i] = p->nstep - 1;
  }
  at[s->nstep] = p->nstep;
  plan_hold(b, at);
  if (p->early > p->nstep) p->early = p->nstep;
  for (uint32_t i = 0; i < s->nout; i++)
    if (s->out[i].kind == PO_view) TRY(plan_use_output(b, i));
  for (uint32_t i = 0; i < s->ncopy; i++) {
    p->copy_tensor[i] = UINT32_MAX;
    if (s->buf[s->copy[i].from.buf].mem == PM_number) continue;
    TRY(plan_use(b, &s->copy[i].from, UINT32_MAX, &p->copy_tensor[i]));
    p->aten = true;
  }
  TRY(plan_find_ready(b));
  plan_find_hidden(b);
  plan_mark_as_is(b);
  plan_add_releases(b);
  plan_sort_patches(b);
  p->narg = b->narg;
  return MG_OK;
}

static MgRc plan_copy_tables(MgPlan *p, const MgPlanSpec *s) {
  MgPlanCheck *check = plan_copy(p, s->check, sizeof *check * s->ncheck);
  p->s = *s;
  p->s.buf = plan_copy(p, s->buf, sizeof *s->buf * s->nbuf);
  p->s.block = plan_copy(p, s->block, sizeof *s->block * s->nblock);
  p->s.fresh = plan_copy(p, s->fresh, sizeof *s->fresh * s->nfresh);
  p->s.out = plan_copy(p, s->out, sizeof *s->out * s->nout);
  p->s.copy = plan_copy(p, s->copy, sizeof *s->copy * s->ncopy);
  p->s.numbers.program = plan_copy(p, s->numbers.program, s->numbers.bytes);
  p->s.numbers.input = plan_copy(p, s->numbers.input, sizeof *s->numbers.input * s->numbers.ninput);
  p->s.slot0 = plan_copy(p, s->slot0, sizeof *s->slot0 * s->nslot);
  p->s.sizeop = plan_copy(p, s->sizeop, sizeof *s->sizeop * s->nsizeop);
  if (s->sym) p->s.sym = plan_copy(p, s->sym, sizeof *s->sym * s->nsym);
  p->s.fact = plan_copy(p, s->fact, sizeof *s->fact * s->nfact);
  p->s.written = plan_copy(p, s->written, sizeof *s->written * s->nwritten);
  p->s.code = plan_copy(p, s->code, sizeof *s->code * s->ncode);
  p->s.constant = plan_copy(p, s->constant, sizeof *s->constant * s->nconstant);
  p->s.check = check;
  p->s.step = NULL; /* the caller's; p->step is what runs */
  p->s.early = NULL;
  p->s.label = s->label ? mg_ctx_strdup(&p->mem, s->label) : NULL;
  TRYP(p->mem.rc == MG_OK);
  for (uint32_t i = 0; i < s->ncheck; i++) {
    check[i].type = mg_ctx_strdup(&p->mem, s->check[i].type);
    check[i].msg = mg_ctx_strdup(&p->mem, s->check[i].msg);
    TRYP(check[i].type && check[i].msg);
  }
  return MG_OK;
}

MgRc mg_plan_new(MgCtx *c, const MgPlanSpec *s, MgPlan **out) {
  MgPlan *p = mg_calloc(1, sizeof *p);
  *out = NULL;
  if (!p) return mg_fail(c, MG_NOMEM, "out of memory");
  mg_ctx_init(&p->mem);
  PlanBuild b = {.c = c, .p = p, .s = s};
  MgRc rc = plan_copy_tables(p, s);
  if (rc == MG_OK) rc = plan_fill(&b);
  if (rc != MG_OK) {
    mg_fail(c, rc, "no memory for the plan");
    mg_ctx_free(&p->mem);
    free(p);
    return rc;
  }
  p->times = mg_plan_times_keep(s->times);
  mg_fork_watch();
  *out = p;
  return MG_OK;
}

void mg_plan_free(MgPlan *p) {
  if (!p) return;
  mg_plan_trim(p);
  for (uint32_t i = 0; i < p->nstep; i++)
    if (p->step[i].kind == PK_engine) p->step[i].engine->ops->free(p->step[i].engine);
  for (uint32_t i = 0; i < p->nkernel; i++) mg_cuda_lazy_free(p->kernel[i].gpu.other);
  for (uint32_t i = 0; i < p->s.ncode; i++) mg_kcache_unref(p->s.code[i]);
  for (uint32_t i = 0; i < p->s.nconstant; i++) mg_abi.aoti_torch_delete_tensor_object(p->s.constant[i]);
  if (p->s.host.free) p->s.host.free(p->s.host.self);
  mg_plan_times_drop(p->times);
  mg_ctx_free(&p->mem);
  free(p);
}
