/* Dead code: nodes whose results nothing reads are removed.
 * In: any graph.  Out: the same with unread nodes marked dead.  Kept whatever their uses: ops that write an argument,
 * ops that advance the random state (its order is visible), ops without results (checks, printing) and ops of other libraries. */
#include "middle/middle.h"

typedef struct Dce {
  bool *live;        /* per value */
} Dce;

static void dce_use(ValRef *v, void *arg) { ((Dce *)arg)->live[*v] = true; }

MgRc mg_dce(MgGraph *g) {
  Dce d = {mg_new(g->c, bool, g->nval + 1)};
  TRYP(d.live);
  for (uint32_t i = 0; i < g->noutput; i++) d.live[g->output[i]] = true;
  for (uint32_t i = 0; i < g->nwb; i++) d.live[g->wb_value[i]] = true;
  for (uint32_t k = g->nnode; k-- > 1;) { /* uses come after definitions */
    MgNode *n = mg_node(g, k);
    if (n->dead) continue;
    bool used = n->op->effect || !n->nout;
    for (int i = 0; i < n->nout; i++) used |= n->out[i] && d.live[n->out[i]];
    if (used) mg_node_each_val(n, dce_use, &d);
    else n->dead = true;
  }
  return MG_OK;
}
