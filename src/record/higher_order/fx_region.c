/* See the header.
 * A region's graph finds tensors from outside as placeholders, made at their first use (mg_fx_lift);
 * MgFx.outer is the graph around it. */
#include "record/higher_order/fx_region.h"
#include <stdlib.h>
#include "entry/run/snapshot_program.h"
#include "entry/run/snapshot_run.h"
#include "host/python/hook_mode.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "host/torch/tensor_facts.h"
#include "record/core/capture.h"
#include "record/core/ops.h"
#include "record/core/recording.h"
#include "record/fx/fx.h"
#include "record/fx/fx_graph.h"
#include "record/fx/fx_modes.h"
#include "record/higher_order/subgraph.h"
#include "record/snapshot/snapshot.h"

int mg_fx_region_open(MgRec *r, MgFxRegion *g) {
  MgCapture *cap = r->cap;
  MgFx *outer = cap->fx;
  if (!r->want_fx || cap->quiet || outer->incomplete) return 0;
  MgPause pause = mg_rec_pause();
  int rc = mg_fxstate_follow(cap, &outer->state, false) ||
                   mg_fx_follow_grad(cap, mg_abi.aoti_torch_grad_mode_is_enabled())
               ? -1
               : 0;
  if (!rc) {
    rc = mg_fx_open(cap);
    g->open = cap->fx != NULL;
    if (g->open) {
      cap->fx->outer = outer;
      cap->fx->mode = Py_NewRef(outer->mode);
      cap->fx->covered = outer->covered;
    } else cap->fx = outer;
  }
  mg_rec_resume(pause);
  return rc;
}

int mg_fx_region_begin(MgRec *r, MgFxRegion *g) {
  *g = (MgFxRegion){.first = r->g->nnode};
  if (!r->want_fx || r->cap->quiet || r->cap->fx->incomplete) return 0;
  if (!(g->before = mg_snapshot_build(NULL, 0, NULL, Py_None))) return -1;
  int rc = mg_fx_region_open(r, g);
  if (rc) mg_fx_region_end(r, g, NULL, NULL);
  return rc;
}

/* ---- what cannot be a region ---- */

/* Does the body change, or return, memory that is older than it or returned twice? */
static bool region_shares(const MgGraph *g, NodeRef first, PyObject *leaves) {
  for (NodeRef k = first; k < g->nnode; k++) {
    const MgNode *n = mg_node(g, k);
    for (int i = 0; n->op->mutates && i < n->nout; i++) {
      uint32_t storage = n->out[i] ? mg_val(g, n->out[i])->storage : 0;
      if (storage && mg_val(g, storage)->def < first) return true;
    }
  }
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(leaves); i++) {
    PyObject *o = PyList_GET_ITEM(leaves, i);
    if (!mg_standin_is(o)) continue;
    uint32_t storage = mg_val(g, mg_standin_val(o))->storage;
    if (mg_val(g, storage)->def < first) return true;
    for (Py_ssize_t k = 0; k < i; k++) {
      PyObject *other = PyList_GET_ITEM(leaves, k);
      if (mg_standin_is(other) && mg_val(g, mg_standin_val(other))->storage == storage) return true;
    }
  }
  return false;
}

static bool region_is_plain(MgRec *r, MgFxRegion *g, PyObject *leaves, const MgFxHop *hop) {
  for (NodeRef k = g->first; hop->again && k < r->g->nnode; k++)
    if (mg_node_random(mg_node(r->g, k))) return false;
  for (Py_ssize_t i = 0; hop->untracked && i < PyList_GET_SIZE(leaves); i++)
    if (mg_standin_is(PyList_GET_ITEM(leaves, i)) && mg_facts_requires_grad(PyList_GET_ITEM(leaves, i)))
      return false;
  if (hop->apart && region_shares(r->g, g->first, leaves)) return false;
  MgSnapshot *after = mg_snapshot_build(NULL, 0, NULL, Py_None);
  bool plain = after && mg_snapshot_same(g->before, after);
  if (!after) mg_clear_as_no();
  mg_snapshot_free(after);
  return plain;
}

/* The node around the region that does what node n (number i) of the region does.  New. */
static PyObject *region_copy_node(MgCapture *cap, MgFx *f, uint32_t i, PyObject *map) {
  PyObject *n = PyList_GET_ITEM(f->nodes, i - 1), *op = PyObject_GetAttrString(n, "op"), *target = NULL,
           *get = NULL, *r = NULL;
  for (uint32_t k = 0; k < f->nlift; k++)
    if (f->lift[k].number == i) r = Py_NewRef(mg_fx_item(cap, f->lift[k].outer));
  if (r || !op) goto done;
  if (!PyUnicode_CompareWithASCIIString(op, "get_attr")) {
    target = PyObject_GetAttrString(n, "target");
    PyObject *o = target ? PyDict_GetItemWithError(f->root, target) : NULL;
    if (o) r = mg_fx_constant(cap, o, PyObject_TypeCheck(o, mg_torch.module) ? "wrap_body_" : NULL);
    goto done;
  }
  if ((get = PyObject_GetAttrString(map, "__getitem__")) &&
      (r = PyObject_CallMethod(cap->fx->graph, "node_copy", "OO", n, get)) &&
      !mg_fx_adopt(cap->fx, r, PyList_GET_ITEM(f->where, i - 1), false))
    Py_CLEAR(r);
done:
  Py_XDECREF(op);
  Py_XDECREF(target);
  Py_XDECREF(get);
  return r;
}

/* Moves the calls of region f into cap->fx. */
static int region_inline(MgCapture *cap, MgFx *f) {
  PyObject *map = PyDict_New();
  int rc = map ? 0 : -1;
  for (uint32_t i = 1; !rc && i <= PyList_GET_SIZE(f->nodes); i++) {
    PyObject *n = region_copy_node(cap, f, i, map);
    rc = n ? PyDict_SetItem(map, PyList_GET_ITEM(f->nodes, i - 1), n) : -1;
    Py_XDECREF(n);
  }
  for (ValRef v = 1; !rc && v < cap->rec->g->nval; v++) {
    uint32_t at = mg_map_get(&f->by_val, v + 2);
    PyObject *n = at == MG_MAP_NONE ? NULL : PyDict_GetItem(map, PyList_GET_ITEM(f->nodes, at - 1));
    if (n) rc = mg_fx_bind(cap->fx, v, mg_map_getp(&cap->fx->by_node, n));
  }
  Py_XDECREF(map);
  return rc;
}

/* ---- one node ---- */

/* Placeholders that nothing reads (only their size was asked for) go. */
static int region_prune(MgFx *f) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < f->nlift; i++) {
    PyObject *n = PyList_GET_ITEM(f->nodes, f->lift[i].number - 1),
             *users = PyObject_GetAttrString(n, "users"), *gone = NULL;
    Py_ssize_t nuser = users ? PyObject_Size(users) : -1;
    if (!nuser) gone = PyObject_CallMethod(f->graph, "erase_node", "O", n);
    else f->lift[kept++] = f->lift[i];
    Py_XDECREF(users);
    Py_XDECREF(gone);
    if (nuser < 0 || (!nuser && !gone)) return -1;
  }
  f->nlift = kept;
  return 0;
}

PyObject *mg_fx_region_module(MgRec *r, PyObject *leaves) {
  MgFx *f = r->cap->fx;
  PyObject *outs = PyList_New(0), *tuple = NULL, *node = NULL, *gm = NULL;
  for (Py_ssize_t i = 0; outs && i < PyList_GET_SIZE(leaves); i++) {
    PyObject *o = PyList_GET_ITEM(leaves, i), *n;
    if (!mg_standin_is(o)) continue;
    if (!(n = mg_fx_of_val(r->cap, mg_standin_val(o))) || PyList_Append(outs, n)) goto done;
  }
  if (!outs || !(tuple = PyList_AsTuple(outs))) goto done;
  if (mg_fxstate_follow(r->cap, &f->state, true) || mg_fx_follow_grad(r->cap, f->grad_start)) goto done;
  if (!(node = PyObject_CallMethod(f->graph, "output", "(O)", tuple)) || region_prune(f) || mg_fx_describe(r))
    goto done;
  gm = PyObject_CallFunctionObjArgs(mg_fx_torch.GraphModule, f->root, f->graph, NULL);
done:
  Py_XDECREF(outs);
  Py_XDECREF(tuple);
  Py_XDECREF(node);
  return gm;
}

/* The arguments of the node.  New. */
static PyObject *region_args(MgCapture *cap, const MgFx *f, PyObject *body, MgFxShape shape) {
  PyObject *l = PyList_New(0), *target = PyObject_GetAttrString(body, "target"), *t = NULL, *name = NULL;
  const char *attr = target ? PyUnicode_AsUTF8(target) : NULL;
  for (uint32_t i = 0; attr && l && i < f->nlift; i++)
    if (PyList_Append(l, mg_fx_item(cap, f->lift[i].outer))) Py_CLEAR(l);
  if (attr && l) t = PyList_AsTuple(l);
  if (t && shape == FXSHAPE_tuple) Py_SETREF(t, Py_BuildValue("(OO{})", body, t));
  else if (t && shape == FXSHAPE_list) Py_SETREF(t, PyTuple_Pack(2, body, l));
  else if (t && shape == FXSHAPE_named && (name = PyUnicode_FromString(attr)))
    Py_SETREF(t, !PyList_Insert(l, 0, name) && !PyList_Insert(l, 0, body) ? PyList_AsTuple(l) : NULL);
  else if (t) Py_SETREF(t, !PyList_Insert(l, 0, body) ? PyList_AsTuple(l) : NULL);
  Py_XDECREF(l);
  Py_XDECREF(target);
  Py_XDECREF(name);
  return t;
}

static const char *region_prefix(const MgFxHop *hop) {
  static char prefix[24]; /* of the operator that was asked last; the interpreter's lock is held */
  PyObject *name = PyObject_GetAttrString(hop->target, "_name");
  const char *s = name && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
  bool wraps = !s || strstr(s, "wrap") == s || strstr(s, "checkpoint");
  if (hop->apart) snprintf(prefix, sizeof prefix, "subgraph_");
  else snprintf(prefix, sizeof prefix, "%.15s_body_", wraps ? "wrap" : s);
  if (!s) mg_clear_as_no();
  Py_XDECREF(name);
  return prefix;
}

static int region_show(MgCapture *cap, const MgFx *f, PyObject *gm, PyObject *leaves, const MgFxHop *hop) {
  PyObject *body = mg_fx_constant(cap, gm, region_prefix(hop)),
           *args = body ? region_args(cap, f, body, hop->shape) : NULL;
  uint32_t call = args ? mg_fx_node(cap, "call_function", hop->target, args, hop->kwargs) : 0;
  int rc = call ? 0 : -1;
  Py_ssize_t nth = 0;
  for (Py_ssize_t i = 0; !rc && i < PyList_GET_SIZE(leaves); i++) {
    PyObject *o = PyList_GET_ITEM(leaves, i), *pair;
    if (!mg_standin_is(o)) continue;
    pair = Py_BuildValue("(On)", mg_fx_item(cap, call), nth++);
    uint32_t item = pair ? mg_fx_node(cap, "call_function", mg_fx_torch.getitem, pair, NULL) : 0;
    rc = item ? mg_fx_bind(cap->fx, mg_standin_val(o), item) : -1;
    Py_XDECREF(pair);
  }
  Py_XDECREF(body);
  Py_XDECREF(args);
  return rc;
}

static int region_finish(MgRec *r, MgFxRegion *g, PyObject *res, const MgFxHop *hop) {
  MgCapture *cap = r->cap;
  MgFx *f = cap->fx, *outer = f->outer;
  PyObject *spec = NULL, *leaves = mg_part_flatten(res, &spec), *gm = NULL;
  bool plain = leaves && region_is_plain(r, g, leaves, hop);
  MgPause pause = mg_rec_pause();
  int rc = leaves ? 0 : -1;
  if (!rc && plain && !f->incomplete) {
    gm = mg_fx_region_module(r, leaves);
    PyObject *meta = gm && hop->meta ? PyObject_GetAttrString(gm, "meta") : NULL;
    if (meta && PyDict_Update(meta, hop->meta)) Py_CLEAR(gm);
    Py_XDECREF(meta);
    rc = PyErr_Occurred() ? -1 : 0;
  } else if (!rc && !f->incomplete)
    rc = mg_fxstate_follow(cap, &f->state, true) || mg_fx_follow_grad(cap, f->grad_start) ? -1 : 0;
  cap->fx = outer;
  outer->covered = f->covered;
  outer->incomplete |= f->incomplete || (plain && !gm);
  if (!rc && !outer->incomplete) rc = plain ? region_show(cap, f, gm, leaves, hop) : region_inline(cap, f);
  cap->fx = f;
  Py_XDECREF(spec);
  Py_XDECREF(leaves);
  Py_XDECREF(gm);
  mg_rec_resume(pause);
  return rc;
}

int mg_fx_region_end(MgRec *r, MgFxRegion *g, PyObject *res, const MgFxHop *hop) {
  MgCapture *cap = r->cap;
  int rc = 0;
  if (g->open) {
    MgFx *outer = cap->fx->outer;
    PyObject *t, *v, *tb;
    if (res) rc = region_finish(r, g, res, hop);
    PyErr_Fetch(&t, &v, &tb);
    mg_fx_free(cap);
    PyErr_Restore(t, v, tb);
    cap->fx = outer;
  }
  mg_snapshot_free(g->before);
  *g = (MgFxRegion){0};
  return rc;
}

PyObject *mg_fx_region_call(MgRec *r, const MgFxHop *hop, PyObject *fn, PyObject *const *arg, size_t n,
                            PyObject *kwnames) {
  MgFxRegion g;
  if (mg_fx_region_begin(r, &g)) return NULL;
  PyObject *res = mg_ops.call(fn, arg, n, kwnames);
  if (mg_fx_region_end(r, &g, res, hop)) Py_CLEAR(res);
  return res;
}
