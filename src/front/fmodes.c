#include "front/fmodes.h"
#include "front/fx.h"
#include "front/guard.h"
#include "front/identity.h"
#include "front/record_obj.h"
#include "front/state.h"

/* torch._C.<name>(arg); arg NULL: no argument.  New. */
static PyObject *fmodes_call(const char *name, PyObject *arg) {
  PyObject *c = mg_import("torch._C"), *f = c ? PyObject_GetAttrString(c, name) : NULL;
  PyObject *r = f ? arg ? PyObject_CallOneArg(f, arg) : PyObject_CallNoArgs(f) : NULL;
  Py_XDECREF(f);
  Py_XDECREF(c);
  return r;
}

/* For undoing: what failed for want of memory is tried again. */
static void fmodes_insist(const char *name, PyObject *arg) {
  PyObject *r = NULL;
  for (int i = 0; i < 8 && !r; i++) {
    PyErr_Clear();
    r = fmodes_call(name, arg);
  }
  Py_XDECREF(r);
}

Py_ssize_t mg_fmodes_depth(void) { return mg_state_function_modes(); }

PyObject *mg_fmodes_at(Py_ssize_t i) {
  PyObject *n = PyLong_FromSsize_t(i), *r = n ? fmodes_call("_get_function_stack_at", n) : NULL;
  Py_XDECREF(n);
  Py_XDECREF(r); /* the stack keeps it */
  return r;
}

bool mg_fmodes_on_top(MgRec *r) {
  Py_ssize_t n = mg_fmodes_depth();
  PyObject *top = n && r->cap ? mg_fmodes_at(n - 1) : NULL;
  PyErr_Clear();
  return top && !(r->want_fx && top == mg_fx_mode(r->cap));
}

int mg_fmodes_begin(MgCapture *cap, PyObject *ours) {
  Py_ssize_t n = mg_fmodes_depth();
  if (!(cap->fmodes = PyList_New(0))) return -1;
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *m = mg_fmodes_at(i);
    if (!m || PyList_Append(cap->fmodes, m)) return -1;
  }
  cap->fmodes_known = true;
  if (!ours) return 0;
  PyObject *r = NULL;
  for (Py_ssize_t i = 0; i < n; i++) {
    if (!(r = fmodes_call("_pop_torch_function_stack", NULL))) return -1;
    Py_DECREF(r);
  }
  if (!(r = fmodes_call("_push_on_torch_function_stack", ours))) return -1;
  Py_DECREF(r);
  for (Py_ssize_t i = 0; i < n; i++) {
    if (!(r = fmodes_call("_push_on_torch_function_stack", PyList_GET_ITEM(cap->fmodes, i)))) return -1;
    Py_DECREF(r);
  }
  return 0;
}

/* Are exactly the modes active that were at the beginning, above ours? */
static bool fmodes_same(const MgCapture *cap, Py_ssize_t ours) {
  Py_ssize_t n = PyList_GET_SIZE(cap->fmodes);
  bool same = mg_fmodes_depth() == n + ours;
  for (Py_ssize_t i = 0; same && i < n; i++) same = mg_fmodes_at(i + ours) == PyList_GET_ITEM(cap->fmodes, i);
  PyErr_Clear();
  return same;
}

void mg_fmodes_leave(void) {
  for (Py_ssize_t n = mg_fmodes_depth(); n > 0; n--) fmodes_insist("_pop_torch_function_stack", NULL);
}

void mg_fmodes_restore(MgCapture *cap) {
  PyObject *t, *v, *tb;
  if (!cap->fmodes_known) return;
  PyErr_Fetch(&t, &v, &tb);
  if (!fmodes_same(cap, 0)) {
    mg_fmodes_leave();
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(cap->fmodes); i++) fmodes_insist("_push_on_torch_function_stack", PyList_GET_ITEM(cap->fmodes, i));
  }
  PyErr_Restore(t, v, tb);
}

int mg_fmodes_wrap(MgRec *r) {
  PyObject *list = r->cap->fmodes;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
    PyObject *seen = mg_wrap(PyList_GET_ITEM(list, i), mg_source(r->guards, SRC_fmode, 0, (int32_t)i, NULL));
    if (!seen) return -1;
    Py_DECREF(seen);
  }
  return 0;
}

int mg_fmodes_check(MgRec *r) {
  /* Ours is not on the stack while it hands on a call. */
  if (!r->cap || !r->cap->fmodes_known || r->cap->inside || fmodes_same(r->cap, r->want_fx)) return 0;
  mg_rec_break(BK_op, "a torch_function mode is entered or left");
  return -1;
}

PyObject *mg_fmodes_off(void) { return mg_context_enter(PyObject_CallNoArgs(mg_torch.without_function)); }
PyObject *mg_fmodes_only(void) { return mg_context_enter(PyObject_CallNoArgs(mg_torch.without_subclasses)); }

PyObject *mg_fmodes_ask(const MgCall *c, bool by_torch) {
  bool only_ours = !by_torch && mg_rec->want_fx && mg_fmodes_depth() == 1 && !mg_fmodes_on_top(mg_rec);
  PyObject *ours = only_ours ? fmodes_call("_pop_torch_function_stack", NULL) : NULL;
  if (only_ours && !ours) return NULL;
  PyObject *r = mg_call_plain(c);
  if (ours) {
    PyObject *t, *v, *tb;
    PyErr_Fetch(&t, &v, &tb);
    fmodes_insist("_push_on_torch_function_stack", ours);
    PyErr_Restore(t, v, tb);
    Py_DECREF(ours);
  }
  return r;
}
