/* See the header.  In: values of the graph being recorded.  Out: the constants that they copy, or that
 * a few ops on small constants give (torch.div(12, 4)). */
#include "record/dispatch/constant_tensors.h"
#include <string.h>
#include "entry/guard/guard_add.h"
#include "entry/guard/source.h"
#include "entry/guard/tensor_contents.h"
#include "entry/launch/graph_interp.h"
#include "entry/launch/op_call.h"
#include "entry/launch/trace.h"
#include "host/python/hook_mode.h"
#include "host/python/pyobject.h"
#include "host/torch/function_stack.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "record/core/source_place.h"
#include "record/symbolic/unbacked.h"
#include "tuning.h"

PyObject *mg_constval(MgCapture *cap, ValRef v) {
  static const char *const copies[] = {"aten::clone", "aten::detach", "aten::alias", "aten::lift_fresh",
                                       NULL};
  MgGraph *g = cap->rec->g;
  while (v && g->val[v].def) {
    const MgNode *n = &g->node[g->val[v].def];
    int i = 0;
    while (copies[i] && strcmp(copies[i], n->op->full)) i++;
    ValRef from = mg_node_first(n);
    if (!copies[i] || !from || mg_graph_writes(g, g->val[v].storage)) return NULL;
    v = from;
  }
  for (uint32_t i = 0; v && i < cap->ninput; i++)
    if (cap->input[i].val == v)
      return (cap->input[i].pinned || cap->input[i].known) && !mg_graph_writes(g, g->val[v].storage)
                 ? cap->input[i].real
                 : NULL;
  return NULL;
}

/* ---- computed constants ---- */

enum { CONSTVAL_ARGS = 8 };

typedef struct Reads {
  ValRef v[CONSTVAL_ARGS];
  int n;
} Reads;

static void constval_read(ValRef *v, void *arg) {
  Reads *r = arg;
  if (r->n < CONSTVAL_ARGS) r->v[r->n] = *v;
  r->n++;
}

static bool constval_small(const MgGraph *g, ValRef v) {
  int64_t n = 1, size;
  for (int i = 0; i < g->val[v].ndim; i++) {
    if (!mg_sym_settle(g->x, g->val[v].size[i], &size) || size > MG_TUNE_CONSTANT_ELEMENTS) return false;
    n *= size;
  }
  return n <= MG_TUNE_CONSTANT_ELEMENTS;
}

/* Would the node give the same small tensor at every call, if its arguments are constants? */
static bool constval_pure(const MgGraph *g, const MgNode *n, ValRef v) {
  return !n->op->mutates && !mg_node_random(n) && !strstr(n->op->full, "empty") &&
         g->val[v].device == DEV_cpu && constval_small(g, v) && !mg_graph_writes(g, g->val[v].storage);
}

/* The constant that a value copies or is computed from; new, NULL without an exception when it is none.  Runs
 * ATen: not while the recording's mode is on torch's stack. */
static PyObject *constval_compute(MgCapture *cap, ValRef v, int *budget) {
  MgGraph *g = cap->rec->g;
  PyObject *in[CONSTVAL_ARGS] = {NULL}, *out[CONSTVAL_ARGS] = {NULL}, *r = mg_constval(cap, v);
  NodeRef def = v ? g->val[v].def : 0;
  Reads reads = {.n = 0};
  if (r || !def || (*budget)-- <= 0 || !constval_pure(g, &g->node[def], v) || mg_symdata_reads(cap, def))
    return Py_XNewRef(r);
  mg_node_each_tensor(&g->node[def], constval_read, &reads);
  if (reads.n > CONSTVAL_ARGS || g->node[def].nout > CONSTVAL_ARGS) return NULL;
  bool known = true;
  for (int i = 0; i < reads.n && known; i++)
    if (reads.v[i]) known = (in[i] = constval_compute(cap, reads.v[i], budget)) != NULL;
  MgNodeCall *call = known ? mg_nodecall_new(g, def, cap->objs) : NULL;
  if (call && mg_nodecall_nin(call) == reads.n && !mg_nodecall_run(call, in, out))
    r = Py_XNewRef(out[g->val[v].out]);
  if (call) mg_nodecall_free(call);
  for (int i = 0; i < CONSTVAL_ARGS; i++) {
    Py_XDECREF(in[i]);
    Py_XDECREF(out[i]);
  }
  mg_clear_as_no();
  return r;
}

/* Is the value computed of constants and of numbers out of sizes alone?  *sized: there are some of these. */
static bool constval_of_sizes(MgCapture *cap, ValRef v, int *budget, bool *sized) {
  MgGraph *g = cap->rec->g;
  Reads reads = {.n = 0};
  if (!v || (*budget)-- <= 0) return false;
  if (mg_constval(cap, v)) return true;
  NodeRef def = g->val[v].def;
  for (uint32_t i = 0; !def && i < cap->ninput; i++)
    if (cap->input[i].val == v && cap->input[i].sized) return *sized = true;
  if (!def || g->node[def].op->mutates || mg_node_random(&g->node[def]) ||
      mg_graph_writes(g, g->val[v].storage))
    return false;
  mg_node_each_tensor(&g->node[def], constval_read, &reads);
  for (int i = 0; i < reads.n; i++)
    if (i >= CONSTVAL_ARGS || (reads.v[i] && !constval_of_sizes(cap, reads.v[i], budget, sized)))
      return false;
  return true;
}

/* ---- small tensors of numbers from outside ---- */

typedef struct Contents {
  MgCapInput *input[CONSTVAL_ARGS];
  PyObject *now[CONSTVAL_ARGS]; /* strong */
  int n;
} Contents;

/* Appends the input v, if its numbers can be guarded. */
static bool constval_take_input(MgCapture *cap, ValRef v, Contents *found) {
  for (int i = 0; i < found->n; i++)
    if (found->input[i]->val == v) return true;
  for (uint32_t i = 0; i < cap->ninput; i++) {
    MgCapInput *in = &cap->input[i];
    if (in->val != v) continue;
    bool may = in->src && in->real && !in->array && !in->scalar && !in->outer && found->n < CONSTVAL_ARGS &&
               constval_small(cap->rec->g, v) && !mg_graph_writes(cap->rec->g, cap->rec->g->val[v].storage);
    PyObject *now = may ? mg_contents_of(in->real) : NULL;
    if (!now) return false;
    found->input[found->n] = in;
    found->now[found->n++] = now;
    return true;
  }
  return false;
}

/* Is the value computed of constants and of small tensors of numbers alone?  Appends these to found. */
static bool constval_of_contents(MgCapture *cap, ValRef v, int *budget, Contents *found) {
  MgGraph *g = cap->rec->g;
  Reads reads = {.n = 0};
  if (!v || (*budget)-- <= 0) return false;
  if (mg_constval(cap, v)) return true;
  NodeRef def = g->val[v].def;
  if (!def) return constval_take_input(cap, v, found);
  if (!constval_pure(g, &g->node[def], v) || mg_symdata_reads(cap, def)) return false;
  mg_node_each_tensor(&g->node[def], constval_read, &reads);
  for (int i = 0; i < reads.n; i++)
    if (i >= CONSTVAL_ARGS || (reads.v[i] && !constval_of_contents(cap, reads.v[i], budget, found)))
      return false;
  return true;
}

/* A context in which calls of torch are not recorded; to be left by mg_context_exit. */
static PyObject *constval_dispatch_off(void) {
  static PyObject *disable; /* torch._C._DisableTorchDispatch */
  PyObject *c = disable ? NULL : mg_import("torch._C");
  if (c) disable = PyObject_GetAttrString(c, "_DisableTorchDispatch");
  Py_XDECREF(c);
  return disable ? mg_context_enter(PyObject_CallNoArgs(disable)) : NULL;
}

static PyObject *constval_compute_aside(MgCapture *cap, ValRef v) {
  int budget = MG_TUNE_CONSTANT_NODES;
  MgPause pause = mg_rec_pause();
  PyObject *functions = mg_fmodes_off(), *off = functions ? constval_dispatch_off() : NULL;
  PyObject *r = off ? constval_compute(cap, v, &budget) : NULL;
  if (off && mg_context_exit(off)) Py_CLEAR(r);
  if (functions && mg_context_exit(functions)) Py_CLEAR(r);
  mg_rec_resume(pause);
  return r;
}

/* Is the input on a value stack, or what an iterator there goes over?  It was computed before a break. */
static bool constval_on_stack(const MgGuards *g, SrcRef src) {
  while (g->src[src].parent) src = g->src[src].parent;
  return g->src[src].kind == SRC_slot && mg_source_slot_on_stack(g, g->src[src].idx);
}

/* Have the numbers that were found little chance to come again? Those of a row that the rest of a loop looks
 * at differ from call to call. */
static bool constval_is_row(const MgRec *r, const Contents *found) {
  for (int i = 0; i < found->n; i++)
    if (PyTuple_GET_SIZE(found->now[i]) > 1 && constval_on_stack(r->guards, found->input[i]->src))
      return true;
  return false;
}

PyObject *mg_constval_contents(MgCapture *cap, ValRef v) {
  MgRec *r = cap->rec;
  Contents found = {.n = 0};
  int budget = MG_TUNE_CONSTANT_NODES;
  bool may = constval_of_contents(cap, v, &budget, &found);
  if (found.n && (r->want_fx || mg_retry_denied(r, RETRY_contents) || constval_is_row(r, &found)))
    may = false;
  for (int i = 0; i < found.n; i++) {
    if (may) mg_guard_add(r->guards, GK_content, found.input[i]->src, found.now[i], 0);
    found.input[i]->known |= may;
    Py_DECREF(found.now[i]);
  }
  return may ? constval_compute_aside(cap, v) : NULL;
}

void mg_constval_unknown(MgCapture *cap, ValRef v) {
  int budget = MG_TUNE_CONSTANT_NODES;
  bool sized = false;
  if (constval_of_sizes(cap, v, &budget, &sized) && sized) cap->sizes.value_asked = true;
}

PyObject *mg_constval_call(MgCapture *cap, PyObject *func, PyObject *args) {
  int budget = MG_TUNE_CONSTANT_NODES;
  bool sized = false;
  PyObject *o = PyTuple_GET_SIZE(args) == 1 ? PyTuple_GET_ITEM(args, 0) : NULL;
  /* computing asks for symbolic sizes: not on the way to an input */
  if (!o || !mg_standin_is(o) || !constval_of_sizes(cap, mg_standin_val(o), &budget, &sized)) return NULL;
  if (sized) {
    cap->sizes.value_asked = true;
    return NULL;
  }
  budget = MG_TUNE_CONSTANT_NODES;
  PyObject *real = constval_compute(cap, mg_standin_val(o), &budget),
           *r = real ? PyObject_CallOneArg(func, real) : NULL;
  Py_XDECREF(real);
  return r;
}

static PyObject *constval_of(MgCapture *cap, PyObject *o) {
  return mg_standin_is(o) ? mg_constval(cap, mg_standin_val(o)) : NULL;
}

/* Appends the positions of the true elements of a mask, one tensor per dimension. */
static int constval_positions(PyObject *mask, PyObject *out) {
  PyObject *p = PyObject_CallMethod(mask, "nonzero", NULL),
           *cols = p ? PyObject_CallMethod(p, "unbind", "i", 1) : NULL;
  PyObject *fast = cols ? PySequence_Fast(cols, "unbind") : NULL;
  int rc = fast ? 0 : -1;
  for (Py_ssize_t i = 0; !rc && i < PySequence_Fast_GET_SIZE(fast); i++) {
    PyObject *col = PyObject_CallMethod(PySequence_Fast_GET_ITEM(fast, i), "clone", NULL);
    rc = col ? PyList_Append(out, col) : -1;
    Py_XDECREF(col);
  }
  Py_XDECREF(p);
  Py_XDECREF(cols);
  Py_XDECREF(fast);
  return rc;
}

PyObject *mg_constval_index(MgCapture *cap, PyObject *args) {
  PyObject *list = PyTuple_GET_SIZE(args) > 1 ? PyTuple_GET_ITEM(args, 1) : NULL, *out = NULL, *r = NULL;
  if (!list || !PyList_Check(list) || !(out = PyList_New(0))) return NULL;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
    PyObject *x = PyList_GET_ITEM(list, i);
    int dtype = mg_standin_is(x) ? mg_val(cap->rec->g, mg_standin_val(x))->dtype : DT_i64;
    bool mask = dtype == DT_bool || dtype == DT_u8;
    PyObject *real = mask ? constval_of(cap, x) : NULL;
    if (mask && !real && mg_standin_is(x)) mg_constval_unknown(cap, mg_standin_val(x));
    if (mask && !real) goto done;
    if (mask ? constval_positions(real, out) : PyList_Append(out, x)) goto done;
  }
  r = PyTuple_Pack(2, PyTuple_GET_ITEM(args, 0), out);
done:
  Py_DECREF(out);
  return r;
}

/* ---- what a value of the recording is in this run ---- */

static void noderun_need(ValRef *v, void *arg) { ((bool *)arg)[*v] = true; }

/* Marks the nodes that v is computed by.  False: some of them may not run twice, or
 * something was written to. */
static bool noderun_slice(const MgGraph *g, ValRef v, bool *keep, bool *need) {
  need[v] = true;
  for (NodeRef n = g->nnode - 1; n > 0; n--) {
    MgNode *node = mg_node(g, n);
    if (node->dead) continue;
    if (node->op->mutates) return false;
    for (int i = 0; i < node->nout; i++) keep[n] |= node->out[i] && need[node->out[i]];
    if (keep[n] && mg_node_effect(node)) return false;
    if (keep[n]) mg_node_each_val(node, noderun_need, need);
  }
  return true;
}

static PyObject *noderun_compute(MgRec *r, ValRef v, const bool *keep) {
  MgGraph *g = r->g;
  PyObject **in = mg_calloc(g->ninput + 1, sizeof *in), *out = NULL;
  int64_t *env = mg_calloc(r->x->nsym + 1, sizeof *env);
  MgNodeRun *p = in && env ? mg_noderun_build_part(mg_rec_trace(r, &(MgTrace){0}), keep, NULL, g->input,
                                                   g->ninput, &v, 1)
                           : (MgNodeRun *)PyErr_NoMemory();
  for (uint32_t i = 0; p && i < g->ninput; i++)
    if (!(in[i] = r->cap->input[i].real)) in[i] = Py_None; /* the gradient of a result: of no use here */
  for (uint32_t k = 0; env && k < r->x->nsym; k++) env[k] = r->x->sym[k].hint;
  MgCallSizes at = {.x = r->x, .env = env};
  if (p && mg_noderun_run_at(p, in, &out, &at)) out = NULL;
  mg_noderun_free(p);
  free(env);
  free(in);
  return out;
}

PyObject *mg_noderun_value(MgRec *r, ValRef v) {
  MgGraph *g = r->g;
  bool *keep = mg_calloc(g->nnode + 1, sizeof *keep), *need = mg_calloc(g->nval + 1, sizeof *need);
  PyObject *t = NULL;
  if (!keep || !need) PyErr_NoMemory();
  else if (noderun_slice(g, v, keep, need)) t = noderun_compute(r, v, keep);
  free(keep);
  free(need);
  return t;
}
