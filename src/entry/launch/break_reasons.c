/* Why a graph ends: names and hints of breaks.def. */
#include "entry/launch/break_reasons.h"

static const struct {
  const char *name, *hint;
  bool passes;
} break_reasons[] = {
#define BREAKCODE(name, passes, hint) {#name, hint, passes},
#include "entry/launch/breaks.def"
};

const char *mg_break_name(MgBreakCode code) { return code < BK__COUNT ? break_reasons[code].name : "?"; }

const char *mg_break_hint(MgBreakCode code) { return code < BK__COUNT ? break_reasons[code].hint : ""; }

bool mg_break_passes(MgBreakCode code) { return code < BK__COUNT && break_reasons[code].passes; }
