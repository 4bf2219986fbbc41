/* Is a small graph worth running?  An operation by itself has nothing to be fused with, and ATen's kernel for
 * it may be the better one.
 * In: hits of entries that are a whole function of few nodes, with the time each took.  Out: which calls to
 * leave to CPython.  Plan and CPython take a few of the program's own calls by turns, so measuring
 * costs nothing.
 * The plan's time has its guards, which a call that is left to CPython hardly needs.
 * A graph with symbolic sizes is judged for each of its sizes.
 * Backward is timed apart, on aliases of the inputs (entry/grad/grad_weigh.h). */
#ifndef MG_WHOLE_TRIAL_H
#define MG_WHOLE_TRIAL_H
#include <stdbool.h>

struct MgEntry;
struct MgExecAt;

/* Is this call CPython's?  at: its sizes, or NULL.  unseen: so may be the next ones, without a look at their
 * guards. */
bool mg_whole_leaves(struct MgEntry *e, struct MgExecAt *at, bool unseen);
/* Is the call timed?  Asked before it. */
bool mg_whole_times(const struct MgEntry *e, const struct MgExecAt *at);
/* What a call took that is timed. */
void mg_whole_note(struct MgEntry *e, struct MgExecAt *at, bool eager, double ms);
#endif
