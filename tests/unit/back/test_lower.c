/* Lowering, judged by running the nests with the reference evaluator on small graphs. */
#include <stdlib.h>
#include <string.h>
#include "back/kernel/back.h"
#include "back/lower/lower.h"
#include "check.h"

typedef struct Case {
  MgCtx c;
  MgExprs x;
  MgGraph g;
  MgSched s;
  void *mem[64]; /* per buffer */
  bool owned[64];
} Case;

static int64_t case_int(Case *t, SymRef e) {
  int64_t v = -1;
  mg_ex_const_int(&t->x, e, &v);
  return v;
}

/* Parses and lowers; inputs in[] are bound, other buffers get memory of their own (filled with 0xff). */
static MgRc case_open(Case *t, const char *text, void *const *in) {
  memset(t, 0, sizeof *t);
  mg_ctx_init(&t->c);
  TRY(mg_exprs_init(&t->x, &t->c));
  TRY(mg_graph_init(&t->g, &t->c, &t->x));
  TRY(mg_graph_parse(&t->g, text));
  TRY(mg_sched_init(&t->s, &t->g));
  TRY(mg_lower(&t->s));
  if (t->s.nbuf > 64) return MG_BUG;
  for (BufRef b = 1; b < t->s.nbuf; b++) {
    const MgBuf *m = &t->s.buf[b];
    if (m->kind == MB_input) {
      t->mem[b] = in[m->index];
      continue;
    }
    size_t bytes = (size_t)case_int(t, m->nelem) * (size_t)mg_dtype_size((MgDtype)m->dtype);
    t->mem[b] = calloc(1, bytes + 1);
    t->owned[b] = true;
    if (m->kind != MB_error) memset(t->mem[b], 0xff, bytes);
  }
  return MG_OK;
}

static MgRc case_run(Case *t) {
  for (uint32_t i = 0; i < t->s.nitem; i++) {
    if (t->s.item[i].kind != MI_loop) return MG_UNSUP;
    TRY(mg_interp_loop(&t->s, t->s.item[i].u.loop, t->mem, NULL));
  }
  return MG_OK;
}

static void *case_out(Case *t, int i) { return t->mem[t->s.out[i].buf]; }
static int case_failed_checks(Case *t) {
  int n = 0;
  for (uint32_t i = 0; i < t->s.ncheck; i++) n += ((int32_t *)t->mem[t->s.err])[i] != 0;
  return n;
}

static void case_close(Case *t) {
  for (BufRef b = 1; b < 64; b++)
    if (t->owned[b]) free(t->mem[b]);
  mg_ctx_free(&t->c);
}

static int count_items(const Case *t, int kind) {
  int n = 0;
  for (uint32_t i = 0; i < t->s.nitem; i++) n += t->s.item[i].kind == kind;
  return n;
}

/* A chain of pointwise ops and views is one nest; nothing is stored in between. */
static void test_inline(void) {
  float a[6] = {1, 2, 3, 4, 5, 6}, b[3] = {10, 20, 30};
  Case t;
  CHECK(case_open(
            &t,
            "%1 = input f32[2,3]\n%2 = input f32[3]\n"
            "%3 = aten::mul.Tensor(%1, %2) : f32[2,3]\n%4 = aten::t(%3) : f32[3,2]{1,3}\n"
            "%5 = aten::add.Scalar(%4, 1.0) : f32[3,2]{1,3}\n%6 = aten::select.int(%5, 0, -1) : f32[2]{3}+2\n"
            "%7 = aten::neg(%6) : f32[2]\nreturn %7\n",
            (void *[]){a, b}) == MG_OK);
  CHECK(t.s.nitem == 1);
  CHECK(case_run(&t) == MG_OK);
  float *o = case_out(&t, 0);
  CHECK(o[0] == -91 && o[1] == -181);
  case_close(&t);
}

/* The result has the strides of its metadata; a value read twice is computed once. */
static void test_realise(void) {
  float a[6] = {0, 1, 2, 3, 4, 5};
  Case t;
  CHECK(case_open(&t,
                  "%1 = input f32[2,3]\n%2 = aten::exp(%1) : f32[2,3]\n%3 = aten::sum.dim_IntList(%2, [1], "
                  "True) : f32[2,1]\n"
                  "%4 = aten::div.Tensor(%2, %3) : f32[2,3]\n%5 = aten::t(%4) : f32[3,2]{1,3}\nreturn %5\n",
                  (void *[]){a}) == MG_OK);
  CHECK(t.s.nitem == 3);
  CHECK(case_int(&t, t.s.out[0].stride[0]) == 1 && case_int(&t, t.s.out[0].stride[1]) == 3);
  CHECK(case_run(&t) == MG_OK);
  float *o = case_out(&t, 0), sum = 0;
  for (int i = 0; i < 3; i++) sum += o[i];
  CHECK(sum > 0.9999f && sum < 1.0001f);
  case_close(&t);
}

/* An extern call gets its arguments in memory, as views with eager's strides. */
static void test_extern(void) {
  float a[6] = {0}, b[6] = {0};
  Case t;
  CHECK(case_open(&t,
                  "%1 = input f32[2,3]\n%2 = input f32[2,3]\n%3 = aten::relu(%1) : f32[2,3]\n%4 = "
                  "aten::t(%2) : f32[3,2]{1,3}\n"
                  "%5 = aten::mm(%3, %4) : f32[2,2]\n%6 = aten::add.Scalar(%5, 1.0) : f32[2,2]\nreturn %6\n",
                  (void *[]){a, b}) == MG_OK);
  CHECK(count_items(&t, MI_extern) == 1 && t.s.nitem == 3);
  const MgExtern *e = t.s.item[1].kind == MI_extern ? t.s.item[1].u.ext : NULL;
  CHECK(e && e->nin == 2 && e->nout == 1);
  if (e) {
    CHECK(t.s.buf[e->in[0].buf].kind == MB_temp);
    CHECK(t.s.buf[e->in[1].buf].kind == MB_input && case_int(&t, e->in[1].stride[1]) == 3);
    CHECK(t.s.buf[e->out[0].buf].kind == MB_extern_out);
  }
  case_close(&t);
}

/* Inputs are overwritten at the end, in an order that reads no overwritten memory. */
static void test_writeback(void) {
  float a[2] = {1, 2}, b[2] = {3, 4};
  Case t;
  CHECK(
      case_open(
          &t,
          "%1 = input f32[2]\n%2 = input f32[2]\n%3 = aten::clone(%2) : f32[2]\n%4 = aten::neg(%1) : f32[2]\n"
          "%5 = aten::flip(%1, [0]) : f32[2]\nwriteback %1 = %3\nwriteback %2 = %4\nreturn %5\n",
          (void *[]){a, b}) == MG_OK);
  CHECK(case_run(&t) == MG_OK);
  CHECK(a[0] == 3 && a[1] == 4 && b[0] == -1 && b[1] == -2);
  float *o = case_out(&t, 0);
  CHECK(o[0] == 2 && o[1] == 1);
  case_close(&t);
  /* reads of other points of the same input go through a temporary */
  float c[3] = {1, 2, 3};
  CHECK(case_open(&t,
                  "%1 = input f32[3]\n%2 = aten::flip(%1, [0]) : f32[3]\nwriteback %1 = %2\nreturn None\n",
                  (void *[]){c}) == MG_OK);
  CHECK(case_run(&t) == MG_OK);
  CHECK(c[0] == 3 && c[1] == 2 && c[2] == 1);
  case_close(&t);
}

/* Indices that are data: checked, and harmless when they are wrong. */
static void test_index(void) {
  float w[6] = {0, 1, 2, 3, 4, 5};
  int64_t i[2] = {2, 0};
  Case t;
  const char *text =
      "%1 = input f32[3,2]\n%2 = input i64[2]\n%3 = aten::embedding(%1, %2) : f32[2,2]\nreturn %3\n";
  CHECK(case_open(&t, text, (void *[]){w, i}) == MG_OK);
  CHECK(case_run(&t) == MG_OK);
  float *o = case_out(&t, 0);
  CHECK(o[0] == 4 && o[1] == 5 && o[2] == 0 && o[3] == 1);
  CHECK(case_failed_checks(&t) == 0);
  case_close(&t);
  i[1] = 1000000000;
  CHECK(case_open(&t, text, (void *[]){w, i}) == MG_OK);
  CHECK(case_run(&t) == MG_OK);
  CHECK(case_failed_checks(&t) == 1);
  case_close(&t);
}

static void test_pool(void) {
  float a[16];
  for (int i = 0; i < 16; i++) a[i] = (float)((i * 7) % 16);
  Case t;
  CHECK(case_open(
            &t,
            "%1 = input f32[1,1,4,4]\n%2, %3 = aten::max_pool2d_with_indices(%1, [2, 2], [2, 2], [1, 1]) : "
            "f32[1,1,3,3], i64[1,1,3,3]\nreturn %2, %3\n",
            (void *[]){a}) == MG_OK);
  CHECK(case_run(&t) == MG_OK);
  float *o = case_out(&t, 0);
  int64_t *k = case_out(&t, 1);
  for (int i = 0; i < 9; i++) CHECK(a[k[i]] == o[i]);
  CHECK(o[0] == a[0] && o[8] == a[15]);
  case_close(&t);
}

/* Writes at indices into memory in which a dimension of size 1 has the stride of the contiguous one, too. */
static void test_scatter_units(void) {
  float self[8] = {0}, src[6] = {1, 2, 3, 4, 5, 6};
  int64_t i[3] = {3, 0, 3};
  Case t;
  CHECK(case_open(&t,
                  "%1 = input f32[4,2,1]\n%2 = input i64[3]\n%3 = input f32[3,2,1]\n"
                  "%4 = aten::index_add(%1, 0, %2, %3) : f32[4,2,1]\nreturn %4\n",
                  (void *[]){self, i, src}) == MG_OK);
  CHECK(mg_sched_verify(&t.s, "a test") == MG_OK);
  CHECK(case_run(&t) == MG_OK);
  float *o = case_out(&t, 0);
  const float want[8] = {3, 4, 0, 0, 0, 0, 1 + 5, 2 + 6};
  for (int k = 0; k < 8; k++) CHECK(o[k] == want[k]);
  case_close(&t);
}

/* What a nest lacks is found before code is made of it. */
static void test_verify(void) {
  float a[4] = {0};
  for (int wrong = 0; wrong < 4; wrong++) {
    Case t;
    CHECK(case_open(&t, "%1 = input f32[2,2]\n%2 = aten::neg(%1) : f32[2,2]\nreturn %2\n", (void *[]){a}) ==
          MG_OK);
    MgLoop *l = t.s.item[0].u.loop;
    CHECK(mg_sched_verify(&t.s, "a test") == MG_OK);
    if (wrong == 0) l->range[1] = 0;
    else if (wrong == 1) l->index = mg_ex_idx(&t.x, 5);
    else if (wrong == 2) l->value = 0x7ffffff0;
    else l->buf = t.s.nbuf;
    CHECK(mg_sched_verify(&t.s, "a test") == MG_BUG);
    case_close(&t);
  }
}

/* Lowerings read arguments by the names that they know; an op of another PyTorch may have other ones. */
static void test_other_parameters(void) {
  float a[4] = {0};
  Case t;
  CHECK(case_open(&t, "%1 = input f32[4]\n%2 = aten::leaky_relu(%1, 0.5) : f32[4]\nreturn %2\n",
                  (void *[]){a}) == MG_OK);
  const char *other = "aten::leaky_relu(Tensor input, Scalar slope=0.01) -> Tensor";
  const char *same = "aten::leaky_relu(Tensor self, Scalar negative_slope=0.25) -> Tensor";
  CHECK(mg_lower_knows(&t.g, 1));
  CHECK((mg_node(&t.g, 1)->op = mg_op_from_schema(&t.c, other)) && !mg_lower_knows(&t.g, 1));
  CHECK((mg_node(&t.g, 1)->op = mg_op_from_schema(&t.c, same)) && mg_lower_knows(&t.g, 1));
  case_close(&t);
}

static void test_print(void) {
  float a[4] = {0};
  Case t;
  MgStrbuf sb = {0};
  CHECK(case_open(&t, "%1 = input f32[4]\n%2 = aten::cumsum(%1, 0) : f32[4]\nreturn %2\n", (void *[]){a}) ==
        MG_OK);
  mg_sched_print(&t.s, &sb);
  CHECK(strstr(mg_sb_text(&sb), "scan sum [ | 4]") && strstr(mg_sb_text(&sb), "# aten::cumsum"));
  mg_sb_free(&sb);
  case_close(&t);
}

int main(void) {
  test_inline();
  test_realise();
  test_extern();
  test_writeback();
  test_index();
  test_pool();
  test_scatter_units();
  test_verify();
  test_other_parameters();
  test_print();
  return test_done();
}
