/* How much of the calling thread's C stack is left. */
#ifndef MG_STACK_ROOM_H
#define MG_STACK_ROOM_H
#include <stdbool.h>

/* Less than a quarter of the thread's stack is left: a frame of the user's program must not cost C stack any
 * more.  False when the bounds of the stack are not known. */
bool mg_stack_low(void);
#endif
