/* _magneto.Graph: compiles a graph text and runs it on tensors.  The back end's test harness: no recording,
 * no guards, inputs must be what the text says. */
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "driver/compile.h"
#include "driver/options.h"
#include "driver/plan_store.h"
#include "entry/launch/op_call.h"
#include "entry/launch/plan_call.h"
#include "runtime/code/kernel_cache.h"
#include "runtime/code/load_llvm.h"
#include "runtime/plan/plan_priv.h"

typedef struct GraphObj {
  PyObject_HEAD MgPlan *plan;
  PyObject *dumps; /* dict: channel -> text, or NULL */
} GraphObj;

/* ---- dumps: the log is redirected while a graph is compiled ---- */

static const char *const graph_channels[] = {
#define DUMP(name, what) #name,
#include "dumps.def"
};

static void graph_sink(void *arg, MgLog ch, const char *line) {
  PyObject *d = arg, *old = PyDict_GetItemString(d, graph_channels[ch]);
  PyObject *now = PyUnicode_FromFormat("%s%s\n", old ? PyUnicode_AsUTF8(old) : "", line);
  if (!now || PyDict_SetItemString(d, graph_channels[ch], now))
    PyErr_Clear(); /* out of memory: a line of the log is lost */
  Py_XDECREF(now);
}

/* ---- construction ---- */

static MgRc graph_compile(GraphObj *self, MgCtx *c, const char *text, const MgOptions *o) {
  MgExprs x;
  MgGraph g;
  MgHostOps h;
  TRY(mg_exprs_init(&x, c));
  TRY(mg_graph_init(&g, c, &x));
  TRY(mg_graph_parse(&g, text));
  TRY(mg_graph_verify(&g, "parse"));
  if (mg_nodecall_hostops(NULL, &h)) return MG_PYERR;
  MgRc rc = mg_compile(&g, o, &h, &self->plan);
  if (rc != MG_OK) h.host.free(h.host.self);
  return rc;
}

static PyObject *graph_new(PyTypeObject *type, PyObject *args, PyObject *kw) {
  static char *names[] = {"text", "dump", "freeze", "keep_layout", "threads", NULL};
  const char *text;
  int dump = 0, freeze = 0, keep = 0, threads = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kw, "s|pppi:Graph", names, &text, &dump, &freeze, &keep, &threads))
    return NULL;
  GraphObj *self = (GraphObj *)type->tp_alloc(type, 0);
  if (!self) return NULL;
  MgOptions o = {.freeze = freeze, .keep_layout = keep, .threads = threads};
  unsigned mask = mg_log_mask;
  MgCtx c;
  mg_ctx_init(&c);
  if (dump && !(self->dumps = PyDict_New())) goto fail;
  if (dump) {
    mg_log_set("all");
    mg_log_sink(graph_sink, self->dumps);
  }
  MgRc rc = graph_compile(self, &c, text, &o);
  if (dump) {
    mg_log_sink(NULL, NULL);
    mg_log_mask = mask;
  }
  if (rc != MG_OK) {
    char msg[700];
    const char *file = c.file ? strrchr(c.file, '/') : NULL;
    snprintf(msg, sizeof msg, "%s (%s, %s:%d)", c.rc == MG_OK ? "no message" : c.msg, mg_rc_text(rc),
             file ? file + 1 : "", c.line);
    mg_planrun_raise(rc, msg);
    goto fail;
  }
  mg_ctx_free(&c);
  return (PyObject *)self;
fail:
  mg_ctx_free(&c);
  Py_DECREF(self);
  return NULL;
}

static void graph_dealloc(GraphObj *self) {
  mg_plan_free(self->plan);
  Py_XDECREF(self->dumps);
  Py_TYPE(self)->tp_free((PyObject *)self);
}

/* ---- methods ---- */

static PyObject *graph_run(GraphObj *self, PyObject *const *args, Py_ssize_t n) {
  MgPlanInfo info;
  mg_plan_info(self->plan, &info);
  if (n != info.ninput)
    return PyErr_Format(PyExc_TypeError, "the graph has %d inputs, not %zd", info.ninput, n);
  PyObject *res = PyTuple_New(info.noutput);
  if (!res || !mg_planrun(self->plan, args, NULL, ((PyTupleObject *)res)->ob_item)) return res;
  Py_DECREF(res);
  return NULL;
}

static PyObject *graph_info(GraphObj *self, PyObject *unused) {
  MgPlanInfo i;
  mg_plan_info(self->plan, &i);
  return Py_BuildValue("{s:i,s:i,s:i,s:i,s:i,s:K,s:K,s:i}", "inputs", i.ninput, "outputs", i.noutput,
                       "kernels", i.nkernel, "externs", i.nextern, "host_calls", i.nhost, "arena_bytes",
                       (unsigned long long)i.arena_bytes, "bytes_moved", (unsigned long long)i.bytes_moved,
                       "written", i.nwritten);
}

static PyObject *graph_dump(GraphObj *self, PyObject *stage) {
  PyObject *text = self->dumps ? PyDict_GetItemWithError(self->dumps, stage) : NULL;
  if (text) return Py_NewRef(text);
  return PyErr_Occurred() ? NULL
                          : PyErr_Format(PyExc_KeyError, "%R was not dumped (Graph(text, dump=True))", stage);
}

static PyMethodDef graph_methods[] = {
    {"run", (PyCFunction)(void (*)(void))graph_run, METH_FASTCALL,
     "Runs the graph on tensors; a tuple of results."},
    {"info", (PyCFunction)graph_info, METH_NOARGS, "Counts and sizes of the plan."},
    {"dump", (PyCFunction)graph_dump, METH_O, "Text of a log channel, when compiled with dump=True."},
    {NULL, NULL, 0, NULL}};

static PyTypeObject graph_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "magneto._magneto.Graph",
    .tp_basicsize = sizeof(GraphObj),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Graph(text, dump=False, freeze=False, keep_layout=False, threads=0): a compiled graph text.",
    .tp_new = graph_new,
    .tp_dealloc = (destructor)graph_dealloc,
    .tp_methods = graph_methods};

static PyObject *kernel_cache_info(PyObject *self, PyObject *unused) {
  MgKcInfo i;
  MgStoredInfo plans;
  mg_kcache_info(&i);
  mg_stored_info(&plans);
  return Py_BuildValue("{s:I,s:I,s:K,s:K,s:K,s:K,s:K}", "kernels", i.nkernel, "objects", i.ncode, "bytes",
                       (unsigned long long)i.bytes, "hits", (unsigned long long)i.hits, "misses",
                       (unsigned long long)i.misses, "plans_loaded", (unsigned long long)plans.loaded,
                       "plans_saved", (unsigned long long)plans.saved);
}

static PyObject *kernel_cache_clear(PyObject *self, PyObject *unused) {
  mg_kcache_clear();
  Py_RETURN_NONE;
}

/* Which LLVM is used: {path, cpu, features}, or the reason why there is none. */
static PyObject *llvm_info(PyObject *self, PyObject *unused) {
  const char *why = mg_llvm_open();
  if (why) return PyUnicode_FromString(why);
  return Py_BuildValue("{s:s,s:s,s:s}", "path", mg_llvm_library(), "cpu", mg_llvm_cpu(), "features",
                       mg_llvm_features());
}

/* The number of a pass of that name, its place in the table; -1 with an exception. */
static int graph_pass(const char *name) {
  for (int i = 0; mg_compile_pass(i); i++)
    if (!strcmp(mg_compile_pass(i), name)) return i;
  PyErr_Format(PyExc_ValueError, "plant: no optional pass is named '%s'", name);
  return -1;
}

static PyObject *graph_set_passes(PyObject *self, PyObject *arg) {
  int limit = (int)PyLong_AsLong(arg);
  if (limit == -1 && PyErr_Occurred()) return NULL;
  mg_compile_set_passes(limit);
  PyObject *list = PyList_New(0);
  for (int i = 0; list && mg_compile_pass(i); i++) {
    PyObject *text = PyUnicode_FromString(mg_compile_pass(i));
    if (!text || PyList_Append(list, text)) Py_CLEAR(list);
    Py_XDECREF(text);
  }
  return list;
}

static PyObject *graph_plant(PyObject *self, PyObject *args) {
  const char *name;
  int crash = 0, wrong = -1;
  if (!PyArg_ParseTuple(args, "z|p:plant", &name, &crash)) return NULL;
  if (name && (wrong = graph_pass(name)) < 0) return NULL;
  mg_compile_plant(wrong, crash);
  Py_RETURN_NONE;
}

static PyObject *graph_plant_illegal(PyObject *self, PyObject *args) {
  static const char *const names[ILLEGAL__COUNT] = {
      [ILLEGAL_order] = "order", [ILLEGAL_write] = "write", [ILLEGAL_whole] = "whole"};
  const char *pass, *what = "order";
  int i = 0;
  if (!PyArg_ParseTuple(args, "z|s:plant_illegal", &pass, &what)) return NULL;
  while (i < ILLEGAL__COUNT && strcmp(names[i], what)) i++;
  if (i == ILLEGAL__COUNT)
    return PyErr_Format(PyExc_ValueError, "plant_illegal: what must be order, write or whole, got '%s'",
                        what);
  mg_compile_plant_illegal(pass ? pass : "", (MgIllegal)i);
  Py_RETURN_NONE;
}

static PyMethodDef graphobj_functions[] = {
    {"set_passes", graph_set_passes, METH_O,
     "set_passes(limit, /): compilations run only the first `limit` passes that they can do without (-1: "
     "all).  Gives the names of these passes."},
    {"plant", graph_plant, METH_VARARGS,
     "plant(name, crash=False, /): for tests: a defect in the pass of that name (None: in none), or a "
     "crash."},
    {"plant_illegal", graph_plant_illegal, METH_VARARGS,
     "plant_illegal(name, what='order', /): for tests: after the pass of that name (None: after none) the "
     "graph has a use before its definition, a write ('write'), or compound ops ('whole')."},
    {"kernel_cache_info", kernel_cache_info, METH_NOARGS,
     "Counts of the in-memory kernel cache, and of plans read from and written to disk."},
    {"kernel_cache_clear", kernel_cache_clear, METH_NOARGS, "Forgets the kernels that no plan uses."},
    {"llvm_info", llvm_info, METH_NOARGS,
     "The LLVM library in use (a dict), or why there is none (a string)."},
    {NULL, NULL, 0, NULL}};

int mg_graphobj_init(PyObject *module) {
  if (PyType_Ready(&graph_type) || PyModule_AddObjectRef(module, "Graph", (PyObject *)&graph_type)) return -1;
  return PyModule_AddFunctions(module, graphobj_functions);
}
