/* Operations on arrays: both halves of the work, and the comparison of what came out.  See the header. */
#include "record/numpy/array_ops.h"
#include <stdlib.h>
#include <string.h>
#include "entry/guard/guard_add.h"
#include "entry/guard/guard_set.h"
#include "entry/guard/late_draws.h"
#include "entry/guard/source.h"
#include "host/python/hook_mode.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "host/torch/array_bridge.h"
#include "host/torch/array_header.h"
#include "host/torch/conj_neg.h"
#include "host/torch/literals.h"
#include "record/core/capture.h"
#include "record/core/identity.h"
#include "record/core/recording.h"
#include "record/fx/fx.h"
#include "record/numpy/array_functions.h"
#include "record/numpy/array_type.h"
#include "record/symbolic/number.h"
#include "record/symbolic/number_ops.h"
#include "record/tensor/standin.h"

/* ---- one operation ---- */

enum { ND_ARGS = 64 };
typedef struct NdCall {
  MgArray *arg[ND_ARGS]; /* arrays among the arguments, borrowed */
  int n;
  bool tensors; /* ... and tensors */
  MgCapture *cap;
  bool strong;         /* NumPy's scalars take part in the promotion of types: operators and ufuncs */
  PyObject *cast;      /* strong: the dtype in which to compute with integers; NULL: theirs */
  bool numbers;        /* numbers that change stay what they are: they decide neither dtype nor shape */
  const char *refused; /* a kind of argument that only one half can work with */
} NdCall;

static PyObject *nd_convert(NdCall *c, PyObject *o, bool model);

static PyObject *nd_model_tensor(NdCall *c, PyObject *standin);

static PyObject *nd_refuse(NdCall *c, const char *what) {
  c->refused = what;
  PyErr_SetString(PyExc_TypeError, what);
  return NULL;
}

static PyObject *nd_convert_list(NdCall *c, PyObject *o, bool model) {
  Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
  PyObject *r = PyTuple_CheckExact(o) ? PyTuple_New(n) : PyList_New(n);
  for (Py_ssize_t i = 0; r && i < n; i++) {
    PyObject *x = nd_convert(c, PySequence_Fast_GET_ITEM(o, i), model);
    if (!x) Py_CLEAR(r);
    else if (PyTuple_CheckExact(o)) PyTuple_SET_ITEM(r, i, x);
    else PyList_SET_ITEM(r, i, x);
  }
  return r;
}

static PyObject *nd_convert_slice(NdCall *c, PySliceObject *s, bool model) {
  PyObject *a = nd_convert(c, s->start, model), *b = a ? nd_convert(c, s->stop, model) : NULL;
  PyObject *d = b ? nd_convert(c, s->step, model) : NULL, *r = d ? PySlice_New(a, b, d) : NULL;
  Py_XDECREF(a);
  Py_XDECREF(b);
  Py_XDECREF(d);
  return r;
}

/* A NumPy scalar that is a constant of the program, for torch._numpy. */
static PyObject *nd_convert_scalar(NdCall *c, PyObject *o) {
  PyObject *plain = PyObject_CallMethod(o, "item", NULL), *dtype = NULL, *torch = NULL, *td = NULL,
           *kw = NULL, *r = NULL;
  if (!plain || !c->strong) return plain;
  int code = (dtype = PyObject_GetAttrString(o, "dtype")) ? mg_nd_torch_dtype(dtype) : -1;
  if (code < 0) nd_refuse(c, "a scalar of a dtype that torch lacks");
  else if ((torch = mg_import("torch")) && (td = mg_torchobj_new_dtype(code)))
    kw = Py_BuildValue("{s:O}", "dtype", td);
  PyObject *args = kw ? PyTuple_Pack(1, plain) : NULL,
           *make = args ? PyObject_GetAttrString(torch, "scalar_tensor") : NULL;
  if (make) r = PyObject_Call(make, args, kw);
  PyObject *const used[] = {plain, dtype, torch, td, kw, args, make};
  for (size_t i = 0; i < sizeof used / sizeof *used; i++) Py_XDECREF(used[i]);
  return r;
}

/* A dtype, or a class that means one, as torch's; -1: it is neither. */
static int nd_dtype_of(PyObject *o) {
  bool is = PyType_Check(o) ? PyType_IsSubtype((PyTypeObject *)o, nd_generic) ||
                                  o == (PyObject *)&PyFloat_Type || o == (PyObject *)&PyLong_Type ||
                                  o == (PyObject *)&PyBool_Type || o == (PyObject *)&PyComplex_Type
                            : !strncmp(Py_TYPE(o)->tp_name, "numpy.dtype", 11);
  if (!is) return -1;
  PyObject *np = mg_import("numpy"), *d = np ? PyObject_CallMethod(np, "dtype", "O", o) : NULL;
  int code = d ? mg_nd_torch_dtype(d) : -1;
  Py_XDECREF(np);
  Py_XDECREF(d);
  mg_clear_as_no();
  return code;
}

/* An argument for one of the halves.  New. */
static PyObject *nd_convert(NdCall *c, PyObject *o, bool model) {
  PyTypeObject *t = Py_TYPE(o);
  if (mg_array_check(o)) {
    MgArray *a = (MgArray *)o;
    if (!model) return c->cast ? PyObject_CallMethod(a->tensor, "to", "O", c->cast) : Py_NewRef(a->tensor);
    if (c->n == ND_ARGS) return nd_refuse(c, "too many arrays");
    c->arg[c->n++] = a;
    return Py_NewRef(a->model);
  }
  if (mg_standin_check(o) && c->strong) {
    c->tensors = true;
    return model ? nd_model_tensor(c, o) : Py_NewRef(o);
  }
  if (mg_symfloat_is(o) && c->numbers && !mg_symfloat_is_numpy(o))
    return !model                                  ? Py_NewRef(o)
           : mg_symfloat_class(o) == &PyFloat_Type ? PyFloat_FromDouble(1.5)
                                                   : PyLong_FromLong(2);
  if (mg_symfloat_is(o)) return mg_symfloat_plain(o);
  if (o == Py_None || o == Py_Ellipsis || PyBool_Check(o) || t == &PyLong_Type || t == &PyFloat_Type ||
      t == &PyComplex_Type || t == &PyUnicode_Type || t == &PyRange_Type)
    return Py_NewRef(o);
  if (t == &PyTuple_Type || t == &PyList_Type || t == mg_torch.size) {
    if (Py_EnterRecursiveCall(" in a list of arrays")) return NULL;
    PyObject *r = t == mg_torch.size ? PySequence_Tuple(o) : nd_convert_list(c, o, model);
    Py_LeaveRecursiveCall();
    return r;
  }
  if (t == &PySlice_Type) return nd_convert_slice(c, (PySliceObject *)o, model);
  if (PyObject_TypeCheck(o, nd_generic)) return model ? Py_NewRef(o) : nd_convert_scalar(c, o);
  int dtype = nd_dtype_of(o);
  if (dtype >= 0) return model ? Py_NewRef(o) : mg_torchobj_new_dtype(dtype);
  if (PyCFunction_Check(o) || PyFunction_Check(o)) return nd_refuse(c, "a function");
  return nd_refuse(c, mg_standin_check(o) ? "a tensor" : t->tp_name);
}

/* ---- results ---- */

/* Whose memory is it?  Borrowed. */
static PyObject *nd_root(PyObject *model) {
  PyObject *o = model;
  while (Py_TYPE(o) == mg_nd_array) {
    PyObject *base = PyObject_GetAttrString(o, "base");
    Py_XDECREF(base); /* the array keeps it */
    if (!base || base == Py_None) break;
    o = base;
  }
  return o;
}

/* torch's number of a model's dtype; -1: it has none. */
static int nd_code(PyObject *model) {
  PyObject *dtype = PyObject_GetAttrString(model, "dtype");
  int code = dtype ? mg_nd_torch_dtype(dtype) : -1;
  mg_clear_as_no();
  Py_XDECREF(dtype);
  return code;
}

static bool nd_same_shape(const MgGraph *g, const MgVal *v, PyObject *model) {
  PyObject *shape = PyObject_GetAttrString(model, "shape");
  bool same = shape && PyTuple_GET_SIZE(shape) == v->ndim;
  int64_t n;
  for (int i = 0; same && i < v->ndim; i++)
    same = mg_sym_settle(g->x, v->size[i], &n) && n == PyLong_AsLongLong(PyTuple_GET_ITEM(shape, i));
  mg_clear_as_no();
  Py_XDECREF(shape);
  return same;
}

/* torch._numpy computed in a wider type, or kept a dimension of size one: made
 * what it should be.  Steals t. */
static PyObject *nd_adjust(NdCall *c, PyObject *t, PyObject *model) {
  const MgGraph *g = c->cap->rec->g;
  const MgVal *v = mg_val(g, mg_standin_val(t));
  int have = v->dtype, want = nd_code(model);
  bool floats = mg_dtype_is_float((MgDtype)have) && mg_dtype_is_float((MgDtype)want);
  PyObject *size = PyObject_GetAttrString(model, "size"), *dtype = NULL, *r = NULL;
  bool one = size && PyLong_AsSsize_t(size) == 1 && v->ndim == 1 && Py_TYPE(model) != mg_nd_array;
  Py_XDECREF(size);
  if (want >= 0 && have != want && floats && mg_dtype_size((MgDtype)have) > mg_dtype_size((MgDtype)want) &&
      (dtype = mg_torchobj_new_dtype(want)) && (r = PyObject_CallMethod(t, "to", "O", dtype)))
    Py_SETREF(t, Py_NewRef(r));
  Py_XDECREF(dtype);
  Py_CLEAR(r);
  if (one && !PyErr_Occurred() && (r = PyObject_CallMethod(t, "squeeze", NULL))) Py_SETREF(t, r);
  v = mg_val(g, mg_standin_val(t));
  if (!PyErr_Occurred() && v->dtype == want && nd_same_shape(g, v, model)) return t;
  Py_DECREF(t);
  return PyErr_Occurred() ? NULL : nd_refuse(c, "a result of another dtype or shape");
}

/* Do the strides agree where they matter? */
static bool nd_same_strides(const MgGraph *g, const MgVal *v, PyObject *model) {
  PyObject *strides = PyObject_GetAttrString(model, "strides");
  bool same = strides != NULL;
  int64_t n, s;
  for (int i = 0; same && i < v->ndim; i++) {
    if (!mg_sym_settle(g->x, v->size[i], &n) || !mg_sym_settle(g->x, v->stride[i], &s)) same = false;
    else if (n == 0) break;
    else if (n > 1)
      same = s * mg_dtype_size((MgDtype)v->dtype) == PyLong_AsLongLong(PyTuple_GET_ITEM(strides, i));
  }
  Py_XDECREF(strides);
  return same;
}

/* A copy of the tensor laid out like the model.  Steals tensor. */
static PyObject *nd_copy_like(PyObject *tensor, PyObject *model, bool scalar) {
  PyObject *copy = NULL, *strides = NULL, *shape = NULL;
  if (scalar) copy = PyObject_CallMethod(tensor, "clone", NULL);
  else {
    PyObject *raw = PyObject_GetAttrString(model, "strides"),
             *size = PyObject_GetAttrString(model, "itemsize"), *r;
    shape = PyObject_GetAttrString(model, "shape");
    Py_ssize_t bytes = size ? PyLong_AsSsize_t(size) : 1, n = raw ? PyTuple_GET_SIZE(raw) : 0;
    strides = raw ? PyTuple_New(n) : NULL;
    for (Py_ssize_t i = 0; strides && i < n; i++)
      PyTuple_SET_ITEM(strides, i, PyLong_FromSsize_t(PyLong_AsSsize_t(PyTuple_GET_ITEM(raw, i)) / bytes));
    if (strides && shape) copy = PyObject_CallMethod(tensor, "new_empty_strided", "OO", shape, strides);
    if (copy) {
      r = PyObject_CallMethod(copy, "copy_", "O", tensor);
      if (!r) Py_CLEAR(copy);
      Py_XDECREF(r);
    }
    Py_XDECREF(raw);
    Py_XDECREF(size);
  }
  Py_XDECREF(strides);
  Py_XDECREF(shape);
  Py_DECREF(tensor);
  return copy;
}

/* The array with a model and the twin that torch._numpy gave; sets c->refused when they disagree. */
static PyObject *nd_join(NdCall *c, PyObject *model, PyObject *twin) {
  for (int i = 0; i < c->n; i++) /* the argument itself: in-place operators, asarray */
    if (c->arg[i]->model == model && Py_TYPE(model) == mg_nd_array) return Py_NewRef(c->arg[i]);
  PyObject *t = Py_NewRef(twin);
  if (!mg_standin_check(t)) {
    Py_DECREF(t);
    return nd_refuse(c, "a result that is no array");
  }
  if (!(t = nd_adjust(c, t, model))) return NULL;
  MgStandInfo *info = mg_standin_info(t);
  const MgGraph *g = info->cap->rec->g;
  bool scalar = Py_TYPE(model) != mg_nd_array, view = false, shares = false;
  for (int i = 0; i < c->n; i++) {
    view |= !scalar && nd_root(model) == nd_root(c->arg[i]->model);
    shares |= mg_val(g, info->val)->storage == mg_val(g, mg_standin_val(c->arg[i]->tensor))->storage;
  }
  bool strides = scalar || nd_same_strides(g, mg_val(g, info->val), model);
  if (view && (!shares || !strides)) {
    Py_DECREF(t);
    return nd_refuse(c, "a view that no tensor can be");
  }
  if (!view && (shares || !strides)) t = nd_copy_like(t, model, scalar);
  PyObject *r = t ? mg_array_new(model, t) : NULL;
  Py_XDECREF(t);
  return r;
}

static bool nd_is_array(PyObject *o) {
  return Py_TYPE(o) == mg_nd_array || PyObject_TypeCheck(o, nd_generic);
}

/* A tensor came of an operation that tensors take part in: torch makes bytes of an array of bools there. */
static PyObject *nd_tensor_result(NdCall *c, PyObject *model, PyObject *twin) {
  PyObject *array = PyObject_CallMethod(model, "numpy", NULL), *t = NULL, *r = NULL;
  if (array && mg_standin_check(twin)) {
    bool bools = mg_val(c->cap->rec->g, mg_standin_val(twin))->dtype == DT_bool && nd_code(array) == DT_u8;
    t = bools ? PyObject_CallMethod(twin, "byte", NULL) : Py_NewRef(twin);
    if (t) r = nd_adjust(c, t, array);
  }
  Py_XDECREF(array);
  return r || PyErr_Occurred() ? r : nd_refuse(c, "a result that is no tensor");
}

/* What both halves gave, as one object.  New. */
static PyObject *nd_result(NdCall *c, PyObject *model, PyObject *twin) {
  if (nd_is_array(model)) return nd_join(c, model, twin);
  if (Py_TYPE(model) == mg_torch.tensor) return nd_tensor_result(c, model, twin);
  if (PyTuple_Check(model) || PyList_CheckExact(model)) {
    if (!PyTuple_Check(twin) && !PyList_Check(twin)) return nd_refuse(c, "a result of another kind");
    Py_ssize_t n = PySequence_Fast_GET_SIZE(model);
    if (PySequence_Fast_GET_SIZE(twin) != n) return nd_refuse(c, "another number of results");
    PyObject *r = PyList_Check(model) ? PyList_New(n) : PyTuple_New(n);
    for (Py_ssize_t i = 0; r && i < n; i++) {
      PyObject *x = nd_result(c, PySequence_Fast_GET_ITEM(model, i), PySequence_Fast_GET_ITEM(twin, i));
      if (!x) Py_CLEAR(r);
      else if (PyList_Check(model)) PyList_SET_ITEM(r, i, x);
      else PyTuple_SET_ITEM(r, i, x);
    }
    if (!r || !PyTuple_Check(model) || PyTuple_CheckExact(model)) return r;
    PyObject *args = PyTuple_Pack(1, r),
             *named = args ? PyTuple_Type.tp_new(Py_TYPE(model), args, NULL) : NULL;
    Py_XDECREF(args);
    Py_DECREF(r);
    return named;
  }
  int same = model == twin                     ? 1
             : Py_TYPE(model) == Py_TYPE(twin) ? PyObject_RichCompareBool(model, twin, Py_EQ)
                                               : 0;
  if (same < 0) return NULL;
  return same ? Py_NewRef(model) : nd_refuse(c, "a result that depends on values");
}

/* A context in which calls of torch are not recorded; to be left by mg_context_exit. */
static PyObject *nd_dispatch_off(void) {
  static PyObject *disable; /* torch._C._DisableTorchDispatch */
  PyObject *c = disable ? NULL : mg_import("torch._C");
  if (c) disable = PyObject_GetAttrString(c, "_DisableTorchDispatch");
  Py_XDECREF(c);
  return disable ? mg_context_enter(PyObject_CallNoArgs(disable)) : NULL;
}

/* A real tensor over the memory of a real array, while recording. */
static PyObject *nd_to_tensor(MgCapture *cap, PyObject *array) {
  PyObject *off = nd_dispatch_off();
  if (!off) return NULL;
  bool quiet = cap->quiet;
  cap->quiet = true;
  PyObject *t = mg_array_to_tensor(array);
  cap->quiet = quiet;
  if (mg_context_exit(off)) Py_CLEAR(t);
  return t;
}

/* Values that are as good as any: no zeros for division, no singular matrices; integers are
 * zero, which is a valid index. */
static int nd_fill(PyObject *model, const MgVal *v) {
  if (!mg_dtype_is_float((MgDtype)v->dtype) && !mg_dtype_is_complex((MgDtype)v->dtype)) return 0;
  static PyObject *fn;
  if (!fn) {
    PyObject *ns = PyDict_New(), *np = ns ? mg_import("numpy") : NULL;
    if (np && !PyDict_SetItemString(ns, "np", np))
      fn = PyRun_String(
          "lambda m: np.copyto(m, (np.arange(m.size) * 0.618 % 1 + 0.5).reshape(m.shape), 'unsafe')",
          Py_eval_input, ns, ns);
    Py_XDECREF(np);
    Py_XDECREF(ns);
  }
  PyObject *r = fn ? PyObject_CallOneArg(fn, model) : NULL;
  Py_XDECREF(r);
  return r ? 0 : -1;
}

/* A real array with the layout of a stand-in. */
static PyObject *nd_make_model(const MgGraph *g, const MgVal *v) {
  PyObject *size = PyTuple_New(v->ndim), *stride = PyTuple_New(v->ndim), *buf = NULL, *m = NULL;
  int64_t n = 0, room = 1, s = 0, bytes = mg_dtype_size((MgDtype)v->dtype);
  bool empty = false;
  for (int i = 0; size && stride && i < v->ndim; i++) {
    mg_sym_settle(g->x, v->size[i], &n);
    mg_sym_settle(g->x, v->stride[i], &s);
    PyTuple_SET_ITEM(size, i, PyLong_FromLongLong(n));
    PyTuple_SET_ITEM(stride, i, PyLong_FromLongLong(s * bytes));
    empty |= !n;
    room += n ? (n - 1) * s : 0;
  }
  if (empty) room = 1;
  if (size && stride && (buf = PyByteArray_FromStringAndSize(NULL, room * bytes))) {
    memset(PyByteArray_AS_STRING(buf), 0, (size_t)(room * bytes));
    m = PyObject_CallFunction((PyObject *)mg_nd_array, "OsOiO", size, mg_nd_dtype_name(v->dtype), buf, 0,
                              stride);
  }
  if (m && nd_fill(m, v)) Py_CLEAR(m);
  Py_XDECREF(size);
  Py_XDECREF(stride);
  Py_XDECREF(buf);
  return m;
}

/* A real tensor of the dtype and shape of a stand-in, as an operand beside arrays; those that
 * require grad have no array. */
static PyObject *nd_model_tensor(NdCall *c, PyObject *standin) {
  const MgGraph *g = c->cap->rec->g;
  PyObject *grad = PyObject_GetAttrString(standin, "requires_grad"), *m = NULL, *t = NULL;
  bool plain = grad == Py_False && mg_nd_dtype_name(mg_val(g, mg_standin_val(standin))->dtype);
  Py_XDECREF(grad);
  if (!plain) return nd_refuse(c, "a tensor");
  if ((m = nd_make_model(g, mg_val(g, mg_standin_val(standin))))) t = nd_to_tensor(c->cap, m);
  Py_XDECREF(m);
  return t;
}

/* ---- doing it ---- */

/* One half of an operation: the function (or the method of the first argument), called. */
static PyObject *nd_do(PyObject *f, const char *method, PyObject *args, PyObject *kw) {
  if (!method) return PyObject_Call(f, args, kw);
  PyObject *m = PyObject_GetAttrString(PyTuple_GET_ITEM(args, 0), method), *rest = NULL, *r = NULL;
  if (m) rest = PyTuple_GetSlice(args, 1, PyTuple_GET_SIZE(args));
  if (rest) r = PyObject_Call(m, rest, kw);
  Py_XDECREF(m);
  Py_XDECREF(rest);
  return r;
}

/* On the tensors.  In a torch-level graph it is one call, whatever torch._numpy makes of it. */
static PyObject *nd_do_twin(MgCapture *cap, PyObject *f, PyObject *args, PyObject *kw) {
  MgFxCall call;
  PyObject *r = NULL;
  bool quiet = cap->quiet;
  if (!cap->fx || quiet) return PyObject_Call(f, args, kw);
  if (!mg_fx_before(cap, args, kw, &call)) {
    cap->quiet = true;
    r = PyObject_Call(f, args, kw);
    cap->quiet = quiet;
    if (r && mg_fx_after(cap, f, args, kw, &call, r)) Py_CLEAR(r);
  }
  mg_fx_drop(&call);
  return r;
}

static PyObject *nd_convert_kw(NdCall *c, PyObject *kw, bool model) {
  PyObject *r = PyDict_New(), *k, *v;
  Py_ssize_t i = 0;
  while (r && kw && PyDict_Next(kw, &i, &k, &v)) {
    PyObject *x = nd_convert(c, v, model);
    if (!x || PyDict_SetItem(r, k, x)) Py_CLEAR(r);
    Py_XDECREF(x);
  }
  return r;
}

static PyObject *nd_half(NdCall *c, const MgArrayOp *op, PyObject *args, PyObject *kw, bool model) {
  PyObject *a = nd_convert_list(c, args, model), *k = a ? nd_convert_kw(c, kw, model) : NULL, *r = NULL, *f;
  if (k && model) r = nd_do(op->np, op->method, a, PyDict_GET_SIZE(k) ? k : NULL);
  else if (k && (f = mg_array_twin(op))) {
    r = nd_do_twin(c->cap, f, a, k);
    Py_DECREF(f);
  }
  Py_XDECREF(a);
  Py_XDECREF(k);
  return r;
}

/* The half on models when real tensors are among them: none of that is part of the program. */
static PyObject *nd_mixed_half(NdCall *c, const MgArrayOp *op, PyObject *args, PyObject *kw) {
  bool quiet = c->cap->quiet;
  PyObject *off = nd_dispatch_off(), *r = NULL;
  if (!off) return NULL;
  c->cap->quiet = true;
  r = nd_half(c, op, args, kw, true);
  c->cap->quiet = quiet;
  if (mg_context_exit(off)) Py_CLEAR(r);
  return r;
}

static bool nd_among(PyObject *args) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); i++)
    if (mg_standin_check(PyTuple_GET_ITEM(args, i))) return true;
  return false;
}

/* NumPy's half, without warnings about values that have no meaning. */
static PyObject *nd_model_half(NdCall *c, const MgArrayOp *op, PyObject *args, PyObject *kw) {
  PyObject *all = Py_BuildValue("{s:s}", "all", "ignore"), *none = all ? PyTuple_New(0) : NULL;
  PyObject *state = none ? mg_context_enter(PyObject_Call(mg_array_numpy.errstate, none, all)) : NULL,
           *r = NULL;
  Py_XDECREF(all);
  Py_XDECREF(none);
  if (!state) return NULL;
  r = nd_among(args) ? nd_mixed_half(c, op, args, kw) : nd_half(c, op, args, kw, true);
  if (mg_context_exit(state)) Py_CLEAR(r);
  return r;
}

/* NumPy computes floats of integers in float64, torch in its default dtype. */
static int nd_choose_cast(NdCall *c, PyObject *model) {
  if (!c->strong || !nd_is_array(model)) return 0;
  int want = nd_code(model);
  if (want < 0 || !mg_dtype_is_float((MgDtype)want)) return 0;
  for (int i = 0; i < c->n; i++) {
    int code = nd_code(c->arg[i]->model);
    if (code != DT_bool && !mg_dtype_is_int((MgDtype)code)) return 0;
  }
  return (c->cast = mg_torchobj_new_dtype(want)) ? 0 : -1;
}

/* An array whose values the program alone decides. */
static PyObject *nd_constant(NdCall *c, PyObject *model) {
  PyObject *copy = PyObject_CallMethod(model, "copy", NULL), *real = copy ? nd_to_tensor(c->cap, copy) : NULL;
  PyObject *t = real ? PyObject_CallMethod(real, "clone", NULL) : NULL,
           *r = t ? mg_array_new(model, t) : NULL;
  Py_XDECREF(copy);
  Py_XDECREF(real);
  Py_XDECREF(t);
  return r;
}

/* Functions that make large arrays of few numbers are part of the graph. */
static bool nd_makes(const char *name) {
  static const char *const names[] = {"zeros", "ones", "empty", "full", "arange", "linspace", "eye", NULL};
  int i = 0;
  while (names[i] && strcmp(names[i], name)) i++;
  return names[i] != NULL;
}

static bool nd_in_list(PyObject *o, int depth) {
  if (nd_is_array(o)) return Py_TYPE(o) == mg_nd_array;
  if (depth > 4 || !(PyTuple_Check(o) || PyList_Check(o))) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); i++)
    if (nd_in_list(PySequence_Fast_GET_ITEM(o, i), depth + 1)) return true;
  return false;
}

/* An exception that comes from the values of the models, and not from the program: singular matrices. */
static bool nd_error_of_values(void) {
  return strstr(((PyTypeObject *)PyErr_Occurred())->tp_name, "LinAlgError") != NULL;
}

static PyObject *nd_give_up(const MgArrayOp *op, const char *why) {
  PyObject *t, *v, *tb;
  PyErr_Fetch(&t, &v, &tb);
  PyObject *text = !why && v ? PyObject_Str(v) : NULL;
  const char *said = why ? why : text ? PyUnicode_AsUTF8(text) : "not supported";
  mg_clear_shown();
  mg_rec_break(BK_numpy, "numpy.%s: %s", op->name, said ? said : "not supported");
  Py_XDECREF(text);
  Py_XDECREF(t);
  Py_XDECREF(v);
  Py_XDECREF(tb);
  return NULL;
}

/* Kernels neither raise nor tell of errors of floating point, as np.errstate may ask for; NumPy's
 * warnings of them are left out. */
static bool nd_errors_matter(MgRec *rec) {
  static const char *const kinds[] = {"divide", "over", "under", "invalid"};
  PyObject *now = PyObject_CallNoArgs(mg_array_numpy.errors);
  bool matter = !now || !PyDict_Check(now);
  for (int i = 0; !matter && i < 4; i++) {
    PyObject *how = PyDict_GetItemString(now, kinds[i]);
    matter = !how || (PyUnicode_CompareWithASCIIString(how, "ignore") &&
                      PyUnicode_CompareWithASCIIString(how, "warn"));
  }
  if (!matter) mg_guard_pinned(rec->guards, GK_answer, mg_array_numpy.errors, now);
  Py_XDECREF(now);
  return matter;
}

/* What torch._numpy does not look at, or would answer for values for which NumPy raises; NULL: nothing. */
static const char *nd_unlike(const MgArrayOp *op, PyObject *args, PyObject *kw) {
  PyObject *where = kw ? PyDict_GetItemString(kw, "where") : NULL,
           *by = PyTuple_GET_SIZE(args) > 1 ? PyTuple_GET_ITEM(args, 1) : NULL;
  bool power = !strcmp(op->name, "pow") || !strcmp(op->name, "ipow") || !strcmp(op->name, "power");
  if (where && where != Py_True && (PyObject *)Py_TYPE(op->np) == mg_array_numpy.ufunc)
    return "`where` of a ufunc";
  if (op->method &&
      (strstr(op->method, "mod__") || strstr(op->method, "div__") || strstr(op->method, "pow__")))
    return "an operator's method";
  if (!power || !mg_array_check(by) || !mg_dtype_is_int((MgDtype)nd_code(((MgArray *)by)->model)))
    return NULL;
  PyObject *x = PyTuple_GET_ITEM(args, 0);
  bool whole =
      PyLong_Check(x) || mg_dtype_is_int((MgDtype)nd_code(mg_array_check(x) ? ((MgArray *)x)->model : x));
  return whole ? "exponents that may be negative" : NULL;
}

typedef PyObject *(*NdScaling)(PyObject *const *arg); /* on the halves that compute */
#define SCALING(name, fn)                                                                                    \
  static PyObject *name(PyObject *const *arg) { return fn(arg[0], arg[1]); }
SCALING(scaling_add, PyNumber_Add)
SCALING(scaling_sub, PyNumber_Subtract)
SCALING(scaling_mul, PyNumber_Multiply)
SCALING(scaling_div, PyNumber_TrueDivide)
SCALING(scaling_iadd, PyNumber_InPlaceAdd)
SCALING(scaling_isub, PyNumber_InPlaceSubtract)
SCALING(scaling_imul, PyNumber_InPlaceMultiply)
SCALING(scaling_idiv, PyNumber_InPlaceTrueDivide)

static PyObject *scaling_where(PyObject *const *arg) {
  PyObject *torch = mg_import("torch"),
           *r = torch ? PyObject_CallMethod(torch, "where", "OOO", arg[0], arg[1], arg[2]) : NULL;
  Py_XDECREF(torch);
  return r;
}

static bool nd_is_floats(PyObject *o) {
  int code = mg_array_check(o) && !mg_array_is_scalar(o) ? nd_code(((MgArray *)o)->model) : -1;
  return code == DT_f32 || code == DT_f64;
}

/* Arithmetic of an array of floats and a number, or a choice between them: its result is an array like that
 * one, whatever the number is.  NULL: it is none. */
static NdScaling nd_scaling(const MgArrayOp *op, PyObject *args, PyObject *kw) {
  static const struct {
    const char *name;
    NdScaling fn;
    int first;
  } known[] = {{"add", scaling_add, 0},         {"sub", scaling_sub, 0},      {"subtract", scaling_sub, 0},
               {"mul", scaling_mul, 0},         {"multiply", scaling_mul, 0}, {"truediv", scaling_div, 0},
               {"true_divide", scaling_div, 0}, {"divide", scaling_div, 0},   {"iadd", scaling_iadd, 0},
               {"isub", scaling_isub, 0},       {"imul", scaling_imul, 0},    {"itruediv", scaling_idiv, 0},
               {"where", scaling_where, 1}};
  size_t i = 0, n = sizeof known / sizeof *known;
  while (i < n && strcmp(op->name, known[i].name)) i++;
  if (i == n || kw || PyTuple_GET_SIZE(args) != known[i].first + 2) return NULL;
  PyObject *chosen = PyTuple_GET_ITEM(args, 0), *a = PyTuple_GET_ITEM(args, known[i].first),
           *b = PyTuple_GET_ITEM(args, known[i].first + 1);
  PyObject *number = mg_array_check(a) ? b : a;
  if (!nd_is_floats(number == b ? a : b) || !mg_symfloat_is(number) ||
      mg_symfloat_class(number) == &PyBool_Type || mg_symfloat_is_numpy(number))
    return NULL;
  if (known[i].first && (!mg_array_check(chosen) || nd_code(((MgArray *)chosen)->model) != DT_bool))
    return NULL;
  return known[i].fn;
}

/* The half of such an operation that computes: the operator on a tensor. */
static PyObject *nd_scale(NdCall *c, NdScaling fn, PyObject *args) {
  PyObject *arg[3] = {NULL}, *r = NULL;
  Py_ssize_t n = PyTuple_GET_SIZE(args), i = 0;
  while (i < n && (arg[i] = nd_convert(c, PyTuple_GET_ITEM(args, i), false))) i++;
  if (i == n) r = fn(arg);
  while (i-- > 0) Py_DECREF(arg[i]);
  return r;
}

PyObject *mg_array_apply(const MgArrayOp *op, PyObject *args, PyObject *kw) {
  PyObject *twin = NULL, *r = NULL;
  MgRec *rec = mg_rec;
  if (!rec) return PyErr_Format(PyExc_RuntimeError, "magneto: an array of a finished recording was used");
  NdScaling scaling = nd_scaling(op, args, kw);
  NdCall c = {.cap = rec->cap, .strong = op->strong, .numbers = scaling != NULL};
  MgPause pause = mg_rec_pause();
  if (nd_errors_matter(rec)) c.refused = "np.errstate asks for exceptions";
  else c.refused = nd_unlike(op, args, kw);
  if (c.refused) {
    mg_rec_resume(pause);
    return nd_give_up(op, c.refused);
  }
  PyObject *model = nd_model_half(&c, op, args, kw);
  bool failed = !model && !c.refused && !nd_error_of_values();
  if (model && !c.n && !c.tensors && !nd_in_list(model, 0)) { /* numbers of the program alone */
    mg_rec_resume(pause);
    return model;
  }
  if (model && !c.n && !c.tensors && Py_TYPE(model) == mg_nd_array && nd_code(model) >= 0 &&
      !nd_makes(op->name))
    r = nd_constant(&c, model);
  else if (model && c.numbers) twin = nd_scale(&c, scaling, args);
  else if (model && !nd_choose_cast(&c, model)) twin = nd_half(&c, op, args, kw, false);
  if (twin) r = nd_result(&c, model, twin);
  mg_rec_resume(pause);
  if (!r && !failed && !rec->abort) nd_give_up(op, c.refused);
  Py_XDECREF(model);
  Py_XDECREF(twin);
  Py_XDECREF(c.cast);
  return r;
}

/* ---- making arrays ---- */

/* An array over the memory of a stand-in. */
static PyObject *nd_over(PyObject *standin) {
  const MgGraph *g = mg_standin_info(standin)->cap->rec->g;
  MgPause pause = mg_rec_pause();
  PyObject *model = nd_make_model(g, mg_val(g, mg_standin_val(standin))),
           *r = model ? mg_array_new(model, standin) : NULL;
  mg_rec_resume(pause);
  Py_XDECREF(model);
  return r;
}

PyObject *mg_array_wrap(PyObject *array, SrcRef src) {
  if (!mg_array_numpy.ufunc || !mg_nd_is(array) || !mg_nd_shareable(array)) return NULL;
  MgGuards *g = mg_rec->guards;
  if (!src) src = mg_source(g, SRC_pinned, 0, 0, array);
  PyObject *real = nd_to_tensor(mg_rec->cap, array), *t = real ? mg_standin_array_input(real, src) : NULL,
           *r = t ? nd_over(t) : NULL;
  if (r && !mg_draw_late(g, src)) mg_guard_array(g, src, array);
  if (r && mg_older_add(array, r, src, OLDER_array)) Py_CLEAR(r);
  Py_XDECREF(real);
  Py_XDECREF(t);
  return r;
}

PyObject *mg_array_of_tensor(PyObject *standin, bool force) {
  const MgGraph *g = mg_standin_info(standin)->cap->rec->g;
  const MgVal *v = mg_val(g, mg_standin_val(standin));
  if (!mg_array_numpy.ufunc || v->device != DEV_cpu || v->dtype == DT_bf16 || v->dtype == DT_c32 ||
      v->dtype == DT_bc32)
    return mg_rec_break(BK_to_numpy, "Tensor.numpy");
  PyObject *grad = PyObject_GetAttrString(standin, "requires_grad"), *plain = NULL;
  bool tracked = grad == Py_True;
  Py_XDECREF(grad);
  if (!grad) return NULL;
  if (tracked && !force && mg_abi.aoti_torch_grad_mode_is_enabled())
    return PyErr_Format(
        PyExc_RuntimeError,
        "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.");
  if (v->bits) {
    PyObject *clear = mg_lazybits_clear(standin, v->bits, force),
             *r = clear ? mg_array_of_tensor(clear, force) : NULL;
    Py_XDECREF(clear);
    return r;
  }
  if (tracked && mg_rec->want_fx && !(plain = PyObject_CallMethod(standin, "detach", NULL))) return NULL;
  if (!mg_rec->want_fx && !(plain = PyObject_GetAttrString(standin, "data")))
    return NULL; /* writes do not count for the tensor */
  if (!tracked && mg_rec->want_fx && !(plain = PyObject_CallMethod(standin, "view_as", "O", standin)))
    return NULL; /* as torch.compile has it */
  PyObject *r = nd_over(plain ? plain : standin);
  Py_XDECREF(plain);
  return r;
}
