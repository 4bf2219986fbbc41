/* Methods and attributes of stand-ins that are not torch's own. */
#ifndef MG_TENSOR_METHODS_H
#define MG_TENSOR_METHODS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>

typedef struct MgCapture MgCapture;
/* Adds the overriding methods and attributes to the stand-in type.  -1 with an exception. */
int mg_standin_methods_init(PyObject *module);
#endif
