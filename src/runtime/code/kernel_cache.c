/* The in-memory kernel cache.  See the header. */
#include "runtime/code/kernel_cache.h"
#include <stdlib.h>
#include <string.h>
#include "base/fork.h"
#include "base/table.h"
#include "tuning.h"

struct MgKcCode {
  MgCode *code;
  uint32_t refs;         /* of plans */
  struct MgKcCode *next; /* all objects, newest first */
};

typedef struct KcEntry { /* one kernel */
  MgKey key;
  void *fn;
  MgKcPlace place;
  MgKcRef code; /* not counted */
} KcEntry;

/* MG_LOCK_kernel guards everything below. */
static MgMap kc_index; /* key.lo -> entry; of two kernels with equal lo only the newer is found */
static KcEntry *kc_entry;
static uint32_t kc_n, kc_cap;
static MgKcRef kc_codes;
static uint64_t kc_hits, kc_misses;

MgKey mg_kcache_key(const char *text, size_t len) {
  MgKey k = {mg_hash_bytes(text, len, 0x6d61676e65746f31ull),
             mg_hash_bytes(text, len, 0x8f3a9c5d1b7e2460ull)};
  if (k.lo < 2) k.lo += 2; /* MgMap keeps 0 and 1 for itself */
  return k;
}

void *mg_kcache_find(MgKey key, MgKcRef *ref) {
  void *fn = NULL;
  mg_fork_lock(MG_LOCK_kernel);
  uint32_t i = mg_map_get(&kc_index, key.lo);
  if (i != MG_MAP_NONE && kc_entry[i].key.hi == key.hi) {
    fn = kc_entry[i].fn;
    *ref = kc_entry[i].code;
    (*ref)->refs++;
  }
  fn ? kc_hits++ : kc_misses++;
  mg_fork_unlock(MG_LOCK_kernel);
  return fn;
}

bool mg_kcache_place(MgKey key, MgKcPlace *out) {
  mg_fork_lock(MG_LOCK_kernel);
  uint32_t i = mg_map_get(&kc_index, key.lo);
  bool found = i != MG_MAP_NONE && kc_entry[i].key.hi == key.hi;
  if (found) *out = kc_entry[i].place;
  mg_fork_unlock(MG_LOCK_kernel);
  return found;
}

/* Removes the entries of one object and unmaps it; the lock is held. */
static void kc_drop(MgKcRef *link) {
  MgKcRef code = *link;
  uint32_t kept = 0;
  *link = code->next;
  for (uint32_t i = 0; i < kc_n; i++)
    if (kc_entry[i].code == code) mg_map_del(&kc_index, kc_entry[i].key.lo);
  for (uint32_t i = 0; i < kc_n; i++) {
    if (kc_entry[i].code == code) continue;
    if (kept != i) {
      kc_entry[kept] = kc_entry[i];
      if (mg_map_get(&kc_index, kc_entry[i].key.lo) == i) mg_map_put(&kc_index, kc_entry[i].key.lo, kept);
    }
    kept++;
  }
  kc_n = kept;
  mg_elf_free(code->code);
  free(code);
}

/* Unmaps idle objects beyond `keep` bytes, oldest first; the lock is held. */
static void kc_trim(uint64_t keep) {
  uint64_t idle = 0;
  for (MgKcRef *p = &kc_codes; *p;) {
    if (!(*p)->refs && (idle += mg_elf_bytes((*p)->code)) > keep) kc_drop(p);
    else p = &(*p)->next;
  }
}

MgRc mg_kcache_add(MgCtx *c, MgCode *code, const MgKey *key, void *const *fn, const MgKcPlace *place,
                   uint32_t n, MgKcRef *ref) {
  MgKcRef r = mg_calloc(1, sizeof *r);
  MgRc rc = r ? MG_OK : MG_NOMEM;
  mg_fork_lock(MG_LOCK_kernel);
  if (rc == MG_OK && kc_n + n > kc_cap) {
    uint32_t cap = (kc_n + n) * 2;
    KcEntry *p = mg_realloc(kc_entry, sizeof *p * cap);
    if (p) kc_entry = p, kc_cap = cap;
    else rc = MG_NOMEM;
  }
  for (uint32_t i = 0; rc == MG_OK && i < n; i++) {
    kc_entry[kc_n] = (KcEntry){key[i], fn[i], place[i], r};
    rc = mg_map_put(&kc_index, key[i].lo, kc_n);
    if (rc == MG_OK) kc_n++;
  }
  if (rc == MG_OK) {
    r->code = code;
    r->refs = 1;
    r->next = kc_codes;
    kc_codes = r;
    kc_trim(MG_TUNE_CODE_IDLE_BYTES);
  } else { /* the entries that were added go again; the caller still owns code */
    while (kc_n && kc_entry[kc_n - 1].code == r) mg_map_del(&kc_index, kc_entry[--kc_n].key.lo);
    free(r);
  }
  mg_fork_unlock(MG_LOCK_kernel);
  if (rc != MG_OK) return mg_fail(c, rc, "out of memory");
  *ref = r;
  return MG_OK;
}

void mg_kcache_unref(MgKcRef ref) {
  mg_fork_lock(MG_LOCK_kernel);
  ref->refs--;
  kc_trim(MG_TUNE_CODE_IDLE_BYTES);
  mg_fork_unlock(MG_LOCK_kernel);
}

void mg_kcache_clear(void) {
  mg_fork_lock(MG_LOCK_kernel);
  kc_trim(0);
  mg_fork_unlock(MG_LOCK_kernel);
}

void mg_kcache_info(MgKcInfo *out) {
  mg_fork_lock(MG_LOCK_kernel);
  *out = (MgKcInfo){.nkernel = kc_n, .hits = kc_hits, .misses = kc_misses};
  for (MgKcRef p = kc_codes; p; p = p->next) out->ncode++, out->bytes += mg_elf_bytes(p->code);
  mg_fork_unlock(MG_LOCK_kernel);
}
