/* Recurrent networks whose number of steps is a symbol, or large: one operator (magneto._glue.recurrent)
 * instead of a loop over the steps. */
#ifndef MG_RECURRENT_H
#define MG_RECURRENT_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

/* A call f(*arg) of torch's gru, rnn_tanh, rnn_relu or lstm (ACT_recurrent).  False: torch's own parts are
 * recorded; else *r is the result (NULL with an exception). */
bool mg_recurrent_call(PyObject *f, PyObject *const *arg, Py_ssize_t n, PyObject **r);
#endif
