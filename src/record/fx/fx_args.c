/* Arguments of an FX graph's nodes.
 * In: what a torch-level call was given.  Out: the same with a node for each tensor, number that runs compute
 * and symbolic size;
 * what FX cannot write as text becomes an attribute of the module or a call of its class. */
#include <string.h>
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "host/torch/literals.h"
#include "record/core/capture.h"
#include "record/core/identity.h"
#include "record/core/recording.h"
#include "record/fx/fx.h"
#include "record/fx/fx_graph.h"
#include "record/fx/fx_wrappers.h"
#include "record/symbolic/number.h"

static bool fx_has_literal(PyObject *o) {
  const char *module = Py_TYPE(o)->tp_name;
  if (o == Py_None || o == Py_Ellipsis || PyLong_Check(o) || PyFloat_Check(o) || PyComplex_Check(o) ||
      PyUnicode_Check(o) || PyRange_Check(o))
    return true;
  return !strncmp(module, "torch.", 6) && strcmp(module + 6, "_C.Generator") &&
         strcmp(module + 6, "Generator");
}

/* Classes that stand for dtypes have no literal either: the dtype, or its name (torch.HalfTensor).
 * New; NULL: another class. */
static PyObject *fx_dtype_class(PyObject *o) {
  static const struct {
    PyTypeObject *type;
    int dtype;
  } known[] = {
      {&PyFloat_Type, DT_f64}, {&PyLong_Type, DT_i64}, {&PyBool_Type, DT_bool}, {&PyComplex_Type, DT_c128}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (o == (PyObject *)known[i].type) return mg_torchobj_new_dtype(known[i].dtype);
  const char *meta = strrchr(Py_TYPE(o)->tp_name, '.');
  if (strcmp(meta ? meta + 1 : Py_TYPE(o)->tp_name, "tensortype")) return NULL;
  PyObject *module = PyObject_GetAttrString(o, "__module__"),
           *name = module ? PyObject_GetAttrString(o, "__name__") : NULL;
  PyObject *r = name ? PyUnicode_FromFormat("%U.%U", module, name) : NULL;
  Py_XDECREF(module);
  Py_XDECREF(name);
  return r;
}

bool mg_fx_wraps(const MgCapture *cap, PyObject *o) {
  return cap->wrappers && PyObject_TypeCheck(o, mg_torch.tensor) && mg_wrapper_class(Py_TYPE(o)) &&
         mg_wrapper_made(o);
}

ValRef mg_fx_val(MgCapture *cap, PyObject *o) {
  return mg_standin_is(o)      ? mg_standin_val(o)
         : mg_fx_wraps(cap, o) ? mg_wrapper_val(cap, o)
                               : mg_fxfunc_val(cap, o);
}

/* An instance that the recording has made: a frozen dataclass is a call of its class; others NULL without an
 * exception, since one made anew in every run has no place in a graph. */
static PyObject *fx_instance(MgCapture *cap, PyObject *o) {
  PyObject *fields = mg_marked_fields(o), *kw = fields ? mg_fx_kwargs(cap, fields) : NULL,
           *none = kw ? PyTuple_New(0) : NULL;
  uint32_t number = none ? mg_fx_node(cap, "call_function", (PyObject *)Py_TYPE(o), none, kw) : 0;
  Py_XDECREF(fields);
  Py_XDECREF(kw);
  Py_XDECREF(none);
  return number ? Py_NewRef(mg_fx_item(cap, number)) : NULL;
}

static bool fx_named(PyObject *o) {
  return PyTuple_Check(o) && PyObject_HasAttrString((PyObject *)Py_TYPE(o), "_fields");
}

/* Whether an argument is a named tuple or has one in its sequences. */
static bool fx_has_named(PyObject *o) {
  if (!PyTuple_Check(o) && !PyList_Check(o)) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); i++)
    if (fx_has_named(PySequence_Fast_GET_ITEM(o, i))) return true;
  return fx_named(o);
}

/* A named tuple with these items: FX writes it as such, but those in it as their repr(), whose class its code
 * does not find: then it is a call of its class.  Steals items. */
static PyObject *fx_named_tuple(MgCapture *cap, PyTypeObject *t, PyObject *items) {
  PyObject *r = NULL;
  if (!fx_has_named(items)) r = mg_new_value(t, items);
  else {
    uint32_t number = mg_fx_node(cap, "call_function", (PyObject *)t, items, NULL);
    if (number) r = Py_NewRef(mg_fx_item(cap, number));
  }
  Py_DECREF(items);
  return r;
}

PyObject *mg_fx_arg(MgCapture *cap, PyObject *o) {
  if (mg_symfloat_is(o)) return mg_fx_of_number(cap, o);
  ValRef val = mg_fx_val(cap, o);
  if (val || mg_standin_is(o) || PyErr_Occurred()) return Py_XNewRef(val ? mg_fx_of_val(cap, val) : NULL);
  PyObject *size = mg_fx_size_of(cap, o);
  if (size || PyErr_Occurred()) return size;
  if (PyObject_TypeCheck(o, mg_torch.tensor)) return mg_fx_constant(cap, o, NULL);
  if (PyTuple_Check(o) || PyList_Check(o)) {
    Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
    PyObject *copy = PyTuple_Check(o) ? PyTuple_New(n) : PyList_New(n);
    for (Py_ssize_t i = 0; copy && i < n; i++) {
      PyObject *x = mg_fx_arg(cap, PySequence_Fast_GET_ITEM(o, i));
      if (!x) Py_CLEAR(copy);
      else if (PyTuple_Check(o)) PyTuple_SET_ITEM(copy, i, x);
      else PyList_SET_ITEM(copy, i, x);
    }
    return copy && fx_named(o) ? fx_named_tuple(cap, Py_TYPE(o), copy) : copy;
  }
  if (PySlice_Check(o)) {
    PySliceObject *s = (PySliceObject *)o;
    PyObject *a = mg_fx_arg(cap, s->start), *b = a ? mg_fx_arg(cap, s->stop) : NULL,
             *c = b ? mg_fx_arg(cap, s->step) : NULL;
    PyObject *copy = c ? PySlice_New(a, b, c) : NULL;
    Py_XDECREF(a);
    Py_XDECREF(b);
    Py_XDECREF(c);
    return copy;
  }
  if (PyDict_CheckExact(o)) return mg_fx_kwargs(cap, o);
  /* numpy.float64, enumerations: the number, because their text is none that the graph's code could read */
  if (PyFloat_Check(o) && !PyFloat_CheckExact(o)) return PyFloat_FromDouble(PyFloat_AS_DOUBLE(o));
  if (PyLong_Check(o) && !PyLong_CheckExact(o) && !PyBool_Check(o))
    return PyObject_CallOneArg((PyObject *)&PyLong_Type, o);
  PyObject *dtype = PyType_Check(o) ? fx_dtype_class(o) : NULL;
  if (dtype || PyErr_Occurred()) return dtype;
  if (fx_has_literal(o)) return Py_NewRef(o);
  bool made_here = mg_map_getp(&cap->rec->ident->fresh, o) != MG_MAP_NONE && _PyObject_GetDictPtr(o);
  return made_here ? fx_instance(cap, o) : mg_fx_constant(cap, o, NULL);
}

PyObject *mg_fx_kwargs(MgCapture *cap, PyObject *kwargs) {
  PyObject *copy = PyDict_New(), *k, *v;
  Py_ssize_t pos = 0;
  while (copy && kwargs && PyDict_Next(kwargs, &pos, &k, &v)) {
    PyObject *x = mg_fx_arg(cap, v);
    if (!x || PyDict_SetItem(copy, k, x)) Py_CLEAR(copy);
    Py_XDECREF(x);
  }
  return copy;
}
