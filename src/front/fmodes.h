/* torch_function modes of the program that are active when a recording begins.  Their handlers are Python code of the program,
 * which C++ calls in the middle of torch-level calls and which is recorded like any other; so the modes are sources, and the
 * torch-level graph, whose own mode lies below them, holds what they made of the calls: runs have them off. */
#ifndef MG_FRONT_FMODES_H
#define MG_FRONT_FMODES_H
#include "front/standin.h"

/* Notes the active modes; ours (NULL: none) goes below them.  -1 with an exception. */
int mg_fmodes_begin(MgCapture *cap, PyObject *ours);
void mg_fmodes_restore(MgCapture *cap);  /* the stack as it was, whatever is on it now; keeps an exception that is set */
void mg_fmodes_leave(void);               /* takes all from the stack, until mg_fmodes_restore */
Py_ssize_t mg_fmodes_depth(void);         /* of torch's stack, ours included */
int mg_fmodes_wrap(MgRec *r);            /* makes them older objects; -1 with an exception */
int mg_fmodes_check(MgRec *r);           /* -1 with a break: the program has entered or left one */
bool mg_fmodes_on_top(MgRec *r);         /* is the innermost one, which a call would be handed to, the program's? */
PyObject *mg_fmodes_at(Py_ssize_t i);    /* borrowed from torch's stack; NULL with an exception */
struct MgCall;
/* A question about torch_function: only torch's own functions, which hand their calls on then, see the mode of the recording. */
PyObject *mg_fmodes_ask(const struct MgCall *c, bool by_torch);
PyObject *mg_fmodes_off(void);            /* a context without modes and subclasses, entered: see mg_context_exit */
PyObject *mg_fmodes_only(void);           /* the same without subclasses: modes are active */
#endif
