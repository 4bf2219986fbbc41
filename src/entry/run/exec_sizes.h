/* Graphs with symbolic sizes: which sizes an entry takes, and what is compiled for them. */
#ifndef MG_EXEC_SIZES_H
#define MG_EXEC_SIZES_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include "base/ctx.h"
#include "driver/options.h"
#include "entry/guard/source_kinds.h"
#include "entry/run/whole.h"
#include "ir/expr/expr.h"
#include "ir/graph/graph.h"
#include "tuning.h"

typedef struct MgClaims MgClaims;
typedef struct MgAutograd MgAutograd;
typedef struct MgCapInput MgCapInput;
typedef struct MgExecSizes MgExecSizes;
typedef struct MgFunction MgFunction;
typedef struct MgJointRec MgJointRec;
typedef struct MgPlan MgPlan;

typedef struct MgExec MgExec;
typedef struct MgExecAt MgExecAt;

enum {
  SIZES_nobody,
  SIZES_rule,
  SIZES_torch
}; /* ir/infer/infer; torch's meta kernel, whose answers may differ at other sizes */

struct MgExecAt {
  uint32_t refs; /* the table's, and one for each run from mg_exec_fits to its end */
  uint64_t used; /* clock of the last run */
  bool fits;     /* inference agrees with the sizes that the recording gave out */
  bool refused;  /* no plan with symbols can be made for it */
  uint32_t plan; /* the one that served it last */
  MgWhole whole; /* is CPython faster at these sizes? */
  MgExec *run;   /* with numbers, but maybe shared plans; NULL: not needed yet */
  int64_t env[]; /* by symbol */
};

typedef struct SizesGraph SizesGraph;
typedef struct MgVerify MgVerify;

typedef struct MgSizeProof MgSizeProof;

typedef struct SizesPlan {
  MgPlan *plan;
  bool *written;    /* as MgExec.written */
  MgVerify *verify; /* as MgExec.verify */
} SizesPlan;

struct MgExecSizes {
  SrcRef *src; /* by symbol */
  uint32_t n;
  MgCtx ctx; /* the recording's arena, taken over */
  MgExprs x;
  MgGraph g;         /* no node: nothing is run, only the symbols' values are checked */
  SymRef *symbol;    /* by symbol: what guards say that it equals */
  uint8_t *inferred; /* by node: who tells its results (SIZES_*) */
  bool (*agrees)(const MgExecSizes *s, SizesGraph *t,
                 NodeRef n); /* does torch's meta kernel give node n the results that t has? */
  bool *used;                /* by symbol: the graph mentions it; others are no part of an assignment */
  bool plans;                /* compile; else node by node */
  char name[80];             /* of what was recorded, for profilers */
  uint64_t recording;        /* its number, for reports */
  MgOptions opt;
  PyObject *objs;              /* strong: what MA_object arguments index */
  MgJointRec *joint;           /* in ctx; NULL: no backward */
  struct MgFunction *function; /* the calls of autograd.Function; in ctx */
  struct MgHooked *hooked;     /* hooks that are part of the gradient graph; in ctx */
  MgCapInput *input;           /* with it: the capture's, for their values only; in ctx */
  uint32_t ninput;
  MgAutograd *grad[MG_TUNE_SIZES_PLANS]; /* with it, instead of plan; strong */
  SizesPlan plan[MG_TUNE_SIZES_PLANS];
  uint32_t nplan, nfailed;
  uint32_t nstopped; /* compilations given up for signals */
  MgExecAt **at;
  uint32_t nat, cap;
  MgSizeProof *proof; /* where it holds, inference agrees; NULL: there is none */
  uint32_t nproof;    /* how often one was looked for */
  uint32_t nrun;      /* assignments with a plan of their own */
  uint64_t clock;
  MgVerify *verify; /* what all of its graphs count by; NULL: nothing is verified */
};

struct SizesGraph { /* the graph for one use */
  MgCtx ctx;
  MgExprs x;
  MgGraph g;
};

/* The guards hold; is it also right at the sizes of this run?  *at: what mg_exec_run is to get, or NULL. */
bool mg_exec_fits(MgExec *e, PyObject *const *vals, MgExecAt **at);
void mg_exec_leave(MgExecAt *at); /* instead of a run; or NULL */
/* Out of `from`, with backward, with numbers or with symbols whose hints are env.  False: out of memory;
 * freed by the caller in every case. */
bool mg_sizes_graph(const MgExecSizes *s, const MgGraph *from, const int64_t *env, bool symbols,
                    SizesGraph *t);
bool mg_execsizes_has_graph(const MgExecSizes *s);
bool mg_execsizes_has_plans(const MgExecSizes *s); /* it is compiled with symbols, or for each assignment */
int mg_execsizes_run(MgExec *e, PyObject *const *in, MgExecAt *at, MgClaims *claims, PyObject **outs);
void mg_execsizes_free(MgExecSizes *s);

/* size_proof.c: inference agrees with the graph at the hints of t's symbols; of which other sizes does that
 * follow?  inferred: as MgExecSizes.  t is spoiled.  NULL: not known, or out of memory. */
MgSizeProof *mg_size_proof_new(SizesGraph *t, const uint8_t *inferred);
bool mg_size_proof_holds(const MgSizeProof *p, const int64_t *env); /* NULL: false */
void mg_size_proof_free(MgSizeProof *p);
#endif
