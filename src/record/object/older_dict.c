/* Dicts that are older than the recording.
 * In: a dict (or an instance of a class over one) met for the first time.  Out: a copy of it, whose content
 * is wrapped as well.
 * One that is loaded only to be asked for a key (d["a"], "a" in d, d.get("a")) is lazy: its copy stays empty,
 * and only the keys that were asked for are wrapped and guarded, so that the others may come, go and change.
 * Whatever else is done with it fills the copy first; so nobody sees an empty one. */
#include "entry/guard/guard_add.h"
#include "entry/guard/guard_set.h"
#include "entry/guard/source.h"
#include "host/python/decode.h"
#include "host/python/hook_mode.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "results.h"
#include "record/core/identity.h"
#include "record/core/loop.h"
#include "record/core/recording.h"
#include "record/object/finalizers.h"
#include "record/object/lazy_constants.h"
#include "record/object/wrap.h"
#include "record/symbolic/dynamic_sources.h"
#include "record/symbolic/number_index.h"
#include "record/symbolic/number_ops.h"

/* defaultdict: the factory is an object like any other. */
static int olderdict_copy_factory(PyObject *v, PyObject *c, SrcRef src) {
  PyObject *descr = PyDict_GetItemString(mg_type_dict(mg_torch.defaultdict), "default_factory");
  PyObject *f = descr ? PyObject_GetAttrString(v, "default_factory") : NULL, *w = NULL, *a = NULL;
  if (f && !src) mg_guard_member(mg_rec->guards, v, descr, f);
  if (f) w = mg_wrap(f, src ? mg_source(mg_rec->guards, SRC_member, src, 0, descr) : 0);
  if (w) a = PyTuple_Pack(1, w);
  int rc = a ? mg_torch.defaultdict->tp_init(c, a, NULL) : -1;
  Py_XDECREF(f);
  Py_XDECREF(w);
  Py_XDECREF(a);
  return rc;
}

/* The keys in order, whatever the class says about iteration. */
static PyObject *olderdict_keys(PyObject *dict) {
  PyObject *it = mg_dict_iter(dict), *keys = it ? PySequence_Tuple(it) : NULL;
  Py_XDECREF(it);
  return keys;
}

static PyObject *olderdict_plain_copy(PyObject *dict) {
  PyObject *c = PyODict_Check(dict) ? PyODict_New() : PyDict_New(), *it = c ? mg_dict_iter(dict) : NULL, *k;
  int rc = it ? 0 : -1;
  while (!rc && (k = PyIter_Next(it))) {
    PyObject *x = PyDict_GetItemWithError(dict, k);
    rc = x ? mg_dict_put(c, k, x) : -1;
    Py_DECREF(k);
  }
  Py_XDECREF(it);
  if (rc || PyErr_Occurred()) Py_CLEAR(c);
  return c;
}

/* A key that is found without code of the program. */
static bool olderdict_plain(PyObject *k) {
  return PyUnicode_CheckExact(k) || PyLong_CheckExact(k) || PyBool_Check(k) || k == Py_None ||
         Py_TYPE(k) == &PyType_Type || PyFunction_Check(k) || PyCFunction_CheckExact(k);
}

static bool olderdict_plain_keys(PyObject *keys) {
  Py_ssize_t i = 0, n = PyTuple_GET_SIZE(keys);
  while (i < n && olderdict_plain(PyTuple_GET_ITEM(keys, i))) i++;
  return i == n;
}

bool mg_older_loads_for(int around, bool (*next)(const MgLoop *l, const MgInstr *in)) {
  const MgLoop *l = mg_rec->top;
  if (mg_rec->ident->of_cell == around + 1) return true;
  if (around || !l) return false;
  int now = l->in->op;
  bool loads = now == BC_LOAD_FAST || now == BC_LOAD_GLOBAL || now == BC_LOAD_DEREF || now == BC_LOAD_ATTR ||
               now == BC_BINARY_SUBSCR;
  return loads && next(l, &l->code->instr[l->unit]);
}

/* Is a local variable read only to ask whether something is in it? */
static bool olderdict_local_asked(const MgLoop *l, int slot) {
  const MgCode *c = l->code;
  if (l->v.code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) return false;
  for (int unit = 0; unit < c->n; unit = mg_decode_after(c, unit))
    for (int at = unit; at == unit || at > c->n; at = c->instr[at].next) {
      const MgInstr *in = &c->instr[at];
      bool reads = in->op == BC_LOAD_FAST || in->op == BC_LOAD_FAST_AND_CLEAR || in->op == BC_MAKE_CELL;
      if (reads && in->arg == slot && (in->op != BC_LOAD_FAST || c->instr[in->next].op != BC_CONTAINS_OP))
        return false;
    }
  return true;
}

/* The instruction that gets what in gets: where a function or property returns it, the one behind its call.
 * mg_op_LOAD_ATTR looks at what a property returns. */
static const MgInstr *olderdict_getter(const MgLoop **l, const MgInstr *in) {
  while (in->op == BC_RETURN_VALUE && (*l)->up && !(*l)->outer) {
    if (!(*l)->direct && ((*l)->up->in->op != BC_LOAD_ATTR || !mg_unread_hands_on(*l))) break;
    *l = (*l)->up;
    in = &(*l)->code->instr[(*l)->unit];
  }
  return in;
}

/* The instruction in gets a view of the keys of a dict: is it only asked whether a key is there? */
static bool olderdict_view_asked(const MgLoop *l, const MgInstr *in) {
  in = olderdict_getter(&l, in);
  return in->op == BC_CONTAINS_OP || (in->op == BC_STORE_FAST && olderdict_local_asked(l, in->arg));
}

/* Will the dict that is being loaded be asked for one key, and nothing else? */
static bool olderdict_asked(const MgLoop *l, const MgInstr *in) {
  in = olderdict_getter(&l, in);
  if (in->op == BC_CONTAINS_OP) return true;
  if (in->op == BC_LOAD_METHOD && !PyUnicode_CompareWithASCIIString(CO_NAME(in->arg), "get")) return true;
  const MgInstr *called = &l->code->instr[in->next];
  if (in->op == BC_LOAD_METHOD && !PyUnicode_CompareWithASCIIString(CO_NAME(in->arg), "keys"))
    return called->op == BC_CALL && olderdict_view_asked(l, &l->code->instr[called->next]);
  bool key = in->op == BC_LOAD_CONST || in->op == BC_LOAD_FAST || in->op == BC_LOAD_DEREF ||
             (in->op == BC_LOAD_GLOBAL && !in->flag);
  while (key && l->code->instr[in->next].op == BC_LOAD_ATTR) in = &l->code->instr[in->next];
  return key && l->code->instr[in->next].op == BC_BINARY_SUBSCR;
}

bool mg_olderdict_lazy(PyObject *seen) {
  if (!PyDict_CheckExact(seen) || !mg_rec || !mg_rec->ident->nlazy) return false;
  const MgOlder *e = mg_older(seen);
  return e && e->read;
}

int mg_olderdict_look(PyObject *seen) {
  return mg_olderdict_lazy(seen) && !mg_older_loads_for(mg_rec->ident->depth, olderdict_asked)
             ? mg_olderdict_fill(seen)
             : 0;
}

/* An instance of a class has attributes as well. */
static int olderdict_copied(uint32_t at, SrcRef src) {
  MgIdent *d = mg_rec->ident;
  PyObject *v = d->v[at].orig, *c = d->v[at].seen;
  PyObject **attrs = PyODict_CheckExact(v) ? _PyObject_GetDictPtr(v) : NULL; /* few have any */
  bool bare = PyDict_CheckExact(v) || (attrs && (!*attrs || !PyDict_GET_SIZE(*attrs)));
  if (!bare && mg_older_copy_attrs(at, v, c, src)) return -1;
  bool before = mg_numkey_begin();
  d->v[at].pristine = olderdict_plain_copy(c);
  mg_numkey_end(before);
  return d->v[at].pristine ? 0 : -1;
}

/* The same as olderdict_copy for a dict whose keys are other ints at other calls: keys and values are found
 * by their position. */
static int olderdict_copy_moving(uint32_t at, PyObject *keys, PyObject *read) {
  MgIdent *d = mg_rec->ident;
  MgGuards *g = mg_rec->guards;
  PyObject *v = d->v[at].orig, *c = d->v[at].seen;
  SrcRef src = d->v[at].src;
  Py_ssize_t n = PyTuple_GET_SIZE(keys);
  if (!src) src = d->v[at].src = mg_source(g, SRC_pinned, 0, 0, v);
  mg_guard_add(g, GK_size, src, (PyObject *)Py_TYPE(v), n);
  if (PyObject_TypeCheck(v, mg_torch.defaultdict) && olderdict_copy_factory(v, c, src)) return -1;
  for (int32_t i = 0; i < n; i++) {
    PyObject *k = PyTuple_GET_ITEM(keys, i), *x = PyDict_GetItemWithError(v, k);
    PyObject *have = read ? PyDict_GetItemWithError(read, k) : NULL;
    SrcRef ks = mg_source(g, SRC_key_at, src, i, NULL), xs = mg_source(g, SRC_value_at, src, i, NULL);
    PyObject *kw = PyLong_CheckExact(k) ? mg_symfloat_input(k, ks) : mg_wrap(k, ks), *w = NULL;
    if (kw && have) w = mg_older_fill(have) ? NULL : Py_NewRef(have);
    else if (kw && x) w = mg_wrap(x, xs);
    bool before = mg_numkey_begin();
    int rc = w ? mg_dict_put(c, kw, w) : -1;
    mg_numkey_end(before);
    if (!rc) mg_numkey_note(kw);
    Py_XDECREF(kw);
    Py_XDECREF(w);
    if (rc) return -1;
  }
  return olderdict_copied(at, src);
}

/* Wraps the content of v into its copy, whose entry is at; read: what some keys hold already, or NULL.  Keys
 * are wrapped too: a tensor may be one.  An OrderedDict keeps its order beside the
 * dict, where no version counts. */
static int olderdict_copy(uint32_t at, PyObject *keys, PyObject *read) {
  MgIdent *d = mg_rec->ident;
  PyObject *v = d->v[at].orig, *c = d->v[at].seen;
  SrcRef src = d->v[at].src;
  if (mg_finalizer_keys(keys)) return -1;
  for (Py_ssize_t i = 0; !src && i < PyTuple_GET_SIZE(keys); i++)
    if (mg_guard_key_moves(v, PyTuple_GET_ITEM(keys, i)))
      src = d->v[at].src = mg_source(mg_rec->guards, SRC_pinned, 0, 0, v);
  if (mg_dynfloat_keys(src, v, keys)) return olderdict_copy_moving(at, keys, read);
  if (mg_dynfloat_length(src, v)) {
    mg_rec_break(BK_length, "a dict whose length changes");
    return -1;
  }
  if (src) {
    mg_guard_add(mg_rec->guards, GK_type, src, (PyObject *)Py_TYPE(v), 0);
    mg_guard_add(mg_rec->guards, PyODict_Check(v) ? GK_order : GK_keys, src, keys, 0);
  } else {
    mg_guard_dict_all(mg_rec->guards, v, NULL, true);
    if (PyODict_Check(v) && PyTuple_GET_SIZE(keys) > 1) mg_guard_pinned(mg_rec->guards, GK_order_is, v, keys);
  }
  if (PyObject_TypeCheck(v, mg_torch.defaultdict) && olderdict_copy_factory(v, c, src)) return -1;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); i++) {
    PyObject *k = PyTuple_GET_ITEM(keys, i), *x = PyDict_GetItemWithError(v, k),
             *have = read ? PyDict_GetItemWithError(read, k) : NULL;
    PyObject *kw = x ? mg_wrap(k, 0) : NULL, *w = NULL;
    if (kw && have) w = mg_older_fill(have) ? NULL : Py_NewRef(have);
    else if (kw)
      w = mg_wrap(x, src ? mg_source(mg_rec->guards, SRC_key, src, 0, k) : mg_dynfloat_key(v, NULL, k, x));
    int rc = w ? mg_dict_put(c, kw, w) : -1;
    Py_XDECREF(kw);
    Py_XDECREF(w);
    if (rc) return -1;
  }
  return olderdict_copied(at, src);
}

int mg_olderdict_fill(PyObject *seen) {
  if (!mg_olderdict_lazy(seen)) return 0;
  MgIdent *d = mg_rec->ident;
  MgOlder *e = mg_older(seen);
  PyObject *read = e->read, *keys = olderdict_keys(e->orig);
  e->read = NULL;
  Py_CLEAR(e->pristine);
  d->nlazy--;
  d->depth++;
  int rc = keys ? olderdict_copy((uint32_t)(e - d->v), keys, read) : -1;
  d->depth--;
  Py_XDECREF(keys);
  Py_DECREF(read);
  return rc;
}

static SrcRef olderdict_src(const MgOlder *e) {
  return e->src ? e->src : mg_source(mg_rec->guards, SRC_pinned, 0, 0, e->orig);
}

/* The source of what a dict has under a string that is another one at other calls, at key. */
static SrcRef olderdict_moving(const MgOlder *e, SrcRef key) {
  MgGuards *g = mg_rec->guards;
  mg_guard_add(g, GK_type, key, (PyObject *)&PyUnicode_Type, 0);
  return mg_source(g, SRC_key_of, olderdict_src(e), (int32_t)key, NULL);
}

static void olderdict_lacks_moving(const MgOlder *e, SrcRef key) {
  mg_guard_add(mg_rec->guards, GK_type, key, (PyObject *)&PyUnicode_Type, 0);
  mg_guard_pair(mg_rec->guards, GK_nokey_of, olderdict_src(e), key, 0);
}

PyObject *mg_olderdict_get(PyObject *seen, PyObject *key) {
  MgOlder *e = mg_older(seen);
  if (!olderdict_plain(key)) return mg_olderdict_fill(seen), NULL;
  SrcRef moving = mg_unread_key(key);
  PyObject *there = moving ? PyDict_GetItemWithError(e->orig, key) : NULL;
  if (there) return mg_wrap(there, olderdict_moving(e, moving));
  if (moving) return olderdict_lacks_moving(e, moving), NULL;
  mg_unread_look(key);
  PyObject *v = PyDict_GetItemWithError(e->read, key);
  if (v) return mg_older_look(v) ? NULL : Py_NewRef(v);
  PyObject *read = e->read, *orig = e->orig, *w = NULL;
  SrcRef src = e->src;
  v = PyDict_GetItemWithError(orig, key);
  mg_older_pin(key);
  if (!src) w = mg_wrap_key(orig, key, v);
  else if (v) w = mg_wrap(v, mg_source(mg_rec->guards, SRC_key, src, 0, key));
  else mg_guard_add(mg_rec->guards, GK_nokey, src, key, 0);
  if (w && PyDict_SetItem(read, key, w)) Py_CLEAR(w);
  return w;
}

int mg_olderdict_contains(PyObject *seen, PyObject *key) {
  if (!olderdict_plain(key)) return mg_olderdict_fill(seen) ? -1 : MG_ASK_PYTHON;
  MgOlder *e = mg_older(seen);
  MgGuards *g = mg_rec->guards;
  SrcRef src = olderdict_src(e), moving = mg_unread_key(key);
  bool has = PyDict_GetItemWithError(e->orig, key) != NULL;
  if (moving && has) return olderdict_moving(e, moving), true;
  if (moving) return olderdict_lacks_moving(e, moving), false;
  mg_older_pin(key);
  if (has) mg_guard_add(g, GK_load, mg_source(g, SRC_key, src, 0, key), NULL, 0);
  else mg_guard_add(g, GK_nokey, src, key, 0);
  return has;
}

PyObject *mg_olderdict_wrap(PyObject *v, SrcRef src) {
  MgIdent *d = mg_rec->ident;
  uint32_t owner = mg_map_getp(&d->by_dict, v);
  if (owner !=
      MG_MAP_NONE) { /* the dict of an instance whose attributes were read: one overlay serves both */
    PyObject *full = mg_older_dict(d->v[owner].seen);
    MgOlder *e = full ? mg_older(full) : NULL;
    if (e) mg_older_alias(e, src);
    return Py_XNewRef(full);
  }
  PyObject *c = mg_new_instance(Py_TYPE(v)), *keys = olderdict_keys(v), *result = NULL;
  uint32_t at = d->n;
  if (!c || !keys || mg_older_add(v, c, src, OLDER_dict)) goto done;
  if (PyDict_CheckExact(v) && mg_older_loads_for(d->depth - 1, olderdict_asked) &&
      olderdict_plain_keys(keys)) {
    if (src) mg_guard_add(mg_rec->guards, GK_type, src, (PyObject *)Py_TYPE(v), 0);
    d->v[at].pristine = PyDict_New();
    d->v[at].read = PyDict_New();
    d->v[at].loaded_by = mg_rec->top;
    d->nlazy++;
    if (d->v[at].pristine && d->v[at].read) result = Py_NewRef(c);
  } else if (!olderdict_copy(at, keys, NULL)) result = Py_NewRef(c);
done:
  Py_XDECREF(keys);
  Py_XDECREF(c);
  return result;
}
