/* Sizes in a part of a graph (subgraph.h): the ops of the part take numbers that are computed from
 * sizes of what it is given. */
#ifndef MG_SUBGRAPH_SIZES_H
#define MG_SUBGRAPH_SIZES_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "ir/graph/graph.h"

typedef struct MgNodeRun MgNodeRun;
typedef struct MgRec MgRec;

typedef struct MgPartSizes MgPartSizes;

/* The symbols that the nodes from `first` on take, each found as a size of one of the part's inputs; an input
 * of the recording is added to these for one that none of them has.  New; NULL without an exception: there
 * are none; with one: a break. */
MgPartSizes *mg_partsize_new(MgRec *r, NodeRef first, ValRef *in, uint32_t *nin);
void mg_partsize_free(MgPartSizes *s);
/* Runs the nodes on these tensors, which may be stand-ins. */
int mg_partsize_run(const MgPartSizes *s, const MgNodeRun *run, PyObject *const *in, PyObject **out);
#endif
