/* Scopes of steps for profilers, with the shapes of what the steps read. */
#ifndef MG_PLAN_SCOPE_H
#define MG_PLAN_SCOPE_H
#include "base/ctx.h"

typedef struct MgPlanShape { /* of a tensor that a step reads */
  int32_t dtype;             /* torch's number */
  uint8_t ndim;
  const int64_t *size; /* numbers; below 0: -1 - the slot of one */
} MgPlanShape;

typedef struct MgPlanScope { /* what profilers show of a step */
  const char *label;         /* NULL: unknown */
  const MgPlanShape *shape;
  uint32_t nshape;
} MgPlanScope;

/* Copies what profilers show of a step into this memory. */
MgRc mg_plan_scope_keep(MgCtx *mem, MgPlanScope *scope);
/* A new scope of a step; slot: sizes of the run; otherwise: the name of a step that has none.  NULL where
 * none can be made; mg_profile_end ends it. */
void *mg_plan_scope_begin(const int64_t *slot, const MgPlanScope *scope, const char *otherwise);
#endif
