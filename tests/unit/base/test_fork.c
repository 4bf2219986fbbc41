/* What a forked process finds of the parent's locks.  Each lock of the list is taken around fork(); the
 * kernel cache and LLVM are behind such locks; and a process forked while other threads compile compiles
 * itself. The last part is skipped (77) where no LLVM is found, and under AddressSanitizer: its allocator
 * does not open its own locks in a forked child (GCC 12), so any malloc there may wait for ever. */
#include "base/fork.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "check.h"
#include "ir/graph/op.h"
#include "runtime/code/kernel_cache.h"
#include "runtime/code/load_llvm.h"
#include "runtime/process/torch_abi.h"

enum { SECONDS = 60 };
static atomic_bool fork_stop;

/* One lock that another thread holds for a while. */
typedef struct Held {
  MgForkLock lock;
  atomic_bool taken, given;
} Held;

static void *hold(void *arg) {
  Held *h = arg;
  mg_fork_lock(h->lock);
  h->taken = true;
  usleep(20000);
  h->given = true;
  mg_fork_unlock(h->lock);
  return NULL;
}

/* True if fork() waits for the thread that holds the lock, and the child then finds the lock open. */
static bool held_around_fork(MgForkLock lock) {
  Held h = {.lock = lock};
  pthread_t thread;
  int status = -1;
  if (pthread_create(&thread, NULL, hold, &h)) return false;
  while (!h.taken) usleep(100);
  pid_t pid = fork();
  if (!pid) {
    alarm(10);
    mg_fork_lock(lock);
    mg_fork_unlock(lock);
    _exit(h.given ? 0 : 1);
  }
  bool ended = pid > 0 && waitpid(pid, &status, 0) == pid;
  pthread_join(thread, NULL);
  return ended && status == 0;
}

static void *find_kernel(void *done) {
  MgKcRef ref;
  if (mg_kcache_find(mg_kcache_key("a kernel", 8), &ref)) mg_kcache_unref(ref);
  *(atomic_bool *)done = true;
  return NULL;
}

static void *open_llvm(void *done) {
  mg_llvm_open();
  *(atomic_bool *)done = true;
  return NULL;
}

/* True if `call` waits while this thread holds the lock, and ends when it is given back. */
static bool waits_for(MgForkLock lock, void *(*call)(void *)) {
  atomic_bool done = false;
  pthread_t thread;
  mg_fork_lock(lock);
  bool ok = !pthread_create(&thread, NULL, call, &done);
  usleep(20000);
  bool waited = !done;
  mg_fork_unlock(lock);
  if (ok) pthread_join(thread, NULL);
  return ok && waited && done;
}

/* One module through LLVM, the loader and the cache, and a schema through the table.  number:
 * makes its text a new one. */
static bool compile(unsigned number) {
  char text[128], schema[128];
  const char *texts = text;
  MgObject obj;
  MgCode *code = NULL;
  MgKcRef ref = NULL;
  MgKcPlace place = {.number = 0};
  MgCtx c;
  mg_ctx_init(&c);
  snprintf(text, sizeof text, "define i64 @f(i64 %%a) {\n  %%r = add i64 %%a, %u\n  ret i64 %%r\n}\n",
           number);
  snprintf(schema, sizeof schema, "fork::op%u(Tensor a) -> Tensor", number % 1000);
  MgKey key = mg_kcache_key(text, strlen(text));
  bool ok = mg_op_from_schema(&c, schema) && mg_llvm_emit(&c, &texts, 1, 1, &obj) == MG_OK;
  if (ok) {
    ok = mg_elf_load(&c, obj.data, obj.len, mg_abi_symbol, &code) == MG_OK;
    free(obj.data);
  }
  void *fn = ok ? mg_elf_symbol(code, "f") : NULL;
  ok = fn && ((int64_t(*)(int64_t))fn)(1) == 1 + (int64_t)number &&
       mg_kcache_add(&c, code, &key, &fn, &place, 1, &ref) == MG_OK;
  if (ok) mg_kcache_unref(ref);
  mg_ctx_free(&c);
  return ok;
}

static void *compile_on(void *arg) {
  static atomic_uint number;
  while (!fork_stop)
    if (!compile(atomic_fetch_add(&number, 1))) *(bool *)arg = true;
  return NULL;
}

static void *look_on(void *arg) {
  MgKcRef ref;
  for (MgKey key = mg_kcache_key("x", 1); !fork_stop; key.lo++)
    if (mg_kcache_find(key, &ref)) mg_kcache_unref(ref);
  return NULL;
}

int main(void) {
  enum { FORKS = 100 };
  mg_fork_watch();
  for (int lock = 0; lock < MG_LOCK__COUNT; lock++) CHECK(held_around_fork((MgForkLock)lock));
  CHECK(waits_for(MG_LOCK_kernel, find_kernel));
  CHECK(waits_for(MG_LOCK_llvm, open_llvm));
#ifdef __SANITIZE_ADDRESS__
  const char *why = "AddressSanitizer's allocator cannot be used in a child forked beside threads";
#else
  const char *why = mg_llvm_open();
#endif
  pthread_t thread[2];
  bool bad = false;
  if (why) {
    printf("skipped: %s\n", why);
    return test_done() ? 1 : 77;
  }
  CHECK(compile(1));
  CHECK(!pthread_create(&thread[0], NULL, compile_on, &bad) &&
        !pthread_create(&thread[1], NULL, look_on, NULL));
  for (int i = 0; i < FORKS; i++) {
    int status = -1;
    pid_t pid = fork();
    if (!pid) {
      alarm(SECONDS);
      _exit(compile(5) && mg_fork_child() ? 0 : 1);
    }
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
    if (status) break;
  }
  fork_stop = true;
  for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
  CHECK(!bad);
  return test_done();
}
