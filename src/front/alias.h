/* Guards about memory that inputs share. */
#ifndef MG_FRONT_ALIAS_H
#define MG_FRONT_ALIAS_H
#include "front/rec.h"

/* What must not overlap: tensors and arrays of different groups of which one is written to. */
typedef struct MgApartItem {
  SrcRef src;
  uint32_t group : 31; /* those that shared one storage; where they lie in it is guarded one by one */
  uint32_t written : 1;
  uintptr_t lo, hi;    /* the bytes that it had in the last check; hi 0 before */
} MgApartItem;

typedef struct MgApart {
  uint32_t n, bad[2]; /* the items that overlapped in a check that failed */
  MgApartItem *item;
  uint32_t *order;    /* of the items, by lo; nearly right from one check to the next */
} MgApart;

/* The recording relies on where in its storage v begins: so do the inputs over that memory. */
void mg_alias_guard_start(MgRec *r, ValRef v);
int mg_alias_guards(MgRec *r); /* at the end of a recording; -1 with an exception */
bool mg_apart_holds(MgApart *a, PyObject *const *vals); /* O(items) as long as no memory moves */
bool mg_alias_writes(MgRec *r);  /* does the graph write to an input?  Yes, with an exception, when out of memory */
void mg_apart_free(MgApart *a);
#endif
