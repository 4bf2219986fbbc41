/* PTX: every row of scalar_ops.def over every type, conversions, and fused kernels, assembled by ptxas.  Skipped
 * where ptxas is not installed. */
#include "kernel_run.h"

static MgDtype dtype_of(MgTy ty) {
  static const MgDtype d[] = {DT_bool, DT_i8, DT_u8, DT_i16, DT_u16, DT_i32, DT_u32, DT_i64, DT_u64, DT_f16, DT_bf16, DT_f32, DT_f64};
  return d[ty];
}

static MgStrbuf text; /* kernels waiting for the assembler */
static int nkernel, refused;

/* Adds the kernels of an environment to the text; returns how many were refused. */
static int add_kernels(Env *e) {
  int no = 0;
  CHECK(mg_fuse(&e->s, &e->f) == MG_OK);
  for (uint32_t i = 0; i < e->f.nstep; i++) {
    MgKernel *k = e->f.step[i].u.kernel;
    snprintf(k->name, sizeof k->name, "t%d", nkernel++);
    MgRc rc = mg_emit_ptx(&e->s, k, &text);
    if (rc == MG_UNSUP) no++;
    else CHECK(rc == MG_OK);
  }
  return no;
}

static void assemble(const char *what) {
  char path[] = "/tmp/magneto_ptx_XXXXXX", cmd[256];
  FILE *f = fdopen(mkstemp(path), "w");
  MgStrbuf head = {0};
  mg_emit_ptx_prologue(&head);
  fputs(mg_sb_text(&head), f);
  fputs(mg_sb_text(&text), f);
  fclose(f);
  snprintf(cmd, sizeof cmd, "ptxas -arch=sm_90 -o /dev/null %s", path);
  if (getenv("DUMP")) puts(mg_sb_text(&text));
  bool ok = system(cmd) == 0;
  if (!ok) printf("%s: ptxas refuses\n", what);
  CHECK(ok);
  remove(path);
  mg_sb_free(&head);
  mg_sb_free(&text);
  text = (MgStrbuf){0};
}

typedef struct Args { /* an environment with three inputs of a type */
  Env e;
  ExprRef a[3];
} Args;

static void args_init(Args *t, MgTy ty) {
  env_init(&t->e);
  mg_ex_set_idx_range(&t->e.x, 0, mg_sym(&t->e.x, 64));
  for (int i = 0; i < 3; i++) {
    BufRef b = env_buf(&t->e, MB_input, dtype_of(ty), 64);
    t->a[i] = mg_ex_load(&t->e.x, ty, b, mg_ex_idx(&t->e.x, 0), 0, 0);
  }
}

/* One kernel that stores v; the environment is freed. */
static int one(Args *t, ExprRef v) {
  BufRef out = env_buf(&t->e, MB_output, dtype_of(mg_expr(&t->e.x, v)->ty), 64);
  env_nest(&t->e, ML_point, "64", RED_sum, NULL, out, "i0", NULL)->value = v;
  int no = add_kernels(&t->e);
  env_free(&t->e);
  return no;
}

static void test_type(MgTy ty) {
  Args t;
  for (int op = 0; op < OP__COUNT; op++) {
    const MgScalarInfo *r = &mg_scalar_info[op];
    if (r->rule == SOR_LEAF || !mg_scalar_takes(op, ty)) continue;
    args_init(&t, ty);
    int no = one(&t, mg_ex_op(&t.e.x, op, t.a[0], r->nin > 1 ? t.a[1] : 0, r->nin > 2 ? t.a[2] : 0));
    refused += no;
    CHECK(!no || mg_ty_is_float(ty));
    if (no && ty == TY_f32) printf("no device form: %s\n", r->name);
  }
  for (int to = 0; to < TY__COUNT; to++) {
    args_init(&t, ty);
    CHECK(one(&t, mg_ex_cvt(&t.e.x, to, t.a[0])) == 0);
    if (mg_ty_size(to) != mg_ty_size(ty) || to == TY_i1 || ty == TY_i1) continue;
    args_init(&t, ty);
    CHECK(one(&t, mg_ex_bitcast(&t.e.x, to, t.a[0])) == 0);
  }
  args_init(&t, ty);
  CHECK(one(&t, mg_ex_op(&t.e.x, OP_where, mg_ex_op(&t.e.x, OP_lt, t.a[0], t.a[1], 0), t.a[0], t.a[1])) == 0);
  assemble(mg_ty_name(ty));
}

#define X "load:f32(b1, add(mul(i0, 100), i1))"
static void test_kernels(void) {
  Env e;
  env_init(&e);
  mg_ex_symbol(&e.x, 12, 1, 100, "s0");
  BufRef in = env_buf(&e, MB_input, DT_f32, 6400), top = env_buf(&e, MB_temp, DT_f32, 64), sum = env_buf(&e, MB_temp, DT_f32, 64);
  BufRef out = env_buf(&e, MB_output, DT_f32, 6400), col = env_buf(&e, MB_output, DT_f32, 100), all = env_buf(&e, MB_output, DT_f32, 1);
  BufRef any = env_buf(&e, MB_output, DT_bool, 64), rnd = env_buf(&e, MB_output, DT_f32, 64), dyn = env_buf(&e, MB_output, DT_f32, 64);
  env_nest(&e, ML_reduce, "64|100", RED_max, X, top, "i0", "red:f32");
  env_nest(&e, ML_reduce, "64|100", RED_sum, "exp(sub(" X ", load:f32(b2, i0)))", sum, "i0", "red:f32");
  env_nest(&e, ML_point, "64 100", 0, NULL, out, "add(mul(i0, 100), i1)", "div(exp(sub(" X ", load:f32(b2, i0))), load:f32(b3, i0))");
  env_nest(&e, ML_reduce, "100|64", RED_sum, "load:f32(b1, add(mul(i1, 100), i0))", col, "i0", "red:f32");
  env_nest(&e, ML_reduce, "|6400", RED_min, "load:f32(b1, i0)", all, "0", "red:f32");
  env_nest(&e, ML_reduce, "64|100", RED_any, "lt(" X ", 0:f32)", any, "i0", "red:i1");
  env_nest(&e, ML_point, "64", 0, NULL, rnd, "i0", "rand:1(7, i0)");
  env_nest(&e, ML_point, "s0", 0, NULL, dyn, "i0", "load:f32(b1, sub(i0, 3), le(3, i0), 1:f32)");
  (void)in;
  CHECK(add_kernels(&e) == 0);
  env_free(&e);
  assemble("kernels");
}

int main(void) {
  if (system("ptxas --version > /dev/null 2>&1") != 0) {
    puts("skipped: ptxas is not installed");
    return 77;
  }
  for (int ty = 0; ty < TY__COUNT; ty++) test_type(ty);
  test_kernels();
  printf("%d kernels refused (functions without a device form)\n", refused);
  return test_done();
}
