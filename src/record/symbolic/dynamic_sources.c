/* Which numbers and sizes the program or earlier calls have made dynamic. */
#include "record/symbolic/dynamic_sources.h"
#include "base/strbuf.h"
#include "base/table.h"
#include "entry/guard/automatic_dynamic.h"
#include "entry/guard/guard_add.h"
#include "entry/guard/guard_check.h"
#include "entry/guard/guard_set.h"
#include "entry/guard/source.h"
#include "entry/launch/config.h"
#include "host/python/hook_mode.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "host/torch/array_header.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "tuning.h"

PyObject *mg_dynfloat_sources(bool unbacked) {
  PyObject *config = PyImport_GetModule(mg_names.compiler_config), *all = NULL, *re = NULL;
  MgPause pause = mg_rec_pause();
  if (config) {
    PyObject *text = PyObject_GetAttrString(config, unbacked ? "unbacked_sources" : "dynamic_sources"),
             *parts = NULL;
    if (text && PyUnicode_Check(text) && PyUnicode_GET_LENGTH(text) && (re || (re = mg_import("re"))))
      parts = PyObject_CallMethod(re, "split", "ss", "\\s*,\\s*", PyUnicode_AsUTF8(text));
    for (Py_ssize_t k = 0; parts && k < PyList_GET_SIZE(parts); k++) {
      PyObject *name = PyList_GET_ITEM(parts, k),
               *quoted = PyUnicode_GET_LENGTH(name) ? PyObject_CallMethod(re, "escape", "O", name) : NULL;
      PyObject *either =
          quoted ? PyUnicode_FromFormat("%U|%U", quoted, name) : NULL; /* the very name, or a pattern */
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
  mg_clear_as_no();
  bool yes = hit && hit != Py_None;
  Py_XDECREF(hit);
  return yes;
}

/* Is this number one at once, where dynamic=True asks for it?  Sizes of 0 and 1 are constants,
 * floats without a value, too. */
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
  int setting = mg_dynfloat_setting(val);
  if (mg_dynfloat_is_number(val) && (mg_dynfloat_listed(src, false) || mg_dynfloat_listed(src, true)))
    return true;
  if (!setting || !(mg_dynfloat_is_number(val) || mg_dynfloat_has_parts(val))) return false;
  /* NumPy's numbers stand for arrays without dimensions, whose values are no constants either */
  if ((mg_guard_numpy_number(val) || (setting == 1 && dynfloat_at_once(val))) &&
      dynfloat_is_argument(mg_rec->guards, src))
    return true;
  bool moves = mg_rec->guards->src[src].trait & SRC_MOVES && !mg_dynfloat_has_parts(val);
  if (moves && dynfloat_at_once(val)) return true; /* of another object at each call */
  return mg_rec->dyn && mg_dynfloat_knows(mg_dynfloat_name(mg_rec->guards, src));
}

SrcRef mg_dynfloat_key(PyObject *dict, PyObject *owner, PyObject *key, PyObject *val) {
  bool is_input = mg_rec && val && (mg_dynfloat_moves(dict, key, val) || mg_dynfloat_changes(dict, key, val));
  return is_input ? mg_dynfloat_key_source(dict, owner, key) : 0;
}

SrcRef mg_dynfloat_class_attr(PyTypeObject *t, PyObject *name, PyObject *val) {
  if (!val || !(t->tp_flags & Py_TPFLAGS_HEAPTYPE) || !mg_dynfloat_changes((PyObject *)t, name, val))
    return 0;
  return mg_source(mg_rec->guards, SRC_class_attr, mg_source(mg_rec->guards, SRC_pinned, 0, 0, (PyObject *)t),
                   0, name);
}

bool mg_transient_class(PyTypeObject *t) {
  const MgMap *m = mg_rec ? mg_rec->transient : NULL;
  return m && m->n && mg_map_getp(m, t) != MG_MAP_NONE;
}

bool mg_dynfloat_keys(SrcRef src, PyObject *dict, PyObject *keys) {
  Py_ssize_t n = PyTuple_GET_SIZE(keys), numbers = 0;
  if (!mg_rec->dyn || n > MG_TUNE_NUMBER_KEYS) return false;
  for (Py_ssize_t i = 0; i < n; i++) numbers += PyLong_CheckExact(PyTuple_GET_ITEM(keys, i));
  bool knows = numbers && mg_dynfloat_setting(dict) &&
               mg_dynfloat_knows(mg_dynfloat_keys_name(mg_rec->guards, src, dict));
  return knows && mg_guard_plain_order(dict);
}

bool mg_dynfloat_length(SrcRef src, PyObject *container) {
  if (!mg_rec->dyn || mg_rec->cfg->fullgraph) return false;
  return mg_dynfloat_knows(mg_dynfloat_lengths_name(mg_rec->guards, src, container));
}

bool mg_dynfloat_texts(void) {
  return mg_rec->dyn && !mg_rec->cfg->fullgraph && mg_dynfloat_texts_break(mg_rec->dyn);
}

bool mg_dynfloat_text(SrcRef src) {
  return mg_dynfloat_knows(mg_dynfloat_text_name(mg_dynfloat_name(mg_rec->guards, src)));
}

bool mg_dynfloat_iterators(void) { return mg_rec->dyn && mg_dynfloat_knows(Py_NewRef(mg_names.iterator)); }

SrcRef mg_dynfloat_guard_key(MgGuards *g, PyObject *dict, PyObject *owner, PyObject *name, PyObject *v) {
  bool moves = mg_dynfloat_moves(dict, name, v),
       changes = !moves && mg_rec && v && mg_dynfloat_changes(dict, name, v);
  if (!moves) mg_guard_dict_key(g, dict, owner, name, v, changes);
  return mg_rec && (moves || changes) ? mg_dynfloat_key_source(dict, owner, name) : 0;
}

bool mg_dynfloat_knows(PyObject *name) { /* steals name */
  int has = name ? PySet_Contains(mg_rec->dyn, name) : -1;
  Py_XDECREF(name);
  if (has < 0) mg_clear_as_no();
  return has > 0;
}

int mg_dynfloat_setting(PyObject *val) {
  if (mg_rec->cap && mg_rec->cap->sizes.all) return 1;
  return mg_rec->cfg && PyLong_CheckExact(val) ? mg_rec->cfg->dynamic : -1;
}

bool mg_dynfloat_moves(PyObject *dict, PyObject *key, PyObject *v) {
  return v && mg_guard_key_moves(dict, key) && mg_guard_may_move(v, v);
}

bool mg_dynfloat_changes(PyObject *dict, PyObject *key, PyObject *v) {
  if (!mg_rec->dyn || !mg_dynfloat_setting(v) || !mg_dynfloat_may_change(v)) return false;
  return mg_dynfloat_knows(mg_dynfloat_key_name(dict, key));
}

SrcRef mg_dynfloat_key_source(PyObject *dict, PyObject *owner, PyObject *key) {
  MgGuards *g = mg_rec->guards;
  SrcRef s = mg_source(g, SRC_pinned, 0, 0, owner ? owner : dict);
  if (owner) s = mg_source(g, SRC_instdict, s, 0, NULL);
  return mg_source(g, SRC_key, s, 0, key);
}
