/* Library calls inside a plan (matmul, convolution, attention ...): oneDNN primitives, ATen's out variants.
 * While compiling, driver/ makes one MgEngine per extern item; the plan runs it through this interface and
 * owns it. An engine is immutable after it was made: several threads run it at once.  What must change from
 * call to call (memory objects that hold pointers) lives in a state, of which the plan makes one per arena.
 * Results are written into memory that the plan provides; an engine allocates nothing while it runs. */
#ifndef MG_ENGINE_H
#define MG_ENGINE_H
#include "base/ctx.h"
#include "runtime/process/torch_abi.h"

typedef struct MgEngine MgEngine;

typedef struct MgEngineArgs {
  void *const *ptr; /* first element of every tensor: inputs, then outputs, in the order of the extern item;
                       NULL where an optional tensor is absent */
  MgTensor *const *tensor; /* the same as tensor handles; NULL unless the engine set `tensors` */
  void *scratch;           /* `scratch` bytes of the arena, 64-byte aligned, contents undefined */
  void *state;             /* what state_new gave for this arena; NULL without state_new */
  const char *err;         /* out: static text when run failed */
} MgEngineArgs;

typedef struct MgEngineOps {
  const char *name;                               /* for dumps: "onednn.matmul" */
  int (*run)(const MgEngine *e, MgEngineArgs *a); /* 0, or -1 with a->err */
  void *(*state_new)(const MgEngine *e);          /* may be NULL; a NULL result is out of memory */
  void (*state_free)(const MgEngine *e, void *state);
  void (*free)(MgEngine *e);
} MgEngineOps;

struct MgEngine { /* first member of every engine's own struct */
  const MgEngineOps *ops;
  uint64_t scratch; /* bytes wanted in the arena while it runs */
  bool tensors;     /* wants handles in MgEngineArgs.tensor */
  bool single;      /* runs on the calling thread alone, since its work is small */
};
#endif
