/* See the header.  In: PyTorch's tensors.  Out: new ones of the geometry that PyTorch's kernel gives, and
 * queued work on its current stream. */
#include "runtime/plan/gpu_attention.h"
#include <math.h>
#include "cuda/device_attention.h"
#include "cuda/device.h"

enum { GPU_FLOAT = 6, GPU_LONG = 4 }; /* torch's numbers of dtypes */
enum { GPU_DIMS = 4, GPU_RESULTS = 4, GPU_LSE_STEP = 32 };

typedef struct Operand {
  uint64_t at;
  int64_t size[GPU_DIMS], stride[3];
} Operand;

/* False: not a float32 tensor on that device whose heads lie without gaps. */
static bool gpu_operand(MgTensor *t, int32_t device, Operand *o) {
  int64_t ndim = 0, *size, *stride;
  int32_t dtype = -1, kind = -1, index = -1;
  void *ptr = NULL;
  mg_abi.aoti_torch_get_dim(t, &ndim);
  mg_abi.aoti_torch_get_dtype(t, &dtype);
  mg_abi.aoti_torch_get_device_type(t, &kind);
  mg_abi.aoti_torch_get_device_index(t, &index);
  if (ndim != GPU_DIMS || dtype != GPU_FLOAT || kind != MG_TORCH_CUDA || index != device) return false;
  mg_abi.aoti_torch_get_sizes(t, &size);
  mg_abi.aoti_torch_get_strides(t, &stride);
  mg_abi.aoti_torch_get_data_ptr(t, &ptr);
  o->at = (uint64_t)(uintptr_t)ptr;
  for (int i = 0; i < GPU_DIMS; i++) o->size[i] = size[i];
  for (int i = 0; i < 3; i++) o->stride[i] = size[i] == 1 ? 0 : stride[i] * (int64_t)sizeof(float);
  return stride[3] == 1;
}

static MgTensor *gpu_new(int ndim, const int64_t *size, const int64_t *stride, int32_t dtype,
                         int32_t device) {
  MgTensor *t = NULL;
  return mg_abi.aoti_torch_empty_strided(ndim, size, stride, dtype, MG_TORCH_CUDA, device, &t) ? NULL : t;
}

static void gpu_drop(MgTensor **out) {
  for (int i = 0; i < GPU_RESULTS; i++)
    if (out[i]) mg_abi.aoti_torch_delete_tensor_object(out[i]), out[i] = NULL;
}

/* What a row of logarithms has: PyTorch's backward reads whole blocks of them. */
static int64_t gpu_lse_len(int64_t queries) {
  return (queries + GPU_LSE_STEP - 1) / GPU_LSE_STEP * GPU_LSE_STEP;
}

/* The results, uninitialised; false: out of memory, and there are none. */
static bool gpu_results(const MgGpuAttention *c, const Operand *q, int32_t device, MgTensor **out) {
  int64_t b = q->size[0], h = q->size[1], n = q->size[2], d = q->size[3];
  int64_t rows = c->lse ? gpu_lse_len(n) : 0;
  int64_t size[] = {b, h, n, d}, stride[] = {n * h * d, d, h * d, 1};
  int64_t lse_size[] = {b, h, rows}, lse_stride[] = {h * rows, rows, 1};
  out[0] = gpu_new(GPU_DIMS, size, stride, GPU_FLOAT, device);
  out[1] = gpu_new(3, lse_size, lse_stride, GPU_FLOAT, device);
  for (int i = 2; i < GPU_RESULTS; i++) out[i] = gpu_new(0, NULL, NULL, GPU_LONG, device); /* of no dropout */
  if (out[0] && out[1] && out[2] && out[3]) return true;
  gpu_drop(out);
  return false;
}

static bool gpu_launch(const MgGpuAttention *c, const Operand o[3], int32_t device, MgTensor **out) {
  void *result = NULL, *lse = NULL;
  int64_t h = o[0].size[1], n = o[0].size[2], d = o[0].size[3], row = d * (int64_t)sizeof(float);
  MgAttention a = {.q = o[0].at,
                   .k = o[1].at,
                   .v = o[2].at,
                   .batch = o[0].size[0],
                   .heads = h,
                   .queries = n,
                   .keys = o[1].size[2],
                   .dim = d,
                   .out_stride = {n * h * row, row, h * row},
                   .causal = c->causal};
  a.scale = (float)(c->scale != 0 ? c->scale : 1 / sqrt((double)d));
  for (int i = 0; i < 3; i++) {
    a.q_stride[i] = o[0].stride[i];
    a.k_stride[i] = o[1].stride[i];
    a.v_stride[i] = o[2].stride[i];
  }
  if (!mg_cuda_attention_fits(&a) || !gpu_results(c, &o[0], device, out)) return false;
  mg_abi.aoti_torch_get_data_ptr(out[0], &result);
  mg_abi.aoti_torch_get_data_ptr(out[1], &lse);
  a.out = (uint64_t)(uintptr_t)result;
  a.lse = c->lse ? (uint64_t)(uintptr_t)lse : 0;
  a.lse_len = gpu_lse_len(n);
  if (!mg_cuda_attention(device, &a, mg_cuda_stream(device))) return true;
  gpu_drop(out);
  return false;
}

bool mg_gpu_attention_run(const MgGpuAttention *c, MgTensor *const *in, MgTensor **out) {
  Operand o[3];
  int32_t device = -1;
  if (!in[0] || !in[1] || !in[2] || in[3] || !mg_cuda_tf32()) return false;
  mg_abi.aoti_torch_get_device_index(in[0], &device);
  for (int i = 0; i < 3; i++)
    if (!gpu_operand(in[i], device, &o[i])) return false;
  for (int i = 1; i < 3; i++)
    for (int d = 0; d < GPU_DIMS; d++)
      if (o[i].size[d] != o[d == 2 ? 1 : 0].size[d]) return false;
  return gpu_launch(c, o, device, out);
}
