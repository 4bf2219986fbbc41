/* Element losses with a reduction argument, and negative log likelihood. */
#include "back/lower/lower_point.h"
#include <math.h>
#include <string.h>

enum { LOSS_none, LOSS_mean, LOSS_sum }; /* torch's reduction codes */

/* ---- losses of two tensors
 * ------------------------------------------------------------------------------------------ */

/* r->expr builds one element's loss */
static MgRc loss_elements(Lower *L, MgNode *n, const LwRow *r) {
  ValRef a = lw_arg_val(n, "self"), b = lw_arg_val(n, "target"), v = n->out[0];
  const MgVal *ma = lw_meta(L, a), *mb = lw_meta(L, b);
  int64_t red = LOSS_mean;
  lw_arg_int(L->g, n, "reduction", &red);
  LwPt p = {.L = L, .n = n, .r = r, .ndim = ma->ndim > mb->ndim ? ma->ndim : mb->ndim};
  p.ty = mg_dtype_compute((MgDtype)lw_meta(L, v)->dtype);
  SymRef size[LW_MAX_NDIM], count = lw_int(L, 1);
  bool all[LW_MAX_NDIM];
  for (int d = 0; d < p.ndim; d++) {
    int ka = d - (p.ndim - ma->ndim), kb = d - (p.ndim - mb->ndim);
    size[d] = ka >= 0 && (kb < 0 || !mg_sym_is(L->x, ma->size[ka], 1)) ? ma->size[ka] : mb->size[kb];
    count = mg_sym_mul(L->x, count, size[d]);
    p.at[d] = mg_ex_idx(L->x, d);
    all[d] = true;
  }
  ExprRef e = r->expr(&p);
  if (!e) return L->c->rc ? L->c->rc : MG_NOMEM;
  if (red == LOSS_none) return lw_define(L, v, e);
  ExprRef value = mg_ex_red(L->x, p.ty);
  if (red == LOSS_mean) value = lw_op2(L, OP_div, value, mg_ex_cvt(L->x, p.ty, count));
  MgView out;
  TRY(lw_buffer(L, v, &out));
  TRY(lw_reduce(L, RED_sum, e, p.ndim, size, all, value, &out, false));
  lw_define_view(L, v, &out);
  return MG_OK;
}

static ExprRef loss_mse(LwPt *p) {
  ExprRef d = SUB(pt_arg(p, "self"), pt_arg(p, "target"));
  return MUL(d, d);
}
static ExprRef loss_smooth_l1(LwPt *p) { /* (self, target, reduction, beta) */
  ExprRef d = pt_1(p, OP_abs, SUB(pt_arg(p, "self"), pt_arg(p, "target")));
  double beta = pt_float(p, "beta", 1);
  if (beta == 0) return d;
  return WHERE(LT(d, C(beta)), DIV(MUL(MUL(C(0.5), d), d), C(beta)), SUB(d, C(0.5 * beta)));
}
static ExprRef loss_huber(LwPt *p) { /* (self, target, reduction, delta) */
  ExprRef d = pt_1(p, OP_abs, SUB(pt_arg(p, "self"), pt_arg(p, "target")));
  double k = pt_float(p, "delta", 1);
  return WHERE(LE(d, C(k)), MUL(MUL(C(0.5), d), d), MUL(C(k), SUB(d, C(0.5 * k))));
}
static ExprRef loss_bce(LwPt *p) { /* (self, target, weight, reduction) */
  ExprRef x = pt_arg(p, "self"), y = pt_arg(p, "target"), low = C(-100);
  const MgVal *m = lw_meta(p->L, lw_arg_val(p->n, "self"));
  ExprRef bad = lw_op1(p->L, OP_not, AND(LE(C(0), x), LE(x, C(1)))); /* NaN is bad */
  if (lw_check(p->L, bad, m->size, m->ndim, "RuntimeError",
               "all elements of input should be between 0 and 1") != MG_OK)
    return 0;
  ExprRef l1 = MAX(pt_1(p, OP_log, x), low), l0 = MAX(pt_1(p, OP_log1p, NEG(x)), low);
  ExprRef e = SUB(MUL(SUB(y, C(1)), l0), MUL(y, l1));
  return pt_has(p, "weight") ? MUL(e, pt_arg(p, "weight")) : e;
}
static ExprRef loss_bce_logits(LwPt *p) { /* (self, target, weight, pos_weight, reduction) */
  ExprRef x = pt_arg(p, "self"), y = pt_arg(p, "target");
  ExprRef ls = SUB(MIN(x, C(0)), pt_1(p, OP_log1p, EXP(NEG(pt_1(p, OP_abs, x))))), w = C(1);
  if (pt_has(p, "pos_weight")) w = ADD(C(1), MUL(SUB(pt_arg(p, "pos_weight"), C(1)), y));
  ExprRef e = SUB(MUL(SUB(C(1), y), x), MUL(w, ls));
  return pt_has(p, "weight") ? MUL(e, pt_arg(p, "weight")) : e;
}
static ExprRef loss_soft_margin(LwPt *p) {
  return pt_1(p, OP_log1p, EXP(NEG(MUL(pt_arg(p, "target"), pt_arg(p, "self")))));
}

/* ---- nll_loss(self, target, weight, reduction, ignore_index)
 * -------------------------------------------------------- */

typedef struct Nll {
  Lower *L;
  ValRef self, target;
  MgTy ty;
  int nd, cls; /* of self; its class dimension */
  SymRef classes, ignore;
  ExprRef at[LW_MAX_NDIM]; /* target's indices */
  ExprRef t, w;            /* class, in range; its weight: 0 where the target is ignored */
} Nll;

/* at: self's indices without the class */
static MgRc nll_init(Lower *L, MgNode *n, ValRef self, const ExprRef *at, bool check, Nll *q) {
  const MgVal *m = lw_meta(L, self);
  *q = (Nll){
      .L = L, .self = self, .target = lw_arg_val(n, "target"), .nd = m->ndim, .cls = m->ndim > 1 ? 1 : 0};
  const MgVal *mt = lw_meta(L, q->target);
  if (mt->ndim != m->ndim - 1 && !(m->ndim == 1 && mt->ndim <= 1)) return MG_UNSUP;
  q->ty = mg_dtype_compute((MgDtype)m->dtype);
  q->classes = m->size[q->cls];
  q->ignore = lw_arg_sym(L, n, "ignore_index", -100);
  TRY(lw_settle(L, q->target));
  ExprRef own[LW_MAX_NDIM], zero = lw_int(L, 0);
  for (int d = 0; d < mt->ndim; d++) {
    q->at[d] = m->ndim == 1 ? zero : at[d];
    own[d] = mg_ex_idx(L->x, d);
  }
  ExprRef t = mg_ex_cvt(L->x, TY_i64, lw_at(L, q->target, q->at)), used = lw_op2(L, OP_ne, t, q->ignore);
  if (check) {
    ExprRef o = mg_ex_cvt(L->x, TY_i64, lw_at(L, q->target, own));
    ExprRef bad =
        lw_op2(L, OP_and, lw_op2(L, OP_ne, o, q->ignore), lw_op1(L, OP_not, lw_in_range(L, o, q->classes)));
    TRY(lw_check(L, bad, mt->size, mt->ndim, "IndexError", "nll_loss: target is out of bounds"));
  }
  used = lw_op2(L, OP_and, used, lw_in_range(L, t, q->classes));
  q->t = lw_where(L, used, t, zero);
  ExprRef w = lw_const(L, q->ty, 1);
  if (lw_arg_val(n, "weight")) w = mg_ex_cvt(L->x, q->ty, lw_at(L, lw_arg_val(n, "weight"), &q->t));
  q->w = lw_where(L, used, w, lw_const(L, q->ty, 0));
  return MG_OK;
}

static MgRc nll_forward(Lower *L, MgNode *n, const LwRow *r) {
  ValRef self = lw_arg_val(n, "self"), v = n->out[0], total = n->out[1];
  const MgVal *m = lw_meta(L, self);
  int64_t red = LOSS_mean;
  lw_arg_int(L->g, n, "reduction", &red);
  ExprRef at[LW_MAX_NDIM], to[LW_MAX_NDIM];
  SymRef size[LW_MAX_NDIM];
  bool all[LW_MAX_NDIM];
  for (int d = 0; d < m->ndim; d++) {
    at[d] = mg_ex_idx(L->x, d);
    all[d] = true;
  }
  if (!L->gpu) TRY(lw_settle(L, self));
  Nll q;
  TRY(nll_init(L, n, self, at, true, &q));
  for (int d = 0, o = 0; d < m->ndim; d++) {
    to[d] = d == q.cls ? q.t : at[o];
    if (d != q.cls) size[o++] = m->size[d];
  }
  int nd = m->ndim - 1;
  ExprRef zero = lw_const(L, q.ty, 0), loss = lw_op1(L, OP_neg, lw_op2(L, OP_mul, lw_at(L, self, to), q.w));
  loss = lw_where(L, lw_op2(L, OP_eq, q.w, zero), zero, loss);
  if (red == LOSS_none && m->ndim == 1) red = LOSS_sum; /* one sample: ATen adds up its one term */
  bool used_total = total && L->val[total].uses;
  if (red == LOSS_none) {
    if (used_total) TRY(lw_define(L, total, zero));
    return lw_define(L, v, loss);
  }
  MgView out, tot;
  ExprRef value = mg_ex_red(L->x, q.ty);
  if (used_total) TRY(lw_buffer(L, total, &tot));
  else if (red == LOSS_mean)
    TRY(lw_temp(L, q.ty == TY_f64 ? DT_f64 : DT_f32, m->device, 0, NULL, "weight", &tot));
  if (used_total || red == LOSS_mean) TRY(lw_reduce(L, RED_sum, q.w, nd, size, all, 0, &tot, false));
  if (red == LOSS_mean) {
    ExprRef w = mg_ex_load(L->x, mg_dtype_ty((MgDtype)tot.dtype), tot.buf, tot.offset, 0, 0);
    value = lw_op2(L, OP_div, value, mg_ex_cvt(L->x, q.ty, w));
  }
  if (used_total) lw_define_view(L, total, &tot);
  if (!L->val[v].uses) return MG_OK;
  TRY(lw_buffer(L, v, &out));
  TRY(lw_reduce(L, RED_sum, loss, nd, size, all, value, &out, false));
  lw_define_view(L, v, &out);
  return MG_OK;
}
static bool ok_nll(const MgGraph *g, const MgNode *n) {
  ValRef t = lw_arg_val(n, "target");
  return t && lw_ok_float(g, n) && mg_val(g, t)->dtype == DT_i64 &&
         mg_val(g, t)->ndim == mg_val(g, lw_arg_val(n, "self"))->ndim - 1;
}

/* nll_loss_backward(grad, self, target, weight, reduction, ignore_index, total_weight) */
static MgRc nll_backward(Lower *L, MgNode *n, const LwRow *r) {
  ValRef self = lw_arg_val(n, "self");
  const MgVal *m = lw_meta(L, self);
  int64_t red = LOSS_mean;
  lw_arg_int(L->g, n, "reduction", &red);
  ExprRef at[LW_MAX_NDIM];
  int cls = m->ndim > 1 ? 1 : 0;
  for (int d = 0, o = 0; d < m->ndim; d++)
    if (d != cls) at[o++] = mg_ex_idx(L->x, d);
  Nll q;
  TRY(nll_init(L, n, self, at, false, &q));
  ExprRef g = mg_ex_cvt(L->x, q.ty, lw_at_bcast(L, lw_arg_val(n, "grad_output"), q.at, m->ndim - 1));
  ExprRef e = lw_op2(L, OP_mul, lw_op1(L, OP_neg, q.w), g);
  if (red == LOSS_mean)
    e = lw_op2(L, OP_div, e, mg_ex_cvt(L->x, q.ty, lw_at(L, lw_arg_val(n, "total_weight"), NULL)));
  ExprRef here = lw_op2(L, OP_eq, mg_ex_idx(L->x, cls), q.t), zero = lw_const(L, q.ty, 0);
  ExprRef on = lw_op2(L, OP_and, here, lw_op2(L, OP_ne, q.w, zero));
  return lw_define(L, n->out[0], lw_where(L, on, e, zero));
}
static bool ok_nll_backward(const MgGraph *g, const MgNode *n) {
  ValRef t = lw_arg_val(n, "target");
  return t && mg_val(g, t)->dtype == DT_i64 &&
         mg_val(g, t)->ndim == mg_val(g, lw_arg_val(n, "self"))->ndim - 1 &&
         (lw_arg_val(n, "total_weight") && mg_val(g, lw_arg_val(n, "total_weight"))->ndim == 0);
}

#define E(name, fn) {"aten::" name, loss_elements, lw_ok_float, fn, 0, TR_result, LWF_multi, NULL},
/* Rows have no commas between them. */
/* clang-format off */
const LwRow lw_rows_loss[] = {
  E("mse_loss", loss_mse) E("smooth_l1_loss", loss_smooth_l1) E("huber_loss", loss_huber)
  E("binary_cross_entropy", loss_bce) E("binary_cross_entropy_with_logits", loss_bce_logits)
  E("soft_margin_loss", loss_soft_margin)
  {"aten::nll_loss_forward", nll_forward, ok_nll, NULL, 0, 0, LWF_multi | LWF_few, NULL},
  {"aten::nll_loss2d_forward", nll_forward, ok_nll, NULL, 0, 0, LWF_multi | LWF_few, NULL},
  {"aten::nll_loss_backward", nll_backward, ok_nll_backward, NULL, 0, 0, 0, NULL},
  {"aten::nll_loss2d_backward", nll_backward, ok_nll_backward, NULL, 0, 0, 0, NULL},
  {0},
};
/* clang-format on */
