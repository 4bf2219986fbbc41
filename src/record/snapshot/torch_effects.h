/* Global torch state that a recording changes (grad mode, autocast): undone when the recording ends, replayed
 * at the end of the segment. */
#ifndef MG_TORCH_EFFECTS_H
#define MG_TORCH_EFFECTS_H

typedef struct MgRec MgRec;
typedef struct MgStateChange MgStateChange;
typedef struct MgTorchState MgTorchState;

/* The change since the recording began. -1 with a break when it cannot be replayed. */
int mg_effect_state_change(MgStateChange *c);
#endif
