#define _GNU_SOURCE
#include "runtime/keep.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "base/ctx.h"

enum { KEEP_HUGE = 2 << 20, KEEP_BACKOFF = 63 };
#define KEEP_LIMIT ((size_t)1 << 30) /* bytes in all: convolution weights are small, except where they are not */

static atomic_size_t keep_total;

static size_t keep_round(size_t bytes) {
  size_t grain = bytes < KEEP_HUGE ? 64 : KEEP_HUGE;
  return (bytes + grain - 1) & ~(grain - 1);
}

static void keep_alloc(MgKeep *k, size_t bytes, size_t n) {
  k->bytes = keep_round(bytes);
  if (atomic_fetch_add(&keep_total, k->bytes) + k->bytes <= KEEP_LIMIT &&
      (k->seen = mg_calloc((n + MG_DIGEST_CHUNK - 1) / MG_DIGEST_CHUNK, sizeof *k->seen)) &&
      (k->mem = aligned_alloc(bytes < KEEP_HUGE ? 64 : KEEP_HUGE, k->bytes))) {
    if (bytes >= KEEP_HUGE) madvise(k->mem, k->bytes, MADV_HUGEPAGE); /* a wish only */
    return;
  }
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
    k->backoff = k->backoff * 2 + 1 < KEEP_BACKOFF ? k->backoff * 2 + 1 : KEEP_BACKOFF;
    k->wait = k->backoff - 1; /* a single change costs nothing more */
  }
  return false;
}

void mg_keep_drop(MgKeep *k) { k->valid = false; }

void mg_keep_free(MgKeep *k) {
  if (k->bytes) keep_total -= k->bytes;
  free(k->mem);
  free(k->seen);
  *k = (MgKeep){0};
}

size_t mg_keep_bytes(void) { return keep_total; }
