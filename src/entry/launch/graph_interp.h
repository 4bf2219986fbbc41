/* The graph node by node through ATen, under autograd when it is on. */
#ifndef MG_GRAPH_INTERP_H
#define MG_GRAPH_INTERP_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "ir/graph/graph.h"

typedef struct MgNodeCall MgNodeCall;

typedef struct MgCallSizes MgCallSizes;
typedef struct MgNodeRun MgNodeRun;
typedef struct MgTrace MgTrace;

typedef struct NodeStep {
  MgNodeCall *call; /* owned; NULL: a call of the user's autograd.Function */
  PyObject *apply,
      **obj; /* that function, strong; its arguments that are no tensors (nin entries, strong or NULL) */
  uint32_t *in, *out; /* slots of the environment, in the call's order; 0: undefined or not used */
  PyObject **hook;    /* functions that are registered on results (strong); slots of those in `hooked` */
  uint32_t *hooked, nhook;
  uint32_t *drop; /* slots that die after this node */
  uint32_t nin, nout, ndrop;
  bool grad;        /* autograd was on when it was recorded */
  bool leaf;        /* its result requires grad from here on */
  bool counts;      /* its result has a version counter of its own */
  const char *file; /* of the program, where the call is: lives for ever; NULL: unknown */
  uint32_t line;
} NodeStep;

struct MgNodeRun {
  NodeStep *node;
  uint32_t nnode, nslot;   /* slots of the environment; slot 0 stays empty */
  uint32_t *input, ninput; /* slot of each input */
  uint32_t *output, noutput;
};

/* Reads the graph (outputs set), changes nothing.  NULL with an exception. */
MgNodeRun *mg_noderun_build(const MgTrace *t);
/* The same for some of its nodes: those with keep[n], between the given values; same[v] names the value to
 * take for v.  With keep, sizes may be expressions, which mg_noderun_run_at is told about. */
MgNodeRun *mg_noderun_build_part(const MgTrace *t, const bool *keep, const ValRef *same, const ValRef *in,
                                 uint32_t nin, const ValRef *out, uint32_t nout);

typedef struct MgNodeCut { /* outputs that later nodes take from outside, each made by a node */
  const bool *at;          /* by output of the program */
  PyObject *(*stand)(void *arg, uint32_t output,
                     PyObject *made); /* what later nodes take; new, NULL with an exception */
  void *arg;
} MgNodeCut;
void mg_noderun_free(MgNodeRun *p);
/* inputs: borrowed real tensors in graph input order; outs: new references in graph output order. */
int mg_noderun_run(const MgNodeRun *p, PyObject *const *inputs, PyObject **outs);
/* The same with cuts; outs has what the nodes made. */
int mg_noderun_run_cut(const MgNodeRun *p, PyObject *const *inputs, PyObject **outs, const MgNodeCut *cut);
int mg_noderun_run_at(const MgNodeRun *p, PyObject *const *inputs, PyObject **outs,
                      const struct MgCallSizes *at);
/* (inputs, outputs, [(OpOverload, args, kwargs, outs, grad, file, line)]) as data, new: values are numbers,
 * and value(number) where they are arguments; the first noutput outputs.  A call of the user's
 * autograd.Function has None for the operator.  NULL with an exception. */
PyObject *mg_noderun_describe(const MgNodeRun *p, uint32_t noutput, PyObject *value);
#endif
