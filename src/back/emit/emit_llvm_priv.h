/* What the files of the LLVM emitter share (emit_llvm.c: kernels, emit_llvm_loop.c: loops, emit_llvm_expr.c:
 * expressions). Text is kept per open scope: scope 0 is the function's entry, every open loop is one scope
 * further in.  A value is written into the outermost scope that has all its operands, so invariant code
 * leaves its loops by construction; a loop's text is appended to its parent's when the loop is closed. */
#ifndef MG_EMIT_LLVM_PRIV_H
#define MG_EMIT_LLVM_PRIV_H
#include "back/kernel/back.h"

#define EMIT_MAX_SCOPE 24
#define EMIT_MAX_ACC 200
#define EMIT_WIDE 4        /* vectors at a time in column reductions and in kernels that call functions */
#define EMIT_WIDE_LOOPS 64 /* nests of a kernel for which that is looked at */
#define EMIT_WIDE_DOUBLE 8 /* the same with functions in float64, whose text is longer and gains less */

typedef struct EmRef { /* an SSA value, or a constant node */
  int id;              /* %v<id>; -1: constant k; -2: nothing */
  ExprRef k;
  uint8_t lanes; /* 1: scalar */
  uint8_t level; /* scope it was written in */
} EmRef;

typedef struct EmMemo {
  int id;
  uint32_t serial; /* valid while the scope of that level has this serial */
  uint8_t level;
  uint8_t lanes; /* nests of one kernel may differ in them */
} EmMemo;

typedef struct EmScope {
  MgStrbuf buf;
  int label; /* block that the end of buf is in */
  uint32_t serial;
  bool maybe_empty;      /* its loop may run zero times, so loads must not leave it */
  int idx;               /* loop index it binds, or -1 */
  EmRef iv, lo, hi;      /* loop variable and bounds */
  int step, body;        /* label of its first block */
  int phi[EMIT_MAX_ACC]; /* per accumulator: its phi in this loop, or -1: not carried */
} EmScope;

typedef struct EmAcc { /* one accumulator of a running reduction */
  MgTy ty;
  uint8_t lanes;
  EmRef cur;
} EmAcc;

typedef struct EmBounds { /* of a number, both included */
  double lo, hi;
} EmBounds;

typedef struct EmFacts { /* what emit_llvm_facts.c has found out about a node; each valid for its
                            MgExprs.bound_gen */
  EmBounds bounds;
  double growth;  /* from the first lane to the last one of a vector, none of which is below the one before;
                     -1: unknown */
  ExprRef narrow; /* the same value as i32, or 0 */
  uint32_t bounds_gen, growth_gen, narrow_gen;
  int8_t growth_kv, narrow_kv; /* vector index that was asked about */
  bool bounded;                /* bounds are known */
} EmFacts;

#define EMIT_MAX_FUN 128
#define EMIT_MAX_SHAPE 16  /* repeated expressions that are functions */
#define EMIT_CONE_LEAVES 2 /* four vectors each: eight vectors are passed in registers */
typedef struct EmFun {     /* a function that the kernel calls */
  ExprRef shape;           /* expression over the leaves red 0 and red 1; 0: an elementary function */
  uint16_t op;             /* MgScalarOp of an elementary function */
  uint8_t nin, lanes;
  uint8_t number; /* in the module */
} EmFun;

typedef struct EmCone { /* a repeated expression; see emit_llvm_repeat.c */
  ExprRef root, shape, leaf[EMIT_CONE_LEAVES];
  uint8_t nleaf;
} EmCone;

typedef struct EmFwd { /* what a store of this kernel left in a buffer, for later loads of the same element */
  BufRef buf;
  ExprRef index, value; /* value has the buffer's type */
  uint32_t serial;
  uint8_t level;
} EmFwd;

/* One emitter serves all kernels of a schedule.  What it keeps per expression stays between kernels: values
 * are told apart by the serials of their scopes, which never repeat. */
typedef struct MgEmitter {
  MgSched *s;
  MgExprs *x;
  MgCtx *c;
  const MgKernel *k;
  const MgTarget *t;
  EmScope scope[EMIT_MAX_SCOPE];
  int depth; /* innermost open scope */
  uint32_t serial;
  int nid, nlabel;
  int lanes;             /* of values that vary with index kv; 1 in scalar code */
  int kv;                /* vector index, or -1 */
  EmRef mask;            /* i1 lanes that exist, in a masked tail; id -2: all */
  bool mask_one;         /* only the first lane exists */
  EmRef idx[MG_MAX_IDX]; /* loop variable of each bound index */
  EmMemo *memo[2];       /* per node, scalar and vector form */
  uint32_t *imask; /* per node: bit k: idx(k) below; bit 31: reduced value below; 0 with have == 0: not yet */
  uint8_t *have;
  uint32_t *seen,
      walk; /* per node: the last walk over accesses that met it and saw nothing else than contiguous ones */
  EmFacts *facts;    /* per node */
  uint32_t *size_at; /* per node: 1 + its place in the schedule's long sizes; 0: it has none yet */
  uint32_t cap;      /* entries of the tables above */
  MgLoop *own;       /* the kernel's nests, legalised; leaf red number n belongs to own[n] */
  EmRef *redval;     /* value of leaf red number n */
  int tile; /* innermost index that runs over a tile of `lanes` points inside the vector loop, or -1 */
  struct {
    ExprRef load;
    uint32_t serial;
    int id;
  } tiled[16];     /* tiles of transposed loads, on the stack */
  bool red_vec;    /* reduced values differ between lanes */
  EmMemo ptr[512]; /* addresses: (buffer, index) hashed */
  uint64_t ptr_key[512];
  EmFwd *fwd;
  uint32_t nfwd, cap_fwd;
  int *
      buf_arg; /* per buffer: kernel argument number + 1; minus the number, from 1, of a local one; 0: none */
  uint8_t *written; /* per buffer: stored by this kernel */
  int base_level;   /* loads of written buffers stay at or inside this scope */
  EmAcc acc[EMIT_MAX_ACC];
  int nacc;
  uint32_t wide_loops; /* nests of a kernel that may take EMIT_WIDE vectors at a time */
  bool apart;          /* elementary functions are called */
  bool fun_scalar;     /* those of single numbers are functions of their own */
  bool fun_long;       /* what the widest vectors leave over hardly counts */
  EmFun fun[EMIT_MAX_FUN];
  int nfun;
  EmCone *cone; /* sorted by root */
  uint32_t ncone;
  MgRc rc;
} MgEmitter;
typedef MgEmitter Em;

/* emit_llvm_cvt.c */
EmRef em_conv(Em *e, const char *op, MgTy from, MgTy to, EmRef v, int lanes); /* one cast instruction */
EmRef em_cvt(Em *e, MgTy to, MgTy from, EmRef v, int lanes);
/* emit_llvm_expr.c */
EmRef em_value(Em *e, ExprRef r, int lanes); /* lanes: 1 or e->lanes */
EmRef em_acc_start(Em *e, MgRedOp op, MgTy ty, int lanes);
EmRef em_combine(Em *e, MgRedOp op, MgTy ty, int lanes, EmRef a, EmRef b);
void em_combine_arg(Em *e, MgRedOp op, MgTy ty, int lanes, EmRef a[2], const EmRef b[2]);
EmRef em_existing(Em *e, MgRedOp op, MgTy ty, EmRef v);
void em_horizontal(Em *e, MgRedOp op, MgTy ty, EmRef a[2]);
/* emit_llvm_mem.c */
EmRef em_load(Em *e, MgExpr n, ExprRef r, int lanes);
void em_store(Em *e, const MgLoop *l, ExprRef value);
bool em_maskable(Em *e, const MgLoop *l, int kv); /* are there masked loads and stores of all its types? */
bool em_contiguous_only(Em *e, const MgLoop *l, int kv,
                        bool pieces); /* every access is uniform or contiguous along kv, or in pieces */
/* emit_llvm_facts.c */
bool em_tables(Em *e); /* the tables per node reach every node that there is; false: out of memory */
uint32_t em_imask(Em *e, ExprRef r);            /* see MgEmitter.imask */
bool em_varies(Em *e, ExprRef r);               /* does it differ between lanes? */
bool em_bounds(Em *e, ExprRef r, EmBounds *b);  /* false: they are not known */
ExprRef em_narrow(Em *e, ExprRef r);            /* an i64 expression as i32, or 0 */
ExprRef em_narrower(Em *e, ExprRef r);          /* what stands for it in vector code, or 0 */
double em_growth(Em *e, ExprRef index, int kv); /* see EmFacts; of a whole vector along kv */
/* emit_llvm_fun.c */
void em_begin(Em *e, const MgKernel *k); /* ready for a kernel or a function */
void em_choose_functions(Em *e);         /* are they called in this kernel? */
bool em_is_apart(const Em *e, const MgExpr *n);
EmRef em_call(Em *e, EmFun f, int lanes, const EmRef *s); /* f.lanes is chosen here */
MgRc em_functions(Em *e, MgStrbuf *out);                  /* the text of those that were called */
/* emit_llvm_repeat.c */
MgRc em_find_repeats(Em *e);                      /* fills cone */
const EmCone *em_cone_at(const Em *e, ExprRef r); /* the one with this root, or NULL */
/* emit_llvm_loop.c */
enum { EM_RUN_loop, EM_RUN_once, EM_RUN_straight }; /* any number of times, 0 or 1 times, exactly once */
typedef struct EmEntry {                            /* accumulator values on entry of an open loop */
  EmRef v[EMIT_MAX_ACC];
} EmEntry;
void em_fail(Em *e, MgRc rc);
bool em_is_const(Em *e, EmRef v, int64_t *k);
EmRef em_arith(Em *e, const char *tmpl, MgScalarOp op, EmRef a, EmRef b); /* of two i64 */
/* idx(k), which a loop has as v, is `by` behind it from here on: nothing of one place is for another. */
void em_go_to(Em *e, int k, EmRef v, int by);
/* Opens the loop idx(k) = lo, lo + step, ... < hi; accumulators marked live are carried. */
void em_loop_open(Em *e, int k, EmRef lo, EmRef hi, int step, int run, bool maybe_empty, const bool *live);
void em_loop_enter(Em *e, int run, EmEntry *in); /* its text begins */
void em_loop_close(Em *e, int run, const EmEntry *in);
/* emit_llvm_text.c */
const char *em_ty(MgTy t);  /* register type */
const char *em_mem(MgTy t); /* memory type */
void em_put_ty(MgStrbuf *b, const char *elem, int lanes);
void em_put(Em *e, MgStrbuf *b, EmRef v, MgTy ty); /* operand text */
void em_put_size(Em *e, MgStrbuf *b, EmRef v);     /* i64 operand that need not be a constant */
EmRef em_new(Em *e, int level, int lanes);
EmRef em_int(Em *e, int64_t v); /* i64 constant */
MgStrbuf *em_at(Em *e, int level);
EmRef em_template(Em *e, const char *tmpl, MgTy ty, MgTy rty, int lanes, const EmRef *s, int n);
int em_level(const EmRef *s, int n);
EmRef em_broadcast(Em *e, EmRef v, MgTy ty, int lanes);
EmRef em_lane(Em *e, EmRef v, MgTy ty, int lane);
const char *em_math_name(int op); /* of libm's function, or NULL */
EmRef em_round_bf16(Em *e, EmRef v, bool plain, int lanes);
EmRef em_pack_bf16(Em *e, EmRef v, int lanes);
/* What was stored in this scope where e loads from; 0: something else lies there. */
ExprRef em_forwarded(const Em *e, const MgExpr *load);
void em_sleef_name(MgStrbuf *b, const char *name, MgTy ty, int width); /* of SLEEF's version of it */
void em_put_mangled(MgStrbuf *b, MgTy ty, int lanes);                  /* as in names of intrinsics */
EmRef em_take_lanes(Em *e, EmRef v, MgTy ty, int at, int n, int level);

static const EmRef em_none = {.id = -2};
static inline EmRef em_const(ExprRef k, int lanes) {
  return (EmRef){.id = -1, .k = k, .lanes = (uint8_t)lanes};
}
static inline EmRef em_kint(Em *e, MgTy ty, int64_t v, int lanes) {
  return em_const(mg_ex_int(e->x, ty, v), lanes);
}
/* One instruction over one or two (b: em_none) operands of one type. */
static inline EmRef em_ins(Em *e, const char *tmpl, MgTy ty, MgTy rty, int lanes, EmRef a, EmRef b) {
  EmRef s[2] = {a, b};
  return em_template(e, tmpl, ty, rty, lanes, s, b.id == -2 ? 1 : 2);
}
static inline EmRef em_select(Em *e, MgTy ty, int lanes, EmRef m, EmRef a, EmRef b) {
  EmRef s[3] = {m, a, b};
  return em_template(e, "select $p $a, $t $b, $t $c", ty, ty, lanes, s, 3);
}
/* emit_llvm.c */
typedef struct EmGroup { /* the nests of one phase */
  MgLoop **loop;
  int n;
  int first, end; /* inner loop indices [first, end) */
  int keep;       /* indices below it are not reduced by this group's reductions */
  const SymRef *range;
  int vec; /* vector index or -1 */
  bool reduces, masked_ok;
  bool wide;  /* reductions over outer ranges, and bytes: several vectors of neighbouring results at a time */
  int unroll; /* accumulators of each reduction, in each row */
  int side;   /* rows of one sum that are read side by side; 0: one */
  int acc[64];  /* per nest: its first accumulator */
  int sacc[64]; /* per nest: accumulator of the scalar tail, -1: none */
} EmGroup;

typedef struct EmStage { /* one of the loops that together run a range */
  int lanes, unroll;
  bool masked, scalar_tail;
  bool repeats; /* masked, for more points than one vector has */
} EmStage;

typedef struct EmWalk {
  Em *e;
  EmGroup *g;
  int dim;
  void (*body)(Em *e, EmGroup *g, int dim, int u, const EmStage *st);
  bool carry; /* accumulators are running */
} EmWalk;

MgTy em_acc_ty(Em *e, const MgLoop *l); /* of a reduction's accumulator */
EmRef em_whole_part(Em *e, EmRef lo, EmRef hi,
                    int step); /* end of the part of [lo, hi) that `step` divides */
/* Runs idx(dim) over [lo, hi) as main, rest and tail stages. */
void em_run_range(EmWalk *w, EmRef lo, EmRef hi, bool maybe_empty);
/* emit_llvm_stream.c */
bool em_is_streamed(Em *e, const EmGroup *g); /* is the kernel such a reduction? */
void em_streamed(Em *e, EmGroup *g, EmRef begin, EmRef end);
#endif
