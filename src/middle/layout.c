/* Memory formats inside the graph. */
#include "middle/middle.h"

MgRc mg_layout(MgGraph *g, const MgSimplifyOpts *o) { return MG_OK; }
