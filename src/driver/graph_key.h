/* What a graph is, as words to be hashed: equal for graphs that the back end makes the same plan of. */
#ifndef MG_GRAPH_KEY_H
#define MG_GRAPH_KEY_H
#include <stdbool.h>

typedef struct MgGraph MgGraph;
typedef struct MgStrbuf MgStrbuf;

/* Appends the words; false: sizes have symbols, or memory ran out.  Left out: source lines, and what is for
 * the middle's passes only. */
bool mg_graph_describe(const MgGraph *g, MgStrbuf *out);
#endif
