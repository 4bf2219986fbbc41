/* Lowering, shared by the lower_*.c files; not for other folders.
 * Every graph value is in one of two states:
 *   LW_expr  unrealised: an expression over idx(0..ndim-1) in the dtype's compute
 *   type; readers substitute their
 *            own indices (define-by-run), so views and inlining cost nothing;
 *   LW_buf   realised: a strided view of a buffer.  Invariant: its sizes and strides are
 *   those of the value's metadata,
 *            so extern calls see eager's strides.
 * A value without loads (constants, index patterns) may have both. */
#ifndef MG_LOWER_PRIV_H
#define MG_LOWER_PRIV_H
#include "back/kernel/back.h"

#define LW_MAX_NDIM                                                                                          \
  10 /* tensors of more dimensions go extern; leaves room for reduced ranges in MG_MAX_RANK */

typedef enum LwKind { LW_none, LW_expr, LW_buf } LwKind;

typedef struct LwVal {
  uint8_t kind;   /* LwKind */
  bool continued; /* a later concatenation stores behind it in its buffer */
  bool shared;    /* several outputs are views of it: it is nothing but memory */
  bool need_buf;  /* an extern call (through views too) or an output reads its memory: realise when defined */
  ExprRef e;      /* LW_expr: the value; also kept beside a buffer when it has no loads */
  MgView view;    /* LW_buf */
  uint32_t uses;  /* reads of its elements, seen through views; several for ops that read more than once */
  NodeRef last;   /* last node that reads it, seen through views; UINT32_MAX when the end of the graph does */
  int32_t out;    /* graph output that it is (so it is realised in that output's storage), or -1 */
  int32_t wb;     /* write-back (index into g->wb_*) whose value it is, or -1 */
} LwVal;

typedef struct Lower {
  MgSched *s;
  MgGraph *g;
  MgExprs *x;
  MgCtx *c;
  LwVal *val;      /* per graph value */
  NodeRef node;    /* node being lowered */
  bool gpu;        /* nests are for a GPU: its kernels trap where a check fails */
  NodeRef late;    /* nodes from here on may write to inputs */
  uint32_t *stamp; /* per expression: marks of walks */
  uint32_t nstamp, mark;
  struct {
    ExprRef bad;
    SymRef points;
  } checked[32]; /* conditions that were checked already (the newest ones) */
  uint32_t nchecked;
} Lower;

typedef struct LwRow LwRow;
/* Defines the results of node n.  MG_UNSUP (returned before anything was defined or appended): this form of
 * the op has no lowering, the node becomes an extern item. */
typedef MgRc (*LwFn)(Lower *L, MgNode *n, const LwRow *r);
/* Whether these arguments have a lowering; no side effects.  NULL in a row: always. */
typedef bool (*LwOk)(const MgGraph *g, const MgNode *n);

typedef struct LwPt LwPt; /* one pointwise node being lowered: lower_point.h */
typedef ExprRef (*LwExprFn)(LwPt *p);

/* Index map of a view op: the element of the argument (to, its ndim entries) that element `at` of result
 * `out` is. Affine in `at`, so it gives strides too.  False: this form is not known. */
typedef bool (*LwMapFn)(Lower *L, MgNode *n, int out, const ExprRef *at, ExprRef *to);

enum {
  LWF_view = 1,  /* result shares the argument's memory (strided view) */
  LWF_multi = 2, /* reads its first argument several times */
  LWF_real = 4,  /* wants its first argument realised (random access into it) */
  LWF_few = 8,   /* reads few elements of its first argument: on a GPU they alone are computed, whatever the
                    flags above say */
  LWF_again =
      16 /* settles its first argument itself, where each reader does not rather compute it (lw_again) */
};

struct LwRow {
  const char *name; /* "aten::add.Tensor" */
  LwFn fn;
  LwOk ok;
  LwExprFn expr; /* pointwise: builds the result expression */
  uint16_t op;   /* parameter of fn: scalar op, reduction op ... */
  uint8_t ty;    /* pointwise: LwTyRule */
  uint8_t flags; /* LWF_* */
  LwMapFn map;   /* views */
};

const LwRow *lw_row(const char *full); /* NULL: no lowering */
const LwRow *lw_row_for(const MgGraph *g,
                        const MgNode *n); /* the same, after dtype, rank and row->ok checks */
/* False for a pointwise node whose loops would not give eager's bits, where these are asked for. */
bool lw_exact(const MgGraph *g, const MgNode *n, const LwRow *r);
/* LwOk of ops for which ATen has kernels of floating types only, or none for bool: the
 * call then raises its error. */
bool lw_ok_float(const MgGraph *g, const MgNode *n);
bool lw_ok_not_bool(const MgGraph *g, const MgNode *n);

/* ---- reading (lower_value.c) ---- */
MgVal *lw_meta(Lower *L, ValRef v);
/* The value at the given indices, in its compute type. */
ExprRef lw_at(Lower *L, ValRef v, const ExprRef *at);
/* The same for a reader of rank ndim that broadcasts the value; dimensions of size 1 read index 0. */
ExprRef lw_at_bcast(Lower *L, ValRef v, const ExprRef *at, int ndim);
/* Puts the value into a buffer unless it is there already. */
MgRc lw_realise(Lower *L, ValRef v);
/* Puts it into a buffer unless reading it several times costs less (at most one
 * load, a few cheap operations). */
MgRc lw_settle(Lower *L, ValRef v);
/* Does each reader of v on a GPU rather compute it than wait for a kernel that does? */
bool lw_again(Lower *L, ValRef v);
/* e with every load masked: e where mask holds, `other` elsewhere; loads touch no
 * memory where it does not hold. */
ExprRef lw_masked(Lower *L, ExprRef e, ExprRef mask, ExprRef other);
typedef struct LwCost {
  uint32_t ops, loads;
} LwCost; /* ops are weighted: transcendental functions count more */
LwCost lw_cost(Lower *L, ExprRef e);
/* True when e loads from a buffer for which `hit` says so. */
bool lw_reads(Lower *L, ExprRef e, bool (*hit)(Lower *L, const MgExpr *load, void *arg), void *arg);

/* ---- defining ---- */
/* v := e (over v's own indices; converted to v's compute type).  Decides whether it is realised at once. */
MgRc lw_define(Lower *L, ValRef v, ExprRef e);
/* v := a strided view of realised memory. */
void lw_define_view(Lower *L, ValRef v, const MgView *view);
/* Memory for a value that nests or an extern call will fill: its output's storage, or a temporary. */
MgRc lw_buffer(Lower *L, ValRef v, MgView *out);
/* The memory of `from`, when the node being lowered is the last to read it and v's metadata fit: v overwrites
 * it. read_too: other arguments of the node may be in it; the caller sees to that. */
bool lw_take(Lower *L, ValRef from, ValRef v, bool read_too, MgView *out);
/* The same of the input that v will be written back to: self, when v may be made there, self with places that
 * data names overwritten.  Nobody reads the old contents later. */
bool lw_take_input(Lower *L, ValRef self, ValRef v, MgView *out);
/* A nest that stores e (over v's indices) for every point of sizes size[0..ndim) at view indices. */
MgRc lw_store(Lower *L, const MgView *view, ExprRef e);
/* Writes where data says: the result's memory, filled with self (0: zeros), then nests over size[0..nd) that
 * store or accumulate value at element `to` of the view where mask holds.  lw_define_view afterwards. */
MgRc lw_scatter_begin(Lower *L, ValRef v, ValRef self, MgView *view);
MgRc lw_scatter(Lower *L, const MgView *view, const SymRef *size, int nd, const ExprRef *to, ExprRef mask,
                MgStoreMode mode, ExprRef value);
/* Fills ranges, store index and the map of outer indices of a nest that stores to `view`: outermost has the
 * largest stride, dimensions of one element are dropped.  to[d] is what idx(d) becomes (d < view->ndim). */
void lw_ranges(Lower *L, MgLoop *l, const MgView *view, ExprRef *to);
/* An anonymous temporary of contiguous layout. */
MgRc lw_temp(Lower *L, MgDtype dt, int device, int ndim, const SymRef *size, const char *name, MgView *out);

/* ---- what a nest is made of (lower_from.c) ---- */
/* Nests from item `first` on that have no node are those of v. */
void lw_from_value(Lower *L, uint32_t first, ValRef v);
/* Fills in MgLoop.from of all nests, after lowering. */
MgRc lw_from_all(Lower *L);

/* ---- parts of inputs (lower_partial_write.c) ---- */
enum { LW_MAX_PARTS = 8 };
typedef struct LwPart {
  MgView view;
  ExprRef e;
} LwPart; /* e: what it gets, over its own indices */
typedef struct LwParts {
  LwPart part[LW_MAX_PARTS];
  int n;
} LwParts;
/* Adds the parts in which v differs from what lies at `memory`, in the order of their stores;
 * found: there are no others. */
MgRc lw_parts(Lower *L, ValRef v, const MgView *memory, LwParts *out, bool *found);
/* Parts that read what write-backs change are computed now, into temporaries. */
MgRc lw_parts_apart(Lower *L, LwParts *p, int device);
/* The result of n, which is its first argument with a view of it replaced, made where that argument lies:
 * only the part is stored.  A tensor that is filled part by part gets memory at the first of them.  done:
 * false when it is no such case. */
MgRc lw_part_write(Lower *L, const MgNode *n, bool *done);
/* Views that slice_scatter and its kind write: new size and stride lists. */
MgRc lw_part_slice(Lower *L, const MgNode *n, const MgView *whole, MgView *part);
MgRc lw_part_select(Lower *L, const MgNode *n, const MgView *whole, MgView *part);
MgRc lw_part_diagonal(Lower *L, const MgNode *n, const MgView *whole, MgView *part);
/* The `size` places of `whole` from `start` on along dim: new size and stride lists. */
MgRc lw_part_range(Lower *L, const MgView *whole, int dim, SymRef start, SymRef size, MgView *part);

/* ---- arguments ----
 * An argument is named as the op's schema names it; None if the op has no such parameter.  Overloads and ops
 * of one lowering may so differ in what they have, and in where they have it.
 * tools/check_arguments.py refuses a name that no schema has. */
const MgArg *lw_arg(const MgNode *n, const char *name);
/* Of two names the one that the op has, for ops that name the same thing differently. */
const char *lw_either(const MgNode *n, const char *name, const char *other);
/* The first argument if it is a tensor, for lowerings of ops that all name it differently. */
static inline ValRef lw_first(const MgNode *n) { return mg_node_first(n); }
static inline bool lw_is_none(const MgNode *n, const char *name) {
  const MgArg *a = lw_arg(n, name);
  return a->tag == MA_none || (a->tag == MA_val && !a->u.val);
}
static inline ValRef lw_arg_val(const MgNode *n, const char *name) {
  const MgArg *a = lw_arg(n, name);
  return a->tag == MA_val ? a->u.val : 0;
}
bool lw_arg_bool(const MgNode *n, const char *name, bool deflt);
SymRef lw_arg_sym(Lower *L, const MgNode *n, const char *name, int64_t deflt); /* an int argument */
/* A constant Scalar or float argument. */
double lw_arg_float(const MgGraph *g, const MgNode *n, const char *name, double deflt);
bool lw_arg_int(const MgGraph *g, const MgNode *n, const char *name,
                int64_t *v); /* a constant int argument */
/* Item i of an int list argument (a single int or one item stands for all); deflt when
 * the list is empty or None. */
SymRef lw_arg_item(Lower *L, const MgNode *n, const char *name, int i, int64_t deflt);
int lw_arg_len(const MgNode *n, const char *name); /* items of a list argument; 0 for None */
/* A dimension argument wrapped into [0, ndim); false when it is not constant. */
bool lw_arg_dim(const MgGraph *g, const MgNode *n, const char *name, int ndim, int *d);
/* A Scalar argument as an expression of type ty. */
ExprRef lw_arg_scalar(Lower *L, const MgArg *a, MgTy ty);

/* ---- expression shorthands ---- */
static inline ExprRef lw_op1(Lower *L, MgScalarOp op, ExprRef a) { return mg_ex_op(L->x, op, a, 0, 0); }
static inline ExprRef lw_op2(Lower *L, MgScalarOp op, ExprRef a, ExprRef b) {
  return mg_ex_op(L->x, op, a, b, 0);
}
static inline ExprRef lw_where(Lower *L, ExprRef c, ExprRef a, ExprRef b) {
  return mg_ex_op(L->x, OP_where, c, a, b);
}
/* The indices of a point in n dimensions. */
static inline void lw_ids(Lower *L, ExprRef *at, int n) {
  for (int d = 0; d < n; d++) at[d] = mg_ex_idx(L->x, d);
}
static inline ExprRef lw_int(Lower *L, int64_t v) { return mg_sym(L->x, v); }
static inline MgTy lw_ty(Lower *L, ExprRef e) { return (MgTy)L->x->node[e].ty; }
ExprRef lw_const(Lower *L, MgTy ty, double v); /* a constant of any type */
ExprRef lw_lowest(Lower *L, MgTy ty);          /* -inf, or the least integer; lw_highest: the opposite */
ExprRef lw_highest(Lower *L, MgTy ty);
/* 0 <= i < n as i1. */
ExprRef lw_in_range(Lower *L, ExprRef i, SymRef n);
/* Appends a nest that raises when `bad` (over indices of the given sizes) is true anywhere. */
MgRc lw_check(Lower *L, ExprRef bad, const SymRef *size, int ndim, const char *type, const char *msg);

/* ---- views (lower_view.c) ---- */
/* Element of a tensor of sizes in[0..nin) that has the row-major position of element
 * `at` of sizes out[0..nout). */
void lw_reshape_map(Lower *L, const SymRef *in, int nin, const SymRef *out, int nout, const ExprRef *at,
                    ExprRef *to);
/* A slice bound (`deflt` when None) wrapped and clamped into [0, size], as torch does. */
SymRef lw_slice_bound(Lower *L, const MgArg *a, SymRef size, SymRef deflt);
/* The value whose memory v is a view of: v itself unless a view op made it. */
ValRef lw_base(Lower *L, ValRef v);

/* ---- indices that are data (lower_index.c) ---- */
/* Element of index tensor t for a reader that broadcasts it, as i64 in [0, size): negative ones are wrapped
 * when `wrap`; out of range raises (when type is set) and makes *in false there. */
typedef struct LwIndex {
  ExprRef i, in;
} LwIndex;
MgRc lw_index(Lower *L, ValRef t, const ExprRef *at, int ndim, SymRef size, bool wrap, const char *type,
              const char *msg, LwIndex *out);
/* How aten::index maps results to self: positions of indexed dims, rank of the
 * broadcast index, where it goes. */
typedef struct LwIndexing {
  int nd, bdim, pos;
  ValRef t[LW_MAX_NDIM];
} LwIndexing;
bool lw_indexing(const MgGraph *g, const MgNode *n, LwIndexing *q);
/* Self's indices for result point `at`; *in: all in range. */
MgRc lw_indexing_map(Lower *L, const LwIndexing *q, const SymRef *size, const ExprRef *at, bool check,
                     ExprRef *to, ExprRef *in);

/* ---- reductions (lower_reduce.c), for the ops that are made of them ---- */
/* Reduces body over the dims of `size` marked in red[]; body is over ndim indices.  value is over the outer
 * indices (0: the reduced value itself) and may use the red leaf.  The result goes to `out`, a view whose
 * dims are the outer ones in order (reduced ones kept with size 1 when keep). */
MgRc lw_reduce(Lower *L, MgRedOp op, ExprRef body, int ndim, const SymRef *size, const bool *red,
               ExprRef value, const MgView *out, bool keep);
#endif
