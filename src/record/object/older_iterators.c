/* See the header. */
#include "record/object/older_iterators.h"
#include <string.h>
#include "entry/guard/guard_add.h"
#include "entry/guard/guard_set.h"
#include "entry/guard/source.h"
#include "entry/launch/config.h"
#include "host/python/hook_mode.h"
#include "host/python/iterators.h"
#include "host/python/names.h"
#include "record/core/ops.h"
#include "record/core/identity.h"
#include "record/core/recording.h"
#include "record/symbolic/dynamic_sources.h"
#include "tuning.h"

/* An iterator at the same place over what the recording sees. */
static PyObject *iter_copy(PyObject *v, PyObject *over) {
  PyTypeObject *t = Py_TYPE(v);
  IterIndexed *c = NULL;
  PyObject *none, *kw, *made;
  switch (mg_iter_kind(t)) {
  case ITER_sequence:
    if (!(c = (IterIndexed *)PyType_GenericAlloc(t, 0))) return NULL;
    c->index = ((IterIndexed *)v)->index;
    c->over = Py_XNewRef(over);
    return (PyObject *)c;
  case ITER_enumerate: return PyObject_CallFunction((PyObject *)t, "On", over, ((IterIndexed *)v)->index);
  case ITER_zip:
    kw = Py_BuildValue("{sN}", "strict", PyBool_FromLong(((IterZip *)v)->strict));
    made = kw ? PyObject_Call((PyObject *)t, over, kw) : NULL;
    Py_XDECREF(kw);
    return made;
  default:
    none = PyObject_CallFunction((PyObject *)&PyRange_Type, "i", 0);
    made = none ? PyObject_GetIter(none) : NULL;
    Py_XDECREF(none);
    if (made) memcpy(((IterRange *)made)->part, ((IterRange *)v)->part, sizeof((IterRange *)v)->part);
    return made;
  }
}

/* Can C code take from this without leaving what the recording sees? */
static bool iter_is_seen(PyObject *o) {
  MgOlder *e = mg_older(o);
  return !e || e->kind == OLDER_iter || e->kind == OLDER_list ||
         (e->kind == OLDER_tuple && PyTuple_CheckExact(o));
}

static bool iter_all_seen(PyObject *v, PyObject *over) {
  if (mg_iter_kind(Py_TYPE(v)) != ITER_zip) return iter_is_seen(over);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(over); i++)
    if (!iter_is_seen(PyTuple_GET_ITEM(over, i))) return false;
  return true;
}

/* Is it known from here on, and all that it takes from? */
static bool iter_may_copy(PyObject *v, int depth) {
  IterKind kind = mg_iter_kind(Py_TYPE(v));
  PyObject *over = mg_iterator_over(v);
  if (kind == ITER_none || depth > MG_TUNE_ITERATOR_DEPTH) return false;
  if (kind == ITER_range || !over) return true;
  if (kind == ITER_sequence)
    return (PyList_CheckExact(over) || PyTuple_CheckExact(over)) &&
           Py_SIZE(over) <= MG_TUNE_ITERATOR_LENGTH; /* all of it is looked at */
  if (kind == ITER_enumerate)
    return ((IterIndexed *)v)->index < PY_SSIZE_T_MAX && iter_may_copy(over, depth + 1);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(over); i++)
    if (!iter_may_copy(PyTuple_GET_ITEM(over, i), depth + 1)) return false;
  return true;
}

/* On the value stack of a frame that was there before? */
static bool iter_of_loop(SrcRef src) {
  const MgGuards *g = mg_rec->guards;
  const MgSrc *s = &g->src[src];
  return s->kind == SRC_slot && mg_source_slot_on_stack(g, s->idx);
}

/* What comes next, borrowed, and how much is left; 0: nothing, or nobody knows. */
static Py_ssize_t iter_left(PyObject *v, PyObject **next) {
  PyTypeObject *t = Py_TYPE(v);
  PyObject *over = mg_iterator_over(v);
  Py_ssize_t at = ((IterIndexed *)v)->index;
  bool forward = t == &PyListIter_Type || t == &PyTupleIter_Type;
  *next = NULL;
  switch (mg_iter_kind(t)) {
  case ITER_sequence:
    if (!over || at < 0 || at >= Py_SIZE(over)) return 0;
    *next = PyList_Check(over) ? PyList_GET_ITEM(over, at) : PyTuple_GET_ITEM(over, at);
    return forward ? Py_SIZE(over) - at : at + 1;
  case ITER_enumerate: return iter_left(over, next);
  case ITER_zip: return PyTuple_GET_SIZE(over) ? iter_left(PyTuple_GET_ITEM(over, 0), next) : 0;
  case ITER_range: return ((IterRange *)v)->part[PY_VERSION_HEX < 0x030C0000 ? 3 : 2];
  default: return 0;
  }
}

/* Is the rest of a loop worth being tried as a whole?  Turns with modules of their own are entries of their
 * own anyway; other turns may share one, unless they are few. */
static bool iter_may_unroll(PyObject *v) {
  PyObject *next;
  Py_ssize_t left = iter_left(v, &next);
  return left > 0 && (left <= MG_TUNE_LOOP_TURNS || (next && PyObject_TypeCheck(next, mg_torch.module)));
}

bool mg_iterator_unfinished(const MgRec *r, PyObject *const *slot, int n) {
  const MgGuards *g = r->guards;
  for (uint32_t i = 0; r->unrolls && g && i < r->ident->n; i++) {
    const MgOlder *e = &r->ident->v[i];
    const MgSrc *s = &g->src[e->src];
    if (e->kind == OLDER_iter && s->kind == SRC_slot && s->idx < n && slot[s->idx] == e->seen) return true;
  }
  return false;
}

PyObject *mg_iterator_wrap(PyObject *v, SrcRef src) {
  MgGuards *g = mg_rec->guards;
  bool loop = src && iter_of_loop(src);
  if (!iter_may_copy(v, 0) || (loop && (mg_retry_denied(mg_rec, RETRY_unroll) || !iter_may_unroll(v))))
    return NULL;
  mg_rec->unrolls |= loop;
  if (!src) src = mg_source(g, SRC_pinned, 0, 0, v);
  if (!src || (!mg_rec->cfg->fullgraph && mg_dynfloat_iterators())) return NULL;
  PyObject *state = mg_iterator_state(v), *over = mg_iterator_over(v), *seen = NULL, *c = NULL;
  if (!state) return NULL;
  mg_guard_add(g, GK_type, src, (PyObject *)Py_TYPE(v), 0);
  mg_guard_add(g, GK_iterator, src, state, 0);
  if (over) seen = mg_ops.wrap(over, mg_source(g, SRC_over, src, 0, NULL));
  if (over ? seen && iter_all_seen(v, seen) : true) c = iter_copy(v, seen);
  else if (seen)
    mg_rec_break(BK_iterator, "an older %s over something that cannot be copied", Py_TYPE(v)->tp_name);
  if (c && mg_older_add(v, c, src, OLDER_iter)) Py_CLEAR(c);
  if (c) mg_rec->ident->v[mg_rec->ident->n - 1].pristine = Py_NewRef(state);
  Py_DECREF(state);
  Py_XDECREF(seen);
  return c;
}
