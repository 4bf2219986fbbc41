/* At which sizes is a recorded graph right?
 * In: a graph with symbols, whose results inference has to agree with.  Out: facts about the symbols; where
 * they hold, inference agrees.  Inference runs once on the symbols, and what it asks of them becomes the
 * facts, as in a compilation.  Without a proof the graph is written out with numbers and inferred again for
 * each assignment, which takes longer than a small graph runs.
 * No proof: of a graph some of whose results only torch's meta kernels know. */
#include <stdlib.h>
#include "driver/size_facts.h"
#include "entry/run/exec_sizes.h"
#include "ir/infer/graph_at.h"
#include "ir/infer/infer.h"
#include "runtime/plan/plan_spec.h"

struct MgSizeProof {
  MgCtx ctx;
  MgExprs x;
  MgFact *fact;
  uint32_t n;
};

void mg_size_proof_free(MgSizeProof *p) {
  if (!p) return;
  mg_ctx_free(&p->ctx);
  free(p);
}

static bool proof_agrees(SizesGraph *t, const uint8_t *inferred) {
  if (mg_infer_settle(&t->g)) return false;
  for (NodeRef n = 1; n < t->g.nnode; n++)
    if (inferred[n] == SIZES_torch || (inferred[n] && !mg_graph_agrees(&t->g, n))) return false;
  return mg_exprs_ok(&t->x) == MG_OK;
}

/* The facts, in expressions of their own. */
static MgSizeProof *proof_keep(const MgExprs *x, const MgSizeFacts *f) {
  MgSizeProof *p = mg_calloc(1, sizeof *p);
  if (!p) return NULL;
  mg_ctx_init(&p->ctx);
  SymRef *copied = NULL;
  bool ok = mg_exprs_init(&p->x, &p->ctx) == MG_OK && (copied = mg_new(&p->ctx, SymRef, x->n + 1)) &&
            (p->fact = mg_new(&p->ctx, MgFact, f->n + 1));
  SymRef *own = ok ? mg_new(&p->ctx, SymRef, x->nsym + 1) : NULL;
  ok = ok && own;
  for (uint32_t k = 0; ok && k < x->nsym; k++)
    own[k] = mg_ex_symbol(&p->x, x->sym[k].hint, x->sym[k].lo, x->sym[k].hi, NULL);
  for (SymRef e = 1; ok && e < x->n; e++)
    if (mg_expr(x, e)->op == OP_sym) copied[e] = own[mg_expr(x, e)->u.i];
  for (uint32_t i = 0; ok && i < f->n; i++) {
    SymRef a = mg_sym_copy(&p->x, x, f->fact[i].a, copied), b = mg_sym_copy(&p->x, x, f->fact[i].b, copied);
    p->fact[p->n++] = (MgFact){f->fact[i].is, a, b};
  }
  if (ok && mg_exprs_ok(&p->x) == MG_OK) return p;
  mg_size_proof_free(p);
  return NULL;
}

MgSizeProof *mg_size_proof_new(SizesGraph *t, const uint8_t *inferred) {
  MgSizeFacts facts;
  mg_size_facts_begin(&facts, &t->x);
  bool agrees = proof_agrees(t, inferred);
  mg_size_facts_end(&facts);
  return agrees ? proof_keep(&t->x, &facts) : NULL;
}

bool mg_size_proof_holds(const MgSizeProof *p, const int64_t *env) {
  if (!p) return false;
  for (uint32_t i = 0; i < p->n; i++) {
    int64_t a = mg_sym_eval(&p->x, p->fact[i].a, env), b = mg_sym_eval(&p->x, p->fact[i].b, env);
    if (!mg_plan_fact_holds((MgPlanFactKind)p->fact[i].is, a, b)) return false;
  }
  return true;
}
