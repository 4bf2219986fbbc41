/* Is the description of a plan sound?  For descriptions that were read from a file: every number in them is
 * looked at here, before anything is made of it.  What a kernel's code reads and writes is not known here:
 * that the file is ours vouches for it. */
#ifndef MG_PLAN_CHECK_H
#define MG_PLAN_CHECK_H
#include "runtime/plan/plan_spec.h"

/* input_bytes: per input, how far its memory reaches from its first element; UINT64_MAX if that is not known.
 * NULL: the description is sound, else what is wrong.  Steps need no fn, engine or name yet.  In
 * *c: memory for the while. */
const char *mg_plan_check(MgCtx *c, const MgPlanSpec *s, const uint64_t *input_bytes);
#endif
