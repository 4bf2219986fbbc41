/* See the header.
 * wrap and its like record their body in its place, as a region of the FX graph when one is written
 * (fx_region.c). cond, while_loop, scan and map: branches, tests and bodies are recorded as parts
 * (subgraph.c), the call is one node (magneto/_glue/control_flow.py runs it); loops are in while_scan.c.
 * flex_attention, and short loops, are what the Python functions of magneto/_glue/polyfills.py say; their
 * bodies are recorded like any other.  Does not do: random numbers, carried numbers; these break. */
#include "record/higher_order/higher_order.h"
#include <string.h>
#include "host/python/glue.h"
#include "host/python/hook_mode.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "record/autograd/autograd_function.h"
#include "record/core/call_args.h"
#include "record/core/capture.h"
#include "record/core/ops.h"
#include "record/core/recording.h"
#include "record/core/subgraph_state.h"
#include "record/higher_order/fx_region.h"
#include "record/higher_order/subgraph.h"
#include "record/higher_order/while_scan.h"

/* ---- cond ---- */

/* Both branches as parts.  What the node is given first is the predicate. */
static PyObject *higher_cond_parts(MgHigher *h, PyObject *pred, PyObject *const *fn, PyObject *operands) {
  PyObject *const *arg = PySequence_Fast_ITEMS(operands);
  MgGraph *g = h->r->g;
  for (int i = 0; i < 2; i++)
    if (!(h->part[i] = mg_part_record(h->r, fn[i], arg, PySequence_Fast_GET_SIZE(operands), true)))
      return NULL;
  if (!mg_part_alike(g, h->part[0], h->part[1]))
    return mg_rec_break(BK_branch_results, "the branches of a cond give different tensors");
  h->all = mg_new(g->c, ValRef, h->part[0]->nin + h->part[1]->nin + 2);
  if (!h->all) return PyErr_NoMemory();
  h->all[h->nall++] = 0; /* a branch that reads it is given it once more */
  if (mg_higher_collect(h, &pred, 1)) return NULL;
  h->part[0]->res = h->part[0]->out;
  h->part[0]->nres = h->part[0]->nout;
  return mg_higher_emit(h, "cond", PyTuple_Pack(2, h->part[0], h->part[1]), h->part[0], mg_higher_tracks(h),
                        1);
}

/* A tensor of vmap's, another one for each row? */
static bool higher_is_batched(PyObject *o) {
  PyObject *m = mg_standin_transformed(o) ? mg_import("torch._C._functorch") : NULL;
  PyObject *yes = m ? PyObject_CallMethod(m, "is_batchedtensor", "O", o) : NULL;
  bool batched = yes == Py_True;
  Py_XDECREF(m);
  Py_XDECREF(yes);
  mg_clear_as_no();
  return batched;
}

/* cond(pred, true_fn, false_fn, operands).  False: torch's Python has to do it. */
static bool higher_cond(MgRec *r, PyObject *const *a, PyObject **out) {
  PyObject *pred = a[0], *const fn[2] = {a[1], a[2]};
  if (!PyTuple_Check(a[3]) && !PyList_Check(a[3])) return false;
  if (PyBool_Check(pred) || PyLong_CheckExact(pred) || PyFloat_CheckExact(pred)) {
    int yes = PyObject_IsTrue(pred);
    *out = yes < 0 ? NULL
                   : mg_ops.call(yes ? fn[0] : fn[1], PySequence_Fast_ITEMS(a[3]),
                                 (size_t)PySequence_Fast_GET_SIZE(a[3]), NULL);
    return true;
  }
  if (higher_is_batched(pred)) {
    PyObject *m = mg_glue(GLUE_polyfills), *f = m ? PyObject_GetAttrString(m, "batched_cond") : NULL;
    *out = f ? mg_ops.call(f, a, 4, NULL) : NULL;
    Py_XDECREF(m);
    Py_XDECREF(f);
    return true;
  }
  int64_t n;
  if (!mg_standin_check(pred) || !mg_sym_settle(r->g->x, mg_val_numel(r->g, mg_standin_val(pred)), &n) ||
      n != 1)
    return false;
  MgHigher h = {.r = r};
  *out = higher_cond_parts(&h, pred, fn, a[3]);
  mg_higher_free(&h);
  return true;
}

/* ---- operators that call their function ---- */

/* An operator made from torch's BaseHOP that runs its function as it is. */
static bool higher_is_base(PyObject *op) {
  static PyObject *base; /* strong, process lifetime */
  PyObject *m = base ? NULL : PyImport_GetModule(mg_names.base_hop);
  if (m) base = PyObject_GetAttrString(m, "BaseHOP");
  Py_XDECREF(m);
  mg_clear_as_no();
  if (!base || !PyObject_TypeCheck(op, (PyTypeObject *)base)) return false;
  return _PyType_Lookup(Py_TYPE(op), mg_names.call_composite) ==
         _PyType_Lookup((PyTypeObject *)base, mg_names.call_composite);
}

/* op(fn, *tensors, **settings) */
static PyObject *higher_base(MgRec *r, const MgCall *c) {
  PyObject *kw = mg_call_kwargs(c), *res = NULL;
  MgFxHop hop = {.target = c->f, .kwargs = kw, .apart = true};
  if (kw) res = mg_fx_region_call(r, &hop, c->arg[0], c->arg + 1, (size_t)c->npos - 1, NULL);
  Py_XDECREF(kw);
  return res;
}

/* strict_mode(callable, operands) */
static bool higher_strict(MgRec *r, const MgCall *c, PyObject **out) {
  if (c->n != 2 || c->kwnames || (!PyTuple_Check(c->arg[1]) && !PyList_Check(c->arg[1]))) return false;
  MgFxHop hop = {.target = c->f, .shape = FXSHAPE_list};
  *out = mg_fx_region_call(r, &hop, c->arg[0], PySequence_Fast_ITEMS(c->arg[1]),
                           (size_t)PySequence_Fast_GET_SIZE(c->arg[1]), NULL);
  return true;
}

/* hints_wrapper(body_fn, args, kwargs, hints) */
static bool higher_hints(MgRec *r, const MgCall *c, PyObject *const *a, PyObject **out) {
  if (!PyTuple_Check(a[1]) || !PyDict_Check(a[2]) || PyDict_GET_SIZE(a[2]) || !PyDict_Check(a[3]))
    return false;
  PyObject *kw = PyDict_New();
  MgFxHop hop = {.target = c->f, .shape = FXSHAPE_tuple, .kwargs = kw};
  *out =
      kw && !PyDict_SetItemString(kw, "hints", a[3])
          ? mg_fx_region_call(r, &hop, a[0], &PyTuple_GET_ITEM(a[1], 0), (size_t)PyTuple_GET_SIZE(a[1]), NULL)
          : NULL;
  Py_XDECREF(kw);
  return true;
}

bool mg_higher_nested(PyObject *const *arg, size_t nargsf, PyObject *kwnames, PyObject **out) {
  Py_ssize_t n = PyVectorcall_NARGS(nargsf);
  if (n < 1) return false;
  MgFxHop hop = {
      .target = mg_torch.invoke_subgraph, .shape = FXSHAPE_named, .apart = true, .untracked = true};
  *out = mg_fx_region_call(mg_rec, &hop, arg[0], arg + 1, (size_t)n - 1, kwnames);
  return true;
}

/* ---- which operator ---- */

/* The function of magneto._glue.polyfills for an operator; new; NULL with an exception, or
 * without one when there is none. */
static PyObject *higher_function(PyObject *name) {
  static const char *const known[] = {"scan",
                                      "map_impl",
                                      "associative_scan",
                                      "out_dtype",
                                      "flex_attention",
                                      "autograd_function_apply",
                                      "tag_activation_checkpoint"};
  PyObject *m = NULL, *f = NULL;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (!PyUnicode_CompareWithASCIIString(name, known[i]) && (m = mg_glue(GLUE_polyfills)))
      f = PyObject_GetAttr(m, name);
  Py_XDECREF(m);
  return f;
}

/* Sorts arguments by parameter; false: others than these. */
static bool higher_args(const MgCall *c, const char *const *param, PyObject **a) {
  if (c->npos > 4 || c->n > 4) return false;
  for (Py_ssize_t i = 0; i < c->npos; i++) a[i] = c->arg[i];
  for (Py_ssize_t i = c->npos; i < c->n; i++) {
    int k = 0;
    while (k < 4 && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(c->kwnames, i - c->npos), param[k]))
      k++;
    if (k == 4 || a[k]) return false;
    a[k] = c->arg[i];
  }
  return true;
}

static const char *const higher_cond_param[] = {"pred", "true_fn", "false_fn", "operands"};

bool mg_higher_cond(PyObject *const *arg, size_t nargsf, PyObject *kwnames, PyObject **out) {
  Py_ssize_t npos = PyVectorcall_NARGS(nargsf);
  MgCall c = {mg_torch.cond, arg, nargsf, kwnames, npos, npos + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0),
              false};
  PyObject *a[4] = {NULL}, *none = PyTuple_New(0);
  bool done = none && higher_args(&c, higher_cond_param, a) && a[0] && a[1] && a[2];
  if (done && !a[3]) a[3] = none;
  if (!done || !higher_cond(mg_rec, a, out))
    *out = mg_rec_break(BK_branch_arguments, "torch.cond with other arguments");
  Py_XDECREF(none);
  return true;
}

bool mg_higher_call(const MgCall *c, PyObject **out) {
  static const char *const loop[] = {"cond_fn", "body_fn", "carried_inputs", "additional_inputs"};
  static const char *const scan[] = {"combine_fn", "init", "xs", "additional_inputs"};
  static const char *const map[] = {"f", "xs", "pos_args", ""};
  static const char *const hints[] = {"body_fn", "args", "kwargs", "hints"};
  if (!PyObject_TypeCheck(c->f, mg_torch.higher_order)) return false;
  PyObject *name = PyObject_GetAttrString(c->f, "_name"), *a[4] = {NULL}, *none = PyTuple_New(0);
  bool done = false;
  if (name && none && PyUnicode_Check(name)) {
    bool is_cond = !PyUnicode_CompareWithASCIIString(name, "cond"),
         is_loop = !PyUnicode_CompareWithASCIIString(name, "while_loop");
    bool is_scan = !PyUnicode_CompareWithASCIIString(name, "scan"),
         is_map = !PyUnicode_CompareWithASCIIString(name, "map_impl");
    if ((is_cond || is_loop) && higher_args(c, is_cond ? higher_cond_param : loop, a) && a[0] && a[1] &&
        a[2]) {
      if (!a[3]) a[3] = none;
      done = is_cond ? higher_cond(mg_rec, a, out) : mg_loop_while(mg_rec, a, out);
    } else if ((is_scan || is_map) && higher_args(c, is_map ? map : scan, a) &&
               mg_loop_rows(mg_rec, a[0], is_scan ? a[1] : none, a[1 + is_scan], a[2 + is_scan], out)) {
      done = true;
    } else if (c->npos && !PyUnicode_CompareWithASCIIString(name, "wrap")) {
      MgFxHop hop = {.target = c->f};
      *out = mg_fx_region_call(mg_rec, &hop, c->arg[0], c->arg + 1, (size_t)c->npos - 1, c->kwnames);
      done = true;
    } else if (c->npos > 1 && !PyUnicode_CompareWithASCIIString(name, "dynamo_bypassing_wrapper") &&
               !PyUnicode_Check(c->arg[0])) {
      PyObject *f = mg_ops.call(c->arg[0], c->arg + 1, 1, NULL); /* a function that wraps another one */
      *out = f ? mg_ops.call(f, c->arg + 2, (size_t)c->npos - 2, c->kwnames) : NULL;
      Py_XDECREF(f);
      done = true;
    } else if (!PyUnicode_CompareWithASCIIString(name, "custom_function_call")) {
      done = mg_function_transformed(c, out);
    } else if (!PyUnicode_CompareWithASCIIString(name, "strict_mode")) {
      done = higher_strict(mg_rec, c, out);
    } else if (!PyUnicode_CompareWithASCIIString(name, "hints_wrapper")) {
      done = higher_args(c, hints, a) && a[0] && a[1] && a[2] && a[3] && higher_hints(mg_rec, c, a, out);
    } else if (c->npos && higher_is_base(c->f)) {
      *out = higher_base(mg_rec, c);
      done = true;
    } else if (!is_cond && !is_loop) {
      PyObject *f = higher_function(name);
      if ((done = f != NULL))
        *out = mg_ops.call(f, c->arg, c->nargsf & ~PY_VECTORCALL_ARGUMENTS_OFFSET, c->kwnames);
      Py_XDECREF(f);
    }
  }
  if (!done) PyErr_Clear(); /* the call itself will raise it again */
  Py_XDECREF(name);
  Py_XDECREF(none);
  return done;
}
