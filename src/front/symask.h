/* Functions of torch that ask about numbers which depend on data: torch._check_is_size, guard_or_false and their like, sym_and. */
#ifndef MG_FRONT_SYMASK_H
#define MG_FRONT_SYMASK_H
#include "front/rec.h"

/* A call of a Python function of torch: true when *r is its result (NULL with an exception). */
bool mg_symask_call(PyObject *fn, PyObject *const *arg, Py_ssize_t npos, PyObject *kwnames, PyObject **r);
/* x[key], where the key is such a number, or one from sizes, or a tuple with some: by select(), which does not ask for it; NULL without an exception: something else. */
PyObject *mg_symask_item(PyObject *tensor, PyObject *key);
#endif
