/* May a place that no entry fits be compiled? */
#ifndef MG_DRIVE_POLICY_H
#define MG_DRIVE_POLICY_H
#include <stdbool.h>
#include "frame/stance.h"

typedef struct MgBucket MgBucket;
typedef struct MgDrive MgDrive;
typedef struct MgEntry MgEntry;
typedef struct MgGuardFail MgGuardFail;
typedef struct MgSite MgSite;
typedef struct MgSlots MgSlots;

typedef enum MgDriveVerdict {
  VERDICT_compile,
  VERDICT_alone, /* not together with the frames that wait for this one: the bucket is eager now */
  VERDICT_walk,  /* compiled too often, and never with an op: the bucket walks now (interpreted_loops.h) */
  VERDICT_limit, /* compiled too often: the bucket is eager now, and the user was told */
  VERDICT_eager, /* the stance, or too little memory */
  VERDICT_fail   /* an exception is set */
} MgDriveVerdict;

/* Counts the miss, and learns what changes from call to call, if it may be compiled.  compiled: something was
 * compiled for this very look-up already. */
MgDriveVerdict mg_drive_verdict(MgDrive *d, MgSite *site, MgBucket *b, const MgSlots *slots, int unit,
                                MgStance stance, bool compiled);
/* Why entry e does not fit; false if it does. */
bool mg_drive_differs(MgEntry *e, const MgSlots *slots, MgGuardFail *why);
#endif
