/* Parallel ranges over the threads of torch's own OpenMP runtime: one team, no second thread pool. */
#ifndef MG_THREADS_H
#define MG_THREADS_H
#include <stdbool.h>
#include <stdint.h>

typedef void (*MgRangeFn)(void *const *buf, const int64_t *size, int64_t begin, int64_t end);

typedef struct MgRange { /* fn over [0, n), any split is right */
  MgRangeFn fn;
  void *const *buf; /* arguments of fn */
  const int64_t *size;
  int64_t n;
  int64_t grain; /* least points worth a thread */
  int64_t work;  /* of a point, roughly in scalar operations; only compared between ranges of a wave */
  bool beside;   /* may run at the same time as the ranges before it: they are one wave */
} MgRange;

/* Runs the ranges in order, each wave of them finished before the next starts.  nthread 0: as many as torch
 * uses. Short ones run on the calling thread; long ones share one parallel region. */
void mg_threads_run(const MgRange *r, uint32_t n, unsigned nthread);
/* fn(arg) once on every thread that a parallel region of the calling thread may have used. */
void mg_threads_each(void (*fn)(void *), void *arg);
/* Can the calling thread have a team of so many? */
bool mg_threads_have_room(unsigned nthread);
/* Does a library that exports `symbol` run its parallel regions on the same threads? */
bool mg_threads_shared(const void *symbol);
/* fn(arg) where a parallel region of any size can be had: in a forked process on a thread of its own. */
void mg_threads_apart(void *(*fn)(void *), void *arg);
/* In a forked process: libraries that a plan calls get teams of one thread, too.  Gives what
 * mg_threads_together puts back. */
int mg_threads_alone(void);
/* Teams that libraries make on the calling thread have one thread until
 * mg_threads_together gets what this gives. */
int mg_threads_single(void);
void mg_threads_together(int before);
#endif
