/* A graph with symbols at one assignment of them.
 * In: a recorded graph whose sizes are expressions, the symbols' values.  Out: the same graph with constants, under the same value
 * and node numbers; whether inference agrees that these are the sizes of its results. */
#include "ir/graph.h"
#include <string.h>

typedef struct GraphAt {
  MgGraph *to;
  const MgGraph *from;
  const int64_t *env;
} GraphAt;

static SymRef at_size(const GraphAt *a, SymRef e) { return e ? mg_sym(a->to->x, mg_sym_eval(a->from->x, e, a->env)) : 0; }

static MgRc at_arg(const GraphAt *a, const MgArg *from, MgArg *to) {
  *to = *from;
  if (from->tag == MA_int) to->u.sym = at_size(a, from->u.sym);
  if (from->tag != MA_list) return MG_OK;
  TRYP(to->u.item = mg_new(a->to->c, MgArg, from->n + 1));
  for (uint32_t i = 0; i < from->n; i++) TRY(at_arg(a, &from->u.item[i], &to->u.item[i]));
  return MG_OK;
}

static MgRc at_val(const GraphAt *a, ValRef v) {
  const MgVal *s = mg_val(a->from, v);
  ValRef r = mg_graph_val(a->to, (MgDtype)s->dtype, s->ndim);
  TRYP(r);
  MgVal *d = mg_val(a->to, r);
  SymRef *size = d->size, *stride = d->stride;
  *d = *s;
  d->size = size;
  d->stride = stride;
  d->offset = at_size(a, s->offset);
  for (int i = 0; i < s->ndim; i++) {
    size[i] = at_size(a, s->size[i]);
    stride[i] = at_size(a, s->stride[i]);
  }
  return MG_OK;
}

static MgRc at_node(const GraphAt *a, NodeRef n) {
  const MgNode *s = mg_node(a->from, n);
  NodeRef r = mg_graph_node(a->to, s->op, s->narg, s->nout);
  TRYP(r);
  MgNode *d = mg_node(a->to, r);
  MgArg *arg = d->arg;
  ValRef *out = d->out;
  *d = *s;
  d->arg = arg;
  d->out = out;
  memcpy(out, s->out, s->nout * sizeof *out);
  for (int i = 0; i < s->narg; i++) TRY(at_arg(a, &s->arg[i], &arg[i]));
  return MG_OK;
}

MgRc mg_graph_at(MgGraph *to, const MgGraph *from, const int64_t *env) {
  GraphAt a = {to, from, env};
  to->default_dtype = from->default_dtype;
  for (ValRef v = 1; v < from->nval; v++) TRY(at_val(&a, v));
  for (NodeRef n = 1; n < from->nnode; n++) TRY(at_node(&a, n));
  for (uint32_t i = 0; i < from->ninput; i++) TRYP(mg_graph_input(to, from->input[i]));
  for (uint32_t i = 0; i < from->noutput; i++) TRY(mg_graph_output(to, from->output[i]));
  to->nhidden = from->nhidden;
  return mg_exprs_ok(to->x);
}

static bool at_same(const MgGraph *g, ValRef a, ValRef b) {
  const MgVal *p = mg_val(g, a), *q = mg_val(g, b);
  if (!a || !b) return a == b;
  return p->ndim == q->ndim && p->dtype == q->dtype && p->offset == q->offset && !memcmp(p->size, q->size, p->ndim * sizeof *p->size) &&
         !memcmp(p->stride, q->stride, p->ndim * sizeof *p->stride);
}

bool mg_graph_agrees(MgGraph *g, NodeRef n) {
  MgNode *node = mg_node(g, n);
  ValRef *out = node->out;
  uint16_t nout = node->nout;
  uint32_t nval = g->nval;
  bool same = (node->out = mg_new(g->c, ValRef, nout + 1)) && mg_infer(g, n) == MG_OK && (node = mg_node(g, n))->nout == nout;
  for (int i = 0; same && i < nout; i++) same = at_same(g, out[i], node->out[i]);
  node = mg_node(g, n);
  node->out = out;
  node->nout = nout;
  g->nval = nval;
  g->c->rc = MG_OK;
  return same;
}
