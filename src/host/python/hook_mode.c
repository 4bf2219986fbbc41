/* What the frame hook of this thread does, and into which recording. */
#include "host/python/hook_mode.h"
#include <stddef.h>

_Thread_local MgRec *mg_rec;
PyObject *MgBreakError;

MgPause mg_rec_pause(void) {
  MgPause p = {mg_rec, mg_hook_mode};
  mg_rec = NULL;
  mg_hook_mode = HOOK_off;
  return p;
}

void mg_rec_resume(MgPause p) {
  mg_rec = p.rec;
  mg_hook_mode = (MgHookMode)p.mode;
}

_Thread_local MgHookMode mg_hook_mode;
