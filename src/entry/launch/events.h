/* What reports tell of a run besides its plans: recompiles, fallbacks, the time that places of the
 * program spend outside of plans, and who called what.  Only while mg_measure_on.  All with the GIL held. */
#ifndef MG_EVENTS_H
#define MG_EVENTS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "runtime/process/measure.h"

typedef enum MgPlaceKind {
  PLACE_break, /* instructions that ended a graph, and what they called */
  PLACE_eager  /* the rest of a frame that was left to CPython, and what it called */
} MgPlaceKind;

/* Notes that something happened at a line of co; NULL: nowhere in particular.  Keeps the first few thousand;
 * running out of memory loses it. */
void mg_event(const char *kind, PyCodeObject *co, int line, const char *text);
/* Adds the time since `since` to a place: the code unit of co, which is at this line. */
void mg_place_add(MgPlaceKind kind, PyCodeObject *co, int unit, int line, uint64_t since);
/* The tree of calls: who called which compiled frame.  A frame that is recorded as a part of another one does
 * not run for itself, and so is not in it. */
typedef struct MgCallMark { /* what a call that has begun gives back when it ends */
  uint64_t since;           /* 0: the call is not counted */
  uint32_t before, number;
} MgCallMark;
/* A call begins of a compiled callable, or of a frame that the hook drives.  of: the class of the callable;
 * NULL: it is a function. */
MgCallMark mg_call_enter(PyCodeObject *co, const char *of, bool callable);
void mg_call_leave(MgCallMark mark);

/* Lists of dicts for Python, callers before what they call; NULL with an exception. */
PyObject *mg_events_list(void);
PyObject *mg_places_list(void);
PyObject *mg_calls_list(void);
void mg_events_reset(void);
#endif
