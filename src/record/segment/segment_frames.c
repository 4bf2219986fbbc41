/* The frames of the program that a segment is recorded over.
 * In: linked frames at the start.  Out: where each may go, and the frames as they were.
 * Invariant: after mg_segment_restore slots, positions and the handled exception are those of
 * mg_segment_save. */
#include "record/segment/segment_parts.h"
#include <stdlib.h>
#include <string.h>
#include "entry/guard/guard_add.h"
#include "host/python/decode.h"
#include "host/python/hook_mode.h"
#include "record/core/identity.h"
#include "record/object/fresh.h"

/* Names of the slots of several frames; those of the value stacks and the functions have none. */
static PyObject *frames_names(const Segment *s) {
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

int mg_segment_save(Segment *s, MgSegmentAt *first, const MgSlots *slots) {
  s->unit = mg_pyframe_next(first->f);
  s->slots = *slots;
  for (MgSegmentAt *d = first; d; d = d->up) {
    SegmentFrame *f = &s->frame[s->nframe];
    int top = mg_pyframe_stacktop(d->f);
    *f = (SegmentFrame){d, s->nframe ? f[-1].base + f[-1].nslot + 1 : 0, top, mg_pyframe_at(d->f)};
    s->nframe++;
  }
  s->max_level = s->nframe - 1;
  s->returns = mg_calloc((size_t)s->nframe, sizeof *s->returns);
  if (!(s->saved = mg_calloc((size_t)slots->n + 1, sizeof *s->saved)) || !s->returns)
    return PyErr_NoMemory(), -1;
  for (int i = 0; i < slots->n; i++) s->saved[i] = Py_XNewRef(slots->slot[i]);
  s->slots.slot = s->saved;
  s->exc0 = Py_XNewRef(*mg_pyframe_exc_slot(s->ts));
  return s->nframe > 1 && !(s->slots.names = frames_names(s)) ? -1 : 0;
}

void mg_segment_restore(Segment *s) {
  for (int k = s->level; k >= 0; k--) {
    const SegmentFrame *f = &s->frame[k];
    PyObject **slot = f->d->v.slot;
    if (k < s->level) mg_pyframe_link(s->ts, f->d->f, &f->d->link);
    for (int i = 0, n = mg_pyframe_stacktop(f->d->f); i < n; i++) Py_CLEAR(slot[i]);
    for (int i = 0; i < f->nslot; i++) slot[i] = Py_XNewRef(s->saved[f->base + i]);
    mg_pyframe_set_stacktop(f->d->f, f->nslot);
    mg_pyframe_set_at(f->d->f, f->at);
  }
  PyObject **exc = mg_pyframe_exc_slot(s->ts);
  if (*exc != s->exc0) Py_XSETREF(*exc, Py_XNewRef(s->exc0));
}

void mg_segment_drop_inner(Segment *s) {
  free(s->inner);
  s->inner = NULL;
  s->ninner = 0;
}

void mg_segment_free(Segment *s) {
  mg_segment_drop_inner(s);
  Py_XDECREF(s->inner_code);
  for (int i = 0; s->saved && i < s->slots.n; i++) Py_XDECREF(s->saved[i]);
  free(s->saved);
  free(s->returns);
  Py_XDECREF(s->slots.names);
  Py_XDECREF(s->exc0);
}

/* The frame is about to end, which closes the generators that it holds: their finally
 * clauses belong to the recording. */
int mg_segment_clear_locals(Segment *s, MgRec *r, const MgOuter *o) {
  const MgFrameView *v = &s->frame[s->level].d->v;
  mg_hook_mode = HOOK_record;
  for (int i = 0; i < v->code->co_nlocalsplus; i++)
    if (i >= o->nslot || !o->untouched[i]) Py_CLEAR(v->slot[i]);
  mg_hook_mode = HOOK_off;
  PyErr_Clear(); /* of finalizers; a break is in r->abort */
  return r->abort ? -1 : 0;
}

int mg_segment_outer(Segment *s, MgOuter *o) {
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
static bool frames_end_runs_code(const MgFrameView *v) {
  for (int i = 0; i < v->code->co_nlocalsplus; i++) {
    PyObject *o = v->slot[i];
    if (mg_end_runs_code(o && PyCell_Check(o) ? PyCell_GET(o) : o)) return true;
  }
  return false;
}

int mg_segment_go_up(Segment *s, MgRec *r, MgOuter *o, const MgLoop *l) {
  if (s->level == s->max_level || (s->level == s->stop_level && s->stop_at >= 0)) return 0;
  MgSegmentAt *d = s->frame[s->level].d, *up = d->up;
  if (frames_end_runs_code(&d->v)) return 0;
  const MgInstr *in = &d->code->instr[l->unit], *call = &up->code->instr[up->call];
  int n = mg_pyframe_stacktop(d->f);
  PyObject *ret =
      in->op == BC_RETURN_CONST ? Py_NewRef(PyTuple_GET_ITEM(d->v.code->co_consts, in->arg)) : d->v.slot[--n];
  mg_pyframe_set_stacktop(d->f, n);
  if (mg_segment_clear_locals(s, r, o)) {
    Py_DECREF(ret);
    return -1;
  }
  s->returns[s->level++] = l->unit;
  mg_pyframe_unlink(s->ts, &d->link);
  n = mg_pyframe_stacktop(up->f);
  up->v.slot[n] = ret;
  mg_pyframe_set_stacktop(up->f, n + 1);
  mg_pyframe_set_next(up->f, call->next);
  free(o->untouched);
  if (mg_segment_outer(s, o)) {
    PyErr_Clear(); /* the break says it */
    mg_rec_break(BK_limit, "out of memory");
    return -1;
  }
  SrcRef func = mg_src_slot(s->frame[s->level].base - 1);
  mg_guard_add(r->guards, GK_code, func, (PyObject *)up->v.code, 0);
  mg_guard_add(r->guards, GK_globals, func, up->v.globals, 0);
  return 1;
}
