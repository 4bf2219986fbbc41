/* Attention of our own on NVIDIA's tensor cores: float32 operands, products in TF32, softmax in float32.
 * PyTorch's kernels for float32 make three products of each, also where the program allows TF32. */
#ifndef MG_DEVICE_ATTENTION_H
#define MG_DEVICE_ATTENTION_H
#include <stdbool.h>
#include <stdint.h>
#include "base/strbuf.h"

typedef struct MgAttention {
  uint64_t q, k, v, out, lse; /* device addresses; lse: the logarithms of the sums, or 0 */
  int64_t batch, heads, queries, keys, dim,
      lse_len; /* lse_len: of a row, at least queries; beyond: infinity */
  int64_t q_stride[3], k_stride[3], v_stride[3], out_stride[3]; /* bytes by batch, head, row */
  float scale;
  bool causal; /* query i sees keys 0 to i */
} MgAttention;

/* Does the kernel take such operands? */
bool mg_cuda_attention_fits(const MgAttention *a);
/* Queues it; a fits.  0, or the driver's error. */
int mg_cuda_attention(int device, const MgAttention *a, void *stream);

/* ---- between its files ---- */
typedef struct AttentionShape { /* what a text is made for */
  int dim;                      /* of a head: 16, 32, 64 or 128 */
  int tiles, warps;             /* a warp has that many times 16 queries */
  int keys;                     /* that are in shared memory at a time */
  bool causal;
} AttentionShape;
enum { ATTENTION_ROWS = 64 }; /* queries of a block */
AttentionShape mg_attention_shape(int dim, bool causal);
void mg_attention_text(MgStrbuf *out, const AttentionShape *s);
#endif
