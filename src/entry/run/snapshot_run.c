/* Running a construction program.  The hot path is a single returned tensor: no allocation, a few ns. */
#include "entry/run/snapshot_run.h"
#include <stdlib.h>
#include <string.h>
#include "entry/guard/guard_set.h"
#include "entry/guard/source.h"
#include "entry/run/snapshot_program.h"
#include "host/python/iterators.h"
#include "host/python/names.h"
#include "host/python/pyframe.h"
#include "host/python/pyobject.h"
#include "results.h"
#include "host/torch/array_bridge.h"
#include "host/torch/function_stack.h"
#include "runtime/process/torch_abi.h"

/* Past __setattr__ of the class, as object.__setattr__ would: the recorded code has run already.  What is
 * deleted may have been made by the same segment, and then is not there. */
static int snap_set_attr(PyObject *o, PyObject *name, PyObject *v) {
  setattrofunc set = PyType_Check(o) ? PyType_Type.tp_setattro : PyObject_GenericSetAttr;
  if (set(o, name, v) == 0) return 0;
  if (v || !PyErr_ExceptionMatches(PyExc_AttributeError)) return -1;
  mg_clear_if(PyExc_AttributeError);
  return 0;
}

/* A member that is not there needs no deletion. */
static int snap_set_member(PyObject *o, PyObject *descr, PyObject *v) {
  if (Py_TYPE(descr)->tp_descr_set(descr, o, v) == 0) return 0;
  if (v) return -1;
  PyErr_Clear(); /* it is not there */
  return 0;
}

static int snap_set_key(PyObject *d, PyObject *name, PyObject *v) {
  if (v) return PyDict_SetItem(d, name, v);
  int has = PyDict_Contains(d, name);
  return has > 0 ? PyDict_DelItem(d, name) : has;
}

static int snap_update_attrs(PyObject *o, PyObject *d) {
  PyObject *k, *v;
  Py_ssize_t pos = 0;
  if (!PyDict_Check(d)) return 0;
  while (PyDict_Next(d, &pos, &k, &v))
    if (PyObject_GenericSetAttr(o, k, v)) return -1;
  return 0;
}

static PyObject *snap_method_of(PyObject *o, PyTypeObject *t, PyObject *name, PyObject *arg) {
  PyObject *f = PyObject_GetAttr((PyObject *)t, name),
           *r = f ? PyObject_CallFunctionObjArgs(f, o, arg, NULL) : NULL;
  Py_XDECREF(f);
  return r;
}

PyObject *mg_snapshot_pickle_call(PyObject *o, PyTypeObject *t, PyObject *name, PyObject *arg) {
  if (PY_VERSION_HEX < 0x030C0000 || strncmp(mg_solid_base(t)->tp_name, "itertools.", 10))
    return snap_method_of(o, t, name, arg);
  PyObject *filters = NULL, *ignore = NULL, *r = NULL, *warnings = PyImport_ImportModule("warnings");
  if (!warnings || !(filters = PyObject_GetAttr(warnings, mg_names.filters)) ||
      !(ignore = Py_BuildValue("[(sOOOi)]", "ignore", Py_None, PyExc_DeprecationWarning, Py_None, 0)) ||
      PyObject_SetAttr(warnings, mg_names.filters, ignore))
    goto done;
  r = snap_method_of(o, t, name, arg);
  if (PyObject_SetAttr(warnings, mg_names.filters, filters)) Py_CLEAR(r);
done:
  Py_XDECREF(ignore);
  Py_XDECREF(filters);
  Py_XDECREF(warnings);
  return r;
}

/* What copyreg's state means: a dict, or (dict, slots), unless the class has __setstate__. */
static int snap_set_state(PyObject *o, PyObject *state) {
  PyObject *f = PyObject_GetAttr(o, mg_names.setstate);
  if (f) {
    Py_DECREF(f);
    PyObject *r = mg_snapshot_pickle_call(o, Py_TYPE(o), mg_names.setstate, state);
    Py_XDECREF(r);
    return r ? 0 : -1;
  }
  PyErr_Clear(); /* it has no __setstate__ */
  if (!PyTuple_Check(state)) return snap_update_attrs(o, state);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(state); i++)
    if (snap_update_attrs(o, PyTuple_GET_ITEM(state, i))) return -1;
  return 0;
}

/* The globals of a module by its name: new; an empty namespace when it is no longer there. */
static PyObject *snap_globals(PyObject *name) {
  PyObject *m = PyImport_GetModule(name),
           *d = m && PyModule_Check(m) ? Py_XNewRef(PyModule_GetDict(m)) : NULL;
  Py_XDECREF(m);
  return d || PyErr_Occurred() ? d : Py_BuildValue("{sO}", "__name__", name);
}

/* Entries of functions that have ended in the recording get a frame without locals. */
static int snap_set_traceback(PyObject *e, PyObject *entries) {
  PyObject *tb = Py_NewRef(Py_None);
  for (Py_ssize_t i = PyList_GET_SIZE(entries); tb && i--;) {
    PyObject *entry = PyList_GET_ITEM(entries, i), *code = mg_weakref_target(PyTuple_GET_ITEM(entry, 0));
    if (!PyCode_Check(code)) continue;
    PyObject *globals = snap_globals(PyTuple_GET_ITEM(entry, 1));
    PyObject *frame =
        globals ? mg_pyframe_bare((PyCodeObject *)code, globals, PyLong_AsLong(PyTuple_GET_ITEM(entry, 3)))
                : NULL;
    PyObject *next = tb;
    tb = frame ? PyObject_CallFunction((PyObject *)&PyTraceBack_Type, "OOOO", next, frame,
                                       PyTuple_GET_ITEM(entry, 2), PyTuple_GET_ITEM(entry, 3))
               : NULL;
    Py_DECREF(next);
    Py_XDECREF(frame);
    Py_XDECREF(globals);
  }
  int rc = tb ? PyException_SetTraceback(e, tb) : -1;
  Py_XDECREF(tb);
  return rc;
}

static int snap_extend(PyObject *o, PyObject *list) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
    PyObject *r = snap_method_of(o, mg_solid_base(Py_TYPE(o)), mg_names.append, PyList_GET_ITEM(list, i));
    if (!r) return -1;
    Py_DECREF(r);
  }
  return 0;
}

static int snap_put_items(PyObject *o, PyObject *list) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
    PyObject *p = PyList_GET_ITEM(list, i);
    PyObject *k = PyTuple_GET_ITEM(p, 0), *v = PyTuple_GET_ITEM(p, 1);
    if (PyDict_Check(o) ? PyDict_SetItem(o, k, v) : PyObject_SetItem(o, k, v)) return -1;
  }
  return 0;
}

static int snap_fill_list(PyObject *l, PyObject **v, const uint32_t *k, uint32_t n) {
  PyObject *items = PyList_New(n);
  if (!items) return -1;
  for (uint32_t i = 0; i < n; i++) PyList_SET_ITEM(items, i, Py_NewRef(v[k[i]]));
  int rc = PyList_SetSlice(l, 0, PY_SSIZE_T_MAX, items);
  Py_DECREF(items);
  return rc;
}

/* Subclasses are filled as their static base: what their own methods would do has been recorded. */
static int snap_fill_dict(PyObject *d, PyObject **v, const uint32_t *k, uint32_t n) {
  bool ordered = PyODict_Check(d); /* its order is kept outside of the dict */
  if (!ordered) PyDict_Clear(d);
  else if (PyDict_GET_SIZE(d)) {
    PyObject *r = PyObject_CallMethodOneArg((PyObject *)&PyODict_Type, mg_names.clear, d);
    if (!r) return -1;
    Py_DECREF(r);
  }
  for (uint32_t i = 0; i < n; i += 2)
    if (mg_dict_put(d, v[k[i]], v[k[i + 1]])) return -1;
  return 0;
}

/* Items alone leave iterators over a deque going; another length ends them, as it did in the program. */
static int snap_fill_deque(PyObject *q, PyObject **v, const uint32_t *k, uint32_t n) {
  if (Py_SIZE(q) == n) {
    for (uint32_t i = 0; i < n; i++)
      if (PySequence_SetItem(q, i, v[k[i]])) return -1;
    return 0;
  }
  PyObject *r = PyObject_CallMethodNoArgs(q, mg_names.clear);
  for (uint32_t i = 0; r && i < n; i++) Py_SETREF(r, PyObject_CallMethodOneArg(q, mg_names.append, v[k[i]]));
  Py_XDECREF(r);
  return r ? 0 : -1;
}

static int snap_put_attr(PyObject *o, PyObject *key, PyObject *v) {
  PyObject **d = _PyObject_GetDictPtr(o);
  if (d && !*d) *d = PyDict_New();
  return d && *d ? snap_set_key(*d, key, v) : -1;
}

/* What goes is taken out and what comes is put in: the order of the elements depends on such history. */
static int snap_fill_set(PyObject *s, PyObject **v, const uint32_t *k, uint32_t n) {
  PyObject *now = PySet_New(NULL), *gone = NULL, *it = NULL, *x;
  int rc = now ? 0 : -1;
  for (uint32_t i = 0; !rc && i < n; i++) rc = PySet_Add(now, v[k[i]]);
  if (!rc && PySet_GET_SIZE(s)) {
    gone = PySet_Type.tp_as_number->nb_subtract(s, now); /* whatever a subclass says */
    it = gone ? PySet_Type.tp_iter(gone) : NULL;
    if (!it) rc = -1;
    while (!rc && (x = PyIter_Next(it))) {
      if (PySet_Discard(s, x) < 0) rc = -1;
      Py_DECREF(x);
    }
  }
  for (uint32_t i = 0; !rc && i < n; i++) rc = PySet_Add(s, v[k[i]]);
  Py_XDECREF(now);
  Py_XDECREF(gone);
  Py_XDECREF(it);
  return rc || PyErr_Occurred() ? -1 : 0;
}

static PyObject *snap_make_function(PyObject *bare, PyObject **v, const uint32_t *k) {
  PyFunctionObject *t = (PyFunctionObject *)bare;
  PyFunctionObject *f =
      (PyFunctionObject *)PyFunction_NewWithQualName(t->func_code, t->func_globals, t->func_qualname);
  if (!f) return NULL;
  Py_XSETREF(f->func_name, Py_XNewRef(t->func_name));
  Py_XSETREF(f->func_doc, Py_XNewRef(t->func_doc));
  if (k[0]) f->func_closure = Py_NewRef(v[k[0]]);
  if (k[1]) f->func_defaults = Py_NewRef(v[k[1]]);
  if (k[2]) f->func_kwdefaults = Py_NewRef(v[k[2]]);
  if (k[3]) f->func_dict = Py_NewRef(v[k[3]]);
  if (k[4]) Py_XSETREF(f->func_annotations, Py_NewRef(v[k[4]]));
  if (k[5]) Py_XSETREF(f->func_module, Py_NewRef(v[k[5]]));
#if PY_VERSION_HEX >= 0x030E0000
  if (k[6]) Py_XSETREF(f->func_annotate, Py_NewRef(v[k[6]]));
#endif
  return (PyObject *)f;
}

/* Making a generator runs nothing but its prologue. */
static PyObject *snap_make_generator(const MgSnapInstr *q, PyObject **v, const uint32_t *k) {
  PyObject *small[32], **slot = q->narg <= 32 ? small : PyMem_New(PyObject *, q->narg);
  PyObject *gen = slot ? mg_pyframe_call_blank(q->narg ? v[k[0]] : q->obj) : PyErr_NoMemory();
  if (gen && !q->narg) {
    PyObject *r = PyObject_CallMethod(gen, "close", NULL);
    if (!r) Py_CLEAR(gen);
    Py_XDECREF(r);
  }
  for (uint32_t i = 1; gen && i < q->narg; i++) slot[i] = k[i] ? v[k[i]] : NULL;
  if (gen && q->narg) mg_pyframe_fill_generator(gen, slot + 1, (int)q->narg - 1, (int)q->a - 1);
  if (slot != small) PyMem_Free(slot);
  return gen;
}

/* The class of an instance: known beforehand, or made by this program (the last argument). */
static PyTypeObject *snap_type(const MgSnapInstr *q, PyObject **v, const uint32_t *k) {
  return (PyTypeObject *)(q->obj ? q->obj : v[k[q->narg - 1]]);
}

/* A hook goes to a tensor whose place in the gradient graph is up to date: torch's register_hook crashes with
 * a view of a tensor that was written to, unless the program has asked for the view's grad_fn. */
static PyObject *snap_call(PyObject *f, PyObject *args) {
  PyObject *node = f == mg_torch.hook_register[0]
                       ? PyObject_GetAttrString(PyTuple_GET_ITEM(args, 0), "grad_fn")
                       : Py_NewRef(Py_None);
  PyObject *r = node ? PyObject_Call(f, args, NULL) : NULL;
  Py_XDECREF(node);
  return r;
}

/* A new value, or NULL with an exception. */
static PyObject *snap_make(const MgSnapInstr *q, PyObject **v, const uint32_t *k, PyObject **outs,
                           PyObject **vals, const MgGuards *guards) {
  PyObject *x = NULL;
  switch ((MgSnapOp)q->op) {
  case SN_const: return Py_NewRef(q->obj);
  case SN_out: return Py_NewRef(outs[q->a]);
  case SN_tensor_of: return mg_subclass_dress(Py_NewRef(v[k[0]]), snap_type(q, v, k), q->a);
  case SN_array: return mg_array_from_tensor(v[k[0]], (MgArrayKind)q->a);
  case SN_item: return mg_symvalue_read(outs[q->a], q->arg);
  case SN_dim: return mg_symvalue_size(outs[q->a], (int)q->arg);
  case SN_compute: return mg_source_compute((int)q->a, v[k[0]], q->narg > 1 ? v[k[1]] : NULL);
  case SN_check: return v[k[0]] == Py_True ? Py_NewRef(Py_None) : PyObject_Call(q->obj, v[k[1]], NULL);
  case SN_src: return Py_NewRef(vals[q->a]);
  case SN_calc: return mg_source_value(guards, q->a, vals, 0);
  case SN_list: return PyList_New(0);
  case SN_dict: return q->obj == (PyObject *)&PyDict_Type ? PyDict_New() : PyODict_New();
  case SN_set: return PySet_New(NULL);
  case SN_cell: return PyCell_New(NULL);
  case SN_tuple:
    x = PyTuple_New(q->narg);
    for (uint32_t i = 0; x && i < q->narg; i++) PyTuple_SET_ITEM(x, i, Py_NewRef(v[k[i]]));
    return x;
  case SN_based: {
    PyTypeObject *t = snap_type(q, v, k), *base = mg_solid_base(t);
    x = base->tp_new(t, v[k[0]], NULL);
    if (x && base->tp_init != PyBaseObject_Type.tp_init && base->tp_init(x, v[k[0]], NULL)) Py_CLEAR(x);
    return x;
  }
  case SN_tuple_of:
  case SN_value_of: return mg_new_value(snap_type(q, v, k), v[k[0]]);
  case SN_frozenset:
    x = PyFrozenSet_New(NULL);
    for (uint32_t i = 0; x && i < q->narg; i++)
      if (PySet_Add(x, v[k[i]])) Py_CLEAR(x);
    return x;
  case SN_slice: return PySlice_New(v[k[0]], v[k[1]], v[k[2]]);
  case SN_function: return snap_make_function(q->obj, v, k);
  case SN_method: return PyMethod_New(v[k[0]], v[k[1]]);
  case SN_builtin: return PyCFunction_NewEx(((PyCFunctionObject *)q->obj)->m_ml, v[k[0]], NULL);
  case SN_wrapper: return Py_TYPE(q->obj)->tp_descr_get(q->obj, v[k[0]], (PyObject *)Py_TYPE(v[k[0]]));
  case SN_instdict: return PyObject_GenericGetDict(v[k[0]], NULL);
  case SN_view: return mg_view_new(v[k[0]], q->obj);
  case SN_instance: return mg_new_instance(snap_type(q, v, k));
  case SN_generator: return snap_make_generator(q, v, k);
  case SN_call: return snap_call(v[k[0]], v[k[1]]);
  default: PyErr_SetString(PyExc_SystemError, "construction program"); return NULL;
  }
}

static int snap_change(const MgSnapInstr *q, PyObject **v, const uint32_t *k) {
  PyObject *t = v[q->a], *x = q->narg ? v[k[0]] : NULL;
  switch ((MgSnapOp)q->op) {
  case SN_fill_list: return snap_fill_list(t, v, k, q->narg);
  case SN_fill_dict: return snap_fill_dict(t, v, k, q->narg);
  case SN_fill_set: return snap_fill_set(t, v, k, q->narg);
  case SN_fill_deque: return snap_fill_deque(t, v, k, q->narg);
  case SN_set_iterator: return mg_iterator_set(t, x);
  case SN_set_var: {
    PyObject *token = PyContextVar_Set(t, x);
    Py_XDECREF(token);
    return token ? 0 : -1;
  }
  case SN_set_cell: return PyCell_Set(t, x);
  case SN_set_state: return snap_set_state(t, x);
  case SN_extend: return snap_extend(t, x);
  case SN_put_items: return snap_put_items(t, x);
  case SN_set_cause: PyException_SetCause(t, Py_XNewRef(x)); return 0;
  case SN_set_context:
    if (!q->narg) x = mg_pyframe_handled(PyThreadState_Get());
    PyException_SetContext(t, x != t ? Py_XNewRef(x) : NULL);
    return 0;
  case SN_set_traceback: return snap_set_traceback(t, q->obj);
  case SN_set_attr: return snap_set_attr(t, q->obj, x);
  case SN_set_member: return snap_set_member(t, q->obj, x);
  case SN_put_attr: return snap_put_attr(t, q->obj, x);
  case SN_set_key: return snap_set_key(t, q->obj, x);
  default: PyErr_SetString(PyExc_SystemError, "construction program"); return -1;
  }
}

/* Makes value number `at`, and looks at what is claimed of it.  0, MG_CLAIM_FALSE, -1 with an exception. */
static int snap_value(const MgSnapshot *s, uint32_t at, PyObject **v, PyObject **outs, PyObject **vals) {
  const MgSnapInstr *q = &s->p[at];
  const uint32_t *k = s->pool + q->arg;
  v[at] = NULL;
  if (!at) return 0;
  if (q->op >= SN_fill_list) return snap_change(q, v, k) ? -1 : 0;
  if (q->op != SN_claim) return (v[at] = snap_make(q, v, k, outs, vals, s->guards)) ? 0 : -1;
  if ((v[k[0]] == Py_True) != q->a) return MG_CLAIM_FALSE;
  v[at] = Py_NewRef(Py_None);
  return 0;
}

void mg_snapshot_claimed(const MgSnapshot *s, bool *out) {
  for (uint32_t i = 1; i < s->nclaim; i++)
    if (s->p[i].op == SN_item || s->p[i].op == SN_dim || s->p[i].op == SN_out) out[s->p[i].a] = true;
}

int mg_snapshot_claims(const MgSnapshot *s, PyObject **outs, PyObject **vals) {
  PyObject **v = mg_malloc(sizeof *v * (s->nclaim + 1));
  uint32_t done = 0;
  int rc = v ? 0 : -1;
  if (!v) PyErr_NoMemory();
  while (!rc && done < s->nclaim) rc = snap_value(s, done++, v, outs, vals);
  for (uint32_t i = 0; i < done; i++) Py_XDECREF(v[i]);
  free(v);
  return rc;
}

int mg_snapshot_run(const MgSnapshot *s, PyObject **outs, PyObject **vals, PyObject **new_slots,
                    PyObject **ret) {
  if (s->only_out) {
    *ret = Py_NewRef(outs[0]);
    return 0;
  }
  PyObject *fixed[64], **v = s->n <= 64 ? fixed : mg_malloc(sizeof *v * s->n);
  int rc = -1;
  uint32_t done = 0; /* values made so far */
  if (!v) {
    PyErr_NoMemory();
    return -1;
  }
  for (rc = 0; !rc && done < s->n;) rc = snap_value(s, done++, v, outs, vals);
  if (rc) goto done;
  rc = -1;
  for (uint32_t i = 0; i < s->nw; i++)
    if (snap_change(&s->w[i], v, s->pool + s->w[i].arg)) goto done;
  if (s->state.any && mg_effect_apply(&s->state.before, &s->state.after)) goto done;
  mg_state_autocast_nest(s->state.autocast_depth);
  if (s->state.settings && mg_setting_replay(s->state.settings)) goto done;
  if (ret) *ret = s->ret ? Py_NewRef(v[s->ret]) : NULL;
  for (int i = 0; i < s->nslots; i++)
    if (s->slot[i] != SNAP_UNTOUCHED)
      new_slots[i] = s->slot[i] == SNAP_UNBOUND ? NULL : Py_NewRef(v[s->slot[i]]);
  rc = 0;
done:
  for (uint32_t i = 0; i < done; i++) Py_XDECREF(v[i]);
  if (v != fixed) free(v);
  return rc;
}

int mg_snapshot_outputs(const MgSnapshot *s, const ValRef **vals) {
  *vals = s->out;
  return (int)s->nout;
}

/* C functions are made anew for each program. */
static bool snap_same_object(const MgSnapInstr *a, const MgSnapInstr *b) {
  if (a->op != SN_builtin || a->obj == b->obj) return a->obj == b->obj;
  return ((PyCFunctionObject *)a->obj)->m_ml == ((PyCFunctionObject *)b->obj)->m_ml;
}

static bool snap_same_program(const MgSnapInstr *a, const MgSnapInstr *b, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (a[i].op != b[i].op || a[i].a != b[i].a || a[i].narg != b[i].narg || a[i].arg != b[i].arg ||
        !snap_same_object(&a[i], &b[i]))
      return false;
  return true;
}

bool mg_snapshot_same(const MgSnapshot *a, const MgSnapshot *b) {
  if (a->n != b->n || a->nw != b->nw || a->npool != b->npool || a->nout != b->nout) return false;
  if (a->npool && memcmp(a->pool, b->pool, a->npool * sizeof *a->pool)) return false;
  if (a->nout && memcmp(a->out, b->out, a->nout * sizeof *a->out)) return false;
  if (a->n && !snap_same_program(a->p + 1, b->p + 1, a->n - 1)) return false;
  if (!snap_same_program(a->w, b->w, a->nw)) return false;
  return !memcmp(&a->state.after, &b->state.after, sizeof a->state.after) &&
         a->state.autocast_depth == b->state.autocast_depth && !a->state.settings == !b->state.settings;
}

void mg_snapshot_free(MgSnapshot *s) {
  if (!s) return;
  Py_XDECREF(s->state.settings);
  free(s->p);
  free(s->w);
  free(s->pool);
  free(s->slot);
  free(s->out);
  Py_XDECREF(s->keep);
  free(s);
}

/* torch._C.<name>(...) */
static int effect_call(const char *name, const char *format, ...) {
  PyObject *c = mg_import("torch"), *f = c ? PyObject_GetAttrString(c, name) : NULL;
  va_list ap;
  va_start(ap, format);
  PyObject *a = f ? Py_VaBuildValue(format, ap) : NULL, *r = a ? PyObject_CallObject(f, a) : NULL;
  va_end(ap);
  Py_XDECREF(a);
  Py_XDECREF(f);
  Py_XDECREF(c);
  Py_XDECREF(r);
  return r ? 0 : -1;
}

/* torch.set_autocast_dtype(device, the dtype of a c10::ScalarType) */
static int effect_autocast_dtype(const char *device, int8_t code) {
  static const struct {
    int8_t code;
    const char *name;
  } types[] = {{5, "float16"}, {6, "float32"}, {7, "float64"}, {15, "bfloat16"}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    if (types[i].code != code) continue;
    PyObject *torch = mg_import("torch"), *dt = torch ? PyObject_GetAttrString(torch, types[i].name) : NULL;
    Py_XDECREF(torch);
    return dt ? effect_call("set_autocast_dtype", "(sN)", device, dt) : -1;
  }
  return 0;
}

int mg_effect_apply(const MgTorchState *from, const MgTorchState *to) {
  if (from->grad_mode != to->grad_mode) mg_abi.aoti_torch_grad_mode_set_enabled(to->grad_mode);
  if (from->autocast_cpu != to->autocast_cpu &&
      effect_call("set_autocast_enabled", "(sN)", "cpu", PyBool_FromLong(to->autocast_cpu)))
    return -1;
  if (from->autocast_cuda != to->autocast_cuda &&
      effect_call("set_autocast_enabled", "(sN)", "cuda", PyBool_FromLong(to->autocast_cuda)))
    return -1;
  if (from->autocast_cpu_dtype != to->autocast_cpu_dtype &&
      effect_autocast_dtype("cpu", to->autocast_cpu_dtype))
    return -1;
  if (from->autocast_cuda_dtype != to->autocast_cuda_dtype &&
      effect_autocast_dtype("cuda", to->autocast_cuda_dtype))
    return -1;
  if (from->autocast_cache != to->autocast_cache &&
      effect_call("set_autocast_cache_enabled", "(N)", PyBool_FromLong(to->autocast_cache)))
    return -1;
  return 0;
}

int mg_setting_apply(PyObject *action) {
  PyObject *kw = PyTuple_GET_ITEM(action, 2);
  PyObject *r =
      PyObject_Call(PyTuple_GET_ITEM(action, 0), PyTuple_GET_ITEM(action, 1), kw == Py_None ? NULL : kw);
  Py_XDECREF(r);
  return r ? 0 : -1;
}

int mg_setting_replay(PyObject *list) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++)
    if (mg_setting_apply(PyList_GET_ITEM(list, i))) return -1;
  return 0;
}

PyObject *mg_subclass_dress(PyObject *t, PyTypeObject *c, bool shared) {
  PyObject *name = mg_names.class_;
  if (Py_TYPE(t) == c) return t;
  if (shared || Py_TYPE(t) != mg_torch.tensor) {
    PyObject *off = mg_fmodes_off(), *x = off ? PyObject_CallMethod(t, "as_subclass", "O", c) : NULL;
    if (off && mg_context_exit(off)) Py_CLEAR(x);
    Py_DECREF(t);
    return x;
  }
  if (PyObject_GenericSetAttr(t, name, (PyObject *)c)) Py_CLEAR(t);
  return t;
}
