/* NumPy arrays while recording.  What the recording sees in place of an array is an object with two halves: a
 * model, which is a real NumPy array (or scalar) of the same dtype, shape and strides with values of no
 * meaning, and a stand-in tensor that shares the array's memory.  Every operation is done twice: NumPy does
 * it on the models, and says what comes out (an array or a scalar, dtype, shape, a view or a copy, an
 * exception); torch._numpy does it on the tensors, and so it becomes part of the graph.  Where the two
 * disagree about anything but values, the graph breaks. */
#ifndef MG_ARRAY_OPS_H
#define MG_ARRAY_OPS_H
#include "entry/guard/source_kinds.h"

typedef struct MgArrayOp MgArrayOp;

/* An older array, or one that each run draws (host_random.h): a graph input.  NULL with an exception, or
 * without one: of a kind that no tensor can share memory with. */
PyObject *mg_array_wrap(PyObject *array, SrcRef src);
/* What tensor.numpy() gives for a stand-in. */
PyObject *mg_array_of_tensor(PyObject *standin, bool force);
PyObject *mg_array_apply(const MgArrayOp *op, PyObject *args, PyObject *kw); /* kw may be NULL */
#endif
