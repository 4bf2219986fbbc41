/* Digests notice every change; kept copies are made again exactly when they must be. */
#include <string.h>
#include "check.h"
#include "runtime/engine/weight_cache.h"

static unsigned char data[3 * MG_DIGEST_CHUNK + 77];

static void same(MgDigest *a, MgDigest *b, bool want) { CHECK(!memcmp(a, b, sizeof *a) == want); }

static void digest_changes(void) {
  for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * 131 + (i >> 8));
  MgDigest all = mg_digest(data, sizeof data), d = mg_digest(data, sizeof data);
  same(&all, &d, true);
  for (size_t i = 0; i < sizeof data; i = i * 5 / 4 + 1) {
    data[i] ^= 1u << i % 8;
    d = mg_digest(data, sizeof data);
    same(&all, &d, false);
    data[i] ^= 1u << i % 8;
  }
  memcpy(data + 2048, data, 2048); /* equal blocks, then two different ones exchanged */
  data[0] ^= 1;
  MgDigest a = mg_digest(data, 4096);
  data[0] ^= 1, data[2048] ^= 1;
  MgDigest b = mg_digest(data, 4096);
  same(&a, &b, false);
  unsigned char zero[64] = {0}; /* the length counts, not only what is there */
  a = mg_digest(zero, 0), b = mg_digest(zero, 1), d = mg_digest(zero, 64);
  same(&a, &b, false);
  same(&b, &d, false);
}

static void digest_table(void) {
  MgDigest table[4] = {{{0}}};
  CHECK(!mg_digest_update(table, data, sizeof data));
  CHECK(mg_digest_update(table, data, sizeof data));
  data[sizeof data - 1] ^= 4;
  CHECK(!mg_digest_update(table, data, sizeof data));
  CHECK(mg_digest_update(table, data, sizeof data));
}

static void keep_policy(void) {
  MgKeep k = {0};
  float scale[3] = {1, 2, 3};
  bool elsewhere;
  size_t before = mg_keep_bytes();
#define FRESH() mg_keep_fresh(&k, 1000, data, sizeof data, scale, sizeof scale, &elsewhere)
  CHECK(!FRESH() && k.mem && !elsewhere);
  CHECK(mg_keep_bytes() >= before + 1000);
  CHECK(FRESH());
  scale[1] = -2;
  CHECK(!FRESH() && !elsewhere);
  CHECK(FRESH()); /* one change, one copy */
  data[5]++;
  CHECK(!FRESH());
  mg_keep_drop(&k); /* the copy could not be made */
  CHECK(!FRESH() && !elsewhere);
  CHECK(FRESH());
  int aside = 0;
  for (int i = 0; i < 1000; i++) { /* changes on every call are soon not looked for */
    data[i]++;
    CHECK(!FRESH());
    aside += elsewhere;
  }
  CHECK(aside > 800 && aside < 1000);
  int until = 0;
  while (!FRESH()) until++;
  CHECK(until < 80);
  for (int i = 0; i < 10; i++) CHECK(FRESH());
  mg_keep_free(&k);
  CHECK(mg_keep_bytes() == before && !k.mem);
  CHECK(!mg_keep_fresh(&k, (size_t)1 << 40, data, 10, NULL, 0, &elsewhere) && !k.mem && k.refused);
  mg_keep_free(&k);
  CHECK(mg_keep_bytes() == before);
}

/* Many small copies lie beside each other; each is its own, and what is left stays when others go. */
static void keep_shares_pages(void) {
  enum { N = 40, BYTES = 300 << 10 };
  static MgKeep k[N];
  bool elsewhere;
  size_t before = mg_keep_bytes();
  for (int i = 0; i < N; i++) {
    CHECK(!mg_keep_fresh(&k[i], BYTES + i, data, 100, NULL, 0, &elsewhere) && k[i].mem &&
          ((uintptr_t)k[i].mem & 63) == 0);
    memset(k[i].mem, i, BYTES + (size_t)i);
  }
  int beside = 0;
  for (int i = 1; i < N; i++) beside += k[i].mem == k[i - 1].mem + k[i - 1].bytes;
  CHECK(beside > N / 2);
  for (int i = 0; i < N; i += 2) mg_keep_free(&k[i]);
  for (int i = 1; i < N; i += 2)
    for (int at = 0; at < BYTES + i; at += 997) CHECK(k[i].mem[at] == i);
  for (int i = 1; i < N; i += 2) mg_keep_free(&k[i]);
  CHECK(mg_keep_bytes() == before);
}

int main(void) {
  digest_changes();
  digest_table();
  keep_policy();
  keep_shares_pages();
  return test_done();
}
