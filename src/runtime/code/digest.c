/* See the header. */
#include "runtime/code/digest.h"
#include <pthread.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include "runtime/process/cpu.h"
#include "runtime/process/threads.h"

enum { BLOCK = 2048, WORDS = BLOCK / 4 };
static const uint64_t digest_prime = ((uint64_t)1 << 61) - 1;

static uint32_t digest_key[2][WORDS] __attribute__((aligned(64)));
static uint64_t digest_point[2]; /* where the polynomials are evaluated */
static pthread_once_t digest_once = PTHREAD_ONCE_INIT;

static uint64_t digest_mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

static void digest_draw(void) {
  if (getrandom(digest_key, sizeof digest_key, 0) != sizeof digest_key ||
      getrandom(digest_point, sizeof digest_point, 0) != sizeof digest_point) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    uint64_t seed = (uint64_t)t.tv_nsec * 0x9e3779b97f4a7c15u ^ (uintptr_t)&t;
    for (int i = 0; i < 2 * WORDS; i++)
      digest_key[i / WORDS][i % WORDS] = (uint32_t)digest_mix(seed + (uint64_t)i);
    for (int i = 0; i < 2; i++) digest_point[i] = digest_mix(seed - 1 - (uint64_t)i);
  }
  for (int i = 0; i < 2; i++) digest_point[i] %= digest_prime;
}

/* NH of one block with both keys: sum of (m[2i] + k[2i]) * (m[2i+1] + k[2i+1]), sums of words modulo 2^32. */
#if defined(__x86_64__)
#include <immintrin.h>
#define DIGEST_NH(name, isa, V, LOAD, ADD32, SHIFT, MUL, ADD64, ZERO)                                        \
  __attribute__((target(isa))) static void name(const unsigned char *p, uint64_t *out) {                     \
    V acc[2] = {ZERO(), ZERO()};                                                                             \
    for (int i = 0; i < BLOCK; i += (int)sizeof(V)) {                                                        \
      V m = LOAD((const void *)(p + i));                                                                     \
      V a = ADD32(m, LOAD((const void *)((const char *)digest_key[0] + i)));                                 \
      V b = ADD32(m, LOAD((const void *)((const char *)digest_key[1] + i)));                                 \
      acc[0] = ADD64(acc[0], MUL(a, SHIFT(a, 32)));                                                          \
      acc[1] = ADD64(acc[1], MUL(b, SHIFT(b, 32)));                                                          \
    }                                                                                                        \
    uint64_t lane[2][sizeof(V) / 8];                                                                         \
    memcpy(lane, acc, sizeof lane);                                                                          \
    for (int k = 0; k < 2; k++) {                                                                            \
      out[k] = 0;                                                                                            \
      for (size_t i = 0; i < sizeof(V) / 8; i++) out[k] += lane[k][i];                                       \
    }                                                                                                        \
  }
DIGEST_NH(digest_nh_512, "avx512f", __m512i, _mm512_loadu_si512, _mm512_add_epi32, _mm512_srli_epi64,
          _mm512_mul_epu32, _mm512_add_epi64, _mm512_setzero_si512)
DIGEST_NH(digest_nh_256, "avx2", __m256i, _mm256_loadu_si256, _mm256_add_epi32, _mm256_srli_epi64,
          _mm256_mul_epu32, _mm256_add_epi64, _mm256_setzero_si256)
DIGEST_NH(digest_nh_any, "sse2", __m128i, _mm_loadu_si128, _mm_add_epi32, _mm_srli_epi64, _mm_mul_epu32,
          _mm_add_epi64, _mm_setzero_si128)
#else
static void digest_nh_any(const unsigned char *p, uint64_t *out) {
  uint32_t m[WORDS];
  memcpy(m, p, BLOCK);
  for (int k = 0; k < 2; k++) {
    out[k] = 0;
    for (int i = 0; i < WORDS; i += 2)
      out[k] += (uint64_t)(m[i] + digest_key[k][i]) * (uint32_t)(m[i + 1] + digest_key[k][i + 1]);
  }
}
#endif

static void (*digest_nh)(const unsigned char *p, uint64_t *out) = digest_nh_any;

static void digest_init(void) {
  digest_draw();
#if defined(__x86_64__)
  if (mg_cpu()->avx512) digest_nh = digest_nh_512;
  else if (mg_cpu()->avx2) digest_nh = digest_nh_256;
#endif
}

/* h * point + x modulo 2^61 - 1 */
static uint64_t digest_step(uint64_t h, uint64_t point, uint64_t x) {
  unsigned __int128 t = (unsigned __int128)h * point + x;
  uint64_t r = (uint64_t)(t & digest_prime) + (uint64_t)(t >> 61);
  r = (r & digest_prime) + (r >> 61);
  return r >= digest_prime ? r - digest_prime : r;
}

static MgDigest digest_of(const unsigned char *p, size_t n) {
  MgDigest d = {{n % digest_prime, n % digest_prime}};
  unsigned char tail[BLOCK];
  uint64_t x[2];
  for (size_t i = 0; i < n; i += BLOCK) {
    const unsigned char *b = p + i;
    if (n - i < BLOCK) {
      memset(tail, 0, sizeof tail);
      b = memcpy(tail, p + i, n - i);
    }
    digest_nh(b, x);
    for (int k = 0; k < 2; k++) d.h[k] = digest_step(d.h[k], digest_point[k], x[k]);
  }
  return d;
}

MgDigest mg_digest(const void *p, size_t n) {
  pthread_once(&digest_once, digest_init);
  return digest_of(p, n);
}

typedef struct DigestJob {
  MgDigest *table;
  const unsigned char *p;
  size_t n;
  bool changed; /* written by several threads, always with the same value */
} DigestJob;

static void digest_range(void *const *buf, const int64_t *size, int64_t begin, int64_t end) {
  DigestJob *j = buf[0];
  (void)size;
  for (int64_t i = begin; i < end; i++) {
    size_t from = (size_t)i * MG_DIGEST_CHUNK, n = j->n - from;
    MgDigest d = digest_of(j->p + from, n < MG_DIGEST_CHUNK ? n : MG_DIGEST_CHUNK);
    if (!memcmp(&d, &j->table[i], sizeof d)) continue;
    j->table[i] = d;
    __atomic_store_n(&j->changed, true, __ATOMIC_RELAXED);
  }
}

bool mg_digest_update(MgDigest *table, const void *p, size_t n) {
  DigestJob j = {.table = table, .p = p, .n = n};
  void *buf[1] = {&j};
  MgRange r = {digest_range, buf, NULL, (int64_t)((n + MG_DIGEST_CHUNK - 1) / MG_DIGEST_CHUNK), 1};
  pthread_once(&digest_once, digest_init);
  mg_threads_run(&r, 1, 0);
  return !j.changed;
}
