/* See the header.  Counts are kept under the GIL. */
#include "record/segment/process_state.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"

static PyObject *procstate_compiler; /* torch.compiler */
static int procstate_all;            /* recordings of all threads */
static _Thread_local int procstate_mine;
static bool procstate_gc; /* the collector was on before the first of them */

static int procstate_set_flag(bool on) {
  return PyObject_SetAttr(procstate_compiler, mg_names.compiling_flag, on ? Py_True : Py_False);
}

static void procstate_restore(void) {
  if (procstate_gc) PyGC_Enable();
  procstate_gc = false;
  /* What failed for want of memory is tried again: a program that is told of a compiler
   * for ever goes other ways. */
  for (int i = 0; i < 8 && procstate_set_flag(false); i++) PyErr_Clear(); /* MemoryError: tried again */
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
  Py_RETURN_NONE;
}
static PyMethodDef procstate_fork_def = {"after_fork", procstate_after_fork, METH_NOARGS, NULL};

int mg_procstate_init(PyObject *module) {
  return (procstate_compiler = mg_import("torch.compiler")) ? mg_after_fork(&procstate_fork_def) : -1;
}
