/* The conj and neg bits of tensors: see lazybits.c. */
#ifndef MG_FRONT_LAZYBITS_H
#define MG_FRONT_LAZYBITS_H
#include "front/rec.h"

/* Gives the results of a recorded view the bits of what they view. */
void mg_lazybits_follow(MgGraph *g, NodeRef n);
/* Sets MgVal bits on a tensor.  -1 with an exception. */
int mg_lazybits_set(PyObject *tensor, uint8_t bits);
/* The tensor with its values computed, for NumPy, which knows no bits.  New; NULL with torch's exception where the program did not force it. */
PyObject *mg_lazybits_clear(PyObject *tensor, uint8_t bits, bool force);
/* The array over the memory of a result; a conjugate that has not been computed yet is computed. */
PyObject *mg_lazybits_to_array(PyObject *tensor);
#endif
