/* Is a small graph worth running?  An operation by itself has nothing to be fused with, and ATen's kernel for
 * it may be the better one.
 * In: hits of entries that are a whole function of few nodes, with the time each took.  Out: which calls to
 * leave to CPython.  Plan and CPython take the program's own calls in turns, so measuring costs nothing.
 * Backward is timed apart, on aliases of the inputs (entry/grad/grad_weigh.h). */
#ifndef MG_WHOLE_TRIAL_H
#define MG_WHOLE_TRIAL_H
#include <stdbool.h>
#include <stdint.h>

struct MgEntry;

typedef enum MgWholePhase {
  WHOLE_count,   /* first calls, which make caches warm */
  WHOLE_timed,   /* plan and CPython in turns */
  WHOLE_weighed, /* the run of a graph with backward compares both ways of that */
  WHOLE_left,    /* CPython was faster */
  WHOLE_kept     /* it was not, or the entry is none of these */
} MgWholePhase;

typedef struct MgWhole { /* of one entry */
  uint8_t phase, runs;
  uint32_t burst;    /* calls in a row that are not even looked at */
  float plan, eager; /* milliseconds, the best of some runs */
} MgWhole;

/* Is this call CPython's?  unseen: so may be the next ones, without a look at their guards. */
bool mg_whole_leaves(struct MgEntry *e, bool unseen);
/* What the call took, when e->whole.phase was WHOLE_timed or WHOLE_weighed before it. */
void mg_whole_note(struct MgEntry *e, bool eager, double ms);
#endif
