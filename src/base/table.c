/* See the header. */
#include "base/table.h"
#include <stdlib.h>
#include <string.h>

uint32_t mg_map_get(const MgMap *m, uint64_t key) {
  if (!m->cap) return MG_MAP_NONE;
  for (uint32_t i = (uint32_t)mg_hash_u64(key) & (m->cap - 1);; i = (i + 1) & (m->cap - 1)) {
    if (m->key[i] == key) return m->val[i];
    if (!m->key[i]) return MG_MAP_NONE;
  }
}

static MgRc table_resize(MgMap *m) {
  MgMap old = *m;
  uint32_t cap = 64, room = old.n < 4096 ? 8 : 4; /* small ones are put together anew less often */
  while (cap < old.n * room) cap *= 2;
  uint64_t *key = mg_calloc(cap, sizeof *key);
  uint32_t *val = mg_malloc(cap * sizeof *val);
  if (!key || !val) {
    free(key);
    free(val);
    return MG_NOMEM;
  }
  *m = (MgMap){key, val, old.n, cap, old.n};
  for (uint32_t i = 0; i < old.cap; i++) {
    if (old.key[i] <= 1) continue;
    uint32_t at = (uint32_t)mg_hash_u64(old.key[i]) & (cap - 1);
    while (key[at]) at = (at + 1) & (cap - 1);
    key[at] = old.key[i];
    val[at] = old.val[i];
  }
  free(old.key);
  free(old.val);
  return MG_OK;
}

MgRc mg_map_put(MgMap *m, uint64_t key, uint32_t val) {
  if ((m->used + 1) * 2 > m->cap) TRY(table_resize(m));
  uint32_t i = (uint32_t)mg_hash_u64(key) & (m->cap - 1), removed = MG_MAP_NONE;
  for (; m->key[i]; i = (i + 1) & (m->cap - 1)) {
    if (m->key[i] == key) {
      m->val[i] = val;
      return MG_OK;
    }
    if (m->key[i] == 1 && removed == MG_MAP_NONE) removed = i;
  }
  if (removed != MG_MAP_NONE) i = removed;
  else m->used++;
  m->key[i] = key;
  m->val[i] = val;
  m->n++;
  return MG_OK;
}

void mg_map_del(MgMap *m, uint64_t key) {
  if (!m->cap) return;
  for (uint32_t i = (uint32_t)mg_hash_u64(key) & (m->cap - 1); m->key[i]; i = (i + 1) & (m->cap - 1))
    if (m->key[i] == key) {
      m->key[i] = 1;
      m->n--;
      return;
    }
}

void mg_map_free(MgMap *m) {
  free(m->key);
  free(m->val);
  *m = (MgMap){0};
}

uint64_t mg_hash_bytes(const void *p, size_t n, uint64_t seed) {
  const uint8_t *b = p;
  uint64_t h = seed ^ (n * 0x9E3779B97F4A7C15ull);
  for (; n >= 8; n -= 8, b += 8) {
    uint64_t w;
    memcpy(&w, b, 8);
    h = mg_hash_u64(h ^ w);
  }
  uint64_t w = 0;
  memcpy(&w, b, n);
  return mg_hash_u64(h ^ w);
}
