/* See the header. */
#include "entry/launch/trial_clock.h"
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>
#include "base/log.h"

static double clock_ms[WAY__COUNT], clock_cpu_ms[WAY__COUNT]; /* what a test has given */
static bool clock_given;

double mg_trial_took(MgTrialWay way, double t0) { return clock_given ? clock_ms[way] : mg_now_ms() - t0; }

double mg_trial_cpu_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

double mg_trial_took_cpu(MgTrialWay way, double t0) {
  return clock_given ? clock_cpu_ms[way] : mg_trial_cpu_ms() - t0;
}

static PyObject *clock_feed(PyObject *self, PyObject *args) {
  double new[WAY__COUNT] = {0}, cpu[WAY__COUNT] = {[WAY_recorded] = -1, [WAY_eager] = -1};
  bool given = PyTuple_GET_SIZE(args) > 0;
  if (given && !PyArg_ParseTuple(args, "ddd|dd:feed_trials", &new[WAY_recorded], &new[WAY_compiled],
                                 &new[WAY_eager], &cpu[WAY_recorded], &cpu[WAY_eager]))
    return NULL;
  for (int w = 0; w < WAY__COUNT; w++)
    if (cpu[w] <= 0) cpu[w] = new[w];
  PyObject *old =
      clock_given ? Py_BuildValue("(ddddd)", clock_ms[WAY_recorded], clock_ms[WAY_compiled],
                                  clock_ms[WAY_eager], clock_cpu_ms[WAY_recorded], clock_cpu_ms[WAY_eager])
                  : PyTuple_New(0);
  if (!old) return NULL;
  clock_given = given;
  memcpy(clock_ms, new, sizeof new);
  memcpy(clock_cpu_ms, cpu, sizeof cpu);
  return old;
}

static PyMethodDef clock_methods[] = {
    {"feed_trials", clock_feed, METH_VARARGS,
     "feed_trials([recorded, compiled, eager[, recorded_cpu, eager_cpu]], /): for tests: milliseconds that "
     "trials take instead of the clock's, and of the processor.  Without arguments: the clocks' again.  "
     "Returns "
     "what it was called with before."},
    {NULL, NULL, 0, NULL}};

int mg_trial_clock_init(PyObject *module) { return PyModule_AddFunctions(module, clock_methods); }
