/* Expressions to LLVM instructions: values in scalar or vector form, accumulators. */
#include "back/emit/emit_llvm_priv.h"
#include <math.h>
#include <string.h>

/* ---- values ---- */

/* A loop index as ty, i64 or i32. */
static EmRef emit_index(Em *e, int k, MgTy ty, int lanes) {
  EmRef iv = em_cvt(e, ty, TY_i64, e->idx[k], 1);
  if (lanes == 1 || k != e->kv) return iv;
  EmRef all = iv.id == -1 ? em_const(iv.k, lanes) : em_broadcast(e, iv, ty, lanes),
        r = em_new(e, iv.level, lanes);
  MgStrbuf *b = em_at(e, r.level);
  mg_sb_printf(b, "  %%v%d = add <%d x %s> ", r.id, lanes, em_ty(ty));
  em_put(e, b, all, ty);
  for (int i = 0; i < lanes; i++) mg_sb_printf(b, "%s%s %d", i ? ", " : ", <", em_ty(ty), i);
  mg_sb_puts(b, ">\n");
  return r;
}

static EmRef emit_symbol(Em *e, int64_t k) {
  EmRef p = em_new(e, 0, 1), v = em_new(e, 0, 1);
  mg_sb_printf(em_at(e, 0),
               "  %%v%d = getelementptr i64, ptr %%size, i64 %lld\n  %%v%d = load i64, ptr %%v%d, align 8\n",
               p.id, (long long)k, v.id, p.id);
  return v;
}

/* Behind the symbols. */
static EmRef emit_long_size(Em *e, ExprRef r) {
  if (!e->size_at[r]) {
    if (mg_sched_size(e->s, r) != MG_OK) e->rc = MG_NOMEM;
    e->size_at[r] = e->s->nsize;
  }
  return emit_symbol(e, (int64_t)e->x->nsym + e->size_at[r] - 1);
}

/* Sizes that ranges and strides are made of did not go through prepare(). */
static EmRef emit_illegal(Em *e, ExprRef r, int lanes) {
  const MgExpr n = *mg_expr(e->x, r);
  MgRc rc = MG_OK;
  ExprRef legal = mg_ex_legalize(e->x, r, 0, &rc);
  if (rc == MG_OK && legal != r && !e->x->nomem) return em_value(e, legal, lanes);
  e->rc = rc != MG_OK ? rc
                      : mg_fail(e->c, MG_BUG, "emit_llvm: %s of %s was not legalised",
                                mg_scalar_info[n.op].name, mg_ty_name(n.ty));
  return em_kint(e, n.ty, 0, lanes);
}

/* May a NaN that comes out of here have low bits that are not 0?  Arithmetic on bfloat16 values gives none.
 */
static bool emit_odd_nan(const MgExprs *x, ExprRef r, void *unused) {
  const MgExpr *n = mg_expr(x, r);
  switch (n->op) {
  case OP_load: return n->ty != TY_bf16;
  case OP_const: return mg_ty_is_float(n->ty) && n->u.f != n->u.f;
  case OP_add:
  case OP_sub:
  case OP_mul:
  case OP_div:
  case OP_fma:
  case OP_neg:
  case OP_abs:
  case OP_cvt:
  case OP_min:
  case OP_max:
  case OP_where:
  case OP_lt:
  case OP_le:
  case OP_eq:
  case OP_isnan:
  case OP_idx:
  case OP_sym: return false;
  default: return true;
  }
}

static bool emit_is_cvt(const MgExprs *x, ExprRef r, MgTy to, MgTy from) {
  const MgExpr *n = mg_expr(x, r);
  return n->op == OP_cvt && n->ty == to && mg_expr(x, n->src[0])->ty == from;
}

/* Values that are rounded to bfloat16 after each op stay in the lanes of float32.  In: a conversion.
 * False: it is no such case. */
static bool emit_in_place(Em *e, ExprRef r, int lanes, EmRef *out) {
  const MgExpr n = *mg_expr(e->x, r);
  if (e->x->numerics == MN_fast || n.op != OP_cvt) return false;
  if (emit_is_cvt(e->x, r, TY_bf16, TY_f32)) {
    *out = em_pack_bf16(e, em_value(e, mg_ex_cvt(e->x, TY_f32, r), lanes), lanes);
    return true;
  }
  ExprRef inner = n.src[0];
  if (!emit_is_cvt(e->x, r, TY_f32, TY_bf16)) return false;
  const MgExpr load = *mg_expr(e->x, inner);
  if (load.op == OP_load) inner = em_forwarded(e, &load);
  if (!inner || !emit_is_cvt(e->x, inner, TY_bf16, TY_f32)) return false;
  if (inner != n.src[0]) {
    *out = em_value(e, mg_ex_cvt(e->x, TY_f32, inner), lanes);
    return true;
  }
  ExprRef wide = mg_expr(e->x, inner)->src[0];
  *out = em_round_bf16(e, em_value(e, wide, lanes), !mg_ex_any(e->x, wide, emit_odd_nan, NULL), lanes);
  return true;
}

static EmRef emit_node(Em *e, ExprRef r, int lanes) {
  const MgExpr n = *mg_expr(e->x, r);
  EmRef s[3] = {em_none, em_none, em_none}, v;
  ExprRef narrow;
  if (mg_ex_is_long_size(e->x, r)) return emit_long_size(e, r);
  switch (n.op) {
  case OP_idx: return emit_index(e, (int)n.u.i, TY_i64, lanes);
  case OP_sym: return emit_symbol(e, n.u.i);
  case OP_red: return e->redval[n.u.i];
  case OP_load: return em_load(e, n, r, lanes);
  default: break;
  }
  MgTy from = mg_expr(e->x, n.src[0])->ty;
  if (lanes > 1 && (narrow = em_narrower(e, r))) return em_value(e, narrow, lanes);
  if (n.op == OP_cvt && n.ty == TY_i32 && mg_expr(e->x, n.src[0])->op == OP_idx)
    return emit_index(e, (int)mg_expr(e->x, n.src[0])->u.i, TY_i32, lanes);
  const EmCone *cone = em_cone_at(e, r);
  if (cone) {
    for (int i = 0; i < cone->nleaf; i++) s[i] = em_value(e, cone->leaf[i], lanes);
    return em_call(e, (EmFun){.shape = cone->shape, .nin = cone->nleaf}, lanes, s);
  }
  if (em_is_apart(e, &n)) {
    for (int i = 0; i < n.nsrc; i++) s[i] = em_value(e, n.src[i], lanes);
    return em_call(e, (EmFun){.op = n.op, .nin = n.nsrc}, lanes, s);
  }
  if (emit_in_place(e, r, lanes, &v)) return v;
  const char *t = mg_scalar_info[n.op].ll[mg_scalar_class(from)];
  if (!t && n.op != OP_cvt && n.op != OP_bitcast && n.op != OP_where) return emit_illegal(e, r, lanes);
  for (int i = 0; i < n.nsrc; i++) s[i] = em_value(e, n.src[i], lanes);
  if (n.op == OP_cvt) return em_cvt(e, n.ty, from, s[0], lanes);
  if (n.op == OP_bitcast) {
    if (!strcmp(em_ty(from), em_ty(n.ty))) return s[0];
    return em_conv(e, "bitcast", from, n.ty, s[0], lanes);
  }
  if (n.op == OP_where) return em_select(e, n.ty, lanes, s[0], s[1], s[2]);
  if (n.op == OP_rem && lanes > 1 &&
      mg_ty_is_float(from)) /* it iterates until all lanes are done: those that do not exist are at once */
    s[1] = em_existing(e, RED_prod, from, s[1]);
  return em_template(e, t, from, n.ty, lanes, s, n.nsrc);
}

EmRef em_value(Em *e, ExprRef r, int lanes) {
  if (e->rc || !em_tables(e) || e->x->nomem) return em_kint(e, TY_i64, 0, 1);
  if (mg_expr(e->x, r)->op == OP_const) return em_const(r, lanes);
  EmMemo *m = &e->memo[lanes > 1][r];
  if (m->serial && m->lanes == lanes && m->level <= e->depth && m->serial == e->scope[m->level].serial)
    return (EmRef){.id = m->id, .lanes = (uint8_t)lanes, .level = m->level};
  EmRef v;
  if (lanes > 1 && !em_varies(e, r)) v = em_value(e, r, 1);
  else v = emit_node(e, r, lanes);
  if (v.id == -1) return (EmRef){.id = -1, .k = v.k, .lanes = (uint8_t)lanes, .level = v.level};
  if (lanes > v.lanes) v = em_broadcast(e, v, mg_expr(e->x, r)->ty, lanes);
  /* The loop variable of an unrolled copy and a reduced value change without leaving their scope. */
  if (!e->rc)
    e->memo[lanes > 1][r] =
        (EmMemo){.id = v.id, .level = v.level, .lanes = (uint8_t)lanes, .serial = e->scope[v.level].serial};
  return v;
}

/* ---- accumulators ---- */

EmRef em_acc_start(Em *e, MgRedOp op, MgTy ty, int lanes) {
  return em_const(mg_ty_is_float(ty) ? mg_ex_float(e->x, ty, mg_red_start(op, ty).f)
                                     : mg_ex_int(e->x, ty, mg_red_start(op, ty).i),
                  lanes);
}

EmRef em_combine(Em *e, MgRedOp op, MgTy ty, int lanes, EmRef a, EmRef b) {
  static const MgScalarOp by[] = {
      [RED_sum] = OP_add, [RED_prod] = OP_mul, [RED_max] = OP_max, [RED_min] = OP_min,
      [RED_any] = OP_or,  [RED_all] = OP_and,  [RED_xor] = OP_xor};
  return em_ins(e, mg_scalar_info[by[op]].ll[mg_scalar_class(ty)], ty, ty, lanes, a, b);
}

/* The better of two (value, position) pairs: NaN first (argpool: of two the higher position), then the value,
 * then the lower position. */
void em_combine_arg(Em *e, MgRedOp op, MgTy ty, int lanes, EmRef a[2], const EmRef b[2]) {
  bool f = mg_ty_is_float(ty), max = op != RED_argmin;
  EmRef take, tie, first = em_ins(e, "icmp slt $t $a, $b", TY_i64, TY_i1, lanes, b[1], a[1]);
  if (f) {
    take = em_ins(e, max ? "fcmp ugt $t $a, $b" : "fcmp ult $t $a, $b", ty, TY_i1, lanes, b[0], a[0]);
    take = em_ins(e, "and $t $a, $b", TY_i1, TY_i1, lanes, take,
                  em_ins(e, "fcmp ord $t $a, $b", ty, TY_i1, lanes, a[0], a[0]));
    EmRef nan = em_ins(e, "fcmp uno $t $a, $b", ty, TY_i1, lanes, a[0], a[0]);
    tie = em_ins(e, "and $t $a, $b", TY_i1, TY_i1, lanes, nan,
                 em_ins(e, "fcmp uno $t $a, $b", ty, TY_i1, lanes, b[0], b[0]));
    if (op == RED_argpool) {
      EmRef last = em_ins(e, "icmp sgt $t $a, $b", TY_i64, TY_i1, lanes, b[1], a[1]);
      first = em_ins(e, "or $t $a, $b", TY_i1, TY_i1, lanes, first, nan);
      tie = em_ins(e, "and $t $a, $b", TY_i1, TY_i1, lanes, tie, last);
    }
    tie = em_ins(e, "or $t $a, $b", TY_i1, TY_i1, lanes, tie,
                 em_ins(e, "fcmp oeq $t $a, $b", ty, TY_i1, lanes, a[0], b[0]));
  } else {
    const char *gt = mg_ty_is_signed(ty) ? (max ? "icmp sgt $t $a, $b" : "icmp slt $t $a, $b")
                                         : (max ? "icmp ugt $t $a, $b" : "icmp ult $t $a, $b");
    take = em_ins(e, gt, ty, TY_i1, lanes, b[0], a[0]);
    tie = em_ins(e, "icmp eq $t $a, $b", ty, TY_i1, lanes, a[0], b[0]);
  }
  take = em_ins(e, "or $t $a, $b", TY_i1, TY_i1, lanes, take,
                em_ins(e, "and $t $a, $b", TY_i1, TY_i1, lanes, tie, first));
  a[0] = em_select(e, ty, lanes, take, b[0], a[0]);
  a[1] = em_select(e, TY_i64, lanes, take, b[1], a[1]);
}

/* v, or the reduction's neutral value in lanes that do not exist. */
EmRef em_existing(Em *e, MgRedOp op, MgTy ty, EmRef v) {
  if (e->mask.id == -2) return v;
  return em_select(e, ty, e->lanes, e->mask, v, em_acc_start(e, op, ty, e->lanes));
}

static EmRef half_of(Em *e, EmRef v, MgTy ty, int n, int at) {
  if (n == 1) return em_lane(e, v, ty, at);
  if (v.id == -1) return em_const(v.k, n);
  EmRef r = em_new(e, v.level, n);
  MgStrbuf *b = em_at(e, v.level);
  mg_sb_printf(b, "  %%v%d = shufflevector <%d x %s> %%v%d, <%d x %s> poison, <%d x i32> <", r.id, v.lanes,
               em_ty(ty), v.id, v.lanes, em_ty(ty), n);
  for (int i = 0; i < n; i++) mg_sb_printf(b, "%si32 %d", i ? ", " : "", at + i);
  mg_sb_puts(b, ">\n");
  return r;
}

/* All lanes into one. */
void em_horizontal(Em *e, MgRedOp op, MgTy ty, EmRef a[2]) {
  bool arg = mg_red_is_arg(op);
  for (int n = a[0].lanes / 2; n >= 1; n /= 2) {
    EmRef hi[2] = {half_of(e, a[0], ty, n, n)};
    a[0] = half_of(e, a[0], ty, n, 0);
    if (arg) {
      hi[1] = half_of(e, a[1], TY_i64, n, n);
      a[1] = half_of(e, a[1], TY_i64, n, 0);
      em_combine_arg(e, op, ty, n, a, hi);
    } else {
      a[0] = em_combine(e, op, ty, n, a[0], hi[0]);
    }
  }
}
