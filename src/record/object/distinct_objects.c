/* Older objects that are equal to themselves only, and whose equality the program asks for: elements of sets,
 * keys of dicts, operands of ==, what list.index() looks for.
 * In: what it compares.  Out: guards, that those which were different objects are
 * different ones at every call. */
#include <stdlib.h>
#include "host/python/hook_mode.h"
#include "record/core/identity.h"
#include "record/core/recording.h"
#include "record/tensor/standin.h"
#include "tuning.h"

static bool compared_by_identity(PyTypeObject *t) {
  return t->tp_hash == PyBaseObject_Type.tp_hash && t->tp_richcompare == PyBaseObject_Type.tp_richcompare;
}

static void compared_deep(PyObject *o, int depth) {
  PyObject *k, *v;
  Py_ssize_t pos = 0;
  if (PyTuple_CheckExact(o) || PyList_CheckExact(o)) {
    for (Py_ssize_t i = 0; depth && i < PySequence_Fast_GET_SIZE(o); i++)
      compared_deep(PySequence_Fast_GET_ITEM(o, i), depth - 1);
  } else if (PyDict_CheckExact(o)) {
    while (depth && PyDict_Next(o, &pos, &k, &v)) {
      compared_deep(k, depth - 1);
      compared_deep(v, depth - 1);
    }
  } else if (compared_by_identity(Py_TYPE(o))) mg_compared_one(o);
}

void mg_compared(PyObject *o) {
  if (mg_rec->ident->nobject) compared_deep(o, MG_TUNE_COMPARED_DEPTH);
}
