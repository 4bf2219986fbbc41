/* The conj and neg bits of tensors: see conj_neg.c. */
#ifndef MG_CONJ_NEG_H
#define MG_CONJ_NEG_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

/* Sets MgVal bits on a tensor.  -1 with an exception. */
int mg_lazybits_set(PyObject *tensor, uint8_t bits);
/* The tensor with its values computed, for NumPy, which knows no bits.  New; NULL with torch's exception
 * where the program did not force it. */
PyObject *mg_lazybits_clear(PyObject *tensor, uint8_t bits, bool force);
/* The array over the memory of a result; a conjugate that has not been computed yet is computed. */
PyObject *mg_lazybits_to_array(PyObject *tensor);
#endif
