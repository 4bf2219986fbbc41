/* Sizes and other ints that runs compute, in the torch-level graph: placeholders of symbols, and arithmetic of those.
 * In: sources of numbers.  Out: nodes. */
#include "front/fxgraph.h"
#include "front/names.h"
#include "front/wrapper.h"
#include "front/source.h"
#include "front/symfloat.h"
#include "front/guard.h"

/* The function of a node that computes an int; NULL without an exception: graphs have no word for it.  New. */
static PyObject *fxsize_function(int calc) {
  static const char *const op[] = {"lt", "le", "eq", "ne", "gt", "ge", "add", "sub", "mul", "truediv", "floordiv", "mod", "pow"};
  if (calc <= CALC_pow) return PyObject_GetAttrString(mg_fx_torch.operator_, op[calc]);
  if (calc == CALC_neg) return PyObject_GetAttrString(mg_fx_torch.operator_, "neg");
  if (calc != CALC_min && calc != CALC_max) return NULL;
  PyObject *torch = mg_import("torch");
  return torch ? PyObject_GetAttrString(torch, calc == CALC_min ? "sym_min" : "sym_max") : NULL;
}

/* The node that computes it; 0: there is none. */
static uint32_t fxsize_compute(MgCapture *cap, const MgSrc *s) {
  int calc = s->idx & MG_CALC_MASK;
  SrcRef second = (uint32_t)s->idx >> MG_CALC_BITS;
  PyObject *target = fxsize_function(calc), *a = NULL, *b = NULL, *args = NULL;
  if (target && (a = s->parent ? mg_fx_number(cap, s->parent) : Py_NewRef(s->key))) {
    if (mg_calc_is_unary(calc)) args = PyTuple_Pack(1, a);
    else if ((b = second ? mg_fx_number(cap, second) : Py_NewRef(s->key))) args = PyTuple_Pack(2, a, b);
  }
  uint32_t number = args ? mg_fx_node(cap, "call_function", target, args, NULL) : 0;
  Py_XDECREF(a);
  Py_XDECREF(b);
  Py_XDECREF(args);
  Py_XDECREF(target);
  return number;
}

PyObject *mg_fx_number(MgCapture *cap, SrcRef src) {
  MgFx *f = cap->fx;
  const MgSrc s = cap->rec->guards->src[src];
  int symbol = mg_symsize_number(cap, src);
  uint32_t number = mg_map_get(&f->by_src, src + 2);
  if (number != MG_MAP_NONE) return Py_NewRef(PyList_GET_ITEM(f->nodes, number - 1));
  if (symbol >= 0 && f->outer) return Py_XNewRef(mg_fx_lift_number(cap, src));
  if (symbol >= 0) number = mg_fx_placeholder(cap, (uint32_t)symbol | MG_FX_SYMBOL);
  else number = s.kind == SRC_calc ? fxsize_compute(cap, &s) : 0;
  if (!number || mg_map_put(&f->by_src, src + 2, number) || PyList_SetItem(f->val, number - 1, Py_NewRef(Py_False))) return NULL;
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
  PyObject *sized = mg_wrapper_with_size(cap, o, &dim), *of = sized ? mg_fx_of_val(cap, mg_wrapper_val(cap, sized)) : NULL;
  PyObject *args = of ? Py_BuildValue("(On)", of, dim) : NULL, *name = args ? PyUnicode_FromString("size") : NULL;
  uint32_t number = name ? mg_fx_node(cap, "call_method", name, args, NULL) : 0;
  Py_XDECREF(name);
  Py_XDECREF(args);
  return number ? Py_NewRef(mg_fx_item(cap, number)) : NULL;
}

bool mg_fx_is_calc(const MgFx *f, Py_ssize_t i) {
  PyObject *op = PyList_GET_ITEM(f->val, i) == Py_False ? PyObject_GetAttrString(PyList_GET_ITEM(f->nodes, i), "op") : NULL;
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
  PyErr_Clear();
  return false;
}
