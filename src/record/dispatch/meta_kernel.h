/* Results of ops that have no rule in ir/infer: torch's meta kernels tell their shapes. */
#ifndef MG_META_KERNEL_H
#define MG_META_KERNEL_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "ir/graph/graph.h"

typedef struct MgFrontOp MgFrontOp;
typedef struct MgRec MgRec;

/* May the op's kernel itself be asked, on zeros, whether it takes such arguments?  Then
 * mg_metainfer_run raises what it raises. */
bool mg_metainfer_asks(MgRec *r, const struct MgFrontOp *fo, NodeRef n);
/* Does it raise, as far as its dtypes or the op make that likely?  The exception is set then. */
bool mg_metainfer_rejects(MgRec *r, const struct MgFrontOp *fo, NodeRef n);
void mg_metainfer_reset(void);
int mg_metainfer_run(MgRec *r, const struct MgFrontOp *fo, NodeRef n, PyObject **pyret);
/* The same where sizes are symbols: the kernel, one of torch's in Python where there is one, computes with
 * them.  exact: not if it wants the number of a size, which is guarded otherwise.  -1: it cannot (with an
 * exception, and maybe a break). */
int mg_metainfer_symbolic(MgRec *r, const struct MgFrontOp *fo, NodeRef n, bool exact, PyObject **pyret);
#endif
