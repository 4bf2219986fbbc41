/* Backward passes inside of a recording: torch's own engine runs on stand-ins, and what it does is recorded
 * like anything else. Here is what surrounds it: `.grad` of older leaves (read, written, guarded), and which
 * results have a gradient graph that is used up. */
#ifndef MG_BACKWARD_PASS_H
#define MG_BACKWARD_PASS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>

typedef struct MgCapture MgCapture;
/* _ImperativeEngine.run_backward(roots, grads, keep_graph, create_graph, inputs,
 * allow_unreachable, accumulate_grad). */
PyObject *mg_backward_run(PyObject *f, PyObject *const *arg, size_t nargsf, PyObject *kwnames);
#endif
