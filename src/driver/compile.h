/* The pass list in one function: recorded graph -> run-time plan. */
#ifndef MG_DRIVER_COMPILE_H
#define MG_DRIVER_COMPILE_H
#include "ir/graph.h"
#include "runtime/plan.h"

typedef enum MgMode { MODE_default, MODE_reduce_overhead, MODE_max_autotune } MgMode;

typedef struct MgOptions {
  MgMode mode;
  bool freeze;          /* parameters never change: fold and pack them once */
  bool keep_layout;     /* never change memory formats inside the graph */
  int threads;          /* 0: as many as torch uses */
} MgOptions;

typedef struct MgHostOps { /* how driver asks front for extern calls while compiling */
  /* Registers the call of graph node n through its Python OpOverload; its id goes to MgHost.call.
   * The node's non-tensor arguments are copied. */
  MgRc (*add_call)(void *self, MgGraph *g, NodeRef n, uint32_t *id);
  MgHost host;          /* moved into the plan on success */
} MgHostOps;

/* g is consumed (passes change it).  On failure the reason is in g->c. */
MgRc mg_compile(MgGraph *g, const MgOptions *o, MgHostOps *h, MgPlan **out);
#endif
