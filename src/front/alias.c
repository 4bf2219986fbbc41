/* Guards about memory that inputs share.  Two inputs may overlap as they please while the graph only reads them; as soon as it
 * writes to one, what the others read depends on it.
 * In: the recorded graph and its inputs.  Out: disjoint and offset guards for the pairs that matter. */
#include "front/alias.h"
#include <stdlib.h>
#include "front/guard.h"
#include "front/standin.h"

typedef struct Written {
  MgGraph *g;
  bool *storage;       /* by storage number */
  uint32_t n;
} Written;

static void alias_mark(Written *w, const MgArg *a) {
  if (a->tag == MA_val && a->u.val && w->g->val[a->u.val].storage < w->n) w->storage[w->g->val[a->u.val].storage] = true;
  if (a->tag == MA_list)
    for (uint32_t i = 0; i < a->n; i++) alias_mark(w, &a->u.item[i]);
}

/* Which storages the graph writes to; false when out of memory. */
static bool alias_find_written(Written *w) {
  for (uint32_t i = 1; i < w->g->nval; i++)
    if (w->g->val[i].storage >= w->n) w->n = w->g->val[i].storage + 1;
  w->storage = mg_calloc(w->n + 1, sizeof *w->storage);
  if (!w->storage) return false;
  for (uint32_t i = 1; i < w->g->nnode; i++) {
    const MgNode *n = &w->g->node[i];
    if (n->dead || !n->op->mutates) continue;
    for (int k = 0; k < n->narg && k < n->op->nparam; k++)
      if (n->op->param[k].writes) alias_mark(w, &n->arg[k]);
  }
  return true;
}

int mg_alias_guards(MgRec *r) {
  Written w = {.g = r->g};
  MgCapture *cap = r->cap;
  if (cap->ninput < 2) return 0;
  if (!alias_find_written(&w)) {
    PyErr_NoMemory();
    return -1;
  }
  for (uint32_t i = 0; i < cap->ninput; i++) {
    const MgCapInput *a = &cap->input[i];
    uint32_t sa = r->g->val[a->val].storage;
    bool path_a = a->src && !mg_guards_pinned(r->guards, a->src);
    for (uint32_t j = i + 1; j < cap->ninput; j++) {
      const MgCapInput *b = &cap->input[j];
      uint32_t sb = r->g->val[b->val].storage;
      if (a->scalar || b->scalar || a->outer || b->outer || (!w.storage[sa] && !w.storage[sb])) continue;
      bool path_b = b->src && !mg_guards_pinned(r->guards, b->src);
      if (!path_a && !path_b) continue; /* both are the same objects at every call */
      if (!a->src || !b->src) continue;
      if (sa != sb) mg_guard_pair(r->guards, GK_disjoint, a->src, b->src, 0);
      else mg_guard_pair(r->guards, GK_offset, a->src, b->src, mg_facts_distance(a->real, b->real));
    }
  }
  free(w.storage);
  return 0;
}
