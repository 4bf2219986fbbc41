/* See the header. */
#include "front/wrapper.h"
#include "front/fmodes.h"
#include "front/fx.h"
#include "front/guard.h"
#include "front/hook.h"
#include "front/names.h"
#include "front/record_obj.h"
#include "front/skip.h"
#include "front/snapshot.h"
#include "front/source.h"
#include <structmember.h>
#include <string.h>

static PyObject *wrapper_flatten, *wrapper_unflatten, *wrapper_compare;

int mg_wrapper_init(void) {
  wrapper_flatten = PyUnicode_InternFromString("__tensor_flatten__");
  wrapper_unflatten = PyUnicode_InternFromString("__tensor_unflatten__");
  wrapper_compare = PyUnicode_InternFromString("__metadata_guard__");
  return wrapper_flatten && wrapper_unflatten && wrapper_compare ? 0 : -1;
}

bool mg_wrapper_class(PyTypeObject *t) {
  if (t == mg_tensor_type || t == mg_parameter_type || t == mg_standin_type || t->tp_base == mg_standin_type) return false;
  return PyType_IsSubtype(t, mg_tensor_type) && _PyType_Lookup(t, wrapper_flatten) && _PyType_Lookup(t, wrapper_unflatten) &&
         _PyType_Lookup(t, mg_names.torch_dispatch) != _PyType_Lookup(mg_tensor_type, mg_names.torch_dispatch);
}

static PyObject *wrapper_dict(PyObject *o) {
  PyObject **d = _PyObject_GetDictPtr(o);
  return d ? *d : NULL;
}

static bool wrapper_is_made(PyObject *o, PyObject *v) {
  return mg_standin_is(v) || (v != o && PyObject_TypeCheck(v, mg_tensor_type) && mg_wrapper_class(Py_TYPE(v)) && mg_wrapper_made(v));
}

bool mg_wrapper_made(PyObject *o) {
  PyObject *d = wrapper_dict(o), *mro = Py_TYPE(o)->tp_mro, *k, *v;
  Py_ssize_t pos = 0;
  while (d && PyDict_Next(d, &pos, &k, &v))
    if (wrapper_is_made(o, v)) return true;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(mro); i++) { /* __slots__ */
    PyTypeObject *t = (PyTypeObject *)PyTuple_GET_ITEM(mro, i);
    for (const PyMemberDef *m = t->tp_members; m && m->name; m++)
      if (m->type == T_OBJECT_EX && (v = *(PyObject **)((char *)o + m->offset)) && wrapper_is_made(o, v)) return true;
  }
  return false;
}

/* ---- glue: the class's own Python, unrecorded, without torch_function ---- */

typedef struct Glue { MgPause pause; PyObject *off; } Glue;

static bool wrapper_enter(Glue *g) {
  if (mg_rec && mg_rec->cap) mg_rec->cap->glue++;
  g->off = mg_fmodes_off();
  g->pause = mg_rec_pause();
  return g->off != NULL;
}
static PyObject *wrapper_leave(Glue *g, PyObject *r) {
  mg_rec_resume(g->pause);
  if (mg_rec && mg_rec->cap) mg_rec->cap->glue--;
  if (g->off && mg_context_exit(g->off)) Py_CLEAR(r);
  return r;
}

/* (names as a tuple, metadata); new. */
static PyObject *wrapper_flat(PyObject *o) {
  PyObject *r = PyObject_CallMethodNoArgs(o, wrapper_flatten), *names = NULL, *flat = NULL;
  if (r && PyTuple_Check(r) && PyTuple_GET_SIZE(r) == 2) names = PySequence_Tuple(PyTuple_GET_ITEM(r, 0));
  else if (r) PyErr_SetString(PyExc_TypeError, "__tensor_flatten__ gives names and metadata");
  if (names) flat = PyTuple_Pack(2, names, PyTuple_GET_ITEM(r, 1));
  Py_XDECREF(names);
  Py_XDECREF(r);
  return flat;
}

/* o.size() or o.stride() with None for what is no plain number: new. */
static PyObject *wrapper_sizes(PyObject *o, const char *method) {
  PyObject *s = PyObject_CallMethod(o, method, NULL), *t = s ? PySequence_List(s) : NULL, *r;
  for (Py_ssize_t i = 0; t && i < PyList_GET_SIZE(t); i++)
    if (!PyLong_CheckExact(PyList_GET_ITEM(t, i))) PyList_SetItem(t, i, Py_NewRef(Py_None));
  r = t ? PyList_AsTuple(t) : NULL;
  Py_XDECREF(t);
  Py_XDECREF(s);
  return r;
}

/* ---- jagged sizes ---- */

/* Jagged sizes occur; those are multiplied with symbolic ones from here on (magneto.jagged sees to it). */
static bool wrapper_begin_jagged(MgCapture *cap) {
  PyObject *m = mg_import("magneto.jagged");
  cap->jagged = true;
  Py_XDECREF(m);
  return m != NULL;
}

static bool wrapper_is_symbol(PyObject *o) {
  static PyTypeObject *type; /* torch.SymInt */
  if (!type) {
    PyObject *torch = mg_import("torch");
    type = torch ? (PyTypeObject *)PyObject_GetAttrString(torch, "SymInt") : NULL;
    Py_XDECREF(torch);
    PyErr_Clear();
  }
  return Py_TYPE(o) == type;
}

PyObject *mg_wrapper_with_size(MgCapture *cap, PyObject *number, Py_ssize_t *dim) {
  PyObject *all = cap ? cap->wrappers : NULL, *found = NULL;
  if (!all || !wrapper_is_symbol(number)) return NULL;
  Glue glue;
  bool ok = wrapper_enter(&glue);
  for (Py_ssize_t i = 0; ok && !found && i < PyList_GET_SIZE(all); i++) {
    PyObject *size = PyObject_CallMethod(PyList_GET_ITEM(all, i), "size", NULL);
    for (Py_ssize_t d = 0; size && !found && d < PyTuple_GET_SIZE(size); d++) {
      PyObject *s = PyTuple_GET_ITEM(size, d);
      if (!wrapper_is_symbol(s) || PyObject_RichCompareBool(s, number, Py_EQ) <= 0) continue;
      found = PyList_GET_ITEM(all, i);
      *dim = d;
    }
    Py_XDECREF(size);
  }
  PyErr_Clear();
  wrapper_leave(&glue, NULL);
  return found;
}

static bool wrapper_sized(PyObject *o, const char *method, PyObject *want) {
  if (want == Py_None) return true;
  PyObject *now = wrapper_sizes(o, method);
  int same = now ? PyObject_RichCompareBool(now, want, Py_EQ) : 0;
  Py_XDECREF(now);
  return same > 0;
}

bool mg_wrapper_holds(PyObject *o, PyObject *want) {
  PyObject *flat = wrapper_flat(o), *was = PyTuple_GET_ITEM(want, 1), *ask = PyTuple_GET_ITEM(want, 2), *r = NULL;
  int same = flat ? PyObject_RichCompareBool(PyTuple_GET_ITEM(flat, 0), PyTuple_GET_ITEM(want, 0), Py_EQ) : 0;
  if (same > 0 && ask == Py_None) same = PyObject_RichCompareBool(PyTuple_GET_ITEM(flat, 1), was, Py_EQ);
  else if (same > 0) same = (r = PyObject_CallFunctionObjArgs(ask, was, PyTuple_GET_ITEM(flat, 1), NULL)) ? PyObject_IsTrue(r) : 0;
  Py_XDECREF(r);
  Py_XDECREF(flat);
  if (same > 0) same = wrapper_sized(o, "size", PyTuple_GET_ITEM(want, 3)) && wrapper_sized(o, "stride", PyTuple_GET_ITEM(want, 4));
  PyErr_Clear();
  return same > 0;
}

/* ---- values of the torch-level graph ---- */

static ValRef wrapper_remember(MgCapture *cap, PyObject *o, ValRef val) {
  if (!val || mg_map_putp(&cap->wrapper_val, o, val)) return PyErr_NoMemory(), 0;
  return PyList_Append(cap->wrappers, o) ? 0 : val; /* kept: its address is its name */
}

ValRef mg_wrapper_val(MgCapture *cap, PyObject *o) {
  uint32_t known = mg_map_getp(&cap->wrapper_val, o);
  return known != MG_MAP_NONE ? known : wrapper_remember(cap, o, mg_graph_val(cap->rec->g, DT_f32, 0));
}

int mg_wrapper_begin(MgRec *r, PyTypeObject *t) {
  if (!r->want_fx) {
    r->need_fx = r->again = true;
    return mg_rec_break(BK_tensor_kind, "a %s", t->tp_name), -1;
  }
  return r->cap->wrappers || (r->cap->wrappers = PyList_New(0)) ? 0 : -1;
}

static void wrapper_note_function(MgCapture *cap, PyTypeObject *t) {
  cap->own_function |= _PyType_Lookup(t, mg_names.torch_function) != mg_torch.no_function;
}

/* ---- older ones ---- */

static PyObject *wrapper_ask(PyObject *v, PyObject *name) {
  Glue glue;
  return wrapper_leave(&glue, wrapper_enter(&glue) ? PyObject_GetAttr(v, name) : NULL);
}

/* What the recording sees of the inner tensors, by name: new. */
static PyObject *wrapper_inner(PyObject *v, SrcRef src, PyObject *names) {
  MgGuards *g = mg_rec->guards;
  PyObject *d = wrapper_dict(v), *inner = PyDict_New();
  SrcRef ds = mg_source(g, SRC_instdict, src, 0, NULL);
  bool outer = mg_rec->cap->unwrapping;
  mg_rec->cap->unwrapping = true;
  for (Py_ssize_t i = 0; inner && i < PyTuple_GET_SIZE(names); i++) {
    PyObject *name = PyTuple_GET_ITEM(names, i), *x = d ? Py_XNewRef(PyDict_GetItemWithError(d, name)) : NULL, *w = NULL;
    if (x) w = mg_wrap(x, mg_source(g, SRC_key, ds, 0, name));
    else if (!PyErr_Occurred() && (x = wrapper_ask(v, name))) { /* a property */
      if (Py_REFCNT(x) > 1) w = mg_wrap(x, mg_source(g, SRC_attr, src, 0, name));
      else mg_rec_break(BK_tensor_kind, "a %s that makes its inner tensors when it is asked", Py_TYPE(v)->tp_name);
    }
    if (!w || PyDict_SetItem(inner, name, w)) Py_CLEAR(inner);
    Py_XDECREF(w);
    Py_XDECREF(x);
  }
  mg_rec->cap->unwrapping = outer;
  return inner;
}

/* The instance that the recording sees: new. */
static PyObject *wrapper_rebuild(PyObject *v, PyObject *inner, PyObject *context) {
  Glue glue;
  bool ok = wrapper_enter(&glue);
  PyObject *size = ok ? PyObject_CallMethod(v, "size", NULL) : NULL, *stride = size ? PyObject_CallMethod(v, "stride", NULL) : NULL;
  PyObject *make = stride ? PyObject_GetAttr((PyObject *)Py_TYPE(v), wrapper_unflatten) : NULL, *w = NULL;
  PyObject *want = make ? PyObject_GetAttrString(v, "requires_grad") : NULL, *have = NULL;
  if (want) w = PyObject_CallFunctionObjArgs(make, inner, context, size, stride, NULL);
  if (w) have = PyObject_GetAttrString(w, "requires_grad");
  if (w && (!have || (have != want && PyObject_SetAttrString(w, "requires_grad", want)))) Py_CLEAR(w);
  Py_XDECREF(have);
  Py_XDECREF(want);
  Py_XDECREF(make);
  Py_XDECREF(stride);
  Py_XDECREF(size);
  return wrapper_leave(&glue, w);
}

/* Marks that torch hangs on tensors (_is_param).  What C++ keeps there of sizes is bound to the tensor. */
static int wrapper_copy_marks(PyObject *v, PyObject *w, SrcRef src) {
  PyObject *from = wrapper_dict(v), *to = wrapper_dict(w), *k, *x;
  SrcRef ds = mg_source(mg_rec->guards, SRC_instdict, src, 0, NULL);
  Py_ssize_t pos = 0;
  while (from && to && PyDict_Next(from, &pos, &k, &x)) {
    if (!PyUnicode_Check(k) || PyDict_Contains(to, k) || !PyBool_Check(x)) continue;
    mg_guard_add(mg_rec->guards, GK_equal, mg_source(mg_rec->guards, SRC_key, ds, 0, k), x, 0);
    if (PyDict_SetItem(to, k, x)) return -1;
  }
  return 0;
}

static int wrapper_guard(PyObject *v, SrcRef src, PyObject *flat) {
  PyObject *compare = _PyType_Lookup(Py_TYPE(v), wrapper_compare), *f = NULL, *want = NULL;
  if (compare && !(f = PyObject_GetAttr((PyObject *)Py_TYPE(v), wrapper_compare))) return -1;
  Glue glue;
  PyObject *size = wrapper_enter(&glue) ? wrapper_sizes(v, "size") : NULL, *stride = size ? wrapper_sizes(v, "stride") : NULL;
  stride = wrapper_leave(&glue, stride);
  int jagged = stride ? PySequence_Contains(size, Py_None) : -1;
  if (jagged > 0) { /* its class computes them from the inner tensors */
    Py_SETREF(size, Py_NewRef(Py_None));
    Py_SETREF(stride, Py_NewRef(Py_None));
    if (!wrapper_begin_jagged(mg_rec->cap)) jagged = -1;
  } else mg_rec->cap->told_sizes = true;
  if (jagged >= 0) want = PyTuple_Pack(5, PyTuple_GET_ITEM(flat, 0), PyTuple_GET_ITEM(flat, 1), f ? f : Py_None, size, stride);
  if (want) mg_guard_add(mg_rec->guards, GK_flat, src, want, 0);
  Py_XDECREF(size);
  Py_XDECREF(stride);
  Py_XDECREF(want);
  Py_XDECREF(f);
  return want ? 0 : -1;
}

PyObject *mg_wrapper_wrap(PyObject *v, SrcRef src) {
  MgRec *r = mg_rec;
  MgCapture *cap = r->cap;
  Glue glue;
  if (mg_wrapper_begin(r, Py_TYPE(v))) return NULL;
  if (!src) src = mg_source(r->guards, SRC_pinned, 0, 0, v);
  mg_guard_tensor(r->guards, src, v);
  mg_guard_type(r->guards, Py_TYPE(v));
  PyObject *flat = wrapper_leave(&glue, wrapper_enter(&glue) ? wrapper_flat(v) : NULL), *inner = NULL, *w = NULL;
  if (flat && !wrapper_guard(v, src, flat)) inner = wrapper_inner(v, src, PyTuple_GET_ITEM(flat, 0));
  if (inner) w = wrapper_rebuild(v, inner, PyTuple_GET_ITEM(flat, 1));
  if (w && Py_TYPE(w) != Py_TYPE(v)) {
    mg_rec_break(BK_tensor_kind, "a %s that is made anew as a %s", Py_TYPE(v)->tp_name, Py_TYPE(w)->tp_name);
    Py_CLEAR(w);
  }
  if (w && wrapper_copy_marks(v, w, src)) Py_CLEAR(w);
  if (w) wrapper_note_function(cap, Py_TYPE(v));
  if (w && (mg_older_add(v, w, src, OLDER_object) || !wrapper_remember(cap, w, mg_standin_outer_input(cap, v, src)))) Py_CLEAR(w);
  Py_XDECREF(inner);
  Py_XDECREF(flat);
  return w;
}

PyObject *mg_wrapper_outside(PyObject *f) {
  PyObject *m = mg_import("torch.utils._python_dispatch"), *make = m ? PyObject_GetAttrString(m, "_disable_current_modes") : NULL;
  MgCapture *cap = mg_rec->cap;
  Glue glue;
  bool ok = wrapper_enter(&glue) && make;
  PyObject *off = ok ? mg_context_enter(PyObject_CallNoArgs(make)) : NULL, *r = off ? PyObject_CallNoArgs(f) : NULL;
  if (off && mg_context_exit(off)) Py_CLEAR(r);
  if (!wrapper_begin_jagged(cap)) Py_CLEAR(r);
  r = wrapper_leave(&glue, r);
  Py_XDECREF(make);
  Py_XDECREF(m);
  if (r && mg_wrapper_begin(mg_rec, Py_TYPE(r))) Py_CLEAR(r);
  if (r && !mg_older(r) && mg_older_add(r, r, mg_source(mg_rec->guards, SRC_pinned, 0, 0, r), OLDER_itself)) Py_CLEAR(r);
  return r;
}

/* What a jagged size belongs to: a vector of integers. */
static bool wrapper_may_be_offsets(const MgRec *r, const MgOlder *e) {
  if (e->kind != OLDER_tensor || !mg_standin_val(e->seen)) return false;
  const MgVal *v = mg_val(r->g, mg_standin_val(e->seen));
  return v->ndim == 1 && (v->dtype == DT_i64 || v->dtype == DT_i32);
}

void mg_wrapper_guard_distinct(MgRec *r) {
  MgIdent *d = r->ident;
  if (!r->cap->jagged || !r->guards) return;
  for (uint32_t i = 0; i < d->n; i++)
    for (uint32_t j = 0; wrapper_may_be_offsets(r, &d->v[i]) && j < i; j++) {
      if (!wrapper_may_be_offsets(r, &d->v[j])) continue;
      if (mg_older_by_path(&d->v[i]) && mg_older_by_path(&d->v[j])) mg_guard_pair(r->guards, GK_distinct, d->v[i].src, d->v[j].src, 0);
      else if (mg_older_by_path(&d->v[i])) mg_guard_add(r->guards, GK_not, d->v[i].src, d->v[j].orig, 0);
      else if (mg_older_by_path(&d->v[j])) mg_guard_add(r->guards, GK_not, d->v[j].src, d->v[i].orig, 0);
    }
}

/* ---- ops ---- */

/* Is t torch's DTensor, whose ops C++ does itself once all modes have declined?  Its Python calls the op again. */
static bool wrapper_in_c(PyTypeObject *t) {
  static PyTypeObject *type; /* strong */
  if (type) return t == type;
  PyObject *name = PyUnicode_FromString("torch.distributed.tensor"), *m = name ? PyImport_GetModule(name) : NULL;
  if (m) type = (PyTypeObject *)PyObject_GetAttrString(m, "DTensor");
  Py_XDECREF(m);
  Py_XDECREF(name);
  PyErr_Clear();
  return type && t == type;
}

bool mg_wrapper_declined(MgCapture *cap) {
  bool now = cap->decline;
  cap->decline = false;
  return now;
}

/* Is f Python of the program, which may do anything?  That of torch's own classes changes nothing but its results. */
static bool wrapper_by_program(PyObject *f) {
  if (PyMethod_Check(f)) f = PyMethod_GET_FUNCTION(f);
  return PyFunction_Check(f) && !mg_skip_is_torch((PyCodeObject *)PyFunction_GET_CODE(f));
}

static Py_ssize_t wrapper_said(const MgCapture *cap) { return cap->said ? PyList_GET_SIZE(cap->said) : 0; }

/* A class's __torch_dispatch__ with the mode on.  Each run calls that of the outer tensors again: one that does more than to give a
 * result would do it once too often here, so what the program wrote is recorded, to see what it changes.  The engine calls it
 * when the program has ended and nothing is recorded any more. */
static PyObject *wrapper_call(MgCapture *cap, PyTypeObject *t, PyObject *f, PyObject *args) {
  MgRec *r = cap->rec;
  if (r->in_joint || !r->guards || !wrapper_by_program(f)) return mg_dispatch_with_mode(cap, f, args, NULL);
  MgSnapshot *before = mg_snapshot_build(NULL, 0, NULL, Py_None), *after = NULL;
  Py_ssize_t said = wrapper_said(cap);
  uint32_t drawn = r->guards->ndraw;
  if (!before) return NULL;
  for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(args); i++) mg_fresh(PyTuple_GET_ITEM(args, i)); /* packed for this call */
  mg_hook_mode = HOOK_record;
  PyObject *res = mg_dispatch_with_mode(cap, f, args, NULL);
  mg_hook_mode = HOOK_off;
  if (res && !(after = mg_snapshot_build(NULL, 0, NULL, Py_None))) Py_CLEAR(res);
  if (res && (!mg_snapshot_same(before, after) || wrapper_said(cap) != said || r->guards->ndraw != drawn)) {
    Py_CLEAR(res);
    mg_rec_break(BK_tensor_kind, "the __torch_dispatch__ of a %s has side effects", t->tp_name);
  }
  mg_snapshot_free(before);
  mg_snapshot_free(after);
  return res;
}

bool mg_wrapper_dispatch(MgCapture *cap, PyObject *const *a, PyObject *kwargs, PyObject **res) {
  PyObject *types, *all = NULL, *kw = NULL;
  bool any = false;
  *res = NULL;
  for (Py_ssize_t i = 0; PyTuple_Check(a[1]) && i < PyTuple_GET_SIZE(a[1]); i++) {
    PyTypeObject *t = (PyTypeObject *)PyTuple_GET_ITEM(a[1], i);
    any |= t != mg_standin_type && t->tp_base != mg_standin_type;
  }
  if (!any) return false;
  types = PyList_New(0);
  for (Py_ssize_t i = 0; types && i < PyTuple_GET_SIZE(a[1]); i++) {
    PyTypeObject *t = (PyTypeObject *)PyTuple_GET_ITEM(a[1], i);
    if (t == mg_standin_type || t->tp_base == mg_standin_type) continue;
    if (!mg_wrapper_class(t)) {
      mg_rec_break(BK_tensor_kind, "a %s", t->tp_name);
      Py_CLEAR(types);
    } else if (PyList_Append(types, (PyObject *)t)) Py_CLEAR(types);
  }
  Py_ssize_t n = types ? PyList_GET_SIZE(types) : 0;
  if (types) all = PyList_AsTuple(types);
  if (all) kw = kwargs ? Py_NewRef(kwargs) : PyDict_New();
  for (Py_ssize_t i = 0; kw && !*res && !PyErr_Occurred() && i < n; i++) {
    bool in_c = wrapper_in_c((PyTypeObject *)PyTuple_GET_ITEM(all, i));
    PyObject *f = in_c ? Py_NewRef(a[0]) : PyObject_GetAttr(PyTuple_GET_ITEM(all, i), mg_names.torch_dispatch);
    PyObject *args = !f ? NULL : in_c ? Py_NewRef(a[2]) : PyTuple_Pack(4, a[0], all, a[2], kw);
    cap->glue++;
    cap->decline = in_c;
    if (args && in_c) *res = mg_dispatch_with_mode(cap, f, args, kw);
    else if (args) *res = wrapper_call(cap, (PyTypeObject *)PyTuple_GET_ITEM(all, i), f, args);
    cap->decline = false;
    cap->glue--;
    if (*res == Py_NotImplemented) Py_CLEAR(*res);
    Py_XDECREF(args);
    Py_XDECREF(f);
  }
  if (kw && !*res && !PyErr_Occurred()) PyErr_Format(PyExc_TypeError, "no implementation found for %R on types that are subclasses of torch.Tensor", a[0]);
  Py_XDECREF(kw);
  Py_XDECREF(all);
  Py_XDECREF(types);
  return true;
}

PyObject *mg_wrapper_new(PyTypeObject *t, PyObject *args, PyObject *kwargs) {
  MgRec *rec = mg_rec;
  MgCapture *cap = rec->cap;
  MgFxCall c;
  Glue glue;
  if (mg_wrapper_begin(rec, t)) return NULL;
  bool shown = !cap->inside; /* a __torch_dispatch__ makes its own */
  MgPause pause = mg_rec_pause();
  int rc = shown ? mg_fx_before(cap, args, kwargs, &c) : 0;
  mg_rec_resume(pause);
  if (rc) return NULL;
  PyObject *r = wrapper_leave(&glue, wrapper_enter(&glue) ? PyObject_Call((PyObject *)t, args, kwargs) : NULL);
  if (r && (Py_TYPE(r) != t || !mg_wrapper_made(r))) {
    Py_CLEAR(r);
    mg_rec_break(BK_tensor_kind, "a %s", t->tp_name);
  }
  pause = mg_rec_pause();
  if (r && shown && mg_fx_after(cap, (PyObject *)t, args, kwargs, &c, r)) Py_CLEAR(r);
  mg_rec_resume(pause);
  if (shown) mg_fx_drop(&c);
  if (r) wrapper_note_function(cap, t);
  return r;
}

/* ---- attributes ---- */

/* What o holds as name: an inner tensor is an attribute of o in the torch-level graph.  Steals v. */
static PyObject *wrapper_held(PyObject *o, PyObject *name, PyObject *v) {
  if (!v || !(mg_standin_is(v) || mg_wrapper_is(v)) || mg_rec->cap->inside) return v;
  MgPause pause = mg_rec_pause();
  mg_rec = pause.rec;
  PyObject *pair = PyTuple_Pack(2, o, name);
  if (!pair || mg_fx_attr(pause.rec->cap, pair, v)) Py_CLEAR(v);
  Py_XDECREF(pair);
  mg_rec_resume(pause);
  return v;
}

/* An attribute of the instance itself: new; NULL without exception: it has none of that name. */
static PyObject *wrapper_own(PyObject *o, PyObject *name) {
  MgOlder *e = mg_older(o);
  PyObject *d = wrapper_dict(o), *v = d ? PyDict_GetItemWithError(d, name) : NULL;
  if (!v) return e && !PyErr_Occurred() ? mg_older_attr(o, name) : NULL;
  return wrapper_held(o, name, Py_NewRef(v));
}

PyObject *mg_wrapper_getattr(PyObject *o, PyObject *name) {
  PyTypeObject *t = Py_TYPE(o);
  PyObject *d = mg_rec_lookup_special(t, name), *v;
  bool own = d && d != _PyType_Lookup(mg_tensor_type, name);
  descrgetfunc get = d ? Py_TYPE(d)->tp_descr_get : NULL;
  if (!own && d && (name == mg_names.grad || PyUnicode_CompareWithASCIIString(name, "_grad") == 0) && mg_older(o))
    return mg_rec_break(BK_tensor_kind, "grad of a %s", t->tp_name);
  if (name == mg_names.class_) return Py_NewRef((PyObject *)t);
  if (name == mg_names.dict) return mg_rec_break(BK_tensor_kind, "the dict of a %s", t->tp_name);
  if (own && get && Py_IS_TYPE(d, &PyMemberDescr_Type)) return wrapper_held(o, name, get(d, o, (PyObject *)t)); /* a slot */
  if (own && get && Py_TYPE(d)->tp_descr_set) return get(d, o, (PyObject *)t);
  if (!d || !Py_TYPE(d)->tp_descr_set) {
    v = wrapper_own(o, name);
    if (v || PyErr_Occurred()) return v;
  }
  if (!own) return PyObject_GetAttr(o, name);
  if (!get) return mg_wrap(d, 0);
  return get(d, o, (PyObject *)t);
}

int mg_wrapper_setattr(PyObject *o, PyObject *name) {
  PyObject *d = wrapper_dict(o);
  if (mg_older(o) && !(d && PyDict_Contains(d, name)) && !_PyType_Lookup(Py_TYPE(o), name)) return 0;
  mg_rec_break(BK_tensor_kind, "a write to an attribute of a %s", Py_TYPE(o)->tp_name);
  return -1;
}
