/* Packing of blocks with lifetimes into one piece of memory. */
#ifndef MG_INTERVAL_PACK_H
#define MG_INTERVAL_PACK_H
#include <stddef.h>
#include <stdint.h>

enum { MG_PACK_ALIGN = 64 };

typedef struct MgPackBlock {
  uint64_t bytes;       /* that it has; 0: takes no memory */
  uint64_t wanted;      /* of mg_pack_again */
  uint64_t offset;      /* out: a multiple of MG_PACK_ALIGN */
  uint32_t first, last; /* steps it is alive in, both included */
} MgPackBlock;

/* Places every block so that blocks alive at the same time do not overlap; returns the bytes needed in all.
 * Greedy best fit: the largest block first, each into the smallest gap that takes it.  work: mg_pack_room(n)
 * bytes, aligned for pointers.  The same input gives the same result. */
uint64_t mg_pack(MgPackBlock *b, uint32_t n, void *work);
size_t mg_pack_room(uint32_t n);

/* Places every block for its `wanted` bytes.  Packing many takes longer than a small plan runs, so places are
 * kept while the blocks fit and want most of that memory.  A block that has outgrown its place gets an
 * eighth more, but at most a page: it may grow in each call, as when decoding with a cache.
 * *total: of the last time, 0 at first; out: the bytes needed in all. */
void mg_pack_again(MgPackBlock *b, uint32_t n, void *work, uint64_t *total);
#endif
