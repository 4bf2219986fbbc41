/* A branch or a loop's body while it is recorded. */
#ifndef MG_SUBGRAPH_STATE_H
#define MG_SUBGRAPH_STATE_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "ir/graph/graph.h"

typedef struct MgNodeRun MgNodeRun;
typedef struct MgPartSizes MgPartSizes;

typedef struct MgPartRun { /* a Python object: what runs the nodes of a part, on its own so that nothing
                              refers to itself */
  PyObject_HEAD struct MgNodeRun *run;
  struct MgPartSizes *sizes; /* owned; NULL: all are constants */
  uint32_t nin, nout;
  uint32_t *pick; /* which of the tensors that it is called with are its inputs, in order; malloc'ed, by
                     mg_part_bind */
} MgPartRun;
typedef struct MgPart {         /* a Python object */
  PyObject_HEAD MgPartRun *run; /* strong */
  PyObject *fast;               /* strong: the same compiled (magneto/_glue/control_flow.py); NULL at first */
  uint32_t nin, nout;
  PyObject *graph;  /* the same as a torch.fx.GraphModule of its inputs when one is wanted, or NULL: it has no
                       symbols for sizes */
  PyObject *shown;  /* what torch-level graphs show as its body: a GraphModule, or NULL (fx_subgraph.c); */
  PyObject *reads;  /* and the nodes around it that it reads, a list; both until the call is shown */
  PyObject *ints;   /* a list as long as the leaves of the result: an int, or None for a tensor; NULL: all are
                       tensors */
  PyObject *spec;   /* how the tensors of the result are nested: a pytree's TreeSpec */
  bool grad;        /* autograd tracks some result */
  bool plain;       /* no node of it is a branch or a loop */
  uint32_t nnode;   /* nodes that it runs */
  ValRef *in, *out; /* in the recording's arena, valid as long as that, like res */
  ValRef *res;      /* what the node gives that runs the part, nres values */
  uint32_t nres;
} MgPart;
#endif
