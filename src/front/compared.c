/* Older objects that are equal to themselves only, and whose equality the program asks for: elements of sets, keys of dicts, operands of
 * ==, what list.index() looks for.
 * In: what it compares.  Out: guards, that those which were different objects are different ones at every call. */
#include "front/identity.h"
#include "front/standin.h"
#include <stdlib.h>

enum {
  COMPARED_PAIRS = 200, /* objects beyond these are guarded by identity: guards would grow with the square */
  COMPARED_DEPTH = 3
};

static bool compared_by_identity(PyTypeObject *t) {
  return t->tp_hash == PyBaseObject_Type.tp_hash && t->tp_richcompare == PyBaseObject_Type.tp_richcompare;
}

static void compared_pair(const MgOlder *p, const MgOlder *q) {
  bool pa = mg_older_by_path(p), qa = mg_older_by_path(q);
  if (Py_TYPE(p->orig) != Py_TYPE(q->orig)) return;
  if (pa && qa) mg_guard_pair(mg_rec->guards, GK_distinct, p->src, q->src, 0);
  else if (pa) mg_guard_add(mg_rec->guards, GK_not, p->src, q->orig, 0);
  else if (qa) mg_guard_add(mg_rec->guards, GK_not, q->src, p->orig, 0);
}

static void compared_one(PyObject *o) {
  MgIdent *d = mg_rec->ident;
  uint32_t at = mg_map_getp(&d->by_seen, o);
  if (at == MG_MAP_NONE || d->v[at].compared) return;
  if (d->ncompared % 64 == 0) {
    uint32_t *v = mg_realloc(d->compared, sizeof *v * (d->ncompared + 64));
    if (!v) {
      mg_older_pin(o);
      return;
    }
    d->compared = v;
  }
  if (d->ncompared >= COMPARED_PAIRS) mg_older_pin(o);
  for (uint32_t i = 0; i < d->ncompared && i < COMPARED_PAIRS; i++) compared_pair(&d->v[at], &d->v[d->compared[i]]);
  d->v[at].compared = true;
  d->compared[d->ncompared++] = at;
}

void mg_compared_tensor(PyObject *standin) {
  if (mg_rec && !mg_rec->abort && mg_rec->ident && mg_rec->guards) compared_one(standin);
}

static void compared_deep(PyObject *o, int depth) {
  PyObject *k, *v;
  Py_ssize_t pos = 0;
  if (PyTuple_CheckExact(o) || PyList_CheckExact(o)) {
    for (Py_ssize_t i = 0; depth && i < PySequence_Fast_GET_SIZE(o); i++) compared_deep(PySequence_Fast_GET_ITEM(o, i), depth - 1);
  } else if (PyDict_CheckExact(o)) {
    while (depth && PyDict_Next(o, &pos, &k, &v)) {
      compared_deep(k, depth - 1);
      compared_deep(v, depth - 1);
    }
  } else if (compared_by_identity(Py_TYPE(o))) compared_one(o);
}

void mg_compared(PyObject *o) {
  if (mg_rec->ident->nobject) compared_deep(o, COMPARED_DEPTH);
}
