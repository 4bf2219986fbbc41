/* Recurrent networks whose number of steps is a symbol, or large: one operator (magneto._glue.recurrent)
 * instead of a loop over the steps.  Packed sequences, whose sizes depend on data: operators as well. */
#ifndef MG_RECURRENT_H
#define MG_RECURRENT_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef struct MgCapture MgCapture;
/* May packed sequences be recorded?  Where sizes may depend on data and no gradients are recorded. */
bool mg_recurrent_packs(MgCapture *cap);
/* A call f(*arg) of torch's gru, rnn_tanh, rnn_relu or lstm, or of what packs and pads (ACT_recurrent).
 * False: torch's own parts are recorded; else *r is the result (NULL with an exception). */
bool mg_recurrent_call(PyObject *f, PyObject *const *arg, Py_ssize_t n, PyObject **r);
#endif
