/* Counters of what was compiled, run and given up. */
#ifndef MG_STATS_H
#define MG_STATS_H
#include "entry/launch/break_reasons.h"
#include "runtime/process/measure.h"

typedef struct MgStats { /* counters since the last reset; read by tests and explain */
  long graphs;           /* entries with at least one op */
  long joint_graphs;     /* of them: forward and backward compiled */
  long entries, recompiles, hits, misses, fallbacks;
  long attempts;          /* recordings, restarts included */
  long bytecodes;         /* instructions recorded */
  long breaks[BK__COUNT]; /* entries that end in a break, by reason */
  long left; /* how often a place was left to CPython because it cost more than it brought (frame_cost.h) */
  long stopped;  /* recordings and compilations that were given up, since a signal waited (interrupt.h) */
  long inferred; /* assignments of sizes at which a recorded graph was inferred again (exec_sizes.h) */
  long verified, differed; /* runs that were compared with eager before, and those that differed */
  double record_ms, compile_ms;
  MgTicks calls; /* for reports: of compiled callables, the outermost ones */
} MgStats;
extern MgStats mg_stats;
#endif
