/* See the header. */
#include "record/segment/dynamo_counters.h"
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "host/python/hook_mode.h"

/* counters[group][key] += n */
static int counters_add(PyObject *counters, const char *group, const char *key, long n) {
  PyObject *g = PyMapping_GetItemString(counters, group), *k = g ? PyUnicode_FromString(key) : NULL;
  PyObject *was = k ? PyObject_GetItem(g, k) : NULL, *more = was ? PyLong_FromLong(n) : NULL;
  PyObject *now = more ? PyNumber_Add(was, more) : NULL;
  int rc = now ? PyObject_SetItem(g, k, now) : -1;
  Py_XDECREF(now);
  Py_XDECREF(more);
  Py_XDECREF(was);
  Py_XDECREF(k);
  Py_XDECREF(g);
  return rc;
}

static int counters_count(PyObject *counters, int ncall, const char *reason) {
  if (counters_add(counters, "frames", "total", 1) || counters_add(counters, "frames", "ok", 1)) return -1;
  if (ncall && (counters_add(counters, "stats", "unique_graphs", 1) ||
                counters_add(counters, "stats", "calls_captured", ncall)))
    return -1;
  return reason ? counters_add(counters, "graph_break", reason, 1) : 0;
}

void mg_counters_segment(int ncall, const char *reason) {
  PyObject *t, *v, *tb, *m = PyDict_GetItemString(PyImport_GetModuleDict(), "torch._dynamo.utils");
  if (!m) return;
  MgHookMode mode = mg_hook_mode;
  mg_hook_mode = HOOK_off; /* counters are Python objects */
  PyErr_Fetch(&t, &v, &tb);
  PyObject *counters = PyObject_GetAttrString(m, "counters");
  if (!counters || counters_count(counters, ncall, reason))
    PyErr_Clear(); /* other versions of torch may have other counters */
  Py_XDECREF(counters);
  PyErr_Restore(t, v, tb);
  mg_hook_mode = mode;
}
