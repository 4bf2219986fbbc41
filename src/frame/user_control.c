/* What users steer compilation with from inside of a program: graph_break() and disable().
 * In: calls from Python.  Out: a break of the recording, or a call that neither records nor compiles. */
#include "host/python/decode.h"
#include "host/python/hook_mode.h"
#include "host/python/pyframe.h"
#include "record/core/recording.h"

static PyObject *control_graph_break(PyObject *self, PyObject *args) {
  const char *why = "graph_break()";
  if (!PyArg_ParseTuple(args, "|s:graph_break", &why)) return NULL;
  if (mg_rec) return mg_rec_break(BK_user, "%s", why);
  Py_RETURN_NONE;
}

static PyObject *control_call_uncompiled(PyObject *self, PyObject *args) {
  PyObject *fn, *pos, *kw;
  if (!PyArg_ParseTuple(args, "OO!O!", &fn, &PyTuple_Type, &pos, &PyDict_Type, &kw)) return NULL;
  MgPause pause = mg_rec_pause();
  PyObject *r = PyObject_Call(fn, pos, kw);
  mg_rec_resume(pause);
  return r;
}

static PyObject *control_call_holding(PyObject *self, PyObject *args) {
  int hold;
  PyObject *fn, *pos, *kw;
  if (!PyArg_ParseTuple(args, "pOO!O!", &hold, &fn, &PyTuple_Type, &pos, &PyDict_Type, &kw)) return NULL;
  bool before = mg_pyframe_hold_signals(PyThreadState_Get(), hold);
  PyObject *r = PyObject_Call(fn, pos, kw);
  mg_pyframe_hold_signals(PyThreadState_Get(), before);
  return r;
}

static PyObject *control_bytecode(PyObject *self, PyObject *arg) {
  long native = PyLong_AsLong(arg);
  if (native == -1 && PyErr_Occurred()) return NULL;
  const char *name = mg_decode_native((int)native);
  return Py_BuildValue("z", name);
}

static PyMethodDef control_methods[] = {
    {"graph_break", control_graph_break, METH_VARARGS,
     "graph_break(reason='graph_break()', /)\n--\n\nEnds the current graph here; does nothing outside of "
     "compiled functions.\n\n"
     "Arguments:\n    reason: what explain() shows as the reason of the break.\n\nReturns:\n    None.\n\n"
     "Raises:\n    RuntimeError: in a function that is compiled with fullgraph=True.\n\n"
     "Example:\n    >>> import magneto\n    >>> magneto.graph_break()"},
    {"call_uncompiled", control_call_uncompiled, METH_VARARGS,
     "call_uncompiled(fn, args, kwargs, /): calls fn with recording and compiling off, all the way down."},
    {"call_holding", control_call_holding, METH_VARARGS,
     "call_holding(hold, fn, args, kwargs, /): calls fn while handlers of signals wait, or while they do "
     "not."},
    {"bytecode", control_bytecode, METH_O,
     "bytecode(number, /): what the recorder calls this instruction of CPython; None: CPython executes it."},
    {NULL, NULL, 0, NULL}};

/* {name: hint} of every break reason. */
static PyObject *control_hints(void) {
  PyObject *d = PyDict_New();
  for (int i = 0; d && i < BK__COUNT; i++) {
    PyObject *hint = PyUnicode_FromString(mg_break_hint((MgBreakCode)i));
    if (!hint || PyDict_SetItemString(d, mg_break_name((MgBreakCode)i), hint)) Py_CLEAR(d);
    Py_XDECREF(hint);
  }
  return d;
}

int mg_control_init(PyObject *module) {
  PyObject *hints = control_hints();
  int rc = hints ? PyModule_AddObjectRef(module, "break_hints", hints) : -1;
  Py_XDECREF(hints);
  return rc ? rc : PyModule_AddFunctions(module, control_methods);
}
