/* In: classes of the program, stand-ins to be cast.  Out: stand-in classes, stand-ins of them.
 * torch asks `type(x).__torch_function__` from C++; what it finds on a stand-in class is a callable of ours,
 * which shows the program its own classes and has the call recorded wherever torch makes it. */
#include "record/tensor/subclass.h"
#include <string.h>
#include "host/python/hook_mode.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "host/torch/function_stack.h"
#include "host/torch/torch_state.h"
#include "record/core/capture.h"
#include "record/core/identity.h"
#include "record/core/ops.h"
#include "record/core/recording.h"
#include "record/fx/fx.h"
#include "record/fx/fx_wrappers.h"

typedef struct SubclassFunction {  /* `__torch_function__` of a stand-in class */
  PyObject_HEAD PyTypeObject *cls; /* strong: the program's class */
  PyObject *self;                  /* strong: the stand-in it was looked up on, or NULL */
} SubclassFunction;

static PyObject *subclass_alias; /* torch.ops.aten.alias.default */
static PyTypeObject subclass_function_type;

/* ---- __torch_function__ ---- */

static PyObject *subclass_function_new(PyTypeObject *cls, PyObject *self) {
  SubclassFunction *f = PyObject_New(SubclassFunction, &subclass_function_type);
  if (!f) return NULL;
  f->cls = (PyTypeObject *)Py_NewRef(cls);
  f->self = Py_XNewRef(self);
  return (PyObject *)f;
}

static void subclass_function_dealloc(PyObject *o) {
  Py_XDECREF(((SubclassFunction *)o)->cls);
  Py_XDECREF(((SubclassFunction *)o)->self);
  PyObject_Free(o);
}

static PyObject *subclass_function_get(PyObject *o, PyObject *self, PyObject *type) {
  return self ? subclass_function_new(((SubclassFunction *)o)->cls, self) : Py_NewRef(o);
}

/* The types of a call as the program knows them.  New. */
static PyObject *subclass_types(PyObject *types) {
  PyObject *fast = PySequence_Tuple(types), *t = fast ? PyTuple_New(PyTuple_GET_SIZE(fast)) : NULL;
  for (Py_ssize_t i = 0; t && i < PyTuple_GET_SIZE(t); i++) {
    PyObject *x = PyTuple_GET_ITEM(fast, i);
    PyTuple_SET_ITEM(t, i, Py_NewRef(PyType_Check(x) ? (PyObject *)mg_subclass_of((PyTypeObject *)x) : x));
  }
  Py_XDECREF(fast);
  return t;
}

/* What the glue of the recorder itself asks a tensor is none of the program's business. */
static PyObject *subclass_plain(PyObject *args) {
  PyObject *off = mg_fmodes_off(), *r = NULL,
           *kw = PyTuple_GET_SIZE(args) > 3 ? PyTuple_GET_ITEM(args, 3) : NULL;
  if (off)
    r = PyObject_Call(PyTuple_GET_ITEM(args, 0), PyTuple_GET_ITEM(args, 2),
                      kw && PyDict_Check(kw) ? kw : NULL);
  if (off && mg_context_exit(off)) Py_CLEAR(r);
  return r;
}

/* cls.__torch_function__(func, types, args, kwargs), recorded like any other call of the program. */
static PyObject *subclass_ask(SubclassFunction *f, PyObject *args, PyObject *kwargs) {
  PyObject *d = mg_ops.lookup_special(f->cls, mg_names.torch_function);
  descrgetfunc get = d ? Py_TYPE(d)->tp_descr_get : NULL;
  PyObject *bound = get ? get(d, f->self, (PyObject *)f->cls) : Py_XNewRef(d);
  PyObject *types = bound ? subclass_types(PyTuple_GET_ITEM(args, 1)) : NULL, *r = NULL;
  Py_ssize_t n = PyTuple_GET_SIZE(args);
  if (types && n <= 4 && !(kwargs && PyDict_GET_SIZE(kwargs))) {
    PyObject *arg[4];
    for (Py_ssize_t i = 0; i < n; i++) arg[i] = i == 1 ? types : PyTuple_GET_ITEM(args, i);
    for (Py_ssize_t i = 2; i < n; i++) mg_fresh(arg[i]); /* torch packed them for this call */
    r = mg_ops.call(bound, arg, (size_t)n, NULL);
  } else if (types)
    PyErr_SetString(PyExc_TypeError,
                    "__torch_function__ takes a function, types, arguments and keyword arguments");
  Py_XDECREF(types);
  Py_XDECREF(bound);
  return r;
}

static PyObject *subclass_function_call(PyObject *o, PyObject *args, PyObject *kwargs) {
  SubclassFunction *f = (SubclassFunction *)o;
  MgStandInfo *info = f->self && mg_standin_is(f->self) ? mg_standin_info(f->self) : NULL;
  MgCapture *cap = info ? info->cap : NULL;
  if (PyTuple_GET_SIZE(args) < 3)
    return PyErr_Format(PyExc_TypeError, "__torch_function__ takes at least 3 arguments");
  if (!cap || cap->quiet || cap->inside || cap->rec->abort) return subclass_plain(args);
  MgPause pause = mg_rec_pause(); /* torch's own Python may be what calls */
  mg_rec = cap->rec;
  mg_hook_mode = HOOK_record;
  PyObject *r = subclass_ask(f, args, kwargs);
  mg_rec_resume(pause);
  return r;
}

static PyTypeObject subclass_function_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "magneto._magneto.SubclassFunction",
    .tp_basicsize = sizeof(SubclassFunction),
    .tp_dealloc = subclass_function_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_call = subclass_function_call,
    .tp_descr_get = subclass_function_get,
};

int mg_subclass_init(void) {
  static const char *const path[] = {"ops", "aten", "alias", "default"};
  PyObject *o = mg_import("torch");
  for (int i = 0; o && i < 4; i++) Py_SETREF(o, PyObject_GetAttrString(o, path[i]));
  subclass_alias = o;
  return o ? PyType_Ready(&subclass_function_type) : -1;
}

/* ---- classes ---- */

static bool subclass_own(PyTypeObject *c, PyTypeObject *than, const char *name) {
  PyObject *text = PyUnicode_InternFromString(name);
  bool own = !text || _PyType_Lookup(c, text) != _PyType_Lookup(than, text);
  Py_XDECREF(text);
  mg_clear_as_no();
  return own;
}

bool mg_subclass_known(PyTypeObject *c) {
  if (c == mg_torch.tensor || c == mg_torch.parameter) return true;
  if (!(c->tp_flags & Py_TPFLAGS_HEAPTYPE) || !PyType_IsSubtype(c, mg_torch.tensor) ||
      c->tp_basicsize != mg_torch.tensor->tp_basicsize)
    return false;
  /* cls_to_become: parameters without a shape yet */
  return !subclass_own(c, mg_torch.tensor, "__torch_dispatch__") &&
         !subclass_own(c, mg_torch.tensor, "cls_to_become") &&
         !subclass_own(c, &PyBaseObject_Type, "__init_subclass__");
}

static PyObject *subclass_dict(PyTypeObject *c) {
  PyObject *d = Py_BuildValue("{s:(),s:s}", "__slots__", "__module__", "magneto._magneto"),
           *fn = _PyType_Lookup(c, mg_names.torch_function);
  if (!d || !fn || fn == mg_torch.no_function) return d; /* that of a stand-in is disabled, too */
  PyObject *ours = subclass_function_new(c, NULL);
  if (!ours || PyDict_SetItem(d, mg_names.torch_function, ours)) Py_CLEAR(d);
  Py_XDECREF(ours);
  return d;
}

static PyObject *subclass_make(PyTypeObject *c) {
  const char *dot = strrchr(c->tp_name, '.'),
             *name = dot ? dot + 1 : c->tp_name; /* messages of C code show it */
  PyObject *dict = subclass_dict(c),
           *args = dict ? Py_BuildValue("(s(OO)O)", name, c, mg_standin_type, dict) : NULL;
  PyObject *t =
      args ? PyType_Type.tp_new(Py_TYPE(c), args, NULL) : NULL; /* a metaclass in Python is not asked */
  if (t && Py_TYPE(mg_torch.tensor)->tp_init(t, args, NULL)) Py_CLEAR(t);
  Py_XDECREF(args);
  Py_XDECREF(dict);
  if (t && ((PyTypeObject *)t)->tp_base != mg_standin_type) {
    Py_DECREF(t);
    return mg_rec_break(BK_tensor_class, "a %s", c->tp_name);
  }
  if (t && !subclass_own(c, mg_torch.tensor, "__hash__"))
    ((PyTypeObject *)t)->tp_hash = mg_standin_type->tp_hash;
  return t;
}

PyTypeObject *mg_subclass_type(MgCapture *cap, PyTypeObject *c) {
  if (c == mg_torch.tensor || c == mg_torch.parameter) return mg_standin_type;
  if (!mg_subclass_known(c)) return mg_rec_break(BK_tensor_class, "a %s", c->tp_name), NULL;
  if (!cap->classes && !(cap->classes = PyDict_New())) return NULL;
  PyObject *t = PyDict_GetItemWithError(cap->classes, (PyObject *)c);
  if (t || PyErr_Occurred() || !(t = subclass_make(c))) return (PyTypeObject *)t;
  int rc = PyDict_SetItem(cap->classes, (PyObject *)c, t);
  Py_DECREF(t);
  return rc ? NULL : (PyTypeObject *)t;
}

bool mg_subclass_among(const MgCapture *cap, PyObject *types) {
  enum { ENABLED = 0 };
  if (mg_state_function(-1) != ENABLED) return false;
  for (Py_ssize_t i = 0; PyTuple_Check(types) && i < PyTuple_GET_SIZE(types); i++) {
    PyTypeObject *t = (PyTypeObject *)PyTuple_GET_ITEM(types, i);
    if (!PyType_Check(t) || _PyType_Lookup(t, mg_names.torch_function) == mg_torch.no_function)
      continue; /* getters name every class */
    if (t->tp_base == mg_standin_type || (cap->wrappers && mg_wrapper_class(t))) return true;
  }
  return false;
}

/* ---- casts ---- */

PyObject *mg_subclass_cast(PyObject *x, PyTypeObject *c, bool detach) {
  MgCapture *cap = mg_standin_info(x)->cap;
  PyTypeObject *type = cap ? mg_subclass_type(cap, c) : NULL;
  ValRef was = mg_standin_val(x);
  bool shown = detach && cap &&
               cap->rec->want_fx; /* the torch-level graph has an alias by the name of what it is made of */
  if (shown && mg_fmodes_depth() > 1) mg_fx_use_aten(cap);
  PyObject *off = !type ? NULL : shown ? mg_fmodes_only() : mg_fmodes_off(), *r = NULL;
  if (!off) return NULL;
  cap->next_type = type;
  r = detach ? PyObject_CallMethod(x, "detach", NULL) : PyObject_CallOneArg(subclass_alias, x);
  cap->next_type = NULL;
  if (mg_context_exit(off)) Py_CLEAR(r);
  if (r && !mg_standin_is(r)) {
    Py_DECREF(r);
    return mg_rec_break(BK_functorch, "a %s of a tensor inside of a transform", c->tp_name);
  }
  if (!r) return NULL;
  mg_standin_info(r)->is_param = c == mg_torch.parameter;
  if (!shown && cap->rec->want_fx && mg_fx_same(cap, mg_standin_val(r), was)) Py_CLEAR(r);
  return r;
}
