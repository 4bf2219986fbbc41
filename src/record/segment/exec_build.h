/* From a recording to what its entry runs. */
#ifndef MG_EXEC_BUILD_H
#define MG_EXEC_BUILD_H
#include <stdbool.h>
#include <stdint.h>

typedef struct MgConfig MgConfig;
typedef struct MgExec MgExec;
typedef struct MgRec MgRec;
typedef struct MgSnapshot MgSnapshot;
typedef struct MgViewState MgViewState;

/* Turns the recorded graph into something that runs, by the backend of the callable. NULL with exception. */
MgExec *mg_exec_build(MgRec *r, const struct MgConfig *cfg, const MgSnapshot *snap);
/* Takes over what the recording knows of symbols, with its graph when there is something to run.  plans:
 * compile it.  -1 with an exception. */
int mg_execsizes_take(MgExec *e, MgRec *r, const MgConfig *cfg, bool graph, bool plans);
/* What a run of this graph leaves to be done, for graph inputs in their order; *s NULL:
 * nothing.  -1 with an exception. */
int mg_viewstate_build(const MgRec *r, MgViewState **s);
/* By output: 1 + whether it has to be an inference tensor, 0 where a run makes what the program has to get;
 * malloc'ed, NULL: all are 0.
 * -1 with an exception. */
int mg_inference_mode_outputs(const MgRec *r, uint8_t **want);
#endif
