/* Attention of float32 tensors on a GPU by the kernel of our own, where the program allows TF32. */
#ifndef MG_GPU_ATTENTION_H
#define MG_GPU_ATTENTION_H
#include "runtime/process/torch_abi.h"

typedef struct MgGpuAttention { /* the constants of a call of aten::_scaled_dot_product_efficient_attention */
  bool lse, causal;
  double scale; /* 0: one over the root of a head's size */
} MgGpuAttention;

/* in: query, key, value and bias; out: output, logsumexp, seed, offset.  False: nothing is done, and
 * PyTorch's own kernel has to. */
bool mg_gpu_attention_run(const MgGpuAttention *c, MgTensor *const *in, MgTensor **out);
#endif
