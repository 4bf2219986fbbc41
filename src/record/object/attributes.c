/* Attribute access while recording: exactly CPython's lookup, with every read of outer state guarded and
 * every write to an older object kept in an overlay.
 * In: objects as the recording sees them.  Out: values as the recording sees them. */
#include "record/object/attributes.h"
#include <Python.h>
#include <structmember.h>
#include "entry/guard/automatic_dynamic.h"
#include "entry/guard/guard_add.h"
#include "entry/guard/guard_set.h"
#include "entry/guard/source.h"
#include "host/python/names.h"
#include "host/python/pyframe.h"
#include "host/python/pyobject.h"
#include "results.h"
#include "record/core/identity.h"
#include "record/core/ops.h"
#include "record/core/recording.h"
#include "record/numpy/array_type.h"
#include "record/object/class_writes.h"
#include "record/object/finalizers.h"
#include "record/object/lazy_constants.h"
#include "record/object/namespaces.h"
#include "record/object/wrap.h"
#include "record/symbolic/dynamic_sources.h"
#include "record/symbolic/number.h"
#include "record/symbolic/sizes.h"
#include "record/tensor/tensor_hooks.h"
#include "record/tensor/wrapper_subclass.h"

#define PY_SSIZE_T_CLEAN

/* Where an answer is kept for this recording: most lookups are asked for again. */
static MgAttrFound *attr_found(PyTypeObject *t, PyObject *name) {
  MgAttrFound *f = mg_rec->ident->found;
  return &f[mg_hash_u64((uint64_t)(uintptr_t)t ^ (uint64_t)(uintptr_t)name << 1) %
            (sizeof mg_rec->ident->found / sizeof *f)];
}

static bool attr_found_holds(const MgAttrFound *f, PyTypeObject *t, PyObject *name) {
  return f->type == t && f->name == name && f->version && f->version == mg_type_version(t);
}

static void attr_found_keep(MgAttrFound *f, PyTypeObject *t, PyObject *name, PyObject *d) {
  *f = (MgAttrFound){t, name, d, mg_type_version(t)};
  mg_guards_hold(mg_rec->guards, name);
}

/* Class attributes: the lookup is guarded by name, so that other changes of the class do not matter.
 * src: gets the source of a number that is known to change, or 0; NULL: numbers are guarded by value. */
static PyObject *attr_lookup(PyTypeObject *t, PyObject *name, SrcRef *src) {
  PyTypeObject *asked = t;
  MgAttrFound *f = attr_found(t, name);
  if (src) *src = 0;
  if (attr_found_holds(f, t, name) && !(src && mg_rec->dyn)) return f->attr;
  t = mg_subclass_of(t);
  PyObject *d = _PyType_Lookup(t, name);
  if (d && !mg_is_fresh((PyObject *)Py_TYPE(d)))
    mg_guard_type(mg_rec->guards, Py_TYPE(d)); /* is it a descriptor, and what does it do? */
  if (mg_class_wrote(t, name)) return d;
  if (!mg_is_fresh((PyObject *)t)) {
    if (src) *src = mg_dynfloat_class_attr(t, name, d);
    mg_guard_type_attr(mg_rec->guards, t, name, src && *src ? mg_any_float : d);
    if (t == asked && !(src && *src)) attr_found_keep(f, t, name, d);
  } else { /* what it found, or did not find, in older bases */
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(t->tp_mro); i++) {
      PyTypeObject *b = (PyTypeObject *)PyTuple_GET_ITEM(t->tp_mro, i);
      PyObject *own = mg_type_dict(b);
      bool here = own && PyDict_GetItemWithError(own, name);
      if (!mg_is_fresh((PyObject *)b)) mg_guard_type_attr(mg_rec->guards, b, name, _PyType_Lookup(b, name));
      if (here) break;
    }
  }
  return d;
}

static PyObject *attr_lookup_type(PyTypeObject *t, PyObject *name) { return attr_lookup(t, name, NULL); }

/* Keys of a class whose comparison runs code of the program: it has to run as often
 * as CPython compares them. */
static bool attr_keys_compare(PyTypeObject *t) {
  for (Py_ssize_t i = 0, n = t->tp_flags & Py_TPFLAGS_HEAPTYPE && t->tp_mro ? PyTuple_GET_SIZE(t->tp_mro) : 0;
       i < n; i++) {
    PyObject *own = mg_type_dict((PyTypeObject *)PyTuple_GET_ITEM(t->tp_mro, i));
    if (own && !mg_pyframe_only_strings(own)) return true;
  }
  return false;
}

/* Classes whose instances use object.__getattribute__: in C, or through the slot that
 * calls __getattr__ afterwards. */
static bool attr_is_generic(PyTypeObject *t) {
  if (t->tp_getattro == PyObject_GenericGetAttr) return true;
  if (!(t->tp_flags & Py_TPFLAGS_HEAPTYPE)) return false;
  return attr_lookup_type(t, mg_names.getattribute) ==
         PyDict_GetItemWithError(mg_type_dict(&PyBaseObject_Type), mg_names.getattribute);
}

/* Both answers about a class are the same while it does not change. */
static MgAttrClass attr_class(PyTypeObject *t) {
  MgIdent *d = mg_rec->ident;
  MgAttrClass *c =
      &d->classes_seen[mg_hash_u64((uint64_t)(uintptr_t)t) % (sizeof d->classes_seen / sizeof *c)];
  if (c->type == t && c->version && c->version == mg_type_version(t)) return *c;
  MgAttrClass now = {.type = t, .compares = attr_keys_compare(t)};
  now.generic = !now.compares && attr_is_generic(t);
  now.version = mg_is_fresh((PyObject *)t) ? 0 : mg_type_version(t);
  if (now.version) mg_guards_hold(mg_rec->guards, (PyObject *)t);
  return *c = now;
}

static PyObject *attr_keys_break(PyTypeObject *t) {
  return mg_rec_break(BK_namespace, "a lookup in class %s, whose dict has keys that are not strings",
                      t->tp_name);
}

/* Is the attribute one that the recording gave to a class of its own?  Then it is what the recording sees. */
static bool attr_on_fresh_class(PyTypeObject *t, PyObject *name) {
  if (!mg_is_fresh((PyObject *)t)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(t->tp_mro); i++) {
    PyObject *b = PyTuple_GET_ITEM(t->tp_mro, i), *own = mg_type_dict((PyTypeObject *)b);
    if (own && PyDict_GetItemWithError(own, name)) return mg_is_fresh(b);
  }
  return false;
}

/* The same for what this recording wrote on a class. */
static bool attr_is_ours(PyTypeObject *t, PyObject *name) {
  return attr_on_fresh_class(t, name) || mg_class_wrote(t, name);
}

PyObject *mg_rec_lookup_special(PyTypeObject *t, PyObject *name) { return attr_lookup_type(t, name); }

static PyObject *attr_missing(PyObject *o, PyObject *name) {
  PyErr_Format(PyExc_AttributeError, "'%.100s' object has no attribute '%U'", Py_TYPE(o)->tp_name, name);
  return NULL;
}

/* What the segment has written to a slot, or given a C setter of an exception; borrowed; NULL
 * without exception: nothing. */
static PyObject *attr_written(const MgOlder *e, PyObject *name) {
  return e->members ? PyDict_GetItemWithError(e->members, name) : NULL;
}

/* Slots of __slots__ and C members. Only object members have values that stay at one place. */
static PyObject *attr_get_member(PyObject *o, MgOlder *e, PyObject *d, PyObject *name) {
  PyObject *written = attr_written(e, name);
  if (written && written == mg_rec->ident->absent) return attr_missing(o, name);
  if (written || PyErr_Occurred()) return Py_XNewRef(written);
  int kind = ((PyMemberDescrObject *)d)->d_member->type;
  bool object = kind == T_OBJECT_EX || kind == T_OBJECT, by_path = object && mg_older_by_path(e);
  SrcRef src = e->src;
  PyObject *v = Py_TYPE(d)->tp_descr_get(d, e->orig, (PyObject *)Py_TYPE(o)), *w = NULL;
  if (by_path && v) w = mg_wrap(v, mg_source(mg_rec->guards, SRC_member, src, 0, d));
  else if (by_path || (!object && mg_older_by_path(e))) {
    Py_XDECREF(v);
    return mg_rec_break(BK_older_object, "read of slot %s of a %s", PyUnicode_AsUTF8(name),
                        Py_TYPE(o)->tp_name);
  } else {
    mg_guard_member(mg_rec->guards, e->orig, d, v);
    if (v) w = mg_wrap(v, 0);
  }
  Py_XDECREF(v);
  return w;
}

/* A constant that a C getter gives of an object found by a path.  Made for each read: guarded without a
 * source. */
static PyObject *attr_get_constant(const MgOlder *e, PyObject *d, PyObject *v) {
  PyObject *pair = PyTuple_Pack(2, d, v);
  if (!pair) return NULL;
  mg_guard_add(mg_rec->guards, GK_getter, e->src, pair, 0);
  Py_DECREF(pair);
  return Py_NewRef(v);
}

/* A C getter of an object that is found by a path: exceptions keep what it gives, so it is on the path too;
 * other objects are made for each read, so the owner must be the same one. */
static PyObject *attr_get_by_path(PyObject *o, MgOlder *e, PyObject *d) {
  PyObject *v = Py_TYPE(d)->tp_descr_get(d, e->orig, (PyObject *)Py_TYPE(o)), *w;
  if (!v) return NULL;
  if (PyExceptionInstance_Check(o)) w = mg_wrap(v, mg_source(mg_rec->guards, SRC_member, e->src, 0, d));
  else if (mg_guard_is_const(v)) w = attr_get_constant(e, d, v);
  else {
    mg_older_pin(o);
    w = mg_wrap_result(v);
  }
  Py_DECREF(v);
  return w;
}

/* What a function says about itself, its name for one, may be written. */
static PyObject *attr_get_of_function(PyObject *o, PyObject *d, PyObject *name) {
  MgOlder *e = mg_older(o);
  PyObject *v = Py_TYPE(d)->tp_descr_get(d, o, (PyObject *)Py_TYPE(o)), *w = NULL;
  bool by_path = e && mg_older_by_path(e);
  if (v && !by_path) mg_guard_member(mg_rec->guards, o, d, v);
  if (v && by_path && mg_guard_is_const(v))
    w = mg_wrap(v, mg_source(mg_rec->guards, SRC_attr, e->src, 0, name));
  else if (v) w = mg_wrap_result(v);
  Py_XDECREF(v);
  return w;
}

/* A data descriptor found on the class of o. */
static PyObject *attr_get_data_descr(PyObject *o, PyObject *d, PyObject *name) {
  PyTypeObject *dt = Py_TYPE(d);
  MgOlder *e = mg_older(o);
  if (e && !mg_older_by_path(e)) mg_guard_instance(mg_rec->guards, e->orig);
  if (e && name == mg_names.dict && dt == &PyGetSetDescr_Type) return Py_XNewRef(mg_older_dict(o));
  if (name == mg_names.globals && PyFunction_Check(o)) return mg_rec_namespace(PyFunction_GET_GLOBALS(o));
  if (e && dt == &PyMemberDescr_Type) return attr_get_member(o, e, d, name);
  if (e && dt == &PyGetSetDescr_Type && name != mg_names.class_) {
    PyObject *written = attr_written(e, name);
    if (written || PyErr_Occurred()) return Py_XNewRef(written);
    if (e->kind == OLDER_object && mg_older_by_path(e)) return attr_get_by_path(o, e, d);
  }
  if (dt == &PyGetSetDescr_Type && PyFunction_Check(o) && !mg_is_fresh(o))
    return attr_get_of_function(o, d, name);
  Py_INCREF(d);
  PyObject *r = dt->tp_descr_get(d, o, (PyObject *)Py_TYPE(o));
  Py_DECREF(d);
  if (!r || !e || dt == &PyProperty_Type || dt->tp_flags & Py_TPFLAGS_HEAPTYPE)
    return r; /* Python code made it */
  PyObject *w = mg_wrap_result(r);
  Py_DECREF(r);
  return w;
}

/* One of the dicts of a module; of one that is found by a path only single keys are looked at. */
static PyObject *attr_module_dict(PyObject *o, PyObject *where, PyObject **raw) {
  MgIdent *d = mg_rec->ident;
  int was = d->of_cell;
  d->of_cell = d->depth + 1;
  PyObject *r = mg_older_attr_raw(o, where, raw);
  d->of_cell = was;
  return r;
}

/* The source of the dict that an older module has there, or 0: its copy may have been written to. */
static SrcRef attr_module_dict_src(PyObject *o, PyObject *where) {
  PyObject *raw = NULL, *d = attr_module_dict(o, where, &raw);
  const MgOlder *e = d && mg_olderdict_lazy(d) ? mg_older(d) : NULL;
  PyObject *pinned = e ? e->orig : d ? NULL : raw;
  SrcRef src = e && e->src ? e->src : pinned ? mg_source(mg_rec->guards, SRC_pinned, 0, 0, pinned) : 0;
  Py_XDECREF(d);
  return src;
}

/* What the dicts of an older module have under a string that is another one at other calls, at key: found by
 * it in every call.  NULL without exception: nothing, or it cannot be found so. */
static PyObject *attr_moving(PyObject *o, PyObject *name, SrcRef key) {
  PyObject *const where[] = {mg_names.parameters, mg_names.buffers, mg_names.modules};
  PyObject **attrs = _PyObject_GetDictPtr(mg_older_orig(o)), *v = NULL;
  MgGuards *g = mg_rec->guards;
  int at = -1;
  while (!v && ++at < 3) {
    PyObject *d = attrs && *attrs ? PyDict_GetItemWithError(*attrs, where[at]) : NULL;
    if (!d || !PyDict_CheckExact(d)) return NULL;
    v = PyDict_GetItemWithError(d, name);
  }
  if (v) mg_guard_add(g, GK_type, key, (PyObject *)&PyUnicode_Type, 0);
  for (int i = 0; v && i <= at; i++) {
    SrcRef dict = attr_module_dict_src(o, where[i]);
    if (!dict) return NULL;
    if (i == at) return mg_wrap(v, mg_source(g, SRC_key_of, dict, (int32_t)key, NULL));
    mg_guard_pair(g, GK_nokey_of, dict, key, 0);
  }
  return NULL;
}

PyObject *mg_rec_getattr_moving(PyObject *o, PyObject *name) {
  SrcRef key = mg_unread_key(name);
  const MgOlder *e = key ? mg_older(o) : NULL;
  PyTypeObject *t = Py_TYPE(o);
  PyObject **attrs = e ? _PyObject_GetDictPtr(e->orig) : NULL, *v = NULL;
  bool module = attrs && *attrs && !e->attrs && !mg_rec->ident->classes && t == mg_subclass_of(t) &&
                PyObject_TypeCheck(o, mg_torch.module) && attr_class(t).generic &&
                attr_lookup_type(t, mg_names.getattr) == mg_torch.module_getattr;
  if (module && !_PyType_Lookup(t, name) && !PyDict_GetItemWithError(*attrs, name)) {
    MgGuards *g = mg_rec->guards;
    SrcRef self = mg_older_by_path(e) ? e->src : mg_source(g, SRC_pinned, 0, 0, e->orig);
    mg_guard_add(g, GK_type, key, (PyObject *)&PyUnicode_Type, 0);
    mg_guard_add(g, GK_type, self, (PyObject *)t, 0);
    mg_guard_pair(g, GK_noattr_of, mg_source(g, SRC_pinned, 0, 0, (PyObject *)t), key, 0);
    mg_guard_pair(g, GK_nokey_of, mg_source(g, SRC_instdict, self, 0, NULL), key, 0);
    v = attr_moving(o, name, key);
  }
  if (!v && !PyErr_Occurred()) mg_unread_look(name);
  return v;
}

PyObject *mg_rec_submodule(PyObject *o, PyObject *name) {
  PyObject *const where[] = {mg_names.parameters, mg_names.buffers, mg_names.modules};
  SrcRef key = mg_unread_key(name);
  PyObject *moving = key ? attr_moving(o, name, key) : NULL;
  if (moving || PyErr_Occurred()) return moving;
  mg_unread_look(name);
  for (int i = 0; i < 3; i++) {
    PyObject *raw = NULL, *d = attr_module_dict(o, where[i], &raw), *v = NULL;
    if (!d && !raw) {
      if (PyErr_Occurred()) return NULL;
      continue; /* Module.__init__ has not run */
    }
    if (d) { /* the recording already has its own copy of this dict */
      if (mg_olderdict_lazy(d)) v = mg_olderdict_get(d, name);
      if (!v && !PyErr_Occurred() && !mg_olderdict_lazy(d)) v = Py_XNewRef(PyDict_GetItemWithError(d, name));
      Py_DECREF(d);
      if (v || PyErr_Occurred()) return v;
      continue;
    }
    v = PyDict_GetItemWithError(raw, name);
    if (!v && PyErr_Occurred()) return NULL;
    PyObject *w = mg_wrap_key(raw, name, v);
    if (v) return w;
  }
  return attr_missing(o, name);
}

/* functools.cached_property without its lock, which is older than the recording: the
 * function, then the attribute. */
static PyObject *attr_compute_cached(PyObject *o, PyObject *d) {
  PyObject *func = PyObject_GetAttr(d, mg_names.func),
           *name = func ? PyObject_GetAttr(d, mg_names.attrname) : NULL, *v = NULL;
  PyObject *seen = name ? mg_wrap(func, 0) : NULL;
  if (seen) v = mg_ops.call(seen, &o, 1, NULL);
  if (v && (mg_older(o) ? mg_older_set_attr(o, name, v) : PyObject_GenericSetAttr(o, name, v))) Py_CLEAR(v);
  Py_XDECREF(seen);
  Py_XDECREF(name);
  Py_XDECREF(func);
  return v;
}

/* object.__getattribute__.  missing: set instead of an exception when there is no such
 * attribute; NULL: the exception. */
static PyObject *attr_generic(PyObject *o, PyObject *name, bool *missing) {
  PyTypeObject *t = mg_subclass_of(Py_TYPE(o));
  SrcRef src;
  PyObject *d = attr_lookup(t, name, &src);
  descrgetfunc get = d ? Py_TYPE(d)->tp_descr_get : NULL;
  if (get && Py_TYPE(d)->tp_descr_set) return attr_get_data_descr(o, d, name);
  if (mg_older(o)) {
    PyObject *v = mg_older_attr(o, name);
    if (v || PyErr_Occurred()) return v;
  } else {
    PyObject **dp = _PyObject_GetDictPtr(o), *v = dp && *dp ? PyDict_GetItemWithError(*dp, name) : NULL;
    if (v || PyErr_Occurred()) return Py_XNewRef(v);
  }
  if (!d && missing) {
    *missing = true;
    return NULL;
  }
  if (!d) return attr_missing(o, name);
  if (!get) return attr_is_ours(t, name) ? Py_NewRef(d) : mg_wrap(d, src);
  if (Py_TYPE(d) == mg_torch.cached_property) return attr_compute_cached(o, d);
  /* A descriptor of a Python class has state of its own; functions and the like bind as they are. */
  PyObject *seen = Py_TYPE(d)->tp_flags & Py_TPFLAGS_HEAPTYPE ? mg_wrap(d, 0) : Py_NewRef(d);
  PyObject *r = seen ? get(seen, o, (PyObject *)t) : NULL;
  Py_XDECREF(seen);
  return r;
}

PyObject *mg_rec_generic_getattr(PyObject *o, PyObject *name) { return attr_generic(o, name, NULL); }

/* Does a class written in C look attributes up in its own way, as threading.local and weakref.proxy do?
 * hook: what the lookup found */
static bool attr_hook_is_c(PyTypeObject *t, PyObject *hook) {
  bool weak = t == &_PyWeakref_ProxyType || t == &_PyWeakref_CallableProxyType;
  if ((!weak && !(t->tp_flags & Py_TPFLAGS_HEAPTYPE)) || !hook || Py_TYPE(hook) != &PyWrapperDescr_Type)
    return false;
  void *f = ((PyWrapperDescrObject *)hook)->d_wrapped;
  return f != (void *)PyObject_GenericGetAttr && f != (void *)PyObject_GenericSetAttr;
}

/* What the __getattr__ of the program's class says when there is no such attribute. */
static PyObject *attr_hook(PyObject *o, PyObject *name, PyObject *hook) {
  if (hook == mg_torch.module_getattr && mg_older(o)) return mg_rec_submodule(o, name);
  PyObject *args[2] = {o, name};
  return mg_ops.call(hook, args, 2, NULL);
}

/* r, or what the hook says. */
static PyObject *attr_or_hook(PyObject *o, PyObject *name, PyObject *r) {
  PyObject *et, *ev, *tb, *hook;
  if (r || mg_rec->abort || !PyErr_ExceptionMatches(PyExc_AttributeError)) return r;
  PyErr_Fetch(&et, &ev, &tb); /* a type lookup takes an exception that is set for its own */
  if (!(hook = attr_lookup_type(Py_TYPE(o), mg_names.getattr))) {
    PyErr_Restore(et, ev, tb);
    return NULL;
  }
  Py_XDECREF(et);
  Py_XDECREF(ev);
  Py_XDECREF(tb);
  return attr_hook(o, name, hook);
}

/* The attributes of an older threading.local in this thread, as the recording sees them: new; NULL
 * without exception: it is none. */
static PyObject *attr_local(PyObject *o) {
  MgOlder *e = mg_older(o);
  MgPause pause = mg_rec_pause(); /* an __init__ runs here, once: as it is */
  PyObject *d = e ? mg_local_dict(e->orig, true) : NULL;
  mg_rec_resume(pause);
  if (!d) return NULL;
  MgGuards *g = mg_rec->guards;
  SrcRef owner = mg_older_by_path(e) ? e->src : mg_source(g, SRC_pinned, 0, 0, e->orig);
  return mg_wrap(d, mg_source(g, SRC_local, owner, 0, NULL));
}

static PyObject *attr_of_local(PyObject *o, PyObject *dict, PyObject *name) {
  if (name == mg_names.dict) return Py_NewRef(dict);
  PyTypeObject *t = Py_TYPE(o);
  PyObject *d = attr_lookup_type(t, name),
           *v = d && Py_TYPE(d)->tp_descr_set ? NULL : PyDict_GetItemWithError(dict, name);
  if (v || PyErr_Occurred()) return Py_XNewRef(v);
  if (!d) return attr_or_hook(o, name, attr_missing(o, name));
  if (!Py_TYPE(d)->tp_descr_get) return mg_wrap(d, 0);
  return Py_TYPE(d)->tp_descr_get(d, o, (PyObject *)t);
}

/* What a weak proxy stands for, as the recording sees it: new; NULL without exception: o is none, or the
 * object is dead. */
static PyObject *attr_proxied(PyObject *o) {
  if (!PyWeakref_CheckProxy(o)) return NULL;
  const MgOlder *e = mg_older(o);
  PyObject *to = mg_weakref_target(e ? e->orig : o);
  if (to == Py_None) return NULL;
  if (e) return mg_rec_referent(o);
  if (!mg_finalizer_dropped(mg_older_orig(to))) return Py_NewRef(to);
  return mg_rec_break(BK_older_object, "a weak proxy of a %s that went out of use", Py_TYPE(to)->tp_name);
}

static PyObject *attr_get(PyObject *o, PyObject *name);

static PyObject *attr_of_instance(PyObject *o, PyObject *name) {
  PyTypeObject *t = Py_TYPE(o);
  MgAttrClass class = attr_class(t);
  if (class.compares) return attr_keys_break(t);
  if (t == &PyMethod_Type && !_PyType_Lookup(t, name)) return attr_get(PyMethod_GET_FUNCTION(o), name);
  if (!class.generic) {
    bool older = mg_older(o) != NULL;
    PyObject *local = older ? attr_local(o) : NULL, *x = local ? attr_of_local(o, local, name) : NULL;
    if (local || PyErr_Occurred()) {
      Py_XDECREF(local);
      return x;
    }
    PyObject *to = attr_proxied(o);
    if (to || PyErr_Occurred()) {
      x = to ? attr_get(to, name) : NULL;
      Py_XDECREF(to);
      return x;
    }
    if (older && attr_hook_is_c(t, _PyType_Lookup(t, mg_names.getattribute)))
      return mg_rec_break(BK_older_object, "attribute %s of a %s", PyUnicode_AsUTF8(name), t->tp_name);
    PyObject *r = PyObject_GetAttr(o, name);
    if (!r || !older || t->tp_flags & Py_TPFLAGS_HEAPTYPE)
      return r; /* a Python __getattribute__ was recorded */
    PyObject *w = mg_wrap_result(r);
    Py_DECREF(r);
    return w;
  }
  if (t->tp_getattro == PyObject_GenericGetAttr) return attr_generic(o, name, NULL);
  bool missing = false;
  PyObject *r = attr_generic(o, name, &missing),
           *hook = missing ? attr_lookup_type(t, mg_names.getattr) : NULL;
  if (!missing) return attr_or_hook(o, name, r);
  return hook ? attr_hook(o, name, hook) : attr_missing(o, name);
}

/* Has the class a __getattribute__ in Python?  The hook records it. */
static bool attr_is_python(PyTypeObject *t) {
  PyObject *d =
      t->tp_getattro == PyModule_Type.tp_getattro ? NULL : attr_lookup_type(t, mg_names.getattribute);
  return d && Py_TYPE(d) == &PyFunction_Type;
}

static PyObject *attr_of_module(PyObject *o, PyObject *name) {
  if (name == mg_names.dict) return mg_rec_namespace(PyModule_GetDict(o));
  PyTypeObject *t = Py_TYPE(o);
  PyObject *d = attr_lookup_type(t, name), *v = NULL, *hook = NULL;
  bool first = d && t->tp_flags & Py_TPFLAGS_HEAPTYPE && Py_TYPE(d)->tp_descr_set;
  if (!first && ((v = mg_rec_namespace_get(PyModule_GetDict(o), name)) || PyErr_Occurred())) return v;
  if (!d && (hook = mg_rec_namespace_get(PyModule_GetDict(o),
                                         mg_names.getattr))) { /* PEP 562: recorded as it runs */
    Py_DECREF(hook);
  } else if (PyErr_Occurred()) return NULL;
  PyObject *r = PyObject_GetAttr(o, name), *w = r ? mg_wrap(r, 0) : NULL;
  Py_XDECREF(r);
  return w;
}

static PyObject *attr_of_class(PyObject *o, PyObject *name) {
  PyTypeObject *t = (PyTypeObject *)o;
  if (attr_keys_compare(t)) return attr_keys_break(t);
  SrcRef src;
  PyObject *meta = attr_lookup_type(Py_TYPE(o), name), *d = attr_lookup(t, name, &src),
           *r = PyObject_GetAttr(o, name);
  if (!r || r != d) { /* bound, computed, or of the metaclass */
    PyTypeObject *rt = r ? Py_TYPE(r) : NULL;
    if (!r || rt == &PyMethod_Type || rt == &PyCFunction_Type || rt == mg_method_wrapper_type()) return r;
  }
  if (Py_TYPE(r) == &PyDictProxy_Type) { /* the class's own dict: looked into, never copied */
    if (!mg_is_fresh(o) && !mg_older(r) && mg_older_add(r, r, 0, OLDER_itself)) Py_CLEAR(r);
    return r;
  }
  if (r && r == d && attr_is_ours(t, name)) return r;
  bool stored = meta && (Py_TYPE(meta) == &PyGetSetDescr_Type || Py_TYPE(meta) == &PyMemberDescr_Type);
  if (r && stored && t->tp_flags & Py_TPFLAGS_HEAPTYPE &&
      !mg_is_fresh(o)) /* its name, its bases: no change of these is a change of its dict */
    mg_guard_member(mg_rec->guards, o, meta, r);
  PyObject *w = mg_wrap(r, r == d ? src : 0);
  Py_DECREF(r);
  return w;
}

/* Does a class of the program say what this attribute of its stand-ins is, rather than
 * torch.Tensor or a stand-in? */
static bool attr_of_program(PyTypeObject *t, PyObject *name) {
  PyTypeObject *c = mg_subclass_of(t);
  PyObject *d = attr_lookup_type(c, name);
  return d && d != _PyType_Lookup(mg_torch.tensor, name);
}

/* Attributes of tensors are the tensor side's business, except those that users hang on the object. */
static PyObject *attr_of_standin(PyObject *o, PyObject *name) {
  if (name == mg_names.class_) return Py_NewRef(mg_standin_class(o));
  if (Py_TYPE(o) != mg_standin_type && attr_of_program(Py_TYPE(o), name))
    return mg_rec_generic_getattr(o, name);
  if (mg_older(o)) {
    PyObject *d = _PyType_Lookup(Py_TYPE(o), name);
    if (name == mg_names.dict) return Py_XNewRef(mg_older_dict(o));
    if (!d) {
      PyObject *v = mg_older_attr(o, name);
      if (v || PyErr_Occurred()) return v;
    }
  }
  return PyObject_GetAttr(o, name);
}

/* The layout of super objects is not in CPython's headers, but has been this since 2.2. */
typedef struct SuperObject {
  PyObject_HEAD PyTypeObject *type; /* the classes after this one in the order of obj_type are asked */
  PyObject *obj;
  PyTypeObject *obj_type;
} SuperObject;

/* super().name: every class that is asked on the way is guarded. */
static PyObject *attr_of_super(PyObject *o, PyObject *name) {
  SuperObject *s = (SuperObject *)o;
  PyObject *mro = s->obj_type ? s->obj_type->tp_mro : NULL, *d = NULL;
  PyTypeObject *k = NULL;
  Py_ssize_t n = mro ? PyTuple_GET_SIZE(mro) : 0, i = 0;
  if (mro && !mg_is_fresh((PyObject *)s->obj_type))
    mg_guard_type_mro(mg_rec->guards, mg_subclass_of(s->obj_type));
  while (i < n && PyTuple_GET_ITEM(mro, i) != (PyObject *)s->type) i++;
  for (i++; i < n && !d && name != mg_names.class_; i++) {
    k = (PyTypeObject *)PyTuple_GET_ITEM(mro, i);
    attr_lookup_type(k, name);
    PyObject *own = mg_type_dict(k);
    d = own ? PyDict_GetItemWithError(own, name) : NULL;
    if (!d && PyErr_Occurred()) return NULL;
  }
  if (!d) return PyObject_GetAttr(o, name);
  PyTypeObject *t = Py_TYPE(d);
  if (!t->tp_descr_get) return attr_is_ours(k, name) ? Py_NewRef(d) : mg_wrap(d, 0);
  bool stored = t == &PyMemberDescr_Type || t == &PyGetSetDescr_Type;
  return stored && s->obj && mg_older(s->obj) ? attr_get_data_descr(s->obj, d, name)
                                              : PyObject_GetAttr(o, name);
}

/* The error knows what was asked of what, as PyObject_GetAttr has it. */
static PyObject *attr_note_error(PyObject *o, PyObject *name) {
  PyObject *t, *e, *tb;
  if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return NULL;
  PyErr_Fetch(&t, &e, &tb);
  PyErr_NormalizeException(&t, &e, &tb);
  PyAttributeErrorObject *a = (PyAttributeErrorObject *)e;
  if (PyErr_GivenExceptionMatches(e, PyExc_AttributeError) && !a->name && !a->obj) {
    a->name = Py_NewRef(name);
    a->obj = Py_NewRef(o);
  }
  PyErr_Restore(t, e, tb);
  return NULL;
}

static PyObject *attr_of_wrapper(PyObject *o, PyObject *name) {
  return attr_or_hook(o, name, mg_wrapper_getattr(o, name));
}

static PyObject *attr_of_tensor(PyObject *o, PyObject *name) {
  if (Py_TYPE(o) == mg_standin_type) return attr_of_standin(o, name);
  if (attr_is_generic(Py_TYPE(o))) return attr_or_hook(o, name, attr_of_standin(o, name));
  return name == mg_names.class_ ? attr_of_standin(o, name) : PyObject_GetAttr(o, name);
}

PyObject *mg_rec_standin_getattr(PyObject *o, PyObject *name) { return attr_of_standin(o, name); }

static PyObject *attr_get(PyObject *o, PyObject *name) {
  if (mg_standin_check(o)) return mg_symsize_dress(mg_rec->cap, attr_of_tensor(o, name));
  if (mg_array_check(o)) return mg_array_getattr(o, name);
  if (mg_symfloat_is(o))
    return name == mg_names.class_ ? Py_NewRef((PyObject *)mg_symfloat_class(o)) : PyObject_GetAttr(o, name);
  if (mg_wrapper_is(o))
    return attr_is_generic(Py_TYPE(o)) ? attr_of_wrapper(o, name) : PyObject_GetAttr(o, name);
  if (PyModule_Check(o))
    return attr_is_python(Py_TYPE(o)) ? PyObject_GetAttr(o, name) : attr_of_module(o, name);
  if (PyType_Check(o)) return attr_of_class(o, name);
  if (Py_TYPE(o) == &PySuper_Type && !mg_older(o))
    return attr_of_super(o, name); /* an older one binds older objects, not yet wrapped */
  PyObject *v = attr_of_instance(o, name);
  if (!v && !mg_rec->abort && mg_tensorhook_is_handle(o))
    return mg_rec_break(BK_hook, "attribute %s of a hook's handle", PyUnicode_AsUTF8(name));
  return v;
}

PyObject *mg_rec_object_getattr(PyObject *o, PyObject *name) {
  PyObject *v = PyModule_Check(o) ? attr_of_module(o, name) : mg_rec_generic_getattr(o, name);
  return v || mg_rec->abort ? v : attr_note_error(o, name);
}

PyObject *mg_rec_getattr(PyObject *o, PyObject *name) {
  if (!mg_rec) return PyObject_GetAttr(o, name);
  if (PyCell_Check(o) && PyCell_GET(o) && mg_older_fill(PyCell_GET(o))) return NULL;
  PyObject *v = attr_get(o, name);
  return v || mg_rec->abort ? v : attr_note_error(o, name);
}

PyObject *mg_rec_special(PyObject *o, PyObject *name) {
  PyTypeObject *t = mg_subclass_of(Py_TYPE(o));
  PyObject *d = attr_lookup_type(t, name);
  if (!d) return attr_missing(o, name);
  descrgetfunc get = Py_TYPE(d)->tp_descr_get;
  if (get) return get(d, o, (PyObject *)t);
  return mg_is_fresh(d) ? Py_NewRef(d) : mg_wrap(d, 0); /* an instance: it may be changed by its call */
}

/* ---- writing ---- */

/* What a member of a class with __slots__ holds now. */
static bool attr_finalizes_member(PyObject *o, PyObject *d, PyObject *name) {
  MgOlder *e = mg_older(o);
  PyObject *now = attr_written(e, name);
  if (now) return mg_rec_finalizes(now);
  return mg_rec_finalizes_attr(
      o, d, *(PyObject **)((char *)e->orig + ((PyMemberDescrObject *)d)->d_member->offset));
}

static int attr_set_member(PyObject *o, PyObject *name, PyObject *v) {
  MgOlder *e = mg_older(o);
  if (!e->members && !(e->members = PyDict_New())) return -1;
  return PyDict_SetItem(e->members, name, v ? v : mg_rec->ident->absent);
}

/* __cause__ of an older exception: what CPython accepts, it gets when the segment ends. */
static int attr_set_cause(PyObject *o, PyObject *name, PyObject *v) {
  PyObject *trial = PyObject_CallNoArgs(PyExc_BaseException);
  int rc = trial ? PyObject_SetAttr(trial, name, v) : -1;
  Py_XDECREF(trial);
  return rc || attr_set_member(o, name, v) || attr_set_member(o, mg_names.suppress_context, Py_True) ? -1 : 0;
}

/* object.__setattr__ */
int mg_rec_generic_setattr(PyObject *o, PyObject *name, PyObject *v) {
  if (PyType_Check(o)) return mg_class_set((PyTypeObject *)o, name, v);
  if (name == mg_names.class_ && !mg_older(o)) return PyObject_GenericSetAttr(o, name, v);
  bool module = PyModule_Check(o);
  if (!mg_older(o) && !module) return PyObject_GenericSetAttr(o, name, v);
  PyObject *d = attr_lookup_type(Py_TYPE(o), name);
  descrsetfunc set = d ? Py_TYPE(d)->tp_descr_set : NULL;
  if (!set)
    return module ? mg_rec_namespace_set(PyModule_GetDict(o), name, v) : mg_older_set_attr(o, name, v);
  if (Py_TYPE(d) == &PyProperty_Type || Py_TYPE(d)->tp_flags & Py_TPFLAGS_HEAPTYPE)
    return set(d, o, v); /* Python code */
  if (Py_TYPE(d) == &PyMemberDescr_Type && ((PyMemberDescrObject *)d)->d_member->type == T_OBJECT_EX)
    return attr_finalizes_member(o, d, name) ? -1 : attr_set_member(o, name, v);
  if (PyExceptionInstance_Check(o) && name == mg_names.cause) return attr_set_cause(o, name, v);
  mg_rec_break(BK_older_write, "write to attribute %s of a %s", PyUnicode_AsUTF8(name), Py_TYPE(o)->tp_name);
  return -1;
}

/* The usual end of nn.Module.__setattr__: a plain value under a name that is no parameter, buffer or
 * submodule. 1 done, 0 not this case, -1 error. */
static int attr_set_on_module(PyObject *o, PyObject *name, PyObject *v) {
  PyObject *const where[] = {mg_names.parameters, mg_names.buffers, mg_names.modules};
  PyObject *c = mg_standin_check(v) ? mg_standin_class(v) : (PyObject *)Py_TYPE(v);
  if (PyType_IsSubtype((PyTypeObject *)c, mg_torch.parameter) || PyObject_TypeCheck(v, mg_torch.module))
    return 0;
  for (int i = 0; i < 3; i++) {
    PyObject *raw = NULL, *d = attr_module_dict(o, where[i], &raw);
    if (!d && PyErr_Occurred()) return -1;
    if (!d && !raw) return 0;
    int has = d && mg_olderdict_lazy(d) ? mg_olderdict_contains(d, name) : MG_ASK_PYTHON;
    if (has == MG_ASK_PYTHON) has = PyDict_Contains(d ? d : raw, name);
    if (!d && has == 0) mg_guard_dict_key(mg_rec->guards, raw, NULL, name, NULL, false);
    Py_XDECREF(d);
    if (has) return has < 0 ? -1 : 0;
  }
  return mg_rec_generic_setattr(o, name, v) ? -1 : 1;
}

int mg_rec_standin_setattr(PyObject *o, PyObject *name, PyObject *v) {
  PyObject *d = _PyType_Lookup(Py_TYPE(o), name);
  if (d && Py_TYPE(d)->tp_descr_set) return PyObject_GenericSetAttr(o, name, v);
  return mg_older(o) ? mg_older_set_attr(o, name, v) : PyObject_GenericSetAttr(o, name, v);
}

static int attr_set_on_standin(PyObject *o, PyObject *name, PyObject *v) {
  PyObject *hook = Py_TYPE(o) == mg_standin_type
                       ? NULL
                       : attr_lookup_type(Py_TYPE(o), v ? mg_names.setattr : mg_names.delattr);
  return hook && Py_TYPE(hook) == &PyFunction_Type ? PyObject_SetAttr(o, name, v)
                                                   : mg_rec_standin_setattr(o, name, v);
}

static int attr_set_local(PyObject *o, PyObject *dict, PyObject *name, PyObject *v) {
  PyObject *d = attr_lookup_type(Py_TYPE(o), name);
  if (d && Py_TYPE(d)->tp_descr_set) return Py_TYPE(d)->tp_descr_set(d, o, v);
  if (v) return PyDict_SetItem(dict, name, v);
  int has = PyDict_Contains(dict, name);
  if (has) return has < 0 ? -1 : PyDict_DelItem(dict, name);
  attr_missing(o, name);
  return -1;
}

int mg_rec_setattr(PyObject *o, PyObject *name, PyObject *v) {
  if (!mg_rec) return PyObject_SetAttr(o, name, v);
  if (mg_standin_check(o)) return attr_set_on_standin(o, name, v);
  if (mg_array_check(o)) return PyObject_SetAttr(o, name, v);
  if (mg_wrapper_is(o) && mg_wrapper_setattr(o, name)) return -1;
  if (PyModule_CheckExact(o) && name != mg_names.class_)
    return mg_rec_namespace_set(PyModule_GetDict(o), name, v);
  PyObject *to = attr_proxied(o);
  if (to || PyErr_Occurred()) {
    int rc = to ? mg_rec_setattr(to, name, v) : -1;
    Py_XDECREF(to);
    return rc;
  }
  MgOlder *e = mg_older(o);
  if (!e && !PyType_Check(o) && !PyModule_Check(o)) return PyObject_SetAttr(o, name, v);
  PyObject *hook = attr_lookup_type(Py_TYPE(o), v ? mg_names.setattr : mg_names.delattr);
  if (e && attr_hook_is_c(Py_TYPE(o), hook)) {
    PyObject *local = attr_local(o);
    if (local || PyErr_Occurred()) {
      int rc = local ? attr_set_local(o, local, name, v) : -1;
      Py_XDECREF(local);
      return rc;
    }
    mg_rec_break(BK_older_write, "write to attribute %s of a %s", PyUnicode_AsUTF8(name),
                 Py_TYPE(o)->tp_name);
    return -1;
  }
  if (!hook || Py_TYPE(hook) != &PyFunction_Type) return mg_rec_generic_setattr(o, name, v);
  if (v && hook == mg_torch.module_setattr) {
    int rc = attr_set_on_module(o, name, v);
    if (rc) return rc < 0 ? -1 : 0;
  }
  PyObject *args[3] = {o, name, v}, *r = mg_ops.call(hook, args, v ? 3 : 2, NULL);
  Py_XDECREF(r);
  return r ? 0 : -1;
}
