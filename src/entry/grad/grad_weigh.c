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
  PyObject **in;   /* nprimal, owned: aliases of what requires grad */
  PyObject *leaf;  /* tuple of these */
  PyObject *given; /* list: gradients of the results that require one; NULL until the first run */
  PyObject *grad;  /* torch.autograd.grad */
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
  Py_XDECREF(w->given);
  Py_XDECREF(w->grad);
}

/* The results that require grad, and ones for them. */
static PyObject *weigh_results(Weigh *w, PyObject *const *out) {
  PyObject *l = PyList_New(0), *given = w->given ? NULL : PyList_New(0), *m = mg_import("torch");
  bool ok = l && m && (given || w->given);
  for (uint32_t i = 0; ok && i < w->a->nres; i++) {
    if (!out[i] || !PyObject_TypeCheck(out[i], mg_torch.tensor) || !mg_facts_requires_grad(out[i])) continue;
    ok = !PyList_Append(l, out[i]);
    if (!ok || !given) continue;
    PyObject *one = PyObject_CallMethod(m, "ones_like", "O", out[i]);
    ok = one && !PyList_Append(given, one);
    Py_XDECREF(one);
  }
  Py_XDECREF(m);
  if (ok && given) w->given = given, given = NULL;
  Py_XDECREF(given);
  if (!ok) Py_CLEAR(l);
  return l;
}

/* One way, forward and backward, which is timed. */
static bool weigh_run(Weigh *w, bool nodes, float *ms) {
  MgAutograd *a = w->a;
  double t0 = 0;
  bool ok;
  PyObject **out = mg_calloc(a->nres + 1, sizeof *out), *l = NULL, *args = NULL, *kw = NULL, *r = NULL;
  if (!out || (nodes ? mg_autograd_run_nodes(a, w->in, out) : mg_autograd_run(a, w->in, NULL, out)))
    goto done;
  if (!(l = weigh_results(w, out)) || !PyList_GET_SIZE(l)) goto done;
  args = PyTuple_Pack(3, l, w->leaf, w->given);
  kw = Py_BuildValue("{s:O}", "allow_unused", Py_True);
  t0 = mg_now_ms();
  if (args && kw) r = PyObject_Call(w->grad, args, kw);
done:
  ok = r != NULL;
  Py_XDECREF(r);
  Py_XDECREF(args);
  Py_XDECREF(l);
  for (uint32_t i = 0; out && i < a->nres; i++) Py_XDECREF(out[i]);
  *ms = (float)mg_trial_took(nodes ? WAY_eager : WAY_compiled, t0); /* with the end of the nodes */
  free(out);
  Py_XDECREF(kw);
  return ok;
}

bool mg_gradweigh(MgAutograd *a, PyObject *const *in, float ms[2]) {
  Weigh w = {.a = a};
  ms[0] = ms[1] = 1e30f;
  if (!mg_abi.aoti_torch_grad_mode_is_enabled()) return false;
  bool ok = !weigh_is_seen() && weigh_begin(&w, in);
  double start = mg_now_ms();
  for (int i = 0; ok && i <= MG_TUNE_WHOLE_TIMED; i++) {
    for (int way = 0; ok && way < 2; way++) {
      float took = 0;
      ok = weigh_run(&w, way, &took);
      if (i && took < ms[way]) ms[way] = took; /* the first ones make caches warm */
    }
    if (i && mg_now_ms() - start > MG_TUNE_WEIGH_MS) break;
  }
  weigh_end(&w);
  if (!ok) PyErr_Clear(); /* nothing is lost: the call itself comes after it */
  return ok;
}
