/* Results of ops that ir/infer/infer does not know: torch's own meta kernel is run on meta
 * tensors made from the metadata.
 * In: a node with its arguments filled in.  Out: its result values.
 * Those kernels are mostly Python (40-1450 us), so results are kept by op and argument metadata for the life
 * of the process; a key holds everything a meta kernel can look at. */
#include "record/dispatch/meta_kernel.h"
#include "host/python/names.h"
#include <stdlib.h>
#include <string.h>
#include "host/python/hook_mode.h"
#include "host/python/pyobject.h"
#include "host/torch/function_stack.h"
#include "host/torch/literals.h"
#include "host/torch/torch_state.h"
#include "ir/infer/infer.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "record/dispatch/meta_new_size.h"
#include "record/symbolic/number.h"
#include "record/symbolic/sizes.h"
#include "record/symbolic/unbacked.h"
#include "record/tensor/standin.h"
#include "tuning.h"

typedef struct MetaOut { /* metadata of one tensor result; sizes and strides follow in the entry's int pool */
  uint8_t dtype, ndim;
  bool defined;
  uint32_t dims; /* index of ndim sizes, then ndim strides, then the offset */
} MetaOut;

typedef struct MetaEntry {
  uint8_t *key;
  size_t nkey;
  MetaOut *out;
  int64_t *pool;
  uint32_t nout;
} MetaEntry;

typedef struct MetaKey { /* growing bytes; failed sticks */
  uint8_t *p;
  size_t n, cap;
  bool failed, symbolic;
} MetaKey;

static MgMap metainfer_map; /* hash of the key + 2 -> index; a clash of hashes replaces the entry */
static MetaEntry *metainfer_entry;
static uint32_t metainfer_n, metainfer_cap;
#define METAINFER_MAX 8192 /* entries; the cache is emptied when it is full */

/* ---- keys ---- */

static void metainfer_put(MetaKey *k, const void *p, size_t n) {
  if (k->n + n > k->cap) {
    size_t cap = (k->cap ? k->cap * 2 : 512) + n;
    void *q = mg_realloc(k->p, cap);
    if (!q) {
      k->failed = true;
      return;
    }
    k->p = q;
    k->cap = cap;
  }
  memcpy(k->p + k->n, p, n);
  k->n += n;
}

static void metainfer_put_sym(MetaKey *k, const MgGraph *g, SymRef s) {
  int64_t v;
  if (mg_sym_settle(g->x, s, &v)) metainfer_put(k, &v, sizeof v);
  else k->symbolic = true;
}

static void metainfer_put_arg(MetaKey *k, const MgGraph *g, const MgArg *a) {
  metainfer_put(k, &a->tag, 1);
  switch ((MgArgTag)a->tag) {
  case MA_none: break;
  case MA_val: {
    const MgVal *v = mg_val(g, a->u.val);
    if (!a->u.val) break;
    metainfer_put(k, &v->dtype, 1);
    metainfer_put(k, &v->device, 1);
    metainfer_put(k, &v->ndim, 1);
    for (int i = 0; i < v->ndim; i++) metainfer_put_sym(k, g, v->size[i]);
    for (int i = 0; i < v->ndim; i++) metainfer_put_sym(k, g, v->stride[i]);
    metainfer_put_sym(k, g, v->offset);
    break;
  }
  case MA_int: metainfer_put_sym(k, g, a->u.sym); break;
  case MA_float: metainfer_put(k, &a->u.f, sizeof a->u.f); break;
  case MA_bool: metainfer_put(k, &a->u.b, 1); break;
  case MA_str: metainfer_put(k, a->u.str, strlen(a->u.str) + 1); break;
  case MA_device: metainfer_put(k, &a->dev_index, 1); /* fall through */
  case MA_dtype:
  case MA_layout:
  case MA_memory_format: metainfer_put(k, &a->u.code, sizeof a->u.code); break;
  case MA_list:
    metainfer_put(k, &a->n, sizeof a->n);
    for (uint32_t i = 0; i < a->n; i++) metainfer_put_arg(k, g, &a->u.item[i]);
    break;
  case MA_object: break; /* generators and the like do not change shapes */
  }
}

/* ---- calling the kernel ---- */

static PyObject *metainfer_torch(const char *name) {
  static PyObject *torch;
  if (!torch && !(torch = mg_import("torch"))) return NULL;
  return PyObject_GetAttrString(torch, name);
}

/* A size as the kernel sees it: a number, or a number object that computes with symbols. */
static PyObject *metainfer_size(MgRec *r, SymRef s) {
  int64_t v;
  if (r->cap->sizes.symbolic) return mg_symsize_object(r->cap, s);
  return mg_sym_settle(r->x, s, &v) ? PyLong_FromLongLong(v) : NULL;
}

static PyObject *metainfer_dims(MgRec *r, const SymRef *s, int n) {
  PyObject *t = PyTuple_New(n);
  for (int i = 0; t && i < n; i++) {
    PyObject *o = metainfer_size(r, s[i]);
    if (!o) {
      if (!PyErr_Occurred()) mg_rec_break(BK_symbolic_size, "a symbolic size");
      Py_CLEAR(t);
    } else {
      PyTuple_SET_ITEM(t, i, o);
    }
  }
  return t;
}

/* A meta tensor like value v; real: zeros on the CPU. */
static PyObject *metainfer_tensor(MgRec *r, ValRef val, bool real) {
  static PyObject *empty_strided, *meta, *cpu;
  const MgVal *v = mg_val(r->g, val);
  PyObject *size = NULL, *stride = NULL, *dtype = NULL, *args = NULL, *kw = NULL, *t = NULL, *offset = NULL;
  int64_t known;
  if (!empty_strided && !(empty_strided = metainfer_torch("empty_strided"))) return NULL;
  if (!meta && !(meta = mg_torchobj_new_device(DEV_meta, -1))) return NULL;
  if (!cpu && !(cpu = mg_torchobj_new_device(DEV_cpu, -1))) return NULL;
  if (!(size = metainfer_dims(r, v->size, v->ndim)) || !(stride = metainfer_dims(r, v->stride, v->ndim)))
    goto done;
  if (!(dtype = mg_torchobj_new_dtype(v->dtype))) goto done;
  if (!(args = PyTuple_Pack(2, size, stride))) goto done;
  if (!(kw = Py_BuildValue("{s:O,s:O}", "dtype", dtype, "device", real ? cpu : meta))) goto done;
  t = PyObject_Call(empty_strided, args, kw);
  if (real && t) Py_SETREF(t, PyObject_CallMethod(t, "zero_", NULL));
  if (real) goto done;
  /* A storage offset needs memory in front of the tensor; meta memory is only a number. */
  if (t && !(mg_ex_const_int(r->x, v->offset, &known) && known <= 0) &&
      (offset = metainfer_size(r, v->offset))) {
    PyObject *store = PyObject_CallMethod(t, "new_empty", "((O))", offset);
    PyObject *moved = store ? PyObject_CallMethod(store, "as_strided", "OOO", size, stride, offset) : NULL;
    Py_XDECREF(store);
    if (moved) Py_SETREF(t, moved);
    else PyErr_Clear(); /* kernels rarely look at the offset */
  }
done:
  Py_XDECREF(offset);
  Py_XDECREF(size);
  Py_XDECREF(stride);
  Py_XDECREF(dtype);
  Py_XDECREF(args);
  Py_XDECREF(kw);
  return t;
}

static PyObject *metainfer_arg(MgRec *r, const MgArg *a, int kind, bool real) {
  if (a->tag == MA_val) {
    if (!a->u.val) Py_RETURN_NONE;
    return metainfer_tensor(r, a->u.val, real);
  }
  if (kind == AK_generator) Py_RETURN_NONE;
  if (a->tag == MA_int && r->cap->sizes.symbolic) return metainfer_size(r, a->u.sym);
  if (a->tag == MA_device) return mg_torchobj_new_device(real ? DEV_cpu : DEV_meta, -1);
  if (a->tag != MA_list) return mg_torchobj_from_arg(r->g, a, r->cap->objs);
  PyObject *l = PyList_New(a->n);
  for (uint32_t i = 0; l && i < a->n; i++) {
    PyObject *o = metainfer_arg(r, &a->u.item[i], AK_other, real);
    if (!o) Py_CLEAR(l);
    else PyList_SET_ITEM(l, i, o);
  }
  return l;
}

static void metainfer_see_val(ValRef *v, void *arg) { *(bool *)arg |= *v != 0; }

/* What computes with symbols: the op itself, or torch's decomposition where it has no meta
 * kernel in Python.  Borrowed. */
static PyObject *metainfer_decomposition(PyObject *func) {
  PyObject *m = mg_import("torch._decomp"), *kernel = m ? PyObject_GetAttrString(m, "meta_table") : NULL;
  PyObject *parts = kernel ? PyObject_GetAttrString(m, "decomposition_table") : NULL, *f = NULL;
  if (parts && !PyDict_GetItemWithError(kernel, func)) f = PyDict_GetItemWithError(parts, func);
  Py_XDECREF(m);
  Py_XDECREF(kernel);
  Py_XDECREF(parts);
  mg_clear_as_no();
  return f ? f : func;
}

/* Calls the op on tensors like the node's arguments: meta tensors, or zeros. */
static PyObject *metainfer_try(MgRec *r, const MgFrontOp *fo, NodeRef n, bool has_tensor, bool real) {
  const MgOp *op = fo->op;
  MgNode *node = mg_node(r->g, n);
  int npos = 0;
  while (npos < op->nparam && !op->param[npos].kwarg_only) npos++;
  PyObject *args = PyTuple_New(npos), *kw = PyDict_New(), *res = NULL,
           *f = r->cap->sizes.symbolic ? metainfer_decomposition(fo->func) : fo->func;
  if (!args || !kw) goto done;
  for (int i = 0; i < op->nparam; i++) {
    PyObject *o = op->param[i].kind == AK_device && !has_tensor
                      ? mg_torchobj_new_device(real ? DEV_cpu : DEV_meta, -1)
                      : metainfer_arg(r, &node->arg[i], op->param[i].kind, real);
    if (!o) goto done;
    if (i < npos) {
      PyTuple_SET_ITEM(args, i, o);
      continue;
    }
    int bad = PyDict_SetItem(kw, fo->name[i], o);
    Py_DECREF(o);
    if (bad) goto done;
  }
  res = PyObject_Call(f, args, kw);
  if (!res && !real && PyErr_ExceptionMatches(PyExc_RuntimeError)) res = mg_metafake_call(r, op, args, kw);
done:
  Py_XDECREF(args);
  Py_XDECREF(kw);
  return res;
}

struct metainfer_size {
  MgGraph *g;
  int64_t most;
  bool ok;
};
static void metainfer_see_size(ValRef *v, void *arg) {
  struct metainfer_size *s = arg;
  int64_t n;
  if (*v && (!mg_sym_settle(s->g->x, mg_val_numel(s->g, *v), &n) || n > s->most ||
             mg_val(s->g, *v)->device != DEV_cpu))
    s->ok = false;
}

/* May a kernel run on zeros? */
static bool metainfer_may_run(MgRec *r, NodeRef n, int64_t most) {
  struct metainfer_size s = {r->g, most, true};
  mg_node_each_val(mg_node(r->g, n), metainfer_see_size, &s);
  return s.ok;
}

static bool metainfer_may_ask(MgRec *r, const MgOp *op, NodeRef n, int64_t most) {
  return !strncmp(op->full, "aten::", 6) && !mg_node_random(mg_node(r->g, n)) && !r->cap->sizes.symbolic &&
         metainfer_may_run(r, n, most);
}

bool mg_metainfer_asks(MgRec *r, const MgFrontOp *fo, NodeRef n) {
  return metainfer_may_ask(r, fo->op, n, MG_TUNE_KERNEL_ASKED);
}

/* Does the kernel itself raise?  Meta kernels accept what it does not, and their words, sometimes even the
 * exception's class, are not those that the program gets to see without a compiler. */
static bool metainfer_kernel_raises(MgRec *r, const MgFrontOp *fo, NodeRef n, bool has_tensor) {
  PyObject *t, *v, *tb;
  PyErr_Fetch(&t, &v, &tb);
  PyObject *res = metainfer_try(r, fo, n, has_tensor, true);
  if (res) {
    PyErr_Restore(t, v, tb);
    Py_DECREF(res);
    return false;
  }
  Py_XDECREF(t);
  Py_XDECREF(v);
  Py_XDECREF(tb);
  return true;
}

static void metainfer_see_dtype(ValRef *v, void *arg) {
  struct metainfer_size *s = arg;
  if (*v && !mg_dtype_is_float((MgDtype)mg_val(s->g, *v)->dtype)) s->ok = false;
}

/* A size is what it is in this run, and no guard says so. */
static int64_t metainfer_hint(void *of, SymRef e) {
  MgCapture *cap = of;
  return mg_symdata_in(cap, e) ? cap->sizes.ask.value(cap, e) : mg_sym_hint(cap->rec->x, e);
}

/* Does the kernel raise at the sizes of this run?  It is asked for the rules that inference does not have,
 * about dtypes: which other sizes fit is what inference guards. */
static bool metainfer_raises_here(MgRec *r, const MgFrontOp *fo, NodeRef n) {
  const MgSizeAsk *guarding = r->x->ask;
  MgSizeAsk here = {.value = metainfer_hint, .of = r->cap};
  if (guarding) r->x->ask = &here;
  bool raises = mg_metainfer_asks(r, fo, n) && metainfer_kernel_raises(r, fo, n, true);
  r->x->ask = guarding;
  return raises;
}

bool mg_metainfer_rejects(MgRec *r, const MgFrontOp *fo, NodeRef n) {
  struct metainfer_size usual = {r->g, 0, mg_infer_has(fo->op)};
  bool has_tensor = false;
  mg_node_each_val(mg_node(r->g, n), metainfer_see_val, &has_tensor);
  mg_node_each_val(mg_node(r->g, n), metainfer_see_dtype, &usual);
  return has_tensor && !usual.ok && metainfer_raises_here(r, fo, n);
}

/* The fake implementation of an operator of the program raises.  Its kernel runs, and may raise as well. With
 * sizes that are symbols they may be the reason: the segment is recorded again with numbers. */
static PyObject *metainfer_fake_raises(MgRec *r, const MgOp *op) {
  if (!strncmp(op->full, "aten::", 6) || !PyErr_ExceptionMatches(PyExc_Exception) ||
      PyErr_ExceptionMatches(MgBreakError) || r->cap->sizes.symbolic || mg_symsize_inputs(&r->cap->sizes))
    return NULL;
  PyObject *type, *value, *tb;
  PyErr_Fetch(&type, &value, &tb);
  PyErr_NormalizeException(&type, &value, &tb);
  PyObject *text = value ? PyObject_Str(value) : NULL;
  const char *words = text ? PyUnicode_AsUTF8(text) : NULL;
  if (!words) PyErr_Clear(); /* an exception that has no text */
  mg_rec_break(BK_fake_result, "the fake implementation of %s raises %s: %.200s", op->full,
               ((PyTypeObject *)type)->tp_name, words ? words : "");
  Py_XDECREF(text);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(tb);
  return NULL;
}

static PyObject *metainfer_call(MgRec *r, const MgFrontOp *fo, NodeRef n) {
  const MgOp *op = fo->op;
  bool has_tensor = false, asked = false;
  mg_node_each_val(mg_node(r->g, n), metainfer_see_val, &has_tensor);
  if (mg_infer_doubts(r->g, n) && metainfer_may_ask(r, op, n, MG_TUNE_KERNEL_ASKED)) {
    asked = true;
    if (metainfer_kernel_raises(r, fo, n, has_tensor)) return NULL;
  }
  PyObject *res = metainfer_try(r, fo, n, has_tensor, false);
  if (res) return res;
  if (!PyErr_ExceptionMatches(PyExc_NotImplementedError)) {
    if (!asked && PyErr_ExceptionMatches(PyExc_Exception) &&
        metainfer_may_ask(r, op, n, MG_TUNE_KERNEL_TRIED))
      metainfer_kernel_raises(r, fo, n, has_tensor);
    return metainfer_fake_raises(r, op);
  }
  mg_clear_if(PyExc_NotImplementedError);
  if (!op->nret) Py_RETURN_NONE; /* nothing to infer */
  if (r->cap->sizes.inputs)
    return PyErr_Format(PyExc_RuntimeError, "magneto: %s has no meta kernel", op->full);
  if (!op->effect && !op->is_view && metainfer_may_run(r, n, MG_TUNE_KERNEL_TRIED) &&
      (res = metainfer_try(r, fo, n, has_tensor, true)))
    return res;
  mg_clear_for_another_way();
  return mg_rec_break(BK_no_shape_rule, "%s has no meta kernel", op->full);
}

/* ---- results ---- */

/* (with symbols: its expression) */
static int metainfer_long(MgRec *r, PyObject *o, int64_t *v) {
  MgSymNode *node = r->cap->sizes.symbolic ? mg_symnode_of(o) : NULL;
  if (node && (*v = mg_symsize_of(node))) return 0;
  *v = PyLong_Check(o) ? PyLong_AsLongLong(o) : -1;
  if (PyLong_Check(o)) {
    if (*v == -1 && PyErr_Occurred()) return -1;
    if (r->cap->sizes.symbolic) *v = mg_sym(r->x, *v);
    return 0;
  }
  mg_rec_break(BK_symbolic_size, "a symbolic size");
  return -1;
}

static int metainfer_read_dims(MgRec *r, PyObject *seq, int64_t *v) {
  if (!seq) return -1;
  int rc = 0;
  for (Py_ssize_t i = 0; !rc && i < PyTuple_GET_SIZE(seq); i++)
    rc = metainfer_long(r, PyTuple_GET_ITEM(seq, i), &v[i]);
  Py_DECREF(seq);
  return rc;
}

/* Reads the metadata of one result into the entry (out and pool have room). */
static int metainfer_read(MgRec *r, MetaEntry *e, PyObject *t, uint32_t *npool) {
  MetaOut *o = &e->out[e->nout++];
  *o = (MetaOut){0};
  if (t == Py_None) return 0;
  if (!PyObject_TypeCheck(t, mg_torch.tensor))
    return mg_rec_break(BK_fake_result, "a result that is not a tensor"), -1;
  PyObject *size = PyObject_GetAttrString(t, "shape"), *dt = PyObject_GetAttrString(t, "dtype"), *off = NULL;
  PyObject *layout = PyObject_GetAttrString(t, "layout");
  int rc = -1;
  if (!size || !dt || !layout) goto done;
  if (mg_torchobj_layout(layout) != 0) {
    mg_rec_break(BK_tensor_kind, "a result that is not strided");
    goto done;
  }
  if (!mg_dtype_size((MgDtype)mg_torchobj_dtype(dt))) {
    mg_rec_break(BK_tensor_kind, "a quantized result");
    goto done;
  }
  o->defined = true;
  o->dtype = (uint8_t)mg_torchobj_dtype(dt);
  o->ndim = (uint8_t)PyTuple_GET_SIZE(size);
  o->dims = *npool;
  int64_t *pool = mg_realloc(e->pool, (*npool + 2 * o->ndim + 1) * sizeof *pool);
  if (!pool) {
    PyErr_NoMemory();
    goto done;
  }
  e->pool = pool;
  *npool += 2 * o->ndim + 1;
  if (metainfer_read_dims(r, Py_NewRef(size), pool + o->dims)) goto done;
  if (metainfer_read_dims(r, PyObject_CallMethod(t, "stride", NULL), pool + o->dims + o->ndim)) goto done;
  if (!(off = PyObject_CallMethod(t, "storage_offset", NULL))) goto done;
  rc = metainfer_long(r, off, pool + o->dims + 2 * o->ndim);
done:
  Py_XDECREF(size);
  Py_XDECREF(dt);
  Py_XDECREF(off);
  Py_XDECREF(layout);
  return rc;
}

/* All tensor results of a call, lists flattened. */
static int metainfer_read_all(MgRec *r, MetaEntry *e, const MgOp *op, PyObject *res) {
  uint32_t npool = 0;
  size_t total = 0;
  if (op->nret > 1 && (!PyTuple_Check(res) || PyTuple_GET_SIZE(res) != op->nret))
    return mg_rec_break(BK_fake_result, "%s: unexpected result", op->full), -1;
  for (int pass = 0; pass < 2; pass++) {
    for (int i = 0; i < op->nret; i++) {
      PyObject *o = op->nret == 1 ? res : PyTuple_GET_ITEM(res, i);
      if (op->ret_kind[i] == AK_tensor) {
        if (pass == 0) total++;
        else if (metainfer_read(r, e, o, &npool)) return -1;
      } else if (op->ret_kind[i] == AK_tensor_list) {
        Py_ssize_t n = PySequence_Size(o);
        if (n < 0) return -1;
        if (pass == 0) total += n;
        for (Py_ssize_t k = 0; pass == 1 && k < n; k++) {
          PyObject *t = PySequence_GetItem(o, k);
          int bad = !t || metainfer_read(r, e, t, &npool);
          Py_XDECREF(t);
          if (bad) return -1;
        }
      }
    }
    if (pass == 0 && !(e->out = mg_calloc(total + 1, sizeof *e->out))) return PyErr_NoMemory(), -1;
  }
  return 0;
}

struct metainfer_device {
  const MgGraph *g;
  uint8_t device;
  int8_t index;
  int rank;
};
/* A tensor with dimensions decides over 0-dim ones (a CPU scalar may meet CUDA tensors). */
static void metainfer_see_device(ValRef *v, void *arg) {
  struct metainfer_device *d = arg;
  if (!*v) return;
  const MgVal *val = mg_val(d->g, *v);
  int rank = val->ndim > 0 ? 2 : 1;
  if (rank <= d->rank) return;
  *d = (struct metainfer_device){d->g, val->device, val->dev_index, rank};
}

/* The argument value that return `ret` aliases by schema, or 0; a list parameter gives its k-th item. */
static ValRef metainfer_alias(const MgGraph *g, const MgOp *op, NodeRef n, int ret, uint32_t k) {
  if (op->ret_alias[ret] < 0) return 0;
  for (int i = 0; i < op->nparam; i++) {
    const MgArg *a = &g->node[n].arg[i];
    if (op->param[i].alias_set != op->ret_alias[ret]) continue;
    if (a->tag == MA_val) return a->u.val;
    if (a->tag == MA_list && k < a->n && a->u.item[k].tag == MA_val) return a->u.item[k].u.val;
  }
  return 0;
}

static SymRef metainfer_sym(MgRec *r, int64_t v) {
  return r->cap->sizes.symbolic ? (SymRef)v : mg_sym(r->x, v);
}

/* Makes the node's result values from an entry. */
static int metainfer_apply(MgRec *r, const MgFrontOp *fo, NodeRef n, const MetaEntry *e) {
  MgGraph *g = r->g;
  const MgOp *op = fo->op;
  struct metainfer_device dev = {g, DEV_cpu, -1, 0};
  mg_node_each_val(mg_node(g, n), metainfer_see_device, &dev);
  for (int i = 0; i < op->nparam; i++) {
    const MgArg *a = &mg_node(g, n)->arg[i];
    if (a->tag == MA_device) dev = (struct metainfer_device){g, (uint8_t)a->u.code, a->dev_index, 3};
  }
  ValRef *out = mg_new(g->c, ValRef, e->nout + 1);
  if (!out) return PyErr_NoMemory(), -1;
  int ret = -1;
  uint32_t left = 0, k = 0, nlist = e->nout;
  for (int i = 0; i < op->nret; i++) nlist -= op->ret_kind[i] == AK_tensor;
  for (uint32_t i = 0; i < e->nout; i++, k++, left--) {
    while (!left) { /* the next return that holds tensors */
      k = 0;
      ret++;
      left = op->ret_kind[ret] == AK_tensor ? 1 : op->ret_kind[ret] == AK_tensor_list ? nlist : 0;
    }
    const MetaOut *o = &e->out[i];
    if (!o->defined) continue;
    ValRef alias = metainfer_alias(g, op, n, ret, k);
    out[i] = mg_graph_val(g, (MgDtype)o->dtype, o->ndim);
    if (!out[i]) return PyErr_NoMemory(), -1;
    MgVal *v = mg_val(g, out[i]);
    const int64_t *d = e->pool + o->dims;
    for (int j = 0; j < o->ndim; j++) {
      v->size[j] = metainfer_sym(r, d[j]);
      v->stride[j] = metainfer_sym(r, d[o->ndim + j]);
    }
    v->offset = metainfer_sym(r, d[2 * o->ndim]);
    v->def = n;
    v->out = (uint32_t)i;
    v->device = dev.device;
    v->dev_index = dev.device == DEV_cpu ? -1 : dev.index;
    if (alias) v->storage = mg_val(g, alias)->storage;
  }
  MgNode *node = mg_node(g, n);
  node->out = out;
  node->nout = (uint32_t)e->nout;
  return 0;
}

static void metainfer_entry_free(MetaEntry *e) {
  free(e->key);
  free(e->out);
  free(e->pool);
  *e = (MetaEntry){0};
}

void mg_metainfer_reset(void) {
  for (uint32_t i = 0; i < metainfer_n; i++) metainfer_entry_free(&metainfer_entry[i]);
  free(metainfer_entry);
  metainfer_entry = NULL;
  metainfer_n = metainfer_cap = 0;
  mg_map_free(&metainfer_map);
  metainfer_map = (MgMap){0};
}

/* Keeps an entry (takes over its memory, on failure too). */
static void metainfer_keep(uint64_t hash, MetaEntry e) {
  if (metainfer_n >= METAINFER_MAX) mg_metainfer_reset();
  bool room =
      metainfer_n < metainfer_cap || mg_grow(&metainfer_entry, &metainfer_cap, sizeof *metainfer_entry, 128);
  if (!room || mg_map_put(&metainfer_map, hash, metainfer_n)) {
    metainfer_entry_free(&e);
    return;
  }
  metainfer_entry[metainfer_n++] = e;
}

int mg_metainfer_run(MgRec *r, const MgFrontOp *fo, NodeRef n, PyObject **pyret) {
  const MgOp *op = fo->op;
  MetaKey k = {0};
  MetaEntry e = {0};
  int rc = -1;
  int8_t default_dtype = mg_state_default_dtype(); /* numbers promote to it; the segment may have set it */
  metainfer_put(&k, &op->id, sizeof op->id);
  metainfer_put(&k, &default_dtype, 1);
  for (int i = 0; i < op->nparam; i++) metainfer_put_arg(&k, r->g, &mg_node(r->g, n)->arg[i]);
  bool cacheable = fo->plain && !k.failed && !k.symbolic;
  uint64_t hash = cacheable ? mg_hash_bytes(k.p, k.n, 0) | 2 : 0;
  uint32_t found = cacheable ? mg_map_get(&metainfer_map, hash) : MG_MAP_NONE;
  if (found != MG_MAP_NONE) {
    const MetaEntry *hit = &metainfer_entry[found];
    if (hit->nkey == k.n && !memcmp(hit->key, k.p, k.n)) {
      free(k.p);
      return metainfer_apply(r, fo, n, hit);
    }
  }
  r->cap->sizes.asked = 0;
  PyObject *res = metainfer_call(r, fo, n);
  if (!res) goto done;
  if (r->cap->sizes.asked) cacheable = false;
  if (r->cap->sizes.asked && !r->cap->sizes.probe) {
    rc = META_DATA;
    goto done;
  }
  if (metainfer_read_all(r, &e, op, res)) goto done;
  if (metainfer_apply(r, fo, n, &e)) goto done;
  if (!fo->plain) *pyret = Py_NewRef(res);
  rc = 0;
  if (cacheable) {
    e.key = k.p;
    e.nkey = k.n;
    k.p = NULL;
    metainfer_keep(hash, e);
    e = (MetaEntry){0};
  }
done:
  Py_XDECREF(res);
  free(k.p);
  metainfer_entry_free(&e);
  return rc;
}

/* The kernel with symbols for sizes; see the header. */
static int metainfer_by_symbols(MgRec *r, const MgFrontOp *fo, NodeRef n, PyObject **pyret) {
  MetaEntry e = {0};
  PyObject *kernels = mg_import("torch._decomp"), *C = kernels ? mg_import("torch._C") : NULL;
  PyObject *on = C ? mg_context_enter(PyObject_CallMethod(C, "_EnablePythonDispatcher", NULL)) : NULL,
           *res = NULL;
  if (on) {
    res = metainfer_try(r, fo, n, true, false);
    if (mg_context_exit(on)) Py_CLEAR(res);
  }
  int rc = res && !metainfer_read_all(r, &e, fo->op, res) && !metainfer_apply(r, fo, n, &e) ? 0 : -1;
  if (!rc && !fo->plain) *pyret = Py_NewRef(res);
  Py_XDECREF(kernels);
  Py_XDECREF(C);
  Py_XDECREF(res);
  metainfer_entry_free(&e);
  return rc;
}

int mg_metainfer_symbolic(MgRec *r, const MgFrontOp *fo, NodeRef n, bool exact, PyObject **pyret) {
  MgSymSizes *s = &r->cap->sizes;
  MgHookMode mode = mg_hook_mode;
  mg_hook_mode = HOOK_off; /* torch's kernels are no part of the program */
  PyObject *off = mg_fmodes_off();
  s->symbolic = true;
  s->exact = exact;
  s->asked = 0;
  int rc = off ? metainfer_by_symbols(r, fo, n, pyret) : -1;
  if (s->asked) rc = -1; /* made up */
  s->symbolic = s->exact = false;
  if (off && mg_context_exit(off)) rc = -1;
  mg_hook_mode = mode;
  return rc;
}
