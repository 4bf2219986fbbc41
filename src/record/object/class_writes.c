/* See the header. */
#include "record/object/class_writes.h"
#include "base/table.h"
#include "entry/guard/guard_add.h"
#include "host/python/hook_mode.h"
#include "host/python/names.h"
#include "record/core/identity.h"
#include "record/core/recording.h"
#include "record/object/finalizers.h"

/* The names written on class t: name -> value before, or the absent mark; NULL when none. Borrowed. */
static PyObject *class_writes(PyTypeObject *t) {
  PyObject *all = mg_rec->ident->classes;
  return all ? PyDict_GetItemWithError(all, (PyObject *)t) : NULL;
}

/* Remembers what the class held under this name before the first write. */
static int class_remember(PyTypeObject *t, PyObject *name) {
  MgIdent *d = mg_rec->ident;
  if (!d->classes && !(d->classes = PyDict_New())) return -1;
  PyObject *w = class_writes(t);
  if (!w) {
    if (!(w = PyDict_New())) return -1;
    int rc = PyDict_SetItem(d->classes, (PyObject *)t, w);
    Py_DECREF(w);
    if (rc) return -1;
  }
  if (PyDict_Contains(w, name)) return 0;
  PyObject *now = PyDict_GetItemWithError(mg_type_dict(t), name);
  return PyDict_SetItem(w, name, now ? now : d->absent);
}

int mg_class_set(PyTypeObject *t, PyObject *name, PyObject *v) {
  bool older = mg_rec && !mg_is_fresh((PyObject *)t) && t->tp_flags & Py_TPFLAGS_HEAPTYPE;
  if (older && mg_rec_finalizes_attr((PyObject *)t, name, PyDict_GetItemWithError(mg_type_dict(t), name)))
    return -1;
  if (older && class_remember(t, name)) return -1;
  return PyType_Type.tp_setattro((PyObject *)t, name, v);
}

bool mg_class_wrote(PyTypeObject *t, PyObject *name) {
  if (!mg_rec->ident->classes || !t->tp_mro) return false;
  bool deleted = false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(t->tp_mro); i++) {
    PyTypeObject *b = (PyTypeObject *)PyTuple_GET_ITEM(t->tp_mro, i);
    PyObject *w = class_writes(b), *own = PyDict_GetItemWithError(mg_type_dict(b), name);
    bool written = w && PyDict_Contains(w, name) == 1;
    if (own && written) return true;
    if (own && deleted) mg_guard_type_attr(mg_rec->guards, b, name, own);
    if (own) return deleted;
    deleted |= written;
  }
  return deleted;
}

bool mg_class_wrote_dict(PyObject *dict, PyObject *key) {
  PyObject *all = mg_rec->ident->classes, *t, *w;
  Py_ssize_t i = 0;
  while (all && PyDict_Next(all, &i, &t, &w))
    if (mg_type_dict((PyTypeObject *)t) == dict) return !key || PyDict_Contains(w, key) == 1;
  return false;
}

/* A class that the recording made lives until the next garbage collection: its bases do not list it. */
static void class_unlist(MgIdent *d, PyTypeObject *t) {
  PyObject *key = PyLong_FromVoidPtr(t);
  for (Py_ssize_t i = 0; key && t->tp_bases && i < PyTuple_GET_SIZE(t->tp_bases); i++) {
    PyTypeObject *b = (PyTypeObject *)PyTuple_GET_ITEM(t->tp_bases, i);
    PyObject *list = b->tp_flags & Py_TPFLAGS_HEAPTYPE && mg_map_getp(&d->fresh, b) == MG_MAP_NONE
                         ? (PyObject *)b->tp_subclasses
                         : NULL;
    if (list && PyDict_DelItem(list, key)) PyErr_Clear(); /* the class is not in the list */
  }
  Py_XDECREF(key);
}

static void classes_unlist(MgIdent *d) {
  PyObject *et, *ev, *tb;
  PyErr_Fetch(&et, &ev, &tb);
  for (Py_ssize_t i = 0; d->keep && i < PyList_GET_SIZE(d->keep); i++) {
    PyObject *o = PyList_GET_ITEM(d->keep, i);
    if (PyType_Check(o) && mg_map_getp(&d->fresh, o) != MG_MAP_NONE) class_unlist(d, (PyTypeObject *)o);
  }
  PyErr_Restore(et, ev, tb);
}

void mg_classes_undo(MgRec *r) {
  if (!r->ident) return;
  classes_unlist(r->ident);
  if (!r->ident->classes) return;
  PyObject *all = r->ident->classes, *absent = r->ident->absent, *t, *w, *name, *was, *et, *ev, *tb;
  Py_ssize_t i = 0, k;
  PyErr_Fetch(&et, &ev, &tb);
  r->ident->classes = NULL;
  while (PyDict_Next(all, &i, &t, &w))
    for (k = 0; PyDict_Next(w, &k, &name, &was);)
      if (PyType_Type.tp_setattro(t, name, was == absent ? NULL : was))
        PyErr_Clear(); /* made and deleted again */
  Py_DECREF(all);
  PyErr_Restore(et, ev, tb);
}
