/* Choice of the library call that runs an extern item. */
#ifndef MG_ENGINE_CHOICE_H
#define MG_ENGINE_CHOICE_H
#include "base/ctx.h"

typedef struct MgEngine MgEngine;
typedef struct MgExtern MgExtern;
typedef struct MgOptions MgOptions;
typedef struct MgSched MgSched;
typedef struct MgSized MgSized;

/* A new engine for item e, owned by the caller.  MG_UNSUP, without an error in the context, when no library
 * takes this item (kind of op, dtypes, layouts): it then runs through the host.  *sized: NULL, or, where
 * sizes are symbols, how to make it for others than the hints.
 * Pointers at run time are in the order e->in, then e->out, offsets of the views already added. */
MgRc mg_engine_make(MgSched *s, const MgExtern *e, const MgOptions *o, MgEngine **out, const MgSized **sized);
#endif
