/* What the frame hook of this thread does, and into which recording. */
#ifndef MG_HOOK_MODE_H
#define MG_HOOK_MODE_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>

typedef struct MgRec MgRec;

typedef enum MgHookMode {
  HOOK_off,     /* every frame of this thread goes to CPython */
  HOOK_compile, /* frames of user code are looked up and compiled */
  HOOK_record   /* frames are part of the recording in mg_rec */
} MgHookMode;
extern _Thread_local MgHookMode mg_hook_mode;
extern PyObject *MgBreakError;      /* BaseException subclass that unwinds an aborted recording */
extern _Thread_local MgRec *mg_rec; /* NULL: this thread is not recording */
/* Suspends recording and the frame hook of this thread, so that what runs until mg_rec_resume is not part of
 * the user's program (glue, torch's own Python, lru_cache bodies without tensors). */
typedef struct MgPause {
  MgRec *rec;
  int mode;
} MgPause;
MgPause mg_rec_pause(void);
void mg_rec_resume(MgPause p);
#endif
