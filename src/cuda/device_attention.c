/* The attention kernel: which operands it takes, its compiled forms, its launch. */
#include "cuda/device_attention.h"
#include "cuda/device.h"

enum { ATTENTION_DIMS = 4, ATTENTION_ALIGN = 16, ATTENTION_ARGS = 23 };
static const int attention_dim[ATTENTION_DIMS] = {16, 32, 64, 128};

static int attention_index(int64_t dim) {
  for (int i = 0; i < ATTENTION_DIMS; i++)
    if (attention_dim[i] == dim) return i;
  return -1;
}

/* Rows are read 16 bytes at a time, and addressed by 32 bits from the first of a head. */
static bool attention_reads(uint64_t at, const int64_t stride[3]) {
  bool fits = at % ATTENTION_ALIGN == 0;
  for (int i = 0; i < 3; i++)
    fits &= stride[i] >= 0 && stride[i] <= INT32_MAX && stride[i] % ATTENTION_ALIGN == 0;
  return fits;
}

static int64_t attention_blocks(const MgAttention *a) {
  return (a->queries + ATTENTION_ROWS - 1) / ATTENTION_ROWS;
}

bool mg_cuda_attention_fits(const MgAttention *a) {
  int64_t pairs = a->batch * a->heads, most = INT32_MAX / 2;
  return attention_index(a->dim) >= 0 && a->batch > 0 && a->heads > 0 && a->queries > 0 && a->keys > 0 &&
         a->queries < most && a->keys < most && pairs < most && pairs * attention_blocks(a) < most &&
         attention_reads(a->q, a->q_stride) && attention_reads(a->k, a->k_stride) &&
         attention_reads(a->v, a->v_stride) && attention_reads(a->out, a->out_stride);
}

/* form: twice the index of the head size, and one more for a causal mask. */
static void attention_write(MgStrbuf *text, uint32_t form) {
  AttentionShape s = mg_attention_shape(attention_dim[form / 2], form % 2);
  mg_attention_text(text, &s);
}

/* The kernel for a head size on a device; NULL: out of memory, or the driver refuses it. */
static void *attention_kernel(int device, int dim, bool causal) {
  static MgCudaLazy *kernel[MG_CUDA_DEVICES * ATTENTION_DIMS * 2];
  static const MgCudaKept attention = {"mg_attention", attention_write, ATTENTION_DIMS * 2, kernel};
  return mg_cuda_kept(&attention, device, 2 * (uint32_t)attention_index(dim) + causal);
}

int mg_cuda_attention(int device, const MgAttention *a, void *stream) {
  AttentionShape s = mg_attention_shape((int)a->dim, a->causal);
  void *fn = attention_kernel(device, s.dim, a->causal), *arg[ATTENTION_ARGS];
  if (!fn) return -1;
  uint64_t address[5] = {a->q, a->k, a->v, a->out, a->lse};
  const int64_t *stride[4] = {a->q_stride, a->k_stride, a->v_stride, a->out_stride};
  int64_t blocks = attention_blocks(a), rest[5] = {a->heads, a->queries, a->keys, a->lse_len, blocks};
  uint32_t number[17], n = 0, at = 0;
  float scale = a->scale * 1.44269504f; /* powers of 2 in place of e */
  for (int i = 0; i < 4; i++)
    for (int d = 0; d < 3; d++) number[n++] = (uint32_t)stride[i][d];
  for (int i = 0; i < 5; i++) number[n++] = (uint32_t)rest[i];
  for (int i = 0; i < 5; i++) arg[at++] = &address[i];
  for (uint32_t i = 0; i < n; i++) arg[at++] = &number[i];
  arg[at] = &scale;
  return mg_cuda_launch(fn, (unsigned)(a->batch * a->heads * blocks), (unsigned)s.warps * 32, arg, stream);
}
