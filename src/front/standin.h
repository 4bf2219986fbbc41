/* The tensor side of a recording: stand-ins, the dispatch mode and what the graph's nodes need of Python.
 * A stand-in is a torch.Tensor subclass instance that claims the real dtype, device, sizes and strides and owns no
 * memory.  Its place in the graph is kept in an MgStandInfo object behind one C slot of the instance, so it lives
 * exactly as long as the stand-in does.  The recording itself never holds a stand-in: autograd steers by use counts. */
#ifndef MG_FRONT_STANDIN_H
#define MG_FRONT_STANDIN_H
#include "front/rec.h"
#include "front/symsize.h"

typedef struct MgStandInfo MgStandInfo;

typedef struct MgCapInput { /* one older tensor that the recording met */
  PyObject *real;     /* borrowed from the frame, strong when pinned; NULL: the gradient of a result */
  SrcRef src;         /* where an entry finds it again; 0 when pinned */
  ValRef val;         /* its value at entry */
  bool pinned;        /* a constant kept alive by the entry */
  bool scalar;        /* a float: src gives the number, real is a tensor of it (strong) */
  bool sized;         /* a scalar that is computed of sizes */
  bool array;         /* a NumPy array: src gives it, real is a tensor over its memory (strong) */
  bool outer;         /* a tensor that wraps others: has no memory of its own */
  uint32_t moved;     /* at the end: by how much the version counter has moved */
  bool nonleaf;       /* it has a gradient graph from outside */
  bool hooked;        /* its stand-in has its hooks (backward.c) */
  bool switched;      /* the program changed whether it requires grad */
  bool grad_known;    /* the stand-in's `.grad` is what the program sees (backward.c) */
  PyObject *grad0;    /* borrowed: that `.grad` at entry; NULL when it was assigned unread */
} MgCapInput;

struct MgCapture {
  MgRec *rec;               /* owner */
  MgCapInput *input;        /* malloc'ed; one per graph input, in graph input order while recording */
  uint32_t ninput, cap_input;
  MgMap pinned;             /* real tensor -> index of its pinned input */
  MgMap base;               /* storage address of an input -> storage number */
  PyObject *objs;           /* list: what MA_object arguments index */
  PyObject *mode;           /* the dispatch mode on torch's stack */
  MgStandInfo *live;        /* list of the living stand-ins */
  struct MgFx *fx;          /* the torch-level graph, when one is wanted (fx.c) */
  ValRef next_result;       /* the next dispatched op is ours: give it this value, record nothing */
  bool *storage_grad;       /* by storage number: something requiring grad was written there */
  uint32_t cap_storage;
  bool *storage_inference;  /* by storage number: its tensors are inference tensors */
  uint32_t cap_inference;
  PyObject *syms;           /* list of the numbers that the recording computes with (symfloat.c); NULL: none */
  PyObject *checks;         /* list of torch._check_with's arguments about numbers that the graph computes; NULL: none */
  PyObject *claims;         /* list of (bool that the graph computes, what it is taken for) (claim.c); NULL: none */
  PyObject *swapped;        /* list of inputs that were given the memory of another tensor (`x.data = y`), each followed by that; or NULL */
  PyObject *said;           /* list of calls to be made at the end (logcall.c); NULL: none */
  PyObject *log_ignored, *log_late; /* sets of functions, or NULL */
  bool log_known;           /* these were looked up */
  MgSymSizes sizes;
  bool *spent;              /* by value: its gradient graph was freed by a recorded backward pass */
  uint32_t cap_spent;
  struct MgFunction *function; /* calls of autograd.Function that autograd tracks (function.c) */
  bool arrays;              /* NumPy arrays are among the inputs */
  bool loops;               /* the graph calls a while_loop */
  bool in_part;             /* a branch or the body of a loop is being recorded */
  bool own_kernels;         /* operators with derivatives of their own may be among the nodes: mg_dispatch_reveal */
  bool quiet;               /* calls of torch are ours: the torch-level graph does not want them */
  const char *refused;      /* no op may be recorded now: why */
  bool grad_was_on, anomaly_was_on, begun; /* state at begin, restored at the end */
  int32_t autocast_depth;   /* depth of `with autocast` at begin */
  long modes_before, functorch_before; /* depths of torch's stacks at begin */
  PyObject *fmodes;         /* list: the torch_function modes that were active (fmodes.c) */
  bool fmodes_known;        /* it is complete: mg_standin_end restores them */
  PyObject *autocast;       /* autocast state at begin, see standin_save_autocast */
  PyObject *classes;        /* dict: class of the program -> class of its stand-ins (subclass.c); NULL at first */
  PyObject *wrappers;       /* list: tensors that wrap others, as the recording sees them (wrapper.c); NULL: none */
  PyObject *transformed;    /* list: tensors of torch.func's transforms that the torch-level graph has (fxfunc.c); NULL: none */
  MgMap wrapper_val;        /* a tensor of these two lists -> the value that stands for it in the torch-level graph */
  int glue;                 /* a class's own flatten, unflatten or dispatch runs: the storage of a stand-in is only handed on */
  bool decline;             /* the next op that the mode is handed is none of its business (wrapper.c) */
  bool unwrapping;          /* the inner tensors of one become inputs */
  bool jagged;              /* some of them have jagged sizes */
  bool told_sizes;          /* some of them were made with the sizes of the older ones, as numbers */
  bool own_function;        /* some of them have a __torch_function__: what it does is in the graph */
  PyTypeObject *next_type;  /* borrowed: the class of the next stand-in; NULL: the usual one */
  int inside;               /* the dispatch handler runs: what it calls is none of the program's calls */
  int32_t function_state;   /* torch_function enabled or disabled at begin */
  bool hooks_off;           /* saved-tensor hooks of the user were switched off: they must not see stand-ins */
};

/* Behind the slot of every stand-in. */
struct MgStandInfo {
  PyObject_HEAD
  MgCapture *cap;           /* NULL once the recording has ended */
  MgStandInfo *prev, *next; /* cap->live */
  PyObject *self;           /* borrowed: the stand-in */
  ValRef val;               /* its graph value now */
  uint32_t input;           /* 1 + index into cap->input, or 0 */
  bool leaf;                /* where gradients of that input end (one that is no leaf outside is a clone of this) */
  bool is_param;            /* user code must see nn.Parameter */
  bool swapped;             /* a leaf that was given the memory of another tensor: only ops that record no gradients may read it */
};

extern PyTypeObject *mg_standin_type;      /* strong, made by mg_standin_init */
extern Py_ssize_t mg_standin_slot;         /* byte offset of the MgStandInfo pointer in an instance */
extern PyTypeObject *mg_tensor_type;       /* torch.Tensor */
extern PyTypeObject *mg_parameter_type;    /* torch.nn.Parameter */

static inline MgStandInfo *mg_standin_info(PyObject *o) { return *(MgStandInfo **)((char *)o + mg_standin_slot); }
/* tp_base: stand-ins of subclasses (subclass.h) */
static inline bool mg_standin_is(PyObject *o) { return Py_TYPE(o) == mg_standin_type || Py_TYPE(o)->tp_base == mg_standin_type; }

/* Imports torch, makes the types, adds the methods to the extension module.  -1 with an exception. */
int mg_standin_init(PyObject *module);
/* What was last assigned to `.data` of an input, borrowed; NULL: nothing. */
PyObject *mg_standin_swapped(const MgCapture *cap, PyObject *standin);
/* A new stand-in for a graph value. */
PyObject *mg_standin_new(MgCapture *cap, ValRef val);
/* The graph value of a real tensor met as an argument: a constant that the entry keeps alive.  0 with an exception. */
ValRef mg_standin_pin(MgCapture *cap, PyObject *tensor);
/* Makes a tensor that wraps others a graph input, which only the torch-level graph can read: its value; 0 with an exception. */
ValRef mg_standin_outer_input(MgCapture *cap, PyObject *tensor, SrcRef src);
/* Appends a gradient of a result to the graph's inputs: no tensor of the recording.  -1 with an exception. */
int mg_standin_add_tangent(MgCapture *cap, ValRef val);
/* Turns autocast off until mg_standin_end restores it.  -1 with an exception. */
int mg_standin_autocast_off(void);
/* Makes a 0-dim tensor of a float from src a graph input: its value; 0 with an exception. */
ValRef mg_standin_scalar_input(MgCapture *cap, PyObject *tensor, SrcRef src);
/* The stand-in of a NumPy array from src, over whose memory the real tensor lies; NULL with an exception. */
PyObject *mg_standin_array_input(PyObject *tensor, SrcRef src);
/* The recording relies on whether an input that requires grad is a leaf. */
void mg_standin_guard_leaf(const MgCapture *cap, uint32_t input);
/* Was autocast on, for any device type, when the recording began? */
bool mg_standin_autocast_on(const MgCapture *cap);
/* Index of a Python object in cap->objs; -1 with an exception. */
long mg_standin_object(MgCapture *cap, PyObject *o);
/* Adds the overriding methods and attributes to the new stand-in type (standin_methods.c). */
int mg_standin_methods_add(PyTypeObject *type);
/* Is it an inference tensor?  -1 with an exception. */
int mg_standin_inference(PyObject *tensor);
/* Fills a value's metadata from a real tensor.  False: a kind of tensor that is not recorded (reason in why). */
bool mg_standin_describe(MgGraph *g, PyObject *tensor, ValRef *val, const char **why);

/* ---- dispatch.c ---- */
int mg_dispatch_init(void);
PyObject *mg_dispatch_mode_new(MgCapture *cap); /* an instance of the C mode type */
void mg_dispatch_mode_end(PyObject *mode);      /* detaches it from the capture */
extern PyObject *mg_dispatch_push, *mg_dispatch_pop; /* torch's functions for the mode stack */

/* f(*args, **kwargs) with the mode on, from inside of its handler. */
/* Takes the recording's mode from torch's stack and puts it back (keeping an exception that is set): in between, torch computes.  -1 with
 * an exception. */
int mg_dispatch_leave(MgCapture *cap);
int mg_dispatch_return(MgCapture *cap);
PyObject *mg_dispatch_with_mode(MgCapture *cap, PyObject *f, PyObject *args, PyObject *kwargs);

/* An operator with a derivative of its own runs inside of that, without autograd.  Where autograd tracks its result v all the same, runs
 * that are tracked have to call it as the program did.  -1 with an exception. */
int mg_dispatch_reveal(MgCapture *cap, PyObject *tensor, ValRef v);
struct MgFrontOp;
/* Appends a call of an op of ours whose results are n tensors like these values, each in memory of its own: a list of them. */
PyObject *mg_dispatch_emit(MgCapture *cap, const struct MgFrontOp *fo, PyObject *args, const ValRef *like, uint32_t n, bool grad);

/* ---- metainfer.c ---- */
/* Fills in the results of node n by running torch's meta kernel.  Non-tensor results go to *pyret (new; NULL when all
 * are tensors).  -1 with an exception: torch's own error, or a break; META_DATA: some size depends on data (but while those are
 * tried, when it is made up). */
enum { META_DATA = 1 };
int mg_metainfer_run(MgRec *r, const struct MgFrontOp *fo, NodeRef n, PyObject **pyret);
/* The same where sizes are symbols: the kernel, one of torch's in Python where there is one, computes with them.  exact: not if it
 * wants the number of a size, which is guarded otherwise.  -1: it cannot (with an exception, and maybe a break). */
int mg_metainfer_symbolic(MgRec *r, const struct MgFrontOp *fo, NodeRef n, bool exact, PyObject **pyret);
/* May the op's kernel itself be asked, on zeros, whether it takes such arguments?  Then mg_metainfer_run raises what it raises. */
bool mg_metainfer_asks(MgRec *r, const struct MgFrontOp *fo, NodeRef n);
/* Does it raise, as far as its dtypes or the op make that likely?  The exception is set then. */
bool mg_metainfer_rejects(MgRec *r, const struct MgFrontOp *fo, NodeRef n);
void mg_metainfer_reset(void);
/* The kernel that the program registered, after torch's way of calling it raised: its result (new) when all it lacked was somebody
 * to ask for sizes; else NULL and the exception stays (metafake.c). */
PyObject *mg_metafake_call(MgRec *r, const MgOp *op, PyObject *args, PyObject *kw);

/* ---- noderun.c: the graph node by node through ATen, under autograd when it is on ---- */
typedef struct MgNodeRun MgNodeRun;
/* Reads the graph (outputs set), changes nothing.  NULL with an exception. */
MgNodeRun *mg_noderun_build(MgRec *r);
/* The same for some of its nodes: those with keep[n], between the given values; same[v] names the value to take for v.  With keep,
 * sizes may be expressions, which mg_noderun_run_at is told about. */
MgNodeRun *mg_noderun_build_part(MgRec *r, const bool *keep, const ValRef *same, const ValRef *in, uint32_t nin,
                                 const ValRef *out, uint32_t nout);
/* inputs: borrowed real tensors in graph input order; outs: new references in graph output order. */
int mg_noderun_run(const MgNodeRun *p, PyObject *const *inputs, PyObject **outs);
struct MgCallSizes;
int mg_noderun_run_at(const MgNodeRun *p, PyObject *const *inputs, PyObject **outs, const struct MgCallSizes *at);
void mg_noderun_free(MgNodeRun *p);
/* Computes what value v is in this run, of the real inputs; the modes of the recording are to be off.  New; NULL, without an exception
 * when it cannot be told: random numbers, or after a write. */
PyObject *mg_noderun_value(MgRec *r, ValRef v);

/* Methods for the extension module: recording one callable without the frame loop (tests of the tensor side). */
extern PyMethodDef mg_tensor_methods[];
#endif
