/* Fused kernels to PTX, the assembly language of NVIDIA's driver.
 * Two steps: mg_ptx_plan decides how a kernel is laid over the GPU (mapping, block, vector width, pieces of a
 * row), and mg_ptx_emit prints what it says.  Neither needs a GPU or a toolkit. */
#ifndef MG_PTX_PTX_H
#define MG_PTX_PTX_H
#include "back/kernel/loop_nest.h"

typedef enum MgPtxMap {
  MG_PTX_points, /* pointwise: a thread has `vec` neighbouring points */
  MG_PTX_tiles, /* pointwise, with loads along another index: a block turns 32 x 32 points in shared memory */
  MG_PTX_rows   /* `team` threads share a row (an outer point); team 1: a thread has a row, or `vec`
                   neighbouring rows */
} MgPtxMap;

typedef struct MgPtxPlan {
  uint8_t map;      /* MgPtxMap */
  uint8_t nouter;   /* leading ranges that blocks and threads are dealt out over */
  int8_t lane;      /* index along which a thread has `vec` neighbours; -1: none */
  uint8_t vec;      /* 1, 2, 4 or 8 */
  int8_t cross;     /* tiles: the index that loads run along; stores run along the last one */
  bool narrow;      /* every index fits 32 bits */
  bool vectors;     /* memory is accessed in vectors, so arguments have to be aligned to 16 bytes */
  uint16_t threads; /* of a block */
  uint16_t team;    /* threads of a row, a power of two */
  bool across;      /* neighbouring threads have neighbouring rows, not neighbouring points of one */
  uint8_t pieces;   /* most pieces of a row that are written out one after the other; beyond that a loop */
  SymRef points;    /* outer points, groups of `vec` counted as one where the lane is an outer index */
  SymRef blocks;    /* of the launch */
  uint32_t
      each; /* nests that have nothing to do with each other: so many blocks are each one's own; else 0 */
} MgPtxPlan;

/* Can a kernel do this nest?  False: scans, scatters, argmax, functions without a device form. */
bool mg_ptx_takes(MgSched *s, const MgLoop *l);
/* vectors: may it rely on arguments that are aligned to 16 bytes? */
MgRc mg_ptx_plan(MgSched *s, const MgKernel *k, bool vectors, MgPtxPlan *out);
/* Appends .entry name(a 64-bit pointer per kernel buffer in argument order, the value of every symbol).
 * Where a buffer lives on the CPU, its parameter is its first element.  A data check that fails traps.
 * MG_UNSUP: scans, scatters, argmax, functions without a device form, row buffers beyond shared memory. */
MgRc mg_ptx_emit(MgSched *s, const MgKernel *k, const MgPtxPlan *p, MgStrbuf *out);
void mg_ptx_prologue(MgStrbuf *out); /* version and target; once per module */
#endif
