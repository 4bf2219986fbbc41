#include "front/facts.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/ctx.h"

static bool (*facts_requires_grad)(void *impl); /* c10::TensorImpl::requires_grad() const */
static int facts_keyset_at;                     /* byte offset of TensorImpl::key_set_; 0: unknown */

/* at::Tensor is one pointer to its TensorImpl. */
static void *facts_impl(PyObject *t) { return *(void **)mg_facts_tensor(t); }

static uint64_t facts_keyset(PyObject *t) {
  return facts_keyset_at ? *(uint64_t *)((char *)facts_impl(t) + facts_keyset_at) : 0;
}

bool mg_facts_requires_grad(PyObject *t) { return facts_requires_grad(facts_impl(t)); }

/* torch._C._dispatch_keys(t).raw_repr(); 0 with the exception cleared when this torch lacks it. */
static uint64_t facts_ask_keyset(PyObject *torch_c, PyObject *t) {
  PyObject *k = PyObject_CallMethod(torch_c, "_dispatch_keys", "O", t);
  PyObject *r = k ? PyObject_CallMethod(k, "raw_repr", NULL) : NULL;
  uint64_t v = r ? PyLong_AsUnsignedLongLong(r) : 0;
  Py_XDECREF(k);
  Py_XDECREF(r);
  PyErr_Clear();
  return v;
}

const char *mg_facts_init(void) {
  if (facts_requires_grad) return NULL;
  const char *missing = mg_abi_load();
  if (missing) return missing;
  void *c10 = dlopen("libc10.so", RTLD_NOLOAD | RTLD_LAZY);
  *(void **)&facts_requires_grad = c10 ? dlsym(c10, "_ZNK3c1010TensorImpl13requires_gradEv") : NULL;
  if (!facts_requires_grad) return "c10::TensorImpl::requires_grad";
  /* A plain tensor, a parameter-like one and a conjugated one have three different key sets; the one offset that shows
   * all three is the field. */
  enum { WORDS = 32, PROBES = 3 };
  PyObject *torch = PyImport_ImportModule("torch"), *c = torch ? PyObject_GetAttrString(torch, "_C") : NULL;
  PyObject *t[PROBES] = {NULL};
  if (c) {
    t[0] = PyObject_CallMethod(torch, "empty", "i", 3);
    t[1] = PyObject_CallMethod(torch, "tensor", "D", &(Py_complex){1, 1});
    t[2] = t[1] ? PyObject_CallMethod(t[1], "conj", NULL) : NULL;
  }
  if (t[0] && t[1] && t[2]) {
    uint64_t want[PROBES];
    for (int i = 0; i < PROBES; i++) want[i] = facts_ask_keyset(c, t[i]);
    int found = 0, at = 0;
    for (int w = 1; w < WORDS && want[0] && want[1] != want[2]; w++) {
      bool all = true;
      for (int i = 0; i < PROBES; i++) all &= ((uint64_t *)facts_impl(t[i]))[w] == want[i];
      if (all) found++, at = w * 8;
    }
    if (found == 1) facts_keyset_at = at;
  }
  PyErr_Clear();
  for (int i = 0; i < PROBES; i++) Py_XDECREF(t[i]);
  Py_XDECREF(c);
  Py_XDECREF(torch);
  return NULL;
}

MgFacts *mg_facts_new(PyObject *o) {
  MgTensor *t = mg_facts_tensor(o);
  int64_t n = 0, *p;
  mg_abi.aoti_torch_get_dim(t, &n);
  MgFacts *f = mg_calloc(1, sizeof *f + sizeof(int64_t) * 2 * (size_t)n);
  if (!f) return NULL;
  f->type = Py_TYPE(o);
  f->ndim = (int32_t)n;
  f->keyset = facts_keyset(o);
  f->requires_grad = mg_facts_requires_grad(o);
  mg_abi.aoti_torch_get_dtype(t, &f->dtype);
  mg_abi.aoti_torch_get_device_type(t, &f->device);
  mg_abi.aoti_torch_get_device_index(t, &f->device_index);
  mg_abi.aoti_torch_get_layout(t, &f->layout);
  if (mg_abi.aoti_torch_get_sizes(t, &p) == 0 && n) memcpy(f->dim, p, sizeof *p * (size_t)n);
  if (mg_abi.aoti_torch_get_strides(t, &p) == 0 && n) memcpy(f->dim + n, p, sizeof *p * (size_t)n);
  return f;
}

bool mg_facts_hold(const MgFacts *f, PyObject *o) {
  if (Py_TYPE(o) != f->type) return false;
  MgTensor *t = mg_facts_tensor(o);
  int64_t n, *p, *q;
  int32_t i;
  if (facts_keyset(o) != f->keyset) return false;
  mg_abi.aoti_torch_get_dim(t, &n);
  if (n != f->ndim) return false;
  mg_abi.aoti_torch_get_dtype(t, &i);
  if (i != f->dtype) return false;
  mg_abi.aoti_torch_get_sizes(t, &p);
  mg_abi.aoti_torch_get_strides(t, &q);
  for (int64_t k = 0; k < n; k++)
    if (p[k] != f->dim[k] || q[k] != f->dim[n + k]) return false;
  if (!f->keyset) { /* the key set tells these apart */
    mg_abi.aoti_torch_get_layout(t, &i);
    if (i != f->layout) return false;
    mg_abi.aoti_torch_get_device_type(t, &i);
    if (i != f->device) return false;
  }
  if (f->device) {
    mg_abi.aoti_torch_get_device_index(t, &i);
    if (i != f->device_index) return false;
  }
  return mg_facts_requires_grad(o) == f->requires_grad;
}

void mg_facts_explain(const MgFacts *f, PyObject *o, char *text, size_t n) {
  if (Py_TYPE(o) != f->type) {
    snprintf(text, n, "type: recorded %s, now %s", f->type->tp_name, Py_TYPE(o)->tp_name);
    return;
  }
  MgFacts *g = mg_facts_new(o);
  if (!g) return;
  int k = 0;
  while (g->ndim == f->ndim && k < 2 * f->ndim && g->dim[k] == f->dim[k]) k++;
#define DIFF(field)                                                                                          \
  if (g->field != f->field)                                                                                  \
    snprintf(text, n, #field ": recorded %lld, now %lld", (long long)f->field, (long long)g->field);         \
  else
  DIFF(dtype) DIFF(device) DIFF(device_index) DIFF(layout) DIFF(ndim) DIFF(requires_grad) DIFF(keyset)
  if (k < 2 * f->ndim)
    snprintf(text, n, "%s(%d): recorded %lld, now %lld", k < f->ndim ? "size" : "stride", k % f->ndim,
             (long long)f->dim[k], (long long)g->dim[k]);
#undef DIFF
  free(g);
}

bool mg_facts_extent(PyObject *o, uintptr_t *lo, uintptr_t *hi) {
  /* Bytes of an element, by c10::ScalarType; the quantized and packed kinds after bfloat16 count as one byte. */
  static const uint8_t width[] = {1, 1, 2, 4, 8, 2, 4, 8, 4, 8, 16, 1, 1, 1, 4, 2};
  MgTensor *t = mg_facts_tensor(o);
  int64_t n, *size, *stride;
  int32_t dtype, layout;
  void *p;
  if (mg_abi.aoti_torch_get_layout(t, &layout) || layout || mg_abi.aoti_torch_get_data_ptr(t, &p) || !p) return false;
  if (mg_abi.aoti_torch_get_dim(t, &n) || mg_abi.aoti_torch_get_dtype(t, &dtype)) return false;
  if (mg_abi.aoti_torch_get_sizes(t, &size) || mg_abi.aoti_torch_get_strides(t, &stride)) return false;
  int64_t last = 0;
  for (int64_t k = 0; k < n; k++) {
    if (!size[k]) return false;
    last += (size[k] - 1) * stride[k];
  }
  *lo = (uintptr_t)p;
  *hi = *lo + (uintptr_t)(last + 1) * (dtype >= 0 && dtype < 16 ? width[dtype] : 1);
  return true;
}
