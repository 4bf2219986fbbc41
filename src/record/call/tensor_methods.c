/* What a stand-in overrides of torch.Tensor: everything that would reach its memory without dispatching, and
 * what user code must see of the older tensor it stands for.
 * In: calls on stand-ins.  Out: a graph break, or an answer that eager would give. */
#include "record/call/tensor_methods.h"
#include <string.h>
#include "entry/guard/tensor_contents.h"
#include "entry/guard/source.h"
#include "entry/launch/break_reasons.h"
#include "entry/launch/trace.h"
#include "host/python/hook_mode.h"
#include "host/python/names.h"
#include "host/torch/tensor_facts.h"
#include "record/core/capture.h"
#include "record/core/identity.h"
#include "record/core/recording.h"
#include "record/dispatch/constant_tensors.h"
#include "record/dispatch/dispatch.h"
#include "record/numpy/array_ops.h"
#include "record/object/wrap.h"
#include "record/symbolic/item_numbers.h"
#include "record/tensor/inference_mode.h"
#include "record/tensor/input_overlap.h"
#include "record/tensor/leaf_grad.h"
#include "record/tensor/standin.h"
#include "record/tensor/tensor_hooks.h"
#include "record/tensor/view_state.h"

/* Methods and attributes that reach memory, storage or autograd's own state: the recording cannot go on.
 * They break where they are looked up, so that no bound method of a stand-in is left on the user's stack. */
static const struct {
  const char *name;
  MgBreakCode code;
} standin_breaking[] = {
    {"tolist", BK_data_dependent},
    {"data_ptr", BK_tensor_memory},
    {"untyped_storage", BK_tensor_memory},
    {"storage", BK_tensor_memory},
    {"storage_type", BK_tensor_memory},
    {"share_memory_", BK_tensor_memory},
    {"pin_memory", BK_tensor_memory},
    {"__dlpack__", BK_tensor_memory},
    {"__reduce_ex__", BK_tensor_memory},
    {"__array__", BK_tensor_memory},
    {"__repr__", BK_data_dependent},
    {"__str__", BK_data_dependent},
    {"__format__", BK_data_dependent},
    {"const_data_ptr", BK_tensor_memory},
    {"mutable_data_ptr", BK_tensor_memory},
    {"set_", BK_memory_change},
    {"map_", BK_data_dependent},
    {"map2_", BK_data_dependent},
    {"apply_", BK_data_dependent},
    {"retain_grad", BK_hook},
    {"_backward_hooks", BK_hook},
    {"_post_accumulate_grad_hooks", BK_hook}, /* which torch's own Python reads and sets to register a hook */
    {"to_dense", BK_layout_op},
    {"to_sparse", BK_layout_op},
    {"__complex__", BK_data_dependent},
    {"resize_", BK_memory_change},
    {"resize_as_", BK_memory_change},
    {"is_set_to", BK_tensor_memory},
    {"__cuda_array_interface__", BK_tensor_memory},
    {"_cdata", BK_tensor_memory},
};

/* A break in the recording that the stand-in belongs to, also while recording is
 * paused (torch's own Python). */
static PyObject *standin_break(PyObject *self, MgBreakCode code, const char *what) {
  MgStandInfo *info = mg_standin_info(self);
  MgRec *before = mg_rec;
  if (info && info->cap) mg_rec = info->cap->rec;
  mg_rec_break(code, "%s", what);
  mg_rec = before;
  return NULL;
}

static PyObject *standin_known_tolist(PyObject *real, PyObject *unused) {
  return PyObject_CallMethod(real, "tolist", NULL);
}
/* A snapshot may rebuild the bound method for the real tensor: then torch's own is meant. */
static PyObject *standin_tolist(PyObject *self, PyObject *unused) {
  return mg_standin_is(self) ? mg_symvalue_list(mg_standin_info(self)->cap, self)
                             : PyObject_CallMethod(self, "tolist", NULL);
}
static PyMethodDef standin_tolist_def = {"tolist", standin_tolist, METH_NOARGS, NULL};
static PyMethodDef standin_known_tolist_def = {"tolist", standin_known_tolist, METH_NOARGS, NULL};

static PyObject *standin_base_get(PyObject *self, const char *name);

/* Is torch looking for the overload of an operator?  It says what does not fit of the
 * others, to nobody when one does. */
static bool standin_in_overloads(void) {
  PyFrameObject *f = PyEval_GetFrame();
  PyCodeObject *code = f ? PyFrame_GetCode(f) : NULL;
  PyObject *call = code ? _PyType_Lookup((PyTypeObject *)mg_torch.op_packet, mg_names.call) : NULL;
  bool is = call && PyFunction_Check(call) && PyFunction_GET_CODE(call) == (PyObject *)code;
  Py_XDECREF(code);
  return is;
}

static PyObject *standin_kind(PyObject *self, PyObject *unused) { return PyUnicode_FromString("Tensor"); }
static PyMethodDef standin_kind_def = {"__str__", standin_kind, METH_NOARGS, NULL};

/* number: what a 0-dim tensor holds. */
static PyObject *standin_known_format(PyObject *number, PyObject *spec) {
  return PyObject_Format(number, spec);
}
static PyMethodDef standin_known_format_def = {"__format__", standin_known_format, METH_O, NULL};

/* The number of a 0-dim tensor of integers, guarded where it comes from outside; new.  NULL without an
 * exception: it is not known. */
static PyObject *standin_known_number(const MgStandInfo *info) {
  const MgVal *v = mg_val(info->cap->rec->g, info->val);
  PyObject *real = v->ndim ? NULL : mg_constval_contents(info->cap, info->val),
           *all = real ? mg_contents_of(real) : NULL;
  PyObject *x = all ? PyTuple_GET_ITEM(all, 0) : NULL;
  PyObject *r = x && v->dtype == DT_bool ? PyBool_FromLong(PyObject_IsTrue(x)) : Py_XNewRef(x);
  Py_XDECREF(all);
  Py_XDECREF(real);
  return r;
}

static PyObject *standin_break_get(PyObject *self, void *row) {
  const char *name = standin_breaking[(size_t)row].name;
  char what[64];
  MgStandInfo *info = mg_standin_info(self);
  if (info && info->cap && !strcmp(name, "tolist")) {
    PyObject *real = Py_XNewRef(mg_constval(info->cap, info->val));
    bool follows = mg_symvalue_can(info->cap, self); /* the numbers may never be asked for */
    if (!real && !follows) real = mg_constval_contents(info->cap, info->val);
    PyObject *known = real ? PyCFunction_New(&standin_known_tolist_def, real) : NULL;
    Py_XDECREF(real);
    if (known || PyErr_Occurred()) return known;
    mg_constval_unknown(info->cap, info->val);
    if (follows) return PyCFunction_New(&standin_tolist_def, self);
  }
  if (info && info->cap && !strcmp(name, "__format__")) {
    PyObject *number = standin_known_number(info),
             *f = number ? PyCFunction_New(&standin_known_format_def, number) : NULL;
    Py_XDECREF(number);
    if (f || PyErr_Occurred()) return f;
  }
  if ((!strcmp(name, "__str__") || !strcmp(name, "__repr__")) && standin_in_overloads())
    return PyCFunction_New(&standin_kind_def, self);
  if (info && info->cap && info->cap->glue && !strcmp(name, "untyped_storage"))
    return standin_base_get(self, name);
  if (!strcmp(name, "retain_grad") || !strcmp(name, "_backward_hooks")) mg_joint_links(self);
  snprintf(what, sizeof what, "Tensor.%s", name);
  return standin_break(self, standin_breaking[(size_t)row].code, what);
}

static int standin_base_set(PyObject *self, const char *name, PyObject *v) {
  PyObject *d = PyObject_GetAttrString((PyObject *)mg_torch.tensor, name), *r = NULL;
  if (d)
    r = v ? PyObject_CallMethod(d, "__set__", "OO", self, v)
          : PyObject_CallMethod(d, "__delete__", "O", self);
  Py_XDECREF(d);
  Py_XDECREF(r);
  return r ? 0 : -1;
}

static int standin_break_set(PyObject *self, PyObject *v, void *row) {
  const char *name = standin_breaking[(size_t)row].name;
  char what[64];
  if (!v || v == Py_None) return standin_base_set(self, name, v); /* torch clears what was never set */
  snprintf(what, sizeof what, "assignment to Tensor.%s", name);
  standin_break(self, BK_tensor_attribute, what);
  return -1;
}

/* A snapshot may rebuild a bound method of a stand-in for the real tensor: then
 * torch's own method is meant. */
static PyObject *standin_of_real(PyObject *self, const char *name, PyObject *args, PyObject *kwargs) {
  PyObject *bound = PyObject_GetAttrString(self, name),
           *r = bound ? PyObject_Call(bound, args, kwargs) : NULL;
  Py_XDECREF(bound);
  return r;
}

/* Has the tensor what only the real one's copy gets: attributes of the program, or
 * other strides than a clone? */
static int standin_copies_odd(PyObject *self, PyObject *copy) {
  const MgGraph *g = mg_standin_info(self)->cap->rec->g;
  const MgVal *a = mg_val(g, mg_standin_val(self)), *b = mg_val(g, mg_standin_val(copy));
  PyObject *dict =
      mg_older(self) ? Py_XNewRef(mg_older_dict(self)) : PyObject_GetAttrString(self, "__dict__");
  int odd = dict ? PyObject_IsTrue(dict) : -1;
  Py_XDECREF(dict);
  for (int i = 0; !odd && i < a->ndim; i++) odd = !mg_ex_same(a->stride[i], b->stride[i]);
  return odd;
}

static PyObject *standin_deepcopy(PyObject *self, PyObject *memo);

/* The copy's gradient is a copy of the gradient. */
static int standin_copy_grad(PyObject *self, PyObject *copy, PyObject *memo) {
  PyObject *grad = PyObject_GetAttrString(self, "grad");
  PyObject *twin = !grad ? NULL : grad == Py_None ? Py_NewRef(grad) : standin_deepcopy(grad, memo);
  int rc = !twin || (twin != Py_None && PyObject_SetAttrString(copy, "grad", twin)) ? -1 : 0;
  Py_XDECREF(grad);
  Py_XDECREF(twin);
  return rc;
}

/* copy.deepcopy of a tensor: torch's own refuses subclasses without storage. */
static PyObject *standin_deepcopy(PyObject *self, PyObject *memo) {
  if (!mg_standin_is(self) || !PyDict_Check(memo))
    return PyObject_CallMethod(self, "__deepcopy__", "O", memo);
  if (Py_TYPE(self) != mg_standin_type)
    return standin_break(self, BK_deepcopy, "deepcopy of a subclass"); /* up to its new_empty, slots, dict */
  PyObject *grad = NULL, *leaf = NULL, *plain = NULL, *copy = NULL, *key = PyLong_FromVoidPtr(self),
           *done = key ? PyDict_GetItemWithError(memo, key) : NULL;
  bool param = mg_standin_info(self)->is_param;
  int odd;
  if (done || !key || PyErr_Occurred()) {
    Py_XDECREF(key);
    return Py_XNewRef(done);
  }
  if (!(grad = PyObject_GetAttrString(self, "requires_grad")) ||
      !(leaf = PyObject_GetAttrString(self, "is_leaf")))
    goto done;
  if (leaf != Py_True) {
    PyErr_SetString(
        PyExc_RuntimeError,
        "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the "
        "moment.  If you were attempting to deepcopy a module, this may be because of a "
        "torch.nn.utils.weight_norm "
        "usage, see https://github.com/pytorch/pytorch/pull/103001");
    goto done;
  }
  if (!(plain = PyObject_CallMethod(self, "detach", NULL))) goto done;
  if (!(copy = PyObject_CallMethod(plain, "clone", NULL))) goto done;
  mg_standin_info(copy)->is_param = param;
  if (grad == Py_True && PyObject_SetAttrString(copy, "requires_grad", Py_True)) goto fail;
  if (!param) { /* a parameter's copy is a clone of its values and no more */
    if ((odd = standin_copies_odd(self, copy))) {
      if (odd > 0) standin_break(self, BK_deepcopy, "deepcopy of a tensor with attributes or gaps");
      goto fail;
    }
    if (standin_copy_grad(self, copy, memo)) goto fail;
  }
  if (PyDict_SetItem(memo, key, copy)) goto fail;
  goto done;
fail:
  Py_CLEAR(copy);
done:
  Py_XDECREF(grad);
  Py_XDECREF(leaf);
  Py_XDECREF(plain);
  Py_XDECREF(key);
  return copy;
}

/* ---- attributes ---- */

/* Before something that is different for a tensor that requires grad, with gradients recorded or not. */
static void standin_asks_grad(PyObject *self) {
  MgStandInfo *info = mg_standin_is(self) ? mg_standin_info(self) : NULL;
  if (info && info->cap) info->cap->asks_grad = true;
}

/* The attribute as torch.Tensor has it. */
static PyObject *standin_base_get(PyObject *self, const char *name) {
  PyObject *d = PyObject_GetAttrString((PyObject *)mg_torch.tensor, name), *r = NULL;
  if (d) r = PyObject_CallMethod(d, "__get__", "OO", self, mg_torch.tensor);
  Py_XDECREF(d);
  return r;
}

static PyObject *standin_get_is_param(PyObject *self, void *closure) {
  return PyBool_FromLong(mg_standin_info(self)->is_param);
}
static int standin_set_is_param(PyObject *self, PyObject *v, void *closure) {
  int yes = v ? PyObject_IsTrue(v) : 0;
  if (yes < 0) return -1;
  mg_standin_info(self)->is_param = yes;
  return 0;
}

/* A detach, but for versions: writes to the result do not count for the tensor. */
static PyObject *standin_get_data(PyObject *self, void *closure) {
  PyObject *r = standin_base_get(self, "data");
  MgStandInfo *info = r && mg_standin_is(r) ? mg_standin_info(r) : NULL;
  NodeRef by = info && info->cap && info->val ? mg_val(info->cap->rec->g, info->val)->def : 0;
  MgNode *n = by ? mg_node(info->cap->rec->g, by) : NULL;
  if (n && !strcmp(n->op->full, "aten::detach")) n->counts = true;
  return r;
}

/* Are both the same elements of the same memory? */
static bool standin_same_elements(const MgStandInfo *a, const MgStandInfo *b) {
  if (!a->cap || a->cap != b->cap) return false;
  const MgGraph *g = a->cap->rec->g;
  const MgVal *x = mg_val(g, a->val), *y = mg_val(g, b->val);
  bool same = x->storage == y->storage && x->dtype == y->dtype && x->ndim == y->ndim && x->bits == y->bits &&
              mg_ex_same(x->offset, y->offset);
  for (int i = 0; same && i < x->ndim; i++)
    same = mg_ex_same(x->size[i], y->size[i]) && mg_ex_same(x->stride[i], y->stride[i]);
  return same;
}

/* An older tensor gets the memory of v, when the graph has run.  One that requires grad is read from here on
 * where no gradients are recorded (the update of an optimizer): they would end in
 * what it was at the start. */
static int standin_swap_data(MgStandInfo *info, PyObject *self, PyObject *v) {
  MgCapture *cap = info->cap;
  PyObject *alias = PyObject_CallMethod(v, "detach", NULL);
  standin_asks_grad(self);
  int rc =
      alias && (cap->swapped || (cap->swapped = PyList_New(0))) ? standin_base_set(self, "data", alias) : -1;
  if (!rc && (PyList_Append(cap->swapped, self) || PyList_Append(cap->swapped, alias))) rc = -1;
  if (!rc) info->val = mg_standin_val(alias), info->swapped = mg_facts_requires_grad(self);
  Py_XDECREF(alias);
  return rc;
}

/* `x.data = y` never dispatches: x is an alias of y from now on. */
static int standin_set_data(PyObject *self, PyObject *v, void *closure) {
  MgStandInfo *info = mg_standin_info(self);
  if (v && mg_standin_is(v) && standin_same_elements(info, mg_standin_info(v)))
    return 0; /* x.data -= y assigns what it changed */
  bool older = info->input, plain = v && Py_TYPE(self) == mg_standin_type && Py_TYPE(v) == mg_standin_type;
  const MgCapInput *in = older ? &info->cap->input[info->input - 1] : NULL;
  if (!v || !mg_standin_is(v) || (older && (!plain || in->nonleaf)))
    return standin_break(self, BK_tensor_attribute, "assignment to Tensor.data"), -1;
  if (older) return standin_swap_data(info, self, v);
  if (standin_base_set(self, "data", v)) return -1;
  info->val = mg_standin_val(v);
  if (info->cap->rec->want_fx) return 0;
  PyObject *args = PyTuple_Pack(1, v),
           *alias = args ? mg_dispatch_call(info->cap, "detach", "default", args, NULL) : NULL;
  if (alias) info->val = mg_standin_val(alias); /* another tensor over that memory */
  Py_XDECREF(args);
  Py_XDECREF(alias);
  return alias ? 0 : -1;
}

static PyObject *standin_get_grad(PyObject *self, void *closure) {
  standin_asks_grad(self);
  return mg_backward_load_grad(self) ? NULL : standin_base_get(self, "grad");
}
static int standin_set_grad(PyObject *self, PyObject *v, void *closure) {
  if (v && v != Py_None && !mg_standin_is(v))
    return standin_break(self, BK_tensor_attribute, "assignment to Tensor.grad"), -1;
  return mg_backward_forget_grad(self) ? -1 : standin_base_set(self, "grad", v);
}

static bool standin_for_inference(PyObject *self) {
  MgStandInfo *info = mg_standin_info(self);
  return info->cap && mg_inference_mode_of(info->cap, info->val);
}

static PyObject *standin_get_requires_grad(PyObject *self, void *closure) {
  standin_asks_grad(self);
  return standin_base_get(self, "requires_grad");
}
/* A tensor of the recording starts a gradient graph: in the graph it is a detached alias of what it was. */
static int standin_make_leaf(PyObject *self, MgStandInfo *info) {
  MgGraph *g = info->cap->rec->g;
  if (standin_base_set(self, "requires_grad", Py_True)) return -1; /* torch's own errors */
  PyObject *alias = PyObject_CallMethod(self, "detach", NULL);
  if (!alias) return -1;
  info->val = mg_standin_val(alias);
  mg_node(g, mg_val(g, info->val)->def)->leaf = true;
  mg_val(g, info->val)->requires_grad = true;
  Py_DECREF(alias);
  return 0;
}

/* An older leaf takes part in gradient graphs from here on, or no more; the snapshot leaves it so. */
static int standin_switch_leaf(PyObject *self, MgStandInfo *info, PyObject *v) {
  if (standin_base_set(self, "requires_grad", v)) return -1; /* torch's own errors */
  info->cap->input[info->input - 1].switched = true;
  mg_val(info->cap->rec->g, info->val)->requires_grad = v == Py_True;
  return 0;
}

static int standin_set_requires_grad(PyObject *self, PyObject *v, void *closure) {
  MgStandInfo *info = mg_standin_info(self);
  standin_asks_grad(self);
  PyObject *now = standin_base_get(self, "requires_grad");
  int want = v ? PyObject_IsTrue(v) : 0, have = now ? PyObject_IsTrue(now) : -1;
  Py_XDECREF(now);
  if (want < 0 || have < 0) return -1;
  if (want == have) return 0;
  if (standin_for_inference(self))
    return standin_break(self, BK_inference_tensor, "a change of requires_grad of an inference tensor"), -1;
  /* While an input is being made its flag is set here too: its value is already marked.
   * Marks of others are rough. */
  const MgVal *val = info->cap ? mg_val(info->cap->rec->g, info->val) : NULL;
  if (!val || (want && val->requires_grad && !val->def)) return standin_base_set(self, "requires_grad", v);
  const MgRec *r = info->cap->rec;
  if (info->input && !r->want_fx && r->guards && !mg_retry_denied(r, RETRY_switch) && !r->in_joint)
    return standin_switch_leaf(self, info, v);
  if (info->input || !want || r->want_fx)
    return standin_break(self, BK_requires_grad, "a change of requires_grad"), -1;
  return standin_make_leaf(self, info);
}
static PyObject *standin_requires_grad_(PyObject *self, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"requires_grad", NULL};
  int want = 1;
  if (!mg_standin_is(self)) return standin_of_real(self, "requires_grad_", args, kwargs);
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|p", names, &want)) return NULL;
  const MgStandInfo *info = mg_standin_info(self);
  MgDtype d = info->cap ? (MgDtype)mg_val(info->cap->rec->g, info->val)->dtype : DT_f32;
  if (want && !mg_dtype_is_float(d) && !mg_dtype_is_complex(d)) /* the attribute's words are others */
    return PyErr_Format(PyExc_RuntimeError, "only Tensors of floating point dtype can require gradients");
  if (standin_set_requires_grad(self, want ? Py_True : Py_False, NULL)) return NULL;
  return Py_NewRef(self);
}

/* No op: torch does it to the tensor at hand. */
static PyObject *standin_detach_(PyObject *self, PyObject *unused) {
  standin_asks_grad(self);
  MgStandInfo *info = mg_standin_is(self) ? mg_standin_info(self) : NULL;
  PyObject *base = info && info->cap && info->input ? mg_viewstate_base(self) : Py_NewRef(Py_None);
  bool plain = base == Py_None &&
               !(info && info->cap && info->input && mg_val(info->cap->rec->g, info->val)->requires_grad);
  Py_XDECREF(base);
  if (!plain) return base ? standin_break(self, BK_outside_shape, "detach_ of a tensor from outside") : NULL;
  return PyObject_CallMethod((PyObject *)mg_torch.tensor, "detach_", "O", self);
}

static PyObject *standin_is_inference(PyObject *self, PyObject *unused) {
  MgStandInfo *info = mg_standin_is(self) ? mg_standin_info(self) : NULL;
  int yes = info && info->cap ? standin_for_inference(self) : mg_standin_inference(self);
  return yes < 0 ? NULL : PyBool_FromLong(yes);
}

static PyObject *standin_storage_offset(PyObject *self, PyObject *unused) {
  MgStandInfo *info = mg_standin_is(self) ? mg_standin_info(self) : NULL;
  if (info && info->cap) mg_alias_guard_start(info->cap->rec, info->val);
  return PyObject_CallMethod((PyObject *)mg_torch.tensor, "storage_offset", "O", self);
}

static PyObject *standin_hook(PyObject *self, PyObject *hook, bool accumulate) {
  standin_asks_grad(self);
  if (mg_standin_is(self)) return mg_tensorhook_register(self, hook, accumulate);
  return PyObject_CallMethod(self, accumulate ? "register_post_accumulate_grad_hook" : "register_hook", "O",
                             hook);
}
static PyObject *standin_register_hook(PyObject *self, PyObject *hook) {
  return standin_hook(self, hook, false);
}
static PyObject *standin_register_accumulate(PyObject *self, PyObject *hook) {
  return standin_hook(self, hook, true);
}

/* In an FX graph the items of a tensor that is iterated over are subscripts of it, as torch.compile writes
 * them; the __torch_function__ of a subclass sees the calls that torch makes. */
static PyObject *standin_iter(PyObject *self, PyObject *unused) {
  MgStandInfo *info = mg_standin_info(self);
  const MgRec *r = info && info->cap ? info->cap->rec : NULL;
  if (!r || !r->want_fx || Py_TYPE(self) != mg_standin_type || !mg_val(r->g, info->val)->ndim)
    return PyObject_CallMethod((PyObject *)mg_torch.tensor, "__iter__", "O", self);
  Py_ssize_t n = PyObject_Size(self);
  PyObject *items = n < 0 ? NULL : PyTuple_New(n), *it = NULL;
  for (Py_ssize_t i = 0; items && i < n; i++) {
    PyObject *key = PyLong_FromSsize_t(i), *x = key ? PyObject_GetItem(self, key) : NULL;
    Py_XDECREF(key);
    if (!x) Py_CLEAR(items);
    else PyTuple_SET_ITEM(items, i, x);
  }
  if (items) it = PyObject_GetIter(items);
  Py_XDECREF(items);
  return it;
}

/* The array shares the tensor's memory. */
static PyObject *standin_numpy(PyObject *self, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"force", NULL};
  int force = 0;
  if (!mg_standin_is(self)) return standin_of_real(self, "numpy", args, kwargs);
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$p", names, &force)) return NULL;
  MgStandInfo *info = mg_standin_info(self);
  return info->cap ? mg_array_of_tensor(self, force)
                   : standin_break(self, BK_other_recording, "Tensor.numpy");
}

/* What is true of the older tensor. */
static PyObject *standin_get_of_older(PyObject *self, void *name) {
  MgStandInfo *info = mg_standin_is(self) ? mg_standin_info(self) : NULL;
  standin_asks_grad(self);
  const MgCapInput *in = info && info->cap && info->input ? &info->cap->input[info->input - 1] : NULL;
  if (!in || !in->nonleaf || !in->src || !info->cap->rec->guards) return standin_base_get(self, name);
  PyObject *now = standin_base_get(in->real, name), *text = now ? PyUnicode_InternFromString(name) : NULL,
           *seen = NULL;
  if (text) seen = mg_wrap(now, mg_source(info->cap->rec->guards, SRC_attr, in->src, 0, text));
  Py_XDECREF(text);
  Py_XDECREF(now);
  return seen;
}

static PyObject *standin_get_of_leaf(PyObject *self, void *name) {
  standin_asks_grad(self);
  MgStandInfo *info = mg_standin_is(self) ? mg_standin_info(self) : NULL;
  if (info && info->cap && info->input) {
    mg_standin_guard_leaf(info->cap, info->input - 1);
    bool older =
        !strcmp(name, "grad_fn") && info->cap->input[info->input - 1].nonleaf && !info->cap->rec->in_joint;
    if (older && info->cap->input[info->input - 1].val == info->val)
      return standin_break(self, BK_gradient_outside, "grad_fn of a tensor from outside");
  }
  return standin_base_get(self, name);
}

static PyObject *standin_get_version(PyObject *self, void *closure) {
  return mg_standin_is(self) && mg_standin_info(self)->cap ? mg_viewstate_version(self)
                                                           : standin_base_get(self, "_version");
}
static PyObject *standin_get_base(PyObject *self, void *closure) {
  return mg_standin_is(self) && mg_standin_info(self)->cap ? mg_viewstate_base(self)
                                                           : standin_base_get(self, "_base");
}
static PyObject *standin_is_view(PyObject *self, PyObject *unused) {
  PyObject *base = standin_get_base(self, NULL);
  Py_XDECREF(base);
  return base ? PyBool_FromLong(base != Py_None) : NULL;
}

static PyGetSetDef standin_getsets[] = {
    {"_is_param", standin_get_is_param, standin_set_is_param, NULL, NULL},
    {"data", standin_get_data, standin_set_data, NULL, NULL},
    {"grad", standin_get_grad, standin_set_grad, NULL, NULL},
    {"_grad", standin_get_grad, standin_set_grad, NULL,
     NULL}, /* the same without torch's warning about non-leaves */
    {"is_leaf", standin_get_of_leaf, NULL, NULL, "is_leaf"},
    {"grad_fn", standin_get_of_leaf, NULL, NULL, "grad_fn"},
    {"retains_grad", standin_get_of_older, NULL, NULL, "retains_grad"},
    {"output_nr", standin_get_of_older, NULL, NULL, "output_nr"},
    {"_version", standin_get_version, NULL, NULL, NULL},
    {"_base", standin_get_base, NULL, NULL, NULL},
    {"requires_grad", standin_get_requires_grad, standin_set_requires_grad, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyMethodDef standin_method_defs[] = {
    {"__deepcopy__", standin_deepcopy, METH_O, NULL},
    {"__iter__", standin_iter, METH_NOARGS, NULL},
    {"numpy", (PyCFunction)(void *)standin_numpy, METH_VARARGS | METH_KEYWORDS, NULL},
    {"detach_", standin_detach_, METH_NOARGS, NULL},
    {"_is_view", standin_is_view, METH_NOARGS, NULL},
    {"is_inference", standin_is_inference, METH_NOARGS, NULL},
    {"storage_offset", standin_storage_offset, METH_NOARGS, NULL},
    {"register_hook", standin_register_hook, METH_O, NULL},
    {"register_post_accumulate_grad_hook", standin_register_accumulate, METH_O, NULL},
    {"requires_grad_", (PyCFunction)(void *)standin_requires_grad_, METH_VARARGS | METH_KEYWORDS, NULL},
    {NULL, NULL, 0, NULL}};

static int standin_add(PyTypeObject *type, const char *name, PyObject *descr) {
  if (!descr) return -1;
  int rc = PyObject_SetAttrString((PyObject *)type, name, descr);
  Py_DECREF(descr);
  return rc;
}

#define STANDIN_NBREAKING (sizeof standin_breaking / sizeof *standin_breaking)

int mg_standin_methods_init(PyObject *module) {
  PyTypeObject *type = mg_standin_type;
  static PyGetSetDef breaking[STANDIN_NBREAKING];
  for (size_t i = 0; i < STANDIN_NBREAKING; i++) {
    const char *name = standin_breaking[i].name;
    breaking[i] = (PyGetSetDef){name, standin_break_get, standin_break_set, NULL, (void *)i};
    if (standin_add(type, name, PyDescr_NewGetSet(type, &breaking[i]))) return -1;
  }
  for (PyMethodDef *m = standin_method_defs; m->ml_name; m++)
    if (standin_add(type, m->ml_name, PyDescr_NewMethod(type, m))) return -1;
  for (PyGetSetDef *g = standin_getsets; g->name; g++)
    if (standin_add(type, g->name, PyDescr_NewGetSet(type, g))) return -1;
  return 0;
}
