/* See the header. */
#include "record/tensor/wrapper_subclass.h"
#include <Python.h>
#include <structmember.h>
#include <string.h>
#include "entry/guard/guard_add.h"
#include "entry/guard/source.h"
#include "entry/run/snapshot_program.h"
#include "entry/run/snapshot_run.h"
#include "host/python/glue.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "host/python/trace_rules.h"
#include "host/torch/flatten.h"
#include "record/core/identity.h"
#include "record/core/ops.h"
#include "record/core/recording.h"
#include "record/fx/fx.h"
#include "record/tensor/mode_stack.h"
#include "record/tensor/standin.h"

#define PY_SSIZE_T_CLEAN

int mg_wrapper_init(void) {
  mg_wrapper_flatten = PyUnicode_InternFromString("__tensor_flatten__");
  wrapper_unflatten = PyUnicode_InternFromString("__tensor_unflatten__");
  wrapper_compare = PyUnicode_InternFromString("__metadata_guard__");
  return mg_wrapper_flatten && wrapper_unflatten && wrapper_compare ? 0 : -1;
}

/* ---- jagged sizes ---- */

/* Jagged sizes occur; those are multiplied with symbolic ones from here on (magneto._glue.jagged sees to it).
 */
static bool wrapper_begin_jagged(MgCapture *cap) {
  PyObject *m = mg_glue(GLUE_jagged);
  cap->jagged = true;
  Py_XDECREF(m);
  return m != NULL;
}

int mg_wrapper_begin(MgRec *r, PyTypeObject *t) {
  if (!r->want_fx) {
    r->need_fx = r->again = true;
    return mg_rec_break(BK_tensor_class, "a %s", t->tp_name), -1;
  }
  return r->cap->wrappers || (r->cap->wrappers = PyList_New(0)) ? 0 : -1;
}

static void wrapper_note_function(MgCapture *cap, PyTypeObject *t) {
  cap->own_function |= _PyType_Lookup(t, mg_names.torch_function) != mg_torch.no_function;
}

/* ---- older ones ---- */

static PyObject *wrapper_ask(PyObject *v, PyObject *name) {
  Glue glue;
  return mg_wrapper_leave(&glue, mg_wrapper_enter(&glue) ? PyObject_GetAttr(v, name) : NULL);
}

/* What the recording sees of the inner tensors, by name: new. */
static PyObject *wrapper_inner(PyObject *v, SrcRef src, PyObject *names) {
  MgGuards *g = mg_rec->guards;
  PyObject *d = mg_wrapper_dict(v), *inner = PyDict_New();
  SrcRef ds = mg_source(g, SRC_instdict, src, 0, NULL);
  bool outer = mg_rec->cap->unwrapping;
  mg_rec->cap->unwrapping = true;
  for (Py_ssize_t i = 0; inner && i < PyTuple_GET_SIZE(names); i++) {
    PyObject *name = PyTuple_GET_ITEM(names, i), *x = d ? Py_XNewRef(PyDict_GetItemWithError(d, name)) : NULL,
             *w = NULL;
    if (x) w = mg_ops.wrap(x, mg_source(g, SRC_key, ds, 0, name));
    else if (!PyErr_Occurred() && (x = wrapper_ask(v, name))) { /* a property */
      if (Py_REFCNT(x) > 1) w = mg_ops.wrap(x, mg_source(g, SRC_attr, src, 0, name));
      else
        mg_rec_break(BK_tensor_class, "a %s that makes its inner tensors when it is asked",
                     Py_TYPE(v)->tp_name);
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
  bool ok = mg_wrapper_enter(&glue);
  PyObject *size = ok ? PyObject_CallMethod(v, "size", NULL) : NULL,
           *stride = size ? PyObject_CallMethod(v, "stride", NULL) : NULL;
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
  return mg_wrapper_leave(&glue, w);
}

/* Marks that torch hangs on tensors (_is_param).  What C++ keeps there of sizes is bound to the tensor. */
static int wrapper_copy_marks(PyObject *v, PyObject *w, SrcRef src) {
  PyObject *from = mg_wrapper_dict(v), *to = mg_wrapper_dict(w), *k, *x;
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
  PyObject *size = mg_wrapper_enter(&glue) ? mg_wrapper_sizes(v, "size") : NULL,
           *stride = size ? mg_wrapper_sizes(v, "stride") : NULL;
  stride = mg_wrapper_leave(&glue, stride);
  int jagged = stride ? PySequence_Contains(size, Py_None) : -1;
  if (jagged > 0) { /* its class computes them from the inner tensors */
    Py_SETREF(size, Py_NewRef(Py_None));
    Py_SETREF(stride, Py_NewRef(Py_None));
    if (!wrapper_begin_jagged(mg_rec->cap)) jagged = -1;
  } else mg_rec->cap->told_sizes = true;
  if (jagged >= 0)
    want =
        PyTuple_Pack(5, PyTuple_GET_ITEM(flat, 0), PyTuple_GET_ITEM(flat, 1), f ? f : Py_None, size, stride);
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
  PyObject *flat = mg_wrapper_leave(&glue, mg_wrapper_enter(&glue) ? mg_wrapper_flat(v) : NULL),
           *inner = NULL, *w = NULL;
  if (flat && !wrapper_guard(v, src, flat)) inner = wrapper_inner(v, src, PyTuple_GET_ITEM(flat, 0));
  if (inner) w = wrapper_rebuild(v, inner, PyTuple_GET_ITEM(flat, 1));
  if (w && Py_TYPE(w) != Py_TYPE(v)) {
    mg_rec_break(BK_tensor_class, "a %s that is made anew as a %s", Py_TYPE(v)->tp_name, Py_TYPE(w)->tp_name);
    Py_CLEAR(w);
  }
  if (w && wrapper_copy_marks(v, w, src)) Py_CLEAR(w);
  if (w) wrapper_note_function(cap, Py_TYPE(v));
  if (w && (mg_older_add(v, w, src, OLDER_object) ||
            !mg_wrapper_remember(cap, w, mg_standin_outer_input(cap, v, src))))
    Py_CLEAR(w);
  Py_XDECREF(inner);
  Py_XDECREF(flat);
  return w;
}

PyObject *mg_wrapper_outside(PyObject *f) {
  PyObject *m = mg_import("torch.utils._python_dispatch"),
           *make = m ? PyObject_GetAttrString(m, "_disable_current_modes") : NULL;
  MgCapture *cap = mg_rec->cap;
  Glue glue;
  bool ok = mg_wrapper_enter(&glue) && make;
  PyObject *off = ok ? mg_context_enter(PyObject_CallNoArgs(make)) : NULL,
           *r = off ? PyObject_CallNoArgs(f) : NULL;
  if (off && mg_context_exit(off)) Py_CLEAR(r);
  if (!wrapper_begin_jagged(cap)) Py_CLEAR(r);
  r = mg_wrapper_leave(&glue, r);
  Py_XDECREF(make);
  Py_XDECREF(m);
  if (r && mg_wrapper_begin(mg_rec, Py_TYPE(r))) Py_CLEAR(r);
  if (r && !mg_older(r) && mg_older_add(r, r, mg_source(mg_rec->guards, SRC_pinned, 0, 0, r), OLDER_itself))
    Py_CLEAR(r);
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
      if (mg_older_by_path(&d->v[i]) && mg_older_by_path(&d->v[j]))
        mg_guard_pair(r->guards, GK_distinct, d->v[i].src, d->v[j].src, 0);
      else if (mg_older_by_path(&d->v[i])) mg_guard_add(r->guards, GK_not, d->v[i].src, d->v[j].orig, 0);
      else if (mg_older_by_path(&d->v[j])) mg_guard_add(r->guards, GK_not, d->v[j].src, d->v[i].orig, 0);
    }
}

/* ---- ops ---- */

/* Is t torch's DTensor, whose ops C++ does itself once all modes have declined?  Its
 * Python calls the op again. */
static bool wrapper_in_c(PyTypeObject *t) {
  static PyTypeObject *type; /* strong */
  if (type) return t == type;
  PyObject *name = PyUnicode_FromString("torch.distributed.tensor"),
           *m = name ? PyImport_GetModule(name) : NULL;
  if (m) type = (PyTypeObject *)PyObject_GetAttrString(m, "DTensor");
  Py_XDECREF(m);
  Py_XDECREF(name);
  mg_clear_as_no();
  return type && t == type;
}

bool mg_wrapper_declined(MgCapture *cap) {
  bool now = cap->decline;
  cap->decline = false;
  return now;
}

/* Is f Python of the program, which may do anything?  That of torch's own classes
 * changes nothing but its results. */
static bool wrapper_by_program(PyObject *f) {
  if (PyMethod_Check(f)) f = PyMethod_GET_FUNCTION(f);
  return PyFunction_Check(f) && !mg_skip_is_torch((PyCodeObject *)PyFunction_GET_CODE(f));
}

static Py_ssize_t wrapper_said(const MgCapture *cap) { return cap->said ? PyList_GET_SIZE(cap->said) : 0; }

/* A class's __torch_dispatch__ with the mode on.  Each run calls that of the outer tensors again: one that
 * does more than to give a result would do it once too often here, so what the program wrote is recorded, to
 * see what it changes.  The engine calls it when the program has ended and nothing is recorded any more. */
static PyObject *wrapper_call(MgCapture *cap, PyTypeObject *t, PyObject *f, PyObject *args) {
  MgRec *r = cap->rec;
  if (r->in_joint || !r->guards || !wrapper_by_program(f)) return mg_dispatch_with_mode(cap, f, args, NULL);
  MgSnapshot *before = mg_ops.snapshot_build(NULL, 0, NULL, Py_None), *after = NULL;
  Py_ssize_t said = wrapper_said(cap);
  uint32_t drawn = r->guards->ndraw;
  if (!before) return NULL;
  for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(args); i++)
    mg_fresh(PyTuple_GET_ITEM(args, i)); /* packed for this call */
  mg_hook_mode = HOOK_record;
  PyObject *res = mg_dispatch_with_mode(cap, f, args, NULL);
  mg_hook_mode = HOOK_off;
  if (res && !(after = mg_ops.snapshot_build(NULL, 0, NULL, Py_None))) Py_CLEAR(res);
  if (res && (!mg_snapshot_same(before, after) || wrapper_said(cap) != said || r->guards->ndraw != drawn)) {
    Py_CLEAR(res);
    mg_rec_break(BK_class_effect, "the __torch_dispatch__ of a %s has side effects", t->tp_name);
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
      mg_rec_break(BK_tensor_class, "a %s", t->tp_name);
      Py_CLEAR(types);
    } else if (PyList_Append(types, (PyObject *)t)) Py_CLEAR(types);
  }
  Py_ssize_t n = types ? PyList_GET_SIZE(types) : 0;
  if (types) all = PyList_AsTuple(types);
  if (all) kw = kwargs ? Py_NewRef(kwargs) : PyDict_New();
  for (Py_ssize_t i = 0; kw && !*res && !PyErr_Occurred() && i < n; i++) {
    bool in_c = wrapper_in_c((PyTypeObject *)PyTuple_GET_ITEM(all, i));
    PyObject *f =
        in_c ? Py_NewRef(a[0]) : PyObject_GetAttr(PyTuple_GET_ITEM(all, i), mg_names.torch_dispatch);
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
  if (kw && !*res && !PyErr_Occurred())
    PyErr_Format(PyExc_TypeError,
                 "no implementation found for %R on types that are subclasses of torch.Tensor", a[0]);
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
  PyObject *r =
      mg_wrapper_leave(&glue, mg_wrapper_enter(&glue) ? PyObject_Call((PyObject *)t, args, kwargs) : NULL);
  if (r && (Py_TYPE(r) != t || !mg_wrapper_made(r))) {
    Py_CLEAR(r);
    mg_rec_break(BK_tensor_class, "a %s", t->tp_name);
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
  PyObject *d = mg_wrapper_dict(o), *v = d ? PyDict_GetItemWithError(d, name) : NULL;
  if (!v) return e && !PyErr_Occurred() ? mg_ops.older_attr(o, name) : NULL;
  return wrapper_held(o, name, Py_NewRef(v));
}

PyObject *mg_wrapper_getattr(PyObject *o, PyObject *name) {
  PyTypeObject *t = Py_TYPE(o);
  PyObject *d = mg_ops.lookup_special(t, name), *v;
  bool own = d && d != _PyType_Lookup(mg_torch.tensor, name);
  descrgetfunc get = d ? Py_TYPE(d)->tp_descr_get : NULL;
  if (!own && d && (name == mg_names.grad || PyUnicode_CompareWithASCIIString(name, "_grad") == 0) &&
      mg_older(o))
    return mg_rec_break(BK_class_attribute, "grad of a %s", t->tp_name);
  if (name == mg_names.class_) return Py_NewRef((PyObject *)t);
  if (name == mg_names.dict) return mg_rec_break(BK_class_attribute, "the dict of a %s", t->tp_name);
  if (own && get && Py_IS_TYPE(d, &PyMemberDescr_Type))
    return wrapper_held(o, name, get(d, o, (PyObject *)t)); /* a slot */
  if (own && get && Py_TYPE(d)->tp_descr_set) return get(d, o, (PyObject *)t);
  if (!d || !Py_TYPE(d)->tp_descr_set) {
    v = wrapper_own(o, name);
    if (v || PyErr_Occurred()) return v;
  }
  if (!own) return PyObject_GetAttr(o, name);
  if (!get) return mg_ops.wrap(d, 0);
  return get(d, o, (PyObject *)t);
}

int mg_wrapper_setattr(PyObject *o, PyObject *name) {
  PyObject *d = mg_wrapper_dict(o);
  if (mg_older(o) && !(d && PyDict_Contains(d, name)) && !_PyType_Lookup(Py_TYPE(o), name)) return 0;
  mg_rec_break(BK_class_attribute, "a write to an attribute of a %s", Py_TYPE(o)->tp_name);
  return -1;
}
