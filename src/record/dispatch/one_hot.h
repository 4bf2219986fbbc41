/* one_hot with the number of classes given. */
#ifndef MG_ONE_HOT_H
#define MG_ONE_HOT_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

/* one_hot with the number of classes given: torch's own looks at the values to check their range.  Here each
 * run does, unless a run cannot be given up.  False: torch's own has to be called; else *r is the result
 * (NULL with an exception). */
bool mg_one_hot(PyObject *x, PyObject *count, PyObject **r);
#endif
