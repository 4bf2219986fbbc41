/* The dispatch mode: one ATen op that torch calls becomes one node of the graph. */
#ifndef MG_DISPATCH_H
#define MG_DISPATCH_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "ir/graph/graph.h"

typedef struct MgCapture MgCapture;
typedef struct MgFrontOp MgFrontOp;

/* dispatch.c: records a call of aten::<name>.<overload> ("default" is none). */
PyObject *mg_dispatch_call(MgCapture *cap, const char *name, const char *overload, PyObject *args,
                           PyObject *kwargs);
/* Appends a call of an op of ours whose results are n tensors like these values, each in memory
 * of its own: a list of them. */
PyObject *mg_dispatch_emit(MgCapture *cap, const struct MgFrontOp *fo, PyObject *args, const ValRef *like,
                           uint32_t n, bool grad);
int mg_dispatch_init(PyObject *module);
void mg_dispatch_mode_end(PyObject *mode);      /* detaches it from the capture */
PyObject *mg_dispatch_mode_new(MgCapture *cap); /* an instance of the C mode type */
/* An operator with a derivative of its own runs inside of that, without autograd.  Where autograd tracks its
 * result v all the same, runs that are tracked have to call it as the program did.  -1 with an exception. */
int mg_dispatch_reveal(MgCapture *cap, PyObject *tensor, ValRef v);
/* Gives the results of a recorded view the bits of what they view. */
void mg_lazybits_follow(MgGraph *g, NodeRef n);
/* Marks the results of node n that are.  grad: autograd tracks the op.  -1 with an exception, or a break
 * where torch raises an error. */
int mg_inference_mode_follow(MgCapture *cap, NodeRef n, bool grad);
#endif
