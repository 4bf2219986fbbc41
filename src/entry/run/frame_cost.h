/* Does compiling a frame cost more than it brings?  Some programs are recorded at nearly every call: what an
 * entry was made for never comes again.  No recompile limit is reached where entries die, or where each
 * recording is for another place. Where a limit is reached, what still runs compiled may be slower than
 * CPython. So calls that recorded or were given up are counted for each place where frames start, with the
 * frames that run inside of them.  After many of them CPython runs a few frames as a whole, and its time is
 * compared with what the calls since have taken. A place that costs more is left to CPython: entries that
 * return still run, nothing is recorded.  After a while two frames are driven again: one may record, the
 * second shows whether that has been worth it.
 *
 *   count --many recordings--> eager --dearer than CPython--> left --waited--> try
 *   --second one recorded, too--> left
 *     ^                          | cheaper                                      | one did not record
 *     +--------------------------+----------------------------------------------+
 *
 * Beside other programs the clock tells little: where it shows no clear difference the processor's time
 * counts.
 *
 * In: frames as the driver starts and ends them, notes of recordings.  Out: frames to leave to CPython.
 * A hit of a whole frame passes by here: no clock, no counter.  All with the GIL held. */
#ifndef MG_FRAME_COST_H
#define MG_FRAME_COST_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

struct MgBucket;
struct MgSite;
typedef struct MgCost MgCost; /* what is known about one place; counted references */

typedef struct MgCostRun { /* of one frame */
  MgCost *c;               /* strong; NULL: the frame is not counted */
  PyCodeObject *code;      /* strong with c: the frame may be gone at the end */
  bool begun;
  bool left;     /* only entries that return may run, else CPython the whole frame */
  bool given_up; /* a recompile limit was reached earlier, and CPython goes on with the frame */
  bool rests;    /* CPython runs the frame: its time is taken */
  int limit;     /* of recompiles, as the user has set it; 0: the default */
  double t0;     /* 0: no time is taken */
  double cpu0;   /* the same of the processor, which is not asked in each frame */
  unsigned long recordings, others, grads; /* the thread's counters at the start */
} MgCostRun;

/* b: where the frame starts.  limit: the configuration's recompile_limit. */
void mg_cost_begin(MgCostRun *r, struct MgBucket *b, PyCodeObject *code, int limit);
void mg_cost_end(MgCostRun *r, bool raised);
void mg_cost_cancel(MgCostRun *r); /* the frame tells nothing */
/* Something was recorded on this thread; sizes: only because tensors differ, which has a limit of its own. */
void mg_cost_note(bool sizes);
/* A call that no entry fits, before its frame is made: is it CPython's as a whole? */
bool mg_cost_leaves(struct MgBucket *b);
bool mg_cost_is_left(const struct MgBucket *b);
/* The entries of a module instance are gone; few: they had hardly been used. */
void mg_cost_instance_died(struct MgBucket *b, long hits, bool few);
void mg_cost_drop(MgCost *c); /* its place is gone; NULL is fine */
/* For people: what was found when the place was left, in milliseconds a call; false if it is not left. */
bool mg_cost_figures(const struct MgBucket *b, double *compiled, double *eager, long *wait);
#endif
