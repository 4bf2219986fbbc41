/* The fastest of several engines for one library call, found by timing them. */
#ifndef MG_ENGINE_TIMING_H
#define MG_ENGINE_TIMING_H
#include "base/ctx.h"
#include "runtime/engine/onednn.h"

/* A new engine for a description; MG_UNSUP without an error in the context: not this one. */
typedef MgRc (*MgEngineMake)(MgCtx *c, const void *desc, MgEngine **out);

typedef struct MgTiming {    /* one library call */
  const void *desc;          /* for the functions below */
  const char *op;            /* what it is, with all that `t` does not say: "matmul relu 0 0" */
  const MgTensorDesc *t;     /* the tensors, in the order of the pointers */
  uint32_t ntensor;          /* at most MG_TIMING_TENSORS */
  uint32_t weight;           /* which of them is read from memory when it is large */
  double work;               /* multiplications */
  bool search;               /* time calls of any size, and all of `other` */
  MgEngineMake rule;         /* the engine that fixed rules choose */
  const MgEngineMake *other; /* what may be faster */
  uint32_t nother, nquick;   /* of these the first nquick are timed without `search`, too */
} MgTiming;
enum { MG_TIMING_TENSORS = 8 };

/* The fastest engine.  The choice is kept in this process and in the cache folder, so each call of a kind is
 * timed once.  The engine of the rules is made without timing where nothing can be kept, for calls that are
 * worth several threads (all but with `search`), in forked processes, and with MAGNETO_AUTOTUNE=0. */
MgRc mg_timing_engine(MgCtx *c, const MgTiming *t, MgEngine **out);
#endif
