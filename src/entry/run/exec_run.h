/* Runs what an entry holds: its plan, its graph op by op, or what a custom back end gave. */
#ifndef MG_EXEC_RUN_H
#define MG_EXEC_RUN_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

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
#endif
