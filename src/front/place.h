/* Where in the program a call is, and what profilers show of a recording. */
#ifndef MG_FRONT_PLACE_H
#define MG_FRONT_PLACE_H
#include "front/rec.h"

enum { MG_PLACE_LABEL = 256 };

/* The line that is being recorded: of the innermost frame that is not torch's own, else of the innermost one.  *file: its
 * name without folders, which lives for ever; NULL: none.  0: unknown. */
uint32_t mg_place_now(const MgRec *r, const char **file);
/* "magneto::NAME (FILE:LINE)SUFFIX", the place being that of the recording's first op.  NAME is that of the frame's function, or of
 * the class of the module that torch's code calls.  Gives label, MG_PLACE_LABEL bytes. */
const char *mg_place_label(const MgRec *r, const char *suffix, char *label);
#endif
