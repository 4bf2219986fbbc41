/* The pass list in one function: recorded graph -> run-time plan. */
#ifndef MG_COMPILE_H
#define MG_COMPILE_H
#include "ir/graph/graph.h"
#include "runtime/plan/plan.h"

typedef struct MgJointSpec MgJointSpec;

typedef struct MgOptions MgOptions;
typedef struct MgSaved MgSaved;

/* For finding a wrong pass: only the first `limit` passes of passes.def run; -1: all. */
void mg_compile_set_passes(int limit);
/* For tests: pass number `wrong` (counted from 0) spoils what it makes, or ends the process; -1: none does.
 */
void mg_compile_plant(int wrong, bool crash);
/* For tests: what is illegal is put into the graph after the pass of that name ("" for none), where a
 * verifier has to find it. */
typedef enum MgIllegal {
  ILLEGAL_order, /* a value is used before it is defined */
  ILLEGAL_write, /* a node writes its argument */
  ILLEGAL_whole, /* what decompose takes apart is left whole */
  ILLEGAL__COUNT
} MgIllegal;
void mg_compile_plant_illegal(const char *pass, MgIllegal what);
const char *mg_compile_pass(int i); /* its name; NULL: there are no more */

typedef struct MgHostOps { /* how driver asks front for extern calls while compiling */
  /* Registers the call of graph node n through its Python OpOverload; its id goes to MgHost.call.
   * The node's non-tensor arguments are copied. */
  MgRc (*add_call)(void *self, MgGraph *g, NodeRef n, uint32_t *id);
  /* Runs graph node n once, on tensors in the order of MgHost.call: new results, nout of them.  False when
   * that fails or somebody would see it; no error is left.  NULL: constants are not
   * computed while compiling. */
  bool (*eval)(void *self, MgGraph *g, NodeRef n, MgTensor *const *in, int nin, MgTensor **out, int nout);
  const char *label;  /* what profilers show of the plan; NULL: unknown */
  uint64_t recording; /* for reports: which recording the graph comes from; 0: unknown */
  MgHost host;        /* moved into the plan on success */
} MgHostOps;

/* Does the graph live where kernels of ours run: on the CPU, or on one CUDA device? */
bool mg_compile_takes(const MgGraph *g);
/* g is consumed (passes change it).  On failure the reason is in g->c. */
MgRc mg_compile(MgGraph *g, const MgOptions *o, MgHostOps *h, MgPlan **out);

/* ---- training: a joint graph becomes a forward plan and a backward plan ----
 * Joint graph: inputs are primals, then tangents; outputs are forward outputs, then gradients (only those
 * that exist: which input a gradient belongs to is the caller's to remember); one
 * program-order recording, forward first.
 *
 * Forward plan: inputs are the primals in order; results are the nfwd forward outputs (aliases of primals and
 * of each other as mg_plan_run reports them), then nintermediate tensors of its own that only backward may
 * see.  It does all mutations of primals (running statistics); run it once per call.
 * Backward plan: inputs are saved[0, nsaved), then the tangents in joint order (unused ones too); results are
 * the gradients in joint order.  A gradient may be a tangent itself or a view of one, as in eager, never
 * memory of a saved value. Sizes, dtypes and strides of every input are those of the joint graph: a tangent
 * that comes in other strides must be made so by the caller.  Primals and outputs among saved must be
 * unchanged since the forward run (eager reads them in backward too, so check their versions as saved
 * variables do); a saved primal that forward itself wrote is meant as it is after forward. */
typedef struct MgJointPlans {
  MgPlan *fwd, *bwd; /* owned by the caller: mg_plan_free */
  MgSaved *saved;
  uint32_t nsaved; /* malloc'ed, owned by the caller: free */
  uint32_t nfwd, nintermediate;
  uint32_t ntangent, ngrad;
  uint64_t saved_bytes; /* of the intermediates */
} MgJointPlans;

/* joint is consumed; fwd_host and bwd_host are taken over in every case, also when it fails (*out is zero
 * then, the reason in joint->c).  kept: initialised and empty, gets a copy of the backward graph before that
 * is compiled; or NULL.  MG_UNSUP: what cannot be cut (backward writes to an input, a forward output depends
 * on a tangent) or compiled; the caller then lets eager work. */
MgRc mg_compile_joint(MgGraph *joint, const MgJointSpec *spec, const MgOptions *o, MgHostOps *fwd_host,
                      MgHostOps *bwd_host, MgGraph *kept, MgJointPlans *out);
/* The backward plan for runs in which the tangents of the set `given` (base/bits.h) are defined: its inputs
 * and results are the same. bwd: what mg_compile_joint kept, with numbers for its symbols; consumed.  h:
 * taken over in every case.  *out: NULL when the plan for all tangents, with zeros for
 * the others, does as well. */
MgRc mg_compile_backward(MgGraph *bwd, uint32_t nsaved, const uint64_t *given, const MgOptions *o,
                         MgHostOps *h, MgPlan **out);
#endif
