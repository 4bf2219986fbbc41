/* Causal masks.  See constant_truth.h.
 * In: a value of the graph being recorded.  Out: its elements as a sum of their places, from the ops that
 * made it: arange(n)[:, None] - arange(n) is +1 of the row, -1 of the column.  A comparison is such a sum
 * that is not negative.  A storage that anything has written to is not known. */
#include "record/dispatch/constant_truth.h"
#include <string.h>

enum { PLANE_DEPTH = 24, PLANE_VALUES = 256, PLANE_DIMS = 8 };
#define PLANE_FAR ((int64_t)1 << 40) /* no sum overflows */

typedef struct Plane { /* at + the sum of step[d] times the index of dimension d, counted from the last */
  bool known;
  int64_t at, step[PLANE_DIMS];
} Plane; /* of a bool: it is true where this is not negative */

typedef struct Planes {
  const MgGraph *g;
  int left; /* values that may still be looked at */
} Planes;

static Plane plane_of(Planes *t, ValRef v, int depth);

static bool plane_near(int64_t i) { return -PLANE_FAR < i && i < PLANE_FAR; }

/* A number, or a tensor's elements. */
static Plane plane_arg(Planes *t, const MgNode *n, const char *name, int depth) {
  const MgArg *a = mg_node_arg(n, name);
  Plane p = {0};
  if (a && a->tag == MA_val) return plane_of(t, a->u.val, depth);
  if (a && a->tag == MA_bool) p = (Plane){true, a->u.b, {0}};
  p.known |= a && a->tag == MA_int && mg_ex_const_int(t->g->x, a->u.sym, &p.at);
  p.known &= plane_near(p.at);
  return p;
}

/* a + sign * b + more */
static Plane plane_sum(Plane a, Plane b, int sign, int64_t more) {
  Plane p = {.known = a.known && b.known, .at = a.at + sign * b.at + more};
  p.known &= plane_near(p.at);
  for (int d = 0; d < PLANE_DIMS; d++) {
    p.step[d] = a.step[d] + sign * b.step[d];
    p.known &= plane_near(p.step[d]);
  }
  return p;
}

static Plane plane_binary(Planes *t, const MgNode *n, bool bools, int depth) {
  Plane a = plane_arg(t, n, "self", depth), b = plane_arg(t, n, "other", depth);
  int64_t alpha = 0;
  switch (n->op->code) {
  case TOP_ge_Scalar:
  case TOP_ge_Tensor: return plane_sum(a, b, -1, 0);
  case TOP_gt_Scalar:
  case TOP_gt_Tensor: return plane_sum(a, b, -1, -1);
  case TOP_le_Scalar:
  case TOP_le_Tensor: return plane_sum(b, a, -1, 0);
  case TOP_lt_Scalar:
  case TOP_lt_Tensor: return plane_sum(b, a, -1, -1);
  case TOP_logical_and:
  case TOP_bitwise_and_Tensor:
    if (bools && mg_constant_true(t->g, mg_node_first(n))) return b;
    return bools && mg_constant_true(t->g, mg_node_arg(n, "other")->u.val) ? a : (Plane){0};
  case TOP_add_Tensor:
  case TOP_add_Scalar:
  case TOP_sub_Tensor:
  case TOP_sub_Scalar: {
    const MgArg *by = mg_node_arg(n, "alpha");
    bool once = by && by->tag == MA_int && mg_ex_const_int(t->g->x, by->u.sym, &alpha) && alpha == 1;
    bool minus = n->op->code == TOP_sub_Tensor || n->op->code == TOP_sub_Scalar;
    return once ? plane_sum(a, b, minus ? -1 : 1, 0) : (Plane){0};
  }
  default: return (Plane){0};
  }
}

/* A dimension, from the node's argument, counted from the last of ndim. */
static bool plane_dim(const Planes *t, const MgNode *n, int ndim, int *out) {
  const MgArg *a = mg_node_arg(n, "dim");
  int64_t dim;
  if (!a || a->tag != MA_int || !mg_ex_const_int(t->g->x, a->u.sym, &dim)) return false;
  *out = (int)(dim < 0 ? -1 - dim : ndim - 1 - dim);
  return *out >= 0 && *out < ndim;
}

static Plane plane_unsqueezed(const Planes *t, const MgNode *n, Plane p, int ndim) {
  int at;
  if (!plane_dim(t, n, ndim, &at) || ndim > PLANE_DIMS) return (Plane){0};
  for (int d = PLANE_DIMS - 1; d > at; d--) p.step[d] = p.step[d - 1];
  p.step[at] = 0;
  return p;
}

static Plane plane_sliced(const Planes *t, const MgNode *n, Plane p, int ndim) {
  const MgArg *from = mg_node_arg(n, "start"), *by = mg_node_arg(n, "step");
  int64_t start = 0, step = 1;
  int at;
  bool known = plane_dim(t, n, ndim, &at) && by && by->tag == MA_int &&
               mg_ex_const_int(t->g->x, by->u.sym, &step) && step == 1;
  if (from && from->tag == MA_int) known = known && mg_ex_const_int(t->g->x, from->u.sym, &start);
  if (!known || start < 0 || start >= PLANE_FAR / 2) return (Plane){0};
  Plane shift = {.known = p.step[at] > -2 && p.step[at] < 2, .at = start * p.step[at]};
  return shift.known ? plane_sum(p, shift, 1, 0) : shift;
}

/* A copy or a view of the first operand. */
static Plane plane_same(Planes *t, const MgNode *n, ValRef v, int depth) {
  ValRef from = mg_node_first(n);
  if (!from || mg_val(t->g, from)->dtype != mg_val(t->g, v)->dtype) return (Plane){0};
  Plane p = plane_of(t, from, depth);
  switch (n->op->code) {
  case TOP__to_copy:
  case TOP_clone:
  case TOP_alias:
  case TOP_detach:
  case TOP_expand: return p; /* a dimension that it repeats has no step */
  case TOP_unsqueeze: return plane_unsqueezed(t, n, p, mg_val(t->g, v)->ndim);
  case TOP_slice_Tensor: return plane_sliced(t, n, p, mg_val(t->g, v)->ndim);
  default: return (Plane){0};
  }
}

static Plane plane_node(Planes *t, const MgNode *n, ValRef v, int depth) {
  Plane p;
  switch (n->op->code) {
  case TOP_arange: return (Plane){true, 0, {1}};
  case TOP_arange_start:
    p = plane_arg(t, n, "start", depth);
    p.step[0] = 1;
    return p;
  default: break;
  }
  bool copies = n->op->is_view || n->op->code == TOP__to_copy || n->op->code == TOP_clone;
  if (copies) return plane_same(t, n, v, depth);
  return n->narg >= 2 && !n->op->mutates ? plane_binary(t, n, mg_val(t->g, v)->dtype == DT_bool, depth)
                                         : (Plane){0};
}

static Plane plane_of(Planes *t, ValRef v, int depth) {
  const MgVal *x = mg_val(t->g, v);
  bool kind = x->dtype == DT_bool || x->dtype == DT_i64;
  if (!kind || !x->def || depth >= PLANE_DEPTH || t->left-- <= 0 || x->ndim > PLANE_DIMS) return (Plane){0};
  Plane p = plane_node(t, mg_node(t->g, x->def), v, depth + 1);
  if (!p.known || mg_graph_writes(t->g, x->storage)) return (Plane){0};
  for (int d = 0; d < PLANE_DIMS; d++)
    if (d >= x->ndim || mg_sym_is(t->g->x, x->size[x->ndim - 1 - d], 1)) p.step[d] = 0;
  return p;
}

bool mg_constant_causal(const MgGraph *g, ValRef v) {
  static const Plane causal = {true, 0, {-1, 1}};
  Planes t = {g, PLANE_VALUES};
  Plane p = mg_val(g, v)->dtype == DT_bool ? plane_of(&t, v, 0) : (Plane){0};
  return p.known && p.at == causal.at && !memcmp(p.step, causal.step, sizeof p.step);
}
