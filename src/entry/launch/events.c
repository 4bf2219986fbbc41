/* Events and places for reports.  See the header. */
#include "entry/launch/events.h"
#include <stdlib.h>
#include "base/ctx.h"
#include "base/table.h"
#include "host/python/pyobject.h"
#include "tuning.h"

typedef struct Place {
  PyCodeObject *code; /* strong */
  int unit, line;
  MgPlaceKind kind;
  MgTicks time;
} Place;

static PyObject *events_all; /* list of dicts */
static Place *places;
static uint32_t nplace, places_cap;
static MgMap places_index; /* of code, unit and kind -> index */

void mg_event(const char *kind, PyCodeObject *co, int line, const char *text) {
  PyObject *type, *value, *tb;
  if (!mg_measure_on || (events_all && PyList_GET_SIZE(events_all) >= MG_TUNE_REPORT_EVENTS)) return;
  PyErr_Fetch(&type, &value, &tb);
  if (!events_all) events_all = PyList_New(0);
  PyObject *d = events_all ? Py_BuildValue("{s:s,s:O,s:O,s:i,s:s}", "kind", kind, "file",
                                           co ? co->co_filename : Py_None, "function",
                                           co ? co->co_qualname : Py_None, "line", line, "text", text)
                           : NULL;
  if (d) PyList_Append(events_all, d);
  Py_XDECREF(d);
  PyErr_Clear(); /* out of memory: the event is lost */
  PyErr_Restore(type, value, tb);
}

/* The place, made when it is new; NULL: out of memory. */
static Place *place_find(MgPlaceKind kind, PyCodeObject *co, int unit, int line) {
  uint64_t key = mg_hash_u64((uint64_t)(uintptr_t)co + (uint64_t)unit * 8 + kind) | 2;
  uint32_t i = mg_map_get(&places_index, key);
  if (i != MG_MAP_NONE) return &places[i];
  if (nplace == places_cap && !mg_grow(&places, &places_cap, sizeof *places, 32)) return NULL;
  if (mg_map_put(&places_index, key, nplace) != MG_OK) return NULL;
  places[nplace] = (Place){.code = (PyCodeObject *)Py_NewRef(co), .unit = unit, .line = line, .kind = kind};
  return &places[nplace++];
}

void mg_place_add(MgPlaceKind kind, PyCodeObject *co, int unit, int line, uint64_t since) {
  Place *p = place_find(kind, co, unit, line);
  if (p) mg_ticks_add(&p->time, since);
}

PyObject *mg_events_list(void) {
  return events_all ? PyList_GetSlice(events_all, 0, PY_SSIZE_T_MAX) : PyList_New(0);
}

PyObject *mg_places_list(void) {
  PyObject *list = PyList_New(0);
  for (uint32_t i = 0; list && i < nplace; i++) {
    const Place *p = &places[i];
    PyObject *d =
        Py_BuildValue("{s:s,s:O,s:i,s:i,s:K,s:d}", "kind", p->kind == PLACE_break ? "break" : "eager", "code",
                      p->code, "unit", p->unit, "line", p->line, "n", (unsigned long long)p->time.n, "ms",
                      mg_ticks_ms(p->time.ticks));
    if (!d || PyList_Append(list, d)) Py_CLEAR(list);
    Py_XDECREF(d);
  }
  return list;
}

void mg_events_reset(void) {
  Place *all = places;
  uint32_t n = nplace;
  PyObject *events = events_all;
  mg_map_free(&places_index);
  places_index = (MgMap){0};
  places = NULL;
  events_all = NULL;
  nplace = places_cap = 0;
  for (uint32_t i = 0; i < n; i++) Py_DECREF(all[i].code);
  free(all);
  Py_XDECREF(events);
}
