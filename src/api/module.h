/* Parts of the Python module; each adds its functions and types.  0, or -1 with an exception. */
#ifndef MG_API_MODULE_H
#define MG_API_MODULE_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>

int mg_graphobj_init(PyObject *module); /* Graph: compile and run a graph text (tests) */
#endif
