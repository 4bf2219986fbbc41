/* Captures of CUDA graphs, for which PyTorch has the parts: streams, pools of memory, torch.cuda.CUDAGraph.
 * In: runtime/plan_graph's questions.  Out: answers of the module magneto._glue.cuda_graphs;
 * errors become "not possible". */
#include "entry/launch/cuda_graph.h"
#include "base/log.h"
#include "host/python/glue.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "runtime/plan/plan_graph.h"

/* Why there is no graph: the error of a captured call, or one of magneto._glue.cuda_graphs. */
static void cudagraph_log(PyObject *call) {
  if (!mg_log_on(MG_LOG_fallback) || !(call || PyErr_Occurred())) return;
  PyObject *type, *value, *tb;
  PyErr_Fetch(&type, &value, &tb);
  PyObject *text = call ? PyObject_Str(call) : value ? PyObject_Str(value) : NULL;
  const char *why = text ? PyUnicode_AsUTF8(text) : NULL;
  mg_log(MG_LOG_fallback, "a plan is not captured: %s", why ? why : "?");
  Py_XDECREF(text);
  PyErr_Restore(type, value, tb);
}

/* The result of a function of magneto._glue.cuda_graphs, new; NULL without an exception.  arg: its argument,
 * or a tuple of them. */
static PyObject *cudagraph_call(const char *name, PyObject *arg) {
  PyObject *type, *value, *tb; /* the call that is being captured may have raised */
  PyErr_Fetch(&type, &value, &tb);
  PyObject *m = mg_glue(GLUE_cuda_graphs);
  PyObject *r = m && arg ? PyObject_CallMethod(m, name, "O", arg) : NULL;
  Py_XDECREF(m);
  cudagraph_log(value);
  PyErr_Clear(); /* it was logged */
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(tb);
  return r;
}

static void *cudagraph_begin(int device, bool own, bool random) {
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *where = Py_BuildValue("(iOO)", device, own ? Py_True : Py_False, random ? Py_True : Py_False);
  PyObject *capture = cudagraph_call("begin", where);
  Py_XDECREF(where);
  if (capture == Py_None) Py_CLEAR(capture); /* not now */
  PyGILState_Release(gil);
  return capture;
}

static void *cudagraph_end(void *capture) {
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *r = cudagraph_call("end", capture);
  void *graph = r && r != Py_None ? PyLong_AsVoidPtr(r) : NULL;
  Py_XDECREF(r);
  PyGILState_Release(gil);
  return graph;
}

static void cudagraph_drop(void *capture) {
  if (!Py_IsInitialized()) return;
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *r = cudagraph_call("drop", capture);
  Py_XDECREF(r);
  Py_DECREF((PyObject *)capture);
  PyGILState_Release(gil);
}

void mg_cudagraph_init(void) {
  static const MgGraphHost host = {cudagraph_begin, cudagraph_end, cudagraph_drop};
  mg_plan_graph_host(&host);
}
