/* Numbers and sizes that depend on data, in the torch-level graph: `item` calls, sizes of results, arithmetic
 * of those, and what is known about them as assertions, as torch.compile writes them.
 * In: nodes of numbers.  Out: nodes of the graph whose values are Python numbers. */
#include "entry/guard/source_kinds.h"
#include "entry/launch/trace.h"
#include "host/python/hook_mode.h"
#include "host/python/pyobject.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "record/fx/fx_graph.h"
#include "record/symbolic/number.h"
#include "record/symbolic/sizes.h"
#include "record/symbolic/unbacked.h"

/* Steals args.  Its number; 0 with an exception. */
static uint32_t fxdata_call(MgCapture *cap, const char *kind, PyObject *target, PyObject *args) {
  uint32_t n = target && args ? mg_fx_node(cap, kind, target, args, NULL) : 0;
  Py_XDECREF(args);
  return n;
}

/* x.name(arg), steals arg (NULL: none). */
static uint32_t fxdata_method(MgCapture *cap, const char *name, PyObject *x, PyObject *arg) {
  PyObject *target = PyUnicode_FromString(name);
  uint32_t n = fxdata_call(cap, "call_method", target, arg ? PyTuple_Pack(2, x, arg) : PyTuple_Pack(1, x));
  Py_XDECREF(target);
  Py_XDECREF(arg);
  return n;
}

/* torch.ops.aten.<name>.<overload> */
static PyObject *fxdata_aten(const char *name, const char *overload) {
  PyObject *torch = mg_import("torch"), *ops = torch ? PyObject_GetAttrString(torch, "ops") : NULL,
           *aten = ops ? PyObject_GetAttrString(ops, "aten") : NULL;
  PyObject *packet = aten ? PyObject_GetAttrString(aten, name) : NULL,
           *f = packet ? PyObject_GetAttrString(packet, overload) : NULL;
  Py_XDECREF(torch);
  Py_XDECREF(ops);
  Py_XDECREF(aten);
  Py_XDECREF(packet);
  return f;
}

/* The node of a value with that size in dimension *dim, borrowed: the one that it
 * was read from, or another. */
static PyObject *fxdata_sized(MgCapture *cap, const MgSymNode *n, int *dim) {
  const MgGraph *g = cap->rec->g;
  PyObject *x = mg_fx_of_val(cap, n->row);
  for (ValRef v = 1; !x && v < g->nval; v++)
    for (int i = 0; !x && i < mg_val(g, v)->ndim; i++)
      if (mg_val(g, v)->size[i] == n->size && mg_map_get(&cap->fx->by_val, v + 2) != MG_MAP_NONE) {
        x = mg_fx_of_val(cap, v);
        *dim = i;
      }
  return x;
}

/* The size, or the element, of a value of the graph. */
static uint32_t fxdata_leaf(MgCapture *cap, MgSymNode *n) {
  int dim = n->dim - 1;
  PyObject *x = n->dim ? fxdata_sized(cap, n, &dim) : mg_fx_of_val(cap, n->row);
  if (!x) return 0;
  if (n->dim) {
    PyObject *f = fxdata_aten("sym_size", "int");
    uint32_t number = fxdata_call(cap, "call_function", f, Py_BuildValue("(Oi)", x, dim));
    Py_XDECREF(f);
    return number;
  }
  if (mg_val(cap->rec->g, n->row)->ndim) { /* one of several */
    uint32_t flat = fxdata_method(cap, "view", x, PyLong_FromLong(-1)), item = 0;
    x = flat ? PyList_GET_ITEM(cap->fx->nodes, flat - 1) : NULL;
    if (x) item = fxdata_call(cap, "call_function", mg_fx_torch.getitem, Py_BuildValue("(OI)", x, n->at));
    if (!item) return 0;
    x = PyList_GET_ITEM(cap->fx->nodes, item - 1);
  }
  return fxdata_method(cap, "item", x, NULL);
}

static PyObject *fxdata_operand(MgCapture *cap, MgSymNode *n, PyObject *constant) {
  return n ? mg_fx_late(cap, n) : Py_XNewRef(constant);
}

static uint32_t fxdata_calc(MgCapture *cap, MgSymNode *n) {
  static const char *const op[] = {"lt",  "le",      "eq",       "ne",  "gt",  "ge",   "add", "sub",
                                   "mul", "truediv", "floordiv", "mod", "pow", "and_", "or_", "xor"};
  bool most = n->calc == CALC_min || n->calc == CALC_max;
  if (n->calc > CALC_max && n->calc != CALC_neg && n->calc != CALC_float && n->calc != CALC_int) return 0;
  PyObject *a = fxdata_operand(cap, n->left, n->constant);
  PyObject *b = NULL, *from = NULL, *target = NULL;
  if (a && !mg_calc_is_unary(n->calc)) b = fxdata_operand(cap, n->right, n->constant);
  bool torchs = most || n->calc == CALC_float || n->calc == CALC_int;
  if (a) from = torchs ? mg_import("torch") : Py_NewRef(mg_fx_torch.operator_);
  const char *name = n->calc == CALC_min     ? "sym_min"
                     : n->calc == CALC_max   ? "sym_max"
                     : n->calc == CALC_float ? "sym_float"
                     : n->calc == CALC_int   ? "sym_int"
                     : n->calc == CALC_neg   ? "neg"
                                             : op[n->calc];
  if (from && (b || mg_calc_is_unary(n->calc))) target = PyObject_GetAttrString(from, name);
  uint32_t number =
      target ? fxdata_call(cap, "call_function", target, b ? PyTuple_Pack(2, a, b) : PyTuple_Pack(1, a)) : 0;
  Py_XDECREF(a);
  Py_XDECREF(b);
  Py_XDECREF(from);
  Py_XDECREF(target);
  return number;
}

PyObject *mg_fx_late(MgCapture *cap, MgSymNode *n) {
  MgFx *f = cap->fx;
  if (n->src) return mg_fx_number(cap, n->src);
  if (n->hint) return Py_NewRef(n->hint);
  uint32_t number = mg_map_getp(&f->by_node, n);
  if (number != MG_MAP_NONE) return Py_NewRef(mg_fx_at(f, number));
  if (f->outer) return NULL;
  number = n->row ? fxdata_leaf(cap, n) : fxdata_calc(cap, n);
  if (!number) return NULL;
  if (mg_map_putp(&f->by_node, n, number)) return PyErr_NoMemory();
  return Py_NewRef(mg_fx_at(f, number));
}

PyObject *mg_fx_size(MgCapture *cap, SymRef e) {
  if (mg_symdata_in(cap, e)) {
    MgSymNode *late = mg_symdata_node(cap, e);
    PyObject *o = late ? mg_fx_late(cap, late) : NULL;
    return o || PyErr_Occurred()
               ? o
               : PyErr_Format(PyExc_SystemError, "magneto: a size of the graph is used before it is made");
  }
  SrcRef src = cap->rec->x->ask && mg_expr(cap->rec->x, e)->op != OP_const ? mg_symsize_src(cap, e) : 0;
  return src ? mg_fx_number(cap, src) : NULL;
}

int mg_fx_late_result(MgCapture *cap, PyObject *o, uint32_t number) {
  MgSymNode *n = mg_symnode_of(o);
  if (!n || n->src || n->hint || mg_map_getp(&cap->fx->by_node, n) != MG_MAP_NONE) return 0;
  if (mg_map_putp(&cap->fx->by_node, n, number)) return PyErr_NoMemory(), -1;
  return n->row && !n->dim && !mg_val(cap->rec->g, n->row)->ndim ? mg_fx_bind(cap->fx, n->row, number) : 0;
}

int mg_fx_late_value(MgCapture *cap, MgSymNode *n) {
  MgFx *f = cap->fx;
  if (!f || f->incomplete || cap->quiet || f->outer || n->src) return 0;
  MgPause pause = mg_rec_pause();
  PyObject *node = mg_fx_late(cap, n);
  uint32_t number = node ? mg_map_getp(&f->by_node, n) : MG_MAP_NONE;
  if (number != MG_MAP_NONE) mg_fx_bind(f, n->val, number);
  Py_XDECREF(node);
  mg_rec_resume(pause);
  return PyErr_Occurred() ? -1 : 0;
}

int mg_fx_number_call(MgCapture *cap, PyObject *fn, PyObject *const *arg, Py_ssize_t n) {
  if (cap->fx->incomplete || cap->quiet) return 0;
  MgPause pause = mg_rec_pause();
  PyObject *args = PyTuple_New(n);
  for (Py_ssize_t i = 0; args && i < n; i++) {
    MgSymNode *x = mg_symnode_of(arg[i]);
    PyObject *o = x ? mg_fx_late(cap, x) : Py_NewRef(arg[i]);
    if (o) PyTuple_SET_ITEM(args, i, o);
    else Py_CLEAR(args);
  }
  if (!args && !PyErr_Occurred()) cap->fx->incomplete = true;
  else fxdata_call(cap, "call_function", fn, args);
  mg_rec_resume(pause);
  return PyErr_Occurred() ? -1 : 0;
}

/* a op b, asserted. */
static int fxdata_assert(MgCapture *cap, const char *op, PyObject *a, PyObject *b) {
  PyObject *f = fxdata_aten("_assert_scalar", "default"),
           *target = PyObject_GetAttrString(mg_fx_torch.operator_, op);
  uint32_t yes = a && b && target ? fxdata_call(cap, "call_function", target, PyTuple_Pack(2, a, b)) : 0;
  PyObject *args = yes ? Py_BuildValue("(Os)", PyList_GET_ITEM(cap->fx->nodes, yes - 1),
                                       "a size that depends on data is out of its range")
                       : NULL;
  uint32_t n = args ? fxdata_call(cap, "call_function", f, args) : 0;
  Py_XDECREF(f);
  Py_XDECREF(target);
  return n ? 0 : -1;
}

static int fxdata_bound(MgCapture *cap, const char *op, PyObject *n, int64_t v) {
  PyObject *k = PyLong_FromLongLong(v);
  int rc = fxdata_assert(cap, op, n, k);
  Py_XDECREF(k);
  return rc;
}

/* What is known of a symbol. */
static int fxdata_symbol(MgCapture *cap, uint32_t i) {
  const MgSymSizes *s = &cap->sizes;
  const MgSymbol *y = &cap->rec->x->sym[mg_expr(cap->rec->x, s->ref[i])->u.i];
  bool low = y->lo > -MG_SIZE_MOST, high = y->hi < MG_SIZE_MOST;
  if (s->of[i].dim < -1 || (!low && !high)) return 0;
  MgSymNode *leaf = mg_symdata_node(cap, s->ref[i]);
  bool known = leaf && mg_map_getp(&cap->fx->by_node, leaf) != MG_MAP_NONE;
  PyObject *n = leaf && (known || s->of[i].dim >= 0) ? mg_fx_late(cap, leaf) : NULL;
  if (!n) return PyErr_Occurred() ? -1 : 0;
  int rc = 0;
  if (n && low && high && y->lo == y->hi) rc = fxdata_bound(cap, "eq", n, y->lo);
  else {
    if (!rc && low) rc = fxdata_bound(cap, "ge", n, y->lo);
    if (!rc && high) rc = fxdata_bound(cap, "le", n, y->hi);
  }
  Py_XDECREF(n);
  return rc;
}

int mg_fx_asserts(MgCapture *cap) {
  static const char *const op[] = {"lt", "le", "eq", "ne", "gt", "ge"};
  const MgSymSizes *s = &cap->sizes;
  MgExprs *x = cap->rec->x;
  for (uint32_t i = 0; s->ndata && i < s->nsrc; i++)
    if (s->of[i].val && fxdata_symbol(cap, i)) return -1;
  for (uint32_t i = 0; i < s->nfact; i++) {
    const MgSizeFact *f = &s->fact[i];
    int64_t v;
    bool range = (mg_expr(x, f->a)->op == OP_sym && mg_ex_const_int(x, f->b, &v)) ||
                 (mg_expr(x, f->b)->op == OP_sym && mg_ex_const_int(x, f->a, &v));
    if (range) continue;
    MgSymNode *p = mg_symdata_node(cap, f->a), *q = p ? mg_symdata_node(cap, f->b) : NULL;
    PyObject *a = q ? mg_fx_late(cap, p) : NULL, *b = a ? mg_fx_late(cap, q) : NULL;
    int rc = b ? fxdata_assert(cap, op[f->calc], a, b) : PyErr_Occurred() ? -1 : 0;
    Py_XDECREF(a);
    Py_XDECREF(b);
    if (rc) return -1;
  }
  return 0;
}

PyObject *mg_fx_late_output(MgCapture *cap, ValRef val, PyObject *node) {
  const MgVal *v = mg_val(cap->rec->g, val);
  uint32_t number = mg_map_getp(&cap->fx->by_node, node);
  bool late = false;
  for (Py_ssize_t i = 0; cap->syms && !late && v->dtype == DT_f64 && i < PyList_GET_SIZE(cap->syms); i++) {
    MgSymNode *n = (MgSymNode *)PyList_GET_ITEM(cap->syms, i);
    late = n->row == val && mg_map_getp(&cap->fx->by_node, n) == number;
  }
  if (!late || number == MG_MAP_NONE || cap->fx->incomplete) return Py_NewRef(node);
  PyObject *torch = mg_import("torch"), *f = torch ? PyObject_GetAttrString(torch, "scalar_tensor") : NULL;
  PyObject *dtype = f ? PyObject_GetAttrString(torch, "float64") : NULL,
           *kw = dtype ? Py_BuildValue("{s:O}", "dtype", dtype) : NULL;
  PyObject *args = kw ? PyTuple_Pack(1, node) : NULL;
  uint32_t t = args ? mg_fx_node(cap, "call_function", f, args, kw) : 0;
  Py_XDECREF(torch);
  Py_XDECREF(f);
  Py_XDECREF(dtype);
  Py_XDECREF(kw);
  Py_XDECREF(args);
  return t ? Py_NewRef(mg_fx_at(cap->fx, t)) : NULL;
}
