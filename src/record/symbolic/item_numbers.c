/* See the header.  In: tensors and numbers.  Out: nodes of the graph for the
 * tensors, expressions over them. */
#include "record/symbolic/item_numbers.h"
#include <string.h>
#include "entry/launch/config.h"
#include "host/python/hook_mode.h"
#include "host/python/pyobject.h"
#include "host/torch/literals.h"
#include "record/core/capture.h"
#include "record/core/ops.h"
#include "record/core/recording.h"
#include "record/symbolic/number.h"
#include "record/symbolic/number_ops.h"
#include "record/symbolic/sizes.h"
#include "record/symbolic/speculation.h"
#include "record/symbolic/state_numbers.h"
#include "record/symbolic/unbacked.h"
#include "tuning.h"

/* ---- out of tensors ---- */

static char value_kind_of_dtype(int dtype) {
  if (dtype == DT_bool) return 'b';
  if (mg_dtype_is_float(dtype)) return 'f';
  return !mg_dtype_has_ty(dtype) || dtype == DT_u64 ? 0 : 'i';
}

/* Number of elements; -1: sizes that depend on data.  Others are constants from
 * here on.  size may be NULL. */
static int64_t value_count(const MgCapture *cap, const MgVal *v, int64_t *size) {
  const MgGraph *g = cap->rec->g;
  int64_t n = 1, d;
  for (int i = 0; i < v->ndim; i++) {
    if (mg_symdata_in(cap, v->size[i]) || !mg_sym_settle(g->x, v->size[i], &d)) return -1;
    if (size) size[i] = d;
    n *= d;
  }
  return n;
}

bool mg_symvalue_can(MgCapture *cap, PyObject *tensor) {
  if (!mg_standin_is(tensor) || (cap->rec->want_fx && !mg_symdata_wanted(cap->rec, false))) return false;
  const MgVal *v = mg_val(cap->rec->g, mg_standin_val(tensor));
  int64_t n = value_count(cap, v, NULL);
  return v->device == DEV_cpu && value_kind_of_dtype(v->dtype) && n >= 0 && n <= MG_TUNE_LIST_NUMBERS &&
         v->ndim <= MG_TUNE_LIST_DIMENSIONS;
}

/* A call of ATen whose result autograd does not track.  Steals args. */
static PyObject *value_call(MgCapture *cap, const char *name, const char *overload, PyObject *args,
                            PyObject *kwargs) {
  bool grad = mg_abi.aoti_torch_grad_mode_is_enabled();
  mg_abi.aoti_torch_grad_mode_set_enabled(false);
  PyObject *r = args ? mg_ops.dispatch_call(cap, name, overload, args, kwargs) : NULL;
  mg_abi.aoti_torch_grad_mode_set_enabled(grad);
  Py_XDECREF(args);
  return r;
}

/* A copy with another dtype, contiguous.  Steals t. */
static PyObject *value_cast(MgCapture *cap, PyObject *t, int dtype) {
  PyObject *torch = t ? mg_import("torch") : NULL,
           *order = torch ? PyObject_GetAttrString(torch, "contiguous_format") : NULL;
  PyObject *dt = order ? mg_torchobj_new_dtype(dtype) : NULL;
  PyObject *kw = dt ? Py_BuildValue("{s:O,s:O}", "dtype", dt, "memory_format", order) : NULL;
  PyObject *r = kw ? value_call(cap, "_to_copy", "default", PyTuple_Pack(1, t), kw) : NULL;
  Py_XDECREF(torch);
  Py_XDECREF(order);
  Py_XDECREF(dt);
  Py_XDECREF(kw);
  Py_XDECREF(t);
  return r;
}

/* All numbers of a tensor as float64, int64 or bool, in order.  zero_dim: the
 * only one, without dimensions. */
static ValRef value_row(MgCapture *cap, PyObject *tensor, bool zero_dim, char *kind) {
  const MgVal *v = mg_val(cap->rec->g, mg_standin_val(tensor));
  zero_dim = zero_dim && v->ndim;
  *kind = value_kind_of_dtype(v->dtype);
  PyObject *t = value_cast(cap, Py_NewRef(tensor), *kind == 'f' ? DT_f64 : *kind == 'i' ? DT_i64 : DT_bool);
  if (t && zero_dim) {
    PyObject *one = value_call(cap, "view", "default", Py_BuildValue("(O[])", t), NULL);
    Py_SETREF(t, one);
  }
  ValRef r = t ? mg_standin_val(t) : 0;
  Py_XDECREF(t);
  return r;
}

PyObject *mg_symvalue_item(MgCapture *cap, PyObject *tensor) {
  char kind;
  ValRef val = value_row(cap, tensor, true, &kind);
  MgSymNode *n = val ? mg_symnode_value(cap, kind) : NULL;
  if (n) n->val = n->row = val;
  return mg_symfloat_of(n);
}

static PyObject *value_nested(MgCapture *cap, ValRef row, char kind, const int64_t *size, int ndim,
                              uint32_t *at) {
  if (!ndim) {
    MgSymNode *n = mg_symnode_value(cap, kind);
    if (n) n->row = row;
    if (n) n->at = (*at)++;
    return mg_symfloat_of(n);
  }
  PyObject *l = PyList_New(size[0]);
  for (int64_t i = 0; l && i < size[0]; i++) {
    PyObject *x = value_nested(cap, row, kind, size + 1, ndim - 1, at);
    if (!x) Py_CLEAR(l);
    else PyList_SET_ITEM(l, i, x);
  }
  return l;
}

/* In a torch-level graph: item() of each item, as torch.compile has it. */
static PyObject *value_items(PyObject *t, const int64_t *size, int ndim) {
  if (!ndim) return mg_symfloat_dress(PyObject_CallMethod(t, "item", NULL));
  PyObject *l = PyList_New((Py_ssize_t)*size);
  for (Py_ssize_t i = 0; l && i < *size; i++) {
    PyObject *at = PyLong_FromSsize_t(i), *x = at ? PyObject_GetItem(t, at) : NULL,
             *o = x ? value_items(x, size + 1, ndim - 1) : NULL;
    Py_XDECREF(at);
    Py_XDECREF(x);
    if (!o) Py_CLEAR(l);
    else PyList_SET_ITEM(l, i, o);
  }
  return l;
}

PyObject *mg_symvalue_list(MgCapture *cap, PyObject *tensor) {
  const MgVal *v = mg_val(cap->rec->g, mg_standin_val(tensor));
  int64_t size[MG_TUNE_LIST_DIMENSIONS];
  int ndim = v->ndim;
  uint32_t at = 0;
  char kind = 0;
  value_count(cap, v, size);
  if (cap->fx && !cap->quiet && !mg_ops.fx_is_aten(cap)) return value_items(tensor, size, ndim);
  ValRef row = value_row(cap, tensor, false, &kind);
  return row ? value_nested(cap, row, kind, size, ndim, &at) : NULL;
}

/* ---- arithmetic ---- */

static char value_kind(MgSymNode *n, PyObject *o) {
  if (n) return n->kind;
  return PyBool_Check(o) ? 'b' : PyLong_CheckExact(o) ? 'i' : PyFloat_CheckExact(o) ? 'f' : 0;
}

/* A constant that a float64 and an int64 have room for. */
static bool value_fits(PyObject *o) {
  int over = 0;
  if (PyLong_Check(o)) PyLong_AsLongLongAndOverflow(o, &over);
  return !over;
}

/* Is it never 0?  max(1.0, x) is not: it is at least 1, or NaN. */
static bool value_nonzero(const MgSymNode *n) {
  bool most = n && !n->src && !n->hint && !n->row && n->calc == CALC_max && n->constant;
  return most && PyFloat_CheckExact(n->constant) && PyFloat_AS_DOUBLE(n->constant) > 0;
}

/* The class of the result, whatever the numbers are; 0 when that depends on them,
 * or the operation may raise. */
static char value_result(int calc, char x, char y, PyObject *left, PyObject *right, const MgSymNode *second) {
  bool real = x == 'f' || y == 'f';
  switch (calc) {
  case CALC_add:
  case CALC_sub:
  case CALC_mul: return real ? 'f' : 'i';
  case CALC_truediv: return value_nonzero(second) || (right && PyObject_IsTrue(right) == 1) ? 'f' : 0;
  case CALC_floordiv:
  case CALC_mod: return right && PyObject_IsTrue(right) == 1 ? real ? 'f' : 'i' : 0;
  case CALC_pow: return left && real && PyFloat_AsDouble(left) > 0 ? 'f' : 0;
  case CALC_neg:
  case CALC_abs: return real ? 'f' : 'i';
  case CALC_and:
  case CALC_or:
  case CALC_xor: return real ? 0 : x == 'b' && y == 'b' ? 'b' : 'i';
  case CALC_min:
  case CALC_max: return x == y ? x : 0;
  case CALC_int: return real ? 0 : 'i';
  case CALC_float: return 'f';
  default: return 'b'; /* comparisons, bool() */
  }
}

/* Raises what Python does where `ask`, about the divisor, is false; the graph goes on with infinity.
 * Where a break is an error. */
static bool value_checks(MgCapture *cap, PyObject *ask) {
  PyObject *text = PyUnicode_FromString("division by zero"),
           *say = text ? PyObject_GetAttrString(text, "__str__") : NULL;
  PyObject *const check[] = {PyExc_ZeroDivisionError, ask, say};
  bool done = say && cap->rec->cfg && cap->rec->cfg->fullgraph && mg_symvalue_check(check, 3);
  Py_XDECREF(say);
  Py_XDECREF(text);
  return done;
}

/* Divisors are taken to be other than 0.  Integers would be divided before the answer is looked at. */
static char value_divided(MgCapture *cap, int calc, char x, MgSymNode *y) {
  bool real = calc == CALC_truediv || x == 'f' || y->kind == 'f', yes = true;
  if (!real || calc < CALC_truediv || calc > CALC_mod) return 0;
  PyObject *zero = PyLong_FromLong(0), *ask = zero ? mg_symvalue_compute(CALC_ne, y, NULL, NULL, zero) : NULL;
  int rc = ask ? mg_claim_number(cap->rec, ask, &yes) : 0;
  if (!rc && ask && calc == CALC_truediv && value_checks(cap, ask)) rc = 1;
  Py_XDECREF(ask);
  Py_XDECREF(zero);
  return rc == 1 && yes ? 'f' : 0;
}

/* int() of a number that is taken to be finite and to fit; the calls of a torch-level
 * graph see for themselves. */
static char value_truncated(MgCapture *cap, MgSymNode *x) {
  if (cap->rec->want_fx) return 'i';
  bool yes = true;
  PyObject *size = mg_symvalue_compute(CALC_abs, x, NULL, NULL, NULL),
           *most = size ? PyFloat_FromDouble(9e18) : NULL;
  PyObject *ask = most ? mg_symvalue_compute(CALC_lt, mg_symnode_of(size), size, NULL, most) : NULL;
  int rc = ask ? mg_claim_number(cap->rec, ask, &yes) : 0;
  Py_XDECREF(ask);
  Py_XDECREF(most);
  Py_XDECREF(size);
  return rc == 1 && yes ? 'i' : 0;
}

PyObject *mg_symvalue_compute(int calc, MgSymNode *x, PyObject *a, MgSymNode *y, PyObject *b) {
  MgCapture *cap = x ? x->cap : y->cap;
  int known = b ? mg_symsize_known(cap, calc, x, a, y, b) : -1;
  if (known >= 0) return PyBool_FromLong(known);
  char kx = value_kind(x, a), ky = b ? value_kind(y, b) : 0;
  if (!kx || (b && !ky) || (!x && !value_fits(a)) || (b && !y && !value_fits(b))) return NULL;
  char kind = value_result(calc, kx, ky, x ? NULL : a, y ? NULL : b, y);
  if (!kind && calc >= CALC_truediv && calc <= CALC_pow) kind = mg_symstate_kind(cap, calc, x, a, y, b);
  if (!kind && y && !PyErr_Occurred()) kind = value_divided(cap, calc, kx, y);
  if (!kind && calc == CALC_int && x && !PyErr_Occurred()) kind = value_truncated(cap, x);
  MgSymNode *n = kind ? mg_symnode_value(cap, kind) : NULL;
  if (!n) return NULL;
  n->calc = (uint8_t)calc;
  n->left = x;
  n->right = y;
  n->constant = x && y ? NULL : Py_XNewRef(x ? b : a);
  return mg_symfloat_of(n);
}

int mg_symvalue_asks(PyObject *f) {
  PyObject *module = PyCFunction_CheckExact(f) ? ((PyCFunctionObject *)f)->m_module : NULL;
  if (!module || !PyUnicode_Check(module) || PyUnicode_CompareWithASCIIString(module, "math")) return 0;
  const char *name = ((PyCFunctionObject *)f)->m_ml->ml_name;
  return !strcmp(name, "isfinite") ? 1 : !strcmp(name, "isnan") || !strcmp(name, "isinf") ? -1 : 0;
}

PyObject *mg_symvalue_ask(MgSymNode *x, PyObject *f) {
  MgSymNode *n = mg_symnode_value(x->cap, 'b');
  if (!n) return NULL;
  n->calc = CALC_call;
  n->left = x;
  n->constant = Py_NewRef(f);
  return mg_symfloat_of(n);
}

/* The operand in the graph: a stand-in, or a constant, of the class that the operation computes in. */
static PyObject *value_operand(MgCapture *cap, MgSymNode *n, PyObject *constant, bool real) {
  if (!n) return real ? PyNumber_Float(constant) : PyNumber_Index(constant);
  ValRef v = mg_symnode_val(n);
  PyObject *t = v ? mg_ops.standin_new(cap, v) : NULL;
  return t && real && n->kind != 'f' ? value_cast(cap, t, DT_f64) : t;
}

/* A constant divided by a number. */
static bool value_divides(const MgSymNode *n) {
  return !n->left && n->calc >= CALC_truediv && n->calc <= CALC_mod;
}

/* The ATen op of an operator: for two tensors, for a tensor and a number, for a number and a tensor. */
static bool value_op(const MgSymNode *n, const char **name, const char **overload) {
  static const char *const names[] = {[CALC_add] = "add",
                                      [CALC_sub] = "sub",
                                      [CALC_mul] = "mul",
                                      [CALC_truediv] = "div",
                                      [CALC_floordiv] = "floor_divide",
                                      [CALC_mod] = "remainder",
                                      [CALC_pow] = "pow",
                                      [CALC_neg] = "neg",
                                      [CALC_abs] = "abs"};
  *name = n->calc < sizeof names / sizeof *names ? names[n->calc] : NULL;
  if (!*name) return false;
  *overload = n->calc >= CALC_neg                         ? "default"
              : (n->left && n->right) || value_divides(n) ? "Tensor"
                                                          : "Scalar";
  if (n->calc == CALC_pow) *overload = n->left ? n->right ? "Tensor_Tensor" : "Tensor_Scalar" : "Scalar";
  if (!n->left && n->calc == CALC_sub) *name = "rsub";
  return true;
}

/* The arguments of a call with operands x and y, which are stolen; y NULL for one. */
static PyObject *value_args(const MgSymNode *n, PyObject *x, PyObject *y) {
  bool turn = !n->left && n->calc != CALC_pow && !value_divides(n); /* the tensor goes first */
  PyObject *r = !y ? PyTuple_Pack(1, x) : turn ? PyTuple_Pack(2, y, x) : PyTuple_Pack(2, x, y);
  Py_DECREF(x);
  Py_XDECREF(y);
  return r;
}

/* One of a list. */
static ValRef value_element(MgSymNode *n) {
  MgCapture *cap = n->cap;
  PyObject *t = mg_ops.standin_new(cap, n->row);
  long long count = t ? (long long)value_count(cap, mg_val(cap->rec->g, n->row), NULL) : 0;
  PyObject *flat = t ? value_call(cap, "view", "default", Py_BuildValue("(O[L])", t, count), NULL) : NULL;
  PyObject *one =
      flat ? value_call(cap, "select", "int", Py_BuildValue("(OiI)", flat, 0, n->at), NULL) : NULL;
  ValRef r = one ? mg_standin_val(one) : 0;
  Py_XDECREF(t);
  Py_XDECREF(flat);
  Py_XDECREF(one);
  return r;
}

/* The size of a value that the graph computes, as a 0-dim tensor. */
static ValRef value_of_size(MgSymNode *n) {
  static const MgFrontOp *scalar_tensor;
  MgCapture *cap = n->cap;
  PyObject *size = mg_symfloat_of((MgSymNode *)Py_NewRef(n)),
           *dtype = size ? mg_torchobj_new_dtype(DT_i64) : NULL;
  PyObject *args = dtype ? PyTuple_Pack(2, size, dtype) : NULL, *list = NULL;
  ValRef like = args ? mg_graph_val(cap->rec->g, DT_i64, 0) : 0, r = 0;
  if (like) mg_graph_contiguous(cap->rec->g, like);
  if (like && !scalar_tensor) scalar_tensor = mg_frontop_of(mg_op_find(cap->rec->ctx, "aten::scalar_tensor"));
  if (like && scalar_tensor) list = mg_ops.dispatch_emit(cap, scalar_tensor, args, &like, 1, false);
  if (list) r = mg_standin_val(PyList_GET_ITEM(list, 0));
  Py_XDECREF(list);
  Py_XDECREF(args);
  Py_XDECREF(dtype);
  Py_XDECREF(size);
  return r;
}

/* A constant operand as a 0-dim tensor.  Steals o. */
static PyObject *value_tensor(const MgSymNode *n, PyObject *o) {
  if (!o || mg_standin_is(o)) return o;
  PyObject *dt = mg_torchobj_new_dtype(n->kind == 'f' ? DT_f64 : DT_i64),
           *kw = dt ? Py_BuildValue("{s:N}", "dtype", dt) : NULL;
  PyObject *t = kw ? value_call(n->cap, "full", "default", Py_BuildValue("([]O)", o), kw) : NULL;
  Py_XDECREF(kw);
  Py_DECREF(o);
  return t;
}

/* Python's min and max keep the first unless the second is less, or greater: NaN is
 * neither.  Steals the operands. */
static PyObject *value_pick(const MgSymNode *n, PyObject *x, PyObject *y) {
  x = value_tensor(n, x);
  y = value_tensor(n, y);
  PyObject *ask =
      x && y ? value_call(n->cap, n->calc == CALC_min ? "lt" : "gt", "Tensor", PyTuple_Pack(2, y, x), NULL)
             : NULL;
  PyObject *r = ask ? value_call(n->cap, "where", "self", PyTuple_Pack(3, ask, y, x), NULL) : NULL;
  Py_XDECREF(ask);
  Py_XDECREF(x);
  Py_XDECREF(y);
  return r;
}

ValRef mg_symvalue_lower(MgSymNode *n) {
  const char *name, *overload = NULL;
  bool picks = n->calc == CALC_min || n->calc == CALC_max;
  bool unary = mg_calc_is_unary(n->calc), real = n->kind == 'f';
  if (n->dim) return n->val = value_of_size(n);
  if (n->row) return n->val = value_element(n);
  if (n->kind == 'b' ||
      (!value_op(n, &name, &overload) && !picks && n->calc != CALC_int && n->calc != CALC_float)) {
    mg_rec_break(BK_data_dependent, "the value of a number in a tensor operation");
    return 0;
  }
  PyObject *x = value_operand(n->cap, n->left, n->constant, real), *y = NULL, *r;
  if (!x || (!unary && !(y = value_operand(n->cap, n->right, n->constant, real)))) {
    Py_XDECREF(x);
    return 0;
  }
  if (value_divides(n) && !(x = value_tensor(n, x))) {
    Py_DECREF(y);
    return 0;
  }
  if (picks) r = value_pick(n, x, y);
  else if (n->calc == CALC_float) r = x;
  else if (n->calc == CALC_int) r = value_cast(n->cap, x, DT_i64);
  else r = value_call(n->cap, name, overload, value_args(n, x, y), NULL);
  n->val = r ? mg_standin_val(r) : 0;
  Py_XDECREF(r);
  return n->val;
}

/* ---- functions of Python and torch ---- */

static bool value_is(PyObject *o) {
  MgSymNode *n = mg_symnode_of(o);
  return n && n->cap && !n->src;
}

static bool value_choose(PyObject *f, PyObject *const *arg, Py_ssize_t n, PyObject **r) {
  const char *name = PyCFunction_CheckExact(f) && n == 2 ? ((PyCFunctionObject *)f)->m_ml->ml_name : "";
  int calc = !strcmp(name, "min") ? CALC_min : CALC_max;
  if ((strcmp(name, "min") && strcmp(name, "max")) || (!value_is(arg[0]) && !value_is(arg[1]))) return false;
  MgSymNode *x = mg_symnode_of(arg[0]), *y = mg_symnode_of(arg[1]);
  *r = mg_symvalue_compute(calc, x, arg[0], y, arg[1]);
  return *r || PyErr_Occurred();
}

/* x.__int__(), x.__float__() and operator.index(x) are int(x) and float(x). */
static PyObject *value_conversion(PyObject *f, PyObject *const **arg, Py_ssize_t *n) {
  if (!PyCFunction_CheckExact(f)) return f;
  const char *name = ((PyCFunctionObject *)f)->m_ml->ml_name;
  PyObject *const *self = &((PyCFunctionObject *)f)->m_self;
  bool method = !*n && *self && mg_standin_is(*self) && *name == '_',
       index = *n == 1 && mg_standin_is(**arg) && !strcmp(name, "index");
  if (method) *arg = self;
  if ((method && (!strcmp(name, "__int__") || (index = !strcmp(name, "__index__")))) || index) {
    char kind = value_kind_of_dtype(mg_val(mg_rec->g, mg_standin_val(**arg))->dtype);
    *n = 1;
    return index && kind != 'i' ? f : (PyObject *)&PyLong_Type;
  }
  if (!method || strcmp(name, "__float__")) return f;
  *n = 1;
  return (PyObject *)&PyFloat_Type;
}

bool mg_symvalue_convert(PyObject *f, PyObject *const *arg, Py_ssize_t n, PyObject **r) {
  if (n < 2) f = value_conversion(f, &arg, &n);
  int calc = f == (PyObject *)&PyLong_Type    ? CALC_int
             : f == (PyObject *)&PyFloat_Type ? CALC_float
                                              : CALC_bool;
  if (n == 2) return value_choose(f, arg, n, r);
  if (n != 1 || (calc == CALC_bool && f != (PyObject *)&PyBool_Type)) return false;
  PyObject *x = arg[0], *item = NULL;
  MgStandInfo *info = mg_standin_is(x) ? mg_standin_info(x) : NULL;
  if (info && info->cap && value_count(info->cap, mg_val(info->cap->rec->g, info->val), NULL) == 1 &&
      mg_symvalue_can(info->cap, x)) {
    *r = item = mg_symfloat_dress(PyObject_CallMethod(x, "item", NULL));
    if (!item) return true;
    x = item;
  }
  if (mg_symfloat_is(x) && mg_symfloat_class(x) == (PyTypeObject *)f) *r = Py_NewRef(x);
  else if (value_is(x)) *r = mg_symvalue_compute(calc, mg_symnode_of(x), x, NULL, NULL);
  else *r = item ? PyObject_CallOneArg(f, item) : NULL;
  if (!*r && item && !PyErr_Occurred()) *r = PyObject_CallOneArg(f, item);
  Py_XDECREF(item);
  return *r || PyErr_Occurred();
}

bool mg_symvalue_check(PyObject *const *arg, Py_ssize_t n) {
  if (n != 3 || !value_is(arg[1]) || mg_symfloat_class(arg[1]) != &PyBool_Type) return false;
  MgCapture *cap = mg_symnode_of(arg[1])->cap;
  PyObject *check = PyTuple_Pack(3, arg[0], arg[1], arg[2]);
  mg_symdata_assume(mg_symnode_of(arg[1]));
  if (check && (cap->checks || (cap->checks = PyList_New(0)))) PyList_Append(cap->checks, check);
  Py_XDECREF(check);
  return true;
}
