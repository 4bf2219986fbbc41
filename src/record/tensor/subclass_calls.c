/* Calls that make tensors of classes of the program: their C code would look for memory,
 * so what it does is done here.
 * In: a class, and what it is called with.  Out: a stand-in of that class, after its own __new__ and
 * __init__ have been recorded. */
#include "record/tensor/subclass_calls.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "host/torch/function_stack.h"
#include "record/core/call_args.h"
#include "record/core/ops.h"
#include "record/tensor/subclass.h"
#include "record/tensor/wrapper_subclass.h"

static bool class_is_tensors(PyObject *o) {
  return PyType_Check(o) && PyType_IsSubtype((PyTypeObject *)o, mg_torch.tensor);
}

PyObject *mg_call_as_subclass(const MgCall *c) {
  PyObject *self = mg_policy_self(c->f),
           *x = self   ? self
                : c->n ? c->arg[0]
                       : NULL,
           *cls = c->n == 1 + !self ? c->arg[c->n - 1] : NULL;
  if (!x || !cls || c->kwnames || !mg_standin_is(x) || !class_is_tensors(cls)) return mg_call_unknown(c);
  return mg_subclass_cast(x, (PyTypeObject *)cls, false); /* torch asks no __torch_function__ about this */
}

PyObject *mg_call_make_subclass(const MgCall *c) {
  Py_ssize_t nkw = c->n - c->npos;
  bool named = nkw == 1 && PyUnicode_Check(PyTuple_GET_ITEM(c->kwnames, 0)) &&
               !PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(c->kwnames, 0), "require_grad");
  if (c->npos < 2 || c->n > 3 || (nkw && !named) || !class_is_tensors(c->arg[0]) || !mg_standin_is(c->arg[1]))
    return mg_call_unknown(c);
  int grad = c->n == 3 ? PyObject_IsTrue(c->arg[2]) : 0;
  PyObject *r = grad < 0 ? NULL : mg_subclass_cast(c->arg[1], (PyTypeObject *)c->arg[0], true), *off;
  if (!r || !grad) return r;
  if (!(off = mg_fmodes_off()) || PyObject_SetAttrString(r, "requires_grad", Py_True)) Py_CLEAR(r);
  if (off && mg_context_exit(off)) Py_CLEAR(r);
  return r;
}

PyObject *mg_call_tensor_new(const MgCall *c) {
  if (c->n != 2 || c->kwnames || !class_is_tensors(c->arg[0]) || !mg_standin_is(c->arg[1]))
    return mg_call_unknown(c);
  return mg_subclass_cast(c->arg[1], (PyTypeObject *)c->arg[0], false);
}

/* type.__call__ for a class without a __new__ of its own. */
static PyObject *class_make(const MgCall *c) {
  PyTypeObject *t = (PyTypeObject *)c->f;
  PyObject *name = PyUnicode_InternFromString("__init__"),
           *init = name ? mg_ops.lookup_special(t, name) : NULL, *r, *done;
  Py_XDECREF(name);
  bool python = init && Py_TYPE(init) == &PyFunction_Type;
  if (c->n != 1 || !c->npos || !mg_standin_is(c->arg[0])) return mg_call_unknown(c);
  if (!(r = mg_subclass_cast(c->arg[0], t, false)) || !python) return r;
  PyObject *pair[2] = {r, c->arg[0]};
  done = mg_ops.call(init, pair, 2, NULL);
  if (!done) Py_CLEAR(r);
  Py_XDECREF(done);
  return r;
}

static PyObject *class_wrap(const MgCall *c) {
  PyObject *args = mg_call_args(c), *kw = args ? mg_call_kwargs(c) : NULL, *r = NULL;
  if (args && kw) r = mg_wrapper_new((PyTypeObject *)c->f, args, kw);
  Py_XDECREF(kw);
  Py_XDECREF(args);
  return r;
}

PyObject *mg_call_tensor_class(const MgCall *c) {
  PyTypeObject *t = (PyTypeObject *)c->f;
  PyObject *make = mg_ops.lookup_special(t, mg_names.new);
  bool python = make && (Py_TYPE(make) == &PyStaticMethod_Type || Py_TYPE(make) == &PyFunction_Type);
  if (mg_wrapper_class(t)) return class_wrap(c);
  if (!mg_subclass_known(t)) return mg_call_unknown(c);
  PyObject *r = python ? mg_call_plain(c) : class_make(c);
  if (!r || mg_standin_is(r)) return r;
  Py_DECREF(r);
  return mg_call_unknown(c);
}
