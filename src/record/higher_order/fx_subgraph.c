/* See the header.
 * A part is recorded as a region (fx_region.c): its module has a placeholder for each tensor of a loop's
 * turn, then one for each tensor from outside that it reads, in order of use.  The operator gives all its
 * parts the same tensors: the modules are widened to those that any of them reads
 * (magneto/_glue/control_flow.py). */
#include "record/higher_order/fx_subgraph.h"
#include <string.h>
#include "base/table.h"
#include "host/python/glue.h"
#include "host/python/hook_mode.h"
#include "host/python/pyobject.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "record/core/subgraph_state.h"
#include "record/fx/fx.h"
#include "record/fx/fx_graph.h"
#include "record/fx/fx_modes.h"
#include "record/higher_order/fx_region.h"

/* Has a graph around this one a node for it? */
static bool fxpart_outside(const MgFx *f, ValRef val) {
  for (f = f->outer; f; f = f->outer)
    if (mg_map_get(&f->by_val, val + 2) != MG_MAP_NONE) return true;
  return false;
}

/* Placeholders of the tensors that are other ones on each turn; an inner loop may read an outer
 * one's, so that names differ. */
static int fxpart_turn(MgCapture *cap, PyObject *const *arg, Py_ssize_t n) {
  PyObject *none = PyTuple_New(0);
  int rc = none ? 0 : -1, depth = 0;
  for (const MgFx *f = cap->fx->outer; f->outer; f = f->outer) depth++;
  for (Py_ssize_t i = 0; !rc && i < n; i++) {
    const MgVal *v = mg_standin_check(arg[i]) ? mg_val(cap->rec->g, mg_standin_val(arg[i])) : NULL;
    if (!v || v->def || v->out != UINT32_MAX || fxpart_outside(cap->fx, mg_standin_val(arg[i]))) continue;
    PyObject *name = PyUnicode_FromFormat(depth ? "child_%zd_%d" : "child_%zd", i, depth);
    uint32_t number = name ? mg_fx_node(cap, "placeholder", name, none, NULL) : 0;
    Py_XDECREF(name);
    rc = number ? mg_fx_bind(cap->fx, mg_standin_val(arg[i]), number) : -1;
  }
  Py_XDECREF(none);
  return rc;
}

int mg_fxpart_begin(MgRec *r, MgFxRegion *g, PyObject *const *arg, Py_ssize_t n) {
  *g = (MgFxRegion){.first = r->g->nnode};
  if (mg_fx_region_open(r, g)) return -1;
  if (!g->open) return 0;
  MgPause pause = mg_rec_pause();
  int rc = fxpart_turn(r->cap, arg, n);
  mg_rec_resume(pause);
  if (rc) mg_fx_region_end(r, g, NULL, NULL);
  return rc;
}

int mg_fxpart_end(MgRec *r, MgFxRegion *g, PyObject *leaves, MgPart *p) {
  int rc = 0;
  if (g->open && leaves) {
    MgPause pause = mg_rec_pause();
    MgFx *f = r->cap->fx;
    if (!f->incomplete) p->shown = mg_fx_region_module(r, leaves);
    if (p->shown && (p->reads = PyList_New(f->nlift)))
      for (uint32_t i = 0; i < f->nlift; i++)
        PyList_SET_ITEM(p->reads, i, Py_NewRef(PyList_GET_ITEM(f->outer->nodes, f->lift[i].outer - 1)));
    rc = PyErr_Occurred() ? -1 : 0;
    mg_rec_resume(pause);
  }
  mg_fx_region_end(r, g, NULL, NULL);
  return rc;
}

/* ---- the call ---- */

/* The nodes of what comes first, as a list.  New; NULL with an exception, or without
 * one when one has no node. */
static PyObject *fxpart_fixed(MgCapture *cap, const MgFxPartCall *c) {
  PyObject *l = PyList_New(c->nfixed);
  for (uint32_t i = 0; l && i < c->nfixed; i++) {
    PyObject *n = mg_fx_of_val(cap, mg_standin_val(c->fixed[i]));
    if (n) PyList_SET_ITEM(l, i, Py_NewRef(n));
    else Py_CLEAR(l);
  }
  return l;
}

/* ([nodes that any part reads], [modules]).  New. */
static PyObject *fxpart_widen(const MgFxPartCall *c, uint32_t nturn) {
  PyObject *parts = PyList_New(0), *m = NULL, *res = NULL;
  for (int i = 0; parts && i < 2; i++) {
    if (!c->part[i]) continue;
    PyObject *pair = PyTuple_Pack(2, c->part[i]->shown, c->part[i]->reads);
    if (!pair || PyList_Append(parts, pair)) Py_CLEAR(parts);
    Py_XDECREF(pair);
  }
  if (parts && (m = mg_glue(GLUE_control_flow)))
    res = PyObject_CallMethod(m, "widen_shown", "OII", parts, nturn, c->part[0] && nturn);
  Py_XDECREF(parts);
  Py_XDECREF(m);
  return res;
}

static int fxpart_results(MgCapture *cap, PyObject *res, uint32_t call) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(res); i++) {
    PyObject *pair = Py_BuildValue("(On)", mg_fx_item(cap, call), i);
    uint32_t item = pair ? mg_fx_node(cap, "call_function", mg_fx_torch.getitem, pair, NULL) : 0;
    Py_XDECREF(pair);
    if (!item || mg_fx_bind(cap->fx, mg_standin_val(PyList_GET_ITEM(res, i)), item)) return -1;
  }
  return 0;
}

static int fxpart_emit(MgCapture *cap, const MgFxPartCall *c, PyObject *fixed, PyObject *wide) {
  PyObject *all = PySequence_Concat(fixed, PyTuple_GET_ITEM(wide, 0)),
           *one = all ? PyTuple_Pack(1, all) : NULL;
  PyObject *joined = one ? PySequence_Concat(one, c->head) : NULL,
           *args = joined ? PySequence_List(joined) : NULL, *tuple = NULL, *target = NULL;
  int rc = args ? mg_fx_higher(cap, c->op, PyTuple_GET_ITEM(wide, 1), &target, &args) : -1;
  if (!rc)
    rc = mg_fxstate_follow(cap, &cap->fx->state, false) ||
                 mg_fx_follow_grad(cap, mg_abi.aoti_torch_grad_mode_is_enabled())
             ? -1
             : 0;
  if (!rc && !(tuple = PyList_AsTuple(args))) rc = -1;
  uint32_t call = rc ? 0 : mg_fx_call(cap, target, tuple, NULL);
  PyObject *const used[] = {all, one, joined, args, tuple};
  for (size_t i = 0; i < sizeof used / sizeof *used; i++) Py_XDECREF(used[i]);
  return call ? fxpart_results(cap, c->res, call) : -1;
}

int mg_fxpart_show(MgCapture *cap, const MgFxPartCall *c) {
  if (mg_fx_is_aten(cap) || cap->quiet) return 0;
  for (int i = 0; i < 2; i++)
    if (c->part[i] && !c->part[i]->shown) return 0;
  PyObject *fixed = fxpart_fixed(cap, c),
           *wide = fixed ? fxpart_widen(c, strcmp(c->op, "cond") ? c->nfixed : 0) : NULL;
  int rc = wide ? fxpart_emit(cap, c, fixed, wide) : PyErr_Occurred() ? -1 : 0;
  bool done = wide && !rc;
  Py_XDECREF(fixed);
  Py_XDECREF(wide);
  return rc ? -1 : done;
}
