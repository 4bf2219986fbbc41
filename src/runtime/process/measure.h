/* Measuring what runs, for reports (magneto.report, MAGNETO_REPORT).  Off: each place costs one test.
 * Times are ticks of the processor's clock, which all x86-64-v2 machines count at one rate.  Counters are
 * added to without locks: two threads at once may lose a sample. */
#ifndef MG_MEASURE_H
#define MG_MEASURE_H
#include <stdbool.h>
#include <stdint.h>

extern bool mg_measure_on;

typedef struct MgTicks { /* of what ran several times */
  uint64_t ticks, n;
} MgTicks;

static inline uint64_t mg_ticks(void) { return __builtin_ia32_rdtsc(); }
static inline void mg_ticks_add(MgTicks *t, uint64_t since) {
  uint64_t took = mg_ticks() - since;
  __atomic_store_n(&t->ticks, __atomic_load_n(&t->ticks, __ATOMIC_RELAXED) + took, __ATOMIC_RELAXED);
  __atomic_store_n(&t->n, __atomic_load_n(&t->n, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
}
/* Of calls that were counted: is this one looked at closely?  The first few, then one in 16. */
static inline bool mg_measure_closely(uint64_t call) { return call < 4 || call % 16 == 0; }
void mg_measure_start(void);        /* from here on; may be called again */
double mg_ticks_ms(uint64_t ticks); /* by the rate since the start; waits until some time has passed */

double mg_measure_at(uint64_t tick); /* milliseconds from the start of measuring to a tick */

/* What this machine can do at most, measured in about 0.1 s on `threads` threads. */
typedef struct MgRoofline {
  double gbps;   /* memory of a size that no cache holds, read and written */
  double gflops; /* multiply-adds of float32 in registers */
} MgRoofline;
void mg_roofline(unsigned threads, MgRoofline *out);
#endif
