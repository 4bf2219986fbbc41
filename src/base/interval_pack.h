/* Packing of blocks with lifetimes into one piece of memory. */
#ifndef MG_INTERVAL_PACK_H
#define MG_INTERVAL_PACK_H
#include <stdint.h>

enum { MG_PACK_ALIGN = 64 };

typedef struct MgPackBlock {
  uint64_t bytes;       /* wanted; 0: takes no memory */
  uint64_t offset;      /* out: a multiple of MG_PACK_ALIGN */
  uint32_t first, last; /* steps it is alive in, both included */
} MgPackBlock;

/* Places every block so that blocks alive at the same time do not overlap; returns the bytes needed in all.
 * Greedy best fit: the largest block first, each into the smallest gap that takes it.  work: room for 2 * n
 * pointers.  The same input gives the same result. */
uint64_t mg_pack(MgPackBlock *b, uint32_t n, MgPackBlock **work);
#endif
