/* Tensors that wrap others: what one holds. */
#ifndef MG_FLATTEN_H
#define MG_FLATTEN_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

extern PyObject *mg_wrapper_flatten, *wrapper_unflatten, *wrapper_compare;
/* (names as a tuple, metadata); new. */
PyObject *mg_wrapper_flat(PyObject *o);
/* o.size() or o.stride() with None for what is no plain number: new. */
PyObject *mg_wrapper_sizes(PyObject *o, const char *method);
/* The guard's check: (names, metadata, function that compares metadata or None, sizes, strides) as the tensor
 * says now?  Sizes and strides of tensors with a jagged dimension are None. */
bool mg_wrapper_holds(PyObject *o, PyObject *want);
#endif
