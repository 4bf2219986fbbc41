/* Pointwise ops: activation functions and losses' pieces.  Formulas are ATen's. */
#include "back/lower/lower_point.h"
#include <math.h>
#include <string.h>

ExprRef pt_sigmoid(LwPt *p, ExprRef x) { return DIV(C(1), ADD(C(1), EXP(NEG(x)))); }

static ExprRef act_sigmoid(LwPt *p) { return pt_sigmoid(p, pt_arg(p, "self")); }
/* NaN stays, and so does -0 beside a bound of 0. */
static ExprRef act_above(LwPt *p, ExprRef x, ExprRef lo) { return WHERE(LT(x, lo), lo, x); }
static ExprRef act_relu(LwPt *p) {
  return p->ty == TY_i1 ? pt_arg(p, "self") : act_above(p, pt_arg(p, "self"), C(0));
}
static ExprRef act_clip(LwPt *p, ExprRef x, double lo, double hi) {
  ExprRef a = act_above(p, x, C(lo));
  return WHERE(GT(a, C(hi)), C(hi), a);
}
static ExprRef act_relu6(LwPt *p) { return act_clip(p, pt_arg(p, "self"), 0, 6); }
static ExprRef act_hardtanh(LwPt *p) {
  return act_clip(p, pt_arg(p, "self"), pt_float(p, "min_val", -1), pt_float(p, "max_val", 1));
}
static ExprRef act_hard(LwPt *p, ExprRef x) { return DIV(act_clip(p, ADD(x, C(3)), 0, 6), C(6)); }
static ExprRef act_hardsigmoid(LwPt *p) { return act_hard(p, pt_arg(p, "self")); }
static ExprRef act_hardswish(LwPt *p) {
  ExprRef x = pt_arg(p, "self");
  return DIV(MUL(x, act_clip(p, ADD(x, C(3)), 0, 6)), C(6));
}
static ExprRef act_silu(LwPt *p) {
  ExprRef x = pt_arg(p, "self");
  return DIV(x, ADD(C(1), EXP(NEG(x))));
}
static ExprRef act_gelu(LwPt *p) {
  ExprRef x = pt_arg(p, "self");
  const MgArg *a = lw_arg(p->n, "approximate");
  if (a->tag == MA_str && !strcmp(a->u.str, "tanh")) {
    ExprRef in = MUL(C(0.79788456080286535588), ADD(x, MUL(C(0.044715), MUL(MUL(x, x), x))));
    return MUL(MUL(C(0.5), x), ADD(C(1), pt_1(p, OP_tanh, in)));
  }
  return MUL(MUL(x, C(0.5)), ADD(C(1), pt_1(p, OP_erf, MUL(x, C(0.70710678118654752440)))));
}
static ExprRef act_mish(LwPt *p) {
  ExprRef x = pt_arg(p, "self");
  return MUL(x, pt_1(p, OP_tanh, pt_1(p, OP_log1p, EXP(x))));
}
/* elu(x) = scale * (x > 0 ? x : alpha * (exp(x * input_scale) - 1)) */
static ExprRef act_elu3(LwPt *p, double alpha, double scale, double in) {
  ExprRef x = pt_arg(p, "self");
  ExprRef neg = MUL(C(alpha * scale), pt_1(p, OP_expm1, in == 1 ? x : MUL(x, C(in))));
  return WHERE(LE(x, C(0)), neg, scale == 1 ? x : MUL(x, C(scale)));
}
static ExprRef act_elu(LwPt *p) {
  return act_elu3(p, pt_float(p, "alpha", 1), pt_float(p, "scale", 1), pt_float(p, "input_scale", 1));
}
static ExprRef act_selu(LwPt *p) {
  return act_elu3(p, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946, 1);
}
static ExprRef act_celu(LwPt *p) {
  double a = pt_float(p, "alpha", 1);
  return act_elu3(p, a, 1, 1 / a);
}
static ExprRef act_leaky(LwPt *p) {
  ExprRef x = pt_arg(p, "self");
  return WHERE(GT(x, C(0)), x, MUL(x, C(pt_float(p, "negative_slope", 0.01))));
}
static ExprRef act_prelu(LwPt *p) {
  ExprRef x = pt_arg(p, "self");
  return WHERE(GT(x, C(0)), x, MUL(x, pt_arg(p, "weight")));
}
/* aten::prelu: a weight of one element, or one per channel (dimension 1) */
static bool ok_prelu(const MgGraph *g, const MgNode *n) {
  const MgVal *w = mg_val(g, lw_arg_val(n, "weight"));
  return lw_ok_float(g, n) && (w->ndim == 0 || (w->ndim == 1 && mg_sym_is(g->x, w->size[0], 1)));
}
static ExprRef act_softplus(LwPt *p) {
  ExprRef x = pt_arg(p, "self"), b = C(pt_float(p, "beta", 1)), xb = MUL(x, b);
  return WHERE(GT(xb, C(pt_float(p, "threshold", 20))), x, DIV(pt_1(p, OP_log1p, EXP(xb)), b));
}
static ExprRef act_softshrink(LwPt *p) {
  ExprRef x = pt_arg(p, "self"), l = C(pt_float(p, "lambd", 0.5));
  return WHERE(GT(x, l), SUB(x, l), WHERE(LT(x, NEG(l)), ADD(x, l), MUL(x, C(0)))); /* NaN and -0 stay */
}
static ExprRef act_hardshrink(LwPt *p) {
  ExprRef x = pt_arg(p, "self"), l = C(pt_float(p, "lambd", 0.5));
  return WHERE(AND(GE(x, NEG(l)), LE(x, l)), C(0), x);
}
static ExprRef act_threshold(LwPt *p) {
  ExprRef x = pt_arg(p, "self");
  return WHERE(LE(x, pt_arg(p, "threshold")), pt_arg(p, "value"), x);
}
static ExprRef act_logsigmoid_of(LwPt *p, ExprRef x) {
  return SUB(MIN(x, C(0)), pt_1(p, OP_log1p, EXP(NEG(pt_1(p, OP_abs, x)))));
}
static ExprRef act_logsigmoid(LwPt *p) { return act_logsigmoid_of(p, pt_arg(p, "self")); }

/* (output, buffer): the CPU keeps exp(-|x|) in the buffer; it is empty elsewhere */
static MgRc act_logsigmoid_forward(Lower *L, MgNode *n, const LwRow *r) {
  LwRow one = *r;
  one.expr = act_logsigmoid;
  TRY(lw_settle(L, lw_arg_val(n, "self")));
  TRY(lw_point(L, n, &one));
  ValRef buf = n->nout > 1 ? n->out[1] : 0;
  if (!buf || !L->val[buf].uses) return MG_OK;
  const MgVal *m = lw_meta(L, buf);
  LwPt q = {.L = L, .n = n, .r = r, .ndim = m->ndim, .ty = mg_dtype_compute((MgDtype)m->dtype)}, *p = &q;
  for (int d = 0; d < m->ndim; d++) q.at[d] = mg_ex_idx(L->x, d);
  if (m->ndim != lw_meta(L, n->out[0])->ndim) return lw_define(L, buf, C(0));
  return lw_define(L, buf, EXP(NEG(pt_1(p, OP_abs, pt_arg(p, "self")))));
}

/* glu: a * sigmoid(b) of the two halves along a dimension */
static MgRc act_glu(Lower *L, MgNode *n, const LwRow *r) {
  const MgVal *m = lw_meta(L, n->out[0]);
  int dim;
  if (!lw_arg_dim(L->g, n, "dim", m->ndim, &dim)) return MG_UNSUP;
  LwPt q = {.L = L, .n = n, .r = r, .ndim = m->ndim, .ty = mg_dtype_compute((MgDtype)m->dtype)}, *p = &q;
  for (int d = 0; d < m->ndim; d++) q.at[d] = mg_ex_idx(L->x, d);
  ExprRef a = pt_arg(p, "self");
  q.at[dim] = mg_sym_add(L->x, q.at[dim], m->size[dim]);
  return lw_define(L, n->out[0], MUL(a, pt_sigmoid(p, pt_arg(p, "self"))));
}

#define A(name, ok, fn) {"aten::" name, lw_point, ok, fn, 0, TR_result, 0},
/* Rows have no commas between them. */
/* clang-format off */
const LwRow lw_rows_act[] = {
  A("sigmoid", NULL, act_sigmoid) A("relu", lw_ok_not_bool, act_relu) A("relu6", lw_ok_not_bool, act_relu6)
  A("hardtanh", lw_ok_not_bool, act_hardtanh)
  A("hardswish", lw_ok_float, act_hardswish) A("hardsigmoid", lw_ok_float, act_hardsigmoid)
  A("silu", lw_ok_float, act_silu)
  A("gelu", lw_ok_float, act_gelu) A("mish", lw_ok_float, act_mish) A("elu", lw_ok_float, act_elu)
  A("selu", lw_ok_float, act_selu)
  A("celu", lw_ok_float, act_celu) A("leaky_relu", lw_ok_float, act_leaky) A("prelu", ok_prelu, act_prelu)
  A("_prelu_kernel", lw_ok_float, act_prelu) A("softplus", lw_ok_float, act_softplus)
  A("softshrink", lw_ok_float, act_softshrink)
  A("hardshrink", lw_ok_float, act_hardshrink) A("threshold", lw_ok_not_bool, act_threshold)
  A("log_sigmoid", lw_ok_float, act_logsigmoid)
  {"aten::log_sigmoid_forward", act_logsigmoid_forward, lw_ok_float, NULL, 0, TR_result, 0},
  {"aten::glu", act_glu, lw_ok_float, NULL, 0, TR_result, 0},
  {0},
};
/* clang-format on */
