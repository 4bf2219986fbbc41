/* Decoded PTX, shared by the machine's parser and its processor. */
#ifndef MG_PTX_MACHINE_PRIV_H
#define MG_PTX_MACHINE_PRIV_H
#include "machine.h"

typedef enum PtxOp {
#define PTX_OP(name) PO_##name,
#include "words.def"
} PtxOp;

typedef enum PtxType {
#define PTX_TYPE(name, bytes, kind) PT_##name,
#include "words.def"
} PtxType;

typedef enum PtxCompare {
#define PTX_COMPARE(name) PC_##name,
#include "words.def"
} PtxCompare;

typedef enum PtxSpace { PS_none, PS_global, PS_shared, PS_param } PtxSpace;
typedef enum PtxRound { PR_none, PR_rn, PR_rz, PR_rni, PR_rzi, PR_rmi, PR_rpi } PtxRound;

typedef enum PtxKind { PK_none, PK_reg, PK_bits, PK_special, PK_memory, PK_label, PK_list } PtxKind;
typedef enum PtxSpecial { PX_tid, PX_ctaid } PtxSpecial;

enum { PTX_OPERANDS = 6, PTX_LIST = 8 };

typedef struct PtxOperand {
  uint8_t kind;  /* PtxKind */
  uint8_t nlist; /* PK_list */
  int reg;       /* PK_reg, and the base of PK_memory or -1; PK_special; PK_label: the instruction */
  uint64_t bits; /* PK_bits; PK_memory: added to the base */
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
