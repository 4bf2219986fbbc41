/* Fusion: kernels of several nests against the reference evaluator, and how many kernels and memory
 * temporaries are left.  With an argument "bench": times of the kernels of the
 * design document, one thread. */
#include "kernel_run.h"

typedef struct N { /* one nest: "p" point, "r" reduce, "s" scan */
  char kind;
  const char *ranges;
  MgRedOp op;
  const char *body;
  BufRef buf;
  const char *index, *value;
} N;

typedef struct Case {
  const char *name;
  int64_t size[12]; /* elements of buffers 1.. (0: end); negative: temporary, the last positive ones are
                       outputs */
  int nin;          /* the first nin are inputs */
  N nest[8];
  int kernels, temps; /* expected kernels; temporaries left in memory */
  double tol;
} Case;

#define X "load:f32(b1, add(mul(i0, 100), i1))"
static const Case cases[] = {
    {"pointwise chain",
     {1000, 1000, -1000, 1000},
     2,
     {{'p', "1000", 0, 0, 3, "i0", "add(load:f32(b1, i0), load:f32(b2, i0))"},
      {'p', "1000", 0, 0, 4, "i0", "mul(load:f32(b3, i0), load:f32(b3, i0))"}},
     1,
     0,
     1e-6},
    {"softmax",
     {6400, 6400, -64, -64, 6400},
     1,
     {{'r', "64|100", RED_max, X, 3, "i0", "red:f32"},
      {'r', "64|100", RED_sum, "exp(sub(" X ", load:f32(b3, i0)))", 4, "i0", "red:f32"},
      {'p', "64 100", 0, 0, 5, "add(mul(i0, 100), i1)",
       "div(exp(sub(" X ", load:f32(b3, i0))), load:f32(b4, i0))"}},
     1,
     0,
     2e-6},
    {"softmax of a sum",
     {6400, 6400, -6400, -64, -64, 6400},
     2,
     {{'p', "6400", 0, 0, 3, "i0", "add(load:f32(b1, i0), load:f32(b2, i0))"},
      {'r', "64|100", RED_max, "load:f32(b3, add(mul(i0, 100), i1))", 4, "i0", "red:f32"},
      {'r', "64|100", RED_sum, "exp(sub(load:f32(b3, add(mul(i0, 100), i1)), load:f32(b4, i0)))", 5, "i0",
       "red:f32"},
      {'p', "64 100", 0, 0, 6, "add(mul(i0, 100), i1)",
       "div(exp(sub(load:f32(b3, add(mul(i0, 100), i1)), load:f32(b4, i0))), load:f32(b5, i0))"}},
     1,
     0,
     2e-6},
    {"layer norm",
     {6400, 100, -64, -64, -64, 6400},
     2,
     {{'r', "64|100", RED_sum, X, 3, "i0", "mul(red:f32, 0.01:f32)"},
      {'r', "64|100", RED_sum, "mul(sub(" X ", load:f32(b3, i0)), sub(" X ", load:f32(b3, i0)))", 4, "i0",
       "mul(red:f32, 0.01:f32)"},
      {'p', "64", 0, 0, 5, "i0", "rsqrt(add(load:f32(b4, i0), 1e-05:f32))"},
      {'p', "64 100", 0, 0, 6, "add(mul(i0, 100), i1)",
       "mul(mul(sub(" X ", load:f32(b3, i0)), load:f32(b5, i0)), load:f32(b2, i1))"}},
     1,
     0,
     1e-5},
    {"sibling sums",
     {6400, 64, 64, 64},
     1,
     {{'r', "64|100", RED_sum, X, 2, "i0", "red:f32"},
      {'r', "64|100", RED_sum, "mul(" X ", " X ")", 3, "i0", "red:f32"},
      {'r', "64|100", RED_max, X, 4, "i0", "red:f32"}},
     1,
     0,
     1e-5},
    {"column sums then use",
     {6400, -100, 100},
     1,
     {{'r', "100|64", RED_sum, "load:f32(b1, add(mul(i1, 100), i0))", 2, "i0", "red:f32"},
      {'p', "100", 0, 0, 3, "i0", "mul(load:f32(b2, i0), 2:f32)"}},
     1,
     0,
     1e-5},
    {"transposed use is apart",
     {6400, -6400, 6400},
     1,
     {{'p', "6400", 0, 0, 2, "i0", "exp(load:f32(b1, i0))"},
      {'p', "100 64", 0, 0, 3, "add(mul(i0, 64), i1)", "load:f32(b2, add(mul(i1, 100), i0))"}},
     2,
     1,
     1e-6},
    {"shifted use is apart",
     {6400, -6400, 6400},
     1,
     {{'p', "6400", 0, 0, 2, "i0", "exp(load:f32(b1, i0))"},
      {'p', "6399", 0, 0, 3, "i0", "load:f32(b2, add(i0, 1))"}},
     2,
     1,
     1e-6},
    {"shift within a row",
     {6400, -6400, 6400},
     1,
     {{'p', "64 100", 0, 0, 2, "add(mul(i0, 100), i1)", "exp(load:f32(b1, add(mul(i0, 100), i1)))"},
      {'p', "64 100", 0, 0, 3, "add(mul(i0, 100), i1)", "load:f32(b2, sub(add(mul(i0, 100), 99), i1))"},
      {'r', "64|100", RED_sum, "load:f32(b2, add(mul(i0, 100), i1))", 4, "i0", "red:f32"}},
     0,
     0,
     1e-5},
    {"copies",
     {600, 2400, 20},
     1,
     {{'p', "20 120", 0, 0, 2, "add(mul(i0, 120), i1)",
       "load:f32(b1, add(mul(mod(i0, 10), 60), mod(i1, 60)))"},
      {'r', "20|120", RED_sum, "load:f32(b2, add(mul(i0, 120), i1))", 3, "i0", "red:f32"}},
     0,
     0,
     1e-5},
    {"copies of copies",
     {24, 4800},
     1,
     {{'p', "40 120", 0, 0, 2, "add(mul(i0, 120), i1)",
       "load:f32(b1, add(mod(i1, 12), mul(mod(floordiv(i1, 12), 2), 12)))"}},
     1,
     0,
     0},
    {"rows of three",
     {900, -300, 900},
     1,
     {{'r', "300|3", RED_sum, "exp(load:f32(b1, add(mul(i0, 3), i1)))", 2, "i0", "red:f32"},
      {'p', "300 3", 0, 0, 3, "add(mul(i0, 3), i1)",
       "div(exp(load:f32(b1, add(mul(i0, 3), i1))), load:f32(b2, i0))"}},
     1,
     0,
     2e-6},
    {"maximum of repeats",
     {100, 1},
     1,
     {{'r', "|100 64", RED_max, "load:f32(b1, i0)", 2, "0", "red:f32"}},
     1,
     0,
     0},
    {"in place",
     {6400, -6400, 6400},
     1,
     {{'p', "6400", 0, 0, 2, "i0", "exp(load:f32(b1, i0))"},
      {'p', "6400", 0, 0, 1, "i0", "mul(load:f32(b1, i0), 0.5:f32)"},
      {'p', "6400", 0, 0, 3, "i0", "add(load:f32(b2, i0), 1:f32)"}},
     1,
     0,
     1e-6},
    {"in place, then read",
     {6400, 64},
     1,
     {{'p', "6400", 0, 0, 1, "i0", "mul(load:f32(b1, i0), 0.5:f32)"},
      {'r', "64|100", RED_sum, X, 2, "i0", "red:f32"}},
     2,
     0,
     1e-5},
    {"mean then subtract",
     {262144, -1, 262144},
     1,
     {{'r', "|262144", RED_sum, "load:f32(b1, i0)", 2, "0", "mul(red:f32, 3.8147e-06:f32)"},
      {'p', "262144", 0, 0, 3, "i0", "sub(load:f32(b1, i0), load:f32(b2, 0))"}},
     3,
     2,
     1e-5},
    {"scan in rows",
     {6400, -6400, 6400},
     1,
     {{'s', "64|100", RED_sum, X, 2, "add(mul(i0, 100), i1)", "red:f32"},
      {'p', "64 100", 0, 0, 3, "add(mul(i0, 100), i1)", "mul(load:f32(b2, add(mul(i0, 100), i1)), 2:f32)"}},
     1,
     0,
     1e-4},
};

static void open_case(Env *e, const Case *c) {
  env_init(e);
  for (int i = 0; c->size[i]; i++) {
    int64_t n = c->size[i];
    BufRef b = env_buf(e, i < c->nin ? MB_input : n < 0 ? MB_temp : MB_output, DT_f32, n < 0 ? -n : n);
    if (i < c->nin) env_fill(e, b, -3, 3);
  }
  if (!strcmp(c->name, "shift within a row")) env_buf(e, MB_output, DT_f32, 64);
  for (const N *n = c->nest; n->kind; n++)
    env_nest(e,
             n->kind == 'p'   ? ML_point
             : n->kind == 'r' ? ML_reduce
                              : ML_scan,
             n->ranges, n->op, n->body, n->buf, n->index, n->value);
}

static void run_case(const Case *c) {
  Env e;
  open_case(&e, c);
  if (env_compile(&e)) {
    int temps = 0;
    for (BufRef b = 1; b < e.s.nbuf; b++) {
      temps += e.s.buf[b].kind == MB_temp;
      if (!e.mem[b]) e.mem[b] = calloc(1, (size_t)mg_sym_eval(&e.x, e.s.buf[b].nelem, e.sym) * 8 + 64);
    }
    if (c->kernels && ((int)e.f.nstep != c->kernels || temps != c->temps)) {
      printf("%s: %u kernels, %d temporaries; expected %d and %d\n", c->name, e.f.nstep, temps, c->kernels,
             c->temps);
      CHECK(false);
    }
    env_reference(&e);
    env_run(&e, 3);
    for (BufRef b = 1; c->size[b - 1]; b++)
      if (e.s.buf[b].kind == MB_output || e.s.buf[b].kind == MB_input) env_compare(&e, b, c->tol, c->name);
  }
  env_free(&e);
}

/* ---- benchmark ---- */

static void bench(const char *name, const Case *c) {
  Env e;
  open_case(&e, c);
  for (BufRef b = 1; b < e.s.nbuf; b++) memset(e.mem[b], 0, 1);
  if (env_compile(&e)) {
    for (BufRef b = 1; b < e.s.nbuf; b++)
      if (!e.mem[b]) e.mem[b] = calloc(1, (size_t)mg_sym_eval(&e.x, e.s.buf[b].nelem, e.sym) * 8 + 64);
    double best = 1e9, llvm = e.llvm_ms;
    for (int r = 0; r < 5; r++) { /* the first compilation of a process also pages LLVM in */
      Env again;
      open_case(&again, c);
      if (env_compile(&again) && again.llvm_ms < llvm) llvm = again.llvm_ms;
      env_free(&again);
    }
    for (int r = 0; r < 200; r++) {
      double t = mg_now_ms();
      env_run(&e, 1);
      t = mg_now_ms() - t;
      if (t < best) best = t;
    }
    printf("%-16s %7.3f ms; %u kernels, text %zu bytes, emit %.2f ms, LLVM %.2f ms\n", name, best, e.f.nstep,
           e.text_bytes, e.emit_ms, llvm);
  }
  env_free(&e);
}

static void bench_all(void) {
#define U "add(mul(load:f32(b1, i0), load:f32(b2, i0)), 1:f32)"
  static const Case gelu = {"gelu",
                            {1048576, 1048576, 1048576},
                            2,
                            {{'p', "1048576", 0, 0, 3, "i0",
                              "div(" U ", add(exp(mul(mul(add(mul(mul(" U ", " U
                              "), 0.044715:f32), 1:f32), " U "), -1.5957691:f32)), 1:f32))"}}};
  static const Case erf = {
      "gelu erf",
      {1048576, 1048576},
      1,
      {{'p', "1048576", 0, 0, 2, "i0",
        "mul(mul(load:f32(b1, i0), 0.5:f32), add(erf(mul(load:f32(b1, i0), 0.70710678:f32)), 1:f32))"}}};
  static const Case th = {
      "tanh", {1048576, 1048576}, 1, {{'p', "1048576", 0, 0, 2, "i0", "tanh(load:f32(b1, i0))"}}};
  static const Case sn = {
      "sin", {1048576, 1048576}, 1, {{'p', "1048576", 0, 0, 2, "i0", "sin(load:f32(b1, i0))"}}};
  static const Case lg = {
      "log", {1048576, 1048576}, 1, {{'p', "1048576", 0, 0, 2, "i0", "log(load:f32(b1, i0))"}}};
  static const Case rnd = {"rand", {1048576, 1048576}, 1, {{'p', "1048576", 0, 0, 2, "i0", "rand:0(1, i0)"}}};
  static const Case sm = {
      "softmax",
      {409600, -4096, -4096, 409600},
      1,
      {{'r', "4096|100", RED_max, X, 2, "i0", "red:f32"},
       {'r', "4096|100", RED_sum, "exp(sub(" X ", load:f32(b2, i0)))", 3, "i0", "red:f32"},
       {'p', "4096 100", 0, 0, 4, "add(mul(i0, 100), i1)",
        "div(exp(sub(" X ", load:f32(b2, i0))), load:f32(b3, i0))"}}};
  static const Case sum = {
      "sum", {1048576, 1}, 1, {{'r', "|1048576", RED_sum, "load:f32(b1, i0)", 2, "0", "red:f32"}}};
  static const Case rows = {
      "sum rows",
      {1048576, 1024},
      1,
      {{'r', "1024|1024", RED_sum, "load:f32(b1, add(mul(i0, 1024), i1))", 2, "i0", "red:f32"}}};
  static const Case cols = {
      "sum cols",
      {1048576, 1024},
      1,
      {{'r', "1024|1024", RED_sum, "load:f32(b1, add(mul(i1, 1024), i0))", 2, "i0", "red:f32"}}};
  static const Case tr = {
      "transpose",
      {1048576, 1048576},
      1,
      {{'p', "1024 1024", 0, 0, 2, "add(mul(i0, 1024), i1)", "load:f32(b1, add(mul(i1, 1024), i0))"}}};
  static const Case ad = {"add",
                          {1048576, 1048576, 1048576},
                          2,
                          {{'p', "1048576", 0, 0, 3, "i0", "add(load:f32(b1, i0), load:f32(b2, i0))"}}};
  bench("add 1M", &ad), bench("gelu tanh 1M", &gelu), bench("gelu erf 1M", &erf), bench("tanh 1M", &th),
      bench("sin 1M", &sn), bench("log 1M", &lg);
  bench("rand 1M", &rnd), bench("softmax 4096x100", &sm), bench("sum 1M", &sum), bench("sum rows 1M", &rows),
      bench("sum cols 1M", &cols);
  bench("transpose 1M", &tr);
}

int main(int argc, char **argv) {
  const char *why = mg_llvm_open();
  if (why) {
    printf("skipped: %s\n", why);
    return 77;
  }
  if (argc > 1 && !strcmp(argv[1], "bench")) {
    bench_all();
    return 0;
  }
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    if (argc < 2 || !strcmp(argv[1], cases[i].name)) run_case(&cases[i]);
  return test_done();
}
