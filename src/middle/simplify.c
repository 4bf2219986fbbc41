/* Identities and common subexpressions.
 * In: a functional graph.  Out: copies and views that change nothing are gone, and of nodes that compute the
 * same from
 * the same only the first is left.
 * A value that the user receives (output, write-back) stays a value of its own: eager would
 * give a tensor of its own. */
#include "middle/middle.h"
#include <string.h>

typedef struct Simplify {
  bool *own;     /* per value of the old graph: the user receives it */
  uint32_t nval; /* entries of own */
  NodeRef *slot; /* hash table of kept nodes; 0: free */
  uint32_t mask; /* its size - 1, a power of two minus one */
} Simplify;

/* ---- identities
 * ---------------------------------------------------------------------------------------------- */

static bool simplify_same_meta(const MgGraph *g, ValRef a, ValRef b) {
  const MgVal *s = mg_val(g, a), *t = mg_val(g, b);
  return s->dtype == t->dtype && s->device == t->device && s->dev_index == t->dev_index &&
         s->ndim == t->ndim && !memcmp(s->size, t->size, s->ndim * sizeof *s->size) &&
         !memcmp(s->stride, t->stride, s->ndim * sizeof *s->stride);
}

/* Ops whose first result equals their first argument when both have the same metadata: conversions, copies
 * and changes of view that turn out to change nothing.  mode: name of a flag that must be false, or NULL. */
static const struct SimplifyIdentity {
  uint16_t code;
  const char *mode;
} simplify_identities[] = {
    {TOP__to_copy, NULL},          {TOP_clone, NULL},      {TOP_alias, NULL},   {TOP_detach, NULL},
    {TOP_contiguous, NULL},        {TOP_lift_fresh, NULL}, {TOP_view, NULL},    {TOP_reshape, NULL},
    {TOP__unsafe_view, NULL},      {TOP_expand, NULL},     {TOP_permute, NULL}, {TOP_dropout, "train"},
    {TOP_native_dropout, "train"},
};

static bool simplify_is_false(const MgGraph *g, const MgArg *a) {
  int64_t k;
  return (a->tag == MA_bool && !a->u.b) || (a->tag == MA_int && mg_ex_const_int(g->x, a->u.sym, &k) && !k);
}

/* A permutation of equal sizes and strides still moves elements unless it is the identity. */
static bool simplify_moves(const MgGraph *g, const MgNode *n) {
  if (n->op->code != TOP_permute) return false;
  const MgArg *d = mg_node_arg(n, "dims");
  for (uint32_t i = 0; d->tag == MA_list && i < d->n; i++)
    if (!mg_sym_is(g->x, d->u.item[i].u.sym, i)) return true;
  return d->tag != MA_list;
}

static bool simplify_is_identity(const MgGraph *g, const MgNode *n) {
  for (size_t i = 0; i < sizeof simplify_identities / sizeof *simplify_identities; i++) {
    const struct SimplifyIdentity *r = &simplify_identities[i];
    if (r->code != n->op->code) continue;
    if (!mg_node_first(n) || (r->mode && !simplify_is_false(g, mg_node_arg(n, r->mode)))) return false;
    return n->out[0] && simplify_same_meta(g, mg_node_first(n), n->out[0]) && !simplify_moves(g, n);
  }
  return false;
}

/* ---- common subexpressions
 * ----------------------------------------------------------------------------------- */

static uint64_t simplify_hash_arg(const MgArg *a, uint64_t h) {
  h = mg_hash_u64(h ^ a->tag);
  switch (a->tag) {
  case MA_list:
    for (uint32_t i = 0; i < a->n; i++) h = simplify_hash_arg(&a->u.item[i], h + i + 1);
    return h;
  case MA_str: return mg_hash_bytes(a->u.str, strlen(a->u.str), h);
  case MA_float: return mg_hash_bytes(&a->u.f, sizeof a->u.f, h);
  case MA_bool: return mg_hash_u64(h + a->u.b);
  case MA_none: return h;
  default: return mg_hash_u64(h + a->u.sym); /* values, sizes and codes are 32-bit numbers */
  }
}

static bool simplify_same_arg(const MgArg *a, const MgArg *b) {
  if (a->tag != b->tag) return false;
  switch (a->tag) {
  case MA_list:
    if (a->n != b->n) return false;
    for (uint32_t i = 0; i < a->n; i++)
      if (!simplify_same_arg(&a->u.item[i], &b->u.item[i])) return false;
    return true;
  case MA_str: return !strcmp(a->u.str, b->u.str);
  case MA_float: return !memcmp(&a->u.f, &b->u.f, sizeof a->u.f); /* by bits: -0.0 is not 0.0 */
  case MA_bool: return a->u.b == b->u.b;
  case MA_device: return a->u.code == b->u.code && a->dev_index == b->dev_index;
  case MA_none: return true;
  default: return a->u.sym == b->u.sym;
  }
}

static bool simplify_same_node(const MgGraph *g, const MgNode *a, const MgNode *b) {
  if (a->op != b->op || a->nout != b->nout) return false;
  for (int i = 0; i < a->narg; i++)
    if (!simplify_same_arg(&a->arg[i], &b->arg[i])) return false;
  for (int i = 0; i < a->nout; i++)
    if (!a->out[i] != !b->out[i] || (a->out[i] && !simplify_same_meta(g, a->out[i], b->out[i]))) return false;
  return true;
}

/* An earlier node that computes the same; else 0, and *slot is where this one belongs. */
static NodeRef simplify_find(const Simplify *s, const MgGraph *g, const MgNode *n, uint32_t *slot) {
  uint64_t h = mg_hash_u64((uint64_t)(uintptr_t)n->op);
  for (int i = 0; i < n->narg; i++) h = simplify_hash_arg(&n->arg[i], h + i);
  for (*slot = h & s->mask; s->slot[*slot]; *slot = (*slot + 1) & s->mask)
    if (simplify_same_node(g, mg_node(g, s->slot[*slot]), n)) return s->slot[*slot];
  return 0;
}

/* ---- the pass
 * ------------------------------------------------------------------------------------------------ */

static bool simplify_owned(const Simplify *s, ValRef v) { return v < s->nval && s->own[v]; }

static MgRc simplify_node(MgRewrite *rw, void *arg) {
  Simplify *s = arg;
  MgGraph *g = rw->g;
  MgNode *n = &rw->n;
  bool owned = false;
  uint32_t slot;
  for (int i = 0; i < n->nout; i++) owned |= simplify_owned(s, n->out[i]);
  bool pure = n->op->code != TOP_extern && !mg_node_random(n) && !n->op->mutates && n->nout > 0;
  if (owned || !pure) return mg_graph_keep(rw);
  if (simplify_is_identity(g, n)) return mg_graph_replace(rw, n->out[0], mg_node_first(n));
  NodeRef same = simplify_find(s, g, n, &slot);
  if (!same) {
    s->slot[slot] = g->nnode; /* where keep appends it */
    return mg_graph_keep(rw);
  }
  for (int i = 0; i < n->nout; i++)
    if (n->out[i]) TRY(mg_graph_replace(rw, n->out[i], mg_node(g, same)->out[i]));
  return MG_OK;
}

MgRc mg_simplify(MgGraph *g, const MgSimplifyOpts *o) {
  Simplify s = {.nval = g->nval, .mask = 15};
  while (s.mask < g->nnode * 2) s.mask = s.mask * 2 + 1;
  TRYP(s.own = mg_new(g->c, bool, g->nval));
  TRYP(s.slot = mg_new(g->c, NodeRef, s.mask + 1));
  for (uint32_t i = 0; i < g->noutput; i++) s.own[g->output[i]] = true;
  for (uint32_t i = 0; i < g->nwb; i++) s.own[g->wb_value[i]] = true;
  for (uint32_t k = g->nnode;
       k-- > 1;) { /* a view of what the user receives gives away the memory it is in */
    const MgNode *n = mg_node(g, k);
    bool unsafe = n->op->code == TOP__unsafe_view; /* a view, although its schema does not say so */
    for (int i = 0; i < n->nout && !n->dead && (n->op->is_view || unsafe); i++)
      for (int a = 0; n->out[i] && s.own[n->out[i]] && a < n->narg; a++)
        if ((unsafe || n->op->param[a].alias_set >= 0) && n->arg[a].tag == MA_val)
          s.own[n->arg[a].u.val] = true;
  }
  return mg_graph_rewrite(g, simplify_node, &s);
}
