/* What fusion (fuse.c) and loop transformation (loopopt.c) share. */
#ifndef MG_BACK_FUSE_H
#define MG_BACK_FUSE_H
#include "back/back.h"

/* Fills kernel k with a transformed copy of one nest: loop order, collapsed ranges, vector index, parallel ranges. */
/* Drops ranges of 1, orders the others by stride and merges those that are one range in memory. In place. */
MgRc mg_loop_normalize(MgSched *s, MgLoop *l);
MgRc mg_loop_plan(MgSched *s, const MgLoop *l, MgKernel *k);
#endif
