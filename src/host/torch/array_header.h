/* Real NumPy arrays as C sees them: what guards compare and where the elements lie.  NumPy's headers are not
 * needed: the first fields of its array objects have been the same since 1.7, and are checked against known
 * arrays before they are used. */
#ifndef MG_ARRAY_HEADER_H
#define MG_ARRAY_HEADER_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct MgNdFacts MgNdFacts; /* dtype, shape, strides and flags of an array */

/* Looks at known arrays of NumPy; where their fields lie otherwise no object is an array here. */
void mg_nd_init(PyObject *numpy);
/* Is o exactly a numpy.ndarray? */
bool mg_nd_is(PyObject *o);
/* torch's number of a dtype object's dtype in native byte order; -1: torch has
 * none.  Exceptions are cleared. */
int mg_nd_torch_dtype(PyObject *dtype);
/* NumPy's name of torch's dtype; NULL: NumPy has none. */
const char *mg_nd_dtype_name(int code);
/* Can a torch.Tensor share its memory?  (writable, aligned, no negative strides, a dtype that torch has) */
bool mg_nd_shareable(PyObject *array);
bool mg_nd_writeable(PyObject *array);
MgNdFacts *mg_nd_facts_new(PyObject *array); /* malloc'ed; NULL when out of memory */
bool mg_nd_facts_hold(const MgNdFacts *f, PyObject *o);
/* The bytes [lo, hi) that the elements span; false when there are none. */
bool mg_nd_extent(PyObject *array, uintptr_t *lo, uintptr_t *hi);
char *mg_nd_data(PyObject *array);
/* ---- constants ---- */

/* numpy.float32 and the like: immutable numbers. */
bool mg_guard_is_numpy_scalar(PyTypeObject *t);
/* 'f' or 'i': a number of one of NumPy's types that a double or int64 holds; 0: anything else. */
char mg_guard_numpy_number(PyObject *o);
#endif
