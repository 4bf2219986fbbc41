/* See the header.  Invariants: c->active is set while one frame of the place is counted, and that frame's run
 * has a reference; a window begins at the first frame after c->fresh was set, and ends
 * with a judgement or a try. */
#include "entry/run/frame_cost.h"
#include <stdlib.h>
#include "base/log.h"
#include "entry/launch/stats.h"
#include "entry/run/entry_cache.h"
#include "entry/launch/trial_clock.h"
#include "host/python/dynamo_config.h"
#include "tuning.h"

typedef enum CostPhase { COST_count, COST_eager, COST_left, COST_try } CostPhase;
typedef enum CostKind { KIND_none, KIND_recorded, KIND_clean, KIND_eager, KIND__COUNT } CostKind;

#define COST_NEVER 1e30f

struct MgCost {
  int refs;
  struct MgSite *site; /* NULL once the place is gone */
  uint8_t phase, runs;
  uint8_t fails; /* tries in a row that did not help */
  uint8_t last;  /* CostKind of the last frame */
  bool active, fresh, warm, grads;
  bool recorded;    /* the last frame that was counted recorded */
  int units, limit; /* what the frames that recorded count together; when it is judged */
  int n;            /* frames that recorded */
  long clean, hits0,
      hits1;   /* driven frames that did not record; hits of entries at the window's start and end */
  float spent; /* milliseconds of a frame that records: a mean in which the latest count most; 0: none was
                  timed */
  float hit;   /* milliseconds of the shortest driven frame that did not record; COST_NEVER: none was */
  float tail[KIND__COUNT];          /* the shortest time until the next frame, a backward pass may be in it */
  float cpython[MG_TUNE_COST_RUNS]; /* milliseconds of frames that CPython ran */
  float spent_cpu, tail_cpu[KIND__COUNT], cpython_cpu[MG_TUNE_COST_RUNS]; /* these of the processor */
  bool by_cpu;         /* rec and eager are of the processor */
  float rec, eager;    /* milliseconds a call, as last judged */
  uint32_t wait;       /* frames until it is tried again */
  double end, cpu_end; /* of the last frame; the processor was not asked: 0 */
};

static _Thread_local unsigned long cost_recordings, cost_others;
static _Thread_local int cost_depth; /* frames that are counted, one in another */

void mg_cost_note(bool sizes) {
  cost_recordings++;
  cost_others += !sizes;
}

static void cost_window(MgCost *c, int limit) {
  c->phase = COST_count;
  c->limit = limit;
  c->fresh = true;
  c->units = c->n = 0;
  c->clean = 0;
  c->spent = c->spent_cpu = 0;
  for (int i = 0; i < KIND__COUNT; i++) c->tail[i] = c->tail_cpu[i] = COST_NEVER;
  c->hit = COST_NEVER;
}

static void cost_release(MgCost *c) {
  if (!--c->refs) free(c);
}

void mg_cost_drop(MgCost *c) {
  if (!c) return;
  c->site = NULL;
  cost_release(c);
}

/* The place's account, made when there is none; borrowed.  NULL without an exception: out of memory. */
static MgCost *cost_of(MgBucket **at) {
  MgBucket *b = *at;
  /* Modules that come and go are one account: it is the place's without a module. */
  if (b->key && !b->n && b->site->brief >= MG_TUNE_COST_BRIEF) *at = b = b->site->bucket[0];
  if (b->cost) return b->cost;
  MgCost *c = mg_calloc(1, sizeof *c);
  if (!c) return NULL;
  c->refs = 1;
  c->site = b->site;
  cost_window(c, cost_depth ? MG_TUNE_COST_INNER : MG_TUNE_COST_FIRST);
  return b->cost = c;
}

static long cost_hits(const MgBucket *b) {
  long n = b->hits;
  for (int i = 0; i < b->n; i++) n += b->entry[i]->hits;
  return n;
}

static bool cost_waits(MgCost *c) {
  if (c->phase != COST_left || !c->wait) return false;
  c->wait--;
  return true;
}

bool mg_cost_is_left(const MgBucket *b) { return b->cost && b->cost->phase == COST_left; }
bool mg_cost_leaves(MgBucket *b) { return b->cost && cost_waits(b->cost); }

void mg_cost_begin(MgCostRun *r, MgBucket *b, PyCodeObject *code, int limit) {
  MgCost *c = cost_of(&b);
  r->begun = true;
  if (!c || (r->left = cost_waits(c)) || c->active) return;
  if (c->phase == COST_left) {
    c->phase = COST_try;
    c->runs = 0;
  }
  if (c->fresh) c->hits0 = cost_hits(b);
  if (c->phase == COST_eager) c->hits1 = cost_hits(b);
  c->fresh = false;
  c->active = true;
  cost_depth++;
  c->refs++;
  Py_INCREF(code);
  *r = (MgCostRun){.c = c, .code = code, .begun = true, .rests = c->phase == COST_eager, .limit = limit};
  r->recordings = cost_recordings;
  r->others = cost_others;
  r->grads = mg_trial_grads;
  if (!c->warm && c->n < MG_TUNE_COST_UNTIMED) return;
  c->warm = true;
  r->t0 = mg_now_ms();
  bool asks = c->recorded || c->phase != COST_count || c->clean < MG_TUNE_COST_ASKED;
  if (asks) r->cpu0 = mg_trial_cpu_ms();
  float tail = (float)mg_trial_took(WAY_between, c->end), tail_cpu = COST_NEVER;
  if (asks && c->cpu_end > 0) tail_cpu = (float)mg_trial_took_cpu(WAY_between, c->cpu_end);
  if (c->last && tail < c->tail[c->last]) c->tail[c->last] = tail;
  if (c->last && tail_cpu < c->tail_cpu[c->last]) c->tail_cpu[c->last] = tail_cpu;
  c->last = KIND_none;
}

void mg_cost_cancel(MgCostRun *r) {
  if (!r->c) return;
  r->c->active = false;
  cost_depth--;
  cost_release(r->c);
  r->c = NULL;
  Py_CLEAR(r->code);
}

/* What follows a frame counts where its graphs have a backward: it may be faster, too. */
static float cost_tail(const MgCost *c, CostKind k) {
  float tail = c->by_cpu ? c->tail_cpu[k] : c->tail[k];
  return c->grads && tail < COST_NEVER ? tail : 0;
}

static void cost_leave(MgCost *c, PyCodeObject *code) {
  float more = c->rec > c->eager ? c->rec - c->eager : 0, unit = c->eager > 1e-4f ? c->eager : 1e-4f;
  float wait = MG_TUNE_COST_SHARE * (float)MG_TUNE_COST_TRIES * more / unit;
  if (wait < MG_TUNE_COST_SHARE) wait = MG_TUNE_COST_SHARE;
  for (int i = 0; i < c->fails && wait < MG_TUNE_COST_WAIT; i++) wait *= 2;
  c->phase = COST_left;
  c->wait = (uint32_t)(wait < MG_TUNE_COST_WAIT ? wait : MG_TUNE_COST_WAIT);
  c->runs = 0;
  if (c->fails < 32) c->fails++;
  if (c->site) c->site->rests = true;
  mg_stats.left++;
  if (!mg_log_on(MG_LOG_fallback)) return;
  mg_log(MG_LOG_fallback,
         "%s, line %d: recorded again and again, %.3g ms a call, %.3g ms in CPython: left to it for %u calls",
         PyUnicode_AsUTF8(code->co_qualname), code->co_firstlineno, (double)c->rec, (double)c->eager,
         c->wait);
}

static float cost_middle(const float t[MG_TUNE_COST_RUNS]) {
  float low = t[0] < t[1] ? t[0] : t[1], high = t[0] < t[1] ? t[1] : t[0];
  return t[2] < low ? low : t[2] > high ? high : t[2];
}

/* What recording frames took, and CPython, a call; the share of CPython's time that all frames took. */
static float cost_share(MgCost *c, bool cpu) {
  c->by_cpu = cpu;
  c->eager = cost_middle(cpu ? c->cpython_cpu : c->cpython) + cost_tail(c, KIND_eager);
  c->rec = (cpu ? c->spent_cpu : c->spent) + cost_tail(c, KIND_recorded);
  long hits = c->hits1 - c->hits0 - c->n, clean = hits > c->clean ? hits : c->clean;
  float hit =
      c->hit < COST_NEVER ? c->hit + cost_tail(c, KIND_clean) : c->eager / 2; /* whole hits are not timed */
  float total = (float)c->n * c->rec + (float)clean * hit, eager = (float)(c->n + clean) * c->eager;
  return total / (eager > 1e-9f ? eager : 1e-9f);
}

/* CPython's time is known: is what was spent on recording worth it? */
static void cost_judge(MgCost *c, PyCodeObject *code) {
  float share = cost_share(c, false);
  bool clear = share > MG_TUNE_COST_CLEAR || share < 1 / MG_TUNE_COST_CLEAR;
  if (!clear && c->spent_cpu > 0) share = cost_share(c, true);
  if (c->spent > 0 && share * MG_TUNE_COST_SLOWER > 1) {
    cost_leave(c, code);
    return;
  }
  if (mg_log_on(MG_LOG_fallback))
    mg_log(MG_LOG_fallback,
           "%s, line %d: %d calls recorded, %.3g ms each, and %ld did not; %.3g ms in CPython: compiling "
           "goes on",
           PyUnicode_AsUTF8(code->co_qualname), code->co_firstlineno, c->n, (double)c->rec, c->clean,
           (double)c->eager);
  c->fails = 0;
  cost_window(c, c->limit < MG_TUNE_COST_MOST ? 2 * c->limit : MG_TUNE_COST_MOST);
}

/* A limit that the user has raised asks for more recordings. */
static int cost_limit(const MgCost *c, int given) {
  bool exact;
  PyObject *type, *value, *tb;
  PyErr_Fetch(&type, &value, &tb); /* what the frame has raised */
  int limit = mg_stance_recompile_limit(given, &exact);
  PyErr_Restore(type, value, tb);
  return limit > MG_TUNE_RECOMPILE_LIMIT
             ? (int)((long)c->limit * (limit < 1 << 16 ? limit : 1 << 16) / MG_TUNE_RECOMPILE_LIMIT)
             : c->limit;
}

/* early ones compile kernels that later ones find */
static void cost_mean(float *mean, float ms) { *mean += *mean > 0 ? (ms - *mean) / 4 : ms; }

static void cost_count(MgCost *c, const MgCostRun *r, bool recorded, float ms, float cpu) {
  CostKind k = recorded ? KIND_recorded : KIND_clean;
  c->recorded = recorded;
  if (r->t0 > 0) {
    if (k == KIND_clean && ms < c->hit) c->hit = ms;
    c->last = (uint8_t)k;
  }
  if (!recorded) {
    c->clean++;
    return;
  }
  c->n++;
  c->units += cost_others != r->others || r->given_up ? MG_TUNE_COST_OTHER : MG_TUNE_COST_SIZES;
  if (r->t0 > 0) cost_mean(&c->spent, ms);
  if (r->cpu0 > 0) cost_mean(&c->spent_cpu, cpu);
  if (c->units < c->limit || c->units < cost_limit(c, r->limit)) return;
  c->phase = COST_eager;
  c->runs = 0;
}

/* Two frames are driven again: has it been worth it? */
static void cost_try(MgCost *c, const MgCostRun *r, bool recorded, bool raised, float ms) {
  bool cheap = cost_recordings == r->recordings && ms * MG_TUNE_COST_SLOWER <= c->eager;
  if (!raised && (!recorded || cheap)) {
    if (mg_log_on(MG_LOG_fallback))
      mg_log(MG_LOG_fallback, "%s, line %d: compiled again", PyUnicode_AsUTF8(r->code->co_qualname),
             r->code->co_firstlineno);
    cost_window(c, MG_TUNE_COST_AGAIN);
  } else if (++c->runs >= MG_TUNE_COST_TRIES) {
    cost_leave(c, r->code);
  }
}

void mg_cost_end(MgCostRun *r, bool raised) {
  MgCost *c = r->c;
  if (!c) return;
  bool recorded = cost_recordings != r->recordings || r->given_up;
  double now = r->t0 > 0 ? mg_now_ms() : 0;
  MgTrialWay way = recorded ? WAY_recorded : r->rests ? WAY_eager : WAY_compiled;
  float ms = (float)mg_trial_took(way, r->t0);
  float cpu = r->cpu0 > 0 ? (float)mg_trial_took_cpu(way, r->cpu0) : 0;
  c->grads |= r->grads != mg_trial_grads;
  c->end = now;
  c->cpu_end = r->cpu0 > 0 ? mg_trial_cpu_ms() : 0;
  if (c->phase == COST_count && (recorded || !raised)) cost_count(c, r, recorded, ms, cpu);
  else if (c->phase == COST_eager && r->rests && !raised) {
    c->cpython[c->runs] = ms;
    c->cpython_cpu[c->runs] = cpu;
    c->last = KIND_eager;
    if (++c->runs >= MG_TUNE_COST_RUNS) cost_judge(c, r->code);
  } else if (c->phase == COST_try) {
    cost_try(c, r, recorded, raised, c->by_cpu && cpu > 0 ? cpu : ms);
  }
  mg_cost_cancel(r);
}

void mg_cost_instance_died(MgBucket *b, long hits, bool few) {
  MgSite *s = b->site;
  s->brief = !few ? 0 : s->brief < MG_TUNE_COST_BRIEF ? s->brief + 1 : MG_TUNE_COST_BRIEF;
  s->bucket[0]->hits += hits;
  mg_cost_drop(b->cost); /* the address may come to belong to another instance */
  b->cost = NULL;
}

bool mg_cost_figures(const MgBucket *b, double *compiled, double *eager, long *wait) {
  if (!mg_cost_is_left(b)) return false;
  *compiled = (double)b->cost->rec;
  *eager = (double)b->cost->eager;
  *wait = (long)b->cost->wait;
  return true;
}
