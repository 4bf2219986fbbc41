/* Backward plans for runs in which some gradients of results are undefined.
 * PyTorch's engine does not run what only such gradients reach; a plan that takes zeros for them would, and
 * an infinite derivative makes NaN of a zero.  In: the backward graph, kept since it was compiled.  Out: a
 * plan for each set of defined gradients that makes a difference, compiled when it first occurs. */
#ifndef MG_UNDEFINED_TANGENTS_H
#define MG_UNDEFINED_TANGENTS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "base/ctx.h"
#include "driver/options.h"
#include "ir/expr/expr.h"
#include "ir/graph/graph.h"

typedef struct MgAutograd MgAutograd;
typedef struct MgPlan MgPlan;

typedef struct MgGradKept { /* what compiling again takes */
  MgCtx ctx;
  MgExprs x;
  MgGraph g;      /* backward */
  PyObject *objs; /* strong: what MA_object arguments index; or NULL */
  MgOptions opt;
} MgGradKept;

/* With an empty graph; NULL with an exception. */
MgGradKept *mg_gradgiven_keep(PyObject *objs, const MgOptions *opt);
void mg_gradgiven_forget(MgGradKept *k);
/* given: the set (base/bits.h) of defined tangents, not empty.  *bwd: the plan, borrowed from a; NULL: it has
 * to go op by op.  -1 with an exception. */
int mg_gradgiven_plan(MgAutograd *a, const uint64_t *given, MgPlan **bwd);
/* need[k]: a pass with these tangents reads saved value k.  -1 with an exception. */
int mg_gradgiven_needs(const MgAutograd *a, const uint64_t *given, bool *need);
void mg_gradgiven_free(MgAutograd *a);
#endif
