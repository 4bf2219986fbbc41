/* Calls of torch's C functions that a recording sees otherwise than eager does: numbers that the graph
 * computes, tensors that are made as leaves of autograd. */
#include "record/call/torch_calls.h"
#include <string.h>
#include "host/python/glue.h"
#include "host/python/hook_mode.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "host/torch/array_header.h"
#include "host/torch/literals.h"
#include "host/torch/tensor_facts.h"
#include "record/call/scalar_tensors.h"
#include "record/core/ops.h"
#include "record/core/call_args.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "record/dispatch/dispatch.h"
#include "record/dispatch/constant_truth.h"
#include "record/dispatch/one_hot.h"
#include "record/fx/fx.h"
#include "record/fx/fx_modes.h"
#include "record/object/attributes.h"
#include "record/symbolic/number.h"
#include "record/symbolic/number_index.h"
#include "record/symbolic/number_ops.h"
#include "record/symbolic/sizes.h"

/* A torch-level graph shows the mode where it changes, and where the program itself
 * sets what is set already. */
PyObject *mg_call_grad_mode(const MgCall *c) {
  bool was = mg_abi.aoti_torch_grad_mode_is_enabled();
  PyObject *r = mg_call_plain(c);
  MgCapture *cap = mg_rec->cap;
  bool again = r && mg_rec->want_fx && !cap->quiet && was == mg_abi.aoti_torch_grad_mode_is_enabled() &&
               !mg_call_by_torch();
  MgPause pause = mg_rec_pause();
  if (again && mg_fx_repeat_grad(cap, was)) Py_CLEAR(r);
  mg_rec_resume(pause);
  return r;
}

PyObject *mg_call_one_hot(const MgCall *c) {
  PyObject *r;
  bool known = c->n == 2 && (!c->kwnames || PyTuple_GET_SIZE(c->kwnames) == 1) &&
               !mg_rec->want_fx; /* whose mode sees the call */
  return known && mg_one_hot(c->arg[0], c->arg[1], &r) ? r : mg_call_plain(c);
}

/* Where a call has the argument that may be given by position or by name; NULL: it is not given. */
static PyObject *const *torch_argument(const MgCall *c, Py_ssize_t position, const char *name) {
  if (position < c->npos) return &c->arg[position];
  for (Py_ssize_t i = c->npos; i < c->n; i++)
    if (!PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(c->kwnames, i - c->npos), name)) return &c->arg[i];
  return NULL;
}

/* May a mask of that shape stand beside these operands of attention? */
static bool torch_mask_fits(const MgGraph *g, const MgVal *mask, PyObject *query, PyObject *key) {
  if (!mg_standin_is(query) || !mg_standin_is(key)) return false;
  const MgVal *q = mg_val(g, mg_standin_val(query)), *k = mg_val(g, mg_standin_val(key));
  if (q->ndim < 2 || k->ndim < 2 || mask->ndim > q->ndim) return false;
  for (int i = 1; i <= mask->ndim; i++) {
    SymRef have = mask->size[mask->ndim - i], want = i == 1 ? k->size[k->ndim - 2] : q->size[q->ndim - i];
    if (have != want && !mg_sym_is(g->x, have, 1)) return false;
  }
  return true;
}

/* Are there as many queries as keys? */
static bool torch_square(const MgGraph *g, PyObject *query, PyObject *key) {
  const MgVal *q = mg_val(g, mg_standin_val(query)), *k = mg_val(g, mg_standin_val(key));
  return q->size[q->ndim - 2] == k->size[k->ndim - 2];
}

/* scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0, is_causal=False, ...) with a
 * mask that hides nothing, or what is_causal hides: without the mask, for which PyTorch has faster kernels.
 */
PyObject *mg_call_attention(const MgCall *c) {
  enum { MOST = 16 };
  PyObject *const *mask = torch_argument(c, 3, "attn_mask"), *const *flag = torch_argument(c, 5, "is_causal");
  const MgGraph *g = mg_rec->g;
  PyObject *arg[MOST], *names = c->kwnames;
  bool known = mask && mg_standin_is(*mask) && c->npos >= 2 && c->n < MOST && !mg_rec->want_fx &&
               (!flag || *flag == Py_False) &&
               torch_mask_fits(g, mg_val(g, mg_standin_val(*mask)), c->arg[0], c->arg[1]);
  bool none = known && mg_constant_true(g, mg_standin_val(*mask));
  bool causal =
      known && !none && torch_square(g, c->arg[0], c->arg[1]) && mg_constant_causal(g, mg_standin_val(*mask));
  if (!none && !causal) return mg_call_plain(c);
  memcpy(arg, c->arg, (size_t)c->n * sizeof *arg);
  arg[mask - c->arg] = Py_None;
  MgCall inner = *c;
  if (causal && flag) {
    arg[flag - c->arg] = Py_True;
  } else if (causal) {
    PyObject *one = Py_BuildValue("(s)", "is_causal");
    names = one && names ? PySequence_Concat(names, one) : Py_XNewRef(one);
    Py_XDECREF(one);
    if (!names) return NULL;
    arg[inner.n++] = Py_True;
  }
  inner.arg = arg;
  inner.nargsf = (size_t)c->npos;
  inner.kwnames = names;
  PyObject *r = mg_call_plain(&inner);
  if (names != c->kwnames) Py_DECREF(names);
  return r;
}

/* The only item of a list of one, else o itself. */
static PyObject *torch_only(PyObject *o) {
  bool one = (PyList_CheckExact(o) || PyTuple_CheckExact(o)) && PySequence_Fast_GET_SIZE(o) == 1;
  return one ? PySequence_Fast_GET_ITEM(o, 0) : o;
}

/* select(x, dim, index) and roll(x, shifts, dims) by one number out of a tensor, which may be no size. */
PyObject *mg_call_pick(const MgCall *c) {
  PyObject *self = PyCFunction_Check(c->f) ? PyCFunction_GET_SELF(c->f) : NULL;
  bool method = self && mg_standin_is(self);
  if (c->n != (method ? 2 : 3) || !PyCFunction_Check(c->f)) return mg_call_plain(c);
  if (!method) self = c->npos ? c->arg[0] : Py_None;
  bool roll = *((PyCFunctionObject *)c->f)->m_ml->ml_name == 'r';
  PyObject *const *first = torch_argument(c, !method, roll ? "shifts" : "dim"), *const *second =
                                                                                    torch_argument(
                                                                                        c, !method + 1,
                                                                                        roll ? "dims"
                                                                                             : "index");
  if (!first || !second || !mg_standin_is(self)) return mg_call_plain(c);
  PyObject *number = roll ? torch_only(*first) : *second, *along = roll ? torch_only(*second) : *first;
  const MgVal *v = mg_val(mg_rec->g, mg_standin_val(self));
  long dim = PyLong_CheckExact(along) ? PyLong_AsLong(along) : v->ndim;
  if (dim < 0) dim += v->ndim;
  bool known = dim >= 0 && dim < v->ndim && !mg_sym_is(mg_rec->x, v->size[dim], 0) && mg_pick_may(number);
  if (!known) return mg_call_plain(c);
  return roll ? mg_pick_roll(self, number, dim) : mg_pick_select(self, dim, number);
}

/* A list of numbers that are tensors here: the numbers in them.  New. */
static PyObject *torch_items(PyObject *list) {
  PyObject *r = PyList_New(0);
  for (Py_ssize_t i = 0; r && i < PyList_GET_SIZE(list); i++) {
    PyObject *x = PyList_GET_ITEM(list, i),
             *item = mg_standin_check(x) ? PyObject_CallMethod(x, "item", NULL) : Py_NewRef(x);
    if (!item || PyList_Append(r, item)) Py_CLEAR(r);
    Py_XDECREF(item);
  }
  return r;
}

/* What where() may choose, as a tensor of the dtype that eager's result has. */
static PyObject *torch_choice(const MgCall *c, Py_ssize_t i) {
  if (c->npos != 3 || !i) return mg_symnode_number(mg_symnode_of(c->arg[i]));
  PyObject *t = mg_symfloat_standin(c->arg[i]), *pair[2] = {NULL, NULL}, *dtype = NULL, *r = NULL;
  for (int k = 0; t && k < 2; k++) {
    PyObject *o = c->arg[k + 1];
    pair[k] = mg_symfloat_is(o) ? PyObject_CallNoArgs((PyObject *)mg_symfloat_class(o)) : Py_NewRef(o);
  }
  PyObject *torch = pair[0] && pair[1] ? mg_import("torch") : NULL;
  if (torch && (dtype = PyObject_CallMethod(torch, "result_type", "OO", pair[0], pair[1])))
    r = PyObject_CallMethod(t, "to", "O", dtype);
  Py_XDECREF(torch);
  Py_XDECREF(dtype);
  Py_XDECREF(pair[0]);
  Py_XDECREF(pair[1]);
  Py_XDECREF(t);
  return r;
}

static bool torch_is_list(PyObject *o) { return PyList_CheckExact(o) || PyTuple_Check(o); }

/* Is o, or an item of the list that it is, such an object? */
static bool torch_any(PyObject *o, bool (*is)(PyObject *)) {
  bool any = is(o);
  for (Py_ssize_t i = 0; torch_is_list(o) && !any && i < PySequence_Fast_GET_SIZE(o); i++)
    any = torch_any(PySequence_Fast_GET_ITEM(o, i), is);
  return any;
}

/* The class that decides about the dtype of torch.tensor(o), a number or a list of
 * numbers; NULL: something else. */
static PyTypeObject *torch_number_class(PyObject *o) {
  if (mg_symfloat_is(o)) return mg_symfloat_class(o);
  if (PyFloat_CheckExact(o) || PyLong_CheckExact(o)) return Py_TYPE(o);
  PyTypeObject *all = NULL;
  for (Py_ssize_t i = 0; torch_is_list(o) && i < PySequence_Fast_GET_SIZE(o); i++) {
    PyTypeObject *t = torch_number_class(PySequence_Fast_GET_ITEM(o, i));
    if (!t || t == &PyBool_Type) return NULL;
    if (!all || t == &PyFloat_Type) all = t;
  }
  return all == &PyBool_Type ? NULL : all;
}

/* Such numbers as a tensor; to: the dtype, or it and a device. */
static PyObject *torch_number_tensor(PyObject *o, PyObject *torch, PyObject *to) {
  if (torch_is_list(o)) {
    PyObject *l = PyList_New(0), *r = NULL;
    for (Py_ssize_t i = 0; l && i < PySequence_Fast_GET_SIZE(o); i++) {
      PyObject *x = torch_number_tensor(PySequence_Fast_GET_ITEM(o, i), torch, to);
      if (!x || PyList_Append(l, x)) Py_CLEAR(l);
      Py_XDECREF(x);
    }
    if (l) r = PyObject_CallMethod(torch, "stack", "O", l);
    Py_XDECREF(l);
    return r;
  }
  PyObject *t;
  if (mg_symfloat_is(o)) {
    t = mg_symfloat_standin(o);
    PyObject *args = t && mg_rec->want_fx
                         ? PyTuple_Pack(1, t)
                         : NULL; /* in calls of a torch-level graph it stands for the number */
    if (args) Py_SETREF(t, mg_dispatch_call(mg_rec->cap, "clone", "default", args, NULL));
    Py_XDECREF(args);
  } else
    t = mg_standin_is(o) ? PyObject_CallMethod(o, "detach", NULL)
                         : PyObject_CallMethod(torch, "tensor", "O", o);
  PyObject *method = t ? PyObject_GetAttrString(t, "to") : NULL,
           *r = method ? PyObject_CallObject(method, to) : NULL;
  Py_XDECREF(method);
  Py_XDECREF(t);
  return r;
}

/* What a torch-level graph calls for torch.tensor() of floats that it computes: the C++ function asks for
 * them while AOTAutograd traces it. Borrowed; NULL with an exception. */
static PyObject *torch_traced_tensor(const MgCall *c) {
  static PyObject *traced;
  if (!PyCFunction_Check(c->f) || strcmp(((PyCFunctionObject *)c->f)->m_ml->ml_name, "tensor") ||
      torch_number_class(c->arg[0]) != &PyFloat_Type)
    return c->f;
  PyObject *refs = traced ? NULL : mg_import("torch._refs");
  if (refs) traced = PyObject_GetAttrString(refs, "tensor");
  Py_XDECREF(refs);
  return traced;
}

/* The same, as one call of a torch-level graph. */
static PyObject *torch_shown_tensor(const MgCall *c, PyObject *torch, PyObject *to) {
  MgCapture *cap = mg_rec->cap;
  PyObject *args = mg_call_args(c), *kw = args ? mg_call_kwargs(c) : NULL, *r = NULL;
  MgFxCall call = {0};
  MgPause pause = mg_rec_pause();
  int rc = kw ? mg_fx_before(cap, args, kw, &call) : -1;
  mg_rec_resume(pause);
  cap->quiet = true;
  if (!rc) r = torch_number_tensor(c->arg[0], torch, to);
  cap->quiet = false;
  pause = mg_rec_pause();
  PyObject *f = r ? torch_traced_tensor(c) : NULL;
  if (r && (!f || mg_fx_after(cap, f, args, kw, &call, r))) Py_CLEAR(r);
  mg_rec_resume(pause);
  mg_fx_drop(&call);
  Py_XDECREF(args);
  Py_XDECREF(kw);
  return r;
}

/* The dtype of torch.tensor(o) for a list of 0-dim tensors of one dtype, new; NULL: something else. */
static PyObject *torch_list_dtype(PyObject *o) {
  int dtype = -1;
  for (Py_ssize_t i = 0; PyList_CheckExact(o) && i < PyList_GET_SIZE(o); i++) {
    PyObject *x = PyList_GET_ITEM(o, i);
    const MgVal *v = mg_standin_is(x) ? mg_val(mg_rec->g, mg_standin_val(x)) : NULL;
    if (!v || v->ndim || v->device != DEV_cpu || (dtype >= 0 && v->dtype != dtype)) return NULL;
    dtype = v->dtype;
  }
  return dtype < 0 ? NULL : mg_torchobj_new_dtype(dtype);
}

/* numpy.float64, which the text of a torch-level graph shows as a float. */
static bool torch_is_numpy_double(PyObject *o) { return PyFloat_Check(o) && mg_guard_numpy_number(o); }
static bool torch_is_numpy(PyObject *o) {
  return mg_symfloat_is_numpy(o) || (mg_rec->want_fx && torch_is_numpy_double(o));
}

/* o with the numbers themselves.  New. */
static PyObject *torch_plain_numbers(PyObject *o) {
  if (!torch_is_list(o)) return mg_symfloat_plain(o);
  PyObject *l = PyList_New(0);
  for (Py_ssize_t i = 0; l && i < PySequence_Fast_GET_SIZE(o); i++) {
    PyObject *x = torch_plain_numbers(PySequence_Fast_GET_ITEM(o, i));
    if (!x || PyList_Append(l, x)) Py_CLEAR(l);
    Py_XDECREF(x);
  }
  return l;
}

/* NumPy's numbers bring their dtype along, which a number that stands for one would
 * lose: the numbers themselves. */
static PyObject *torch_numpy_tensor(const MgCall *c) {
  PyObject *args = mg_call_args(c), *kw = args ? mg_call_kwargs(c) : NULL, *self = mg_policy_self(c->f),
           *r = NULL;
  PyObject *first = kw ? torch_plain_numbers(c->arg[0]) : NULL, *dtype = NULL;
  bool show = first && mg_rec->want_fx && torch_any(first, torch_is_numpy_double) &&
              !(self && mg_standin_is(self)) && !PyDict_GetItemString(kw, "dtype");
  int rc = first ? 0 : -1;
  if (show && (!(dtype = mg_torchobj_new_dtype(DT_f64)) || PyDict_SetItemString(kw, "dtype", dtype))) rc = -1;
  if (!rc && !PyTuple_SetItem(args, 0, Py_NewRef(first))) r = PyObject_Call(c->f, args, kw);
  Py_XDECREF(first);
  Py_XDECREF(dtype);
  Py_XDECREF(args);
  Py_XDECREF(kw);
  return r;
}

/* torch.tensor(n), torch.as_tensor([n, m]), x.new_tensor(n): of numbers that depend on tensors, or are
 * inputs.  C++ would ask for them. */
bool mg_call_tensor(const MgCall *c, PyObject **r) {
  if (c->npos && torch_any(c->arg[0], torch_is_numpy)) {
    *r = torch_numpy_tensor(c);
    return true;
  }
  PyTypeObject *class =
      c->npos == 1 && torch_any(c->arg[0], mg_symfloat_is) ? torch_number_class(c->arg[0]) : NULL;
  PyObject *dtype = NULL, *device = NULL, *own = !class && c->npos == 1 ? torch_list_dtype(c->arg[0]) : NULL;
  if (own) class = &PyLong_Type;
  for (Py_ssize_t i = c->npos; class && i < c->n; i++) {
    PyObject *name = PyTuple_GET_ITEM(c->kwnames, i - c->npos);
    if (c->arg[i] == Py_None) continue;
    if (!PyUnicode_CompareWithASCIIString(name, "dtype")) dtype = c->arg[i];
    else if (!PyUnicode_CompareWithASCIIString(name, "device")) device = c->arg[i];
    else class = NULL;
  }
  PyObject *torch = class ? mg_import("torch") : NULL, *self = mg_policy_self(c->f);
  if (!torch) {
    Py_XDECREF(own);
    return false;
  }
  *r = NULL;
  if (dtype) Py_INCREF(dtype);
  else if (self && mg_standin_is(self)) dtype = PyObject_GetAttrString(self, "dtype");
  else if (own) dtype = Py_NewRef(own);
  else
    dtype = class == &PyFloat_Type ? PyObject_CallMethod(torch, "get_default_dtype", NULL)
                                   : PyObject_GetAttrString(torch, "int64");
  PyObject *to = dtype ? device ? PyTuple_Pack(2, device, dtype) : PyTuple_Pack(1, dtype) : NULL;
  bool shown = mg_rec->want_fx && !own && !mg_rec->cap->quiet && !mg_fx_is_aten(mg_rec->cap) &&
               !(self && mg_standin_is(self));
  if (to) *r = shown ? torch_shown_tensor(c, torch, to) : torch_number_tensor(c->arg[0], torch, to);
  Py_XDECREF(to);
  Py_XDECREF(own);
  Py_XDECREF(dtype);
  Py_DECREF(torch);
  return true;
}

static bool torch_ints(PyObject *o) {
  bool list = PyList_CheckExact(o);
  if (!list && !PyTuple_CheckExact(o)) return false;
  Py_ssize_t n = list ? PyList_GET_SIZE(o) : PyTuple_GET_SIZE(o);
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *x = list ? PyList_GET_ITEM(o, i) : PyTuple_GET_ITEM(o, i);
    if (!PyLong_CheckExact(x) && !mg_symfloat_is(x)) return false;
  }
  return n > 0;
}

/* torch.ctc_loss whose lengths are numbers, of which C++ makes a tensor by hand:
 * they are made tensors before. */
static bool torch_ctc(const MgCall *c, PyObject **r) {
  static PyObject *make; /* torch.tensor */
  PyObject *arg[8], *torch;
  if (c->n > 8 || c->npos < 4 || strcmp(((PyCFunctionObject *)c->f)->m_ml->ml_name, "ctc_loss")) return false;
  if (!torch_ints(c->arg[2]) || !torch_ints(c->arg[3])) return false;
  if (!make && (torch = mg_import("torch"))) {
    make = PyObject_GetAttrString(torch, "tensor");
    Py_DECREF(torch);
  }
  memcpy(arg, c->arg, (size_t)c->n * sizeof *arg);
  arg[2] = make ? mg_ops.call(make, &c->arg[2], 1, NULL) : NULL;
  arg[3] = arg[2] ? mg_ops.call(make, &c->arg[3], 1, NULL) : NULL;
  *r = arg[3] ? mg_ops.call(c->f, arg, (size_t)c->npos, c->kwnames) : NULL;
  Py_XDECREF(arg[2]);
  Py_XDECREF(arg[3]);
  return true;
}

/* torch.batch_norm in training whose momentum is a number that changes, the running
 * mean of all batches for one. */
static bool torch_norm(const MgCall *c, PyObject **r) {
  static PyObject *norm; /* magneto._glue.output_tensors.batch_norm */
  bool yes =
      c->n == 9 && !c->kwnames && c->arg[5] == Py_True && mg_symfloat_is(c->arg[6]) && !mg_rec->want_fx;
  if (!yes || !mg_standin_is(c->arg[3]) || !mg_standin_is(c->arg[4])) return false;
  MgPause pause = mg_rec_pause();
  PyObject *m = norm ? NULL : mg_glue(GLUE_output_tensors);
  if (m) norm = PyObject_GetAttrString(m, "batch_norm");
  Py_XDECREF(m);
  mg_rec_resume(pause);
  *r = norm ? mg_ops.call(norm, c->arg, 9, NULL) : NULL;
  return true;
}

/* Ops that take numbers where the recording has something that the graph computes: the learning rate of a
 * fused optimizer and what where() chooses go in as tensors, list items of optimizers that are
 * tensors go in as numbers. */
PyObject *mg_call_with_numbers(const MgCall *c) {
  PyObject *arg[32], *other;
  Py_ssize_t done = 0;
  if (mg_call_number_tensors(c, &other) || torch_norm(c, &other) || torch_ctc(c, &other)) return other;
  if (c->n > 32) return mg_call_plain(c);
  for (; done < c->n; done++) {
    PyObject *o = c->arg[done], *name = done < c->npos ? NULL : PyTuple_GET_ITEM(c->kwnames, done - c->npos);
    bool rate = name && mg_symfloat_is(o) && !PyUnicode_CompareWithASCIIString(name, "lr");
    bool items = (done == 3 || name) && PyList_CheckExact(o) && PyList_GET_SIZE(o) &&
                 mg_standin_check(PyList_GET_ITEM(o, 0)) &&
                 strstr(((PyCFunctionObject *)c->f)->m_ml->ml_name, "_addc");
    bool value = (done == 3 || name) && mg_standin_check(o) &&
                 strstr(((PyCFunctionObject *)c->f)->m_ml->ml_name, "_foreach_addc");
    bool choice = !strcmp(((PyCFunctionObject *)c->f)->m_ml->ml_name, "where") && mg_symfloat_is(o);
    arg[done] = choice  ? torch_choice(c, done)
                : rate  ? mg_symfloat_standin(o)
                : items ? torch_items(o)
                : value ? mg_symfloat_dress(PyObject_CallMethod(o, "item", NULL))
                        : Py_NewRef(o);
    if (!arg[done]) break;
  }
  MgCall inner = *c;
  inner.arg = arg;
  inner.nargsf = (size_t)c->npos;
  PyObject *r = done == c->n ? mg_call_plain(&inner) : NULL;
  while (done-- > 0) Py_DECREF(arg[done]);
  return r;
}

/* torch keeps the function that was scripted (or traced) beside its code, for compilers to record. */
PyObject *mg_call_script(const MgCall *c) {
  PyObject *name = PyUnicode_InternFromString("_torchdynamo_inline"),
           *f = name ? mg_rec_getattr(c->f, name) : NULL;
  Py_XDECREF(name);
  if (!f && !mg_rec->abort && PyErr_ExceptionMatches(PyExc_AttributeError)) {
    mg_clear_if(PyExc_AttributeError);
    return mg_call_unknown(c);
  }
  PyObject *r = f ? mg_ops.call(f, c->arg, c->nargsf & ~PY_VECTORCALL_ARGUMENTS_OFFSET, c->kwnames) : NULL;
  Py_XDECREF(f);
  return r;
}

/* torch.autograd.Variable(tensor, requires_grad=False): a leaf over the same memory. */
static bool torch_call_variable(const MgCall *c, PyObject **r) {
  PyTypeObject *t = PyType_Check(c->f) ? (PyTypeObject *)c->f : NULL;
  if (!t || !t->tp_base || strcmp(t->tp_base->tp_name, "torch._C._LegacyVariableBase")) return false;
  bool named = c->kwnames && c->n == 2 && c->npos == 1 &&
               !PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(c->kwnames, 0), "requires_grad");
  if (!c->npos || c->n > 2 || (c->n == 2 && (!(named || c->npos == 2) || !PyBool_Check(c->arg[1]))) ||
      !mg_standin_is(c->arg[0]))
    return false;
  *r = PyObject_CallMethod(c->arg[0], "detach", NULL);
  if (*r && c->n == 2 && c->arg[1] == Py_True) Py_SETREF(*r, PyObject_CallMethod(*r, "requires_grad_", NULL));
  return true;
}

/* torch.LongTensor([1, 2]) and torch.Tensor([1, 2]): the same as torch.tensor of that
 * dtype.  False: something else. */
bool mg_call_legacy(const MgCall *c, PyObject **r) {
  if (torch_call_variable(c, r)) return true;
  PyObject *list = c->n == 1 && c->npos == 1 ? c->arg[0] : NULL;
  bool general = c->f == (PyObject *)mg_torch.tensor;
  if (!list || (!PyList_CheckExact(list) && !PyTuple_CheckExact(list))) return false;
  if (!general && strcmp(Py_TYPE(c->f)->tp_name, "torch.tensortype")) return false;
  PyObject *torch = mg_import("torch"), *dtype = NULL,
           *make = torch ? PyObject_GetAttrString(torch, "tensor") : NULL;
  if (make)
    dtype = general ? PyObject_CallMethod(torch, "get_default_dtype", NULL)
                    : PyObject_GetAttrString(c->f, "dtype");
  PyObject *sparse = general || !dtype ? NULL : PyObject_GetAttrString(c->f, "is_sparse");
  PyObject *cuda = general || !dtype ? NULL : PyObject_GetAttrString(c->f, "is_cuda");
  bool plain = dtype && (general || (sparse == Py_False && cuda == Py_False));
  PyObject *names = plain ? Py_BuildValue("(s)", "dtype") : NULL;
  PyObject *const arg[] = {list, dtype};
  *r = names ? mg_ops.call(make, arg, 1, names) : NULL;
  Py_XDECREF(torch);
  Py_XDECREF(dtype);
  Py_XDECREF(make);
  Py_XDECREF(sparse);
  Py_XDECREF(cuda);
  Py_XDECREF(names);
  return plain || PyErr_Occurred();
}

ValRef mg_call_out(const MgCall *c) {
  for (Py_ssize_t i = c->npos; i < c->n; i++)
    if (!PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(c->kwnames, i - c->npos), "out"))
      return mg_standin_is(c->arg[i]) ? mg_standin_val(c->arg[i]) : 0;
  return 0;
}

static bool torch_is_leaf(PyObject *x) {
  PyObject *leaf = PyObject_GetAttrString(x, "is_leaf");
  Py_XDECREF(leaf);
  mg_clear_as_no();
  return leaf != Py_False;
}

/* requires_grad=True given to a factory: torch sets the flag on the result, and no op tells. */
PyObject *mg_call_made_tensor(const MgCall *c, PyObject *r, ValRef out) {
  if (out && mg_call_out(c) == out) {
    Py_DECREF(r);
    return mg_rec_break(
        BK_out_argument,
        "an op that does not write out= of a tensor subclass, as which recorded tensors appear");
  }
  MgStandInfo *info = c->kwnames && mg_standin_is(r) && mg_facts_requires_grad(r) ? mg_standin_info(r) : NULL;
  if (!info || !info->cap || info->input) return r;
  MgGraph *g = info->cap->rec->g;
  MgVal *v = mg_val(g, info->val);
  if (v->requires_grad || !v->def) return r;
  if (info->cap->wrappers && !torch_is_leaf(r)) return r; /* made of tensors that wrap others */
  if (info->cap->rec->want_fx) {
    Py_DECREF(r);
    return mg_rec_break(BK_custom_backend, "a tensor is made with requires_grad=True");
  }
  mg_node(g, v->def)->leaf = true;
  v->requires_grad = true;
  return r;
}

/* C code that insists on a real int or float: once more with the numbers themselves, guarded. */
PyObject *mg_call_exact(const MgCall *c) {
  PyObject *small[16], **arg = small;
  Py_ssize_t done = 0;
  bool any = false;
  if (!PyErr_ExceptionMatches(PyExc_TypeError)) return NULL;
  for (Py_ssize_t i = 0; i < c->n; i++) any |= mg_symfloat_is(c->arg[i]);
  if (!any) return NULL;
  mg_clear_if(PyExc_TypeError);
  if (c->n > 16 && !(arg = mg_malloc(sizeof *arg * (size_t)c->n))) return PyErr_NoMemory();
  for (; done < c->n; done++) {
    PyObject *o = c->arg[done];
    if (!(arg[done] = mg_symfloat_is(o) ? mg_symnode_number(mg_symnode_of(o)) : Py_NewRef(o))) break;
  }
  PyObject *r = done == c->n ? PyObject_Vectorcall(c->f, arg, (size_t)c->npos, c->kwnames) : NULL;
  while (done-- > 0) Py_DECREF(arg[done]);
  if (arg != small) free(arg);
  return r;
}

/* May an exception of C code be due to symbolic sizes?  With numbers it is raised again, or not. */
static bool torch_blames_sizes(void) {
  return PyErr_ExceptionMatches(PyExc_RuntimeError) || PyErr_ExceptionMatches(PyExc_TypeError) ||
         PyErr_ExceptionMatches(PyExc_ValueError) || PyErr_ExceptionMatches(PyExc_IndexError);
}

/* Torch's Python kernels of recurrent networks forget the dropout between layers; the arguments are
 * (..., dropout, train, ...). */
static bool torch_kernel_differs(const MgCall *c) {
  static const char *const recurrent[] = {"lstm", "gru", "rnn_tanh", "rnn_relu"};
  const char *name = PyCFunction_Check(c->f) ? ((PyCFunctionObject *)c->f)->m_ml->ml_name : "";
  bool found = false, differs = false;
  for (size_t i = 0; i < sizeof recurrent / sizeof *recurrent; i++) found |= !strcmp(name, recurrent[i]);
  for (Py_ssize_t i = 0; found && i < c->n; i++)
    differs |= mg_symfloat_is(c->arg[i]) || (PyFloat_Check(c->arg[i]) && PyFloat_AS_DOUBLE(c->arg[i]) != 0 &&
                                             (i + 1 == c->n || c->arg[i + 1] != Py_False));
  return differs;
}

/* Interpolation asks for all sizes as numbers: the operator that it calls does not.  New; NULL with an
 * exception. */
static PyObject *torch_upsample(const MgCall *c, const char *name) {
  PyObject *m = mg_glue(GLUE_polyfills), *f = m ? PyObject_GetAttrString(m, "upsample") : NULL;
  PyObject *args = f ? PyTuple_New(c->npos + 1) : NULL, *first = args ? PyUnicode_FromString(name) : NULL;
  if (first) {
    PyTuple_SET_ITEM(args, 0, first);
    for (Py_ssize_t i = 0; i < c->npos; i++) PyTuple_SET_ITEM(args, i + 1, Py_NewRef(c->arg[i]));
  }
  PyObject *r = first ? PyObject_CallObject(f, args) : NULL;
  Py_XDECREF(m);
  Py_XDECREF(f);
  Py_XDECREF(args);
  return r;
}

/* The call by torch's own Python kernel. */
static PyObject *torch_python_kernel(const MgCall *c) {
  PyObject *kernels = mg_import("torch._decomp"), *C = kernels ? mg_import("torch._C") : NULL, *r = NULL;
  PyObject *on = C ? mg_context_enter(PyObject_CallMethod(C, "_EnablePythonDispatcher", NULL)) : NULL;
  if (on) {
    r = mg_call_plain(c);
    if (mg_context_exit(on)) Py_CLEAR(r);
  }
  Py_XDECREF(kernels);
  Py_XDECREF(C);
  return r;
}

/* A composite op whose C++ asks for sizes as numbers: once more by torch's own Python kernel for it, which
 * computes with sizes of any kind (recurrent networks, short-time Fourier transforms).  What the first try
 * has recorded stays behind, unused.  NULL without an abort: the exception stays. */
static PyObject *torch_by_python_kernel(const MgCall *c, uint32_t nodes) {
  MgGraph *g = mg_rec->g;
  if (!mg_call_has_standin(c) || torch_kernel_differs(c)) return NULL;
  for (NodeRef n = nodes; n < g->nnode; n++)
    if (mg_node_effect(mg_node(g, n))) return NULL;
  PyObject *t, *v, *tb;
  PyErr_Fetch(&t, &v, &tb);
  MgHookMode mode = mg_hook_mode;
  mg_hook_mode = HOOK_off; /* torch's dispatcher and its kernels are no part of the program */
  const char *name = PyCFunction_Check(c->f) ? ((PyCFunctionObject *)c->f)->m_ml->ml_name : "";
  bool upsamples = strstr(name, "upsample_") && !c->kwnames && c->npos >= 3;
  PyObject *r = upsamples ? torch_upsample(c, name) : torch_python_kernel(c);
  mg_hook_mode = mode;
  if (!r && !mg_rec->abort) {
    PyErr_Restore(t, v, tb);
    return NULL;
  }
  Py_XDECREF(t);
  Py_XDECREF(v);
  Py_XDECREF(tb);
  return r;
}

PyObject *mg_call_sizes(const MgCall *c, uint32_t nodes) {
  if (!torch_blames_sizes()) return NULL;
  if (!mg_symsize_inputs(&mg_rec->cap->sizes))
    return mg_rec_break(BK_data_dependent, "torch wants the number of a size");
  PyObject *r = torch_by_python_kernel(c, nodes);
  if (mg_rec->abort) mg_retry_fail(mg_rec, RETRY_sizes); /* no break of the program */
  else if (!r) mg_symsize_give_up(mg_rec, "torch wants the numbers of sizes");
  return r;
}
