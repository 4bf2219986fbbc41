/* The gradient graph of a recording: PyTorch's own engine runs backward on the stand-ins, and its ops go on in the same
 * graph.  In: a recording whose snapshot is built and whose stand-ins still live.  Out: r->joint, or NULL when the graph has
 * to run op by op under autograd (reason in the log).
 * How a result of the segment is made from there on: */
#ifndef MG_FRONT_JOINT_H
#define MG_FRONT_JOINT_H
#include "front/standin.h"

typedef enum MgResultHow {
  RES_through, /* a result of the compiled forward that gets a grad_fn of ours */
  RES_aside,   /* a result of the compiled forward without gradients */
  RES_input,   /* an input itself */
  RES_view     /* a view of one of these: its view ops run again, so that autograd sees the alias */
} MgResultHow;

typedef struct MgResult {
  uint8_t how;          /* MgResultHow */
  uint32_t index;       /* into `through`, `aside`, or the capture's inputs */
} MgResult;

typedef struct MgJointRec { /* all in the recording's arena */
  uint32_t nnode, nval, ninput; /* sizes of the graph with backward; the graph itself is left at those of forward */
  NodeRef backward;     /* first node of backward */
  ValRef *through;      /* values that get a grad_fn, each in memory of its own */
  ValRef *tangent;      /* per entry of through: the graph value of its gradient, an input */
  uint32_t nthrough;
  ValRef *aside;        /* other fresh results */
  uint32_t naside;
  MgResult *res;        /* per output of the snapshot */
  uint32_t nres;
  bool *replay;         /* by node: view ops to run again; nreplay of them */
  uint32_t nreplay;
  ValRef *same;         /* by value: results of in-place ops on the way of a replay: the value they were written to */
  uint32_t *diff;       /* inputs that require grad, as eager has their gradients: index into the capture's inputs */
  ValRef *grad;         /* their gradients; 0: backward does not reach the input */
  uint64_t *reach;      /* a set (base/bits.h) for each: the tangents that the gradient needs */
  uint32_t ndiff;
  uint64_t *mate;       /* a set per entry of through: those that a backward pass from it frees something of, in eager; NULL: all of them */
  bool frees;           /* a second backward pass is an error in eager: something was saved */
} MgJointRec;

/* Called between mg_snapshot_build and mg_standin_end.  -1 with an exception only when memory ran out. */
int mg_joint_record(MgRec *r, const MgSnapshot *snap);
/* A new value for the gradient of another one; 0: out of memory. */
ValRef mg_joint_gradient_val(MgGraph *g, ValRef like);
/* After a run of the engine that failed: drops the work that is left in its queue, and with it what it holds. */
void mg_joint_drain(void);
/* Records one pass from roots to leaves (tuples, tangents for the roots) and forgets its ops: NULL, and an exception or a break, where
 * it cannot be recorded or changes something older than itself; None: it raises; else the gradients (new). */
PyObject *mg_joint_rehearse(MgRec *r, PyObject *roots, PyObject *tangents, PyObject *leaves);
/* Puts the backward part back behind the forward part of r->g, outputs and inputs left alone. */
void mg_joint_extend(MgRec *r);
/* Do leaves take part in gradient graphs for a part of the segment only?  Its results are not tracked then. */
bool mg_joint_switched(const MgRec *r);
#endif
