/* Compiling a recorded graph with a custom backend. */
#ifndef MG_EXEC_BACKEND_H
#define MG_EXEC_BACKEND_H

typedef struct MgConfig MgConfig;
typedef struct MgExec MgExec;
typedef struct MgRec MgRec;

/* Calls cfg->backend with the torch-level graph, unless another module instance has the same one compiled.
 * -1 with an exception; the recording has failed a retry where another attempt may go. */
int mg_exec_build_backend(MgExec *e, MgRec *r, const MgConfig *cfg);
/* Nothing can go on with symbolic sizes: fails this retry, with an exception. */
void mg_exec_refuse_sizes(MgRec *r, const char *why);
#endif
