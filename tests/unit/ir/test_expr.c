/* Expressions: builders, simplification (a rule table and a random property test), text, ranges. */
#include "check.h"
#include "ir/expr/expr.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static MgCtx ctx;
static MgExprs ex, *x = &ex;

static ExprRef parse(const char *t) {
  const char *p = t;
  ExprRef r = mg_ex_parse(x, &p);
  if (!r) fprintf(stderr, "parse %s: %s\n", t, ctx.msg), exit(1);
  return r;
}

/* Text in, simplified text out; under i0 < 64, i1 < 8, i2 < s0, i3 < s1, no range for i4. */
static const char *const rules[][2] = {
    {"add(i0, 0)", "i0"},
    {"sub(i0, i0)", "0"},
    {"add(3, add(i0, 4))", "add(i0, 7)"},
    {"floordiv(add(mul(i0, 8), i1), 8)", "i0"},
    {"mod(add(mul(i0, 8), i1), 8)", "i1"},
    {"floordiv(add(mul(i0, 8), i1), 16)", "floordiv(i0, 2)"},
    {"mod(add(mul(i0, 8), i1), 16)", "add(i1, mul(mod(i0, 2), 8))"},
    {"add(mul(floordiv(i0, 4), 4), mod(i0, 4))", "i0"},
    {"add(mul(floordiv(add(mul(i0, 8), i1), 16), 16), mod(add(mul(i0, 8), i1), 16))", "add(mul(i0, 8), i1)"},
    {"floordiv(add(mul(i2, s1), i3), s1)", "i2"},
    {"mod(add(mul(i2, s1), i3), s1)", "i3"},
    {"floordiv(i2, s0)", "0"},
    {"mod(i2, s0)", "i2"},
    {"floordiv(add(mul(i2, s1), i3), mul(s0, s1))", "0"},
    {"floordiv(add(add(mul(mul(i4, s0), s1), mul(i2, s1)), i3), mul(s0, s1))", "i4"},
    {"mul(s0, s1)", "mul(s0, s1)"},
    {"sub(mul(s1, s0), mul(s0, s1))", "0"},
    {"floordiv(mul(s0, s1), s1)", "s0"},
    {"floordiv(floordiv(i4, 3), 4)", "floordiv(i4, 12)"},
    {"lt(i0, 64)", "true"},
    {"lt(i0, 63)", "lt(i0, 63)"},
    {"le(0, i0)", "true"},
    {"lt(i2, s0)", "true"},
    {"ge(i0, 64)", "false"},
    {"min(i0, 100)", "i0"},
    {"max(i0, 0)", "i0"},
    {"mul(red:f32, 1:f32)", "red:f32"},
    {"add(red:f32, 0:f32)", "add(red:f32, 0:f32)"},
    {"add(red:f32, -0:f32)", "red:f32"},
    {"div(red:f32, 4:f32)", "mul(red:f32, 0.25:f32)"},
    {"fma(red:f32, 1:f32, red:f32)", "add(red:f32, red:f32)"},
    {"fma(1:f32, neg(red:f32), red:f32)", "add(neg(red:f32), red:f32)"},
    {"fma(red:f32, -1:f32, red:f32)", "sub(red:f32, red:f32)"},
    {"fma(red:f32, 2:f32, red:f32)", "fma(red:f32, 2:f32, red:f32)"},
    {"neg(neg(red:f32))", "red:f32"},
    {"pow(red:f32, 2:f32)", "mul(red:f32, red:f32)"},
    {"cvt:f16(cvt:f32(red:f16))", "red:f16"},
    {"cvt:f32(cvt:f16(red:f32))", "cvt:f32(cvt:f16(red:f32))"},
    {"cvt:i8(cvt:i64(red:i32))", "cvt:i8(red:i32)"},
    {"cvt:i8(cvt:f32(red:i16))", "cvt:i8(cvt:f32(red:i16))"},
    {"where(not(red:i1), 1:f32, 2:f32)", "where(red:i1, 2:f32, 1:f32)"},
    {"eq(red:i1, true)", "red:i1"},
    {"add(red:f16, red:f16)", "cvt:f16(add(cvt:f32(red:f16), cvt:f32(red:f16)))"},
    {"add(200:u8, 100:u8)", "44:u8"},
    {"shl(1:i32, 40:i32)", "0:i32"},
    {"shr(-8:i32, 40:i32)", "-1:i32"},
    {"floordiv(-7, 2)", "-4"},
    {"mod(-7, 2)", "1"},
    {"tdiv(-7, 2)", "-3"},
    {"fmod(-7, 2)", "-1"},
    {"floordiv(5, 0)", "0"},
    {"max(nan:f32, 1:f32)", "nan:f32"},
    {"gt(red:f32, 0:f32)", "lt(0:f32, red:f32)"},
    {"load:f32(b1, i0, false, 0:f32)", "0:f32"},
    {"cvt:i32(2.7:f32)", "2:i32"},
    {"cvt:u8(-1:f32)", "255:u8"},
    {"cvt:bf16(1.00390625:f32)", "1:bf16"},
};

static void set_ranges(void) {
  mg_ex_set_idx_range(x, 0, mg_sym(x, 64));
  mg_ex_set_idx_range(x, 1, mg_sym(x, 8));
  mg_ex_set_idx_range(x, 2, parse("s0"));
  mg_ex_set_idx_range(x, 3, parse("s1"));
}

static void test_rules(void) {
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
    MgStrbuf a = {0}, b = {0};
    ExprRef r = parse(rules[i][0]);
    mg_ex_print(x, r, &a);
    CHECK(!strcmp(mg_sb_text(&a), rules[i][1]) || r == parse(rules[i][1]));
    if (r != parse(rules[i][1]))
      fprintf(stderr, "  %s -> %s, expected %s\n", rules[i][0], mg_sb_text(&a), rules[i][1]);
    mg_ex_print(x, parse(mg_sb_text(&a)), &b);
    CHECK(r == parse(mg_sb_text(&a))); /* parse(print(e)) is e */
    mg_sb_free(&a);
    mg_sb_free(&b);
  }
}

/* Random index expressions: the value of the simplified form is that of the expression as written. */
static uint64_t seed = 12345;
static uint64_t rnd(uint64_t n) {
  seed = mg_hash_u64(seed + 0x9E3779B97F4A7C15ull);
  return seed % n;
}

static int64_t env_idx[5], env_sym[2];

static int64_t eval_index(ExprRef r) {
  const MgExpr *e = mg_expr(x, r);
  MgScalar s[3] = {{0}}, v = {0};
  if (e->op == OP_const) return e->u.i;
  if (e->op == OP_sym) return env_sym[e->u.i];
  if (e->op == OP_idx) return env_idx[e->u.i];
  for (int i = 0; i < e->nsrc; i++) s[i].i = eval_index(e->src[i]);
  if (e->op == OP_where) return s[0].i ? s[1].i : s[2].i;
  CHECK(mg_scalar_eval(e->op, mg_expr(x, e->src[0])->ty, s[0], s[1], s[2], &v));
  return v.i;
}

enum { NPOINT = 24 };
static int64_t point[NPOINT][7];
typedef struct Rand {
  ExprRef e;
  int64_t v[NPOINT];
} Rand;

static Rand random_index(int depth) {
  static const MgScalarOp ops[] = {OP_add, OP_sub, OP_mul, OP_floordiv, OP_mod, OP_min,
                                   OP_max, OP_add, OP_mul, OP_floordiv, OP_mod};
  Rand r = {0};
  uint64_t k = rnd(depth ? 6 : 3);
  if (k < 3) {
    int j = (int)rnd(7), c = (int)rnd(9) + 1;
    if (k == 0) r.e = mg_sym(x, c);
    else r.e = j < 5 ? mg_ex_idx(x, j) : parse(j == 5 ? "s0" : "s1");
    for (int p = 0; p < NPOINT; p++) r.v[p] = k == 0 ? c : point[p][j];
    return r;
  }
  MgScalarOp op = ops[rnd(sizeof ops / sizeof *ops)];
  Rand a = random_index(depth - 1), b;
  do b = random_index(op == OP_floordiv || op == OP_mod ? rnd(2) : depth - 1);
  while (0);
  r.e = mg_ex_op(x, op, a.e, b.e, 0);
  for (int p = 0; p < NPOINT; p++) {
    MgScalar v = {0};
    mg_scalar_eval(op, TY_i64, (MgScalar){.i = a.v[p]}, (MgScalar){.i = b.v[p]}, v, &v);
    r.v[p] = v.i;
  }
  return r;
}

static void test_property(void) {
  for (int round = 0; round < 20000; round++) {
    for (int p = 0; p < NPOINT; p++) {
      int64_t s0 = 1 + rnd(9), s1 = 1 + rnd(9);
      int64_t v[7] = {rnd(64), rnd(8), rnd(s0), rnd(s1), rnd(100), s0, s1};
      memcpy(point[p], v, sizeof v);
    }
    Rand r = random_index(4);
    int64_t lo = 0, hi = 0;
    bool known = mg_ex_range(x, r.e, &lo, &hi);
    for (int p = 0; p < NPOINT; p++) {
      memcpy(env_idx, point[p], sizeof env_idx);
      memcpy(env_sym, point[p] + 5, sizeof env_sym);
      int64_t v = eval_index(r.e);
      if (v != r.v[p] || (known && (v < lo || v > hi))) {
        MgStrbuf b = {0};
        mg_ex_print(x, r.e, &b);
        fprintf(stderr, "round %d: %s is %lld, should be %lld; range %lld..%lld\n", round, mg_sb_text(&b),
                (long long)v, (long long)r.v[p], (long long)lo, (long long)hi);
        CHECK(false);
        return;
      }
    }
    ExprRef coef, rest;
    if (mg_ex_linear(x, r.e, 0, &coef, &rest) && x->index_only[r.e])
      CHECK(mg_sym_add(x, mg_sym_mul(x, coef, mg_ex_idx(x, 0)), rest) == r.e);
    if (x->n > 200000) return;
  }
}

static void test_misc(void) {
  ExprRef to[2] = {mg_sym(x, 5), 0};
  CHECK(mg_ex_subst(x, parse("add(mul(i0, s0), i1)"), to, 2) == parse("add(mul(5, s0), i1)"));
  CHECK(mg_ex_count_ops(x, parse("exp(add(red:f32, exp(red:f32)))")) == 3);
  CHECK(mg_ex_is_below(x, parse("add(mul(i2, s1), i3)"), parse("mul(s0, s1)")));
  CHECK(!mg_ex_is_below(x, parse("add(mul(i2, s1), i4)"), parse("mul(s0, s1)")));
  /* the greatest values of the factors have a product that leaves int64: it is no bound */
  CHECK(mg_expr(x, parse("max(mul(floordiv(add(s2, 1), 2), floordiv(add(s3, 1), 2)), 1)"))->op != OP_const);
  CHECK(!mg_ex_is_below(x, parse("mul(floordiv(s2, 2), floordiv(s3, 2))"), parse("1")));
  CHECK(mg_sym_hint(x, parse("add(s0, mul(s1, 2))")) == 14);
  CHECK(mg_scalar_check() == NULL);
}

int main(void) {
  mg_ctx_init(&ctx);
  CHECK(mg_exprs_init(x, &ctx) == MG_OK);
  mg_ex_symbol(x, 4, 1, INT64_MAX, "s0");
  mg_ex_symbol(x, 5, 1, INT64_MAX, "s1");
  mg_ex_symbol(x, 9, 0, (int64_t)1 << 40, "s2");
  mg_ex_symbol(x, 12, 0, (int64_t)1 << 40, "s3");
  set_ranges();
  test_rules();
  test_misc();
  test_property();
  CHECK(mg_exprs_ok(x) == MG_OK);
  mg_ctx_free(&ctx);
  return test_done();
}
