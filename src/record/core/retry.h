/* What a recording could not go on with, and what is denied to it: two sets over the rows of retries.def. */
#ifndef MG_RETRY_H
#define MG_RETRY_H
#include <stdbool.h>
#include <stdint.h>

typedef struct MgRec MgRec;

typedef enum MgRetryKind {
#define MG_RETRY(name, ...) RETRY_##name,
#include "record/core/retries.def"
  RETRY__COUNT
} MgRetryKind;

typedef enum MgRetryWhen { /* moments of an attempt, see the picture in retries.def */
                           RETRY_WHEN_next,
                           RETRY_WHEN_broken,
                           RETRY_WHEN_raised,
                           RETRY_WHEN_snapshot,
                           RETRY_WHEN_built,
                           RETRY_WHEN_ended
} MgRetryWhen;

typedef struct MgRetry {
  uint32_t failed; /* bit k: this recording could not go on with what row k names */
  uint32_t denied; /* bit k: it does without from the start */
} MgRetry;
_Static_assert(RETRY__COUNT <= 32, "a row is a bit of MgRetry");

typedef struct MgRetryRow { /* the columns of retries.def */
  const char *name, *failed, *denied;
  MgRetryWhen when;
  MgRetryKind then;
  bool fullgraph;
  uint8_t kept;
} MgRetryRow;
extern const MgRetryRow mg_retry_row[RETRY__COUNT];

/* The recording cannot go on with row k: fails it, or the row that takes its place. */
void mg_retry_fail(MgRec *r, MgRetryKind k);

static inline bool mg_retry_in(uint32_t set, MgRetryKind k) { return set >> k & 1; }
#endif
