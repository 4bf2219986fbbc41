/* What the files of the executor share (exec_run.c: building and running, exec_sizes.c:
 * graphs with symbolic sizes). */
#ifndef MG_EXEC_H
#define MG_EXEC_H
#include "entry/grad/grad_weigh.h"
#include "entry/guard/source_kinds.h"

typedef struct MgAutograd MgAutograd;
typedef struct MgConfig MgConfig;
typedef struct MgExec MgExec;
typedef struct MgExecAt MgExecAt;
typedef struct MgGraph MgGraph;
typedef struct MgGuards MgGuards;
typedef struct MgNodeRun MgNodeRun;
typedef struct MgOptions MgOptions;
typedef struct MgPlan MgPlan;
typedef struct MgTrace MgTrace;
typedef struct MgSnapshot MgSnapshot;
typedef struct MgStages MgStages;
typedef struct MgVerify MgVerify;
typedef struct MgViewState MgViewState;

typedef struct MgExecSizes MgExecSizes;

/* Claims that are looked at in the middle of a run, before it writes to its
 * inputs: only plans can do that. */
typedef struct MgClaims {
  const MgSnapshot *snap;
  PyObject **vals; /* of the sources */
} MgClaims;

typedef struct MgExecInput {
  SrcRef src;       /* whose value it is, when pinned is NULL */
  PyObject *pinned; /* a constant tensor, strong */
  bool number;      /* the value is an int, and so is what the graph gets */
  bool scalar;      /* the value is a float: the graph gets a tensor of it */
  bool array;       /* the value is a NumPy array: the graph gets a tensor over its memory */
} MgExecInput;

struct MgExec {
  MgExecSizes *sizes; /* NULL: all sizes are constants */
  MgStages *stages;   /* sizes depend on data; NULL otherwise */
  MgExecInput *input; /* in graph input order (for a backend: in placeholder order) */
  uint32_t ninput, noutput;
  MgNodeRun *nodes;         /* node by node; NULL when never needed */
  MgPlan *plan;             /* compiled; NULL otherwise */
  MgAutograd *grad;         /* compiled with backward, strong; owns its own nodes; NULL otherwise */
  MgVerify *verify;         /* which runs are compared with eager; NULL: none */
  const MgSnapshot *claims; /* of the same entry, borrowed: looked at before anything is written; NULL: there
                               are none, or nothing is written */
  const MgGuards *guards;   /* of the same entry, borrowed: sources of numbers */
  PyObject *callable;       /* what a custom backend returned, strong; NULL otherwise */
  bool callable_grad;       /* autograd's mode in which it is called */
  PyObject *compiled; /* the same with the graph that it was made of, for entries of other module instances
                         (magneto._backends.shared_graphs), strong; or NULL */
  bool *written;      /* plans that write inputs: which; NULL: none */
  bool *spent; /* by output: requires grad, but its gradient graph was freed while recording; NULL: none */
  uint8_t
      *bits; /* by output: bits of a lazily conjugated or negated result (MgVal); NULL: no output has any */
  MgViewState *views; /* NULL: nothing to do after a run */
  uint8_t *inference; /* by output: see mg_inference_mode_outputs */
  bool plan_failed;   /* a run of the plan ended in an error of ours: nodes run instead from then on */
  bool weigh;         /* the next run of a graph with backward compares both ways (grad_weigh.h) */
  MgWeighed weighed;  /* what that found */
  bool no_modes;      /* torch_function modes or subclasses were seen: what they do is part of the graph */
  bool no_autocast;   /* autocast was on at the start: its casts are nodes, so runs have it off */
};

#endif
