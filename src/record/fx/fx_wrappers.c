/* Tensors that wrap others, and objects with fields, in the torch-level graph. */
#include "record/fx/fx_wrappers.h"
#include <Python.h>
#include <structmember.h>
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "host/torch/flatten.h"
#include "host/torch/function_stack.h"
#include "record/core/capture.h"
#include "record/core/ops.h"
#include "record/core/recording.h"

#define PY_SSIZE_T_CLEAN

PyObject *mg_marked_fields(PyObject *o) {
  PyObject *params = _PyType_Lookup(Py_TYPE(o), mg_names.dataclass_params), *lib, *all = NULL, *kw = NULL;
  PyObject *frozen = params ? PyObject_GetAttrString(params, "frozen") : NULL, *init = NULL;
  bool plain = frozen == Py_True && (init = PyObject_GetAttrString(params, "init")) == Py_True &&
               !_PyType_Lookup(Py_TYPE(o), mg_names.post_init);
  Py_XDECREF(frozen);
  Py_XDECREF(init);
  if (!plain) return mg_clear_as_no(), NULL;
  if (!(lib = mg_import("dataclasses"))) return NULL;
  all = PyObject_CallMethod(lib, "fields", "O", Py_TYPE(o));
  kw = all ? PyDict_New() : NULL;
  for (Py_ssize_t i = 0; kw && i < PyTuple_GET_SIZE(all); i++) {
    PyObject *f = PyTuple_GET_ITEM(all, i), *name = PyObject_GetAttrString(f, "name"),
             *given = PyObject_GetAttrString(f, "init");
    PyObject *v = name && given ? mg_rec ? mg_ops.getattr(o, name) : PyObject_GetAttr(o, name) : NULL;
    bool made = given == Py_False; /* by the class: its own business */
    if (!v || made || PyDict_SetItem(kw, name, v)) Py_CLEAR(kw);
    Py_XDECREF(name);
    Py_XDECREF(given);
    Py_XDECREF(v);
  }
  Py_DECREF(lib);
  Py_XDECREF(all);
  return kw;
}

/* Dtype, sizes and strides as the program sees them. */
static ValRef fxfunc_new_val(MgCapture *cap, PyObject *o) {
  MgGraph *g = cap->rec->g;
  MgTensor *t = mg_abi_tensor(o);
  int64_t ndim = 0, *size, *stride;
  int32_t dtype = 0;
  bool known = !cap->sizes.nsrc && !mg_abi.aoti_torch_get_dim(t, &ndim) &&
               !mg_abi.aoti_torch_get_dtype(t, &dtype) && !mg_abi.aoti_torch_get_sizes(t, &size) &&
               !mg_abi.aoti_torch_get_strides(t, &stride);
  known = known && mg_dtype_size((MgDtype)dtype);
  ValRef v = mg_graph_val(g, known ? (MgDtype)dtype : DT_f32, known ? (int)ndim : 0);
  for (int i = 0; v && known && i < ndim; i++) {
    mg_val(g, v)->size[i] = mg_sym(g->x, size[i]);
    mg_val(g, v)->stride[i] = mg_sym(g->x, stride[i]);
  }
  return v;
}

ValRef mg_fxfunc_val(MgCapture *cap, PyObject *o) {
  if (!mg_standin_transformed(o)) return 0;
  uint32_t known = mg_map_getp(&cap->wrapper_val, o);
  if (known != MG_MAP_NONE) return known;
  if (!cap->transformed && !(cap->transformed = PyList_New(0))) return 0;
  ValRef v = fxfunc_new_val(cap, o);
  if (!v || mg_map_putp(&cap->wrapper_val, o, v)) return PyErr_NoMemory(), 0;
  return PyList_Append(cap->transformed, o) ? 0 : v; /* kept: its address is its name */
}

bool mg_wrapper_class(PyTypeObject *t) {
  if (t == mg_torch.tensor || t == mg_torch.parameter || t == mg_standin_type ||
      t->tp_base == mg_standin_type)
    return false;
  return PyType_IsSubtype(t, mg_torch.tensor) && _PyType_Lookup(t, mg_wrapper_flatten) &&
         _PyType_Lookup(t, wrapper_unflatten) &&
         _PyType_Lookup(t, mg_names.torch_dispatch) !=
             _PyType_Lookup(mg_torch.tensor, mg_names.torch_dispatch);
}

PyObject *mg_wrapper_dict(PyObject *o) {
  PyObject **d = _PyObject_GetDictPtr(o);
  return d ? *d : NULL;
}

static bool wrapper_is_made(PyObject *o, PyObject *v) {
  return mg_standin_is(v) || (v != o && PyObject_TypeCheck(v, mg_torch.tensor) &&
                              mg_wrapper_class(Py_TYPE(v)) && mg_wrapper_made(v));
}

bool mg_wrapper_made(PyObject *o) {
  PyObject *d = mg_wrapper_dict(o), *mro = Py_TYPE(o)->tp_mro, *k, *v;
  Py_ssize_t pos = 0;
  while (d && PyDict_Next(d, &pos, &k, &v))
    if (wrapper_is_made(o, v)) return true;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(mro); i++) { /* __slots__ */
    PyTypeObject *t = (PyTypeObject *)PyTuple_GET_ITEM(mro, i);
    for (const PyMemberDef *m = t->tp_members; m && m->name; m++)
      if (m->type == T_OBJECT_EX && (v = *(PyObject **)((char *)o + m->offset)) && wrapper_is_made(o, v))
        return true;
  }
  return false;
}

bool mg_wrapper_enter(Glue *g) {
  if (mg_rec && mg_rec->cap) mg_rec->cap->glue++;
  g->off = mg_fmodes_off();
  g->pause = mg_rec_pause();
  return g->off != NULL;
}

PyObject *mg_wrapper_leave(Glue *g, PyObject *r) {
  mg_rec_resume(g->pause);
  if (mg_rec && mg_rec->cap) mg_rec->cap->glue--;
  if (g->off && mg_context_exit(g->off)) Py_CLEAR(r);
  return r;
}

static bool wrapper_is_symbol(PyObject *o) {
  static PyTypeObject *type; /* torch.SymInt */
  if (!type) {
    PyObject *torch = mg_import("torch");
    type = torch ? (PyTypeObject *)PyObject_GetAttrString(torch, "SymInt") : NULL;
    Py_XDECREF(torch);
    mg_clear_as_no();
  }
  return Py_TYPE(o) == type;
}

PyObject *mg_wrapper_with_size(MgCapture *cap, PyObject *number, Py_ssize_t *dim) {
  PyObject *all = cap ? cap->wrappers : NULL, *found = NULL;
  if (!all || !wrapper_is_symbol(number)) return NULL;
  Glue glue;
  bool ok = mg_wrapper_enter(&glue);
  for (Py_ssize_t i = 0; ok && !found && i < PyList_GET_SIZE(all); i++) {
    PyObject *size = PyObject_CallMethod(PyList_GET_ITEM(all, i), "size", NULL);
    for (Py_ssize_t d = 0; size && !found && d < PyTuple_GET_SIZE(size); d++) {
      PyObject *s = PyTuple_GET_ITEM(size, d);
      if (!wrapper_is_symbol(s) || PyObject_RichCompareBool(s, number, Py_EQ) <= 0) continue;
      found = PyList_GET_ITEM(all, i);
      *dim = d;
    }
    Py_XDECREF(size);
  }
  mg_clear_as_no();
  mg_wrapper_leave(&glue, NULL);
  return found;
}

ValRef mg_wrapper_remember(MgCapture *cap, PyObject *o, ValRef val) {
  if (!val || mg_map_putp(&cap->wrapper_val, o, val)) return PyErr_NoMemory(), 0;
  return PyList_Append(cap->wrappers, o) ? 0 : val; /* kept: its address is its name */
}

ValRef mg_wrapper_val(MgCapture *cap, PyObject *o) {
  uint32_t known = mg_map_getp(&cap->wrapper_val, o);
  return known != MG_MAP_NONE ? known : mg_wrapper_remember(cap, o, mg_graph_val(cap->rec->g, DT_f32, 0));
}
