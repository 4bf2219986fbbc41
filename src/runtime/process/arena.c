/* The pool of arenas.  One idle arena is exchanged without a lock, which is all that a single thread needs;
 * further ones (more threads, plans that run inside of host calls) wait in a list. */
#define _GNU_SOURCE
#include "runtime/process/arena.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "base/ctx.h"
#include "base/fork.h"

enum { ARENA_HUGE = 2 << 20, ARENA_MIN = 64 << 10 };

static _Atomic(MgArena *) arena_idle;
static MgArena *arena_more; /* guarded by MG_LOCK_list */
static atomic_size_t arena_total;

static void arena_free(MgArena *a) {
  arena_total -= a->bytes;
  if (a->bytes >= ARENA_HUGE) munmap(a->mem, a->bytes);
  else free(a->mem);
  free(a);
}

static MgArena *arena_new(size_t bytes) {
  MgArena *a = mg_calloc(1, sizeof *a);
  if (!a) return NULL;
  size_t grain =
      bytes < ARENA_HUGE ? ARENA_MIN : ARENA_HUGE; /* rounding lets plans of similar size share one */
  a->bytes = (bytes + grain - 1) & ~(grain - 1);
  if (a->bytes < ARENA_HUGE) {
    a->mem = aligned_alloc(64, a->bytes);
  } else {
    a->mem = mmap(NULL, a->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (a->mem == MAP_FAILED) a->mem = NULL;
    else madvise(a->mem, a->bytes, MADV_HUGEPAGE); /* fewer page faults and TLB misses; a wish only */
  }
  if (!a->mem) {
    free(a);
    return NULL;
  }
  arena_total += a->bytes;
  return a;
}

/* The smallest waiting arena of that size, or NULL. */
static MgArena *arena_find(size_t bytes) {
  MgArena **best = NULL, *a = NULL;
  mg_fork_lock(MG_LOCK_list);
  for (MgArena **p = &arena_more; *p; p = &(*p)->next)
    if ((*p)->bytes >= bytes && (!best || (*p)->bytes < (*best)->bytes)) best = p;
  if (best) {
    a = *best;
    *best = a->next;
  }
  mg_fork_unlock(MG_LOCK_list);
  return a;
}

MgArena *mg_arena_take(size_t bytes) {
  MgArena *a = atomic_exchange_explicit(&arena_idle, NULL, memory_order_acquire), *b;
  if (a && a->bytes >= bytes) return a;
  if ((b = arena_find(bytes))) {
    if (a) mg_arena_give(a);
    return b;
  }
  if (a) arena_free(a); /* the larger one takes its place */
  return arena_new(bytes);
}

void mg_arena_give(MgArena *a) {
  MgArena *none = NULL;
  if (atomic_compare_exchange_strong_explicit(&arena_idle, &none, a, memory_order_release,
                                              memory_order_relaxed))
    return;
  mg_fork_lock(MG_LOCK_list);
  a->next = arena_more;
  arena_more = a;
  mg_fork_unlock(MG_LOCK_list);
}

void mg_arena_trim(void) {
  MgArena *a = atomic_exchange(&arena_idle, NULL), *next;
  if (a) arena_free(a);
  mg_fork_lock(MG_LOCK_list);
  a = arena_more;
  arena_more = NULL;
  mg_fork_unlock(MG_LOCK_list);
  for (; a; a = next) {
    next = a->next;
    arena_free(a);
  }
}

size_t mg_arena_bytes(void) { return arena_total; }
