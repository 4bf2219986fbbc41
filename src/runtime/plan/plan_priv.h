/* Inside of a plan: shared by plan.c (running) and plan_new.c (construction).
 * Every pointer that a step needs has a fixed place in a run's tables, so that running means: take a run, put
 * the pointers of inputs and outputs into those places, call the steps. */
#ifndef MG_PLAN_PRIV_H
#define MG_PLAN_PRIV_H
#include <stdatomic.h>
#include "base/interval_pack.h"
#include "cuda/device.h"
#include "runtime/process/arena.h"
#include "runtime/plan/graph_results.h"
#include "runtime/plan/plan_spec.h"
#include "runtime/plan/plan_times.h"

enum { PLAN_THREADS = 8 };      /* of which a plan remembers that they ran it */
enum { PLAN_ENGINE_ARGS = 16 }; /* tensors of a library's call; ATen's have any number */

typedef struct PlanPatch { /* one place that holds the address of a buffer that is not in the arena */
  uint32_t arg;            /* index in PlanRun.arg */
  uint32_t offset;         /* slot: elements to add, or UINT32_MAX */
  uint32_t elsize;
} PlanPatch;

typedef struct PlanSpan {
  uint32_t first, n;
} PlanSpan; /* part of an array */

typedef enum PlanTensorHow {            /* where the tensor handle of an extern argument comes from */
                             PT_none,   /* undefined */
                             PT_input,  /* the caller's tensor */
                             PT_fresh,  /* a tensor allocated for this call */
                             PT_result, /* what an extern call returned */
                             PT_arena,  /* made once per run over arena memory */
                             PT_view    /* as_strided of one of the above, made when needed */
} PlanTensorHow;

typedef struct PlanTensor { /* one entry of PlanRun.tensor */
  uint8_t how;              /* PlanTensorHow */
  uint32_t index;           /* PT_input, PT_fresh: number; PT_view: entry it is a view of */
  MgPlanView view;          /* geometry (PT_arena, PT_view, PT_result: what it must have) */
  uint32_t block;           /* PT_arena */
  bool as_is;               /* PT_result: nothing of ours relies on its strides */
  bool on_host;             /* PT_result: of a step that is */
} PlanTensor;

typedef struct PlanStep {
  uint8_t kind;     /* MgPlanStepKind */
  PlanSpan kernels; /* PK_kernel: ranges, see mg_threads_run */
  PlanSpan in, out; /* extern: entries of MgPlan.list (indices into tensor) */
  uint32_t arg;     /* PK_engine: first of nin + nout pointers in PlanRun.arg */
  PlanSpan release; /* entries of MgPlan.list: tensors nobody needs after this step */
  MgEngine *engine;
  const MgSized *sized;   /* NULL, or how runs make theirs */
  const MgPlanView *view; /* with it: what the engine's tensors are, inputs first */
  uint32_t engine_index;  /* into PlanRun.state and sized */
  uint32_t scratch;       /* block + 1, or 0 */
  uint32_t host_id;
  uint32_t number; /* extern: of the step that the plan was described with */
  const char *name;
  MgPlanScope scope; /* extern; kernels have their own */
  bool on_host;      /* as MgPlanStep's: it runs before each replay of a CUDA graph */
  bool apart, joins; /* as MgPlanStep's */
} PlanStep;

typedef struct PlanKernel {
  MgRangeFn fn;
  uint32_t arg, outer; /* first argument, slot of the range */
  uint32_t sizes;      /* first slot of its table */
  int64_t grain, work;
  bool beside;
  uint32_t narg;   /* pointers */
  uint32_t number; /* of the step that the plan was described with */
  MgPlanGpu gpu;   /* of a plan for a GPU */
  MgPlanScope scope;
} PlanKernel;

enum { PLAN_GPU_ARGS = 512 };
typedef struct PlanLaunch {
  void *fn;
  uint32_t blocks, threads, n; /* n: parameters */
  uint64_t value[PLAN_GPU_ARGS];
  void *arg[PLAN_GPU_ARGS]; /* their addresses */
} PlanLaunch;

typedef struct PlanNode { /* one kernel of ours in a graph */
  void *node;
  uint32_t kernel;
  void *fn;
  uint64_t *param; /* as they are set now */
} PlanNode;

typedef struct PlanLent { /* memory of a graph that a backward plan reads until it lets go of it */
  MgTensor *tensor;
  uint32_t uses; /* of its memory, by the graph itself */
} PlanLent;

typedef struct PlanDraws { /* of a graph whose calls draw random numbers */
  void *node, *fn;         /* what stores seed and offset; NULL: nothing is drawn */
  uint64_t seed, offset;   /* where, on the device */
  uint32_t n;              /* numbers that a replay draws, as the generator counts */
} PlanDraws;

typedef struct PlanGraph {   /* a captured run */
  void *graph, *exec, *keep; /* the driver's; the host's */
  bool lent_graph;           /* graph belongs to the host */
  PlanDraws draws;
  void *stream;
  uint64_t settings; /* of torch's libraries, see mg_cuda_settings */
  MgTensor *arena;
  uint8_t *mem;
  MgTensor **result; /* per entry of PlanRun.tensor: what a call returned, if outputs are made of it */
  MgTensor **fresh;  /* per fresh tensor: the graph's own, where library calls take it or only hidden outputs
                        are made of it */
  PlanLent *lent;
  uint32_t nlent;
  uint32_t misfits;    /* calls in a row whose inputs were elsewhere */
  void **input, **arg; /* as PlanRun's were */
  PlanNode *node;
  uint32_t nnode;
  MgGraphResults results;
  void **memory;   /* per output and then per fresh tensor: what it shares with another of them, or NULL */
  MgBranch branch; /* while it is captured */
} PlanGraph;

typedef struct MgPlanCall { /* everything one running call writes; owned by one thread at a time */
  struct MgPlanCall *next;  /* idle list */
  int64_t *slot;
  void **arg;
  MgRange *range;
  void **input;        /* pointers that are patched in now */
  uint64_t *cell;      /* of the plan's numbers */
  MgTensor **tensor;   /* handles; PT_arena ones live as long as the run, the others during a call */
  MgTensor **fresh;    /* the tensors allocated for this call, until they are given away as outputs */
  void **state;        /* per engine */
  MgSizedRun *sized;   /* per engine; NULL: the plan has no symbols */
  MgTensor *gpu_arena; /* the same of a GPU, from PyTorch's allocator; NULL between calls */
  MgArena *arena;      /* of the running call; between calls only remembered to see whether it changed */
  uint8_t *mem;        /* its memory that pointers are bound to */
  uint64_t *offset;    /* per block: where it is in the arena */
  uint64_t total;      /* bytes of all blocks */
  uint32_t at;         /* next step of the running call */
  PlanGraph *graph, *capturing; /* of a GPU: the run as a CUDA graph; while one is made */
  uint32_t runs, captures, refused;
  bool replayed;     /* the last run was a replay */
  bool closely;      /* the running call's steps are measured */
  uint64_t ticks;    /* of its parts so far */
  bool *stage;       /* per input: moved, although library calls read it */
  MgTensor **staged; /* their copies, for graphs; NULL: there are none */
  MgPackBlock *pack; /* dynamic plans: the blocks, and room for 2 * nblock pointers */
  void *work;        /* of mg_pack_again */
  bool sized_for;    /* sizes and offsets are evaluated, for the symbols' values in slot */
  bool bound;        /* slots, arguments and ranges are set up */
} PlanRun;

struct MgPlan {
  MgPlanSpec s; /* counts and constant tables, pointing into mem */
  MgCtx mem;    /* owns every table of the plan; never allocated from after construction */
  PlanStep *step;
  uint32_t nstep;
  PlanKernel *kernel;
  uint32_t nkernel;
  PlanTensor *tensor;
  uint32_t ntensor;
  uint32_t *list;
  PlanPatch *patch;
  PlanSpan *patch_of;     /* per buffer: its patches */
  uint32_t *buf_of_input; /* per input: its buffer, or 0 */
  PlanPatch *arena_patch;
  uint32_t *arena_buf;
  uint32_t narena_patch; /* arguments in the arena */
  uint32_t *lazy;
  uint32_t nlazy;              /* tensors to release at the end of a call */
  uint32_t *out_tensor;        /* per output: entry of tensor it is made from (PO_view) */
  bool *out_again;             /* per output: an earlier output is made from that entry, too */
  uint32_t *copy_tensor;       /* per copy: entry of tensor, or UINT32_MAX: it is a number */
  uint32_t *ready;             /* per output: steps after which nothing touches its memory any more */
  bool *called, *fresh_called; /* per input, per fresh tensor: a library call takes it */
  bool *fresh_hidden;          /* per fresh tensor: only hidden outputs are made of it */
  bool *kept;                  /* per output: later steps still read its memory */
  uint32_t
      early; /* steps that make what is asked for before an input is written; all of them when nothing is */
  uint32_t narg, nengine, nhost;
  uint32_t nbeside;   /* steps that may run beside others in a CUDA graph */
  bool random;        /* calls draw from a generator */
  MgPlanTimes *times; /* NULL: runs are not measured */
  bool sized;         /* some engines are made by runs */
  bool shows_all;     /* a run takes so long that looking for profilers of all threads does not count */
  _Atomic(const void *) ran_on[PLAN_THREADS]; /* threads of runs step by step; compared, never read */
  atomic_uint nran;
  atomic_uint captured, replayed; /* by all runs */
  bool aten;                      /* calls ATen: grad mode is switched off meanwhile */
  _Atomic(PlanRun *) idle;        /* one idle run, taken without a lock */
  PlanRun *more;                  /* further idle runs, guarded by MG_LOCK_list, as is: */
  uint32_t nrun;                  /* runs that were made for sizes of their own */
};

/* The entry whose memory entry i shows. */
static inline uint32_t mg_plan_root(const MgPlan *p, uint32_t i) {
  while (p->tensor[i].how == PT_view) i = p->tensor[i].index;
  return i;
}

/* ---- plan_gpu.c ---- */
/* What a kernel is launched with now.  NULL, or why it cannot be. */
const char *mg_plan_gpu_prepare(const MgPlan *p, const PlanRun *r, const PlanKernel *k, PlanLaunch *out);
/* Memory for intermediates on the plan's device; false: out of memory. */
bool mg_plan_gpu_arena(const MgPlan *p, PlanRun *r);
/* Launches kernels [first, first + n) on PyTorch's stream.  NULL, or what the driver says. */
const char *mg_plan_gpu_launch(const MgPlan *p, PlanRun *r, uint32_t first, uint32_t n);

/* ---- plan_runs.c ---- */
/* An idle run of p or a new one; NULL: out of memory. */
PlanRun *mg_plan_run_take(MgPlan *p);
/* The idle run that `fits`, or one that the call gives other sizes. */
PlanRun *mg_plan_run_take_sized(MgPlan *p, bool (*fits)(void *call, const PlanRun *r), void *call);
void mg_plan_run_give(MgPlan *p, PlanRun *r);
#endif
