/* See the header.  In: calls.  Out: cap->said, a list of pairs (function, arguments) in order, which the snapshot makes.
 * Arguments are tensors and constants: what they say is the same at the end, unless an operation in place follows. */
#include "front/logcall.h"
#include "front/guard.h"
#include "front/names.h"
#include "front/standin.h"
#include "front/symfloat.h"

/* One of the sets, new; NULL when it is empty. */
static PyObject *logcall_set(const char *name) {
  PyObject *s = mg_rec_dynamo_config(name);
  if (s && (!PyAnySet_Check(s) || !PySet_GET_SIZE(s))) Py_CLEAR(s);
  return s;
}

static bool logcall_in(PyObject *set, PyObject *f) {
  int has = set ? PySet_Contains(set, f) : 0;
  if (!has && set && PyMethod_Check(f)) has = PySet_Contains(set, PyMethod_GET_FUNCTION(f));
  if (has < 0) PyErr_Clear();
  return has > 0;
}

static bool logcall_plain(const MgCall *c) {
  for (Py_ssize_t i = 0; i < c->n; i++)
    if (!mg_standin_is(c->arg[i]) && !mg_symfloat_is(c->arg[i]) && !mg_guard_is_const(c->arg[i])) return false;
  return true;
}

/* f with its keyword arguments.  New. */
static PyObject *logcall_bound(const MgCall *c) {
  if (!c->kwnames || c->n == c->npos) return Py_NewRef(c->f);
  PyObject *kw = mg_call_kwargs(c), *args = kw ? PyTuple_Pack(1, c->f) : NULL, *r = NULL;
  if (args) r = PyObject_Call((PyObject *)mg_torch.partial, args, kw);
  if (r) mg_fresh(r);
  Py_XDECREF(kw);
  Py_XDECREF(args);
  return r;
}

static PyObject *logcall_defer(MgCapture *cap, const MgCall *c) {
  PyObject *f = logcall_bound(c), *args = f ? PyTuple_New(c->npos) : NULL, *pair = NULL;
  for (Py_ssize_t i = 0; args && i < c->npos; i++) PyTuple_SET_ITEM(args, i, Py_NewRef(c->arg[i]));
  if (args && (cap->said || (cap->said = PyList_New(0))) && (pair = PyTuple_Pack(2, f, args)) && PyList_Append(cap->said, pair))
    Py_CLEAR(pair);
  Py_XDECREF(f);
  Py_XDECREF(args);
  if (!pair) return NULL;
  Py_DECREF(pair); /* the list holds it */
  Py_RETURN_NONE;
}

bool mg_logcall(const MgCall *c, PyObject **out) {
  if (!PyCFunction_Check(c->f) && !PyFunction_Check(c->f) && !PyMethod_Check(c->f)) return false;
  MgCapture *cap = mg_rec->cap;
  if (!cap->log_known) {
    cap->log_ignored = logcall_set("ignore_logging_functions");
    cap->log_late = logcall_set("reorderable_logging_functions");
    cap->log_known = true;
  }
  if (!cap->log_ignored && !cap->log_late) return false;
  if (logcall_in(cap->log_ignored, c->f)) {
    *out = Py_NewRef(Py_None);
    return true;
  }
  if (!logcall_in(cap->log_late, c->f) || !logcall_plain(c)) return false;
  *out = logcall_defer(cap, c);
  return true;
}
