/* Splits kernels over torch's OpenMP team.  A parallel region costs about a microsecond, a barrier a third of
 * it, so consecutive kernels that are worth splitting share one region. */
#define _GNU_SOURCE /* dladdr */
#include "runtime/process/threads.h"
#include "base/fork.h"
#include "base/memory_room.h"
#include "runtime/process/torch_abi.h"
#include <dlfcn.h>
#include <pthread.h>
#include "tuning.h"

#define THREADS_STACK ((uint64_t)16 << 20) /* of one thread of a team, with what it needs beside */

/* libgomp's team does not survive fork(): a parallel region of the thread that forked waits in the child for
 * threads that are not there.  Kernels run on one thread in a child; so do ATen's.  Primitives of oneDNN
 * insist on the team that they were made for: they run on a new thread, which gets a team of its own. */
int mg_threads_alone(void) { return mg_fork_child() ? mg_threads_single() : 1; }

int mg_threads_single(void) {
  int n = mg_abi.omp_get_max_threads && mg_abi.omp_set_num_threads ? mg_abi.omp_get_max_threads() : 1;
  if (n > 1) mg_abi.omp_set_num_threads(1);
  return n;
}

void mg_threads_apart(void *(*fn)(void *), void *arg) {
  pthread_t t;
  if (mg_fork_child() && !pthread_create(&t, NULL, fn, arg)) pthread_join(t, NULL);
  else fn(arg);
}

void mg_threads_together(int before) {
  if (before > 1) mg_abi.omp_set_num_threads(before);
}

/* libgomp ends the process when it cannot start a thread.  It keeps the threads of a
 * team for the next region. */
bool mg_threads_have_room(unsigned nthread) {
  static _Thread_local unsigned team; /* the largest that this thread has had */
  if (nthread <= team) return true;
  if (mg_room() / THREADS_STACK < nthread) return false;
  team = nthread;
  return true;
}

typedef struct Team {
  const MgRange *r;
  uint32_t n;
} Team;

enum { LINE_POINTS = 16 }; /* points that a cut leaves together */

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

/* ---- waves: ranges that may run at the same time, seen as one line of work that is
 * cut into equal parts ---- */

static uint32_t wave_end(const MgRange *r, uint32_t first, uint32_t n) {
  uint32_t end = first + 1;
  while (end < n && r[end].beside) end++;
  return end;
}

static int64_t wave_work(const MgRange *r, uint32_t n) {
  int64_t sum = 0;
  for (uint32_t i = 0; i < n; i++) sum += r[i].n * r[i].work;
  return sum;
}

static bool wave_splits(const MgRange *r, uint32_t n) {
  return n == 1 ? range_splits(r) : wave_work(r, n) >= 2 * MG_TUNE_WAVE_WORK;
}

static inline void range_serial(const MgRange *r) {
  if (r->n > 0) r->fn(r->buf, r->size, 0, r->n);
}

/* The point of r at `work` from its start; every thread asks for the same cuts. */
static int64_t range_cut(const MgRange *r, int64_t work) {
  int64_t all = r->n * r->work;
  if (work <= 0) return 0;
  if (work >= all) return r->n;
  if (!range_splits(r)) return 2 * work >= all ? r->n : 0;
  int64_t at = (int64_t)((double)r->n * (double)work / (double)all);
  return r->n >= 4 * LINE_POINTS ? at / LINE_POINTS * LINE_POINTS : at;
}

static void wave_part(const MgRange *r, uint32_t n, int64_t thread, int64_t team) {
  if (n == 1) {
    range_part(r, thread, team);
    return;
  }
  int64_t all = wave_work(r, n), parts = all / MG_TUNE_WAVE_WORK, at = 0;
  if (parts > team) parts = team;
  if (parts < 1) parts = 1;
  if (thread >= parts) return;
  int64_t from = (int64_t)((double)all * (double)thread / (double)parts);
  int64_t to = thread + 1 == parts ? all : (int64_t)((double)all * (double)(thread + 1) / (double)parts);
  for (uint32_t i = 0; i < n; at += r[i].n * r[i].work, i++) {
    int64_t begin = range_cut(&r[i], from - at), end = range_cut(&r[i], to - at);
    if (begin < end) r[i].fn(r[i].buf, r[i].size, begin, end);
  }
}

static void team_body(void *arg) {
  const Team *t = arg;
  int64_t thread = mg_abi.omp_get_thread_num(), team = mg_abi.omp_get_num_threads();
  for (uint32_t i = 0, end; i < t->n; i = end) {
    end = wave_end(t->r, i, t->n);
    if (i) mg_abi.gomp_barrier();
    wave_part(&t->r[i], end - i, thread, team);
  }
}

void mg_threads_run(const MgRange *r, uint32_t n, unsigned nthread) {
  uint32_t first = n, last = n; /* the waves from the first to the last one that splits share a region */
  for (uint32_t i = 0, end; i < n; i = end) {
    end = wave_end(r, i, n);
    if (!wave_splits(r + i, end - i)) continue;
    if (first == n) first = i;
    last = end;
  }
  for (uint32_t i = 0; i < first; i++) range_serial(&r[i]);
  if (first == n) return;
  if (!nthread) nthread = mg_abi_threads();
  mg_fork_watch();
  if (nthread > 1 && !mg_fork_child() && mg_abi.gomp_parallel && !mg_abi.omp_in_parallel() &&
      mg_threads_have_room(nthread)) {
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
  mg_fork_watch();
  if (nthread > 1 && !mg_fork_child() && mg_abi.gomp_parallel && !mg_abi.omp_in_parallel() &&
      mg_threads_have_room(nthread))
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
