/* Runs what an entry holds: its plan, its graph op by op, or what a custom back end gave. */
#ifndef MG_EXEC_RUN_H
#define MG_EXEC_RUN_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef struct MgClaims MgClaims;
typedef struct MgGraph MgGraph;
typedef struct MgPlan MgPlan;
typedef struct MgConfig MgConfig;
typedef struct MgExec MgExec;
typedef struct MgExecAt MgExecAt;
typedef struct MgTrace MgTrace;
typedef struct MgSnapshot MgSnapshot;
PyObject *
mg_exec_compiled(const MgExec *e); /* borrowed: what other instances may share (MgRec's peers); or NULL */
void mg_exec_free(MgExec *e);
bool mg_exec_keeps_random(const MgExec *e); /* may a run be given up after random numbers were drawn? */
int mg_exec_run(MgExec *e, PyObject **vals, MgExecAt *at,
                PyObject **outs); /* takes at; outs: new references */
/* Sets autograd's mode; which one it was. */
bool mg_exec_set_grad(bool mode);
void mg_exec_log_graph(const MgGraph *g);
/* Have nodes that run one by one the gradients that the program's autograd.Functions define?
 * 0, or -1 with an exception. */
int mg_exec_nodes_differentiate(const MgTrace *t);
/* An error of ours in a plan: the exception becomes a warning, and the nodes run from now on.
 * -1: the warning is an error. */
int mg_exec_give_up_plan(MgExec *e);
/* claims: what a run has to find before it writes; NULL: nothing.  0, -1 with an exception, or a code of a
 * run (results.h). */
int mg_exec_dispatch(MgExec *e, PyObject *const *in, MgExecAt *at, MgClaims *claims, PyObject **outs);
int mg_exec_plan(MgPlan *p, PyObject *const *in, const int64_t *sizes, MgClaims *claims,
                 PyObject **outs); /* as mg_planrun */
#endif
