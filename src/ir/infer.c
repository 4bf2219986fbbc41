#include "ir/graph.h"
MgRc mg_infer(MgGraph *g, NodeRef n) { return MG_UNSUP; }
