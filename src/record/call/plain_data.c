/* pickle.dumps: its bytes depend on values, and on which objects occur twice.
 * In: a call.  Out: its result, where all arguments are None, numbers, strings, and exact lists, tuples and
 * dicts of these, and no two parts could be one object in eager and two here, or the other way round.
 * Anything else is a graph break: instances are asked for their state by C code that no guard sees. */
#include "record/call/plain_data.h"
#include <string.h>
#include "host/python/pyobject.h"
#include "record/core/call_args.h"
#include "record/core/recording.h"
#include "record/object/wrap.h"

enum { PLAIN_MOST = 32, PLAIN_DEEP = 8 }; /* parts that are compared with each other; levels of containers */

typedef struct PlainWalk {
  PyObject *seen[PLAIN_MOST]; /* borrowed: strings and containers so far */
  int n;
} PlainWalk;

/* No earlier part equals o: then it is one object in eager, too. */
static bool plain_once(PlainWalk *w, PyObject *o) {
  if (w->n == PLAIN_MOST) return false;
  for (int i = 0; i < w->n; i++) {
    PyObject *p = w->seen[i];
    bool texts = PyUnicode_CheckExact(p) && PyUnicode_CheckExact(o);
    if (p == o || (texts && !PyUnicode_Compare(p, o))) return false;
  }
  w->seen[w->n++] = o;
  return true;
}

static bool plain_walk(PlainWalk *w, PyObject *o, int deep) {
  if (o == Py_None || PyBool_Check(o) || PyLong_CheckExact(o) || PyFloat_CheckExact(o)) return true;
  if (deep == PLAIN_DEEP) return false;
  if (!(PyUnicode_CheckExact(o) || PyTuple_CheckExact(o) || PyList_CheckExact(o) || PyDict_CheckExact(o)) ||
      mg_older_opaque(o) || !plain_once(w, o))
    return false;
  if (PyDict_CheckExact(o)) {
    PyObject *k, *v;
    if (mg_olderdict_fill(o)) return false;
    for (Py_ssize_t pos = 0; PyDict_Next(o, &pos, &k, &v);)
      if (!plain_walk(w, k, deep + 1) || !plain_walk(w, v, deep + 1)) return false;
    return true;
  }
  Py_ssize_t n = PyTuple_CheckExact(o) ? PyTuple_GET_SIZE(o) : PyList_CheckExact(o) ? PyList_GET_SIZE(o) : 0;
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *part = PyTuple_CheckExact(o) ? PyTuple_GET_ITEM(o, i) : PyList_GET_ITEM(o, i);
    if (!plain_walk(w, part, deep + 1)) return false;
  }
  return true;
}

PyObject *mg_call_plain_data(const MgCall *c) {
  PlainWalk w = {0};
  for (Py_ssize_t i = 0; i < c->n; i++) {
    if (plain_walk(&w, c->arg[i], 0)) continue;
    return PyErr_Occurred() ? NULL : mg_call_unknown(c);
  }
  return mg_call_plain(c);
}
