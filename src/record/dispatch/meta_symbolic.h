/* Results of ops that ir/infer/infer has no rule for, where sizes of their
 * arguments are symbols of inputs. */
#ifndef MG_META_SYMBOLIC_H
#define MG_META_SYMBOLIC_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "ir/graph/graph.h"

typedef struct MgFrontOp MgFrontOp;
typedef struct MgRec MgRec;
/* Fills in the results of node n with what follows from such sizes.  False: it cannot, and nothing has
 * changed (r->abort: torch's error). */
bool mg_symfollow(MgRec *r, const struct MgFrontOp *fo, NodeRef n, PyObject **pyret);
#endif
