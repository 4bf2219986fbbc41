/* See the header.  In: an op, and the frames that are being recorded.  Out: whether what its kernel raises is the program's. */
#include "front/raises.h"
#include "front/cache.h"
#include "front/claim.h"
#include "front/pyframe.h"
#include "front/skip.h"
#include <stdlib.h>
#include <string.h>

/* ---- ops ---- */

static bool raises_named(const MgOp *op, const char *const *name) {
  const char *full = op->full + strlen("aten::");
  if (strncmp(op->full, "aten::", strlen("aten::"))) return false;
  for (; *name; name++) {
    size_t n = strlen(*name);
    if (!strncmp(full, *name, n) && (full[n] == '.' || full[n] == 0 || (full[n] == '_' && (full[n + 1] == '.' || full[n + 1] == 0)))) return true;
  }
  return false;
}

/* Indices out of range, matrices without an inverse, probabilities that are none. */
static bool raises_for_values(const MgOp *op) {
  static const char *const names[] = {"index", "index_put", "_index_put_impl", "_unsafe_index", "index_select", "index_add", "index_copy", "index_fill",
                                      "index_reduce", "gather", "scatter", "scatter_add", "scatter_reduce", "take", "put", "masked_scatter",
                                      "embedding", "_embedding_bag", "_embedding_bag_forward_only", "nll_loss_forward", "nll_loss2d_forward",
                                      "multi_margin_loss", "binary_cross_entropy", "_ctc_loss", "_linalg_check_errors", "_assert_async", "bincount", "histc", "multinomial",
                                      "poisson", "binomial", "bernoulli", "repeat_interleave", "normal.Tensor_Tensor", "normal.float_Tensor", NULL};
  return raises_named(op, names);
}

/* Integers divided by zero. */
static bool raises_by_zero(const MgRec *r, const MgOp *op, const MgArg *arg) {
  static const char *const names[] = {"div", "floor_divide", "remainder", "fmod", NULL};
  if (op->nparam < 2 || !raises_named(op, names)) return false;
  for (int i = 0; i < 2; i++)
    if (arg[i].tag == MA_val && (mg_dtype_is_float(mg_val(r->g, arg[i].u.val)->dtype) || mg_dtype_is_complex(mg_val(r->g, arg[i].u.val)->dtype))) return false;
  return arg[1].tag == MA_val;
}

/* ---- frames ---- */

static bool raises_caught(const MgCode *code, int unit, PyObject *const *base);

/* Does a function with such code only ever return None? */
static bool raises_returns_none(const MgCode *code, PyCodeObject *co) {
  for (int i = 0, last = 0; i < code->n; last = i, i = code->instr[i].next) {
    const MgInstr *in = &code->instr[i], *what = in->op == BC_RETURN_VALUE ? &code->instr[last] : in;
    if (in->op != BC_RETURN_VALUE && in->op != BC_RETURN_CONST) continue;
    bool constant = what->op == BC_LOAD_CONST || what->op == BC_RETURN_CONST;
    if (!constant || PyTuple_GET_ITEM(co->co_consts, what->arg) != Py_None) return false;
  }
  return true;
}

/* The generator that a context manager made by contextlib.contextmanager waits in; borrowed; NULL: it is none. */
static PyObject *raises_generator(PyObject *manager, PyCodeObject *exit) {
  PyObject **d = strstr(PyUnicode_AsUTF8(exit->co_qualname), "_GeneratorContextManager.") ? _PyObject_GetDictPtr(manager) : NULL;
  PyObject *gen = d && *d ? PyDict_GetItemString(*d, "gen") : NULL;
  return gen && PyGen_CheckExact(gen) ? gen : NULL;
}

static const MgCode *raises_code(PyCodeObject *co) {
  MgCodeInfo *info = mg_code_info(co);
  const MgCode *code = info ? mg_code_decoded(info, co) : NULL;
  if (!code) PyErr_Clear();
  return code;
}

/* May this __exit__ swallow an exception?  torch's own give theirs on. */
static bool raises_exit_swallows(PyObject *exit) {
  PyObject *f = PyMethod_Check(exit) ? PyMethod_GET_FUNCTION(exit) : exit, *gen;
  PyCodeObject *co = PyFunction_Check(f) ? (PyCodeObject *)PyFunction_GET_CODE(f) : NULL;
  if (!co || mg_skip_is_torch(co)) return false;
  if (PyMethod_Check(exit) && (gen = raises_generator(PyMethod_GET_SELF(exit), co))) {
    MgFrame *frame = mg_pyframe_suspended(gen);
    const MgCode *code = frame ? raises_code(mg_pyframe_code(frame)) : NULL;
    return code && raises_caught(code, mg_pyframe_lasti(frame), NULL);
  }
  const MgCode *code = raises_code(co);
  return code && !raises_returns_none(code, co);
}

/* Does a handler of this code catch what is raised at a unit?  base: of the value stack there; NULL: contexts are not looked into. */
static bool raises_caught(const MgCode *code, int unit, PyObject *const *base) {
  for (const MgHandler *h; (h = mg_decode_handler(code, unit)); unit = h->target) {
    if (code->instr[h->target].op != BC_PUSH_EXC_INFO) continue; /* it only tidies up */
    int first = code->instr[h->target].next;
    if (code->instr[first].op == BC_POP_TOP) return true; /* `except:` */
    if (code->instr[first].op == BC_WITH_EXCEPT_START) {
      PyObject *exit = base && h->depth > 0 ? base[h->depth - 1] : NULL;
      if (exit && raises_exit_swallows(exit)) return true;
      continue;
    }
    const MgHandler *own = mg_decode_handler(code, h->target);
    for (int i = first; own && i < own->end; i = code->instr[i].next)
      if (code->instr[i].op == BC_CHECK_EXC_MATCH || code->instr[i].op == BC_CHECK_EG_MATCH) return true;
  }
  return false;
}

bool mg_raises_caught(const MgRec *r) {
  bool caught = false;
  if (r->in_joint || !r->guards) return false;
  for (const MgLoop *l = r->top; l && !caught; l = l->up) caught = l->code->nhandler && l->in && raises_caught(l->code, l->in->at, l->base);
  return caught;
}

bool mg_raises_by_values(const MgRec *r, const MgOp *op, const MgArg *arg) { return raises_for_values(op) || raises_by_zero(r, op, arg); }

/* ---- the graph ---- */

struct raises_use { bool *used; };
static void raises_use(ValRef *v, void *arg) { ((struct raises_use *)arg)->used[*v] = true; }

/* Is some such op's result not asked for? */
static bool raises_unused(MgRec *r, const MgSnapshot *snap) {
  MgGraph *g = r->g;
  bool *used = mg_calloc(g->nval + 1, sizeof *used), any = false;
  if (!used) return true;
  const ValRef *out;
  int nout = mg_snapshot_outputs(snap, &out);
  for (int i = 0; i < nout; i++) used[out[i]] = true;
  for (NodeRef n = g->nnode; n-- > 1 && !any;) {
    MgNode *node = mg_node(g, n);
    bool asked = !node->nout || (node->op->effect && !node->op->mutates);
    for (int i = 0; i < node->nout; i++) asked |= node->out[i] && used[node->out[i]];
    any = node->observed && !asked;
    if (asked) mg_node_each_val(node, raises_use, &(struct raises_use){used});
  }
  free(used);
  return any;
}

bool mg_raises_missed(MgRec *r, const MgSnapshot *snap) {
  if (!r->raises) return false;
  return r->want_fx || !mg_claim_repeats(r) || raises_unused(r, snap);
}
