/* See the header.  Counts are kept under the GIL. */
#include "front/procstate.h"
#include "front/hook.h"
#include "front/names.h"

static PyObject *procstate_compiler;     /* torch.compiler */
static int procstate_all;                /* recordings of all threads */
static _Thread_local int procstate_mine;
static bool procstate_gc;                /* the collector was on before the first of them */

static int procstate_set_flag(bool on) { return PyObject_SetAttr(procstate_compiler, mg_names.compiling_flag, on ? Py_True : Py_False); }

static void procstate_restore(void) {
  if (procstate_gc) PyGC_Enable();
  procstate_gc = false;
  /* What failed for want of memory is tried again: a program that is told of a compiler for ever goes other ways. */
  for (int i = 0; i < 8 && procstate_set_flag(false); i++) PyErr_Clear();
}

int mg_procstate_begin(bool compiling) {
  procstate_all++;
  procstate_mine++;
  if (PyGC_Disable()) procstate_gc = true;
  return procstate_set_flag(compiling);
}

void mg_procstate_end(void) {
  procstate_mine--;
  if (!--procstate_all) procstate_restore();
}

/* The threads that recorded in the parent are gone. */
static PyObject *procstate_after_fork(PyObject *self, PyObject *unused) {
  if (procstate_all && !procstate_mine) procstate_restore();
  procstate_all = procstate_mine;
  mg_hook_after_fork();
  Py_RETURN_NONE;
}
static PyMethodDef procstate_fork_def = {"after_fork", procstate_after_fork, METH_NOARGS, NULL};

int mg_procstate_init(PyObject *module) {
  if (!(procstate_compiler = mg_import("torch.compiler"))) return -1;
  PyObject *os = mg_import("os"), *watch = os ? PyObject_GetAttrString(os, "register_at_fork") : NULL;
  PyObject *f = watch ? PyCFunction_New(&procstate_fork_def, NULL) : NULL;
  PyObject *none = f ? PyTuple_New(0) : NULL, *kw = none ? Py_BuildValue("{s:O}", "after_in_child", f) : NULL;
  PyObject *r = kw ? PyObject_Call(watch, none, kw) : NULL;
  Py_XDECREF(os);
  Py_XDECREF(watch);
  Py_XDECREF(f);
  Py_XDECREF(none);
  Py_XDECREF(kw);
  Py_XDECREF(r);
  return r ? 0 : -1;
}
