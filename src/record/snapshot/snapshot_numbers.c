/* Numbers that a segment changes at the places where it found them, as a counter does, and sizes of tensors
 * that it replaces, as a cache: the next call finds others. In: the writes of a recording that has ended.
 * Out: the names of such places, when its guards rely on what was there; it is recorded again, with these
 * numbers as inputs. Dicts that got a computed key are noted as well: what comes after the segment looks at
 * them. */
#include "entry/guard/automatic_dynamic.h"
#include "entry/guard/guard_add.h"
#include "entry/guard/guard_set.h"
#include "host/python/hook_mode.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "record/core/capture.h"
#include "record/core/identity.h"
#include "record/core/recording.h"
#include "record/object/lazy_constants.h"
#include "record/object/wrap.h"
#include "record/snapshot/snapshot_build.h"
#include "record/symbolic/dynamic_sources.h"
#include "record/symbolic/number.h"
#include "record/tensor/standin.h"

/* A place: of a dict or class that is a fixed object, or a source. */
typedef struct NumberPlace {
  PyObject *of, *key; /* the dict or class; NULL: found by a path */
  MgSrcKind kind;     /* by a path: what leads from parent to the number */
  SrcRef parent;
  int32_t idx;
} NumberPlace;

static bool numbers_leads(const MgGuards *g, SrcRef src, const NumberPlace *p) {
  const MgSrc *s = &g->src[src];
  return src && s->kind == p->kind && s->parent == p->parent && s->key == p->key && s->idx == p->idx;
}

/* The source of a place at which the value is guarded; 0: there is none. */
static SrcRef numbers_guarded_path(const NumberPlace *p) {
  const MgGuards *g = mg_rec->guards;
  const MgIdent *d = mg_rec->ident;
  for (uint32_t i = 0; i < g->nop; i++)
    if (g->op[i].kind == GK_equal && numbers_leads(g, g->op[i].src, p)) return g->op[i].src;
  for (uint32_t i = 0; i < d->nunread; i++)
    if (d->unread[i].read && numbers_leads(g, d->unread[i].src, p)) return d->unread[i].src;
  return 0;
}

static bool numbers_guarded_key(const NumberPlace *p, PyObject *was) {
  const MgGuards *g = mg_rec->guards;
  for (uint32_t i = 0; i < g->ndict; i++)
    for (int k = 0; g->dict[i].dict == p->of && k < g->dict[i].n; k++)
      if (g->dict[i].key[k] == p->key) return g->dict[i].val[k] == was;
  for (uint32_t i = 0; i < g->ntype; i++)
    for (int k = 0; (PyObject *)g->type[i].type == p->of && k < g->type[i].n; k++)
      if (g->type[i].name[k] == p->key) return g->type[i].val[k] == was;
  return false;
}

/* These will be known as what changes, and the segment recorded again.  Steals name. */
static void numbers_add(PyObject *name) {
  MgRec *r = mg_rec;
  bool first = name && (!r->dyn || PySet_Contains(r->dyn, name) == 0);
  if (first && (r->changed || (r->changed = PySet_New(NULL))) && !PySet_Add(r->changed, name))
    mg_retry_fail(r, RETRY_numbers);
  Py_XDECREF(name);
}

/* A tensor was found, and a tensor takes its place whose sizes are others: a cache. */
static void numbers_note_sizes(const MgOlder *was, PyObject *now) {
  MgRec *r = mg_rec;
  bool tensors = was->kind == OLDER_tensor && mg_standin_is(was->seen) && mg_standin_is(now);
  if (!tensors || !was->src || r->guards->src[was->src].kind == SRC_pinned || r->cap->sizes.off ||
      Py_TYPE(was->orig) != mg_torch.tensor || !mg_symsize_config("automatic_dynamic_shapes", true))
    return;
  const MgVal *a = mg_val(r->g, mg_standin_val(was->seen)), *b = mg_val(r->g, mg_standin_val(now));
  for (int k = 0; a->ndim == b->ndim && k < a->ndim; k++)
    if (mg_expr(r->x, a->size[k])->op == OP_const && mg_sym_hint(r->x, a->size[k]) > 0 &&
        mg_sym_hint(r->x, a->size[k]) != mg_sym_hint(r->x, b->size[k]))
      numbers_add(mg_symsize_grows_name(r->guards, was->src, k));
}

/* The number was at this place, and now is another constant. */
static void numbers_note(NumberPlace p, PyObject *was, PyObject *now) {
  MgRec *r = mg_rec;
  uint32_t at = was && now ? mg_map_getp(&r->ident->by_orig, was) : MG_MAP_NONE;
  if (at != MG_MAP_NONE) return numbers_note_sizes(&r->ident->v[at], now);
  now = now ? mg_unread_orig(now) : NULL;
  if (!was || !now || Py_TYPE(was) != Py_TYPE(now) || !(PyLong_CheckExact(was) || PyFloat_CheckExact(was)) ||
      mg_guard_same_const(was, now) || !mg_dynfloat_setting(was))
    return;
  SrcRef src = p.of ? 0 : numbers_guarded_path(&p);
  if (p.of ? !numbers_guarded_key(&p, was) : !src) return;
  numbers_add(src ? mg_dynfloat_name(r->guards, src) : mg_dynfloat_key_name(p.of, p.key));
}

static void numbers_in_classes(void) {
  PyObject *all = mg_rec->ident->classes, *t, *writes, *name, *was;
  Py_ssize_t i = 0, k;
  while (all && PyDict_Next(all, &i, &t, &writes))
    for (k = 0; !mg_is_fresh(t) && PyDict_Next(writes, &k, &name, &was);)
      numbers_note((NumberPlace){.of = t, .key = name}, was,
                   PyDict_GetItemWithError(mg_type_dict((PyTypeObject *)t), name));
}

/* now: what the recording sees of the dict `was`, or what it wrote to it.  by: the source of the dict's
 * owner, or of the dict; 0: it is a fixed object. */
static void numbers_in_dict(PyObject *was, PyObject *now, SrcRef by, bool instance) {
  const MgGuards *g = mg_rec->guards;
  PyObject *k, *v;
  Py_ssize_t pos = 0;
  SrcRef parent = by;
  for (SrcRef s = 1; by && instance && s < g->nsrc; s++)
    if (g->src[s].kind == SRC_instdict && g->src[s].parent == by) parent = s;
  while (PyDict_Next(now, &pos, &k, &v)) {
    PyObject *before = PyUnicode_CheckExact(k) ? PyDict_GetItemWithError(was, k) : NULL;
    if (before == v) continue;
    numbers_note((NumberPlace){.of = by ? NULL : was, .key = k, .kind = SRC_key, .parent = parent}, before,
                 v);
  }
}

/* A dict has got a key that each run computes: segments after this one find another one in each call. */
static void numbers_in_keys(const MgOlder *e) {
  PyObject *k, *v;
  Py_ssize_t pos = 0;
  bool computed = false;
  while (mg_rec->dyn && !computed && PyDict_Next(e->seen, &pos, &k, &v)) computed = mg_symnode_of(k) != NULL;
  PyObject *name = computed ? mg_dynfloat_keys_name(mg_rec->guards, e->src, e->orig) : NULL;
  if (computed && (!name || PySet_Add(mg_rec->dyn, name))) PyErr_Clear(); /* found out at the next call */
  Py_XDECREF(name);
}

static void numbers_in(const MgOlder *e) {
  SrcRef by = mg_older_by_path(e) ? e->src : 0;
  PyObject **d = e->attrs && e->kind != OLDER_namespace ? _PyObject_GetDictPtr(e->orig) : NULL;
  if (e->attrs && e->kind == OLDER_namespace) numbers_in_dict(e->orig, e->attrs, 0, false);
  else if (d && *d && e->kind != OLDER_instdict) numbers_in_dict(*d, e->attrs, by, true);
  if (e->kind == OLDER_dict && e->pristine && !e->read) numbers_in_dict(e->orig, e->seen, by, false);
  if (e->kind == OLDER_cell && by)
    numbers_note((NumberPlace){.kind = SRC_cell, .parent = by}, PyCell_GET(e->orig), PyCell_GET(e->seen));
  bool list = e->kind == OLDER_list && by && e->pristine && !e->read;
  Py_ssize_t n = list ? Py_MIN(Py_SIZE(e->orig), Py_SIZE(e->seen)) : 0;
  for (Py_ssize_t i = 0; i < n; i++)
    numbers_note((NumberPlace){.kind = SRC_item, .parent = by, .idx = (int32_t)i},
                 PyList_GET_ITEM(e->orig, i), PyList_GET_ITEM(e->seen, i));
}

void mg_snap_numbers(void) {
  const MgIdent *d = mg_rec->ident;
  for (uint32_t i = 0; mg_rec->number_keys && i < d->n; i++)
    if (d->v[i].kind == OLDER_dict && d->v[i].pristine && !d->v[i].read) numbers_in_keys(&d->v[i]);
  if (mg_retry_denied(mg_rec, RETRY_numbers) || mg_rec->want_fx) return;
  numbers_in_classes();
  for (uint32_t i = 0; i < d->n; i++) numbers_in(&d->v[i]);
  PyErr_Clear(); /* a name that could not be made is not noted */
}
