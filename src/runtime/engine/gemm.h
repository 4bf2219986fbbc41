/* Engine for float32 matrix products on the CPU: out = act(x @ w + bias + residual), all read and written
 * through their strides.  Both operands are packed from live memory on every call, so that a change of
 * weights is always seen; only `frozen` packs them once. */
#ifndef MG_GEMM_H
#define MG_GEMM_H
#include "runtime/engine/onednn.h"

/* May products of this process run so?  MAGNETO_GEMM says it, or the processor. */
bool mg_gemm_wanted(void);
/* Are 16-bit products (half: float16, else bfloat16) to be computed so?  Their values are widened while they
 * are packed, where the processor has no products of them. */
bool mg_gemm_widens(bool half);
/* MG_UNSUP without an error in the context: not taken, because it cannot be or the library is faster. */
MgRc mg_gemm_matmul(MgCtx *c, const MgMatmulDesc *d, MgEngine **out);
/* The same for every product that can be taken. */
MgRc mg_gemm_any(MgCtx *c, const MgMatmulDesc *d, MgEngine **out);
#endif
