/* Functions of torch that ask about numbers which depend on data: torch._check_is_size,
 * guard_or_false and their like, sym_and. */
#ifndef MG_SIZE_CHECKS_H
#define MG_SIZE_CHECKS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

/* A call of a Python function of torch: true when *r is its result (NULL with an exception). */
bool mg_symask_call(PyObject *fn, PyObject *const *arg, Py_ssize_t npos, PyObject *kwnames, PyObject **r);
#endif
