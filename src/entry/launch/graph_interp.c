/* The recorded graph run node by node through ATen, on real tensors.
 * In: a graph with its outputs set.  Out: a program that calls each node's OpOverload in order, with autograd
 * on or off
 * as it was when the node was recorded.  It is right under any aliasing and gives results their grad_fn,
 * because ATen itself does the work; used when gradients are wanted, and when the back
 * end cannot compile a graph. */
#include "entry/launch/graph_interp.h"
#include <stdlib.h>
#include <string.h>
#include "entry/launch/op_call.h"
#include "entry/launch/trace.h"
#include "host/torch/tensor_facts.h"
#include "runtime/process/torch_abi.h"

/* ---- building ---- */

static void noderun_take_input(ValRef *v, void *arg) {
  NodeStep *s = arg;
  s->in[s->nin++] = *v;
}

/* While a program is built, slots are value numbers of the graph. */
static int noderun_step_build(const MgTrace *t, NodeRef n, bool symbolic, NodeStep *s) {
  MgNode *node = mg_node(t->g, n);
  if (!(s->call = mg_nodecall_new_at(t->g, n, t->objs, symbolic))) return -1;
  s->grad = node->grad_mode;
  s->leaf = node->leaf;
  s->counts = node->counts;
  s->file = node->file;
  s->line = node->line;
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

static bool noderun_makes(const NodeStep *s, ValRef v) {
  for (uint32_t i = 0; i < s->nout; i++)
    if (s->out[i] == v) return true;
  return false;
}

/* The hooks that the program has registered on what the step makes. */
static int noderun_hooks_build(const MgTrace *t, NodeStep *s) {
  uint32_t n = 0;
  for (const MgHooked *h = t->hooked; h; h = h->next) n += noderun_makes(s, h->val);
  if (!n) return 0;
  s->hook = mg_calloc(n, sizeof *s->hook);
  s->hooked = mg_calloc(n, sizeof *s->hooked);
  if (!s->hook || !s->hooked) return PyErr_NoMemory(), -1;
  for (const MgHooked *h = t->hooked; h; h = h->next) {
    if (!noderun_makes(s, h->val)) continue;
    s->hook[s->nhook] = Py_NewRef(h->hook);
    s->hooked[s->nhook++] = h->val;
  }
  return 0;
}

/* Numbers the slots without gaps. */
static int noderun_compact(MgNodeRun *p, uint32_t nval) {
  uint32_t *slot = mg_calloc(nval + 1, sizeof *slot), n = 1;
  if (!slot) return PyErr_NoMemory(), -1;
#define COMPACT(list, count)                                                                                 \
  for (uint32_t k = 0; k < (count); k++) {                                                                   \
    uint32_t v = (list)[k];                                                                                  \
    if (v && !slot[v]) slot[v] = n++;                                                                        \
    (list)[k] = slot[v];                                                                                     \
  }
  COMPACT(p->input, p->ninput)
  for (uint32_t i = 0; i < p->nnode; i++) {
    COMPACT(p->node[i].in, p->node[i].nin)
    COMPACT(p->node[i].out, p->node[i].nout)
    COMPACT(p->node[i].hooked, p->node[i].nhook)
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

MgNodeRun *mg_noderun_build_part(const MgTrace *t, const bool *keep, const ValRef *same, const ValRef *in,
                                 uint32_t nin, const ValRef *out, uint32_t nout) {
  MgGraph *g = t->g;
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
    const MgFunction *f = keep ? NULL : mg_function_of(t->function, n);
    if (f && mg_function_whole(t, f)) {
      if (noderun_function_build(f, s) || noderun_hooks_build(t, s)) goto fail;
      n = f->end - 1;
      continue;
    }
    if (noderun_step_build(t, n, keep != NULL, s) || (!keep && noderun_hooks_build(t, s))) goto fail;
    for (int i = 0; same && i < s->nin; i++)
      while (same[s->in[i]]) s->in[i] = same[s->in[i]];
  }
  for (uint32_t i = 0; same && i < nout; i++)
    while (same[p->output[i]]) p->output[i] = same[p->output[i]];
  uint32_t nval = g->nval;
  for (uint32_t i = 0; i < nin; i++)
    nval = in[i] < nval ? nval : in[i] + 1; /* numbers for backward alone are made later than forward */
  if (noderun_compact(p, nval) || noderun_lifetimes(p)) goto fail;
  return p;
fail:
  mg_noderun_free(p);
  return NULL;
}

MgNodeRun *mg_noderun_build(const MgTrace *t) {
  MgGraph *g = t->g;
  return mg_noderun_build_part(t, NULL, NULL, g->input, g->ninput, g->output, g->noutput);
}

void mg_noderun_free(MgNodeRun *p) {
  if (!p) return;
  for (uint32_t i = 0; i < p->nnode; i++) {
    NodeStep *s = &p->node[i];
    if (s->call) mg_nodecall_free(s->call);
    for (int k = 0; s->obj && k < s->nin; k++) Py_XDECREF(s->obj[k]);
    for (uint32_t k = 0; k < s->nhook; k++) Py_XDECREF(s->hook[k]);
    Py_XDECREF(s->apply);
    free(s->obj);
    free(s->hook);
    free(s->hooked);
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

static int noderun_register(const NodeStep *s, PyObject *const *env) {
  for (uint32_t i = 0; i < s->nhook; i++) {
    PyObject *t = env[s->hooked[i]];
    if (!mg_facts_requires_grad(t)) continue; /* the run is under no_grad */
    PyObject *handle = PyObject_CallMethod(t, "register_hook", "O", s->hook[i]);
    if (!handle) return -1;
    Py_DECREF(handle);
  }
  return 0;
}

static int noderun_step(const NodeStep *s, PyObject **env, const MgCallSizes *at) {
  PyObject *stack[2 * 16], **buf = stack;
  if (s->nin + s->nout > 2 * 16 && !(buf = mg_malloc((s->nin + s->nout) * sizeof *buf)))
    return PyErr_NoMemory(), -1;
  PyObject **in = buf, **out = buf + s->nin;
  for (int i = 0; i < s->nin; i++) in[i] = s->obj && s->obj[i] ? s->obj[i] : env[s->in[i]];
  if (mg_abi.aoti_torch_grad_mode_is_enabled() != s->grad) mg_abi.aoti_torch_grad_mode_set_enabled(s->grad);
  int rc = s->call ? mg_nodecall_run_at(s->call, in, out, at)
                   : mg_function_run(s->apply, in, s->nin, out, s->nout);
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
  if (!rc && s->nhook) rc = noderun_register(s, env);
  for (int i = 0; i < s->ndrop; i++) Py_CLEAR(env[s->drop[i]]);
  return rc;
}

/* What later nodes see of the outputs that a node has made.  made: by output, new. */
static int noderun_cut(const MgNodeRun *p, const NodeStep *s, PyObject **env, const MgNodeCut *cut,
                       PyObject **made) {
  for (uint32_t i = 0; i < p->noutput; i++)
    for (uint32_t k = 0; cut->at[i] && !made[i] && k < s->nout; k++) {
      if (!s->out[k] || s->out[k] != p->output[i]) continue;
      PyObject *stand = cut->stand(cut->arg, i, env[s->out[k]]);
      if (!stand) return -1;
      made[i] = env[s->out[k]];
      env[s->out[k]] = stand;
    }
  return 0;
}

static int noderun_run(const MgNodeRun *p, PyObject *const *inputs, PyObject **outs, const MgCallSizes *at,
                       const MgNodeCut *cut) {
  PyObject **env = mg_calloc(p->nslot, sizeof *env),
           **made = cut ? mg_calloc(p->noutput + 1, sizeof *made) : NULL;
  if (!env || !made != !cut) {
    free(env);
    free(made);
    return PyErr_NoMemory(), -1;
  }
  int rc = 0;
  bool grad = mg_abi.aoti_torch_grad_mode_is_enabled();
  for (uint32_t i = 0; i < p->ninput; i++) env[p->input[i]] = Py_NewRef(inputs[i]);
  for (uint32_t i = 0; i < p->nnode && !rc; i++) {
    rc = noderun_step(&p->node[i], env, at);
    if (!rc && cut) rc = noderun_cut(p, &p->node[i], env, cut, made);
  }
  mg_abi.aoti_torch_grad_mode_set_enabled(grad);
  for (uint32_t i = 0; i < p->noutput && !rc; i++) {
    PyObject *o = made && made[i] ? made[i] : env[p->output[i]];
    outs[i] = Py_NewRef(o ? o : Py_None);
  }
  for (uint32_t i = 0; made && i < p->noutput; i++) Py_XDECREF(made[i]);
  for (uint32_t i = 0; i < p->nslot; i++) Py_XDECREF(env[i]);
  free(made);
  free(env);
  return rc;
}

int mg_noderun_run(const MgNodeRun *p, PyObject *const *inputs, PyObject **outs) {
  return noderun_run(p, inputs, outs, NULL, NULL);
}

int mg_noderun_run_at(const MgNodeRun *p, PyObject *const *inputs, PyObject **outs, const MgCallSizes *at) {
  return noderun_run(p, inputs, outs, at, NULL);
}

int mg_noderun_run_cut(const MgNodeRun *p, PyObject *const *inputs, PyObject **outs, const MgNodeCut *cut) {
  return noderun_run(p, inputs, outs, NULL, cut);
}

/* ---- as data ---- */

static PyObject *noderun_numbers(const uint32_t *slot, uint32_t n) {
  PyObject *t = PyTuple_New(n);
  for (uint32_t i = 0; t && i < n; i++) {
    PyObject *o = PyLong_FromUnsignedLong(slot[i]);
    if (!o) Py_CLEAR(t);
    else PyTuple_SET_ITEM(t, i, o);
  }
  return t;
}

static PyObject *noderun_describe_step(const NodeStep *s, PyObject *value) {
  PyObject **vals = mg_calloc(s->nin + 1, sizeof *vals), *call = NULL;
  PyObject *outs = noderun_numbers(s->out, s->nout);
  bool ok = vals && outs;
  for (uint32_t i = 0; ok && i < s->nin; i++)
    if (s->in[i]) ok = (vals[i] = PyObject_CallFunction(value, "I", s->in[i])) != NULL;
  if (ok && !s->call) call = Py_BuildValue("(O(){})", Py_None);
  else if (ok) call = mg_nodecall_describe(s->call, vals);
  PyObject *r =
      call ? Py_BuildValue("(OOOOOzI)", PyTuple_GET_ITEM(call, 0), PyTuple_GET_ITEM(call, 1),
                           PyTuple_GET_ITEM(call, 2), outs, s->grad ? Py_True : Py_False, s->file, s->line)
           : NULL;
  for (uint32_t i = 0; vals && i < s->nin; i++) Py_XDECREF(vals[i]);
  if (!vals && !PyErr_Occurred()) PyErr_NoMemory();
  free(vals);
  Py_XDECREF(outs);
  Py_XDECREF(call);
  return r;
}

PyObject *mg_noderun_describe(const MgNodeRun *p, uint32_t noutput, PyObject *value) {
  PyObject *in = noderun_numbers(p->input, p->ninput), *out = noderun_numbers(p->output, noutput);
  PyObject *list = in && out ? PyList_New(p->nnode) : NULL, *r = NULL;
  for (uint32_t i = 0; list && i < p->nnode; i++) {
    PyObject *step = noderun_describe_step(&p->node[i], value);
    if (!step) Py_CLEAR(list);
    else PyList_SET_ITEM(list, i, step);
  }
  if (list) r = PyTuple_Pack(3, in, out, list);
  Py_XDECREF(in);
  Py_XDECREF(out);
  Py_XDECREF(list);
  return r;
}
