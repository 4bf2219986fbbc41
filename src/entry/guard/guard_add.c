/* Building guard sets, sealing, printing and freeing them. Checking is in guard_check.c. */
#include "entry/guard/guard_add.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "entry/guard/automatic_dynamic.h"
#include "entry/guard/dict_watch.h"
#include "host/torch/gc_holder.h"
#include "entry/guard/guard_check.h"
#include "entry/guard/guard_cost.h"
#include "entry/guard/late_draws.h"
#include "entry/guard/overlap.h"
#include "entry/guard/source.h"
#include "entry/guard/transient_modules.h"
#include "host/python/names.h"
#include "host/python/pyframe.h"
#include "host/python/pyobject.h"
#include "host/torch/array_header.h"
#include "host/torch/tensor_facts.h"
#include "tuning.h"

/* Room for one more entry of a table of the set; NULL (failed) when out of memory. */
#define PUSH(g, arr, n, cap)                                                                                 \
  ((g)->n < (g)->cap || guard_grow((g), &(g)->arr, &(g)->cap, sizeof *(g)->arr) ? &(g)->arr[(g)->n++] : NULL)

static bool guard_grow(MgGuards *g, void *arr, uint32_t *cap, size_t size) {
  if (mg_grow(arr, cap, size, 32)) return true;
  g->failed = true;
  return false;
}

static void guard_set_op(MgGuards *g, MgGuardOp *op, MgGuardOp to) {
  *op = to;
  mg_guard_cost_place(g, op);
}

/* ---- life ---- */

/* A watched module died: the set may never be checked again.  self is a capsule of the set; its context says
 * that the set is gone: an object with several weak references calls back for each, and the
 * first call may free the set. */
static PyObject *guard_died(PyObject *self, PyObject *ref) {
  if (PyCapsule_GetContext(self)) Py_RETURN_NONE;
  MgGuards *g = PyCapsule_GetPointer(self, NULL);
  if (!g) return NULL;
  void (*fn)(void *) = g->on_death;
  g->dead = true;
  g->on_death = NULL;
  if (fn) fn(g->death_arg);
  Py_RETURN_NONE;
}

static PyMethodDef guard_died_def = {"guard_died", guard_died, METH_O, NULL};

bool mg_guard_is_callback(PyObject *f) {
  return PyCFunction_Check(f) && ((PyCFunctionObject *)f)->m_ml == &guard_died_def;
}

MgGuards *mg_guards_new(PyObject *slot_names) {
  MgGuards *g = mg_calloc(1, sizeof *g);
  if (!g) {
    PyErr_NoMemory();
    return NULL;
  }
  g->keep = PyList_New(0);
  g->watch = PyList_New(0);
  PyObject *self = PyCapsule_New(g, NULL, NULL);
  g->callback = self ? PyCFunction_New(&guard_died_def, self) : NULL;
  Py_XDECREF(self);
  g->slot_names = Py_XNewRef(slot_names);
  if (!g->keep || !g->watch || !g->callback) {
    mg_guards_free(g);
    return NULL;
  }
  mg_state_read(&g->state);
  mg_guard_cost_begin(g);
  return g;
}

void mg_guards_free(MgGuards *g) {
  if (!g) return;
  g->dead = true;
  g->on_death = NULL;
  mg_guard_unwatch(g);
  if (g->callback)
    PyCapsule_SetContext(PyCFunction_GET_SELF(g->callback), g); /* before anything else, as is the next */
  Py_CLEAR(g->watch); /* no callback reaches a set that is being freed */
  Py_CLEAR(g->callback);
  for (uint32_t i = 1; i < g->nsrc; i++)
    if (g->src[i].kind != SRC_pinned) Py_XDECREF(g->src[i].key);
  for (uint32_t i = 0; i < g->nop; i++)
    if (g->op[i].kind == GK_tensor) free(g->op[i].u.facts);
    else if (g->op[i].kind == GK_array) free(g->op[i].u.array);
    else if (g->op[i].kind == GK_not_abc) free(g->op[i].u.abc);
    else if (g->op[i].kind == GK_apart) mg_apart_free(g->op[i].u.apart);
  for (uint32_t i = 0; i < g->ndict; i++) {
    for (int k = 0; k < g->dict[i].n; k++) Py_DECREF(g->dict[i].key[k]);
    free(g->dict[i].key);
    free(g->dict[i].val);
  }
  for (uint32_t i = 0; i < g->ntype; i++) {
    for (int k = 0; k < g->type[i].n; k++) Py_DECREF(g->type[i].name[k]);
    free(g->type[i].name);
    free(g->type[i].mro);
    free(g->type[i].val);
  }
  MgMap *maps[] = {&g->by_src, &g->by_dict, &g->by_type, &g->by_held, &g->by_fact};
  for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) mg_map_free(maps[i]);
  mg_draw_free(g);
  mg_guard_cost_free(g);
  free(g->src);
  free(g->op);
  free(g->pinned);
  free(g->dict);
  free(g->type);
  free(g->empty);
  free(g->watch_class);
  free(g->fast_dict);
  free(g->fast_slot);
  free(g->fast_type);
  mg_source_forget(g);
  free(g->preset);
  Py_XDECREF(g->slot_names);
  Py_XDECREF(g->loose);
  Py_XDECREF(g->keep); /* last: may run arbitrary destructors */
  free(g);
}

void mg_guards_set_death(MgGuards *g, void (*fn)(void *arg), void *arg) {
  g->on_death = fn;
  g->death_arg = arg;
}

int mg_guards_die_with(MgGuards *g, PyObject *o) {
  PyObject *w = PyWeakref_NewRef(o, g->callback);
  int rc = w ? PyList_Append(g->watch, w) : -1;
  Py_XDECREF(w);
  const void **class = rc ? NULL : PUSH(g, watch_class, nwatch_class, cap_watch_class);
  if (class) *class = PyObject_TypeCheck(o, mg_torch.module) ? mg_transient_kind(o) : NULL;
  return rc;
}

enum { HELD = 1, WATCHED = 2 }; /* in by_held */

/* Does it live as long as the process? */
static bool guard_is_immortal(PyObject *o) {
  return o == Py_None || Py_TYPE(o) == &PyBool_Type ||
         (PyType_Check(o) && !(((PyTypeObject *)o)->tp_flags & Py_TPFLAGS_HEAPTYPE));
}

void mg_guards_hold(MgGuards *g, PyObject *o) {
  if (!o || guard_is_immortal(o) || mg_map_getp(&g->by_held, o) != MG_MAP_NONE) return;
  /* A class of the program may hold, by its methods' code, the very entry. */
  bool class =
      PyType_Check(o) && ((PyTypeObject *)o)->tp_flags & Py_TPFLAGS_HEAPTYPE && !mg_guard_asks.is_fresh(o);
  bool watch = class || PyObject_TypeCheck(o, mg_torch.module) || mg_death_is_seen(o);
  int rc = watch ? mg_guards_die_with(g, o) : 0;
  if (!rc)
    rc = PyList_Append(g->keep,
                       o); /* while recording the object may not die; seal lets go of what is watched */
  if (rc || mg_map_putp(&g->by_held, o, watch ? WATCHED : HELD) != MG_OK) {
    PyErr_Clear(); /* g->failed says it */
    g->failed = true;
  }
}

PyObject *mg_guards_pinned(const MgGuards *g, SrcRef src) {
  return g->src[src].kind == SRC_pinned ? g->src[src].key : NULL;
}

int mg_guards_nsrc(const MgGuards *g) { return g->nsrc ? (int)g->nsrc : 1; }

/* Values of enumerations that pybind11 makes (SDPBackend): immutable. */
static bool guard_is_bound_enum(PyTypeObject *t) {
  return strstr(Py_TYPE(t)->tp_name, "pybind11_type") && PyDict_GetItemString(mg_type_dict(t), "__entries");
}

bool mg_guard_is_const(PyObject *o) {
  PyTypeObject *t = Py_TYPE(o);
  if (t == &PyLong_Type || t == &PyUnicode_Type || t == &PyBool_Type || t == &PyFloat_Type || o == Py_None ||
      t == &PyBytes_Type || t == &PyComplex_Type || t == &PyRange_Type || o == Py_Ellipsis ||
      o == Py_NotImplemented || t == &PyCode_Type)
    return true;
  if (t == &PySlice_Type) {
    PySliceObject *s = (PySliceObject *)o;
    return mg_guard_is_const(s->start) && mg_guard_is_const(s->stop) && mg_guard_is_const(s->step);
  }
  if (t == &PyTuple_Type || t == mg_torch.size || t == &PyFrozenSet_Type) {
    PyObject *it = NULL, *x;
    if (t != &PyFrozenSet_Type) {
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); i++)
        if (!mg_guard_is_const(PyTuple_GET_ITEM(o, i))) return false;
      return true;
    }
    bool all = (it = PyObject_GetIter(o)) != NULL;
    while (all && (x = PyIter_Next(it))) {
      all = mg_guard_is_const(x);
      Py_DECREF(x);
    }
    Py_XDECREF(it);
    mg_clear_as_no();
    return all;
  }
  if (mg_guard_is_numpy_scalar(t) || guard_is_bound_enum(t) || mg_date_is(o)) return true;
  /* torch.dtype, device, layout, memory_format: immutable values of C types */
  return !strncmp(t->tp_name, "torch.", 6) && !(t->tp_flags & Py_TPFLAGS_HEAPTYPE) &&
         (!strcmp(t->tp_name + 6, "dtype") || !strcmp(t->tp_name + 6, "device") ||
          !strcmp(t->tp_name + 6, "layout") || !strcmp(t->tp_name + 6, "memory_format") ||
          !strcmp(t->tp_name + 6, "qscheme"));
}

/* Are equal sets of such elements sets of the very same objects, or of equal constants? */
static bool guard_compares_by_identity(PyObject *set) {
  PyObject *it = PyFrozenSet_Type.tp_iter(set), *x;
  bool all = it;
  while (all && (x = PyIter_Next(it))) {
    all = mg_guard_is_const(x) || Py_TYPE(x)->tp_richcompare == PyBaseObject_Type.tp_richcompare;
    Py_DECREF(x);
  }
  Py_XDECREF(it);
  mg_clear_as_no();
  return all;
}

bool mg_guard_frozenset(MgGuards *g, SrcRef src, PyObject *v) {
  PyObject *it = guard_compares_by_identity(v) ? PyFrozenSet_Type.tp_iter(v) : NULL,
           *all = it ? PySequence_Tuple(it) : NULL;
  Py_XDECREF(it);
  if (!all) return mg_clear_as_no(), false;
  mg_guard_add(g, GK_type, src, (PyObject *)Py_TYPE(v), 0);
  mg_guard_add(g, GK_elements, src, all, 0);
  Py_DECREF(all);
  return true;
}

bool mg_guard_is_value(PyObject *o) {
  PyTypeObject *b = Py_TYPE(o)->tp_flags & Py_TPFLAGS_HEAPTYPE ? mg_solid_base(Py_TYPE(o)) : NULL;
  return b && (b == &PyLong_Type || b == &PyFloat_Type || b == &PyUnicode_Type || b == &PyBytes_Type);
}

static bool guard_same_float(double a, double b) { return !memcmp(&a, &b, sizeof a); }

bool mg_guard_same_value(PyObject *a, PyObject *b) {
  if (PyFloat_Check(a) && PyFloat_Check(b))
    return guard_same_float(PyFloat_AS_DOUBLE(a), PyFloat_AS_DOUBLE(b));
  PyObject *same = mg_solid_base(Py_TYPE(a))->tp_richcompare(a, b, Py_EQ);
  Py_XDECREF(same);
  if (!same) mg_clear_as_no();
  return same == Py_True;
}

bool mg_guard_same_const(PyObject *a, PyObject *b) {
  if (a == b) return true;
  if (!a || !b || Py_TYPE(a) != Py_TYPE(b)) return false;
  if (PyFloat_Check(a)) return guard_same_float(PyFloat_AS_DOUBLE(a), PyFloat_AS_DOUBLE(b));
  if (PyComplex_Check(a)) {
    Py_complex x = PyComplex_AsCComplex(a), y = PyComplex_AsCComplex(b);
    return guard_same_float(x.real, y.real) && guard_same_float(x.imag, y.imag);
  }
  if (PyTuple_CheckExact(a)) { /* item by item: 1 == 1.0 == True must not pass */
    if (PyTuple_GET_SIZE(a) != PyTuple_GET_SIZE(b)) return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(a); i++)
      if (!mg_guard_same_const(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i))) return false;
    return true;
  }
  if (PySlice_Check(a)) {
    const PySliceObject *s = (PySliceObject *)a, *t = (PySliceObject *)b;
    return mg_guard_same_const(s->start, t->start) && mg_guard_same_const(s->stop, t->stop) &&
           mg_guard_same_const(s->step, t->step);
  }
  if (PyFrozenSet_CheckExact(a)) return mg_guard_same_order(a, b);
  if (mg_date_is(a)) return mg_date_is(b) && mg_date_same(a, b);
  if (mg_guard_is_value(a)) return mg_guard_same_value(a, b);
  PyObject *same = PyObject_RichCompare(a, b, Py_EQ);
  int r = same ? PyObject_IsTrue(same) : -1;
  Py_XDECREF(same);
  if (r < 0) mg_clear_as_no();
  return r == 1;
}

bool mg_guard_same_order(PyObject *a, PyObject *b) {
  Py_ssize_t i = 0, j = 0;
  PyObject *x, *y;
  Py_hash_t h;
  if (PySet_GET_SIZE(a) != PySet_GET_SIZE(b)) return false;
  while (mg_pyframe_next_in_set(a, &i, &x, &h) && mg_pyframe_next_in_set(b, &j, &y, &h))
    if (x != y && !(mg_guard_is_const(y) && mg_guard_same_const(x, y))) return false;
  return true;
}

/* ---- adding ---- */

/* True the first time that (kind, a, b) is asked for: most facts are read many times. */
static bool guard_is_new(MgGuards *g, MgGuardKind kind, SrcRef src, const void *o, int64_t i) {
  uint64_t h = mg_hash_u64((uint64_t)kind << 56 ^ (uint64_t)src << 24 ^ (uint64_t)i * 0x9E3779B97F4A7C15ull);
  h = mg_hash_u64(h ^ (uint64_t)(uintptr_t)o) | 2;
  if (mg_map_get(&g->by_fact, h) != MG_MAP_NONE) return false;
  if (mg_map_put(&g->by_fact, h, 1) != MG_OK) g->failed = true;
  return true;
}

void mg_guard_add(MgGuards *g, MgGuardKind kind, SrcRef src, PyObject *o, int64_t i) {
  if (!guard_is_new(g, kind, src, o, i)) return;
  MgGuardOp *op = PUSH(g, op, nop, cap_op);
  if (!op) return;
  mg_guards_hold(g, o);
  guard_set_op(g, op, (MgGuardOp){.kind = kind, .src = src, .o = o, .u.i = i});
}

void mg_guard_value(MgGuards *g, SrcRef src, PyObject *o) {
  PyObject *plain = mg_plain_value(o);
  if (plain) {
    mg_guard_add(g, GK_type, src, (PyObject *)Py_TYPE(o), 0);
    mg_guard_add(g, GK_value, src, plain, 0);
    Py_DECREF(plain);
  } else {
    PyErr_Clear(); /* g->failed says it */
    g->failed = true;
  }
}

void mg_guard_pair(MgGuards *g, MgGuardKind kind, SrcRef a, SrcRef b, int64_t i) {
  if (!guard_is_new(g, kind, a, NULL, (int64_t)b << 32 ^ i)) return;
  MgGuardOp *op = PUSH(g, op, nop, cap_op);
  if (op) guard_set_op(g, op, (MgGuardOp){.kind = kind, .src = a, .src2 = b, .u.i = i});
}

void mg_guard_apart(MgGuards *g, struct MgApart *a) {
  MgGuardOp *op = PUSH(g, op, nop, cap_op);
  if (op) guard_set_op(g, op, (MgGuardOp){.kind = GK_apart, .u.apart = a});
  else mg_apart_free(a);
}

void mg_guard_pinned(MgGuards *g, MgGuardKind kind, PyObject *owner, PyObject *want) {
  if (!guard_is_new(g, kind, 0, owner, 0)) return;
  MgGuardOp *op = PUSH(g, op, nop, cap_op);
  if (!op) return;
  mg_guards_hold(g, owner);
  mg_guards_hold(g, want);
  guard_set_op(g, op, (MgGuardOp){.kind = kind, .o = owner, .u.want = want});
}

void mg_guard_member(MgGuards *g, PyObject *owner, PyObject *descr, PyObject *value) {
  if (!guard_is_new(g, GK_member_is, 0, owner, (int64_t)(intptr_t)descr)) return;
  MgGuardOp *op = PUSH(g, op, nop, cap_op);
  PyObject *pair = value ? PyTuple_Pack(2, descr, value) : PyTuple_Pack(1, descr);
  if (!op || !pair) {
    g->failed = true;
    Py_XDECREF(pair);
    return;
  }
  mg_guards_hold(g, owner);
  mg_guards_hold(g, pair);
  guard_set_op(g, op, (MgGuardOp){.kind = GK_member_is, .o = owner, .u.want = pair});
  Py_DECREF(pair);
}

void mg_guard_tensor(MgGuards *g, SrcRef src, PyObject *tensor) {
  if (!guard_is_new(g, GK_tensor, src, NULL, 0)) return;
  MgGuardOp *op = PUSH(g, op, nop, cap_op);
  MgFacts *f = op ? mg_facts_new(tensor) : NULL;
  if (!f) {
    if (op) g->nop--;
    g->failed = true;
    return;
  }
  mg_guards_hold(g, (PyObject *)f->type);
  guard_set_op(g, op, (MgGuardOp){.kind = GK_tensor, .src = src, .u.facts = f});
}

MgFacts *mg_guard_facts(MgGuards *g, SrcRef src) {
  for (uint32_t i = g->nop; i-- > 0;)
    if (g->op[i].kind == GK_tensor && g->op[i].src == src) return g->op[i].u.facts;
  return NULL;
}

void mg_guards_any_grad(MgGuards *g) {
  for (uint32_t i = 0; i < g->nop; i++) {
    MgFacts *f = g->op[i].kind == GK_tensor ? g->op[i].u.facts : NULL;
    if (!f || f->sizeless) continue;
    f->any_grad = true;
    f->requires_grad = false; /* facts that say the same are shared */
  }
}

void mg_guard_array(MgGuards *g, SrcRef src, PyObject *array) {
  if (!guard_is_new(g, GK_array, src, NULL, 0)) return;
  MgNdFacts *f = mg_nd_facts_new(array);
  MgGuardOp *op = f ? PUSH(g, op, nop, cap_op) : NULL;
  if (op) guard_set_op(g, op, (MgGuardOp){.kind = GK_array, .src = src, .u.array = f});
  else {
    free(f);
    g->failed = true;
  }
}

void mg_guard_context(MgGuards *g, PyObject *var, PyObject *value) {
  PyObject *was = value ? PyTuple_Pack(1, value) : PyTuple_New(0);
  if (!was) g->failed = true;
  else mg_guard_pinned(g, GK_context_is, var, was);
  Py_XDECREF(was);
}

static MgDictGuard *guard_dict(MgGuards *g, PyObject *dict, PyObject *owner) {
  if (g->recent < g->ndict && g->dict[g->recent].dict == dict) return &g->dict[g->recent];
  uint32_t at = mg_map_getp(&g->by_dict, dict);
  g->recent = at == MG_MAP_NONE ? g->ndict : at;
  if (at != MG_MAP_NONE) return &g->dict[at];
  if (mg_pyframe_detach_values(dict)) g->failed = true;
  if (mg_map_putp(&g->by_dict, dict, g->ndict) != MG_OK) g->failed = true;
  MgDictGuard *d = PUSH(g, dict, ndict, cap_dict);
  if (!d) return NULL;
  *d = (MgDictGuard){.dict = dict, .owner = owner};
  if (owner) {
    d->slot = _PyObject_GetDictPtr(owner);
    d->type = Py_TYPE(owner);
    mg_guards_hold(g, owner);
    mg_guards_hold(g, (PyObject *)d->type);
  } else mg_guards_hold(g, dict);
  return d;
}

void mg_guard_instance(MgGuards *g, PyObject *owner) {
  PyObject **d = _PyObject_GetDictPtr(owner);
  if (d && *d) guard_dict(g, *d, owner);
}

/* Appends to a pair of parallel arrays of keys (strong) and values (borrowed from the set). */
static void guard_push_key(MgGuards *g, PyObject ***key, PyObject ***val, int *n, int *cap, PyObject *k,
                           PyObject *v) {
  if (*n == *cap) {
    int c = *cap ? *cap * 2 : 8;
    PyObject **nk = mg_realloc(*key, sizeof *nk * (size_t)c);
    if (nk) *key = nk;
    PyObject **nv = nk ? mg_realloc(*val, sizeof *nv * (size_t)c) : NULL;
    if (!nv) {
      g->failed = true;
      return;
    }
    *val = nv;
    *cap = c;
  }
  mg_guards_hold(g, v);
  (*key)[*n] = Py_NewRef(k);
  (*val)[(*n)++] = v;
}

/* What so far only had to be there is now guarded by value. */
static void guard_settle(MgGuards *g, PyObject **keys, PyObject **vals, int n, PyObject *key, PyObject *val) {
  for (int i = 0; i < n; i++)
    if (vals[i] == mg_any_float && keys[i] == key) {
      mg_guards_hold(g, val);
      vals[i] = val;
    }
}

/* guard_is_new for a key of a dict: the first ones are found by looking at each. */
static bool guard_key_is_new(MgGuards *g, const MgDictGuard *d, PyObject *key) {
  for (int i = 0, n = d->n < MG_TUNE_KEYS_LOOKED_AT ? d->n : MG_TUNE_KEYS_LOOKED_AT; i < n; i++)
    if (d->key[i] == key) return false;
  return d->n < MG_TUNE_KEYS_LOOKED_AT || guard_is_new(g, GK_load, 0, key, (int64_t)(intptr_t)d->dict);
}

void mg_guard_dict_key(MgGuards *g, PyObject *dict, PyObject *owner, PyObject *key, PyObject *val,
                       bool is_input) {
  if (!val && key == mg_names.slotnames) return; /* a cache, which copying fills */
  MgDictGuard *d = guard_dict(g, dict, owner);
  if (!d) return;
  if (guard_key_is_new(g, d, key)) {
    guard_push_key(g, &d->key, &d->val, &d->n, &d->cap, key, is_input ? mg_any_float : val);
    return;
  }
  if (!is_input) guard_settle(g, d->key, d->val, d->n, key, val);
}

/* Dict and key (list and NULL) where one tensor, container or plain instance took the place of another of its
 * type, by a hash of the addresses: state that a program keeps by assignment.  Under the GIL; an address that
 * is used again does no harm. */
static MgMap guard_moving;

static uint64_t guard_moving_hash(PyObject *dict, PyObject *key) {
  return mg_hash_u64((uint64_t)(uintptr_t)dict ^ mg_hash_u64((uint64_t)(uintptr_t)key)) | 2;
}

bool mg_guard_may_move(PyObject *was, PyObject *now) {
  PyTypeObject *t = Py_TYPE(was), *b;
  if (PyObject_TypeCheck(was, mg_torch.tensor)) return PyObject_TypeCheck(now, mg_torch.tensor);
  if (t != Py_TYPE(now) || PyType_Check(was) || PyObject_TypeCheck(was, mg_torch.module) ||
      mg_guard_is_const(was))
    return false;
  b = mg_solid_base(t);
  if (b == &PyBaseObject_Type) return t->tp_flags & Py_TPFLAGS_HEAPTYPE;
  return b == &PyList_Type || b == &PyTuple_Type || b == &PySet_Type || b == mg_torch.deque ||
         PyType_IsSubtype(b, &PyDict_Type);
}

bool mg_guard_key_moves(PyObject *container, PyObject *key) {
  return guard_moving.n && mg_map_get(&guard_moving, guard_moving_hash(container, key)) != MG_MAP_NONE;
}

bool mg_guard_expect_move(MgGuards *g, PyObject *dict, PyObject *key, PyObject *now) {
  for (uint32_t i = 0; i < g->ndict; i++) {
    const MgDictGuard *d = &g->dict[i];
    for (int k = 0; d->dict == dict && k < d->n; k++)
      if (d->key[k] == key && d->val[k] && mg_guard_may_move(d->val[k], now) &&
          !mg_guard_key_moves(dict, key))
        return mg_map_put(&guard_moving, guard_moving_hash(dict, key), 1) == MG_OK;
  }
  return false;
}

bool mg_guard_expect_list_move(PyObject *list) {
  return !mg_guard_key_moves(list, NULL) &&
         mg_map_put(&guard_moving, guard_moving_hash(list, NULL), 1) == MG_OK;
}

static bool guard_moved(PyObject *was, PyObject *now) { return was != now && mg_guard_may_move(was, now); }

/* Numbers of a list change as well: then each is guarded by itself. */
static bool guard_number_changed(PyObject *was, PyObject *now) {
  return (PyFloat_CheckExact(was) || PyLong_CheckExact(was)) && Py_TYPE(was) == Py_TYPE(now) &&
         !mg_guard_same_const(was, now);
}

static void guard_note_list(PyObject *list, PyObject *was) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(was) && i < PyList_GET_SIZE(list); i++)
    if (guard_moved(PyTuple_GET_ITEM(was, i), PyList_GET_ITEM(list, i)) ||
        guard_number_changed(PyTuple_GET_ITEM(was, i), PyList_GET_ITEM(list, i)))
      (void)mg_map_put(&guard_moving, guard_moving_hash(list, NULL), 1);
}

void mg_guards_note_moves(const MgGuards *g) {
  if (g->dead) return;
  for (uint32_t i = 0; i < g->nop; i++)
    if (g->op[i].kind == GK_list_is) guard_note_list(g->op[i].o, g->op[i].u.want);
  for (uint32_t i = 0; i < g->ndict; i++) {
    const MgDictGuard *d = &g->dict[i];
    for (int k = 0; k < d->n && mg_dict_guard_lives(d); k++) {
      PyObject *now = d->val[k] ? PyDict_GetItemWithError(d->dict, d->key[k]) : NULL;
      if (now && guard_moved(d->val[k], now)) /* lost when memory runs out: a recompile */
        (void)mg_map_put(&guard_moving, guard_moving_hash(d->dict, d->key[k]), 1);
    }
  }
  PyErr_Clear(); /* out of memory: a recompile */
}

void mg_guard_dict_all(MgGuards *g, PyObject *dict, PyObject *owner, bool inputs) {
  MgDictGuard *d = guard_dict(g, dict, owner);
  if (!d || (d->all && (inputs || d->all_exact))) return;
  d->all = true;
  d->all_exact |= !inputs;
  d->size = PyDict_GET_SIZE(dict);
  PyObject *k, *v, *order = PyTuple_New(d->size);
  Py_ssize_t i = 0, at = 0;
  while (order && PyDict_Next(dict, &at, &k, &v)) PyTuple_SET_ITEM(order, i++, Py_NewRef(k));
  if (!order) g->failed = true;
  mg_guards_hold(g, d->order = order);
  Py_XDECREF(order);
  Py_ssize_t pos = 0;
  while (PyDict_Next(dict, &pos, &k, &v))
    mg_guard_dict_key(g, dict, owner, k, v, inputs && mg_guard_asks.changing_key(dict, owner, k, v));
}

/* Attributes of classes that say nothing about what their instances do. */
static bool guard_is_noise(const char *name) {
  static const char *const noise[] = {"__doc__",
                                      "__module__",
                                      "__dict__",
                                      "__weakref__",
                                      "__annotations__",
                                      "__annotations_cache__",
                                      "__annotate__",
                                      "__annotate_func__",
                                      "__qualname__",
                                      "__slotnames__",
                                      "__abstractmethods__",
                                      "__parameters__",
                                      "__orig_bases__",
                                      NULL};
  for (int i = 0; noise[i]; i++)
    if (!strcmp(name, noise[i])) return true;
  return false;
}

PyObject *mg_guard_next_special(PyTypeObject *t, Py_ssize_t *i, Py_ssize_t *pos) {
  PyObject *mro = t->tp_mro, *k, *v;
  bool tensor = PyType_IsSubtype(t, mg_torch.tensor);
  for (; mro && *i < PyTuple_GET_SIZE(mro); ++*i, *pos = 0) {
    PyTypeObject *m = (PyTypeObject *)PyTuple_GET_ITEM(mro, *i);
    if (!(m->tp_flags & Py_TPFLAGS_HEAPTYPE)) continue;
    while (PyDict_Next(mg_type_dict(m), pos, &k, &v)) {
      const char *name = PyUnicode_Check(k) ? PyUnicode_AsUTF8(k) : NULL;
      if (name && (tensor || (name[0] == '_' && name[1] == '_')) && !guard_is_noise(name)) return k;
    }
  }
  return NULL;
}

static MgTypeGuard *guard_type(MgGuards *g, PyTypeObject *t) {
  uint32_t at = mg_map_getp(&g->by_type, t);
  if (at != MG_MAP_NONE) return &g->type[at];
  if (mg_map_putp(&g->by_type, t, g->ntype) != MG_OK) g->failed = true;
  MgTypeGuard *tg = PUSH(g, type, ntype, cap_type);
  if (!tg) return NULL;
  *tg = (MgTypeGuard){.type = t};
  mg_guards_hold(g, (PyObject *)t);
  Py_ssize_t i = 0, pos = 0;
  for (PyObject *name; (name = mg_guard_next_special(t, &i, &pos)); tg->nspecial++)
    if (guard_is_new(g, GK_type, 0, name, (int64_t)(intptr_t)t))
      guard_push_key(g, &tg->name, &tg->val, &tg->n, &tg->cap, name, _PyType_Lookup(t, name));
  return tg;
}

void mg_guard_type(MgGuards *g, PyTypeObject *t) {
  if (t->tp_flags & Py_TPFLAGS_HEAPTYPE) guard_type(g, t);
}

void mg_guard_type_attr(MgGuards *g, PyTypeObject *t, PyObject *name, PyObject *val) {
  if (!(t->tp_flags & Py_TPFLAGS_HEAPTYPE)) return; /* static types do not change */
  MgTypeGuard *tg = guard_type(g, t);
  if (tg && guard_is_new(g, GK_type, 0, name, (int64_t)(intptr_t)t))
    guard_push_key(g, &tg->name, &tg->val, &tg->n, &tg->cap, name, val);
  else if (tg && val != mg_any_float) guard_settle(g, tg->name, tg->val, tg->n, name, val);
}

void mg_guard_type_mro(MgGuards *g, PyTypeObject *t) {
  MgTypeGuard *tg = t->tp_flags & Py_TPFLAGS_HEAPTYPE && t->tp_mro ? guard_type(g, t) : NULL;
  if (!tg || tg->mro) return;
  tg->nmro = (int)PyTuple_GET_SIZE(t->tp_mro);
  if (!(tg->mro = mg_malloc(sizeof *tg->mro * (size_t)tg->nmro))) {
    g->failed = true;
    return;
  }
  for (int i = 0; i < tg->nmro; i++) {
    tg->mro[i] = (PyTypeObject *)PyTuple_GET_ITEM(t->tp_mro, i);
    mg_guards_hold(g, (PyObject *)tg->mro[i]); /* no other class may get its address */
  }
}

void mg_guard_not_registered(MgGuards *g, PyObject *abc, PyObject *sub) {
  if (!guard_is_new(g, GK_not_abc, 0, abc, (int64_t)(intptr_t)sub)) return;
  MgNotAbc *known = mg_malloc(sizeof *known);
  MgGuardOp *op = known ? PUSH(g, op, nop, cap_op) : NULL;
  if (!op) {
    g->failed = true;
    free(known);
    return;
  }
  mg_guards_hold(g, abc);
  mg_guards_hold(g, sub);
  *known = (MgNotAbc){sub, mg_guard_abc_token()};
  guard_set_op(g, op, (MgGuardOp){.kind = GK_not_abc, .o = abc, .u.abc = known});
}

void mg_guard_empty(MgGuards *g, PyObject *dict) {
  if (!guard_is_new(g, GK_null, 0, dict, 0)) return;
  PyObject **p = PUSH(g, empty, nempty, cap_empty);
  if (!p) return;
  mg_guards_hold(g, dict);
  *p = dict;
}

/* ---- sealing ---- */

/* From here on the set lives beside the user's objects: modules and classes are only watched. */
static int guard_release_watched(MgGuards *g) {
  PyObject *keep = PyList_New(0), *loose = PyList_New(0);
  int rc = keep && loose ? 0 : -1;
  for (Py_ssize_t i = 0; !rc && i < PyList_GET_SIZE(g->keep); i++) {
    PyObject *o = PyList_GET_ITEM(g->keep, i);
    if (mg_map_getp(&g->by_held, o) != WATCHED)
      rc = PyList_Append(mg_guard_may_be_loose(o) ? loose : keep, o);
  }
  if (!rc && !(g->loose = mg_guard_loose_new(loose))) rc = -1;
  if (!rc) Py_SETREF(g->keep, Py_NewRef(keep));
  Py_XDECREF(keep);
  Py_XDECREF(loose);
  return rc;
}

uint32_t mg_guard_type_version(PyTypeObject *t) {
  if (!mg_type_version(t)) _PyType_Lookup(t, mg_names.class_);
  return mg_type_version(t);
}

/* Neighbours in memory are checked one after the other, which caches like: objects of one
 * model lie close together. */
static int guard_by_address(const void *a, const void *b) {
  uintptr_t x = *(const uintptr_t *)a,
            y = *(const uintptr_t *)b; /* each struct starts with the pointer that is followed */
  return (x > y) - (x < y);
}
_Static_assert(offsetof(MgDictGuard, dict) == 0 && offsetof(MgFastSlot, slot) == 0, "sorted by address");

static int guard_op_by_address(const void *a, const void *b) {
  const MgGuardOp *x = a, *y = b;
  return ((uintptr_t)x->o > (uintptr_t)y->o) - ((uintptr_t)x->o < (uintptr_t)y->o);
}

/* Guards of tensors that are the same at every call go last, and are checked together.  Most parameters share
 * their facts with others. */
static int guard_pack_tensors(MgGuards *g) {
  MgGuardOp *op = mg_malloc(sizeof *op * (g->nop + 1));
  MgMap seen = {0}; /* hash of facts -> index into pinned, the first of its kind */
  uint32_t n = 0;
  int rc = -1;
  if (!op || !(g->pinned = mg_malloc(sizeof *g->pinned * (g->nop + 1)))) goto done;
  for (int last = 0; last < 2; last++)
    for (uint32_t i = 0; i < g->nop; i++) {
      MgGuardOp q = g->op[i];
      if (last != (q.kind == GK_tensor && g->src[q.src].kind == SRC_pinned)) continue;
      if (last) q.o = g->src[q.src].key, g->npinned++;
      op[n++] = q;
    }
  MgGuardOp *first = op + (n - g->npinned);
  qsort(first, g->npinned, sizeof *op, guard_op_by_address);
  for (uint32_t i = 0; i < g->npinned; i++) {
    const MgFacts *f = first[i].u.facts;
    uint64_t h = mg_hash_bytes(f, sizeof *f + sizeof(int64_t) * 2 * (size_t)f->ndim, 0) | 2;
    uint32_t at = mg_map_get(&seen, h);
    if (at != MG_MAP_NONE && mg_facts_equal(g->pinned[at].facts, f)) f = g->pinned[at].facts;
    else if (mg_map_put(&seen, h, i) != MG_OK) goto done;
    g->pinned[i] = (MgFactsOf){first[i].o, f};
  }
  free(g->op);
  g->op = op;
  op = NULL;
  rc = 0;
done:
  free(op);
  mg_map_free(&seen);
  return rc;
}

int mg_guards_seal(MgGuards *g) {
  if (!g->failed && guard_pack_tensors(g)) g->failed = true;
  if (!g->failed) {
    g->fast_dict = mg_malloc(sizeof *g->fast_dict * (g->ndict + 1));
    g->fast_slot = mg_malloc(sizeof *g->fast_slot * (g->ndict + 1));
    g->fast_type = mg_malloc(sizeof *g->fast_type * (g->ntype + 1));
    g->preset = mg_calloc((size_t)mg_guards_nsrc(g), sizeof *g->preset);
  }
  if (g->failed || !g->fast_dict || !g->fast_slot || !g->fast_type || !g->preset) {
    PyErr_NoMemory();
    return -1;
  }
  if (g->ndict) qsort(g->dict, g->ndict, sizeof *g->dict, guard_by_address);
  if (g->nempty) qsort(g->empty, g->nempty, sizeof *g->empty, guard_by_address);
  for (uint32_t i = 0; i < g->ndict; i++) {
    MgDictGuard *d = &g->dict[i];
    if (d->slot) g->fast_slot[g->nslot++] = (MgFastSlot){d->slot, d->dict, d->owner, d->type};
    g->fast_dict[i] = (MgFastDict){d->dict, mg_dict_version(d->dict)};
  }
  qsort(g->fast_slot, g->nslot, sizeof *g->fast_slot, guard_by_address);
  for (uint32_t i = 0; i < g->ntype; i++)
    g->fast_type[i] = (MgFastType){g->type[i].type, mg_guard_type_version(g->type[i].type)};
  for (uint32_t i = 1; i < g->nsrc; i++)
    if (g->src[i].kind == SRC_pinned) g->preset[i] = g->src[i].key;
  mg_guard_watch(g);
  int rc = guard_release_watched(g);
  MgMap *maps[] = {&g->by_src, &g->by_dict, &g->by_type, &g->by_held, &g->by_fact};
  for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) mg_map_free(maps[i]);
  return rc;
}
