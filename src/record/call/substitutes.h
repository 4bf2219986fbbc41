/* Python functions of torch that the recorder does itself. */
#ifndef MG_SUBSTITUTES_H
#define MG_SUBSTITUTES_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

/* Is this one of torch's Python functions that the recorder does itself (substitutes.c)?  self:
 * of a bound method, or NULL. */
bool mg_rec_replaced(PyObject *fn, PyObject *self, PyObject *const *arg, size_t nargsf, PyObject *kwnames,
                     PyObject **out);
#endif
