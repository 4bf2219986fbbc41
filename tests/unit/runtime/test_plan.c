/* Plans over a fake torch: pointers reach the kernels, results are owned by the caller, tensors of extern
 * calls are given back, errors leave nothing behind, and many threads may run one plan at once. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "check.h"
#include "runtime/process/arena.h"
#include "runtime/plan/plan_spec.h"

/* ---- the fake: an MgTensor is a counted view of counted memory ---- */

typedef struct Mem {
  atomic_int refs;
  double data[];
} Mem;
struct AtenTensorOpaque {
  Mem *mem; /* NULL: over memory of somebody else */
  double *data;
  int64_t ndim, size[4], stride[4];
};
static atomic_int tensors_alive, mem_alive;

static MgTensor *tensor_new(Mem *mem, double *data, int64_t ndim, const int64_t *size,
                            const int64_t *stride) {
  MgTensor *t = calloc(1, sizeof *t);
  *t = (MgTensor){.mem = mem, .data = data, .ndim = ndim};
  memcpy(t->size, size, sizeof *size * (size_t)ndim);
  memcpy(t->stride, stride, sizeof *stride * (size_t)ndim);
  if (mem) mem->refs++;
  tensors_alive++;
  return t;
}
static int32_t fake_empty(int64_t n, const int64_t *size, const int64_t *stride, int32_t dt, int32_t d,
                          int32_t i, MgTensor **out) {
  int64_t extent = 1;
  for (int k = 0; k < n; k++) extent += (size[k] - 1) * stride[k];
  Mem *m = calloc(1, sizeof *m + sizeof(double) * (size_t)extent);
  mem_alive++;
  *out = tensor_new(m, m->data, n, size, stride);
  return 0;
}
static int32_t fake_delete(MgTensor *t) {
  if (t->mem && --t->mem->refs == 0) free(t->mem), mem_alive--;
  free(t);
  tensors_alive--;
  return 0;
}
static int32_t fake_handle(MgTensor *t, MgTensor **out) {
  return *out = tensor_new(t->mem, t->data, t->ndim, t->size, t->stride), 0;
}
static int32_t fake_view(MgTensor *t, int64_t n, const int64_t *size, const int64_t *stride, int64_t off,
                         MgTensor **out) {
  return *out = tensor_new(t->mem, t->data + off, n, size, stride), 0;
}
static int32_t fake_blob(void *p, int64_t n, const int64_t *size, const int64_t *stride, int64_t off,
                         int32_t a, int32_t b, int32_t c, MgTensor **out) {
  return *out = tensor_new(NULL, (double *)p + off, n, size, stride), 0;
}
static int32_t fake_clone(MgTensor *t, MgTensor **out) {
  fake_empty(t->ndim, t->size, t->stride, 7, 0, 0, out);
  memcpy((*out)->data, t->data, sizeof(double) * (size_t)t->size[0]);
  return 0;
}
static int32_t fake_copy(MgTensor *to, MgTensor *from, int32_t nb) {
  for (int64_t i = 0; i < to->size[0]; i++) to->data[i * to->stride[0]] = from->data[i * from->stride[0]];
  return 0;
}
static int32_t fake_ptr(MgTensor *t, void **out) { return *out = t->data, 0; }
static int32_t fake_sizes(MgTensor *t, int64_t **out) { return *out = t->size, 0; }
static int32_t fake_strides(MgTensor *t, int64_t **out) { return *out = t->stride, 0; }
static int32_t fake_dim(MgTensor *t, int64_t *out) { return *out = t->ndim, 0; }
static int32_t fake_dtype(MgTensor *t, int32_t *out) { return *out = 7, 0; }
static bool fake_grad(void) { return false; }
static void fake_set_grad(bool on) {}

static void fake_install(void) {
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
  mg_abi.aoti_torch_get_dim = fake_dim;
  mg_abi.aoti_torch_get_dtype = fake_dtype;
  mg_abi.aoti_torch_grad_mode_is_enabled = fake_grad;
  mg_abi.aoti_torch_grad_mode_set_enabled = fake_set_grad;
}

static MgTensor *input(int64_t n, double first) {
  MgTensor *t;
  int64_t one = 1;
  fake_empty(1, &n, &one, 7, 0, 0, &t);
  for (int64_t i = 0; i < n; i++) t->data[i] = first + (double)i;
  return t;
}

/* ---- kernels and host ---- */

static void k_add(void *const *buf, const int64_t *size, int64_t b, int64_t e) {
  for (; b < e; b++) ((double *)buf[2])[b] = ((double *)buf[0])[b] + ((double *)buf[1])[b];
}
static void k_twice(void *const *buf, const int64_t *size, int64_t b, int64_t e) {
  for (; b < e; b++) ((double *)buf[1])[b] = 2 * ((double *)buf[0])[b];
}
static void k_check(void *const *buf, const int64_t *size, int64_t b, int64_t e) {
  for (; b < e; b++)
    if (((double *)buf[0])[b] < 0) ((int32_t *)buf[1])[1] = 1;
}

enum { HOST_negate, HOST_same, HOST_strided, HOST_fails };
static int host_call(void *self, uint32_t id, MgTensor *const *in, int nin, MgTensor **out, int nout) {
  int64_t n = in[0]->size[0], stride = id == HOST_strided ? 3 : 1;
  if (id == HOST_fails) return -1;
  if (id == HOST_same) return fake_handle(in[0], &out[0]);
  fake_empty(1, &n, &stride, 7, 0, 0, &out[0]);
  for (int64_t i = 0; i < n; i++) out[0]->data[i * stride] = -in[0]->data[i * in[0]->stride[0]];
  return 0;
}
static int host_freed;
static void host_free(void *self) { host_freed++; }

/* slots: 0 length, 1 the constant 1 (stride), 2 zero (offset) */
static const int64_t slot0[3] = {8, 1, 0};
static const MgPlanBlock blocks[2] = {{.offset = 0}, {.offset = 64}};
#define VIEW(b, w)                                                                                           \
  {.buf = b, .dtype = 7, .ndim = 1, .elsize = 8, .whole = w, .size = 0, .stride = 1, .offset = 2}

static MgPlan *plan(const MgPlanSpec *s) {
  MgCtx c;
  MgPlan *p = NULL;
  mg_ctx_init(&c);
  CHECK(mg_plan_new(&c, s, &p) == MG_OK);
  mg_ctx_free(&c);
  return p;
}

/* out = (a + b) * 2 through a temporary; also gives a back as itself. */
static MgPlan *plan_simple(void) {
  static const MgPlanBuf buf[] = {{0}, {PM_input, 0}, {PM_input, 1}, {PM_arena, 0}, {PM_fresh, 0}};
  static const uint32_t args0[] = {1, 2, 3}, args1[] = {3, 4};
  static const MgPlanStep step[] = {
      {.kind = PK_kernel, .fn = k_add, .buf = args0, .nbuf = 3, .outer = 0, .grain = 100},
      {.kind = PK_kernel, .fn = k_twice, .buf = args1, .nbuf = 2, .outer = 0, .grain = 100}};
  static const MgPlanFresh fresh[] = {{.view = VIEW(4, true)}};
  static const MgPlanOut out[] = {{.kind = PO_fresh, .index = 0},
                                  {.kind = PO_same_input, .index = 0},
                                  {.kind = PO_same_output, .index = 0}};
  return plan(&(MgPlanSpec){.ninput = 2,
                            .buf = buf,
                            .nbuf = 5,
                            .step = step,
                            .nstep = 2,
                            .fresh = fresh,
                            .nfresh = 1,
                            .out = out,
                            .nout = 3,
                            .slot0 = slot0,
                            .nslot = 3,
                            .arena = 128,
                            .block = blocks,
                            .nblock = 2,
                            .threads = 1});
}

static void test_simple(void) {
  MgPlan *p = plan_simple();
  MgTensor *in[2] = {input(8, 1), input(8, 10)}, *out[3];
  int same[3];
  char err[100];
  for (int round = 0; round < 3; round++) {
    CHECK(mg_plan_run(p, in, NULL, out, same, err, sizeof err) == MG_OK);
    CHECK(same[0] == -1 && same[1] == 0 && same[2] == -1 && !out[1] && out[0]->data == out[2]->data);
    for (int i = 0; i < 8; i++) CHECK(out[0]->data[i] == 2 * (in[0]->data[i] + in[1]->data[i]));
    fake_delete(out[0]);
    fake_delete(out[2]);
    fake_delete(in[round & 1]); /* another tensor at another address */
    in[round & 1] = input(8, 100 * round);
  }
  fake_delete(in[0]);
  fake_delete(in[1]);
  mg_plan_free(p);
}

/* t = kernel(a); h = host(t); out = kernel(h); also h itself. */
static MgPlan *plan_host_call(uint32_t id, bool check) {
  static const MgPlanBuf buf[] = {{0},           {PM_input, 0}, {PM_arena, 0}, {PM_extern, 0},
                                  {PM_fresh, 0}, {PM_arena, 1}};
  static const uint32_t args0[] = {1, 2}, args1[] = {3, 4}, args2[] = {1, 5};
  static const MgPlanView in[] = {VIEW(2, false)}, res[] = {VIEW(3, true)};
  MgPlanStep step[] = {
      {.kind = PK_kernel, .fn = k_twice, .buf = args0, .nbuf = 2, .outer = 0, .grain = 100},
      {.kind = PK_host, .in = in, .nin = 1, .out = res, .nout = 1, .host_id = id, .name = "host"},
      {.kind = PK_kernel, .fn = k_twice, .buf = args1, .nbuf = 2, .outer = 0, .grain = 100},
      {.kind = PK_kernel, .fn = k_check, .buf = args2, .nbuf = 2, .outer = 0, .grain = 100}};
  static const MgPlanFresh fresh[] = {{.view = VIEW(4, true)}};
  static const MgPlanOut out[] = {{.kind = PO_fresh, .index = 0}, {.kind = PO_view, .view = VIEW(3, true)}};
  static const MgPlanCheck checks[] = {{"ValueError", "never"}, {"IndexError", "index out of range"}};
  return plan(&(MgPlanSpec){.ninput = 1,
                            .buf = buf,
                            .nbuf = 6,
                            .step = step,
                            .nstep = check ? 4 : 3,
                            .fresh = fresh,
                            .nfresh = 1,
                            .out = out,
                            .nout = 2,
                            .slot0 = slot0,
                            .nslot = 3,
                            .arena = 128,
                            .block = blocks,
                            .nblock = 2,
                            .threads = 1,
                            .check = checks,
                            .ncheck = check ? 2 : 0,
                            .err = 1,
                            .host = {.call = host_call, .free = host_free}});
}

static void test_host(void) {
  MgTensor *in[1] = {input(8, 1)}, *out[2];
  int same[2];
  char err[100];
  for (uint32_t id = HOST_negate; id <= HOST_fails; id++) {
    MgPlan *p = plan_host_call(id, false);
    MgPlanInfo info;
    mg_plan_info(p, &info);
    CHECK(info.nhost == 1 && info.nkernel == 2);
    for (int round = 0; round < 2; round++) {
      MgRc rc = mg_plan_run(p, in, NULL, out, same, err, sizeof err);
      CHECK(rc == (id == HOST_fails ? MG_PYERR : MG_OK));
      CHECK((rc == MG_OK) == (out[0] != NULL) && (rc == MG_OK) == (out[1] != NULL));
      if (rc != MG_OK) continue;
      double sign = id == HOST_same ? 1 : -1;
      for (int i = 0; i < 8; i++)
        CHECK(out[1]->data[i] == sign * 2 * in[0]->data[i] && out[0]->data[i] == sign * 4 * in[0]->data[i]);
      CHECK(out[1]->mem != NULL && out[1]->stride[0] == 1); /* owns its memory, in the recorded layout */
      fake_delete(out[0]);
      fake_delete(out[1]);
    }
    mg_plan_free(p);
  }
  CHECK(host_freed == 4);
  MgPlan *p = plan_host_call(HOST_negate, true);
  CHECK(mg_plan_run(p, in, NULL, out, same, err, sizeof err) == MG_OK);
  fake_delete(out[0]);
  fake_delete(out[1]);
  in[0]->data[3] = -1;
  CHECK(mg_plan_run(p, in, NULL, out, same, err, sizeof err) == MG_RAISE &&
        !strcmp(err, "IndexError: index out of range"));
  CHECK(!out[0] && !out[1]);
  mg_plan_free(p);
  fake_delete(in[0]);
}

/* Sizes that are read from the input: slot 0 is the symbol, slot 3 = 2 * s0 the length of the output. */
static void test_symbols(void) {
  static const MgPlanBuf buf[] = {{0}, {PM_input, 0}, {PM_fresh, 0}};
  static const uint32_t args[] = {1, 2};
  static const MgPlanStep step[] = {
      {.kind = PK_kernel, .fn = k_twice, .buf = args, .nbuf = 2, .outer = 0, .grain = 100}};
  static const MgPlanFresh fresh[] = {{.view = {.buf = 2,
                                                .dtype = 7,
                                                .ndim = 1,
                                                .elsize = 8,
                                                .whole = true,
                                                .size = 3,
                                                .stride = 1,
                                                .offset = 2}}};
  static const MgPlanOut out[] = {{.kind = PO_fresh, .index = 0}};
  static const MgSymSource sym[] = {{0, 0}};
  static const int64_t start[] = {0, 1, 0, 0, 2};
  static const MgSizeOp op[] = {{SZ_mul, 3, 0, 4}};
  MgPlan *p = plan(&(MgPlanSpec){.ninput = 1,
                                 .buf = buf,
                                 .nbuf = 3,
                                 .step = step,
                                 .nstep = 1,
                                 .fresh = fresh,
                                 .nfresh = 1,
                                 .out = out,
                                 .nout = 1,
                                 .slot0 = start,
                                 .nslot = 5,
                                 .sizeop = op,
                                 .nsizeop = 1,
                                 .sym = sym,
                                 .nsym = 1,
                                 .threads = 1});
  for (int64_t n = 3; n < 40; n += 6) {
    MgTensor *in[1] = {input(n, 5)}, *res[1];
    int same[1];
    char err[100];
    CHECK(mg_plan_run(p, in, NULL, res, same, err, sizeof err) == MG_OK);
    CHECK(res[0]->size[0] == 2 * n && res[0]->data[n - 1] == 2 * in[0]->data[n - 1]);
    fake_delete(in[0]);
    fake_delete(res[0]);
  }
  mg_plan_free(p);
}

static void *thread_main(void *arg) {
  MgPlan *p = arg;
  long bad = 0;
  for (int round = 0; round < 300; round++) {
    MgTensor *in[2] = {input(8, (double)(uintptr_t)&bad), input(8, round)}, *out[3];
    int same[3];
    char err[100];
    bad += mg_plan_run(p, in, NULL, out, same, err, sizeof err) != MG_OK;
    for (int i = 0; i < 8; i++) bad += out[0]->data[i] != 2 * (in[0]->data[i] + in[1]->data[i]);
    fake_delete(out[0]);
    fake_delete(out[2]);
    fake_delete(in[0]);
    fake_delete(in[1]);
  }
  return (void *)bad;
}

static void test_threads(void) {
  MgPlan *p = plan_simple();
  pthread_t t[32];
  void *bad;
  for (int i = 0; i < 32; i++) CHECK(!pthread_create(&t[i], NULL, thread_main, p));
  for (int i = 0; i < 32; i++) CHECK(!pthread_join(t[i], &bad) && !bad);
  mg_plan_trim(p);
  mg_plan_free(p);
}

int main(void) {
  fake_install();
  test_simple();
  test_host();
  test_symbols();
  test_threads();
  mg_arena_trim();
  CHECK(mg_arena_bytes() == 0);
  CHECK(tensors_alive == 0 && mem_alive == 0);
  return test_done();
}
