/* The type _magneto.Callable: a function with its compiled entries, and the hot path of a call.
 * In: a callable and the options of one magneto.compile().  Out: the same results as calling it.
 * On a hit the arguments are bound into slots in C, the guards of the entries at offset 0 are checked on
 * them, and the segment runs: no Python frame, no hook.  On a miss, or when the segment breaks, the function
 * is called under the hook. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>
#include "base/log.h"
#include "entry/guard/guard_set.h"
#include "entry/launch/config.h"
#include "entry/launch/events.h"
#include "entry/launch/plan_call.h"
#include "entry/launch/stats.h"
#include "entry/run/entry.h"
#include "entry/run/entry_cache.h"
#include "entry/run/exec_sizes.h"
#include "entry/run/frame_cost.h"
#include "entry/run/snapshot_program.h"
#include "entry/run/staged_exec.h"
#include "entry/run/whole_trial.h"
#include "entry/launch/trial_clock.h"
#include "frame/eval_frame.h"
#include "frame/stance.h"
#include "host/python/code_info.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "host/python/pyframe.h"
#include "results.h"
#include "record/call/call.h"
#include "record/core/recording.h"
#include "record/object/wrap.h"

/* Where the last call found that CPython runs this one; the bucket counts how many more. */
typedef struct CallableRest {
  MgBucket *bucket;     /* borrowed, alive while mg_cache_epoch is epoch; NULL if there is none */
  const PyObject *code; /* the function's, which the program may replace; never followed */
  unsigned long epoch;
} CallableRest;

typedef struct Callable {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject *fn;    /* what is compiled */
  PyObject *plain; /* what CPython calls in its place, which does the same; NULL: fn */
  MgConfig cfg;
  CallableRest rest;
  PyObject *dict; /* __dict__: what functools.wraps copies, and the Python face */
  PyObject *weakrefs;
} Callable;

static PyTypeObject callable_type;

/* ---- binding of arguments, as CPython's calls do it ---- */

typedef struct Binding {
  PyFunctionObject *func;
  PyCodeObject *co;
  PyObject **slot;           /* co_nlocalsplus entries, borrowed values */
  PyObject *varargs, *varkw; /* new references: *args and **kwargs made here */
} Binding;

/* Index of a parameter that may be given by keyword, or -1. */
static int callable_parameter(const PyCodeObject *co, PyObject *name) {
  int total = co->co_argcount + co->co_kwonlyargcount;
  PyObject **names = ((PyTupleObject *)co->co_localsplusnames)->ob_item;
  for (int i = co->co_posonlyargcount; i < total; i++)
    if (names[i] == name) return i;
  for (int i = co->co_posonlyargcount; i < total; i++)
    if (PyUnicode_Compare(names[i], name) == 0) return i;
  return -1;
}

/* False: the arguments do not fit (CPython will raise) or memory ran out (exception
 * cleared; the slow path retries). */
static bool callable_bind_keywords(Binding *b, PyObject *const *values, PyObject *kwnames) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(kwnames); i++) {
    PyObject *name = PyTuple_GET_ITEM(kwnames, i);
    int at = callable_parameter(b->co, name);
    if (at < 0) {
      if (!b->varkw || PyDict_SetItem(b->varkw, name, values[i])) return false;
    } else if (b->slot[at]) {
      return false;
    } else {
      b->slot[at] = values[i];
    }
  }
  return true;
}

static bool callable_bind_defaults(Binding *b) {
  const PyCodeObject *co = b->co;
  PyObject *defaults = b->func->func_defaults, *kwdefaults = b->func->func_kwdefaults;
  Py_ssize_t n = defaults ? PyTuple_GET_SIZE(defaults) : 0, first = co->co_argcount - n;
  for (int i = 0; i < co->co_argcount; i++) {
    if (b->slot[i]) continue;
    if (i < first) return false;
    b->slot[i] = PyTuple_GET_ITEM(defaults, i - first);
  }
  for (int i = co->co_argcount; i < co->co_argcount + co->co_kwonlyargcount; i++) {
    if (b->slot[i]) continue;
    PyObject *name = PyTuple_GET_ITEM(co->co_localsplusnames, i);
    PyObject *v = kwdefaults ? PyDict_GetItemWithError(kwdefaults, name) : NULL;
    if (!v) return false;
    b->slot[i] = v;
  }
  return true;
}

/* self (or NULL) and the arguments of a vectorcall into b->slot (all NULL before). */
static bool callable_bind(Binding *b, PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                          PyObject *kwnames) {
  const PyCodeObject *co = b->co;
  Py_ssize_t k = self != NULL, given = nargs + k,
             positional = given < co->co_argcount ? given : co->co_argcount;
  if (co->co_argcount == given && !kwnames && !co->co_kwonlyargcount &&
      !(co->co_flags & (CO_VARARGS | CO_VARKEYWORDS))) {
    if (k) b->slot[0] = self;
    memcpy(b->slot + k, args, sizeof *args * (size_t)nargs);
    return true;
  }
  if (given > co->co_argcount && !(co->co_flags & CO_VARARGS)) return false;
  for (Py_ssize_t i = 0; i < positional; i++) b->slot[i] = i < k ? self : args[i - k];
  int at = co->co_argcount + co->co_kwonlyargcount;
  if (co->co_flags & CO_VARARGS) {
    Py_ssize_t n = given - positional;
    if (!(b->varargs = PyTuple_New(n))) return false;
    for (Py_ssize_t i = 0; i < n; i++) {
      Py_ssize_t from = positional + i;
      PyTuple_SET_ITEM(b->varargs, i, Py_NewRef(from < k ? self : args[from - k]));
    }
    b->slot[at++] = b->varargs;
  }
  if (co->co_flags & CO_VARKEYWORDS) {
    if (!(b->varkw = PyDict_New())) return false;
    b->slot[at] = b->varkw;
  }
  return (!kwnames || callable_bind_keywords(b, args + nargs, kwnames)) && callable_bind_defaults(b);
}

/* ---- calling ---- */

#define CALLABLE_SMALL MG_SMALL_VALS /* slots and values that fit on the C stack */

/* The Python function behind an object, with its bound self (borrowed), or NULL. */
static PyFunctionObject *callable_function(PyObject *fn, PyObject **self) {
  *self = NULL;
  if (PyMethod_Check(fn)) {
    *self = PyMethod_GET_SELF(fn);
    fn = PyMethod_GET_FUNCTION(fn);
  } else if (!PyFunction_Check(fn) && Py_TYPE(fn)->tp_flags & Py_TPFLAGS_HEAPTYPE && !PyType_Check(fn)) {
    static PyObject *name;
    if (!name && !(name = PyUnicode_InternFromString("__call__"))) {
      PyErr_Clear(); /* out of memory: its frames are found by the hook */
      return NULL;
    }
    *self = fn;
    fn = mg_pyframe_type_lookup(Py_TYPE(fn), name);
  }
  return fn && PyFunction_Check(fn) ? (PyFunctionObject *)fn : NULL;
}

/* The code whose frames are fn itself, wherever its file lies; NULL: none. */
static PyCodeObject *callable_root(PyObject *fn) {
  PyObject *self, *held = NULL;
  if (Py_IS_TYPE(fn, mg_torch.partial) && !(fn = held = PyObject_GetAttr(fn, mg_names.func)))
    mg_clear_as_no();
  PyFunctionObject *func = fn ? callable_function(fn, &self) : NULL;
  Py_XDECREF(held); /* the partial holds it */
  return func ? (PyCodeObject *)func->func_code : NULL;
}

static PyObject *callable_eager(Callable *c, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
  MgHookMode mode = mg_hook_mode;
  mg_hook_mode = HOOK_off;
  Py_INCREF(c);
  PyObject *r = PyObject_Vectorcall(c->plain ? c->plain : c->fn, args, nargsf, kwnames);
  Py_DECREF(c);
  mg_hook_mode = mode;
  return r;
}

/* Will every call of c ask this bucket?  Not where an argument tells module instances apart. */
static bool callable_always_asks(const MgBucket *b, const PyObject *self) {
  return b->site->key_slot == MG_KEY_NONE || (self && !b->site->key_slot);
}

/* Is this call CPython's whatever its arguments are?  Then none of them is looked at. */
static bool callable_rests(Callable *c) {
  const CallableRest *r = &c->rest;
  if (!r->bucket || r->epoch != mg_cache_epoch || mg_stance_backend()) return false;
  PyObject *self;
  PyFunctionObject *func = callable_function(c->fn, &self);
  return func && func->func_code == r->code && callable_always_asks(r->bucket, self) &&
         mg_cache_rests(r->bucket);
}

typedef struct CallableCall { /* as it came */
  Callable *c;
  PyObject *const *args;
  size_t nargsf;
  PyObject *kwnames;
} CallableCall;

/* The call as CPython runs it, or as the plan does, where both are timed.  found: when the look for an entry
 * began; 0: not known. */
static int callable_timed(MgEntry *e, PyObject **vals, MgExecAt *at, const CallableCall *call, double found,
                          PyObject **result) {
  bool eager = mg_whole_leaves(e, at, !call->c->cfg.fullgraph), timed = mg_whole_times(e, at);
  double t0 = !timed ? 0 : found && !eager ? found : mg_now_ms();
  int rc = 0;
  if (timed && at) at->refs++;
  if (eager) {
    mg_exec_leave(at);
    *result = callable_eager(call->c, call->args, call->nargsf, call->kwnames);
  } else {
    rc = mg_entry_run(e, vals, at, NULL, result);
  }
  if (timed && !rc) mg_whole_note(e, at, eager, mg_trial_took(eager ? WAY_eager : WAY_compiled, t0));
  if (timed) mg_exec_leave(at);
  return rc;
}

/* Tries the entries that return.  1: *result set (NULL with an exception), 0: call the function, -1:
 * without compiling anything. */
static int callable_hit(const CallableCall *call, PyFunctionObject *func, PyObject *self, PyObject **result) {
  Callable *c = call->c;
  PyCodeObject *co = (PyCodeObject *)func->func_code;
  MgCodeInfo *info = mg_pyframe_extra(co);
  MgSite *site = info ? mg_cache_site(info, c->cfg.id, 0, 0, false) : NULL;
  if (!site || !(site->n || site->rests)) return 0;
  double start = site->timed ? mg_now_ms() : 0;
  PyObject *slot_small[CALLABLE_SMALL], *vals_small[CALLABLE_SMALL], **vals = vals_small, **slot = slot_small;
  int nvals = CALLABLE_SMALL, found = 0, n = co->co_nlocalsplus;
  if (n > CALLABLE_SMALL && !(slot = PyMem_New(PyObject *, n))) return 0;
  memset(slot, 0, sizeof *slot * (size_t)n);
  Binding b = {.func = func, .co = co, .slot = slot};
  if (callable_bind(&b, self, call->args, PyVectorcall_NARGS(call->nargsf), call->kwnames)) {
    MgSlots slots = {slot, n, (PyObject *)func};
    MgExecAt *at;
    MgBucket *bucket = site->rests ? mg_cache_bucket(site, &slots, false) : NULL;
    if (bucket && mg_cache_rests(bucket)) {
      if (callable_always_asks(bucket, self))
        c->rest = (CallableRest){bucket, (PyObject *)co, mg_cache_epoch};
      found = -1;
      goto done;
    }
    PyThreadState *ts = PyThreadState_Get();
    bool held = mg_pyframe_hold_signals(ts, true); /* what a handler raises is no answer to a guard */
    MgEntry *e = mg_cache_find(site, &slots, &vals, &nvals, &at, MG_FIND_returns);
    mg_pyframe_hold_signals(ts, held);
    if (!e && bucket && !PyErr_Occurred() && mg_cost_leaves(bucket)) {
      found = -1;
    } else if (e && e->rest) {
      mg_exec_leave(at);
      mg_entry_release(e);
    } else if (e) {
      mg_stats.hits++;
      e->hits++;
      *result = NULL;
      found = 1;
      mg_cache_work += e->nnode > 0;
      int rc = callable_timed(e, vals, at, call, start, result);
      if (rc) *result = NULL;
      bool other = rc == MG_STAGES_OTHER;
      if (rc == MG_RUN_RAISED) found = -1;
      if (rc == MG_CLAIM_FALSE || other) found = 0;
      if (rc == MG_CLAIM_FALSE || (other && c->cfg.fullgraph)) e->rest++; /* the frame does not try again */
      else if (other) mg_cache_break_data(e);
      mg_entry_release(e);
    }
  } else {
    PyErr_Clear(); /* the call itself raises again */
  }
done:
  Py_XDECREF(b.varargs);
  Py_XDECREF(b.varkw);
  if (vals != vals_small) free(vals);
  if (slot != slot_small) PyMem_Free(slot);
  return found;
}

/* The same for a place that is left to CPython, which reports show. */
static PyObject *callable_left(Callable *c, PyFunctionObject *func, PyObject *const *args, size_t nargsf,
                               PyObject *kwnames) {
  if (!mg_measure_on) return callable_eager(c, args, nargsf, kwnames);
  PyCodeObject *co = (PyCodeObject *)Py_NewRef(func->func_code);
  uint64_t t = mg_ticks();
  PyObject *r = callable_eager(c, args, nargsf, kwnames);
  mg_place_add(PLACE_eager, co, 0, co->co_firstlineno, t);
  Py_DECREF(co);
  return r;
}

/* Compiled by the back end that the stance asks for. */
static PyObject *callable_forced(Callable *c, PyObject *backend, PyObject *const *args, size_t nargsf,
                                 PyObject *kwnames) {
  MgConfig cfg = c->cfg;
  PyObject *r = NULL;
  cfg.backend = backend == Py_None ? NULL : backend;
  cfg.isolated = 0; /* such configurations end with their callable, and this one ends here */
  if (!(cfg.id = mg_config_acquire(&cfg))) return NULL;
  Py_INCREF(backend);
  Py_INCREF(c);
  MgHookState before = mg_hook_enter(&cfg, callable_root(c->fn));
  r = PyObject_Vectorcall(c->fn, args, nargsf, kwnames);
  mg_hook_leave(before);
  mg_config_release(cfg.id);
  Py_DECREF(c);
  Py_DECREF(backend);
  return r;
}

static PyObject *callable_run(PyObject *o, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
  Callable *c = (Callable *)o;
  if (!c->fn) { /* cleared as part of a dead cycle */
    PyErr_SetString(PyExc_RuntimeError, "magneto: the compiled function is gone");
    return NULL;
  }
  if (c->cfg.disable) { /* with everything that it calls */
    if (mg_hook_mode == HOOK_record && mg_rec)
      return mg_rec_break(BK_disabled, "%s is disabled", Py_TYPE(c->fn)->tp_name);
    return callable_eager(c, args, nargsf, kwnames);
  }
  /* Inside of a recording the function is simply part of it; under a debugger it runs as written. */
  if (mg_hook_mode == HOOK_record && mg_rec) {
    PyObject *fn = mg_wrap(c->fn, 0), *r = fn ? mg_rec_call(fn, args, nargsf, kwnames) : NULL;
    Py_XDECREF(fn);
    return r;
  }
  if (mg_pyframe_traced(PyThreadState_Get())) return PyObject_Vectorcall(c->fn, args, nargsf, kwnames);
  if (mg_stance() == STANCE_force_eager) return callable_eager(c, args, nargsf, kwnames);
  if (mg_stance_backend()) return callable_forced(c, mg_stance_backend(), args, nargsf, kwnames);
  PyObject *self, *result;
  PyFunctionObject *func = callable_function(c->fn, &self);
  CallableCall call = {c, args, nargsf, kwnames};
  int hit = func ? callable_hit(&call, func, self, &result) : 0;
  if (hit > 0) return result;
  if (hit < 0) return callable_left(c, func, args, nargsf, kwnames);
  if (mg_pyframe_finalizing()) return callable_eager(c, args, nargsf, kwnames);
  Py_INCREF(c);
  MgHookState before = mg_hook_enter(&c->cfg, callable_root(c->fn));
  result = PyObject_Vectorcall(c->fn, args, nargsf, kwnames);
  mg_hook_leave(before);
  Py_DECREF(c);
  return result;
}

/* A call that has a node in the tree of calls. */
static PyObject *callable_in_tree(Callable *c, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
  PyObject *self;
  PyFunctionObject *func = c->fn && mg_hook_mode != HOOK_record ? callable_function(c->fn, &self) : NULL;
  if (!func) return callable_run((PyObject *)c, args, nargsf, kwnames);
  MgCallMark mark =
      mg_call_enter((PyCodeObject *)func->func_code, self ? Py_TYPE(self)->tp_name : NULL, true);
  PyObject *r = callable_run((PyObject *)c, args, nargsf, kwnames);
  mg_call_leave(mark);
  return r;
}

static PyObject *callable_call(PyObject *o, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
  static _Thread_local bool within; /* a call that is measured */
  Callable *c = (Callable *)o;
  if (!mg_measure_on && c->rest.bucket) {
    MgHookMode mode = mg_hook_mode;
    if (mode != HOOK_record && callable_rests(c))
      return mode == HOOK_off ? PyObject_Vectorcall(c->plain ? c->plain : c->fn, args, nargsf, kwnames)
                              : callable_eager(c, args, nargsf, kwnames);
  }
  if (!mg_measure_on) return callable_run(o, args, nargsf, kwnames);
  if (within) return callable_in_tree(c, args, nargsf, kwnames);
  within = true;
  uint64_t t = mg_ticks();
  PyObject *r = callable_in_tree(c, args, nargsf, kwnames);
  mg_ticks_add(&mg_stats.calls, t);
  within = false;
  return r;
}

/* ---- the type ---- */

static PyObject *callable_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *names[] = {
      "fn",     "backend",      "fullgraph", "dynamic",         "disable",  "eager_backend",
      "freeze", "keep_layout",  "threads",   "recompile_limit", "isolated", "explained",
      "verify", "verify_every", "numerics",  "search",          "plain",    NULL};
  static uint32_t isolated_ids;
  PyObject *fn, *backend = Py_None, *plain = NULL;
  int fullgraph = 0, dynamic = -1, disable = 0, eager = 0, freeze = 0, keep_layout = 0, threads = 0,
      limit = 0, isolated = 0, explained = 0, verify = 0, every = 0, numerics = MN_fast, search = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$OpippppiippiiipO:Callable", names, &fn, &backend,
                                   &fullgraph, &dynamic, &disable, &eager, &freeze, &keep_layout, &threads,
                                   &limit, &isolated, &explained, &verify, &every, &numerics, &search,
                                   &plain))
    return NULL;
  if (!PyCallable_Check(fn)) return PyErr_Format(PyExc_TypeError, "expected a callable, got %R", fn);
  if (backend != Py_None && !PyCallable_Check(backend))
    return PyErr_Format(PyExc_TypeError, "backend must be a callable or None, got %R", backend);
  if (numerics < MN_fast || numerics > MN_eager)
    return PyErr_Format(PyExc_ValueError, "numerics must be 0, 1 or 2, got %d", numerics);
  Callable *c = (Callable *)type->tp_alloc(type, 0);
  if (!c) return NULL;
  c->vectorcall = callable_call;
  c->fn = Py_NewRef(fn);
  c->plain = plain == Py_None ? NULL : Py_XNewRef(plain);
  c->cfg = (MgConfig){.backend = backend == Py_None ? NULL : Py_NewRef(backend),
                      .eager_backend = eager,
                      .fullgraph = fullgraph,
                      .disable = disable,
                      .dynamic = dynamic,
                      .opt = {.freeze = freeze,
                              .keep_layout = keep_layout,
                              .threads = threads,
                              .search = search,
                              .numerics = (uint8_t)numerics,
                              .verify = verify,
                              .verify_every = every},
                      .isolated = isolated ? ++isolated_ids : 0,
                      .explained = explained,
                      .recompile_limit = limit};
  if (!(c->cfg.id = mg_config_acquire(&c->cfg))) {
    Py_DECREF(c);
    return NULL;
  }
  return (PyObject *)c;
}

static int callable_traverse(PyObject *o, visitproc visit, void *arg) {
  Callable *c = (Callable *)o;
  Py_VISIT(c->fn);
  Py_VISIT(c->plain);
  Py_VISIT(c->cfg.backend);
  Py_VISIT(c->dict);
  return 0;
}

static int callable_clear(PyObject *o) {
  Callable *c = (Callable *)o;
  Py_CLEAR(c->dict);
  mg_config_release(c->cfg.id); /* while the backend lives */
  c->cfg.id = 0;
  Py_CLEAR(c->cfg.backend);
  Py_CLEAR(c->fn);
  Py_CLEAR(c->plain);
  return 0;
}

static void callable_dealloc(PyObject *o) {
  Callable *c = (Callable *)o;
  PyObject_GC_UnTrack(o);
  if (c->weakrefs) PyObject_ClearWeakRefs(o);
  callable_clear(o);
  Py_TYPE(o)->tp_free(o);
}

static PyObject *callable_get(PyObject *o, PyObject *obj, PyObject *type) {
  return obj && obj != Py_None ? PyMethod_New(o, obj) : Py_NewRef(o);
}

static PyObject *callable_repr(PyObject *o) {
  return PyUnicode_FromFormat("<magneto.compile of %R>", ((Callable *)o)->fn);
}

/* Copied and pickled as functions are: by name. */
static PyObject *callable_reduce(PyObject *o, PyObject *unused) {
  return PyObject_GetAttrString(o, "__qualname__");
}

static PyObject *callable_options(PyObject *o, PyObject *unused) {
  const MgConfig *c = &((Callable *)o)->cfg;
  return Py_BuildValue("{s:O,s:O,s:i,s:O,s:O,s:O,s:O,s:i,s:i,s:O,s:i,s:i,s:i,s:O}", "backend",
                       c->backend ? c->backend : Py_None, "fullgraph", c->fullgraph ? Py_True : Py_False,
                       "dynamic", c->dynamic, "disable", c->disable ? Py_True : Py_False, "eager_backend",
                       c->eager_backend ? Py_True : Py_False, "freeze", c->opt.freeze ? Py_True : Py_False,
                       "keep_layout", c->opt.keep_layout ? Py_True : Py_False, "threads", c->opt.threads,
                       "recompile_limit", c->recompile_limit, "isolated", c->isolated ? Py_True : Py_False,
                       "verify", c->opt.verify, "verify_every", c->opt.verify_every, "numerics",
                       c->opt.numerics, "search", c->opt.search ? Py_True : Py_False);
}

static PyMethodDef callable_methods[] = {
    {"__reduce__", callable_reduce, METH_NOARGS, "Its name."},
    {"options", callable_options, METH_NOARGS, "The arguments that it was made with, as a dict; without fn."},
    {NULL, NULL, 0, NULL}};
static PyMemberDef callable_members[] = {
    {"__wrapped__", T_OBJECT, offsetof(Callable, fn), READONLY, "The callable that was given."},
    {"config_id", T_UINT, offsetof(Callable, cfg.id), READONLY,
     "Number of these options in entries(): equal ones share what they compiled."},
    {NULL}};

/* What tools that read a function's code ask it for: the wrapped one's. */
static PyObject *callable_of_wrapped(PyObject *o, void *name) {
  PyObject *fn = ((Callable *)o)->fn;
  return fn ? PyObject_GetAttrString(fn, name)
            : PyErr_Format(PyExc_AttributeError, "the compiled function is gone");
}

#define CALLABLE_OF_WRAPPED(name) {name, callable_of_wrapped, NULL, "That of __wrapped__.", name}
static PyGetSetDef callable_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    CALLABLE_OF_WRAPPED("__code__"),
    CALLABLE_OF_WRAPPED("__globals__"),
    CALLABLE_OF_WRAPPED("__closure__"),
    CALLABLE_OF_WRAPPED("__defaults__"),
    CALLABLE_OF_WRAPPED("__kwdefaults__"),
    {NULL}};

static PyTypeObject callable_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "magneto._magneto.Callable",
    .tp_doc = "Callable(fn, *, backend=None, fullgraph=False, ...): fn, compiled on first use.",
    .tp_basicsize = sizeof(Callable),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = callable_new,
    .tp_dealloc = callable_dealloc,
    .tp_traverse = callable_traverse,
    .tp_clear = callable_clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Callable, vectorcall),
    .tp_dictoffset = offsetof(Callable, dict),
    .tp_weaklistoffset = offsetof(Callable, weakrefs),
    .tp_descr_get = callable_get,
    .tp_repr = callable_repr,
    .tp_methods = callable_methods,
    .tp_members = callable_members,
    .tp_getset = callable_getset,
};

int mg_callable_init(PyObject *module) {
  if (PyType_Ready(&callable_type)) return -1;
  return PyModule_AddObjectRef(module, "Callable", (PyObject *)&callable_type);
}
