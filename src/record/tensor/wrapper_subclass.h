/* Tensors that wrap others: classes with a __torch_dispatch__ of their own and
 * __tensor_flatten__/__tensor_unflatten__. What the recording sees of one is another instance of the class,
 * made of stand-ins of its inner tensors.  Its __torch_dispatch__ runs while recording, which tells what
 * comes out of an op (that of the program is recorded, and must have no side effects); the torch-level graph
 * has the op itself, between the outer tensors, and runs it with the program's own: autograd included.
 * Segments with such tensors therefore always have a torch-level graph; it does not run where none of its ops
 * has such a tensor (exec_backend.c). */
#ifndef MG_WRAPPER_SUBCLASS_H
#define MG_WRAPPER_SUBCLASS_H
#include "entry/guard/source_kinds.h"
#include "host/python/hook_mode.h"
#include "host/python/names.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "record/fx/fx_wrappers.h"

int mg_wrapper_init(void);
/* Is o such a tensor, in a recording that knows of some? */
static inline bool mg_wrapper_is(PyObject *o) {
  return mg_rec && mg_rec->cap && mg_rec->cap->wrappers && PyObject_TypeCheck(o, mg_torch.tensor) &&
         !mg_standin_is(o) && mg_wrapper_class(Py_TYPE(o));
}
/* Tensors of this class need a torch-level graph: without one the segment is recorded
 * again.  -1 with an exception. */
int mg_wrapper_begin(MgRec *r, PyTypeObject *t);
PyObject *mg_wrapper_wrap(PyObject *v,
                          SrcRef src); /* what the recording sees of an older one; NULL with a break */
/* Is this op, which the mode is handed, torch's own business?  Then it is the only one. */
bool mg_wrapper_declined(MgCapture *cap);
/* Does a dispatched call have such arguments?  Their class then does it; *res NULL with an exception. */
bool mg_wrapper_dispatch(MgCapture *cap, PyObject *const *a, PyObject *kwargs, PyObject **res);
PyObject *mg_wrapper_getattr(PyObject *o, PyObject *name);
int mg_wrapper_setattr(PyObject *o, PyObject *name); /* -1 with a break, 0: like any other object */
/* Class(*args, **kwargs): one call in the torch-level graph. */
PyObject *mg_wrapper_new(PyTypeObject *t, PyObject *args, PyObject *kwargs);
/* f(), which gives a tensor that is no part of the recording.  New. */
PyObject *mg_wrapper_outside(PyObject *f);
/* Tensors that were seen as different ones have jagged sizes of their own: they must not be the same. */
void mg_wrapper_guard_distinct(MgRec *r);
#endif
