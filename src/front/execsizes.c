/* Graphs with symbolic sizes.
 * In: a recorded graph whose sizes are expressions.  Out: runs at the sizes of each call.
 * The graph is compiled with its symbols: one plan serves all sizes at which what the compiler assumed of them holds, and others
 * get a plan of their own (EXECSIZES_PLANS at most).  Where that is not possible the graph is written out with numbers and compiled
 * like any other, for each assignment of the symbols.  Inference has to agree with the sizes that the recording gave out, once for
 * each assignment.  Assignments are dropped when many came after them.
 * Of a graph with backward, each assignment has an object of its own for autograd; these share the plans. */
#include "front/exec.h"
#include "front/planrun.h"
#include "front/resume.h"
#include "front/standin.h"
#include "front/symfollow.h"
#include "front/symsize.h"
#include "front/torchobj.h"
#include <stdlib.h>
#include <string.h>

enum {
  EXECSIZES_KEPT = 1024,   /* assignments */
  EXECSIZES_NUMBERS = 64,  /* of them with a plan of their own */
  EXECSIZES_PLANS = 8,
  EXECSIZES_TRIES = 2      /* compilations with symbols that may fail */
};

enum { SIZES_nobody, SIZES_rule, SIZES_torch }; /* ir/infer; torch's meta kernel, whose answers may differ at other sizes */

struct MgExecAt {
  uint32_t refs;       /* the table's, and one for each run from mg_exec_fits to its end */
  uint64_t used;       /* clock of the last run */
  bool fits;           /* inference agrees with the sizes that the recording gave out */
  bool refused;        /* no plan with symbols can be made for it */
  uint32_t plan;       /* the one that served it last */
  MgExec *run;         /* with numbers, but maybe shared plans; NULL: not needed yet */
  int64_t env[];       /* by symbol */
};

typedef struct SizesPlan {
  MgPlan *plan;
  uint32_t *overlap;   /* as MgExec.overlap */
} SizesPlan;

struct MgExecSizes {
  SrcRef *src;         /* by symbol */
  uint32_t n;
  MgCtx ctx;           /* the recording's arena, taken over */
  MgExprs x;
  MgGraph g;           /* no node: nothing is run, only the symbols' values are checked */
  SymRef *symbol;      /* by symbol: what guards say that it equals */
  uint8_t *inferred;   /* by node: who tells its results (SIZES_*) */
  bool *used;          /* by symbol: the graph mentions it; others are no part of an assignment */
  bool plans;          /* compile; else node by node */
  MgOptions opt;
  PyObject *objs;      /* strong: what MA_object arguments index */
  MgJointRec *joint;   /* in ctx; NULL: no backward */
  struct MgFunction *function; /* the calls of autograd.Function; in ctx */
  MgCapInput *input;   /* with it: the capture's, for their values only; in ctx */
  uint32_t ninput;
  MgAutograd *grad[EXECSIZES_PLANS]; /* with it, instead of plan; strong */
  SizesPlan plan[EXECSIZES_PLANS];
  uint32_t nplan, nfailed;
  MgExecAt **at;
  uint32_t nat, cap;
  uint32_t nrun;       /* assignments with a plan of their own */
  uint64_t clock;
};

void mg_execsizes_refuse(MgRec *r, const char *why) {
  r->sizes_failed = true;
  PyErr_Format(PyExc_RuntimeError, "magneto: %s", why);
}

bool mg_execsizes_has_graph(const MgExecSizes *s) { return s->g.nnode; }
bool mg_execsizes_has_plans(const MgExecSizes *s) { return s->plans; }

/* ---- assignments ---- */

void mg_exec_leave(MgExecAt *a) {
  if (!a || --a->refs) return;
  mg_exec_free(a->run);
  free(a);
}

void mg_execsizes_free(MgExecSizes *s) {
  if (!s) return;
  while (s->nat) mg_exec_leave(s->at[--s->nat]);
  for (uint32_t i = 0; i < s->nplan; i++) {
    Py_XDECREF(s->grad[i]);
    mg_plan_free(s->plan[i].plan);
    free(s->plan[i].overlap);
  }
  Py_XDECREF(s->objs);
  mg_ctx_free(&s->ctx);
  free(s->at);
  free(s->symbol);
  free(s->inferred);
  free(s->used);
  free(s->src);
  free(s);
}

typedef struct SizesGraph { /* the graph for one use */
  MgCtx ctx;
  MgExprs x;
  MgGraph g;
} SizesGraph;

/* Out of `from`, with backward, with numbers or with symbols whose hints are env.  False: out of memory; freed by the caller in
 * every case. */
static bool sizes_graph(const MgExecSizes *s, const MgGraph *from, const int64_t *env, bool symbols, SizesGraph *t) {
  MgGraph all = *from;
  mg_ctx_init(&t->ctx);
  if (mg_exprs_init(&t->x, &t->ctx) || mg_graph_init(&t->g, &t->ctx, &t->x)) return false;
  if (s->joint) all.nnode = s->joint->nnode, all.nval = s->joint->nval;
  return !(symbols ? mg_graph_copy(&t->g, &all, s->symbol, env) : mg_graph_at(&t->g, &all, env));
}

/* Leaves the backward part away; mg_joint_extend gives it back. */
static void sizes_forward(const MgExecSizes *s, SizesGraph *t) {
  t->g.nnode = s->g.nnode;
  t->g.nval = s->g.nval;
}

/* What the compiler wants to know of a recording. */
typedef struct SizesRec {
  MgCapture cap;
  MgConfig cfg;
  MgRec r;
} SizesRec;

static MgRec *sizes_rec(const MgExecSizes *s, SizesGraph *t, SizesRec *q) {
  *q = (SizesRec){.cap = {.objs = s->objs, .input = s->input, .ninput = s->ninput, .function = s->function}, .cfg = {.opt = s->opt}};
  q->r = (MgRec){.ctx = &t->ctx, .x = &t->x, .g = &t->g, .cap = &q->cap, .cfg = &q->cfg, .joint = s->joint};
  return &q->r;
}

/* mg_graph_agrees for an op that ir/infer does not know. */
static bool sizes_torch_agrees(const MgExecSizes *s, SizesGraph *t, NodeRef n) {
  SizesRec q;
  MgRec *r = sizes_rec(s, t, &q);
  const MgFrontOp *fo = mg_frontop_of(mg_node(&t->g, n)->op);
  const MgNode before = *mg_node(&t->g, n);
  PyObject *none = NULL;
  q.cap.sizes.inputs = true; /* no kernel is run for real */
  q.cap.rec = r;
  bool same = fo && !mg_metainfer_run(r, fo, n, &none) && mg_node(&t->g, n)->nout == before.nout;
  for (int i = 0; same && i < before.nout; i++) same = mg_graph_same(&t->g, before.out[i], mg_node(&t->g, n)->out[i]);
  Py_XDECREF(none);
  PyErr_Clear();
  mg_node(&t->g, n)->out = before.out;
  mg_node(&t->g, n)->nout = before.nout;
  return same;
}

static bool sizes_agree(const MgExecSizes *s, const int64_t *env) {
  SizesGraph t;
  bool fits = sizes_graph(s, &s->g, env, false, &t);
  for (NodeRef n = 1; fits && n < t.g.nnode; n++)
    fits = s->inferred[n] == SIZES_rule ? mg_graph_agrees(&t.g, n) : !s->inferred[n] || sizes_torch_agrees(s, &t, n);
  mg_ctx_free(&t.ctx);
  if (!fits) mg_log(MG_LOG_recompiles, "a recorded graph is not right at these sizes");
  return fits;
}

static bool sizes_has_plan(const MgExecAt *a) { return a->run && (a->run->plan || a->run->grad); }

/* The assignment used longest ago, of those with a plan of their own or of all; nat: none. */
static uint32_t sizes_oldest(const MgExecSizes *s, bool with_plan) {
  uint32_t old = s->nat;
  for (uint32_t i = 0; i < s->nat; i++)
    if ((!with_plan || sizes_has_plan(s->at[i])) && (old == s->nat || s->at[i]->used < s->at[old]->used)) old = i;
  return old;
}

static void sizes_drop(MgExecSizes *s, uint32_t i) {
  if (i == s->nat) return;
  MgExecAt *a = s->at[i];
  s->nrun -= sizes_has_plan(a);
  s->at[i] = s->at[--s->nat];
  mg_exec_leave(a);
}

static bool sizes_room(MgExecSizes *s) {
  if (s->nat == EXECSIZES_KEPT) sizes_drop(s, sizes_oldest(s, false));
  if (s->nat < s->cap) return true;
  uint32_t cap = s->cap ? 2 * s->cap : 8;
  MgExecAt **p = mg_realloc(s->at, cap * sizeof *p);
  if (!p) return false;
  s->at = p;
  s->cap = cap;
  return true;
}

/* The assignment env, made when it is new; NULL: out of memory. */
static MgExecAt *sizes_find(MgExecSizes *s, const int64_t *env) {
  size_t bytes = s->n * sizeof *env;
  for (uint32_t i = s->nat; i-- > 0;)
    if (!memcmp(s->at[i]->env, env, bytes)) return s->at[i];
  MgExecAt *a = sizes_room(s) ? mg_calloc(1, sizeof *a + bytes) : NULL;
  if (!a) return NULL;
  a->refs = 1;
  memcpy(a->env, env, bytes);
  a->fits = sizes_agree(s, env);
  return s->at[s->nat++] = a;
}

bool mg_exec_fits(MgExec *e, PyObject *const *vals, MgExecAt **at) {
  int64_t small[16];
  MgExecSizes *s = e->sizes;
  if (!s) return true;
  int64_t *env = s->n > 16 ? mg_malloc(s->n * sizeof *env) : small;
  bool fits = env && mg_symsize_values(e->guards, s->src, s->n, vals, env);
  if (fits && s->g.nnode) {
    for (uint32_t i = 0; i < s->n; i++)
      if (!s->used[i]) env[i] = s->x.sym[i].hint;
    MgExecAt *a = sizes_find(s, env);
    fits = a && a->fits;
    if (fits) {
      a->refs++;
      a->used = ++s->clock;
      *at = a;
    }
  }
  if (env != small) free(env);
  return fits;
}

/* ---- with symbols ---- */

/* A plan for the sizes of a, and as many others as possible.  1: made; 0: not possible; -1 with an exception. */
static int sizes_new_plan(MgExec *e, const MgExecAt *a, PyObject *const *in) {
  MgExecSizes *s = e->sizes;
  SizesGraph t;
  MgExec made = {.ninput = e->ninput};
  MgRc rc = MG_NOMEM;
  int done = sizes_graph(s, &s->g, a->env, true, &t) ? 0 : -1;
  SizesRec rec;
  if (done) PyErr_NoMemory();
  else if ((done = mg_exec_compile(&made, sizes_rec(s, &t, &rec), &s->opt, in, &rc)) == 0 && rc != MG_OK) {
    s->nfailed++;
    mg_log(MG_LOG_fallback, "a graph is compiled for each of its sizes: %s", *t.ctx.msg ? t.ctx.msg : mg_rc_text(rc));
  }
  mg_ctx_free(&t.ctx);
  if (done > 0 && s->nplan < EXECSIZES_PLANS) s->plan[s->nplan++] = (SizesPlan){made.plan, made.overlap};
  else if (done > 0) { /* other threads were faster */
    mg_plan_free(made.plan);
    free(made.overlap);
    done = 0;
  }
  return done;
}

/* 0; -1 with an exception; -2: the same, an error of ours before anything was written; -3: no plan with symbols is for this. */
static int sizes_run_plan(MgExec *e, PyObject *const *in, MgExecAt *a, MgClaims *claims, PyObject **outs) {
  MgExecSizes *s = e->sizes;
  for (uint32_t i = 0; i <= s->nplan; i++) {
    uint32_t k = !i ? a->plan : i - 1; /* the last one first */
    if (k >= s->nplan || (i && k == a->plan) || !mg_exec_same_overlap(s->plan[k].overlap, e->ninput, in)) continue;
    int rc = mg_exec_plan(s->plan[k].plan, in, a->env, claims, outs);
    if (rc == -3) continue;
    a->plan = k;
    return rc;
  }
  return -3;
}

/* ---- with numbers ---- */

static MgExec *sizes_new_run(const MgExec *e, const MgExecAt *a, bool plan, PyObject *const *in) {
  MgExecSizes *s = e->sizes;
  SizesGraph t;
  MgExec *run = sizes_graph(s, &s->g, a->env, false, &t) ? mg_calloc(1, sizeof *run) : NULL;
  SizesRec rec;
  if (!run) {
    PyErr_NoMemory();
  } else {
    MgRec *r = sizes_rec(s, &t, &rec);
    run->ninput = e->ninput;
    run->noutput = e->noutput;
    if (s->joint) sizes_forward(s, &t);
    mg_exec_log_graph(&t.g);
    if (!(run->nodes = mg_noderun_build(r)) || (plan && mg_exec_build_plan(run, r, &s->opt, in) < 0)) {
      mg_exec_free(run);
      run = NULL;
    }
  }
  mg_ctx_free(&t.ctx);
  return run;
}

static void sizes_adopt(MgExecSizes *s, MgExecAt *a, MgExec *run) {
  if (a->run) { /* another thread was faster */
    mg_exec_free(run);
    return;
  }
  a->run = run;
  s->nrun += sizes_has_plan(a);
  if (s->nrun > EXECSIZES_NUMBERS) sizes_drop(s, sizes_oldest(s, true));
}

static int sizes_run_numbers(MgExec *e, PyObject *const *in, MgExecAt *a, bool plan, MgClaims *claims, PyObject **outs) {
  MgExecSizes *s = e->sizes;
  if (!a->run) {
    MgExec *run = sizes_new_run(e, a, plan, in);
    if (!run) return -1;
    sizes_adopt(s, a, run);
  }
  return mg_exec_dispatch(a->run, in, NULL, claims, outs);
}

/* ---- with backward ---- */

/* Plans for the sizes of a, borrowed, compiled when there are none.  0: *out may be NULL, then numbers are compiled; -1 with an
 * exception. */
static int sizes_find_grad(MgExec *e, const MgExecAt *a, MgAutograd **out) {
  MgExecSizes *s = e->sizes;
  SizesGraph t;
  SizesRec rec;
  *out = NULL;
  for (uint32_t i = 0; i < s->nplan; i++)
    if (mg_plan_takes(s->grad[i]->fwd, a->env) && (!s->grad[i]->bwd || mg_plan_takes(s->grad[i]->bwd, a->env)))
      return *out = s->grad[i], 0;
  if (s->nplan == EXECSIZES_PLANS || s->nfailed >= EXECSIZES_TRIES) return 0;
  bool ok = sizes_graph(s, &s->g, a->env, true, &t);
  if (ok) sizes_forward(s, &t);
  MgRc rc = ok ? mg_autograd_plans(sizes_rec(s, &t, &rec), e->ninput, out) : MG_NOMEM;
  if (rc != MG_OK) {
    s->nfailed++;
    mg_log(MG_LOG_fallback, "a graph is compiled for each of its sizes: %s", *t.ctx.msg ? t.ctx.msg : mg_rc_text(rc));
  }
  mg_ctx_free(&t.ctx);
  if (rc == MG_PYERR && PyErr_Occurred()) return -1;
  PyErr_Clear();
  if (*out && s->nplan == EXECSIZES_PLANS) Py_CLEAR(*out); /* other threads were faster */
  if (*out) {
    s->grad[s->nplan++] = *out;
    mg_stats.joint_graphs++;
  }
  return 0;
}

static MgExec *sizes_new_grad(MgExec *e, const MgExecAt *a, PyObject *const *in) {
  MgExecSizes *s = e->sizes;
  SizesGraph t;
  SizesRec rec;
  MgAutograd *plans;
  if (sizes_find_grad(e, a, &plans)) return NULL;
  MgExec *run = sizes_graph(s, &s->g, a->env, false, &t) ? mg_calloc(1, sizeof *run) : NULL;
  int made = -1;
  if (!run) {
    PyErr_NoMemory();
  } else {
    run->ninput = e->ninput;
    run->noutput = e->noutput;
    sizes_forward(s, &t);
    made = mg_exec_build_grad(run, sizes_rec(s, &t, &rec), in, plans, a->env, s->n);
    if (made > 0) run->grad->views = e->views;
    if (!made && mg_exec_nodes_differentiate(&rec.r)) made = -1;
  }
  mg_ctx_free(&t.ctx);
  if (made > 0) return run;
  mg_exec_free(run);
  return made ? NULL : sizes_new_run(e, a, false, in);
}

static int sizes_run_grad(MgExec *e, PyObject *const *in, MgExecAt *a, PyObject **outs) {
  MgExecSizes *s = e->sizes;
  if (!a->run) {
    MgExec *run = sizes_new_grad(e, a, in);
    if (!run) return -1;
    sizes_adopt(s, a, run);
  }
  return mg_exec_dispatch(a->run, in, NULL, NULL, outs);
}

int mg_execsizes_run(MgExec *e, PyObject *const *in, MgExecAt *a, MgClaims *claims, PyObject **outs) {
  MgExecSizes *s = e->sizes;
  if (s->joint) return sizes_run_grad(e, in, a, outs);
  if (!s->plans) return sizes_run_numbers(e, in, a, false, claims, outs);
  int rc = a->refused ? -3 : sizes_run_plan(e, in, a, claims, outs);
  if (rc == -3 && !a->refused) {
    int made = s->nplan < EXECSIZES_PLANS && s->nfailed < EXECSIZES_TRIES ? sizes_new_plan(e, a, in) : 0;
    if (made < 0) return -1;
    a->refused = !made;
    if (made) rc = sizes_run_plan(e, in, a, claims, outs);
  }
  if (rc == -2) {
    s->plans = false;
    return mg_strict() || mg_exec_give_up_plan(e) ? -1 : sizes_run_numbers(e, in, a, false, claims, outs);
  }
  return rc == -3 ? sizes_run_numbers(e, in, a, true, claims, outs) : rc;
}

/* ---- building ---- */

static bool sizes_known(MgExecSizes *s, const MgSymSizes *known) {
  if (!(s->symbol = mg_malloc(s->n * sizeof *s->symbol))) return false;
  memcpy(s->symbol, known->ref, s->n * sizeof *s->symbol);
  return !mg_symbols_known(&s->x, known->equal, known->nequal, s->symbol);
}

int mg_execsizes_take(MgExec *e, MgRec *r, const MgConfig *cfg, bool graph, bool plans) {
  const MgSymSizes *sizes = &r->cap->sizes;
  MgExecSizes *s = e->sizes = mg_calloc(1, sizeof *s);
  if (!s) return PyErr_NoMemory(), -1;
  s->n = sizes->nsrc;
  if (!(s->src = mg_malloc(s->n * sizeof *s->src))) return PyErr_NoMemory(), -1;
  memcpy(s->src, sizes->src, s->n * sizeof *s->src);
  if (!graph) return 0;
  s->objs = Py_NewRef(r->cap->objs);
  int64_t *env = mg_malloc(s->n * sizeof *env);
  SizesGraph t;
  mg_ctx_init(&t.ctx);
  s->joint = r->joint;
  s->function = r->cap->function;
  bool ok = env && (s->inferred = mg_calloc(r->joint ? r->joint->nnode : r->g->nnode, sizeof *s->inferred));
  for (uint32_t i = 0; i < s->n && ok; i++) env[i] = mg_sym_hint(r->x, sizes->ref[i]);
  ok = ok && sizes_graph(s, r->g, env, false, &t);
  for (NodeRef n = 1; ok && n < t.g.nnode; n++)
    s->inferred[n] = mg_graph_agrees(&t.g, n) ? SIZES_rule : !sizes->ndata && mg_symfollow_reads(r->g, n) && sizes_torch_agrees(s, &t, n) ? SIZES_torch : SIZES_nobody;
  mg_ctx_free(&t.ctx);
  free(env);
  if (!ok) return PyErr_NoMemory(), -1;
  s->plans = plans;
  s->opt = cfg->opt;
  mg_rec_move_graph(r, &s->ctx, &s->x, &s->g);
  if (s->joint) {
    if (!(s->input = mg_new(&s->ctx, MgCapInput, r->cap->ninput + 1))) return PyErr_NoMemory(), -1;
    memcpy(s->input, r->cap->input, r->cap->ninput * sizeof *s->input);
    s->ninput = r->cap->ninput;
  }
  ok = sizes_known(s, sizes) && (s->used = mg_calloc(s->x.nsym + 1, sizeof *s->used)) &&
       mg_graph_symbols(&s->g, s->joint ? s->joint->nnode : s->g.nnode, s->joint ? s->joint->nval : s->g.nval, s->symbol, s->used) == MG_OK;
  return ok ? 0 : (PyErr_NoMemory(), -1);
}
