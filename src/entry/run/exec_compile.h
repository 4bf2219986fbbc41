/* Compiling the graph of an entry into its plan. */
#ifndef MG_EXEC_COMPILE_H
#define MG_EXEC_COMPILE_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "base/ctx.h"

typedef struct MgAutograd MgAutograd;
typedef struct MgExec MgExec;
typedef struct MgExprs MgExprs;
typedef struct MgGraph MgGraph;
typedef struct MgOptions MgOptions;
typedef struct MgTrace MgTrace;

/* Compiles a graph into e->plan (and e->written), for inputs of which the written ones are alone.  1: done;
 * 0: the graph stays with the node run, *rc says why when compiling failed; -1 with an exception. */
int mg_exec_compile(MgExec *e, const MgTrace *t, const MgOptions *opt, PyObject *const *example, MgRc *rc);
/* The same, with a warning (an error in tests) when compiling failed. */
int mg_exec_build_plan(MgExec *e, const MgTrace *t, const MgOptions *opt, PyObject *const *example);
/* The same for a graph with backward, into e->grad.  plans: made already, for these sizes
 * too (mg_autograd_build_at). */
int mg_exec_build_grad(MgExec *e, const MgTrace *t, PyObject *const *example, MgAutograd *plans,
                       const int64_t *sizes, uint32_t n);
/* Compiles it; recording: as MgTrace.recording.  NULL with an exception. */
MgExec *mg_exec_piece(MgCtx *ctx, MgExprs *x, MgGraph *g, PyObject *objs, const MgOptions *opt,
                      uint64_t recording, PyObject *const *in);
/* Is no input over the memory of one that is written?  written: NULL for none.  Runs on every call: a table
 * of begins makes it one pass.  False: out of memory, too. */
bool mg_exec_alone(const bool *written, uint32_t n, PyObject *const *in);
#endif
