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
/* Can values of this type, float16 or bfloat16, be widened? */
bool mg_gemm_has_short(uint8_t dtype);
/* n values in a row become floats, and floats become values to the nearest, ties to even. */
void mg_gemm_widen(uint8_t dtype, const uint16_t *from, int64_t n, float *to);
void mg_gemm_narrow(uint8_t dtype, const float *from, int64_t n, uint16_t *to);
/* MG_UNSUP without an error in the context: not taken, because it cannot be or the library is faster. */
MgRc mg_gemm_matmul(MgCtx *c, const MgMatmulDesc *d, MgEngine **out);
/* The same for every product that can be taken. */
MgRc mg_gemm_any(MgCtx *c, const MgMatmulDesc *d, MgEngine **out);

/* `depth` rows of w from k on, and its columns [col, col + ncol): a panel of [depth][panel] floats. */
typedef struct MgGemmPanel {
  int64_t k, depth, col, ncol, panel;
} MgGemmPanel;

/* Where w comes from when it does not lie in memory as its description says. */
typedef struct MgGemmColumns {
  /* Writes a panel; columns that are missing become 0.  ptr: of the run, also behind those of the product. */
  void (*pack)(const void *self, void *const *ptr, MgGemmPanel b, float *to);
  const void *self;
} MgGemmColumns;
/* mg_gemm_any with such a w, whose description has [k, n] alone. */
MgRc mg_gemm_columns(MgCtx *c, const MgMatmulDesc *d, const MgGemmColumns *w, MgEngine **out);
#endif
