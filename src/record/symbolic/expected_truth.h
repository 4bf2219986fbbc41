/* What a program expects of its numbers: that they are finite.  Answers to questions such as
 * `torch.isnan(loss)` or a gradient scaler's "was there an infinity" are as good as known, and can
 * be claimed (speculation.h). */
#ifndef MG_EXPECTED_TRUTH_H
#define MG_EXPECTED_TRUTH_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef struct MgCapture MgCapture;

/* 1: *yes is the expected truth of a tensor or number of the recording; 0: nothing is expected of
 * it; -1 with an exception. */
int mg_expect_truth(MgCapture *cap, PyObject *condition, bool *yes);
#endif
