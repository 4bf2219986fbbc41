/* See the header. */
#include "entry/run/whole_trial.h"
#include "base/env.h"
#include "base/log.h"
#include "entry/grad/grad_weigh.h"
#include "entry/grad/joint_plans.h"
#include "entry/guard/guard_set.h"
#include "entry/launch/stats.h"
#include "entry/run/entry_cache.h"
#include "entry/run/exec.h"
#include "entry/run/exec_sizes.h"
#include "runtime/plan/plan.h"
#include "tuning.h"

static MgWhole *whole_of(MgEntry *e, MgExecAt *at) { return at ? &at->whole : &e->whole; }

/* What runs at these sizes. */
static MgExec *whole_exec(MgEntry *e, MgExecAt *at) { return at ? at->run : e->exec; }

/* Is the graph run op by op?  Under autograd such are graphs that only give views of their inputs. */
static bool whole_by_nodes(const MgExec *x) {
  return x && x->nodes && !x->plan && !x->grad && !x->callable && !x->plan_failed;
}

/* Does the graph not change from call to call? */
static bool whole_stays(MgEntry *e, MgExecAt *at) {
  const MgExec *x = whole_exec(e, at);
  if (e->exec->stages || whole_by_nodes(x)) return true;
  if (x && x->grad) return !x->written && !x->grad->random && !x->grad->asked && !x->grad->lost;
  return x && x->plan ? !x->plan_failed : at && e->exec->sizes->nplan && !e->exec->sizes->joint;
}

/* Does a run do anything but call ATen, as CPython would? */
static bool whole_has_kernels(MgEntry *e, MgExecAt *at) {
  const MgExec *x = whole_exec(e, at);
  if (!x || !x->plan) return !e->exec->stages && !whole_by_nodes(x);
  MgPlanInfo info;
  mg_plan_info(x->plan, &info);
  return info.nkernel > 0;
}

/* Not for runs that may be given up. */
static bool whole_applies(MgEntry *e, MgExecAt *at) {
  const MgExec *x = e->exec;
  if (e->nnode < 1 || e->nnode > MG_TUNE_WHOLE_NODES || !e->is_ret || e->claims || e->guards->ndraw)
    return false;
  if (!mg_env_switch(ENV_TRIALS, true) || x->callable || x->spent || x->plan_failed) return false;
  return (at || !x->sizes) && whole_stays(e, at);
}

/* Calls of a function that only ever had one entry need no guards for a while. */
static void whole_burst(MgEntry *e) {
  MgBucket *b = e->bucket;
  if (!b || b->n != 1 || b->site->n != 1) return;
  if (e->whole.burst < MG_TUNE_WHOLE_BURST) e->whole.burst = e->whole.burst ? 2 * e->whole.burst : 1;
  b->rest = e->whole.burst;
  b->site->rests = true;
}

static void whole_begin(MgEntry *e, MgWhole *w) {
  w->phase = WHOLE_timed;
  w->runs = 0;
  w->plan = w->eager = 1e30f;
  if (e->bucket) e->bucket->site->timed = true;
}

static void whole_end(MgEntry *e, MgWhole *w, MgWholePhase phase) {
  w->phase = (uint8_t)phase;
  if (e->bucket) e->bucket->site->timed = false; /* who else is timed begins at its own call */
}

/* better: what counts as faster, as a share of the compiled time. */
static void whole_decide(MgEntry *e, MgWhole *w, float better) {
  bool left = w->eager < w->plan * better;
  whole_end(e, w, left ? WHOLE_left : WHOLE_kept);
  mg_stats.left += left;
  mg_log(MG_LOG_fallback, "a graph of %d nodes at line %d: %.3g ms a call, %.3g ms in CPython%s", e->nnode,
         e->line, (double)w->plan, (double)w->eager, left ? ": left to it" : "");
}

bool mg_whole_leaves(MgEntry *e, MgExecAt *at, bool unseen) {
  MgWhole *w = whole_of(e, at);
  switch ((MgWholePhase)w->phase) {
  case WHOLE_count:
    if (w->runs < MG_TUNE_WHOLE_FIRST) w->runs++;
    else if (whole_applies(e, at)) whole_begin(e, w);
    else w->phase = WHOLE_kept;
    return false;
  case WHOLE_timed: return w->runs / MG_TUNE_WHOLE_ROW & 1;
  case WHOLE_left:
    if (unseen && !at) whole_burst(e);
    return true;
  case WHOLE_weighed:
  case WHOLE_kept: break;
  }
  return false;
}

bool mg_whole_times(const MgEntry *e, const MgExecAt *at) {
  const MgWhole *w = at ? &at->whole : &e->whole;
  return w->phase == WHOLE_timed || w->phase == WHOLE_weighed;
}

void mg_whole_note(MgEntry *e, MgExecAt *at, bool eager, double ms) {
  MgWhole *w = whole_of(e, at);
  MgExec *x = whole_exec(e, at);
  if (w->phase == WHOLE_weighed && x) { /* the run has noted both */
    w->plan = mg_gradweigh_both(&x->weighed, false, w->plan);
    w->eager = mg_gradweigh_both(&x->weighed, true, w->eager);
    whole_decide(e, w, MG_TUNE_WHOLE_GRAD);
    return;
  }
  if (w->phase != WHOLE_timed) return;
  float *best = eager ? &w->eager : &w->plan;
  if ((float)ms < *best) *best = (float)ms;
  if (ms > MG_TUNE_WHOLE_LONGEST) whole_end(e, w, WHOLE_kept);
  else if (++w->runs < 2 * MG_TUNE_WHOLE_TIMED) return;
  else if (x && x->grad) w->phase = WHOLE_weighed, x->weigh = true;
  else whole_decide(e, w, whole_has_kernels(e, at) ? MG_TUNE_WHOLE_BETTER : MG_TUNE_WHOLE_CALLS);
}
