/* Which forward values backward receives: a minimum cut.
 *
 * In: the joint graph with every value known to belong to forward or to backward only.  Out: Part.save.
 * The network has two vertices a forward value, in -> out, whose capacity is what saving
 * the value costs; out(argument)
 * -> in(result) is infinite; so is source -> in of what must not be computed again, and out -> sink of what
 * backward reads.  Every finite cut is a set of values from which backward can compute all it needs.  Among
 * equal cuts the one nearest to backward is taken: it computes least again.
 *
 * What a checkpointed block computes is computed again, whatever it costs, from what enters the block; what
 * leaves it is saved, or one block would be computed from the one before.
 * Costs are bytes: once for a value that forward puts into memory anyway, twice for one that it could keep in
 * registers, nothing for what the program keeps alive (primals and outputs).
 * Computed again are only cheap ops that the back end fuses into their readers: not what a library computes,
 * reductions, gathers, random numbers; nor a value that backward hands to a library (it would have to be put
 * into memory twice); nor one that forward still needs far below (the chain of all such sums would
 * be computed in one piece); nor elementary functions of a long row of them, where time goes into
 * computing and not into memory. */
#include "middle/mincut.h"
#include "middle/partition_priv.h"
#include <string.h>
#include "tuning.h"

typedef enum CutClass { CUT_never, CUT_cheap } CutClass;

static const uint8_t cut_class[TOP__COUNT] = {
#define TOP(code, ...) [TOP_##code] = CUT_cheap,
#include "ir/graph/ops_pointwise.def"
#include "ir/graph/ops_view.def"
#include "ir/graph/ops_create.def"
#undef TOP
};

typedef struct Cut {
  Part *p;
  MgCut f;
  bool *banned;     /* per value: must not be computed again */
  bool *stored;     /* per value: forward puts it into memory anyway */
  bool *relevant;   /* per value: backward may want it */
  uint32_t *inside; /* per value: the checkpointed block that computes it, when nothing outside of it does */
  uint32_t *level;  /* per value: most expensive ops on a path to it */
  uint32_t *before,
      *after;      /* per value: elementary functions on the longest path of cheap ops to it, from it */
  uint32_t *chain; /* per value: cheap ops since the last expensive one, on the longest path */
  NodeRef node;    /* of the walk in progress */
} Cut;

/* Copies that are no pointwise work: each part of the result has its own source. */
static bool cut_is_cat(uint16_t code) {
  switch (code) {
  case TOP_cat:
  case TOP_stack:
  case TOP__chunk_cat:
  case TOP_block_diag:
  case TOP_kron:
  case TOP_trace:
  case TOP_im2col:
  case TOP_col2im:
  case TOP_unfold_backward: return true;
  default: return false;
  }
}

static bool cut_cheap(const Cut *c, NodeRef k) {
  const MgNode *n = mg_node(c->p->g, k);
  if (mg_node_random(n) || n->op->mutates || n->op->code == TOP_extern || cut_is_cat(n->op->code))
    return false;
  if (part_viewed(n)) return true;
  return cut_class[n->op->code] == CUT_cheap && (!c->p->o->lowers || c->p->o->lowers(c->p->g, k));
}

static int64_t cut_bytes(const MgGraph *g, ValRef v) {
  const MgVal *t = mg_val(g, v);
  int64_t n = mg_dtype_size(t->dtype);
  for (int i = 0; i < t->ndim; i++) {
    int64_t size = mg_sym_hint(g->x, t->size[i]);
    n *= size > 0 ? size : 0;
  }
  return n;
}

/* ---- facts about forward values, in program order
 * ------------------------------------------------------------ */

static ValRef cut_root(const Cut *c, ValRef v) {
  for (;;) {
    NodeRef def = mg_val(c->p->g, v)->def;
    ValRef base = def ? part_viewed(mg_node(c->p->g, def)) : 0;
    if (!base) return v;
    v = base;
  }
}

static void cut_mark_stored(ValRef *v, void *arg) {
  Cut *c = arg;
  if (*v) c->stored[cut_root(c, *v)] = true;
}

static void cut_mark_banned(ValRef *v, void *arg) {
  Cut *c = arg;
  if (!*v || c->p->dep[*v]) return;
  c->banned[cut_root(c, *v)] = true;
}

typedef struct CutMax {
  const Cut *c;
  uint32_t level, chain;
} CutMax;

static void cut_max(ValRef *v, void *arg) {
  CutMax *m = arg;
  if (m->c->level[*v] > m->level) m->level = m->c->level[*v];
  if (m->c->chain[*v] > m->chain) m->chain = m->c->chain[*v];
}

/* A stored operand that is read again behind later expensive ops. */
static void cut_mark_far(ValRef *v, void *arg) {
  Cut *c = arg;
  ValRef r = *v ? cut_root(c, *v) : 0;
  if (r && c->stored[r] && c->level[c->node] > c->level[r]) c->banned[r] = true;
}

/* A value that leaves its block, through a view perhaps. */
static void cut_leave(ValRef *v, void *arg) {
  Cut *c = arg;
  ValRef r = *v ? cut_root(c, *v) : 0;
  uint32_t block = c->node ? mg_node(c->p->g, c->node)->again : 0;
  if (!r || !c->inside[r] || c->inside[r] == block) return;
  c->inside[r] = 0;
  c->banned[r] = true;
}

/* Which values belong to checkpointed blocks alone. */
static void cut_blocks(Cut *c) {
  MgGraph *g = c->p->g;
  bool any = false;
  for (NodeRef k = 1; k < g->nnode; k++) {
    const MgNode *n = mg_node(g, k);
    if (n->dead || c->p->late[k] || !n->again || mg_node_random(n) || n->op->mutates) continue;
    any = true;
    for (int i = 0; i < n->nout; i++) c->inside[n->out[i]] = n->again;
  }
  if (!any) return;
  for (NodeRef k = 1; k < g->nnode; k++) {
    if (mg_node(g, k)->dead || c->p->late[k]) continue;
    c->node = k;
    mg_node_each_val(mg_node(g, k), cut_leave, c);
  }
  c->node = 0;
  for (uint32_t i = 0; i < c->p->j->spec.nfwd; i++) cut_leave(&g->output[i], c);
  for (uint32_t i = 0; i < g->nwb; i++) cut_leave(&g->wb_value[i], c);
  for (ValRef v = 1; v < g->nval; v++)
    if (c->inside[v]) c->banned[v] = false;
}

static void cut_facts(Cut *c) {
  Part *p = c->p;
  MgGraph *g = p->g;
  for (uint32_t i = 0; i < g->ninput; i++) c->banned[g->input[i]] = true;
  for (NodeRef k = 1; k < g->nnode; k++) {
    MgNode *n = mg_node(g, k);
    if (n->dead) continue;
    bool cheap = cut_cheap(c, k), view = part_viewed(n) != 0;
    if (p->late[k]) {
      if (!cheap && !(p->o->lowers && p->o->lowers(g, k)))
        mg_node_each_val(n, cut_mark_banned, c); /* a library reads it */
      continue;
    }
    CutMax m = {c, 0, 0};
    mg_node_each_val(n, cut_max, &m);
    if (!cheap) m.level++, m.chain = 0;
    else if (!view) m.chain++;
    if (!cheap) mg_node_each_val(n, cut_mark_stored, c);
    for (int i = 0; i < n->nout; i++) {
      ValRef v = n->out[i];
      if (!v) continue;
      c->level[v] = m.level;
      c->chain[v] = m.chain > MG_TUNE_CUT_CHAIN ? 0 : m.chain;
      c->banned[v] |= !cheap || m.chain > MG_TUNE_CUT_CHAIN;
      c->stored[v] |= !cheap;
    }
  }
  for (uint32_t i = 0; i < p->j->spec.nfwd; i++) cut_mark_stored(&g->output[i], c);
  for (uint32_t i = 0; i < g->nwb; i++) cut_mark_stored(&g->wb_value[i], c);
}

/* Does computing it take much longer than reading its result? */
static bool cut_is_function(const MgNode *n) {
  switch (n->op->code) {
  case TOP_gelu:
  case TOP_mish:
  case TOP_silu:
  case TOP_elu:
  case TOP_celu:
  case TOP_selu:
  case TOP_softplus:
  case TOP_log_sigmoid:
  case TOP_log_sigmoid_forward:
  case TOP_exp:
  case TOP_exp2:
  case TOP_expm1:
  case TOP_log:
  case TOP_log2:
  case TOP_log10:
  case TOP_log1p:
  case TOP_sin:
  case TOP_cos:
  case TOP_tan:
  case TOP_asin:
  case TOP_acos:
  case TOP_atan:
  case TOP_sinh:
  case TOP_cosh:
  case TOP_tanh:
  case TOP_asinh:
  case TOP_acosh:
  case TOP_atanh:
  case TOP_sigmoid:
  case TOP_erf:
  case TOP_erfc:
  case TOP_lgamma:
  case TOP_pow_Tensor_Tensor:
  case TOP_pow_Scalar:
  case TOP_pow_Tensor_Scalar: return true;
  default: return false;
  }
}

static void cut_most_before(ValRef *v, void *arg) {
  CutMax *m = arg;
  if (m->c->before[*v] > m->chain) m->chain = m->c->before[*v];
}

static void cut_raise_after(ValRef *v, void *arg) {
  CutMax *m = arg;
  if (m->c->after[*v] < m->chain) m->c->after[*v] = m->chain;
}

/* Elementary functions in a long row of cheap ops. */
static void cut_functions(Cut *c) {
  MgGraph *g = c->p->g;
  for (NodeRef k = 1; k < g->nnode; k++) {
    MgNode *n = mg_node(g, k);
    if (n->dead || c->p->late[k] || !cut_cheap(c, k)) continue;
    CutMax m = {c, 0, 0};
    mg_node_each_val(n, cut_most_before, &m);
    for (int i = 0; i < n->nout; i++) c->before[n->out[i]] = m.chain + cut_is_function(n);
  }
  for (NodeRef k = g->nnode; k-- > 1;) {
    MgNode *n = mg_node(g, k);
    if (n->dead || c->p->late[k] || !cut_cheap(c, k)) continue;
    CutMax m = {c, 0, 0};
    for (int i = 0; i < n->nout; i++)
      if (c->after[n->out[i]] > m.chain) m.chain = c->after[n->out[i]];
    bool function = cut_is_function(n);
    for (int i = 0; function && i < n->nout; i++)
      c->banned[n->out[i]] |= c->before[n->out[i]] + m.chain > MG_TUNE_CUT_FUNCTIONS;
    m.chain += function;
    mg_node_each_val(n, cut_raise_after, &m);
  }
}

/* Stored values that forward reads again behind later expensive ops. */
static void cut_far(Cut *c) {
  MgGraph *g = c->p->g;
  for (NodeRef k = 1; k < g->nnode; k++) {
    MgNode *n = mg_node(g, k);
    if (n->dead || c->p->late[k] || part_viewed(n) || !n->nout || !n->out[0] || !cut_cheap(c, k)) continue;
    c->node = n->out[0];
    mg_node_each_val(n, cut_mark_far, c);
  }
}

/* ---- the network
 * --------------------------------------------------------------------------------------------- */

static uint32_t cut_in(ValRef v) { return 2 * v; }
static uint32_t cut_out(ValRef v) { return 2 * v + 1; }
enum { CUT_SOURCE = 0, CUT_SINK = 1 }; /* the vertices of value 0 */

static void cut_want(ValRef *v, void *arg) {
  Cut *c = arg;
  if (*v && !c->p->dep[*v]) c->relevant[*v] = true;
}

typedef struct CutEdges {
  Cut *c;
  ValRef to;
  MgRc rc;
} CutEdges;

static void cut_edge_from(ValRef *v, void *arg) {
  CutEdges *e = arg;
  if (e->rc == MG_OK && *v) e->rc = mg_cut_edge(&e->c->f, cut_out(*v), cut_in(e->to), MG_CUT_INF);
}

static void cut_edge_sink(ValRef *v, void *arg) {
  CutEdges *e = arg;
  if (e->rc == MG_OK && *v && !e->c->p->dep[*v])
    e->rc = mg_cut_edge(&e->c->f, cut_out(*v), CUT_SINK, MG_CUT_INF);
}

static int64_t cut_cost(const Cut *c, ValRef v) {
  NodeRef def = mg_val(c->p->g, v)->def;
  int64_t bytes = cut_bytes(c->p->g, v);
  if ((def && part_viewed(mg_node(c->p->g, def))) || c->inside[v])
    return MG_CUT_INF; /* a view's base is saved */
  if (part_lent(c->p, v)) return 0;
  return (bytes + 1) * (def && c->stored[v] ? 2 : 4);
}

/* The vertices and edges of value v, which backward may want. */
static MgRc cut_value(Cut *c, ValRef v) {
  MgGraph *g = c->p->g;
  NodeRef def = mg_val(g, v)->def;
  TRY(mg_cut_edge(&c->f, cut_in(v), cut_out(v), cut_cost(c, v)));
  bool again = def && (!c->banned[v] || part_viewed(mg_node(g, def)) || part_is_constant(mg_node(g, def)));
  if (!again) return mg_cut_edge(&c->f, CUT_SOURCE, cut_in(v), MG_CUT_INF);
  CutEdges e = {c, v, MG_OK};
  mg_node_each_val(mg_node(g, def), cut_edge_from, &e);
  return e.rc;
}

static MgRc cut_network(Cut *c) {
  Part *p = c->p;
  MgGraph *g = p->g;
  CutEdges e = {c, 0, MG_OK};
  for (uint32_t i = p->j->spec.nfwd; i < g->noutput; i++) {
    cut_want(&g->output[i], c);
    cut_edge_sink(&g->output[i], &e);
  }
  for (NodeRef k = g->nnode; k-- > 1;) { /* uses before definitions */
    MgNode *n = mg_node(g, k);
    bool wanted = p->late[k];
    if (n->dead) continue;
    for (int i = 0; i < n->nout; i++) wanted |= n->out[i] && c->relevant[n->out[i]];
    if (wanted) mg_node_each_val(n, cut_want, c);
    if (p->late[k]) mg_node_each_val(n, cut_edge_sink, &e);
  }
  TRY(e.rc);
  for (ValRef v = 1; v < g->nval; v++)
    if (c->relevant[v]) TRY(cut_value(c, v));
  return MG_OK;
}

/* ---- the answer
 * ---------------------------------------------------------------------------------------------- */

typedef struct CutTake {
  Cut *c;
  bool *seen;
} CutTake;

/* What backward reads is saved or computed again from what is. */
static void cut_take(ValRef *at, void *arg) {
  CutTake *t = arg;
  Cut *c = t->c;
  ValRef v = *at;
  if (!v || c->p->dep[v] || t->seen[v]) return;
  t->seen[v] = true;
  if (!c->f.to_sink[cut_in(v)]) c->p->save[v] = true;
  else mg_node_each_val(mg_node(c->p->g, mg_val(c->p->g, v)->def), cut_take, t);
}

MgRc part_choose(Part *p) {
  MgGraph *g = p->g;
  Cut c = {.p = p};
  int64_t value;
  TRYP(c.banned = mg_new(g->c, bool, g->nval + 1));
  TRYP(c.stored = mg_new(g->c, bool, g->nval + 1));
  TRYP(c.relevant = mg_new(g->c, bool, g->nval + 1));
  TRYP(c.inside = mg_new(g->c, uint32_t, g->nval + 1));
  TRYP(c.level = mg_new(g->c, uint32_t, g->nval + 1));
  TRYP(c.before = mg_new(g->c, uint32_t, g->nval + 1));
  TRYP(c.after = mg_new(g->c, uint32_t, g->nval + 1));
  TRYP(c.chain = mg_new(g->c, uint32_t, g->nval + 1));
  TRY(mg_cut_init(&c.f, g->c, 2 * g->nval + 2));
  cut_facts(&c);
  cut_functions(&c);
  cut_far(&c);
  cut_blocks(&c);
  TRY(cut_network(&c));
  TRY(mg_cut_run(&c.f, CUT_SOURCE, CUT_SINK, &value));
  if (value >= MG_CUT_INF) return mg_fail(g->c, MG_BUG, "partition: no finite cut");
  CutTake t = {&c, mg_new(g->c, bool, g->nval + 1)};
  TRYP(t.seen);
  for (NodeRef k = 1; k < g->nnode; k++)
    if (p->late[k] && !mg_node(g, k)->dead) mg_node_each_val(mg_node(g, k), cut_take, &t);
  for (uint32_t i = p->j->spec.nfwd; i < g->noutput; i++) cut_take(&g->output[i], &t);
  for (ValRef v = 1; v < g->nval; v++)
    if (p->save[v] && !part_lent(p, v)) p->j->saved_bytes += (uint64_t)cut_bytes(g, v);
  return MG_OK;
}
