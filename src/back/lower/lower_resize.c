/* Resampling: nearest, (bi-, tri-)linear and cubic upsampling and their gradients, in ATen's arithmetic
 * (positions in the type of the scale, f32 unless the tensor is f64). */
#include "back/lower/lower_reduce.h"
#include "tuning.h"
#include <math.h>

typedef struct Resize {
  Lower *L;
  MgNode *n;
  const SymRef *in, *out; /* sizes of source and result */
  int s, lead;            /* space dims, dims before them */
  MgTy acc;               /* type of positions */
} Resize;

static bool resize_init(Lower *L, MgNode *n, int s, const MgVal *in, const MgVal *out, Resize *z) {
  *z = (Resize){L, n, in->size, out->size, s, in->ndim - s, in->dtype == DT_f64 ? TY_f64 : TY_f32};
  return z->lead == 2;
}

/* The user's scale factor of space dim k; 0 when none was given. */
static double resize_given(Resize *z, int k) {
  static const char *const name[][3] = {
      {"scales"}, {"scales_h", "scales_w"}, {"scales_d", "scales_h", "scales_w"}};
  const MgArg *all = lw_arg(z->n, "scale_factors"), *a = lw_arg(z->n, name[z->s - 1][k]);
  if (all->tag == MA_list && k < (int)all->n) a = &all->u.item[k]; /* of the .vec overloads */
  int64_t i;
  if (a->tag == MA_float) return a->u.f;
  return a->tag == MA_int && mg_ex_const_int(z->L->x, a->u.sym, &i) ? (double)i : 0;
}

/* in / out, or 1 / the given factor */
static ExprRef resize_scale(Resize *z, int k) {
  Lower *L = z->L;
  double f = resize_given(z, k);
  if (f > 0) return mg_ex_cvt(L->x, z->acc, mg_ex_float(L->x, TY_f64, 1.0 / f));
  int d = z->lead + k;
  return lw_op2(L, OP_div, mg_ex_cvt(L->x, z->acc, z->in[d]), mg_ex_cvt(L->x, z->acc, z->out[d]));
}

static ExprRef resize_clamp(Lower *L, ExprRef i, SymRef n) {
  return mg_sym_min(L->x, i, mg_sym_sub(L->x, n, lw_int(L, 1)));
}

/* One source position along each space dim and its weight; a result is the weighted sum over all of them. */
typedef struct Tap {
  ExprRef i, w;
} Tap; /* w 0: weight one */
typedef struct Taps {
  Tap t[3][4];
  int n;
} Taps; /* per space dim, n taps */

/* nearest takes floor(i * scale), exact floor((i + 0.5) * scale) */
static void resize_taps_nearest(Resize *z, bool exact, Taps *out) {
  Lower *L = z->L;
  out->n = 1;
  for (int k = 0; k < z->s; k++) {
    int d = z->lead + k;
    int64_t a, b;
    SymRef in = z->in[d], to = z->out[d];
    ExprRef at = mg_ex_idx(L->x, d);
    out->t[k][0] = (Tap){at, 0};
    double f = resize_given(z, k);
    if (mg_ex_same(in, to) && !(exact && f > 0)) continue; /* ATen copies this dimension */
    bool whole = mg_ex_const_int(L->x, in, &a) && mg_ex_const_int(L->x, to, &b) && a > 0 && b % a == 0 &&
                 ((b / a) & (b / a - 1)) == 0;
    if (whole && (f == 0 || f == (double)(b / a))) { /* powers of two: the float product is exact */
      out->t[k][0].i = mg_sym_floordiv(L->x, at, lw_int(L, b / a));
      continue;
    }
    ExprRef i = mg_ex_cvt(L->x, z->acc, at);
    if (exact) i = lw_op2(L, OP_add, i, lw_const(L, z->acc, 0.5));
    i = lw_op1(L, OP_floor, lw_op2(L, OP_mul, i, resize_scale(z, k)));
    out->t[k][0].i = resize_clamp(L, mg_ex_cvt(L->x, TY_i64, i), in);
  }
}

/* Where result position idx(d) lies in the source: corners aligned, or pixel centres. */
static ExprRef resize_pos(Resize *z, int k, bool corners, bool clip) {
  Lower *L = z->L;
  int d = z->lead + k;
  SymRef in = z->in[d], out = z->out[d], one = lw_int(L, 1);
  ExprRef i = mg_ex_cvt(L->x, z->acc, mg_ex_idx(L->x, d)), zero = lw_const(L, z->acc, 0),
          half = lw_const(L, z->acc, 0.5);
  if (corners) {
    if (mg_sym_is(L->x, out, 1)) return zero;
    SymRef den = mg_sym_max(L->x, mg_sym_sub(L->x, out, one), one);
    ExprRef sc =
        lw_op2(L, OP_div, mg_ex_cvt(L->x, z->acc, mg_sym_sub(L->x, in, one)), mg_ex_cvt(L->x, z->acc, den));
    return lw_op2(L, OP_mul, sc, i);
  }
  /* one rounding, as in ATen's kernels: at -0.5 + 0.5 it decides whether a neighbour has any weight */
  ExprRef pos =
      mg_ex_op(L->x, OP_fma, resize_scale(z, k), lw_op2(L, OP_add, i, half), lw_const(L, z->acc, -0.5));
  return clip ? lw_op2(L, OP_max, pos, zero) : pos;
}

static void resize_taps_linear(Resize *z, bool corners, Taps *out) {
  Lower *L = z->L;
  ExprRef one = lw_const(L, z->acc, 1), zero = lw_const(L, z->acc, 0);
  out->n = 2;
  for (int k = 0; k < z->s; k++) {
    SymRef in = z->in[z->lead + k];
    ExprRef at = mg_ex_idx(L->x, z->lead + k), pos = resize_pos(z, k, corners, true);
    if (mg_ex_same(
            in,
            z->out[z->lead + k])) { /* ATen's second tap is the element itself: seen where it is infinite */
      out->t[k][0] = (Tap){at, one};
      out->t[k][1] = (Tap){at, zero};
      continue;
    }
    ExprRef i0 = resize_clamp(L, mg_ex_cvt(L->x, TY_i64, pos), in);
    ExprRef w1 = lw_op2(L, OP_sub, pos, mg_ex_cvt(L->x, z->acc, i0));
    w1 = lw_op2(L, OP_min, lw_op2(L, OP_max, w1, zero), one);
    out->t[k][0] = (Tap){i0, lw_op2(L, OP_sub, one, w1)};
    out->t[k][1] = (Tap){resize_clamp(L, mg_sym_add(L->x, i0, lw_int(L, 1)), in), w1};
  }
}

/* Keys' cubic with A = -0.75: |x| <= 1, and 1 < |x| < 2 */
static ExprRef cubic_near(Lower *L, MgTy ty, ExprRef x) {
  double a = -0.75;
  ExprRef e = lw_op2(L, OP_sub, lw_op2(L, OP_mul, lw_const(L, ty, a + 2), x), lw_const(L, ty, a + 3));
  return lw_op2(L, OP_add, lw_op2(L, OP_mul, lw_op2(L, OP_mul, e, x), x), lw_const(L, ty, 1));
}
static ExprRef cubic_far(Lower *L, MgTy ty, ExprRef x) {
  double a = -0.75;
  ExprRef e = lw_op2(L, OP_sub, lw_op2(L, OP_mul, lw_const(L, ty, a), x), lw_const(L, ty, 5 * a));
  e = lw_op2(L, OP_add, lw_op2(L, OP_mul, e, x), lw_const(L, ty, 8 * a));
  return lw_op2(L, OP_sub, lw_op2(L, OP_mul, e, x), lw_const(L, ty, 4 * a));
}

static void resize_taps_cubic(Resize *z, bool corners, Taps *out) {
  Lower *L = z->L;
  ExprRef one = lw_const(L, z->acc, 1), two = lw_const(L, z->acc, 2);
  out->n = 4;
  for (int k = 0; k < z->s; k++) {
    SymRef in = z->in[z->lead + k];
    ExprRef pos = resize_pos(z, k, corners, false), fl = lw_op1(L, OP_floor, pos),
            t = lw_op2(L, OP_sub, pos, fl);
    ExprRef i = mg_ex_cvt(L->x, TY_i64, fl), u = lw_op2(L, OP_sub, one, t);
    ExprRef w[4] = {cubic_far(L, z->acc, lw_op2(L, OP_add, t, one)), cubic_near(L, z->acc, t),
                    cubic_near(L, z->acc, u), cubic_far(L, z->acc, lw_op2(L, OP_sub, two, t))};
    for (int j = 0; j < 4; j++)
      out->t[k][j] = (Tap){
          mg_sym_max(L->x, resize_clamp(L, mg_sym_add(L->x, i, lw_int(L, j - 1)), in), lw_int(L, 0)), w[j]};
  }
}

enum { RS_nearest, RS_exact, RS_linear, RS_cubic };
/* Kind and space dims of a row's op. */
#define RS(kind, s) ((kind) * 4 + (s))

static bool resize_taps(Resize *z, int kind, Taps *t) {
  bool corners = lw_arg_bool(z->n, "align_corners", false);
  if (kind == RS_linear) resize_taps_linear(z, corners, t);
  else if (kind == RS_cubic) resize_taps_cubic(z, corners, t);
  else resize_taps_nearest(z, kind == RS_exact, t);
  return true;
}

/* Combination c of taps: source indices into at[], the product of weights (0: one). */
static ExprRef resize_tap(Resize *z, const Taps *t, int c, ExprRef *at) {
  ExprRef w = 0;
  for (int k = z->s; k-- > 0; c /= t->n) {
    Tap p = t->t[k][c % t->n];
    at[z->lead + k] = p.i;
    if (p.w) w = w ? lw_op2(z->L, OP_mul, p.w, w) : p.w;
  }
  return w;
}

static int resize_combinations(const Resize *z, const Taps *t) {
  int n = 1;
  for (int k = 0; k < z->s; k++) n *= t->n;
  return n;
}

/* src, over the sizes up to dim k of the result and then of the source, resampled along space dim k. */
static ExprRef resize_along(Resize *z, const Taps *t, int k, ExprRef src) {
  Lower *L = z->L;
  ExprRef to[LW_MAX_NDIM] = {0}, sum = 0;
  for (int j = 0; j < t->n; j++) {
    Tap p = t->t[k][j];
    to[z->lead + k] = p.i;
    ExprRef e = mg_ex_subst(L->x, src, to, z->lead + k + 1);
    if (p.w) e = lw_op2(L, OP_mul, mg_ex_cvt(L->x, z->acc, e), p.w);
    sum = sum ? lw_op2(L, OP_add, sum, e) : e;
  }
  return sum;
}

/* Puts what is resampled up to space dim k into memory. */
static MgRc resize_keep(Resize *z, int k, ExprRef e, ExprRef *read) {
  Lower *L = z->L;
  SymRef size[LW_MAX_NDIM];
  ExprRef at[LW_MAX_NDIM];
  MgView out;
  int nd = z->lead + z->s;
  for (int d = 0; d < nd; d++) size[d] = d <= z->lead + k ? z->out[d] : z->in[d], at[d] = mg_ex_idx(L->x, d);
  TRY(lw_temp(L, lw_acc_dtype(z->acc), lw_meta(L, z->n->out[0])->device, nd, size, "resized", &out));
  TRY(lw_store(L, &out, e));
  *read = mg_ex_load(L->x, z->acc, out.buf, mg_view_index(L->x, &out, at), 0, 0);
  return MG_OK;
}

/* (self, output_size, [align_corners], scales ...), or (.., scale list) of the .vec overloads */
static MgRc resize_forward(Lower *L, MgNode *n, const LwRow *r) {
  Resize z;
  Taps t;
  int kind = r->op / 4;
  const MgVal *ms = lw_meta(L, lw_first(n)), *mo = lw_meta(L, n->out[0]);
  if (!resize_init(L, n, r->op % 4, ms, mo, &z)) return MG_UNSUP;
  TRY(lw_settle(L, lw_first(n)));
  resize_taps(&z, kind, &t);
  ExprRef at[LW_MAX_NDIM];
  for (int d = 0; d < ms->ndim; d++) at[d] = mg_ex_idx(L->x, d);
  ExprRef src = lw_at(L, lw_first(n), at);
  for (int k = 0; k < z.s; k++) { /* dimension after dimension: the taps add up, they do not multiply */
    ExprRef sum = resize_along(&z, &t, k, src);
    if (k + 1 < z.s && t.n > 1) TRY(resize_keep(&z, k, sum, &src));
    else src = sum;
  }
  return lw_define(L, n->out[0], src);
}

/* The results whose taps may meet source x along space dim k: `many` from first(x) on, which
 * is (x * mul + add) // div - less.  What is divided is never negative. */
typedef struct Reach {
  int64_t many, mul, add, div, less;
} Reach;

/* A line at or below the first result that meets x, `slack` results further below: the first one with
 * (r + 0.5) * in / to - 0.5 > x - 1, or 2; with aligned corners r * (in - 1) / (to - 1) > x - 1, or 2. */
static Reach reach_line(int64_t in, int64_t to, bool cubic, bool corners, int slack) {
  int64_t taps = cubic ? 2 : 1;
  Reach q = corners ? (Reach){.mul = to - 1, .add = -taps * (to - 1), .div = in > 1 ? in - 1 : 1}
                    : (Reach){.mul = 2 * to, .add = (1 - 2 * taps) * to + in, .div = 2 * in};
  q.add -= slack * q.div;
  q.less = q.add < 0 ? (q.div - 1 - q.add) / q.div : 0;
  q.add += q.less * q.div;
  return q;
}

/* May the taps of a result at pos reach source x of n? */
static bool reach_meets(double pos, int64_t x, int64_t n, bool cubic) {
  double slack = 1e-2, far = (cubic ? 2 : 1) + slack;
  if (x < 0 || x >= n) return false;
  if (!cubic && pos < 0) return x == 0;
  if (!cubic && pos > (double)(n - 1)) return x == n - 1;
  return pos >= (double)x - far && pos <= (double)x + far;
}

/* Does every result that meets a source come at or behind the line?  Counts how far behind. */
static bool reach_holds(int64_t in, int64_t to, double scale, bool cubic, bool corners, Reach *q) {
  for (int64_t r = 0; r < to; r++) {
    double pos = corners ? (double)r * scale : ((double)r + 0.5) * scale - 0.5;
    for (int64_t x = (int64_t)pos - 3; x <= (int64_t)pos + 4; x++) {
      if (!reach_meets(pos, x, in, cubic)) continue;
      int64_t first = (x * q->mul + q->add) / q->div - q->less;
      if (r < first) return false;
      if (r - first + 1 > q->many) q->many = r - first + 1;
    }
  }
  return q->many > 0 && q->many <= MG_TUNE_RESIZE_TAPS;
}

/* Found by trying all results, for what scales users give need not fit the sizes.  False:
 * unknown sizes, or too many. */
static bool resize_reach(Resize *z, int k, bool cubic, bool corners, Reach *out) {
  int64_t in, to;
  if (!mg_ex_const_int(z->L->x, z->in[z->lead + k], &in) ||
      !mg_ex_const_int(z->L->x, z->out[z->lead + k], &to) || in < 1 || to > MG_TUNE_RESIZE_SIZE)
    return false;
  double f = resize_given(z, k), scale = f > 0 ? 1 / f : (double)in / (double)to;
  if (corners) scale = to > 1 ? (double)(in - 1) / (double)(to - 1) : 0;
  for (int slack = 0; slack < 3; slack++) {
    *out = reach_line(in, to, cubic, corners, slack);
    if (reach_holds(in, to, scale, cubic, corners, out)) return true;
  }
  return false;
}

/* The first result that may meet source x, and the j-th one from there on. */
static ExprRef reach_result(Lower *L, const Reach *q, ExprRef x, ExprRef j) {
  ExprRef line = mg_sym_add(L->x, mg_sym_mul(L->x, x, lw_int(L, q->mul)), lw_int(L, q->add));
  return mg_sym_add(L->x,
                    mg_sym_sub(L->x, mg_sym_floordiv(L->x, line, lw_int(L, q->div)), lw_int(L, q->less)), j);
}

/* A table of what the j-th result weighs source x with; -inf: it does not meet x. Rows then have loads in
 * place of a formula that is longer than the rest of their work. */
static MgRc resize_weights(Resize *z, const Taps *t, int k, const Reach *q, MgView *out) {
  Lower *L = z->L;
  int d = z->lead + k;
  SymRef size[2] = {lw_int(L, q->many), z->in[d]};
  ExprRef to[LW_MAX_NDIM] = {0}, x = mg_ex_idx(L->x, 1), r = reach_result(L, q, x, mg_ex_idx(L->x, 0));
  ExprRef sum = lw_const(L, z->acc, 0), met = lw_const(L, TY_i1, 0), none = sum;
  to[d] = r;
  for (int j = 0; j < t->n; j++) {
    ExprRef hit = lw_op2(L, OP_eq, mg_ex_subst(L->x, t->t[k][j].i, to, d + 1), x);
    sum = lw_op2(L, OP_add, sum, lw_where(L, hit, mg_ex_subst(L->x, t->t[k][j].w, to, d + 1), none));
    met = lw_op2(L, OP_or, met, hit);
  }
  ExprRef inside = lw_op2(L, OP_and, lw_op2(L, OP_le, lw_int(L, 0), r), lw_op2(L, OP_lt, r, z->out[d]));
  met = lw_op2(L, OP_and, met, inside);
  TRY(lw_temp(L, lw_acc_dtype(z->acc), lw_meta(L, z->n->out[0])->device, 2, size, "weights", out));
  return lw_store(L, out, lw_where(L, met, sum, lw_const(L, z->acc, -INFINITY)));
}

/* The gradient of linear or cubic resampling, dimension after dimension: each source sums what the results
 * around it weigh it with. */
static MgRc resize_gather(Resize *z, const Taps *t, ValRef grad, ValRef v, const Reach *reach) {
  Lower *L = z->L;
  const MgVal *m = lw_meta(L, v);
  ExprRef at[LW_MAX_NDIM], next[LW_MAX_NDIM] = {0};
  SymRef size[LW_MAX_NDIM + 1];
  bool red[LW_MAX_NDIM + 1] = {0};
  int nd = m->ndim;
  for (int d = 0; d < nd; d++) size[d] = z->out[d], at[d] = next[d] = mg_ex_idx(L->x, d);
  red[nd] = true;
  ExprRef g = mg_ex_cvt(L->x, z->acc, lw_at(L, grad, at)), none = lw_const(L, z->acc, 0);
  for (int k = 0; k < z->s; k++) {
    int d = z->lead + k;
    ExprRef x = mg_ex_idx(L->x, d), r = reach_result(L, &reach[k], x, mg_ex_idx(L->x, nd));
    MgView table, out;
    TRY(resize_weights(z, t, k, &reach[k], &table));
    ExprRef w = mg_ex_load(L->x, z->acc, table.buf,
                           mg_view_index(L->x, &table, (ExprRef[2]){mg_ex_idx(L->x, nd), x}), 0, 0);
    next[d] = mg_sym_max(L->x, resize_clamp(L, r, z->out[d]), lw_int(L, 0));
    ExprRef meets = lw_op2(L, OP_lt, lw_const(L, z->acc, -INFINITY), w);
    ExprRef body = lw_where(L, meets, lw_op2(L, OP_mul, mg_ex_subst(L->x, g, next, nd), w), none);
    next[d] = x;
    size[d] = z->in[d];
    size[nd] = lw_int(L, reach[k].many);
    if (k + 1 == z->s) TRY(lw_buffer(L, v, &out));
    else TRY(lw_temp(L, lw_acc_dtype(z->acc), m->device, nd, size, "resized", &out));
    TRY(lw_reduce(L, RED_sum, body, nd + 1, size, red, 0, &out, false));
    if (k + 1 == z->s) lw_define_view(L, v, &out);
    else g = mg_ex_load(L->x, z->acc, out.buf, mg_view_index(L->x, &out, at), 0, 0);
  }
  return MG_OK;
}

/* ATen's gradient of cubic resampling is then the result's, whatever scales were given. */
static bool resize_same_size(const Resize *z) {
  for (int k = 0; k < z->s; k++)
    if (!mg_ex_same(z->in[z->lead + k], z->out[z->lead + k])) return false;
  return true;
}

/* (grad, output_size, input_size, [align_corners], scales ...): every result's
 * gradient is added to its sources */
static MgRc resize_backward(Lower *L, MgNode *n, const LwRow *r) {
  Resize z;
  Taps t;
  ValRef grad = lw_arg_val(n, "grad_output"), v = n->out[0];
  int kind = r->op / 4;
  const MgVal *m = lw_meta(L, v), *mg = lw_meta(L, grad);
  if (!resize_init(L, n, r->op % 4, m, mg, &z)) return MG_UNSUP;
  MgView out;
  ExprRef at[LW_MAX_NDIM], to[LW_MAX_NDIM];
  for (int d = 0; d < m->ndim; d++) at[d] = to[d] = mg_ex_idx(L->x, d);
  if (kind == RS_cubic && resize_same_size(&z)) return lw_define(L, v, lw_at(L, grad, at));
  TRY(lw_settle(L, grad));
  Reach reach[3];
  bool gather = kind >= RS_linear && m->ndim + 1 < LW_MAX_NDIM;
  for (int k = 0; k < z.s && gather; k++)
    gather = resize_reach(&z, k, kind == RS_cubic, lw_arg_bool(n, "align_corners", false), &reach[k]);
  resize_taps(&z, kind, &t);
  if (gather) return resize_gather(&z, &t, grad, v, reach);
  ExprRef g = mg_ex_cvt(L->x, z.acc, lw_at(L, grad, at));
  TRY(lw_scatter_begin(L, v, 0, &out));
  for (int c = 0; c < resize_combinations(&z, &t); c++) {
    ExprRef w = resize_tap(&z, &t, c, to);
    ExprRef e = w ? lw_op2(L, OP_mul, g, w) : g;
    TRY(lw_scatter(L, &out, mg->size, mg->ndim, to, lw_const(L, TY_i1, 1), ST_add, e));
  }
  lw_define_view(L, v, &out);
  return MG_OK;
}

#define Z(name, ok, fn, op) {"aten::" name, fn, ok, NULL, op, 0, LWF_multi, NULL},
#define ZV(name, ok, op) Z(name, ok, resize_forward, op) Z(name ".vec", ok, resize_forward, op)
static bool ok_nearest(const MgGraph *g, const MgNode *n) {
  return lw_ok_float(g, n) || mg_val(g, n->out[0])->dtype == DT_u8;
}
#define ZB(name, ok, op) ZV(name, ok, op) Z(name "_backward", lw_ok_float, resize_backward, op)
/* Rows have no commas between them. */
/* clang-format off */
const LwRow lw_rows_resize[] = {
  ZB("upsample_nearest1d", ok_nearest, RS(RS_nearest, 1))
  ZB("upsample_nearest2d", ok_nearest, RS(RS_nearest, 2))
  ZB("upsample_nearest3d", ok_nearest, RS(RS_nearest, 3))
  ZB("_upsample_nearest_exact1d", ok_nearest, RS(RS_exact, 1))
  ZB("_upsample_nearest_exact2d", ok_nearest, RS(RS_exact, 2))
  ZB("_upsample_nearest_exact3d", ok_nearest, RS(RS_exact, 3))
  ZB("upsample_linear1d", lw_ok_float, RS(RS_linear, 1))
  ZB("upsample_bilinear2d", lw_ok_float, RS(RS_linear, 2))
  ZB("upsample_trilinear3d", lw_ok_float, RS(RS_linear, 3))
  ZB("upsample_bicubic2d", lw_ok_float, RS(RS_cubic, 2))
  {0},
};
/* clang-format on */
