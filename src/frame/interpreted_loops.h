/* Loops of a frame that run Python code around a break, with other values in each turn (decoding texts out of
 * lists of numbers). Segments without an op hold nothing worth finding again: where a second one does not
 * fit, the turn is executed as it is, up to the first instruction that sees a tensor, and the segment that
 * is compiled begins there. */
#ifndef MG_INTERPRETED_LOOPS_H
#define MG_INTERPRETED_LOOPS_H
#include "record/core/loop.h"

typedef struct MgBucket MgBucket;
typedef struct MgDrive MgDrive;

/* No entry fits at this place: is it one to walk from?  Noted in b. */
bool mg_walk_begins(const MgDrive *d, MgBucket *b, int unit);
/* The recompile limit is reached here: is it one to walk from, because no op would be lost?  Noted in b. */
bool mg_walk_at_limit(const MgDrive *d, MgBucket *b);
/* Executes from the frame's position on. */
MgLoopEnd mg_walk(MgDrive *d, MgLoop *l);
#endif
