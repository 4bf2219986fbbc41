/* Compiling one segment of a frame: record, restart with an earlier end after a
 * break, snapshot, compile, seal.
 * In: a linked frame before an instruction.  Out: a new entry at its site, or the site marked as plain.
 * Invariants: the frame and torch's global state are as before, whatever happens; with MAGNETO_STRICT=1 every
 * stand-in is dead afterwards and the guards hold on the very frame that was recorded. */
#include "record/segment/segment.h"
#include <stdlib.h>
#include <string.h>
#include "base/env.h"
#include "base/log.h"
#include "entry/guard/guard_add.h"
#include "entry/guard/guard_check.h"
#include "entry/guard/guard_set.h"
#include "entry/launch/config.h"
#include "entry/launch/stats.h"
#include "entry/run/entry_cache.h"
#include "entry/run/exec_run.h"
#include "entry/run/snapshot_program.h"
#include "entry/run/snapshot_run.h"
#include "host/python/code_info.h"
#include "host/python/decode.h"
#include "host/python/dynamo_config.h"
#include "host/python/hook_mode.h"
#include "host/python/interrupt.h"
#include "host/python/names.h"
#include "record/autograd/joint_trace.h"
#include "record/bytecode/eval_loop.h"
#include "record/call/marked_functions.h"
#include "record/core/capture.h"
#include "record/core/identity.h"
#include "record/core/recording.h"
#include "record/dispatch/raising_ops.h"
#include "record/object/fresh.h"
#include "record/object/lazy_constants.h"
#include "record/object/namespaces.h"
#include "record/object/older_iterators.h"
#include "record/object/wrap.h"
#include "record/segment/dynamo_counters.h"
#include "record/segment/exec_build.h"
#include "record/segment/lifetime.h"
#include "record/segment/tensor_lifetime.h"
#include "record/snapshot/snapshot.h"
#include "record/symbolic/dynamic_sources.h"
#include "record/symbolic/sizes.h"
#include "record/symbolic/speculation.h"

#define SEGMENT_ATTEMPTS 12 /* recordings of one segment before its frame is left to CPython */
#define SEGMENT_REFUSALS                                                                                     \
  8 /* recordings that end where they begin at a kind of tensor, before that place is taken for plain */

typedef struct SegmentFrame {
  MgSegmentAt *d;
  int base, nslot; /* its slots among those of the segment */
  int lasti;       /* its position */
} SegmentFrame;

typedef struct Segment {
  PyThreadState *ts;
  const MgConfig *cfg;
  MgCodeInfo *info;
  const MgCode *code; /* of the frame that it starts in */
  MgFrameView v;
  SegmentFrame frame[MG_STOP_DEPTH]; /* that one, then those that wait for it */
  int nframe;
  int level;        /* the one that the recording is in */
  int *returns;     /* level entries: units where the ones before returned */
  int max_level;    /* it may not go further up */
  int unit;         /* where it starts */
  MgSlots slots;    /* of all frames: slots in use at the start */
  PyObject **saved; /* their values, strong; slots.slot */
  PyObject *exc0;   /* handled exception at the start, strong or NULL */
  /* the end that the next attempt has to use */
  int stop_level;             /* the frame that it is in */
  long stop_at;               /* -1: as far as it goes */
  int nplain;                 /* instructions to execute unrecorded there */
  int back;                   /* how far the next failing snapshot moves the end */
  MgStop stop[MG_STOP_DEPTH]; /* n of each frame on the way to the end; only with nstop > 1 */
  int nstop;                  /* frames on that way; 0: the end is in this frame */
  bool may_descend;           /* the end may be in a frame that this one calls */
  long outer_stop;            /* stop_at and nplain when such an end cannot be used */
  int outer_nplain;
  MgSnapshot *snap; /* taken at such an end, with */
  MgInner *inner;   /* the frames there, */
  int ninner, nvalue;
  int end, nslot_end;       /* and this frame's position and slots */
  PyCodeObject *inner_code; /* strong: code of the innermost frame */
  int line;                 /* of the break; 0: where the segment ends */
  MgBreakCode why;          /* the break that made it */
  char reason[256];
  MgEntry *entry;   /* the result */
  bool failed;      /* compiling failed: exception set */
  bool leaked;      /* because stand-ins outlive the recording */
  uint32_t denied;  /* bits RETRY_*: what the next attempt does without (retries.def) */
  bool again;       /* the last attempt changed what it met (a lazy module, an import), and does not count */
  int nimport;      /* attempts that an import has spoilt */
  bool users_error; /* what is raised is the program's to see */
  bool need_fx;     /* a torch-level graph is needed, which runs as it is: graph_cfg is used */
  MgConfig graph_cfg;
  bool false_claims;   /* a run found another answer than the one that was assumed (speculation.h) */
  bool break_is_error; /* where it broke, the program had asked for an error:
                          torch._dynamo.error_on_graph_break(True) */
  bool off;            /* torch is in a state that is never recorded (inside vmap, under a dispatch mode) */
  bool eager;          /* by the program's dispatch mode, which sees every op, for fake tensors, by
                          torch._dynamo.config.disable: no error under fullgraph */
  bool too_deep;       /* the recursion of the frame leaves too little C stack */
} Segment;

/* ---- the frame's own state ---- */

/* Names of the slots of several frames; those of the value stacks and the functions have none. */
static PyObject *segment_names(const Segment *s) {
  PyObject *all = PyTuple_New(s->slots.n);
  for (int i = 0; all && i < s->slots.n; i++) PyTuple_SET_ITEM(all, i, Py_NewRef(Py_None));
  for (int k = 0; all && k < s->nframe; k++) {
    PyCodeObject *co = s->frame[k].d->v.code;
    for (int i = 0; all && i < co->co_nlocalsplus; i++) {
      PyObject *name = PyTuple_GET_ITEM(co->co_localsplusnames, i);
      name = k ? PyUnicode_FromFormat("%d.%U", k, name) : Py_NewRef(name);
      if (!name) Py_CLEAR(all);
      else Py_SETREF(((PyTupleObject *)all)->ob_item[s->frame[k].base + i], name);
    }
  }
  return all;
}

static int segment_save(Segment *s, MgSegmentAt *first, const MgSlots *slots) {
  s->unit = mg_pyframe_lasti(first->f) + 1;
  s->slots = *slots;
  for (MgSegmentAt *d = first; d; d = d->up) {
    SegmentFrame *f = &s->frame[s->nframe];
    int top = mg_pyframe_stacktop(d->f);
    *f = (SegmentFrame){d, s->nframe ? f[-1].base + f[-1].nslot + 1 : 0, top, mg_pyframe_lasti(d->f)};
    s->nframe++;
  }
  s->max_level = s->nframe - 1;
  s->returns = mg_calloc((size_t)s->nframe, sizeof *s->returns);
  if (!(s->saved = mg_calloc((size_t)slots->n + 1, sizeof *s->saved)) || !s->returns)
    return PyErr_NoMemory(), -1;
  for (int i = 0; i < slots->n; i++) s->saved[i] = Py_XNewRef(slots->slot[i]);
  s->slots.slot = s->saved;
  s->exc0 = Py_XNewRef(*mg_pyframe_exc_slot(s->ts));
  return s->nframe > 1 && !(s->slots.names = segment_names(s)) ? -1 : 0;
}

/* Makes the frame that the recording started in the current one again. */
static void segment_restore(Segment *s) {
  for (int k = s->level; k >= 0; k--) {
    const SegmentFrame *f = &s->frame[k];
    PyObject **slot = f->d->v.slot;
    if (k < s->level) mg_pyframe_link(s->ts, f->d->f, &f->d->link);
    for (int i = 0, n = mg_pyframe_stacktop(f->d->f); i < n; i++) Py_CLEAR(slot[i]);
    for (int i = 0; i < f->nslot; i++) slot[i] = Py_XNewRef(s->saved[f->base + i]);
    mg_pyframe_set_stacktop(f->d->f, f->nslot);
    mg_pyframe_set_lasti(f->d->f, f->lasti);
  }
  PyObject **exc = mg_pyframe_exc_slot(s->ts);
  if (*exc != s->exc0) Py_XSETREF(*exc, Py_XNewRef(s->exc0));
}

static void segment_drop_inner(Segment *s) {
  free(s->inner);
  s->inner = NULL;
  s->ninner = 0;
}

static void segment_free(Segment *s) {
  segment_drop_inner(s);
  Py_XDECREF(s->inner_code);
  for (int i = 0; s->saved && i < s->slots.n; i++) Py_XDECREF(s->saved[i]);
  free(s->saved);
  free(s->returns);
  Py_XDECREF(s->slots.names);
  Py_XDECREF(s->exc0);
}

/* ---- one attempt ---- */

/* Is it between raising an exception and the end of its handler? */
static bool segment_handles(long n, int exc_depth, long exc_n) {
  return exc_depth || (exc_n >= 0 && exc_n <= n - 1);
}

/* Where a segment can end for a break in a frame: before what was only loaded for the breaking instruction; a
 * segment cannot end while its own exception is being handled. */
static long segment_end_of(long n, long tail, int exc_depth, long exc_n, int *nplain) {
  bool handles = segment_handles(n, exc_depth, exc_n);
  long end = handles ? exc_n - 1 : n - 1 - tail; /* values that were only loaded need no guards */
  *nplain = handles ? 1 : (int)(n - end);
  if (end > 0) return end;
  if (!handles) *nplain = (int)n;
  return 0;
}

/* May the next attempt end in a frame that this one calls?  Then the innermost frame
 * that has something to keep. */
static void segment_descend(Segment *s, const MgRec *r) {
  int k = 0, nplain = 0;
  while (k + 1 < r->npath && !segment_handles(r->path[k].n, r->path[k].exc_depth, r->path[k].exc_n)) k++;
  for (; k > 0; k--) {
    const MgStop *p = &r->path[k];
    long end = segment_end_of(p->n, p->tail, p->exc_depth, p->exc_n, &nplain);
    if (p->library && (!end || r->g->nnode == p->nnode))
      continue; /* nothing to keep: the call is repeated as a whole */
    memcpy(s->stop, r->path, sizeof *s->stop * (size_t)k);
    s->stop[k].n = end;
    s->nstop = k + 1;
    s->outer_stop = s->stop_at;
    s->outer_nplain = s->nplain;
    s->nplain = nplain;
    s->stop_at = r->path[0].n;
    s->line = p->line;
    return;
  }
}

/* Decides where the next attempt ends, after a break in instruction number n. */
static void segment_place_break(Segment *s, const MgRec *r, const MgOuter *o) {
  s->stop_at = segment_end_of(o->n, o->tail, o->exc_depth, o->exc_n, &s->nplain);
  s->stop_level = s->level;
  s->nstop = 0;
  s->line = (int)r->line;
  s->why = (MgBreakCode)r->code;
  snprintf(s->reason, sizeof s->reason, "%s", r->reason);
  s->break_is_error = mg_stance_break_is_error();
  if (s->may_descend) segment_descend(s, r);
}

/* The snapshot failed at the end of the segment: end it earlier, by growing steps. */
static void segment_move_back(Segment *s, const MgRec *r, long n) {
  if (s->nstop) { /* end in this frame instead */
    s->nstop = 0;
    s->may_descend = false;
    s->stop_at = s->outer_stop;
    s->nplain = s->outer_nplain;
    return;
  }
  if (s->level) { /* where the frame before returns */
    s->max_level = s->level - 1;
    s->stop_level = 0;
    s->stop_at = -1;
    s->nplain = 0;
    return;
  }
  if (s->stop_at < 0) { /* ran to its RETURN */
    s->nplain = 0;
    s->why = (MgBreakCode)r->code;
    snprintf(s->reason, sizeof s->reason, "%s", r->reason);
    s->stop_at = n;
    s->stop_level = 0;
    s->line = 0;
  }
  long step = s->back ? s->back : 1, end = s->stop_at - step;
  s->back = (int)step * 2;
  if (end < 0) end = 0;
  s->nplain += (int)(s->stop_at - end);
  s->stop_at = end;
}

/* A frame at the end of a segment: its function and slots go to *v, which moves on. */
static void segment_add_inner(MgInner *in, const MgLoop *l, bool innermost, int first, PyObject **v) {
  *in = (MgInner){.first = first};
  in->unit = innermost ? l->unit : (int)(l->in - l->code->instr);
  in->nslot = (int)(l->sp - l->v.slot) - (innermost ? 0 : mg_loop_call_takes(l->in));
  *v++ = l->v.func;
  memcpy(v, l->v.slot, sizeof *v * (size_t)in->nslot);
}

/* The recording reached its end in a frame that this one calls: the snapshot has
 * all frames, outermost first. */
static int segment_stopped(MgRec *r, MgLoop *innermost) {
  Segment *s = r->stopped_arg;
  MgLoop *frame[MG_STOP_DEPTH];
  int n = 0, total = 0, rc = -1;
  for (MgLoop *l = innermost; l; l = l->up) n++;
  if (n > MG_STOP_DEPTH) return -1;
  int k = n;
  for (MgLoop *l = innermost; l; l = l->up) {
    frame[--k] = l;
    total += (int)(l->sp - l->v.slot) + 1;
  }
  PyObject **v = mg_calloc((size_t)total + 1, sizeof *v);
  bool *untouched = mg_calloc((size_t)total + 1, sizeof *untouched);
  MgInner *inner = mg_calloc((size_t)n, sizeof *inner);
  mg_hook_mode = HOOK_off;
  if (v && untouched && inner) {
    MgLoop *o = frame[0];
    s->nslot_end = (int)(o->sp - o->v.slot) - mg_loop_call_takes(o->in);
    s->end = (int)(o->in - o->code->instr);
    memcpy(v, o->v.slot, sizeof *v * (size_t)s->nslot_end);
    for (int i = 0; i < s->nslot_end && i < o->outer->nslot; i++) untouched[i] = o->outer->untouched[i];
    int at = s->nslot_end;
    for (k = 1; k < n; k++) {
      segment_add_inner(&inner[k - 1], frame[k], k == n - 1, at, v + at);
      at += 1 + inner[k - 1].nslot;
    }
    s->snap = mg_snapshot_build(v, at, untouched, NULL);
    Py_XSETREF(s->inner_code, (PyCodeObject *)Py_NewRef(innermost->v.code));
    s->inner = inner;
    s->ninner = n - 1;
    s->nvalue = at;
    inner = NULL;
    rc = s->snap ? mg_joint_record(r, s->snap) : 0;
    if (rc) s->failed = true;
  }
  mg_hook_mode = HOOK_record;
  free(v);
  free(untouched);
  free(inner);
  return rc;
}

static int segment_make_entry(Segment *s, MgRec *r, MgSnapshot *snap, const MgOuter *o, int end, bool is_ret,
                              int nslot) {
  MgEntry *e = mg_entry_new();
  if (!e) {
    mg_snapshot_free(snap);
    return -1;
  }
  e->snap = snap;
  e->unit = s->unit;
  e->end = end;
  e->is_ret = is_ret;
  e->nplain = s->nplain;
  e->level = s->level;
  if (s->level && (e->returns = mg_malloc(sizeof *e->returns * (size_t)s->level)))
    memcpy(e->returns, s->returns, sizeof *e->returns * (size_t)s->level);
  e->nslot = e->nvalue = is_ret ? 0 : nslot;
  if (s->inner) {
    e->inner = s->inner;
    e->ninner = s->ninner;
    e->nvalue = s->nvalue;
    s->inner = NULL;
    s->ninner = 0;
  }
  e->nnode = (int)r->g->nnode - 1;
  e->line = s->code->line[s->unit];
  e->end_line = !is_ret && s->line ? s->line : s->frame[s->level].d->code->line[end];
  PyCodeObject *co = e->ninner ? s->inner_code : s->frame[s->level].d->v.code;
  e->end_file = Py_NewRef(co->co_filename);
  e->end_name = Py_NewRef(co->co_qualname);
  e->code = is_ret ? BK_none : s->why;
  const char *reason = is_ret ? "return" : s->reason;
  if ((e->reason = mg_malloc(strlen(reason) + 1))) strcpy(e->reason, reason);
  if ((e->untouched = mg_calloc((size_t)e->nslot + 1, sizeof *e->untouched)))
    for (int i = 0; i < e->nslot && i < o->nslot; i++) e->untouched[i] = o->untouched[i];
  if (!e->reason || !e->untouched || (s->level && !e->returns)) {
    PyErr_NoMemory();
    goto fail;
  }
  if (mg_raises_missed(r)) {
    mg_retry_fail(r, RETRY_raises);
    goto fail;
  }
  mg_unread_end(r);
  bool draws = mg_claim_draws(r);
  e->claims = r->claims;
  e->unclaimed = s->false_claims;
  e->repeats = mg_claim_repeats(r);
  if (PyErr_Occurred() || !mg_claim_holds(r)) goto fail;
  if (mg_symsize_promises(r->cap)) {
    s->users_error = true;
    goto fail;
  }
  double t0 = mg_now_ms();
  e->exec = mg_exec_build(r, r->cfg, snap);
  mg_stats.compile_ms += mg_now_ms() - t0;
  if (!e->exec || mg_guards_seal(r->guards)) goto fail;
  e->shown = Py_XNewRef(r->shown);
  e->keeps_random = draws || mg_exec_keeps_random(e->exec);
  e->guards = r->guards;
  r->guards = NULL;
  s->entry = e;
  return 0;
fail:
  mg_entry_release(e);
  return -1;
}

/* The frame is about to end, which closes the generators that it holds: their finally
 * clauses belong to the recording. */
static int segment_clear_locals(Segment *s, MgRec *r, const MgOuter *o) {
  const MgFrameView *v = &s->frame[s->level].d->v;
  mg_hook_mode = HOOK_record;
  for (int i = 0; i < v->code->co_nlocalsplus; i++)
    if (i >= o->nslot || !o->untouched[i]) Py_CLEAR(v->slot[i]);
  mg_hook_mode = HOOK_off;
  PyErr_Clear();
  return r->abort ? -1 : 0;
}

/* A backend for torch-level graphs that runs them as they are. */
static PyObject *segment_graph_itself(PyObject *self, PyObject *const *args, Py_ssize_t n) {
  return Py_NewRef(args[0]);
}
static PyMethodDef segment_graph_def = {"graph_itself", (PyCFunction)(void *)segment_graph_itself,
                                        METH_FASTCALL, NULL};

static int segment_want_graph(Segment *s) {
  static PyObject *backend; /* strong, process lifetime */
  if (!backend && !(backend = PyCFunction_New(&segment_graph_def, NULL))) return PyErr_Clear(), -1;
  s->graph_cfg = *s->cfg;
  s->graph_cfg.backend = backend;
  s->need_fx = true;
  return 0;
}

/* ---- what is denied to the next attempt ---- */

static long retry_count[RETRY__COUNT]; /* how often each row fired, for tests */

static void retry_deny(Segment *s, const MgRec *r, MgRetryKind k) {
  retry_count[k]++;
  s->denied |= 1u << k;
  const MgRetryRow *row = &mg_retry_row[k];
  mg_log(MG_LOG_plan_frame, "retry %s: %s; from here on %s", row->name, row->failed, row->denied);
  if (k == RETRY_sizes)
    mg_log(MG_LOG_recompiles, "sizes are constants from here on: %s", *r->reason ? r->reason : "autograd");
}

/* Denies all rows of one moment that have failed; true if there are any. */
static bool retry_take(Segment *s, const MgRec *r, MgRetryWhen when) {
  bool any = false;
  for (int k = 0; k < RETRY__COUNT; k++) {
    if (mg_retry_row[k].when != when || !mg_retry_failed(r, (MgRetryKind)k)) continue;
    retry_deny(s, r, (MgRetryKind)k);
    any = true;
  }
  return any;
}

/* Failures that show in where the recording ended. */
static void retry_see_end(const Segment *s, MgRec *r) {
  bool raised = r->abort && r->code == BK_exception && mg_symsize_inputs(&r->cap->sizes);
  bool asked = r->abort && r->code == BK_data_dependent && r->cap->sizes.value_asked;
  if (raised || asked) mg_retry_fail(r, RETRY_sizes);
  if (!s->level && mg_iterator_unfinished(r, s->v.slot, mg_pyframe_stacktop(s->frame[0].d->f)))
    mg_retry_fail(r, RETRY_unroll);
}

/* Denies the first row of the moment `next` that has failed and is not denied yet; false if there is none. */
static bool retry_next(Segment *s, MgRec *r) {
  retry_see_end(s, r);
  for (int k = 0; k < RETRY__COUNT; k++) {
    bool open = mg_retry_row[k].when == RETRY_WHEN_next && !mg_retry_in(s->denied, (MgRetryKind)k);
    if (!open || !mg_retry_failed(r, (MgRetryKind)k)) continue;
    retry_deny(s, r, (MgRetryKind)k);
    return true;
  }
  return false;
}

/* Rows between the words of an attempt and of the cache. */
static uint32_t retry_from_kept(uint8_t kept) {
  uint32_t denied = 0;
  for (int k = 0; k < RETRY__COUNT; k++)
    if (mg_retry_row[k].kept & kept) denied |= 1u << k;
  return denied;
}

static uint8_t retry_to_kept(uint32_t denied) {
  uint8_t kept = 0;
  for (int k = 0; k < RETRY__COUNT; k++)
    if (mg_retry_in(denied, (MgRetryKind)k)) kept |= mg_retry_row[k].kept;
  return kept;
}

/* How far the frame of this level may go, from where it stands. */
static int segment_outer(Segment *s, MgOuter *o) {
  const SegmentFrame *f = &s->frame[s->level];
  int first = f->d->v.code->co_nlocalsplus;
  bool here = s->level == s->stop_level;
  *o = (MgOuter){.stop_at = !here || s->nstop                  ? -1
                            : s->stop_at < 0 && mg_force_break ? mg_force_break
                                                               : s->stop_at,
                 .descend = here && s->nstop ? s->stop[0].n : -1,
                 .nslot = f->nslot,
                 .base = f->base,
                 .raw = f->nslot - first,
                 .exc_n = -1};
  if (s->stop_at < 0 && mg_force_break) {
    s->why = BK_forced;
    s->nplain = 1;
    snprintf(s->reason, sizeof s->reason, "after %ld instructions", mg_force_break);
  }
  o->untouched = mg_calloc((size_t)f->nslot + 1, sizeof *o->untouched);
  if (!o->untouched) return PyErr_NoMemory(), -1;
  for (int i = 0; i < f->nslot; i++)
    o->untouched[i] = i < first || f->d->v.slot[i]; /* unbound locals as well */
  return 0;
}

/* Does the end of the frame run code of the program, before what the frame that waits for it does next? */
static bool segment_end_runs_code(const MgFrameView *v) {
  for (int i = 0; i < v->code->co_nlocalsplus; i++) {
    PyObject *o = v->slot[i];
    if (mg_end_runs_code(o && PyCell_Check(o) ? PyCell_GET(o) : o)) return true;
  }
  return false;
}

/* The frame stands before its RETURN.  Does the recording go on in the one that waits for it?  Then it stands
 * there behind its call.  -1: broken off. */
static int segment_go_up(Segment *s, MgRec *r, MgOuter *o, const MgLoop *l) {
  if (s->level == s->max_level || (s->level == s->stop_level && s->stop_at >= 0)) return 0;
  MgSegmentAt *d = s->frame[s->level].d, *up = d->up;
  if (segment_end_runs_code(&d->v)) return 0;
  const MgInstr *in = &d->code->instr[l->unit], *call = &up->code->instr[up->call];
  int n = mg_pyframe_stacktop(d->f);
  PyObject *ret =
      in->op == BC_RETURN_CONST ? Py_NewRef(PyTuple_GET_ITEM(d->v.code->co_consts, in->arg)) : d->v.slot[--n];
  mg_pyframe_set_stacktop(d->f, n);
  if (segment_clear_locals(s, r, o)) {
    Py_DECREF(ret);
    return -1;
  }
  s->returns[s->level++] = l->unit;
  mg_pyframe_unlink(s->ts, &d->link);
  n = mg_pyframe_stacktop(up->f);
  up->v.slot[n] = ret;
  mg_pyframe_set_stacktop(up->f, n + 1);
  mg_pyframe_set_lasti(up->f, call->next - 1);
  free(o->untouched);
  if (segment_outer(s, o)) {
    PyErr_Clear();
    mg_rec_break(BK_limit, "out of memory");
    return -1;
  }
  SrcRef func = mg_src_slot(s->frame[s->level].base - 1);
  mg_guard_add(r->guards, GK_code, func, (PyObject *)up->v.code, 0);
  mg_guard_add(r->guards, GK_globals, func, up->v.globals, 0);
  return 1;
}

/* Runs the loop over the frame and builds the snapshot; NULL when the attempt has
 * to be repeated elsewhere. */
static MgSnapshot *segment_record(Segment *s, MgRec *r, MgOuter *o, int *end, bool *is_ret, int *nslot) {
  MgLoop l;
  MgLoopEnd how;
  int more;
  do {
    const MgSegmentAt *at = s->frame[s->level].d;
    mg_hook_mode = HOOK_record;
    how = mg_loop_run(&l, s->ts, at->f, at->code, o, true, 0);
    mg_hook_mode = HOOK_off;
    more = how == LOOP_leave ? segment_go_up(s, r, o, &l) : 0;
  } while (more > 0);
  const MgSegmentAt *at = s->frame[s->level].d;
  if (r->abort)
    mg_generators_end(r); /* frames of the traceback may hold the last reference to one, whose clean-up code
                             is not to run */
  PyErr_Clear();
  if (retry_next(s, r)) {
    if (s->snap) mg_snapshot_free(s->snap);
    s->snap = NULL;
    segment_drop_inner(s);
    return NULL;
  }
  MgSnapshot *snap = s->snap;
  if (snap) { /* in an inner frame */
    s->snap = NULL;
    *end = s->end;
    *nslot = s->nslot_end;
    *is_ret = false;
    return snap;
  }
  s->again = r->abort && r->again;
  retry_take(s, r, RETRY_WHEN_broken);
  if (r->need_fx && segment_want_graph(s)) s->again = false;
  if (s->again) {
    segment_drop_inner(s);
    return NULL;
  }
  if (r->abort && s->inner) { /* there, but it cannot be rebuilt */
    segment_drop_inner(s);
    segment_move_back(s, r, o->n);
    return NULL;
  }
  /* libraries raise where they believe a compiler at work: record what eager would do */
  bool told = r->asked_compiling && !mg_retry_denied(r, RETRY_compiling);
  if (r->abort && r->code == BK_exception && told) mg_retry_fail(r, RETRY_compiling);
  if (retry_take(s, r, RETRY_WHEN_raised)) return NULL;
  if (r->abort) {
    segment_place_break(s, r, o);
    return NULL;
  }
  *end = l.unit;
  *is_ret = how == LOOP_leave;
  *nslot = mg_pyframe_stacktop(at->f);
  if (how == LOOP_stop && o->exc_depth) {
    mg_rec_break(BK_handler, "inside of an exception handler");
    PyErr_Clear();
    segment_place_break(s, r, o);
    return NULL;
  }
  if (*is_ret && segment_clear_locals(s, r, o)) {
    segment_place_break(s, r, o);
    return NULL;
  }
  if (*is_ret) {
    const MgInstr *in = &at->code->instr[l.unit];
    PyObject *ret = in->op == BC_RETURN_CONST ? PyTuple_GET_ITEM(at->v.code->co_consts, in->arg) : l.sp[-1];
    snap = mg_snapshot_build(NULL, 0, NULL, ret);
  } else {
    bool *untouched = mg_calloc((size_t)*nslot + 1, sizeof *untouched);
    for (int i = 0; untouched && i < *nslot && i < o->nslot; i++) untouched[i] = o->untouched[i];
    if (untouched) snap = mg_snapshot_build(at->v.slot, *nslot, untouched, NULL);
    free(untouched);
  }
  PyErr_Clear();
  if (!snap) segment_move_back(s, r, o->n);
  return snap;
}

/* Do the guards hold for the frame as it is?  An exception, and no, when out of memory. */
static bool segment_guards_hold(const Segment *s, const MgGuards *g, MgGuardFail *why) {
  PyObject **vals = mg_calloc((size_t)mg_guards_nsrc(g) + 1, sizeof *vals);
  if (!vals) return PyErr_NoMemory(), false;
  bool ok = mg_guards_check(g, &s->slots, vals, why);
  free(vals);
  return ok;
}

/* Drops an entry that does not hold any more, so that the next attempt sees what this one has changed: a
 * cache that is full now, or what a module does when it is imported.  Kernels and torch import on first use;
 * the program's own imports are breaks. */
static void segment_check_state(Segment *s, bool filled_cache, bool imported) {
  MgGuardFail why = {0};
  if (!s->entry || !(filled_cache || imported)) return;
  if (segment_guards_hold(s, s->entry->guards, &why) || PyErr_Occurred()) return;
  mg_entry_release(s->entry);
  s->entry = NULL;
  s->again = imported && ++s->nimport < SEGMENT_ATTEMPTS;
}

/* An object that is older than the recording holds what only a recording may see: its
 * entry would go on from there. */
static int segment_leaked(Segment *s, int alive) {
  PyErr_Format(PyExc_AssertionError, "%d stand-in tensors outlive the recording of %U, line %d", alive,
               s->v.code->co_qualname, s->code->line[s->unit]);
  mg_entry_release(s->entry), s->entry = NULL;
  s->failed = s->leaked = true;
  return -1;
}

/* Records once.  0 (s->entry set, or another attempt is needed), -1 with exception. */
static int segment_attempt(Segment *s) {
  MgCtx ctx;
  MgExprs exprs;
  MgGraph graph;
  MgOuter outer = {0};
  const MgConfig *cfg = s->need_fx ? &s->graph_cfg : s->cfg;
  MgRec rec = {.ctx = &ctx,
               .x = &exprs,
               .g = &graph,
               .cfg = cfg,
               .dyn = Py_XNewRef(s->info->dyn), /* a reset from another thread drops info's */
               .refused = mg_marked_refused_ids(),
               .dynamic_sources = mg_dynfloat_sources(false),
               .unbacked_sources = mg_dynfloat_sources(true),
               .transient = s->frame[0].d->transient,
               .peers = s->frame[0].d->peers,
               .want_fx = cfg->backend != NULL,
               .retry = {.denied = s->denied},
               .handled = s->exc0,
               .stop = s->stop,
               .nstop = s->nstop,
               .stopped = segment_stopped,
               .stopped_arg = s};
  rec.slots = &s->slots;
  MgSnapshot *snap = NULL;
  int end = 0, nslot = 0, rc = -1;
  bool is_ret = false;
  double t0 = mg_now_ms();
  Py_ssize_t modules = PyDict_GET_SIZE(PyImport_GetModuleDict());
  s->again = false;
  s->level = 0;
  mg_ctx_init(&ctx);
  ctx.stop = mg_interrupt_due;
  if (mg_exprs_init(&exprs, &ctx) || mg_graph_init(&graph, &ctx, &exprs)) {
    PyErr_NoMemory();
    goto free_ctx;
  }
  if (segment_outer(s, &outer)) goto free_ctx;
  mg_stats.attempts++;
  mg_rec = &rec;
  mg_hook_mode = HOOK_off;
  if (!mg_objects_begin(&rec, &s->slots)) {
    graph.default_dtype = rec.guards->state.default_dtype;
    if (!mg_standin_begin(&rec)) {
      snap = segment_record(s, &rec, &outer, &end, &is_ret, &nslot);
      rc = 0;
      if (snap &&
          (s->failed || (!s->inner && !mg_retry_failed(&rec, RETRY_texts) && mg_joint_record(&rec, snap)))) {
        mg_snapshot_free(snap);
        snap = NULL;
        rc = -1;
      }
      bool again = snap && (mg_interrupt_due() || rec.again);
      again |= snap && retry_take(s, &rec, RETRY_WHEN_snapshot);
      if (again || (snap && retry_next(s, &rec))) {
        s->again = rec.again;
        if (s->inner) segment_drop_inner(s);
        mg_snapshot_free(snap);
        snap = NULL;
      }
      mg_effects_undo(&rec);
    } else if (rec.abort) {
      PyErr_Clear();
      s->off = true;
      s->eager = rec.cap && rec.cap->modes_before > 0;
      s->why = (MgBreakCode)rec.code;
      snprintf(s->reason, sizeof s->reason, "%s", rec.reason);
      rc = 0;
    }
    mg_standin_end(&rec);
  }
  s->too_deep = rec.too_deep;
  s->off |= s->cfg->fullgraph && rec.rehearsed;
  s->eager |= rec.rehearsed;
  mg_rec = NULL;
  segment_restore(s);
  mg_stats.bytecodes += rec.nbytecode;
  mg_stats.record_ms += mg_now_ms() - t0;
  if (snap && segment_make_entry(s, &rec, snap, &outer, end, is_ret, nslot)) {
    bool again = retry_take(s, &rec, RETRY_WHEN_built) || retry_next(s, &rec);
    rc = again ? 0 : -1;
    s->failed = !again;
    if (again) PyErr_Clear();
  }
  segment_check_state(s, rec.filled_cache, PyDict_GET_SIZE(PyImport_GetModuleDict()) != modules);
  retry_take(s, &rec, RETRY_WHEN_ended);
  s->denied |= rec.retry.denied;
  PyObject *t, *v, *tb;
  PyErr_Fetch(&t, &v, &tb);
  mg_objects_end(&rec);
  int alive = mg_standin_alive(&rec);
  /* Frames that user code looked at (warnings, inspect) keep their locals until their cycle is collected. */
  if (alive) PyGC_Collect(), alive = mg_standin_alive(&rec);
  mg_standin_free(&rec);
  PyErr_Restore(t, v, tb);
  if (alive && !rc) rc = segment_leaked(s, alive);
  if (!s->leaked && (s->frame[0].d->stopped = mg_interrupt_due())) rc = -1;
free_ctx:
  Py_XDECREF(rec.dyn);
  Py_XDECREF(rec.shown);
  Py_XDECREF(rec.ids);
  Py_XDECREF(rec.refused);
  Py_XDECREF(rec.dynamic_sources);
  Py_XDECREF(rec.unbacked_sources);
  free(outer.untouched);
  mg_ctx_free(&ctx);
  return rc;
}

/* ---- what users see ---- */

static void segment_log(const Segment *s, const MgEntry *e) {
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

static int segment_fullgraph_error(const Segment *s) {
  mg_raise_dynamo_error(
      "Unsupported",
      "%s, but the graph breaks: %s: %s\n  in %U, segment from line %d, File \"%U\"\n  hint: %s",
      s->cfg->fullgraph ? "fullgraph=True" : "error_on_graph_break(True)", mg_break_name(s->why), s->reason,
      s->v.code->co_qualname, s->code->line[s->unit], s->v.code->co_filename, mg_break_hint(s->why));
  return -1;
}

/* Compiling raised: the user's backend's errors are the user's, ours end in eager execution with a warning.
 * Where it was stopped, what is raised only says so, unless a handler has raised it in
 * Python code of a back end. */
static int segment_give_up(Segment *s) {
  if (s->frame[0].d->stopped) {
    bool ours = !PyErr_Occurred() || !s->cfg->backend || PyErr_ExceptionMatches(MgBreakError) ||
                PyErr_ExceptionMatches(PyExc_MemoryError);
    if (ours && !(PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)))
      return PyErr_Clear(), 1;
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
  mg_stats.fallbacks++;
  Py_XDECREF(t);
  Py_XDECREF(v);
  Py_XDECREF(tb);
  return rc ? -1 : 1;
}

static int segment_check_own_guards(Segment *s, MgEntry *e) {
  MgGuardFail why = {0};
  if (segment_guards_hold(s, e->guards, &why)) return 0;
  if (!PyErr_Occurred())
    PyErr_Format(PyExc_AssertionError, "the guards of %U, line %d, fail on their own recording: %s",
                 s->v.code->co_qualname, e->line, why.text);
  return -1;
}

/* Why the frame is not recorded.  The context of an autograd.Function is new at every call,
 * and its state lives in C. */
static const char *segment_refused(const Segment *s) {
  for (int i = 0; i < s->frame[0].nslot; i++) {
    PyObject *o = s->saved[i];
    if (o && PyObject_TypeCheck(o, mg_torch.function_base))
      return "a method of an autograd.Function that autograd calls";
    if (o && PyType_Check(o) && !((PyTypeObject *)o)->tp_mro)
      return "a class that is being made is its argument";
  }
  return NULL;
}

static void segment_count(const Segment *s) {
  char why[sizeof s->reason + 40];
  bool whole = s->entry && s->entry->is_ret;
  snprintf(why, sizeof why, "%s: %s", mg_break_name(s->why), s->reason);
  mg_counters_segment(s->entry ? s->entry->nnode : 0, whole ? NULL : why);
}

int mg_compile_segment(MgSegmentAt *d, const MgSlots *slots) {
  const MgConfig *cfg = d->cfg;
  MgCodeInfo *info = d->info;
  uint8_t denied = mg_cache_denied(info, cfg->id, slots);
  Segment s = {.ts = d->ts,
               .cfg = cfg,
               .info = info,
               .code = d->code,
               .v = d->v,
               .stop_at = -1,
               .denied = retry_from_kept(denied) | (uint32_t)d->unclaimed << RETRY_claims,
               .false_claims = d->unclaimed};
  int rc = -1;
  if (segment_save(&s, d, slots)) goto done;
  /* In a loop each turn would leave an entry of its own, made for the objects of that turn. */
  s.may_descend = !mg_force_break && !mg_decode_in_loop(s.code, s.unit);
  MgHookMode mode = mg_hook_mode;
  s.eager = s.off = mg_stance_set("disable");
  const char *refused = s.off ? NULL : segment_refused(&s);
  if (refused) {
    s.off = true, s.why = BK_older_object;
    snprintf(s.reason, sizeof s.reason, "%s", refused);
  }
  for (int i = 0; i < SEGMENT_ATTEMPTS && !s.entry && !s.off && !s.too_deep && (s.stop_at || s.stop_level);
       i += !s.again)
    if (segment_attempt(&s)) {
      mg_hook_mode = HOOK_off;
      rc = segment_give_up(&s);
      mg_hook_mode = mode;
      goto done;
    }
  mg_hook_mode = mode;
  if ((cfg->fullgraph || s.break_is_error) && !s.eager && !(s.entry && s.entry->is_ret) &&
      s.why != BK_exception) {
    rc = segment_fullgraph_error(&s);
    goto done;
  }
  if (s.off) {
    rc = 1;
    goto done;
  }
  if (s.entry && mg_strict() && segment_check_own_guards(&s, s.entry)) goto done;
  /* Recording ran Python code, which may have called reset(): the site is looked up now. */
  MgSite *site = mg_cache_site(info, cfg->id, s.unit, d->chain, true);
  MgBucket *bucket = site ? mg_cache_bucket(site, &s.slots, true) : NULL;
  if (!bucket) goto done;
  if (s.too_deep) {
    mg_log(MG_LOG_fallback, "%s, line %d: %s", PyUnicode_AsUTF8(s.v.code->co_qualname), s.code->line[s.unit],
           s.reason);
    bucket->eager = true;
    rc = 1;
    goto done;
  }
  segment_count(&s);
  if (!s.entry) { /* nothing before the break, or no end that can be rebuilt */
    bool passing = s.why == BK_tensor_kind &&
                   bucket->refused < SEGMENT_REFUSALS; /* others may come: a fake tensor may be a rehearsal */
    *(passing ? &d->once : &bucket->plain) = s.nplain > 0 ? s.nplain : 1;
    bucket->refused += passing;
    rc = 0;
    goto done;
  }
  bucket->denied |= retry_to_kept(s.denied);
  segment_log(&s, s.entry);
  s.entry->number = ++mg_stats.entries;
  if (s.entry->nnode > 0) mg_stats.graphs++;
  if (!s.entry->is_ret) mg_stats.breaks[s.entry->code]++;
  MgEntry *e = s.entry;
  s.entry = NULL;
  rc = mg_cache_add(bucket, e);
done:
  mg_entry_release(s.entry);
  segment_free(&s);
  return rc;
}

bool mg_stance_break_is_error(void) {
  PyObject *modules = PyImport_GetModuleDict(), *utils = PyDict_GetItemString(modules, "torch._dynamo.utils");
  PyObject *name = utils ? PyUnicode_InternFromString("_error_on_graph_break") : NULL;
  PyObject *v = name ? mg_rec_namespace_get(PyModule_GetDict(utils), name) : NULL;
  bool on = v == Py_True;
  Py_XDECREF(name);
  Py_XDECREF(v);
  PyErr_Clear();
  return on;
}
