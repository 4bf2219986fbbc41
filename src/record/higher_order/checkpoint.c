/* See the header.  In: the arguments of checkpoint().  Out: what the checkpointed function returns.
 * Eager runs the function a second time in backward.  Nobody can tell the difference as long as it changes
 * nothing outside of itself and draws the same random numbers; where it does not, the graph breaks. */
#include "record/higher_order/checkpoint.h"
#include "entry/guard/guard_set.h"
#include "entry/run/snapshot_run.h"
#include "host/python/hook_mode.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "host/torch/tensor_facts.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "record/higher_order/fx_region.h"
#include "record/snapshot/snapshot.h"

enum { CHECKPOINT_ARGS = 32 };

typedef struct Checkpoint {
  PyObject *const *arg; /* of the function, positional first */
  Py_ssize_t npos;
  PyObject *kwnames;              /* of the function: tuple, strong, or NULL */
  PyObject *buf[CHECKPOINT_ARGS]; /* borrowed */
  PyObject *settings;             /* dict: checkpoint's own keywords as they were given; strong */
  PyObject *meta;                 /* dict: what an FX graph says beside the call, or NULL; strong */
  bool reentrant, keeps_rng;      /* keeps_rng: backward draws the same random numbers */
} Checkpoint;

/* Does this way to make contexts leave values alone? */
static bool checkpoint_known_context(PyObject *f) {
  if (f == mg_torch.checkpoint_no_context) return true;
  if (Py_TYPE(f) != mg_torch.partial) return false;
  PyObject *inner = PyObject_GetAttr(f, mg_names.func);
  Py_XDECREF(inner);
  mg_clear_as_no();
  return inner == mg_torch.checkpoint_selective;
}

/* Takes checkpoint's own keywords out.  1: done; 0: torch's Python has to do the
 * call; -1 with an exception. */
static int checkpoint_parse(Checkpoint *c, PyObject *const *arg, Py_ssize_t npos, PyObject *kwnames) {
  Py_ssize_t nkw = kwnames ? PyTuple_GET_SIZE(kwnames) : 0, n = npos - 1, kept = 0;
  PyObject *names = NULL;
  bool context = false;
  if (npos < 1 || npos + nkw > CHECKPOINT_ARGS) return 0;
  for (Py_ssize_t i = 1; i < npos; i++) c->buf[i - 1] = arg[i];
  if (nkw && !(names = PyTuple_New(nkw))) return -1;
  if (!(c->settings = PyDict_New())) goto fail;
  c->reentrant = c->keeps_rng = true;
  for (Py_ssize_t i = 0; i < nkw; i++) {
    PyObject *k = PyTuple_GET_ITEM(kwnames, i), *v = arg[npos + i];
    const char *s = PyUnicode_AsUTF8(k);
    if (!s) goto fail;
    bool own = true;
    if (!strcmp(s, "use_reentrant")) c->reentrant = v != Py_False;
    else if (!strcmp(s, "preserve_rng_state")) c->keeps_rng = v == Py_True;
    else if (!strcmp(s, "debug") && v != Py_False) goto torchs;
    else if (!strcmp(s, "context_fn") && !checkpoint_known_context(v)) goto torchs;
    else if (!strcmp(s, "context_fn")) context = v != mg_torch.checkpoint_no_context;
    else if (strcmp(s, "debug") && strcmp(s, "determinism_check") && strcmp(s, "early_stop")) {
      PyTuple_SET_ITEM(names, kept++, Py_NewRef(k));
      c->buf[n++] = v;
      own = false;
    }
    if (context && !c->meta && !(c->meta = Py_BuildValue("{sO}", "_checkpoint_context_fn", v))) goto fail;
    if (own && strcmp(s, "context_fn") && PyDict_SetItem(c->settings, k, v)) goto fail;
  }
  if (c->reentrant && (kept || context)) goto torchs; /* it raises */
  if (names && _PyTuple_Resize(&names, kept)) return -1;
  c->arg = c->buf;
  c->npos = npos - 1;
  c->kwnames = names;
  return 1;
torchs:
  Py_XDECREF(names);
  return 0;
fail:
  Py_XDECREF(names);
  return -1;
}

/* With reentrant backward the results require grad when an argument does, and only then. */
static bool checkpoint_tracks(const Checkpoint *c) {
  for (Py_ssize_t i = 0; i < c->npos; i++)
    if (mg_standin_check(c->arg[i]) && mg_facts_requires_grad(c->arg[i])) return true;
  return false;
}

static bool checkpoint_tracked(const MgRec *r, PyObject *res) {
  if (PyTuple_Check(res)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(res); i++)
      if (!checkpoint_tracked(r, PyTuple_GET_ITEM(res, i))) return false;
    return true;
  }
  if (!mg_standin_check(res) || mg_facts_requires_grad(res)) return true;
  uint8_t dtype = mg_val(r->g, mg_standin_val(res))->dtype;
  return !mg_dtype_is_float(dtype) && !mg_dtype_is_complex(dtype);
}

/* Why these nodes must not run twice, or NULL. */
static const char *checkpoint_effect(const MgGraph *g, NodeRef first, bool keeps_rng) {
  for (NodeRef k = first; k < g->nnode; k++) {
    const MgNode *n = mg_node(g, k);
    if (mg_node_random(n) && !keeps_rng) return "other random numbers in backward";
    for (int i = 0; n->op->mutates && i < n->nout; i++) {
      uint32_t storage = n->out[i] ? mg_val(g, n->out[i])->storage : 0;
      if (storage && mg_val(g, storage)->def < first)
        return "a write to a tensor from outside, which eager repeats in backward";
    }
    if (n->op->mutates && !n->nout) return n->op->full;
  }
  return NULL;
}

/* The block, in an FX graph one node. */
static PyObject *checkpoint_body(MgRec *r, const Checkpoint *c, PyObject *fn) {
  MgFxHop hop = {.target = mg_torch.tag_checkpoint, .kwargs = c->settings, .meta = c->meta, .again = true};
  return mg_fx_region_call(r, &hop, fn, c->arg, (size_t)c->npos, c->kwnames);
}

static PyObject *checkpoint_record(MgRec *r, const Checkpoint *c, PyObject *fn) {
  MgSnapshot *before = mg_snapshot_build(NULL, 0, NULL, Py_None), *after = NULL;
  uint32_t drawn = r->guards->ndraw;
  NodeRef first = r->g->nnode;
  uint32_t outer = r->checkpoint;
  if (!before) return NULL;
  if (!outer) r->checkpoint = ++r->ncheckpoint;
  PyObject *res = checkpoint_body(r, c, fn);
  r->checkpoint = outer;
  if (res && !(after = mg_snapshot_build(NULL, 0, NULL, Py_None))) Py_CLEAR(res);
  const char *why = res ? checkpoint_effect(r->g, first, c->keeps_rng) : NULL;
  if (res && r->guards->ndraw != drawn) why = "Python's random numbers, which eager draws again in backward";
  if (res && !why && !mg_snapshot_same(before, after)) why = "a side effect, which eager repeats in backward";
  if (res && !why && c->reentrant && !checkpoint_tracked(r, res)) why = "a result without gradients";
  if (why) {
    Py_CLEAR(res);
    mg_rec_break(BK_checkpoint, "torch.utils.checkpoint of a function with %s", why);
  }
  mg_snapshot_free(before);
  mg_snapshot_free(after);
  return res;
}

bool mg_checkpoint_call(PyObject *const *arg, size_t nargsf, PyObject *kwnames, PyObject **out) {
  MgRec *r = mg_rec;
  Checkpoint c = {0};
  int rc = checkpoint_parse(&c, arg, PyVectorcall_NARGS(nargsf), kwnames);
  *out = NULL;
  if (rc < 0) {
    Py_XDECREF(c.settings);
    Py_XDECREF(c.meta);
    return true;
  }
  bool grad = mg_abi.aoti_torch_grad_mode_is_enabled();
  bool ours = rc && !(grad && c.reentrant && !checkpoint_tracks(&c));
  if (ours) *out = grad ? checkpoint_record(r, &c, arg[0]) : checkpoint_body(r, &c, arg[0]);
  Py_XDECREF(c.kwnames);
  Py_XDECREF(c.settings);
  Py_XDECREF(c.meta);
  return ours;
}
