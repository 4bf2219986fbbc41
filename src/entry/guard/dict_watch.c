/* Which guard sets rely on which dict, and the callback that tells them of changes.
 * In: sealed sets.  Out: their list of dicts to look at before the next hit
 * (MgGuards.changed); nothing is compared here.
 * Invariants: under the GIL; a dict has one record however many sets use it; a record that has told its sets
 * is silent until one of them has looked (rearm), so that a namespace that changes all the time costs a
 * lookup per change. Without watchers (3.11, or all eight taken) sets stay unwatched, and every check
 * compares the version of every dict. */
#include "entry/guard/dict_watch.h"
#include <stdlib.h>
#include <string.h>
#include "entry/guard/guard_set.h"

#if PY_VERSION_HEX >= 0x030C0000

typedef struct WatchUse {
  MgGuards *g;
  uint32_t i; /* number of the dict in g */
} WatchUse;

typedef struct Watched {
  PyObject *dict; /* borrowed: its death is an event; NULL: a free record */
  WatchUse *use;
  uint32_t n, cap;
  uint32_t next_free;
  bool told; /* every set knows of a change and none has looked since */
} Watched;

static Watched *watch_all;
static uint32_t watch_n, watch_cap, watch_free = UINT32_MAX;
static MgMap watch_by_dict;
enum { WATCH_unasked = -1, WATCH_refused = -2 }; /* instead of an id: not asked for yet; none to be had */
static int watch_id = WATCH_unasked;

static PyObject *watch_dict(const MgGuards *g, uint32_t i) {
  return i < g->ndict ? g->fast_dict[i].dict : g->empty[i - g->ndict];
}

static void watch_drop(Watched *w) {
  mg_map_del(&watch_by_dict, (uint64_t)(uintptr_t)w->dict);
  free(w->use);
  *w = (Watched){.next_free = watch_free};
  watch_free = (uint32_t)(w - watch_all);
}

/* Adds dict i to what g has to look at. */
static void watch_tell(MgGuards *g, uint32_t i) {
  if (g->nchanged > MG_GUARD_CHANGED) return;
  for (uint32_t k = 0; k < g->nchanged; k++)
    if (g->changed[k] == i) return;
  if (g->nchanged < MG_GUARD_CHANGED) g->changed[g->nchanged] = i;
  g->nchanged++;
}

static int watch_event(PyDict_WatchEvent event, PyObject *dict, PyObject *key, PyObject *value) {
  uint32_t at = mg_map_getp(&watch_by_dict, dict);
  if (at == MG_MAP_NONE) return 0;
  Watched *w = &watch_all[at];
  bool dies = event == PyDict_EVENT_DEALLOCATED;
  if (w->told && !dies) return 0;
  for (uint32_t k = 0; k < w->n; k++) {
    if (dies)
      w->use[k].g->watched =
          false; /* another dict at this address would not be watched: versions from here on */
    else watch_tell(w->use[k].g, w->use[k].i);
  }
  w->told = true;
  if (dies) watch_drop(w);
  return 0;
}

static Watched *watch_record(PyObject *dict) {
  uint32_t at = mg_map_getp(&watch_by_dict, dict);
  if (at != MG_MAP_NONE) return &watch_all[at];
  if (watch_free != UINT32_MAX) {
    at = watch_free;
  } else {
    if (watch_n == watch_cap && !mg_grow(&watch_all, &watch_cap, sizeof *watch_all, 256)) return NULL;
    at = watch_n;
  }
  if (mg_map_putp(&watch_by_dict, dict, at) != MG_OK) return NULL;
  if (at == watch_n) watch_n++;
  else watch_free = watch_all[at].next_free;
  watch_all[at] = (Watched){.dict = dict};
  return &watch_all[at];
}

static bool watch_one(MgGuards *g, uint32_t i) {
  PyObject *dict = watch_dict(g, i);
  Watched *w = watch_record(dict);
  if (!w) return false;
  if (w->n == w->cap && !mg_grow(&w->use, &w->cap, sizeof *w->use, 1)) {
    if (!w->n) watch_drop(w);
    return false;
  }
  if (PyDict_Watch(watch_id, dict)) {
    PyErr_Clear(); /* CPython has no room for a watcher: the dict is compared */
    if (!w->n) watch_drop(w);
    return false;
  }
  w->use[w->n++] = (WatchUse){g, i};
  w->told = false;
  return true;
}

static void watch_forget(MgGuards *g, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    uint32_t at = mg_map_getp(&watch_by_dict, watch_dict(g, i));
    if (at == MG_MAP_NONE) continue;
    Watched *w = &watch_all[at];
    for (uint32_t k = w->n; k-- > 0;)
      if (w->use[k].g == g) w->use[k] = w->use[--w->n];
    if (w->n) continue;
    if (PyDict_Unwatch(watch_id, w->dict)) PyErr_Clear(); /* it was never watched */
    watch_drop(w);
  }
}

void mg_guard_watch(MgGuards *g) {
  if (watch_id == WATCH_unasked && (watch_id = PyDict_AddWatcher(watch_event)) < 0) {
    PyErr_Clear(); /* all watchers are taken: dicts are compared */
    watch_id = WATCH_refused;
  }
  if (watch_id < 0) return;
  uint32_t n = g->ndict + g->nempty, i = 0;
  while (i < n && watch_one(g, i)) i++;
  if (i < n) watch_forget(g, i);
  else g->nwatched = n;
  g->watched = i == n;
}

void mg_guard_unwatch(MgGuards *g) {
  watch_forget(g, g->nwatched);
  g->watched = false;
  g->nwatched = 0;
}

void mg_guard_rearm(MgGuards *g, uint32_t i) {
  uint32_t at = mg_map_getp(&watch_by_dict, watch_dict(g, i));
  if (at != MG_MAP_NONE) watch_all[at].told = false;
}

#else

void mg_guard_watch(MgGuards *g) { (void)g; }
void mg_guard_unwatch(MgGuards *g) { (void)g; }
void mg_guard_rearm(MgGuards *g, uint32_t i) { (void)g, (void)i; }

#endif
