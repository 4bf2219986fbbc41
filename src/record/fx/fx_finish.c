/* The finished FX graph: outputs, what nobody reads removed, names and facts, as a torch.fx.GraphModule. */
#include "host/python/hook_mode.h"
#include "host/python/pyobject.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "record/fx/fx.h"
#include "record/fx/fx_graph.h"
#include "record/fx/fx_meta.h"
#include "record/fx/fx_modes.h"

bool mg_fx_shows(MgCapture *cap, const ValRef *out, int n) {
  mg_fx_look_for_writes(cap);
  for (int i = 0; i < n && !cap->fx->incomplete; i++)
    if (!mg_fx_of_val(cap, out[i])) {
      PyErr_Clear(); /* incomplete says it */
      return false;
    }
  return !cap->fx->incomplete;
}

/* The nodes of the graph's outputs as a tuple.  NULL with an exception, or without
 * one when some has no node. */
static PyObject *fx_outputs(MgRec *r) {
  PyObject *t = PyTuple_New(r->g->noutput);
  for (uint32_t i = 0; t && i < r->g->noutput; i++) {
    PyObject *n = mg_fx_of_val(r->cap, r->g->output[i]),
             *o = n ? mg_fx_late_output(r->cap, r->g->output[i], n) : NULL;
    if (!o) Py_CLEAR(t);
    else PyTuple_SET_ITEM(t, i, o);
  }
  return t;
}

/* Erases a node that nothing reads when it is a subscript (items of a tensor that was iterated over), or
 * takes a number out of a tensor. */
static int fx_prune_item(MgFx *f, PyObject *n, bool number) {
  PyObject *target = PyObject_GetAttrString(n, "target"), *users = NULL, *r = NULL;
  if (!target) return -1;
  number |= PyUnicode_Check(target) && !PyUnicode_CompareWithASCIIString(target, "item");
  if ((target == mg_fx_torch.getitem || number) && (users = PyObject_GetAttrString(n, "users")) &&
      !PyObject_Size(users))
    r = PyObject_CallMethod(f->graph, "erase_node", "O", n);
  Py_DECREF(target);
  Py_XDECREF(users);
  Py_XDECREF(r);
  return PyErr_Occurred() ? -1 : 0;
}

/* Removes placeholders and constants that nothing reads: an input whose size alone was asked for. */
static int fx_prune(MgFx *f) {
  for (Py_ssize_t i = PyList_GET_SIZE(f->nodes); i-- > 0;)
    if (fx_prune_item(f, PyList_GET_ITEM(f->nodes, i), mg_fx_is_calc(f, i))) return -1;
  uint32_t kept = 0, seen = 0;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(f->nodes); i++) {
    PyObject *n = PyList_GET_ITEM(f->nodes, i), *op = PyObject_GetAttrString(n, "op"), *users = NULL,
             *r = NULL;
    if (!op || !(users = PyObject_GetAttrString(n, "users"))) goto fail;
    bool input = PyUnicode_CompareWithASCIIString(op, "placeholder") == 0;
    bool constant = PyUnicode_CompareWithASCIIString(op, "get_attr") == 0;
    Py_ssize_t nuser = PyObject_Size(users);
    if (nuser < 0) goto fail;
    if ((input || constant) && !nuser && !(r = PyObject_CallMethod(f->graph, "erase_node", "O", n)))
      goto fail;
    if (input && nuser) {
      f->input[kept] = f->input[seen];
      f->input_node[kept++] = f->input_node[seen];
    }
    seen += input;
    Py_DECREF(op);
    Py_DECREF(users);
    Py_XDECREF(r);
    continue;
  fail:
    Py_XDECREF(op);
    Py_XDECREF(users);
    return -1;
  }
  f->ninput = kept;
  return 0;
}

int mg_fx_describe(MgRec *r) {
  MgFx *f = r->cap->fx;
  PyObject *inputs = PyDict_New();
  int rc = inputs ? 0 : -1;
  for (uint32_t i = 0; !rc && i < f->ninput; i++)
    if (!(f->input[i] & MG_FX_SYMBOL))
      rc = PyDict_SetItem(inputs, mg_fx_at(f, f->input_node[i]), r->cap->input[f->input[i]].real);
  if (!rc) rc = mg_fxmeta_finish(r, f->nodes, f->val, f->where, inputs);
  Py_XDECREF(inputs);
  return rc;
}

PyObject *mg_fx_module(MgRec *r, uint32_t **inputs, uint32_t *ninput) {
  mg_fx_look_for_writes(r->cap);
  PyObject *outs = r->cap->fx->incomplete ? NULL : fx_outputs(r), *gm = NULL, *node = NULL;
  if (!outs && PyErr_Occurred()) return NULL;
  if (!outs && (mg_fx_from_aten(r) || !(outs = fx_outputs(r)))) {
    if (!PyErr_Occurred())
      PyErr_SetString(PyExc_SystemError, "magneto: a graph output was made by no recorded op");
    return NULL;
  }
  MgFx *f = r->cap->fx;
  if (!f->incomplete && mg_fx_asserts(r->cap)) goto done;
  if ((!f->incomplete && mg_fxstate_follow(r->cap, &f->state, true)) ||
      mg_fx_follow_grad(r->cap, f->grad_end))
    goto done;
  if (!(node = PyObject_CallMethod(f->graph, "output", "(O)", outs))) goto done;
  if (fx_prune(f) || mg_fx_describe(r)) goto done;
  if (!(gm = PyObject_CallFunctionObjArgs(mg_fx_torch.GraphModule, f->root, f->graph, NULL))) goto done;
  *inputs = f->input;
  *ninput = f->ninput;
  f->input = NULL;
done:
  Py_XDECREF(outs);
  Py_XDECREF(node);
  return gm;
}
