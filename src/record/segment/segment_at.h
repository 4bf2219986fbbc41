/* A frame at the start of a segment: what the driver of frames hands over, and what it is told. */
#ifndef MG_SEGMENT_AT_H
#define MG_SEGMENT_AT_H
#include <stdbool.h>
#include "host/python/pyframe.h"

typedef struct MgCode MgCode;
typedef struct MgCodeInfo MgCodeInfo;
typedef struct MgConfig MgConfig;
typedef struct MgMap MgMap;

/* A frame at the start of a segment. */
typedef struct MgSegmentAt {
  PyThreadState *ts;
  MgFrame *f;
  const MgConfig *cfg;
  MgCodeInfo *info;
  const MgCode *code;
  MgFrameView v;
  MgFrameLink link;
  int call;               /* unit of the call that it waits in */
  struct MgSegmentAt *up; /* waits for what this one returns, and may be recorded with it; NULL: none */
  uint64_t chain;         /* tells the frames that wait apart; 0: none */
  const MgMap *transient; /* see MgRec; or NULL */
  PyObject *peers;        /* see MgRec; or NULL */
  /* what a segment tells the driver */
  bool unclaimed; /* a run of the entry here was given up: the next one is one without claims (speculation.h)
                   */
  int once;       /* > 0: nothing can be recorded here this time; execute so many instructions */
  bool stopped;   /* compiling was given up, since a signal waits (interrupt.h) */
} MgSegmentAt;
#endif
