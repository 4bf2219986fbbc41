/* CUDA graphs of plans over a fake torch and a fake driver, which keeps what is captured in a list and runs
 * that. Results are the caller's and stay valid, whatever moves; what a graph holds is given back. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "check.h"
#include "runtime/plan/plan_graph.h"
#include "runtime/process/generator.h"
#include "runtime/plan/plan_spec.h"

enum { N = 8, OPS = 16 };

/* ---- the fake torch: tensors of N numbers ---- */

typedef struct Storage { /* as torch's: the count that mg_abi_storage_uses reads */
  const void *table;
  uint32_t uses, weak;
  double *data;
  bool owns;
} Storage;
typedef struct Impl {
  const void *table;
  uint64_t uses;
  Storage *storage;
} Impl;
struct AtenTensorOpaque {
  Impl *impl;
};
static int64_t tensor_size[1] = {N}, tensor_stride[1] = {1};
static int alive;

static double *data_of(MgTensor *t) { return t->impl->storage->data; }
static MgTensor *tensor(Storage *s) {
  MgTensor *t = malloc(sizeof *t);
  t->impl = calloc(1, sizeof *t->impl);
  t->impl->storage = s;
  s->uses++;
  alive++;
  return t;
}
static Storage *storage(double *data, bool owns) {
  Storage *s = calloc(1, sizeof *s);
  s->data = data;
  s->owns = owns;
  return s;
}
static int32_t fake_empty(int64_t n, const int64_t *size, const int64_t *stride, int32_t dt, int32_t d,
                          int32_t i, MgTensor **out) {
  *out = tensor(storage(calloc(size[0] > N ? (size_t)size[0] : N, sizeof(double)), true));
  return 0;
}
static int32_t fake_delete(MgTensor *t) {
  Storage *s = t->impl->storage;
  if (!--s->uses) {
    if (s->owns)
      memset(s->data, 0x77, N * sizeof(double)), free(s->data); /* whoever reads it still sees garbage */
    free(s);
  }
  free(t->impl);
  free(t);
  return alive--, 0;
}
static int32_t fake_clone(MgTensor *t, MgTensor **out) {
  fake_empty(1, tensor_size, tensor_stride, 7, 0, 0, out);
  return memcpy(data_of(*out), data_of(t), N * sizeof(double)), 0;
}
static int32_t fake_view(MgTensor *t, int64_t n, const int64_t *size, const int64_t *stride, int64_t off,
                         MgTensor **out) {
  return *out = tensor(t->impl->storage), 0;
}
static int32_t fake_blob(void *p, int64_t n, const int64_t *size, const int64_t *stride, int64_t off,
                         int32_t a, int32_t b, int32_t c, MgTensor **out) {
  return *out = tensor(storage(p, false)), 0;
}
static int32_t fake_view_dtype(MgTensor *t, int32_t dtype, MgTensor **out) {
  return *out = tensor(t->impl->storage), 0;
}
static int32_t fake_zero(MgTensor *t, int64_t *out) { return *out = 0, 0; }
static int32_t fake_handle(MgTensor *t, MgTensor **out) { return *out = tensor(t->impl->storage), 0; }
static int32_t fake_copy(MgTensor *to, MgTensor *from, int32_t nb) {
  return memcpy(data_of(to), data_of(from), N * sizeof(double)), 0;
}
static int32_t fake_ptr(MgTensor *t, void **out) { return *out = data_of(t), 0; }
static int32_t fake_sizes(MgTensor *t, int64_t **out) { return *out = tensor_size, 0; }
static int32_t fake_strides(MgTensor *t, int64_t **out) { return *out = tensor_stride, 0; }
static int32_t fake_one(MgTensor *t, int64_t *out) { return *out = 1, 0; }
static int32_t fake_bytes(MgTensor *t, int64_t *out) { return *out = N * 8, 0; }
static int32_t fake_dtype(MgTensor *t, int32_t *out) { return *out = 7, 0; }
static int32_t fake_device(MgTensor *t, int32_t *out) { return *out = 1, 0; }
static bool fake_grad(void) { return false; }
static void fake_set_grad(bool on) {}

/* ---- the fake driver ---- */

typedef struct Op {
  void *fn;
  uint32_t n;
  double *ptr[3];
  uint64_t value[2];
} Op; /* fn NULL: the library's call */
static struct {
  Op op[OPS];
  int n;
} *capture;
static int graphs, captures_open;
static uint64_t settings;
static void *the_stream = &graphs;
static int copying; /* launches of the kernel that copies */

static int seeding; /* the kernel that stores a seed and an offset: its address */
static struct {
  uint64_t seed, offset, within;
  uint64_t cell[2]; /* where a graph has seed and offset */
} generator;

static void op_run(const Op *o) {
  if (o->fn == &seeding) {
    memcpy(o->ptr[0], &o->value[0], sizeof o->value[0]);
    memcpy(o->ptr[1], &o->value[1], sizeof o->value[1]);
    return;
  }
  for (int i = 0; i < N; i++) {
    if (!o->fn) o->ptr[2][i] = o->ptr[0][i] + o->ptr[1][i];
    else o->ptr[1][i] = 2 * o->ptr[0][i];
  }
}
static void op_do(Op o) {
  if (capture) capture->op[capture->n++] = o;
  else op_run(&o);
}
bool mg_cuda_enter(int device, MgCudaScope *out) { return true; }
void mg_cuda_leave(MgCudaScope *s) {}
void *mg_cuda_stream(int device) { return the_stream; }
const char *mg_cuda_error(int rc) { return "fake"; }
void *mg_cuda_kept(const MgCudaKept *k, int device, uint32_t form) { return &copying; }
void *mg_cuda_lazy_get(MgCudaLazy *l) { return l; }
void mg_cuda_lazy_free(MgCudaLazy *l) {}
void *mg_cuda_seed_kernel(int device) { return &seeding; }
const char *mg_draws_missing(void) { return NULL; }
bool mg_draws(int device, uint64_t n, MgDraws *out) {
  if (capture) {
    *out = (MgDraws){(uintptr_t)&generator.cell[0], (uintptr_t)&generator.cell[1], generator.within};
    generator.within += n;
  } else {
    *out = (MgDraws){generator.seed, generator.offset, 0};
    generator.offset += n;
  }
  return true;
}
static void op_seeds(Op *o, void **arg) {
  for (int i = 0; i < 2; i++) {
    o->ptr[i] = *(double **)arg[i];
    o->value[i] = *(uint64_t *)arg[2 + i];
  }
}
static void copies_run(const MgCopies *l, unsigned blocks) {
  copying++;
  CHECK(l->n && blocks == l->blocks && l->first[0] == 0);
  for (uint32_t i = 0; i < l->n; i++) memcpy((void *)l->to[i], (void *)l->from[i], l->bytes[i]);
}
int mg_cuda_launch(void *fn, unsigned blocks, unsigned threads, void **arg, void *stream) {
  if (fn == &copying) return copies_run(arg[0], blocks), 0;
  if (fn == &seeding) {
    Op o = {.fn = fn};
    op_seeds(&o, arg);
    return op_do(o), 0;
  }
  op_do((Op){fn, 2, {*(double **)arg[0], *(double **)arg[1]}});
  return 0;
}
const char *mg_cuda_graphs_missing(void) { return NULL; }
bool mg_cuda_capturing(void *stream) { return capture != NULL; }
int mg_cuda_capture_begin(void *stream) { return capture = calloc(1, sizeof *capture), 0; }
int mg_cuda_capture_end(void *stream, void **graph) { return *graph = capture, capture = NULL, graphs++, 0; }
void *mg_cuda_captured(void *stream) { return &capture->op[capture->n - 1]; }
int mg_cuda_graph_make(void *graph, void **exec) { return *exec = graph, 0; }
int mg_cuda_graph_set(void *exec, void *node, void *fn, unsigned blocks, unsigned threads, void **arg) {
  Op *o = node;
  if (fn == &seeding) return op_seeds(o, arg), 0;
  o->ptr[0] = *(double **)arg[0];
  o->ptr[1] = *(double **)arg[1];
  return 0;
}
int mg_cuda_graph_launch(void *exec, void *stream) {
  for (int i = 0; i < ((typeof(capture))exec)->n; i++) op_run(&((typeof(capture))exec)->op[i]);
  return 0;
}
void mg_cuda_graph_free(void *exec) {}
void mg_cuda_graph_drop(void *graph) {
  if (graph) free(graph), graphs--;
}
uint64_t mg_cuda_settings(void) { return settings; }

static bool refuses, fails, draws;
static bool writes, twice; /* the plan writes to w; it gives z two times */
static uint32_t symbols;   /* of the plan: slot 0 is one */
static void *lent;         /* the graph of a capture that the host began */
static void *host_begin(int device, bool own, bool random) {
  if (refuses) return NULL;
  generator.within = 0;
  if (random) mg_cuda_capture_begin(NULL);
  return captures_open++, &captures_open;
}
static void *host_end(void *c) {
  if (capture) mg_cuda_capture_end(NULL, &lent);
  return lent;
}
static void host_drop(void *c) {
  captures_open--;
  mg_cuda_graph_drop(lent);
  lent = NULL;
}

static int library_call(void *self, uint32_t id, MgTensor *const *in, int nin, MgTensor **out, int nout) {
  MgDraws drawn;
  if (capture && fails) return -1;
  if (draws) mg_draws(0, 4, &drawn);
  fake_empty(1, tensor_size, tensor_stride, 7, 1, 0, &out[0]);
  op_do((Op){NULL, 3, {data_of(in[0]), data_of(in[1]), data_of(out[0])}});
  return 0;
}
static void library_free(void *self) {}

static void install(void) {
  static const MgGraphHost host = {host_begin, host_end, host_drop};
  mg_abi.aoti_torch_empty_strided = fake_empty;
  mg_abi.aoti_torch_delete_tensor_object = fake_delete;
  mg_abi.aoti_torch_new_tensor_handle = fake_handle;
  mg_abi.aoti_torch__reinterpret_tensor = fake_view;
  mg_abi.aoti_torch_create_tensor_from_blob = fake_blob;
  mg_abi.aoti_torch_clone_preserve_strides = fake_clone;
  mg_abi.aoti_torch_copy_ = fake_copy;
  mg_abi.aoti_torch_get_data_ptr = fake_ptr;
  mg_abi.aoti_torch_get_sizes = fake_sizes;
  mg_abi.aoti_torch_get_strides = fake_strides;
  mg_abi.aoti_torch_get_dim = fake_one;
  mg_abi.aoti_torch_view_dtype = fake_view_dtype;
  mg_abi.aoti_torch_get_storage_offset = fake_zero;
  mg_abi.aoti_torch_get_storage_size = fake_bytes;
  mg_abi.aoti_torch_get_dtype = fake_dtype;
  mg_abi.aoti_torch_get_device_type = fake_device;
  mg_abi.aoti_torch_get_device_index = fake_device;
  mg_abi.aoti_torch_grad_mode_is_enabled = fake_grad;
  mg_abi.aoti_torch_grad_mode_set_enabled = fake_set_grad;
  mg_abi.counts_uses = true;
  mg_plan_graph_host(&host);
}

/* ---- the plan: y = 2x (given out, read by the library); z = y + w, by the library (given
 * out); t = 2z in the arena; v = 2t
 * ---- */

#define VIEW(b, all)                                                                                         \
  {.buf = b, .dtype = 7, .ndim = 1, .elsize = 8, .whole = all, .size = 1, .stride = 2, .offset = 3}
static MgPlan *plan_new(uint32_t hidden) {
  static const int64_t slot0[] = {0, N, 1, 0};
  static const MgPlanBlock block[] = {{.offset = 0, .last = 4}};
  static const MgPlanBuf buf[] = {{0},           {PM_input, 0}, {PM_input, 1}, {PM_fresh, 0}, {PM_extern, 0},
                                  {PM_arena, 0}, {PM_fresh, 1}};
  static const uint32_t a[] = {1, 3}, b[] = {4, 5}, c[] = {5, 6};
  static const MgPlanView in[] = {VIEW(3, true), VIEW(2, true)}, res[] = {VIEW(4, true)};
  static const MgPlanGpu gpu = {.shape = {.blocks = 2, .threads = 32}};
  static void (*const fn)(void) = install; /* any address */
  const MgPlanStep step[] = {{.kind = PK_kernel, .fn = (MgRangeFn)fn, .gpu = &gpu, .buf = a, .nbuf = 2},
                             {.kind = PK_host,
                              .in = in,
                              .nin = 2,
                              .out = res,
                              .nout = 1,
                              .graph = true,
                              .random = draws,
                              .name = "library"},
                             {.kind = PK_kernel, .fn = (MgRangeFn)fn, .gpu = &gpu, .buf = b, .nbuf = 2},
                             {.kind = PK_kernel, .fn = (MgRangeFn)fn, .gpu = &gpu, .buf = c, .nbuf = 2}};
  static const MgPlanFresh fresh[] = {{.view = VIEW(3, true), .device = 1},
                                      {.view = VIEW(6, true), .device = 1}};
  static const MgPlanOut out[] = {{.kind = PO_fresh, .index = 0},
                                  {.kind = PO_view, .view = VIEW(4, true)},
                                  {.kind = PO_fresh, .index = 1},
                                  {.kind = PO_view, .view = VIEW(4, true)}};
  static const uint32_t written[] = {1};
  MgPlanSpec s = {.ninput = 2,
                  .buf = buf,
                  .nbuf = 7,
                  .step = step,
                  .nstep = 4,
                  .fresh = fresh,
                  .nfresh = 2,
                  .out = out,
                  .nout = twice ? 4 : 3,
                  .written = written,
                  .nwritten = writes,
                  .nhidden = hidden,
                  .slot0 = slot0,
                  .nslot = 4,
                  .nsym = symbols,
                  .arena = 512,
                  .block = block,
                  .nblock = 1,
                  .graphs = true,
                  .cuda = true,
                  .host = {.call = library_call, .free = library_free}};
  MgCtx ctx;
  MgPlan *p = NULL;
  mg_ctx_init(&ctx);
  CHECK(mg_plan_new(&ctx, &s, &p) == MG_OK);
  mg_ctx_free(&ctx);
  return p;
}

static MgTensor *input(double first) {
  MgTensor *t;
  fake_empty(1, tensor_size, tensor_stride, 7, 1, 0, &t);
  for (int i = 0; i < N; i++) data_of(t)[i] = first + i;
  return t;
}

typedef struct Run {
  double x, w;
  MgTensor *out[4]; /* the last one: only if `twice` */
} Run;

static void run(MgPlan *p, MgTensor *x, MgTensor *w, Run *r) {
  MgTensor *in[2] = {x, w};
  int same[4];
  char err[100];
  r->x = data_of(x)[0];
  r->w = data_of(w)[0];
  CHECK(mg_plan_run(p, in, NULL, r->out, same, err, sizeof err) == MG_OK);
}
static void run_check(const Run *r) {
  for (int i = 0; i < N; i++) {
    double y = 2 * (r->x + i), z = y + r->w + i;
    CHECK(data_of(r->out[0])[i] == y && data_of(r->out[1])[i] == z && data_of(r->out[2])[i] == 4 * z);
  }
  if (twice) CHECK(data_of(r->out[3]) == data_of(r->out[1]));
}
static void run_drop(Run *r) {
  for (int i = 0; i < 3 + twice; i++) fake_delete(r->out[i]);
}

/* Many calls, inputs that move or change, results looked at when all have run.  Gives the replays. */
static uint64_t run_many(MgPlan *p, int n, bool x_moves, bool w_moves) {
  Run *r = calloc((size_t)n, sizeof *r);
  MgGraphStats before, after;
  MgTensor *x = input(1), *w = input(100);
  mg_plan_graph_stats(&before);
  for (int i = 0; i < n; i++) {
    MgTensor *old[2] = {x, w};
    if (x_moves) x = input(i), fake_delete(old[0]);
    else data_of(x)[0] += 1, data_of(x)[0] -= 1;
    if (w_moves) w = input(100 * i), fake_delete(old[1]);
    run(p, x, w, &r[i]);
  }
  for (int i = 0; i < n; i++) {
    run_check(&r[i]);
    run_drop(&r[i]);
  }
  fake_delete(x);
  fake_delete(w);
  free(r);
  mg_plan_graph_stats(&after);
  return after.replays - before.replays;
}

static void *five_runs(void *arg) {
  CHECK(run_many(arg, 5, true, false) == 4);
  return NULL;
}

/* A thread whose first call it is makes the libraries' handles, which a capture does not allow. */
static void first_runs_of_threads(void) {
  MgPlan *p = plan_new(0);
  pthread_t thread;
  CHECK(run_many(p, 1, true, false) == 0);
  pthread_create(&thread, NULL, five_runs, p);
  pthread_join(thread, NULL);
  mg_plan_free(p);
  CHECK(alive == 0 && graphs == 0 && captures_open == 0);
}

/* What is saved for backward is lent: calls while it is held run step by step, later ones are replays again,
 * over the same memory. */
static void lent_results(void) {
  MgPlan *p = plan_new(2); /* z and v */
  MgTensor *x = input(1), *w = input(100);
  MgGraphStats before, after;
  Run a, b, kept;
  void *z = NULL, *v = NULL;
  for (int i = 0; i < 5; i++) {
    run(p, x, w, &a);
    run_check(&a);
    if (i > 1) CHECK(data_of(a.out[1]) == z && data_of(a.out[2]) == v);
    z = data_of(a.out[1]), v = data_of(a.out[2]);
    run_drop(&a);
  }
  run(p, x, w, &kept);
  mg_plan_graph_stats(&before);
  for (int i = 0; i < 5; i++) {
    run(p, x, w, &a), run(p, x, w, &b);
    CHECK(data_of(a.out[1]) != z && data_of(a.out[2]) != v && data_of(b.out[2]) != v);
    run_check(&a), run_check(&b), run_check(&kept);
    run_drop(&a), run_drop(&b);
  }
  mg_plan_graph_stats(&after);
  CHECK(after.replays == before.replays);
  run_drop(&kept);
  run(p, x, w, &a);
  mg_plan_graph_stats(&after);
  CHECK(after.replays == before.replays + 1 && data_of(a.out[2]) == v);
  run_check(&a);
  mg_plan_free(p); /* what is lent outlives the plan */
  run_check(&a);
  run_drop(&a);
  fake_delete(x), fake_delete(w);
  CHECK(alive == 0 && graphs == 0 && captures_open == 0);
}

/* Each run draws what its calls ask for, from a graph or not. */
static void random_runs(void) {
  draws = true;
  MgPlan *p = plan_new(0);
  MgTensor *x = input(1), *w = input(100);
  MgGraphStats before, after;
  Run r;
  mg_plan_graph_stats(&before);
  for (int i = 0; i < 10; i++) {
    generator.seed = 100 + i / 4;
    uint64_t offset = generator.offset;
    run(p, x, w, &r);
    run_check(&r);
    run_drop(&r);
    CHECK(generator.offset == offset + 4);
    if (i > 0) CHECK(generator.cell[0] == generator.seed && generator.cell[1] == offset);
  }
  mg_plan_graph_stats(&after);
  CHECK(after.captures == before.captures + 1 && after.replays == before.replays + 9);
  fake_delete(x), fake_delete(w);
  mg_plan_free(p);
  CHECK(alive == 0 && graphs == 0 && captures_open == 0);

  p = plan_new(0); /* the capture of a random call fails */
  fails = true;
  uint64_t offset = generator.offset;
  CHECK(run_many(p, 5, true, false) == 0 && generator.offset == offset + 20);
  fails = draws = false;
  mg_plan_free(p);
  CHECK(alive == 0 && graphs == 0 && captures_open == 0);
}

static void sized_run(MgPlan *p, MgTensor *x, MgTensor *w, int64_t size) {
  MgTensor *in[2] = {x, w};
  int same[4];
  char err[100];
  Run r = {.x = data_of(x)[0], .w = data_of(w)[0]};
  CHECK(mg_plan_run(p, in, &size, r.out, same, err, sizeof err) == MG_OK);
  run_check(&r);
  run_drop(&r);
}

/* A plan with symbols has a graph for each of a few sizes, but none for sizes that do not come again. */
static void runs_of_sizes(void) {
  symbols = 1;
  MgPlan *p = plan_new(0);
  MgTensor *x = input(1), *w = input(100);
  MgGraphStats before, after;
  mg_plan_graph_stats(&before);
  for (int turn = 0; turn < 6; turn++)
    for (int size = 1; size <= 4; size++) sized_run(p, x, w, size);
  mg_plan_graph_stats(&after);
  CHECK(after.captures == before.captures + 4 && after.replays == before.replays + 20);
  before = after;
  for (int size = 5; size <= N; size++) sized_run(p, x, w, size);
  mg_plan_graph_stats(&after);
  CHECK(after.captures == before.captures && after.replays == before.replays);
  mg_plan_free(p);
  CHECK(alive == 2 && graphs == 0 && captures_open == 0);

  p = plan_new(0); /* each size twice, then others: captures that bring one replay each come to an end */
  mg_plan_graph_stats(&before);
  for (int turn = 0; turn < 5; turn++)
    for (int size = 1; size <= 12; size++) sized_run(p, x, w, size), sized_run(p, x, w, size);
  mg_plan_graph_stats(&after);
  CHECK(after.captures > before.captures && after.captures < before.captures + 12);
  mg_plan_free(p);
  fake_delete(x), fake_delete(w);
  symbols = 0;
  CHECK(alive == 0 && graphs == 0 && captures_open == 0);
}

/* Results over one memory of a graph's are over one memory of the caller's. */
static void results_that_share(void) {
  twice = true;
  MgPlan *p = plan_new(0);
  CHECK(run_many(p, 10, true, false) == 9);
  mg_plan_free(p);
  twice = false;
  CHECK(alive == 0 && graphs == 0 && captures_open == 0);
}

/* A library's input that the plan writes to is not copied for graphs: it has to be the program's own. */
static void inputs_that_are_written(void) {
  writes = true;
  MgPlan *p = plan_new(0);
  CHECK(run_many(p, 10, true, false) == 9);
  CHECK(run_many(p, 20, true, true) < 10); /* where memory came again by chance */
  CHECK(run_many(p, 5, true, true) == 0);
  mg_plan_free(p);
  writes = false;
  CHECK(alive == 0 && graphs == 0 && captures_open == 0);
}

int main(void) {
  install();
  results_that_share();
  inputs_that_are_written();
  runs_of_sizes();
  random_runs();
  first_runs_of_threads();
  lent_results();
  MgPlan *p = plan_new(0);
  CHECK(run_many(p, 20, false, false) == 19);
  CHECK(copying);
  mg_plan_free(p);
  CHECK(alive == 0 && graphs == 0 && captures_open == 0);

  p = plan_new(0); /* x is read by kernels only: its address is patched.  w is the library's: its second
                     address is the first of a copy */
  CHECK(run_many(p, 20, true, false) == 19);
  CHECK(run_many(p, 20, true, true) >= 16);
  settings++; /* as asked for otherwise: step by step */
  CHECK(run_many(p, 3, true, false) == 0);
  settings--;
  CHECK(run_many(p, 3, true, false) == 3);
  the_stream = &settings;
  CHECK(run_many(p, 3, true, false) == 0);
  the_stream = &graphs;
  CHECK(run_many(p, 3, false, true) == 3);
  mg_plan_free(p);
  CHECK(alive == 0 && graphs == 0 && captures_open == 0);

  p = plan_new(0); /* put off, then taken up */
  refuses = true;
  CHECK(run_many(p, 10, true, false) == 0);
  refuses = false;
  CHECK(run_many(p, 10, true, false) == 10);
  mg_plan_free(p);

  p = plan_new(0); /* a call that cannot be captured: never again, and every result is right */
  fails = true;
  CHECK(run_many(p, 10, true, true) == 0);
  fails = false;
  CHECK(run_many(p, 3, true, true) == 0);
  mg_plan_free(p);
  CHECK(alive == 0 && graphs == 0 && captures_open == 0);
  return test_done();
}
