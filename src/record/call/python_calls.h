/* Calls of Python functions and of modules while recording. */
#ifndef MG_PYTHON_CALLS_H
#define MG_PYTHON_CALLS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef struct MgCall MgCall;
/* Has the user disabled this Python function?  A break then. */
bool mg_rec_disabled(PyObject *fn);
/* The call c of the Python function fn, which c->f is or is bound to. */
PyObject *mg_call_function(const MgCall *c, PyObject *fn);
/* The call c as it is, which ends in the frame of the Python function fn; NULL: not known which. */
PyObject *mg_call_frame(const MgCall *c, PyObject *fn);
/* nn.Module.__call__.  1: *out is the result; 0: it has to be called like any object; -1 with an exception.
 */
int mg_call_module(const MgCall *c, PyObject **out);
#endif
