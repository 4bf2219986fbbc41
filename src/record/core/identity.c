/* See the header. */
#include "record/core/identity.h"
#include "entry/guard/guard_add.h"
#include "entry/guard/guard_set.h"
#include "entry/guard/source.h"
#include "host/python/hook_mode.h"
#include "record/core/recording.h"

static int ident_add_generator(MgIdent *d, PyObject *o) {
  PyObject *ref = PyWeakref_NewRef(o, NULL);
  int rc = ref ? PyList_Append(d->gens, ref) : -1;
  Py_XDECREF(ref);
  return rc;
}

void mg_fresh(PyObject *o) {
  if (!mg_rec || !o) return;
  MgIdent *d = mg_rec->ident;
  if ((PyGen_Check(o) || PyCoro_CheckExact(o)) && ident_add_generator(d, o)) {
    PyErr_Clear(); /* guards->failed says it */
    mg_rec->guards->failed = true;
    return;
  }
  if (PyGen_Check(o)) {
    /* Not kept alive: when the program drops it, it is closed, and its finally clauses run. */
    if (mg_map_putp(&d->fresh_gen, o, 1) != MG_OK) mg_rec->guards->failed = true;
    return;
  }
  if (mg_map_getp(&d->fresh, o) != MG_MAP_NONE) return;
  if (PyList_Append(d->keep, o) || mg_map_putp(&d->fresh, o, 1) != MG_OK) {
    PyErr_Clear();                 /* guards->failed says it */
    mg_rec->guards->failed = true; /* the recording is given up when it is sealed */
  }
}

bool mg_is_fresh(PyObject *o) {
  if (!mg_rec) return false;
  MgIdent *d = mg_rec->ident;
  return mg_map_getp(PyGen_Check(o) ? &d->fresh_gen : &d->fresh, o) != MG_MAP_NONE;
}

/* ---- lookup ---- */

MgOlder *mg_older(PyObject *seen) {
  if (!mg_rec) return NULL;
  MgIdent *d = mg_rec->ident;
  uint32_t i = mg_map_getp(&d->by_seen, seen);
  return i == MG_MAP_NONE ? NULL : &d->v[i];
}

PyObject *mg_older_orig(PyObject *seen) {
  MgOlder *e = mg_older(seen);
  return e ? e->orig : seen;
}

int mg_older_add(PyObject *orig, PyObject *seen, SrcRef src, MgOlderKind kind) {
  MgIdent *d = mg_rec->ident;
  if (d->n == d->cap && !mg_grow(&d->v, &d->cap, sizeof *d->v, 64)) {
    PyErr_NoMemory();
    return -1;
  }
  if (mg_map_putp(&d->by_orig, orig, d->n) != MG_OK || mg_map_putp(&d->by_seen, seen, d->n) != MG_OK) {
    PyErr_NoMemory();
    return -1;
  }
  d->v[d->n++] =
      (MgOlder){.orig = Py_NewRef(orig), .seen = Py_NewRef(seen), .src = src, .kind = (uint8_t)kind};
  return 0;
}

SrcRef mg_src_slot(int slot) { return mg_source(mg_rec->guards, SRC_slot, 0, slot, NULL); }

SrcRef mg_src_closure(int i) {
  MgGuards *g = mg_rec->guards;
  return mg_source(g, SRC_closure, mg_source(g, SRC_func, 0, 0, NULL), i, NULL);
}

void mg_older_pin(PyObject *o) {
  MgOlder *e = mg_older(o);
  if (e && mg_older_by_path(e)) mg_guard_add(mg_rec->guards, GK_is, e->src, e->orig, 0);
}

MgGuards *mg_ident_guards(void) { return mg_rec->guards; }

/* A known object was met again along another way: the two ways must lead to one object at every call. */
void mg_older_alias(const MgOlder *e, SrcRef src) {
  MgGuards *g = mg_ident_guards();
  if (e->src == src) return;
  if (!e->src || (e->src && g->src[e->src].kind == SRC_pinned)) {
    if (src) mg_guard_add(g, GK_is, src, e->orig, 0);
  } else if (!src || g->src[src].kind == SRC_pinned) mg_guard_add(g, GK_is, e->src, e->orig, 0);
  else mg_guard_pair(g, GK_same, src, e->src, 0);
}

/* ---- attributes of older instances ---- */

bool mg_older_by_path(const MgOlder *e) {
  bool identical =
      e->kind == OLDER_itself || e->kind == OLDER_namespace; /* guarded by identity wherever it came from */
  return e->src && !identical && mg_ident_guards()->src[e->src].kind != SRC_pinned;
}
