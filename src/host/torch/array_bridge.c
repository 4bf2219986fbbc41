/* Tensors out of NumPy arrays and numbers, and back. */
#include "host/torch/array_bridge.h"
#include "host/python/pyobject.h"
#include "host/torch/array_header.h"
#include "host/torch/conj_neg.h"
#include "host/torch/tensor_wrap.h"
#include "ir/graph/graph.h"
#include "runtime/process/torch_abi.h"

PyTypeObject *mg_nd_array, *nd_generic; /* numpy.ndarray, numpy.generic */

bool mg_array_is_scalar(PyObject *o) { return Py_TYPE(((MgArray *)o)->model) != mg_nd_array; }

MgArrayKind mg_array_kind(PyObject *o) {
  if (mg_array_is_scalar(o)) return ARRAY_scalar;
  return mg_nd_writeable(((MgArray *)o)->model) ? ARRAY_plain : ARRAY_readonly;
}

bool mg_array_is_class(PyTypeObject *t) { return t == mg_nd_array; }

/* ---- tensors and models ---- */

PyObject *mg_array_to_tensor(PyObject *array) {
  static PyObject *from_numpy;
  if (!from_numpy) {
    PyObject *torch = mg_import("torch");
    from_numpy = torch ? PyObject_GetAttrString(torch, "from_numpy") : NULL;
    Py_XDECREF(torch);
    if (!from_numpy) return NULL;
  }
  return PyObject_CallOneArg(from_numpy, array);
}

PyObject *mg_array_from_tensor(PyObject *tensor, MgArrayKind kind) {
  PyObject *a = mg_lazybits_to_array(tensor), *key = NULL, *r = NULL;
  if (a && kind == ARRAY_readonly) {
    PyObject *flags = PyObject_GetAttrString(a, "flags");
    if (!flags || PyObject_SetAttrString(flags, "writeable", Py_False)) Py_CLEAR(a);
    Py_XDECREF(flags);
  }
  if (!a || kind != ARRAY_scalar) return a;
  if ((key = PyTuple_New(0))) r = PyObject_GetItem(a, key);
  Py_XDECREF(key);
  Py_DECREF(a);
  return r;
}

PyObject *mg_symvalue_size(PyObject *tensor, int dim) {
  int64_t *size;
  if (mg_abi.aoti_torch_get_sizes(mg_abi_tensor(tensor), &size)) return PyErr_NoMemory();
  return PyLong_FromLongLong(size[dim]);
}

PyObject *mg_symvalue_read(PyObject *tensor, uint32_t at) {
  void *p = NULL;
  int32_t dtype = 0;
  MgTensor *t = mg_abi_tensor(tensor);
  if (mg_abi.aoti_torch_get_data_ptr(t, &p) || mg_abi.aoti_torch_get_dtype(t, &dtype) || !p)
    return PyErr_Format(PyExc_SystemError, "magneto: a number of the graph has no memory");
  if (dtype == DT_i64) return PyLong_FromLongLong(((const int64_t *)p)[at]);
  return dtype == DT_bool ? PyBool_FromLong(((const bool *)p)[at])
                          : PyFloat_FromDouble(((const double *)p)[at]);
}

PyObject *mg_symfloat_tensor(PyObject *value) {
  MgTensor *t;
  void *p;
  bool is_int = PyLong_Check(value) || mg_guard_numpy_number(value) == 'i', truth = PyBool_Check(value);
  PyObject *number = is_int ? PyNumber_Index(value) : NULL;
  int64_t i = number ? PyLong_AsLongLong(number) : 0;
  Py_XDECREF(number);
  if (PyErr_Occurred()) return NULL;
  if (mg_abi.aoti_torch_empty_strided(0, NULL, NULL,
                                      truth    ? DT_bool
                                      : is_int ? DT_i64
                                               : DT_f64,
                                      DEV_cpu, -1, &t) ||
      mg_abi.aoti_torch_get_data_ptr(t, &p))
    return PyErr_NoMemory();
  if (truth) *(bool *)p = i;
  else if (is_int) *(int64_t *)p = i;
  else *(double *)p = PyFloat_AsDouble(value);
  return mg_tensor_wrap(t);
}
