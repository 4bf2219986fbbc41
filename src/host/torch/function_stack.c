/* The stack of torch function modes. */
#include "host/torch/function_stack.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "host/torch/torch_state.h"

PyObject *mg_fmodes_call(const char *name, PyObject *arg) {
  PyObject *c = mg_import("torch._C"), *f = c ? PyObject_GetAttrString(c, name) : NULL;
  PyObject *r = f ? arg ? PyObject_CallOneArg(f, arg) : PyObject_CallNoArgs(f) : NULL;
  Py_XDECREF(f);
  Py_XDECREF(c);
  return r;
}

void mg_fmodes_insist(const char *name, PyObject *arg) {
  PyObject *r = NULL;
  for (int i = 0; i < 8 && !r; i++) {
    PyErr_Clear(); /* the next try replaces it */
    r = mg_fmodes_call(name, arg);
  }
  Py_XDECREF(r);
}

Py_ssize_t mg_fmodes_depth(void) { return mg_state_function_modes(); }

PyObject *mg_fmodes_at(Py_ssize_t i) {
  PyObject *n = PyLong_FromSsize_t(i), *r = n ? mg_fmodes_call("_get_function_stack_at", n) : NULL;
  Py_XDECREF(n);
  Py_XDECREF(r); /* the stack keeps it */
  return r;
}

void mg_fmodes_leave(void) {
  for (Py_ssize_t n = mg_fmodes_depth(); n > 0; n--) mg_fmodes_insist("_pop_torch_function_stack", NULL);
}

PyObject *mg_fmodes_off(void) { return mg_context_enter(PyObject_CallNoArgs(mg_torch.without_function)); }

PyObject *mg_fmodes_only(void) { return mg_context_enter(PyObject_CallNoArgs(mg_torch.without_subclasses)); }
