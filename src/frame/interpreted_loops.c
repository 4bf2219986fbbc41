/* See the header.  In: a frame at an instruction inside of a loop.  Out: the frame behind the loop, or at the
 * first instruction of it that a recording would want to see.  Nothing is recorded or compiled here. */
#include "frame/interpreted_loops.h"
#include <string.h>
#include "entry/launch/config.h"
#include "entry/run/entry_cache.h"
#include "frame/frame_driver.h"
#include "host/python/decode.h"
#include "host/python/names.h"
#include "record/bytecode/eval_loop.h"
#include "record/core/c_functions.h"
#include "record/core/recording.h"
#include "tuning.h"

/* Has no entry an op?  own: and ends none in another frame? */
static bool walk_is_plain(const MgDrive *d, const MgBucket *b, bool own) {
  if (d->at.cfg->fullgraph || mg_force_break) return false;
  for (int i = 0; i < b->n; i++)
    if (b->entry[i]->nnode || (own && (b->entry[i]->ninner || b->entry[i]->level))) return false;
  return true;
}

bool mg_walk_begins(const MgDrive *d, MgBucket *b, int unit) {
  if (b->n < MG_TUNE_WALK_ENTRIES || b->walks || unit <= 0) return b->walks;
  return b->walks = walk_is_plain(d, b, true);
}

bool mg_walk_at_limit(const MgDrive *d, MgBucket *b) {
  return b->walks |= !d->at.cfg->backend && walk_is_plain(d, b, false);
}

/* Would a recording want to see what is done with this? */
static bool walk_is_seen(PyObject *o) {
  char name[128];
  if (!o) return false;
  if (PyObject_TypeCheck(o, mg_torch.tensor) || PyObject_TypeCheck(o, mg_torch.module)) return true;
  bool c = PyCFunction_Check(o) || Py_TYPE(o) == &PyMethodDescr_Type;
  return c && !strncmp(mg_policy_name(o, name, sizeof name), "torch.", 6);
}

static bool walk_stops(const MgDrive *d, int unit) {
  const MgInstr *in = &d->at.code->instr[unit];
  switch (in->op) {
  case BC_LOAD_FAST:
  case BC_STORE_FAST:
  case BC_STORE_DEREF:
  case BC_POP_TOP:
  case BC_COPY:
  case BC_SWAP:
  case BC_NOP:
  case BC_BUILD_TUPLE:
  case BC_BUILD_LIST:
  case BC_BUILD_MAP:
  case BC_RETURN_VALUE: return false;
  default: break;
  }
  int top = mg_pyframe_stacktop(d->at.f), n = mg_loop_reads(in), bottom = d->at.v.code->co_nlocalsplus;
  for (int i = top - 1; i >= bottom && i >= top - n; i--)
    if (walk_is_seen(d->at.v.slot[i])) return true;
  return false;
}

/* The first and the last instruction of the innermost loop around instruction `unit`. */
static void walk_loop(const MgCode *c, int unit, int *first, int *last) {
  *first = 0;
  *last = c->n;
  for (int i = unit; i < c->n; i++) {
    int to = c->instr[i].target;
    if (to >= 0 && to <= unit && to <= i && to >= *first && (to > *first || i < *last))
      *first = to, *last = i;
  }
}

MgLoopEnd mg_walk(MgDrive *d, MgLoop *l) {
  int start = mg_pyframe_next(d->at.f), first, last;
  MgLoopEnd end;
  walk_loop(d->at.code, start, &first, &last);
  do {
    MgOuter at = {.stop_at = 1, .descend = -1, .exc_n = -1};
    end = mg_loop_run(l, d->at.ts, d->at.f, d->at.code, &at, true, 0);
    if (end == LOOP_stop && mg_resume_pending(d)) return LOOP_error;
  } while (end == LOOP_stop && l->unit != start && l->unit >= first && l->unit <= last &&
           !walk_stops(d, l->unit));
  return end;
}
