/* See the header.  The engine is called with autograd's own arguments; nothing here knows a derivative. */
#include "record/autograd/joint_trace.h"
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "driver/compile.h"
#include "entry/launch/config.h"
#include "entry/launch/trace.h"
#include "entry/run/snapshot_run.h"
#include "host/python/hook_mode.h"
#include "host/python/pyobject.h"
#include "host/torch/tensor_facts.h"
#include "record/autograd/joint_reach.h"
#include "record/core/capture.h"
#include "record/core/identity.h"
#include "record/core/recording.h"
#include "record/core/source_place.h"
#include "record/dispatch/dispatch.h"
#include "record/fx/fx.h"
#include "record/snapshot/snapshot.h"
#include "record/symbolic/number_index.h"
#include "record/symbolic/unbacked.h"
#include "record/tensor/leaf_grad.h"
#include "record/tensor/standin.h"
#include "record/tensor/tensor_hooks.h"
#include "tuning.h"

static int joint_refuse(MgJointBuild *b, const char *why) {
  if (!b->why) b->why = why;
  return 1;
}

/* Does a value get a grad_fn?  One whose gradient graph a recorded backward pass has freed
 * gets it from backward_pass.c. */
static bool joint_tracked(const MgJointBuild *b, ValRef v) {
  return b->seen[v] && mg_facts_requires_grad(b->seen[v]) && !mg_backward_is_spent(b->r->cap, v);
}

static uint32_t joint_last_storage(const MgGraph *g, uint32_t nval) {
  uint32_t last = 0;
  for (ValRef v = 1; v < nval; v++)
    if (mg_val(g, v)->storage > last) last = mg_val(g, v)->storage;
  return last;
}

/* Do nodes from `first` on write to a storage up to `last`? */
static bool joint_writes_since(const MgGraph *g, NodeRef first, uint32_t last) {
  for (NodeRef n = first; n < g->nnode; n++)
    for (MgWritten w = {0}; mg_node_written(mg_node(g, n), &w);)
      if (mg_val(g, w.v)->storage <= last) return true;
  return false;
}

/* ---- how results are made ---- */

/* The value that `v` is a view of, one op back; 0 when it is not one.  *view: the op has to run again; an
 * in-place op gives back its argument. */
static ValRef joint_alias_step(const MgGraph *g, ValRef v, bool *view) {
  const MgNode *n = mg_node(g, mg_val(g, v)->def);
  uint32_t at = mg_val(g, v)->out;
  int ret = n->op->nret == 1 ? 0 : at < n->op->nret ? (int)at : -1;
  int set = ret < 0 ? -1 : n->op->ret_alias[ret];
  if (set < 0) return 0;
  for (int i = 0; i < n->op->nparam; i++) {
    if (n->op->param[i].alias_set != set || n->arg[i].tag != MA_val) continue;
    *view = !n->op->param[i].writes;
    return n->arg[i].u.val;
  }
  return 0;
}

/* Follows views back to where the memory was made; with `mark`, notes the view ops on the way. */
static ValRef joint_root(MgJointBuild *b, ValRef v, bool mark) {
  bool view;
  ValRef up;
  while (mg_val(b->g, v)->def && (up = joint_alias_step(b->g, v, &view))) {
    NodeRef n = mg_val(b->g, v)->def;
    if (mg_function_of(b->r->cap->function, n))
      b->inside = true; /* running the view again would skip the user's backward */
    if (mark && !view) b->j->same[v] = up;
    if (mark && view && !b->j->replay[n]) {
      b->j->replay[n] = true;
      b->j->nreplay++;
    }
    v = up;
  }
  return v;
}

static int joint_survey(MgJointBuild *b, const ValRef *out, int nout) {
  const MgCapture *cap = b->r->cap;
  size_t n = b->nval + 1;
  b->seen = mg_new(b->g->c, PyObject *, n);
  b->group = mg_new(b->g->c, uint32_t, n);
  b->outer = mg_new(b->g->c, bool, n);
  b->grad = mg_new(b->g->c, bool, n);
  b->written = mg_new(b->g->c, bool, n);
  if (!b->seen || !b->group || !b->outer || !b->grad || !b->written) return -1;
  for (MgStandInfo *i = cap->live; i; i = i->next)
    if (i->self && (!b->seen[i->val] || mg_facts_requires_grad(i->self))) b->seen[i->val] = i->self;
  for (uint32_t i = 0; i < cap->ninput; i++) {
    b->outer[mg_val(b->g, cap->input[i].val)->storage] = true;
    if (cap->input[i].pinned && mg_facts_requires_grad(cap->input[i].real))
      return joint_refuse(b, "a constant requires grad");
  }
  for (int i = 0; i < nout; i++) {
    uint32_t s = mg_val(b->g, out[i])->storage;
    if (mg_val(b->g, out[i])->def && mg_node(b->g, mg_val(b->g, out[i])->def)->leaf)
      return joint_refuse(b, "a leaf that the function makes is a result");
    b->group[s]++;
    if (joint_tracked(b, out[i])) b->grad[s] = true;
    else if (!b->seen[out[i]] && mg_val(b->g, out[i])->requires_grad)
      return joint_refuse(b, "a result has no stand-in");
  }
  for (NodeRef k = 1; k < b->g->nnode; k++) {
    const MgNode *node = mg_node(b->g, k);
    for (int i = 0; node->op->mutates && i < node->nout; i++)
      if (node->out[i]) b->written[mg_val(b->g, node->out[i])->storage] = true;
  }
  return 0;
}

static uint32_t joint_list(ValRef *list, uint32_t *n, ValRef v) {
  for (uint32_t i = 0; i < *n; i++)
    if (list[i] == v) return i;
  list[*n] = v;
  return (*n)++;
}

/* One result that shares fresh memory with another one, or is a view of an input. */
static int joint_place_alias(MgJointBuild *b, ValRef v, MgResult *res) {
  MgJointRec *j = b->j;
  ValRef root = joint_root(b, v, false);
  if (!mg_val(b->g, root)->def) {
    joint_root(b, v, true);
    *res = (MgResult){v == root ? RES_input : RES_view, mg_val(b->g, root)->out};
    return 0;
  }
  if (b->written[mg_val(b->g, v)->storage])
    return joint_refuse(b, "results share memory that was written in place");
  if (!joint_tracked(b, root)) return joint_refuse(b, "results share memory of a lost tensor");
  joint_root(b, v, true);
  uint32_t i = joint_list(j->through, &j->nthrough, root);
  *res = (MgResult){v == root ? RES_through : RES_view, i};
  return 0;
}

static int joint_place(MgJointBuild *b, const ValRef *out, int nout) {
  MgJointRec *j = b->j;
  j->res = mg_new(b->g->c, MgResult, nout + 1);
  j->through = mg_new(b->g->c, ValRef, nout + 1);
  j->aside = mg_new(b->g->c, ValRef, nout + 1);
  j->replay = mg_new(b->g->c, bool, b->g->nnode + 1);
  j->same = mg_new(b->g->c, ValRef, b->nval + 1);
  if (!j->res || !j->through || !j->aside || !j->replay || !j->same) return -1;
  j->nres = (uint32_t)nout;
  for (int i = 0; i < nout; i++) {
    uint32_t s = mg_val(b->g, out[i])->storage;
    bool grad = joint_tracked(b, out[i]);
    if (b->outer[s] || (b->group[s] > 1 && b->grad[s])) {
      int rc = joint_place_alias(b, out[i], &j->res[i]);
      if (rc) return rc;
    } else if (grad) {
      j->res[i] = (MgResult){RES_through, joint_list(j->through, &j->nthrough, out[i])};
    } else {
      j->res[i] = (MgResult){RES_aside, joint_list(j->aside, &j->naside, out[i])};
    }
  }
  return 0;
}

/* ---- running the engine ---- */

/* Inputs that require grad, as the leaves that the recording made for them. */
static PyObject *joint_leaves(MgJointBuild *b) {
  const MgCapture *cap = b->r->cap;
  MgJointRec *j = b->j;
  PyObject **leaf = mg_new(b->g->c, PyObject *, cap->ninput + 1);
  j->diff = mg_new(b->g->c, uint32_t, cap->ninput + 1);
  if (!leaf || !j->diff) return PyErr_NoMemory();
  for (MgStandInfo *i = cap->live; i; i = i->next)
    if (i->input && i->self && i->leaf) leaf[i->input - 1] = i->self;
  for (uint32_t i = 0; i < cap->ninput; i++)
    if (leaf[i] && mg_facts_requires_grad(leaf[i])) j->diff[j->ndiff++] = i;
  PyObject *t = PyTuple_New(j->ndiff);
  for (uint32_t i = 0; t && i < j->ndiff; i++) PyTuple_SET_ITEM(t, i, Py_NewRef(leaf[j->diff[i]]));
  return t;
}

/* Gradients come in the layout of the result, or a contiguous one where elements
 * of the result share memory. */
ValRef mg_joint_gradient_val(MgGraph *g, ValRef like) {
  ValRef v = mg_graph_val_like(g, like);
  if (!v) return 0;
  MgVal *t = mg_val(g, v);
  int64_t span = 1, numel = 1;
  for (int i = 0; i < t->ndim; i++) {
    int64_t size = mg_sym_hint(g->x, t->size[i]), stride = mg_sym_hint(g->x, t->stride[i]);
    numel *= size;
    if (size > 1) span += (size - 1) * stride;
  }
  if (numel && span != numel) mg_graph_contiguous(g, v);
  t->offset = mg_sym(g->x, 0);
  t->requires_grad = false;
  t->def = 0;
  return v;
}

static PyObject *joint_tangents(MgJointBuild *b) {
  MgJointRec *j = b->j;
  MgCapture *cap = b->r->cap;
  j->tangent = mg_new(b->g->c, ValRef, j->nthrough + 1);
  PyObject *t = j->tangent ? PyTuple_New(j->nthrough) : PyErr_NoMemory();
  for (uint32_t i = 0; t && i < j->nthrough; i++) {
    ValRef v = mg_joint_gradient_val(b->g, j->through[i]);
    PyObject *o = v && !mg_standin_add_tangent(cap, v) ? mg_standin_new(cap, v) : NULL;
    if (!o) {
      if (!PyErr_Occurred()) PyErr_NoMemory();
      Py_CLEAR(t);
      break;
    }
    j->tangent[i] = v;
    PyTuple_SET_ITEM(t, i, o);
  }
  return t;
}

static PyObject *joint_call_engine(PyObject *roots, PyObject *tangents, PyObject *leaves, bool keep) {
  static PyObject *run; /* the engine's run_backward */
  if (!run) {
    PyObject *m = mg_import("torch.autograd.variable");
    PyObject *v = m ? PyObject_GetAttrString(m, "Variable") : NULL;
    PyObject *e = v ? PyObject_GetAttrString(v, "_execution_engine") : NULL;
    run = e ? PyObject_GetAttrString(e, "run_backward") : NULL;
    Py_XDECREF(m);
    Py_XDECREF(v);
    Py_XDECREF(e);
    if (!run) return NULL;
  }
  PyObject *arg[7] = {roots,
                      tangents,
                      keep ? Py_True : Py_False,
                      Py_False /* create a graph */,
                      leaves,
                      Py_True /* allow unreachable */,
                      Py_False /* accumulate */};
  return PyObject_Vectorcall(run, arg, 7, NULL);
}

/* A graph of one node that comes last in the engine's queue: nodes are taken by number, latest first, and
 * this one gets 0. Made outside of the modes of the program.  (leaf, result, gradient) */
static const char joint_last_text[] =
    "import torch\n"
    "c = torch._C\n"
    "with c._DisableTorchDispatch(), c.DisableTorchFunction(), c._DisableFuncTorch(), \\\n"
    "        torch.inference_mode(False), torch.enable_grad():\n"
    "    x = torch.zeros((), requires_grad=True, device='cpu', dtype=torch.float32)\n"
    "    y = x.clone()\n"
    "    y.grad_fn._set_sequence_nr(0)\n"
    "    out = [(y,), (torch.zeros((), device='cpu', dtype=torch.float32),), (x,)]\n";

void mg_joint_drain(void) {
  static PyObject *last; /* list of three tuples */
  PyObject *type, *value, *tb, *r = NULL;
  PyErr_Fetch(&type, &value, &tb);
  MgPause pause = mg_rec_pause(); /* in a recording that is given up no Python code runs */
  if (!last) {
    PyObject *ns = PyDict_New(), *done = NULL;
    if (ns && !PyDict_SetItemString(ns, "__builtins__", PyEval_GetBuiltins()))
      done = PyRun_String(joint_last_text, Py_file_input, ns, ns);
    if (done) last = Py_XNewRef(PyDict_GetItemString(ns, "out"));
    Py_XDECREF(done);
    Py_XDECREF(ns);
  }
  if (last && PyList_GET_SIZE(last) == 3)
    r = joint_call_engine(PyList_GET_ITEM(last, 0), PyList_GET_ITEM(last, 1), PyList_GET_ITEM(last, 2), true);
  if (!r) PyErr_Clear(); /* only the queue had to be emptied */
  Py_XDECREF(r);
  mg_rec_resume(pause);
  PyErr_Restore(type, value, tb);
}

static int joint_take_grads(MgJointBuild *b, PyObject *grads) {
  MgJointRec *j = b->j;
  if (!PyTuple_Check(grads) || PyTuple_GET_SIZE(grads) != j->ndiff)
    return joint_refuse(b, "the engine gave other gradients");
  if (!(j->grad = mg_new(b->g->c, ValRef, j->ndiff + 1))) return PyErr_NoMemory(), -1;
  for (uint32_t i = 0; i < j->ndiff; i++) {
    PyObject *o = PyTuple_GET_ITEM(grads, i);
    if (o == Py_None) continue;
    if (!mg_standin_is(o)) return joint_refuse(b, "a gradient is not a recorded tensor");
    j->grad[i] = mg_standin_val(o);
  }
  return 0;
}

typedef struct JointGrad {
  NodeRef def;
  uint32_t out, diff;
  ValRef grad;
} JointGrad;

static int joint_by_time(const void *a, const void *b) {
  const JointGrad *x = a, *y = b;
  if (x->def != y->def) return x->def < y->def ? -1 : 1;
  if (x->out != y->out) return x->out < y->out ? -1 : 1;
  return x->diff < y->diff ? -1 : x->diff > y->diff;
}

/* An input that backward does not reach is no part of the gradient graph: an edge to it would keep what made
 * it alive.  The others in the order in which eager has their gradients (bucketed_backward.h). */
static int joint_order(MgJointBuild *b) {
  MgJointRec *j = b->j;
  uint32_t n = 0;
  JointGrad *all = mg_new(b->g->c, JointGrad, j->ndiff + 1);
  if (!all) return PyErr_NoMemory(), -1;
  for (uint32_t i = 0; i < j->ndiff; i++) {
    if (!j->grad[i]) continue;
    const MgVal *v = mg_val(b->g, j->grad[i]);
    all[n++] = (JointGrad){v->def, v->def ? v->out : 0, j->diff[i], j->grad[i]};
  }
  qsort(all, n, sizeof *all, joint_by_time);
  for (uint32_t i = 0; i < n; i++) {
    j->diff[i] = all[i].diff;
    j->grad[i] = all[i].grad;
  }
  j->ndiff = n;
  return n ? 0 : joint_refuse(b, "no gradient reaches an input");
}

/* The engine may call backward functions of the user: they are recorded, guards and all.  What they would
 * change cannot be replayed any more. */
static PyObject *joint_run(MgJointBuild *b, PyObject *roots, PyObject *tangents, PyObject *leaves,
                           bool keep) {
  PyObject *grads;
  b->r->in_joint = true;
  if (!b->r->cap->function && !b->r->cap->hooked && !keep) {
    grads = joint_call_engine(roots, tangents, leaves, false);
    b->r->in_joint = false;
    return grads;
  }
  MgSnapshot *before = mg_snapshot_build(NULL, 0, NULL, Py_None), *after = NULL;
  MgHookMode mode = mg_hook_mode;
  mg_hook_mode = HOOK_record;
  grads = before ? joint_call_engine(roots, tangents, leaves, keep) : NULL;
  mg_hook_mode = mode;
  b->r->in_joint = false;
  if (grads && (!(after = mg_snapshot_build(NULL, 0, NULL, Py_None)) || !mg_snapshot_same(before, after))) {
    joint_refuse(b, "a backward function has side effects");
    Py_CLEAR(grads);
  }
  mg_snapshot_free(before);
  mg_snapshot_free(after);
  return grads;
}

/* Does a second backward pass fail?  Eager frees what ops have saved, numbers included, so it does not follow
 * from what the compiled backward reads.  Whatever this records is forgotten by the caller. */
static void joint_try_again(MgJointBuild *b, PyObject *roots, PyObject *tangents, PyObject *leaves) {
  uint32_t nnode = b->g->nnode, nval = b->g->nval, ninput = b->g->ninput;
  PyObject *grads = joint_run(b, roots, tangents, leaves, false);
  b->j->frees = !grads;
  if (!grads) {
    mg_clear_for_another_way();
    mg_joint_drain();
  }
  Py_XDECREF(grads);
  b->r->abort = false;
  b->g->nnode = nnode;
  b->g->nval = nval;
  b->g->ninput = ninput;
}

/* Records backward: the engine runs with autocast off, as the compiled backward will. */
static int joint_backward(MgJointBuild *b) {
  MgJointRec *j = b->j;
  PyObject *leaves = joint_leaves(b), *roots = leaves ? PyTuple_New(j->nthrough) : NULL, *tangents = NULL,
           *grads = NULL;
  int rc = -1;
  for (uint32_t i = 0; roots && i < j->nthrough; i++)
    PyTuple_SET_ITEM(roots, i, Py_NewRef(b->seen[j->through[i]]));
  if (leaves && !j->ndiff) rc = joint_refuse(b, "no input requires grad");
  if (rc > 0 || !roots || !(tangents = joint_tangents(b))) goto done;
  if (mg_standin_autocast_off()) goto done;
  grads = joint_run(b, roots, tangents, leaves, false);
  b->ran = true;
  if (!grads) mg_joint_drain();
  rc = grads ? joint_take_grads(b, grads) : joint_refuse(b, "backward cannot be recorded");
  if (!rc && b->g->nnode - j->backward < MG_TUNE_JOINT_SMALL) joint_try_again(b, roots, tangents, leaves);
done:
  Py_XDECREF(leaves);
  Py_XDECREF(roots);
  Py_XDECREF(tangents);
  Py_XDECREF(grads);
  return rc;
}

/* ---- one function's backward, for graphs that leave it to their back end ---- */

PyObject *mg_joint_rehearse(MgRec *r, PyObject *roots, PyObject *tangents, PyObject *leaves) {
  MgJointBuild b = {.r = r, .g = r->g};
  NodeRef first = r->g->nnode;
  uint32_t last = joint_last_storage(r->g, r->g->nval);
  bool quiet = r->cap->quiet, inside = r->in_joint;
  r->cap->quiet = true;
  PyObject *grads = joint_run(&b, roots, tangents, leaves, true);
  r->cap->quiet = quiet;
  r->in_joint = inside;
  if (!grads) {
    MgPause pause = mg_rec_pause(); /* the engine's rest is no part of the program */
    mg_joint_drain();
    mg_rec_resume(pause);
  }
  if (!b.why && grads && joint_writes_since(r->g, first, last))
    b.why = "a backward function writes to memory of forward";
  r->g->nnode = first;
  if (b.why) {
    Py_CLEAR(grads);
    mg_rec_break(BK_custom_backend, "%s, in a graph for a custom backend", b.why);
  } else if (!grads && !r->abort &&
             !PyErr_ExceptionMatches(PyExc_MemoryError)) { /* and so will each pass, if there is one */
    mg_clear_for_another_way();
    return Py_NewRef(Py_None);
  }
  return grads;
}

/* ---- the whole ---- */

/* Is there an op whose derivative, in ATen, raises for some values?  Gradients of complex eigenvectors and
 * singular vectors do for losses that depend on the vectors' phase. */
static bool joint_raises(const MgJointBuild *b) {
  static const char *const ops[] = {"aten::linalg_eig", "aten::_linalg_eigh", "aten::_linalg_svd"};
  for (NodeRef k = 1; k < b->j->backward; k++) {
    const MgNode *n = mg_node(b->g, k);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
      if (strcmp(ops[i], n->op->full)) continue;
      for (int o = 0; o < n->nout; o++)
        if (n->out[o] && mg_val(b->g, n->out[o])->requires_grad &&
            mg_dtype_is_complex(mg_val(b->g, n->out[o])->dtype))
          return true;
    }
  }
  return false;
}

/* Does a or b have the size of `out` in each dimension, when both are broadcast? */
static bool joint_covers(const MgGraph *g, const MgVal *out, const MgArg *a, const MgArg *b) {
  const MgVal *v[] = {mg_val(g, a->u.val), mg_val(g, b->u.val)};
  for (int d = 1; d <= out->ndim; d++) {
    bool covered = false;
    for (int i = 0; i < 2; i++)
      covered |= d <= v[i]->ndim && v[i]->size[v[i]->ndim - d] == out->size[out->ndim - d];
    if (!covered) return false;
  }
  return true;
}

bool mg_joint_clamp_raises(const MgGraph *g, NodeRef end) {
  for (NodeRef k = 1; k < end; k++) {
    const MgNode *n = mg_node(g, k);
    if (n->op->code != TOP_clamp_Tensor || !n->out[0] || !mg_val(g, n->out[0])->requires_grad) continue;
    const MgVal *out = mg_val(g, n->out[0]);
    const MgArg *self = mg_node_arg(n, "self"), *min = mg_node_arg(n, "min"), *max = mg_node_arg(n, "max");
    if (min->tag != MA_val || max->tag != MA_val) continue;
    if (!joint_covers(g, out, self, min) || !joint_covers(g, out, self, max)) return true;
  }
  return false;
}

/* Numbers that the graph has needed as tensors in backward alone become inputs of forward, in front of the
 * tangents: the call computes them.  Other tensors that backward reads by itself are looked at when it runs,
 * which a recording does not know of. */
static int joint_take_numbers(MgJointBuild *b, uint32_t ninput) {
  MgGraph *g = b->g;
  MgCapInput *in = b->r->cap->input + ninput;
  uint32_t nthrough = b->j->nthrough, n = g->ninput - ninput;
  for (uint32_t i = nthrough; i < n; i++)
    if (!in[i].scalar || !in[i].src) return joint_refuse(b, "backward reads a tensor of its own");
  if (n == nthrough) return 0;
  MgCapInput *tangents = mg_new(g->c, MgCapInput, nthrough);
  if (!tangents) return PyErr_NoMemory(), -1;
  memcpy(tangents, in, nthrough * sizeof *in);
  memmove(in, in + nthrough, (n - nthrough) * sizeof *in);
  memcpy(in + n - nthrough, tangents, nthrough * sizeof *in);
  for (uint32_t i = 0; i < n; i++) {
    g->input[ninput + i] = in[i].val;
    mg_val(g, in[i].val)->out = (uint32_t)(ninput + i);
  }
  return 0;
}

/* A backward function of the user that writes to memory of forward does so each time it
 * runs: no part of forward can. */
static int joint_see_writes(MgJointBuild *b) {
  bool writes =
      b->r->cap->function && joint_writes_since(b->g, b->j->backward, joint_last_storage(b->g, b->nval));
  return writes ? joint_refuse(b, "a backward function writes to memory of forward") : 0;
}

static int joint_record(MgJointBuild *b, const ValRef *out, int nout) {
  uint32_t ninput = b->g->ninput;
  int rc = joint_survey(b, out, nout);
  if (!rc) rc = joint_place(b, out, nout);
  if (rc < 0 && !PyErr_Occurred()) PyErr_NoMemory();
  if (!rc && b->inside) rc = joint_refuse(b, "a result is a view made by an autograd.Function");
  if (!rc && joint_raises(b))
    rc = joint_refuse(b, "the gradient of complex eigenvectors raises where it is not defined");
  if (!rc && mg_joint_clamp_raises(b->g, b->j->backward))
    rc = joint_refuse(b, "the gradient of clamp raises where its last bound has sizes of its own");
  if (!rc && b->r->cap->hooked && b->j->nthrough > 1)
    rc = joint_refuse(b, "a pass may leave the tensor of a hook out"); /* the hook is not called then */
  b->views = !rc && !b->j->nthrough;
  if (b->views) rc = joint_refuse(b, "every result is a view of an input");
  if (!rc && mg_retry_denied(b->r, RETRY_links)) rc = mg_joint_depends(b, out);
  if (rc > 0 && !b->why) b->linked = joint_refuse(b, "gradients between results are asked for");
  if (!rc) rc = joint_backward(b);
  /* Second derivatives reach a tensor in two passes, which each call its hook; eager's one has their sum. */
  if (!rc && b->r->ident->bent) rc = joint_refuse(b, "a hook is not linear");
  if (!rc) rc = joint_see_writes(b);
  if (!rc) rc = joint_take_numbers(b, ninput);
  if (!rc) rc = joint_order(b);
  if (!rc) rc = mg_joint_find_reach(b);
  if (!rc) rc = mg_joint_find_mates(b);
  if (!rc) rc = mg_joint_find_links(b);
  return rc;
}

/* Was something that requires grad written to the value's memory? */
static bool joint_storage_grad(const MgRec *r, ValRef v) {
  uint32_t storage = mg_val(r->g, v)->storage;
  return storage < r->cap->cap_storage && r->cap->storage_grad[storage];
}

/* The autograd state of an older tensor changes: only ATen can do that. */
static bool joint_writes_older(const MgRec *r) {
  for (uint32_t i = 0; i < r->cap->ninput; i++)
    if (joint_storage_grad(r, r->cap->input[i].val)) return true;
  return false;
}

static bool joint_results_tracked(const MgRec *r, const ValRef *out, int nout) {
  for (int i = 0; i < nout; i++) {
    bool tracked = mg_val(r->g, out[i])->requires_grad || joint_storage_grad(r, out[i]);
    if (tracked && !mg_backward_is_spent(r->cap, out[i])) return true;
  }
  return false;
}

/* True when autograd tracks a result that can be compiled with its backward. */
static bool joint_wanted(const MgRec *r, const ValRef *out, int nout) {
  if (r->cfg->backend || r->cfg->eager_backend || r->want_fx || !mg_compile_takes(r->g) ||
      mg_tensorhook_inside(r))
    return false;
  return !joint_writes_older(r) && joint_results_tracked(r, out, nout);
}

/* What the recording followed roughly, autograd knows. */
static int joint_ask_autograd(MgRec *r) {
  for (MgStandInfo *i = r->cap->live; i && r->cap->own_kernels; i = i->next)
    if (i->self && i->val && mg_dispatch_reveal(r->cap, i->self, i->val)) return -1;
  for (int grad = 0; grad < 2; grad++) /* several may stand for one value */
    for (MgStandInfo *i = r->cap->live; i; i = i->next)
      if (i->self && mg_facts_requires_grad(i->self) == grad) mg_val(r->g, i->val)->requires_grad = grad;
  return 0;
}

/* Hooks on tensors of the recording, and results that are tracked: 1 where the gradient graph may have them;
 * 0 where they end the segment; -1 with an exception.  After a break the program may still change what a hook
 * reads. */
static int joint_takes_hooks(MgRec *r, const MgSnapshot *snap, const ValRef *out, int nout) {
  bool returns = !snap->nslots && snap->ret;
  if (!returns || joint_writes_older(r) || mg_tensorhook_on_result(r, out, nout)) return 0;
  return mg_tensorhook_join(r);
}

static int joint_record_results(MgRec *r, const ValRef *out, int nout) {
  MgGraph *g = r->g;
  if (mg_joint_switched(mg_rec_trace(r, &(MgTrace){0})) &&
      (joint_writes_older(r) || joint_results_tracked(r, out, nout))) {
    mg_retry_fail(r, RETRY_switch);
    return 0;
  }
  if (r->want_fx && r->cap->function && !mg_fx_shows(r->cap, out, nout)) mg_retry_fail(r, RETRY_function);
  bool wanted = joint_wanted(r, out, nout);
  if (!wanted || mg_function_any_hooked(mg_rec_trace(r, &(MgTrace){0}))) {
    bool tracked =
        wanted || joint_writes_older(r) ||
        joint_results_tracked(r, out, nout); /* else the recording has its backward, or nobody wants one */
    if (!r->want_fx && tracked && mg_function_any_once(mg_rec_trace(r, &(MgTrace){0})))
      mg_retry_fail(r, RETRY_function);
    return 0;
  }
  if (mg_symdata_used(r)) { /* node by node, or broken into graphs that can have a backward */
    mg_retry_fail(r, RETRY_grad);
    return 0;
  }
  MgJointBuild b = {.r = r, .g = g, .j = mg_new(g->c, MgJointRec, 1), .nval = g->nval};
  uint32_t nnode = g->nnode, nval = g->nval, ninput = g->ninput;
  if (!b.j) return PyErr_NoMemory(), -1;
  b.j->backward = g->nnode;
  int rc = joint_record(&b, out, nout);
  if (!rc) {
    b.j->nnode = g->nnode;
    b.j->nval = g->nval;
    b.j->ninput = g->ninput;
    ninput = g->ninput - b.j->nthrough; /* some are for backward alone */
    r->joint = b.j;
  } else if (mg_symsize_inputs(&r->cap->sizes) && !b.views && !b.linked) { /* maybe it goes with constants */
    mg_retry_fail(r, RETRY_sizes);
    mg_clear_for_another_way();
    rc = 0;
  } else {
    if (r->cap->function && (b.ran || mg_function_any_once(mg_rec_trace(r, &(MgTrace){0}))))
      mg_retry_fail(r, RETRY_function);
    mg_log(MG_LOG_fallback, "a graph runs op by op under autograd: %s%s%s", b.why ? b.why : "error",
           r->abort ? ": " : "", r->abort ? r->reason : "");
    bool nomem = PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_MemoryError);
    if (!nomem) mg_clear_for_another_way();
    rc = nomem ? -1 : 0;
  }
  r->abort = false;
  g->nnode = nnode;
  g->nval = nval;
  g->ninput = ninput;
  return rc;
}

int mg_joint_record(MgRec *r, const MgSnapshot *snap) {
  const ValRef *out;
  int nout = mg_snapshot_outputs(snap, &out);
  if (joint_ask_autograd(r)) return -1;
  mg_pick_check(r->cap, out, nout);
  bool hooks = mg_tensorhook_any_made(r) && (joint_writes_older(r) || joint_results_tracked(r, out, nout) ||
                                             mg_tensorhook_on_result(r, out, nout));
  int takes = hooks ? joint_takes_hooks(r, snap, out, nout) : 1;
  int rc = takes > 0 ? joint_record_results(r, out, nout) : takes;
  if (hooks && rc >= 0 && !r->joint) mg_retry_fail(r, RETRY_hooked);
  return rc;
}
