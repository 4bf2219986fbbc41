/* Backward passes inside of a recording: torch's own engine runs on stand-ins, and what it does is recorded like anything else.
 * Here is what surrounds it: `.grad` of older leaves (read, written, guarded), and which results have a gradient graph that is
 * used up. */
#ifndef MG_FRONT_BACKWARD_H
#define MG_FRONT_BACKWARD_H
#include "front/standin.h"

/* Gives the stand-in of an older leaf the `.grad` that the leaf has, guarded.  Nothing happens the second time, and for
 * tensors that the recording made.  -1 with a break or exception. */
int mg_backward_load_grad(PyObject *standin);
/* `.grad` is about to be assigned: what it was does not matter.  -1 with a break. */
int mg_backward_forget_grad(PyObject *standin);
/* The `.grad` that the older leaf must have at the end: 1 and *grad (new; Py_None: none), 0 when it is as before, -1. */
int mg_backward_final_grad(PyObject *standin, PyObject **grad);
/* The `.grad` of a tensor that the recording made, unless it is the result of a differentiable operation: new; NULL: none. */
PyObject *mg_backward_assigned_grad(PyObject *standin);
/* _ImperativeEngine.run_backward(roots, grads, keep_graph, create_graph, inputs, allow_unreachable, accumulate_grad). */
PyObject *mg_backward_run(PyObject *f, PyObject *const *arg, size_t nargsf, PyObject *kwnames);
/* Would a backward pass from this value reach a gradient graph that a recorded backward pass has freed? */
bool mg_backward_is_spent(const MgCapture *cap, ValRef v);
/* Makes a fresh result require grad; its backward raises what torch raises for a freed graph.  Steals t; NULL with an exception. */
PyObject *mg_backward_spent_result(PyObject *t);
/* `.grad` of a real tensor: borrowed from it, Py_None when it has none.  NULL with an exception. */
PyObject *mg_backward_grad_of(PyObject *tensor);
#endif
