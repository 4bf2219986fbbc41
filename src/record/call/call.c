/* Calls while recording. Python functions are called for real: CPython binds the arguments and the hook
 * records the frame.  C functions run when pure.def allows it for these arguments; the ones that read
 * attributes or global state are done here with guards.  Everything else is a graph break. */
#include "record/call/call.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "entry/guard/guard_add.h"
#include "entry/launch/config.h"
#include "host/python/hook_mode.h"
#include "host/python/names.h"
#include "host/python/pyframe.h"
#include "host/python/pyobject.h"
#include "host/python/trace_rules.h"
#include "record/autograd/autograd_function.h"
#include "record/autograd/backward_pass.h"
#include "record/call/array_calls.h"
#include "record/call/c_builtins.h"
#include "record/call/deferred_logging.h"
#include "record/call/marked_functions.h"
#include "record/call/plain_data.h"
#include "record/call/python_calls.h"
#include "record/call/size_checks.h"
#include "record/call/substitutes.h"
#include "record/call/torch_calls.h"
#include "record/core/c_functions.h"
#include "record/core/call_args.h"
#include "record/core/capture.h"
#include "record/core/identity.h"
#include "record/core/loop.h"
#include "record/core/recording.h"
#include "record/dispatch/recurrent.h"
#include "record/fx/fx.h"
#include "record/higher_order/fx_functorch.h"
#include "record/higher_order/higher_order.h"
#include "record/numpy/array_type.h"
#include "record/numpy/host_random.h"
#include "record/object/attributes.h"
#include "record/object/finalizers.h"
#include "record/object/items.h"
#include "record/object/lazy_constants.h"
#include "record/object/lazy_text.h"
#include "record/object/namespaces.h"
#include "record/object/wrap.h"
#include "record/snapshot/torch_switches.h"
#include "record/symbolic/item_numbers.h"
#include "record/symbolic/number.h"
#include "record/symbolic/number_ops.h"
#include "record/symbolic/sizes.h"
#include "record/tensor/function_modes.h"
#include "record/tensor/subclass_calls.h"
#include "runtime/process/torch_abi.h"

/* Is f, without its owner, called one of these? */
static bool call_is_named(PyObject *f, const char *const *names) {
  char buf[256];
  const char *name = mg_policy_method(f, buf, sizeof buf);
  while (*names && strcmp(name, *names)) names++;
  return *names != NULL;
}

/* Methods of dicts that only look things up. */
static bool call_reads_dict(PyObject *f) {
  static const char *const names[] = {
      "get",  "__getitem__", "__contains__", "keys", "__len__", "__iter__", "len",
      "list", "tuple",       "isinstance",   "bool", "iter",    NULL};
  return call_is_named(f, names);
}

/* Methods of strings and containers that go over what they are given. */
static bool call_goes_over(PyObject *f) {
  static const char *const names[] = {"join",
                                      "extend",
                                      "extendleft",
                                      "fromkeys",
                                      "update",
                                      "union",
                                      "intersection",
                                      "difference",
                                      "symmetric_difference",
                                      "intersection_update",
                                      "difference_update",
                                      "symmetric_difference_update",
                                      "issubset",
                                      "issuperset",
                                      "isdisjoint",
                                      "__iadd__",
                                      NULL};
  return call_is_named(f, names);
}

static bool call_is_c(PyObject *f) {
  return PyCFunction_Check(f) || Py_TYPE(f) == &PyMethodDescr_Type || Py_TYPE(f) == &PyWrapperDescr_Type ||
         Py_TYPE(f) == mg_method_wrapper_type();
}

/* attrgetter and methodcaller objects: C code that is given one reads attributes
 * behind the recorder's back. */
static bool call_reads_attributes(PyObject *o) {
  if (!Py_TYPE(o)->tp_call || PyType_Check(o) || PyFunction_Check(o) || PyMethod_Check(o)) return false;
  return mg_policy_of(o).action == ACT_getter && strcmp(Py_TYPE(o)->tp_name, "operator.itemgetter");
}

/* May this object be handed to C code?  A break is set when not. */
static bool call_may_see(const MgCall *c, PyObject *o, bool stored) {
  char name[256];
  PyObject *on = mg_policy_self(c->f);
  bool container = on ? PyList_Check(on) || PyDict_Check(on)
                      : c->n && (PyList_Check(c->arg[0]) || PyDict_Check(c->arg[0]));
  if (stored && !container && PyObject_CheckBuffer(o) &&
      mg_older_opaque(o)) { /* torch.from_numpy, torch.tensor ... */
    mg_rec_break(BK_older_object, "%s reads the memory of an older %s",
                 mg_policy_name(c->f, name, sizeof name), Py_TYPE(o)->tp_name);
    return false;
  }
  if (!stored && mg_older_opaque(o) && !(call_reads_dict(c->f) && mg_rec_readable_dict(o))) {
    mg_rec_break(BK_older_object, "%s on an older %s", mg_policy_name(c->f, name, sizeof name),
                 Py_TYPE(o)->tp_name);
    return false;
  }
  if (mg_rec_is_namespace(o)) {
    mg_rec_break(BK_namespace, "%s on a namespace", mg_policy_name(c->f, name, sizeof name));
    return false;
  }
  if (PyGen_CheckExact(o) && !mg_is_fresh(o)) {
    mg_rec_break(BK_generator, "a generator from outside is passed to %s",
                 mg_policy_name(c->f, name, sizeof name));
    return false;
  }
  /* map(print, ...); an attribute read by C would have no guard */
  if ((!stored && call_reads_attributes(o)) || (call_is_c(o) && mg_policy_of(o).action == ACT_no)) {
    mg_rec_break(BK_callback, "%s is passed to C", mg_policy_name(o, name, sizeof name));
    return false;
  }
  return true;
}

/* C methods that write into an exception: nothing can undo that on an older one. */
static bool call_writes_older(const MgCall *c, PyObject *on) {
  static const char *const names[] = {"__init__", "__setstate__", "add_note", "with_traceback", NULL};
  char name[256];
  if (!on || !PyExceptionInstance_Check(on) || !mg_older(on) || !call_is_named(c->f, names)) return false;
  mg_rec_break(BK_older_exception, "%s on an older %s", mg_policy_name(c->f, name, sizeof name),
               Py_TYPE(on)->tp_name);
  return true;
}

/* Checks self and the arguments of a C function. */
static bool call_check_args(const MgCall *c, bool older_ok) {
  PyObject *self = mg_policy_self(c->f);
  bool method = self || Py_TYPE(c->f) == &PyMethodDescr_Type || Py_TYPE(c->f) == &PyWrapperDescr_Type;
  PyObject *on = self ? self : method && c->n ? c->arg[0] : NULL;
  /* what a partial of a Python function holds, only that function sees */
  bool kept = c->f == (PyObject *)mg_torch.partial && c->npos && PyFunction_Check(c->arg[0]);
  bool set = on && PyAnySet_Check(on), dict = on && PyDict_Check(on) && mg_older(on);
  Py_ssize_t key = self ? 0 : 1; /* a dict looks up its first argument by its hash, a set every one */
  if (on) mg_compared(on);
  if (call_writes_older(c, on) || (self && !older_ok && !call_may_see(c, self, false))) return false;
  for (Py_ssize_t i = 0; i < c->n; i++) {
    bool hashed = Py_TYPE(c->arg[i])->tp_hash !=
                  PyObject_HashNotImplemented; /* no list or dict, which update() takes */
    if (hashed && (set ? i >= key : dict && i == key && i < c->npos)) mg_older_pin(c->arg[i]);
    mg_compared(c->arg[i]);
    bool is_self = i == 0 && method && !self;
    /* most methods of containers only store what they are given */
    bool stored = method && !is_self && !(Py_TYPE(c->arg[i])->tp_iternext && call_goes_over(c->f));
    if (!call_may_see(c, c->arg[i], older_ok || kept || stored)) return false;
  }
  return true;
}

/* ---- special handlings ---- */

static PyObject *call_getattr(const MgCall *c, bool only_has) {
  PyObject *r = mg_rec_getattr_moving(c->arg[0], c->arg[1]);
  if (!r && !PyErr_Occurred()) r = mg_rec_getattr(c->arg[0], c->arg[1]);
  if (r) {
    if (!only_has) return r;
    Py_DECREF(r);
    Py_RETURN_TRUE;
  }
  if ((!only_has && c->n < 3) || mg_rec->abort || !PyErr_ExceptionMatches(PyExc_AttributeError)) return NULL;
  mg_clear_if(PyExc_AttributeError);
  return only_has ? Py_NewRef(Py_False) : Py_NewRef(c->arg[2]);
}

static PyObject *call_none(int rc) { return rc ? NULL : Py_NewRef(Py_None); }

/* object.__setattr__ and friends, as descriptors or bound: self first, then the rest. */
static PyObject *call_object_method(const MgCall *c, MgAction act) {
  PyObject *self = mg_policy_self(c->f);
  PyObject *const *a = c->arg;
  Py_ssize_t n = c->n;
  if (!self) {
    if (!n) return mg_call_plain(c);
    self = *a++;
    n--;
  }
  bool tensor = mg_standin_check(self);
  /* CPython refuses object.__setattr__ on classes. */
  if (PyType_Check(self) && Py_TYPE(c->f) == &PyWrapperDescr_Type &&
      PyDescr_TYPE(c->f) == &PyBaseObject_Type && act != ACT_object_getattr)
    return mg_call_plain(c);
  if (act == ACT_object_setattr && n == 2)
    return call_none(tensor ? mg_rec_standin_setattr(self, a[0], a[1])
                            : mg_rec_generic_setattr(self, a[0], a[1]));
  if (act == ACT_object_delattr && n == 1)
    return call_none(tensor ? mg_rec_standin_setattr(self, a[0], NULL)
                            : mg_rec_generic_setattr(self, a[0], NULL));
  if (act == ACT_object_getattr && n == 1)
    return tensor ? mg_rec_standin_getattr(self, a[0]) : mg_rec_object_getattr(self, a[0]);
  return mg_call_plain(c);
}

static PyObject *call_fresh(PyObject *made) { return mg_fresh(made), made; }

/* A getter as C code should see it: what it calls is recorded. */
static PyObject *call_getter_in_c(PyObject *getter, PyObject *const *args, Py_ssize_t n, PyObject *kwnames) {
  return mg_rec_call(getter, args, (size_t)n, kwnames);
}
static PyMethodDef call_getter_def = {"getter", (PyCFunction)(void (*)(void))call_getter_in_c,
                                      METH_FASTCALL | METH_KEYWORDS, NULL};

/* sorted(key=), min, max, reduce, map: they call what they are given. */
static PyObject *call_consumer(const MgCall *c) {
  PyObject *small[8], **arg = c->n <= 8 ? small : mg_malloc(sizeof *arg * (size_t)c->n), *r = NULL;
  if (!arg) return PyErr_NoMemory();
  Py_ssize_t done = 0;
  for (; done < c->n; done++) {
    PyObject *x = c->arg[done]; /* the class of a stand-in is its own affair */
    arg[done] = call_reads_attributes(x) || x == (PyObject *)&PyType_Type
                    ? PyCFunction_New(&call_getter_def, x)
                    : Py_NewRef(x);
    if (!arg[done]) break;
  }
  MgCall inner = *c;
  inner.arg = arg;
  inner.nargsf = (size_t)c->npos;
  if (done == c->n && call_check_args(&inner, false)) r = mg_call_plain(&inner);
  while (done-- > 0) Py_DECREF(arg[done]);
  if (arg != small) free(arg);
  return PyType_Check(c->f) ? call_fresh(r) : r;
}

/* max and min.  Which of several tensors is the largest decides nothing but the result
 * where a break is an error. */
static PyObject *call_extreme(const MgCall *c) {
  PyObject *r = NULL, *items = NULL, *one[1];
  MgCall list = *c;
  if (!c->kwnames && mg_rec->cfg->fullgraph) {
    if (c->n == 1) { /* read once: it may be an iterator */
      if (!(one[0] = items = mg_loop_list(mg_rec->top, c->arg[0]))) return NULL;
      list.arg = one;
      list.nargsf = 1;
    }
    r = mg_call_extreme(&list);
  }
  if (!r && !PyErr_Occurred()) r = call_consumer(&list);
  Py_XDECREF(items);
  return r;
}

/* id and hash of an older object are those of the original.  Where ids are keys of a memo it does
 * not matter which they are. */
static PyObject *call_identity(const MgCall *c) {
  if (c->n != 1) return mg_call_plain(c);
  PyObject *o = mg_older_orig(c->arg[0]);
  const MgLoop *l = mg_rec->top;
  bool memo = l && mg_skip_is_copy(l->v.code), id = ((PyCFunctionObject *)c->f)->m_ml->ml_name[0] == 'i';
  if (!memo) mg_older_pin(c->arg[0]);
  if (o == c->arg[0] && id && !memo && !mg_older(o)) return mg_call_id_of_new(c);
  if (o == c->arg[0] || !(id || mg_standin_check(o))) return mg_call_plain(c);
  return PyObject_CallOneArg(c->f, o);
}

/* Stand-ins answer the class of the tensor they stand for. */
static PyObject *call_class_of(PyObject *x) {
  if (mg_symfloat_is(x)) return (PyObject *)mg_symfloat_class(x);
  if (mg_array_check(x)) x = mg_array_model(x);
  return mg_standin_check(x) ? mg_standin_class(x) : (PyObject *)Py_TYPE(x);
}

/* A call that may make a class, whose namespace is the last positional argument.  Keys that are no strings
 * are compared by code of the program, and from 3.13 on CPython warns about them: once, but recording may
 * repeat. */
static PyObject *call_new_class(const MgCall *c) {
  PyObject *namespace = c->npos ? c->arg[c->npos - 1] : NULL;
  if (namespace && PyDict_Check(namespace) && !mg_pyframe_only_strings(namespace))
    return mg_rec_break(BK_class_statement, "a class with an attribute whose name is not a string");
  return call_fresh(mg_call_plain(c));
}

static PyObject *call_type(const MgCall *c) {
  return c->n != 1 || c->kwnames ? call_new_class(c) : Py_NewRef(call_class_of(c->arg[0]));
}

/* issubclass, isinstance: a class may get other bases. */
static PyObject *call_with_bases(const MgCall *c, PyObject *class) {
  if (PyType_Check(class) && !mg_is_fresh(class)) mg_guard_type_mro(mg_rec->guards, (PyTypeObject *)class);
  return mg_call_plain(c);
}

static PyObject *call_issubclass(const MgCall *c) {
  return c->n == 2 ? call_with_bases(c, c->arg[0]) : mg_call_plain(c);
}

/* ABCMeta's answer about a class, or an instance: no may become yes when a class is registered, yes stays. */
static PyObject *call_abc(const MgCall *c) {
  bool instance = strstr(((PyCFunctionObject *)c->f)->m_ml->ml_name, "instance");
  PyObject *class = c->n != 2 ? NULL : instance ? call_class_of(c->arg[1]) : c->arg[1], *r = mg_call_plain(c);
  if (r == Py_False && class && !mg_is_fresh(c->arg[0]) && !mg_is_fresh(class))
    mg_guard_not_registered(mg_rec->guards, c->arg[0], class);
  return r;
}

/* type.__call__(Meta, name, bases, namespace) makes a class; a __new__ in Python is recorded,
 * and may give another one. */
static PyObject *call_type_call(const MgCall *c) {
  PyObject *meta = mg_policy_self(c->f);
  Py_ssize_t n = c->npos - !meta;
  if (!meta && c->n) meta = c->arg[0];
  bool makes = n == 3 && meta && PyType_Check(meta) && ((PyTypeObject *)meta)->tp_new == PyType_Type.tp_new;
  return makes ? call_new_class(c) : mg_call_plain(c);
}

/* isinstance(x, C) may run __instancecheck__ in Python; stand-ins claim Tensor or Parameter. */
static PyObject *call_isinstance(const MgCall *c) {
  if (c->n == 2 && mg_symfloat_is(c->arg[0])) { /* what any such number answers */
    PyObject *zero = PyObject_CallNoArgs((PyObject *)mg_symfloat_class(c->arg[0])),
             *pair[2] = {zero, c->arg[1]};
    PyObject *r = zero ? PyObject_Vectorcall(c->f, pair, 2, NULL) : NULL;
    Py_XDECREF(zero);
    return r;
  }
  if (c->n == 2 && mg_array_check(c->arg[0])) {
    PyObject *pair[2] = {mg_array_model(c->arg[0]), c->arg[1]};
    return PyObject_Vectorcall(c->f, pair, 2, NULL);
  }
  if (c->n == 2 && mg_standin_check(c->arg[0])) {
    PyObject *k = mg_standin_class(c->arg[0]);
    int r = PyType_Check(c->arg[1]) && Py_TYPE(c->arg[1]) == &PyType_Type
                ? PyType_IsSubtype((PyTypeObject *)k, (PyTypeObject *)c->arg[1])
                : -1;
    if (r >= 0) return PyBool_FromLong(r);
    if (PyTuple_Check(c->arg[1])) {
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(c->arg[1]); i++) {
        PyObject *pair[2] = {c->arg[0], PyTuple_GET_ITEM(c->arg[1], i)};
        MgCall one = {c->f, pair, 2, NULL, 2, 2};
        PyObject *x = call_isinstance(&one);
        if (!x || x == Py_True) return x;
        Py_DECREF(x);
      }
      Py_RETURN_FALSE;
    }
  }
  return c->n == 2 ? call_with_bases(c, call_class_of(c->arg[0])) : mg_call_plain(c);
}

/* vars(x) is x.__dict__. */
static PyObject *call_vars(const MgCall *c) {
  if (c->n != 1) return mg_call_unknown(c);
  PyObject *d = mg_rec_getattr(c->arg[0], mg_names.dict);
  if (!d && PyErr_ExceptionMatches(PyExc_AttributeError))
    PyErr_SetString(PyExc_TypeError, "vars() argument must have __dict__ attribute");
  return d;
}

static PyObject *call_getset(const MgCall *c) {
  if (c->n && mg_older(c->arg[0]) && !mg_standin_check(c->arg[0])) {
    PyObject *d = mg_policy_self(c->f);
    if (!d || !PyObject_TypeCheck(c->arg[0], ((PyDescrObject *)d)->d_type)) return mg_call_unknown(c);
    return mg_rec_getattr(c->arg[0], ((PyDescrObject *)d)->d_name);
  }
  return mg_call_plain(c);
}

static PyObject *call_partial(const MgCall *c) {
  PyObject *f = PyObject_GetAttr(c->f, mg_names.func);
  if (!f) return NULL;
  MgCall inner = *c;
  bool ok = mg_policy_of(f).action != ACT_no;
  if (ok && call_is_c(f)) {
    inner.f = f;
    ok = call_check_args(&inner, mg_policy_of(f).older);
  } else if (!ok) {
    inner.f = f;
    mg_call_unknown(&inner);
  }
  Py_DECREF(f);
  return ok ? mg_call_plain(c) : NULL;
}

/* "a.b.c" of o. */
static PyObject *call_dotted(PyObject *o, PyObject *name) {
  PyObject *dot = PyUnicode_FromString("."), *parts = dot ? PyUnicode_Split(name, dot, -1) : NULL, *v = NULL;
  Py_XDECREF(dot);
  if (parts) v = Py_NewRef(o);
  for (Py_ssize_t i = 0; v && i < PyList_GET_SIZE(parts); i++) {
    PyObject *attr = Py_NewRef(PyList_GET_ITEM(parts, i));
    PyUnicode_InternInPlace(&attr);
    Py_SETREF(v, mg_rec_getattr(v, attr));
    Py_DECREF(attr);
  }
  Py_XDECREF(parts);
  return v;
}

/* o.name(*args, **kw), with the name as the first of args. */
static PyObject *call_named(PyObject *o, PyObject *args, PyObject *kw) {
  Py_ssize_t npos = PyTuple_GET_SIZE(args) - 1, nkw = kw ? PyDict_GET_SIZE(kw) : 0, at = 0, i = npos;
  PyObject *m = mg_rec_getattr(o, PyTuple_GET_ITEM(args, 0)), *names = m ? PyTuple_New(nkw) : NULL, *k, *x,
           *r = NULL;
  PyObject **buf = names ? PyMem_New(PyObject *, npos + nkw + 1) : NULL;
  if (buf) {
    for (Py_ssize_t j = 0; j < npos; j++) buf[j] = PyTuple_GET_ITEM(args, j + 1);
    while (nkw && PyDict_Next(kw, &at, &k, &x)) {
      PyTuple_SET_ITEM(names, i - npos, Py_NewRef(k));
      buf[i++] = x;
    }
    r = mg_rec_call(m, buf, (size_t)npos, nkw ? names : NULL);
  }
  PyMem_Free(buf);
  Py_XDECREF(names);
  Py_XDECREF(m);
  return r;
}

/* operator.itemgetter, attrgetter and methodcaller: what they were made of is in their __reduce__. */
static PyObject *call_getter(const MgCall *c) {
  if (c->n != 1 || c->kwnames) return mg_call_plain(c);
  PyObject *o = c->arg[0], *made = PyObject_CallMethod(c->f, "__reduce__", NULL), *kw = NULL, *args = NULL,
           *r = NULL;
  char name[256];
  mg_older_pin(c->f);
  if (!made || !PyTuple_Check(made) || PyTuple_GET_SIZE(made) != 2) goto done;
  args = Py_NewRef(PyTuple_GET_ITEM(made, 1));
  const char *kind = strrchr(mg_policy_name(c->f, name, sizeof name), '.') + 1;
  if (!strncmp(kind, "methodcaller", 12)) {
    PyObject *how = PyTuple_GET_ITEM(made, 0); /* partial(methodcaller, name, **kw) when there are keywords */
    if (Py_TYPE(how) == mg_torch.partial) {
      PyObject *first = PyObject_GetAttr(how, mg_names.args),
               *all = first ? PySequence_Concat(first, args) : NULL;
      kw = all ? PyObject_GetAttr(how, mg_names.keywords) : NULL;
      Py_XDECREF(first);
      Py_XSETREF(args, all);
      if (!kw) goto done;
    }
    r = call_named(o, args, kw);
    goto done;
  }
  bool item = !strncmp(kind, "itemgetter", 10);
  Py_ssize_t n = PyTuple_GET_SIZE(args);
  PyObject *all = PyTuple_New(n);
  for (Py_ssize_t i = 0; all && i < n; i++) {
    PyObject *key = PyTuple_GET_ITEM(args, i), *v = item ? mg_rec_getitem(o, key) : call_dotted(o, key);
    if (v) PyTuple_SET_ITEM(all, i, v);
    else Py_CLEAR(all);
  }
  r = all && n == 1 ? Py_NewRef(PyTuple_GET_ITEM(all, 0)) : Py_XNewRef(all);
  Py_XDECREF(all);
done:
  Py_XDECREF(made);
  Py_XDECREF(args);
  Py_XDECREF(kw);
  return r;
}

/* ---- Python callables ---- */

/* Is it asked in order to hand the call over?  Modules (attention, transformer layers) ask whether they may
 * take their fast path, which they do without us. */
static bool call_hands_over(void) {
  PyObject *globals = PyEval_GetGlobals(), *name = globals ? PyDict_GetItemString(globals, "__name__") : NULL;
  return mg_call_by_torch() && strncmp(PyUnicode_AsUTF8(name), "torch.nn.modules.", 17) != 0;
}

/* __enter__ or __exit__ of a context of torch that is written in C; pybind11's methods
 * take self as an argument. */
static PyObject *call_context(const MgCall *c, bool enter) {
  PyObject *self = mg_policy_self(c->f);
  PyObject *ctx = PyMethod_Check(c->f) ? PyMethod_GET_SELF(c->f) : c->n ? c->arg[0] : self;
  if (self && !strcmp(Py_TYPE(self)->tp_name, "torch.device")) ctx = self;
  if (!ctx || c->kwnames) return mg_call_unknown(c);
  return mg_setting_context(c->f, ctx, c->arg, c->nargsf & ~PY_VECTORCALL_ARGUMENTS_OFFSET, enter);
}

/* A method that is bound to something else than a Python function. */
static PyObject *call_bound(const MgCall *c) {
  MgCall inner = *c;
  inner.f = PyMethod_GET_FUNCTION(c->f);
  MgVerdict v = mg_policy_of(inner.f);
  if (v.action == ACT_python) return mg_call_plain(c);
  if (v.action == ACT_no) return mg_call_unknown(&inner);
  if (v.action == ACT_context_enter || v.action == ACT_context_exit)
    return call_context(c, v.action == ACT_context_enter);
  if (!call_may_see(&inner, PyMethod_GET_SELF(c->f), v.older) || !call_check_args(&inner, v.older))
    return NULL;
  return mg_call_plain(c);
}

static PyObject *call_python(const MgCall *c) {
  PyTypeObject *t = Py_TYPE(c->f);
  PyObject *fn = t == &PyMethod_Type ? PyMethod_GET_FUNCTION(c->f) : c->f, *out;
  if (PyFunction_Check(fn)) return mg_call_function(c, fn);
  if (t == &PyMethod_Type) return call_bound(c);
  if (mg_higher_call(c, &out)) return out;
  if (mg_rec_marked(c->f, NULL, c->arg, c->nargsf, c->kwnames, &out)) return out;
  if (PyObject_TypeCheck(c->f, mg_torch.module)) {
    int rc = mg_call_module(c, &out);
    if (rc) return rc > 0 ? out : NULL;
  }
  PyObject *call =
      mg_older(c->f) ? mg_rec_lookup_special(t, mg_names.call) : _PyType_Lookup(t, mg_names.call);
  return mg_call_frame(c, call);
}

static PyObject *call_next(const MgCall *c) {
  if (!c->n || !PyIter_Check(c->arg[0])) return mg_call_plain(c);
  PyObject *v = mg_rec_next(c->arg[0]);
  bool over = !v && !mg_rec->abort && (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_StopIteration));
  if (!over) return v;
  if (c->n > 1) {
    PyErr_Clear(); /* the default takes its place */
    return Py_NewRef(c->arg[1]);
  }
  if (!PyErr_Occurred()) PyErr_SetNone(PyExc_StopIteration);
  return NULL;
}

static PyObject *call_special(const MgCall *c, MgAction act) {
  switch (act) {
  case ACT_getattr: return c->npos == c->n && c->n >= 2 ? call_getattr(c, false) : mg_call_plain(c);
  case ACT_hasattr: return c->n == 2 ? call_getattr(c, true) : mg_call_plain(c);
  case ACT_setattr:
    return c->n == 3 ? call_none(mg_rec_setattr(c->arg[0], c->arg[1], c->arg[2])) : mg_call_plain(c);
  case ACT_delattr:
    return c->n == 2 ? call_none(mg_rec_setattr(c->arg[0], c->arg[1], NULL)) : mg_call_plain(c);
  case ACT_vars: return call_vars(c);
  case ACT_type: return call_type(c);
  case ACT_type_call: return call_type_call(c);
  case ACT_isinstance: return call_isinstance(c);
  case ACT_subclass: return call_issubclass(c);
  case ACT_abc: return call_abc(c);
  case ACT_identity: return call_identity(c);
  case ACT_iter: return c->n == 1 ? mg_rec_iter(c->arg[0]) : mg_call_plain(c);
  case ACT_next: return call_next(c);
  case ACT_build_class: return call_new_class(c);
  case ACT_consumer: return call_consumer(c);
  case ACT_extreme: return call_extreme(c);
  case ACT_plain_data: return mg_call_plain_data(c);
  case ACT_as_python: return mg_call_as_python(c);
  case ACT_object_setattr:
  case ACT_object_delattr:
  case ACT_object_getattr: return call_object_method(c, act);
  case ACT_object_reduce: return mg_call_object_reduce(c);
  case ACT_getset_get: return call_getset(c);
  case ACT_lru_cache: return mg_call_lru_cache(c);
  case ACT_partial: return call_partial(c);
  case ACT_backward: return mg_backward_run(c->f, c->arg, c->nargsf, c->kwnames);
  case ACT_getter: return call_getter(c);
  case ACT_one_hot: return mg_call_one_hot(c);
  case ACT_attention: return mg_call_attention(c);
  case ACT_pick: return mg_call_pick(c);
  case ACT_grad_mode: return mg_call_grad_mode(c);
  case ACT_node_hook: return mg_function_hook(c);
  case ACT_asks_function: return mg_fmodes_ask(c, call_hands_over());
  case ACT_context_enter:
  case ACT_context_exit: return call_context(c, act == ACT_context_enter);
  case ACT_draw: return mg_draw_call(c);
  case ACT_tensor_class: return mg_call_tensor_class(c);
  case ACT_tensor_new: return mg_call_tensor_new(c);
  case ACT_as_subclass: return mg_call_as_subclass(c);
  case ACT_make_subclass: return mg_call_make_subclass(c);
  case ACT_with_numbers: return mg_call_with_numbers(c);
  case ACT_setting: return mg_setting_call(c->f, c->arg, c->nargsf, c->kwnames);
  case ACT_query: return mg_setting_read(c->f, c->arg, c->nargsf, c->kwnames);
  case ACT_dual_enter: return mg_setting_dual(c->f, c->arg, c->nargsf, c->kwnames, 1);
  case ACT_dual_exit: return mg_setting_dual(c->f, c->arg, c->nargsf, c->kwnames, -1);
  default: return mg_call_builtin(c, act);
  }
}

/* Did calling class t make r anew?  Certain when __new__ and the metaclass are C code; a __new__ in Python
 * may give back an older object (enumerations, singletons), but not one that nobody else holds. */
static bool call_made_instance(PyTypeObject *t, PyObject *r) {
  if (!(t->tp_flags & Py_TPFLAGS_HEAPTYPE)) return false;
  PyObject *n = _PyType_Lookup(t, mg_names.new);
  bool c_new = n && Py_TYPE(n) != &PyStaticMethod_Type && Py_TYPE(n) != &PyFunction_Type;
  return Py_REFCNT(r) == 1 || (c_new && Py_TYPE(r) == t && Py_TYPE(t)->tp_call == PyType_Type.tp_call);
}

/* A class's __new__ that is written in C, as object's is. */
static bool call_is_new(PyObject *f) {
  PyObject *self = PyCFunction_CheckExact(f) ? PyCFunction_GET_SELF(f) : NULL;
  return self && PyType_Check(self) && !strcmp(((PyCFunctionObject *)f)->m_ml->ml_name, "__new__");
}

/* The recording keeps everything that it makes until its end, so nothing in it may wait for an object to die:
 * classes with __del__, weak references to what was made here. */
static bool call_sees_death(const MgCall *c) {
  PyObject *made = call_is_new(c->f) && c->npos ? c->arg[0] : c->f;
  if (!PyType_Check(made)) return false;
  PyTypeObject *t = (PyTypeObject *)made;
  if (mg_has_finalizer(t)) {
    mg_rec_break(BK_finalizer, "%.100s has a __del__", t->tp_name);
    return true;
  }
  if (PyType_IsSubtype(t, &_PyWeakref_RefType) && c->npos && mg_is_fresh(c->arg[0]) &&
      !PyFunction_Check(c->arg[0]) && !PyType_Check(c->arg[0])) {
    mg_rec_break(BK_weak_reference, "a weak reference to an object made here");
    return true;
  }
  return false;
}

/* len(tensor): what its class says, which may be a symbolic size; C's len makes a plain int of
 * it.  False: something else. */
static bool call_len(const MgCall *c, PyObject **r) {
  if (c->n != 1 || c->npos != 1 || !mg_standin_is(c->arg[0])) return false;
  PyObject *says = PyObject_GetAttrString((PyObject *)Py_TYPE(c->arg[0]), "__len__");
  *r = says ? mg_rec_call(says, c->arg, 1, NULL) : NULL;
  Py_XDECREF(says);
  if (!*r || mg_symnode_of(*r) || (PyLong_CheckExact(*r) && mg_int_sign(*r) >= 0)) return true;
  Py_CLEAR(*r); /* it has to be such a number */
  return false;
}

/* The C function itself; in other ways where it raises because a tensor is a stand-in or a size a symbol. */
static PyObject *call_run(const MgCall *c, MgAction act) {
  MgCapture *cap = mg_rec->cap;
  uint32_t nodes = mg_rec->g->nnode;
  PyObject *r;
  mg_symnode_texts_begin(cap);
  if (act != ACT_recurrent || mg_rec->want_fx || c->kwnames || !mg_recurrent_call(c->f, c->arg, c->n, &r))
    r = mg_call_plain(c);
  if (!r && !mg_rec->abort) r = mg_call_exact(c);
  if (!r && !mg_rec->abort && cap->sizes.nsrc) r = mg_call_sizes(c, nodes);
  mg_symnode_texts_end(cap, !r);
  return r;
}

static PyObject *call_any(PyObject *f, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
  Py_ssize_t npos = PyVectorcall_NARGS(nargsf);
  MgCall c = {
      f, args, nargsf, kwnames, npos, npos + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0), mg_rec->tail_call};
  mg_rec->tail_call = false;
  if (call_sees_death(&c) || (mg_rec->refused && mg_marked_refuses(f))) return NULL;
  PyObject *r, *self;
  if (mg_logcall(&c, &r)) return r;
  if (mg_rec->texts && mg_lazystr_call(&c, &r)) return r;
  if (Py_TYPE(f) == mg_torch.script_function) return mg_call_script(&c);
  if (mg_array_call(&c, &r)) return r;
  if (mg_rec->want_fx && mg_fxfunc_call(&c, &r)) return r;
  MgVerdict v = mg_policy_of(f);
  if (!kwnames && (mg_symvalue_convert(f, args, npos, &r) || mg_symfloat_apply(f, args, npos, &r) ||
                   mg_symsize_choose(f, args, npos, &r)))
    return r;
  if ((v.action == ACT_no || PyMethod_Check(f)) && mg_draw_numpy(&c, &r)) return r;
  if (v.action == ACT_python) return call_python(&c);
  if ((v.action == ACT_no || v.action == ACT_tensor_class) && mg_call_legacy(&c, &r)) return r;
  if (v.action == ACT_no) return mg_call_unknown(&c);
  if (v.action == ACT_function) mg_rec->cap->asks_grad = true; /* ctx.needs_input_grad, always */
  if (v.action == ACT_function && mg_function_begin(&c, &r)) return r;
  if (v.action == ACT_function && mg_abi.aoti_torch_grad_mode_is_enabled()) return mg_function_apply(&c);
  if (mg_call_on_mapping(&c, &r)) return r;
  if (v.action == ACT_len && call_len(&c, &r)) return r;
  if (v.action == ACT_tensor && mg_call_tensor(&c, &r)) return r;
  if (v.action > ACT_python && v.action != ACT_tensor) return call_special(&c, v.action);
  if (!call_check_args(&c, v.older) || mg_finalizer_method(f, args, npos, kwnames)) return NULL;
  ValRef out = mg_call_out(&c);
  r = call_run(&c, v.action);
  self = mg_policy_self(f);
  if (!r) return r;
  if (mg_standin_check(r)) return mg_call_made_tensor(&c, r, out);
  r = mg_symsize_dress(mg_rec->cap, mg_symfloat_dress(r));
  if (!r) return r;
  if (PyType_Check(f) ? call_made_instance((PyTypeObject *)f, r)
                      : Py_REFCNT(r) == 1 && Py_TYPE(r)->tp_flags & Py_TPFLAGS_HEAPTYPE)
    mg_fresh(r); /* what nobody else holds is new */
  if (v.action == ACT_wrap || PyObject_TypeCheck(r, mg_torch.tensor) || (self && mg_older_opaque(self))) {
    PyObject *w = mg_wrap_result(r);
    Py_DECREF(r);
    return w;
  }
  return r;
}

PyObject *mg_rec_call(PyObject *f, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
  if (!mg_rec) return PyObject_Vectorcall(f, args, nargsf, kwnames);
  Py_ssize_t n = PyVectorcall_NARGS(nargsf) + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  bool waiting = mg_rec->ident->waiting != 0, python = waiting && mg_policy_of(f).action == ACT_python;
  if (waiting && !python && mg_unread_call(f, args, n)) return NULL;
  PyObject *r = call_any(f, args, nargsf, kwnames);
  /* Of Python functions, those that the recorder answers for itself have looked at what they were given. */
  if (python && mg_rec && !mg_rec->called_frame) mg_unread_call(NULL, args, n);
  if (mg_rec) mg_rec->called_frame = false;
  return r;
}
