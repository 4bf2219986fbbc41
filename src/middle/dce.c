/* Dead code: nodes whose results nothing reads are removed.
 * In: any graph.  Out: the same with unread nodes marked dead.  Kept whatever their uses: ops that write an
 * argument,
 * ops that advance the random state (its order is visible), ops without results (checks, printing) and ops of
 * other libraries. An unread node whose kernel may raise because of values becomes the check that its kernel
 * makes (middle/check), or stays. */
#include "middle/check.h"

typedef struct Dce {
  bool *live;  /* per value */
  bool checks; /* an unread node is to become a check */
} Dce;

static void dce_use(ValRef *v, void *arg) { ((Dce *)arg)->live[*v] = true; }

/* Only nodes that may raise are there without being read. */
static bool dce_unread(const Dce *d, const MgNode *n) {
  bool used = mg_node_effect(n) || !n->nout;
  for (int i = 0; i < n->nout; i++) used |= n->out[i] && d->live[n->out[i]];
  return !used;
}

static MgRc dce_check(MgRewrite *rw, void *arg) {
  return dce_unread(arg, &rw->n) && mg_check_is(rw->g, &rw->n) ? mg_check_emit(rw) : mg_graph_keep(rw);
}

MgRc mg_dce(MgGraph *g) {
  Dce d = {mg_new(g->c, bool, g->nval + 1), false};
  TRYP(d.live);
  for (uint32_t i = 0; i < g->noutput; i++) d.live[g->output[i]] = true;
  for (uint32_t i = 0; i < g->nwb; i++) d.live[g->wb_value[i]] = true;
  for (uint32_t k = g->nnode; k-- > 1;) { /* uses come after definitions */
    MgNode *n = mg_node(g, k);
    if (n->dead) continue;
    bool unread = dce_unread(&d, n);
    if (unread && !mg_node_raises(g, n)) {
      n->dead = true;
    } else if (unread && mg_check_is(g, n)) {
      mg_check_each_val(g, n, dce_use, &d);
      d.checks = true;
    } else {
      mg_node_each_val(n, dce_use, &d);
    }
  }
  return d.checks ? mg_graph_rewrite(g, dce_check, &d) : MG_OK;
}
