/* See the header. */
#include "entry/grad/grad_weigh.h"
#include "base/log.h"
#include "entry/grad/joint_plans.h"
#include "entry/launch/trial_clock.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "host/torch/tensor_facts.h"
#include "runtime/process/torch_abi.h"
#include "tuning.h"

typedef struct Weigh {
  MgAutograd *a;
  PyObject **in;  /* nprimal, owned: aliases of what requires grad */
  PyObject *leaf; /* tuple of these */
  PyObject *grad; /* torch.autograd.grad */
} Weigh;

/* Saved tensors may pass hooks of the program: then nothing is tried. */
static bool weigh_is_seen(void) {
  PyObject *m = mg_import("torch._C._autograd");
  PyObject *top = m ? PyObject_CallMethod(m, "_top_saved_tensors_default_hooks", "O", Py_True) : NULL;
  bool seen = top != Py_None;
  Py_XDECREF(top);
  Py_XDECREF(m);
  return seen;
}

static bool weigh_begin(Weigh *w, PyObject *const *in) {
  const MgAutograd *a = w->a;
  PyObject *m = mg_import("torch.autograd");
  w->grad = m ? PyObject_GetAttrString(m, "grad") : NULL;
  Py_XDECREF(m);
  if (!w->grad || !(w->in = mg_calloc(a->nprimal + 1, sizeof *w->in)) || !(w->leaf = PyTuple_New(a->ndiff)))
    return false;
  for (uint32_t i = 0; i < a->nprimal; i++) w->in[i] = Py_NewRef(in[i]);
  for (uint32_t i = 0; i < a->ndiff; i++) {
    PyObject *flat = PyObject_CallMethod(in[a->diff[i]], "detach", NULL);
    PyObject *alias = flat ? PyObject_CallMethod(flat, "requires_grad_", NULL) : NULL;
    Py_XDECREF(flat);
    if (!alias) return false;
    Py_SETREF(w->in[a->diff[i]], Py_NewRef(alias));
    PyTuple_SET_ITEM(w->leaf, i, alias);
  }
  return true;
}

static void weigh_end(Weigh *w) {
  for (uint32_t i = 0; w->in && i < w->a->nprimal; i++) Py_XDECREF(w->in[i]);
  free(w->in);
  Py_XDECREF(w->leaf);
  Py_XDECREF(w->grad);
}

/* The results that require grad, and ones for them, made anew as a loss makes its gradient: what a pass is
 * handed is then not in cache.  -1: no. */
static int weigh_results(Weigh *w, PyObject *const *out, PyObject *results, PyObject *given) {
  PyObject *m = mg_import("torch");
  int rc = m ? 0 : -1;
  for (uint32_t i = 0; !rc && i < w->a->nres; i++) {
    if (!out[i] || !PyObject_TypeCheck(out[i], mg_torch.tensor) || !mg_facts_requires_grad(out[i])) continue;
    PyObject *one = PyObject_CallMethod(m, "ones_like", "O", out[i]);
    if (!one || PyList_Append(results, out[i]) || PyList_Append(given, one)) rc = -1;
    Py_XDECREF(one);
  }
  Py_XDECREF(m);
  return rc;
}

/* One way, forward and backward, both of which are timed. */
static bool weigh_run(Weigh *w, bool nodes, float *forward, float *pass) {
  MgAutograd *a = w->a;
  MgTrialWay way = nodes ? WAY_eager : WAY_compiled;
  PyObject **out = mg_calloc(a->nres + 1, sizeof *out), *args = NULL, *kw = NULL, *r = NULL;
  PyObject *l = PyList_New(0), *given = PyList_New(0);
  double t0 = mg_now_ms();
  if (!l || !given || !out) goto done;
  if (nodes ? mg_autograd_run_nodes(a, w->in, out) : mg_autograd_run(a, w->in, NULL, out)) goto done;
  *forward = (float)mg_trial_took(way, t0);
  t0 = mg_now_ms();
  if (weigh_results(w, out, l, given) || !PyList_GET_SIZE(l)) goto done;
  args = PyTuple_Pack(3, l, w->leaf, given);
  kw = Py_BuildValue("{s:O}", "allow_unused", Py_True);
  if (args && kw) r = PyObject_Call(w->grad, args, kw);
done:;
  bool ok = r != NULL;
  Py_XDECREF(r);
  Py_XDECREF(args);
  Py_XDECREF(l);
  Py_XDECREF(given);
  for (uint32_t i = 0; out && i < a->nres; i++) Py_XDECREF(out[i]);
  *pass = (float)mg_trial_took(way, t0); /* with the end of the nodes */
  free(out);
  Py_XDECREF(kw);
  return ok;
}

/* A few runs of one way in a row; the best of all rows.  The first makes caches warm. */
static bool weigh_row(Weigh *w, bool nodes, MgWeighed *ms) {
  double start = mg_now_ms();
  for (int i = 0; i <= MG_TUNE_WEIGH_ROW; i++) {
    float first = 0, second = 0;
    if (!weigh_run(w, nodes, &first, &second)) return false;
    if (i && first < ms->forward[nodes]) ms->forward[nodes] = first;
    if (i && second < ms->pass[nodes]) ms->pass[nodes] = second;
    double spent = mg_now_ms() - start;
    if (i && spent > (i < MG_TUNE_WEIGH_LEAST ? 4 * MG_TUNE_WEIGH_MS : MG_TUNE_WEIGH_MS / 2)) break;
  }
  return true;
}

bool mg_gradweigh(MgAutograd *a, PyObject *const *in, MgWeighed *ms) {
  Weigh w = {.a = a};
  for (int way = 0; way < 2; way++) ms->forward[way] = ms->pass[way] = 1e30f;
  if (!mg_abi.aoti_torch_grad_mode_is_enabled()) return false;
  bool ok = !weigh_is_seen() && weigh_begin(&w, in);
  double start = mg_now_ms();
  for (int i = 0; ok && i < MG_TUNE_WEIGH_ROWS; i++) {
    ok = weigh_row(&w, false, ms) && weigh_row(&w, true, ms);
    if (mg_now_ms() - start > MG_TUNE_WEIGH_MS) break;
  }
  weigh_end(&w);
  if (!ok) PyErr_Clear(); /* nothing is lost: the call itself comes after it */
  return ok;
}

float mg_gradweigh_both(const MgWeighed *ms, bool nodes, float forward) {
  float longer = MG_TUNE_WEIGH_COLD * (forward - ms->forward[nodes]);
  if (longer > MG_TUNE_WEIGH_COLD_MOST) longer = MG_TUNE_WEIGH_COLD_MOST;
  if (longer < -MG_TUNE_WEIGH_COLD_MOST) longer = -MG_TUNE_WEIGH_COLD_MOST;
  return forward + ms->pass[nodes] + longer;
}
