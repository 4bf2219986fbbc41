/* What the recording itself made: objects, kept alive to its end so that their addresses stay theirs, and
 * generators, which must be able to die.
 * In: marks (mg_fresh).  Out: mg_is_fresh; whose end runs code of the program; the end of
 * generators and coroutines that are left suspended. */
#include "record/object/fresh.h"
#include "host/python/names.h"
#include "host/python/pyframe.h"
#include "host/python/pyobject.h"
#include "host/python/trace_rules.h"
#include "record/core/capture.h"
#include "record/core/identity.h"
#include "record/core/recording.h"
#include "record/object/wrap.h"
#include "tuning.h"

/* C code that calls a class (map, the warnings machinery) makes an object that nothing has marked: unknown so
 * far, with nothing in it. */
void mg_fresh_init(PyObject *o, PyCodeObject *co) {
  if (!o || PyUnicode_CompareWithASCIIString(co->co_name, "__init__") || mg_is_fresh(o) || mg_older(o))
    return;
  if (!(Py_TYPE(o)->tp_flags & Py_TPFLAGS_HEAPTYPE) || mg_standin_check(o) ||
      mg_solid_base(Py_TYPE(o)) != &PyBaseObject_Type)
    return;
  PyObject **dict = _PyObject_GetDictPtr(o);
  if (!dict || !*dict || !PyDict_GET_SIZE(*dict)) mg_fresh(o);
}

/* type.__new__ calls these with the class that it makes: the first that the recording sees of it.  A
 * metaclass's mro() gets it before it has anything that a class has. */
int mg_fresh_class(PyObject *const *slot, PyCodeObject *co) {
  bool named = co->co_argcount > 1 && !PyUnicode_CompareWithASCIIString(co->co_name, "__set_name__");
  PyObject *t = named ? slot[1] : co->co_argcount ? slot[0] : NULL;
  if (!t || !PyType_Check(t)) return 0;
  if (!((PyTypeObject *)t)->tp_mro) {
    mg_rec_break(BK_class_statement, "%.100s gets a class that is being made",
                 PyUnicode_AsUTF8(co->co_qualname));
    return -1;
  }
  bool inited = !PyUnicode_CompareWithASCIIString(co->co_name, "__init_subclass__");
  if ((named || inited) && !mg_is_fresh(t) && !mg_older(t)) mg_fresh(t);
  return 0;
}

/* C code calls what lies in class dicts (descriptors, instances as special methods) with the
 * original: as old as the class. */
int mg_older_self(PyObject **slot, PyCodeObject *co) {
  static const char *const names[] = {"__call__", "__get__", "__set__", "__delete__"};
  PyObject *o = slot[0];
  if (!o || Py_TYPE(o) == mg_torch.cached_property)
    return 0; /* nothing of it changes, and on 3.11 it has a lock */
  if (!(Py_TYPE(o)->tp_flags & Py_TPFLAGS_HEAPTYPE) || PyType_Check(o) || mg_is_fresh(o) || mg_older(o) ||
      mg_standin_check(o))
    return 0;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (PyUnicode_CompareWithASCIIString(co->co_name, names[i])) continue;
    PyObject *w = mg_wrap(o, 0);
    if (!w) return -1;
    Py_SETREF(slot[0], w);
  }
  return 0;
}

PyObject *mg_fresh_generator(const MgIdent *d, Py_ssize_t *i) {
  while (*i < PyList_GET_SIZE(d->gens)) {
    PyObject *o = mg_weakref_target(PyList_GET_ITEM(d->gens, (*i)++));
    if (o != Py_None) return o;
  }
  return NULL;
}

/* An older generator in a try or with block, or a C iterator (islice, map) that has one: *arg levels
 * of these are looked into. */
static int fresh_visit(PyObject *o, void *arg) {
  int left = *(int *)arg - 1;
  if (PyGen_CheckExact(o)) return !mg_is_fresh(o) && mg_generator_cleans_up(o);
  PyTypeObject *t = Py_TYPE(o);
  bool looks = left >= 0 && t->tp_traverse &&
               (PyTuple_CheckExact(o) ||
                (PyIter_Check(o) && mg_solid_base(t) == t && t->tp_flags & Py_TPFLAGS_HAVE_GC));
  return looks ? t->tp_traverse(o, fresh_visit, &left) : 0;
}

bool mg_end_runs_code(PyObject *o) {
  if (!o || mg_standin_check(o)) return false;
  return (PyIter_Check(o) && fresh_visit(o, &(int){MG_TUNE_FINALIZER_DEPTH})) || mg_has_finalizer(Py_TYPE(o));
}

void mg_generators_end(MgRec *r) {
  PyObject *gen;
  Py_ssize_t i = 0;
  while (r->ident && (gen = mg_fresh_generator(r->ident, &i))) {
    Py_INCREF(gen);
    MgFrame *f = mg_pyframe_suspended(gen);
    bool own = f && !mg_skip_opaque(mg_pyframe_code(f));
    if (own || mg_pyframe_unawaited(gen)) mg_pyframe_end_generator(gen);
    Py_DECREF(gen);
  }
}
