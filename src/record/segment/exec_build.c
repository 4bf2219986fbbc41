/* From a recording to what its entry runs. */
#include "record/segment/exec_build.h"
#include "driver/compile.h"
#include "entry/grad/joint_plans.h"
#include "entry/launch/config.h"
#include "entry/launch/graph_interp.h"
#include "entry/launch/trace.h"
#include "entry/launch/view_fixup.h"
#include "entry/run/exec.h"
#include "entry/run/exec_compile.h"
#include "entry/run/exec_run.h"
#include "entry/run/exec_sizes.h"
#include "entry/run/snapshot_run.h"
#include "entry/run/staged_exec.h"
#include "host/python/pyobject.h"
#include "host/torch/function_stack.h"
#include "host/torch/literals.h"
#include "ir/graph/graph.h"
#include "ir/infer/graph_at.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "record/core/source_place.h"
#include "record/dispatch/meta_kernel.h"
#include "record/fx/fx.h"
#include "record/segment/exec_backend.h"
#include "record/symbolic/speculation.h"
#include "record/symbolic/unbacked.h"
#include "record/tensor/inference_mode.h"
#include "record/tensor/leaf_grad.h"
#include "record/tensor/standin.h"
#include "record/tensor/view_state.h"

/* ---- preparing the graph ---- */

static void exec_see_input(ValRef *v, void *arg) { ((bool *)arg)[*v] = true; }

/* What only backward uses, and the inputs that it answers for. */
static void exec_joint_inputs(MgRec *r, bool *used) {
  const MgJointRec *j = r->joint;
  for (NodeRef n = j->backward; n < j->nnode; n++) mg_node_each_val(mg_node(r->g, n), exec_see_input, used);
  for (uint32_t i = 0; i < j->ndiff; i++) used[r->cap->input[j->diff[i]].val] = used[j->grad[i]] = true;
}

/* Drops graph inputs that nothing uses, and keeps where the others come from. */
static int exec_take_inputs(MgExec *e, MgRec *r, bool data) {
  MgGraph *g = r->g;
  bool *used = mg_calloc((r->joint ? r->joint->nval : g->nval) + 1, sizeof *used);
  e->input = mg_calloc(g->ninput + 1, sizeof *e->input);
  if (!used || !e->input) {
    free(used);
    return PyErr_NoMemory(), -1;
  }
  for (NodeRef n = 1; n < g->nnode; n++)
    if (!mg_node(g, n)->dead) mg_node_each_val(mg_node(g, n), exec_see_input, used);
  for (uint32_t i = 0; i < g->noutput; i++) used[g->output[i]] = true;
  if (r->joint) exec_joint_inputs(r, used);
  for (uint32_t i = 0; data && i < r->cap->sizes.nsrc; i++)
    used[r->cap->sizes.of[i].val] = true; /* whose size is asked */
  uint32_t kept = 0;
  for (uint32_t i = 0; i < g->ninput; i++) {
    ValRef v = g->input[i];
    if (!used[v]) continue;
    MgCapInput *in = &r->cap->input[i];
    e->input[kept] = (MgExecInput){.src = in->src,
                                   .pinned = in->pinned ? Py_NewRef(in->real) : NULL,
                                   .scalar = in->scalar,
                                   .array = in->array};
    /* a number that became a tensor on the way into torch: nobody else has it */
    if (in->pinned && !mg_val(g, v)->ndim && Py_REFCNT(in->real) == 2)
      mg_val(g, v)->known = mg_abi_tensor(in->real);
    g->input[kept] = v;
    mg_val(g, v)->out = (uint32_t)kept++;
  }
  g->ninput = e->ninput = kept;
  free(used);
  return 0;
}

/* True when running the graph has no effect that anyone could see. */
static bool exec_is_idle(const MgGraph *g) {
  if (g->noutput) return false;
  for (NodeRef n = 1; n < g->nnode; n++)
    if (!g->node[n].dead &&
        (mg_node_effect(&g->node[n]) || !g->node[n].nout || mg_node_raises(g, &g->node[n])))
      return false;
  return true;
}

static bool exec_storage_grad(const MgCapture *cap, const MgVal *v) {
  return v->requires_grad || (v->storage < cap->cap_storage && cap->storage_grad[v->storage]);
}

/* True when autograd must see the run: a result, or an input that is written, is part of a gradient graph. */
static bool exec_needs_autograd(const MgExec *e, const MgRec *r) {
  const MgGraph *g = r->g;
  for (uint32_t i = 0; i < g->noutput; i++) {
    const MgVal *v = mg_val(g, g->output[i]);
    if (v->def && exec_storage_grad(r->cap, v) && !(e->spent && e->spent[i])) return true;
  }
  for (uint32_t i = 0; i < g->ninput; i++) {
    const MgVal *v = mg_val(g, g->input[i]);
    if (v->storage < r->cap->cap_storage && r->cap->storage_grad[v->storage]) return true;
  }
  return false;
}

static int exec_add_outputs(MgRec *r, const MgSnapshot *snap) {
  const ValRef *vals = NULL;
  int n = mg_snapshot_outputs(snap, &vals);
  for (int i = 0; i < n; i++)
    if (mg_graph_output(r->g, vals[i])) return PyErr_NoMemory(), -1;
  return 0;
}

/* Results that a recorded backward pass has used up need no autograd: their grad_fn can only raise. */
static int exec_find_spent(MgExec *e, const MgRec *r) {
  const MgGraph *g = r->g;
  if (!r->cap->spent) return 0;
  if (!(e->spent = mg_calloc(g->noutput + 1, sizeof *e->spent))) return PyErr_NoMemory(), -1;
  for (uint32_t i = 0; i < g->noutput; i++)
    e->spent[i] = mg_val(g, g->output[i])->requires_grad && mg_backward_is_spent(r->cap, g->output[i]);
  return 0;
}

/* Results that are lazily conjugated or negated; before passes, which know memory only. */
static int exec_find_bits(MgExec *e, const MgGraph *g) {
  uint8_t any = 0;
  for (uint32_t i = 0; i < g->noutput; i++) any |= mg_val(g, g->output[i])->bits;
  if (!any) return 0;
  if (!(e->bits = mg_calloc(g->noutput, 1))) return PyErr_NoMemory(), -1;
  for (uint32_t i = 0; i < g->noutput; i++) e->bits[i] = mg_val(g, g->output[i])->bits;
  return 0;
}

/* What claims are about is asked for before anything is written. */
static int exec_take_claims(MgExec *e, MgRec *r, const MgSnapshot *snap) {
  if (!(r->g->early = mg_new(r->ctx, bool, r->g->noutput + 1))) return PyErr_NoMemory(), -1;
  mg_snapshot_claimed(snap, r->g->early);
  e->claims = snap;
  return 0;
}

/* Runs that may be given up after all: only those of plans can. */
static bool exec_refuses_claims(const MgExec *e, const MgRec *r) {
  if (!e->claims) return false;
  if (e->stages || e->callable) return true;
  if (e->sizes && mg_execsizes_has_graph(e->sizes)) return !r->joint && !mg_execsizes_has_plans(e->sizes);
  return !e->grad && !e->plan;
}

/* The real tensors of the recording in graph input order; malloc'ed, borrowed items. */
static PyObject **exec_examples(const MgExec *e, const MgRec *r) {
  PyObject **real = mg_calloc(e->ninput + 1, sizeof *real);
  uint32_t k = 0;
  for (uint32_t i = 0; real && i < r->cap->ninput && k < e->ninput; i++)
    if (r->cap->input[i].val == r->g->input[k]) real[k++] = r->cap->input[i].real;
  return real;
}

static MgStages *exec_build_stages(MgRec *r, const MgConfig *cfg, bool autograd) {
  if (!r->cap->function)
    return mg_stages_build(mg_rec_trace(r, &(MgTrace){0}), cfg,
                           !cfg->eager_backend && !autograd && mg_compile_takes(r->g));
  mg_retry_fail(r, RETRY_data); /* calls of autograd.Function hold what the recording made */
  PyErr_SetString(PyExc_RuntimeError, "magneto: an autograd.Function in a graph whose sizes depend on data");
  return NULL;
}

/* Numbers that only the program's own code computes with (a counter) are no business of the
 * graph.  -1 with an exception. */
static int exec_mentions_symbols(const MgRec *r) {
  const MgGraph *g = r->g;
  bool *used = mg_calloc(g->x->nsym + 1, sizeof *used), any = false;
  MgRc rc = used ? mg_graph_symbols(g, r->joint ? r->joint->nnode : g->nnode,
                                    r->joint ? r->joint->nval : g->nval, NULL, used)
                 : MG_NOMEM;
  for (uint32_t i = 0; rc == MG_OK && i < g->x->nsym; i++) any |= used[i];
  free(used);
  return rc == MG_OK ? any : (PyErr_NoMemory(), -1);
}

/* What is known before it is clear how the graph runs.  -1 with an exception. */
static int exec_begin(MgExec *e, MgRec *r, const MgSnapshot *snap) {
  e->guards = r->guards;
  if (exec_add_outputs(r, snap) || exec_find_bits(e, r->g) || exec_find_spent(e, r) ||
      mg_inference_mode_outputs(r, &e->inference) || (r->joint && mg_autograd_init()))
    return -1;
  mg_exec_log_graph(r->g);
  e->noutput = r->g->noutput;
  if (r->claims_early && exec_take_claims(e, r, snap)) return -1;
  e->no_autocast = mg_standin_autocast_on(r->cap);
  e->no_modes =
      r->cap->classes || r->cap->own_function || (r->cap->fmodes && PyList_GET_SIZE(r->cap->fmodes));
  return 0;
}

/* Runs node by node, by a plan, or by a compiled gradient graph, of sizes that are constants.  -1 with an
 * exception. */
static int exec_build_fixed(MgExec *e, MgRec *r, const MgConfig *cfg, PyObject **example, bool autograd) {
  if (!(e->nodes = mg_noderun_build(mg_rec_trace(r, &(MgTrace){0})))) return -1;
  if (!r->joint) {
    if (autograd) return mg_exec_nodes_differentiate(mg_rec_trace(r, &(MgTrace){0}));
    if (cfg->eager_backend || r->g->nnode <= 1 || !mg_compile_takes(r->g)) return 0; /* op by op */
    return mg_exec_build_plan(e, mg_rec_trace(r, &(MgTrace){0}), &cfg->opt, example) < 0 ? -1 : 0;
  }
  if (mg_exec_build_grad(e, mg_rec_trace(r, &(MgTrace){0}), example, NULL, NULL, 0) < 0) return -1;
  if (!e->grad) return mg_exec_nodes_differentiate(mg_rec_trace(r, &(MgTrace){0}));
  mg_noderun_free(e->nodes);
  e->nodes = NULL;
  return 0;
}

/* Builds what runs a graph of ATen: stages if sizes depend on data, or a graph whose sizes are symbols if
 * there are any.  -1 with an exception. */
static int exec_build_aten(MgExec *e, MgRec *r, const MgConfig *cfg, bool data, bool symbols) {
  MgGraph *g = r->g;
  if (exec_take_inputs(e, r, data) || mg_viewstate_build(r, &e->views)) return -1;
  bool switched = mg_joint_switched(mg_rec_trace(r, &(MgTrace){0})); /* a run finds leaves in one state */
  for (NodeRef n = 1; switched && n < g->nnode; n++) g->node[n].grad_mode = false;
  bool autograd = exec_needs_autograd(e, r);
  if (data) return (e->stages = exec_build_stages(r, cfg, autograd)) ? 0 : -1;
  if (symbols) {
    if (autograd && !r->joint && mg_exec_nodes_differentiate(mg_rec_trace(r, &(MgTrace){0}))) return -1;
    bool plans = !cfg->eager_backend && !autograd && g->nnode > 1 && mg_compile_takes(g);
    return mg_execsizes_take(e, r, cfg, true, plans);
  }
  PyObject **example = exec_examples(e, r);
  if (!example) return PyErr_NoMemory(), -1;
  int rc = exec_build_fixed(e, r, cfg, example, autograd);
  free(example);
  return rc;
}

/* -1 with an exception. */
static int exec_build(MgExec *e, MgRec *r, const MgConfig *cfg, const MgSnapshot *snap) {
  MgGraph *g = r->g;
  if (exec_begin(e, r, snap)) return -1;
  bool sizes = mg_symsize_inputs(&r->cap->sizes), data = !cfg->backend && mg_symdata_used(r);
  int mention = sizes && !data ? exec_mentions_symbols(r) : 0;
  if (mention < 0) return -1;
  bool whole = mention && !exec_is_idle(g) && !(cfg->backend && g->nnode > 1);
  if (sizes && r->cap->told_sizes) { /* whose classes were told numbers */
    mg_exec_refuse_sizes(r, "tensors that wrap others in a graph with symbolic sizes");
    return -1;
  }
  if (sizes && !whole && mg_execsizes_take(e, r, cfg, false, false)) return -1;
  if (!mention && !data) g->x->nsym = 0; /* nothing uses them */
  if (exec_is_idle(g) && !(cfg->backend && mg_fx_calls(r->cap))) return 0;
  if (cfg->backend && (g->nnode > 1 || (r->cap->wrappers && mg_fx_calls(r->cap)))) {
    int rc = mg_exec_build_backend(e, r, cfg, exec_needs_autograd(e, r));
    if (rc <= 0) {
      e->no_autocast &= mg_fx_is_aten(r->cap);
      return rc;
    }
  }
  if (cfg->explained && !r->want_fx && g->nnode > 1 && !(r->shown = mg_fx_explain(r))) return -1;
  return exec_build_aten(e, r, cfg, data, whole);
}

/* Backends and meta kernels call torch, which is no part of the program: its modes do not see that. */
MgExec *mg_exec_build(MgRec *r, const MgConfig *cfg, const MgSnapshot *snap) {
  bool modes = r->cap->classes || (r->cap->fmodes && PyList_GET_SIZE(r->cap->fmodes));
  PyObject *off = modes ? mg_fmodes_off() : NULL;
  if (modes && !off) return NULL;
  MgExec *e = mg_calloc(1, sizeof *e);
  if (!e) PyErr_NoMemory();
  int rc = e ? exec_build(e, r, cfg, snap) : -1;
  if (!rc && exec_refuses_claims(e, r)) rc = mg_claim_refuse(r);
  if (off && mg_context_exit(off)) rc = -1;
  if (!rc) return e;
  mg_exec_free(e);
  return NULL;
}

/* ---- building ---- */

static bool sizes_known(MgExecSizes *s, const MgSymSizes *known) {
  if (!(s->symbol = mg_malloc(s->n * sizeof *s->symbol))) return false;
  memcpy(s->symbol, known->ref, s->n * sizeof *s->symbol);
  return !mg_symbols_known(&s->x, known->equal, known->nequal, s->symbol);
}

/* Does torch's meta kernel, asked again with other numbers, give node n the results that the graph
 * has?  It wants a recording. */
static bool sizes_torch_agrees(const MgExecSizes *s, SizesGraph *t, NodeRef n) {
  MgCapture cap = {.objs = s->objs, .input = s->input, .ninput = s->ninput, .function = s->function};
  MgConfig cfg = {.opt = s->opt};
  MgRec rec = {.ctx = &t->ctx,
               .x = &t->x,
               .g = &t->g,
               .cap = &cap,
               .cfg = &cfg,
               .joint = s->joint,
               .name = s->name},
        *r = &rec;
  const MgFrontOp *fo = mg_frontop_of(mg_node(&t->g, n)->op);
  const MgNode before = *mg_node(&t->g, n);
  PyObject *none = NULL;
  cap.sizes.inputs = true; /* no kernel is run for real */
  cap.rec = r;
  bool same = fo && !mg_metainfer_run(r, fo, n, &none) && mg_node(&t->g, n)->nout == before.nout;
  for (int i = 0; same && i < before.nout; i++)
    same = mg_graph_same(&t->g, before.out[i], mg_node(&t->g, n)->out[i]);
  Py_XDECREF(none);
  mg_clear_as_no();
  mg_node(&t->g, n)->out = before.out;
  mg_node(&t->g, n)->nout = before.nout;
  return same;
}

int mg_execsizes_take(MgExec *e, MgRec *r, const MgConfig *cfg, bool graph, bool plans) {
  const MgSymSizes *sizes = &r->cap->sizes;
  MgExecSizes *s = e->sizes = mg_calloc(1, sizeof *s);
  if (!s) return PyErr_NoMemory(), -1;
  s->n = sizes->nsrc;
  s->agrees = sizes_torch_agrees;
  if (!(s->src = mg_malloc(s->n * sizeof *s->src))) return PyErr_NoMemory(), -1;
  memcpy(s->src, sizes->src, s->n * sizeof *s->src);
  if (!graph) return 0;
  s->objs = Py_NewRef(r->cap->objs);
  int64_t *env = mg_malloc(s->n * sizeof *env);
  SizesGraph t;
  mg_ctx_init(&t.ctx);
  s->joint = r->joint;
  s->function = r->cap->function;
  s->hooked = r->cap->hooked;
  bool ok = env && (s->inferred = mg_calloc(r->joint ? r->joint->nnode : r->g->nnode, sizeof *s->inferred));
  for (uint32_t i = 0; i < s->n && ok; i++) env[i] = mg_sym_hint(r->x, sizes->ref[i]);
  ok = ok && mg_sizes_graph(s, r->g, env, false, &t);
  for (NodeRef n = 1; ok && n < t.g.nnode; n++)
    s->inferred[n] = mg_graph_agrees(&t.g, n) ? SIZES_rule
                     : !sizes->ndata && mg_symfollow_reads(r->g, n) && sizes_torch_agrees(s, &t, n)
                         ? SIZES_torch
                         : SIZES_nobody;
  mg_ctx_free(&t.ctx);
  free(env);
  if (!ok) return PyErr_NoMemory(), -1;
  s->plans = plans;
  s->opt = cfg->opt;
  snprintf(s->name, sizeof s->name, "%s", mg_place_name(r));
  s->recording = r->recording;
  mg_rec_move_graph(mg_rec_trace(r, &(MgTrace){0}), &s->ctx, &s->x, &s->g);
  if (s->joint) {
    if (!(s->input = mg_new(&s->ctx, MgCapInput, r->cap->ninput + 1))) return PyErr_NoMemory(), -1;
    memcpy(s->input, r->cap->input, r->cap->ninput * sizeof *s->input);
    s->ninput = r->cap->ninput;
  }
  ok = sizes_known(s, sizes) && (s->used = mg_calloc(s->x.nsym + 1, sizeof *s->used)) &&
       mg_graph_symbols(&s->g, s->joint ? s->joint->nnode : s->g.nnode, s->joint ? s->joint->nval : s->g.nval,
                        s->symbol, s->used) == MG_OK;
  return ok ? 0 : (PyErr_NoMemory(), -1);
}

int mg_inference_mode_outputs(const MgRec *r, uint8_t **want) {
  bool now = mg_inference_mode_on();
  for (uint32_t i = 0; i < r->g->noutput; i++) {
    ValRef v = r->g->output[i];
    bool inference = mg_inference_mode_of(r->cap, v);
    if (inference == now || !mg_val(r->g, mg_val(r->g, v)->storage)->def)
      continue; /* memory of inputs: view_state.c */
    if (!*want && !(*want = mg_calloc(r->g->noutput, sizeof **want))) return PyErr_NoMemory(), -1;
    (*want)[i] = 1 + inference;
  }
  return 0;
}

/* ---- building ---- */

/* The operand whose memory a node's result v has; 0: none. */
static ValRef view_operand(const MgGraph *g, const MgNode *node, ValRef v) {
  for (int i = 0; i < node->narg; i++) {
    if (node->arg[i].tag != MA_val || node->op->param[i].alias_set < 0) continue;
    ValRef of = node->arg[i].u.val;
    if (mg_val(g, of)->storage == mg_val(g, v)->storage) return of;
  }
  return 0;
}

/* The value that an op of a view, or one in place, gives a result for; 0: it makes its result. */
static ValRef view_step(const MgGraph *g, ValRef v, bool *view) {
  const MgNode *node = mg_node(g, mg_val(g, v)->def);
  const MgOp *op = node->op;
  *view = op->is_view && !op->mutates;
  if (*view ? !strcmp(op->full, "aten::detach") : !op->mutates) return 0;
  return view_operand(g, node, v);
}

/* What v is seen as by autograd: the tensor that it is a view of (an input, or what an op made) and
 * the mode of the first view. */
static ValRef view_root(const MgGraph *g, ValRef v, bool *any, bool *grad) {
  bool view;
  ValRef of;
  *any = false;
  while (mg_val(g, v)->def && (of = view_step(g, v, &view))) {
    *any |= view;
    if (view) *grad = mg_node(g, mg_val(g, v)->def)->grad_mode;
    v = of;
  }
  return v;
}

/* Can a view of the base be had by its strides? */
static bool view_by_strides(const MgVal *v, const MgVal *base) {
  return v->dtype == base->dtype && v->bits == base->bits && v->device == base->device;
}

/* Is one made of the halves of the other's complex numbers? */
static bool view_by_parts(const MgVal *v, const MgVal *base) {
  MgDtype d = (MgDtype)v->dtype, of = (MgDtype)base->dtype;
  bool parts =
      mg_dtype_is_complex(d) ? mg_dtype_real(d) == of : mg_dtype_is_complex(of) && mg_dtype_real(of) == d;
  return parts && v->bits == base->bits && v->device == base->device;
}

/* The other result that is what result i is a view of, or UINT32_MAX. */
static uint32_t view_result(const MgGraph *g, uint32_t i, ValRef root) {
  for (uint32_t k = 0; k < g->noutput; k++) {
    bool any, grad;
    if (k != i && mg_val(g, g->output[k])->storage == mg_val(g, root)->storage &&
        view_root(g, g->output[k], &any, &grad) == root && !any)
      return k;
  }
  return UINT32_MAX;
}

static int view_add(MgViewState *s, uint32_t out, uint32_t base, bool grad) {
  View *p = mg_realloc(s->view, (s->nview + 1) * sizeof *p);
  if (!p) return PyErr_NoMemory(), -1;
  s->view = p;
  p[s->nview++] = (View){out, base, grad};
  return 0;
}

static uint32_t view_input(const MgGraph *g, ValRef v) {
  uint32_t at = 0;
  while (at < g->ninput && g->input[at] != v) at++;
  return at < g->ninput ? at : UINT32_MAX;
}

/* Views of inference tensors are made of them in any case, and so are those of
 * others under inference mode. */
static bool view_needs_kind(const MgRec *r, ValRef root) {
  return mg_inference_mode_of(r->cap, root) != mg_inference_mode_on();
}

/* Plans can make a view of an input in the mode of the run. */
static int view_by_plan(const MgRec *r, uint32_t out, bool grad) {
  if (r->joint || (!grad && mg_abi.aoti_torch_grad_mode_is_enabled())) return 0;
  if (!r->g->viewed && !(r->g->viewed = mg_new(r->ctx, bool, r->g->noutput + 1))) return PyErr_NoMemory(), -1;
  r->g->viewed[out] = true;
  return 0;
}

/* Is the dtype another one by view()?  Where kinds are mixed that gives no view, and the kind of the mode. */
static bool view_recast(const MgGraph *g, ValRef v) {
  while (v && mg_val(g, v)->def) {
    const MgNode *node = mg_node(g, mg_val(g, v)->def);
    if (node->op->code == TOP_view_dtype) return true;
    v = node->op->is_view || node->op->mutates ? view_operand(g, node, v) : 0;
  }
  return false;
}

static int view_find(const MgRec *r, MgViewState *s) {
  const MgGraph *g = r->g;
  for (uint32_t i = 0; i < g->noutput; i++) {
    bool any, grad = false;
    ValRef v = g->output[i], root = view_root(g, v, &any, &grad), of = mg_val(g, v)->storage;
    uint32_t base = UINT32_MAX;
    bool kind = !mg_val(g, of)->def && view_needs_kind(r, of), recast = view_recast(g, v);
    if (kind && recast) continue;
    bool strides = view_by_strides(mg_val(g, v), mg_val(g, root));
    bool parts = !strides && !recast && view_by_parts(mg_val(g, v), mg_val(g, root));
    if (kind) base = view_input(g, mg_val(g, root)->def ? of : root);
    else if (any && (strides || parts)) {
      bool result = mg_val(g, root)->def;
      base = result ? view_result(g, i, root) : view_input(g, root);
      if (base != UINT32_MAX && result) base += g->ninput;
      if (base != UINT32_MAX && !result && strides && view_by_plan(r, i, grad)) return -1;
    }
    if (base != UINT32_MAX && view_add(s, i, base, grad)) return -1;
  }
  return 0;
}

/* Batch norm, whose writes torch does not count, writes its running statistics. */
static void view_count_norm(const MgGraph *g, const MgNode *n, uint32_t *count) {
  if (!mg_node_trains_norm(n)) return;
  const MgArg *means = mg_node_arg(n, "running_mean"), *vars = mg_node_arg(n, "running_var");
  ValRef mean = means->tag == MA_val ? means->u.val : 0, var = vars->tag == MA_val ? vars->u.val : 0;
  if (mean) count[mg_val(g, mean)->storage]++;
  if (var && (!mean || mg_val(g, var)->storage != mg_val(g, mean)->storage)) count[mg_val(g, var)->storage]++;
}

/* How often the nodes write to each memory: by storage, in the arena. */
static uint32_t *view_count_writes(const MgGraph *g) {
  uint32_t *count = mg_new(g->c, uint32_t, g->nval + 1);
  for (NodeRef i = 1; count && i < g->nnode; i++) {
    const MgNode *node = mg_node(g, i);
    if (node->dead) continue;
    for (MgWritten t = {0}; mg_node_written(node, &t);) count[mg_val(g, t.v)->storage]++;
    view_count_norm(g, node, count);
  }
  return count;
}

/* Inputs whose counter no way of running the graph leaves where eager does. */
static int view_find_versions(const MgRec *r, MgViewState *s) {
  const MgGraph *g = r->g;
  uint32_t *count = view_count_writes(g);
  if (!count) return PyErr_NoMemory(), -1;
  for (uint32_t k = 0; k < r->cap->ninput; k++) {
    const MgCapInput *in = &r->cap->input[k];
    int n;
    uint32_t at = view_input(g, in->val), written = at == UINT32_MAX ? 0 : count[mg_val(g, in->val)->storage];
    if (!written || in->array || in->pinned || (in->moved == 1 && written == 1)) continue;
    if (!mg_view_owner(r->cap, in->val, &n) || n != 1 || mg_inference_mode_of(r->cap, in->val)) continue;
    Version *p = mg_realloc(s->version, (s->nversion + 1) * sizeof *p);
    if (!p) return PyErr_NoMemory(), -1;
    s->version = p;
    p[s->nversion++] = (Version){at, in->moved};
  }
  return 0;
}

int mg_viewstate_build(const MgRec *r, MgViewState **out) {
  MgViewState *s = mg_calloc(1, sizeof *s);
  if (!s) return PyErr_NoMemory(), -1;
  s->ninput = r->g->ninput;
  int rc = view_find(r, s) || view_find_versions(r, s) ? -1 : 0;
  s->joint = r->joint;
  if (rc || !(s->nview + s->nversion)) mg_viewstate_free(s);
  else *out = s;
  return rc;
}
