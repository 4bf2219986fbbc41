/* How the graph of an entry is run.
 * In: the recorded graph, the snapshot's outputs, the options of the callable.  Out: MgExec, run with the source values
 * of a hit.  Immutable after building; several threads may run one.
 * A graph runs in one of four ways: as a compiled plan; as a compiled forward whose results get the compiled backward as
 * their grad_fn; through what a custom backend returned; node by node through ATen, when autograd has to see more than
 * that, when the back end cannot compile it, and when inputs overlap in another way than they did while recording (ATen
 * is right under any aliasing). */
#include "front/exec.h"
#include "front/backward.h"
#include "front/facts.h"
#include "front/function.h"
#include "front/fmodes.h"
#include "front/fx.h"
#include "front/inference_mode.h"
#include "front/lazybits.h"
#include "front/names.h"
#include "front/ndarray.h"
#include "front/nodecall.h"
#include "front/notices.h"
#include "front/place.h"
#include "front/planrun.h"
#include "front/resume.h"
#include "front/source.h"
#include "front/state.h"
#include "front/symfloat.h"
#include "front/symdata.h"
#include "front/tensorhook.h"
#include "front/claim.h"
#include <stdlib.h>
#include <string.h>

/* ---- preparing the graph ---- */

static void exec_see_input(ValRef *v, void *arg) { ((bool *)arg)[*v] = true; }

/* What only backward uses, and the inputs that it answers for. */
static void exec_joint_inputs(MgRec *r, bool *used) {
  const MgJointRec *j = r->joint;
  for (NodeRef n = j->backward; n < j->nnode; n++) mg_node_each_val(mg_node(r->g, n), exec_see_input, used);
  for (uint32_t i = 0; i < j->ndiff; i++) used[r->cap->input[j->diff[i]].val] = used[j->grad[i]] = true;
}

/* Drops graph inputs that nothing uses, and keeps where the others come from. */
static int exec_take_inputs(MgExec *e, MgRec *r, bool data) {
  MgGraph *g = r->g;
  bool *used = mg_calloc((r->joint ? r->joint->nval : g->nval) + 1, sizeof *used);
  e->input = mg_calloc(g->ninput + 1, sizeof *e->input);
  if (!used || !e->input) {
    free(used);
    return PyErr_NoMemory(), -1;
  }
  for (NodeRef n = 1; n < g->nnode; n++)
    if (!mg_node(g, n)->dead) mg_node_each_val(mg_node(g, n), exec_see_input, used);
  for (uint32_t i = 0; i < g->noutput; i++) used[g->output[i]] = true;
  if (r->joint) exec_joint_inputs(r, used);
  for (uint32_t i = 0; data && i < r->cap->sizes.nsrc; i++) used[r->cap->sizes.of[i].val] = true; /* whose size is asked */
  uint32_t kept = 0;
  for (uint32_t i = 0; i < g->ninput; i++) {
    ValRef v = g->input[i];
    if (!used[v]) continue;
    MgCapInput *in = &r->cap->input[i];
    e->input[kept] = (MgExecInput){.src = in->src, .pinned = in->pinned ? Py_NewRef(in->real) : NULL, .scalar = in->scalar, .array = in->array};
    /* a number that became a tensor on the way into torch: nobody else has it */
    if (in->pinned && !mg_val(g, v)->ndim && Py_REFCNT(in->real) == 2) mg_val(g, v)->known = mg_abi_tensor(in->real);
    g->input[kept] = v;
    mg_val(g, v)->out = (uint32_t)kept++;
  }
  g->ninput = e->ninput = kept;
  free(used);
  return 0;
}

/* True when running the graph has no effect that anyone could see. */
static bool exec_is_idle(const MgGraph *g) {
  if (g->noutput) return false;
  for (NodeRef n = 1; n < g->nnode; n++)
    if (!g->node[n].dead && (g->node[n].op->effect || !g->node[n].nout || mg_node_raises(g, &g->node[n]))) return false;
  return true;
}

static bool exec_storage_grad(const MgCapture *cap, const MgVal *v) {
  return v->requires_grad || (v->storage < cap->cap_storage && cap->storage_grad[v->storage]);
}

/* True when autograd must see the run: a result, or an input that is written, is part of a gradient graph. */
static bool exec_needs_autograd(const MgExec *e, const MgRec *r) {
  const MgGraph *g = r->g;
  for (uint32_t i = 0; i < g->noutput; i++) {
    const MgVal *v = mg_val(g, g->output[i]);
    if (v->def && exec_storage_grad(r->cap, v) && !(e->spent && e->spent[i])) return true;
  }
  for (uint32_t i = 0; i < g->ninput; i++) {
    const MgVal *v = mg_val(g, g->input[i]);
    if (v->storage < r->cap->cap_storage && r->cap->storage_grad[v->storage]) return true;
  }
  return false;
}

int mg_exec_nodes_differentiate(const MgRec *r) {
  if (mg_function_all_whole(r)) return 0;
  PyErr_SetString(PyExc_RuntimeError, "magneto: values inside of an autograd.Function are used outside of it");
  return -1;
}

/* ---- a custom backend ---- */

/* By example, a tuple of the dimensions that are symbols; None for a number that is one.  None: no size is.  New. */
static PyObject *exec_symbols(const MgRec *r, const uint32_t *index, uint32_t n) {
  bool none = !mg_symsize_inputs(&r->cap->sizes);
  PyObject *all = none ? Py_NewRef(Py_None) : PyList_New(n);
  for (uint32_t i = 0; all && !none && i < n; i++) {
    PyObject *dims = index[i] & MG_FX_SYMBOL ? Py_NewRef(Py_None) : PyList_New(0), *t;
    const MgVal *v = dims == Py_None ? NULL : mg_val(r->g, r->cap->input[index[i]].val);
    for (int d = 0; dims && v && d < v->ndim; d++) {
      int64_t k;
      PyObject *dim = mg_ex_const_int(r->x, v->size[d], &k) ? NULL : PyLong_FromLong(d);
      if (dim && PyList_Append(dims, dim)) Py_CLEAR(dims);
      Py_XDECREF(dim);
    }
    t = !dims || !v ? dims : PyList_AsTuple(dims);
    if (dims && v) Py_DECREF(dims);
    if (t) PyList_SET_ITEM(all, i, t);
    else Py_CLEAR(all);
  }
  return all;
}

/* Sets autograd's mode; which one it was. */
static bool exec_set_grad(bool mode) {
  bool was = mg_abi.aoti_torch_grad_mode_is_enabled();
  if (was != mode) mg_abi.aoti_torch_grad_mode_set_enabled(mode);
  return was;
}

/* What it calls of torch is none of the business of the program's modes.  It may take minutes: handlers of signals run meanwhile,
 * but not in what magneto.backends does around it, whose weak references' callbacks lose what a handler raises. */
static PyObject *exec_call_backend(const MgRec *r, PyObject *backend, PyObject *gm, PyObject *examples, PyObject *sizes) {
  bool symbols = r->cap->wrappers || r->cap->loops, sized = sizes != Py_None && !r->cap->wrappers;
  PyObject *m = symbols || sized ? mg_import("magneto.backends") : NULL, *f = NULL;
  bool modes = r->cap->fmodes_known && mg_fmodes_depth(), grad = exec_set_grad(mg_fx_called_grad(r->cap));
  if (modes) mg_fmodes_leave();
  if (m && sized) f = PyObject_CallMethod(m, "with_sizes", "OOOO", backend, gm, examples, sizes);
  else if (m) f = PyObject_CallMethod(m, "with_symbols", "OOO", backend, gm, examples);
  else if (!symbols && !sized) {
    bool held = mg_pyframe_hold_signals(PyThreadState_Get(), false);
    f = PyObject_CallFunctionObjArgs(backend, gm, examples, NULL);
    mg_pyframe_hold_signals(PyThreadState_Get(), held);
  }
  if (modes) mg_fmodes_restore(r->cap);
  exec_set_grad(grad);
  Py_XDECREF(m);
  return f;
}

/* Gives the exception that a back end raised the type under which programs written for torch.compile catch it. */
static void exec_backend_failed(PyObject *backend) {
  if (!PyErr_ExceptionMatches(PyExc_Exception)) return; /* Ctrl-C */
  PyObject *t, *v, *tb;
  PyErr_Fetch(&t, &v, &tb);
  PyErr_NormalizeException(&t, &v, &tb);
  if (tb) PyException_SetTraceback(v, tb);
  PyObject *m = mg_import("magneto.backends"), *e = m ? PyObject_CallMethod(m, "failed", "OO", backend, v) : NULL;
  Py_XDECREF(m);
  if (!e) PyErr_Clear();
  if (e) {
    Py_SETREF(v, e);
    Py_SETREF(t, Py_NewRef((PyObject *)Py_TYPE(v)));
    Py_XSETREF(tb, PyException_GetTraceback(v));
  }
  PyErr_Restore(t, v, tb);
}

/* What the backend made of the same graph for another module instance: 1; 0: there is none; -1 with an exception. */
static int exec_find_shared(MgExec *e, const MgRec *r, PyObject *gm, PyObject *examples, PyObject *sizes) {
  if (!r->peers || !PyList_GET_SIZE(r->peers)) return 0;
  PyObject *m = mg_import("magneto.sharing"), *c = m ? PyObject_CallMethod(m, "find", "OOOO", gm, examples, sizes, r->peers) : NULL;
  Py_XDECREF(m);
  if (!c || c == Py_None) {
    Py_XDECREF(c);
    return c ? 0 : -1;
  }
  e->compiled = c;
  e->callable = PyObject_GetAttrString(c, "call");
  return e->callable ? 1 : -1;
}

/* Keeps what other instances may share. */
static int exec_share(MgExec *e, PyObject *gm, PyObject *examples, PyObject *sizes) {
  PyObject *m = mg_import("magneto.sharing");
  if (m) e->compiled = PyObject_CallMethod(m, "describe", "OOOO", gm, examples, sizes, e->callable);
  Py_XDECREF(m);
  return e->compiled ? 0 : -1;
}

PyObject *mg_exec_compiled(const MgExec *e) { return e->compiled && e->compiled != Py_None ? e->compiled : NULL; }

static int exec_build_backend(MgExec *e, MgRec *r, const MgConfig *cfg) {
  uint32_t *index = NULL, n = 0;
  PyObject *list = NULL, *sizes = NULL, *gm = mg_fx_module(r, &index, &n);
  int rc = -1;
  if (!gm) goto done;
  e->callable_grad = mg_fx_called_grad(r->cap);
  if (!(e->input = mg_calloc(n + 1, sizeof *e->input))) {
    PyErr_NoMemory();
    goto done;
  }
  if (!(list = PyList_New(n))) goto done;
  for (; e->ninput < n; e->ninput++) {
    if (index[e->ninput] & MG_FX_SYMBOL) {
      uint32_t k = index[e->ninput] & ~MG_FX_SYMBOL;
      PyObject *hint = PyLong_FromLongLong(mg_sym_hint(r->x, r->cap->sizes.ref[k]));
      if (!hint) goto done;
      e->input[e->ninput] = (MgExecInput){.src = r->cap->sizes.src[k], .number = true};
      PyList_SET_ITEM(list, e->ninput, hint);
      continue;
    }
    const MgCapInput *in = &r->cap->input[index[e->ninput]];
    e->input[e->ninput] = (MgExecInput){
        .src = in->src, .pinned = in->pinned ? Py_NewRef(in->real) : NULL, .scalar = in->scalar, .array = in->array};
    PyList_SET_ITEM(list, e->ninput, Py_NewRef(in->real));
  }
  if (!(sizes = exec_symbols(r, index, n))) goto done;
  int shared = exec_find_shared(e, r, gm, list, sizes);
  if (shared) {
    rc = shared > 0 ? 0 : -1;
    goto done;
  }
  bool hooks = mg_tensorhook_inside(r);
  if (hooks) mg_tensorhook_watch();
  e->callable = exec_call_backend(r, cfg->backend, gm, list, sizes);
  if (hooks && mg_tensorhook_traced()) {
    r->hook_traced = true;
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "magneto: the backend traces the registration of a hook");
    goto done;
  }
  if (!e->callable) {
    exec_backend_failed(cfg->backend);
    goto done;
  }
  if (e->callable == Py_NotImplemented) {
    mg_execsizes_refuse(r, "a backend compiles for fixed sizes, or raised an exception for symbolic ones");
    goto done;
  }
  bool same = e->callable == gm || (PyMethod_Check(e->callable) && PyMethod_GET_SELF(e->callable) == gm);
  if (!same && r->cap->wrappers) r->fixed_sizes = true; /* made for the sizes of the examples, as far as anybody knows */
  if (!same && sizes != Py_None && r->cap->wrappers) {
    mg_execsizes_refuse(r, "a backend compiles for fixed sizes");
    goto done;
  }
  if (!PyCallable_Check(e->callable)) {
    PyErr_Format(PyExc_TypeError, "magneto: the backend %R must return a callable, it returned an instance of %s",
                 cfg->backend, Py_TYPE(e->callable)->tp_name);
    goto done;
  }
  rc = exec_share(e, gm, list, sizes);
done:
  free(index);
  Py_XDECREF(gm);
  Py_XDECREF(sizes);
  Py_XDECREF(list);
  return rc;
}

static int exec_run_backend(const MgExec *e, PyObject *const *in, PyObject **outs) {
  bool grad = exec_set_grad(e->callable_grad);
  PyObject *res = PyObject_Vectorcall(e->callable, in, e->ninput, NULL), *fast = NULL;
  int rc = -1;
  exec_set_grad(grad); /* what the program does with it is the snapshot's */
  if (!res) return -1;
  if (e->noutput == 1 && PyObject_TypeCheck(res, mg_tensor_type)) { /* a lone tensor is as good as a tuple of one */
    outs[0] = res;
    return 0;
  }
  if (!PyTuple_Check(res) && !PyList_Check(res)) {
    PyErr_Format(PyExc_TypeError, "magneto: the callable of a custom backend must return a tuple of %u tensors, it returned an "
                 "instance of %s", e->noutput, Py_TYPE(res)->tp_name);
    goto done;
  }
  if (!(fast = PySequence_Fast(res, "a tuple"))) goto done;
  if (PySequence_Fast_GET_SIZE(fast) != e->noutput) {
    PyErr_Format(PyExc_ValueError, "magneto: the callable of a custom backend returned %zd results, the graph has %u",
                 PySequence_Fast_GET_SIZE(fast), e->noutput);
    goto done;
  }
  for (uint32_t i = 0; i < e->noutput; i++) { /* a number out of a tensor may come as it is */
    PyObject *o = PySequence_Fast_GET_ITEM(fast, i);
    if (!(outs[i] = PyLong_Check(o) || PyFloat_Check(o) ? mg_symfloat_tensor(o) : Py_NewRef(o))) goto done;
  }
  rc = 0;
done:
  Py_XDECREF(fast);
  Py_DECREF(res);
  return rc;
}

/* ---- a compiled plan ---- */

/* Where the memory that a tensor is a part of begins; NULL: it has none. */
static const char *exec_memory(PyObject *tensor) {
  void *p = NULL;
  int64_t offset = 0;
  int32_t dtype = 0;
  MgTensor *t = mg_abi_tensor(tensor);
  if (mg_abi.aoti_torch_get_data_ptr(t, &p) || !p || mg_abi.aoti_torch_get_storage_offset(t, &offset)) return NULL;
  mg_abi.aoti_torch_get_dtype(t, &dtype);
  return (const char *)p - offset * mg_dtype_size((MgDtype)dtype);
}

/* Inputs over the same memory: which is the first of each group.  Plans are compiled for one such pattern, so this runs
 * on every call: a table of begins makes it one pass.  False: out of memory. */
static bool exec_overlaps(PyObject *const *in, uint32_t n, uint32_t *first) {
  enum { SMALL = 128 };
  struct {
    const char *at;
    uint32_t index;
  } few[SMALL], *table = few;
  size_t room = SMALL;
  while (room < 2 * (size_t)n) room *= 2;
  if (room > SMALL) table = mg_calloc(room, sizeof *table);
  else memset(few, 0, sizeof few);
  if (!table) return false;
  for (uint32_t i = 0; i < n; i++) {
    const char *p = exec_memory(in[i]);
    first[i] = i;
    if (!p) continue;
    size_t k = ((uintptr_t)p * 0x9e3779b97f4a7c15u) >> 32 & (room - 1);
    while (table[k].at && table[k].at != p) k = (k + 1) & (room - 1);
    if (table[k].at) first[i] = table[k].index;
    else table[k].at = p, table[k].index = i;
  }
  if (table != few) free(table);
  return true;
}

static bool exec_writes_inputs(const MgGraph *g) {
  for (NodeRef n = 1; n < g->nnode; n++)
    if (!g->node[n].dead && g->node[n].op->mutates) return true; /* may be an input, through any chain of views */
  return false;
}

static bool exec_inputs_share(const MgGraph *g) {
  for (uint32_t i = 0; i < g->ninput; i++)
    if (mg_val(g, g->input[i])->storage != g->input[i]) return true;
  return false;
}

/* The graph runs op by op because it cannot be compiled: an error in tests, else one warning per reason. */
static int exec_fall_back(const MgRec *r, MgRc rc) {
  static MgMap said;
  const char *why = *r->ctx->msg ? r->ctx->msg : mg_rc_text(rc);
  mg_stats.fallbacks++;
  mg_log(MG_LOG_fallback, "a graph runs op by op: %s", why);
  if (mg_strict()) {
    PyErr_Format(PyExc_RuntimeError, "magneto: cannot compile the graph: %s: %s (%s:%d)", mg_rc_text(rc), why,
                 r->ctx->file ? r->ctx->file : "?", r->ctx->line);
    return -1;
  }
  uint64_t key = mg_hash_bytes(why, strlen(why), 0) | 2;
  if (mg_map_get(&said, key) != MG_MAP_NONE) return 0;
  if (mg_map_put(&said, key, 1)) return PyErr_NoMemory(), -1;
  return PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "magneto: a graph runs op by op: %s", why);
}

/* A graph that writes inputs is compiled for the way these overlap.  1: noted, or nothing to note; 0: writes show through
 * another input, which is ATen's work; -1 with an exception. */
static int exec_note_overlap(MgExec *e, const MgGraph *g, PyObject *const *example) {
  if (!exec_writes_inputs(g)) return 1;
  if (exec_inputs_share(g)) return 0;
  if (!(e->overlap = mg_calloc(e->ninput + 1, sizeof *e->overlap)) || !exec_overlaps(example, e->ninput, e->overlap))
    return PyErr_NoMemory(), -1;
  return 1;
}

int mg_exec_compile(MgExec *e, MgRec *r, const MgOptions *opt, PyObject *const *example, MgRc *rc) {
  MgHostOps host;
  int noted = exec_note_overlap(e, r->g, example);
  *rc = MG_OK;
  if (noted <= 0) return noted;
  if (mg_nodecall_hostops(r->cap->objs, &host)) return -1;
  char label[MG_PLACE_LABEL];
  host.label = mg_place_label(r, "", label);
  *rc = mg_compile(r->g, opt, &host, &e->plan);
  mg_notices_tell();
  if (*rc == MG_OK) return 1;
  host.host.free(host.host.self);
  free(e->overlap);
  e->overlap = NULL;
  if (*rc == MG_PYERR && PyErr_Occurred()) return -1;
  PyErr_Clear();
  return 0;
}

int mg_exec_build_plan(MgExec *e, MgRec *r, const MgOptions *opt, PyObject *const *example) {
  MgRc rc;
  int made = mg_exec_compile(e, r, opt, example, &rc);
  if (made <= 0) return made || rc == MG_OK ? made : exec_fall_back(r, rc);
  MgPlanInfo info;
  mg_plan_info(e->plan, &info);
  if (!e->overlap && !info.nextern) { /* nothing can send a run back to ATen */
    mg_noderun_free(e->nodes);
    e->nodes = NULL;
  }
  return 1;
}

/* The same with backward.  The nodes also give the values that get a grad_fn, for a second differentiation. */
int mg_exec_build_grad(MgExec *e, MgRec *r, PyObject *const *example, MgAutograd *plans, const int64_t *sizes, uint32_t nsize) {
  const MgJointRec *j = r->joint;
  MgGraph *g = r->g;
  ValRef *out = mg_new(g->c, ValRef, j->nres + j->nthrough + 1);
  if (!out) return PyErr_NoMemory(), -1;
  int noted = exec_note_overlap(e, g, example);
  if (noted <= 0) return noted;
  memcpy(out, g->output, j->nres * sizeof *out);
  memcpy(out + j->nres, j->through, j->nthrough * sizeof *out);
  MgNodeRun *nodes = mg_noderun_build_part(r, NULL, NULL, g->input, g->ninput, out, j->nres + j->nthrough);
  if (!nodes) return -1;
  MgRc rc = mg_autograd_build_at(r, nodes, e->ninput, plans, sizes, nsize, &e->grad);
  if (rc == MG_OK) {
    e->grad->views = e->views;
    mg_stats.joint_graphs += !plans;
    return 1;
  }
  mg_noderun_free(nodes);
  free(e->overlap);
  e->overlap = NULL;
  if (rc == MG_PYERR && PyErr_Occurred()) return -1;
  PyErr_Clear();
  return exec_fall_back(r, rc);
}

/* ---- building and running ---- */

void mg_exec_log_graph(const MgGraph *g) {
  if (!mg_log_on(MG_LOG_graph)) return;
  MgStrbuf text = {0};
  mg_graph_print(g, &text);
  mg_log_text(MG_LOG_graph, "recorded graph", mg_sb_text(&text));
  mg_sb_free(&text);
}

static int exec_add_outputs(MgRec *r, const MgSnapshot *snap) {
  const ValRef *vals = NULL;
  int n = mg_snapshot_outputs(snap, &vals);
  for (int i = 0; i < n; i++)
    if (mg_graph_output(r->g, vals[i])) return PyErr_NoMemory(), -1;
  return 0;
}

/* Results that a recorded backward pass has used up need no autograd: their grad_fn can only raise. */
static int exec_find_spent(MgExec *e, const MgRec *r) {
  const MgGraph *g = r->g;
  if (!r->cap->spent) return 0;
  if (!(e->spent = mg_calloc(g->noutput + 1, sizeof *e->spent))) return PyErr_NoMemory(), -1;
  for (uint32_t i = 0; i < g->noutput; i++)
    e->spent[i] = mg_val(g, g->output[i])->requires_grad && mg_backward_is_spent(r->cap, g->output[i]);
  return 0;
}

/* Results that are lazily conjugated or negated; before passes, which know memory only. */
static int exec_find_bits(MgExec *e, const MgGraph *g) {
  uint8_t any = 0;
  for (uint32_t i = 0; i < g->noutput; i++) any |= mg_val(g, g->output[i])->bits;
  if (!any) return 0;
  if (!(e->bits = mg_calloc(g->noutput, 1))) return PyErr_NoMemory(), -1;
  for (uint32_t i = 0; i < g->noutput; i++) e->bits[i] = mg_val(g, g->output[i])->bits;
  return 0;
}

/* What claims are about is asked for before anything is written. */
static int exec_take_claims(MgExec *e, MgRec *r, const MgSnapshot *snap) {
  if (!(r->g->early = mg_new(r->ctx, bool, r->g->noutput + 1))) return PyErr_NoMemory(), -1;
  mg_snapshot_claimed(snap, r->g->early);
  e->claims = snap;
  return 0;
}

/* Runs that may be given up after all: only those of plans can. */
static bool exec_refuses_claims(const MgExec *e) {
  return e->claims && (e->stages || e->grad || e->callable || (e->sizes && mg_execsizes_has_graph(e->sizes) ? !mg_execsizes_has_plans(e->sizes) : !e->plan));
}

/* A result and its conjugate are one value of the graph: two tensors over that memory.  -1 with an exception. */
static int exec_own_tensor(const MgExec *e, PyObject **outs, uint32_t i) {
  bool shared = false;
  for (uint32_t k = 0; k < e->noutput; k++) shared |= k != i && outs[k] == outs[i] && e->bits[k] != e->bits[i];
  if (shared) Py_SETREF(outs[i], PyObject_CallMethod(outs[i], "view_as", "O", outs[i]));
  return outs[i] ? 0 : -1;
}

static int exec_set_bits(const MgExec *e, PyObject **outs) {
  for (uint32_t i = 0; i < e->noutput; i++)
    if (e->bits[i] && (exec_own_tensor(e, outs, i) || mg_lazybits_set(outs[i], e->bits[i]))) {
      for (uint32_t k = 0; k < e->noutput; k++) Py_CLEAR(outs[k]);
      return -1;
    }
  return 0;
}

static int exec_make_inference(const MgExec *e, PyObject **outs) {
  PyObject *off = mg_fmodes_off();
  int rc = off ? 0 : -1;
  for (uint32_t i = 0; i < e->noutput && !rc; i++)
    if (outs[i] && e->inference[i] && !(outs[i] = mg_inference_mode_remake(outs[i], e->inference[i] == 2))) rc = -1;
  if (off && mg_context_exit(off)) rc = -1;
  for (uint32_t k = 0; rc && k < e->noutput; k++) Py_CLEAR(outs[k]);
  return rc;
}

static int exec_finish_views(const MgExec *e, PyObject *const *in, const int64_t *versions, PyObject **outs) {
  int rc = mg_viewstate_after(e->views, in, versions, outs);
  for (uint32_t k = 0; rc && k < e->noutput; k++) Py_CLEAR(outs[k]);
  return rc;
}

static int exec_finish_spent(const MgExec *e, PyObject **outs) {
  for (uint32_t i = 0; i < e->noutput; i++) {
    if (!e->spent[i]) continue;
    if (mg_facts_requires_grad(outs[i])) { /* the graph of a run node by node, which nobody has freed */
      if (Py_REFCNT(outs[i]) > 1) continue;
      Py_SETREF(outs[i], PyObject_CallMethod(outs[i], "detach", NULL));
      if (!outs[i]) return -1;
    }
    if (!(outs[i] = mg_backward_spent_result(outs[i]))) return -1;
  }
  return 0;
}

/* The real tensors of the recording in graph input order; malloc'ed, borrowed items. */
static PyObject **exec_examples(const MgExec *e, const MgRec *r) {
  PyObject **real = mg_calloc(e->ninput + 1, sizeof *real);
  uint32_t k = 0;
  for (uint32_t i = 0; real && i < r->cap->ninput && k < e->ninput; i++)
    if (r->cap->input[i].val == r->g->input[k]) real[k++] = r->cap->input[i].real;
  return real;
}

MgExec *mg_exec_piece(MgCtx *ctx, MgExprs *x, MgGraph *g, PyObject *objs, const MgOptions *opt, PyObject *const *in) {
  MgCapture cap = {.objs = objs};
  MgRec r = {.ctx = ctx, .x = x, .g = g, .cap = &cap};
  MgExec *run = mg_calloc(1, sizeof *run);
  if (!run) return (MgExec *)PyErr_NoMemory();
  run->ninput = g->ninput;
  run->noutput = g->noutput;
  mg_exec_log_graph(g);
  if (!(run->nodes = mg_noderun_build(&r)) || mg_exec_build_plan(run, &r, opt, in) < 0) {
    mg_exec_free(run);
    return NULL;
  }
  return run;
}

static MgStages *exec_build_stages(MgRec *r, const MgConfig *cfg, bool autograd) {
  if (!r->cap->function) return mg_stages_build(r, cfg, !cfg->eager_backend && !autograd && mg_graph_on_cpu(r->g));
  r->data_failed = true; /* calls of autograd.Function hold what the recording made */
  PyErr_SetString(PyExc_RuntimeError, "magneto: an autograd.Function in a graph whose sizes depend on data");
  return NULL;
}

/* Numbers that only the program's own code computes with (a counter) are no business of the graph.  -1 with an exception. */
static int exec_mentions_symbols(const MgRec *r) {
  const MgGraph *g = r->g;
  bool *used = mg_calloc(g->x->nsym + 1, sizeof *used), any = false;
  MgRc rc = used ? mg_graph_symbols(g, r->joint ? r->joint->nnode : g->nnode, r->joint ? r->joint->nval : g->nval, NULL, used) : MG_NOMEM;
  for (uint32_t i = 0; rc == MG_OK && i < g->x->nsym; i++) any |= used[i];
  free(used);
  return rc == MG_OK ? any : (PyErr_NoMemory(), -1);
}

static MgExec *exec_build(MgRec *r, const MgConfig *cfg, const MgSnapshot *snap) {
  MgGraph *g = r->g;
  MgExec *e = mg_calloc(1, sizeof *e);
  PyObject **example = NULL;
  if (!e) return (MgExec *)PyErr_NoMemory();
  e->guards = r->guards;
  if (exec_add_outputs(r, snap) || exec_find_bits(e, g) || exec_find_spent(e, r) || mg_inference_mode_outputs(r, &e->inference) || (r->joint && mg_autograd_init())) goto fail;
  mg_exec_log_graph(g);
  e->noutput = g->noutput;
  if (r->claims_early && exec_take_claims(e, r, snap)) goto fail;
  e->no_autocast = mg_standin_autocast_on(r->cap);
  e->no_modes = r->cap->classes || r->cap->own_function || (r->cap->fmodes && PyList_GET_SIZE(r->cap->fmodes));
  bool sizes = mg_symsize_inputs(&r->cap->sizes), data = !cfg->backend && mg_symdata_used(r);
  int mention = sizes && !data ? exec_mentions_symbols(r) : 0;
  if (mention < 0) goto fail;
  bool whole = mention && !exec_is_idle(g) && !(cfg->backend && g->nnode > 1);
  if (sizes && r->cap->told_sizes) { /* whose classes were told numbers */
    mg_execsizes_refuse(r, "tensors that wrap others in a graph with symbolic sizes");
    goto fail;
  }
  if (sizes && !whole && mg_execsizes_take(e, r, cfg, false, false)) goto fail;
  if (!mention && !data) g->x->nsym = 0; /* nothing uses them */
  if (exec_is_idle(g) && !(cfg->backend && mg_fx_calls(r->cap))) return e;
  if (cfg->backend && (g->nnode > 1 || (r->cap->wrappers && mg_fx_calls(r->cap)))) {
    if (exec_build_backend(e, r, cfg)) goto fail;
    e->no_autocast &= mg_fx_is_aten(r->cap);
    return e;
  }
  if (exec_take_inputs(e, r, data) || mg_viewstate_build(r, &e->views)) goto fail;
  bool switched = mg_joint_switched(r); /* a run finds leaves in one state */
  for (NodeRef n = 1; switched && n < g->nnode; n++) g->node[n].grad_mode = false;
  if (!(example = exec_examples(e, r))) {
    PyErr_NoMemory();
    goto fail;
  }
  bool autograd = exec_needs_autograd(e, r);
  if (data) {
    if (!(e->stages = exec_build_stages(r, cfg, autograd))) goto fail;
    free(example);
    return e;
  }
  if (whole) {
    if (autograd && !r->joint && mg_exec_nodes_differentiate(r)) goto fail;
    if (mg_execsizes_take(e, r, cfg, true, !cfg->eager_backend && !autograd && g->nnode > 1 && mg_graph_on_cpu(g))) goto fail;
    free(example);
    return e;
  }
  if (!(e->nodes = mg_noderun_build(r))) goto fail;
  if (autograd && !r->joint && mg_exec_nodes_differentiate(r)) goto fail;
  if (r->joint) {
    if (mg_exec_build_grad(e, r, example, NULL, NULL, 0) < 0) goto fail;
    if (e->grad) {
      mg_noderun_free(e->nodes);
      e->nodes = NULL;
    } else if (mg_exec_nodes_differentiate(r)) goto fail;
  } else if (!cfg->eager_backend && !autograd && g->nnode > 1 && mg_graph_on_cpu(g)) { /* other devices: op by op */
    if (mg_exec_build_plan(e, r, &cfg->opt, example) < 0) goto fail;
  }
  free(example);
  return e;
fail:
  free(example);
  mg_exec_free(e);
  return NULL;
}

/* Backends and meta kernels call torch, which is no part of the program: its modes do not see that. */
MgExec *mg_exec_build(MgRec *r, const MgConfig *cfg, const MgSnapshot *snap) {
  bool modes = r->cap->classes || (r->cap->fmodes && PyList_GET_SIZE(r->cap->fmodes));
  PyObject *off = modes ? mg_fmodes_off() : NULL;
  if (modes && !off) return NULL;
  MgExec *e = exec_build(r, cfg, snap);
  if (e && exec_refuses_claims(e)) {
    mg_exec_free(e);
    e = NULL;
    mg_claim_refuse(r);
  }
  if (off && mg_context_exit(off)) {
    mg_exec_free(e);
    e = NULL;
  }
  return e;
}

bool mg_exec_same_overlap(const uint32_t *pattern, uint32_t n, PyObject *const *in) {
  if (!pattern) return true;
  uint32_t small[64], *now = n > 64 ? mg_malloc(n * sizeof *now) : small;
  if (!now) return false;
  bool same = exec_overlaps(in, n, now) && !memcmp(now, pattern, n * sizeof *now);
  if (now != small) free(now);
  return same;
}

/* A library call inside of the plan failed (an op returned other sizes than its meta kernel said).  The program must not
 * notice: a warning, and the nodes run from now on.  The exception is set and cleared here. */
int mg_exec_give_up_plan(MgExec *e) {
  PyObject *type, *value, *tb;
  PyErr_Fetch(&type, &value, &tb);
  PyObject *text = value ? PyObject_Str(value) : NULL;
  const char *why = text ? PyUnicode_AsUTF8(text) : "?";
  PyErr_Clear();
  e->plan_failed = true;
  mg_stats.fallbacks++;
  mg_log(MG_LOG_fallback, "a compiled graph failed and runs op by op: %s", why ? why : "?");
  int rc = PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "magneto: a compiled graph failed and runs op by op: %s", why ? why : "?");
  Py_XDECREF(text);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(tb);
  return rc;
}

static int exec_claims(void *arg, PyObject **outs) {
  const MgClaims *c = arg;
  return mg_snapshot_claims(c->snap, outs, c->vals);
}

int mg_exec_plan(MgPlan *p, PyObject *const *in, const int64_t *sizes, MgClaims *claims, PyObject **outs) {
  return claims ? mg_planrun_checked(p, in, sizes, outs, exec_claims, claims) : mg_planrun(p, in, sizes, outs);
}

static int exec_run_grad(MgExec *e, PyObject *const *in, PyObject **outs) {
  bool anomaly = mg_abi.anomaly_enabled && *mg_abi.anomaly_enabled; /* its messages name ATen's own nodes */
  if (!e->plan_failed && !anomaly && mg_exec_same_overlap(e->overlap, e->ninput, in)) {
    int rc = mg_autograd_run(e->grad, in, outs);
    if (rc != -2) return rc;
    if (mg_strict() || mg_exec_give_up_plan(e)) return -1;
  }
  return mg_autograd_run_nodes(e->grad, in, outs) ? MG_RUN_RAISED : 0;
}

bool mg_exec_keeps_random(const MgExec *e) { return e->stages && mg_stages_keeps_random(e->stages); }

int mg_exec_dispatch(MgExec *e, PyObject *const *in, MgExecAt *at, MgClaims *claims, PyObject **outs) {
  if (e->callable) return exec_run_backend(e, in, outs);
  if (at) return mg_execsizes_run(e, in, at, claims, outs);
  if (e->grad) return exec_run_grad(e, in, outs);
  if (e->plan && !e->plan_failed && mg_exec_same_overlap(e->overlap, e->ninput, in)) {
    int rc = mg_exec_plan(e->plan, in, NULL, claims, outs);
    if (rc != -2) return rc;
    if (mg_strict() || !e->nodes || mg_exec_give_up_plan(e)) return -1;
  }
  if (claims) return MG_CLAIM_FALSE; /* nodes write as they run */
  return mg_noderun_run(e->nodes, in, outs) ? MG_RUN_RAISED : 0;
}

static int exec_run_graph(MgExec *e, PyObject *const *vals, PyObject *const *in, MgExecAt *at, PyObject **outs) {
  MgClaims claims = {e->claims, (PyObject **)vals};
  return e->stages ? mg_stages_run(e->stages, e->guards, vals, in, outs) : mg_exec_dispatch(e, in, at, e->claims ? &claims : NULL, outs);
}

/* Autocast's casts are nodes of the graph. */
static int exec_without_autocast(MgExec *e, PyObject *const *vals, PyObject *const *in, MgExecAt *at, PyObject **outs) {
  PyObject *off;
  if (!e->no_autocast) return exec_run_graph(e, vals, in, at, outs);
  if (mg_planrun_autocast_off(&off)) return -1;
  int rc = exec_run_graph(e, vals, in, at, outs);
  return mg_planrun_autocast_back(off) ? -1 : rc;
}

/* The same without the modes of the program. */
static int exec_without_modes(MgExec *e, PyObject *const *vals, PyObject *const *in, MgExecAt *at, PyObject **outs) {
  PyObject *off = e->no_modes ? mg_fmodes_off() : NULL;
  if (e->no_modes && !off) return -1;
  int rc = exec_without_autocast(e, vals, in, at, outs);
  return off && mg_context_exit(off) ? -1 : rc;
}

/* The tensor of a number.  New. */
static PyObject *exec_number(const MgExec *e, SrcRef src, PyObject *const *vals, uint64_t turn) {
  PyObject *x = mg_source_value(e->guards, src, vals, turn), *t = x ? mg_symfloat_tensor(x) : NULL;
  Py_XDECREF(x);
  return t;
}

static int exec_run(MgExec *e, PyObject **vals, MgExecAt *at, PyObject **outs) {
  PyObject *small[64] = {NULL}, **in = small;
  if (!e->nodes && !e->plan && !e->grad && !e->callable && !e->stages && !(e->sizes && mg_execsizes_has_graph(e->sizes))) return 0;
  if (e->ninput > 64 && !(in = mg_malloc(e->ninput * sizeof *in))) return PyErr_NoMemory(), -1;
  int rc = 0;
  uint64_t turn = mg_source_turn();
  for (uint32_t i = 0; i < e->ninput; i++) {
    in[i] = e->input[i].pinned ? e->input[i].pinned : vals[e->input[i].src];
    if (e->input[i].number && !(in[i] = mg_source_value(e->guards, e->input[i].src, vals, turn))) rc = -1;
    if (e->input[i].scalar && !(in[i] = exec_number(e, e->input[i].src, vals, turn))) rc = -1;
    if (e->input[i].array && !(in[i] = mg_array_to_tensor(in[i]))) rc = -1;
  }
  uint32_t nversion = e->views && !rc ? mg_viewstate_versions(e->views, false) : 0;
  int64_t few[16], *versions = nversion <= 16 ? few : mg_malloc(nversion * sizeof *versions);
  if (!versions) rc = (PyErr_NoMemory(), -1);
  if (!rc && nversion) rc = mg_viewstate_before(e->views, in, versions);
  if (!rc) rc = exec_without_modes(e, vals, in, at, outs);
  if (!rc && e->views && exec_finish_views(e, in, versions, outs)) rc = -1;
  if (!rc && e->inference && exec_make_inference(e, outs)) rc = -1;
  if (!rc && e->bits && exec_set_bits(e, outs)) rc = -1;
  if (!rc && e->spent && exec_finish_spent(e, outs)) rc = -1;
  for (uint32_t i = 0; i < e->ninput; i++)
    if (e->input[i].scalar || e->input[i].array || e->input[i].number) Py_XDECREF(in[i]);
  if (in != small) free(in);
  if (versions != few) free(versions);
  return rc;
}

int mg_exec_run(MgExec *e, PyObject **vals, MgExecAt *at, PyObject **outs) {
  int rc = exec_run(e, vals, at, outs);
  if (at) mg_exec_leave(at);
  return rc;
}

void mg_exec_free(MgExec *e) {
  if (!e) return;
  for (uint32_t i = 0; i < e->ninput && e->input; i++) Py_XDECREF(e->input[i].pinned);
  mg_execsizes_free(e->sizes);
  mg_stages_free(e->stages);
  Py_XDECREF(e->callable);
  Py_XDECREF(e->compiled);
  mg_noderun_free(e->nodes);
  if (e->plan) mg_plan_free(e->plan);
  Py_XDECREF(e->grad);
  free(e->overlap);
  free(e->bits);
  mg_viewstate_free(e->views);
  free(e->inference);
  free(e->spent);
  free(e->input);
  free(e);
}
