/* Elementary functions apart from the kernels that call them.
 * LLVM's time grows with the instructions of a function, and a polynomial has 20 to 60 of them.  A kernel
 * with many of these calls functions of its own text instead, one for each row and number of
 * lanes: the numbers are the same.
 * In: nests as the kernel has them.  Out: calls, and behind the kernel the functions.
 * Invariant: a kernel with few of them is written as if this file did not exist. */
#include "back/emit/emit_llvm_priv.h"
#include <string.h>
#include "tuning.h"

void em_begin(Em *e, const MgKernel *k) {
  e->k = k;
  e->depth = e->nid = e->nacc = e->base_level = 0;
  e->nfwd = 0;
  e->nlabel = 1;
  e->lanes = 1;
  e->kv = e->tile = -1;
  e->mask.id = -2;
  e->mask_one = false;
  e->red_vec = false;
  e->rc = MG_OK;
  memset(e->idx, 0, sizeof e->idx);
  e->scope[0].buf.len = 0;
  e->scope[0].label = 0;
  e->scope[0].serial = ++e->serial;
}

static bool fun_is_polynomial(const MgExprs *x, const MgExpr *n) {
  return x->numerics != MN_eager && n->nsrc && mg_scalar_info[n->op].flags & SOF_V &&
         mg_expr(x, n->src[0])->ty == TY_f32;
}

typedef struct FunCount {
  uint32_t calls, ops;
  bool seen[OP__COUNT];
} FunCount;

/* The function as expression over the leaves red 0 and red 1. */
static ExprRef fun_text(Em *e, MgScalarOp op, MgRc *rc) {
  ExprRef leaf[2] = {0, 0};
  for (int i = 0; i < mg_scalar_info[op].nin; i++) leaf[i] = mg_ex_red_of(e->x, TY_f32, i);
  return mg_ex_legalize(e->x, mg_ex_op(e->x, op, leaf[0], leaf[1], 0), 0, rc);
}

static bool fun_is_f64(const MgExprs *x, ExprRef r, void *unused) {
  (void)unused;
  return mg_expr(x, r)->ty == TY_f64;
}

/* Does one of the functions work in float64?  A vector of its results is two registers already. */
static bool fun_some_double(Em *e, const FunCount *c) {
  MgRc rc = MG_OK;
  for (int op = 0; op < OP__COUNT; op++) {
    ExprRef r = c->seen[op] ? fun_text(e, (MgScalarOp)op, &rc) : 0;
    if (rc != MG_OK) return true; /* it fails where the function is written */
    if (r && mg_ex_any(e->x, r, fun_is_f64, NULL)) return true;
  }
  return false;
}

static bool fun_count(const MgExprs *x, ExprRef r, void *count) {
  FunCount *c = count;
  const MgExpr *n = mg_expr(x, r);
  if (!fun_is_polynomial(x, n)) return false;
  c->calls++;
  c->ops += !c->seen[n->op];
  c->seen[n->op] = true;
  return false;
}

/* Will nearly all points of the kernel be in EMIT_WIDE vectors at a time? */
static bool fun_is_wide(Em *e) {
  if (e->k->nloop > e->wide_loops) return false;
  for (uint32_t i = 0; i < e->k->nloop; i++) {
    const MgLoop *l = e->k->loop[i];
    if (l->kind != ML_point || l->vec == MG_NO_VEC || mg_ty_size(mg_expr(e->x, l->value)->ty) > 4)
      return false;
    if (mg_sym_hint(e->x, l->range[l->vec]) < 2 * EMIT_WIDE * e->t->vector_bits / 32) return false;
    if (!em_contiguous_only(e, l, l->vec, false)) return false;
  }
  return true;
}

void em_choose_functions(Em *e) {
  FunCount c = {0};
  for (uint32_t i = 0; i < e->k->nloop; i++) {
    mg_ex_any(e->x, e->k->loop[i]->body, fun_count, &c);
    mg_ex_any(e->x, e->k->loop[i]->value, fun_count, &c);
  }
  e->nfun = 0;
  e->ncone = 0;
  e->wide_loops = c.calls >= MG_TUNE_FUN_FEW && fun_some_double(e, &c) ? EMIT_WIDE_DOUBLE : EMIT_WIDE_LOOPS;
  e->apart =
      c.calls >= MG_TUNE_FUN_MANY || (c.calls >= MG_TUNE_FUN_FEW && c.calls >= 2 * c.ops && fun_is_wide(e));
  e->fun_scalar = c.calls > MG_TUNE_FUN_CALLS * c.ops;
  e->fun_long = e->k->nshared == 1 && mg_sym_hint(e->x, e->k->outer) >= MG_TUNE_FUN_LONG;
}

bool em_is_apart(const Em *e, const MgExpr *n) { return e->apart && fun_is_polynomial(e->x, n); }

static void fun_name(const Em *e, const EmFun *f, MgStrbuf *b) {
  if (f->shape) mg_sb_printf(b, "@%s_f%u_%d", e->k->name, (unsigned)(f->number), f->lanes);
  else mg_sb_printf(b, "@%s_%s_%d", e->k->name, mg_scalar_info[f->op].name, f->lanes);
}

static bool fun_is_same(const EmFun *a, const EmFun *b) { return a->shape == b->shape && a->op == b->op; }

/* The lanes of the function that is called for values of so many.  Vectors that are left over behind
 * EMIT_WIDE at a time are few in a long kernel, and single numbers behind the vectors are
 * at most seven or fifteen. */
static int fun_lanes(const Em *e, EmFun f, int lanes) {
  int full = e->t->vector_bits / 32;
  if (lanes > full || (lanes == 1 && e->fun_scalar)) return lanes;
  for (int i = 0; i < e->nfun && e->fun_long; i++)
    if (fun_is_same(&e->fun[i], &f) && e->fun[i].lanes > full) return e->fun[i].lanes;
  return full;
}

/* v with more lanes: its own again and again. */
static EmRef fun_widen(Em *e, EmRef v, int lanes, int level) {
  if (v.id == -1) return em_const(v.k, lanes);
  if (v.lanes == lanes) return v;
  MgStrbuf *b = em_at(e, level);
  int from = v.id;
  if (v.lanes == 1) {
    from = e->nid++;
    mg_sb_printf(b, "  %%v%d = insertelement <1 x float> poison, float %%v%d, i64 0\n", from, v.id);
  }
  EmRef r = em_new(e, level, lanes);
  mg_sb_printf(b, "  %%v%d = shufflevector <%d x float> %%v%d, <%d x float> poison, <%d x i32> <", r.id,
               v.lanes, from, v.lanes, lanes);
  for (int i = 0; i < lanes; i++) mg_sb_printf(b, "%si32 %d", i ? ", " : "", i % v.lanes);
  mg_sb_puts(b, ">\n");
  return r;
}

static EmRef fun_call(Em *e, const EmFun *f, const EmRef *s, int level) {
  MgStrbuf *b = em_at(e, level);
  EmRef r = em_new(e, level, f->lanes);
  mg_sb_printf(b, "  %%v%d = call ", r.id);
  em_put_ty(b, em_ty(TY_f32), f->lanes);
  mg_sb_putc(b, ' ');
  fun_name(e, f, b);
  for (int i = 0; i < f->nin; i++) {
    mg_sb_puts(b, i ? ", " : "(");
    em_put_ty(b, em_ty(TY_f32), f->lanes);
    mg_sb_putc(b, ' ');
    em_put(e, b, s[i], TY_f32);
  }
  mg_sb_puts(b, ")\n");
  return r;
}

EmRef em_call(Em *e, EmFun f, int lanes, const EmRef *s) {
  int known = 0, level = em_level(s, f.nin);
  EmRef arg[2];
  f.lanes = (uint8_t)fun_lanes(e, f, lanes);
  while (known < e->nfun && (!fun_is_same(&e->fun[known], &f) || e->fun[known].lanes != f.lanes)) known++;
  if (known == EMIT_MAX_FUN) {
    e->rc = mg_fail(e->c, MG_UNSUP, "emit_llvm: too many functions in a kernel");
    return em_const(mg_ex_float(e->x, TY_f32, 0), lanes);
  }
  f.number = (uint8_t)known;
  if (known == e->nfun) e->fun[e->nfun++] = f;
  for (int i = 0; i < f.nin; i++) arg[i] = fun_widen(e, s[i], f.lanes, level);
  EmRef r = fun_call(e, &f, arg, level);
  if (lanes == 1 && f.lanes > 1) return em_lane(e, r, TY_f32, 0);
  return em_take_lanes(e, r, TY_f32, 0, lanes, level);
}

/* One function: its operands are the values of the leaves red 0 and red 1. */
static MgRc fun_define(Em *e, const EmFun f, MgStrbuf *out) {
  EmRef arg[2];
  int n = f.nin;
  MgRc rc = MG_OK;
  em_begin(e, e->k);
  e->lanes = f.lanes;
  e->kv = 0; /* no index occurs */
  e->red_vec = true;
  e->redval = arg;
  mg_sb_puts(out, "define internal ");
  em_put_ty(out, em_ty(TY_f32), f.lanes);
  mg_sb_putc(out, ' ');
  fun_name(e, &f, out);
  for (int i = 0; i < n; i++) {
    arg[i] = em_new(e, 0, f.lanes);
    mg_sb_puts(out, i ? ", " : "(");
    em_put_ty(out, em_ty(TY_f32), f.lanes);
    mg_sb_printf(out, " %%v%d", arg[i].id);
  }
  mg_sb_puts(out, ") noinline nounwind {\nL0:\n");
  ExprRef r = f.shape; /* legal, and calls elementary functions itself */
  if (!r) r = fun_text(e, (MgScalarOp)f.op, &rc);
  TRY(rc);
  EmRef v = em_value(e, r, f.lanes);
  TRY(e->rc);
  if (!mg_sb_ok(em_at(e, 0))) return MG_NOMEM;
  mg_sb_puts(out, mg_sb_text(em_at(e, 0)));
  mg_sb_puts(out, "  ret ");
  em_put_ty(out, em_ty(TY_f32), f.lanes);
  mg_sb_putc(out, ' ');
  em_put(e, out, v, TY_f32);
  mg_sb_puts(out, "\n}\n");
  return MG_OK;
}

MgRc em_functions(Em *e, MgStrbuf *out) {
  const MgTarget *t = e->t;
  MgTarget plain = *t;
  MgRc rc = MG_OK;
  plain.marks = false; /* no sizes in here */
  e->t = &plain;
  e->ncone = 0;
  for (int i = 0; i < e->nfun && rc == MG_OK; i++) {
    e->apart = e->fun[i].shape;
    rc = fun_define(e, e->fun[i], out);
  }
  e->apart = false;
  e->t = t;
  e->nfun = 0;
  return rc == MG_OK ? mg_exprs_ok(e->x) : rc;
}
