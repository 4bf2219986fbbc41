/* How the graph of an entry is run.
 * In: the recorded graph, the snapshot's outputs, the options of the callable.  Out: MgExec, run with the
 * source values
 * of a hit.  Immutable after building; several threads may run one.
 * A graph runs in one of four ways: as a compiled plan; as a compiled forward whose results get the compiled
 * backward as their grad_fn; through what a custom backend returned; node by node through ATen, when autograd
 * has to see more than that, when the back end cannot compile it, and when another input is over the memory
 * of one that is written (ATen is right under any aliasing). */
#include "entry/run/exec_run.h"
#include <stdlib.h>
#include <string.h>
#include "base/env.h"
#include "base/log.h"
#include "entry/grad/grad_weigh.h"
#include "entry/grad/joint_plans.h"
#include "entry/guard/source.h"
#include "entry/launch/events.h"
#include "entry/launch/graph_interp.h"
#include "entry/launch/plan_call.h"
#include "entry/launch/stats.h"
#include "entry/launch/trace.h"
#include "entry/launch/view_fixup.h"
#include "entry/run/exec.h"
#include "entry/run/exec_compile.h"
#include "entry/run/exec_sizes.h"
#include "entry/run/snapshot_program.h"
#include "entry/run/snapshot_run.h"
#include "entry/run/staged_exec.h"
#include "entry/verify/verify.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "results.h"
#include "host/torch/array_bridge.h"
#include "host/torch/conj_neg.h"
#include "host/torch/function_stack.h"
#include "host/torch/tensor_facts.h"
#include "runtime/plan/plan_priv.h"

int mg_exec_nodes_differentiate(const MgTrace *t) {
  if (mg_function_all_whole(t)) return 0;
  PyErr_SetString(PyExc_RuntimeError,
                  "magneto: values inside of an autograd.Function are used outside of it");
  return -1;
}

bool mg_exec_set_grad(bool mode) {
  bool was = mg_abi.aoti_torch_grad_mode_is_enabled();
  if (was != mode) mg_abi.aoti_torch_grad_mode_set_enabled(mode);
  return was;
}

PyObject *mg_exec_compiled(const MgExec *e) {
  return e->compiled && e->compiled != Py_None ? e->compiled : NULL;
}

static int exec_run_backend(const MgExec *e, PyObject *const *in, PyObject **outs) {
  bool grad = mg_exec_set_grad(e->callable_grad);
  PyObject *res = PyObject_Vectorcall(e->callable, in, e->ninput, NULL), *fast = NULL;
  int rc = -1;
  mg_exec_set_grad(grad); /* what the program does with it is the snapshot's */
  if (!res) return -1;
  if (e->noutput == 1 &&
      PyObject_TypeCheck(res, mg_torch.tensor)) { /* a lone tensor is as good as a tuple of one */
    outs[0] = res;
    return 0;
  }
  if (!PyTuple_Check(res) && !PyList_Check(res)) {
    PyErr_Format(
        PyExc_TypeError,
        "magneto: the callable of a custom backend must return a tuple of %u tensors, it returned an "
        "instance of %s",
        e->noutput, Py_TYPE(res)->tp_name);
    goto done;
  }
  if (!(fast = PySequence_Fast(res, "a tuple"))) goto done;
  if (PySequence_Fast_GET_SIZE(fast) != e->noutput) {
    PyErr_Format(PyExc_ValueError,
                 "magneto: the callable of a custom backend returned %zd results, the graph has %u",
                 PySequence_Fast_GET_SIZE(fast), e->noutput);
    goto done;
  }
  for (uint32_t i = 0; i < e->noutput; i++) { /* a number out of a tensor may come as it is */
    PyObject *o = PySequence_Fast_GET_ITEM(fast, i);
    if (!(outs[i] = PyLong_Check(o) || PyFloat_Check(o) ? mg_symfloat_tensor(o) : Py_NewRef(o))) goto done;
  }
  rc = 0;
done:
  Py_XDECREF(fast);
  Py_DECREF(res);
  return rc;
}

/* ---- building and running ---- */

void mg_exec_log_graph(const MgGraph *g) {
  if (!mg_log_on(MG_LOG_graph)) return;
  MgStrbuf text = {0};
  mg_graph_print(g, &text);
  mg_log_text(MG_LOG_graph, "recorded graph", mg_sb_text(&text));
  mg_sb_free(&text);
}

/* A result and its conjugate are one value of the graph: two tensors over that
 * memory.  -1 with an exception. */
static int exec_own_tensor(const MgExec *e, PyObject **outs, uint32_t i) {
  bool shared = false;
  for (uint32_t k = 0; k < e->noutput; k++)
    shared |= k != i && outs[k] == outs[i] && e->bits[k] != e->bits[i];
  if (shared) Py_SETREF(outs[i], PyObject_CallMethod(outs[i], "view_as", "O", outs[i]));
  return outs[i] ? 0 : -1;
}

static int exec_set_bits(const MgExec *e, PyObject **outs) {
  for (uint32_t i = 0; i < e->noutput; i++)
    if (e->bits[i] && (exec_own_tensor(e, outs, i) || mg_lazybits_set(outs[i], e->bits[i]))) {
      for (uint32_t k = 0; k < e->noutput; k++) Py_CLEAR(outs[k]);
      return -1;
    }
  return 0;
}

static int exec_make_inference(const MgExec *e, PyObject **outs) {
  PyObject *off = mg_fmodes_off();
  int rc = off ? 0 : -1;
  for (uint32_t i = 0; i < e->noutput && !rc; i++)
    if (outs[i] && e->inference[i] && !(outs[i] = mg_inference_mode_remake(outs[i], e->inference[i] == 2)))
      rc = -1;
  if (off && mg_context_exit(off)) rc = -1;
  for (uint32_t k = 0; rc && k < e->noutput; k++) Py_CLEAR(outs[k]);
  return rc;
}

static int exec_finish_views(const MgExec *e, PyObject *const *in, const int64_t *versions, PyObject **outs) {
  int rc = mg_viewstate_after(e->views, in, versions, outs);
  for (uint32_t k = 0; rc && k < e->noutput; k++) Py_CLEAR(outs[k]);
  return rc;
}

static int exec_finish_spent(const MgExec *e, PyObject **outs) {
  for (uint32_t i = 0; i < e->noutput; i++) {
    if (!e->spent[i]) continue;
    if (mg_facts_requires_grad(outs[i])) { /* the graph of a run node by node, which nobody has freed */
      if (Py_REFCNT(outs[i]) > 1) continue;
      Py_SETREF(outs[i], PyObject_CallMethod(outs[i], "detach", NULL));
      if (!outs[i]) return -1;
    }
    if (!(outs[i] = mg_backward_spent_result(outs[i]))) return -1;
  }
  return 0;
}

/* A library call inside of the plan failed (an op returned other sizes than its meta kernel said).  The
 * program must not notice: a warning, and the nodes run from now on.  The
 * exception is set and cleared here. */
int mg_exec_give_up_plan(MgExec *e) {
  PyObject *type, *value, *tb;
  PyErr_Fetch(&type, &value, &tb);
  PyObject *text = value ? PyObject_Str(value) : NULL;
  const char *why = text ? PyUnicode_AsUTF8(text) : "?";
  mg_clear_shown();
  e->plan_failed = true;
  mg_stats.fallbacks++;
  mg_log(MG_LOG_fallback, "a compiled graph failed and runs op by op: %s", why ? why : "?");
  mg_event("fallback", NULL, 0, why ? why : "?");
  int rc = PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "magneto: a compiled graph failed and runs op by op: %s",
                            why ? why : "?");
  Py_XDECREF(text);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(tb);
  return rc;
}

static int exec_claims(void *arg, PyObject **outs) {
  const MgClaims *c = arg;
  return mg_snapshot_claims(c->snap, outs, c->vals);
}

int mg_exec_plan(MgPlan *p, PyObject *const *in, const int64_t *sizes, MgClaims *claims, PyObject **outs) {
  return claims ? mg_planrun_checked(p, in, sizes, outs, exec_claims, claims)
                : mg_planrun(p, in, sizes, outs);
}

static int exec_run_grad(MgExec *e, PyObject *const *in, MgClaims *claims, PyObject **outs) {
  MgRunCheck check = {exec_claims, claims};
  bool anomaly = mg_abi.anomaly_enabled && *mg_abi.anomaly_enabled; /* its messages name ATen's own nodes */
  bool asked = e->grad->asked && !e->grad->lost;
  if (e->weigh && !claims) {
    e->weigh = false;
    if (anomaly || !mg_gradweigh(e->grad, in, &e->weighed)) e->weighed.pass[true] = 1e30f;
  }
  if (!e->plan_failed && !anomaly && !asked && mg_exec_alone(e->written, e->ninput, in)) {
    int rc = mg_autograd_run(e->grad, in, claims ? &check : NULL, outs);
    if (rc != MG_RUN_FAILED) return rc;
    if (mg_strict() || mg_exec_give_up_plan(e)) return -1;
  }
  if (claims) return MG_CLAIM_FALSE; /* nodes write as they run */
  return mg_autograd_run_nodes(e->grad, in, outs) ? MG_RUN_RAISED : 0;
}

bool mg_exec_keeps_random(const MgExec *e) { return e->stages && mg_stages_keeps_random(e->stages); }

/* Compares a run beside the program's, and leaves the graph to eager if it differs.  -1 with an exception. */
static int exec_verify(MgExec *e, PyObject *const *in) {
  if (e->plan_failed || (e->grad && (e->grad->asked || e->grad->lost))) return 0;
  if (!mg_exec_alone(e->written, e->ninput, in)) return 0; /* nodes run anyway */
  MgVerifyWays w = {
      .nodes = e->nodes, .plan = e->plan, .grad = e->grad, .ninput = e->ninput, .noutput = e->noutput};
  int rc = mg_verify_compare(e->verify, &w, in);
  if (e->verify->differs) e->plan_failed = true;
  return rc < 0 ? -1 : 0;
}

int mg_exec_dispatch(MgExec *e, PyObject *const *in, MgExecAt *at, MgClaims *claims, PyObject **outs) {
  if (e->callable) return exec_run_backend(e, in, outs);
  if (at) return mg_execsizes_run(e, in, at, claims, outs);
  if (e->verify && e->verify->differs) e->plan_failed = true;
  if (e->verify && mg_verify_due(e->verify) && exec_verify(e, in)) return -1;
  if (e->grad) return exec_run_grad(e, in, claims, outs);
  if (e->plan && !e->plan_failed && mg_exec_alone(e->written, e->ninput, in)) {
    int rc = mg_exec_plan(e->plan, in, NULL, claims, outs);
    if (rc != MG_RUN_FAILED) return rc;
    if (mg_strict() || !e->nodes || mg_exec_give_up_plan(e)) return -1;
  }
  if (claims) return MG_CLAIM_FALSE; /* nodes write as they run */
  return mg_noderun_run(e->nodes, in, outs) ? MG_RUN_RAISED : 0;
}

static int exec_run_graph(MgExec *e, PyObject *const *vals, PyObject *const *in, MgExecAt *at,
                          PyObject **outs) {
  MgClaims claims = {e->claims, (PyObject **)vals};
  return e->stages ? mg_stages_run(e->stages, e->guards, vals, in, outs)
                   : mg_exec_dispatch(e, in, at, e->claims ? &claims : NULL, outs);
}

/* Autocast's casts are nodes of the graph. */
static int exec_without_autocast(MgExec *e, PyObject *const *vals, PyObject *const *in, MgExecAt *at,
                                 PyObject **outs) {
  PyObject *off;
  if (!e->no_autocast) return exec_run_graph(e, vals, in, at, outs);
  if (mg_planrun_autocast_off(&off)) return -1;
  int rc = exec_run_graph(e, vals, in, at, outs);
  return mg_planrun_autocast_back(off) ? -1 : rc;
}

/* The same without the modes of the program. */
static int exec_without_modes(MgExec *e, PyObject *const *vals, PyObject *const *in, MgExecAt *at,
                              PyObject **outs) {
  PyObject *off = e->no_modes ? mg_fmodes_off() : NULL;
  if (e->no_modes && !off) return -1;
  int rc = exec_without_autocast(e, vals, in, at, outs);
  return off && mg_context_exit(off) ? -1 : rc;
}

/* The tensor of a number.  New. */
static PyObject *exec_number(const MgExec *e, SrcRef src, PyObject *const *vals, uint64_t turn) {
  PyObject *x = mg_source_value(e->guards, src, vals, turn), *t = x ? mg_symfloat_tensor(x) : NULL;
  Py_XDECREF(x);
  return t;
}

static int exec_run(MgExec *e, PyObject **vals, MgExecAt *at, PyObject **outs) {
  PyObject *small[64] = {NULL}, **in = small;
  if (!e->nodes && !e->plan && !e->grad && !e->callable && !e->stages &&
      !(e->sizes && mg_execsizes_has_graph(e->sizes)))
    return 0;
  if (e->ninput > 64 && !(in = mg_malloc(e->ninput * sizeof *in))) return PyErr_NoMemory(), -1;
  int rc = 0;
  uint64_t turn = mg_source_turn();
  for (uint32_t i = 0; i < e->ninput; i++) {
    in[i] = e->input[i].pinned ? e->input[i].pinned : vals[e->input[i].src];
    if (e->input[i].number && !(in[i] = mg_source_value(e->guards, e->input[i].src, vals, turn))) rc = -1;
    if (e->input[i].scalar && !(in[i] = exec_number(e, e->input[i].src, vals, turn))) rc = -1;
    if (e->input[i].array && !(in[i] = mg_array_to_tensor(in[i]))) rc = -1;
  }
  uint32_t nversion = e->views && !rc ? mg_viewstate_versions(e->views, false) : 0;
  int64_t few[16], *versions = nversion <= 16 ? few : mg_malloc(nversion * sizeof *versions);
  if (!versions) rc = (PyErr_NoMemory(), -1);
  if (!rc && nversion) rc = mg_viewstate_before(e->views, in, versions);
  if (!rc) rc = exec_without_modes(e, vals, in, at, outs);
  if (!rc && e->views && exec_finish_views(e, in, versions, outs)) rc = -1;
  if (!rc && e->inference && exec_make_inference(e, outs)) rc = -1;
  if (!rc && e->bits && exec_set_bits(e, outs)) rc = -1;
  if (!rc && e->spent && exec_finish_spent(e, outs)) rc = -1;
  for (uint32_t i = 0; i < e->ninput; i++)
    if (e->input[i].scalar || e->input[i].array || e->input[i].number) Py_XDECREF(in[i]);
  if (in != small) free(in);
  if (versions != few) free(versions);
  return rc;
}

int mg_exec_run(MgExec *e, PyObject **vals, MgExecAt *at, PyObject **outs) {
  int rc = exec_run(e, vals, at, outs);
  if (at) mg_exec_leave(at);
  return rc;
}

void mg_exec_free(MgExec *e) {
  if (!e) return;
  for (uint32_t i = 0; i < e->ninput && e->input; i++) Py_XDECREF(e->input[i].pinned);
  mg_execsizes_free(e->sizes);
  mg_stages_free(e->stages);
  Py_XDECREF(e->callable);
  Py_XDECREF(e->compiled);
  mg_noderun_free(e->nodes);
  if (e->plan) mg_plan_free(e->plan);
  Py_XDECREF(e->grad);
  mg_verify_free(e->verify);
  free(e->written);
  free(e->bits);
  mg_viewstate_free(e->views);
  free(e->inference);
  free(e->spent);
  free(e->input);
  free(e);
}
