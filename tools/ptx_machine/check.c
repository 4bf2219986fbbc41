/* A schedule for a GPU, run by the PTX machine and by the reference evaluator over the same numbers.
 * In: loop nests, and the kernels that fusion made of them.  Out: kernels that touch what they must not, and
 * buffers that differ by more than rounding. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "back/kernel/back.h"
#include "check.h"

enum { CHECK_MOST = 1 << 26 }; /* bytes of one buffer */
/* Data that serves as an index may be anything: the reference reads what lies this far outside. */
enum { CHECK_MARGIN = 1 << 16 };

typedef struct Check {
  MgSched *s;
  MgFused *f;
  const MgBuf *before; /* the buffers as lowering made them: fusion makes some smaller */
  BufRef nbefore;      /* buffers from here on are fusion's own */
  uint64_t seed;
  int64_t *env;
  char **whole;       /* per buffer: three memories with their margins, in the order of the next line */
  PtxMemory *memory;  /* the machine's */
  void **ref, **near; /* the reference's; one of inputs and integers that are rounded otherwise */
  double *rounding;   /* per buffer: of the coarsest type that it is computed in */
  bool indirect;      /* an index depends on data */
  bool special;       /* NaN and others are among the numbers */
  MgStrbuf *out;
  int wrong;
} Check;

static uint64_t check_random(Check *c) { return c->seed = mg_hash_u64(c->seed + 0x9E3779B97F4A7C15ull); }

/* ---- memory ---- */

static bool check_loads(const MgExprs *x, ExprRef r) {
  const MgExpr *e = mg_expr(x, r); /* no mg_ex_any: check_is_indirect asks inside of one */
  bool any = e->op == OP_load;
  for (int i = 0; r && i < e->nsrc && !any; i++) any = e->src[i] && check_loads(x, e->src[i]);
  return any;
}

/* Is it a load whose index depends on what is loaded? */
static bool check_is_indirect(const MgExprs *x, ExprRef r, void *arg) {
  const MgExpr *e = mg_expr(x, r);
  (void)arg;
  return e->op == OP_load && check_loads(x, e->src[0]);
}

/* Does it make integers of floats?  Of what no integer is, a GPU makes others than a CPU. */
static bool check_truncates(const MgExprs *x, ExprRef r, void *arg) {
  const MgExpr *e = mg_expr(x, r);
  (void)arg;
  return e->op == OP_cvt && !mg_ty_is_float(e->ty) && e->ty != TY_i1 &&
         mg_ty_is_float(mg_expr(x, e->src[0])->ty);
}

/* The number beside v: what another rounding might have given. */
static uint64_t check_nudged(MgTy ty, MgScalar v) {
  uint64_t bits = mg_scalar_bits(ty, v);
  return mg_ty_is_float(ty) && v.f != 0 ? bits ^ 1 : bits;
}

/* From -2 to 2; in every other run one in eight is a number that ops treat apart. */
static double check_float(Check *c, uint64_t r) {
  static const double apart[] = {NAN, INFINITY, -INFINITY, 0, -0.0, 1, -1, 1e12, -3e12, 1e-30, 0.5, -90};
  if (c->special && r % 8 == 0) return apart[(r >> 8) % (sizeof apart / sizeof *apart)];
  return (double)(r >> 11) * 0x1p-51 - 2;
}

static void check_fill(Check *c, BufRef b) {
  MgDtype d = (MgDtype)c->s->buf[b].dtype;
  if (!mg_dtype_has_ty(d) || c->s->buf[b].kind == MB_error) return;
  MgTy ty = mg_dtype_ty(d);
  size_t each = (size_t)mg_ty_size(ty);
  for (size_t i = 0; i + each <= c->memory[b].bytes; i += each) {
    uint64_t r = check_random(c);
    int64_t whole = ty == TY_i1 ? (int64_t)(r & 1) : c->indirect ? 0 : (int64_t)(r % 9);
    MgScalar v = mg_ty_is_float(ty) ? (MgScalar){.f = check_float(c, r)} : (MgScalar){.i = whole};
    uint64_t bits = mg_scalar_bits(ty, v);
    memcpy(c->whole[b] + CHECK_MARGIN + i, &bits, each);
    memcpy((char *)c->ref[b] + i, &bits, each);
    bits = check_nudged(ty, v);
    memcpy((char *)c->near[b] + i, &bits, each);
  }
}

static bool check_memory(Check *c) {
  const MgSched *s = c->s;
  for (BufRef b = 1; b < s->nbuf; b++) {
    SymRef nelem = b < c->nbefore ? c->before[b].nelem : s->buf[b].nelem;
    int64_t n = mg_sym_eval(s->x, nelem, c->env) * mg_dtype_size((MgDtype)s->buf[b].dtype);
    if (n < 0 || n > CHECK_MOST) return false;
    c->memory[b].bytes = (size_t)n;
    size_t whole = ((size_t)n + 63) / 64 * 64 + 2 * CHECK_MARGIN;
    if (!(c->whole[b] = aligned_alloc(64, 3 * whole))) return false;
    memset(c->whole[b], 0, 3 * whole);
    c->memory[b].base = c->whole[b] + CHECK_MARGIN;
    c->ref[b] = c->whole[b] + whole + CHECK_MARGIN;
    c->near[b] = c->whole[b] + 2 * whole + CHECK_MARGIN;
    check_fill(c, b);
  }
  return true;
}

/* ---- running ---- */

/* What a launch gives for buffer b: its address, or the number itself where it is one of the CPU. */
static uint64_t check_argument(const MgSched *s, BufRef b, const PtxMemory *m) {
  uint64_t v = (uint64_t)(uintptr_t)m->base;
  if (s->buf[b].device == DEV_cpu) v = 0, memcpy(&v, m->base, m->bytes < 8 ? m->bytes : 8);
  return v;
}

PtxEnd ptx_launch(const MgSched *s, const MgKernel *k, const MgPtxPlan *plan, const char *text,
                  const PtxMemory *memory, const int64_t *env, char *err) {
  PtxMemory *touched = calloc(k->nbuf + 1, sizeof *touched);
  uint64_t *arg = calloc(k->nbuf + s->x->nsym + 1, sizeof *arg);
  PtxProgram *p = touched && arg ? ptx_parse(text, k->name, err) : NULL;
  PtxEnd end = PTX_wrong;
  for (uint32_t j = 0; p && j < k->nbuf; j++) {
    touched[j] = memory[k->buf[j]];
    arg[j] = check_argument(s, k->buf[j], &touched[j]);
  }
  for (uint32_t j = 0; p && j < s->x->nsym; j++) arg[k->nbuf + j] = (uint64_t)env[j];
  if (p) {
    PtxLaunch l = {(unsigned)mg_sym_eval(s->x, plan->blocks, env), plan->threads, arg, touched, (int)k->nbuf};
    end = ptx_run(p, &l, err);
  }
  ptx_free(p);
  free(touched);
  free(arg);
  return end;
}

/* All kernels; false: a data check of the program trapped, so nothing can be compared. */
static bool check_kernels(Check *c) {
  for (uint32_t i = 0; i < c->f->nstep; i++) {
    MgKernel *k = c->f->step[i].kind == MS_kernel ? c->f->step[i].u.kernel : NULL;
    MgStrbuf text = {0};
    MgPtxPlan plan;
    char err[PTX_ERR] = "";
    if (!k) continue;
    bool printed = mg_ptx_plan(c->s, k, true, &plan) == MG_OK && mg_ptx_emit(c->s, k, &plan, &text) == MG_OK;
    PtxEnd end =
        printed ? ptx_launch(c->s, k, &plan, mg_sb_text(&text), c->memory, c->env, err) : PTX_trapped;
    mg_sb_free(&text);
    if (end == PTX_wrong) mg_sb_printf(c->out, "%s: %s\n", k->name, err), c->wrong++;
    if (end != PTX_ran) return false;
  }
  return true;
}

/* The same with another integer for what no integer of that type is: NaN, infinity and numbers out of range.
 */
static ExprRef check_other_integer(MgExprs *x, ExprRef r, const ExprRef *s, void *arg) {
  MgTy ty = mg_expr(x, r)->ty;
  ExprRef same = mg_ex_rebuild(x, r, s);
  if (!check_truncates(x, r, arg)) return same;
  MgTy from = mg_expr(x, s[0])->ty;
  int bits = 8 * mg_ty_size(ty) - mg_ty_is_signed(ty);
  ExprRef size = mg_ex_op(x, OP_abs, s[0], 0, 0), most = mg_ex_float(x, from, ldexp(1, bits));
  return mg_ex_op(x, OP_where, mg_ex_op(x, OP_lt, size, most, 0), same, mg_ex_int(x, ty, 77));
}

static bool check_reference(Check *c, void **mem) {
  for (uint32_t i = 0; i < c->s->nitem; i++) {
    if (c->s->item[i].kind != MI_loop) continue;
    MgLoop l = *c->s->item[i].u.loop;
    if (mem == c->near) {
      l.body = l.body ? mg_ex_map(c->s->x, l.body, check_other_integer, NULL) : 0;
      l.value = mg_ex_map(c->s->x, l.value, check_other_integer, NULL);
    }
    if (mg_interp_loop(c->s, &l, mem, c->env) != MG_OK) return false;
  }
  return true;
}

/* ---- comparing ---- */

static MgScalar check_element(const void *mem, MgTy ty, size_t i) {
  uint64_t bits = 0;
  memcpy(&bits, (const char *)mem + i * (size_t)mg_ty_size(ty), (size_t)mg_ty_size(ty));
  return mg_scalar_from_bits(ty, bits);
}

static double check_rounding(MgTy ty) {
  return ty == TY_f64 ? 1e-12 : ty == TY_f32 ? 1e-4 : ty == TY_f16 ? 4e-3 : 3e-2;
}

typedef struct Coarsest { /* of an expression */
  const Check *c;
  double rounding;
} Coarsest;

/* Inputs are the same on both sides, whatever their type. */
static bool check_see(const MgExprs *x, ExprRef r, void *arg) {
  Coarsest *k = arg;
  const MgExpr *e = mg_expr(x, r);
  bool input = e->op == OP_load && k->c->rounding[e->u.i] == 0;
  double mine = e->op == OP_load ? k->c->rounding[e->u.i] : check_rounding((MgTy)e->ty);
  if (!input && mg_ty_is_float((MgTy)e->ty) && mine > k->rounding) k->rounding = mine;
  return false;
}

static void check_coarsest(Check *c) {
  for (uint32_t i = 0; i < c->s->nitem; i++) {
    const MgLoop *l = c->s->item[i].kind == MI_loop ? c->s->item[i].u.loop : NULL;
    Coarsest k = {c, l ? c->rounding[l->buf] : 0};
    ExprRef part[] = {l ? l->body : 0, l ? l->value : 0};
    for (int n = 0; n < 2; n++) mg_ex_any(c->s->x, part[n], check_see, &k);
    if (l) c->rounding[l->buf] = k.rounding;
  }
}

/* The machine's p, the reference's q, and what comes of it with other roundings, beside the largest. */
static bool check_same(MgTy ty, double rounding, MgScalar p, MgScalar q, MgScalar near, double most) {
  if (!mg_ty_is_float(ty)) return p.i == q.i || near.i != q.i;
  if (isnan(q.f) != isnan(near.f) || isinf(q.f) != isinf(near.f)) return true; /* so near to the edge */
  if (!isfinite(p.f) || !isfinite(q.f)) return p.f == q.f || (isnan(p.f) && isnan(q.f));
  double other = isfinite(near.f) ? fabs(near.f - q.f) : INFINITY;
  return fabs(p.f - q.f) <= rounding * (fabs(q.f) + 0.01 * most) + 64 * other;
}

static void check_compare(Check *c, BufRef b) {
  MgTy ty = mg_dtype_ty((MgDtype)c->s->buf[b].dtype);
  size_t n = c->memory[b].bytes / (size_t)mg_ty_size(ty), bad = 0, first = 0;
  double rounding = fmax(check_rounding(ty), c->rounding[b]);
  double most = 0;
  for (size_t i = 0; i < n && mg_ty_is_float(ty); i++) {
    double v = fabs(check_element(c->ref[b], ty, i).f);
    if (isfinite(v) && v > most) most = v;
  }
  for (size_t i = 0; i < n; i++) {
    MgScalar near = check_element(c->near[b], ty, i);
    bool same = check_same(ty, rounding, check_element(c->memory[b].base, ty, i),
                           check_element(c->ref[b], ty, i), near, most);
    if (!same && !bad++) first = i;
  }
  if (!bad) return;
  MgScalar p = check_element(c->memory[b].base, ty, first), q = check_element(c->ref[b], ty, first);
  mg_sb_printf(c->out, "buffer b%u: %zu of %zu differ; [%zu] is %.9g, should be %.9g\n", b, bad, n, first,
               mg_ty_is_float(ty) ? p.f : (double)p.i, mg_ty_is_float(ty) ? q.f : (double)q.i);
  c->wrong++;
}

static bool check_is_memory(const MgBuf *b) {
  return b->kind != MB_local && b->kind != MB_error && mg_dtype_has_ty((MgDtype)b->dtype);
}

static void check_run(Check *c) {
  for (uint32_t i = 0; i < c->s->nitem; i++) {
    const MgLoop *l = c->s->item[i].kind == MI_loop ? c->s->item[i].u.loop : NULL;
    ExprRef part[] = {l ? l->body : 0, l ? l->value : 0, l ? l->mask : 0};
    for (int k = 0; k < 3; k++) {
      c->indirect |= mg_ex_any(c->s->x, part[k], check_is_indirect, NULL);
      c->special &= !mg_ex_any(c->s->x, part[k], check_truncates, NULL);
    }
    c->indirect |= l && check_loads(c->s->x, l->index);
  }
  check_coarsest(c);
  if (!check_memory(c)) c->wrong = -1;
  else if (check_kernels(c) && check_reference(c, c->ref) && check_reference(c, c->near))
    for (BufRef b = 1; b < c->nbefore; b++)
      if (check_is_memory(&c->s->buf[b])) check_compare(c, b);
}

int ptx_check(MgSched *s, MgFused *f, const MgBuf *before, BufRef nbefore, uint64_t seed, MgStrbuf *out) {
  Check c = {.s = s, .f = f, .before = before, .nbefore = nbefore, .seed = seed, .out = out, .wrong = -1};
  c.special = seed % 2 == 0;
  size_t n = s->nbuf;
  c.env = calloc(s->x->nsym + 1, sizeof *c.env);
  c.whole = calloc(n, sizeof *c.whole);
  c.memory = calloc(n, sizeof *c.memory);
  c.ref = calloc(n, sizeof *c.ref);
  c.near = calloc(n, sizeof *c.near);
  c.rounding = calloc(n, sizeof *c.rounding);
  if (c.env && c.whole && c.memory && c.ref && c.near && c.rounding) {
    for (uint32_t i = 0; i < s->x->nsym; i++) c.env[i] = s->x->sym[i].hint;
    c.wrong = 0;
    check_run(&c);
  }
  for (size_t b = 0; c.whole && b < n; b++) free(c.whole[b]);
  free(c.env);
  free(c.whole);
  free(c.memory);
  free(c.ref);
  free(c.near);
  free(c.rounding);
  return c.wrong;
}
