/* See the header.  In: a node with its arguments.  Out: its results.
 * torch's meta kernel is called with sizes that are symbols, and computes those of the results with them
 * (what it asks is guarded).  Some kernels are C++ that takes numbers only: these are tried at two
 * assignments, which tells what follows which size; such results are asked for again at each new assignment
 * (exec_sizes.c), so that graphs for custom back ends, where nobody asks, cannot have them. */
#include "record/dispatch/meta_symbolic.h"
#include "entry/launch/trace.h"
#include "host/python/pyobject.h"
#include "host/torch/literals.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "record/dispatch/data_shapes.h"
#include "record/dispatch/meta_kernel.h"

static bool follow_is(MgRec *r, SymRef e, SymRef number) {
  return mg_sym_hint(r->x, e) == mg_sym_hint(r->x, number);
}

/* The same tensor at this run's sizes? */
static bool follow_same(MgRec *r, ValRef a, ValRef b) {
  if (!a || !b) return a == b;
  const MgVal *p = mg_val(r->g, a), *q = mg_val(r->g, b);
  if (p->ndim != q->ndim || p->dtype != q->dtype || !follow_is(r, p->offset, q->offset)) return false;
  for (int i = 0; i < p->ndim; i++)
    if (!follow_is(r, p->size[i], q->size[i]) || !follow_is(r, p->stride[i], q->stride[i])) return false;
  return true;
}

/* Does the kernel that is called with numbers, which need not be the same one, give this for this run's
 * sizes? */
static bool follow_agrees(MgRec *r, const MgFrontOp *fo, NodeRef n) {
  MgSymSizes *s = &r->cap->sizes;
  const MgNode by_symbols = *mg_node(r->g, n);
  PyObject *none = NULL;
  int64_t *env = mg_new(r->ctx, int64_t, s->nsrc + 1);
  for (uint32_t i = 0; env && i < s->nsrc; i++) env[i] = mg_sym_hint(r->x, s->ref[i]);
  s->probe = env;
  s->inputs = true; /* no kernel is run for real */
  int rc = env ? mg_metainfer_run(r, fo, n, &none) : -1;
  s->probe = NULL;
  s->inputs = false;
  Py_XDECREF(none);
  const MgNode by_numbers = *mg_node(r->g, n);
  bool same = rc || by_numbers.nout == by_symbols.nout;
  for (int i = 0; !rc && same && i < by_numbers.nout; i++)
    same = follow_same(r, by_symbols.out[i], by_numbers.out[i]);
  if (rc) mg_clear_for_another_way();
  mg_node(r->g, n)->out = by_symbols.out;
  mg_node(r->g, n)->nout = by_symbols.nout;
  return same && env;
}

static bool follow_by_symbols(MgRec *r, const MgFrontOp *fo, NodeRef n, bool exact, PyObject **pyret) {
  MgRetry retry = r->retry;
  if (!mg_metainfer_symbolic(r, fo, n, exact, pyret) && !r->abort && follow_agrees(r, fo, n)) return true;
  Py_CLEAR(*pyret);
  mg_clear_for_another_way();
  mg_retry_forget(r, retry, RETRY_sizes); /* the kernel was only tried */
  r->abort = false;
  return false;
}

bool mg_symfollow(MgRec *r, const MgFrontOp *fo, NodeRef n, PyObject **pyret) {
  const MgSymSizes *s = &r->cap->sizes;
  const MgNode before = *mg_node(r->g, n);
  if (!s->nsrc || s->off || !r->guards || !mg_symfollow_reads(r->g, n)) return false;
  if (follow_by_symbols(r, fo, n, true, pyret)) return true;
  if (s->asked) goto none; /* for a size that only data tells */
  bool twice = !r->want_fx && !fo->op->mutates && !fo->op->is_view;
  if (twice && mg_symdata_twice(r, fo, n)) return true;
  if (!r->abort && follow_by_symbols(r, fo, n, false, pyret)) return true;
none:
  mg_node(r->g, n)->out = before.out;
  mg_node(r->g, n)->nout = before.nout;
  return false;
}
