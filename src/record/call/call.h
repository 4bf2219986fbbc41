/* A call of the recorded program: what it means, and who does it. */
#ifndef MG_CALL_H
#define MG_CALL_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>

PyObject *mg_rec_call(PyObject *f, PyObject *const *args, size_t nargsf, PyObject *kwnames);
#endif
