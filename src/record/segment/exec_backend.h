/* Compiling a recorded graph with a custom backend. */
#ifndef MG_EXEC_BACKEND_H
#define MG_EXEC_BACKEND_H
#include <stdbool.h>

typedef struct MgConfig MgConfig;
typedef struct MgExec MgExec;
typedef struct MgRec MgRec;

/* Calls cfg->backend with the torch-level graph, unless another module instance has the same one compiled.
 * autograd: it has to see the run.  -1 with an exception; the recording has failed a retry where another
 * attempt may go.  1: nothing is done, since magneto's own backend takes the graph of ATen. */
int mg_exec_build_backend(MgExec *e, MgRec *r, const MgConfig *cfg, bool autograd);
/* Nothing can go on with symbolic sizes: fails this retry, with an exception. */
void mg_exec_refuse_sizes(MgRec *r, const char *why);
#endif
