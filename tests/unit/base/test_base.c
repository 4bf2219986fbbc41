/* base/: arena, strings, map, log channels, places of blocks; and the sweep in which the n-th allocation
 * fails for every n. */
#include "base/ctx.h"
#include "base/interval_pack.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "base/table.h"
#include "check.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void test_arena(void) {
  MgCtx c;
  mg_ctx_init(&c);
  char *small = mg_ctx_alloc(&c, 3), *big = mg_ctx_alloc(&c, 1 << 20), *after = mg_ctx_alloc(&c, 5);
  CHECK(small && big && after && after == small + 16); /* the large block did not end the open chunk */
  for (size_t i = 0; i < 1 << 20; i += 4096) CHECK(big[i] == 0);
  CHECK(((uintptr_t)big & 15) == 0);
  CHECK(!strcmp(mg_ctx_strdup(&c, "text"), "text"));
  CHECK(!mg_ctx_alloc(&c, SIZE_MAX) && c.rc == MG_NOMEM);
  CHECK(mg_fail(&c, MG_BUG, "later") == MG_BUG && c.rc == MG_NOMEM); /* the first error wins */
  mg_ctx_free(&c);
}

/* An array grows by doubling; where memory runs out, it and its size stay. */
static void test_grow(void) {
  uint32_t *a = NULL, cap = 0;
  for (uint32_t n = 0; n < 100; a[n] = n, n++)
    if (n == cap) CHECK(mg_grow(&a, &cap, sizeof *a, 3));
  CHECK(cap == 192 && a[0] == 0 && a[99] == 99);
  const uint32_t *before = a;
  mg_fault_set(1);
  CHECK(!mg_grow(&a, &cap, sizeof *a, 3) && cap == 192 && a == before);
  mg_fault_set(0);
  free(a);
}

static void test_strbuf(void) {
  MgStrbuf s = {0};
  CHECK(!strcmp(mg_sb_text(&s), ""));
  for (int i = 0; i < 1000; i++) mg_sb_printf(&s, "%d,", i);
  mg_sb_puts(&s, "end");
  mg_sb_putc(&s, '.');
  CHECK(mg_sb_ok(&s) && s.len == strlen(s.p) && !strcmp(s.p + s.len - 8, "999,end."));
  mg_sb_free(&s);
  char want[300];
#define SAME(...)                                                                                            \
  (mg_sb_free(&s), mg_sb_printf(&s, __VA_ARGS__), snprintf(want, sizeof want, __VA_ARGS__),                  \
   !strcmp(mg_sb_text(&s), want))
  CHECK(SAME("%%v%d = %s %c%u", INT_MIN, "add", 'x', UINT_MAX) &&
        SAME("%lld %llu %d", LLONG_MIN, ULLONG_MAX, 0) && SAME("%s", ""));
  CHECK(SAME("%d and %.3f, %04X, %.*s %s%%", 7, 0.25, 255u, 2, "abc", "end") && SAME("none"));
#undef SAME
  mg_sb_free(&s);
}

static void test_map(void) {
  MgMap m = {0};
  for (uint32_t i = 2; i < 5000; i++) CHECK(mg_map_put(&m, i * 16, i) == MG_OK);
  for (uint32_t i = 2; i < 5000; i += 2) mg_map_del(&m, i * 16);
  for (uint32_t i = 2; i < 5000; i++) CHECK(mg_map_get(&m, i * 16) == (i & 1 ? i : MG_MAP_NONE));
  for (uint32_t round = 0; round < 20000;
       round++) { /* removed slots are reused: the table must not fill up */
    CHECK(mg_map_put(&m, 100000 + round, round) == MG_OK);
    mg_map_del(&m, 100000 + round);
  }
  CHECK(m.n == 2499);
  mg_map_free(&m);
}

static void test_log(void) {
  CHECK(!mg_log_set("guards, plan") && mg_log_on(MG_LOG_guards) && mg_log_on(MG_LOG_plan) &&
        !mg_log_on(MG_LOG_graph));
  CHECK(!strncmp(mg_log_set("graph,nonsense"), "nonsense", 8) && mg_log_on(MG_LOG_graph));
  CHECK(!mg_log_set("all") && mg_log_on(MG_LOG_timing));
  mg_log_set("");
}

static MgRc faulty(MgCtx *c) {
  MgMap m = {0};
  MgStrbuf s = {0};
  MgRc rc = MG_OK;
  for (int i = 2; i < 300 && rc == MG_OK; i++) {
    if (!mg_new(c, char, 1000)) rc = MG_NOMEM;
    else rc = mg_map_put(&m, (uint64_t)i, 1);
    mg_sb_puts(&s, "some text that grows");
  }
  if (rc == MG_OK && !mg_sb_ok(&s)) rc = MG_NOMEM;
  mg_map_free(&m);
  mg_sb_free(&s);
  return rc;
}

static void test_faults(void) {
  for (long n = 1;; n++) {
    MgCtx c;
    mg_ctx_init(&c);
    mg_fault_set(n);
    MgRc rc = faulty(&c);
    mg_fault_set(0);
    mg_ctx_free(&c);
    if (rc == MG_OK) break;
    CHECK(rc == MG_NOMEM);
  }
}

/* Each block is placed as a look at all earlier ones would: the smallest gap that takes it. */
static void test_pack_many(void) {
  enum { N = 700 };
  static MgPackBlock b[N];
  uint32_t seed = 1;
  for (uint32_t n = 1; n <= N; n = 2 * n + 1) {
    uint64_t *work = malloc(mg_pack_room(n)), total, most = 0;
    for (uint32_t i = 0; i < n; i++) {
      seed = seed * 1664525u + 1013904223u;
      b[i].first = (seed >> 8) % n;
      b[i].last = b[i].first + (seed >> 20) % 9;
      b[i].bytes = (seed >> 4) % 5 * 100; /* some take no memory */
    }
    CHECK(work != NULL);
    total = mg_pack(b, n, work);
    free(work);
    for (uint32_t i = 0; i < n; i++) {
      uint64_t stop = b[i].offset + (b[i].bytes + MG_PACK_ALIGN - 1) / MG_PACK_ALIGN * MG_PACK_ALIGN;
      if (stop > most && b[i].bytes) most = stop;
      for (uint32_t k = 0; k < i; k++) {
        bool together = b[i].bytes && b[k].bytes && b[k].first <= b[i].last && b[i].first <= b[k].last;
        bool apart = b[i].offset + b[i].bytes <= b[k].offset || b[k].offset + b[k].bytes <= b[i].offset;
        CHECK(!together || apart);
      }
    }
    CHECK(most == total);
  }
}

/* A look at all earlier blocks for each would take 20 seconds. */
static void test_pack_without_a_square(void) {
  enum { N = 200000 };
  MgPackBlock *b = calloc(N, sizeof *b);
  void *work = malloc(mg_pack_room(N));
  CHECK(b && work);
  for (uint32_t i = 0; b && i < N; i++) b[i] = (MgPackBlock){.bytes = 64 + i % 7, .first = i, .last = i + 3};
  clock_t start = clock();
  CHECK(mg_pack(b, N, work) < 64 * MG_PACK_ALIGN);
  CHECK(clock() - start < 5 * CLOCKS_PER_SEC);
  free(b);
  free(work);
}

/* Places are kept while the blocks fit: packing takes longer than a small plan runs. */
static void test_pack_again(void) {
  MgPackBlock b[3] = {{.wanted = 100, .first = 0, .last = 2},
                      {.wanted = 1000, .first = 1, .last = 3},
                      {.wanted = 64, .first = 3, .last = 4}};
  uint64_t work[64], total = 0, at;
  CHECK(mg_pack_room(3) <= sizeof work);
  mg_pack_again(b, 3, work, &total);
  CHECK(total == 1024 + 128 && b[0].bytes == 100 && b[1].bytes == 1000);
  b[1].wanted = 1001; /* outgrown: an eighth more */
  mg_pack_again(b, 3, work, &total);
  CHECK(b[0].bytes == 100 && b[1].bytes == 1001 + 1001 / 8 + MG_PACK_ALIGN);
  at = b[0].offset = 12345 * MG_PACK_ALIGN;
  b[1].wanted = 1100, b[0].wanted = 90; /* fits: nothing moves */
  mg_pack_again(b, 3, work, &total);
  CHECK(b[0].offset == at && b[0].bytes == 100);
  b[1].wanted = 1 << 20; /* at most a page more */
  mg_pack_again(b, 3, work, &total);
  CHECK(b[0].offset != at && b[1].bytes == (1 << 20) + 4096);
  b[1].wanted = 10; /* most of the memory is not wanted any more */
  mg_pack_again(b, 3, work, &total);
  CHECK(b[1].bytes == 10 && total < 512);
}

int main(void) {
  test_pack_many();
  test_pack_without_a_square();
  test_pack_again();
  test_arena();
  test_grow();
  test_strbuf();
  test_map();
  test_log();
  test_faults();
  return test_done();
}
