/* A schedule for a GPU on the PTX machine, beside the reference evaluator. */
#ifndef MG_PTX_MACHINE_CHECK_H
#define MG_PTX_MACHINE_CHECK_H
#include "back/kernel/loop_nest.h"
#include "machine.h"
#include "ptx/ptx.h"

/* Runs kernel k, whose PTX is `text`.  memory: of each buffer of the schedule. */
PtxEnd ptx_launch(const MgSched *s, const MgKernel *k, const MgPtxPlan *plan, const char *text,
                  const PtxMemory *memory, const int64_t *env, char *err);

/* Runs all kernels of f over random numbers that `seed` gives, even seeds with NaN and the like; library
 * calls leave what is in their results. before: the nbefore buffers that lowering made, as they were before
 * fusion.  Appends to `out` what is wrong, and returns how many things are.  -1: out of memory, or too large
 * to run. */
int ptx_check(MgSched *s, MgFused *f, const MgBuf *before, BufRef nbefore, uint64_t seed, MgStrbuf *out);
#endif
