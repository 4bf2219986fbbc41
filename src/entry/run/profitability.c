/* See the header. */
#include "entry/run/profitability.h"
#include "base/log.h"
#include "entry/launch/stats.h"
#include "entry/run/entry_cache.h"
#include "entry/launch/trial_clock.h"
#include "tuning.h"

_Thread_local unsigned long mg_trial_grads;

void mg_trial_begin(MgTrialRun *t, MgBucket *b) {
  MgTrial *trial = &b->trial;
  t->begun = true;
  if (trial->phase == TRIAL_off || trial->active == mg_cache_epoch + 1) return;
  t->b = b;
  t->rests = trial->phase == TRIAL_rest;
  t->epoch = mg_cache_epoch;
  t->grads = mg_trial_grads;
  t->misses = mg_stats.misses;
  trial->active = mg_cache_epoch + 1;
  if (trial->phase != TRIAL_count) t->t0 = mg_now_ms();
}

static void trial_leave(MgBucket *b, uint32_t patience) {
  b->trial.phase = TRIAL_resting;
  b->trial.patience = patience;
  b->rest = patience - 1;
  b->site->rests = true;
}

static void trial_start(MgTrial *trial, MgTrialPhase phase) {
  trial->phase = (uint8_t)phase;
  trial->runs = 0;
  *(phase == TRIAL_rest ? &trial->rest : &trial->driven) = 1e30f;
}

/* The best of n runs; true after the last of them. */
static bool trial_take(MgTrial *trial, float *best, float ms, int n) {
  if (ms < *best) *best = ms;
  return ++trial->runs >= n;
}

void mg_trial_end(MgTrialRun *t, bool raised) {
  MgBucket *b = t->b;
  if (!b || t->epoch != mg_cache_epoch) return; /* the bucket may be gone */
  MgTrial *trial = &b->trial;
  trial->active = 0;
  if (t->misses != mg_stats.misses && trial->phase == TRIAL_count) trial->runs = 0;
  if (raised || t->misses != mg_stats.misses) return;
  if (t->grads != mg_trial_grads) {
    trial->phase = TRIAL_off;
    return;
  }
  float ms = (float)mg_trial_took(t->rests ? WAY_eager : WAY_compiled, t->t0);
  switch ((MgTrialPhase)trial->phase) {
  case TRIAL_count:
    if (t->steps && ++trial->runs >= MG_TUNE_TRIAL_FRAMES) trial_start(trial, TRIAL_driven);
    break;
  case TRIAL_driven:
    if (!t->steps || !trial_take(trial, &trial->driven, ms, MG_TUNE_TRIAL_DRIVEN)) break;
    if (trial->driven > MG_TUNE_TRIAL_LONGEST) trial->phase = TRIAL_off;
    else trial_start(trial, TRIAL_rest);
    break;
  case TRIAL_rest:
    if (!t->rests || !trial_take(trial, &trial->rest, ms, MG_TUNE_TRIAL_CPYTHON)) break;
    if (trial->rest < trial->driven * MG_TUNE_TRIAL_BETTER) trial_leave(b, MG_TUNE_TRIAL_FIRST);
    else trial->phase = TRIAL_off;
    break;
  case TRIAL_resting:
    if (trial->rest < ms * MG_TUNE_TRIAL_BETTER)
      trial_leave(b, trial->patience < MG_TUNE_TRIAL_MOST ? 2 * trial->patience : MG_TUNE_TRIAL_MOST);
    else trial_start(trial, TRIAL_driven);
    break;
  case TRIAL_off: break;
  }
}
