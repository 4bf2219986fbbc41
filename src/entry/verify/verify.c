/* See the header.
 * In: the ways of running a graph and the inputs of a run.  Out: a verdict of Python, which calls the ways
 * through an object of type _magneto.Ways.  That object is empty once the verdict is there. */
#include "entry/verify/verify.h"
#include <stdlib.h>
#include "base/ctx.h"
#include "base/env.h"
#include "base/log.h"
#include "driver/options.h"
#include "entry/grad/joint_plans.h"
#include "entry/launch/events.h"
#include "entry/launch/graph_interp.h"
#include "entry/launch/plan_call.h"
#include "entry/launch/stats.h"
#include "host/python/glue.h"
#include "host/python/hook_mode.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "runtime/plan/plan_priv.h"
#include "runtime/process/measure.h"

typedef struct Ways {
  PyObject_HEAD const MgVerifyWays *of; /* NULL: the verdict is there */
  uint64_t recording;                   /* that the graph comes from */
  bool writes;                          /* the graph may write to its inputs */
} Ways;

MgVerify *mg_verify_new(const MgOptions *o, bool writes, uint64_t recording) {
  if (!o->verify && !o->verify_every) return NULL;
  MgVerify *v = mg_calloc(1, sizeof *v);
  if (v)
    *v = (MgVerify){.first = (unsigned)o->verify,
                    .every = (unsigned)o->verify_every,
                    .writes = writes,
                    .recording = recording,
                    .refs = 1};
  return v;
}

void mg_verify_free(MgVerify *v) {
  if (v && !--v->refs) free(v);
}

void mg_verify_share(MgVerify **mine, MgVerify **shared) {
  if (!*mine) return;
  if (*shared) {
    mg_verify_free(*mine);
    *mine = *shared;
  } else {
    *shared = *mine;
  }
  (*mine)->refs++;
}

bool mg_verify_due(MgVerify *v) {
  unsigned long n = v->ncall++;
  return n < v->first || (v->every && n % v->every == v->every - 1);
}

/* ---- the ways, for Python ---- */

static const MgVerifyWays *ways_of(PyObject *self) {
  const MgVerifyWays *w = ((Ways *)self)->of;
  if (!w) PyErr_SetString(PyExc_RuntimeError, "magneto: the run that was verified is over");
  return w;
}

static uint32_t ways_noutput(const MgVerifyWays *w) { return w->grad ? w->grad->nres : w->noutput; }

static const MgNodeRun *ways_nodes(const MgVerifyWays *w) { return w->grad ? w->grad->nodes : w->nodes; }

static int ways_go(const MgVerifyWays *w, bool compiled, PyObject *const *in, PyObject **out) {
  if (w->grad)
    return compiled ? mg_autograd_run(w->grad, in, NULL, out) : mg_autograd_run_nodes(w->grad, in, out);
  return compiled ? mg_planrun(w->plan, in, w->sizes, out) : mg_noderun_run(w->nodes, in, out);
}

/* inputs: a list.  New: a list of the results, None where there is none. */
static PyObject *ways_run(PyObject *self, PyObject *inputs, bool compiled) {
  const MgVerifyWays *w = ways_of(self);
  if (!w) return NULL;
  if (!PyList_CheckExact(inputs) || PyList_GET_SIZE(inputs) != w->ninput)
    return PyErr_Format(PyExc_TypeError, "magneto: a list of %u inputs is needed", w->ninput);
  uint32_t n = ways_noutput(w);
  PyObject **out = mg_calloc(n + 1, sizeof *out);
  if (!out) return PyErr_NoMemory();
  int rc = ways_go(w, compiled, PySequence_Fast_ITEMS(inputs), out);
  PyObject *list = rc ? NULL : PyList_New(n);
  for (uint32_t i = 0; i < n; i++)
    if (list) PyList_SET_ITEM(list, i, out[i] ? out[i] : Py_NewRef(Py_None));
    else Py_XDECREF(out[i]);
  free(out);
  if (!list && !PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "magneto: the graph does not run here");
  return list;
}

static PyObject *ways_eager(PyObject *self, PyObject *inputs) { return ways_run(self, inputs, false); }
static PyObject *ways_compiled(PyObject *self, PyObject *inputs) { return ways_run(self, inputs, true); }

static PyObject *ways_calls(PyObject *self, PyObject *value) {
  const MgVerifyWays *w = ways_of(self);
  return w ? mg_noderun_describe(ways_nodes(w), ways_noutput(w), value) : NULL;
}

/* Indexes of the inputs whose gradients the compiled graph has. */
static PyObject *ways_diff(PyObject *self, void *unused) {
  const MgVerifyWays *w = ways_of(self);
  uint32_t n = w && w->grad ? w->grad->ndiff : 0;
  PyObject *list = w ? PyList_New(n) : NULL;
  for (uint32_t i = 0; list && i < n; i++) {
    PyObject *at = PyLong_FromUnsignedLong(w->grad->diff[i]);
    if (!at) Py_CLEAR(list);
    else PyList_SET_ITEM(list, i, at);
  }
  return list;
}

static PyObject *ways_writes(PyObject *self, void *unused) {
  return ways_of(self) ? PyBool_FromLong(((Ways *)self)->writes) : NULL;
}

static PyObject *ways_recording(PyObject *self, void *unused) {
  return ways_of(self) ? PyLong_FromUnsignedLongLong(((Ways *)self)->recording) : NULL;
}

/* Adds the names of a plan's steps to a list.  -1 with an exception. */
static int ways_add_steps(const MgPlan *p, PyObject *list) {
  for (uint32_t i = 0; p && i < p->nkernel + p->nstep; i++) {
    const PlanStep *step = i < p->nkernel ? NULL : &p->step[i - p->nkernel];
    const char *label = step ? step->scope.label : p->kernel[i].scope.label;
    if (!label || (step && step->kind == PK_kernel)) continue;
    PyObject *text = PyUnicode_FromString(label);
    int rc = text ? PyList_Append(list, text) : -1;
    Py_XDECREF(text);
    if (rc) return -1;
  }
  return 0;
}

static PyObject *ways_steps(PyObject *self, void *unused) {
  const MgVerifyWays *w = ways_of(self);
  PyObject *list = w ? PyList_New(0) : NULL;
  if (list && (ways_add_steps(w->grad ? w->grad->fwd : w->plan, list) ||
               ways_add_steps(w->grad ? w->grad->bwd : NULL, list)))
    Py_CLEAR(list);
  return list;
}

static PyMethodDef ways_methods[] = {
    {"eager", ways_eager, METH_O, "eager(inputs, /): the results, op by op."},
    {"compiled", ways_compiled, METH_O, "compiled(inputs, /): the results of the compiled graph."},
    {"calls", ways_calls, METH_O,
     "calls(value, /): (inputs, outputs, [(op, args, kwargs, outs, grad, file, line)]) as numbers of values; "
     "arguments "
     "that are tensors are value(number)."},
    {NULL, NULL, 0, NULL}};
static PyGetSetDef ways_getset[] = {
    {"diff", ways_diff, NULL, "indexes of the inputs whose gradients the graph has", NULL},
    {"writes", ways_writes, NULL, "may it write to its inputs?", NULL},
    {"recording", ways_recording, NULL, "the number of the recording that the graph comes from", NULL},
    {"steps", ways_steps, NULL, "names of the kernels and calls of the compiled graph", NULL},
    {NULL, NULL, NULL, NULL, NULL}};
static PyTypeObject WaysType = {PyVarObject_HEAD_INIT(NULL, 0).tp_name = "magneto._magneto.Ways",
                                .tp_basicsize = sizeof(Ways),
                                .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                .tp_methods = ways_methods,
                                .tp_getset = ways_getset,
                                .tp_doc = "Two ways of running one graph, while it is verified."};

int mg_verify_init(PyObject *module) {
  (void)module;
  return PyType_Ready(&WaysType);
}

/* ---- a verdict ---- */

/* The check itself failed: the program goes on, and its user is told.  -1 with an exception. */
static int verify_failed(void) {
  if (!PyErr_ExceptionMatches(PyExc_Exception)) return -1; /* Ctrl-C */
  PyObject *type, *value, *tb;
  PyErr_Fetch(&type, &value, &tb);
  PyObject *text = value ? PyObject_Str(value) : NULL;
  mg_clear_shown();
  mg_log(MG_LOG_fallback, "a graph could not be verified: %s", text ? PyUnicode_AsUTF8(text) : "?");
  int rc = PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "magneto: a graph could not be verified: %S",
                            text ? text : Py_None);
  Py_XDECREF(text);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(tb);
  return rc;
}

/* Python's verdict: new, or NULL with an exception.  A report does not count what runs meanwhile. */
static PyObject *verify_ask(Ways *ways, PyObject *list) {
  bool measure = mg_measure_on;
  uint64_t begun = mg_ticks();
  PyObject *m = mg_glue(GLUE_trust_beside), *said = NULL;
  mg_measure_on = false;
  if (m) said = PyObject_CallMethod(m, "check", "OO", ways, list);
  mg_measure_on = measure;
  if (measure) __atomic_fetch_sub(&mg_stats.calls.ticks, mg_ticks() - begun, __ATOMIC_RELAXED);
  Py_XDECREF(m);
  return said;
}

/* 0: no difference, or it cannot be told; 1: *said is what to tell the user, new; -1 with an exception. */
static int verify_run(const MgVerify *v, const MgVerifyWays *w, PyObject *const *in, PyObject **said) {
  MgHookMode mode = mg_hook_mode;
  bool grad = mg_abi.aoti_torch_grad_mode_is_enabled();
  PyObject *list = PyList_New(w->ninput);
  Ways *ways = list ? PyObject_New(Ways, &WaysType) : NULL;
  *said = NULL;
  for (uint32_t i = 0; list && i < w->ninput; i++) PyList_SET_ITEM(list, i, Py_NewRef(in[i]));
  if (ways) {
    ways->of = w;
    ways->writes = v->writes;
    ways->recording = v->recording;
    mg_hook_mode = HOOK_off;
    *said = verify_ask(ways, list);
    mg_hook_mode = mode;
    ways->of = NULL;
  }
  if (mg_abi.aoti_torch_grad_mode_is_enabled() != grad) mg_abi.aoti_torch_grad_mode_set_enabled(grad);
  Py_XDECREF(ways);
  Py_XDECREF(list);
  mg_stats.verified += *said != Py_False;
  if (!*said) return verify_failed();
  if (*said == Py_False) Py_SETREF(*said, Py_NewRef(Py_None)); /* a smaller graph, while one is looked for */
  if (*said != Py_None) return 1;
  Py_CLEAR(*said);
  return 0;
}

/* Tells of a difference and counts it; steals said.  -1 with an exception. */
static int verify_tell(PyObject *said) {
  mg_stats.differed++;
  mg_stats.fallbacks++;
  const char *text = PyUnicode_AsUTF8(said);
  mg_log(MG_LOG_fallback, "%s", text ? text : "?");
  mg_event("fallback", NULL, 0, text ? text : "?");
  int rc = -1;
  if (mg_strict()) PyErr_Format(PyExc_RuntimeError, "magneto: %S", said);
  else rc = PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "magneto: %S", said);
  Py_DECREF(said);
  return rc;
}

int mg_verify_compare(MgVerify *v, const MgVerifyWays *w, PyObject *const *in) {
  PyObject *said;
  int rc = verify_run(v, w, in, &said);
  if (rc <= 0) return rc;
  v->differs = true;
  return verify_tell(said) ? -1 : 1;
}

/* Numbers of the inputs that get gradients.  New; NULL with an exception. */
static PyObject *verify_diff(const MgTrace *t) {
  uint32_t n = t->joint ? t->joint->ndiff : 0;
  PyObject *list = PyList_New(n);
  for (uint32_t i = 0; list && i < n; i++) {
    uint32_t at = 0;
    while (at < t->g->ninput && t->g->input[at] != t->input[t->joint->diff[i]].val) at++;
    PyObject *number = PyLong_FromUnsignedLong(at);
    if (!number) Py_CLEAR(list);
    else PyList_SET_ITEM(list, i, number);
  }
  return list;
}

static PyObject *verify_announce(const MgTrace *t, const MgNodeRun *nodes, PyObject *const *in) {
  PyObject *m = mg_glue(GLUE_trust_repro), *r = NULL;
  PyObject *value = m ? PyObject_GetAttrString(m, "Value") : NULL;
  PyObject *calls =
      value ? mg_noderun_describe(nodes, t->joint ? t->joint->nres : nodes->noutput, value) : NULL;
  PyObject *list = calls ? PyList_New(nodes->ninput) : NULL, *diff = list ? verify_diff(t) : NULL;
  for (uint32_t i = 0; diff && i < nodes->ninput; i++) PyList_SET_ITEM(list, i, Py_NewRef(in[i]));
  if (diff) r = PyObject_CallMethod(m, "announce_calls", "OOO", calls, list, diff);
  Py_XDECREF(diff);
  Py_XDECREF(list);
  Py_XDECREF(calls);
  Py_XDECREF(value);
  Py_XDECREF(m);
  return r;
}

/* Is the graph kept while it is compiled? */
static bool verify_keeps(const MgTrace *t) { return t->opt && t->opt->verify && mg_env(ENV_REPRO); }

static void verify_kept(PyObject *r) {
  if (!r) {
    mg_log(MG_LOG_fallback, "a graph is not kept for MAGNETO_REPRO");
    mg_clear_shown();
  }
  Py_XDECREF(r);
}

void mg_verify_announce(const MgTrace *t, const MgNodeRun *nodes, PyObject *const *in) {
  if (!verify_keeps(t)) return;
  MgHookMode mode = mg_hook_mode;
  mg_hook_mode = HOOK_off;
  verify_kept(verify_announce(t, nodes, in));
  mg_hook_mode = mode;
}

void mg_verify_compiled(const MgTrace *t, const char *why) {
  if (!verify_keeps(t)) return;
  MgHookMode mode = mg_hook_mode;
  PyObject *m = mg_glue(GLUE_trust_repro);
  mg_hook_mode = HOOK_off;
  verify_kept(m ? PyObject_CallMethod(m, "withdraw", "z", why) : NULL);
  mg_hook_mode = mode;
  Py_XDECREF(m);
}
