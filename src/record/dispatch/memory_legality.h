/* Which uses of memory end a segment: see memory_legality.c. */
#ifndef MG_MEMORY_LEGALITY_H
#define MG_MEMORY_LEGALITY_H
#include "ir/graph/graph.h"

/* as_strided names elements of the storage: ones that no tensor of the graph shows are known to the real
 * tensor only.  The scatters keep such elements beside their result. */
bool mg_memform_known(const MgGraph *g, const MgOp *op, const MgArg *arg);
/* Does what the op gives, or whether it is refused, depend on where in its storage
 * the first argument begins? */
bool mg_memform_counts(const MgOp *op, const MgArg *arg);
/* A batch norm that would update both running statistics in the same memory: ATen's second update reads the
 * first. */
bool mg_memform_statistics_meet(const MgGraph *g, NodeRef n);
/* Writes that ATen refuses, or does in an order of its own: into memory that overlaps itself or partly an
 * argument; random numbers into memory with gaps; both statistics of a batch norm. */
bool mg_memform_odd(const MgGraph *g, const MgOp *op, NodeRef n);
#endif
