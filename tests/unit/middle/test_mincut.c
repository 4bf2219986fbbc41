/* Minimum cuts of random graphs against all cuts there are; and that a deep, wide
 * graph takes milliseconds. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "check.h"
#include "middle/mincut.h"

static uint64_t seed = 1;
static uint32_t rnd(uint32_t n) {
  seed = seed * 6364136223846793005ull + 1442695040888963407ull;
  return (uint32_t)(seed >> 33) % n;
}

enum { MAXV = 9, MAXE = 40 };
typedef struct Edge {
  uint32_t from, to;
  int64_t cap;
} Edge;

/* Capacity of the edges from outside `side` (a bit set with the sink) into it. */
static int64_t crossing(const Edge *e, uint32_t n, uint32_t side) {
  int64_t sum = 0;
  for (uint32_t i = 0; i < n; i++)
    if (!(side >> e[i].from & 1) && (side >> e[i].to & 1))
      sum = e[i].cap >= MG_CUT_INF || sum >= MG_CUT_INF ? MG_CUT_INF : sum + e[i].cap;
  return sum;
}

static void random_graph(void) {
  MgCtx c;
  MgCut f;
  Edge e[MAXE];
  uint32_t nv = 2 + rnd(MAXV - 1), ne = rnd(MAXE), got = 0;
  int64_t value, best = INT64_MAX;
  mg_ctx_init(&c);
  CHECK(mg_cut_init(&f, &c, nv) == MG_OK);
  for (uint32_t i = 0; i < ne; i++) {
    uint32_t kind = rnd(10);
    e[i] = (Edge){rnd(nv), rnd(nv), kind == 0 ? MG_CUT_INF : kind == 1 ? 0 : 1 + rnd(kind < 6 ? 5 : 100000)};
    CHECK(mg_cut_edge(&f, e[i].from, e[i].to, e[i].cap) == MG_OK);
  }
  CHECK(mg_cut_run(&f, 0, 1, &value) == MG_OK);
  for (uint32_t side = 0; side < 1u << nv; side++)
    if ((side & 2) && !(side & 1) && crossing(e, ne, side) < best) best = crossing(e, ne, side);
  if (best >= MG_CUT_INF) {
    CHECK(value >= MG_CUT_INF);
  } else {
    for (uint32_t v = 0; v < nv; v++) got |= (uint32_t)f.to_sink[v] << v;
    CHECK(value == best && (got & 3) == 2 && crossing(e, ne, got) == best);
    for (uint32_t side = 0; side < 1u << nv;
         side++) /* the nearest to the sink: inside of every other minimum cut */
      if ((side & 2) && !(side & 1) && crossing(e, ne, side) == best) CHECK((got & ~side) == 0);
  }
  mg_ctx_free(&c);
}

/* The shape of a joint graph: a chain of values that each feed the next few, each read by the sink. */
static void long_chain(uint32_t n) {
  MgCtx c;
  MgCut f;
  int64_t value;
  clock_t t0 = clock();
  mg_ctx_init(&c);
  CHECK(mg_cut_init(&f, &c, 2 * n + 2) == MG_OK);
  for (uint32_t v = 1; v <= n; v++) {
    mg_cut_edge(&f, 2 * v, 2 * v + 1, 1 + rnd(1 << 20));
    if (v % 7 == 0 || v == 1) mg_cut_edge(&f, 0, 2 * v, MG_CUT_INF);
    for (uint32_t k = 1; k <= 3 && v % 7; k++)
      if (v > k) mg_cut_edge(&f, 2 * (v - k) + 1, 2 * v, MG_CUT_INF);
    if (rnd(3) == 0) mg_cut_edge(&f, 2 * v + 1, 1, MG_CUT_INF);
  }
  CHECK(mg_cut_run(&f, 0, 1, &value) == MG_OK && value > 0 && value < MG_CUT_INF);
  double ms = (double)(clock() - t0) * 1e3 / CLOCKS_PER_SEC;
  printf("%u values: %.2f ms\n", n, ms);
  CHECK(ms < 1000);
  mg_ctx_free(&c);
}

int main(void) {
  for (int i = 0; i < 3000; i++) random_graph();
  long_chain(3000);
  long_chain(50000);
  return test_done();
}
