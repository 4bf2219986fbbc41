/* The number objects and their arithmetic; see the header.  What becomes of them in calls of ATen is in symcall.c.
 * In: floats that are inputs, 0-dim values.  Out: nodes of the graph; guards where Python wants to know a number. */
#include "front/symfloat.h"
#include <math.h>
#include "front/guard.h"
#include "front/nodecall.h"
#include "front/standin.h"
#include "front/symint.h"
#include "front/symnode.h"

static PyTypeObject *symfloat_type, *symfloat_torch; /* ours; torch.SymFloat */
static PyObject *symfloat_node_name;

/* ---- nodes ---- */

static void symnode_dealloc(PyObject *o) {
  MgSymNode *n = (MgSymNode *)o;
  Py_XDECREF(n->hint);
  Py_XDECREF(n->a);
  Py_XDECREF(n->b);
  PyObject_Free(o);
}

static PyTypeObject symnode_type;

MgSymNode *mg_symnode_new(MgCapture *cap, ValRef val) {
  MgSymNode *n = PyObject_New(MgSymNode, &symnode_type);
  if (!n) return NULL;
  *n = (MgSymNode){.ob_base = n->ob_base, .cap = cap, .val = val};
  if (!cap->syms && !(cap->syms = PyList_New(0))) goto fail;
  if (PyList_Append(cap->syms, (PyObject *)n)) goto fail; /* told when the recording ends */
  return n;
fail:
  Py_DECREF(n);
  return NULL;
}

MgSymNode *mg_symnode_of(PyObject *o) {
  if (Py_TYPE(o) == &symnode_type) return (MgSymNode *)o;
  if (mg_symint_is(o)) return ((MgSymInt *)o)->node;
  if (!symfloat_type || (Py_TYPE(o) != symfloat_type && Py_TYPE(o) != symfloat_torch)) return NULL;
  PyObject **d = _PyObject_GetDictPtr(o), *n = d && *d ? PyDict_GetItemWithError(*d, symfloat_node_name) : NULL;
  return n && Py_TYPE(n) == &symnode_type ? (MgSymNode *)n : NULL;
}

bool mg_symfloat_is(PyObject *o) { return mg_symnode_of(o) != NULL; }

static PyObject *symfloat_of(MgSymNode *n) { /* steals n */
  PyObject *f = n ? PyObject_CallOneArg((PyObject *)symfloat_type, (PyObject *)n) : NULL;
  Py_XDECREF(n);
  return f;
}

PyObject *mg_symfloat_dress(PyObject *o) {
  if (!o || Py_TYPE(o) != symfloat_torch) return o;
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
  if (mg_abi.aoti_torch_empty_strided(0, NULL, NULL, is_int ? DT_i64 : DT_f64, DEV_cpu, -1, &t) || mg_abi.aoti_torch_get_data_ptr(t, &p))
    return PyErr_NoMemory();
  if (is_int) *(int64_t *)p = PyLong_AsLongLong(value);
  else *(double *)p = PyFloat_AS_DOUBLE(value);
  return mg_tensor_wrap(t);
}

PyObject *mg_symfloat_read(PyObject *tensor) {
  void *p = NULL;
  int32_t dtype = 0;
  if (mg_abi.aoti_torch_get_data_ptr(mg_abi_tensor(tensor), &p) || mg_abi.aoti_torch_get_dtype(mg_abi_tensor(tensor), &dtype) || !p)
    return PyErr_NoMemory();
  return dtype == DT_i64 ? PyLong_FromLongLong(*(const int64_t *)p) : PyFloat_FromDouble(*(const double *)p);
}

PyObject *mg_symfloat_input(PyObject *value, SrcRef src) {
  if (PyLong_Check(value)) return mg_symint_input(value, src);
  MgCapture *cap = mg_rec->cap;
  for (uint32_t i = 0; i < cap->ninput; i++)
    if (cap->input[i].scalar && cap->input[i].src == src) {
      MgSymNode *n = mg_symnode_new(cap, cap->input[i].val);
      if (n) n->hint = Py_NewRef(value), n->src = src;
      return symfloat_of(n);
    }
  PyObject *t = mg_symfloat_tensor(value);
  ValRef v = t ? mg_standin_scalar_input(cap, t, src) : 0;
  Py_XDECREF(t);
  if (!v) return NULL;
  mg_guard_add(mg_rec->guards, GK_type, src, (PyObject *)&PyFloat_Type, 0);
  MgSymNode *n = mg_symnode_new(cap, v);
  if (n) n->hint = Py_NewRef(value), n->src = src;
  return symfloat_of(n);
}

PyObject *mg_symfloat_item(MgCapture *cap, ValRef val) { return symfloat_of(mg_symnode_new(cap, val)); }

int mg_symfloat_origin(PyObject *o, SrcRef *src, ValRef *val) {
  MgSymNode *n = mg_symnode_of(o);
  *src = n->src;
  *val = n->val;
  return n->src != 0;
}

/* ---- the number itself ---- */

static int symnode_pin(MgSymNode *n) {
  if (n->src) mg_guard_add(n->cap->rec->guards, GK_equal, n->src, n->hint, 0);
  for (int i = 0; i < 2; i++) {
    PyObject *x = i ? n->b : n->a;
    if (x && symnode_pin((MgSymNode *)x)) return -1;
  }
  return 0;
}

PyObject *mg_symnode_number(MgSymNode *n) {
  MgRec *before = mg_rec;
  if (!n->cap) return PyErr_Format(PyExc_RuntimeError, "magneto: a number of a finished recording was used");
  mg_rec = n->cap->rec; /* also where torch's own Python asks */
  PyObject *r = NULL;
  if (!n->hint) mg_rec_break(BK_data_dependent, "the value of Tensor.item()");
  else if (!symnode_pin(n)) r = Py_NewRef(n->hint);
  mg_rec = before;
  return r;
}

static PyObject *symfloat_number(PyObject *o) {
  MgSymNode *n = mg_symnode_of(o);
  return n ? mg_symnode_number(n) : Py_NewRef(o);
}

PyObject *mg_symfloat_plain(PyObject *o) { return symfloat_number(o); }

/* ---- arithmetic ---- */

typedef struct SymOperand { /* a number object, or a plain number */
  MgSymNode *node;
  double number;
} SymOperand;

/* 1 a number, 0 something else, -1 error. */
static int sym_operand(PyObject *o, SymOperand *out) {
  *out = (SymOperand){.node = mg_symnode_of(o)};
  if (out->node) return 1;
  if (!PyFloat_CheckExact(o) && !PyLong_Check(o)) return 0;
  out->number = PyFloat_AsDouble(o);
  return out->number == -1 && PyErr_Occurred() ? -1 : 1;
}

typedef PyObject *(*SymPython)(PyObject *, PyObject *);
static PyObject *sym_py_pow(PyObject *a, PyObject *b) { return PyNumber_Power(a, b, Py_None); }

static PyObject *sym_hint(const SymOperand *x, PyObject *o) { return x->node ? x->node->hint : o; }

/* Both as plain numbers: what the graph cannot express. */
static PyObject *sym_plain(PyObject *a, PyObject *b, SymPython py) {
  PyObject *x = symfloat_number(a), *y = x ? symfloat_number(b) : NULL, *r = y ? py(x, y) : NULL;
  Py_XDECREF(x);
  Py_XDECREF(y);
  return r;
}

/* Does the operation raise, or leave the floats, for some numbers?  Then it is only recorded when the numbers are known. */
static bool sym_total(SymPython py, const SymOperand *x, PyObject *ha, const SymOperand *y, PyObject *hb) {
  if (py == PyNumber_TrueDivide) return y->node ? hb && PyFloat_AsDouble(hb) != 0 : y->number != 0;
  if (py == sym_py_pow) return x->node ? ha && PyFloat_AsDouble(ha) > 0 : x->number > 0;
  return true;
}

/* a op b as a node of the graph; tensor, left and right are its ops for (sym, sym), (sym, number), (number, sym). */
static PyObject *sym_binary(PyObject *a, PyObject *b, MgTop both, MgTop left, MgTop right, SymPython py) {
  SymOperand x, y;
  int rx = sym_operand(a, &x), ry = rx < 0 ? -1 : sym_operand(b, &y);
  if (rx < 0 || ry < 0) return NULL;
  if (!rx || !ry) Py_RETURN_NOTIMPLEMENTED;
  MgCapture *cap = x.node ? x.node->cap : y.node->cap;
  PyObject *ha = sym_hint(&x, a), *hb = sym_hint(&y, b), *hint = NULL;
  if (!cap || (y.node && y.node->cap != cap) || !sym_total(py, &x, ha, &y, hb)) return sym_plain(a, b, py);
  if (ha && hb && !(hint = py(ha, hb))) return NULL;
  if (hint && !PyFloat_CheckExact(hint)) {
    Py_DECREF(hint);
    return sym_plain(a, b, py);
  }
  MgGraph *g = cap->rec->g;
  MgArg arg[2] = {x.node ? mg_arg_val(x.node->val) : mg_arg_float(x.number), y.node ? mg_arg_val(y.node->val) : mg_arg_float(y.number)};
  if (right == TOP_mul_Scalar || right == TOP_add_Scalar || right == TOP_rsub_Scalar)
    if (!x.node) arg[1] = arg[0], arg[0] = mg_arg_val(y.node->val);
  ValRef v;
  if (!x.node && py == PyNumber_TrueDivide) { /* number / sym */
    arg[0] = mg_arg_val(mg_graph_emit1(g, TOP_reciprocal, &arg[1], 1));
    arg[1] = mg_arg_float(x.number);
    v = mg_graph_emit1(g, TOP_mul_Scalar, arg, 2);
  } else v = mg_graph_emit1(g, x.node && y.node ? both : x.node ? left : right, arg, 2);
  MgSymNode *n = v ? mg_symnode_new(cap, v) : NULL;
  if (!v) PyErr_NoMemory();
  if (n) {
    n->hint = Py_XNewRef(hint);
    n->a = Py_XNewRef((PyObject *)x.node);
    n->b = Py_XNewRef((PyObject *)y.node);
  }
  Py_XDECREF(hint);
  return symfloat_of(n);
}

static PyObject *symfloat_add(PyObject *a, PyObject *b) {
  return sym_binary(a, b, TOP_add_Tensor, TOP_add_Scalar, TOP_add_Scalar, PyNumber_Add);
}
static PyObject *symfloat_sub(PyObject *a, PyObject *b) {
  return sym_binary(a, b, TOP_sub_Tensor, TOP_sub_Scalar, TOP_rsub_Scalar, PyNumber_Subtract);
}
static PyObject *symfloat_mul(PyObject *a, PyObject *b) {
  return sym_binary(a, b, TOP_mul_Tensor, TOP_mul_Scalar, TOP_mul_Scalar, PyNumber_Multiply);
}
static PyObject *symfloat_div(PyObject *a, PyObject *b) {
  return sym_binary(a, b, TOP_div_Tensor, TOP_div_Scalar, TOP_div_Scalar, PyNumber_TrueDivide);
}
static PyObject *symfloat_pow(PyObject *a, PyObject *b, PyObject *mod) {
  if (mod != Py_None) Py_RETURN_NOTIMPLEMENTED;
  return sym_binary(a, b, TOP_pow_Tensor_Tensor, TOP_pow_Tensor_Scalar, TOP_pow_Scalar, sym_py_pow);
}

static PyObject *sym_unary(PyObject *o, MgTop op, PyObject *(*py)(PyObject *)) {
  MgSymNode *x = mg_symnode_of(o);
  if (!x || !x->cap) return PyErr_Format(PyExc_RuntimeError, "magneto: a number of a finished recording was used");
  MgArg arg = mg_arg_val(x->val);
  ValRef v = mg_graph_emit1(x->cap->rec->g, op, &arg, 1);
  MgSymNode *n = v ? mg_symnode_new(x->cap, v) : NULL;
  if (!v) PyErr_NoMemory();
  if (n) {
    n->a = Py_NewRef((PyObject *)x);
    if (x->hint && !(n->hint = py(x->hint))) Py_CLEAR(n);
  }
  return symfloat_of(n);
}
static PyObject *symfloat_neg(PyObject *o) { return sym_unary(o, TOP_neg, PyNumber_Negative); }
static PyObject *symfloat_abs(PyObject *o) { return sym_unary(o, TOP_abs, PyNumber_Absolute); }
static PyObject *symfloat_pos(PyObject *o) { return Py_NewRef(o); }

#define PLAIN_BINARY(name, fn)                                                                               \
  static PyObject *symfloat_##name(PyObject *a, PyObject *b) {                                               \
    SymOperand x, y;                                                                                         \
    if (sym_operand(a, &x) <= 0 || sym_operand(b, &y) <= 0) {                                                \
      if (PyErr_Occurred()) return NULL;                                                                     \
      Py_RETURN_NOTIMPLEMENTED;                                                                              \
    }                                                                                                        \
    return sym_plain(a, b, fn);                                                                              \
  }
PLAIN_BINARY(mod, PyNumber_Remainder)
PLAIN_BINARY(floordiv, PyNumber_FloorDivide)
PLAIN_BINARY(divmod, PyNumber_Divmod)

/* ---- questions ---- */

/* An input compared with a number: only the answer is guarded. */
PyObject *mg_symnode_compare(PyObject *a, PyObject *b, int op) {
  MgSymNode *x = mg_symnode_of(a);
  if (x && x->cap && x->src && (PyFloat_CheckExact(b) || PyLong_CheckExact(b))) {
    PyObject *r = PyObject_RichCompare(x->hint, b, op);
    if (!r) return NULL;
    MgGuards *g = x->cap->rec->guards;
    PyObject *want = Py_BuildValue("(iOO)", op, b, r);
    if (!want) g->failed = true;
    else mg_guard_add(g, GK_compare, x->src, want, 0);
    Py_XDECREF(want);
    return r;
  }
  SymOperand other;
  if (!mg_symnode_of(b) && sym_operand(b, &other) <= 0) {
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NOTIMPLEMENTED;
  }
  PyObject *na = symfloat_number(a), *nb = na ? symfloat_number(b) : NULL, *r = nb ? PyObject_RichCompare(na, nb, op) : NULL;
  Py_XDECREF(na);
  Py_XDECREF(nb);
  return r;
}

static int symfloat_bool(PyObject *o) {
  PyObject *zero = PyFloat_FromDouble(0), *r = zero ? mg_symnode_compare(o, zero, Py_NE) : NULL;
  int yes = r ? r == Py_True : -1;
  Py_XDECREF(zero);
  Py_XDECREF(r);
  return yes;
}

static PyObject *symfloat_float(PyObject *o) { return symfloat_number(o); }
static PyObject *symfloat_via(PyObject *o, PyObject *(*fn)(PyObject *)) {
  PyObject *x = symfloat_number(o), *r = x ? fn(x) : NULL;
  Py_XDECREF(x);
  return r;
}
static PyObject *symfloat_int(PyObject *o) { return symfloat_via(o, PyNumber_Long); }
static PyObject *symfloat_str(PyObject *o) { return symfloat_via(o, PyObject_Str); }
static Py_hash_t symfloat_hash(PyObject *o) {
  PyObject *x = symfloat_number(o);
  Py_hash_t h = x ? PyObject_Hash(x) : -1;
  Py_XDECREF(x);
  return h;
}

/* The public attributes of a float are those of the number. */
static PyObject *symfloat_getattr(PyObject *o, PyObject *name) {
  if (PyUnicode_GET_LENGTH(name) && PyUnicode_READ_CHAR(name, 0) != '_' && PyObject_HasAttr((PyObject *)&PyFloat_Type, name)) {
    PyObject *x = symfloat_number(o), *r = x ? PyObject_GetAttr(x, name) : NULL;
    Py_XDECREF(x);
    return r;
  }
  return PyObject_GenericGetAttr(o, name);
}

/* Special methods are looked up on the class, where torch.SymFloat has its own. */
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

static PyMethodDef symnode_methods[] = {{"is_float", symnode_true, METH_NOARGS, NULL},
                                        {"is_int", symnode_false, METH_NOARGS, NULL},
                                        {"is_bool", symnode_false, METH_NOARGS, NULL},
                                        {"is_nested_int", symnode_false, METH_NOARGS, NULL},
                                        {"is_constant", symnode_false, METH_NOARGS, NULL},
                                        {"is_symbolic", symnode_true, METH_NOARGS, NULL},
                                        {"has_hint", symnode_false, METH_NOARGS, NULL},
                                        {"maybe_as_float", symnode_none, METH_NOARGS, NULL},
                                        {"clone", symnode_self, METH_NOARGS, NULL},
                                        {"guard_float", symnode_guard_float, METH_VARARGS, NULL},
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

static PyType_Slot symfloat_slots[] = {{Py_nb_add, symfloat_add},
                                       {Py_nb_subtract, symfloat_sub},
                                       {Py_nb_multiply, symfloat_mul},
                                       {Py_nb_true_divide, symfloat_div},
                                       {Py_nb_power, symfloat_pow},
                                       {Py_nb_remainder, symfloat_mod},
                                       {Py_nb_floor_divide, symfloat_floordiv},
                                       {Py_nb_divmod, symfloat_divmod},
                                       {Py_nb_negative, symfloat_neg},
                                       {Py_nb_positive, symfloat_pos},
                                       {Py_nb_absolute, symfloat_abs},
                                       {Py_nb_bool, symfloat_bool},
                                       {Py_nb_float, symfloat_float},
                                       {Py_nb_int, symfloat_int},
                                       {Py_tp_richcompare, mg_symnode_compare},
                                       {Py_tp_hash, symfloat_hash},
                                       {Py_tp_str, symfloat_str},
                                       {Py_tp_repr, symfloat_str},
                                       {Py_tp_getattro, symfloat_getattr},
                                       {Py_tp_methods, symfloat_methods},
                                       {0, NULL}};

static PyType_Spec symfloat_spec = {
    .name = "magneto._magneto.SymFloat", .flags = Py_TPFLAGS_DEFAULT, .slots = symfloat_slots};

int mg_symfloat_init(void) {
  if (symfloat_type) return 0;
  if (mg_symint_init()) return -1;
  if (PyType_Ready(&symnode_type)) return -1;
  PyObject *torch = PyImport_ImportModule("torch"), *base = torch ? PyObject_GetAttrString(torch, "SymFloat") : NULL;
  PyObject *bases = base ? PyTuple_Pack(1, base) : NULL;
  symfloat_node_name = PyUnicode_InternFromString("node");
  symfloat_torch = (PyTypeObject *)base; /* kept */
  symfloat_type = bases && symfloat_node_name ? (PyTypeObject *)PyType_FromSpecWithBases(&symfloat_spec, bases) : NULL;
  Py_XDECREF(bases);
  Py_XDECREF(torch);
  return symfloat_type ? 0 : -1;
}
