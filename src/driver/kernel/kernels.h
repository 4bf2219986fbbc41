/* Code for the kernels of a fused schedule: emitted, compiled and loaded, or taken from the cache. */
#ifndef MG_KERNELS_H
#define MG_KERNELS_H
#include "back/kernel/back.h"
#include "runtime/code/kernel_cache.h"
#include "runtime/process/threads.h"

/* Where the code of a kernel came from. */
typedef enum MgCodeOrigin { CO_call, CO_compiled, CO_memory, CO_disk } MgCodeOrigin;

typedef struct MgKernelCode {
  MgRangeFn fn; /* NULL: no kernel */
  const int64_t *size;
  uint32_t nsize;              /* its table of sizes; none: it reads the symbols' */
  MgKey key;                   /* in the kernel cache */
  const struct MgPlanGpu *gpu; /* on a GPU: how it is launched, but for `blocks` */
  SymRef blocks, plain_blocks;
  const char *text; /* for reports: what LLVM or the driver of a GPU reads; NULL: not kept */
  uint8_t origin;   /* for reports: MgCodeOrigin */
} MgKernelCode;

typedef struct MgKernelSet {
  MgKernelCode *of_step;
  uint32_t nstep; /* of a GPU: steps in of_step */
  bool gpu;       /* texts are PTX */
  MgKcRef *code;
  uint32_t ncode;     /* references that keep the code mapped */
  uint32_t ncompiled; /* kernels LLVM saw; the others were known already */
  double emit_ms, llvm_ms, load_ms;
} MgKernelSet;

#define MG_KERNEL_NAME "mg_kernel_%08x" /* in its object, by its number there */

/* For a GPU: the texts, before calls of libraries are prepared. */
typedef struct MgGpuTexts MgGpuTexts;
MgRc mg_gpu_texts(MgSched *s, const MgFused *f, int device, MgGpuTexts **out);
/* Marks nodes that lowering must leave to calls; *any: there were new ones. */
MgRc mg_gpu_mark(MgSched *s, bool *any);
/* Per step: may this kernel run at the same time as the kernels before it, back to
 * the last one that may not? */
MgRc mg_kernel_waves(MgSched *s, const MgFused *f, const MgMemPlan *m, bool *beside);
/* Which products may run beside others in a CUDA graph; before memory is planned. */
MgRc mg_gpu_branches(MgSched *s, MgFused *f);
MgRc mg_gpu_build(MgGpuTexts *t, unsigned nthread, MgKernelSet *out);

/* This machine's vector facts.  Does not open LLVM unless only an old one may be there. */
MgTarget mg_kernels_target(void);
/* On failure nothing is kept. */
MgRc mg_kernels_build(MgSched *s, const MgFused *f, unsigned nthread, MgKernelSet *out);
void mg_kernels_free(MgKernelSet *k); /* gives the references back */
#endif
