/* The node that a compiled forward puts into PyTorch's gradient graph.
 * In: results of a forward run, the inputs that require grad.  Out: results with a grad_fn; gradients when
 * the engine asks.
 * The node is an instance of a subclass of torch._C._FunctionBase made here, applied without the Python layer
 * of autograd.Function: saved values, version checks, retain_graph, hooks and errors are PyTorch's own.
 * Differentiating a backward pass (create_graph) runs forward again op by op, from its
 * inputs, and lets PyTorch do it. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdlib.h>
#include <string.h>
#include "base/bits.h"
#include "base/env.h"
#include "host/python/names.h"
#include "entry/grad/bucketed_backward.h"
#include "entry/grad/joint_plans.h"
#include "entry/grad/later_backward.h"
#include "entry/grad/node_type.h"
#include "entry/grad/result_links.h"
#include "entry/grad/undefined_tangents.h"
#include "entry/launch/graph_interp.h"
#include "entry/launch/plan_call.h"
#include "entry/launch/stats.h"
#include "host/python/glue.h"
#include "host/python/pyobject.h"
#include "results.h"
#include "host/torch/conj_neg.h"
#include "host/torch/tensor_facts.h"
#include "ir/graph/joint_spec.h"
#include "runtime/plan/plan_priv.h"

typedef struct GradRun { /* one forward run whose results are about to get their grad_fn */
  MgAutograd *a;
  PyObject *const *in, **res;
  PyObject *state;    /* borrowed */
  PyObject *links;    /* borrowed; NULL: no result is computed from another one (result_links.h) */
  PyObject *hooked;   /* borrowed; NULL: no input is to be looked at */
  MgGradParts *parts; /* borrowed; NULL: backward is one node */
  uint32_t part;      /* of the node that is being made */
} GradRun;

static _Thread_local GradRun *gradnode_run;
static PyObject *gradnode_apply;      /* its forward class's apply */
static PyObject *gradnode_register;   /* its backward class's _register_hook_dict, torch's own */
static PyObject *gradnode_task_keeps; /* torch._C._autograd._get_current_graph_task_keep_graph */
static Py_ssize_t gradnode_owner,
    gradnode_state;              /* slots: MgAutograd; list of what nkeep asks for, or NULL */
static Py_ssize_t gradnode_kept; /* slot: tuple of what is saved without a version check, or NULL */
static Py_ssize_t gradnode_parts,
    gradnode_part;                 /* slots: MgGradParts or NULL; the number of the node's part, an int */
static Py_ssize_t gradnode_hooked; /* slot: where hooks of inputs with a gradient graph are found, or NULL */
static Py_ssize_t gradnode_links;  /* slot: the ports of the results, or NULL */
static Py_ssize_t gradnode_left;   /* slot: what later passes find (later_backward.h), or NULL */

static PyObject **gradnode_slot(PyObject *node, Py_ssize_t at) { return (PyObject **)((char *)node + at); }

static bool gradnode_is_loose(const MgAutograd *a, uint32_t k) {
  return a->saved[k].kind == MG_SAVED_primal && a->loose[a->saved[k].index];
}

/* ---- what a second differentiation needs ---- */

static PyObject *gradnode_call(const char *module, const char *name, PyObject *arg) {
  PyObject *m = mg_import(module);
  PyObject *r = m ? arg ? PyObject_CallMethod(m, name, "O", arg) : PyObject_CallMethod(m, name, NULL) : NULL;
  Py_XDECREF(m);
  return r;
}

/* Before a forward run: copies of what it overwrites although it reads it, and the state of the generator.  A
 * list with room for the kept inputs in front; NULL without an exception when nothing is needed. */
int mg_gradnode_before(const MgAutograd *a, PyObject *const *in, PyObject **state) {
  *state = NULL;
  if (!a->nkeep && !a->random) return 0;
  PyObject *l = PyTuple_New(2 * (Py_ssize_t)a->nkeep + 1);
  if (!l) return -1;
  for (uint32_t i = 0; i < a->nkeep; i++) {
    if (!a->copy[a->keep[i]]) continue;
    PyObject *t = PyObject_CallMethod(in[a->keep[i]], "clone", NULL);
    if (!t) goto fail;
    PyTuple_SET_ITEM(l, i, t);
  }
  PyObject *rng = a->random ? gradnode_call("torch", "get_rng_state", NULL) : Py_NewRef(Py_None);
  if (!rng) goto fail;
  PyTuple_SET_ITEM(l, 2 * a->nkeep, rng);
  *state = l;
  return 0;
fail:
  Py_DECREF(l);
  return -1;
}

/* After it: the other kept inputs and their versions. */
static int gradnode_keep(const MgAutograd *a, PyObject *const *in, PyObject *state) {
  for (uint32_t i = 0; i < a->nkeep; i++) {
    if (PyTuple_GET_ITEM(state, i)) continue;
    PyTuple_SET_ITEM(state, i, Py_NewRef(in[a->keep[i]]));
    if (a->written[a->keep[i]]) continue;
    PyObject *v = PyObject_GetAttr(in[a->keep[i]], mg_names.version);
    if (!v) PyErr_Clear(); /* inference tensors have none */
    PyTuple_SET_ITEM(state, a->nkeep + i, v);
  }
  return 0;
}

/* The primals of the forward run, as they were.  New references in `in`; -1 with an exception. */
static int gradnode_primals(const MgAutograd *a, PyObject *state, PyObject *saved, PyObject **in) {
  for (uint32_t k = 0; k < a->nsaved; k++)
    if (a->saved[k].kind == MG_SAVED_primal)
      Py_XSETREF(in[a->saved[k].index], Py_NewRef(PyTuple_GET_ITEM(saved, k)));
  for (uint32_t i = 0; i < a->nkeep; i++) {
    PyObject *t = PyTuple_GET_ITEM(state, i), *was = PyTuple_GET_ITEM(state, a->nkeep + i);
    Py_XSETREF(in[a->keep[i]], Py_NewRef(t));
    PyObject *now = was ? PyObject_GetAttr(t, mg_names.version) : NULL;
    int same = was && now ? PyObject_RichCompareBool(was, now, Py_EQ) : 1;
    Py_XDECREF(now);
    if (same > 0) continue;
    if (!PyErr_Occurred())
      PyErr_SetString(PyExc_RuntimeError,
                      "magneto: an input of a compiled function was modified by an inplace operation, so its "
                      "backward cannot be differentiated; run the function without magneto for that");
    return -1;
  }
  /* What forward writes, it writes to a copy this time. */
  for (uint32_t i = 0; i < a->nprimal; i++) {
    if (!in[i] || !a->written[i]) continue;
    PyObject *c = PyObject_CallMethod(in[i], "clone", NULL);
    if (!c) return -1;
    Py_SETREF(in[i], c);
  }
  return 0;
}

/* ---- backward op by op ---- */

static PyObject *gradnode_engine(PyObject *outs, PyObject *grads, PyObject *ins, bool create) {
  PyObject *m = mg_import("torch.autograd"), *f = m ? PyObject_GetAttrString(m, "grad") : NULL, *r = NULL;
  PyObject *args = f ? PyTuple_Pack(3, outs, ins, grads) : NULL;
  PyObject *kw =
      args ? Py_BuildValue("{s:O,s:O}", "create_graph", create ? Py_True : Py_False, "allow_unused", Py_True)
           : NULL;
  if (kw) r = PyObject_Call(f, args, kw);
  Py_XDECREF(m);
  Py_XDECREF(f);
  Py_XDECREF(args);
  Py_XDECREF(kw);
  return r;
}

typedef struct GradAgain { /* which gradients a run op by op gives */
  PyObject *links;         /* borrowed; NULL: paths through other results count as well (result_links.h) */
  const MgAutograd *a;
  int64_t from; /* the result whose gradients with respect to other results are asked for; -1: those of the
                   inputs */
  bool create;  /* they are to be differentiated */
  PyObject **stand; /* by result: what other results were computed from; owned */
} GradAgain;

static PyObject *gradnode_stand(void *arg, uint32_t output, PyObject *made) {
  GradAgain *g = arg;
  const MgAutograd *a = g->a;
  uint32_t i = output - a->nres;
  return g->stand[i] = Py_XNewRef(mg_links_stand(g->links, i, made, g->create));
}

/* Forward again; later results are computed from what stands for earlier ones. */
static int gradnode_again_cut(const MgAutograd *a, PyObject **in, PyObject **out, GradAgain *g) {
  bool *at = mg_calloc(a->nres + a->nthrough + 1, sizeof *at);
  g->stand = mg_calloc(a->nthrough + 1, sizeof *g->stand);
  int rc = at && g->stand ? 0 : (PyErr_NoMemory(), -1);
  for (uint32_t i = 0; !rc && i < a->nthrough; i++) at[a->nres + i] = mg_links_target(g->links, i);
  MgNodeCut cut = {at, gradnode_stand, g};
  if (!rc) rc = mg_autograd_all(a, in, out, &cut);
  free(at);
  return rc;
}

/* What is differentiated by: aliases of the inputs, so that only paths through this
 * function count, or other results. */
static PyObject *gradnode_again_ins(const MgAutograd *a, PyObject **in, PyObject **out, GradAgain *g) {
  PyObject *ins = g->from < 0 ? PyTuple_New(a->ndiff) : PyList_New(0);
  for (uint32_t i = 0; ins && i < a->ndiff; i++) {
    PyObject *alias = PyObject_CallMethod(in[a->diff[i]], "view_as", "O", in[a->diff[i]]);
    if (!alias) goto fail;
    if (g->from < 0) PyTuple_SET_ITEM(ins, i, Py_NewRef(alias));
    Py_SETREF(in[a->diff[i]], alias);
  }
  if (!ins || (g->links ? gradnode_again_cut(a, in, out, g) : mg_autograd_all(a, in, out, NULL))) goto fail;
  if (g->from < 0) return ins;
  for (uint32_t i = 0; i < a->nthrough; i++)
    if (mg_bits_has(a->link + (size_t)a->words * (uint32_t)g->from, i) && PyList_Append(ins, g->stand[i]))
      goto fail;
  Py_SETREF(ins, PyList_AsTuple(ins));
  return ins;
fail:
  Py_XDECREF(ins);
  return NULL;
}

/* Runs forward again and differentiates it. */
static PyObject *gradnode_again_run(const MgAutograd *a, PyObject **in, PyObject *const *tangent,
                                    GradAgain *g) {
  uint32_t n = a->nres + a->nthrough;
  PyObject **out = mg_calloc(n + 1, sizeof *out), *outs = PyList_New(0), *tan = PyList_New(0), *ins = NULL,
           *grads = NULL;
  if (!out) PyErr_NoMemory();
  if (!out || !outs || !tan || !(ins = gradnode_again_ins(a, in, out, g))) goto done;
  for (uint32_t i = 0; i < a->nthrough; i++)
    if (tangent[i] != Py_None && mg_facts_requires_grad(out[a->nres + i]) &&
        (PyList_Append(outs, out[a->nres + i]) || PyList_Append(tan, tangent[i])))
      goto done;
  grads = gradnode_engine(outs, tan, ins, g->create);
done:
  for (uint32_t i = 0; out && i < n; i++) Py_XDECREF(out[i]);
  for (uint32_t i = 0; g->stand && i < a->nthrough; i++) Py_XDECREF(g->stand[i]);
  free(g->stand);
  free(out);
  Py_XDECREF(outs);
  Py_XDECREF(tan);
  Py_XDECREF(ins);
  return grads;
}

static PyObject *gradnode_again(const MgAutograd *a, PyObject *state, PyObject *saved,
                                PyObject *const *tangent, GradAgain *g) {
  PyObject *grads = NULL, *rng = NULL;
  PyObject **in = mg_calloc(a->nprimal + 1, sizeof *in);
  bool create = g->create = mg_abi.aoti_torch_grad_mode_is_enabled();
  if (!in) return PyErr_NoMemory();
  if (!state && (a->nkeep || a->random)) {
    PyErr_SetString(PyExc_RuntimeError,
                    "Trying to backward through the graph a second time: the inputs of a compiled function "
                    "have already been freed. Specify retain_graph=True if you need to");
    goto done;
  }
  mg_abi.aoti_torch_grad_mode_set_enabled(true);
  if (gradnode_primals(a, state, saved, in)) goto done;
  if (a->random) {
    if (!(rng = gradnode_call("torch", "get_rng_state", NULL))) goto done;
    PyObject *r = gradnode_call("torch", "set_rng_state", PyTuple_GET_ITEM(state, 2 * a->nkeep));
    if (!r) goto done;
    Py_DECREF(r);
  }
  grads = gradnode_again_run(a, in, tangent, g);
done:
  mg_abi.aoti_torch_grad_mode_set_enabled(create);
  if (rng) {
    PyObject *t, *v, *tb;
    PyErr_Fetch(&t, &v, &tb);
    Py_XDECREF(gradnode_call("torch", "set_rng_state", rng));
    PyErr_Restore(t, v, tb);
    Py_DECREF(rng);
  }
  for (uint32_t i = 0; i < a->nprimal; i++) Py_XDECREF(in[i]);
  free(in);
  return grads;
}

PyObject *mg_gradnode_again(const MgAutograd *a, PyObject *state, PyObject *saved, PyObject *const *tangent) {
  GradAgain g = {.a = a, .from = -1};
  return gradnode_again(a, state, saved, tangent, &g);
}

/* ---- backward, compiled ---- */

/* A tangent in the layout that backward was compiled for: as it is, or a copy.  New reference. */
static PyObject *gradnode_tangent(const MgTangent *want, PyObject *o) {
  MgTensor *t = NULL, *u;
  int64_t *stride, ndim;
  const int64_t *size = want->dim, *step = want->dim + want->ndim;
  bool same = true, fresh = o == Py_None;
  if (!fresh) {
    t = mg_abi_tensor(o);
    if (mg_abi.aoti_torch_get_dim(t, &ndim) || ndim != want->ndim ||
        mg_abi.aoti_torch_get_strides(t, &stride)) { /* sparse */
      PyObject *dense = PyObject_CallMethod(o, "to_dense", NULL),
               *r = dense ? gradnode_tangent(want, dense) : NULL;
      Py_XDECREF(dense);
      return r;
    }
    for (int i = 0; i < want->ndim; i++) same &= size[i] <= 1 || stride[i] == step[i];
    if (same && want->dtype != DT_c64 && want->dtype != DT_c128)
      return Py_NewRef(o); /* complex: conj bits are for copy_ */
  }
  if (mg_abi.aoti_torch_empty_strided(want->ndim, size, step, want->dtype, want->device, want->device_index,
                                      &u))
    return PyErr_NoMemory();
  PyObject *r = mg_abi.thpvariable_wrap(u);
  if (r && fresh) {
    PyObject *z = PyObject_CallMethod(r, "zero_", NULL);
    if (!z) Py_CLEAR(r);
    Py_XDECREF(z);
  } else if (r && mg_abi.aoti_torch_copy_(u, t, 0)) {
    PyErr_SetString(PyExc_RuntimeError, "magneto: a gradient could not be copied");
    Py_CLEAR(r);
  }
  mg_abi.aoti_torch_delete_tensor_object(u);
  return r;
}

int mg_gradnode_inputs(const MgAutograd *a, PyObject *saved, PyObject *const *tangent, PyObject **in) {
  for (uint32_t i = 0; i < a->nsaved; i++) in[i] = PyTuple_GET_ITEM(saved, i);
  for (uint32_t i = 0; i < a->nthrough; i++) {
    if ((in[a->nsaved + i] = gradnode_tangent(&a->tangent[i], tangent[i]))) continue;
    while (i--) Py_CLEAR(in[a->nsaved + i]);
    return -1;
  }
  return 0;
}

static int gradnode_compiled(const MgAutograd *a, MgPlan *bwd, PyObject *saved, PyObject *const *tangent,
                             PyObject **grad) {
  uint32_t n = a->nsaved + a->nthrough;
  PyObject *small[64], **in = n > 64 ? mg_malloc(n * sizeof *in) : small, *off = NULL;
  int rc = -1;
  if (!in) return PyErr_NoMemory(), -1;
  if (mg_gradnode_inputs(a, saved, tangent, in)) goto fail;
  if (a->extern_bwd && mg_planrun_autocast_off(&off)) goto done;
  rc = mg_planrun(bwd, in, bwd == a->bwd ? a->sizes : NULL, grad);
  if (off && mg_planrun_autocast_back(off)) rc = -1;
done:
  for (uint32_t i = a->nsaved; i < n; i++) Py_DECREF(in[i]);
fail:
  if (in != small) free(in);
  return rc;
}

/* The gradients in the order of the inputs: nothing for those that no given tangent reaches. */
static PyObject *gradnode_result(const MgAutograd *a, PyObject **grad, const uint64_t *given) {
  PyObject *t = PyTuple_New(a->ndiff);
  for (uint32_t i = 0; t && i < a->ndiff; i++) {
    bool none = !grad || a->grad[i] < 0 || !mg_bits_meet(a->reach + (size_t)a->words * i, given, a->words);
    PyTuple_SET_ITEM(t, i, Py_NewRef(none ? Py_None : grad[a->grad[i]]));
  }
  return t;
}

/* Tangents under vmap, or of a subclass that handles ops itself, are PyTorch's work;
 * anomaly mode names ATen's nodes. */
static bool gradnode_strange(const MgAutograd *a, PyObject *const *tangent) {
  if (mg_abi.anomaly_enabled && *mg_abi.anomaly_enabled) return true;
  for (uint32_t i = 0; i < a->nthrough; i++)
    if (tangent[i] != Py_None && !mg_facts_in_memory(tangent[i])) return true;
  return false;
}

/* The set of defined tangents: in few where it fits, else malloc'ed.  NULL with an exception. */
enum { GRADNODE_FEW = 4 };
static uint64_t *gradnode_given(const MgAutograd *a, PyObject *const *tangent, uint64_t *few) {
  uint64_t *given = a->words > GRADNODE_FEW ? mg_calloc(a->words, sizeof *given) : few;
  if (!given) return (uint64_t *)PyErr_NoMemory();
  memset(given, 0, a->words * sizeof *given);
  for (uint32_t i = 0; i < a->nthrough; i++)
    if (tangent[i] != Py_None) mg_bits_add(given, i);
  return given;
}

/* cut: the links of an exact pass (result_links.h), or NULL. */
static PyObject *gradnode_compute(MgAutograd *a, PyObject *state, PyObject *saved, PyObject *const *tangent,
                                  const uint64_t *given, PyObject *cut) {
  MgPlan *bwd;
  PyObject *small[32], **grad = small, *r = NULL;
  GradAgain exact = {.a = a, .links = cut, .from = -1};
  if (!a->ngrad || !mg_bits_any(given, a->words)) return gradnode_result(a, NULL, given);
  if (cut) return gradnode_again(a, state, saved, tangent, &exact);
  if (mg_abi.aoti_torch_grad_mode_is_enabled() || gradnode_strange(a, tangent))
    return mg_gradnode_again(a, state, saved, tangent);
  if (mg_gradgiven_plan(a, given, &bwd)) return NULL;
  if (!bwd) return mg_gradnode_again(a, state, saved, tangent);
  if (a->ngrad > 32 && !(grad = mg_malloc(a->ngrad * sizeof *grad))) return PyErr_NoMemory();
  int rc = gradnode_compiled(a, bwd, saved, tangent, grad);
  if (!rc) {
    bool bad = false;
    for (uint32_t i = 0; !bad && i < a->ngrad; i++) bad = a->bits[i] && mg_lazybits_set(grad[i], a->bits[i]);
    if (!bad) r = gradnode_result(a, grad, given);
    for (uint32_t i = 0; i < a->ngrad; i++) Py_XDECREF(grad[i]);
  } else if (rc == MG_RUN_FAILED && !mg_strict()) { /* the compiled backward failed: PyTorch's own */
    PyErr_Clear();                                  /* PyTorch's own backward runs */
    mg_stats.fallbacks++;
    r = mg_gradnode_again(a, state, saved, tangent);
  }
  if (grad != small) free(grad);
  return r;
}

/* After the last backward pass nothing is kept for a second differentiation;
 * `saved`: what the pass has used. */
static int gradnode_release(const MgAutograd *a, PyObject *node, PyObject *saved, uint64_t *given) {
  PyObject **state = gradnode_slot(node, gradnode_state), **left = gradnode_slot(node, gradnode_left);
  if (!*state && !a->mate) return 0;
  PyObject *keeps = PyObject_CallNoArgs(gradnode_task_keeps);
  if (!keeps) return -1;
  Py_DECREF(keeps);
  if (keeps != Py_False) return 0;
  if (*left) mg_bits_join(given, mg_gradleft_done(*left), a->words); /* all that are done */
  if (saved && mg_gradleft_any(a, given)) {
    PyObject *now = mg_gradleft_new(a, saved, given);
    if (!now) return -1;
    Py_XSETREF(*left, now);
    return 0;
  }
  Py_CLEAR(*left);
  Py_CLEAR(*state);
  return 0;
}

/* Does the engine want the gradient of the node's first input, the token? */
static int gradnode_wants_next(PyObject *node) {
  PyObject *t = PyObject_GetAttr(node, mg_names.needs_input_grad);
  int yes = t ? PyObject_IsTrue(PyTuple_GET_ITEM(t, 0)) : -1;
  Py_XDECREF(t);
  return yes;
}

/* The first of several parts. */
static PyObject *gradnode_first(MgAutograd *a, MgGradParts *parts, PyObject *state, PyObject *saved,
                                PyObject *const *tangent, const uint64_t *given, PyObject *cut, bool next) {
  bool some = mg_bits_any(given, a->words);
  MgPlan *bwd = a->bwd;
  if (some && mg_gradgiven_plan(a, given, &bwd)) return NULL;
  bool once = some && (cut || bwd != a->bwd || mg_abi.aoti_torch_grad_mode_is_enabled() ||
                       gradnode_strange(a, tangent));
  PyObject *all = once ? gradnode_compute(a, state, saved, tangent, given, cut) : NULL;
  if (once && !all) return NULL;
  PyObject *r = some ? mg_gradpart_begin(a, parts, state, saved, tangent, given, all, next)
                     : mg_gradpart_go_on(a, parts, 0, Py_None, next);
  Py_XDECREF(all);
  return r;
}

/* Everything that backward takes from forward, in its order; new.  PyTorch raises where a saved
 * tensor was written or freed. */
static PyObject *gradnode_saved(const MgAutograd *a, PyObject *node) {
  PyObject *checked = PyObject_GetAttr(node, mg_names.saved_tensors),
           *kept = *gradnode_slot(node, gradnode_kept);
  if (!checked || !kept) return checked;
  PyObject *all = PyTuple_New(a->nsaved);
  for (uint32_t k = 0, i = 0, j = 0; all && k < a->nsaved; k++) {
    PyObject *o = gradnode_is_loose(a, k) ? PyTuple_GET_ITEM(kept, i++) : PyTuple_GET_ITEM(checked, j++);
    PyTuple_SET_ITEM(all, k, Py_NewRef(o));
  }
  Py_DECREF(checked);
  return all;
}

/* The engine goes on to inputs without a gradient, too; eager's graph has no way to
 * them, so hooks must not tell. */
static int gradnode_spare(PyObject *node, PyObject *grads) {
  bool none = false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(grads); i++) none |= PyTuple_GET_ITEM(grads, i) == Py_None;
  if (!none) return 0;
  PyObject *m = mg_glue(GLUE_tensor_hooks);
  PyObject *hooked = *gradnode_slot(node, gradnode_hooked);
  PyObject *r = m ? PyObject_CallMethod(m, "spare", "OOO", node, grads, hooked ? hooked : Py_None) : NULL;
  Py_XDECREF(m);
  Py_XDECREF(r);
  return r ? 0 : -1;
}

static PyObject *gradnode_backward(PyObject *node, PyObject *const *tangent, Py_ssize_t n) {
  MgAutograd *a = (MgAutograd *)*gradnode_slot(node, gradnode_owner);
  MgGradParts *parts = (MgGradParts *)*gradnode_slot(node, gradnode_parts);
  uint32_t part = parts ? (uint32_t)PyLong_AsUnsignedLong(*gradnode_slot(node, gradnode_part)) : 0;
  PyObject *saved = NULL, **state = gradnode_slot(node, gradnode_state),
           *left = *gradnode_slot(node, gradnode_left), *r = NULL;
  if (!a || n != (part ? 1 : a->nthrough))
    return PyErr_Format(PyExc_RuntimeError, "magneto: backward of a compiled graph: %zd gradients", n);
  int next = parts && part + 1 < parts->n ? gradnode_wants_next(node) : 0;
  if (next < 0) return NULL;
  if (part) return mg_gradpart_go_on(a, parts, part, tangent[0], next);
  uint64_t few[GRADNODE_FEW], *given = gradnode_given(a, tangent, few);
  if (!given) return NULL;
  PyObject *links = *gradnode_slot(node, gradnode_links);
  int exact = links ? mg_links_exact(links) : 0;
  Py_INCREF(a);
  Py_XINCREF((PyObject *)parts);
  if (left) saved = Py_XNewRef(mg_gradleft_saved(a, left, given));
  else if (a->nsaved || a->frees) saved = gradnode_saved(a, node);
  if (PyErr_Occurred()) goto done;
  r = parts ? gradnode_first(a, parts, *state, saved, tangent, given, exact ? links : NULL, next)
            : gradnode_compute(a, *state, saved, tangent, given, exact ? links : NULL);
  if (r && (gradnode_release(a, node, parts ? NULL : saved, given) ||
            (PyTuple_Check(r) && gradnode_spare(node, r))))
    Py_CLEAR(r);
  Py_XDECREF(saved);
done:
  if (given != few) free(given);
  Py_XDECREF((PyObject *)parts);
  Py_DECREF(a);
  return r;
}

PyObject *mg_gradnode_between(PyObject *node, uint32_t k, PyObject *tangent) {
  MgAutograd *a = (MgAutograd *)*gradnode_slot(node, gradnode_owner);
  PyObject *left = *gradnode_slot(node, gradnode_left), *saved = NULL, *r = NULL;
  GradAgain g = {.a = a, .links = *gradnode_slot(node, gradnode_links), .from = k};
  PyObject **tangents = mg_malloc((a->nthrough + 1) * sizeof *tangents);
  if (!tangents) return PyErr_NoMemory();
  for (uint32_t i = 0; i < a->nthrough; i++) tangents[i] = i == k ? tangent : Py_None;
  uint64_t few[GRADNODE_FEW], *given = gradnode_given(a, tangents, few);
  if (!given) goto done;
  if (left) saved = Py_XNewRef(mg_gradleft_saved(a, left, given));
  else if (a->nsaved || a->frees) saved = gradnode_saved(a, node);
  if (!PyErr_Occurred()) r = gradnode_again(a, *gradnode_slot(node, gradnode_state), saved, tangents, &g);
  Py_XDECREF(saved);
done:
  if (given != few) free(given);
  free(tangents);
  return r;
}

/* ---- forward ---- */

static PyObject *gradnode_forward_token(PyObject *node) {
  PyObject *token = PyObject_SetAttr(node, mg_names.materialize_grads, Py_False) ? NULL : mg_gradpart_token();
  PyObject *out = token ? PyTuple_Pack(1, token) : NULL;
  Py_XDECREF(token);
  return out;
}

/* What backward takes from forward: what PyTorch checks, in `save`, and the rest. */
static int gradnode_save(const GradRun *run, PyObject *node, PyObject *save) {
  const MgAutograd *a = run->a;
  PyObject *kept = a->nloose ? PyTuple_New(a->nloose) : NULL;
  if (a->nloose && !(*gradnode_slot(node, gradnode_kept) = kept)) return -1;
  if (a->frees) {
    PyTuple_SET_ITEM(save, 0, PyObject_CallMethod(run->res[0], "new_empty", "((i))", 0));
    if (!PyTuple_GET_ITEM(save, 0)) return -1;
  }
  for (uint32_t k = 0, i = 0, j = 0; k < a->nsaved; k++) {
    const MgSaved *s = &a->saved[k];
    PyObject *v = s->kind == MG_SAVED_primal   ? run->in[s->index]
                  : s->kind == MG_SAVED_output ? run->res[s->index]
                                               : run->res[a->nthrough + a->naside + s->index];
    if (gradnode_is_loose(a, k)) PyTuple_SET_ITEM(kept, i++, Py_NewRef(v));
    else PyTuple_SET_ITEM(save, j++, Py_NewRef(v));
  }
  return PyObject_SetAttr(node, mg_names.to_save, save);
}

/* forward(node, *inputs) of the class: everything is computed already. */
static PyObject *gradnode_forward(PyObject *self, PyObject *const *arg, Py_ssize_t n) {
  const GradRun *run = gradnode_run;
  const MgAutograd *a = run->a;
  PyObject *node = arg[0];
  *gradnode_slot(node, gradnode_owner) = Py_NewRef((PyObject *)a);
  *gradnode_slot(node, gradnode_parts) = Py_XNewRef((PyObject *)run->parts);
  if (run->parts && !(*gradnode_slot(node, gradnode_part) = PyLong_FromUnsignedLong(run->part))) return NULL;
  if (run->part) return gradnode_forward_token(node);
  *gradnode_slot(node, gradnode_state) = Py_XNewRef(run->state);
  *gradnode_slot(node, gradnode_links) = Py_XNewRef(run->links);
  *gradnode_slot(node, gradnode_hooked) = Py_XNewRef(run->hooked);
  bool saves = a->nsaved || a->frees;
  PyObject *save = saves ? PyTuple_New(a->frees ? 1 : a->nsaved - a->nloose) : NULL,
           *out = PyTuple_New(a->nthrough);
  if ((saves && !save) || !out) goto fail;
  if (save && gradnode_save(run, node, save)) goto fail;
  for (uint32_t i = 0; i < a->nthrough; i++) PyTuple_SET_ITEM(out, i, Py_NewRef(run->res[i]));
  if (PyObject_SetAttr(node, mg_names.materialize_grads, Py_False)) goto fail;
  Py_XDECREF(save);
  return out;
fail:
  Py_XDECREF(save);
  Py_XDECREF(out);
  return NULL;
}

/* By input that requires grad: the dict of its hooks, or a weak reference to it while it has none; None for
 * leaves.  *hooked: new; NULL if backward leaves no gradient out, or there are only
 * leaves.  -1 with an exception. */
static int gradnode_look(const MgAutograd *a, PyObject *const *in, PyObject **hooked) {
  *hooked = NULL;
  if (a->nthrough < 2 || !mg_abi.grad_fn) return 0;
  for (uint32_t i = 0; i < a->ndiff; i++) {
    PyObject *t = in[a->diff[i]];
    if (!*(const void *const *)mg_abi.grad_fn(mg_abi_tensor(t))) continue;
    if (!*hooked && !(*hooked = PyTuple_New(a->ndiff))) return -1;
    PyObject *hooks = PyObject_GetAttrString(t, "_backward_hooks");
    if (hooks == Py_None) Py_SETREF(hooks, PyWeakref_NewRef(t, NULL));
    if (!hooks) return -1;
    PyTuple_SET_ITEM(*hooked, i, hooks);
  }
  for (uint32_t i = 0; *hooked && i < a->ndiff; i++)
    if (!PyTuple_GET_ITEM(*hooked, i)) PyTuple_SET_ITEM(*hooked, i, Py_NewRef(Py_None));
  return 0;
}

/* links: where some results get ports, or NULL. */
static int gradnode_join(MgAutograd *a, PyObject *const *in, PyObject **res, PyObject *state,
                         PyObject *links) {
  GradRun run = {a, in, res, state, links, NULL, NULL, 0}, *outer = gradnode_run;
  PyObject *small[64], **arg = small, *out = NULL;
  if (state && gradnode_keep(a, in, state)) return -1;
  PyObject *hooked = NULL;
  if (mg_gradpart_wanted(a, in, &run.parts)) return -1;
  if (!run.parts && gradnode_look(a, in, &hooked)) return Py_XDECREF(hooked), -1;
  run.hooked = hooked;
  if (a->ndiff >= 64 && !(arg = mg_malloc((a->ndiff + 1) * sizeof *arg))) {
    Py_XDECREF((PyObject *)run.parts);
    Py_XDECREF(hooked);
    return PyErr_NoMemory(), -1;
  }
  gradnode_run = &run;
  uint32_t left = run.parts ? run.parts->n : 1;
  do { /* the last part first: the node before it takes its token */
    uint32_t n = 0;
    run.part = --left;
    if (out) arg[n++] = PyTuple_GET_ITEM(out, 0);
    for (uint32_t i = 0; i < a->ndiff; i++)
      if (!run.parts || run.parts->of[i] == run.part) arg[n++] = in[a->diff[i]];
    Py_XSETREF(out, PyObject_Vectorcall(gradnode_apply, arg, n, NULL));
  } while (out && left);
  gradnode_run = outer;
  Py_XDECREF((PyObject *)run.parts);
  Py_XDECREF(hooked);
  if (arg != small) free(arg);
  if (!out) return -1;
  for (uint32_t i = 0; i < a->nthrough; i++) Py_SETREF(res[i], Py_NewRef(PyTuple_GET_ITEM(out, i)));
  Py_DECREF(out);
  return 0;
}

int mg_gradnode_attach(MgAutograd *a, PyObject *const *in, PyObject **res, PyObject *state) {
  if (!a->nport) return gradnode_join(a, in, res, state, NULL);
  PyObject *links = mg_links_new(a, res);
  int rc = links ? gradnode_join(a, in, res, state, links) : -1;
  if (!rc) rc = mg_links_attach(links, res);
  Py_XDECREF(links);
  return rc;
}

/* The first hook on a result.  The node may run without a gradient for it: a pass reaches another result, or
 * a later compiled function of which some other result is computed from this one.  Eager
 * would not call the hook then. */
static PyObject *gradnode_hook(PyObject *node, PyObject *tensor) {
  static PyObject *reached; /* magneto._glue.tensor_hooks.register_reached */
  PyObject *m = reached ? NULL : mg_glue(GLUE_tensor_hooks);
  if (m) reached = PyObject_GetAttrString(m, "register_reached");
  Py_XDECREF(m);
  return reached ? PyObject_CallFunctionObjArgs(reached, gradnode_register, node, tensor, NULL) : NULL;
}

/* ---- the two classes ---- */

static PyMethodDef gradnode_forward_def = {"forward", (PyCFunction)(void *)gradnode_forward, METH_FASTCALL,
                                           NULL};
static PyMethodDef gradnode_apply_def = {"apply", (PyCFunction)(void *)gradnode_backward, METH_FASTCALL,
                                         NULL};
static PyMethodDef gradnode_hook_def = {"_register_hook_dict", gradnode_hook, METH_O, NULL};

static int gradnode_make_types(PyObject *base, PyObject *setup) {
  PyObject *forward = PyCFunction_New(&gradnode_forward_def, NULL), *fwd = NULL, *apply = NULL, *hook = NULL;
  PyObject *bwd = mg_nodetype_backward(
      "MagnetoBackward", base,
      Py_BuildValue("{s:(ssssssss),s:s,s:O,s:O}", "__slots__", "_owner", "_state", "_kept", "_left",
                    "_hooked", "_links", "_parts", "_part", "__module__", "magneto._magneto",
                    "clear_saved_tensors_on_access", Py_False, "boxed_grads_call", Py_False));
  int rc = -1;
  if (!forward || !bwd) goto done;
  if (mg_nodetype_slot(bwd, "_owner", &gradnode_owner) || mg_nodetype_slot(bwd, "_state", &gradnode_state))
    goto done;
  if (mg_nodetype_slot(bwd, "_kept", &gradnode_kept) || mg_nodetype_slot(bwd, "_left", &gradnode_left))
    goto done;
  if (mg_nodetype_slot(bwd, "_links", &gradnode_links)) goto done;
  if (mg_nodetype_slot(bwd, "_hooked", &gradnode_hooked)) goto done;
  if (mg_nodetype_slot(bwd, "_parts", &gradnode_parts) || mg_nodetype_slot(bwd, "_part", &gradnode_part))
    goto done;
  if (!(apply = PyDescr_NewMethod((PyTypeObject *)bwd, &gradnode_apply_def))) goto done;
  if (PyObject_SetAttrString(bwd, "apply", apply)) goto done;
  if (!(gradnode_register = PyObject_GetAttrString(base, "_register_hook_dict"))) goto done;
  if (!(hook = PyDescr_NewMethod((PyTypeObject *)bwd, &gradnode_hook_def))) goto done;
  if (PyObject_SetAttrString(bwd, "_register_hook_dict", hook)) goto done;
  fwd = mg_nodetype_forward("Magneto", base,
                            Py_BuildValue("{s:O,s:O,s:O,s:s,s:O,s:O}", "_backward_cls", bwd, "forward",
                                          forward, "setup_context", setup, "__module__", "magneto._magneto",
                                          "clear_saved_tensors_on_access", Py_False, "boxed_grads_call",
                                          Py_False));
  if (!fwd || !(gradnode_apply = PyObject_GetAttrString(fwd, "apply"))) goto done;
  rc = 0;
done:
  Py_XDECREF(forward);
  Py_XDECREF(apply);
  Py_XDECREF(hook);
  Py_XDECREF(bwd);
  Py_XDECREF(fwd);
  return rc;
}

int mg_gradnode_init(void) {
  PyObject *c = mg_import("torch._C"), *f = mg_import("torch.autograd.function");
  PyObject *base = c ? PyObject_GetAttrString(c, "_FunctionBase") : NULL;
  PyObject *level = f ? PyObject_GetAttrString(f, "_SingleLevelFunction") : NULL;
  PyObject *setup = level ? PyObject_GetAttrString(level, "setup_context") : NULL;
  PyObject *autograd = c ? PyObject_GetAttrString(c, "_autograd") : NULL;
  int rc = -1;
  if (!base || !setup || !autograd) goto done;
  if (mg_names_init() || mg_nodetype_init() || mg_gradpart_init()) goto done;
  if (!(gradnode_task_keeps = PyObject_GetAttrString(autograd, "_get_current_graph_task_keep_graph")))
    goto done;
  rc = gradnode_make_types(base, setup) || mg_links_init(base, setup) ? -1 : 0;
done:
  Py_XDECREF(c);
  Py_XDECREF(f);
  Py_XDECREF(base);
  Py_XDECREF(level);
  Py_XDECREF(setup);
  Py_XDECREF(autograd);
  return rc;
}
