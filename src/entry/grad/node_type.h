/* Classes of gradient nodes, as PyTorch's C++ uses them: subclasses of torch._C._FunctionBase.
 * In: a name, the base, a class body.  Out: a class whose attributes C++ finds without a new str.
 * C++ asks a class or a node for five attributes by C strings in each forward, and for one in each backward.
 * CPython makes a str of each and looks through all bases, because its cache only knows interned names.
 * Types that fill tp_getattr get the C string itself. */
#ifndef MG_NODE_TYPE_H
#define MG_NODE_TYPE_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* The class that a forward is applied through, or that of the nodes: type(name, (base,), body).  Steals body,
 * which may be NULL with an exception.  New. */
PyObject *mg_nodetype_forward(const char *name, PyObject *base, PyObject *body);
PyObject *mg_nodetype_backward(const char *name, PyObject *base, PyObject *body);
/* Where a slot of the class lies.  Its descriptor is removed: the slot is C's alone, deallocation still
 * clears it.  -1 with an exception. */
int mg_nodetype_slot(PyObject *type, const char *name, Py_ssize_t *at);
int mg_nodetype_init(void); /* -1 with an exception */
#endif
