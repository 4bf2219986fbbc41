/* Test entry of the tensor side: records one callable on stand-ins and runs the graph node by node, without
 * the frame loop.  In: record_run(f, tensors): f gets a list of stand-ins and returns a list of tensors.
 * Out: a dict with the results of the run, the graph's text, the number of nodes, the break reason and the
 * time spent recording.  With
 * fx=True also the torch-level GraphModule and its results. */
#include <stdlib.h>
#include "base/log.h"
#include "entry/launch/trace.h"
#include "host/python/names.h"
#include "base/strbuf.h"
#include "entry/launch/graph_interp.h"
#include "host/python/hook_mode.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "record/core/source_place.h"
#include "record/fx/fx.h"
#include "record/segment/tensor_lifetime.h"
#include "record/tensor/standin.h"

/* Calls f on stand-ins of the tensors; the values of its results become the graph's outputs. */
static int rectest_record(MgRec *r, PyObject *f, PyObject *tensors) {
  int rc = -1;
  Py_ssize_t n = PyList_GET_SIZE(tensors);
  PyObject *ins = PyList_New(0), *res = NULL, *fast = NULL;
  for (Py_ssize_t i = 0; ins && i < n; i++) {
    PyObject *t = mg_standin_input(PyList_GET_ITEM(tensors, i), 0);
    if (!t || PyList_Append(ins, t)) {
      Py_XDECREF(t);
      goto done;
    }
    Py_DECREF(t);
  }
  if (!ins || !(res = PyObject_CallOneArg(f, ins))) goto done;
  if (!(fast = PySequence_Fast(res, "the function must return a list of tensors"))) goto done;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast); i++) {
    PyObject *o = PySequence_Fast_GET_ITEM(fast, i);
    ValRef v = mg_standin_check(o)                      ? mg_standin_val(o)
               : PyObject_TypeCheck(o, mg_torch.tensor) ? mg_standin_pin(r->cap, o)
                                                        : 0;
    if (!v) {
      if (!PyErr_Occurred()) PyErr_Format(PyExc_TypeError, "result %zd is a %s", i, Py_TYPE(o)->tp_name);
      goto done;
    }
    if (mg_graph_output(r->g, v)) {
      PyErr_NoMemory();
      goto done;
    }
  }
  rc = 0;
done:
  Py_XDECREF(ins);
  Py_XDECREF(res);
  Py_XDECREF(fast);
  return rc;
}

static PyObject *rectest_replay(MgRec *r) {
  MgNodeRun *p = mg_noderun_build(mg_rec_trace(r, &(MgTrace){0}));
  if (!p) return NULL;
  uint32_t nin = r->g->ninput, nout = r->g->noutput;
  PyObject **in = mg_calloc(nin + 1, sizeof *in), **out = mg_calloc(nout + 1, sizeof *out), *list = NULL;
  if (!in || !out) PyErr_NoMemory();
  else {
    for (uint32_t i = 0; i < nin; i++) in[i] = r->cap->input[i].real;
    if (!mg_noderun_run(p, in, out) && (list = PyList_New(nout)))
      for (uint32_t i = 0; i < nout; i++) PyList_SET_ITEM(list, i, out[i]);
  }
  free(in);
  free(out);
  mg_noderun_free(p);
  return list;
}

/* (gm, results of calling it) or None. */
static PyObject *rectest_fx(MgRec *r) {
  if (!r->want_fx) Py_RETURN_NONE;
  uint32_t *index = NULL, n = 0;
  PyObject *gm = mg_fx_module(r, &index, &n), *in = gm ? PyTuple_New(n) : NULL, *out = NULL, *pair = NULL;
  for (uint32_t i = 0; in && i < n; i++) PyTuple_SET_ITEM(in, i, Py_NewRef(r->cap->input[index[i]].real));
  if (in) out = PyObject_Call(gm, in, NULL);
  if (out) pair = PyTuple_Pack(2, gm, out);
  free(index);
  Py_XDECREF(gm);
  Py_XDECREF(in);
  Py_XDECREF(out);
  return pair;
}

static PyObject *rectest_run(PyObject *self, PyObject *args) {
  PyObject *f, *tensors, *outs = NULL, *fx = NULL, *res = NULL;
  int want_fx = 0;
  if (!PyArg_ParseTuple(args, "OO!|p", &f, &PyList_Type, &tensors, &want_fx)) return NULL;
  MgCtx ctx;
  MgExprs x;
  MgGraph g;
  MgRec r = {.ctx = &ctx, .x = &x, .g = &g, .want_fx = want_fx};
  MgStrbuf text = {0};
  mg_ctx_init(&ctx);
  double ms = 0;
  if (mg_exprs_init(&x, &ctx) || mg_graph_init(&g, &ctx, &x)) {
    PyErr_NoMemory();
    goto done;
  }
  mg_rec = &r;
  int rc = mg_standin_begin(&r);
  double t0 = mg_now_ms();
  if (!rc) rc = rectest_record(&r, f, tensors);
  ms = mg_now_ms() - t0;
  mg_standin_end(&r);
  mg_rec = NULL;
  if (r.abort) {
    PyErr_Clear(); /* the result says it */
    res = Py_BuildValue("{s:s,s:s}", "break", mg_break_name(r.code), "reason", r.reason);
    goto done;
  }
  if (rc || !(outs = want_fx ? Py_NewRef(Py_None) : rectest_replay(&r)) || !(fx = rectest_fx(&r))) goto done;
  mg_graph_print(&g, &text);
  res = Py_BuildValue("{s:O,s:s,s:I,s:d,s:i,s:O,s:O}", "outs", outs, "text", mg_sb_text(&text), "nodes",
                      g.nnode - 1, "ms", ms, "alive", mg_standin_alive(&r), "break", Py_None, "fx", fx);
done:
  mg_rec = NULL;
  Py_XDECREF(outs);
  Py_XDECREF(fx);
  mg_standin_free(&r);
  mg_sb_free(&text);
  mg_ctx_free(&ctx);
  return res;
}

PyMethodDef mg_tensor_methods[] = {
    {"record_run", rectest_run, METH_VARARGS, "Records a callable on stand-ins and runs the graph (tests)."},
    {NULL, NULL, 0, NULL}};
