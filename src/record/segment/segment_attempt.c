/* One attempt to record and compile a segment.
 * In: the frames at its start, what is denied, where it has to end.  Out: Segment.entry, or what the next
 * attempt does otherwise. Invariants: the frames and torch's global state are as before; every stand-in is
 * dead. */
#include "host/python/pyobject.h"
#include "record/segment/segment_parts.h"
#include <stdlib.h>
#include "base/log.h"
#include "entry/launch/stats.h"
#include "entry/run/entry_cache.h"
#include "entry/run/snapshot_run.h"
#include "host/python/code_info.h"
#include "host/python/decode.h"
#include "host/python/hook_mode.h"
#include "host/python/interrupt.h"
#include "ir/graph/graph.h"
#include "record/autograd/joint_trace.h"
#include "record/call/marked_functions.h"
#include "record/core/capture.h"
#include "record/segment/lifetime.h"
#include "record/segment/tensor_lifetime.h"
#include "record/symbolic/dynamic_sources.h"

typedef struct Attempt {
  MgCtx ctx; /* memory of all below */
  MgExprs exprs;
  MgGraph graph;
  MgRec rec;
  MgOuter outer;
  SegmentEnd end;
  Py_ssize_t modules; /* how many were imported before */
} Attempt;

/* An object that is older than the recording holds what only a recording may see: its
 * entry would go on from there. */
static int attempt_leaked(Segment *s, int alive) {
  PyErr_Format(PyExc_AssertionError, "%d stand-in tensors outlive the recording of %U, line %d", alive,
               s->v.code->co_qualname, s->code->line[s->unit]);
  mg_entry_release(s->entry), s->entry = NULL;
  s->failed = s->leaked = true;
  return -1;
}

/* The recording as it begins. */
static void attempt_rec(Segment *s, Attempt *a) {
  static uint64_t recordings;
  a->rec = (MgRec){.ctx = &a->ctx,
                   .x = &a->exprs,
                   .g = &a->graph,
                   .slots = &s->slots,
                   .cfg = s->need_fx ? &s->graph_cfg : s->cfg,
                   .dyn = Py_XNewRef(s->info->dyn), /* a reset from another thread drops info's */
                   .refused = mg_marked_refused_ids(),
                   .dynamic_sources = mg_dynfloat_sources(false),
                   .unbacked_sources = mg_dynfloat_sources(true),
                   .transient = s->frame[0].d->transient,
                   .peers = s->frame[0].d->peers,
                   .retry = {.denied = s->denied},
                   .handled = s->exc0,
                   .stop = s->stop,
                   .nstop = s->nstop,
                   .recording = ++recordings,
                   .stopped = mg_segment_stopped,
                   .stopped_arg = s};
  a->rec.want_fx = a->rec.cfg->backend != NULL;
  a->rec.own_fx = s->need_fx;
}

/* -1 with an exception. */
static int attempt_begin(Segment *s, Attempt *a) {
  s->again = false;
  s->level = 0;
  mg_ctx_init(&a->ctx);
  a->ctx.stop = mg_interrupt_due;
  if (mg_exprs_init(&a->exprs, &a->ctx) || mg_graph_init(&a->graph, &a->ctx, &a->exprs))
    return PyErr_NoMemory(), -1;
  return mg_segment_outer(s, &a->outer);
}

/* Instructions, snapshot and gradient graph, while tensors are stand-ins.  NULL, with *rc -1 and an
 * exception, or with *rc 0: another attempt is needed. */
static MgSnapshot *attempt_capture(Segment *s, Attempt *a, int *rc) {
  MgRec *r = &a->rec;
  MgSnapshot *snap = mg_segment_record(s, r, &a->outer, &a->end);
  *rc = 0;
  if (!snap) return NULL;
  bool joint = !s->inner && !mg_retry_failed(r, RETRY_texts); /* an inner frame's snapshot has it already */
  if (s->failed || (joint && mg_joint_record(r, snap))) {
    mg_snapshot_free(snap);
    *rc = -1;
    return NULL;
  }
  bool again = mg_interrupt_due() || r->again;
  again |= mg_segment_retry_take(s, r, RETRY_WHEN_snapshot);
  if (!again && !mg_segment_retry_next(s, r)) return snap;
  s->again = r->again;
  mg_segment_drop_inner(s);
  mg_snapshot_free(snap);
  return NULL;
}

/* Torch is in a state that is never recorded. */
static void attempt_refused(Segment *s, const MgRec *r) {
  mg_clear_for_another_way();
  s->off = true;
  s->eager = r->cap && r->cap->modes_before > 0;
  s->why = (MgBreakCode)r->code;
  snprintf(s->reason, sizeof s->reason, "%s", r->reason);
}

/* The recording from its begin to its end; as attempt_capture. */
static MgSnapshot *attempt_record(Segment *s, Attempt *a, int *rc) {
  MgRec *r = &a->rec;
  MgSnapshot *snap = NULL;
  mg_stats.attempts++;
  mg_rec = r;
  mg_hook_mode = HOOK_off;
  if (!mg_objects_begin(r, &s->slots)) {
    a->graph.default_dtype = r->guards->state.default_dtype;
    if (!mg_standin_begin(r)) {
      snap = attempt_capture(s, a, rc);
      mg_effects_undo(r);
    } else if (r->abort) {
      attempt_refused(s, r);
      *rc = 0;
    }
    mg_standin_end(r);
  }
  s->too_deep = r->too_deep;
  s->off |= s->cfg->fullgraph && r->rehearsed;
  s->eager |= r->rehearsed;
  mg_rec = NULL;
  mg_segment_restore(s);
  return snap;
}

/* Makes the entry.  0: it is there, or another attempt is needed.  -1 with an exception. */
static int attempt_build(Segment *s, Attempt *a, MgSnapshot *snap) {
  MgRec *r = &a->rec;
  if (!mg_segment_make_entry(s, r, snap, &a->outer, &a->end)) return 0;
  bool again = mg_segment_retry_take(s, r, RETRY_WHEN_built) || mg_segment_retry_next(s, r);
  s->failed = !again;
  if (again) mg_clear_for_another_way();
  return again ? 0 : -1;
}

/* Frees what the entry did not take, and looks whether that is all.  The result of the attempt. */
static int attempt_end(Segment *s, Attempt *a, int rc) {
  MgRec *r = &a->rec;
  mg_segment_check_state(s, r->filled_cache, PyDict_GET_SIZE(PyImport_GetModuleDict()) != a->modules);
  mg_segment_retry_take(s, r, RETRY_WHEN_ended);
  s->denied |= r->retry.denied;
  PyObject *t, *v, *tb;
  PyErr_Fetch(&t, &v, &tb);
  mg_objects_end(r);
  int alive = mg_standin_alive(r);
  /* Frames that user code looked at (warnings, inspect) keep their locals until their cycle is collected. */
  if (alive) PyGC_Collect(), alive = mg_standin_wait(r);
  mg_standin_free(r);
  PyErr_Restore(t, v, tb);
  if (alive && !rc) rc = attempt_leaked(s, alive);
  if (!s->leaked && (s->frame[0].d->stopped = mg_interrupt_due())) rc = -1;
  return rc;
}

int mg_segment_attempt(Segment *s) {
  Attempt a = {.modules = PyDict_GET_SIZE(PyImport_GetModuleDict())};
  int rc = -1;
  double t0 = mg_now_ms();
  attempt_rec(s, &a);
  if (!attempt_begin(s, &a)) {
    MgSnapshot *snap = attempt_record(s, &a, &rc);
    mg_stats.bytecodes += a.rec.nbytecode;
    double ms = mg_now_ms() - t0;
    mg_stats.record_ms += ms;
    if (snap) rc = attempt_build(s, &a, snap);
    if (s->entry) s->entry->record_ms = ms;
    rc = attempt_end(s, &a, rc);
  }
  Py_XDECREF(a.rec.dyn);
  Py_XDECREF(a.rec.shown);
  Py_XDECREF(a.rec.ids);
  Py_XDECREF(a.rec.changed);
  Py_XDECREF(a.rec.refused);
  Py_XDECREF(a.rec.dynamic_sources);
  Py_XDECREF(a.rec.unbacked_sources);
  free(a.outer.untouched);
  mg_ctx_free(&a.ctx);
  return rc;
}
