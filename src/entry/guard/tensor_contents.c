/* See the header.  In: a tensor of the program.  Out: its numbers as Python's.  Does not do: tensors of
 * classes of the program, and memory that is not dense. */
#include "entry/guard/tensor_contents.h"
#include "entry/guard/guard_set.h"
#include "host/python/names.h"
#include "host/torch/tensor_facts.h"
#include "ir/graph/graph.h"
#include "runtime/process/torch_abi.h"
#include "tuning.h"

typedef struct Contents {
  const void *p;
  int64_t n;
  int32_t dtype;
} Contents;

static bool contents_dense(MgTensor *t, int64_t ndim) {
  int64_t *size, *stride, want = 1;
  if (mg_abi.aoti_torch_get_sizes(t, &size) || mg_abi.aoti_torch_get_strides(t, &stride)) return false;
  for (int64_t i = ndim; i-- > 0;) {
    if (size[i] != 1 && stride[i] != want) return false;
    want *= size[i];
  }
  return true;
}

static bool contents_look(PyObject *tensor, Contents *c) {
  int32_t device = -1;
  int64_t ndim = -1;
  void *p = NULL;
  if (!tensor || Py_TYPE(tensor) != mg_torch.tensor) return false;
  MgTensor *t = mg_facts_tensor(tensor);
  if (mg_abi.aoti_torch_get_device_type(t, &device) || device != DEV_cpu) return false;
  if (mg_abi.aoti_torch_get_dim(t, &ndim) || mg_abi.aoti_torch_get_numel(t, &c->n) ||
      c->n > MG_TUNE_CONTENT_ELEMENTS || c->n <= 0 || !contents_dense(t, ndim))
    return false;
  if (mg_abi.aoti_torch_get_dtype(t, &c->dtype) || mg_abi.aoti_torch_get_data_ptr(t, &p)) return false;
  c->p = p;
  return p && (c->dtype == DT_i64 || c->dtype == DT_i32 || c->dtype == DT_bool);
}

static int64_t contents_at(const Contents *c, int64_t i) {
  switch (c->dtype) {
  case DT_i64: return ((const int64_t *)c->p)[i];
  case DT_i32: return ((const int32_t *)c->p)[i];
  default: return ((const bool *)c->p)[i];
  }
}

PyObject *mg_contents_of(PyObject *tensor) {
  Contents c;
  PyObject *r = contents_look(tensor, &c) ? PyTuple_New((Py_ssize_t)c.n) : NULL;
  for (int64_t i = 0; r && i < c.n; i++) {
    PyObject *x = PyLong_FromLongLong(contents_at(&c, i));
    if (x) PyTuple_SET_ITEM(r, i, x);
    else Py_CLEAR(r);
  }
  return r;
}

bool mg_contents_hold(PyObject *tensor, PyObject *want) {
  Contents c;
  if (!contents_look(tensor, &c) || c.n != PyTuple_GET_SIZE(want)) return false;
  for (int64_t i = 0; i < c.n; i++)
    if (PyLong_AsLongLong(PyTuple_GET_ITEM(want, i)) != contents_at(&c, i)) return false;
  return true;
}

uint32_t mg_contents_guarded(const MgGuards *g) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < g->nop; i++)
    if (g->op[i].kind == GK_content) n += (uint32_t)PyTuple_GET_SIZE(g->op[i].o);
  return n;
}
