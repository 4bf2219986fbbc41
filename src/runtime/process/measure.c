/* The clock of reports, and the roofline of the machine.
 * In: nothing.  Out: milliseconds of ticks; bandwidth and multiply-adds a second, the best of a few rounds.
 */
#include "runtime/process/measure.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/compiler.h"
#include "base/ctx.h"
#include "base/log.h"
#include "runtime/process/cpu.h"
#include "runtime/process/threads.h"

bool mg_measure_on;
static double measure_ms0; /* 0: not begun */
static uint64_t measure_ticks0;

void mg_measure_start(void) {
  mg_measure_on = true;
  if (measure_ms0) return;
  measure_ms0 = mg_now_ms();
  measure_ticks0 = mg_ticks();
}

double mg_ticks_ms(uint64_t ticks) {
  const double enough = 2; /* milliseconds: the clocks are then read to 1e-4 */
  if (!measure_ms0) mg_measure_start();
  while (mg_now_ms() - measure_ms0 < enough) continue;
  double ms = mg_now_ms() - measure_ms0;
  return (double)ticks * ms / (double)(mg_ticks() - measure_ticks0);
}

double mg_measure_at(uint64_t tick) {
  if (!measure_ms0) mg_measure_start();
  return tick > measure_ticks0 ? mg_ticks_ms(tick - measure_ticks0) : 0;
}

/* ---- the roofline ---- */

enum { ROOF_FLOATS = 8 << 20, ROOF_PARTS = 64, ROOF_ROUNDS = 6, ROOF_TURNS = 1 << 14, ROOF_CHAINS = 10 };

/* Per vector level: to = a + b/2 over large arrays, and chains of multiply-adds that do not wait for each
 * other. */
#define ROOF_SET(set, attributes, lanes)                                                                     \
  typedef float RoofVec##set __attribute__((vector_size(4 * (lanes)), aligned(4)));                          \
  __attribute__((target(attributes))) static void roof_triad_##set(void *const *buf, const int64_t *size,    \
                                                                   int64_t begin, int64_t end) {             \
    const int64_t part = ROOF_FLOATS / ROOF_PARTS / (lanes);                                                 \
    RoofVec##set *restrict to = buf[0];                                                                      \
    const RoofVec##set *restrict a = buf[1], *restrict b = buf[2];                                           \
    for (int64_t i = begin * part; i < end * part; i++) to[i] = a[i] + b[i] * 0.5f;                          \
  }                                                                                                          \
  __attribute__((target(attributes))) MG_CONTRACT static void roof_chain_##set(                              \
      void *const *buf, const int64_t *size, int64_t begin, int64_t end) {                                   \
    RoofVec##set v[ROOF_CHAINS], by = {0};                                                                   \
    float *out = buf[0];                                                                                     \
    by += 0.999f;                                                                                            \
    for (int i = 0; i < ROOF_CHAINS; i++) v[i] = by + (float)i;                                              \
    for (int64_t t = begin * ROOF_TURNS; t < end * ROOF_TURNS; t++)                                          \
      _Pragma("GCC unroll 10") for (int i = 0; i < ROOF_CHAINS; i++) v[i] = v[i] * by + by;                  \
    for (int i = 0; i < ROOF_CHAINS; i++) out[begin] += v[i][0];                                             \
  }
ROOF_SET(v2, "sse4.2", 4)
ROOF_SET(v3, "avx2,fma", 8)
ROOF_SET(v4, "avx512f,fma", 16)

static double roof_best(MgRange r, unsigned threads) {
  double best = 0;
  for (int i = 0; i < ROOF_ROUNDS; i++) {
    double t = mg_now_ms();
    mg_threads_run(&r, 1, threads);
    t = mg_now_ms() - t;
    if (!i || t < best) best = t;
  }
  return best;
}

void mg_roofline(unsigned threads, MgRoofline *out) {
  float *mem = mg_calloc(3 * (size_t)ROOF_FLOATS, sizeof *mem);
  void *buf[] = {mem, mem ? mem + ROOF_FLOATS : NULL, mem ? mem + 2 * (size_t)ROOF_FLOATS : NULL};
  const MgCpu *cpu = mg_cpu();
  int lanes = cpu->vector_bits / 32;
  int set = lanes == 16 ? 2 : lanes == 8 && cpu->fma ? 1 : 0;
  static const MgRangeFn triads[] = {roof_triad_v2, roof_triad_v3, roof_triad_v4};
  static const MgRangeFn chains[] = {roof_chain_v2, roof_chain_v3, roof_chain_v4};
  *out = (MgRoofline){0};
  if (!mem) return; /* no memory: unknown */
  for (size_t i = 0; i < 3 * (size_t)ROOF_FLOATS; i++) mem[i] = 1;
  MgRange triad = {.fn = triads[set], .buf = buf, .n = ROOF_PARTS, .grain = 1, .work = ROOF_FLOATS};
  MgRange chain = {.fn = chains[set], .buf = buf, .n = ROOF_PARTS, .grain = 1, .work = ROOF_TURNS};
  lanes = 4 << set;
  out->gbps = 3.0 * sizeof *mem * ROOF_FLOATS / roof_best(triad, threads) * 1e-6;
  out->gflops =
      2.0 * lanes * ROOF_CHAINS * ROOF_TURNS * (double)ROOF_PARTS / roof_best(chain, threads) * 1e-6;
  free(mem);
}
