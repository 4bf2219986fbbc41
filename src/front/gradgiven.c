/* See the header. */
#include "front/gradgiven.h"
#include "front/cache.h"
#include "front/nodecall.h"
#include "front/planrun.h"
#include "front/resume.h"
#include <stdlib.h>

enum { GRADGIVEN_SETS = 32 }; /* of defined gradients; others run op by op */

struct MgGradGiven {
  uint64_t given;
  MgPlan *plan;         /* owned; NULL: that for all tangents does as well */
  bool failed;          /* it could not be compiled */
};

MgGradKept *mg_gradgiven_keep(PyObject *objs, const MgOptions *opt) {
  MgGradKept *k = mg_calloc(1, sizeof *k);
  if (!k) return (MgGradKept *)PyErr_NoMemory();
  mg_ctx_init(&k->ctx);
  k->objs = Py_XNewRef(objs);
  k->opt = *opt;
  if (!mg_exprs_init(&k->x, &k->ctx) && !mg_graph_init(&k->g, &k->ctx, &k->x)) return k;
  mg_gradgiven_forget(k);
  return (MgGradKept *)PyErr_NoMemory();
}

void mg_gradgiven_forget(MgGradKept *k) {
  if (!k) return;
  Py_XDECREF(k->objs);
  mg_ctx_free(&k->ctx);
  free(k);
}

void mg_gradgiven_free(MgAutograd *a) {
  for (uint32_t i = 0; i < a->ngiven; i++)
    if (a->given[i].plan) mg_plan_free(a->given[i].plan);
  free(a->given);
  if (!a->plans) mg_gradgiven_forget(a->kept);
}

static MgRc gradgiven_compile(const MgAutograd *a, MgCtx *c, uint64_t given, MgPlan **plan) {
  MgHostOps host;
  MgExprs x;
  MgGraph g;
  TRY(mg_exprs_init(&x, c));
  TRY(mg_graph_init(&g, c, &x));
  TRY(mg_graph_at(&g, &a->kept->g, a->sizes));
  if (mg_nodecall_hostops(a->kept->objs, &host)) return MG_PYERR;
  host.label = mg_plan_label(a->bwd);
  return mg_compile_backward(&g, a->nsaved, given, &a->kept->opt, &host, plan);
}

/* Adds the plan for `given`.  NULL with an exception. */
static struct MgGradGiven *gradgiven_add(MgAutograd *a, uint64_t given) {
  struct MgGradGiven now = {.given = given}, *list;
  MgCtx c;
  mg_ctx_init(&c);
  MgRc rc = gradgiven_compile(a, &c, given, &now.plan);
  now.failed = rc != MG_OK;
  if (rc != MG_OK && (mg_strict() || rc == MG_NOMEM)) mg_planrun_raise(rc, c.msg);
  else if (rc != MG_OK) PyErr_Clear(), mg_stats.fallbacks++;
  mg_ctx_free(&c);
  if (PyErr_Occurred()) return NULL;
  for (uint32_t i = 0; i < a->ngiven; i++) { /* another thread was faster */
    if (a->given[i].given != given) continue;
    if (now.plan) mg_plan_free(now.plan);
    return &a->given[i];
  }
  if (!(list = mg_realloc(a->given, (a->ngiven + 1) * sizeof *list))) {
    if (now.plan) mg_plan_free(now.plan);
    return (struct MgGradGiven *)PyErr_NoMemory();
  }
  a->given = list;
  list[a->ngiven] = now;
  return &list[a->ngiven++];
}

int mg_gradgiven_plan(MgAutograd *a, uint64_t given, MgPlan **bwd) {
  *bwd = a->bwd;
  if (a->nthrough > 64 && given != ~0ull) *bwd = NULL; /* no bits say which gradients there are */
  if (!a->kept || given == ~0ull >> (64 - a->nthrough)) return 0;
  struct MgGradGiven *f = NULL;
  for (uint32_t i = 0; !f && i < a->ngiven; i++)
    if (a->given[i].given == given) f = &a->given[i];
  if (!f && a->ngiven == GRADGIVEN_SETS) return *bwd = NULL, 0;
  if (!f && !(f = gradgiven_add(a, given))) return -1;
  if (f->plan || f->failed) *bwd = f->plan;
  return 0;
}

typedef struct Needs { uint64_t *of, now; } Needs;

static void needs_gather(ValRef *v, void *arg) {
  Needs *s = arg;
  s->now |= s->of[*v];
}

static void needs_spread(ValRef *v, void *arg) {
  Needs *s = arg;
  s->of[*v] |= s->now;
}

/* First which tangents each value depends on: without these it is zero, and what it is computed from is not read.  What depends on
 * none (saved values, what is computed of them again) is needed by the tangents of its readers. */
int mg_gradgiven_needs(const MgAutograd *a, uint64_t given, bool *need) {
  MgGraph *g = &a->kept->g;
  uint64_t *tangents = mg_calloc(g->nval + 1, sizeof *tangents);
  uint64_t *readers = mg_calloc(g->nval + 1, sizeof *readers);
  Needs from = {tangents, 0}, by = {readers, 0};
  for (uint32_t i = 0; tangents && i < a->nthrough; i++) tangents[g->input[a->nsaved + i]] = 1ull << i;
  for (NodeRef n = 1; tangents && n < g->nnode; n++) {
    MgNode *node = mg_node(g, n);
    from.now = 0;
    if (!node->dead) mg_node_each_val(node, needs_gather, &from);
    for (int i = 0; i < node->nout; i++)
      if (node->out[i]) tangents[node->out[i]] = from.now;
  }
  for (NodeRef n = g->nnode; tangents && readers && --n;) {
    MgNode *node = mg_node(g, n);
    by.now = 0;
    for (int i = 0; i < node->nout; i++) {
      ValRef v = node->out[i];
      by.now |= v ? tangents[v] ? tangents[v] : readers[v] : 0;
    }
    if (!node->dead) mg_node_each_val(node, needs_spread, &by);
  }
  for (uint32_t k = 0; readers && k < a->nsaved; k++) need[k] = readers[g->input[k]] & given;
  bool ok = tangents && readers;
  free(tangents);
  free(readers);
  return ok ? 0 : (PyErr_NoMemory(), -1);
}
