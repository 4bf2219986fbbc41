/* Copies of a graph with symbols.
 * In: a recorded graph whose sizes are expressions; the symbols' values, or what is known of them.  Out: the
 * same graph with
 * constants, or with symbols of its own, under the same value and node numbers; whether inference agrees that
 * these are the sizes of its results. */
#include "ir/infer/infer.h"
#include "ir/graph/graph.h"
#include <stdlib.h>
#include <string.h>

typedef struct GraphAt {
  MgGraph *to;
  const MgGraph *from;
  const int64_t *env;
  const SymRef *symbol; /* by symbol of `from`: what stands for it there; NULL: env does */
  SymRef *copied;       /* with symbol, per expression of `from`: its copy, or 0 */
  bool *used; /* by value: something refers to it; NULL: take them all.  The others keep their numbers only */
} GraphAt;

static SymRef at_copy(const GraphAt *a, SymRef e) {
  const MgExpr n = *mg_expr(a->from->x, e);
  SymRef src[3] = {0};
  if (!e || a->copied[e]) return e ? a->copied[e] : 0;
  for (int i = 0; i < n.nsrc; i++) src[i] = at_copy(a, n.src[i]);
  return a->copied[e] = n.op == OP_sym     ? at_copy(a, a->symbol[n.u.i])
                        : n.op == OP_const ? mg_ex_int(a->to->x, (MgTy)n.ty, n.u.i)
                                           : mg_ex_op(a->to->x, (MgScalarOp)n.op, src[0], src[1], src[2]);
}

SymRef mg_sym_copy(MgExprs *to, const MgExprs *from, SymRef e, SymRef *copied) {
  MgGraph source = {.x = (MgExprs *)from}, target = {.x = to};
  return at_copy(&(GraphAt){.to = &target, .from = &source, .copied = copied}, e);
}

static SymRef at_size(const GraphAt *a, SymRef e) {
  if (a->symbol) return at_copy(a, e);
  return e ? mg_sym(a->to->x, mg_sym_eval(a->from->x, e, a->env)) : 0;
}

static MgRc at_arg(const GraphAt *a, const MgArg *from, MgArg *to) {
  *to = *from;
  if (from->tag == MA_str) TRYP(to->u.str = mg_ctx_strdup(a->to->c, from->u.str));
  if (from->tag == MA_int) to->u.sym = at_size(a, from->u.sym);
  if (from->tag != MA_list) return MG_OK;
  TRYP(to->u.item = mg_new(a->to->c, MgArg, from->n + 1));
  for (uint32_t i = 0; i < from->n; i++) TRY(at_arg(a, &from->u.item[i], &to->u.item[i]));
  return MG_OK;
}

static MgRc at_val(const GraphAt *a, ValRef v) {
  const MgVal *s = mg_val(a->from, v);
  bool used = !a->used || a->used[v];
  ValRef r = mg_graph_val(a->to, (MgDtype)s->dtype, used ? s->ndim : 0);
  TRYP(r);
  if (!used) return MG_OK;
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

static MgRc at_flags(MgGraph *to, const bool *from, uint32_t n, bool **out) {
  if (!from) return MG_OK;
  TRYP(*out = mg_new(to->c, bool, n + 1));
  memcpy(*out, from, n * sizeof **out);
  return MG_OK;
}

static MgRc at_graph(GraphAt a) {
  MgGraph *to = a.to;
  const MgGraph *from = a.from;
  to->default_dtype = from->default_dtype;
  for (ValRef v = 1; v < from->nval; v++) TRY(at_val(&a, v));
  for (NodeRef n = 1; n < from->nnode; n++) TRY(at_node(&a, n));
  for (uint32_t i = 0; i < from->ninput; i++) TRYP(mg_graph_input(to, from->input[i]));
  for (uint32_t i = 0; i < from->noutput; i++) TRY(mg_graph_output(to, from->output[i]));
  TRY(at_flags(to, from->early, from->noutput, &to->early));
  TRY(at_flags(to, from->viewed, from->noutput, &to->viewed));
  to->nhidden = from->nhidden;
  if (from->out_alias) {
    TRYP(to->out_alias = mg_new(to->c, struct MgOutAlias, from->noutput + 1));
    memcpy(to->out_alias, from->out_alias, from->noutput * sizeof *to->out_alias);
  }
  return mg_exprs_ok(to->x);
}

MgRc mg_graph_at(MgGraph *to, const MgGraph *from, const int64_t *env) {
  return at_graph((GraphAt){.to = to, .from = from, .env = env});
}

MgRc mg_graph_copy(MgGraph *to, const MgGraph *from, const SymRef *symbol, const int64_t *env) {
  GraphAt a = {
      .to = to, .from = from, .env = env, .symbol = symbol, .copied = mg_new(to->c, SymRef, from->x->n + 1)};
  TRYP(a.copied);
  for (uint32_t k = 0; k < from->x->nsym; k++) {
    const MgSymbol *s = &from->x->sym[k];
    SymRef own = mg_ex_symbol(to->x, env[k], s->lo, s->hi, NULL);
    if (mg_expr(from->x, symbol[k])->op == OP_sym && mg_expr(from->x, symbol[k])->u.i == k)
      a.copied[symbol[k]] = own;
  }
  return at_graph(a);
}

static void at_use(ValRef *v, void *arg) { ((bool *)arg)[*v] = true; }

static MgRc at_used(const MgGraph *g, MgCtx *c, bool **used) {
  TRYP(*used = mg_new(c, bool, g->nval + 1));
  for (uint32_t i = 0; i < g->ninput; i++) (*used)[g->input[i]] = true;
  for (NodeRef k = 1; k < g->nnode; k++) {
    mg_node_each_val(mg_node(g, k), at_use, *used);
    for (int i = 0; i < mg_node(g, k)->nout; i++) (*used)[mg_node(g, k)->out[i]] = true;
  }
  return MG_OK;
}

MgRc mg_graph_clone(MgGraph *to, const MgGraph *from) {
  const MgExprs *x = from->x;
  SymRef *own = mg_new(to->c, SymRef, x->nsym + 1);
  GraphAt a = {.to = to, .from = from, .symbol = own, .copied = mg_new(to->c, SymRef, x->n + 1)};
  TRYP(own && a.copied);
  TRY(at_used(from, to->c, &a.used));
  for (uint32_t k = 0; k < x->nsym; k++)
    own[k] = mg_ex_symbol(to->x, x->sym[k].hint, x->sym[k].lo, x->sym[k].hi, NULL);
  for (SymRef e = 1; e < x->n; e++)
    if (mg_expr(x, e)->op == OP_sym) a.copied[e] = own[mg_expr(x, e)->u.i];
  TRY(at_graph(a));
  for (ValRef v = 1; v < to->nval; v++) to->val[v].known = NULL; /* a tensor of somebody else */
  return MG_OK;
}

/* ---- which symbols matter ---- */

typedef struct AtSymbols {
  const MgExprs *x;
  const SymRef *symbol;
  bool *used, *seen; /* by symbol; by expression */
} AtSymbols;

static void at_mention(const AtSymbols *s, SymRef e) {
  if (!e || s->seen[e]) return;
  const MgExpr *n = mg_expr(s->x, e);
  s->seen[e] = true;
  for (int i = 0; i < n->nsrc; i++) at_mention(s, n->src[i]);
  if (n->op != OP_sym) return;
  s->used[n->u.i] = true;
  if (s->symbol) at_mention(s, s->symbol[n->u.i]);
}

static void at_mention_arg(const AtSymbols *s, const MgArg *a) {
  if (a->tag == MA_int) at_mention(s, a->u.sym);
  for (uint32_t i = 0; a->tag == MA_list && i < a->n; i++) at_mention_arg(s, &a->u.item[i]);
}

MgRc mg_graph_symbols(const MgGraph *g, NodeRef nnode, ValRef nval, const SymRef *symbol, bool *used) {
  AtSymbols s = {g->x, symbol, used, mg_calloc(g->x->n + 1, 1)};
  if (!s.seen) return MG_NOMEM;
  for (ValRef v = 1; v < nval; v++) {
    const MgVal *d = mg_val(g, v);
    at_mention(&s, d->offset);
    for (int i = 0; i < d->ndim; i++) at_mention(&s, d->size[i]), at_mention(&s, d->stride[i]);
  }
  for (NodeRef n = 1; n < nnode; n++)
    for (int i = 0; i < mg_node(g, n)->narg; i++) at_mention_arg(&s, &mg_node(g, n)->arg[i]);
  free(s.seen);
  return MG_OK;
}

/* ---- what is known of symbols ---- */

static ExprRef known_put(MgExprs *x, ExprRef r, const ExprRef *s, void *arg) {
  const MgExpr *e = mg_expr(x, r);
  return e->op == OP_sym ? ((SymRef *)arg)[e->u.i] : mg_ex_rebuild(x, r, s);
}

static SymRef known_form(MgExprs *x, SymRef e, SymRef *symbol) { return mg_ex_map(x, e, known_put, symbol); }

static bool known_is(const MgExprs *x, ExprRef e, void *symbol) { return e == *(SymRef *)symbol; }
static bool known_has(const MgExprs *x, SymRef e, SymRef symbol) {
  return mg_ex_any(x, e, known_is, &symbol);
}

MgRc mg_symbols_known(MgExprs *x, const MgSymEqual *equal, uint32_t n, SymRef *symbol) {
  for (uint32_t i = 0; i < n; i++) {
    SymRef a = known_form(x, equal[i].a, symbol), b = known_form(x, equal[i].b, symbol);
    if (x->nomem) break;
    if (mg_expr(x, a)->op != OP_sym) { /* of two symbols the first goes */
      SymRef t = a;
      a = b;
      b = t;
    }
    if (mg_expr(x, a)->op != OP_sym || known_has(x, b, a)) continue;
    symbol[mg_expr(x, a)->u.i] = b;
    for (uint32_t k = 0; k < x->nsym; k++) symbol[k] = known_form(x, symbol[k], symbol);
  }
  return mg_exprs_ok(x);
}

bool mg_graph_same(const MgGraph *g, ValRef a, ValRef b) {
  const MgVal *p = mg_val(g, a), *q = mg_val(g, b);
  if (!a || !b) return a == b;
  return p->ndim == q->ndim && p->dtype == q->dtype && p->offset == q->offset &&
         !memcmp(p->size, q->size, p->ndim * sizeof *p->size) &&
         !memcmp(p->stride, q->stride, p->ndim * sizeof *p->stride);
}

static bool agrees_size(const MgExprs *x, SymRef a, SymRef b) {
  return a == b || (a && b && x->ask && x->ask->equal(x->ask->of, a, b));
}

/* As mg_graph_same, but what cannot be proven of sizes is asked. */
static bool agrees_val(const MgGraph *g, ValRef a, ValRef b) {
  const MgVal *p = mg_val(g, a), *q = mg_val(g, b);
  if (!a || !b) return a == b;
  if (p->ndim != q->ndim || p->dtype != q->dtype || !agrees_size(g->x, p->offset, q->offset)) return false;
  for (int i = 0; i < p->ndim; i++)
    if (!agrees_size(g->x, p->size[i], q->size[i]) || !agrees_size(g->x, p->stride[i], q->stride[i]))
      return false;
  return true;
}

bool mg_graph_agrees(MgGraph *g, NodeRef n) {
  MgNode *node = mg_node(g, n);
  ValRef *out = node->out;
  uint32_t nout = node->nout;
  uint32_t nval = g->nval;
  bool same = (node->out = mg_new(g->c, ValRef, nout + 1)) && mg_infer(g, n) == MG_OK &&
              (node = mg_node(g, n))->nout == nout;
  for (int i = 0; same && i < nout; i++) same = agrees_val(g, out[i], node->out[i]);
  node = mg_node(g, n);
  node->out = out;
  node->nout = nout;
  g->nval = nval;
  g->c->rc = MG_OK;
  return same;
}
