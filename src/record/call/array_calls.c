/* Calls that concern arrays: functions of NumPy, methods of its classes, functions of
 * torch that are given arrays. */
#include "record/call/array_calls.h"
#include <stdlib.h>
#include <string.h>
#include "host/python/hook_mode.h"
#include "host/python/pyobject.h"
#include "host/torch/array_bridge.h"
#include "record/call/torch_calls.h"
#include "record/core/c_functions.h"
#include "record/core/call_args.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "record/numpy/array_functions.h"
#include "record/numpy/array_ops.h"
#include "record/numpy/array_type.h"

enum { CALL_ARGS = 64 };

static PyObject *call_run(const MgCall *c, const MgArrayOp *op) {
  PyObject *args = mg_call_args(c), *kw = args && c->n > c->npos ? mg_call_kwargs(c) : NULL, *r = NULL;
  if (args && !PyErr_Occurred()) r = mg_array_apply(op, args, kw);
  Py_XDECREF(args);
  Py_XDECREF(kw);
  return r;
}

/* Is there an array among the arguments? */
static bool call_given(const MgCall *c) {
  for (Py_ssize_t i = 0; i < c->n; i++) {
    PyObject *o = c->arg[i];
    if (mg_array_check(o)) return true;
    if (PyTuple_CheckExact(o) || PyList_CheckExact(o))
      for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(o); k++)
        if (mg_array_check(PySequence_Fast_GET_ITEM(o, k))) return true;
  }
  return false;
}

/* What the call asks for besides (a dtype, a device) of a tensor in place of its arrays;
 * steals t, which may be NULL. */
static PyObject *call_as_tensor(const MgCall *c, PyObject *t) {
  if (!t || c->n == 1) return t;
  PyObject *args = mg_call_args(c), *kw = args ? mg_call_kwargs(c) : NULL,
           *torch = kw ? mg_import("torch") : NULL;
  PyObject *f = torch ? PyObject_GetAttrString(torch, "as_tensor") : NULL, *r = NULL;
  if (args) Py_SETREF(PyTuple_GET_ITEM(args, 0), Py_NewRef(t));
  if (f) r = PyObject_Call(f, args, kw);
  PyObject *const used[] = {t, args, kw, torch, f};
  for (size_t i = 0; i < sizeof used / sizeof *used; i++) Py_XDECREF(used[i]);
  return r;
}

/* r, or a break that names the call, unless the recording has ended with another. */
static PyObject *call_or_break(PyObject *r, const char *name) {
  if (r || mg_rec->abort) return r;
  PyErr_Clear(); /* the break names the call */
  return mg_rec_break(BK_numpy, "%s of NumPy arrays", name);
}

/* torch.tensor([a, b]) of arrays of one shape and dtype: of their stack. */
static PyObject *call_stacked(const MgCall *c, const char *name) {
  Py_ssize_t n = PySequence_Fast_GET_SIZE(c->arg[0]);
  PyObject *parts = n && n <= CALL_ARGS ? PyList_New(0) : NULL, *torch = NULL;
  int dtype = -1;
  for (Py_ssize_t i = 0; parts && i < n; i++) {
    PyObject *o = PySequence_Fast_GET_ITEM(c->arg[0], i), *t = mg_array_check(o) ? mg_array_tensor(o) : NULL;
    int mine = t && mg_standin_is(t) ? mg_val(mg_rec->g, mg_standin_val(t))->dtype : -1;
    if (mine < 0 || (i && mine != dtype) || PyList_Append(parts, t)) Py_CLEAR(parts);
    dtype = mine;
  }
  PyObject *all =
      parts && (torch = mg_import("torch")) ? PyObject_CallMethod(torch, "stack", "O", parts) : NULL;
  Py_XDECREF(parts);
  Py_XDECREF(torch);
  return call_or_break(call_as_tensor(c, all), name);
}

/* torch.from_numpy and the like: the array's tensor takes the place of the array. */
static PyObject *call_to_torch(const MgCall *c, const char *name) {
  const char *last = strrchr(name, '.');
  last = last ? last + 1 : name;
  bool shares = !strcmp(last, "from_numpy") || !strcmp(last, "as_tensor") || !strcmp(last, "asarray");
  bool copies = !strcmp(last, "tensor");
  if (copies && c->npos && (PyList_CheckExact(c->arg[0]) || PyTuple_CheckExact(c->arg[0])))
    return call_stacked(c, name);
  if ((!shares && !copies) || !c->npos || !mg_array_check(c->arg[0]) ||
      (!strcmp(last, "from_numpy") && mg_array_is_scalar(c->arg[0])))
    return mg_rec_break(BK_numpy, "%s of a NumPy array", name);
  PyObject *t = PyObject_CallMethod(mg_array_tensor(c->arg[0]), shares ? "detach" : "clone", NULL);
  return t ? call_or_break(call_as_tensor(c, t), name) : NULL;
}

/* Functions that ask a tensor for its array, and for nothing else, before they do anything:
 * the call with that array. */
static PyObject *call_run_on_tensor(const MgCall *c, const MgArrayOp *op) {
  PyObject *arg[CALL_ARGS], *a, *r;
  if (c->n > CALL_ARGS || !(a = mg_array_of_tensor(c->arg[0], false)))
    return c->n > CALL_ARGS ? mg_call_unknown(c) : NULL;
  memcpy(arg, c->arg, sizeof *arg * (size_t)c->n);
  arg[0] = a;
  MgCall with = *c;
  with.arg = arg;
  r = call_run(&with, op);
  Py_DECREF(a);
  return r;
}

static bool call_takes_tensor(const char *name) {
  return strstr(name, "_like") || !strcmp(name, "array") || !strcmp(name, "asarray");
}

int mg_array_call(const MgCall *c, PyObject **out) {
  MgArrayOp op;
  char name[256];
  if (mg_array_find(c->f, &op) && c->npos && mg_standin_check(c->arg[0]) && call_takes_tensor(op.name)) {
    *out = call_run_on_tensor(c, &op);
    return 1;
  }
  if (mg_array_find(c->f, &op)) {
    *out = call_run(c, &op);
    return 1;
  }
  if (!mg_array_alive() || !call_given(c)) return 0;
  if (Py_TYPE(c->f) == &PyMethodDescr_Type && mg_array_is_class(PyDescr_TYPE(c->f)) && c->npos &&
      mg_array_check(c->arg[0])) {
    op = (MgArrayOp){.method = PyUnicode_AsUTF8(((PyDescrObject *)c->f)->d_name)};
    if (!strcmp(op.method, "__copy__") || !strcmp(op.method, "__deepcopy__")) op.method = "copy";
    op.name = op.method;
    MgCall self = *c; /* a memo of deepcopy is no argument of copy() */
    if (!strcmp(op.method, "copy") && c->npos > 1) self.npos = self.n = 1;
    *out = call_run(&self, &op);
    return 1;
  }
  if (mg_call_legacy(c, out)) return 1;
  mg_policy_name(c->f, name, sizeof name);
  if (strncmp(name, "torch.", 6)) return 0;
  *out = call_to_torch(c, name);
  return 1;
}
