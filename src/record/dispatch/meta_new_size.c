/* Meta kernels in Python that ask for a size which only data tells
 * (torch.library.get_ctx().new_dynamic_size()).
 * In: an operator whose kernel found nobody to ask on the meta device.  Out: its result, with sizes made up
 * here: other ones in
 * the second round, so that whoever compares the rounds (unbacked.c) sees which they are.
 * cap->sizes.asked counts them. */
#include "record/dispatch/meta_new_size.h"
#include "host/python/hook_mode.h"
#include "host/python/pyobject.h"
#include "ir/graph/op.h"
#include "record/core/capture.h"
#include "record/core/recording.h"

static PyObject *fake_size(PyObject *self, PyObject *args, PyObject *kw) {
  static const int prime[] = {151, 157, 163, 167, 173, 179, 181, 191};
  if (!mg_rec)
    return PyErr_Format(PyExc_RuntimeError, "magneto: a size of an operator was asked for after its call");
  MgSymSizes *s = &mg_rec->cap->sizes;
  return PyLong_FromLong(prime[s->asked++ % (sizeof prime / sizeof *prime)] * (s->second ? 6L : 2L));
}

static PyObject *fake_context(PyObject *self, PyObject *none) { return Py_NewRef(self); }

/* What get_ctx() gives meanwhile: a function that returns a namespace with the two methods.  New. */
static PyObject *fake_getter(void) {
  static PyMethodDef size = {"new_dynamic_size", (PyCFunction)(void (*)(void))fake_size,
                             METH_VARARGS | METH_KEYWORDS, NULL};
  static PyMethodDef get = {"get_ctx", fake_context, METH_NOARGS, NULL};
  PyObject *types = mg_import("types"), *f = types ? PyCFunction_New(&size, NULL) : NULL, *space = NULL,
           *r = NULL;
  if (f) space = PyObject_CallMethod(types, "SimpleNamespace", NULL);
  if (space && !PyObject_SetAttrString(space, "new_dynamic_size", f) &&
      !PyObject_SetAttrString(space, "create_unbacked_symint", f))
    r = PyCFunction_New(&get, space);
  Py_XDECREF(types);
  Py_XDECREF(f);
  Py_XDECREF(space);
  return r;
}

/* The kernel that the program registered for the operator, new; NULL without an exception: there is none. */
static PyObject *fake_kernel(const MgOp *op) {
  PyObject *registry = mg_import("torch._library.simple_registry");
  PyObject *all = registry ? PyObject_GetAttrString(registry, "singleton") : NULL;
  PyObject *entry = all ? PyObject_CallMethod(all, "find", "s", op->name) : NULL;
  PyObject *holder = entry ? PyObject_GetAttrString(entry, "fake_impl") : NULL;
  PyObject *kernel = holder ? PyObject_GetAttrString(holder, "kernel") : NULL;
  Py_XDECREF(registry);
  Py_XDECREF(all);
  Py_XDECREF(entry);
  Py_XDECREF(holder);
  if (kernel == Py_None) Py_CLEAR(kernel);
  mg_clear_as_no();
  return kernel;
}

PyObject *mg_metafake_call(MgRec *r, const MgOp *op, PyObject *args, PyObject *kw) {
  PyObject *t, *v, *tb, *res = NULL;
  PyErr_Fetch(&t, &v, &tb);
  PyObject *kernel = strncmp(op->name, "aten::", 6) ? fake_kernel(op) : NULL;
  PyObject *impl = kernel ? mg_import("torch._library.fake_impl") : NULL,
           *getter = impl ? fake_getter() : NULL;
  PyObject *ctx = getter ? mg_context_enter(PyObject_CallMethod(impl, "set_ctx_getter", "O", getter)) : NULL;
  r->cap->sizes.asked = 0;
  if (ctx) {
    res = PyObject_Call(kernel, args, kw);
    if (mg_context_exit(ctx)) Py_CLEAR(res);
  }
  Py_XDECREF(kernel);
  Py_XDECREF(impl);
  Py_XDECREF(getter);
  if (!res || !r->cap->sizes.asked) { /* it was about something else */
    r->cap->sizes.asked = 0;
    Py_CLEAR(res);
    PyErr_Restore(t, v, tb);
    return NULL;
  }
  Py_XDECREF(t);
  Py_XDECREF(v);
  Py_XDECREF(tb);
  return res;
}
