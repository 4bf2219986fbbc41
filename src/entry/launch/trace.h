/* What is recorded, as data: results, the joint graph, calls of autograd.Function. */
#ifndef MG_TRACE_H
#define MG_TRACE_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "driver/options.h"
#include "entry/guard/source_kinds.h"
#include "ir/graph/graph.h"

typedef struct MgSymNode MgSymNode;

typedef enum MgResultHow {
  RES_through, /* a result of the compiled forward that gets a grad_fn of ours */
  RES_aside,   /* a result of the compiled forward without gradients */
  RES_input,   /* an input itself */
  RES_view     /* a view of one of these: its view ops run again, so that autograd sees the alias */
} MgResultHow;
typedef struct MgResult {
  uint8_t how;    /* MgResultHow */
  uint32_t index; /* into `through`, `aside`, or the capture's inputs */
} MgResult;
typedef struct MgJointRec { /* all in the recording's arena */
  uint32_t nnode, nval,
      ninput;       /* sizes of the graph with backward; the graph itself is left at those of forward */
  NodeRef backward; /* first node of backward */
  ValRef *through;  /* values that get a grad_fn, each in memory of its own */
  ValRef *tangent;  /* per entry of through: the graph value of its gradient, an input */
  uint32_t nthrough;
  ValRef *aside; /* other fresh results */
  uint32_t naside;
  MgResult *res; /* per output of the snapshot */
  uint32_t nres;
  bool *replay; /* by node: view ops to run again; nreplay of them */
  uint32_t nreplay;
  ValRef *same; /* by value: results of in-place ops on the way of a replay: the value they were written to */
  uint32_t
      *diff;    /* inputs that require grad, as eager has their gradients: index into the capture's inputs */
  ValRef *grad; /* their gradients; 0: backward does not reach the input */
  uint64_t *reach; /* a set (base/bits.h) for each: the tangents that the gradient needs */
  uint32_t ndiff;
  uint64_t *mate; /* a set per entry of through: those that a backward pass from it frees something of, in
                     eager; NULL: all of them */
  bool frees;     /* a second backward pass is an error in eager: something was saved */
  uint64_t
      *link; /* a set per entry of through: others that it is computed from, not by way of a third; or NULL */
  uint32_t *port, nport; /* entries of through that are in such a set or have one, oldest first */
} MgJointRec;
typedef struct MgFunction { /* one call; in the recording's arena */
  struct MgFunction *next;  /* in the order of the graph */
  NodeRef first, end;       /* the nodes that forward recorded */
  PyObject *apply;          /* kept by cap->objs, like obj */
  PyObject **obj;           /* arguments that are no tensors */
  ValRef *in, *out;         /* by argument and by result; 0: not a tensor */
  ValRef *saved;            /* what forward gave to save_for_backward */
  uint32_t nin, nout, nsaved;
  bool hooked; /* it is there for the hooks on its node, which the graph cannot show */
  bool once; /* some argument is an object of the recording, or it has side effects: it cannot be called again
              */
} MgFunction;
typedef struct MgHooked { /* a hook on a value that the graph makes; in the recording's arena */
  struct MgHooked *next;  /* in the order in which they were registered */
  ValRef val;
  PyObject *hook; /* kept by cap->objs */
} MgHooked;
/* Of MgSizeOf, instead of a dimension: element number `at` of an int64 value; where its memory begins. */
enum { MG_SIZE_ITEM = -1, MG_SIZE_OFFSET = -2 };
typedef struct MgSizeOf { /* where the graph gives a size that depends on data */
  ValRef val;             /* 0: the symbol has a source */
  int32_t dim;            /* a size of val, or MG_SIZE_ITEM, MG_SIZE_OFFSET */
  uint32_t at;            /* (of true elements of a mask: the node that counts them) */
  ValRef mask;            /* the mask; 0: something else */
  MgSymNode *node;        /* the number of that element, borrowed; NULL: not asked for yet */
} MgSizeOf;

typedef struct MgCapInput { /* one older tensor that the recording met */
  PyObject *real;           /* borrowed from the frame, strong when pinned; NULL: the gradient of a result */
  SrcRef src;               /* where an entry finds it again; 0 when pinned */
  ValRef val;               /* its value at entry */
  bool pinned;              /* a constant kept alive by the entry */
  bool known;               /* its numbers are guarded (tensor_contents.h) */
  bool scalar;              /* a float: src gives the number, real is a tensor of it (strong) */
  bool sized;               /* a scalar that is computed of sizes */
  bool array;               /* a NumPy array: src gives it, real is a tensor over its memory (strong) */
  bool outer;               /* a tensor that wraps others: has no memory of its own */
  uint32_t moved;           /* at the end: by how much the version counter has moved */
  bool nonleaf;             /* it has a gradient graph from outside */
  bool hooked;              /* its stand-in has its hooks (backward_pass.c) */
  bool switched;            /* the program changed whether it requires grad */
  bool grad_known;          /* the stand-in's `.grad` is what the program sees (backward_pass.c) */
  PyObject *grad0;          /* borrowed: that `.grad` at entry; NULL when it was assigned unread */
} MgCapInput;

/* What compiling and running a graph need of the recording that made it; nothing in it is owned. */
typedef struct MgTrace {
  MgCtx *ctx;
  MgExprs *x;
  MgGraph *g;
  PyObject *objs;             /* list: what MA_object arguments index */
  const MgFunction *function; /* calls of autograd.Function that autograd tracks; NULL: none */
  const MgHooked *hooked;     /* hooks that are part of the gradient graph; NULL: none */
  MgJointRec *joint;          /* NULL: no gradient graph */
  const MgCapInput *input;    /* in graph input order */
  uint32_t ninput;
  const MgOptions *opt;
  const char *name;       /* of what was recorded, for profilers */
  uint64_t recording;     /* its number, for reports; 0: unknown */
  const SrcRef *sym_src;  /* by symbol: how a run finds it; 0: it depends on data */
  const MgSizeOf *sym_of; /* by symbol: where the graph gives it */
  uint32_t nsym;
} MgTrace;

enum { MG_TRACE_LABEL = 256 };
/* "magneto::NAME (FILE:LINE)SUFFIX", the place being that of the first op that has one.  Gives
 * label, MG_TRACE_LABEL bytes. */
const char *mg_trace_label(const MgTrace *t, const char *suffix, char *label);

typedef struct Written {
  const MgGraph *g;
  bool *storage; /* by storage number */
  uint32_t n;
} Written;
/* Which storages the graph writes to; false when out of memory. */
bool mg_alias_find_written(Written *w);
/* The call whose forward recorded node n, or NULL. */
const MgFunction *mg_function_of(const MgFunction *all, NodeRef n);
/* Can the function stand for its nodes?  Not when one of their values is used elsewhere. */
bool mg_function_whole(const MgTrace *t, const MgFunction *f);
bool mg_function_all_whole(const MgTrace *t);
/* Runs it on real tensors, in: borrowed, by argument; out: new references, by result (NULL: no tensor). */
int mg_function_run(PyObject *apply, PyObject *const *arg, uint32_t narg, PyObject **out, uint32_t nout);
/* By storage: memory that nothing but functions' own forward and backward reads, which keep it on ctx as they
 * like: no version check finds writes to it.  In the recording's arena, NULL: there
 * is none; -1: out of memory. */
int mg_function_loose(const MgTrace *t, NodeRef end, bool **loose);
bool mg_function_any_once(const MgTrace *t);
/* Are there calls that have to be run by a backward pass in the same recording? */
bool mg_function_any_hooked(const MgTrace *t);
/* Puts the backward part back behind the forward part of t->g, outputs and inputs left alone. */
void mg_joint_extend(const MgTrace *t);
/* Moves the recording's arena, and the graph in it, to an owner that outlives the
 * recording, which is left without. */
void mg_rec_move_graph(const MgTrace *t, MgCtx *ctx, MgExprs *x, MgGraph *g);
bool mg_alias_writes(
    const MgTrace *t); /* does the graph write to an input?  Yes, with an exception, when out of memory */
/* Does the node read sizes that are no constants? */
bool mg_symfollow_reads(const MgGraph *g, NodeRef n);
/* Do leaves take part in gradient graphs for a part of the segment only?  Its
 * results are not tracked then. */
bool mg_joint_switched(const MgTrace *t);
#endif
