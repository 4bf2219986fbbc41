/* What `.grad` of a leaf is while recording. */
#ifndef MG_LEAF_GRAD_H
#define MG_LEAF_GRAD_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "ir/graph/graph.h"

typedef struct MgCapInput MgCapInput;
typedef struct MgCapture MgCapture;

typedef struct Spend { /* walk over what a gradient graph consists of */
  MgCapture *cap;
  MgGraph *g;
  ValRef *todo;
  uint32_t n;
  bool *seen;      /* by value */
  bool outer, hit; /* met: an input with a graph of its own; a value that is spent */
} Spend;
/* The input behind a stand-in whose `.grad` is state from outside; NULL: its
 * `.grad` is the recording's own. */
MgCapInput *mg_backward_input(PyObject *standin);
int mg_spend_walk(Spend *s, ValRef root);
void mg_spend_free(Spend *s);
/* Gives the stand-in of an older leaf the `.grad` that the leaf has, guarded.  Nothing happens the second
 * time, and for tensors that the recording made.  -1 with a break or exception. */
int mg_backward_load_grad(PyObject *standin);
/* `.grad` is about to be assigned: what it was does not matter.  -1 with a break. */
int mg_backward_forget_grad(PyObject *standin);
/* The `.grad` that the older leaf must have at the end: 1 and *grad (new; Py_None: none), 0
 * when it is as before, -1. */
int mg_backward_final_grad(PyObject *standin, PyObject **grad);
/* The `.grad` of a tensor that the recording made, unless it is the result of a differentiable
 * operation: new; NULL: none. */
PyObject *mg_backward_assigned_grad(PyObject *standin);
/* Would a backward pass from this value reach a gradient graph that a recorded backward pass has freed? */
bool mg_backward_is_spent(const MgCapture *cap, ValRef v);
#endif
