/* Matrix products by the BLAS that torch itself calls, where that is the faster library. */
#ifndef MG_BLAS_H
#define MG_BLAS_H
#include "runtime/engine/onednn.h"

/* x @ w (+ bias) of float32 or float64.  MG_UNSUP: it cannot, or oneDNN is at least as fast: MKL wins on
 * Intel's CPUs, with w in rows as they are multiplied or x transposed (as gradients have them).
 * MAGNETO_BLAS=1: whenever it can; 0: never. */
MgRc mg_blas_matmul(MgCtx *c, const MgMatmulDesc *d, MgEngine **out);
/* The same wherever it can. */
MgRc mg_blas_any(MgCtx *c, const MgMatmulDesc *d, MgEngine **out);
#endif
