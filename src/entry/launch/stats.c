/* Counters of what was compiled, run and given up. */
#include "entry/launch/stats.h"

MgStats mg_stats;
