/* See the header. */
#include "record/core/c_functions.h"
#include <stdio.h>
#include <string.h>
#include "base/table.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"

typedef struct PolicyRow {
  const char *owner, *names;
  MgVerdict v;
} PolicyRow;

static const PolicyRow policy_rows[] = {
#define PURE(owner, names, action, older) {owner, names, {ACT_##action, older}},
#include "record/core/pure.def"
};

/* "module.Name" of a class. */
static void policy_type_name(PyTypeObject *t, char *buf, size_t n) {
  if (!(t->tp_flags & Py_TPFLAGS_HEAPTYPE)) {
    snprintf(buf, n, "%s%s", strchr(t->tp_name, '.') ? "" : "builtins.", t->tp_name);
    return;
  }
  PyObject *m = PyDict_GetItemWithError(mg_type_dict(t), mg_names.module);
  const char *s = m && PyUnicode_Check(m) ? PyUnicode_AsUTF8(m) : NULL;
  snprintf(buf, n, "%s.%s", s ? s : "?",
           strrchr(t->tp_name, '.') ? strrchr(t->tp_name, '.') + 1 : t->tp_name);
  mg_clear_shown();
}

/* The class whose method table holds def: methods are listed with the class that
 * defines them. NULL: none of t's. */
static PyTypeObject *policy_definer(PyTypeObject *t, const PyMethodDef *def) {
  PyObject *mro = t->tp_mro;
  for (Py_ssize_t i = 0; mro && i < PyTuple_GET_SIZE(mro); i++) {
    PyTypeObject *b = (PyTypeObject *)PyTuple_GET_ITEM(mro, i);
    PyObject *own = mg_type_dict(b), *d = own ? PyDict_GetItemString(own, def->ml_name) : NULL;
    if (d && (Py_TYPE(d) == &PyMethodDescr_Type || Py_TYPE(d) == &PyClassMethodDescr_Type) &&
        ((PyMethodDescrObject *)d)->d_method == def)
      return b;
  }
  return NULL;
}

/* Owner and name of a C callable as pure.def spells them, and the address that stands for all its objects. */
static bool policy_identify(PyObject *f, char *owner, size_t n, const char **name, const void **key) {
  PyTypeObject *t = Py_TYPE(f);
  if (PyCFunction_Check(f)) {
    PyCFunctionObject *c = (PyCFunctionObject *)f;
    PyObject *s = c->m_self, *m = c->m_module;
    *key = c->m_ml;
    *name = c->m_ml->ml_name;
    if (s && PyType_Check(s)) { /* a class method, or a method of its metaclass */
      PyTypeObject *b = policy_definer((PyTypeObject *)s, c->m_ml);
      if (!b) b = policy_definer(Py_TYPE(s), c->m_ml);
      policy_type_name(b ? b : (PyTypeObject *)s, owner, n);
    } else if (s && PyModule_Check(s)) snprintf(owner, n, "%s", PyModule_GetName(s));
    else if (s && strncmp(Py_TYPE(s)->tp_name, "pybind11_", 9)) {
      PyTypeObject *b = policy_definer(Py_TYPE(s), c->m_ml);
      policy_type_name(b ? b : Py_TYPE(s), owner, n);
    } else snprintf(owner, n, "%s", m && PyUnicode_Check(m) ? PyUnicode_AsUTF8(m) : "?");
    mg_clear_shown();
    return true;
  }
  PyDescrObject *d = NULL;
  if (t == &PyMethodDescr_Type || t == &PyClassMethodDescr_Type) {
    d = (PyDescrObject *)f;
    *key = ((PyMethodDescrObject *)f)->d_method;
  } else if (t == &PyWrapperDescr_Type || t == mg_method_wrapper_type()) {
    d = t == &PyWrapperDescr_Type ? (PyDescrObject *)f : (PyDescrObject *)((MethodWrapper *)f)->descr;
    *key = d; /* slot tables are shared by all classes */
  }
  if (!d) return false;
  policy_type_name(d->d_type, owner, n);
  *name = PyUnicode_AsUTF8(d->d_name);
  return *name != NULL;
}

const char *mg_policy_name(PyObject *f, char *buf, size_t n) {
  const char *name;
  const void *key;
  char owner[200];
  if (policy_identify(f, owner, sizeof owner, &name, &key)) snprintf(buf, n, "%s.%s", owner, name);
  else if (PyType_Check(f)) policy_type_name((PyTypeObject *)f, buf, n);
  else policy_type_name(Py_TYPE(f), buf, n);
  return buf;
}

const char *mg_policy_method(PyObject *f, char *buf, size_t n) {
  const char *dot = strrchr(mg_policy_name(f, buf, n), '.');
  return dot ? dot + 1 : buf;
}

static bool policy_word_matches(const char *names, const char *name) {
  size_t len = strlen(name);
  for (const char *p = names; *p;) {
    size_t n = strcspn(p, " ");
    bool prefix = n && p[n - 1] == '*';
    if (prefix ? len >= n - 1 && !strncmp(p, name, n - 1) : len == n && !strncmp(p, name, n)) return true;
    p += n + (p[n] == ' ');
  }
  return false;
}

/* Methods that CPython's exception classes define: they change the exception itself. */
static bool policy_of_exception(PyObject *f) {
  PyTypeObject *t = NULL;
  if (Py_TYPE(f) == &PyWrapperDescr_Type || Py_TYPE(f) == &PyMethodDescr_Type)
    t = ((PyDescrObject *)f)->d_type;
  else if (Py_TYPE(f) == mg_method_wrapper_type()) t = ((MethodWrapper *)f)->descr->d_common.d_type;
  else if (PyCFunction_Check(f) && mg_policy_self(f)) t = Py_TYPE(mg_policy_self(f));
  return t && PyType_IsSubtype(t, (PyTypeObject *)PyExc_BaseException);
}

static MgVerdict policy_find(const char *owner, const char *name) {
  for (size_t i = 0; i < sizeof policy_rows / sizeof *policy_rows; i++)
    if (!strcmp(policy_rows[i].owner, owner) && policy_word_matches(policy_rows[i].names, name))
      return policy_rows[i].v;
  return (MgVerdict){ACT_no, false};
}

/* Calling a class: what counts is the C code that makes the instance, that of the
 * most derived static base. */
static MgVerdict policy_of_class(PyTypeObject *t) {
  if (PyType_IsSubtype(t, mg_torch.tensor)) return (MgVerdict){ACT_tensor_class, true};
  if (PyType_IsSubtype(t, (PyTypeObject *)PyExc_BaseException)) return (MgVerdict){ACT_run, false};
  if (PyType_IsSubtype(t, &PyType_Type) && t != &PyType_Type) return (MgVerdict){ACT_run, true};
  PyTypeObject *b = t;
  char owner[200];
  for (;;) { /* a class listed itself (some C classes are heap types), else its base */
    policy_type_name(b, owner, sizeof owner);
    char *dot = strrchr(owner, '.');
    if (dot) {
      *dot = 0;
      MgVerdict v = policy_find(owner, dot + 1);
      if (v.action != ACT_no) return b == t ? v : (MgVerdict){ACT_run, v.older};
    }
    if (!(b->tp_flags & Py_TPFLAGS_HEAPTYPE) || !b->tp_base) return (MgVerdict){ACT_no, false};
    b = b->tp_base;
  }
}

/* name() of a node of PyTorch's gradient graph: each op has a class of nodes, and all
 * their methods one function. */
static bool policy_names_node(PyObject *f) {
  static PyCFunction name;
  if (!PyCFunction_Check(f) || strcmp(((PyCFunctionObject *)f)->m_ml->ml_name, "name")) return false;
  if (!name) {
    PyObject *c = mg_import("torch._C"), *m = c ? PyObject_GetAttrString(c, "_functions") : NULL;
    PyObject *t = m ? PyObject_GetAttrString(m, "AccumulateGrad") : NULL;
    PyObject *d = t ? PyObject_GetAttrString(t, "name") : NULL;
    if (d && Py_IS_TYPE(d, &PyMethodDescr_Type)) name = ((PyMethodDescrObject *)d)->d_method->ml_meth;
    Py_XDECREF(d);
    Py_XDECREF(t);
    Py_XDECREF(m);
    Py_XDECREF(c);
    mg_clear_as_no();
  }
  return name && ((PyCFunctionObject *)f)->m_ml->ml_meth == name;
}

static MgVerdict policy_ask(PyObject *f) {
  char owner[200];
  const char *name;
  const void *key;
  PyTypeObject *t = Py_TYPE(f);
  if (policy_of_exception(f)) return (MgVerdict){ACT_run, false};
  if (policy_names_node(f)) return (MgVerdict){ACT_node_name, false};
  if (policy_identify(f, owner, sizeof owner, &name, &key)) return policy_find(owner, name);
  if (PyType_Check(f)) return policy_of_class((PyTypeObject *)f);
  PyObject *call = _PyType_Lookup(t, mg_names.call);
  if (call && Py_TYPE(call) == &PyFunction_Type) return (MgVerdict){ACT_python, true};
  if (t == mg_torch.partial) return (MgVerdict){ACT_partial, true};
  if (!t->tp_call) return (MgVerdict){ACT_run, true}; /* raises TypeError */
  policy_type_name(mg_solid_base(t), owner, sizeof owner);
  return policy_find(owner, "__call__");
}

/* The class whose __new__ this is: all C classes share one method definition of that name. */
static PyTypeObject *policy_new_of(PyObject *f) {
  PyObject *s = PyCFunction_Check(f) ? ((PyCFunctionObject *)f)->m_self : NULL;
  return s && PyType_Check(s) && !strcmp(((PyCFunctionObject *)f)->m_ml->ml_name, "__new__")
             ? (PyTypeObject *)s
             : NULL;
}

MgVerdict mg_policy_of(PyObject *f) {
  static MgMap cache; /* address -> action | older << 8; filled under the GIL, never shrinks */
  PyTypeObject *t = Py_TYPE(f);
  if (t == &PyFunction_Type || t == &PyMethod_Type) return (MgVerdict){ACT_python, true};
  PyTypeObject *made = policy_new_of(f);
  if (made && made != &PyBaseObject_Type && PyType_IsSubtype(mg_torch.tensor, made))
    return (MgVerdict){ACT_tensor_new, true};
  char owner[200];
  const char *name;
  const void *key = NULL;
  if (made) key = made->tp_flags & Py_TPFLAGS_HEAPTYPE ? NULL : &made->tp_new;
  else if (PyCFunction_Check(f)) key = ((PyCFunctionObject *)f)->m_ml;
  else if (t == &PyMethodDescr_Type || t == &PyClassMethodDescr_Type || t == &PyWrapperDescr_Type ||
           t == mg_method_wrapper_type())
    policy_identify(f, owner, sizeof owner, &name, &key);
  /* Classes and other callables may die and their address be used again. */
  bool stable = key || (PyType_Check(f) && !(((PyTypeObject *)f)->tp_flags & Py_TPFLAGS_HEAPTYPE));
  if (!stable) return policy_ask(f);
  if (!key) key = f;
  uint32_t c = mg_map_getp(&cache, key);
  if (c == MG_MAP_NONE) {
    MgVerdict v = policy_ask(f);
    c = v.action | (uint32_t)v.older << 8;
    if (mg_map_putp(&cache, key, c) != MG_OK) return v;
  }
  return (MgVerdict){(uint8_t)c, c >> 8};
}
