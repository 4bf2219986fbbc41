/* The graph IR: ATen-level SSA.  One node type, arena-allocated, referenced by index.
 * In: nodes appended by the recorder (or mg_graph_parse).  Out: the same structure through every pass of
 * middle/.
 * A recorded graph may mutate and alias (schema says so); after functionalize it does neither: each value is
 * written once, and mutated inputs are listed in `writeback`.
 * Values carry complete metadata (dtype, device, sizes and strides as SymRef). */
#ifndef MG_GRAPH_H
#define MG_GRAPH_H
#include "ir/expr/expr.h"
#include "ir/graph/op.h"

typedef uint32_t NodeRef; /* index into MgGraph.node; 0 is "none" */
typedef uint32_t ValRef;  /* index into MgGraph.val; 0 is "none" (an undefined tensor) */

typedef enum MgDevice { DEV_cpu = 0, DEV_cuda = 1, DEV_meta = 14 } MgDevice; /* c10::DeviceType numbers */

typedef enum MgArgTag {
  MA_none,
  MA_val,
  MA_int,
  MA_float,
  MA_bool,
  MA_str,
  MA_dtype,
  MA_layout,
  MA_device,
  MA_memory_format,
  MA_list,
  MA_object /* something only front can hold (generator, complex number): u.obj indexes front's object table
             */
} MgArgTag;

typedef struct MgArg {
  uint8_t tag;      /* MgArgTag */
  int8_t dev_index; /* MA_device: index or -1 */
  uint32_t n;       /* MA_list: items */
  union {
    ValRef val;
    SymRef sym; /* MA_int: always an expression */
    double f;
    bool b;
    const char *str;
    int32_t code; /* MA_dtype, MA_layout, MA_device, MA_memory_format: torch's number */
    uint32_t obj;
    struct MgArg *item; /* MA_list */
  } u;
} MgArg;

/* What a view's bit does to the memory it shows. */
enum { MG_BIT_conj = 1, MG_BIT_neg = 2 };

typedef struct MgVal {
  NodeRef def;      /* producing node; 0 for a graph input */
  uint32_t out;     /* which of its results; for an input: the input number */
  uint8_t dtype;    /* MgDtype */
  uint8_t device;   /* MgDevice */
  int8_t dev_index; /* -1 on the CPU */
  uint8_t ndim;
  bool requires_grad;    /* while recording */
  uint8_t bits;          /* MG_BIT_*; while recording: functionalize leaves none */
  SymRef *size, *stride; /* ndim entries each */
  SymRef offset;         /* storage offset, elements */
  uint32_t storage;      /* values with equal numbers share memory (views, in-place results) */
  void *known; /* an input that is the same tensor with the same value in every call: its handle, borrowed;
                  else NULL */
} MgVal;

typedef struct MgNode {
  const MgOp *op;
  MgArg *arg;  /* op->nparam entries in schema order, defaults filled in */
  ValRef *out; /* one entry per tensor result (lists flattened); 0 for an undefined result */
  uint32_t narg, nout;
  const char *file;  /* of the program, where the call is: a name that lives for ever; NULL unknown */
  uint32_t line;     /* its line there; 0 unknown */
  uint8_t grad_mode; /* autograd was enabled when it was recorded */
  bool leaf;         /* a detach whose result is made a leaf that requires grad (requires_grad_()) */
  bool evaluated;    /* its kernel has run on these very values: it does not raise (middle/constant_fold) */
  bool counts;       /* a detach whose result has a version counter of its own (Tensor.data) */
  bool dead;         /* removed by a pass */
  bool guessed;      /* its results are what they are as long as sizes that depend on data are not 0 or 1 */
  bool call;         /* the back end calls the library for it, whatever it has a lowering for */
  bool backward;     /* joint graph: recorded while the engine ran backward (middle/partition) */
  uint32_t again;    /* the checkpointed block it belongs to, which backward computes again; 0: none */
} MgNode;

typedef struct MgGraph {
  MgCtx *c;
  MgExprs *x;
  MgNode *node;
  uint32_t nnode, cap_node; /* node[0] unused; program order */
  MgVal *val;
  uint32_t nval, cap_val; /* val[0] unused */
  ValRef *input;
  uint32_t ninput, cap_input;
  ValRef *output;
  uint32_t noutput, cap_output;
  uint32_t nhidden; /* the last so many outputs are only for a backward graph: they may share memory */
  bool *viewed; /* by output: a view of an input, with its version counter, as the program sees it; NULL: none
                   has to be */
  bool *early;  /* by output: it is asked for before anything is written to an input; NULL: none is */
  int64_t draw_threads;  /* most threads of PyTorch's random kernels on the GPU of the graph; 0: unknown */
  uint8_t default_dtype; /* torch.get_default_dtype() while recording; numbers promote to it */
  /* filled by functionalize: input values whose memory is overwritten at the end, and with what */
  ValRef *wb_input, *wb_value;
  uint32_t nwb;
  /* filled by functionalize: outputs that alias an input or another output (index of output, or of input,
   * else -1); such an output is given back as that tensor itself (same = true) or as
   * an as_strided view of it. */
  struct MgOutAlias {
    int32_t of_input, of_output;
    bool same;
  } *out_alias;
} MgGraph;

MgRc mg_graph_init(MgGraph *g, MgCtx *c, MgExprs *x);
/* A new value with room for ndim sizes and strides (uninitialised SymRefs); 0 when out of memory. */
ValRef mg_graph_val(MgGraph *g, MgDtype dtype, int ndim);
/* The bit that a view op toggles: _conj, _neg_view. */
uint8_t mg_op_bit(const MgOp *op);
ValRef mg_graph_val_like(MgGraph *g, ValRef v); /* same metadata, fresh storage */
void mg_graph_contiguous(MgGraph *g, ValRef v); /* strides from sizes, offset 0 */
ValRef mg_graph_input(MgGraph *g, ValRef v);    /* appends v to the inputs */
MgRc mg_graph_output(MgGraph *g, ValRef v);
/* Appends a node with narg zeroed arguments and nout zeroed results. */
NodeRef mg_graph_node(MgGraph *g, const MgOp *op, int narg, int nout);
static inline MgNode *mg_node(const MgGraph *g, NodeRef n) { return &g->node[n]; }
static inline MgVal *mg_val(const MgGraph *g, ValRef v) { return &g->val[v]; }
MgArg mg_arg_val(ValRef v);
MgArg mg_arg_int(MgGraph *g, int64_t i);
MgArg mg_arg_sym(SymRef s);
MgArg mg_arg_float(double f);
MgArg mg_arg_bool(bool b);
MgArg mg_arg_none(void);
MgArg mg_arg_ints(MgGraph *g, const int64_t *v, int n);
MgArg mg_arg_vals(MgGraph *g, const ValRef *v, int n);
MgArg mg_arg_code(MgArgTag tag, int code); /* MA_dtype, MA_layout, MA_memory_format */
MgArg mg_arg_device(MgDevice d, int index);
MgArg mg_arg_syms(MgGraph *g, const SymRef *v, int n);
/* The argument that a parameter's default stands for; MG_BUG when it has none. */
MgRc mg_arg_default(MgGraph *g, const MgParam *p, MgArg *out);
/* The same for ops with one tensor result: the result. */

/* Rewriting: fn is given each node in order (a copy in *n; its arguments already renamed) and either
 * re-appends it by mg_graph_keep or appends other nodes and names their values by
 * mg_graph_replace.  Dead nodes are skipped. */
typedef struct MgRewrite {
  MgGraph *g;
  ValRef *map; /* old value -> new value; same when 0 */
  uint32_t cap;
  MgNode n; /* the node being rewritten */
} MgRewrite;
typedef MgRc (*MgRewriteFn)(MgRewrite *rw, void *arg);
MgRc mg_graph_rewrite(MgGraph *g, MgRewriteFn fn, void *arg);
MgRc mg_graph_keep(MgRewrite *rw);
MgRc mg_graph_replace(MgRewrite *rw, ValRef old, ValRef now); /* uses after this node see now */
/* The argument of that name; NULL if the op has no such parameter. */
MgArg *mg_node_arg(const MgNode *n, const char *name);
bool mg_node_flag(const MgNode *n, const char *name); /* is it given, and true? */
/* Does the call draw random numbers?  Attention and recurrent networks do if they drop out. */
bool mg_node_random(const MgNode *n);
bool mg_node_effect(const MgNode *n); /* MgOp.effect, or random numbers are drawn */
/* The tensor that comes first (self, input, grad ...); 0: there is none. */
static inline ValRef mg_node_first(const MgNode *n) {
  return n->narg && n->arg->tag == MA_val ? n->arg->u.val : 0;
}
/* Batch norm in training, PyTorch's own or cuDNN's: it writes running statistics without saying so in its
 * schema. */
bool mg_node_trains_norm(const MgNode *n);
/* The same, when it is given such statistics. */
bool mg_node_updates_norm(const MgNode *n);
/* Calls fn for every tensor argument, lists included, in order. */
void mg_node_each_val(MgNode *n, void (*fn)(ValRef *v, void *arg), void *arg);
/* The same for the arguments of a call: an optional tensor that is absent counts too, as a value of 0.  This
 * is the order of MgExtern.in and of prebuilt calls. */
void mg_node_each_tensor(MgNode *n, void (*fn)(ValRef *v, void *arg), void *arg);
/* Walks over the tensors that a node writes to, lists included: for (MgWritten w = {0};
 * mg_node_written(n, &w);) ... */
typedef struct MgWritten {
  ValRef v;
  int param;
  uint32_t item; /* of its list; 0: no list */
  uint32_t next; /* the walk's own */
} MgWritten;
bool mg_node_written(const MgNode *n, MgWritten *w);
bool mg_node_writes(const MgGraph *g, const MgNode *n, uint32_t storage); /* and is it alive? */
bool mg_graph_writes(const MgGraph *g, uint32_t storage);                 /* does any node write it? */
SymRef mg_val_numel(MgGraph *g, ValRef v);
bool mg_val_is_contiguous(const MgGraph *g, ValRef v);
bool mg_val_repeats(const MgGraph *g, ValRef v); /* an expanded dimension: one element at several places */
bool mg_graph_on_cpu(const MgGraph *g);          /* every value that a node takes or gives lives there */
/* The number of the only CUDA device that values of nodes live on, others being on the CPU; -1:
 * there is none, or several. */
int mg_graph_cuda(const MgGraph *g);
/* What tells that the kernel of such a call would raise because of values?  Only
 * ops that raises.def lists. */
MgRaise mg_raise_of(const MgGraph *g, const MgOp *op, const MgArg *arg);
/* May the node's kernel raise because of values?  True also of ops that nothing is known of. */
bool mg_node_raises(const MgGraph *g, const MgNode *n);
/* Replaces symbols by what they are known to equal: symbol[k], at first symbol k itself, becomes the
 * expression that stands for it. */
typedef struct MgSymEqual {
  SymRef a, b;
} MgSymEqual;
/* Text: one line a node; mg_graph_parse(mg_graph_print(g)) gives the same graph. */
void mg_graph_print(const MgGraph *g, MgStrbuf *out);
/* The same; at: nnode entries, gets where the line of each node begins; dead nodes have none. */
void mg_graph_print_at(const MgGraph *g, MgStrbuf *out, size_t *at);
MgRc mg_graph_parse(MgGraph *g, const char *text); /* g initialised and empty */
/* Structure checks; names the pass in its message. */
MgRc mg_graph_verify(MgGraph *g, const char *after);
/* The same, and what functionalize promises: nothing writes, and the write-backs fit the inputs. */
MgRc mg_graph_verify_functional(MgGraph *g, const char *after);
/* Does a node that writes have the copies that it writes as its last results?  True
 * if the node writes nothing. */
bool mg_node_on_copies(const MgNode *n);
#endif
