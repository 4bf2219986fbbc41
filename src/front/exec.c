/* How the graph of an entry is run.
 * In: the recorded graph, the snapshot's outputs, the options of the callable.  Out: MgExec, run with the source values
 * of a hit.  Immutable after building; several threads may run one.
 * A graph runs in one of these ways: nothing to do; node by node through ATen (when autograd must see it). */
#include "front/standin.h"
#include "runtime/torch_abi.h"
#include <stdlib.h>
#include <string.h>

#pragma weak mg_snapshot_outputs /* until snapshot.c is there */

typedef struct ExecInput {
  SrcRef src;          /* whose value it is, when pinned is NULL */
  PyObject *pinned;    /* a constant tensor, strong */
} ExecInput;

struct MgExec {
  ExecInput *input;    /* in graph input order */
  uint32_t ninput, noutput;
  MgNodeRun *nodes;    /* node by node; NULL when there is nothing to run */
};

/* ---- preparing the graph ---- */

static void exec_see_input(ValRef *v, void *arg) { ((bool *)arg)[*v] = true; }

/* Drops graph inputs that nothing uses, and keeps where the others come from. */
static int exec_take_inputs(MgExec *e, MgRec *r) {
  MgGraph *g = r->g;
  bool *used = mg_calloc(g->nval + 1, sizeof *used);
  e->input = mg_calloc(g->ninput + 1, sizeof *e->input);
  if (!used || !e->input) {
    free(used);
    return PyErr_NoMemory(), -1;
  }
  for (NodeRef n = 1; n < g->nnode; n++)
    if (!mg_node(g, n)->dead) mg_node_each_val(mg_node(g, n), exec_see_input, used);
  for (uint32_t i = 0; i < g->noutput; i++) used[g->output[i]] = true;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < g->ninput; i++) {
    ValRef v = g->input[i];
    if (!used[v]) continue;
    MgCapInput *in = &r->cap->input[i];
    e->input[kept] = (ExecInput){.src = in->src, .pinned = in->pinned ? Py_NewRef(in->real) : NULL};
    g->input[kept] = v;
    mg_val(g, v)->out = (uint16_t)kept++;
  }
  g->ninput = e->ninput = kept;
  free(used);
  return 0;
}

/* True when running the graph has no effect that anyone could see. */
static bool exec_is_idle(const MgGraph *g) {
  if (g->noutput) return false;
  for (NodeRef n = 1; n < g->nnode; n++)
    if (!g->node[n].dead && (g->node[n].op->mutates || g->node[n].op->random)) return false;
  return true;
}

MgExec *mg_exec_build(MgRec *r, const MgConfig *cfg, const MgSnapshot *snap) {
  MgGraph *g = r->g;
  MgExec *e = mg_calloc(1, sizeof *e);
  if (!e) return (MgExec *)PyErr_NoMemory();
  const ValRef *vals = NULL;
  int n = mg_snapshot_outputs(snap, &vals);
  for (int i = 0; i < n; i++)
    if (mg_graph_output(g, vals[i])) {
      PyErr_NoMemory();
      goto fail;
    }
  e->noutput = g->noutput;
  if (exec_is_idle(g)) return e;
  if (exec_take_inputs(e, r)) goto fail;
  if (mg_log_on(MG_LOG_graph)) {
    MgStrbuf text = {0};
    mg_graph_print(g, &text);
    mg_log_text(MG_LOG_graph, "recorded graph", mg_sb_text(&text));
    mg_sb_free(&text);
  }
  if (!(e->nodes = mg_noderun_build(r))) goto fail;
  return e;
fail:
  mg_exec_free(e);
  return NULL;
}

int mg_exec_run(MgExec *e, PyObject **vals, PyObject **outs) {
  PyObject *small[64] = {NULL}, **in = small;
  if (!e->nodes) return 0;
  if (e->ninput > 64 && !(in = mg_malloc(e->ninput * sizeof *in))) return PyErr_NoMemory(), -1;
  for (uint32_t i = 0; i < e->ninput; i++) in[i] = e->input[i].pinned ? e->input[i].pinned : vals[e->input[i].src];
  int rc = mg_noderun_run(e->nodes, in, outs);
  if (in != small) free(in);
  return rc;
}

void mg_exec_free(MgExec *e) {
  if (!e) return;
  for (uint32_t i = 0; i < e->ninput; i++) Py_XDECREF(e->input[i].pinned);
  free(e->input);
  mg_noderun_free(e->nodes);
  free(e);
}
