/* Is there memory enough to record and compile?  Asked before a frame is recorded (base/memory_room.h). */
#ifndef MG_HEADROOM_H
#define MG_HEADROOM_H

typedef struct MgConfig MgConfig;

/* 0: there is.  1: the frame has to run eagerly, which is counted and, once a process, warned of.  -1: an
 * exception is set, since the user wants no frame to run eagerly (fullgraph, strict mode), or
 * since the warning is an error. */
int mg_headroom_short(const MgConfig *cfg);
#endif
