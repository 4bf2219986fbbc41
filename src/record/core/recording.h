/* One recording of a frame: state shared by the rooms of record.
 * The recorder is an eval loop on the user's real frame with real objects; only tensors are replaced by
 * stand-ins. Where an object came from (its source) hangs on identity.  Classes of objects: fresh (made while
 * recording), older (reached from a source: wrapped, shadowed, guarded), stand-in, opaque.
 * Conventions: `PyObject *` results are new references, arguments borrowed, unless said otherwise.  Functions
 * that can cannot go on call mg_rec_break and return NULL / -1 with MgBreakError set; every level unwinds. */
#ifndef MG_RECORDING_H
#define MG_RECORDING_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include "entry/launch/break_reasons.h"
#include "record/core/retry.h"
#include "runtime/engine/simd.h"

typedef struct MgCapture MgCapture;
typedef struct MgConfig MgConfig;
typedef struct MgCtx MgCtx;
typedef struct MgExprs MgExprs;
typedef struct MgGraph MgGraph;
typedef struct MgGuards MgGuards;
typedef struct MgIdent MgIdent;
typedef struct MgJointRec MgJointRec;
typedef struct MgLoop MgLoop;
typedef struct MgMap MgMap;
typedef struct MgSlots MgSlots;

typedef struct MgEffects MgEffects; /* torch_effects.c: ordered effects to replay (grad mode, globals ...) */
typedef struct MgExec MgExec;       /* exec_run.c: how an entry's graph is run */

/* Where a break happened: the recorded frames from the outermost one inwards, as long as each is called
 * directly by the one before, so that it can be made anew and resumed.  All counts are
 * instructions of that frame. */
typedef struct MgStop {
  long n, tail,
      exc_n; /* started; trivial ones at the end; the one that raised what is being handled, or -1 */
  int exc_depth;
  uint32_t nnode; /* size of the graph when the frame started */
  int line;       /* of the instruction */
  bool library;   /* code that is not compiled on its own */
} MgStop;
enum { MG_STOP_DEPTH = 16 };

typedef struct MgRec {
  MgCtx *ctx; /* memory and first error of this compilation */
  MgExprs *x;
  MgGraph *g; /* the ATen graph being recorded */
  MgIdent *ident;
  MgGuards *guards;
  MgEffects *effects;
  MgCapture *cap;
  bool abort;   /* set by mg_rec_break: everything unwinds, the driver places the break and records again */
  uint8_t code; /* MgBreakCode */
  char reason[256];     /* one line for users */
  const char *name;     /* of what is recorded, for profilers; NULL: the frame tells (source_place.h) */
  uint64_t recording;   /* its number, for reports; 0: none */
  uint32_t line;        /* source line of the outermost frame while recording */
  long nbytecode;       /* instructions executed, for statistics */
  bool calls_frame;     /* the next frame is given the arguments of a call by the program */
  bool called_frame;    /* the call that was done last went into a frame of its own */
  bool asked_compiling; /* the program was told that it is being compiled */
  bool in_joint;        /* the engine runs backward for the gradient graph: the program has ended */
  bool rehearsed;       /* it met a fake tensor: somebody asks for shapes */
  bool too_deep;        /* the C stack is nearly used up: nothing of this frame is compiled */
  MgRetry retry;        /* what it cannot go on with, and what is denied to it */
  bool filled_cache; /* an older cached function computed something, and may have changed what was met before:
                        see whether the guards hold */
  bool again;    /* what the recording met has changed meanwhile (a lazy module), or how to guard it is known
                    now: record again */
  bool need_fx;  /* tensors that wrap others were met: record again with a torch-level graph */
  bool own_fx;   /* it has one, which is no custom backend's */
  bool unrolls;  /* the rest of a loop that began before is recorded (older_iterators.h) */
  PyObject *ids; /* dict: what id() gave of objects made here, and which of the two a snapshot has met (True:
                    the number, False: the object) */
  PyObject *changed; /* set of names: numbers and sizes that the segment relied on and has changed */
  bool number_keys;  /* some dict has a number that runs compute as a key (number_index.h) */
  bool hashing;      /* such a number gives the hash of what it is now, without a guard */
  bool texts;        /* strings that nobody may read were made (lazy_text.h) */
  PyObject *handled; /* the exception that was being handled when the recording began; borrowed, or NULL */
  bool claims;       /* answers are taken for granted that each run looks at (speculation.h) */
  bool claims_early; /* assumed answers are looked at before anything is written to an input */
  bool raises;       /* what an op's kernel may raise is caught by the program (raising_ops.h) */
  bool swallows;     /* and a handler goes on after it, which has to run then */
  uint32_t checkpoint,
      ncheckpoint; /* the checkpointed block that runs, 0: none; how many there were (checkpoint.c) */
  PyObject *dynamic_sources;  /* list of patterns of sources whose numbers and sizes are inputs
                                 (automatic_dynamic.c): strong; or NULL */
  PyObject *unbacked_sources; /* the same, and nothing may be asked about them */
  PyObject *refused; /* ids of functions that the program keeps out of graphs (marked_functions.c): strong; or
                        NULL */
  PyObject *dyn;     /* floats that are inputs (automatic_dynamic.c): a set, strong; or NULL */
  const MgMap
      *transient; /* classes of modules that are made anew for each call (transient_modules.h); or NULL */
  const MgSlots *slots; /* of the outermost frame: its own values before and after the recording */
  bool want_fx;         /* a torch-level FX graph is wanted (custom backend, explain) */
  bool device_asked;    /* which CUDA device is current is guarded */
  int device;           /* that one; -1: none */
  PyObject *settings;   /* switches of torch that the recording has set (torch_switches.c), or NULL */
  PyObject *entered;    /* list of inference modes and devices that it has entered, innermost last; or NULL */
  int dual_levels;      /* levels of forward-mode differentiation that it has entered */
  const struct MgConfig *cfg; /* options of the callable that is being compiled */
  PyObject *peers; /* borrowed: list of what a custom backend compiled for other module instances; or NULL */
  struct MgLoop *top; /* innermost recorded frame */
  bool tail_call;     /* the next mg_rec_call gives the result of the running instruction as it is */
  bool bound;         /* the next mg_rec_call is of a Function.apply that has begun (autograd_function.h) */
  PyObject *direct;   /* borrowed: the function whose frame comes next, called so; NULL: no such call */
  MgStop path[MG_STOP_DEPTH]; /* filled by the first mg_rec_break */
  int npath;
  const MgStop *stop; /* where this recording has to end: n of each frame on the way, then of the last one */
  int nstop;          /* 0, 1: in the outermost frame, which knows by itself */
  int (*stopped)(struct MgRec *r,
                 struct MgLoop *inner); /* an inlined frame reached its stop: takes the snapshot */
  void *stopped_arg;
  PyObject *shown;          /* the graph as explain shows it, strong; or NULL */
  struct MgJointRec *joint; /* the gradient graph (joint_trace.c); NULL: not wanted, or ATen has to do it */
} MgRec;

static inline bool mg_retry_denied(const MgRec *r, MgRetryKind k) { return mg_retry_in(r->retry.denied, k); }
static inline bool mg_retry_failed(const MgRec *r, MgRetryKind k) { return mg_retry_in(r->retry.failed, k); }
/* Nothing is wrong with this recording, but those after it have k denied. */
static inline void mg_retry_deny(MgRec *r, MgRetryKind k) { r->retry.denied |= 1u << k; }
/* Forgets a failure of k that is newer than `before`. */
static inline void mg_retry_forget(MgRec *r, MgRetry before, MgRetryKind k) {
  r->retry.failed = (r->retry.failed & ~(1u << k)) | (before.failed & 1u << k);
}

/* Marks the recording as ended here. Always returns NULL, with MgBreakError set. */
PyObject *mg_rec_break(MgBreakCode code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
typedef struct MgExecAt MgExecAt; /* the sizes of one run */
/* Fills path (MG_STOP_DEPTH entries) from the frames being recorded; the number of entries. */
int mg_loop_path(const MgRec *r, MgStop *path);
/* The same while recording: true with a break set. */
bool mg_interrupt_break(void);
/* Tests: end a segment after every k-th instruction of its frame; or after k of any frame, if in
 * one that it calls (0: off). */
extern long mg_force_break, mg_force_inner;
#endif
