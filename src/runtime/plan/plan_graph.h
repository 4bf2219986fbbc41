/* CUDA graphs of plans: the second whole run of a PlanRun is captured, later ones are replays.
 * Kernels of ours get the addresses of this call's inputs and outputs; what library calls read must not have
 * moved, or is copied first; what they made for the caller is copied out.  So results are tensors of
 * their own and stay valid. */
#ifndef MG_RUNTIME_PLAN_GRAPH_H
#define MG_RUNTIME_PLAN_GRAPH_H
#include "base/ctx.h"

/* What the layer that owns Python does for a capture.  begin: makes another stream current, with memory from
 * a pool; NULL: not possible.  end: back to the stream before; no error is left.  drop:
 * gives the pool's memory back. */
typedef struct MgGraphHost {
  void *(*begin)(int device);
  void (*end)(void *capture);
  void (*drop)(void *capture);
} MgGraphHost;
void mg_plan_graph_host(const MgGraphHost *h); /* h: lives for ever */

typedef struct MgGraphStats {
  uint64_t captures, replays, failed;
} MgGraphStats; /* of this process */
void mg_plan_graph_stats(MgGraphStats *out);
#endif
