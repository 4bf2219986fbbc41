/* Calls of NumPy's functions and of methods of arrays. */
#ifndef MG_ARRAY_CALLS_H
#define MG_ARRAY_CALLS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>

typedef struct MgCall MgCall;

/* Calls that concern arrays: functions of NumPy, methods of its classes, functions of torch that are given
 * arrays. 1: *out is the result, or NULL with an exception; 0: not such a call. */
int mg_array_call(const MgCall *c, PyObject **out);
#endif
