/* What the iterators of CPython's own containers go over, and how far they are. */
#include "host/python/iterators.h"

IterKind mg_iter_kind(PyTypeObject *t) {
  if (t == &PyListIter_Type || t == &PyListRevIter_Type || t == &PyTupleIter_Type || t == &PyReversed_Type)
    return ITER_sequence;
  if (t == &PyEnum_Type) return ITER_enumerate;
  if (t == &PyZip_Type) return ITER_zip;
  return t == &PyRangeIter_Type ? ITER_range : ITER_none;
}

PyObject *mg_iterator_over(PyObject *v) {
  IterKind kind = mg_iter_kind(Py_TYPE(v));
  return kind == ITER_none || kind == ITER_range ? NULL : ((IterIndexed *)v)->over;
}

PyObject *mg_iterator_state(PyObject *v) {
  IterIndexed *it = (IterIndexed *)v;
  switch (mg_iter_kind(Py_TYPE(v))) {
  case ITER_sequence: return it->over ? PyLong_FromSsize_t(it->index) : Py_NewRef(Py_None);
  case ITER_enumerate:
    return it->index < PY_SSIZE_T_MAX ? PyLong_FromSsize_t(it->index)
                                      : NULL; /* an int of any size stands beside it */
  case ITER_zip: return PyBool_FromLong(((IterZip *)v)->strict);
  case ITER_range:
    return PyBytes_FromStringAndSize((char *)((IterRange *)v)->part, sizeof((IterRange *)v)->part);
  default: return NULL;
  }
}

int mg_iterator_set(PyObject *v, PyObject *state) {
  IterIndexed *it = (IterIndexed *)v;
  if (PyBytes_Check(state))
    memcpy(((IterRange *)v)->part, PyBytes_AS_STRING(state), sizeof((IterRange *)v)->part);
  else if (state == Py_None) {
    it->index = -1;
    Py_CLEAR(it->over);
  } else if (!PyBool_Check(state)) it->index = PyLong_AsSsize_t(state);
  return PyErr_Occurred() ? -1 : 0;
}
