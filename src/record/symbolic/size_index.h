/* Subscripts by sizes. */
#ifndef MG_SIZE_INDEX_H
#define MG_SIZE_INDEX_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>

typedef struct MgSymNode MgSymNode;

/* The node of a number that depends on data; NULL: something else. */
MgSymNode *mg_ask_late(PyObject *o);
/* x[key], where the key is such a number, or one from sizes, or a tuple with some: by select(), which does
 * not ask for it; NULL without an exception: something else. */
PyObject *mg_symask_item(PyObject *tensor, PyObject *key);
#endif
