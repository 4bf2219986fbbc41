/* A recorded frame: the state of its eval loop. */
#ifndef MG_LOOP_H
#define MG_LOOP_H
#include "host/python/pyframe.h"

typedef struct MgCode MgCode;
typedef struct MgInstr MgInstr;
typedef struct MgRec MgRec;

typedef enum MgStep { /* what a handler asks the loop to do next */
                      STEP_next,
                      STEP_error,   /* an exception is set: add a traceback entry, then unwind */
                      STEP_reraise, /* the same without the traceback entry */
                      STEP_leave,   /* the stack is as before: CPython executes this instruction, and it ends
                                       the frame's run */
                      STEP_unknown  /* the stack is as before: this loop cannot execute it */
} MgStep;
typedef enum MgLoopEnd {
  LOOP_stop,   /* before instruction `unit`, as asked for */
  LOOP_leave,  /* at instruction `unit`, which CPython has to execute: return, yield, reraise */
  LOOP_error,  /* exception set, no handler in this frame; at `in` */
  LOOP_abort,  /* recording: mg_rec->abort is set */
  LOOP_unknown /* plain: CPython has to go on at `unit` */
} MgLoopEnd;
typedef struct MgOuter { /* how far a frame is: the outermost one of a recording, an inlined one, or one that
                            is stepped */
  long n;                /* instructions started */
  long stop_at;          /* stop once n of them are done; -1: never */
  long
      descend; /* the recording is to end inside of the frame that instruction number n calls; -1: not here */
  long tail;   /* trivial instructions executed last, without a gap */
  bool direct; /* inlined: what this frame returns is the result of the instruction that runs in the one above
                */
  bool *untouched; /* recording, per slot at the start: still holds the frame's own, unwrapped value */
  int nslot;       /* entries of untouched */
  int base;        /* where the frame's slots begin in MgSlots */
  int raw;         /* stack entries, from the bottom, that are still unwrapped */
  int exc_depth;   /* exceptions that became the handled one since the start */
  long exc_n;      /* n of the instruction that raised the outermost of them */
} MgOuter;
typedef struct MgOpenJump { /* a jump whose answer is claimed, and whose other way leads to `end`
                               (jump_joins.h) */
  int next, end;            /* units: where it goes on, where both ways may meet */
  long nbytecode;           /* MgRec.nbytecode at the jump */
  PyObject *claim;          /* entry of the claims, borrowed; only compared */
} MgOpenJump;
typedef struct MgLoop {
  PyThreadState *ts;
  MgFrame *f;
  MgFrameView v;
  const MgCode *code;
  PyObject **sp, **base; /* next free stack slot; bottom of the stack */
  const MgInstr *in;     /* being executed */
  int unit;              /* the next one */
  MgRec *rec;            /* NULL: plain execution */
  MgOuter *outer;        /* NULL in frames that are inlined into a recording */
  MgOuter *at;           /* progress: outer, or the inlined frame's own */
  struct MgLoop *up;     /* recording: the frame that is executing an instruction which led here */
  bool direct;           /* as in MgOuter */
  uint32_t nnode;        /* size of the graph when the frame started */
  int nopen;
  MgOpenJump open[4];
} MgLoop;
struct MgLoop;

/* Of the frame l that is recorded: its value stack, variables, names and constants. */
#define PUSH(v) (*l->sp++ = (v))
#define POP() (*--l->sp)
#define TOS() (l->sp[-1])
#define PEEK(i) (l->sp[-(i)])
#define SLOT(i) (l->v.slot[i])
#define CO_NAME(i) PyTuple_GET_ITEM(l->v.code->co_names, i)
#define CO_CONST(i) PyTuple_GET_ITEM(l->v.code->co_consts, i)
#endif
