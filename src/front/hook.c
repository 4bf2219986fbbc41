/* The PEP 523 hook. */
#include "front/rec.h"
#include "front/hook.h"

_Thread_local MgHookMode mg_hook_mode;
