/* Compiled kernels against the reference evaluator: nests of every kind, layout and type. */
#include "kernel_run.h"

typedef struct Case {
  const char *name;
  MgLoopKind kind;
  const char *ranges;
  MgRedOp op;
  const char *body, *index, *value;
  MgDtype in, out;
} Case;

#define F DT_f32
/* b1 and b2 are inputs of 4096 elements (b3: i64 in [0, 64)), b4 is the output. */
static const Case cases[] = {
    {"gelu-like", ML_point, "1000", 0, 0, "i0", "mul(load:f32(b1, i0), tanh(load:f32(b2, i0)))", F, F},
    {"2d broadcast", ML_point, "7 33", 0, 0, "add(mul(i0, 33), i1)",
     "add(load:f32(b1, add(mul(i0, 33), i1)), load:f32(b2, i1))", F, F},
    {"row broadcast", ML_point, "7 33", 0, 0, "add(mul(i0, 33), i1)",
     "add(load:f32(b1, add(mul(i0, 33), i1)), exp(load:f32(b2, i0)))", F, F},
    {"transpose", ML_point, "21 34", 0, 0, "add(mul(i0, 34), i1)", "load:f32(b1, add(i0, mul(i1, 21)))", F,
     F},
    {"transpose tiles", ML_point, "48 80", 0, 0, "add(mul(i0, 80), i1)",
     "add(load:f32(b1, add(i0, mul(i1, 48))), load:f32(b2, i1))", F, F},
    {"transpose tail", ML_point, "32 70", 0, 0, "add(mul(i0, 70), i1)", "load:f32(b1, add(i0, mul(i1, 32)))",
     F, F},
    {"transpose i8", ML_point, "32 70", 0, 0, "add(mul(i0, 70), i1)", "load:i8(b1, add(i0, mul(i1, 32)))",
     DT_i8, DT_i8},
    {"transpose bool", ML_point, "32 64", 0, 0, "add(mul(i0, 64), i1)", "load:i1(b1, add(i0, mul(i1, 32)))",
     DT_bool, DT_bool},
    {"flip", ML_point, "3 50", 0, 0, "add(mul(i0, 50), i1)", "load:f32(b1, sub(add(mul(i0, 50), 49), i1))", F,
     F},
    {"roll", ML_point, "5 50", 0, 0, "add(mul(i0, 50), i1)",
     "load:f32(b1, add(mul(i0, 50), where(lt(i1, 3), add(i1, 47), add(i1, -3))))", F, F},
    {"roll bool", ML_point, "5 50", 0, 0, "add(mul(i0, 50), i1)",
     "load:i1(b1, add(mul(i0, 50), where(lt(i1, 20), add(i1, 30), add(i1, -20))))", DT_bool, DT_bool},
    {"roll of half", ML_point, "100", 0, 0, "i0",
     "load:f32(b1, where(lt(i0, 33), add(i0, 60), add(i0, -33)), lt(i0, 90), 5:f32)", F, F},
    {"reflect", ML_point, "5 50", 0, 0, "add(mul(i0, 50), i1)",
     "load:f32(b1, add(mul(i0, 50), abs(sub(31, abs(sub(i1, 7))))))", F, F},
    {"edges", ML_point, "5 50", 0, 0, "add(mul(i0, 50), i1)",
     "load:f64(b1, add(mul(i0, 40), max(min(sub(i1, 5), 39), 0)))", DT_f64, DT_f64},
    {"sum of rolled", ML_reduce, "9|50", RED_sum,
     "load:f32(b1, add(mul(i0, 50), where(lt(i1, 13), add(i1, 37), add(i1, -13))))", "i0", "red:f32", F, F},
    {"step 2", ML_point, "100", 0, 0, "i0", "load:f32(b1, mul(i0, 2))", F, F},
    {"masked pad", ML_point, "100", 0, 0, "i0",
     "load:f32(b1, sub(i0, 10), and(le(10, i0), lt(i0, 60)), 7:f32)", F, F},
    {"gather", ML_point, "90", 0, 0, "i0", "load:f32(b1, load:i64(b3, i0))", F, F},
    {"masked gather", ML_point, "90", 0, 0, "i0",
     "load:f32(b1, load:i64(b3, i0), lt(load:i64(b3, i0), 40), 3:f32)", F, F},
    {"index value", ML_point, "90", 0, 0, "i0", "cvt:f32(mul(i0, i0))", F, F},
    {"symbolic", ML_point, "s0 s1", 0, 0, "add(mul(i0, s1), i1)",
     "add(load:f32(b1, add(mul(i0, s1), i1)), load:f32(b2, i1))", F, F},
    {"div mod", ML_point, "60", 0, 0, "i0", "load:f32(b1, add(mul(mod(i0, 7), 10), floordiv(i0, 7)))", F, F},
    {"f64", ML_point, "77", 0, 0, "i0", "exp(load:f64(b1, i0))", DT_f64, DT_f64},
    {"bf16", ML_point, "77", 0, 0, "i0", "cvt:bf16(mul(cvt:f32(load:bf16(b1, i0)), 1.3:f32))", DT_bf16,
     DT_bf16},
    {"f16", ML_point, "77", 0, 0, "i0", "cvt:f16(mul(cvt:f32(load:f16(b1, i0)), 1.3:f32))", DT_f16, DT_f16},
    {"i8", ML_point, "77", 0, 0, "i0", "add(load:i8(b1, i0), load:i8(b2, i0))", DT_i8, DT_i8},
    {"bool", ML_point, "77", 0, 0, "i0", "lt(load:f32(b1, i0), load:f32(b2, i0))", F, DT_bool},
    {"bool in", ML_point, "77", 0, 0, "i0", "where(load:i1(b1, i0), 1:f32, 2:f32)", DT_bool, F},
    {"to i32", ML_point, "77", 0, 0, "i0", "cvt:i32(load:f32(b1, i0))", F, DT_i32},
    {"rand", ML_point, "77", 0, 0, "i0", "rand:0(42, i0)", F, F},
    {"randn", ML_point, "77", 0, 0, "i0", "rand:1(42, i0)", F, F},
    {"sum all", ML_reduce, "|4001", RED_sum, "load:f32(b1, i0)", "0", "red:f32", F, F},
    {"sum small", ML_reduce, "|5", RED_sum, "load:f32(b1, i0)", "0", "red:f32", F, F},
    {"sum rows", ML_reduce, "9|101", RED_sum, "load:f32(b1, add(mul(i0, 101), i1))", "i0",
     "mul(red:f32, 0.5:f32)", F, F},
    {"sum cols", ML_reduce, "33|70", RED_sum, "load:f32(b1, add(mul(i1, 33), i0))", "i0", "red:f32", F, F},
    {"sum of one", ML_reduce, "9|1", RED_sum, "load:f32(b1, i0)", "i0", "mul(red:f32, 3:f32)", F, F},
    {"argmax of one", ML_reduce, "9|1", RED_argmax, "load:f32(b1, i0)", "i0", "red:i64", F, DT_i64},
    {"sum of none", ML_reduce, "9|0", RED_sum, "load:f32(b1, i0)", "i0", "add(red:f32, 3:f32)", F, F},
    {"sum mid", ML_reduce, "5 17|40", RED_sum, "load:f32(b1, add(add(mul(i0, 680), mul(i2, 17)), i1))",
     "add(mul(i0, 17), i1)", "red:f32", F, F},
    {"sum two", ML_reduce, "6|5 44", RED_sum, "load:f32(b1, add(add(mul(i0, 44), mul(i1, 264)), i2))", "i0",
     "red:f32", F, F},
    {"sum symbolic", ML_reduce, "s0|s1", RED_sum, "load:f32(b1, add(mul(i0, s1), i1))", "i0", "red:f32", F,
     F},
    {"max rows", ML_reduce, "9|101", RED_max, "load:f32(b1, add(mul(i0, 101), i1))", "i0", "red:f32", F, F},
    {"min cols", ML_reduce, "33|70", RED_min, "load:f32(b1, add(mul(i1, 33), i0))", "i0", "red:f32", F, F},
    {"prod", ML_reduce, "9|10", RED_prod, "load:f32(b1, add(mul(i0, 10), i1))", "i0", "red:f32", F, F},
    {"any", ML_reduce, "9|101", RED_any, "lt(load:f32(b1, add(mul(i0, 101), i1)), -3.96:f32)", "i0", "red:i1",
     F, DT_bool},
    {"all", ML_reduce, "9|101", RED_all, "lt(load:f32(b1, add(mul(i0, 101), i1)), 3.96:f32)", "i0", "red:i1",
     F, DT_bool},
    {"argmax", ML_reduce, "9|101", RED_argmax, "load:f32(b1, add(mul(i0, 101), i1))", "i0", "red:i64", F,
     DT_i64},
    {"argmin cols", ML_reduce, "33|70", RED_argmin, "load:f32(b1, add(mul(i1, 33), i0))", "i0", "red:i64", F,
     DT_i64},
    {"argpool", ML_reduce, "9|101", RED_argpool, "load:f32(b1, add(mul(i0, 101), i1))", "i0", "red:i64", F,
     DT_i64},
    {"argmax i64", ML_reduce, "9|101", RED_argmax, "load:i64(b3, add(mul(i0, 101), i1))", "i0", "red:i64", F,
     DT_i64},
    {"sum i64", ML_reduce, "9|101", RED_sum, "load:i64(b3, add(mul(i0, 101), i1))", "i0", "red:i64", F,
     DT_i64},
    {"sum gathered", ML_reduce, "9|101", RED_sum, "load:f32(b1, load:i64(b3, add(mul(i0, 101), i1)))", "i0",
     "red:f32", F, F},
    {"cumsum", ML_scan, "6|50", RED_sum, "load:f32(b1, add(mul(i0, 50), i1))", "add(mul(i0, 50), i1)",
     "red:f32", F, F},
    {"cummax", ML_scan, "6|50", RED_max, "load:f32(b1, add(mul(i0, 50), i1))", "add(mul(i0, 50), i1)",
     "red:f32", F, F},
    {"scatter add", ML_scatter, "200", 0, 0, "load:i64(b3, i0)", "load:f32(b1, i0)", F, F},
    {"scatter rows", ML_scatter, "90 40", 0, 0, "add(mul(load:i64(b3, i0), 64), i1)",
     "load:f32(b1, add(mul(i0, 40), i1))", F, F},
    {"scatter rows f64", ML_scatter, "90 64", 0, 0, "add(mul(load:i64(b3, i0), 64), i1)", "load:f64(b1, i1)",
     DT_f64, DT_f64},
};

static void run_case(const Case *c) {
  Env e;
  env_init(&e);
  mg_ex_symbol(&e.x, 12, 1, 100, "s0");
  mg_ex_symbol(&e.x, 37, 1, 100, "s1");
  e.sym[0] = 12;
  e.sym[1] = 37;
  BufRef a = env_buf(&e, MB_input, c->in, 4096), b = env_buf(&e, MB_input, c->in, 4096),
         i = env_buf(&e, MB_input, DT_i64, 4096);
  BufRef out = env_buf(&e, MB_output, c->out, 4096);
  env_fill(&e, a, -4, 4);
  env_fill(&e, b, -4, 4);
  env_fill(&e, i, 0, 64);
  if (c->in == DT_f32 && mg_red_is_arg(c->op))
    for (int k = 350; k < 400; k += 7) env_put(&e, a, k, (MgScalar){.f = NAN});
  MgLoop *l = env_nest(&e, c->kind, c->ranges, c->op, c->body, out, c->index, c->value);
  if (c->kind == ML_scatter) l->mode = ST_add;
  if (env_compile(&e)) {
    env_reference(&e);
    env_run(&e, c->kind == ML_scatter ? 1 : 3);
    env_compare(&e, out, c->out == DT_f16 ? 1e-3 : c->kind == ML_point ? 2e-6 : 1e-5, c->name);
  }
  env_free(&e);
}

static void *find_none(const char *name) { return strstr(name, "lgamma") ? NULL : (void *)name; }
static void *find_all(const char *name) { return (void *)name; }

/* Text that calls vector functions, which only torch's library has: LLVM takes it. */
static void test_vector_functions(MgDtype d, int bits, const char *value, const char *call) {
  MgTarget t = host_target();
  Env e;
  MgStrbuf b = {0};
  MgEmitter *emitter = NULL;
  MgObject obj = {0};
  t.vector_bits = bits;
  t.avx512 = t.avx512 && bits == 512;
  t.sleef = true;
  env_init(&e);
  env_buf(&e, MB_input, d, 1000);
  BufRef out = env_buf(&e, MB_output, d, 1000);
  env_nest(&e, ML_point, "1000", 0, NULL, out, "i0", value);
  CHECK(mg_fuse(&e.s, &e.f) == MG_OK && mg_emitter_new(&e.s, &t, &emitter) == MG_OK);
  MgKernel *k = e.f.step[0].u.kernel;
  snprintf(k->name, sizeof k->name, "k");
  CHECK(mg_emit_llvm(emitter, k, &b) == MG_OK);
  mg_emit_llvm_declare(&t, &b);
  const char *text = mg_sb_text(&b), *body = strstr(text, "define");
  CHECK(body && strstr(body, call));
  int ndeclared = 0; /* only what the module calls */
  for (const char *at = text; (at = strstr(at, "declare ")); at++, ndeclared++) {
    char name[80] = {0};
    const char *from = strchr(at, '@');
    memcpy(name, from, strcspn(from, "(") + 1);
    CHECK(strstr(body, name) < at);
  }
  CHECK(ndeclared > 0 && ndeclared < 20);
  CHECK(mg_llvm_emit(&e.c, &text, 1, 1, &obj) == MG_OK);
  free(obj.data);
  mg_emitter_free(emitter);
  mg_sb_free(&b);
  env_free(&e);
}

int main(int argc, char **argv) {
  const char *why = mg_llvm_open();
  if (why) {
    printf("skipped: %s\n", why);
    return 77;
  }
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    if (argc < 2 || !strcmp(argv[1], cases[i].name)) run_case(&cases[i]);
  if (argc < 2) {
    test_vector_functions(DT_f32, 256, "atan2(load:f32(b1, i0), 2:f32)", "@Sleef_atan2f8_u10avx2(");
    test_vector_functions(DT_f64, 256, "exp(load:f64(b1, i0))", "@Sleef_expd4_u10avx2(");
    test_vector_functions(DT_f64, 256, "erfc(load:f64(b1, i0))", "@Sleef_erfcd4_u15avx2(");
    if (host_target().avx512) {
      test_vector_functions(DT_f32, 512, "rem(load:f32(b1, i0), 2:f32)", "@Sleef_fmodf16_avx512f(");
      test_vector_functions(DT_f64, 512, "sin(load:f64(b1, i0))", "@Sleef_sind8_u10avx512f(");
    }
    MgTarget t = {.vector_bits = 256, .fma = true};
    CHECK(mg_emit_llvm_finds_sleef(&t, find_all) && !mg_emit_llvm_finds_sleef(&t, find_none));
    t.vector_bits = 128;
    CHECK(!mg_emit_llvm_finds_sleef(&t, find_all));
  }
  return test_done();
}
