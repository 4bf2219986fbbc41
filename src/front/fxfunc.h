/* torch.func in an FX graph: entering and leaving a transform, wrapping and unwrapping tensors, and the engine of its gradients are
 * calls of torch's own functions there, as torch.compile shows them; what the program does in between are calls on the wrappers. */
#ifndef MG_FRONT_FXFUNC_H
#define MG_FRONT_FXFUNC_H
#include "front/fx.h"
#include "front/record_obj.h"

/* Records a call of such a function, and shows it.  False: it is another function, or no FX graph of torch-level calls is written. */
bool mg_fxfunc_call(const MgCall *c, PyObject **out);
/* The value that stands for a wrapper in the FX graph; 0: o is none, or with an exception. */
ValRef mg_fxfunc_val(MgCapture *cap, PyObject *o);
#endif
