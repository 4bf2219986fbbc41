/* PyTorch through its C ABI: no torch headers, functions looked up by dlsym when the extension loads.
 * MgTensor is AtenTensorOpaque: for a THPVariable object it lies right behind the PyObject header (checked at
 * load; mg_abi_selftest). */
#ifndef MG_TORCH_ABI_H
#define MG_TORCH_ABI_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct AtenTensorOpaque MgTensor;
enum { MG_TORCH_CUDA = 1 }; /* torch's number of that kind of device */

/* Every function of the ABI that is used: ABI(return type, name, arguments).  Required ones; a missing one
 * makes mg_abi_load fail with its name. */
#define MG_ABI_FUNCS(ABI)                                                                                    \
  ABI(int32_t, aoti_torch_get_sizes, (MgTensor *, int64_t **))                                               \
  ABI(int32_t, aoti_torch_get_strides, (MgTensor *, int64_t **))                                             \
  ABI(int32_t, aoti_torch_get_dim, (MgTensor *, int64_t *))                                                  \
  ABI(int32_t, aoti_torch_get_dtype, (MgTensor *, int32_t *))                                                \
  ABI(int32_t, aoti_torch_get_layout, (MgTensor *, int32_t *))                                               \
  ABI(int32_t, aoti_torch_get_device_type, (MgTensor *, int32_t *))                                          \
  ABI(int32_t, aoti_torch_get_device_index, (MgTensor *, int32_t *))                                         \
  ABI(int32_t, aoti_torch_get_data_ptr, (MgTensor *, void **))                                               \
  ABI(int32_t, aoti_torch_get_storage_offset, (MgTensor *, int64_t *))                                       \
  ABI(int32_t, aoti_torch_get_storage_size, (MgTensor *, int64_t *))                                         \
  ABI(int32_t, aoti_torch_get_numel, (MgTensor *, int64_t *))                                                \
  ABI(int32_t, aoti_torch_empty_strided,                                                                     \
      (int64_t, const int64_t *, const int64_t *, int32_t, int32_t, int32_t, MgTensor **))                   \
  ABI(int32_t, aoti_torch_create_tensor_from_blob,                                                           \
      (void *, int64_t, const int64_t *, const int64_t *, int64_t, int32_t, int32_t, int32_t, MgTensor **))  \
  ABI(int32_t, aoti_torch__reinterpret_tensor,                                                               \
      (MgTensor *, int64_t, const int64_t *, const int64_t *, int64_t, MgTensor **))                         \
  ABI(int32_t, aoti_torch_view_dtype, (MgTensor *, int32_t, MgTensor **))                                    \
  ABI(int32_t, aoti_torch_new_tensor_handle, (MgTensor *, MgTensor **))                                      \
  ABI(int32_t, aoti_torch_delete_tensor_object, (MgTensor *))                                                \
  ABI(int32_t, aoti_torch_copy_, (MgTensor *, MgTensor *, int32_t))                                          \
  ABI(int32_t, aoti_torch_clone_preserve_strides, (MgTensor *, MgTensor **))                                 \
  ABI(bool, aoti_torch_grad_mode_is_enabled, (void))                                                         \
  ABI(void, aoti_torch_grad_mode_set_enabled, (bool))

typedef struct MgOptInt {
  int64_t value;
  bool has;
} MgOptInt;

typedef struct MgAbi {
#define ABI(ret, name, args) ret(*name) args;
  MG_ABI_FUNCS(ABI)
#undef ABI
  /* optional: NULL where this torch lacks them */
  int32_t (*torch_get_num_threads)(uint32_t *);
  int32_t (*torch_set_requires_grad)(MgTensor *, bool);
  void *(*thpvariable_wrap)(const void *tensor); /* THPVariable_Wrap(TensorBase const &): PyObject * */
  void *(*thpvariable_wrap_type)(const void *tensor, void *type); /* the same with a PyTypeObject * */
  /* at::as_strided(self, size, stride, offset); a SymInt is its number, an optional one has a flag behind it.
   * out: room for a tensor. */
  void (*as_strided)(void *out, const void *self, const int64_t *size, size_t nsize, const int64_t *stride,
                     size_t nstride, const MgOptInt *offset);
  void *(*operator_new)(size_t bytes);
  /* A scope that profilers see; kwargs: an empty std::unordered_map; inputs: IValues.  0 when it went well.
   */
  int32_t (*record_start)(const char *name, const void *kwargs, void *const *inputs, uint64_t ninput,
                          void **scope);
  int32_t (*record_end)(void *scope);
  int32_t (*tensor_to_ivalue)(MgTensor *t, void **out); /* new: one more reference to the tensor */
  int32_t (*ivalue_delete)(void *value);
  const void *(*record_tls)(void);          /* at::get_record_function_tls_: begins with a std::vector */
  bool (*record_global)(void);              /* at::hasGlobalCallbacks */
  bool *anomaly_enabled;                    /* torch::autograd::AnomalyMode::_enabled */
  bool (*node_hooks_empty)(void);           /* at::impl::NodeCreationHooks::empty, since torch 2.14 */
  const void *(*grad_fn)(const MgTensor *); /* TensorBase::grad_fn: a pointer whose first word is the Node */
  const void *(*exec_info)(void);    /* get_current_graph_task_exec_info: NULL outside of backward passes */
  int (*graph_task)(void);           /* get_current_graph_task_id: -1 outside of backward passes */
  uint64_t (*gradient_number)(void); /* at::sequence_number::peek: of the next gradient node of the thread */
  const void *const *(*functorch_tls)(void);      /* functorchTLSAccessor: a shared_ptr of the thread */
  void (*set_functorch_tls)(const void *const *); /* setFuncTorchTLS, given a shared_ptr */
  void (*gomp_parallel)(void (*fn)(void *), void *arg, unsigned nthreads, unsigned flags);
  void (*gomp_barrier)(void);
  int (*omp_get_thread_num)(void);
  int (*omp_get_num_threads)(void);
  int (*omp_get_max_threads)(void);
  void (*omp_set_num_threads)(int n);
  int (*omp_in_parallel)(void);
  size_t tensor_offset; /* bytes from a THPVariable to its at::Tensor; 0: unknown, use the slow ways */
  bool counts_uses;     /* mg_abi_storage_uses knows where torch counts */
  char site[2][512]; /* folders in which packages are installed: torch's, and our own (a virtual environment
                        may use the system's torch); "": unknown */
} MgAbi;

extern MgAbi mg_abi;
/* A view of a strided tensor as the program would make it: with its base, and its version counter.  The
 * geometry lies within the base's memory.  new; NULL: this torch cannot be asked so. */
MgTensor *mg_abi_view(MgTensor *base, int64_t n, const int64_t *size, const int64_t *stride, int64_t offset);
/* Finds libtorch_cpu, libtorch_python and the OpenMP library already loaded in this process.  NULL, or what
 * is missing (static text).  Later calls repeat the first answer. */
const char *mg_abi_load(void);
/* Finds out where a THPVariable keeps its tensor, from an object made by wrapping a tensor of ours, and
 * compares facts of that tensor that only the right layout gives.  header: bytes of a PyObject.  Sets
 * mg_abi.tensor_offset; NULL, or why the fast way cannot be used (static text). */
const char *mg_abi_selftest(const void *object, MgTensor *wrapped, size_t header);
/* A tensor of known facts for the self-test (new), or NULL. */
MgTensor *mg_abi_selftest_tensor(void);
/* Address of a function that generated code calls: torch's vector math (Sleef_*), the
 * C library. NULL: unknown. */
void *mg_abi_symbol(const char *name);
/* Tensors and others that hold t's memory; t has some.  0: this torch cannot be asked
 * (mg_abi.counts_uses). */
uint32_t mg_abi_storage_uses(MgTensor *t);
/* Where t's memory begins, which tensors that share it agree about; NULL: not known. */
void *mg_abi_storage_data(MgTensor *t);
/* Threads that torch uses for one operation (at least 1). */
unsigned mg_abi_threads(void);
/* The tensor inside a THPVariable (borrowed).  Only when mg_abi.tensor_offset is known. */
static inline MgTensor *mg_abi_tensor(const void *object) {
  return (MgTensor *)((char *)object + mg_abi.tensor_offset);
}
#endif
