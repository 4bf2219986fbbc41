/* What a process that fork() makes finds of the parent's threads: nothing but the locks that they held.  Those that are held
 * while the GIL is free are taken around fork(), so that a child finds them open; other locks belong to the thread with the GIL. */
#ifndef MG_RUNTIME_FORK_H
#define MG_RUNTIME_FORK_H
#include <stdbool.h>

typedef enum MgForkLock {
  MG_LOCK_fill, /* engines prepare something in their first run; may take the other one */
  MG_LOCK_list, /* lists of idle memory */
  MG_LOCK__COUNT
} MgForkLock;

void mg_fork_watch(void); /* from here on */
void mg_fork_lock(MgForkLock l);
void mg_fork_unlock(MgForkLock l);
bool mg_fork_child(void); /* was this process forked from one that was watched? */
#endif
