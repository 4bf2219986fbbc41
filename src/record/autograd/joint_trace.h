/* The gradient graph of a recording: PyTorch's own engine runs backward on the stand-ins, and its ops go on
 * in the same graph.  In: a recording whose snapshot is built and whose stand-ins still live.  Out: r->joint,
 * or NULL when the graph has to run op by op under autograd (reason in the log).
 * How a result of the segment is made from there on: */
#ifndef MG_JOINT_TRACE_H
#define MG_JOINT_TRACE_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "ir/graph/graph.h"

typedef struct MgRec MgRec;
typedef struct MgSnapshot MgSnapshot;
/* Called between mg_snapshot_build and mg_standin_end.  -1 with an exception only when memory ran out. */
int mg_joint_record(MgRec *r, const MgSnapshot *snap);
/* Is there, before node `end`, a tracked clamp whose gradient eager's engine may refuse?  ATen ands what it
 * compared in place, unless tensors are subclasses, as stand-ins are: one bound may not be larger than the
 * other with self. */
bool mg_joint_clamp_raises(const MgGraph *g, NodeRef end);
/* A new value for the gradient of another one; 0: out of memory. */
ValRef mg_joint_gradient_val(MgGraph *g, ValRef like);
/* After a run of the engine that failed: drops the work that is left in its queue,
 * and with it what it holds. */
void mg_joint_drain(void);
/* Records one pass from roots to leaves (tuples, tangents for the roots) and forgets its ops: NULL, and an
 * exception or a break, where it cannot be recorded or changes something older than itself; None: it raises;
 * else the gradients (new). */
PyObject *mg_joint_rehearse(MgRec *r, PyObject *roots, PyObject *tangents, PyObject *leaves);
#endif
