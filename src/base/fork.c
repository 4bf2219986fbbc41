/* See the header. */
#include "base/fork.h"
#include <pthread.h>

static pthread_mutex_t fork_lock[MG_LOCK__COUNT] = {[0 ... MG_LOCK__COUNT - 1] = PTHREAD_MUTEX_INITIALIZER};
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static bool fork_is_child;

static void fork_before(void) {
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
  pthread_mutex_lock(&fork_lock[l]);
}

void mg_fork_unlock(MgForkLock l) { pthread_mutex_unlock(&fork_lock[l]); }

bool mg_fork_child(void) { return fork_is_child; }
