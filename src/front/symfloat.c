/* The number objects and their arithmetic; see the header.  What becomes of them in calls of ATen is in symcall.c.
 * In: floats that are inputs, 0-dim values.  Out: nodes of the graph; guards where Python wants to know a number. */
#include "front/symfloat.h"
#include <math.h>
#include "front/draw.h"
#include "front/guard.h"
#include "front/names.h"
#include "front/nodecall.h"
#include "front/standin.h"
#include "front/symnode.h"

static PyTypeObject *sym_float, *sym_int;             /* ours */
static PyTypeObject *sym_torch_float, *sym_torch_int; /* torch.SymFloat, torch.SymInt */
static PyObject *sym_node_name;

/* ---- nodes ---- */

static void symnode_dealloc(PyObject *o) {
  Py_XDECREF(((MgSymNode *)o)->hint);
  PyObject_Free(o);
}

static PyTypeObject symnode_type;

/* hint is stolen, NULL for numbers that depend on tensors. */
static MgSymNode *symnode_new(MgCapture *cap, SrcRef src, PyObject *hint, ValRef val) {
  MgSymNode *n = PyObject_New(MgSymNode, &symnode_type);
  if (!n) {
    Py_XDECREF(hint);
    return NULL;
  }
  *n = (MgSymNode){.ob_base = n->ob_base, .cap = cap, .src = src, .hint = hint, .val = val};
  if (!cap->syms && !(cap->syms = PyList_New(0))) goto fail;
  if (PyList_Append(cap->syms, (PyObject *)n)) goto fail; /* told when the recording ends */
  return n;
fail:
  Py_DECREF(n);
  return NULL;
}

MgSymNode *mg_symnode_of(PyObject *o) {
  PyTypeObject *t = Py_TYPE(o);
  if (t == &symnode_type) return (MgSymNode *)o;
  if (!sym_float || (t != sym_float && t != sym_int && t != sym_torch_float && t != sym_torch_int)) return NULL;
  PyObject **d = _PyObject_GetDictPtr(o), *n = d && *d ? PyDict_GetItemWithError(*d, sym_node_name) : NULL;
  return n && Py_TYPE(n) == &symnode_type ? (MgSymNode *)n : NULL;
}

bool mg_symfloat_is(PyObject *o) { return mg_symnode_of(o) != NULL; }
bool mg_symnode_is_int(const MgSymNode *n) { return n->hint && PyLong_CheckExact(n->hint); }

PyTypeObject *mg_symfloat_class(PyObject *o) { return mg_symnode_is_int(mg_symnode_of(o)) ? &PyLong_Type : &PyFloat_Type; }

static PyObject *symfloat_of(MgSymNode *n) { /* steals n */
  PyObject *f = n ? PyObject_CallOneArg((PyObject *)(mg_symnode_is_int(n) ? sym_int : sym_float), (PyObject *)n) : NULL;
  Py_XDECREF(n);
  return f;
}

PyObject *mg_symfloat_dress(PyObject *o) {
  if (!o || (Py_TYPE(o) != sym_torch_float && Py_TYPE(o) != sym_torch_int)) return o;
  MgSymNode *n = mg_symnode_of(o);
  if (!n) return o;
  PyObject *f = symfloat_of((MgSymNode *)Py_NewRef(n));
  Py_DECREF(o);
  return f;
}

PyObject *mg_symfloat_tensor(PyObject *value) {
  MgTensor *t;
  void *p;
  bool is_int = PyLong_Check(value);
  int64_t i = is_int ? PyLong_AsLongLong(value) : 0;
  if (i == -1 && PyErr_Occurred()) return NULL;
  if (mg_abi.aoti_torch_empty_strided(0, NULL, NULL, is_int ? DT_i64 : DT_f64, DEV_cpu, -1, &t) ||
      mg_abi.aoti_torch_get_data_ptr(t, &p))
    return PyErr_NoMemory();
  if (is_int) *(int64_t *)p = i;
  else *(double *)p = PyFloat_AsDouble(value);
  return mg_tensor_wrap(t);
}

double mg_symfloat_read(PyObject *tensor) {
  void *p = NULL;
  mg_abi.aoti_torch_get_data_ptr(mg_abi_tensor(tensor), &p);
  return p ? *(const double *)p : NAN;
}

ValRef mg_symnode_val(MgSymNode *n) {
  MgCapture *cap = n->cap;
  for (uint32_t i = 0; !n->val && i < cap->ninput; i++)
    if (cap->input[i].scalar && cap->input[i].src == n->src) n->val = cap->input[i].val;
  if (n->val) return n->val;
  PyObject *t = mg_symfloat_tensor(n->hint);
  n->val = t ? mg_standin_scalar_input(cap, t, n->src) : 0;
  Py_XDECREF(t);
  return n->val;
}

PyObject *mg_symfloat_standin(PyObject *o) {
  MgSymNode *n = mg_symnode_of(o);
  ValRef v = n->cap ? mg_symnode_val(n) : 0;
  return v ? mg_standin_new(n->cap, v) : PyErr_Occurred() ? NULL : mg_rec_break(BK_op, "a number of another recording");
}

PyObject *mg_symfloat_input(PyObject *value, SrcRef src) {
  mg_guard_add(mg_rec->guards, GK_type, src, (PyObject *)Py_TYPE(value), 0);
  return symfloat_of(symnode_new(mg_rec->cap, src, Py_NewRef(value), 0));
}

PyObject *mg_symfloat_drawn(PyObject *value, SrcRef src) { return symfloat_of(symnode_new(mg_rec->cap, src, Py_NewRef(value), 0)); }

PyObject *mg_symfloat_item(MgCapture *cap, ValRef val) { return symfloat_of(symnode_new(cap, 0, NULL, val)); }

int mg_symfloat_origin(PyObject *o, SrcRef *src, ValRef *val) {
  MgSymNode *n = mg_symnode_of(o);
  *src = n->src;
  *val = n->val;
  return n->src != 0;
}

/* ---- the number itself ---- */

static void symnode_expect(MgCapture *cap, SrcRef src, PyObject *want) {
  MgGuards *g = cap->rec->guards;
  mg_guard_add(g, g->src[src].kind == SRC_calc ? GK_calc : GK_equal, src, want, 0);
}

static PyObject *sym_ask_late(void) { return mg_rec_break(BK_data_dependent, "the value of a random number"); }

PyObject *mg_symnode_number(MgSymNode *n) {
  MgRec *before = mg_rec;
  if (!n->cap) return PyErr_Format(PyExc_RuntimeError, "magneto: a number of a finished recording was used");
  mg_rec = n->cap->rec; /* also where torch's own Python asks */
  PyObject *r = NULL;
  if (!n->hint) mg_rec_break(BK_data_dependent, "the value of Tensor.item()");
  else if (mg_draw_late(n->cap->rec->guards, n->src)) sym_ask_late();
  else {
    symnode_expect(n->cap, n->src, n->hint);
    r = Py_NewRef(n->hint);
  }
  mg_rec = before;
  return r;
}

static PyObject *symfloat_number(PyObject *o) {
  MgSymNode *n = mg_symnode_of(o);
  return n ? mg_symnode_number(n) : Py_NewRef(o);
}

PyObject *mg_symfloat_plain(PyObject *o) { return symfloat_number(o); }

/* ---- arithmetic ---- */

typedef struct SymOp {
  int calc;                /* MgCalc */
  MgTop both, left, right; /* in the graph: (number, number), (number, constant), (constant, number) */
} SymOp;

/* 1 a number object, 0 a plain number, -1 something else. */
static int sym_operand(PyObject *o, MgSymNode **n) {
  if ((*n = mg_symnode_of(o))) return 1;
  return PyFloat_CheckExact(o) || PyLong_Check(o) ? 0 : -1;
}

/* Both as plain numbers: what neither Python nor the graph is to compute again. */
static PyObject *sym_plain(PyObject *a, PyObject *b, int calc) {
  PyObject *x = symfloat_number(a), *y = x ? symfloat_number(b) : NULL, *r = y ? mg_source_compute(calc, x, y) : NULL;
  Py_XDECREF(x);
  Py_XDECREF(y);
  return r;
}

/* Does the operation raise, or leave the floats, for some numbers that only a run knows? */
static bool sym_total(int calc, MgSymNode *x, PyObject *a, MgSymNode *y, PyObject *b) {
  if (calc == CALC_truediv) return !y && PyFloat_AsDouble(b) != 0;
  if (calc == CALC_pow) return !x && PyFloat_AsDouble(a) > 0;
  return true;
}

/* The same for numbers that are drawn, where the class of the result counts as well. */
static bool sym_late_total(int calc, MgSymNode *y, PyObject *b) {
  if (calc < CALC_add) return false;
  if (calc < CALC_truediv || calc > CALC_pow) return true;
  if (y) return false;
  return calc == CALC_pow ? PyLong_CheckExact(b) && _PyLong_Sign(b) >= 0 : PyObject_IsTrue(b) == 1;
}

/* Both operands are known to Python: so is the result.  What may raise or give another class for other numbers is guarded. */
static PyObject *sym_host(MgCapture *cap, MgSymNode *x, PyObject *a, MgSymNode *y, PyObject *b, int calc) {
  MgGuards *g = cap->rec->guards;
  bool late = (x && mg_draw_late(g, x->src)) || (y && mg_draw_late(g, y->src));
  if (late && !sym_late_total(calc, y, b)) return sym_plain(a, b, calc);
  PyObject *hint = mg_source_compute(calc, x ? x->hint : a, y ? y->hint : b);
  if (!hint) return NULL;
  SrcRef src = mg_source_calc(g, calc, x ? x->src : 0, y ? y->src : 0, x && y ? NULL : x ? b : a);
  if (!PyFloat_CheckExact(hint) && !PyLong_CheckExact(hint)) { /* an answer */
    mg_guard_add(g, GK_calc, src, hint, 0);
    return hint;
  }
  if (!late && calc >= CALC_truediv && calc <= CALC_pow) mg_guard_add(g, GK_calc, src, (PyObject *)Py_TYPE(hint), 0);
  return symfloat_of(symnode_new(cap, src, hint, 0));
}

/* What an operand is in the graph. */
static bool sym_arg(MgSymNode *n, PyObject *o, MgArg *arg) {
  ValRef v = n ? mg_symnode_val(n) : 0;
  if (n) *arg = mg_arg_val(v);
  else *arg = mg_arg_float(PyFloat_AsDouble(o));
  return n ? v != 0 : !(arg->u.f == -1 && PyErr_Occurred());
}

static PyObject *sym_graph(MgCapture *cap, MgSymNode *x, PyObject *a, MgSymNode *y, PyObject *b, const SymOp *op) {
  MgGraph *g = cap->rec->g;
  MgArg arg[2];
  if (!sym_arg(x, a, &arg[0]) || !sym_arg(y, b, &arg[1])) return NULL;
  ValRef v;
  if (!x && op->calc == CALC_truediv) { /* constant / number */
    MgArg part[2] = {mg_arg_val(mg_graph_emit1(g, TOP_reciprocal, &arg[1], 1)), arg[0]};
    v = part[0].u.val ? mg_graph_emit1(g, TOP_mul_Scalar, part, 2) : 0;
  } else if (!x && op->calc != CALC_pow) { /* these take the number first */
    MgArg turned[2] = {arg[1], arg[0]};
    v = mg_graph_emit1(g, op->right, turned, 2);
  } else v = mg_graph_emit1(g, x && y ? op->both : x ? op->left : op->right, arg, 2);
  return v ? symfloat_of(symnode_new(cap, 0, NULL, v)) : PyErr_NoMemory();
}

static PyObject *sym_binary(PyObject *a, PyObject *b, const SymOp *op) {
  MgSymNode *x, *y;
  if (sym_operand(a, &x) < 0 || sym_operand(b, &y) < 0) Py_RETURN_NOTIMPLEMENTED;
  MgCapture *cap = x ? x->cap : y->cap;
  if (!cap || (y && y->cap != cap)) return sym_plain(a, b, op->calc);
  if ((!x || x->src) && (!y || y->src)) return sym_host(cap, x, a, y, b, op->calc);
  if (!op->both || !sym_total(op->calc, x, a, y, b)) return sym_plain(a, b, op->calc);
  return sym_graph(cap, x, a, y, b, op);
}

#define BINARY(name, ...)                                                                                    \
  static PyObject *symfloat_##name(PyObject *a, PyObject *b) {                                               \
    static const SymOp op = {CALC_##name, __VA_ARGS__};                                                      \
    return sym_binary(a, b, &op);                                                                            \
  }
BINARY(add, TOP_add_Tensor, TOP_add_Scalar, TOP_add_Scalar)
BINARY(sub, TOP_sub_Tensor, TOP_sub_Scalar, TOP_rsub_Scalar)
BINARY(mul, TOP_mul_Tensor, TOP_mul_Scalar, TOP_mul_Scalar)
BINARY(truediv, TOP_div_Tensor, TOP_div_Scalar, 0)
BINARY(mod, 0, 0, 0)
BINARY(floordiv, 0, 0, 0)

static PyObject *symfloat_pow(PyObject *a, PyObject *b, PyObject *mod) {
  static const SymOp op = {CALC_pow, TOP_pow_Tensor_Tensor, TOP_pow_Tensor_Scalar, TOP_pow_Scalar};
  if (mod != Py_None) Py_RETURN_NOTIMPLEMENTED;
  return sym_binary(a, b, &op);
}

static PyObject *sym_unary(PyObject *o, MgTop op, int calc) {
  MgSymNode *x = mg_symnode_of(o);
  if (!x || !x->cap) return PyErr_Format(PyExc_RuntimeError, "magneto: a number of a finished recording was used");
  if (x->src) {
    PyObject *hint = mg_source_compute(calc, x->hint, NULL);
    return hint ? symfloat_of(symnode_new(x->cap, mg_source_calc(x->cap->rec->guards, calc, x->src, 0, NULL), hint, 0)) : NULL;
  }
  MgArg arg = mg_arg_val(x->val);
  ValRef v = mg_graph_emit1(x->cap->rec->g, op, &arg, 1);
  return v ? symfloat_of(symnode_new(x->cap, 0, NULL, v)) : PyErr_NoMemory();
}
static PyObject *symfloat_neg(PyObject *o) { return sym_unary(o, TOP_neg, CALC_neg); }
static PyObject *symfloat_abs(PyObject *o) { return sym_unary(o, TOP_abs, CALC_abs); }
static PyObject *symfloat_pos(PyObject *o) { return Py_NewRef(o); }

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
PLAIN_BINARY(divmod, PyNumber_Divmod)
PLAIN_BINARY(and, PyNumber_And)
PLAIN_BINARY(or, PyNumber_Or)
PLAIN_BINARY(xor, PyNumber_Xor)
PLAIN_BINARY(lshift, PyNumber_Lshift)
PLAIN_BINARY(rshift, PyNumber_Rshift)

/* ---- questions ---- */

/* Only the answer is guarded. */
static PyObject *symfloat_compare(PyObject *a, PyObject *b, int op) {
  const SymOp how = {op, 0, 0, 0};
  return sym_binary(a, b, &how);
}

static int symfloat_bool(PyObject *o) {
  PyObject *zero = PyFloat_FromDouble(0), *r = zero ? symfloat_compare(o, zero, Py_NE) : NULL;
  int yes = r ? r == Py_True : -1;
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
static PyObject *symfloat_str(PyObject *o) { return symfloat_via(o, PyObject_Str); }
static Py_hash_t symfloat_hash(PyObject *o) {
  PyObject *x = symfloat_number(o);
  Py_hash_t h = x ? PyObject_Hash(x) : -1;
  Py_XDECREF(x);
  return h;
}

/* The public attributes of a number are its own. */
static PyObject *symfloat_getattr(PyObject *o, PyObject *name) {
  if (PyUnicode_GET_LENGTH(name) && PyUnicode_READ_CHAR(name, 0) != '_' && PyObject_HasAttr((PyObject *)mg_symfloat_class(o), name)) {
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

/* ---- what PyTorch asks a node ---- */

static PyObject *symnode_true(PyObject *o, PyObject *unused) { Py_RETURN_TRUE; }
static PyObject *symnode_false(PyObject *o, PyObject *unused) { Py_RETURN_FALSE; }
static PyObject *symnode_none(PyObject *o, PyObject *unused) { Py_RETURN_NONE; }
static PyObject *symnode_self(PyObject *o, PyObject *unused) { return Py_NewRef(o); }
static PyObject *symnode_is_float(PyObject *o, PyObject *unused) { return PyBool_FromLong(!mg_symnode_is_int((MgSymNode *)o)); }
static PyObject *symnode_is_int(PyObject *o, PyObject *unused) { return PyBool_FromLong(mg_symnode_is_int((MgSymNode *)o)); }
/* C++ computes with sizes: it gets the number. */
static PyObject *symnode_maybe_int(PyObject *o, PyObject *unused) {
  if (!mg_symnode_is_int((MgSymNode *)o)) Py_RETURN_NONE;
  return mg_symnode_number((MgSymNode *)o);
}
static PyObject *symnode_guard_float(PyObject *o, PyObject *args) { return mg_symnode_number((MgSymNode *)o); }
static PyObject *symnode_text(PyObject *o, PyObject *unused) { return PyUnicode_FromString("<number>"); }

/* Anything else is a question that a graph has no answer to. */
static PyObject *symnode_getattr(PyObject *o, PyObject *name) {
  PyObject *r = PyObject_GenericGetAttr(o, name);
  if (r || !PyErr_ExceptionMatches(PyExc_AttributeError)) return r;
  MgRec *before = mg_rec;
  if (((MgSymNode *)o)->cap) mg_rec = ((MgSymNode *)o)->cap->rec;
  mg_rec_break(BK_op, "%s of a number that the graph computes", PyUnicode_AsUTF8(name));
  mg_rec = before;
  return NULL;
}

static PyMethodDef symnode_methods[] = {{"is_float", symnode_is_float, METH_NOARGS, NULL},
                                        {"is_int", symnode_is_int, METH_NOARGS, NULL},
                                        {"is_bool", symnode_false, METH_NOARGS, NULL},
                                        {"is_nested_int", symnode_false, METH_NOARGS, NULL},
                                        {"is_constant", symnode_false, METH_NOARGS, NULL},
                                        {"is_symbolic", symnode_true, METH_NOARGS, NULL},
                                        {"has_hint", symnode_false, METH_NOARGS, NULL},
                                        {"maybe_as_float", symnode_none, METH_NOARGS, NULL},
                                        {"clone", symnode_self, METH_NOARGS, NULL},
                                        {"maybe_as_int", symnode_maybe_int, METH_NOARGS, NULL},
                                        {"guard_float", symnode_guard_float, METH_VARARGS, NULL},
                                        {"guard_int", symnode_guard_float, METH_VARARGS, NULL},
                                        {"int_", symnode_guard_float, METH_VARARGS, NULL},
                                        {"str", symnode_text, METH_NOARGS, NULL},
                                        {"_graph_repr", symnode_text, METH_NOARGS, NULL},
                                        {NULL, NULL, 0, NULL}};

static PyTypeObject symnode_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "magneto._magneto.SymNode",
    .tp_basicsize = sizeof(MgSymNode),
    .tp_dealloc = symnode_dealloc,
    .tp_getattro = symnode_getattr,
    .tp_methods = symnode_methods,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

#define SYM_SLOTS                                                                                            \
  {Py_nb_add, symfloat_add}, {Py_nb_subtract, symfloat_sub}, {Py_nb_multiply, symfloat_mul},                 \
      {Py_nb_true_divide, symfloat_truediv}, {Py_nb_power, symfloat_pow}, {Py_nb_remainder, symfloat_mod},   \
      {Py_nb_floor_divide, symfloat_floordiv}, {Py_nb_divmod, symfloat_divmod}, {Py_nb_negative, symfloat_neg}, \
      {Py_nb_positive, symfloat_pos}, {Py_nb_absolute, symfloat_abs}, {Py_nb_bool, symfloat_bool},           \
      {Py_nb_float, symfloat_float}, {Py_nb_int, symfloat_int}, {Py_tp_richcompare, symfloat_compare},       \
      {Py_tp_hash, symfloat_hash}, {Py_tp_str, symfloat_str}, {Py_tp_repr, symfloat_str},                    \
      {Py_tp_getattro, symfloat_getattr}, {Py_tp_methods, symfloat_methods}, {0, NULL}

static PyType_Slot symfloat_slots[] = {SYM_SLOTS};
static PyType_Slot symint_slots[] = {{Py_nb_index, symfloat_int},      {Py_nb_and, symfloat_and},
                                     {Py_nb_or, symfloat_or},          {Py_nb_xor, symfloat_xor},
                                     {Py_nb_lshift, symfloat_lshift},  {Py_nb_rshift, symfloat_rshift},
                                     {Py_nb_invert, symfloat_invert},  SYM_SLOTS};

static PyType_Spec symfloat_spec = {.name = "magneto._magneto.SymFloat", .flags = Py_TPFLAGS_DEFAULT, .slots = symfloat_slots};
static PyType_Spec symint_spec = {.name = "magneto._magneto.SymInt", .flags = Py_TPFLAGS_DEFAULT, .slots = symint_slots};

static PyTypeObject *sym_make_class(PyType_Spec *spec, PyTypeObject *base) {
  PyObject *bases = PyTuple_Pack(1, base), *t = bases ? PyType_FromSpecWithBases(spec, bases) : NULL;
  Py_XDECREF(bases);
  return (PyTypeObject *)t;
}

int mg_symfloat_init(void) {
  if (sym_float) return 0;
  if (PyType_Ready(&symnode_type)) return -1;
  PyObject *torch = mg_import("torch");
  sym_node_name = PyUnicode_InternFromString("node");
  if (torch) { /* kept */
    sym_torch_float = (PyTypeObject *)PyObject_GetAttrString(torch, "SymFloat");
    sym_torch_int = (PyTypeObject *)PyObject_GetAttrString(torch, "SymInt");
    Py_DECREF(torch);
  }
  if (!sym_node_name || !sym_torch_float || !sym_torch_int) return -1;
  if (!(sym_int = sym_make_class(&symint_spec, sym_torch_int))) return -1;
  return (sym_float = sym_make_class(&symfloat_spec, sym_torch_float)) ? 0 : -1;
}
