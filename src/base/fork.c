/* See the header. */
#include "base/fork.h"
#include "base/assert.h"
#include <pthread.h>

static pthread_mutex_t fork_lock[MG_LOCK__COUNT] = {[0 ... MG_LOCK__COUNT - 1] = PTHREAD_MUTEX_INITIALIZER};
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static bool fork_is_child;
#ifndef NDEBUG
static _Thread_local unsigned fork_held; /* bit l: this thread holds lock l */
#define FORK_HELD(l, now) (fork_held = (now) ? fork_held | 1u << (l) : fork_held & ~(1u << (l)))
#else
enum { fork_held };
#define FORK_HELD(l, now) ((void)0)
#endif

static void fork_before(void) {
  MG_ASSERT(!fork_held, "fork() by a thread that holds a lock");
  for (int i = 0; i < MG_LOCK__COUNT; i++) pthread_mutex_lock(&fork_lock[i]);
}

static void fork_after(void) {
  for (int i = MG_LOCK__COUNT; i-- > 0;) pthread_mutex_unlock(&fork_lock[i]);
}

static void fork_in_child(void) {
  fork_after();
  fork_is_child = true;
}

static void fork_begin(void) { pthread_atfork(fork_before, fork_after, fork_in_child); }

void mg_fork_watch(void) { pthread_once(&fork_once, fork_begin); }

void mg_fork_lock(MgForkLock l) {
  mg_fork_watch();
  MG_ASSERT(!(fork_held >> l), "a lock is taken while one of the same place or a later one is held");
  pthread_mutex_lock(&fork_lock[l]);
  FORK_HELD(l, true);
}

void mg_fork_unlock(MgForkLock l) {
  MG_ASSERT(fork_held >> l & 1, "a lock is given back that this thread does not hold");
  FORK_HELD(l, false);
  pthread_mutex_unlock(&fork_lock[l]);
}

bool mg_fork_child(void) { return fork_is_child; }
