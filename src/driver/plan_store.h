/* Plans on disk: a graph that an earlier process compiled is not lowered, fused and emitted again.
 * The key is everything that the back end looks at: the graph after the middle's passes, options, target,
 * threads, and the build of this library.  Its first half is of the graph alone, so that a report can tell
 * which of the others differs from a plan that is there.  A file has the tables of the plan; its kernels are
 * in the object files (runtime/code/disk_cache), its library calls and host calls are made anew, and where
 * these come out otherwise than when it was written, the file is not used.  Only graphs of some size, without
 * symbols and claims. */
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

/* What is known of a graph's plan on disk. */
typedef enum MgStoredFate {
  MG_SF_kept,    /* it may be there: not looked for yet */
  MG_SF_hit,     /* it is there, and fits */
  MG_SF_absent,  /* no plan of this graph is there */
  MG_SF_other,   /* one is there that was made under other circumstances */
  MG_SF_refused, /* its file may not be read */
  MG_SF_damaged, /* its file was not written by this user's processes, or only a part of it is there */
  MG_SF_unfit,   /* what it says does not fit this process: a library call comes out otherwise */
  MG_SF_small,   /* graphs as small as this one are not kept */
  MG_SF_early,   /* something in it is asked for early */
  MG_SF_symbols, /* sizes are symbols */
  MG_SF_device,  /* it runs on a GPU */
  MG_SF_off,     /* the cache is off, or passes are left out */
  MG_SF__COUNT
} MgStoredFate;
const char *mg_stored_fate(MgStoredFate f); /* its name */

enum { MG_STORED_SETUP = 15 };
typedef struct MgStoredKey {
  MgKey key;
  int64_t setup[MG_STORED_SETUP]; /* what the key depends on besides the graph */
} MgStoredKey;

/* MG_SF_kept: *out is filled in; else: why this graph's plan is not kept on disk. */
MgStoredFate mg_stored_key(const MgGraph *g, const MgOptions *o, MgStoredKey *out);
/* For reports: what mg_stored_load would find; nothing is kept of it.  *note: words on it, in g->c's arena;
 * or NULL. */
MgStoredFate mg_stored_look(const MgStoredKey *key, MgGraph *g, const MgOptions *o, const MgPlanSpec *spec,
                            const char **note);
/* Fills in spec (tables in g->c's arena), with engines in *ext and code in k: the caller's to free, also on
 * failure.  *found false, and nothing filled in: there is no such plan. */
MgRc mg_stored_load(const MgStoredKey *key, MgGraph *g, const MgOptions *o, MgHostOps *h, MgPlanSpec *spec,
                    MgPlanExt **ext, MgKernelSet *k, bool *found);
/* Writes what mg_planner_spec made of f.  Failure is silent. */
void mg_stored_save(const MgStoredKey *key, MgGraph *g, const MgFused *f, const MgPlanExt *ext,
                    const MgKernelSet *k, const MgPlanSpec *spec);

typedef struct MgStoredInfo {
  uint64_t loaded, saved;
} MgStoredInfo; /* plans, by this process */
void mg_stored_info(MgStoredInfo *out);
#endif
