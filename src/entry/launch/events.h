/* What reports tell of a run besides its plans: recompiles, fallbacks, and the time that places of the
 * program spend outside of plans.  Only while mg_measure_on.  All with the GIL held. */
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
/* Lists of dicts for Python; NULL with an exception. */
PyObject *mg_events_list(void);
PyObject *mg_places_list(void);
void mg_events_reset(void);
#endif
