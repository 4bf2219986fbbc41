/* Results of ops that ir/infer has no rule for, where sizes of their arguments are symbols of inputs. */
#ifndef MG_FRONT_SYMFOLLOW_H
#define MG_FRONT_SYMFOLLOW_H
#include "front/standin.h"

/* Does the node read sizes that are no constants? */
bool mg_symfollow_reads(const MgGraph *g, NodeRef n);
/* Fills in the results of node n with what follows from such sizes.  False: it cannot, and nothing has changed (r->abort: torch's error). */
bool mg_symfollow(MgRec *r, const struct MgFrontOp *fo, NodeRef n, PyObject **pyret);
#endif
