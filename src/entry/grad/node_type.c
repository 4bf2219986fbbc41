/* See the header. */
#include "entry/grad/node_type.h"
#include <stdbool.h>
#include <structmember.h>
#include <string.h>

static struct {
  const char *name;
  PyObject *key; /* interned */
} nodetype_asked[] = {{"_backward_cls", NULL}, {"setup_context", NULL},
                      {"forward", NULL},       {"clear_saved_tensors_on_access", NULL},
                      {"apply", NULL},         {"boxed_grads_call", NULL}};
enum { NODETYPE_ASKED = sizeof nodetype_asked / sizeof *nodetype_asked };

/* An attribute of o: what the body of `type` has under the name, bound to self, or what a usual look finds.
 */
static PyObject *nodetype_get(PyObject *o, PyTypeObject *type, PyObject *self, const char *name) {
  for (int i = 0; i < NODETYPE_ASKED; i++) {
    if (strcmp(name, nodetype_asked[i].name) != 0) continue;
    PyObject *v = PyDict_GetItemWithError(type->tp_dict, nodetype_asked[i].key);
    if (!v && PyErr_Occurred()) return NULL;
    if (!v) break; /* a base's */
    descrgetfunc bind = Py_TYPE(v)->tp_descr_get;
    return bind ? bind(v, self, (PyObject *)type) : Py_NewRef(v);
  }
  PyObject *key = PyUnicode_FromString(name);
  PyObject *r = key ? Py_TYPE(o)->tp_getattro(o, key) : NULL;
  Py_XDECREF(key);
  return r;
}

static PyObject *nodetype_of_class(PyObject *o, char *name) {
  return nodetype_get(o, (PyTypeObject *)o, NULL, name);
}
static PyObject *nodetype_of_node(PyObject *o, char *name) { return nodetype_get(o, Py_TYPE(o), o, name); }

/* The type of the forward classes. */
static PyTypeObject nodetype_meta = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "magneto._magneto.FunctionMeta",
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_getattr = nodetype_of_class,
};

int mg_nodetype_init(void) {
  for (int i = 0; i < NODETYPE_ASKED; i++)
    if (!nodetype_asked[i].key &&
        !(nodetype_asked[i].key = PyUnicode_InternFromString(nodetype_asked[i].name)))
      return -1;
  nodetype_meta.tp_base = &PyType_Type;
  nodetype_meta.tp_getattro = PyType_Type.tp_getattro; /* not inherited beside tp_getattr */
  return PyType_Ready(&nodetype_meta);
}

static PyObject *nodetype_new(PyTypeObject *meta, const char *name, PyObject *base, PyObject *body) {
  PyObject *t = body ? PyObject_CallFunction((PyObject *)meta, "s(O)O", name, base, body) : NULL;
  Py_XDECREF(body);
  return t;
}

PyObject *mg_nodetype_forward(const char *name, PyObject *base, PyObject *body) {
  return nodetype_new(&nodetype_meta, name, base, body);
}

PyObject *mg_nodetype_backward(const char *name, PyObject *base, PyObject *body) {
  PyObject *t = nodetype_new(&PyType_Type, name, base, body);
  if (t) ((PyTypeObject *)t)->tp_getattr = nodetype_of_node;
  return t;
}

int mg_nodetype_slot(PyObject *type, const char *name, Py_ssize_t *at) {
  PyObject *d = PyObject_GetAttrString(type, name);
  if (!d) return -1;
  bool ok = Py_TYPE(d) == &PyMemberDescr_Type;
  if (ok) *at = ((PyMemberDescrObject *)d)->d_member->offset;
  else PyErr_SetString(PyExc_ImportError, "magneto: the type of gradient nodes has no C slots");
  Py_DECREF(d);
  return ok ? PyObject_DelAttrString(type, name) : -1;
}
