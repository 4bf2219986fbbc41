/* Plans on disk: a graph that an earlier process compiled is not lowered, fused and emitted again.
 * The key is everything that the back end looks at: the graph after the middle's passes, options, target,
 * threads, and the build of this library.  A file has the tables of the plan; its kernels are in the object
 * files (runtime/code/disk_cache), its library calls and host calls are made anew, and where these come out
 * otherwise than when it was written, the file is not used.  Only graphs of some size,
 * without symbols and claims. */
#ifndef MG_PLAN_STORE_H
#define MG_PLAN_STORE_H
#include "runtime/code/kernel_cache.h"

typedef struct MgFused MgFused;
typedef struct MgGraph MgGraph;
typedef struct MgHostOps MgHostOps;
typedef struct MgKernelSet MgKernelSet;
typedef struct MgOptions MgOptions;
typedef struct MgPlanExt MgPlanExt;
typedef struct MgPlanSpec MgPlanSpec;

/* false: this graph's plan is not kept on disk. */
bool mg_stored_key(const MgGraph *g, const MgOptions *o, MgKey *out);
/* Fills in spec (tables in g->c's arena), with engines in *ext and code in k: the caller's to free, also on
 * failure.  *found false, and nothing filled in: there is no such plan. */
MgRc mg_stored_load(MgKey key, MgGraph *g, const MgOptions *o, MgHostOps *h, MgPlanSpec *spec,
                    MgPlanExt **ext, MgKernelSet *k, bool *found);
/* Writes what mg_planner_spec made of f.  Failure is silent. */
void mg_stored_save(MgKey key, MgGraph *g, const MgFused *f, const MgPlanExt *ext, const MgKernelSet *k,
                    const MgPlanSpec *spec);

typedef struct MgStoredInfo {
  uint64_t loaded, saved;
} MgStoredInfo; /* plans, by this process */
void mg_stored_info(MgStoredInfo *out);
#endif
