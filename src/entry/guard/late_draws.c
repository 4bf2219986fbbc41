/* See the header. */
#include "entry/guard/late_draws.h"
#include "entry/guard/guard_set.h"
#include "host/python/hook_mode.h"

PyObject *mg_draw_make(PyObject *fn, PyObject *rng, PyObject *args, PyObject *kwargs) {
  PyObject *self = PyTuple_Pack(1, rng), *all = self ? PySequence_Concat(self, args) : NULL;
  PyObject *r = all ? PyObject_Call(fn, all, kwargs) : NULL;
  Py_XDECREF(self);
  Py_XDECREF(all);
  return r;
}

bool mg_draw_late(const MgGuards *g, SrcRef src) { return src && g->src[src].trait & SRC_DRAWS; }

int mg_draw_run(const MgGuards *g, PyObject **vals) {
  MgPause pause = mg_rec_pause();
  int rc = 0;
  for (uint32_t i = 0; i < g->ndraw && !rc; i++) {
    const MgDraw *d = &g->draw[i];
    PyObject *r = mg_draw_make(d->fn, vals[d->rng], d->args, d->kwargs);
    if (!r) rc = -1;
    else if (d->result) vals[d->result] = r;
    else Py_DECREF(r);
  }
  mg_rec_resume(pause);
  return rc;
}

void mg_draw_free(MgGuards *g) {
  for (uint32_t i = 0; i < g->ndraw; i++) {
    Py_DECREF(g->draw[i].fn);
    Py_DECREF(g->draw[i].args);
    Py_XDECREF(g->draw[i].kwargs);
  }
  free(g->draw);
}
