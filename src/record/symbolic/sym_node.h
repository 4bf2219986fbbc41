/* A number that a recording computes with: shared by number.c and number_operands.c. */
#ifndef MG_SYM_NODE_H
#define MG_SYM_NODE_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* sym_node.c: the protocol of torch.SymInt's nodes. */
extern PyMethodDef mg_symnode_methods[];
PyObject *mg_symnode_getattr(PyObject *o, PyObject *name);
#endif
