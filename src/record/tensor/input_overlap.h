/* Guards about memory that inputs share. */
#ifndef MG_INPUT_OVERLAP_H
#define MG_INPUT_OVERLAP_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "ir/graph/graph.h"

typedef struct MgApart MgApart;
typedef struct MgRec MgRec;

/* The recording relies on where in its storage v begins: so do the inputs over that memory. */
void mg_alias_guard_start(MgRec *r, ValRef v);
int mg_alias_guards(MgRec *r); /* at the end of a recording; -1 with an exception */
#endif
