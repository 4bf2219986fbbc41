/* See the header.  In: entries whose guards failed.  Out: names of places: the printed source, or the dict and its key, with
 * the index for an item of a tuple. */
#include "front/dynfloat.h"
#include <math.h>
#include <stdlib.h>
#include "front/names.h"
#include "front/standin.h"
#include "front/symsize.h"
#include "front/symstate.h"

PyObject *mg_any_float;

int mg_dynfloat_init(void) {
  if (!mg_any_float) mg_any_float = PyObject_CallNoArgs((PyObject *)&PyBaseObject_Type);
  return mg_any_float ? 0 : -1;
}

/* of: the dict, or the class whose attribute it is */
static PyObject *dynfloat_key_name(PyObject *of, PyObject *key) { return PyUnicode_FromFormat("%p[%R]", (void *)of, key); }

/* The dict that a key source is about, when it hangs on a fixed object. */
static PyObject *dynfloat_fixed_dict(const MgGuards *g, SrcRef src) {
  const MgSrc *s = &g->src[src], *p = &g->src[s->parent];
  if (s->kind != SRC_key) return NULL;
  if (p->kind == SRC_pinned) return p->key;
  if (p->kind != SRC_instdict || g->src[p->parent].kind != SRC_pinned) return NULL;
  PyObject **d = _PyObject_GetDictPtr(g->src[p->parent].key);
  return d ? *d : NULL;
}

static PyObject *dynfloat_pinned_name(PyObject *o) { return PyUnicode_FromFormat("%p", (void *)o); }

static PyObject *dynfloat_item_name(PyObject *of, Py_ssize_t i) { return of ? PyUnicode_FromFormat("%U[%zd]", of, i) : NULL; }

static PyObject *dynfloat_name(const MgGuards *g, SrcRef src) {
  PyObject *dict = dynfloat_fixed_dict(g, src);
  if (dict) return dynfloat_key_name(dict, g->src[src].key);
  if (g->src[src].kind == SRC_class_attr) return dynfloat_key_name(g->src[g->src[src].parent].key, g->src[src].key);
  if (g->src[src].kind == SRC_item) {
    const MgSrc *p = &g->src[g->src[src].parent];
    PyObject *of = p->kind == SRC_pinned ? dynfloat_pinned_name(p->key) : dynfloat_name(g, g->src[src].parent);
    PyObject *n = dynfloat_item_name(of, g->src[src].idx);
    Py_XDECREF(of);
    return n;
  }
  MgStrbuf text = {0};
  mg_source_print(g, src, &text);
  PyObject *n = PyUnicode_FromString(mg_sb_text(&text));
  mg_sb_free(&text);
  return n;
}

static int dynfloat_add(PyObject **known, PyObject *what) {
  return *known || (*known = PySet_New(NULL)) ? PySet_Add(*known, what) : -1;
}

static int dynfloat_add_named(PyObject **known, PyObject *name) { /* steals name */
  int rc = name ? dynfloat_add(known, name) : -1;
  Py_XDECREF(name);
  return rc;
}

static bool dynfloat_is_number(PyObject *o) { return PyFloat_CheckExact(o) || PyLong_CheckExact(o) || mg_guard_numpy_number(o); }

/* Compares what is at a place, and adds it when a number changed, or a number in a tuple.  Steals name. */
static int dynfloat_note(PyObject **known, PyObject *name, PyObject *was, PyObject *now) {
  bool differ = was && now && Py_TYPE(was) == Py_TYPE(now) && !mg_guard_same_const(was, now);
  bool tuple = differ && PyTuple_CheckExact(was) && PyTuple_GET_SIZE(was) == PyTuple_GET_SIZE(now);
  int rc = name ? 0 : -1;
  if (!rc && differ && (tuple || dynfloat_is_number(was))) rc = dynfloat_add(known, name);
  for (Py_ssize_t i = 0; tuple && !rc && i < PyTuple_GET_SIZE(was); i++)
    rc = dynfloat_note(known, dynfloat_item_name(name, i), PyTuple_GET_ITEM(was, i), PyTuple_GET_ITEM(now, i));
  Py_XDECREF(name);
  return rc;
}

/* A list that is known by identity held was. */
static int dynfloat_note_list(PyObject **known, PyObject *list, PyObject *was) {
  PyObject *name = PyTuple_GET_SIZE(was) == PyList_GET_SIZE(list) ? dynfloat_pinned_name(list) : NULL;
  int rc = PyErr_Occurred() ? -1 : 0;
  for (Py_ssize_t i = 0; name && !rc && i < PyTuple_GET_SIZE(was) && i < PyList_GET_SIZE(list); i++)
    rc = dynfloat_note(known, dynfloat_item_name(name, i), PyTuple_GET_ITEM(was, i), PyList_GET_ITEM(list, i));
  Py_XDECREF(name);
  return rc;
}

/* Sources that lead through a guard that did not hold. */
typedef struct Lost {
  const MgGuards *g;
  uint32_t *at;    /* by source: SOURCE_LOST; of a computed one the count at which all that it needs was found; 0: not known */
  uint32_t count;  /* one more for each source that is lost directly */
} Lost;
enum { SOURCE_LOST = UINT32_MAX };

static void dynfloat_lose(Lost *l, SrcRef src) {
  l->at[src] = SOURCE_LOST;
  l->count++;
}

/* Can a value be found although other guards before did not hold?  Remembered: operands are shared. */
static bool dynfloat_found(Lost *l, SrcRef src) {
  const MgSrc *s = &l->g->src[src];
  if (!src || l->at[src] == SOURCE_LOST) return !src;
  if (!mg_source_computed(s) || l->at[src] == l->count) return true;
  SrcRef second = s->kind == SRC_calc ? (uint32_t)s->idx >> MG_CALC_BITS : 0;
  bool found = dynfloat_found(l, s->parent) && dynfloat_found(l, second);
  l->at[src] = found ? l->count : SOURCE_LOST;
  return found;
}

/* A container has come to hold more, or less, than when the entry was made, as the state of an optimizer after the first step.  Numbers
 * elsewhere are still compared. */
static bool dynfloat_grown(const MgGuardOp *op) {
  return op->kind == GK_keys || op->kind == GK_order || op->kind == GK_nokey || op->kind == GK_elements;
}

static int dynfloat_learn_paths(PyObject **known, const MgGuards *g, const MgSlots *s, PyObject **vals, Lost *lost) {
  bool asked = false; /* an answer about a number in a tensor is another */
  bool grown = false;
  uint64_t turn = mg_source_turn();
  for (uint32_t i = 1; i < g->nsrc; i++)
    if (g->src[i].kind == SRC_pinned) vals[i] = g->src[i].key;
  for (uint32_t i = 0; i < g->nop; i++) {
    const MgGuardOp *op = &g->op[i];
    if (op->kind == GK_load && lost->at[g->src[op->src].parent] == SOURCE_LOST) dynfloat_lose(lost, op->src);
    if (grown && op->kind == GK_apart) continue;
    if (!dynfloat_found(lost, op->src) || !dynfloat_found(lost, op->src2) || mg_guard_op_holds(g, op, vals, s, turn)) continue;
    if (dynfloat_grown(op)) {
      grown = true;
      dynfloat_lose(lost, op->src);
      continue;
    }
    PyObject *v = op->src ? vals[op->src] : NULL;
    if (op->kind == GK_tensor && mg_symsize_learn(known, g, op->src, op->u.facts, v)) return -1;
    if (op->kind == GK_tensor && v && dynfloat_is_number(v) && dynfloat_add_named(known, dynfloat_name(g, op->src))) return -1;
    if (op->kind == GK_calc && !asked && (asked = mg_symstate_reads(g, op->src)) && mg_symstate_learn(known)) return -1;
    if (op->kind == GK_list_is) {
      if (dynfloat_note_list(known, op->o, op->u.want)) return -1;
      continue;
    }
    if (op->kind == GK_iterator && dynfloat_add(known, mg_names.iterator)) return -1;
    if (op->kind == GK_calc || op->kind == GK_iterator || op->kind == GK_value || (op->kind == GK_tensor && v && Py_TYPE(v) == op->u.facts->type)) continue;
    if (op->kind != GK_equal) break; /* the rest may be found by other ways now */
    if (dynfloat_note(known, dynfloat_name(g, op->src), op->o, v)) return -1;
  }
  return 0;
}

static int dynfloat_learn_key(PyObject **known, PyObject *of, PyObject *key, PyObject *was, PyObject *now) {
  if (!was || !(dynfloat_is_number(was) || PyTuple_CheckExact(was))) return 0;
  return dynfloat_note(known, dynfloat_key_name(of, key), was, now);
}

int mg_dynfloat_learn(PyObject **known, const MgGuards *g, const MgSlots *s) {
  if (g->dead) return 0;
  PyObject **vals = mg_calloc((size_t)g->nsrc + 1, sizeof *vals);
  Lost lost = {g, mg_calloc((size_t)g->nsrc + 1, sizeof *lost.at), 1};
  int rc = vals && lost.at ? dynfloat_learn_paths(known, g, s, vals, &lost) : (PyErr_NoMemory(), -1);
  free(lost.at);
  free(vals);
  for (uint32_t i = 0; i < g->ndict && !rc; i++) {
    const MgDictGuard *d = &g->dict[i];
    for (int k = 0; k < d->n && !rc && mg_dict_guard_lives(d); k++)
      rc = dynfloat_learn_key(known, d->dict, d->key[k], d->val[k], PyDict_GetItemWithError(d->dict, d->key[k]));
  }
  for (uint32_t i = 0; i < g->ntype && !rc; i++) {
    const MgTypeGuard *t = &g->type[i];
    for (int k = 0; k < t->n && !rc; k++)
      rc = dynfloat_learn_key(known, (PyObject *)t->type, t->name[k], t->val[k], _PyType_Lookup(t->type, t->name[k]));
  }
  return rc;
}

static bool dynfloat_knows(PyObject *name) { /* steals name */
  int has = name ? PySet_Contains(mg_rec->dyn, name) : -1;
  Py_XDECREF(name);
  if (has < 0) PyErr_Clear();
  return has > 0;
}

bool mg_dynfloat_iterators(void) { return mg_rec->dyn && dynfloat_knows(Py_NewRef(mg_names.iterator)); }

PyObject *mg_dynfloat_sources(bool unbacked) {
  PyObject *config = PyImport_GetModule(mg_names.compiler_config), *all = NULL, *re = NULL;
  MgPause pause = mg_rec_pause();
  if (config) {
    PyObject *text = PyObject_GetAttrString(config, unbacked ? "unbacked_sources" : "dynamic_sources"), *parts = NULL;
    if (text && PyUnicode_Check(text) && PyUnicode_GET_LENGTH(text) && (re || (re = mg_import("re"))))
      parts = PyObject_CallMethod(re, "split", "ss", "\\s*,\\s*", PyUnicode_AsUTF8(text));
    for (Py_ssize_t k = 0; parts && k < PyList_GET_SIZE(parts); k++) {
      PyObject *name = PyList_GET_ITEM(parts, k), *quoted = PyUnicode_GET_LENGTH(name) ? PyObject_CallMethod(re, "escape", "O", name) : NULL;
      PyObject *either = quoted ? PyUnicode_FromFormat("%U|%U", quoted, name) : NULL; /* the very name, or a pattern */
      PyObject *p = either ? PyObject_CallMethod(re, "compile", "O", either) : NULL;
      if (p && (all || (all = PyList_New(0)))) PyList_Append(all, p);
      Py_XDECREF(p);
      Py_XDECREF(either);
      Py_XDECREF(quoted);
    }
    Py_XDECREF(parts);
    Py_XDECREF(text);
    PyErr_Clear(); /* older versions of torch do not have it; a pattern that is none */
  }
  mg_rec_resume(pause);
  Py_XDECREF(re);
  Py_XDECREF(config);
  return all;
}

bool mg_dynfloat_listed(SrcRef src, bool unbacked) {
  PyObject *all = unbacked ? mg_rec->unbacked_sources : mg_rec->dynamic_sources, *hit = NULL;
  if (!all || mg_rec->guards->src[src].kind == SRC_pinned) return false;
  MgStrbuf text = {0};
  mg_source_print(mg_rec->guards, src, &text);
  MgPause pause = mg_rec_pause();
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(all) && (!hit || hit == Py_None); i++) {
    Py_XDECREF(hit);
    hit = PyObject_CallMethod(PyList_GET_ITEM(all, i), "match", "s", mg_sb_text(&text));
  }
  mg_rec_resume(pause);
  mg_sb_free(&text);
  PyErr_Clear();
  bool yes = hit && hit != Py_None;
  Py_XDECREF(hit);
  return yes;
}

/* compile(dynamic=): False, ints are constants; True, or torch's setting of the same meaning, numbers among the arguments are inputs at once. */
static int dynfloat_setting(PyObject *val) {
  if (mg_rec->cap && mg_rec->cap->sizes.all) return 1;
  return mg_rec->cfg && PyLong_CheckExact(val) ? mg_rec->cfg->dynamic : -1;
}

/* Is this number one at once, where dynamic=True asks for it?  Sizes of 0 and 1 are constants, floats without a value, too. */
static bool dynfloat_at_once(PyObject *val) {
  double v = PyFloat_Check(val) ? PyFloat_AS_DOUBLE(val) : PyLong_CheckExact(val) ? PyLong_AsDouble(val) : 0;
  PyErr_Clear(); /* too large for a double */
  return PyFloat_Check(val) ? isfinite(v) : v != 0 && v != 1;
}

/* Is it an argument, or in containers among the arguments? */
static bool dynfloat_is_argument(const MgGuards *g, SrcRef src) {
  while (g->src[src].kind == SRC_item || g->src[src].kind == SRC_key) src = g->src[src].parent;
  return g->src[src].kind == SRC_slot;
}

bool mg_dynfloat_at(SrcRef src, PyObject *val) {
  int setting = dynfloat_setting(val);
  if (dynfloat_is_number(val) && (mg_dynfloat_listed(src, false) || mg_dynfloat_listed(src, true))) return true;
  if (!setting || !(dynfloat_is_number(val) || PyTuple_CheckExact(val))) return false;
  /* NumPy's numbers stand for arrays without dimensions, whose values are no constants either */
  if ((mg_guard_numpy_number(val) || (setting == 1 && dynfloat_at_once(val))) && dynfloat_is_argument(mg_rec->guards, src)) return true;
  return mg_rec->dyn && dynfloat_knows(dynfloat_name(mg_rec->guards, src));
}

/* Is it known that the program keeps putting others in the place of v? */
static bool dynfloat_moves(PyObject *dict, PyObject *key, PyObject *v) { return v && mg_guard_key_moves(dict, key) && mg_guard_may_move(v, v); }

static bool dynfloat_changes(PyObject *dict, PyObject *key, PyObject *v) {
  if (!mg_rec->dyn || !dynfloat_setting(v) || (!dynfloat_is_number(v) && !PyTuple_CheckExact(v))) return false;
  return dynfloat_knows(dynfloat_key_name(dict, key));
}

static SrcRef dynfloat_key_source(PyObject *dict, PyObject *owner, PyObject *key) {
  MgGuards *g = mg_rec->guards;
  SrcRef s = mg_source(g, SRC_pinned, 0, 0, owner ? owner : dict);
  if (owner) s = mg_source(g, SRC_instdict, s, 0, NULL);
  return mg_source(g, SRC_key, s, 0, key);
}

SrcRef mg_dynfloat_key(PyObject *dict, PyObject *owner, PyObject *key, PyObject *val) {
  bool is_input = mg_rec && val && (dynfloat_moves(dict, key, val) || dynfloat_changes(dict, key, val));
  return is_input ? dynfloat_key_source(dict, owner, key) : 0;
}

SrcRef mg_dynfloat_class_attr(PyTypeObject *t, PyObject *name, PyObject *val) {
  if (!val || !(t->tp_flags & Py_TPFLAGS_HEAPTYPE) || !dynfloat_changes((PyObject *)t, name, val)) return 0;
  return mg_source(mg_rec->guards, SRC_class_attr, mg_source(mg_rec->guards, SRC_pinned, 0, 0, (PyObject *)t), 0, name);
}

SrcRef mg_dynfloat_guard_key(MgGuards *g, PyObject *dict, PyObject *owner, PyObject *name, PyObject *v) {
  bool moves = dynfloat_moves(dict, name, v), changes = !moves && mg_rec && v && dynfloat_changes(dict, name, v);
  if (!moves) mg_guard_dict_key(g, dict, owner, name, v, changes);
  return mg_rec && (moves || changes) ? dynfloat_key_source(dict, owner, name) : 0;
}
