/* Jumps whose two ways meet before anything happens: which way is taken does not matter. */
#ifndef MG_JUMP_JOINS_H
#define MG_JUMP_JOINS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>

typedef struct MgInstr MgInstr;
typedef struct MgLoop MgLoop;

/* At a jump: the unit at which code goes on behind `unit`, when jumps and constants are followed.  Globals
 * and locals that are followed are guarded.  -1 with an exception or a break. */
int mg_join_end(MgLoop *l, int unit);
/* The jump `in` goes on with its next instruction, because of the last entry of the claims.  Its other way
 * leads to `end`. */
void mg_join_open(MgLoop *l, const MgInstr *in, int end);
/* Both ways of the jump `in` lead to `end`: drops the claims of open jumps of this frame from which nothing
 * but harmless questions were asked since, if they lead there as well.  0, or -1 with an exception. */
int mg_join_close(MgLoop *l, const MgInstr *in, int end);
#endif
