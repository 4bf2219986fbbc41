/* The recorded graph run node by node through ATen, on real tensors.
 * In: a graph with its outputs set.  Out: a program that calls each node's OpOverload in order, with autograd on or off
 * as it was when the node was recorded.  It is right under any aliasing and gives results their grad_fn, because ATen
 * itself does the work; used when gradients are wanted, and when the back end cannot compile a graph. */
#include "front/function.h"
#include "front/nodecall.h"
#include "front/standin.h"
#include <stdlib.h>
#include <string.h>

typedef struct NodeStep {
  MgNodeCall *call;        /* owned; NULL: a call of the user's autograd.Function */
  PyObject *apply, **obj;  /* that function, strong; its arguments that are no tensors (nin entries, strong or NULL) */
  uint32_t *in, *out;      /* slots of the environment, in the call's order; 0: undefined or not used */
  uint32_t *drop;          /* slots that die after this node */
  uint32_t nin, nout, ndrop;
  bool grad;               /* autograd was on when it was recorded */
  bool leaf;               /* its result requires grad from here on */
  bool counts;             /* its result has a version counter of its own */
} NodeStep;

struct MgNodeRun {
  NodeStep *node;
  uint32_t nnode, nslot;   /* slots of the environment; slot 0 stays empty */
  uint32_t *input, ninput; /* slot of each input */
  uint32_t *output, noutput;
};

/* ---- building ---- */

static void noderun_take_input(ValRef *v, void *arg) {
  NodeStep *s = arg;
  s->in[s->nin++] = *v;
}

/* While a program is built, slots are value numbers of the graph. */
static int noderun_step_build(MgRec *r, NodeRef n, bool symbolic, NodeStep *s) {
  MgNode *node = mg_node(r->g, n);
  if (!(s->call = mg_nodecall_new_at(r->g, n, r->cap->objs, symbolic))) return -1;
  s->grad = node->grad_mode;
  s->leaf = node->leaf;
  s->counts = node->counts;
  s->in = mg_calloc(mg_nodecall_nin(s->call) + 1, sizeof *s->in);
  s->out = mg_calloc(node->nout + 1, sizeof *s->out);
  if (!s->in || !s->out) return PyErr_NoMemory(), -1;
  mg_node_each_tensor(node, noderun_take_input, s);
  s->nout = node->nout;
  memcpy(s->out, node->out, node->nout * sizeof *s->out);
  return 0;
}

/* The user's function in place of what its forward recorded. */
static int noderun_function_build(const MgFunction *f, NodeStep *s) {
  s->grad = true;
  s->in = mg_calloc(f->nin + 1, sizeof *s->in);
  s->out = mg_calloc(f->nout + 1, sizeof *s->out);
  s->obj = mg_calloc(f->nin + 1, sizeof *s->obj);
  if (!s->in || !s->out || !s->obj) return PyErr_NoMemory(), -1;
  s->apply = Py_NewRef(f->apply);
  s->nin = (uint32_t)f->nin;
  s->nout = (uint32_t)f->nout;
  memcpy(s->in, f->in, f->nin * sizeof *s->in);
  memcpy(s->out, f->out, f->nout * sizeof *s->out);
  for (uint32_t i = 0; i < f->nin; i++) s->obj[i] = Py_XNewRef(f->obj[i]);
  return 0;
}

/* Numbers the slots without gaps. */
static int noderun_compact(MgNodeRun *p, uint32_t nval) {
  uint32_t *slot = mg_calloc(nval + 1, sizeof *slot), n = 1;
  if (!slot) return PyErr_NoMemory(), -1;
#define COMPACT(list, count)                                                                                           \
  for (uint32_t k = 0; k < (count); k++) {                                                                             \
    uint32_t v = (list)[k];                                                                                            \
    if (v && !slot[v]) slot[v] = n++;                                                                                  \
    (list)[k] = slot[v];                                                                                               \
  }
  COMPACT(p->input, p->ninput)
  for (uint32_t i = 0; i < p->nnode; i++) {
    COMPACT(p->node[i].in, p->node[i].nin)
    COMPACT(p->node[i].out, p->node[i].nout)
  }
  COMPACT(p->output, p->noutput)
#undef COMPACT
  p->nslot = n;
  free(slot);
  return 0;
}

/* Finds where each value is read last, so that memory is given back as early as eager would. */
static int noderun_lifetimes(MgNodeRun *p) {
  uint32_t *last = mg_calloc(p->nslot + 1, sizeof *last);
  if (!last) return PyErr_NoMemory(), -1;
  for (uint32_t i = 0; i < p->nnode; i++) {
    const NodeStep *s = &p->node[i];
    for (uint32_t k = 0; k < s->nin; k++) last[s->in[k]] = i + 1;
    for (uint32_t k = 0; k < s->nout; k++) last[s->out[k]] = i + 1;
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
      NodeStep *c = &p->node[last[v] - 1];
      c->drop[c->ndrop++] = v;
    }
  free(last);
  if (rc) PyErr_NoMemory();
  return rc;
}

MgNodeRun *mg_noderun_build_part(MgRec *r, const bool *keep, const ValRef *same, const ValRef *in, uint32_t nin,
                                 const ValRef *out, uint32_t nout) {
  MgGraph *g = r->g;
  MgNodeRun *p = mg_calloc(1, sizeof *p);
  if (!p) return (MgNodeRun *)PyErr_NoMemory();
  p->node = mg_calloc(g->nnode + 1, sizeof *p->node);
  p->input = mg_calloc(nin + 1, sizeof *p->input);
  p->output = mg_calloc(nout + 1, sizeof *p->output);
  if (!p->node || !p->input || !p->output) {
    PyErr_NoMemory();
    goto fail;
  }
  p->ninput = nin;
  p->noutput = nout;
  if (nin) memcpy(p->input, in, nin * sizeof *in);
  if (nout) memcpy(p->output, out, nout * sizeof *out);
  for (NodeRef n = 1; n < g->nnode; n++) {
    if (mg_node(g, n)->dead || (keep && !keep[n])) continue;
    NodeStep *s = &p->node[p->nnode++];
    const MgFunction *f = keep ? NULL : mg_function_of(r->cap, n);
    if (f && mg_function_whole(r, f)) {
      if (noderun_function_build(f, s)) goto fail;
      n = f->end - 1;
      continue;
    }
    if (noderun_step_build(r, n, keep != NULL, s)) goto fail;
    for (int i = 0; same && i < s->nin; i++)
      while (same[s->in[i]]) s->in[i] = same[s->in[i]];
  }
  for (uint32_t i = 0; same && i < nout; i++)
    while (same[p->output[i]]) p->output[i] = same[p->output[i]];
  uint32_t nval = g->nval;
  for (uint32_t i = 0; i < nin; i++) nval = in[i] < nval ? nval : in[i] + 1; /* numbers for backward alone are made later than forward */
  if (noderun_compact(p, nval) || noderun_lifetimes(p)) goto fail;
  return p;
fail:
  mg_noderun_free(p);
  return NULL;
}

MgNodeRun *mg_noderun_build(MgRec *r) {
  MgGraph *g = r->g;
  return mg_noderun_build_part(r, NULL, NULL, g->input, g->ninput, g->output, g->noutput);
}

void mg_noderun_free(MgNodeRun *p) {
  if (!p) return;
  for (uint32_t i = 0; i < p->nnode; i++) {
    NodeStep *s = &p->node[i];
    if (s->call) mg_nodecall_free(s->call);
    for (int k = 0; s->obj && k < s->nin; k++) Py_XDECREF(s->obj[k]);
    Py_XDECREF(s->apply);
    free(s->obj);
    free(p->node[i].in);
    free(p->node[i].out);
    free(p->node[i].drop);
  }
  free(p->node);
  free(p->input);
  free(p->output);
  free(p);
}

/* ---- running ---- */

static int noderun_step(const NodeStep *s, PyObject **env, const MgCallSizes *at) {
  PyObject *stack[2 * 16], **buf = stack;
  if (s->nin + s->nout > 2 * 16 && !(buf = mg_malloc((s->nin + s->nout) * sizeof *buf))) return PyErr_NoMemory(), -1;
  PyObject **in = buf, **out = buf + s->nin;
  for (int i = 0; i < s->nin; i++) in[i] = s->obj && s->obj[i] ? s->obj[i] : env[s->in[i]];
  if (mg_abi.aoti_torch_grad_mode_is_enabled() != s->grad) mg_abi.aoti_torch_grad_mode_set_enabled(s->grad);
  int rc = s->call ? mg_nodecall_run_at(s->call, in, out, at) : mg_function_run(s->apply, in, s->nin, out, s->nout);
  if (!rc && s->counts) {
    PyObject *own = PyObject_GetAttrString(out[0], "data");
    if (!own) rc = -1;
    Py_XSETREF(out[0], own);
  }
  if (!rc && s->leaf && PyObject_SetAttrString(out[0], "requires_grad", Py_True)) {
    Py_DECREF(out[0]);
    rc = -1;
  }
  for (int i = 0; !rc && i < s->nout; i++) {
    if (s->out[i]) Py_XSETREF(env[s->out[i]], out[i]);
    else Py_XDECREF(out[i]);
  }
  if (buf != stack) free(buf);
  for (int i = 0; i < s->ndrop; i++) Py_CLEAR(env[s->drop[i]]);
  return rc;
}

int mg_noderun_run(const MgNodeRun *p, PyObject *const *inputs, PyObject **outs) { return mg_noderun_run_at(p, inputs, outs, NULL); }

int mg_noderun_run_at(const MgNodeRun *p, PyObject *const *inputs, PyObject **outs, const MgCallSizes *at) {
  PyObject **env = mg_calloc(p->nslot, sizeof *env);
  if (!env) return PyErr_NoMemory(), -1;
  int rc = 0;
  bool grad = mg_abi.aoti_torch_grad_mode_is_enabled();
  for (uint32_t i = 0; i < p->ninput; i++) env[p->input[i]] = Py_NewRef(inputs[i]);
  for (uint32_t i = 0; i < p->nnode && !rc; i++) rc = noderun_step(&p->node[i], env, at);
  mg_abi.aoti_torch_grad_mode_set_enabled(grad);
  for (uint32_t i = 0; i < p->noutput && !rc; i++) outs[i] = Py_NewRef(env[p->output[i]] ? env[p->output[i]] : Py_None);
  for (uint32_t i = 0; i < p->nslot; i++) Py_XDECREF(env[i]);
  free(env);
  return rc;
}

/* ---- what a value of the recording is in this run ---- */

static void noderun_need(ValRef *v, void *arg) { ((bool *)arg)[*v] = true; }

/* Marks the nodes that v is computed by.  False: some of them may not run twice, or something was written to. */
static bool noderun_slice(const MgGraph *g, ValRef v, bool *keep, bool *need) {
  need[v] = true;
  for (NodeRef n = g->nnode - 1; n > 0; n--) {
    MgNode *node = mg_node(g, n);
    if (node->dead) continue;
    if (node->op->mutates) return false;
    for (int i = 0; i < node->nout; i++) keep[n] |= node->out[i] && need[node->out[i]];
    if (keep[n] && (node->op->effect)) return false;
    if (keep[n]) mg_node_each_val(node, noderun_need, need);
  }
  return true;
}

static PyObject *noderun_compute(MgRec *r, ValRef v, const bool *keep) {
  MgGraph *g = r->g;
  PyObject **in = mg_calloc(g->ninput + 1, sizeof *in), *out = NULL;
  int64_t *env = mg_calloc(r->x->nsym + 1, sizeof *env);
  MgNodeRun *p = in && env ? mg_noderun_build_part(r, keep, NULL, g->input, g->ninput, &v, 1) : (MgNodeRun *)PyErr_NoMemory();
  for (uint32_t i = 0; p && i < g->ninput; i++)
    if (!(in[i] = r->cap->input[i].real)) in[i] = Py_None; /* the gradient of a result: of no use here */
  for (uint32_t k = 0; env && k < r->x->nsym; k++) env[k] = r->x->sym[k].hint;
  MgCallSizes at = {.x = r->x, .env = env};
  if (p && mg_noderun_run_at(p, in, &out, &at)) out = NULL;
  mg_noderun_free(p);
  free(env);
  free(in);
  return out;
}

PyObject *mg_noderun_value(MgRec *r, ValRef v) {
  MgGraph *g = r->g;
  bool *keep = mg_calloc(g->nnode + 1, sizeof *keep), *need = mg_calloc(g->nval + 1, sizeof *need);
  PyObject *t = NULL;
  if (!keep || !need) PyErr_NoMemory();
  else if (noderun_slice(g, v, keep, need)) t = noderun_compute(r, v, keep);
  free(keep);
  free(need);
  return t;
}
