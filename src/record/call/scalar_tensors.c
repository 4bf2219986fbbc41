/* Ops of torch that are given a 0-dim tensor for a number.  C++ would ask for its value.
 * In: calls of such ops.  Out: the same, spelled with tensors. */
#include "record/call/scalar_tensors.h"
#include "host/python/hook_mode.h"
#include "host/python/pyobject.h"
#include "record/core/c_functions.h"
#include "record/core/call_args.h"
#include "record/core/capture.h"
#include "record/core/recording.h"

/* Such tensors are accepted for numbers; one that requires grad is not. */
static bool numbers_stands_for_one(PyObject *o) {
  if (!mg_standin_is(o)) return false;
  const MgGraph *g = mg_rec->g;
  ValRef val = mg_standin_val(o);
  PyObject *grad = val && !mg_val(g, val)->ndim ? PyObject_GetAttrString(o, "requires_grad") : NULL;
  mg_clear_as_no();
  Py_XDECREF(grad);
  return grad == Py_False;
}

/* x + value * a * b (or / b), in ATen's order. */
static PyObject *numbers_addc(PyObject *x, PyObject *a, PyObject *b, PyObject *value, const char *name) {
  bool div = !strncmp(name, "addcdiv", 7), in_place = name[strlen(name) - 1] == '_';
  PyObject *scaled = PyObject_CallMethod(value, "mul", "O", a);
  PyObject *change = scaled ? PyObject_CallMethod(scaled, div ? "div" : "mul", "O", b) : NULL;
  PyObject *r = change ? PyObject_CallMethod(x, in_place ? "add_" : "add", "O", change) : NULL;
  Py_XDECREF(scaled);
  Py_XDECREF(change);
  return r;
}

/* A foreach op with one number for all: item by item.  more: the second list, or NULL. */
static PyObject *numbers_foreach(const MgCall *c, const char *method, PyObject *list, PyObject *more,
                                 PyObject *number) {
  bool in_place = method[strlen(method) - 1] == '_', base = list == c->arg[1];
  PyObject *items = PySequence_Tuple(list), *with = more ? PySequence_Tuple(more) : NULL, *all = NULL;
  Py_ssize_t n = items ? PyTuple_GET_SIZE(items) : 0;
  if (!items || (more && !with) || (with && PyTuple_GET_SIZE(with) != n)) goto done;
  all = PyTuple_New(n);
  for (Py_ssize_t i = 0; all && i < n; i++) {
    PyObject *x = PyTuple_GET_ITEM(items, i), *r;
    if (with) r = PyObject_CallMethod(x, method, "OO", PyTuple_GET_ITEM(with, i), number);
    else r = PyObject_CallMethod(base ? number : x, method, "O", base ? x : number);
    if (r) PyTuple_SET_ITEM(all, i, r);
    else Py_CLEAR(all);
  }
  if (all && in_place) Py_SETREF(all, Py_NewRef(list));
done:
  Py_XDECREF(items);
  Py_XDECREF(with);
  if (!all && !PyErr_Occurred()) return mg_call_plain(c); /* torch's own error */
  return all;
}

bool mg_call_number_tensors(const MgCall *c, PyObject **r) {
  char text[256];
  const char *name = mg_policy_method(c->f, text, sizeof text);
  PyObject *self = mg_policy_self(c->f), *const *a = c->arg;
  bool addc = !strncmp(name, "addc", 4), method = addc && self && mg_standin_is(self);
  if (addc && c->kwnames && c->n == c->npos + 1 && c->npos == 3 - method &&
      numbers_stands_for_one(a[c->npos]) &&
      !PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(c->kwnames, 0), "value")) {
    *r = method ? numbers_addc(self, a[0], a[1], a[2], name) : numbers_addc(a[0], a[1], a[2], a[3], name);
    return true;
  }
  if (addc) { /* maybe an unbound method, which only this file expects */
    *r = mg_call_plain(c);
    return true;
  }
  const char *each = name + (sizeof "_foreach_" - 1);
  if (!strncmp(name, "_foreach_lerp", 13) && !c->kwnames && c->n == 3 && numbers_stands_for_one(a[2])) {
    *r = numbers_foreach(c, each, a[0], a[1], a[2]);
    return true;
  }
  for (int i = 0; i < 2 && !strncmp(name, "_foreach_pow", 12) && !c->kwnames && c->n == 2; i++) {
    if (!numbers_stands_for_one(a[i])) continue;
    *r = numbers_foreach(c, each, a[1 - i], NULL, a[i]);
    return true;
  }
  return false;
}
