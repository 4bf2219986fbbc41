/* See the header. */
#include "record/core/call_args.h"
#include "record/core/c_functions.h"
#include "record/core/capture.h"
#include "record/core/recording.h"

PyObject *mg_call_args(const MgCall *c) {
  PyObject *t = PyTuple_New(c->npos);
  for (Py_ssize_t i = 0; t && i < c->npos; i++) PyTuple_SET_ITEM(t, i, Py_NewRef(c->arg[i]));
  return t;
}

PyObject *mg_call_kwargs(const MgCall *c) {
  PyObject *kw = PyDict_New();
  for (Py_ssize_t i = c->npos; kw && i < c->n; i++)
    if (PyDict_SetItem(kw, PyTuple_GET_ITEM(c->kwnames, i - c->npos), c->arg[i])) Py_CLEAR(kw);
  return kw;
}

PyObject *mg_call_plain(const MgCall *c) { return PyObject_Vectorcall(c->f, c->arg, c->nargsf, c->kwnames); }

PyObject *mg_call_unknown(const MgCall *c) {
  char name[256];
  return mg_rec_break(BK_c_function, "call of %s", mg_policy_name(c->f, name, sizeof name));
}

bool mg_call_has_standin(const MgCall *c) {
  for (Py_ssize_t i = 0; i < c->n; i++)
    if (mg_standin_check(c->arg[i])) return true;
  return false;
}

bool mg_call_by_torch(void) {
  PyObject *globals = PyEval_GetGlobals(), *name = globals ? PyDict_GetItemString(globals, "__name__") : NULL;
  return name && PyUnicode_Check(name) && !strncmp(PyUnicode_AsUTF8(name), "torch.", 6);
}
