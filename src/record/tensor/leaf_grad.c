/* What `.grad` of a leaf is while recording. */
#include "record/tensor/leaf_grad.h"
#include "host/python/names.h"
#include "entry/guard/guard_set.h"
#include "entry/guard/source.h"
#include "entry/launch/trace.h"
#include "host/python/hook_mode.h"
#include "host/python/pyobject.h"
#include "host/torch/function_stack.h"
#include "record/core/capture.h"
#include "record/core/ops.h"
#include "record/core/recording.h"

MgCapInput *mg_backward_input(PyObject *standin) {
  MgStandInfo *info = mg_standin_info(standin);
  return info && info->cap && info->input ? &info->cap->input[info->input - 1] : NULL;
}

/* Its class and the modes of the program do not see what is asked here. */
static PyObject *backward_property(const char *method, PyObject *standin, PyObject *arg) {
  PyObject *d = PyObject_GetAttrString((PyObject *)mg_torch.tensor, "grad"),
           *off = d ? mg_fmodes_off() : NULL;
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

static PyObject *backward_get(PyObject *standin) {
  return backward_property("__get__", standin, (PyObject *)mg_torch.tensor);
}

static int backward_load(MgCapture *cap, PyObject *standin, uint32_t at) {
  MgGuards *g = cap->rec->guards;
  if (cap->input[at].nonleaf)
    return mg_rec_break(BK_gradient_outside, "Tensor.grad of a tensor with a gradient graph from outside"),
           -1;
  if (!g) return 0;
  PyObject *now = mg_backward_grad_of(cap->input[at].real);
  if (!now) return -1;
  SrcRef owner = cap->input[at].src;
  if (!owner) owner = mg_source(g, SRC_pinned, 0, 0, cap->input[at].real);
  PyObject *seen = mg_ops.wrap(now, mg_source(g, SRC_grad, owner, 0, NULL));
  int rc = !seen ? -1 : seen == Py_None ? 0 : backward_set(standin, seen);
  cap->input[at].grad_known = true;
  cap->input[at].grad0 = seen; /* the identity map, or None, keeps it */
  Py_XDECREF(seen);
  return rc;
}

int mg_backward_load_grad(PyObject *standin) {
  MgCapInput *in = mg_backward_input(standin);
  if (!in || in->grad_known) return 0;
  MgStandInfo *info = mg_standin_info(standin);
  MgRec *before = mg_rec;
  mg_rec = info->cap->rec; /* also where torch's own Python asks */
  int rc = backward_load(info->cap, standin, info->input - 1);
  mg_rec = before;
  return rc;
}

int mg_backward_forget_grad(PyObject *standin) {
  MgCapInput *in = mg_backward_input(standin);
  if (!in || in->grad_known) return 0;
  if (in->nonleaf) return mg_rec_break(BK_gradient_outside, "assignment to Tensor.grad"), -1;
  in->grad_known = true;
  return 0;
}

int mg_backward_final_grad(PyObject *standin, PyObject **grad) {
  MgCapInput *in = mg_backward_input(standin);
  if (!in || !in->grad_known) return 0;
  if (!(*grad = backward_get(standin))) return -1;
  if (*grad != in->grad0) return 1;
  Py_CLEAR(*grad);
  return 0;
}

PyObject *mg_backward_assigned_grad(PyObject *standin) {
  MgStandInfo *info = mg_standin_is(standin) ? mg_standin_info(standin) : NULL;
  if (!info || !info->cap || mg_backward_input(standin)) return NULL;
  if (mg_facts_requires_grad(standin)) { /* results of differentiable operations have none, and warn */
    PyObject *off = mg_fmodes_off(), *leaf = off ? PyObject_GetAttrString(standin, "is_leaf")
                                                 : NULL; /* the program's handlers do not see it */
    Py_XDECREF(leaf);
    if (off) mg_context_exit(off);
    PyErr_Clear(); /* no leaf: no gradient */
    if (leaf != Py_True) return NULL;
  }
  PyObject *grad = backward_get(standin);
  if (grad == Py_None) Py_CLEAR(grad);
  PyErr_Clear(); /* no gradient */
  return grad;
}

static void spend_see(ValRef *v, void *arg) {
  Spend *s = arg;
  if (!*v || s->seen[*v]) return;
  const MgVal *val = mg_val(s->g, *v);
  bool written = val->storage < s->cap->cap_storage && s->cap->storage_grad[val->storage];
  if (!val->requires_grad && !written) return;
  s->seen[*v] = true;
  s->todo[s->n++] = *v;
}

int mg_spend_walk(Spend *s, ValRef root) {
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
    const MgFunction *f = mg_function_of(
        s->cap->function,
        val->def); /* its forward runs without gradients: what it gives hangs on its arguments */
    for (uint32_t i = 0; f && i < f->nin; i++) spend_see(&f->in[i], s);
    if (mg_node(s->g, val->def)->grad_mode && !mg_node(s->g, val->def)->leaf)
      mg_node_each_val(mg_node(s->g, val->def), spend_see, s);
  }
  return 0;
}

void mg_spend_free(Spend *s) {
  free(s->todo);
  free(s->seen);
}

bool mg_backward_is_spent(const MgCapture *cap, ValRef v) {
  if (!cap->spent) return false;
  Spend s = {.cap = (MgCapture *)cap, .g = cap->rec->g};
  bool hit = !mg_spend_walk(&s, v) && s.hit;
  mg_spend_free(&s);
  return hit;
}
