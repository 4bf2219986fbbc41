/* The engine of mg::draws: seed and offset for kernels of ours that draw random numbers. */
#ifndef MG_GPU_DRAWS_H
#define MG_GPU_DRAWS_H
#include "runtime/engine/engine.h"

/* Each run of it stores two numbers into memory of the device: the seed, and a quarter of the offset, after
 * which n numbers a thread are drawn. */
MgRc mg_draws_engine(MgCtx *c, int device, uint64_t n, MgEngine **out);
#endif
