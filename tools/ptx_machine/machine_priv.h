/* Decoded PTX, shared by the machine's parser and its processor. */
#ifndef MG_PTX_MACHINE_PRIV_H
#define MG_PTX_MACHINE_PRIV_H
#include "machine.h"

/* Base instructions. */
#define PTX_OPS(X)                                                                                           \
  X(abs) X(add) X(and) X(bar) X(bra) X(copysign) X(cvt) X(cvta) X(div) X(ex2) X(fma) X(ld) X(lg2) X(mad)     \
  X(max) X(min) X(mov) X(mul) X(neg) X(not) X(or) X(rcp) X(rem) X(ret) X(selp) X(setp) X(shfl) X(shl) X(shr) \
  X(sqrt) X(st) X(sub) X(trap) X(xor)
/* Types: name, bytes, kind (p predicate, b bits, u and s integers, f floats). */
#define PTX_TYPES(X)                                                                                         \
  X(pred, 1, 'p') X(b8, 1, 'b') X(b16, 2, 'b') X(b32, 4, 'b') X(b64, 8, 'b') X(u8, 1, 'u') X(u16, 2, 'u')    \
  X(u32, 4, 'u') X(u64, 8, 'u') X(s8, 1, 's') X(s16, 2, 's') X(s32, 4, 's') X(s64, 8, 's') X(f16, 2, 'f')    \
  X(bf16, 2, 'f') X(f32, 4, 'f') X(f64, 8, 'f') X(bf16x2, 4, 'v') X(f16x2, 4, 'v')
#define PTX_COMPARES(X) X(eq) X(ne) X(lt) X(le) X(gt) X(ge) X(equ) X(neu) X(ltu) X(leu) X(gtu) X(geu) X(num) X(nan)

#define X(n) PO_##n,
typedef enum PtxOp { PTX_OPS(X) PO__COUNT } PtxOp;
#undef X
#define X(n, b, k) PT_##n,
typedef enum PtxType { PTX_TYPES(X) PT__COUNT } PtxType;
#undef X
#define X(n) PC_##n,
typedef enum PtxCompare { PTX_COMPARES(X) PC__COUNT } PtxCompare;
#undef X

typedef enum PtxSpace { PS_none, PS_global, PS_shared, PS_param } PtxSpace;
typedef enum PtxRound { PR_none, PR_rn, PR_rz, PR_rni, PR_rzi, PR_rmi, PR_rpi } PtxRound;

typedef enum PtxKind { PK_none, PK_reg, PK_bits, PK_special, PK_memory, PK_label, PK_list } PtxKind;
typedef enum PtxSpecial { PX_tid, PX_ctaid } PtxSpecial;

enum { PTX_OPERANDS = 6, PTX_LIST = 8 };

typedef struct PtxOperand {
  uint8_t kind;   /* PtxKind */
  uint8_t nlist;  /* PK_list */
  int reg;        /* PK_reg, and the base of PK_memory or -1; PK_special; PK_label: the instruction */
  uint64_t bits;  /* PK_bits; PK_memory: added to the base */
  int list[PTX_LIST];
} PtxOperand;

typedef struct PtxInstr {
  uint8_t op, space, round, compare, vec; /* vec: elements of a load or store */
  uint8_t ntype, type[2];                 /* cvt: to, from; else type[0] */
  bool wide, nan, ftz, combines;          /* combines: setp with .and */
  int guard;                              /* register of the predicate, or -1 */
  bool guard_not;
  uint8_t narg;
  int line;
  PtxOperand arg[PTX_OPERANDS];
} PtxInstr;

struct PtxProgram {
  PtxInstr *instr;
  int ninstr, nreg, nparam;
  size_t shared; /* bytes */
  char **line;   /* the text of each line, for errors */
  int nline;
};

int ptx_type_bytes(PtxType t);
char ptx_type_kind(PtxType t);
/* Addresses of shared memory begin here: 0 is none of them. */
enum { PTX_SHARED_BASE = 256 };
#endif
