/* Lists and deques that are older than the recording.
 * In: a list (or an instance of a class over one), or a deque, met for the first time.  Out: a copy of it,
 * whose items are wrapped as well. One that is loaded only to be appended to is lazy: its copy has what was
 * appended, and the items before it are neither wrapped nor guarded, so that the list may be a longer one in
 * each run.  Whatever else is done with it puts them there first.  A full deque drops an item for each that
 * comes: that the first one runs no code then is guarded, so only one is appended. */
#include "entry/guard/finalizer_walk.h"
#include "entry/guard/guard_add.h"
#include "entry/guard/guard_set.h"
#include "entry/guard/source.h"
#include "host/python/decode.h"
#include "host/python/hook_mode.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "record/core/identity.h"
#include "record/core/loop.h"
#include "record/core/recording.h"
#include "record/object/wrap.h"
#include "record/symbolic/dynamic_sources.h"

static bool olderlist_appended(const MgLoop *l, const MgInstr *in) {
  return in->op == BC_LOAD_METHOD && !PyUnicode_CompareWithASCIIString(CO_NAME(in->arg), "append");
}

bool mg_olderlist_lazy(PyObject *seen) {
  bool kind = PyList_CheckExact(seen) || Py_TYPE(seen) == mg_torch.deque;
  if (!kind || !mg_rec || !mg_rec->ident->nlazy) return false;
  const MgOlder *e = mg_older(seen);
  return e && e->read;
}

/* Its length is another one in each call, and is asked for. */
static bool olderlist_varies(const MgOlder *e) {
  if (!mg_dynfloat_length(e->src, e->orig)) return false;
  mg_rec_break(BK_length, "a %s whose length changes", Py_TYPE(e->orig)->tp_name);
  return true;
}

/* Wraps the items of the entry at into its copy, before those that it has. */
static int olderlist_copy(uint32_t at) {
  MgIdent *d = mg_rec->ident;
  if (olderlist_varies(&d->v[at])) return -1;
  PyObject *v = d->v[at].orig, *c = d->v[at].seen, *was = PyList_AsTuple(v),
           *tail = PyList_GetSlice(c, 0, PY_SSIZE_T_MAX);
  MgGuards *g = mg_rec->guards;
  int rc = was && tail ? PyList_SetSlice(c, 0, PY_SSIZE_T_MAX, NULL) : -1;
  if (!d->v[at].src && mg_guard_key_moves(v, NULL)) d->v[at].src = mg_source(g, SRC_pinned, 0, 0, v);
  SrcRef src = d->v[at].src;
  if (!rc && src) mg_guard_add(g, GK_length, src, (PyObject *)Py_TYPE(v), PyTuple_GET_SIZE(was));
  else if (!rc) mg_guard_pinned(g, GK_list_is, v, was);
  for (Py_ssize_t i = 0; !rc && i < PyTuple_GET_SIZE(was); i++) {
    PyObject *w = mg_wrap(PyTuple_GET_ITEM(was, i), src ? mg_source(g, SRC_item, src, (int32_t)i, NULL) : 0);
    rc = w ? PyList_Append(c, w) : -1;
    Py_XDECREF(w);
  }
  if (!rc && !PyList_CheckExact(v)) rc = mg_older_copy_attrs(at, v, c, src);
  if (!rc && !(d->v[at].pristine = PyList_AsTuple(c))) rc = -1;
  for (Py_ssize_t i = 0; !rc && i < PyList_GET_SIZE(tail); i++)
    rc = PyList_Append(c, PyList_GET_ITEM(tail, i));
  Py_XDECREF(was);
  Py_XDECREF(tail);
  return rc;
}

/* The same for a deque. */
static int olderdeque_copy(uint32_t at, PyObject *max) {
  MgIdent *d = mg_rec->ident;
  if (olderlist_varies(&d->v[at])) return -1;
  PyObject *v = d->v[at].orig, *c = d->v[at].seen, *was = PySequence_Tuple(v), *tail = PySequence_Tuple(c),
           *r;
  SrcRef src = d->v[at].src;
  int rc = was && tail && (r = PyObject_CallMethodNoArgs(c, mg_names.clear)) ? (Py_DECREF(r), 0) : -1;
  if (!rc && src) mg_guard_add(mg_rec->guards, GK_deque, src, max, Py_SIZE(v));
  else if (!rc) mg_guard_pinned(mg_rec->guards, GK_deque_is, v, was);
  for (Py_ssize_t i = 0; !rc && i < PyTuple_GET_SIZE(was); i++) {
    SrcRef of = src ? mg_source(mg_rec->guards, SRC_item, src, (int32_t)i, NULL) : 0;
    PyObject *w = mg_wrap(PyTuple_GET_ITEM(was, i), of);
    r = w ? PyObject_CallMethodOneArg(c, mg_names.append, w) : NULL;
    rc = r ? 0 : -1;
    Py_XDECREF(w);
    Py_XDECREF(r);
  }
  if (!rc && !(d->v[at].pristine = PySequence_Tuple(c))) rc = -1;
  for (Py_ssize_t i = 0; !rc && i < PyTuple_GET_SIZE(tail); i++) {
    r = PyObject_CallMethodOneArg(c, mg_names.append, PyTuple_GET_ITEM(tail, i));
    rc = r ? 0 : -1;
    Py_XDECREF(r);
  }
  Py_XDECREF(was);
  Py_XDECREF(tail);
  return rc;
}

static int olderdeque_fill(uint32_t at) {
  PyObject *max = PyObject_GetAttrString(mg_rec->ident->v[at].orig, "maxlen");
  int rc = max ? olderdeque_copy(at, max) : -1;
  Py_XDECREF(max);
  return rc;
}

static int olderlist_fill(PyObject *seen) {
  MgIdent *d = mg_rec->ident;
  MgOlder *e = mg_older(seen);
  Py_CLEAR(e->read);
  Py_CLEAR(e->pristine);
  d->nlazy--;
  d->depth++;
  uint32_t at = (uint32_t)(e - d->v);
  int rc = PyList_CheckExact(seen) ? olderlist_copy(at) : olderdeque_fill(at);
  d->depth--;
  return rc;
}

PyObject *mg_olderlist_wrap(PyObject *v, SrcRef src) {
  MgIdent *d = mg_rec->ident;
  PyObject *c = mg_new_instance(Py_TYPE(v)), *result = NULL;
  uint32_t at = d->n;
  if (!c || mg_older_add(v, c, src, OLDER_list)) goto done;
  if (PyList_CheckExact(v) && mg_older_loads_for(d->depth - 1, olderlist_appended)) {
    if (src) mg_guard_add(mg_rec->guards, GK_type, src, (PyObject *)Py_TYPE(v), 0);
    d->v[at].read = Py_NewRef(Py_None);
    d->v[at].loaded_by = mg_rec->top;
    d->nlazy++;
    if ((d->v[at].pristine = PyTuple_New(0))) result = Py_NewRef(c);
  } else if (!olderlist_copy(at)) result = Py_NewRef(c);
done:
  Py_XDECREF(c);
  return result;
}

/* Its length limit never changes, but another deque may come along the same way. */
PyObject *mg_olderdeque_wrap(PyObject *v, SrcRef src) {
  MgIdent *d = mg_rec->ident;
  MgGuards *g = mg_rec->guards;
  PyObject *max = PyObject_GetAttrString(v, "maxlen"), *result = NULL;
  PyObject *c = max ? PyObject_CallFunction((PyObject *)mg_torch.deque, "()O", max) : NULL;
  uint32_t at = d->n;
  if (!c || mg_older_add(v, c, src, OLDER_deque)) goto done;
  if (mg_older_loads_for(d->depth - 1, olderlist_appended) && !(max != Py_None && mg_finalizer_first(v))) {
    SrcRef of = src ? src : mg_source(g, SRC_pinned, 0, 0, v);
    if (src || max != Py_None) mg_guard_add(g, GK_deque, of, max, MG_DEQUE_ANY);
    d->v[at].read = Py_NewRef(Py_None);
    d->v[at].loaded_by = mg_rec->top;
    d->nlazy++;
    if ((d->v[at].pristine = PyTuple_New(0))) result = Py_NewRef(c);
  } else if (!olderdeque_copy(at, max)) result = Py_NewRef(c);
done:
  Py_XDECREF(max);
  Py_XDECREF(c);
  return result;
}

int mg_older_fill(PyObject *seen) {
  return mg_olderlist_lazy(seen) ? olderlist_fill(seen) : mg_olderdict_fill(seen);
}

int mg_older_look(PyObject *seen) {
  if (!mg_olderlist_lazy(seen)) return mg_olderdict_look(seen);
  bool one_more = PyList_CheckExact(seen) || !Py_SIZE(seen);
  return one_more && mg_older_loads_for(mg_rec->ident->depth, olderlist_appended) ? 0 : olderlist_fill(seen);
}

int mg_older_fill_others(PyObject *seen, uint32_t from) {
  for (uint32_t i = from; i < mg_rec->ident->n; i++) {
    const MgOlder *other = &mg_rec->ident->v[i];
    bool ours =
        other->read && other->loaded_by == mg_rec->top; /* frames called in between look after theirs */
    if (ours && other->seen != seen && mg_older_fill(other->seen)) return -1;
  }
  return 0;
}
