/* Why a graph ends: names and hints of breaks.def. */
#ifndef MG_BREAK_REASONS_H
#define MG_BREAK_REASONS_H
#include <stdbool.h>

typedef enum MgBreakCode {
#define BREAKCODE(name, passes, hint) BK_##name,
#include "entry/launch/breaks.def"
  BK__COUNT
} MgBreakCode;
const char *mg_break_name(MgBreakCode code);
const char *mg_break_hint(MgBreakCode code);
/* True if a tensor or mode of the call is the reason, so that another call may not break there. */
bool mg_break_passes(MgBreakCode code);
#endif
