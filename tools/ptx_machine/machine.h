/* A machine for the PTX that ptx/ptx.h prints: kernels run on the CPU, and are watched while they do.
 * In: PTX text, a launch, and the memory that it may touch.  Out: that memory as a GPU would leave it, or
 * what a GPU would not tell: reads of registers and shared memory that nobody set, accesses outside of a
 * buffer or across its alignment, threads that read what others write without a barrier, barriers that not
 * all reach. Only the instructions that our kernels use; approximate ones compute exactly. */
#ifndef MG_PTX_MACHINE_H
#define MG_PTX_MACHINE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct PtxProgram PtxProgram;

typedef struct PtxMemory { /* device addresses are those of the host */
  const void *base;
  size_t bytes;
} PtxMemory;

typedef struct PtxLaunch {
  unsigned blocks, threads;
  const uint64_t *arg; /* the parameters, 64 bits each */
  const PtxMemory *memory;
  int nmemory;
} PtxLaunch;

typedef enum PtxEnd {
  PTX_ran,
  PTX_trapped, /* a data check of the program */
  PTX_wrong    /* err says what */
} PtxEnd;

enum { PTX_ERR = 320 };

/* One .entry of the text.  NULL: err says which line it does not know. */
PtxProgram *ptx_parse(const char *text, const char *entry, char *err);
void ptx_free(PtxProgram *p);
PtxEnd ptx_run(const PtxProgram *p, const PtxLaunch *l, char *err);
#endif
