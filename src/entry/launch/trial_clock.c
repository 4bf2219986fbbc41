/* See the header. */
#include "entry/launch/trial_clock.h"
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <string.h>
#include "base/log.h"

static double clock_ms[WAY__COUNT]; /* what a test has given */
static bool clock_given;

double mg_trial_took(MgTrialWay way, double t0) { return clock_given ? clock_ms[way] : mg_now_ms() - t0; }

static PyObject *clock_feed(PyObject *self, PyObject *args) {
  double new[WAY__COUNT] = {0};
  bool given = PyTuple_GET_SIZE(args) > 0;
  if (given &&
      !PyArg_ParseTuple(args, "ddd:feed_trials", &new[WAY_recorded], &new[WAY_compiled], &new[WAY_eager]))
    return NULL;
  PyObject *old = clock_given ? Py_BuildValue("(ddd)", clock_ms[WAY_recorded], clock_ms[WAY_compiled],
                                              clock_ms[WAY_eager])
                              : PyTuple_New(0);
  if (!old) return NULL;
  clock_given = given;
  memcpy(clock_ms, new, sizeof new);
  return old;
}

static PyMethodDef clock_methods[] = {
    {"feed_trials", clock_feed, METH_VARARGS,
     "feed_trials([recorded, compiled, eager], /): for tests: milliseconds that trials take instead of the "
     "clock's.  Without arguments: the clock's again.  Returns what it was called with before."},
    {NULL, NULL, 0, NULL}};

int mg_trial_clock_init(PyObject *module) { return PyModule_AddFunctions(module, clock_methods); }
