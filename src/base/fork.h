/* What a process that fork() makes finds of the parent's threads: nothing but the locks that they held.
 * Every lock that outlives a call is one of these.  All are taken around fork(), so that a child finds them
 * open. A thread that holds one may take a later one of the list, never an earlier one,
 * and never waits for the GIL. */
#ifndef MG_FORK_H
#define MG_FORK_H
#include <stdbool.h>

typedef enum MgForkLock {
  MG_LOCK_fill,   /* engines prepare something in their first run */
  MG_LOCK_onednn, /* oneDNN is being loaded */
  MG_LOCK_llvm,   /* LLVM is being loaded, or runs */
  MG_LOCK_kernel, /* the kernel cache */
  MG_LOCK_cache,  /* the folder of the on-disk cache */
  MG_LOCK_list,   /* lists of idle memory */
  MG_LOCK_op,     /* the table of schemas */
  MG_LOCK_perf,   /* the map of kernels for perf */
  MG_LOCK_notice, /* the table of notices */
  MG_LOCK__COUNT
} MgForkLock;

void mg_fork_watch(void); /* from here on */
void mg_fork_lock(MgForkLock l);
void mg_fork_unlock(MgForkLock l);
bool mg_fork_child(void); /* was this process forked from one that was watched? */
#endif
