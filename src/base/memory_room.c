/* See the header. */
#define _GNU_SOURCE /* pthread_getattr_np */
#include "base/memory_room.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

/* Pages of this process: all of its address space, and private writable memory.
 * false: /proc does not say. */
static bool room_used(uint64_t *all, uint64_t *data) {
  char text[256], *p = text;
  uint64_t field[7] = {0}; /* size resident shared text lib data dirty */
  int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
  if (fd >= 0) close(fd);
  if (n <= 0) return false;
  text[n] = 0;
  for (int i = 0; i < 7; i++) {
    char *end;
    field[i] = strtoull(p, &end, 10);
    if (end == p) return false;
    p = end;
  }
  *all = field[0];
  *data = field[5];
  return true;
}

static uint64_t room_left(rlim_t limit, uint64_t used) {
  if (limit == RLIM_INFINITY) return UINT64_MAX;
  return limit > used ? limit - used : 0;
}

uint64_t mg_room(void) {
  struct rlimit as, data;
  uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), npage, ndata;
  if (getrlimit(RLIMIT_AS, &as)) as.rlim_cur = RLIM_INFINITY;
  if (getrlimit(RLIMIT_DATA, &data)) data.rlim_cur = RLIM_INFINITY;
  if (as.rlim_cur == RLIM_INFINITY && data.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
  if (!room_used(&npage, &ndata)) return UINT64_MAX;
  uint64_t a = room_left(as.rlim_cur, npage * page), d = room_left(data.rlim_cur, ndata * page);
  return a < d ? a : d;
}

unsigned mg_room_threads(unsigned n, uint64_t keep) {
  uint64_t room = n ? mg_room() : 0;
  if (room <= keep) return 0;
  uint64_t most = (room - keep) / MG_ROOM_THREAD;
  return most < n ? (unsigned)most : n;
}

/* ---- the C stack ---- */

enum { STACK_SHARE = 4 };
static _Thread_local uintptr_t stack_mark; /* below it the stack is low; 0: not asked yet */

/* Where the thread's stack begins to be low; 1, which no address is below, when that is not known. */
static uintptr_t stack_find_mark(void) {
  pthread_attr_t attr;
  void *end = NULL;
  size_t size = 0;
  if (pthread_getattr_np(pthread_self(), &attr)) return 1;
  int rc = pthread_attr_getstack(&attr, &end, &size);
  pthread_attr_destroy(&attr);
  return rc ? 1 : (uintptr_t)end + size / STACK_SHARE;
}

bool mg_stack_low(void) {
  if (!stack_mark) stack_mark = stack_find_mark();
  return (uintptr_t)__builtin_frame_address(0) < stack_mark;
}
