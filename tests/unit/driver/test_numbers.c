/* Programs for numbers of the CPU: random expressions of inputs and of earlier numbers, beside a walk over
 * each expression.  Programs are run twice, at other inputs, from a copy of their bytes as plans keep them.
 */
#include <stdlib.h>
#include <string.h>
#include "check.h"
#include "driver/numbers.h"

enum { INPUTS = 6, NUMBERS = 12, ELEMENTS = 3 };

static uint64_t seed = 1;
static uint32_t rnd(uint32_t n) {
  seed = seed * 6364136223846793005ull + 1442695040888963407ull;
  return (uint32_t)(seed >> 33) % n;
}

static const MgDtype dtypes[] = {DT_f32, DT_f64, DT_i64, DT_i32, DT_u8, DT_bool, DT_f16, DT_bf16};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

typedef struct Case {
  MgCtx c;
  MgExprs x;
  MgGraph g;
  MgSched s;
  uint64_t memory[INPUTS][ELEMENTS]; /* elements of at most 8 bytes, packed */
  MgScalar number[NUMBERS];          /* as the walk has them, in their storage type */
} Case;

static MgTy case_ty(const Case *t, BufRef b) { return mg_dtype_ty((MgDtype)t->s.buf[b].dtype); }

/* ---- the walk ---- */

static MgScalar walk_load(Case *t, const MgExpr *n) {
  BufRef b = (BufRef)n->u.i;
  if (t->s.buf[b].kind == MB_number) return t->number[b - 1 - INPUTS];
  int64_t at = 0;
  uint64_t bits = 0;
  size_t bytes = (size_t)mg_ty_size(case_ty(t, b));
  mg_ex_const_int(&t->x, n->src[0], &at);
  memcpy(&bits, (char *)t->memory[t->s.buf[b].index] + (size_t)at * bytes, bytes);
  return mg_scalar_from_bits(case_ty(t, b), bits);
}

static MgScalar walk(Case *t, ExprRef e) {
  const MgExpr n = *mg_expr(&t->x, e);
  MgScalar a[3] = {{0}}, v = {0};
  if (n.op == OP_load) return walk_load(t, &n);
  if (n.op == OP_const) {
    if (mg_ty_is_float((MgTy)n.ty)) v.f = n.u.f;
    else v.i = n.u.i;
    return v;
  }
  for (int i = 0; i < n.nsrc; i++) a[i] = walk(t, n.src[i]);
  MgTy from = (MgTy)mg_expr(&t->x, n.src[0])->ty;
  if (n.op == OP_cvt) return mg_scalar_cvt((MgTy)n.ty, from, a[0]);
  if (n.op == OP_where) return a[0].i ? a[1] : a[2];
  mg_scalar_eval((MgScalarOp)n.op, from, a[0], a[1], a[2], &v);
  return v;
}

/* ---- random expressions ---- */

static ExprRef leaf(Case *t, uint32_t numbers) {
  uint32_t k = rnd(INPUTS + numbers + 1);
  if (k == INPUTS + numbers) return mg_ex_float(&t->x, TY_f64, (double)rnd(7) - 2.5);
  BufRef b = 1 + k;
  ExprRef at = mg_sym(&t->x, k < INPUTS ? rnd(ELEMENTS) : 0);
  return mg_ex_load(&t->x, case_ty(t, b), b, at, 0, 0);
}

static ExprRef tree(Case *t, uint32_t numbers, int depth) {
  static const MgScalarOp unary[] = {OP_neg, OP_sqrt, OP_exp, OP_log, OP_floor, OP_abs},
                          binary[] = {OP_add, OP_sub, OP_mul, OP_div, OP_pow, OP_min, OP_max};
  ExprRef a, b;
  if (!depth || !rnd(5)) return mg_ex_cvt(&t->x, TY_f64, leaf(t, numbers));
  switch (rnd(4)) {
  case 0: return mg_ex_op(&t->x, unary[rnd(6)], tree(t, numbers, depth - 1), 0, 0);
  case 1: /* through another type, as values of that dtype are rounded */
    return mg_ex_cvt(&t->x, TY_f64, mg_ex_cvt(&t->x, rnd(2) ? TY_f32 : TY_f16, tree(t, numbers, depth - 1)));
  case 2:
    a = tree(t, numbers, depth - 1);
    b = tree(t, numbers, depth - 1);
    return mg_ex_op(&t->x, OP_where, mg_ex_op(&t->x, OP_lt, a, b, 0), b, a);
  default:
    a = tree(t, numbers, depth - 1);
    b = tree(t, numbers, depth - 1);
    return mg_ex_op(&t->x, binary[rnd(7)], a, b, 0);
  }
}

/* ---- cases ---- */

static void fill(Case *t) {
  for (uint32_t i = 0; i < INPUTS; i++) {
    MgTy ty = case_ty(t, 1 + i);
    size_t bytes = (size_t)mg_ty_size(ty);
    for (uint32_t k = 0; k < ELEMENTS; k++) {
      MgScalar v = mg_scalar_cvt(ty, TY_f64, (MgScalar){.f = (double)rnd(9) - 3});
      uint64_t bits = mg_scalar_bits(ty, v);
      memcpy((char *)t->memory[i] + k * bytes, &bits, bytes);
    }
  }
}

static bool same(MgTy ty, uint64_t got, MgScalar want) {
  uint64_t mask = mg_ty_size(ty) == 8 ? UINT64_MAX : ((uint64_t)1 << 8 * mg_ty_size(ty)) - 1;
  MgScalar v = mg_scalar_from_bits(ty, got & mask);
  if (mg_ty_is_float(ty) && want.f != want.f) return v.f != v.f;
  return (got & mask) == (mg_scalar_bits(ty, want) & mask);
}

static void run(Case *t, const MgPlanNumbers *p, const void *program, const MgPlanBuf *buf) {
  uint64_t *cell = calloc(p->ncell, sizeof *cell);
  fill(t);
  for (uint32_t i = 0; i < p->ninput; i++) cell[i] = (uint64_t)(uintptr_t)t->memory[p->input[i]];
  p->run(program, cell);
  for (uint32_t i = 0; i < NUMBERS; i++) {
    MgTy ty = case_ty(t, 1 + INPUTS + i), from = (MgTy)mg_expr(&t->x, t->s.number[i].value)->ty;
    t->number[i] = mg_scalar_cvt(ty, from, walk(t, t->s.number[i].value));
    CHECK(buf[1 + INPUTS + i].index < p->ncell && same(ty, cell[buf[1 + INPUTS + i].index], t->number[i]));
  }
  free(cell);
}

static void test_random(void) {
  Case t = {.c.rc = MG_OK};
  MgPlanNumbers p;
  MgPlanBuf buf[1 + INPUTS + NUMBERS] = {{0}};
  mg_ctx_init(&t.c);
  CHECK(mg_exprs_init(&t.x, &t.c) == MG_OK && mg_graph_init(&t.g, &t.c, &t.x) == MG_OK &&
        mg_sched_init(&t.s, &t.g) == MG_OK);
  t.g.ninput = INPUTS;
  for (uint32_t i = 0; i < INPUTS; i++) {
    BufRef b = mg_sched_buf(&t.s, MB_input, dtypes[rnd(DTYPES)], mg_sym(&t.x, ELEMENTS), NULL);
    t.s.buf[b].index = (int32_t)i;
  }
  for (uint32_t i = 0; i < NUMBERS; i++) {
    BufRef b = mg_sched_buf(&t.s, MB_temp, dtypes[rnd(DTYPES)], mg_sym(&t.x, 1), NULL);
    CHECK(mg_sched_number(&t.s, b, tree(&t, i, 4)) == MG_OK && t.s.buf[b].kind == MB_number);
  }
  CHECK(mg_numbers_program(&t.s, buf, &p) == MG_OK && p.ncell);
  void *copy = malloc(p.bytes);
  memcpy(copy, p.program, p.bytes);
  run(&t, &p, p.program, buf);
  run(&t, &p, copy, buf);
  free(copy);
  mg_ctx_free(&t.c);
}

static void test_none(void) {
  Case t = {.c.rc = MG_OK};
  MgPlanNumbers p = {.ncell = 1};
  mg_ctx_init(&t.c);
  CHECK(mg_exprs_init(&t.x, &t.c) == MG_OK && mg_graph_init(&t.g, &t.c, &t.x) == MG_OK &&
        mg_sched_init(&t.s, &t.g) == MG_OK);
  CHECK(mg_numbers_program(&t.s, NULL, &p) == MG_OK && !p.ncell && !p.run);
  mg_ctx_free(&t.c);
}

int main(void) {
  test_none();
  for (int i = 0; i < 400; i++) test_random();
  return test_done();
}
