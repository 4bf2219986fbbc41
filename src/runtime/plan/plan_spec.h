/* How driver/ describes a plan to be made.  Everything is copied by mg_plan_new except kernels' code and
 * engines, which the plan takes over.
 * All sizes are *slots*: int64 values of one table per run.  Slots [0, nsym) are the symbols, read from input
 * sizes; the rest starts as slot0 says and is completed by the size program when the symbols change.  A plan
 * without symbols has only constants and never runs the program after the first time. */
#ifndef MG_PLAN_SPEC_H
#define MG_PLAN_SPEC_H
#include "cuda/device.h"
#include "runtime/engine/engine.h"
#include "runtime/code/kernel_cache.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/plan_scope.h"
#include "runtime/engine/sized_engines.h"
#include "runtime/process/threads.h"

typedef enum MgSizeOpKind {
  SZ_copy,
  SZ_add,
  SZ_sub,
  SZ_mul,
  SZ_floordiv,
  SZ_mod,
  SZ_min,
  SZ_max
} MgSizeOpKind;
typedef struct MgSizeOp {
  uint8_t op;
  uint32_t dst, a, b;
} MgSizeOp; /* slot[dst] = slot[a] op slot[b] */

typedef struct MgSymSource {
  uint32_t input;
  uint8_t dim;
} MgSymSource; /* symbol k = size of input at dim */

/* What was assumed of sizes: a run at other ones is refused (MG_UNSUP) before it has done anything. */
typedef enum MgPlanFactKind { SF_equal, SF_other, SF_less, SF_more } MgPlanFactKind;
static inline bool mg_plan_fact_holds(MgPlanFactKind is, int64_t a, int64_t b) {
  switch (is) {
  case SF_equal: return a == b;
  case SF_other: return a != b;
  case SF_less: return a < b;
  case SF_more: return a > b;
  }
  return false;
}
typedef struct MgPlanFact {
  uint8_t is;
  uint32_t a, b;
} MgPlanFact; /* slot[a] is .. slot[b] */

typedef enum MgPlanMem { PM_none, PM_input, PM_arena, PM_fresh, PM_extern, PM_number } MgPlanMem;

typedef struct MgPlanBuf {
  uint8_t mem;    /* MgPlanMem */
  uint32_t index; /* input number, number of the fresh tensor that holds it, block of the arena, or cell of
                     the numbers */
} MgPlanBuf;

typedef struct MgPlanBlock { /* a part of the arena */
  uint64_t offset;           /* bytes; of a plan that is not dynamic */
  uint32_t bytes;            /* slot; of a dynamic one */
  uint32_t first, last;      /* steps it is alive in */
} MgPlanBlock;

typedef struct MgPlanView { /* a tensor argument or result of an extern step, or a graph output */
  uint32_t buf;             /* 0: undefined tensor */
  int32_t dtype;            /* torch's number */
  uint8_t ndim, elsize;
  bool whole; /* exactly the tensor that owns the buffer (input, fresh tensor, extern result): no new view
                 needed */
  bool
      opaque; /* a result whose size only its op knows, for others of its kind (workspaces): taken as it is */
  uint32_t size, stride; /* first of ndim slots */
  uint32_t offset;       /* slot: elements from the buffer's base */
} MgPlanView;

typedef struct MgPlanGrid {
  uint32_t blocks;  /* slot */
  uint32_t threads; /* of a block */
} MgPlanGrid;

typedef struct MgPlanGpu { /* how a kernel of the GPU is launched */
  MgPlanGrid shape, plain;
  MgCudaLazy *other; /* with grid `plain`, for pointers that are no multiples of 16 bytes; NULL: any do. Taken
                        over by the plan */
  const uint8_t *number; /* per argument: bytes of a number in the CPU's memory, which is passed by value; 0:
                            the pointer is */
} MgPlanGpu;

typedef enum MgPlanStepKind { PK_kernel, PK_engine, PK_host } MgPlanStepKind;

typedef struct MgPlanStep {
  uint8_t kind; /* MgPlanStepKind */
  /* PK_kernel */
  MgRangeFn fn;         /* on a GPU the driver's function */
  const MgPlanGpu *gpu; /* NULL: a kernel of the CPU */
  const uint32_t *buf;
  uint32_t nbuf;       /* kernel arguments, in order */
  uint32_t outer;      /* slot: points of the parallel range */
  uint32_t sizes;      /* slot: where the table of sizes that fn gets begins */
  int64_t grain, work; /* least points worth a thread; scalar operations of a point */
  bool beside; /* may run at the same time as the kernels before it, back to the last one that may not */
  /* PK_engine, PK_host */
  const MgPlanView *in, *out;
  uint32_t nin, nout;
  MgEngine *engine;     /* PK_engine; owned by the plan once mg_plan_new succeeds */
  const MgSized *sized; /* PK_engine: runs use others, made for their sizes; NULL: engine is for all */
  uint32_t scratch;     /* PK_engine: block + 1 of its scratch, or 0 */
  uint32_t host_id;     /* PK_host: MgHost.call's id */
  bool graph;           /* PK_host: a CUDA graph may contain it */
  bool random;          /* PK_host: it draws from the device's default generator */
  bool apart;           /* PK_host: in a CUDA graph it runs beside what follows, until */
  uint32_t join;        /* this step */
  bool joins;           /* it waits for all that runs beside */
  bool on_host;         /* PK_host: work on the CPU, of inputs on the CPU and results of others that are */
  bool guessed;     /* PK_host: the strides of its results are those of torch's meta kernel, which may err */
  const char *name; /* op, for messages */
  MgPlanScope scope;
} MgPlanStep;

typedef struct MgPlanCheck {
  const char *type, *msg;
} MgPlanCheck;

typedef enum MgPlanOutKind {
  PO_same_input,  /* index is the input */
  PO_same_output, /* the same tensor as output `index` (smaller than this one's number) */
  PO_fresh,       /* fresh tensor number `index` itself */
  PO_view         /* a view of view.buf (input, fresh tensor, extern result); whole: that tensor itself */
} MgPlanOutKind;

typedef struct MgPlanOut {
  uint8_t kind; /* MgPlanOutKind */
  uint32_t index;
  bool viewed;     /* PO_view of an input: with its version counter, as the program sees it */
  MgPlanView view; /* PO_view: geometry */
} MgPlanOut;

typedef struct MgPlanCopy {
  uint32_t input;
  MgPlanView from;
} MgPlanCopy; /* at the end, by ATen: into memory of the CPU */

typedef struct MgPlanNumbers { /* what the host computes of inputs of the CPU before the steps run */
  void (*run)(const void *program, uint64_t *cell); /* the first cells are the addresses of `input` */
  const void *program;
  size_t bytes;
  uint32_t ncell;
  const uint32_t *input;
  uint32_t ninput;
} MgPlanNumbers;

typedef struct MgPlanFresh { /* a tensor allocated for every call; its memory is a PM_fresh buffer */
  MgPlanView view;           /* geometry, offset 0 */
  int32_t device, dev_index;
} MgPlanFresh;

typedef struct MgPlanSpec {
  uint32_t ninput; /* those of a call, then the constants */
  MgTensor *const *constant;
  uint32_t nconstant; /* computed while compiling; taken over */
  const MgPlanBuf *buf;
  uint32_t nbuf; /* buf[0] unused */
  const MgPlanStep *step;
  uint32_t nstep;
  const MgPlanFresh *fresh;
  uint32_t nfresh;
  const MgPlanOut *out;
  uint32_t nout;
  uint32_t
      nhidden; /* the last so many: only a backward plan takes them, and lets go of them when it has run */
  const MgPlanCopy *copy;
  uint32_t ncopy;
  MgPlanNumbers numbers; /* no cells: there are none */
  const bool *early;     /* per output, or NULL: it is computed before an input is written */
  uint32_t early_end; /* the first early_end - 1 steps make these, and write to no input; 0: there are none */
  const int64_t *slot0;
  uint32_t nslot;
  const MgSizeOp *sizeop;
  uint32_t nsizeop;
  const MgSymSource *sym;
  uint32_t nsym; /* sym: NULL when only the caller knows the symbols' values */
  const MgPlanFact *fact;
  uint32_t nfact;
  const MgPlanBlock *block;
  uint32_t nblock;
  uint64_t arena; /* bytes, unless dynamic */
  bool dynamic;   /* blocks are placed at run time, whenever a symbol changes */
  uint32_t err;
  const MgPlanCheck *check;
  uint32_t ncheck; /* block of the error cells; checks */
  MgKcRef *code;
  uint32_t ncode; /* references to loaded kernels, taken over */
  const uint32_t *written;
  uint32_t nwritten;
  uint64_t bytes_moved;
  unsigned threads;    /* 0: as torch */
  bool strict_strides; /* others than the program read the results and rely on their strides */
  bool graphs;         /* whole runs may be CUDA graphs */
  bool cuda;
  int32_t device;    /* kernels and arena are those of this CUDA device */
  const char *label; /* for profilers; NULL: unknown */
  struct MgPlanTimes
      *times; /* of its runs, for reports: the plan keeps it, too; NULL: they are not measured */
  MgHost host;
} MgPlanSpec;

/* A new plan.  On failure nothing is taken over. */
MgRc mg_plan_new(MgCtx *c, const MgPlanSpec *s, MgPlan **out);
#endif
