/* Shapes that depend on data: what rules and torch's meta kernels say of them. */
#ifndef MG_DATA_SHAPES_H
#define MG_DATA_SHAPES_H
#include "ir/graph/graph.h"

typedef struct MgFrontOp MgFrontOp;
typedef struct MgRec MgRec;

/* The results of node n when inference cannot tell them: 0, -1 with a break or exception. */
int mg_symdata_infer(MgRec *r, const MgFrontOp *fo, NodeRef n);
/* The same when its arguments' sizes come from inputs alone: torch's meta kernel, tried at two assignments,
 * says which sizes of the results follow theirs.  False: not all are found; the
 * results may have been changed. */
bool mg_symdata_twice(MgRec *r, const MgFrontOp *fo, NodeRef n);
/* The results of node n have sizes, which are not negative. */
void mg_symdata_sizes(MgRec *r, NodeRef n);
#endif
