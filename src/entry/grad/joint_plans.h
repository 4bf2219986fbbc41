/* A compiled segment whose results need gradients: the compiled forward, and a node in PyTorch's gradient
 * graph whose backward is the compiled backward.
 * In: a recording with t->joint.  Out: an object that owns both plans; entries and nodes of gradient graphs
 * hold it, so it
 * lives as long as something may still run backward. */
#ifndef MG_JOINT_PLANS_H
#define MG_JOINT_PLANS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "entry/launch/trace.h"
#include "base/ctx.h"

typedef struct MgGradKept MgGradKept;
typedef struct MgNodeCut MgNodeCut;
typedef struct MgNodeRun MgNodeRun;
typedef struct MgPlan MgPlan;
typedef struct MgResult MgResult;
typedef struct MgSaved MgSaved;
typedef struct MgViewState MgViewState;

typedef struct MgTangent { /* what backward was compiled for */
  int32_t dtype, ndim, device, device_index;
  int64_t *dim; /* ndim sizes, then ndim strides */
} MgTangent;

typedef struct MgAutograd {
  PyObject_HEAD struct MgAutograd *plans; /* whose plans these are, strong; NULL: its own */
  int64_t *sizes;                         /* values of the symbols of the plans, or NULL */
  MgPlan *fwd, *bwd;
  MgNodeRun *nodes; /* forward op by op: results of the segment, then `through`; owned */
  uint32_t nprimal;
  uint32_t nthrough, naside, nintermediate; /* results of fwd, in this order */
  MgResult *res;                            /* how each result of the segment is made */
  uint32_t nres;
  MgNodeRun
      *replay; /* views: inputs, through, aside -> the RES_view results in order; NULL when there are none */
  MgSaved *saved; /* what backward takes from forward */
  uint32_t nsaved;
  bool *loose;        /* by primal: what is saved of it is not version-checked */
  uint32_t nloose;    /* of saved */
  MgTangent *tangent; /* nthrough */
  uint32_t *diff;     /* primals that require grad */
  int32_t *grad;      /* per diff: which result of bwd; -1: none */
  uint8_t *bits;      /* by result of bwd: it is lazily conjugated or negated (MgVal) */
  uint32_t words;     /* of a set of tangents (base/bits.h) */
  uint64_t *reach;    /* a set per diff: see MgJointRec */
  uint32_t ndiff, ngrad;
  uint64_t *mate;        /* sets, see MgJointRec; NULL: one pass frees all */
  uint64_t *link;        /* sets, see MgJointRec; NULL: no result is computed from another one */
  uint32_t *port, nport; /* see MgJointRec */
  bool asked;     /* a pass asked for gradients between results (result_links.h): forward runs op by op */
  uint32_t *keep; /* primals that only a second differentiation needs: not among saved */
  bool *copy; /* by primal: forward writes it and reads it too, so a second run needs a copy of what it was */
  bool *written; /* by primal: forward writes it */
  uint32_t nkeep;
  const struct MgViewState
      *views; /* of the entry that runs it, borrowed; NULL: version counters need no care */
  struct MgGradKept
      *kept; /* the backward graph, owned by whose plans these are; NULL: one result (undefined_tangents.h) */
  struct MgGradGiven *given; /* backward plans for some of the tangents, owned */
  uint32_t ngiven;
  PyObject *parts; /* how backward was cut last (bucketed_backward.h), or NULL */
  bool frees;      /* a second backward pass is an error although nothing is among saved */
  bool lost;   /* op by op it would not be itself: values inside of an autograd.Function are used outside */
  bool random; /* forward draws random numbers */
  bool extern_bwd; /* backward calls ATen, which must not apply autocast */
} MgAutograd;

/* Compiles the joint graph of t with symbolic sizes: only plans, for mg_autograd_build_at at numbers. */
MgRc mg_autograd_plans(const MgTrace *t, uint32_t nprimal, MgAutograd **out);
/* Compiles the joint graph of t, which is consumed.  It has the graph at `sizes` (n of them); plans: for
 * these and other sizes, or NULL.  nodes: taken over on MG_OK. */
MgRc mg_autograd_build_at(const MgTrace *t, MgNodeRun *nodes, uint32_t nprimal, MgAutograd *plans,
                          const int64_t *sizes, uint32_t n, MgAutograd **out);
/* What a run has to find before it writes to an input. */
typedef struct MgRunCheck {
  int (*check)(void *arg,
               PyObject **outs); /* outs: borrowed results of the segment, NULL where not asked for */
  void *arg;
} MgRunCheck;
/* Runs forward.  in: borrowed primals; check: may be NULL; outs: nres new references.  -1 with an exception;
 * MG_RUN_FAILED: the nodes may run instead; what the check returned if not 0. */
int mg_autograd_run(MgAutograd *a, PyObject *const *in, const MgRunCheck *check, PyObject **outs);
/* The same op by op through ATen. */
int mg_autograd_run_nodes(MgAutograd *a, PyObject *const *in, PyObject **outs);
/* The same, with the values that get a grad_fn behind the results.  cut: may be NULL. */
int mg_autograd_all(const MgAutograd *a, PyObject *const *in, PyObject **all, const MgNodeCut *cut);
int mg_autograd_init(void); /* -1 with an exception */

/* ---- grad_node.c ---- */
/* Before a forward run: what only a second differentiation needs of the time before.  *state:
 * new; NULL when it needs nothing.
 * -1 with an exception. */
int mg_gradnode_before(const MgAutograd *a, PyObject *const *in, PyObject **state);
/* After it: gives the first nthrough results a grad_fn, in place, and saves what
 * backward needs.  state: borrowed. */
int mg_gradnode_attach(MgAutograd *a, PyObject *const *in, PyObject **res, PyObject *state);
int mg_gradnode_init(void);
#endif
