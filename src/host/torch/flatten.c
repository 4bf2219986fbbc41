/* Tensors that wrap others: what one holds. */
#include "host/torch/flatten.h"
#include "host/python/pyobject.h"

PyObject *mg_wrapper_flatten, *wrapper_unflatten, *wrapper_compare;

PyObject *mg_wrapper_flat(PyObject *o) {
  PyObject *r = PyObject_CallMethodNoArgs(o, mg_wrapper_flatten), *names = NULL, *flat = NULL;
  if (r && PyTuple_Check(r) && PyTuple_GET_SIZE(r) == 2) names = PySequence_Tuple(PyTuple_GET_ITEM(r, 0));
  else if (r) PyErr_SetString(PyExc_TypeError, "__tensor_flatten__ gives names and metadata");
  if (names) flat = PyTuple_Pack(2, names, PyTuple_GET_ITEM(r, 1));
  Py_XDECREF(names);
  Py_XDECREF(r);
  return flat;
}

PyObject *mg_wrapper_sizes(PyObject *o, const char *method) {
  PyObject *s = PyObject_CallMethod(o, method, NULL), *t = s ? PySequence_List(s) : NULL, *r;
  for (Py_ssize_t i = 0; t && i < PyList_GET_SIZE(t); i++)
    if (!PyLong_CheckExact(PyList_GET_ITEM(t, i))) PyList_SetItem(t, i, Py_NewRef(Py_None));
  r = t ? PyList_AsTuple(t) : NULL;
  Py_XDECREF(t);
  Py_XDECREF(s);
  return r;
}

static bool wrapper_sized(PyObject *o, const char *method, PyObject *want) {
  if (want == Py_None) return true;
  PyObject *now = mg_wrapper_sizes(o, method);
  int same = now ? PyObject_RichCompareBool(now, want, Py_EQ) : 0;
  Py_XDECREF(now);
  return same > 0;
}

bool mg_wrapper_holds(PyObject *o, PyObject *want) {
  PyObject *flat = mg_wrapper_flat(o), *was = PyTuple_GET_ITEM(want, 1), *ask = PyTuple_GET_ITEM(want, 2),
           *r = NULL;
  int same = flat ? PyObject_RichCompareBool(PyTuple_GET_ITEM(flat, 0), PyTuple_GET_ITEM(want, 0), Py_EQ) : 0;
  if (same > 0 && ask == Py_None) same = PyObject_RichCompareBool(PyTuple_GET_ITEM(flat, 1), was, Py_EQ);
  else if (same > 0)
    same = (r = PyObject_CallFunctionObjArgs(ask, was, PyTuple_GET_ITEM(flat, 1), NULL)) ? PyObject_IsTrue(r)
                                                                                         : 0;
  Py_XDECREF(r);
  Py_XDECREF(flat);
  if (same > 0)
    same = wrapper_sized(o, "size", PyTuple_GET_ITEM(want, 3)) &&
           wrapper_sized(o, "stride", PyTuple_GET_ITEM(want, 4));
  mg_clear_as_no();
  return same > 0;
}
