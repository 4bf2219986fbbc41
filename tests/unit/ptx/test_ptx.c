/* PTX: every row of scalar_ops.def over every type, conversions, and fused kernels, assembled by ptxas for
 * three architectures.  Skipped where ptxas is not installed. */
#include "cuda/device_attention.h"
#include "cuda/device.h"
#include "kernel_run.h"
#include "ptx_cases.h"

static MgDtype dtype_of(MgTy ty) {
  static const MgDtype d[] = {DT_bool, DT_i8,  DT_u8,  DT_i16,  DT_u16, DT_i32, DT_u32,
                              DT_i64,  DT_u64, DT_f16, DT_bf16, DT_f32, DT_f64};
  return d[ty];
}

static MgStrbuf text; /* kernels waiting for the assembler */
static int nkernel, refused;

/* Adds the kernels of an environment to the text, with and without vectors; returns how many were refused. */
static int add_kernels(Env *e) {
  int no = 0;
  ptx_on_gpu(e);
  CHECK(mg_fuse(&e->s, &e->f) == MG_OK);
  for (uint32_t i = 0; i < e->f.nstep; i++)
    for (int vectors = 0; vectors < 2; vectors++) {
      MgKernel *k = e->f.step[i].u.kernel;
      MgPtxPlan p;
      snprintf(k->name, sizeof k->name, "t%d", nkernel++);
      MgRc rc = mg_ptx_plan(&e->s, k, vectors, &p);
      if (rc == MG_OK) rc = mg_ptx_emit(&e->s, k, &p, &text);
      if (rc == MG_UNSUP) no++;
      else CHECK(rc == MG_OK);
    }
  return no;
}

static void assemble(const char *what) {
  static const int arch[] = {80, 90, 100};
  char path[] = "/tmp/magneto_ptx_XXXXXX", cmd[256];
  FILE *f = fdopen(mkstemp(path), "w");
  MgStrbuf head = {0};
  mg_ptx_prologue(&head);
  fputs(mg_sb_text(&head), f);
  fputs(mg_sb_text(&text), f);
  fclose(f);
  if (getenv("DUMP")) puts(mg_sb_text(&text));
  FILE *run[3]; /* all at once: most of the test's time */
  for (int i = 0; i < 3; i++) {
    snprintf(cmd, sizeof cmd, "ptxas -arch=sm_%d %s -o /dev/null %s", arch[i], getenv("VERBOSE") ? "-v" : "",
             path);
    run[i] = popen(cmd, "w");
  }
  for (int i = 0; i < 3; i++) {
    bool ok = run[i] && pclose(run[i]) == 0;
    if (!ok) printf("%s: ptxas refuses for sm_%d\n", what, arch[i]);
    CHECK(ok);
  }
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

static void test_cases(void) {
  for (size_t i = 0; i < sizeof ptx_cases / sizeof *ptx_cases; i++) {
    Env e;
    env_init(&e);
    ptx_cases[i].make(&e);
    int no = add_kernels(&e);
    if (no) printf("%s: %d kernels refused\n", ptx_cases[i].name, no);
    CHECK(no == 0);
    env_free(&e);
    assemble(ptx_cases[i].name);
  }
}

/* What fusion makes of nests of a GPU is right whoever runs it: here LLVM's code does. */
static void test_fusion(void) {
  for (size_t i = 0; i < sizeof ptx_cases / sizeof *ptx_cases; i++) {
    Env e;
    env_init(&e);
    ptx_cases[i].make(&e);
    ptx_on_gpu(&e);
    if (!env_compile(&e)) continue;
    for (BufRef b = 1; b < e.s.nbuf; b++)
      if (!e.mem[b]) e.mem[b] = calloc(1, (size_t)mg_sym_eval(&e.x, e.s.buf[b].nelem, e.sym) * 8 + 64);
    env_run(&e, 1);
    env_reference(&e);
    for (BufRef b = 1; b < e.s.nbuf; b++)
      if (e.ref[b] && (e.s.buf[b].kind == MB_output || e.s.buf[b].kind == MB_input))
        env_compare(&e, b, ptx_cases[i].tolerance, ptx_cases[i].name);
    env_free(&e);
  }
}

int main(void) {
  if (!mg_llvm_open()) test_fusion();
  if (system("ptxas --version > /dev/null 2>&1") != 0) {
    puts("skipped: ptxas is not installed");
    return test_done() ? 1 : 77;
  }
  test_cases();
  mg_sb_puts(&text, strchr(strstr(mg_cuda_copies_text(), "size"), '\n')); /* without the prologue */
  assemble("copies");
  for (int draw = 0; draw < 2; draw++) {
    mg_sb_puts(&text, strchr(strstr(mg_cuda_draw_text(draw), "size"), '\n'));
    assemble("random numbers");
  }
  for (int dim = 16; dim <= 128; dim *= 2)
    for (int causal = 0; causal < 2; causal++) {
      AttentionShape s = mg_attention_shape(dim, causal);
      MgStrbuf all = {0};
      mg_attention_text(&all, &s);
      mg_sb_puts(&text, strchr(strstr(mg_sb_text(&all), "size"), '\n'));
      assemble("attention");
      mg_sb_free(&all);
    }
  for (int ty = 0; ty < TY__COUNT; ty++) test_type(ty);
  printf("%d kernels refused (functions without a device form)\n", refused);
  return test_done();
}
