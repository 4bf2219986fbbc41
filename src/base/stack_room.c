/* See the header. */
#define _GNU_SOURCE /* pthread_getattr_np */
#include "base/stack_room.h"
#include <pthread.h>
#include <stdint.h>

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
