/* Grad mode (fxgraph.h), autocast and inference mode in an FX graph: calls that enter and leave them, written when the next operation needs them. */
#ifndef MG_FRONT_FXSTATE_H
#define MG_FRONT_FXSTATE_H
#include "front/fx.h"
#include "front/state.h"

typedef struct MgFxMode { /* one mode that the graph has entered */
  MgTorchState before;    /* the state without it */
  uint32_t node;          /* the node that entered it */
  bool inference;         /* inference mode; else autocast */
  bool grad;              /* the grad mode without it */
} MgFxMode;

typedef struct MgFxState {
  bool begun;
  MgTorchState start, now; /* at the start of the graph; as its nodes so far leave it */
  MgFxMode mode[16];
  int depth;
} MgFxState;

/* Writes the nodes that bring the graph's modes to torch's state now, or (end) to what they were at the start. */
int mg_fxstate_follow(MgCapture *cap, MgFxState *s, bool end);
#endif
