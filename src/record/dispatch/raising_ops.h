/* Operators whose kernels raise for some values, where the program would see it: inside of its own try and
 * with blocks.  A run that raises is given up, and the frame runs as it would have without a compiler
 * (speculation.h).  Where that cannot be, such an operator breaks the graph, so that it runs in its block.
 * Handlers that only raise again are no reason for a break: the kernel's own exception leaves. */
#ifndef MG_RAISING_OPS_H
#define MG_RAISING_OPS_H
#include <stdbool.h>

typedef struct MgArg MgArg;
typedef struct MgOp MgOp;
typedef struct MgRec MgRec;

/* Would a frame of the recording catch what is raised here? */
bool mg_raises_caught(const MgRec *r);
/* What becomes of an exception of values that is raised here, by the handlers of the recorded frames: none
 * takes it; some take it, which only raise again; one goes on after it. */
enum { MG_RAISES_leaves, MG_RAISES_again, MG_RAISES_caught };
int mg_raises_fate(const MgRec *r); /* -1 with an exception, or a break */
/* May a kernel of this op, called with these arguments, raise because of values? */
bool mg_raises_by_values(const MgRec *r, const MgOp *op, const MgArg *arg);
/* Would such an exception be missed, because no run can be given up?  Then the segment is recorded again, and
 * they break the graph. */
bool mg_raises_missed(MgRec *r);
#endif
