/* What decompose promises: no rule applies any more.
 * In: a graph.  Out: MG_OK, or MG_BUG with an op that is no primitive.  The graph stays as it
 * is: a copy is decomposed. */
#include "ir/infer/graph_at.h"
#include "middle/decompose_priv.h"

/* Decomposes a copy of the graph once more.  *applied: the first op whose rule
 * applies; NULL if there is none. */
static MgRc dec_again(MgGraph *g, MgCtx *c, const MgOp **applied) {
  MgExprs x;
  MgGraph copy;
  TRY(mg_exprs_init(&x, c));
  TRY(mg_graph_init(&copy, c, &x));
  TRY(mg_graph_clone(&copy, g));
  return mg_dec_all(&copy, applied);
}

MgRc mg_decompose_verify(MgGraph *g, const char *after) {
  MgCtx c;
  const MgOp *applied = NULL;
  TRY(mg_graph_verify_functional(g, after));
  mg_ctx_init(&c);
  MgRc rc = dec_again(g, &c, &applied);
  if (rc != MG_OK) mg_fail(g->c, rc, "after %s: decomposing once more: %s", after, c.msg);
  mg_ctx_free(&c);
  TRY(rc);
  return applied ? mg_fail(g->c, MG_BUG, "after %s: %s is no primitive", after, applied->full) : MG_OK;
}
