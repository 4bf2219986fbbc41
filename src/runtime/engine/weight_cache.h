/* A derived copy of weights (packed, scaled) that is kept from call to call and made again only when what it
 * was made of has changed.  Weights may change by any means, `p.data` included, so the source is looked at on
 * every call: by its digest (digest.h), which only reads, where making the copy writes as much as it reads,
 * into memory that other cores hold.  On CPUs with several last-level caches that is the difference between 1
 * and 10 ms for 50 MB. Sources that change often (training, several weight sets) are no longer looked at for
 * a while: the copy is then made on every call, in memory of the caller.  One
 * thread uses a MgKeep at a time. */
#ifndef MG_WEIGHT_CACHE_H
#define MG_WEIGHT_CACHE_H
#include "runtime/code/digest.h"

typedef struct MgKeepSlab MgKeepSlab;
typedef struct MgKeep {
  char *mem;              /* the copy, 64-byte aligned; NULL before the first use, or where it does not fit */
  MgKeepSlab *slab;       /* where mem lies; NULL: owned */
  size_t bytes;           /* of mem */
  MgDigest *seen, extra;  /* owned: digests of the source's chunks; digest of what else the copy depends on */
  bool valid;             /* mem was made of a source with these digests */
  bool refused;           /* over the limit, or out of memory: never kept */
  unsigned wait, backoff; /* calls without a look from now on; after the next change */
} MgKeep;

/* True: mem still holds the copy of src (n bytes, and extra).  False: it is to be made again, into mem, or
 * elsewhere when mem is NULL or *elsewhere was set. */
bool mg_keep_fresh(MgKeep *k, size_t bytes, const void *src, size_t n, const void *extra, size_t nextra,
                   bool *elsewhere);
void mg_keep_drop(MgKeep *k); /* after making the copy failed */
void mg_keep_free(MgKeep *k); /* its memory; k itself belongs to the caller */
size_t mg_keep_bytes(void);   /* held by all */

/* The same of weights that never change (`freeze`): filled by the first run, read by all. */
typedef struct MgFrozen {
  char *mem; /* 64-byte aligned; NULL: nothing is frozen */
  int ready; /* mem is filled (atomic); MG_LOCK_fill is held while filling */
} MgFrozen;
int mg_frozen_init(MgFrozen *f, uint64_t bytes); /* 0 bytes: nothing is frozen.  Nonzero: out of memory */
void mg_frozen_free(MgFrozen *f);
/* Runs fill(arg) unless it has succeeded before; its result otherwise. */
int mg_frozen_fill(MgFrozen *f, int (*fill)(void *arg), void *arg);
#endif
