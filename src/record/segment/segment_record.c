/* Recording the instructions of a segment.
 * In: frames at its start.  Out: the snapshot at its end; or none, with the retry or the break noted in
 * Segment. Does not compile. */
#include "record/object/fresh.h"
#include "record/segment/segment_parts.h"
#include <stdlib.h>
#include "entry/run/snapshot_run.h"
#include "host/python/decode.h"
#include "host/python/hook_mode.h"
#include "record/bytecode/eval_loop.h"
#include "record/snapshot/snapshot.h"

/* A backend for torch-level graphs that runs them as they are. */
static PyObject *record_graph_itself(PyObject *self, PyObject *const *args, Py_ssize_t n) {
  return Py_NewRef(args[0]);
}
static PyMethodDef record_graph_def = {"graph_itself", (PyCFunction)(void *)record_graph_itself,
                                       METH_FASTCALL, NULL};

static int record_want_graph(Segment *s) {
  static PyObject *backend; /* strong, process lifetime */
  if (!backend && !(backend = PyCFunction_New(&record_graph_def, NULL)))
    return PyErr_Clear(), -1; /* no room: the frame is not recorded */
  s->graph_cfg = *s->cfg;
  s->graph_cfg.backend = backend;
  s->need_fx = true;
  return 0;
}

/* Runs the frame, and those that wait for it as far as the recording goes up. */
static MgLoopEnd record_run(Segment *s, MgRec *r, MgOuter *o, MgLoop *l) {
  MgLoopEnd how;
  int more;
  do {
    const MgSegmentAt *at = s->frame[s->level].d;
    mg_hook_mode = HOOK_record;
    how = mg_loop_run(l, s->ts, at->f, at->code, o, true, 0);
    mg_hook_mode = HOOK_off;
    more = how == LOOP_leave ? mg_segment_go_up(s, r, o, l) : 0;
  } while (more > 0);
  return how;
}

/* The snapshot that mg_segment_stopped took, with where its outermost frame is; NULL: none. */
static MgSnapshot *record_take_stopped(Segment *s, SegmentEnd *end) {
  MgSnapshot *snap = s->snap;
  s->snap = NULL;
  *end = (SegmentEnd){.unit = s->end, .nslot = s->nslot_end};
  return snap;
}

/* Has the recording to be repeated?  Notes with what. */
static bool record_repeats(Segment *s, MgRec *r, const MgOuter *o) {
  s->again = r->abort && r->again;
  mg_segment_retry_take(s, r, RETRY_WHEN_broken);
  if (r->need_fx && record_want_graph(s)) s->again = false;
  if (s->again) {
    mg_segment_drop_inner(s);
    return true;
  }
  if (!r->abort) return false;
  if (s->inner) { /* there, but it cannot be rebuilt */
    mg_segment_drop_inner(s);
    mg_segment_move_back(s, r, o->n);
    return true;
  }
  /* libraries raise where they believe a compiler at work: record what eager would do */
  bool told = r->asked_compiling && !mg_retry_denied(r, RETRY_compiling);
  if (r->code == BK_exception && told) mg_retry_fail(r, RETRY_compiling);
  if (!mg_segment_retry_take(s, r, RETRY_WHEN_raised)) mg_segment_place_break(s, r, o);
  return true;
}

/* The snapshot of the frame of this level.  NULL with a break set. */
static MgSnapshot *record_snapshot(const Segment *s, const MgOuter *o, const MgLoop *l,
                                   const SegmentEnd *end) {
  const MgSegmentAt *at = s->frame[s->level].d;
  MgSnapshot *snap = NULL;
  if (end->is_ret) {
    const MgInstr *in = &at->code->instr[l->unit];
    PyObject *ret = in->op == BC_RETURN_CONST ? PyTuple_GET_ITEM(at->v.code->co_consts, in->arg) : l->sp[-1];
    return mg_snapshot_build(NULL, 0, NULL, ret);
  }
  bool *untouched = mg_calloc((size_t)end->nslot + 1, sizeof *untouched);
  for (int i = 0; untouched && i < end->nslot && i < o->nslot; i++) untouched[i] = o->untouched[i];
  if (untouched) snap = mg_snapshot_build(at->v.slot, end->nslot, untouched, NULL);
  free(untouched);
  return snap;
}

MgSnapshot *mg_segment_record(Segment *s, MgRec *r, MgOuter *o, SegmentEnd *end) {
  MgLoop l;
  MgLoopEnd how = record_run(s, r, o, &l);
  if (r->abort)
    mg_generators_end(r); /* frames of the traceback may hold the last reference to one, whose clean-up code
                             is not to run */
  PyErr_Clear();          /* what stopped the loop is in r and l */
  bool retry = mg_segment_retry_next(s, r);
  MgSnapshot *snap = record_take_stopped(s, end);
  if (retry) {
    mg_snapshot_free(snap);
    mg_segment_drop_inner(s);
    return NULL;
  }
  if (snap) return snap;
  if (record_repeats(s, r, o)) return NULL;
  *end = (SegmentEnd){
      .unit = l.unit, .nslot = mg_pyframe_stacktop(s->frame[s->level].d->f), .is_ret = how == LOOP_leave};
  if (how == LOOP_stop && o->exc_depth) {
    mg_rec_break(BK_handler, "inside of an exception handler");
    PyErr_Clear(); /* the break says it */
    mg_segment_place_break(s, r, o);
    return NULL;
  }
  if (end->is_ret && mg_segment_clear_locals(s, r, o)) {
    mg_segment_place_break(s, r, o);
    return NULL;
  }
  snap = record_snapshot(s, o, &l, end);
  PyErr_Clear(); /* without a snapshot the break says it */
  if (!snap) mg_segment_move_back(s, r, o->n);
  return snap;
}
