/* What mark_dynamic() promised: a size that keeps more than one value.  mg_symsize_promises (sizes.h)
 * raises where one does not. */
#ifndef MG_SIZE_PROMISES_H
#define MG_SIZE_PROMISES_H
#include "ir/expr/expr.h"

typedef struct MgCapture MgCapture;
typedef struct MgSymNode MgSymNode;
/* The recording holds only where a == b.  Notes the marked size that this leaves one value. */
void mg_promise_equal(MgCapture *cap, SymRef a, SymRef b);
/* The program, or torch, took the number itself. */
void mg_promise_number(MgSymNode *n);
/* The program was told whether `x calc y` holds (MgCalc).  A NULL node: the operand is the plain number k. */
void mg_promise_answered(MgCapture *cap, int calc, MgSymNode *x, MgSymNode *y, PyObject *k, bool yes);
#endif
