/* Sets of small numbers, one bit each, in words of the owner's.  All sets of one kind have
 * the same number of words. */
#ifndef MG_BITS_H
#define MG_BITS_H
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Words of a set of numbers below n; one at least. */
static inline uint32_t mg_bits_words(uint32_t n) { return n / 64 + (n % 64 || !n); }
static inline void mg_bits_add(uint64_t *set, uint32_t i) { set[i / 64] |= 1ull << i % 64; }
static inline bool mg_bits_has(const uint64_t *set, uint32_t i) { return set[i / 64] >> i % 64 & 1; }

/* The set of all numbers below n. */
static inline void mg_bits_fill(uint64_t *set, uint32_t n) {
  uint32_t words = mg_bits_words(n);
  memset(set, 0xff, words * sizeof *set);
  if (n % 64) set[words - 1] = (1ull << n % 64) - 1;
  if (!n) set[0] = 0;
}

static inline void mg_bits_join(uint64_t *set, const uint64_t *other, uint32_t words) {
  for (uint32_t i = 0; i < words; i++) set[i] |= other[i];
}

static inline bool mg_bits_any(const uint64_t *set, uint32_t words) {
  for (uint32_t i = 0; i < words; i++)
    if (set[i]) return true;
  return false;
}

/* Is some number in both? */
static inline bool mg_bits_meet(const uint64_t *a, const uint64_t *b, uint32_t words) {
  for (uint32_t i = 0; i < words; i++)
    if (a[i] & b[i]) return true;
  return false;
}

static inline bool mg_bits_same(const uint64_t *a, const uint64_t *b, uint32_t words) {
  return !memcmp(a, b, words * sizeof *a);
}
#endif
