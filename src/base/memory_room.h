/* How much memory this process may still map, and what is left of the calling thread's C stack.
 * In: RLIMIT_AS and RLIMIT_DATA, and what /proc says of this process.  Out: a number of bytes.
 * Not seen: memory that the machine lacks; the kernel then ends the process, eager or not. */
#ifndef MG_MEMORY_ROOM_H
#define MG_MEMORY_ROOM_H
#include <stdbool.h>
#include <stdint.h>

/* What a new thread may take of the address space: its stack, and the heap that
 * malloc reserves for a thread. */
#define MG_ROOM_THREAD ((uint64_t)160 << 20)
/* Recording and compiling a graph, without LLVM. */
#define MG_ROOM_GRAPH ((uint64_t)48 << 20)

uint64_t mg_room(void); /* bytes; UINT64_MAX: there is no limit */
/* How many of up to n further threads have room beside `keep` bytes. */
unsigned mg_room_threads(unsigned n, uint64_t keep);
/* Less than a quarter of the thread's stack is left: a frame of the user's program must not cost C stack any
 * more.  False when the bounds of the stack are not known. */
bool mg_stack_low(void);
#endif
