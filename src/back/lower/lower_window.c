/* Pooling: reductions over a window, whose dims are the reduced ranges of a nest.
 * The last s dims are space (s = 1..3); what lies outside of the input is masked. */
#include "back/lower/lower_priv.h"
#include <math.h>
#include <string.h>

typedef struct Window {
  Lower *L;
  ValRef src;
  int nd, s, lead; /* rank of source and result; space dims; nd - s */
  MgTy ty;
  SymRef size[LW_MAX_NDIM]; /* of the nest: result dims, then s window dims */
  bool red[LW_MAX_NDIM];
  ExprRef at[LW_MAX_NDIM];  /* idx of them */
  ExprRef pos[LW_MAX_NDIM]; /* source indices at a window point */
  ExprRef in;               /* inside of the source */
  SymRef step[3]; /* distance of a window's points along each padded space dim; 0: windows start inside */
} Window;

static bool window_init(Lower *L, MgNode *n, int s, Window *w) {
  const MgVal *m = lw_meta(L, n->out[0]);
  *w = (Window){.L = L, .src = lw_first(n), .nd = m->ndim, .s = s, .lead = m->ndim - s};
  w->ty = mg_dtype_compute((MgDtype)m->dtype);
  w->in = lw_const(L, TY_i1, 1);
  if (w->lead < 0 || w->nd + s > LW_MAX_NDIM) return false;
  for (int d = 0; d < w->nd + s; d++) {
    w->at[d] = mg_ex_idx(L->x, d);
    w->red[d] = d >= w->nd;
    if (d < w->nd) w->size[d] = m->size[d];
    if (d < w->lead) w->pos[d] = w->at[d];
  }
  return true;
}

/* Adds a bound on the position along space dim k, unless it always holds. */
static void window_bound(Window *w, ExprRef cond) { w->in = lw_op2(w->L, OP_and, w->in, cond); }

static ExprRef window_load(Window *w, ExprRef other) {
  ExprRef e = mg_ex_cvt(w->L->x, w->ty, lw_at(w->L, w->src, w->pos));
  return lw_masked(w->L, e, w->in, other);
}

static MgRc window_reduce(Window *w, ValRef v, MgRedOp op, ExprRef body, ExprRef value) {
  if (!v || !w->L->val[v].uses) return MG_OK;
  MgView out;
  TRY(lw_buffer(w->L, v, &out));
  TRY(lw_reduce(w->L, op, body, w->nd + w->s, w->size, w->red, value, &out, false));
  lw_define_view(w->L, v, &out);
  return MG_OK;
}

/* The stride defaults to the kernel. */
static void window_pool(Window *w, MgNode *n) {
  Lower *L = w->L;
  const MgVal *ms = lw_meta(L, w->src), *mo = lw_meta(L, n->out[0]);
  for (int k = 0; k < w->s; k++) {
    int d = w->lead + k;
    SymRef kern = lw_arg_item(L, n, "kernel_size", k, 1);
    SymRef stride = lw_arg_len(n, "stride") ? lw_arg_item(L, n, "stride", k, 1) : kern;
    SymRef pad = lw_arg_item(L, n, "padding", k, 0), dil = lw_arg_item(L, n, "dilation", k, 1);
    w->size[w->nd + k] = kern;
    if (!mg_sym_is(L->x, pad, 0)) w->step[k] = dil;
    ExprRef p = mg_sym_sub(L->x, mg_sym_mul(L->x, w->at[d], stride), pad);
    w->pos[d] = mg_sym_add(L->x, p, mg_sym_mul(L->x, w->at[w->nd + k], dil));
    if (!mg_sym_is(L->x, pad, 0)) window_bound(w, lw_op2(L, OP_le, lw_int(L, 0), w->pos[d]));
    /* the last window ends inside when (out-1)*stride - pad + (kern-1)*dil < in */
    SymRef one = lw_int(L, 1),
           last = mg_sym_sub(L->x, mg_sym_mul(L->x, mg_sym_sub(L->x, mo->size[d], one), stride), pad);
    SymRef room = mg_sym_sub(L->x, ms->size[d],
                             mg_sym_add(L->x, last, mg_sym_mul(L->x, mg_sym_sub(L->x, kern, one), dil)));
    int64_t lo, hi;
    if (!mg_ex_range(L->x, room, &lo, &hi) || lo < 1)
      window_bound(w, lw_op2(L, OP_lt, w->pos[d], ms->size[d]));
  }
}

/* The greatest element of every window, and its position in the flattened space of the source. */
static MgRc window_max_results(Window *w, MgNode *n) {
  Lower *L = w->L;
  ExprRef e = window_load(w, lw_lowest(L, w->ty));
  TRY(window_reduce(w, n->out[0], RED_max, e, 0));
  if (n->nout < 2) return MG_OK;
  const MgVal *ms = lw_meta(L, w->src);
  ExprRef k[3], rest = mg_ex_red(L->x, TY_i64), flat = lw_int(L, 0);
  for (int i = w->s; i-- > 0;) { /* window coordinates of the winner */
    k[i] = i ? mg_sym_mod(L->x, rest, w->size[w->nd + i]) : rest;
    rest = mg_sym_floordiv(L->x, rest, w->size[w->nd + i]);
  }
  for (int i = 0; i < w->s; i++) {
    ExprRef to[LW_MAX_NDIM];
    memset(to, 0, sizeof to);
    to[w->nd + i] = k[i];
    ExprRef p = mg_ex_subst(L->x, w->pos[w->lead + i], to, w->nd + w->s);
    /* nothing is above -inf: the first position is meant that lies inside */
    if (w->step[i]) p = lw_where(L, lw_op2(L, OP_lt, p, lw_int(L, 0)), mg_sym_mod(L->x, p, w->step[i]), p);
    flat = mg_sym_add(L->x, mg_sym_mul(L->x, flat, ms->size[w->lead + i]), p);
  }
  return window_reduce(w, n->out[1], RED_argpool, e, flat);
}

/* max_pool*(self, kernel, stride, padding, dilation, ceil_mode); op: space dims */
static MgRc window_max(Lower *L, MgNode *n, const LwRow *r) {
  Window w;
  if (!window_init(L, n, r->op, &w)) return MG_UNSUP;
  TRY(lw_settle(L, w.src));
  window_pool(&w, n);
  return window_max_results(&w, n);
}

/* avg_pool*(self, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override) */
static MgRc window_avg(Lower *L, MgNode *n, const LwRow *r) {
  Window w;
  int64_t div;
  if (!window_init(L, n, r->op, &w) || !mg_ty_is_float(w.ty)) return MG_UNSUP;
  TRY(lw_settle(L, w.src));
  window_pool(&w, n);
  const MgVal *ms = lw_meta(L, w.src);
  bool whole = lw_arg_bool(n, "count_include_pad", true);
  ExprRef count = lw_int(L, 1);
  if (lw_arg_int(L->g, n, "divisor_override", &div)) {
    count = lw_int(L, div);
  } else {
    for (int k = 0; k < w.s; k++) { /* the window, cut at the padded (or the bare) source */
      int d = w.lead + k;
      SymRef pad = lw_arg_item(L, n, "padding", k, 0), kern = w.size[w.nd + k];
      SymRef stride = lw_arg_len(n, "stride") ? lw_arg_item(L, n, "stride", k, 1) : kern;
      ExprRef lo = mg_sym_sub(L->x, mg_sym_mul(L->x, w.at[d], stride), pad), hi = mg_sym_add(L->x, lo, kern);
      hi = mg_sym_min(L->x, hi, mg_sym_add(L->x, ms->size[d], pad));
      if (!whole) {
        hi = mg_sym_min(L->x, hi, ms->size[d]);
        lo = mg_sym_max(L->x, lo, lw_int(L, 0));
      } else if (!lw_arg_bool(n, "ceil_mode",
                              false)) { /* without ceil_mode a window never leaves the padded source */
        hi = mg_sym_add(L->x, lo, kern);
      }
      count = mg_sym_mul(L->x, count, mg_sym_sub(L->x, hi, lo));
    }
  }
  ExprRef value = lw_op2(L, OP_div, mg_ex_red(L->x, w.ty), mg_ex_cvt(L->x, w.ty, count));
  return window_reduce(&w, n->out[0], RED_sum, window_load(&w, lw_const(L, w.ty, 0)), value);
}

/* Adaptive windows: result i covers [floor(i*in/out), ceil((i+1)*in/out)). */
static void window_adaptive(Window *w, MgNode *n, ExprRef *count) {
  Lower *L = w->L;
  const MgVal *ms = lw_meta(L, w->src), *mo = lw_meta(L, n->out[0]);
  SymRef one = lw_int(L, 1);
  *count = one;
  for (int k = 0; k < w->s; k++) {
    int d = w->lead + k;
    SymRef in = ms->size[d], out = mo->size[d];
    ExprRef i = w->at[d], off = w->at[w->nd + k];
    if (mg_sym_is(L->x, mg_sym_mod(L->x, in, out), 0)) { /* all windows are equal */
      w->size[w->nd + k] = mg_sym_floordiv(L->x, in, out);
      w->pos[d] = mg_sym_add(L->x, mg_sym_mul(L->x, i, w->size[w->nd + k]), off);
      *count = mg_sym_mul(L->x, *count, w->size[w->nd + k]);
      continue;
    }
    ExprRef start = mg_sym_floordiv(L->x, mg_sym_mul(L->x, i, in), out);
    ExprRef up = mg_sym_add(L->x, mg_sym_mul(L->x, mg_sym_add(L->x, i, one), in), mg_sym_sub(L->x, out, one));
    ExprRef end = mg_sym_floordiv(L->x, up, out);
    /* the longest window: in/out rounded up, plus one where it straddles */
    w->size[w->nd + k] =
        mg_sym_add(L->x, mg_sym_floordiv(L->x, mg_sym_add(L->x, in, mg_sym_sub(L->x, out, one)), out), one);
    w->pos[d] = mg_sym_add(L->x, start, off);
    window_bound(w, lw_op2(L, OP_lt, w->pos[d], end));
    *count = mg_sym_mul(L->x, *count, mg_sym_sub(L->x, end, start));
  }
}
static MgRc window_adaptive_avg(Lower *L, MgNode *n, const LwRow *r) {
  Window w;
  ExprRef count;
  if (!window_init(L, n, r->op, &w) || !mg_ty_is_float(w.ty)) return MG_UNSUP;
  TRY(lw_settle(L, w.src));
  window_adaptive(&w, n, &count);
  ExprRef value = lw_op2(L, OP_div, mg_ex_red(L->x, w.ty), mg_ex_cvt(L->x, w.ty, count));
  return window_reduce(&w, n->out[0], RED_sum, window_load(&w, lw_const(L, w.ty, 0)), value);
}
static MgRc window_adaptive_max(Lower *L, MgNode *n, const LwRow *r) {
  Window w;
  ExprRef count;
  if (!window_init(L, n, r->op, &w)) return MG_UNSUP;
  TRY(lw_settle(L, w.src));
  window_adaptive(&w, n, &count);
  return window_max_results(&w, n);
}
static bool ok_sizes(const MgGraph *g, const MgNode *n) { /* output sizes of zero have no windows */
  const MgVal *m = mg_val(g, n->out[0]);
  for (int d = 0; d < m->ndim; d++)
    if (mg_sym_is(g->x, m->size[d], 0)) return false;
  return true;
}

/* ---- gradients
 * ------------------------------------------------------------------------------------------------------ */

/* Max pooling's gradient: every result's gradient is added where its index points. */
static MgRc window_max_backward(Lower *L, MgNode *n,
                                const LwRow *r) { /* (grad, self, ..., indices as the last) */
  ValRef grad = lw_arg_val(n, "grad_output"), t = lw_arg_val(n, "indices"), v = n->out[0];
  const MgVal *m = lw_meta(L, v), *mg = lw_meta(L, grad);
  int s = r->op, lead = m->ndim - s;
  ExprRef at[LW_MAX_NDIM], to[LW_MAX_NDIM], back[LW_MAX_NDIM];
  SymRef space = lw_int(L, 1);
  for (int d = 0; d < m->ndim; d++) at[d] = mg_ex_idx(L->x, d);
  for (int d = lead; d < m->ndim; d++) space = mg_sym_mul(L->x, space, m->size[d]);
  ExprRef flat = lw_at(L, t, at),
          e = mg_ex_cvt(L->x, mg_dtype_compute((MgDtype)m->dtype), lw_at(L, grad, at));
  MgView out;
  TRY(lw_scatter_begin(L, v, 0, &out));
  memcpy(to, at, sizeof to);
  bool dense = true; /* then the flat index is the place, and needs no taking apart */
  for (int d = lead; d + 1 < m->ndim; d++)
    dense &= mg_ex_same(out.stride[d], mg_sym_mul(L->x, out.stride[d + 1], m->size[d + 1]));
  if (!dense) lw_reshape_map(L, m->size + lead, s, &space, 1, &flat, back);
  for (int d = lead; dense && d < m->ndim; d++) back[d - lead] = d + 1 < m->ndim ? lw_int(L, 0) : flat;
  memcpy(to + lead, back, sizeof *to * s);
  TRY(lw_scatter(L, &out, mg->size, mg->ndim, to, lw_in_range(L, flat, space), ST_add, e));
  lw_define_view(L, v, &out);
  return MG_OK;
}

/* Adaptive average's gradient when windows tile the source: each element takes its window's share. */
static MgRc window_adaptive_backward(Lower *L, MgNode *n, const LwRow *r) {
  ValRef grad = lw_arg_val(n, "grad_output"), v = n->out[0];
  const MgVal *m = lw_meta(L, v), *mg = lw_meta(L, grad);
  MgTy ty = mg_dtype_compute((MgDtype)m->dtype);
  ExprRef at[LW_MAX_NDIM], count = lw_int(L, 1);
  for (int d = 0; d < m->ndim; d++) {
    at[d] = mg_ex_idx(L->x, d);
    if (d < m->ndim - r->op) continue;
    SymRef k = mg_sym_floordiv(L->x, m->size[d], mg->size[d]);
    at[d] = mg_sym_floordiv(L->x, at[d], k);
    count = mg_sym_mul(L->x, count, k);
  }
  ExprRef g = mg_ex_cvt(L->x, ty, lw_at(L, grad, at));
  return lw_define(L, v, lw_op2(L, OP_div, g, mg_ex_cvt(L->x, ty, count)));
}
static bool ok_adaptive_backward(const MgGraph *g, const MgNode *n) {
  const MgVal *m = mg_val(g, n->out[0]), *mg = mg_val(g, lw_arg_val(n, "grad_output"));
  const LwRow *r = lw_row(n->op->full);
  for (int d = m->ndim - r->op; d < m->ndim; d++)
    if (d < 0 || !mg_sym_is(g->x, mg_sym_mod(g->x, m->size[d], mg->size[d]), 0)) return false;
  return true;
}

/* Average pooling's gradient: a source element sums the gradients of the windows that cover it.  The nest
 * reduces over the at most ceil(kernel/stride) windows along each dim. */
static MgRc window_avg_backward(Lower *L, MgNode *n, const LwRow *r) {
  ValRef grad = lw_arg_val(n, "grad_output"), v = n->out[0];
  const MgVal *m = lw_meta(L, v), *mg = lw_meta(L, grad);
  Window w;
  int64_t div;
  if (!window_init(L, n, r->op, &w)) return MG_UNSUP;
  bool whole = lw_arg_bool(n, "count_include_pad", true),
       given = lw_arg_int(L->g, n, "divisor_override", &div);
  ExprRef count = given ? lw_int(L, div) : lw_int(L, 1), zero = lw_int(L, 0), one = lw_int(L, 1);
  w.src = grad;
  TRY(lw_settle(L, grad));
  for (int k = 0; k < w.s; k++) {
    int d = w.lead + k;
    SymRef kern = lw_arg_item(L, n, "kernel_size", k, 1), pad = lw_arg_item(L, n, "padding", k, 0);
    SymRef stride = lw_arg_len(n, "stride") ? lw_arg_item(L, n, "stride", k, 1) : kern;
    w.size[w.nd + k] = mg_sym_floordiv(L->x, mg_sym_add(L->x, kern, mg_sym_sub(L->x, stride, one)), stride);
    /* the last window that may cover position p is p / stride, the ones before follow */
    ExprRef p = mg_sym_add(L->x, w.at[d], pad);
    ExprRef o = mg_sym_sub(L->x, mg_sym_floordiv(L->x, p, stride), w.at[w.nd + k]);
    w.pos[d] = o;
    ExprRef start = mg_sym_mul(L->x, o, stride);
    window_bound(&w, lw_in_range(L, o, mg->size[d]));
    window_bound(&w, lw_op2(L, OP_lt, p, mg_sym_add(L->x, start, kern)));
    if (given) continue;
    ExprRef lo = mg_sym_sub(L->x, start, pad),
            hi = mg_sym_min(L->x, mg_sym_add(L->x, lo, kern), mg_sym_add(L->x, m->size[d], pad));
    if (!whole) {
      lo = mg_sym_max(L->x, lo, zero);
      hi = mg_sym_min(L->x, hi, m->size[d]);
    }
    count = mg_sym_mul(L->x, count, mg_sym_sub(L->x, hi, lo));
  }
  ExprRef e = window_load(&w, lw_const(L, w.ty, 0));
  return window_reduce(&w, v, RED_sum, lw_op2(L, OP_div, e, mg_ex_cvt(L->x, w.ty, count)), 0);
}

/* ---- im2col, col2im(.., kernel, dilation, padding, stride)
 * --------------------------------------------------------- */

/* Column element (c*kh*kw + i*kw + j, oh*OW + ow) is the source at (c, oh*stride - pad + i*dil, ...). */
static MgRc window_im2col(Lower *L, MgNode *n, const LwRow *r) {
  ValRef src = lw_arg_val(n, "self"), v = n->out[0];
  const MgVal *m = lw_meta(L, src);
  SymRef kern[2], dil[2], pad[2], stride[2], one = lw_int(L, 1), outs[2];
  for (int k = 0; k < 2; k++) {
    kern[k] = lw_arg_item(L, n, "kernel_size", k, 1), dil[k] = lw_arg_item(L, n, "dilation", k, 1);
    pad[k] = lw_arg_item(L, n, "padding", k, 0), stride[k] = lw_arg_item(L, n, "stride", k, 1);
    SymRef span = mg_sym_add(L->x, mg_sym_mul(L->x, dil[k], mg_sym_sub(L->x, kern[k], one)), one);
    SymRef room =
        mg_sym_sub(L->x, mg_sym_add(L->x, m->size[2 + k], mg_sym_mul(L->x, pad[k], lw_int(L, 2))), span);
    outs[k] = mg_sym_add(L->x, mg_sym_floordiv(L->x, room, stride[k]), one);
  }
  TRY(lw_settle(L, src));
  ExprRef row = mg_ex_idx(L->x, 1), col = mg_ex_idx(L->x, 2), to[4], in = lw_const(L, TY_i1, 1);
  SymRef area = mg_sym_mul(L->x, kern[0], kern[1]);
  ExprRef at[2] = {mg_sym_floordiv(L->x, col, outs[1]), mg_sym_mod(L->x, col, outs[1])};
  ExprRef off[2] = {mg_sym_floordiv(L->x, mg_sym_mod(L->x, row, area), kern[1]),
                    mg_sym_mod(L->x, row, kern[1])};
  to[0] = mg_ex_idx(L->x, 0);
  to[1] = mg_sym_floordiv(L->x, row, area);
  for (int k = 0; k < 2; k++) {
    to[2 + k] = mg_sym_add(L->x, mg_sym_sub(L->x, mg_sym_mul(L->x, at[k], stride[k]), pad[k]),
                           mg_sym_mul(L->x, off[k], dil[k]));
    if (!mg_sym_is(L->x, pad[k], 0)) in = lw_op2(L, OP_and, in, lw_in_range(L, to[2 + k], m->size[2 + k]));
  }
  return lw_define(L, v,
                   lw_masked(L, lw_at(L, src, to), in, lw_const(L, mg_dtype_compute((MgDtype)m->dtype), 0)));
}

/* The adjoint: every pixel sums the column elements that came from it. */
static MgRc window_col2im(Lower *L, MgNode *n,
                          const LwRow *r) { /* (self, output_size, kernel, dilation, padding, stride) */
  ValRef src = lw_arg_val(n, "self"), v = n->out[0];
  Window w;
  if (!window_init(L, n, 2, &w)) return MG_UNSUP;
  TRY(lw_settle(L, src));
  SymRef one = lw_int(L, 1), kern[2], outs[2];
  ExprRef o[2];
  for (int k = 0; k < 2; k++) {
    int d = 2 + k;
    SymRef dil = lw_arg_item(L, n, "dilation", k, 1), pad = lw_arg_item(L, n, "padding", k, 0),
           stride = lw_arg_item(L, n, "stride", k, 1);
    kern[k] = lw_arg_item(L, n, "kernel_size", k, 1);
    SymRef span = mg_sym_add(L->x, mg_sym_mul(L->x, dil, mg_sym_sub(L->x, kern[k], one)), one);
    SymRef room = mg_sym_sub(L->x, mg_sym_add(L->x, w.size[d], mg_sym_mul(L->x, pad, lw_int(L, 2))), span);
    outs[k] = mg_sym_add(L->x, mg_sym_floordiv(L->x, room, stride), one);
    w.size[w.nd + k] = kern[k];
    ExprRef p = mg_sym_sub(L->x, mg_sym_add(L->x, w.at[d], pad), mg_sym_mul(L->x, w.at[w.nd + k], dil));
    o[k] = mg_sym_floordiv(L->x, p, stride);
    window_bound(&w, lw_op2(L, OP_eq, mg_sym_mod(L->x, p, stride), lw_int(L, 0)));
    window_bound(&w, lw_in_range(L, o[k], outs[k]));
  }
  ExprRef row = mg_sym_add(L->x, mg_sym_mul(L->x, w.at[w.nd], kern[1]), w.at[w.nd + 1]);
  w.pos[0] = w.at[0];
  w.pos[1] = mg_sym_add(L->x, mg_sym_mul(L->x, w.at[1], mg_sym_mul(L->x, kern[0], kern[1])), row);
  w.pos[2] = mg_sym_add(L->x, mg_sym_mul(L->x, o[0], outs[1]), o[1]);
  return window_reduce(&w, v, RED_sum, window_load(&w, lw_const(L, w.ty, 0)), 0);
}
static bool ok_batched(const MgGraph *g, const MgNode *n) {
  int want = !strcmp(n->op->name, "aten::im2col") ? 4 : 3;
  return ok_sizes(g, n) && mg_val(g, lw_arg_val(n, "self"))->ndim == want && lw_ok_float(g, n);
}
static bool ok_max(const MgGraph *g, const MgNode *n) { return ok_sizes(g, n) && lw_ok_not_bool(g, n); }
static bool ok_float_sizes(const MgGraph *g, const MgNode *n) { return ok_sizes(g, n) && lw_ok_float(g, n); }
/* ATen's kernel knows no 16-bit types. */
static bool ok_avg3d(const MgGraph *g, const MgNode *n) {
  MgDtype d = (MgDtype)mg_val(g, n->out[0])->dtype;
  return ok_sizes(g, n) && d != DT_bf16 && d != DT_f16;
}

#define W(name, ok, fn, op) {"aten::" name, fn, ok, NULL, op, 0, LWF_multi, NULL},
/* Rows have no commas between them. */
/* clang-format off */
const LwRow lw_rows_window[] = {
  W("max_pool1d", ok_max, window_max, 1) W("max_pool2d", ok_max, window_max, 2)
  W("max_pool3d", ok_max, window_max, 3)
  W("max_pool2d_with_indices", ok_max, window_max, 2) W("max_pool3d_with_indices", ok_max, window_max, 3)
  W("avg_pool1d", ok_sizes, window_avg, 1) W("avg_pool2d", ok_sizes, window_avg, 2)
  W("avg_pool3d", ok_avg3d, window_avg, 3)
  W("adaptive_avg_pool1d", ok_sizes, window_adaptive_avg, 1)
  W("adaptive_avg_pool2d", ok_sizes, window_adaptive_avg, 2)
  W("_adaptive_avg_pool2d", ok_sizes, window_adaptive_avg, 2)
  W("adaptive_avg_pool3d", ok_sizes, window_adaptive_avg, 3)
  W("_adaptive_avg_pool3d", ok_sizes, window_adaptive_avg, 3)
  W("adaptive_max_pool2d", ok_float_sizes, window_adaptive_max, 2)
  W("adaptive_max_pool3d", ok_float_sizes, window_adaptive_max, 3)
  W("adaptive_max_pool2d_backward", ok_float_sizes, window_max_backward, 2)
  W("im2col", ok_batched, window_im2col, 2) W("col2im", ok_batched, window_col2im, 2)
  W("max_pool2d_with_indices_backward", ok_float_sizes, window_max_backward, 2)
  W("max_pool3d_with_indices_backward", ok_float_sizes, window_max_backward, 3)
  W("_adaptive_avg_pool2d_backward", ok_adaptive_backward, window_adaptive_backward, 2)
  W("_adaptive_avg_pool3d_backward", ok_adaptive_backward, window_adaptive_backward, 3)
  W("avg_pool2d_backward", ok_sizes, window_avg_backward, 2)
  W("avg_pool3d_backward", ok_sizes, window_avg_backward, 3)
  {0},
};
/* clang-format on */
