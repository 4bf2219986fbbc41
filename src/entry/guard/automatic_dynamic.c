/* See the header.  In: entries whose guards failed.  Out: names of places: the printed source, or the dict
 * and its key, with the index for an item of a tuple. */
#include "entry/guard/automatic_dynamic.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/strbuf.h"
#include "entry/guard/guard_add.h"
#include "entry/guard/guard_check.h"
#include "entry/guard/guard_set.h"
#include "entry/guard/source.h"
#include "host/python/dynamo_config.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "host/torch/array_header.h"
#include "host/torch/tensor_facts.h"
#include "tuning.h"

PyObject *mg_any_float;

int mg_dynfloat_init(void) {
  if (!mg_any_float) mg_any_float = PyObject_CallNoArgs((PyObject *)&PyBaseObject_Type);
  return mg_any_float ? 0 : -1;
}

PyObject *mg_dynfloat_key_name(PyObject *of, PyObject *key) {
  return PyUnicode_FromFormat("%p[%R]", (void *)of, key);
}

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

static PyObject *dynfloat_item_name(PyObject *of, Py_ssize_t i) {
  return of ? PyUnicode_FromFormat("%U[%zd]", of, i) : NULL;
}

static PyObject *dynfloat_part_name(PyObject *of, PyObject *part) {
  return of ? PyUnicode_FromFormat("%U.%U", of, part) : NULL;
}

/* Name of the object that a source is a part of: new. */
static PyObject *dynfloat_whole_name(const MgGuards *g, SrcRef src) {
  const MgSrc *p = &g->src[g->src[src].parent];
  return p->kind == SRC_pinned ? dynfloat_pinned_name(p->key) : mg_dynfloat_name(g, g->src[src].parent);
}

PyObject *mg_dynfloat_name(const MgGuards *g, SrcRef src) {
  PyObject *dict = dynfloat_fixed_dict(g, src);
  if (dict) return mg_dynfloat_key_name(dict, g->src[src].key);
  if (g->src[src].kind == SRC_class_attr)
    return mg_dynfloat_key_name(g->src[g->src[src].parent].key, g->src[src].key);
  if (g->src[src].kind == SRC_item || g->src[src].kind == SRC_attr) {
    PyObject *of = dynfloat_whole_name(g, src);
    PyObject *n = g->src[src].kind == SRC_item ? dynfloat_item_name(of, g->src[src].idx)
                                               : dynfloat_part_name(of, g->src[src].key);
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

bool mg_dynfloat_is_number(PyObject *o) {
  return PyFloat_CheckExact(o) || PyLong_CheckExact(o) || mg_guard_numpy_number(o);
}

bool mg_dynfloat_has_parts(PyObject *o) { return PyTuple_CheckExact(o) || PySlice_Check(o); }

bool mg_dynfloat_may_change(PyObject *o) {
  return mg_dynfloat_is_number(o) || PyUnicode_CheckExact(o) || mg_dynfloat_has_parts(o);
}

static int dynfloat_note(PyObject **known, PyObject *name, PyObject *was, PyObject *now);

/* Members of the set of what is known that are not names of sources. */
static const char dynfloat_texts[] = "some string changed", dynfloat_breaks[] = "changing strings break";

static int dynfloat_has(PyObject *known, const char *what) {
  PyObject *o = PyUnicode_FromString(what);
  int has = o ? PySet_Contains(known, o) : -1;
  Py_XDECREF(o);
  return has;
}

PyObject *mg_dynfloat_text_name(PyObject *name) {
  PyObject *n = name ? PyUnicode_FromFormat("%U text", name) : NULL;
  Py_XDECREF(name);
  return n;
}

static int dynfloat_note_text(PyObject **known, PyObject *name) {
  int rc = dynfloat_add_named(known, PyUnicode_FromString(dynfloat_texts));
  return rc ? rc : dynfloat_add_named(known, mg_dynfloat_text_name(Py_NewRef(name)));
}

int mg_dynfloat_break_texts(PyObject *known) {
  int some = known ? dynfloat_has(known, dynfloat_texts) : 0;
  int done = some > 0 ? dynfloat_has(known, dynfloat_breaks) : 0;
  if (some <= 0 || done) return some < 0 || done < 0 ? -1 : 0;
  return dynfloat_add_named(&known, PyUnicode_FromString(dynfloat_breaks)) ? -1 : 1;
}

bool mg_dynfloat_texts_break(PyObject *known) {
  int has = dynfloat_has(known, dynfloat_breaks);
  if (has < 0) PyErr_Clear(); /* out of memory: strings are guarded, as before */
  return has > 0;
}

static int dynfloat_note_slice(PyObject **known, PyObject *name, PyObject *was, PyObject *now) {
  const PySliceObject *a = (PySliceObject *)was, *b = (PySliceObject *)now;
  int rc = dynfloat_note(known, dynfloat_part_name(name, mg_names.start), a->start, b->start);
  if (!rc) rc = dynfloat_note(known, dynfloat_part_name(name, mg_names.stop), a->stop, b->stop);
  if (!rc) rc = dynfloat_note(known, dynfloat_part_name(name, mg_names.step), a->step, b->step);
  return rc;
}

/* Compares what is at a place, and adds it when a number or string changed, or one in a tuple or slice.
 * Steals name. */
static int dynfloat_note(PyObject **known, PyObject *name, PyObject *was, PyObject *now) {
  bool differ = was && now && Py_TYPE(was) == Py_TYPE(now) && !mg_guard_same_const(was, now);
  bool tuple = differ && PyTuple_CheckExact(was) && PyTuple_GET_SIZE(was) == PyTuple_GET_SIZE(now);
  int rc = name ? 0 : -1;
  bool adds = differ && (tuple || (mg_dynfloat_may_change(was) && !PyTuple_CheckExact(was)));
  if (!rc && adds) rc = dynfloat_add(known, name);
  if (!rc && adds && PyUnicode_CheckExact(was)) rc = dynfloat_note_text(known, name);
  for (Py_ssize_t i = 0; tuple && !rc && i < PyTuple_GET_SIZE(was); i++)
    rc =
        dynfloat_note(known, dynfloat_item_name(name, i), PyTuple_GET_ITEM(was, i), PyTuple_GET_ITEM(now, i));
  if (!rc && differ && PySlice_Check(was)) rc = dynfloat_note_slice(known, name, was, now);
  Py_XDECREF(name);
  return rc;
}

/* A list that is known by identity held was. */
static int dynfloat_note_list(PyObject **known, PyObject *list, PyObject *was) {
  PyObject *name = PyTuple_GET_SIZE(was) == PyList_GET_SIZE(list) ? dynfloat_pinned_name(list) : NULL;
  int rc = PyErr_Occurred() ? -1 : 0;
  for (Py_ssize_t i = 0; name && !rc && i < PyTuple_GET_SIZE(was) && i < PyList_GET_SIZE(list); i++)
    rc =
        dynfloat_note(known, dynfloat_item_name(name, i), PyTuple_GET_ITEM(was, i), PyList_GET_ITEM(list, i));
  Py_XDECREF(name);
  return rc;
}

static PyObject *dynfloat_container_name(const MgGuards *g, SrcRef src, PyObject *container) {
  bool pinned = !src || g->src[src].kind == SRC_pinned;
  return pinned ? dynfloat_pinned_name(container) : mg_dynfloat_name(g, src);
}

PyObject *mg_dynfloat_keys_name(const MgGuards *g, SrcRef src, PyObject *dict) {
  PyObject *of = dynfloat_container_name(g, src, dict);
  PyObject *n = of ? PyUnicode_FromFormat("%U keys", of) : NULL;
  Py_XDECREF(of);
  return n;
}

/* The container of this name has had more than i lengths. */
static PyObject *dynfloat_lengths_name(PyObject *of, int i) {
  return of ? PyUnicode_FromFormat("%U lengths %d", of, i) : NULL;
}

PyObject *mg_dynfloat_lengths_name(const MgGuards *g, SrcRef src, PyObject *container) {
  PyObject *of = dynfloat_container_name(g, src, container);
  PyObject *n = dynfloat_lengths_name(of, MG_TUNE_LENGTHS - 1);
  Py_XDECREF(of);
  return n;
}

/* 1: the name was not known yet; 0: it was; -1 with an exception.  Steals name. */
static int dynfloat_add_new(PyObject **known, PyObject *name) {
  int had = !name ? -1 : *known ? PySet_Contains(*known, name) : 0;
  int rc = had ? had : dynfloat_add(known, name);
  Py_XDECREF(name);
  return rc < 0 ? -1 : !rc;
}

/* A list, deque or dict held `was` items, and holds more or less now.  Each length counts once. */
static int dynfloat_note_length(PyObject **known, const MgGuards *g, SrcRef src, PyObject *now,
                                Py_ssize_t was) {
  bool list = now && (PyList_Check(now) || Py_TYPE(now) == mg_torch.deque);
  Py_ssize_t n = list ? Py_SIZE(now) : now && PyDict_Check(now) ? PyDict_GET_SIZE(now) : was;
  if (n == was) return 0;
  PyObject *of = dynfloat_container_name(g, src, now);
  int added = dynfloat_add_new(known, of ? PyUnicode_FromFormat("%U length %zd", of, was) : NULL);
  for (int i = 0; added > 0 && i < MG_TUNE_LENGTHS; i++) {
    int next = dynfloat_add_new(known, dynfloat_lengths_name(of, i));
    if (next) added = next < 0 ? -1 : 0;
  }
  Py_XDECREF(of);
  return added < 0 ? -1 : 0;
}

/* Ints are the only difference between the keys of a dict and those that an entry was made for. */
static int dynfloat_note_keys(PyObject **known, const MgGuards *g, SrcRef src, PyObject *dict,
                              PyObject *was) {
  PyObject *k, *v;
  Py_ssize_t pos = 0, i = 0;
  bool differ = false;
  if (!dict || !PyDict_Check(dict) || PyDict_GET_SIZE(dict) != PyTuple_GET_SIZE(was)) return 0;
  while (PyDict_Next(dict, &pos, &k, &v)) {
    PyObject *before = PyTuple_GET_ITEM(was, i++);
    if (k == before || mg_guard_same_const(k, before)) continue;
    if (!PyLong_CheckExact(k) || !PyLong_CheckExact(before)) return 0;
    differ = true;
  }
  return differ ? dynfloat_add_named(known, mg_dynfloat_keys_name(g, src, dict)) : 0;
}

/* Sources that lead through a guard that did not hold. */
typedef struct Lost {
  const MgGuards *g;
  uint32_t *at;   /* by source: SOURCE_LOST; of a computed one the count at which all that it needs was found;
                     0: not known */
  uint32_t count; /* one more for each source that is lost directly */
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

/* A container has come to hold more, or less, than when the entry was made, as the state of an optimizer
 * after the first step.  Numbers elsewhere are still compared. */
static bool dynfloat_grown(const MgGuardOp *op) {
  return op->kind == GK_keys || op->kind == GK_order || op->kind == GK_nokey || op->kind == GK_nokey_of ||
         op->kind == GK_elements || op->kind == GK_size;
}

/* Does a source lead through one that is lost? */
static bool dynfloat_led_astray(const Lost *l, const MgSrc *s) {
  return l->at[s->parent] == SOURCE_LOST || (s->kind == SRC_key_of && l->at[s->idx] == SOURCE_LOST);
}

/* The guard did not hold: because a container has another length? */
static int dynfloat_learn_length(PyObject **known, const MgGuards *g, const MgGuardOp *op, PyObject **vals) {
  switch (op->kind) {
  case GK_keys:
  case GK_order: return dynfloat_note_length(known, g, op->src, vals[op->src], PyTuple_GET_SIZE(op->o));
  case GK_length:
  case GK_deque: return dynfloat_note_length(known, g, op->src, vals[op->src], (Py_ssize_t)op->u.i);
  case GK_list_is:
  case GK_deque_is: return dynfloat_note_length(known, g, 0, op->o, PyTuple_GET_SIZE(op->u.want));
  default: return 0;
  }
}

static int dynfloat_learn_paths(PyObject **known, const MgGuards *g, const MgSlots *s, PyObject **vals,
                                Lost *lost) {
  bool asked = false; /* an answer about a number in a tensor is another */
  bool grown = false;
  uint64_t turn = mg_source_turn();
  for (uint32_t i = 1; i < g->nsrc; i++)
    if (g->src[i].kind == SRC_pinned) vals[i] = g->src[i].key;
  for (uint32_t i = 0; i < g->nop; i++) {
    const MgGuardOp *op = &g->op[i];
    if (op->kind == GK_load && dynfloat_led_astray(lost, &g->src[op->src])) dynfloat_lose(lost, op->src);
    if (grown && op->kind == GK_apart) continue;
    if (!dynfloat_found(lost, op->src) || !dynfloat_found(lost, op->src2) ||
        mg_guard_op_holds(g, op, vals, s, turn))
      continue;
    bool keys = op->kind == GK_keys || op->kind == GK_order;
    if (keys && dynfloat_note_keys(known, g, op->src, vals[op->src], op->o)) return -1;
    if (dynfloat_learn_length(known, g, op, vals)) return -1;
    if (dynfloat_grown(op)) {
      grown = true;
      dynfloat_lose(lost, op->src);
      continue;
    }
    PyObject *v = op->src ? vals[op->src] : NULL;
    if (op->kind == GK_tensor && mg_symsize_learn(known, g, op->src, op->u.facts, v)) return -1;
    if (op->kind == GK_tensor && v && mg_dynfloat_is_number(v) &&
        dynfloat_add_named(known, mg_dynfloat_name(g, op->src)))
      return -1;
    if (op->kind == GK_calc && !asked && (asked = mg_symstate_reads(g, op->src)) && mg_symstate_learn(known))
      return -1;
    if (op->kind == GK_list_is) {
      if (dynfloat_note_list(known, op->o, op->u.want)) return -1;
      continue;
    }
    if (op->kind == GK_iterator && dynfloat_add(known, mg_names.iterator)) return -1;
    if (op->kind == GK_calc || op->kind == GK_content || op->kind == GK_iterator || op->kind == GK_value ||
        (op->kind == GK_tensor && v && Py_TYPE(v) == op->u.facts->type))
      continue;
    if (op->kind != GK_equal) break; /* the rest may be found by other ways now */
    if (dynfloat_note(known, mg_dynfloat_name(g, op->src), op->o, v)) return -1;
  }
  return 0;
}

/* A list was replaced by another: what is in it will be found by its place. */
static int dynfloat_learn_replaced(PyObject **known, PyObject *name, PyObject *was, PyObject *now) {
  Py_ssize_t n = name ? PyList_GET_SIZE(was) : 0;
  int rc = name ? 0 : -1;
  for (Py_ssize_t i = 0; !rc && i < n && n == PyList_GET_SIZE(now); i++)
    rc = dynfloat_note(known, dynfloat_item_name(name, i), PyList_GET_ITEM(was, i), PyList_GET_ITEM(now, i));
  Py_XDECREF(name);
  return rc;
}

static int dynfloat_learn_key(PyObject **known, PyObject *of, PyObject *key, PyObject *was, PyObject *now) {
  if (was && now && PyList_CheckExact(was) && PyList_CheckExact(now))
    return dynfloat_learn_replaced(known, mg_dynfloat_key_name(of, key), was, now);
  if (!was || !mg_dynfloat_may_change(was)) return 0;
  return dynfloat_note(known, mg_dynfloat_key_name(of, key), was, now);
}

int mg_dynfloat_learn(PyObject **known, const MgGuards *g, const MgSlots *s) {
  if (g->dead) return 0;
  PyObject **vals = mg_calloc((size_t)g->nsrc + 1, sizeof *vals);
  Lost lost = {g, mg_calloc((size_t)g->nsrc + 1, sizeof *lost.at), 1};
  int rc = vals && lost.at ? dynfloat_learn_paths(known, g, s, vals, &lost) : (PyErr_NoMemory(), -1);
  free(lost.at);
  free(vals);
  for (uint32_t i = 0; i < g->nop && !rc; i++)
    if (g->op[i].kind == GK_tensor && g->src[g->op[i].src].kind != SRC_pinned)
      rc = dynfloat_add_named(known, mg_symsize_seen_name(g, g->op[i].src));
  for (uint32_t i = 0; i < g->ndict && !rc; i++) {
    const MgDictGuard *d = &g->dict[i];
    if (d->all && mg_dict_guard_lives(d)) {
      rc = dynfloat_note_keys(known, g, 0, d->dict, d->order);
      if (!rc) rc = dynfloat_note_length(known, g, 0, d->dict, PyTuple_GET_SIZE(d->order));
    }
    for (int k = 0; k < d->n && !rc && mg_dict_guard_lives(d); k++)
      rc = dynfloat_learn_key(known, d->dict, d->key[k], d->val[k],
                              PyDict_GetItemWithError(d->dict, d->key[k]));
  }
  for (uint32_t i = 0; i < g->ntype && !rc; i++) {
    const MgTypeGuard *t = &g->type[i];
    for (int k = 0; k < t->n && !rc; k++)
      rc = dynfloat_learn_key(known, (PyObject *)t->type, t->name[k], t->val[k],
                              _PyType_Lookup(t->type, t->name[k]));
  }
  return rc;
}

int mg_dynfloat_hand_on(PyObject **known, PyObject *from) {
  PyObject *it = *known == from ? NULL : PyObject_GetIter(from), *name;
  int rc = 0;
  while (it && !rc && (name = PyIter_Next(it))) {
    const char *text = PyUnicode_AsUTF8(name);
    if (!text || !strncmp(text, "0x", 2)) rc = text ? dynfloat_add(known, name) : -1;
    Py_DECREF(name);
  }
  Py_XDECREF(it);
  return rc || PyErr_Occurred() ? -1 : 0;
}

bool mg_symsize_config(const char *name, bool dflt) {
  PyObject *v = mg_rec_dynamo_config(name);
  bool on = v ? v == Py_True : dflt;
  Py_XDECREF(v);
  return on;
}

PyObject *mg_symsize_name(const MgGuards *g, SrcRef src, const char *what, int k) {
  MgStrbuf text = {0};
  mg_source_print(g, src, &text);
  mg_sb_printf(&text, ".%s(%d)", what, k);
  PyObject *n = PyUnicode_FromString(mg_sb_text(&text));
  mg_sb_free(&text);
  return n;
}

int mg_symsize_inner(const MgFacts *f, int k) {
  int64_t outer = f->dim[f->ndim + k];
  for (int j = 0; j < f->ndim; j++) {
    int64_t size = f->dim[j], stride = f->dim[f->ndim + j];
    if (j != k && (stride < outer || (stride == outer && j > k && size == 1)) && size * stride == outer)
      return j;
  }
  return -1;
}

PyObject *mg_symsize_value_name(int64_t size) { return PyUnicode_FromFormat("size %lld", (long long)size); }

PyObject *mg_symsize_grows_name(const MgGuards *g, SrcRef src, int k) {
  return mg_symsize_name(g, src, "grows", k);
}

PyObject *mg_symsize_seen_name(const MgGuards *g, SrcRef src) { return mg_symsize_name(g, src, "seen", 0); }

int mg_symsize_learn(PyObject **known, const MgGuards *g, SrcRef src, const MgFacts *was, PyObject *now) {
  if (!now || Py_TYPE(now) != was->type || !mg_symsize_config("automatic_dynamic_shapes", true)) return 0;
  MgFacts *f = mg_facts_new(now);
  int rc = f ? 0 : (PyErr_NoMemory(), -1);
  bool alike = f && f->ndim == was->ndim && f->dtype == was->dtype && f->layout == was->layout;
  for (int i = 0; alike && !rc && i < 2 * f->ndim; i++) {
    int k = i % f->ndim;
    bool stride = i >= f->ndim;
    if (f->dim[i] == was->dim[i] || mg_facts_varies(was->dim[i])) continue;
    if (stride && (k >= MG_FACTS_FOLLOW || was->follow[k] || mg_symsize_inner(f, k) >= 0)) continue;
    rc = dynfloat_add_named(known, mg_symsize_name(g, src, stride ? "stride" : "size", k));
    if (!rc && !stride) rc = dynfloat_add_named(known, mg_symsize_value_name(was->dim[i]));
  }
  free(f);
  return rc;
}

static PyObject *state_changes_name(int i) { return PyUnicode_FromFormat("answers changed %d", i); }

bool mg_state_knows(PyObject *known, int i) {
  PyObject *name = known ? state_changes_name(i) : NULL;
  bool has = name && PySet_Contains(known, name) > 0;
  Py_XDECREF(name);
  mg_clear_as_no();
  return has;
}

bool mg_symstate_reads(const MgGuards *g, SrcRef src) { return src && g->src[src].trait & SRC_READS; }

int mg_symstate_learn(PyObject **known) {
  int i = 0;
  while (i < MG_TUNE_STATE_CHANGES && mg_state_knows(*known, i)) i++;
  if (i == MG_TUNE_STATE_CHANGES) return 0;
  PyObject *name = state_changes_name(i);
  if (!*known) *known = PySet_New(NULL);
  int rc = name && *known ? PySet_Add(*known, name) : -1;
  Py_XDECREF(name);
  return rc;
}
