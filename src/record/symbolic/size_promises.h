/* What mark_dynamic() promised: a size that keeps more than one value.  mg_symsize_promises (sizes.h)
 * raises where one does not. */
#ifndef MG_SIZE_PROMISES_H
#define MG_SIZE_PROMISES_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include "ir/expr/expr.h"

typedef struct MgCapture MgCapture;
/* The recording holds only where a == b.  Notes the marked size that this leaves one value. */
void mg_promise_equal(MgCapture *cap, SymRef a, SymRef b);
bool mg_promise_any(const MgCapture *cap); /* is a size marked at all? */
/* The program, or torch, took the number itself.  e: as a size; 0: it is none. */
void mg_promise_number(MgCapture *cap, SymRef e);
/* The program was told whether `a calc b` holds (MgCalc).  0: the operand is the plain number k. */
void mg_promise_answered(MgCapture *cap, int calc, SymRef a, SymRef b, PyObject *k, bool yes);
#endif
