/* See the header. */
#include "frame/headroom.h"
#include "base/env.h"
#include "base/log.h"
#include "base/memory_room.h"
#include "entry/launch/config.h"
#include "entry/launch/stats.h"
#include "host/python/hook_mode.h"

int mg_headroom_short(const MgConfig *cfg) {
  static const char text[] = "magneto: too little memory is left to compile; frames run eagerly";
  static bool said;
  if (mg_room() >= MG_ROOM_GRAPH) return 0;
  mg_stats.fallbacks++;
  mg_log(MG_LOG_fallback, "too little memory is left to compile");
  if (mg_strict() || cfg->fullgraph) return PyErr_SetString(PyExc_MemoryError, text), -1;
  if (said) return 1;
  said = true;
  MgHookMode mode = mg_hook_mode;
  mg_hook_mode = HOOK_off; /* showing a warning is Python code */
  int rc = PyErr_WarnEx(PyExc_RuntimeWarning, text, 1);
  mg_hook_mode = mode;
  return rc ? -1 : 1;
}
