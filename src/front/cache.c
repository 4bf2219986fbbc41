/* Per-code-object data and the compiled entries; see cache.h. */
#include "front/cache.h"
#include "runtime/arena.h"
#include "front/guard.h"
#include <stdlib.h>
#include <string.h>

MgStats mg_stats;
static MgCodeInfo *cache_all; /* every MgCodeInfo */

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
  free(e->untouched);
  free(e->reason);
  free(e);
}

/* ---- sites ---- */

static void cache_free_site(MgSite *s) {
  while (s->n) {
    MgEntry *e = s->entry[--s->n];
    e->site = NULL;
    mg_entry_release(e);
  }
  free(s->entry);
  free(s);
}

MgSite *mg_cache_site(MgCodeInfo *info, uint32_t config, int unit, bool create) {
  for (MgSite *s = info->sites; s; s = s->next)
    if (s->unit == unit && s->config == config) return s;
  if (!create) return NULL;
  MgSite *s = mg_calloc(1, sizeof *s);
  if (!s) return (MgSite *)PyErr_NoMemory();
  s->config = config;
  s->unit = unit;
  s->next = info->sites;
  return info->sites = s;
}

/* A module that the entry was compiled for is being freed: the entry can never hold again, and keeps memory alive. */
static void cache_entry_died(void *arg) {
  MgEntry *e = arg;
  MgSite *s = e->site;
  if (!s) return;
  int i = 0;
  while (i < s->n && s->entry[i] != e) i++;
  if (i == s->n) return;
  memmove(s->entry + i, s->entry + i + 1, sizeof *s->entry * (size_t)(--s->n - i));
  e->site = NULL;
  mg_entry_release(e);
}

int mg_cache_add(MgSite *s, MgEntry *e) {
  if (s->n == s->cap) {
    int cap = s->cap ? 2 * s->cap : 2;
    MgEntry **p = mg_realloc(s->entry, sizeof *p * (size_t)cap);
    if (!p) {
      mg_entry_release(e);
      PyErr_NoMemory();
      return -1;
    }
    s->entry = p;
    s->cap = cap;
  }
  memmove(s->entry + 1, s->entry, sizeof *s->entry * (size_t)s->n++);
  s->entry[0] = e;
  e->site = s;
  mg_guards_set_death(e->guards, cache_entry_died, e);
  return 0;
}

MgEntry *mg_cache_find(MgSite *s, const MgSlots *slots, PyObject ***vals, int *nvals, bool returns_only) {
  for (int i = 0; i < s->n; i++) {
    MgEntry *e = s->entry[i];
    if (returns_only && !e->is_ret) continue;
    int need = mg_guards_nsrc(e->guards);
    if (need > *nvals) {
      PyObject **p = mg_realloc(*nvals > MG_SMALL_VALS ? *vals : NULL, sizeof *p * (size_t)need);
      if (!p) return (MgEntry *)PyErr_NoMemory();
      *vals = p;
      *nvals = need;
    }
    e->refs++; /* comparing may run Python code, which may drop entries, and the site with them */
    if (mg_guards_check(e->guards, slots, *vals, NULL)) {
      if (i && e->site == s && i < s->n && s->entry[i] == e) {
        memmove(s->entry + 1, s->entry, sizeof *s->entry * (size_t)i);
        s->entry[0] = e;
      }
      return e;
    }
    bool gone = e->site != s;
    mg_entry_release(e);
    if (gone) return NULL;
  }
  return NULL;
}

/* ---- code objects ---- */

static void cache_drop_sites(MgCodeInfo *info) {
  while (info->sites) {
    MgSite *s = info->sites;
    info->sites = s->next;
    cache_free_site(s);
  }
}

static void cache_destroy(void *p) { /* the code object dies */
  MgCodeInfo *info = p;
  if (!info) return;
  if (info->prev) info->prev->next = info->next;
  else cache_all = info->next;
  if (info->next) info->next->prev = info->prev;
  cache_drop_sites(info);
  mg_decode_free(info->decoded);
  free(info);
}

MgCodeInfo *mg_code_info(PyCodeObject *co) {
  MgCodeInfo *info = mg_pyframe_extra(co);
  if (info) return info;
  if (!(info = mg_calloc(1, sizeof *info))) return (MgCodeInfo *)PyErr_NoMemory();
  info->code = co;
  info->skip = -1;
  if (mg_pyframe_set_extra(co, info)) {
    free(info);
    return NULL;
  }
  info->next = cache_all;
  if (cache_all) cache_all->prev = info;
  return cache_all = info;
}

const MgCode *mg_code_decoded(MgCodeInfo *info, PyCodeObject *co) {
  if (!info->decoded) info->decoded = mg_decode(co);
  return info->decoded;
}

void mg_cache_drop_config(uint32_t config) {
  for (MgCodeInfo *info = cache_all; info; info = info->next)
    for (MgSite **p = &info->sites; *p;) {
      MgSite *s = *p;
      if (s->config != config) {
        p = &s->next;
        continue;
      }
      *p = s->next;
      cache_free_site(s);
    }
}

/* ---- for Python ---- */

static PyObject *cache_reset(PyObject *self, PyObject *unused) {
  /* Freeing an entry may run Python code that frees code objects: start over after each drop. */
  for (MgCodeInfo *info = cache_all; info;) {
    if (info->sites) {
      cache_drop_sites(info);
      info = cache_all;
    } else {
      info = info->next;
    }
  }
  mg_arena_trim(); /* the memory that plans kept warm */
  memset(&mg_stats, 0, sizeof mg_stats);
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
  return Py_BuildValue("{s:l,s:l,s:l,s:l,s:l,s:l,s:l,s:l,s:d,s:d,s:N}", "graphs", mg_stats.graphs, "entries",
                       mg_stats.entries, "recompiles", mg_stats.recompiles, "hits", mg_stats.hits, "misses",
                       mg_stats.misses, "fallbacks", mg_stats.fallbacks, "attempts", mg_stats.attempts, "bytecodes",
                       mg_stats.bytecodes, "record_ms", mg_stats.record_ms, "compile_ms", mg_stats.compile_ms,
                       "breaks", breaks);
}

static PyObject *cache_entry_dict(MgCodeInfo *info, MgSite *s, MgEntry *e) {
  MgStrbuf guards = {0};
  mg_guards_print(e->guards, &guards);
  PyObject *d = Py_BuildValue("{s:O,s:I,s:i,s:i,s:i,s:i,s:i,s:O,s:s,s:s,s:i,s:l,s:s}", "code", info->code, "config",
                              s->config, "unit", e->unit, "end", e->end, "line", e->line, "end_line", e->end_line,
                              "plain", e->nplain, "returns", e->is_ret ? Py_True : Py_False, "break",
                              e->is_ret ? NULL : mg_break_name(e->code), "reason", e->reason, "nodes", e->nnode,
                              "hits", e->hits, "guards", mg_sb_text(&guards));
  mg_sb_free(&guards);
  return d;
}

static PyObject *cache_entries(PyObject *self, PyObject *unused) {
  PyObject *list = PyList_New(0);
  for (MgCodeInfo *info = cache_all; list && info; info = info->next)
    for (MgSite *s = info->sites; list && s; s = s->next)
      for (int i = 0; list && i < s->n; i++) {
        PyObject *d = cache_entry_dict(info, s, s->entry[i]);
        if (!d || PyList_Append(list, d)) Py_CLEAR(list);
        Py_XDECREF(d);
      }
  return list;
}

static PyMethodDef cache_methods[] = {
    {"reset", cache_reset, METH_NOARGS, "Drops every compiled entry and clears the counters."},
    {"stats", cache_stats, METH_NOARGS, "Counters since the last reset, as a dict."},
    {"entries", cache_entries, METH_NOARGS, "Every compiled segment, as a list of dicts."},
    {NULL, NULL, 0, NULL}};

int mg_cache_init(PyObject *module) {
  return mg_pyframe_extra_init(cache_destroy) ? -1 : PyModule_AddFunctions(module, cache_methods);
}
