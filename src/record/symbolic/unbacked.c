/* See the header.  In: numbers out of tensors, ops whose results have as many rows as their data
 * say.  Out: symbols, results. */
#include "record/symbolic/unbacked.h"
#include "ir/infer/infer.h"
#include <stdlib.h>
#include <string.h>
#include "entry/launch/config.h"
#include "entry/launch/trace.h"
#include "host/python/dynamo_config.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "record/symbolic/number.h"
#include "record/symbolic/number_ops.h"
#include "record/symbolic/sizes.h"

bool mg_symdata_wanted(const MgRec *r, bool shape) {
  if (r->cfg && r->cfg->fullgraph) return true;
  PyObject *on = mg_rec_dynamo_config(shape ? "capture_dynamic_output_shape_ops" : "capture_scalar_outputs");
  Py_XDECREF(on);
  return on == Py_True;
}

/* torch.compile has such numbers and sizes in a graph when they are wanted there; the back end of this
 * package always, as long as nobody wants gradients of the results, which are computed from whole graphs of
 * fixed sizes: then the segment is recorded again. */
bool mg_symdata_may(MgCapture *cap, bool shape) {
  MgRec *r = cap->rec;
  if (mg_retry_denied(r, RETRY_data) || !r->guards || !r->cfg || r->in_joint || cap->in_part || cap->wrappers)
    return false;
  if (r->want_fx) return mg_symdata_wanted(r, shape);
  if (!mg_retry_denied(r, RETRY_grad) || !mg_abi.aoti_torch_grad_mode_is_enabled()) return true;
  for (uint32_t i = 0; i < cap->ninput; i++)
    if (mg_val(r->g, cap->input[i].val)->requires_grad) return false;
  return true;
}

bool mg_symdata_picks(MgCapture *cap) {
  MgRec *r = cap->rec;
  if (mg_retry_denied(r, RETRY_picked) || !r->guards || !r->cfg || r->want_fx || r->in_joint ||
      cap->in_part || cap->wrappers)
    return false;
  return !mg_symdata_may(cap, true);
}

bool mg_symdata_in(const MgCapture *cap, SymRef e) { return e && cap->rec->x->trait[e] & EX_DATA; }

/* ---- numbers and sizes ---- */

static SymRef data_operand(MgCapture *cap, MgSymNode *n, PyObject *constant) {
  if (n) return n->cap == cap ? mg_symsize_of(n) : 0;
  int over = 0;
  int64_t v = PyLong_Check(constant) ? PyLong_AsLongLongAndOverflow(constant, &over) : (over = 1, 0);
  return over || v > MG_SIZE_MOST || v < -MG_SIZE_MOST ? 0 : mg_sym(cap->rec->x, v);
}

static SymRef data_compute(MgCapture *cap, const MgSymNode *n) {
  MgExprs *x = cap->rec->x;
  SymRef a = data_operand(cap, n->left, n->constant),
         b = mg_calc_is_unary(n->calc) ? a : data_operand(cap, n->right, n->constant);
  if (!a || !b) return 0;
  switch (n->calc) {
  case CALC_add: return mg_sym_add(x, a, b);
  case CALC_sub: return mg_sym_sub(x, a, b);
  case CALC_mul: return mg_sym_mul(x, a, b);
  case CALC_floordiv: return mg_sym_floordiv(x, a, b);
  case CALC_mod: return mg_sym_mod(x, a, b);
  case CALC_min: return mg_sym_min(x, a, b);
  case CALC_max: return mg_sym_max(x, a, b);
  case CALC_neg: return mg_sym_sub(x, mg_sym(x, 0), a);
  default: return 0;
  }
}

/* ---- the same number, asked for twice ---- */

static bool data_same_arg(const MgArg *a, const MgArg *b) {
  if (a->tag != b->tag) return false;
  switch ((MgArgTag)a->tag) {
  case MA_none: return true;
  case MA_int: return a->u.sym == b->u.sym;
  case MA_bool: return a->u.b == b->u.b;
  case MA_dtype:
  case MA_memory_format: return a->u.code == b->u.code;
  default: return false;
  }
}

static bool data_written_from(const MgGraph *g, NodeRef n, uint32_t storage) {
  for (; n < g->nnode; n++)
    if (mg_node_writes(g, mg_node(g, n), storage)) return true;
  return false;
}

/* Are two values one, an element of a tensor that nothing was written to since, maybe converted? */
static bool data_same_element(const MgGraph *g, ValRef a, ValRef b) {
  for (NodeRef first = 0;;) {
    if (a == b) return !first || !data_written_from(g, first, mg_val(g, a)->storage);
    const MgVal *x = mg_val(g, a), *y = mg_val(g, b);
    if (!x->def || !y->def) return false;
    const MgNode *m = mg_node(g, x->def), *n = mg_node(g, y->def);
    if (m->op != n->op || (m->op->code != TOP_select_int && m->op->code != TOP__to_copy) ||
        m->narg != n->narg)
      return false;
    for (int i = 1; i < m->narg; i++)
      if (!data_same_arg(&m->arg[i], &n->arg[i])) return false;
    first = x->def;
    a = mg_node_first(m);
    b = mg_node_first(n);
  }
}

/* The symbol that stands for such a number already; 0: there is none. */
static SymRef data_known_item(const MgCapture *cap, const MgSizeOf *of) {
  const MgSymSizes *s = &cap->sizes;
  for (uint32_t i = 0; i < s->nsrc; i++) {
    const MgSizeOf *have = &s->of[i];
    if (have->val && have->dim == MG_SIZE_ITEM && have->at == of->at &&
        data_same_element(cap->rec->g, have->val, of->val))
      return s->ref[i];
  }
  return 0;
}

SymRef mg_symdata_number(MgSymNode *n) {
  MgCapture *cap = n->cap;
  if (n->kind != 'i' || !mg_symdata_may(cap, false)) return 0;
  if (!n->row && (n->size = data_compute(cap, n))) return n->size;
  if (!n->row && n->calc != CALC_abs && n->calc != CALC_int) return 0;
  ValRef val = n->row ? n->row : mg_symnode_val(n);
  if (!val) return 0;
  MgSizeOf of = {.val = val, .dim = MG_SIZE_ITEM, .at = n->row ? n->at : 0, .node = n};
  if ((n->size = data_known_item(cap, &of))) return n->size;
  return n->size = mg_symsize_symbol(cap, 0, &of, DATA_HINT,
                                     n->calc == CALC_abs && !n->row ? 0 : -MG_SIZE_MOST, MG_SIZE_MOST);
}

/* The number of a symbol. */
static MgSymNode *data_leaf(MgCapture *cap, SymRef e) {
  MgSizeOf *of = &cap->sizes.of[mg_expr(cap->rec->x, e)->u.i];
  if (of->node) return of->node;
  MgSymNode *n = mg_symnode_value(cap, 'i');
  if (!n) return NULL;
  n->row = of->val;
  n->at = of->at;
  n->dim = of->dim + 1;
  n->size = e;
  of->node = n;
  Py_DECREF(n); /* cap->syms holds it */
  return n;
}

static int data_operator(int op) {
  switch (op) {
  case OP_add: return CALC_add;
  case OP_sub: return CALC_sub;
  case OP_mul: return CALC_mul;
  case OP_floordiv: return CALC_floordiv;
  case OP_mod: return CALC_mod;
  case OP_max: return CALC_max;
  case OP_min: return CALC_min;
  case OP_neg: return CALC_neg;
  default: return -1;
  }
}

static MgSymNode *data_inner(MgCapture *cap, SymRef e) {
  const MgExpr x = *mg_expr(cap->rec->x, e);
  MgSymNode *side[2] = {NULL, NULL}, *n;
  PyObject *constant = NULL;
  int calc = data_operator(x.op);
  if (calc < 0) return (MgSymNode *)mg_rec_break(BK_data_dependent, "a size that Python does not compute");
  for (int i = 0; i < x.nsrc; i++) {
    int64_t v;
    if (mg_ex_const_int(cap->rec->x, x.src[i], &v)) constant = PyLong_FromLongLong(v);
    else if (!(side[i] = mg_symdata_node(cap, x.src[i]))) break;
  }
  if ((!side[0] && !side[1]) || !(n = mg_symnode_value(cap, 'i'))) {
    Py_XDECREF(constant);
    return NULL;
  }
  n->calc = (uint8_t)calc;
  n->left = side[0];
  n->right = side[1];
  n->constant = constant;
  n->size = e;
  Py_DECREF(n); /* cap->syms holds it */
  return n;
}

MgSymNode *mg_symdata_node(MgCapture *cap, SymRef e) {
  int64_t v;
  bool data = mg_symdata_in(cap, e);
  if (data && mg_expr(cap->rec->x, e)->op == OP_sym) return data_leaf(cap, e);
  uint32_t known = mg_map_get(&cap->sizes.node, e + 2);
  if (known != MG_MAP_NONE) return (MgSymNode *)PyList_GET_ITEM(cap->syms, known);
  MgSymNode *n = NULL;
  if (data) n = data_inner(cap, e);
  else if (mg_ex_const_int(cap->rec->x, e, &v)) {
    n = mg_symnode_new(cap, 0, PyLong_FromLongLong(v));
    Py_XDECREF(n);
  } else {
    SrcRef src = mg_symsize_src(cap, e);
    PyObject *hint = src ? PyLong_FromLongLong(mg_sym_hint(cap->rec->x, e)) : NULL;
    n = hint ? mg_symnode_new(cap, src, hint) : NULL;
    Py_XDECREF(n);
  }
  if (n && mg_map_put(&cap->sizes.node, e + 2, (uint32_t)PyList_GET_SIZE(cap->syms) - 1))
    return (MgSymNode *)PyErr_NoMemory();
  return n;
}

PyObject *mg_symdata_object(MgCapture *cap, SymRef e) {
  MgSymNode *n = mg_symdata_node(cap, e);
  return n ? mg_symfloat_of((MgSymNode *)Py_NewRef(n)) : PyErr_Occurred() ? NULL : PyErr_NoMemory();
}

/* ---- questions ---- */

static int data_negated(int op) {
  return op == CALC_lt   ? CALC_ge
         : op == CALC_ge ? CALC_lt
         : op == CALC_le ? CALC_gt
         : op == CALC_gt ? CALC_le
         : op == CALC_eq ? CALC_ne
                         : CALC_eq;
}
static int data_turned(int op) {
  return op == CALC_lt   ? CALC_gt
         : op == CALC_gt ? CALC_lt
         : op == CALC_le ? CALC_ge
         : op == CALC_ge ? CALC_le
                         : op;
}

int mg_symdata_fact(const MgCapture *cap, int op, SymRef a, SymRef b) {
  for (uint32_t i = 0; i < cap->sizes.nfact; i++) {
    const MgSizeFact *f = &cap->sizes.fact[i];
    bool same = f->a == a && f->b == b, turned = f->a == b && f->b == a;
    if (!same && !turned) continue;
    int holds = same ? f->calc : data_turned(f->calc);
    if (holds == op || (op == CALC_le && (holds == CALC_lt || holds == CALC_eq)) ||
        (op == CALC_ge && (holds == CALC_gt || holds == CALC_eq)) ||
        (op == CALC_ne && (holds == CALC_lt || holds == CALC_gt)))
      return 1;
    if (holds == data_negated(op) || (holds == CALC_eq && op != CALC_le && op != CALC_ge)) return 0;
  }
  return -1;
}

void mg_data_narrow(MgCapture *cap, int op, SymRef a, SymRef b) {
  MgExprs *x = cap->rec->x;
  int64_t k;
  if (mg_expr(x, a)->op != OP_sym && mg_expr(x, b)->op == OP_sym) {
    mg_data_narrow(cap, data_turned(op), b, a);
    return;
  }
  if (mg_expr(x, a)->op != OP_sym || !mg_symdata_in(cap, a) || !mg_ex_const_int(x, b, &k)) return;
  const MgSymbol *s = &x->sym[mg_expr(x, a)->u.i];
  int64_t lo = op == CALC_ge || op == CALC_eq ? k
               : op == CALC_gt                ? k + 1
                                              : s->lo,
          hi = op == CALC_le || op == CALC_eq ? k
               : op == CALC_lt                ? k - 1
                                              : s->hi;
  if (op == CALC_ne && k == s->lo) lo = k + 1;
  if (lo > s->lo || hi < s->hi)
    mg_ex_set_symbol_range(x, a, lo > s->lo ? lo : s->lo, hi < s->hi ? hi : s->hi);
}

static void data_learn(MgCapture *cap, int op, SymRef a, SymRef b) {
  MgSymSizes *s = &cap->sizes;
  mg_data_narrow(cap, op, a, b);
  if (s->nfact == s->cap_fact && !mg_grow(&s->fact, &s->cap_fact, sizeof *s->fact, 16))
    return; /* less is known */
  s->fact[s->nfact++] = (MgSizeFact){op, a, b};
}

void mg_symdata_assume(MgSymNode *n) {
  if (!n || n->kind != 'b' || n->row || n->src) return;
  if (n->calc == CALC_and) {
    mg_symdata_assume(n->left);
    mg_symdata_assume(n->right);
  }
  if (n->calc > CALC_ge) return;
  SymRef a = data_operand(n->cap, n->left, n->constant),
         b = a ? data_operand(n->cap, n->right, n->constant) : 0;
  if (a && b) data_learn(n->cap, n->calc, a, b);
}

/* The range of a - b, when sizes that depend on data are neither 0 nor 1. */
static bool data_range_large(MgCapture *cap, SymRef a, SymRef b, int64_t *lo, int64_t *hi) {
  MgExprs *x = cap->rec->x;
  MgSymSizes *s = &cap->sizes;
  uint8_t *was = mg_new(cap->rec->ctx, uint8_t, s->nsrc + 1);
  for (uint32_t i = 0; was && i < s->nsrc; i++) {
    const MgSymbol *y = &x->sym[mg_expr(x, s->ref[i])->u.i];
    if (!s->of[i].val || y->lo < 0 || y->lo > 1 || y->hi < 2) continue;
    was[i] = (uint8_t)(y->lo + 1);
    mg_ex_set_symbol_range(x, s->ref[i], 2, y->hi);
  }
  bool known = was && mg_ex_range(x, mg_sym_sub(x, a, b), lo, hi);
  for (uint32_t i = 0; was && i < s->nsrc; i++)
    if (was[i]) mg_ex_set_symbol_range(x, s->ref[i], was[i] - 1, x->sym[mg_expr(x, s->ref[i])->u.i].hi);
  return known;
}

/* The sign of a - b at the values that are tried. */
static int data_tried(const MgCapture *cap, SymRef a, SymRef b) {
  int64_t p = mg_sym_eval(cap->rec->x, a, cap->sizes.trial),
          q = mg_sym_eval(cap->rec->x, b, cap->sizes.trial);
  return p < q ? -1 : p > q;
}

/* The sign of a - b; 0: its range does not tell. */
static int data_sign(MgCapture *cap, SymRef a, SymRef b) {
  int64_t lo, hi;
  if (mg_ex_range(cap->rec->x, mg_sym_sub(cap->rec->x, a, b), &lo, &hi) && (lo > 0 || hi < 0))
    return lo > 0 ? 1 : -1;
  if (!data_range_large(cap, a, b, &lo, &hi) || (lo <= 0 && hi >= 0)) return 0;
  cap->sizes.guessed = true;
  return lo > 0 ? 1 : -1;
}

int mg_symdata_compare(MgCapture *cap, SymRef a, SymRef b) {
  if (cap->sizes.trial) return data_tried(cap, a, b);
  if (mg_symdata_fact(cap, CALC_lt, a, b) == 1) return -1;
  if (mg_symdata_fact(cap, CALC_gt, a, b) == 1) return 1;
  int sign = data_sign(cap, a, b);
  if (sign) return sign;
  int64_t p = mg_sym_hint(cap->rec->x, a), q = mg_sym_hint(cap->rec->x, b);
  cap->sizes.unknown = true;
  return p < q ? -1 : p > q;
}

/* What has to be equal is. */
bool mg_symdata_equal(MgCapture *cap, SymRef a, SymRef b) {
  int64_t v;
  if (cap->sizes.trial) return !data_tried(cap, a, b);
  int fact = mg_symdata_fact(cap, CALC_eq, a, b);
  if (fact >= 0) return fact;
  if (data_sign(cap, a, b)) return false;
  cap->sizes.guessed = true;
  bool constant = mg_ex_const_int(cap->rec->x, a, &v) || mg_ex_const_int(cap->rec->x, b, &v);
  return !(constant && v >= -1 && v <= 1);
}

int64_t mg_symdata_value(MgCapture *cap, SymRef e) {
  if (cap->sizes.probe) return mg_sym_eval(cap->rec->x, e, cap->sizes.probe);
  cap->sizes.unknown = true;
  return mg_sym_hint(cap->rec->x, e);
}

/* ---- what a node reads and gives ---- */

/* Does what an earlier node writes outlive a run that is given up? */
static bool data_wrote_before(MgCapture *cap, NodeRef n) {
  const MgGraph *g = cap->rec->g;
  MgSymSizes *s = &cap->sizes;
  for (; !s->lasts && s->looked + 1 < n; s->looked++) {
    const MgNode *node = mg_node(g, s->looked + 1);
    s->lasts = !node->op->nret;
    for (MgWritten w = {0}; mg_node_written(node, &w);)
      for (uint32_t i = 0; i < cap->ninput; i++)
        s->lasts |= mg_val(g, cap->input[i].val)->storage == mg_val(g, w.v)->storage;
  }
  return s->lasts;
}

/* Is the result laid out as the graph has it where these are the values of the symbols?  Strides of an empty
 * one address nothing. */
static bool data_same_layout(const MgRec *r, ValRef a, ValRef b, const int64_t *at) {
  const MgVal *t = mg_val(r->g, a), *u = mg_val(r->g, b);
  bool same = t->ndim == u->ndim && t->dtype == u->dtype &&
              mg_sym_eval(r->x, t->offset, at) == mg_sym_eval(r->x, u->offset, at);
  bool empty = false;
  for (int i = 0; same && i < t->ndim; i++) {
    int64_t size = mg_sym_eval(r->x, t->size[i], at);
    same = size == mg_sym_eval(r->x, u->size[i], at);
    empty |= !size;
  }
  for (int i = 0; same && !empty && i < t->ndim; i++)
    same = mg_sym_eval(r->x, t->stride[i], at) == mg_sym_eval(r->x, u->stride[i], at);
  return same;
}

/* Inference once more, with these values of the symbols: does it agree with the graph? */
static bool data_holds_at(MgCapture *cap, NodeRef n, const int64_t *at) {
  enum { MOST = 8 };
  MgRec *r = cap->rec;
  MgNode *node = mg_node(r->g, n);
  const MgNode was = *node;
  ValRef out[MOST] = {0};
  uint32_t nval = r->g->nval;
  if (node->nout > MOST) return false;
  cap->sizes.trial = at;
  node->out = out;
  bool same = mg_infer(r->g, n) == MG_OK && !r->abort;
  node = mg_node(r->g, n);
  cap->sizes.trial = NULL;
  for (int i = 0; same && i < was.nout; i++)
    same = !was.out[i] == !out[i] && (!out[i] || data_same_layout(r, was.out[i], out[i], at));
  node->out = was.out;
  node->nout = was.nout;
  r->g->nval = nval;
  return same;
}

/* Does what was guessed make no difference?  Sizes were taken for others than 0 and 1: one after the other is
 * tried as these, while the others are larger and differ. */
static bool data_guess_is_safe(MgCapture *cap, NodeRef n) {
  MgRec *r = cap->rec;
  MgSymSizes *s = &cap->sizes;
  int64_t *at = mg_new(r->ctx, int64_t, r->x->nsym + 1);
  bool safe = at != NULL;
  for (uint32_t i = 0; safe && i < s->nsrc; i++) {
    for (uint32_t k = 0; k < r->x->nsym; k++) at[k] = r->x->sym[k].hint;
    for (uint32_t k = 0; k < s->nsrc; k++)
      if (s->of[k].val) at[mg_expr(r->x, s->ref[k])->u.i] = 101 + 2 * k;
    uint32_t tried = (uint32_t)mg_expr(r->x, s->ref[i])->u.i;
    for (int64_t v = 0; v < 2 && safe && s->of[i].val; v++) {
      at[tried] = v;
      safe = r->x->sym[tried].lo > v || data_holds_at(cap, n, at);
    }
  }
  if (!r->abort) r->ctx->rc = MG_OK;
  return safe;
}

int mg_symdata_note_guess(MgCapture *cap, NodeRef n) {
  MgRec *r = cap->rec;
  MgNode *node = mg_node(r->g, n);
  node->guessed = cap->sizes.guessed;
  if (!node->guessed || r->want_fx || !r->cfg || r->cfg->fullgraph || !data_wrote_before(cap, n)) return 0;
  if (data_guess_is_safe(cap, n)) return mg_node(r->g, n)->guessed = false, 0;
  mg_rec_break(BK_data_dependent, "a size that depends on data may be 1 in %s, after a write",
               node->op->full);
  return -1;
}

static bool data_in_val(const MgCapture *cap, ValRef v) {
  const MgVal *t = mg_val(cap->rec->g, v);
  bool any = mg_symdata_in(cap, t->offset);
  for (int i = 0; i < t->ndim && !any; i++)
    any = mg_symdata_in(cap, t->size[i]) || mg_symdata_in(cap, t->stride[i]);
  return any;
}

static bool data_in_arg(const MgCapture *cap, const MgArg *a) {
  if (a->tag == MA_val) return a->u.val && data_in_val(cap, a->u.val);
  if (a->tag == MA_int) return mg_symdata_in(cap, a->u.sym);
  for (uint32_t i = 0; a->tag == MA_list && i < a->n; i++)
    if (data_in_arg(cap, &a->u.item[i])) return true;
  return false;
}

static bool data_in_args(const MgCapture *cap, const MgNode *n) {
  for (int i = 0; i < n->narg; i++)
    if (data_in_arg(cap, &n->arg[i])) return true;
  return false;
}

bool mg_symdata_reads(const MgCapture *cap, NodeRef n) { return data_in_args(cap, mg_node(cap->rec->g, n)); }

bool mg_symdata_used(const MgRec *r) {
  for (NodeRef n = 1; r->cap->sizes.ndata && n < r->g->nnode; n++) {
    const MgNode *node = mg_node(r->g, n);
    if (node->dead) continue;
    if (data_in_args(r->cap, node)) return true;
    for (int i = 0; i < node->nout; i++)
      if (node->out[i] && data_in_val(r->cap, node->out[i])) return true;
  }
  return false;
}
