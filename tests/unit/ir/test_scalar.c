/* Differential test of scalar_ops.def: every row, every type it takes, special and random values; the
 * reference evaluator (fold columns) against compiled code, in vector main loops and in tails.  Rows computed
 * by polynomials (flag V) are allowed the error stated in expr_math.c; everything else agrees to the bit. */
#include "kernel_run.h"

enum { NVAL = 16 * 40 + 7 };

static const double special[] = {
    0.0,           -0.0,  1,     -1,       0.5,       -0.5, 1.5,        -1.5,
    2.5,           3,     -3,    7,        8,         -8,   100.25,     -100.25,
    1e-3,          -1e-3, 1e-10, 88,       89,        -88,  -104,       127,
    128,           255,   256,   -128,     -129,      1e9,  -1e9,       2147483647.0,
    -2147483648.0, 1e30,  -1e30, INFINITY, -INFINITY, NAN,  3.14159265, 1e-40,
    0.3,           0.7,   -0.7,  5,        17,        30,   -30};

static MgScalar pick(MgTy ty, int i) {
  int n = sizeof special / sizeof *special;
  MgScalar v;
  uint64_t r = run_rand();
  if (mg_ty_is_float(ty)) {
    if (i < n || r % 4 == 0) v.f = special[(i < n ? (uint64_t)i : r >> 8) % n];
    else if (r % 4 == 1) v = mg_scalar_from_bits(ty, run_rand());
    else v.f = ((double)(run_rand() >> 11) * 0x1p-53 - 0.5) * (r % 4 == 2 ? 4 : 200);
    return mg_scalar_wrap(ty, v);
  }
  static const int64_t edge[] = {0,  1,         -1,        2,         3,         7,   -7,   8,   31,
                                 63, INT64_MAX, INT64_MIN, INT32_MAX, INT32_MIN, 127, -128, 255, 40};
  v.i = r % 2 ? edge[(r >> 8) % 18] : (int64_t)run_rand();
  if (r % 16 == 2) v.i %= 100;
  return mg_scalar_wrap(ty, v);
}

static MgDtype dtype_of(MgTy ty) {
  static const MgDtype d[] = {DT_bool, DT_i8,  DT_u8,  DT_i16,  DT_u16, DT_i32, DT_u32,
                              DT_i64,  DT_u64, DT_f16, DT_bf16, DT_f32, DT_f64};
  return d[ty];
}

static double allowed(MgScalarOp op, MgTy ty) {
  if (ty == TY_f64 && op != OP_far_sin && op != OP_far_cos && op != OP_far_tan)
    return mg_scalar_info[op].ll[SOC_F] && !strncmp(mg_scalar_info[op].ll[SOC_F], "libm:", 5) ? 1 : 0;
  switch (op) {
  case OP_tanh: return 1.5;
  case OP_erf: return 4;
  case OP_tan: return 3;
  case OP_far_sin:
  case OP_far_cos:
  case OP_far_tan: return 1; /* SLEEF's error */
  case OP_expm1:
  case OP_log2:
  case OP_log10:
  case OP_log1p: return 2;
  case OP_lgamma: return 8; /* libm's own error in f32 */
  default:
    return mg_ty_is_float(ty) && mg_scalar_info[op].ll[SOC_F] &&
                   !strncmp(mg_scalar_info[op].ll[SOC_F], "libm:", 5) && op != OP_rem
               ? 2
               : 0;
  }
}

static int total, wrong;
static double worst[OP__COUNT];

/* One nest: out[i] = e(in0[i], in1[i], in2[i]). */
static void add_nest(Env *e, MgTy rty, ExprRef v, BufRef *out) {
  *out = env_buf(e, MB_output, dtype_of(rty), NVAL);
  char n[16];
  snprintf(n, sizeof n, "%d", NVAL);
  MgLoop *l = env_nest(e, ML_point, n, RED_sum, NULL, *out, "i0", NULL);
  l->value = v;
}

static void compare(Env *e, BufRef out, MgScalarOp op, MgTy ty, MgTy rty, const BufRef *in,
                    const char *what) {
  int bad = 0;
  double most = what ? 0 : allowed(op, ty);
  for (int i = 0; i < NVAL; i++) {
    MgScalar p = env_get(e, e->mem, out, i), q = env_get(e, e->ref, out, i);
    double u = ulps(rty, p, q);
    bool tiny =
        (mg_scalar_info[op].flags & SOF_V) && ty != TY_f64 && fabs(p.f) < 0x1p-125 && fabs(q.f) < 0x1p-125;
    bool zeros = most > 0 && p.f == 0 && q.f == 0;
    total++;
    if (zeros || tiny) continue;
    if (u < 1e8 && u > worst[op]) worst[op] = u;
    if (u <= most) continue;
    if (bad++ < 3) {
      MgScalar a = env_get(e, e->mem, in[0], i), b = env_get(e, e->mem, in[1], i);
      bool f = mg_ty_is_float(ty), g = mg_ty_is_float(rty);
      printf("%s %s (", what ? what : mg_scalar_info[op].name, mg_ty_name(ty));
      if (f) printf("%.9g, %.9g) = ", a.f, b.f);
      else printf("%lld, %lld) = ", (long long)a.i, (long long)b.i);
      if (g) printf("%.9g, should be %.9g (%g ulp)\n", p.f, q.f, u);
      else printf("%lld, should be %lld\n", (long long)p.i, (long long)q.i);
    }
  }
  wrong += bad;
  CHECK(bad == 0);
}

static void inputs(Env *e, MgTy ty, BufRef *in, ExprRef *load) {
  env_init(e);
  mg_ex_set_idx_range(&e->x, 0, mg_sym(&e->x, NVAL));
  for (int j = 0; j < 3; j++) {
    in[j] = env_buf(e, MB_input, dtype_of(ty), NVAL);
    for (int i = 0; i < NVAL; i++) env_put(e, in[j], i, pick(ty, j ? NVAL : i));
    load[j] = mg_ex_load(&e->x, ty, in[j], mg_ex_idx(&e->x, 0), 0, 0);
  }
}

/* Undefined integer operands (rows with flag D) are replaced by 1. */
static ExprRef defined(Env *e, MgScalarOp op, MgTy ty, ExprRef b) {
  if (!(mg_scalar_info[op].flags & SOF_D) || mg_ty_is_float(ty)) return b;
  if (op == OP_lsl || op == OP_lsr)
    return mg_ex_op(&e->x, OP_and, b, mg_ex_int(&e->x, ty, 8 * mg_ty_size(ty) - 1), 0);
  ExprRef one = mg_ex_int(&e->x, ty, 1), bad = mg_ex_op(&e->x, OP_eq, b, mg_ex_int(&e->x, ty, 0), 0);
  if (mg_ty_is_signed(ty))
    bad = mg_ex_op(&e->x, OP_or, bad, mg_ex_op(&e->x, OP_eq, b, mg_ex_int(&e->x, ty, -1), 0), 0);
  return mg_ex_op(&e->x, OP_where, bad, one, b);
}

static void test_rows(MgTy ty) {
  Env e;
  BufRef in[3], out[OP__COUNT] = {0};
  ExprRef ld[3];
  inputs(&e, ty, in, ld);
  for (int op = 0; op < OP__COUNT; op++) {
    const MgScalarInfo *r = &mg_scalar_info[op];
    if (r->rule == SOR_LEAF || !mg_scalar_takes(op, ty) || (r->flags & SOF_B)) continue;
    if (e.s.nbuf >= ENV_MAX_BUF) {
      printf("too many rows\n");
      exit(1);
    }
    ExprRef v =
        mg_ex_op(&e.x, op, ld[0], r->nin > 1 ? defined(&e, op, ty, ld[1]) : 0, r->nin > 2 ? ld[2] : 0);
    if (!v) printf("%s %s: %s\n", r->name, mg_ty_name(ty), e.c.msg), exit(1);
    add_nest(&e, mg_expr(&e.x, v)->ty, v, &out[op]);
  }
  if (env_compile(&e)) {
    env_reference(&e);
    env_run(&e, 1);
    for (int op = 0; op < OP__COUNT; op++)
      if (out[op]) compare(&e, out[op], op, ty, mg_dtype_ty(e.s.buf[out[op]].dtype), in, NULL);
  }
  env_free(&e);
}

static void test_cvt(MgTy from) {
  Env e;
  BufRef in[3], out[TY__COUNT], bc[TY__COUNT] = {0}, wh;
  ExprRef ld[3];
  char what[32];
  inputs(&e, from, in, ld);
  for (int to = 0; to < TY__COUNT; to++) {
    add_nest(&e, to, mg_ex_cvt(&e.x, to, ld[0]), &out[to]);
    if (mg_ty_size(to) == mg_ty_size(from) && to != TY_i1 && from != TY_i1 && !mg_ty_is_float(from))
      add_nest(&e, to, mg_ex_bitcast(&e.x, to, ld[0]), &bc[to]);
  }
  add_nest(&e, from, mg_ex_op(&e.x, OP_where, mg_ex_op(&e.x, OP_lt, ld[0], ld[1], 0), ld[1], ld[2]), &wh);
  if (env_compile(&e)) {
    env_reference(&e);
    env_run(&e, 1);
    for (int to = 0; to < TY__COUNT; to++) {
      snprintf(what, sizeof what, "cvt to %s from", mg_ty_name(to));
      compare(&e, out[to], OP_cvt, from, to, in, what);
      snprintf(what, sizeof what, "bitcast to %s from", mg_ty_name(to));
      if (bc[to]) compare(&e, bc[to], OP_cvt, from, to, in, what);
    }
    compare(&e, wh, OP_cvt, from, from, in, "where");
  }
  env_free(&e);
}

int main(void) {
  const char *why = mg_llvm_open();
  if (why) {
    printf("skipped: %s\n", why);
    return 77;
  }
  for (int ty = 0; ty < TY__COUNT; ty++) {
    test_rows(ty);
    test_cvt(ty);
  }
  printf("%d comparisons, %d wrong; worst f32/f64 error in ulp:", total, wrong);
  for (int op = 0; op < OP__COUNT; op++)
    if (worst[op] > 0) printf(" %s %g", mg_scalar_info[op].name, worst[op]);
  puts("");
  return test_done();
}
