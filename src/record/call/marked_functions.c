/* Functions that a program has marked: allow_in_graph (ours and torch's), assume_constant_result,
 * substitute_in_graph, and functions that torch.compile has wrapped.
 * In: a callable about to be called while recording.  Out: its result, or "record it as any other".
 * An allowed function runs with its Python unrecorded: only the ops that it issues are part of the graph, or,
 * in an FX graph, one call of the function itself. */
#include "record/call/marked_functions.h"
#include <string.h>
#include "host/python/glue.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "host/python/trace_rules.h"
#include "host/torch/function_stack.h"
#include "record/core/ops.h"
#include "record/core/identity.h"
#include "record/core/recording.h"
#include "record/dispatch/constant_tensors.h"
#include "record/fx/fx.h"
#include "record/object/attributes.h"
#include "record/object/wrap.h"
#include "record/tensor/mode_stack.h"
#include "record/tensor/standin.h"
#include "record/tensor/wrapper_subclass.h"

static PyObject *marked_substitutes; /* dict: id -> (original, replacement); NULL while there are none */
static PyObject *
    marked_torch_ids; /* torch._dynamo.trace_rules._allowed_callable_ids, strong; NULL until it is imported */
static PyObject *marked_torch_refused; /* its _disallowed_callable_ids */

/* One of torch's sets of ids of functions, by its name in torch._dynamo.trace_rules.  New; NULL without an
 * exception while nothing is in it. */
static PyObject *marked_ids(PyObject **cache, const char *name) {
  if (!*cache) {
    PyObject *m = PyImport_GetModule(mg_names.trace_rules);
    if (m) *cache = PyObject_GetAttrString(m, name);
    Py_XDECREF(m);
  }
  PyObject *ids = *cache ? PyObject_GetAttrString(*cache, "function_ids") : NULL;
  if (ids && (!PyAnySet_Check(ids) || !PySet_GET_SIZE(ids))) Py_CLEAR(ids);
  mg_clear_as_no();
  return ids;
}

static bool marked_has_id(PyObject *ids, PyObject *fn) {
  PyObject *id = PyLong_FromVoidPtr(mg_older_orig(fn));
  bool yes = id && PySet_Contains(ids, id) > 0;
  Py_XDECREF(id);
  mg_clear_as_no();
  return yes;
}

static bool marked_by_torch(PyObject *fn) {
  if (PyFunction_Check(fn) && mg_skip_is_torch((PyCodeObject *)PyFunction_GET_CODE(fn)) &&
      !mg_skip_opaque((PyCodeObject *)PyFunction_GET_CODE(fn)))
    return false; /* torch's list of its own functions is for its own tracer */
  PyObject *ids = marked_ids(&marked_torch_ids, "_allowed_callable_ids");
  bool yes = ids && marked_has_id(ids, fn);
  Py_XDECREF(ids);
  return yes;
}

PyObject *mg_marked_refused_ids(void) {
  return marked_ids(&marked_torch_refused, "_disallowed_callable_ids");
}

bool mg_marked_refuses(PyObject *fn) {
  if (!marked_has_id(mg_rec->refused, fn)) return false;
  PyObject *module = PyFunction_Check(fn) ? ((PyFunctionObject *)fn)->func_module : NULL;
  if (module && PyUnicode_Check(module) &&
      !PyUnicode_CompareWithASCIIString(module, "torch._dynamo.decorators"))
    return false; /* graph_break() */
  mg_rec_break(BK_user, "a function given to torch._dynamo.disallow_in_graph");
  return true;
}

bool mg_rec_marked_class(PyObject *cls) { return marked_by_torch(cls); }

static PyObject *marked_flag(PyObject *fn, PyObject *name) {
  PyObject *d = ((PyFunctionObject *)fn)->func_dict;
  return d ? PyDict_GetItemWithError(d, name) : NULL;
}

/* What torch.compile or torch.compiler.disable wrapped in fn, borrowed; NULL: fn is no such wrapper.  Not
 * what a wrapper of the program's own has copied from one with its __dict__ (functools.wraps). */
static PyObject *marked_wrapped(PyObject *fn) {
  PyObject *id = marked_flag(fn, mg_names.wrapper_id);
  if (!id || !PyLong_Check(id) || PyLong_AsVoidPtr(id) != mg_older_orig(fn)) return NULL;
  return marked_flag(fn, mg_names.orig_callable);
}

/* What came back from code that was not recorded, as the recording sees it.  Steals r. */
static PyObject *marked_result(PyObject *r) {
  if (!r || mg_standin_check(r)) return r;
  if (PyList_CheckExact(r) || PyDict_CheckExact(r) || PyTuple_CheckExact(r)) {
    mg_fresh(r);
    return r;
  }
  if (Py_REFCNT(r) == 1 && Py_TYPE(r)->tp_flags & Py_TPFLAGS_HEAPTYPE &&
      mg_solid_base(Py_TYPE(r)) == &PyBaseObject_Type) {
    /* made by that code, and known to nobody else */
    mg_fresh(r);
    return r;
  }
  PyObject *w = mg_wrap_result(r);
  Py_DECREF(r);
  return w;
}

static int marked_pack(PyObject *self, PyObject *const *arg, size_t nargsf, PyObject *kwnames, PyObject **pos,
                       PyObject **kw) {
  Py_ssize_t n = PyVectorcall_NARGS(nargsf), k = self != NULL;
  *pos = PyTuple_New(n + k);
  *kw = PyDict_New();
  if (!*pos || !*kw) return -1;
  if (self) PyTuple_SET_ITEM(*pos, 0, Py_NewRef(self));
  for (Py_ssize_t i = 0; i < n; i++) PyTuple_SET_ITEM(*pos, i + k, Py_NewRef(arg[i]));
  for (Py_ssize_t i = 0; kwnames && i < PyTuple_GET_SIZE(kwnames); i++)
    if (PyDict_SetItem(*kw, PyTuple_GET_ITEM(kwnames, i), arg[n + i])) return -1;
  return 0;
}

/* An argument of a function that runs unrecorded: nobody guards what it reads of an older instance, and its
 * tensors are real ones.  Frozen dataclasses are made anew of what the recording sees,
 * others end the graph.  New. */
static PyObject *marked_argument(PyObject *o);

/* A list, tuple or dict of them.  New. */
static PyObject *marked_items(PyObject *o) {
  bool dict = PyDict_CheckExact(o), differ = false;
  PyObject *copy = dict ? PyDict_Copy(o) : PySequence_List(o), *k, *v;
  Py_ssize_t n = dict || !copy ? 0 : PyList_GET_SIZE(copy), at = 0;
  for (Py_ssize_t i = 0; i < n && copy; i++) {
    v = PyList_GET_ITEM(copy, i);
    PyObject *now = marked_argument(v);
    differ |= now != v;
    if (!now || PyList_SetItem(copy, i, now)) Py_CLEAR(copy);
  }
  while (dict && copy && PyDict_Next(copy, &at, &k, &v)) {
    PyObject *now = marked_argument(v);
    differ |= now != v;
    if (!now || PyDict_SetItem(copy, k, now)) Py_CLEAR(copy);
    Py_XDECREF(now);
  }
  if (copy && !differ) Py_SETREF(copy, Py_NewRef(o)); /* the function may change it */
  else if (copy && PyTuple_CheckExact(o)) Py_SETREF(copy, PyList_AsTuple(copy));
  return copy;
}

static PyObject *marked_argument(PyObject *o) {
  MgOlder *e = mg_older(o);
  if (PyTuple_CheckExact(o) || PyList_CheckExact(o) || PyDict_CheckExact(o)) {
    if (Py_EnterRecursiveCall(" in the arguments of a function of the graph")) return NULL;
    PyObject *r = marked_items(o);
    Py_LeaveRecursiveCall();
    return r;
  }
  if (!e || e->kind != OLDER_object || mg_wrapper_is(o)) return Py_NewRef(o);
  PyObject *kw = mg_marked_fields(o), *none = kw ? PyTuple_New(0) : NULL, *r = NULL;
  if (none) r = PyObject_Call((PyObject *)Py_TYPE(o), none, kw);
  else if (!PyErr_Occurred())
    mg_rec_break(BK_older_object, "an older %.100s is given to a function of the graph", Py_TYPE(o)->tp_name);
  Py_XDECREF(kw);
  Py_XDECREF(none);
  if (r) mg_fresh(r);
  return r;
}

/* A call of fn in an FX graph, which run does: nothing but its ops is recorded. */
static PyObject *marked_shown(PyObject *fn, PyObject *run, PyObject *self, PyObject *const *arg,
                              size_t nargsf, PyObject *kwnames) {
  MgRec *rec = mg_rec;
  MgCapture *cap = rec->cap;
  PyObject *pos = NULL, *kw = NULL, *r = NULL;
  bool show = rec->want_fx && !mg_fx_is_aten(cap), quiet = cap->quiet;
  MgFxCall call = {0};
  bool ready = !marked_pack(self, arg, nargsf, kwnames, &pos, &kw);
  if (ready) {
    Py_SETREF(pos, marked_argument(pos));
    Py_SETREF(kw, marked_argument(kw));
    ready = pos && kw;
  }
  MgPause pause = mg_rec_pause();
  if (ready && !(show && mg_fx_before(cap, pos, kw, &call))) {
    cap->quiet = true;
    r = PyObject_Call(run, pos, kw);
    cap->quiet = quiet;
    call.keep = true; /* what it does to Python's objects is the graph's, too */
    if (r && r != Py_NotImplemented && show && mg_fx_after(cap, fn, pos, kw, &call, r)) Py_CLEAR(r);
  }
  mg_rec_resume(pause);
  mg_fx_drop(&call);
  Py_XDECREF(pos);
  Py_XDECREF(kw);
  if (rec->abort && r) {
    Py_CLEAR(r);
    PyErr_SetString(MgBreakError, rec->reason);
  }
  return marked_result(r);
}

static PyObject *marked_in_graph(PyObject *fn, PyObject *self, PyObject *const *arg, size_t nargsf,
                                 PyObject *kwnames) {
  return marked_shown(fn, fn, self, arg, nargsf, kwnames);
}

bool mg_marked_attention(PyObject *fn, PyObject *const *arg, size_t nargsf, PyObject *kwnames,
                         PyObject **out) {
  static PyObject *run;
  MgPause pause = mg_rec_pause();
  PyObject *ours = run ? NULL : mg_glue(GLUE_jagged);
  if (ours) run = PyObject_GetAttrString(ours, "attention");
  Py_XDECREF(ours);
  mg_rec_resume(pause);
  *out = run ? marked_shown(fn, run, NULL, arg, nargsf, kwnames) : NULL;
  bool other = *out == Py_NotImplemented;
  if (other) Py_CLEAR(*out);
  return !other;
}

/* They are part of the call, whatever they are. */
static void marked_pin(PyObject *o) {
  PyObject *k, *v;
  Py_ssize_t at = 0;
  mg_rec_pin_arguments(&o, 1);
  for (Py_ssize_t i = 0; (PyTuple_Check(o) || PyList_Check(o)) && i < PySequence_Fast_GET_SIZE(o); i++)
    marked_pin(PySequence_Fast_GET_ITEM(o, i));
  while (PyDict_Check(o) && PyDict_Next(o, &at, &k, &v)) marked_pin(v);
}

bool mg_marked_distributed(PyObject *fn, PyObject *self, PyObject *const *arg, size_t nargsf,
                           PyObject *kwnames, PyObject **out) {
  PyObject *tensor = self                         ? self
                     : PyVectorcall_NARGS(nargsf) ? arg[0]
                                                  : NULL,
           *pos = NULL, *kw = NULL, *rest = NULL, *run = NULL;
  if (!tensor || !(mg_standin_check(tensor) || mg_wrapper_is(tensor))) return false;
  *out = NULL;
  if (mg_wrapper_begin(mg_rec, Py_TYPE(tensor))) return true;
  if (!marked_pack(self, arg, nargsf, kwnames, &pos, &kw))
    rest = PyTuple_GetSlice(pos, 1, PyTuple_GET_SIZE(pos));
  if (rest) {
    marked_pin(rest);
    marked_pin(kw);
  }
  MgPause pause = mg_rec_pause();
  PyObject *ours = rest ? mg_glue(GLUE_dtensor) : NULL;
  if (ours) run = PyObject_CallMethod(ours, "bind", "OOO", fn, rest, kw);
  Py_XDECREF(ours);
  mg_rec_resume(pause);
  MgCapture *cap = mg_rec->cap;
  cap->glue++;
  cap->told_sizes = true; /* what the function was told of sizes is not seen */
  if (run) *out = marked_shown(run, run, NULL, &tensor, 1, NULL);
  cap->glue--;
  Py_XDECREF(run);
  Py_XDECREF(rest);
  Py_XDECREF(kw);
  Py_XDECREF(pos);
  return true;
}

/* The arguments of a collective decide which function stands for it; they are part of the call. */
static PyObject *marked_form(PyObject *fn, PyObject *pos, PyObject *kw) {
  marked_pin(pos);
  marked_pin(kw);
  MgPause pause = mg_rec_pause();
  PyObject *ours = mg_glue(GLUE_collectives),
           *form = ours ? PyObject_CallMethod(ours, "form", "OOO", fn, pos, kw) : NULL;
  Py_XDECREF(ours);
  mg_rec_resume(pause);
  return form;
}

bool mg_marked_collective(PyObject *fn, PyObject *const *arg, size_t nargsf, PyObject *kwnames,
                          PyObject **out) {
  PyObject *pos = NULL, *kw = NULL,
           *form = marked_pack(NULL, arg, nargsf, kwnames, &pos, &kw) ? NULL : marked_form(fn, pos, kw);
  bool found = form != Py_None; /* else it is recorded as it is */
  *out = NULL;
  if (form && found) {
    PyObject *args = PyTuple_GET_ITEM(form, 1);
    *out = mg_ops.call(PyTuple_GET_ITEM(form, 0), PySequence_Fast_ITEMS(args), (size_t)PyTuple_GET_SIZE(args),
                       NULL);
  }
  Py_XDECREF(form);
  Py_XDECREF(pos);
  Py_XDECREF(kw);
  return found;
}

/* An argument of a function whose result is a constant: tensors have the values of this run, in memory that
 * nothing else changes. The modes of the recording are off.  New. */
static PyObject *marked_value(MgRec *r, PyObject *o) {
  if (mg_standin_is(o)) {
    PyObject *t = mg_standin_swapped(r->cap, o) ? NULL : mg_noderun_value(r, mg_standin_val(o)), *own = NULL,
             *copy = NULL;
    bool grad = mg_val(r->g, mg_standin_val(o))->requires_grad;
    r->cap->asks_grad = true;
    if (t && (own = PyObject_CallMethod(t, "detach", NULL))) copy = PyObject_CallMethod(own, "clone", NULL);
    if (copy && grad && PyObject_SetAttrString(copy, "requires_grad", Py_True)) Py_CLEAR(copy);
    Py_XDECREF(t);
    Py_XDECREF(own);
    if (!copy && !PyErr_Occurred()) PyErr_SetString(MgBreakError, "");
    return copy;
  }
  if (mg_standin_check(o)) return PyErr_SetString(MgBreakError, ""), NULL;
  bool dict = PyDict_CheckExact(o);
  if (!dict && !PyTuple_CheckExact(o) && !PyList_CheckExact(o)) return Py_NewRef(o);
  PyObject *copy = dict ? PyDict_Copy(o) : PySequence_List(o), *k, *v;
  for (Py_ssize_t at = 0; dict && copy && PyDict_Next(copy, &at, &k, &v);) {
    PyObject *now = marked_value(r, v);
    if (!now || PyDict_SetItem(copy, k, now)) Py_CLEAR(copy);
    Py_XDECREF(now);
  }
  for (Py_ssize_t i = 0; !dict && copy && i < PyList_GET_SIZE(copy); i++) {
    PyObject *now = marked_value(r, PyList_GET_ITEM(copy, i));
    if (!now || PyList_SetItem(copy, i, now)) Py_CLEAR(copy);
  }
  if (copy && PyTuple_CheckExact(o)) Py_SETREF(copy, PyList_AsTuple(copy));
  return copy;
}

/* The function runs once, while recording, as written. */
static PyObject *marked_constant(PyObject *fn, PyObject *self, PyObject *const *arg, size_t nargsf,
                                 PyObject *kwnames) {
  MgRec *rec = mg_rec;
  PyObject *pos = NULL, *kw = NULL, *r = NULL;
  if (marked_pack(self, arg, nargsf, kwnames, &pos, &kw)) goto done;
  if (mg_dispatch_leave(rec->cap)) goto done;
  bool quiet = rec->cap->quiet;
  rec->cap->quiet = true;
  MgPause pause = mg_rec_pause();
  PyObject *off = mg_fmodes_off();
  if (off) Py_SETREF(pos, marked_value(rec, pos));
  if (off && pos) Py_SETREF(kw, marked_value(rec, kw));
  bool given = pos && kw;
  if (off && mg_context_exit(off)) given = false;
  if (given) r = PyObject_Call(fn, pos, kw);
  mg_rec_resume(pause);
  rec->cap->quiet = quiet;
  if (mg_dispatch_return(rec->cap)) Py_CLEAR(r);
  bool unknown = !given && PyErr_ExceptionMatches(MgBreakError);
  if (unknown)
    mg_rec_break(BK_data_dependent, "a constant result is asked for with a tensor whose value is not known");
done:
  Py_XDECREF(pos);
  Py_XDECREF(kw);
  return marked_result(r);
}

/* A function that is called in the place of fn. */
static PyObject *marked_call(PyObject *fn, PyObject *self, PyObject *const *arg, size_t nargsf,
                             PyObject *kwnames) {
  PyObject *m = self ? PyMethod_New(fn, self) : Py_NewRef(fn);
  PyObject *r = m ? mg_ops.call(m, arg, nargsf & ~PY_VECTORCALL_ARGUMENTS_OFFSET, kwnames) : NULL;
  Py_XDECREF(m);
  return r;
}

/* The replacement of a callable, borrowed; NULL when it has none. */
static PyObject *marked_substitute(PyObject *f) {
  if (!marked_substitutes) return NULL;
  PyObject *id = PyLong_FromVoidPtr(mg_older_orig(f)),
           *row = id ? PyDict_GetItemWithError(marked_substitutes, id) : NULL;
  Py_XDECREF(id);
  mg_clear_as_no();
  return row ? PyTuple_GET_ITEM(row, 1) : NULL;
}

/* Is it the module that torch.compile or torch.compiler.disable made of a module?  Its
 * forward is the marked function. */
static bool marked_module(PyObject *m) {
  if (!PyObject_TypeCheck(m, mg_torch.module) || strcmp(Py_TYPE(m)->tp_name, "OptimizedModule")) return false;
  PyObject *of = PyDict_GetItemWithError(mg_type_dict(Py_TYPE(m)), mg_names.module);
  return of && PyUnicode_Check(of) && !PyUnicode_CompareWithASCIIString(of, "torch._dynamo.eval_frame");
}

bool mg_rec_marked(PyObject *fn, PyObject *self, PyObject *const *arg, size_t nargsf, PyObject *kwnames,
                   PyObject **out) {
  PyObject *with = marked_substitute(fn);
  if (with) {
    *out = marked_call(with, self, arg, nargsf, kwnames);
    return true;
  }
  if (!PyFunction_Check(fn)) {
    if (!marked_module(fn)) return false;
    PyObject *forward = mg_rec_getattr(fn, mg_names.forward);
    *out = forward ? marked_call(forward, NULL, arg, nargsf, kwnames) : NULL;
    Py_XDECREF(forward);
    return true;
  }
  if (marked_flag(fn, mg_names.marked_constant) == Py_True) {
    *out = marked_constant(fn, self, arg, nargsf, kwnames);
    return true;
  }
  if (marked_flag(fn, mg_names.in_graph) == Py_True || marked_by_torch(fn)) {
    *out = marked_in_graph(fn, self, arg, nargsf, kwnames);
    return true;
  }
  PyObject *orig = marked_wrapped(fn);
  if (orig && PyCallable_Check(orig)) { /* torch.compile(orig): part of this graph like any function */
    *out = marked_call(orig, self, arg, nargsf, kwnames);
    return true;
  }
  PyErr_Clear(); /* no marks */
  return false;
}

/* substitute(original, replacement, /) */
static PyObject *marked_set(PyObject *module, PyObject *args) {
  PyObject *original, *with;
  if (!PyArg_ParseTuple(args, "OO:substitute", &original, &with)) return NULL;
  if (!marked_substitutes && !(marked_substitutes = PyDict_New())) return NULL;
  PyObject *id = PyLong_FromVoidPtr(original), *row = PyTuple_Pack(2, original, with);
  int rc = id && row ? PyDict_SetItem(marked_substitutes, id, row) : -1;
  Py_XDECREF(id);
  Py_XDECREF(row);
  return rc ? NULL : Py_NewRef(Py_None);
}

static PyMethodDef marked_methods[] = {
    {"substitute", marked_set, METH_VARARGS,
     "substitute(original, replacement, /): recordings call the replacement instead."},
    {NULL, NULL, 0, NULL}};

int mg_marked_init(PyObject *module) { return PyModule_AddFunctions(module, marked_methods); }
