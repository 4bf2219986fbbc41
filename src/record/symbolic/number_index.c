/* See the header. */
#include "record/symbolic/number_index.h"
#include "entry/guard/guard_add.h"
#include "entry/guard/late_draws.h"
#include "host/python/hook_mode.h"
#include "host/python/iterators.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "record/symbolic/item_numbers.h"
#include "record/symbolic/number.h"
#include "record/symbolic/number_ops.h"
#include "record/symbolic/sizes.h"
#include "record/symbolic/unbacked.h"
#include "results.h"
#include "tuning.h"

MgSymNode *mg_ask_late(PyObject *o) {
  MgSymNode *n = mg_symnode_of(o);
  return n && n->cap && !n->src && !n->hint ? n : NULL;
}

/* A number that a run learns and graphs have words for: one that depends on data, or comes from sizes. */
static bool ask_index(PyObject *o) {
  MgSymNode *n = mg_symnode_of(o);
  return n && mg_symfloat_class(o) == &PyLong_Type && (mg_ask_late(o) || (n->src && mg_symsize_of(n)));
}

/* A 0-dim tensor of integers whose number graphs have words for. */
static bool ask_tensor(PyObject *o) {
  const MgRec *r = mg_rec;
  ValRef v = mg_standin_is(o) ? mg_standin_val(o) : 0;
  return v && !r->want_fx && !mg_val(r->g, v)->ndim && mg_dtype_is_int(mg_val(r->g, v)->dtype) &&
         (mg_symdata_may(r->cap, true) || mg_symdata_picks(r->cap)) && mg_symvalue_can(r->cap, o);
}

/* A subscript: a tensor as the number in it.  New. */
static PyObject *ask_number(PyObject *o) {
  return ask_tensor(o) ? PyObject_CallMethod(o, "item", NULL) : Py_NewRef(o);
}

/* The same of a tuple that has some, all of whose items numbers can stand beside; NULL without an exception:
 * there is none, or of another kind. */
static PyObject *ask_numbers(PyObject *key) {
  Py_ssize_t n = PyTuple_GET_SIZE(key);
  bool any = false;
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *o = PyTuple_GET_ITEM(key, i);
    bool asked = ask_index(o) || ask_tensor(o);
    any |= asked;
    if (!PySlice_Check(o) && !PyLong_CheckExact(o) && !asked) return NULL;
  }
  PyObject *t = any ? PyTuple_New(n) : NULL;
  for (Py_ssize_t i = 0; t && i < n; i++) {
    PyObject *o = ask_number(PyTuple_GET_ITEM(key, i));
    if (!o) Py_CLEAR(t);
    else PyTuple_SET_ITEM(t, i, o);
  }
  return t;
}

/* ---- what a number picks where it may be no size ---- */

/* A copy that the graph has where eager has a view. */
typedef struct MgPick {
  ValRef copy, base;
  struct MgPick *next;
} MgPick;

bool mg_pick_may(PyObject *o) {
  MgSymNode *n = mg_ask_late(o);
  return n && mg_symfloat_class(o) == &PyLong_Type && mg_symdata_picks(n->cap);
}

/* x[:, ..., number, ...] with dim slices before it, as a 1-dim tensor: one row. */
static PyObject *pick_row(PyObject *tensor, Py_ssize_t dim, PyObject *number) {
  PyObject *t = mg_symfloat_standin(number), *place = t ? PyObject_CallMethod(t, "reshape", "i", 1) : NULL,
           *all = place ? PySlice_New(NULL, NULL, NULL) : NULL, *key = all ? PyTuple_New(dim + 1) : NULL,
           *row = NULL;
  for (Py_ssize_t i = 0; key && i < dim; i++) PyTuple_SET_ITEM(key, i, Py_NewRef(all));
  if (key) {
    PyTuple_SET_ITEM(key, dim, Py_NewRef(place));
    row = PyObject_GetItem(tensor, key);
  }
  Py_XDECREF(t);
  Py_XDECREF(place);
  Py_XDECREF(all);
  Py_XDECREF(key);
  return row;
}

PyObject *mg_pick_select(PyObject *tensor, Py_ssize_t dim, PyObject *number) {
  MgCapture *cap = mg_rec->cap;
  PyObject *row = pick_row(tensor, dim, number);
  MgPick *p = row ? mg_new(mg_rec->ctx, MgPick, 1) : NULL;
  if (p) {
    *p = (MgPick){mg_standin_val(row), mg_standin_val(tensor), cap->picks};
    cap->picks = p;
  } else if (row) PyErr_NoMemory();
  PyObject *r = p ? PyObject_CallMethod(row, "select", "ni", dim, 0) : NULL;
  Py_XDECREF(row);
  return r;
}

/* range(size) as a tensor on the device of `like`. */
static PyObject *pick_range(PyObject *like, PyObject *size) {
  PyObject *torch = mg_import("torch"), *arange = torch ? PyObject_GetAttrString(torch, "arange") : NULL,
           *device = arange ? PyObject_GetAttrString(like, "device") : NULL;
  PyObject *args = device ? PyTuple_Pack(1, size) : NULL,
           *kw = args ? Py_BuildValue("{s:O}", "device", device) : NULL,
           *r = kw ? PyObject_Call(arange, args, kw) : NULL;
  Py_XDECREF(torch);
  Py_XDECREF(arange);
  Py_XDECREF(device);
  Py_XDECREF(args);
  Py_XDECREF(kw);
  return r;
}

PyObject *mg_pick_roll(PyObject *tensor, PyObject *number, Py_ssize_t dim) {
  SymRef e = mg_val(mg_rec->g, mg_standin_val(tensor))->size[dim];
  PyObject *size = mg_symsize_object(mg_rec->cap, e), *all = size ? pick_range(tensor, size) : NULL,
           *by = all ? mg_symfloat_standin(number) : NULL;
  if (by && mg_symnode_of(size))
    Py_SETREF(size, mg_symfloat_standin(size)); /* torch would ask for the number */
  PyObject *back = by && size ? PyObject_CallMethod(all, "sub", "O", by) : NULL,
           *place = back ? PyObject_CallMethod(back, "remainder", "O", size) : NULL,
           *r = place ? PyObject_CallMethod(tensor, "index_select", "nO", dim, place) : NULL;
  Py_XDECREF(size);
  Py_XDECREF(all);
  Py_XDECREF(by);
  Py_XDECREF(back);
  Py_XDECREF(place);
  return r;
}

void mg_pick_check(MgCapture *cap, const ValRef *out, int nout) {
  const MgGraph *g = cap->rec->g;
  bool seen = false;
  for (const MgPick *p = cap->picks; p && !seen; p = p->next) {
    uint32_t copy = mg_val(g, p->copy)->storage, base = mg_val(g, p->base)->storage;
    for (int i = 0; i < nout; i++) seen |= mg_val(g, out[i])->storage == copy;
    for (NodeRef n = mg_val(g, p->copy)->def + 1; n < g->nnode && !seen; n++)
      seen = mg_node_writes(g, mg_node(g, n), copy) || mg_node_writes(g, mg_node(g, n), base);
  }
  if (seen) mg_retry_fail(cap->rec, RETRY_picked);
}

/* ---- subscripts ---- */

/* One number of a subscript. */
static PyObject *ask_one(PyObject *tensor, Py_ssize_t dim, PyObject *number) {
  return mg_pick_may(number) ? mg_pick_select(tensor, dim, number)
                             : PyObject_CallMethod(tensor, "select", "nO", dim, number);
}

/* The last number first, so that dimensions keep their numbers. */
static PyObject *ask_select(PyObject *tensor, PyObject *key) {
  PyObject *t = Py_NewRef(tensor), *rest = PyList_New(0), *index = NULL;
  for (Py_ssize_t i = PyTuple_GET_SIZE(key); rest && t && i-- > 0;) {
    PyObject *o = PyTuple_GET_ITEM(key, i);
    if (ask_index(o)) Py_SETREF(t, ask_one(t, i, o));
    else if (PyList_Insert(rest, 0, o)) Py_CLEAR(t);
  }
  if (t && rest && PyList_GET_SIZE(rest) && (index = PyList_AsTuple(rest)))
    Py_SETREF(t, PyObject_GetItem(t, index));
  Py_XDECREF(index);
  Py_XDECREF(rest);
  return t;
}

PyObject *mg_symask_item(PyObject *tensor, PyObject *key) {
  if (!mg_rec || !mg_standin_is(tensor) || !mg_standin_val(tensor)) return NULL;
  int ndim = mg_val(mg_rec->g, mg_standin_val(tensor))->ndim;
  bool one = ask_index(key) || ask_tensor(key);
  if (!one && (!PyTuple_CheckExact(key) || PyTuple_GET_SIZE(key) > ndim)) return NULL;
  PyObject *numbers = one ? ndim ? ask_number(key) : NULL : ask_numbers(key), *r = NULL;
  if (numbers) r = one ? ask_one(tensor, 0, numbers) : ask_select(tensor, numbers);
  Py_XDECREF(numbers);
  return r;
}

/* ---- keys of dicts ---- */

/* The node of an int that every run finds or computes before its graph; NULL: something else. */
static MgSymNode *numkey_node(PyObject *o) {
  MgSymNode *n = mg_symnode_of(o);
  bool known = n && n->cap && n->cap == mg_rec->cap && n->src && n->hint;
  return known && PyLong_CheckExact(n->hint) && !mg_draw_late(mg_rec->guards, n->src) ? n : NULL;
}

/* Dicts that no Python code has a say about. */
static bool numkey_dict(PyObject *o) { return PyDict_CheckExact(o) || PyODict_CheckExact(o); }

static bool numkey_has(PyObject *dict) {
  PyObject *k, *v;
  Py_ssize_t pos = 0;
  while (PyDict_Next(dict, &pos, &k, &v))
    if (mg_symnode_of(k)) return true;
  return false;
}

/* Is k a plain key that no int equals? */
static bool numkey_apart(PyObject *k) {
  PyTypeObject *t = Py_TYPE(k);
  if (PyUnicode_CheckExact(k) || PyBytes_CheckExact(k) || k == Py_None || t->tp_richcompare == NULL)
    return true;
  return t->tp_richcompare == PyBaseObject_Type.tp_richcompare || PyTuple_CheckExact(k) ||
         PyFrozenSet_CheckExact(k);
}

/* Are two keys equal?  Guarded.  -1 with an exception, MG_ASK_PYTHON: only their classes know. */
static int numkey_equal(PyObject *a, PyObject *b) {
  if (a == b) return 1;
  if (!mg_symnode_of(a)) { /* the number comes first */
    PyObject *other = a;
    a = b;
    b = other;
  }
  if (!mg_symnode_of(a))
    return mg_guard_is_const(a) && mg_guard_is_const(b) ? PyObject_RichCompareBool(a, b, Py_EQ)
                                                        : MG_ASK_PYTHON;
  bool number = PyLong_CheckExact(b) || PyFloat_CheckExact(b) || PyBool_Check(b) || numkey_node(b);
  if (!numkey_node(a) || !number) return numkey_node(a) && numkey_apart(b) ? 0 : MG_ASK_PYTHON;
  PyObject *r = PyObject_RichCompare(a, b, Py_EQ);
  int yes = r ? PyObject_IsTrue(r) : -1;
  Py_XDECREF(r);
  return yes;
}

bool mg_numkey_begin(void) {
  bool before = mg_rec->hashing;
  mg_rec->hashing = true;
  return before;
}

void mg_numkey_end(bool before) { mg_rec->hashing = before; }

PyObject *mg_numkey_list(PyObject *keys) {
  bool before = mg_numkey_begin();
  PyObject *list = PySequence_List(keys);
  mg_numkey_end(before);
  return list;
}

int mg_numkey_find(PyObject *dict, PyObject *key, PyObject **same) {
  *same = NULL;
  if (!mg_rec) return MG_ASK_PYTHON;
  if (!numkey_dict(dict)) { /* a class over dict looks keys up by their hashes */
    if (mg_rec->number_keys && PyDict_Check(dict) && numkey_has(dict)) mg_numkey_settle();
    return MG_ASK_PYTHON;
  }
  bool number = numkey_node(key) != NULL;
  if (!number && (!mg_rec->number_keys || mg_symnode_of(key) || !numkey_has(dict) || numkey_apart(key)))
    return MG_ASK_PYTHON;
  if (PyDict_GET_SIZE(dict) > MG_TUNE_NUMBER_KEYS) {
    mg_numkey_settle();
    return MG_ASK_PYTHON;
  }
  PyObject *keys = mg_numkey_list(dict); /* comparing may run code of torch */
  int found = keys ? 0 : -1;
  for (Py_ssize_t i = 0; !found && i < PyList_GET_SIZE(keys); i++) {
    PyObject *k = PyList_GET_ITEM(keys, i);
    found = numkey_equal(key, k);
    if (found == 1) *same = k; /* the dict keeps it */
  }
  Py_XDECREF(keys);
  if (found == MG_ASK_PYTHON) mg_numkey_settle();
  return found;
}

PyObject *mg_numkey_get(PyObject *dict, PyObject *same) {
  bool before = mg_numkey_begin();
  PyObject *v = PyDict_GetItemWithError(dict, same);
  mg_numkey_end(before);
  return Py_XNewRef(v);
}

int mg_numkey_set(PyObject *dict, PyObject *key, PyObject *v) {
  bool before = mg_numkey_begin();
  int rc = v ? PyObject_SetItem(dict, key, v) : PyObject_DelItem(dict, key);
  mg_numkey_end(before);
  if (!rc && v) mg_numkey_note(key);
  return rc;
}

void mg_numkey_note(PyObject *key) {
  MgSymNode *n = mg_symnode_of(key);
  if (!n) return;
  n->keyed = true;
  mg_rec->number_keys = true;
}

/* Is there a dict with such keys in o? */
static bool numkey_reached(PyObject *o, int depth) {
  const char *name;
  PyObject *viewed = mg_view_of(o, &name), *k, *v;
  Py_ssize_t pos = 0;
  if (viewed) o = viewed;
  if (PyDict_Check(o) && numkey_has(o)) return true;
  if (!depth) return false;
  if (PyDict_Check(o))
    while (PyDict_Next(o, &pos, &k, &v))
      if (numkey_reached(v, depth - 1)) return true;
  PyObject **item = PyList_Check(o) ? ((PyListObject *)o)->ob_item : NULL;
  if (PyTuple_Check(o)) item = ((PyTupleObject *)o)->ob_item;
  for (Py_ssize_t i = 0; item && i < Py_SIZE(o); i++)
    if (numkey_reached(item[i], depth - 1)) return true;
  return false;
}

bool mg_numkey_reached(PyObject *const *o, Py_ssize_t n) {
  bool any = false;
  for (Py_ssize_t i = 0; mg_rec->number_keys && !any && i < n; i++)
    any = o[i] && numkey_reached(o[i], MG_TUNE_NUMBER_KEYS_DEPTH);
  return any;
}

void mg_numkey_settle(void) {
  PyObject *all = mg_rec->cap->syms;
  for (Py_ssize_t i = 0; all && i < PyList_GET_SIZE(all); i++) {
    MgSymNode *s = (MgSymNode *)PyList_GET_ITEM(all, i);
    if (s->keyed && s->src) mg_symnode_expect(s->cap, s->src, s->hint);
    s->keyed = false;
  }
  mg_rec->number_keys = false;
}

void mg_numkey_seen(PyObject *a, PyObject *b) {
  if (mg_numkey_reached(&a, 1) || mg_numkey_reached(&b, 1)) mg_numkey_settle();
}
