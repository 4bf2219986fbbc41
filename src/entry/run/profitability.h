/* Is driving a frame with graph breaks worth it?  Measured: what the frame takes with its compiled segments,
 * and what CPython takes for the whole of it.  Where CPython is faster it gets the
 * frame, but for one in so many.
 * In: frames as the driver starts and ends them.  Out: which of them to leave to CPython.  Frames whose
 * graphs have a backward
 * are not measured: what that saves comes later. */
#ifndef MG_PROFITABILITY_H
#define MG_PROFITABILITY_H
#include <stdbool.h>
#include <stdint.h>

struct MgBucket;

typedef enum MgTrialPhase {
  TRIAL_count,   /* frames with breaks are counted */
  TRIAL_driven,  /* and timed */
  TRIAL_rest,    /* CPython's time is taken */
  TRIAL_resting, /* it was the better one */
  TRIAL_off      /* it was not */
} MgTrialPhase;

typedef struct MgTrial { /* of the place where a frame starts */
  uint8_t phase, runs;
  unsigned long active; /* a frame that started here is running: those inside of it are not counted.  1 +
                           mg_cache_epoch when it started: its end is not noted once that has changed (the
                           place may be gone), so the mark is void then */
  uint32_t patience;    /* frames that CPython gets at a time */
  float driven, rest;   /* milliseconds, the best of some runs */
} MgTrial;

typedef struct MgTrialRun { /* of one frame */
  struct MgBucket *b;       /* NULL: it is not counted */
  bool begun, rests;        /* CPython runs it */
  int steps;                /* breaks */
  double t0;
  unsigned long epoch, grads; /* mg_cache_epoch and mg_trial_grads at the start, */
  long misses;                /* and mg_stats.misses */
} MgTrialRun;

extern _Thread_local unsigned long mg_trial_grads; /* runs of graphs with a backward */

void mg_trial_begin(MgTrialRun *t, struct MgBucket *b);
void mg_trial_end(MgTrialRun *t, bool raised);
#endif
