/* The recording's place on torch's stack of dispatch modes. */
#ifndef MG_MODE_STACK_H
#define MG_MODE_STACK_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>

typedef struct MgCapture MgCapture;

PyObject *mg_dispatch_with_mode(MgCapture *cap, PyObject *f, PyObject *args, PyObject *kwargs);
/* f(*args, **kwargs) with the mode on, from inside of its handler. */
/* Takes the recording's mode from torch's stack and puts it back (keeping an exception that is set): in
 * between, torch computes.  -1 with an exception. */
int mg_dispatch_leave(MgCapture *cap);
int mg_dispatch_return(MgCapture *cap);
extern PyObject *mg_dispatch_push, *mg_dispatch_pop; /* torch's functions for the mode stack */
#endif
