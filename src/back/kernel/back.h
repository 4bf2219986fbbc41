/* What the rooms of the back end share, and the passes of this one in the order driver/compile runs them.
 * Lowering comes before them (lower.h), text after them (emit_llvm.h). */
#ifndef MG_BACK_H
#define MG_BACK_H
#include "back/kernel/loop_nest.h"

/* Groups nests into kernels; marks buffers that stay inside one kernel MB_local. */
MgRc mg_fuse(MgSched *s, MgFused *out);

typedef struct MgTarget {
  int vector_bits; /* 512, 256 or 128 */
  bool fma, avx512, f16c, avx512bf16;
  bool sleef; /* vector versions of libm's functions are there */
  int llvm;   /* major version of the LLVM that reads the text; 0: a recent one */
  bool marks; /* MG_EMIT_MARK before each number that a loaded value may replace: text for mg_share */
} MgTarget;
#define MG_EMIT_MARK '#'
/* Reference evaluator: runs a nest over real memory, slowly.  buf[i] is the base pointer of buffer i, env the
 * values of the symbols.  The oracle of the back end's tests. */
MgRc mg_interp_loop(MgSched *s, const MgLoop *l, void *const *buf, const int64_t *env);

/* The value a reduction starts from (its result over nothing); argmax and argmin:
 * that of the compared value. */
MgScalar mg_red_start(MgRedOp op, MgTy ty);

/* Memory of MB_temp and MB_error buffers and of engines' scratch: blocks with lifetimes.  When all sizes are
 * constant they are placed into one arena; else (`dynamic`) the plan places them when it knows the sizes. */
typedef struct MgMemBlock {
  SymRef bytes;
  uint64_t offset;      /* in the arena, 64-byte aligned; unless dynamic */
  uint32_t first, last; /* steps it is alive in, both included */
} MgMemBlock;
typedef struct MgMemPlan {
  MgMemBlock *block;
  uint32_t nblock;
  uint32_t *of_buf;  /* per buffer: block + 1, or 0 */
  uint32_t *of_step; /* per step of f: block + 1 of its MgStepIR.scratch, or 0 */
  uint64_t bytes;    /* of the whole arena, unless dynamic */
  bool dynamic;
} MgMemPlan;
MgRc mg_memplan(MgSched *s, const MgFused *f, MgMemPlan *out);
#endif
