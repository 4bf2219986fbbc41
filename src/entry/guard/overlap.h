/* Which of the tensors that a call is given may share memory: the answer that an entry was made for. */
#ifndef MG_OVERLAP_H
#define MG_OVERLAP_H
#include <stdint.h>
#include "entry/guard/source_kinds.h"

/* What must not overlap: tensors and arrays of different groups of which one is written to. */
typedef struct MgApartItem {
  SrcRef src;
  uint32_t group : 31; /* those that shared one storage; where they lie in it is guarded one by one */
  uint32_t written : 1;
  uintptr_t lo, hi; /* the bytes that it had in the last check; hi 0 before */
} MgApartItem;
typedef struct MgApart {
  uint32_t n, bad[2]; /* the items that overlapped in a check that failed */
  MgApartItem *item;
  uint32_t *order; /* of the items, by lo; nearly right from one check to the next */
} MgApart;
bool mg_apart_holds(MgApart *a, PyObject *const *vals); /* O(items) as long as no memory moves */
void mg_apart_free(MgApart *a);
#endif
