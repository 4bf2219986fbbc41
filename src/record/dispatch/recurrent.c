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

/* Arguments of torch.lstm, torch.gru and their like. */
enum {
  RNN_input,
  RNN_states,
  RNN_params,
  RNN_biases,
  RNN_layers,
  RNN_dropout,
  RNN_train,
  RNN_bidirectional,
  RNN_batch_first,
  RNN__COUNT
};

/* Is it better recorded as a whole? */
static bool recurrent_whole(const char *kind, PyObject *const *arg, Py_ssize_t n) {
  if (n != RNN__COUNT || !mg_standin_is(arg[RNN_input]) || !PyBool_Check(arg[RNN_biases]) ||
      !PyLong_CheckExact(arg[RNN_layers]) || !PyFloat_CheckExact(arg[RNN_dropout]))
    return false;
  MgCapture *cap = mg_standin_info(arg[RNN_input])->cap;
  ValRef input = mg_standin_val(arg[RNN_input]);
  const MgVal *x = cap && input ? mg_val(cap->rec->g, input) : NULL;
  int64_t steps, layers = PyLong_AsLong(arg[RNN_layers]) * (arg[RNN_bidirectional] == Py_True ? 2 : 1);
  if (!x || x->ndim != 3 || x->device != DEV_cpu || mg_standin_autocast_on(cap)) return false;
  bool loop =
      strcmp(kind, "lstm") || x->dtype == DT_f64 ||
      (!cap->fx && mg_abi.aoti_torch_grad_mode_is_enabled() && mg_facts_requires_grad(arg[RNN_input]));
  if (!loop || (PyFloat_AS_DOUBLE(arg[RNN_dropout]) != 0 && arg[RNN_train] == Py_True)) return false;
  return !mg_ex_const_int(cap->rec->x, x->size[arg[RNN_batch_first] == Py_True], &steps) ||
         steps * layers > MG_TUNE_RECURRENT_UNROLL;
}

bool mg_recurrent_call(PyObject *f, PyObject *const *arg, Py_ssize_t n, PyObject **r) {
  const char *kind = ((PyCFunctionObject *)f)->m_ml->ml_name;
  if (!recurrent_whole(kind, arg, n)) return false;
  MgHookMode mode = mg_hook_mode;
  mg_hook_mode = HOOK_off; /* what calls the operator is no part of the program */
  PyObject *m = mg_glue(GLUE_recurrent);
  *r = m ? PyObject_CallMethod(m, "call", "sOOOOOOO", kind, arg[RNN_input], arg[RNN_states], arg[RNN_params],
                               arg[RNN_biases], arg[RNN_layers], arg[RNN_bidirectional], arg[RNN_batch_first])
         : NULL;
  Py_XDECREF(m);
  mg_hook_mode = mode;
  return true;
}
