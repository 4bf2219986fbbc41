/* The PEP 523 hook: which frames are recorded, compiled, or left to CPython. */
#ifndef MG_FRONT_HOOK_H
#define MG_FRONT_HOOK_H
#include "front/pyframe.h"

typedef enum MgHookMode {
  HOOK_off,     /* every frame of this thread goes to CPython */
  HOOK_compile, /* frames of user code are looked up and compiled */
  HOOK_record   /* frames are part of the recording in mg_rec */
} MgHookMode;

extern _Thread_local MgHookMode mg_hook_mode;

struct MgConfig;
typedef struct MgHookState { /* of a thread, saved around a compiled call */
  MgHookMode mode;
  const struct MgConfig *cfg;
  PyCodeObject *root;
} MgHookState;

/* Turns the hook on for a call of compiled code: frames are compiled by cfg; the next frame of `root` is compiled
 * whatever file it is from.  Pairs with mg_hook_leave on the same thread. */
MgHookState mg_hook_enter(const struct MgConfig *cfg, PyCodeObject *root);
void mg_hook_leave(MgHookState before);
/* In a forked process, whose one thread is this one. */
void mg_hook_after_fork(void);
#endif
