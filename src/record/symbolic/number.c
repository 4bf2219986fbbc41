/* The number objects: see the header.  Their arithmetic is in number_ops.c; what becomes of them in calls of
 * ATen is in number_operands.c. */
#include "record/symbolic/number.h"
#include "entry/guard/guard_add.h"
#include "entry/guard/source.h"
#include "host/python/hook_mode.h"
#include "host/torch/array_header.h"
#include "record/core/capture.h"
#include "record/core/recording.h"

MgSymTypes mg_sym_types;

/* hint is stolen, NULL for numbers that depend on tensors. */
MgSymNode *mg_symnode_new(MgCapture *cap, SrcRef src, PyObject *hint) {
  MgSymNode *n = PyObject_New(MgSymNode, &mg_symnode_type);
  if (!n) {
    Py_XDECREF(hint);
    return NULL;
  }
  char numpy = hint ? mg_guard_numpy_number(hint) : 0;
  *n = (MgSymNode){.ob_base = n->ob_base,
                   .cap = cap,
                   .src = src,
                   .hint = hint,
                   .kind = numpy                          ? numpy
                           : !hint || PyFloat_Check(hint) ? 'f'
                           : PyBool_Check(hint)           ? 'b'
                                                          : 'i'};
  if (!cap->syms && !(cap->syms = PyList_New(0))) goto fail;
  if (PyList_Append(cap->syms, (PyObject *)n)) goto fail; /* told when the recording ends */
  return n;
fail:
  Py_DECREF(n);
  return NULL;
}

MgSymNode *mg_symnode_of(PyObject *o) {
  PyTypeObject *t = Py_TYPE(o);
  if (t == &mg_symnode_type) return (MgSymNode *)o;
  if (!mg_sym_types.float_ ||
      (t != mg_sym_types.float_ && t != mg_sym_types.int_ && t != mg_sym_types.bool_ &&
       t != mg_sym_types.torch_float && t != mg_sym_types.torch_int && t != mg_sym_types.torch_bool))
    return NULL;
  PyObject **d = _PyObject_GetDictPtr(o),
           *n = d && *d ? PyDict_GetItemWithError(*d, mg_sym_types.node_name) : NULL;
  return n && Py_TYPE(n) == &mg_symnode_type ? (MgSymNode *)n : NULL;
}

bool mg_symfloat_is(PyObject *o) { return mg_symnode_of(o) != NULL; }
bool mg_symfloat_is_bool(PyObject *o) { return mg_sym_types.bool_ && Py_TYPE(o) == mg_sym_types.bool_; }

bool mg_symfloat_is_numpy(PyObject *o) {
  MgSymNode *n = mg_symnode_of(o);
  return n && n->hint && mg_guard_numpy_number(n->hint);
}

PyTypeObject *mg_symfloat_class(PyObject *o) {
  char kind = mg_symnode_of(o)->kind;
  if (mg_symfloat_is_numpy(o)) return Py_TYPE(mg_symnode_of(o)->hint);
  return kind == 'f' ? &PyFloat_Type : kind == 'i' ? &PyLong_Type : &PyBool_Type;
}

PyObject *mg_symfloat_of(MgSymNode *n) {
  PyTypeObject *t = !n               ? NULL
                    : n->kind == 'f' ? mg_sym_types.float_
                    : n->kind == 'i' ? mg_sym_types.int_
                                     : mg_sym_types.bool_;
  MgPause pause = mg_rec_pause(); /* torch's constructors are Python */
  PyObject *f = n ? PyObject_CallOneArg((PyObject *)t, (PyObject *)n) : NULL;
  mg_rec_resume(pause);
  Py_XDECREF(n);
  return f;
}

MgSymNode *mg_symnode_value(MgCapture *cap, char kind) {
  MgSymNode *n = mg_symnode_new(cap, 0, NULL);
  if (n) n->kind = kind;
  return n;
}

void mg_symnode_expect(MgCapture *cap, SrcRef src, PyObject *want) {
  MgGuards *g = cap->rec->guards;
  mg_guard_add(g, mg_source_computed(&g->src[src]) ? GK_calc : GK_equal, src, want, 0);
}
