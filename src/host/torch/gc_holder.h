/* References of a guard set that the garbage collector sees through. */
#ifndef MG_GC_HOLDER_H
#define MG_GC_HOLDER_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

/* May o be held so?  Parts of models, which guards only compare with, and which
 * often lead back to the model. */
bool mg_guard_may_be_loose(PyObject *o);
/* Holds the items of a list so; new. */
PyObject *mg_guard_loose_new(PyObject *list);
int mg_guard_loose_init(PyObject *module);
#endif
