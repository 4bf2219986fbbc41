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
  if (mg_dict_iterator(v)) return mg_dict_iterator_skip(v, PyLong_AsSsize_t(state));
  if (PyBytes_Check(state))
    memcpy(((IterRange *)v)->part, PyBytes_AS_STRING(state), sizeof((IterRange *)v)->part);
  else if (state == Py_None) {
    it->index = -1;
    Py_CLEAR(it->over);
  } else if (!PyBool_Check(state)) it->index = PyLong_AsSsize_t(state);
  return PyErr_Occurred() ? -1 : 0;
}

const MgDictIterKind *mg_dict_iterator(PyObject *v) {
  static const MgDictIterKind kinds[] = {
      {&PyDictIterKey_Type, &PyDictKeys_Type, "keys", "__iter__"},
      {&PyDictIterValue_Type, &PyDictValues_Type, "values", "__iter__"},
      {&PyDictIterItem_Type, &PyDictItems_Type, "items", "__iter__"},
      {&PyDictRevIterKey_Type, &PyDictKeys_Type, "keys", "__reversed__"},
      {&PyDictRevIterValue_Type, &PyDictValues_Type, "values", "__reversed__"},
      {&PyDictRevIterItem_Type, &PyDictItems_Type, "items", "__reversed__"},
  };
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (Py_TYPE(v) == kinds[i].type) {
      PyObject *dict = ((IterDict *)v)->dict;
      return dict && PyODict_Check(dict) ? NULL
                                         : &kinds[i]; /* views of an OrderedDict have their own order */
    }
  return NULL;
}

Py_ssize_t mg_dict_iterator_given(PyObject *v) {
  IterDict *it = (IterDict *)v;
  if (!it->dict) return 0;
  if (it->used != PyDict_GET_SIZE(it->dict)) {
    PyErr_SetString(PyExc_RuntimeError, "dictionary changed size during iteration");
    return -1;
  }
  PyObject *reduced = PyObject_CallMethod(v, "__reduce__", NULL); /* (iter, (what is left,)) */
  PyObject *left = reduced ? PyTuple_GET_ITEM(PyTuple_GET_ITEM(reduced, 1), 0) : NULL;
  Py_ssize_t given = left ? it->used - PyList_GET_SIZE(left) : -1;
  Py_XDECREF(reduced);
  return given;
}

int mg_dict_iterator_skip(PyObject *v, Py_ssize_t n) {
  const MgDictIterKind *kind = mg_dict_iterator(v);
  IterDict *it = (IterDict *)v;
  if (!it->dict) return 0;
  PyObject *view = PyObject_CallMethod((PyObject *)&PyDict_Type, kind->view, "O", it->dict), *item;
  PyObject *again = view ? PyObject_CallMethod(view, kind->method, NULL) : NULL;
  for (; again && n > 0 && (item = PyIter_Next(again)); n--) Py_DECREF(item);
  if (again && !PyErr_Occurred()) {
    it->used = ((IterDict *)again)->used;
    it->at = ((IterDict *)again)->at;
    it->left = ((IterDict *)again)->left;
  }
  Py_XDECREF(again);
  Py_XDECREF(view);
  return PyErr_Occurred() ? -1 : 0;
}
