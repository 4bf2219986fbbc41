/* Torch-level calls as nodes of the FX graph.
 * In: a call, before it runs and after.  Out: its node, named as torch.compile names it, and nodes for the
 * tensors that it gave or wrote to. */
#include <string.h>
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "record/fx/fx.h"
#include "record/fx/fx_graph.h"
#include "record/fx/fx_modes.h"
#include "record/fx/fx_wrappers.h"
#include "record/symbolic/number.h"

/* ---- what a call is called ---- */

/* Tensor methods that Python reaches through an operator, with the function that
 * torch.compile shows for them. */
static const struct {
  const char *method, *op;
  int nargs;
} fx_operators[] = {
    {"add", "add", 2},
    {"sub", "sub", 2},
    {"mul", "mul", 2},
    {"div", "truediv", 2},
    {"true_divide", "truediv", 2},
    {"matmul", "matmul", 2},
    {"__matmul__", "matmul", 2},
    {"neg", "neg", 1},
    {"__invert__", "invert", 1},
    {"remainder", "mod", 2},
    {"pow", "pow", 2},
    {"eq", "eq", 2},
    {"ne", "ne", 2},
    {"lt", "lt", 2},
    {"le", "le", 2},
    {"gt", "gt", 2},
    {"ge", "ge", 2},
    {"__eq__", "eq", 2},
    {"__ne__", "ne", 2},
    {"__lt__", "lt", 2},
    {"__le__", "le", 2},
    {"__gt__", "gt", 2},
    {"__ge__", "ge", 2},
    {"__and__", "and_", 2},
    {"__or__", "or_", 2},
    {"__xor__", "xor", 2},
    {"__getitem__", "getitem", 2},
    {"__setitem__", "setitem", 3},
    {"__add__", "add", 2},
    {"__sub__", "sub", 2},
    {"__mul__", "mul", 2},
    {"__truediv__", "truediv", 2},
    {"__neg__", "neg", 1},
    {"pow_", "ipow", 2},
    {"__floordiv__", "floordiv", 2},
    {"__lshift__", "lshift", 2},
    {"__rshift__", "rshift", 2},
    {"add_", "iadd", 2},
    {"sub_", "isub", 2},
    {"mul_", "imul", 2},
    {"div_", "itruediv", 2},
    {"__iadd__", "iadd", 2},
    {"__isub__", "isub", 2},
    {"__imul__", "imul", 2},
    {"__itruediv__", "itruediv", 2},
};

/* A function of torch/_tensor.py: the operators that torch.Tensor defines in Python. */
static bool fx_is_tensors(PyObject *func) {
  PyObject *m = PyFunction_Check(func) ? ((PyFunctionObject *)func)->func_module : NULL;
  return m && PyUnicode_Check(m) && !PyUnicode_CompareWithASCIIString(m, "torch._tensor");
}

/* FX kind and target of a call; *attr is set when the call reads an attribute (x.T).
 * 0 or -1 with an exception. */
static int fx_target(PyObject *func, Py_ssize_t nargs, bool has_kwargs, const char **kind, PyObject **target,
                     bool *attr) {
  *attr = false;
  PyObject *name = PyObject_GetAttrString(func, "__name__");
  const char *s = name && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
  if (!s) {
    PyErr_Clear(); /* a callable without a name: the target is the object itself */
    Py_XDECREF(name);
    *kind = "call_function";
    *target = Py_NewRef(func);
    return 0;
  }
  int rc = 0;
  PyObject *method = NULL;
  if (!strcmp(s, "__get__")) { /* a property of Tensor: method-wrapper of a getset descriptor */
    PyObject *self = PyObject_GetAttrString(func, "__self__");
    *kind = "call_function";
    *target = self ? PyObject_GetAttrString(self, "__name__") : NULL;
    *attr = true;
    Py_XDECREF(self);
    Py_DECREF(name);
    return *target ? 0 : -1;
  }
  for (size_t i = 0; !has_kwargs && i < sizeof fx_operators / sizeof *fx_operators; i++)
    if (!strcmp(s, fx_operators[i].method) && nargs == fx_operators[i].nargs &&
        (Py_TYPE(func) == &PyMethodDescr_Type || Py_TYPE(func) == &PyWrapperDescr_Type ||
         fx_is_tensors(func))) {
      *kind = "call_function";
      *target = PyObject_GetAttrString(mg_fx_torch.operator_, fx_operators[i].op);
      Py_DECREF(name);
      return *target ? 0 : -1;
    }
  method = PyObject_GetAttr((PyObject *)mg_torch.tensor, name);
  if (!method) mg_clear_as_no();
  if (method == func && nargs > 0) {
    *kind = "call_method";
    *target = Py_NewRef(name);
  } else {
    *kind = "call_function";
    *target = Py_NewRef(func);
  }
  Py_XDECREF(method);
  Py_DECREF(name);
  return rc;
}

/* ---- one call ---- */

static bool fx_has_tensor(PyObject *o) {
  MgSymNode *n = mg_symnode_of(o);
  if (n) return !n->src && !n->hint; /* a number out of one */
  if (mg_standin_is(o) || (PyObject_TypeCheck(o, mg_torch.tensor) && mg_wrapper_class(Py_TYPE(o))) ||
      mg_standin_transformed(o))
    return true;
  if (PyTuple_Check(o) || PyList_Check(o))
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); i++)
      if (fx_has_tensor(PySequence_Fast_GET_ITEM(o, i))) return true;
  return false;
}

/* Binds the tensors of a result to nodes: the call's own, or items of it. */
static int fx_results(MgCapture *cap, PyObject *res, uint32_t number) {
  MgFx *f = cap->fx;
  if (mg_symnode_of(res)) return mg_fx_late_result(cap, res, number);
  ValRef val = mg_fx_val(cap, res);
  if (val) return mg_fx_wraps(cap, res) && mg_fx_of_val(cap, val) ? 0 : mg_fx_bind(f, val, number);
  if (PyErr_Occurred()) return -1;
  if (!PyTuple_Check(res) && !PyList_Check(res)) return 0;
  int rc = 0;
  for (Py_ssize_t i = 0; !rc && i < PySequence_Fast_GET_SIZE(res); i++) {
    PyObject *o = PySequence_Fast_GET_ITEM(res, i);
    if (!fx_has_tensor(o)) continue;
    PyObject *args = Py_BuildValue("(On)", mg_fx_at(f, number), i);
    uint32_t item = args ? mg_fx_node(cap, "call_function", mg_fx_torch.getitem, args, NULL) : 0;
    Py_XDECREF(args);
    rc = item ? fx_results(cap, o, item) : -1;
  }
  return rc;
}

int mg_fx_attr(MgCapture *cap, PyObject *pair, PyObject *v) {
  if (cap->fx->incomplete ||
      (mg_standin_is(v) ? mg_fx_of_val(cap, mg_standin_val(v)) : mg_fx_of_val(cap, mg_wrapper_val(cap, v))))
    return 0;
  PyObject *args = mg_fx_arg(cap, pair);
  uint32_t number = args ? mg_fx_node(cap, "call_function", mg_fx_torch.getattr_, args, NULL) : 0;
  Py_XDECREF(args);
  if (!number) return PyErr_Occurred() ? -1 : 0;
  return fx_results(cap, v, number);
}

/* Arguments that the call wrote to (running statistics, out=) stand for new values now; FX
 * knows them by the same node. */
static int fx_rebind(MgCapture *cap, PyObject *arg, PyObject *node) {
  MgFx *f = cap->fx;
  if (mg_standin_is(arg)) {
    uint32_t number = mg_map_getp(&f->by_node, node);
    if (number == MG_MAP_NONE || mg_map_get(&f->by_val, mg_standin_val(arg) + 2) != MG_MAP_NONE) return 0;
    return mg_fx_bind(f, mg_standin_val(arg), number);
  }
  if ((!PyTuple_Check(arg) && !PyList_Check(arg)) || !node || (!PyTuple_Check(node) && !PyList_Check(node)))
    return 0;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(arg) && i < PySequence_Fast_GET_SIZE(node);
       i++) /* the call may append */
    if (fx_rebind(cap, PySequence_Fast_GET_ITEM(arg, i), PySequence_Fast_GET_ITEM(node, i))) return -1;
  return 0;
}

/* Calls that give no tensor but change one, or act otherwise: x[0] = 1, _foreach_add_, custom operators. */
static bool fx_is_effect(const MgGraph *g, NodeRef from) {
  for (NodeRef n = from; n < g->nnode; n++)
    if (!g->node[n].dead && (g->node[n].op->mutates || !g->node[n].op->nret)) return true;
  return false;
}

void mg_fx_look_for_writes(MgCapture *cap) {
  if (fx_is_effect(cap->rec->g, cap->fx->covered)) cap->fx->incomplete = true;
  cap->fx->covered = (NodeRef)cap->rec->g->nnode;
}

int mg_fx_before(MgCapture *cap, PyObject *args, PyObject *kwargs, MgFxCall *c) {
  *c = (MgFxCall){.from = (NodeRef)cap->rec->g->nnode};
  mg_fx_look_for_writes(cap);
  if (cap->fx->incomplete) return 0;
  c->args = mg_fx_arg(cap, args);
  if (c->args) c->kwargs = mg_fx_kwargs(cap, kwargs);
  return PyErr_Occurred() ? -1 : 0;
}

void mg_fx_drop(MgFxCall *c) {
  Py_XDECREF(c->args);
  Py_XDECREF(c->kwargs);
}

/* `from` of random_ and uniform_ is a keyword of Python, which the code that torch.fx prints
 * cannot use: it goes first. */
static uint32_t fx_call_node(MgCapture *cap, const char *kind, PyObject *target, PyObject *args,
                             PyObject *kwargs) {
  PyObject *from = PyDict_GetItemString(kwargs, "from");
  if (!from) return mg_fx_node(cap, kind, target, args, kwargs);
  PyObject *one = PyTuple_Pack(1, from), *all = one ? PySequence_Concat(args, one) : NULL,
           *rest = all ? PyDict_Copy(kwargs) : NULL;
  uint32_t n = rest && !PyDict_DelItemString(rest, "from") ? mg_fx_node(cap, kind, target, all, rest) : 0;
  Py_XDECREF(one);
  Py_XDECREF(all);
  Py_XDECREF(rest);
  return n;
}

int mg_fx_after(MgCapture *cap, PyObject *func, PyObject *args, PyObject *kwargs, MgFxCall *c,
                PyObject *result) {
  MgFx *f = cap->fx;
  f->covered = (NodeRef)cap->rec->g->nnode;
  if (f->incomplete || (!c->keep && !fx_has_tensor(result) && !fx_is_effect(cap->rec->g, c->from))) return 0;
  if (!c->kwargs) {
    f->incomplete = true;
    return 0;
  }
  const char *kind = NULL;
  bool attr = false;
  PyObject *target = NULL, *k, *v;
  Py_ssize_t pos = 0;
  int rc = -1;
  if (fx_target(func, PyTuple_GET_SIZE(args), PyDict_GET_SIZE(c->kwargs) > 0, &kind, &target, &attr))
    goto done;
  if (attr && !PyUnicode_CompareWithASCIIString(
                  target, "grad")) { /* not a value of the graph: the engine's, or an input */
    rc = 0;
    goto done;
  }
  if (attr) Py_SETREF(c->args, Py_BuildValue("(OO)", PyTuple_GET_ITEM(c->args, 0), target));
  if (!c->args || mg_fxstate_follow(cap, &f->state, false) ||
      mg_fx_follow_grad(cap, mg_abi.aoti_torch_grad_mode_is_enabled()))
    goto done;
  uint32_t number = fx_call_node(cap, kind, attr ? mg_fx_torch.getattr_ : target, c->args, c->kwargs);
  if (!number || fx_results(cap, result, number)) goto done;
  rc = attr ? 0 : fx_rebind(cap, args, c->args);
  while (!rc && kwargs && PyDict_Next(kwargs, &pos, &k, &v))
    rc = fx_rebind(cap, v, PyDict_GetItem(c->kwargs, k));
done:
  Py_XDECREF(target);
  return rc;
}
