/* Masks that are known whatever the inputs are: arange(n) >= 0, ones, arange(n)[:, None] >= arange(n), and
 * what is made of them. */
#ifndef MG_CONSTANT_TRUTH_H
#define MG_CONSTANT_TRUTH_H
#include <stdbool.h>
#include "ir/graph/graph.h"

/* Is every element of v, a value of the graph being recorded, known to be true?  False: not known. */
bool mg_constant_true(const MgGraph *g, ValRef v);
/* Is element [..., q, k] of v known to be k <= q?  False: not known. */
bool mg_constant_causal(const MgGraph *g, ValRef v);
#endif
