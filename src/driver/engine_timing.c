/* Timing of engines: see the header.
 * In: a description of a library call, and the ways to make an engine for it.  Out: the engine that ran
 * fastest on memory of its own, or the one of the rules.
 * The key of a choice has the description, the number of threads, this CPU with its cap (disk_cache.h), the
 * build of this library and the version of oneDNN.
 * Invariant: a choice only moves results by rounding; every way computes the same function.
 * It does not look at what else the machine does: the best of several interleaved runs counts, and another
 * engine has to be faster by TIMING_BETTER. */
#include "driver/engine_timing.h"
#include <stdlib.h>
#include <string.h>
#include "base/env.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "base/table.h"
#include "ir/expr/dtype.h"
#include "runtime/code/disk_cache.h"
#include "runtime/process/threads.h"
#include "tuning.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { TIMING_WAYS = 4, TIMING_LINE = 64, TIMING_MAGIC = 0x7431 };

typedef struct TimingWay { /* one engine that is timed */
  MgEngine *engine;
  uint32_t number; /* 0: that of the rules; else of `other`, counted from 1 */
  void *state;
  double best; /* milliseconds of one run */
} TimingWay;

typedef struct TimingRun { /* all of them, on the same memory */
  const MgTiming *t;
  TimingWay way[TIMING_WAYS];
  uint32_t nway;
  void *ptr[MG_TIMING_TENSORS], *scratch;
  size_t bytes[MG_TIMING_TENSORS];
  bool cold;       /* the weight leaves the caches before each run */
  uint32_t repeat; /* runs in a row that are timed together */
  uint32_t at;     /* the way that runs */
  bool bad;
} TimingRun;

/* ---- choices that were made ---- */

typedef struct TimingChoice { /* also a file's content */
  uint32_t magic, number;
} TimingChoice;

static MgMap timing_known; /* key.lo -> number of the way; under MG_LOCK_kernel */

static MgKey timing_key(const MgTiming *t) {
  size_t nbuild;
  const void *build = mg_artifact_build(&nbuild);
  MgStrbuf sb = {0};
  const int64_t say[] = {TIMING_MAGIC, mg_abi_threads(), mg_onednn_version(), t->search};
  mg_sb_write(&sb, (const char *)say, sizeof say);
  mg_sb_write(&sb, t->op, strlen(t->op) + 1);
  if (build) mg_sb_write(&sb, build, nbuild);
  for (uint32_t i = 0; i < t->ntensor; i++) {
    const MgTensorDesc *d = &t->t[i];
    const int64_t head[] = {d->present, d->ndim, d->dtype};
    mg_sb_write(&sb, (const char *)head, sizeof head);
    mg_sb_write(&sb, (const char *)d->size, sizeof *d->size * d->ndim);
    mg_sb_write(&sb, (const char *)d->stride, sizeof *d->stride * d->ndim);
  }
  MgKey key = mg_artifact_key(mg_sb_text(&sb), sb.len);
  mg_sb_free(&sb);
  key.lo |= 2; /* 0 and 1 are no keys of a map */
  return key;
}

/* false: not timed yet. */
static bool timing_find(MgKey key, uint32_t *number) {
  mg_fork_lock(MG_LOCK_kernel);
  *number = mg_map_get(&timing_known, key.lo);
  mg_fork_unlock(MG_LOCK_kernel);
  if (*number != MG_MAP_NONE) return true;
  MgObject file;
  if (!mg_artifact_load(MG_ART_choice, key, &file)) return false;
  TimingChoice c = {0};
  if (file.len == sizeof c) memcpy(&c, file.data, sizeof c);
  free(file.data);
  *number = c.number;
  return c.magic == TIMING_MAGIC;
}

static void timing_keep(MgKey key, uint32_t number, bool found) {
  mg_fork_lock(MG_LOCK_kernel);
  mg_map_put(&timing_known, key.lo, number); /* out of memory: it is looked for on disk again */
  mg_fork_unlock(MG_LOCK_kernel);
  TimingChoice c = {TIMING_MAGIC, number};
  if (!found) mg_artifact_store(MG_ART_choice, key, &(MgObject){&c, sizeof c});
}

/* ---- memory ---- */

/* Elements from a tensor's first to its last. */
static int64_t timing_span(const MgTensorDesc *t) {
  int64_t n = 1;
  for (int i = 0; i < t->ndim; i++) n += (t->size[i] - 1) * t->stride[i];
  return n;
}

/* Numbers between -1 and 1, none of them near 0: products of subnormal numbers are slow. */
static void timing_fill(void *p, int64_t n, int dtype) {
  uint32_t x = 1;
  for (int64_t i = 0; i < n; i++) {
    x = x * 1664525u + 1013904223u;
    float v = (x >> 31 ? -1.f : 1.f) * (0.25f + (float)(x >> 8 & 0xffff) / 131072.f);
    if (dtype == DT_f32) ((float *)p)[i] = v;
    else ((double *)p)[i] = v;
  }
}

static void *timing_alloc(size_t bytes) {
  return aligned_alloc(TIMING_LINE, (bytes + TIMING_LINE - 1) / TIMING_LINE * TIMING_LINE);
}

static bool timing_memory(TimingRun *r) {
  uint64_t scratch = TIMING_LINE;
  for (uint32_t i = 0; i < r->t->ntensor; i++) {
    const MgTensorDesc *t = &r->t->t[i];
    if (!t->present) continue;
    int64_t n = timing_span(t);
    r->bytes[i] = (size_t)n * (t->dtype == DT_f32 ? sizeof(float) : sizeof(double));
    if (!(r->ptr[i] = timing_alloc(r->bytes[i]))) return false;
    timing_fill(r->ptr[i], n, t->dtype);
  }
  for (uint32_t i = 0; i < r->nway; i++)
    if (r->way[i].engine->scratch > scratch) scratch = r->way[i].engine->scratch;
  r->cold = r->bytes[r->t->weight] > MG_TUNE_TIMING_NEAR_BYTES;
  return (r->scratch = timing_alloc(scratch)) != NULL;
}

/* ---- running ---- */

/* A large weight comes from memory in a model, whose other weights are read in between. */
static void timing_cool(const TimingRun *r) {
#if defined(__x86_64__)
  const char *p = r->ptr[r->t->weight];
  for (size_t i = 0; i < r->bytes[r->t->weight]; i += TIMING_LINE) _mm_clflush(p + i);
  _mm_mfence();
#endif
}

static void *timing_runs(void *arg) {
  TimingRun *r = arg;
  const TimingWay *w = &r->way[r->at];
  MgEngineArgs a = {.ptr = r->ptr, .scratch = r->scratch, .state = w->state};
  for (uint32_t i = 0; i < r->repeat; i++) r->bad |= w->engine->ops->run(w->engine, &a) != 0;
  return NULL;
}

static double timing_once(TimingRun *r, uint32_t at) {
  r->at = at;
  if (r->cold) timing_cool(r);
  double t0 = mg_now_ms();
  mg_threads_apart(timing_runs, r);
  return (mg_now_ms() - t0) / r->repeat;
}

/* false: a run failed, or the time was over before there were enough of them. */
static bool timing_all(TimingRun *r) {
  r->repeat = 1;
  for (uint32_t i = 0; i < r->nway; i++) {
    timing_once(r, i); /* makes caches and teams of threads warm; a library's first run takes milliseconds */
    r->way[i].best = timing_once(r, i);
  }
  double end = mg_now_ms() + (r->t->search ? MG_TUNE_TIMING_SEARCH_MS : MG_TUNE_TIMING_MS);
  double ms = r->way[0].best;
  if (!r->cold) r->repeat += (uint32_t)(MG_TUNE_TIMING_LEAST_MS / (ms + 1e-5));
  for (int round = 0; round < MG_TUNE_TIMING_ROUNDS && !r->bad; round++) {
    for (uint32_t i = 0; i < r->nway; i++) {
      if (mg_now_ms() > end) return round >= MG_TUNE_TIMING_FEW;
      double took = timing_once(r, i);
      if (took < r->way[i].best) r->way[i].best = took;
    }
  }
  return !r->bad;
}

/* The way to take: an index. */
static uint32_t timing_winner(const TimingRun *r) {
  uint32_t at = 0;
  for (uint32_t i = 1; i < r->nway; i++) {
    double limit = at ? r->way[at].best : r->way[0].best * MG_TUNE_TIMING_BETTER;
    if (r->way[i].best < limit) at = i;
  }
  for (uint32_t i = 0; i < r->nway; i++)
    mg_log(MG_LOG_timing, "%s of %.3g multiplications: %s %.3g us%s", r->t->op, r->t->work,
           r->way[i].engine->ops->name, r->way[i].best * 1e3, i == at ? ", taken" : "");
  return at;
}

/* ---- the choice ---- */

static MgRc timing_make(MgCtx *c, const MgTiming *t, uint32_t number, MgEngine **out) {
  MgRc rc = number && number <= t->nother ? t->other[number - 1](c, t->desc, out) : MG_UNSUP;
  return rc == MG_UNSUP ? t->rule(c, t->desc, out) : rc;
}

/* Adds way `number`; false: it cannot be timed, or its kind is there already. */
static bool timing_add(TimingRun *r, MgEngine *e, uint32_t number) {
  if (e->tensors) return false;
  for (uint32_t i = 0; i < r->nway; i++)
    if (r->way[i].engine->ops == e->ops) return false;
  void *state = e->ops->state_new ? e->ops->state_new(e) : NULL;
  if (e->ops->state_new && !state) return false;
  r->way[r->nway++] = (TimingWay){.engine = e, .number = number, .state = state};
  return true;
}

/* All ways but that of the rules, which is there. */
static MgRc timing_add_others(MgCtx *c, TimingRun *r) {
  uint32_t n = r->t->search ? r->t->nother : r->t->nquick;
  for (uint32_t i = 1; i <= n && r->nway < TIMING_WAYS; i++) {
    MgEngine *e;
    MgRc rc = r->t->other[i - 1](c, r->t->desc, &e);
    if (rc == MG_UNSUP) continue;
    TRY(rc);
    if (!timing_add(r, e, i)) e->ops->free(e);
  }
  return MG_OK;
}

static void timing_end(TimingRun *r, uint32_t taken) {
  for (uint32_t i = 0; i < r->nway; i++) {
    const TimingWay *w = &r->way[i];
    if (w->state) w->engine->ops->state_free(w->engine, w->state);
    if (i != taken) w->engine->ops->free(w->engine);
  }
  for (uint32_t i = 0; i < MG_TIMING_TENSORS; i++) free(r->ptr[i]);
  free(r->scratch);
}

static bool timing_wanted(const MgTiming *t) {
  uint64_t bytes = 0;
  if (!mg_env_switch(ENV_AUTOTUNE, true) || mg_fork_child() || !t->nother) return false;
  if (!t->search && (t->work > MG_TUNE_MATMUL_SMALL || !mg_artifact_on())) return false;
  for (uint32_t i = 0; i < t->ntensor; i++) {
    if (!t->t[i].present) continue;
    if (t->t[i].dtype != DT_f32 && t->t[i].dtype != DT_f64) return false;
    for (int k = 0; k < t->t[i].ndim; k++)
      if (t->t[i].size[k] < 1 || t->t[i].stride[k] < 0) return false;
    bytes += (uint64_t)timing_span(&t->t[i]) * sizeof(double);
  }
  return bytes <= MG_TUNE_TIMING_BYTES;
}

MgRc mg_timing_engine(MgCtx *c, const MgTiming *t, MgEngine **out) {
  uint32_t number = 0, taken = 0;
  if (!timing_wanted(t)) return t->rule(c, t->desc, out);
  MgKey key = timing_key(t);
  if (timing_find(key, &number)) {
    timing_keep(key, number, true);
    return timing_make(c, t, number, out);
  }
  TimingRun r = {.t = t};
  TRY(t->rule(c, t->desc, out));
  if (!timing_add(&r, *out, 0)) return MG_OK;
  MgRc rc = timing_add_others(c, &r);
  if (rc != MG_OK) {
    timing_end(&r, UINT32_MAX);
    return rc;
  }
  bool several = r.nway > 1, timed = several && timing_memory(&r) && timing_all(&r);
  if (timed) taken = timing_winner(&r);
  if (!several || timed) timing_keep(key, r.way[taken].number, false);
  *out = r.way[taken].engine;
  timing_end(&r, taken);
  return MG_OK;
}
