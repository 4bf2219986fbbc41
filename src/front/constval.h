/* Tensors whose values are known while recording: torch.tensor([1, 2]) in the program, as long as nothing has written to it. */
#ifndef MG_FRONT_CONSTVAL_H
#define MG_FRONT_CONSTVAL_H
#include "front/standin.h"

/* The real tensor with the value of v, borrowed; NULL: not known. */
PyObject *mg_constval(MgCapture *cap, ValRef v);
/* aten::_local_scalar_dense and the like of a tensor that is known: its answer.  NULL without exception: not known. */
PyObject *mg_constval_call(MgCapture *cap, PyObject *func, PyObject *args);
/* The arguments of aten::index with known masks turned into positions.  NULL without exception: a mask is not known. */
PyObject *mg_constval_index(MgCapture *cap, PyObject *args);
/* The value of v, which is not known, is asked for: where it is computed of sizes alone, cap->sizes.value_asked is set. */
void mg_constval_unknown(MgCapture *cap, ValRef v);
#endif
