/* Building the construction program. */
#include "record/snapshot/snapshot.h"
#include <Python.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>
#include "entry/guard/guard_add.h"
#include "entry/run/snapshot_run.h"
#include "host/python/iterators.h"
#include "host/python/names.h"
#include "host/python/pyframe.h"
#include "host/python/pyobject.h"
#include "host/torch/array_bridge.h"
#include "record/core/identity.h"
#include "record/core/recording.h"
#include "record/fx/fx.h"
#include "record/fx/fx_modes.h"
#include "record/numpy/array_type.h"
#include "record/object/lazy_constants.h"
#include "record/object/lazy_text.h"
#include "record/snapshot/snapshot_build.h"
#include "record/snapshot/torch_effects.h"
#include "record/symbolic/number.h"
#include "record/symbolic/number_index.h"
#include "record/tensor/function_modes.h"
#include "record/tensor/input_overlap.h"
#include "record/tensor/leaf_grad.h"
#include "record/tensor/wrapper_subclass.h"

#define PY_SSIZE_T_CLEAN

uint32_t mg_snap_refuse(PyObject *o) {
  mg_rec_break(BK_snapshot, "a %s is alive at the end of the graph", Py_TYPE(o)->tp_name);
  return SNAP_FAIL;
}

static uint32_t snap_nomem(void) {
  PyErr_NoMemory();
  return SNAP_FAIL;
}

void *mg_snap_grow(void *p, uint32_t *cap, uint32_t need, size_t size) {
  if (need <= *cap) return p;
  uint32_t n = *cap ? *cap : 16;
  while (n < need) n *= 2;
  void *q = mg_realloc(p, n * size);
  if (q) *cap = n;
  return q;
}

/* Appends one instruction; obj is kept, modules and classes by the rule of the guard set. to_older: it
 * changes an older object. */
static uint32_t snap_append(MgBuilder *b, MgSnapInstr q, const uint32_t *arg, bool to_older) {
  MgSnapshot *s = b->s;
  MgSnapInstr **list = to_older ? &s->w : &s->p;
  uint32_t *n = to_older ? &s->nw : &s->n;
  MgSnapInstr *p = mg_snap_grow(*list, to_older ? &s->cap_w : &s->cap, *n + 2, sizeof *p);
  uint32_t *pool = p ? mg_snap_grow(s->pool, &s->cap_pool, s->npool + q.narg + 1, sizeof *pool) : NULL;
  if (p) *list = p;
  if (pool) s->pool = pool;
  if (!p || !pool) return snap_nomem();
  if (!to_older && !*n) p[(*n)++] = (MgSnapInstr){0};
  if (q.obj) {
    if (PyObject_TypeCheck(q.obj, mg_torch.module) || PyType_Check(q.obj))
      mg_guards_hold(mg_rec->guards, q.obj);
    else if (PyList_Append(s->keep, q.obj)) return SNAP_FAIL;
  }
  if (q.narg) memcpy(pool + s->npool, arg, q.narg * sizeof *arg);
  q.arg = s->npool;
  s->npool += q.narg;
  p[*n] = q;
  return (*n)++;
}

uint32_t mg_snap_emit(MgBuilder *b, MgSnapOp op, PyObject *obj, uint32_t a, const uint32_t *arg,
                      uint32_t narg) {
  MgSnapInstr q = {(uint8_t)op, a, narg, 0, obj};
  return snap_append(b, q, arg, op >= SN_fill_list && (b->s->p[a].op == SN_src || b->s->p[a].op == SN_const));
}

/* Builds items and emits one instruction over them. target != 0: a fill, else a new value. */
uint32_t mg_snap_emit_over(MgBuilder *b, MgSnapOp op, PyObject *obj, uint32_t target, PyObject *const *item,
                           Py_ssize_t n) {
  uint32_t fixed[16], *arg = n <= 16 ? fixed : mg_malloc(sizeof *arg * (size_t)n), r = 0;
  if (!arg) return snap_nomem();
  for (Py_ssize_t i = 0; i < n && r != SNAP_FAIL; i++) {
    r = arg[i] = item[i] ? mg_snap_build(b, item[i]) : 0;
  }
  if (r != SNAP_FAIL) r = mg_snap_emit(b, op, obj, target, arg, (uint32_t)n);
  if (arg != fixed) free(arg);
  return r;
}

uint32_t mg_snap_emit_typed(MgBuilder *b, MgSnapOp op, PyTypeObject *t, PyObject *item) {
  bool made = mg_is_fresh((PyObject *)t);
  PyObject *part[2] = {item ? item : (PyObject *)t, (PyObject *)t};
  return mg_snap_emit_over(b, op, made ? NULL : (PyObject *)t, 0, part, (item != NULL) + made);
}

bool mg_snap_memo(MgBuilder *b, PyObject *o, uint32_t v) {
  if (v != SNAP_FAIL && mg_map_putp(&b->memo, o, v) != MG_OK) snap_nomem();
  return v != SNAP_FAIL && !PyErr_Occurred();
}

/* Keys and values of a dict in order, as one tuple: borrowed from b->keep.  Subclasses are
 * read by their static base. */
PyObject *mg_snap_dict_items(MgBuilder *b, PyObject *d) {
  PyObject *flat = PyList_New(0), *k, *v;
  PyObject *it = flat ? mg_dict_iter(d) : NULL;
  int rc = it ? 0 : -1;
  while (!rc && (k = PyIter_Next(it))) {
    v = PyDict_GetItemWithError(d, k);
    rc = !v || PyList_Append(flat, k) || PyList_Append(flat, v);
    Py_DECREF(k);
  }
  Py_XDECREF(it);
  PyObject *t = !rc && !PyErr_Occurred() ? PyList_AsTuple(flat) : NULL;
  Py_XDECREF(flat);
  if (t && PyList_Append(b->keep, t)) Py_CLEAR(t);
  Py_XDECREF(t);
  return t;
}

/* ---- one object ---- */

uint32_t mg_snap_older(MgBuilder *b, MgOlder *e) {
  if (e->src && !mg_guards_pinned(mg_rec->guards, e->src))
    return mg_snap_emit(b, SN_src, NULL, e->src, NULL, 0);
  return mg_snap_emit(b, SN_const, e->orig, 0, NULL, 0);
}

static uint32_t snap_output(MgBuilder *b, ValRef v, MgSnapOp op) {
  MgSnapshot *s = b->s;
  uint32_t i = mg_map_get(&b->out, (uint64_t)v + 2);
  if (i == MG_MAP_NONE) {
    ValRef *out = mg_snap_grow(s->out, &s->cap_out, s->nout + 1, sizeof *out);
    if (!out) return snap_nomem();
    s->out = out;
    i = s->nout++;
    out[i] = v;
    if (mg_map_put(&b->out, (uint64_t)v + 2, i) != MG_OK) return snap_nomem();
  }
  return mg_snap_emit(b, op, NULL, i, NULL, 0);
}

/* The tensor that is value me, as an instance of another class. */
static uint32_t snap_dress(MgBuilder *b, uint32_t me, PyObject *cls) {
  bool made = mg_is_fresh(cls);
  uint32_t part[2] = {me, made ? mg_snap_build(b, cls) : 0};
  return part[1] == SNAP_FAIL ? SNAP_FAIL
                              : mg_snap_emit(b, SN_tensor_of, made ? NULL : cls, mg_rec->want_fx, part,
                                             1 + made); /* in a torch-level graph a cast is no node */
}

/* A result of the graph, with the attributes that the program has hung on it. */
static uint32_t snap_standin(MgBuilder *b, PyObject *o) {
  uint32_t me = snap_output(b, mg_standin_val(o), SN_out);
  PyObject **d = _PyObject_GetDictPtr(o), *k, *v, *cls = mg_standin_class(o),
           *grad = mg_backward_assigned_grad(o);
  Py_ssize_t pos = 0;
  bool plain = cls == (PyObject *)mg_torch.tensor &&
               !(mg_rec->want_fx && mg_rec->cap->classes); /* a cast of an input is the input there */
  if (me != SNAP_FAIL && !plain) me = snap_dress(b, me, cls);
  bool any = (d && *d) || grad, ok = me != SNAP_FAIL && (!any || mg_snap_memo(b, o, me));
  if (ok && grad)
    ok = !PyList_Append(b->keep, grad) &&
         mg_snap_emit_over(b, SN_set_attr, mg_names.grad, me, &grad, 1) != SNAP_FAIL;
  Py_XDECREF(grad);
  if (!ok) return SNAP_FAIL;
  if (!d || !*d) return me;
  while (PyDict_Next(*d, &pos, &k, &v))
    if (mg_snap_emit_over(b, SN_set_attr, k, me, &v, 1) == SNAP_FAIL) return SNAP_FAIL;
  return me;
}

/* A tensor that wraps others: the torch-level graph makes it. */
static uint32_t snap_wrapping(MgBuilder *b, PyObject *o) {
  ValRef val = mg_wrapper_val(mg_rec->cap, o);
  if (!val) return SNAP_FAIL;
  return mg_fx_shows(mg_rec->cap, &val, 1) ? snap_output(b, val, SN_out) : mg_snap_refuse(o);
}

/* A number: its source's value, or computed from what is in the graph's results. */
static uint32_t snap_number(MgBuilder *b, PyObject *o) {
  MgSymNode *n = mg_symnode_of(o);
  if (n->src)
    return mg_snap_emit(b, mg_source_computed(&mg_rec->guards->src[n->src]) ? SN_calc : SN_src, NULL, n->src,
                        NULL, 0);
  if (n->row) {
    uint32_t me = snap_output(b, n->row, n->dim ? SN_dim : SN_item);
    if (me != SNAP_FAIL) b->s->p[me].arg = n->dim ? (uint32_t)n->dim - 1 : n->at;
    return me;
  }
  PyObject *part[2] = {n->left ? (PyObject *)n->left : n->constant,
                       n->right ? (PyObject *)n->right : n->constant};
  return mg_snap_emit_over(b, SN_compute, NULL, n->calc, part, mg_calc_is_unary(n->calc) ? 1 : 2);
}

/* What the program wanted to be said. */
static bool snap_said(MgBuilder *b) {
  PyObject *all = mg_rec->cap->said;
  for (Py_ssize_t i = 0; all && i < PyList_GET_SIZE(all); i++)
    if (mg_snap_emit_over(b, SN_call, NULL, 0, &PyTuple_GET_ITEM(PyList_GET_ITEM(all, i), 0), 2) == SNAP_FAIL)
      return false;
  return true;
}

/* Answers that the recording took for granted: looked at before anything else happens. */
static bool snap_claims(MgBuilder *b) {
  PyObject *all = mg_rec->cap->claims;
  for (Py_ssize_t i = 0; all && i < PyList_GET_SIZE(all); i++) {
    PyObject **claim = &PyTuple_GET_ITEM(PyList_GET_ITEM(all, i), 0);
    if (mg_snap_emit_over(b, SN_claim, NULL, claim[1] == Py_True, claim, 1) == SNAP_FAIL) return false;
    b->s->nclaim = b->s->n;
  }
  return true;
}

/* What the program asserted about such numbers. */
static bool snap_checks(MgBuilder *b) {
  PyObject *all = mg_rec->cap->checks;
  for (Py_ssize_t i = 0; all && i < PyList_GET_SIZE(all); i++) {
    PyObject *args = PyList_GET_ITEM(all, i), *part[2] = {PyTuple_GET_ITEM(args, 1), args};
    if (mg_snap_emit_over(b, SN_check, mg_torch.check_with, 0, part, 2) == SNAP_FAIL) return false;
  }
  return true;
}

static uint32_t snap_array(MgBuilder *b, PyObject *o) {
  PyObject *t = mg_array_tensor(o);
  return mg_snap_emit_over(b, SN_array, NULL, mg_array_kind(o), &t, 1);
}

/* x.sum that has been looked up. */
static uint32_t snap_array_method(MgBuilder *b, PyObject *self, PyObject *name) {
  PyObject *m = mg_import("builtins"), *get = m ? PyObject_GetAttrString(m, "getattr") : NULL;
  PyObject *args = get ? PyTuple_Pack(2, self, name) : NULL, *part[2] = {get, args};
  uint32_t r =
      args && !PyList_Append(b->keep, args) ? mg_snap_emit_over(b, SN_call, NULL, 0, part, 2) : SNAP_FAIL;
  Py_XDECREF(args);
  Py_XDECREF(get);
  Py_XDECREF(m);
  return r;
}

static uint32_t snap_list(MgBuilder *b, PyObject *o) {
  uint32_t me = mg_snap_emit(b, SN_list, NULL, 0, NULL, 0);
  if (!mg_snap_memo(b, o, me)) return SNAP_FAIL;
  PyListObject *l = (PyListObject *)o;
  if (Py_SIZE(l) && mg_snap_emit_over(b, SN_fill_list, NULL, me, l->ob_item, Py_SIZE(l)) == SNAP_FAIL)
    return SNAP_FAIL;
  return me;
}

/* Instance dicts that are values themselves (c.__dict__ on the stack) belong to their owners. */
static int snap_find_owners(MgBuilder *b) {
  PyObject *fresh = mg_rec->ident->keep;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(fresh); i++) {
    PyObject *o = PyList_GET_ITEM(fresh, i), **d;
    if (!(Py_TYPE(o)->tp_flags & Py_TPFLAGS_HEAPTYPE) || PyType_Check(o) || mg_standin_check(o)) continue;
    if (!(d = _PyObject_GetDictPtr(o)) || !*d || Py_REFCNT(*d) < 2) continue;
    if (mg_map_putp(&b->owner, *d, (uint32_t)i) != MG_OK) return snap_nomem(), -1;
  }
  return 0;
}

/* The elements of a set, whatever a subclass says about iteration: borrowed from b->keep. */
PyObject *mg_snap_set_items(MgBuilder *b, PyObject *o) {
  PyObject *it = PySet_Type.tp_iter(o), *items = it ? PySequence_Tuple(it) : NULL;
  Py_XDECREF(it);
  if (items && PyList_Append(b->keep, items)) Py_CLEAR(items);
  Py_XDECREF(items);
  return items;
}

static uint32_t snap_set(MgBuilder *b, PyObject *o, bool frozen) {
  PyObject *items = mg_snap_set_items(b, o);
  if (!items) return SNAP_FAIL;
  PyObject **p = &PyTuple_GET_ITEM(items, 0);
  if (frozen) return mg_snap_emit_over(b, SN_frozenset, NULL, 0, p, PyTuple_GET_SIZE(items));
  uint32_t me = mg_snap_emit(b, SN_set, NULL, 0, NULL, 0);
  if (!mg_snap_memo(b, o, me)) return SNAP_FAIL;
  if (PyTuple_GET_SIZE(items) &&
      mg_snap_emit_over(b, SN_fill_set, NULL, me, p, PyTuple_GET_SIZE(items)) == SNAP_FAIL)
    return SNAP_FAIL;
  return me;
}

static uint32_t snap_cell(MgBuilder *b, PyObject *o) {
  uint32_t me = mg_snap_emit(b, SN_cell, NULL, 0, NULL, 0);
  if (!mg_snap_memo(b, o, me)) return SNAP_FAIL;
  PyObject *x = PyCell_GET(o);
  if (x && mg_snap_emit_over(b, SN_set_cell, NULL, me, &x, 1) == SNAP_FAIL) return SNAP_FAIL;
  return me;
}

static uint32_t snap_wrapper(MgBuilder *b, PyObject *o) {
  PyObject *self = PyObject_GetAttr(o, mg_names.self),
           *descr = ((PyObject **)((char *)o + sizeof(PyObject)))[0];
  if (!self) return SNAP_FAIL;
  uint32_t r = mg_snap_emit_over(b, SN_wrapper, descr, 0, &self, 1);
  Py_DECREF(self);
  return r;
}

/* f(*args); args is stolen, NULL is a failure. */
static uint32_t snap_call(MgBuilder *b, PyObject *f, PyObject *args) {
  uint32_t r = SNAP_FAIL;
  PyObject *part[2] = {f, args};
  if (args && !PyList_Append(b->keep, args)) r = mg_snap_emit_over(b, SN_call, NULL, 0, part, 2);
  Py_XDECREF(args);
  return r;
}

static uint32_t snap_remake(MgBuilder *b, PyObject *o, PyObject *args) {
  return snap_call(b, (PyObject *)Py_TYPE(o), args);
}

/* types.MappingProxyType(mapping), whose only field is the mapping. */
static uint32_t snap_proxy(MgBuilder *b, PyObject *o) {
  PyObject *mapping = *(PyObject **)((char *)o + sizeof(PyObject));
  return snap_call(b, (PyObject *)&PyDictProxy_Type, PyTuple_Pack(1, mapping));
}

/* super() proxies attribute reads, so __reduce_ex__ would answer for the object behind it. */
static uint32_t snap_super(MgBuilder *b, PyObject *o) {
  return snap_remake(b, o,
                     Py_BuildValue("(NN)", PyObject_GetAttrString(o, "__thisclass__"),
                                   PyObject_GetAttrString(o, "__self__")));
}

/* How an attribute in the instance dict of a t is written: past a property of that name. */
MgSnapOp mg_snap_attr_op(PyTypeObject *t, PyObject *name) {
  PyObject *d = PyUnicode_Check(name) ? _PyType_Lookup(t, name) : NULL;
  return !PyUnicode_Check(name) || (d && Py_TYPE(d)->tp_descr_set) ? SN_put_attr : SN_set_attr;
}

/* A member that C code keeps in an exception, as its descriptor writes it: a class of the program may give
 * the name to something else. */
static bool snap_is_error_member(PyTypeObject *t, PyObject *v) {
  if (Py_TYPE(v) == &PyMemberDescr_Type) return !(((PyMemberDescrObject *)v)->d_member->flags & READONLY);
  return Py_TYPE(v) == &PyGetSetDescr_Type && ((PyGetSetDescrObject *)v)->d_getset->set &&
         t != (PyTypeObject *)PyExc_BaseException;
}

/* The value of the member v of o: new.  NULL without exception: there is none. */
static PyObject *snap_member(PyObject *o, PyObject *v) {
  const PyMemberDef *m = Py_TYPE(v) == &PyMemberDescr_Type ? ((PyMemberDescrObject *)v)->d_member : NULL;
  if (m && m->type == T_OBJECT && !*(PyObject **)((char *)o + m->offset))
    return NULL; /* reads as None, and is not */
  PyObject *x = Py_TYPE(v)->tp_descr_get(v, o, (PyObject *)Py_TYPE(o));
  if (!x) mg_clear_as_no();
  return x;
}

/* What an instance has in slots of its Python classes, and an exception in its C classes: made from its
 * arguments at first, but written since. */
static uint32_t snap_members(MgBuilder *b, PyObject *o, uint32_t me) {
  PyObject *mro = Py_TYPE(o)->tp_mro, *k, *v;
  PyTypeObject *base = mg_solid_base(Py_TYPE(o)); /* may be a heap type, too, such as functools.partial */
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(mro); i++) {
    PyTypeObject *t = (PyTypeObject *)PyTuple_GET_ITEM(mro, i);
    bool slots = t->tp_flags & Py_TPFLAGS_HEAPTYPE && !PyType_IsSubtype(base, t),
         error = !slots && PyExceptionInstance_Check(o) && t != &PyBaseObject_Type;
    for (Py_ssize_t pos = 0; (slots || error) && PyDict_Next(mg_type_dict(t), &pos, &k, &v);) {
      if (slots ? Py_TYPE(v) != &PyMemberDescr_Type : !snap_is_error_member(t, v)) continue;
      PyObject *x = snap_member(o, v);
      if (!x && slots) continue;
      uint32_t r = x && PyList_Append(b->keep, x) ? SNAP_FAIL
                   : slots                        ? mg_snap_emit_over(b, SN_set_attr, k, me, &x, 1)
                   : x                            ? mg_snap_emit_over(b, SN_set_member, v, me, &x, 1)
                                                  : mg_snap_emit(b, SN_set_member, v, me, NULL, 0);
      Py_XDECREF(x);
      if (r == SNAP_FAIL) return SNAP_FAIL;
    }
  }
  return me;
}

/* Attributes of an instance: those in its dict, then those in slots. */
static uint32_t snap_attributes(MgBuilder *b, PyObject *o, uint32_t me) {
  PyObject **d = _PyObject_GetDictPtr(o), *k, *v;
  Py_ssize_t pos = 0;
  while (d && *d && PyDict_Next(*d, &pos, &k, &v))
    if (mg_snap_emit_over(b, mg_snap_attr_op(Py_TYPE(o), k), k, me, &v, 1) == SNAP_FAIL) return SNAP_FAIL;
  return snap_members(b, o, me);
}

static uint32_t snap_dict(MgBuilder *b, PyObject *o) {
  uint32_t owner = mg_map_getp(&b->owner, o);
  if (owner != MG_MAP_NONE)
    return mg_snap_emit_over(b, SN_instdict, NULL, 0, &PyList_GET_ITEM(mg_rec->ident->keep, owner), 1);
  uint32_t me = mg_snap_emit(b, SN_dict, (PyObject *)Py_TYPE(o), 0, NULL, 0);
  if (!mg_snap_memo(b, o, me)) return SNAP_FAIL;
  PyObject *items = mg_snap_dict_items(b, o);
  if (!items) return SNAP_FAIL;
  if (PyTuple_GET_SIZE(items) && mg_snap_emit_over(b, SN_fill_dict, NULL, me, &PyTuple_GET_ITEM(items, 0),
                                                   PyTuple_GET_SIZE(items)) == SNAP_FAIL)
    return SNAP_FAIL;
  return PyODict_CheckExact(o) ? snap_attributes(b, o, me) : me;
}

/* One of C's named tuples, whose fields are read-only: its class makes it of the tuple and a
 * dict of what has no index. */
static uint32_t snap_struct_sequence(MgBuilder *b, PyObject *o) {
  MgPause pause = mg_rec_pause();
  PyObject *r = PyObject_CallMethod(o, "__reduce__", NULL);
  mg_rec_resume(pause);
  PyObject *args = r && PyTuple_Check(r) && PyTuple_GET_SIZE(r) == 2 ? PyTuple_GET_ITEM(r, 1) : NULL;
  if (args && PyTuple_Check(args)) Py_INCREF(args);
  else args = NULL;
  Py_XDECREF(r);
  mg_clear_as_no();
  return args ? snap_remake(b, o, args) : mg_snap_refuse(o);
}

static bool snap_is_struct_sequence(PyTypeObject *t) {
  return !(t->tp_flags & Py_TPFLAGS_BASETYPE) && PyDict_GetItemString(mg_type_dict(t), "n_sequence_fields");
}

static uint32_t snap_tuple_subclass(MgBuilder *b, PyObject *o) {
  if (snap_is_struct_sequence(Py_TYPE(o))) return snap_struct_sequence(b, o);
  PyObject *plain = PyTuple_GetSlice(o, 0, PyTuple_GET_SIZE(o));
  if (!plain || PyList_Append(b->keep, plain)) {
    Py_XDECREF(plain);
    return SNAP_FAIL;
  }
  uint32_t me = mg_snap_emit_typed(b, SN_tuple_of, Py_TYPE(o), plain);
  Py_DECREF(plain);
  return mg_snap_memo(b, o, me) ? snap_attributes(b, o, me) : SNAP_FAIL;
}

static uint32_t snap_view(MgBuilder *b, PyObject *dict, const char *text) {
  PyObject *name = PyUnicode_InternFromString(text);
  uint32_t r = name ? mg_snap_emit_over(b, SN_view, name, 0, &dict, 1) : SNAP_FAIL;
  Py_XDECREF(name);
  return r;
}

/* What a dead or living weak reference or proxy without a callback refers to; a dead one cannot be rebuilt.
 */
static uint32_t snap_weakref(MgBuilder *b, PyObject *o) {
  PyObject *x = mg_weakref_target(o);
  if (x == Py_None || ((PyWeakReference *)o)->wr_callback) return mg_snap_refuse(o);
  if (PyWeakref_CheckRef(o)) return snap_call(b, (PyObject *)Py_TYPE(o), PyTuple_Pack(1, x));
  PyObject *module = mg_import("_weakref"), *make = module ? PyObject_GetAttrString(module, "proxy") : NULL;
  uint32_t r = make ? snap_call(b, make, PyTuple_Pack(1, x)) : SNAP_FAIL;
  Py_XDECREF(make);
  Py_XDECREF(module);
  return r;
}

/* An instance of a Python class over object, dict, OrderedDict, list or set: its whole state is known. */
static uint32_t snap_instance(MgBuilder *b, PyObject *o) {
  uint32_t me = mg_snap_emit_typed(b, SN_instance, Py_TYPE(o), NULL), r = me;
  if (!mg_snap_memo(b, o, me)) return SNAP_FAIL;
  if (PyDict_Check(o) && PyDict_GET_SIZE(o)) {
    PyObject *items = mg_snap_dict_items(b, o);
    if (!items) return SNAP_FAIL;
    r = mg_snap_emit_over(b, SN_fill_dict, NULL, me, &PyTuple_GET_ITEM(items, 0), PyTuple_GET_SIZE(items));
  } else if (PySet_Check(o)) {
    PyObject *items = mg_snap_set_items(b, o);
    r = items ? mg_snap_emit_over(b, SN_fill_set, NULL, me, &PyTuple_GET_ITEM(items, 0),
                                  PyTuple_GET_SIZE(items))
              : SNAP_FAIL;
  } else if (PyList_Check(o) && PyList_GET_SIZE(o))
    r = mg_snap_emit_over(b, SN_fill_list, NULL, me, ((PyListObject *)o)->ob_item, PyList_GET_SIZE(o));
  return r == SNAP_FAIL ? SNAP_FAIL : snap_attributes(b, o, me);
}

static uint32_t snap_value(MgBuilder *b, PyObject *o, PyObject *plain) {
  if (PyList_Append(b->keep, plain)) return SNAP_FAIL;
  uint32_t me = mg_snap_emit_typed(b, SN_value_of, Py_TYPE(o), plain);
  return mg_snap_memo(b, o, me) ? snap_attributes(b, o, me) : SNAP_FAIL;
}

/* What pickling an exception forgets. */
static uint32_t snap_exception(MgBuilder *b, PyObject *o, uint32_t me) {
  PyBaseExceptionObject *e = (PyBaseExceptionObject *)o;
  uint32_t r = 0;
  if (e->cause) r = mg_snap_emit_over(b, SN_set_cause, NULL, me, &e->cause, 1);
  if (r != SNAP_FAIL) r = snap_members(b, o, me); /* __suppress_context__ among them, which the cause sets */
  /* Raised while nothing of the segment's own was handled: the context is what a run finds handled. */
  bool handled = e->context ? !mg_older(e->context) && e->context == mg_pyframe_handled(PyThreadState_Get())
                            : e->traceback != NULL;
  if (r != SNAP_FAIL && (e->context || handled))
    r = mg_snap_emit_over(b, SN_set_context, NULL, me, &e->context, !handled);
  if (r != SNAP_FAIL && e->traceback &&
      PyTraceBack_Check(e->traceback)) { /* with_traceback(None) leaves None there */
    PyObject *entries = mg_snap_traceback(e->traceback);
    r = entries ? mg_snap_emit(b, SN_set_traceback, entries, me, NULL, 0) : SNAP_FAIL;
    Py_XDECREF(entries);
  }
  return r;
}

/* Does a Python class of o define one of these? */
static bool snap_defines(PyObject *o, const char *const *names, int n) {
  for (int i = 0; i < n; i++) {
    PyObject *d = PyObject_GetAttrString((PyObject *)Py_TYPE(o), names[i]);
    bool python = d && PyFunction_Check(d);
    if (!d) mg_clear_as_no();
    Py_XDECREF(d);
    if (python) return true;
  }
  return false;
}

/* Has t a method of this name other than object's? */
static bool snap_has_own(PyTypeObject *t, PyObject *name) {
  PyObject *own = PyObject_GetAttr((PyObject *)t, name),
           *any = PyObject_GetAttr((PyObject *)&PyBaseObject_Type, name);
  bool yes = own && any && own != any;
  mg_clear_as_no();
  Py_XDECREF(own);
  Py_XDECREF(any);
  return yes;
}

/* The base in C whose own reduced form says all of an instance of a Python class but its attributes; NULL:
 * its Python classes say it. */
static PyTypeObject *snap_reducing_base(PyObject *o) {
  const char *const what[] = {"__getstate__", "__getnewargs__", "__getnewargs_ex__"};
  const char *const all[] = {"__reduce__", "__reduce_ex__"};
  PyTypeObject *base = mg_solid_base(Py_TYPE(o));
  if (base == Py_TYPE(o) || snap_defines(o, what, 3)) return NULL;
  return snap_has_own(base, mg_names.reduce) || snap_has_own(base, mg_names.reduce_ex) ||
                 !snap_defines(o, all, 2)
             ? base
             : NULL;
}

/* The reduced form as the class t has it: new.  object's __reduce_ex__ would ask the
 * Python classes for theirs. */
static PyObject *snap_reduced(PyObject *o, PyTypeObject *t) {
  if (!snap_has_own(t, mg_names.reduce_ex) && snap_has_own(t, mg_names.reduce))
    return mg_snapshot_pickle_call(o, t, mg_names.reduce, NULL);
  PyObject *four = PyLong_FromLong(4),
           *r = four ? mg_snapshot_pickle_call(o, t, mg_names.reduce_ex, four) : NULL;
  Py_XDECREF(four);
  return r;
}

/* What a reduced form's state has beside the attributes of o, which are written by themselves: new, NULL for
 * nothing or with an exception. */
static PyObject *snap_state_beside(PyObject *o, PyObject *state) {
  PyObject **d = _PyObject_GetDictPtr(o), *k, *v, *rest;
  if (PyTuple_Check(state) && PyTuple_GET_SIZE(state) == 2 && PyDict_Check(PyTuple_GET_ITEM(state, 1)))
    return NULL; /* attributes and slots */
  if (!PyDict_Check(state)) return Py_NewRef(state);
  if (!(rest = PyDict_New())) return NULL;
  for (Py_ssize_t pos = 0; PyDict_Next(state, &pos, &k, &v);) {
    int known = d && *d ? PyDict_Contains(*d, k) : 0;
    if (known < 0 || (!known && PyDict_SetItem(rest, k, v))) break;
  }
  if (PyErr_Occurred() || !PyDict_GET_SIZE(rest)) Py_CLEAR(rest);
  return rest;
}

/* The new object of a reduced form, without the __new__ and __init__ of Python classes where the
 * form is that of a base in C. */
static uint32_t snap_reduced_new(MgBuilder *b, PyObject *o, PyObject **part, bool based) {
  PyObject *t = (PyObject *)Py_TYPE(o), *args = part[1], *reg, *newobj;
  if (part[0] == t && (based || PyExceptionInstance_Check(o)))
    return mg_snap_emit_typed(b, SN_based, Py_TYPE(o), args);
  if (!based) return mg_snap_emit_over(b, SN_call, NULL, 0, part, 2);
  reg = mg_import("copyreg");
  newobj = reg ? PyObject_GetAttrString(reg, "__newobj__") : NULL;
  Py_XDECREF(newobj);
  if (!newobj) return SNAP_FAIL;
  if (part[0] != newobj || !PyTuple_GET_SIZE(args) || PyTuple_GET_ITEM(args, 0) != t)
    return mg_snap_emit_over(b, SN_call, NULL, 0, part, 2);
  args = PyTuple_GetSlice(args, 1, PyTuple_GET_SIZE(args));
  uint32_t me =
      args && !PyList_Append(b->keep, args) ? mg_snap_emit_typed(b, SN_based, Py_TYPE(o), args) : SNAP_FAIL;
  Py_XDECREF(args);
  return me;
}

/* Everything else: by the pickle protocol, with care.  The parts of the reduced form
 * are built like any object. */
static uint32_t snap_reduce(MgBuilder *b, PyObject *o) {
  PyTypeObject *base = NULL;
  if (Py_TYPE(o)->tp_flags & Py_TPFLAGS_HEAPTYPE &&
      !(Py_TYPE(o)->tp_flags & Py_TPFLAGS_IMMUTABLETYPE)) { /* a Python class */
    base = mg_solid_base(Py_TYPE(o));
    if (!mg_is_fresh(o)) return mg_snap_refuse(o);
    if (base == &PyBaseObject_Type || base == &PyDict_Type || base == &PyODict_Type || base == &PyList_Type ||
        base == &PySet_Type)
      return snap_instance(b, o);
    PyObject *plain = mg_plain_value(o);
    uint32_t made = plain ? snap_value(b, o, plain) : 0;
    Py_XDECREF(plain);
    if (plain || PyErr_Occurred()) return made ? made : SNAP_FAIL;
    base = snap_reducing_base(o);
  }
  MgPause pause = mg_rec_pause();
  PyObject *r = snap_reduced(o, base ? base : Py_TYPE(o));
  mg_rec_resume(pause);
  if (!r || !PyTuple_Check(r) || PyTuple_GET_SIZE(r) < 2 || PyList_Append(b->keep, r)) {
    PyErr_Clear(); /* refused below */
    Py_XDECREF(r);
    return mg_snap_refuse(o);
  }
  Py_DECREF(r);
  PyObject *part[5] = {NULL};
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(r) && i < 5; i++)
    if (PyTuple_GET_ITEM(r, i) != Py_None) part[i] = PyTuple_GET_ITEM(r, i);
  uint32_t me = snap_reduced_new(b, o, part, base != NULL);
  uint32_t inner = me == SNAP_FAIL ? MG_MAP_NONE : mg_map_getp(&b->memo, o);
  if (inner != MG_MAP_NONE) return inner; /* its own arguments lead back to it, and it is complete */
  if (!mg_snap_memo(b, o, me)) return SNAP_FAIL;
  if (PyExceptionInstance_Check(o) && snap_exception(b, o, me) == SNAP_FAIL) return SNAP_FAIL;
  if (part[2] && (Py_TYPE(o) == &PyListIter_Type || Py_TYPE(o) == &PyListRevIter_Type))
    return mg_snap_late(b, SN_set_state, me, part[2]) ? me : SNAP_FAIL;
  if (base && part[2]) {
    const char *const name = "__setstate__";
    part[2] = snap_state_beside(o, part[2]);
    bool kept = part[2] && !PyList_Append(b->keep, part[2]), asks = part[2] && snap_defines(o, &name, 1);
    Py_XDECREF(part[2]);
    if (PyErr_Occurred() || (part[2] && !kept)) return SNAP_FAIL;
    if (asks) return mg_snap_refuse(o);
  }
  if (part[2] && mg_snap_emit_over(b, SN_set_state, NULL, me, &part[2], 1) == SNAP_FAIL) return SNAP_FAIL;
  for (int i = 3; i < 5; i++) {
    if (!part[i]) continue;
    PyObject *l = PySequence_List(part[i]);
    if (!l || PyList_Append(b->keep, l)) {
      Py_XDECREF(l);
      return SNAP_FAIL;
    }
    Py_DECREF(l);
    if (mg_snap_emit_over(b, i == 3 ? SN_extend : SN_put_items, NULL, me, &l, 1) == SNAP_FAIL)
      return SNAP_FAIL;
  }
  return base ? snap_attributes(b, o, me) : me;
}

/* Objects that stay the same: no references to what the recording saw, and never written to. */
static bool snap_is_const(PyObject *o) {
  PyTypeObject *t = Py_TYPE(o);
  if (PyType_Check(o)) return !mg_is_fresh(o); /* a class statement makes another class each time */
  if (mg_guard_is_const(o)) return !mg_unread_in(o);
  if (PyModule_Check(o)) return true;
  if (t == &PyMethodDescr_Type || t == &PyWrapperDescr_Type || t == &PyClassMethodDescr_Type ||
      t == &PyGetSetDescr_Type || t == &PyMemberDescr_Type)
    return true;
  if (t == &PyCFunction_Type) {
    PyObject *s = ((PyCFunctionObject *)o)->m_self;
    return !s || PyModule_Check(s) || PyType_Check(s) || !strncmp(Py_TYPE(s)->tp_name, "pybind11_", 9);
  }
  return t == &PyFunction_Type && !mg_is_fresh(o);
}

static uint32_t snap_build_new(MgBuilder *b, PyObject *o) {
  uint32_t me;
  PyTypeObject *t = Py_TYPE(o);
  MgOlder *e = mg_older(o);
  PyObject *view, *args, *self, *name;
  const char *view_name;
  SrcRef unread = mg_unread_src(o);
  if (unread) me = mg_snap_emit(b, SN_src, NULL, unread, NULL, 0);
  else if (e && !(e->kind == OLDER_tensor && mg_standin_original(o) != e->orig)) me = mg_snap_older(b, e);
  else if (mg_standin_check(o)) me = snap_standin(b, o);
  else if (mg_wrapper_is(o)) me = snap_wrapping(b, o);
  else if (mg_snap_size_of(b, o, &me)) return me;
  else if (mg_symfloat_is(o)) me = snap_number(b, o);
  else if (mg_lazystr_is(o))
    mg_retry_fail(mg_rec, RETRY_texts),
        me = mg_snap_emit(b, SN_const, Py_None, 0, NULL, 0); /* recorded again */
  else if (mg_array_check(o)) me = snap_array(b, o);
  else if (mg_array_method_parts(o, &self, &name)) me = snap_array_method(b, self, name);
  else if (t == &PyTuple_Type && !snap_is_const(o))
    me = mg_snap_emit_over(b, SN_tuple, NULL, 0, &PyTuple_GET_ITEM(o, 0), PyTuple_GET_SIZE(o));
  else if (t == mg_torch.size && !mg_guard_is_const(o))
    me = snap_remake(b, o, Py_BuildValue("(N)", PySequence_Tuple(o)));
  else if (t == &PyList_Type) me = snap_list(b, o);
  else if (t == &PyDict_Type || t == &PyODict_Type) me = snap_dict(b, o);
  else if (t == &PySet_Type) me = snap_set(b, o, false);
  else if (t == &PyCell_Type) me = snap_cell(b, o);
  else if (snap_is_const(o)) me = mg_snap_emit(b, SN_const, o, 0, NULL, 0);
  else if (t == &PyFrozenSet_Type) me = snap_set(b, o, true);
  else if (PyTuple_Check(o)) me = snap_tuple_subclass(b, o);
  else if (t == &PySlice_Type) {
    PySliceObject *s = (PySliceObject *)o;
    PyObject *part[3] = {s->start, s->stop, s->step};
    me = mg_snap_emit_over(b, SN_slice, NULL, 0, part, 3);
  } else if (t == &PyFunction_Type) me = mg_snap_function(b, o);
  else if (t == &PyMethod_Type) {
    PyObject *part[2] = {PyMethod_GET_FUNCTION(o), PyMethod_GET_SELF(o)};
    me = mg_snap_emit_over(b, SN_method, NULL, 0, part, 2);
  } else if (t == &PyCFunction_Type) { /* __reduce__ would look the name up on self: the wrong method under
                                          super() */
    PyObject *self = PyCFunction_GET_SELF(o),
             *bare = PyCFunction_NewEx(((PyCFunctionObject *)o)->m_ml, NULL, NULL);
    me = bare ? mg_snap_emit_over(b, SN_builtin, bare, 0, &self, 1) : SNAP_FAIL;
    Py_XDECREF(bare);
  } else if (t == mg_method_wrapper_type()) me = snap_wrapper(b, o);
  else if (t == &PySuper_Type) me = snap_super(b, o);
  else if (t == &PyDictProxy_Type) me = snap_proxy(b, o);
  else if (t == &_PyWeakref_RefType || PyWeakref_CheckProxy(o)) me = snap_weakref(b, o);
  else if ((view = mg_view_of(o, &view_name))) me = snap_view(b, view, view_name);
  else if (PyGen_Check(o)) me = mg_snap_generator(b, o);
  else if (PyType_Check(o) && mg_is_fresh(o)) me = mg_snap_class(b, o);
  else if ((args = mg_snap_decorator_args(o)) || PyErr_Occurred()) me = snap_remake(b, o, args);
  else if (PyCoro_CheckExact(o) || PyAsyncGen_CheckExact(o)) me = mg_snap_refuse(o);
  else if (!b->loop && mg_dict_iterator(o)) me = mg_snap_dict_iterator(b, o);
  else me = snap_reduce(b, o);
  return me;
}

/* Notes that a run gets o, which may be a number that id() gave while recording: with the object of this
 * number it must not.  False with an exception. */
static bool snap_meet_id(PyObject *o) {
  PyObject *ids = mg_rec->ids, *id = NULL, *met;
  if (PyTuple_CheckExact(o)) /* one of constants is built as a whole */
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); i++)
      if (PyLong_CheckExact(PyTuple_GET_ITEM(o, i)) && !snap_meet_id(PyTuple_GET_ITEM(o, i))) return false;
  bool number = PyLong_CheckExact(o);
  if (!number && (mg_older(o) || snap_is_const(o))) return true;
  id = number ? Py_NewRef(o) : PyLong_FromVoidPtr(o);
  met = id ? PyDict_GetItemWithError(ids, id) : NULL;
  if (met && met != Py_None && (met == Py_True) != number) mg_retry_fail(mg_rec, RETRY_ids);
  if (met && PyDict_SetItem(ids, id, number ? Py_True : Py_False)) Py_CLEAR(id);
  Py_XDECREF(id);
  return !PyErr_Occurred();
}

uint32_t mg_snap_build(MgBuilder *b, PyObject *o) {
  uint32_t me = mg_map_getp(&b->memo, o);
  if (me != MG_MAP_NONE) return me;
  if (mg_rec->ids && !snap_meet_id(o)) return SNAP_FAIL;
  if (Py_EnterRecursiveCall(" while rebuilding objects")) { /* a very long chain of objects */
    PyErr_Clear();                                          /* refused below */
    return mg_snap_refuse(o);
  }
  me = snap_build_new(b, o);
  Py_LeaveRecursiveCall();
  /* Made already, by something in it that leads back to it. */
  uint32_t inner = me == SNAP_FAIL ? MG_MAP_NONE : mg_map_getp(&b->memo, o);
  if (inner != MG_MAP_NONE) return inner;
  return mg_snap_memo(b, o, me) ? me : SNAP_FAIL;
}

/* ---- the whole ---- */

MgSnapshot *mg_snapshot_build(PyObject **slots, int n, const bool *untouched, PyObject *ret) {
  MgSnapshot *s = mg_calloc(1, sizeof *s);
  MgBuilder b = {.s = s};
  bool ok = false, hashing = mg_numkey_begin();
  if (s) {
    s->keep = PyList_New(0);
    s->guards = mg_rec->guards;
  }
  b.keep = PyList_New(0);
  if (!s || !s->keep || !b.keep || !(s->slot = mg_malloc(sizeof *s->slot * (size_t)(n + 1)))) {
    if (!PyErr_Occurred()) PyErr_NoMemory();
    goto done;
  }
  mg_fx_end_grad(mg_rec->cap, slots, n);
  mg_wrapper_guard_distinct(mg_rec);
  if (snap_find_owners(&b) || !snap_claims(&b) || !mg_snap_hooks(&b) || !snap_checks(&b) || !snap_said(&b))
    goto done;
  s->nslots = n;
  for (int i = 0; i < n; i++) {
    if (untouched && untouched[i]) s->slot[i] = SNAP_UNTOUCHED;
    else if (!slots[i]) s->slot[i] = SNAP_UNBOUND;
    else if (mg_snap_note_loop(&b, slots, i), (s->slot[i] = mg_snap_build(&b, slots[i])) == SNAP_FAIL)
      goto done;
  }
  if (ret && (s->ret = mg_snap_build(&b, ret)) == SNAP_FAIL) goto done;
  if (!mg_snap_writes(&b)) goto done;
  mg_snap_numbers();
  for (uint32_t i = 0; i < b.nlate; i++) {
    const MgSnapLate *late = &b.late[i];
    if (snap_append(&b, (MgSnapInstr){late->op, late->me, 1, 0, NULL}, &late->state, true) == SNAP_FAIL)
      goto done;
  }
  if (mg_fmodes_check(mg_rec) || !mg_snap_generators(&b) || mg_alias_guards(mg_rec) ||
      mg_effect_state_change(&s->state))
    goto done;
  s->only_out = n == 0 && ret && !s->nw && !s->state.any && s->n == 2 && s->p[s->ret].op == SN_out;
  ok = true;
done:
  mg_numkey_end(hashing);
  mg_map_free(&b.owner);
  mg_map_free(&b.memo);
  mg_map_free(&b.out);
  free(b.late);
  Py_XDECREF(b.keep);
  if (ok) return s;
  mg_snapshot_free(s);
  if (!PyErr_Occurred()) mg_rec_break(BK_snapshot, "the state of the frame cannot be rebuilt");
  return NULL;
}
