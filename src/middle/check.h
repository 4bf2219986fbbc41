/* What is left of a call whose results nobody reads, but whose kernel may raise because of values. */
#ifndef MG_CHECK_H
#define MG_CHECK_H
#include "ir/graph/graph.h"

/* Do loops over few of the node's arguments tell whether its kernel would raise? */
bool mg_check_is(const MgGraph *g, const MgNode *n);
/* Calls fn for these arguments, of such a node. */
void mg_check_each_val(MgGraph *g, MgNode *n, void (*fn)(ValRef *v, void *arg), void *arg);
/* Appends the checks in place of such a node. */
MgRc mg_check_emit(MgRewrite *rw);
#endif
