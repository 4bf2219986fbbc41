/* The run-time plan: a flat array of steps run by one C loop.  Built by driver/, immutable afterwards;
 * several threads may run one plan at once (each gets its own arena).  Knows nothing of Python: calls that
 * need it go through MgHost. */
#ifndef MG_PLAN_H
#define MG_PLAN_H
#include "base/ctx.h"
#include "runtime/process/torch_abi.h"

typedef struct MgPlan MgPlan;
typedef void (*MgKernelFn)(void *const *buf, const int64_t *size, int64_t begin, int64_t end);

/* What the plan needs from the layer that owns Python objects. */
typedef struct MgHost {
  void *self;
  /* Runs call `id` (registered while compiling) on borrowed tensors; stores new tensors.  0, or -1 with the
   * error kept by the host (a Python exception is set).  The GIL is taken by the callee. */
  int (*call)(void *self, uint32_t id, MgTensor *const *in, int nin, MgTensor **out, int nout);
  void (*free)(void *self); /* with the plan */
} MgHost;

/* Inputs are borrowed, in graph input order.  sizes: values of the symbols; NULL: read from the inputs.
 * Outputs are new tensors in graph output order; an output that is an input itself is reported as NULL with
 * same[i] set to that input's number (else -1). MG_OK, MG_PYERR (host error is set), MG_NOMEM, MG_BUG
 * (message in err, err_len bytes), MG_UNSUP (the plan is not for these sizes; nothing was done), MG_RAISE:
 * what eager would raise, as "IndexError: text" in err; outputs are all NULL then and inputs may
 * have been written already. */
MgRc mg_plan_run(MgPlan *p, MgTensor *const *in, const int64_t *sizes, MgTensor **out, int *same, char *err,
                 size_t err_len);

/* The same in parts.  Starts a run when *call is NULL, else goes on with it on the same inputs: runs the
 * steps before `until` and gives the outputs that became ready (mg_plan_ready); the others are NULL and
 * same[i] is -1.  With until at the number of steps (or more), or on failure, the run
 * is over and *call is NULL. */
typedef struct MgPlanCall MgPlanCall;
MgRc mg_plan_part(MgPlan *p, MgPlanCall **call, uint32_t until, MgTensor *const *in, const int64_t *sizes,
                  MgTensor **out, int *same, char *err, size_t err_len);
/* Ends a run before its end. */
void mg_plan_stop(MgPlan *p, MgPlanCall *call);
/* Per output: the number of steps after which it is ready. */
const uint32_t *mg_plan_ready(const MgPlan *p);
/* So many steps make the outputs that are asked for early, and write to no input. */
uint32_t mg_plan_early(const MgPlan *p);

/* Is the plan for these sizes?  The next run then finds its sizes evaluated. */
bool mg_plan_takes(MgPlan *p, const int64_t *sizes);

/* What profilers show of it; NULL: unknown. */
const char *mg_plan_label(const MgPlan *p);
void mg_plan_free(MgPlan *p);
void mg_plan_trim(MgPlan *p); /* gives back the memory of idle runs */
typedef struct MgPlanInfo {
  int ninput, noutput, nkernel, nextern, nstep;
  int nhost;   /* extern steps that go through MgHost (need the GIL) */
  bool graphs; /* on a GPU: whole runs may become CUDA graphs */
  uint64_t arena_bytes;
  uint64_t bytes_moved;    /* memory the kernels touch in one run: long runs are worth releasing the GIL */
  const uint32_t *written; /* inputs whose memory is overwritten (the caller bumps their version counters) */
  int nwritten;
} MgPlanInfo;
void mg_plan_info(const MgPlan *p, MgPlanInfo *out);
#endif
