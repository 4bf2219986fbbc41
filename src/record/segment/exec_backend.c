/* Compiling a recorded graph with a custom backend.
 * In: the recording, with its torch-level graph.  Out: callable, inputs and what other instances may share.
 * A backend may run any Python code: signals are held while magneto's own Python around it runs. */
#include "record/segment/exec_backend.h"
#include "entry/launch/config.h"
#include "entry/run/exec.h"
#include "entry/run/exec_run.h"
#include "host/python/glue.h"
#include "host/python/names.h"
#include "host/python/pyframe.h"
#include "host/python/pyobject.h"
#include "host/torch/function_stack.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "record/fx/fx.h"
#include "record/fx/fx_modes.h"
#include "record/segment/tensor_lifetime.h"
#include "record/symbolic/sizes.h"
#include "record/tensor/function_modes.h"
#include "record/tensor/tensor_hooks.h"

/* By example, a tuple of the dimensions that are symbols; None for a number that is
 * one.  None: no size is.  New. */
static PyObject *backend_symbols(const MgRec *r, const uint32_t *index, uint32_t n) {
  bool none = !mg_symsize_inputs(&r->cap->sizes);
  PyObject *all = none ? Py_NewRef(Py_None) : PyList_New(n);
  for (uint32_t i = 0; all && !none && i < n; i++) {
    PyObject *dims = index[i] & MG_FX_SYMBOL ? Py_NewRef(Py_None) : PyList_New(0), *t;
    const MgVal *v = dims == Py_None ? NULL : mg_val(r->g, r->cap->input[index[i]].val);
    for (int d = 0; dims && v && d < v->ndim; d++) {
      int64_t k;
      PyObject *dim = mg_ex_const_int(r->x, v->size[d], &k) ? NULL : PyLong_FromLong(d);
      if (dim && PyList_Append(dims, dim)) Py_CLEAR(dims);
      Py_XDECREF(dim);
    }
    t = !dims || !v ? dims : PyList_AsTuple(dims);
    if (dims && v) Py_DECREF(dims);
    if (t) PyList_SET_ITEM(all, i, t);
    else Py_CLEAR(all);
  }
  return all;
}

/* What it calls of torch is none of the business of the program's modes.  It may take minutes: handlers of
 * signals run meanwhile, but not in what magneto._backends.registry does around it, whose weak references'
 * callbacks lose what a handler raises. */
static PyObject *backend_call(const MgRec *r, PyObject *backend, PyObject *gm, PyObject *examples,
                              PyObject *sizes) {
  bool symbols = r->cap->wrappers || r->cap->loops, sized = sizes != Py_None && !r->cap->wrappers;
  PyObject *m = symbols || sized ? mg_glue(GLUE_registry) : NULL, *f = NULL;
  bool modes = r->cap->fmodes_known && mg_fmodes_depth(), grad = mg_exec_set_grad(mg_fx_called_grad(r->cap));
  if (modes) mg_fmodes_leave();
  if (m && sized) f = PyObject_CallMethod(m, "with_sizes", "OOOO", backend, gm, examples, sizes);
  else if (m) f = PyObject_CallMethod(m, "with_symbols", "OOO", backend, gm, examples);
  else if (!symbols && !sized) {
    bool held = mg_pyframe_hold_signals(PyThreadState_Get(), false);
    f = PyObject_CallFunctionObjArgs(backend, gm, examples, NULL);
    mg_pyframe_hold_signals(PyThreadState_Get(), held);
  }
  if (modes) mg_fmodes_restore(r->cap);
  mg_exec_set_grad(grad);
  Py_XDECREF(m);
  return f;
}

/* Gives the exception that a back end raised the type under which programs written
 * for torch.compile catch it. */
static void backend_failed(PyObject *backend) {
  if (!PyErr_ExceptionMatches(PyExc_Exception)) return; /* Ctrl-C */
  PyObject *t, *v, *tb;
  PyErr_Fetch(&t, &v, &tb);
  PyErr_NormalizeException(&t, &v, &tb);
  if (tb) PyException_SetTraceback(v, tb);
  PyObject *m = mg_glue(GLUE_registry), *e = m ? PyObject_CallMethod(m, "failed", "OO", backend, v) : NULL;
  Py_XDECREF(m);
  if (!e) PyErr_Clear(); /* the back end's own exception is raised */
  if (e) {
    Py_SETREF(v, e);
    Py_SETREF(t, Py_NewRef((PyObject *)Py_TYPE(v)));
    Py_XSETREF(tb, PyException_GetTraceback(v));
  }
  PyErr_Restore(t, v, tb);
}

/* What the backend made of the same graph for another module instance: 1; 0: there is
 * none; -1 with an exception. */
static int backend_find_shared(MgExec *e, const MgRec *r, PyObject *gm, PyObject *examples, PyObject *sizes) {
  if (!r->peers || !PyList_GET_SIZE(r->peers)) return 0;
  PyObject *m = mg_glue(GLUE_shared_graphs),
           *c = m ? PyObject_CallMethod(m, "find", "OOOO", gm, examples, sizes, r->peers) : NULL;
  Py_XDECREF(m);
  if (!c || c == Py_None) {
    Py_XDECREF(c);
    return c ? 0 : -1;
  }
  e->compiled = c;
  e->callable = PyObject_GetAttrString(c, "call");
  return e->callable ? 1 : -1;
}

/* Keeps what other instances may share. */
static int backend_share(MgExec *e, PyObject *gm, PyObject *examples, PyObject *sizes) {
  PyObject *m = mg_glue(GLUE_shared_graphs);
  if (m) e->compiled = PyObject_CallMethod(m, "describe", "OOOO", gm, examples, sizes, e->callable);
  Py_XDECREF(m);
  return e->compiled ? 0 : -1;
}

void mg_exec_refuse_sizes(MgRec *r, const char *why) {
  mg_retry_fail(r, RETRY_sizes);
  PyErr_Format(PyExc_RuntimeError, "magneto: %s", why);
}

/* Takes the inputs of the graph module, by index as mg_fx_module gave them; *examples: their values, strong.
 * -1 with an exception. */
static int backend_take_inputs(MgExec *e, const MgRec *r, const uint32_t *index, uint32_t n,
                               PyObject **examples) {
  if (!(e->input = mg_calloc(n + 1, sizeof *e->input))) return PyErr_NoMemory(), -1;
  if (!(*examples = PyList_New(n))) return -1;
  for (; e->ninput < n; e->ninput++) {
    if (index[e->ninput] & MG_FX_SYMBOL) {
      uint32_t k = index[e->ninput] & ~MG_FX_SYMBOL;
      PyObject *hint = PyLong_FromLongLong(mg_sym_hint(r->x, r->cap->sizes.ref[k]));
      if (!hint) return -1;
      e->input[e->ninput] = (MgExecInput){.src = r->cap->sizes.src[k], .number = true};
      PyList_SET_ITEM(*examples, e->ninput, hint);
      continue;
    }
    const MgCapInput *in = &r->cap->input[index[e->ninput]];
    e->input[e->ninput] = (MgExecInput){.src = in->src,
                                        .pinned = in->pinned ? Py_NewRef(in->real) : NULL,
                                        .scalar = in->scalar,
                                        .array = in->array};
    PyList_SET_ITEM(*examples, e->ninput, Py_NewRef(in->real));
  }
  return 0;
}

/* May what the backend returned be used?  -1 with an exception, and the retry noted. */
static int backend_check(const MgExec *e, MgRec *r, PyObject *backend, PyObject *gm, PyObject *sizes) {
  if (e->callable == Py_NotImplemented) {
    mg_exec_refuse_sizes(r, "a backend compiles for fixed sizes, or raised an exception for symbolic ones");
    return -1;
  }
  bool same = e->callable == gm || (PyMethod_Check(e->callable) && PyMethod_GET_SELF(e->callable) == gm);
  if (!same && r->cap->wrappers)
    mg_retry_deny(r, RETRY_sizes); /* made for the sizes of the examples, as far as anybody knows */
  if (!same && sizes != Py_None && r->cap->wrappers) {
    mg_exec_refuse_sizes(r, "a backend compiles for fixed sizes");
    return -1;
  }
  if (PyCallable_Check(e->callable)) return 0;
  PyErr_Format(PyExc_TypeError,
               "magneto: the backend %R must return a callable, it returned an instance of %s", backend,
               Py_TYPE(e->callable)->tp_name);
  return -1;
}

/* Calls the backend and keeps what it makes.  -1 with an exception. */
static int backend_compile(MgExec *e, MgRec *r, PyObject *backend, PyObject *gm, PyObject *examples,
                           PyObject *sizes) {
  bool hooks = mg_tensorhook_inside(r);
  if (hooks) mg_tensorhook_watch();
  e->callable = backend_call(r, backend, gm, examples, sizes);
  if (hooks && mg_tensorhook_traced()) {
    mg_retry_fail(r, RETRY_hook);
    if (!PyErr_Occurred())
      PyErr_SetString(PyExc_RuntimeError, "magneto: the backend traces the registration of a hook");
    return -1;
  }
  if (!e->callable) {
    backend_failed(backend);
    return -1;
  }
  return backend_check(e, r, backend, gm, sizes) ? -1 : backend_share(e, gm, examples, sizes);
}

/* Are all tensors of the torch-level graph plain ones, although some that wrap others were met?  Then
 * functions of their classes computed with what they wrap, and the graph of ATen says the same. */
static bool backend_is_plain(const MgRec *r, const uint32_t *index, uint32_t n) {
  const MgCapture *cap = r->cap;
  uint32_t outer = 0;
  if (!r->own_fx || cap->sizes.nsrc || cap->jagged || cap->transformed || cap->loops || cap->function)
    return false;
  for (uint32_t i = 0; i < cap->ninput; i++) outer += cap->input[i].outer;
  for (uint32_t i = 0; i < n; i++)
    if (index[i] & MG_FX_SYMBOL || cap->input[index[i]].outer) return false;
  return cap->wrapper_val.n == outer; /* others were made inside */
}

int mg_exec_build_backend(MgExec *e, MgRec *r, const MgConfig *cfg, bool autograd) {
  uint32_t *index = NULL, n = 0;
  PyObject *examples = NULL, *sizes = NULL, *gm = mg_fx_module(r, &index, &n);
  int rc = -1;
  if (!gm) goto done;
  if (cfg->explained) Py_XSETREF(r->shown, Py_NewRef(gm));
  if (!autograd && backend_is_plain(r, index, n)) {
    rc = 1;
    goto done;
  }
  e->callable_grad = mg_fx_called_grad(r->cap);
  if (backend_take_inputs(e, r, index, n, &examples) || !(sizes = backend_symbols(r, index, n))) goto done;
  int shared = backend_find_shared(e, r, gm, examples, sizes);
  if (shared) rc = shared > 0 ? 0 : -1;
  else rc = backend_compile(e, r, cfg->backend, gm, examples, sizes);
done:
  free(index);
  Py_XDECREF(gm);
  Py_XDECREF(sizes);
  Py_XDECREF(examples);
  return rc;
}
