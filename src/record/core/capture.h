/* The tensor side of a recording, as data: inputs, stand-ins, what torch's state was. */
#ifndef MG_CAPTURE_H
#define MG_CAPTURE_H
#include "base/table.h"
#include "entry/guard/source_kinds.h"
#include "entry/launch/trace.h"
#include "ir/expr/expr.h"
#include "ir/graph/graph.h"

typedef struct MgCapture MgCapture;
typedef struct MgFunction MgFunction;
typedef struct MgFx MgFx;
typedef struct MgRec MgRec;
typedef struct MgSizeOf MgSizeOf;

typedef struct MgSizeBound { /* what answers that the program took say about a size */
  int64_t lo, hi;
  bool promised; /* marked by mark_dynamic() */
  bool outside;  /* of the bounds that it was marked with: lo and hi stay these */
} MgSizeBound;
typedef struct MgSizeFact {
  int calc;
  SymRef a, b;
} MgSizeFact;               /* a comparison that holds */
typedef struct MgSymSizes { /* of one recording */
  SrcRef *src;              /* by symbol: how a run finds it; 0: it depends on data; malloc'ed */
  SymRef *ref;              /* by symbol: its expression; malloc'ed */
  MgSizeOf *of;             /* by symbol; malloc'ed */
  MgSizeBound *bound;       /* by symbol; malloc'ed */
  uint32_t nsrc, cap;
  MgMap by_src;     /* source of a symbol + 2 -> its number */
  MgMap expr, calc; /* source + 2 -> what it computes; expression + 2 -> the source that computes it */
  uint32_t ndata;   /* how many of them depend on data (unbacked.c) */
  MgMap node;       /* expression that depends on data + 2 -> index into cap->syms of its number */
  MgSizeFact *fact; /* what was checked or taken for granted; malloc'ed */
  uint32_t nfact, cap_fact;
  const int64_t *trial; /* the symbols' values while a guess about sizes is tried; NULL: none is */
  const int64_t *probe; /* the symbols' values while a meta kernel is tried; NULL: none is */
  bool second;          /* it is the second try */
  bool inputs;          /* the tries are about sizes of inputs, none of which is settled by them */
  bool own;             /* the kernel is the program's own: they settle no size of an input either */
  bool symbolic;        /* a meta kernel computes with the symbols themselves */
  bool exact;           /* and may not ask for the number of one */
  uint32_t asked;       /* how many sizes it asked for that only data tells (meta_new_size.c) */
  bool unknown; /* a question about data had no answer: what asked it has to be found in another way */
  bool guessed; /* an answer about data was taken for granted since the node that is recorded began */
  bool lasts;   /* a node up to `looked` writes what outlives a run that is given up */
  uint32_t looked;
  bool off;       /* sizes of inputs are constants */
  PyObject *ints; /* dict: one object per constant, since sources are told apart by identity */
  MgSizeAsk ask;
  MgSymEqual *equal; /* sizes that guards say are equal; malloc'ed */
  uint32_t nequal, cap_equal;
  bool all;         /* every dimension may change */
  bool shows;       /* a call of C runs: sizes that only its messages show are guarded if it raises */
  PyObject *shown;  /* list of the nodes of those; NULL if there is none */
  bool value_asked; /* the value of a tensor was asked for that is computed of sizes alone: constants may tell
                       it */
} MgSymSizes;
typedef struct MgStandInfo MgStandInfo;
/* Behind the slot of every stand-in. */
struct MgStandInfo {
  PyObject_HEAD MgCapture *cap; /* NULL once the recording has ended */
  MgStandInfo *prev, *next;     /* cap->live */
  PyObject *self;               /* borrowed: the stand-in */
  ValRef val;                   /* its graph value now */
  uint32_t input;               /* 1 + index into cap->input, or 0 */
  bool leaf;     /* where gradients of that input end (one that is no leaf outside is a clone of this) */
  bool is_param; /* user code must see nn.Parameter */
  bool swapped;  /* a leaf that was given the memory of another tensor: only ops that record no gradients may
                    read it */
};
struct MgCapture {
  MgRec *rec;        /* owner */
  MgCapInput *input; /* malloc'ed; one per graph input, in graph input order while recording */
  uint32_t ninput, cap_input;
  MgMap pinned;       /* real tensor -> index of its pinned input */
  MgMap base;         /* storage address of an input -> storage number */
  MgMap gradient;     /* number of a gradient node + 2 -> node of the graph that it is of, for places */
  PyObject *objs;     /* list: what MA_object arguments index */
  PyObject *mode;     /* the dispatch mode on torch's stack */
  MgStandInfo *live;  /* list of the living stand-ins */
  struct MgFx *fx;    /* the torch-level graph, when one is wanted (fx_nodes.c) */
  ValRef next_result; /* the next dispatched op is ours: give it this value, record nothing */
  bool *storage_grad; /* by storage number: something requiring grad was written there */
  uint32_t cap_storage;
  bool *storage_inference; /* by storage number: its tensors are inference tensors */
  uint32_t cap_inference;
  PyObject *syms; /* list of the numbers that the recording computes with (number.c); NULL: none */
  PyObject
      *checks; /* list of torch._check_with's arguments about numbers that the graph computes; NULL: none */
  PyObject
      *claims; /* list of (bool that the graph computes, what it is taken for) (speculation.c); NULL: none */
  PyObject *swapped; /* list of inputs that were given the memory of another tensor (`x.data = y`), each
                        followed by that; or NULL */
  PyObject *said;    /* list of calls to be made at the end (deferred_logging.c); NULL: none */
  PyObject *log_ignored, *log_late; /* sets of functions, or NULL */
  bool log_known;                   /* these were looked up */
  MgSymSizes sizes;
  bool *spent; /* by value: its gradient graph was freed by a recorded backward pass */
  uint32_t cap_spent;
  struct MgFunction *function; /* calls of autograd.Function that autograd tracks (autograd_function.c) */
  struct MgHooked *hooked;     /* hooks on tensors that are part of the gradient graph (tensor_hooks.c) */
  struct MgPick *picks;        /* copies that stand for views (number_index.c); NULL: none */
  bool arrays;                 /* NumPy arrays are among the inputs */
  bool loops;                  /* the graph calls a while_loop */
  bool in_part;                /* a branch or the body of a loop is being recorded */
  bool own_kernels; /* operators with derivatives of their own may be among the nodes: mg_dispatch_reveal */
  bool asks_grad;   /* what is recorded depends on which inputs require grad */
  bool quiet;       /* calls of torch are ours: the torch-level graph does not want them */
  const char *refused;                     /* no op may be recorded now: why */
  bool grad_was_on, anomaly_was_on, begun; /* state at begin, restored at the end */
  int32_t autocast_depth;                  /* depth of `with autocast` at begin */
  long modes_before, functorch_before;     /* depths of torch's stacks at begin */
  bool functorch_unused;                   /* at begin: mg_state_functorch_unused */
  PyObject *fmodes;   /* list: the torch_function modes that were active (function_modes.c) */
  bool fmodes_known;  /* it is complete: mg_standin_end restores them */
  PyObject *autocast; /* autocast state at begin, see standin_save_autocast */
  PyObject *classes;  /* dict: class of the program -> class of its stand-ins (subclass.c); NULL at first */
  PyObject *wrappers; /* list: tensors that wrap others, as the recording sees them (wrapper_subclass.c);
                         NULL: none */
  PyObject *transformed; /* list: tensors of torch.func's transforms that the torch-level graph has
                            (fx_functorch.c); NULL: none */
  MgMap
      wrapper_val; /* a tensor of these two lists -> the value that stands for it in the torch-level graph */
  int glue; /* a class's own flatten, unflatten or dispatch runs: the storage of a stand-in is only handed on
             */
  bool decline;      /* the next op that the mode is handed is none of its business (wrapper_subclass.c) */
  bool unwrapping;   /* the inner tensors of one become inputs */
  bool jagged;       /* some of them have jagged sizes */
  bool told_sizes;   /* some of them were made with the sizes of the older ones, as numbers */
  bool own_function; /* some of them have a __torch_function__: what it does is in the graph */
  PyTypeObject *next_type; /* borrowed: the class of the next stand-in; NULL: the usual one */
  int inside;              /* the dispatch handler runs: what it calls is none of the program's calls */
  int32_t function_state;  /* torch_function enabled or disabled at begin */
  bool hooks_off;          /* saved-tensor hooks of the user were switched off: they must not see stand-ins */
};
extern PyTypeObject *mg_standin_type; /* strong, made by mg_standin_init */
extern Py_ssize_t mg_standin_slot;    /* byte offset of the MgStandInfo pointer in an instance */
static inline MgStandInfo *mg_standin_info(PyObject *o) {
  return *(MgStandInfo **)((char *)o + mg_standin_slot);
}
/* tp_base: stand-ins of subclasses (subclass.h) */
static inline bool mg_standin_is(PyObject *o) {
  return Py_TYPE(o) == mg_standin_type || Py_TYPE(o)->tp_base == mg_standin_type;
}
/* Symbols whose values the entry's guards know. */
static inline uint32_t mg_symsize_inputs(const MgSymSizes *s) { return s->nsrc - s->ndata; }
typedef struct MgSymNode {
  PyObject_HEAD MgCapture *cap; /* NULL once the recording has ended */
  SrcRef src;                   /* how every run computes it in Python; 0: depends on values of tensors */
  PyObject *hint; /* the float, int or answer that it is in this run, strong; without src: a constant; NULL:
                     depends on tensors */
  ValRef val;     /* 0-dim float64 or int64 value; 0: not needed by the graph yet (see mg_symnode_val) */
  char kind;      /* 'f' float, 'i' int, 'b' bool */
  bool keyed;     /* it is a key of a dict that the recording sees (number_index.h) */
  uint8_t calc;   /* without src and row: the MgCalc of its operands */
  uint32_t at;    /* element of row */
  ValRef row;     /* value of the graph that the number is an element of; 0: computed from operands
                     (item_numbers.c) */
  struct MgSymNode *left, *right; /* operands that are numbers; they live as long as the recording */
  PyObject *constant;             /* the other operand, strong */
  int32_t dim;                    /* row's size of that dimension + 1, not an element; 0: an element */
  SymRef size; /* what it is as a size, when it depends on data and was used as one; 0: not known */
} MgSymNode;
static inline bool mg_symnode_is_int(const MgSymNode *n) { return n->kind == 'i'; }
extern PyObject *mg_standin_c;
bool mg_standin_check(PyObject *o);         /* is it a stand-in? */
ValRef mg_standin_val(PyObject *o);         /* its graph value now (in-place ops rebind) */
PyObject *mg_standin_class(PyObject *o);    /* borrowed: the type user code must see */
PyObject *mg_standin_original(PyObject *o); /* borrowed: the older tensor of an input stand-in, or NULL */
/* Is it a wrapper that torch.func has put around a stand-in (vmap, grad, jvp)?  Made while
 * recording, used as it is. */
bool mg_standin_transformed(PyObject *o);
/* And of one, is what it wraps no tensor of a recording? */
bool mg_standin_transform_is_older(PyObject *o);
/* The recording breaks at an op that looks at gradients at `standin`: a hook, retain_grad, an input of
 * autograd.grad.  If the recording made that value, the gradient graph must show what else is computed from
 * it, which one node for all results does not. */
void mg_joint_links(PyObject *standin);
/* The program's class behind the class of a stand-in (borrowed), or t itself. */
static inline PyTypeObject *mg_subclass_of(PyTypeObject *t) {
  return t->tp_base == mg_standin_type ? (PyTypeObject *)PyTuple_GET_ITEM(t->tp_bases, 0) : t;
}
#endif
