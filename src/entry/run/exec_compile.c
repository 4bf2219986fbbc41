/* Compiling the graph of an entry into its plan. */
#include "entry/run/exec_compile.h"
#include "base/env.h"
#include "base/log.h"
#include "base/table.h"
#include "driver/compile.h"
#include "driver/options.h"
#include "entry/grad/joint_plans.h"
#include "entry/launch/events.h"
#include "entry/launch/graph_interp.h"
#include "entry/launch/op_call.h"
#include "entry/launch/stats.h"
#include "entry/launch/trace.h"
#include "entry/run/exec.h"
#include "entry/run/exec_run.h"
#include "entry/verify/verify.h"
#include "host/python/hook_mode.h"
#include "host/python/notices.h"
#include "ir/expr/dtype.h"
#include "ir/expr/expr.h"
#include "ir/graph/graph.h"

/* ---- a compiled plan ---- */

/* Where the memory that a tensor is a part of begins; NULL: it has none. */
static const char *exec_memory(PyObject *tensor) {
  void *p = NULL;
  int64_t offset = 0;
  int32_t dtype = 0;
  MgTensor *t = mg_abi_tensor(tensor);
  if (mg_abi.aoti_torch_get_data_ptr(t, &p) || !p || mg_abi.aoti_torch_get_storage_offset(t, &offset))
    return NULL;
  mg_abi.aoti_torch_get_dtype(t, &dtype);
  return (const char *)p - offset * mg_dtype_size((MgDtype)dtype);
}

bool mg_exec_alone(const bool *written, uint32_t n, PyObject *const *in) {
  enum { SMALL = 128 };
  struct {
    const char *at;
    bool written;
  } few[SMALL], *table = few;
  size_t room = SMALL;
  if (!written) return true;
  while (room < 2 * (size_t)n) room *= 2;
  if (room > SMALL) table = mg_calloc(room, sizeof *table);
  else memset(few, 0, sizeof few);
  bool alone = table;
  for (uint32_t i = 0; alone && i < n; i++) {
    const char *p = exec_memory(in[i]);
    if (!p) continue;
    size_t k = ((uintptr_t)p * 0x9e3779b97f4a7c15u) >> 32 & (room - 1);
    while (table[k].at && table[k].at != p) k = (k + 1) & (room - 1);
    if (table[k].at) alone = !written[i] && !table[k].written;
    else table[k].at = p, table[k].written = written[i];
  }
  if (table != few) free(table);
  return alone;
}

/* The graph runs op by op because it cannot be compiled: an error in tests, else one warning per reason. */
static int exec_fall_back(const MgTrace *t, MgRc rc) {
  static MgMap said;
  const char *why = *t->ctx->msg ? t->ctx->msg : mg_rc_text(rc);
  if (t->ctx->stopped)
    return PyErr_SetString(MgBreakError, why), -1; /* no failure: it is compiled another time */
  mg_stats.fallbacks++;
  mg_log(MG_LOG_fallback, "a graph runs op by op: %s", why);
  mg_event("fallback", NULL, 0, why);
  if (mg_strict()) {
    PyErr_Format(PyExc_RuntimeError, "magneto: cannot compile the graph: %s: %s (%s:%d)", mg_rc_text(rc), why,
                 t->ctx->file ? t->ctx->file : "?", t->ctx->line);
    return -1;
  }
  uint64_t key = mg_hash_bytes(why, strlen(why), 0) | 2;
  if (mg_map_get(&said, key) != MG_MAP_NONE) return 0;
  if (mg_map_put(&said, key, 1)) return PyErr_NoMemory(), -1;
  return PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "magneto: a graph runs op by op: %s", why);
}

/* Which inputs are written, to e->written.  1: noted, or none is; 0: writes show through another input, which
 * is ATen's work; -1 with an exception. */
static int exec_note_written(MgExec *e, const MgGraph *g, PyObject *const *example) {
  Written w = {.g = g};
  bool any = false, *written = mg_calloc(e->ninput + 1, sizeof *written);
  if (!written || !mg_alias_find_written(&w)) return free(written), PyErr_NoMemory(), -1;
  bool alone = true;
  for (uint32_t i = 0; i < e->ninput; i++) {
    uint32_t storage = mg_val(g, g->input[i])->storage; /* that of the first input over it */
    any |= written[i] = w.storage[storage];
    alone &= !written[i] || storage == g->input[i];
  }
  free(w.storage);
  alone = alone && (!any || mg_exec_alone(written, e->ninput, example));
  if (any && alone) e->written = written;
  else free(written);
  return alone;
}

int mg_exec_compile(MgExec *e, const MgTrace *t, const MgOptions *opt, PyObject *const *example, MgRc *rc) {
  MgHostOps host;
  int noted = exec_note_written(e, t->g, example);
  *rc = MG_OK;
  if (noted <= 0) return noted;
  if (mg_nodecall_hostops(t->objs, &host)) return -1;
  char label[MG_TRACE_LABEL];
  host.label = mg_trace_label(t, "", label);
  host.recording = t->recording;
  *rc = mg_compile(t->g, opt, &host, &e->plan);
  mg_notices_tell();
  if (*rc == MG_OK) e->verify = mg_verify_new(opt, e->written, t->recording);
  if (*rc == MG_OK) return 1;
  host.host.free(host.host.self);
  free(e->written);
  e->written = NULL;
  if (*rc == MG_PYERR && PyErr_Occurred()) return -1;
  PyErr_Clear(); /* rc says it */
  return 0;
}

/* Why it failed; NULL: it did not. */
static const char *exec_failure(const MgTrace *t, MgRc rc) {
  if (rc == MG_OK || t->ctx->stopped) return NULL;
  return *t->ctx->msg ? t->ctx->msg : mg_rc_text(rc);
}

int mg_exec_build_plan(MgExec *e, const MgTrace *t, const MgOptions *opt, PyObject *const *example) {
  MgRc rc;
  mg_verify_announce(t, e->nodes, example);
  int made = mg_exec_compile(e, t, opt, example, &rc);
  mg_verify_compiled(t, exec_failure(t, rc));
  if (made <= 0) return made || rc == MG_OK ? made : exec_fall_back(t, rc);
  MgPlanInfo info;
  mg_plan_info(e->plan, &info);
  if (!e->written && !info.nextern && !e->verify) { /* nothing can send a run back to ATen */
    mg_noderun_free(e->nodes);
    e->nodes = NULL;
  }
  return 1;
}

/* The same with backward.  The nodes also give the values that get a grad_fn, for
 * a second differentiation. */
int mg_exec_build_grad(MgExec *e, const MgTrace *t, PyObject *const *example, MgAutograd *plans,
                       const int64_t *sizes, uint32_t nsize) {
  const MgJointRec *j = t->joint;
  MgGraph *g = t->g;
  ValRef *out = mg_new(g->c, ValRef, j->nres + j->nthrough + 1);
  if (!out) return PyErr_NoMemory(), -1;
  int noted = exec_note_written(e, g, example);
  if (noted <= 0) return noted;
  memcpy(out, g->output, j->nres * sizeof *out);
  memcpy(out + j->nres, j->through, j->nthrough * sizeof *out);
  MgNodeRun *nodes = mg_noderun_build_part(t, NULL, NULL, g->input, g->ninput, out, j->nres + j->nthrough);
  if (!nodes) return -1;
  mg_verify_announce(t, nodes, example);
  MgRc rc = mg_autograd_build_at(t, nodes, e->ninput, plans, sizes, nsize, &e->grad);
  mg_verify_compiled(t, exec_failure(t, rc));
  if (rc == MG_OK) {
    e->grad->views = e->views;
    e->verify = mg_verify_new(t->opt, e->written, t->recording);
    mg_stats.joint_graphs += !plans;
    return 1;
  }
  mg_noderun_free(nodes);
  free(e->written);
  e->written = NULL;
  if (rc == MG_PYERR && PyErr_Occurred()) return -1;
  PyErr_Clear(); /* rc says it */
  return exec_fall_back(t, rc);
}

MgExec *mg_exec_piece(MgCtx *ctx, MgExprs *x, MgGraph *g, PyObject *objs, const MgOptions *opt,
                      uint64_t recording, PyObject *const *in) {
  MgTrace t = {.ctx = ctx, .x = x, .g = g, .objs = objs, .opt = opt, .name = "stage", .recording = recording};
  MgExec *run = mg_calloc(1, sizeof *run);
  if (!run) return (MgExec *)PyErr_NoMemory();
  run->ninput = g->ninput;
  run->noutput = g->noutput;
  mg_exec_log_graph(g);
  if (!(run->nodes = mg_noderun_build(&t)) || mg_exec_build_plan(run, &t, opt, in) < 0) {
    mg_exec_free(run);
    return NULL;
  }
  return run;
}
