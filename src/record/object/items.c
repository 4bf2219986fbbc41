/* Subscripts, iteration, membership and identity while recording.  Copies of older containers are ordinary
 * objects here; what needs care are older objects whose state lives in C. */
#include "record/object/items.h"
#include <string.h>
#include "entry/guard/guard_add.h"
#include "host/python/hook_mode.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "results.h"
#include "record/core/capture.h"
#include "record/core/identity.h"
#include "record/core/loop.h"
#include "record/core/recording.h"
#include "record/numpy/array_type.h"
#include "record/numpy/host_random.h"
#include "record/object/attributes.h"
#include "record/object/class_writes.h"
#include "record/object/finalizers.h"
#include "record/object/lazy_constants.h"
#include "record/object/namespaces.h"
#include "record/object/wrap.h"
#include "record/symbolic/number.h"
#include "record/symbolic/number_ops.h"
#include "record/symbolic/number_index.h"

int mg_rec_touch(PyObject *o) {
  if (!mg_rec || !mg_older_opaque(o)) return 0;
  mg_rec_break(BK_older_object, "an older %s is read by C", Py_TYPE(o)->tp_name);
  return -1;
}

int mg_rec_touch_keys(PyObject *o) {
  if (!mg_rec || !mg_older_opaque(o)) return 0;
  PyObject *mapping = mg_rec_class_mapping(o);
  if (mapping && !mg_class_wrote_dict(mapping, NULL)) {
    mg_guard_dict_all(mg_rec->guards, mapping, NULL, false);
    return 0;
  }
  return mg_rec_readable_dict(o) ? 0 : mg_rec_touch(o);
}

/* Does the class implement this operation in Python (which is then recorded)? */
static bool seq_in_python(PyObject *o, PyObject *name) {
  PyTypeObject *t = Py_TYPE(o);
  if (!(t->tp_flags & Py_TPFLAGS_HEAPTYPE)) return false;
  PyObject *d = mg_rec_lookup_special(t, name);
  return d && Py_TYPE(d) == &PyFunction_Type;
}

/* An index of a tensor that has arrays in it: with their tensors in place of them; NULL
 * without exception: it has none. */
static PyObject *seq_tensor_index(PyObject *o, PyObject *key) {
  if (!mg_rec || !mg_standin_check(o) || !(mg_array_check(key) || PyTuple_CheckExact(key))) return NULL;
  return mg_array_index(key);
}

int mg_rec_find_number(PyObject *dict, PyObject *key, PyObject **same) {
  if (mg_symnode_of(key) && mg_olderdict_lazy(dict) && mg_olderdict_fill(dict)) return -1;
  return mg_numkey_find(dict, key, same);
}

PyObject *mg_rec_getitem(PyObject *o, PyObject *key) {
  if (mg_olderdict_lazy(o)) {
    PyObject *v = mg_olderdict_get(o, key);
    if (!v && !PyErr_Occurred() && mg_olderdict_lazy(o))
      mg_unread_look(key), PyErr_SetObject(PyExc_KeyError, key);
    if (v || PyErr_Occurred()) return v;
  }
  if (mg_rec && PyDict_Check(o)) mg_compared(key);
  PyObject *same;
  int found = mg_rec ? mg_rec_find_number(o, key, &same) : MG_ASK_PYTHON;
  if (found == 1) return mg_numkey_get(o, same);
  if (found == 0) PyErr_SetObject(PyExc_KeyError, key);
  if (found != MG_ASK_PYTHON) return NULL;
  PyObject *item = mg_symask_item(o, key),
           *index = item || PyErr_Occurred() ? NULL : seq_tensor_index(o, key);
  if (index) item = PyObject_GetItem(o, index);
  Py_XDECREF(index);
  if (item || PyErr_Occurred()) return item;
  if (mg_rec && PyDict_Check(o) && mg_older(o)) {
    mg_older_pin(key); /* found by its hash */
    if (mg_rec_is_namespace(o) && PyUnicode_CheckExact(key)) {
      PyObject *r = mg_rec_namespace_get(o, key);
      if (!r && !PyErr_Occurred()) PyErr_SetObject(PyExc_KeyError, key);
      return r;
    }
  }
  if (!mg_rec || seq_in_python(o, mg_names.getitem) || !mg_older_opaque(o)) return PyObject_GetItem(o, key);
  PyObject *mapping = mg_rec_class_mapping(o);
  if (mapping) {
    PyObject *r = mg_rec_class_mapping_get(mapping, key);
    if (!r && !PyErr_Occurred()) PyErr_SetObject(PyExc_KeyError, key);
    return r;
  }
  if (!PyDict_Check(o)) {
    mg_rec_touch(o);
    return NULL;
  }
  PyObject *v = PyDict_GetItemWithError(o, key);
  if (!v && PyErr_Occurred()) return NULL;
  if (!v && !mg_rec_readable_dict(o))
    return mg_rec_break(BK_older_object, "subscript of an older %s", Py_TYPE(o)->tp_name);
  if (!v) return PyObject_GetItem(o, key); /* __missing__ or KeyError */
  return mg_wrap_key(o, key, v);
}

/* o[key] = v, or del o[key] with v NULL, where a number that runs compute is the key or one of the keys.
 * -1 with an exception; MG_ASK_PYTHON: there is no such number. */
static int seq_set_number(PyObject *o, PyObject *key, PyObject *v) {
  PyObject *same;
  int found = mg_rec_find_number(o, key, &same);
  if (found < 0) return found;
  if (!found && !v) return PyErr_SetObject(PyExc_KeyError, key), -1;
  bool before = mg_numkey_begin(), ends = found && mg_finalizer_item(o, same);
  mg_numkey_end(before);
  return ends ? -1 : mg_numkey_set(o, found ? same : key, v);
}

int mg_rec_setitem(PyObject *o, PyObject *key, PyObject *v) {
  int number = mg_rec ? seq_set_number(o, key, v) : MG_ASK_PYTHON;
  if (number != MG_ASK_PYTHON) return number;
  if (mg_rec && mg_finalizer_item(o, key)) return -1;
  if (mg_rec && PyDict_Check(o)) mg_compared(key);
  if (mg_rec && mg_rec_is_namespace(o)) {
    if (PyUnicode_CheckExact(key)) return mg_rec_namespace_set(o, key, v);
    mg_rec_break(BK_namespace, "a key of a namespace that is no string");
    return -1;
  }
  if (mg_rec && !seq_in_python(o, mg_names.setitem) && mg_older_opaque(o)) {
    mg_rec_break(BK_older_write, "a write into an older %s", Py_TYPE(o)->tp_name);
    return -1;
  }
  PyObject *index = v ? seq_tensor_index(o, key) : NULL;
  if (v && mg_rec && mg_standin_check(o) && mg_array_check(v)) {
    mg_rec_break(BK_numpy, "a NumPy array is assigned to items of a tensor");
    Py_XDECREF(index);
    return -1;
  }
  if (!v || PyErr_Occurred()) return v ? -1 : PyObject_DelItem(o, key);
  int rc = PyObject_SetItem(o, index ? index : key, v);
  Py_XDECREF(index);
  return rc;
}

PyObject *mg_rec_iter(PyObject *o) {
  if (mg_rec && PyGen_Check(o) && !mg_is_fresh(o))
    return mg_rec_break(BK_generator, "iteration over a generator from outside");
  if (mg_rec && mg_rec_is_namespace(o)) return mg_rec_break(BK_namespace, "iteration over a namespace");
  if (mg_rec && !seq_in_python(o, mg_names.iter) && mg_rec_touch_keys(o)) return NULL;
  return PyObject_GetIter(o);
}

PyObject *mg_rec_next(PyObject *it) {
  PyTypeObject *t = Py_TYPE(it);
  if (!mg_rec) return t->tp_iternext(it);
  if (PyGen_Check(it) && !mg_is_fresh(it))
    return mg_rec_break(BK_generator, "next of a generator from outside");
  if (!seq_in_python(it, mg_names.next) && mg_older_opaque(it))
    return strcmp(t->tp_name, "itertools.count")
               ? mg_rec_break(BK_iterator, "next of an older %s", t->tp_name)
               : mg_draw_next(it);
  bool hashing = mg_numkey_begin(); /* those of an OrderedDict look each key up */
  PyObject *v = t == &PyODictIter_Type ? t->tp_iternext(it) : NULL;
  mg_numkey_end(hashing);
  if (t != &PyODictIter_Type) v = t->tp_iternext(it);
  if (!v) return NULL;
  if (!PyObject_TypeCheck(v, mg_torch.tensor) || mg_standin_check(v)) return v;
  PyObject *w = mg_wrap_result(v);
  Py_DECREF(v);
  return w;
}

/* Is a number that a run computes among constants?  The keys of c are guarded; the answer
 * for the number is, by itself.
 * -1 with an exception; MG_ASK_PYTHON: as for other objects. */
static int seq_contains_number(PyObject *c, PyObject *x) {
  if (!mg_symfloat_is(x) || (!PyDict_Check(c) && !PyAnySet_Check(c)) || seq_in_python(c, mg_names.contains))
    return MG_ASK_PYTHON;
  if (mg_rec_is_namespace(c) || mg_older_opaque(c)) return MG_ASK_PYTHON;
  PyObject *keys = mg_numkey_list(c), *set = NULL, *has = NULL, *r = NULL;
  bool plain = keys != NULL;
  for (Py_ssize_t i = 0; plain && i < PyList_GET_SIZE(keys); i++) {
    PyObject *k = PyList_GET_ITEM(keys, i);
    plain = PyLong_CheckExact(k) || PyFloat_CheckExact(k) || PyUnicode_CheckExact(k) || k == Py_None;
  }
  if (plain && (set = PyFrozenSet_New(keys))) has = PyObject_GetAttr(set, mg_names.contains);
  if (has) r = mg_symfloat_call(x, has);
  Py_XDECREF(has);
  Py_XDECREF(set);
  Py_XDECREF(keys);
  if (!keys || (plain && !has)) return -1;
  int yes = r ? PyObject_IsTrue(r) : PyErr_Occurred() ? -1 : MG_ASK_PYTHON;
  Py_XDECREF(r);
  return yes;
}

int mg_rec_contains(PyObject *c, PyObject *x) {
  const char *view = "";
  PyObject *viewed = mg_rec && mg_rec->ident->nlazy ? mg_view_of(c, &view) : NULL;
  PyObject *dict = viewed && !strcmp(view, "keys") ? viewed : c;
  int has = mg_olderdict_lazy(dict) ? mg_olderdict_contains(dict, x) : MG_ASK_PYTHON;
  if (has != MG_ASK_PYTHON) return has;
  if (mg_rec) {
    mg_compared(c);
    mg_compared(x);
  }
  PyObject *same;
  int number = mg_rec ? seq_contains_number(c, x) : MG_ASK_PYTHON;
  if (number == MG_ASK_PYTHON && mg_rec) number = mg_rec_find_number(c, x, &same);
  if (number != MG_ASK_PYTHON) return number;
  if (mg_rec && ((PyDict_Check(c) && mg_older(c)) || PyAnySet_Check(c))) mg_older_pin(x);
  if (mg_rec && mg_rec_is_namespace(c)) {
    if (!PyUnicode_CheckExact(x))
      return mg_rec_break(BK_namespace, "a key of a namespace that is no string"), -1;
    PyObject *r = mg_rec_namespace_get(c, x);
    Py_XDECREF(r);
    return r ? 1 : PyErr_Occurred() ? -1 : 0;
  }
  if (!mg_rec || seq_in_python(c, mg_names.contains) || !mg_older_opaque(c)) return PySequence_Contains(c, x);
  PyObject *mapping = mg_rec_class_mapping(c);
  if (mapping) {
    PyObject *r = mg_rec_class_mapping_get(mapping, x);
    Py_XDECREF(r);
    return r ? 1 : PyErr_Occurred() ? -1 : 0;
  }
  if (!PyDict_Check(c)) return mg_rec_touch(c) ? -1 : PySequence_Contains(c, x);
  PyObject *v = PyDict_GetItemWithError(c, x);
  if (!v && PyErr_Occurred()) return -1;
  mg_older_pin(c);
  mg_guard_dict_key(mg_rec->guards, c, NULL, x, v, false);
  return v != NULL;
}

/* Two different objects: when both may be others at the next call, that they differ is guarded. */
int mg_rec_is(PyObject *a, PyObject *b) {
  if (a == b) return 1;
  if (!mg_rec) return 0;
  if ((a = mg_unread_orig(a)) == (b = mg_unread_orig(b))) return 1;
  if (mg_symfloat_is(a) && mg_symfloat_is(b) && mg_symnode_of(a)->src &&
      mg_symnode_of(a)->src == mg_symnode_of(b)->src)
    return 1;
  if (mg_symfloat_is_bool(a) || mg_symfloat_is_bool(b)) { /* there are two of them */
    PyObject *x = mg_symfloat_plain(a), *y = x ? mg_symfloat_plain(b) : NULL;
    int same = y ? x == y : -1;
    Py_XDECREF(x);
    Py_XDECREF(y);
    return same;
  }
  MgOlder *p = mg_older(a), *q = mg_older(b);
  bool pa = p && mg_older_by_path(p), qa = q && mg_older_by_path(q);
  if (pa && qa) {
    if (Py_TYPE(p->orig) == Py_TYPE(q->orig)) mg_guard_pair(mg_rec->guards, GK_distinct, p->src, q->src, 0);
  } else if (pa && q) mg_guard_add(mg_rec->guards, GK_not, p->src, q->orig, 0);
  else if (qa && p) mg_guard_add(mg_rec->guards, GK_not, q->src, p->orig, 0);
  return 0;
}

PyObject *mg_loop_list(MgLoop *l, PyObject *o) {
  PyObject *list = PyList_New(0), *it = list ? loop_iter(l, o) : NULL, *v = NULL;
  while (it && (v = mg_loop_next(l, it))) {
    if (PyList_Append(list, v)) break;
    Py_CLEAR(v);
  }
  Py_XDECREF(v);
  Py_XDECREF(it);
  if (!it || PyErr_Occurred()) Py_CLEAR(list);
  return list;
}

PyObject *mg_array_index(PyObject *o) {
  if (mg_array_check(o)) return Py_NewRef(mg_array_tensor(o));
  if (!PyTuple_CheckExact(o)) return Py_NewRef(o);
  PyObject *t = PyTuple_New(PyTuple_GET_SIZE(o));
  for (Py_ssize_t i = 0; t && i < PyTuple_GET_SIZE(o); i++) {
    PyObject *x = PyTuple_GET_ITEM(o, i);
    PyTuple_SET_ITEM(t, i, Py_NewRef(mg_array_check(x) ? mg_array_tensor(x) : x));
  }
  return t;
}

/* ---- iteration ---- */

PyObject *mg_loop_next(MgLoop *l, PyObject *it) {
  PyObject *v = l->rec ? mg_rec_next(it) : Py_TYPE(it)->tp_iternext(it);
  if (!v && PyErr_Occurred()) mg_clear_if(PyExc_StopIteration);
  return v;
}
