/* Driving a frame: compiled segments, breaking instructions, resumption in place. */
#ifndef MG_FRAME_DRIVER_H
#define MG_FRAME_DRIVER_H
#include "entry/run/entry_cache.h"
#include "entry/run/frame_cost.h"
#include "entry/run/profitability.h"
#include "host/python/pyframe.h"
#include "record/segment/segment.h"

typedef struct MgEntry MgEntry;
typedef struct MgExecAt MgExecAt;

struct MgInnerRun;

typedef struct MgDrive {  /* a frame that the driver runs */
  MgSegmentAt at;         /* where it is; first, so that at.up is a MgDrive, too */
  struct MgInnerRun *run; /* owned: what the frame is to call, or NULL */
  int depth;              /* how many frames wait for it */
  int pass;    /* a segment of a frame that it called has gone past its RETURN, at this unit; -1: none has */
  bool landed; /* one has put it elsewhere: next and nplain */
  int next, nplain; /* how it goes on there */
  MgBucket *idle;   /* of the first place since when no op has been run, or NULL; with epoch, work, misses of
                       that time */
  unsigned long epoch, work;
  long misses;
  long looks; /* at places of this frame since then */
  bool ended; /* the frame has returned */
  bool look;  /* the first call of this code under a stance that has it run as written: entries made here only
                 look */
  MgTrialRun trial;
  MgCostRun cost;
} MgDrive;

/* Runs a frame that has not started, by compiled segments where possible; returns
 * what the hook must return. */
PyObject *mg_resume_frame(PyThreadState *ts, MgFrame *f, const MgConfig *cfg, bool waiting);
/* Is this new frame one that a segment ended in?  Then it must be run with waiting set. */
bool mg_resume_is_waiting(MgFrame *f);

/* Signals and other threads, between segments.  0; -1 with an exception, which
 * belongs to what would run next. */
int mg_resume_pending(MgDrive *d);

int mg_resume_init(PyObject *module);
#endif
