/* See the header.  In: older leaves, the engine's call.  Out: stand-ins as `.grad`,
 * marks on values, results of runs.
 * Invariants: an older tensor's `.grad` is only ever changed by the snapshot; AccumulateGrad changes that of
 * its stand-in. Does not do: backward into a gradient graph that is older than the
 * recording (a graph break). */
#include "record/autograd/backward_pass.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include "entry/guard/guard_add.h"
#include "entry/guard/source.h"
#include "entry/launch/trace.h"
#include "host/python/hook_mode.h"
#include "host/torch/tensor_facts.h"
#include "record/autograd/joint_reach.h"
#include "record/autograd/joint_trace.h"
#include "record/core/capture.h"
#include "record/core/identity.h"
#include "record/core/recording.h"
#include "record/fx/fx.h"
#include "record/tensor/leaf_grad.h"
#include "record/tensor/standin.h"
#include "record/tensor/tensor_hooks.h"

/* ---- running the engine ---- */

/* The hooks of an older leaf run on its stand-in's gradient; that there are none is a fact of the tensor. */
static int backward_load_hooks(MgRec *r, PyObject *standin, uint32_t at) {
  MgCapInput *in = &r->cap->input[at];
  if (in->hooked) return 0;
  in->hooked = true;
  PyObject *real = in->real;
  SrcRef owner = in->src;
  if (!owner && r->guards) owner = mg_source(r->guards, SRC_pinned, 0, 0, real);
  for (int i = 0; i < 2; i++) {
    PyObject *hooks = mg_facts_hooks(real, i);
    MgFacts *facts = hooks || !r->guards ? NULL : mg_guard_facts(r->guards, owner);
    if (facts) facts->unhooked |= (uint8_t)(1 << i);
    if (!hooks) continue;
    if (r->want_fx || !r->guards)
      return mg_rec_break(BK_custom_backend, "backward to a tensor with hooks"), -1;
    if (mg_tensorhook_older(r, standin, hooks, owner, i)) return -1;
  }
  return 0;
}

/* AccumulateGrad adds to what every leaf has. */
static int backward_load_all(MgRec *r, bool grads) {
  for (uint32_t i = 0; i < r->ident->n; i++) { /* grows: gradients are tensors */
    PyObject *o = r->ident->v[i].seen;
    if (r->ident->v[i].kind != OLDER_tensor || !mg_standin_is(o)) continue;
    MgCapInput *in = mg_backward_input(o);
    if (in) mg_standin_guard_leaf(r->cap, (uint32_t)(in - r->cap->input));
    if (!in || in->nonleaf || !mg_val(r->g, in->val)->requires_grad) continue;
    if (backward_load_hooks(r, o, (uint32_t)(in - r->cap->input)) || (grads && mg_backward_load_grad(o)))
      return -1;
  }
  return 0;
}

/* Does a pass through the node's gradient free what another one needs? */
static bool spend_frees(const Spend *s, NodeRef def) {
  return def && !mg_node(s->g, def)->leaf && mg_joint_saves(s->cap, def);
}

static int backward_spend(MgCapture *cap, PyObject *root, bool keep) {
  if (mg_rec->cap->wrappers) return mg_rec_break(BK_backward, "backward with tensors that wrap others"), -1;
  if (mg_standin_transformed(root)) return 0; /* of torch.func: its graph is the recording's own */
  if (!mg_standin_is(root)) return mg_rec_break(BK_backward, "backward of a tensor from outside"), -1;
  Spend s = {.cap = cap, .g = cap->rec->g};
  uint32_t n = s.g->nval;
  int rc = mg_spend_walk(&s, mg_standin_val(root));
  if (rc) PyErr_NoMemory();
  else if (s.outer)
    rc = (mg_rec_break(BK_gradient_outside, "backward into a gradient graph from outside"), -1);
  else if (!keep) {
    bool *p = mg_realloc(cap->spent, n);
    if (!p) rc = (PyErr_NoMemory(), -1);
    else {
      if (n > cap->cap_spent) memset(p + cap->cap_spent, 0, n - cap->cap_spent);
      cap->spent = p;
      cap->cap_spent = n;
      for (uint32_t i = 1; i < n; i++)
        if (s.seen[i] && spend_frees(&s, mg_val(s.g, i)->def)) p[i] = true;
    }
  }
  mg_spend_free(&s);
  return rc;
}

static PyObject *backward_run(PyObject *f, PyObject *const *arg, size_t nargsf, PyObject *kwnames,
                              PyObject **a) {
  MgRec *r = mg_rec;
  static const char *const name[] = {"tensors", "grad_tensors",      "keep_graph",     "create_graph",
                                     "inputs",  "allow_unreachable", "accumulate_grad"};
  Py_ssize_t npos = PyVectorcall_NARGS(nargsf), nkw = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  for (Py_ssize_t i = 0; i < npos && i < 7; i++) a[i] = arg[i];
  for (Py_ssize_t k = 0; k < nkw; k++)
    for (int i = 0; i < 7; i++)
      if (!PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, k), name[i])) a[i] = arg[npos + k];
  if (r->want_fx && !mg_fx_takes_engine(r->cap))
    return mg_rec_break(BK_custom_backend, "the autograd engine, in a graph for a custom backend");
  if (mg_tensorhook_waits(r)) return mg_rec_break(BK_hook, "backward after a hook was registered");
  if (r->guards->state.saved_hooks)
    return mg_rec_break(BK_backward_watched,
                        "backward under hooks of saved tensors"); /* they may change what backward reads */
  if (r->cap->anomaly_was_on)
    return mg_rec_break(BK_backward_watched,
                        "backward in anomaly mode"); /* PyTorch looks at every gradient */
  if (mg_joint_clamp_raises(r->g, r->g->nnode))
    return mg_rec_break(BK_backward, "backward of a clamp whose bounds are broadcast");
  if (r->in_joint && (!a[6] || PyObject_IsTrue(a[6])))
    return mg_rec_break(BK_backward, "backward() inside of a backward function"); /* writes to leaves */
  if (a[0] && PyTuple_Check(a[0]) && backward_load_all(r, a[6] && PyObject_IsTrue(a[6]))) return NULL;
  for (Py_ssize_t i = 0; a[0] && PyTuple_Check(a[0]) && i < PyTuple_GET_SIZE(a[0]); i++)
    if (backward_spend(r->cap, PyTuple_GET_ITEM(a[0], i), a[2] && PyObject_IsTrue(a[2]))) return NULL;
  if (r->guards) r->guards->engine = true;
  PyObject *res = PyObject_Vectorcall(f, arg, nargsf, kwnames);
  if (!res) mg_joint_drain(); /* else its queue would hold stand-ins */
  return res;
}

PyObject *mg_backward_run(PyObject *f, PyObject *const *arg, size_t nargsf, PyObject *kwnames) {
  PyObject *a[7] = {NULL};
  PyObject *res = backward_run(f, arg, nargsf, kwnames, a);
  for (Py_ssize_t i = 0; !res && mg_rec->abort && a[4] && PyTuple_Check(a[4]) && i < PyTuple_GET_SIZE(a[4]);
       i++)
    mg_joint_links(PyTuple_GET_ITEM(a[4], i));
  return res;
}
