/* Answers about numbers that tensors hold between calls: an optimizer's step count, the momentum of a batch norm.
 * A question about a number of the graph (`rho > 5`) ends the graph, unless the number is computed from 0-dim CPU tensors that
 * live in objects of the program by arithmetic alone.  Then each call can compute it before the graph runs, so the answer is guarded like
 * one about a number of Python's.  Tensors that are arguments are data, new at every call: questions about them end the graph. */
#ifndef MG_FRONT_SYMSTATE_H
#define MG_FRONT_SYMSTATE_H
#include "front/symnode.h"

/* What a truth value is in this call, guarded: Py_True or Py_False, borrowed; NULL without an exception: not known. */
PyObject *mg_symstate_answer(MgSymNode *n);
/* The class ('f', 'i') of a calc b, where the numbers themselves decide whether there is an exception, guarded; 0: not known. */
char mg_symstate_kind(MgCapture *cap, int calc, MgSymNode *x, PyObject *a, MgSymNode *y, PyObject *b);
/* Is the source computed from a number in a tensor? */
bool mg_symstate_reads(const MgGuards *g, SrcRef src);
/* Such a guard of an entry failed: notes it in *known; the code's next recordings stop guarding such answers when that has
 * happened often.  -1 with an exception. */
int mg_symstate_learn(PyObject **known);
#endif
