/* torch.func in an FX graph: entering and leaving a transform, wrapping and unwrapping tensors, and the
 * engine of its gradients are calls of torch's own functions there, as torch.compile shows them; what the
 * program does in between are calls on the wrappers. */
#ifndef MG_FX_FUNCTORCH_H
#define MG_FX_FUNCTORCH_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef struct MgCall MgCall;
typedef struct MgCapture MgCapture;

/* Records a call of such a function, and shows it.  False: it is another function, or no FX graph of
 * torch-level calls is written. */
bool mg_fxfunc_call(const MgCall *c, PyObject **out);
#endif
