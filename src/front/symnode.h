/* A number that a recording computes with: shared by symfloat.c and symcall.c. */
#ifndef MG_FRONT_SYMNODE_H
#define MG_FRONT_SYMNODE_H
#include "front/rec.h"

typedef struct MgSymNode {
  PyObject_HEAD
  MgCapture *cap;   /* NULL once the recording has ended */
  SrcRef src;       /* how every run computes it in Python; 0: depends on values of tensors */
  PyObject *hint;   /* the float, int or answer that it is in this run, strong; without src: a constant; NULL: depends on tensors */
  ValRef val;       /* 0-dim float64 or int64 value; 0: not needed by the graph yet (see mg_symnode_val) */
  char kind;        /* 'f' float, 'i' int, 'b' bool */
  uint8_t calc;     /* without src and row: the MgCalc of its operands */
  uint32_t at;      /* element of row */
  ValRef row;       /* value of the graph that the number is an element of; 0: computed from operands (symvalue.c) */
  struct MgSymNode *left, *right; /* operands that are numbers; they live as long as the recording */
  PyObject *constant; /* the other operand, strong */
  int32_t dim;      /* row's size of that dimension + 1, not an element; 0: an element */
  SymRef size;      /* what it is as a size, when it depends on data and was used as one; 0: not known */
} MgSymNode;

/* hint is stolen, NULL for numbers that depend on tensors. */
MgSymNode *mg_symnode_new(MgCapture *cap, SrcRef src, PyObject *hint);
MgSymNode *mg_symnode_of(PyObject *o);         /* of a node or a number object, borrowed; NULL: something else */
PyObject *mg_symnode_number(MgSymNode *n);     /* the number, guarded; NULL with a break when it depends on tensors */
PyObject *mg_symnode_python(MgSymNode *n);     /* the same as an object of Python's own classes, for C++ */
void mg_symnode_expect(MgCapture *cap, SrcRef src, PyObject *want); /* guards what it is */
MgSymNode *mg_symnode_value(MgCapture *cap, char kind); /* new, for symvalue.c to fill; NULL with an exception */
PyObject *mg_symfloat_of(MgSymNode *n);        /* the number object of a node, which is stolen; NULL stays NULL */
static inline bool mg_symnode_is_int(const MgSymNode *n) { return n->kind == 'i'; }
ValRef mg_symnode_val(MgSymNode *n);           /* its value in the graph; 0 with an exception */
/* What the arithmetic of number objects gives (MgCalc; b NULL for unary ones): a number object, or an answer.  New. */
PyObject *mg_symfloat_compute(PyObject *a, PyObject *b, int calc);
/* symnode.c: the protocol of torch.SymInt's nodes. */
extern PyMethodDef mg_symnode_methods[];
PyObject *mg_symnode_getattr(PyObject *o, PyObject *name);
#endif
