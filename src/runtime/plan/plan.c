/* Runs a plan.  The hot path allocates nothing but the outputs: see plan_priv.h for the tables. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/plan/plan_graph.h"
#include "runtime/plan/plan_priv.h"
#include "runtime/process/profile.h"
#include "runtime/process/threads.h"

typedef struct PlanCall { /* arguments of one mg_plan_run */
  MgPlan *p;
  PlanRun *r;
  MgTensor *const *in;
  const int64_t *sizes; /* of the symbols, or NULL */
  char *err;
  size_t err_len;
} PlanCall;

#define plan_error(k, rc, ...) (snprintf((k)->err, (k)->err_len, __VA_ARGS__), (rc))

/* Input i: the caller's, or a constant of the plan. */
static inline MgTensor *plan_input(const PlanCall *k, uint32_t i) {
  uint32_t given = k->p->s.ninput - k->p->s.nconstant;
  return i < given ? k->in[i] : k->p->s.constant[i - given];
}

/* ---- sizes ---- */

static int64_t plan_floordiv(int64_t a, int64_t b) {
  if (!b) return 0;
  int64_t q = a / b;
  return q - (a % b != 0 && (a < 0) != (b < 0));
}

static void plan_eval_sizes(const MgPlan *p, int64_t *v) {
  for (uint32_t i = 0; i < p->s.nsizeop; i++) {
    const MgSizeOp *o = &p->s.sizeop[i];
    int64_t a = v[o->a], b = v[o->b];
    switch ((MgSizeOpKind)o->op) {
    case SZ_copy: v[o->dst] = a; break;
    case SZ_add: v[o->dst] = (int64_t)((uint64_t)a + (uint64_t)b); break;
    case SZ_sub: v[o->dst] = (int64_t)((uint64_t)a - (uint64_t)b); break;
    case SZ_mul: v[o->dst] = (int64_t)((uint64_t)a * (uint64_t)b); break;
    case SZ_floordiv: v[o->dst] = plan_floordiv(a, b); break;
    case SZ_mod: v[o->dst] = b ? a - plan_floordiv(a, b) * b : 0; break;
    case SZ_min: v[o->dst] = a < b ? a : b; break;
    case SZ_max: v[o->dst] = a > b ? a : b; break;
    }
  }
}

/* The value of symbol i. */
static int64_t plan_symbol(const PlanCall *k, uint32_t i) {
  int64_t *size = NULL;
  if (k->sizes) return k->sizes[i];
  mg_abi.aoti_torch_get_sizes(k->in[k->p->s.sym[i].input], &size);
  return size[k->p->s.sym[i].dim];
}

/* Reads the symbols; true when they differ from the run's last ones. */
static bool plan_read_symbols(const PlanCall *k) {
  bool changed = false;
  for (uint32_t i = 0; i < k->p->s.nsym; i++) {
    int64_t v = plan_symbol(k, i);
    changed |= k->r->slot[i] != v;
    k->r->slot[i] = v;
  }
  return changed;
}

static bool plan_ran_at(void *call, const PlanRun *r) {
  const PlanCall *k = call;
  for (uint32_t i = 0; i < k->p->s.nsym; i++)
    if (r->slot[i] != plan_symbol(k, i)) return false;
  return true;
}

/* CUDA graphs are for the sizes of their runs. */
static PlanRun *plan_take(PlanCall *k) {
  bool sized = k->p->s.nsym && k->p->s.graphs;
  return sized ? mg_plan_run_take_sized(k->p, plan_ran_at, k) : mg_plan_run_take(k->p);
}

static inline void *plan_place(const PlanRun *r, const PlanPatch *q, void *base) {
  return q->offset == UINT32_MAX || !base ? base : (char *)base + r->slot[q->offset] * q->elsize;
}

static void plan_patch(const MgPlan *p, PlanRun *r, uint32_t buf, void *base) {
  PlanSpan s = p->patch_of[buf];
  for (uint32_t i = s.first; i < s.first + s.n; i++)
    r->arg[p->patch[i].arg] = plan_place(r, &p->patch[i], base);
}

static MgRc plan_arena_tensors(PlanCall *k) {
  const MgPlan *p = k->p;
  PlanRun *r = k->r;
  for (uint32_t i = 0; i < p->ntensor; i++) {
    const PlanTensor *t = &p->tensor[i];
    if (t->how != PT_arena) continue;
    if (r->tensor[i]) mg_abi.aoti_torch_delete_tensor_object(r->tensor[i]), r->tensor[i] = NULL;
    const MgPlanView *v = &t->view;
    if (mg_abi.aoti_torch_create_tensor_from_blob(
            r->mem + r->offset[t->block] + r->slot[v->offset] * v->elsize, v->ndim, r->slot + v->size,
            r->slot + v->stride, 0, v->dtype, p->s.cuda, p->s.device, &r->tensor[i]))
      return plan_error(k, MG_NOMEM, "no tensor over the arena");
  }
  return MG_OK;
}

static bool plan_facts_hold(const MgPlan *p, const int64_t *v) {
  for (uint32_t i = 0; i < p->s.nfact; i++) {
    const MgPlanFact *f = &p->s.fact[i];
    if (!mg_plan_fact_holds((MgPlanFactKind)f->is, v[f->a], v[f->b])) return false;
  }
  return true;
}

/* The engines for the sizes of the run, and the scratch memory that they want. */
static MgRc plan_size_engines(const MgPlan *p, PlanRun *r) {
  for (uint32_t i = 0; r->sized && i < p->nstep; i++) {
    const PlanStep *s = &p->step[i];
    if (!s->sized) continue;
    MgTensorDesc *t = mg_malloc(s->sized->bytes);
    if (!t) return MG_NOMEM;
    memcpy(t, s->sized->desc, s->sized->bytes);
    for (uint32_t k = 0; k < s->sized->ntensor; k++)
      for (int d = 0; t[k].present && d < t[k].ndim; d++) {
        t[k].size[d] = r->slot[s->view[k].size + d];
        t[k].stride[d] = r->slot[s->view[k].stride + d];
      }
    TRY(mg_sized_use(s->sized, &r->sized[s->engine_index], t));
    r->state[s->engine_index] = r->sized[s->engine_index].made[0].state;
    r->slot[p->s.block[s->scratch - 1].bytes] = (int64_t)r->sized[s->engine_index].made[0].e->scratch;
  }
  return MG_OK;
}

/* Sizes, and places in the arena: once per run, again when a symbol changes. */
static MgRc plan_size(const MgPlan *p, PlanRun *r) {
  r->sized_for = false;
  plan_eval_sizes(p, r->slot);
  if (!plan_facts_hold(p, r->slot)) return MG_UNSUP;
  TRY(plan_size_engines(p, r));
  if (!p->s.dynamic) r->total = p->s.arena;
  for (uint32_t i = 0; i < p->s.nblock; i++) {
    const MgPlanBlock *b = &p->s.block[i];
    r->offset[i] = b->offset;
    if (!p->s.dynamic) continue;
    int64_t bytes = r->slot[b->bytes];
    r->pack[i].wanted = bytes > 0 ? (uint64_t)bytes : 0;
    r->pack[i].first = b->first, r->pack[i].last = b->last;
  }
  if (p->s.dynamic) {
    mg_pack_again(r->pack, p->s.nblock, r->work, &r->total);
    for (uint32_t i = 0; i < p->s.nblock; i++) r->offset[i] = r->pack[i].offset;
  }
  r->sized_for = true;
  r->bound = false;
  return MG_OK;
}

/* Pointers that depend on sizes and on the arena but not on the call. */
static MgRc plan_bind(PlanCall *k) {
  const MgPlan *p = k->p;
  PlanRun *r = k->r;
  for (uint32_t i = 0; i < p->nkernel; i++) {
    const PlanKernel *q = &p->kernel[i];
    r->range[i] = (MgRange){q->fn,    r->arg + q->arg, r->slot + q->sizes, r->slot[q->outer],
                            q->grain, q->work,         q->beside};
  }
  for (uint32_t i = 0; i < p->narena_patch; i++) {
    const PlanPatch *q = &p->arena_patch[i];
    r->arg[q->arg] = plan_place(r, q, r->mem + r->offset[p->s.buf[p->arena_buf[i]].index]);
  }
  memset(r->input, 0, sizeof *r->input * p->s.ninput);
  for (uint32_t b = 0; b < p->s.nbuf; b++)
    if (p->s.buf[b].mem == PM_number) plan_patch(p, r, b, &r->cell[p->s.buf[b].index]);
  MgRc rc = plan_arena_tensors(k);
  r->bound = rc == MG_OK;
  return rc;
}

/* ---- tensors of extern steps ---- */

/* All memory of t from its first element on as one dimension of another dtype (view_as_real and the like);
 * *out stays NULL when t has that dtype already. */
static int plan_other_dtype(MgTensor *t, int32_t dtype, MgTensor **out) {
  int32_t have = dtype;
  int64_t ndim = 0, *size = NULL, *stride = NULL, n = 1, one = 1;
  MgTensor *flat;
  mg_abi.aoti_torch_get_dtype(t, &have);
  if (have == dtype) return 0;
  mg_abi.aoti_torch_get_dim(t, &ndim);
  mg_abi.aoti_torch_get_sizes(t, &size);
  mg_abi.aoti_torch_get_strides(t, &stride);
  for (int64_t i = 0; i < ndim; i++) n += size[i] ? (size[i] - 1) * stride[i] : 0;
  if (mg_abi.aoti_torch__reinterpret_tensor(t, 1, &n, &one, 0, &flat)) return -1;
  int bad = mg_abi.aoti_torch_view_dtype(flat, dtype, out);
  mg_abi.aoti_torch_delete_tensor_object(flat);
  return bad;
}

static MgRc plan_tensor(PlanCall *k, uint32_t i, MgTensor **out) {
  PlanRun *r = k->r;
  const PlanTensor *t = &k->p->tensor[i];
  *out = NULL;
  switch ((PlanTensorHow)t->how) {
  case PT_none: return MG_OK;
  case PT_input:
    *out = r->capturing && r->staged && r->staged[t->index] ? r->staged[t->index] : plan_input(k, t->index);
    return MG_OK;
  case PT_fresh: *out = r->fresh[t->index]; return MG_OK;
  case PT_arena:
  case PT_result: *out = r->tensor[i]; return MG_OK;
  case PT_view: break;
  }
  if (!r->tensor[i]) {
    MgTensor *base;
    const MgPlanView *v = &t->view;
    TRY(plan_tensor(k, t->index, &base));
    MgTensor *bits = NULL;
    if (plan_other_dtype(base, v->dtype, &bits))
      return plan_error(k, MG_NOMEM, "no view of a tensor in another dtype");
    if (bits) base = bits;
    bool bad = mg_abi.aoti_torch__reinterpret_tensor(base, v->ndim, r->slot + v->size, r->slot + v->stride,
                                                     r->slot[v->offset], &r->tensor[i]) != 0;
    if (bits) mg_abi.aoti_torch_delete_tensor_object(bits);
    if (bad) return plan_error(k, MG_NOMEM, "no view of a tensor");
  }
  *out = r->tensor[i];
  return MG_OK;
}

static inline void plan_drop(PlanRun *r, uint32_t i) {
  if (!r->tensor[i]) return;
  mg_abi.aoti_torch_delete_tensor_object(r->tensor[i]);
  r->tensor[i] = NULL;
}

/* u = t, both of these sizes; along dimensions in which u repeats an element, its first one is written. */
static bool plan_copy_once(MgTensor *u, MgTensor *t, int64_t dim, const int64_t *size, const int64_t *to,
                           const int64_t *from) {
  enum { MOST = 64 };
  int64_t once[MOST], at = 0;
  MgTensor *one[2] = {NULL, NULL};
  bool repeats = false;
  for (int i = 0; i < dim && i < MOST; i++) repeats |= !to[i] && size[i] > 1, once[i] = to[i] ? size[i] : 1;
  if (!repeats || dim > MOST) return !mg_abi.aoti_torch_copy_(u, t, 0);
  mg_abi.aoti_torch_get_storage_offset(t, &at);
  bool ok = !mg_abi.aoti_torch__reinterpret_tensor(u, dim, once, to, 0, &one[0]) &&
            !mg_abi.aoti_torch__reinterpret_tensor(t, dim, once, from, at, &one[1]) &&
            !mg_abi.aoti_torch_copy_(one[0], one[1], 0);
  for (int i = 0; i < 2; i++)
    if (one[i]) mg_abi.aoti_torch_delete_tensor_object(one[i]);
  return ok;
}

/* Makes t exactly what the graph said: sizes must agree, strides may not (the op's own choice of layout) and
 * then the values are copied; where only strides that address nothing differ (of dimensions of size 1, of no
 * elements), the memory is seen with the others.  as_is: only sizes and dtype matter.  Takes
 * t; gives the tensor to use. */
static MgRc plan_fit(PlanCall *k, const PlanStep *s, const MgPlanView *v, bool as_is, MgTensor **t) {
  int64_t dim = 0, *size = NULL, *stride = NULL;
  int32_t dtype = 0, device = 0, number = 0;
  const int64_t *want = k->r->slot + v->size, *step = k->r->slot + v->stride;
  mg_abi.aoti_torch_get_dim(*t, &dim);
  mg_abi.aoti_torch_get_sizes(*t, &size);
  mg_abi.aoti_torch_get_strides(*t, &stride);
  mg_abi.aoti_torch_get_dtype(*t, &dtype);
  bool same = true, equal = true, empty = false;
  if (v->opaque) return MG_OK;
  if (dim != v->ndim || dtype != v->dtype)
    return plan_error(k, MG_BUG, "%s returned another rank or dtype", s->name);
  for (int i = 0; i < dim; i++) {
    if (size[i] != want[i]) return plan_error(k, MG_BUG, "%s returned other sizes than recorded", s->name);
    if (stride[i] != step[i]) equal = false, same = same && size[i] <= 1;
    if (!size[i]) empty = true;
  }
  if (equal || as_is) return MG_OK;
  MgTensor *u;
  if (same || empty) {
    int64_t offset = 0;
    mg_abi.aoti_torch_get_storage_offset(*t, &offset);
    if (mg_abi.aoti_torch__reinterpret_tensor(*t, dim, want, step, offset, &u))
      return plan_error(k, MG_NOMEM, "no view of a tensor");
    mg_abi.aoti_torch_delete_tensor_object(*t);
    *t = u;
    return MG_OK;
  }
  if (k->p->s.cuda) { /* among whose results are some on the CPU */
    mg_abi.aoti_torch_get_device_type(*t, &device);
    mg_abi.aoti_torch_get_device_index(*t, &number);
  }
  if (mg_abi.aoti_torch_empty_strided(dim, want, step, dtype, device, number, &u))
    return plan_error(k, MG_NOMEM, "out of memory");
  if (!plan_copy_once(u, *t, dim, want, step, stride)) {
    mg_abi.aoti_torch_delete_tensor_object(u);
    return plan_error(k, MG_BUG, "copy of the result of %s failed", s->name);
  }
  mg_abi.aoti_torch_delete_tensor_object(*t);
  *t = u;
  return MG_OK;
}

/* An extern result becomes known: its base address goes to the kernels that read it. */
static MgRc plan_result(PlanCall *k, const PlanStep *s, uint32_t i, MgTensor *t) {
  const PlanTensor *want = &k->p->tensor[i];
  k->r->tensor[i] = t;
  if (want->how != PT_result) return plan_error(k, MG_BUG, "%s: result without a place", s->name);
  if (!t) return plan_error(k, MG_BUG, "%s returned an undefined tensor", s->name);
  TRY(plan_fit(k, s, &want->view, want->as_is, &k->r->tensor[i]));
  void *p = NULL;
  int64_t n = 0;
  mg_abi.aoti_torch_get_data_ptr(k->r->tensor[i], &p);
  if (!p && !mg_abi.aoti_torch_get_numel(k->r->tensor[i], &n) && n)
    return plan_error(k, MG_BUG, "%s returned a tensor without memory", s->name); /* it wraps others */
  plan_patch(k->p, k->r, want->view.buf, p);
  return MG_OK;
}

/* One call with its arguments and room for its results. */
static MgRc plan_host_call(PlanCall *k, const PlanStep *s, MgTensor **in, MgTensor **out) {
  const uint32_t *list = k->p->list;
  for (uint32_t i = 0; i < s->in.n; i++) TRY(plan_tensor(k, list[s->in.first + i], &in[i]));
  memset(out, 0, sizeof *out * s->out.n);
  const MgHost *h = &k->p->s.host;
  MgRc rc = h->call(h->self, s->host_id, in, (int)s->in.n, out, (int)s->out.n) ? MG_PYERR : MG_OK;
  for (uint32_t i = 0; i < s->out.n; i++) {
    uint32_t t = list[s->out.first + i];
    if (rc == MG_OK && k->p->tensor[t].how != PT_none) rc = plan_result(k, s, t, out[i]);
    else if (out[i]) mg_abi.aoti_torch_delete_tensor_object(out[i]);
  }
  return rc;
}

static MgRc plan_host(PlanCall *k, const PlanStep *s) {
  enum { SMALL = 64 };
  MgTensor *few[SMALL], **all = few;
  size_t n = (size_t)s->in.n + s->out.n;
  if (n > SMALL && !(all = mg_malloc(n * sizeof *all))) return plan_error(k, MG_NOMEM, "out of memory");
  MgRc rc = plan_host_call(k, s, all, all + s->in.n);
  if (all != few) free(all);
  return rc;
}

typedef struct PlanEngineRun {
  const MgEngine *engine;
  MgEngineArgs *a;
  int bad;
} PlanEngineRun;

static void *plan_engine_run(void *arg) {
  PlanEngineRun *e = arg;
  e->bad = e->engine->ops->run(e->engine, e->a);
  return NULL;
}

static MgRc plan_engine(PlanCall *k, const PlanStep *s) {
  PlanRun *r = k->r;
  MgTensor *tensor[PLAN_ENGINE_ARGS];
  const MgEngine *engine = s->sized ? r->sized[s->engine_index].made[0].e : s->engine;
  MgEngineArgs a = {.ptr = (void *const *)r->arg + s->arg,
                    .scratch = s->scratch ? r->mem + r->offset[s->scratch - 1] : NULL,
                    .state = r->state[s->engine_index]};
  if (engine->tensors) {
    for (uint32_t i = 0; i < s->in.n; i++) TRY(plan_tensor(k, k->p->list[s->in.first + i], &tensor[i]));
    for (uint32_t i = 0; i < s->out.n; i++)
      TRY(plan_tensor(k, k->p->list[s->out.first + i], &tensor[s->in.n + i]));
    a.tensor = tensor;
  }
  PlanEngineRun e = {engine, &a, -1};
  if (engine->tensors) plan_engine_run(&e); /* ATen's, which obeys the number of threads */
  else mg_threads_apart(plan_engine_run, &e);
  if (e.bad) return plan_error(k, MG_BUG, "%s: %s", s->name, a.err ? a.err : "failed");
  return MG_OK;
}

static MgRc plan_extern(PlanCall *k, const PlanStep *s) {
  return s->kind == PK_engine ? plan_engine(k, s) : plan_host(k, s);
}

/* The same in a CUDA graph that is captured: beside what follows, where it may be. */
static MgRc plan_extern_captured(PlanCall *k, const PlanStep *s) {
  MgBranch *b = s->apart ? &k->r->capturing->branch : NULL;
  if (!b || !b->side) return plan_extern(k, s);
  if (!mg_cuda_branch_enter(b)) return MG_UNSUP;
  MgRc rc = plan_extern(k, s);
  mg_cuda_branch_leave(b);
  return rc;
}

static MgRc plan_kernels(PlanCall *k, uint32_t first, uint32_t n) {
  if (!k->p->s.cuda) return mg_threads_run(k->r->range + first, n, k->p->s.threads), MG_OK;
  const char *why = mg_plan_gpu_launch(k->p, k->r, first, n);
  return why ? plan_error(k, MG_BUG, "a kernel does not start: %s", why) : MG_OK;
}

/* Who looks at the steps of a run. */
typedef struct PlanWatch {
  bool shown;         /* a profiler: each kernel and each call has a scope */
  MgPlanTimes *times; /* a report: each is measured; NULL: they are not */
} PlanWatch;

static MgRc plan_kernels_apart(PlanCall *k, PlanSpan kernels, PlanWatch w) {
  const MgPlan *p = k->p;
  for (uint32_t i = kernels.first; i < kernels.first + kernels.n; i++) {
    void *scope = w.shown ? mg_plan_scope_begin(k->r->slot, &p->kernel[i].scope, "magneto::kernel") : NULL;
    uint64_t t = w.times ? mg_ticks() : 0;
    MgRc rc = plan_kernels(k, i, 1);
    if (w.times) mg_plan_times_step(w.times, p->kernel[i].number, t);
    mg_profile_end(scope);
    TRY(rc);
  }
  return MG_OK;
}

/* The same as in plan_steps, each kernel and each call for itself. */
static MgRc plan_step_apart(PlanCall *k, const PlanStep *s, PlanWatch w) {
  if (s->kind == PK_kernel) return plan_kernels_apart(k, s->kernels, w);
  void *scope = w.shown ? mg_plan_scope_begin(k->r->slot, &s->scope, s->name) : NULL;
  uint64_t t = w.times ? mg_ticks() : 0;
  MgRc rc = plan_extern(k, s);
  if (w.times) mg_plan_times_step(w.times, s->number, t);
  mg_profile_end(scope);
  return rc;
}

static MgRc plan_steps(PlanCall *k, uint32_t until, PlanWatch w) {
  const MgPlan *p = k->p;
  bool apart = w.shown || w.times;
  for (; k->r->at < until; k->r->at++) {
    uint32_t i = k->r->at;
    const PlanStep *s = &p->step[i];
    if (s->joins && k->r->capturing && !mg_cuda_branch_join(&k->r->capturing->branch)) return MG_UNSUP;
    if (apart) TRY(plan_step_apart(k, s, w));
    else if (s->kind == PK_kernel) TRY(plan_kernels(k, s->kernels.first, s->kernels.n));
    else if (k->r->capturing) TRY(plan_extern_captured(k, s));
    else TRY(plan_extern(k, s));
    for (uint32_t j = 0; j < s->release.n; j++) plan_drop(k->r, p->list[s->release.first + j]);
  }
  return MG_OK;
}

/* ---- inputs and outputs ---- */

static MgRc plan_resize(const PlanCall *k) {
  bool changed = k->p->s.nsym && plan_read_symbols(k);
  if (changed && k->p->s.graphs) mg_plan_graph_restart(k->p, k->r);
  return !k->r->sized_for || changed ? plan_size(k->p, k->r) : MG_OK;
}

bool mg_plan_takes(MgPlan *p, const int64_t *sizes) {
  PlanCall k = {.p = p, .sizes = sizes};
  k.r = plan_take(&k);
  bool takes = k.r && plan_resize(&k) == MG_OK;
  if (k.r) mg_plan_run_give(p, k.r);
  return takes;
}

/* Why there is no new tensor: a size that the program computed may be negative, which is ATen's error. */
static MgRc plan_no_output(PlanCall *k, const MgPlanView *v) {
  const int64_t *size = k->r->slot + v->size;
  int n = 0, at = 0;
  char all[200] = "";
  for (int i = 0; i < v->ndim && at < (int)sizeof all; i++)
    at += snprintf(all + at, sizeof all - (size_t)at, i ? ", %lld" : "%lld", (long long)size[i]);
  while (n < v->ndim && size[n] >= 0) n++;
  if (n == v->ndim) return plan_error(k, MG_NOMEM, "no memory for an output");
  return plan_error(k, MG_RAISE, "RuntimeError: Trying to create tensor with negative dimension %lld: [%s]",
                    (long long)size[n], all);
}

/* What kernels take of the CPU's numbers, for this call. */
static void plan_numbers(PlanCall *k) {
  const MgPlanNumbers *n = &k->p->s.numbers;
  if (!n->ncell) return;
  for (uint32_t i = 0; i < n->ninput; i++) {
    void *ptr = NULL;
    mg_abi.aoti_torch_get_data_ptr(plan_input(k, n->input[i]), &ptr);
    k->r->cell[i] = (uint64_t)(uintptr_t)ptr;
  }
  n->run(n->program, k->r->cell);
}

/* The addresses of inputs, and of the new tensors that are outputs; and numbers. */
static MgRc plan_addresses(PlanCall *k) {
  const MgPlan *p = k->p;
  PlanRun *r = k->r;
  for (uint32_t i = 0; i < p->s.ninput; i++) {
    void *ptr = NULL;
    uint32_t buf = p->buf_of_input[i];
    if (!buf) continue;
    mg_abi.aoti_torch_get_data_ptr(plan_input(k, i), &ptr);
    if (ptr == r->input[i]) continue; /* parameters rarely move */
    r->input[i] = ptr;
    plan_patch(p, r, buf, ptr);
  }
  for (uint32_t i = 0; i < p->s.nfresh; i++) {
    const MgPlanView *v = &p->s.fresh[i].view;
    if (!r->fresh[i] &&
        mg_abi.aoti_torch_empty_strided(v->ndim, r->slot + v->size, r->slot + v->stride, v->dtype,
                                        p->s.fresh[i].device, p->s.fresh[i].dev_index, &r->fresh[i]))
      return plan_no_output(k, v);
    void *ptr = NULL;
    mg_abi.aoti_torch_get_data_ptr(r->fresh[i], &ptr);
    plan_patch(p, r, v->buf, ptr);
  }
  plan_numbers(k);
  return MG_OK;
}

static MgRc plan_enter(PlanCall *k) {
  const MgPlan *p = k->p;
  PlanRun *r = k->r;
  if (p->nengine && !mg_threads_have_room(mg_abi_threads())) /* what is written cannot be run again */
    return plan_error(k, p->s.nwritten ? MG_NOMEM : MG_BUG,
                      "out of memory: too little address space is left for threads");
  MgRc rc = plan_resize(k);
  if (rc != MG_OK)
    return plan_error(k, rc, rc == MG_UNSUP ? "the plan is not for these sizes" : "out of memory");
  if (r->total && p->s.cuda) {
    if (!mg_plan_gpu_arena(p, r))
      return plan_error(k, MG_NOMEM, "no memory for intermediates (%llu bytes)",
                        (unsigned long long)r->total);
  } else if (r->total) {
    if (!(r->arena = mg_arena_take(r->total)))
      return plan_error(k, MG_NOMEM, "no memory for intermediates (%llu bytes)",
                        (unsigned long long)r->total);
    if (r->arena->mem != r->mem) r->mem = r->arena->mem, r->bound = false; /* usually the same as last time */
  }
  if (!r->bound) TRY(plan_bind(k));
  TRY(plan_addresses(k));
  if (p->s.ncheck && !p->s.cuda) memset(r->mem + r->offset[p->s.err], 0, sizeof(int32_t) * p->s.ncheck);
  return MG_OK;
}

static void plan_copy_number(const PlanCall *k, const MgPlanView *from, MgTensor *to) {
  void *ptr = NULL;
  mg_abi.aoti_torch_get_data_ptr(to, &ptr);
  memcpy(ptr, &k->r->cell[k->p->s.buf[from->buf].index], from->elsize);
}

static MgRc plan_copies(PlanCall *k) {
  for (uint32_t i = 0; i < k->p->s.ncopy; i++) {
    MgTensor *t, *to = plan_input(k, k->p->s.copy[i].input);
    if (k->p->copy_tensor[i] == UINT32_MAX) {
      plan_copy_number(k, &k->p->s.copy[i].from, to);
      continue;
    }
    TRY(plan_tensor(k, k->p->copy_tensor[i], &t));
    if (mg_abi.aoti_torch_copy_(to, t, 0)) return plan_error(k, MG_BUG, "an input could not be written");
  }
  return MG_OK;
}

static MgRc plan_checks(PlanCall *k) {
  const int32_t *cell = (const int32_t *)(k->r->mem + k->r->offset[k->p->s.err]);
  for (uint32_t i = 0; i < k->p->s.ncheck; i++)
    if (cell[i]) return plan_error(k, MG_RAISE, "%s: %s", k->p->s.check[i].type, k->p->s.check[i].msg);
  return MG_OK;
}

/* Does entry i lie in the memory of a CUDA graph, which the next call writes again? */
static bool plan_is_graphs(const MgPlan *p, uint32_t i) {
  const PlanTensor *t = &p->tensor[mg_plan_root(p, i)];
  return t->how != PT_input && t->how != PT_fresh && !t->on_host;
}

/* The tensor of output o, as one that leaves the plan.  It must own its memory: one that an op made as a view
 * of arena memory is copied.  And it must be a tensor of its own, as eager's views are: a handle of an input,
 * or of an earlier output, would be that tensor itself for Python. */
static MgRc plan_leave(PlanCall *k, uint32_t o, MgTensor **out) {
  uint32_t i = k->p->out_tensor[o];
  void *ptr = NULL;
  MgTensor *t;
  int32_t bad;
  TRY(plan_tensor(k, i, &t));
  mg_abi.aoti_torch_get_data_ptr(t, &ptr);
  uint8_t how = k->p->tensor[i].how;
  bool graphs = k->r->replayed && plan_is_graphs(k->p, i);
  if (graphs && !mg_plan_graph_lends(k->p, o)) {
    bad = mg_plan_graph_give(k->r, o, t, out);
  } else if ((uint8_t *)ptr >= k->r->mem && (uint8_t *)ptr < k->r->mem + k->r->total) {
    bad = mg_abi.aoti_torch_clone_preserve_strides(t, out);
  } else if (!graphs && (how == PT_view || how == PT_result) && !k->p->out_again[o]) {
    bad = mg_abi.aoti_torch_new_tensor_handle(t, out);
  } else {
    int64_t ndim = 0, *size = NULL, *stride = NULL;
    mg_abi.aoti_torch_get_dim(t, &ndim);
    mg_abi.aoti_torch_get_sizes(t, &size);
    mg_abi.aoti_torch_get_strides(t, &stride);
    bad = mg_abi.aoti_torch__reinterpret_tensor(t, ndim, size, stride, 0, out);
  }
  return bad ? plan_error(k, MG_NOMEM, "no memory for an output") : MG_OK;
}

/* A result that the program sees as a view of an input, from its geometry.  NULL: it is a tensor over
 * the same memory, as others. */
static MgTensor *plan_view(const PlanCall *k, const MgPlanView *v) {
  const PlanRun *r = k->r;
  MgTensor *base = plan_input(k, k->p->s.buf[v->buf].index);
  int32_t dtype = -1;
  int64_t at = 0;
  mg_abi.aoti_torch_get_dtype(base, &dtype);
  mg_abi.aoti_torch_get_storage_offset(base, &at);
  return dtype == v->dtype
             ? mg_abi_view(base, v->ndim, r->slot + v->size, r->slot + v->stride, at + r->slot[v->offset])
             : NULL;
}

static bool plan_is_due(const MgPlan *p, uint32_t i, uint32_t from, bool begun, uint32_t at) {
  return (!begun || p->ready[i] > from) && p->ready[i] <= at;
}

/* Whoever took the output shall be the only one that holds it, although the run goes on. */
static void plan_forget(PlanCall *k, uint32_t i) {
  const PlanTensor *t = &k->p->tensor[i];
  if (t->how == PT_view) plan_forget(k, t->index);
  if (t->how == PT_view || t->how == PT_result) plan_drop(k->r, i);
}

/* The outputs that became ready after step `from`; those over one buffer do so at the same time. */
static MgRc plan_outputs(PlanCall *k, uint32_t from, bool begun, MgTensor **out, int *same) {
  const MgPlan *p = k->p;
  bool last = k->r->at == p->nstep;
  for (uint32_t i = 0; i < p->s.nout; i++) {
    const MgPlanOut *o = &p->s.out[i];
    if (!plan_is_due(p, i, from, begun, k->r->at)) continue;
    switch ((MgPlanOutKind)o->kind) {
    case PO_same_input: same[i] = (int)o->index; break;
    case PO_fresh: break; /* moved below: views of it may still be made */
    case PO_same_output: break;
    case PO_view:
      if (!o->viewed || !(out[i] = plan_view(k, &o->view))) TRY(plan_leave(k, i, &out[i]));
      break;
    }
  }
  for (uint32_t i = 0; i < p->s.nout; i++) {
    const MgPlanOut *o = &p->s.out[i];
    if (!plan_is_due(p, i, from, begun, k->r->at)) continue;
    if (o->kind == PO_view && !last && !p->kept[i]) plan_forget(k, p->out_tensor[i]);
    if (o->kind == PO_fresh && !p->kept[i]) out[i] = k->r->fresh[o->index], k->r->fresh[o->index] = NULL;
    else if (o->kind == PO_fresh && mg_abi.aoti_torch_new_tensor_handle(k->r->fresh[o->index], &out[i]))
      return plan_error(k, MG_NOMEM, "out of memory");
    if (o->kind != PO_same_output) continue;
    if (!out[o->index]) same[i] = same[o->index];
    else if (mg_abi.aoti_torch_new_tensor_handle(out[o->index], &out[i]))
      return plan_error(k, MG_NOMEM, "out of memory");
  }
  const char *why = k->r->replayed ? mg_plan_graph_copied(k->r) : NULL;
  return why ? plan_error(k, MG_BUG, "results are not copied: %s", why) : MG_OK;
}

/* Ends the run: what the call made and nobody took is given back. */
void mg_plan_stop(MgPlan *p, MgPlanCall *r) {
  mg_plan_graph_done(p, r);
  for (uint32_t i = 0; i < p->nlazy; i++) plan_drop(r, p->lazy[i]);
  for (uint32_t i = 0; i < p->s.nfresh; i++) /* only views of it were given away, or nothing */
    if (r->fresh[i]) mg_abi.aoti_torch_delete_tensor_object(r->fresh[i]), r->fresh[i] = NULL;
  mg_plan_run_give(p, r);
}

const char *mg_plan_label(const MgPlan *p) { return p->s.label; }

/* Does a profiler want to see the run?  Runs that take long ask for profilers of all threads, too. */
static bool plan_shown(const MgPlan *p) {
  return p->shows_all ? mg_profile_on_everywhere() : mg_profile_on();
}

static MgRc plan_enter_all(void *call) { return plan_enter(call); }
static MgRc plan_steps_all(void *call) {
  return plan_steps(call, ((PlanCall *)call)->p->nstep, (PlanWatch){0});
}
static MgRc plan_host_all(void *call) {
  const MgPlan *p = ((PlanCall *)call)->p;
  for (uint32_t i = 0; i < p->nstep; i++)
    if (p->step[i].on_host) TRY(plan_extern(call, &p->step[i]));
  return MG_OK;
}
static MgRc plan_addresses_all(void *call) { return plan_addresses(call); }

static bool plan_by_graph(PlanCall *k, MgRc *rc) {
  const PlanSteps s = {.p = k->p,
                       .r = k->r,
                       .in = k->in,
                       .call = k,
                       .enter = plan_enter_all,
                       .steps = plan_steps_all,
                       .host_steps = plan_host_all,
                       .bind = plan_addresses_all};
  if (plan_resize(k) != MG_OK || !mg_plan_graph_run(&s, rc)) return false;
  if (*rc != MG_OK) *rc = plan_error(k, *rc, "a CUDA graph does not run");
  return true;
}

/* What is measured of a run. */
typedef struct PlanMeasure {
  MgPlanTimes *times; /* NULL: nothing */
  bool closely;
  uint64_t ticks; /* of the parts before */
} PlanMeasure;

static MgRc plan_part(PlanMeasure *m, MgPlan *p, MgPlanCall **call, uint32_t until, MgTensor *const *in,
                      const int64_t *sizes, MgTensor **out, int *same, char *err, size_t err_len) {
  PlanWatch watch = {plan_shown(p), m->closely ? m->times : NULL};
  bool apart = watch.shown || watch.times;
  void *scope = watch.shown ? mg_profile_begin(p->s.label ? p->s.label : "magneto::plan", in,
                                               p->s.ninput - p->s.nconstant)
                            : NULL;
  PlanCall k = {p, *call, in, sizes, err, err_len};
  if (!k.r) k.r = plan_take(&k);
  bool grad = p->aten && mg_abi.aoti_torch_grad_mode_is_enabled(), begun = *call != NULL;
  for (uint32_t i = 0; i < p->s.nout; i++) out[i] = NULL, same[i] = -1;
  *call = NULL;
  if (!k.r) {
    mg_profile_end(scope);
    return plan_error(&k, MG_NOMEM, "out of memory");
  }
  MgCudaScope on = {0};
  if (p->s.cuda && !mg_cuda_enter(p->s.device, &on)) {
    mg_plan_stop(p, k.r);
    mg_profile_end(scope);
    return plan_error(&k, MG_BUG, "no context for CUDA device %d", p->s.device);
  }
  int team = mg_threads_alone();
  if (!begun) k.r->at = 0;
  uint32_t from = k.r->at;
  if (grad) mg_abi.aoti_torch_grad_mode_set_enabled(false);
  MgRc rc = MG_OK;
  bool whole = p->s.graphs && !begun && until >= p->nstep && !apart && plan_by_graph(&k, &rc);
  if (!whole) k.r->replayed = false;
  if (!whole && !begun) rc = plan_enter(&k);
  if (!whole && rc == MG_OK) rc = plan_steps(&k, until < p->nstep ? until : p->nstep, watch);
  if (rc == MG_OK && p->s.ncopy && k.r->at == p->nstep) rc = plan_copies(&k);
  if (rc == MG_OK && p->s.ncheck && !p->s.cuda) rc = plan_checks(&k); /* a GPU's kernels trap */
  if (rc == MG_OK) rc = plan_outputs(&k, from, begun, out, same);
  if (grad) mg_abi.aoti_torch_grad_mode_set_enabled(true);
  for (uint32_t i = 0; rc != MG_OK && i < p->s.nout; i++)
    if (out[i]) mg_abi.aoti_torch_delete_tensor_object(out[i]), out[i] = NULL;
  if (rc == MG_OK && k.r->at < p->nstep) *call = k.r;
  else mg_plan_stop(p, k.r);
  mg_threads_together(team);
  if (p->s.cuda) mg_cuda_leave(&on);
  mg_profile_end(scope);
  return rc;
}

MgRc mg_plan_part(MgPlan *p, MgPlanCall **call, uint32_t until, MgTensor *const *in, const int64_t *sizes,
                  MgTensor **out, int *same, char *err, size_t err_len) {
  PlanMeasure m = {.times = mg_measure_on ? p->times : NULL};
  if (!m.times) return plan_part(&m, p, call, until, in, sizes, out, same, err, err_len);
  m.closely = *call ? (*call)->closely : mg_plan_times_begin(m.times);
  m.ticks = *call ? (*call)->ticks : 0;
  uint64_t t = mg_ticks();
  MgRc rc = plan_part(&m, p, call, until, in, sizes, out, same, err, err_len);
  m.ticks += mg_ticks() - t;
  if (*call) (*call)->closely = m.closely, (*call)->ticks = m.ticks;
  else if (rc == MG_OK) mg_plan_times_end(m.times, m.closely, m.ticks);
  return rc;
}

MgRc mg_plan_run(MgPlan *p, MgTensor *const *in, const int64_t *sizes, MgTensor **out, int *same, char *err,
                 size_t err_len) {
  MgPlanCall *call = NULL;
  return mg_plan_part(p, &call, p->nstep, in, sizes, out, same, err, err_len);
}

const uint32_t *mg_plan_ready(const MgPlan *p) { return p->ready; }
uint32_t mg_plan_early(const MgPlan *p) { return p->early; }

void mg_plan_info(const MgPlan *p, MgPlanInfo *out) {
  *out = (MgPlanInfo){.ninput = (int)(p->s.ninput - p->s.nconstant),
                      .noutput = (int)p->s.nout,
                      .nkernel = (int)p->nkernel,
                      .nextern = (int)(p->nengine + p->nhost),
                      .nstep = (int)p->s.nstep,
                      .nhost = (int)p->nhost,
                      .graphs = mg_plan_graph_possible(p),
                      .arena_bytes = p->s.arena,
                      .bytes_moved = p->s.bytes_moved,
                      .written = p->s.written,
                      .nwritten = (int)p->s.nwritten};
}
