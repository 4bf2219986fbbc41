/* The driver of a compiled frame: look up the segment at the current offset, run it, write its snapshot into
 * the frame, execute the breaking instruction unrecorded, go on.
 * In: a frame from the hook.  Out: what the frame returns, or an exception, delivered through CPython's own
 * code so that
 * frames, tracebacks and handlers are exactly CPython's. */
#include "frame/frame_driver.h"
#include <stdlib.h>
#include <string.h>
#include "base/assert.h"
#include "base/log.h"
#include "entry/guard/automatic_dynamic.h"
#include "entry/guard/guard_add.h"
#include "entry/guard/guard_check.h"
#include "entry/launch/config.h"
#include "entry/launch/events.h"
#include "entry/launch/plan_call.h"
#include "entry/launch/stats.h"
#include "entry/run/entry.h"
#include "entry/run/entry_cache.h"
#include "entry/run/exec.h"
#include "entry/run/exec_run.h"
#include "entry/run/exec_sizes.h"
#include "entry/run/snapshot_program.h"
#include "entry/run/staged_exec.h"
#include "frame/drive_policy.h"
#include "frame/interpreted_loops.h"
#include "frame/stance.h"
#include "host/python/code_info.h"
#include "host/python/decode.h"
#include "host/python/hook_mode.h"
#include "host/python/interrupt.h"
#include "host/python/names.h"
#include "results.h"
#include "host/python/trace_rules.h"
#include "record/bytecode/eval_loop.h"
#include "record/core/recording.h"
#include "record/segment/segment.h"
#include "tuning.h"

/* Frames that a segment ended in, waiting to be made: each is called with arguments that nobody looks at, and
 * gets its slots and position when its hook finds it here. */
typedef struct MgInnerRun {
  MgEntry *e;       /* strong */
  PyObject **value; /* e->nvalue; strong, NULL once a frame has taken them */
  int next;         /* index into e->inner */
  MgDrive *caller;  /* of the frame that is made next */
} MgInnerRun;

static _Thread_local MgInnerRun *resume_waiting; /* the frame that starts next is its own */

static void resume_run_free(MgInnerRun *run) {
  if (!run) return;
  for (int i = 0; i < run->e->nvalue; i++) Py_XDECREF(run->value[i]);
  free(run->value);
  mg_entry_release(run->e);
  free(run);
}

/* ---- the ways out of the driver: unlink, and let CPython go on with the frame ---- */

static PyObject *drive_raise(MgDrive *d) {
  mg_pyframe_unlink(d->at.ts, &d->at.link);
  mg_hook_mode = HOOK_compile;
  return mg_pyframe_raise(d->at.ts, d->at.f, d->at.code);
}

/* Executes the second half of an instruction, with which CPython cannot begin.  False with an exception. */
static bool drive_whole(MgDrive *d, int *unit) {
  if (d->at.code->instr[*unit].part != PART_stop) return true;
  MgLoop l;
  MgOuter at = {.stop_at = 1, .descend = -1, .exc_n = -1};
  mg_hook_mode = HOOK_compile;
  MgLoopEnd end = mg_loop_run(&l, d->at.ts, d->at.f, d->at.code, &at, true, 0);
  *unit = l.unit;
  return end == LOOP_stop;
}

static PyObject *drive_leave(MgDrive *d, int unit) {
  if (!drive_whole(d, &unit)) return drive_raise(d);
  mg_pyframe_unlink(d->at.ts, &d->at.link);
  mg_hook_mode = HOOK_compile;
  return mg_pyframe_run_at(d->at.ts, d->at.f, unit);
}

static PyObject *drive_rest(MgDrive *d, int unit) {
  if (!drive_whole(d, &unit)) return drive_raise(d);
  mg_pyframe_unlink(d->at.ts, &d->at.link);
  mg_hook_mode = HOOK_off;
  PyObject *r = mg_pyframe_run_at(d->at.ts, d->at.f, unit);
  mg_hook_mode = HOOK_compile;
  return r;
}

/* The same when the rest of the frame is CPython's work, which reports show. */
static PyObject *drive_left(MgDrive *d, int unit, bool rest) {
  if (!mg_measure_on) return rest ? drive_rest(d, unit) : drive_leave(d, unit);
  PyCodeObject *co = (PyCodeObject *)Py_NewRef(d->at.v.code);
  int line = d->at.code->line[unit];
  uint64_t t = mg_ticks();
  PyObject *r = rest ? drive_rest(d, unit) : drive_leave(d, unit);
  mg_place_add(PLACE_eager, co, unit, line, t);
  Py_DECREF(co);
  return r;
}

/* The frame and those that wait for it, as guards see them; *buf (RESUME_SMALL entries) may be
 * replaced by a malloc'ed one. */
static int drive_slots(MgDrive *d, MgSlots *s, PyObject ***buf) {
  int top = mg_pyframe_stacktop(d->at.f), n = top;
  mg_pyframe_reread(d->at.f);
  *s = (MgSlots){d->at.v.slot, top, d->at.v.func, NULL};
  if (!d->at.up) return 0;
  for (MgSegmentAt *u = d->at.up; u; u = u->up) n += 1 + mg_pyframe_stacktop(u->f);
  if (n > RESUME_SMALL && !(*buf = mg_malloc(sizeof **buf * (size_t)n))) return PyErr_NoMemory(), -1;
  s->slot = *buf;
  s->n = n;
  memcpy(s->slot, d->at.v.slot, sizeof *s->slot * (size_t)top);
  n = top;
  for (MgSegmentAt *u = d->at.up; u; u = u->up) {
    mg_pyframe_reread(u->f);
    s->slot[n++] = u->v.func;
    top = mg_pyframe_stacktop(u->f);
    memcpy(s->slot + n, u->v.slot, sizeof *s->slot * (size_t)top);
    n += top;
  }
  return 0;
}

/* The frame that waits for d may be recorded with it. */
static void drive_join(MgDrive *d, MgDrive *up) {
  if (mg_force_break || up->depth + 2 > MG_STOP_DEPTH || mg_decode_in_loop(up->at.code, up->at.call)) return;
  d->at.up = &up->at;
  d->depth = up->depth + 1;
  d->at.chain =
      ((uint64_t)(uintptr_t)up->at.info + (uint64_t)up->at.call + up->at.chain * 31) * 0x9E3779B97F4A7C15u |
      1;
}

/* Puts the result of a segment into the frame; takes the values. */
static void drive_write(MgDrive *d, const MgEntry *e, PyObject **values) {
  int before = mg_pyframe_stacktop(d->at.f);
  mg_pyframe_set_stacktop(d->at.f, e->nslot < before ? e->nslot : before);
  for (int i = 0; i < e->nslot; i++) {
    if (e->untouched[i]) continue;
    PyObject *old = i < before ? d->at.v.slot[i] : NULL;
    d->at.v.slot[i] = values[i];
    values[i] = NULL;
    Py_XDECREF(old);
  }
  for (int i = e->nslot; i < before; i++) Py_CLEAR(d->at.v.slot[i]);
  mg_pyframe_set_stacktop(d->at.f, e->nslot);
  mg_pyframe_set_next(d->at.f, e->end);
}

/* The frames that the segment ended in are made next; takes the values. */
static int drive_wait(MgDrive *d, MgEntry *e, PyObject **values) {
  MgInnerRun *run = mg_calloc(1, sizeof *run);
  if (!run || !(run->value = mg_malloc(sizeof *values * (size_t)e->nvalue))) {
    free(run);
    return PyErr_NoMemory(), -1;
  }
  memcpy(run->value, values, sizeof *values * (size_t)e->nvalue);
  memset(values, 0, sizeof *values * (size_t)e->nvalue);
  run->e = e;
  e->refs++;
  d->run = run;
  return 0;
}

typedef enum DriveNext {
  DRIVE_step,
  DRIVE_walk,   /* instructions that are not worth recording */
  DRIVE_call,   /* d->run has the frame that the instruction at this position calls */
  DRIVE_return, /* the frame stands before its RETURN */
  DRIVE_pass,   /* the segment has gone on in a frame that waits for this one */
  DRIVE_eager,
  DRIVE_rest,  /* the same, and what the frame calls is not compiled either */
  DRIVE_raise, /* the user's program raised: its handlers may catch it */
  DRIVE_fail   /* compiling failed: not an exception of the program */
} DriveNext;

/* Runs an entry in the frame.  0; -1 with exception; MG_STAGES_OTHER, MG_CLAIM_FALSE and MG_RUN_RAISED: it
 * is not right for this run. */
static int drive_segment(MgDrive *d, MgEntry *e, PyObject **vals, MgExecAt *at) {
  PyObject *small[RESUME_SMALL] = {NULL}, **values = small, *ret = NULL;
  if (e->nvalue > RESUME_SMALL && !(values = mg_calloc((size_t)e->nvalue, sizeof *values))) {
    mg_exec_leave(at);
    return PyErr_NoMemory(), -1;
  }
  mg_cache_work += e->nnode > 0;
  mg_trial_grads += e->exec->grad != NULL;
  bool held = mg_pyframe_hold_signals(d->at.ts, false);
  int rc = mg_entry_run(e, vals, at, values, &ret);
  mg_pyframe_hold_signals(d->at.ts, held);
  if (!rc) {
    e->hits++;
    for (int i = 0; i < e->level; i++, d = (MgDrive *)d->at.up) d->pass = e->returns[i];
    drive_write(d, e, values);
    /* The frame now stands before its RETURN; its locals are dead, and cleared already. */
    if (e->is_ret) {
      int n = d->at.v.code->co_nlocalsplus;
      if (d->at.code->instr[e->end].op == BC_RETURN_VALUE) d->at.v.slot[n++] = Py_NewRef(ret);
      mg_pyframe_set_stacktop(d->at.f, n);
    }
    if (e->ninner) rc = drive_wait(d, e, values);
    d->landed = !rc && e->level > 0;
    d->next = e->is_ret ? DRIVE_return : e->ninner ? DRIVE_call : DRIVE_step;
    d->nplain = e->nplain;
  }
  for (int i = 0; i < e->nvalue; i++) Py_XDECREF(values[i]);
  Py_XDECREF(ret);
  if (values != small) free(values);
  return rc;
}

/* How a frame goes on that was compiled too often.  With a custom backend nothing that it calls is compiled
 * either, as under torch.compile; what magneto makes of the parts is still worth having. */
static DriveNext drive_given_up(const MgDrive *d) { return d->at.cfg->backend ? DRIVE_rest : DRIVE_eager; }

/* What a custom backend compiled here for other instances of a module: d->at.peers.  -1 with an exception. */
static int drive_find_peers(MgDrive *d, MgSite *site, const MgSlots *slots) {
  if (!(d->at.peers = site->left ? PyList_GetSlice(site->left, 0, PY_SSIZE_T_MAX) : PyList_New(0))) return -1;
  unsigned long epoch = mg_cache_epoch;
  int rc = 0;
  for (uint32_t k = 0; !rc && epoch == mg_cache_epoch && k < site->nbucket; k++)
    for (int i = 0; !rc && epoch == mg_cache_epoch && i < site->bucket[k]->n; i++) {
      MgEntry *e = site->bucket[k]->entry[i];
      PyObject *compiled = mg_exec_compiled(e->exec);
      if (!compiled) continue;
      MgGuardFail why;
      Py_INCREF(compiled);
      if (mg_drive_differs(e, slots, &why) && why.of_module) rc = PyList_Append(d->at.peers, compiled);
      Py_DECREF(compiled);
    }
  return rc;
}

/* Records what this call is like, which runs op by op: what differs in the next one
 * changes from call to call. */
static int drive_look(MgDrive *d, const MgSlots *slots, int unit) {
  const MgConfig *cfg = d->at.cfg;
  MgConfig plain = *cfg;
  plain.backend = NULL;
  plain.eager_backend = true;
  plain.fullgraph = false;
  d->at.cfg = &plain;
  int rc = mg_compile_segment(&d->at, slots);
  d->at.cfg = cfg;
  MgSite *site = rc ? NULL : mg_cache_site(d->at.info, cfg->id, unit, d->at.chain, false);
  MgBucket *b = site ? mg_cache_bucket(site, slots, false) : NULL;
  if (b && b->n) b->entry[0]->look = true;
  return rc;
}

/* What was noted of such a call has served its purpose. */
static int drive_learn_look(MgDrive *d, MgBucket *b, const MgSlots *slots) {
  unsigned long epoch = mg_cache_epoch;
  int rc = 0;
  while (!rc && epoch == mg_cache_epoch && b->n && b->entry[0]->look) {
    rc = mg_dynfloat_learn(&d->at.info->dyn, b->entry[0]->guards, slots);
    mg_cache_drop(b->entry[0]);
  }
  return rc;
}

/* Has anything been gained since the place where nothing had been? */
static void drive_note_idle(MgDrive *d) {
  bool idle = d->work == mg_cache_work && d->misses == mg_stats.misses;
  if (!d->idle || (idle && !d->ended)) return;
  if (d->epoch == mg_cache_epoch && !d->at.cfg->backend && !mg_force_break) mg_cache_note_idle(d->idle, idle);
  d->idle = NULL;
  d->looks = 0;
}

/* A loop of this frame that goes round and round without an op is CPython's. */
static bool drive_is_idle(MgDrive *d) {
  return ++d->looks > MG_TUNE_LOOP_LOOKS && !d->at.cfg->backend && !mg_force_break;
}

/* Too much differs between calls where the frames that wait are looked at as well: on without them. */
static void drive_part(MgDrive *d, MgSlots *slots) {
  d->at.up = NULL;
  d->at.chain = 0;
  *slots = (MgSlots){d->at.v.slot, mg_pyframe_stacktop(d->at.f), d->at.v.func, NULL};
}

/* Does the entry that was used last not fit because of its tensors only? */
static bool drive_sizes_differ(const MgBucket *b, const MgSlots *slots) {
  MgGuardFail why;
  return b->n && mg_drive_differs(b->entry[0], slots, &why) && why.of_tensor;
}

/* A frame starts: is driving it worth it? */
static void drive_begin(MgDrive *d, MgBucket *b) {
  if (d->trial.begun || d->at.cfg->backend || mg_force_break) return;
  if (!d->cost.begun && !d->at.cfg->fullgraph)
    mg_cost_begin(&d->cost, b, d->at.v.code, d->at.cfg->recompile_limit);
  if (d->cost.rests || d->cost.left)
    d->trial.begun = true; /* CPython's time would be taken for the driver's */
  else mg_trial_begin(&d->trial, b);
  if (d->trial.rests) mg_cost_cancel(&d->cost);
}

static int drive_which(const MgDrive *d) {
  return (d->at.unclaimed ? MG_FIND_unclaimed : 0) | (d->look ? MG_FIND_look : 0) |
         (d->cost.left ? MG_FIND_returns : 0);
}

/* Compiles what starts at the frame's position, as mg_compile_segment does. */
static int drive_compile(MgDrive *d, const MgSlots *slots, int unit, bool sizes) {
  MgInterrupt work;
  long attempts = mg_stats.attempts;
  mg_interrupt_begin(&work, d->at.info->stopped);
  int rc = d->look ? drive_look(d, slots, unit) : mg_compile_segment(&d->at, slots);
  mg_interrupt_end(&work);
  if (d->at.stopped) mg_cost_cancel(&d->cost);
  else if (mg_stats.attempts != attempts) mg_cost_note(sizes);
  return rc;
}

/* Finding what runs next.  Tiers are asked in turn.  Each one answers, has nothing to say, or changes
 * something so that the first tier is asked again.
 *
 *      tier                 FOUND_next: how the frame goes on        FOUND_again
 *   -> drive_find_place     rest, eager, walk: it is CPython's       eager only where other frames wait
 *   |         v FOUND_nothing
 *   |  drive_find_entry     as the entry says; raise, rest           the entry was not right for this run
 *   |         v FOUND_nothing
 *   |  drive_find_plain     step, walk, rest: nothing is recorded
 *   |         v FOUND_nothing
 *   |  drive_find_new       eager, rest, fail: it is not compiled    compiled, or to be compiled alone
 *   -- FOUND_again
 */
typedef enum DriveFound {
  FOUND_nothing, /* ask the next tier */
  FOUND_again,   /* something has changed: ask the first tier again */
  FOUND_next     /* DriveLook.next says how the frame goes on */
} DriveFound;

typedef struct DriveLook { /* one look-up */
  int unit;                /* the frame's position */
  MgSlots slots;
  PyObject **all, *all_small[RESUME_SMALL];   /* slots.slot where frames wait */
  PyObject **vals, *vals_small[RESUME_SMALL]; /* values of an entry's sources */
  int nvals;
  MgSite *site;
  MgBucket *b;
  int compiled; /* entries compiled by this look-up, since a run was last given up */
  int refused;  /* runs that were given up because the entry was not right for them */
  DriveNext next;
  int nplain; /* instructions to execute before the next look-up */
} DriveLook;

static DriveFound drive_answer(DriveLook *k, DriveNext next) {
  k->next = next;
  return FOUND_next;
}

/* The site and the bucket of the frame's position; false with an exception. */
static inline bool drive_find_bucket(MgDrive *d, DriveLook *k, bool learn) {
  k->site = mg_cache_site(d->at.info, d->at.cfg->id, k->unit, d->at.chain, true);
  if (learn && k->site && k->site->parted.n) mg_transient_learn(&d->at.info->transient, &k->site->parted);
  k->b = k->site ? mg_cache_bucket(k->site, &k->slots, true) : NULL;
  return k->b;
}

/* Are the frame and this place in it worth looking for an entry? */
static DriveFound drive_find_place(MgDrive *d, DriveLook *k) {
  if (!drive_find_bucket(d, k, true)) return drive_answer(k, DRIVE_fail);
  MgBucket *b = k->b;
  drive_note_idle(d);
  if (drive_is_idle(d)) return drive_answer(k, DRIVE_eager);
  if (!d->at.up && mg_cache_rests(b)) return drive_answer(k, DRIVE_rest);
  drive_begin(d, b);
  if (d->trial.rests || d->cost.rests) return drive_answer(k, DRIVE_rest);
  if (!d->idle) {
    d->idle = b;
    d->epoch = mg_cache_epoch;
    d->work = mg_cache_work;
    d->misses = mg_stats.misses;
  }
  if (b->walks) return drive_answer(k, DRIVE_walk);
  if (!b->eager) return FOUND_nothing;
  if (d->at.up) {
    drive_part(d, &k->slots);
    k->compiled = -1;
    return FOUND_again;
  }
  d->cost.given_up = true;
  return drive_answer(k, drive_given_up(d));
}

/* Runs the first entry whose guards hold. */
static DriveFound drive_find_entry(MgDrive *d, DriveLook *k) {
  MgExecAt *at = NULL;
  MgEntry *e = mg_cache_find(k->site, &k->slots, &k->vals, &k->nvals, &at, drive_which(d));
  if (!e) return PyErr_Occurred() ? drive_answer(k, DRIVE_fail) : FOUND_nothing;
  int rc = MG_CLAIM_FALSE;
  if (e->rest) {
    e->rest--;
    mg_exec_leave(at);
  } else {
    rc = drive_segment(d, e, k->vals, at);
  }
  bool claim = rc == MG_CLAIM_FALSE;
  DriveFound found = FOUND_next;
  d->at.unclaimed = claim;
  k->nplain = e->nplain;
  if (!claim && rc != MG_STAGES_OTHER) {
    mg_stats.hits++;
    k->next = rc == MG_RUN_RAISED ? DRIVE_rest
              : rc                ? DRIVE_raise
              : e->level          ? DRIVE_pass
                                  : (DriveNext)d->next;
  } else if (d->at.cfg->fullgraph) {
    k->next = DRIVE_eager; /* a break would be an error: the program's own comes first */
  } else if (k->refused++ > 2) {
    k->next = DRIVE_fail;
  } else {
    if (!claim) mg_cache_break_data(e);
    k->compiled = -1;
    found = FOUND_again;
  }
  mg_entry_release(e);
  return found;
}

/* Is this a place where nothing is recorded, or no more? */
static DriveFound drive_find_plain(MgDrive *d, DriveLook *k) {
  if (d->cost.left) return drive_answer(k, DRIVE_rest);
  if (mg_walk_begins(d, k->b, k->unit)) return drive_answer(k, DRIVE_walk);
  if (d->at.once || k->b->plain) {
    k->nplain = d->at.once ? d->at.once : k->b->plain;
    return drive_answer(k, DRIVE_step);
  }
  return mg_pyframe_near_limit(d->at.ts) ? drive_answer(k, DRIVE_rest) : FOUND_nothing;
}

/* Compiles what starts here, if it may be. */
static DriveFound drive_find_new(MgDrive *d, DriveLook *k) {
  MgStance stance = mg_stance();
  if (stance == STANCE_eager_then_compile && !d->at.info->looked) d->look = d->at.info->looked = true;
  if (!d->look && drive_learn_look(d, k->b, &k->slots)) return drive_answer(k, DRIVE_fail);
  /* Comparing may have run Python code that called reset(). */
  if (!drive_find_bucket(d, k, false)) return drive_answer(k, DRIVE_fail);
  switch (mg_drive_verdict(d, k->site, k->b, &k->slots, k->unit, stance, k->compiled)) {
  case VERDICT_compile: break;
  case VERDICT_alone:
  case VERDICT_walk: return FOUND_again; /* the bucket is eager, or walks, now */
  case VERDICT_limit: return drive_answer(k, drive_given_up(d));
  case VERDICT_eager: return drive_answer(k, DRIVE_eager);
  case VERDICT_fail: return drive_answer(k, DRIVE_fail);
  }
  for (MgSegmentAt *u = d->at.up; u; u = u->up)
    if (u->info->dyn && mg_dynfloat_hand_on(&d->at.info->dyn, u->info->dyn))
      return drive_answer(k, DRIVE_fail);
  d->at.transient = mg_cache_transient(k->site);
  int rc = d->at.cfg->backend ? drive_find_peers(d, k->site, &k->slots) : 0;
  bool sizes = !d->at.cfg->backend && drive_sizes_differ(k->b, &k->slots);
  if (!rc) rc = drive_compile(d, &k->slots, k->unit, sizes);
  Py_CLEAR(d->at.peers);
  if (!rc) return FOUND_again;
  return drive_answer(k, rc < 0 ? DRIVE_fail : d->at.stopped ? DRIVE_rest : DRIVE_eager);
}

static DriveNext drive_find(MgDrive *d, int *nplain) {
  DriveLook k; /* its buffers are not cleared */
  k.unit = mg_pyframe_next(d->at.f);
  k.all = k.all_small;
  k.vals = k.vals_small;
  k.nvals = RESUME_SMALL;
  k.compiled = k.refused = k.nplain = 0;
  k.next = DRIVE_fail;
  mg_hook_mode = HOOK_off;
  d->at.once = 0;
  DriveFound found = drive_slots(d, &k.slots, &k.all) ? FOUND_next : FOUND_again;
  for (; found != FOUND_next; k.compiled++) {
    found = drive_find_place(d, &k);
    if (!found) found = drive_find_entry(d, &k);
    if (!found) found = drive_find_plain(d, &k);
    if (!found) found = drive_find_new(d, &k);
  }
  if (k.vals != k.vals_small) free(k.vals);
  if (k.all != k.all_small) free(k.all);
  mg_hook_mode = HOOK_compile;
  *nplain = k.nplain;
  return k.next;
}

/* Finds or compiles what runs at the frame's position and runs it; *nplain: instructions to execute
 * afterwards.  Handlers of signals are no part of the program: one that ran in a recording would be recorded,
 * and what it raises be lost there, or in Python code that is only asked whether something holds. */
static DriveNext drive_compiled(MgDrive *d, int *nplain) {
  bool held = mg_pyframe_hold_signals(d->at.ts, true);
  DriveNext next = drive_find(d, nplain);
  mg_pyframe_hold_signals(d->at.ts, held);
  return next;
}

/* Makes the next frame of run (stolen) and runs it to its end: what it returns, or NULL with an exception. */
static PyObject *resume_call(MgInnerRun *run) {
  PyObject *func = Py_NewRef(run->value[run->e->inner[run->next].first]);
  resume_waiting = run;
  PyObject *r = mg_pyframe_call_blank(func);
  if (resume_waiting == run) { /* no frame came */
    resume_waiting = NULL;
    resume_run_free(run);
  }
  Py_DECREF(func);
  return r;
}

bool mg_resume_is_waiting(MgFrame *f) {
  if (!resume_waiting) return false;
  return mg_pyframe_func(f) == resume_waiting->value[resume_waiting->e->inner[resume_waiting->next].first];
}

/* Gives a new frame the slots that wait for it; *nplain: instructions to execute
 * when it is the innermost one. */
static void drive_take_waiting(MgDrive *d, int *nplain) {
  MgInnerRun *run = resume_waiting;
  MG_ASSERT(run && run->next < run->e->ninner, "a frame takes slots, but none wait");
  resume_waiting = NULL;
  drive_join(d, run->caller);
  const MgInner *in = &run->e->inner[run->next++];
  for (int i = mg_pyframe_stacktop(d->at.f); i-- > 0;) Py_CLEAR(d->at.v.slot[i]);
  for (int i = 0; i < in->nslot; i++) {
    d->at.v.slot[i] = run->value[in->first + 1 + i];
    run->value[in->first + 1 + i] = NULL;
  }
  mg_pyframe_set_stacktop(d->at.f, in->nslot);
  mg_pyframe_set_next(d->at.f, in->unit);
  if (run->next < run->e->ninner) {
    d->run = run;
  } else {
    *nplain = run->e->nplain;
    resume_run_free(run);
  }
}

/* The frame has nothing left to do: what it returns is looked at by nobody. */
static PyObject *drive_pass(MgDrive *d) {
  int n = d->at.v.code->co_nlocalsplus;
  for (int i = mg_pyframe_stacktop(d->at.f); i-- > 0;) Py_CLEAR(d->at.v.slot[i]);
  if (d->at.code->instr[d->pass].op == BC_RETURN_VALUE) d->at.v.slot[n++] = Py_NewRef(Py_None);
  mg_pyframe_set_stacktop(d->at.f, n);
  return drive_leave(d, d->pass);
}

/* The instruction at the frame's position is a call that was begun in the segment: its frame is made and run.
 * *l is where the frame goes on, unless a segment of the callee has gone on in this frame or further up. */
static MgLoopEnd drive_call(MgDrive *d, MgLoop *l) {
  MgInnerRun *run = d->run;
  const MgInstr *in = &d->at.code->instr[mg_pyframe_next(d->at.f)];
  d->run = NULL;
  d->at.call = (int)(in - d->at.code->instr);
  d->pass = -1;
  run->caller = d;
  mg_pyframe_set_at(d->at.f, in->at);
  PyObject *r = resume_call(run);
  if (r && (d->pass >= 0 || d->landed)) {
    Py_DECREF(r);
    return LOOP_stop;
  }
  if (d->landed)
    mg_pyframe_set_at(d->at.f, mg_pyframe_next(d->at.f)); /* too deep a recursion to return from */
  MgOuter at = {.descend = -1, .exc_n = -1};
  if (!r) return mg_loop_run(l, d->at.ts, d->at.f, d->at.code, &at, true, 1);
  int top = mg_pyframe_stacktop(d->at.f);
  d->at.v.slot[top] = r;
  mg_pyframe_set_stacktop(d->at.f, top + 1);
  mg_pyframe_set_next(d->at.f, in->next);
  l->unit = in->next;
  return LOOP_stop;
}

/* Does an instruction take apart what the one before it left, a tuple or a list?  The next segment then finds
 * the items in locals, where those that are not looked at need no guards (the keys of
 * `for k, v in d.items()`). */
static bool drive_unpacks(const MgDrive *d, int unit) {
  const MgInstr *in = &d->at.code->instr[unit];
  int top = mg_pyframe_stacktop(d->at.f);
  PyObject *o =
      in->op == BC_UNPACK_SEQUENCE && top > d->at.v.code->co_nlocalsplus ? d->at.v.slot[top - 1] : NULL;
  return o && (PyTuple_CheckExact(o) || PyList_CheckExact(o)) && Py_SIZE(o) == in->arg;
}

/* Is o, which LOAD_METHOD has left on top, a method of a string, or the string itself? */
static bool drive_is_text_method(const MgInstr *in, PyObject *o) {
  PyObject *self = PyCFunction_Check(o) ? PyCFunction_GET_SELF(o) : o;
  return in->op == BC_LOAD_METHOD && self && PyUnicode_CheckExact(self);
}

/* The container, or method of a string, that the instruction in has just loaded onto the value stack,
 * borrowed; else NULL. */
static PyObject *drive_loaded_container(const MgDrive *d, const MgInstr *in) {
  int top = mg_pyframe_stacktop(d->at.f);
  PyObject *o = top > d->at.v.code->co_nlocalsplus ? d->at.v.slot[top - 1] : NULL;
  if (!o || drive_is_text_method(in, o)) return o;
  bool loads =
      in->op == BC_LOAD_FAST || in->op == BC_LOAD_GLOBAL || in->op == BC_LOAD_DEREF || in->op == BC_LOAD_ATTR;
  return loads && (PyList_Check(o) || PyDict_Check(o) || Py_TYPE(o) == mg_torch.deque) ? o : NULL;
}

static MgLoopEnd drive_execute(MgDrive *d, MgLoop *l, int n) {
  MgOuter at = {.stop_at = n, .descend = -1, .exc_n = -1};
  return mg_loop_run(l, d->at.ts, d->at.f, d->at.code, &at, true, 0);
}

/* Was loading a container what ended the segment?  Then what uses it would end the next one: executes on
 * until it is off the value stack. */
static MgLoopEnd drive_use_container(MgDrive *d, MgLoop *l) {
  PyObject *o = Py_XNewRef(drive_loaded_container(d, l->in));
  int bottom = mg_pyframe_stacktop(d->at.f) - 1;
  bool there = o != NULL;
  MgLoopEnd end = LOOP_stop;
  for (int i = 0; there && end == LOOP_stop && i < MG_TUNE_CONTAINER_USE; i++) {
    if (d->at.code->instr[l->unit].target >= 0) break; /* a jump */
    end = drive_execute(d, l, 1);
    there = false;
    for (int k = bottom; end == LOOP_stop && k < mg_pyframe_stacktop(d->at.f); k++)
      there |= d->at.v.slot[k] == o;
  }
  Py_XDECREF(o);
  return end;
}

/* Executes nplain instructions, and those that put away their result. */
static MgLoopEnd drive_step(MgDrive *d, MgLoop *l, int nplain) {
  MgLoopEnd end;
  do {
    end = drive_execute(d, l, nplain);
    if (end == LOOP_stop && !mg_force_break) end = drive_use_container(d, l);
    nplain = 1;
  } while (end == LOOP_stop && !mg_force_break &&
           (mg_loop_settles(d->at.code, l->unit) || drive_unpacks(d, l->unit)));
  return end;
}

/* What ends a segment, and what is not worth recording. */
static MgLoopEnd drive_plain(MgDrive *d, MgLoop *l, DriveNext next, int nplain) {
  uint64_t t = mg_measure_on ? mg_ticks() : 0;
  int unit = mg_pyframe_next(d->at.f);
  MgLoopEnd end = next == DRIVE_walk ? mg_walk(d, l) : drive_step(d, l, nplain);
  if (t) mg_place_add(PLACE_break, d->at.v.code, unit, d->at.code->line[unit], t);
  return end;
}

int mg_resume_pending(MgDrive *d) {
  MgHookMode mode = mg_hook_mode;
  mg_hook_mode = HOOK_off;
  int rc = mg_pyframe_pending(d->at.ts);
  mg_hook_mode = mode;
  if (rc) mg_pyframe_set_at(d->at.f, mg_pyframe_next(d->at.f));
  return rc;
}

/* Compiling was given up: handlers of signals, then CPython runs the frame.  A frame that has not started is
 * none that a handler may see: CPython calls them when it starts.  Where none raises, the next recording of
 * this code waits longer before it is given up. */
static PyObject *drive_stopped(MgDrive *d) {
  MgCodeInfo *info = d->at.info;
  int unit = mg_pyframe_next(d->at.f);
  mg_stats.stopped++;
  mg_log(MG_LOG_fallback, "%s: compiling was given up, since a signal waits",
         PyUnicode_AsUTF8(d->at.v.code->co_qualname));
  if (unit && mg_resume_pending(d)) return drive_raise(d);
  PyObject *code = Py_NewRef((PyObject *)d->at.v.code); /* owns info */
  PyObject *r = drive_rest(d, unit);
  if (r && info->stopped < UINT8_MAX) info->stopped++;
  Py_DECREF(code);
  return r;
}

/* Runs a segment, or what follows it, again and again. */
static PyObject *drive_run(MgDrive *d, bool waiting) {
  for (;;) {
    int nplain = 0;
    bool library = false;
    DriveNext next;
    if (d->landed) {
      d->landed = false;
      next = (DriveNext)d->next;
      nplain = d->nplain;
      library = next == DRIVE_step && mg_skip_compile(d->at.v.code);
    } else if (waiting) {
      drive_take_waiting(d, &nplain);
      next = d->run ? DRIVE_call : DRIVE_step;
      waiting = false;
    } else next = drive_compiled(d, &nplain);
    if (d->at.stopped) return drive_stopped(d);
    int unit = mg_pyframe_next(d->at.f);
    MG_ASSERT(mg_pyframe_stacktop(d->at.f) >= 0,
              "between segments the frame is not as CPython would have it");
    if (next == DRIVE_fail) {
      mg_pyframe_unlink(d->at.ts, &d->at.link);
      mg_hook_mode = HOOK_compile;
      return mg_pyframe_drop(d->at.ts, d->at.f);
    }
    if (next == DRIVE_raise) {
      mg_pyframe_set_at(d->at.f, unit); /* the exception belongs to the instruction that would run next */
      return drive_raise(d);
    }
    if (next == DRIVE_pass) return drive_pass(d);
    if (next == DRIVE_return) return drive_leave(d, unit);
    if (next != DRIVE_step && next != DRIVE_call && next != DRIVE_walk)
      return drive_left(d, unit, next == DRIVE_rest);
    MgLoop l;
    MgLoopEnd end = LOOP_stop;
    d->trial.steps++;
    if (next == DRIVE_call) {
      end = drive_call(d, &l);
      if (end == LOOP_stop && d->pass >= 0) return drive_pass(d);
      if (end == LOOP_stop && d->landed) continue;
      library = mg_skip_compile(d->at.v.code);
      if (end == LOOP_stop && library) return drive_leave(d, l.unit);
      bool settles = end == LOOP_stop && (mg_loop_settles(d->at.code, l.unit) || drive_unpacks(d, l.unit));
      if (settles && !mg_force_break) end = drive_step(d, &l, 1);
    } else end = drive_plain(d, &l, next, nplain);
    if (end == LOOP_stop && mg_resume_pending(d)) return drive_raise(d);
    if (end == LOOP_stop && library)
      return drive_leave(d, l.unit); /* library code is not compiled on its own */
    if (end == LOOP_stop && !mg_pyframe_traced(d->at.ts))
      continue; /* a debugger that was just turned on sees the rest */
    return end == LOOP_error ? drive_raise(d) : drive_leave(d, l.unit);
  }
}

static PyObject *drive_frame(PyThreadState *ts, MgFrame *f, const MgConfig *cfg, bool waiting) {
  MgDrive d = {.at = {.ts = ts, .f = f, .cfg = cfg}, .pass = -1};
  mg_pyframe_view(f, &d.at.v);
  if (!(d.at.info = mg_code_info(d.at.v.code)) || !(d.at.code = mg_code_decoded(d.at.info, d.at.v.code)) ||
      !d.at.code->known) {
    if (waiting) return mg_pyframe_drop(ts, f);
    PyErr_Clear(); /* out of memory, or unknown bytecode: CPython runs it */
    return mg_pyframe_run(ts, f, 0);
  }
  if (mg_pyframe_enter_call(ts)) return mg_pyframe_drop(ts, f);
  mg_pyframe_link(ts, f, &d.at.link);
  d.trial.begun = waiting; /* begun elsewhere */
  PyObject *r = drive_run(&d, waiting);
  mg_trial_end(&d.trial, !r);
  mg_cost_end(&d.cost, !r);
  d.ended = !waiting;
  drive_note_idle(&d);
  mg_pyframe_leave_call(ts);
  return r;
}

PyObject *mg_resume_frame(PyThreadState *ts, MgFrame *f, const MgConfig *cfg, bool waiting) {
  if (!mg_measure_on) return drive_frame(ts, f, cfg, waiting);
  MgCallMark mark = mg_call_enter(mg_pyframe_code(f), NULL, false);
  PyObject *r = drive_frame(ts, f, cfg, waiting);
  mg_call_leave(mark);
  return r;
}

/* ---- for tests ---- */

static PyObject *resume_force_break(PyObject *self, PyObject *args) {
  long k;
  int inner = 0;
  if (!PyArg_ParseTuple(args, "l|p", &k, &inner)) return NULL;
  mg_force_break = k > 0 && !inner ? k : 0;
  mg_force_inner = k > 0 && inner ? k : 0;
  Py_RETURN_NONE;
}

static PyObject *resume_fail_allocation(PyObject *self, PyObject *arg) {
  long n = PyLong_AsLong(arg);
  if (n == -1 && PyErr_Occurred()) return NULL;
  return PyLong_FromLong(mg_fault_set(n));
}

static PyMethodDef resume_methods[] = {{"fail_allocation", resume_fail_allocation, METH_O,
                                        "The n-th allocation of memory that is not Python's fails, once; 0: "
                                        "none.  How many there were since the last call (tests)."},
                                       {"force_break", resume_force_break, METH_VARARGS,
                                        "force_break(k, inner=False): ends every segment after k "
                                        "instructions, with inner those that are then in a frame that "
                                        "the first one calls; 0 turns it off (tests)."},
                                       {NULL, NULL, 0, NULL}};

int mg_resume_init(PyObject *module) { return PyModule_AddFunctions(module, resume_methods); }
