/* The node protocol: what torch.SymInt, torch.SymFloat and torch.SymBool ask of the object behind
 * them, from C++ and from Python.
 * In: nodes and ints.  Out: nodes; an answer becomes a guard only when somebody takes it. */
#include <string.h>
#include "entry/guard/source.h"
#include "host/python/hook_mode.h"
#include "host/python/pyobject.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "record/symbolic/number.h"
#include "record/symbolic/number_ops.h"
#include "record/symbolic/sizes.h"
#include "record/symbolic/unbacked.h"

static PyObject *symnode_true(PyObject *o, PyObject *unused) { Py_RETURN_TRUE; }
static PyObject *symnode_false(PyObject *o, PyObject *unused) { Py_RETURN_FALSE; }
static PyObject *symnode_none(PyObject *o, PyObject *unused) { Py_RETURN_NONE; }
static PyObject *symnode_self(PyObject *o, PyObject *unused) { return Py_NewRef(o); }
static PyObject *symnode_is_float(PyObject *o, PyObject *unused) {
  return PyBool_FromLong(((MgSymNode *)o)->kind == 'f');
}
static PyObject *symnode_is_int(PyObject *o, PyObject *unused) {
  return PyBool_FromLong(mg_symnode_is_int((MgSymNode *)o));
}
/* C++ computes with sizes by the methods below; where these are constants it gets the number. */
static PyObject *symnode_maybe_int(PyObject *o, PyObject *unused) {
  MgSymNode *n = (MgSymNode *)o;
  int64_t v;
  if (!mg_symnode_is_int(n)) Py_RETURN_NONE;
  /* an entry has the guards by now: written views find their history again */
  if (n->hint && n->cap && !n->cap->rec->guards) return Py_NewRef(n->hint);
  SymRef e = mg_symsize_of(n);
  if (!e && !n->src) Py_RETURN_NONE; /* depends on tensors: it asks guard_int when it has to */
  if (!e) return mg_symnode_python(n);
  if (!mg_ex_const_int(n->cap->rec->x, e, &v)) Py_RETURN_NONE;
  return PyLong_FromLongLong(v);
}
static PyObject *symnode_is_bool(PyObject *o, PyObject *unused) {
  return PyBool_FromLong(((MgSymNode *)o)->kind == 'b');
}
static PyObject *symnode_has_hint(PyObject *o, PyObject *unused) {
  return PyBool_FromLong(((MgSymNode *)o)->hint && mg_symsize_of((MgSymNode *)o));
}
static PyObject *symnode_is_constant(PyObject *o, PyObject *unused) {
  return PyBool_FromLong(((MgSymNode *)o)->hint && !((MgSymNode *)o)->src);
}
static PyObject *symnode_guard_float(PyObject *o, PyObject *args) {
  return mg_symnode_python((MgSymNode *)o);
}
/* sizes() of a tensor with symbols: torch 2.13 raises there, later ones ask for each number.  A call of C++
 * that wants it is tried in another way (mg_call_sizes), so it is an error with all of them. */
static PyObject *symnode_guard_int(PyObject *o, PyObject *args) {
  PyObject *file = PyTuple_GET_SIZE(args) ? PyTuple_GET_ITEM(args, 0) : Py_None;
  const char *name = PyUnicode_Check(file) ? PyUnicode_AsUTF8(file) : NULL;
  MgSymNode *n = (MgSymNode *)o;
  if (name && n->cap && n->src && mg_symsize_of(n) && strstr(name, "SymbolicShapeMeta.cpp"))
    return PyErr_Format(PyExc_RuntimeError, "Cannot call sizes() on tensor with symbolic sizes/strides");
  return symnode_guard_float(o, args);
}
void mg_symnode_texts_begin(MgCapture *cap) {
  Py_CLEAR(cap->sizes.shown);
  cap->sizes.shows = true;
}

void mg_symnode_texts_end(MgCapture *cap, bool raised) {
  PyObject *shown = cap->sizes.shown, *t, *v, *tb;
  cap->sizes.shows = false;
  cap->sizes.shown = NULL;
  if (!shown) return;
  PyErr_Fetch(&t, &v, &tb);
  for (Py_ssize_t i = 0; raised && i < PyList_GET_SIZE(shown); i++) {
    PyObject *number = mg_symnode_number((MgSymNode *)PyList_GET_ITEM(shown, i));
    if (!number) mg_clear_shown();
    Py_XDECREF(number);
  }
  PyErr_Restore(t, v, tb);
  Py_DECREF(shown);
}

/* The number that is shown, and guarded later if the text is; NULL without exception: it has to be guarded
 * now. */
static PyObject *symnode_shown(MgSymNode *n) {
  MgSymSizes *s = n->cap ? &n->cap->sizes : NULL;
  if (!s || !s->shows || !(s->shown || (s->shown = PyList_New(0)))) return mg_clear_shown(), NULL;
  if (PyList_Append(s->shown, (PyObject *)n)) return mg_clear_shown(), NULL;
  return Py_NewRef(n->hint);
}

/* Messages of exceptions that C++ raises, where a size is what it is now. */
static PyObject *symnode_text(PyObject *o, PyObject *unused) {
  MgSymNode *n = (MgSymNode *)o;
  PyObject *number = n->hint && n->src ? symnode_shown(n) : NULL;
  if (!number && n->hint && n->src) number = mg_symnode_number(n);
  PyObject *text = number ? PyObject_Str(number) : NULL;
  Py_XDECREF(number);
  if (!text) mg_clear_shown();
  return text ? text : PyUnicode_FromString("<number>");
}

/* An answer that depends on data. */
static bool symnode_late(PyObject *o) { return !((MgSymNode *)o)->src && !((MgSymNode *)o)->hint; }

/* A constant. */
static bool symnode_fixed(PyObject *o) { return !((MgSymNode *)o)->src && ((MgSymNode *)o)->hint; }

/* Anything else is a question that a graph has no answer to. */
static PyObject *symnode_getattr(PyObject *o, PyObject *name) {
  PyObject *r = PyObject_GenericGetAttr(o, name);
  if (r || !PyErr_ExceptionMatches(PyExc_AttributeError)) return r;
  if (!PyUnicode_CompareWithASCIIString(
          name, "shape_env")) { /* None: torch's guard_or_true asks for the answer itself */
    mg_clear_if(PyExc_AttributeError);
    return Py_NewRef(symnode_late(o) || symnode_fixed(o) ? o : Py_None);
  }
  if (!PyUnicode_CompareWithASCIIString(name, "expr"))
    return mg_clear_if(PyExc_AttributeError), Py_NewRef(o); /* what the shape_env is asked about */
  if (!PyUnicode_CompareWithASCIIString(name, "_hint"))
    return mg_clear_if(PyExc_AttributeError),
           Py_NewRef(((MgSymNode *)o)->hint ? ((MgSymNode *)o)->hint : Py_None);
  MgRec *before = mg_rec;
  if (((MgSymNode *)o)->cap) mg_rec = ((MgSymNode *)o)->cap->rec;
  if (((MgSymNode *)o)->src && mg_symsize_of((MgSymNode *)o))
    mg_symsize_give_up(mg_rec, "a question about a size");
  mg_rec_break(BK_symbolic_size, "%s of a number that the graph computes", PyUnicode_AsUTF8(name));
  mg_rec = before;
  return NULL;
}

/* ---- arithmetic ---- */

/* What the arithmetic takes: constants as they are. */
static PyObject *symnode_operand(PyObject *o) {
  MgSymNode *n = mg_symnode_of(o);
  return n && n->hint && !n->src ? n->hint : o;
}

static MgSymNode *symnode_constant(MgCapture *cap, PyObject *v) {
  return v ? mg_symnode_new(cap, 0, v) : NULL;
} /* steals v */

/* The node of a result.  Steals r. */
static PyObject *symnode_result(MgCapture *cap, PyObject *r) {
  MgSymNode *n = r ? mg_symnode_of(r) : NULL;
  if (!n) return (PyObject *)symnode_constant(cap, r);
  Py_INCREF(n);
  Py_DECREF(r);
  return (PyObject *)n;
}

/* torch may ask while the program is not being recorded. */
static MgRec *symnode_enter(MgCapture *cap) {
  MgRec *before = mg_rec;
  if (cap) mg_rec = cap->rec;
  return before;
}

static PyObject *symnode_compute(PyObject *a, PyObject *b, int calc) {
  MgSymNode *n = mg_symnode_of(a);
  MgCapture *cap = n->cap;
  if (!cap) return PyErr_Format(PyExc_RuntimeError, "magneto: a number of a finished recording was used");
  MgRec *before = symnode_enter(cap);
  PyObject *x = symnode_operand(a), *y = b ? symnode_operand(b) : NULL, *r;
  bool plain = !mg_symnode_of(x) && (!y || !mg_symnode_of(y));
  r = plain ? mg_source_compute(calc, x, y) : mg_symfloat_compute(x, y, calc);
  if (r == Py_NotImplemented) {
    Py_CLEAR(r);
    mg_symsize_give_up(cap->rec, "arithmetic of a size");
  }
  r = symnode_result(cap, r);
  mg_rec = before;
  return r;
}

/* A comparison: its answer is guarded when it is taken. */
static PyObject *symnode_ask(PyObject *a, PyObject *b, int calc) {
  MgSymNode *n = mg_symnode_of(a);
  MgCapture *cap = n->cap;
  PyObject *x = symnode_operand(a), *y = symnode_operand(b), *hint, *r = NULL;
  MgSymNode *p = mg_symnode_of(x), *q = mg_symnode_of(y);
  if (!cap || (p && !p->src) || (q && !q->src)) return symnode_compute(a, b, calc);
  MgRec *before = symnode_enter(cap);
  int known = p || q ? mg_symsize_known(cap, calc, p, x, q, y) : -1;
  if (known >= 0) r = (PyObject *)symnode_constant(cap, PyBool_FromLong(known));
  else if ((hint = mg_source_compute(calc, p ? p->hint : x, q ? q->hint : y))) {
    SrcRef src = p || q ? mg_source_calc(cap->rec->guards, calc, p ? p->src : 0, q ? q->src : 0,
                                         p && q ? NULL
                                         : p    ? y
                                                : x)
                        : 0;
    r = (PyObject *)mg_symnode_new(cap, src, hint);
  }
  mg_rec = before;
  return r;
}

#define COMPUTES(name, calc)                                                                                 \
  static PyObject *symnode_##name(PyObject *a, PyObject *b) { return symnode_compute(a, b, calc); }
#define ASKS(name)                                                                                           \
  static PyObject *symnode_##name(PyObject *a, PyObject *b) { return symnode_ask(a, b, CALC_##name); }
COMPUTES(add, CALC_add)
COMPUTES(sub, CALC_sub)
COMPUTES(mul, CALC_mul)
COMPUTES(floordiv, CALC_floordiv)
COMPUTES(mod, CALC_mod)
COMPUTES(truediv, CALC_truediv)
COMPUTES(pow, CALC_pow)
COMPUTES(max, CALC_max)
COMPUTES(min, CALC_min)
ASKS(eq)
ASKS(ne)
ASKS(lt)
ASKS(le)
ASKS(gt)
ASKS(ge)
static PyObject *symnode_neg(PyObject *o, PyObject *unused) { return symnode_compute(o, NULL, CALC_neg); }
static PyObject *symnode_abs(PyObject *o, PyObject *unused) { return symnode_compute(o, NULL, CALC_abs); }

/* Towards minus infinity: a float without a fraction, as an int. */
static PyObject *symnode_floor(PyObject *o, PyObject *unused) {
  if (((MgSymNode *)o)->kind == 'i') return Py_NewRef(o);
  PyObject *one = PyFloat_FromDouble(1), *whole = one ? symnode_compute(o, one, CALC_floordiv) : NULL,
           *r = whole ? symnode_compute(whole, NULL, CALC_int) : NULL;
  Py_XDECREF(one);
  Py_XDECREF(whole);
  return r;
}

static PyObject *symnode_ceil(PyObject *o, PyObject *unused) {
  PyObject *turned = symnode_compute(o, NULL, CALC_neg), *whole = turned ? symnode_floor(turned, NULL) : NULL;
  PyObject *r = whole ? symnode_compute(whole, NULL, CALC_neg) : NULL;
  Py_XDECREF(turned);
  Py_XDECREF(whole);
  return r;
}

static PyObject *symnode_sum(PyObject *o, PyObject *terms) {
  PyObject *all = PySequence_Fast(terms, "sym_sum takes nodes"), *r = NULL;
  for (Py_ssize_t i = 0; all && i < PySequence_Fast_GET_SIZE(all); i++) {
    PyObject *x = PySequence_Fast_GET_ITEM(all, i);
    Py_XSETREF(r, r ? symnode_compute(r, x, CALC_add) : Py_NewRef(x));
    if (!r) break;
  }
  Py_XDECREF(all);
  return r;
}

static PyObject *symnode_sym_float(PyObject *o, PyObject *unused) {
  PyObject *one = PyFloat_FromDouble(1), *r = one ? symnode_compute(o, one, CALC_mul) : NULL;
  Py_XDECREF(one);
  return r;
}

/* Each run computes it: a size of its own. */
static PyObject *symnode_trunc(PyObject *o, PyObject *unused) { return symnode_compute(o, NULL, CALC_int); }

/* ---- answers ---- */

static PyObject *symnode_take(PyObject *o, PyObject *unused) {
  PyObject *v = mg_symnode_number((MgSymNode *)o), *r = v ? PyBool_FromLong(PyObject_IsTrue(v)) : NULL;
  Py_XDECREF(v);
  return r;
}

/* Only what needs no guard. */
static PyObject *symnode_known_true(PyObject *o, PyObject *unused) {
  MgSymNode *n = (MgSymNode *)o;
  return PyBool_FromLong(n->hint == Py_True && !n->src);
}

/* What torch takes for granted where it cannot know (guard_or_false, guard_or_true, guard_size_oblivious). */
static PyObject *symnode_or_false(PyObject *o, PyObject *args) {
  return symnode_late(o) ? Py_NewRef(Py_False) : symnode_take(o, NULL);
}
static PyObject *symnode_or_true(PyObject *o, PyObject *args) {
  return symnode_late(o) ? Py_NewRef(Py_True) : symnode_take(o, NULL);
}
static PyObject *symnode_expect(PyObject *o, PyObject *args) {
  if (!symnode_late(o)) return symnode_take(o, NULL);
  mg_symdata_assume((MgSymNode *)o); /* eager raises where it is not so */
  Py_RETURN_TRUE;
}

/* The shape_env of such a node is the node itself, which is asked in this way. */
static PyObject *symnode_evaluate(PyObject *o, PyObject *const *arg, Py_ssize_t n, PyObject *names) {
  for (Py_ssize_t i = 0; symnode_late(o) && names && i < PyTuple_GET_SIZE(names); i++)
    if (!PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, i), "fallback_value"))
      return Py_NewRef(arg[n + i]);
  return symnode_take(o, NULL);
}

/* (statically_known_true) */
static PyObject *symnode_static(PyObject *o, PyObject *expr) {
  return Py_NewRef(symnode_fixed(o) ? ((MgSymNode *)o)->hint : Py_None);
}

static PyObject *symnode_logic(PyObject *a, PyObject *b, bool both) {
  if (symnode_late(a) || symnode_late(b)) return symnode_compute(a, b, both ? CALC_and : CALC_or);
  PyObject *x = symnode_take(a, NULL), *r = NULL, *y;
  bool decided = x == (both ? Py_False : Py_True);
  if (x && decided) r = Py_NewRef(x);
  else if (x && (y = symnode_take(b, NULL))) r = y;
  Py_XDECREF(x);
  return (PyObject *)symnode_constant(((MgSymNode *)a)->cap, r);
}
static PyObject *symnode_and(PyObject *a, PyObject *b) { return symnode_logic(a, b, true); }
static PyObject *symnode_or(PyObject *a, PyObject *b) { return symnode_logic(a, b, false); }
static PyObject *symnode_not(PyObject *o, PyObject *unused) {
  if (symnode_late(o)) return symnode_compute(o, Py_False, CALC_eq);
  PyObject *x = symnode_take(o, NULL), *r = x ? PyBool_FromLong(x != Py_True) : NULL;
  Py_XDECREF(x);
  return (PyObject *)symnode_constant(((MgSymNode *)o)->cap, r);
}

static PyObject *symnode_wrap(PyObject *o, PyObject *v) {
  return (PyObject *)symnode_constant(((MgSymNode *)o)->cap, Py_NewRef(v));
}

static PyMethodDef symnode_methods[] = {
    {"is_float", symnode_is_float, METH_NOARGS, NULL},
    {"is_int", symnode_is_int, METH_NOARGS, NULL},
    {"is_bool", symnode_is_bool, METH_NOARGS, NULL},
    {"is_nested_int", symnode_false, METH_NOARGS, NULL},
    {"is_constant", symnode_is_constant, METH_NOARGS, NULL},
    {"is_symbolic", symnode_true, METH_NOARGS, NULL},
    {"has_hint", symnode_has_hint, METH_NOARGS, NULL},
    {"maybe_as_float", symnode_none, METH_NOARGS, NULL},
    {"clone", symnode_self, METH_NOARGS, NULL},
    {"maybe_as_int", symnode_maybe_int, METH_NOARGS, NULL},
    {"guard_float", symnode_guard_float, METH_VARARGS, NULL},
    {"guard_int", symnode_guard_int, METH_VARARGS, NULL},
    {"int_", symnode_guard_float, METH_VARARGS, NULL},
    {"str", symnode_text, METH_NOARGS, NULL},
    {"_graph_repr", symnode_text, METH_NOARGS, NULL},
    {"add", symnode_add, METH_O, NULL},
    {"sub", symnode_sub, METH_O, NULL},
    {"mul", symnode_mul, METH_O, NULL},
    {"floordiv", symnode_floordiv, METH_O, NULL},
    {"int_floordiv", symnode_floordiv, METH_O, NULL},
    {"mod", symnode_mod, METH_O, NULL},
    {"truediv", symnode_truediv, METH_O, NULL},
    {"int_truediv", symnode_truediv, METH_O, NULL},
    {"float_truediv", symnode_truediv, METH_O, NULL},
    {"pow", symnode_pow, METH_O, NULL},
    {"pow_by_natural", symnode_pow, METH_O, NULL},
    {"float_pow", symnode_pow, METH_O, NULL},
    {"sym_max", symnode_max, METH_O, NULL},
    {"sym_min", symnode_min, METH_O, NULL},
    {"eq", symnode_eq, METH_O, NULL},
    {"ne", symnode_ne, METH_O, NULL},
    {"lt", symnode_lt, METH_O, NULL},
    {"le", symnode_le, METH_O, NULL},
    {"gt", symnode_gt, METH_O, NULL},
    {"ge", symnode_ge, METH_O, NULL},
    {"sym_and", symnode_and, METH_O, NULL},
    {"sym_or", symnode_or, METH_O, NULL},
    {"and_", symnode_and, METH_O, NULL},
    {"or_", symnode_or, METH_O, NULL},
    {"wrap_int", symnode_wrap, METH_O, NULL},
    {"wrap_float", symnode_wrap, METH_O, NULL},
    {"wrap_bool", symnode_wrap, METH_O, NULL},
    {"neg", symnode_neg, METH_NOARGS, NULL},
    {"abs", symnode_abs, METH_NOARGS, NULL},
    {"sym_float", symnode_sym_float, METH_NOARGS, NULL},
    {"evaluate_sym_node", (PyCFunction)(void *)symnode_evaluate, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"_maybe_evaluate_static", symnode_static, METH_O, NULL},
    {"trunc", symnode_trunc, METH_NOARGS, NULL},
    {"floor", symnode_floor, METH_NOARGS, NULL},
    {"ceil", symnode_ceil, METH_NOARGS, NULL},
    {"sym_sum", symnode_sum, METH_O, NULL},
    {"sym_not", symnode_not, METH_NOARGS, NULL},
    {"bool_", symnode_take, METH_NOARGS, NULL},
    {"statically_known_true", symnode_known_true, METH_VARARGS, NULL},
    {"guard_bool", symnode_take, METH_VARARGS, NULL},
    {"guard_or_false", symnode_or_false, METH_VARARGS, NULL},
    {"guard_or_true", symnode_or_true, METH_VARARGS, NULL},
    {"expect_true", symnode_expect, METH_VARARGS, NULL},
    {"guard_size_oblivious", symnode_or_false, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL}};

static void symnode_dealloc(PyObject *o) {
  Py_XDECREF(((MgSymNode *)o)->hint);
  Py_XDECREF(((MgSymNode *)o)->constant);
  PyObject_Free(o);
}

PyTypeObject mg_symnode_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "magneto._magneto.SymNode",
    .tp_basicsize = sizeof(MgSymNode),
    .tp_dealloc = symnode_dealloc,
    .tp_getattro = symnode_getattr,
    .tp_methods = symnode_methods,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};
