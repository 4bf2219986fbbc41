/* Shared by the oneDNN engines: memory descriptors, post-ops, and one primitive with its arguments.
 * A DnnCall is immutable; what a thread needs to run it (a stream, memory objects whose handles are set per
 * call) is its DnnCallState. */
#ifndef MG_ONEDNN_PRIM_H
#define MG_ONEDNN_PRIM_H
#include "runtime/engine/onednn.h"
#include "runtime/engine/onednn_abi.h"
#include "runtime/engine/weight_cache.h"

typedef struct DnnApi {
#define F(ret, name, args) ret(*name) args;
  MG_DNN_FUNCS(F)
#undef F
} DnnApi;
extern DnnApi dnn;           /* valid after mg_onednn_load gave NULL */
extern DnnEngine dnn_engine; /* the CPU */
extern int dnn_post_op_base; /* argument number of the first post-op (it differs among 3.x) */

#define DNN_CALL_ARGS 8
typedef struct DnnSlot { /* where the memory of one argument is at run time */
  int arg;               /* DNN_ARG_* */
  int32_t ptr;           /* index into MgEngineArgs.ptr, or SLOT_scratch / SLOT_owned */
  uint64_t off;          /* byte offset from that pointer */
  DnnMd md;              /* owned */
} DnnSlot;
enum { SLOT_scratch = -1, SLOT_owned = -2 };

typedef struct DnnCall {
  DnnPrimitive prim; /* NULL: nothing to run */
  int nslot;
  DnnSlot slot[DNN_CALL_ARGS];
} DnnCall;

typedef struct DnnCallState {
  DnnStream stream; /* borrowed */
  DnnArg arg[DNN_CALL_ARGS];
} DnnCallState;

int dnn_dtype(uint8_t torch_dtype); /* 0: not one that the engines take */
/* A plain descriptor of t; strides of size-1 dimensions are made regular, because oneDNN
 * derives formats from them. */
DnnMd dnn_md(const MgTensorDesc *t); /* NULL: refused */
DnnMd dnn_md_strided(int dtype, int ndim, const int64_t *size, const int64_t *stride);
DnnMd dnn_md_any(int dtype, int ndim, const int64_t *size); /* the primitive chooses the format */
/* Attributes with user scratchpad and the post-ops in order: + residual (may be NULL), then the activation.
 * NULL: refused. */
DnnAttr dnn_attr(const MgActDesc *act, DnnMd residual);
/* Adds an argument; takes md (destroyed by dnn_call_free). */
void dnn_call_arg(DnnCall *c, int arg, int32_t ptr, uint64_t off, DnnMd md);
/* Makes the primitive of pd and its scratchpad argument at scratch + *scratch (which grows).  Takes pd. */
int dnn_call_prim(DnnCall *c, DnnPd pd, uint64_t *scratch);
/* A reorder between two descriptors (copied).  Nonzero: refused. */
int dnn_call_reorder(DnnCall *c, DnnMd from, int32_t from_ptr, uint64_t from_off, DnnMd to, int32_t to_ptr,
                     uint64_t to_off, uint64_t *scratch);
void dnn_call_free(DnnCall *c);
int dnn_call_state(const DnnCall *c, DnnStream s, DnnCallState *st); /* 0, or nonzero: out of memory */
void dnn_call_state_free(const DnnCall *c, DnnCallState *st);
/* Runs it.  owned: base of SLOT_owned. */
int dnn_call_run(const DnnCall *c, DnnCallState *st, const MgEngineArgs *a, void *owned);
DnnStream dnn_stream(void);      /* one for the process: CPU streams keep no state */
bool dnn_is_reference(DnnPd pd); /* a slow reference implementation was chosen */

/* Makes an engine from its description. MG_UNSUP, MG_NOMEM: nothing was made. */
typedef MgRc DnnMake(const void *desc, MgEngine **out);
/* Activations that keep NaN only with an engine around the one that make(desc) gives; act is a part of desc
 * (`size` bytes, copied), out describes pointer number `ptr`. */
bool dnn_exact_wanted(const MgActDesc *act);
MgRc dnn_exact_make(DnnMake *make, const void *desc, size_t size, const MgActDesc *act,
                    const MgTensorDesc *out, int ptr, MgEngine **e);
static inline uint64_t dnn_align(uint64_t n) { return (n + 63) & ~(uint64_t)63; }
#endif
