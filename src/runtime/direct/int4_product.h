/* Engine for products with weights of four bits: aten::_weight_int4pack_mm_for_cpu.
 * A weight is (q - 8) * scale + zero, q from 0 to 15; `group` weights of a column share scale and zero.
 * The bytes are those that _convert_weight_to_int4pack_for_cpu writes in this process. */
#ifndef MG_INT4_PRODUCT_H
#define MG_INT4_PRODUCT_H
#include "runtime/engine/onednn.h"

/* out[m, n] = x[m, k] @ w; w: bytes [n, k / 2]; terms: [k / group, n, 2], scale and zero. */
enum { INT4_x, INT4_w, INT4_terms, INT4_out, INT4_NPTR };
typedef struct MgInt4Desc {
  MgTensorDesc t[INT4_NPTR]; /* in the order of the pointers */
  int64_t group;
} MgInt4Desc;

/* MG_UNSUP without an error in the context: not taken. */
MgRc mg_int4_product(MgCtx *c, const MgInt4Desc *d, MgEngine **out);
#endif
