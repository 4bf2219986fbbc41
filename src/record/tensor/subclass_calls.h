/* Making tensors of classes of the program. */
#ifndef MG_SUBCLASS_CALLS_H
#define MG_SUBCLASS_CALLS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>

typedef struct MgCall MgCall;

PyObject *mg_call_as_subclass(const MgCall *c);   /* x.as_subclass(Class) */
PyObject *mg_call_make_subclass(const MgCall *c); /* Tensor._make_subclass(Class, x, requires_grad) */
PyObject *mg_call_tensor_class(const MgCall *c);  /* Class(...) */
PyObject *mg_call_tensor_new(const MgCall *c);    /* TensorBase.__new__(Class, x) */
#endif
