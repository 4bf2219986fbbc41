/* Names of steps and plans for profilers. */
#ifndef MG_LABEL_H
#define MG_LABEL_H
#include "ir/graph/graph.h"

typedef struct MgKernel MgKernel;

enum { MG_LABEL_NODES = 12 }; /* of a kernel, at most */

/* The nodes that a kernel computes, in order, each once: the first `most` of them; how many. */
uint32_t mg_label_nodes(const MgKernel *k, NodeRef *out, uint32_t most);
enum { MG_LABEL_IDENTIFIER = 48 };
/* "add_relu_sum": the kernel's first ops, as part of a name of code. */
void mg_label_identifier(const MgGraph *g, const MgKernel *k, char out[MG_LABEL_IDENTIFIER]);
/* "magneto::add+relu+sum (model.py:12-14)" of these nodes; in g's memory; NULL: out of memory. */
const char *mg_label_text(const MgGraph *g, const NodeRef *node, uint32_t n);
#endif
