/* See the header.  In: calls of torch's functions, with stand-ins.  Out: their results.
 * Does not do: packed sequences where gradients are recorded, dropout between layers, autocast.  An LSTM in
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
#include "record/symbolic/unbacked.h"
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

/* The same for packed sequences. */
enum {
  PACKED_sizes = 1,
  PACKED_states,
  PACKED_params,
  PACKED_biases,
  PACKED_layers,
  PACKED_dropout,
  PACKED_train,
  PACKED_bidirectional,
  PACKED__COUNT
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

bool mg_recurrent_packs(MgCapture *cap) {
  return cap && !cap->rec->want_fx && !mg_abi.aoti_torch_grad_mode_is_enabled() &&
         mg_symdata_may(cap, true) && !mg_standin_autocast_on(cap);
}

/* Is it a call for packed sequences, which becomes one operator whose sizes depend on data? */
static bool recurrent_packed(const char *kind, PyObject *const *arg, Py_ssize_t n) {
  if (!n || !mg_standin_is(arg[0]) || !mg_recurrent_packs(mg_standin_info(arg[0])->cap)) return false;
  if (mg_val(mg_rec->g, mg_standin_val(arg[0]))->device != DEV_cpu) return false;
  if (*kind == '_') return true;
  return n == PACKED__COUNT && mg_standin_is(arg[PACKED_sizes]) && PyList_Check(arg[PACKED_params]) &&
         (PyFloat_AsDouble(arg[PACKED_dropout]) == 0 || arg[PACKED_train] == Py_False);
}

static PyObject *recurrent_call_packed(PyObject *m, const char *kind, PyObject *const *arg, Py_ssize_t n) {
  if (*kind != '_')
    return PyObject_CallMethod(m, "call_packed", "sOOOOOOO", kind, arg[0], arg[PACKED_sizes],
                               arg[PACKED_states], arg[PACKED_params], arg[PACKED_biases], arg[PACKED_layers],
                               arg[PACKED_bidirectional]);
  PyObject *f = PyObject_GetAttrString(m, strcmp(kind, "_pack_padded_sequence") ? "pad" : "pack"),
           *r = f ? PyObject_Vectorcall(f, arg, (size_t)n, NULL) : NULL;
  Py_XDECREF(f);
  return r;
}

bool mg_recurrent_call(PyObject *f, PyObject *const *arg, Py_ssize_t n, PyObject **r) {
  const char *kind = ((PyCFunctionObject *)f)->m_ml->ml_name;
  bool packed = recurrent_packed(kind, arg, n);
  if (!packed && (*kind == '_' || !recurrent_whole(kind, arg, n))) return false;
  MgHookMode mode = mg_hook_mode;
  mg_hook_mode = HOOK_off; /* what calls the operator is no part of the program */
  PyObject *m = mg_glue(GLUE_recurrent);
  if (m && packed) *r = recurrent_call_packed(m, kind, arg, n);
  else
    *r = m ? PyObject_CallMethod(m, "call", "sOOOOOOO", kind, arg[RNN_input], arg[RNN_states],
                                 arg[RNN_params], arg[RNN_biases], arg[RNN_layers], arg[RNN_bidirectional],
                                 arg[RNN_batch_first])
           : NULL;
  Py_XDECREF(m);
  mg_hook_mode = mode;
  return true;
}
