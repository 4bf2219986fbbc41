/* Looks up PyTorch's C ABI, the OpenMP library that torch uses, and the layout of a Python tensor.
 * In: a process in which torch is loaded.  Out: mg_abi, filled once.  Does not keep anything alive: torch's
 * libraries are never unloaded. */
#define _GNU_SOURCE
#include "runtime/process/torch_abi.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

MgAbi mg_abi;
static void *abi_cpu, *abi_python; /* handles of torch's libraries */
static const char *abi_error;      /* answer of mg_abi_load */
static pthread_once_t abi_once = PTHREAD_ONCE_INIT;

#define OPTIONAL(field, handle, name) (*(void **)&mg_abi.field = dlsym((handle), (name)))

/* The folder `up` from the folder of the library that has this symbol. */
static void abi_find_site(const void *symbol, const char *up, char *site) {
  enum { SIZE = sizeof mg_abi.site[0] };
  Dl_info where;
  const char *slash =
      symbol && dladdr(symbol, &where) && where.dli_fname ? strrchr(where.dli_fname, '/') : NULL;
  if (!slash || snprintf(site, SIZE, "%.*s/%s", (int)(slash - where.dli_fname), where.dli_fname, up) >= SIZE)
    *site = 0;
}

static void abi_load_once(void) {
  abi_cpu = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  abi_python = dlopen("libtorch_python.so", RTLD_LAZY | RTLD_NOLOAD);
  if (!abi_cpu) {
    abi_error = "libtorch_cpu.so is not loaded in this process (import torch first)";
    return;
  }
#define ABI(ret, name, args)                                                                                 \
  if (!(*(void **)&mg_abi.name = dlsym(abi_cpu, #name))) abi_error = "this torch lacks " #name;
  MG_ABI_FUNCS(ABI)
#undef ABI
  OPTIONAL(torch_get_num_threads, abi_cpu, "torch_get_num_threads");
  OPTIONAL(torch_set_requires_grad, abi_cpu, "torch_set_requires_grad");
  OPTIONAL(as_strided, abi_cpu,
           "_ZN2at4_ops10as_strided4callERKNS_6TensorEN3c108ArrayRefINS5_6SymIntEEES8_St8optionalIS7_E");
  /* A handle is freed by torch's operator delete: of two allocators in a process (sanitizers,
   * LD_PRELOAD) the global one's. */
  if (!OPTIONAL(operator_new, RTLD_DEFAULT, "_Znwm")) OPTIONAL(operator_new, abi_cpu, "_Znwm");
  OPTIONAL(record_start, abi_cpu, "aoti_record_function_start");
  OPTIONAL(record_end, abi_cpu, "aoti_record_function_end");
  OPTIONAL(tensor_to_ivalue, abi_cpu, "aoti_torch_tensor_to_ivalue");
  OPTIONAL(ivalue_delete, abi_cpu, "aoti_torch_delete_c10_value_object");
  OPTIONAL(record_tls, abi_cpu, "_ZN2at24get_record_function_tls_Ev");
  OPTIONAL(record_global, abi_cpu, "_ZN2at18hasGlobalCallbacksEv");
  OPTIONAL(anomaly_enabled, abi_cpu, "_ZN5torch8autograd11AnomalyMode8_enabledE");
  OPTIONAL(node_hooks_empty, abi_cpu, "_ZN2at4impl17NodeCreationHooks5emptyEv");
  OPTIONAL(grad_fn, abi_cpu, "_ZNK2at10TensorBase7grad_fnEv");
  OPTIONAL(exec_info, abi_cpu, "_ZN5torch8autograd32get_current_graph_task_exec_infoEv");
  OPTIONAL(functorch_tls, abi_cpu, "_ZN2at9functorch20functorchTLSAccessorEv");
  OPTIONAL(set_functorch_tls, abi_cpu,
           "_ZN2at9functorch15setFuncTorchTLSERKSt10shared_ptrIKNS0_16FuncTorchTLSBaseEE");
  OPTIONAL(graph_task, abi_cpu, "_ZN5torch8autograd25get_current_graph_task_idEv");
  OPTIONAL(gradient_number, abi_cpu, "_ZN2at15sequence_number4peekEv");
  /* Through libtorch_cpu's handle, dlsym searches its dependencies: the OpenMP runtime that torch itself
   * uses, even when another one is loaded too. */
  OPTIONAL(gomp_parallel, abi_cpu, "GOMP_parallel");
  OPTIONAL(gomp_barrier, abi_cpu, "GOMP_barrier");
  OPTIONAL(omp_get_thread_num, abi_cpu, "omp_get_thread_num");
  OPTIONAL(omp_get_num_threads, abi_cpu, "omp_get_num_threads");
  OPTIONAL(omp_get_max_threads, abi_cpu, "omp_get_max_threads");
  OPTIONAL(omp_set_num_threads, abi_cpu, "omp_set_num_threads");
  OPTIONAL(omp_in_parallel, abi_cpu, "omp_in_parallel");
  if (!mg_abi.gomp_barrier || !mg_abi.omp_get_thread_num || !mg_abi.omp_get_num_threads ||
      !mg_abi.omp_in_parallel)
    mg_abi.gomp_parallel = NULL; /* all or nothing: without them everything runs on the calling thread */
  if (abi_python) {
    OPTIONAL(thpvariable_wrap, abi_python, "_Z16THPVariable_WrapRKN2at10TensorBaseE");
    OPTIONAL(thpvariable_wrap_type, abi_python, "_Z16THPVariable_WrapRKN2at10TensorBaseEP11_typeobject");
  }
  abi_find_site((void *)mg_abi.aoti_torch_get_dim, "../..", mg_abi.site[0]); /* torch/lib/libtorch_cpu.so */
  abi_find_site(&mg_abi, "..", mg_abi.site[1]);                              /* magneto/_magneto.so */
}

MgTensor *mg_abi_view(MgTensor *base, int64_t n, const int64_t *size, const int64_t *stride, int64_t offset) {
  MgTensor *v = mg_abi.as_strided && mg_abi.operator_new ? mg_abi.operator_new(sizeof(void *))
                                                         : NULL; /* as handles are allocated */
  const MgOptInt at = {offset, true};
  if (v) mg_abi.as_strided(v, base, size, (size_t)n, stride, (size_t)n, &at);
  return v;
}

const char *mg_abi_load(void) {
  pthread_once(&abi_once, abi_load_once);
  return abi_error;
}

/* Sizes and strides that no default would produce. */
static const int64_t selftest_size[3] = {3, 5, 2}, selftest_stride[3] = {1, 7, 41};

MgTensor *mg_abi_selftest_tensor(void) {
  MgTensor *t = NULL;
  if (mg_abi_load()) return NULL;
  return mg_abi.aoti_torch_empty_strided(3, selftest_size, selftest_stride, 7, 0, 0, &t) ? NULL : t;
}

static bool abi_facts_hold(MgTensor *t) {
  int64_t dim = 0, *size = NULL, *stride = NULL;
  int32_t dtype = -1, device = -1;
  if (mg_abi.aoti_torch_get_dim(t, &dim) || dim != 3) return false;
  if (mg_abi.aoti_torch_get_sizes(t, &size) || mg_abi.aoti_torch_get_strides(t, &stride)) return false;
  if (mg_abi.aoti_torch_get_dtype(t, &dtype) || mg_abi.aoti_torch_get_device_type(t, &device)) return false;
  return !memcmp(size, selftest_size, sizeof selftest_size) &&
         !memcmp(stride, selftest_stride, sizeof selftest_stride) && dtype == 7 && device == 0;
}

/* A TensorImpl is a table of functions, its own count, and its storage: a table, the count that is asked for,
 * and the address of the memory.  Torch's counts of strong references are the lower half of a word. */
typedef struct AbiStorage {
  const void *table;
  uint32_t uses, weak;
  void *data;
} AbiStorage;
typedef struct AbiTensor {
  const void *table;
  uint64_t uses;
  AbiStorage *storage;
} AbiTensor;

static AbiStorage *abi_storage(MgTensor *t) { return (*(AbiTensor *const *)t)->storage; }

uint32_t mg_abi_storage_uses(MgTensor *t) {
  return mg_abi.counts_uses ? __atomic_load_n(&abi_storage(t)->uses, __ATOMIC_ACQUIRE) : 0;
}

void *mg_abi_storage_data(MgTensor *t) { return mg_abi.counts_uses ? abi_storage(t)->data : NULL; }

/* Is the count where it is expected?  The storage's address is compared with one that is known before it is
 * followed: two tensors over the same memory have the same word there, others another. */
static bool abi_counts_hold(MgTensor *t) {
  MgTensor *view = NULL, *other = mg_abi_selftest_tensor();
  void *data = NULL;
  bool ok = other && !mg_abi.aoti_torch_get_data_ptr(t, &data) && data &&
            !mg_abi.aoti_torch__reinterpret_tensor(t, 3, selftest_size, selftest_stride, 0, &view) &&
            abi_storage(t) == abi_storage(view) && abi_storage(t) != abi_storage(other) &&
            abi_storage(t)->data == data;
  uint32_t two = ok ? abi_storage(t)->uses : 0;
  if (view) mg_abi.aoti_torch_delete_tensor_object(view);
  if (other) mg_abi.aoti_torch_delete_tensor_object(other);
  return ok && two == 2 && abi_storage(t)->uses == 1;
}

const char *mg_abi_selftest(const void *object, MgTensor *wrapped, size_t header) {
  mg_abi.tensor_offset = 0;
  if (!abi_facts_hold(wrapped)) return "torch's C ABI reports wrong facts about a tensor";
  /* An at::Tensor is one pointer to its implementation: the same in our handle and in the Python object.
   * Only the first words are looked at, so a foreign layout is noticed without following a wrong pointer. */
  void *impl = *(void *const *)wrapped;
  for (size_t at = header; at <= header + sizeof(void *); at += sizeof(void *)) {
    if (memcmp((const char *)object + at, &impl, sizeof impl)) continue;
    if (!abi_facts_hold((MgTensor *)((char *)object + at))) break;
    mg_abi.tensor_offset = at;
    mg_abi.counts_uses = abi_counts_hold(wrapped);
    return NULL;
  }
  return "the layout of Python tensors is not the expected one";
}

void *mg_abi_symbol(const char *name) {
  void *p = abi_cpu ? dlsym(abi_cpu, name) : NULL;
  return p ? p : dlsym(RTLD_DEFAULT, name);
}

unsigned mg_abi_threads(void) {
  uint32_t n = 0;
  if (!mg_abi.gomp_parallel) return 1;
  if (mg_abi.torch_get_num_threads && !mg_abi.torch_get_num_threads(&n) && n) return n;
  int m = mg_abi.omp_get_max_threads ? mg_abi.omp_get_max_threads() : 1;
  return m > 0 ? (unsigned)m : 1;
}
