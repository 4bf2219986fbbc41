/* Where the next attempt to record a segment ends.
 * In: the frames of a recording that broke, or whose snapshot failed.  Out: stop_at, stop, nplain of Segment.
 */
#include "record/segment/segment_parts.h"
#include <stdlib.h>
#include <string.h>
#include "entry/run/entry_cache.h"
#include "host/python/decode.h"
#include "host/python/hook_mode.h"
#include "host/python/pyobject.h"
#include "record/autograd/joint_trace.h"
#include "record/bytecode/eval_loop.h"
#include "record/object/namespaces.h"
#include "record/snapshot/snapshot.h"

/* Is it between raising an exception and the end of its handler? */
static bool break_handled(long n, int exc_depth, long exc_n) {
  return exc_depth || (exc_n >= 0 && exc_n <= n - 1);
}

/* Where a segment can end for a break in a frame: before what was only loaded for the breaking instruction; a
 * segment cannot end while its own exception is being handled. */
static long break_end_of(long n, long tail, int exc_depth, long exc_n, int *nplain) {
  bool handles = break_handled(n, exc_depth, exc_n);
  long end = handles ? exc_n - 1 : n - 1 - tail; /* values that were only loaded need no guards */
  *nplain = handles ? 1 : (int)(n - end);
  if (end > 0) return end;
  if (!handles) *nplain = (int)n;
  return 0;
}

/* May the next attempt end in a frame that this one calls?  Then the innermost frame
 * that has something to keep. */
static void break_descend(Segment *s, const MgRec *r) {
  int k = 0, nplain = 0;
  while (k + 1 < r->npath && !break_handled(r->path[k].n, r->path[k].exc_depth, r->path[k].exc_n)) k++;
  for (; k > 0; k--) {
    const MgStop *p = &r->path[k];
    long end = break_end_of(p->n, p->tail, p->exc_depth, p->exc_n, &nplain);
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

/* Does the program ask for an error where the recording breaks?  torch._dynamo's flag is an ordinary global,
 * as the recording has it. */
static bool break_is_error(void) {
  PyObject *modules = PyImport_GetModuleDict(), *utils = PyDict_GetItemString(modules, "torch._dynamo.utils");
  PyObject *name = utils ? PyUnicode_InternFromString("_error_on_graph_break") : NULL;
  PyObject *v = name ? mg_rec_namespace_get(PyModule_GetDict(utils), name) : NULL;
  bool on = v == Py_True;
  Py_XDECREF(name);
  Py_XDECREF(v);
  mg_clear_as_no();
  return on;
}

void mg_segment_place_break(Segment *s, const MgRec *r, const MgOuter *o) {
  s->stop_at = break_end_of(o->n, o->tail, o->exc_depth, o->exc_n, &s->nplain);
  s->stop_level = s->level;
  s->nstop = 0;
  s->line = (int)r->line;
  s->why = (MgBreakCode)r->code;
  snprintf(s->reason, sizeof s->reason, "%s", r->reason);
  s->break_is_error = break_is_error();
  if (s->may_descend) break_descend(s, r);
}

void mg_segment_move_back(Segment *s, const MgRec *r, long n) {
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
static void break_add_inner(MgInner *in, const MgLoop *l, bool innermost, int first, PyObject **v) {
  *in = (MgInner){.first = first};
  in->unit = innermost ? l->unit : (int)(l->in - l->code->instr);
  in->nslot = (int)(l->sp - l->v.slot) - (innermost ? 0 : mg_loop_call_takes(l->in));
  *v++ = l->v.func;
  memcpy(v, l->v.slot, sizeof *v * (size_t)in->nslot);
}

/* The snapshot has all frames, outermost first. */
int mg_segment_stopped(MgRec *r, MgLoop *innermost) {
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
      break_add_inner(&inner[k - 1], frame[k], k == n - 1, at, v + at);
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
