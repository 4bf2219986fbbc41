/* See the header.
 * A loop's body is recorded once, on stand-ins for what is another tensor on each turn: values that no node
 * makes and that are no inputs.  Loops over few rows are unrolled, so that their turns fuse; so are those
 * whose body cannot be a part. */
#include "record/higher_order/while_scan.h"
#include <string.h>
#include "host/python/glue.h"
#include "host/python/hook_mode.h"
#include "host/python/pyobject.h"
#include "host/torch/literals.h"
#include "host/torch/tensor_facts.h"
#include "record/autograd/joint_trace.h"
#include "record/core/capture.h"
#include "record/core/identity.h"
#include "record/core/recording.h"
#include "record/core/subgraph_state.h"
#include "record/dispatch/dispatch.h"
#include "record/fx/fx.h"
#include "record/higher_order/fx_subgraph.h"
#include "record/higher_order/subgraph.h"
#include "record/tensor/standin.h"
#include "tuning.h"

enum { LOOP_ANY = 1 << 20 }; /* for a number of rows that is not known */

/* magneto._glue.control_flow.<name>; new. */
static PyObject *higher_branch(const char *name) {
  PyObject *m = mg_glue(GLUE_control_flow), *o = m ? PyObject_GetAttrString(m, name) : NULL;
  Py_XDECREF(m);
  return o;
}

static const MgFrontOp *higher_op(const char *name) {
  PyObject *d = higher_branch("OPERATORS"), *op = d ? PyDict_GetItemString(d, name) : NULL;
  const MgFrontOp *fo = op ? mg_frontop_find(op) : NULL;
  Py_XDECREF(d);
  if (!fo && !PyErr_Occurred())
    PyErr_SetString(PyExc_SystemError, "magneto: an operator of branches and loops is missing");
  return fo;
}

/* ---- the tensors that parts read ---- */

static void higher_add(MgHigher *h, ValRef v) {
  for (uint32_t i = 0; i < h->nall; i++)
    if (h->all[i] == v) return;
  h->all[h->nall++] = v;
}

/* The living stand-in of a value: one that autograd tracks, if there is any.  One is made for a value that
 * nobody holds and autograd does not track (a constant that a body makes).  New; NULL without an
 * exception: autograd has lost it. */
static PyObject *higher_find(MgCapture *cap, ValRef v) {
  PyObject *found = NULL;
  for (MgStandInfo *i = cap->live; i; i = i->next)
    if (i->self && i->val == v && (!found || mg_facts_requires_grad(i->self))) found = i->self;
  return found || mg_val(cap->rec->g, v)->requires_grad ? Py_XNewRef(found) : mg_standin_new(cap, v);
}

int mg_higher_collect(MgHigher *h, PyObject *const *fixed, uint32_t nfixed) {
  for (int k = 0; k < 2; k++)
    for (uint32_t i = 0; h->part[k] && i < h->part[k]->nin; i++) higher_add(h, h->part[k]->in[i]);
  h->nfixed = nfixed;
  if (!(h->xs = PyList_New(0))) return -1;
  for (uint32_t i = 0; i < h->nall; i++) {
    PyObject *x = i < nfixed ? Py_NewRef(fixed[i]) : higher_find(h->r->cap, h->all[i]);
    if (!x && !PyErr_Occurred())
      mg_rec_break(BK_branch_arguments, "a branch or loop body that reads a tensor nobody holds");
    int bad = !x || PyList_Append(h->xs, x);
    Py_XDECREF(x);
    if (bad) return -1;
  }
  for (int k = 0; k < 2; k++)
    if (h->part[k] && mg_part_bind(h->part[k], h->all, h->nall)) return -1;
  return 0;
}

bool mg_higher_tracks(const MgHigher *h) {
  return mg_abi.aoti_torch_grad_mode_is_enabled() &&
         ((h->part[0] && h->part[0]->grad) || (h->part[1] && h->part[1]->grad));
}

void mg_higher_free(MgHigher *h) {
  Py_XDECREF(h->part[0]);
  Py_XDECREF(h->part[1]);
  Py_XDECREF(h->xs);
}

/* ---- the node ---- */

/* Gives the GraphModule of a part all inputs of the call; alone: the result is a
 * tensor, not a tuple of one. */
static int higher_widen(const MgHigher *h, MgPart *p, bool alone, uint32_t skip) {
  PyObject *pick = PyList_New(p->nin), *f = higher_branch("widen"), *gm = NULL;
  for (uint32_t i = 0; pick && i < p->nin; i++)
    PyList_SET_ITEM(pick, i, PyLong_FromUnsignedLong(p->run->pick[i] - skip));
  if (pick && f)
    gm = PyObject_CallFunction(f, "OOIO", p->graph, pick, h->nall - skip, alone ? Py_True : Py_False);
  Py_XDECREF(pick);
  Py_XDECREF(f);
  if (gm) Py_SETREF(p->graph, gm);
  return gm ? 0 : -1;
}

/* Shows the call in a torch-level graph, or, where a body cannot be shown that way, in
 * one that has its ATen ops. */
static int higher_show(const MgHigher *h, const char *op, PyObject *head, PyObject *res, uint32_t skip) {
  if (!h->r->want_fx) return 0;
  MgPause pause = mg_rec_pause();
  MgFxPartCall call = {op, {h->part[0], h->part[1]}, PySequence_Fast_ITEMS(h->xs), h->nfixed, head, res};
  int shown = mg_fxpart_show(h->r->cap, &call), rc = shown < 0 ? -1 : 0;
  for (int k = 0; k < 2; k++) {
    if (h->part[k]) Py_CLEAR(h->part[k]->shown);
    if (h->part[k]) Py_CLEAR(h->part[k]->reads);
  }
  for (int k = 0; !rc && k < 2; k++)
    if (h->part[k] && h->part[k]->graph) rc = higher_widen(h, h->part[k], !k && !skip, skip);
  if (!rc && !shown && PyList_GET_SIZE(res))
    rc = mg_fx_show(h->r->cap, mg_val(h->r->g, mg_standin_val(PyList_GET_ITEM(res, 0)))->def);
  mg_rec_resume(pause);
  return rc;
}

/* The list of results, nested as the part's result was.  Steals res. */
static PyObject *higher_nest(const MgPart *p, PyObject *res) {
  PyObject *r = mg_part_nest(p, res);
  if (r && !mg_standin_check(r)) mg_fresh(r);
  return r;
}

/* The recording that the first of a list of tensors belongs to. */
static MgCapture *higher_capture(PyObject *xs) {
  PyObject *x = PyList_GET_SIZE(xs) ? PyList_GET_ITEM(xs, 0) : NULL;
  MgCapture *cap = x && mg_standin_check(x) ? mg_standin_info(x)->cap : NULL;
  if (!cap) PyErr_SetString(PyExc_RuntimeError, "magneto: no recording");
  return cap;
}

/* emit(op, args, part) -> results */
static PyObject *higher_emit(PyObject *module, PyObject *args) {
  const char *op;
  PyObject *all, *part;
  if (!PyArg_ParseTuple(args, "sO!O:emit", &op, &PyTuple_Type, &all, &part)) return NULL;
  const MgPart *p = (MgPart *)part;
  MgCapture *cap = higher_capture(PyTuple_GET_ITEM(all, 0));
  const MgFrontOp *fo = cap ? higher_op(op) : NULL;
  return fo ? mg_dispatch_emit(cap, fo, all, p->res, p->nres, true)
            : NULL; /* as it was outside of Node.forward */
}

/* emit_gradients(op, args, xs, need) -> gradients */
static PyObject *higher_emit_gradients(PyObject *module, PyObject *args) {
  const char *op;
  PyObject *all, *xs, *need;
  if (!PyArg_ParseTuple(args, "sO!O!O!:emit_gradients", &op, &PyTuple_Type, &all, &PyList_Type, &xs,
                        &PyList_Type, &need))
    return NULL;
  MgCapture *cap = higher_capture(xs);
  if (!cap) return NULL;
  Py_ssize_t n = PyList_GET_SIZE(need);
  ValRef *like = mg_new(cap->rec->g->c, ValRef, n + 1);
  if (!like) return PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *x = PyList_GetItem(xs, PyLong_AsSsize_t(PyList_GET_ITEM(need, i)));
    if (!x || !mg_standin_check(x))
      return PyErr_Format(PyExc_RuntimeError, "magneto: a gradient of something that is not recorded");
    if (!(like[i] = mg_joint_gradient_val(cap->rec->g, mg_standin_val(x)))) return PyErr_NoMemory();
  }
  const MgFrontOp *fo = higher_op(op);
  return fo ? mg_dispatch_emit(cap, fo, all, like, (uint32_t)n, false) : NULL;
}

/* The same through autograd: list of results. */
static PyObject *higher_tracked(const MgHigher *h, const char *op, PyObject *head, MgPart *body) {
  MgPause pause = mg_rec_pause();
  PyObject *first = Py_BuildValue("(sOO)", op, head, body), *rest = PyList_AsTuple(h->xs),
           *f = higher_branch("Node"), *res = NULL;
  PyObject *args = first && rest ? PySequence_Concat(first, rest) : NULL,
           *apply = f ? PyObject_GetAttrString(f, "apply") : NULL;
  PyObject *t = args && apply ? PyObject_Call(apply, args, NULL) : NULL;
  if (t) res = PyTuple_Check(t) ? PySequence_List(t) : PyList_New(0);
  PyObject *const used[] = {first, rest, f, args, apply, t};
  for (size_t i = 0; i < sizeof used / sizeof *used; i++) Py_XDECREF(used[i]);
  mg_rec_resume(pause);
  return res;
}

PyObject *mg_higher_emit(MgHigher *h, const char *op, PyObject *head, MgPart *body, bool tracks,
                         uint32_t skip) {
  PyObject *res = NULL, *first = NULL, *all = NULL;
  const MgFrontOp *fo = head ? higher_op(op) : NULL;
  h->r->cap->loops |= !strcmp(op, "while_loop");
  if (fo && tracks) res = higher_tracked(h, op, head, body);
  else if (fo && (first = PyTuple_Pack(1, h->xs)) && (all = PySequence_Concat(first, head)))
    res =
        mg_dispatch_emit(h->r->cap, fo, all, body->res, body->nres, mg_abi.aoti_torch_grad_mode_is_enabled());
  if (res && higher_show(h, op, head, res, skip)) Py_CLEAR(res);
  Py_XDECREF(first);
  Py_XDECREF(all);
  Py_XDECREF(head);
  return res ? higher_nest(body, res) : NULL;
}

/* ---- loops ---- */

/* Appends to l the stand-in of a value like v, without its first `drop` dimensions, that is another tensor on
 * each turn.  0 with an exception. */
static ValRef loop_turn(MgRec *r, ValRef v, int drop, PyObject *l) {
  MgGraph *g = r->g;
  ValRef turn = mg_graph_val(g, mg_val(g, v)->dtype, mg_val(g, v)->ndim - drop);
  if (!turn) return PyErr_NoMemory(), 0;
  MgVal *to = mg_val(g, turn);
  const MgVal *from = mg_val(g, v);
  to->device = from->device;
  to->dev_index = from->dev_index;
  memcpy(to->size, from->size + drop, to->ndim * sizeof *to->size);
  memcpy(to->stride, from->stride + drop, to->ndim * sizeof *to->stride);
  to->def = 0;
  to->out = UINT32_MAX; /* no input of the graph */
  PyObject *t = mg_standin_new(r->cap, turn);
  int bad = !t || PyList_Append(l, t);
  Py_XDECREF(t);
  return bad ? 0 : turn;
}

static bool loop_any_grad(PyObject *const *x, Py_ssize_t n) {
  for (Py_ssize_t i = 0; i < n; i++)
    if (mg_abi.aoti_torch_grad_mode_is_enabled() && mg_facts_requires_grad(x[i])) return true;
  return false;
}

static bool loop_all_tensors(PyObject *seq) {
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(seq); i++)
    if (!mg_standin_check(PySequence_Fast_GET_ITEM(seq, i))) return false;
  return true;
}

/* Does a body give tensors like those that it takes first? */
static bool loop_carries(const MgGraph *g, const MgPart *body, const ValRef *like, uint32_t n) {
  MgPart taken = *body, given = *body;
  taken.out = (ValRef *)like;
  taken.nout = given.nout = n;
  return body->nout >= n && mg_part_alike(g, &taken, &given);
}

static PyObject *loop_while_parts(MgHigher *h, PyObject *const *fn, PyObject *carried, PyObject *more) {
  MgGraph *g = h->r->g;
  Py_ssize_t n = PySequence_Fast_GET_SIZE(carried);
  PyObject *loop = PyList_New(0), *all = NULL, *res = NULL;
  PyObject *const *x = PySequence_Fast_ITEMS(carried);
  ValRef *like = mg_new(g->c, ValRef, n + 1);
  if (!loop || !like) goto done;
  for (Py_ssize_t i = 0; i < n; i++)
    if (!(like[i] = loop_turn(h->r, mg_standin_val(x[i]), 0, loop))) goto done;
  if (!(all = PySequence_Concat(loop, more))) goto done;
  for (int i = 0; i < 2; i++)
    if (!(h->part[i] =
              mg_part_record(h->r, fn[i], PySequence_Fast_ITEMS(all), PySequence_Fast_GET_SIZE(all), false)))
      goto done;
  MgPart *body = h->part[1];
  if (body->nout != n || h->part[0]->nout != 1 || !loop_carries(g, body, like, (uint32_t)n)) {
    mg_rec_break(BK_branch_results, "a loop body gives other tensors than it takes");
    goto done;
  }
  if (!(h->all = mg_new(g->c, ValRef, h->part[0]->nin + body->nin + n + 1))) goto done;
  for (Py_ssize_t i = 0; i < n; i++) h->all[h->nall++] = like[i];
  if (mg_higher_collect(h, x, (uint32_t)n)) goto done;
  body->res = like;
  body->nres = (uint32_t)n;
  bool tracks = loop_any_grad(x, n) || mg_higher_tracks(h);
  res = mg_higher_emit(h, "while_loop", Py_BuildValue("(nOO)", n, h->part[0], body), body, tracks, 0);
done:
  if (!res && !PyErr_Occurred()) PyErr_NoMemory();
  Py_XDECREF(loop);
  Py_XDECREF(all);
  return res;
}

bool mg_loop_while(MgRec *r, PyObject *const *a, PyObject **out) {
  if (!PyTuple_Check(a[2]) || !PyTuple_Check(a[3])) return false;
  if (!loop_all_tensors(a[2])) {
    *out = mg_rec_break(BK_branch_arguments, "a while_loop that carries something else than tensors");
    return true;
  }
  MgHigher h = {.r = r};
  PyObject *more = PySequence_List(a[3]);
  *out = more ? loop_while_parts(&h, a, a[2], more) : NULL;
  Py_XDECREF(more);
  mg_higher_free(&h);
  return true;
}

/* ---- loops over rows ---- */

/* What the node gives: what is carried at last, and what the turns gave, stacked. */
static int loop_row_results(MgRec *r, MgPart *body, const ValRef *like, uint32_t ncarry, SymRef rows) {
  MgGraph *g = r->g;
  if (!(body->res = mg_new(g->c, ValRef, body->nout + 1))) return -1;
  for (uint32_t i = 0; i < body->nout; i++) {
    ValRef one = body->out[i],
           v = i < ncarry ? like[i] : mg_graph_val(g, mg_val(g, one)->dtype, mg_val(g, one)->ndim + 1);
    if (!v) return -1;
    body->res[body->nres++] = v;
    if (i < ncarry) continue;
    MgVal *to = mg_val(g, v);
    const MgVal *from = mg_val(g, one);
    to->device = from->device;
    to->dev_index = from->dev_index;
    to->size[0] = rows;
    memcpy(to->size + 1, from->size, from->ndim * sizeof *from->size);
    mg_graph_contiguous(g, v);
  }
  return 0;
}

/* args: what is carried, the tensors of rows, others.  NULL without an exception: to be unrolled. */
static PyObject *loop_row_part(MgHigher *h, PyObject *fn, PyObject *args, uint32_t ncarry, uint32_t nrow,
                               int64_t rows) {
  MgGraph *g = h->r->g;
  PyObject *turn = PyList_New(0), *res = NULL;
  PyObject *const *x = PySequence_Fast_ITEMS(args);
  uint32_t n = ncarry + nrow;
  ValRef *like = mg_new(g->c, ValRef, n + 1);
  MgPart *body = NULL;
  for (uint32_t i = 0; turn && like && i < n; i++)
    if (!(like[i] = loop_turn(h->r, mg_standin_val(x[i]), i >= ncarry, turn))) goto done;
  for (Py_ssize_t i = n; turn && i < PySequence_Fast_GET_SIZE(args); i++)
    if (PyList_Append(turn, x[i])) goto done;
  if (!turn || !like) goto done;
  if (!(body = h->part[1] =
            mg_part_record(h->r, fn, PySequence_Fast_ITEMS(turn), PySequence_Fast_GET_SIZE(turn), false)))
    goto done;
  if (!loop_carries(g, body, like, ncarry) || (!h->r->want_fx && body->nnode * rows <= MG_TUNE_ROWS_UNROLL))
    goto done;
  if (loop_row_results(h->r, body, like, ncarry, mg_val(g, mg_standin_val(x[ncarry]))->size[0])) goto nomem;
  if (!(h->all = mg_new(g->c, ValRef, body->nin + n + 1))) goto nomem;
  for (uint32_t i = 0; i < n; i++) h->all[h->nall++] = like[i];
  if (mg_higher_collect(h, x, n)) goto done;
  bool tracks = loop_any_grad(x, n) || mg_higher_tracks(h);
  res = mg_higher_emit(h, "scan", Py_BuildValue("(IIO)", ncarry, nrow, body), body, tracks, 0);
  goto done;
nomem:
  PyErr_NoMemory();
done:
  Py_XDECREF(turn);
  return res;
}

/* At least two rows?  *rows: their number, or LOOP_ANY for a symbol, with which a loop is never unrolled. */
static bool loop_row_count(const MgExprs *x, SymRef e, int64_t *rows) {
  *rows = LOOP_ANY;
  if (mg_expr(x, e)->op == OP_sym && x->sym[mg_expr(x, e)->u.i].lo > 1) return true;
  return mg_sym_settle(x, e, rows) && *rows > 1;
}

bool mg_loop_rows(MgRec *r, PyObject *fn, PyObject *carried, PyObject *xs, PyObject *more, PyObject **out) {
  PyObject *part[3] = {carried, xs, more}, *args = NULL;
  int64_t rows;
  if (mg_retry_denied(r, RETRY_loops) || !carried || !xs) return false;
  for (int i = 0; i < 3; i++)
    if (part[i] && !PyTuple_Check(part[i]) && !PyList_Check(part[i])) return false;
  if (!loop_all_tensors(carried) || !loop_all_tensors(xs) || !PySequence_Fast_GET_SIZE(xs)) return false;
  const MgVal *v = mg_val(r->g, mg_standin_val(PySequence_Fast_GET_ITEM(xs, 0)));
  if (!v->ndim || !loop_row_count(r->g->x, v->size[0], &rows)) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(xs); i++)
    if (!mg_val(r->g, mg_standin_val(PySequence_Fast_GET_ITEM(xs, i)))->ndim) return false;
  MgHigher h = {.r = r};
  args = PyList_New(0);
  for (int i = 0; args && i < 3; i++)
    if (part[i] && PyList_SetSlice(args, PyList_GET_SIZE(args), PyList_GET_SIZE(args), part[i]))
      Py_CLEAR(args);
  *out = args ? loop_row_part(&h, fn, args, (uint32_t)PySequence_Fast_GET_SIZE(carried),
                              (uint32_t)PySequence_Fast_GET_SIZE(xs), rows)
              : NULL;
  bool unroll = !*out && !PyErr_Occurred();
  if (!*out && r->abort && !mg_retry_failed(r, RETRY_sizes)) { /* unrolled, it may go */
    mg_retry_fail(r, RETRY_loops);
    r->again = true;
  }
  mg_higher_free(&h);
  Py_XDECREF(args);
  return !unroll;
}

static PyMethodDef loop_methods[] = {
    {"emit", higher_emit, METH_VARARGS,
     "emit(op, args, part, /): appends a branch or loop, args[0] its tensors, to the recording."},
    {"emit_gradients", higher_emit_gradients, METH_VARARGS,
     "emit_gradients(op, args, xs, need, /): its gradients, of xs[i] for i in need."},
    {NULL, NULL, 0, NULL}};

int mg_loop_init(PyObject *module) { return PyModule_AddFunctions(module, loop_methods); }
