/* Objects with tensors in them among the arguments and results of an autograd.Function, for the node of a
 * torch-level graph: the node is given the tensors, magneto._backends.fx_targets makes the
 * objects again from a template. */
#ifndef MG_OBJECT_TEMPLATE_H
#define MG_OBJECT_TEMPLATE_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

/* A value that cannot change, or a tuple of such values. */
bool mg_functree_is_constant(PyObject *o);
/* The template of o, as magneto._backends.fx_targets reads it; its tensors are appended to the list `leaves`.
 * New; NULL with an exception, or without one for an object that cannot be made again. */
PyObject *mg_functree_take(PyObject *o, PyObject *leaves);
#endif
