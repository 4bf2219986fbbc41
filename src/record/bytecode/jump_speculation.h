/* Answers taken for granted because the other way only raises. */
#ifndef MG_JUMP_SPECULATION_H
#define MG_JUMP_SPECULATION_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef struct MgInstr MgInstr;

typedef struct MgLoop MgLoop;

/* The condition of a jump that is taken when its truth is `taken`: 1: its truth is *yes; 0: ask
 * it; -1 with an exception. */
int mg_claim_truth(MgLoop *l, const MgInstr *in, PyObject *condition, bool taken, bool *yes);
#endif
