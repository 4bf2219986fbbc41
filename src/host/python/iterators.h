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

/* Of a dict's keys, values or items, forward or reversed. */
typedef struct IterDict {
  PyObject_HEAD PyObject *dict; /* NULL: exhausted */
  Py_ssize_t used;              /* the dict's size when the iterator was made; another size now is an error */
  Py_ssize_t at;
  PyObject *result;
  Py_ssize_t left; /* what __length_hint__ says */
} IterDict;

typedef enum IterKind { ITER_none, ITER_sequence, ITER_enumerate, ITER_zip, ITER_range } IterKind;
IterKind mg_iter_kind(PyTypeObject *t);
/* What v goes through (a list, a tuple, a tuple of iterators): borrowed; NULL: nothing any more. */
PyObject *mg_iterator_over(PyObject *v);
/* Its own position, an immutable value: new.  NULL without exception: v is no such iterator. */
PyObject *mg_iterator_state(PyObject *v);
int mg_iterator_set(PyObject *v, PyObject *state);

/* How iterators of this class are made: by a method of a view of the dict. */
typedef struct MgDictIterKind {
  PyTypeObject *type, *view_type;
  const char *view; /* "keys", "values" or "items" */
  const char *method;
} MgDictIterKind;

/* NULL: v is no iterator of a dict. */
const MgDictIterKind *mg_dict_iterator(PyObject *v);
/* Items that v has given already, of those that its dict has now.  -1 with an exception, of which one is that
 * the dict has changed its size. */
Py_ssize_t mg_dict_iterator_given(PyObject *v);
/* Puts v, a new or used iterator of a dict, behind the first n items that the dict has now. */
int mg_dict_iterator_skip(PyObject *v, Py_ssize_t n);
#endif
