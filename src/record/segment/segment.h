/* One segment: from the unchanged frame to an entry. */
#ifndef MG_SEGMENT_H
#define MG_SEGMENT_H
#include <stdbool.h>
#include "host/python/pyframe.h"

typedef struct MgCode MgCode;
typedef struct MgCodeInfo MgCodeInfo;
typedef struct MgConfig MgConfig;
typedef struct MgMap MgMap;

typedef struct MgSlots MgSlots;

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

/* Compiles the segment that starts at the linked frame's position; it and those above are unchanged
 * afterwards. 0: the site has a new entry or became plain.  1: leave the frame to CPython; with d->stopped
 * after the handlers of signals.
 * -1: exception for the user. */
int mg_compile_segment(MgSegmentAt *d, const MgSlots *slots);
/* Does the program ask for an error where the recording breaks?  torch._dynamo's flag is an ordinary global,
 * as the recording has it. */
bool mg_stance_break_is_error(void);
#endif
