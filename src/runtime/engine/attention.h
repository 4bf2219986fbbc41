/* Engine for scaled dot product attention on the CPU, float32: out = softmax(q @ k^T * scale + mask) @ v.
 * q: [batch, head, query, d], k: [batch, head, key, d], v: [batch, head, key, dv], out: [batch, head, query,
 * dv], read and written through their strides (the last one must be 1), so heads are never copied apart.
 * mask is added and broadcasts to [batch, head, query, key]; with `causal`, query i sees keys 0..i.  Rows
 * that see nothing give 0. */
#ifndef MG_ATTENTION_H
#define MG_ATTENTION_H
#include "runtime/engine/onednn.h"

enum { SDPA_q, SDPA_k, SDPA_v, SDPA_mask, SDPA_out, SDPA_NPTR };
typedef struct MgSdpaDesc {
  MgTensorDesc t[SDPA_NPTR]; /* in the order of the pointers; all of rank 4, mask of at most 4 */
  float scale;
  bool causal;
} MgSdpaDesc;

/* MG_UNSUP without an error in the context: not taken. */
MgRc mg_sdpa_make(MgCtx *c, const MgSdpaDesc *d, MgEngine **out);
#endif
