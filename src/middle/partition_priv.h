/* Shared by the partition*.c files; not for other folders. */
#ifndef MG_PARTITION_PRIV_H
#define MG_PARTITION_PRIV_H
#include "middle/partition.h"

typedef struct Part {
  MgGraph *g;
  MgJoint *j;
  const MgSimplifyOpts *o;
  bool *dep;  /* per value: known in backward only */
  bool *late; /* per node: belongs to backward */
  bool *save; /* per value: backward receives it */
  bool *done; /* per value: defined in the backward graph so far */
} Part;

/* Whether value v is memory of the program's that backward may use as it is; a copy otherwise. */
bool part_lent(const Part *p, ValRef v);
/* The value that node n's results are views of, or 0. */
ValRef part_viewed(const MgNode *n);
/* Needs no tensor: constants and index ranges. */
bool part_is_constant(const MgNode *n);
/* Fills p->save. */
MgRc part_choose(Part *p);
#endif
