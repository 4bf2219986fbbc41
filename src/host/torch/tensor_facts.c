/* See the header. */
#include "host/torch/tensor_facts.h"
#include <dlfcn.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/ctx.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "host/torch/torch_state.h"

static bool (*facts_requires_grad)(void *impl); /* c10::TensorImpl::requires_grad() const */

/* Where c10::TensorImpl keeps what guards compare: byte offsets, learned from tensors with known values
 * because the class is no public ABI; all 0 when a field was not found, and then the C ABI is asked.
 * SizesAndStrides is a count, then sizes and strides in room for INLINE_DIMS of each. */
enum { INLINE_DIMS = 5 };
static struct {
  int sizes, dtype, keyset;
  int grad_meta,
      grad_flag; /* AutogradMeta *, and in it the flag of a leaf that requires grad; 0 when not found */
  int hooks[2];  /* in the Python object: its dicts of hooks; 0 when not found */
  int counter, version; /* VersionCounter *, and in it the number; version is 0 when not found */
} facts_at;
static uint64_t facts_memory_keys, facts_dense_key; /* 0: not known */

/* at::Tensor is one pointer to its TensorImpl. */
static char *facts_impl(PyObject *t) { return *(char **)mg_facts_tensor(t); }

static uint64_t facts_keyset(PyObject *t) {
  return facts_at.keyset ? *(uint64_t *)(facts_impl(t) + facts_at.keyset) : 0;
}

bool mg_facts_requires_grad(PyObject *t) { return facts_requires_grad(facts_impl(t)); }

/* The same in place where that decides: no AutogradMeta is no, a leaf's flag is yes. */
static inline bool facts_wants_grad(const char *impl) {
  if (facts_at.grad_flag) {
    const char *meta = *(char *const *)(impl + facts_at.grad_meta);
    if (!meta) return false;
    if (meta[facts_at.grad_flag] == 1) return true;
  }
  return facts_requires_grad((void *)impl);
}

/* torch._C._dispatch_keys(t).raw_repr(); 0 with the exception cleared when this torch lacks it. */
static uint64_t facts_ask_keyset(PyObject *torch_c, PyObject *t) {
  PyObject *k = PyObject_CallMethod(torch_c, "_dispatch_keys", "O", t);
  PyObject *r = k ? PyObject_CallMethod(k, "raw_repr", NULL) : NULL;
  uint64_t v = r ? PyLong_AsUnsignedLongLong(r) : 0;
  Py_XDECREF(k);
  Py_XDECREF(r);
  mg_clear_as_no();
  return v;
}

enum { PROBES = 3, IMPL_BYTES = 192 };

/* Bytes of a C++ object, allocated on its own, that may be looked at. */
static int facts_room(const void *object, int most) {
  size_t room = malloc_usable_size((void *)object);
  return room < (size_t)most ? (int)room : most;
}

/* Keys of tensors whose values are in memory: strided, sparse, with lazy
 * conjugation or negation, all zero. */
static void facts_learn_memory(PyObject *torch) {
  static const char *const text[] = {
      "torch.zeros(2, 2)", "torch.zeros(2, 2).to_sparse()", "torch.zeros(2, dtype=torch.cfloat).conj()",
      "torch.zeros(2, dtype=torch.cfloat).conj().imag", "torch._efficientzerotensor(2)"};
  static const char *const gpu[] = {"torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA).raw_repr()",
                                    "torch._C.DispatchKeySet(torch._C.DispatchKey.AutogradCUDA).raw_repr()",
                                    "torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA).raw_repr()"};
  PyObject *c = PyObject_GetAttrString(torch, "_C"), *ns = Py_BuildValue("{s:O}", "torch", torch);
  uint64_t all = 0;
  for (size_t i = 0; c && ns && i < sizeof text / sizeof *text; i++) {
    PyObject *t = PyRun_String(text[i], Py_eval_input, ns, ns);
    if (t) all |= facts_ask_keyset(c, t);
    mg_clear_as_no();
    Py_XDECREF(t);
  }
  for (size_t i = 0; all && i < sizeof gpu / sizeof *gpu; i++) { /* without starting CUDA */
    PyObject *k = PyRun_String(gpu[i], Py_eval_input, ns, ns);
    if (k) all |= PyLong_AsUnsignedLongLong(k);
    mg_clear_as_no();
    Py_XDECREF(k);
  }
  facts_memory_keys = all;
  PyObject *dense =
      PyRun_String("torch._C.DispatchKeySet(torch._C.DispatchKey.Dense).raw_repr()", Py_eval_input, ns, ns);
  facts_dense_key = dense ? PyLong_AsUnsignedLongLong(dense) : 0;
  Py_XDECREF(dense);
  if (PyErr_Occurred()) facts_dense_key = 0, mg_clear_as_no();
  Py_XDECREF(c);
  Py_XDECREF(ns);
}

bool mg_facts_is_dense(PyObject *t) {
  return !facts_dense_key || !facts_at.keyset || (facts_keyset(t) & facts_dense_key) != 0;
}

bool mg_facts_in_memory(PyObject *t) { return !facts_memory_keys || !(facts_keyset(t) & ~facts_memory_keys); }

/* The one offset, a multiple of step, at which every probe shows its value; 0 when there
 * is none or more than one. */
static int facts_find(PyObject *const *t, const void *const *want, size_t n, int step) {
  int found = 0, at = 0, room = IMPL_BYTES;
  for (int k = 0; k < PROBES; k++) room = facts_room(facts_impl(t[k]), room);
  for (int i = step; i + (int)n <= room; i += step) {
    bool all = true;
    for (int k = 0; k < PROBES; k++) all &= !memcmp(facts_impl(t[k]) + i, want[k], n);
    if (all) found++, at = i;
  }
  return found == 1 ? at : 0;
}

/* Probes differ in dtype, in shape and in dispatch keys (the last one is a lazy conjugate). */
static void facts_learn(PyObject *torch_c, PyObject *const *t) {
  uint64_t keyset[PROBES];
  uint16_t dtype[PROBES];
  int64_t dims[PROBES][1 + INLINE_DIMS + 2];
  const void *k[PROBES], *d[PROBES], *s[PROBES];
  for (int i = 0; i < PROBES; i++) {
    MgTensor *h = mg_facts_tensor(t[i]);
    int32_t code = 0;
    int64_t n = 0, *size = NULL;
    mg_abi.aoti_torch_get_dtype(h, &code);
    mg_abi.aoti_torch_get_dim(h, &n);
    mg_abi.aoti_torch_get_sizes(h, &size);
    keyset[i] = facts_ask_keyset(torch_c, t[i]);
    dtype[i] = (uint16_t)code;
    dims[i][0] = n;
    memcpy(dims[i] + 1, size, sizeof(int64_t) * 2); /* every probe has two dimensions */
    k[i] = &keyset[i];
    d[i] = &dtype[i];
    s[i] = dims[i];
  }
  if (!keyset[0] || keyset[1] == keyset[2]) return;
  int at_key = facts_find(t, k, 8, 8), at_sizes = facts_find(t, s, 24, 8), at_dtype = facts_find(t, d, 2, 2);
  if (!at_key || !at_sizes || !at_dtype) return;
  for (int i = 0; i < PROBES; i++) { /* strides lie where they are expected */
    int64_t *stride;
    mg_abi.aoti_torch_get_strides(mg_facts_tensor(t[i]), &stride);
    if ((char *)stride != facts_impl(t[i]) + at_sizes + 8 * (1 + INLINE_DIMS)) return;
  }
  facts_at.sizes = at_sizes;
  facts_at.dtype = at_dtype;
  facts_at.keyset = at_key;
}

static bool facts_set_requires_grad(PyObject *t, bool on) {
  PyObject *r = PyObject_CallMethod(t, "requires_grad_", "O", on ? Py_True : Py_False);
  Py_XDECREF(r);
  return r != NULL;
}

/* t has never required grad.  AutogradMeta is the pointer that appears when it does; the flag is the one byte
 * in it that is 1, then 0, then 1 again. */
static void facts_learn_grad(PyObject *t) {
  enum { META_BYTES = 160 };
  char *before[IMPL_BYTES / 8], on[META_BYTES], off[META_BYTES];
  int at = 0, flag = 0, found = 0, room = facts_room(facts_impl(t), IMPL_BYTES);
  memcpy(before, facts_impl(t), room);
  if (!facts_set_requires_grad(t, true)) return;
  for (int i = 1; i < room / 8; i++)
    if (!before[i] && *(char **)(facts_impl(t) + 8 * i)) found++, at = 8 * i;
  if (found != 1) return;
  const char *meta = *(char **)(facts_impl(t) + at);
  room = facts_room(meta, META_BYTES);
  memcpy(on, meta, room);
  if (!facts_set_requires_grad(t, false)) return;
  memcpy(off, meta, room);
  if (!facts_set_requires_grad(t, true)) return;
  found = 0;
  for (int i = 8; i < room; i++)
    if (on[i] == 1 && off[i] == 0 && meta[i] == 1) found++, flag = i;
  if (found != 1 || *(char **)(facts_impl(t) + at) != meta) return;
  facts_at.grad_meta = at;
  facts_at.grad_flag = flag;
}

static const char *const facts_hook_names[2] = {"_backward_hooks", "_post_accumulate_grad_hooks"};

/* Where a tensor object has its dicts of hooks: the words that are one after it was set. */
static void facts_learn_hooks(PyObject *t) {
  PyObject *yes = PyObject_CallMethod(t, "requires_grad_", NULL);
  for (int i = 0; yes && i < 2; i++) {
    PyObject *dict = PyDict_New();
    if (dict && !PyObject_SetAttrString(t, facts_hook_names[i], dict)) {
      int end = (int)Py_TYPE(t)->tp_basicsize - (int)sizeof(PyObject *), found = 0;
      for (int at = sizeof(PyObject) + sizeof(void *); at <= end; at += (int)sizeof(void *))
        if (*(PyObject **)((char *)t + at) == dict && !found++) facts_at.hooks[i] = at;
      if (found > 1) facts_at.hooks[i] = 0;
    }
    Py_XDECREF(dict);
  }
  Py_XDECREF(yes);
}

static int facts_ask_version(PyObject *t, int64_t version) {
  static PyObject *set; /* torch._C._autograd._unsafe_set_version_counter */
  PyObject *m = set ? NULL : mg_import("torch._C._autograd");
  if (m) set = PyObject_GetAttrString(m, "_unsafe_set_version_counter");
  Py_XDECREF(m);
  PyObject *r = set ? PyObject_CallFunction(set, "(O)(L)", t, (long long)version) : NULL;
  Py_XDECREF(r);
  return r ? 0 : -1;
}

/* VersionCounter is what t.detach() shares with t and t.data does not; the number in it is the word that
 * shows what it is set to. */
static void facts_learn_version(PyObject *t) {
  static const uint32_t number[] = {0x1234567, 0x7654321};
  PyObject *same = PyObject_CallMethod(t, "detach", NULL), *other = PyObject_GetAttrString(t, "data");
  int found = 0, at = 0, room = same && other ? facts_room(facts_impl(t), IMPL_BYTES) : 0;
  for (int i = 8; i + 8 <= room; i += 8) {
    const char *a = *(char **)(facts_impl(t) + i), *b = *(char **)(facts_impl(same) + i),
               *c = *(char **)(facts_impl(other) + i);
    if (a && c && a == b && a != c) found++, at = i;
  }
  uint64_t hits = found == 1 ? UINT64_MAX : 0; /* bit k: the word at 4 * k */
  for (int n = 0; n < 2 && hits && !facts_ask_version(t, number[n]); n++) {
    const char *counter = *(char **)(facts_impl(t) + at);
    room = facts_room(counter, 4 * 64);
    for (int k = 0; k < 64; k++)
      if (4 * k + 4 > room || *(const uint32_t *)(counter + 4 * k) != number[n]) hits &= ~((uint64_t)1 << k);
  }
  if (hits && !(hits & (hits - 1)) && !facts_ask_version(t, 0)) {
    facts_at.counter = at;
    facts_at.version = 4 * __builtin_ctzll(hits);
  }
  Py_XDECREF(same);
  Py_XDECREF(other);
}

uint32_t *mg_facts_version(PyObject *t) {
  char *counter = facts_at.version ? *(char **)(facts_impl(t) + facts_at.counter) : NULL;
  return counter ? (uint32_t *)(counter + facts_at.version) : NULL;
}

int mg_facts_set_version(PyObject *t, int64_t n) {
  uint32_t *counter = mg_facts_version(t);
  if (counter) return __atomic_store_n(counter, (uint32_t)n, __ATOMIC_SEQ_CST), 0;
  return facts_ask_version(t, n);
}

int mg_facts_count_writes(PyObject *tensors) {
  static PyObject *increment; /* torch._C._increment_version */
  PyObject *c = increment ? NULL : mg_import("torch._C");
  if (c) increment = PyObject_GetAttrString(c, "_increment_version");
  Py_XDECREF(c);
  PyObject *r = increment ? PyObject_CallOneArg(increment, tensors) : NULL;
  Py_XDECREF(r);
  return r ? 0 : -1;
}

int mg_facts_count_write(PyObject *t) {
  uint32_t *counter = mg_facts_version(t);
  if (counter) return __atomic_fetch_add(counter, 1, __ATOMIC_SEQ_CST), 0;
  PyObject *one = PyTuple_Pack(1, t);
  int rc = one ? mg_facts_count_writes(one) : -1;
  Py_XDECREF(one);
  return rc;
}

PyObject *mg_facts_hooks(PyObject *o, bool accumulate) {
  int at = facts_at.hooks[accumulate];
  PyObject *h = at ? *(PyObject **)((char *)o + at) : PyObject_GetAttrString(o, facts_hook_names[accumulate]);
  if (!h) mg_clear_as_no();
  if (!at) Py_XDECREF(h); /* the tensor keeps it */
  return h && h != Py_None && PyObject_IsTrue(h) > 0 ? h : NULL;
}

const char *mg_facts_init(void) {
  if (facts_requires_grad) return NULL;
  const char *missing = mg_abi_load();
  if (missing) return missing;
  void *c10 = dlopen("libc10.so", RTLD_NOLOAD | RTLD_LAZY);
  *(void **)&facts_requires_grad = c10 ? dlsym(c10, "_ZNK3c1010TensorImpl13requires_gradEv") : NULL;
  if (!facts_requires_grad) return "c10::TensorImpl::requires_grad";
  PyObject *torch = mg_import("torch"), *c = torch ? PyObject_GetAttrString(torch, "_C") : NULL;
  PyObject *t[PROBES] = {NULL};
  if (c) {
    t[0] = PyObject_CallMethod(torch, "empty", "ii", 3, 107);
    t[1] = PyObject_CallMethod(torch, "tensor", "[[DD]]", &(Py_complex){1, 1}, &(Py_complex){1, 1});
    t[2] = t[1] ? PyObject_CallMethod(t[1], "conj", NULL) : NULL;
  }
  if (t[0] && t[1] && t[2]) {
    facts_learn(c, t);
    facts_learn_version(t[0]);
    mg_clear_as_no();
    facts_learn_grad(t[0]);
    facts_learn_hooks(t[0]);
  }
  if (facts_at.keyset) facts_learn_memory(torch);
  mg_clear_as_no();
  for (int i = 0; i < PROBES; i++) Py_XDECREF(t[i]);
  Py_XDECREF(c);
  Py_XDECREF(torch);
  return NULL;
}

/* A tensor whose class does its ops, and perhaps answers for its sizes, too. */
static bool facts_is_wrapper(PyObject *o) {
  return Py_TYPE(o) != mg_torch.tensor && Py_TYPE(o) != mg_torch.parameter && !mg_facts_in_memory(o);
}

MgFacts *mg_facts_new(PyObject *o) {
  MgTensor *t = mg_facts_tensor(o);
  int64_t n = 0, *p;
  if (!facts_is_wrapper(o)) mg_abi.aoti_torch_get_dim(t, &n);
  MgFacts *f = mg_calloc(1, sizeof *f + sizeof(int64_t) * 2 * (size_t)n);
  if (!f) return NULL;
  f->type = Py_TYPE(o);
  f->ndim = (int32_t)n;
  f->keyset = facts_keyset(o);
  f->requires_grad = mg_facts_requires_grad(o);
  mg_abi.aoti_torch_get_dtype(t, &f->dtype);
  if ((f->sizeless = facts_is_wrapper(o))) return f;
  mg_abi.aoti_torch_get_device_type(t, &f->device);
  mg_abi.aoti_torch_get_device_index(t, &f->device_index);
  mg_abi.aoti_torch_get_layout(t, &f->layout);
  if (mg_abi.aoti_torch_get_sizes(t, &p) == 0 && n) memcpy(f->dim, p, sizeof *p * (size_t)n);
  if (mg_abi.aoti_torch_get_strides(t, &p) == 0 && n) memcpy(f->dim + n, p, sizeof *p * (size_t)n);
  return f;
}

/* Some sizes may be others. */
static bool facts_hold_dynamic(const MgFacts *f, const int64_t *size, const int64_t *stride) {
  for (int k = 0; k < f->ndim; k++) {
    int64_t least = f->dim[k] == MG_FACTS_FREE ? 0 : f->dim[k] == MG_FACTS_SOME ? 1 : 2;
    if (mg_facts_varies(f->dim[k]) ? size[k] < least || size[k] > MG_FACTS_MOST : size[k] != f->dim[k])
      return false;
    int64_t fixed = f->dim[f->ndim + k];
    int j = f->follow[k] - 1;
    if (j < 0 && fixed == MG_FACTS_ANY) {
      int below = -2 - j;
      if (stride[k] < 2 || stride[k] > MG_FACTS_MOST ||
          (below >= 0 && stride[k] <= size[below] * stride[below]))
        return false;
    } else if (stride[k] != (j < 0 ? fixed : (size[j] ? size[j] : 1) * stride[j])) return false;
  }
  return true;
}

/* The same by the C ABI, one call a fact: where the fields are not known, or there are more
 * dimensions than fit inline. */
static bool facts_hold_by_abi(const MgFacts *f, PyObject *o) {
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
  if (f->dynamic && !facts_hold_dynamic(f, p, q)) return false;
  for (int64_t k = 0; k < n && !f->dynamic; k++)
    if (p[k] != f->dim[k] || q[k] != f->dim[n + k]) return false;
  if (f->keyset) return true; /* the key set tells the rest apart */
  mg_abi.aoti_torch_get_layout(t, &i);
  if (i != f->layout) return false;
  mg_abi.aoti_torch_get_device_type(t, &i);
  return i == f->device;
}

static inline bool facts_hold(const MgFacts *f, PyObject *o) {
  if (Py_TYPE(o) != f->type) return false;
  const char *p = facts_impl(o);
  if (f->sizeless)
    return facts_keyset(o) == f->keyset && facts_wants_grad(p) == f->requires_grad &&
           (!facts_at.dtype || *(const uint16_t *)(p + facts_at.dtype) == f->dtype);
  if (facts_at.keyset && f->ndim <= INLINE_DIMS) {
    const int64_t *dim = (const int64_t *)(p + facts_at.sizes), *stride = dim + 1 + INLINE_DIMS;
    if (*(const uint64_t *)(p + facts_at.keyset) != f->keyset ||
        *(const uint16_t *)(p + facts_at.dtype) != f->dtype)
      return false;
    if (*dim++ != f->ndim) return false;
    int64_t differs = 0;
    if (f->dynamic) differs = !facts_hold_dynamic(f, dim, stride);
    else
      for (int k = 0; k < f->ndim; k++) differs |= (dim[k] ^ f->dim[k]) | (stride[k] ^ f->dim[f->ndim + k]);
    if (differs) return false;
  } else if (!facts_hold_by_abi(f, o)) return false;
  if (f->device) {
    int32_t i;
    mg_abi.aoti_torch_get_device_index(mg_facts_tensor(o), &i);
    if (i != f->device_index) return false;
  }
  for (int i = 0; f->unhooked >> i; i++)
    if (f->unhooked >> i & 1 && mg_facts_hooks(o, i)) return false;
  return f->any_grad || facts_wants_grad(p) == f->requires_grad;
}

bool mg_facts_hold(const MgFacts *f, PyObject *o) { return facts_hold(f, o); }

uint32_t mg_facts_hold_all(const MgFactsOf *p, uint32_t n) {
  uint32_t i = 0;
  while (i < n && facts_hold(p[i].facts, p[i].tensor)) i++;
  return i;
}

bool mg_facts_equal(const MgFacts *a, const MgFacts *b) {
  return a->type == b->type && a->ndim == b->ndim &&
         !memcmp(a, b, sizeof *a + sizeof(int64_t) * 2 * (size_t)a->ndim);
}

static void facts_explain_hooks(const MgFacts *f, PyObject *o, char *text, size_t n) {
  for (int i = 0; i < 2; i++)
    if (f->unhooked >> i & 1 && mg_facts_hooks(o, i))
      snprintf(text, n, "%s: recorded none", facts_hook_names[i]);
}

void mg_facts_explain(const MgFacts *f, PyObject *o, char *text, size_t n) {
  if (Py_TYPE(o) != f->type) {
    snprintf(text, n, "type: recorded %s, now %s", f->type->tp_name, Py_TYPE(o)->tp_name);
    return;
  }
  MgFacts *g = mg_facts_new(o);
  if (!g) return;
  const struct {
    const char *name;
    long long was, now;
  } field[] = {{"dtype", f->dtype, g->dtype},
               {"device", f->device, g->device},
               {"device_index", f->device_index, g->device_index},
               {"layout", f->layout, g->layout},
               {"ndim", f->ndim, g->ndim},
               {"requires_grad", f->requires_grad, f->any_grad ? f->requires_grad : g->requires_grad},
               {"keyset", (long long)f->keyset, (long long)g->keyset}};
  size_t i = 0, nfield = sizeof field / sizeof *field;
  while (i < nfield && field[i].was == field[i].now) i++;
  if (i < nfield) snprintf(text, n, "%s: recorded %lld, now %lld", field[i].name, field[i].was, field[i].now);
  else facts_explain_hooks(f, o, text, n);
  int k = 0, ndim = g->ndim == f->ndim ? f->ndim : 0;
  while (k < 2 * ndim && (g->dim[k] == f->dim[k] || mg_facts_varies(f->dim[k]))) k++;
  if (k < 2 * ndim)
    snprintf(text, n, "%s(%d): recorded %lld, now %lld", k < ndim ? "size" : "stride", k % ndim,
             (long long)f->dim[k], (long long)g->dim[k]);
  free(g);
}

bool mg_facts_learned(void) { return facts_at.keyset != 0; }

bool mg_facts_extent(PyObject *o, uintptr_t *lo, uintptr_t *hi) {
  /* Bytes of an element, by c10::ScalarType; the quantized and packed kinds after
   * bfloat16 count as one byte. */
  static const uint8_t width[] = {1, 1, 2, 4, 8, 2, 4, 8, 4, 8, 16, 1, 1, 1, 4, 2};
  MgTensor *t = mg_facts_tensor(o);
  int64_t n, *size, *stride;
  int32_t dtype, layout;
  void *p;
  if (mg_abi.aoti_torch_get_layout(t, &layout) || layout || mg_abi.aoti_torch_get_data_ptr(t, &p) || !p)
    return false;
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

int64_t mg_facts_distance(PyObject *a, PyObject *b) {
  void *p = NULL, *q = NULL;
  mg_abi.aoti_torch_get_data_ptr(mg_facts_tensor(a), &p);
  mg_abi.aoti_torch_get_data_ptr(mg_facts_tensor(b), &q);
  return (char *)q - (char *)p;
}

/* ---- .grad ---- */

/* c10::TensorImpl::grad() const, and the value that stands for "undefined"; NULL
 * where they are not exported. */
static const void *(*backward_grad)(const void *impl);

static const void *backward_undefined;

static void backward_init(void) {
  static bool done;
  if (done) return;
  done = true;
  void *c10 = dlopen("libc10.so", RTLD_NOLOAD | RTLD_LAZY);
  if (!c10) return;
  backward_undefined = dlsym(c10, "_ZN3c1019UndefinedTensorImpl10_singletonE");
  if (backward_undefined && mg_abi.thpvariable_wrap)
    *(void **)&backward_grad = dlsym(c10, "_ZNK3c1010TensorImpl4gradEv");
}

PyObject *mg_backward_grad_of(PyObject *tensor) {
  PyObject *g;
  backward_init();
  if (backward_grad) {
    const void *t = backward_grad(*(void **)mg_abi_tensor(tensor));
    if (*(const void *const *)t == backward_undefined) return Py_None;
    g = mg_abi.thpvariable_wrap(t);
  } else g = PyObject_GetAttrString(tensor, "grad");
  Py_XDECREF(g); /* the tensor keeps it, object and all */
  return g;
}

int mg_standin_inference(PyObject *tensor) {
  if (mg_facts_version(tensor)) return 0; /* theirs have no versions */
  PyObject *yes = PyObject_CallMethod((PyObject *)mg_torch.tensor, "is_inference", "O", tensor);
  Py_XDECREF(yes);
  return yes ? yes == Py_True : -1;
}

bool mg_inference_mode_on(void) {
  MgTorchState now;
  mg_state_read(&now);
  return now.inference_mode;
}
