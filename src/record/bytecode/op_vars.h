/* Reading and writing variables of a recorded frame: locals, cells, globals, names. */
#ifndef MG_OP_VARS_H
#define MG_OP_VARS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* COPY_FREE_VARS while inlining: the cell that the frame must see for free variable i of func. */
PyObject *mg_rec_closure_cell(PyObject *func, int i);
/* Function entry while inlining, before its first instruction: wraps argument defaults (already bound to
 * slots) that come from outside the recording. */
int mg_rec_enter_function(PyObject *func, PyObject **slots, PyCodeObject *co);
#endif
