/* Values from outside of a region, given to it as arguments. */
#ifndef MG_FX_LIFT_H
#define MG_FX_LIFT_H
#include "entry/guard/source_kinds.h"
#include "ir/graph/graph.h"

typedef struct MgCapture MgCapture;

/* The placeholder of a region that stands for a value of the graph around it, borrowed;
 * NULL as for mg_fx_of_val. */
PyObject *mg_fx_lift(MgCapture *cap, ValRef val);
/* The same for a symbol, borrowed; NULL with an exception. */
PyObject *mg_fx_lift_number(MgCapture *cap, SrcRef src);
#endif
