/* See the header.  In: numbers of the graph.  Out: guards about sources that compute the same number
 * from the tensors at entry. */
#include "record/symbolic/state_numbers.h"
#include <math.h>
#include <string.h>
#include "entry/guard/automatic_dynamic.h"
#include "entry/guard/guard_add.h"
#include "entry/guard/source.h"
#include "entry/guard/tensor_contents.h"
#include "entry/launch/trace.h"
#include "host/python/pyobject.h"
#include "ir/graph/graph.h"
#include "record/core/capture.h"
#include "record/core/ops.h"
#include "record/core/recording.h"
#include "record/symbolic/size_promises.h"
#include "tuning.h"

/* A number at entry: how a call computes it and what it is now (strong).  src 0: a
 * constant.  hint NULL: not known. */
typedef struct State {
  SrcRef src;
  PyObject *hint;
} State;
typedef struct Walk {
  MgCapture *cap;
  int budget;
  bool rough;    /* the last bit may be another than a kernel gives */
  bool equal;    /* which would matter */
  bool contents; /* numbers of small tensors of integers may be guarded */
} Walk;

static State state_val(Walk *w, ValRef v, NodeRef before);

static State state_constant(PyObject *o) { return (State){0, o}; } /* steals o */

static void state_drop(State s) { Py_XDECREF(s.hint); }

/* Takes the operands.  b: {0, NULL} for one operand. */
static State state_calc(Walk *w, int calc, State a, State b) {
  MgGuards *g = w->cap->rec->guards;
  bool unary = mg_calc_is_unary(calc);
  w->equal |= calc == CALC_eq || calc == CALC_ne;
  State r = {0, a.hint && (unary || b.hint) ? mg_source_compute(calc, a.hint, b.hint) : NULL};
  if (!r.hint || PyComplex_Check(r.hint)) {
    Py_CLEAR(r.hint);
    PyErr_Clear(); /* an exception belongs to these very numbers */
  } else if (a.src || b.src)
    r.src = mg_source_calc(g, calc, a.src, b.src, unary || (a.src && b.src) ? NULL : a.src ? b.hint : a.hint);
  state_drop(a);
  state_drop(b);
  return r;
}

/* The number as an element of a tensor of this dtype. */
static State state_cast(Walk *w, State s, int dtype) {
  State none = {0, NULL};
  if (!s.hint) return s;
  bool real = PyFloat_CheckExact(s.hint), truth = PyBool_Check(s.hint);
  int over = 0;
  switch (dtype) {
  case DT_f32: return state_calc(w, CALC_float32, s, none);
  case DT_f64: return real ? s : state_calc(w, CALC_float, s, none);
  case DT_bool:
    if (truth) return s;
    break;
  case DT_i64:
    if (truth) return state_calc(w, CALC_int, s, none);
    if (real && fabs(PyFloat_AS_DOUBLE(s.hint)) < 0x1p63) return state_calc(w, CALC_int, s, none);
    if (!real) PyLong_AsLongLongAndOverflow(s.hint, &over);
    if (!real && !over) return s;
    break;
  default: break;
  }
  state_drop(s);
  return none;
}

/* ---- nodes of the graph ---- */

/* Element at of argument i of a node, one call of a list op counting as many; NULL: none. */
static const MgArg *state_arg(const MgNode *n, int i, uint32_t at) {
  if (i >= n->narg) return NULL;
  const MgArg *a = &n->arg[i];
  return a->tag != MA_list ? a : at < a->n ? &a->u.item[at] : NULL;
}

/* A size.  The answers would bound one that is marked as dynamic. */
static State state_size(Walk *w, SymRef e) {
  MgCapture *cap = w->cap;
  const MgExpr n = *mg_expr(cap->rec->x, e);
  int64_t i;
  if (mg_ex_const_int(cap->rec->x, e, &i)) return state_constant(PyLong_FromLongLong(i));
  if (cap->rec->x->trait[e] & EX_DATA) return state_constant(NULL);
  if (n.op == OP_sym && n.u.i < cap->sizes.nsrc && cap->sizes.src[n.u.i] && !mg_promise_any(cap))
    return (State){cap->sizes.src[n.u.i], PyLong_FromLongLong(mg_sym_hint(cap->rec->x, e))};
  int calc = n.op == OP_add        ? CALC_add
             : n.op == OP_sub      ? CALC_sub
             : n.op == OP_mul      ? CALC_mul
             : n.op == OP_floordiv ? CALC_floordiv
             : n.op == OP_mod      ? CALC_mod
                                   : -1;
  if (calc < 0 || w->budget-- <= 0) return state_constant(NULL);
  State p = state_size(w, n.src[0]);
  return state_calc(w, calc, p, p.hint ? state_size(w, n.src[1]) : state_constant(NULL));
}

static State state_operand(Walk *w, const MgArg *a, NodeRef before) {
  if (!a) return state_constant(NULL);
  switch (a->tag) {
  case MA_val: return state_val(w, a->u.val, before);
  case MA_float: return state_constant(PyFloat_FromDouble(a->u.f));
  case MA_bool: return state_constant(PyBool_FromLong(a->u.b));
  case MA_int: return state_size(w, a->u.sym);
  default: return state_constant(NULL);
  }
}

typedef enum StateForm {
  FORM_binary,
  FORM_reversed,
  FORM_unary,
  FORM_whole, /* the function of math with that name */
  FORM_first,
  FORM_second,
  FORM_zero,
  FORM_one
} StateForm;
static const struct {
  const char *name;
  uint8_t form, calc;
} state_ops[] = {{"add", FORM_binary, CALC_add},
                 {"sub", FORM_binary, CALC_sub},
                 {"mul", FORM_binary, CALC_mul},
                 {"div", FORM_binary, CALC_truediv},
                 {"pow", FORM_binary, CALC_pow},
                 {"rsub", FORM_reversed, CALC_sub},
                 {"neg", FORM_unary, CALC_neg},
                 {"abs", FORM_unary, CALC_abs},
                 {"ceil", FORM_whole, CALC_call},
                 {"floor", FORM_whole, CALC_call},
                 {"trunc", FORM_whole, CALC_call},
                 {"lt", FORM_binary, CALC_lt},
                 {"le", FORM_binary, CALC_le},
                 {"gt", FORM_binary, CALC_gt},
                 {"ge", FORM_binary, CALC_ge},
                 {"eq", FORM_binary, CALC_eq},
                 {"ne", FORM_binary, CALC_ne},
                 {"clone", FORM_first, 0},
                 {"detach", FORM_first, 0},
                 {"alias", FORM_first, 0},
                 {"lift_fresh", FORM_first, 0},
                 {"_to_copy", FORM_first, 0},
                 {"copy", FORM_second, 0},
                 {"fill", FORM_second, 0},
                 {"full", FORM_second, 0},
                 {"full_like", FORM_second, 0},
                 {"scalar_tensor", FORM_first, 0},
                 {"zero", FORM_zero, 0},
                 {"zeros", FORM_zero, 0},
                 {"zeros_like", FORM_zero, 0},
                 {"ones", FORM_one, 0},
                 {"ones_like", FORM_one, 0}};

/* The row of an op: "aten::_foreach_add_.Scalar" is add; -1: none. */
static int state_row(const MgOp *op) {
  if (strncmp(op->name, "aten::", 6) || strstr(op->overload, "out") || strstr(op->overload, "mode"))
    return -1;
  const char *name = op->name + 6;
  if (!strncmp(name, "_foreach_", 9)) name += 9;
  size_t n = strlen(name);
  if (op->mutates) n -= n && name[n - 1] == '_';
  for (size_t i = 0; i < sizeof state_ops / sizeof *state_ops; i++)
    if (strlen(state_ops[i].name) == n && !strncmp(state_ops[i].name, name, n)) return (int)i;
  return -1;
}

/* Is the factor of the second operand 1? */
static bool state_plain(Walk *w, const MgNode *n) {
  for (int i = 2; i < n->narg; i++) {
    if (strcmp(n->op->param[i].name, "alpha")) continue;
    State s = state_operand(w, &n->arg[i], 0);
    bool one = s.hint && !s.src && PyFloat_AsDouble(s.hint) == 1;
    mg_clear_as_no();
    state_drop(s);
    return one;
  }
  return true;
}

/* The dtype that the operands of a comparison are compared in; -1: they differ. */
static int state_compared(const MgGraph *g, const MgNode *n, uint32_t at) {
  int dtype = -1;
  for (int i = 0; i < 2; i++) {
    const MgArg *a = state_arg(n, i, at);
    if (!a || a->tag != MA_val || !a->u.val) continue;
    if (dtype >= 0 && g->val[a->u.val].dtype != dtype) return -1;
    dtype = g->val[a->u.val].dtype;
  }
  return dtype;
}

static PyObject *state_whole(const char *name) {
  PyObject *m = mg_import("math"), *f = m ? PyObject_GetAttrString(m, name) : NULL;
  Py_XDECREF(m);
  mg_clear_as_no();
  return f;
}

/* What node k gives for its element number at: the values that it reads are those before it ran. */
static State state_node(Walk *w, NodeRef k, uint32_t at, int dtype) {
  const MgGraph *g = w->cap->rec->g;
  const MgNode *n = &g->node[k];
  State none = {0, NULL};
  int row = state_row(n->op);
  if (row < 0 || !state_plain(w, n)) return none;
  StateForm form = state_ops[row].form;
  int calc = state_ops[row].calc;
  bool asks = form == FORM_binary && calc <= CALC_ge;
  w->rough |= form == FORM_binary && calc == CALC_pow;
  int in = asks ? state_compared(g, n, at) : dtype;
  if (in < 0 || (dtype == DT_bool) != asks)
    return form == FORM_first && dtype == DT_bool ? state_operand(w, state_arg(n, 0, at), k) : none;
  if (form == FORM_zero || form == FORM_one)
    return state_cast(w, state_constant(PyLong_FromLong(form == FORM_one)), dtype);
  State a = form == FORM_second ? none : state_cast(w, state_operand(w, state_arg(n, 0, at), k), in),
        b = none;
  if (form == FORM_first) return a;
  if (form == FORM_whole) b = state_constant(state_whole(state_ops[row].name));
  if (form == FORM_whole) return state_cast(w, state_calc(w, calc, a, b), dtype);
  if (form == FORM_unary) return state_cast(w, state_calc(w, calc, a, none), dtype);
  if (form == FORM_second || a.hint) b = state_cast(w, state_operand(w, state_arg(n, 1, at), k), in);
  if (form == FORM_second) return b;
  State r = form == FORM_reversed ? state_calc(w, calc, b, a) : state_calc(w, calc, a, b);
  return asks ? r : state_cast(w, r, dtype);
}

/* The last node between two that writes to a storage, and which of its tensors that is; 0: none. */
static NodeRef state_writer(const MgGraph *g, uint32_t storage, NodeRef after, NodeRef before,
                            ValRef *written, uint32_t *at) {
  for (NodeRef k = before; k-- > after + 1;) {
    const MgNode *n = &g->node[k];
    for (MgWritten w = {0}; !n->dead && mg_node_written(n, &w);) {
      if (g->val[w.v].storage != storage) continue;
      *written = w.param ? 0 : w.v;
      *at = w.item;
      return k;
    }
  }
  return 0;
}

static State state_input(Walk *w, ValRef v) {
  MgGuards *g = w->cap->rec->guards;
  State none = {0, NULL};
  for (uint32_t i = 0; i < w->cap->ninput; i++) {
    const MgCapInput *in = &w->cap->input[i];
    if (in->val != v) continue;
    PyObject *now = in->array ? NULL : mg_source_number(in->real);
    if (now && in->pinned) return state_constant(now);
    if (now && in->scalar) return (State){in->src, now};
    SrcRef src =
        now && in->src && g->src[in->src].kind != SRC_slot ? mg_source(g, SRC_number, in->src, 0, NULL) : 0;
    if (src) return (State){src, now};
    Py_XDECREF(now);
  }
  return none;
}

/* The number in a 0-dim tensor as it is when `before` runs. */
static State state_val(Walk *w, ValRef v, NodeRef before) {
  const MgGraph *g = w->cap->rec->g;
  State none = {0, NULL};
  const MgVal val = g->val[v];
  if (!v || val.ndim || val.device != DEV_cpu || val.bits || w->budget-- <= 0) return none;
  ValRef written = 0;
  uint32_t at = val.out;
  NodeRef k = state_writer(g, val.storage, val.def, before, &written, &at);
  if (k && (!written || g->val[written].ndim || g->val[written].offset != val.offset ||
            g->val[written].dtype != val.dtype))
    return none;
  if (!k && !val.def) return state_input(w, v);
  return state_node(w, k ? k : val.def, at, val.dtype);
}

/* ---- numbers of the recording ---- */

/* An element of small tensors of integers whose numbers are guarded. */
static State state_content(const Walk *w, const MgSymNode *n) {
  PyObject *real = n->kind == 'f' ? NULL : mg_ops.constval_contents(w->cap, n->row),
           *all = real ? mg_contents_of(real) : NULL;
  bool has = all && n->at < PyTuple_GET_SIZE(all);
  PyObject *x = has ? PyTuple_GET_ITEM(all, n->at) : NULL;
  State s = state_constant(x && n->kind == 'b' ? PyBool_FromLong(PyObject_IsTrue(x)) : Py_XNewRef(x));
  Py_XDECREF(real);
  Py_XDECREF(all);
  mg_clear_as_no();
  return s;
}

static State state_number(Walk *w, MgSymNode *n) {
  State none = {0, NULL};
  if (n->src || n->hint) return (State){n->src, Py_XNewRef(n->hint)};
  if (n->row) {
    State s = n->at ? none : state_val(w, n->row, w->cap->rec->g->nnode);
    return s.hint || !w->contents ? s : state_content(w, n);
  }
  if (w->budget-- <= 0) return none;
  State a = n->left ? state_number(w, n->left) : state_constant(Py_XNewRef(n->constant)), b = none;
  if (!mg_calc_is_unary(n->calc))
    b = n->right ? state_number(w, n->right) : state_constant(Py_XNewRef(n->constant));
  return state_calc(w, n->calc, a, b);
}

static bool state_tried(const MgCapture *cap) {
  return mg_state_knows(cap->rec->dyn, MG_TUNE_STATE_CHANGES - 1);
}

/* An integer itself is guarded until it has changed some times: what asks for it would end the graph. */
static bool state_may_ask(const MgSymNode *n) {
  return n->kind == 'b' ? !state_tried(n->cap)
                        : n->kind == 'i' && !mg_state_knows(n->cap->rec->dyn, MG_TUNE_STATE_INTEGERS - 1);
}

static PyObject *state_answer(MgSymNode *n, bool contents) {
  Walk w = {.cap = n->cap, .budget = MG_TUNE_STATE_NODES, .contents = contents};
  State s = state_number(&w, n);
  bool truth = s.hint && PyBool_Check(s.hint), whole = s.hint && PyLong_CheckExact(s.hint);
  bool known = n->kind == 'b' ? truth && !(w.rough && w.equal) : whole && !w.rough;
  PyObject *r = known ? Py_NewRef(s.hint) : NULL;
  if (r && s.src) mg_guard_add(n->cap->rec->guards, GK_calc, s.src, r, 0);
  state_drop(s);
  return r;
}

PyObject *mg_symstate_answer(MgSymNode *n) {
  if (!state_may_ask(n)) return NULL;
  PyObject *r = state_answer(n, false);
  return r || PyErr_Occurred() ? r : state_answer(n, true);
}

char mg_symstate_kind(MgCapture *cap, int calc, MgSymNode *x, PyObject *a, MgSymNode *y, PyObject *b) {
  Walk w = {.cap = cap, .budget = MG_TUNE_STATE_NODES};
  if (state_tried(cap)) return 0;
  State p = x ? state_number(&w, x) : state_constant(Py_XNewRef(a)),
        q = y ? state_number(&w, y) : state_constant(Py_XNewRef(b));
  State r = state_calc(&w, calc, p, q);
  char kind = !r.hint ? 0 : PyFloat_CheckExact(r.hint) ? 'f' : PyLong_CheckExact(r.hint) ? 'i' : 0;
  if (kind && r.src) mg_guard_add(cap->rec->guards, GK_calc, r.src, (PyObject *)Py_TYPE(r.hint), 0);
  state_drop(r);
  return kind;
}
