/* A graph whose sizes depend on its data, run in stages: what has constant sizes is compiled, in as few
 * pieces as the order of reads and writes allows; the rest is called node by node, with sizes
 * that earlier stages gave. */
#ifndef MG_STAGED_EXEC_H
#define MG_STAGED_EXEC_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef struct MgConfig MgConfig;
typedef struct MgCtx MgCtx;
typedef struct MgExec MgExec;
typedef struct MgExprs MgExprs;
typedef struct MgGraph MgGraph;
typedef struct MgGuards MgGuards;
typedef struct MgOptions MgOptions;
typedef struct MgTrace MgTrace;

typedef struct MgStages MgStages;

/* Reads the graph of a recording (outputs set) and takes over its arena.  plans: compile; else every node is
 * called.  NULL with an exception. */
MgStages *mg_stages_build(const MgTrace *t, const MgConfig *cfg, bool plans);
bool mg_stages_keeps_random(const MgStages *s); /* may a run be given up after random numbers were drawn? */
/* in: borrowed real tensors in graph input order; outs: new references.  0, -1 with an exception,
 * MG_STAGES_OTHER without (results.h). */
int mg_stages_run(MgStages *s, const MgGuards *guards, PyObject *const *vals, PyObject *const *in,
                  PyObject **outs);
void mg_stages_free(MgStages *s);
#endif
