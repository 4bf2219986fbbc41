/* Cutting a joint graph (forward, then the nodes that PyTorch's engine issued for its gradients) into two
 * graphs. The joint graph's inputs are primals, then tangents (gradients of forward outputs); its outputs are
 * forward outputs, then gradients of inputs. */
#ifndef MG_PARTITION_H
#define MG_PARTITION_H
#include "middle/middle.h"
#include "ir/graph/joint_spec.h"

typedef struct MgJoint { /* in: spec, set by the caller; the rest belongs to the passes.  In the graph's
                            arena. */
  MgJointSpec spec;
  bool *stable; /* per input, then per output, then per write-back: backward as recorded reads its memory, so
                 * a change of it before backward is an error in eager too and it may be saved as it is */
  /* out: forward takes the primals and returns the forward outputs, then the intermediates;
   * backward takes `saved`, then the tangents, and returns the gradients */
  MgGraph fwd, bwd;
  MgSaved *saved;
  uint32_t nsaved;
  uint32_t nintermediate;
  uint64_t saved_bytes; /* of intermediates with constant sizes */
} MgJoint;

/* Before functionalize: marks the nodes of backward. */
MgRc mg_joint_mark(MgGraph *g, MgJoint *j);
/* Right after functionalize: what eager's backward reads. */
MgRc mg_joint_stable(const MgGraph *g, MgJoint *j);
/* Cuts the functional graph g.  o->lowers says which nodes become loops and so are cheap to compute again. */
MgRc mg_partition(MgGraph *g, const MgSimplifyOpts *o, MgJoint *j);
#endif
