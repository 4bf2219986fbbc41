/* Items, iteration, membership and identity of objects, with the policy for older ones. */
#ifndef MG_ITEMS_H
#define MG_ITEMS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "record/core/loop.h"

int mg_rec_contains(PyObject *container, PyObject *x);
/* mg_numkey_find of a dict that may be lazy: it is filled where the key is a number that runs compute. */
int mg_rec_find_number(PyObject *dict, PyObject *key, PyObject **same);
PyObject *mg_rec_getitem(PyObject *o, PyObject *key);
int mg_rec_is(PyObject *a, PyObject *b); /* IS_OP, aware of stand-ins and copies */
PyObject *mg_rec_iter(PyObject *o);      /* GET_ITER */
PyObject *
mg_rec_next(PyObject *it); /* FOR_ITER; NULL without error or with StopIteration (a result): exhausted */
int mg_rec_setitem(PyObject *o, PyObject *key, PyObject *v); /* v NULL: delete */
/* C code of CPython itself is about to read o (operators, truth, unpacking, formatting, len): 0, or -1 with a
 * break when o is an older object whose state lives in C.  Callers skip it for exact
 * builtin types and stand-ins. */
int mg_rec_touch(PyObject *o);
/* The same where C code does no more with a mapping than to count its keys or to go over them. */
int mg_rec_touch_keys(PyObject *o);
/* Everything that o yields, as a new list. */
PyObject *mg_loop_list(MgLoop *l, PyObject *o);
/* o with the stand-ins of the arrays in it: an index of a tensor.  New. */
PyObject *mg_array_index(PyObject *o);
/* NULL without an exception: exhausted. */
PyObject *mg_loop_next(MgLoop *l, PyObject *it);
static inline PyObject *loop_iter(MgLoop *l, PyObject *o) {
  return l->rec ? mg_rec_iter(o) : PyObject_GetIter(o);
}
#endif
