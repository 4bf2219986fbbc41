/* The recording's place on torch's stack of dispatch modes. */
#include "record/tensor/mode_stack.h"
#include "record/core/capture.h"
#include "record/core/recording.h"

PyObject *mg_dispatch_push, *mg_dispatch_pop;

int mg_dispatch_leave(MgCapture *cap) {
  PyObject *top = PyObject_CallOneArg(mg_dispatch_pop, Py_None);
  if (top == cap->mode) return Py_DECREF(top), 0;
  if (top) {
    PyObject *pushed = PyObject_CallOneArg(mg_dispatch_push, top);
    Py_XDECREF(pushed);
    Py_DECREF(top);
    if (pushed) mg_rec_break(BK_dispatch_mode, "a torch dispatch mode is active");
  }
  return -1;
}

int mg_dispatch_return(MgCapture *cap) {
  PyObject *t, *v, *tb;
  PyErr_Fetch(&t, &v, &tb);
  PyObject *pushed = PyObject_CallOneArg(mg_dispatch_push, cap->mode);
  if (!pushed) {
    Py_XDECREF(t);
    Py_XDECREF(v);
    Py_XDECREF(tb);
    return -1;
  }
  Py_DECREF(pushed);
  PyErr_Restore(t, v, tb);
  return 0;
}

PyObject *mg_dispatch_with_mode(MgCapture *cap, PyObject *f, PyObject *args, PyObject *kwargs) {
  PyObject *pushed = PyObject_CallOneArg(mg_dispatch_push, cap->mode), *r = NULL;
  if (pushed) {
    r = PyObject_Call(f, args, kwargs);
    PyObject *t, *v, *tb;
    PyErr_Fetch(&t, &v, &tb);
    PyObject *popped = PyObject_CallOneArg(mg_dispatch_pop, Py_None);
    if (popped) PyErr_Restore(t, v, tb);
    else Py_CLEAR(r);
    Py_XDECREF(popped);
  }
  Py_XDECREF(pushed);
  return r;
}
