/* See the header.  In: modules that guards watch, and weak references to them.  Out: classes without
 * parameters whose instances have died while their entries lived.  Trained models never count as such. */
#include "entry/guard/transient_modules.h"
#include <stdlib.h>
#include "base/table.h"
#include "entry/guard/guard_set.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "tuning.h"

static const char transient_trained; /* its address stands for the class of any module with parameters */

/* Are there parameters in a module or in those inside of it?  After `budget` modules the answer is yes. */
static bool transient_owns(PyObject *module, int *budget) {
  PyObject **d = _PyObject_GetDictPtr(module), *name, *p;
  PyObject *own = d && *d ? PyDict_GetItemWithError(*d, mg_names.parameters) : NULL,
           *parts = d && *d ? PyDict_GetItemWithError(*d, mg_names.modules) : NULL;
  bool owns = --*budget < 0;
  for (Py_ssize_t i = 0; !owns && own && PyDict_CheckExact(own) && PyDict_Next(own, &i, &name, &p);)
    owns = p != Py_None;
  for (Py_ssize_t i = 0; !owns && parts && PyDict_CheckExact(parts) && PyDict_Next(parts, &i, &name, &p);)
    owns = transient_owns(p, budget);
  mg_clear_as_no();
  return owns;
}

const void *mg_transient_kind(PyObject *module) {
  int budget = MG_TUNE_TRANSIENT_TREE;
  return transient_owns(module, &budget) ? &transient_trained : (const void *)Py_TYPE(module);
}

void mg_transient_part(MgParted *p, const MgGuards *g) {
  for (uint32_t i = 0; i < g->nwatch_class && i < (uint32_t)PyList_GET_SIZE(g->watch); i++) {
    if (!g->watch_class[i] || p->n >= MG_TUNE_TRANSIENT_WATCHED) continue;
    if (p->n == p->cap && !mg_grow(&p->v, &p->cap, sizeof *p->v, 8)) return;
    p->v[p->n++] = (struct MgPartedRef){Py_NewRef(PyList_GET_ITEM(g->watch, i)), g->watch_class[i]};
  }
}

void mg_transient_learn(MgMap *classes, MgParted *p) {
  bool model = false;
  for (uint32_t i = 0; i < p->n; i++)
    model |= p->v[i].class == &transient_trained && mg_weakref_target(p->v[i].ref) == Py_None;
  for (uint32_t i = 0; i < p->n && !model; i++)
    if (mg_weakref_target(p->v[i].ref) == Py_None)
      (void)mg_map_putp(classes, p->v[i].class, 1); /* lost when memory runs out: a recompile */
  mg_transient_free(p);
}

void mg_transient_free(MgParted *p) {
  for (uint32_t i = 0; i < p->n; i++) Py_DECREF(p->v[i].ref);
  free(p->v);
  *p = (MgParted){0};
}
