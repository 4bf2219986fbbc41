/* Generators that a run draws from: saved before it, put back when the run is given up. */
#ifndef MG_RNG_STATE_H
#define MG_RNG_STATE_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* State of torch's random numbers before a run that may be given up, new; NULL with an exception.
 * Back to it; steals state. */
PyObject *mg_claim_save(void);
int mg_claim_restore(PyObject *state);
#endif
