/* See the header.  Kernels know memory only: a result over the memory of an input comes out as a tensor of
 * its own, and an input that was written has been written once.  The program may see more: a write through a
 * view that autograd tracks makes its base part of the gradient graph, backward compares version counters,
 * and inference tensors have only such views.
 * In: the recorded graph, version counters of stand-ins, which torch keeps.  Out: views and counters as eager
 * has them.
 * Does not do: views of a tensor that is no result itself; the running statistics
 * that a batch norm writes. */
#include "record/tensor/view_state.h"
#include <stdlib.h>
#include <string.h>
#include "entry/guard/source.h"
#include "entry/launch/trace.h"
#include "entry/launch/view_fixup.h"
#include "host/python/pyobject.h"
#include "host/torch/tensor_facts.h"
#include "record/core/capture.h"
#include "record/core/ops.h"
#include "record/core/recording.h"
#include "record/tensor/inference_mode.h"

const MgCapInput *mg_view_owner(const MgCapture *cap, ValRef v, int *n) {
  const MgCapInput *found = NULL;
  *n = 0;
  for (uint32_t i = 0; i < cap->ninput; i++) {
    const MgCapInput *in = &cap->input[i];
    if (!in->real || in->scalar || in->outer ||
        mg_val(cap->rec->g, in->val)->storage != mg_val(cap->rec->g, v)->storage)
      continue;
    found = in;
    ++*n;
  }
  return found;
}

/* Have both one version counter?  1, 0, or -1 with an exception. */
static int view_counts_alike(PyObject *a, PyObject *b) {
  int64_t n, m, now;
  if (a == b) return 1;
  if (mg_view_number(a, &n) || mg_view_number(b, &m) || n != m) return PyErr_Occurred() ? -1 : 0;
  if (mg_facts_set_version(a, n + 1) || mg_view_number(b, &now) || mg_facts_set_version(a, n)) return -1;
  return now == n + 1;
}

/* As the program would add them: a number that was only loaded so far is looked at. */
static PyObject *view_add(PyObject *a, PyObject *b) {
  PyObject *m = mg_import("operator"), *add = m ? PyObject_GetAttrString(m, "add") : NULL;
  PyObject *r = add ? mg_ops.call(add, (PyObject *[]){a, b}, 2, NULL) : NULL;
  Py_XDECREF(add);
  Py_XDECREF(m);
  return r;
}

PyObject *mg_viewstate_version(PyObject *self) {
  MgStandInfo *info = mg_standin_info(self);
  MgRec *r = info->cap->rec;
  int n;
  if (mg_inference_mode_of(info->cap, info->val))
    return mg_rec_break(BK_inference_tensor, "the version of an inference tensor");
  const MgCapInput *in = mg_view_owner(info->cap, info->val, &n);
  PyObject *own = mg_view_get(self, 0), *seen = NULL, *first = NULL, *sum = NULL;
  if (!own || !n) return own;
  if (n == 1 && in->src && !in->array && r->guards) seen = mg_ops.wrap(in->real, in->src);
  int alike = seen ? view_counts_alike(seen, self) : -1;
  if (!seen && !PyErr_Occurred())
    mg_rec_break(BK_view_state, "the version of a tensor that shares its memory");
  if (alike == 0) sum = Py_NewRef(own);
  PyObject *now = alike > 0 ? mg_view_get(in->real, 0) : NULL;
  if (now) first = mg_ops.wrap(now, mg_source(r->guards, SRC_attr, in->src, 0, mg_view_name(0)));
  if (first) sum = view_add(first, own);
  Py_XDECREF(first);
  Py_XDECREF(now);
  Py_XDECREF(seen);
  Py_DECREF(own);
  return sum;
}

PyObject *mg_viewstate_base(PyObject *self) {
  PyObject *own = mg_view_get(self, 1), *real, *b = NULL;
  PyObject *root = own && own != Py_None ? own : self;
  MgStandInfo *info = mg_standin_info(self), *top = own && mg_standin_is(root) ? mg_standin_info(root) : NULL;
  MgRec *r = info->cap->rec;
  if (!own || !top || !top->input) return own;
  const MgCapInput *in = &info->cap->input[top->input - 1];
  if (in->src && !in->array && r->guards && (real = mg_view_get(in->real, 1))) {
    b = mg_ops.wrap(real, mg_source(r->guards, SRC_attr, in->src, 0, mg_view_name(1)));
    Py_DECREF(real);
  } else if (!PyErr_Occurred()) mg_rec_break(BK_view_state, "the base of a tensor");
  if (b == Py_None) Py_SETREF(b, Py_NewRef(own));
  Py_DECREF(own);
  return b;
}

int mg_viewstate_take(MgCapture *cap) {
  const MgGraph *g = cap->rec->g;
  bool writes = false;
  for (NodeRef n = 1; n < g->nnode && !writes; n++) writes = g->node[n].op->mutates;
  for (MgStandInfo *i = cap->live; i && writes; i = i->next) {
    int64_t n;
    if (!i->input || !i->self) continue;
    if (mg_view_number(i->self, &n)) return -1;
    MgCapInput *in = &cap->input[i->input - 1];
    if (in->moved < n) in->moved = (uint32_t)n; /* the leaf behind one that is none stays as it was */
  }
  return 0;
}
