/* Masks that are true everywhere, whatever the inputs are: arange(n) >= 0, ones, and what is made of them. */
#ifndef MG_CONSTANT_TRUTH_H
#define MG_CONSTANT_TRUTH_H
#include <stdbool.h>
#include "ir/graph/graph.h"

/* Is every element of v, a value of the graph being recorded, known to be true?  False: not known. */
bool mg_constant_true(const MgGraph *g, ValRef v);
#endif
