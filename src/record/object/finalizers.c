/* See the header.  In: an object that loses a reference.  Out: whether code of the program may run then.
 * The objects that are reached from it are a graph, as in CPython's collector.  One that has more references
 * than the graph explains is alive, and so is what it reaches.  The recording's own references cannot be told
 * from others: what it has met is taken as dying. */
#include "record/object/finalizers.h"
#include <Python.h>
#include <structmember.h>
#include <stdlib.h>
#include <string.h>
#include "base/table.h"
#include "entry/guard/finalizer_walk.h"
#include "entry/guard/guard_add.h"
#include "entry/guard/source.h"
#include "host/python/hook_mode.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "record/core/c_functions.h"
#include "record/core/capture.h"
#include "record/core/identity.h"
#include "record/core/recording.h"
#include "record/object/lazy_constants.h"
#include "record/object/namespaces.h"

#define PY_SSIZE_T_CLEAN

/* ---- while recording ---- */

bool mg_rec_finalizes_attr(PyObject *o, PyObject *name, PyObject *now) {
  if (!mg_rec) return false;
  const MgOlder *e = mg_older(o);
  SrcRef src = e && e->src ? e->src : mg_source(mg_rec->guards, SRC_pinned, 0, 0, e ? e->orig : o);
  mg_guard_add(mg_rec->guards, GK_quiet_attr, src, name, 0);
  return mg_rec_finalizes(now);
}

static void fin_break(PyObject *o) {
  const char *name = Py_TYPE(o)->tp_name;
  if (mg_fin_is_generator(o)) mg_rec_break(BK_finalizer, "a generator with clean-up code goes out of use");
  else if (mg_has_finalizer(Py_TYPE(o)))
    mg_rec_break(BK_finalizer, "a %s with __del__ goes out of use", name);
  else if (mg_fin_has_callback(o))
    mg_rec_break(BK_finalizer, "a %s goes out of use, and a callback runs", name);
  else mg_rec_break(BK_finalizer, "a %s goes out of use", name);
}

bool mg_rec_finalizes(PyObject *o) {
  if (!mg_rec || !o || mg_fin_is_leaf(o) || mg_is_fresh(o)) return false;
  FinWalk w = {.recording = true};
  const MgOlder *e = mg_older(o);
  PyObject *orig = e ? e->orig : o;
  SrcRef src = e                  ? e->src
               : PyTuple_Check(o) ? mg_unread_src(o)
                                  : 0; /* of a tuple that nobody looked at, only the class is guarded */
  if (src) mg_guard_add(mg_rec->guards, GK_quiet, src, NULL, 0);
  bool yes = !mg_standin_check(orig) && mg_fin_walk(&w, orig);
  if (yes) fin_break(w.full ? orig : w.v[w.done].o);
  for (uint32_t i = 0; !yes && i < w.n; i++)
    if (!w.v[i].alive && mg_fin_weakrefs(w.v[i].o) && mg_map_putp(&mg_rec->ident->dropped, w.v[i].o, i)) {
      PyErr_NoMemory();
      yes = true;
    }
  mg_fin_free(&w);
  return yes;
}

/* What an iterator goes over, if the recording knows it from there only. */
static int fin_over(PyObject *o, void *arg) {
  uint32_t at = mg_map_getp(&mg_rec->ident->by_orig, o);
  SrcRef src = at == MG_MAP_NONE ? 0 : mg_rec->ident->v[at].src;
  return src && mg_rec->guards->src[src].kind == SRC_over;
}

bool mg_finalizer_iterator(PyObject *it) {
  const MgOlder *e = it ? mg_older(it) : NULL;
  if (!e || e->kind != OLDER_iter || !PyObject_IS_GC(e->orig)) return false;
  return Py_TYPE(e->orig)->tp_traverse(e->orig, fin_over, NULL) && mg_rec_finalizes(it);
}

/* Is this Python function what its module has under its name? */
static bool fin_is_global(PyObject *f) {
  PyFunctionObject *fn = (PyFunctionObject *)f;
  return PyDict_GetItemWithError(fn->func_globals, fn->func_qualname) == f;
}

/* Does a module or class hold this function, for as long as it lives?  Then it makes no difference that an
 * entry holds it, whatever runs at its end. */
static bool fin_stays(PyObject *f) {
  if (PyFunction_Check(f)) return fin_is_global(f);
  if (!PyCFunction_CheckExact(f)) return false;
  PyObject *owner = ((PyCFunctionObject *)f)->m_self; /* of a static method, too */
  return !owner || PyModule_Check(owner) || PyType_Check(owner);
}

bool mg_finalizer_keys(PyObject *keys) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); i++) {
    PyObject *x = PyTuple_GET_ITEM(keys, i);
    if (mg_fin_is_leaf(x) || fin_stays(x) || !mg_finalizer_reached(x)) continue;
    mg_rec_break(BK_finalizer, "a %s, whose end runs code, is a key or in a set", Py_TYPE(x)->tp_name);
    return true;
  }
  return false;
}

bool mg_finalizer_dropped(PyObject *o) { return mg_map_getp(&mg_rec->ident->dropped, o) != MG_MAP_NONE; }

/* Everything in a list, dict, set or deque, past an __iter__ of the program. */
static bool fin_all(PyObject *container) {
  PyObject *it = mg_solid_base(Py_TYPE(container))->tp_iter(container), *x = NULL;
  bool yes = !it;
  while (!yes && (x = PyIter_Next(it))) {
    PyObject *value = PyDict_Check(container) ? PyDict_GetItemWithError(container, x) : NULL;
    yes = mg_rec_finalizes(x) || mg_rec_finalizes(value);
    Py_DECREF(x);
  }
  Py_XDECREF(it);
  return yes || PyErr_Occurred();
}

static bool fin_is_deque(PyObject *o) { return Py_TYPE(o) == mg_torch.deque; }

static bool fin_is_bounded(PyObject *deque) {
  PyObject *most = PyObject_GetAttrString(deque, "maxlen");
  bool yes = most != Py_None;
  if (!most) PyErr_Clear(); /* every deque has one */
  Py_XDECREF(most);
  return yes;
}

static bool fin_is_container(PyObject *on) {
  return (PyList_Check(on) || PyDict_Check(on) || PySet_Check(on) || fin_is_deque(on)) && mg_older(on) &&
         !mg_rec_is_namespace(on);
}

bool mg_finalizer_item(PyObject *on, PyObject *key) {
  if (!fin_is_container(on) || PySet_Check(on)) return false;
  PyObject *old;
  if (PyDict_Check(on)) old = Py_XNewRef(PyDict_GetItemWithError(on, key));
  else old = PyList_Check(on) ? PyList_Type.tp_as_mapping->mp_subscript(on, key) : PyObject_GetItem(on, key);
  PyErr_Clear(); /* the write raises the same */
  bool yes = old && PySlice_Check(key) ? fin_all(old) : mg_rec_finalizes(old);
  Py_XDECREF(old);
  return yes || (PyDict_Check(on) && old && mg_rec_finalizes(key));
}

/* The items of a dict that an update with another replaces. */
static bool fin_update(PyObject *on, PyObject *other) {
  PyObject *k, *v;
  Py_ssize_t i = 0;
  if (!PyDict_Check(other)) return fin_all(on);
  while (PyDict_Next(other, &i, &k, &v))
    if (mg_finalizer_item(on, k)) return true;
  return false;
}

static bool fin_named(const char *name, const char *const *names) {
  while (*names && strcmp(name, *names)) names++;
  return *names != NULL;
}

bool mg_finalizer_method(PyObject *f, PyObject *const *arg, Py_ssize_t npos, PyObject *kwnames) {
  static const char *const at_key[] = {"pop", "__setitem__", "__delitem__", "setitem", "delitem", NULL};
  static const char *const adds[] = {"append", "appendleft", "extend", "extendleft",
                                     "insert", "__iadd__",   "iadd",   NULL};
  static const char *const any[] = {"clear",
                                    "pop",
                                    "popitem",
                                    "popleft",
                                    "remove",
                                    "discard",
                                    "intersection_update",
                                    "difference_update",
                                    "symmetric_difference_update",
                                    "__iand__",
                                    "__isub__",
                                    "__ixor__",
                                    "__imul__",
                                    "__init__",
                                    "__setitem__",
                                    "__delitem__",
                                    "setitem",
                                    "delitem",
                                    "iand",
                                    "isub",
                                    "ixor",
                                    "imul",
                                    NULL};
  char buf[256];
  PyObject *self = mg_policy_self(f);
  if (self && PyModule_Check(self)) self = NULL; /* operator.setitem */
  PyObject *on = self ? self : npos ? arg[0] : NULL;
  if (!on || !fin_is_container(on) || PyType_Check(f)) return false;
  const char *name = mg_policy_method(f, buf, sizeof buf);
  PyObject *first = npos > !self ? arg[!self] : NULL;
  bool update = !strcmp(name, "update") || !strcmp(name, "__ior__") || !strcmp(name, "ior") ||
                !strcmp(name, "__init__");
  if (update && PyDict_Check(on)) {
    if (first && fin_update(on, first)) return true;
    for (Py_ssize_t i = 0; kwnames && i < PyTuple_GET_SIZE(kwnames); i++)
      if (mg_finalizer_item(on, PyTuple_GET_ITEM(kwnames, i))) return true;
    return false;
  }
  if (first && fin_named(name, at_key) && (PyDict_Check(on) || PyList_Check(on)))
    return mg_finalizer_item(on, first);
  if (fin_is_deque(on) && fin_named(name, adds) && fin_is_bounded(on)) return fin_all(on);
  return fin_named(name, any) && fin_all(on);
}

bool mg_finalizer_inplace(PyObject *on, PyObject *other) {
  if (!fin_is_container(on) || (PyList_Check(on) && !PyLong_Check(other))) return false;
  if (fin_is_deque(on) && !fin_is_bounded(on)) return false;
  return PyDict_Check(on) ? fin_update(on, other) : fin_all(on);
}
