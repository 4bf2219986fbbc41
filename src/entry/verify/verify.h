/* Options "verify" and "verify_every": some runs of a compiled graph are compared with eager before the
 * program's own run.
 * Both ways run on inputs that the program does not see, so a run that is verified gives what it gives
 * without.  Python decides what is equal (magneto._trust.beside). */
#ifndef MG_VERIFY_H
#define MG_VERIFY_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct MgAutograd MgAutograd;
typedef struct MgNodeRun MgNodeRun;
typedef struct MgOptions MgOptions;
typedef struct MgPlan MgPlan;
typedef struct MgTrace MgTrace;

/* Which runs of one compiled graph are verified. */
typedef struct MgVerify {
  unsigned first, every; /* the first ones; one in `every` of all, 0: none */
  unsigned long ncall;
  uint64_t recording; /* which one the graph comes from, for reports */
  unsigned refs;      /* graphs of other sizes, out of one recording, count together */
  bool writes;        /* the graph may write to its inputs */
  bool differs;       /* a run was not what eager is: all of these graphs run op by op */
} MgVerify;

/* The two ways of running one graph, borrowed.  grad NULL: nodes and plan. */
typedef struct MgVerifyWays {
  const MgNodeRun *nodes;
  MgPlan *plan;
  const int64_t *sizes; /* values of the plan's symbols; NULL: there are none */
  MgAutograd *grad;
  unsigned ninput, noutput;
} MgVerifyWays;

/* New; NULL without an exception: nothing is verified, or out of memory. */
MgVerify *mg_verify_new(const MgOptions *o, bool writes, uint64_t recording);
/* What one of several graphs holds, *mine, becomes what they share, which the first one sets. */
void mg_verify_share(MgVerify **mine, MgVerify **shared);
void mg_verify_free(MgVerify *v); /* or NULL */
/* Counts a run, and says whether it is to be verified. */
bool mg_verify_due(MgVerify *v);
/* Compares the ways of a graph of v on inputs, which are borrowed and left as they are.
 * 0: the compiled graph does what eager does, or that cannot be told here.
 * 1: it does not; v->differs is set, and the user was told.
 * -1 with an exception: the program's own (Ctrl-C), or v->differs is set and the telling raised (strict mode,
 * or warnings are errors). */
int mg_verify_compare(MgVerify *v, const MgVerifyWays *w, PyObject *const *in);
/* With MAGNETO_REPRO, around compiling a graph: before, what is compiled goes to a file, which a crash leaves
 * there.  Failures are only logged. */
void mg_verify_announce(const MgTrace *t, const MgNodeRun *nodes, PyObject *const *in);
/* After it, the file goes.  why: the graph could not be compiled, which is shown by a program; or NULL. */
void mg_verify_compiled(const MgTrace *t, const char *why);
int mg_verify_init(PyObject *module);
#endif
