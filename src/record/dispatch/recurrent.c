/* See the header.  In: calls of torch's functions, with stand-ins.  Out: their results.
 * Does not do: packed sequences, dropout between layers, autocast.  An LSTM in
 * float32 is one op of ATen already, unless its input requires grad (in a
 * graph for a custom back end it stays that op). */
#include "record/dispatch/recurrent.h"
#include <string.h>
#include "host/python/glue.h"
#include "host/python/hook_mode.h"
#include "host/python/pyobject.h"
#include "ir/graph/graph.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "record/tensor/standin.h"
#include "tuning.h"

/* Is it better recorded as a whole?  arg: input, states, params, biases, layers, dropout, train, both
 * directions, batch first. */
static bool recurrent_whole(const char *kind, PyObject *const *arg, Py_ssize_t n) {
  if (n != 9 || !mg_standin_is(arg[0]) || !PyBool_Check(arg[3]) || !PyLong_CheckExact(arg[4]) ||
      !PyFloat_CheckExact(arg[5]))
    return false;
  MgCapture *cap = mg_standin_info(arg[0])->cap;
  ValRef input = mg_standin_val(arg[0]);
  const MgVal *x = cap && input ? mg_val(cap->rec->g, input) : NULL;
  int64_t steps, layers = PyLong_AsLong(arg[4]) * (arg[7] == Py_True ? 2 : 1);
  if (!x || x->ndim != 3 || x->device != DEV_cpu || mg_standin_autocast_on(cap)) return false;
  bool loop = strcmp(kind, "lstm") || x->dtype == DT_f64 ||
              (!cap->fx && mg_abi.aoti_torch_grad_mode_is_enabled() && mg_facts_requires_grad(arg[0]));
  if (!loop || (PyFloat_AS_DOUBLE(arg[5]) != 0 && arg[6] == Py_True)) return false;
  return !mg_ex_const_int(cap->rec->x, x->size[arg[8] == Py_True], &steps) ||
         steps * layers > MG_TUNE_RECURRENT_UNROLL;
}

bool mg_recurrent_call(PyObject *f, PyObject *const *arg, Py_ssize_t n, PyObject **r) {
  const char *kind = ((PyCFunctionObject *)f)->m_ml->ml_name;
  if (!recurrent_whole(kind, arg, n)) return false;
  MgHookMode mode = mg_hook_mode;
  mg_hook_mode = HOOK_off; /* what calls the operator is no part of the program */
  PyObject *m = mg_glue(GLUE_recurrent);
  *r = m ? PyObject_CallMethod(m, "call", "sOOOOOOO", kind, arg[0], arg[1], arg[2], arg[3], arg[4], arg[7],
                               arg[8])
         : NULL;
  Py_XDECREF(m);
  mg_hook_mode = mode;
  return true;
}
