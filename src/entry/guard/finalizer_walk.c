/* What runs when an object goes out of use: __del__, what a generator has left,
 * callbacks of weak references. */
#include "entry/guard/finalizer_walk.h"
#include <structmember.h>
#include "entry/guard/guard_add.h"
#include "entry/guard/guard_set.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "host/python/trace_rules.h"
#include "tuning.h"

bool mg_fin_is_generator(PyObject *o) {
  return PyGen_CheckExact(o) || PyCoro_CheckExact(o) || PyAsyncGen_CheckExact(o);
}

PyWeakReference *mg_fin_weakrefs(PyObject *o) {
  PyTypeObject *t = Py_TYPE(o);
  return PyType_SUPPORTS_WEAKREFS(t) ? *(PyWeakReference **)((char *)o + t->tp_weaklistoffset) : NULL;
}

/* Tables of torch's tracers drop their entries so (a back end has seen the tensor): the
 * program does not see that. */
static bool fin_is_torch(PyObject *callback) {
  return PyFunction_Check(callback) && mg_skip_is_torch((PyCodeObject *)PyFunction_GET_CODE(callback));
}

bool mg_fin_has_callback(PyObject *o) {
  for (PyWeakReference *w = mg_fin_weakrefs(o); w; w = w->wr_next)
    if (w->wr_callback && !mg_guard_is_callback(w->wr_callback) && !fin_is_torch(w->wr_callback)) return true;
  return false;
}

static bool fin_runs(PyObject *o) {
  if (mg_fin_is_generator(o)) return !mg_guard_asks.is_fresh(o) && mg_generator_cleans_up(o);
  return Py_TYPE(o)->tp_finalize || mg_fin_has_callback(o);
}

bool mg_fin_is_leaf(PyObject *o) {
  PyTypeObject *t = Py_TYPE(o);
  if (PyType_Check(o) || PyModule_Check(o) || PyCode_Check(o) || PyWeakref_Check(o)) return true;
  return !PyObject_IS_GC(o) && !t->tp_finalize && !t->tp_weaklistoffset;
}

static int fin_meet(PyObject *o, void *arg) {
  FinWalk *w = arg;
  if (w->full || mg_fin_is_leaf(o)) return 0;
  uint32_t at = mg_map_getp(&w->at, o);
  if (at != MG_MAP_NONE) return w->v[at].refs++, 0;
  if (w->n == w->cap && (w->n >= MG_TUNE_FINALIZER_OBJECTS || !mg_grow(&w->v, &w->cap, sizeof *w->v, 16)))
    return w->full = true, 0;
  if (mg_map_putp(&w->at, o, w->n)) return w->full = true, 0;
  w->v[w->n++] = (FinNode){o, 1, false};
  w->runs |= fin_runs(o);
  return 0;
}

static int fin_revive(PyObject *o, void *arg) {
  FinWalk *w = arg;
  uint32_t at = mg_map_getp(&w->at, o);
  if (at == MG_MAP_NONE || w->v[at].alive) return 0;
  w->v[at].alive = true;
  if (at < w->done) w->done = at; /* what it holds is alive as well */
  return 0;
}

/* What dies with o.  Of a function, its globals and its code do not; of a tensor, its memory runs no code. */
static void fin_follow(FinWalk *w, PyObject *o, visitproc visit) {
  PyObject **dict = NULL, *part[4] = {NULL};
  if (PyFunction_Check(o)) {
    PyFunctionObject *f = (PyFunctionObject *)o;
    part[0] = f->func_closure;
    part[1] = f->func_defaults;
    part[2] = f->func_kwdefaults;
    part[3] = f->func_dict;
  } else if (PyObject_TypeCheck(o, mg_torch.tensor)) {
    dict = _PyObject_GetDictPtr(o);
    part[0] = dict ? *dict : NULL;
  } else if (PyDict_CheckExact(o) && PyDict_GetItemWithError(o, mg_names.builtins)) {
    return; /* the globals of a module */
  } else if (PyObject_IS_GC(o) && Py_TYPE(o)->tp_traverse) {
    Py_TYPE(o)->tp_traverse(o, visit, w);
  }
  for (int i = 0; i < 4; i++)
    if (part[i]) visit(part[i], w);
}

/* Do others hold this object, which is not the root? */
static bool fin_is_held(const FinWalk *w, const FinNode *x) {
  if (w->recording && mg_guard_asks.is_older(x->o)) return false;
  return Py_REFCNT(x->o) > x->refs;
}

/* Marks what stays alive. */
static void fin_mark(FinWalk *w) {
  for (uint32_t i = 1; i < w->n; i++) w->v[i].alive = fin_is_held(w, &w->v[i]);
  for (w->done = 1; w->done < w->n;) {
    uint32_t i = w->done++;
    if (w->v[i].alive) fin_follow(w, w->v[i].o, fin_revive);
  }
}

bool mg_fin_walk(FinWalk *w, PyObject *o) {
  fin_meet(o, w);
  while (w->done < w->n && !w->full) fin_follow(w, w->v[w->done++].o, fin_meet);
  if (w->full || !w->runs) return w->full;
  fin_mark(w);
  for (uint32_t i = 0; i < w->n; i++)
    if (!w->v[i].alive && fin_runs(w->v[i].o)) return w->done = i, true;
  return false;
}

void mg_fin_free(FinWalk *w) {
  mg_map_free(&w->at);
  free(w->v);
}

bool mg_finalizer_reached(PyObject *o) {
  FinWalk w = {0};
  if (mg_fin_is_leaf(o) || (PyObject_TypeCheck(o, mg_torch.tensor) && !mg_fin_weakrefs(o))) return false;
  bool yes = mg_fin_walk(&w, o);
  mg_fin_free(&w);
  return yes;
}

/* ---- guards ---- */

bool mg_finalizer_slot(PyObject *o) { return o && Py_REFCNT(o) == 1 && mg_finalizer_reached(o); }

bool mg_finalizer_attr(PyObject *o, PyObject *name) {
  PyObject *v = NULL, **dict = NULL;
  if (Py_TYPE(name) == &PyMemberDescr_Type)
    v = *(PyObject **)((char *)o + ((PyMemberDescrObject *)name)->d_member->offset);
  else if (PyType_Check(o)) v = PyDict_GetItemWithError(mg_type_dict((PyTypeObject *)o), name);
  else if (PyDict_Check(o)) v = PyDict_GetItemWithError(o, name);
  else if ((dict = _PyObject_GetDictPtr(o)) && *dict) v = PyDict_GetItemWithError(*dict, name);
  return v && mg_finalizer_reached(v);
}

bool mg_finalizer_first(PyObject *deque) {
  PyObject *first = Py_SIZE(deque) ? PySequence_GetItem(deque, 0) : NULL;
  Py_XDECREF(first); /* the deque keeps it */
  return first && mg_finalizer_reached(first);
}
