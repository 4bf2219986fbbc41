/* Sizes and other ints that runs compute, in the torch-level graph: placeholders of
 * symbols, and arithmetic of those.
 * In: sources of numbers.  Out: nodes. */
#include <stdio.h>
#include "entry/guard/guard_set.h"
#include "host/python/pyobject.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "record/fx/fx.h"
#include "record/fx/fx_graph.h"
#include "record/fx/fx_lift.h"
#include "record/fx/fx_wrappers.h"
#include "record/symbolic/number.h"
#include "record/symbolic/number_ops.h"
#include "record/symbolic/sizes.h"

/* What calls a function of one number in a graph: torch's for symbols, where it has one.  New. */
static PyObject *fxsize_called(PyObject *f) {
  char name[64];
  snprintf(name, sizeof name, "_sym_%s", ((PyCFunctionObject *)f)->m_ml->ml_name);
  PyObject *torch = mg_import("torch"), *known = torch ? PyObject_GetAttrString(torch, name) : NULL;
  Py_XDECREF(torch);
  if (!known) mg_clear_if(PyExc_AttributeError);
  return known || PyErr_Occurred() ? known : Py_NewRef(f);
}

/* The function of a torch-level graph that computes this; NULL: there is none.  New. */
static PyObject *fxsize_function(int calc, PyObject *f) {
  static const char *const of_operator[] = {[CALC_lt] = "lt",
                                            [CALC_le] = "le",
                                            [CALC_eq] = "eq",
                                            [CALC_ne] = "ne",
                                            [CALC_gt] = "gt",
                                            [CALC_ge] = "ge",
                                            [CALC_add] = "add",
                                            [CALC_sub] = "sub",
                                            [CALC_mul] = "mul",
                                            [CALC_truediv] = "truediv",
                                            [CALC_floordiv] = "floordiv",
                                            [CALC_mod] = "mod",
                                            [CALC_pow] = "pow",
                                            [CALC_and] = "and_",
                                            [CALC_or] = "or_",
                                            [CALC_xor] = "xor",
                                            [CALC_neg] = "neg",
                                            [CALC_abs] = "abs"};
  static const char *const of_torch[] = {
      [CALC_min] = "sym_min", [CALC_max] = "sym_max", [CALC_int] = "sym_int", [CALC_float] = "sym_float"};
  const char *in_operator = calc < (int)(sizeof of_operator / sizeof *of_operator) ? of_operator[calc] : NULL;
  const char *in_torch = calc < (int)(sizeof of_torch / sizeof *of_torch) ? of_torch[calc] : NULL;
  if (calc == CALC_call && f == (PyObject *)&PyLong_Type) in_torch = of_torch[CALC_int];
  if (calc == CALC_call && f == (PyObject *)&PyFloat_Type) in_torch = of_torch[CALC_float];
  if (calc == CALC_call && PyCFunction_Check(f)) return fxsize_called(f);
  PyObject *m = in_operator ? Py_NewRef(mg_fx_torch.operator_) : in_torch ? mg_import("torch") : NULL;
  PyObject *r = m ? PyObject_GetAttrString(m, in_operator ? in_operator : in_torch) : NULL;
  Py_XDECREF(m);
  return r;
}

static bool fxsize_unary(int calc) { return calc == CALC_call || mg_calc_is_unary(calc); }

static bool fxsize_computed(const MgCapture *cap, SrcRef src);

/* Is the number a placeholder of the graph, or computed from some? */
static bool fxsize_known(const MgCapture *cap, SrcRef src) {
  uint8_t *trait = &cap->rec->guards->src[src].trait;
  if (*trait & SRC_IN_GRAPH || mg_symsize_number(cap, src) >= 0) return true;
  if (!fxsize_computed(cap, src)) return false; /* later maybe, when more numbers are placeholders */
  *trait |= SRC_IN_GRAPH;
  return true;
}

static bool fxsize_computed(const MgCapture *cap, SrcRef src) {
  const MgSrc s = cap->rec->guards->src[src];
  int calc = s.idx & MG_CALC_MASK;
  SrcRef second = (uint32_t)s.idx >> MG_CALC_BITS;
  if (s.kind != SRC_calc) return false;
  PyObject *f = fxsize_function(calc, s.key);
  bool can = f && (!s.parent || fxsize_known(cap, s.parent)) &&
             (fxsize_unary(calc) || !second || fxsize_known(cap, second));
  Py_XDECREF(f);
  return can;
}

bool mg_fx_computes(const MgCapture *cap, SrcRef src, PyObject *f) {
  PyObject *target = fxsize_known(cap, src) ? fxsize_function(CALC_call, f) : NULL;
  Py_XDECREF(target);
  mg_clear_as_no();
  return target;
}

static uint32_t fxsize_compute(MgCapture *cap, SrcRef src) {
  const MgSrc s = cap->rec->guards->src[src];
  int calc = s.idx & MG_CALC_MASK;
  SrcRef second = (uint32_t)s.idx >> MG_CALC_BITS;
  PyObject *a = s.parent ? mg_fx_number(cap, s.parent) : Py_NewRef(s.key), *b = NULL, *args = NULL;
  if (a && !fxsize_unary(calc)) b = second ? mg_fx_number(cap, second) : Py_NewRef(s.key);
  if (a && (b || fxsize_unary(calc))) args = b ? PyTuple_Pack(2, a, b) : PyTuple_Pack(1, a);
  PyObject *target = args ? fxsize_function(calc, s.key) : NULL;
  uint32_t number = target ? mg_fx_node(cap, "call_function", target, args, NULL) : 0;
  Py_XDECREF(a);
  Py_XDECREF(b);
  Py_XDECREF(args);
  Py_XDECREF(target);
  return number;
}

PyObject *mg_fx_number(MgCapture *cap, SrcRef src) {
  MgFx *f = cap->fx;
  int symbol = mg_symsize_number(cap, src);
  uint32_t number = mg_map_get(&f->by_src, src + 2);
  bool computed = number == MG_MAP_NONE && fxsize_computed(cap, src);
  if (number != MG_MAP_NONE) return Py_NewRef(PyList_GET_ITEM(f->nodes, number - 1));
  if (!computed && symbol >= 0 && f->outer) return Py_XNewRef(mg_fx_lift_number(cap, src));
  if (!computed && symbol < 0) return NULL;
  number = computed ? fxsize_compute(cap, src) : mg_fx_placeholder(cap, (uint32_t)symbol | MG_FX_SYMBOL);
  if (!number || mg_map_put(&f->by_src, src + 2, number) ||
      PyList_SetItem(f->val, number - 1, Py_NewRef(Py_False)))
    return NULL;
  return Py_NewRef(PyList_GET_ITEM(f->nodes, number - 1));
}

PyObject *mg_fx_of_number(MgCapture *cap, PyObject *o) {
  MgSymNode *n = mg_symnode_of(o);
  if (!n->src && !n->hint) return mg_fx_late(cap, n);
  PyObject *node = n->src && !cap->sizes.off ? mg_fx_number(cap, n->src) : NULL;
  return node || PyErr_Occurred() || !cap->wrappers ? node : mg_symfloat_plain(o);
}

PyObject *mg_fx_size_of(MgCapture *cap, PyObject *o) {
  Py_ssize_t dim;
  PyObject *sized = mg_wrapper_with_size(cap, o, &dim),
           *of = sized ? mg_fx_of_val(cap, mg_wrapper_val(cap, sized)) : NULL;
  PyObject *args = of ? Py_BuildValue("(On)", of, dim) : NULL,
           *name = args ? PyUnicode_FromString("size") : NULL;
  uint32_t number = name ? mg_fx_node(cap, "call_method", name, args, NULL) : 0;
  Py_XDECREF(name);
  Py_XDECREF(args);
  return number ? Py_NewRef(mg_fx_item(cap, number)) : NULL;
}

bool mg_fx_is_calc(const MgFx *f, Py_ssize_t i) {
  PyObject *op = PyList_GET_ITEM(f->val, i) == Py_False
                     ? PyObject_GetAttrString(PyList_GET_ITEM(f->nodes, i), "op")
                     : NULL;
  bool calc = op && PyUnicode_CompareWithASCIIString(op, "placeholder");
  Py_XDECREF(op);
  return calc;
}

bool mg_fx_calls(const MgCapture *cap) {
  const MgFx *f = cap->fx;
  for (Py_ssize_t i = 0; f && i < PyList_GET_SIZE(f->nodes); i++) {
    PyObject *op = PyObject_GetAttrString(PyList_GET_ITEM(f->nodes, i), "op");
    const char *text = op && PyUnicode_Check(op) ? PyUnicode_AsUTF8(op) : NULL;
    bool call = text && !strncmp(text, "call_", 5);
    Py_XDECREF(op);
    if (call) return true;
  }
  mg_clear_as_no();
  return false;
}
