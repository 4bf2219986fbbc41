/* Subscripts by sizes. */
#include "record/symbolic/size_index.h"
#include "host/python/hook_mode.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "record/symbolic/number.h"
#include "record/symbolic/sizes.h"

MgSymNode *mg_ask_late(PyObject *o) {
  MgSymNode *n = mg_symnode_of(o);
  return n && n->cap && !n->src && !n->hint ? n : NULL;
}

/* A number that a run learns and graphs have words for: one that depends on data, or comes from sizes. */
static bool ask_index(PyObject *o) {
  MgSymNode *n = mg_symnode_of(o);
  return n && mg_symfloat_class(o) == &PyLong_Type && (mg_ask_late(o) || (n->src && mg_symsize_of(n)));
}

PyObject *mg_symask_item(PyObject *tensor, PyObject *key) {
  if (!mg_rec || !mg_standin_is(tensor) || (!mg_rec->cap->syms && !mg_symsize_inputs(&mg_rec->cap->sizes)))
    return NULL;
  if (ask_index(key))
    return mg_standin_val(tensor) && mg_val(mg_rec->g, mg_standin_val(tensor))->ndim
               ? PyObject_CallMethod(tensor, "select", "iO", 0, key)
               : NULL;
  if (!PyTuple_CheckExact(key)) return NULL;
  Py_ssize_t n = PyTuple_GET_SIZE(key);
  bool any = false;
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *o = PyTuple_GET_ITEM(key, i);
    any |= ask_index(o);
    if (!PySlice_Check(o) && !PyLong_CheckExact(o) && !ask_index(o)) return NULL;
  }
  if (!any || n > mg_val(mg_rec->g, mg_standin_val(tensor))->ndim) return NULL;
  PyObject *t = Py_NewRef(tensor), *rest = PyList_New(0), *index = NULL;
  for (Py_ssize_t i = n; rest && t && i-- > 0;) { /* the last first, so that dimensions keep their numbers */
    PyObject *o = PyTuple_GET_ITEM(key, i);
    if (ask_index(o)) Py_SETREF(t, PyObject_CallMethod(t, "select", "nO", i, o));
    else if (PyList_Insert(rest, 0, o)) Py_CLEAR(t);
  }
  if (t && rest && PyList_GET_SIZE(rest) && (index = PyList_AsTuple(rest)))
    Py_SETREF(t, PyObject_GetItem(t, index));
  Py_XDECREF(index);
  Py_XDECREF(rest);
  return t;
}
