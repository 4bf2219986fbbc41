/* The PEP 523 hook: which frames are recorded, compiled, or left to CPython. */
#ifndef MG_FRONT_HOOK_H
#define MG_FRONT_HOOK_H

typedef enum MgHookMode {
  HOOK_off,     /* every frame of this thread goes to CPython */
  HOOK_compile, /* frames of user code are looked up and compiled */
  HOOK_record   /* frames are part of the recording in mg_rec */
} MgHookMode;

extern _Thread_local MgHookMode mg_hook_mode;
#endif
