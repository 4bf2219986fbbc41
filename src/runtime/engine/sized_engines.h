/* Engines of a step whose sizes are known at run time only: each run of a plan makes one for the sizes that
 * come and keeps the last few. */
#ifndef MG_SIZED_ENGINES_H
#define MG_SIZED_ENGINES_H
#include "runtime/engine/onednn.h"

/* How the engine is made: from a description that begins with ntensor MgTensorDesc, whose sizes
 * and strides are filled in. */
typedef struct MgSized {
  MgRc (*make)(MgCtx *c, const void *desc, MgEngine **out);
  void *desc;
  size_t bytes;
  uint32_t ntensor;
} MgSized;

enum { MG_SIZED_KEPT = 8 };
typedef struct MgSizedEngine {
  void *desc;
  MgEngine *e;
  void *state;
} MgSizedEngine;
typedef struct MgSizedRun {          /* what one run has of it; zero at first */
  MgSizedEngine made[MG_SIZED_KEPT]; /* the last used one first */
  uint32_t n;
} MgSizedRun;

/* The engine for desc (malloc'ed, taken over in every case) becomes made[0].  MG_UNSUP: the library
 * does not take these sizes. */
MgRc mg_sized_use(const MgSized *s, MgSizedRun *r, void *desc);
void mg_sized_free(MgSizedRun *r);
#endif
