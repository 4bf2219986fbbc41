/* What a replay of a CUDA graph gives its caller: copies of the graph's own tensors, in PyTorch's ordinary
 * memory.  Results that share memory, as views and what they are taken of, lie over one copy of all of it. */
#ifndef MG_GRAPH_RESULTS_H
#define MG_GRAPH_RESULTS_H
#include "cuda/device.h"
#include "runtime/process/torch_abi.h"

typedef struct MgResultMemory { /* the call's copy of all of a memory that several results lie in */
  void *of;
  MgTensor *bytes;
} MgResultMemory;

typedef struct MgGraphResults { /* of one graph */
  int device;
  void *stream;
  MgCopies copies;       /* to be queued */
  MgResultMemory *whole; /* of the running call; has room for all results */
  uint32_t nwhole;
} MgGraphResults;

/* A tensor of t's sizes and strides on a device, of memory from its first element to its last.  Nonzero: no
 * memory. */
int32_t mg_results_like(MgTensor *t, int device, MgTensor **out);
/* A tensor of the caller's own that gets t's elements by the time mg_results_queue returns.  memory: what t
 * shares with other results, or NULL.  Nonzero: no memory. */
int32_t mg_results_give(MgGraphResults *g, void *memory, MgTensor *t, MgTensor **out);
/* Queues the copies, which then are the caller's alone.  NULL, or what the driver says. */
const char *mg_results_queue(MgGraphResults *g);
/* Copies that nobody took, of a call that failed, go. */
void mg_results_forget(MgGraphResults *g);
/* Of n memories, those that are there once become NULL. */
void mg_results_shared(void **memory, uint32_t n);
#endif
