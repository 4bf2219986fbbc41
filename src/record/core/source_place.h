#include "entry/launch/trace.h"
/* Where in the program a call is, and what profilers show of a recording. */
#ifndef MG_SOURCE_PLACE_H
#define MG_SOURCE_PLACE_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

typedef struct MgRec MgRec;

/* The line that is being recorded: of the innermost frame that is not torch's own, else of the innermost one.
 * *file: its name without folders, which lives for ever; NULL: none.  0: unknown. */
uint32_t mg_place_at(const MgRec *r, const char **file);
PyCodeObject *mg_place_code(const MgRec *r); /* of that frame; borrowed, NULL: there is none */
/* The same for a node that is made now.  In reports, one of backward has the line of its operation. */
uint32_t mg_place_now(const MgRec *r, const char **file);
/* The whole path of a file that mg_place_now gave; NULL: unknown. */
const char *mg_place_path(const char *file);
/* Name of the function that is recorded, or of the class of the module that torch's code calls;
 * of the frame's or r's life. */
const char *mg_place_name(const MgRec *r);
/* What compiling and running r's graph need of it, as it is now; gives t. */
const MgTrace *mg_rec_trace(const MgRec *r, MgTrace *t);
#endif
