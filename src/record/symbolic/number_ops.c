/* What a recording does with number objects: values in the graph, the number itself, arithmetic.
 * In: floats that are inputs, 0-dim values.  Out: nodes of the graph; guards where Python wants to know a
 * number. */
#include "record/symbolic/number_ops.h"
#include <math.h>
#include "entry/guard/guard_add.h"
#include "entry/guard/late_draws.h"
#include "entry/guard/source.h"
#include "host/python/hook_mode.h"
#include "host/python/pyobject.h"
#include "host/torch/array_bridge.h"
#include "host/torch/array_header.h"
#include "record/core/capture.h"
#include "record/core/ops.h"
#include "record/core/recording.h"
#include "record/symbolic/item_numbers.h"
#include "record/symbolic/number.h"
#include "record/symbolic/size_promises.h"
#include "record/symbolic/sizes.h"
#include "record/symbolic/speculation.h"
#include "record/symbolic/state_numbers.h"

/* Is it a number that nothing can change?  New, or NULL. */
static PyObject *symfloat_plain_constant(MgSymNode *n) {
  int64_t v;
  SymRef e = mg_symsize_of(n);
  if (!n->src && n->hint) return Py_NewRef(n->hint);
  return e && mg_ex_const_int(n->cap->rec->x, e, &v) ? PyLong_FromLongLong(v) : NULL;
}

PyObject *mg_symfloat_dress(PyObject *o) {
  if (!o || (Py_TYPE(o) != mg_sym_types.torch_float && Py_TYPE(o) != mg_sym_types.torch_int &&
             Py_TYPE(o) != mg_sym_types.torch_bool))
    return o;
  MgSymNode *n = mg_symnode_of(o);
  if (!n) return o;
  PyObject *f = symfloat_plain_constant(n);
  if (!f) f = mg_symfloat_of((MgSymNode *)Py_NewRef(n));
  Py_DECREF(o);
  return f;
}

ValRef mg_symnode_val(MgSymNode *n) {
  MgCapture *cap = n->cap;
  if (!n->val && !n->src) return mg_symvalue_lower(n) && !mg_ops.fx_late_value(cap, n) ? n->val : 0;
  for (uint32_t i = 0; !n->val && i < cap->ninput; i++)
    if (cap->input[i].scalar && cap->input[i].src == n->src) n->val = cap->input[i].val;
  if (n->val) return n->val;
  PyObject *t = mg_symfloat_tensor(n->hint);
  n->val = t ? mg_ops.scalar_input(cap, t, n->src) : 0;
  if (n->val) cap->input[cap->ninput - 1].sized = mg_symsize_of(n);
  Py_XDECREF(t);
  return n->val;
}

PyObject *mg_symfloat_standin(PyObject *o) {
  MgSymNode *n = mg_symnode_of(o);
  ValRef v = n->cap ? mg_symnode_val(n) : 0;
  return v                  ? mg_ops.standin_new(n->cap, v)
         : PyErr_Occurred() ? NULL
                            : mg_rec_break(BK_other_recording, "a number of another recording");
}

PyObject *mg_symfloat_input(PyObject *value, SrcRef src) {
  mg_guard_add(mg_rec->guards, GK_type, src, (PyObject *)Py_TYPE(value), 0);
  mg_symsize_int(mg_rec->cap, src, value);
  return mg_symfloat_of(mg_symnode_new(mg_rec->cap, src, Py_NewRef(value)));
}

PyObject *mg_symfloat_drawn(PyObject *value, SrcRef src) {
  return mg_symfloat_of(mg_symnode_new(mg_rec->cap, src, Py_NewRef(value)));
}

/* ---- the number itself ---- */

static PyObject *sym_ask_late(void) { return mg_rec_break(BK_random, "the value of a random number"); }

/* settles: a size that is marked as dynamic may not be asked for so. */
static PyObject *symnode_take(MgSymNode *n, bool settles) {
  MgRec *before = mg_rec;
  if (!n || !n->cap)
    return PyErr_Format(PyExc_RuntimeError, "magneto: a number of a finished recording was used");
  if (n->cap->sizes.exact && n->src && n->kind != 'b')
    return PyErr_Format(PyExc_RuntimeError, "magneto: a kernel wants the number of a size");
  mg_rec = n->cap->rec; /* also where torch's own Python asks */
  PyObject *r = NULL;
  bool yes;
  int claim = 0;
  if (!n->hint && (r = mg_symstate_answer(n))) goto done;
  if (!n->hint && n->kind == 'b' && (claim = mg_claim_expected(n->cap, (PyObject *)n, &yes)))
    r = claim < 0 ? NULL : PyBool_FromLong(yes);
  else if (!n->hint) mg_rec_break(BK_data_dependent, "the value of a number out of a tensor");
  else if (!n->src) r = Py_NewRef(n->hint);
  else if (mg_draw_late(n->cap->rec->guards, n->src)) sym_ask_late();
  else {
    mg_symnode_expect(n->cap, n->src, n->hint);
    if (settles && mg_promise_any(n->cap)) mg_promise_number(n->cap, mg_symsize_of(n));
    r = Py_NewRef(n->hint);
  }
done:
  mg_rec = before;
  return r;
}

PyObject *mg_symnode_number(MgSymNode *n) { return symnode_take(n, true); }

PyObject *mg_symnode_python(MgSymNode *n) {
  PyObject *x = mg_symnode_number(n);
  if (x && mg_guard_numpy_number(x)) Py_SETREF(x, n->kind == 'i' ? PyNumber_Index(x) : PyNumber_Float(x));
  return x;
}

static PyObject *symfloat_number(PyObject *o) {
  MgSymNode *n = mg_symnode_of(o);
  return n ? mg_symnode_number(n) : Py_NewRef(o);
}

PyObject *mg_symfloat_plain(PyObject *o) { return symfloat_number(o); }

/* ---- arithmetic ---- */

/* 1 a number object, 0 a plain number, -1 something else. */
static int sym_operand(PyObject *o, MgSymNode **n) {
  if ((*n = mg_symnode_of(o))) return 1;
  return PyFloat_CheckExact(o) || PyLong_Check(o) || mg_guard_numpy_number(o) ? 0 : -1;
}

/* Both as plain numbers: what neither Python nor the graph is to compute again. */
static PyObject *sym_plain(PyObject *a, PyObject *b, int calc) {
  PyObject *x = symfloat_number(a), *y = x ? symfloat_number(b) : NULL,
           *r = y ? mg_source_compute(calc, x, y) : NULL;
  Py_XDECREF(x);
  Py_XDECREF(y);
  return r;
}

/* The same for numbers that are drawn, where the class of the result counts as well. */
static bool sym_late_total(int calc, MgSymNode *y, PyObject *b) {
  if (calc < CALC_add) return false;
  if (calc < CALC_truediv || calc > CALC_pow) return true;
  if (y) return false;
  return calc == CALC_pow ? PyLong_CheckExact(b) && mg_int_sign(b) >= 0 : PyObject_IsTrue(b) == 1;
}

/* The program was told whether `x calc y` holds.  A NULL node: the operand is the plain number k. */
static void sym_promise(MgCapture *cap, int calc, MgSymNode *x, MgSymNode *y, PyObject *k, bool yes) {
  if (!mg_promise_any(cap)) return;
  SymRef a = x ? mg_symsize_of(x) : 0, b = y ? mg_symsize_of(y) : 0;
  if ((a || !x) && (b || !y)) mg_promise_answered(cap, calc, a, b, k, yes);
}

/* Both operands are known to Python: so is the result.  What may raise or give another class for
 * other numbers is guarded. */
static PyObject *sym_host(MgCapture *cap, MgSymNode *x, PyObject *a, MgSymNode *y, PyObject *b, int calc) {
  MgGuards *g = cap->rec->guards;
  bool late = (x && mg_draw_late(g, x->src)) || (y && mg_draw_late(g, y->src));
  if (late && !sym_late_total(calc, y, b)) return sym_plain(a, b, calc);
  int known = late ? -1 : mg_symsize_known(cap, calc, x, a, y, b);
  if (known >= 0) return PyBool_FromLong(known);
  PyObject *hint = mg_source_compute(calc, x ? x->hint : a, y ? y->hint : b);
  if (!hint) { /* an exception belongs to these very numbers */
    mg_clear_for_another_way();
    return sym_plain(a, b, calc);
  }
  SrcRef src = mg_source_calc(g, calc, x ? x->src : 0, y ? y->src : 0, x && y ? NULL : x ? b : a);
  if (!PyFloat_CheckExact(hint) && !PyLong_CheckExact(hint) && !mg_guard_numpy_number(hint)) { /* an answer */
    mg_guard_add(g, GK_calc, src, hint, 0);
    if (!x != !y && PyBool_Check(hint))
      mg_symsize_answered(cap, calc, x ? x->src : y->src, y != NULL, x ? b : a, hint == Py_True);
    if (PyBool_Check(hint)) sym_promise(cap, calc, x, y, x ? b : a, hint == Py_True);
    return hint;
  }
  bool divides =
      PyLong_CheckExact(hint) && calc >= CALC_floordiv && calc <= CALC_mod && !y && PyObject_IsTrue(b) == 1;
  bool numpy = mg_guard_numpy_number(hint); /* its first version lets the values choose the class */
  if (!late && ((calc >= CALC_truediv && calc <= CALC_pow) || calc == CALC_call || numpy) && !divides)
    mg_guard_add(g, GK_calc, src, (PyObject *)Py_TYPE(hint), 0);
  return mg_symfloat_of(mg_symnode_new(cap, src, hint));
}

static PyObject *sym_binary(PyObject *a, PyObject *b, int calc) {
  MgSymNode *x, *y;
  if (sym_operand(a, &x) < 0 || sym_operand(b, &y) < 0) Py_RETURN_NOTIMPLEMENTED;
  MgCapture *cap = x ? x->cap : y->cap;
  if (!cap || (y && y->cap != cap)) return sym_plain(a, b, calc);
  if ((!x || x->src) && (!y || y->src)) return sym_host(cap, x, a, y, b, calc);
  if (mg_guard_numpy_number(x ? b : a)) return sym_plain(a, b, calc); /* whose class the result has */
  PyObject *r = mg_symvalue_compute(calc, x, a, y, b);
  return r || PyErr_Occurred() ? r : sym_plain(a, b, calc);
}

#define BINARY(name)                                                                                         \
  static PyObject *symfloat_##name(PyObject *a, PyObject *b) { return sym_binary(a, b, CALC_##name); }
BINARY(add)
BINARY(sub)
BINARY(mul)
BINARY(truediv)
BINARY(mod)
BINARY(floordiv)
BINARY(and)
BINARY(or)
BINARY(xor)

static PyObject *symfloat_pow(PyObject *a, PyObject *b, PyObject *mod) {
  if (mod != Py_None) Py_RETURN_NOTIMPLEMENTED;
  return sym_binary(a, b, CALC_pow);
}

static PyObject *sym_unary(PyObject *o, int calc) {
  MgSymNode *x = mg_symnode_of(o);
  if (!x || !x->cap)
    return PyErr_Format(PyExc_RuntimeError, "magneto: a number of a finished recording was used");
  if (!x->src) return mg_symvalue_compute(calc, x, o, NULL, NULL);
  PyObject *hint = mg_source_compute(calc, x->hint, NULL);
  return hint ? mg_symfloat_of(
                    mg_symnode_new(x->cap, mg_source_calc(x->cap->rec->guards, calc, x->src, 0, NULL), hint))
              : NULL;
}
static PyObject *symfloat_neg(PyObject *o) { return sym_unary(o, CALC_neg); }
static PyObject *symfloat_abs(PyObject *o) { return sym_unary(o, CALC_abs); }
static PyObject *symfloat_pos(PyObject *o) {
  return mg_symfloat_is_bool(o) ? sym_unary(o, CALC_int) : Py_NewRef(o);
}

PyObject *mg_symfloat_compute(PyObject *a, PyObject *b, int calc) {
  return b ? sym_binary(a, b, calc) : sym_unary(a, calc);
}

/* Is f a function of one number whose result depends on nothing else? */
static bool sym_is_pure(PyObject *f) {
  if (f == (PyObject *)&PyLong_Type || f == (PyObject *)&PyFloat_Type) return true;
  if (!PyCFunction_CheckExact(f)) return false;
  PyObject *module = ((PyCFunctionObject *)f)->m_module;
  if (!module || !PyUnicode_Check(module)) return false;
  if (!PyUnicode_CompareWithASCIIString(module, "math")) return true;
  return !PyUnicode_CompareWithASCIIString(module, "builtins") &&
         !strcmp(((PyCFunctionObject *)f)->m_ml->ml_name, "round");
}

PyObject *mg_symfloat_call(PyObject *o, PyObject *f) {
  MgSymNode *x = mg_symnode_of(o);
  if (x && x->cap && !x->src && !x->hint && mg_symvalue_asks(f)) return mg_symvalue_ask(x, f);
  if (!x || !x->cap || !x->src || (x->cap->rec->want_fx && !mg_ops.fx_computes(x->cap, x->src, f)) ||
      mg_draw_late(x->cap->rec->guards, x->src))
    return NULL;
  if (x->kind == 'i' && f == (PyObject *)&PyLong_Type && PyLong_CheckExact(x->hint)) return Py_NewRef(o);
  return sym_host(x->cap, x, o, NULL, f, CALC_call);
}

bool mg_symfloat_apply(PyObject *f, PyObject *const *arg, Py_ssize_t n, PyObject **r) {
  if (n == 1 && mg_standin_is(arg[0]) && mg_symvalue_asks(f)) { /* they call float() */
    PyObject *number = NULL;
    if (!mg_symvalue_convert((PyObject *)&PyFloat_Type, arg, 1, &number)) return false;
    if (number && !mg_symfloat_apply(f, &number, 1, r)) *r = PyObject_CallOneArg(f, number);
    Py_XDECREF(number);
    return true;
  }
  if (n != 1 || !mg_symnode_of(arg[0]) || !sym_is_pure(f)) return false;
  *r = mg_symfloat_call(arg[0], f);
  return *r || PyErr_Occurred();
}

/* With the numbers themselves. */
static PyObject *sym_by_number(PyObject *a, PyObject *b, binaryfunc fn) {
  MgSymNode *n;
  if (sym_operand(a, &n) < 0 || sym_operand(b, &n) < 0) Py_RETURN_NOTIMPLEMENTED;
  PyObject *x = symfloat_number(a), *y = x ? symfloat_number(b) : NULL, *r = y ? fn(x, y) : NULL;
  Py_XDECREF(x);
  Py_XDECREF(y);
  return r;
}
#define PLAIN_BINARY(name, fn)                                                                               \
  static PyObject *symfloat_##name(PyObject *a, PyObject *b) { return sym_by_number(a, b, fn); }
PLAIN_BINARY(numbers_divmod, PyNumber_Divmod)
PLAIN_BINARY(numbers_lshift, PyNumber_Lshift)
PLAIN_BINARY(numbers_rshift, PyNumber_Rshift)

/* 2**n of a plain n; NULL without an exception: it is none, or too large for sizes.  New. */
static PyObject *sym_power_of_two(PyObject *a, PyObject *n) {
  enum { MOST = 31 };
  if (!mg_symnode_of(a) || mg_symfloat_is_bool(a) || !PyLong_CheckExact(n)) return NULL;
  int overflow;
  long long k = PyLong_AsLongLongAndOverflow(n, &overflow);
  return overflow || k < 0 || k > MOST ? NULL : PyLong_FromLongLong(1LL << k);
}

/* a << n and a >> n: products and quotients, of which expressions of sizes are made. */
static PyObject *sym_shift(PyObject *a, PyObject *n, int calc, binaryfunc plain) {
  PyObject *by = sym_power_of_two(a, n);
  PyObject *r = by ? sym_binary(a, by, calc) : PyErr_Occurred() ? NULL : plain(a, n);
  Py_XDECREF(by);
  return r;
}
static PyObject *symfloat_lshift(PyObject *a, PyObject *n) {
  return sym_shift(a, n, CALC_mul, symfloat_numbers_lshift);
}
static PyObject *symfloat_rshift(PyObject *a, PyObject *n) {
  return sym_shift(a, n, CALC_floordiv, symfloat_numbers_rshift);
}

static PyObject *symfloat_divmod(PyObject *a, PyObject *b) {
  if (!PyLong_CheckExact(b) || !mg_int_sign(b))
    return symfloat_numbers_divmod(a, b); /* a zero has errors of its own */
  PyObject *q = sym_binary(a, b, CALC_floordiv), *m = q ? sym_binary(a, b, CALC_mod) : NULL,
           *r = m ? PyTuple_Pack(2, q, m) : NULL;
  Py_XDECREF(q);
  Py_XDECREF(m);
  return r;
}

/* ---- questions ---- */

/* Only the answer is guarded. */
static PyObject *symfloat_compare(PyObject *a, PyObject *b, int op) { return sym_binary(a, b, op); }

static int symfloat_bool(PyObject *o) {
  MgSymNode *n = mg_symnode_of(o);
  if (n && !n->src && (n->kind == 'b' || n->hint || !n->cap)) {
    PyObject *x = mg_symnode_number(n); /* an answer, or a break */
    int yes = x ? PyObject_IsTrue(x) : -1;
    Py_XDECREF(x);
    return yes;
  }
  PyObject *zero = PyFloat_FromDouble(0), *r = zero ? symfloat_compare(o, zero, Py_NE) : NULL;
  int yes = !r                  ? -1
            : mg_symfloat_is(r) ? symfloat_bool(r)
                                : PyObject_IsTrue(r); /* one of NumPy's truth values */
  Py_XDECREF(zero);
  Py_XDECREF(r);
  return yes;
}

static PyObject *symfloat_via(PyObject *o, PyObject *(*fn)(PyObject *)) {
  PyObject *x = symfloat_number(o), *r = x ? fn(x) : NULL;
  Py_XDECREF(x);
  return r;
}
static PyObject *symfloat_float(PyObject *o) { return symfloat_via(o, PyNumber_Float); }
static PyObject *symfloat_int(PyObject *o) { return symfloat_via(o, PyNumber_Long); }
static PyObject *symfloat_invert(PyObject *o) { return symfloat_via(o, PyNumber_Invert); }
/* torch.compile breaks the graph here, which settles nothing. */
static PyObject *symfloat_str(PyObject *o) {
  PyObject *x = symnode_take(mg_symnode_of(o), false), *r = x ? PyObject_Str(x) : NULL;
  Py_XDECREF(x);
  return r;
}
static Py_hash_t symfloat_hash(PyObject *o) {
  const MgSymNode *n = mg_symnode_of(o);
  if (mg_rec && mg_rec->hashing && n && n->hint) return PyObject_Hash(n->hint);
  PyObject *x = symfloat_number(o);
  Py_hash_t h = x ? PyObject_Hash(x) : -1;
  Py_XDECREF(x);
  return h;
}

/* The public attributes of a number are its own. */
static PyObject *symfloat_getattr(PyObject *o, PyObject *name) {
  if (PyUnicode_GET_LENGTH(name) && PyUnicode_READ_CHAR(name, 0) != '_' &&
      PyObject_HasAttr((PyObject *)mg_symfloat_class(o), name)) {
    PyObject *x = symfloat_number(o), *r = x ? PyObject_GetAttr(x, name) : NULL;
    Py_XDECREF(x);
    return r;
  }
  return PyObject_GenericGetAttr(o, name);
}

/* Special methods are looked up on the class, where torch.SymFloat and torch.SymInt have their own. */
#define BY_NUMBER(name)                                                                                      \
  static PyObject *symfloat_##name(PyObject *o, PyObject *args) {                                            \
    PyObject *x = symfloat_number(o), *m = x ? PyObject_GetAttrString(x, "__" #name "__") : NULL;            \
    PyObject *r = m ? PyObject_CallObject(m, args) : NULL;                                                   \
    Py_XDECREF(x);                                                                                           \
    Py_XDECREF(m);                                                                                           \
    return r;                                                                                                \
  }
BY_NUMBER(format)
BY_NUMBER(round)
BY_NUMBER(floor)
BY_NUMBER(ceil)
BY_NUMBER(trunc)
BY_NUMBER(reduce_ex)

static PyMethodDef symfloat_methods[] = {{"__format__", symfloat_format, METH_VARARGS, NULL},
                                         {"__round__", symfloat_round, METH_VARARGS, NULL},
                                         {"__floor__", symfloat_floor, METH_VARARGS, NULL},
                                         {"__ceil__", symfloat_ceil, METH_VARARGS, NULL},
                                         {"__trunc__", symfloat_trunc, METH_VARARGS, NULL},
                                         {"__reduce_ex__", symfloat_reduce_ex, METH_VARARGS, NULL},
                                         {NULL, NULL, 0, NULL}};

#define SYM_SLOTS                                                                                            \
  {Py_nb_add, symfloat_add}, {Py_nb_subtract, symfloat_sub}, {Py_nb_multiply, symfloat_mul},                 \
      {Py_nb_true_divide, symfloat_truediv}, {Py_nb_power, symfloat_pow}, {Py_nb_remainder, symfloat_mod},   \
      {Py_nb_floor_divide, symfloat_floordiv}, {Py_nb_divmod, symfloat_divmod},                              \
      {Py_nb_negative, symfloat_neg}, {Py_nb_positive, symfloat_pos}, {Py_nb_absolute, symfloat_abs},        \
      {Py_nb_bool, symfloat_bool}, {Py_nb_float, symfloat_float}, {Py_nb_int, symfloat_int},                 \
      {Py_tp_richcompare, symfloat_compare}, {Py_tp_hash, symfloat_hash}, {Py_tp_str, symfloat_str},         \
      {Py_tp_repr, symfloat_str}, {Py_tp_getattro, symfloat_getattr}, {Py_tp_methods, symfloat_methods}, {   \
    0, NULL                                                                                                  \
  }

static PyType_Slot symfloat_slots[] = {SYM_SLOTS};
static PyType_Slot symint_slots[] = {{Py_nb_index, symfloat_int},     {Py_nb_and, symfloat_and},
                                     {Py_nb_or, symfloat_or},         {Py_nb_xor, symfloat_xor},
                                     {Py_nb_lshift, symfloat_lshift}, {Py_nb_rshift, symfloat_rshift},
                                     {Py_nb_invert, symfloat_invert}, SYM_SLOTS};

static PyType_Spec symfloat_spec = {
    .name = "magneto._magneto.SymFloat", .flags = Py_TPFLAGS_DEFAULT, .slots = symfloat_slots};
static PyType_Spec symbool_spec = {
    .name = "magneto._magneto.SymBool", .flags = Py_TPFLAGS_DEFAULT, .slots = symint_slots};
static PyType_Spec symint_spec = {
    .name = "magneto._magneto.SymInt", .flags = Py_TPFLAGS_DEFAULT, .slots = symint_slots};

/* name: of the class that it stands for, which CPython's errors name ('can only concatenate str (not "int")
   to str').  The class itself is still shown by the name of spec. */
static PyTypeObject *sym_make_class(PyType_Spec *spec, PyTypeObject *base, const char *name) {
  PyObject *bases = PyTuple_Pack(1, base), *t = bases ? PyType_FromSpecWithBases(spec, bases) : NULL;
  Py_XDECREF(bases);
  if (t && PyObject_SetAttrString(t, "__array_ufunc__", Py_None))
    Py_CLEAR(t); /* NumPy's scalars leave operators to ours */
  if (t) ((PyTypeObject *)t)->tp_name = name;
  return (PyTypeObject *)t;
}

int mg_symfloat_init(void) {
  if (mg_sym_types.float_) return 0;
  if (PyType_Ready(&mg_symnode_type)) return -1;
  PyObject *torch = mg_import("torch");
  mg_sym_types.node_name = PyUnicode_InternFromString("node");
  if (torch) { /* kept */
    mg_sym_types.torch_float = (PyTypeObject *)PyObject_GetAttrString(torch, "SymFloat");
    mg_sym_types.torch_int = (PyTypeObject *)PyObject_GetAttrString(torch, "SymInt");
    mg_sym_types.torch_bool = (PyTypeObject *)PyObject_GetAttrString(torch, "SymBool");
    Py_DECREF(torch);
  }
  if (!mg_sym_types.node_name || !mg_sym_types.torch_float || !mg_sym_types.torch_int ||
      !mg_sym_types.torch_bool)
    return -1;
  if (!(mg_sym_types.bool_ = sym_make_class(&symbool_spec, mg_sym_types.torch_bool, "bool"))) return -1;
  if (!(mg_sym_types.int_ = sym_make_class(&symint_spec, mg_sym_types.torch_int, "int"))) return -1;
  return (mg_sym_types.float_ = sym_make_class(&symfloat_spec, mg_sym_types.torch_float, "float")) ? 0 : -1;
}
