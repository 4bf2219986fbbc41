/* Inference tensors: what ops make while inference mode is on.  Stand-ins never are such tensors; see inference_mode.c. */
#ifndef MG_FRONT_INFERENCE_MODE_H
#define MG_FRONT_INFERENCE_MODE_H
#include "front/standin.h"

bool mg_inference_mode_on(void); /* now */
/* Does a value stand for an inference tensor? */
bool mg_inference_mode_of(const MgCapture *cap, ValRef v);
/* Marks an input that is one.  -1 with an exception. */
int mg_inference_mode_input(MgCapture *cap, PyObject *tensor, ValRef v);
/* Marks the results of node n that are.  grad: autograd tracks the op.  -1 with an exception, or a break where torch raises an error. */
int mg_inference_mode_follow(MgCapture *cap, NodeRef n, bool grad);
/* By output: 1 + whether it has to be an inference tensor, 0 where a run makes what the program has to get; malloc'ed, NULL: all are 0.
 * -1 with an exception. */
int mg_inference_mode_outputs(const MgRec *r, uint8_t **want);
/* Another tensor over the same memory where out is of the wrong kind.  Steals out; NULL with an exception. */
PyObject *mg_inference_mode_remake(PyObject *out, bool inference);
#endif
