/* See the header.  In: objects as the recording sees them.  Out: templates, stand-ins.  Reading older objects
 * guards them. Does not do: instances whose state is in C or in slots, classes over
 * containers, objects in themselves. */
#include "record/autograd/object_template.h"
#include "entry/guard/guard_add.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "record/core/capture.h"
#include "record/core/identity.h"
#include "record/object/wrap.h"
#include "tuning.h"

static PyObject *tree_take(PyObject *o, PyObject *leaves, int depth);

bool mg_functree_is_constant(PyObject *o) {
  if (!PyTuple_CheckExact(o)) return mg_guard_is_const(o) || Py_TYPE(Py_TYPE(o)) == mg_torch.enum_meta;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); i++)
    if (!mg_functree_is_constant(PyTuple_GET_ITEM(o, i))) return false;
  return true;
}

/* What stays what it is: code without state of the call. */
static bool tree_is_code(PyObject *o) {
  if (PyFunction_Check(o))
    return !((PyFunctionObject *)o)->func_closure && !((PyFunctionObject *)o)->func_defaults;
  return PyType_Check(o) || PyModule_Check(o) ||
         (PyCFunction_Check(o) && (!PyCFunction_GET_SELF(o) || PyModule_Check(PyCFunction_GET_SELF(o)) ||
                                   PyType_Check(PyCFunction_GET_SELF(o))));
}

static PyObject *tree_tagged(const char *kind, PyObject *of, PyObject *parts) {
  PyObject *r = parts ? Py_BuildValue("(sOO)", kind, of, parts) : NULL;
  Py_XDECREF(parts);
  return r;
}

static PyObject *tree_items(PyObject *o, PyObject *leaves, int depth) {
  PyObject *items = PySequence_Tuple(o), *r = items ? PyTuple_New(PyTuple_GET_SIZE(items)) : NULL;
  for (Py_ssize_t i = 0; r && i < PyTuple_GET_SIZE(items); i++) {
    PyObject *t = tree_take(PyTuple_GET_ITEM(items, i), leaves, depth + 1);
    if (t) PyTuple_SET_ITEM(r, i, t);
    else Py_CLEAR(r);
  }
  Py_XDECREF(items);
  return r;
}

/* A function that the recording made; of = (code, globals, name, defaults). */
static PyObject *tree_function(PyFunctionObject *f, PyObject *leaves, int depth) {
  PyObject *defaults = f->func_defaults ? f->func_defaults : Py_None,
           *cells = f->func_closure ? f->func_closure : NULL;
  if (!mg_is_fresh((PyObject *)f) || !mg_functree_is_constant(defaults) || f->func_kwdefaults) return NULL;
  Py_ssize_t n = cells ? PyTuple_GET_SIZE(cells) : 0;
  PyObject *content = PyTuple_New(n), *of = NULL, *parts = NULL, *r = NULL;
  for (Py_ssize_t i = 0; content && i < n; i++) {
    PyObject *v = PyCell_GET(PyTuple_GET_ITEM(cells, i));
    if (v && !mg_older_fill(v)) PyTuple_SET_ITEM(content, i, Py_NewRef(v));
    else Py_CLEAR(content); /* not bound yet: the function itself, say */
  }
  if (content && (parts = tree_items(content, leaves, depth)) &&
      (of = PyTuple_Pack(4, f->func_code, f->func_globals, f->func_name, defaults)))
    r = tree_tagged("function", of, Py_NewRef(parts));
  Py_XDECREF(content);
  Py_XDECREF(parts);
  Py_XDECREF(of);
  return r;
}

/* Keys are constants. */
static PyObject *tree_values(PyObject *dict, PyObject *leaves, int depth) {
  PyObject *r = PyDict_New(), *k, *v;
  for (Py_ssize_t at = 0; r && PyDict_Next(dict, &at, &k, &v);) {
    PyObject *t = mg_functree_is_constant(k) ? tree_take(v, leaves, depth + 1) : NULL;
    if (!t || PyDict_SetItem(r, k, t)) Py_CLEAR(r);
    Py_XDECREF(t);
  }
  return r;
}

/* The attributes of an instance that is nothing but a dict; borrowed. */
static PyObject *tree_attributes(PyObject *o) {
  if (mg_solid_base(Py_TYPE(o)) != &PyBaseObject_Type) return NULL;
  const MgOlder *e = mg_older(o);
  if (e)
    return e->orig == o && (e->kind == OLDER_object || e->kind == OLDER_itself) && !e->members
               ? mg_older_dict(o)
               : NULL;
  PyObject **dict = mg_is_fresh(o) ? _PyObject_GetDictPtr(o) : NULL;
  return dict ? *dict : NULL;
}

static PyObject *tree_take(PyObject *o, PyObject *leaves, int depth) {
  if (mg_standin_check(o))
    return PyList_Append(leaves, o) ? NULL
                                    : Py_BuildValue("(snO)", "leaf", PyList_GET_SIZE(leaves) - 1, Py_None);
  if (mg_functree_is_constant(o) || tree_is_code(o)) return Py_BuildValue("(sOO)", "same", o, Py_None);
  if (PyMethod_Check(o) && tree_is_code(PyMethod_GET_FUNCTION(o)))
    return tree_tagged("method", PyMethod_GET_FUNCTION(o),
                       tree_take(PyMethod_GET_SELF(o), leaves, depth + 1));
  if (depth > MG_TUNE_TEMPLATE_DEPTH || PyObject_TypeCheck(o, mg_torch.tensor)) return NULL;
  PyObject *cls = (PyObject *)Py_TYPE(o);
  if (PyFunction_Check(o)) return tree_function((PyFunctionObject *)o, leaves, depth);
  if (PyTuple_CheckExact(o) || PyList_CheckExact(o) || PyAnySet_CheckExact(o))
    return tree_tagged("items", cls, tree_items(o, leaves, depth));
  if (PyDict_CheckExact(o) || PyODict_CheckExact(o))
    return tree_tagged("dict", cls, tree_values(o, leaves, depth));
  PyObject *attrs = tree_attributes(o);
  return attrs ? tree_tagged("object", cls, tree_values(attrs, leaves, depth)) : NULL;
}

PyObject *mg_functree_take(PyObject *o, PyObject *leaves) { return tree_take(o, leaves, 0); }
