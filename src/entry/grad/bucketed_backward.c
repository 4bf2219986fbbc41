/* See the header. */
#include "entry/grad/bucketed_backward.h"
#include <stdlib.h>
#include <string.h>
#include "base/bits.h"
#include "base/env.h"
#include "entry/grad/joint_plans.h"
#include "entry/launch/plan_call.h"
#include "entry/launch/stats.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "results.h"
#include "host/torch/conj_neg.h"
#include "host/torch/tensor_wrap.h"
#include "ir/expr/dtype.h"
#include "runtime/plan/plan_priv.h"
#include "tuning.h"

typedef struct GradRun { /* a backward run under way: the attribute of a token */
  PyObject_HEAD MgAutograd *a;
  MgGradParts *parts;
  PyObject *state, *saved; /* of the first node; may be NULL */
  PyObject **in;           /* inputs of the plan: a->nsaved borrowed, a->nthrough owned */
  uint64_t *given;         /* the set of defined tangents, owned; NULL: none is */
  MgPlanCall *call;        /* of a->bwd */
  bool over;               /* the plan has run to its end */
  PyObject **grad;         /* its results that are there and not given yet; owned */
  PyObject *all;           /* the gradients, where they were computed op by op */
} GradRun;

static PyObject *gradpart_ddp;

/* ---- where to cut ---- */

static void gradparts_dealloc(PyObject *o) {
  MgGradParts *p = (MgGradParts *)o;
  free(p->until);
  free(p->of);
  free(p->last);
  PyObject_Free(o);
}

static PyTypeObject gradparts_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "magneto._magneto.GradParts",
    .tp_basicsize = sizeof(MgGradParts),
    .tp_dealloc = gradparts_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

/* MgGradParts.limit for the DistributedDataParallel whose forward runs now; -1: none does. */
static int64_t gradpart_limit(void) {
  if (!gradpart_ddp) { /* nobody can be inside of a module that was not imported */
    PyObject *m = PyImport_GetModule(mg_names.parallel_distributed);
    gradpart_ddp = m ? PyObject_GetAttrString(m, "DistributedDataParallel") : NULL;
    Py_XDECREF(m);
  }
  PyObject *active = gradpart_ddp ? PyObject_GetAttr(gradpart_ddp, mg_names.active_ddp_module) : NULL,
           *cap = NULL, *hooks = NULL;
  if (active && active != Py_None && (cap = PyObject_GetAttr(active, mg_names.bucket_bytes_cap)))
    hooks = PyObject_GetAttr(active, mg_names.comm_hooks);
  int64_t n = cap && PyLong_Check(cap) ? PyLong_AsLongLong(cap) : -1;
  if (n > 0 && hooks && PyObject_IsTrue(hooks)) n = 0;
  Py_XDECREF(active);
  Py_XDECREF(cap);
  Py_XDECREF(hooks);
  mg_clear_as_no();
  return n > MG_TUNE_BUCKET_BYTES ? MG_TUNE_BUCKET_BYTES : n;
}

static int64_t gradpart_bytes(PyObject *t) {
  int64_t *size = NULL, ndim = 0, n;
  int32_t dtype = DT_f32;
  mg_abi.aoti_torch_get_dtype(mg_abi_tensor(t), &dtype);
  n = mg_dtype_size((MgDtype)dtype);
  mg_abi.aoti_torch_get_dim(mg_abi_tensor(t), &ndim);
  mg_abi.aoti_torch_get_sizes(mg_abi_tensor(t), &size);
  for (int64_t i = 0; i < ndim; i++) n *= size[i];
  return n;
}

typedef struct GradReady {
  uint32_t at, diff;
} GradReady;

static int gradpart_by_time(const void *a, const void *b) {
  const GradReady *x = a, *y = b;
  return x->at != y->at ? (x->at < y->at ? -1 : 1) : x->diff < y->diff ? -1 : x->diff > y->diff;
}

/* Gradients in the order in which they become final; a part ends where they are enough bytes. */
static void gradpart_cut(MgGradParts *p, const MgAutograd *a, PyObject *const *in, GradReady *ready) {
  const uint32_t *at = mg_plan_ready(a->bwd);
  int64_t bytes = 0;
  for (uint32_t i = 0; i < a->ndiff; i++) ready[i] = (GradReady){a->grad[i] < 0 ? 0 : at[a->grad[i]], i};
  for (uint32_t i = 1; i < a->ndiff && !p->limit; i++)
    if (ready[i].at < ready[i - 1].at) ready[i].at = ready[i - 1].at;
  if (p->limit) qsort(ready, a->ndiff, sizeof *ready, gradpart_by_time);
  for (uint32_t i = 0; i < a->ndiff; i++) {
    bytes += gradpart_bytes(in[a->diff[ready[i].diff]]);
    p->of[ready[i].diff] = p->n;
    p->until[p->n] = ready[i].at;
    if (bytes < p->limit || i + 1 == a->ndiff || (p->limit && ready[i + 1].at == ready[i].at)) continue;
    p->n++;
    bytes = 0;
  }
  p->until[p->n++] = UINT32_MAX;
  for (uint32_t i = 0; i < a->ndiff; i++)
    if (a->grad[i] >= 0 && p->last[a->grad[i]] < p->of[i]) p->last[a->grad[i]] = p->of[i];
}

static MgGradParts *gradpart_new(const MgAutograd *a, PyObject *const *in, int64_t limit) {
  MgGradParts *p = PyObject_New(MgGradParts, &gradparts_type);
  GradReady *ready = mg_calloc(a->ndiff + 1, sizeof *ready);
  if (p) {
    p->limit = limit;
    p->n = 0;
    p->until = mg_calloc(a->ndiff + 1, sizeof *p->until);
    p->of = mg_calloc(a->ndiff + 1, sizeof *p->of);
    p->last = mg_calloc(a->ngrad + 1, sizeof *p->last);
  }
  if (p && ready && p->until && p->of && p->last) gradpart_cut(p, a, in, ready);
  else Py_CLEAR(p);
  free(ready);
  return p ? p : (MgGradParts *)PyErr_NoMemory();
}

int mg_gradpart_wanted(MgAutograd *a, PyObject *const *in, MgGradParts **parts) {
  int64_t limit = gradpart_limit();
  *parts = NULL;
  if (limit < 0 || !a->bwd || !a->ngrad) return 0;
  MgPlanInfo info;
  mg_plan_info(a->bwd, &info);
  if (info.nwritten) return 0; /* versions count once the run is over, which nobody promises */
  if (info.graphs) return 0;   /* one launch for all is worth more than reductions beside the rest */
  MgGradParts *p = (MgGradParts *)a->parts;
  if (!p || p->limit != limit) {
    if (!(p = gradpart_new(a, in, limit))) return -1;
    Py_XSETREF(a->parts, (PyObject *)p);
  }
  if (p->n > 1) *parts = (MgGradParts *)Py_NewRef((PyObject *)p);
  return 0;
}

/* ---- running ---- */

static void gradrun_dealloc(PyObject *o) {
  GradRun *r = (GradRun *)o;
  if (r->call) mg_plan_stop(r->a->bwd, r->call);
  for (uint32_t i = 0; r->in && i < r->a->nthrough; i++) Py_XDECREF(r->in[r->a->nsaved + i]);
  for (uint32_t i = 0; r->grad && i < r->a->ngrad; i++) Py_XDECREF(r->grad[i]);
  free(r->grad);
  free(r->given);
  free(r->in);
  Py_XDECREF(r->state);
  Py_XDECREF(r->saved);
  Py_XDECREF(r->all);
  Py_XDECREF((PyObject *)r->parts);
  Py_XDECREF((PyObject *)r->a);
  PyObject_Free(o);
}

static PyTypeObject gradrun_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "magneto._magneto.GradRun",
    .tp_basicsize = sizeof(GradRun),
    .tp_dealloc = gradrun_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

PyObject *mg_gradpart_token(void) {
  int64_t none = 0, one = 1;
  MgTensor *t;
  if (mg_abi.aoti_torch_empty_strided(1, &none, &one, DT_f32, 0, 0, &t)) return PyErr_NoMemory();
  return mg_tensor_wrap(t);
}

/* The plan up to the end of part k. */
static int gradpart_plan(GradRun *r, uint32_t k) {
  MgAutograd *a = r->a;
  PyObject *off = NULL, **grad = mg_calloc(a->ngrad + 1, sizeof *grad);
  if (!grad) return PyErr_NoMemory(), -1;
  if (a->extern_bwd && mg_planrun_autocast_off(&off)) return free(grad), -1;
  int rc = mg_planrun_part(a->bwd, &r->call, r->parts->until[k], r->in, a->sizes, grad);
  if (off && mg_planrun_autocast_back(off)) rc = -1;
  r->over = !r->call;
  for (uint32_t i = 0; i < a->ngrad; i++) {
    if (!grad[i]) continue;
    if (!rc && a->bits[i] && mg_lazybits_set(grad[i], a->bits[i])) rc = -1;
    Py_XSETREF(r->grad[i], grad[i]);
  }
  free(grad);
  if (rc != MG_RUN_FAILED || mg_strict()) return rc;
  PyErr_Clear(); /* the compiled backward failed: PyTorch's own */
  mg_stats.fallbacks++;
  r->all = mg_gradnode_again(a, r->state, r->saved, r->in + a->nsaved);
  return r->all ? 0 : -1;
}

/* What the node of part k returns: the token where there is a next part, then the gradients,
 * which are the engine's alone. */
static PyObject *gradpart_result(const GradRun *r, uint32_t k, PyObject *token) {
  const MgAutograd *a = r->a;
  const MgGradParts *p = r->parts;
  uint32_t n = k + 1 < p->n, at = n;
  for (uint32_t i = 0; i < a->ndiff; i++) n += p->of[i] == k;
  PyObject *t = PyTuple_New(n);
  if (t && at) PyTuple_SET_ITEM(t, 0, Py_NewRef(token));
  for (uint32_t i = 0; t && i < a->ndiff; i++) {
    if (p->of[i] != k) continue;
    bool none =
        a->grad[i] < 0 || !r->given || !mg_bits_meet(a->reach + (size_t)a->words * i, r->given, a->words);
    PyObject *g = r->all ? PyTuple_GET_ITEM(r->all, i) : none ? Py_None : r->grad[a->grad[i]];
    PyTuple_SET_ITEM(t, at++, Py_NewRef(g));
  }
  for (uint32_t i = 0; r->grad && i < a->ngrad; i++)
    if (p->last[i] <= k) Py_CLEAR(r->grad[i]);
  return t;
}

static PyObject *gradpart_run(GradRun *r, uint32_t k, PyObject *token, bool next) {
  if (!r->all && !r->over && gradpart_plan(r, k)) return NULL;
  return gradpart_result(r, k, next ? token : Py_None);
}

PyObject *mg_gradpart_begin(MgAutograd *a, MgGradParts *parts, PyObject *state, PyObject *saved,
                            PyObject *const *tangent, const uint64_t *given, PyObject *all, bool next) {
  GradRun *r = PyObject_New(GradRun, &gradrun_type);
  PyObject *token = NULL, *t = NULL;
  if (!r) return NULL;
  memset((char *)r + sizeof(PyObject), 0, sizeof *r - sizeof(PyObject));
  r->a = (MgAutograd *)Py_NewRef((PyObject *)a);
  r->parts = (MgGradParts *)Py_NewRef((PyObject *)parts);
  r->state = Py_XNewRef(state);
  r->saved = Py_XNewRef(saved);
  r->all = Py_XNewRef(all);
  r->in = mg_calloc(a->nsaved + a->nthrough + 1, sizeof *r->in);
  r->grad = mg_calloc(a->ngrad + 1, sizeof *r->grad);
  r->given = mg_calloc(a->words, sizeof *r->given);
  if (!r->in || !r->grad || !r->given) {
    PyErr_NoMemory();
    goto done;
  }
  memcpy(r->given, given, a->words * sizeof *given);
  if (!all && mg_gradnode_inputs(a, saved, tangent, r->in)) goto done;
  if (next &&
      (!(token = mg_gradpart_token()) || PyObject_SetAttr(token, mg_names.magneto_run, (PyObject *)r)))
    goto done;
  t = gradpart_run(r, 0, token, next);
done:
  Py_XDECREF(token);
  Py_DECREF(r);
  return t;
}

PyObject *mg_gradpart_go_on(MgAutograd *a, MgGradParts *parts, uint32_t k, PyObject *token, bool next) {
  if (token == Py_None) {
    GradRun none = {.a = a, .parts = parts};
    return gradpart_result(&none, k, Py_None);
  }
  PyObject *r = PyObject_GetAttr(token, mg_names.magneto_run), *t;
  if (!r) return NULL;
  t = gradpart_run((GradRun *)r, k, token, next);
  Py_DECREF(r);
  return t;
}

int mg_gradpart_init(void) { return PyType_Ready(&gradparts_type) || PyType_Ready(&gradrun_type) ? -1 : 0; }
