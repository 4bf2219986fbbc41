/* Tensors whose values are known while recording: torch.tensor([1, 2]) in the program, as long as
 * nothing has written to it. */
#ifndef MG_CONSTANT_TENSORS_H
#define MG_CONSTANT_TENSORS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "ir/graph/graph.h"

typedef struct MgRec MgRec;

typedef struct MgCapture MgCapture;

/* The real tensor with the value of v, borrowed; NULL: not known. */
PyObject *mg_constval(MgCapture *cap, ValRef v);
/* aten::_local_scalar_dense and the like of a tensor that is known: its answer.  NULL
 * without exception: not known. */
PyObject *mg_constval_call(MgCapture *cap, PyObject *func, PyObject *args);
/* The arguments of aten::index with known masks turned into positions.  NULL without
 * exception: a mask is not known. */
PyObject *mg_constval_index(MgCapture *cap, PyObject *args);
/* A real tensor with the value of v, where that is computed of constants and of small tensors of integers
 * from outside: their numbers are guarded.  New; NULL without an exception: it is not. */
PyObject *mg_constval_contents(MgCapture *cap, ValRef v);
/* The value of v, which is not known, is asked for: where it is computed of sizes alone,
 * cap->sizes.value_asked is set. */
void mg_constval_unknown(MgCapture *cap, ValRef v);
/* Computes what value v is in this run, of the real inputs; the modes of the recording are to be off.  New;
 * NULL, without an exception when it cannot be told: random numbers, or after a write. */
PyObject *mg_noderun_value(MgRec *r, ValRef v);
#endif
