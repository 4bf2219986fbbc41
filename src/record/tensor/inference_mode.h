/* Inference tensors: what ops make while inference mode is on.  Stand-ins never are such
 * tensors; see inference_mode.c. */
#ifndef MG_INFERENCE_MODE_H
#define MG_INFERENCE_MODE_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "ir/graph/graph.h"

typedef struct MgCapture MgCapture;
typedef struct MgRec MgRec;
/* Does a value stand for an inference tensor? */
bool mg_inference_mode_of(const MgCapture *cap, ValRef v);
/* Marks an input that is one.  -1 with an exception. */
int mg_inference_mode_input(MgCapture *cap, PyObject *tensor, ValRef v);
int mg_inference_mode_mark(MgCapture *cap, ValRef v);
#endif
