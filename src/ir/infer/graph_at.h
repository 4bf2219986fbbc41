/* Graphs at given sizes, copies of graphs, and whether inference agrees with what a graph says. */
#ifndef MG_GRAPH_AT_H
#define MG_GRAPH_AT_H
#include "ir/graph/graph.h"
/* The graph with env[k] for symbol k, in `to`, which is initialised and empty; numbers
 * of values and nodes stay. */
MgRc mg_graph_at(MgGraph *to, const MgGraph *from, const int64_t *env);
/* The same with symbols, whose hints are env, in expressions of its own (empty before); symbol[k] stands for
 * symbol k, see mg_symbols_known. */
MgRc mg_graph_copy(MgGraph *to, const MgGraph *from, const SymRef *symbol, const int64_t *env);
/* The same graph, symbols and all, to be kept: nothing of `from` is referred to. */
MgRc mg_graph_clone(MgGraph *to, const MgGraph *from);
/* A size of other expressions in these.  copied: by expression of `from`, its copy or 0; has
 * those of the symbols in it. */
SymRef mg_sym_copy(MgExprs *to, const MgExprs *from, SymRef e, SymRef *copied);
MgRc mg_symbols_known(MgExprs *x, const MgSymEqual *equal, uint32_t n, SymRef *symbol);
/* Which symbols do sizes and arguments mention, of the first nnode nodes and nval values?  symbol: as for
 * mg_graph_copy, counts those of what stands for a mentioned one too; NULL: there is no
 * such thing.  Sets used[k]. */
MgRc mg_graph_symbols(const MgGraph *g, NodeRef nnode, ValRef nval, const SymRef *symbol, bool *used);
/* Are these alike: dtype, sizes, strides, offset? */
bool mg_graph_same(const MgGraph *g, ValRef a, ValRef b);
/* Does inference give node n the results that it has?  What cannot be proven of sizes is asked. */
bool mg_graph_agrees(MgGraph *g, NodeRef n);
#endif
