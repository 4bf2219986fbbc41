/* Generators that a run draws from: saved before it, put back when the run is given up. */
#include "entry/launch/rng_state.h"
#include "host/python/pyobject.h"

static PyObject *claim_state(const char *name, PyObject *arg) {
  PyObject *torch = mg_import("torch"), *fn = torch ? PyObject_GetAttrString(torch, name) : NULL;
  PyObject *r = fn ? PyObject_CallFunctionObjArgs(fn, arg, NULL) : NULL;
  Py_XDECREF(fn);
  Py_XDECREF(torch);
  return r;
}

PyObject *mg_claim_save(void) { return claim_state("get_rng_state", NULL); }

int mg_claim_restore(PyObject *state) {
  PyObject *r = claim_state("set_rng_state", state);
  Py_XDECREF(r);
  Py_DECREF(state);
  return r ? 0 : -1;
}
