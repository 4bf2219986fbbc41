/* See the header. */
#include "entry/grad/undefined_tangents.h"
#include <stdlib.h>
#include "base/bits.h"
#include "base/env.h"
#include "driver/compile.h"
#include "entry/grad/joint_plans.h"
#include "entry/launch/op_call.h"
#include "entry/launch/plan_call.h"
#include "entry/launch/stats.h"
#include "ir/infer/graph_at.h"
#include "runtime/plan/plan_priv.h"
#include "tuning.h"

struct MgGradGiven {
  uint64_t *given; /* owned */
  MgPlan *plan;    /* owned; NULL: that for all tangents does as well */
  bool failed;     /* it could not be compiled */
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
  for (uint32_t i = 0; i < a->ngiven; i++) {
    if (a->given[i].plan) mg_plan_free(a->given[i].plan);
    free(a->given[i].given);
  }
  free(a->given);
  if (!a->plans) mg_gradgiven_forget(a->kept);
}

static MgRc gradgiven_compile(const MgAutograd *a, MgCtx *c, const uint64_t *given, MgPlan **plan) {
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

static struct MgGradGiven *gradgiven_find(const MgAutograd *a, const uint64_t *given) {
  for (uint32_t i = 0; i < a->ngiven; i++)
    if (mg_bits_same(a->given[i].given, given, a->words)) return &a->given[i];
  return NULL;
}

static void gradgiven_drop(struct MgGradGiven *f) {
  if (f->plan) mg_plan_free(f->plan);
  free(f->given);
}

/* Adds the plan for `given`.  NULL with an exception. */
static struct MgGradGiven *gradgiven_add(MgAutograd *a, const uint64_t *given) {
  struct MgGradGiven now = {.given = mg_calloc(a->words, sizeof *given)}, *list, *found;
  if (!now.given) return (struct MgGradGiven *)PyErr_NoMemory();
  memcpy(now.given, given, a->words * sizeof *given);
  MgCtx c;
  mg_ctx_init(&c);
  MgRc rc = gradgiven_compile(a, &c, given, &now.plan);
  now.failed = rc != MG_OK;
  if (rc != MG_OK && (mg_strict() || rc == MG_NOMEM)) mg_planrun_raise(rc, c.msg);
  else if (rc != MG_OK) PyErr_Clear(), mg_stats.fallbacks++; /* PyTorch runs them */
  mg_ctx_free(&c);
  found = PyErr_Occurred() ? NULL : gradgiven_find(a, given); /* another thread was faster */
  if (PyErr_Occurred() || found) return gradgiven_drop(&now), found;
  if (!(list = mg_realloc(a->given, (a->ngiven + 1) * sizeof *list))) {
    gradgiven_drop(&now);
    return (struct MgGradGiven *)PyErr_NoMemory();
  }
  a->given = list;
  list[a->ngiven] = now;
  return &list[a->ngiven++];
}

static bool gradgiven_all(const MgAutograd *a, const uint64_t *given) {
  for (uint32_t i = 0; i < a->nthrough; i++)
    if (!mg_bits_has(given, i)) return false;
  return true;
}

int mg_gradgiven_plan(MgAutograd *a, const uint64_t *given, MgPlan **bwd) {
  *bwd = a->bwd;
  if (!a->kept || gradgiven_all(a, given)) return 0;
  struct MgGradGiven *f = gradgiven_find(a, given);
  if (!f && a->ngiven == MG_TUNE_GRAD_SETS) return *bwd = NULL, 0;
  if (!f && !(f = gradgiven_add(a, given))) return -1;
  if (f->plan || f->failed) *bwd = f->plan;
  return 0;
}

typedef struct Needs { /* sets of tangents */
  uint64_t *of;        /* by value */
  uint64_t *now;
  uint32_t words;
} Needs;

static uint64_t *needs_at(const Needs *s, ValRef v) { return s->of + (size_t)s->words * v; }

static void needs_gather(ValRef *v, void *arg) {
  Needs *s = arg;
  mg_bits_join(s->now, needs_at(s, *v), s->words);
}

static void needs_spread(ValRef *v, void *arg) {
  Needs *s = arg;
  mg_bits_join(needs_at(s, *v), s->now, s->words);
}

static void needs_tangents(const MgAutograd *a, Needs *from) {
  MgGraph *g = &a->kept->g;
  for (uint32_t i = 0; i < a->nthrough; i++) mg_bits_add(needs_at(from, g->input[a->nsaved + i]), i);
  for (NodeRef n = 1; n < g->nnode; n++) {
    MgNode *node = mg_node(g, n);
    memset(from->now, 0, from->words * sizeof *from->now);
    if (!node->dead) mg_node_each_val(node, needs_gather, from);
    for (int i = 0; i < node->nout; i++)
      if (node->out[i]) memcpy(needs_at(from, node->out[i]), from->now, from->words * sizeof *from->now);
  }
}

static void needs_readers(const MgAutograd *a, const Needs *from, Needs *by) {
  MgGraph *g = &a->kept->g;
  for (NodeRef n = g->nnode; --n;) {
    MgNode *node = mg_node(g, n);
    memset(by->now, 0, by->words * sizeof *by->now);
    for (int i = 0; i < node->nout; i++) {
      ValRef v = node->out[i];
      if (!v) continue;
      bool depends = mg_bits_any(needs_at(from, v), by->words);
      mg_bits_join(by->now, depends ? needs_at(from, v) : needs_at(by, v), by->words);
    }
    if (!node->dead) mg_node_each_val(node, needs_spread, by);
  }
}

/* First which tangents each value depends on: without these it is zero, and what it is computed from is not
 * read.  What depends on none (saved values, what is computed of them again) is needed by
 * the tangents of its readers. */
int mg_gradgiven_needs(const MgAutograd *a, const uint64_t *given, bool *need) {
  const MgGraph *g = &a->kept->g;
  size_t all = (size_t)a->words * (g->nval + 1);
  Needs from = {mg_calloc(all, sizeof(uint64_t)), mg_calloc(a->words, sizeof(uint64_t)), a->words};
  Needs by = {mg_calloc(all, sizeof(uint64_t)), from.now, a->words};
  bool ok = from.of && from.now && by.of;
  if (ok) {
    needs_tangents(a, &from);
    needs_readers(a, &from, &by);
  }
  for (uint32_t k = 0; ok && k < a->nsaved; k++)
    need[k] = mg_bits_meet(needs_at(&by, g->input[k]), given, a->words);
  free(from.of);
  free(from.now);
  free(by.of);
  return ok ? 0 : (PyErr_NoMemory(), -1);
}
