/* See the header.  Building and the forward side; the node of the gradient graph is in grad_node.c. */
#include "entry/grad/joint_plans.h"
#include <stdlib.h>
#include <string.h>
#include "base/assert.h"
#include "base/bits.h"
#include "driver/compile.h"
#include "entry/grad/undefined_tangents.h"
#include "entry/launch/config.h"
#include "entry/launch/graph_interp.h"
#include "entry/launch/op_call.h"
#include "entry/launch/plan_call.h"
#include "entry/launch/trace.h"
#include "entry/launch/view_fixup.h"
#include "host/python/notices.h"
#include "ir/graph/joint_spec.h"

static void autograd_dealloc(PyObject *o) {
  MgAutograd *a = (MgAutograd *)o;
  if (a->fwd && !a->plans) mg_plan_free(a->fwd);
  if (a->bwd && !a->plans) mg_plan_free(a->bwd);
  if (!a->plans) free(a->saved);
  mg_gradgiven_free(a);
  Py_XDECREF(a->plans);
  free(a->sizes);
  mg_noderun_free(a->nodes);
  mg_noderun_free(a->replay);
  for (uint32_t i = 0; a->tangent && i < a->nthrough; i++) free(a->tangent[i].dim);
  Py_XDECREF(a->parts);
  free(a->res);
  free(a->tangent);
  free(a->diff);
  free(a->grad);
  free(a->bits);
  free(a->reach);
  free(a->mate);
  free(a->link);
  free(a->port);
  free(a->keep);
  free(a->copy);
  free(a->written);
  free(a->loose);
  PyObject_Free(o);
}

static PyTypeObject autograd_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "magneto._magneto.Autograd",
    .tp_basicsize = sizeof(MgAutograd),
    .tp_dealloc = autograd_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

int mg_autograd_init(void) {
  static bool done;
  if (!done && (PyType_Ready(&autograd_type) || mg_gradnode_init())) return -1;
  done = true;
  return 0;
}

/* ---- building ---- */

static MgRc autograd_tangents(MgAutograd *a, const MgGraph *g, const MgJointRec *j) {
  for (uint32_t i = 0; i < j->nthrough; i++) {
    const MgVal *v = mg_val(g, j->tangent[i]);
    MgTangent *t = &a->tangent[i];
    t->dtype = v->dtype;
    t->device = v->device;
    t->device_index = v->dev_index < 0 ? 0 : v->dev_index;
    t->ndim = v->ndim;
    if (!(t->dim = mg_calloc(2 * (size_t)v->ndim + 1, sizeof *t->dim))) return MG_NOMEM;
    for (int k = 0; k < v->ndim; k++)
      if (!mg_ex_const_int(g->x, v->size[k], &t->dim[k]) ||
          !mg_ex_const_int(g->x, v->stride[k], &t->dim[v->ndim + k]))
        return mg_fail(g->c, MG_UNSUP, "a gradient of symbolic size");
  }
  return MG_OK;
}

/* The results of the segment and the views among them.  Graph inputs are numbered already. */
static MgRc autograd_results(MgAutograd *a, const MgTrace *t, const ValRef *out) {
  MgGraph *g = t->g;
  const MgJointRec *j = t->joint;
  uint32_t nin = a->nprimal + j->nthrough + j->naside, nview = 0;
  ValRef *in = mg_new(g->c, ValRef, nin + 1), *view = mg_new(g->c, ValRef, j->nres + 1);
  if (!in || !view) return MG_NOMEM;
  for (uint32_t i = 0; i < j->nres; i++) {
    a->res[i] = j->res[i];
    if (j->res[i].how == RES_input) a->res[i].index = mg_val(g, t->input[j->res[i].index].val)->out;
    if (j->res[i].how == RES_view) view[nview++] = out[i];
  }
  if (!nview) return MG_OK;
  memcpy(in, g->input, a->nprimal * sizeof *in);
  memcpy(in + a->nprimal, j->through, j->nthrough * sizeof *in);
  memcpy(in + a->nprimal + j->nthrough, j->aside, j->naside * sizeof *in);
  a->replay = mg_noderun_build_part(t, j->replay, j->same, in, nin, view, nview);
  return a->replay ? MG_OK : MG_PYERR;
}

/* Gradients by input; the graph's outputs name each value once. */
static MgRc autograd_grads(MgAutograd *a, const MgTrace *t) {
  MgGraph *g = t->g;
  const MgJointRec *j = t->joint;
  for (uint32_t i = 0; i < j->ndiff; i++) {
    a->diff[i] = mg_val(g, t->input[j->diff[i]].val)->out;
    memcpy(a->reach + (size_t)a->words * i, j->reach + (size_t)a->words * i, a->words * sizeof *a->reach);
    a->grad[i] = -1;
    if (!j->grad[i]) continue;
    for (uint32_t k = 0; k < i && a->grad[i] < 0; k++)
      if (j->grad[k] == j->grad[i]) a->grad[i] = a->grad[k];
    if (a->grad[i] >= 0) continue;
    a->bits[a->ngrad] = mg_val(g, j->grad[i])->bits;
    a->grad[i] = (int32_t)a->ngrad++;
    TRY(mg_graph_output(g, j->grad[i]));
  }
  return MG_OK;
}

typedef struct ReadBy {
  const MgGraph *g;
  bool *read;
  const MgNode *n;
} ReadBy;

static void autograd_see_read(ValRef *v, void *arg) {
  ReadBy *s = arg;
  if (*v) s->read[mg_val(s->g, *v)->storage] = true;
}

static void autograd_arg_read(MgArg *a, ReadBy *s) {
  if (a->tag == MA_val) autograd_see_read(&a->u.val, s);
  for (uint32_t i = 0; a->tag == MA_list && i < a->n; i++) autograd_arg_read(&a->u.item[i], s);
}

/* Batch norm in training writes its running statistics without saying so. */
static void autograd_norm(const MgGraph *g, const MgNode *n, bool *write, bool *read) {
  int stats = mg_op_param(n->op, "running_mean"), end = mg_op_param(n->op, "training");
  for (int i = 0; i < end; i++) {
    if (n->arg[i].tag != MA_val || !n->arg[i].u.val) continue;
    bool *list = i >= stats ? write : read;
    list[mg_val(g, n->arg[i].u.val)->storage] = true;
  }
}

static MgRc autograd_loose(MgAutograd *a, const MgTrace *t) {
  bool *loose;
  if (mg_function_loose(t, t->joint->backward, &loose)) return MG_NOMEM;
  for (uint32_t i = 0; loose && i < a->nprimal; i++)
    a->loose[i] = loose[mg_val(t->g, t->g->input[i])->storage];
  return MG_OK;
}

/* Which primals forward writes, and which of them it also reads: batch norm's running statistics, which
 * training only writes, and counters that are only stepped do not count as read. */
static MgRc autograd_written(MgAutograd *a, const MgTrace *t) {
  MgGraph *g = t->g;
  bool *write = mg_new(g->c, bool, g->nval + 1), *read = mg_new(g->c, bool, g->nval + 1);
  ReadBy s = {.g = g, .read = read};
  if (!write || !read) return MG_NOMEM;
  for (NodeRef n = 1; n < t->joint->backward; n++) {
    MgNode *node = mg_node(g, n);
    if (mg_node_random(node)) a->random = true;
    if (mg_node_trains_norm(node)) {
      autograd_norm(g, node, write, read);
      continue;
    }
    if (!node->op->mutates) {
      mg_node_each_val(node, autograd_see_read, &s);
      continue;
    }
    for (int i = 0; i < node->nout; i++)
      if (node->out[i]) write[mg_val(g, node->out[i])->storage] = true;
    for (MgWritten w = {0}; mg_node_written(node, &w);)
      write[mg_val(g, w.v)->storage] = true; /* need not be a result */
    for (int i = 0; i < node->narg && i < node->op->nparam; i++)
      if (!node->op->param[i].writes) autograd_arg_read(&node->arg[i], &s);
  }
  for (uint32_t i = 0; i < a->nprimal; i++) {
    uint32_t at = mg_val(g, g->input[i])->storage;
    a->written[i] = write[at];
    a->copy[i] = write[at] && read[at];
  }
  return MG_OK;
}

/* -1: out of memory. */
static int autograd_links(MgAutograd *a, const MgJointRec *j) {
  if (!(a->nport = j->nport)) return 0;
  a->link = mg_calloc((size_t)a->words * j->nthrough, sizeof *a->link);
  a->port = mg_calloc(j->nport, sizeof *a->port);
  if (!a->link || !a->port) return -1;
  memcpy(a->link, j->link, (size_t)a->words * j->nthrough * sizeof *a->link);
  memcpy(a->port, j->port, j->nport * sizeof *a->port);
  return 0;
}

static MgAutograd *autograd_new(const MgJointRec *j, uint32_t nprimal) {
  MgAutograd *a = PyObject_New(MgAutograd, &autograd_type);
  if (!a) return NULL;
  memset((char *)a + sizeof(PyObject), 0, sizeof *a - sizeof(PyObject));
  a->nprimal = nprimal;
  a->nthrough = j->nthrough;
  a->naside = j->naside;
  a->nres = j->nres;
  a->ndiff = j->ndiff;
  a->res = mg_calloc(j->nres + 1, sizeof *a->res);
  a->tangent = mg_calloc(j->nthrough + 1, sizeof *a->tangent);
  a->diff = mg_calloc(j->ndiff + 1, sizeof *a->diff);
  a->grad = mg_calloc(j->ndiff + 1, sizeof *a->grad);
  a->bits = mg_calloc(j->ndiff + 1, sizeof *a->bits);
  a->words = mg_bits_words(j->nthrough);
  a->reach = mg_calloc((size_t)a->words * (j->ndiff + 1), sizeof *a->reach);
  a->mate = j->mate ? mg_calloc((size_t)a->words * j->nthrough, sizeof *a->mate) : NULL;
  a->keep = mg_calloc(nprimal + 1, sizeof *a->keep);
  a->copy = mg_calloc(nprimal + 1, sizeof *a->copy);
  a->written = mg_calloc(nprimal + 1, sizeof *a->written);
  a->loose = mg_calloc(nprimal + 1, sizeof *a->loose);
  bool ok = a->res && a->tangent && a->diff && a->grad && a->bits && a->reach && a->keep && a->copy &&
            a->written && a->loose;
  if (ok && !a->mate == !j->mate && !autograd_links(a, j)) {
    if (j->mate) memcpy(a->mate, j->mate, (size_t)a->words * j->nthrough * sizeof *a->mate);
    return a;
  }
  Py_DECREF(a);
  return (MgAutograd *)PyErr_NoMemory();
}

/* What the plans ask for, and what else a second differentiation wants. */
static void autograd_adopt(MgAutograd *a, MgJointPlans *p, bool frees) {
  a->fwd = p->fwd;
  a->bwd = p->bwd;
  a->saved = p->saved;
  a->nsaved = p->nsaved;
  a->nintermediate = p->nintermediate;
  for (uint32_t k = 0; k < a->nsaved; k++)
    a->nloose += a->saved[k].kind == MG_SAVED_primal && a->loose[a->saved[k].index];
  a->frees = frees && a->nsaved == a->nloose;
  for (uint32_t i = 0; i < a->nprimal; i++) {
    bool saved = false;
    for (uint32_t k = 0; k < a->nsaved && !saved; k++)
      saved = a->saved[k].kind == MG_SAVED_primal && a->saved[k].index == i;
    if (!saved || a->copy[i]) a->keep[a->nkeep++] = i;
  }
  if (!a->bwd) return;
  MgPlanInfo info;
  mg_plan_info(a->bwd, &info);
  a->extern_bwd = info.nextern > 0;
}

/* What the segment asks for early, as outputs of the joint graph: numbers, which are copied out of tensors.
 */
static MgRc autograd_early(const MgTrace *t) {
  MgGraph *g = t->g;
  const MgJointRec *j = t->joint;
  const bool *asked = g->early;
  if (!asked) return MG_OK;
  TRYP(g->early = mg_new(g->c, bool, g->noutput + 1));
  for (uint32_t i = 0; i < j->nres; i++) {
    if (!asked[i]) continue;
    MG_ASSERT(j->res[i].how != RES_view, "a claim reads a view, which is made after the run");
    if (j->res[i].how == RES_through) g->early[j->res[i].index] = true;
    if (j->res[i].how == RES_aside) g->early[j->nthrough + j->res[i].index] = true;
  }
  return MG_OK;
}

/* The joint graph: primals and tangents -> results and gradients. */
static MgRc autograd_graph(MgAutograd *a, const MgTrace *t) {
  MgGraph *g = t->g;
  const MgJointRec *j = t->joint;
  mg_joint_extend(t);
  g->ninput = a->nprimal;
  for (uint32_t i = 0; i < j->nthrough; i++) TRYP(mg_graph_input(g, j->tangent[i]));
  g->noutput = 0;
  for (uint32_t i = 0; i < j->nthrough; i++) TRY(mg_graph_output(g, j->through[i]));
  for (uint32_t i = 0; i < j->naside; i++) TRY(mg_graph_output(g, j->aside[i]));
  TRY(autograd_grads(a, t));
  return autograd_early(t);
}

static MgRc autograd_prepare(MgAutograd *a, const MgTrace *t) {
  MgGraph *g = t->g;
  ValRef *out = mg_new(g->c, ValRef, g->noutput + 1);
  if (!out) return MG_NOMEM;
  memcpy(out, g->output, g->noutput * sizeof *out);
  TRY(autograd_results(a, t, out));
  TRY(autograd_graph(a, t));
  TRY(autograd_tangents(a, g, t->joint));
  TRY(autograd_loose(a, t));
  return autograd_written(a, t);
}

static MgRc autograd_compile(MgAutograd *a, const MgTrace *t) {
  MgHostOps fwd, bwd;
  MgJointPlans plans = {0};
  MgJointSpec spec = {.nprimal = a->nprimal, .nfwd = a->nthrough + a->naside, .backward = t->joint->backward};
  if (spec.backward == t->g->nnode) spec.backward = 0; /* gradients are tangents as they come */
  if (mg_nodecall_hostops(t->objs, &fwd)) return MG_PYERR;
  if (mg_nodecall_hostops(t->objs, &bwd)) {
    fwd.host.free(fwd.host.self);
    return MG_PYERR;
  }
  bool some = a->nthrough > 1; /* may be undefined */
  if (some && !(a->kept = mg_gradgiven_keep(t->objs, t->opt))) {
    fwd.host.free(fwd.host.self);
    bwd.host.free(bwd.host.self);
    return MG_PYERR;
  }
  char forward[MG_TRACE_LABEL], backward[MG_TRACE_LABEL];
  fwd.label = mg_trace_label(t, "", forward);
  bwd.label = mg_trace_label(t, " backward", backward);
  fwd.recording = bwd.recording = t->recording;
  MgRc rc = mg_compile_joint(t->g, &spec, t->opt, &fwd, &bwd, a->kept ? &a->kept->g : NULL, &plans);
  mg_notices_tell();
  TRY(rc);
  autograd_adopt(a, &plans, t->joint->frees);
  return MG_OK;
}

static MgRc autograd_share(MgAutograd *a, const MgTrace *t, MgAutograd *plans, const int64_t *sizes,
                           uint32_t n) {
  MgJointPlans p = {.fwd = plans->fwd,
                    .bwd = plans->bwd,
                    .saved = plans->saved,
                    .nsaved = plans->nsaved,
                    .nintermediate = plans->nintermediate};
  if (!(a->sizes = mg_malloc(n * sizeof *sizes))) return mg_fail(t->g->c, MG_NOMEM, "out of memory");
  memcpy(a->sizes, sizes, n * sizeof *sizes);
  a->plans = (MgAutograd *)Py_NewRef((PyObject *)plans);
  a->kept = plans->kept;
  autograd_adopt(a, &p, t->joint->frees);
  return MG_OK;
}

MgRc mg_autograd_plans(const MgTrace *t, uint32_t nprimal, MgAutograd **out) {
  MgAutograd *a = *out = autograd_new(t->joint, nprimal);
  if (!a) return MG_PYERR;
  MgRc rc = autograd_graph(a, t);
  if (rc == MG_OK) rc = autograd_compile(a, t);
  if (rc != MG_OK) Py_CLEAR(*out);
  return rc;
}

MgRc mg_autograd_build_at(const MgTrace *t, MgNodeRun *nodes, uint32_t nprimal, MgAutograd *plans,
                          const int64_t *sizes, uint32_t n, MgAutograd **out) {
  MgAutograd *a = autograd_new(t->joint, nprimal);
  if (!a) return MG_PYERR;
  bool lost = !mg_function_all_whole(t);
  MgRc rc = autograd_prepare(a, t);
  if (rc == MG_OK) rc = plans ? autograd_share(a, t, plans, sizes, n) : autograd_compile(a, t);
  if (rc != MG_OK) {
    Py_DECREF(a);
    return rc;
  }
  a->nodes = nodes;
  a->lost = lost;
  *out = a;
  return MG_OK;
}

/* ---- running forward ---- */

/* The results of the segment from those of the plan. */
static int autograd_finish(const MgAutograd *a, PyObject *const *in, PyObject **res, PyObject **outs) {
  uint32_t nfwd = a->nthrough + a->naside, view = 0;
  PyObject **env = NULL, **views = NULL;
  if (a->replay) {
    env = mg_malloc((a->nprimal + nfwd + a->nres) * sizeof *env);
    if (!env) return PyErr_NoMemory(), -1;
    memcpy(env, in, a->nprimal * sizeof *env);
    memcpy(env + a->nprimal, res, nfwd * sizeof *env);
    views = env + a->nprimal + nfwd;
    if (mg_noderun_run(a->replay, env, views)) {
      free(env);
      return -1;
    }
  }
  for (uint32_t i = 0; i < a->nres; i++) {
    const MgResult *q = &a->res[i];
    switch ((MgResultHow)q->how) {
    case RES_through: outs[i] = Py_NewRef(res[q->index]); break;
    case RES_aside: outs[i] = Py_NewRef(res[a->nthrough + q->index]); break;
    case RES_input: outs[i] = Py_NewRef(in[q->index]); break;
    case RES_view: outs[i] = views[view++]; break;
    }
  }
  free(env);
  return 0;
}

typedef struct CheckedForward {
  const MgAutograd *a;
  PyObject *const *in;
  const MgRunCheck *check;
} CheckedForward;

/* Hands those results of the segment to the check that are there before anything is written. */
static int autograd_check(void *arg, PyObject **res) {
  const CheckedForward *f = arg;
  const MgAutograd *a = f->a;
  PyObject **outs = mg_calloc(a->nres + 1, sizeof *outs); /* borrowed */
  if (!outs) return PyErr_NoMemory(), -1;
  for (uint32_t i = 0; i < a->nres; i++) {
    const MgResult *q = &a->res[i];
    if (q->how == RES_through) outs[i] = res[q->index];
    if (q->how == RES_aside) outs[i] = res[a->nthrough + q->index];
    if (q->how == RES_input) outs[i] = f->in[q->index];
  }
  int rc = f->check->check(f->check->arg, outs);
  free(outs);
  return rc;
}

static int autograd_plan(MgAutograd *a, PyObject *const *in, const MgRunCheck *check, PyObject **res) {
  CheckedForward f = {a, in, check};
  return check ? mg_planrun_checked(a->fwd, in, a->sizes, res, autograd_check, &f)
               : mg_planrun(a->fwd, in, a->sizes, res);
}

/* The compiled forward.  Version counters are where eager leaves them before anything is saved. */
static int autograd_forward(MgAutograd *a, PyObject *const *in, const MgRunCheck *check, PyObject **res) {
  int64_t few[16], *was = few;
  uint32_t n = a->views ? mg_viewstate_versions(a->views, true) : 0;
  if (!n) return autograd_plan(a, in, check, res);
  if (n > 16 && !(was = mg_malloc(n * sizeof *was))) return PyErr_NoMemory(), -1;
  int rc = mg_viewstate_before(a->views, in, was);
  if (!rc) rc = autograd_plan(a, in, check, res);
  if (!rc && mg_viewstate_count(a->views, in, was)) {
    for (uint32_t i = 0; i < a->nthrough + a->naside + a->nintermediate; i++) Py_XDECREF(res[i]);
    rc = -1;
  }
  if (was != few) free(was);
  return rc;
}

int mg_autograd_run(MgAutograd *a, PyObject *const *in, const MgRunCheck *check, PyObject **outs) {
  PyObject *small[32], **res = small, *state;
  uint32_t n = a->nthrough + a->naside + a->nintermediate;
  if (n > 32 && !(res = mg_malloc(n * sizeof *res))) return PyErr_NoMemory(), -1;
  bool was = mg_abi.aoti_torch_grad_mode_is_enabled(); /* off: the program turns it on itself */
  mg_abi.aoti_torch_grad_mode_set_enabled(false);
  int rc = mg_gradnode_before(a, in, &state);
  if (!rc) rc = autograd_forward(a, in, check, res);
  if (!rc) {
    mg_abi.aoti_torch_grad_mode_set_enabled(true);
    rc = mg_gradnode_attach(a, in, res, state) || autograd_finish(a, in, res, outs) ? -1 : 0;
    for (uint32_t i = 0; i < n; i++) Py_XDECREF(res[i]);
  }
  mg_abi.aoti_torch_grad_mode_set_enabled(was);
  Py_XDECREF(state);
  if (res != small) free(res);
  return rc;
}

int mg_autograd_all(const MgAutograd *a, PyObject *const *in, PyObject **all, const MgNodeCut *cut) {
  if (!a->lost) return cut ? mg_noderun_run_cut(a->nodes, in, all, cut) : mg_noderun_run(a->nodes, in, all);
  PyErr_SetString(
      PyExc_RuntimeError,
      "magneto: a compiled function with an autograd.Function whose inner values are used outside "
      "of it cannot run op by op (second derivatives, anomaly mode)");
  return -1;
}

int mg_autograd_run_nodes(MgAutograd *a, PyObject *const *in, PyObject **outs) {
  uint32_t n = a->nres + a->nthrough;
  PyObject **all = mg_malloc(n * sizeof *all);
  if (!all) return PyErr_NoMemory(), -1;
  int rc = mg_autograd_all(a, in, all, NULL);
  for (uint32_t i = 0; !rc && i < n; i++) {
    if (i < a->nres) outs[i] = all[i];
    else Py_DECREF(all[i]);
  }
  free(all);
  return rc;
}
