/* CUDA graphs of plans: the second whole run of a PlanRun is captured, later ones are replays.
 * Kernels of ours get the addresses of this call's inputs and outputs; what library calls read must not have
 * moved, or is copied first; what they made for the caller is copied out.  So results are tensors of
 * their own and stay valid.  What forward saves for a backward plan is lent: a replay waits for its return,
 * and a call that comes earlier runs step by step. */
#ifndef MG_RUNTIME_PLAN_GRAPH_H
#define MG_RUNTIME_PLAN_GRAPH_H
#include <stdbool.h>
#include "base/ctx.h"
#include "runtime/process/torch_abi.h"

/* What the layer that owns Python does for a capture.  begin: makes another stream current, with memory from
 * a pool (own: of this capture alone, for what outlives a replay); random: the stream is captured from there
 * on, and PyTorch's generator is ready for that. NULL: not possible.
 * end: back to the stream before; no error is left.  Gives what was captured between them, if random, which
 * stays the capture's; NULL: nothing, or it failed.
 * drop: gives the pool's memory back. */
typedef struct MgGraphHost {
  void *(*begin)(int device, bool own, bool random);
  void *(*end)(void *capture);
  void (*drop)(void *capture);
} MgGraphHost;
void mg_plan_graph_host(const MgGraphHost *h); /* h: lives for ever */

typedef struct MgGraphStats {
  uint64_t captures, replays, failed;
} MgGraphStats; /* of this process */
void mg_plan_graph_stats(MgGraphStats *out);

/* ---- for the other files of a plan ---- */
typedef struct MgPlan MgPlan;
typedef struct MgPlanCall PlanRun;
typedef struct PlanLaunch PlanLaunch;
typedef struct PlanSteps { /* how a graph has plan.c do its parts */
  MgPlan *p;
  PlanRun *r;
  MgTensor *const *in;
  void *call;
  MgRc (*enter)(void *call);      /* memory and addresses; r->fresh is there */
  MgRc (*steps)(void *call);      /* all of them */
  MgRc (*host_steps)(void *call); /* those on the CPU alone */
  MgRc (*bind)(void *call);       /* the addresses of inputs and new outputs alone */
} PlanSteps;
bool mg_plan_graph_possible(const MgPlan *p);
/* Runs the whole plan by a graph; false: it has to go step by step, and nothing has been done. */
bool mg_plan_graph_run(const PlanSteps *k, MgRc *rc);
void mg_plan_graph_done(const MgPlan *p, PlanRun *r); /* outputs have been made */
/* Does hidden output o lie in memory that a CUDA graph lends? */
bool mg_plan_graph_lends(const MgPlan *p, uint32_t o);
/* A tensor of the caller's own in place of the graph's t, which is output o.  It gets t's elements by the
 * time mg_plan_graph_copied returns.  Nonzero: no memory. */
int32_t mg_plan_graph_give(const PlanRun *r, uint32_t o, MgTensor *t, MgTensor **out);
/* Queues the copies.  NULL, or what the driver says. */
const char *mg_plan_graph_copied(const PlanRun *r);
bool mg_plan_graph_note(PlanRun *r, uint32_t kernel, const PlanLaunch *l, void *stream);
void mg_plan_graph_free(const MgPlan *p, PlanRun *r);
/* The run gets other sizes: its graph goes, and captures are counted anew. */
void mg_plan_graph_restart(const MgPlan *p, PlanRun *r);
#endif
