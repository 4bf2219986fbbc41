/* The int objects and their arithmetic; see the header.  In: ints that are inputs.  Out: int64 nodes of the graph; guards where
 * Python or C wants to know a number.  Every node carries a bound of its magnitude, so that int64 never overflows unseen. */
#include "front/symint.h"
#include <string.h>
#include "front/guard.h"
#include "front/names.h"
#include "front/nodecall.h"
#include "front/policy.h"
#include "front/standin.h"
#include "front/symfloat.h"
#include "front/symnode.h"
#include "front/torchobj.h"

#define SYMINT_INPUT 2147483648.0          /* inputs are guarded to lie within */
#define SYMINT_LIMIT 9.2e18                /* just below 2^63: what a node may reach */
#define SYMINT_EXACT 9007199254740992.0    /* 2^53: what a double holds */

static PyTypeObject *symint_type;

bool mg_symint_is(PyObject *o) { return symint_type && Py_TYPE(o) == symint_type; }

static PyObject *symint_number(PyObject *o) { return mg_symint_is(o) ? mg_symnode_number(mg_symnode_of(o)) : Py_NewRef(o); }

bool mg_symint_fits(PyObject *value) {
  int over = 0;
  long long v = PyLong_AsLongLongAndOverflow(value, &over);
  return !over && v > -(long long)SYMINT_INPUT && v < (long long)SYMINT_INPUT;
}

static PyObject *symint_new(MgCapture *cap, ValRef v, PyObject *hint, double bound) { /* steals hint */
  MgSymNode *n = v && hint ? mg_symnode_new(cap, v) : NULL;
  if (!v && !PyErr_Occurred()) PyErr_NoMemory();
  if (!n) {
    Py_XDECREF(hint);
    return NULL;
  }
  n->hint = hint;
  n->is_int = true;
  n->bound = bound;
  PyObject *o = PyObject_CallOneArg((PyObject *)symint_type, (PyObject *)n);
  Py_DECREF(n);
  return o;
}

static void symint_guard_range(SrcRef src, int op, double limit) {
  MgGuards *g = mg_rec->guards;
  PyObject *want = Py_BuildValue("(iNO)", op, PyLong_FromDouble(limit), Py_True);
  if (!want) g->failed = true;
  else mg_guard_add(g, GK_compare, src, want, 0);
  Py_XDECREF(want);
}

PyObject *mg_symint_input(PyObject *value, SrcRef src) {
  MgCapture *cap = mg_rec->cap;
  ValRef v = 0;
  for (uint32_t i = 0; i < cap->ninput && !v; i++)
    if (cap->input[i].scalar && cap->input[i].src == src) v = cap->input[i].val;
  if (!v) {
    PyObject *t = mg_symfloat_tensor(value);
    v = t ? mg_standin_scalar_input(cap, t, src) : 0;
    Py_XDECREF(t);
    if (!v) return NULL;
    mg_guard_add(mg_rec->guards, GK_type, src, (PyObject *)&PyLong_Type, 0);
    symint_guard_range(src, Py_GT, -SYMINT_INPUT);
    symint_guard_range(src, Py_LT, SYMINT_INPUT);
  }
  PyObject *o = symint_new(cap, v, Py_NewRef(value), SYMINT_INPUT);
  if (o) mg_symnode_of(o)->src = src;
  return o;
}

/* ---- arithmetic ---- */

typedef PyObject *(*SymPython)(PyObject *, PyObject *);

static PyObject *symint_plain(PyObject *a, PyObject *b, SymPython py) {
  PyObject *x = symint_number(a), *y = x ? symint_number(b) : NULL, *r = y ? py(x, y) : NULL;
  Py_XDECREF(x);
  Py_XDECREF(y);
  return r;
}

/* The same number as a float object. */
static PyObject *symint_to_float(MgSymNode *n) {
  PyObject *t = mg_standin_new(n->cap, n->val), *dt = t ? mg_torchobj_new_dtype(DT_f64) : NULL;
  PyObject *kw = dt ? Py_BuildValue("{s:O}", "dtype", dt) : NULL, *a = kw ? PyTuple_Pack(1, t) : NULL;
  PyObject *r = a ? mg_dispatch_call(n->cap, "_to_copy", "default", a, kw) : NULL;
  PyObject *f = r ? mg_symfloat_item(n->cap, mg_standin_val(r)) : NULL;
  if (f) {
    MgSymNode *m = mg_symnode_of(f);
    m->hint = PyNumber_Float(n->hint);
    m->a = Py_NewRef((PyObject *)n);
  }
  PyObject *const used[] = {t, dt, kw, a, r};
  for (size_t i = 0; i < sizeof used / sizeof *used; i++) Py_XDECREF(used[i]);
  return f;
}

/* a op b where floats come out: both as floats. */
static PyObject *symint_floats(PyObject *a, PyObject *b, SymPython py) {
  MgSymNode *x = mg_symint_is(a) ? mg_symnode_of(a) : NULL, *y = mg_symint_is(b) ? mg_symnode_of(b) : NULL;
  if ((x && (!x->cap || x->bound > SYMINT_EXACT)) || (y && (!y->cap || y->bound > SYMINT_EXACT))) return symint_plain(a, b, py);
  PyObject *fa = x ? symint_to_float(x) : Py_NewRef(a), *fb = y && fa ? symint_to_float(y) : Py_NewRef(b);
  PyObject *r = fa && fb ? py(fa, fb) : NULL;
  Py_XDECREF(fa);
  Py_XDECREF(fb);
  return r;
}

/* Ops of a binary operation for (node, node), (node, constant) and (constant, node); 0: there is none. */
typedef struct SymOps {
  MgTop both, left, right;
} SymOps;

static double symint_bound(PyObject *o) {
  double d = mg_symint_is(o) ? mg_symnode_of(o)->bound : PyLong_AsDouble(o);
  if (d == -1 && PyErr_Occurred()) PyErr_Clear(), d = SYMINT_LIMIT;
  return d < 0 ? -d : d;
}

static PyObject *symint_binary(PyObject *a, PyObject *b, SymOps ops, double bound, SymPython py) {
  MgSymNode *x = mg_symint_is(a) ? mg_symnode_of(a) : NULL, *y = mg_symint_is(b) ? mg_symnode_of(b) : NULL;
  MgCapture *cap = x ? x->cap : y->cap;
  MgTop op = x && y ? ops.both : x ? ops.left : ops.right;
  if (!cap || (y && y->cap != cap) || !op || bound >= SYMINT_LIMIT || symint_bound(a) >= SYMINT_LIMIT || symint_bound(b) >= SYMINT_LIMIT)
    return symint_plain(a, b, py);
  MgGraph *g = cap->rec->g;
  MgArg arg[2] = {x ? mg_arg_val(x->val) : mg_arg_val(y->val), x && y ? mg_arg_val(y->val) : mg_arg_int(g, PyLong_AsLongLong(x ? b : a))};
  PyObject *hint = py(x ? x->hint : a, y ? y->hint : b);
  PyObject *r = hint ? symint_new(cap, mg_graph_emit1(g, op, arg, 2), hint, bound) : NULL;
  if (r) {
    MgSymNode *n = mg_symnode_of(r);
    n->a = Py_XNewRef((PyObject *)x);
    n->b = Py_XNewRef((PyObject *)y);
  }
  return r;
}

/* 1: both are ints; 0: a float is among them; -1: something else. */
static int symint_kind(PyObject *a, PyObject *b) {
  int kind = 1;
  for (int i = 0; i < 2; i++) {
    PyObject *o = i ? b : a;
    if (mg_symint_is(o) || PyLong_Check(o)) continue;
    if (!PyFloat_CheckExact(o)) return -1; /* a float of the graph knows what to do */
    kind = 0;
  }
  return kind;
}

#define SYMINT_BINARY(name, py, both, left, right, limit)                                                    \
  static PyObject *symint_##name(PyObject *a, PyObject *b) {                                                 \
    int kind = symint_kind(a, b);                                                                            \
    if (kind < 0) Py_RETURN_NOTIMPLEMENTED;                                                                  \
    double p = symint_bound(a), q = kind ? symint_bound(b) : 0;                                              \
    return kind ? symint_binary(a, b, (SymOps){both, left, right}, limit, py) : symint_floats(a, b, py);     \
  }
SYMINT_BINARY(add, PyNumber_Add, TOP_add_Tensor, TOP_add_Scalar, TOP_add_Scalar, p + q)
SYMINT_BINARY(sub, PyNumber_Subtract, TOP_sub_Tensor, TOP_sub_Scalar, TOP_rsub_Scalar, p + q)
SYMINT_BINARY(mul, PyNumber_Multiply, TOP_mul_Tensor, TOP_mul_Scalar, TOP_mul_Scalar, p * q)

static PyObject *symint_div(PyObject *a, PyObject *b) {
  if (symint_kind(a, b) < 0) Py_RETURN_NOTIMPLEMENTED;
  return symint_floats(a, b, PyNumber_TrueDivide);
}

/* By a positive constant, as Python rounds. */
static PyObject *symint_by_constant(PyObject *a, PyObject *b, MgTop op, SymPython py) {
  if (symint_kind(a, b) < 0) Py_RETURN_NOTIMPLEMENTED;
  bool fits = mg_symint_is(a) && PyLong_CheckExact(b) && mg_symint_fits(b) && PyLong_AsLongLong(b) > 0;
  return fits ? symint_binary(a, b, (SymOps){0, op, 0}, symint_bound(a) + symint_bound(b), py) : symint_plain(a, b, py);
}
static PyObject *symint_floordiv(PyObject *a, PyObject *b) {
  return symint_by_constant(a, b, TOP_floor_divide_Scalar, PyNumber_FloorDivide);
}
static PyObject *symint_mod(PyObject *a, PyObject *b) { return symint_by_constant(a, b, TOP_remainder_Scalar, PyNumber_Remainder); }

static PyObject *symint_py_pow(PyObject *a, PyObject *b) { return PyNumber_Power(a, b, Py_None); }
static PyObject *symint_pow(PyObject *a, PyObject *b, PyObject *mod) {
  if (mod != Py_None || symint_kind(a, b) < 0) Py_RETURN_NOTIMPLEMENTED;
  return PyLong_CheckExact(b) && PyLong_AsDouble(b) == 2 ? symint_mul(a, a) : symint_plain(a, b, symint_py_pow);
}

#define SYMINT_PLAIN(name, fn)                                                                               \
  static PyObject *symint_##name(PyObject *a, PyObject *b) {                                                 \
    if (symint_kind(a, b) < 0) Py_RETURN_NOTIMPLEMENTED;                                                     \
    return symint_plain(a, b, fn);                                                                           \
  }
SYMINT_PLAIN(divmod, PyNumber_Divmod)
SYMINT_PLAIN(and, PyNumber_And)
SYMINT_PLAIN(or, PyNumber_Or)
SYMINT_PLAIN(xor, PyNumber_Xor)
SYMINT_PLAIN(lshift, PyNumber_Lshift)
SYMINT_PLAIN(rshift, PyNumber_Rshift)

static PyObject *symint_unary(PyObject *o, MgTop op, PyObject *(*py)(PyObject *)) {
  MgSymNode *x = mg_symnode_of(o);
  if (!x->cap) return PyErr_Format(PyExc_RuntimeError, "magneto: a number of a finished recording was used");
  MgArg arg = mg_arg_val(x->val);
  PyObject *r = symint_new(x->cap, mg_graph_emit1(x->cap->rec->g, op, &arg, 1), py(x->hint), x->bound);
  if (r) mg_symnode_of(r)->a = Py_NewRef((PyObject *)x);
  return r;
}
static PyObject *symint_neg(PyObject *o) { return symint_unary(o, TOP_neg, PyNumber_Negative); }
static PyObject *symint_abs(PyObject *o) { return symint_unary(o, TOP_abs, PyNumber_Absolute); }
static PyObject *symint_pos(PyObject *o) { return Py_NewRef(o); }

/* ---- questions ---- */

static PyObject *symint_compare(PyObject *a, PyObject *b, int op) {
  if (symint_kind(a, b) < 0 && !mg_symnode_of(b)) Py_RETURN_NOTIMPLEMENTED;
  return mg_symnode_compare(a, b, op);
}

static int symint_bool(PyObject *o) {
  PyObject *zero = PyLong_FromLong(0), *r = zero ? mg_symnode_compare(o, zero, Py_NE) : NULL;
  int yes = r ? r == Py_True : -1;
  Py_XDECREF(zero);
  Py_XDECREF(r);
  return yes;
}

#define SYMINT_VIA(name, fn)                                                                                 \
  static PyObject *symint_##name(PyObject *o) {                                                              \
    PyObject *x = symint_number(o), *r = x ? fn(x) : NULL;                                                   \
    Py_XDECREF(x);                                                                                           \
    return r;                                                                                                \
  }
SYMINT_VIA(int, PyNumber_Long)
SYMINT_VIA(float, PyNumber_Float)
SYMINT_VIA(str, PyObject_Str)
SYMINT_VIA(invert, PyNumber_Invert)

static Py_hash_t symint_hash(PyObject *o) {
  PyObject *x = symint_number(o);
  Py_hash_t h = x ? PyObject_Hash(x) : -1;
  Py_XDECREF(x);
  return h;
}

static PyObject *symint_getattr(PyObject *o, PyObject *name) {
  if (!PyObject_HasAttr((PyObject *)&PyLong_Type, name) || name == mg_names.class_) return PyObject_GenericGetAttr(o, name);
  PyObject *x = symint_number(o), *r = x ? PyObject_GetAttr(x, name) : NULL;
  Py_XDECREF(x);
  return r;
}

/* Special methods that are looked up on the class. */
#define SYMINT_BY_NUMBER(name)                                                                               \
  static PyObject *symint_##name(PyObject *o, PyObject *args) {                                              \
    PyObject *x = symint_number(o), *m = x ? PyObject_GetAttrString(x, "__" #name "__") : NULL;              \
    PyObject *r = m ? PyObject_CallObject(m, args) : NULL;                                                   \
    Py_XDECREF(x);                                                                                           \
    Py_XDECREF(m);                                                                                           \
    return r;                                                                                                \
  }
SYMINT_BY_NUMBER(format)
SYMINT_BY_NUMBER(round)
SYMINT_BY_NUMBER(floor)
SYMINT_BY_NUMBER(ceil)
SYMINT_BY_NUMBER(trunc)
SYMINT_BY_NUMBER(reduce_ex)

/* ---- where tensors and C code get them ---- */

/* The 0-dim tensor; like: the other operand.  A number takes part in type promotion less than a tensor of its kind. */
static PyObject *symint_tensor(PyObject *o, PyObject *like) {
  MgSymNode *n = mg_symnode_of(o);
  if (!n->cap) return PyErr_Format(PyExc_RuntimeError, "magneto: a number of a finished recording was used");
  PyObject *t = mg_standin_new(n->cap, n->val), *dt = NULL, *kw = NULL, *a = NULL, *r = NULL;
  const MgVal *v = like && mg_standin_check(like) ? mg_val(n->cap->rec->g, mg_standin_val(like)) : NULL;
  if (!t || !v || v->ndim || !mg_dtype_is_int(v->dtype) || v->dtype == DT_i64) return t;
  if ((dt = mg_torchobj_new_dtype(v->dtype)) && (kw = Py_BuildValue("{s:O}", "dtype", dt)) && (a = PyTuple_Pack(1, t)))
    r = mg_dispatch_call(n->cap, "_to_copy", "default", a, kw);
  Py_DECREF(t);
  Py_XDECREF(dt);
  Py_XDECREF(kw);
  Py_XDECREF(a);
  return r;
}

static bool symint_tensor_operator(int op) { /* + // * % - / and their in-place forms */
  static const char yes[] = {1, 0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0};
  return op < 0 || yes[op % 13];
}

int mg_symint_operands(int op, PyObject **a, PyObject **b) {
  bool left = mg_symint_is(*a), right = mg_symint_is(*b);
  if (left == right || !mg_standin_check(left ? *b : *a)) return 0;
  PyObject *o = left ? *a : *b, *like = left ? *b : *a;
  PyObject *t = symint_tensor_operator(op) ? symint_tensor(o, like) : symint_number(o);
  if (!t) return -1;
  *a = left ? t : Py_NewRef(like);
  *b = left ? Py_NewRef(like) : t;
  return 1;
}

static PyObject *symint_deep(PyObject *o) {
  if (mg_symint_is(o)) return symint_number(o);
  if (PySlice_Check(o)) {
    PySliceObject *s = (PySliceObject *)o;
    PyObject *p[3] = {symint_deep(s->start), symint_deep(s->stop), symint_deep(s->step)}, *r = NULL;
    if (p[0] && p[1] && p[2]) r = PySlice_New(p[0], p[1], p[2]);
    for (int i = 0; i < 3; i++) Py_XDECREF(p[i]);
    return r;
  }
  bool list = PyList_CheckExact(o), any = false;
  if (!list && !PyTuple_CheckExact(o)) return Py_NewRef(o);
  Py_ssize_t n = Py_SIZE(o);
  PyObject *r = list ? PyList_New(n) : PyTuple_New(n);
  for (Py_ssize_t i = 0; r && i < n; i++) {
    PyObject *was = PySequence_Fast_GET_ITEM(o, i), *x = symint_deep(was);
    if (!x) {
      Py_DECREF(r);
      return NULL;
    }
    any |= x != was;
    if (list) PyList_SET_ITEM(r, i, x);
    else PyTuple_SET_ITEM(r, i, x);
  }
  if (!r || any) return r;
  Py_DECREF(r);
  return Py_NewRef(o); /* the object itself, where identity may matter */
}

PyObject *mg_symint_key(PyObject *key) { return symint_deep(key); }
PyObject *mg_symint_value(PyObject *v) { return mg_symint_is(v) ? symint_tensor(v, NULL) : Py_NewRef(v); }

/* C code that treats an int as any object, or asks it by its protocols. */
static bool symint_knows_objects(const char *name) {
  static const char *const prefix[] = {"builtins.", "_operator.", "_functools.", "functools.", "itertools.", "_collections.",
                                       "collections.", "magneto."};
  if (!strncmp(name, "builtins.int.", 13)) return false;
  for (size_t i = 0; i < sizeof prefix / sizeof *prefix; i++)
    if (!strncmp(name, prefix[i], strlen(prefix[i]))) return true;
  return false;
}

/* Functions of torch that take a tensor where they take a number. */
static bool symint_takes_tensors(const char *name) {
  static const char *const ops[] = {"add", "sub", "mul", "div", "add_", "sub_", "mul_", "div_", "true_divide", "subtract", "multiply",
                                    "divide", "rsub", "eq", "ne", "lt", "le", "gt", "ge", "where", "floor_divide", "remainder",
                                    "__add__", "__radd__", "__iadd__", "__mul__", "__rmul__", "__imul__", "__sub__", "__isub__"};
  const char *last = strrchr(name, '.');
  if (strncmp(name, "torch.", 6) || !last) return false;
  for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
    if (!strcmp(last + 1, ops[i])) return true;
  return false;
}

PyObject *mg_symint_args(PyObject *f, PyObject *const *arg, Py_ssize_t n) {
  char name[300];
  bool any = false;
  if (PyType_Check(f) && ((PyTypeObject *)f)->tp_flags & Py_TPFLAGS_HEAPTYPE) return NULL; /* its __init__ is recorded */
  mg_policy_name(f, name, sizeof name);
  if (!PyFunction_Check(f) && symint_knows_objects(name)) return NULL;
  PyObject *like = mg_policy_self(f), *t = PyTuple_New(n);
  if (like && !mg_standin_check(like)) like = NULL;
  for (Py_ssize_t i = 0; i < n && !like; i++)
    if (mg_standin_check(arg[i])) like = arg[i];
  bool tensors = like && symint_takes_tensors(name);
  for (Py_ssize_t i = 0; t && i < n; i++) {
    PyObject *x = tensors && mg_symint_is(arg[i]) ? symint_tensor(arg[i], like) : symint_deep(arg[i]);
    if (!x) {
      Py_DECREF(t);
      return NULL;
    }
    any |= x != arg[i];
    PyTuple_SET_ITEM(t, i, x);
  }
  if (any || !t) return t;
  Py_DECREF(t);
  return NULL;
}

/* ---- the type ---- */

static PyObject *symint_make(PyTypeObject *t, PyObject *args, PyObject *kw) {
  PyObject *node, *o;
  if (!PyArg_ParseTuple(args, "O", &node)) return NULL;
  if (!mg_symnode_of(node)) return PyErr_Format(PyExc_TypeError, "magneto: a number of a graph is made by recording");
  if ((o = t->tp_alloc(t, 0))) ((MgSymInt *)o)->node = (MgSymNode *)Py_NewRef(node);
  return o;
}
static void symint_dealloc(PyObject *o) {
  PyTypeObject *t = Py_TYPE(o);
  Py_XDECREF(((MgSymInt *)o)->node);
  t->tp_free(o);
  Py_DECREF(t);
}

static PyMethodDef symint_methods[] = {{"__format__", symint_format, METH_VARARGS, NULL},
                                       {"__round__", symint_round, METH_VARARGS, NULL},
                                       {"__floor__", symint_floor, METH_VARARGS, NULL},
                                       {"__ceil__", symint_ceil, METH_VARARGS, NULL},
                                       {"__trunc__", symint_trunc, METH_VARARGS, NULL},
                                       {"__reduce_ex__", symint_reduce_ex, METH_VARARGS, NULL},
                                       {NULL, NULL, 0, NULL}};

static PyType_Slot symint_slots[] = {
    {Py_tp_new, symint_make}, {Py_tp_dealloc, symint_dealloc},
    {Py_nb_add, symint_add}, {Py_nb_subtract, symint_sub}, {Py_nb_multiply, symint_mul}, {Py_nb_true_divide, symint_div},
    {Py_nb_floor_divide, symint_floordiv}, {Py_nb_remainder, symint_mod}, {Py_nb_divmod, symint_divmod}, {Py_nb_power, symint_pow},
    {Py_nb_and, symint_and}, {Py_nb_or, symint_or}, {Py_nb_xor, symint_xor}, {Py_nb_lshift, symint_lshift},
    {Py_nb_rshift, symint_rshift}, {Py_nb_negative, symint_neg}, {Py_nb_positive, symint_pos}, {Py_nb_absolute, symint_abs},
    {Py_nb_invert, symint_invert}, {Py_nb_bool, symint_bool}, {Py_nb_int, symint_int}, {Py_nb_index, symint_int},
    {Py_nb_float, symint_float}, {Py_tp_richcompare, symint_compare}, {Py_tp_hash, symint_hash}, {Py_tp_str, symint_str},
    {Py_tp_repr, symint_str}, {Py_tp_getattro, symint_getattr}, {Py_tp_methods, symint_methods}, {0, NULL}};

static PyType_Spec symint_spec = {
    .name = "magneto._magneto.SymInt", .basicsize = sizeof(MgSymInt), .flags = Py_TPFLAGS_DEFAULT, .slots = symint_slots};

int mg_symint_init(void) {
  if (!symint_type) symint_type = (PyTypeObject *)PyType_FromSpec(&symint_spec);
  return symint_type ? 0 : -1;
}
