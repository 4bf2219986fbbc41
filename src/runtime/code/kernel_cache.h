/* Compiled kernels of this process: equal kernel text is compiled and loaded once.
 * A kernel is known by a 128-bit hash of its text with the name left out.  Code objects hold several kernels;
 * they are kept while a plan refers to them, and the most recent ones after that.  Thread-safe. */
#ifndef MG_KERNEL_CACHE_H
#define MG_KERNEL_CACHE_H
#include "base/ctx.h"
#include "runtime/code/load_elf.h"

typedef struct MgKey {
  uint64_t lo, hi;
} MgKey;
static inline bool mg_key_same(MgKey a, MgKey b) { return a.lo == b.lo && a.hi == b.hi; }
typedef struct MgKcCode *MgKcRef; /* a counted reference to a loaded object */
typedef struct MgKcPlace {        /* where a kernel is on disk */
  MgKey object;                   /* of the file; 0: none */
  uint32_t number;                /* the kernel's in it */
} MgKcPlace;

MgKey mg_kcache_key(const char *text, size_t len);
/* The kernel and a new reference to its code, or NULL. */
void *mg_kcache_find(MgKey key, MgKcRef *ref);
/* Hands over a loaded object with its kernels' keys, addresses and places.  One
 * new reference goes to *ref. */
MgRc mg_kcache_add(MgCtx *c, MgCode *code, const MgKey *key, void *const *fn, const MgKcPlace *place,
                   uint32_t n, MgKcRef *ref);
bool mg_kcache_place(MgKey key, MgKcPlace *out); /* of a kernel that is loaded */
void mg_kcache_unref(MgKcRef ref);
void mg_kcache_clear(void); /* forgets every kernel no plan refers to */
typedef struct MgKcInfo {
  uint32_t nkernel, ncode;
  uint64_t bytes, hits, misses;
} MgKcInfo;
void mg_kcache_info(MgKcInfo *out);
#endif
