/* Building functions, generators and classes that the recording made. */
#include "entry/run/snapshot_program.h"
#include "host/python/hook_mode.h"
#include "host/python/names.h"
#include "host/python/pyframe.h"
#include "host/python/pyobject.h"
#include "host/python/trace_rules.h"
#include "record/core/identity.h"
#include "record/core/recording.h"
#include "record/fx/fx_wrappers.h"
#include "record/object/fresh.h"
#include "record/object/wrap.h"
#include "record/snapshot/snapshot.h"
#include "record/snapshot/snapshot_build.h"

uint32_t mg_snap_function(MgBuilder *b, PyObject *o) {
  PyFunctionObject *f = (PyFunctionObject *)o;
  PyObject *part[7] = {f->func_closure, f->func_defaults,    f->func_kwdefaults,
                       f->func_dict,    f->func_annotations, f->func_module};
#if PY_VERSION_HEX >= 0x030E0000
  part[6] = f->func_annotate;
#endif
  if (part[3] && !PyDict_GET_SIZE(part[3])) part[3] = NULL;
  /* The template must not keep what the recording saw: only code, globals and names are taken from it. */
  PyObject *bare = PyFunction_NewWithQualName(f->func_code, f->func_globals, f->func_qualname);
  if (!bare) return SNAP_FAIL;
  Py_XSETREF(((PyFunctionObject *)bare)->func_doc, Py_XNewRef(f->func_doc));
  Py_XSETREF(((PyFunctionObject *)bare)->func_name, Py_XNewRef(f->func_name));
  uint32_t r = mg_snap_emit_over(b, SN_function, bare, 0, part, 7);
  Py_DECREF(bare);
  return r;
}

/* What a generator that has not started holds in slot i: its prologue will make the cells, and
 * take those of the closure. */
static PyObject *snap_prologue_value(PyCodeObject *co, PyObject *x, int i) {
  if (i >= co->co_nlocalsplus - co->co_nfreevars) return NULL;
  return x && PyCell_Check(x) && i < co->co_nlocalsplus ? PyCell_GET(x) : x;
}

/* One that has ended: of a function that has its code and nothing else. */
static uint32_t snap_finished_generator(MgBuilder *b, PyObject *o) {
  PyObject *co = PyObject_GetAttrString(o, "gi_code"), *none = PyDict_New();
  PyObject *func = co && none ? PyFunction_New(co, none) : NULL;
  int nfree = func ? ((PyCodeObject *)co)->co_nfreevars : 0;
  PyObject *closure = nfree ? PyTuple_New(nfree) : NULL;
  for (int i = 0; closure && i < nfree; i++) PyTuple_SET_ITEM(closure, i, PyCell_New(NULL));
  uint32_t r = SNAP_FAIL;
  if (func && !PyErr_Occurred() && !(closure && PyFunction_SetClosure(func, closure)))
    r = mg_snap_emit_over(b, SN_generator, func, 0, NULL, 0);
  Py_XDECREF(closure);
  Py_XDECREF(func);
  Py_XDECREF(none);
  Py_XDECREF(co);
  return r;
}

/* A generator: its function, where it stands, and its slots. */
uint32_t mg_snap_generator(MgBuilder *b, PyObject *o) {
  bool started;
  if (!PyGen_CheckExact(o) || !mg_is_fresh(o)) return mg_snap_refuse(o);
  if (mg_pyframe_gen_finished(o)) return snap_finished_generator(b, o);
  MgFrame *f = mg_pyframe_paused(o, &started);
  if (!f || mg_skip_opaque(mg_pyframe_code(f))) return mg_snap_refuse(o);
  PyCodeObject *co = mg_pyframe_code(f);
  int n = mg_pyframe_stacktop(f);
  PyObject **part = PyMem_New(PyObject *, n + 1);
  if (!part) return PyErr_NoMemory(), SNAP_FAIL;
  part[0] = mg_pyframe_func(f);
  for (int i = 0; i < n; i++) {
    PyObject *v = mg_pyframe_peek(f, i);
    part[i + 1] = started ? v : snap_prologue_value(co, v, i);
  }
  uint32_t r =
      mg_snap_emit_over(b, SN_generator, NULL, started ? (uint32_t)mg_pyframe_next(f) : 0, part, n + 1);
  PyMem_Free(part);
  return r;
}

/* A generator that was left in the middle of a try or with block and is no part of the result: CPython would
 * run the rest when it dies, which may have happened already. A coroutine that never began: CPython warns
 * when it dies. */
bool mg_snap_generators(MgBuilder *b) {
  PyObject *o;
  Py_ssize_t i = 0;
  while ((o = mg_fresh_generator(mg_rec->ident, &i))) {
    if (mg_map_getp(&b->memo, o) != MG_MAP_NONE) continue;
    if (mg_generator_cleans_up(o) || mg_pyframe_unawaited(o)) {
      mg_snap_refuse(o);
      return false;
    }
  }
  return true;
}

/* ---- classes ---- */

/* What making the class anew makes by itself: descriptors of its instance dict, weak references
 * and slots, and no docstring. */
static bool snap_class_implied(PyTypeObject *t, PyObject *k, PyObject *v) {
  if (v == Py_None) return PyUnicode_Check(k) && !PyUnicode_CompareWithASCIIString(k, "__doc__");
  if (Py_TYPE(v) != &PyGetSetDescr_Type && Py_TYPE(v) != &PyMemberDescr_Type) return false;
  return ((PyDescrObject *)v)->d_type == t;
}

/* Would making the class run the program's code, which has run already? */
static bool snap_class_runs_code(PyTypeObject *t) {
  if (Py_TYPE(t) != &PyType_Type && Py_TYPE(t) != Py_TYPE(mg_torch.tensor))
    return true; /* a metaclass in Python */
  PyObject *name = PyUnicode_FromString("__init_subclass__"),
           *set_name = PyUnicode_FromString("__set_name__");
  bool yes = !name || !set_name || !mg_pyframe_only_strings(mg_type_dict(t)); /* comparing its keys */
  for (Py_ssize_t i = 1; !yes && i < PyTuple_GET_SIZE(t->tp_mro); i++) {
    PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(t->tp_mro, i);
    yes = base != &PyBaseObject_Type && PyDict_Contains(mg_type_dict(base), name);
  }
  PyObject *k, *v;
  for (Py_ssize_t pos = 0; !yes && PyDict_Next(mg_type_dict(t), &pos, &k, &v);)
    yes = Py_TYPE(v)->tp_flags & Py_TPFLAGS_HEAPTYPE && _PyType_Lookup(Py_TYPE(v), set_name);
  Py_XDECREF(name);
  Py_XDECREF(set_name);
  return yes;
}

/* The namespace that its class statement left: new. */
static PyObject *snap_class_namespace(PyTypeObject *t) {
  PyObject *ns = PyDict_New(), *name = PyType_GetQualName(t), *k, *v;
  if (!ns || !name || PyDict_SetItemString(ns, "__qualname__", name)) Py_CLEAR(ns);
  for (Py_ssize_t pos = 0; ns && PyDict_Next(mg_type_dict(t), &pos, &k, &v);)
    if (!snap_class_implied(t, k, v) && PyDict_SetItem(ns, k, v)) Py_CLEAR(ns);
  Py_XDECREF(name);
  return ns;
}

uint32_t mg_snap_class(MgBuilder *b, PyObject *o) {
  PyTypeObject *t = (PyTypeObject *)o;
  if (snap_class_runs_code(t)) return mg_snap_refuse(o);
  PyObject *ns = snap_class_namespace(t), *name = ns ? PyType_GetName(t) : NULL;
  PyObject *args = name ? PyTuple_Pack(3, name, t->tp_bases, ns) : NULL;
  uint32_t r = SNAP_FAIL;
  if (args && !PyList_Append(b->keep, args)) {
    PyObject *part[2] = {(PyObject *)Py_TYPE(t), args};
    r = mg_snap_emit_over(b, SN_call, NULL, 0, part, 2);
  }
  Py_XDECREF(args);
  Py_XDECREF(name);
  Py_XDECREF(ns);
  return r;
}

/* staticmethod, classmethod, property: new arguments that make it anew, or NULL without
 * exception when it is none. */
PyObject *mg_snap_decorator_args(PyObject *o) {
  if (Py_TYPE(o) == &PyStaticMethod_Type || Py_TYPE(o) == &PyClassMethod_Type)
    return Py_BuildValue("(N)", PyObject_GetAttrString(o, "__func__"));
  if (Py_TYPE(o) != &PyProperty_Type) return NULL;
  return Py_BuildValue("(NNNN)", PyObject_GetAttrString(o, "fget"), PyObject_GetAttrString(o, "fset"),
                       PyObject_GetAttrString(o, "fdel"), PyObject_GetAttrString(o, "__doc__"));
}

PyObject *mg_snap_traceback(PyObject *tb) {
  PyObject *r = PyList_New(0);
  for (PyTracebackObject *t = (PyTracebackObject *)tb; r && t; t = t->tb_next) {
    PyObject *code = (PyObject *)PyFrame_GetCode(t->tb_frame),
             *globals = PyObject_GetAttrString((PyObject *)t->tb_frame, "f_globals");
    PyObject *name = globals && PyDict_Check(globals) ? PyDict_GetItemString(globals, "__name__") : NULL;
    PyObject *weak = globals ? PyWeakref_NewRef(code, NULL) : NULL;
    int line = PyCode_Addr2Line((PyCodeObject *)code, t->tb_lasti);
    PyObject *entry =
        weak ? Py_BuildValue("(OOii)", weak,
                             name && PyUnicode_Check(name) ? name : ((PyCodeObject *)code)->co_filename,
                             t->tb_lasti, line)
             : NULL;
    if (!entry || PyList_Append(r, entry)) Py_CLEAR(r);
    Py_XDECREF(entry);
    Py_XDECREF(weak);
    Py_XDECREF(globals);
    Py_DECREF(code);
  }
  return r;
}

bool mg_snap_size_of(MgBuilder *b, PyObject *o, uint32_t *me) {
  Py_ssize_t dim;
  PyObject *sized = mg_wrapper_with_size(mg_rec->cap, o, &dim),
           *size = sized ? PyObject_GetAttrString((PyObject *)mg_torch.tensor, "size") : NULL;
  PyObject *args = size ? Py_BuildValue("(On)", sized, dim) : NULL, *part[2] = {size, args};
  *me = args && !PyList_Append(b->keep, args) ? mg_snap_emit_over(b, SN_call, NULL, 0, part, 2) : SNAP_FAIL;
  Py_XDECREF(args);
  Py_XDECREF(size);
  return sized != NULL;
}
