/* Compiling one segment of a frame: record, restart with an earlier end after a
 * break, snapshot, compile, seal.
 * In: a linked frame before an instruction.  Out: a new entry at its site, or the site marked as plain.
 * Invariants: the frame and torch's global state are as before, whatever happens; with MAGNETO_STRICT=1 every
 * stand-in is dead afterwards and the guards hold on the very frame that was recorded. */
#include "host/python/pyobject.h"
#include "record/segment/segment.h"
#include "base/env.h"
#include "base/log.h"
#include "entry/guard/guard_check.h"
#include "entry/launch/events.h"
#include "entry/launch/stats.h"
#include "entry/run/entry_cache.h"
#include "host/python/decode.h"
#include "host/python/dynamo_config.h"
#include "host/python/hook_mode.h"
#include "host/python/names.h"
#include "record/core/recording.h"
#include "record/object/namespaces.h"
#include "record/segment/dynamo_counters.h"
#include "record/segment/segment_parts.h"
#include "tuning.h"

static int segment_fullgraph_error(const Segment *s) {
  mg_raise_dynamo_error(
      "Unsupported",
      "%s, but the graph breaks: %s: %s\n  in %U, segment from line %d, File \"%U\"\n  hint: %s",
      s->cfg->fullgraph ? "fullgraph=True" : "error_on_graph_break(True)", mg_break_name(s->why), s->reason,
      s->v.code->co_qualname, s->code->line[s->unit], s->v.code->co_filename, mg_break_hint(s->why));
  return -1;
}

/* For reports: v was raised while compiling. */
static void segment_note_failure(const Segment *s, PyObject *v) {
  PyObject *text = mg_measure_on && v ? PyObject_Str(v) : NULL;
  const char *why = text ? PyUnicode_AsUTF8(text) : NULL;
  if (mg_measure_on) mg_event("fallback", s->v.code, s->code->line[s->unit], why ? why : "?");
  Py_XDECREF(text);
  mg_clear_shown();
}

/* Compiling raised: the user's backend's errors are the user's, ours end in eager execution with a warning.
 * Where it was stopped, what is raised only says so, unless a handler has raised it in
 * Python code of a back end. */
static int segment_give_up(Segment *s) {
  if (s->frame[0].d->stopped) {
    bool ours = !PyErr_Occurred() || !s->cfg->backend || PyErr_ExceptionMatches(MgBreakError) ||
                PyErr_ExceptionMatches(PyExc_MemoryError);
    if (ours && !(PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)))
      return PyErr_Clear(), 1;      /* the stop itself */
    s->frame[0].d->stopped = false; /* the handler has run, in a back end, and has raised */
    return -1;
  }
  if (s->users_error || (s->cfg->backend && !s->leaked) || mg_strict() || s->cfg->fullgraph ||
      PyErr_ExceptionMatches(PyExc_KeyboardInterrupt))
    return -1;
  PyObject *t, *v, *tb;
  PyErr_Fetch(&t, &v, &tb);
  PyErr_NormalizeException(&t, &v, &tb);
  int rc = PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "magneto: %U runs eagerly: %R", s->v.code->co_qualname,
                            v ? v : Py_None);
  mg_log(MG_LOG_fallback, "%s: compiling failed", PyUnicode_AsUTF8(s->v.code->co_qualname));
  segment_note_failure(s, v);
  mg_stats.fallbacks++;
  Py_XDECREF(t);
  Py_XDECREF(v);
  Py_XDECREF(tb);
  return rc ? -1 : 1;
}

static int segment_check_own_guards(Segment *s, MgEntry *e) {
  MgGuardFail why = {0};
  if (mg_segment_guards_hold(s, e->guards, &why)) return 0;
  if (!PyErr_Occurred())
    PyErr_Format(PyExc_AssertionError, "the guards of %U, line %d, fail on their own recording: %s",
                 s->v.code->co_qualname, e->line, why.text);
  return -1;
}

/* Why the frame is not recorded.  The context of an autograd.Function is new at every call,
 * and its state lives in C. */
static const char *segment_refused(const Segment *s, MgBreakCode *code) {
  for (int i = 0; i < s->frame[0].nslot; i++) {
    PyObject *o = s->saved[i];
    if (o && PyObject_TypeCheck(o, mg_torch.function_base))
      return *code = BK_autograd_function, "a method of an autograd.Function that autograd calls";
    if (o && PyType_Check(o) && !((PyTypeObject *)o)->tp_mro)
      return *code = BK_class_statement, "a class that is being made is its argument";
  }
  return NULL;
}

static void segment_count(const Segment *s) {
  char why[sizeof s->reason + 40];
  bool whole = s->entry && s->entry->is_ret;
  snprintf(why, sizeof why, "%s: %s", mg_break_name(s->why), s->reason);
  mg_counters_segment(s->entry ? s->entry->nnode : 0, whole ? NULL : why);
}

/* Records until there is an entry, or nothing can be recorded here.  True if compiling failed: with an
 * exception, or since a signal waits. */
static bool segment_attempts(Segment *s) {
  for (int i = 0; i < MG_TUNE_SEGMENT_ATTEMPTS && !s->entry && !s->off && !s->too_deep; i += !s->again) {
    if (!s->stop_at && !s->stop_level) break; /* it ends where it starts */
    if (mg_segment_attempt(s)) return true;
  }
  return false;
}

/* There is nothing before the break, or no end that can be rebuilt: execute instructions instead. */
static void segment_be_plain(const Segment *s, MgSegmentAt *d, MgBucket *b) {
  /* others may come: a fake tensor may be a rehearsal */
  bool passing = mg_break_passes(s->why) && b->refused < MG_TUNE_SEGMENT_REFUSALS;
  *(passing ? &d->once : &b->plain) = s->nplain > 0 ? s->nplain : 1;
  b->refused += passing;
}

/* Keeps the entry at its site.  The result of mg_compile_segment. */
static int segment_keep(Segment *s, MgSegmentAt *d) {
  /* Recording ran Python code, which may have called reset(): the site is looked up now. */
  MgSite *site = mg_cache_site(s->info, s->cfg->id, s->unit, d->chain, true);
  MgBucket *bucket = site ? mg_cache_bucket(site, &s->slots, true) : NULL;
  if (!bucket) return -1;
  if (s->too_deep) {
    mg_log(MG_LOG_fallback, "%s, line %d: %s", PyUnicode_AsUTF8(s->v.code->co_qualname),
           s->code->line[s->unit], s->reason);
    bucket->eager = true;
    return 1;
  }
  segment_count(s);
  if (!s->entry) {
    segment_be_plain(s, d, bucket);
    return 0;
  }
  MgEntry *e = s->entry;
  mg_segment_retry_contents(s, bucket, e);
  bucket->denied |= mg_segment_retry_to_kept(s->denied);
  mg_segment_log(s, e);
  e->number = ++mg_stats.entries;
  if (e->nnode > 0) mg_stats.graphs++;
  if (!e->is_ret) mg_stats.breaks[e->code]++;
  s->entry = NULL;
  return mg_cache_add(bucket, e);
}

static int segment_compile(Segment *s, MgSegmentAt *d) {
  /* In a loop each turn would leave an entry of its own, made for the objects of that turn. */
  s->may_descend = !mg_force_break && !mg_decode_in_loop(s->code, s->unit);
  MgHookMode mode = mg_hook_mode;
  s->eager = s->off = mg_stance_set("disable");
  const char *refused = s->off ? NULL : segment_refused(s, &s->why);
  if (refused) {
    s->off = true;
    snprintf(s->reason, sizeof s->reason, "%s", refused);
  }
  bool failed = segment_attempts(s);
  if (failed) {
    mg_hook_mode = HOOK_off;
    int rc = segment_give_up(s);
    mg_hook_mode = mode;
    return rc;
  }
  mg_hook_mode = mode;
  bool refuses = (s->cfg->fullgraph || s->break_is_error) && !s->eager, whole = s->entry && s->entry->is_ret;
  if (refuses && !whole && s->why != BK_exception) return segment_fullgraph_error(s);
  if (s->off) return 1;
  if (s->entry && mg_strict() && segment_check_own_guards(s, s->entry)) return -1;
  return segment_keep(s, d);
}

int mg_compile_segment(MgSegmentAt *d, const MgSlots *slots) {
  uint8_t kept = mg_cache_denied(d->info, d->cfg->id, slots);
  Segment s = {.ts = d->ts,
               .cfg = d->cfg,
               .info = d->info,
               .code = d->code,
               .v = d->v,
               .stop_at = -1,
               .denied = mg_segment_retry_from_kept(kept) | (uint32_t)d->unclaimed << RETRY_claims,
               .false_claims = d->unclaimed};
  int rc = mg_segment_save(&s, d, slots) ? -1 : segment_compile(&s, d);
  mg_entry_release(s.entry);
  mg_segment_free(&s);
  return rc;
}
