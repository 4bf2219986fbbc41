/* A holder whose only owner, a guard set, does not count for the garbage collector.
 * A hook is a function that often has the model in its defaults or cells.  Held in the ordinary way by an
 * entry, which belongs to code that lives on, it would keep the model alive for ever.  So the holder tells
 * the collector that it refers to itself as well, which accounts for the set's reference: what is alive only
 * because of it is garbage then, the weak references of the set to its modules fire, and the entry goes.
 * What the program has let go of while the model lives is garbage too, and is emptied: guards that compare
 * with it fail anyway, because its owner no longer has it.  The holder and its tuple have no
 * tp_clear and stay as they are. */
#include "host/torch/gc_holder.h"

typedef struct GuardLoose {
  PyObject_HEAD PyObject *items; /* tuple */
} GuardLoose;

static int loose_traverse(PyObject *o, visitproc visit, void *arg) {
  Py_VISIT(((GuardLoose *)o)->items);
  return visit(o, arg);
}

static void loose_dealloc(PyObject *o) {
  PyObject_GC_UnTrack(o);
  Py_XDECREF(((GuardLoose *)o)->items);
  PyObject_GC_Del(o);
}

static PyTypeObject loose_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "magneto._magneto.Held",
    .tp_doc = "What a guard set compares with.",
    .tp_basicsize = sizeof(GuardLoose),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = loose_dealloc,
    .tp_traverse = loose_traverse,
};

bool mg_guard_may_be_loose(PyObject *o) {
  PyTypeObject *t = Py_TYPE(o);
  return t == &PyFunction_Type || t == &PyCell_Type || t == &PyTuple_Type || t == &PyDict_Type ||
         t == &PyODict_Type;
}

PyObject *mg_guard_loose_new(PyObject *list) {
  PyObject *items = PyList_AsTuple(list);
  GuardLoose *l = items ? PyObject_GC_New(GuardLoose, &loose_type) : NULL;
  if (!l) {
    Py_XDECREF(items);
    return NULL;
  }
  l->items = items;
  PyObject_GC_Track(l);
  return (PyObject *)l;
}

int mg_guard_loose_init(PyObject *module) { return PyType_Ready(&loose_type); }
