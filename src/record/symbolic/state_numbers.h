/* Answers about numbers that tensors hold between calls: an optimizer's step count, the momentum of a batch
 * norm. A question about a number of the graph (`rho > 5`) ends the graph, unless the number is computed from
 * 0-dim CPU tensors that live in objects of the program by arithmetic alone.  Then each call can compute it
 * before the graph runs, so the answer is guarded like one about a number of Python's.  Sizes may be
 * part of it.  An integer that an op wants as a number is guarded itself.  Tensors that are arguments are
 * data, new at every call: questions about them end the graph. */
#ifndef MG_STATE_NUMBERS_H
#define MG_STATE_NUMBERS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>

typedef struct MgCapture MgCapture;
typedef struct MgGuards MgGuards;
typedef struct MgSymNode MgSymNode;

/* What a truth value or an integer is in this call, guarded; new.  NULL without an exception: not known. */
PyObject *mg_symstate_answer(MgSymNode *n);
/* The class ('f', 'i') of a calc b, where the numbers themselves decide whether there is an
 * exception, guarded; 0: not known. */
char mg_symstate_kind(MgCapture *cap, int calc, MgSymNode *x, PyObject *a, MgSymNode *y, PyObject *b);
#endif
