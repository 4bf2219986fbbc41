/* ir/ and middle/ without Python: op table, dtypes, text round trip, malformed texts, and the sweep in which
 * the n-th allocation fails for every n while a graph is parsed, inferred, functionalized and taken apart. */
#include "ir/graph/ops_mg.h"
#include "middle/middle.h"
#include "check.h"
#include <string.h>

static const char graph_text[] = "symbol s0 = 4 in [2, 64]\n"
                                 "%1 = input f32[s0,3]\n"
                                 "%2 = input f32[3]\n"
                                 "%3 = input f32[4,4]{1,4}\n"
                                 "%4 = aten::add.Tensor(%1, %2, alpha=2) : f32[s0,3]\n"
                                 "%5 = aten::t(%4) : f32[3,s0]{1,3}\n"
                                 "%6 = aten::mul_.Tensor(%5, 1.5) : f32[3,s0]{1,3}\n"
                                 "%7, %8 = aten::max.dim(%3, 1, False) : f32[4], i64[4]\n"
                                 "%9 = aten::select.int(%3, 0, 1) : f32[4]{4}+1\n"
                                 "%10 = aten::zero_(%9) : f32[4]{4}+1\n"
                                 "%11, %12 = aten::_foreach_add.List([%7, %2], [%7, %2]) : f32[4], f32[3]\n"
                                 "return %6, %7, %11, None\n";

static MgRc run(MgCtx *c, const char *text, bool passes, MgStrbuf *out) {
  MgExprs x;
  MgGraph g;
  TRY(mg_exprs_init(&x, c));
  TRY(mg_graph_init(&g, c, &x));
  TRY(mg_graph_parse(&g, text));
  TRY(mg_graph_verify(&g, "parse"));
  if (passes) {
    TRY(mg_functionalize(&g));
    TRY(mg_graph_verify(&g, "functionalize"));
    TRY(mg_decompose(&g));
    TRY(mg_graph_verify(&g, "decompose"));
    TRY(mg_dce(&g));
    TRY(mg_graph_verify(&g, "dce"));
  }
  mg_graph_print(&g, out);
  return mg_sb_ok(out) ? MG_OK : MG_NOMEM;
}

static void test_text(void) {
  MgCtx c;
  MgStrbuf a = {0};
  mg_ctx_init(&c);
  CHECK(run(&c, graph_text, false, &a) == MG_OK);
  /* the printer leaves out defaults of keyword-only parameters, and alpha=2 is none */
  CHECK(!strcmp(mg_sb_text(&a), graph_text));
  if (c.rc) printf("%s\n", c.msg);
  mg_sb_free(&a);
  mg_ctx_free(&c);
}

static void test_malformed(void) {
  static const char *const bad[] = {
      "%1 = input q32[2]\n",
      "%1 = input f32[2\n",
      "%1 = input f32[2]{1,1}\n",
      "%1 = input f32[2]\n%1 = input f32[2]\n",
      "%1 = aten::nosuch() : f32[2]\n",
      "%1 = input f32[2]\n%2 = aten::add.Tensor(%1) : f32[2]\n",
      "%1 = input f32[2]\n%2 = aten::relu(%1, %1) : f32[2]\n",
      "%1 = input f32[2]\n%2 = aten::relu(\"x\") : f32[2]\n",
      "%1 = input f32[2]\n%2 = aten::relu(%1)\n",
      "%1 = input f32[2] of %9\n",
      "return %1\n",
      "alias output 0 = same input 0\n",
      "writeback %1 = %1\n",
      "%1 = input f32[2]\n%2 = aten::fill.Scalar(%1, \"",
      "symbol s0 = 4 in [2\n",
      "extern nothing here\n",
      "%99999999999 = input f32[2]\n",
      "= = =\n",
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    MgCtx c;
    MgStrbuf out = {0};
    mg_ctx_init(&c);
    MgRc rc = run(&c, bad[i], true, &out);
    CHECK(rc != MG_OK && c.rc == rc && c.msg[0]);
    if (rc == MG_OK) printf("accepted: %s", bad[i]);
    mg_sb_free(&out);
    mg_ctx_free(&c);
  }
}

static void test_ops(void) {
  MgCtx c;
  mg_ctx_init(&c);
  const MgOp *add = mg_op_by_name("aten::add.Tensor"), *in = mg_op_by_name("aten::add_.Tensor");
  CHECK(add && add->code == TOP_add_Tensor && add == mg_op_by_code(TOP_add_Tensor));
  CHECK(add->nparam == 3 && add->param[2].kwarg_only && !strcmp(add->param[2].deflt, "1"));
  CHECK(in && in->mutates && in->param[0].writes && mg_op_twin(in) == add);
  CHECK(mg_op_twin(mg_op_by_name("aten::add.out")) == add);
  CHECK(mg_op_by_name("aten::select.int")->is_view && mg_op_by_name("aten::bernoulli")->random);
  CHECK(!mg_op_by_name("aten::nosuch"));
  /* the same text gives the same op; a row's name with other parameters is not the row */
  const char *mine = "my::op(Tensor x, int[2]? k=[1, 2], *, str s=\")\") -> (Tensor y, Tensor[])";
  const MgOp *o = mg_op_from_schema(&c, mine);
  CHECK(o && o == mg_op_from_schema(&c, mine) && o->code == TOP_extern && o->nret == 2 && o->nparam == 3);
  CHECK(o->param[1].kind == AK_int_list && o->param[1].optional && !strcmp(o->param[2].deflt, "\")\""));
  const MgOp *other = mg_op_from_schema(&c, "aten::relu(Tensor self, int level) -> Tensor");
  CHECK(other && other->code == TOP_extern && mg_op_by_name("aten::relu")->code == TOP_relu);
  CHECK(!mg_op_from_schema(&c, "aten::x(Tensor self -> Tensor") && c.rc == MG_BUG);
  mg_ctx_free(&c);
}

static bool has_kind(const MgOp *o, int i, uint8_t kind) { return i < o->nparam && o->param[i].kind == kind; }

/* The arguments that decide whether a call raises stand where MgRaise says, whatever their names are. */
static void test_positions(void) {
  int seen = 0;
  for (int code = 1; code < TOP__COUNT; code++) {
    const MgOp *o = mg_op_by_code((MgTop)code);
    if (!o) continue;
    for (int i = 0; i < o->nparam; i++) CHECK(mg_op_param(o, o->param[i].name) == i);
    if (!o->raises || o->raises == RS_keep) continue;
    seen++;
    switch ((MgRaise)o->raises) {
    case RS_list: CHECK(has_kind(o, RA_index, AK_opt_tensor_list)); break;
    case RS_dim:
    case RS_wrapped_dim: CHECK(has_kind(o, RA_dim, AK_int) && has_kind(o, RA_dim_index, AK_tensor)); break;
    case RS_target: CHECK(has_kind(o, RA_ignored, AK_int) && has_kind(o, RA_index, AK_tensor)); break;
    case RS_flat:
    case RS_rows: CHECK(has_kind(o, RA_index, AK_tensor)); break;
    case RS_divisor: CHECK(o->nparam > RA_divisor); break;
    default: break;
    }
    CHECK(has_kind(o, RA_self, AK_tensor) || o->raises == RS_divisor);
  }
  CHECK(seen > 20);
  const MgOp *norm = mg_op_by_code(TOP_native_batch_norm);
  CHECK(mg_op_param(norm, "running_var") == 4 && mg_op_param(norm, "no_such") == -1);
}

typedef struct Position {
  const char *name;
  int at;
} Position;

static void check_positions(MgTop code, const Position *p, int n) {
  const MgOp *o = mg_op_by_code(code);
  CHECK(o->nparam == n);
  for (int i = 0; i < n; i++) CHECK(mg_op_param(o, p[i].name) == p[i].at);
}

/* The positions of ops_mg.h are those of the schemas, and each op has no further argument. */
static void test_mg_positions(void) {
#define AT(prefix, name) {#name, prefix##_##name}
  static const Position matmul[] = {AT(MM, x),   AT(MM, w),     AT(MM, bias), AT(MM, residual),
                                    AT(MM, act), AT(MM, act_a), AT(MM, act_b)};
  static const Position conv[] = {AT(CV, x),
                                  AT(CV, w),
                                  AT(CV, bias),
                                  AT(CV, bn_weight),
                                  AT(CV, bn_bias),
                                  AT(CV, bn_mean),
                                  AT(CV, bn_var),
                                  AT(CV, residual),
                                  AT(CV, eps),
                                  AT(CV, act),
                                  AT(CV, act_a),
                                  AT(CV, act_b),
                                  AT(CV, stride),
                                  AT(CV, padding),
                                  AT(CV, dilation),
                                  AT(CV, transposed),
                                  AT(CV, output_padding),
                                  AT(CV, groups)};
  static const Position sdpa[] = {AT(SD, q),    AT(SD, k),         AT(SD, v),
                                  AT(SD, mask), AT(SD, is_causal), AT(SD, scale)};
#undef AT
  check_positions(TOP_mg_matmul, matmul, sizeof matmul / sizeof *matmul);
  check_positions(TOP_mg_conv, conv, sizeof conv / sizeof *conv);
  check_positions(TOP_mg_sdpa, sdpa, sizeof sdpa / sizeof *sdpa);
}

static void test_dtypes(void) {
  CHECK(mg_dtype_promote(DT_u8, DT_i8) == DT_i16 && mg_dtype_promote(DT_i64, DT_f16) == DT_f16);
  CHECK(mg_dtype_promote(DT_f16, DT_bf16) == DT_f32 && mg_dtype_promote(DT_bool, DT_u8) == DT_u8);
  CHECK(mg_dtype_promote(DT_f64, DT_c64) == DT_c128 && mg_dtype_promote(DT_f32, DT_c32) == DT_c64);
  CHECK(mg_dtype_promote(DT_bf16, DT_c32) == DT_c64 && mg_dtype_promote(DT_f16, DT_c32) == DT_c32);
  CHECK(mg_dtype_promote(DT_bf16, DT_bc32) == DT_bc32 && mg_dtype_promote(DT_f16, DT_bc32) == DT_c64);
  CHECK(mg_dtype_promote(DT_c32, DT_bc32) == DT_c64 && mg_dtype_promote(DT_bc32, DT_i64) == DT_bc32);
  CHECK(mg_dtype_promote(DT_bc32, DT_f64) == DT_c128 && mg_dtype_promote(DT_bc32, DT_c64) == DT_c64);
  for (int i = 0; i < 32; i++) {
    const char *name = mg_dtype_name(i);
    if (mg_dtype_size(i)) CHECK(mg_dtype_parse(name, (int)strlen(name)) == (MgDtype)i);
  }
}

static void test_faults(void) {
  for (long n = 1;; n++) {
    MgCtx c;
    MgStrbuf out = {0};
    mg_ctx_init(&c);
    mg_fault_set(n);
    MgRc rc = run(&c, graph_text, true, &out);
    long done = mg_fault_set(0);
    mg_sb_free(&out);
    mg_ctx_free(&c);
    CHECK(rc == MG_OK || rc == MG_NOMEM || rc == MG_UNSUP); /* refused where a twin could not be looked up */
    if (rc == MG_OK && done < n) break;
  }
}

int main(void) {
  test_faults(); /* first: the op table is still empty */
  test_text();
  test_malformed();
  test_ops();
  test_positions();
  test_mg_positions();
  test_dtypes();
  return test_done();
}
