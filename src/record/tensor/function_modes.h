/* torch_function modes of the program that are active when a recording begins.  Their handlers are Python
 * code of the program, which C++ calls in the middle of torch-level calls and which is recorded like any
 * other; so the modes are sources, and the torch-level graph, whose own mode lies below them, holds what they
 * made of the calls: runs have them off. */
#ifndef MG_FUNCTION_MODES_H
#define MG_FUNCTION_MODES_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef struct MgCapture MgCapture;
typedef struct MgRec MgRec;
int mg_fmodes_check(MgRec *r);   /* -1 with a break: the program has entered or left one */
bool mg_fmodes_on_top(MgRec *r); /* is the innermost one, which a call would be handed to, the program's? */
struct MgCall;
/* A question about torch_function: only torch's own functions, which hand their calls on then, see
 * the mode of the recording. */
PyObject *mg_fmodes_ask(const struct MgCall *c, bool by_torch);
/* Are exactly the modes active that were at the beginning, above ours? */
bool mg_fmodes_same(const MgCapture *cap, Py_ssize_t ours);
#endif
