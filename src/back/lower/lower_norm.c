/* Softmax and normalisations: statistics by reductions, the result as an expression
 * that its consumers inline. */
#include "back/lower/lower_reduce.h"
#include <math.h>

#define ADD(a, b) lw_op2(L, OP_add, a, b)
#define SUB(a, b) lw_op2(L, OP_sub, a, b)
#define MUL(a, b) lw_op2(L, OP_mul, a, b)
#define DIV(a, b) lw_op2(L, OP_div, a, b)
#define EXP(a) lw_op1(L, OP_exp, a)
#define C(v) lw_const(L, q.ty, v)

static MgTy norm_ty(Lower *L, ValRef v) { return mg_dtype_compute((MgDtype)lw_meta(L, v)->dtype); }

/* ---- softmax
 * ------------------------------------------------------------------------------------------------------- */

enum { SM_plain, SM_log, SM_safe };

static MgRc norm_softmax(Lower *L, MgNode *n, const LwRow *r) {
  LwRed q;
  ExprRef top, sum;
  if (!lw_red_init(L, n, norm_ty(L, n->out[0]), &q) || !mg_ty_is_float(q.ty)) return MG_UNSUP;
  TRY(lw_settle(L, q.src));
  ExprRef x = lw_red_src(&q);
  TRY(lw_red_temp(&q, RED_max, x, 0, lw_acc_dtype(q.ty), &top));
  ExprRef dead = 0;
  if (r->op == SM_safe) { /* rows of -inf give zeros */
    dead = lw_op2(L, OP_eq, top, C(-INFINITY));
    top = lw_where(L, dead, C(0), top);
  }
  ExprRef d = SUB(x, top);
  TRY(lw_red_temp(&q, RED_sum, EXP(d), 0, lw_acc_dtype(q.ty), &sum));
  ExprRef e = r->op == SM_log ? SUB(d, lw_op1(L, OP_log, sum)) : DIV(EXP(d), sum);
  if (dead) e = lw_where(L, dead, C(0), e);
  return lw_define(L, n->out[0], e);
}

/* Takes the term idx(d) == e, of an e that is the same for all idx(d), out of a conjunction: *at is e, and
 * what is left is the result; 0: there is none. */
static ExprRef norm_place(Lower *L, ExprRef cond, int d, ExprRef *at) {
  const MgExpr n = *mg_expr(L->x, cond);
  if (n.op == OP_eq)
    for (int i = 0; i < 2; i++)
      if (mg_expr(L->x, n.src[i])->op == OP_idx && mg_expr(L->x, n.src[i])->u.i == d &&
          !mg_ex_uses_idx(L->x, n.src[!i], d))
        return *at = n.src[!i], mg_ex_int(L->x, TY_i1, 1);
  for (int i = 0; n.op == OP_and && i < 2; i++) {
    ExprRef rest = norm_place(L, n.src[i], d, at);
    if (rest) return lw_op2(L, OP_and, rest, n.src[!i]);
  }
  return 0;
}

/* The sum of g over its one reduced dimension, where one element of each row is all that is not 0, as of the
 * gradient of a loss of classes; 0: it is nothing of that kind. */
static ExprRef norm_one_hot(LwRed *q, ExprRef g) {
  Lower *L = q->L;
  int d = -1;
  const MgExpr n = *mg_expr(L->x, g);
  ExprRef at = 0;
  double other;
  for (int i = 0; i < q->nd; i++)
    if (q->red[i]) d = d < 0 ? i : q->nd;
  if (d < 0 || d == q->nd || n.op != OP_where || !mg_ex_const_float(L->x, n.src[2], &other) || other != 0)
    return 0;
  ExprRef rest = norm_place(L, n.src[0], d, &at);
  if (!rest || mg_ex_uses_idx(L->x, rest, d) || mg_ex_uses_idx(L->x, n.src[1], d)) return 0;
  ExprRef inside = lw_op2(L, OP_and, lw_op2(L, OP_le, lw_int(L, 0), at), lw_op2(L, OP_lt, at, q->size[d]));
  return lw_where(L, lw_op2(L, OP_and, rest, inside), n.src[1], n.src[2]);
}

/* grad_input = (g - sum(g * y)) * y, or g - exp(y) * sum(g) of log_softmax */
static MgRc norm_softmax_backward(Lower *L, MgNode *n, const LwRow *r) {
  LwRed q;
  if (!lw_red_init(L, n, norm_ty(L, n->out[0]), &q) || !mg_ty_is_float(q.ty)) return MG_UNSUP;
  ExprRef g = lw_red_src(&q), sum = r->op == SM_log ? norm_one_hot(&q, g) : 0;
  if (!sum) TRY(lw_settle(L, q.src));
  TRY(lw_settle(L, lw_arg_val(n, "output")));
  g = lw_red_src(&q);
  ExprRef y = mg_ex_cvt(L->x, q.ty, lw_at(L, lw_arg_val(n, "output"), q.at));
  if (!sum) TRY(lw_red_temp(&q, RED_sum, r->op == SM_log ? g : MUL(g, y), 0, lw_acc_dtype(q.ty), &sum));
  return lw_define(L, n->out[0], r->op == SM_log ? SUB(g, MUL(EXP(y), sum)) : MUL(SUB(g, sum), y));
}

/* ---- mean and variance over chosen dims
 * ---------------------------------------------------------------------------- */

typedef struct Norm { /* statistics of the source over q.red, readable at its indices */
  ExprRef mean, rstd, var;
} Norm;

static MgRc norm_stats(LwRed *p, ExprRef x, double eps, bool centre, Norm *s) {
  LwRed q = *p;
  Lower *L = q.L;
  ExprRef red = mg_ex_red(L->x, q.ty), count = mg_ex_cvt(L->x, q.ty, q.count), d = x;
  MgDtype acc = lw_acc_dtype(q.ty);
  if (centre) {
    TRY(lw_red_temp(p, RED_sum, x, DIV(red, count), acc, &s->mean));
    d = SUB(x, s->mean);
  }
  TRY(lw_red_temp(p, RED_sum, MUL(d, d), DIV(red, count), acc, &s->var));
  s->rstd = lw_op1(L, OP_rsqrt, ADD(s->var, C(eps)));
  return MG_OK;
}

/* A statistic as a result of its own: its dims are the source's, reduced ones of size 1, or left out. */
static MgRc norm_stat_out(LwRed *q, ValRef v, ExprRef stat) {
  if (!v || !q->L->val[v].uses) return MG_OK;
  q->keep = lw_meta(q->L, v)->ndim == q->nd;
  return lw_define(q->L, v, lw_red_outer(q, stat));
}

/* A statistic through a temporary per row, so that it is not computed for every element */
static MgRc norm_once(LwRed *q, ExprRef *stat) {
  Lower *L = q->L;
  SymRef size[LW_MAX_NDIM];
  ExprRef at[LW_MAX_NDIM];
  MgView t;
  MgDtype acc = lw_acc_dtype(q->ty);
  for (int d = 0; d < q->nd; d++) {
    size[d] = q->red[d] ? lw_int(L, 1) : q->size[d];
    at[d] = q->red[d] ? lw_int(L, 0) : q->at[d];
  }
  TRY(lw_temp(L, acc, lw_meta(L, q->src)->device, q->nd, size, NULL, &t));
  TRY(lw_store(L, &t, mg_ex_subst(L->x, *stat, at, q->nd)));
  *stat = mg_ex_load(L->x, mg_dtype_ty(acc), t.buf, mg_view_index(L->x, &t, at), 0, 0);
  return MG_OK;
}

/* Mean and variance by one walk over the source, for a GPU, where the second walk is launches and traffic. In
 * float64 the difference of squares loses nothing that float32 could show. */
static MgRc norm_stats_once(LwRed *q, ExprRef x, double eps, Norm *s) {
  Lower *L = q->L;
  ExprRef wide = mg_ex_cvt(L->x, TY_f64, x), mean, square;
  ExprRef each = DIV(mg_ex_red(L->x, TY_f64), mg_ex_cvt(L->x, TY_f64, q->count));
  TRY(lw_red_temp(q, RED_sum, wide, each, DT_f64, &mean));
  TRY(lw_red_temp(q, RED_sum, MUL(wide, wide), each, DT_f64, &square));
  ExprRef var = lw_op2(L, OP_max, SUB(square, MUL(mean, mean)), lw_const(L, TY_f64, 0));
  s->mean = mg_ex_cvt(L->x, q->ty, mean);
  s->var = mg_ex_cvt(L->x, q->ty, var);
  s->rstd = lw_op1(L, OP_rsqrt, ADD(s->var, lw_const(L, q->ty, eps)));
  TRY(norm_once(q, &s->mean));
  TRY(norm_once(q, &s->var));
  return norm_once(q, &s->rstd);
}

static bool norm_has(const MgNode *n, const char *name) { return lw_arg_val(n, name); }

enum { NORM_layer, NORM_rms };

/* native_layer_norm(x, shape, w, b, eps) -> (y, mean, rstd); rms_norm(x, shape, w, eps) -> (y, rstd) */
static MgRc norm_layer(Lower *L, MgNode *n, const LwRow *r) {
  LwRed q;
  Norm s;
  bool rms = r->op == NORM_rms;
  MgDtype dt = (MgDtype)lw_meta(L, lw_arg_val(n, "input"))->dtype;
  if (!lw_red_init(L, n, mg_dtype_compute(dt), &q) || !mg_ty_is_float(q.ty)) return MG_UNSUP;
  int inner = lw_arg_len(n, "normalized_shape"), lead = q.nd - inner;
  q.count = lw_int(L, 1);
  for (int d = 0; d < q.nd; d++) {
    q.red[d] = d >= lead;
    if (q.red[d]) q.count = mg_sym_mul(L->x, q.count, q.size[d]);
  }
  TRY(lw_settle(L, q.src));
  /* rms_norm without eps takes the epsilon of the type it computes in */
  double eps = lw_arg_float(L->g, n, "eps", dt == DT_f64 ? 2.220446049250313e-16 : 1.1920928955078125e-07);
  ExprRef x = lw_red_src(&q);
  TRY(norm_stats(&q, x, eps, !rms, &s));
  TRY(norm_once(&q, &s.rstd));
  if (n->nout > 1) TRY(norm_stat_out(&q, n->out[1], rms ? s.rstd : s.mean));
  if (n->nout > 2) TRY(norm_stat_out(&q, n->out[2], s.rstd));
  ExprRef y = MUL(rms ? x : SUB(x, s.mean), s.rstd);
  if (norm_has(n, "weight"))
    y = MUL(y, mg_ex_cvt(L->x, q.ty, lw_at_bcast(L, lw_arg_val(n, "weight"), q.at, q.nd)));
  if (norm_has(n, "bias"))
    y = ADD(y, mg_ex_cvt(L->x, q.ty, lw_at_bcast(L, lw_arg_val(n, "bias"), q.at, q.nd)));
  return lw_define(L, n->out[0], y);
}

/* Per-channel operand (one dimension) at the channel index. */
static ExprRef norm_channel(Lower *L, MgNode *n, const char *name, ExprRef c, MgTy ty) {
  return mg_ex_cvt(L->x, ty, lw_at(L, lw_arg_val(n, name), &c));
}

/* native_group_norm(x, w, b, N, C, HxW, groups, eps): statistics of [N, groups] over channels of the group
 * and space. The nest sees the source as [N, groups, C/groups, space...]. */
static MgRc norm_group(Lower *L, MgNode *n, const LwRow *r) {
  ValRef src = lw_arg_val(n, "input"), v = n->out[0];
  const MgVal *m = lw_meta(L, src);
  MgTy ty = mg_dtype_compute((MgDtype)m->dtype);
  SymRef groups = lw_arg_sym(L, n, "group", 1), size[LW_MAX_NDIM];
  int nd = m->ndim + 1;
  if (!mg_ty_is_float(ty) || nd > LW_MAX_NDIM || m->ndim < 2) return MG_UNSUP;
  TRY(lw_settle(L, src));
  LwRed q = {.L = L, .src = src, .nd = nd, .size = size, .ty = ty, .count = lw_int(L, 1)};
  SymRef per = mg_sym_floordiv(L->x, m->size[1], groups);
  for (int d = 0; d < nd; d++) {
    size[d] = d == 0 ? m->size[0] : d == 1 ? groups : d == 2 ? per : m->size[d - 1];
    q.at[d] = mg_ex_idx(L->x, d);
    q.red[d] = d >= 2;
    if (d >= 2) q.count = mg_sym_mul(L->x, q.count, size[d]);
  }
  ExprRef to[LW_MAX_NDIM], back[LW_MAX_NDIM];
  for (int d = 0; d < m->ndim; d++) to[d] = d == 0 ? q.at[0] : q.at[d + 1];
  to[1] = mg_sym_add(L->x, mg_sym_mul(L->x, q.at[1], per), q.at[2]);
  Norm s;
  ExprRef x = lw_at(L, src, to);
  TRY(norm_stats(&q, x, lw_arg_float(L->g, n, "eps", 1e-5), true, &s));
  TRY(norm_once(&q, &s.rstd));
  TRY(norm_stat_out(&q, n->out[1], s.mean));
  TRY(norm_stat_out(&q, n->out[2], s.rstd));
  /* back to the source's own indices */
  ExprRef c = mg_ex_idx(L->x, 1);
  for (int d = 0; d < nd; d++) back[d] = d == 0 ? mg_ex_idx(L->x, 0) : mg_ex_idx(L->x, d - 1);
  back[1] = mg_sym_floordiv(L->x, c, per);
  back[2] = mg_sym_mod(L->x, c, per);
  ExprRef at[LW_MAX_NDIM];
  for (int d = 0; d < m->ndim; d++) at[d] = mg_ex_idx(L->x, d);
  ExprRef y =
      MUL(SUB(lw_at(L, src, at), mg_ex_subst(L->x, s.mean, back, nd)), mg_ex_subst(L->x, s.rstd, back, nd));
  if (norm_has(n, "weight")) y = MUL(y, norm_channel(L, n, "weight", c, ty));
  if (norm_has(n, "bias")) y = ADD(y, norm_channel(L, n, "bias", c, ty));
  return lw_define(L, v, y);
}

/* ---- batch norm
 * ---------------------------------------------------------------------------------------------------- */

/* Overloads differ in what they have: running statistics, `training`, and of BN_functional alone the results
 * with updated running statistics. */
enum { BN_native, BN_functional, BN_other, BN_cudnn };
enum { BN_out_mean = 3, BN_out_var = 4 }; /* those results */

static MgRc norm_batch_stats(LwRed *q, ExprRef x, double eps, Norm *s) {
  if (q->L->gpu && q->ty == TY_f32) return norm_stats_once(q, x, eps, s);
  TRY(norm_stats(q, x, eps, true, s));
  return norm_once(q, &s->rstd);
}

static MgRc norm_batch(Lower *L, MgNode *n, const LwRow *r) {
  ValRef v = n->out[0];
  bool train = lw_arg_bool(n, "training", false), updates = r->op == BN_functional;
  double eps = lw_arg_float(L->g, n, lw_either(n, "eps", "epsilon"), 1e-5);
  LwRed q;
  Norm s;
  if (!lw_red_init(L, n, norm_ty(L, lw_arg_val(n, "input")), &q) || !mg_ty_is_float(q.ty) || q.nd < 2)
    return MG_UNSUP;
  q.red[1] = false;
  q.count = lw_int(L, 1);
  for (int d = 0; d < q.nd; d++)
    if (q.red[d]) q.count = mg_sym_mul(L->x, q.count, q.size[d]);
  if (train) TRY(lw_settle(L, q.src));
  ExprRef x = lw_red_src(&q), c = q.at[1];
  if (train) {
    TRY(norm_batch_stats(&q, x, eps, &s));
    if (n->nout > 1) TRY(norm_stat_out(&q, n->out[1], s.mean));
    if (n->nout > 2) TRY(norm_stat_out(&q, n->out[2], s.rstd));
    if (updates &&
        norm_has(n, "running_mean")) { /* running = (1 - m) * running + m * batch, variance unbiased */
      double mom = lw_arg_float(L->g, n, "momentum", 0.1);
      ExprRef ch = mg_ex_idx(L->x, 0), count = mg_ex_cvt(L->x, q.ty, q.count);
      q.keep = false;
      ExprRef mean = lw_red_outer(&q, s.mean),
              var = MUL(lw_red_outer(&q, s.var), DIV(count, SUB(count, C(1))));
      ExprRef om = norm_channel(L, n, "running_mean", ch, q.ty),
              ov = norm_channel(L, n, "running_var", ch, q.ty);
      TRY(lw_define(L, n->out[BN_out_mean], ADD(MUL(om, C(1 - mom)), MUL(mean, C(mom)))));
      TRY(lw_define(L, n->out[BN_out_var], ADD(MUL(ov, C(1 - mom)), MUL(var, C(mom)))));
    }
  } else {
    if (!norm_has(n, "running_mean") || !norm_has(n, "running_var")) return MG_UNSUP;
    s.mean = norm_channel(L, n, "running_mean", c, q.ty);
    s.rstd = lw_op1(L, OP_rsqrt, ADD(norm_channel(L, n, "running_var", c, q.ty), C(eps)));
    if (!L->gpu) TRY(norm_once(&q, &s.rstd)); /* one more launch costs more than a root for each point */
    for (int k = 1; k < n->nout; k++) { /* statistics that were not taken are empty; running ones stay */
      ValRef o = n->out[k];
      if (!o || !L->val[o].uses) continue;
      ValRef running = updates && k == BN_out_mean  ? lw_arg_val(n, "running_mean")
                       : updates && k == BN_out_var ? lw_arg_val(n, "running_var")
                                                    : 0;
      ExprRef at = mg_ex_idx(L->x, 0);
      TRY(lw_define(L, o, running ? lw_at(L, running, &at) : lw_const(L, norm_ty(L, o), 0)));
    }
  }
  ExprRef y = MUL(SUB(x, s.mean), s.rstd);
  if (norm_has(n, "weight")) y = MUL(y, norm_channel(L, n, "weight", c, q.ty));
  if (norm_has(n, "bias")) y = ADD(y, norm_channel(L, n, "bias", c, q.ty));
  return lw_define(L, v, y);
}
/* Statistics that eval mode does not take come back empty on the CPU; elsewhere they
 * may have contents: eager's. */
static bool ok_batch(const MgGraph *g, const MgNode *n) {
  const LwRow *r = lw_row(n->op->full);
  bool train = lw_arg_bool(n, "training", false), updates = r->op == BN_functional;
  if (r->op == BN_native && train && lw_arg_val(n, "running_mean"))
    return false; /* updates running statistics behind our back */
  if (r->op == BN_cudnn && train) return false;
  for (int k = 1; !train && k < n->nout; k++)
    if (n->out[k] && !(updates && (k == BN_out_mean || k == BN_out_var)) &&
        !mg_sym_is(g->x, mg_val_numel((MgGraph *)g, n->out[k]), 0))
      return false;
  return true;
}

#define N(name, ok, fn, op) {"aten::" name, fn, ok, NULL, op, 0, LWF_multi, NULL},
/* Rows have no commas between them. */
/* clang-format off */
const LwRow lw_rows_norm[] = {
  N("_softmax", NULL, norm_softmax, SM_plain) N("softmax.int", NULL, norm_softmax, SM_plain)
  N("_log_softmax", NULL, norm_softmax, SM_log) N("log_softmax.int", NULL, norm_softmax, SM_log)
  N("_safe_softmax", NULL, norm_softmax, SM_safe)
  N("_softmax_backward_data", NULL, norm_softmax_backward, SM_plain)
  {"aten::_log_softmax_backward_data", norm_softmax_backward, NULL, NULL, SM_log, 0, LWF_multi | LWF_again, NULL},
  N("native_layer_norm", NULL, norm_layer, NORM_layer) N("layer_norm", NULL, norm_layer, NORM_layer)
  N("rms_norm", NULL, norm_layer, NORM_rms) N("_fused_rms_norm", NULL, norm_layer, NORM_rms)
  N("native_group_norm", NULL, norm_group, 0)
  N("native_batch_norm", ok_batch, norm_batch, BN_native)
  N("_native_batch_norm_legit_no_training", ok_batch, norm_batch, BN_other)
  N("_native_batch_norm_legit_functional", ok_batch, norm_batch, BN_functional)
  N("_native_batch_norm_legit.no_stats", ok_batch, norm_batch, BN_other)
  {"aten::cudnn_batch_norm", norm_batch, ok_batch, NULL, BN_cudnn, 0, LWF_multi | LWF_few, NULL},
  {0},
};
/* clang-format on */
