#include "front/transient.h"
#include <stdlib.h>

void mg_transient_part(MgParted *p, const MgGuards *g) {
  enum { MOST = 1024 };
  for (uint32_t i = 0; i < g->nwatch_class && i < (uint32_t)PyList_GET_SIZE(g->watch); i++) {
    if (!g->watch_class[i] || p->n >= MOST) continue;
    if (p->n == p->cap) {
      uint32_t cap = p->cap ? 2 * p->cap : 8;
      struct MgPartedRef *v = mg_realloc(p->v, sizeof *v * cap);
      if (!v) return;
      p->v = v;
      p->cap = cap;
    }
    p->v[p->n++] = (struct MgPartedRef){Py_NewRef(PyList_GET_ITEM(g->watch, i)), g->watch_class[i]};
  }
}

void mg_transient_learn(MgMap *classes, MgParted *p) {
  for (uint32_t i = 0; i < p->n; i++)
    if (PyWeakref_GET_OBJECT(p->v[i].ref) == Py_None) (void)mg_map_putp(classes, p->v[i].class, 1); /* lost when memory runs out: a recompile */
  mg_transient_free(p);
}

void mg_transient_free(MgParted *p) {
  for (uint32_t i = 0; i < p->n; i++) Py_DECREF(p->v[i].ref);
  free(p->v);
  *p = (MgParted){0};
}

bool mg_transient_class(PyTypeObject *t) {
  const MgMap *m = mg_rec ? mg_rec->transient : NULL;
  return m && m->n && mg_map_getp(m, t) != MG_MAP_NONE;
}
