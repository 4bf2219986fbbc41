/* Inside of the PTX emitter: shared by the ptx_*.c files.
 * PTX registers are mutable and virtual, so a value is a register number, and
 * accumulators are plain registers.
 *
 * Code is written out for one thread.  A node is computed once for each *place* that it depends on:
 *   row     outer indices only: once a thread;
 *   piece   inner indices: once for each piece of the row, a piece being `vec` neighbours of the row;
 *   lane    the lane index: once for each of the `vec` neighbours.
 * Pieces of a row that are written out one after the other keep their values in registers across phases: a
 * softmax loads its row once.  Values that are computed inside of a loop are
 * forgotten after it (PxAt.loop). */
#ifndef MG_PTX_PTX_PRIV_H
#define MG_PTX_PTX_PRIV_H
#include "base/strbuf.h"
#include "base/table.h"
#include "ptx/ptx.h"

enum { PX_TILE = 32, PX_TILE_ROWS = 8, PX_LANES = 8, PX_DEPTH = 8, PX_PIECES = 64, PX_SHARED = 48 * 1024 };
enum {
  PX_SERIALS = 8190
}; /* loops of a kernel; the memo's keys (ptx_value.c) have 13 bits for their numbers */

/* Register classes: predicate, 16 bits, 32 bits, 64 bits, f32, f64. */
typedef enum PxClass { R_p, R_h, R_r, R_rd, R_f, R_d, R__COUNT } PxClass;

typedef enum PxKind { PX_value, PX_narrow, PX_address, PX_vector } PxKind; /* what a register has of a node */

enum {
  PF_known = 1,
  PF_inner = 2,
  PF_lane = 4,
  PF_unstable = 8,
  PF_red = 16,
  PF_narrow = 32,
  PF_wide = 64,
  PF_each = 128
};

typedef struct PxAt {      /* where code is being written */
  uint32_t loop[PX_DEPTH]; /* serial numbers of the loops around it; loop[0] is 0: none */
  int depth;
  uint32_t
      piece; /* 0: at the row; else number + 1 of the piece, with the rank of the phase in the upper bits */
  int lane;
  int phase;
  bool together; /* all threads of the row are at this point */
  int guard;     /* predicate: this piece is in the row; -1: it is */
} PxAt;

typedef struct Px {
  MgSched *s;
  MgExprs *x;
  MgCtx *c;
  const MgKernel *k;
  const MgPtxPlan *g;
  MgLoop *own; /* the kernel's nests, legalized */
  MgStrbuf b;  /* body text; declarations are known at the end */
  int nreg[R__COUNT], nlabel;
  MgMap memo; /* place, kind and node -> register */
  MgMap step; /* index -> how far a lane moves it; see px_lane_step */
  uint8_t *flag;
  uint32_t cap; /* per node: PF_* */
  PxAt at;
  uint32_t nserial;
  int idx[MG_MAX_IDX];  /* register of each bound index, of lane 0; 32 bits when the plan is narrow */
  int live;             /* predicate: the row exists; -1: it does */
  int first;            /* predicate: the thread is the first of its row; -1: it is alone */
  int rank;             /* register (32 bits): the thread's number in its row; -1: alone */
  int slot;             /* register (32 bits): the row's number in its block; -1: 0 */
  int nest;             /* register (32 bits): the nest that the block runs, where each has its own */
  int (*red)[PX_LANES]; /* per nest and lane: register of the reduced value */
  int *arg;             /* per buffer: argument number, -1 none */
  bool *shared;         /* per buffer: lives in shared memory */
  bool *stored;         /* per buffer: written by this kernel */
  bool *loaded;         /* per buffer that it writes: some nest reads it, too */
  uint32_t nexchange;   /* reductions across warps so far: each has its own shared memory */
  int ntile;            /* tiles of shared memory, of 4 or 8 bytes an element */
  bool synced;          /* rows meet in memory between phases: all threads of a block have to get there */
  MgRc rc;
} Px;

#define PUT(...) mg_sb_printf(&e->b, __VA_ARGS__)
extern const char *const px_prefix[R__COUNT];
static inline bool px_stop(const Px *e) { return e->rc || e->x->nomem; }

/* ---- ptx_text.c: registers and instructions ---- */
PxClass px_class(MgTy t);
const char *px_bits_ty(MgTy t);
const char *px_arith_ty(MgTy t);
const char *px_mem_ty(MgTy t);
int px_reg(Px *e, MgTy t);
int px_regs(Px *e, MgTy t, int n); /* n neighbours: the first */
void px_put(Px *e, MgTy t, int id);
void px_move(Px *e, MgTy t, int to, int from);
int px_op(Px *e, MgScalarOp o, MgTy ty, int a, int b);
int px_apply(Px *e, MgScalarOp o, MgTy ty, MgTy rty,
             const int *s); /* MG_UNSUP in rc where there is no template */
int px_constant(Px *e, ExprRef r);
int px_int(Px *e, MgTy t, int64_t v);
int px_convert(Px *e, MgTy to, MgTy from, int a);
int px_bitcast(Px *e, MgTy to, MgTy from, int a);
int px_select(Px *e, MgTy t, int p, int a, int b);
int px_tanh_plus_one(Px *e, int a); /* of f32, exact where tanh itself would have lost its digits */
int px_and(Px *e, int p, int q);    /* predicates; -1 is true */
int px_combine(Px *e, MgRedOp o, MgTy ty, int a, int b);
int px_op32(Px *e, const char *op, int a, int64_t imm); /* op %d, %a, imm on 32 bits */
/* ---- ptx_value.c: values and memory ---- */
uint8_t px_facts(Px *e, ExprRef r);
int px_value(Px *e, ExprRef r);
int px_narrow(Px *e, ExprRef r); /* of an index that px_is_narrow */
bool px_is_narrow(Px *e, ExprRef r);
int px_size(Px *e, SymRef n);                           /* in an index register */
bool px_lane_step(Px *e, ExprRef index, int64_t *step); /* constant distance of lanes */
bool px_is_multiple(Px *e, ExprRef r, int64_t n);       /* of lane 0 */
void px_store(Px *e, const MgLoop *l, const ExprRef value, int lanes);
/* base + index * size in a new 64-bit register, of the present place. */
int px_address(Px *e, BufRef b, MgTy ty, ExprRef index);
void px_clear(Px *e, MgTy ty, int first, int n,
              int p);                   /* n registers, for a load under predicate p (or -1) */
void px_know(Px *e, ExprRef r, int id); /* the value of r at this place is in register id */
/* ---- ptx_tile.c: blocks of points that are turned in shared memory ---- */
void px_tiles(Px *e, uint32_t from, uint32_t to); /* nests [from, to) */
/* ---- ptx_walk.c: loops and reductions ---- */
void px_kernel(Px *e);
#endif
