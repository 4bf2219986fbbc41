/* A number that a recording computes with: shared by symfloat.c and symcall.c. */
#ifndef MG_FRONT_SYMNODE_H
#define MG_FRONT_SYMNODE_H
#include "front/rec.h"

typedef struct MgSymNode {
  PyObject_HEAD
  MgCapture *cap;   /* NULL once the recording has ended */
  SrcRef src;       /* how every run computes it in Python; 0: depends on values of tensors */
  PyObject *hint;   /* with src: the float or int that it is in this run, strong */
  ValRef val;       /* 0-dim float64 or int64 value; 0: not needed by the graph yet (see mg_symnode_val) */
} MgSymNode;

MgSymNode *mg_symnode_of(PyObject *o);         /* of a node or a number object, borrowed; NULL: something else */
PyObject *mg_symnode_number(MgSymNode *n);     /* the number, guarded; NULL with a break when it depends on tensors */
bool mg_symnode_is_int(const MgSymNode *n);
ValRef mg_symnode_val(MgSymNode *n);           /* its value in the graph; 0 with an exception */
#endif
