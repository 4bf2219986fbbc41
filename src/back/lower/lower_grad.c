/* Pointwise gradients of activation functions and element losses, as autograd's formulas have them. */
#include "back/lower/lower_point.h"
#include <math.h>
#include <string.h>

static ExprRef grad_zero_where(LwPt *p, ExprRef keep, ExprRef g) { return WHERE(keep, g, C(0)); }

static ExprRef grad_threshold(LwPt *p) {
  return WHERE(LE(pt_arg(p, "self"), pt_arg(p, "threshold")), C(0), pt_arg(p, "grad_output"));
}
static ExprRef grad_sigmoid(LwPt *p) {
  ExprRef y = pt_arg(p, "output");
  return MUL(MUL(pt_arg(p, "grad_output"), SUB(C(1), y)), y);
}
static ExprRef grad_tanh(LwPt *p) {
  ExprRef y = pt_arg(p, "output");
  if (p->L->x->numerics == MN_eager) /* ATen's compiler makes one operation of the two */
    return MUL(pt_arg(p, "grad_output"), mg_ex_op(p->L->x, OP_fma, NEG(y), y, C(1)));
  return MUL(pt_arg(p, "grad_output"), SUB(C(1), MUL(y, y)));
}
static ExprRef grad_silu(LwPt *p) {
  ExprRef x = pt_arg(p, "self"), s = pt_sigmoid(p, x);
  return MUL(MUL(pt_arg(p, "grad_output"), s), ADD(C(1), MUL(x, SUB(C(1), s))));
}
static ExprRef grad_gelu(LwPt *p) {
  ExprRef g = pt_arg(p, "grad_output"), x = pt_arg(p, "self");
  const MgArg *a = lw_arg(p->n, "approximate");
  if (a->tag == MA_str && !strcmp(a->u.str, "tanh")) {
    double beta = 0.79788456080286535588, kappa = 0.044715;
    ExprRef x2 = MUL(x, x), inner = MUL(C(beta), ADD(x, MUL(C(kappa), MUL(x2, x)))),
            t = pt_1(p, OP_tanh, inner);
    ExprRef left = MUL(C(0.5), x), right = ADD(C(1), t);
    ExprRef dl = MUL(C(0.5), right), dt = SUB(C(1), MUL(t, t));
    ExprRef di = MUL(C(beta), ADD(C(1), MUL(C(3 * kappa), x2)));
    return MUL(g, ADD(dl, MUL(MUL(left, dt), di)));
  }
  ExprRef cdf = MUL(C(0.5), ADD(C(1), pt_1(p, OP_erf, MUL(x, C(0.70710678118654752440)))));
  ExprRef pdf = MUL(C(0.3989422804014327), EXP(MUL(MUL(x, x), C(-0.5))));
  return MUL(g, ADD(cdf, MUL(x, pdf)));
}
static ExprRef grad_hardswish(LwPt *p) {
  ExprRef g = pt_arg(p, "grad_output"), x = pt_arg(p, "self");
  ExprRef mid = MUL(g, ADD(DIV(x, C(3)), C(0.5)));
  return WHERE(LE(x, C(-3)), C(0), WHERE(LT(x, C(3)), mid, g));
}
static ExprRef grad_hardsigmoid(LwPt *p) {
  ExprRef x = pt_arg(p, "self");
  return grad_zero_where(p, AND(GT(x, C(-3)), LT(x, C(3))), MUL(pt_arg(p, "grad_output"), C(1.0F / 6)));
}
static ExprRef grad_hardtanh(LwPt *p) {
  ExprRef x = pt_arg(p, "self");
  return WHERE(OR(LE(x, pt_arg(p, "min_val")), GE(x, pt_arg(p, "max_val"))), C(0), pt_arg(p, "grad_output"));
}
static ExprRef grad_leaky(LwPt *p) {
  ExprRef g = pt_arg(p, "grad_output");
  return WHERE(GT(pt_arg(p, "self"), C(0)), g, MUL(g, pt_arg(p, "negative_slope")));
}
/* elu_backward(grad, alpha, scale, input_scale, is_result, self or result) */
static ExprRef grad_elu(LwPt *p) {
  ExprRef g = pt_arg(p, "grad_output"), x = pt_arg(p, "self_or_result");
  double alpha = pt_float(p, "alpha", 1), scale = pt_float(p, "scale", 1), in = pt_float(p, "input_scale", 1);
  ExprRef low = lw_arg_bool(p->n, "is_result", false)
                    ? MUL(MUL(g, C(in)), ADD(x, C(alpha * scale)))
                    : MUL(MUL(g, C(in * alpha * scale)), EXP(MUL(x, C(in))));
  return WHERE(LE(x, C(0)), low, MUL(g, C(scale)));
}
static ExprRef grad_softplus(LwPt *p) {
  ExprRef g = pt_arg(p, "grad_output"), x = pt_arg(p, "self"), xb = MUL(x, pt_arg(p, "beta")), z = EXP(xb);
  return WHERE(GT(xb, pt_arg(p, "threshold")), g, DIV(MUL(g, z), ADD(z, C(1))));
}
static ExprRef grad_mish(LwPt *p) {
  ExprRef g = pt_arg(p, "grad_output"), x = pt_arg(p, "self"), s = pt_sigmoid(p, x),
          t = pt_1(p, OP_tanh, pt_1(p, OP_log1p, EXP(x)));
  return MUL(g, ADD(t, MUL(MUL(x, s), SUB(C(1), MUL(t, t)))));
}
static ExprRef grad_hardshrink(LwPt *p) {
  ExprRef x = pt_arg(p, "self"), l = pt_arg(p, "lambd");
  return WHERE(AND(GE(x, NEG(l)), LE(x, l)), C(0), pt_arg(p, lw_either(p->n, "grad_out", "grad_output")));
}
static ExprRef grad_log_sigmoid(LwPt *p) {
  ExprRef x = pt_arg(p, "self"), neg = LT(x, C(0)), z = EXP(NEG(pt_1(p, OP_abs, x)));
  ExprRef d = WHERE(neg, C(1), C(0)), s = WHERE(neg, C(1), C(-1));
  return MUL(pt_arg(p, "grad_output"), SUB(d, MUL(s, DIV(z, ADD(C(1), z)))));
}
static ExprRef grad_dropout(LwPt *p) {
  return MUL(MUL(pt_arg(p, "grad_output"), pt_arg(p, "mask")), pt_arg(p, "scale"));
}
static ExprRef grad_logit(LwPt *p) {
  ExprRef g = pt_arg(p, "grad_output"), x = pt_arg(p, "self"), d = DIV(g, MUL(x, SUB(C(1), x)));
  double eps = pt_has(p, "eps") ? pt_float(p, "eps", 0) : -1;
  if (eps < 0) return WHERE(OR(LT(x, C(0)), GT(x, C(1))), C(NAN), d);
  return WHERE(OR(LT(x, C(eps)), GT(x, C(1 - eps))), C(0), d);
}
/* mean of losses: the gradient is divided by the number of elements */
static ExprRef grad_reduced(LwPt *p, ExprRef e) {
  int64_t red = 0;
  if (lw_arg_int(p->L->g, p->n, "reduction", &red) && red == 1)
    e = DIV(e, mg_ex_cvt(p->L->x, p->ty, mg_val_numel(p->L->g, p->n->out[0])));
  return e;
}
static ExprRef grad_mse(LwPt *p) {
  ExprRef d = MUL(C(2), SUB(pt_arg(p, "self"), pt_arg(p, "target")));
  return grad_reduced(p, MUL(d, pt_arg(p, "grad_output")));
}
static ExprRef grad_huber_like(LwPt *p) { /* op: 1 huber, 0 smooth l1 */
  ExprRef d = SUB(pt_arg(p, "self"), pt_arg(p, "target")), b = pt_arg(p, lw_either(p->n, "delta", "beta")),
          g = pt_arg(p, "grad_output");
  ExprRef top = p->r->op ? b : C(1), mid = p->r->op ? d : DIV(d, b);
  ExprRef e = WHERE(LE(d, NEG(b)), NEG(top), WHERE(GE(d, b), top, mid));
  return grad_reduced(p, MUL(e, g));
}
static ExprRef grad_bce(LwPt *p) {
  ExprRef x = pt_arg(p, "self"), y = pt_arg(p, "target"), den = MAX(MUL(SUB(C(1), x), x), C(1e-12F));
  ExprRef e = DIV(MUL(pt_arg(p, "grad_output"), SUB(x, y)), den);
  if (pt_has(p, "weight")) e = MUL(e, pt_arg(p, "weight"));
  return grad_reduced(p, e);
}

#define G(name, fn, op) {"aten::" name, lw_point, NULL, fn, op, TR_result, 0, NULL},
/* Rows have no commas between them. */
/* clang-format off */
const LwRow lw_rows_grad[] = {
  G("threshold_backward", grad_threshold, 0) G("sigmoid_backward", grad_sigmoid, 0)
  G("tanh_backward", grad_tanh, 0)
  G("silu_backward", grad_silu, 0) G("gelu_backward", grad_gelu, 0) G("hardswish_backward", grad_hardswish, 0)
  G("hardsigmoid_backward", grad_hardsigmoid, 0) G("hardtanh_backward", grad_hardtanh, 0)
  G("leaky_relu_backward", grad_leaky, 0) G("elu_backward", grad_elu, 0)
  G("softplus_backward", grad_softplus, 0)
  G("mish_backward", grad_mish, 0) G("hardshrink_backward", grad_hardshrink, 0)
  G("softshrink_backward", grad_hardshrink, 0) G("log_sigmoid_backward", grad_log_sigmoid, 0)
  G("native_dropout_backward", grad_dropout, 0) G("logit_backward", grad_logit, 0)
  G("mse_loss_backward", grad_mse, 0)
  G("smooth_l1_loss_backward", grad_huber_like, 0) G("huber_loss_backward", grad_huber_like, 1)
  G("binary_cross_entropy_backward", grad_bce, 0)
  {0},
};
/* clang-format on */
