/* One fused kernel to PTX text: arguments, the thread's outer indices, what lives in shared
 * memory; the body is ptx_walk's.
 * In: a kernel and its MgPtxPlan.  Out: .entry name(p0.., s0..), see ptx.h. */
#include "ptx/ptx_priv.h"

static const char *const emit_decl[R__COUNT] = {"pred", "b16", "b32", "b64", "f32", "f64"};

static int emit_all(const MgLoop *l) { return l->nouter + (l->kind == ML_reduce ? l->nred : 0); }

/* ---- the kernel's nests ---- */

static ExprRef emit_rename_red(MgExprs *x, ExprRef r, const ExprRef *s, void *arg) {
  const MgExpr *n = mg_expr(x, r);
  return n->op == OP_red ? mg_ex_red_of(x, n->ty, *(int *)arg) : mg_ex_rebuild(x, r, s);
}

static MgRc emit_nest(Px *e, uint32_t i) {
  MgLoop *l = &e->own[i];
  int n = (int)i;
  *l = *e->k->loop[i];
  if (l->kind == ML_reduce && (l->red_op == RED_any || l->red_op == RED_all))
    l->body = mg_ex_cvt(e->x, TY_i1, l->body);
  ExprRef *part[4] = {&l->body, &l->value, &l->index, &l->mask};
  for (int j = 0; j < 4; j++) {
    MgRc rc = MG_OK;
    if (!*part[j]) continue;
    if (j == 1) *part[j] = mg_ex_map(e->x, *part[j], emit_rename_red, &n);
    if (*part[j]) *part[j] = mg_ex_legalize(e->x, *part[j], 1, &rc);
    TRY(rc);
    TRY(mg_exprs_ok(e->x));
  }
  e->stored[l->buf] = true;
  return MG_OK;
}

/* Does a phase of this nest keep its values in registers when it is over? */
static bool emit_keeps(const Px *e, const MgLoop *l) {
  int64_t n = 1, k,
          span =
              (int64_t)e->g->team * (e->g->lane >= e->g->nouter && e->g->lane < emit_all(l) ? e->g->vec : 1);
  if (l->kind == ML_reduce && l->nouter > e->g->nouter) return false;
  for (int d = e->g->nouter; d < emit_all(l); d++) {
    if (!mg_ex_const_int(e->x, l->range[d], &k)) return false;
    n *= k;
  }
  return (n + span - 1) / span <= e->g->pieces;
}

typedef struct EmitReads { /* looks for loads of what the kernel stores, in nest `at` */
  Px *e;
  const MgLoop *at;
  bool *memory; /* per buffer: somebody needs it in memory */
} EmitReads;

/* Does the thread that loads this still have it in a register? */
static bool emit_in_register(const Px *e, const MgLoop *from, const MgLoop *to, ExprRef index) {
  int level = from->kind == ML_reduce ? from->nouter : emit_all(from);
  if (from->index != index || from->mask) return false;
  if (level == e->g->nouter) return true; /* all threads of the row have it */
  if (from->kind == ML_reduce || emit_all(from) != emit_all(to)) return false;
  return from->phase == to->phase || (emit_keeps(e, from) && emit_keeps(e, to));
}

static bool emit_see_load(const MgExprs *x, ExprRef r, void *arg) {
  EmitReads *a = arg;
  Px *e = a->e;
  const MgExpr *n = mg_expr(x, r);
  if (n->op != OP_load || !e->stored[n->u.i]) return false;
  e->loaded[n->u.i] = true;
  for (uint32_t i = 0; i < e->k->nloop; i++) {
    const MgLoop *from = &e->own[i];
    if (from->buf != (BufRef)n->u.i || from->phase > a->at->phase) continue;
    if (n->src[1] || !emit_in_register(e, from, a->at, n->src[0]))
      a->memory[n->u.i] |= from->phase < a->at->phase || from != a->at;
  }
  return false;
}

static MgRc emit_prepare(Px *e) {
  const MgKernel *k = e->k;
  uint32_t nbuf = e->s->nbuf;
  bool *memory = mg_new(e->c, bool, nbuf);
  e->own = mg_new(e->c, MgLoop, k->nloop);
  e->red = mg_ctx_alloc(e->c, sizeof *e->red * k->nloop);
  e->arg = mg_new(e->c, int, nbuf);
  e->shared = mg_new(e->c, bool, nbuf);
  e->stored = mg_new(e->c, bool, nbuf);
  e->loaded = mg_new(e->c, bool, nbuf);
  TRYP(e->loaded && memory && e->own && e->red && e->arg && e->shared && e->stored);
  for (uint32_t i = 0; i < nbuf; i++) e->arg[i] = -1;
  for (uint32_t i = 0; i < k->nbuf; i++) e->arg[k->buf[i]] = (int)i;
  for (uint32_t i = 0; i < k->nloop; i++) TRY(emit_nest(e, i));
  for (uint32_t i = 0; i < k->nloop; i++) {
    EmitReads reads = {e, &e->own[i], memory};
    const ExprRef part[4] = {e->own[i].body, e->own[i].value, e->own[i].index, e->own[i].mask};
    for (int j = 0; j < 4; j++)
      if (part[j]) mg_ex_any(e->x, part[j], emit_see_load, &reads);
  }
  for (uint32_t i = 0; i < k->nloop; i++) {
    BufRef b = e->own[i].buf;
    /* a result on the CPU */
    if (e->s->buf[b].device == DEV_cpu && b != e->s->err && e->s->buf[b].kind != MB_local) return MG_UNSUP;
    if (!memory[b]) continue;
    e->shared[b] = e->s->buf[b].kind == MB_local;
    e->synced |= e->g->team > 1;
    if (e->shared[b] && (e->g->team == 1 || mg_sym_is(e->x, e->s->buf[b].nelem, 0))) return MG_UNSUP;
  }
  return mg_exprs_ok(e->x);
}

/* ---- the thread's place ---- */

/* The block's number, among those of its nest. */
static int emit_block(Px *e) {
  int block = px_reg(e, TY_u32);
  PUT("  mov.u32 %%r%d, %%ctaid.x;\n", block);
  if (!e->g->each) return block;
  e->nest = px_op32(e, "div.u32", block, e->g->each);
  return px_op32(e, "rem.u32", block, e->g->each);
}

/* The number of its outer point (group of points, row), and what tells whether there is one. */
static int emit_number(Px *e, int *end) {
  MgTy t = e->g->narrow ? TY_i32 : TY_i64;
  int r = emit_block(e), tid = px_reg(e, TY_u32), n = px_reg(e, t), team = e->g->team,
      each = e->g->threads / team;
  PUT("  mov.u32 %%r%d, %%tid.x;\n", tid);
  int low = e->g->across ? each : team, mine = tid;
  if (team > 1) {
    int upper = px_op32(e, "shr.u32", tid, __builtin_ctz((unsigned)low));
    int lower = px_op32(e, "and.b32", tid, low - 1);
    mine = e->g->across ? lower : upper;
    e->rank = e->g->across ? upper : lower;
    e->slot = each > 1 ? mine : -1;
    e->first = px_reg(e, TY_i1);
    PUT("  setp.eq.u32 %%p%d, %%r%d, 0;\n", e->first, e->rank);
  }
  if (e->g->narrow) {
    PUT("  mad.lo.u32 %%r%d, %%r%d, %d, %%r%d;\n", n, r, each, mine);
  } else {
    int m = px_reg(e, TY_i64);
    PUT("  mul.wide.u32 %%rd%d, %%r%d, %d;\n  cvt.u64.u32 %%rd%d, %%r%d;\n  add.s64 %%rd%d, %%rd%d, "
        "%%rd%d;\n",
        n, r, each, m, mine, n, n, m);
  }
  *end = px_size(e, e->g->points);
  return n;
}

static void emit_compare(Px *e, const char *op, int p, MgTy t, int a, int b) {
  PUT("  setp.%s.%s %%p%d, ", op, px_arith_ty(t), p);
  px_put(e, t, a);
  PUT(", ");
  px_put(e, t, b);
  PUT(";\n");
}

/* Binds the outer indices.  Threads without a point end; those that share a row stay and
 * do the last one once more. */
static void emit_place(Px *e) {
  MgTy t = e->g->narrow ? TY_i32 : TY_i64;
  int end, n = emit_number(e, &end), nouter = e->g->nouter, p = px_reg(e, TY_i1);
  int64_t size;
  if (e->g->team == 1) {
    emit_compare(e, "ge", p, t, n, end);
    PUT("  @%%p%d ret;\n", p);
  } else {
    int last = px_reg(e, t);
    emit_compare(e, "lt", p, t, n, end);
    e->live = p;
    PUT("  add.%s ", px_arith_ty(t));
    px_put(e, t, last);
    PUT(", ");
    px_put(e, t, end);
    PUT(", -1;\n");
    n = px_select(e, t, p, n, last);
  }
  for (int k = nouter - 1; k >= 0; k--) {
    bool lane = k == e->g->lane;
    SymRef r = e->own[0].range[k];
    const char *ty = e->g->narrow ? "u32" : "s64", *pre = px_prefix[px_class(t)];
    int q = px_reg(e, t), i = px_reg(e, t);
    if (lane && mg_ex_const_int(e->x, r, &size)) r = mg_sym(e->x, size / e->g->vec);
    if (k == 0) i = n;
    else if (mg_ex_const_int(e->x, r, &size)) {
      PUT("  rem.%s %s%d, %s%d, %lld;\n  div.%s %s%d, %s%d, %lld;\n", ty, pre, i, pre, n, (long long)size, ty,
          pre, q, pre, n, (long long)size);
    } else {
      int d = px_size(e, r);
      PUT("  rem.%s %s%d, %s%d, %s%d;\n  div.%s %s%d, %s%d, %s%d;\n", ty, pre, i, pre, n, pre, d, ty, pre, q,
          pre, n, pre, d);
    }
    e->idx[k] = i;
    if (lane) {
      e->idx[k] = px_reg(e, t);
      PUT("  mul.lo.%s %s%d, %s%d, %d;\n", ty, pre, e->idx[k], pre, i, e->g->vec);
    }
    n = q;
  }
}

/* ---- text ---- */

static MgRc emit_head(Px *e, MgStrbuf *out) {
  const MgKernel *k = e->k;
  int64_t n, bytes = 0, each = e->g->threads / e->g->team;
  mg_sb_printf(out, ".visible .entry %s(", k->name);
  for (uint32_t i = 0; i < k->nbuf; i++) mg_sb_printf(out, "%s.param .u64 a%u", i ? ", " : "", i);
  for (uint32_t i = 0; i < e->x->nsym; i++)
    mg_sb_printf(out, "%s.param .u64 z%u", i || k->nbuf ? ", " : "", i);
  mg_sb_printf(out, ")\n.maxntid %u, 1, 1\n{\n", e->g->threads);
  for (int i = 0; i < R__COUNT; i++)
    if (e->nreg[i]) mg_sb_printf(out, "  .reg .%s %s<%d>;\n", emit_decl[i], px_prefix[i], e->nreg[i]);
  if (k->nbuf) mg_sb_printf(out, "  .reg .b64 %%q<%u>;\n", k->nbuf);
  if (e->x->nsym) mg_sb_printf(out, "  .reg .b64 %%s<%u>;\n", e->x->nsym);
  if (e->nexchange) {
    bytes = (int64_t)e->nexchange * e->g->threads / 32 * 8 * (e->g->across ? each : 1);
    mg_sb_printf(out, "  .shared .align 8 .b8 exchange[%lld];\n", (long long)bytes);
  }
  if (e->ntile) {
    bytes = (int64_t)e->ntile * PX_TILE * (PX_TILE + 1) * 8;
    mg_sb_printf(out, "  .shared .align 8 .b8 tile[%lld];\n", (long long)bytes);
  }
  for (BufRef b = 1; b < e->s->nbuf; b++) {
    if (b >= e->s->nbuf || !e->shared[b]) continue;
    if (!mg_ex_const_int(e->x, e->s->buf[b].nelem, &n)) return MG_UNSUP;
    n *= each * mg_dtype_size((MgDtype)e->s->buf[b].dtype);
    bytes += n + 16;
    mg_sb_printf(out, "  .shared .align 16 .b8 lb%u[%lld];\n", b, (long long)n);
  }
  for (uint32_t i = 0; i < k->nbuf; i++) {
    mg_sb_printf(out, "  ld.param.u64 %%q%u, [a%u];\n", i, i);
    if (e->s->buf[k->buf[i]].device != DEV_cpu)
      mg_sb_printf(out, "  cvta.to.global.u64 %%q%u, %%q%u;\n", i, i);
  }
  for (uint32_t i = 0; i < e->x->nsym; i++) mg_sb_printf(out, "  ld.param.u64 %%s%u, [z%u];\n", i, i);
  return bytes > PX_SHARED ? MG_UNSUP : MG_OK;
}

/* The same of a block that has a tile: the first points of its two indices. */
static void emit_tile_place(Px *e) {
  MgTy t = e->g->narrow ? TY_i32 : TY_i64;
  const char *ty = e->g->narrow ? "u32" : "s64", *pre = px_prefix[px_class(t)];
  int n = emit_block(e);
  if (!e->g->narrow) {
    int wide = px_reg(e, t);
    PUT("  cvt.u64.u32 %%rd%d, %%r%d;\n", wide, n);
    n = wide;
  }
  for (int k = e->g->nouter - 1; k >= 0; k--) {
    bool tile = k == e->g->cross || k == e->g->nouter - 1;
    SymRef r = e->own[0].range[k];
    if (tile)
      r = mg_sym_floordiv(e->x, mg_sym_add(e->x, r, mg_sym(e->x, PX_TILE - 1)), mg_sym(e->x, PX_TILE));
    int q = px_reg(e, t), i = px_reg(e, t), d = px_size(e, r);
    PUT("  rem.%s %s%d, %s%d, %s%d;\n  div.%s %s%d, %s%d, %s%d;\n", ty, pre, i, pre, n, pre, d, ty, pre, q,
        pre, n, pre, d);
    if (tile) PUT("  mul.lo.%s %s%d, %s%d, %d;\n", ty, pre, i, pre, i, PX_TILE);
    e->idx[k] = i;
    n = q;
  }
}

static MgRc emit_body(Px *e) {
  TRY(emit_prepare(e));
  if (e->g->map == MG_PTX_tiles) emit_tile_place(e);
  else emit_place(e);
  px_kernel(e);
  return e->rc ? e->rc : mg_exprs_ok(e->x);
}

MgRc mg_ptx_emit(MgSched *s, const MgKernel *k, const MgPtxPlan *p, MgStrbuf *out) {
  Px *e = mg_new(s->c, Px, 1);
  TRYP(e);
  e->s = s;
  e->x = s->x;
  e->c = s->c;
  e->k = k;
  e->g = p;
  e->at.together = true;
  e->at.guard = e->live = e->first = e->rank = e->slot = -1;
  const MgLoop *longest = k->loop[0];
  for (uint32_t i = 1; i < k->nloop; i++)
    if (emit_all(k->loop[i]) > emit_all(longest)) longest = k->loop[i];
  for (int i = 0; i < MG_MAX_IDX; i++)
    mg_ex_set_idx_range(s->x, i, i < emit_all(longest) ? longest->range[i] : 0);
  MgRc rc = emit_body(e);
  if (rc == MG_OK) rc = emit_head(e, out);
  if (rc == MG_OK) {
    mg_sb_puts(out, mg_sb_text(&e->b));
    mg_sb_puts(out, "  ret;\n}\n");
    if (e->b.failed || !mg_sb_ok(out)) rc = MG_NOMEM;
  }
  mg_sb_free(&e->b);
  mg_map_free(&e->memo);
  mg_map_free(&e->step);
  return rc;
}

void mg_ptx_prologue(MgStrbuf *out) { mg_sb_puts(out, ".version 8.0\n.target sm_80\n.address_size 64\n"); }
