/* The torch.fx graph of a recording.
 * In: torch-level calls seen by the function mode.  Out: a torch.fx.GraphModule whose placeholders are the
 * older tensors
 * in order of first use, named after their sources as torch.compile names them.
 * A stand-in carries the number of the FX node that made its value; no stand-in is kept.  When some output
 * came from a call that the function mode cannot see, the graph is written from the ATen nodes
 * instead, so it is never wrong. */
#include <stdlib.h>
#include <string.h>
#include "entry/guard/source.h"
#include "entry/launch/trace.h"
#include "host/python/names.h"
#include "host/python/dynamo_config.h"
#include "host/python/hook_mode.h"
#include "host/python/pyobject.h"
#include "host/torch/literals.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "record/core/subgraph_state.h"
#include "record/fx/fx.h"
#include "record/fx/fx_graph.h"
#include "record/fx/fx_lift.h"
#include "record/fx/fx_meta.h"
#include "record/fx/fx_wrappers.h"
#include "record/symbolic/number.h"
#include "record/symbolic/sizes.h"

MgFxTorch mg_fx_torch;

static int fx_init_higher(void) {
  PyObject *torch = mg_import("torch"), *ops = torch ? PyObject_GetAttrString(torch, "ops") : NULL;
  PyObject *space = ops ? PyObject_GetAttrString(ops, "higher_order") : NULL;
  static const char *const name[] = {"cond", "while_loop", "scan", "map_impl"};
  for (int i = 0; space && i < 4; i++)
    if (!(mg_fx_torch.higher[i] = PyObject_GetAttrString(space, name[i]))) break;
  Py_XDECREF(torch);
  Py_XDECREF(ops);
  Py_XDECREF(space);
  return mg_fx_torch.higher[3] ? 0 : -1;
}

static int fx_init(void) {
  if (mg_fx_torch.Graph) return 0;
  if (fx_init_higher()) return -1;
  PyObject *fx = mg_import("torch.fx"), *b = mg_import("builtins");
  PyObject *c = mg_import("torch._C");
  int rc = -1;
  if (!fx || !b || !c) goto done;
  if (!(mg_fx_torch.operator_ = mg_import("operator"))) goto done;
  if (!(mg_fx_torch.getitem = PyObject_GetAttrString(mg_fx_torch.operator_, "getitem"))) goto done;
  if (!(mg_fx_torch.getattr_ = PyObject_GetAttrString(b, "getattr"))) goto done;
  if (!(mg_fx_torch.set_grad = PyObject_GetAttrString(c, "_set_grad_enabled"))) goto done;
  if (!(mg_fx_torch.GraphModule = PyObject_GetAttrString(fx, "GraphModule"))) goto done;
  if (!(mg_fx_torch.Graph = PyObject_GetAttrString(fx, "Graph"))) goto done;
  rc = 0;
done:
  Py_XDECREF(fx);
  Py_XDECREF(b);
  Py_XDECREF(c);
  return rc;
}

int mg_fx_open(MgCapture *cap) {
  MgFx *f = cap->fx = mg_calloc(1, sizeof *f);
  if (!f) return PyErr_NoMemory(), -1;
  if (fx_init() || !(f->graph = PyObject_CallNoArgs(mg_fx_torch.Graph)) || !(f->nodes = PyList_New(0)) ||
      !(f->val = PyList_New(0)) || !(f->where = PyList_New(0)) || !(f->root = PyDict_New()) ||
      mg_fxstate_follow(cap, &f->state, false))
    return -1;
  f->covered = 1; /* node 0 is none */
  f->grad = f->grad_start = f->grad_end = mg_abi.aoti_torch_grad_mode_is_enabled();
  return 0;
}

int mg_fx_begin(MgCapture *cap) {
  MgPause pause = mg_rec_pause();
  int rc = mg_fx_open(cap);
  if (!rc && !(cap->fx->mode = mg_torchfn_mode_new(cap))) rc = -1;
  mg_rec_resume(pause);
  return rc;
}

void mg_fx_end(MgCapture *cap) {
  if (cap->fx && cap->fx->mode) mg_torchfn_mode_end(cap->fx->mode);
}

PyObject *mg_fx_mode(MgCapture *cap) { return cap->fx->mode; }

void mg_fx_free(MgCapture *cap) {
  MgFx *f = cap->fx;
  if (!f) return;
  Py_XDECREF(f->graph);
  Py_XDECREF(f->nodes);
  Py_XDECREF(f->val);
  Py_XDECREF(f->where);
  Py_XDECREF(f->root);
  Py_XDECREF(f->mode);
  mg_map_free(&f->by_val);
  mg_map_free(&f->by_node);
  mg_map_free(&f->by_src);
  mg_map_free(&f->by_name);
  free(f->input);
  free(f->input_node);
  free(f->lift);
  free(f);
  cap->fx = NULL;
}

/* ---- nodes ---- */

uint32_t mg_fx_adopt(MgFx *f, PyObject *n, PyObject *where, bool input) {
  if (PyList_Append(f->nodes, n) || PyList_Append(f->val, Py_None) || PyList_Append(f->where, where))
    return 0;
  if (!f->first && !input) f->first = n;
  uint32_t number = (uint32_t)PyList_GET_SIZE(f->nodes);
  return mg_map_putp(&f->by_node, n, number) ? (PyErr_NoMemory(), 0) : number;
}

uint32_t mg_fx_node(MgCapture *cap, const char *op, PyObject *target, PyObject *args, PyObject *kwargs) {
  MgFx *f = cap->fx;
  PyObject *empty = kwargs ? NULL : PyDict_New();
  PyObject *n =
      PyObject_CallMethod(f->graph, "create_node", "sOOO", op, target, args, kwargs ? kwargs : empty);
  Py_XDECREF(empty);
  if (!n) return 0;
  bool input = !strcmp(op, "placeholder");
  PyObject *where = !input && !f->incomplete ? mg_fxmeta_frames(cap->rec) : Py_NewRef(Py_None);
  uint32_t number = where ? mg_fx_adopt(f, n, where, input) : 0;
  Py_XDECREF(where);
  Py_DECREF(n); /* the list holds it */
  return number;
}

uint32_t mg_fx_call(MgCapture *cap, PyObject *target, PyObject *args, PyObject *kwargs) {
  return mg_fx_node(cap, "call_function", target, args, kwargs);
}

PyObject *mg_fx_item(MgCapture *cap, uint32_t number) { return PyList_GET_ITEM(cap->fx->nodes, number - 1); }

void mg_fx_use_aten(MgCapture *cap) { cap->fx->incomplete = true; }

bool mg_fx_is_aten(const MgCapture *cap) { return cap->fx->incomplete; }

bool mg_fx_takes_engine(MgCapture *cap) {
  if (cap->fx->incomplete) return true;
  PyObject *on = mg_rec_dynamo_config("trace_autograd_ops");
  if (on == Py_True) cap->fx->incomplete = true;
  Py_XDECREF(on);
  return cap->fx->incomplete;
}

static PyObject *fx_item(const MgFx *f, uint32_t number) { return PyList_GET_ITEM(f->nodes, number - 1); }

int mg_fx_bind(MgFx *f, ValRef val, uint32_t number) {
  if (PyList_GET_ITEM(f->val, number - 1) == Py_None) { /* the first: what the call gave */
    PyObject *v = PyLong_FromUnsignedLong(val);
    if (!v || PyList_SetItem(f->val, number - 1, v)) return -1;
  }
  if (mg_map_put(&f->by_val, val + 2, number)) return PyErr_NoMemory(), -1;
  for (uint32_t i = 0; i < f->nlift; i++) /* written to inside of a region: outside it is the same tensor */
    if (f->lift[i].number == number) return mg_fx_bind(f->outer, val, f->lift[i].outer);
  return 0;
}

int mg_fx_same(MgCapture *cap, ValRef now, ValRef was) {
  MgPause pause = mg_rec_pause();
  PyObject *n = mg_fx_of_val(cap, was);
  uint32_t number = n ? mg_map_getp(&cap->fx->by_node, n) : MG_MAP_NONE;
  mg_rec_resume(pause);
  if (PyErr_Occurred()) return -1;
  return number == MG_MAP_NONE ? 0 : mg_fx_bind(cap->fx, now, number);
}

/* "L['self'].fc.weight" -> "L_self_fc_weight_": letters and digits, runs of others as one underscore. */
static void fx_name(MgRec *r, const MgCapInput *in, uint32_t number, char *out, size_t n) {
  MgStrbuf text = {0};
  size_t k = 0;
  if (in->src && r->guards) mg_source_print(r->guards, in->src, &text);
  for (const char *p = mg_sb_text(&text); *p && k + 2 < n; p++) {
    bool word = (*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z');
    if (word || (k && out[k - 1] != '_')) out[k++] = word ? *p : '_';
  }
  if (k && out[k - 1] != '_') out[k++] = '_';
  out[k] = 0;
  /* Tensors behind an identity guard (parameters) have no path from the frame: numbered,
   * so that names are stable. */
  if (!k || (out[0] >= '0' && out[0] <= '9') || strstr(mg_sb_text(&text), " at 0x"))
    snprintf(out, n, "%s_%u", Py_TYPE(in->real) == mg_torch.parameter ? "param" : "tensor", number);
  mg_sb_free(&text);
}

/* The placeholder of an input: made at its first use, moved in front of all other nodes. */
uint32_t mg_fx_placeholder(MgCapture *cap, uint32_t index) {
  MgFx *f = cap->fx;
  char name[200];
  if (f->ninput == f->cap_input) {
    uint32_t n = f->cap_input ? f->cap_input * 2 : 16;
    void *p = mg_realloc(f->input, n * sizeof *f->input);
    if (!p) return PyErr_NoMemory(), 0;
    f->input = p;
    if (!(p = mg_realloc(f->input_node, n * sizeof *f->input_node))) return PyErr_NoMemory(), 0;
    f->input_node = p;
    f->cap_input = n;
  }
  bool symbol = index & MG_FX_SYMBOL;
  if (symbol) snprintf(name, sizeof name, "s%u", index & ~MG_FX_SYMBOL);
  else fx_name(cap->rec, &cap->input[index], f->ninput, name, sizeof name - 12);
  uint64_t key = mg_hash_bytes(name, strlen(name), 0) | 2; /* L['n'] and -L['n'] */
  if (mg_map_get(&f->by_name, key) != MG_MAP_NONE) sprintf(name + strlen(name), "_%u", f->ninput);
  else if (mg_map_put(&f->by_name, key, 1)) return PyErr_NoMemory(), 0;
  PyObject *target = PyUnicode_FromString(name), *none = PyTuple_New(0);
  uint32_t number = target && none ? mg_fx_node(cap, "placeholder", target, none, NULL) : 0;
  Py_XDECREF(target);
  Py_XDECREF(none);
  PyObject *moved =
      number && f->first ? PyObject_CallMethod(f->first, "prepend", "O", fx_item(f, number)) : NULL;
  Py_XDECREF(moved);
  if (!number || (f->first && !moved)) return 0;
  f->input_node[f->ninput] = number;
  f->input[f->ninput++] = index;
  return !symbol && mg_fx_bind(f, cap->input[index].val, number) ? 0 : number;
}

/* An object that FX has no literal for (a generator), or a real tensor that the recording keeps:
 * an attribute of the module. */
PyObject *mg_fx_constant(MgCapture *cap, PyObject *tensor, const char *prefix) {
  MgFx *f = cap->fx;
  char name[40];
  uint32_t known = mg_map_getp(&f->by_node, tensor);
  if (known != MG_MAP_NONE) return Py_NewRef(fx_item(f, known));
  bool real = PyObject_TypeCheck(tensor, mg_torch.tensor);
  Py_ssize_t n = prefix ? 0 : PyDict_GET_SIZE(f->root);
  do snprintf(name, sizeof name, "%.24s%zd", prefix ? prefix : real ? "_tensor_constant" : "_constant", n++);
  while (PyDict_GetItemString(f->root, name));
  if (PyDict_SetItemString(f->root, name, tensor)) return NULL;
  PyObject *target = PyUnicode_FromString(name), *none = PyTuple_New(0);
  uint32_t number = target && none ? mg_fx_node(cap, "get_attr", target, none, NULL) : 0;
  Py_XDECREF(target);
  Py_XDECREF(none);
  if (!number || mg_map_putp(&f->by_node, tensor, number))
    return NULL; /* the module's dict keeps the tensor alive */
  return Py_NewRef(fx_item(f, number));
}

PyObject *mg_fx_of_val(MgCapture *cap, ValRef val) {
  uint32_t number = mg_map_get(&cap->fx->by_val, val + 2);
  if (number != MG_MAP_NONE) return fx_item(cap->fx, number);
  if (cap->fx->outer) return mg_fx_lift(cap, val);
  const MgVal *v = mg_val(cap->rec->g, val);
  if (v->def || v->out >= cap->ninput || cap->input[v->out].val != val) return NULL;
  if (cap->input[v->out].pinned) return NULL;
  number = mg_fx_placeholder(cap, v->out);
  return number ? fx_item(cap->fx, number) : NULL;
}

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
    PyObject *args = Py_BuildValue("(On)", fx_item(f, number), i);
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

/* A write that no call shows (x.real = y) is in the ATen nodes only. */
static void fx_look_for_writes(MgCapture *cap) {
  if (fx_is_effect(cap->rec->g, cap->fx->covered)) cap->fx->incomplete = true;
  cap->fx->covered = (NodeRef)cap->rec->g->nnode;
}

int mg_fx_before(MgCapture *cap, PyObject *args, PyObject *kwargs, MgFxCall *c) {
  *c = (MgFxCall){.from = (NodeRef)cap->rec->g->nnode};
  fx_look_for_writes(cap);
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

/* ---- the graph from ATen nodes ---- */

static PyObject *fx_aten_arg(MgCapture *cap, const MgArg *a) {
  if (a->tag == MA_val) {
    if (!a->u.val) Py_RETURN_NONE;
    PyObject *n = mg_fx_of_val(cap, a->u.val);
    if (n || PyErr_Occurred()) return Py_XNewRef(n);
    const MgVal *v = mg_val(cap->rec->g, a->u.val);
    if (!v->def && v->out < cap->ninput && cap->input[v->out].pinned)
      return mg_fx_constant(cap, cap->input[v->out].real, NULL);
    return PyErr_Format(PyExc_SystemError, "magneto: a graph value is used before it is made");
  }
  PyObject *number = a->tag == MA_int ? mg_fx_size(cap, a->u.sym) : NULL;
  if (number || PyErr_Occurred()) return number;
  if (a->tag != MA_list) return mg_torchobj_from_arg(cap->rec->g, a, cap->objs);
  PyObject *l = PyList_New(a->n);
  for (uint32_t i = 0; l && i < a->n; i++) {
    PyObject *o = fx_aten_arg(cap, &a->u.item[i]);
    if (!o) Py_CLEAR(l);
    else PyList_SET_ITEM(l, i, o);
  }
  return l;
}

int mg_fx_higher(MgCapture *cap, const char *name, PyObject *modules, PyObject **target, PyObject **args) {
  PyObject *l = *args, *xs = PyList_GET_ITEM(l, 0), *new = NULL, *cut[3] = {NULL, NULL, NULL};
  bool loop = !strcmp(name, "while_loop"), scan = !strcmp(name, "scan");
  Py_ssize_t at[4] = {0, 1, 1, PyList_GET_SIZE(xs)}; /* predicate or what is carried; rows; others */
  if (loop || scan) at[1] = at[2] = PyLong_AsSsize_t(PyList_GET_ITEM(l, 1));
  if (scan) at[2] += PyLong_AsSsize_t(PyList_GET_ITEM(l, 2));
  PyObject *a =
      scan ? NULL : mg_fx_constant(cap, PyList_GET_ITEM(modules, 0), loop ? "cond_fn_" : "cond_true_");
  const char *prefix = loop ? "body_fn_" : !scan ? "cond_false_" : at[1] ? "scan_combine_fn_" : "map_body_";
  PyObject *b = mg_fx_constant(cap, PyList_GET_ITEM(modules, !scan), prefix);
  for (int i = 0; i < 3; i++) {
    cut[i] = PyList_GetSlice(xs, at[i], at[i + 1]);
    if (cut[i] && !scan) Py_SETREF(cut[i], PyList_AsTuple(cut[i]));
  }
  if (b && cut[0] && cut[1] && cut[2]) {
    if (loop && a) new = Py_BuildValue("[OOOO]", a, b, cut[0], cut[2]);
    else if (scan && at[1]) new = Py_BuildValue("[OOOO]", b, cut[0], cut[1], cut[2]);
    else if (scan) new = Py_BuildValue("[OOO]", b, cut[1], cut[2]);
    else if (a) new = Py_BuildValue("[OOOO]", PyTuple_GET_ITEM(cut[0], 0), a, b, cut[2]);
  }
  PyObject *const used[] = {a, b, cut[0], cut[1], cut[2]};
  for (size_t i = 0; i < sizeof used / sizeof *used; i++) Py_XDECREF(used[i]);
  if (!new) return -1;
  *target = mg_fx_torch.higher[scan ? 3 - (at[1] > 0) : loop];
  Py_SETREF(*args, new);
  return 0;
}

/* The same with the ATen nodes of its parts. */
static int fx_aten_higher(MgCapture *cap, const char *name, PyObject **target, PyObject **args) {
  PyObject *modules = PyList_New(0);
  int rc = modules ? 0 : -1;
  for (Py_ssize_t i = 1; !rc && i < PyList_GET_SIZE(*args); i++) {
    PyObject *part = PyList_GET_ITEM(*args, i), *module = PyLong_Check(part) ? NULL : ((MgPart *)part)->graph;
    if (module) rc = PyList_Append(modules, module);
    else if (!PyLong_Check(part))
      rc = (mg_symsize_give_up(cap->rec, "a branch or loop in ATen nodes with symbolic sizes"), -1);
  }
  if (!rc) rc = mg_fx_higher(cap, name, modules, target, args);
  Py_XDECREF(modules);
  return rc;
}

static int fx_aten_node(MgCapture *cap, NodeRef n) {
  MgFx *f = cap->fx;
  MgGraph *g = cap->rec->g;
  const MgNode *node = mg_node(g, n);
  const MgOp *op = node->op;
  const MgFrontOp *fo = mg_frontop_of(op);
  PyObject *args = PyList_New(0), *kw = PyDict_New(), *tuple = NULL;
  int rc = -1;
  uint32_t number = 0;
  if (!fo || !args || !kw) goto done;
  for (int i = 0; i < node->narg; i++) {
    PyObject *o = fx_aten_arg(cap, &node->arg[i]);
    int bad = !o || (op->param[i].kwarg_only ? PyDict_SetItem(kw, fo->name[i], o) : PyList_Append(args, o));
    Py_XDECREF(o);
    if (bad) goto done;
  }
  PyObject *target = fo->func;
  if (!strcmp(op->name, "magneto::cond") || !strcmp(op->name, "magneto::while_loop") ||
      !strcmp(op->name, "magneto::scan"))
    if (fx_aten_higher(cap, op->name + strlen("magneto::"), &target, &args)) goto done;
  if (mg_fx_follow_grad(cap, node->grad_mode) || !(tuple = PyList_AsTuple(args))) goto done;
  if (!(number = mg_fx_node(cap, "call_function", target, tuple, kw))) goto done;
  bool items = op->nret > 1 || (op->nret == 1 && op->ret_kind[0] == AK_tensor_list);
  for (int i = 0; i < node->nout; i++) {
    uint32_t item = number;
    if (!node->out[i]) continue;
    if (items) {
      PyObject *pair = Py_BuildValue("(Oi)", fx_item(f, number), i);
      item = pair ? mg_fx_node(cap, "call_function", mg_fx_torch.getitem, pair, NULL) : 0;
      Py_XDECREF(pair);
    }
    if (!item || mg_fx_bind(f, node->out[i], item)) goto done;
  }
  rc = 0;
done:
  Py_XDECREF(args);
  Py_XDECREF(kw);
  Py_XDECREF(tuple);
  return rc;
}

PyObject *mg_fx_part(MgRec *r, NodeRef first, const ValRef *in, uint32_t nin, const ValRef *out,
                     uint32_t nout) {
  MgCapture *cap = r->cap;
  MgFx *outer = cap->fx;
  PyObject *gm = NULL, *none = PyTuple_New(0), *outs = PyTuple_New(nout), *name = NULL, *node = NULL;
  cap->fx = NULL;
  if (!none || !outs || mg_fx_begin(cap)) goto done;
  cap->fx->incomplete = true;
  for (uint32_t i = 0; i < nin; i++) {
    if (!(name = PyUnicode_FromFormat("arg%u", i))) goto done;
    uint32_t number = mg_fx_node(cap, "placeholder", name, none, NULL);
    Py_CLEAR(name);
    if (!number || mg_fx_bind(cap->fx, in[i], number)) goto done;
  }
  for (NodeRef k = first; k < r->g->nnode; k++)
    if (!mg_node(r->g, k)->dead && fx_aten_node(cap, k)) goto done;
  for (uint32_t i = 0; i < nout; i++) {
    PyObject *o = mg_fx_of_val(cap, out[i]);
    if (!o) goto done;
    PyTuple_SET_ITEM(outs, i, Py_NewRef(o));
  }
  if (mg_fx_follow_grad(cap, cap->fx->grad_start) ||
      !(node = PyObject_CallMethod(cap->fx->graph, "output", "(O)", outs)))
    goto done;
  gm = PyObject_CallFunctionObjArgs(mg_fx_torch.GraphModule, cap->fx->root, cap->fx->graph, NULL);
done:
  if (!gm && !PyErr_Occurred())
    PyErr_SetString(PyExc_SystemError, "magneto: a result of a part was made by no recorded op");
  Py_XDECREF(none);
  Py_XDECREF(outs);
  Py_XDECREF(node);
  mg_fx_free(cap);
  cap->fx = outer;
  return gm;
}

typedef struct FxSeen {
  MgCapture *cap;
  bool all;
} FxSeen;

static void fx_see(ValRef *v, void *arg) {
  FxSeen *s = arg;
  s->all = s->all && (!*v || mg_fx_of_val(s->cap, *v));
}

int mg_fx_show(MgCapture *cap, NodeRef n) {
  if (cap->fx->incomplete || cap->quiet) return 0;
  FxSeen s = {cap, true};
  mg_node_each_val(mg_node(cap->rec->g, n), fx_see, &s);
  if (s.all) return fx_aten_node(cap, n);
  cap->fx->incomplete = true;
  return PyErr_Occurred() ? -1 : 0;
}

/* Starts again, from the ATen nodes. */
static int fx_from_aten(MgRec *r) {
  MgCapture *cap = r->cap;
  bool start = cap->fx->grad_start, end = cap->fx->grad_end;
  mg_fx_free(cap);
  if (mg_fx_begin(cap)) return -1;
  cap->fx->grad = cap->fx->grad_start = start;
  cap->fx->grad_end = end;
  cap->fx->incomplete = true;
  for (NodeRef n = 1; n < r->g->nnode; n++)
    if (!mg_node(r->g, n)->dead && fx_aten_node(cap, n)) return -1;
  return 0;
}

/* ---- finishing ---- */

bool mg_fx_shows(MgCapture *cap, const ValRef *out, int n) {
  fx_look_for_writes(cap);
  for (int i = 0; i < n && !cap->fx->incomplete; i++)
    if (!mg_fx_of_val(cap, out[i])) {
      PyErr_Clear(); /* incomplete says it */
      return false;
    }
  return !cap->fx->incomplete;
}

/* The nodes of the graph's outputs as a tuple.  NULL with an exception, or without
 * one when some has no node. */
static PyObject *fx_outputs(MgRec *r) {
  PyObject *t = PyTuple_New(r->g->noutput);
  for (uint32_t i = 0; t && i < r->g->noutput; i++) {
    PyObject *n = mg_fx_of_val(r->cap, r->g->output[i]),
             *o = n ? mg_fx_late_output(r->cap, r->g->output[i], n) : NULL;
    if (!o) Py_CLEAR(t);
    else PyTuple_SET_ITEM(t, i, o);
  }
  return t;
}

/* Erases a node that nothing reads when it is a subscript (items of a tensor that was iterated over), or
 * takes a number out of a tensor. */
static int fx_prune_item(MgFx *f, PyObject *n, bool number) {
  PyObject *target = PyObject_GetAttrString(n, "target"), *users = NULL, *r = NULL;
  if (!target) return -1;
  number |= PyUnicode_Check(target) && !PyUnicode_CompareWithASCIIString(target, "item");
  if ((target == mg_fx_torch.getitem || number) && (users = PyObject_GetAttrString(n, "users")) &&
      !PyObject_Size(users))
    r = PyObject_CallMethod(f->graph, "erase_node", "O", n);
  Py_DECREF(target);
  Py_XDECREF(users);
  Py_XDECREF(r);
  return PyErr_Occurred() ? -1 : 0;
}

/* Removes placeholders and constants that nothing reads: an input whose size alone was asked for. */
static int fx_prune(MgFx *f) {
  for (Py_ssize_t i = PyList_GET_SIZE(f->nodes); i-- > 0;)
    if (fx_prune_item(f, PyList_GET_ITEM(f->nodes, i), mg_fx_is_calc(f, i))) return -1;
  uint32_t kept = 0, seen = 0;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(f->nodes); i++) {
    PyObject *n = PyList_GET_ITEM(f->nodes, i), *op = PyObject_GetAttrString(n, "op"), *users = NULL,
             *r = NULL;
    if (!op || !(users = PyObject_GetAttrString(n, "users"))) goto fail;
    bool input = PyUnicode_CompareWithASCIIString(op, "placeholder") == 0;
    bool constant = PyUnicode_CompareWithASCIIString(op, "get_attr") == 0;
    Py_ssize_t nuser = PyObject_Size(users);
    if (nuser < 0) goto fail;
    if ((input || constant) && !nuser && !(r = PyObject_CallMethod(f->graph, "erase_node", "O", n)))
      goto fail;
    if (input && nuser) {
      f->input[kept] = f->input[seen];
      f->input_node[kept++] = f->input_node[seen];
    }
    seen += input;
    Py_DECREF(op);
    Py_DECREF(users);
    Py_XDECREF(r);
    continue;
  fail:
    Py_XDECREF(op);
    Py_XDECREF(users);
    return -1;
  }
  f->ninput = kept;
  return 0;
}

int mg_fx_describe(MgRec *r) {
  MgFx *f = r->cap->fx;
  PyObject *inputs = PyDict_New();
  int rc = inputs ? 0 : -1;
  for (uint32_t i = 0; !rc && i < f->ninput; i++)
    if (!(f->input[i] & MG_FX_SYMBOL))
      rc = PyDict_SetItem(inputs, fx_item(f, f->input_node[i]), r->cap->input[f->input[i]].real);
  if (!rc) rc = mg_fxmeta_finish(r, f->nodes, f->val, f->where, inputs);
  Py_XDECREF(inputs);
  return rc;
}

PyObject *mg_fx_module(MgRec *r, uint32_t **inputs, uint32_t *ninput) {
  fx_look_for_writes(r->cap);
  PyObject *outs = r->cap->fx->incomplete ? NULL : fx_outputs(r), *gm = NULL, *node = NULL;
  if (!outs && PyErr_Occurred()) return NULL;
  if (!outs && (fx_from_aten(r) || !(outs = fx_outputs(r)))) {
    if (!PyErr_Occurred())
      PyErr_SetString(PyExc_SystemError, "magneto: a graph output was made by no recorded op");
    return NULL;
  }
  MgFx *f = r->cap->fx;
  if (!f->incomplete && mg_fx_asserts(r->cap)) goto done;
  if ((!f->incomplete && mg_fxstate_follow(r->cap, &f->state, true)) ||
      mg_fx_follow_grad(r->cap, f->grad_end))
    goto done;
  if (!(node = PyObject_CallMethod(f->graph, "output", "(O)", outs))) goto done;
  if (fx_prune(f) || mg_fx_describe(r)) goto done;
  if (!(gm = PyObject_CallFunctionObjArgs(mg_fx_torch.GraphModule, f->root, f->graph, NULL))) goto done;
  *inputs = f->input;
  *ninput = f->ninput;
  f->input = NULL;
done:
  Py_XDECREF(outs);
  Py_XDECREF(node);
  return gm;
}
