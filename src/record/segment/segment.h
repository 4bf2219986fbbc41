/* One segment: from the unchanged frame to an entry. */
#ifndef MG_SEGMENT_H
#define MG_SEGMENT_H
#include "record/segment/segment_at.h"

typedef struct MgSlots MgSlots;

/* Compiles the segment that starts at the linked frame's position; it and those above are unchanged
 * afterwards. 0: the site has a new entry or became plain.  1: leave the frame to CPython; with d->stopped
 * after the handlers of signals.
 * -1: exception for the user. */
int mg_compile_segment(MgSegmentAt *d, const MgSlots *slots);
#endif
