/* The recorded graph run node by node through ATen, on real tensors.
 * In: a graph with its outputs set.  Out: a program that calls each node's OpOverload in order, with autograd on or off
 * as it was when the node was recorded.  It is right under any aliasing and gives results their grad_fn, because ATen
 * itself does the work; used when gradients are wanted, and when the back end cannot compile a graph. */
#include "front/standin.h"
#include "front/torchobj.h"
#include <stdlib.h>
#include <string.h>

typedef struct NodeArg {
  enum { NA_const, NA_val, NA_list } tag;
  uint32_t n;              /* NA_list: items */
  union {
    PyObject *obj;         /* NA_const, strong */
    uint32_t val;          /* NA_val: slot of the environment */
    struct NodeArg *item;  /* NA_list that holds tensors, owned */
  } u;
} NodeArg;

typedef struct NodeCall {
  PyObject *call;          /* borrowed from the MgFrontOp, process lifetime */
  PyObject *kwnames;       /* tuple or NULL, strong */
  NodeArg *arg;            /* nargs entries, keyword-only ones last */
  uint32_t *out;           /* slot per tensor result, 0: not used */
  uint32_t *drop;          /* slots that die after this node */
  uint16_t nargs, npos, nout, ndrop;
  bool list_only;          /* the single return is a list */
  bool grad;
} NodeCall;

struct MgNodeRun {
  NodeCall *node;
  uint32_t nnode, nslot;   /* slots of the environment: value numbers of the graph */
  uint32_t *input, ninput; /* slot of each input */
  uint32_t *output, noutput;
};

/* ---- building ---- */

static bool noderun_has_val(const MgArg *a) {
  if (a->tag == MA_val) return a->u.val != 0;
  if (a->tag == MA_list)
    for (uint32_t i = 0; i < a->n; i++)
      if (noderun_has_val(&a->u.item[i])) return true;
  return false;
}

static int noderun_arg(MgRec *r, const MgArg *a, NodeArg *out) {
  if (a->tag == MA_val && a->u.val) {
    *out = (NodeArg){.tag = NA_val, .u.val = a->u.val};
    return 0;
  }
  if (a->tag == MA_val) {
    *out = (NodeArg){.tag = NA_const, .u.obj = Py_NewRef(Py_None)};
    return 0;
  }
  if (!noderun_has_val(a)) {
    *out = (NodeArg){.tag = NA_const, .u.obj = mg_torchobj_from_arg(r->g, a, r->cap->objs)};
    return out->u.obj ? 0 : -1;
  }
  NodeArg *item = mg_calloc(a->n, sizeof *item);
  if (!item) return PyErr_NoMemory(), -1;
  *out = (NodeArg){.tag = NA_list, .n = a->n, .u.item = item};
  for (uint32_t i = 0; i < a->n; i++)
    if (noderun_arg(r, &a->u.item[i], &item[i])) return -1;
  return 0;
}

static void noderun_arg_free(NodeArg *a) {
  if (a->tag == NA_const) Py_XDECREF(a->u.obj);
  if (a->tag != NA_list) return;
  for (uint32_t i = 0; i < a->n; i++) noderun_arg_free(&a->u.item[i]);
  free(a->u.item);
}

static int noderun_call(MgRec *r, NodeRef n, NodeCall *c) {
  MgNode *node = mg_node(r->g, n);
  const MgOp *op = node->op;
  const MgFrontOp *fo = mg_frontop_of(op);
  if (!fo) return -1;
  c->call = fo->call;
  c->grad = node->grad_mode;
  c->arg = mg_calloc(node->narg + 1, sizeof *c->arg);
  c->out = mg_calloc(node->nout + 1, sizeof *c->out);
  if (!c->arg || !c->out) return PyErr_NoMemory(), -1;
  while (c->npos < node->narg && !op->param[c->npos].kwarg_only) c->npos++;
  for (; c->nargs < node->narg; c->nargs++)
    if (noderun_arg(r, &node->arg[c->nargs], &c->arg[c->nargs])) return -1;
  if (c->nargs > c->npos) {
    if (!(c->kwnames = PyTuple_New(c->nargs - c->npos))) return -1;
    for (int i = c->npos; i < c->nargs; i++) PyTuple_SET_ITEM(c->kwnames, i - c->npos, Py_NewRef(fo->name[i]));
  }
  c->nout = node->nout;
  memcpy(c->out, node->out, node->nout * sizeof *c->out);
  c->list_only = op->nret == 1 && op->ret_kind[0] == AK_tensor_list;
  return 0;
}

/* Finds where each value is read last, so that memory is given back as early as eager would. */
struct noderun_last { uint32_t *last, at; };
static void noderun_see(ValRef *v, void *arg) {
  struct noderun_last *l = arg;
  if (*v) l->last[*v] = l->at;
}

static int noderun_lifetimes(MgNodeRun *p, MgGraph *g) {
  uint32_t *last = mg_calloc(p->nslot + 1, sizeof *last);
  if (!last) return PyErr_NoMemory(), -1;
  uint32_t at = 0;
  for (NodeRef n = 1; n < g->nnode; n++) {
    if (mg_node(g, n)->dead) continue;
    struct noderun_last l = {last, ++at};
    mg_node_each_val(mg_node(g, n), noderun_see, &l);
    for (int i = 0; i < mg_node(g, n)->nout; i++)
      if (mg_node(g, n)->out[i]) last[mg_node(g, n)->out[i]] = at;
  }
  for (uint32_t i = 0; i < p->noutput; i++) last[p->output[i]] = 0;
  for (uint32_t i = 0; i < p->ninput; i++) last[p->input[i]] = 0; /* borrowed */
  for (uint32_t v = 1; v < p->nslot; v++)
    if (last[v]) p->node[last[v] - 1].ndrop++;
  int rc = 0;
  for (uint32_t i = 0; i < p->nnode && !rc; i++)
    if (p->node[i].ndrop) {
      p->node[i].drop = mg_calloc(p->node[i].ndrop, sizeof(uint32_t));
      if (!p->node[i].drop) rc = -1;
      p->node[i].ndrop = 0;
    }
  for (uint32_t v = 1; v < p->nslot && !rc; v++)
    if (last[v]) {
      NodeCall *c = &p->node[last[v] - 1];
      c->drop[c->ndrop++] = v;
    }
  free(last);
  if (rc) PyErr_NoMemory();
  return rc;
}

MgNodeRun *mg_noderun_build(MgRec *r) {
  MgGraph *g = r->g;
  MgNodeRun *p = mg_calloc(1, sizeof *p);
  if (!p) return (MgNodeRun *)PyErr_NoMemory();
  p->nslot = g->nval;
  p->node = mg_calloc(g->nnode + 1, sizeof *p->node);
  p->input = mg_calloc(g->ninput + 1, sizeof *p->input);
  p->output = mg_calloc(g->noutput + 1, sizeof *p->output);
  if (!p->node || !p->input || !p->output) {
    PyErr_NoMemory();
    goto fail;
  }
  p->ninput = g->ninput;
  p->noutput = g->noutput;
  memcpy(p->input, g->input, g->ninput * sizeof *p->input);
  memcpy(p->output, g->output, g->noutput * sizeof *p->output);
  for (NodeRef n = 1; n < g->nnode; n++)
    if (!mg_node(g, n)->dead && noderun_call(r, n, &p->node[p->nnode++])) goto fail;
  if (noderun_lifetimes(p, g)) goto fail;
  return p;
fail:
  mg_noderun_free(p);
  return NULL;
}

void mg_noderun_free(MgNodeRun *p) {
  if (!p) return;
  for (uint32_t i = 0; i < p->nnode; i++) {
    NodeCall *c = &p->node[i];
    for (int k = 0; c->arg && k <= c->nargs; k++) noderun_arg_free(&c->arg[k]);
    free(c->arg);
    free(c->out);
    free(c->drop);
    Py_XDECREF(c->kwnames);
  }
  free(p->node);
  free(p->input);
  free(p->output);
  free(p);
}

/* ---- running ---- */

/* New reference to an argument's value. */
static PyObject *noderun_value(const NodeArg *a, PyObject *const *env) {
  if (a->tag == NA_const) return Py_NewRef(a->u.obj);
  if (a->tag == NA_val) return Py_NewRef(env[a->u.val]);
  PyObject *l = PyList_New(a->n);
  for (uint32_t i = 0; l && i < a->n; i++) {
    PyObject *o = noderun_value(&a->u.item[i], env);
    if (!o) Py_CLEAR(l);
    else PyList_SET_ITEM(l, i, o);
  }
  return l;
}

static int noderun_store(const NodeCall *c, PyObject *res, PyObject **env) {
  if (!c->nout) return 0;
  if (c->nout == 1 && !c->list_only && !PyTuple_Check(res)) {
    if (c->out[0]) Py_XSETREF(env[c->out[0]], Py_NewRef(res));
    return 0;
  }
  /* Several returns, or lists: flattened in order, as the node's results are; numbers among them are skipped. */
  PyObject *fast = PySequence_Fast(res, "an op returned something unexpected");
  if (!fast) return -1;
  int k = 0;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast) && k < c->nout; i++) {
    PyObject *o = PySequence_Fast_GET_ITEM(fast, i);
    Py_ssize_t n = PyList_Check(o) ? PyList_GET_SIZE(o) : 1;
    for (Py_ssize_t j = 0; j < n && k < c->nout; j++) {
      PyObject *t = PyList_Check(o) ? PyList_GET_ITEM(o, j) : o;
      if (t != Py_None && !PyObject_TypeCheck(t, mg_tensor_type)) continue;
      if (c->out[k]) Py_XSETREF(env[c->out[k]], Py_NewRef(t));
      k++;
    }
  }
  Py_DECREF(fast);
  return 0;
}

static int noderun_step(const NodeCall *c, PyObject **env) {
  PyObject *stack[24], **argv = stack;
  int rc = -1, n = 0;
  if (c->nargs > 24 && !(argv = mg_malloc(c->nargs * sizeof *argv))) return PyErr_NoMemory(), -1;
  for (; n < c->nargs; n++)
    if (!(argv[n] = noderun_value(&c->arg[n], env))) goto done;
  if (mg_abi.aoti_torch_grad_mode_is_enabled() != c->grad) mg_abi.aoti_torch_grad_mode_set_enabled(c->grad);
  PyObject *res = PyObject_Vectorcall(c->call, argv, c->npos, c->kwnames);
  if (res) rc = noderun_store(c, res, env);
  Py_XDECREF(res);
done:
  while (n--) Py_DECREF(argv[n]);
  if (argv != stack) free(argv);
  for (int i = 0; i < c->ndrop; i++) Py_CLEAR(env[c->drop[i]]);
  return rc;
}

int mg_noderun_run(const MgNodeRun *p, PyObject *const *inputs, PyObject **outs) {
  PyObject **env = mg_calloc(p->nslot, sizeof *env);
  if (!env) return PyErr_NoMemory(), -1;
  int rc = 0;
  bool grad = mg_abi.aoti_torch_grad_mode_is_enabled();
  for (uint32_t i = 0; i < p->ninput; i++) env[p->input[i]] = Py_NewRef(inputs[i]);
  for (uint32_t i = 0; i < p->nnode && !rc; i++) rc = noderun_step(&p->node[i], env);
  mg_abi.aoti_torch_grad_mode_set_enabled(grad);
  for (uint32_t i = 0; i < p->noutput && !rc; i++) outs[i] = Py_NewRef(env[p->output[i]]);
  for (uint32_t i = 0; i < p->nslot; i++) Py_XDECREF(env[i]);
  free(env);
  return rc;
}
