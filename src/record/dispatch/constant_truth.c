/* See the header.  In: a value of the graph being recorded.  Out: bounds of its elements, from the ops that
 * made it.  A storage that anything has written to is not known. */
#include "record/dispatch/constant_truth.h"
#include <math.h>

enum { TRUTH_DEPTH = 24, TRUTH_VALUES = 256 }; /* looked at for one mask */

typedef struct Span { /* of integers, both ends included */
  int64_t lo, hi;
} Span;
static const Span span_any = {INT64_MIN, INT64_MAX}, span_bit = {0, 1};

typedef struct Truth {
  const MgGraph *g;
  int left; /* values that may still be looked at */
} Truth;

static Span truth_span(Truth *t, ValRef v, int depth);

/* A number, or a tensor's elements. */
static Span truth_arg(Truth *t, const MgArg *a, int depth) {
  Span s = span_any;
  if (!a) return s;
  switch (a->tag) {
  case MA_val: return truth_span(t, a->u.val, depth);
  case MA_int: mg_ex_range(t->g->x, a->u.sym, &s.lo, &s.hi); return s;
  case MA_bool: return (Span){a->u.b, a->u.b};
  case MA_float:
    if (!(fabs(a->u.f) < 1e15)) return s;
    return (Span){(int64_t)floor(a->u.f), (int64_t)ceil(a->u.f)};
  default: return s;
  }
}

static bool truth_bounded(Span s) { return s.lo > -((int64_t)1 << 52) && s.hi < (int64_t)1 << 52; }

static Span truth_arange(Truth *t, const MgNode *n, int depth) {
  const MgArg *from = mg_node_arg(n, "start");
  Span start = from ? truth_arg(t, from, depth) : (Span){0, 0};
  Span end = truth_arg(t, mg_node_arg(n, "end"), depth);
  return (Span){start.lo, end.hi == INT64_MAX ? INT64_MAX : end.hi - 1};
}

static Span truth_sum(Truth *t, const MgNode *n, Span a, Span b, bool minus, int depth) {
  Span factor = truth_arg(t, mg_node_arg(n, "alpha"), depth);
  if (factor.lo != 1 || factor.hi != 1 || !truth_bounded(a) || !truth_bounded(b)) return span_any;
  return minus ? (Span){a.lo - b.hi, a.hi - b.lo} : (Span){a.lo + b.lo, a.hi + b.hi};
}

static bool truth_yes(Span s) { return s.lo > 0 || s.hi < 0; }
static bool truth_no(Span s) { return !s.lo && !s.hi; }
static Span truth_if(bool yes, bool no) { return yes ? (Span){1, 1} : no ? (Span){0, 0} : span_bit; }

/* & and | of bools; of integers they are something else. */
static Span truth_logic(Span a, Span b, bool and, bool bools) {
  if (!bools) return span_any;
  if (and) return truth_if(truth_yes(a) && truth_yes(b), truth_no(a) || truth_no(b));
  return truth_if(truth_yes(a) || truth_yes(b), truth_no(a) && truth_no(b));
}

/* Of two operands, numbers or tensors. */
static Span truth_binary(Truth *t, const MgNode *n, bool bools, int depth) {
  Span a = truth_arg(t, mg_node_arg(n, "self"), depth), b = truth_arg(t, mg_node_arg(n, "other"), depth);
  switch (n->op->code) {
  case TOP_ge_Scalar:
  case TOP_ge_Tensor: return truth_if(a.lo >= b.hi, a.hi < b.lo);
  case TOP_gt_Scalar:
  case TOP_gt_Tensor: return truth_if(a.lo > b.hi, a.hi <= b.lo);
  case TOP_le_Scalar:
  case TOP_le_Tensor: return truth_if(a.hi <= b.lo, a.lo > b.hi);
  case TOP_lt_Scalar:
  case TOP_lt_Tensor: return truth_if(a.hi < b.lo, a.lo >= b.hi);
  case TOP_logical_and:
  case TOP_bitwise_and_Tensor: return truth_logic(a, b, true, bools);
  case TOP_logical_or:
  case TOP_bitwise_or_Tensor: return truth_logic(a, b, false, bools);
  case TOP_add_Tensor:
  case TOP_add_Scalar: return truth_sum(t, n, a, b, false, depth);
  case TOP_sub_Tensor:
  case TOP_sub_Scalar: return truth_sum(t, n, a, b, true, depth);
  default: return span_any;
  }
}

/* A copy or a view of the first operand. */
static Span truth_same(Truth *t, const MgNode *n, ValRef v, int depth) {
  ValRef from = mg_node_first(n);
  return from && mg_val(t->g, from)->dtype == mg_val(t->g, v)->dtype ? truth_span(t, from, depth) : span_any;
}

static Span truth_node(Truth *t, const MgNode *n, ValRef v, int depth) {
  switch (n->op->code) {
  case TOP_arange:
  case TOP_arange_start: return truth_arange(t, n, depth);
  case TOP_ones:
  case TOP_ones_like:
  case TOP_new_ones: return (Span){1, 1};
  case TOP_full:
  case TOP_full_like:
  case TOP_new_full: return truth_arg(t, mg_node_arg(n, "fill_value"), depth);
  case TOP__to_copy: return truth_arg(t, mg_node_arg(n, "self"), depth);
  case TOP_clone: return truth_same(t, n, v, depth);
  default: break;
  }
  if (n->op->is_view) return truth_same(t, n, v, depth);
  bool bools = mg_val(t->g, v)->dtype == DT_bool;
  return n->narg >= 2 && !n->op->mutates ? truth_binary(t, n, bools, depth) : span_any;
}

/* What a bool or an int of 64 bits may be; integers of fewer bits wrap around, and floats round. */
static Span truth_span(Truth *t, ValRef v, int depth) {
  const MgVal *x = mg_val(t->g, v);
  bool kind = x->dtype == DT_bool || x->dtype == DT_i64;
  if (!kind || !x->def || depth >= TRUTH_DEPTH || t->left-- <= 0) return span_any;
  Span s = truth_node(t, mg_node(t->g, x->def), v, depth + 1);
  bool known = s.lo != INT64_MIN || s.hi != INT64_MAX;
  if (known && mg_graph_writes(t->g, x->storage)) return span_any; /* the whole graph is looked at */
  if (x->dtype != DT_bool) return s;
  return truth_if(truth_yes(s), truth_no(s));
}

bool mg_constant_true(const MgGraph *g, ValRef v) {
  Truth t = {g, TRUTH_VALUES};
  return mg_val(g, v)->dtype == DT_bool && truth_span(&t, v, 0).lo == 1;
}
