/* What runs of one plan took: shared by the plan and by the record of its compilation, which outlives it. */
#ifndef MG_PLAN_TIMES_H
#define MG_PLAN_TIMES_H
#include <stdatomic.h>
#include "runtime/process/measure.h"

typedef struct MgStepTime { /* of runs that were looked at step by step */
  uint64_t ticks, least;    /* of all of them; of the fastest */
  uint64_t n;
} MgStepTime;

typedef struct MgPlanTimes {
  atomic_int refs;
  MgTicks runs;      /* all runs but the first */
  MgTicks closely;   /* those of them whose steps were measured */
  uint64_t begun;    /* runs that were begun */
  uint64_t first;    /* ticks of the first run, which meets cold memory */
  uint64_t from, to; /* when that began, and when the last run ended */
  uint32_t nstep;    /* as many as the plan was described with */
  MgStepTime step[]; /* the first run's until there is another one */
} MgPlanTimes;

MgPlanTimes *mg_plan_times_new(uint32_t nstep); /* one reference; NULL: out of memory */
MgPlanTimes *mg_plan_times_keep(MgPlanTimes *t);
void mg_plan_times_drop(MgPlanTimes *t); /* NULL: nothing */
/* A run begins: are its steps measured? */
bool mg_plan_times_begin(MgPlanTimes *t);
void mg_plan_times_end(MgPlanTimes *t, bool closely, uint64_t ticks);
static inline void mg_plan_times_step(MgPlanTimes *t, uint32_t step, uint64_t since) {
  MgStepTime *s = &t->step[step];
  uint64_t took = mg_ticks() - since;
  s->ticks += took;
  if (!s->n++ || took < s->least) s->least = took;
}
#endif
