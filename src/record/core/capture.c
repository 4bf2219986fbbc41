/* The tensor side of a recording, as data: inputs, stand-ins, what torch's state was. */
#include "record/core/capture.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "record/core/recording.h"

PyTypeObject *mg_standin_type;

Py_ssize_t mg_standin_slot;

PyObject *mg_standin_c; /* torch._C */

bool mg_standin_check(PyObject *o) { return mg_standin_is(o); }

ValRef mg_standin_val(PyObject *o) { return mg_standin_info(o)->val; }

PyObject *mg_standin_class(PyObject *o) {
  if (Py_TYPE(o) != mg_standin_type) return (PyObject *)mg_subclass_of(Py_TYPE(o));
  return (PyObject *)(mg_standin_info(o)->is_param ? mg_torch.parameter : mg_torch.tensor);
}

PyObject *mg_standin_original(PyObject *o) {
  MgStandInfo *i = mg_standin_info(o);
  return i->cap && i->input ? i->cap->input[i->input - 1].real : NULL;
}

bool mg_standin_transformed(PyObject *o) {
  static PyObject *ask;                            /* strong, process lifetime */
  if (Py_TYPE(o) != mg_torch.tensor) return false; /* wrappers that a transform left behind count, too */
  PyObject *f = ask ? NULL : PyObject_GetAttrString(mg_standin_c, "_functorch"), *r = NULL;
  if (f) ask = PyObject_GetAttrString(f, "is_functorch_wrapped_tensor");
  if (ask) r = PyObject_CallOneArg(ask, o);
  bool yes = r == Py_True;
  if (!r) mg_clear_as_no();
  Py_XDECREF(f);
  Py_XDECREF(r);
  return yes;
}

bool mg_standin_transform_is_older(PyObject *o) {
  static PyObject *inner; /* strong, process lifetime */
  if (!inner) {
    PyObject *f = PyObject_GetAttrString(mg_standin_c, "_functorch");
    if (f) inner = PyObject_GetAttrString(f, "get_unwrapped");
    Py_XDECREF(f);
  }
  Py_INCREF(o);
  while (inner && mg_standin_transformed(o)) {
    PyObject *below = PyObject_CallOneArg(inner, o);
    Py_SETREF(o, below);
    if (!o) break;
  }
  bool ours = o && mg_standin_check(o);
  if (!inner || !o) mg_clear_as_no();
  Py_XDECREF(o);
  return !ours;
}

/* ---- which results depend on each other ---- */

void mg_joint_links(PyObject *standin) {
  const MgStandInfo *i = mg_standin_is(standin) ? mg_standin_info(standin) : NULL;
  if (i && i->cap && !i->input && i->val) mg_retry_fail(i->cap->rec, RETRY_links);
}
