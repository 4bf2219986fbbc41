/* Global torch state that a recording changes (grad mode, autocast): undone when the recording ends, replayed at the end of
 * the segment. */
#ifndef MG_FRONT_EFFECT_H
#define MG_FRONT_EFFECT_H
#include "front/rec.h"
#include "front/state.h"

/* What to set after a segment has run; empty when the state is as before. */
typedef struct MgStateChange {
  bool any;
  MgTorchState before, after;
  int32_t autocast_depth; /* levels of `with torch.autocast` entered, less those left */
  PyObject *settings; /* of setting.c, strong; NULL when none */
} MgStateChange;

/* The change since the recording began. -1 with a break when it cannot be replayed. */
int mg_effect_state_change(MgStateChange *c);
/* Sets every field that differs. -1 with an exception. */
int mg_effect_apply(const MgTorchState *from, const MgTorchState *to);
#endif
