/* State of the recording of this thread, and the one way to end a recording early.
 * In: reasons from every room of record.  Out: mg_rec, MgBreakError, names and hints of breaks.
 * A break unwinds as a Python exception because C code between two inlined frames only understands that; the
 * flag in MgRec is what counts, since such code may swallow exceptions. */
#include "record/core/recording.h"
#include <stdlib.h>
#include "base/strbuf.h"
#include "host/python/decode.h"
#include "host/python/hook_mode.h"
#include "host/python/interrupt.h"
#include "host/python/trace_rules.h"
#include "record/core/loop.h"

long mg_force_break, mg_force_inner;

PyObject *mg_rec_break(MgBreakCode code, const char *fmt, ...) {
  MgRec *r = mg_rec;
  /* The first reason wins: later ones are consequences of unwinding. */
  if (r && !r->abort) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(r->reason, sizeof r->reason, fmt, ap);
    va_end(ap);
    mg_text_mend(r->reason);
    r->code = (uint8_t)code;
    r->npath = mg_loop_path(r, r->path);
    r->abort = true;
  }
  PyErr_Clear(); /* the break replaces it */
  PyErr_SetString(MgBreakError, r ? r->reason : "graph break outside of a recording");
  return NULL;
}

int mg_rec_init(PyObject *module) {
  /* BaseException, so that `except Exception` in user code does not catch it. */
  MgBreakError = PyErr_NewException("magneto._magneto.GraphBreak", PyExc_BaseException, NULL);
  return MgBreakError ? PyModule_AddObjectRef(module, "GraphBreak", MgBreakError) : -1;
}

int mg_loop_path(const MgRec *r, MgStop *path) {
  const MgLoop *frames[MG_STOP_DEPTH];
  int n = 0, depth = 0;
  for (const MgLoop *l = r->top; l; l = l->up) n++;
  for (const MgLoop *l = r->top; l; l = l->up)
    if (--n < MG_STOP_DEPTH) frames[n] = l, depth += 1;
  if (depth && !frames[0]->outer) return 0; /* a generator that is closed after the outermost frame ended */
  for (n = 0; n < depth; n++) {
    const MgLoop *l = frames[n];
    if (n && (!l->direct || mg_skip_is_copy(l->v.code)))
      break; /* the ids in a memo are of this recording's objects */
    path[n] = (MgStop){l->at->n,
                       l->at->tail,
                       l->at->exc_n,
                       l->at->exc_depth,
                       l->nnode,
                       l->code->line[l->in->at],
                       mg_skip_compile(l->v.code)};
  }
  return n;
}

bool mg_interrupt_break(void) {
  if (!mg_interrupt_due()) return false;
  mg_rec_break(BK_interrupted, "a signal waits for its handler");
  return true;
}
