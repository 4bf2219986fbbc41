/* Events, places and the tree of calls for reports.  See the header.
 * Invariant: a caller's number in the tree is smaller than those of what it calls.  Each thread has its own
 * place in the tree. */
#include "entry/launch/events.h"
#include <stdlib.h>
#include <string.h>
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

/* ---- the tree of calls ---- */

typedef struct TreeNode {
  PyCodeObject *code; /* strong */
  uint32_t caller;    /* 0: called from outside */
  bool callable;
  char of[64]; /* class of the callable; "": it is a function */
  MgTicks time;
} TreeNode;

static TreeNode *tree; /* tree[0] stands for what is outside */
static uint32_t tree_n = 1, tree_cap;
static MgMap tree_index;         /* of caller, code and kind -> number */
static uint32_t tree_number = 1; /* of this tree; others were given up */

static _Thread_local struct {
  uint32_t at, number; /* node that runs, of which tree */
  uint32_t last;       /* node of the last call, which the next one often is; 0: none */
  bool begun;          /* a callable was called, and its frame has not started */
} tree_here;

/* The node, made when it is new; 0: out of memory, or there are too many. */
static uint32_t tree_find(uint32_t caller, PyCodeObject *co, const char *of, bool callable) {
  uint64_t key = mg_hash_u64((uint64_t)(uintptr_t)co ^ mg_hash_u64((uint64_t)caller * 2 + callable)) | 2;
  uint32_t i = mg_map_get(&tree_index, key);
  if (i != MG_MAP_NONE) return i;
  if (tree_n >= MG_TUNE_REPORT_EVENTS) return 0;
  if (tree_n >= tree_cap) {
    uint32_t cap = tree_cap ? 2 * tree_cap : 32;
    TreeNode *p = mg_realloc(tree, cap * sizeof *p);
    if (!p) return 0;
    tree = p;
    tree_cap = cap;
  }
  if (mg_map_put(&tree_index, key, tree_n) != MG_OK) return 0;
  TreeNode *n = &tree[tree_n];
  *n = (TreeNode){.code = (PyCodeObject *)Py_NewRef(co), .caller = caller, .callable = callable};
  if (of) strncat(n->of, of, sizeof n->of - 1);
  return tree_n++;
}

/* Is the node what this call from here has? */
static bool tree_same(uint32_t node, PyCodeObject *co, bool callable) {
  const TreeNode *n = &tree[node];
  return node && n->code == co && n->caller == tree_here.at && n->callable == callable;
}

MgCallMark mg_call_enter(PyCodeObject *co, const char *of, bool callable) {
  if (tree_here.number != tree_number) tree_here.at = tree_here.last = 0, tree_here.begun = false;
  tree_here.number = tree_number;
  bool own = tree_here.begun && !callable && tree[tree_here.at].code == co; /* the callable's own frame */
  tree_here.begun = false;
  uint32_t at = 0;
  if (!own && tree_same(tree_here.last, co, callable)) at = tree_here.last;
  else if (!own) at = tree_find(tree_here.at, co, of, callable);
  if (!at) return (MgCallMark){0};
  MgCallMark mark = {.since = mg_ticks(), .before = tree_here.at, .number = tree_number};
  tree_here.at = tree_here.last = at;
  tree_here.begun = callable;
  return mark;
}

void mg_call_leave(MgCallMark mark) {
  if (!mark.since || mark.number != tree_number) return;
  mg_ticks_add(&tree[tree_here.at].time, mark.since);
  tree_here.at = mark.before;
  tree_here.begun = false;
}

PyObject *mg_calls_list(void) {
  PyObject *list = PyList_New(0);
  for (uint32_t i = 1; list && i < tree_n; i++) {
    const TreeNode *n = &tree[i];
    PyObject *d = Py_BuildValue("{s:I,s:I,s:O,s:s,s:O,s:K,s:d}", "number", i, "caller", n->caller, "code",
                                n->code, "of", n->of, "callable", n->callable ? Py_True : Py_False, "n",
                                (unsigned long long)n->time.n, "ms", mg_ticks_ms(n->time.ticks));
    if (!d || PyList_Append(list, d)) Py_CLEAR(list);
    Py_XDECREF(d);
  }
  return list;
}

static void tree_reset(void) {
  TreeNode *all = tree;
  uint32_t n = tree_n;
  mg_map_free(&tree_index);
  tree_index = (MgMap){0};
  tree = NULL;
  tree_n = 1;
  tree_cap = 0;
  tree_number++;
  for (uint32_t i = 1; i < n; i++) Py_DECREF(all[i].code);
  free(all);
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
  tree_reset();
}
