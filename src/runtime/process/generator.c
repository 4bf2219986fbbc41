/* See the header.  at::CUDAGeneratorImpl::philox_cuda_state gives an at::PhiloxCudaState, whose fields have
 * the same places in torch 2.11 to 2.15 but for the last one, which is not read. */
#define _GNU_SOURCE
#include "runtime/process/generator.h"
#include <dlfcn.h>
#include <pthread.h>
#include "runtime/process/cxxcatch.h"

typedef struct PhiloxState {
  uint64_t seed, offset;
  uint32_t within;
  uint32_t rest[5];
} PhiloxState;

static void *const *(*draws_generator)(
    int8_t device);       /* a reference to an at::Generator, which is a pointer */
static void *draws_state; /* PhiloxState f(at::CUDAGeneratorImpl *, uint64_t) */
static const char *draws_lacks;
static pthread_once_t draws_once = PTHREAD_ONCE_INIT;

static void *draws_find_one(void *lib, const char *name) {
  void *f = lib ? dlsym(lib, name) : NULL;
  if (!f) draws_lacks = name;
  return f;
}

static void draws_find(void) {
  void *torch = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
  *(void **)&draws_generator = draws_find_one(torch, "_ZN2at4cuda6detail23getDefaultCUDAGeneratorEa");
  draws_state = draws_find_one(torch, "_ZN2at17CUDAGeneratorImpl17philox_cuda_stateEm");
}

const char *mg_draws_missing(void) {
  pthread_once(&draws_once, draws_find);
  return draws_lacks;
}

bool mg_draws(int device, uint64_t n, MgDraws *out) {
  PhiloxState s = {0};
  static const double none[8];
  if (mg_draws_missing()) return false;
  uint64_t reg[6] = {(uint64_t)(uintptr_t)&s, (uint64_t)(uintptr_t)*draws_generator((int8_t)device), n};
  if (!mg_cxx_enter(draws_state, reg, none, NULL, 0)) return false;
  *out = (MgDraws){s.seed, s.offset, s.within};
  return true;
}
