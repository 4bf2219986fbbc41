/* See the header. */
#include "record/object/wrap.h"
#include "entry/launch/cuda_graph.h"
#include <stdlib.h>
#include <string.h>
#include "entry/guard/automatic_dynamic.h"
#include "entry/guard/guard_add.h"
#include "entry/guard/guard_set.h"
#include "entry/guard/source.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "host/torch/array_header.h"
#include "record/core/identity.h"
#include "record/core/recording.h"
#include "record/numpy/array_functions.h"
#include "record/numpy/array_ops.h"
#include "record/numpy/array_type.h"
#include "record/object/finalizers.h"
#include "record/object/lazy_constants.h"
#include "record/object/older_iterators.h"
#include "record/symbolic/dynamic_sources.h"
#include "record/symbolic/number.h"
#include "record/symbolic/number_ops.h"
#include "record/tensor/standin.h"
#include "record/tensor/wrapper_subclass.h"

/* ---- life ---- */

int mg_identity_init(PyObject *module) {
  if (mg_names_init() || mg_date_init() || mg_dynfloat_init() || mg_symfloat_init() || mg_array_init())
    return -1;
  mg_cudagraph_init();
  const char *state = mg_state_init(), *missing = state ? state : mg_facts_init();
  return missing ? (PyErr_Format(PyExc_ImportError, "this version of torch lacks %s", missing), -1) : 0;
}

/* Does C code find state in this object that nothing here can watch? */
static bool ident_has_c_state(PyObject *o) {
  /* Immutable, or changed only through ways that are recorded. */
  static PyTypeObject *const safe[] = {&PyFunction_Type,
                                       &PyMethod_Type,
                                       &PyFrozenSet_Type,
                                       &PyMethodDescr_Type,
                                       &PyWrapperDescr_Type,
                                       &PyProperty_Type,
                                       &PyGetSetDescr_Type,
                                       &PyMemberDescr_Type,
                                       &PyStaticMethod_Type,
                                       &PyClassMethod_Type,
                                       NULL};
  if (PyType_Check(o) || PyModule_Check(o) || PyCFunction_Check(o) || PyTuple_Check(o) || PyLong_Check(o) ||
      PyUnicode_Check(o) || PyFloat_Check(o) || PyBytes_Check(o) || PyExceptionInstance_Check(o))
    return false;
  for (int i = 0; safe[i]; i++)
    if (Py_TYPE(o) == safe[i]) return false;
  PyTypeObject *b = mg_solid_base(Py_TYPE(o)); /* annotations: */
  if (mg_array_function(o) || b == &Py_GenericAliasType || !strcmp(b->tp_name, "types.UnionType") ||
      !strcmp(b->tp_name, "typing.Union"))
    return false;
  if (b == &PyBaseObject_Type || b == &PyFrozenSet_Type) return false;
  if (!b->tp_as_sequence && !b->tp_as_mapping && !b->tp_iternext && !b->tp_methods) return false;
  return strncmp(b->tp_name, "torch.", 6) && strncmp(b->tp_name, "re.", 3) && strncmp(b->tp_name, "weak", 4);
}

bool mg_older_opaque(PyObject *o) {
  if (PyWeakref_CheckProxy(o)) o = mg_weakref_target(o);
  MgOlder *e = mg_older(o);
  if (!e || (e->kind != OLDER_itself && e->kind != OLDER_object)) return false;
  return ident_has_c_state(o) || (e->kind == OLDER_object && PyExceptionInstance_Check(o));
}

void mg_rec_pin_arguments(PyObject *const *slot, int n) {
  for (int i = 0; i < n; i++) {
    const MgOlder *e = slot[i] ? mg_older(slot[i]) : NULL;
    if (e && e->kind == OLDER_object && e->seen == e->orig) mg_older_pin(slot[i]);
  }
}

static SrcRef ident_sub(MgSrcKind kind, SrcRef parent, int32_t idx, PyObject *key) {
  return parent ? mg_source(mg_ident_guards(), kind, parent, idx, key) : 0;
}

static PyObject *wrap_itself(PyObject *v, SrcRef src, MgOlderKind kind) {
  mg_rec->ident->nobject += src && (kind == OLDER_object || kind == OLDER_func);
  return mg_older_add(v, v, src, kind) ? NULL : Py_NewRef(v);
}

static PyObject *wrap_tensor(PyObject *v, SrcRef src) {
  if (!src) src = mg_source(mg_ident_guards(), SRC_pinned, 0, 0, v);
  mg_guard_tensor(mg_ident_guards(), src, v);
  mg_guard_type(mg_ident_guards(), Py_TYPE(v));
  PyObject *s = mg_standin_input(v, src);
  if (s && mg_older_add(v, s, src, OLDER_tensor)) Py_CLEAR(s);
  return s;
}

/* Tuples and tuple subclasses (namedtuple). */
static PyObject *wrap_tuple(PyObject *v, SrcRef src) {
  Py_ssize_t n = PyTuple_GET_SIZE(v);
  uint32_t at;
  bool changed = false;
  if (src) mg_guard_add(mg_ident_guards(), GK_length, src, (PyObject *)Py_TYPE(v), n);
  PyObject *c = PyTuple_New(n), *seen = NULL;
  for (Py_ssize_t i = 0; c && i < n; i++) {
    PyObject *x = PyTuple_GET_ITEM(v, i), *w = mg_wrap(x, ident_sub(SRC_item, src, (int32_t)i, NULL));
    if (!w) goto done;
    changed |= w != x;
    PyTuple_SET_ITEM(c, i, w);
  }
  if (!c) return NULL;
  if (!changed) seen = Py_NewRef(v);
  else if (PyTuple_CheckExact(v)) seen = Py_NewRef(c);
  else {
    PyObject *a = PyTuple_Pack(1, c);
    seen = a ? PyTuple_Type.tp_new(Py_TYPE(v), a, NULL) : NULL;
    Py_XDECREF(a);
  }
  at = mg_rec->ident->n;
  if (seen && (mg_older_add(v, seen, src, OLDER_tuple) ||
               (seen != v && !PyTuple_CheckExact(v) && mg_older_copy_attrs(at, v, seen, src))))
    Py_CLEAR(seen);
done:
  Py_DECREF(c);
  return seen;
}

/* The real instance dict, made when CPython has not made it yet; borrowed, NULL when the class has none. */
static PyObject *attr_real_dict(PyObject *orig) {
  PyObject **d = _PyObject_GetDictPtr(orig);
  if (d && !*d) *d = PyDict_New();
  return d ? *d : NULL;
}

/* An instance of a Python class over a container: the copy has a dict of its own, which is
 * the overlay from the start. */
int mg_older_copy_attrs(uint32_t at, PyObject *v, PyObject *c, SrcRef src) {
  MgIdent *d = mg_rec->ident;
  PyObject *now = attr_real_dict(v), *mine = now ? attr_real_dict(c) : NULL, *keys, *k, *x;
  Py_ssize_t pos = 0;
  SrcRef ds = 0;
  if (!mine) return 0;
  if (src) {
    if (!(keys = PySequence_Tuple(now))) return -1;
    ds = mg_source(mg_ident_guards(), SRC_instdict, src, 0, NULL);
    mg_guard_add(mg_ident_guards(), GK_keys, ds, keys, 0);
    Py_DECREF(keys);
  } else mg_guard_dict_all(mg_ident_guards(), now, v, true);
  while (PyDict_Next(now, &pos, &k, &x)) {
    PyObject *w = mg_wrap(x, ds ? ident_sub(SRC_key, ds, 0, k) : mg_dynfloat_key(now, v, k, x));
    int rc = w ? PyDict_SetItem(mine, k, w) : -1;
    Py_XDECREF(w);
    if (rc) return -1;
  }
  MgOlder *e = &d->v[at];
  e->attrs = Py_NewRef(mine);
  e->full = true;
  return (e->attrs0 = PyDict_Copy(mine)) ? 0 : -1;
}

/* set, and Python classes over it. */
static PyObject *wrap_set(PyObject *v, SrcRef src) {
  MgIdent *d = mg_rec->ident;
  PyObject *it = PySet_Type.tp_iter(v), *was = it ? PySequence_Tuple(it) : NULL;
  PyObject *c = was ? mg_new_instance(Py_TYPE(v)) : NULL, *kept, *same = NULL;
  uint32_t at = d->n;
  bool plain = true;
  Py_XDECREF(it);
  if (!c || mg_finalizer_keys(was) || mg_older_add(v, c, src, OLDER_set)) goto fail;
  if (src) {
    mg_guard_add(mg_ident_guards(), GK_type, src, (PyObject *)Py_TYPE(v), 0);
    mg_guard_add(mg_ident_guards(), GK_elements, src, was, 0);
  } else mg_guard_pinned(mg_ident_guards(), GK_set_is, v, was);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(was); i++) {
    PyObject *x = PyTuple_GET_ITEM(was, i), *w = mg_wrap(x, 0);
    int rc = w ? PySet_Add(c, w) : -1;
    plain &= w == x;
    Py_XDECREF(w);
    if (rc) goto fail;
  }
  if (plain && (PySet_Clear(c) || mg_set_copy(c, v))) goto fail;
  if (!PySet_CheckExact(v) && mg_older_copy_attrs(at, v, c, src)) goto fail;
  if (!(kept = PyFrozenSet_New(c))) goto fail;
  d->v[at].pristine = kept;
  same = Py_NewRef(c);
fail:
  Py_XDECREF(was);
  Py_XDECREF(c);
  return same;
}

static PyObject *wrap_cell(PyObject *v, SrcRef src) {
  MgIdent *d = mg_rec->ident;
  PyObject *x = PyCell_GET(v), *c = PyCell_New(NULL);
  uint32_t at = d->n;
  if (!c || mg_older_add(v, c, src, OLDER_cell)) goto fail;
  if (!src) mg_guard_pinned(mg_ident_guards(), GK_cell_is, v, x);
  else if (x) mg_guard_add(mg_ident_guards(), GK_type, src, (PyObject *)&PyCell_Type, 0);
  else
    mg_guard_add(mg_ident_guards(), GK_cell_empty, src, NULL,
                 0); /* one of the frame's own, made at every call */
  if (x) {
    int was = d->of_cell;
    d->of_cell = d->depth + 1; /* who reads the cell says what of a container is looked at */
    PyObject *w = mg_wrap(x, ident_sub(SRC_cell, src, 0, NULL));
    d->of_cell = was;
    if (!w) goto fail;
    PyCell_SET(c, w);
    d->v[at].pristine = Py_NewRef(w);
  }
  return c;
fail:
  Py_XDECREF(c);
  return NULL;
}

/* A slice of more than constants, or of numbers that change. */
static PyObject *wrap_slice(PyObject *v, SrcRef src) {
  PySliceObject *s = (PySliceObject *)v;
  PyObject *now[] = {s->start, s->stop, s->step}, *seen[3] = {NULL},
           *w = NULL, *const name[] = {mg_names.start, mg_names.stop, mg_names.step};
  bool changed = false, ok = true;
  if (src) mg_guard_add(mg_ident_guards(), GK_type, src, (PyObject *)&PySlice_Type, 0);
  for (int i = 0; i < 3 && ok; i++) {
    seen[i] = mg_wrap(now[i], ident_sub(SRC_attr, src, 0, name[i]));
    ok = seen[i] != NULL;
    changed |= seen[i] != now[i];
  }
  if (ok) w = changed ? PySlice_New(seen[0], seen[1], seen[2]) : Py_NewRef(v);
  for (int i = 0; i < 3; i++) Py_XDECREF(seen[i]);
  if (w && mg_older_add(v, w, src, OLDER_bound)) Py_CLEAR(w);
  return w;
}

/* A method bound to an object that the recording sees differently is bound anew. */
static PyObject *wrap_method(PyObject *v, SrcRef src) {
  if (src) mg_guard_add(mg_ident_guards(), GK_type, src, (PyObject *)&PyMethod_Type, 0);
  PyObject *m = NULL, *fn = mg_wrap(PyMethod_GET_FUNCTION(v), ident_sub(SRC_method_func, src, 0, NULL));
  PyObject *self = fn ? mg_wrap(PyMethod_GET_SELF(v), ident_sub(SRC_method_self, src, 0, NULL)) : NULL;
  if (self && fn == PyMethod_GET_FUNCTION(v) && self == PyMethod_GET_SELF(v)) m = Py_NewRef(v);
  else if (self) m = PyMethod_New(fn, self);
  Py_XDECREF(fn);
  Py_XDECREF(self);
  if (m && mg_older_add(v, m, src, OLDER_bound)) Py_CLEAR(m);
  return m;
}

static PyObject *wrap_builtin_method(PyObject *v, SrcRef src) {
  PyMethodDef *def = ((PyCFunctionObject *)v)->m_ml;
  if (src) mg_guard_add(mg_ident_guards(), GK_builtin, src, NULL, (int64_t)(intptr_t)def);
  PyObject *self = mg_wrap(PyCFunction_GET_SELF(v), ident_sub(SRC_builtin_self, src, 0, NULL)), *m = NULL;
  if (self == PyCFunction_GET_SELF(v)) m = Py_NewRef(v);
  else if (self) m = PyObject_GetAttrString(self, def->ml_name);
  Py_XDECREF(self);
  if (m && mg_older_add(v, m, src, OLDER_bound)) Py_CLEAR(m);
  return m;
}

/* A bound slot of a C class (super().__setattr__). */
static PyObject *wrap_slot(PyObject *v, SrcRef src) {
  PyObject *d = mg_policy_descr(v), *m = NULL;
  if (src) mg_guard_add(mg_ident_guards(), GK_wrapper, src, d, 0);
  PyObject *self = mg_wrap(mg_policy_self(v), ident_sub(SRC_wrapper_self, src, 0, NULL));
  if (self == mg_policy_self(v)) m = Py_NewRef(v);
  else if (self) m = Py_TYPE(d)->tp_descr_get(d, self, (PyObject *)Py_TYPE(self));
  Py_XDECREF(self);
  if (m && mg_older_add(v, m, src, OLDER_bound)) Py_CLEAR(m);
  return m;
}

static PyObject *wrap_partial(PyObject *v, SrcRef src) {
  struct {
    PyObject *name;
    MgSrcKind kind;
    PyObject *now, *seen;
  } part[] = {{mg_names.func, SRC_partial_func},
              {mg_names.args, SRC_partial_args},
              {mg_names.keywords, SRC_partial_kw}};
  bool changed = false, ok = true;
  if (src) mg_guard_add(mg_ident_guards(), GK_type, src, (PyObject *)Py_TYPE(v), 0);
  for (int i = 0; i < 3 && ok; i++) {
    part[i].now = PyObject_GetAttr(v, part[i].name);
    part[i].seen = part[i].now ? mg_wrap(part[i].now, ident_sub(part[i].kind, src, 0, NULL)) : NULL;
    ok = part[i].seen != NULL;
    changed |= ok && i < 2 && part[i].seen != part[i].now;
    if (ok && i == 2 && PyDict_GET_SIZE(part[i].seen)) changed = true; /* always a copy */
  }
  PyObject *p = NULL, *a = NULL;
  if (ok && !changed) p = Py_NewRef(v);
  else if (ok) {
    PyObject *head = PyTuple_Pack(1, part[0].seen);
    a = head ? PySequence_Concat(head, part[1].seen) : NULL;
    Py_XDECREF(head);
    p = a ? PyObject_Call((PyObject *)Py_TYPE(v), a, part[2].seen) : NULL;
  }
  Py_XDECREF(a);
  for (int i = 0; i < 3; i++) {
    Py_XDECREF(part[i].now);
    Py_XDECREF(part[i].seen);
  }
  if (p && mg_older_add(v, p, src, OLDER_bound)) Py_CLEAR(p);
  return p;
}

/* A read-only view of a mapping (inspect.Signature.parameters) becomes a view of what the recording sees of
 * it. Those of class dicts stay: attr_of_class keeps them out of here. */
static PyObject *wrap_proxy(PyObject *v, SrcRef src) {
  PyObject *mapping = *(PyObject **)((char *)v + sizeof(PyObject)); /* the object's only field */
  if (src) mg_guard_add(mg_ident_guards(), GK_is, src, v, 0);
  PyObject *seen = mg_wrap(mapping, 0), *p = seen ? PyDictProxy_New(seen) : NULL;
  Py_XDECREF(seen);
  if (p && mg_older_add(v, p, src, OLDER_bound)) Py_CLEAR(p);
  return p;
}

/* A weak proxy hands every operation on to an object, so that is met as well.  Where the recording sees a
 * copy, it sees a proxy of the copy. */
static PyObject *wrap_weak_proxy(PyObject *v, SrcRef src) {
  MgGuards *g = mg_ident_guards();
  PyObject *to = mg_weakref_target(v);
  if (src) mg_guard_add(g, GK_type, src, (PyObject *)Py_TYPE(v), 0);
  PyObject *seen =
      mg_wrap(to, mg_source(g, SRC_weak, src ? src : mg_source(g, SRC_pinned, 0, 0, v), 0, NULL));
  PyObject *p = NULL;
  if (seen == to) p = wrap_itself(v, src, src ? OLDER_bound : OLDER_itself);
  else if (seen && (p = PyWeakref_NewProxy(seen, NULL)) && mg_older_add(v, p, src, OLDER_bound)) Py_CLEAR(p);
  Py_XDECREF(seen);
  return p;
}

/* A view of a dict becomes one of what the recording sees of it.  NULL without
 * exception: that is the dict itself. */
static PyObject *wrap_view(PyObject *v, SrcRef src, PyObject *dict, const char *name) {
  if (src) mg_guard_add(mg_ident_guards(), GK_type, src, (PyObject *)Py_TYPE(v), 0);
  PyObject *seen = mg_wrap(dict, ident_sub(SRC_viewed, src, 0, NULL)), *text = NULL, *w = NULL;
  if (seen && seen != dict && (text = PyUnicode_FromString(name))) w = mg_view_new(seen, text);
  Py_XDECREF(text);
  Py_XDECREF(seen);
  if (w && mg_older_add(v, w, src, OLDER_bound)) Py_CLEAR(w);
  return w;
}

/* A container whose whole state is its content and its instance dict. */
static bool ident_can_copy(PyTypeObject *t) {
  PyTypeObject *b = mg_solid_base(t);
  if (b != &PyList_Type && b != &PyDict_Type && b != &PyODict_Type && b != &PySet_Type &&
      b != mg_torch.defaultdict)
    return false;
  if (t == b) return true;
  if (mg_has_finalizer(t)) return false; /* a copy must not run it */
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(t->tp_mro); i++) {
    PyTypeObject *m = (PyTypeObject *)PyTuple_GET_ITEM(t->tp_mro, i);
    PyObject *slots =
        m->tp_flags & Py_TPFLAGS_HEAPTYPE ? PyDict_GetItemString(mg_type_dict(m), "__slots__") : NULL;
    if (slots && PyObject_Size(slots)) return false; /* state beside the dict */
  }
  return true;
}

/* A tuple, an instance of a Python class over one, or one of C's named tuples (torch.return_types)
 * that has no fields beside. */
static bool ident_is_tuple(PyObject *v) {
  PyTypeObject *t = Py_TYPE(v);
  if (!PyTuple_Check(v) || t == &PyTuple_Type || mg_solid_base(t) == &PyTuple_Type) return PyTuple_Check(v);
  PyObject *all = PyDict_GetItemString(mg_type_dict(t), "n_fields"),
           *named = PyDict_GetItemString(mg_type_dict(t), "n_sequence_fields");
  return all && named && PyLong_Check(all) && PyObject_RichCompareBool(all, named, Py_EQ) > 0;
}

/* An older object that is met for the first time, and is neither a constant nor a tensor. */
static PyObject *wrap_new(PyObject *v, SrcRef src) {
  MgRec *r = mg_rec;
  PyTypeObject *t = Py_TYPE(v);
  PyObject *w, *dict;
  const char *name;
  mg_guard_type(r->guards, t);
  if (PyType_Check(v)) mg_guard_type(r->guards, (PyTypeObject *)v); /* may be called */
  if (ident_is_tuple(v)) return wrap_tuple(v, src);
  if (PyList_Check(v) && ident_can_copy(t)) return mg_olderlist_wrap(v, src);
  if (PyDict_CheckExact(v) && PyDict_GetItemWithError(v, mg_names.builtins)) { /* the globals of some code */
    if (src) mg_guard_add(r->guards, GK_is, src, v, 0);
    return wrap_itself(v, src, OLDER_namespace);
  }
  if (v == PyImport_GetModuleDict()) { /* grows with every import: read key by key, never copied */
    if (src) mg_guard_add(r->guards, GK_is, src, v, 0);
    return wrap_itself(v, src, OLDER_itself);
  }
  if (PyDict_Check(v) && ident_can_copy(t)) return mg_olderdict_wrap(v, src);
  if (PySet_Check(v) && ident_can_copy(t)) return wrap_set(v, src);
  if (t == mg_torch.deque) return mg_olderdeque_wrap(v, src);
  if (mg_nd_is(v)) {
    PyObject *a = mg_array_wrap(v, src);
    if (a || PyErr_Occurred()) return a;
  }
  if ((w = mg_iterator_wrap(v, src)) || PyErr_Occurred()) return w;
  if (t == &PyCell_Type) return wrap_cell(v, src);
  else if (t == &PySlice_Type) return wrap_slice(v, src);
  else if (t == &PyDictProxy_Type) return wrap_proxy(v, src);
  else if (PyWeakref_CheckProxy(v)) return wrap_weak_proxy(v, src);
  else if ((dict = mg_view_of(v, &name))) {
    if ((w = wrap_view(v, src, dict, name)) || PyErr_Occurred()) return w;
  } else if (t == &PyMethod_Type) return wrap_method(v, src);
  else if (t == mg_method_wrapper_type()) return wrap_slot(v, src);
  else if (t == mg_torch.partial) return wrap_partial(v, src);
  else if (t == &PyCFunction_Type) {
    PyObject *self = PyCFunction_GET_SELF(v);
    if (self && !PyModule_Check(self) && !PyType_Check(self)) return wrap_builtin_method(v, src);
  } else if (t == &PyFunction_Type && src) {
    mg_guard_add(r->guards, GK_code, src, PyFunction_GET_CODE(v), 0);
    mg_guard_add(r->guards, GK_globals, src, PyFunction_GET_GLOBALS(v), 0);
    return wrap_itself(v, src, OLDER_func);
  } else if (src && mg_solid_base(t) == &PyFrozenSet_Type && mg_guard_frozenset(r->guards, src, v))
    return wrap_itself(v, src, OLDER_object);
  else if (src && Py_TYPE(t) != mg_torch.enum_meta && mg_guard_is_value(v)) {
    mg_guard_value(r->guards, src, v);
    return wrap_itself(v, src, OLDER_object);
  } else if (src &&
             (!PyObject_TypeCheck(v, mg_torch.module) || mg_transient_class(t) ||
              r->guards->src[src].trait & SRC_MOVES) &&
             Py_TYPE(t) != mg_torch.enum_meta &&
             (ident_has_c_state(v) || PyExceptionInstance_Check(v) ||
              (t->tp_flags & Py_TPFLAGS_HEAPTYPE && mg_solid_base(t) == &PyBaseObject_Type))) {
    /* often another object at every call; one with state in C may only be passed around */
    mg_guard_add(r->guards, GK_type, src, (PyObject *)t, 0);
    return wrap_itself(v, src, OLDER_object);
  }
  if (src) mg_guard_add(r->guards, GK_is, src, v, 0);
  return wrap_itself(v, src, OLDER_itself);
}

PyObject *mg_wrap(PyObject *v, SrcRef src) {
  MgRec *r = mg_rec;
  if (!r || !v) return Py_XNewRef(v);
  if (mg_standin_check(v) || mg_array_check(v) || mg_symfloat_is(v)) return Py_NewRef(v);
  if (mg_guard_is_const(v)) {
    if (src && mg_dynfloat_at(src, v)) {
      if (PySlice_Check(v)) return wrap_slice(v, src);
      return PyTuple_CheckExact(v) ? wrap_tuple(v, src) : mg_symfloat_input(v, src);
    }
    PyObject *unread = src ? mg_unread_wrap(v, src) : NULL;
    if (unread || PyErr_Occurred()) return unread;
    if (src) mg_guard_add(r->guards, GK_equal, src, v, 0);
    return Py_NewRef(v);
  }
  uint32_t at = mg_map_getp(&r->ident->by_orig, v);
  if (at != MG_MAP_NONE) {
    mg_older_alias(&r->ident->v[at], src);
    PyObject *seen = r->ident->v[at].seen;
    return mg_older_look(seen) ? NULL : Py_NewRef(seen);
  }
  if (mg_map_getp(&r->ident->by_seen, v) != MG_MAP_NONE || mg_is_fresh(v)) return Py_NewRef(v);
  if (PyObject_TypeCheck(v, mg_torch.tensor)) {
    if (mg_wrapper_class(Py_TYPE(v))) return mg_wrapper_made(v) ? Py_NewRef(v) : mg_wrapper_wrap(v, src);
    if (!mg_standin_transformed(v)) return wrap_tensor(v, src);
    /* what a pullback keeps is bound to a gradient graph of its own */
    return mg_standin_transform_is_older(v)
               ? mg_rec_break(BK_functorch, "a tensor of a torch.func transform that has ended")
               : Py_NewRef(v);
  }
  if (PyFrame_Check(v) && src && r->guards->src[src].kind == SRC_slot)
    return mg_rec_break(BK_frame_object, "a frame object, another one in each call");
  if (Py_EnterRecursiveCall(" while recording"))
    return mg_rec_break(BK_limit, "containers nested too deeply");
  r->ident->depth++;
  PyObject *w = wrap_new(v, src);
  r->ident->depth--;
  Py_LeaveRecursiveCall();
  return w;
}

PyObject *mg_wrap_key(PyObject *dict, PyObject *name, PyObject *v) {
  mg_older_pin(dict); /* the guard is about this dict, not about what lies there */
  SrcRef src = mg_dynfloat_guard_key(mg_ident_guards(), dict, NULL, name, v);
  return v ? mg_wrap(v, src) : NULL;
}

PyObject *mg_wrap_result(PyObject *v) { return mg_rec && mg_older(v) ? Py_NewRef(v) : mg_wrap(v, 0); }

/* Owner (the entry at) of instance dict d: d may have been met already, as a dict of its own, and
 * then its copy is the overlay. */
static int attr_link_dict(uint32_t at, PyObject *d) {
  MgIdent *id = mg_rec->ident;
  uint32_t i;
  if (mg_map_getp(&id->by_dict, d) != MG_MAP_NONE) return 0;
  if (mg_map_putp(&id->by_dict, d, at) != MG_OK) return PyErr_NoMemory(), -1;
  if ((i = mg_map_getp(&id->by_orig, d)) == MG_MAP_NONE || id->v[i].kind != OLDER_dict) return 0;
  if (mg_olderdict_fill(id->v[i].seen)) return -1;
  MgOlder *o = &id->v[i], *e = &id->v[at];
  if (mg_older_by_path(e)) mg_older_alias(o, mg_source(mg_ident_guards(), SRC_instdict, e->src, 0, NULL));
  else {
    mg_guard_instance(mg_ident_guards(), e->orig);
    mg_older_alias(o, 0);
  }
  o->kind = OLDER_instdict;
  PyObject *writes = e->attrs, *k, *x;
  Py_ssize_t pos = 0;
  e->attrs = Py_NewRef(o->seen);
  e->attrs0 = Py_NewRef(o->pristine);
  e->full = true;
  while (writes && PyDict_Next(writes, &pos, &k, &x))
    if (x == id->absent ? PyDict_DelItem(e->attrs, k) : PyDict_SetItem(e->attrs, k, x))
      PyErr_Clear(); /* a deleted name is not there */
  Py_XDECREF(writes);
  return 0;
}

/* Before the instance dict of an older object is looked at; *e may move. */
static int attr_link(MgOlder **e) {
  PyObject **d = (*e)->full ? NULL : _PyObject_GetDictPtr((*e)->orig);
  uint32_t at = (uint32_t)(*e - mg_rec->ident->v);
  int rc = d && *d ? attr_link_dict(at, *d) : 0;
  *e = &mg_rec->ident->v[at];
  return rc;
}

/* The original value of an attribute in the instance dict, guarded; *src is its source.  Borrowed. */
static PyObject *attr_read(MgOlder *e, PyObject *name, SrcRef *src) {
  MgGuards *g = mg_ident_guards();
  PyObject *d = attr_real_dict(e->orig), *v;
  *src = 0;
  if (!d) return NULL;
  v = PyDict_GetItemWithError(d, name);
  if (!v && PyErr_Occurred()) return NULL;
  if (!mg_older_by_path(e)) {
    *src = mg_dynfloat_guard_key(g, d, e->orig, name, v);
    return v;
  }
  SrcRef ds = mg_source(g, SRC_instdict, e->src, 0, NULL);
  if (v) *src = mg_source(g, SRC_key, ds, 0, name);
  else mg_guard_add(g, GK_nokey, ds, name, 0);
  return v;
}

/* The overlay's answer: 1 found (*v new), 0 unknown, -1 absent or error. */
static int attr_overlay(MgOlder **at, PyObject *name, PyObject **v) {
  if (attr_link(at)) return -1;
  const MgOlder *e = *at;
  if (!e->attrs) return 0;
  *v = PyDict_GetItemWithError(e->attrs, name);
  if (*v && *v != mg_rec->ident->absent) {
    Py_INCREF(*v);
    return 1;
  }
  return *v || e->full || PyErr_Occurred() ? -1 : 0;
}

PyObject *mg_older_attr_raw(PyObject *o, PyObject *name, PyObject **raw) {
  MgOlder *e = mg_older(o);
  PyObject *v;
  int known = attr_overlay(&e, name, &v);
  if (known) return known > 0 ? v : NULL;
  SrcRef src;
  if (!(v = attr_read(e, name, &src))) return NULL;
  if (src || mg_map_getp(&mg_rec->ident->by_orig, v) != MG_MAP_NONE) return mg_wrap(v, src);
  *raw = v;
  return NULL;
}

PyObject *mg_older_attr(PyObject *o, PyObject *name) {
  MgOlder *e = mg_older(o);
  PyObject *v;
  int known = attr_overlay(&e, name, &v);
  if (known) return known > 0 ? v : NULL;
  SrcRef src;
  v = attr_read(e, name, &src);
  return v ? mg_wrap(v, src) : NULL;
}

PyObject *mg_older_dict(PyObject *o) {
  MgOlder *e = mg_older(o);
  if (attr_link(&e)) return NULL;
  if (e->full) return e->attrs;
  MgGuards *g = mg_ident_guards();
  MgIdent *id = mg_rec->ident;
  uint32_t at = (uint32_t)(e - id->v);
  PyObject *d = attr_real_dict(e->orig), *full = d ? PyDict_New() : NULL, *keys = NULL, *writes, *k, *x;
  Py_ssize_t pos = 0;
  SrcRef ds = 0;
  if (!d) PyErr_SetObject(PyExc_AttributeError, mg_names.dict);
  if (!full || !(keys = PySequence_Tuple(d))) goto fail;
  if (mg_older_by_path(e)) {
    ds = mg_source(g, SRC_instdict, e->src, 0, NULL);
    mg_guard_add(g, GK_keys, ds, keys, 0);
  } else mg_guard_dict_all(g, d, e->orig, true);
  while (PyDict_Next(d, &pos, &k, &x)) {
    PyObject *w = mg_wrap(x, ds ? ident_sub(SRC_key, ds, 0, k) : mg_dynfloat_key(d, id->v[at].orig, k, x));
    int rc = w ? PyDict_SetItem(full, k, w) : -1;
    Py_XDECREF(w);
    if (rc) goto fail;
  }
  e = &id->v[at]; /* wrapping may have moved it */
  if (!(e->attrs0 = PyDict_Copy(full))) goto fail;
  writes = e->attrs;
  e->attrs = full;
  e->full = true;
  pos = 0;
  while (writes && PyDict_Next(writes, &pos, &k, &x))
    if (x == id->absent ? PyDict_DelItem(full, k) : PyDict_SetItem(full, k, x))
      PyErr_Clear(); /* a deleted name is not there */
  Py_XDECREF(writes);
  Py_DECREF(keys);
  /* Whoever holds the dict itself at the end of the segment gets the real one back. */
  if (mg_older_add(d, full, ds, OLDER_instdict)) return NULL;
  return full;
fail:
  Py_XDECREF(full);
  Py_XDECREF(keys);
  return NULL;
}

int mg_older_set_attr(PyObject *o, PyObject *name, PyObject *v) {
  MgOlder *e = mg_older(o);
  if (attr_link(&e)) return -1;
  PyObject *written = e->attrs ? PyDict_GetItemWithError(e->attrs, name) : NULL,
           **dict = e->full ? NULL : _PyObject_GetDictPtr(e->orig);
  PyObject *now = !written && dict && *dict ? PyDict_GetItemWithError(*dict, name) : written;
  if (dict && !written ? mg_rec_finalizes_attr(o, name, now) : mg_rec_finalizes(now)) return -1;
  e = mg_older(o);
  if (!e->full && !v) { /* deleting what is not there is an error */
    if (!(now = mg_older_attr(o, name))) {
      if (!PyErr_Occurred()) PyErr_SetObject(PyExc_AttributeError, name);
      return -1;
    }
    Py_DECREF(now);
    e = mg_older(o);
  }
  if (!e->attrs) {
    if (!_PyObject_GetDictPtr(e->orig)) {
      PyErr_Format(PyExc_AttributeError, "'%.100s' object has no attribute '%U'", Py_TYPE(o)->tp_name, name);
      return -1;
    }
    if (!(e->attrs = PyDict_New())) return -1;
  }
  if (v) return PyDict_SetItem(e->attrs, name, v);
  if (!e->full) return PyDict_SetItem(e->attrs, name, mg_rec->ident->absent);
  if (PyDict_DelItem(e->attrs, name) == 0) return 0;
  PyErr_SetObject(PyExc_AttributeError, name);
  return -1;
}
