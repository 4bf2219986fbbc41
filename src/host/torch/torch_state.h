/* Global torch state that a recording depends on: read in C, once per entry.
 * In: torch's exported C++ accessors (dlsym; a missing one reads as 0).  Out: one comparable value. */
#ifndef MG_TORCH_STATE_H
#define MG_TORCH_STATE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct MgTorchState {
  uint8_t grad_mode, inference_mode;              /* autograd records; tensors made are inference tensors */
  uint8_t autocast_cpu, autocast_cuda;            /* autocast is on for the device */
  int8_t autocast_cpu_dtype, autocast_cuda_dtype; /* c10::ScalarType */
  uint8_t autocast_cache;
  int8_t default_dtype;                    /* c10::ScalarType */
  uint8_t deterministic;                   /* bit 0: deterministic algorithms, bit 1: only warn */
  uint8_t function_state;                  /* torch_function: enabled, subclasses only, all disabled */
  uint16_t function_modes, dispatch_modes; /* lengths of the mode stacks (default device, user modes) */
  uint8_t functorch;                       /* inside of vmap, grad and the like: tensors are wrappers */
  uint8_t anomaly;                         /* torch.autograd's anomaly mode */
  uint8_t jit_tracing;                     /* torch.jit.trace is listening */
  uint8_t saved_hooks;                     /* functions of the program see what autograd saves */
  uint8_t node_hooks;                      /* functions of the program see each autograd node */
  uint32_t threads;                        /* intra-op threads */
} MgTorchState;

const char *mg_state_init(void);          /* looks the accessors up; NULL, or what is missing */
void mg_state_set_functorch_key(int key); /* torch._C.DispatchKey.FuncTorchDynamicLayerFrontMode */
bool mg_state_functorch(void);            /* inside of a torch.func transform? */
/* Has no torch.func transform run in this thread yet?  Asking torch for their depth makes the thread's record
 * of them, which each backward pass copies from then on. */
bool mg_state_functorch_unused(void);
void mg_state_functorch_forget(void); /* makes it so again; no transform is active */
bool mg_state_jit_tracing(void);
bool mg_state_node_hooks(void);     /* inside of torch.autograd.graph.node_creation_hook? */
long mg_state_function_modes(void); /* length of the stack of torch_function modes */
/* Sets whether torch_function is enabled (a torch::TorchFunctionDisabledState;
 * negative: leaves it); what it was. */
int32_t mg_state_function(int32_t to);
/* How deep this thread is in `with torch.autocast`; a cache of cast weights lives until
 * depth 0 is reached again. */
int32_t mg_state_autocast_depth(void);
void mg_state_autocast_nest(int32_t by); /* goes deeper, or, negative, leaves that many levels */
void mg_state_autocast_clear(void);      /* empties the cache */
int8_t mg_state_default_dtype(void);
void mg_state_read(MgTorchState *s); /* of this thread; every byte of *s is written */
/* Writes "name: recorded -> now" of the first difference; false when equal. */
bool mg_state_explain(const MgTorchState *was, const MgTorchState *now, char *text, size_t n);
#endif
