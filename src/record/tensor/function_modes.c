/* See the header. */
#include "record/tensor/function_modes.h"
#include "host/python/hook_mode.h"
#include "host/python/pyobject.h"
#include "host/torch/function_stack.h"
#include "record/core/call_args.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "record/fx/fx.h"

bool mg_fmodes_on_top(MgRec *r) {
  Py_ssize_t n = mg_fmodes_depth();
  PyObject *top = n && r->cap ? mg_fmodes_at(n - 1) : NULL;
  mg_clear_as_no();
  return top && !(r->want_fx && top == mg_fx_mode(r->cap));
}

bool mg_fmodes_same(const MgCapture *cap, Py_ssize_t ours) {
  Py_ssize_t n = PyList_GET_SIZE(cap->fmodes);
  bool same = mg_fmodes_depth() == n + ours;
  for (Py_ssize_t i = 0; same && i < n; i++) same = mg_fmodes_at(i + ours) == PyList_GET_ITEM(cap->fmodes, i);
  mg_clear_as_no();
  return same;
}

int mg_fmodes_check(MgRec *r) {
  /* Ours is not on the stack while it hands on a call. */
  if (!r->cap || !r->cap->fmodes_known || r->cap->inside || mg_fmodes_same(r->cap, r->want_fx)) return 0;
  mg_rec_break(BK_torch_state, "a torch_function mode is entered or left");
  return -1;
}

PyObject *mg_fmodes_ask(const MgCall *c, bool by_torch) {
  bool only_ours = !by_torch && mg_rec->want_fx && mg_fmodes_depth() == 1 && !mg_fmodes_on_top(mg_rec);
  PyObject *ours = only_ours ? mg_fmodes_call("_pop_torch_function_stack", NULL) : NULL;
  if (only_ours && !ours) return NULL;
  PyObject *r = mg_call_plain(c);
  if (ours) {
    PyObject *t, *v, *tb;
    PyErr_Fetch(&t, &v, &tb);
    mg_fmodes_insist("_push_on_torch_function_stack", ours);
    PyErr_Restore(t, v, tb);
    Py_DECREF(ours);
  }
  return r;
}
