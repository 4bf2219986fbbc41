/* What the trial of a small graph knows (whole_trial.h). */
#ifndef MG_WHOLE_H
#define MG_WHOLE_H
#include <stdint.h>

typedef enum MgWholePhase {
  WHOLE_count,   /* first calls, which make caches warm */
  WHOLE_timed,   /* plan and CPython in turns */
  WHOLE_weighed, /* the run of a graph with backward compares both ways of that */
  WHOLE_left,    /* CPython was faster */
  WHOLE_kept     /* it was not, or the entry is none of these */
} MgWholePhase;

typedef struct MgWhole { /* of one entry, or of its sizes */
  uint8_t phase, runs;
  uint32_t burst;    /* calls in a row that are not even looked at */
  float plan, eager; /* milliseconds, the best of some runs */
} MgWhole;

#endif
