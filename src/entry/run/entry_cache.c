/* Per-code-object data and the compiled entries; see entry_cache.h. */
#include "entry/run/entry_cache.h"
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/strbuf.h"
#include "driver/plan_record.h"
#include "entry/guard/guard_add.h"
#include "entry/guard/guard_check.h"
#include "entry/guard/guard_cost.h"
#include "entry/guard/source.h"
#include "entry/launch/config.h"
#include "entry/launch/events.h"
#include "entry/launch/stats.h"
#include "entry/run/exec.h"
#include "entry/run/exec_run.h"
#include "entry/run/exec_sizes.h"
#include "entry/run/frame_cost.h"
#include "entry/run/snapshot_run.h"
#include "host/python/code_info.h"
#include "host/python/decode.h"
#include "host/python/names.h"
#include "host/python/pyframe.h"
#include "runtime/plan/plan_graph.h"
#include "runtime/process/arena.h"
#include "tuning.h"

_Thread_local unsigned long mg_cache_work;
unsigned long mg_cache_epoch;

/* ---- entries ---- */

MgEntry *mg_entry_new(void) {
  MgEntry *e = mg_calloc(1, sizeof *e);
  if (!e) return (MgEntry *)PyErr_NoMemory();
  e->refs = 1;
  return e;
}

void mg_entry_release(MgEntry *e) {
  if (!e || --e->refs) return;
  if (e->guards) mg_guards_free(e->guards);
  if (e->exec) mg_exec_free(e->exec);
  if (e->snap) mg_snapshot_free(e->snap);
  Py_XDECREF(e->end_file);
  Py_XDECREF(e->end_name);
  Py_XDECREF(e->shown);
  free(e->inner);
  free(e->returns);
  free(e->untouched);
  free(e->reason);
  free(e);
}

/* ---- sites and buckets ---- */

static void cache_free_bucket(MgBucket *b) {
  mg_cache_epoch++;
  while (b->n) {
    MgEntry *e = b->entry[--b->n];
    e->bucket = NULL;
    mg_entry_release(e);
  }
  mg_cost_drop(b->cost);
  free(b->entry);
  free(b);
}

static void cache_free_site(MgSite *s) {
  while (s->nbucket) cache_free_bucket(s->bucket[--s->nbucket]);
  free(s->bucket);
  mg_map_free(&s->by_key);
  mg_transient_free(&s->parted);
  Py_XDECREF(s->left);
  free(s);
}

MgSite *mg_cache_site(MgCodeInfo *info, uint32_t config, int unit, uint64_t chain, bool create) {
  for (MgSite *s = info->sites; s; s = s->next)
    if (s->unit == unit && s->config == config && s->chain == chain) return s;
  if (!create) return NULL;
  MgSite *s = mg_calloc(1, sizeof *s);
  if (!s) return (MgSite *)PyErr_NoMemory();
  s->config = config;
  s->unit = unit;
  s->chain = chain;
  s->key_slot = MG_KEY_NONE;
  s->transient = &info->transient;
  s->next = info->sites;
  return info->sites = s;
}

/* The object at a site's key position; NULL when there is none. */
static PyObject *cache_key(int at, const MgSlots *s) {
  if (at == MG_KEY_NONE) return NULL;
  if (at >= 0) return at < s->n ? s->slot[at] : NULL;
  PyObject *c = s->func ? PyFunction_GET_CLOSURE(s->func) : NULL;
  at = MG_KEY_CELL - at;
  return c && at < PyTuple_GET_SIZE(c) ? PyCell_GET(PyTuple_GET_ITEM(c, at)) : NULL;
}

/* Where a module instance lies that tells frames of this code apart: the first slot or
 * closure cell that holds one. */
static int cache_find_key(const MgSlots *s) {
  PyObject *c = s->func ? PyFunction_GET_CLOSURE(s->func) : NULL;
  for (int i = 0; i < s->n; i++)
    if (s->slot[i] && PyObject_TypeCheck(s->slot[i], mg_torch.module)) return i;
  for (int i = 0; c && i < PyTuple_GET_SIZE(c); i++) {
    PyObject *v = PyCell_GET(PyTuple_GET_ITEM(c, i));
    if (v && PyObject_TypeCheck(v, mg_torch.module)) return MG_KEY_CELL - i;
  }
  return MG_KEY_NONE;
}

/* Buckets of instances that are gone make room. */
static void cache_sweep(MgSite *s) {
  uint32_t kept = 1;
  mg_map_free(&s->by_key);
  for (uint32_t i = 1; i < s->nbucket; i++) {
    MgBucket *b = s->bucket[i];
    if (!b->n) cache_free_bucket(b);
    else if (mg_map_putp(&s->by_key, b->key, kept) != MG_OK) s->n -= (uint32_t)b->n, cache_free_bucket(b);
    else s->bucket[kept++] = b;
  }
  s->nbucket = kept;
}

static MgBucket *cache_add_bucket(MgSite *s, const void *key) {
  if (s->nbucket >= MG_TUNE_BUCKETS && s->nbucket == s->cap) cache_sweep(s);
  if (s->nbucket == s->cap && !mg_grow(&s->bucket, &s->cap, sizeof *s->bucket, 2))
    return (MgBucket *)PyErr_NoMemory();
  MgBucket *b = mg_calloc(1, sizeof *b);
  if (!b || (key && mg_map_putp(&s->by_key, key, s->nbucket) != MG_OK)) {
    free(b);
    return (MgBucket *)PyErr_NoMemory();
  }
  b->site = s;
  b->key = key;
  return s->bucket[s->nbucket++] = b;
}

const MgMap *mg_cache_transient(const MgSite *s) {
  return s->transient->n && (!s->nbucket || s->bucket[0]->n < MG_TUNE_MODULE_ENTRIES) ? s->transient : NULL;
}

static bool cache_is_transient(const MgSite *s, PyObject *key) {
  const MgMap *m = mg_cache_transient(s);
  return m && mg_map_getp(m, Py_TYPE(key)) != MG_MAP_NONE;
}

MgBucket *mg_cache_bucket(MgSite *s, const MgSlots *slots, bool create) {
  if (create && s->key_slot == MG_KEY_NONE) s->key_slot = cache_find_key(slots);
  PyObject *key = cache_key(s->key_slot, slots);
  if (key) {
    uint32_t i = mg_map_getp(&s->by_key, key);
    /* A new instance of a class that is known by content may lie where one has died: that
     * one's bucket is not its own. */
    if (i != MG_MAP_NONE && (s->bucket[i]->n || !cache_is_transient(s, key))) return s->bucket[i];
    if (PyObject_TypeCheck(key, mg_torch.module) && !cache_is_transient(s, key)) {
      if (!create) return NULL;
      return s->nbucket || cache_add_bucket(s, NULL) ? cache_add_bucket(s, key) : NULL;
    }
  }
  return s->nbucket ? s->bucket[0] : create ? cache_add_bucket(s, NULL) : NULL;
}

uint8_t mg_cache_denied(const MgCodeInfo *info, uint32_t config, const MgSlots *slots) {
  uint8_t denied = 0;
  for (MgSite *s = info->sites; s; s = s->next) {
    MgBucket *b = s->config == config ? mg_cache_bucket(s, slots, false) : NULL;
    if (b) denied |= b->denied;
  }
  return denied;
}

static void cache_take_out(MgBucket *b, int i) {
  memmove(b->entry + i, b->entry + i + 1, sizeof *b->entry * (size_t)(--b->n - i));
  b->site->n--;
}

/* What a backend made of a graph outlives the module, for the next instance. */
static void cache_leave(MgSite *s, MgEntry *e) {
  PyObject *compiled = mg_exec_compiled(e->exec), *type, *value, *tb;
  PyErr_Fetch(&type, &value, &tb);
  if (!compiled || (!s->left && !(s->left = PyList_New(0))) || PyList_Append(s->left, compiled) ||
      (PyList_GET_SIZE(s->left) > MG_TUNE_GRAPHS_LEFT && PySequence_DelItem(s->left, 0)))
    PyErr_Clear(); /* out of memory: the next instance compiles anew */
  PyErr_Restore(type, value, tb);
}

/* A module that the entry was compiled for is being freed: the entry can never hold
 * again, and keeps memory alive. */
static void cache_entry_died(void *arg) {
  MgEntry *e = arg;
  MgBucket *b = e->bucket;
  if (!b) return;
  int i = 0;
  while (i < b->n && b->entry[i] != e) i++;
  if (i == b->n) return;
  cache_take_out(b, i);
  b->hits += e->hits;
  if (!b->n && b->key)
    b->hits = 0, b->walks = b->eager = false, b->plain = 0, b->refused = 0, b->rest = 0,
    b->denied = 0; /* the address may come to belong to another instance */
  e->bucket = NULL;
  cache_leave(b->site, e);
  mg_entry_release(e);
}

/* The same, of an entry that has hardly been used: the program may make such modules all the time. */
static void cache_module_died(void *arg) {
  MgEntry *e = arg;
  const MgBucket *b = e->bucket;
  long hits = b && b->key ? b->hits : e->hits;
  for (int i = 0; b && b->key && i < b->n; i++) hits += b->entry[i]->hits;
  if (b && hits <= MG_TUNE_MODULE_FEW_HITS) mg_transient_part(&b->site->parted, e->guards);
  if (b && e->key_watch && b->n == 1 &&
      mg_weakref_target(PyList_GET_ITEM(e->guards->watch, e->key_watch - 1)) == Py_None)
    mg_cost_instance_died(e->bucket, hits, hits <= MG_TUNE_MODULE_FEW_HITS);
  cache_entry_died(e);
}

void mg_cache_drop(MgEntry *e) { cache_entry_died(e); }

void mg_cache_break_data(MgEntry *e) {
  MgBucket *b = e->bucket;
  mg_log(MG_LOG_recompiles,
         "sizes that depend on data are not what an entry takes them for: they break the graph from here on");
  cache_entry_died(e);
  if (b) b->denied |= MG_DENY_data;
}

int mg_cache_add(MgBucket *b, MgEntry *e) {
  /* Nobody looks here any more once the instance is gone, which is alive now: the frame has it. */
  if (b->key && mg_guards_die_with(e->guards, (PyObject *)b->key)) {
    mg_entry_release(e);
    return -1;
  }
  if (b->key) e->key_watch = PyList_GET_SIZE(e->guards->watch);
  if (b->n == b->cap) {
    int cap = b->cap ? 2 * b->cap : 2;
    MgEntry **p = mg_realloc(b->entry, sizeof *p * (size_t)cap);
    if (!p) {
      mg_entry_release(e);
      PyErr_NoMemory();
      return -1;
    }
    b->entry = p;
    b->cap = cap;
  }
  memmove(b->entry + 1, b->entry, sizeof *b->entry * (size_t)b->n++);
  b->entry[0] = e;
  b->site->n++;
  e->bucket = b;
  mg_guards_set_death(e->guards, cache_module_died, e);
  return 0;
}

/* So many misses in a row say that the next call hardly fits either; 0: a miss is compiled. */
static uint32_t cache_patience(const MgBucket *b) {
  return b->eager || mg_cost_is_left(b) ? MG_TUNE_MISSES_SKIP : b->plain > 0 ? MG_TUNE_MISSES_PLAIN : 0;
}

/* Where nothing has fitted for long only one in so many calls looks. */
static bool cache_skips(MgBucket *b, int which) {
  uint32_t most = b->misses ? cache_patience(b) : 0;
  if (most && b->misses >= most) return b->misses++ % MG_TUNE_MISSES_SKIP;
  if (!(which & MG_FIND_returns) || b->unreturned < MG_TUNE_MISSES_PLAIN) return false;
  return b->unreturned++ % MG_TUNE_MISSES_SKIP;
}

bool mg_cache_rests(MgBucket *b) {
  if (!b->rest) return false;
  b->rest--;
  return true;
}

void mg_cache_note_idle(MgBucket *b, bool idle) {
  if (!idle) {
    b->idle = 0;
    b->patience = MG_TUNE_IDLE_FIRST;
    return;
  }
  if (b->idle < MG_TUNE_IDLE_RUNS + MG_TUNE_IDLE_TRIES) b->idle++;
  if (b->idle < MG_TUNE_IDLE_RUNS) return;
  if (b->idle == MG_TUNE_IDLE_RUNS) b->patience = MG_TUNE_IDLE_FIRST;
  if (b->idle == MG_TUNE_IDLE_RUNS + MG_TUNE_IDLE_TRIES && b->patience < MG_TUNE_IDLE_MOST) {
    b->patience *= 2;
    b->idle = MG_TUNE_IDLE_RUNS + 1;
  }
  b->rest = b->patience - 1;
  b->site->rests = true;
}

/* The first entry of the bucket that holds; *gone: entries were dropped meanwhile, and
 * maybe the bucket with them. */
static MgEntry *cache_find_in(MgBucket *b, const MgSlots *slots, PyObject ***vals, int *nvals, MgExecAt **at,
                              int which, bool *gone) {
  if (cache_skips(b, which)) return NULL;
  for (int i = 0; i < b->n; i++) {
    MgEntry *e = b->entry[i];
    if ((e->look && !(which & MG_FIND_look)) || (which & MG_FIND_returns && !e->is_ret) ||
        (which & MG_FIND_unclaimed ? e->claims : e->unclaimed))
      continue;
    int need = mg_guards_nsrc(e->guards);
    if (need > *nvals) {
      PyObject **p = mg_realloc(*nvals > MG_SMALL_VALS ? *vals : NULL, sizeof *p * (size_t)need);
      if (!p) {
        *gone = true;
        return (MgEntry *)PyErr_NoMemory();
      }
      *vals = p;
      *nvals = need;
    }
    e->refs++; /* comparing may run Python code, which may drop entries, and the site with them */
    uint64_t t = mg_measure_on && mg_measure_closely((uint64_t)e->hits) ? mg_ticks() : 0;
    bool holds = mg_guards_check(e->guards, slots, *vals, NULL) && mg_exec_fits(e->exec, *vals, at);
    if (t && holds) {
      mg_ticks_add(&e->guarding, t);
      mg_guard_cost_sample(e->guards, slots, *vals);
    }
    *gone = e->bucket != b;
    if (holds) {
      if (!*gone) b->misses = 0, b->unreturned = e->is_ret ? 0 : b->unreturned;
      if (i && !*gone && i < b->n && b->entry[i] == e) {
        memmove(b->entry + 1, b->entry, sizeof *b->entry * (size_t)i);
        b->entry[0] = e;
      }
      return e;
    }
    mg_entry_release(e);
    if (*gone) return NULL;
  }
  b->misses += cache_patience(b) > 0;
  b->unreturned += which & MG_FIND_returns && b->n;
  return NULL;
}

MgEntry *mg_cache_find(MgSite *s, const MgSlots *slots, PyObject ***vals, int *nvals, MgExecAt **at,
                       int which) {
  MgBucket *b = mg_cache_bucket(s, slots, false);
  bool gone = false;
  *at = NULL;
  MgEntry *e = b ? cache_find_in(b, slots, vals, nvals, at, which, &gone) : NULL;
  if (e || gone || !s->nbucket || b == s->bucket[0]) return e;
  return cache_find_in(s->bucket[0], slots, vals, nvals, at, which, &gone);
}

/* ---- configurations ---- */

typedef struct CacheConfig {
  MgConfig cfg;
  long refs;
  PyObject *weak; /* of a custom backend, once there was no user: it may come again; strong, or NULL */
} CacheConfig;
static CacheConfig *cache_config; /* those with a custom backend end with it, when they have no user */
static uint32_t cache_nconfig, cache_config_ids;

static bool cache_same_config(const MgConfig *a, const MgConfig *b) {
  return a->backend == b->backend && a->eager_backend == b->eager_backend && a->fullgraph == b->fullgraph &&
         a->disable == b->disable && a->dynamic == b->dynamic && a->recompile_limit == b->recompile_limit &&
         a->isolated == b->isolated && a->explained == b->explained && a->opt.freeze == b->opt.freeze &&
         a->opt.keep_layout == b->opt.keep_layout && a->opt.threads == b->opt.threads &&
         a->opt.numerics == b->opt.numerics && a->opt.search == b->opt.search &&
         a->opt.verify == b->opt.verify && a->opt.verify_every == b->opt.verify_every;
}

uint32_t mg_config_acquire(const MgConfig *cfg) {
  for (uint32_t i = 0; i < cache_nconfig; i++)
    if (cache_same_config(&cache_config[i].cfg, cfg)) {
      cache_config[i].refs++;
      return cache_config[i].cfg.id;
    }
  CacheConfig *p = mg_realloc(cache_config, sizeof *p * (cache_nconfig + 1));
  if (!p) {
    PyErr_NoMemory();
    return 0;
  }
  cache_config = p;
  p[cache_nconfig] = (CacheConfig){
      *cfg, 1, NULL}; /* backend: borrowed from the callables that use it, or alive by cache_wait */
  return p[cache_nconfig++].cfg.id = ++cache_config_ids;
}

static void cache_drop_config(uint32_t config) {
  for (MgCodeInfo *info = mg_code_infos; info;) {
    MgSite **p = &info->sites;
    while (*p && (*p)->config != config) p = &(*p)->next;
    MgSite *s = *p;
    if (!s) {
      info = info->next;
      continue;
    }
    *p = s->next;
    cache_free_site(s);
    info = mg_code_infos; /* freeing may run Python code that frees code objects */
  }
}

static void cache_end_config(uint32_t i) {
  CacheConfig c = cache_config[i];
  cache_config[i] = cache_config[--cache_nconfig];
  Py_XDECREF(c.weak);
  cache_drop_config(c.cfg.id);
}

/* A custom backend is gone. */
static PyObject *cache_backend_died(PyObject *id, PyObject *weak) {
  for (uint32_t i = 0; i < cache_nconfig; i++)
    if (cache_config[i].weak == weak && !cache_config[i].refs) {
      cache_end_config(i);
      break;
    }
  Py_RETURN_NONE;
}
static PyMethodDef cache_died_def = {"backend_died", cache_backend_died, METH_O, NULL};

/* Is the backend an object that somebody may still use?  Then its entries wait for
 * that, as long as it lives. */
static bool cache_wait(CacheConfig *c) {
  PyObject *type, *value, *tb;
  if (c->weak) return true;
  PyErr_Fetch(&type, &value, &tb); /* a callable may die of an exception */
  PyObject *died = PyCFunction_New(&cache_died_def, NULL);
  c->weak = died ? PyWeakref_NewRef(c->cfg.backend, died) : NULL;
  Py_XDECREF(died);
  PyErr_Restore(type, value, tb);
  return c->weak;
}

void mg_config_release(uint32_t id) {
  for (uint32_t i = 0; i < cache_nconfig; i++) {
    if (cache_config[i].cfg.id != id) continue;
    const MgConfig *cfg = &cache_config[i].cfg;
    if (--cache_config[i].refs || !(cfg->backend || cfg->isolated)) return;
    if (cfg->isolated || !cache_wait(&cache_config[i]))
      cache_end_config(i); /* nobody else finds what is isolated */
    return;
  }
}

/* ---- code objects ---- */

static void cache_drop_sites(MgCodeInfo *info) {
  while (info->sites) {
    MgSite *s = info->sites;
    info->sites = s->next;
    cache_free_site(s);
  }
}

static void code_info_destroy(void *p) { /* the code object dies */
  MgCodeInfo *info = p;
  if (!info) return;
  if (info->prev) info->prev->next = info->next;
  else mg_code_infos = info->next;
  if (info->next) info->next->prev = info->prev;
  mg_code_info_ends(info);
  mg_decode_free(info->decoded);
  Py_XDECREF(info->dyn);
  mg_map_free(&info->transient);
  free(info);
}

/* ---- for Python ---- */

static PyObject *cache_reset(PyObject *self, PyObject *unused) {
  /* Freeing an entry may run Python code that frees code objects: start over after each drop. */
  for (MgCodeInfo *info = mg_code_infos; info;) {
    Py_CLEAR(info->dyn);
    mg_map_free(&info->transient);
    info->looked = false;
    if (info->sites) {
      cache_drop_sites(info);
      info = mg_code_infos;
    } else {
      info = info->next;
    }
  }
  mg_arena_trim(); /* the memory that plans kept warm */
  memset(&mg_stats, 0, sizeof mg_stats);
  mg_records_reset();
  mg_events_reset();
  Py_RETURN_NONE;
}

static PyObject *cache_stats(PyObject *self, PyObject *unused) {
  PyObject *breaks = PyDict_New();
  if (!breaks) return NULL;
  for (int i = 0; i < BK__COUNT; i++) {
    if (!mg_stats.breaks[i]) continue;
    PyObject *n = PyLong_FromLong(mg_stats.breaks[i]);
    int rc = n ? PyDict_SetItemString(breaks, mg_break_name((MgBreakCode)i), n) : -1;
    Py_XDECREF(n);
    if (rc) {
      Py_DECREF(breaks);
      return NULL;
    }
  }
  MgGraphStats cuda;
  mg_plan_graph_stats(&cuda);
  return Py_BuildValue("{s:l,s:l,s:l,s:l,s:l,s:l,s:l,s:l,s:l,s:l,s:l,s:l,s:l,s:l,s:d,s:d,s:N,s:K,s:K,s:K}",
                       "graphs", mg_stats.graphs, "joint_graphs", mg_stats.joint_graphs, "entries",
                       mg_stats.entries, "recompiles", mg_stats.recompiles, "hits", mg_stats.hits, "misses",
                       mg_stats.misses, "fallbacks", mg_stats.fallbacks, "attempts", mg_stats.attempts,
                       "bytecodes", mg_stats.bytecodes, "left", mg_stats.left, "stopped", mg_stats.stopped,
                       "inferred", mg_stats.inferred, "verified", mg_stats.verified, "differed",
                       mg_stats.differed, "record_ms", mg_stats.record_ms, "compile_ms", mg_stats.compile_ms,
                       "breaks", breaks, "cuda_captures", (unsigned long long)cuda.captures, "cuda_replays",
                       (unsigned long long)cuda.replays, "cuda_failed", (unsigned long long)cuda.failed);
}

/* Where an input of the entry's graph comes from: its source's text, or the object itself, which may be a
 * parameter.  New; NULL with an exception. */
static PyObject *cache_input(const MgEntry *e, uint32_t i) {
  const MgExecInput *in = &e->exec->input[i];
  PyObject *object = in->pinned ? in->pinned : mg_guards_pinned(e->guards, in->src);
  if (object) return Py_NewRef(object);
  MgStrbuf text = {0};
  mg_source_print(e->guards, in->src, &text);
  PyObject *s = PyUnicode_FromString(mg_sb_text(&text));
  mg_sb_free(&text);
  return s;
}

/* What each symbol of the entry's graph is: the text of its source; "" for one that depends on data. */
static PyObject *cache_symbols(const MgEntry *e) {
  const MgExecSizes *s = e->exec->sizes;
  PyObject *list = PyList_New(0);
  for (uint32_t i = 0; list && s && i < s->n; i++) {
    MgStrbuf text = {0};
    if (s->src[i]) mg_source_print(e->guards, s->src[i], &text);
    PyObject *t = PyUnicode_FromString(mg_sb_ok(&text) ? mg_sb_text(&text) : "");
    mg_sb_free(&text);
    if (!t || PyList_Append(list, t)) Py_CLEAR(list);
    Py_XDECREF(t);
  }
  return list;
}

/* For reports: what an entry costs, and the inputs of its graph; None when nothing is measured. */
static PyObject *cache_entry_measured(const MgEntry *e) {
  if (!mg_measure_on) Py_RETURN_NONE;
  PyObject *inputs = PyList_New(0);
  for (uint32_t i = 0; inputs && i < e->exec->ninput; i++) {
    PyObject *s = cache_input(e, i);
    if (!s || PyList_Append(inputs, s)) Py_CLEAR(inputs);
    Py_XDECREF(s);
  }
  double ns = e->guarding.n ? mg_ticks_ms(e->guarding.ticks) * 1e6 / (double)e->guarding.n : 0;
  double ms = e->running.n ? mg_ticks_ms(e->running.ticks) / (double)e->running.n : 0;
  PyObject *symbols = inputs ? cache_symbols(e) : NULL,
           *guards = symbols ? mg_guard_cost_list(e->guards) : NULL;
  if (guards)
    return Py_BuildValue("{s:N,s:K,s:d,s:d,s:d,s:d,s:N,s:N}", "inputs", inputs, "recording",
                         (unsigned long long)e->recording, "record_ms", e->record_ms, "compile_ms",
                         e->compile_ms, "guard_ns", ns, "run_ms", ms, "guards", guards, "symbols", symbols);
  Py_XDECREF(inputs);
  Py_XDECREF(symbols);
  return NULL;
}

static PyObject *cache_entry_dict(MgCodeInfo *info, MgSite *s, MgEntry *e) {
  MgStrbuf guards = {0};
  mg_guards_print(e->guards, &guards);
  PyObject *measured = cache_entry_measured(e);
  if (!measured) return mg_sb_free(&guards), NULL;
  PyObject *d = Py_BuildValue(
      "{s:N,s:O,s:I,s:i,s:i,s:i,s:i,s:O,s:O,s:i,s:O,s:s,s:s,s:i,s:l,s:s,s:l,s:O}", "measured", measured,
      "code", info->code, "config", s->config, "unit", e->unit, "end", e->end, "line", e->line, "end_line",
      e->end_line, "end_file", e->end_file, "end_name", e->end_name, "plain", e->nplain, "returns",
      e->is_ret ? Py_True : Py_False, "break", e->is_ret ? NULL : mg_break_name(e->code), "reason", e->reason,
      "nodes", e->nnode, "hits", e->hits, "guards", mg_sb_text(&guards), "number", e->number, "graph",
      e->shown ? e->shown : Py_None);
  mg_sb_free(&guards);
  return d;
}

static PyObject *cache_entries(PyObject *self, PyObject *unused) {
  PyObject *list = PyList_New(0);
  bool gc = PyGC_Disable(); /* a collection may free models, and their entries with them */
  for (MgCodeInfo *info = mg_code_infos; list && info; info = info->next)
    for (MgSite *s = info->sites; list && s; s = s->next)
      for (uint32_t k = 0; list && k < s->nbucket; k++)
        for (int i = 0; list && i < s->bucket[k]->n; i++) {
          PyObject *d = cache_entry_dict(info, s, s->bucket[k]->entry[i]);
          if (!d || PyList_Append(list, d)) Py_CLEAR(list);
          Py_XDECREF(d);
        }
  if (gc) PyGC_Enable();
  return list;
}

static PyObject *cache_left(PyObject *self, PyObject *unused) {
  PyObject *list = PyList_New(0);
  bool gc = PyGC_Disable(); /* as in cache_entries */
  for (MgCodeInfo *info = mg_code_infos; list && info; info = info->next)
    for (MgSite *s = info->sites; list && s; s = s->next)
      for (uint32_t k = 0; list && k < s->nbucket; k++) {
        double compiled, eager;
        long wait;
        if (!mg_cost_figures(s->bucket[k], &compiled, &eager, &wait)) continue;
        PyObject *d = Py_BuildValue("{s:O,s:I,s:d,s:d,s:l}", "code", info->code, "config", s->config,
                                    "compiled_ms", compiled, "eager_ms", eager, "wait", wait);
        if (!d || PyList_Append(list, d)) Py_CLEAR(list);
        Py_XDECREF(d);
      }
  if (gc) PyGC_Enable();
  return list;
}

static PyMethodDef cache_methods[] = {
    {"reset", cache_reset, METH_NOARGS, "Drops every compiled entry and clears the counters."},
    {"stats", cache_stats, METH_NOARGS, "Counters since the last reset, as a dict."},
    {"left", cache_left, METH_NOARGS,
     "Places that are left to CPython because compiling them costs more than it brings, as a list of dicts."},
    {"entries", cache_entries, METH_NOARGS, "Every compiled segment, as a list of dicts."},
    {NULL, NULL, 0, NULL}};

int mg_cache_init(PyObject *module) {
  mg_code_info_ends = cache_drop_sites;
  return mg_pyframe_extra_init(code_info_destroy) ? -1 : PyModule_AddFunctions(module, cache_methods);
}
