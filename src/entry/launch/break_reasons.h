/* Why a graph ends: names and hints of breaks.def. */
#ifndef MG_BREAK_REASONS_H
#define MG_BREAK_REASONS_H

typedef enum MgBreakCode {
#define BREAKCODE(name, hint) BK_##name,
#include "entry/launch/breaks.def"
  BK__COUNT
} MgBreakCode;
const char *mg_break_name(MgBreakCode code);
const char *mg_break_hint(MgBreakCode code);
#endif
