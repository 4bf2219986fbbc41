/* State of the whole process that recordings change while they go on: torch's flag of compiling
 * and the garbage collector. */
#ifndef MG_PROCESS_STATE_H
#define MG_PROCESS_STATE_H
#include <stdbool.h>

/* A recording of this thread begins, and ends.  compiling: what torch.compiler.is_compiling() answers
 * meanwhile. Several threads may record at once: the last one to end restores; a forked process has the
 * recordings of its one thread. */
int mg_procstate_begin(bool compiling);
void mg_procstate_end(void);
#endif
