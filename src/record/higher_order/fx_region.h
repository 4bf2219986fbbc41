/* Regions of an FX graph: the body of a higher-order operator (wrap, a checkpointed block,
 * nested_compile_region ...) is a GraphModule of its own, called by one node.  The ops themselves are
 * recorded like all others: whoever wants no FX graph, or the one of ATen nodes,
 * finds them in their places. */
#ifndef MG_FX_REGION_H
#define MG_FX_REGION_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "ir/graph/graph.h"

typedef struct MgCapture MgCapture;
typedef struct MgRec MgRec;
typedef struct MgSnapshot MgSnapshot;

typedef enum MgFxShape {                /* what the node is given */
                         FXSHAPE_flat,  /* (body, *tensors, **kwargs) */
                         FXSHAPE_named, /* (body, "subgraph_0", *tensors) */
                         FXSHAPE_tuple, /* (body, (*tensors,), {}, **kwargs) */
                         FXSHAPE_list   /* (body, [*tensors]) */
} MgFxShape;

typedef struct MgFxHop { /* how the node calls the body */
  PyObject *target;      /* the operator, borrowed like the others */
  MgFxShape shape;
  PyObject *kwargs; /* dict or NULL */
  PyObject *meta;   /* dict that the body's meta gets, or NULL */
  bool again;       /* the operator may run the body twice: it must not draw random numbers */
  bool apart;       /* results must not share memory with what the body reads, which it must not change */
  bool untracked;   /* the operator has no gradients outside of torch's own compiler */
} MgFxHop;

typedef struct MgFxRegion {
  bool open;          /* calls of torch go into the region's graph */
  MgSnapshot *before; /* of the recording, to see side effects */
  NodeRef first;
} MgFxRegion;

/* Begins a region without a look at side effects, if an FX graph of torch-level calls is being
 * written.  -1 with an exception. */
int mg_fx_region_open(MgRec *r, MgFxRegion *g);
/* The region as a GraphModule that returns the tensors of a list; NULL with an exception, or without
 * one when some has no node. */
PyObject *mg_fx_region_module(MgRec *r, PyObject *leaves);
/* Begins a region, if an FX graph of torch-level calls is being written; does nothing
 * otherwise.  -1 with an exception. */
int mg_fx_region_begin(MgRec *r, MgFxRegion *g);
/* Ends it.  res: what the body gave, NULL after an exception, which stays set.  A body with side effects, or
 * one that the operator cannot run, becomes part of the graph around it instead.  -1 with an exception. */
int mg_fx_region_end(MgRec *r, MgFxRegion *g, PyObject *res, const MgFxHop *hop);
/* Records a call of fn as a region.  New; NULL with an exception. */
PyObject *mg_fx_region_call(MgRec *r, const MgFxHop *hop, PyObject *fn, PyObject *const *arg, size_t n,
                            PyObject *kwnames);
#endif
