/* Kernels of the program that ask for a new size that depends on data. */
#ifndef MG_META_NEW_SIZE_H
#define MG_META_NEW_SIZE_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>

typedef struct MgOp MgOp;
typedef struct MgRec MgRec;

/* The kernel that the program registered, after torch's way of calling it raised: its result (new) when all
 * it lacked was somebody to ask for sizes; else NULL and the exception stays (meta_new_size.c). */
PyObject *mg_metafake_call(MgRec *r, const MgOp *op, PyObject *args, PyObject *kw);
#endif
