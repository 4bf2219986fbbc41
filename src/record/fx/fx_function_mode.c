/* The torch-function mode: sees every torch-level call (F.relu, x + y, x.view, torch.zeros) once, outermost,
 * while an FX graph is wanted.
 * In: the function and its arguments.  Out: the call itself, run with the mode off so that its parts reach
 * only the
 * dispatch mode, and one FX node when it gave a tensor. */
#include "host/python/hook_mode.h"
#include "record/core/c_functions.h"
#include "record/core/capture.h"
#include "record/core/ops.h"
#include "record/core/recording.h"
#include "record/fx/fx.h"

typedef struct MgFnModeObject { /* the mode on torch's stack */
  PyObject_HEAD MgCapture *cap; /* NULL once the recording has ended */
} MgFnModeObject;

/* Functions whose operators here are others than those of torch's own body, which asks for values, or
 * loops.  False: not called. */
static bool torchfn_own(PyObject *f, PyObject *args, PyObject *kwargs, PyObject **res) {
  Py_ssize_t n = PyTuple_CheckExact(args) ? PyTuple_GET_SIZE(args) : 0,
             nkw = kwargs ? PyDict_GET_SIZE(kwargs) : 0;
  int action = mg_policy_of(f).action;
  if (action == ACT_recurrent)
    return n && !nkw && mg_ops.recurrent_call(f, PySequence_Fast_ITEMS(args), n, res);
  if (action != ACT_one_hot || n + nkw != 2 || !n) return false;
  PyObject *count = nkw ? PyDict_GetItemString(kwargs, "num_classes") : PyTuple_GET_ITEM(args, 1);
  return count && mg_ops.one_hot(PyTuple_GET_ITEM(args, 0), count, res);
}

/* __torch_function__(self, func, types, args, kwargs); torch has popped the mode. */
static PyObject *torchfn_handle(PyObject *self, PyObject *const *a, Py_ssize_t n) {
  MgCapture *cap = ((MgFnModeObject *)self)->cap;
  if (n < 3)
    return PyErr_Format(PyExc_TypeError, "__torch_function__ takes at least 3 arguments, got %zd", n);
  PyObject *args = a[2], *kwargs = n > 3 && PyDict_Check(a[3]) ? a[3] : NULL;
  /* Nothing is recorded for calls of ours, after a break, or after the end. */
  if (!cap || cap->quiet || cap->rec->abort) return PyObject_Call(a[0], args, kwargs);
  if (mg_ops.subclass_among(cap, a[1]))
    return Py_NewRef(Py_NotImplemented); /* the program's class is asked next, and calls again */
  MgFxCall c;
  MgPause pause = mg_rec_pause();
  int rc = mg_fx_before(cap, args, kwargs, &c);
  mg_rec_resume(pause);
  PyObject *res = NULL;
  if (!rc) {
    /* torch's glue above us is not part of the recording; the function itself (F.relu is Python) is. */
    pause = mg_rec_pause();
    mg_rec = cap->rec;
    mg_hook_mode = HOOK_record;
    if (!torchfn_own(a[0], args, kwargs, &res)) res = PyObject_Call(a[0], args, kwargs);
    mg_rec_resume(pause);
  }
  if (res) {
    pause = mg_rec_pause();
    if (mg_fx_after(cap, a[0], args, kwargs, &c, res)) Py_CLEAR(res);
    mg_rec_resume(pause);
  }
  mg_fx_drop(&c);
  return res;
}

static PyMethodDef torchfn_methods[] = {
    {"__torch_function__", (PyCFunction)(void *)torchfn_handle, METH_FASTCALL, NULL}, {NULL, NULL, 0, NULL}};

static PyTypeObject torchfn_mode_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "magneto._magneto.FunctionMode",
    .tp_basicsize = sizeof(MgFnModeObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_methods = torchfn_methods,
};

int mg_torchfn_init(void) { return PyType_Ready(&torchfn_mode_type); }

PyObject *mg_torchfn_mode_new(MgCapture *cap) {
  MgFnModeObject *m = PyObject_New(MgFnModeObject, &torchfn_mode_type);
  if (m) m->cap = cap;
  return (PyObject *)m;
}

void mg_torchfn_mode_end(PyObject *mode) { ((MgFnModeObject *)mode)->cap = NULL; }
