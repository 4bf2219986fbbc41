/* Factories and index patterns: values that depend on where, not on what. */
#include "back/lower/lower_priv.h"
#include <math.h>

static MgTy factory_ty(Lower *L, const MgNode *n) {
  return mg_dtype_compute((MgDtype)lw_meta(L, n->out[0])->dtype);
}
static int factory_ndim(Lower *L, const MgNode *n) { return lw_meta(L, n->out[0])->ndim; }

/* zeros, ones, empty ... : op is the constant.  Contents of empty tensors are zeros:
 * defined memory, never read. */
static MgRc factory_const(Lower *L, MgNode *n, const LwRow *r) {
  return lw_define(L, n->out[0], lw_const(L, factory_ty(L, n), r->op));
}
/* full and friends */
static MgRc factory_full(Lower *L, MgNode *n, const LwRow *r) {
  return lw_define(L, n->out[0],
                   lw_arg_scalar(L, lw_arg(n, lw_either(n, "fill_value", "s")), factory_ty(L, n)));
}
/* start + i * step; ints in i64, floats in f64 as ATen accumulates */
static MgRc factory_arange(Lower *L, MgNode *n,
                           const LwRow *r) { /* op: 0 (end), 1 (start, end), 2 (start, end, step) */
  MgTy ty = factory_ty(L, n), acc = mg_ty_is_float(ty) ? TY_f64 : TY_i64;
  ExprRef i = mg_ex_cvt(L->x, acc, mg_ex_idx(L->x, 0)), e = i;
  if (r->op == 2) e = lw_op2(L, OP_mul, e, lw_arg_scalar(L, lw_arg(n, "step"), acc));
  if (r->op >= 1) e = lw_op2(L, OP_add, lw_arg_scalar(L, lw_arg(n, "start"), acc), e);
  return lw_define(L, n->out[0], mg_ex_cvt(L->x, ty, e));
}
static bool ok_arange(const MgGraph *g,
                      const MgNode *n) { /* integer results of float steps are eager's business */
  if (lw_ok_float(g, n)) return true;
  if (!lw_ok_not_bool(g, n)) return false;
  return lw_arg(n, "start")->tag != MA_float && lw_arg(n, "end")->tag != MA_float &&
         lw_arg(n, "step")->tag != MA_float;
}
/* From both ends, so that the last point is exact. */
static MgRc factory_linspace(Lower *L, MgNode *n, const LwRow *r) {
  const MgVal *m = lw_meta(L, n->out[0]);
  MgTy ty = factory_ty(L, n), acc = ty == TY_f64 ? TY_f64 : TY_f32;
  ExprRef i = mg_ex_idx(L->x, 0), steps = m->size[0], one = lw_int(L, 1);
  ExprRef a = lw_arg_scalar(L, lw_arg(n, "start"), acc), b = lw_arg_scalar(L, lw_arg(n, "end"), acc);
  ExprRef step = lw_op2(L, OP_div, lw_op2(L, OP_sub, b, a),
                        mg_ex_cvt(L->x, acc, mg_sym_max(L->x, mg_sym_sub(L->x, steps, one), one)));
  ExprRef back = mg_ex_cvt(L->x, acc, mg_sym_sub(L->x, mg_sym_sub(L->x, steps, i), one));
  ExprRef lo = lw_op2(L, OP_add, a, lw_op2(L, OP_mul, step, mg_ex_cvt(L->x, acc, i)));
  ExprRef hi = lw_op2(L, OP_sub, b, lw_op2(L, OP_mul, step, back));
  ExprRef e = lw_where(L, lw_op2(L, OP_lt, i, mg_sym_floordiv(L->x, steps, lw_int(L, 2))), lo, hi);
  if (mg_sym_is(L->x, steps, 1)) e = a;
  const MgArg *base = lw_arg(n, "base"); /* of logspace */
  if (base->tag != MA_none) e = lw_op2(L, OP_pow, lw_arg_scalar(L, base, acc), e);
  return lw_define(L, n->out[0], mg_ex_cvt(L->x, ty, e));
}
static MgRc factory_eye(Lower *L, MgNode *n, const LwRow *r) {
  ExprRef eq = lw_op2(L, OP_eq, mg_ex_idx(L->x, 0), mg_ex_idx(L->x, 1));
  return lw_define(L, n->out[0], mg_ex_cvt(L->x, factory_ty(L, n), eq));
}
/* tril, triu: keeps j - i <= k (op 0) or >= k (op 1) of the last two dimensions */
static MgRc factory_tri(Lower *L, MgNode *n, const LwRow *r) {
  int nd = factory_ndim(L, n);
  ExprRef at[LW_MAX_NDIM];
  if (nd < 2) return MG_UNSUP;
  for (int d = 0; d < nd; d++) at[d] = mg_ex_idx(L->x, d);
  ExprRef lim = mg_sym_add(L->x, at[nd - 2], lw_arg_sym(L, n, "diagonal", 0));
  ExprRef keep = r->op ? lw_op2(L, OP_le, lim, at[nd - 1]) : lw_op2(L, OP_le, at[nd - 1], lim);
  return lw_define(L, n->out[0],
                   lw_where(L, keep, lw_at(L, lw_arg_val(n, "self"), at), lw_const(L, factory_ty(L, n), 0)));
}
/* bernoulli and others draw numbers: extern.  dropout that does not drop is a copy. */
static MgRc factory_no_dropout(Lower *L, MgNode *n, const LwRow *r) {
  ExprRef at[LW_MAX_NDIM];
  for (int d = 0; d < factory_ndim(L, n); d++) at[d] = mg_ex_idx(L->x, d);
  TRY(lw_define(L, n->out[0], lw_at(L, lw_arg_val(n, "input"), at)));
  if (n->nout > 1 && n->out[1]) TRY(lw_define(L, n->out[1], lw_const(L, TY_i1, 1)));
  return MG_OK;
}
static bool ok_no_dropout(const MgGraph *g, const MgNode *n) {
  return lw_arg(n, "train")->tag == MA_bool ? !lw_arg(n, "train")->u.b : false;
}

/* ---- random numbers of a GPU ---- */

enum { UNIFORM_LANES = 4, UNIFORM_SHIFT = 2, UNIFORM_ROUNDS = 10 };
#define UNIFORM_LOW 0xffffffffu

static ExprRef uniform_u64(Lower *L, uint64_t v) { return mg_ex_int(L->x, TY_u64, (int64_t)v); }
static ExprRef uniform_low(Lower *L, ExprRef e) { return lw_op2(L, OP_and, e, uniform_u64(L, UNIFORM_LOW)); }
static ExprRef uniform_high(Lower *L, ExprRef e) { return lw_op2(L, OP_lsr, e, uniform_u64(L, 32)); }

/* Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), in place. c: the
 * counter, then the four numbers; key: two numbers.  All are numbers of 32 bits in 64. */
static void uniform_philox(Lower *L, ExprRef c[UNIFORM_LANES], ExprRef key[2]) {
  static const uint64_t factor[] = {0xD2511F53, 0xCD9E8D57}, step[] = {0x9E3779B9, 0xBB67AE85};
  for (int round = 0; round < UNIFORM_ROUNDS; round++) {
    ExprRef a = lw_op2(L, OP_mul, c[0], uniform_u64(L, factor[0])),
            b = lw_op2(L, OP_mul, c[2], uniform_u64(L, factor[1]));
    c[0] = lw_op2(L, OP_xor, lw_op2(L, OP_xor, uniform_high(L, b), c[1]), key[0]);
    c[2] = lw_op2(L, OP_xor, lw_op2(L, OP_xor, uniform_high(L, a), c[3]), key[1]);
    c[1] = uniform_low(L, b);
    c[3] = uniform_low(L, a);
    for (int i = 0; i < 2; i++) key[i] = uniform_low(L, lw_op2(L, OP_add, key[i], uniform_u64(L, step[i])));
  }
}

typedef struct Uniform { /* who draws the number of an element of memory */
  int64_t threads, each;
  ExprRef place, thread, turn; /* turn: its how manieth four */
} Uniform;

/* Shifts, since divisions of an index would cut its range in two. */
static void uniform_drawer(Lower *L, const MgVal *m, Uniform *u) {
  int64_t n = 1, size, eight = u->each == 2 * UNIFORM_LANES;
  for (int d = 0; d < m->ndim; d++) n *= mg_ex_const_int(L->x, m->size[d], &size) ? size : INT32_MAX;
  ExprRef group = lw_op2(L, OP_lsr, u->place, lw_int(L, UNIFORM_SHIFT + eight));
  u->thread = mg_ex_cvt(L->x, TY_u64, group);
  u->turn = uniform_u64(L, 0);
  if (n > u->threads * u->each) {
    ExprRef of = mg_ex_int(L->x, TY_u32, u->threads), g = mg_ex_cvt(L->x, TY_u32, group);
    u->thread = mg_ex_cvt(L->x, TY_u64, lw_op2(L, OP_rem, g, of));
    u->turn = mg_ex_cvt(L->x, TY_u64, lw_op2(L, OP_div, g, of));
  }
  if (!eight) return;
  ExprRef half = lw_op2(L, OP_and, lw_op2(L, OP_lsr, u->place, lw_int(L, UNIFORM_SHIFT)), lw_int(L, 1));
  u->turn = lw_op2(L, OP_add, lw_op2(L, OP_add, u->turn, u->turn), mg_ex_cvt(L->x, TY_u64, half));
}

/* mg::uniform: where an element lies in memory says who drew its number, and when. */
static MgRc factory_uniform(Lower *L, MgNode *n, const LwRow *r) {
  const MgVal *m = lw_meta(L, n->out[0]);
  ValRef draws = lw_arg_val(n, "draws");
  Uniform w = {.place = lw_int(L, 0)};
  int64_t skip;
  ExprRef at[] = {lw_int(L, 0)}, one[] = {lw_int(L, 1)};
  if (!lw_arg_int(L->g, n, "skip", &skip) || !lw_arg_int(L->g, n, "threads", &w.threads) ||
      !lw_arg_int(L->g, n, "each", &w.each))
    return MG_UNSUP;
  TRY(lw_realise(L, draws));
  for (int d = 0; d < m->ndim; d++)
    w.place =
        mg_sym_add(L->x, w.place, mg_sym_mul(L->x, mg_ex_idx(L->x, d), lw_arg_item(L, n, "stride", d, 0)));
  uniform_drawer(L, m, &w);
  ExprRef seed = mg_ex_cvt(L->x, TY_u64, lw_at(L, draws, at)),
          first = mg_ex_cvt(L->x, TY_u64, lw_at(L, draws, one));
  ExprRef count = lw_op2(L, OP_add, lw_op2(L, OP_add, first, uniform_u64(L, (uint64_t)skip)), w.turn);
  ExprRef c[UNIFORM_LANES] = {uniform_low(L, count), uniform_high(L, count), w.thread, uniform_u64(L, 0)};
  ExprRef key[] = {uniform_low(L, seed), uniform_high(L, seed)};
  uniform_philox(L, c, key);
  ExprRef bits = c[UNIFORM_LANES - 1], lane = lw_op2(L, OP_and, w.place, lw_int(L, UNIFORM_LANES - 1));
  for (int i = UNIFORM_LANES - 1; i-- > 0;)
    bits = lw_where(L, lw_op2(L, OP_eq, lane, lw_int(L, i)), c[i], bits);
  ExprRef u = lw_op2(L, OP_mul, mg_ex_cvt(L->x, TY_f32, bits), lw_const(L, TY_f32, 0x1p-32));
  return lw_define(L, n->out[0], lw_op2(L, OP_add, u, lw_const(L, TY_f32, 0x1p-33)));
}

#define F(name, fn, op) {"aten::" name, fn, NULL, NULL, op, 0, 0, NULL},
/* Rows have no commas between them. */
/* clang-format off */
const LwRow lw_rows_factory[] = {
  F("_efficientzerotensor", factory_const, 0) /* an ordinary tensor; eager's has no memory at all */
  F("zeros", factory_const, 0) F("ones", factory_const, 1) F("empty.memory_format", factory_const, 0)
  F("empty_strided", factory_const, 0) F("empty_permuted", factory_const, 0) F("full", factory_full, 0)
  F("zeros_like", factory_const, 0) F("ones_like", factory_const, 1) F("empty_like", factory_const, 0)
  F("full_like", factory_full, 0) F("new_zeros", factory_const, 0) F("new_ones", factory_const, 1)
  F("new_empty", factory_const, 0) F("new_empty_strided", factory_const, 0) F("new_full", factory_full, 0)
  F("scalar_tensor", factory_full, 0) F("zero", factory_const, 0)
  {"aten::arange", factory_arange, ok_arange, NULL, 0, 0, 0, NULL},
  {"aten::arange.start", factory_arange, ok_arange, NULL, 1, 0, 0, NULL},
  {"aten::arange.start_step", factory_arange, ok_arange, NULL, 2, 0, 0, NULL},
  {"aten::linspace", factory_linspace, lw_ok_float, NULL, 0, 0, 0, NULL},
  {"aten::logspace", factory_linspace, lw_ok_float, NULL, 0, 0, 0, NULL},
  F("eye", factory_eye, 0) F("eye.m", factory_eye, 0)
  F("tril", factory_tri, 0) F("triu", factory_tri, 1)
  {"mg::uniform", factory_uniform, NULL, NULL, 0, 0, 0, NULL},
  {"aten::native_dropout", factory_no_dropout, ok_no_dropout, NULL, 0, 0, 0, NULL},
  {"aten::dropout", factory_no_dropout, ok_no_dropout, NULL, 0, 0, 0, NULL},
  {0},
};
/* clang-format on */
