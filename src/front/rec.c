/* State of the recording of this thread, and the one way to end a recording early.
 * In: reasons from every file of front/.  Out: mg_rec, MgBreakError, names and hints of breaks.
 * A break unwinds as a Python exception because C code between two inlined frames only understands that; the flag in
 * MgRec is what counts, since such code may swallow exceptions. */
#include "front/rec.h"
#include "base/env.h"
#include "front/hook.h"
#include "front/names.h"
#include "front/record.h"
#include "front/resume.h"
#include <stdlib.h>

_Thread_local MgRec *mg_rec;
PyObject *MgBreakError;

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
  PyErr_Clear();
  PyErr_SetString(MgBreakError, r ? r->reason : "graph break outside of a recording");
  return NULL;
}

static const struct {
  const char *name, *hint;
} rec_reasons[] = {
#define BREAKCODE(name, hint) {#name, hint},
#include "front/breaks.def"
};

const char *mg_break_name(MgBreakCode code) { return code < BK__COUNT ? rec_reasons[code].name : "?"; }
const char *mg_break_hint(MgBreakCode code) { return code < BK__COUNT ? rec_reasons[code].hint : ""; }

void mg_rec_move_graph(MgRec *r, MgCtx *ctx, MgExprs *x, MgGraph *g) {
  *ctx = *r->ctx;
  *x = *r->x;
  *g = *r->g;
  x->c = g->c = ctx;
  x->ask = NULL;
  g->x = x;
  mg_ctx_init(r->ctx);
}

MgPause mg_rec_pause(void) {
  MgPause p = {mg_rec, mg_hook_mode};
  mg_rec = NULL;
  mg_hook_mode = HOOK_off;
  return p;
}

void mg_rec_resume(MgPause p) {
  mg_rec = p.rec;
  mg_hook_mode = (MgHookMode)p.mode;
}

PyObject *mg_rec_dynamo_config(const char *name) {
  MgPause pause = mg_rec_pause();
  PyObject *m = PyImport_GetModule(mg_names.dynamo_config), *v = m ? PyObject_GetAttrString(m, name) : NULL;
  Py_XDECREF(m);
  PyErr_Clear();
  mg_rec_resume(pause);
  return v;
}

int mg_rec_init(PyObject *module) {
  /* BaseException, so that `except Exception` in user code does not catch it. */
  MgBreakError = PyErr_NewException("magneto._magneto.GraphBreak", PyExc_BaseException, NULL);
  return MgBreakError ? PyModule_AddObjectRef(module, "GraphBreak", MgBreakError) : -1;
}

bool mg_strict(void) {
  static int on = -1;
  if (on < 0) on = mg_env_switch(ENV_STRICT, false);
  return on;
}
