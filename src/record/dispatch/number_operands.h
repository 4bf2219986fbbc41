/* Ops with numbers that the recording computes with among their arguments. */
#ifndef MG_NUMBER_OPERANDS_H
#define MG_NUMBER_OPERANDS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef struct MgCapture MgCapture;
typedef struct MgFrontOp MgFrontOp;

/* Does a call have such an argument where it takes a number, lists included? */
bool mg_symfloat_among(const struct MgFrontOp *fo, PyObject *args, PyObject *kwargs);
/* The call with tensors in their place. */
PyObject *mg_symfloat_dispatch(MgCapture *cap, const struct MgFrontOp *fo, PyObject *args, PyObject *kwargs);
/* An int beside a tensor, where torch would ask for the number: as a 0-dim tensor, when types are promoted as
 * for a number. 1: *a and *b are new references; 0: they stay; -1 with an exception. */
int mg_symfloat_operands(PyObject **a, PyObject **b);
#endif
