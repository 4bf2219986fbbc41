/* BLAKE2b as RFC 7693 describes it; see the header.
 * In: bytes in any portions.  Out: the digest.  Words are little-endian, whatever the machine.
 * Invariant: the buffer is compressed only when more bytes follow, since the last block is marked as such. */
#include "base/blake2b.h"
#include "base/assert.h"
#include <string.h>

static const uint64_t blake_iv[8] = {0x6a09e667f3bcc908u, 0xbb67ae8584caa73bu, 0x3c6ef372fe94f82bu,
                                     0xa54ff53a5f1d36f1u, 0x510e527fade682d1u, 0x9b05688c2b3e6c1fu,
                                     0x1f83d9abfb41bd6bu, 0x5be0cd19137e2179u};

/* Which message words a round takes; rounds 10 and 11 are 0 and 1 again. */
static const uint8_t blake_sigma[10][16] = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
                                            {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
                                            {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
                                            {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
                                            {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
                                            {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
                                            {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
                                            {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
                                            {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
                                            {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};

static inline uint64_t blake_rotate(uint64_t x, int n) { return x >> n | x << (64 - n); }

#define BLAKE_MIX(a, b, c, d, x, y)                                                                          \
  do {                                                                                                       \
    v[a] += v[b] + (x);                                                                                      \
    v[d] = blake_rotate(v[d] ^ v[a], 32);                                                                    \
    v[c] += v[d];                                                                                            \
    v[b] = blake_rotate(v[b] ^ v[c], 24);                                                                    \
    v[a] += v[b] + (y);                                                                                      \
    v[d] = blake_rotate(v[d] ^ v[a], 16);                                                                    \
    v[c] += v[d];                                                                                            \
    v[b] = blake_rotate(v[b] ^ v[c], 63);                                                                    \
  } while (0)

static uint64_t blake_word(const unsigned char *p) {
  uint64_t w;
  memcpy(&w, p, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  w = __builtin_bswap64(w);
#endif
  return w;
}

/* One block; n of its bytes are new. */
static void blake_compress(MgBlake *b, const unsigned char *block, size_t n, int last) {
  uint64_t v[16], m[16];
  b->done[0] += n;
  b->done[1] += b->done[0] < n;
  for (int i = 0; i < 16; i++) m[i] = blake_word(block + 8 * i);
  for (int i = 0; i < 8; i++) v[i] = b->h[i], v[i + 8] = blake_iv[i];
  v[12] ^= b->done[0];
  v[13] ^= b->done[1];
  if (last) v[14] = ~v[14];
#pragma GCC unroll 12
  for (int r = 0; r < 12; r++) {
    const uint8_t *s = blake_sigma[r % 10];
    BLAKE_MIX(0, 4, 8, 12, m[s[0]], m[s[1]]);
    BLAKE_MIX(1, 5, 9, 13, m[s[2]], m[s[3]]);
    BLAKE_MIX(2, 6, 10, 14, m[s[4]], m[s[5]]);
    BLAKE_MIX(3, 7, 11, 15, m[s[6]], m[s[7]]);
    BLAKE_MIX(0, 5, 10, 15, m[s[8]], m[s[9]]);
    BLAKE_MIX(1, 6, 11, 12, m[s[10]], m[s[11]]);
    BLAKE_MIX(2, 7, 8, 13, m[s[12]], m[s[13]]);
    BLAKE_MIX(3, 4, 9, 14, m[s[14]], m[s[15]]);
  }
  for (int i = 0; i < 8; i++) b->h[i] ^= v[i] ^ v[i + 8];
}

void mg_blake_begin(MgBlake *b, size_t out, const void *key, size_t nkey) {
  MG_ASSERT(out && out <= MG_BLAKE_MAX && nkey <= MG_BLAKE_MAX, "a digest or key is longer than BLAKE2b has");
  memset(b, 0, sizeof *b);
  memcpy(b->h, blake_iv, sizeof b->h);
  b->h[0] ^= 0x01010000u ^ (uint64_t)nkey << 8 ^ (uint64_t)out;
  b->out = out;
  if (!nkey) return;
  memcpy(b->buf, key, nkey); /* a block of its own */
  b->n = MG_BLAKE_BLOCK;
}

void mg_blake_add(MgBlake *b, const void *p, size_t n) {
  const unsigned char *at = p;
  while (n) {
    if (b->n == MG_BLAKE_BLOCK) {
      blake_compress(b, b->buf, MG_BLAKE_BLOCK, 0);
      b->n = 0;
    }
    for (; !b->n && n > MG_BLAKE_BLOCK; at += MG_BLAKE_BLOCK, n -= MG_BLAKE_BLOCK)
      blake_compress(b, at, MG_BLAKE_BLOCK, 0);
    size_t take = n < MG_BLAKE_BLOCK - b->n ? n : MG_BLAKE_BLOCK - b->n;
    memcpy(b->buf + b->n, at, take);
    b->n += take;
    at += take;
    n -= take;
  }
}

void mg_blake_end(MgBlake *b, void *out) {
  unsigned char all[MG_BLAKE_MAX];
  MG_ASSERT(b->n <= MG_BLAKE_BLOCK, "more than a block is kept back");
  memset(b->buf + b->n, 0, MG_BLAKE_BLOCK - b->n);
  blake_compress(b, b->buf, b->n, 1);
  for (int i = 0; i < MG_BLAKE_MAX; i++) all[i] = (unsigned char)(b->h[i / 8] >> 8 * (i % 8));
  memcpy(out, all, b->out);
}
