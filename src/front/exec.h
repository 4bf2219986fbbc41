/* What the files of the executor share (exec.c: building and running, execsizes.c: graphs with symbolic sizes). */
#ifndef MG_FRONT_EXEC_H
#define MG_FRONT_EXEC_H
#include "front/autograd.h"
#include "front/cache.h"
#include "front/stages.h"
#include "front/viewstate.h"

typedef struct MgExecSizes MgExecSizes;

/* Claims that are looked at in the middle of a run, before it writes to its inputs: only plans can do that. */
typedef struct MgClaims {
  const MgSnapshot *snap;
  PyObject **vals;  /* of the sources */
} MgClaims;

typedef struct MgExecInput {
  SrcRef src;          /* whose value it is, when pinned is NULL */
  PyObject *pinned;    /* a constant tensor, strong */
  bool number;         /* the value is an int, and so is what the graph gets */
  bool scalar;         /* the value is a float: the graph gets a tensor of it */
  bool array;          /* the value is a NumPy array: the graph gets a tensor over its memory */
} MgExecInput;

struct MgExec {
  MgExecSizes *sizes;  /* NULL: all sizes are constants */
  MgStages *stages;    /* sizes depend on data; NULL otherwise */
  MgExecInput *input;    /* in graph input order (for a backend: in placeholder order) */
  uint32_t ninput, noutput;
  MgNodeRun *nodes;    /* node by node; NULL when never needed */
  MgPlan *plan;        /* compiled; NULL otherwise */
  MgAutograd *grad;    /* compiled with backward, strong; owns its own nodes; NULL otherwise */
  const MgSnapshot *claims; /* of the same entry, borrowed: looked at before anything is written; NULL: there are none, or nothing is written */
  const MgGuards *guards; /* of the same entry, borrowed: sources of numbers */
  PyObject *callable;  /* what a custom backend returned, strong; NULL otherwise */
  bool callable_grad;  /* autograd's mode in which it is called */
  PyObject *compiled;  /* the same with the graph that it was made of, for entries of other module instances (magneto.sharing), strong; or NULL */
  uint32_t *overlap;   /* plans that write inputs: per input, the first input over the same memory; else NULL */
  bool *spent;         /* by output: requires grad, but its gradient graph was freed while recording; NULL: none */
  uint8_t *bits;       /* by output: bits of a lazily conjugated or negated result (MgVal); NULL: no output has any */
  MgViewState *views;  /* NULL: nothing to do after a run */
  uint8_t *inference;  /* by output: see mg_inference_mode_outputs */
  bool plan_failed;    /* a run of the plan ended in an error of ours: nodes run instead from then on */
  bool no_modes;       /* torch_function modes or subclasses were seen: what they do is part of the graph */
  bool no_autocast;    /* autocast was on at the start: its casts are nodes, so runs have it off */
};

/* ---- exec.c ---- */
void mg_exec_log_graph(const MgGraph *g);
/* Compiles a graph into e->plan (and e->overlap), for inputs that overlap as the examples do.  1: done; 0: the graph stays with
 * the node run, *rc says why when compiling failed; -1 with an exception. */
int mg_exec_compile(MgExec *e, MgRec *r, const MgOptions *opt, PyObject *const *example, MgRc *rc);
/* The same, with a warning (an error in tests) when compiling failed. */
int mg_exec_build_plan(MgExec *e, MgRec *r, const MgOptions *opt, PyObject *const *example);
/* The same for a graph with backward, into e->grad.  plans: made already, for these sizes too (mg_autograd_build_at). */
int mg_exec_build_grad(MgExec *e, MgRec *r, PyObject *const *example, MgAutograd *plans, const int64_t *sizes, uint32_t n);
/* Have nodes that run one by one the gradients that the program's autograd.Functions define?  0, or -1 with an exception. */
int mg_exec_nodes_differentiate(const MgRec *r);
/* Do the inputs overlap as `pattern` says?  NULL: they may as they like. */
bool mg_exec_same_overlap(const uint32_t *pattern, uint32_t n, PyObject *const *in);
/* An error of ours in a plan: the exception becomes a warning, and the nodes run from now on.  -1: the warning is an error. */
int mg_exec_give_up_plan(MgExec *e);
/* claims: what a run has to find before it writes; NULL: nothing. */
int mg_exec_dispatch(MgExec *e, PyObject *const *in, MgExecAt *at, MgClaims *claims, PyObject **outs);
int mg_exec_plan(MgPlan *p, PyObject *const *in, const int64_t *sizes, MgClaims *claims, PyObject **outs); /* as mg_planrun */

/* ---- execsizes.c ---- */
/* Takes over what the recording knows of symbols, with its graph when there is something to run.  plans: compile it.  -1 with an
 * exception. */
int mg_execsizes_take(MgExec *e, MgRec *r, const MgConfig *cfg, bool graph, bool plans);
bool mg_execsizes_has_graph(const MgExecSizes *s);
bool mg_execsizes_has_plans(const MgExecSizes *s); /* it is compiled with symbols, or for each assignment */
int mg_execsizes_run(MgExec *e, PyObject *const *in, MgExecAt *at, MgClaims *claims, PyObject **outs);
void mg_execsizes_free(MgExecSizes *s);
/* Records the segment again with constants: an exception is set. */
void mg_execsizes_refuse(MgRec *r, const char *why);
#endif
