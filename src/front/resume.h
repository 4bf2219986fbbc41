/* Driving a frame: compiled segments, breaking instructions, resumption in place. */
#ifndef MG_FRONT_RESUME_H
#define MG_FRONT_RESUME_H
#include "front/cache.h"

struct MgInnerRun;

typedef struct MgDrive { /* a frame that the driver runs */
  PyThreadState *ts;
  MgFrame *f;
  const MgConfig *cfg;
  MgCodeInfo *info;
  const MgCode *code;
  MgFrameView v;
  MgFrameLink link;
  struct MgInnerRun *run; /* owned: what the frame is to call, or NULL */
  int call;               /* unit of the call that it waits in */
  struct MgDrive *up;     /* waits for what this one returns, and may be recorded with it; NULL: none */
  int depth;              /* how many of these there are */
  uint64_t chain;         /* tells them apart; 0: none */
  int pass;               /* a segment of a frame that it called has gone past its RETURN, at this unit; -1: none has */
  bool landed;            /* one has put it elsewhere: */
  int next, nplain;       /* how it goes on there */
  MgBucket *idle;         /* of the first place since when no op has been run, or NULL; with, at that time: */
  unsigned long epoch, work;
  long misses;
  long looks;             /* at places of this frame since then */
  bool ended;             /* the frame has returned */
  bool look;              /* the first call of this code under a stance that has it run as written: entries made here only look */
  bool unclaimed;         /* a run of the entry here was given up: the next one is one without claims (claim.h) */
  int once;               /* > 0: nothing can be recorded here this time; execute so many instructions */
  MgTrialRun trial;
  MgCostRun cost;
  const MgMap *transient; /* for the next segment that is compiled: see MgRec; or NULL */
  PyObject *peers;        /* while a segment is compiled: see MgRec; or NULL */
} MgDrive;

/* Runs a frame that has not started, by compiled segments where possible; returns what the hook must return. */
PyObject *mg_resume_frame(PyThreadState *ts, MgFrame *f, const MgConfig *cfg, bool waiting);
/* Is this new frame one that a segment ended in?  Then it must be run with waiting set. */
bool mg_resume_is_waiting(MgFrame *f);

/* Runs a segment on given slots: new_slots and ret as mg_snapshot_run.  vals: source values of the guard check. */
int mg_entry_run(MgEntry *e, PyObject **vals, MgExecAt *at, PyObject **new_slots, PyObject **ret);

/* Compiles the segment that starts at the linked frame's position; it and those above are unchanged afterwards.
 * 0: the site has a new entry or became plain.  1: leave the frame to CPython.  -1: exception for the user. */
int mg_compile_segment(MgDrive *d, const MgSlots *slots);

/* Signals and other threads, between segments.  0; -1 with an exception, which belongs to what would run next. */
int mg_resume_pending(MgDrive *d);

/* Tests: end a segment after every k-th instruction of its frame; or after k of any frame, if in one that it calls (0: off). */
extern long mg_force_break, mg_force_inner;
bool mg_strict(void); /* MAGNETO_STRICT=1: fallbacks and broken invariants are errors */
int mg_resume_init(PyObject *module);
#endif
