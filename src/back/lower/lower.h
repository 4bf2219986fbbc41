/* Lowering: a functional graph becomes loop nests. */
#ifndef MG_LOWER_H
#define MG_LOWER_H
#include "back/kernel/back.h"

/* Functional graph -> loop nests and extern items.  Every value an extern call or an output needs is realised
 * in a buffer; ops without a lowering become extern items.  mg_lower never fails for lack of a lowering. */
MgRc mg_lower(MgSched *s);
/* Does this node become loops (true) or an extern call?  Used by simplify to choose decompositions. */
bool mg_lower_knows(const MgGraph *g, NodeRef n);
#endif
