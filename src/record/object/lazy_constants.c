/* In: numbers, strings and dates that the recording loads from a path.  Out: guards, by value for what the
 * program has looked at, by class for what it only passed on (stored, returned, handed to a function that
 * does nothing with it): another value is then no recompile, and the snapshot loads it from its path. The
 * recording sees a copy of such an object, which has an identity of its own, for small ints and short strings
 * are shared. Invariant: whatever may look at one is preceded by mg_unread_before, _call or _all.
 * Instructions that only move their operands are listed here, everything else looks at them, and at what is
 * in containers among them.  Only instructions that load make such copies, so that none appears behind the
 * back of C code that was looked after already. Containers of C other than exact lists, tuples and dicts are
 * not searched: with one of them all are taken as read. */
#include "record/object/lazy_constants.h"
#include <stdlib.h>
#include <string.h>
#include "entry/guard/automatic_dynamic.h"
#include "entry/guard/guard_add.h"
#include "entry/guard/source.h"
#include "host/python/decode.h"
#include "host/python/hook_mode.h"
#include "host/python/names.h"
#include "host/python/pyframe.h"
#include "host/python/pyobject.h"
#include "host/python/trace_rules.h"
#include "record/core/c_functions.h"
#include "record/core/capture.h"
#include "record/core/identity.h"
#include "record/core/loop.h"
#include "record/core/recording.h"
#include "record/symbolic/dynamic_sources.h"
#include "record/symbolic/number.h"
#include "tuning.h"

static bool unread_scalar(PyObject *o) {
  return PyUnicode_CheckExact(o) || PyLong_CheckExact(o) || PyFloat_CheckExact(o) || mg_date_is(o);
}

static MgUnread *unread_find(PyObject *o) {
  MgIdent *d = mg_rec ? mg_rec->ident : NULL;
  if (!d || !d->nunread || !(unread_scalar(o) || PyTuple_CheckExact(o))) return NULL;
  uint32_t i = mg_map_getp(&d->by_unread, o);
  return i == MG_MAP_NONE ? NULL : &d->unread[i];
}

/* Another object of the same value, new; NULL without exception: there is but one. */
static PyObject *unread_copy(PyObject *v) {
  if (PyFloat_CheckExact(v)) return PyFloat_FromDouble(PyFloat_AS_DOUBLE(v));
  if (PyLong_CheckExact(v)) return mg_pyframe_copy_int(v);
  if (mg_date_is(v)) return mg_date_copy(v);
  Py_ssize_t n = PyUnicode_CheckExact(v) ? PyUnicode_GET_LENGTH(v) : 0;
  PyObject *c = n ? PyUnicode_New(n, PyUnicode_MAX_CHAR_VALUE(v)) : NULL;
  if (c && PyUnicode_CopyCharacters(c, 0, v, 0, n) < 0) Py_CLEAR(c);
  return c;
}

/* Takes seen over and gives it back. */
static PyObject *unread_add(PyObject *seen, PyObject *orig, MgUnread how) {
  MgIdent *d = mg_rec->ident;
  if (!seen) return NULL;
  if ((!d->unread && !(d->unread = mg_malloc(sizeof *d->unread * MG_TUNE_UNREAD_CONSTANTS))) ||
      mg_map_putp(&d->by_unread, seen, d->nunread) != MG_OK) {
    Py_DECREF(seen);
    return PyErr_NoMemory();
  }
  how.seen = Py_NewRef(seen);
  how.orig = Py_NewRef(orig);
  d->unread[d->nunread++] = how;
  d->waiting += !PyTuple_CheckExact(seen);
  return seen;
}

static PyObject *unread_tuple(PyObject *v, SrcRef src) {
  MgIdent *d = mg_rec->ident;
  Py_ssize_t n = PyTuple_GET_SIZE(v);
  if (!n || n > MG_TUNE_UNREAD_TUPLE || d->nunread + n + 1 > MG_TUNE_UNREAD_CONSTANTS) return NULL;
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *x = PyTuple_GET_ITEM(v, i);
    if (!unread_scalar(x) || (PyUnicode_Check(x) && !PyUnicode_GET_LENGTH(x))) return NULL;
  }
  uint32_t at = d->nunread;
  PyObject *c = unread_add(PyTuple_New(n), v, (MgUnread){.src = src, .item = (int32_t)at + 1});
  for (Py_ssize_t i = 0; c && i < n; i++) {
    PyObject *x = PyTuple_GET_ITEM(v, i),
             *w = unread_add(unread_copy(x), x, (MgUnread){.tuple = at + 1, .item = (int32_t)i});
    if (!w) Py_CLEAR(c);
    else PyTuple_SET_ITEM(c, i, w);
  }
  return c;
}

PyObject *mg_unread_wrap(PyObject *v, SrcRef src) {
  MgIdent *d = mg_rec->ident;
  if (!d->loads || d->nunread == MG_TUNE_UNREAD_CONSTANTS) return NULL;
  if (PyTuple_CheckExact(v)) return unread_tuple(v, src);
  return unread_scalar(v) ? unread_add(unread_copy(v), v, (MgUnread){.src = src}) : NULL;
}

static SrcRef unread_src(const MgRec *r, MgUnread *u) {
  if (!u->src) u->src = mg_source(r->guards, SRC_item, r->ident->unread[u->tuple - 1].src, u->item, NULL);
  return u->src;
}

SrcRef mg_unread_src(PyObject *o) {
  MgUnread *u = unread_find(o);
  return u ? unread_src(mg_rec, u) : 0;
}

PyObject *mg_unread_orig(PyObject *o) {
  const MgUnread *u = unread_find(o);
  return u ? u->orig : o;
}

bool mg_unread_in(PyObject *o) {
  if (!mg_rec->ident->nunread) return false;
  if (PySlice_Check(o)) {
    const PySliceObject *s = (PySliceObject *)o;
    return mg_unread_in(s->start) || mg_unread_in(s->stop) || mg_unread_in(s->step);
  }
  if (!PyTuple_Check(o) || unread_find(o)) return unread_find(o) != NULL;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); i++)
    if (mg_unread_in(PyTuple_GET_ITEM(o, i))) return true;
  return false;
}

static void unread_read(MgUnread *u) {
  if (u->read || PyTuple_CheckExact(u->seen)) return;
  u->read = true;
  mg_rec->ident->waiting--;
}

void mg_unread_all(void) {
  MgIdent *d = mg_rec ? mg_rec->ident : NULL;
  for (uint32_t i = 0; d && d->waiting && i < d->nunread; i++) unread_read(&d->unread[i]);
}

/* Would a guard on this string fail in the next call, and has that led to the recompile limit? */
static bool unread_varies(MgUnread *u) {
  if (u->read || !PyUnicode_CheckExact(u->orig) || !mg_dynfloat_texts()) return false;
  SrcRef src = unread_src(mg_rec, u);
  return src && mg_dynfloat_text(src);
}

/* o itself is looked at, not what is in it. */
static void unread_operand(PyObject *o) {
  MgIdent *d = mg_rec->ident;
  MgUnread *u = o ? unread_find(o) : NULL;
  if (u && d->may_stop && unread_varies(u)) d->stops = true;
  else if (u) unread_read(u);
}

/* What looks at constants has been asked for: does it stay undone?  -1 with a break. */
static int unread_stop(void) {
  MgIdent *d = mg_rec->ident;
  bool stops = d->stops;
  d->may_stop = d->stops = false;
  if (!stops) return 0;
  mg_rec_break(BK_string, "a string that is another one in each call");
  return -1;
}

/* Instances of the program's classes: only C code gets at their state other than by instructions. */
static bool unread_is_instance(PyObject *o) {
  return Py_TYPE(o)->tp_flags & Py_TPFLAGS_HEAPTYPE && mg_solid_base(Py_TYPE(o)) == &PyBaseObject_Type;
}

/* The dict with the state of an instance that the recording made, borrowed; NULL: there
 * is none, or more than that. */
static PyObject *unread_state(PyObject *o) {
  PyTypeObject *t = Py_TYPE(o);
  PyObject **dict = unread_is_instance(o) ? _PyObject_GetDictPtr(o) : NULL;
  Py_ssize_t plain = PyBaseObject_Type.tp_basicsize +
                     (t->tp_dictoffset > 0 ? (Py_ssize_t)sizeof(PyObject *) : 0) +
                     (t->tp_weaklistoffset > 0 ? (Py_ssize_t)sizeof(PyObject *) : 0);
  return dict && *dict && t->tp_basicsize <= plain ? *dict : NULL;
}

/* o is looked at, and what is in it; by_c: by C code. */
static void unread_within(PyObject *o, int depth, bool by_c) {
  Py_ssize_t pos = 0;
  PyObject *k, *v;
  if (!o || !mg_rec->ident->waiting) return;
  if (!PyObject_IS_GC(o)) return unread_operand(o);
  if (mg_standin_check(o) || mg_symfloat_is(o) || Py_TYPE(o) == mg_torch.size || PyType_Check(o) ||
      PyModule_Check(o) || PyFunction_Check(o) || PyAnySet_CheckExact(o) || PyDictKeys_Check(o))
    return; /* elements were hashed */
  if (!by_c && PyExceptionInstance_Check(o) && !(Py_TYPE(o)->tp_flags & Py_TPFLAGS_HEAPTYPE))
    return unread_within(((PyBaseExceptionObject *)o)->args, depth + 1, by_c);
  if (PyCFunction_Check(o)) return unread_within(PyCFunction_GET_SELF(o), depth + 1, by_c);
  if (PyMethod_Check(o)) return unread_within(PyMethod_GET_SELF(o), depth + 1, by_c);
  bool list = PyList_CheckExact(o) || PyTuple_CheckExact(o);
  bool dict = PyDict_CheckExact(o) || PyODict_CheckExact(o);
  MgOlder *e = list || dict ? NULL : mg_older(o);
  if (e && (e->kind == OLDER_itself || e->kind == OLDER_object))
    return; /* its real state is the one that was there */
  if (unread_is_instance(o) && !by_c) return;
  PyObject *state = unread_state(o);
  if (state) o = state;
  Py_ssize_t n = MG_TUNE_UNREAD_ITEMS + 1;
  if (list) n = PySequence_Fast_GET_SIZE(o);
  else if (dict || state) n = PyDict_GET_SIZE(o);
  if (depth > MG_TUNE_UNREAD_DEPTH || n > MG_TUNE_UNREAD_ITEMS) return mg_unread_all();
  for (Py_ssize_t i = 0; list && i < n; i++) unread_within(PySequence_Fast_GET_ITEM(o, i), depth + 1, by_c);
  while (!list && PyDict_Next(o, &pos, &k, &v)) unread_within(v, depth + 1, by_c);
}

static bool unread_is_container(PyObject *o) {
  return PyList_CheckExact(o) || PyTuple_CheckExact(o) || PyDict_CheckExact(o) || unread_is_instance(o);
}

/* What an instruction does with its operands, before it runs. */
typedef enum UnreadLook {
  LOOK_all, /* looks at each, and at what is in it */
  LOOK_none,
  LOOK_loads,     /* at none; what it loads may be a copy */
  LOOK_top,       /* at the topmost itself */
  LOOK_top_loads, /* the same, and it loads */
  LOOK_top_two,   /* at the two topmost */
  LOOK_subscript,
  LOOK_contains,
  LOOK_store_item,
  LOOK_keys, /* of a dict that is being made */
  LOOK_key,
  LOOK_returned,
  LOOK_yielded
} UnreadLook;

static const uint8_t unread_look[BC__COUNT] = {
    [BC_LOAD_FAST] = LOOK_loads,
    [BC_LOAD_DEREF] = LOOK_loads,
    [BC_LOAD_GLOBAL] = LOOK_loads,
    [BC_COPY_FREE_VARS] = LOOK_loads,
    [BC_LOAD_CONST] = LOOK_none,
    [BC_LOAD_COMMON_CONSTANT] = LOOK_none,
    [BC_STORE_FAST] = LOOK_none,
    [BC_STORE_DEREF] = LOOK_none,
    [BC_MAKE_CELL] = LOOK_none,
    [BC_POP_TOP] = LOOK_none,
    [BC_PUSH_NULL] = LOOK_none,
    [BC_COPY] = LOOK_none,
    [BC_SWAP] = LOOK_none,
    [BC_JUMP] = LOOK_none,
    [BC_JUMP_BACKWARD] = LOOK_none,
    [BC_NOP] = LOOK_none,
    [BC_BUILD_TUPLE] = LOOK_none,
    [BC_BUILD_LIST] = LOOK_none,
    [BC_LIST_APPEND] = LOOK_none,
    [BC_LIST_TO_TUPLE] = LOOK_none,
    [BC_MAKE_FUNCTION] = LOOK_none,
    [BC_BUILD_CONST_KEY_MAP] = LOOK_none,
    [BC_POP_JUMP_IF_NONE] = LOOK_none,
    [BC_POP_JUMP_IF_NOT_NONE] = LOOK_none,
    [BC_RETURN_CONST] = LOOK_none,
    [BC_CALL] = LOOK_none, /* mg_rec_call looks after these */
    [BC_LOAD_ATTR] = LOOK_top_loads,
    [BC_LOAD_METHOD] = LOOK_top_loads,
    [BC_GET_ITER] = LOOK_top_loads,
    [BC_FOR_ITER] = LOOK_top_loads,
    [BC_UNPACK_SEQUENCE] = LOOK_top_loads,
    [BC_CALL_FUNCTION_EX] = LOOK_top_two,
    [BC_LIST_EXTEND] = LOOK_top_two,
    [BC_DICT_MERGE] = LOOK_top_two,
    [BC_DICT_UPDATE] = LOOK_top_two,
    [BC_BEFORE_WITH] = LOOK_top_two,
    [BC_LOAD_SPECIAL] = LOOK_top_two,
    [BC_STORE_ATTR] = LOOK_top,
    [BC_BINARY_SUBSCR] = LOOK_subscript,
    [BC_CONTAINS_OP] = LOOK_contains,
    [BC_STORE_SUBSCR] = LOOK_store_item,
    [BC_BUILD_MAP] = LOOK_keys,
    [BC_MAP_ADD] = LOOK_key,
    [BC_RETURN_VALUE] = LOOK_returned,
    [BC_YIELD_VALUE] = LOOK_yielded,
};

SrcRef mg_unread_key(PyObject *o) {
  MgUnread *u = PyUnicode_CheckExact(o) && mg_rec && mg_rec->dyn ? unread_find(o) : NULL;
  if (!u || u->read) return 0;
  SrcRef src = unread_src(mg_rec, u);
  return src && mg_dynfloat_knows(mg_dynfloat_name(mg_rec->guards, src)) ? src : 0;
}

void mg_unread_look(PyObject *o) { unread_operand(o); }

/* Is a container asked for a key in a way that does without the key's value?  A dict that is looked at key by
 * key, or a view of one, does; and a method of the program is recorded itself. */
static bool unread_asks_by_source(PyObject *c, PyObject *key, PyObject *method) {
  const char *view;
  if (!mg_unread_key(key)) return false;
  PyObject *dict = mg_view_of(c, &view), *f = _PyType_Lookup(Py_TYPE(c), method);
  const MgOlder *e = mg_older(dict ? dict : c);
  if (e && e->read && PyDict_CheckExact(e->seen)) return true;
  return !dict && unread_is_instance(c) && f && PyFunction_Check(f) &&
         !mg_skip_opaque((PyCodeObject *)PyFunction_GET_CODE(f));
}

/* Is f the getter of attribute name in instances of t, or the hook that is asked for it? */
static bool unread_is_getter(PyTypeObject *t, PyObject *name, PyObject *f) {
  PyObject *d = _PyType_Lookup(t, name);
  if (d && Py_IS_TYPE(d, &PyProperty_Type)) {
    PyObject *get = PyObject_GetAttr(d, mg_names.fget);
    Py_XDECREF(get); /* the property holds it */
    return mg_clear_as_no(), get == f;
  }
  return f == _PyType_Lookup(t, mg_names.getattr) || f == _PyType_Lookup(t, mg_names.getattribute);
}

bool mg_unread_hands_on(const MgLoop *l) {
  if (l->direct) return true;
  if (!l->up) return false;
  PyObject *f = l->v.func;
  int op = l->up->in->op;
  l = l->up;
  switch (op) { /* C code may have called another method for it, as __index__ of the subscript of a list */
  case BC_LOAD_ATTR: return unread_is_getter(Py_TYPE(TOS()), CO_NAME(l->in->arg), f);
  case BC_BINARY_SUBSCR: return f == _PyType_Lookup(Py_TYPE(PEEK(2)), mg_names.getitem);
  case BC_GET_ITER: return f == _PyType_Lookup(Py_TYPE(TOS()), mg_names.iter);
  case BC_FOR_ITER: return f == _PyType_Lookup(Py_TYPE(TOS()), mg_names.next);
  default: return false;
  }
}

static void unread_before(MgLoop *l, const MgInstr *in, int reads) {
  MgIdent *d = l->rec->ident;
  UnreadLook look = (UnreadLook)unread_look[in->op];
  d->loads = look == LOOK_loads || look == LOOK_top_loads;
  switch (look) {
  case LOOK_none:
  case LOOK_loads: return;
  case LOOK_top:
  case LOOK_top_loads: return unread_operand(PEEK(1));
  case LOOK_top_two:
    unread_operand(PEEK(1));
    if (reads > 1) unread_operand(PEEK(2));
    return;
  case LOOK_subscript:
    if (!unread_asks_by_source(PEEK(2), PEEK(1), mg_names.getitem)) unread_within(PEEK(1), 0, false);
    if (!unread_is_container(PEEK(2))) break;
    d->loads = true;
    return;
  case LOOK_contains:
    if (unread_asks_by_source(PEEK(1), PEEK(2), mg_names.contains)) return;
    break;
  case LOOK_store_item:
    unread_within(PEEK(1), 0, false);
    if (!PyList_CheckExact(PEEK(2)) && !PyDict_CheckExact(PEEK(2))) break;
    return;
  case LOOK_keys:
    for (int i = 2; i <= reads; i += 2) unread_within(PEEK(i), 0, false);
    return;
  case LOOK_key: return unread_within(PEEK(2), 0, false);
  case LOOK_returned:
    if (l->outer || mg_unread_hands_on(l)) return;
    return unread_within(PEEK(1), 0, true);
  case LOOK_yielded: return unread_within(PEEK(1), 0, true);
  case LOOK_all: break;
  }
  for (int i = 1; i <= reads && d->waiting; i++) unread_within(PEEK(i), 0, false);
}

int mg_unread_before(MgLoop *l, const MgInstr *in, int reads) {
  l->rec->ident->may_stop = true;
  unread_before(l, in, reads);
  return unread_stop();
}

/* A class of the program whose __new__ and __init__ are recorded. */
static bool unread_is_class(PyObject *f) {
  PyTypeObject *t = (PyTypeObject *)f;
  if (!PyType_Check(f) || Py_TYPE(f)->tp_call != PyType_Type.tp_call ||
      mg_solid_base(t) != &PyBaseObject_Type || !(t->tp_flags & Py_TPFLAGS_HEAPTYPE))
    return false;
  PyObject *const part[] = {_PyType_Lookup(t, mg_names.init), _PyType_Lookup(t, mg_names.new)};
  for (int i = 0; i < 2; i++)
    if (part[i] && PyFunction_Check(part[i]) && mg_skip_opaque((PyCodeObject *)PyFunction_GET_CODE(part[i])))
      return false;
  return true;
}

/* Is f a method of containers that passes on what it is given, or has?  Of one that is given a key, the key
 * is looked at, unless the dict does without its value. */
static bool unread_is_move(PyObject *f, PyObject *const *arg, Py_ssize_t n) {
  static const struct {
    PyTypeObject *type;
    const char *name;
    bool keyed, finds;
  } moves[] = {{&PyList_Type, "append"}, {&PyDict_Type, "items"},     {&PyDict_Type, "values"},
               {&PyDict_Type, "keys"},   {&PyDict_Type, "pop", true}, {&PyDict_Type, "get", true, true}};
  PyTypeObject *t = NULL;
  const PyMethodDef *def = NULL;
  if (Py_IS_TYPE(f, &PyMethodDescr_Type)) t = PyDescr_TYPE(f), def = ((PyMethodDescrObject *)f)->d_method;
  else if (PyCFunction_CheckExact(f) && PyCFunction_GET_SELF(f))
    t = Py_TYPE(PyCFunction_GET_SELF(f)), def = ((PyCFunctionObject *)f)->m_ml;
  size_t i = 0, all = def ? sizeof moves / sizeof *moves : 0;
  while (i < all && (t != moves[i].type || strcmp(def->ml_name, moves[i].name))) i++;
  if (i == all) return false;
  PyObject *self = PyCFunction_Check(f) ? PyCFunction_GET_SELF(f) : n ? *arg++ : NULL;
  Py_ssize_t given = PyCFunction_Check(f) ? n : n - 1;
  if (!moves[i].keyed || given < 1) return true;
  if (!moves[i].finds || !unread_asks_by_source(self, *arg, mg_names.getitem)) unread_within(*arg, 0, true);
  return true;
}

/* C code that looks at what it is given, but not at what is in it. */
static bool unread_is_shallow(PyObject *f) {
  if (f == (PyObject *)&PyZip_Type || f == (PyObject *)&PyEnum_Type || f == (PyObject *)&PyReversed_Type ||
      f == (PyObject *)&PyList_Type || f == (PyObject *)&PyTuple_Type)
    return true;
  switch (mg_policy_of(f).action) {
  case ACT_len:
  case ACT_iter:
  case ACT_next:
  case ACT_getattr:
  case ACT_hasattr:
  case ACT_setattr: return true;
  default: return false;
  }
}

/* Is a module asked for the attribute of a name that keeps changing?  mg_rec_getattr_moving looks at it. */
static bool unread_names_attribute(PyObject *f, PyObject *o, PyObject *name) {
  MgAction act = mg_policy_of(f).action;
  return (act == ACT_getattr || act == ACT_hasattr) && mg_unread_key(name) &&
         PyObject_TypeCheck(o, mg_torch.module);
}

static void unread_call(PyObject *f, PyObject *const *arg, Py_ssize_t n) {
  bool asks_class = f == (PyObject *)&PyType_Type && n == 1;
  if (!mg_rec->ident->waiting || asks_class || (f && (unread_is_move(f, arg, n) || unread_is_class(f))))
    return;
  bool shallow = f && unread_is_shallow(f), by_class = f && mg_policy_of(f).action == ACT_isinstance;
  if (!shallow) unread_within(f, 0, true);
  for (Py_ssize_t i = by_class; i < n; i++) {
    if (shallow && i == 1 && unread_names_attribute(f, arg[0], arg[1])) continue;
    if (shallow) unread_operand(arg[i]);
    else unread_within(arg[i], 0, true);
  }
}

int mg_unread_call(PyObject *f, PyObject *const *arg, Py_ssize_t n) {
  mg_rec->ident->may_stop = f != NULL;
  unread_call(f, arg, n);
  return unread_stop();
}

static void unread_guard(const MgRec *r, MgUnread *u) {
  mg_guard_add(r->guards, u->read ? GK_equal : GK_type, unread_src(r, u),
               u->read ? u->orig : (PyObject *)Py_TYPE(u->orig), 0);
}

void mg_unread_end(MgRec *r) {
  MgIdent *d = r->ident;
  for (uint32_t i = 0; i < d->nunread; i++) {
    MgUnread *u = &d->unread[i], *item = d->unread + u->item;
    if (u->tuple) continue;
    if (!PyTuple_CheckExact(u->seen)) {
      unread_guard(r, u);
      continue;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(u->seen), read = 0;
    for (Py_ssize_t k = 0; k < n; k++) read += item[k].read;
    if (read < n) mg_guard_add(r->guards, GK_length, u->src, (PyObject *)&PyTuple_Type, n);
    else mg_guard_add(r->guards, GK_equal, u->src, u->orig, 0);
    for (Py_ssize_t k = 0; read < n && k < n; k++)
      if (item[k].read || item[k].src) unread_guard(r, &item[k]);
  }
  d->waiting = 0;
}

void mg_unread_free(MgIdent *d) {
  for (uint32_t i = 0; i < d->nunread; i++) {
    Py_DECREF(d->unread[i].seen);
    Py_DECREF(d->unread[i].orig);
  }
  free(d->unread);
  mg_map_free(&d->by_unread);
}
