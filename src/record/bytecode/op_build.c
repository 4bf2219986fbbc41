/* Instructions that build objects: containers, strings, slices, functions. */
#include "host/python/decode.h"
#include "host/python/pyobject.h"
#include "record/bytecode/eval_loop.h"
#include "record/core/identity.h"
#include "record/core/recording.h"
#include "record/object/lazy_text.h"
#include "record/object/wrap.h"
#include "record/symbolic/number_index.h"

/* ---- t-strings, from 3.14 on ---- */

#if PY_VERSION_HEX >= 0x030E0000
static MgStep build_fresh(MgLoop *l, int n, PyObject *v) {
  if (v && l->rec) mg_fresh(v);
  return loop_result(l, n, v);
}

MgStep mg_op_BUILD_INTERPOLATION(MgLoop *l, const MgInstr *in) {
  int spec = in->arg & 1;
  PyObject *format = spec ? TOS() : NULL;
  return build_fresh(l, 2 + spec,
                     mg_pyframe_interpolation(PEEK(2 + spec), PEEK(1 + spec), in->arg >> 2, format));
}
MgStep mg_op_BUILD_TEMPLATE(MgLoop *l, const MgInstr *in) {
  return build_fresh(l, 2, mg_pyframe_template(PEEK(2), TOS()));
}
#else
MgStep mg_op_BUILD_INTERPOLATION(MgLoop *l, const MgInstr *in) { return STEP_unknown; }
MgStep mg_op_BUILD_TEMPLATE(MgLoop *l, const MgInstr *in) { return STEP_unknown; }
#endif

/* ---- containers ---- */

/* Moves the n topmost entries into a new sequence. */
static MgStep build_sequence(MgLoop *l, int n, PyObject *seq, PyObject **items) {
  if (!seq) return STEP_error;
  l->sp -= n;
  if (n) memcpy(items, l->sp, sizeof *items * (size_t)n);
  PUSH(seq);
  return STEP_next;
}

MgStep mg_op_BUILD_TUPLE(MgLoop *l, const MgInstr *in) {
  PyObject *t = PyTuple_New(in->arg);
  return build_sequence(l, in->arg, t, t ? ((PyTupleObject *)t)->ob_item : NULL);
}

MgStep mg_op_BUILD_LIST(MgLoop *l, const MgInstr *in) {
  PyObject *t = PyList_New(in->arg);
  return build_sequence(l, in->arg, t, t ? ((PyListObject *)t)->ob_item : NULL);
}

MgStep mg_op_BUILD_SET(MgLoop *l, const MgInstr *in) {
  PyObject *s = PySet_New(NULL);
  for (int i = in->arg; l->rec && i > 0; i--) mg_compared(PEEK(i));
  for (int i = in->arg; s && i > 0; i--)
    if (PySet_Add(s, PEEK(i))) Py_CLEAR(s);
  return loop_result(l, in->arg, s);
}

MgStep mg_op_BUILD_MAP(MgLoop *l, const MgInstr *in) {
  PyObject *d = PyDict_New();
  for (int i = in->arg; l->rec && i > 0; i--) mg_compared(PEEK(2 * i));
  for (int i = in->arg; d && i > 0; i--)
    if (PyDict_SetItem(d, PEEK(2 * i), PEEK(2 * i - 1))) Py_CLEAR(d);
  return loop_result(l, 2 * in->arg, d);
}

MgStep mg_op_BUILD_CONST_KEY_MAP(MgLoop *l, const MgInstr *in) {
  PyObject *d = PyDict_New(), *keys = TOS();
  for (int i = 0; d && i < in->arg; i++)
    if (PyDict_SetItem(d, PyTuple_GET_ITEM(keys, i), PEEK(in->arg + 1 - i))) Py_CLEAR(d);
  return loop_result(l, in->arg + 1, d);
}

MgStep mg_op_BUILD_SLICE(MgLoop *l, const MgInstr *in) {
  int n = in->arg;
  return loop_result(l, n, PySlice_New(PEEK(n), PEEK(n - 1), n == 3 ? TOS() : NULL));
}

MgStep mg_op_BUILD_STRING(MgLoop *l, const MgInstr *in) {
  PyObject *text = l->rec ? mg_lazystr_join(l->sp - in->arg, in->arg) : NULL;
  return loop_result(l, in->arg, text || PyErr_Occurred() ? text : mg_pyframe_join(l->sp - in->arg, in->arg));
}

static PyObject *build_converted(PyObject *o, int conversion) {
  switch (conversion) {
  case MG_FORMAT_STR: return PyObject_Str(o);
  case MG_FORMAT_REPR: return PyObject_Repr(o);
  case MG_FORMAT_ASCII: return PyObject_ASCII(o);
  default: return Py_NewRef(o);
  }
}

MgStep mg_op_CONVERT_VALUE(MgLoop *l, const MgInstr *in) {
  if (loop_touch(l, TOS())) return STEP_error;
  PyObject *text = l->rec ? mg_lazystr_format(l->rec, TOS(), true, NULL) : NULL;
  return loop_result(l, 1, text || PyErr_Occurred() ? text : build_converted(TOS(), in->arg));
}

MgStep mg_op_FORMAT_VALUE(MgLoop *l, const MgInstr *in) {
  int n = in->arg & MG_FORMAT_SPEC ? 2 : 1, conversion = in->arg & MG_FORMAT_CONVERSION;
  PyObject *spec = n == 2 ? TOS() : NULL, *o = PEEK(n), *text;
  if (loop_touch(l, o)) return STEP_error;
  text = l->rec ? mg_lazystr_format(l->rec, o, conversion, spec) : NULL;
  if (text || PyErr_Occurred()) return loop_result(l, n, text);
  if (l->rec && spec && mg_date_is(o)) {
    mg_rec_break(BK_c_function, "a date in a format of its own, which the locale decides");
    return STEP_error;
  }
  text = build_converted(o, conversion);
  if (text && (spec || !PyUnicode_CheckExact(text))) Py_SETREF(text, PyObject_Format(text, spec));
  return loop_result(l, n, text);
}

/* ---- adding to a container that is being built; it lies `arg` entries below the top after the pop ---- */

MgStep mg_op_LIST_APPEND(MgLoop *l, const MgInstr *in) {
  return loop_drop(l, 1, PyList_Append(PEEK(in->arg + 1), TOS()));
}
MgStep mg_op_SET_ADD(MgLoop *l, const MgInstr *in) {
  if (l->rec) mg_compared(TOS());
  return loop_drop(l, 1, PySet_Add(PEEK(in->arg + 1), TOS()));
}
MgStep mg_op_MAP_ADD(MgLoop *l, const MgInstr *in) {
  if (l->rec) mg_compared(PEEK(2));
  return loop_drop(l, 2, PyDict_SetItem(PEEK(in->arg + 2), PEEK(2), TOS()));
}

static int build_extend(MgLoop *l, PyObject *list, PyObject *o) {
  if (!Py_TYPE(o)->tp_iter && !PySequence_Check(o)) {
    PyErr_Format(PyExc_TypeError, "Value after * must be an iterable, not %.200s", Py_TYPE(o)->tp_name);
    return -1;
  }
  PyObject *items = mg_loop_list(l, o);
  int rc = items ? PyList_SetSlice(list, PY_SSIZE_T_MAX, PY_SSIZE_T_MAX, items) : -1;
  Py_XDECREF(items);
  return rc;
}
MgStep mg_op_LIST_EXTEND(MgLoop *l, const MgInstr *in) {
  return loop_drop(l, 1, build_extend(l, PEEK(in->arg + 1), TOS()));
}

MgStep mg_op_SET_UPDATE(MgLoop *l, const MgInstr *in) {
  PyObject *set = PEEK(in->arg + 1), *items = mg_loop_list(l, TOS());
  int rc = items ? 0 : -1;
  for (Py_ssize_t i = 0; !rc && i < PyList_GET_SIZE(items); i++)
    rc = PySet_Add(set, PyList_GET_ITEM(items, i));
  Py_XDECREF(items);
  return loop_drop(l, 1, rc);
}

MgStep mg_op_DICT_UPDATE(MgLoop *l, const MgInstr *in) {
  if (loop_touch(l, TOS())) return STEP_error;
  if (l->rec) mg_numkey_seen(PEEK(in->arg + 1), TOS());
  int rc = PyDict_Update(PEEK(in->arg + 1), TOS());
  if (rc < 0 && PyErr_ExceptionMatches(PyExc_AttributeError))
    PyErr_Format(PyExc_TypeError, "'%.200s' object is not a mapping", Py_TYPE(TOS())->tp_name);
  return loop_drop(l, 1, rc);
}

/* **kwargs of a call; the called function lies below, for the message. */
MgStep mg_op_DICT_MERGE(MgLoop *l, const MgInstr *in) {
  PyObject *func = PEEK(in->arg + 3 + MG_CALLABLE_FIRST);
  if (loop_touch(l, TOS())) return STEP_error;
  int rc = mg_pyframe_dict_merge(PEEK(in->arg + 1), TOS());
  if (rc < 0 && (PyErr_ExceptionMatches(PyExc_AttributeError) || PyErr_ExceptionMatches(PyExc_KeyError))) {
    bool duplicate = PyErr_ExceptionMatches(PyExc_KeyError);
    PyObject *t, *e, *tb, *name = NULL;
    PyErr_Fetch(&t, &e, &tb);
    if (PyObject_HasAttrString(func, "__qualname__")) name = PyObject_GetAttrString(func, "__qualname__");
    if (!name) name = PyObject_Str(func);
    if (name && duplicate) {
      PyErr_NormalizeException(&t, &e, &tb);
      PyObject *args = ((PyBaseExceptionObject *)e)->args;
      PyErr_Format(PyExc_TypeError, "%U() got multiple values for keyword argument '%S'", name,
                   PyTuple_GET_SIZE(args) ? PyTuple_GET_ITEM(args, 0) : Py_None);
    } else if (name) {
      PyErr_Format(PyExc_TypeError, "%U() argument after ** must be a mapping, not %.200s", name,
                   Py_TYPE(TOS())->tp_name);
    }
    Py_XDECREF(name);
    Py_XDECREF(t);
    Py_XDECREF(e);
    Py_XDECREF(tb);
  }
  return loop_drop(l, 1, rc);
}

MgStep mg_op_LIST_TO_TUPLE(MgLoop *l, const MgInstr *in) { return loop_result(l, 1, PyList_AsTuple(TOS())); }

/* ---- unpacking ---- */

static MgStep build_unpacked(MgLoop *l, PyObject **items, Py_ssize_t n) {
  PyObject *seq = POP();
  for (Py_ssize_t i = n; i-- > 0;) PUSH(Py_NewRef(items[i]));
  Py_DECREF(seq);
  return STEP_next;
}

/* The values of a sequence that is not a plain tuple or list; at most one more than asked for is taken. */
static PyObject *build_take(MgLoop *l, PyObject *o, Py_ssize_t limit) {
  if (!Py_TYPE(o)->tp_iter && !PySequence_Check(o)) {
    PyErr_Format(PyExc_TypeError, "cannot unpack non-iterable %.200s object", Py_TYPE(o)->tp_name);
    return NULL;
  }
  PyObject *list = PyList_New(0), *it = list ? loop_iter(l, o) : NULL, *v = NULL;
  while (it && PyList_GET_SIZE(list) < limit && (v = mg_loop_next(l, it))) {
    if (PyList_Append(list, v)) break;
    Py_CLEAR(v);
  }
  Py_XDECREF(v);
  if (!it || PyErr_Occurred()) Py_CLEAR(list);
  Py_XDECREF(it);
  return list;
}

MgStep mg_op_UNPACK_SEQUENCE(MgLoop *l, const MgInstr *in) {
  PyObject *o = TOS();
  Py_ssize_t want = in->arg;
  if (PyTuple_CheckExact(o) && PyTuple_GET_SIZE(o) == want)
    return build_unpacked(l, ((PyTupleObject *)o)->ob_item, want);
  if (PyList_CheckExact(o) && PyList_GET_SIZE(o) == want)
    return build_unpacked(l, ((PyListObject *)o)->ob_item, want);
  PyObject *list = build_take(l, o, want + 1);
  if (!list) return STEP_error;
  MgStep step = STEP_error;
  Py_ssize_t got = PyList_GET_SIZE(list);
  if (got > want) PyErr_Format(PyExc_ValueError, "too many values to unpack (expected %zd)", want);
  else if (got < want)
    PyErr_Format(PyExc_ValueError, "not enough values to unpack (expected %zd, got %zd)", want, got);
  else step = build_unpacked(l, ((PyListObject *)list)->ob_item, want);
  Py_DECREF(list);
  return step;
}

MgStep mg_op_UNPACK_EX(MgLoop *l, const MgInstr *in) {
  Py_ssize_t before = in->arg & 255, after = in->arg >> 8;
  PyObject *list = build_take(l, TOS(), PY_SSIZE_T_MAX), *rest = NULL;
  if (!list) return STEP_error;
  MgStep step = STEP_error;
  Py_ssize_t n = PyList_GET_SIZE(list);
  if (n < before + after) {
    PyErr_Format(PyExc_ValueError, "not enough values to unpack (expected at least %zd, got %zd)",
                 before + after, n);
    goto done;
  }
  if (!(rest = PyList_GetSlice(list, before, n - after))) goto done;
  PyObject *o = POP(), **items = ((PyListObject *)list)->ob_item;
  Py_DECREF(o);
  for (Py_ssize_t i = n; i-- > n - after;) PUSH(Py_NewRef(items[i]));
  PUSH(rest);
  for (Py_ssize_t i = before; i-- > 0;) PUSH(Py_NewRef(items[i]));
  step = STEP_next;
done:
  Py_DECREF(list);
  return step;
}

/* ---- functions ---- */

MgStep mg_op_MAKE_FUNCTION(MgLoop *l, const MgInstr *in) {
  enum { DEFAULTS = 1, KWDEFAULTS = 2, ANNOTATIONS = 4, CLOSURE = 8, ANNOTATE = 16 };
  PyFunctionObject *fn = (PyFunctionObject *)PyFunction_New(TOS(), l->v.globals);
  if (!fn) return STEP_error;
  loop_drop(l, 1, 0);
  if (in->arg & CLOSURE) fn->func_closure = POP();
  if (in->arg & ANNOTATIONS) fn->func_annotations = POP();
#if PY_VERSION_HEX >= 0x030E0000
  if (in->arg & ANNOTATE) fn->func_annotate = POP();
#endif
  if (in->arg & KWDEFAULTS) fn->func_kwdefaults = POP();
  if (in->arg & DEFAULTS) fn->func_defaults = POP();
  if (l->rec) mg_fresh((PyObject *)fn);
  PUSH((PyObject *)fn);
  return STEP_next;
}
