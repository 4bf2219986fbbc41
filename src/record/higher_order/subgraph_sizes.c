/* See the header.
 * In: nodes whose arguments are expressions of the recording.  Out: a copy of these expressions, and where
 * each symbol is read.
 * A run on stand-ins (a part is compiled by itself) makes expressions of their recording out of them. */
#include "record/higher_order/subgraph_sizes.h"
#include <stdlib.h>
#include "entry/launch/graph_interp.h"
#include "entry/launch/op_call.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "record/symbolic/sizes.h"

typedef struct PartSym {
  uint32_t symbol, in;
  int dim;
} PartSym; /* size `dim` of input `in` */

struct MgPartSizes {
  MgCtx ctx;
  MgExprs x;    /* frozen */
  PartSym *sym; /* in ctx */
  uint32_t nsym;
};

typedef struct SizeSeek {
  MgRec *r;
  MgPartSizes *s;
  bool *seen; /* by expression */
  ValRef *in;
  uint32_t *nin;
  const char *why;
} SizeSeek;

/* The dimension of v that is the symbol; -1: none. */
static int partsize_dim(const MgGraph *g, ValRef v, SymRef e) {
  const MgVal *m = mg_val(g, v);
  int d = m->ndim - 1;
  while (d >= 0 && !mg_ex_same(m->size[d], e)) d--;
  return d;
}

/* An input of the recording with that size; autograd would give it a gradient, so that
 * one is not taken.  0: none. */
static ValRef partsize_input(const MgRec *r, SymRef e) {
  for (uint32_t i = 0; i < r->cap->ninput; i++) {
    ValRef v = r->cap->input[i].val;
    if (v && !mg_val(r->g, v)->requires_grad && partsize_dim(r->g, v, e) >= 0) return v;
  }
  return 0;
}

static void partsize_symbol(SizeSeek *k, SymRef e) {
  const MgGraph *g = k->r->g;
  PartSym *t = &k->s->sym[k->s->nsym];
  *t = (PartSym){.symbol = (uint32_t)mg_expr(g->x, e)->u.i, .dim = -1};
  for (; t->in < *k->nin; t->in++)
    if ((t->dim = partsize_dim(g, k->in[t->in], e)) >= 0) break;
  ValRef more = t->dim < 0 ? partsize_input(k->r, e) : 0;
  if (more) {
    t->dim = partsize_dim(g, more, e);
    k->in[(*k->nin)++] = more;
  }
  k->s->nsym++;
  if (t->dim < 0) k->why = "a branch or loop body with a size that none of its tensors has";
}

static void partsize_expr(SizeSeek *k, SymRef e) {
  const MgExpr *n = mg_expr(k->r->g->x, e);
  if (!e || k->seen[e]) return;
  k->seen[e] = true;
  for (int i = 0; i < n->nsrc; i++) partsize_expr(k, n->src[i]);
  if (n->op == OP_sym) partsize_symbol(k, e);
}

static void partsize_arg(SizeSeek *k, const MgArg *a) {
  if (a->tag == MA_int) partsize_expr(k, a->u.sym);
  for (uint32_t i = 0; a->tag == MA_list && i < a->n; i++) partsize_arg(k, &a->u.item[i]);
}

MgPartSizes *mg_partsize_new(MgRec *r, NodeRef first, ValRef *in, uint32_t *nin) {
  MgPartSizes *s = mg_calloc(1, sizeof *s);
  if (!s) return (MgPartSizes *)PyErr_NoMemory();
  mg_ctx_init(&s->ctx);
  s->sym = mg_new(&s->ctx, PartSym, r->g->x->nsym + 1);
  SizeSeek k = {r, s, mg_calloc(r->g->x->n + 1, sizeof(bool)), in, nin, NULL};
  bool ok = s->sym && k.seen;
  for (NodeRef n = first; ok && n < r->g->nnode; n++)
    for (int i = 0; i < mg_node(r->g, n)->narg; i++) partsize_arg(&k, &mg_node(r->g, n)->arg[i]);
  free(k.seen);
  if (ok && s->nsym && !k.why) ok = mg_exprs_freeze(&s->x, &s->ctx, r->g->x) == MG_OK;
  if (ok && s->nsym && !k.why) return s;
  if (!ok) PyErr_NoMemory();
  else if (k.why) mg_symsize_give_up(r, k.why);
  mg_partsize_free(s);
  return NULL;
}

void mg_partsize_free(MgPartSizes *s) {
  if (!s) return;
  mg_ctx_free(&s->ctx);
  free(s);
}

/* ---- running ---- */

static int partsize_run_real(const MgPartSizes *s, const MgNodeRun *run, PyObject *const *in,
                             PyObject **out) {
  int64_t *env = mg_calloc(s->x.nsym + 1, sizeof *env), *size;
  if (!env) return PyErr_NoMemory(), -1;
  for (uint32_t i = 0; i < s->nsym; i++)
    if (!mg_abi.aoti_torch_get_sizes(mg_abi_tensor(in[s->sym[i].in]), &size))
      env[s->sym[i].symbol] = size[s->sym[i].dim];
  int rc = mg_noderun_run_at(run, in, out, &(MgCallSizes){.x = &s->x, .env = env});
  free(env);
  return rc;
}

static PyObject *partsize_object(void *cap, SymRef e) { return mg_symsize_object(cap, e); }

static int partsize_run_recorded(const MgPartSizes *s, const MgNodeRun *run, PyObject *const *in,
                                 PyObject **out, MgCapture *cap) {
  SymRef *copied = mg_calloc(s->x.n, sizeof *copied);
  if (!copied) return PyErr_NoMemory(), -1;
  for (SymRef e = 1; e < s->x.n; e++)
    for (uint32_t i = 0; mg_expr(&s->x, e)->op == OP_sym && i < s->nsym; i++)
      if (mg_expr(&s->x, e)->u.i == s->sym[i].symbol)
        copied[e] = mg_val(cap->rec->g, mg_standin_val(in[s->sym[i].in]))->size[s->sym[i].dim];
  int rc = mg_noderun_run_at(
      run, in, out,
      &(MgCallSizes){.x = &s->x, .size = partsize_object, .arg = cap, .to = cap->rec->x, .copied = copied});
  free(copied);
  return rc;
}

int mg_partsize_run(const MgPartSizes *s, const MgNodeRun *run, PyObject *const *in, PyObject **out) {
  if (!s) return mg_noderun_run(run, in, out);
  uint32_t i = 0;
  while (i < s->nsym && mg_standin_check(in[s->sym[i].in])) i++;
  return i == s->nsym ? partsize_run_recorded(s, run, in, out, mg_standin_info(in[s->sym[0].in])->cap)
                      : partsize_run_real(s, run, in, out);
}
