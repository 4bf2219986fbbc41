/* The part of a construction program that changes objects older than the recording: content of containers,
 * attributes, keys of namespaces, classes, gradients, context variables, hooks of
 * tensors, places of iterators. */
#include <string.h>
#include "entry/guard/guard_add.h"
#include "entry/guard/guard_set.h"
#include "entry/run/snapshot_program.h"
#include "host/python/hook_mode.h"
#include "host/python/iterators.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "record/core/capture.h"
#include "record/core/identity.h"
#include "record/core/recording.h"
#include "record/object/wrap.h"
#include "record/snapshot/snapshot.h"
#include "record/snapshot/snapshot_build.h"
#include "record/tensor/leaf_grad.h"
#include "record/tensor/standin.h"
#include "record/tensor/tensor_hooks.h"

/* A container that is written to must not be the same as another one that was seen as different. */
static void snap_guard_distinct(MgOlder *w) {
  MgIdent *id = mg_rec->ident;
  if (!mg_older_by_path(w)) return;
  for (uint32_t i = 0; i < id->n; i++) {
    MgOlder *e = &id->v[i];
    if (e == w || e->kind != w->kind || Py_TYPE(e->orig) != Py_TYPE(w->orig)) continue;
    if (mg_older_by_path(e)) mg_guard_pair(mg_rec->guards, GK_distinct, w->src, e->src, 0);
    else mg_guard_add(mg_rec->guards, GK_not, w->src, e->orig, 0);
  }
}

static bool snap_same_items(PyObject *list, PyObject *tuple) {
  Py_ssize_t n = PyList_GET_SIZE(list);
  if (n != PyTuple_GET_SIZE(tuple)) return false;
  return !n || !memcmp(((PyListObject *)list)->ob_item, &PyTuple_GET_ITEM(tuple, 0),
                       sizeof(PyObject *) * (size_t)n);
}

/* Same keys in the same order with identical values? */
static bool snap_same_dict(PyObject *a, PyObject *b) {
  if (PyDict_GET_SIZE(a) != PyDict_GET_SIZE(b)) return false;
  PyObject *i = mg_dict_iter(a), *j = mg_dict_iter(b), *k = NULL, *k2 = NULL;
  bool same = i && j;
  while (same && (k = PyIter_Next(i))) {
    k2 = PyIter_Next(j);
    same = k == k2 && PyDict_GetItemWithError(a, k) == PyDict_GetItemWithError(b, k);
    Py_DECREF(k);
    Py_XDECREF(k2);
  }
  Py_XDECREF(i);
  Py_XDECREF(j);
  return same;
}

/* Writes of an overlay: what differs from before (NULL: everything in it is a
 * write).  t: of instance dicts. */
static bool snap_overlay(MgBuilder *b, uint32_t target, MgSnapOp op, PyTypeObject *t, PyObject *now,
                         PyObject *before) {
  PyObject *k, *v, *absent = mg_rec->ident->absent;
  Py_ssize_t pos = 0;
  while (PyDict_Next(now, &pos, &k, &v)) {
    if (before && PyDict_GetItemWithError(before, k) == v) continue;
    MgSnapOp how = t ? mg_snap_attr_op(t, k) : op;
    uint32_t r =
        v == absent ? mg_snap_emit(b, how, k, target, NULL, 0) : mg_snap_emit_over(b, how, k, target, &v, 1);
    if (r == SNAP_FAIL) return false;
  }
  pos = 0;
  while (before && PyDict_Next(before, &pos, &k, &v))
    if (!PyDict_Contains(now, k) &&
        mg_snap_emit(b, t ? mg_snap_attr_op(t, k) : op, k, target, NULL, 0) == SNAP_FAIL)
      return false;
  return true;
}

bool mg_snap_written(const MgOlder *e) {
  if (e->members) return true;
  if (!e->attrs) return false;
  return !e->full || !snap_same_dict(e->attrs, e->attrs0);
}

/* Has the content of a copy changed? */
static bool snap_content_changed(const MgOlder *e) {
  if (e->kind == OLDER_cell) return PyCell_GET(e->seen) != e->pristine;
  if (!e->pristine) return false;
  if (e->kind == OLDER_deque) {
    PyObject *now = PySequence_Tuple(e->seen);
    bool same = now && PyTuple_GET_SIZE(now) == PyTuple_GET_SIZE(e->pristine);
    for (Py_ssize_t i = 0; same && i < PyTuple_GET_SIZE(now); i++)
      same = PyTuple_GET_ITEM(now, i) == PyTuple_GET_ITEM(e->pristine, i);
    Py_XDECREF(now);
    return !same;
  }
  if (e->kind == OLDER_iter) {
    PyObject *now = mg_iterator_state(e->seen);
    bool same = now && mg_guard_same_const(now, e->pristine);
    Py_XDECREF(now);
    return !same;
  }
  if (e->kind == OLDER_list) return !snap_same_items(e->seen, e->pristine);
  if (e->kind == OLDER_dict) return !snap_same_dict(e->seen, e->pristine);
  return e->kind == OLDER_set && PyObject_RichCompareBool(e->seen, e->pristine, Py_EQ) != 1;
}

/* What was appended: items that were there at first are none of the segment's business. */
static bool snap_append(MgBuilder *b, const MgOlder *e, uint32_t t) {
  PyObject *items = PySequence_List(e->seen);
  if (!items || PyList_Append(b->keep, items)) return false;
  Py_DECREF(items);
  return mg_snap_emit_over(b, SN_extend, NULL, t, &items, 1) != SNAP_FAIL;
}

/* The whole new content of a container; t is the older object itself. */
static bool snap_write_content(MgBuilder *b, const MgOlder *e, uint32_t t) {
  PyObject *items, *x;
  switch ((MgOlderKind)e->kind) {
  case OLDER_cell:
    x = PyCell_GET(e->seen);
    return mg_snap_emit_over(b, SN_set_cell, NULL, t, &x, x != NULL) != SNAP_FAIL;
  case OLDER_list:
    if (mg_olderlist_lazy(e->seen)) return snap_append(b, e, t);
    return mg_snap_emit_over(b, SN_fill_list, NULL, t, ((PyListObject *)e->seen)->ob_item,
                             Py_SIZE(e->seen)) != SNAP_FAIL;
  case OLDER_dict:
    items = mg_snap_dict_items(b, e->seen);
    return items && mg_snap_emit_over(b, SN_fill_dict, NULL, t, &PyTuple_GET_ITEM(items, 0),
                                      PyTuple_GET_SIZE(items)) != SNAP_FAIL;
  case OLDER_deque:
    if (mg_olderlist_lazy(e->seen)) return snap_append(b, e, t);
    items = PySequence_Tuple(e->seen);
    if (!items || PyList_Append(b->keep, items)) return false;
    Py_DECREF(items);
    return mg_snap_emit_over(b, SN_fill_deque, NULL, t, &PyTuple_GET_ITEM(items, 0),
                             PyTuple_GET_SIZE(items)) != SNAP_FAIL;
  case OLDER_iter:
    items = mg_iterator_state(e->seen);
    if (!items || PyList_Append(b->keep, items)) return false;
    Py_DECREF(items);
    return mg_snap_emit_over(b, SN_set_iterator, NULL, t, &items, 1) != SNAP_FAIL;
  default:
    items = mg_snap_set_items(b, e->seen);
    return items && mg_snap_emit_over(b, SN_fill_set, NULL, t, &PyTuple_GET_ITEM(items, 0),
                                      PyTuple_GET_SIZE(items)) != SNAP_FAIL;
  }
}

/* Tensors and containers that were found in a fixed place, and are replaced by others: each run
 * will leave other ones there. */
static bool snap_moves(const MgOlder *e, bool content) {
  MgGuards *g = mg_rec->guards;
  PyObject *dict = e->kind == OLDER_dict || e->kind == OLDER_namespace ? e->orig : NULL, *now = e->attrs, *k,
           *v;
  Py_ssize_t pos = 0;
  bool moves = false;
  if (content && e->kind == OLDER_list && !e->src) {
    Py_ssize_t n = PyList_GET_SIZE(e->seen), was = PyTuple_GET_SIZE(e->pristine);
    for (Py_ssize_t i = 0; !moves && i < n && i < was; i++) {
      PyObject *x = PyTuple_GET_ITEM(e->pristine, i), *y = PyList_GET_ITEM(e->seen, i);
      moves = x != y && mg_guard_may_move(x, y);
    }
    return moves && mg_guard_expect_list_move(e->orig);
  }
  if (content && e->kind == OLDER_dict) now = e->seen;
  if (!dict) {
    PyObject **d = _PyObject_GetDictPtr(e->orig);
    dict = d ? *d : NULL;
  }
  if (!now || !dict || !PyDict_Check(now)) return false;
  while (PyDict_Next(now, &pos, &k, &v)) {
    PyObject *before = e->full                            ? PyDict_GetItemWithError(e->attrs0, k)
                       : content && e->kind == OLDER_dict ? PyDict_GetItemWithError(e->pristine, k)
                                                          : NULL;
    if (v != before) moves |= mg_guard_expect_move(g, dict, k, v);
  }
  return moves;
}

static bool snap_write(MgBuilder *b, uint32_t i) {
  MgOlder e = mg_rec->ident->v[i]; /* a copy: building may add entries */
  bool content = snap_content_changed(&e), overlay = e.kind != OLDER_instdict && mg_snap_written(&e);
  if (!content && !overlay) return true;
  if (snap_moves(&e, content)) mg_rec->again = true;
  snap_guard_distinct(&mg_rec->ident->v[i]);
  bool space = e.kind == OLDER_namespace;
  uint32_t t = space ? mg_snap_emit(b, SN_const, e.orig, 0, NULL, 0) : mg_snap_build(b, e.seen);
  if (t == SNAP_FAIL || (content && !snap_write_content(b, &e, t))) return false;
  if (!overlay) return true;
  if (e.attrs && !snap_overlay(b, t, space ? SN_set_key : SN_set_attr, space ? NULL : Py_TYPE(e.orig),
                               e.attrs, e.full ? e.attrs0 : NULL))
    return false;
  return !e.members || snap_overlay(b, t, SN_set_attr, NULL, e.members, NULL);
}

/* Whether an older leaf requires grad, when the recording changed that. */
static bool snap_write_switch(MgBuilder *b, uint32_t i) {
  MgOlder e = mg_rec->ident->v[i];
  MgStandInfo *info = e.kind == OLDER_tensor && mg_standin_is(e.seen) ? mg_standin_info(e.seen) : NULL;
  if (!info || !info->cap || !info->input || !info->cap->input[info->input - 1].switched) return true;
  PyObject *now = mg_facts_requires_grad(e.seen) ? Py_True : Py_False;
  uint32_t t = mg_snap_older(b, &e);
  return t != SNAP_FAIL && mg_snap_emit_over(b, SN_set_attr, mg_names.requires_grad, t, &now, 1) != SNAP_FAIL;
}

/* `.grad` of an older leaf, when the recording left another one there. */
static bool snap_write_grad(MgBuilder *b, uint32_t i) {
  MgOlder e = mg_rec->ident->v[i];
  PyObject *grad = NULL;
  if (e.kind != OLDER_tensor || !mg_standin_is(e.seen)) return true;
  int changed = mg_backward_final_grad(e.seen, &grad);
  if (changed <= 0) return !changed;
  uint32_t t = mg_snap_older(b, &e);
  bool ok = !PyList_Append(b->keep, grad) && t != SNAP_FAIL &&
            mg_snap_emit_over(b, SN_set_attr, mg_names.grad, t, &grad, 1) != SNAP_FAIL;
  Py_DECREF(grad);
  return ok;
}

/* The memory that the program gave an older tensor. */
static bool snap_write_data(MgBuilder *b, uint32_t i) {
  MgOlder e = mg_rec->ident->v[i];
  PyObject *data =
      e.kind == OLDER_tensor && mg_standin_is(e.seen) ? mg_standin_swapped(mg_rec->cap, e.seen) : NULL;
  if (!data) return true;
  uint32_t t = mg_snap_older(b, &e);
  return t != SNAP_FAIL && mg_snap_emit_over(b, SN_set_attr, mg_names.data, t, &data, 1) != SNAP_FAIL;
}

/* The writes to one class. */
static bool snap_class(MgBuilder *b, PyObject *t, PyObject *writes) {
  PyObject *name, *was;
  Py_ssize_t i = 0;
  uint32_t target = mg_snap_emit(b, SN_const, t, 0, NULL, 0);
  while (target != SNAP_FAIL && PyDict_Next(writes, &i, &name, &was)) {
    PyObject *now = PyDict_GetItemWithError(mg_type_dict((PyTypeObject *)t), name);
    if (now == was || (!now && was == mg_rec->ident->absent)) continue;
    uint32_t r = now ? mg_snap_emit_over(b, SN_set_attr, name, target, &now, 1)
                     : mg_snap_emit(b, SN_set_attr, name, target, NULL, 0);
    if (r == SNAP_FAIL) return false;
  }
  return target != SNAP_FAIL;
}

static bool snap_classes(MgBuilder *b) {
  PyObject *all = mg_rec->ident->classes, *t, *writes;
  Py_ssize_t i = 0;
  while (all && PyDict_Next(all, &i, &t, &writes))
    if (!mg_is_fresh(t) && !snap_class(b, t, writes)) return false;
  return true;
}

bool mg_snap_hooks(MgBuilder *b) {
  MgIdent *d = mg_rec->ident;
  if (mg_tensorhook_check(mg_rec)) return false;
  for (uint32_t i = 0; i < d->nhook; i++) {
    MgHook h = d->hook[i];
    enum { OWN = 2 }; /* references of the recording */
    if (h.made && Py_REFCNT(h.handle) > OWN) mg_retry_fail(mg_rec, RETRY_hooked); /* the program keeps it */
    if (h.made) continue;
    PyObject *args = PyTuple_Pack(2, h.tensor, h.hook), *self = PyTuple_Pack(1, h.handle);
    PyObject *make[2] = {h.with, args}, *take[2] = {mg_torch.handle_remove, self};
    bool ok = args && self && !PyList_Append(b->keep, args) && !PyList_Append(b->keep, self) &&
              mg_snap_memo(b, h.handle, mg_snap_emit_over(b, SN_call, NULL, 0, make, 2)) &&
              (!h.removed || mg_snap_emit_over(b, SN_call, NULL, 0, take, 2) != SNAP_FAIL);
    Py_XDECREF(args);
    Py_XDECREF(self);
    if (!ok) return false;
  }
  return true;
}

/* Context variables that now have another value than before the recording. */
static bool snap_context(MgBuilder *b) {
  PyObject *all = mg_rec->ident->vars, *var, *was, *now;
  Py_ssize_t i = 0;
  while (all && PyDict_Next(all, &i, &var, &was)) {
    if (PyContextVar_Get(var, NULL, &now)) return false;
    bool same = now == was || (!now && was == mg_rec->ident->absent);
    if (now && (PyList_Append(b->keep, now))) return false;
    Py_XDECREF(now);
    if (same) continue;
    uint32_t t = mg_snap_emit(b, SN_const, var, 0, NULL, 0);
    if (t == SNAP_FAIL || !now || mg_snap_emit_over(b, SN_set_var, NULL, t, &now, 1) == SNAP_FAIL)
      return false;
  }
  return true;
}

bool mg_snap_writes(MgBuilder *b) {
  if (!snap_classes(b) || !snap_context(b)) return false;
  for (uint32_t i = 0; i < mg_rec->ident->n; i++) /* grows while it is walked: containers met by building */
    if (!snap_write(b, i) || !snap_write_data(b, i) || !snap_write_switch(b, i) || !snap_write_grad(b, i))
      return false;
  return true;
}
