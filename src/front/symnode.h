/* A number that a graph computes: shared by symfloat.c and symcall.c. */
#ifndef MG_FRONT_SYMNODE_H
#define MG_FRONT_SYMNODE_H
#include "front/rec.h"

typedef struct MgSymNode {
  PyObject_HEAD
  MgCapture *cap;   /* NULL once the recording has ended */
  ValRef val;       /* 0-dim float64 */
  SrcRef src;       /* an input: where it is read; else 0 */
  PyObject *hint;   /* the float that it is in this run, strong; NULL: depends on values of tensors */
  PyObject *a, *b;  /* nodes that it was computed from, strong or NULL */
} MgSymNode;

MgSymNode *mg_symnode_of(PyObject *o);         /* of a node or a number object, borrowed; NULL: something else */
PyObject *mg_symnode_number(MgSymNode *n);     /* the float, guarded; NULL with a break when it depends on tensors */
#endif
