/* Globals, module dicts and class dicts. */
#include "record/object/namespaces.h"
#include "entry/guard/guard_add.h"
#include "entry/guard/guard_set.h"
#include "entry/guard/source.h"
#include "host/python/hook_mode.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "record/core/c_functions.h"
#include "record/core/call_args.h"
#include "record/core/identity.h"
#include "record/core/recording.h"
#include "record/object/class_writes.h"
#include "record/object/finalizers.h"
#include "record/object/wrap.h"
#include "record/symbolic/dynamic_sources.h"

/* ---- the dict of a class ---- */

PyObject *mg_rec_class_mapping(PyObject *o) {
  if (Py_TYPE(o) != &PyDictProxy_Type || !mg_older(o)) return NULL;
  PyObject *m = *(PyObject **)((char *)o + sizeof(PyObject)); /* the object's only field */
  return PyDict_CheckExact(m) && mg_older(o)->kind == OLDER_itself ? m : NULL;
}

PyObject *mg_rec_class_mapping_get(PyObject *dict, PyObject *key) {
  PyObject *v = PyDict_GetItemWithError(dict, key);
  if (!v && PyErr_Occurred()) return NULL;
  if (mg_class_wrote_dict(dict, key)) return Py_XNewRef(v);
  return mg_wrap_key(dict, key, v);
}

/* All of it, as a fresh dict of wrapped values. */
PyObject *mg_rec_class_mapping_all(PyObject *dict) {
  if (mg_class_wrote_dict(dict, NULL))
    return mg_rec_break(BK_namespace, "the dict of a class that was written to");
  mg_guard_dict_all(mg_rec->guards, dict, NULL, true);
  PyObject *all = PyDict_New(), *k, *v;
  Py_ssize_t pos = 0;
  while (all && PyDict_Next(dict, &pos, &k, &v)) {
    PyObject *w = mg_wrap(v, mg_dynfloat_key(dict, NULL, k, v));
    if (!w || PyDict_SetItem(all, k, w)) Py_CLEAR(all);
    Py_XDECREF(w);
  }
  return all;
}

/* A method called with the mapping as self, by name. */
static PyObject *builtin_call_method(PyObject *self, const char *name, const MgCall *c, Py_ssize_t first) {
  PyObject *m = PyObject_GetAttrString(self, name);
  PyObject *r = m ? PyObject_Vectorcall(m, c->arg + first, (size_t)(c->npos - first), c->kwnames) : NULL;
  Py_XDECREF(m);
  return r;
}

bool mg_builtin_looks_up(const char *name) {
  return !strcmp(name, "get") || !strcmp(name, "__getitem__") || !strcmp(name, "__contains__");
}

PyObject *mg_builtin_found(const MgCall *c, Py_ssize_t first, const char *name, PyObject *v) {
  if (!v && PyErr_Occurred()) return NULL;
  if (!strcmp(name, "__contains__")) {
    Py_XDECREF(v);
    return PyBool_FromLong(v != NULL);
  }
  bool item = !strcmp(name, "__getitem__");
  if (!v && item) PyErr_SetObject(PyExc_KeyError, c->arg[first]);
  if (v || item) return v;
  return Py_NewRef(c->npos > first + 1 ? c->arg[first + 1] : Py_None);
}

PyObject *mg_rec_class_mapping_call(const MgCall *c, PyObject *dict) {
  char buf[256];
  const char *name = mg_policy_method(c->f, buf, sizeof buf);
  Py_ssize_t first = mg_policy_self(c->f) ? 0 : 1;
  if (c->npos > first && mg_builtin_looks_up(name))
    return mg_builtin_found(c, first, name, mg_rec_class_mapping_get(dict, c->arg[first]));
  PyObject *all = mg_rec_class_mapping_all(dict), *r = all ? builtin_call_method(all, name, c, first) : NULL;
  Py_XDECREF(all);
  return r;
}

/* ---- globals(), module.__dict__ ---- */

PyObject *mg_rec_namespace(PyObject *dict) {
  if (!mg_older(dict) && mg_older_add(dict, dict, 0, OLDER_namespace)) return NULL;
  return Py_NewRef(dict);
}

bool mg_rec_is_namespace(PyObject *o) {
  MgOlder *e = PyDict_CheckExact(o) ? mg_older(o) : NULL;
  return e && e->kind == OLDER_namespace;
}

PyObject *mg_rec_namespace_call(const MgCall *c, PyObject *dict) {
  char buf[256];
  const char *name = mg_policy_method(c->f, buf, sizeof buf);
  Py_ssize_t first = mg_policy_self(c->f) ? 0 : 1;
  bool item = !strcmp(name, "__getitem__"), in = !strcmp(name, "__contains__"),
       dflt = !strcmp(name, "setdefault");
  PyObject *key = c->npos > first ? c->arg[first] : NULL,
           *other = c->npos > first + 1 ? c->arg[first + 1] : Py_None;
  if (!key || !PyUnicode_CheckExact(key) || c->kwnames) return mg_call_unknown(c);
  if (!strcmp(name, "__setitem__") || !strcmp(name, "__delitem__"))
    return mg_rec_namespace_set(dict, key, c->npos > first + 1 ? other : NULL) ? NULL : Py_NewRef(Py_None);
  if (!item && !in && !dflt && strcmp(name, "get")) return mg_call_unknown(c);
  PyObject *v = mg_rec_namespace_get(dict, key);
  if (!v && PyErr_Occurred()) return NULL;
  if (in) {
    Py_XDECREF(v);
    return PyBool_FromLong(v != NULL);
  }
  if (v) return v;
  if (item) PyErr_SetObject(PyExc_KeyError, key);
  if (item || (dflt && mg_rec_namespace_set(dict, key, other))) return NULL;
  return Py_NewRef(other);
}

PyObject *mg_rec_referent(PyObject *ref) {
  const MgOlder *e = mg_older(ref);
  MgGuards *g = mg_rec->guards;
  SrcRef owner = mg_older_by_path(e) ? e->src : mg_source(g, SRC_pinned, 0, 0, e->orig);
  PyObject *o = mg_weakref_target(e->orig);
  if (mg_finalizer_dropped(o))
    return mg_rec_break(BK_weak_reference, "a weak reference to a %s that went out of use",
                        Py_TYPE(o)->tp_name);
  return mg_wrap(o, mg_source(g, SRC_weak, owner, 0, NULL));
}

/* ---- what may be passed ---- */

bool mg_rec_readable_dict(PyObject *o) {
  if (!PyDict_Check(o) || mg_has_finalizer(Py_TYPE(o))) return false;
  if (PyObject_TypeCheck(o, mg_torch.defaultdict)) return false; /* a key that is missing is written */
  MgOlder *e = mg_older(o);
  if (e && e->kind == OLDER_namespace) return false;
  mg_older_pin(o);
  mg_guard_dict_all(mg_rec->guards, o, NULL, false);
  return true;
}

/* ---- namespaces: globals and module dicts ---- */

/* Where an answer is kept: functions and modules are asked for at every use. */
static MgGlobalFound *global_found(PyObject *d, PyObject *name) {
  MgGlobalFound *f = mg_rec->ident->globals;
  return &f[mg_hash_u64((uint64_t)(uintptr_t)d ^ (uint64_t)(uintptr_t)name << 1) %
            (sizeof mg_rec->ident->globals / sizeof *f)];
}

/* Is v seen as itself, whatever happens? */
static bool global_stays(PyObject *v) {
  return PyFunction_Check(v) || PyModule_Check(v) || PyType_Check(v) || PyCFunction_Check(v);
}

/* Is the kept answer the one to this question?  Without versions of dicts the name is looked up. */
static bool global_is_found(const MgGlobalFound *f, PyObject *d, PyObject *name) {
  if (f->dict != d || f->name != name) return false;
  return f->version ? mg_dict_is_at(d, f->version) : PyDict_GetItemWithError(d, name) == f->value;
}

PyObject *mg_rec_namespace_get(PyObject *d, PyObject *name) {
  MgGlobalFound *f = global_found(d, name);
  if (global_is_found(f, d, name)) return Py_NewRef(f->value);
  MgOlder *e = mg_older(d);
  if (e && e->attrs) {
    PyObject *v = PyDict_GetItemWithError(e->attrs, name);
    if (v == mg_rec->ident->absent) return NULL;
    if (v || PyErr_Occurred()) return Py_XNewRef(v);
  }
  PyObject *v = PyDict_GetItemWithError(d, name);
  if (!v && PyErr_Occurred()) return NULL;
  if (name == mg_names.compiling_flag) return Py_XNewRef(v); /* true exactly while recording */
  PyObject *w = mg_wrap_key(d, name, v);
  if (w && w == v && global_stays(v)) *f = (MgGlobalFound){d, name, v, mg_dict_version(d)};
  return w;
}

int mg_rec_namespace_set(PyObject *d, PyObject *name, PyObject *v) {
  MgOlder *e = mg_older(d);
  if (!e) {
    if (mg_older_add(d, d, 0, OLDER_namespace)) return -1;
    e = mg_older(d);
  }
  if (!e->attrs && !(e->attrs = PyDict_New())) return -1;
  PyObject *old = PyDict_GetItemWithError(e->attrs, name);
  if (old ? mg_rec_finalizes(old) : mg_rec_finalizes_attr(d, name, PyDict_GetItemWithError(d, name)))
    return -1;
  *global_found(d, name) = (MgGlobalFound){0};
  if (!v) {
    PyObject *now = mg_rec_namespace_get(d, name);
    if (!now) {
      if (!PyErr_Occurred()) PyErr_Format(PyExc_NameError, "name '%U' is not defined", name);
      return -1;
    }
    Py_DECREF(now);
    e = mg_older(d);
  }
  return PyDict_SetItem(e->attrs, name, v ? v : mg_rec->ident->absent);
}

PyObject *mg_rec_load_global(PyObject *globals, PyObject *builtins, PyObject *name) {
  PyObject *v = NULL;
  if (!mg_rec) {
    if (!(v = PyDict_GetItemWithError(globals, name)) && !PyErr_Occurred())
      v = PyObject_GetItem(builtins, name);
    else Py_XINCREF(v);
  } else {
    if (globals == PyFunction_GET_GLOBALS(mg_rec->ident->func)) /* another function may share the code */
      mg_guard_add(mg_rec->guards, GK_globals, mg_source(mg_rec->guards, SRC_func, 0, 0, NULL), globals, 0);
    v = mg_rec_namespace_get(globals, name);
    if (!v && !PyErr_Occurred()) v = mg_rec_namespace_get(builtins, name);
  }
  if (v) return v;
  if (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_KeyError))
    PyErr_Format(PyExc_NameError, "name '%U' is not defined", name);
  return NULL;
}

int mg_rec_store_global(PyObject *globals, PyObject *name, PyObject *v) {
  if (mg_rec) return mg_rec_namespace_set(globals, name, v);
  return v ? PyDict_SetItem(globals, name, v) : PyDict_DelItem(globals, name);
}
