/* Copies of a CUDA graph's tensors.  See the header. */
#include "runtime/plan/graph_results.h"
#include "tuning.h"

void mg_results_shared(void **memory, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    bool shares = false;
    for (uint32_t k = 0; memory[i] && k < n && !shares; k++) shares = k != i && memory[k] == memory[i];
    if (!shares) memory[i] = NULL; /* which no later one looks for */
  }
}

/* Queues a copy of bytes within the device; nonzero: the driver does not take the queue. */
static int32_t results_add(MgGraphResults *g, MgTensor *to, const void *from, int64_t bytes) {
  void *at = NULL;
  int rc = g->copies.n == MG_COPIES ? mg_cuda_copies_launch(g->device, &g->copies, g->stream) : 0;
  mg_abi.aoti_torch_get_data_ptr(to, &at);
  if (!rc) mg_cuda_copies_add(&g->copies, at, from, (size_t)bytes);
  return rc;
}

int32_t mg_results_like(MgTensor *t, int device, MgTensor **out) {
  int64_t ndim = 0, *size = NULL, *stride = NULL;
  int32_t dtype = -1;
  mg_abi.aoti_torch_get_dim(t, &ndim);
  mg_abi.aoti_torch_get_sizes(t, &size);
  mg_abi.aoti_torch_get_strides(t, &stride);
  mg_abi.aoti_torch_get_dtype(t, &dtype);
  return mg_abi.aoti_torch_empty_strided(ndim, size, stride, dtype, MG_TORCH_CUDA, device, out);
}

static int32_t results_copy(MgGraphResults *g, MgTensor *t, MgTensor **out) {
  int64_t bytes = 0;
  void *from = NULL;
  if (!mg_cuda_copies_ready(g->device)) return mg_abi.aoti_torch_clone_preserve_strides(t, out);
  if (mg_results_like(t, g->device, out)) return 1;
  mg_abi.aoti_torch_get_storage_size(*out, &bytes);
  if (bytes > MG_TUNE_COPIED_TOGETHER) return mg_abi.aoti_torch_copy_(*out, t, 0);
  mg_abi.aoti_torch_get_data_ptr(t, &from);
  return results_add(g, *out, from, bytes);
}

/* The call's copy of all of t's memory, as bytes; NULL: there is no memory. */
static MgTensor *results_whole(MgGraphResults *g, void *memory, MgTensor *t) {
  enum { WIDEST = 16 }; /* bytes of an element */
  int64_t bytes = 0, one = 1;
  MgTensor *whole = NULL;
  for (uint32_t i = 0; i < g->nwhole; i++)
    if (g->whole[i].of == memory) return g->whole[i].bytes;
  mg_abi.aoti_torch_get_storage_size(t, &bytes);
  int64_t n = (bytes + WIDEST - 1) / WIDEST * WIDEST;
  if (mg_abi.aoti_torch_empty_strided(1, &n, &one, 0, MG_TORCH_CUDA, g->device, &whole)) return NULL;
  g->whole[g->nwhole++] = (MgResultMemory){memory, whole};
  return results_add(g, whole, memory, bytes) ? NULL : whole;
}

/* t over the call's copy of its memory. */
static int32_t results_over(MgGraphResults *g, void *memory, MgTensor *t, MgTensor **out) {
  int64_t ndim = 0, at = 0, *size = NULL, *stride = NULL;
  int32_t dtype = -1;
  MgTensor *whole = results_whole(g, memory, t), *typed = NULL;
  mg_abi.aoti_torch_get_dtype(t, &dtype);
  if (!whole || mg_abi.aoti_torch_view_dtype(whole, dtype, &typed)) return 1;
  mg_abi.aoti_torch_get_dim(t, &ndim);
  mg_abi.aoti_torch_get_sizes(t, &size);
  mg_abi.aoti_torch_get_strides(t, &stride);
  mg_abi.aoti_torch_get_storage_offset(t, &at);
  int32_t bad = mg_abi.aoti_torch__reinterpret_tensor(typed, ndim, size, stride, at, out);
  mg_abi.aoti_torch_delete_tensor_object(typed);
  return bad;
}

int32_t mg_results_give(MgGraphResults *g, void *memory, MgTensor *t, MgTensor **out) {
  return memory && mg_cuda_copies_ready(g->device) ? results_over(g, memory, t, out)
                                                   : results_copy(g, t, out);
}

void mg_results_forget(MgGraphResults *g) {
  for (uint32_t i = 0; i < g->nwhole; i++) mg_abi.aoti_torch_delete_tensor_object(g->whole[i].bytes);
  g->nwhole = 0;
  g->copies.n = g->copies.blocks = 0;
}

const char *mg_results_queue(MgGraphResults *g) {
  int rc = mg_cuda_copies_launch(g->device, &g->copies, g->stream);
  mg_results_forget(g);
  return rc ? mg_cuda_error(rc) : NULL;
}
