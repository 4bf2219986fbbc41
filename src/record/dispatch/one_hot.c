/* one_hot with the number of classes given. */
#include "record/dispatch/one_hot.h"
#include "host/python/hook_mode.h"
#include "host/python/pyobject.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "record/dispatch/raising_ops.h"
#include "record/symbolic/speculation.h"

/* Are all values of x in [0, count)?  As mg_claim says it. */
static int one_hot_claim(PyObject *x, PyObject *count) {
  if (mg_rec->want_fx)
    return !mg_raises_caught(mg_rec); /* shown as one call, which looks itself, after the block's end */
  PyObject *low = PyObject_CallMethod(x, "ge", "i", 0);
  PyObject *high = low ? PyObject_CallMethod(x, "lt", "O", count) : NULL,
           *both = high ? PyObject_CallMethod(low, "logical_and", "O", high) : NULL;
  PyObject *all = both ? PyObject_CallMethod(both, "all", NULL) : NULL;
  int rc =
      all ? mg_claim(mg_rec, all, "Class values must be non-negative and smaller than num_classes.") : -1;
  PyObject *const used[] = {low, high, both, all};
  for (size_t i = 0; i < sizeof used / sizeof *used; i++) Py_XDECREF(used[i]);
  return rc;
}

/* new: 0 and 1 for False and True.  Contiguous, whatever x is: torch writes the ones into zeros. */
static PyObject *one_hot_numbers(PyObject *torch, PyObject *eq) {
  PyObject *dtype = PyObject_GetAttrString(torch, "int64"),
           *format = dtype ? PyObject_GetAttrString(torch, "contiguous_format") : NULL;
  PyObject *to = format ? PyObject_GetAttrString(eq, "to") : NULL, *args = to ? PyTuple_Pack(1, dtype) : NULL,
           *kw = args ? Py_BuildValue("{s:O}", "memory_format", format) : NULL;
  PyObject *r = kw ? PyObject_Call(to, args, kw) : NULL;
  PyObject *const used[] = {dtype, format, to, args, kw};
  for (size_t i = 0; i < sizeof used / sizeof *used; i++) Py_XDECREF(used[i]);
  return r;
}

bool mg_one_hot(PyObject *x, PyObject *count, PyObject **r) {
  if (!mg_standin_check(x) || !PyLong_Check(count) || PyLong_AsLong(count) <= 0) return false;
  int claim = one_hot_claim(x, count);
  *r = NULL;
  if (claim <= 0) return claim < 0;
  PyObject *torch = mg_import("torch"), *dev = torch ? PyObject_GetAttrString(x, "device") : NULL;
  PyObject *kw = dev ? Py_BuildValue("{s:O}", "device", dev) : NULL,
           *arange = kw ? PyObject_GetAttrString(torch, "arange") : NULL;
  PyObject *args = arange ? PyTuple_Pack(1, count) : NULL,
           *all = args ? PyObject_Call(arange, args, kw) : NULL;
  PyObject *col = all ? PyObject_CallMethod(x, "unsqueeze", "i", -1) : NULL;
  PyObject *eq = col ? PyObject_CallMethod(col, "eq", "O", all) : NULL;
  *r = eq ? one_hot_numbers(torch, eq) : NULL;
  PyObject *const used[] = {torch, dev, kw, arange, args, all, col, eq};
  for (size_t i = 0; i < sizeof used / sizeof *used; i++) Py_XDECREF(used[i]);
  return true;
}
