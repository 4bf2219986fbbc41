/* What each stage promises is checked: a graph or schedule that breaks a promise is refused,
 * with the op and the reason. */
#include <string.h>
#include "back/kernel/back.h"
#include "back/lower/lower.h"
#include "middle/middle.h"
#include "check.h"

typedef struct Case {
  MgCtx c;
  MgExprs x;
  MgGraph g;
  MgSched s;
} Case;

static MgRc case_open(Case *t, const char *text) {
  memset(t, 0, sizeof *t);
  mg_ctx_init(&t->c);
  TRY(mg_exprs_init(&t->x, &t->c));
  TRY(mg_graph_init(&t->g, &t->c, &t->x));
  TRY(mg_graph_parse(&t->g, text));
  return mg_graph_verify(&t->g, "parse");
}

/* Is this MG_BUG with those words? */
static bool case_refused(const Case *t, MgRc rc, const char *words) {
  bool yes = rc == MG_BUG && strstr(t->c.msg, words);
  if (!yes) printf("wanted \"%s\", got %s: %s\n", words, mg_rc_text(rc), t->c.msg);
  return yes;
}

/* ---- functionalize ---- */

static const char *const writers[] = {
    "%1 = input f32[4]\n%2 = aten::relu_(%1) : f32[4]\nreturn %2\n",
    "%1 = input f32[4]\n%2 = input f32[4]\n%3 = aten::add.out(%1, %2, alpha=1, out=%2) : f32[4]\nreturn %3\n",
    "%1 = input f32[4]\n aten::_foreach_add_.Scalar([%1], 1)\nreturn %1\n",
    "%1 = input f32[4]\n%2 = aten::bernoulli_.float(%1, 0.5, generator=None) : f32[4]\nreturn %2\n",
};

static void test_writers(void) {
  for (size_t i = 0; i < sizeof writers / sizeof *writers; i++) {
    Case t;
    CHECK(case_open(&t, writers[i]) == MG_OK);
    CHECK(case_refused(&t, mg_graph_verify_functional(&t.g, "a test"), "still writes an argument"));
    mg_ctx_free(&t.c);
    CHECK(case_open(&t, writers[i]) ==
          MG_OK); /* functionalize makes it right, also what stays and gets copies */
    CHECK(mg_functionalize(&t.g) == MG_OK);
    CHECK(mg_graph_verify_functional(&t.g, "functionalize") == MG_OK);
    mg_ctx_free(&t.c);
  }
}

static void test_hidden_writer(void) {
  Case t;
  CHECK(case_open(&t, "%1 = input f32[4,2]\n%2 = input f32[2]\n%3 = input f32[2]\n"
                      "%4, %5, %6 = aten::native_batch_norm(%1, None, None, %2, %3, True, 0.1, 1e-05) : "
                      "f32[4,2], f32[2], f32[2]\n"
                      "return %4\n") == MG_OK);
  CHECK(case_refused(&t, mg_graph_verify_functional(&t.g, "a test"), "running statistics"));
  mg_ctx_free(&t.c);
}

/* wrong: 0 nothing, 1 another dtype, 2 another size, 3 an input twice, 4 an alias of no input */
static void test_writebacks(void) {
  static const char *const reason[] = {NULL, "write-back 0 does not fit", "write-back 0 does not fit",
                                       "write-backs 0 and 1", "said to be what is not there"};
  for (int wrong = 0; wrong < 5; wrong++) {
    Case t;
    CHECK(case_open(&t, "%1 = input f32[4]\n%2 = input f32[4]\n%3 = aten::relu_(%1) : f32[4]\n%4 = "
                        "aten::neg_(%2) : f32[4]\n"
                        "return %3\n") == MG_OK);
    CHECK(mg_functionalize(&t.g) == MG_OK);
    CHECK(t.g.nwb == 2 && t.g.out_alias[0].of_input == 0);
    MgVal *v = mg_val(&t.g, t.g.wb_value[0]);
    if (wrong == 1) v->dtype = DT_f64;
    else if (wrong == 2) v->size[0] = mg_sym(&t.x, 5);
    else if (wrong == 3) t.g.wb_input[1] = t.g.wb_input[0];
    else if (wrong == 4) t.g.out_alias[0].of_input = 2;
    MgRc rc = mg_graph_verify_functional(&t.g, "a test");
    CHECK(wrong ? case_refused(&t, rc, reason[wrong]) : rc == MG_OK);
    mg_ctx_free(&t.c);
  }
}

/* ---- decompose ---- */

static void test_primitives(void) {
  static const char *const whole[] = {
      ("%1 = input f32[4]\n%2 = input f32[3]\n%3, %4 = aten::_foreach_neg([%1, %2]) : f32[4], f32[3]\n"
       "return %3, %4\n"),
      "%1 = input f32[4,4]\n%2 = aten::trace(%1) : f32[]\nreturn %2\n",
      "%1 = input f32[4,3]\n%2 = input f32[3]\n%3 = aten::mv(%1, %2) : f32[4]\nreturn %3\n",
  };
  for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
    Case t;
    CHECK(case_open(&t, whole[i]) == MG_OK);
    CHECK(mg_graph_verify_functional(&t.g, "a test") == MG_OK);
    CHECK(case_refused(&t, mg_decompose_verify(&t.g, "a test"), "is no primitive"));
    mg_ctx_free(&t.c);
    CHECK(case_open(&t, whole[i]) == MG_OK);
    CHECK(mg_decompose(&t.g) == MG_OK);
    CHECK(mg_decompose_verify(&t.g, "decompose") == MG_OK);
    mg_ctx_free(&t.c);
  }
}

/* A form that no rule takes is a primitive, and asking does not change the graph. */
static void test_whole_form(void) {
  Case t;
  MgStrbuf before = {0}, after = {0};
  CHECK(case_open(&t, "symbol s0 = 4 in [2, 64]\n%1 = input f32[s0,8]\n%2 = input f32[8,8]\n%3 = "
                      "aten::mm(%1, %2) : f32[s0,8]\n"
                      "return %3\n") == MG_OK);
  mg_graph_print(&t.g, &before);
  CHECK(mg_decompose_verify(&t.g, "a test") == MG_OK);
  mg_graph_print(&t.g, &after);
  CHECK(!strcmp(mg_sb_text(&before), mg_sb_text(&after)));
  mg_sb_free(&before);
  mg_sb_free(&after);
  mg_ctx_free(&t.c);
}

/* ---- lower ---- */

static MgRc case_lower(Case *t, const char *text) {
  TRY(case_open(t, text));
  TRY(mg_sched_init(&t->s, &t->g));
  return mg_lower(&t->s);
}

static const char calls[] =
    "%1 = input f32[4,4]\n%2 = aten::mm(%1, %1) : f32[4,4]\n%3 = aten::neg(%1) : f32[4,4]\nreturn %2, %3\n";
static const char engine[] =
    "%1 = input f32[4,4]\n%2 = mg::matmul(%1, %1, None, None, \"\", 0.0, 0.0) : f32[4,4]\nreturn %2\n";

static MgExtern *case_call(const Case *t) {
  for (uint32_t i = 0; i < t->s.nitem; i++)
    if (t->s.item[i].kind == MI_extern) return t->s.item[i].u.ext;
  return NULL;
}

/* wrong: the row of `reason` */
static void test_calls(void) {
  static const char *const reason[] = {NULL,
                                       "a call of no node",
                                       "neither an engine nor the dispatcher",
                                       "an argument is missing",
                                       "a result is missing",
                                       "results that the op does not have",
                                       "without a place",
                                       "a call of no node"};
  for (int wrong = 0; wrong < 8; wrong++) {
    Case t;
    CHECK(case_lower(&t, calls) == MG_OK);
    MgExtern *e = case_call(&t);
    CHECK(e);
    if (wrong == 1) e->node = 0;
    else if (wrong == 2) e->prealloc = true;
    else if (wrong == 3) e->in[0].buf = t.s.nbuf;
    else if (wrong == 4) e->out[0].size[1] = 0;
    else if (wrong == 5) e->nout = 2;
    else if (wrong == 6) t.s.out[1].buf = 0;
    else if (wrong == 7) mg_node(&t.g, e->node)->dead = true;
    MgRc rc = mg_sched_verify(&t.s, "a test");
    CHECK(wrong ? case_refused(&t, rc, reason[wrong]) : rc == MG_OK);
    mg_ctx_free(&t.c);
  }
}

static void test_engine_calls(void) {
  static const char *const reason[] = {NULL, "for the dispatcher", "neither an engine nor the dispatcher",
                                       "writes its arguments"};
  for (int wrong = 0; wrong < 4; wrong++) {
    Case t;
    CHECK(case_lower(&t, engine) == MG_OK);
    MgExtern *e = case_call(&t);
    CHECK(e && e->prealloc);
    if (wrong == 1) e->prealloc = false;
    else if (wrong == 2) mg_node(&t.g, e->node)->op = mg_op_by_code(TOP_mg_check);
    else if (wrong == 3) mg_node(&t.g, e->node)->op = mg_op_by_name("aten::relu_"), e->prealloc = false;
    MgRc rc = mg_sched_verify(&t.s, "a test");
    CHECK(wrong ? case_refused(&t, rc, reason[wrong]) : rc == MG_OK);
    mg_ctx_free(&t.c);
  }
}

int main(void) {
  test_writers();
  test_hidden_writer();
  test_writebacks();
  test_primitives();
  test_whole_form();
  test_calls();
  test_engine_calls();
  return test_done();
}
