/* Instructions on objects: attributes, items, operators, pattern matching. */
#include "host/python/decode.h"
#include "host/python/hook_mode.h"
#include "host/python/pyobject.h"
#include "record/bytecode/eval_loop.h"
#include "record/call/torch_calls.h"
#include "record/core/call_args.h"
#include "record/core/capture.h"
#include "record/core/identity.h"
#include "record/core/recording.h"
#include "record/dispatch/number_operands.h"
#include "record/object/finalizers.h"
#include "record/object/wrap.h"
#include "record/symbolic/number_index.h"
#include "record/symbolic/number_ops.h"

/* ---- attributes ---- */

MgStep mg_op_LOAD_ATTR(MgLoop *l, const MgInstr *in) {
  uint32_t n = l->rec ? l->rec->ident->n : 0;
  PyObject *v = loop_getattr(l, TOS(), CO_NAME(in->arg));
  if (v && l->rec && l->rec->ident->nlazy && (mg_older_fill_others(v, n) || mg_older_look(v))) Py_CLEAR(v);
  return loop_result(l, 1, v);
}

/* Replaces the n topmost entries by what a call expects. */
static MgStep ops_push_method(MgLoop *l, int n, PyObject *self, PyObject *m) {
  if (!m) return STEP_error;
  PyObject *f = m, *first = NULL;
  if (Py_IS_TYPE(m, &PyMethod_Type) && PyMethod_GET_SELF(m) == self) {
    f = Py_NewRef(PyMethod_GET_FUNCTION(m));
    first = Py_NewRef(self);
    Py_DECREF(m);
  }
  loop_drop(l, n, 0);
  loop_push_callee(l, f, first);
  return STEP_next;
}

MgStep mg_op_LOAD_METHOD(MgLoop *l, const MgInstr *in) {
  PyObject *self = TOS();
  return ops_push_method(l, 1, self, loop_getattr(l, self, CO_NAME(in->arg)));
}

MgStep mg_op_LOAD_SUPER_ATTR(MgLoop *l, const MgInstr *in) {
  PyObject *args[3] = {NULL, PEEK(2), TOS()}, *self = TOS();
  PyObject *proxy = loop_call(l, PEEK(3), args + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
  if (!proxy) return STEP_error;
  PyObject *v = loop_getattr(l, proxy, CO_NAME(in->arg));
  Py_DECREF(proxy);
  return in->flag & 1 ? ops_push_method(l, 3, self, v) : loop_result(l, 3, v);
}

static int ops_setattr(MgLoop *l, PyObject *o, PyObject *name, PyObject *v) {
  return l->rec ? mg_rec_setattr(o, name, v) : PyObject_SetAttr(o, name, v);
}

MgStep mg_op_STORE_ATTR(MgLoop *l, const MgInstr *in) {
  return loop_drop(l, 2, ops_setattr(l, TOS(), CO_NAME(in->arg), PEEK(2)));
}

MgStep mg_op_DELETE_ATTR(MgLoop *l, const MgInstr *in) {
  return loop_drop(l, 1, ops_setattr(l, TOS(), CO_NAME(in->arg), NULL));
}

/* ---- items ---- */

static PyObject *ops_getitem(MgLoop *l, PyObject *o, PyObject *key) {
  return l->rec ? mg_rec_getitem(o, key) : PyObject_GetItem(o, key);
}
static int ops_setitem(MgLoop *l, PyObject *o, PyObject *key, PyObject *v) {
  return l->rec ? mg_rec_setitem(o, key, v) : v ? PyObject_SetItem(o, key, v) : PyObject_DelItem(o, key);
}

MgStep mg_op_BINARY_SUBSCR(MgLoop *l, const MgInstr *in) {
  return loop_result(l, 2, ops_getitem(l, PEEK(2), TOS()));
}

MgStep mg_op_STORE_SUBSCR(MgLoop *l, const MgInstr *in) {
  return loop_drop(l, 3, ops_setitem(l, PEEK(2), TOS(), PEEK(3)));
}

MgStep mg_op_DELETE_SUBSCR(MgLoop *l, const MgInstr *in) {
  return loop_drop(l, 2, ops_setitem(l, PEEK(2), TOS(), NULL));
}

MgStep mg_op_BINARY_SLICE(MgLoop *l, const MgInstr *in) {
  PyObject *slice = PySlice_New(PEEK(2), TOS(), NULL);
  PyObject *v = slice ? ops_getitem(l, PEEK(3), slice) : NULL;
  Py_XDECREF(slice);
  return loop_result(l, 3, v);
}

MgStep mg_op_STORE_SLICE(MgLoop *l, const MgInstr *in) {
  PyObject *slice = PySlice_New(PEEK(2), TOS(), NULL);
  int rc = slice ? ops_setitem(l, PEEK(3), slice, PEEK(4)) : -1;
  Py_XDECREF(slice);
  return loop_drop(l, 4, rc);
}

/* ---- operators ---- */

static MgStep ops_unary(MgLoop *l, PyObject *(*fn)(PyObject *)) {
  return loop_touch(l, TOS()) ? STEP_error : loop_result(l, 1, fn(TOS()));
}
MgStep mg_op_UNARY_POSITIVE(MgLoop *l, const MgInstr *in) { return ops_unary(l, PyNumber_Positive); }
MgStep mg_op_UNARY_NEGATIVE(MgLoop *l, const MgInstr *in) { return ops_unary(l, PyNumber_Negative); }
MgStep mg_op_UNARY_INVERT(MgLoop *l, const MgInstr *in) { return ops_unary(l, PyNumber_Invert); }

MgStep mg_op_TO_BOOL(MgLoop *l, const MgInstr *in) {
  int t = loop_true(l, TOS());
  return t < 0 ? STEP_error : loop_result(l, 1, PyBool_FromLong(t));
}

MgStep mg_op_UNARY_NOT(MgLoop *l, const MgInstr *in) {
  int t = loop_true(l, TOS());
  return t < 0 ? STEP_error : loop_result(l, 1, PyBool_FromLong(!t));
}

static PyObject *ops_power(PyObject *a, PyObject *b) { return PyNumber_Power(a, b, Py_None); }
static PyObject *ops_inplace_power(PyObject *a, PyObject *b) { return PyNumber_InPlacePower(a, b, Py_None); }
typedef PyObject *(*OpsBinary)(PyObject *, PyObject *);
static const OpsBinary ops_binary[] = {/* by CPython's NB_* numbers */
                                       PyNumber_Add,
                                       PyNumber_And,
                                       PyNumber_FloorDivide,
                                       PyNumber_Lshift,
                                       PyNumber_MatrixMultiply,
                                       PyNumber_Multiply,
                                       PyNumber_Remainder,
                                       PyNumber_Or,
                                       ops_power,
                                       PyNumber_Rshift,
                                       PyNumber_Subtract,
                                       PyNumber_TrueDivide,
                                       PyNumber_Xor,
                                       PyNumber_InPlaceAdd,
                                       PyNumber_InPlaceAnd,
                                       PyNumber_InPlaceFloorDivide,
                                       PyNumber_InPlaceLshift,
                                       PyNumber_InPlaceMatrixMultiply,
                                       PyNumber_InPlaceMultiply,
                                       PyNumber_InPlaceRemainder,
                                       PyNumber_InPlaceOr,
                                       ops_inplace_power,
                                       PyNumber_InPlaceRshift,
                                       PyNumber_InPlaceSubtract,
                                       PyNumber_InPlaceTrueDivide,
                                       PyNumber_InPlaceXor};

enum { OPS_INPLACE = 13 }; /* the first of the operators in place */

static bool ops_is_matmul(int op) {
  return op >= 0 &&
         (ops_binary[op] == PyNumber_MatrixMultiply || ops_binary[op] == PyNumber_InPlaceMatrixMultiply);
}

/* A product of matrices raised: its C++ may want sizes as numbers, where they are symbols. */
static PyObject *ops_matmul_again(PyObject *a, PyObject *b, uint32_t nodes) {
  PyObject *t, *v, *tb, *arg[2] = {a, b}, *r = NULL;
  PyErr_Fetch(&t, &v, &tb);
  PyObject *operators = mg_import("_operator"),
           *f = operators ? PyObject_GetAttrString(operators, "matmul") : NULL;
  PyErr_Restore(t, v, tb);
  if (f) r = mg_call_sizes(&(MgCall){.f = f, .arg = arg, .nargsf = 2, .npos = 2, .n = 2}, nodes);
  Py_XDECREF(operators);
  Py_XDECREF(f);
  return r;
}

/* op: as CPython numbers it, or -1 - the comparison. */
static PyObject *ops_apply(const MgLoop *l, int op, PyObject *a, PyObject *b) {
  bool power = op >= 0 && (ops_binary[op] == ops_power || ops_binary[op] == ops_inplace_power);
  int tensors = l->rec && mg_rec->cap->syms && !power ? mg_symfloat_operands(&a, &b) : 0;
  if (tensors < 0) return NULL;
  uint32_t nodes = l->rec ? mg_rec->g->nnode : 0;
  PyObject *r = op < 0 ? PyObject_RichCompare(a, b, -1 - op) : ops_binary[op](a, b);
  if (!r && l->rec && !mg_rec->abort && mg_rec->cap->sizes.nsrc && ops_is_matmul(op))
    r = ops_matmul_again(a, b, nodes);
  if (!tensors) return r;
  Py_DECREF(a);
  Py_DECREF(b);
  return r;
}

MgStep mg_op_BINARY_OP(MgLoop *l, const MgInstr *in) {
  if ((size_t)in->arg >= sizeof ops_binary / sizeof *ops_binary) return STEP_unknown;
  if (loop_touch(l, PEEK(2)) || loop_touch(l, TOS())) return STEP_error;
  if (l->rec) mg_numkey_seen(PEEK(2), TOS());
  if (l->rec && in->arg >= OPS_INPLACE && mg_finalizer_inplace(PEEK(2), TOS())) return STEP_error;
  return loop_result(l, 2, ops_apply(l, in->arg, PEEK(2), TOS()));
}

MgStep mg_op_COMPARE_OP(MgLoop *l, const MgInstr *in) {
  if (l->rec) {
    mg_compared(PEEK(2));
    mg_compared(TOS());
  }
  if (loop_touch(l, PEEK(2)) || loop_touch(l, TOS())) return STEP_error;
  if (l->rec) mg_numkey_seen(PEEK(2), TOS());
  return loop_result(l, 2, ops_apply(l, -1 - in->arg, PEEK(2), TOS()));
}

MgStep mg_op_IS_OP(MgLoop *l, const MgInstr *in) {
  int same = l->rec ? mg_rec_is(PEEK(2), TOS()) : PEEK(2) == TOS();
  return same < 0 ? STEP_error : loop_result(l, 2, PyBool_FromLong(same ^ in->arg));
}

MgStep mg_op_CONTAINS_OP(MgLoop *l, const MgInstr *in) {
  int found = l->rec ? mg_rec_contains(TOS(), PEEK(2)) : PySequence_Contains(TOS(), PEEK(2));
  return found < 0 ? STEP_error : loop_result(l, 2, PyBool_FromLong(found ^ in->arg));
}

/* ---- pattern matching ---- */

MgStep mg_op_GET_LEN(MgLoop *l, const MgInstr *in) {
  if (l->rec && mg_rec_touch_keys(TOS())) return STEP_error;
  Py_ssize_t n = PyObject_Length(TOS());
  return n < 0 ? STEP_error : loop_result(l, 0, PyLong_FromSsize_t(n));
}

static MgStep ops_match_kind(MgLoop *l, unsigned long flag) {
  return loop_result(l, 0, PyBool_FromLong((Py_TYPE(TOS())->tp_flags & flag) != 0));
}
MgStep mg_op_MATCH_MAPPING(MgLoop *l, const MgInstr *in) { return ops_match_kind(l, Py_TPFLAGS_MAPPING); }
MgStep mg_op_MATCH_SEQUENCE(MgLoop *l, const MgInstr *in) { return ops_match_kind(l, Py_TPFLAGS_SEQUENCE); }

/* Values of the keys, as a new tuple; None when one is missing. */
static PyObject *ops_match_keys(MgLoop *l, PyObject *map, PyObject *keys) {
  Py_ssize_t n = PyTuple_GET_SIZE(keys);
  PyObject *seen = PySet_New(NULL), *dummy = NULL, *name = NULL, *get = NULL, *values = NULL;
  if (!seen || !(dummy = PyList_New(0)) || !(name = PyUnicode_InternFromString("get"))) goto done;
  if (!(get = loop_getattr(l, map, name)) || !(values = PyTuple_New(n))) goto done;
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *key = PyTuple_GET_ITEM(keys, i), *args[3] = {NULL, key, dummy};
    int dup = PySet_Contains(seen, key);
    if (dup || PySet_Add(seen, key)) {
      if (dup > 0) PyErr_Format(PyExc_ValueError, "mapping pattern checks duplicate key (%R)", key);
      Py_CLEAR(values);
      goto done;
    }
    PyObject *v = loop_call(l, get, args + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    if (!v || v == dummy) {
      Py_XDECREF(v);
      Py_SETREF(values, v ? Py_NewRef(Py_None) : NULL);
      goto done;
    }
    PyTuple_SET_ITEM(values, i, v);
  }
done:
  Py_XDECREF(seen);
  Py_XDECREF(dummy);
  Py_XDECREF(name);
  Py_XDECREF(get);
  return values;
}

MgStep mg_op_MATCH_KEYS(MgLoop *l, const MgInstr *in) {
  return loop_result(l, 0, ops_match_keys(l, PEEK(2), TOS()));
}

/* Appends subject.name to attrs: 1, 0 when there is no such attribute, -1 with exception. */
static int ops_match_attr(MgLoop *l, PyObject *subject, PyObject *type, PyObject *name, PyObject *seen,
                          PyObject *attrs) {
  int dup = PySet_Contains(seen, name);
  if (dup || PySet_Add(seen, name)) {
    if (dup > 0)
      PyErr_Format(PyExc_TypeError, "%s() got multiple sub-patterns for attribute %R",
                   ((PyTypeObject *)type)->tp_name, name);
    return -1;
  }
  PyObject *v = loop_getattr(l, subject, name);
  if (!v) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return -1;
    mg_clear_if(PyExc_AttributeError);
    return 0;
  }
  int rc = PyList_Append(attrs, v);
  Py_DECREF(v);
  return rc ? -1 : 1;
}

/* Types that match themselves: `case int(x)` binds x to the subject. */
static bool ops_match_self(PyTypeObject *t) { return (t->tp_flags & _Py_TPFLAGS_MATCH_SELF) != 0; }

/* Attributes that a class pattern binds, as a new tuple; None when the subject does not match. */
static PyObject *ops_match_class(MgLoop *l, PyObject *subject, PyObject *type, Py_ssize_t npos,
                                 PyObject *kw) {
  if (!PyType_Check(type)) {
    PyErr_SetString(PyExc_TypeError, "called match pattern must be a class");
    return NULL;
  }
  PyObject *seen = NULL, *attrs = NULL, *margs = NULL, *result = NULL, *name = NULL;
  int is = PyObject_IsInstance(subject, type);
  if (is <= 0) return is < 0 ? NULL : Py_NewRef(Py_None);
  if (!(seen = PySet_New(NULL)) || !(attrs = PyList_New(0))) goto done;
  if (npos) {
    bool self = false;
    if (!(name = PyUnicode_InternFromString("__match_args__"))) goto done;
    margs = loop_getattr(l, type, name);
    if (!margs) {
      if (!PyErr_ExceptionMatches(PyExc_AttributeError)) goto done;
      mg_clear_if(PyExc_AttributeError);
      if (!(margs = PyTuple_New(0))) goto done;
      self = ops_match_self((PyTypeObject *)type);
    }
    if (!PyTuple_CheckExact(margs)) {
      PyErr_Format(PyExc_TypeError, "%s.__match_args__ must be a tuple (got %s)",
                   ((PyTypeObject *)type)->tp_name, Py_TYPE(margs)->tp_name);
      goto done;
    }
    Py_ssize_t allowed = self ? 1 : PyTuple_GET_SIZE(margs);
    if (allowed < npos) {
      PyErr_Format(PyExc_TypeError, "%s() accepts %zd positional sub-pattern%s (%zd given)",
                   ((PyTypeObject *)type)->tp_name, allowed, allowed == 1 ? "" : "s", npos);
      goto done;
    }
    if (self && PyList_Append(attrs, subject)) goto done;
    for (Py_ssize_t i = 0; !self && i < npos; i++) {
      PyObject *attr = PyTuple_GET_ITEM(margs, i);
      if (!PyUnicode_CheckExact(attr)) {
        PyErr_Format(PyExc_TypeError, "__match_args__ elements must be strings (got %s)",
                     Py_TYPE(attr)->tp_name);
        goto done;
      }
      int found = ops_match_attr(l, subject, type, attr, seen, attrs);
      if (found <= 0) {
        result = found ? NULL : Py_NewRef(Py_None);
        goto done;
      }
    }
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(kw); i++) {
    int found = ops_match_attr(l, subject, type, PyTuple_GET_ITEM(kw, i), seen, attrs);
    if (found <= 0) {
      result = found ? NULL : Py_NewRef(Py_None);
      goto done;
    }
  }
  result = PyList_AsTuple(attrs);
done:
  Py_XDECREF(seen);
  Py_XDECREF(attrs);
  Py_XDECREF(margs);
  Py_XDECREF(name);
  return result;
}

MgStep mg_op_MATCH_CLASS(MgLoop *l, const MgInstr *in) {
  PyObject *x = l->rec ? mg_symfloat_plain(PEEK(3))
                       : Py_NewRef(PEEK(3)); /* a pattern like int(n) captures the number itself */
  PyObject *r = x ? ops_match_class(l, x, PEEK(2), in->arg, TOS()) : NULL;
  Py_XDECREF(x);
  return loop_result(l, 3, r);
}
