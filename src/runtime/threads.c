/* Splits kernels over torch's OpenMP team.  A parallel region costs about a microsecond, a barrier a third of it, so
 * consecutive kernels that are worth splitting share one region. */
#define _GNU_SOURCE /* dladdr */
#include "runtime/threads.h"
#include "runtime/torch_abi.h"
#include <dlfcn.h>
#include <pthread.h>

/* libgomp's team does not survive fork(): a parallel region in the child waits for threads that are not there. */
static bool threads_forked;
static pthread_once_t threads_once = PTHREAD_ONCE_INIT;
static void threads_in_child(void) { threads_forked = true; }
static void threads_watch_fork(void) { pthread_atfork(NULL, NULL, threads_in_child); }

typedef struct Team {
  const MgRange *r;
  uint32_t n;
} Team;

static inline bool range_splits(const MgRange *r) { return r->n > 1 && r->n / 2 >= r->grain; }

/* The part of one thread: equal shares, or everything on thread 0 when the range is short. */
static void range_part(const MgRange *r, int64_t thread, int64_t team) {
  int64_t parts = r->grain > 0 ? r->n / r->grain : r->n;
  if (parts > team) parts = team;
  if (parts < 1) parts = 1;
  if (thread >= parts) return;
  int64_t base = r->n / parts, extra = r->n % parts;
  int64_t begin = thread * base + (thread < extra ? thread : extra);
  int64_t end = begin + base + (thread < extra);
  if (begin < end) r->fn(r->buf, r->size, begin, end);
}

static void team_body(void *arg) {
  const Team *t = arg;
  int64_t thread = mg_abi.omp_get_thread_num(), team = mg_abi.omp_get_num_threads();
  for (uint32_t i = 0; i < t->n; i++) {
    if (i) mg_abi.gomp_barrier();
    range_part(&t->r[i], thread, team);
  }
}

static inline void range_serial(const MgRange *r) {
  if (r->n > 0) r->fn(r->buf, r->size, 0, r->n);
}

void mg_threads_run(const MgRange *r, uint32_t n, unsigned nthread) {
  uint32_t first = 0, last = n;
  while (first < last && !range_splits(&r[first])) range_serial(&r[first++]);
  if (first == last) return;
  while (!range_splits(&r[last - 1])) last--;
  if (!nthread) nthread = mg_abi_threads();
  pthread_once(&threads_once, threads_watch_fork);
  if (nthread > 1 && !threads_forked && mg_abi.gomp_parallel && !mg_abi.omp_in_parallel()) {
    Team t = {r + first, last - first};
    mg_abi.gomp_parallel(team_body, &t, nthread, 0);
  } else {
    for (uint32_t i = first; i < last; i++) range_serial(&r[i]);
  }
  for (uint32_t i = last; i < n; i++) range_serial(&r[i]);
}

void mg_threads_each(void (*fn)(void *), void *arg) {
  unsigned nthread = mg_abi_threads();
  int most = mg_abi.omp_get_max_threads ? mg_abi.omp_get_max_threads() : 1;
  if (most > 0 && (unsigned)most > nthread) nthread = (unsigned)most;
  pthread_once(&threads_once, threads_watch_fork);
  if (nthread > 1 && !threads_forked && mg_abi.gomp_parallel && !mg_abi.omp_in_parallel())
    mg_abi.gomp_parallel(fn, arg, nthread, 0);
  else fn(arg);
}

bool mg_threads_shared(const void *symbol) {
  Dl_info info;
  if (!mg_abi.gomp_parallel || !dladdr(symbol, &info) || !info.dli_fname) return false;
  void *h = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  bool same = h && dlsym(h, "GOMP_parallel") == (void *)mg_abi.gomp_parallel;
  if (h) dlclose(h);
  return same;
}
