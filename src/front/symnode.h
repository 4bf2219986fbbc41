/* A number that a graph computes: shared by symfloat.c, symint.c and symcall.c. */
#ifndef MG_FRONT_SYMNODE_H
#define MG_FRONT_SYMNODE_H
#include "front/rec.h"

typedef struct MgSymNode {
  PyObject_HEAD
  MgCapture *cap;   /* NULL once the recording has ended */
  ValRef val;       /* 0-dim float64, or int64 */
  SrcRef src;       /* an input: where it is read; else 0 */
  bool is_int;
  double bound;     /* of an int: its magnitude is at most this */
  PyObject *hint;   /* the float or int that it is in this run, strong; NULL: depends on values of tensors */
  PyObject *a, *b;  /* nodes that it was computed from, strong or NULL */
} MgSymNode;

typedef struct MgSymInt { /* symint.c's object around a node */
  PyObject_HEAD
  MgSymNode *node;  /* strong */
} MgSymInt;

MgSymNode *mg_symnode_new(MgCapture *cap, ValRef val); /* a float without a hint; new */
/* Compares a number object with another or a plain number; the answer is guarded. */
PyObject *mg_symnode_compare(PyObject *a, PyObject *b, int op);
MgSymNode *mg_symnode_of(PyObject *o);         /* of a node or a number object, borrowed; NULL: something else */
PyObject *mg_symnode_number(MgSymNode *n);     /* the float or int, guarded; NULL with a break when it depends on tensors */
#endif
