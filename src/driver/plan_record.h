/* Records of compilations, for reports: what each made, of which nodes, and why.
 * Only while mg_measure_on; then every compilation leaves a record, which lives until mg_records_reset.
 * Every function takes a NULL record and does nothing.  A record that runs out of memory is left incomplete,
 * and the compilation goes on. */
#ifndef MG_PLAN_RECORD_H
#define MG_PLAN_RECORD_H
#include "ir/graph/graph.h"
#include "runtime/code/kernel_cache.h"
#include "runtime/plan/plan_times.h"

typedef struct MgFused MgFused;
typedef struct MgHostOps MgHostOps;
typedef struct MgJoint MgJoint;
typedef struct MgKernelSet MgKernelSet;
typedef struct MgMemPlan MgMemPlan;
typedef struct MgPlanExt MgPlanExt;
typedef struct MgSched MgSched;

enum { MG_RECORD_STAGES = 16 };

typedef struct MgNodeRecord {
  const char *op;   /* "aten::add.Tensor"; NULL: there is no such node */
  const char *file; /* as MgNode.file */
  const char *text; /* its line of the graph's text, which ends at a newline */
  uint32_t line;
  bool backward, view;
  uint32_t *input; /* numbers of the inputs among its arguments */
  uint32_t ninput;
} MgNodeRecord;

typedef struct MgGraphRecord {
  const char *text;
  MgNodeRecord *node; /* by NodeRef */
  uint32_t nnode;
} MgGraphRecord;

typedef struct MgStepRecord {
  const char *label; /* as profilers show it */
  const char *runs;  /* "kernel", "host", or the library's name: "onednn.matmul" */
  const char *op;    /* of a call */
  const NodeRef *node;
  uint32_t nnode; /* what it computes: nodes of `compiled` */
  double bytes, flops;
  const char *loops;  /* of a kernel: its nests */
  const char *code;   /* its LLVM or PTX text; NULL: not kept */
  MgKey key;          /* equal kernels share one */
  uint8_t origin;     /* MgCodeOrigin */
  const char *apart;  /* why it is not part of an earlier kernel */
  int32_t apart_from; /* that kernel's step; -1: none */
} MgStepRecord;

typedef struct MgBlockRecord { /* memory of the arena */
  uint64_t offset, bytes;      /* with symbols: bytes at the sizes of the recording, offset 0 */
  uint32_t first, last;        /* steps that it is alive in */
  NodeRef node;                /* whose value is in it first; 0: a library's scratch */
} MgBlockRecord;

typedef struct MgSavedRecord { /* what backward takes from forward */
  uint8_t kind;                /* MgSavedKind */
  uint32_t index;              /* MgSaved.index */
  NodeRef node;                /* of the joint graph, that makes it; 0: an input */
  const char *op;              /* its op, or NULL */
  const char *type;            /* "f32[8, 64]" */
  const char *file;            /* as MgNode.file */
  uint32_t line;
  uint64_t bytes;
} MgSavedRecord;

typedef struct MgPlanRecord {
  struct MgPlanRecord *next; /* older ones */
  MgCtx mem;                 /* owns all of it */
  long number;               /* of the compilation */
  uint64_t recording;        /* MgHostOps.recording */
  const char *what;          /* "", "joint", "forward", "backward" */
  const char *label;
  const char *failed;                /* why there is no plan; NULL: there is one */
  uint64_t begun;                    /* the tick when the compilation began */
  double ms;                         /* of the compilation */
  double stage_ms[MG_RECORD_STAGES]; /* by stages.def */
  double emit_ms, llvm_ms, load_ms;
  uint32_t ncompiled;
  const char *stored, *stored_note; /* a name of MgStoredFate, and words on it; NULL: nothing is to be said */
  bool cuda;                        /* kernels are PTX */
  MgGraphRecord recorded, compiled; /* as the passes got it, and as they left it */
  MgStepRecord *step;
  uint32_t nstep;
  MgBlockRecord *block;
  uint32_t nblock;
  MgBlockRecord *eager; /* memory that `recorded` takes node by node: first and last are nodes, offset is 0 */
  uint32_t neager;
  MgSavedRecord *saved;
  uint32_t nsaved;
  uint64_t arena, input_bytes, output_bytes, saved_bytes;
  bool dynamic;
  const char *symbols; /* a line for each: "s0 = 4 in [2, 100]" */
  const char *facts;   /* what was assumed of them, a line each */
  MgPlanTimes *times;  /* NULL: no plan */
} MgPlanRecord;

extern const char *const mg_stage_names[]; /* NULL-terminated */

/* A record for a compilation that begins; NULL: none is wanted, or there is no memory. */
MgPlanRecord *mg_record_new(long number, const char *what, const MgHostOps *h);
void mg_record_graph(MgPlanRecord *r, MgGraphRecord *to, const MgGraph *g);
/* The graph as it came to the passes, and what it takes when run op by op. */
void mg_record_recorded(MgPlanRecord *r, const MgGraph *g);
/* What is known of its plan on disk: a literal, and words that are copied, or NULL. */
void mg_record_stored(MgPlanRecord *r, const char *fate, const char *note);
/* What backward saves of the joint graph. */
void mg_record_saved(MgPlanRecord *r, const MgGraph *joint, const MgJoint *j);
void mg_record_stage(MgPlanRecord *r, unsigned stage, double ms);
/* What the back end made, before the plan takes it over. */
void mg_record_steps(MgPlanRecord *r, const MgSched *s, const MgFused *f, const MgMemPlan *m,
                     const MgPlanExt *ext, const MgKernelSet *k);
void mg_record_symbols(MgPlanRecord *r, const MgGraph *g, const char *facts);
/* The compilation has ended: failed tells why there is no plan, or is NULL.  The record joins the others. */
void mg_record_end(MgPlanRecord *r, double ms, const char *failed);

/* The newest one; the caller holds the GIL, as compilations do. */
const MgPlanRecord *mg_records(void);
void mg_records_reset(void);
#endif
