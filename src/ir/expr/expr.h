/* One hash-consed expression node for sizes, index arithmetic and values.
 * In: scalar_ops.def.  Out: MgExprs, a table of immutable nodes; equal nodes have equal ExprRef.
 * Builders fold constants and apply the identities written in expr.c, so two expressions that simplify to the
 * same form compare equal by reference.  An ExprRef that holds only constants and symbols of type TY_i64 is a
 * SymRef: a tensor size, stride or offset. */
#ifndef MG_EXPR_H
#define MG_EXPR_H
#include "base/ctx.h"
#include "base/strbuf.h"
#include "base/table.h"
#include "ir/expr/scalar.h"

typedef uint32_t ExprRef; /* index into MgExprs.node; 0 is "none" */
typedef ExprRef SymRef;
#define MG_MAX_IDX 32 /* loop indices idx(0) .. idx(MG_MAX_IDX - 1) */

/* Leaves and structural ops, all rows of scalar_ops.def:
 *   const   u.i or u.f            sym    u.i = symbol number (a run-time size)
 *   idx     u.i = loop index k    red    the reduced value (only in MgLoop.value)
 *   load    u.i = BufRef, src[0] = element index, src[1] = i1 mask or 0, src[2] =
 *   value where the mask is false
 *   cvt     conversion of src[0] to ty, as torch's .to() converts     bitcast  same bits
 *   where   src[0] ? src[1] : src[2]
 *   rand    u.i = 0 uniform [0,1) / 1 normal; src[0] = seed (i64 expression), src[1] = element index   */

typedef struct MgExpr {
  uint16_t op; /* MgScalarOp */
  uint8_t ty;  /* MgTy of the result; comparisons give TY_i1 */
  uint8_t nsrc;
  ExprRef src[3];
  union {
    int64_t i; /* integer constant (any integer type or i1), index, symbol or buffer number */
    double f;  /* float constant (f16/bf16/f32 constants are rounded to their type) */
  } u;
} MgExpr;

typedef struct MgSymbol { /* a run-time size */
  int64_t lo, hi;         /* inclusive range, for proofs */
  int64_t hint;           /* value while recording */
  const char *name;
} MgSymbol;

/* While a program is recorded, what cannot be proven of its sizes is answered as it is
 * in this run, and guarded. */
typedef struct MgSizeAsk {
  int (*compare)(void *of, SymRef a, SymRef b); /* the sign of a - b */
  bool (*equal)(void *of, SymRef a, SymRef b);
  int64_t (*value)(void *of, SymRef e); /* e is this constant from now on */
  bool (*late)(void *of,
               SymRef e); /* it depends on data: the questions above break the graph; NULL: none does */
  void *of;
  bool (*less)(void *of, SymRef a,
               SymRef b); /* is a < b: holds for more sizes than the sign of a - b; NULL: asks that */
  bool small; /* sizes that are 0 or 1 in this run become constants: lowering has to see what broadcasts */
} MgSizeAsk;

typedef enum MgExprTrait {
  EX_WIDE = 1, /* a sum of more terms than the normal form holds */
  EX_DATA = 2, /* a symbol below has a value that only data tells */
  EX_SIZE = 4  /* made of symbols and i64 constants by what a plan computes sizes with */
} MgExprTrait;

/* Sources are shared, so a walk without memory visits a node once for each path to it.  Walks remember. */
typedef struct MgExprBound { /* answer of mg_ex_range */
  int64_t lo, hi;
  uint32_t gen;
  bool known;
} MgExprBound;
typedef struct MgExprNumber {
  int64_t v;
  uint32_t gen;
} MgExprNumber;
#define MG_EXPR_HINT UINT32_MAX /* number: of the symbols' hints, which never change */

/* How near to eager's the numbers of a compilation are. */
typedef enum MgNumerics {
  MN_fast,    /* 16-bit floats keep f32 between ops; elementary functions of f32 are our own */
  MN_rounded, /* the result of each op is rounded to its dtype */
  MN_eager    /* and pointwise ops give eager's bits */
} MgNumerics;

typedef struct MgExprs {
  MgCtx *c;
  const MgSizeAsk *ask; /* NULL: questions about sizes stay open */
  MgExpr *node;
  uint32_t n, cap;
  uint32_t *slot; /* open-addressing hash-cons table of cap_slot entries */
  uint32_t cap_slot;
  MgSymbol *sym;
  uint32_t nsym, cap_sym;
  uint8_t
      *index_only; /* per node: built of constants, symbols and loop indices only, so it does not overflow */
  uint8_t *trait;  /* per node: MgExprTrait bits */
  uint32_t *idx;   /* per node: bit k: idx(k) occurs in it */
  uint32_t *memo, *memo_gen, gen,
      cap_memo;         /* memo of the traversal in progress: valid where memo_gen == gen */
  MgExprBound *bound;   /* per node: its range, valid where gen == bound_gen */
  MgExprNumber *number; /* per node: its value, valid where gen == number_gen, or MG_EXPR_HINT */
  uint32_t bound_gen, cap_bound, number_gen, cap_number;
  SymRef idx_size[MG_MAX_IDX]; /* idx(k) is in [0, idx_size[k]); 0: unknown */
  uint8_t numerics;            /* MgNumerics */
  bool sleef;                  /* MN_eager: the functions that ATen's vectors call can be called */
  bool nomem; /* a builder failed and returned 0 (out of memory, or MG_BUG in c); checked by mg_exprs_ok */
} MgExprs;

MgRc mg_exprs_init(MgExprs *x, MgCtx *c);
static inline MgRc mg_exprs_ok(const MgExprs *x) { return x->nomem ? x->c->rc : MG_OK; }
static inline const MgExpr *mg_expr(const MgExprs *x, ExprRef r) { return &x->node[r]; }

/* Builders. They return 0 only when out of memory (then x->nomem is set and further calls return 0 too). */
ExprRef mg_ex_int(MgExprs *x, MgTy ty, int64_t v);
ExprRef mg_ex_float(MgExprs *x, MgTy ty, double v);
ExprRef mg_ex_idx(MgExprs *x, int k);                                                     /* TY_i64 */
ExprRef mg_ex_symbol(MgExprs *x, int64_t hint, int64_t lo, int64_t hi, const char *name); /* a new symbol */
ExprRef mg_ex_red(MgExprs *x, MgTy ty);
ExprRef mg_ex_red_of(MgExprs *x, MgTy ty,
                     int n); /* code generation: the reduced value of a kernel's nest n */
ExprRef mg_ex_load(MgExprs *x, MgTy ty, uint32_t buf, ExprRef index, ExprRef mask, ExprRef other);
ExprRef mg_ex_cvt(MgExprs *x, MgTy ty, ExprRef a);     /* no-op when a has the type already */
ExprRef mg_ex_bitcast(MgExprs *x, MgTy ty, ExprRef a); /* same size */
ExprRef mg_ex_op(MgExprs *x, MgScalarOp op, ExprRef a, ExprRef b, ExprRef c); /* type follows the op's rule */
ExprRef mg_ex_rand(MgExprs *x, int kind, ExprRef seed, ExprRef index);
/* Declares idx(k) in [0, size) for all that is built from now on; size 0 forgets it.  Simplification uses it:
 * with j in [0,8), (i*8+j)//8 is i.  A result is meant for the ranges under which it was built. */
void mg_ex_set_idx_range(MgExprs *x, int k, SymRef size);
void mg_ex_set_symbol_range(MgExprs *x, SymRef e, int64_t lo, int64_t hi); /* of a symbol, from now on */
void mg_ex_set_late(
    MgExprs *x, SymRef e); /* the value of a new symbol depends on data: EX_DATA of all that is built of it */
/* Rewrites a DAG bottom-up, each node once: fn gets a node and its rewritten sources and gives the new node;
 * mg_ex_rebuild makes the same node over other sources (simplified again).  fn must
 * not start another rewrite. */
typedef ExprRef (*MgExFn)(MgExprs *x, ExprRef e, const ExprRef *src, void *arg);
ExprRef mg_ex_map(MgExprs *x, ExprRef e, MgExFn fn, void *arg);
ExprRef mg_ex_rebuild(MgExprs *x, ExprRef e, const ExprRef *src);
/* Provable facts about index expressions under the current ranges. */
bool mg_ex_is_nonneg(const MgExprs *x, ExprRef e);
bool mg_ex_is_below(const MgExprs *x, ExprRef e, ExprRef n); /* e < n */
/* e as coef*idx(k) + rest, rest free of idx(k): true and both parts when e is linear
 * in idx(k) (coef may be 0). */
bool mg_ex_linear(MgExprs *x, ExprRef e, int k, ExprRef *coef, ExprRef *rest);
bool mg_ex_uses_idx(const MgExprs *x, ExprRef e, int k); /* not memoised: for index expressions */
uint32_t mg_ex_idx_mask(const MgExprs *x, ExprRef e);    /* bit k: idx(k) occurs */
/* Calls fn for the distinct nodes of e, sources first, until it says true.  fn must
 * not start another traversal. */
bool mg_ex_any(const MgExprs *x, ExprRef e, bool (*fn)(const MgExprs *x, ExprRef e, void *arg), void *arg);
/* Rewrites e until every row has a template of the target (0 LLVM, 1 PTX) for its type; MG_UNSUP (recorded in
 * *rc) when some row has neither template nor decomposition. */
ExprRef mg_ex_legalize(MgExprs *x, ExprRef e, int target, MgRc *rc);
/* The same for LLVM, but long sizes stay, which the code reads where the plan has put them, and so do rows
 * with flag V over f32 when the code calls functions. */
ExprRef mg_ex_legalize_for(MgExprs *x, ExprRef e, bool calls, MgRc *rc);
bool mg_ex_is_long_size(const MgExprs *x, ExprRef e);
/* Replaces idx(k) by to[k] for k < n (0: leave). Memoised; the result is simplified again. */
ExprRef mg_ex_subst(MgExprs *x, ExprRef e, const ExprRef *to, int n);
/* True when the two are provably equal / e is provably the constant v. */
static inline bool mg_ex_same(ExprRef a, ExprRef b) { return a == b; }
bool mg_ex_const_int(const MgExprs *x, ExprRef e, int64_t *v);
bool mg_ex_const_float(const MgExprs *x, ExprRef e, double *v);
bool mg_ex_range(const MgExprs *x, ExprRef e, int64_t *lo, int64_t *hi); /* sizes and indices under
  the current idx ranges; INT64_MIN / INT64_MAX: no bound */
/* As a tree; shared nodes are printed again, and "..." stands for what is beyond 10,000 nodes. */
void mg_ex_print(const MgExprs *x, ExprRef e, MgStrbuf *out);
/* Parses what mg_ex_print writes; 0 and an error in the context when it cannot. *p is advanced. */
ExprRef mg_ex_parse(MgExprs *x, const char **p);
uint32_t mg_ex_count_ops(const MgExprs *x, ExprRef e); /* distinct non-leaf nodes below e */

/* Sizes: thin names over the above, i64 arithmetic. */
static inline SymRef mg_sym(MgExprs *x, int64_t v) { return mg_ex_int(x, TY_i64, v); }
SymRef mg_sym_add(MgExprs *x, SymRef a, SymRef b);
SymRef mg_sym_sub(MgExprs *x, SymRef a, SymRef b);
SymRef mg_sym_mul(MgExprs *x, SymRef a, SymRef b);
SymRef mg_sym_floordiv(MgExprs *x, SymRef a, SymRef b);
SymRef mg_sym_mod(MgExprs *x, SymRef a, SymRef b);
SymRef mg_sym_min(MgExprs *x, SymRef a, SymRef b);
SymRef mg_sym_max(MgExprs *x, SymRef a, SymRef b);
static inline bool mg_sym_is(const MgExprs *x, SymRef a, int64_t v) {
  int64_t k;
  return mg_ex_const_int(x, a, &k) && k == v;
}
/* A constant, or made one by asking; false: neither. */
static inline bool mg_sym_settle(const MgExprs *x, SymRef e, int64_t *v) {
  if (mg_ex_const_int(x, e, v)) return true;
  if (!e || !x->ask) return false;
  *v = x->ask->value(x->ask->of, e);
  return true;
}
int64_t mg_sym_hint(const MgExprs *x, SymRef a); /* value with every symbol at its hint */
/* The reference evaluator of one size expression: env[k] is the value of symbol k. */
int64_t mg_sym_eval(const MgExprs *x, SymRef a, const int64_t *env);
/* The same expressions under the same numbers, to be evaluated and copied from;
 * nothing can be built of them. */
MgRc mg_exprs_freeze(MgExprs *to, MgCtx *c, const MgExprs *from);
#endif
