/* The table of scalar operations and their evaluation on one value.
 * In: scalar_ops.def.  Out: MgScalarInfo rows, mg_scalar_eval (folder and reference evaluator), conversions
 * exactly
 * as torch's .to() does them, and bit patterns of stored values. */
#ifndef MG_SCALAR_H
#define MG_SCALAR_H
#include "base/ctx.h"
#include "ir/expr/dtype.h"

typedef enum MgScalarOp {
#define OP(name, ...) OP_##name,
#include "ir/expr/scalar_ops.def"
  OP__COUNT
} MgScalarOp;

enum { SOF_C = 1, SOF_A = 2, SOF_D = 4, SOF_B = 8, SOF_V = 16 }; /* flags of a row, see scalar_ops.def */
enum { SOR_SAME, SOR_PRED, SOR_LEAF };                           /* typing rule */
enum { SOC_F, SOC_S, SOC_U, SOC__COUNT }; /* operand class: float, signed, unsigned/i1 */
enum { ON_ANY, ON_FLT, ON_INT, ON_BIT };  /* operand types a row takes */

typedef union MgScalar { /* a value of any MgTy: f for floats, i (sign- or zero-extended) for the others */
  double f;
  int64_t i;
} MgScalar;

struct MgExprs;
typedef struct MgScalarInfo {
  const char *name;
  uint8_t nin, rule, on, flags;
  const char *ll[SOC__COUNT]; /* LLVM templates by operand class */
  const char *px[SOC__COUNT]; /* PTX templates */
  uint32_t (*dec)(struct MgExprs *x, MgScalarOp op,
                  const uint32_t *src); /* ExprRefs in, ExprRef out; or NULL */
} MgScalarInfo;

extern const MgScalarInfo mg_scalar_info[OP__COUNT];
static inline int mg_scalar_class(MgTy t) {
  return mg_ty_is_float(t) ? SOC_F : mg_ty_is_signed(t) ? SOC_S : SOC_U;
}
/* Functions of f32 that GPUs have instructions for: target 1 keeps them as they are. */
static inline bool mg_scalar_on_gpu(MgScalarOp op, MgTy ty) {
  return ty == TY_f32 && (op == OP_exp || op == OP_exp2 || op == OP_tanh);
}
bool mg_scalar_takes(MgScalarOp op, MgTy ty); /* is the row defined for operands of this type */
/* NULL, or what is wrong with the table: a hole without a decomposition.  target: 0 LLVM, 1 PTX. */
const char *mg_scalar_check(void);

/* The value of a row on operands of type ty; false where the row is undefined (flag D). */
bool mg_scalar_eval(MgScalarOp op, MgTy ty, MgScalar a, MgScalar b, MgScalar c, MgScalar *out);
MgScalar mg_scalar_wrap(MgTy ty, MgScalar v); /* wraps an integer, rounds a float to its type */
MgScalar mg_scalar_cvt(MgTy to, MgTy from,
                       MgScalar v);           /* torch's .to(): see scalar.c for out-of-range values */
uint64_t mg_scalar_bits(MgTy ty, MgScalar v); /* as stored, low bits */
MgScalar mg_scalar_from_bits(MgTy ty, uint64_t bits);
/* The random number of (seed, index): Philox 4x32-10, counter = index, key = seed.  kind 0: word 0 as a
 * multiple of 2^-24 in [0,1); kind 1: standard normal by Box-Muller from words 0 and 1. */
double mg_scalar_rand(int kind, uint64_t seed, uint64_t index);
#endif
