/* Times of a plan's runs.  See the header.
 * Most runs are only timed as a whole.  In a run that is looked at closely each kernel has a parallel region
 * of its own, so its steps take a little longer than in the others. */
#include "runtime/plan/plan_times.h"
#include <stdlib.h>
#include <string.h>
#include "base/ctx.h"

MgPlanTimes *mg_plan_times_new(uint32_t nstep) {
  MgPlanTimes *t = mg_calloc(1, sizeof *t + nstep * sizeof *t->step);
  if (!t) return NULL;
  t->nstep = nstep;
  atomic_init(&t->refs, 1);
  return t;
}

MgPlanTimes *mg_plan_times_keep(MgPlanTimes *t) {
  if (t) atomic_fetch_add(&t->refs, 1);
  return t;
}

void mg_plan_times_drop(MgPlanTimes *t) {
  if (t && atomic_fetch_sub(&t->refs, 1) == 1) free(t);
}

bool mg_plan_times_begin(MgPlanTimes *t) {
  uint64_t call = __atomic_fetch_add(&t->begun, 1, __ATOMIC_RELAXED);
  bool closely = mg_measure_closely(call);
  if (call == 1) memset(t->step, 0, t->nstep * sizeof *t->step); /* the first run says little of the others */
  return closely;
}

void mg_plan_times_end(MgPlanTimes *t, bool closely, uint64_t ticks) {
  t->to = mg_ticks();
  if (!t->first) {
    t->first = ticks ? ticks : 1;
    t->from = t->to - ticks;
    return;
  }
  t->runs.ticks += ticks;
  t->runs.n++;
  if (!closely) return;
  t->closely.ticks += ticks;
  t->closely.n++;
}
