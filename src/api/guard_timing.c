/* Timing of guard sets, for benchmarks and tests: how long does a hit spend in guards? */
#include <stdlib.h>
#include "base/log.h"
#include "entry/guard/guard_add.h"
#include "entry/guard/guard_check.h"
#include "entry/run/entry_cache.h"
#include "entry/run/exec_run.h"
#include "entry/run/exec_sizes.h"
#include "entry/run/snapshot_run.h"
#include "host/python/code_info.h"
#include "host/torch/tensor_facts.h"
#include "ir/graph/graph.h"

/* guard_time(function, slots, n, graph_n=0): checks the entries at offset 0 of the function's code n times on
 * these slots, and runs the graph of the one that holds graph_n times: what a call costs beside both is the
 * hook, its results and their replay. */

enum { ROUNDS = 20 };

/* Nanoseconds of one run of the entry's graph, the best of rounds; -1 with an exception. */
static double guardtime_graph(const MgEntry *e, PyObject **vals, int n) {
  const ValRef *unused;
  int nout = mg_snapshot_outputs(e->snap, &unused);
  PyObject **outs = mg_calloc((size_t)nout + 1, sizeof *outs);
  double best = outs ? 0 : (PyErr_NoMemory(), -1);
  for (int round = 0; round < ROUNDS && best >= 0; round++) {
    double took = 0;
    for (int k = 0; k < n && took >= 0; k++) {
      MgExecAt *at = NULL;
      double t = mg_now_ms();
      bool ran = mg_exec_fits(e->exec, vals, &at) && !mg_exec_run(e->exec, vals, at, outs);
      took = ran ? took + (mg_now_ms() - t) * 1e6 / n : -1;
      for (int i = 0; i < nout; i++) Py_CLEAR(outs[i]);
    }
    if (took < 0 || !round || took < best) best = took;
  }
  free(outs);
  return best;
}

static PyObject *guardtime_run(PyObject *self, PyObject *args) {
  PyObject *func, *slots;
  int n, graph_n = 0;
  if (!PyArg_ParseTuple(args, "O!O!i|i", &PyFunction_Type, &func, &PyTuple_Type, &slots, &n, &graph_n))
    return NULL;
  MgCodeInfo *info = mg_code_info((PyCodeObject *)PyFunction_GET_CODE(func));
  if (!info) return NULL;
  PyObject *out = PyList_New(0);
  MgSlots s = {&PyTuple_GET_ITEM(slots, 0), (int)PyTuple_GET_SIZE(slots), func};
  for (MgSite *site = info->sites; out && site; site = site->next) {
    MgBucket *b = site->unit ? NULL : mg_cache_bucket(site, &s, false);
    for (int i = 0; out && b && i < b->n; i++) {
      const MgGuards *g = b->entry[i]->guards;
      PyObject **vals = mg_malloc(sizeof *vals * (size_t)mg_guards_nsrc(g));
      MgGuardFail why = {0};
      if (!vals) break;
      bool holds = mg_guards_check(g, &s, vals, &why);
      double best = 0;
      for (int round = 0; round < ROUNDS; round++) { /* the best round: other programs run as well */
        double t = mg_now_ms();
        for (int k = 0; k < n; k++) mg_guards_check(g, &s, vals, NULL);
        t = mg_now_ms() - t;
        if (!round || t < best) best = t;
      }
      double graph = holds && graph_n > 0 ? guardtime_graph(b->entry[i], vals, graph_n) : 0;
      free(vals);
      PyObject *d = graph < 0 ? NULL
                              : Py_BuildValue("{s:O,s:s,s:d,s:d,s:O,s:I,s:I,s:I,s:I,s:I,s:I}", "holds",
                                              holds ? Py_True : Py_False, "why", why.text, "ns",
                                              n ? best * 1e6 / n : 0.0, "graph_ns", graph, "in_place",
                                              mg_facts_learned() ? Py_True : Py_False, "sources", g->nsrc,
                                              "ops", g->nop, "dicts", g->ndict, "slots", g->nslot, "types",
                                              g->ntype, "empty", g->nempty);
      if (!d || PyList_Append(out, d)) Py_CLEAR(out);
      Py_XDECREF(d);
    }
  }
  return out;
}

static PyMethodDef guardtime_methods[] = {
    {"guard_time", guardtime_run, METH_VARARGS,
     "Checks the guards of a function's entries n times and runs their graphs; a list of dicts."},
    {NULL, NULL, 0, NULL}};

int mg_guardtime_init(PyObject *module) { return PyModule_AddFunctions(module, guardtime_methods); }
