/* The C half of magneto/_backends/fx_meta.py: gives it the frames of a recording, the facts of graph values
 * and the locals of the outermost frame.  In: the nodes of an FX graph.  Out: their names and meta dicts. */
#include "record/fx/fx_meta.h"
#include "entry/guard/guard_set.h"
#include "host/python/glue.h"
#include "host/python/pyobject.h"
#include "host/torch/literals.h"
#include "ir/graph/graph.h"
#include "record/core/identity.h"
#include "record/core/recording.h"

static PyObject *fxmeta_function(const char *name) {
  PyObject *m = mg_glue(GLUE_fx_meta), *f = m ? PyObject_GetAttrString(m, name) : NULL;
  Py_XDECREF(m);
  return f;
}

PyObject *mg_fxmeta_frames(MgRec *r) {
  static PyObject *frames; /* strong, process lifetime */
  if (!r->ident || !r->ident->func) Py_RETURN_NONE;
  if (!frames && !(frames = fxmeta_function("frames"))) return NULL;
  return PyObject_CallOneArg(frames, PyFunction_GET_CODE(r->ident->func));
}

static PyObject *fxmeta_sizes(const MgRec *r, const SymRef *s, int n) {
  PyObject *t = PyTuple_New(n);
  for (int i = 0; t && i < n; i++) {
    PyObject *o = PyLong_FromLongLong(mg_sym_hint(r->x, s[i]));
    if (!o) Py_CLEAR(t);
    else PyTuple_SET_ITEM(t, i, o);
  }
  return t;
}

/* (size, stride, dtype, device, requires_grad) of a graph value, or None.  New. */
static PyObject *fxmeta_facts(const MgRec *r, PyObject *val) {
  if (!PyLong_CheckExact(val)) Py_RETURN_NONE; /* no tensor */
  const MgVal *v = mg_val(r->g, (ValRef)PyLong_AsUnsignedLong(val));
  PyObject *size = fxmeta_sizes(r, v->size, v->ndim), *stride = fxmeta_sizes(r, v->stride, v->ndim),
           *t = NULL;
  PyObject *dtype = mg_torchobj_new_dtype(v->dtype),
           *device = mg_torchobj_new_device(v->device, v->dev_index);
  if (size && stride && dtype && device)
    t = PyTuple_Pack(5, size, stride, dtype, device, v->requires_grad ? Py_True : Py_False);
  Py_XDECREF(size);
  Py_XDECREF(stride);
  Py_XDECREF(dtype);
  Py_XDECREF(device);
  return t;
}

/* The locals of the outermost frame by name, with what cells hold. */
static PyObject *fxmeta_locals(const MgRec *r) {
  PyCodeObject *co = (PyCodeObject *)PyFunction_GET_CODE(r->ident->func);
  PyObject *d = PyDict_New();
  for (int i = 0; d && r->slots && i < r->slots->n && i < co->co_nlocalsplus; i++) {
    PyObject *v = r->slots->slot[i];
    if (v && PyCell_Check(v)) v = PyCell_GET(v);
    if (v && PyDict_SetItem(d, PyTuple_GET_ITEM(co->co_localsplusnames, i), v)) Py_CLEAR(d);
  }
  return d;
}

int mg_fxmeta_finish(MgRec *r, PyObject *nodes, PyObject *val, PyObject *where, PyObject *inputs) {
  Py_ssize_t n = PyList_GET_SIZE(val);
  PyObject *facts = PyList_New(n), *local = fxmeta_locals(r), *f = fxmeta_function("finish"), *res = NULL;
  for (Py_ssize_t i = 0; facts && i < n; i++) {
    PyObject *o = fxmeta_facts(r, PyList_GET_ITEM(val, i));
    if (!o) Py_CLEAR(facts);
    else PyList_SET_ITEM(facts, i, o);
  }
  if (facts && local && f)
    res = PyObject_CallFunctionObjArgs(f, nodes, facts, where, r->ident->func, local, inputs, NULL);
  Py_XDECREF(facts);
  Py_XDECREF(local);
  Py_XDECREF(f);
  Py_XDECREF(res);
  return res ? 0 : -1;
}
