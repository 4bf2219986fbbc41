/* Results of functions that return int, from host upward.
 * CPython's own come first: 0, or a number that is not negative, is the answer; -1 is an exception.
 * The codes here are those beyond.  A function names in its comment the codes that it returns. */
#ifndef MG_RESULTS_H
#define MG_RESULTS_H

enum {
  /* of a run: no input was written, so the graph or the frame may run in another way */
  MG_RUN_FAILED = -2,   /* with an exception: an error of ours in compiled code */
  MG_RUN_SIZES = -3,    /* the plan is not for these sizes */
  MG_STAGES_OTHER = -4, /* sizes that depend on data are not what the recording took them for */
  MG_CLAIM_FALSE = -5,  /* an assumed answer is another one */
  MG_RUN_RAISED = -6,   /* with an exception that eager raises, too: a check of data, or an op of ATen */
  MG_RUN_STOPPED = -7,  /* compiling was given up, since a signal waits (interrupt.h) */
  /* of a question */
  MG_ASK_PYTHON = -8 /* not a case of this function: ask the object itself, as CPython does */
};
#endif
