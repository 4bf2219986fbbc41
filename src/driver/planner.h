/* Schedule, memory plan and code -> the description of a run-time plan. */
#ifndef MG_PLANNER_H
#define MG_PLANNER_H
#include "base/ctx.h"

typedef struct MgEngine MgEngine;
typedef struct MgFused MgFused;
typedef struct MgKernelSet MgKernelSet;
typedef struct MgMemPlan MgMemPlan;
typedef struct MgPlanSpec MgPlanSpec;
typedef struct MgSched MgSched;
typedef struct MgSizeFacts MgSizeFacts;
typedef struct MgSized MgSized;
typedef struct MgStrbuf MgStrbuf;

/* One library engine or host call per extern step of f, chosen before memory is planned. */
typedef struct MgPlanExt {
  MgEngine *engine;     /* or NULL */
  const MgSized *sized; /* NULL, or how runs make theirs */
  uint32_t host_id;     /* without an engine */
} MgPlanExt;

/* Fills spec (tables in s->c's arena).  ext: per step.  Code, engines and host are put in by the caller. */
MgRc mg_planner_spec(MgSched *s, const MgFused *f, const MgMemPlan *m, const MgPlanExt *ext,
                     const MgKernelSet *k, const MgSizeFacts *facts, MgPlanSpec *spec);
/* The plan as text, for MAGNETO_LOGS=plan. */
void mg_planner_print(const MgSched *s, const MgFused *f, const MgMemPlan *m, const MgPlanExt *ext,
                      MgStrbuf *out);
#endif
