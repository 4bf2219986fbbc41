/* The choice between engines: the fastest one, unless it is hardly faster than that of the rules; kept in the
 * process and in the cache folder; no engine that fails. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "check.h"
#include "base/log.h"
#include "driver/engine_timing.h"
#include "runtime/process/torch_abi.h"

enum { KINDS = 3 };
static double slow_ms[KINDS]; /* what a run of each kind takes */
static bool fails[KINDS];
static int runs[KINDS], made, freed;

static int engine_run(int kind) {
  double t0 = mg_now_ms();
  runs[kind]++;
  while (mg_now_ms() - t0 < slow_ms[kind]) continue;
  return fails[kind] ? -1 : 0;
}
static int run_rule(const MgEngine *e, MgEngineArgs *a) { return engine_run(0); }
static int run_one(const MgEngine *e, MgEngineArgs *a) { return engine_run(1); }
static int run_two(const MgEngine *e, MgEngineArgs *a) { return engine_run(2); }
static void engine_free(MgEngine *e) {
  freed++;
  free(e);
}
static const MgEngineOps ops[KINDS] = {{.name = "rule", .run = run_rule, .free = engine_free},
                                       {.name = "one", .run = run_one, .free = engine_free},
                                       {.name = "two", .run = run_two, .free = engine_free}};

static MgRc engine_new(int kind, MgEngine **out) {
  *out = calloc(1, sizeof **out);
  (*out)->ops = &ops[kind];
  made++;
  return MG_OK;
}
static MgRc make_rule(MgCtx *c, const void *d, MgEngine **out) { return engine_new(0, out); }
static MgRc make_one(MgCtx *c, const void *d, MgEngine **out) { return engine_new(1, out); }
static MgRc make_two(MgCtx *c, const void *d, MgEngine **out) { return engine_new(2, out); }
static MgRc make_none(MgCtx *c, const void *d, MgEngine **out) { return MG_UNSUP; }

static char last_op[16];
static const MgEngineMake others[] = {make_none, make_one, make_two};

static MgTiming call_of(const char *op, MgTensorDesc *t) {
  *t = (MgTensorDesc){.present = true, .ndim = 2, .dtype = 6, .size = {4, 8}, .stride = {8, 1}};
  return (MgTiming){.desc = t,
                    .op = op,
                    .t = t,
                    .ntensor = 1,
                    .work = 100,
                    .rule = make_rule,
                    .other = others,
                    .nother = 3,
                    .nquick = 2};
}

/* The name of the engine that is chosen. */
static const char *chosen(MgTiming t) {
  MgCtx c;
  MgEngine *e = NULL;
  mg_ctx_init(&c);
  memset(runs, 0, sizeof runs);
  CHECK(mg_timing_engine(&c, &t, &e) == MG_OK);
  const char *name = e->ops->name;
  e->ops->free(e);
  CHECK(made == freed);
  mg_ctx_free(&c);
  return name;
}

/* The same of calls that were not made yet, until the time is enough for another engine. */
static const char *chosen_new(const char *letter, bool search) {
  const char *name = "rule";
  for (int i = 0; i < 100 && !strcmp(name, "rule"); i++) {
    MgTensorDesc d;
    snprintf(last_op, sizeof last_op, "%s%d", letter, i);
    MgTiming t = call_of(last_op, &d);
    t.search = search;
    name = chosen(t);
  }
  return name;
}

static void set(double rule, double one, double two) {
  slow_ms[0] = rule;
  slow_ms[1] = one;
  slow_ms[2] = two;
}

int main(void) {
  char folder[] = "/tmp/mg-timing-XXXXXX", command[64];
  if (!mkdtemp(folder)) return 1;
  setenv("MAGNETO_CACHE_DIR", folder, 1);
  MgTensorDesc d;
  set(0.04, 0.01, 0.001);
  CHECK(!strcmp(chosen_new("a", false), "one")); /* the third is for a search */
  CHECK(runs[0] > 3 && runs[1] > 3 && !runs[2]);
  MgTiming t = call_of(last_op, &d);
  set(0.01, 0.04, 0.04);
  CHECK(!strcmp(chosen(t), "one") && !runs[0] && !runs[1]); /* kept */
  set(0.04, 0.02, 0.005);
  CHECK(!strcmp(chosen_new("s", true), "two"));
  t = call_of("b", &d);
  set(0.03, 0.0295, 1);
  CHECK(!strcmp(chosen(t), "rule")); /* hardly slower */
  t = call_of("c", &d);
  set(0.04, 0.01, 1);
  fails[1] = true;
  CHECK(!strcmp(chosen(t), "rule"));
  fails[1] = false;
  t = call_of("d", &d);
  set(2.0, 1.0, 1);
  CHECK(!strcmp(chosen(t), "rule")); /* too few runs in the time */
  t.work = 1e9;
  set(0.04, 0.01, 1);
  CHECK(!strcmp(chosen(t), "rule") && !runs[0]); /* large */
  d.stride[1] = -1;
  t = (MgTiming){
      .desc = &d, .op = "e", .t = &d, .ntensor = 1, .rule = make_rule, .other = others, .nother = 3};
  CHECK(!strcmp(chosen(t), "rule") && !runs[0]);
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return system(command) != 0 || test_done();
}
