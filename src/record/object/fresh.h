/* Objects that were made while recording. */
#ifndef MG_FRESH_H
#define MG_FRESH_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

/* Does code of the program run when o (or NULL), which is older than the recording, dies: a __del__, what a
 * generator has left of a try or with block? */
bool mg_end_runs_code(PyObject *o);
/* The same for a class whose __set_name__ or __init_subclass__ C code has called. */
int mg_fresh_class(PyObject *const *slot, PyCodeObject *co);
/* A Python function with this code starts on self: when it is an __init__ that C
 * code has called, self is new. */
void mg_fresh_init(PyObject *self, PyCodeObject *co);
int mg_older_self(PyObject **slot,
                  PyCodeObject *co); /* wraps the first slot of a frame that C code calls where it is an older
                                        object; -1: exception or break */
#endif
