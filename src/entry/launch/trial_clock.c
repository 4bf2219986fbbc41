/* See the header. */
#include "entry/launch/trial_clock.h"
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include "base/log.h"

static double clock_ms[WAY__COUNT]; /* what a test has given */
static bool clock_given;

double mg_trial_took(MgTrialWay way, double t0) { return clock_given ? clock_ms[way] : mg_now_ms() - t0; }

static PyObject *clock_feed(PyObject *self, PyObject *args) {
  clock_given = PyTuple_GET_SIZE(args) > 0;
  if (clock_given && !PyArg_ParseTuple(args, "ddd:feed_trials", &clock_ms[WAY_recorded],
                                       &clock_ms[WAY_compiled], &clock_ms[WAY_eager])) {
    clock_given = false;
    return NULL;
  }
  Py_RETURN_NONE;
}

static PyMethodDef clock_methods[] = {
    {"feed_trials", clock_feed, METH_VARARGS,
     "feed_trials([recorded, compiled, eager], /): for tests: milliseconds that trials take instead of the "
     "clock's.  Without arguments: the clock's again."},
    {NULL, NULL, 0, NULL}};

int mg_trial_clock_init(PyObject *module) { return PyModule_AddFunctions(module, clock_methods); }
