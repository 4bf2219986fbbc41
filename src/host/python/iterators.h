/* What the iterators of CPython's own containers go over, and how far they are. */
#ifndef MG_ITERATORS_H
#define MG_ITERATORS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* How CPython lays out iterators of lists and tuples, reversed and enumerate objects (3.11 to 3.14):
 * where they are, and in what. */
typedef struct IterIndexed {
  PyObject_HEAD Py_ssize_t index;
  PyObject *over; /* NULL: exhausted */
} IterIndexed;

typedef struct IterZip {
  PyObject_HEAD Py_ssize_t n;
  PyObject *iterators; /* a tuple */
  PyObject *result;
  int strict;
} IterZip;

typedef struct IterRange {
  PyObject_HEAD
#if PY_VERSION_HEX < 0x030C0000
      long part[4]; /* index, start, step, length */
#else
      long part[3]; /* start, step, length */
#endif
} IterRange;

typedef enum IterKind { ITER_none, ITER_sequence, ITER_enumerate, ITER_zip, ITER_range } IterKind;
IterKind mg_iter_kind(PyTypeObject *t);
/* What v goes through (a list, a tuple, a tuple of iterators): borrowed; NULL: nothing any more. */
PyObject *mg_iterator_over(PyObject *v);
/* Its own position, an immutable value: new.  NULL without exception: v is no such iterator. */
PyObject *mg_iterator_state(PyObject *v);
int mg_iterator_set(PyObject *v, PyObject *state);
#endif
