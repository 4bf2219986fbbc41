/* Grad mode (fx_graph.h), autocast and inference mode in an FX graph: calls that enter and leave them,
 * written when the next operation needs them. */
#ifndef MG_FX_MODES_H
#define MG_FX_MODES_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef struct MgCapture MgCapture;

typedef struct MgFxState MgFxState;

/* Writes the nodes that bring the graph's modes to torch's state now, or (end) to
 * what they were at the start. */
int mg_fxstate_follow(MgCapture *cap, MgFxState *s, bool end);
bool mg_fx_called_grad(const MgCapture *cap); /* the mode in which the graph is called */
void mg_fx_end_grad(MgCapture *cap, PyObject *const *slot, int n);
/* Autograd's mode around a segment's graph, set at its start and end in a frame with these slots (outer
 * frames first): the one outside of the frame's `with` blocks of torch.no_grad and the like.  torch.compile
 * leaves these at a break and enters them anew behind it, and so each graph has what it needs of them. */
void mg_fx_start_grad(MgCapture *cap, PyObject *const *slot, int n);
/* A node that switches autograd, when the mode changed since the last one. */
int mg_fx_follow_grad(MgCapture *cap, bool now);
int mg_fx_repeat_grad(MgCapture *cap, bool now); /* a node even when the mode is that already */
#endif
