/* See the header.  In: torch's modes when an op is recorded, and those at the graph's start.  Out: nodes of
 * the FX graph that switch them; none where nothing has changed. */
#include "record/fx/fx_modes.h"
#include <string.h>
#include "host/python/pyobject.h"
#include "host/torch/literals.h"
#include "record/core/capture.h"
#include "record/core/identity.h"
#include "record/core/recording.h"
#include "record/fx/fx.h"
#include "record/fx/fx_graph.h"

static PyObject *fxstate_fn(const char *module, const char *name) {
  PyObject *m = mg_import(module), *f = m ? PyObject_GetAttrString(m, name) : NULL;
  Py_XDECREF(m);
  return f;
}

/* The fields that nodes are written for; the others follow the recording in other ways. */
static bool fxstate_same(const MgTorchState *a, const MgTorchState *b) {
  return a->inference_mode == b->inference_mode && a->autocast_cpu == b->autocast_cpu &&
         a->autocast_cuda == b->autocast_cuda && a->autocast_cpu_dtype == b->autocast_cpu_dtype &&
         a->autocast_cuda_dtype == b->autocast_cuda_dtype && a->autocast_cache == b->autocast_cache;
}

static int fxstate_node(MgCapture *cap, const char *module, const char *name, PyObject *args,
                        uint32_t *node) {
  PyObject *f = args ? fxstate_fn(module, name) : NULL;
  uint32_t n = f ? mg_fx_call(cap, f, args, NULL) : 0;
  Py_XDECREF(f);
  Py_XDECREF(args);
  if (node) *node = n;
  return n ? 0 : -1;
}

static int fxstate_leave(MgCapture *cap, MgFxState *s) {
  const MgFxMode *m = &s->mode[--s->depth];
  PyObject *args = PyTuple_Pack(1, mg_fx_item(cap, m->node));
  s->now = m->before;
  if (m->inference) cap->fx->grad = m->grad;
  return m->inference ? fxstate_node(cap, "torch.autograd.grad_mode", "_exit_inference_mode", args, NULL)
                      : fxstate_node(cap, "torch.amp.autocast_mode", "_exit_autocast", args, NULL);
}

static int fxstate_push(MgCapture *cap, MgFxState *s, const MgTorchState *before, bool inference,
                        const char *module, const char *name, PyObject *args) {
  if (s->depth == (int)(sizeof s->mode / sizeof *s->mode)) {
    Py_XDECREF(args);
    return mg_rec_break(BK_limit, "autocast nested too deeply"), -1;
  }
  MgFxMode *m = &s->mode[s->depth];
  *m = (MgFxMode){.before = *before, .inference = inference, .grad = cap->fx->grad};
  if (fxstate_node(cap, module, name, args, &m->node)) return -1;
  s->depth++;
  return 0;
}

static int fxstate_enter(MgCapture *cap, MgFxState *s, const MgTorchState *want) {
  MgTorchState before = s->now;
  if (before.inference_mode != want->inference_mode) {
    if (fxstate_push(cap, s, &before, true, "torch.autograd.grad_mode", "_enter_inference_mode",
                     Py_BuildValue("(O)", want->inference_mode ? Py_True : Py_False)))
      return -1;
    s->now.inference_mode = want->inference_mode;
    cap->fx->grad = !want->inference_mode; /* the mode sets it, and puts it back */
  }
  for (int cuda = 0; cuda < 2; cuda++) {
    bool on = cuda ? want->autocast_cuda : want->autocast_cpu,
         was = cuda ? s->now.autocast_cuda : s->now.autocast_cpu;
    int dtype = cuda ? want->autocast_cuda_dtype : want->autocast_cpu_dtype;
    int had = cuda ? s->now.autocast_cuda_dtype : s->now.autocast_cpu_dtype;
    if (on == was && (dtype == had || !on) && (!on || s->now.autocast_cache == want->autocast_cache))
      continue;
    before = s->now;
    PyObject *dt = on ? mg_torchobj_new_dtype((MgDtype)dtype) : Py_NewRef(Py_None);
    PyObject *args = dt ? Py_BuildValue("(sNOO)", cuda ? "cuda" : "cpu", dt, on ? Py_True : Py_False,
                                        !on || want->autocast_cache ? Py_True : Py_False)
                        : NULL;
    if (fxstate_push(cap, s, &before, false, "torch.amp.autocast_mode", "_enter_autocast", args)) return -1;
  }
  s->now = *want;
  return 0;
}

int mg_fxstate_follow(MgCapture *cap, MgFxState *s, bool end) {
  MgTorchState want;
  if (!s->begun) {
    mg_state_read(&s->start);
    s->now = s->start;
    s->begun = true;
    return 0;
  }
  if (end) want = s->start;
  else mg_state_read(&want);
  if (fxstate_same(&s->now, &want)) return 0;
  int keep = s->depth;
  while (keep > 0 && !fxstate_same(&s->mode[keep - 1].before, &want)) keep--;
  if (!keep) return fxstate_enter(cap, s, &want);
  while (s->depth >= keep)
    if (fxstate_leave(cap, s)) return -1;
  return 0;
}

/* What a bound __exit__ of torch.no_grad, enable_grad or set_grad_enabled goes back to.
 * False: it is something else. */
static bool fxstate_exit_mode(PyObject *m, bool *mode) {
  PyObject *fn = m && PyMethod_Check(m) ? PyMethod_GET_FUNCTION(m) : NULL,
           *module = fn && PyFunction_Check(fn) ? ((PyFunctionObject *)fn)->func_module : NULL;
  if (!module || !PyUnicode_Check(module) ||
      PyUnicode_CompareWithASCIIString(module, "torch.autograd.grad_mode") ||
      PyUnicode_CompareWithASCIIString(((PyFunctionObject *)fn)->func_name, "__exit__"))
    return false;
  PyObject *before = PyObject_GetAttrString(mg_older_orig(PyMethod_GET_SELF(m)), "prev");
  bool known = before && PyBool_Check(before); /* inference_mode has none */
  if (known) *mode = before == Py_True;
  Py_XDECREF(before);
  mg_clear_as_no();
  return known;
}

static bool fxstate_outer_grad(PyObject *const *slot, int n) {
  bool mode = mg_abi.aoti_torch_grad_mode_is_enabled();
  for (int i = 0; i < n && !fxstate_exit_mode(slot[i], &mode); i++) continue;
  return mode;
}

void mg_fx_start_grad(MgCapture *cap, PyObject *const *slot, int n) {
  if (cap->fx) cap->fx->grad = cap->fx->grad_start = fxstate_outer_grad(slot, n);
}

void mg_fx_end_grad(MgCapture *cap, PyObject *const *slot, int n) {
  if (cap->fx) cap->fx->grad_end = fxstate_outer_grad(slot, n);
}

bool mg_fx_called_grad(const MgCapture *cap) { return cap->fx->grad_start; }

int mg_fx_follow_grad(MgCapture *cap, bool now) {
  MgFx *f = cap->fx;
  if (now == f->grad) return 0;
  PyObject *args = PyTuple_Pack(1, now ? Py_True : Py_False);
  uint32_t n = args ? mg_fx_node(cap, "call_function", mg_fx_torch.set_grad, args, NULL) : 0;
  Py_XDECREF(args);
  f->grad = now;
  return n ? 0 : -1;
}

int mg_fx_repeat_grad(MgCapture *cap, bool now) {
  if (mg_fx_follow_grad(cap, now)) return -1;
  cap->fx->grad = !now;
  return mg_fx_follow_grad(cap, now);
}
