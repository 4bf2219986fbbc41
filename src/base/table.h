/* Hash map from a 64-bit key (usually a pointer) to a 32-bit value.  malloc'ed; free with mg_map_free. */
#ifndef MG_TABLE_H
#define MG_TABLE_H
#include "base/ctx.h"

typedef struct MgMap {
  uint64_t *key; /* 0 = free slot, 1 = removed; so keys 0 and 1 cannot be stored */
  uint32_t *val;
  uint32_t n, cap, used; /* live entries, slots (a power of two), live + removed */
} MgMap;

#define MG_MAP_NONE UINT32_MAX
uint32_t mg_map_get(const MgMap *m, uint64_t key); /* MG_MAP_NONE when absent */
MgRc mg_map_put(MgMap *m, uint64_t key, uint32_t val);
void mg_map_del(MgMap *m, uint64_t key);
void mg_map_free(MgMap *m);
uint64_t mg_hash_bytes(const void *p, size_t n, uint64_t seed);
static inline uint64_t mg_hash_u64(uint64_t x) {
  x ^= x >> 32;
  x *= 0x9E3779B97F4A7C15ull;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9ull;
  return x ^ (x >> 32);
}
static inline uint32_t mg_map_getp(const MgMap *m, const void *k) {
  return mg_map_get(m, (uint64_t)(uintptr_t)k);
}
static inline MgRc mg_map_putp(MgMap *m, const void *k, uint32_t v) {
  return mg_map_put(m, (uint64_t)(uintptr_t)k, v);
}
#endif
