/* Names of steps and plans for profilers. */
#ifndef MG_LABEL_H
#define MG_LABEL_H
#include "ir/graph/graph.h"
#include "runtime/plan/plan_scope.h"

typedef struct MgKernel MgKernel;

enum { MG_LABEL_NODES = 12 }; /* of a kernel, at most */

/* The nodes that a kernel computes, in order, each once: the first `most` of them; how many. */
uint32_t mg_label_nodes(const MgKernel *k, NodeRef *out, uint32_t most);
enum { MG_LABEL_IDENTIFIER = 48 };
/* "add_relu_sum": the kernel's first ops, as part of a name of code. */
void mg_label_identifier(const MgGraph *g, const MgKernel *k, char out[MG_LABEL_IDENTIFIER]);
/* Fills *out: -1 - the slot of a size that is no number; false: it has none. */
typedef bool (*MgLabelSlot)(void *arg, SymRef size, int64_t *out);
/* What profilers show of a step that computes these nodes: its name, and the shapes of what they read from
 * elsewhere.  slot NULL: all sizes are numbers.  In g's memory. */
MgRc mg_label_scope(const MgGraph *g, const NodeRef *node, uint32_t n, MgLabelSlot slot, void *arg,
                    MgPlanScope *out);
/* "magneto::add+relu+sum (model.py:12-14)" of these nodes; in g's memory; NULL: out of memory. */
const char *mg_label_text(const MgGraph *g, const NodeRef *node, uint32_t n);
#endif
