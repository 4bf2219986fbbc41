/* The torch-function mode: sees every torch-level call (F.relu, x + y, x.view, torch.zeros) once, outermost, while an
 * FX graph is wanted.
 * In: the function and its arguments.  Out: the call itself, run with the mode off so that its parts reach only the
 * dispatch mode, and one FX node when it gave a tensor. */
#include "front/fx.h"
#include "front/hook.h"
#include "front/policy.h"
#include "front/recurrent.h"
#include "front/subclass.h"

typedef struct MgFnModeObject { /* the mode on torch's stack */
  PyObject_HEAD
  MgCapture *cap;               /* NULL once the recording has ended */
} MgFnModeObject;

/* __torch_function__(self, func, types, args, kwargs); torch has popped the mode. */
static PyObject *torchfn_handle(PyObject *self, PyObject *const *a, Py_ssize_t n) {
  MgCapture *cap = ((MgFnModeObject *)self)->cap;
  if (n < 3) return PyErr_Format(PyExc_TypeError, "__torch_function__ takes at least 3 arguments, got %zd", n);
  PyObject *args = a[2], *kwargs = n > 3 && PyDict_Check(a[3]) ? a[3] : NULL;
  /* Nothing is recorded for calls of ours, after a break, or after the end. */
  if (!cap || cap->quiet || cap->rec->abort) return PyObject_Call(a[0], args, kwargs);
  if (mg_subclass_among(cap, a[1])) return Py_NewRef(Py_NotImplemented); /* the program's class is asked next, and calls again */
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
    bool plain = PyTuple_CheckExact(args) && !(kwargs && PyDict_GET_SIZE(kwargs));
    if (!plain || mg_policy_of(a[0]).action != ACT_recurrent || !mg_recurrent_call(a[0], PySequence_Fast_ITEMS(args), PyTuple_GET_SIZE(args), &res)) res = PyObject_Call(a[0], args, kwargs);
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
