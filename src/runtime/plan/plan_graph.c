/* CUDA graphs of plans.  See the header.
 * A PlanGraph belongs to a run and to the stream that it was captured on; on another stream, or with other
 * settings of torch's libraries, the run goes step by step.  An input that a library call reads and that has
 * moved ends the graph; the next one is captured over a copy of it. */
#include "runtime/plan/plan_graph.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "runtime/plan/plan_priv.h"
#include "runtime/process/generator.h"
#include "tuning.h"

static const MgGraphHost *graph_host;
static _Thread_local char graph_thread; /* its address names the calling thread */
static atomic_ullong graph_captures, graph_replays, graph_failed;

void mg_plan_graph_host(const MgGraphHost *h) { graph_host = h; }
void mg_plan_graph_stats(MgGraphStats *out) {
  *out = (MgGraphStats){graph_captures, graph_replays, graph_failed};
}

bool mg_plan_graph_possible(const MgPlan *p) {
  static atomic_bool told;
  if (!p->s.graphs || !graph_host) return false;
  const char *missing = mg_cuda_graphs_missing();
  if (!missing && p->random) missing = mg_draws_missing();
  if (missing && !atomic_exchange(&told, true))
    mg_log(MG_LOG_fallback, "no CUDA graphs: %s is not there", missing);
  return !missing && (!p->s.nhidden || mg_abi.counts_uses);
}

/* Whose memory is the graph's, not the call's? */
static bool graph_keeps_fresh(const MgPlan *p, uint32_t i) {
  return p->fresh_called[i] || p->fresh_hidden[i];
}

/* The entry of the tensor that owns the memory of output o; UINT32_MAX: the output is no view. */
static uint32_t graph_root(const MgPlan *p, uint32_t o) {
  return p->s.out[o].kind == PO_view ? mg_plan_root(p, p->out_tensor[o]) : UINT32_MAX;
}

bool mg_plan_graph_lends(const MgPlan *p, uint32_t o) {
  uint32_t i = o < p->s.nout - p->s.nhidden ? UINT32_MAX : graph_root(p, o);
  return i != UINT32_MAX && p->tensor[i].how == PT_result;
}

/* ---- giving back ---- */

static void graph_free(const MgPlan *p, PlanGraph *g) {
  if (!g) return;
  mg_cuda_graph_free(g->exec);
  if (!g->lent_graph) mg_cuda_graph_drop(g->graph);
  for (uint32_t i = 0; g->result && i < p->ntensor; i++)
    if (g->result[i]) mg_abi.aoti_torch_delete_tensor_object(g->result[i]);
  for (uint32_t i = 0; g->fresh && i < p->s.nfresh; i++)
    if (g->fresh[i]) mg_abi.aoti_torch_delete_tensor_object(g->fresh[i]);
  free(g->fresh);
  mg_results_forget(&g->results);
  if (g->arena) mg_abi.aoti_torch_delete_tensor_object(g->arena);
  if (g->keep) graph_host->drop(g->keep);
  for (uint32_t i = 0; i < g->nnode; i++) free(g->node[i].param);
  free(g->node);
  free(g->lent);
  free(g->memory);
  free(g->results.whole);
  free(g->result);
  free(g->input);
  free(g->arg);
  free(g);
}

void mg_plan_graph_free(const MgPlan *p, PlanRun *r) {
  graph_free(p, r->graph);
  r->graph = NULL;
  for (uint32_t i = 0; r->staged && i < p->s.ninput; i++)
    if (r->staged[i]) mg_abi.aoti_torch_delete_tensor_object(r->staged[i]);
  free(r->staged);
  r->staged = NULL;
}

void mg_plan_graph_restart(const MgPlan *p, PlanRun *r) {
  mg_plan_graph_free(p, r);
  memset(r->stage, 0, p->s.ninput * sizeof *r->stage);
  r->runs = r->captures = r->refused = 0;
  r->replayed = r->bound = false;
}

/* Sizes that rarely come again are not worth their captures. */
static bool graph_pays(const MgPlan *p) {
  return p->captured < MG_TUNE_GRAPH_SIZES || p->replayed >= p->captured * MG_TUNE_GRAPH_PAYS;
}

/* ---- recording launches ---- */

bool mg_plan_graph_note(PlanRun *r, uint32_t kernel, const PlanLaunch *l, void *stream) {
  PlanGraph *g = r->capturing;
  PlanNode *n = &g->node[g->nnode];
  *n = (PlanNode){.kernel = kernel, .fn = l->fn, .param = mg_malloc((l->n + 1) * sizeof *n->param)};
  if (!n->param) return false;
  g->nnode++;
  memcpy(n->param, l->value, l->n * sizeof *n->param);
  return (n->node = mg_cuda_captured(stream)) != NULL;
}

/* ---- capturing ---- */

/* The program's outputs that only kernels of ours touch come from PyTorch's ordinary memory;
 * the others from the graph's. */
static bool graph_fresh(const MgPlan *p, PlanRun *r) {
  for (uint32_t i = 0; i < p->s.nfresh; i++) {
    if (graph_keeps_fresh(p, i)) continue;
    const MgPlanView *v = &p->s.fresh[i].view;
    if (mg_abi.aoti_torch_empty_strided(v->ndim, r->slot + v->size, r->slot + v->stride, v->dtype,
                                        p->s.fresh[i].device, p->s.fresh[i].dev_index, &r->fresh[i]))
      return r->fresh[i] = NULL, false;
  }
  return true;
}

static bool graph_on_device(MgTensor *t) {
  int32_t device = -1;
  mg_abi.aoti_torch_get_device_type(t, &device);
  return device == MG_TORCH_CUDA;
}

static bool graph_stage_one(const MgPlan *p, MgTensor *t, MgTensor **out) {
  return graph_on_device(t) ? !mg_results_like(t, p->s.device, out)
                            : !mg_abi.aoti_torch_clone_preserve_strides(t, out);
}

/* Copies of the inputs that have moved before, to be filled by every replay. */
static bool graph_stage(const MgPlan *p, PlanRun *r, MgTensor *const *in) {
  for (uint32_t i = 0; r->staged && i < p->s.ninput - p->s.nconstant; i++)
    if (r->stage[i] && !r->staged[i] && !graph_stage_one(p, in[i], &r->staged[i]))
      return r->staged[i] = NULL, false;
  return true;
}

static PlanGraph *graph_new(const MgPlan *p) {
  PlanGraph *g = mg_calloc(1, sizeof *g);
  if (!g) return NULL;
  g->node = mg_calloc(p->nkernel + 1, sizeof *g->node);
  g->result = mg_calloc(p->ntensor + 1, sizeof *g->result);
  g->input = mg_calloc(p->s.ninput + 1, sizeof *g->input);
  g->arg = mg_calloc(p->narg + 1, sizeof *g->arg);
  g->fresh = mg_calloc(p->s.nfresh + 1, sizeof *g->fresh);
  g->lent = mg_calloc(p->s.nfresh + p->s.nhidden + 1, sizeof *g->lent);
  g->memory = mg_calloc(p->s.nout + p->s.nfresh + 1, sizeof *g->memory);
  g->results.whole = mg_calloc(p->s.nout + p->s.nfresh + 1, sizeof *g->results.whole);
  if (g->lent && g->fresh && g->node && g->result && g->input && g->arg && g->memory && g->results.whole)
    return g;
  graph_free(p, g);
  return NULL;
}

/* What calls returned on the device and outputs are made of stays with the graph; views are made again. */
static void graph_keep_results(const MgPlan *p, PlanRun *r, PlanGraph *g) {
  for (uint32_t i = 0; i < p->nlazy; i++) {
    uint32_t t = p->lazy[i];
    if (!r->tensor[t]) continue;
    if (p->tensor[t].how == PT_result && !p->tensor[t].on_host) g->result[t] = r->tensor[t];
    else mg_abi.aoti_torch_delete_tensor_object(r->tensor[t]);
    r->tensor[t] = NULL;
  }
}

/* What the graph keeps of output o's memory; NULL: it is the call's, or nobody else's. */
static void *graph_memory(const MgPlan *p, const PlanRun *r, uint32_t o) {
  uint32_t root = graph_root(p, o);
  if (root == UINT32_MAX) return NULL;
  const PlanTensor *t = &p->tensor[root];
  bool own = t->how == PT_result && !t->on_host && r->tensor[root];
  return own ? mg_abi_storage_data(r->tensor[root]) : NULL;
}

/* After a capture, whose results are still in r: which of them share memory? */
static void graph_note_shared(const MgPlan *p, const PlanRun *r, PlanGraph *g) {
  for (uint32_t o = 0; o < p->s.nout - p->s.nhidden; o++) g->memory[o] = graph_memory(p, r, o);
  for (uint32_t i = 0; i < p->s.nfresh; i++)
    if (g->fresh[i] && !p->fresh_hidden[i]) g->memory[p->s.nout + i] = mg_abi_storage_data(g->fresh[i]);
  mg_results_shared(g->memory, p->s.nout + p->s.nfresh);
}

static void graph_lend_tensor(PlanGraph *g, MgTensor *t) {
  if (t) g->lent[g->nlent++] = (PlanLent){t, mg_abi_storage_uses(t)};
}

/* What hidden outputs are made of: nobody but the graph holds it now. */
static void graph_note_lent(const MgPlan *p, PlanGraph *g) {
  for (uint32_t i = 0; i < p->s.nfresh; i++)
    if (p->fresh_hidden[i]) graph_lend_tensor(g, g->fresh[i]);
  for (uint32_t o = p->s.nout - p->s.nhidden; o < p->s.nout; o++)
    if (mg_plan_graph_lends(p, o)) graph_lend_tensor(g, g->result[graph_root(p, o)]);
}

/* Where PyTorch keeps seed and offset for graphs is what the generator tells while it is captured. */
static MgRc graph_draws_begin(const MgPlan *p, PlanGraph *g, void *stream) {
  MgDraws d;
  uint64_t none = 0;
  if (!mg_draws(p->s.device, 0, &d) || !(g->draws.fn = mg_cuda_seed_kernel(p->s.device))) return MG_UNSUP;
  g->draws.seed = d.seed;
  g->draws.offset = d.offset;
  void *arg[MG_SEED_ARGS] = {&g->draws.seed, &g->draws.offset, &none, &none};
  if (mg_cuda_launch(g->draws.fn, 1, 1, arg, stream)) return MG_UNSUP;
  return (g->draws.node = mg_cuda_captured(stream)) ? MG_OK : MG_UNSUP;
}

static MgRc graph_draws_end(const MgPlan *p, PlanGraph *g) {
  MgDraws d;
  if (!mg_draws(p->s.device, 0, &d)) return MG_UNSUP;
  g->draws.n = d.within;
  return MG_OK;
}

/* A replay draws what its calls would have drawn now.  Nonzero: it cannot. */
static int graph_draw(const MgPlan *p, const PlanGraph *g) {
  MgDraws d;
  PlanDraws w = g->draws;
  if (!w.node) return 0;
  if (!mg_draws(p->s.device, w.n, &d)) return 1;
  void *arg[MG_SEED_ARGS] = {&w.seed, &w.offset, &d.seed, &d.offset};
  return mg_cuda_graph_set(g->exec, w.node, w.fn, 1, 1, arg);
}

/* The steps of the run, while the stream is captured. */
static MgRc graph_captured_steps(const PlanSteps *k, PlanGraph *g, void *stream) {
  const MgPlan *p = k->p;
  k->r->capturing = g;
  k->r->at = 0;
  MgRc rc = k->enter(k->call);
  if (rc == MG_OK && p->random) rc = graph_draws_begin(p, g, stream);
  if (rc == MG_OK && p->nbeside) mg_cuda_branch_begin(p->s.device, stream, g->stream, &g->branch);
  if (rc == MG_OK) rc = k->steps(k->call);
  if (!mg_cuda_branch_join(&g->branch) && rc == MG_OK) rc = MG_UNSUP;
  mg_cuda_branch_end(&g->branch);
  if (rc == MG_OK && p->random) rc = graph_draws_end(p, g);
  k->r->capturing = NULL;
  return rc;
}

static MgRc graph_capture(const PlanSteps *k, PlanGraph *g) {
  const MgPlan *p = k->p;
  PlanRun *r = k->r;
  if (!graph_fresh(p, r) || !graph_stage(p, r, k->in) ||
      !(g->keep = graph_host->begin(p->s.device, p->s.nhidden > 0, p->random)))
    return MG_NOMEM;
  void *stream = mg_cuda_stream(p->s.device), *graph = NULL;
  bool began = p->random || !mg_cuda_capture_begin(stream);
  MgRc rc = began ? graph_captured_steps(k, g, stream) : MG_UNSUP;
  g->lent_graph = p->random;
  if (began && !p->random && mg_cuda_capture_end(stream, &graph) && rc == MG_OK) rc = MG_UNSUP;
  void *captured = graph_host->end(g->keep);
  if (p->random) graph = captured;
  for (uint32_t i = 0; i < p->s.nfresh; i++)
    if (graph_keeps_fresh(p, i)) g->fresh[i] = r->fresh[i], r->fresh[i] = NULL;
  graph_note_shared(p, r, g);
  graph_keep_results(p, r, g);
  graph_note_lent(p, g);
  g->arena = r->gpu_arena;
  r->gpu_arena = NULL;
  for (uint32_t i = 0; i < p->s.ninput - p->s.nconstant; i++)
    mg_abi.aoti_torch_get_data_ptr(k->in[i], &g->input[i]);
  memcpy(g->arg, r->arg, sizeof *g->arg * p->narg);
  g->mem = r->mem;
  if (rc == MG_OK && (!graph || mg_cuda_graph_make(graph, &g->exec))) rc = MG_UNSUP;
  g->graph = graph;
  return rc;
}

/* A graph of r, or NULL; whatever happens, the run can still go step by step. */
static PlanGraph *graph_make(const PlanSteps *k) {
  const MgPlan *p = k->p;
  PlanRun *r = k->r;
  PlanGraph *g = graph_new(p);
  if (!g) return NULL;
  g->stream = mg_cuda_stream(p->s.device);
  g->results.device = p->s.device;
  g->results.stream = g->stream;
  g->settings = mg_cuda_settings();
  if (graph_capture(k, g) == MG_OK) {
    graph_captures++;
    mg_log(MG_LOG_plan, "a plan of %u steps is captured: %u kernels, %u calls beside others", p->nstep,
           g->nnode, p->nbeside);
    return g;
  }
  bool refused = !g->keep; /* another thread captures, or there is no memory: later, perhaps */
  graph_failed += !refused;
  if (!refused) mg_log(MG_LOG_fallback, "a plan of %u steps is not captured", p->nstep);
  graph_free(p, g);
  for (uint32_t i = 0; i < p->s.nfresh; i++)
    if (r->fresh[i]) mg_abi.aoti_torch_delete_tensor_object(r->fresh[i]), r->fresh[i] = NULL;
  r->bound = false;
  r->at = 0;
  if (refused && r->refused++ < MG_TUNE_GRAPH_REFUSED) r->captures--;
  else r->captures = MG_TUNE_GRAPH_CAPTURES;
  return NULL;
}

/* ---- replaying ---- */

/* Is it too much to copy the inputs that have moved? */
static bool graph_moves_much(const PlanSteps *k) {
  int64_t bytes = 0, n = 0, one;
  for (uint32_t i = 0; i < k->p->s.ninput - k->p->s.nconstant; i++) {
    if (!k->r->stage[i]) continue;
    one = 0;
    mg_abi.aoti_torch_get_storage_size(k->in[i], &one);
    bytes += one;
    n++;
  }
  return n > MG_TUNE_GRAPH_STAGED || bytes > MG_TUNE_GRAPH_STAGED_BYTES;
}

/* Is input i, which a library call of the graph reads, elsewhere? */
static bool graph_moved(const PlanSteps *k, uint32_t i) {
  void *ptr = NULL;
  if (!k->p->called[i] || (k->r->staged && k->r->staged[i])) return false;
  mg_abi.aoti_torch_get_data_ptr(k->in[i], &ptr);
  return ptr != k->r->graph->input[i];
}

/* Does the graph still read what this call is about? */
static bool graph_fits(const PlanSteps *k) {
  for (uint32_t i = 0; i < k->p->s.ninput - k->p->s.nconstant; i++)
    if (graph_moved(k, i)) return false;
  return true;
}

/* Does the plan write to input i?  A copy would not see it, nor the input what a call writes to the copy. */
static bool graph_writes(const MgPlan *p, uint32_t i) {
  for (uint32_t k = 0; k < p->s.nwritten; k++)
    if (p->s.written[k] == i) return true;
  return false;
}

/* The graph has to go; the next one works on copies of the inputs that have moved. */
static void graph_give_up(const PlanSteps *k) {
  const MgPlan *p = k->p;
  PlanRun *r = k->r;
  MgTensor **staged = r->staged ? r->staged : mg_calloc(p->s.ninput + 1, sizeof *staged);
  bool writes = false;
  for (uint32_t i = 0; staged && i < p->s.ninput - p->s.nconstant; i++)
    if (graph_moved(k, i)) r->stage[i] = true, writes |= graph_writes(p, i);
  r->staged = staged;
  if (!staged || writes || !mg_cuda_copies_ready(p->s.device) || graph_moves_much(k))
    r->captures = MG_TUNE_GRAPH_CAPTURES; /* never again */
  graph_free(p, r->graph);
  r->graph = NULL;
}

/* Is what an earlier replay lent still in use?  Its users were queued on this stream. */
static bool graph_busy(const PlanGraph *g) {
  for (uint32_t i = 0; i < g->nlent; i++)
    if (mg_abi_storage_uses(g->lent[i].tensor) > g->lent[i].uses) return true;
  return false;
}

/* Puts this call's addresses into the nodes of our kernels. */
static const char *graph_patch(const MgPlan *p, PlanRun *r) {
  PlanGraph *g = r->graph;
  for (uint32_t i = 0; i < g->nnode; i++) {
    PlanNode *n = &g->node[i];
    PlanLaunch l;
    const char *why = mg_plan_gpu_prepare(p, r, &p->kernel[n->kernel], &l);
    if (why) return why;
    if (l.fn == n->fn && !memcmp(l.value, n->param, l.n * sizeof *n->param)) continue;
    int rc = mg_cuda_graph_set(g->exec, n->node, l.fn, l.blocks, l.threads, l.arg);
    if (rc) return mg_cuda_error(rc);
    memcpy(n->param, l.value, l.n * sizeof *n->param);
    n->fn = l.fn;
  }
  return NULL;
}

/* The graph's own tensors in place of new ones; NULL: they go back. */
static void graph_lend(const MgPlan *p, PlanRun *r, MgTensor **fresh) {
  for (uint32_t i = 0; i < p->s.nfresh; i++)
    if (graph_keeps_fresh(p, i)) r->fresh[i] = fresh ? fresh[i] : NULL;
}

/* The call's tensor in place of the graph's own: over the same memory where nobody sees it but the backward
 * plan, else a copy. */
static bool graph_give_fresh(const MgPlan *p, PlanRun *r, uint32_t i) {
  const MgPlanView *v = &p->s.fresh[i].view;
  MgTensor *own = r->graph->fresh[i];
  int32_t bad = p->fresh_hidden[i]
                    ? mg_abi.aoti_torch__reinterpret_tensor(own, v->ndim, r->slot + v->size,
                                                            r->slot + v->stride, 0, &r->fresh[i])
                    : mg_results_give(&r->graph->results, r->graph->memory[p->s.nout + i], own, &r->fresh[i]);
  if (bad) r->fresh[i] = NULL;
  return !bad;
}

/* Are both, of the same sizes, on the device with the same strides?  The seeds of an attention are on the
 * device after a capture, and else on the CPU. */
static bool graph_alike(MgTensor *a, MgTensor *b) {
  int64_t ndim = 0, *size = NULL, *one = NULL, *other = NULL;
  if (!graph_on_device(a) || !graph_on_device(b)) return false;
  mg_abi.aoti_torch_get_dim(a, &ndim);
  mg_abi.aoti_torch_get_sizes(a, &size);
  mg_abi.aoti_torch_get_strides(a, &one);
  mg_abi.aoti_torch_get_strides(b, &other);
  for (int64_t d = 0; d < ndim; d++)
    if (size[d] != 1 && one[d] != other[d]) return false;
  return true;
}

/* As bytes where that can be: the elements of an input may lie over each other. */
static bool graph_fill_staged(const PlanSteps *k) {
  PlanRun *r = k->r;
  if (!r->staged) return true;
  MgCopies l = {0};
  for (uint32_t i = 0; i < k->p->s.ninput - k->p->s.nconstant; i++) {
    void *from = NULL, *to = NULL;
    int64_t bytes = 0;
    if (!r->staged[i]) continue;
    if (!graph_alike(k->in[i], r->staged[i])) {
      if (mg_abi.aoti_torch_copy_(r->staged[i], k->in[i], 0)) return false;
      continue;
    }
    mg_abi.aoti_torch_get_data_ptr(k->in[i], &from);
    mg_abi.aoti_torch_get_data_ptr(r->staged[i], &to);
    mg_abi.aoti_torch_get_storage_size(r->staged[i], &bytes);
    mg_cuda_copies_add(&l, to, from, (size_t)bytes);
  }
  return !mg_cuda_copies_launch(k->p->s.device, &l, r->graph->stream);
}

static MgRc graph_replay(const PlanSteps *k) {
  const MgPlan *p = k->p;
  PlanRun *r = k->r;
  PlanGraph *g = r->graph;
  mg_results_forget(&g->results);         /* of a call that failed */
  if (r->mem != g->mem || !r->replayed) { /* a run step by step was in between */
    r->mem = g->mem;
    memcpy(r->arg, g->arg, sizeof *r->arg * p->narg);
    memset(r->input, 0, sizeof *r->input * p->s.ninput);
  }
  if (!graph_fill_staged(k)) return MG_BUG;
  graph_lend(p, r, g->fresh);
  MgRc rc = k->bind(k->call);
  graph_lend(p, r, NULL);
  if (rc == MG_OK) rc = k->host_steps(k->call);
  TRY(rc);
  const char *why = graph_patch(p, r);
  if (why || graph_draw(p, g) || mg_cuda_graph_launch(g->exec, g->stream)) return MG_BUG;
  for (uint32_t i = 0; i < p->s.nfresh; i++)
    if (g->fresh[i] && !graph_give_fresh(p, r, i)) return MG_NOMEM;
  graph_replays++;
  g->misfits = 0;
  r->replayed = true;
  r->bound = false; /* for runs step by step */
  r->at = p->nstep;
  for (uint32_t i = 0; i < p->ntensor; i++)
    if (g->result[i]) r->tensor[i] = g->result[i];
  return MG_OK;
}

/* Did this thread run the plan before?  Its first call of a library makes a handle, which a capture does not
 * allow. */
static bool graph_ran_here(MgPlan *p) {
  for (int i = 0; i < PLAN_THREADS; i++)
    if (p->ran_on[i] == &graph_thread) return true;
  p->ran_on[p->nran++ % PLAN_THREADS] = &graph_thread;
  return false;
}

bool mg_plan_graph_run(const PlanSteps *k, MgRc *rc) {
  const MgPlan *p = k->p;
  PlanRun *r = k->r;
  *rc = MG_OK;
  if (!mg_plan_graph_possible(p) || (r->captures >= MG_TUNE_GRAPH_CAPTURES && !r->graph)) return false;
  void *stream = mg_cuda_stream(p->s.device);
  if (mg_cuda_capturing(stream)) return false;
  if (r->graph && (r->graph->stream != stream || r->graph->settings != mg_cuda_settings())) return false;
  if (r->graph && !graph_fits(k)) {
    if (r->graph->misfits++ >= MG_TUNE_GRAPH_MISFITS) graph_give_up(k);
    return false;
  }
  if (r->graph && graph_busy(r->graph)) return false;
  if (!r->graph) {
    bool here = graph_ran_here(k->p);
    if (r->runs++ < MG_TUNE_GRAPH_AFTER || !here || (p->s.nsym && !graph_pays(p))) return false;
    r->captures++;
    if (!(r->graph = graph_make(k))) return false;
    k->p->captured++;
    r->replayed = false;
  }
  k->p->replayed++;
  *rc = graph_replay(k);
  return true;
}

int32_t mg_plan_graph_give(const PlanRun *r, uint32_t o, MgTensor *t, MgTensor **out) {
  return mg_results_give(&r->graph->results, r->graph->memory[o], t, out);
}

const char *mg_plan_graph_copied(const PlanRun *r) {
  return r->graph ? mg_results_queue(&r->graph->results) : NULL;
}

void mg_plan_graph_done(const MgPlan *p, PlanRun *r) {
  for (uint32_t i = 0; r->graph && i < p->ntensor; i++)
    if (r->graph->result[i] && r->tensor[i] == r->graph->result[i]) r->tensor[i] = NULL; /* lent */
}
