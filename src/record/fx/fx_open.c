/* An FX graph's start and end: what a capture needs to have one, and what is freed with it. */
#include <stdlib.h>
#include "host/python/hook_mode.h"
#include "host/python/pyobject.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "record/fx/fx.h"
#include "record/fx/fx_graph.h"
#include "record/fx/fx_modes.h"

MgFxTorch mg_fx_torch;

static int fx_init_higher(void) {
  PyObject *torch = mg_import("torch"), *ops = torch ? PyObject_GetAttrString(torch, "ops") : NULL;
  PyObject *space = ops ? PyObject_GetAttrString(ops, "higher_order") : NULL;
  static const char *const name[] = {"cond", "while_loop", "scan", "map_impl"};
  for (int i = 0; space && i < 4; i++)
    if (!(mg_fx_torch.higher[i] = PyObject_GetAttrString(space, name[i]))) break;
  Py_XDECREF(torch);
  Py_XDECREF(ops);
  Py_XDECREF(space);
  return mg_fx_torch.higher[3] ? 0 : -1;
}

static int fx_init(void) {
  if (mg_fx_torch.Graph) return 0;
  if (fx_init_higher()) return -1;
  PyObject *fx = mg_import("torch.fx"), *b = mg_import("builtins");
  PyObject *c = mg_import("torch._C");
  int rc = -1;
  if (!fx || !b || !c) goto done;
  if (!(mg_fx_torch.operator_ = mg_import("operator"))) goto done;
  if (!(mg_fx_torch.getitem = PyObject_GetAttrString(mg_fx_torch.operator_, "getitem"))) goto done;
  if (!(mg_fx_torch.getattr_ = PyObject_GetAttrString(b, "getattr"))) goto done;
  if (!(mg_fx_torch.set_grad = PyObject_GetAttrString(c, "_set_grad_enabled"))) goto done;
  if (!(mg_fx_torch.GraphModule = PyObject_GetAttrString(fx, "GraphModule"))) goto done;
  if (!(mg_fx_torch.Graph = PyObject_GetAttrString(fx, "Graph"))) goto done;
  rc = 0;
done:
  Py_XDECREF(fx);
  Py_XDECREF(b);
  Py_XDECREF(c);
  return rc;
}

int mg_fx_open(MgCapture *cap) {
  MgFx *f = cap->fx = mg_calloc(1, sizeof *f);
  if (!f) return PyErr_NoMemory(), -1;
  if (fx_init() || !(f->graph = PyObject_CallNoArgs(mg_fx_torch.Graph)) || !(f->nodes = PyList_New(0)) ||
      !(f->val = PyList_New(0)) || !(f->where = PyList_New(0)) || !(f->root = PyDict_New()) ||
      mg_fxstate_follow(cap, &f->state, false))
    return -1;
  f->covered = 1; /* node 0 is none */
  f->grad = f->grad_start = f->grad_end = mg_abi.aoti_torch_grad_mode_is_enabled();
  return 0;
}

int mg_fx_begin(MgCapture *cap) {
  MgPause pause = mg_rec_pause();
  int rc = mg_fx_open(cap);
  if (!rc && !(cap->fx->mode = mg_torchfn_mode_new(cap))) rc = -1;
  mg_rec_resume(pause);
  return rc;
}

void mg_fx_end(MgCapture *cap) {
  if (cap->fx && cap->fx->mode) mg_torchfn_mode_end(cap->fx->mode);
}

PyObject *mg_fx_mode(MgCapture *cap) { return cap->fx->mode; }

void mg_fx_free(MgCapture *cap) {
  MgFx *f = cap->fx;
  if (!f) return;
  Py_XDECREF(f->graph);
  Py_XDECREF(f->nodes);
  Py_XDECREF(f->val);
  Py_XDECREF(f->where);
  Py_XDECREF(f->root);
  Py_XDECREF(f->mode);
  mg_map_free(&f->by_val);
  mg_map_free(&f->by_node);
  mg_map_free(&f->by_src);
  mg_map_free(&f->by_name);
  free(f->input);
  free(f->input_node);
  free(f->lift);
  free(f);
  cap->fx = NULL;
}
