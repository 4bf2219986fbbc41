/* The FX graph from ATen nodes: where a torch-level call cannot be shown, and for parts (branches, loops). */
#include <string.h>
#include "host/python/pyobject.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "record/fx/fx.h"
#include "record/fx/fx_graph.h"
#include "record/fx/fx_modes.h"
#include "record/core/subgraph_state.h"
#include "host/torch/literals.h"
#include "record/symbolic/sizes.h"

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

int mg_fx_aten_node(MgCapture *cap, NodeRef n) {
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
      PyObject *pair = Py_BuildValue("(Oi)", mg_fx_at(f, number), i);
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
    if (!mg_node(r->g, k)->dead && mg_fx_aten_node(cap, k)) goto done;
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
  if (s.all) return mg_fx_aten_node(cap, n);
  cap->fx->incomplete = true;
  return PyErr_Occurred() ? -1 : 0;
}

int mg_fx_from_aten(MgRec *r) {
  MgCapture *cap = r->cap;
  bool start = cap->fx->grad_start, end = cap->fx->grad_end;
  mg_fx_free(cap);
  if (mg_fx_begin(cap)) return -1;
  cap->fx->grad = cap->fx->grad_start = start;
  cap->fx->grad_end = end;
  cap->fx->incomplete = true;
  for (NodeRef n = 1; n < r->g->nnode; n++)
    if (!mg_node(r->g, n)->dead && mg_fx_aten_node(cap, n)) return -1;
  return 0;
}
