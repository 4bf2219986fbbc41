/* See the header. */
#include "entry/run/whole_trial.h"
#include "base/env.h"
#include "base/log.h"
#include "entry/grad/joint_plans.h"
#include "entry/guard/guard_set.h"
#include "entry/launch/stats.h"
#include "entry/run/entry_cache.h"
#include "entry/run/exec.h"
#include "tuning.h"

/* Not for graphs whose calls differ: sizes that are symbols or data, runs that may be given up. */
static bool whole_applies(const MgEntry *e) {
  const MgExec *x = e->exec;
  if (e->nnode < 1 || e->nnode > MG_TUNE_WHOLE_NODES || !e->is_ret || e->claims || e->guards->ndraw)
    return false;
  if (!mg_env_switch(ENV_TRIALS, true) || x->sizes || x->stages || x->callable || x->spent || x->plan_failed)
    return false;
  if (x->grad) return !x->overlap && !x->grad->random && !x->grad->asked && !x->grad->lost;
  return x->plan != NULL;
}

/* Calls of a function that only ever had one entry need no guards for a while. */
static void whole_burst(MgEntry *e) {
  MgBucket *b = e->bucket;
  if (!b || b->n != 1 || b->site->n != 1) return;
  if (e->whole.burst < MG_TUNE_WHOLE_BURST) e->whole.burst = e->whole.burst ? 2 * e->whole.burst : 1;
  b->rest = e->whole.burst;
  b->site->rests = true;
}

/* better: what counts as faster, as a share of the compiled time. */
static void whole_decide(MgEntry *e, float better) {
  MgWhole *w = &e->whole;
  bool left = w->eager < w->plan * better;
  w->phase = left ? WHOLE_left : WHOLE_kept;
  mg_stats.left += left;
  mg_log(MG_LOG_fallback, "a graph of %d nodes at line %d: %.3g ms a call, %.3g ms in CPython%s", e->nnode,
         e->line, (double)w->plan, (double)w->eager, left ? ": left to it" : "");
}

bool mg_whole_leaves(MgEntry *e, bool unseen) {
  MgWhole *w = &e->whole;
  switch ((MgWholePhase)w->phase) {
  case WHOLE_count:
    if (!w->runs && !whole_applies(e)) w->phase = WHOLE_kept;
    else if (++w->runs > MG_TUNE_WHOLE_FIRST) {
      w->phase = WHOLE_timed;
      w->runs = 0;
      w->plan = w->eager = 1e30f;
    }
    return false;
  case WHOLE_timed: return w->runs & 1;
  case WHOLE_left:
    if (unseen) whole_burst(e);
    return true;
  case WHOLE_weighed:
  case WHOLE_kept: break;
  }
  return false;
}

void mg_whole_note(MgEntry *e, bool eager, double ms) {
  MgWhole *w = &e->whole;
  if (w->phase == WHOLE_weighed) { /* the run has noted both */
    w->plan += e->exec->weighed[0];
    w->eager += e->exec->weighed[1];
    whole_decide(e, 1.0f); /* op by op backward takes a bit more than eager's */
    return;
  }
  if (w->phase != WHOLE_timed) return;
  float *best = eager ? &w->eager : &w->plan;
  if ((float)ms < *best) *best = (float)ms;
  if (ms > MG_TUNE_WHOLE_LONGEST) w->phase = WHOLE_kept;
  else if (++w->runs < 2 * MG_TUNE_WHOLE_TIMED) return;
  else if (e->exec->grad) w->phase = WHOLE_weighed, e->exec->weigh = true;
  else whole_decide(e, MG_TUNE_WHOLE_BETTER);
}
