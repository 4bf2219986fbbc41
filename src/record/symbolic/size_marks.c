/* See the header.  In: attributes that torch's functions leave on tensors, names of sources.  Out: marks. */
#include "record/symbolic/size_marks.h"
#include "host/python/pyobject.h"
#include "record/symbolic/dynamic_sources.h"

static bool mark_in(PyObject *dict, const char *name, PyObject *dim) {
  PyObject *set = PyDict_GetItemString(dict, name);
  int has = set && PyAnySet_Check(set) ? PySet_Contains(set, dim) : 0;
  mg_clear_as_no();
  return has > 0;
}

static void mark_bound(PyObject *v, int64_t *to) {
  int over = 0;
  int64_t n = v && PyLong_Check(v) ? PyLong_AsLongLongAndOverflow(v, &over) : 0;
  if (v && PyLong_Check(v) && !over) *to = n;
}

/* Bounds that mark_dynamic(t, dim, min=, max=) has left: a set of records with these attributes. */
static void mark_bounds(PyObject *dict, PyObject *dim, int64_t *lo, int64_t *hi) {
  PyObject *set = PyDict_GetItemString(dict, "_dynamo_dynamic_range"),
           *it = set && PyAnySet_Check(set) ? PyObject_GetIter(set) : NULL, *r;
  while (it && (r = PyIter_Next(it))) {
    PyObject *d = PyObject_GetAttrString(r, "dim"), *a = PyObject_GetAttrString(r, "min"),
             *b = PyObject_GetAttrString(r, "max");
    if (d && a && b && PyObject_RichCompareBool(d, dim, Py_EQ) == 1) {
      mark_bound(a, lo);
      mark_bound(b, hi);
    }
    Py_XDECREF(d);
    Py_XDECREF(a);
    Py_XDECREF(b);
    Py_DECREF(r);
  }
  Py_XDECREF(it);
  mg_clear_as_no();
}

MgSizeMark mg_symmark_dim(PyObject *tensor, SrcRef src, int k, int64_t *lo, int64_t *hi) {
  PyObject **d = _PyObject_GetDictPtr(tensor),
           *dim = d && *d && PyDict_GET_SIZE(*d) ? PyLong_FromLong(k) : NULL;
  MgSizeMark mark = mg_dynfloat_listed(src, true)    ? MARK_free
                    : mg_dynfloat_listed(src, false) ? MARK_dynamic
                                                     : MARK_none;
  if (!dim) return mark;
  if (mark_in(*d, "_dynamo_static_indices", dim)) mark = MARK_static;
  if (mark_in(*d, "_dynamo_weak_dynamic_indices", dim)) mark = MARK_dynamic;
  if (mark_in(*d, "_dynamo_dynamic_indices", dim)) mark = MARK_must;
  if (mark_in(*d, "_dynamo_unbacked_indices", dim) || mark_in(*d, "_dynamo_strict_unbacked_indices", dim))
    mark = MARK_free;
  if (mark == MARK_must) mark_bounds(*d, dim, lo, hi);
  Py_DECREF(dim);
  return mark;
}
