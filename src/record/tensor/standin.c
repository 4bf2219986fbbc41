/* Stand-in tensors: the type, making one, inputs, and the life of the tensor side of a recording.
 * In: older tensors that the recording meets, graph values that the dispatch mode made.  Out: stand-ins.
 * A stand-in shares the storage of a template, one per dtype and device, that torch made without memory: C++
 * code that reads tensor data past the dispatcher gets torch's own error, never a wild address.  Its Python
 * dispatch key routes every op to the mode.  Which Python-level calls must be
 * intercepted is in tensor_methods.c. */
#include "record/tensor/standin.h"
#include "entry/launch/trace.h"
#include "host/python/names.h"
#include <Python.h>
#include <dlfcn.h>
#include <structmember.h>
#include <stdlib.h>
#include <string.h>
#include "entry/guard/guard_add.h"
#include "host/python/pyobject.h"
#include "host/torch/conj_neg.h"
#include "host/torch/eager_probe.h"
#include "host/torch/function_stack.h"
#include "host/torch/literals.h"
#include "host/torch/tensor_facts.h"
#include "host/torch/tensor_wrap.h"
#include "host/torch/torch_state.h"
#include "record/core/identity.h"
#include "record/core/recording.h"
#include "record/fx/fx.h"
#include "record/symbolic/sizes.h"
#include "record/tensor/inference_mode.h"
#include "record/tensor/subclass.h"
#include "record/tensor/wrapper_subclass.h"
#include "runtime/process/torch_abi.h"
#include "tuning.h"

#define PY_SSIZE_T_CLEAN

static PyObject *standin_torch;            /* torch */
static PyObject *standin_inference_mode;   /* torch._C._InferenceMode */
static bool (*standin_inference_on)(void); /* c10::InferenceMode::is_enabled, NULL where it is not exported */

typedef struct StandinTemplate { /* a tensor without memory whose storage, dtype and device stand-ins share */
  uint8_t dtype, device;
  int8_t index;
  PyObject *tensor; /* strong, process lifetime */
} StandinTemplate;
static StandinTemplate *standin_template;
static uint32_t standin_ntemplate;
#define STANDIN_MAX_DIM 64 /* torch's own limit */
#define STANDIN_TEMPLATE_ELEMENTS                                                                            \
  (1LL << 40) /* torch checks views against the size of the (absent) storage */

static MgTensor *standin_handle(PyObject *tensor) { return mg_abi_tensor(tensor); }

/* ---- MgStandInfo ---- */

static void standin_info_dealloc(PyObject *o) {
  MgStandInfo *i = (MgStandInfo *)o;
  if (i->cap) {
    if (i->prev) i->prev->next = i->next;
    else i->cap->live = i->next;
    if (i->next) i->next->prev = i->prev;
  }
  PyObject_Free(o);
}

static PyTypeObject standin_info_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "magneto._magneto.StandInfo",
    .tp_basicsize = sizeof(MgStandInfo),
    .tp_dealloc = standin_info_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

static MgStandInfo *standin_info_new(MgCapture *cap, ValRef val) {
  MgStandInfo *i = PyObject_New(MgStandInfo, &standin_info_type);
  if (!i) return NULL;
  i->cap = cap;
  i->prev = NULL;
  i->next = cap->live;
  if (cap->live) cap->live->prev = i;
  cap->live = i;
  i->val = val;
  i->self = NULL;
  i->input = 0;
  i->leaf = false;
  i->is_param = i->swapped = false;
  return i;
}

/* ---- the type ---- */

bool mg_standin_cutting;

/* Dispatch on the class is reached only when the mode is not active: the stand-in escaped its recording. */
static PyObject *standin_escaped(PyObject *self, PyObject *const *args, Py_ssize_t n) {
  if (mg_standin_cutting && mg_abi.thpvariable_wrap) { /* views find their history again: any tensor does */
    const int64_t one = 1;
    MgTensor *h = NULL;
    PyObject *o = NULL;
    if (!mg_abi.aoti_torch_empty_strided(1, &one, &one, DT_f32, 0, 0, &h)) o = mg_abi.thpvariable_wrap(h);
    mg_abi.aoti_torch_delete_tensor_object(h);
    if (o || PyErr_Occurred()) return o;
  }
  return PyErr_Format(PyExc_RuntimeError, "magneto: a stand-in tensor of a finished recording was used by %R",
                      n ? args[0] : Py_None);
}
static PyMethodDef standin_escaped_def = {"__torch_dispatch__", (PyCFunction)(void *)standin_escaped,
                                          METH_FASTCALL, NULL};

static Py_hash_t standin_hash(PyObject *o) {
  mg_compared_tensor(o);
  return mg_hash_pointer(o);
}

static int standin_make_type(void) {
  int rc = -1;
  PyObject *disabled = PyObject_GetAttrString(mg_standin_c, "_disabled_torch_function_impl");
  PyObject *dispatch = PyCFunction_New(&standin_escaped_def, NULL), *dict = NULL, *type = NULL, *slot = NULL;
  if (!disabled || !dispatch) goto done;
  dict = Py_BuildValue("{s:(s),s:O,s:O,s:s}", "__slots__", "_mg_info", "__torch_function__", disabled,
                       "__torch_dispatch__", dispatch, "__module__", "magneto._magneto");
  if (!dict) goto done;
  type =
      PyObject_CallFunction((PyObject *)Py_TYPE(mg_torch.tensor), "s(O)O", "Tensor", mg_torch.tensor, dict);
  if (!type) goto done;
  slot = PyObject_GetAttrString(type, "_mg_info");
  if (!slot) goto done;
  if (Py_TYPE(slot) != &PyMemberDescr_Type) {
    PyErr_SetString(PyExc_ImportError, "magneto: the stand-in type has no C slot");
    goto done;
  }
  mg_standin_slot = ((PyMemberDescrObject *)slot)->d_member->offset;
  /* The slot is ours alone: without its descriptor user code cannot see it; deallocation still clears it. */
  if (PyObject_DelAttrString(type, "_mg_info")) goto done;
  mg_standin_type = (PyTypeObject *)Py_NewRef(type);
  mg_standin_type->tp_hash = standin_hash; /* as Tensor.__hash__ does */
  rc = 0;
done:
  Py_XDECREF(disabled);
  Py_XDECREF(dispatch);
  Py_XDECREF(dict);
  Py_XDECREF(type);
  Py_XDECREF(slot);
  return rc;
}

static PyObject *standin_import(const char *module, const char *attr) {
  PyObject *m = mg_import(module), *r = m ? PyObject_GetAttrString(m, attr) : NULL;
  Py_XDECREF(m);
  return r;
}

/* Tells torch_state.c which dispatch key marks torch.func transforms; its number differs
 * between versions of torch. */
static int standin_find_functorch_key(void) {
  PyObject *keys = PyObject_GetAttrString(mg_standin_c, "DispatchKey");
  PyObject *key = keys ? PyObject_GetAttrString(keys, "FuncTorchDynamicLayerFrontMode") : NULL;
  PyObject *number = key ? PyNumber_Long(key) : NULL;
  long n = number ? PyLong_AsLong(number) : -1;
  Py_XDECREF(keys);
  Py_XDECREF(key);
  Py_XDECREF(number);
  if (n < 0) return -1;
  mg_state_set_functorch_key((int)n);
  return 0;
}

int mg_standin_init(PyObject *module) {
  if (mg_tensor_init()) return -1;
  if (PyType_Ready(&standin_info_type)) return -1;
  if (!(standin_torch = mg_import("torch"))) return -1;
  if (!(mg_standin_c = standin_import("torch", "_C"))) return -1;
  if (!(standin_inference_mode = PyObject_GetAttrString(mg_standin_c, "_InferenceMode"))) return -1;
  if (standin_find_functorch_key()) return -1;
  void *c10 = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
  standin_inference_on =
      (bool (*)(void))dlsym(c10 ? c10 : RTLD_DEFAULT, "_ZN3c1013InferenceMode10is_enabledEv");
  if (mg_torchobj_init() || mg_eager_probe() || mg_torchfn_init() || standin_make_type() ||
      mg_subclass_init() || mg_wrapper_init())
    return -1;
  return PyModule_AddFunctions(module, mg_tensor_methods);
}

/* ---- making one ---- */

/* The template for a value's dtype and device: made once, by torch's own
 * constructor of memory-less tensors. */
static MgTensor *standin_find_template(const MgVal *v) {
  for (uint32_t i = 0; i < standin_ntemplate; i++) {
    const StandinTemplate *t = &standin_template[i];
    if (t->dtype == v->dtype && t->device == v->device && t->index == v->dev_index)
      return standin_handle(t->tensor);
  }
  StandinTemplate *grown = mg_realloc(standin_template, (standin_ntemplate + 1) * sizeof *grown);
  if (!grown) return (MgTensor *)PyErr_NoMemory();
  standin_template = grown;
  PyObject *off = mg_fmodes_off();
  /* The engine asserts on CUDA devices without an index. */
  PyObject *dtype = mg_torchobj_new_dtype(v->dtype);
  PyObject *device =
      mg_torchobj_new_device(v->device, v->device == DEV_cuda && v->dev_index < 0 ? 0 : v->dev_index);
  PyObject *args =
      dtype && device ? Py_BuildValue("(O(L))", mg_standin_type, STANDIN_TEMPLATE_ELEMENTS) : NULL;
  PyObject *kw = args ? Py_BuildValue("{s:O,s:O}", "dtype", dtype, "device", device) : NULL;
  PyObject *make = kw ? PyObject_GetAttrString((PyObject *)mg_torch.tensor, "_make_wrapper_subclass") : NULL;
  PyObject *t = make && off ? PyObject_Call(make, args, kw) : NULL;
  if (off && mg_context_exit(off)) Py_CLEAR(t);
  Py_XDECREF(dtype);
  Py_XDECREF(device);
  Py_XDECREF(args);
  Py_XDECREF(kw);
  Py_XDECREF(make);
  if (!t) return NULL;
  standin_template[standin_ntemplate++] = (StandinTemplate){v->dtype, v->device, v->dev_index, t};
  return standin_handle(t);
}

static PyObject *standin_dims(MgCapture *cap, const SymRef *d, int n) {
  PyObject *t = PyTuple_New(n);
  for (int i = 0; t && i < n; i++) {
    PyObject *o = mg_symsize_object(cap, d[i]);
    if (!o) Py_CLEAR(t);
    else PyTuple_SET_ITEM(t, i, o);
  }
  return t;
}

static PyObject *standin_attach(MgCapture *cap, ValRef val, PyObject *t) { /* steals t */
  MgStandInfo *info = t ? standin_info_new(cap, val) : NULL;
  if (!info) {
    Py_XDECREF(t);
    return NULL;
  }
  info->self = t;
  *(MgStandInfo **)((char *)t + mg_standin_slot) = info;
  return t;
}

/* Some size is a torch.SymInt: only torch's own constructor takes those. */
static PyObject *standin_alloc_symbolic(MgCapture *cap, ValRef val) {
  static PyObject *make; /* strong, process lifetime */
  const MgVal *v = mg_val(cap->rec->g, val);
  PyObject *off = mg_fmodes_off(), *size = NULL, *stride = NULL, *offset = NULL, *dtype = NULL,
           *device = NULL, *args = NULL, *kw = NULL, *t = NULL;
  if (!make) make = PyObject_GetAttrString((PyObject *)mg_torch.tensor, "_make_wrapper_subclass");
  if (off && make && (size = standin_dims(cap, v->size, v->ndim)) &&
      (stride = standin_dims(cap, v->stride, v->ndim)) && (offset = mg_symsize_object(cap, v->offset)) &&
      (dtype = mg_torchobj_new_dtype(v->dtype)) &&
      (device = mg_torchobj_new_device(v->device, v->dev_index)) &&
      (args = PyTuple_Pack(2, cap->next_type ? cap->next_type : mg_standin_type, size)) &&
      (kw = Py_BuildValue("{s:O,s:O,s:O,s:O,s:L}", "strides", stride, "storage_offset", offset, "dtype",
                          dtype, "device", device, "storage_size", STANDIN_TEMPLATE_ELEMENTS)))
    t = PyObject_Call(make, args, kw);
  if (off && mg_context_exit(off)) Py_CLEAR(t);
  PyObject *const used[] = {size, stride, offset, dtype, device, args, kw};
  for (size_t i = 0; i < sizeof used / sizeof *used; i++) Py_XDECREF(used[i]);
  return standin_attach(cap, val, t);
}

static PyObject *standin_alloc(MgCapture *cap, ValRef val) {
  MgGraph *g = cap->rec->g;
  const MgVal *v = mg_val(g, val);
  int64_t size[STANDIN_MAX_DIM], stride[STANDIN_MAX_DIM], offset;
  MgTensor *h;
  if (v->ndim > STANDIN_MAX_DIM) return mg_rec_break(BK_tensor_kind, "a tensor of %d dimensions", v->ndim);
  bool constant = mg_ex_const_int(g->x, v->offset, &offset);
  for (int i = 0; i < v->ndim; i++)
    constant = constant && mg_ex_const_int(g->x, v->size[i], &size[i]) &&
               mg_ex_const_int(g->x, v->stride[i], &stride[i]);
  if (!constant) return standin_alloc_symbolic(cap, val);
  MgTensor *model = standin_find_template(v);
  if (!model) return NULL;
  if (mg_abi.aoti_torch__reinterpret_tensor(model, v->ndim, size, stride, offset, &h))
    return mg_rec_break(BK_op, "torch refused a stand-in of dtype %s", mg_dtype_name(v->dtype));
  PyObject *t = mg_abi.thpvariable_wrap_type(h, cap->next_type ? cap->next_type : mg_standin_type);
  mg_abi.aoti_torch_delete_tensor_object(h);
  return standin_attach(cap, val, t);
}

static PyObject *standin_alloc_normal(MgCapture *cap, ValRef val) {
  if (standin_inference_on && !standin_inference_on()) return standin_alloc(cap, val);
  /* One made in inference mode would lack the keys that route its ops to us. */
  PyObject *ctx = mg_context_enter(PyObject_CallOneArg(standin_inference_mode, Py_False));
  if (!ctx) return NULL;
  PyObject *t = standin_alloc(cap, val);
  if (mg_context_exit(ctx)) Py_CLEAR(t);
  return t;
}

PyObject *mg_standin_new(MgCapture *cap, ValRef val) {
  PyObject *t = standin_alloc_normal(cap, val);
  uint8_t bits = mg_val(cap->rec->g, val)->bits;
  if (t && bits && mg_lazybits_set(t, bits)) Py_CLEAR(t);
  return t;
}

/* ---- inputs ---- */

bool mg_standin_describe(MgGraph *g, PyObject *tensor, ValRef *out, const char **why) {
  MgTensor *h = standin_handle(tensor);
  int32_t layout, dtype, device, index;
  int64_t ndim, *size, *stride, offset;
  *why = "a sparse or opaque tensor";
  if (mg_abi.aoti_torch_get_layout(h, &layout) || layout != 0) return false;
  *why = "a tensor without a storage of its own";
  if ((Py_TYPE(tensor) == mg_torch.tensor || Py_TYPE(tensor) == mg_torch.parameter) &&
      !mg_facts_is_dense(tensor))
    return false;
  *why = "a tensor without plain sizes (nested or symbolic)";
  if (mg_abi.aoti_torch_get_dim(h, &ndim) || ndim > STANDIN_MAX_DIM ||
      mg_abi.aoti_torch_get_sizes(h, &size) || mg_abi.aoti_torch_get_strides(h, &stride) ||
      mg_abi.aoti_torch_get_storage_offset(h, &offset))
    return false;
  *why = "a quantized tensor, or a dtype that is not supported";
  if (mg_abi.aoti_torch_get_dtype(h, &dtype) || !mg_dtype_size((MgDtype)dtype)) return false;
  *why = "a tensor that is on neither the CPU nor a CUDA device nor meta";
  if (mg_abi.aoti_torch_get_device_type(h, &device) ||
      (device != DEV_cpu && device != DEV_cuda && device != DEV_meta))
    return false;
  if (mg_abi.aoti_torch_get_device_index(h, &index)) return false;
  *why = "out of memory";
  ValRef val = mg_graph_val(g, (MgDtype)dtype, (int)ndim);
  if (!val) return false;
  MgVal *v = mg_val(g, val);
  v->device = (uint8_t)device;
  v->dev_index = device == DEV_cuda ? (int8_t)index : -1;
  for (int i = 0; i < ndim; i++) {
    v->size[i] = mg_sym(g->x, size[i]);
    v->stride[i] = mg_sym(g->x, stride[i]);
  }
  v->offset = mg_sym(g->x, offset);
  *out = val;
  return true;
}

/* True when a bit on the tensor changes what its memory means (conj, neg): rare, and only seen by method. */
static bool standin_lazy_bit(PyObject *tensor, bool complex) {
  PyObject *r = PyObject_CallMethod(tensor, complex ? "is_conj" : "is_neg", NULL);
  bool on = r == Py_True;
  if (!r) mg_clear_as_no();
  Py_XDECREF(r);
  return on;
}

/* Room for one more input.  -1 with an exception. */
static int standin_grow_inputs(MgCapture *cap) {
  if (cap->ninput < cap->cap_input || mg_grow(&cap->input, &cap->cap_input, sizeof *cap->input, 32)) return 0;
  return PyErr_NoMemory(), -1;
}

int mg_standin_add_tangent(MgCapture *cap, ValRef val) {
  if (standin_grow_inputs(cap)) return -1;
  if (!mg_graph_input(cap->rec->g, val)) return PyErr_NoMemory(), -1;
  cap->input[cap->ninput++] = (MgCapInput){.val = val};
  return 0;
}

ValRef mg_standin_outer_input(MgCapture *cap, PyObject *tensor, SrcRef src) {
  ValRef val = mg_graph_val(cap->rec->g, DT_f32, 0);
  if (!val || standin_grow_inputs(cap) || !mg_graph_input(cap->rec->g, val)) return PyErr_NoMemory(), 0;
  cap->input[cap->ninput++] = (MgCapInput){.real = tensor, .src = src, .val = val, .outer = true};
  return val;
}

/* Arrays over one memory begin where they please, and so do tensors made of them: what
 * overlaps has one storage. */
static void standin_join_storage(const MgCapture *cap, PyObject *tensor, MgVal *v) {
  uintptr_t lo, hi, lo2, hi2;
  if (!cap->arrays || !mg_facts_extent(tensor, &lo, &hi)) return;
  for (uint32_t i = 0; i < cap->ninput; i++) {
    const MgCapInput *in = &cap->input[i];
    if (in->real && !in->scalar && !in->outer && mg_facts_extent(in->real, &lo2, &hi2) && lo < hi2 &&
        lo2 < hi)
      v->storage = mg_val(cap->rec->g, in->val)->storage;
  }
}

/* Adds a real tensor to the graph's inputs.  Index into cap->input, or -1 with a break or exception set. */
static long standin_add_input(MgCapture *cap, PyObject *tensor, SrcRef src) {
  MgGraph *g = cap->rec->g;
  ValRef val;
  const char *why;
  if (!mg_subclass_known(Py_TYPE(tensor))) {
    mg_rec->rehearsed = !strcmp(Py_TYPE(tensor)->tp_name, "FakeTensor");
    return mg_rec_break(BK_tensor_class, "a %s", Py_TYPE(tensor)->tp_name), -1;
  }
  if (!mg_standin_describe(g, tensor, &val, &why)) return mg_rec_break(BK_tensor_kind, "%s", why), -1;
  MgVal *v = mg_val(g, val);
  bool complex = mg_dtype_is_complex(v->dtype);
  if (Py_TYPE(tensor) != mg_torch.parameter && (complex || v->dtype >= DT_f16) &&
      (standin_lazy_bit(tensor, complex) || (complex && standin_lazy_bit(tensor, false))))
    return mg_rec_break(BK_conj_bit, "a tensor with the conj or neg bit set"), -1;
  if (standin_grow_inputs(cap)) return -1;
  /* Inputs over one storage get one storage number, so that functionalize sees writes through either. */
  void *data = NULL;
  int64_t offset = 0;
  mg_ex_const_int(g->x, v->offset, &offset);
  if (!mg_abi.aoti_torch_get_data_ptr(standin_handle(tensor), &data) && data) {
    uint64_t base = (uint64_t)(uintptr_t)data - (uint64_t)offset * (uint64_t)mg_dtype_size(v->dtype);
    uint32_t same = mg_map_get(&cap->base, base);
    if (same != MG_MAP_NONE) v->storage = same;
    else if (mg_map_put(&cap->base, base, v->storage)) return PyErr_NoMemory(), -1;
    standin_join_storage(cap, tensor, v);
  }
  if (mg_inference_mode_input(cap, tensor, val)) return -1;
  if (!mg_graph_input(g, val)) return PyErr_NoMemory(), -1;
  cap->input[cap->ninput] = (MgCapInput){.real = tensor, .src = src, .val = val};
  return cap->ninput++;
}

static int standin_requires_grad(PyObject *tensor) {
  if (Py_TYPE(tensor) == mg_torch.tensor || Py_TYPE(tensor) == mg_torch.parameter)
    return mg_facts_requires_grad(tensor);
  PyObject *r = PyObject_GetAttrString(tensor, "requires_grad");
  int yes = r ? PyObject_IsTrue(r) : -1;
  Py_XDECREF(r);
  return yes;
}

static int standin_is_leaf(PyObject *tensor) {
  PyObject *r = PyObject_GetAttrString(tensor, "is_leaf");
  int yes = r ? PyObject_IsTrue(r) : -1;
  Py_XDECREF(r);
  return yes;
}

void mg_standin_guard_leaf(const MgCapture *cap, uint32_t input) {
  const MgCapInput *in = &cap->input[input];
  if (!cap->rec->guards || !in->src || !in->real || in->scalar || in->array ||
      !mg_val(cap->rec->g, in->val)->requires_grad)
    return;
  if (Py_TYPE(in->real) != mg_torch.parameter)
    mg_guard_add(cap->rec->guards, GK_leaf, in->src, NULL, !in->nonleaf);
}

/* Replaces a leaf stand-in by one that is not a leaf, as the older tensor is not:
 * in-place ops are then allowed. */
static PyObject *standin_nonleaf(MgCapture *cap, PyObject *leaf) {
  bool grad = mg_abi.aoti_torch_grad_mode_is_enabled();
  mg_abi.aoti_torch_grad_mode_set_enabled(true);
  cap->next_result = mg_standin_info(leaf)->val;
  cap->next_type = Py_TYPE(leaf);
  PyObject *t = PyObject_CallMethod(leaf, "clone", NULL);
  cap->next_result = 0;
  cap->next_type = NULL;
  mg_abi.aoti_torch_grad_mode_set_enabled(grad);
  if (t) mg_standin_info(t)->input = mg_standin_info(leaf)->input;
  return t;
}

/* A setter of Python is a call of torch function for a stand-in. */
static int standin_require_grad(PyObject *t) {
  MgTensor *h = mg_abi.torch_set_requires_grad ? standin_handle(t) : NULL;
  return h ? (mg_abi.torch_set_requires_grad(h, true) ? -1 : 0)
           : PyObject_SetAttrString(t, "requires_grad", Py_True);
}

static PyObject *standin_make_input(MgCapture *cap, PyObject *tensor, SrcRef src) {
  long i = standin_add_input(cap, tensor, src);
  if (i < 0 || !(cap->next_type = mg_subclass_type(cap, Py_TYPE(tensor)))) return NULL;
  mg_symsize_input(cap, tensor, src, cap->input[i].val);
  PyObject *t = mg_standin_new(cap, cap->input[i].val);
  cap->next_type = NULL;
  if (!t) return NULL;
  MgStandInfo *info = mg_standin_info(t);
  info->input = (uint32_t)i + 1;
  info->is_param = Py_TYPE(tensor) == mg_torch.parameter;
  int rg = standin_requires_grad(tensor), leaf = rg > 0 ? standin_is_leaf(tensor) : 1;
  if (rg < 0 || leaf < 0) goto fail;
  if (!rg) return t;
  mg_val(cap->rec->g, info->val)->requires_grad = true;
  if (standin_require_grad(t)) goto fail;
  cap->input[i].nonleaf = !leaf;
  info->leaf = true;
  if (!leaf) Py_SETREF(t, standin_nonleaf(cap, t));
  return t;
fail:
  Py_DECREF(t);
  return NULL;
}

PyObject *mg_standin_input(PyObject *tensor, SrcRef src) {
  MgCapture *cap = mg_rec->cap;
  bool quiet = cap->quiet;
  PyObject *off = NULL; /* what is asked here is none of the program's calls */
  bool plain = Py_TYPE(tensor) == mg_torch.tensor || Py_TYPE(tensor) == mg_torch.parameter;
  if ((!plain || mg_fmodes_depth() > mg_rec->want_fx) && !(off = mg_fmodes_off())) return NULL;
  cap->quiet = true;
  PyObject *t = standin_make_input(cap, tensor, src);
  cap->quiet = quiet;
  if (off && mg_context_exit(off)) Py_CLEAR(t);
  return t;
}

PyObject *mg_standin_array_input(PyObject *tensor, SrcRef src) {
  MgCapture *cap = mg_rec->cap;
  cap->arrays = true;
  PyObject *t = mg_standin_input(tensor, src);
  if (!t) return NULL;
  MgCapInput *in = &cap->input[mg_standin_info(t)->input - 1];
  in->array = true;
  Py_INCREF(tensor);
  return t;
}

ValRef mg_standin_pin(MgCapture *cap, PyObject *tensor) {
  uint32_t known = mg_map_getp(&cap->pinned, tensor);
  if (known != MG_MAP_NONE) return cap->input[known].val;
  long i = standin_add_input(cap, tensor, 0);
  if (i < 0) return 0;
  if (mg_map_putp(&cap->pinned, tensor, (uint32_t)i)) return PyErr_NoMemory(), 0;
  cap->input[i].pinned = true;
  Py_INCREF(tensor);
  return cap->input[i].val;
}

ValRef mg_standin_scalar_input(MgCapture *cap, PyObject *tensor, SrcRef src) {
  long i = standin_add_input(cap, tensor, src);
  if (i < 0) return 0;
  cap->input[i].scalar = true;
  Py_INCREF(tensor);
  return cap->input[i].val;
}

long mg_standin_object(MgCapture *cap, PyObject *o) {
  return PyList_Append(cap->objs, o) ? -1 : (long)PyList_GET_SIZE(cap->objs) - 1;
}

const char *const mg_standin_autocast_devices[] = {"cpu", "cuda"};

int mg_standin_autocast_off(void) {
  for (size_t i = 0; i < 2; i++) {
    PyObject *r = PyObject_CallMethod(mg_standin_c, "set_autocast_enabled", "sO",
                                      mg_standin_autocast_devices[i], Py_False);
    if (!r) return -1;
    Py_DECREF(r);
  }
  return 0;
}

bool mg_standin_autocast_on(const MgCapture *cap) {
  return cap->autocast &&
         (PyList_GET_ITEM(cap->autocast, 1) == Py_True || PyList_GET_ITEM(cap->autocast, 3) == Py_True);
}

PyObject *mg_standin_swapped(const MgCapture *cap, PyObject *standin) {
  for (Py_ssize_t i = cap->swapped ? PyList_GET_SIZE(cap->swapped) : 0; i > 0; i -= 2)
    if (PyList_GET_ITEM(cap->swapped, i - 2) == standin) return PyList_GET_ITEM(cap->swapped, i - 1);
  return NULL;
}

static void compared_pair(const MgOlder *p, const MgOlder *q) {
  bool pa = mg_older_by_path(p), qa = mg_older_by_path(q);
  if (Py_TYPE(p->orig) != Py_TYPE(q->orig)) return;
  if (pa && qa) mg_guard_pair(mg_rec->guards, GK_distinct, p->src, q->src, 0);
  else if (pa) mg_guard_add(mg_rec->guards, GK_not, p->src, q->orig, 0);
  else if (qa) mg_guard_add(mg_rec->guards, GK_not, q->src, p->orig, 0);
}

void mg_compared_one(PyObject *o) {
  MgIdent *d = mg_rec->ident;
  uint32_t at = mg_map_getp(&d->by_seen, o);
  if (at == MG_MAP_NONE || d->v[at].compared) return;
  if (d->ncompared % 64 == 0) {
    uint32_t *v = mg_realloc(d->compared, sizeof *v * (d->ncompared + 64));
    if (!v) {
      mg_older_pin(o);
      return;
    }
    d->compared = v;
  }
  if (d->ncompared >= MG_TUNE_COMPARED_PAIRS) mg_older_pin(o);
  for (uint32_t i = 0; i < d->ncompared && i < MG_TUNE_COMPARED_PAIRS; i++)
    compared_pair(&d->v[at], &d->v[d->compared[i]]);
  d->v[at].compared = true;
  d->compared[d->ncompared++] = at;
}

void mg_compared_tensor(PyObject *standin) {
  if (mg_rec && !mg_rec->abort && mg_rec->ident && mg_rec->guards) mg_compared_one(standin);
}
