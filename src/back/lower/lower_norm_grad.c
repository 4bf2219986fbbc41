/* Gradients of normalisations: sums over the normalised dims, the input's gradient as an expression. */
#include "back/lower/lower_reduce.h"

#define ADD(a, b) lw_op2(L, OP_add, a, b)
#define SUB(a, b) lw_op2(L, OP_sub, a, b)
#define MUL(a, b) lw_op2(L, OP_mul, a, b)
#define DIV(a, b) lw_op2(L, OP_div, a, b)

static bool ng_has(const MgNode *n, const char *name) { return lw_arg_val(n, name) != 0; }
static bool ng_used(Lower *L, const MgNode *n, int k) {
  return k < n->nout && n->out[k] && L->val[n->out[k]].uses;
}

/* A tensor argument, read with broadcasting at the point `at` of rank nd. */
static ExprRef ng_at(Lower *L, const MgNode *n, const char *name, const ExprRef *at, int nd, MgTy ty) {
  return mg_ex_cvt(L->x, ty, lw_at_bcast(L, lw_arg_val(n, name), at, nd));
}
static ExprRef ng_channel(Lower *L, const MgNode *n, const char *name, ExprRef c, MgTy ty) {
  return mg_ex_cvt(L->x, ty, lw_at(L, lw_arg_val(n, name), &c));
}

/* A reduction of the gradient (argument 0) over the dims that are marked. */
static LwRed ng_red(Lower *L, const MgNode *n, MgTy ty, const bool *mark) {
  LwRed q = {.L = L, .src = lw_arg_val(n, "grad_out"), .ty = ty, .count = lw_int(L, 1)};
  const MgVal *m = lw_meta(L, q.src);
  q.nd = m->ndim;
  q.size = m->size;
  for (int d = 0; d < q.nd; d++) {
    q.at[d] = mg_ex_idx(L->x, d);
    q.red[d] = mark[d];
    if (mark[d]) q.count = mg_sym_mul(L->x, q.count, m->size[d]);
  }
  return q;
}

static MgTy ng_ty(Lower *L, const MgNode *n) {
  return mg_dtype_compute((MgDtype)lw_meta(L, lw_arg_val(n, "grad_out"))->dtype);
}

/* (g * w - (sum(g w) + xhat * sum(g w xhat)) / N) * rstd, for sums s1 and s2 */
static ExprRef ng_combine(LwRed *q, ExprRef gw, ExprRef xhat, ExprRef rstd, ExprRef s1, ExprRef s2) {
  Lower *L = q->L;
  ExprRef inv = DIV(lw_const(L, q->ty, 1), mg_ex_cvt(L->x, q->ty, q->count));
  return MUL(SUB(gw, MUL(ADD(s1, MUL(xhat, s2)), inv)), rstd);
}

/* The same with sums over the dims of q. */
static MgRc ng_input(LwRed *q, ExprRef gw, ExprRef xhat, ExprRef rstd, ExprRef *out) {
  ExprRef s1, s2;
  Lower *L = q->L;
  TRY(lw_red_temp(q, RED_sum, gw, 0, lw_acc_dtype(q->ty), &s1));
  TRY(lw_red_temp(q, RED_sum, MUL(gw, xhat), 0, lw_acc_dtype(q->ty), &s2));
  *out = ng_combine(q, gw, xhat, rstd, s1, s2);
  return MG_OK;
}

/* Is result k wanted, and in the type of the sums? */
static bool ng_in_full(Lower *L, const MgNode *n, int k, MgTy ty) {
  return ng_used(L, n, k) && lw_meta(L, n->out[k])->dtype == lw_acc_dtype(ty);
}

/* A sum per channel (dim 1): result k of the node where it can be that, else a temporary. */
static MgRc ng_channel_sum(LwRed *q, const MgNode *n, int k, ExprRef body, ExprRef *sum) {
  Lower *L = q->L;
  MgDtype acc = lw_acc_dtype(q->ty);
  if (!ng_in_full(L, n, k, q->ty)) return lw_red_temp(q, RED_sum, body, 0, acc, sum);
  TRY(lw_red_into(q, n->out[k], RED_sum, body, 0));
  *sum = lw_at(L, n->out[k], &q->at[1]);
  return MG_OK;
}

/* native_layer_norm_backward(grad, x, shape, mean, rstd, weight, bias, mask) */
static MgRc ng_layer(Lower *L, MgNode *n, const LwRow *r) {
  MgTy ty = ng_ty(L, n);
  int nd = lw_meta(L, lw_arg_val(n, "grad_out"))->ndim, lead = nd - lw_arg_len(n, "normalized_shape");
  bool inner[LW_MAX_NDIM], outer[LW_MAX_NDIM];
  for (int d = 0; d < nd; d++) inner[d] = !(outer[d] = d < lead);
  TRY(lw_settle(L, lw_arg_val(n, "grad_out")));
  TRY(lw_settle(L, lw_arg_val(n, "input")));
  LwRed qi = ng_red(L, n, ty, inner), qo = ng_red(L, n, ty, outer);
  ExprRef g = lw_red_src(&qi), x = ng_at(L, n, "input", qi.at, nd, ty),
          rstd = ng_at(L, n, "rstd", qi.at, nd, ty);
  ExprRef xhat = MUL(SUB(x, ng_at(L, n, "mean", qi.at, nd, ty)), rstd), gi;
  if (ng_used(L, n, 0)) {
    ExprRef gw = ng_has(n, "weight") ? MUL(g, ng_at(L, n, "weight", qi.at, nd, ty)) : g;
    TRY(ng_input(&qi, gw, xhat, rstd, &gi));
    TRY(lw_define(L, n->out[0], gi));
  }
  if (ng_used(L, n, 1)) TRY(lw_red_into(&qo, n->out[1], RED_sum, MUL(g, xhat), 0));
  if (ng_used(L, n, 2)) TRY(lw_red_into(&qo, n->out[2], RED_sum, g, 0));
  return MG_OK;
}

/* native_batch_norm_backward(grad, x, weight, running_mean, running_var, save_mean,
 * save_invstd, train, eps, mask) */
static MgRc ng_batch(Lower *L, MgNode *n, const LwRow *r) {
  MgTy ty = ng_ty(L, n);
  bool train = lw_arg_bool(n, "train", false), mark[LW_MAX_NDIM];
  int nd = lw_meta(L, lw_arg_val(n, "grad_out"))->ndim;
  for (int d = 0; d < nd; d++) mark[d] = d != 1;
  if (!lw_again(L, lw_arg_val(n, "grad_out"))) TRY(lw_settle(L, lw_arg_val(n, "grad_out")));
  TRY(lw_settle(L, lw_arg_val(n, "input")));
  LwRed q = ng_red(L, n, ty, mark);
  ExprRef c = q.at[1], g = lw_red_src(&q), x = ng_at(L, n, "input", q.at, nd, ty), gi;
  ExprRef eps = lw_const(L, ty, lw_arg_float(L->g, n, "eps", 1e-5));
  ExprRef mean = ng_channel(L, n, train ? "save_mean" : "running_mean", c, ty);
  ExprRef rstd = train ? ng_channel(L, n, "save_invstd", c, ty)
                       : lw_op1(L, OP_rsqrt, ADD(ng_channel(L, n, "running_var", c, ty), eps));
  ExprRef xhat = MUL(SUB(x, mean), rstd);
  bool shared = train && ng_used(L, n, 0); /* the input's gradient takes the other two */
  if (shared) {
    ExprRef s1, s2;
    TRY(ng_channel_sum(&q, n, 2, g, &s1));
    TRY(ng_channel_sum(&q, n, 1, MUL(g, xhat), &s2));
    gi = ng_combine(&q, g, xhat, rstd, s1, s2);
  } else {
    gi = MUL(g, rstd);
  }
  if (ng_used(L, n, 0)) {
    if (ng_has(n, "weight")) gi = MUL(gi, ng_channel(L, n, "weight", c, ty));
    TRY(lw_define(L, n->out[0], gi));
  }
  if (ng_used(L, n, 1) && !(shared && ng_in_full(L, n, 1, ty)))
    TRY(lw_red_into(&q, n->out[1], RED_sum, MUL(g, xhat), 0));
  if (ng_used(L, n, 2) && !(shared && ng_in_full(L, n, 2, ty)))
    TRY(lw_red_into(&q, n->out[2], RED_sum, g, 0));
  return MG_OK;
}
static bool ok_batch(const MgGraph *g, const MgNode *n) {
  bool train = lw_arg_bool(n, "train", false);
  return mg_val(g, lw_arg_val(n, "grad_out"))->ndim >= 2 && ng_has(n, train ? "save_mean" : "running_mean") &&
         ng_has(n, train ? "save_invstd" : "running_var");
}

/* native_group_norm_backward(grad, x, mean, rstd, weight, N, C, HxW, groups, mask).  The nest of the input's
 * gradient sees tensors as [N, groups, C/groups, space...]. */
static MgRc ng_group(Lower *L, MgNode *n, const LwRow *r) {
  ValRef grad = lw_arg_val(n, "grad_out"), src = lw_arg_val(n, "input");
  const MgVal *m = lw_meta(L, src);
  MgTy ty = ng_ty(L, n);
  int nd = m->ndim + 1;
  if (nd > LW_MAX_NDIM) return MG_UNSUP;
  TRY(lw_settle(L, grad));
  TRY(lw_settle(L, src));
  SymRef groups = lw_arg_sym(L, n, "group", 1), per = mg_sym_floordiv(L->x, m->size[1], groups),
         size[LW_MAX_NDIM];
  ExprRef at[LW_MAX_NDIM], to[LW_MAX_NDIM], back[LW_MAX_NDIM], gi;
  bool chan[LW_MAX_NDIM];
  LwRed q = {.L = L, .src = src, .nd = nd, .size = size, .ty = ty, .count = lw_int(L, 1)};
  for (int d = 0; d < nd; d++) {
    size[d] = d == 0 ? m->size[0] : d == 1 ? groups : d == 2 ? per : m->size[d - 1];
    q.at[d] = at[d] = mg_ex_idx(L->x, d);
    q.red[d] = d >= 2;
    chan[d] = d != 1;
    if (d >= 2) q.count = mg_sym_mul(L->x, q.count, size[d]);
    to[d] = d < 1 ? at[0] : mg_ex_idx(L->x, d + 1);
    back[d] = d == 0 ? at[0] : mg_ex_idx(L->x, d - 1);
  }
  to[1] = mg_sym_add(L->x, mg_sym_mul(L->x, at[1], per), at[2]);
  back[1] = mg_sym_floordiv(L->x, at[1], per);
  back[2] = mg_sym_mod(L->x, at[1], per);
  /* over the nest's indices */
  ExprRef stat[2] = {at[0], at[1]}, mean = mg_ex_cvt(L->x, ty, lw_at(L, lw_arg_val(n, "mean"), stat));
  ExprRef rstd = mg_ex_cvt(L->x, ty, lw_at(L, lw_arg_val(n, "rstd"), stat));
  ExprRef g = lw_at(L, grad, to), xhat = MUL(SUB(lw_at(L, src, to), mean), rstd);
  if (ng_used(L, n, 0)) {
    ExprRef gw = ng_has(n, "weight") ? MUL(g, ng_channel(L, n, "weight", to[1], ty)) : g;
    TRY(ng_input(&q, gw, xhat, rstd, &gi));
    TRY(lw_define(L, n->out[0], mg_ex_subst(L->x, gi, back, nd)));
  }
  LwRed c = ng_red(L, n, ty, chan);
  g = lw_red_src(&c);
  if (ng_used(L, n, 1))
    TRY(lw_red_into(&c, n->out[1], RED_sum, MUL(g, mg_ex_subst(L->x, xhat, back, nd)), 0));
  if (ng_used(L, n, 2)) TRY(lw_red_into(&c, n->out[2], RED_sum, g, 0));
  return MG_OK;
}

#define N(name, ok, fn) {"aten::" name, fn, ok, NULL, 0, 0, LWF_multi, NULL},
/* Rows have no commas between them. */
/* clang-format off */
const LwRow lw_rows_norm_grad[] = {
  N("native_layer_norm_backward", NULL, ng_layer)
  {"aten::native_batch_norm_backward", ng_batch, ok_batch, NULL, 0, 0, LWF_multi | LWF_again, NULL},
  N("native_group_norm_backward", NULL, ng_group)
  {0},
};
/* clang-format on */
