/* Tensors whose memory is read through a bit: the conj bit of conj() and the neg bit of imag of it.
 * Stand-ins carry the bits of the values they stand for, so that torch asks and clears them as it does for
 * real tensors; compiled graphs hold memory only (middle/functionalize), and results get their bits when a
 * run is over.  Arrays have no bits. */
#include "host/torch/conj_neg.h"
#include "host/python/pyobject.h"
#include "ir/graph/graph.h"

static int lazybits_call(PyObject **fn, const char *name, PyObject *tensor) {
  if (!*fn) {
    PyObject *c = mg_import("torch._C");
    *fn = c ? PyObject_GetAttrString(c, name) : NULL;
    Py_XDECREF(c);
    if (!*fn) return -1;
  }
  PyObject *r = PyObject_CallFunctionObjArgs(*fn, tensor, Py_True, NULL);
  Py_XDECREF(r);
  return r ? 0 : -1;
}

int mg_lazybits_set(PyObject *tensor, uint8_t bits) {
  static PyObject *set_conj, *set_neg;
  if (bits & MG_BIT_conj && lazybits_call(&set_conj, "_set_conj", tensor)) return -1;
  return bits & MG_BIT_neg ? lazybits_call(&set_neg, "_set_neg", tensor) : 0;
}

PyObject *mg_lazybits_clear(PyObject *tensor, uint8_t bits, bool force) {
  bool conj = bits & MG_BIT_conj;
  if (!force)
    return PyErr_Format(
        PyExc_RuntimeError,
        "Can't call numpy() on Tensor that has %s bit set. Use tensor.resolve_%s().numpy() instead.",
        conj ? "conjugate" : "negative", conj ? "conj" : "neg");
  PyObject *once = PyObject_CallMethod(tensor, "resolve_conj", NULL),
           *clear = once ? PyObject_CallMethod(once, "resolve_neg", NULL) : NULL;
  Py_XDECREF(once);
  return clear;
}

PyObject *mg_lazybits_to_array(PyObject *tensor) {
  PyObject *a = PyObject_CallMethod(tensor, "numpy", NULL);
  if (a || !PyErr_ExceptionMatches(PyExc_RuntimeError)) return a;
  mg_clear_if(PyExc_RuntimeError);
  PyObject *clear = mg_lazybits_clear(tensor, 0, true);
  if (clear) a = PyObject_CallMethod(clear, "numpy", NULL);
  Py_XDECREF(clear);
  return a;
}
