/* See the header. */
#include "host/torch/torch_state.h"
#include "runtime/process/torch_abi.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* Accessors of libtorch: FN(return type, C name, mangled symbol, argument types).  C++ static member
 * functions of plain types follow the C calling convention on every ABI that torch ships for. */
#define STATE_FNS(FN)                                                                                        \
  FN(bool, grad, "_ZN3c108GradMode10is_enabledEv", (void))                                                   \
  FN(bool, inference, "_ZN3c1013InferenceMode10is_enabledEv", (void))                                        \
  FN(bool, autocast, "_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE", (int8_t))                    \
  FN(int8_t, autocast_dtype, "_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE", (int8_t))             \
  FN(bool, autocast_cache, "_ZN2at8autocast25is_autocast_cache_enabledEv", (void))                           \
  FN(int32_t, autocast_enter, "_ZN2at8autocast17increment_nestingEv", (void))                                \
  FN(int32_t, autocast_leave, "_ZN2at8autocast17decrement_nestingEv", (void))                                \
  FN(void, autocast_clear, "_ZN2at8autocast11clear_cacheEv", (void))                                         \
  FN(int8_t, default_dtype, "_ZN3c1031get_default_dtype_as_scalartypeEv", (void))                            \
  FN(void *, context, "_ZN2at13globalContextEv", (void))                                                     \
  FN(bool, deterministic, "_ZNK2at7Context23deterministicAlgorithmsEv", (void *))                            \
  FN(bool, warn_only, "_ZNK2at7Context31deterministicAlgorithmsWarnOnlyEv", (void *))                        \
  FN(int32_t, function_state, "_ZN2at4impl22PythonTorchFunctionTLS18get_disabled_stateEv", (void))           \
  FN(void, set_function_state,                                                                               \
     "_ZN2at4impl22PythonTorchFunctionTLS18set_disabled_stateENS0_26TorchFunctionDisabledStateE", (int32_t)) \
  FN(int64_t, function_modes, "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv", (void))                     \
  FN(void *const *, saved_hooks, "_ZN2at23SavedTensorDefaultHooks13get_tls_stateEv", (void))                 \
  FN(int64_t, dispatch_modes, "_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv", (void))                      \
  FN(bool, key_included, "_ZN3c104impl28tls_is_dispatch_key_includedENS_11DispatchKeyE", (uint16_t))         \
  FN(void **, jit_tracing, "_ZN5torch3jit6tracer15getTracingStateEv", (void))                                \
  FN(int32_t, threads, "_ZN2at15get_num_threadsEv", (void))

static struct {
#define FN(ret, name, symbol, args) ret(*name) args;
  STATE_FNS(FN)
#undef FN
  void *ctx;              /* at::Context, one per process */
  uint16_t functorch_key; /* c10::DispatchKey that is included inside of torch.func transforms; 0: unknown */
} state;

void mg_state_set_functorch_key(int key) { state.functorch_key = (uint16_t)key; }

const char *mg_state_init(void) {
  if (state.ctx) return NULL;
  void *cpu = dlopen("libtorch_cpu.so", RTLD_NOLOAD | RTLD_LAZY),
       *c10 = dlopen("libc10.so", RTLD_NOLOAD | RTLD_LAZY);
  if (!cpu || !c10) return "libtorch_cpu";
#define FN(ret, name, symbol, args)                                                                          \
  *(void **)&state.name = dlsym(cpu, symbol);                                                                \
  if (!state.name) *(void **)&state.name = dlsym(c10, symbol);                                               \
  if (!state.name) return symbol;
  STATE_FNS(FN)
#undef FN
  state.ctx = state.context();
  return NULL;
}

/* The thread's state begins with a std::stack, over a std::deque {map, size, begin
 * {cur, ...}, end {cur, ...}}. */
static bool state_has_saved_hooks(void) {
  enum { BEGIN = 2, END = 6 };
  void *const *deque = state.saved_hooks();
  return deque[BEGIN] != deque[END];
}

bool mg_state_node_hooks(void) { return mg_abi.node_hooks_empty && !mg_abi.node_hooks_empty(); }

bool mg_state_functorch(void) { return state.functorch_key && state.key_included(state.functorch_key); }

bool mg_state_functorch_unused(void) {
  return mg_abi.functorch_tls && mg_abi.set_functorch_tls && !*mg_abi.functorch_tls();
}

void mg_state_functorch_forget(void) {
  const void *none[2] = {NULL, NULL}; /* a shared_ptr to nothing */
  mg_abi.set_functorch_tls(none);
}

bool mg_state_jit_tracing(void) {
  return *state.jit_tracing() != NULL;
} /* a shared_ptr: its first word points to the state */

long mg_state_function_modes(void) { return (long)state.function_modes(); }

int32_t mg_state_function(int32_t to) {
  int32_t now = state.function_state();
  if (to >= 0 && to != now) state.set_function_state(to);
  return now;
}

int32_t mg_state_autocast_depth(void) {
  state.autocast_enter(); /* torch only tells when the depth changes */
  return state.autocast_leave();
}

void mg_state_autocast_nest(int32_t by) {
  for (; by > 0; by--) state.autocast_enter();
  for (; by < 0; by++)
    if (!state.autocast_leave()) state.autocast_clear();
}

void mg_state_autocast_clear(void) { state.autocast_clear(); }

int8_t mg_state_default_dtype(void) { return state.default_dtype(); }

void mg_state_read(MgTorchState *s) {
  enum { CPU = 0, CUDA = 1 };
  memset(s, 0, sizeof *s);
  s->grad_mode = state.grad();
  s->inference_mode = state.inference();
  s->autocast_cpu = state.autocast(CPU);
  s->autocast_cuda = state.autocast(CUDA);
  s->autocast_cpu_dtype = state.autocast_dtype(CPU);
  s->autocast_cuda_dtype = state.autocast_dtype(CUDA);
  s->autocast_cache = state.autocast_cache();
  s->default_dtype = state.default_dtype();
  s->deterministic = (uint8_t)(state.deterministic(state.ctx) | state.warn_only(state.ctx) << 1);
  s->function_state = (uint8_t)state.function_state();
  s->function_modes = (uint16_t)state.function_modes();
  s->dispatch_modes = (uint16_t)state.dispatch_modes();
  s->functorch = mg_state_functorch();
  s->anomaly = mg_abi.anomaly_enabled && *mg_abi.anomaly_enabled;
  s->jit_tracing = mg_state_jit_tracing();
  s->saved_hooks = state_has_saved_hooks();
  s->node_hooks = mg_state_node_hooks();
  s->threads = (uint32_t)state.threads();
}

bool mg_state_explain(const MgTorchState *was, const MgTorchState *now, char *text, size_t n) {
#define DIFF(field)                                                                                          \
  if (was->field != now->field) {                                                                            \
    snprintf(text, n, "torch state " #field ": recorded %ld, now %ld", (long)was->field, (long)now->field);  \
    return true;                                                                                             \
  }
  DIFF(grad_mode)
  DIFF(inference_mode)
  DIFF(autocast_cpu)
  DIFF(autocast_cuda)
  DIFF(autocast_cpu_dtype)
  DIFF(autocast_cuda_dtype)
  DIFF(autocast_cache)
  DIFF(default_dtype)
  DIFF(deterministic)
  DIFF(function_state)
  DIFF(function_modes)
  DIFF(dispatch_modes)
  DIFF(functorch)
  DIFF(anomaly)
  DIFF(jit_tracing)
  DIFF(saved_hooks)
  DIFF(node_hooks)
  DIFF(threads)
#undef DIFF
  return false;
}
