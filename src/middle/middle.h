/* Graph-to-graph passes, in the order driver/compile runs them. */
#ifndef MG_MIDDLE_MIDDLE_H
#define MG_MIDDLE_MIDDLE_H
#include "ir/graph.h"

/* Removes mutation and aliasing: in-place ops become their functional twins, writes through views reach the base,
 * graph inputs that were written are listed in g->wb_*, aliasing outputs in g->out_alias. */
MgRc mg_functionalize(MgGraph *g);
/* Rewrites compound ops into primitives that lowering knows. */
MgRc mg_decompose(MgGraph *g);
/* Folds, CSE, dead code, patterns that libraries fuse (mg::linear, mg::conv, mg::sdpa ...), layouts. */
typedef struct MgSimplifyOpts {
  bool onednn;        /* the oneDNN engines are there: use mg:: extern ops */
  bool keep_layout;   /* do not choose channels_last inside the graph */
} MgSimplifyOpts;
MgRc mg_simplify(MgGraph *g, const MgSimplifyOpts *o);
MgRc mg_dce(MgGraph *g);
#endif
