/* The driver API.  See the header.
 * Machine code comes from cuLink*, which, unlike cuModuleLoadData of PTX, runs on several threads at once. */
#define _GNU_SOURCE
#include "cuda/device.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CUDA_THREADS = 16, CUDA_LOG = 4096 };
/* Of the driver's header. */
enum {
  JIT_ERROR_LOG = 5,
  JIT_ERROR_LOG_BYTES = 6,
  JIT_INPUT_PTX = 1,
  ATTRIBUTE_MAJOR = 75,
  ATTRIBUTE_MINOR = 76
};

#define CUDA_FUNCS(F)                                                                                        \
  F(cuInit, (unsigned))                                                                                      \
  F(cuDeviceGet, (int *, int))                                                                               \
  F(cuDeviceGetAttribute, (int *, int, int))                                                                 \
  F(cuDevicePrimaryCtxRetain, (void **, int))                                                                \
  F(cuCtxGetCurrent, (void **))                                                                              \
  F(cuCtxSetCurrent, (void *))                                                                               \
  F(cuLinkCreate_v2, (unsigned, int *, void **, void **))                                                    \
  F(cuLinkAddData_v2, (void *, int, void *, size_t, const char *, unsigned, int *, void **))                 \
  F(cuLinkComplete, (void *, void **, size_t *))                                                             \
  F(cuLinkDestroy, (void *))                                                                                 \
  F(cuModuleLoadData, (void **, const void *))                                                               \
  F(cuModuleGetFunction, (void **, void *, const char *))                                                    \
  F(cuModuleUnload, (void *))                                                                                \
  F(cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,   \
                     void **, void **))                                                                      \
  F(cuGetErrorString, (int, const char **))

static struct {
#define F(name, args) int(*name) args;
  CUDA_FUNCS(F)
#undef F
  int (*stream)(int32_t, void **);    /* aoti_torch_get_current_cuda_stream */
  int (*guard_new)(int32_t, void **); /* aoti_torch_create_cuda_guard */
  int (*guard_delete)(void *);
  int (*device)(int32_t *); /* aoti_torch_get_current_device_index */
} cu;

static pthread_mutex_t cuda_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int cuda_state; /* 0: not looked at; 1: usable; -1: never */
static const char *cuda_why;
static _Atomic(void *) cuda_context[MG_CUDA_DEVICES];

static const char *cuda_find(void) {
  void *torch = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
  void *h = dlopen("libcuda.so.1", RTLD_NOW);
  if (!h) return "there is no libcuda.so.1";
#define F(name, args)                                                                                        \
  if (!(*(void **)&cu.name = dlsym(h, #name))) return "the driver is too old: it lacks " #name;
  CUDA_FUNCS(F)
#undef F
  if (torch) {
    *(void **)&cu.stream = dlsym(torch, "aoti_torch_get_current_cuda_stream");
    *(void **)&cu.guard_new = dlsym(torch, "aoti_torch_create_cuda_guard");
    *(void **)&cu.guard_delete = dlsym(torch, "aoti_torch_delete_cuda_guard");
    *(void **)&cu.device = dlsym(torch, "aoti_torch_get_current_device_index");
    if (!cu.device) *(void **)&cu.device = dlsym(RTLD_DEFAULT, "aoti_torch_get_current_device_index");
  }
  return cu.cuInit(0) ? "the driver does not start" : NULL;
}

const char *mg_cuda_missing(void) {
  const char *why = mg_cuda_driver_missing();
  if (why) return why;
  return cu.stream && cu.device && cu.guard_new && cu.guard_delete
             ? NULL
             : "torch's CUDA library is not loaded, or lacks its stream or device guard";
}

const char *mg_cuda_driver_missing(void) {
  if (cuda_state == 1) return NULL;
  pthread_mutex_lock(&cuda_lock);
  if (!cuda_state) {
    cuda_why = cuda_find();
    cuda_state = cuda_why ? -1 : 1;
  }
  pthread_mutex_unlock(&cuda_lock);
  return cuda_state == 1 ? NULL : cuda_why;
}

const char *mg_cuda_error(int rc) {
  const char *text = NULL;
  if (cuda_state == 1) cu.cuGetErrorString(rc, &text);
  return text ? text : "unknown error";
}

int mg_cuda_capability(int device) {
  int d, major = 0, minor = 0;
  if (mg_cuda_driver_missing() || device < 0 || device >= MG_CUDA_DEVICES || cu.cuDeviceGet(&d, device))
    return 0;
  if (cu.cuDeviceGetAttribute(&major, ATTRIBUTE_MAJOR, d) ||
      cu.cuDeviceGetAttribute(&minor, ATTRIBUTE_MINOR, d))
    return 0;
  return 10 * major + minor;
}

int mg_cuda_attribute(int device, MgCudaAttribute a) {
  int d, value = 0;
  if (mg_cuda_driver_missing() || cu.cuDeviceGet(&d, device)) return 0;
  return cu.cuDeviceGetAttribute(&value, (int)a, d) ? 0 : value;
}

/* The primary context, kept for ever as PyTorch does. */
static void *cuda_primary(int device) {
  int d;
  if (mg_cuda_driver_missing() || device < 0 || device >= MG_CUDA_DEVICES) return NULL;
  void *c = cuda_context[device];
  if (c) return c;
  pthread_mutex_lock(&cuda_lock);
  if (!(c = cuda_context[device]) && !cu.cuDeviceGet(&d, device) && !cu.cuDevicePrimaryCtxRetain(&c, d))
    cuda_context[device] = c;
  pthread_mutex_unlock(&cuda_lock);
  return cuda_context[device];
}

/* ---- compiling ---- */

typedef struct CudaJob { /* shared by the threads of one mg_cuda_link */
  void *context;
  const char *const *text;
  MgCubin *out;
  uint32_t n;
  atomic_uint next;
  atomic_bool failed;
  pthread_mutex_t lock; /* guards log */
  char log[CUDA_LOG];
} CudaJob;

static bool cuda_link_one(const char *text, MgCubin *out, char *log) {
  void *link = NULL, *data = NULL;
  size_t len = 0;
  int option[2] = {JIT_ERROR_LOG, JIT_ERROR_LOG_BYTES};
  void *value[2] = {log, (void *)(uintptr_t)(CUDA_LOG - 1)};
  log[0] = 0;
  int rc = cu.cuLinkCreate_v2(2, option, value, &link);
  if (!rc)
    rc = cu.cuLinkAddData_v2(link, JIT_INPUT_PTX, (void *)text, strlen(text) + 1, "magneto", 0, NULL, NULL);
  if (!rc) rc = cu.cuLinkComplete(link, &data, &len);
  if (!rc && (out->data = mg_malloc(len))) memcpy(out->data, data, out->len = len);
  if (rc && !log[0]) snprintf(log, CUDA_LOG, "%s", mg_cuda_error(rc));
  if (!rc && !out->data) snprintf(log, CUDA_LOG, "out of memory");
  if (link) cu.cuLinkDestroy(link);
  return out->data != NULL;
}

static void *cuda_worker(void *arg) {
  CudaJob *j = arg;
  char log[CUDA_LOG];
  void *before = NULL;
  cu.cuCtxGetCurrent(&before);
  if (before != j->context && cu.cuCtxSetCurrent(j->context)) j->failed = true;
  for (uint32_t i; !j->failed && (i = atomic_fetch_add(&j->next, 1)) < j->n;) {
    if (cuda_link_one(j->text[i], &j->out[i], log)) continue;
    pthread_mutex_lock(&j->lock);
    if (!j->failed) memcpy(j->log, log, sizeof log);
    pthread_mutex_unlock(&j->lock);
    j->failed = true;
  }
  if (before != j->context) cu.cuCtxSetCurrent(before);
  return NULL;
}

MgRc mg_cuda_link(MgCtx *c, int device, const char *const *text, uint32_t n, unsigned nthread, MgCubin *out) {
  pthread_t thread[CUDA_THREADS];
  unsigned started = 0;
  CudaJob *j = mg_calloc(1, sizeof *j);
  if (!j) return mg_fail(c, MG_NOMEM, "out of memory");
  *j = (CudaJob){
      .context = cuda_primary(device), .text = text, .out = out, .n = n, .lock = PTHREAD_MUTEX_INITIALIZER};
  memset(out, 0, sizeof *out * n);
  if (nthread > n) nthread = n;
  if (nthread > CUDA_THREADS) nthread = CUDA_THREADS;
  if (!j->context) j->failed = true;
  while (started + 1 < nthread && !pthread_create(&thread[started], NULL, cuda_worker, j)) started++;
  if (j->context) cuda_worker(j);
  for (unsigned i = 0; i < started; i++) pthread_join(thread[i], NULL);
  MgRc rc = MG_OK;
  if (j->failed) {
    for (uint32_t i = 0; i < n; i++) free(out[i].data), out[i] = (MgCubin){0};
    rc = mg_fail(c, MG_UNSUP, "the driver refuses a kernel: %.300s", j->context ? j->log : "no context");
  }
  free(j);
  return rc;
}

/* ---- modules ---- */

struct MgCudaModule {
  void *context, *module;
  size_t bytes;
};

/* Makes the module's context current; gives the one before. */
static bool cuda_switch(void *context, void **before) {
  *before = NULL;
  cu.cuCtxGetCurrent(before);
  return *before == context || !cu.cuCtxSetCurrent(context);
}
static void cuda_switch_back(void *context, void *before) {
  if (before != context) cu.cuCtxSetCurrent(before);
}

MgRc mg_cuda_load(MgCtx *c, int device, const MgCubin *code, MgCudaModule **out) {
  void *context = cuda_primary(device), *before;
  MgCudaModule *m = context ? mg_calloc(1, sizeof *m) : NULL;
  *out = NULL;
  if (!m) return mg_fail(c, MG_NOMEM, "no memory for a module");
  m->context = context;
  m->bytes = code->len;
  int rc = cuda_switch(context, &before) ? cu.cuModuleLoadData(&m->module, code->data) : -1;
  cuda_switch_back(context, before);
  if (rc) {
    free(m);
    return mg_fail(c, MG_UNSUP, "the driver does not load a module: %s", mg_cuda_error(rc));
  }
  *out = m;
  return MG_OK;
}

void *mg_cuda_function(const MgCudaModule *m, const char *name) {
  void *fn = NULL, *before;
  if (!cuda_switch(m->context, &before) || cu.cuModuleGetFunction(&fn, m->module, name)) fn = NULL;
  cuda_switch_back(m->context, before);
  return fn;
}

size_t mg_cuda_module_bytes(const MgCudaModule *m) { return m->bytes; }

void mg_cuda_unload(MgCudaModule *m) {
  void *before;
  if (!m) return;
  if (cuda_switch(m->context, &before))
    cu.cuModuleUnload(m->module); /* an error at exit: the driver has gone already */
  cuda_switch_back(m->context, before);
  free(m);
}

/* ---- kernels that are compiled late ---- */

struct MgCudaLazy {
  int device;
  pthread_mutex_t lock;
  bool tried;
  MgCudaModule *module;
  _Atomic(void *) fn;
  char *text, name[64];
};

MgCudaLazy *mg_cuda_lazy_new(int device, const char *text, const char *name) {
  MgCudaLazy *l = mg_calloc(1, sizeof *l);
  if (!l) return NULL;
  if (!(l->text = mg_malloc(strlen(text) + 1))) {
    free(l);
    return NULL;
  }
  strcpy(l->text, text);
  snprintf(l->name, sizeof l->name, "%s", name);
  l->device = device;
  pthread_mutex_init(&l->lock, NULL);
  return l;
}

void *mg_cuda_lazy_get(MgCudaLazy *l) {
  if (l->fn) return l->fn;
  pthread_mutex_lock(&l->lock);
  if (!l->tried) {
    MgCtx c;
    MgCubin code = {0};
    const char *text = l->text;
    mg_ctx_init(&c);
    if (mg_cuda_link(&c, l->device, &text, 1, 1, &code) == MG_OK &&
        mg_cuda_load(&c, l->device, &code, &l->module) == MG_OK)
      l->fn = mg_cuda_function(l->module, l->name);
    free(code.data);
    mg_ctx_free(&c);
    l->tried = true;
  }
  pthread_mutex_unlock(&l->lock);
  return l->fn;
}

void mg_cuda_lazy_free(MgCudaLazy *l) {
  if (!l) return;
  mg_cuda_unload(l->module);
  pthread_mutex_destroy(&l->lock);
  free(l->text);
  free(l);
}

void *mg_cuda_kept(const MgCudaKept *k, int device, uint32_t form) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  if (device < 0 || device >= MG_CUDA_DEVICES) return NULL;
  pthread_mutex_lock(&lock);
  MgCudaLazy **l = &k->kernel[(uint32_t)device * k->nform + form];
  if (!*l) {
    MgStrbuf text = {0};
    k->write(&text, form);
    if (mg_sb_ok(&text)) *l = mg_cuda_lazy_new(device, mg_sb_text(&text), k->name);
    mg_sb_free(&text);
  }
  MgCudaLazy *made = *l;
  pthread_mutex_unlock(&lock);
  return made ? mg_cuda_lazy_get(made) : NULL;
}

/* ---- running ---- */

bool mg_cuda_enter(int device, MgCudaScope *out) {
  int32_t now = -1;
  void *context = cuda_primary(device);
  *out = (MgCudaScope){0};
  if (!context) return false;
  if (cu.device(&now) || (now != device && cu.guard_new(device, &out->guard))) return false;
  void *before = NULL;
  cu.cuCtxGetCurrent(&before);
  if (before == context) return true;
  out->context = before;
  return !cu.cuCtxSetCurrent(context);
}

void mg_cuda_leave(MgCudaScope *s) {
  if (s->guard) cu.guard_delete(s->guard); /* and its context */
  else if (s->context) cu.cuCtxSetCurrent(s->context);
}

void *mg_cuda_stream(int device) {
  void *s = NULL;
  cu.stream(device, &s);
  return s;
}

int mg_cuda_launch(void *fn, unsigned blocks, unsigned threads, void **arg, void *stream) {
  return cu.cuLaunchKernel(fn, blocks, 1, 1, threads, 1, 1, 0, stream, arg, NULL);
}
