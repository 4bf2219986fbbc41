/* Graph-to-graph passes, in the order driver/compile runs them. */
#ifndef MG_MIDDLE_H
#define MG_MIDDLE_H
#include "ir/graph/graph.h"

/* Removes mutation and aliasing: in-place ops become their functional twins, writes through views reach the
 * base, graph inputs that were written are listed in g->wb_*, aliasing outputs in g->out_alias. */
MgRc mg_functionalize(MgGraph *g);

/* Two views of root's memory (or root itself): false when no element is in both. */
bool mg_may_overlap(const MgGraph *g, ValRef root, ValRef a, ValRef b);

typedef struct MgSimplifyOpts {
  bool onednn;    /* oneDNN is there: convolutions become mg:: ops, in layouts of its choice */
  bool products;  /* so do matrix products; an engine of ours may be there without oneDNN */
  bool bf16;      /* they are fast for bfloat16 on this CPU */
  bool widen_f16, /* products of that dtype become mg:: ops, too, which our tiles compute in float32 */
      widen_bf16;
  bool keep_layout; /* do not choose channels_last inside the graph */
  bool (*lowers)(const MgGraph *g,
                 NodeRef n); /* does the back end turn this node into loops?  NULL: unknown */
} MgSimplifyOpts;
/* Library calls: convolutions, matrix products and attention become mg:: ops, which take what surrounds them
 * (bias, batch norm, residual, activation) along.  Runs before decompose, on ATen's own ops. */
MgRc mg_patterns(MgGraph *g, const MgSimplifyOpts *o);
/* Rewrites compound ops into primitives that lowering knows. */
MgRc mg_decompose(MgGraph *g);
/* Checks what it promises: no rule applies any more.  And what functionalize promised. */
MgRc mg_decompose_verify(MgGraph *g, const char *after);
/* Identities, common subexpressions, dead code. */
MgRc mg_simplify(MgGraph *g, const MgSimplifyOpts *o);
/* Products of one operand of a GPU with several weights become one with joined weights, where that is faster.
 */
MgRc mg_join_products(MgGraph *g, const MgSimplifyOpts *o);
/* Chooses channels-last strides for values between convolutions; values that the user sees keep theirs. */
MgRc mg_layout(MgGraph *g, const MgSimplifyOpts *o);
MgRc mg_dce(MgGraph *g);
/* For a backward graph whose inputs from `first` on are tangents, defined where the set `given` (base/bits.h)
 * has them: zeros in place of what undefined ones alone decide.  *cut: that makes a difference; else
 * the graph is left as it is. */
MgRc mg_undefined_tangents(MgGraph *g, uint32_t first, const uint64_t *given, bool *cut);

typedef struct MgFoldOps { /* how constants are computed while compiling; tensors are the caller's handles */
  void *self;
  /* Runs node n on the tensors of mg_node_each_tensor's order (NULL: absent); new tensors, one per result,
   * exactly of the metadata in the graph.  False: not possible. */
  bool (*eval)(void *self, MgGraph *g, NodeRef n, void *const *in, int nin, void **out);
  void (*drop)(void *tensor);
} MgFoldOps;
/* Values that only constants and sizes decide become inputs; *constant: their tensors (new; the array is in
 * the graph's arena), the last *n inputs of the graph. */
MgRc mg_fold(MgGraph *g, const MgFoldOps *o, void ***constant, uint32_t *n);
#endif
