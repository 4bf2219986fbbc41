/* One recording of a frame: state shared by the files of front/.
 * The recorder is an eval loop on the user's real frame with real objects; only tensors are replaced by stand-ins.
 * Where an object came from (its source) hangs on identity.  Classes of objects: fresh (made while recording),
 * older (reached from a source: wrapped, shadowed, guarded), stand-in, opaque.
 * Conventions: `PyObject *` results are new references, arguments borrowed, unless said otherwise.  Functions that can
 * cannot go on call mg_rec_break and return NULL / -1 with MgBreakError set; every level unwinds. */
#ifndef MG_FRONT_REC_H
#define MG_FRONT_REC_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "base/ctx.h"
#include "base/log.h"
#include "base/table.h"
#include "driver/compile.h"
#include "ir/graph.h"

typedef struct _PyInterpreterFrame MgFrame;  /* internals only in pyframe.c */
typedef uint32_t SrcRef;                     /* index into the guard set's sources; 0 is "none" */

/* What guards and snapshots see of a frame: its slots (locals, cells, then stack) and its function. On a hit from
 * the callable these are the bound arguments and no frame exists.  Frames that wait for this one, and may be recorded
 * with it, follow: the function, then the slots of each. */
typedef struct MgSlots {
  PyObject **slot;      /* borrowed; NULL entries are unbound */
  int n;
  PyObject *func;       /* the PyFunctionObject */
  PyObject *names;      /* recording: of the slots, None for those of a value stack; NULL: the locals of func's code */
} MgSlots;

typedef struct MgIdent MgIdent;       /* identity.c: original <-> what the recording sees */
typedef struct MgGuards MgGuards;     /* guard.c: sources and the flat guard program */
typedef struct MgEffects MgEffects;   /* effect.c: ordered effects to replay (grad mode, globals ...) */
typedef struct MgCapture MgCapture;   /* standin.c: tensor side (graph inputs, objects of arguments, FX nodes) */
typedef struct MgSnapshot MgSnapshot; /* snapshot.c: construction program */
typedef struct MgExec MgExec;         /* exec.c: how an entry's graph is run */

typedef enum MgBreakCode {
#define BREAKCODE(name, hint) BK_##name,
#include "front/breaks.def"
  BK__COUNT
} MgBreakCode;

/* Where a break happened: the recorded frames from the outermost one inwards, as long as each is called directly by the
 * one before, so that it can be made anew and resumed.  All counts are instructions of that frame. */
typedef struct MgStop {
  long n, tail, exc_n;  /* started; trivial ones at the end; the one that raised what is being handled, or -1 */
  int exc_depth;
  uint32_t nnode;       /* size of the graph when the frame started */
  int line;             /* of the instruction */
  bool library;         /* code that is not compiled on its own */
} MgStop;
enum { MG_STOP_DEPTH = 16 };

typedef struct MgRec {
  MgCtx *ctx;           /* memory and first error of this compilation */
  MgExprs *x;
  MgGraph *g;           /* the ATen graph being recorded */
  MgIdent *ident;
  MgGuards *guards;
  MgEffects *effects;
  MgCapture *cap;
  bool abort;           /* set by mg_rec_break: everything unwinds, the driver places the break and records again */
  uint8_t code;         /* MgBreakCode */
  char reason[256];     /* one line for users */
  uint32_t line;        /* source line of the outermost frame while recording */
  long nbytecode;       /* instructions executed, for statistics */
  bool calls_frame;     /* the next frame is given the arguments of a call by the program */
  bool called_frame;    /* the call that was done last went into a frame of its own */
  bool asked_compiling; /* the program was told that it is being compiled */
  bool in_joint;        /* the engine runs backward for the gradient graph: the program has ended */
  bool rehearsed;       /* it met a fake tensor: somebody asks for shapes */
  bool too_deep;        /* the C stack is nearly used up: nothing of this frame is compiled */
  bool function_failed; /* the backward of an autograd.Function cannot be recorded: record again with deny_function */
  bool deny_function;   /* calls of autograd.Function break the graph */
  bool hook_traced;     /* the custom backend cannot run hook_point: record again with deny_hook */
  bool filled_cache;    /* an older cached function computed something, and may have changed what was met before: see whether the guards hold */
  bool again;           /* what the recording met has changed meanwhile (a lazy module), or how to guard it is known now: record again */
  bool need_fx;         /* tensors that wrap others were met: record again with a torch-level graph */
  bool loop_failed;     /* a loop's body cannot be a part of the graph: record again with deny_loops */
  bool deny_loops;      /* loops over rows are unrolled */
  bool unrolls;         /* the rest of a loop that began before is recorded (iterator.h) */
  bool deny_unroll;     /* its iterator is not taken from */
  bool deny_hook;       /* hooks on tensors that the graph makes break it */
  bool sizes_failed;    /* something cannot go on with symbolic sizes: record again with deny_sizes */
  bool fixed_sizes;     /* the custom backend compiles for the sizes of its examples, which wrap tensors */
  bool deny_sizes;      /* every size of an input is a constant */
  bool data_failed;     /* something cannot go on with sizes that depend on data: record again with deny_data */
  bool deny_data;       /* they break the graph */
  bool switch_failed;   /* results want gradients after leaves were switched: record again with */
  bool deny_switch;     /* a change of requires_grad of older leaves breaks the graph */
  PyObject *ids;        /* dict: what id() gave of objects made here, and which of the two a snapshot has met (True: the number, False: the object) */
  bool ids_failed;      /* it has both, and the object will be another one: record again with */
  bool deny_ids;        /* id() of objects made here breaks the graph */
  bool texts;           /* strings that nobody may read were made (lazystr.h) */
  bool texts_failed;    /* somebody did: record again with */
  bool deny_texts;      /* they break the graph */
  PyObject *handled;    /* the exception that was being handled when the recording began; borrowed, or NULL */
  bool grad_failed;     /* results want gradients, in a graph with such sizes: record again with */
  bool deny_grad;       /* they break the graph where something requires grad */
  bool claims;          /* answers are taken for granted that each run looks at (claim.h) */
  bool claims_early;    /* they are looked at before anything is written to an input */
  bool claims_failed;   /* a run could not be given up when such an answer is the other one: record again with deny_claims */
  bool deny_claims;     /* questions whose other answer raises break the graph like others */
  bool false_claims;    /* because a run found the other answer */
  bool raises;          /* what an op's kernel may raise is caught by the program (raises.h) */
  bool swallows;        /* and a handler goes on after it, which has to run then */
  bool raises_failed;   /* it would be missed: record again with */
  bool deny_raises;     /* such ops break the graph */
  bool deny_compiling;  /* is_compiling() answers False: told True, this program raised */
  uint32_t checkpoint, ncheckpoint; /* the checkpointed block that runs, 0: none; how many there were (checkpoint.c) */
  PyObject *dynamic_sources; /* list of patterns of sources whose numbers and sizes are inputs (dynfloat.c): strong; or NULL */
  PyObject *unbacked_sources; /* the same, and nothing may be asked about them */
  PyObject *refused;    /* ids of functions that the program keeps out of graphs (marked.c): strong; or NULL */
  PyObject *dyn;        /* floats that are inputs (dynfloat.c): a set, strong; or NULL */
  const MgMap *transient; /* classes of modules that are made anew for each call (transient.h); or NULL */
  const MgSlots *slots; /* of the outermost frame: its own values before and after the recording */
  bool want_fx;         /* a torch-level FX graph is wanted (custom backend, explain) */
  PyObject *settings;   /* switches of torch that the recording has set (setting.c), or NULL */
  PyObject *entered;    /* list of inference modes and devices that it has entered, innermost last; or NULL */
  int dual_levels;      /* levels of forward-mode differentiation that it has entered */
  const struct MgConfig *cfg; /* options of the callable that is being compiled */
  PyObject *peers;      /* borrowed: list of what a custom backend compiled for other module instances; or NULL */
  struct MgLoop *top;   /* innermost recorded frame */
  bool tail_call;       /* the next mg_rec_call gives the result of the running instruction as it is */
  PyObject *direct;     /* borrowed: the function whose frame comes next, called so; NULL: no such call */
  MgStop path[MG_STOP_DEPTH]; /* filled by the first mg_rec_break */
  int npath;
  const MgStop *stop;   /* where this recording has to end: n of each frame on the way, then of the last one */
  int nstop;            /* 0, 1: in the outermost frame, which knows by itself */
  int (*stopped)(struct MgRec *r, struct MgLoop *inner); /* an inlined frame reached its stop: takes the snapshot */
  void *stopped_arg;
  struct MgJointRec *joint; /* the gradient graph (joint.c); NULL: not wanted, or ATen has to do it */
} MgRec;

extern _Thread_local MgRec *mg_rec;   /* NULL: this thread is not recording */
extern PyObject *MgBreakError;        /* BaseException subclass that unwinds an aborted recording */

/* Marks the recording as ended here. Always returns NULL, with MgBreakError set. */
PyObject *mg_rec_break(MgBreakCode code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
const char *mg_break_name(MgBreakCode code);
const char *mg_break_hint(MgBreakCode code);
/* Suspends recording and the frame hook of this thread, so that what runs until mg_rec_resume is not part of the
 * user's program (glue, torch's own Python, lru_cache bodies without tensors). */
typedef struct MgPause { MgRec *rec; int mode; } MgPause;
MgPause mg_rec_pause(void);
void mg_rec_resume(MgPause p);
/* Moves the recording's arena, and the graph in it, to an owner that outlives the recording, which is left without. */
void mg_rec_move_graph(MgRec *r, MgCtx *ctx, MgExprs *x, MgGraph *g);
/* A setting of torch._dynamo.config, new; NULL without an exception when nobody has imported that module.  Its __getattr__ is
 * Python, which no recording sees. */
PyObject *mg_rec_dynamo_config(const char *name);

/* ---- life of a recording; the driver (resume.c) calls these in this order ----
 *   mg_objects_begin, mg_standin_begin          on the unchanged frame
 *   ... the loop runs; operations below ...
 *   mg_snapshot_build                           when it stopped without an abort
 *   mg_joint_record                             backward of the results, while the stand-ins live
 *   mg_effects_undo, mg_standin_end             global torch state is as before; nothing is recorded from here on
 *   (the driver puts the frame's own values back)
 *   mg_exec_build, mg_guards_seal               with the recording over; may run Python (backends)
 *   mg_objects_end, mg_standin_free             free what the entry did not take (r->guards is NULL then)
 * After mg_objects_end every stand-in must be dead: mg_standin_alive(r) == 0, asserted in strict mode. */
int mg_objects_begin(MgRec *r, const MgSlots *s); /* makes ident, guards, effects; -1 with exception */
void mg_effects_undo(MgRec *r);
void mg_objects_end(MgRec *r);
int mg_standin_alive(MgRec *r);
void mg_standin_free(MgRec *r);

/* ---- identity.c, source.c, guard.c: reads ---- */
/* What the recording sees for an object read from src (0: reached through an identity-guarded owner, so the read
 * itself is guarded by its owner's dict/type guard): the object itself, a stand-in, or a shadow copy. */
PyObject *mg_wrap(PyObject *v, SrcRef src);
void mg_fresh(PyObject *o);           /* made while recording; keeps it alive until the end */
bool mg_is_fresh(PyObject *o);
/* Does code of the program run when o (or NULL), which is older than the recording, dies: a __del__, what a generator has left of a try
 * or with block? */
bool mg_end_runs_code(PyObject *o);
/* A reference to it goes, perhaps the last one: a break if so, since the recording would run that code at another time. */
bool mg_rec_finalizes(PyObject *o);
/* A Python function with this code starts on self: when it is an __init__ that C code has called, self is new. */
void mg_fresh_init(PyObject *self, PyCodeObject *co);
/* The same for a class whose __set_name__ or __init_subclass__ C code has called. */
int mg_fresh_class(PyObject *const *slot, PyCodeObject *co);
int mg_older_self(PyObject **slot, PyCodeObject *co); /* wraps the first slot of a frame that C code calls where it is an older object; -1: exception or break */
SrcRef mg_src_slot(int slot);         /* an entry of MgSlots */
SrcRef mg_src_closure(int i);         /* cell i of the outermost frame's function */

/* ---- record_attr.c, record_call.c, record_seq.c: operations, with the policy for older objects ---- */
PyObject *mg_rec_getattr(PyObject *o, PyObject *name);
int mg_rec_setattr(PyObject *o, PyObject *name, PyObject *v);          /* v NULL: delete */
PyObject *mg_rec_load_global(PyObject *globals, PyObject *builtins, PyObject *name);
int mg_rec_store_global(PyObject *globals, PyObject *name, PyObject *v); /* v NULL: delete */
PyObject *mg_rec_call(PyObject *f, PyObject *const *args, size_t nargsf, PyObject *kwnames);
PyObject *mg_rec_getitem(PyObject *o, PyObject *key);
int mg_rec_setitem(PyObject *o, PyObject *key, PyObject *v);           /* v NULL: delete */
PyObject *mg_rec_iter(PyObject *o);                                    /* GET_ITER */
PyObject *mg_rec_next(PyObject *it); /* FOR_ITER; NULL without error or with StopIteration (a result): exhausted */
int mg_rec_contains(PyObject *container, PyObject *x);
int mg_rec_is(PyObject *a, PyObject *b);                               /* IS_OP, aware of stand-ins and copies */
PyObject *mg_rec_special(PyObject *o, PyObject *name);                 /* type lookup + bind (__enter__ ...) */
/* Function entry while inlining, before its first instruction: wraps argument defaults (already bound to slots)
 * that come from outside the recording. */
int mg_rec_enter_function(PyObject *func, PyObject **slots, PyCodeObject *co);
/* Before a function runs unrecorded: nothing guards what it reads of the objects that it is given (an operator that is called), so
 * it is for these only. */
void mg_rec_pin_arguments(PyObject *const *slot, int n);
/* COPY_FREE_VARS while inlining: the cell that the frame must see for free variable i of func. */
PyObject *mg_rec_closure_cell(PyObject *func, int i);
/* C code of CPython itself is about to read o (operators, truth, unpacking, formatting, len): 0, or -1 with a break
 * when o is an older object whose state lives in C.  Callers skip it for exact builtin types and stand-ins. */
int mg_rec_touch(PyObject *o);
/* The same where C code does no more with a mapping than to count its keys or to go over them. */
int mg_rec_touch_keys(PyObject *o);

/* ---- guard_run.c ---- */
typedef struct MgGuardFail {
  int index;
  bool of_tensor;       /* it is about the facts of a tensor, or what its sizes compute to */
  bool of_module;       /* another module instance of the same class is there */
  bool other_module;    /* another module */
  char text[400];       /* only when asked for */
} MgGuardFail;
/* vals receives the value of every source (borrowed), mg_guards_nsrc entries.  why may be NULL. */
bool mg_guards_check(const MgGuards *g, const MgSlots *s, PyObject **vals, MgGuardFail *why);
int mg_guards_nsrc(const MgGuards *g);
int mg_guards_seal(MgGuards *g);      /* end of recording: take dict versions / watchers; -1 with exception */
void mg_guards_free(MgGuards *g);
void mg_guards_print(const MgGuards *g, MgStrbuf *out);

/* ---- snapshot.c, effect.c ---- */
/* The construction program of the outer frame at the end of a segment: slots[0..n) or the returned value ret.
 * NULL with a break set when something cannot be rebuilt. */
MgSnapshot *mg_snapshot_build(PyObject **slots, int n, const bool *untouched, PyObject *ret);
/* Which graph values the snapshot needs, in order: they become the graph's outputs. */
int mg_snapshot_outputs(const MgSnapshot *s, const ValRef **vals);
/* Marks the outputs that the claims of the program read. */
void mg_snapshot_claimed(const MgSnapshot *s, bool *out);
/* Looks at the claims alone, whose outputs are there.  0, MG_CLAIM_FALSE, -1 with an exception. */
int mg_snapshot_claims(const MgSnapshot *s, PyObject **outs, PyObject **vals);
/* Runs it: outs are the graph's results, vals the source values.  Fills new_slots (new references; NULL stays unbound;
 * entries of untouched slots are left alone) and *ret.  Replays effects in program order. */
int mg_snapshot_run(const MgSnapshot *s, PyObject **outs, PyObject **vals, PyObject **new_slots, PyObject **ret);
void mg_snapshot_free(MgSnapshot *s);

/* ---- standin.c: tensors ---- */
int mg_standin_begin(MgRec *r);       /* makes r->cap; push the dispatch mode, set torch's compiling flag, pause GC */
void mg_standin_end(MgRec *r);        /* undo all of that, keep r->cap */
PyObject *mg_standin_input(PyObject *tensor, SrcRef src); /* stand-in of an older tensor: a graph input */
/* Is it a wrapper that torch.func has put around a stand-in (vmap, grad, jvp)?  Made while recording, used as it is. */
bool mg_standin_transformed(PyObject *o);
/* And of one, is what it wraps no tensor of a recording? */
bool mg_standin_transform_is_older(PyObject *o);
bool mg_standin_check(PyObject *o);   /* is it a stand-in? */
ValRef mg_standin_val(PyObject *o);   /* its graph value now (in-place ops rebind) */
PyObject *mg_standin_class(PyObject *o); /* borrowed: the type user code must see */
PyObject *mg_standin_original(PyObject *o); /* borrowed: the older tensor of an input stand-in, or NULL */

/* ---- exec.c ---- */
/* Turns the recorded graph into something that runs, by the backend of the callable. NULL with exception. */
MgExec *mg_exec_build(MgRec *r, const struct MgConfig *cfg, const MgSnapshot *snap);
PyObject *mg_exec_compiled(const MgExec *e); /* borrowed: what other instances may share (MgRec's peers); or NULL */
typedef struct MgExecAt MgExecAt; /* the sizes of one run */
/* The guards hold; is it also right at the sizes of this run?  *at: what mg_exec_run is to get, or NULL. */
bool mg_exec_fits(MgExec *e, PyObject *const *vals, MgExecAt **at);
int mg_exec_run(MgExec *e, PyObject **vals, MgExecAt *at, PyObject **outs); /* takes at; outs: new references */
void mg_exec_leave(MgExecAt *at); /* instead of a run; or NULL */
bool mg_exec_keeps_random(const MgExec *e); /* may a run be given up after random numbers were drawn? */
void mg_exec_free(MgExec *e);

/* Options of one magneto.compile call, owned by its callable. */
typedef struct MgConfig {
  PyObject *backend;    /* NULL: magneto's own; else a Python callable (gm, example_inputs) -> callable */
  bool eager_backend;   /* run the graph node by node (debugging) */
  bool fullgraph;       /* a break is an error */
  bool disable;
  int dynamic;          /* -1 automatic, 0, 1 */
  MgOptions opt;
  int recompile_limit;  /* entries per (code, offset); 0: the default, or torch's setting */
  uint32_t id;          /* which callable; entries of different configs do not mix */
} MgConfig;
#endif
