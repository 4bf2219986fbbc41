/* decompose: compound ops -> primitives that lowering knows.
 * In: a functional graph.  Out: the same values from simpler ops.  What lowering, the library engines or the
 * dispatcher
 * do better whole is left alone: a row here means that taking the op apart lets it fuse.
 * Results keep dtype, sizes and strides.  16-bit floats are computed in f32 by the kernels that fusion makes,
 * as in eager's own kernels; where a rule would round between its steps it says so and converts. */
#include "ir/infer/graph_at.h"
#include "middle/decompose_priv.h"
#include <string.h>

const MgArg *mg_dec_arg(const MgRewrite *rw, const char *name) {
  static const MgArg none = {.tag = MA_none};
  const MgArg *a = mg_node_arg(&rw->n, name);
  return a ? a : &none;
}

ValRef mg_dec_val(const MgRewrite *rw, const char *name) {
  const MgArg *a = mg_node_arg(&rw->n, name);
  return a && a->tag == MA_val ? a->u.val : 0;
}

MgRc mg_dec_give(MgRewrite *rw, int i, ValRef v) {
  MgGraph *g = rw->g;
  if (!v || g->c->rc) return g->c->rc ? g->c->rc : MG_NOMEM; /* a step before failed */
  const MgVal *want = mg_val(g, rw->n.out[i]);
  if (mg_val(g, v)->dtype != want->dtype)
    v = mg_dec(rw, TOP__to_copy, mg_arg_val(v), mg_arg_code(MA_dtype, want->dtype));
  if (!v) return g->c->rc;
  MgVal *got = mg_val(g, v);
  want = mg_val(g, rw->n.out[i]);
  if (memcmp(got->stride, want->stride, want->ndim * sizeof *want->stride)) {
    v = mg_dec(rw, TOP_clone, mg_arg_val(v));
    if (!v) return g->c->rc;
    memcpy(mg_val(g, v)->stride, want->stride, want->ndim * sizeof *want->stride);
  }
  return mg_graph_replace(rw, rw->n.out[i], v);
}

static const MgDecRow *const dec_tables[] = {mg_dec_foreach, mg_dec_dense, mg_dec_random};

/* The rule for an op; NULL if it has none. */
static MgDecRule dec_rule(const MgOp *op) {
  for (size_t t = 0; t < sizeof dec_tables / sizeof *dec_tables; t++)
    for (const MgDecRow *r = dec_tables[t]; r->code; r++)
      if (r->code == op->code) return r->rule;
  return NULL;
}

static MgRc dec_node(MgRewrite *rw, void *arg) {
  MgGraph *g = rw->g;
  const MgOp **applied = arg;
  uint32_t first = g->nnode;
  MgDecRule rule = dec_rule(rw->n.op);
  MgRc rc = rule ? rule(rw) : MG_UNSUP;
  if (rc == MG_OK && applied && !*applied) *applied = rw->n.op;
  if (rc != MG_UNSUP) return rc;
  if (!rule) return mg_graph_keep(rw);
  g->c->rc = MG_OK; /* this form of it stays whole: undo what the rule began */
  g->nnode = first;
  for (int i = 0; i < rw->n.nout; i++)
    if (rw->n.out[i] && rw->n.out[i] < rw->cap) rw->map[rw->n.out[i]] = 0;
  return mg_graph_keep(rw);
}

/* Applies the rules to every node.  *applied, if it is NULL before: the first op that a rule
 * took apart.  applied or NULL. */
static MgRc dec_all(MgGraph *g, const MgOp **applied) { return mg_graph_rewrite(g, dec_node, applied); }

MgRc mg_decompose(MgGraph *g) {
  TRY(dec_all(g, NULL));
  return mg_dec_join_draws(g);
}

/* ---- what it promises ---- */

/* Decomposes a copy of the graph once more.  *applied: the first op whose rule
 * applies; NULL if there is none. */
static MgRc dec_again(MgGraph *g, MgCtx *c, const MgOp **applied) {
  MgExprs x;
  MgGraph copy;
  TRY(mg_exprs_init(&x, c));
  TRY(mg_graph_init(&copy, c, &x));
  TRY(mg_graph_clone(&copy, g));
  return dec_all(&copy, applied);
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
