/* Digests that tell whether memory still holds what it held: NH (a universal hash) over blocks, the blocks
 * combined by a polynomial modulo 2^61 - 1, twice with independent keys.  The keys are drawn at random once
 * per process, so for any two different contents the chance of equal digests is below 2^-55; it does not
 * depend on the data. Runs at the speed of memory: reading is all that costs. */
#ifndef MG_DIGEST_H
#define MG_DIGEST_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct MgDigest {
  uint64_t h[2];
} MgDigest;

enum { MG_DIGEST_CHUNK = 16 << 10 }; /* bytes of one digest in a table */

MgDigest mg_digest(const void *p, size_t n);
/* Brings the digests of p's chunks ([n / CHUNK rounded up]) up to date, on several
 * threads.  True: none changed. */
bool mg_digest_update(MgDigest *table, const void *p, size_t n);
#endif
