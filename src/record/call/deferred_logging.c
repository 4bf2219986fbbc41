/* See the header.  In: calls.  Out: cap->said, a list of pairs (function, arguments) in order, which the
 * snapshot makes. Arguments are tensors and constants: what they say is the same at the end, unless an
 * operation in place follows. */
#include "record/call/deferred_logging.h"
#include "entry/guard/guard_add.h"
#include "host/python/dynamo_config.h"
#include "host/python/hook_mode.h"
#include "host/python/names.h"
#include "host/python/trace_rules.h"
#include "record/core/call_args.h"
#include "record/core/capture.h"
#include "record/core/identity.h"
#include "record/core/recording.h"
#include "record/symbolic/number.h"

/* One of the sets, new; NULL when it is empty. */
static PyObject *logcall_set(const char *name) {
  PyObject *s = mg_rec_dynamo_config(name);
  if (s && (!PyAnySet_Check(s) || !PySet_GET_SIZE(s))) Py_CLEAR(s);
  return s;
}

/* A call of a method by its function and its object may be meant by the bound method. */
static bool logcall_in(PyObject *set, const MgCall *c) {
  PyObject *f = c->f, *bound;
  int has = set ? PySet_Contains(set, f) : 0;
  if (!has && set && PyMethod_Check(f)) has = PySet_Contains(set, PyMethod_GET_FUNCTION(f));
  if (!has && set && PyFunction_Check(f) && c->npos && (bound = PyMethod_New(f, mg_older_orig(c->arg[0])))) {
    has = PySet_Contains(set, bound);
    Py_DECREF(bound);
  }
  if (PyErr_Occurred()) PyErr_Clear(); /* an object without a hash */
  return has > 0;
}

static bool logcall_plain(const MgCall *c) {
  for (Py_ssize_t i = 0; i < c->n; i++)
    if (!mg_standin_is(c->arg[i]) && !mg_symfloat_is(c->arg[i]) && !mg_guard_is_const(c->arg[i]))
      return false;
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

/* The call of f with n arguments at the end of every run; steals f, which may be NULL. */
static PyObject *logcall_defer(MgCapture *cap, PyObject *f, PyObject *const *arg, Py_ssize_t n) {
  PyObject *args = f ? PyTuple_New(n) : NULL, *pair = NULL;
  for (Py_ssize_t i = 0; args && i < n; i++) PyTuple_SET_ITEM(args, i, Py_NewRef(arg[i]));
  if (args && (cap->said || (cap->said = PyList_New(0))) && (pair = PyTuple_Pack(2, f, args)) &&
      PyList_Append(cap->said, pair))
    Py_CLEAR(pair);
  Py_XDECREF(f);
  Py_XDECREF(args);
  if (!pair) return NULL;
  Py_DECREF(pair); /* the list holds it */
  Py_RETURN_NONE;
}

/* ---- warnings of libraries ---- */

static PyObject *logcall_warn(PyObject *self, PyObject *unused) {
  PyObject *m = PyImport_ImportModule("_warnings"),
           *f = m ? PyObject_GetAttrString(m, "warn_explicit") : NULL;
  PyObject *r = f ? PyObject_Call(f, self, NULL) : NULL;
  (void)unused;
  Py_XDECREF(m);
  Py_XDECREF(f);
  return r;
}
static PyMethodDef logcall_warn_def = {"warn", logcall_warn, METH_NOARGS, NULL};

/* The frame that a warning of stack level `level` names.  New; NULL without an exception: there is none. */
static PyFrameObject *logcall_frame(long level) {
  PyFrameObject *f = (PyFrameObject *)Py_XNewRef((PyObject *)PyEval_GetFrame());
  for (; f && level > 1; level--) Py_SETREF(f, PyFrame_GetBack(f));
  return f;
}

/* Torch's own, and the wrapper that typing_extensions and warnings have for functions that
 * are marked as deprecated. */
static bool logcall_by_library(PyFrameObject *f, PyCodeObject *co) {
  PyObject *globals = PyFrame_GetGlobals(f),
           *name = globals ? PyDict_GetItemString(globals, "__name__") : NULL;
  const char *module = name && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL,
             *fn = PyUnicode_AsUTF8(co->co_qualname);
  bool marks = module && (!strcmp(module, "typing_extensions") || !strcmp(module, "warnings") ||
                          !strcmp(module, "_py_warnings")); /* from 3.14 on */
  Py_XDECREF(globals);
  return mg_skip_is_torch(co) || (marks && fn && !strncmp(fn, "deprecated.", 11));
}

/* warn(message, category=None, stacklevel=1), from such a file: the same warning about the same place.  New;
 * NULL without an exception: another kind of call. */
static PyObject *logcall_warning(const MgCall *c) {
  PyObject *arg[3] = {NULL, NULL, NULL}, *args = NULL, *r = NULL; /* message, category, stacklevel */
  static const char *const names[] = {"message", "category", "stacklevel"};
  for (Py_ssize_t i = 0; i < c->n; i++) {
    int k = i < c->npos && i < 3 ? (int)i : -1;
    for (int j = 0; i >= c->npos && j < 3; j++)
      if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(c->kwnames, i - c->npos), names[j]) == 0) k = j;
    if (k < 0) return NULL;
    arg[k] = c->arg[i];
  }
  if (!arg[0] || !PyUnicode_CheckExact(arg[0])) return NULL;
  if (arg[1] == Py_None) arg[1] = NULL;
  if ((arg[1] && !PyType_Check(arg[1])) || (arg[2] && !PyLong_CheckExact(arg[2]))) return NULL;
  PyFrameObject *here = logcall_frame(1), *f = NULL;
  PyCodeObject *co = here ? PyFrame_GetCode(here) : NULL;
  if (co && logcall_by_library(here, co)) f = logcall_frame(arg[2] ? PyLong_AsLong(arg[2]) : 1);
  Py_XDECREF(co);
  Py_XDECREF(here);
  PyObject *globals = f ? PyFrame_GetGlobals(f) : NULL, *registry = NULL, *place = NULL;
  PyObject *key = globals ? PyUnicode_FromString("__warningregistry__") : NULL, *name;
  if (!key || !(registry = PyDict_GetItemWithError(globals, key))) {
    registry = !key || PyErr_Occurred() ? NULL : PyDict_New();
    if (registry && PyDict_SetItem(globals, key, registry)) Py_CLEAR(registry);
  } else {
    Py_INCREF(registry);
  }
  if (registry && (place = (PyObject *)PyFrame_GetCode(f))) {
    name = PyDict_GetItemString(globals, "__name__");
    args = Py_BuildValue("(OOOiOO)", arg[0], arg[1] ? arg[1] : PyExc_UserWarning,
                         ((PyCodeObject *)place)->co_filename, PyFrame_GetLineNumber(f),
                         name ? name : Py_None, registry);
  }
  if (args) r = PyCFunction_New(&logcall_warn_def, args);
  Py_XDECREF(args);
  Py_XDECREF(place);
  Py_XDECREF(registry);
  Py_XDECREF(key);
  Py_XDECREF(globals);
  Py_XDECREF(f);
  return r;
}

static bool logcall_is_warn(PyObject *f) {
  PyObject *m = PyCFunction_Check(f) && !strcmp(((PyCFunctionObject *)f)->m_ml->ml_name, "warn")
                    ? PyCFunction_GET_SELF(f)
                    : NULL;
  const char *name = m && PyModule_Check(m) ? PyModule_GetName(m) : NULL;
  return name && !strcmp(name, "_warnings");
}

bool mg_logcall(const MgCall *c, PyObject **out) {
  if (!PyCFunction_Check(c->f) && !PyFunction_Check(c->f) && !PyMethod_Check(c->f)) return false;
  MgCapture *cap = mg_rec->cap;
  if (logcall_is_warn(c->f)) {
    PyObject *f = logcall_warning(c);
    if (f || PyErr_Occurred()) {
      *out = logcall_defer(cap, f, NULL, 0);
      return true;
    }
  }
  if (!cap->log_known) {
    cap->log_ignored = logcall_set("ignore_logging_functions");
    cap->log_late = logcall_set("reorderable_logging_functions");
    cap->log_known = true;
  }
  if (!cap->log_ignored && !cap->log_late) return false;
  if (logcall_in(cap->log_ignored, c)) {
    *out = Py_NewRef(Py_None);
    return true;
  }
  if (!logcall_in(cap->log_late, c) || !logcall_plain(c)) return false;
  *out = logcall_defer(cap, logcall_bound(c), c->arg, c->npos);
  return true;
}
