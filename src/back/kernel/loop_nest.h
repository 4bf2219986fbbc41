/* The loop IR: what lowering produces and code generation consumes.
 * A schedule is a list of items in program order: loop nests over buffers, and extern calls.
 * Indices of loads and stores are in elements from the start of the buffer (a buffer's own offset is included
 * in the index by lowering, so base pointers are never adjusted). */
#ifndef MG_LOOP_NEST_H
#define MG_LOOP_NEST_H
#include "ir/graph/graph.h"

typedef uint32_t BufRef; /* index into MgSched.buf; 0 is "none" */
#define MG_LOOP_FROM 8   /* nodes that a nest remembers */
#define MG_MAX_RANK 16   /* outer + reduced ranges of one nest */

typedef enum MgBufKind {
  MB_input,  /* a graph input; the base is the tensor's data pointer (its storage offset is in it already) */
  MB_temp,   /* planned into the arena (or kept inside one kernel by fusion: see MB_local) */
  MB_output, /* a fresh tensor given to the caller */
  MB_extern_out, /* memory of a tensor that an extern call returned */
  MB_number,     /* a number that the host computes for kernels of a GPU, see MgNumber */
  MB_local,      /* lives inside one fused kernel only; set by fusion, no memory planned */
  MB_error       /* MgSched.err: i32 cells, zeroed before every run, looked at after it */
} MgBufKind;

typedef struct MgCheck { /* one run-time check of data (an index in range): cell i of MgSched.err belongs to
                            check i */
  NodeRef node;          /* graph node that asked */
  const char *type;      /* exception eager raises: "IndexError", "RuntimeError" */
  const char *msg;       /* its text */
} MgCheck;

typedef struct MgBuf {
  uint8_t kind, dtype; /* MgBufKind, MgDtype */
  uint8_t device;      /* MgDevice */
  int32_t index;       /* MB_input: input number; MB_output: output number */
  SymRef nelem;        /* elements of memory from the base (strided extent, not numel) */
  const char *name;    /* for dumps */
} MgBuf;

typedef struct MgView { /* a tensor as strided view of a buffer */
  BufRef buf;
  uint8_t ndim, dtype;
  SymRef *size, *stride;
  SymRef offset;
} MgView;

typedef enum MgLoopKind {
  ML_point,  /* store value for every point of the ranges */
  ML_reduce, /* ranges [nouter, nouter+nred) are reduced with red_op over body; value may use the `red` leaf
              */
  ML_scan,   /* running red_op along the last range (nred = 1), inclusive; value uses `red`, stored at every
                point */
  ML_scatter /* store index depends on loaded data; points that may collide keep their order */
} MgLoopKind;

typedef enum MgRedOp {
  RED_sum,
  RED_prod,
  RED_max,
  RED_min,
  RED_any,
  RED_all,
  RED_xor,
  RED_argmax,
  RED_argmin,
  RED_argpool
} MgRedOp;
/* max/min propagate NaN as torch does; argmax/argmin give the first index (i64, position within the reduced
 * ranges, row-major), NaN wins.  argpool is argmax as ATen's pooling has it: of several NaNs the last one
 * wins.  The reduced expression has the compute type; sums of bool/ints are done in i64. */

static inline bool mg_red_is_arg(MgRedOp op) { return op >= RED_argmax; }

typedef enum MgStoreMode {
  ST_set,
  ST_add,
  ST_max,
  ST_min,
  ST_mul
} MgStoreMode; /* all but set: read-modify-write */

typedef struct MgLoop {
  uint8_t kind; /* MgLoopKind */
  uint8_t nouter, nred;
  uint8_t nfree;  /* scatter: points that differ in the first nfree indices never store to one place */
  uint8_t red_op; /* MgRedOp */
  uint8_t mode;   /* MgStoreMode */
  SymRef range[MG_MAX_RANK]; /* idx(k) runs over [0, range[k]) */
  ExprRef body;              /* reduce/scan: the expression that is reduced (its type is the accumulator's) */
  ExprRef value;             /* what is stored; converted to the buffer's storage type by the store */
  BufRef buf;                /* target */
  ExprRef index;             /* element index of the store */
  ExprRef mask;              /* i1, or 0: store only where true (scatter) */
  NodeRef node;              /* graph node it came from (dumps, source lines) */
  NodeRef from[MG_LOOP_FROM]; /* it and the nodes that were computed inside of it, in order (profilers) */
  uint8_t nfrom;
  /* Set by fusion, on copies that a kernel owns: */
  uint8_t phase; /* nests of one kernel with equal phase run in one set of inner loops */
  uint8_t vec;   /* index that runs over vector lanes; MG_NO_VEC: none */
} MgLoop;
#define MG_NO_VEC 255

typedef struct MgExtern { /* one call of a library or of the dispatcher */
  NodeRef node;           /* op and non-tensor arguments are read from the graph node */
  MgView *in;
  uint32_t nin; /* tensor arguments, lists flattened, undefined ones with buf 0 */
  MgView *out;
  uint32_t nout; /* results */
  bool prealloc; /* results are written into planned buffers (engines with an out argument: mg::*);
                    false: the op returns new tensors (kind MB_extern_out) */
} MgExtern;

typedef struct MgItem {
  enum { MI_loop, MI_extern } kind;
  union {
    MgLoop *loop;
    MgExtern *ext;
  } u;
} MgItem;

typedef struct MgCopy { /* a tensor that is copied into an input when all steps have run */
  uint32_t input;
  MgView from;
} MgCopy;

typedef struct MgNumber { /* a 0-dim tensor of the CPU in a GPU's graph, computed before the steps run */
  BufRef buf;             /* MB_number */
  ExprRef value;          /* of inputs of the CPU and of earlier numbers; converted to the buffer's type */
} MgNumber;

typedef struct MgSched {
  MgCtx *c;
  MgGraph *g;
  MgExprs *x;
  MgBuf *buf;
  uint32_t nbuf, cap_buf; /* buf[0] unused */
  MgItem *item;
  uint32_t nitem, cap_item;
  uint32_t early_end; /* 1 + items that make what is asked for before an input is written (MgGraph.early); 0:
                      nothing is */
  MgView *out;
  uint32_t nout; /* per graph output: where its value is; buf 0 when g->out_alias says it
                    is another tensor.  An MB_output buffer with index i is the storage of
                    output i; other outputs may be views of it */
  BufRef err;    /* MB_error buffer of ncheck cells, or 0; a cell that is not 0 after a run
                    means that this check failed: the run raises */
  MgCheck *check;
  uint32_t ncheck, cap_check;
  MgCopy *copy;
  uint32_t ncopy; /* memory of the CPU in a GPU's graph */
  MgNumber *number;
  uint32_t nnumber, cap_number;
  SymRef *size;
  bool alone;               /* every nest is to be a kernel of its own */
  uint32_t nsize, cap_size; /* long sizes that kernels read behind the symbols; the plan computes them */
} MgSched;

/* One fused kernel, made by back/kernel/fuse.  All its nests share the outer parallel range. */
typedef struct MgKernel {
  MgLoop **loop;
  uint32_t nloop;  /* in order; each runs inside the shared outer loop */
  uint8_t nshared; /* how many leading ranges are shared (0: the whole kernel is serial) */
  SymRef outer;    /* product of the shared ranges: the parallel range [0, outer) */
  BufRef *buf;
  uint32_t nbuf;      /* kernel arguments, in order (no MB_local buffers) */
  int64_t grain;      /* least number of outer points worth a thread */
  int64_t work;       /* of one outer point, roughly in scalar operations */
  char name[32];      /* symbol; equal kernels share one */
  uint64_t key;       /* hash of the text up to names */
  const char *apart;  /* why it is not part of an earlier kernel, for reports; NULL: none was asked */
  int32_t apart_from; /* the step of that kernel; -1: none */
} MgKernel;

typedef struct MgStepIR { /* final order of work */
  enum { MS_kernel, MS_extern } kind;
  uint64_t scratch; /* MS_extern: bytes its engine wants while it runs */
  bool sized;       /* MS_extern: how many is known at run time only */
  bool beside;      /* MS_extern: in a CUDA graph it runs beside what follows, until */
  uint32_t join;    /* this step: what it works on keeps its memory so long */
  bool joins;       /* it waits for all that runs beside */
  union {
    MgKernel *kernel;
    MgExtern *ext;
  } u;
} MgStepIR;

typedef struct MgFused {
  MgStepIR *step;
  uint32_t nstep;
  uint32_t early_end; /* 1 + steps of those items; 0: nothing is asked for early */
} MgFused;

MgRc mg_sched_init(MgSched *s, MgGraph *g);
MgRc mg_sched_size(MgSched *s, SymRef e); /* one more long size */
BufRef mg_sched_buf(MgSched *s, MgBufKind kind, MgDtype dtype, SymRef nelem, const char *name);
MgLoop *mg_sched_loop(MgSched *s, MgLoopKind kind,
                      NodeRef node); /* appended; fields to be filled; NULL: nomem */
MgExtern *mg_sched_extern(MgSched *s, NodeRef node, int nin, int nout);
/* A new data check; its number goes to *cell.  Nests store a non-zero value into
 * s->err[cell] when it fails. */
MgRc mg_sched_check(MgSched *s, NodeRef node, const char *type, const char *msg, uint32_t *cell);
/* The buffer, made for it, is a number with this value. */
MgRc mg_sched_number(MgSched *s, BufRef buf, ExprRef value);
/* Are points that are neighbours of dimension `last` far apart in memory, but those of an earlier one side by
 * side? */
bool mg_index_turned(MgExprs *x, ExprRef index, int last);
/* Element index of the point `at` (ndim expressions) of a view. */
ExprRef mg_view_index(MgExprs *x, const MgView *v, const ExprRef *at);
/* Elements from the base to the end of the view: offset + sum (size-1)*stride + 1 (0 for an empty one). */
SymRef mg_view_extent(MgExprs *x, const MgView *v);
/* Checks what lowering promises of every nest, call and output; MG_BUG names what is wrong. */
MgRc mg_sched_verify(MgSched *s, const char *after);
void mg_sched_print(const MgSched *s, MgStrbuf *out);
void mg_loop_print(const MgSched *s, const MgLoop *l, MgStrbuf *out);
void mg_fused_print(const MgSched *s, const MgFused *f, MgStrbuf *out); /* steps, with the nests of kernels */
#endif
