/* The FX graph that a recording builds, for the files that write it (fx_*.c, fx_region.c). */
#ifndef MG_FX_GRAPH_H
#define MG_FX_GRAPH_H
#include "base/table.h"
#include "entry/guard/source_kinds.h"
#include "host/torch/torch_state.h"
#include "ir/graph/graph.h"

typedef struct MgRec MgRec;
typedef struct MgSymNode MgSymNode;

typedef struct MgFxMode { /* one mode that the graph has entered */
  MgTorchState before;    /* the state without it */
  uint32_t node;          /* the node that entered it */
  bool inference;         /* inference mode; else autocast */
  bool grad;              /* the grad mode without it */
} MgFxMode;

typedef struct MgFxState {
  bool begun;
  MgTorchState start, now; /* at the start of the graph; as its nodes so far leave it */
  MgFxMode mode[16];
  int depth;
} MgFxState;

typedef struct MgFxLift {
  uint32_t number, outer;
} MgFxLift; /* a placeholder of a region; the node it stands for outside */

typedef struct MgFx {
  PyObject *graph; /* torch.fx.Graph */
  PyObject *nodes; /* list: node number i is item i - 1 */
  PyObject *val,
      *where; /* lists: the graph value of each node or None; the frames that it was recorded in, or None */
  PyObject *root;       /* dict: constants of the module by attribute name */
  PyObject *mode;       /* the torch-function mode */
  PyObject *first;      /* borrowed: first node that is no placeholder */
  MgMap by_val;         /* graph value + 2 -> node number */
  MgMap by_src;         /* source of a number + 2 -> node number */
  MgMap by_node;        /* fx.Node, or constant tensor -> node number */
  MgMap by_name;        /* hashes of the placeholders' names */
  uint32_t *input;      /* placeholders: index into cap->input, or MG_FX_SYMBOL and a symbol; malloc'ed */
  uint32_t *input_node; /* and their nodes */
  uint32_t ninput, cap_input;
  bool grad;          /* autograd's mode as the nodes so far leave it */
  bool grad_start;    /* and as it is where the graph is called */
  bool grad_end;      /* and as the graph leaves it */
  MgFxState state;    /* autocast and inference mode */
  NodeRef covered;    /* ATen nodes before this one belong to calls that were seen, or change nothing */
  bool incomplete;    /* some value came from a call that was not seen */
  struct MgFx *outer; /* of a region: the graph around it */
  MgFxLift *lift;     /* of a region: its placeholders; malloc'ed */
  uint32_t nlift, cap_lift;
} MgFx;

typedef struct MgFxTorch { /* strong references, process lifetime */
  PyObject *Graph, *GraphModule, *operator_, *getattr_, *getitem, *set_grad;
  PyObject *higher[4]; /* torch.ops.higher_order.cond, while_loop, scan, map_impl */
} MgFxTorch;
extern MgFxTorch mg_fx_torch;

/* A branch or loop as torch's higher-order operator with these GraphModules: what the parts read is cut up.
 * Sets *target, borrowed, and replaces *args, a list: what the parts read, then (ncarry, test, body),
 * (ncarry, nrow, body) or the two branches of a cond. */
int mg_fx_higher(MgCapture *cap, const char *name, PyObject *modules, PyObject **target, PyObject **args);
/* Node n from ATen, with its arguments.  -1 with an exception. */
int mg_fx_aten_node(MgCapture *cap, NodeRef n);
/* Starts again, from the ATen nodes. */
int mg_fx_from_aten(MgRec *r);
/* A write that no call shows (x.real = y) is in the ATen nodes only. */
void mg_fx_look_for_writes(MgCapture *cap);
/* Node of that number, borrowed. */
static inline PyObject *mg_fx_at(const MgFx *f, uint32_t number) {
  return PyList_GET_ITEM(f->nodes, number - 1);
}
/* Appends a node; its number, or 0 with an exception.  kwargs may be NULL; args is not stolen. */
uint32_t mg_fx_node(MgCapture *cap, const char *op, PyObject *target, PyObject *args, PyObject *kwargs);
/* Takes a node that the graph has already into its lists; its number. */
uint32_t mg_fx_adopt(MgFx *f, PyObject *n, PyObject *where, bool input);
/* The node stands for the value from now on. */
int mg_fx_bind(MgFx *f, ValRef val, uint32_t number);
/* The node of a graph value, borrowed; NULL without an exception when no seen call made it. */
PyObject *mg_fx_of_val(MgCapture *cap, ValRef val);
/* The node of an attribute of the module; prefix: what its name begins with, NULL: by kind.  New. */
PyObject *mg_fx_constant(MgCapture *cap, PyObject *o, const char *prefix);
/* Names, source lines and facts of the nodes. */
int mg_fx_describe(MgRec *r);
/* A graph of its own becomes cap->fx. */
int mg_fx_open(MgCapture *cap);
/* The placeholder of an input, or of MG_FX_SYMBOL and a symbol; 0 with an exception. */
uint32_t mg_fx_placeholder(MgCapture *cap, uint32_t index);
/* The node of a number that runs compute: a placeholder, or arithmetic of those.  New;
 * NULL: made of something else. */
PyObject *mg_fx_number(MgCapture *cap, SrcRef src);
/* A number that runs compute, as an argument; NULL, with or without an exception: it has no node.  Types are
 * promoted otherwise with a number than with the tensor it becomes, which ATen's nodes say; they know nothing
 * of outer tensors: there it is the number itself. */
PyObject *mg_fx_of_number(MgCapture *cap, PyObject *o);
/* The size of a jagged dimension, as a node that asks a tensor which has it: new; NULL, with or
 * without an exception: o is none. */
PyObject *mg_fx_size_of(MgCapture *cap, PyObject *o);
/* ---- fx_args.c ---- */
/* An argument, or a dict of them, with tensors replaced by nodes.  New; NULL with an exception, or without
 * one when a tensor has no node. */
PyObject *mg_fx_arg(MgCapture *cap, PyObject *o);
PyObject *mg_fx_kwargs(MgCapture *cap, PyObject *kwargs);
bool mg_fx_wraps(const MgCapture *cap,
                 PyObject *o); /* a tensor that wraps others, with a value of its own? */
ValRef mg_fx_val(MgCapture *cap,
                 PyObject *o); /* the value that a tensor stands for; 0: none, or with an exception */
/* ---- fx_unbacked.c ---- */
/* The node of a number that depends on data.  New; NULL, maybe without an exception: no node makes it. */
PyObject *mg_fx_late(MgCapture *cap, MgSymNode *n);
/* The node of a size that is an expression.  New; NULL without an exception: a constant. */
PyObject *mg_fx_size(MgCapture *cap, SymRef e);
/* A call gave such a number (or something else). */
int mg_fx_late_result(MgCapture *cap, PyObject *o, uint32_t number);
/* Assertions of what is known about them. */
int mg_fx_asserts(MgCapture *cap);
/* What the graph gives for a value that is such a number: floats as a tensor.  New. */
PyObject *mg_fx_late_output(MgCapture *cap, ValRef val, PyObject *node);
bool mg_fx_is_calc(const MgFx *f, Py_ssize_t i); /* is node i such arithmetic? */
#endif
