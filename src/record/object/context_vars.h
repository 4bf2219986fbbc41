/* Context variables that the program reads and sets. */
#ifndef MG_CONTEXT_VARS_H
#define MG_CONTEXT_VARS_H

typedef struct MgRec MgRec;

/* Leaves the context that writes to context variables made; later calls do nothing. */
void mg_rec_context_undo(MgRec *r);
#endif
