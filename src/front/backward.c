/* See the header.  In: older leaves, the engine's call.  Out: stand-ins as `.grad`, marks on values, results of runs.
 * Invariants: an older tensor's `.grad` is only ever changed by the snapshot; AccumulateGrad changes that of its stand-in.
 * Does not do: backward into a gradient graph that is older than the recording (a graph break). */
#include "front/backward.h"
#include "front/fmodes.h"
#include "front/facts.h"
#include "front/function.h"
#include "front/fx.h"
#include "front/names.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include "front/guard.h"
#include "front/identity.h"
#include "front/joint.h"
#include "front/tensorhook.h"

/* ---- .grad ---- */

/* c10::TensorImpl::grad() const, and the value that stands for "undefined"; NULL where they are not exported. */
static const void *(*backward_grad)(const void *impl);
static const void *backward_undefined;

static void backward_init(void) {
  static bool done;
  if (done) return;
  done = true;
  void *c10 = dlopen("libc10.so", RTLD_NOLOAD | RTLD_LAZY);
  if (!c10) return;
  backward_undefined = dlsym(c10, "_ZN3c1019UndefinedTensorImpl10_singletonE");
  if (backward_undefined && mg_abi.thpvariable_wrap)
    *(void **)&backward_grad = dlsym(c10, "_ZNK3c1010TensorImpl4gradEv");
}

PyObject *mg_backward_grad_of(PyObject *tensor) {
  PyObject *g;
  backward_init();
  if (backward_grad) {
    const void *t = backward_grad(*(void **)mg_abi_tensor(tensor));
    if (*(const void *const *)t == backward_undefined) return Py_None;
    g = mg_abi.thpvariable_wrap(t);
  } else g = PyObject_GetAttrString(tensor, "grad");
  Py_XDECREF(g); /* the tensor keeps it, object and all */
  return g;
}

/* The input behind a stand-in whose `.grad` is state from outside; NULL: its `.grad` is the recording's own. */
static MgCapInput *backward_input(PyObject *standin) {
  MgStandInfo *info = mg_standin_info(standin);
  return info && info->cap && info->input ? &info->cap->input[info->input - 1] : NULL;
}

/* Its class and the modes of the program do not see what is asked here. */
static PyObject *backward_property(const char *method, PyObject *standin, PyObject *arg) {
  PyObject *d = PyObject_GetAttrString((PyObject *)mg_tensor_type, "grad"), *off = d ? mg_fmodes_off() : NULL;
  PyObject *r = off ? PyObject_CallMethod(d, method, "OO", standin, arg) : NULL;
  if (off && mg_context_exit(off)) Py_CLEAR(r);
  Py_XDECREF(d);
  return r;
}

static int backward_set(PyObject *standin, PyObject *grad) {
  PyObject *r = backward_property("__set__", standin, grad);
  Py_XDECREF(r);
  return r ? 0 : -1;
}

static PyObject *backward_get(PyObject *standin) { return backward_property("__get__", standin, (PyObject *)mg_tensor_type); }

static int backward_load(MgCapture *cap, PyObject *standin, uint32_t at) {
  MgGuards *g = cap->rec->guards;
  if (cap->input[at].nonleaf) return mg_rec_break(BK_op, "Tensor.grad of a tensor with a gradient graph from outside"), -1;
  if (!g) return 0;
  PyObject *now = mg_backward_grad_of(cap->input[at].real);
  if (!now) return -1;
  SrcRef owner = cap->input[at].src;
  if (!owner) owner = mg_source(g, SRC_pinned, 0, 0, cap->input[at].real);
  PyObject *seen = mg_wrap(now, mg_source(g, SRC_grad, owner, 0, NULL));
  int rc = !seen ? -1 : seen == Py_None ? 0 : backward_set(standin, seen);
  cap->input[at].grad_known = true;
  cap->input[at].grad0 = seen; /* the identity map, or None, keeps it */
  Py_XDECREF(seen);
  return rc;
}

int mg_backward_load_grad(PyObject *standin) {
  MgCapInput *in = backward_input(standin);
  if (!in || in->grad_known) return 0;
  MgStandInfo *info = mg_standin_info(standin);
  MgRec *before = mg_rec;
  mg_rec = info->cap->rec; /* also where torch's own Python asks */
  int rc = backward_load(info->cap, standin, info->input - 1);
  mg_rec = before;
  return rc;
}

int mg_backward_forget_grad(PyObject *standin) {
  MgCapInput *in = backward_input(standin);
  if (!in || in->grad_known) return 0;
  if (in->nonleaf) return mg_rec_break(BK_op, "assignment to Tensor.grad"), -1;
  in->grad_known = true;
  return 0;
}

int mg_backward_final_grad(PyObject *standin, PyObject **grad) {
  MgCapInput *in = backward_input(standin);
  if (!in || !in->grad_known) return 0;
  if (!(*grad = backward_get(standin))) return -1;
  if (*grad != in->grad0) return 1;
  Py_CLEAR(*grad);
  return 0;
}

PyObject *mg_backward_assigned_grad(PyObject *standin) {
  MgStandInfo *info = mg_standin_is(standin) ? mg_standin_info(standin) : NULL;
  if (!info || !info->cap || backward_input(standin)) return NULL;
  if (mg_facts_requires_grad(standin)) { /* results of differentiable operations have none, and warn */
    PyObject *off = mg_fmodes_off(), *leaf = off ? PyObject_GetAttrString(standin, "is_leaf") : NULL; /* the program's handlers do not see it */
    Py_XDECREF(leaf);
    if (off) mg_context_exit(off);
    PyErr_Clear();
    if (leaf != Py_True) return NULL;
  }
  PyObject *grad = backward_get(standin);
  if (grad == Py_None) Py_CLEAR(grad);
  PyErr_Clear();
  return grad;
}

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
    if (r->want_fx || !r->guards) return mg_rec_break(BK_op, "backward to a tensor with hooks"), -1;
    if (mg_tensorhook_older(r, standin, hooks, owner, i)) return -1;
  }
  return 0;
}

/* AccumulateGrad adds to what every leaf has. */
static int backward_load_all(MgRec *r, bool grads) {
  for (uint32_t i = 0; i < r->ident->n; i++) { /* grows: gradients are tensors */
    PyObject *o = r->ident->v[i].seen;
    if (r->ident->v[i].kind != OLDER_tensor || !mg_standin_is(o)) continue;
    MgCapInput *in = backward_input(o);
    if (in) mg_standin_guard_leaf(r->cap, (uint32_t)(in - r->cap->input));
    if (!in || in->nonleaf || !mg_val(r->g, in->val)->requires_grad) continue;
    if (backward_load_hooks(r, o, (uint32_t)(in - r->cap->input)) || (grads && mg_backward_load_grad(o))) return -1;
  }
  return 0;
}

typedef struct Spend { /* walk over what a gradient graph consists of */
  MgCapture *cap;
  MgGraph *g;
  ValRef *todo;
  uint32_t n;
  bool *seen;       /* by value */
  bool outer, hit;  /* met: an input with a graph of its own; a value that is spent */
} Spend;

static void spend_see(ValRef *v, void *arg) {
  Spend *s = arg;
  if (!*v || s->seen[*v]) return;
  const MgVal *val = mg_val(s->g, *v);
  bool written = val->storage < s->cap->cap_storage && s->cap->storage_grad[val->storage];
  if (!val->requires_grad && !written) return;
  s->seen[*v] = true;
  s->todo[s->n++] = *v;
}

static int spend_walk(Spend *s, ValRef root) {
  s->todo = mg_malloc(sizeof *s->todo * (s->g->nval + 1));
  s->seen = mg_calloc(s->g->nval + 1, sizeof *s->seen);
  if (!s->todo || !s->seen) return -1;
  spend_see(&root, s);
  while (s->n) {
    ValRef v = s->todo[--s->n];
    const MgVal *val = mg_val(s->g, v);
    if (v < s->cap->cap_spent && s->cap->spent[v]) s->hit = true;
    if (!val->def) {
      if (val->out < s->cap->ninput && s->cap->input[val->out].nonleaf) s->outer = true;
      continue;
    }
    const MgFunction *f = mg_function_of(s->cap, val->def); /* its forward runs without gradients: what it gives hangs on its arguments */
    for (uint32_t i = 0; f && i < f->nin; i++) spend_see(&f->in[i], s);
    if (mg_node(s->g, val->def)->grad_mode && !mg_node(s->g, val->def)->leaf) mg_node_each_val(mg_node(s->g, val->def), spend_see, s);
  }
  return 0;
}

static void spend_free(Spend *s) {
  free(s->todo);
  free(s->seen);
}

static int backward_spend(MgCapture *cap, PyObject *root, bool keep) {
  if (mg_rec->cap->wrappers) return mg_rec_break(BK_op, "backward with tensors that wrap others"), -1;
  if (mg_standin_transformed(root)) return 0; /* of torch.func: its graph is the recording's own */
  if (!mg_standin_is(root)) return mg_rec_break(BK_op, "backward of a tensor from outside"), -1;
  Spend s = {.cap = cap, .g = cap->rec->g};
  uint32_t n = s.g->nval;
  int rc = spend_walk(&s, mg_standin_val(root));
  if (rc) PyErr_NoMemory();
  else if (s.outer) rc = (mg_rec_break(BK_op, "backward into a gradient graph from outside"), -1);
  else if (!keep) {
    bool *p = mg_realloc(cap->spent, n);
    if (!p) rc = (PyErr_NoMemory(), -1);
    else {
      if (n > cap->cap_spent) memset(p + cap->cap_spent, 0, n - cap->cap_spent);
      cap->spent = p;
      cap->cap_spent = n;
      for (uint32_t i = 1; i < n; i++)
        if (s.seen[i] && mg_val(s.g, i)->def && !mg_node(s.g, mg_val(s.g, i)->def)->leaf) p[i] = true;
    }
  }
  spend_free(&s);
  return rc;
}

bool mg_backward_is_spent(const MgCapture *cap, ValRef v) {
  if (!cap->spent) return false;
  Spend s = {.cap = (MgCapture *)cap, .g = cap->rec->g};
  bool hit = !spend_walk(&s, v) && s.hit;
  spend_free(&s);
  return hit;
}

PyObject *mg_backward_run(PyObject *f, PyObject *const *arg, size_t nargsf, PyObject *kwnames) {
  MgRec *r = mg_rec;
  static const char *const name[] = {"tensors", "grad_tensors", "keep_graph", "create_graph", "inputs", "allow_unreachable",
                                     "accumulate_grad"};
  PyObject *a[7] = {NULL};
  if (r->want_fx && !mg_fx_takes_engine(r->cap)) return mg_rec_break(BK_op, "the autograd engine, in a graph for a custom backend");
  if (r->ident->nhook) return mg_rec_break(BK_op, "backward after a hook was registered");
  if (r->guards->state.saved_hooks) return mg_rec_break(BK_op, "backward under hooks of saved tensors"); /* they may change what backward reads */
  if (r->cap->anomaly_was_on) return mg_rec_break(BK_op, "backward in anomaly mode"); /* PyTorch looks at every gradient */
  Py_ssize_t npos = PyVectorcall_NARGS(nargsf), nkw = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  for (Py_ssize_t i = 0; i < npos && i < 7; i++) a[i] = arg[i];
  for (Py_ssize_t k = 0; k < nkw; k++)
    for (int i = 0; i < 7; i++)
      if (!PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, k), name[i])) a[i] = arg[npos + k];
  if (r->in_joint && (!a[6] || PyObject_IsTrue(a[6]))) return mg_rec_break(BK_op, "backward() inside of a backward function"); /* writes to leaves */
  if (a[0] && PyTuple_Check(a[0]) && backward_load_all(r, a[6] && PyObject_IsTrue(a[6]))) return NULL;
  for (Py_ssize_t i = 0; a[0] && PyTuple_Check(a[0]) && i < PyTuple_GET_SIZE(a[0]); i++)
    if (backward_spend(r->cap, PyTuple_GET_ITEM(a[0], i), a[2] && PyObject_IsTrue(a[2]))) return NULL;
  if (r->guards) r->guards->engine = true;
  PyObject *res = PyObject_Vectorcall(f, arg, nargsf, kwnames);
  if (!res) mg_joint_drain(); /* else its queue would hold stand-ins */
  return res;
}

/* ---- results ---- */

PyObject *mg_backward_spent_result(PyObject *t) {
  static PyObject *spend; /* magneto.spent.spent */
  if (!spend) {
    PyObject *m = mg_import("magneto.spent");
    spend = m ? PyObject_GetAttrString(m, "spent") : NULL;
    Py_XDECREF(m);
  }
  PyObject *r = spend ? PyObject_CallOneArg(spend, t) : NULL;
  Py_DECREF(t);
  return r;
}
