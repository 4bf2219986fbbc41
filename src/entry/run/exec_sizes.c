/* Graphs with symbolic sizes.
 * In: a recorded graph whose sizes are expressions.  Out: runs at the sizes of each call.
 * The graph is compiled with its symbols: one plan serves all sizes at which what the compiler assumed of
 * them holds, and others get a plan of their own (MG_TUNE_SIZES_PLANS at most).  Where that is not possible
 * the graph is written out with numbers and compiled like any other, for each assignment of the symbols.
 * Inference has to agree with the sizes that the recording gave out: size_proof.c says at which sizes it
 * does, else it runs once for each assignment.  Assignments are dropped when many came after them. Of a graph
 * with backward, each assignment has an object of its own for autograd; these share the plans. */
#include "entry/run/exec_sizes.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/env.h"
#include "base/log.h"
#include "entry/grad/joint_plans.h"
#include "entry/guard/guard_set.h"
#include "entry/guard/source.h"
#include "entry/launch/config.h"
#include "entry/launch/graph_interp.h"
#include "entry/launch/plan_call.h"
#include "entry/launch/stats.h"
#include "entry/launch/trace.h"
#include "entry/run/exec.h"
#include "entry/run/exec_compile.h"
#include "entry/run/exec_run.h"
#include "entry/verify/verify.h"
#include "host/python/interrupt.h"
#include "host/python/pyframe.h"
#include "results.h"
#include "host/torch/literals.h"
#include "ir/infer/graph_at.h"
#include "runtime/plan/plan.h"
#include "tuning.h"

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
    free(s->plan[i].written);
    mg_verify_free(s->plan[i].verify);
  }
  Py_XDECREF(s->objs);
  mg_ctx_free(&s->ctx);
  mg_verify_free(s->verify);
  mg_size_proof_free(s->proof);
  free(s->at);
  free(s->symbol);
  free(s->inferred);
  free(s->used);
  free(s->src);
  free(s);
}

bool mg_sizes_graph(const MgExecSizes *s, const MgGraph *from, const int64_t *env, bool symbols,
                    SizesGraph *t) {
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

static MgTrace sizes_trace(const MgExecSizes *s, SizesGraph *t) {
  return (MgTrace){.ctx = &t->ctx,
                   .x = &t->x,
                   .g = &t->g,
                   .objs = s->objs,
                   .function = s->function,
                   .hooked = s->hooked,
                   .joint = s->joint,
                   .input = s->input,
                   .ninput = s->ninput,
                   .opt = &s->opt,
                   .name = s->name,
                   .recording = s->recording};
}

/* Does inference agree with the graph at these sizes?  Looks for a proof once a second assignment comes. */
static bool sizes_agree(MgExecSizes *s, const int64_t *env) {
  SizesGraph t;
  if (mg_size_proof_holds(s->proof, env)) return true;
  mg_stats.inferred++;
  bool fits = mg_sizes_graph(s, &s->g, env, false, &t);
  for (NodeRef n = 1; fits && n < t.g.nnode; n++)
    fits = s->inferred[n] == SIZES_rule ? mg_graph_agrees(&t.g, n) : !s->inferred[n] || s->agrees(s, &t, n);
  mg_ctx_free(&t.ctx);
  if (!fits) mg_log(MG_LOG_recompiles, "a recorded graph is not right at these sizes");
  if (!fits || !s->nat || s->nproof >= MG_TUNE_SIZES_PROOFS) return fits;
  s->nproof++;
  MgSizeProof *proof = mg_sizes_graph(s, &s->g, env, true, &t) ? mg_size_proof_new(&t, s->inferred) : NULL;
  mg_ctx_free(&t.ctx);
  if (proof) mg_size_proof_free(s->proof), s->proof = proof;
  return true;
}

static bool sizes_has_plan(const MgExecAt *a) { return a->run && (a->run->plan || a->run->grad); }

/* The assignment used longest ago, of those with a plan of their own or of all; nat: none. */
static uint32_t sizes_oldest(const MgExecSizes *s, bool with_plan) {
  uint32_t old = s->nat;
  for (uint32_t i = 0; i < s->nat; i++)
    if ((!with_plan || sizes_has_plan(s->at[i])) && (old == s->nat || s->at[i]->used < s->at[old]->used))
      old = i;
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
  if (s->nat == MG_TUNE_SIZES_KEPT) sizes_drop(s, sizes_oldest(s, false));
  return s->nat < s->cap || mg_grow(&s->at, &s->cap, sizeof *s->at, 8);
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

/* ---- compiling inside of a run ---- */

typedef struct SizesWork {
  MgInterrupt work;
  bool on, held;
} SizesWork;

/* A run that has drawn random numbers is not given up: the next one would draw others. */
static void sizes_begin(const MgExec *e, SizesWork *w) {
  w->on = !e->guards || !e->guards->ndraw;
  if (!w->on) return;
  w->held = mg_pyframe_hold_signals(PyThreadState_Get(), true);
  mg_interrupt_begin(&w->work, (int)e->sizes->nstopped);
}

/* 0; -1 with an exception if it failed; MG_RUN_STOPPED if it was given up. */
static int sizes_end(MgExec *e, SizesWork *w, bool failed) {
  if (w->on) mg_interrupt_end(&w->work);
  if (w->on) mg_pyframe_hold_signals(PyThreadState_Get(), w->held);
  if (!failed || !w->on || !w->work.due) return failed ? -1 : 0;
  PyErr_Clear(); /* it only says that the work was given up */
  e->sizes->nstopped++;
  mg_stats.stopped++;
  return MG_RUN_STOPPED;
}

/* ---- with symbols ---- */

/* A plan for the sizes of a, and as many others as possible.  1: made; 0: not
 * possible; -1 with an exception. */
static int sizes_new_plan(MgExec *e, const MgExecAt *a, PyObject *const *in) {
  MgExecSizes *s = e->sizes;
  SizesGraph t;
  MgExec made = {.ninput = e->ninput};
  MgRc rc = MG_NOMEM;
  int done = mg_sizes_graph(s, &s->g, a->env, true, &t) ? 0 : -1;
  MgTrace trace = sizes_trace(s, &t);
  t.ctx.stop = mg_interrupt_due;
  if (done) PyErr_NoMemory();
  else if ((done = mg_exec_compile(&made, &trace, &s->opt, in, &rc)) == 0 && t.ctx.stopped) {
    PyErr_NoMemory();
    done = -1;
  } else if (!done && rc != MG_OK) {
    s->nfailed++;
    mg_log(MG_LOG_fallback, "a graph is compiled for each of its sizes: %s",
           *t.ctx.msg ? t.ctx.msg : mg_rc_text(rc));
  }
  mg_ctx_free(&t.ctx);
  if (done > 0 && s->nplan < MG_TUNE_SIZES_PLANS) {
    mg_verify_share(&made.verify, &s->verify);
    s->plan[s->nplan++] = (SizesPlan){made.plan, made.written, made.verify};
  } else if (done > 0) { /* other threads were faster */
    mg_plan_free(made.plan);
    free(made.written);
    mg_verify_free(made.verify);
    done = 0;
  }
  return done;
}

/* ---- with numbers ---- */

static MgExec *sizes_new_run(const MgExec *e, const MgExecAt *a, bool plan, PyObject *const *in) {
  MgExecSizes *s = e->sizes;
  SizesGraph t;
  MgExec *run = mg_sizes_graph(s, &s->g, a->env, false, &t) ? mg_calloc(1, sizeof *run) : NULL;
  t.ctx.stop = mg_interrupt_due;
  if (!run) {
    PyErr_NoMemory();
  } else {
    MgTrace trace = sizes_trace(s, &t);
    run->ninput = e->ninput;
    run->noutput = e->noutput;
    if (s->joint) sizes_forward(s, &t);
    mg_exec_log_graph(&t.g);
    if (!(run->nodes = mg_noderun_build(&trace)) ||
        (plan && mg_exec_build_plan(run, &trace, &s->opt, in) < 0)) {
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
  mg_verify_share(&run->verify, &s->verify);
  s->nrun += sizes_has_plan(a);
  if (s->nrun > MG_TUNE_SIZES_NUMBERS) sizes_drop(s, sizes_oldest(s, true));
}

static int sizes_run_numbers(MgExec *e, PyObject *const *in, MgExecAt *a, bool plan, MgClaims *claims,
                             PyObject **outs) {
  MgExecSizes *s = e->sizes;
  if (!a->run) {
    SizesWork w;
    sizes_begin(e, &w);
    MgExec *run = sizes_new_run(e, a, plan, in);
    int rc = sizes_end(e, &w, !run);
    if (rc) return rc;
    sizes_adopt(s, a, run);
  }
  return mg_exec_dispatch(a->run, in, NULL, claims, outs);
}

/* ---- by a plan with symbols ---- */

/* Compares plan p with the nodes at these sizes.  1: the graph was left to eager; -1 with an exception. */
static int sizes_verify(MgExec *e, const SizesPlan *p, const MgExecAt *a, PyObject *const *in) {
  MgExec *eager = sizes_new_run(e, a, false, in);
  if (!eager) return -1;
  MgVerifyWays w = {
      .nodes = eager->nodes, .plan = p->plan, .sizes = a->env, .ninput = e->ninput, .noutput = e->noutput};
  int rc = mg_verify_compare(p->verify, &w, in);
  mg_exec_free(eager);
  if (p->verify->differs) e->sizes->plans = false;
  return rc;
}

/* As mg_exec_plan; MG_RUN_SIZES: no plan with symbols is for these. */
static int sizes_run_plan(MgExec *e, PyObject *const *in, MgExecAt *a, MgClaims *claims, PyObject **outs) {
  MgExecSizes *s = e->sizes;
  for (uint32_t i = 0; i <= s->nplan; i++) {
    uint32_t k = !i ? a->plan : i - 1; /* the last one first */
    if (k >= s->nplan || (i && k == a->plan) || !mg_exec_alone(s->plan[k].written, e->ninput, in)) continue;
    MgVerify *v = s->plan[k].verify;
    if (v && mg_plan_takes(s->plan[k].plan, a->env) && mg_verify_due(v)) {
      int other = sizes_verify(e, &s->plan[k], a, in);
      if (other) return other < 0 ? -1 : sizes_run_numbers(e, in, a, false, claims, outs);
    }
    int rc = mg_exec_plan(s->plan[k].plan, in, a->env, claims, outs);
    if (rc == MG_RUN_SIZES) continue;
    a->plan = k;
    return rc;
  }
  return MG_RUN_SIZES;
}

/* ---- with backward ---- */

/* Plans for the sizes of a, borrowed, compiled when there are none.  0: *out may be NULL, then numbers are
 * compiled; -1 with an exception. */
static int sizes_find_grad(MgExec *e, const MgExecAt *a, MgAutograd **out) {
  MgExecSizes *s = e->sizes;
  SizesGraph t;
  *out = NULL;
  for (uint32_t i = 0; i < s->nplan; i++)
    if (mg_plan_takes(s->grad[i]->fwd, a->env) &&
        (!s->grad[i]->bwd || mg_plan_takes(s->grad[i]->bwd, a->env)))
      return *out = s->grad[i], 0;
  if (s->nplan == MG_TUNE_SIZES_PLANS || s->nfailed >= MG_TUNE_SIZES_TRIES) return 0;
  bool ok = mg_sizes_graph(s, &s->g, a->env, true, &t);
  t.ctx.stop = mg_interrupt_due;
  if (ok) sizes_forward(s, &t);
  MgTrace trace = sizes_trace(s, &t);
  MgRc rc = ok ? mg_autograd_plans(&trace, e->ninput, out) : MG_NOMEM;
  if (rc != MG_OK && !t.ctx.stopped) {
    s->nfailed++;
    mg_log(MG_LOG_fallback, "a graph is compiled for each of its sizes: %s",
           *t.ctx.msg ? t.ctx.msg : mg_rc_text(rc));
  }
  mg_ctx_free(&t.ctx);
  if (t.ctx.stopped) return PyErr_NoMemory(), -1;
  if (rc == MG_PYERR && PyErr_Occurred()) return -1;
  PyErr_Clear();                                               /* no plan: the caller has another way */
  if (*out && s->nplan == MG_TUNE_SIZES_PLANS) Py_CLEAR(*out); /* other threads were faster */
  if (*out) {
    s->grad[s->nplan++] = *out;
    mg_stats.joint_graphs++;
  }
  return 0;
}

static MgExec *sizes_new_grad(MgExec *e, const MgExecAt *a, PyObject *const *in) {
  MgExecSizes *s = e->sizes;
  SizesGraph t;
  MgAutograd *plans;
  if (sizes_find_grad(e, a, &plans)) return NULL;
  MgExec *run = mg_sizes_graph(s, &s->g, a->env, false, &t) ? mg_calloc(1, sizeof *run) : NULL;
  int made = -1;
  t.ctx.stop = mg_interrupt_due;
  if (!run) {
    PyErr_NoMemory();
  } else {
    run->ninput = e->ninput;
    run->noutput = e->noutput;
    sizes_forward(s, &t);
    MgTrace trace = sizes_trace(s, &t);
    made = mg_exec_build_grad(run, &trace, in, plans, a->env, s->n);
    if (made > 0) run->grad->views = e->views;
    if (!made && mg_exec_nodes_differentiate(&trace)) made = -1;
  }
  mg_ctx_free(&t.ctx);
  if (made > 0) return run;
  mg_exec_free(run);
  return made ? NULL : sizes_new_run(e, a, false, in);
}

static int sizes_run_grad(MgExec *e, PyObject *const *in, MgExecAt *a, MgClaims *claims, PyObject **outs) {
  MgExecSizes *s = e->sizes;
  if (!a->run) {
    SizesWork w;
    sizes_begin(e, &w);
    MgExec *run = sizes_new_grad(e, a, in);
    int rc = sizes_end(e, &w, !run);
    if (rc) return rc;
    sizes_adopt(s, a, run);
  }
  return mg_exec_dispatch(a->run, in, NULL, claims, outs);
}

int mg_execsizes_run(MgExec *e, PyObject *const *in, MgExecAt *a, MgClaims *claims, PyObject **outs) {
  MgExecSizes *s = e->sizes;
  if (s->joint) return sizes_run_grad(e, in, a, claims, outs);
  if (!s->plans) return sizes_run_numbers(e, in, a, false, claims, outs);
  int rc = a->refused ? MG_RUN_SIZES : sizes_run_plan(e, in, a, claims, outs);
  if (rc == MG_RUN_SIZES && !a->refused) {
    SizesWork w;
    sizes_begin(e, &w);
    int made =
        s->nplan < MG_TUNE_SIZES_PLANS && s->nfailed < MG_TUNE_SIZES_TRIES ? sizes_new_plan(e, a, in) : 0;
    int failed = sizes_end(e, &w, made < 0);
    if (failed) return failed;
    a->refused = !made;
    if (made) rc = sizes_run_plan(e, in, a, claims, outs);
  }
  if (rc == MG_RUN_FAILED) {
    s->plans = false;
    return mg_strict() || mg_exec_give_up_plan(e) ? -1 : sizes_run_numbers(e, in, a, false, claims, outs);
  }
  return rc == MG_RUN_SIZES ? sizes_run_numbers(e, in, a, true, claims, outs) : rc;
}
