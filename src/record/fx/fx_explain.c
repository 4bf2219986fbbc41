/* In: a finished recording for magneto's own back end.  Out: its ATen nodes as a torch.fx.GraphModule, for
 * magneto.explain.
 * The recording stays as it is: a graph that cannot be shown is compiled all the same. */
#include <stdlib.h>
#include "host/python/hook_mode.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "record/fx/fx.h"

/* Why there is no graph; new.  NULL with KeyboardInterrupt and its kin, or when out of memory. */
static PyObject *explain_reason(void) {
  if (!PyErr_ExceptionMatches(PyExc_Exception) && !PyErr_ExceptionMatches(MgBreakError)) return NULL;
  PyObject *type, *value, *tb;
  PyErr_Fetch(&type, &value, &tb);
  PyErr_NormalizeException(&type, &value, &tb);
  PyObject *text = PyUnicode_FromFormat("no graph can be shown: %S", value ? value : Py_None);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(tb);
  return text;
}

PyObject *mg_fx_explain(MgRec *r) {
  MgCapture *cap = r->cap;
  MgRec *before = mg_rec;
  MgRetry retry = r->retry;
  bool aborted = r->abort;
  MgBreakCode code = (MgBreakCode)r->code;
  uint32_t *inputs = NULL, n;
  PyObject *shown = NULL;
  if (!mg_fx_begin(cap)) {
    mg_fx_use_aten(cap);
    shown = mg_fx_module(r, &inputs, &n);
  }
  if (!shown) shown = explain_reason();
  free(inputs);
  mg_fx_end(cap);
  mg_fx_free(cap);
  mg_rec = before;
  mg_retry_forget(r, retry, RETRY_sizes); /* what it asked for in vain is no reason to record again */
  mg_retry_forget(r, retry, RETRY_data);
  r->abort = aborted;
  r->code = code;
  return shown;
}
