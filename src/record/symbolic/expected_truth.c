/* See the header.  In: nodes of the recorded graph and expressions over their values.  Out: a number that all
 * elements of a value are taken to be, or nothing. */
#include "record/symbolic/expected_truth.h"
#include <math.h>
#include <string.h>
#include "entry/guard/source.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "record/symbolic/item_numbers.h"
#include "record/symbolic/number.h"
#include "tuning.h"

typedef enum ExpectRule {
  EX_zero,
  EX_one,  /* of any argument */
  EX_fill, /* the first number among the arguments */
  EX_same, /* what the arguments are, when they agree */
  EX_sum,  /* of many elements: known when they are 0 */
  EX_not,
  EX_and,
  EX_or,
  EX_eq,
  EX_ne,
  EX_lt,
  EX_le,
  EX_gt,
  EX_ge
} ExpectRule;

static const struct {
  const char *name;
  ExpectRule rule;
} expect_rules[] = {{"isnan", EX_zero},
                    {"isinf", EX_zero},
                    {"isposinf", EX_zero},
                    {"isneginf", EX_zero},
                    {"isfinite", EX_one},
                    {"zeros", EX_zero},
                    {"zeros_like", EX_zero},
                    {"ones", EX_one},
                    {"ones_like", EX_one},
                    {"full", EX_fill},
                    {"scalar_tensor", EX_fill},
                    {"_to_copy", EX_same},
                    {"clone", EX_same},
                    {"detach", EX_same},
                    {"alias", EX_same},
                    {"view", EX_same},
                    {"_unsafe_view", EX_same},
                    {"squeeze", EX_same},
                    {"unsqueeze", EX_same},
                    {"expand", EX_same},
                    {"select", EX_same},
                    {"slice", EX_same},
                    {"stack", EX_same},
                    {"cat", EX_same},
                    {"any", EX_same},
                    {"all", EX_same},
                    {"amax", EX_same},
                    {"amin", EX_same},
                    {"max", EX_same},
                    {"min", EX_same},
                    {"sum", EX_sum},
                    {"count_nonzero", EX_sum},
                    {"add", EX_sum},
                    {"logical_not", EX_not},
                    {"bitwise_not", EX_not},
                    {"logical_and", EX_and},
                    {"bitwise_and", EX_and},
                    {"mul", EX_and},
                    {"logical_or", EX_or},
                    {"bitwise_or", EX_or},
                    {"eq", EX_eq},
                    {"ne", EX_ne},
                    {"lt", EX_lt},
                    {"le", EX_le},
                    {"gt", EX_gt},
                    {"ge", EX_ge}};

typedef struct Expect {
  MgCapture *cap;
  const MgGraph *g;
  int nodes; /* looked at so far */
} Expect;

typedef struct ExpectArgs { /* what is known of the arguments of a node */
  ValRef val;               /* the first tensor */
  bool twice;               /* a second one is the same */
  double number[2];         /* of the first two */
  bool known[2], all, agree, any_zero, any_one;
  int n;
} ExpectArgs;

static bool expect_val(Expect *e, ValRef v, int depth, double *out);

static bool expect_number(const Expect *e, const MgArg *a, double *out) {
  int64_t i;
  if (a->tag == MA_float) return *out = a->u.f, true;
  if (a->tag == MA_bool) return *out = a->u.b, true;
  return a->tag == MA_int && mg_ex_const_int(e->g->x, a->u.sym, &i) ? *out = (double)i, true : false;
}

static void expect_arg(Expect *e, const MgArg *a, int depth, ExpectArgs *s) {
  if (a->tag == MA_list && a->n && a->u.item[0].tag == MA_val) {
    for (uint32_t i = 0; i < a->n; i++) expect_arg(e, &a->u.item[i], depth, s);
    return;
  }
  double x = 0;
  bool known =
      a->tag == MA_val && a->u.val ? expect_val(e, a->u.val, depth + 1, &x) : expect_number(e, a, &x);
  if (a->tag == MA_val && s->n && s->val == a->u.val) s->twice = true;
  if (a->tag == MA_val && !s->n) s->val = a->u.val;
  s->agree &= !s->n || x == s->number[0];
  s->all &= known;
  s->any_zero |= known && x == 0;
  s->any_one |= known && x != 0;
  if (s->n < 2) s->number[s->n] = x, s->known[s->n] = known;
  s->n++;
}

/* A comparison: of a value with itself, with infinity, or of what is known. */
static bool expect_compare(ExpectRule rule, const ExpectArgs *s, double *out) {
  double a = s->number[0], b = s->number[1];
  bool far = s->known[1] && isinf(b), known = s->known[0] && s->known[1];
  if (rule <= EX_ne && (s->twice || far)) return *out = (rule == EX_eq) == s->twice, true;
  if (!known) return false;
  *out = rule == EX_eq   ? a == b
         : rule == EX_ne ? a != b
         : rule == EX_lt ? a < b
         : rule == EX_le ? a <= b
         : rule == EX_gt ? a > b
                         : a >= b;
  return true;
}

static bool expect_apply(ExpectRule rule, const ExpectArgs *s, double *out) {
  switch (rule) {
  case EX_zero: return *out = 0, true;
  case EX_one: return *out = 1, true;
  case EX_fill:
  case EX_same: return *out = s->number[0], s->n && s->all && s->agree;
  case EX_sum:
    return *out = 0,
           s->n && s->known[0] && s->number[0] == 0 && (s->n < 2 || (s->known[1] && s->number[1] == 0));
  case EX_not: return *out = s->number[0] == 0, s->n && s->known[0];
  case EX_and:
    return *out = !s->any_zero,
           s->any_zero || (s->n > 1 && s->known[0] && s->known[1] && s->number[0] == 1 && s->number[1] == 1);
  case EX_or: return *out = s->any_one, s->any_one || (s->n > 1 && s->known[0] && s->known[1]);
  default: return s->n > 1 && expect_compare(rule, s, out);
  }
}

/* Gradients are looked at for infinities, which are not expected to be found. */
static bool expect_writes(const Expect *e, uint32_t storage) {
  for (NodeRef n = 1; n < e->g->nnode; n++)
    if (mg_node_writes(e->g, &e->g->node[n], storage) &&
        strcmp(e->g->node[n].op->name, "aten::_amp_foreach_non_finite_check_and_unscale_"))
      return true;
  return false;
}

/* Sizes, dimensions and the like are no operands. */
static int expect_operands(ExpectRule rule, const MgNode *n) {
  if (rule == EX_fill) return !strcmp(n->op->name, "aten::full") ? 1 : 0;
  return rule >= EX_and || !strcmp(n->op->name, "aten::add") ? 1 : 0;
}

static bool expect_val(Expect *e, ValRef v, int depth, double *out) {
  const MgVal *m = mg_val(e->g, v);
  if (!m->def || depth > MG_TUNE_EXPECT_DEPTH || ++e->nodes > MG_TUNE_EXPECT_NODES ||
      expect_writes(e, m->storage))
    return false;
  const MgNode *n = mg_node(e->g, m->def);
  if (n->dead || strncmp(n->op->name, "aten::", 6)) return false;
  for (size_t i = 0; i < sizeof expect_rules / sizeof *expect_rules; i++) {
    ExpectRule rule = expect_rules[i].rule;
    if (strcmp(n->op->name + 6, expect_rules[i].name)) continue;
    ExpectArgs s = {.all = true, .agree = true};
    int last = expect_operands(rule, n), first = rule == EX_fill ? last : 0;
    for (int k = first; k <= last && k < n->narg && rule > EX_one; k++) expect_arg(e, &n->arg[k], depth, &s);
    return expect_apply(rule, &s, out);
  }
  return false;
}

/* A number of the program, as Python would compute it; NULL without an exception:
 * nothing is expected of it. */
static PyObject *expect_symbol(Expect *e, MgSymNode *n, int depth) {
  double x;
  if (n->hint || n->src || n->dim || depth > MG_TUNE_EXPECT_DEPTH || ++e->nodes > MG_TUNE_EXPECT_NODES)
    return NULL;
  if (n->row) {
    if (!expect_val(e, n->row, 0, &x)) return NULL;
    return n->kind == 'f'   ? PyFloat_FromDouble(x)
           : n->kind == 'i' ? PyLong_FromDouble(x)
                            : PyBool_FromLong(x != 0);
  }
  int asks = n->calc == CALC_call ? mg_symvalue_asks(n->constant) : 0;
  if (asks) return PyBool_FromLong(asks > 0);
  if ((n->calc == CALC_eq || n->calc == CALC_ne) && n->left == n->right)
    return PyBool_FromLong(n->calc == CALC_eq);
  PyObject *a = n->left ? expect_symbol(e, n->left, depth + 1) : Py_XNewRef(n->constant), *b = NULL,
           *r = NULL;
  bool unary = mg_calc_is_unary(n->calc);
  if (a && !unary) b = n->right ? expect_symbol(e, n->right, depth + 1) : Py_XNewRef(n->constant);
  if (a && (unary || b)) r = mg_source_compute(n->calc, a, b);
  Py_XDECREF(a);
  Py_XDECREF(b);
  return r;
}

int mg_expect_truth(MgCapture *cap, PyObject *condition, bool *yes) {
  Expect e = {.cap = cap, .g = cap->rec->g};
  if (mg_standin_is(condition)) {
    double x;
    bool known = expect_val(&e, mg_standin_val(condition), 0, &x);
    *yes = known && x != 0;
    return known;
  }
  MgSymNode *n = mg_symnode_of(condition);
  PyObject *r = n ? expect_symbol(&e, n, 0) : NULL;
  int truth = r ? PyObject_IsTrue(r) : PyErr_Occurred() ? -1 : 0;
  *yes = truth > 0;
  bool known = r != NULL;
  Py_XDECREF(r);
  return truth < 0 ? -1 : known;
}
