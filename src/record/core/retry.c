/* The table of retries.def, and how a recording fails one of its rows. */
#include "record/core/retry.h"
#include "entry/launch/config.h"
#include "entry/run/entry_cache.h"
#include "record/core/recording.h"

const MgRetryRow mg_retry_row[RETRY__COUNT] = {
#define MG_RETRY(name, when, then, fullgraph, kept, failed, denied)                                          \
  [RETRY_##name] = {#name, failed, denied, RETRY_WHEN_##when, RETRY_##then, fullgraph, kept},
#include "record/core/retries.def"
};

void mg_retry_fail(MgRec *r, MgRetryKind k) {
  const MgRetryRow *row = &mg_retry_row[k];
  if (!row->fullgraph && r->cfg && r->cfg->fullgraph) return;
  r->retry.failed |= 1u << (mg_retry_denied(r, k) ? row->then : k);
}
