/* See the header. */
#define _GNU_SOURCE
#include "runtime/engine/weight_cache.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "base/ctx.h"
#include "base/fork.h"
#include "tuning.h"

enum { KEEP_HUGE = 2 << 20 };

static atomic_size_t keep_total;

static size_t keep_round(size_t bytes) {
  size_t grain = bytes < KEEP_HUGE ? 64 : KEEP_HUGE;
  return (bytes + grain - 1) & ~(grain - 1);
}

/* Copies that are smaller than a huge page share huge pages, once there are enough of them: a model's weights
 * are many small ones, and each small page costs a fault when it is made and a TLB entry in every run.
 * Guarded by MG_LOCK_list. */
struct MgKeepSlab {
  char *mem;
  size_t used;
  unsigned live; /* copies in it */
};
enum { SLAB_BYTES = 2 * KEEP_HUGE };

static MgKeepSlab *keep_slab; /* the one that is being filled */

static char *keep_huge(size_t bytes) {
  char *p = aligned_alloc(KEEP_HUGE, bytes);
  if (p) madvise(p, bytes, MADV_HUGEPAGE); /* a wish only */
  return p;
}

static MgKeepSlab *slab_new(void) {
  MgKeepSlab *s = mg_calloc(1, sizeof *s);
  if (s && (s->mem = keep_huge(SLAB_BYTES))) return s;
  free(s);
  return NULL;
}

static char *slab_take(MgKeep *k) {
  mg_fork_lock(MG_LOCK_list);
  if (!keep_slab || keep_slab->used + k->bytes > SLAB_BYTES)
    keep_slab = slab_new(); /* what is in the full one keeps it */
  MgKeepSlab *s = k->slab = keep_slab;
  char *p = s ? s->mem + s->used : NULL;
  if (s) s->used += k->bytes, s->live++;
  mg_fork_unlock(MG_LOCK_list);
  return p;
}

static void slab_give(MgKeepSlab *s) {
  mg_fork_lock(MG_LOCK_list);
  if (!--s->live) {
    if (s == keep_slab) keep_slab = NULL;
    free(s->mem);
    free(s);
  }
  mg_fork_unlock(MG_LOCK_list);
}

static char *keep_memory(MgKeep *k, size_t total) {
  if (k->bytes >= KEEP_HUGE) return keep_huge(k->bytes);
  return total < KEEP_HUGE ? aligned_alloc(64, k->bytes) : slab_take(k);
}

static void keep_alloc(MgKeep *k, size_t bytes, size_t n) {
  k->bytes = keep_round(bytes);
  size_t total = atomic_fetch_add(&keep_total, k->bytes) + k->bytes;
  if (total <= MG_TUNE_WEIGHT_BYTES &&
      (k->seen = mg_calloc((n + MG_DIGEST_CHUNK - 1) / MG_DIGEST_CHUNK, sizeof *k->seen)) &&
      (k->mem = keep_memory(k, total)))
    return;
  mg_keep_free(k);
  k->refused = true;
}

bool mg_keep_fresh(MgKeep *k, size_t bytes, const void *src, size_t n, const void *extra, size_t nextra,
                   bool *elsewhere) {
  *elsewhere = false;
  if (!k->mem && !k->refused) keep_alloc(k, bytes, n);
  if (!k->mem) return false;
  if (k->wait) {
    k->wait--;
    k->valid = false;
    *elsewhere = true;
    return false;
  }
  bool same = mg_digest_update(k->seen, src, n), was = k->valid;
  MgDigest d = mg_digest(extra, nextra);
  same &= d.h[0] == k->extra.h[0] && d.h[1] == k->extra.h[1];
  k->extra = d;
  k->valid = true;
  if (was && same) {
    k->backoff = 0;
    return true;
  }
  if (was) {
    k->backoff = k->backoff * 2 + 1 < MG_TUNE_WEIGHT_BACKOFF ? k->backoff * 2 + 1 : MG_TUNE_WEIGHT_BACKOFF;
    k->wait = k->backoff - 1; /* a single change costs nothing more */
  }
  return false;
}

void mg_keep_drop(MgKeep *k) { k->valid = false; }

void mg_keep_free(MgKeep *k) {
  if (k->bytes) keep_total -= k->bytes;
  if (k->slab) slab_give(k->slab);
  else free(k->mem);
  free(k->seen);
  *k = (MgKeep){0};
}

size_t mg_keep_bytes(void) { return keep_total; }

/* ---- frozen weights ---- */

int mg_frozen_init(MgFrozen *f, uint64_t bytes) {
  if (!bytes) return 0;
  return (f->mem = aligned_alloc(64, (bytes + 63) / 64 * 64)) ? 0 : -1;
}

void mg_frozen_free(MgFrozen *f) { free(f->mem); }

int mg_frozen_fill(MgFrozen *f, int (*fill)(void *arg), void *arg) {
  int bad = 0;
  if (__atomic_load_n(&f->ready, __ATOMIC_ACQUIRE)) return 0;
  mg_fork_lock(MG_LOCK_fill);
  if (!f->ready && !(bad = fill(arg))) __atomic_store_n(&f->ready, 1, __ATOMIC_RELEASE);
  mg_fork_unlock(MG_LOCK_fill);
  return bad;
}
