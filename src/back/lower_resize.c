/* Resampling: nearest and (bi-, tri-)linear upsampling, in ATen's arithmetic (positions in the type of the scale, f32
 * unless the tensor is f64). */
#include "back/lower.h"

typedef struct Resize {
  Lower *L;
  MgNode *n;
  ValRef src;
  const MgVal *ms, *mo;
  int s, lead;                     /* space dims, dims before them */
  int kscale;                      /* argument with the first scale (one each), or the list of them */
  bool list;                       /* kscale is a list */
  MgTy acc;                        /* type of positions */
} Resize;

static bool resize_init(Lower *L, MgNode *n, int s, int kscale, bool list, Resize *z) {
  ValRef src = lw_arg_val(n, 0);
  *z = (Resize){L, n, src, lw_meta(L, src), lw_meta(L, n->out[0]), s, 0, kscale, list, TY_f32};
  z->lead = z->ms->ndim - s;
  if (z->ms->dtype == DT_f64) z->acc = TY_f64;
  return z->lead == 2 && mg_dtype_has_ty((MgDtype)z->ms->dtype);
}

/* The user's scale factor of space dim k; 0 when none was given. */
static double resize_given(Resize *z, int k) {
  const MgArg *a = lw_arg(z->n, z->list ? z->kscale : z->kscale + k);
  if (z->list) a = a->tag == MA_list && k < (int)a->n ? &a->u.item[k] : NULL;
  if (!a) return 0;
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
  return lw_op2(L, OP_div, mg_ex_cvt(L->x, z->acc, z->ms->size[d]), mg_ex_cvt(L->x, z->acc, z->mo->size[d]));
}

static ExprRef resize_clamp(Lower *L, ExprRef i, SymRef n) { return mg_sym_min(L->x, i, mg_sym_sub(L->x, n, lw_int(L, 1))); }

/* op: space dims; nearest takes floor(i * scale), exact floor((i + 0.5) * scale) */
static MgRc resize_nearest_of(Lower *L, MgNode *n, int s, bool list, bool exact) {
  Resize z;
  ExprRef at[LW_MAX_NDIM];
  if (!resize_init(L, n, s, 2, list, &z)) return MG_UNSUP;
  TRY(lw_settle(L, z.src));
  for (int d = 0; d < z.ms->ndim; d++) at[d] = mg_ex_idx(L->x, d);
  for (int k = 0; k < s; k++) {
    int d = z.lead + k;
    int64_t in, out;
    if (mg_ex_same(z.ms->size[d], z.mo->size[d])) continue; /* ATen copies this dimension */
    bool whole = mg_ex_const_int(L->x, z.ms->size[d], &in) && mg_ex_const_int(L->x, z.mo->size[d], &out) && in > 0 &&
                 out % in == 0 && ((out / in) & (out / in - 1)) == 0;
    double f = resize_given(&z, k);
    if (whole && (f == 0 || f == (double)(out / in))) { /* powers of two: the float product is exact */
      at[d] = mg_sym_floordiv(L->x, at[d], lw_int(L, out / in));
      continue;
    }
    ExprRef i = mg_ex_cvt(L->x, z.acc, at[d]);
    if (exact) i = lw_op2(L, OP_add, i, lw_const(L, z.acc, 0.5));
    i = lw_op1(L, OP_floor, lw_op2(L, OP_mul, i, resize_scale(&z, k)));
    at[d] = resize_clamp(L, mg_ex_cvt(L->x, TY_i64, i), z.ms->size[d]);
  }
  return lw_define(L, n->out[0], lw_at(L, z.src, at));
}
static MgRc resize_nearest(Lower *L, MgNode *n, const LwRow *r) { return resize_nearest_of(L, n, r->op, false, false); }
static MgRc resize_nearest_vec(Lower *L, MgNode *n, const LwRow *r) { return resize_nearest_of(L, n, r->op, true, false); }
static MgRc resize_exact(Lower *L, MgNode *n, const LwRow *r) { return resize_nearest_of(L, n, r->op, false, true); }
static MgRc resize_exact_vec(Lower *L, MgNode *n, const LwRow *r) { return resize_nearest_of(L, n, r->op, true, true); }

/* Linear: weights l0, l1 of the two neighbours along each space dim, 2^s loads. */
static MgRc resize_linear_of(Lower *L, MgNode *n, int s, bool list) {
  Resize z;
  if (!resize_init(L, n, s, 3, list, &z) || !mg_dtype_is_float((MgDtype)z.ms->dtype)) return MG_UNSUP;
  TRY(lw_settle(L, z.src));
  bool corners = lw_arg_bool(n, 2, false);
  ExprRef at[LW_MAX_NDIM], i0[3], i1[3], w0[3], w1[3], one = lw_const(L, z.acc, 1), zero = lw_const(L, z.acc, 0);
  for (int d = 0; d < z.ms->ndim; d++) at[d] = mg_ex_idx(L->x, d);
  for (int k = 0; k < s; k++) {
    int d = z.lead + k;
    SymRef in = z.ms->size[d], out = z.mo->size[d], u = lw_int(L, 1);
    ExprRef i = mg_ex_cvt(L->x, z.acc, at[d]), pos;
    if (corners) {
      SymRef den = mg_sym_max(L->x, mg_sym_sub(L->x, out, u), u);
      ExprRef sc = lw_op2(L, OP_div, mg_ex_cvt(L->x, z.acc, mg_sym_sub(L->x, in, u)), mg_ex_cvt(L->x, z.acc, den));
      pos = mg_sym_is(L->x, out, 1) ? zero : lw_op2(L, OP_mul, sc, i);
    } else {
      ExprRef half = lw_const(L, z.acc, 0.5);
      pos = lw_op2(L, OP_sub, lw_op2(L, OP_mul, resize_scale(&z, k), lw_op2(L, OP_add, i, half)), half);
      pos = lw_op2(L, OP_max, pos, zero);
    }
    i0[k] = resize_clamp(L, mg_ex_cvt(L->x, TY_i64, pos), in);
    i1[k] = resize_clamp(L, mg_sym_add(L->x, i0[k], u), in);
    w1[k] = lw_op2(L, OP_min, lw_op2(L, OP_max, lw_op2(L, OP_sub, pos, mg_ex_cvt(L->x, z.acc, i0[k])), zero), one);
    w0[k] = lw_op2(L, OP_sub, one, w1[k]);
  }
  ExprRef sum = 0;
  for (int c = 0; c < 1 << s; c++) {
    ExprRef w = 0;
    for (int k = 0; k < s; k++) {
      bool up = c >> (s - 1 - k) & 1;
      at[z.lead + k] = up ? i1[k] : i0[k];
      ExprRef wk = up ? w1[k] : w0[k];
      w = w ? lw_op2(L, OP_mul, w, wk) : wk;
    }
    ExprRef t = lw_op2(L, OP_mul, mg_ex_cvt(L->x, z.acc, lw_at(L, z.src, at)), w);
    sum = sum ? lw_op2(L, OP_add, sum, t) : t;
  }
  return lw_define(L, n->out[0], sum);
}
static MgRc resize_linear(Lower *L, MgNode *n, const LwRow *r) { return resize_linear_of(L, n, r->op, false); }
static MgRc resize_linear_vec(Lower *L, MgNode *n, const LwRow *r) { return resize_linear_of(L, n, r->op, true); }

static bool ok_float(const MgGraph *g, const MgNode *n) { return mg_dtype_is_float((MgDtype)mg_val(g, n->out[0])->dtype); }

#define Z(name, ok, fn, op) {"aten::" name, fn, ok, NULL, op, 0, LWF_multi, NULL},
const LwRow lw_rows_resize[] = {
  Z("upsample_nearest1d", NULL, resize_nearest, 1) Z("upsample_nearest1d.vec", NULL, resize_nearest_vec, 1)
  Z("upsample_nearest2d", NULL, resize_nearest, 2) Z("upsample_nearest2d.vec", NULL, resize_nearest_vec, 2)
  Z("upsample_nearest3d", NULL, resize_nearest, 3) Z("upsample_nearest3d.vec", NULL, resize_nearest_vec, 3)
  Z("_upsample_nearest_exact1d", NULL, resize_exact, 1) Z("_upsample_nearest_exact2d", NULL, resize_exact, 2)
  Z("_upsample_nearest_exact3d", NULL, resize_exact, 3) Z("_upsample_nearest_exact2d.vec", NULL, resize_exact_vec, 2)
  Z("upsample_linear1d", ok_float, resize_linear, 1) Z("upsample_linear1d.vec", ok_float, resize_linear_vec, 1)
  Z("upsample_bilinear2d", ok_float, resize_linear, 2) Z("upsample_bilinear2d.vec", ok_float, resize_linear_vec, 2)
  Z("upsample_trilinear3d", ok_float, resize_linear, 3) Z("upsample_trilinear3d.vec", ok_float, resize_linear_vec, 3)
  {0},
};
