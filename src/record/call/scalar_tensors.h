/* Calls in which numbers stand where torch wants tensors. */
#ifndef MG_SCALAR_TENSORS_H
#define MG_SCALAR_TENSORS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef struct MgCall MgCall;

bool mg_call_number_tensors(const MgCall *c,
                            PyObject **r); /* scalar_tensors.c; false: it is another kind of call */
#endif
