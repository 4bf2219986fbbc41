/* From the recording of a segment to its entry.
 * In: the snapshot, with the recording over but alive.  Out: Segment.entry, sealed; or an exception. */
#include "record/segment/segment_parts.h"
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "entry/guard/guard_add.h"
#include "entry/guard/guard_check.h"
#include "entry/launch/stats.h"
#include "entry/run/entry_cache.h"
#include "entry/run/exec_run.h"
#include "entry/run/snapshot_run.h"
#include "host/python/decode.h"
#include "record/core/capture.h"
#include "record/dispatch/raising_ops.h"
#include "record/object/lazy_constants.h"
#include "record/segment/exec_build.h"
#include "record/symbolic/sizes.h"
#include "record/symbolic/speculation.h"
#include "tuning.h"

/* Where the entry starts and ends, and why.  False when out of memory, without an exception. */
static bool entry_place(Segment *s, MgEntry *e, const MgOuter *o, const SegmentEnd *end) {
  e->unit = s->unit;
  e->end = end->unit;
  e->is_ret = end->is_ret;
  e->nplain = s->nplain;
  e->level = s->level;
  if (s->level && (e->returns = mg_malloc(sizeof *e->returns * (size_t)s->level)))
    memcpy(e->returns, s->returns, sizeof *e->returns * (size_t)s->level);
  e->nslot = e->nvalue = end->is_ret ? 0 : end->nslot;
  if (s->inner) {
    e->inner = s->inner;
    e->ninner = s->ninner;
    e->nvalue = s->nvalue;
    s->inner = NULL;
    s->ninner = 0;
  }
  e->line = s->code->line[s->unit];
  e->end_line = !end->is_ret && s->line ? s->line : s->frame[s->level].d->code->line[end->unit];
  PyCodeObject *co = e->ninner ? s->inner_code : s->frame[s->level].d->v.code;
  e->end_file = Py_NewRef(co->co_filename);
  e->end_name = Py_NewRef(co->co_qualname);
  e->code = end->is_ret ? BK_none : s->why;
  const char *reason = end->is_ret ? "return" : s->reason;
  if ((e->reason = mg_malloc(strlen(reason) + 1))) strcpy(e->reason, reason);
  if ((e->untouched = mg_calloc((size_t)e->nslot + 1, sizeof *e->untouched)))
    for (int i = 0; i < e->nslot && i < o->nslot; i++) e->untouched[i] = o->untouched[i];
  return e->reason && e->untouched && (!s->level || e->returns);
}

/* Without gradients a graph of torch's own operators is the same whether its inputs require grad or not. */
static bool entry_any_grad(const MgRec *r) {
  const MgCapture *cap = r->cap;
  return !cap->asks_grad && !cap->own_kernels && !r->want_fx && !r->joint;
}

/* Compiles the graph and takes over the guards.  -1 with an exception. */
static int entry_build(Segment *s, MgEntry *e, MgRec *r) {
  if (mg_raises_missed(r)) {
    mg_retry_fail(r, RETRY_raises);
    return -1;
  }
  mg_unread_end(r);
  bool draws = mg_claim_draws(r);
  e->claims = r->claims;
  e->unclaimed = s->false_claims;
  e->repeats = mg_claim_repeats(r);
  if (PyErr_Occurred() || !mg_claim_holds(r)) return -1;
  if (mg_symsize_promises(r->cap)) {
    s->users_error = true;
    return -1;
  }
  double t0 = mg_now_ms();
  e->exec = mg_exec_build(r, r->cfg, e->snap);
  e->compile_ms = mg_now_ms() - t0;
  e->recording = r->recording;
  mg_stats.compile_ms += e->compile_ms;
  if (entry_any_grad(r)) mg_guards_any_grad(r->guards);
  if (!e->exec || mg_guards_seal(r->guards)) return -1;
  e->shown = Py_XNewRef(r->shown);
  e->keeps_random = draws || mg_exec_keeps_random(e->exec);
  e->guards = r->guards;
  r->guards = NULL;
  return 0;
}

int mg_segment_make_entry(Segment *s, MgRec *r, MgSnapshot *snap, const MgOuter *o, const SegmentEnd *end) {
  MgEntry *e = mg_entry_new();
  if (!e) {
    mg_snapshot_free(snap);
    return -1;
  }
  e->snap = snap;
  e->nnode = (int)r->g->nnode - 1;
  int rc = entry_place(s, e, o, end) ? entry_build(s, e, r) : (PyErr_NoMemory(), -1);
  if (rc) mg_entry_release(e);
  else s->entry = e;
  return rc;
}

bool mg_segment_guards_hold(const Segment *s, const MgGuards *g, MgGuardFail *why) {
  PyObject **vals = mg_calloc((size_t)mg_guards_nsrc(g) + 1, sizeof *vals);
  if (!vals) return PyErr_NoMemory(), false;
  bool ok = mg_guards_check(g, &s->slots, vals, why);
  free(vals);
  return ok;
}

/* Drops an entry that does not hold any more, so that the next attempt sees what this one has changed: a
 * cache that is full now, or what a module does when it is imported.  Kernels and torch import on first use;
 * the program's own imports are breaks. */
void mg_segment_check_state(Segment *s, bool filled_cache, bool imported) {
  MgGuardFail why = {0};
  if (!s->entry || !(filled_cache || imported)) return;
  if (mg_segment_guards_hold(s, s->entry->guards, &why) || PyErr_Occurred()) return;
  mg_entry_release(s->entry);
  s->entry = NULL;
  s->again = imported && ++s->nimport < MG_TUNE_SEGMENT_ATTEMPTS;
}

void mg_segment_log(const Segment *s, const MgEntry *e) {
  const char *name = PyUnicode_AsUTF8(s->v.code->co_qualname), *file = PyUnicode_AsUTF8(e->end_file);
  if (!e->is_ret && mg_log_on(MG_LOG_graph_breaks))
    mg_log(MG_LOG_graph_breaks, "%s:%d in %s: %s: %s\n  hint: %s", file, e->end_line,
           PyUnicode_AsUTF8(e->end_name), mg_break_name(e->code), e->reason, mg_break_hint(e->code));
  if (mg_log_on(MG_LOG_plan_frame))
    mg_log(MG_LOG_plan_frame, "%s (%s): units %d-%d, lines %d-%d: %d ops, then %s%s%s", name, file, e->unit,
           e->end, e->line, e->end_line, e->nnode, e->is_ret ? "return" : mg_break_name(e->code),
           e->is_ret ? "" : ": ", e->is_ret ? "" : e->reason);
  if (mg_log_on(MG_LOG_guards)) {
    MgStrbuf text = {0};
    mg_guards_print(e->guards, &text);
    mg_log_text(MG_LOG_guards, name, mg_sb_text(&text));
    mg_sb_free(&text);
  }
}
