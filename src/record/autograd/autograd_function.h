/* autograd.Function in a recording: its forward and backward are recorded like everything else, and PyTorch's
 * own engine on stand-ins ties them together.  What is kept of a call is needed when the graph has to run op
 * by op under autograd: the ops of forward know nothing of the backward that the user wrote, so the function
 * itself is called in their place. */
#ifndef MG_AUTOGRAD_FUNCTION_H
#define MG_AUTOGRAD_FUNCTION_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef struct MgCall MgCall;
typedef struct MgCapture MgCapture;
typedef struct MgFunction MgFunction;
typedef struct MgRec MgRec;

/* Since torch 2.14 apply is C code that calls Python first: it binds defaults, and inside of transforms does
 * the rest.  Here this Python is recorded.  True: *out is what the call gives. */
bool mg_function_begin(const MgCall *c, PyObject **out);
/* Records a call of _FunctionBase.apply while autograd is on. */
PyObject *mg_function_apply(const MgCall *c);
/* Records a call of the register_hook or register_prehook of such a call's node: what it
 * returns is the recording's own. */
PyObject *mg_function_hook(const MgCall *c);
/* Records torch's custom_function_call(cls, *args), what apply is inside of transforms, for a torch-level
 * graph.  False: there is none. */
bool mg_function_transformed(const MgCall *c, PyObject **out);
#endif
