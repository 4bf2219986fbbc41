/* See the header.  In: a function and stand-ins.  Out: an MgPart; the graph is as long as before.
 * What the part reads of the recording around it, its arguments included, becomes its inputs. */
#include "record/higher_order/subgraph.h"
#include <Python.h>
#include <stddef.h>
#include <stdlib.h>
#include <structmember.h>
#include <string.h>
#include "entry/guard/guard_set.h"
#include "entry/launch/config.h"
#include "entry/launch/graph_interp.h"
#include "entry/launch/trace.h"
#include "entry/run/snapshot_run.h"
#include "host/python/hook_mode.h"
#include "host/python/pyobject.h"
#include "host/torch/tensor_facts.h"
#include "record/core/capture.h"
#include "record/core/ops.h"
#include "record/core/recording.h"
#include "record/core/source_place.h"
#include "record/core/subgraph_state.h"
#include "record/dispatch/dispatch.h"
#include "record/fx/fx.h"
#include "record/higher_order/fx_region.h"
#include "record/higher_order/fx_subgraph.h"
#include "record/higher_order/subgraph_sizes.h"
#include "record/snapshot/snapshot.h"
#include "record/symbolic/sizes.h"

#define PY_SSIZE_T_CLEAN

static PyTypeObject part_type;
static MgPartRun *part_run_new(void);

/* ---- what may be in a part ---- */

static const char part_draws[] = "draws random numbers";

/* Why these nodes cannot be taken out of the recording, or NULL. */
static const char *part_effect(const MgGraph *g, NodeRef first) {
  for (NodeRef k = first; k < g->nnode; k++) {
    const MgNode *n = mg_node(g, k);
    if (mg_node_random(n)) return part_draws;
    if (n->leaf) return "makes a leaf of the gradient graph";
    for (int i = 0; n->op->mutates && i < n->nout; i++) {
      uint32_t storage = n->out[i] ? mg_val(g, n->out[i])->storage : 0;
      if (storage && mg_val(g, storage)->def < first) return "writes to a tensor from outside";
    }
    if (n->op->mutates && !n->nout) return "has a side effect";
  }
  return NULL;
}

/* Is a number among those made since there were n of them that only values of tensors tell? */
static bool part_reads_number(const MgCapture *cap, Py_ssize_t n) {
  bool late = false;
  for (; cap->syms && n < PyList_GET_SIZE(cap->syms); n++) {
    const MgSymNode *s = (MgSymNode *)PyList_GET_ITEM(cap->syms, n);
    late |= !s->src && !s->hint;
  }
  return late;
}

/* ---- inputs ---- */

typedef struct PartSeek {
  MgPart *p;
  const MgGraph *g;
  NodeRef first;
  bool *seen;
} PartSeek;

static void part_see(ValRef *v, void *arg) {
  PartSeek *s = arg;
  if (!*v || s->seen[*v] || mg_val(s->g, *v)->def >= s->first) return;
  s->seen[*v] = true;
  s->p->in[s->p->nin++] = *v;
}

static int part_inputs(MgRec *r, MgPart *p, NodeRef first) {
  PartSeek s = {p, r->g, first, mg_new(r->g->c, bool, r->g->nval + 1)};
  p->in = mg_new(r->g->c, ValRef, r->g->nval + 1);
  if (!s.seen || !p->in) return PyErr_NoMemory(), -1;
  for (NodeRef k = first; k < r->g->nnode; k++) mg_node_each_val(mg_node(r->g, k), part_see, &s);
  return 0;
}

/* ---- results ---- */

PyObject *mg_part_flatten(PyObject *res, PyObject **spec) {
  MgPause pause = mg_rec_pause();
  PyObject *m = mg_import("torch.utils._pytree"),
           *pair = m ? PyObject_CallMethod(m, "tree_flatten", "(O)", res) : NULL, *l = NULL;
  if (pair && PyTuple_Check(pair) && PyTuple_GET_SIZE(pair) == 2) {
    l = PySequence_List(PyTuple_GET_ITEM(pair, 0));
    *spec = Py_NewRef(PyTuple_GET_ITEM(pair, 1));
  }
  Py_XDECREF(m);
  Py_XDECREF(pair);
  mg_rec_resume(pause);
  return l;
}

/* Takes ints out of the leaves. */
static int part_sort(MgPart *p, PyObject **leaves) {
  Py_ssize_t n = PyList_GET_SIZE(*leaves), nint = 0;
  for (Py_ssize_t i = 0; i < n; i++) nint += PyLong_CheckExact(PyList_GET_ITEM(*leaves, i));
  if (!nint) return 0;
  PyObject *rest = PyList_New(0);
  if (!rest || !(p->ints = PyList_New(n))) return Py_XDECREF(rest), -1;
  int rc = 0;
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *o = PyList_GET_ITEM(*leaves, i);
    bool number = PyLong_CheckExact(o);
    if (!number) rc |= PyList_Append(rest, o);
    PyList_SET_ITEM(p->ints, i, Py_NewRef(number ? o : Py_None));
  }
  Py_SETREF(*leaves, rest);
  return rc;
}

/* Puts them back among the tensors.  Steals res. */
static PyObject *part_with_ints(const MgPart *p, PyObject *res) {
  Py_ssize_t n = PyList_GET_SIZE(p->ints), at = 0;
  PyObject *all = PyList_New(n);
  for (Py_ssize_t i = 0; all && i < n; i++) {
    PyObject *o = PyList_GET_ITEM(p->ints, i);
    PyList_SET_ITEM(all, i, Py_NewRef(o == Py_None ? PyList_GET_ITEM(res, at++) : o));
  }
  Py_DECREF(res);
  return all;
}

PyObject *mg_part_nest(const MgPart *p, PyObject *res) {
  if (p->ints) res = part_with_ints(p, res);
  MgPause pause = mg_rec_pause();
  PyObject *m = res ? mg_import("torch.utils._pytree") : NULL;
  PyObject *r = m ? PyObject_CallMethod(m, "tree_unflatten", "OO", res, p->spec) : NULL;
  mg_rec_resume(pause);
  Py_XDECREF(m);
  Py_XDECREF(res);
  return r;
}

/* Every result is a tensor of its own. */
static int part_results(MgRec *r, MgPart *p, PyObject *leaves, NodeRef first) {
  MgGraph *g = r->g;
  Py_ssize_t n = PyList_GET_SIZE(leaves);
  if (!(p->out = mg_new(g->c, ValRef, n + 1))) return PyErr_NoMemory(), -1;
  for (; p->nout < n; p->nout++) {
    PyObject *o = PyList_GET_ITEM(leaves, p->nout), *own = NULL;
    if (!mg_standin_check(o))
      return mg_rec_break(BK_branch_results, "a branch or loop body with a result that is no tensor"), -1;
    ValRef v = mg_standin_val(o);
    p->grad |= mg_facts_requires_grad(o);
    bool shared = mg_val(g, mg_val(g, v)->storage)->def < first;
    for (uint32_t i = 0; i < p->nout; i++) shared |= mg_val(g, p->out[i])->storage == mg_val(g, v)->storage;
    if (shared) {
      PyObject *args = PyTuple_Pack(1, o);
      own = args ? mg_dispatch_call(r->cap, "clone", "default", args, NULL) : NULL;
      Py_XDECREF(args);
      if (!own) return -1;
    }
    p->out[p->nout] = mg_standin_val(own ? own : o);
    Py_XDECREF(own);
  }
  return 0;
}

/* ---- recording ---- */

/* Ends the region too. */
static MgPart *part_take(MgRec *r, PyObject *res, NodeRef first, MgFxRegion *region, bool ints) {
  MgPart *p = PyObject_New(MgPart, &part_type);
  if (!p) return mg_fx_region_end(r, region, NULL, NULL), NULL;
  memset((char *)p + sizeof(PyObject), 0, sizeof *p - sizeof(PyObject));
  PyObject *leaves = mg_part_flatten(res, &p->spec);
  MgPartSizes *sizes = NULL;
  bool *keep = NULL;
  int rc = leaves && !(ints && part_sort(p, &leaves)) ? part_results(r, p, leaves, first) : -1;
  if (mg_fxpart_end(r, region, rc ? NULL : leaves, p)) rc = -1;
  Py_XDECREF(leaves);
  if (!rc) rc = part_inputs(r, p, first);
  if (!rc && mg_symsize_inputs(&r->cap->sizes) && !(sizes = mg_partsize_new(r, first, p->in, &p->nin)) &&
      PyErr_Occurred())
    rc = -1;
  if (!rc && r->want_fx && !p->shown && mg_symsize_inputs(&r->cap->sizes)) {
    mg_symsize_give_up(r, "a branch or loop body that only ATen nodes show, in a graph with symbolic sizes");
    rc = -1;
  }
  if (!rc && !(keep = mg_new(r->g->c, bool, r->g->nnode + 1))) rc = (PyErr_NoMemory(), -1);
  p->plain = true;
  for (NodeRef k = first; !rc && k < r->g->nnode; k++) {
    keep[k] = true;
    p->plain &= strncmp(mg_node(r->g, k)->op->name, "magneto::", strlen("magneto::")) != 0;
  }
  MgPause pause = mg_rec_pause();
  if (!rc && !(p->run = part_run_new())) rc = -1;
  if (!rc && !(p->run->run = mg_noderun_build_part(mg_rec_trace(r, &(MgTrace){0}), keep, NULL, p->in, p->nin,
                                                   p->out, p->nout)))
    rc = -1;
  if (!rc) {
    p->run->nin = p->nin;
    p->run->nout = p->nout;
    p->run->sizes = sizes;
    sizes = NULL;
  }
  bool shows = r->want_fx || (r->cfg && r->cfg->explained);
  if (!rc && shows && !mg_symsize_inputs(&r->cap->sizes) &&
      !(p->graph = mg_fx_part(r, first, p->in, p->nin, p->out, p->nout)))
    rc = -1;
  mg_rec_resume(pause);
  mg_partsize_free(sizes);
  if (rc) Py_CLEAR(p);
  return p;
}

MgPart *mg_part_record(MgRec *r, PyObject *fn, PyObject *const *arg, Py_ssize_t n, bool ints) {
  if (r->cap->sizes.ndata)
    return mg_rec_break(BK_data_dependent, "a branch or loop body beside sizes that depend on data"), NULL;
  MgCapture *cap = r->cap;
  MgSnapshot *before = mg_snapshot_build(NULL, 0, NULL, Py_None), *after = NULL;
  const MgFunction *function = cap->function;
  Py_ssize_t syms = cap->syms ? PyList_GET_SIZE(cap->syms) : 0;
  uint32_t drawn = r->guards->ndraw;
  NodeRef first = r->g->nnode;
  bool quiet = cap->quiet;
  MgPart *p = NULL;
  if (!before) return NULL;
  bool in_part = cap->in_part;
  MgFxRegion region;
  if (mg_fxpart_begin(r, &region, arg, n)) {
    mg_snapshot_free(before);
    return NULL;
  }
  cap->quiet |= !region.open; /* a torch-level graph shows the whole */
  cap->in_part = true;
  PyObject *res = mg_ops.call(fn, arg, (size_t)n, NULL);
  cap->quiet = quiet;
  cap->in_part = in_part;
  if (res && (after = mg_snapshot_build(NULL, 0, NULL, Py_None))) {
    const char *why = part_effect(r->g, first);
    if (r->guards->ndraw != drawn) why = part_draws;
    if (!why && !mg_snapshot_same(before, after)) why = "has a side effect";
    if (!why && cap->function != function) why = "calls an autograd.Function";
    if (!why && part_reads_number(cap, syms)) why = "reads a number out of a tensor";
    if (why)
      mg_rec_break(why == part_draws ? BK_branch_random : BK_branch_effect, "a branch or loop body that %s",
                   why);
    else p = part_take(r, res, first, &region, ints);
  }
  mg_fx_region_end(r, &region, NULL, NULL);
  Py_XDECREF(res);
  mg_snapshot_free(before);
  mg_snapshot_free(after);
  if (p) {
    p->nnode = (uint32_t)(r->g->nnode - first);
    r->g->nnode = first;
  }
  return p;
}

int mg_part_bind(MgPart *p, const ValRef *all, uint32_t n) {
  uint32_t *pick = p->run->pick = mg_calloc(p->nin + 1, sizeof *pick);
  if (!pick) return PyErr_NoMemory(), -1;
  for (uint32_t i = 0; i < p->nin; i++)
    while (pick[i] < n && all[pick[i]] != p->in[i]) pick[i]++;
  return 0;
}

/* Are these equal in this run?  Then the recording relies on it. */
static bool part_same_size(const MgGraph *g, SymRef a, SymRef b) {
  return mg_ex_same(a, b) || (g->x->ask && g->x->ask->equal(g->x->ask->of, a, b));
}

bool mg_part_alike(const MgGraph *g, const MgPart *a, const MgPart *b) {
  bool same =
      a->nout == b->nout && !a->ints == !b->ints && PyObject_RichCompareBool(a->spec, b->spec, Py_EQ) == 1;
  if (same && a->ints) same = PyObject_RichCompareBool(a->ints, b->ints, Py_EQ) == 1;
  mg_clear_as_no();
  for (uint32_t i = 0; same && i < a->nout; i++) {
    const MgVal *x = mg_val(g, a->out[i]), *y = mg_val(g, b->out[i]);
    same =
        x->dtype == y->dtype && x->ndim == y->ndim && x->device == y->device && x->dev_index == y->dev_index;
    for (int d = 0; same && d < x->ndim; d++)
      same = part_same_size(g, x->size[d], y->size[d]) && part_same_size(g, x->stride[d], y->stride[d]);
  }
  return same;
}

/* ---- running ---- */

/* run(tensors) -> list of tensors */
static PyObject *part_call(PyObject *self, PyObject *args, PyObject *kw) {
  MgPartRun *p = (MgPartRun *)self;
  PyObject *tensors, *list = NULL;
  if (!PyArg_ParseTuple(args, "O!:run", &PyList_Type, &tensors)) return NULL;
  PyObject **in = mg_calloc(p->nin + p->nout + 1, sizeof *in), **out = in ? in + p->nin : NULL;
  if (!in) return PyErr_NoMemory();
  for (uint32_t i = 0; i < p->nin; i++) {
    if (!p->pick || p->pick[i] >= PyList_GET_SIZE(tensors)) {
      free(in);
      return PyErr_Format(PyExc_SystemError, "magneto: a part of a graph is called with too few tensors");
    }
    in[i] = PyList_GET_ITEM(tensors, p->pick[i]);
  }
  if (!mg_partsize_run(p->sizes, p->run, in, out) && (list = PyList_New(p->nout)))
    for (uint32_t i = 0; i < p->nout; i++) PyList_SET_ITEM(list, i, Py_NewRef(out[i]));
  for (uint32_t i = 0; i < p->nout; i++) Py_XDECREF(out[i]);
  free(in);
  return list;
}

static void part_run_dealloc(PyObject *self) {
  MgPartRun *p = (MgPartRun *)self;
  mg_noderun_free(p->run);
  mg_partsize_free(p->sizes);
  free(p->pick);
  PyObject_Free(self);
}

static PyTypeObject part_run_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "magneto._magneto.PartRun",
    .tp_basicsize = sizeof(MgPartRun),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_call = part_call,
    .tp_dealloc = part_run_dealloc,
};

static MgPartRun *part_run_new(void) {
  MgPartRun *p = PyObject_New(MgPartRun, &part_run_type);
  if (p) memset((char *)p + sizeof(PyObject), 0, sizeof *p - sizeof(PyObject));
  return p;
}

static void part_dealloc(PyObject *self) {
  MgPart *p = (MgPart *)self;
  Py_XDECREF(p->run);
  Py_XDECREF(p->fast);
  Py_XDECREF(p->graph);
  Py_XDECREF(p->shown);
  Py_XDECREF(p->reads);
  Py_XDECREF(p->ints);
  Py_XDECREF(p->spec);
  PyObject_Free(self);
}

static PyMemberDef part_members[] = {
    {"run", T_OBJECT, offsetof(MgPart, run), READONLY, "Runs the ops one by one."},
    {"fast", T_OBJECT, offsetof(MgPart, fast), 0, "What runs them faster, or None."},
    {"plain", T_BOOL, offsetof(MgPart, plain), READONLY, "No branches or loops are among them."},
    {NULL, 0, 0, 0, NULL}};

static PyTypeObject part_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "magneto._magneto.Part",
    .tp_basicsize = sizeof(MgPart),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_members = part_members,
    .tp_dealloc = part_dealloc,
};

int mg_part_init(PyObject *module) {
  return PyType_Ready(&part_run_type) || PyType_Ready(&part_type) ? -1 : 0;
}
