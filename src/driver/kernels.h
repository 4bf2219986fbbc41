/* Code for the kernels of a fused schedule: emitted, compiled and loaded, or taken from the cache. */
#ifndef MG_DRIVER_KERNELS_H
#define MG_DRIVER_KERNELS_H
#include "back/back.h"
#include "runtime/kcache.h"
#include "runtime/threads.h"

typedef struct MgKernelCode {
  MgRangeFn fn;                /* NULL: no kernel */
  const int64_t *size; uint32_t nsize; /* its table of sizes; none: it reads the symbols' */
  MgKey key;                   /* in the kernel cache */
} MgKernelCode;

typedef struct MgKernelSet {
  MgKernelCode *of_step;
  MgKcRef *code; uint32_t ncode; /* references that keep the code mapped */
  uint32_t ncompiled;          /* kernels LLVM saw; the others were known already */
  double emit_ms, llvm_ms, load_ms;
} MgKernelSet;

#define MG_KERNEL_NAME "mg_kernel_%08x" /* in its object, by its number there */

/* This machine's vector facts.  Does not open LLVM unless only an old one may be there. */
MgTarget mg_kernels_target(void);
/* On failure nothing is kept. */
MgRc mg_kernels_build(MgSched *s, const MgFused *f, unsigned nthread, MgKernelSet *out);
void mg_kernels_free(MgKernelSet *k); /* gives the references back */
#endif
