/* Kernels of every mapping on a GPU, beside the reference evaluator.  Skipped where there is no GPU. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include "cuda/device.h"
#include "kernel_run.h"
#include "ptx_cases.h"

static int (*mem_alloc)(void **, size_t), (*mem_free)(void *), (*to_device)(void *, const void *, size_t),
    (*to_host)(void *, void *, size_t);
static int (*context_new)(void **, int), (*context_set)(void *), (*wait_all)(void);

static bool gpu_open(void) {
  void *h = mg_cuda_driver_missing() ? NULL : dlopen("libcuda.so.1", RTLD_NOW), *context = NULL;
  if (!h || !mg_cuda_capability(0)) return false;
  *(void **)&mem_alloc = dlsym(h, "cuMemAlloc_v2");
  *(void **)&mem_free = dlsym(h, "cuMemFree_v2");
  *(void **)&to_device = dlsym(h, "cuMemcpyHtoD_v2");
  *(void **)&to_host = dlsym(h, "cuMemcpyDtoH_v2");
  *(void **)&context_new = dlsym(h, "cuDevicePrimaryCtxRetain");
  *(void **)&context_set = dlsym(h, "cuCtxSetCurrent");
  *(void **)&wait_all = dlsym(h, "cuCtxSynchronize");
  return !context_new(&context, 0) && !context_set(context);
}

static size_t bytes_of(Env *e, BufRef b) {
  return (size_t)(e->elems[b] * mg_dtype_size((MgDtype)e->s.buf[b].dtype));
}

/* Runs all kernels of e in order over e->mem. */
static void gpu_run(Env *e, void *const *fn, const MgPtxPlan *p) {
  void *mem[ENV_MAX_BUF] = {NULL};
  for (BufRef b = 1; b < e->s.nbuf; b++) {
    size_t n = b < ENV_MAX_BUF && e->mem[b] ? bytes_of(e, b)
                                            : (size_t)mg_sym_eval(&e->x, e->s.buf[b].nelem, e->sym) * 8;
    CHECK(!mem_alloc(&mem[b], n + 64));
    if (e->mem[b]) CHECK(!to_device(mem[b], e->mem[b], n));
  }
  for (uint32_t i = 0; i < e->f.nstep; i++) {
    MgKernel *k = e->f.step[i].u.kernel;
    void *arg[ENV_MAX_BUF + 8];
    for (uint32_t j = 0; j < k->nbuf; j++) arg[j] = &mem[k->buf[j]];
    for (uint32_t j = 0; j < e->x.nsym; j++) arg[k->nbuf + j] = &e->sym[j];
    unsigned blocks = (unsigned)mg_sym_eval(&e->x, p[i].blocks, e->sym);
    CHECK(!mg_cuda_launch(fn[i], blocks, p[i].threads, arg, NULL));
  }
  int rc = wait_all();
  if (rc) printf("the GPU: %s\n", mg_cuda_error(rc)), exit(1);
  for (BufRef b = 1; b < e->s.nbuf; b++) {
    if (e->mem[b]) CHECK(!to_host(e->mem[b], mem[b], bytes_of(e, b)));
    mem_free(mem[b]);
  }
}

static void test_case(const struct PtxCase *t, bool vectors) {
  Env e;
  MgStrbuf text = {0};
  void *fn[64];
  MgPtxPlan p[64];
  MgCubin code;
  MgCudaModule *m = NULL;
  env_init(&e);
  t->make(&e);
  ptx_on_gpu(&e);
  CHECK(mg_fuse(&e.s, &e.f) == MG_OK && e.f.nstep <= 64);
  mg_ptx_prologue(&text);
  for (uint32_t i = 0; i < e.f.nstep; i++) {
    MgKernel *k = e.f.step[i].u.kernel;
    snprintf(k->name, sizeof k->name, "k%u", i);
    CHECK(mg_ptx_plan(&e.s, k, vectors, &p[i]) == MG_OK && mg_ptx_emit(&e.s, k, &p[i], &text) == MG_OK);
  }
  const char *all = mg_sb_text(&text);
  bool ok = mg_cuda_link(&e.c, 0, &all, 1, 1, &code) == MG_OK && mg_cuda_load(&e.c, 0, &code, &m) == MG_OK;
  if (!ok) printf("%s: %s\n", t->name, e.c.msg);
  CHECK(ok);
  for (uint32_t i = 0; ok && i < e.f.nstep; i++)
    CHECK((fn[i] = mg_cuda_function(m, e.f.step[i].u.kernel->name)) != NULL);
  if (ok) {
    gpu_run(&e, fn, p);
    env_reference(&e);
    for (BufRef b = 1; b < ENV_MAX_BUF && b < e.s.nbuf; b++)
      if (e.mem[b] && (e.s.buf[b].kind == MB_output || e.s.buf[b].kind == MB_input))
        env_compare(&e, b, t->tolerance, t->name);
  }
  mg_cuda_unload(m);
  free(code.data);
  mg_sb_free(&text);
  env_free(&e);
}

/* Copies of many lengths, from and to any place, leave what is beside them alone. */
static void test_copies(void) {
  enum { N = 3 * MG_COPIES / 4, ROOM = 1 << 17 };
  uint8_t *host = malloc(2 * N * ROOM);
  void *mem = NULL;
  MgCopies l = {0};
  CHECK(mg_cuda_copies_ready(0) && !mem_alloc(&mem, 2 * N * ROOM));
  for (size_t i = 0; i < 2 * N * ROOM; i++) host[i] = (uint8_t)(i * 2654435761u >> 13);
  CHECK(!to_device(mem, host, 2 * N * ROOM));
  for (size_t i = 0; i < N; i++) {
    size_t bytes = i < 40 ? i : i % 3 ? i * 1000 + i % 7 : 1 << (i % 17), shift = i % 5 == 4 ? i % 16 : 0;
    uint8_t *from = host + 2 * i * ROOM, *to = from + ROOM + (i % 4 == 3 ? 4 : 0);
    mg_cuda_copies_add(&l, (uint8_t *)mem + (to - host), (uint8_t *)mem + (from + shift - host), bytes);
    memcpy(to, from + shift, bytes);
  }
  CHECK(!mg_cuda_copies_launch(0, &l, NULL) && !wait_all() && !l.n);
  uint8_t *got = malloc(2 * N * ROOM);
  CHECK(!to_host(got, mem, 2 * N * ROOM) && !memcmp(got, host, 2 * N * ROOM));
  mem_free(mem);
  free(got);
  free(host);
}

int main(void) {
  if (!gpu_open()) {
    puts("skipped: no GPU");
    return 77;
  }
  for (size_t i = 0; i < sizeof ptx_cases / sizeof *ptx_cases; i++)
    for (int vectors = 0; vectors < 2; vectors++) test_case(&ptx_cases[i], vectors);
  test_copies();
  return test_done();
}
