/* One run of an entry. */
#include "entry/run/entry.h"
#include "entry/guard/guard_add.h"
#include "entry/guard/late_draws.h"
#include "entry/launch/plan_call.h"
#include "entry/launch/rng_state.h"
#include "entry/run/exec.h"
#include "entry/run/exec_run.h"
#include "entry/run/exec_sizes.h"
#include "entry/run/snapshot_program.h"
#include "entry/run/snapshot_run.h"
#include "entry/run/staged_exec.h"
#include "host/python/pyframe.h"
#include "results.h"
#include "tuning.h"

/* Answers that are often others than expected cost a run each: then some runs are not tried. */
static void resume_note_claims(MgEntry *e, bool failed) {
  if (failed)
    e->penalty = !e->penalty ? 1 : e->penalty < MG_TUNE_CLAIM_REST ? 2 * e->penalty : MG_TUNE_CLAIM_REST;
  else e->penalty = 0;
  if (failed) e->rest = e->penalty - 1;
}

/* A graph that raises is run again, as the program wrote it, where it can be: handlers of
 * signals are not what raises. */
static int resume_run_graph(const MgEntry *e, PyObject **vals, MgExecAt *at, PyObject **outs) {
  PyThreadState *ts = PyThreadState_Get();
  bool again = e->repeats && !e->exec->callable, held = again && mg_pyframe_hold_signals(ts, true);
  int rc = mg_exec_run(e->exec, vals, at, outs);
  if (again) mg_pyframe_hold_signals(ts, held);
  return rc;
}

int mg_entry_run(MgEntry *e, PyObject **vals, MgExecAt *at, PyObject **new_slots, PyObject **ret) {
  PyObject *small[RESUME_SMALL] = {NULL}, **outs = small;
  const ValRef *unused;
  int nout = mg_snapshot_outputs(e->snap, &unused), nsrc = mg_guards_nsrc(e->guards), rc = -1;
  if (nout > RESUME_SMALL && !(outs = mg_calloc((size_t)nout, sizeof *outs))) {
    mg_exec_leave(at);
    return PyErr_NoMemory(), -1;
  }
  uint64_t t = mg_measure_on && mg_measure_closely((uint64_t)e->hits) ? mg_ticks() : 0;
  /* Kernels run without the GIL and backends run Python: nothing may free what the segment still needs. */
  for (int i = 0; i < nsrc; i++) Py_XINCREF(vals[i]);
  bool ready = !e->guards->ndraw || !mg_draw_run(e->guards, vals);
  if (!ready) mg_exec_leave(at);
  PyObject *random = ready && e->keeps_random ? mg_claim_save() : NULL;
  if (ready && e->keeps_random && !random) mg_exec_leave(at);
  else if (ready && !(rc = resume_run_graph(e, vals, at, outs)))
    rc = mg_snapshot_run(e->snap, outs, vals, new_slots, ret);
  if (t) mg_ticks_add(&e->running, t);
  if (e->claims) resume_note_claims(e, rc == MG_CLAIM_FALSE);
  if (rc == MG_RUN_RAISED &&
      (!e->repeats || !PyErr_ExceptionMatches(PyExc_Exception) || PyErr_ExceptionMatches(PyExc_MemoryError)))
    rc = -1;
  if (rc == MG_RUN_RAISED) PyErr_Clear();       /* CPython runs it and raises again */
  if (rc == MG_RUN_STOPPED) rc = MG_RUN_RAISED; /* CPython runs it, where handlers run */
  bool given_up = rc == MG_CLAIM_FALSE || rc == MG_RUN_RAISED || rc == MG_STAGES_OTHER;
  if (given_up && random && mg_claim_restore(Py_NewRef(random))) rc = -1;
  Py_XDECREF(random);
  for (int i = 0; i < nsrc; i++) Py_XDECREF(vals[i]);
  for (int i = 0; i < nout; i++) Py_XDECREF(outs[i]);
  if (outs != small) free(outs);
  return rc;
}
