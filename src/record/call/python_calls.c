/* Calls of Python functions and of modules while recording.
 * In: a call that call.c has told apart.  Out: its result, or NULL with an exception or a break.
 * Most functions are called for real: CPython binds the arguments, and the hook records the frame.  Here are
 * those that mean something else: marks of a place, functions that the user has disabled, torch's questions.
 */
#include "record/call/python_calls.h"
#include <string.h>
#include "entry/guard/guard_add.h"
#include "host/python/hook_mode.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "host/python/trace_rules.h"
#include "record/call/marked_functions.h"
#include "record/call/size_checks.h"
#include "record/call/substitutes.h"
#include "record/core/ops.h"
#include "record/core/call_args.h"
#include "record/core/capture.h"
#include "record/core/identity.h"
#include "record/core/recording.h"
#include "record/fx/fx.h"
#include "record/numpy/host_random.h"
#include "record/object/attributes.h"
#include "record/object/wrap.h"
#include "record/symbolic/item_numbers.h"

/* Calls a Python function, fn, for c: a break in its frame may leave that frame as it is then. */
PyObject *mg_call_frame(const MgCall *c, PyObject *fn) {
  mg_rec->direct = c->tail && fn && PyFunction_Check(fn) ? fn : NULL;
  mg_rec->calls_frame = true;
  PyObject *r = mg_call_plain(c);
  if (mg_rec) {
    mg_rec->direct = NULL;
    mg_rec->calls_frame = false;
    mg_rec->called_frame = true;
  }
  return r;
}

/* torch.compiler.disable and the like mark the function. */
static bool call_is_disabled(PyObject *f) {
  PyObject *d = PyFunction_Check(f) ? ((PyFunctionObject *)f)->func_dict : NULL;
  return d && PyDict_GetItemWithError(d, mg_names.torchdynamo_disable) == Py_True;
}

/* torch keeps its own tracer out of some of its functions (optimizers), not us: the function behind the
 * wrapper.  New; NULL without exception when the user asked for it; who disables a class of modules asks for
 * it through nn.Module's __call__. */
static PyObject *call_torch_original(PyObject *fn) {
  PyObject *o = PyDict_GetItemString(((PyFunctionObject *)fn)->func_dict, "_torchdynamo_orig_callable");
  if (o == mg_torch.module_call || o == mg_torch.module_call_impl) return NULL;
  if (!o || !PyFunction_Check(o) || !mg_skip_is_torch((PyCodeObject *)PyFunction_GET_CODE(o))) return NULL;
  return Py_NewRef(o);
}

/* The break for a function that the user has disabled. */
static PyObject *call_disabled(PyObject *fn) {
  PyFunctionObject *pf = (PyFunctionObject *)fn;
  PyObject *why = PyDict_GetItemString(pf->func_dict, "_torchdynamo_disable_msg");
  const char *text = why && PyUnicode_Check(why) ? PyUnicode_AsUTF8(why) : NULL;
  return mg_rec_break(BK_disabled, "%s is disabled%s%s", PyUnicode_AsUTF8(pf->func_qualname),
                      text ? ": " : "", text ? text : "");
}

bool mg_rec_disabled(PyObject *fn) {
  if (!call_is_disabled(fn)) return false;
  PyObject *orig = call_torch_original(fn);
  if (!orig) call_disabled(fn);
  Py_XDECREF(orig);
  return !orig;
}

/* torch._dynamo.graph_break and its like: empty functions that mark a place.  torch marks places of its own
 * (optimizers) for its own tracer; they do not concern us. */
static bool call_is_mark(PyObject *fn) {
  static const char *const marks[] = {"graph_break", "skip_frame", "step_unsupported"};
  PyCodeObject *co = (PyCodeObject *)PyFunction_GET_CODE(fn);
  for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
    if (PyUnicode_CompareWithASCIIString(co->co_name, marks[i]) == 0)
      return mg_skip_is_torch(co) && strstr(PyUnicode_AsUTF8(co->co_filename), "_dynamo/decorators.py") &&
             !mg_call_by_torch();
  return false;
}

/* Tensor.backward, torch.autograd.backward and torch.autograd.grad: no part of a
 * graph for a custom backend. */
static bool call_is_engine(PyObject *fn) {
  PyCodeObject *co = (PyCodeObject *)PyFunction_GET_CODE(fn);
  if (!mg_rec->want_fx || mg_rec->cap->quiet || mg_fx_is_aten(mg_rec->cap) || !mg_skip_is_torch(co))
    return false;
  const char *name = PyUnicode_AsUTF8(co->co_name), *file = PyUnicode_AsUTF8(co->co_filename);
  bool named = name && (!strcmp(name, "backward") || !strcmp(name, "grad"));
  return named && file && (strstr(file, "torch/_tensor.py") || strstr(file, "torch/autograd/__init__.py")) &&
         !mg_fx_takes_engine(mg_rec->cap);
}

/* Calls fn with the arguments of c, bound to self when there is one. */
static PyObject *call_forward(const MgCall *c, PyObject *fn, PyObject *self) {
  PyObject *m = self ? PyMethod_New(fn, self) : Py_NewRef(fn);
  mg_rec->tail_call = c->tail;
  PyObject *r = m ? mg_ops.call(m, c->arg, c->nargsf & ~PY_VECTORCALL_ARGUMENTS_OFFSET, c->kwnames) : NULL;
  Py_XDECREF(m);
  return r;
}

/* nn.Module.__call__ without hooks is forward(): only the emptiness of the hook dicts is guarded. */
int mg_call_module(const MgCall *c, PyObject **out) {
  PyObject *const hooks[] = {mg_names.backward_hooks, mg_names.backward_pre_hooks, mg_names.forward_hooks,
                             mg_names.forward_pre_hooks};
  PyObject *m = c->f;
  MgOlder *e = mg_older(m);
  if (!e || e->full || mg_rec_lookup_special(Py_TYPE(m), mg_names.call) != mg_torch.module_call) return 0;
  if (mg_rec_lookup_special(Py_TYPE(m), mg_names.call_impl) != mg_torch.module_call_impl) return 0;
  if (mg_rec_lookup_special(Py_TYPE(m), mg_names.getattribute) !=
      PyDict_GetItemWithError(mg_type_dict(&PyBaseObject_Type), mg_names.getattribute))
    return 0;
  PyObject *own = NULL, *mine = mg_older_attr_raw(m, mg_names.call_impl, &own);
  if (own || mine || PyErr_Occurred()) return Py_XDECREF(mine), PyErr_Occurred() ? -1 : 0;
  PyObject *compiled = mg_rec_getattr(m, mg_names.compiled_call_impl);
  Py_XDECREF(compiled);
  if (compiled != Py_None) return compiled ? 0 : -1;
  PyObject *dict[8] = {NULL};
  for (int i = 0; i < 8; i++) {
    if (i >= 4) dict[i] = mg_torch.global_hooks[i - 4];
    else {
      PyObject *seen = mg_older_attr_raw(m, hooks[i], &dict[i]);
      if (!seen && PyErr_Occurred()) return -1;
      if (seen && mg_olderdict_fill(seen)) return Py_DECREF(seen), -1;
      if (seen) dict[i] = mg_older_orig(seen);
      Py_XDECREF(seen);
    }
    uint32_t at = dict[i] ? mg_map_getp(&mg_rec->ident->by_orig, dict[i]) : MG_MAP_NONE;
    PyObject *now =
        at == MG_MAP_NONE ? dict[i] : mg_rec->ident->v[at].seen; /* the recording may have its own copy */
    if (!now || !PyDict_Check(now) || PyDict_GET_SIZE(now) || PyDict_GET_SIZE(dict[i])) return 0;
  }
  for (int i = mg_older_by_path(mg_older(m)) ? 4 : 0; i < 8; i++)
    mg_guard_empty(mg_rec->guards, dict[i]); /* dicts on a path are copies, and guarded */
  PyObject *forward = mg_rec_getattr(m, mg_names.forward);
  if (!forward) return -1;
  mg_rec->tail_call = c->tail;
  *out = mg_ops.call(forward, c->arg, c->nargsf & ~PY_VECTORCALL_ARGUMENTS_OFFSET, c->kwnames);
  if (mg_rec) mg_rec->called_frame = true; /* what is unread in the arguments was that call's concern */
  Py_DECREF(forward);
  return *out ? 1 : -1;
}

/* A function behind a wrapper of torch. */
static PyObject *call_wrapped(const MgCall *c, PyObject *fn, PyObject *self) {
  PyObject *r = fn ? call_forward(c, fn, self) : NULL;
  Py_XDECREF(fn);
  return r;
}

static bool call_asks_compiling(PyObject *fn) {
  return fn == mg_torch.is_compiling[0] || fn == mg_torch.is_compiling[1];
}

/* super().__getattr__(name) in a class of modules: only the keys that decide are guarded. */
static bool call_submodule(const MgCall *c, PyObject *self, PyObject **out) {
  Py_ssize_t first = self ? 0 : 1;
  PyObject *m = self ? self : c->npos ? c->arg[0] : NULL;
  if (c->kwnames || c->npos != first + 1 || !mg_older(m) || !PyUnicode_CheckExact(c->arg[first]))
    return false;
  *out = mg_rec_submodule(m, c->arg[first]);
  if (mg_rec) mg_rec->called_frame = true; /* the name has been looked at, where it had to be */
  return true;
}

PyObject *mg_call_function(const MgCall *c, PyObject *fn) {
  PyObject *out, *self = PyMethod_Check(c->f) ? PyMethod_GET_SELF(c->f) : NULL;
  if (call_asks_compiling(fn)) {
    mg_rec->asked_compiling = true;
    return PyBool_FromLong(!mg_retry_denied(mg_rec, RETRY_compiling));
  }
  if (fn == mg_torch.is_make_fx && mg_rec->want_fx)
    Py_RETURN_TRUE; /* no fused attention in a torch-level graph, as under torch.compile */
  if (fn == mg_torch.check_with && ((c->n > 1 && c->arg[1] == Py_True) || mg_symvalue_check(c->arg, c->n)))
    Py_RETURN_NONE;
  if (!self && mg_symask_call(fn, c->arg, c->npos, c->kwnames, &out)) return out;
  if (mg_rec_replaced(fn, self, c->arg, c->nargsf, c->kwnames, &out)) return out;
  if (mg_draw_method(c, fn, self, &out)) return out;
  if (fn == mg_torch.module_getattr && call_submodule(c, self, &out)) return out;
  if (call_is_disabled(fn)) {
    PyObject *original = call_torch_original(fn);
    return original ? call_wrapped(c, original, self) : call_disabled(fn);
  }
  if (call_is_mark(fn))
    return mg_rec_break(BK_user, "torch._dynamo.%s()", PyUnicode_AsUTF8(((PyFunctionObject *)fn)->func_name));
  if (mg_rec_marked(fn, self, c->arg, c->nargsf, c->kwnames, &out)) return out;
  if (call_is_engine(fn))
    return mg_rec_break(BK_custom_backend, "the autograd engine, in a graph for a custom backend");
  if (PyFunction_GET_CODE(fn) == mg_torch.internal_disable_code) /* torch keeps its own tracer out, not us */
    return call_wrapped(c, PyObject_GetAttr(fn, mg_names.wrapped), self);
  return mg_call_frame(c, fn);
}
