/* See the header.
 * wrap and its like record their body in its place, as a region of the FX graph when one is written (fxregion.c).
 * cond and while_loop: branches, tests and bodies are recorded as parts (part.c), the call is one node (magneto/branch.py runs
 * it).  scan, map and flex_attention are what the Python functions of magneto/hop.py say; their bodies are recorded like
 * any other.  Does not do: gradients of while_loop, random numbers, carried numbers; these break. */
#include "front/higher.h"
#include <string.h>
#include "front/facts.h"
#include "front/function.h"
#include "front/fxregion.h"
#include "front/joint.h"
#include "front/names.h"
#include "front/part.h"
#include "front/symfloat.h"
#include "front/torchobj.h"

/* magneto.branch.<name>; new. */
static PyObject *higher_branch(const char *name) {
  PyObject *m = mg_import("magneto.branch"), *o = m ? PyObject_GetAttrString(m, name) : NULL;
  Py_XDECREF(m);
  return o;
}

static const MgFrontOp *higher_op(const char *name) {
  PyObject *d = higher_branch("OPERATORS"), *op = d ? PyDict_GetItemString(d, name) : NULL;
  const MgFrontOp *fo = op ? mg_frontop_find(op) : NULL;
  Py_XDECREF(d);
  return fo;
}

/* ---- the tensors that parts read ---- */

typedef struct Higher {
  MgRec *r;
  MgPart *part[2];
  ValRef *all;         /* inputs of both parts */
  uint32_t nall;
  PyObject *xs;        /* list: their stand-ins */
} Higher;

static int higher_add(Higher *h, ValRef v) {
  for (uint32_t i = 0; i < h->nall; i++)
    if (h->all[i] == v) return 0;
  h->all[h->nall++] = v;
  return 0;
}

/* The living stand-in of a value: one that autograd tracks, if there is any.  One is made for a value that nobody holds and autograd
 * does not track (a constant that a body makes).  New; NULL without an exception: autograd has lost it. */
static PyObject *higher_find(MgCapture *cap, ValRef v) {
  PyObject *found = NULL;
  for (MgStandInfo *i = cap->live; i; i = i->next)
    if (i->self && i->val == v && (!found || mg_facts_requires_grad(i->self))) found = i->self;
  return found || mg_val(cap->rec->g, v)->requires_grad ? Py_XNewRef(found) : mg_standin_new(cap, v);
}

/* Collects what both parts read; the first nfixed values are there already. */
static int higher_collect(Higher *h, PyObject *const *fixed, uint32_t nfixed) {
  for (int k = 0; k < 2; k++)
    for (uint32_t i = 0; i < h->part[k]->nin; i++) higher_add(h, h->part[k]->in[i]);
  if (!(h->xs = PyList_New(0))) return -1;
  for (uint32_t i = 0; i < h->nall; i++) {
    PyObject *x = i < nfixed ? Py_NewRef(fixed[i]) : higher_find(h->r->cap, h->all[i]);
    if (!x && !PyErr_Occurred()) mg_rec_break(BK_op, "a branch or loop body that reads a tensor nobody holds");
    int bad = !x || PyList_Append(h->xs, x);
    Py_XDECREF(x);
    if (bad) return -1;
  }
  return mg_part_bind(h->part[0], h->all, h->nall) || mg_part_bind(h->part[1], h->all, h->nall) ? -1 : 0;
}

static bool higher_tracks(const Higher *h) {
  return mg_abi.aoti_torch_grad_mode_is_enabled() && (h->part[0]->grad || h->part[1]->grad);
}

static void higher_free(Higher *h) {
  Py_XDECREF(h->part[0]);
  Py_XDECREF(h->part[1]);
  Py_XDECREF(h->xs);
}

/* ---- results ---- */

/* Gives the GraphModule of a part all inputs of the call; alone: the result is a tensor, not a tuple of one. */
static int higher_widen(const Higher *h, MgPart *p, bool alone) {
  PyObject *pick = PyList_New(p->nin), *f = higher_branch("widen"), *gm = NULL;
  for (uint32_t i = 0; pick && i < p->nin; i++) PyList_SET_ITEM(pick, i, PyLong_FromUnsignedLong(p->pick[i]));
  if (pick && f) gm = PyObject_CallFunction(f, "OOIO", p->graph, pick, h->nall, alone ? Py_True : Py_False);
  Py_XDECREF(pick);
  Py_XDECREF(f);
  if (gm) Py_SETREF(p->graph, gm);
  return gm ? 0 : -1;
}

/* Shows the call in a torch-level graph. */
static int higher_show(const Higher *h, PyObject *res, bool loop) {
  if (!h->r->want_fx) return 0;
  MgPause pause = mg_rec_pause();
  int rc = higher_widen(h, h->part[0], loop) || higher_widen(h, h->part[1], false) ? -1 : 0;
  if (!rc && PyList_GET_SIZE(res)) rc = mg_fx_show(h->r->cap, mg_val(h->r->g, mg_standin_val(PyList_GET_ITEM(res, 0)))->def);
  mg_rec_resume(pause);
  return rc;
}

/* The list of results, nested as the part's result was.  Steals res. */
static PyObject *higher_nest(const MgPart *p, PyObject *res) {
  MgPause pause = mg_rec_pause();
  PyObject *m = mg_import("torch.utils._pytree"), *r = m ? PyObject_CallMethod(m, "tree_unflatten", "OO", res, p->spec) : NULL;
  mg_rec_resume(pause);
  Py_XDECREF(m);
  Py_DECREF(res);
  if (r && !mg_standin_check(r)) mg_fresh(r);
  return r;
}

/* ---- cond ---- */

/* emit_cond(pred, xs, yes, no) -> results */
static PyObject *higher_emit_cond(PyObject *module, PyObject *args) {
  PyObject *pred, *xs, *yes, *no;
  if (!PyArg_ParseTuple(args, "OO!OO:emit_cond", &pred, &PyList_Type, &xs, &yes, &no)) return NULL;
  if (!mg_standin_check(pred) || !mg_standin_info(pred)->cap) return PyErr_Format(PyExc_RuntimeError, "magneto: no recording");
  const MgFrontOp *fo = higher_op("cond");
  const MgPart *p = (MgPart *)yes;
  return fo ? mg_dispatch_emit(mg_standin_info(pred)->cap, fo, args, p->out, p->nout, true) : NULL;
}

/* emit_cond_backward(pred, xs, grads, need, yes, no) -> gradients */
static PyObject *higher_emit_backward(PyObject *module, PyObject *args) {
  PyObject *pred, *xs, *grads, *need, *yes, *no;
  if (!PyArg_ParseTuple(args, "OO!OO!OO:emit_cond_backward", &pred, &PyList_Type, &xs, &grads, &PyList_Type, &need, &yes, &no)) return NULL;
  MgCapture *cap = mg_standin_check(pred) ? mg_standin_info(pred)->cap : NULL;
  if (!cap) return PyErr_Format(PyExc_RuntimeError, "magneto: no recording");
  const MgFrontOp *fo = higher_op("cond_backward");
  Py_ssize_t n = PyList_GET_SIZE(need);
  ValRef *like = mg_new(cap->rec->g->c, ValRef, n + 1);
  if (!like) return PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *x = PyList_GetItem(xs, PyLong_AsSsize_t(PyList_GET_ITEM(need, i)));
    if (!x || !mg_standin_check(x)) return PyErr_Format(PyExc_RuntimeError, "magneto: a gradient of something that is not recorded");
    if (!(like[i] = mg_joint_gradient_val(cap->rec->g, mg_standin_val(x)))) return PyErr_NoMemory();
  }
  return fo ? mg_dispatch_emit(cap, fo, args, like, (uint32_t)n, false) : NULL;
}

static PyObject *higher_cond_result(Higher *h, PyObject *pred) {
  PyObject *yes = (PyObject *)h->part[0], *no = (PyObject *)h->part[1], *res = NULL;
  if (!higher_tracks(h)) {
    const MgFrontOp *fo = higher_op("cond");
    PyObject *args = fo ? PyTuple_Pack(4, pred, h->xs, yes, no) : NULL;
    if (args) res = mg_dispatch_emit(h->r->cap, fo, args, h->part[0]->out, h->part[0]->nout, mg_abi.aoti_torch_grad_mode_is_enabled());
    Py_XDECREF(args);
    return res;
  }
  MgPause pause = mg_rec_pause();
  PyObject *first = PyTuple_Pack(3, yes, no, pred), *rest = PyList_AsTuple(h->xs), *f = higher_branch("Cond");
  PyObject *args = first && rest ? PySequence_Concat(first, rest) : NULL, *apply = f ? PyObject_GetAttrString(f, "apply") : NULL;
  PyObject *t = args && apply ? PyObject_Call(apply, args, NULL) : NULL;
  if (t) res = PyTuple_Check(t) ? PySequence_List(t) : PyList_New(0);
  PyObject *const used[] = {first, rest, f, args, apply, t};
  for (size_t i = 0; i < sizeof used / sizeof *used; i++) Py_XDECREF(used[i]);
  mg_rec_resume(pause);
  return res;
}

/* Both branches as parts. */
static PyObject *higher_cond_parts(Higher *h, PyObject *pred, PyObject *const *fn, PyObject *operands) {
  PyObject *const *arg = PySequence_Fast_ITEMS(operands);
  MgGraph *g = h->r->g;
  PyObject *res = NULL;
  for (int i = 0; i < 2; i++)
    if (!(h->part[i] = mg_part_record(h->r, fn[i], arg, PySequence_Fast_GET_SIZE(operands)))) return NULL;
  if (!mg_part_alike(g, h->part[0], h->part[1])) return mg_rec_break(BK_op, "the branches of a cond give different tensors");
  h->all = mg_new(g->c, ValRef, h->part[0]->nin + h->part[1]->nin + 1);
  if (!h->all) return PyErr_NoMemory();
  if (higher_collect(h, NULL, 0) || !(res = higher_cond_result(h, pred))) return NULL;
  if (higher_show(h, res, false)) Py_CLEAR(res);
  return res ? higher_nest(h->part[0], res) : NULL;
}

/* cond(pred, true_fn, false_fn, operands).  False: torch's Python has to do it. */
static bool higher_cond(MgRec *r, PyObject *const *a, PyObject **out) {
  PyObject *pred = a[0], *const fn[2] = {a[1], a[2]};
  if (!PyTuple_Check(a[3]) && !PyList_Check(a[3])) return false;
  if (PyBool_Check(pred) || PyLong_CheckExact(pred) || PyFloat_CheckExact(pred)) {
    int yes = PyObject_IsTrue(pred);
    *out = yes < 0 ? NULL : mg_rec_call(yes ? fn[0] : fn[1], PySequence_Fast_ITEMS(a[3]), (size_t)PySequence_Fast_GET_SIZE(a[3]), NULL);
    return true;
  }
  int64_t n;
  if (!mg_standin_check(pred) || !mg_sym_settle(r->g->x, mg_val_numel(r->g, mg_standin_val(pred)), &n) || n != 1) return false;
  Higher h = {.r = r};
  *out = higher_cond_parts(&h, pred, fn, a[3]);
  higher_free(&h);
  return true;
}

/* ---- while_loop ---- */

static PyObject *higher_loop_parts(Higher *h, PyObject *const *fn, PyObject *carried, PyObject *more) {
  MgGraph *g = h->r->g;
  Py_ssize_t n = PySequence_Fast_GET_SIZE(carried);
  PyObject *loop = PyList_New(0), *all = NULL, *res = NULL, *count = NULL, *args = NULL;
  ValRef *like = mg_new(g->c, ValRef, n + 1);
  const MgFrontOp *fo = loop && like ? higher_op("while_loop") : NULL;
  if (!fo) goto done;
  for (Py_ssize_t i = 0; i < n; i++) { /* what the loop carries is another tensor on each turn */
    like[i] = mg_graph_val_like(g, mg_standin_val(PySequence_Fast_GET_ITEM(carried, i)));
    if (!like[i]) goto done;
    MgVal *v = mg_val(g, like[i]);
    v->def = 0;
    v->out = UINT16_MAX; /* no input of the graph */
    v->requires_grad = false;
    v->offset = mg_sym(g->x, 0);
    PyObject *t = mg_standin_new(h->r->cap, like[i]);
    if (!t || PyList_Append(loop, t)) goto done;
    Py_DECREF(t);
  }
  if (!(all = PySequence_Concat(loop, more))) goto done;
  for (int i = 0; i < 2; i++)
    if (!(h->part[i] = mg_part_record(h->r, fn[i], PySequence_Fast_ITEMS(all), PySequence_Fast_GET_SIZE(all)))) goto done;
  bool same = h->part[1]->nout == n && h->part[0]->nout == 1;
  MgPart carry = *h->part[1];
  carry.out = like;
  if (!same || !mg_part_alike(g, &carry, h->part[1])) {
    mg_rec_break(BK_op, "a loop body gives other tensors than it takes");
    goto done;
  }
  if (!(h->all = mg_new(g->c, ValRef, h->part[0]->nin + h->part[1]->nin + n + 1))) goto done;
  for (Py_ssize_t i = 0; i < n; i++) h->all[h->nall++] = like[i];
  if (higher_collect(h, PySequence_Fast_ITEMS(carried), (uint32_t)n)) goto done;
  bool tracks = higher_tracks(h);
  for (Py_ssize_t i = 0; i < n && mg_abi.aoti_torch_grad_mode_is_enabled(); i++)
    tracks |= mg_facts_requires_grad(PySequence_Fast_GET_ITEM(carried, i));
  if (tracks) {
    mg_rec_break(BK_op, "gradients of a while_loop");
    goto done;
  }
  if (!(count = PyLong_FromSsize_t(n)) || !(args = PyTuple_Pack(4, h->xs, count, h->part[0], h->part[1]))) goto done;
  res = mg_dispatch_emit(h->r->cap, fo, args, like, (uint32_t)n, mg_abi.aoti_torch_grad_mode_is_enabled());
  if (res && higher_show(h, res, true)) Py_CLEAR(res);
done:
  if (!res && !PyErr_Occurred()) PyErr_NoMemory();
  Py_XDECREF(loop);
  Py_XDECREF(all);
  Py_XDECREF(count);
  Py_XDECREF(args);
  return res ? higher_nest(h->part[1], res) : NULL;
}

/* while_loop(cond_fn, body_fn, carried_inputs, additional_inputs) */
static bool higher_loop(MgRec *r, PyObject *const *a, PyObject **out) {
  if (!PyTuple_Check(a[2]) || !PyTuple_Check(a[3])) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(a[2]); i++)
    if (!mg_standin_check(PyTuple_GET_ITEM(a[2], i))) {
      *out = mg_rec_break(BK_op, "a while_loop that carries something else than tensors");
      return true;
    }
  Higher h = {.r = r};
  PyObject *more = PySequence_List(a[3]);
  *out = more ? higher_loop_parts(&h, a, a[2], more) : NULL;
  Py_XDECREF(more);
  higher_free(&h);
  return true;
}

/* ---- operators that call their function ---- */

/* An operator made from torch's BaseHOP that runs its function as it is. */
static bool higher_is_base(PyObject *op) {
  static PyObject *base; /* strong, process lifetime */
  PyObject *m = base ? NULL : PyImport_GetModule(mg_names.base_hop);
  if (m) base = PyObject_GetAttrString(m, "BaseHOP");
  Py_XDECREF(m);
  PyErr_Clear();
  if (!base || !PyObject_TypeCheck(op, (PyTypeObject *)base)) return false;
  return _PyType_Lookup(Py_TYPE(op), mg_names.call_composite) == _PyType_Lookup((PyTypeObject *)base, mg_names.call_composite);
}

/* op(fn, *tensors, **settings) */
static PyObject *higher_base(MgRec *r, const MgCall *c) {
  PyObject *kw = mg_call_kwargs(c), *res = NULL;
  MgFxHop hop = {.target = c->f, .kwargs = kw, .apart = true};
  if (kw) res = mg_fx_region_call(r, &hop, c->arg[0], c->arg + 1, (size_t)c->npos - 1, NULL);
  Py_XDECREF(kw);
  return res;
}

/* hints_wrapper(body_fn, args, kwargs, hints) */
static bool higher_hints(MgRec *r, const MgCall *c, PyObject *const *a, PyObject **out) {
  if (!PyTuple_Check(a[1]) || !PyDict_Check(a[2]) || PyDict_GET_SIZE(a[2]) || !PyDict_Check(a[3])) return false;
  PyObject *kw = PyDict_New();
  MgFxHop hop = {.target = c->f, .shape = FXSHAPE_tuple, .kwargs = kw};
  *out = kw && !PyDict_SetItemString(kw, "hints", a[3])
             ? mg_fx_region_call(r, &hop, a[0], &PyTuple_GET_ITEM(a[1], 0), (size_t)PyTuple_GET_SIZE(a[1]), NULL) : NULL;
  Py_XDECREF(kw);
  return true;
}

bool mg_higher_nested(PyObject *const *arg, size_t nargsf, PyObject *kwnames, PyObject **out) {
  Py_ssize_t n = PyVectorcall_NARGS(nargsf);
  if (n < 1) return false;
  MgFxHop hop = {.target = mg_torch.invoke_subgraph, .shape = FXSHAPE_named, .apart = true, .untracked = true};
  *out = mg_fx_region_call(mg_rec, &hop, arg[0], arg + 1, (size_t)n - 1, kwnames);
  return true;
}

/* ---- which operator ---- */

/* The function of magneto.hop for an operator; new; NULL with an exception, or without one when there is none. */
static PyObject *higher_function(PyObject *name) {
  static const char *const known[] = {"scan", "map_impl", "flex_attention"};
  PyObject *m = NULL, *f = NULL;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (!PyUnicode_CompareWithASCIIString(name, known[i]) && (m = mg_import("magneto.hop"))) f = PyObject_GetAttr(m, name);
  Py_XDECREF(m);
  return f;
}

/* Sorts arguments by parameter; false: others than these. */
static bool higher_args(const MgCall *c, const char *const *param, PyObject **a) {
  if (c->npos > 4 || c->n > 4) return false;
  for (Py_ssize_t i = 0; i < c->npos; i++) a[i] = c->arg[i];
  for (Py_ssize_t i = c->npos; i < c->n; i++) {
    int k = 0;
    while (k < 4 && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(c->kwnames, i - c->npos), param[k])) k++;
    if (k == 4 || a[k]) return false;
    a[k] = c->arg[i];
  }
  return true;
}

static const char *const higher_cond_param[] = {"pred", "true_fn", "false_fn", "operands"};

bool mg_higher_cond(PyObject *const *arg, size_t nargsf, PyObject *kwnames, PyObject **out) {
  Py_ssize_t npos = PyVectorcall_NARGS(nargsf);
  MgCall c = {mg_torch.cond, arg, nargsf, kwnames, npos, npos + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0), false};
  PyObject *a[4] = {NULL}, *none = PyTuple_New(0);
  bool done = none && higher_args(&c, higher_cond_param, a) && a[0] && a[1] && a[2];
  if (done && !a[3]) a[3] = none;
  if (!done || !higher_cond(mg_rec, a, out)) *out = mg_rec_break(BK_op, "torch.cond with other arguments");
  Py_XDECREF(none);
  return true;
}

bool mg_higher_call(const MgCall *c, PyObject **out) {
  static const char *const loop[] = {"cond_fn", "body_fn", "carried_inputs", "additional_inputs"};
  static const char *const hints[] = {"body_fn", "args", "kwargs", "hints"};
  if (!PyObject_TypeCheck(c->f, mg_torch.higher_order)) return false;
  PyObject *name = PyObject_GetAttrString(c->f, "_name"), *a[4] = {NULL}, *none = PyTuple_New(0);
  bool done = false;
  if (name && none && PyUnicode_Check(name)) {
    bool is_cond = !PyUnicode_CompareWithASCIIString(name, "cond"), is_loop = !PyUnicode_CompareWithASCIIString(name, "while_loop");
    if ((is_cond || is_loop) && higher_args(c, is_cond ? higher_cond_param : loop, a) && a[0] && a[1] && a[2]) {
      if (!a[3]) a[3] = none;
      done = is_cond ? higher_cond(mg_rec, a, out) : higher_loop(mg_rec, a, out);
    } else if (c->npos && !PyUnicode_CompareWithASCIIString(name, "wrap")) {
      MgFxHop hop = {.target = c->f};
      *out = mg_fx_region_call(mg_rec, &hop, c->arg[0], c->arg + 1, (size_t)c->npos - 1, c->kwnames);
      done = true;
    } else if (c->npos > 1 && !PyUnicode_CompareWithASCIIString(name, "dynamo_bypassing_wrapper") && !PyUnicode_Check(c->arg[0])) {
      PyObject *f = mg_rec_call(c->arg[0], c->arg + 1, 1, NULL); /* a function that wraps another one */
      *out = f ? mg_rec_call(f, c->arg + 2, (size_t)c->npos - 2, c->kwnames) : NULL;
      Py_XDECREF(f);
      done = true;
    } else if (!PyUnicode_CompareWithASCIIString(name, "custom_function_call")) {
      done = mg_function_transformed(c, out);
    } else if (!PyUnicode_CompareWithASCIIString(name, "hints_wrapper")) {
      done = higher_args(c, hints, a) && a[0] && a[1] && a[2] && a[3] && higher_hints(mg_rec, c, a, out);
    } else if (c->npos && higher_is_base(c->f)) {
      *out = higher_base(mg_rec, c);
      done = true;
    } else if (!is_cond && !is_loop) {
      PyObject *f = higher_function(name);
      if ((done = f != NULL)) *out = mg_rec_call(f, c->arg, c->nargsf & ~PY_VECTORCALL_ARGUMENTS_OFFSET, c->kwnames);
      Py_XDECREF(f);
    }
  }
  if (!done) PyErr_Clear(); /* the call itself will raise it again */
  Py_XDECREF(name);
  Py_XDECREF(none);
  return done;
}

static PyMethodDef higher_methods[] = {
    {"emit_cond", higher_emit_cond, METH_VARARGS, "emit_cond(pred, xs, yes, no, /): appends a cond to the recording."},
    {"emit_cond_backward", higher_emit_backward, METH_VARARGS, "emit_cond_backward(pred, xs, grads, need, yes, no, /): its gradients."},
    {NULL, NULL, 0, NULL}};

int mg_higher_init(PyObject *module) { return PyModule_AddFunctions(module, higher_methods); }
