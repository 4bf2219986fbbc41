/* The PEP 523 hook: which frames are recorded, compiled, or left to CPython. */
#ifndef MG_EVAL_FRAME_H
#define MG_EVAL_FRAME_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "host/python/hook_mode.h"

typedef struct MgConfig MgConfig;

typedef struct MgHookState { /* of a thread, saved around a compiled call */
  MgHookMode mode;
  const struct MgConfig *cfg;
  PyCodeObject *root;
} MgHookState;

/* Turns the hook on for a call of compiled code: frames are compiled by cfg; the next frame of `root` is
 * compiled whatever file it is from.  Pairs with mg_hook_leave on the same thread. */
MgHookState mg_hook_enter(const struct MgConfig *cfg, PyCodeObject *root);
void mg_hook_leave(MgHookState before);
int mg_hook_init(PyObject *module); /* -1 with an exception */
#endif
