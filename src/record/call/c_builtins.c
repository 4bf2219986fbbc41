/* C functions that read attributes, class dicts, namespaces or context variables: done here with the
 * recorder's own operations, because C code sees older objects as they were before the recording.
 * In: a call whose action pure.def names.  Out: its result as the recording sees it. */
#include "record/call/c_builtins.h"
#include <string.h>
#include "entry/guard/guard_add.h"
#include "entry/launch/trace.h"
#include "host/python/code_info.h"
#include "host/python/decode.h"
#include "host/python/glue.h"
#include "host/python/hook_mode.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "host/python/trace_rules.h"
#include "record/core/ops.h"
#include "record/core/call_args.h"
#include "record/core/capture.h"
#include "record/core/identity.h"
#include "record/core/loop.h"
#include "record/core/recording.h"
#include "record/core/source_place.h"
#include "record/object/attributes.h"
#include "record/object/finalizers.h"
#include "record/object/items.h"
#include "record/object/namespaces.h"
#include "record/object/wrap.h"
#include "record/snapshot/snapshot_build.h"
#include "record/symbolic/number.h"
#include "record/symbolic/number_index.h"
#include "record/symbolic/number_ops.h"
#include "record/tensor/mode_stack.h"
#include "results.h"

/* ---- dir ---- */

/* object.__dir__ of an older instance: what its class has, and the keys of its dict
 * as the recording sees it. */
static PyObject *builtin_dir_older(PyObject *o, PyObject *owner) {
  PyObject *keys = mg_older_dict(owner), *names = keys ? PyObject_Dir((PyObject *)Py_TYPE(o)) : NULL;
  PyObject *all = names ? PySet_New(names) : NULL, *list = NULL;
  Py_XDECREF(names);
  PyObject *k, *v;
  Py_ssize_t pos = 0;
  int rc = all ? 0 : -1;
  while (!rc && PyDict_Next(keys, &pos, &k, &v)) rc = PySet_Add(all, k);
  if (!rc) list = PySequence_List(all);
  Py_XDECREF(all);
  if (list && PyList_Sort(list)) Py_CLEAR(list);
  return list;
}

static PyObject *builtin_dir(const MgCall *c) {
  PyObject *o = c->n == 1 ? c->arg[0] : c->n ? NULL : mg_policy_self(c->f);
  if (!o) return mg_call_unknown(c);
  PyObject *owner = PyMethod_Check(o) ? PyMethod_GET_FUNCTION(o) : o; /* of the attributes */
  MgOlder *e = mg_older(owner), *names = PyModule_Check(o) ? mg_older(PyModule_GetDict(o)) : NULL;
  if (names && names->attrs) return mg_rec_break(BK_namespace, "dir() of a module that was written to");
  bool plain = !e || (e->kind != OLDER_itself && e->kind != OLDER_object && e->kind != OLDER_func) ||
               PyModule_Check(o) || PyType_Check(o);
  if (plain || !_PyObject_GetDictPtr(owner)) return mg_call_plain(c);
  PyObject *hook = mg_rec_lookup_special(Py_TYPE(o), mg_names.dir);
  if (hook && Py_TYPE(hook) == &PyFunction_Type) return mg_call_plain(c); /* recorded */
  return builtin_dir_older(o, owner);
}

/* ---- str.format ---- */

/* "{0.name}" reads attributes in C: such a template goes through string.Formatter when an
 * older object may be behind it. */
static PyObject *builtin_format(const MgCall *c) {
  PyObject *tmpl = mg_policy_self(c->f), *mod, *fm = NULL, *m = NULL, *args = NULL, *kw = NULL, *r = NULL;
  Py_ssize_t first = tmpl ? 0 : 1;
  if (!tmpl && c->npos) tmpl = c->arg[0];
  bool older = false;
  for (Py_ssize_t i = first; i < c->n; i++) older |= mg_older(c->arg[i]) != NULL;
  const char *text = tmpl && PyUnicode_Check(tmpl) ? PyUnicode_AsUTF8(tmpl) : NULL;
  if (!older || !text || !strpbrk(text, ".[")) return mg_call_plain(c);
  if (!(mod = mg_import("string"))) return NULL;
  PyObject *cls = PyObject_GetAttrString(mod, "Formatter");
  fm = cls ? PyObject_CallNoArgs(cls) : NULL;
  if (fm) mg_fresh(fm);
  m = fm ? PyObject_GetAttrString(fm, "vformat") : NULL;
  args = m ? PyTuple_New(c->npos - first) : NULL;
  kw = args ? mg_call_kwargs(c) : NULL;
  for (Py_ssize_t i = first; kw && i < c->npos; i++) PyTuple_SET_ITEM(args, i - first, Py_NewRef(c->arg[i]));
  if (kw) r = PyObject_CallFunctionObjArgs(m, tmpl, args, kw, NULL);
  Py_XDECREF(kw);
  Py_XDECREF(args);
  Py_XDECREF(m);
  Py_XDECREF(fm);
  Py_XDECREF(cls);
  Py_DECREF(mod);
  return r;
}

/* len(C.__dict__), dict(vars(C)) and the like: of what the recording sees of it. */
static bool builtin_reads_mapping(const MgCall *c, PyObject **out) {
  static const char *const names[] = {"len",    "list", "tuple",     "iter",      "bool",    "dict",
                                      "sorted", "set",  "frozenset", "enumerate", "reversed"};
  PyObject *dict = c->n == 1 && c->npos == 1 ? mg_rec_class_mapping(c->arg[0]) : NULL;
  char buf[256];
  const char *name = dict ? mg_policy_name(c->f, buf, sizeof buf) : "";
  if (strncmp(name, "builtins.", 9)) return false;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(name + 9, names[i])) {
      PyObject *all = mg_rec_class_mapping_all(dict);
      *out = all ? PyObject_CallOneArg(c->f, all) : NULL;
      Py_XDECREF(all);
      return true;
    }
  return false;
}

/* One key of a dict that is not copied (sys.modules): only this key is guarded. */
static bool builtin_reads_key(const MgCall *c, PyObject *dict, PyObject **out) {
  char buf[256];
  const char *name = mg_policy_method(c->f, buf, sizeof buf);
  Py_ssize_t first = mg_policy_self(c->f) ? 0 : 1;
  if (c->kwnames || c->npos <= first || !mg_builtin_looks_up(name) || !PyUnicode_CheckExact(c->arg[first]) ||
      !mg_older_opaque(dict))
    return false;
  PyObject *v = PyDict_GetItemWithError(dict, c->arg[first]);
  *out =
      v || !PyErr_Occurred() ? mg_builtin_found(c, first, name, mg_wrap_key(dict, c->arg[first], v)) : NULL;
  return true;
}

/* d.get(k) of a lazy dict, or d.keys() that is only asked whether a key is there; false: it is filled
 * now, or an exception is set. */
static bool builtin_reads_lazy(const MgCall *c, PyObject *dict, PyObject **out) {
  char buf[256];
  const char *name = mg_policy_method(c->f, buf, sizeof buf);
  Py_ssize_t first = mg_policy_self(c->f) ? 0 : 1;
  *out = NULL;
  if (!c->kwnames && c->npos == first && !strcmp(name, "keys")) return *out = mg_call_plain(c), true;
  if (c->kwnames || c->npos <= first || c->npos > first + 2 || strcmp(name, "get"))
    return mg_olderdict_fill(dict) != 0;
  PyObject *v = mg_olderdict_get(dict, c->arg[first]);
  if (!v && !PyErr_Occurred() && !mg_olderdict_lazy(dict)) return false;
  *out = mg_builtin_found(c, first, name, v);
  return true;
}

/* A method of dicts with a key: where a number that runs compute is the key or one of the keys. */
static bool builtin_number_key(const MgCall *c, PyObject *dict, Py_ssize_t first, const char *name,
                               PyObject **out) {
  bool sets = !strcmp(name, "setdefault"), pops = !strcmp(name, "pop");
  Py_ssize_t n = c->npos - first;
  if (c->kwnames || n < 1 || n > 2 || !(sets || pops || mg_builtin_looks_up(name))) return false;
  PyObject *key = c->arg[first], *same, *other = n == 2 ? c->arg[first + 1] : NULL;
  int found = mg_rec_find_number(dict, key, &same);
  if (found == MG_ASK_PYTHON) return false;
  *out = NULL;
  if (found < 0) return true;
  if (!strcmp(name, "__contains__")) return *out = PyBool_FromLong(found), true;
  if (found) *out = mg_numkey_get(dict, same);
  else if (other || sets || !strcmp(name, "get")) *out = Py_NewRef(other ? other : Py_None);
  else PyErr_SetObject(PyExc_KeyError, key);
  bool writes = found ? pops : sets;
  if (*out && writes && mg_rec_setitem(dict, found ? same : key, found ? NULL : *out)) Py_CLEAR(*out);
  return true;
}

/* Does this C function not look up keys of the dicts that it is given? */
static bool builtin_spares_keys(PyObject *f) {
  static const char *const methods[] = {"items",   "keys",    "values",   "copy",   "clear",
                                        "popitem", "__len__", "__iter__", "append", NULL};
  static const char *const names[] = {"len",     "iter",     "next",  "isinstance", "id",       "type",
                                      "dict",    "list",     "tuple", "bool",       "getattr",  "hasattr",
                                      "setattr", "callable", "zip",   "enumerate",  "reversed", NULL};
  char buf[256];
  if (PyType_Check(f) && PyType_IsSubtype((PyTypeObject *)f, &_PyWeakref_RefType)) return true;
  const char *name = mg_policy_method(f, buf, sizeof buf), *const *at = methods;
  if (mg_policy_self(f) || !PyCFunction_Check(f)) {
    while (*at && strcmp(name, *at)) at++;
    if (*at) return true;
  }
  name = mg_policy_name(f, buf, sizeof buf);
  if (strncmp(name, "builtins.", 9)) return false;
  for (at = names; *at && strcmp(name + 9, *at);) at++;
  return *at != NULL;
}

/* True: *out is the result.  False: it is called as usual, and what C code would find out by itself about
 * numbers that are keys is guarded. */
static bool builtin_on_numbers(const MgCall *c, PyObject *self, PyObject **out) {
  char buf[256];
  bool dict = self && (PyDict_CheckExact(self) || PyODict_CheckExact(self));
  const char *name = dict ? mg_policy_method(c->f, buf, sizeof buf) : NULL;
  if (dict && builtin_number_key(c, self, mg_policy_self(c->f) ? 0 : 1, name, out)) return true;
  if (!mg_rec->number_keys) return false;
  bool sees = mg_numkey_reached(&self, 1) || mg_numkey_reached(c->arg, c->n);
  bool copies = c->f == (PyObject *)&PyList_Type || c->f == (PyObject *)&PyTuple_Type;
  if (sees && copies && c->n == 1 && !PyIter_Check(c->arg[0])) { /* an OrderedDict looks its keys up */
    bool hashing = mg_numkey_begin();
    *out = mg_call_plain(c);
    mg_numkey_end(hashing);
    return true;
  }
  if (sees && !builtin_spares_keys(c->f)) mg_numkey_settle();
  return false;
}

bool mg_call_on_mapping(const MgCall *c, PyObject **out) {
  PyObject *self = mg_policy_self(c->f), *dict;
  if (!self && c->n && (Py_TYPE(c->f) == &PyMethodDescr_Type || Py_TYPE(c->f) == &PyWrapperDescr_Type))
    self = c->arg[0];
  if (builtin_on_numbers(c, self, out)) return true;
  if (!self) return builtin_reads_mapping(c, out);
  if (Py_TYPE(self) == &PyDictProxy_Type && (dict = mg_rec_class_mapping(self))) {
    *out = mg_rec_class_mapping_call(c, dict);
    return true;
  }
  if (!PyDict_CheckExact(self)) return false;
  if (mg_olderdict_lazy(self)) return builtin_reads_lazy(c, self, out);
  if (!mg_rec_is_namespace(self)) return builtin_reads_key(c, self, out);
  *out = mg_rec_namespace_call(c, self);
  return true;
}

/* The number is remembered: should it outlive the recording together with the object, which the snapshot
 * makes anew, it would be wrong. */
PyObject *mg_call_id_of_new(const MgCall *c) {
  MgRec *r = mg_rec;
  if (mg_retry_denied(r, RETRY_ids) && !mg_guard_is_const(c->arg[0]))
    return mg_rec_break(BK_identity, "id() of an object that the segment makes");
  PyObject *id = mg_call_plain(c);
  if (id && ((!r->ids && !(r->ids = PyDict_New())) || PyDict_SetItem(r->ids, id, Py_None))) Py_CLEAR(id);
  return id;
}

static PyObject *builtin_globals(void) {
  PyObject *g = PyEval_GetGlobals();
  return g ? mg_rec_namespace(g) : mg_rec_break(BK_c_function, "globals()");
}

/* sys._getframe(n).f_globals: whose module asks (enum, typing).  Frames that are used in other ways, or
 * called the recorded one, tell of more than guards know. */
static PyObject *builtin_getframe(const MgCall *c) {
  const MgLoop *l = mg_rec->top;
  const MgInstr *in = l ? &l->code->instr[l->unit] : NULL;
  int depth = c->n ? PyLong_CheckExact(c->arg[0]) ? (int)PyLong_AsLong(c->arg[0]) : -1 : 0;
  bool known = in && depth >= 0 && in->op == BC_LOAD_ATTR &&
               !PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(l->v.code->co_names, in->arg), "f_globals");
  while (known && depth--) known = (l = l->up) != NULL;
  return known ? mg_call_plain(c) : mg_call_unknown(c);
}

/* ---- weak references ---- */

/* weakref.ref(x), weakref.proxy(x): fine as long as nothing is to be called when x dies, which happens at
 * another time here.  What the recording has made lives until its end, and nothing asks whether a proxy's
 * object still does. */
static PyObject *builtin_weakref(const MgCall *c) {
  if (c->n > 1 && c->arg[1] != Py_None)
    return mg_rec_break(BK_weak_reference, "a weak reference with a callback");
  if (c->n && PyCFunction_Check(c->f) && !mg_older(c->arg[0])) return mg_call_unknown(c);
  PyObject *made = mg_call_plain(c);
  return mg_fresh(made), made;
}

/* r(): what an older reference gives is found through it at every call, so no entry keeps that alive. */
static PyObject *builtin_weakref_get(const MgCall *c) {
  if (!c->n && PyWeakref_CheckRef(c->f) && mg_older(c->f)) return mg_rec_referent(c->f);
  PyObject *r = mg_call_plain(c), *o = r ? mg_older_orig(r) : NULL, *w;
  if (o && mg_finalizer_dropped(o))
    w = mg_rec_break(BK_weak_reference, "a weak reference to a %s that went out of use", Py_TYPE(o)->tp_name);
  else w = r ? mg_wrap_result(r) : NULL;
  Py_XDECREF(r);
  return w;
}

/* The slots that are part of a copy, new: None or a list. */
static PyObject *builtin_slot_names(PyTypeObject *t) {
  MgPause p = mg_rec_pause();
  PyObject *reg = mg_import("copyreg"), *names = reg ? PyObject_CallMethod(reg, "_slotnames", "O", t) : NULL;
  mg_rec_resume(p);
  Py_XDECREF(reg);
  if (names && names != Py_None && !PyList_Check(names)) Py_SETREF(names, Py_NewRef(Py_None));
  return names;
}

/* What object.__getstate__ gives for an older instance: its dict or None; where slots have values, a
 * pair of that and these.  New. */
static PyObject *builtin_default_state(PyObject *o, PyObject *names) {
  Py_ssize_t n = names == Py_None ? 0 : PyList_GET_SIZE(names);
  PyObject **has = _PyObject_GetDictPtr(mg_older_orig(o)), *dict = has ? mg_older_dict(o) : NULL;
  if (has && !dict) return NULL;
  PyObject *state = dict && PyDict_GET_SIZE(dict) ? dict : Py_None, *slots = PyDict_New(), *r = NULL;
  for (Py_ssize_t i = 0; slots && i < n; i++) {
    PyObject *name = PyList_GET_ITEM(names, i), *v = mg_rec_getattr(o, name);
    bool unset = !v && PyErr_ExceptionMatches(PyExc_AttributeError);
    if (unset) mg_clear_if(PyExc_AttributeError);
    else if (!v || PyDict_SetItem(slots, name, v)) Py_CLEAR(slots);
    Py_XDECREF(v);
  }
  if (slots) r = PyDict_GET_SIZE(slots) ? PyTuple_Pack(2, state, slots) : Py_NewRef(state);
  if (r && r != state) mg_fresh(slots);
  Py_XDECREF(slots);
  return r;
}

/* The protocols before 2 are Python code. */
static PyObject *builtin_reduce_old(PyObject *o, PyObject *proto) {
  PyObject *reg = mg_import("copyreg"), *f = reg ? PyObject_GetAttrString(reg, "_reduce_ex") : NULL,
           *pair[2] = {o, proto};
  PyObject *seen = f ? mg_wrap(f, 0) : NULL, *r = seen ? mg_ops.call(seen, pair, 2, NULL) : NULL;
  Py_XDECREF(seen);
  Py_XDECREF(f);
  Py_XDECREF(reg);
  return r;
}

/* Has the class of o got this method in Python? */
static bool builtin_has_python(PyObject *o, const char *name) {
  PyObject *d = PyObject_GetAttrString((PyObject *)Py_TYPE(o), name);
  bool yes = d && Py_TYPE(d) == &PyFunction_Type;
  if (!d) mg_clear_as_no();
  Py_XDECREF(d);
  return yes;
}

/* object.__reduce_ex__(protocol >= 2) of an older plain instance, with the overlay as its state unless its
 * class says what the state is: copy.copy and copy.deepcopy end here. */
PyObject *mg_call_object_reduce(const MgCall *c) {
  PyObject *o = mg_policy_self(c->f), *state = NULL, *reg, *newobj = NULL, *r = NULL;
  if (!o && c->n) o = c->arg[0];
  MgOlder *e = o ? mg_older(o) : NULL;
  if (!e || e->kind >= OLDER_list) return mg_call_plain(c); /* of a container the recording has a copy */
  PyObject *proto = c->n ? mg_symfloat_plain(c->arg[c->n - 1])
                         : Py_NewRef(Py_None); /* a number that changes decides, too */
  if (!proto) return NULL;
  bool python = PyLong_CheckExact(proto) && PyLong_AsLong(proto) < 2 && !builtin_has_python(o, "__reduce__");
  if (python) r = builtin_reduce_old(o, proto);
  Py_DECREF(proto);
  if (python) return r;
  PyTypeObject *t = Py_TYPE(o);
  bool own = builtin_has_python(o, "__getstate__"),
       plain = mg_solid_base(t) == &PyBaseObject_Type && (e->kind == OLDER_itself || e->kind == OLDER_object);
  PyObject *slots = plain && !own ? builtin_slot_names(t) : Py_NewRef(Py_None);
  if (!slots) return NULL;
  Py_ssize_t most =
      4 + (slots == Py_None
               ? 0
               : PyList_GET_SIZE(slots)); /* header, dict, weak references, slots: no other state in C */
  plain = plain && t->tp_basicsize <= most * (Py_ssize_t)sizeof(void *);
  const char *const custom[] = {"__getnewargs__", "__getnewargs_ex__", "__reduce__"};
  for (int i = 0; plain && i < 3; i++) plain = !builtin_has_python(o, custom[i]);
  if (!plain) {
    Py_DECREF(slots);
    return mg_rec_break(BK_older_object, "copy of an older %s", t->tp_name);
  }
  if (own) {
    PyObject *name = PyUnicode_InternFromString("__getstate__"), *get = name ? mg_rec_getattr(o, name) : NULL;
    state = get ? mg_ops.call(get, NULL, 0, NULL) : NULL;
    Py_XDECREF(get);
    Py_XDECREF(name);
  } else state = builtin_default_state(o, slots);
  Py_DECREF(slots);
  reg = state ? mg_import("copyreg") : NULL;
  newobj = reg ? PyObject_GetAttrString(reg, "__newobj__") : NULL;
  if (newobj) r = Py_BuildValue("O(O)OOO", newobj, t, state, Py_None, Py_None);
  Py_XDECREF(newobj);
  Py_XDECREF(reg);
  Py_XDECREF(state);
  return r;
}

PyObject *mg_call_as_python(const MgCall *c) {
  PyObject *m = mg_glue(GLUE_polyfills),
           *f = m ? PyObject_GetAttrString(m, ((PyCFunctionObject *)c->f)->m_ml->ml_name) : NULL;
  PyObject *seen = f ? mg_wrap(f, 0) : NULL,
           *r = seen ? mg_ops.call(seen, c->arg, c->nargsf & ~PY_VECTORCALL_ARGUMENTS_OFFSET, c->kwnames)
                     : NULL;
  Py_XDECREF(seen);
  Py_XDECREF(f);
  Py_XDECREF(m);
  return r;
}

/* ---- context variables ---- */

static PyObject *builtin_contextvar_get(const MgCall *c) {
  PyObject *var = mg_policy_self(c->f), *v = NULL;
  if (!var || c->kwnames) return mg_call_unknown(c);
  MgIdent *d = mg_rec->ident;
  if (d->vars && PyDict_Contains(d->vars, var) == 1) return mg_call_plain(c);
  if (PyContextVar_Get(var, NULL, &v)) return NULL;
  /* the default of a variable belongs to it for ever */
  mg_guard_context(mg_rec->guards, var, v);
  PyObject *w = v ? mg_wrap(v, 0) : NULL;
  if (!v) return mg_call_plain(c);
  Py_DECREF(v);
  return w;
}

/* Everything is set in a copy of the context, which is left when the recording ends. */
static PyObject *builtin_contextvar_set(const MgCall *c) {
  PyObject *var = mg_policy_self(c->f), *was = NULL;
  MgIdent *d = mg_rec->ident;
  if (!var || c->n != 1) return mg_call_unknown(c);
  if (mg_older(c->arg[0]) && Py_TYPE(c->arg[0]) == &PyContextToken_Type)
    return mg_rec_break(BK_context_variable, "a token of a context variable from outside");
  if (!d->vars && !(d->vars = PyDict_New())) return NULL;
  if (!d->context) {
    if (!(d->context = PyContext_CopyCurrent())) return NULL;
    if (PyContext_Enter(d->context)) {
      Py_CLEAR(d->context);
      return NULL;
    }
  }
  if (!PyDict_Contains(d->vars, var)) {
    if (PyContextVar_Get(var, NULL, &was)) return NULL;
    int rc = PyDict_SetItem(d->vars, var, was ? was : d->absent);
    Py_XDECREF(was);
    if (rc) return NULL;
  }
  return mg_call_plain(c);
}

/* The gradient graph of stand-ins is that of the program, but for what it hangs on outside. */
static PyObject *builtin_node_name(const MgCall *c) {
  const MgCapture *cap = mg_rec->cap;
  for (uint32_t i = 0; i < cap->ninput; i++)
    if (cap->input[i].nonleaf)
      return mg_rec_break(BK_gradient_outside, "names in a gradient graph from outside");
  return mg_call_plain(c);
}

/* ---- max and min ---- */

/* 1: a number; 2: a tensor with one element; 0: neither. */
static int builtin_scalar_kind(PyObject *x) {
  if (PyLong_CheckExact(x) || PyFloat_CheckExact(x) || mg_symfloat_is(x)) return 1;
  PyObject *n = mg_standin_check(x) ? PyObject_CallMethod(x, "numel", NULL) : NULL;
  int kind = n && PyLong_CheckExact(n) && PyLong_AsLong(n) == 1 ? 2 : 0;
  Py_XDECREF(n);
  return PyErr_Occurred() ? -1 : kind;
}

/* The larger or smaller of two, as torch.compile has it: a new tensor. */
static PyObject *builtin_extreme_of(PyObject *torch, PyObject *a, PyObject *b, bool max) {
  int ka = builtin_scalar_kind(a), kb = builtin_scalar_kind(b);
  if (ka == 2 && kb == 2) return PyObject_CallMethod(torch, max ? "maximum" : "minimum", "OO", a, b);
  PyObject *f = PyObject_GetAttrString(torch, "clamp"), *args = PyTuple_Pack(1, ka == 2 ? a : b), *r = NULL;
  PyObject *kw = args ? Py_BuildValue("{s:O}", max ? "min" : "max", ka == 2 ? b : a) : NULL;
  if (f && kw && ka >= 0 && kb >= 0) r = PyObject_Call(f, args, kw);
  Py_XDECREF(kw);
  Py_XDECREF(args);
  Py_XDECREF(f);
  return r;
}

PyObject *mg_call_extreme(const MgCall *c) {
  bool one = c->n == 1 && PyList_CheckExact(c->arg[0]), any = false,
       max = !strcmp(((PyCFunctionObject *)c->f)->m_ml->ml_name, "max");
  PyObject *const *x = one ? PySequence_Fast_ITEMS(c->arg[0]) : c->arg;
  Py_ssize_t n = one ? PyList_GET_SIZE(c->arg[0]) : c->n;
  for (Py_ssize_t i = 0; i < n; i++) {
    int kind = builtin_scalar_kind(x[i]);
    if (kind <= 0) return NULL;
    any |= kind == 2;
  }
  PyObject *torch = any && n > 1 ? mg_import("torch") : NULL, *r = torch ? Py_NewRef(x[0]) : NULL;
  for (Py_ssize_t i = 1; r && i < n; i++) {
    bool numbers = builtin_scalar_kind(r) == 1 && builtin_scalar_kind(x[i]) == 1;
    PyObject *pair[] = {r, x[i]};
    Py_SETREF(r,
              numbers ? PyObject_Vectorcall(c->f, pair, 2, NULL) : builtin_extreme_of(torch, r, x[i], max));
  }
  Py_XDECREF(torch);
  return r;
}

PyObject *mg_call_builtin(const MgCall *c, MgAction act) {
  switch (act) {
  case ACT_node_name: return builtin_node_name(c);
  case ACT_weakref: return builtin_weakref(c);
  case ACT_weakref_get: return builtin_weakref_get(c);
  case ACT_dir: return builtin_dir(c);
  case ACT_format: return builtin_format(c);
  case ACT_globals: return builtin_globals();
  case ACT_getframe: return builtin_getframe(c);
  case ACT_contextvar_get: return builtin_contextvar_get(c);
  case ACT_contextvar_set: return builtin_contextvar_set(c);
  default: return mg_call_plain(c); /* super: the frame loop has made slot 0 ready */
  }
}

/* What a cache outside of the recording is asked with: numbers themselves, and older objects by identity,
 * since what it answers for others is nobody's knowledge.  New. */
static PyObject *builtin_cache_key(PyObject *x) {
  if (!PyTuple_CheckExact(x)) {
    mg_older_pin(x);
    return mg_symfloat_plain(x);
  }
  PyObject *r = PyTuple_New(PyTuple_GET_SIZE(x));
  for (Py_ssize_t i = 0; r && i < PyTuple_GET_SIZE(x); i++) {
    PyObject *v = builtin_cache_key(PyTuple_GET_ITEM(x, i));
    if (v) PyTuple_SET_ITEM(r, i, v);
    else Py_CLEAR(r);
  }
  return r;
}

/* Is x, or is in x, an object made here that is only equal to itself?  A cache would keep it, and
 * answer with what belongs to it. */
static bool builtin_cache_keeps(PyObject *x) {
  if (!PyTuple_CheckExact(x)) return Py_TYPE(x)->tp_hash == PyBaseObject_Type.tp_hash && mg_is_fresh(x);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(x); i++)
    if (builtin_cache_keeps(PyTuple_GET_ITEM(x, i))) return true;
  return false;
}

/* Is x, or is in x, an older object whose attributes the recording has set?  What is not
 * recorded does not see that. */
static bool builtin_is_written(PyObject *x) {
  if (PyTuple_CheckExact(x)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(x); i++)
      if (builtin_is_written(PyTuple_GET_ITEM(x, i))) return true;
    return false;
  }
  const MgOlder *e = mg_older(x);
  return e && mg_snap_written(e);
}

/* An entry of its cache_info(): how often it has computed something, how many answers it keeps; new.  NULL
 * without an exception: unknown. */
static PyObject *builtin_cache_info(PyObject *f, const char *name) {
  PyObject *t, *v, *tb;
  PyErr_Fetch(&t, &v, &tb);
  PyObject *info = PyObject_CallMethod(f, "cache_info", NULL),
           *n = info ? PyObject_GetAttrString(info, name) : NULL;
  Py_XDECREF(info);
  PyErr_Restore(t, v, tb);
  return n;
}

static bool builtin_cache_keeps_none(PyObject *f) {
  PyObject *max = builtin_cache_info(f, "maxsize");
  bool none = max && PyLong_CheckExact(max) && !PyObject_IsTrue(max);
  Py_XDECREF(max);
  return none;
}

/* A cached function of torch or of the standard library, which does not look at the program's tensors. */
static bool builtin_is_library(PyObject *cached) {
  PyObject *f = PyObject_GetAttr(cached, mg_names.wrapped);
  if (!f) mg_clear_as_no();
  bool yes = f && PyFunction_Check(f) && mg_skip_compile((PyCodeObject *)PyFunction_GET_CODE(f));
  Py_XDECREF(f);
  return yes;
}

/* What a cached function refers to: its table, and what separates positional from
 * keyword arguments in keys. */
typedef struct BuiltinCache {
  PyObject *own, *table, *mark;
} BuiltinCache;

static int builtin_visit_cache(PyObject *o, void *arg) {
  BuiltinCache *k = arg; /* what the table holds comes before it; no other dict but the function's own and no
                            plain object but the mark follow */
  if (PyDict_CheckExact(o) && o != k->own) k->table = o;
  if (Py_TYPE(o) == &PyBaseObject_Type) k->mark = o;
  return 0;
}

/* The key under which a cached function keeps what it gives for a call; new. */
static PyObject *builtin_key_of_call(const MgCall *c, PyObject *mark, bool typed) {
  Py_ssize_t nkw = c->n - c->npos, at = 0;
  if (!typed && c->n == 1 && !nkw && (PyUnicode_CheckExact(c->arg[0]) || PyLong_CheckExact(c->arg[0])))
    return Py_NewRef(c->arg[0]);
  PyObject *key = PyTuple_New(c->npos + (nkw ? 1 + 2 * nkw : 0) + (typed ? c->n : 0));
  for (Py_ssize_t i = 0; key && i < c->npos; i++) PyTuple_SET_ITEM(key, at++, Py_NewRef(c->arg[i]));
  if (key && nkw) PyTuple_SET_ITEM(key, at++, Py_NewRef(mark));
  for (Py_ssize_t i = 0; key && i < nkw; i++) {
    PyTuple_SET_ITEM(key, at++, Py_NewRef(PyTuple_GET_ITEM(c->kwnames, i)));
    PyTuple_SET_ITEM(key, at++, Py_NewRef(c->arg[c->npos + i]));
  }
  for (Py_ssize_t i = 0; key && typed && i < c->n; i++)
    PyTuple_SET_ITEM(key, at++, Py_NewRef(Py_TYPE(c->arg[i])));
  return key;
}

/* Guards that an older cached function still has what it gave for a call.  Calls that leave nothing in its
 * table (it is full of those that came after, or keeps none) stay without a guard.  -1 with an exception. */
static int builtin_guard_cached(const MgCall *c) {
  PyObject **own = _PyObject_GetDictPtr(c->f);
  BuiltinCache k = {.own = own ? *own : NULL};
  Py_TYPE(c->f)->tp_traverse(c->f, builtin_visit_cache, &k);
  bool found = false;
  for (int typed = 0; k.table && k.mark && !found && typed < 2; typed++) {
    PyObject *key = builtin_key_of_call(c, k.mark, typed),
             *v = key ? PyDict_GetItemWithError(k.table, key) : NULL;
    if ((found = v)) mg_guard_dict_key(mg_rec->guards, k.table, NULL, key, v, false);
    Py_XDECREF(key);
    if (PyErr_Occurred()) return -1;
  }
  return 0;
}

/* Calls an older cached function.  What it computes stays in its cache, so torch computes it now.  After a
 * write to a tensor, which has not happened yet, one of the program's may only
 * answer with what it has.  New. */
static PyObject *builtin_call_cached(const MgCall *c) {
  MgRec *rec = mg_rec;
  MgCapture *cap = rec->cap;
  bool answers = mg_alias_writes(mg_rec_trace(rec, &(MgTrace){0})) && !builtin_is_library(c->f),
       quiet = cap->quiet;
  if (PyErr_Occurred() || (!answers && mg_dispatch_leave(cap))) return NULL;
  cap->quiet = true;
  cap->refused = answers ? "an older cache is filled after a write to a tensor" : NULL;
  MgPause p = mg_rec_pause();
  PyObject *misses = builtin_cache_info(c->f, "misses"), *r = mg_call_plain(c),
           *now = builtin_cache_info(c->f, "misses");
  rec->filled_cache |= !misses || !now || PyObject_RichCompareBool(misses, now, Py_EQ) != 1;
  Py_XDECREF(misses);
  Py_XDECREF(now);
  mg_rec_resume(p);
  cap->quiet = quiet;
  cap->refused = NULL;
  if (r && !builtin_is_library(c->f) && builtin_guard_cached(c)) Py_CLEAR(r);
  if (!answers && mg_dispatch_return(cap)) Py_CLEAR(r);
  if (!r && PyErr_ExceptionMatches(MgBreakError) && !rec->abort)
    mg_rec_break(BK_cached_function, "what an older cache is asked depends on what was computed here");
  return r;
}

static bool builtin_has_symbol(PyObject *x) {
  if (!PyTuple_Check(x)) return mg_symnode_of(x);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(x); i++)
    if (builtin_has_symbol(PyTuple_GET_ITEM(x, i))) return true;
  return false;
}

/* Is it a number, a text, None, or a container of such?  Nobody can tell two of them apart, as long as nobody
 * writes to the containers. */
static bool builtin_is_value(PyObject *x) {
  PyObject *key, *v;
  Py_ssize_t at = 0;
  if (PyDict_CheckExact(x)) {
    while (PyDict_Next(x, &at, &key, &v))
      if (!builtin_is_value(key) || !builtin_is_value(v)) return false;
    return true;
  }
  if (!PyTuple_Check(x) && !PyList_CheckExact(x)) return mg_symnode_of(x) || mg_guard_is_const(x);
  for (; at < PySequence_Fast_GET_SIZE(x); at++)
    if (!builtin_is_value(PySequence_Fast_GET_ITEM(x, at))) return false;
  return true;
}

/* A function of the program's whose cache is asked about sizes that are symbols, as functions that work out
 * shapes are: what is inside of it is recorded, without its cache, if it gives a value.  Others (tables of
 * tensors, lists to be filled) are asked with numbers: the recording begins again with what is known of them
 * now.  NULL without an exception: this is such a one. */
static PyObject *builtin_call_with_sizes(const MgCall *c) {
  bool sizes = false;
  for (Py_ssize_t i = 0; i < c->n && !sizes; i++) sizes = builtin_has_symbol(c->arg[i]);
  if (!sizes || builtin_is_library(c->f) || mg_is_fresh(c->f)) return NULL;
  PyObject *f = PyObject_GetAttr(c->f, mg_names.wrapped), *r = NULL;
  MgCodeInfo *info = f && PyFunction_Check(f) ? mg_code_info((PyCodeObject *)PyFunction_GET_CODE(f)) : NULL;
  if (info && !info->by_numbers) {
    MgCapture *cap = mg_rec->cap;
    const char *refused = cap->refused,
               *why = "a cached function gives more than a value for sizes that change";
    cap->refused = why;
    r = mg_ops.call(f, c->arg, c->nargsf & ~PY_VECTORCALL_ARGUMENTS_OFFSET, c->kwnames);
    cap->refused = refused;
    if (r && !mg_rec->abort && (PyList_CheckExact(r) || PyDict_CheckExact(r) || !builtin_is_value(r))) {
      Py_CLEAR(r);
      mg_rec_break(BK_cached_function, "%s", why);
    }
    if (mg_rec->abort) info->by_numbers = mg_rec->again = true;
  }
  Py_XDECREF(f);
  return r;
}

/* A cached function: without tensors its result is one of the outside world (its cache outlives the
 * recording); with stand-ins, and where nothing is kept, the cache is not touched. */
PyObject *mg_call_lru_cache(const MgCall *c) {
  PyObject *value = builtin_call_with_sizes(c);
  if (value || PyErr_Occurred()) return value;
  if (mg_call_has_standin(c) || builtin_cache_keeps_none(c->f)) {
    PyObject *f = PyObject_GetAttr(c->f, mg_names.wrapped);
    PyObject *r = f ? mg_ops.call(f, c->arg, c->nargsf & ~PY_VECTORCALL_ARGUMENTS_OFFSET, c->kwnames) : NULL;
    Py_XDECREF(f);
    return r;
  }
  PyObject *args = PyTuple_New(c->n), *r = NULL, *w = NULL; /* the cache keeps them */
  MgCall plain = *c;
  for (Py_ssize_t i = 0; args && i < c->n; i++) {
    const char *other = mg_is_fresh(c->f)                ? NULL
                        : builtin_cache_keeps(c->arg[i]) ? "made"
                        : builtin_is_written(c->arg[i])  ? "changed"
                                                         : NULL;
    if (other) {
      Py_DECREF(args);
      return mg_rec_break(BK_cached_function, "an older cache is asked for an object %s here", other);
    }
    PyObject *x = builtin_cache_key(c->arg[i]);
    if (x) PyTuple_SET_ITEM(args, i, x);
    else Py_CLEAR(args);
  }
  if (!args) return NULL;
  plain.arg = &PyTuple_GET_ITEM(args, 0);
  plain.nargsf &= ~PY_VECTORCALL_ARGUMENTS_OFFSET;
  if (mg_is_fresh(c->f)) {
    MgPause p = mg_rec_pause();
    r = mg_call_plain(&plain);
    mg_rec_resume(p);
  } else r = builtin_call_cached(&plain);
  if (r) w = mg_wrap_result(r);
  Py_XDECREF(r);
  Py_DECREF(args);
  return w;
}
